"""Signals at every stage of a command, in a process of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from journeys.conftest import ROOT, python

RUN = "integrate actions.npy --start zero --dt 0.02 -o out.h5 --json"
LOOP = "while True: time.sleep(0.01)"
HANG = "sum(itertools.repeat(0))"
"""C code that looks for no signals and never returns, as HDF5 within a damaged file."""


def start(line: str, function: str, body: str, ignored: tuple[int, ...] = ()) -> Any:
    """Start a command in which a function, module:name, says "ready" and does something else.

    ignored: signals that the process is started to ignore.
    """
    module, _, name = function.partition(":")
    code = f"""
import importlib, itertools, os, signal, sys, time
from trajcli import cli
place = importlib.import_module({module!r})
*within, last = {name!r}.split(".")
for part in within:
    place = getattr(place, part)
original = getattr(place, last)

def instead(*arguments, **options):
    setattr(place, last, original)
    print("ready", file=sys.stderr, flush=True)
    {body}

setattr(place, last, instead)
cli.run()
"""

    def dispositions() -> None:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1):
            signal.signal(number, signal.SIG_IGN if number in ignored else signal.SIG_DFL)

    process = subprocess.Popen(
        [sys.executable, "-c", code, *line.split()],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        preexec_fn=dispositions,
    )
    assert process.stderr is not None
    while (printed := process.stderr.readline()) != "ready\n":
        assert printed, "the function was not called"
    return process


def end(process: Any) -> tuple[int, str, str]:
    """The exit code of a command, and what it printed."""
    try:
        out, err = process.communicate(timeout=60)
    finally:
        process.kill()
    return process.returncode, out, err


@pytest.mark.parametrize(
    ("stage", "number"),
    [
        ("files.hdf5_output:_access", signal.SIGINT),
        ("jobs.plan:resolve", signal.SIGHUP),
        ("jobs.plan:resolve", signal.SIGUSR1),
    ],
)
def test_a_signal_while_a_run_is_planned_ends_it(folder, number, stage):
    np.savez("actions.npz", actions=np.ones((3, 4, 2)), lengths=[4, 3, 4])
    process = start(RUN.replace(".npy", ".npz"), f"trajcli.{stage}", LOOP)
    process.send_signal(number)
    code, out, err = end(process)
    assert code == 75, err
    error = json.loads(out)["error"]
    assert (error["exit_code"], error["faults"][0]["what"]) == (75, f"stopped by {number.name}")
    assert "Traceback" not in err
    assert not list(folder.glob("*out.h5*")) + list(folder.glob(".*"))


def test_a_signal_that_a_library_reports_is_exit_75(folder):
    body = """
    try:
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(10)
    finally:  # as h5py does where HDF5 calls back
        raise TypeError("Operation not defined for data type class")
"""
    code, out, err = end(start(RUN, "trajcli.files.hdf5_output:_access", body.strip()))
    assert code == 75, err
    assert json.loads(out)["error"]["faults"][0]["what"] == "stopped by SIGTERM"
    assert sorted(os.listdir()) == ["actions.npy", "start.npy"]


@pytest.mark.parametrize(
    ("line", "function", "body"),
    [
        (RUN, "files.opening:open_arrays", HANG),
        (RUN, "jobs.run:Integration.compute", LOOP),  # a block that takes long
    ],
)
def test_a_second_signal_ends_a_command_that_does_not_answer(folder, line, function, body):
    process = start(line, f"trajcli.{function}", body)
    time.sleep(0.3)  # it says that it is ready just before
    process.send_signal(signal.SIGINT)
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0.5)
    process.send_signal(signal.SIGINT)
    assert end(process)[0] == -signal.SIGINT
    assert not Path("out.h5").exists()


@pytest.mark.parametrize(
    "line",
    [
        RUN,
        "fit actions.npy --dt 0.02 --knots 7 -o out.npz --json",
    ],
)
def test_a_signal_while_a_block_is_written_leaves_nothing(folder, line):
    np.save("actions.npy", np.load("actions.npy")[0].astype("f8"))
    body = "os.kill(os.getpid(), signal.SIGTERM); return original(*arguments, **options)"
    at = "jobs.run:Integration.compute" if line == RUN else "files.outputs:Output.write"
    code, out, err = end(start(line, f"trajcli.{at}", body))
    assert code == 75, err
    assert json.loads(out)["error"]["faults"][0]["what"] == "stopped by SIGTERM"
    assert sorted(os.listdir()) == ["actions.npy", "start.npy"]


@pytest.mark.parametrize(
    ("line", "rename"),
    [
        (RUN, "rename_new"),
        (f"{RUN} --overwrite", "os.replace"),
        ("score actions.npy --dt 0.02 --csv out.csv --json", "rename_new"),
    ],
)
def test_a_signal_when_the_output_is_complete_is_exit_0(folder, line, rename):
    """It comes before the call by which OUT appears has returned."""
    if "integrate" not in line:
        np.save("actions.npy", np.load("actions.npy")[0].astype("f8"))
    body = "original(*arguments, **options); os.kill(os.getpid(), signal.SIGTERM)"
    code, out, err = end(start(line, f"trajcli.files.atomic_output:{rename}", body))
    assert code == 0, err
    assert json.loads(out)
    assert list(folder.glob("out.*"))
    assert not list(folder.glob(".*"))


@pytest.mark.parametrize(
    ("line", "place"),
    [
        ("diff actions.npy actions.npy", "cli.console:Console.__init__"),
        ("inspect actions.npy --json", "cli:_run"),  # while modules load
    ],
)
def test_ctrl_c_in_a_command_that_only_reads_is_exit_130(folder, line, place):
    process = start(line, f"trajcli.{place}", LOOP)
    process.send_signal(signal.SIGINT)
    code, out, err = end(process)
    assert code == 130, err
    assert "Traceback" not in err
    assert "stopped by SIGINT" in err
    assert bool(out) == ("--json" in line)
    if out:
        assert json.loads(out)["error"]["exit_code"] == 130


def test_what_nohup_ignores_stays_ignored(folder):
    body = "time.sleep(0.2); return original(*arguments, **options)"
    process = start(RUN, "trajcli.jobs.plan:resolve", body, ignored=(signal.SIGHUP,))
    process.send_signal(signal.SIGHUP)
    assert end(process)[0] == 0


def test_a_signal_after_the_command_has_ended_changes_nothing(folder):
    process = start("modes", "trajcli.cli:end_process", "time.sleep(0.3); original(*arguments)")
    for _ in range(3):
        process.send_signal(signal.SIGINT)
        time.sleep(0.02)
    assert end(process)[0] == 0


def test_a_signal_that_a_destructor_swallows_counts_at_the_first_block(folder):
    np.save("in.npy", np.zeros((5, 10, 3), "f4"))
    code = """
import os, signal, sys
from trajcli.cli import main
from trajcli.jobs import run
from trajcli.system import answer_signals
plan = run.Plan

class Dying:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGUSR1)
        for _ in range(1000): pass  # the handler runs here, and what it raises is ignored

def make_plan(*args):
    Dying()
    return plan(*args)

run.Plan = make_plan
answer_signals()
sys.exit(main("integrate in.npy --start zero --dt 1 -o out.h5".split()))
"""
    run = python("-c", code)
    assert "ignored" in run.stderr
    assert run.returncode == 75, run.stderr
    assert not Path("out.h5").exists()


def test_a_signal_while_the_process_starts_is_exit_75(folder):
    body = "original(); os.kill(os.getpid(), signal.SIGTERM); time.sleep(10)"
    code, _, err = end(start(RUN, "trajcli.system:answer_signals", body))
    assert (code, err) == (75, "")


def test_signals_are_answered_before_anything_large_is_imported():
    large = ("typing", "inspect", "pathlib", "threading", "numpy", "typer")
    end = "cli.start_process(); print(signal.getsignal(15).__name__, *sys.modules)"
    run = python("-S", "-c", f"import signal, sys; from trajcli import cli; {end}")
    assert run.returncode == 0, run.stderr
    handler, *modules = run.stdout.split()
    assert handler == "interrupt"
    assert not {*large} & {*modules}


MOMENTS = """
import os, shutil, signal, sys
from trajcli import cli
import trajcli.files.hdf5_output, trajcli.jobs.run, trajcli.views.export  # before the forks

def end_at(moment, words):
    "Runs a command that gets a signal at a call after something hidden was made."
    calls = 0

    def count(frame, event, what):
        nonlocal calls
        if not calls:
            begun = event not in ("c_call", "call") and any(os.listdir("out"))
            calls = int(begun)
            return
        calls += 1
        if calls > moment:
            sys.setprofile(None)
            os.kill(os.getpid(), signal.SIGTERM)

    def watch(event, arguments):
        hidden = event in ("open", "os.mkdir") and ".trajcli-" in str(arguments[0])
        if hidden and not calls and sys.getprofile() is None:
            sys.setprofile(count)

    sys.argv[1:] = words
    os.dup2(os.open("/dev/null", os.O_WRONLY), 2)
    sys.addaudithook(watch)
    cli.run()

name, words = sys.argv[1], sys.argv[2].split()
stride, moment, stopped = int(os.environ.get("TRAJCLI_MOMENTS", 1301)), 1, 0
while True:
    os.mkdir("out")
    if not (child := os.fork()):
        end_at(moment, words)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    left = os.listdir("out")
    assert (code, left) in ((75, []), (0, [name])), (moment, code, left)
    shutil.rmtree("out")
    if code == 0:
        break
    stopped, moment = stopped + 1, moment + (2 if moment < 24 else stride)
print(stopped)
"""


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("out.h5", RUN),
        ("out.csv", "export actions.npy --dt 0.02 -o out.h5"),
    ],
)
def test_a_signal_at_any_moment_leaves_nothing_hidden(folder, name, line):
    """TRAJCLI_MOMENTS is the number of calls from one moment to the next."""
    np.save("actions.npy", np.load("actions.npy")[0].astype("f8"))
    run = python("-c", MOMENTS, name, line.replace("out.h5", f"out/{name}"))
    assert run.returncode == 0, run.stderr
    assert int(run.stdout.split()[-1]) > 12
