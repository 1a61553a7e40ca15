"""What must start fast imports little."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from trajcli.kernels import native

ROOT = Path(__file__).resolve().parents[2]


Run = subprocess.CompletedProcess


RUN = """
import atexit, runpy, sys
atexit.register(lambda: print("loaded:", *sys.modules, file=sys.stderr))
runpy.run_module("trajcli", run_name="__main__", alter_sys=True)
"""


def loaded(arguments: list[str], **variables: str) -> tuple[set[str], Run]:
    """The modules a command line imports, and what it printed."""
    run = subprocess.run(
        [sys.executable, "-c", RUN, *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT), **variables},
    )
    (line,) = (line for line in run.stderr.split("\n") if line.startswith("loaded:"))
    names = set(line.split()[1:])
    assert "typer" in names
    return names, run


def imported(arguments: list[str], **variables: str) -> tuple[set[str], Run]:
    """Only the top-level ones."""
    names, run = loaded(arguments, **variables)
    return {name.partition(".")[0] for name in names}, run


@pytest.mark.parametrize(
    "arguments",
    [
        ["--help"],
        ["--version"],
        ["integrate", "--help"],
        ["inspect", "--help"],
        ["modes"],
        ["modes", "--json"],
    ],
)
def test_help_and_modes_import_none_of_the_large_libraries(arguments):
    names, run = imported(arguments)
    assert run.returncode == 0
    assert run.stdout
    assert names.isdisjoint({"torch", "h5py", "numpy", "matplotlib", "rich", "markdown_it", "attr"})


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_imports_neither_torch_nor_h5py(shell):
    variables = {
        "_TRAJCLI_COMPLETE": f"complete_{shell}",
        "COMP_WORDS": "trajcli int",
        "COMP_CWORD": "1",
        "_TYPER_COMPLETE_ARGS": "trajcli int",
        "_TYPER_COMPLETE_FISH_ACTION": "get-args",
    }
    names, run = imported([], **variables)
    assert "integrate" in run.stdout
    assert names.isdisjoint({"torch", "h5py", "matplotlib"})


def test_importing_the_package_imports_neither_torch_nor_h5py():
    code = "import trajcli, sys; print({'torch', 'h5py', 'numpy'} & set(sys.modules))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert run.stdout == "set()\n"


@pytest.mark.skipif(bool(native.absence()), reason=native.absence())
@pytest.mark.parametrize(
    "words",
    [
        "integrate {samples}/reach.h5 --mode jerk -o {out}",
        "differentiate {samples}/recorded.h5:position --method central -o {out}",
        "integrate {samples}/control_points.npz --mode bspline --ends goal -o {out}",
        "integrate {samples}/reach.h5 --mode jerk -o {out} --cost velocity+0.1*jerk",
        "integrate {samples}/control_points.npz --mode bspline --ends goal -o {out} --cost jerk",
        "resample {samples}/recorded.h5:position --to 50 --method cubic -o {out}",
        "info",
    ],
)
def test_cpu_jobs_never_import_torch(samples, tmp_path, words):
    names, run = imported(words.format(samples=samples, out=tmp_path / "out.h5").split())
    assert run.returncode == 0, run.stderr
    assert "torch" not in names


SHARED = {"app", "config", "console", "options", "parsing", "process"}
"""What commands have in common."""


def test_a_command_loads_no_other_command(samples):
    for arguments in (["modes"], ["integrate", "--help"]):
        names, _ = loaded(arguments)
        commands = {name.rpartition(".")[2] for name in names if name.startswith("trajcli.cli.")}
        assert commands - SHARED == {arguments[0]}


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="counts threads as Linux does")
def test_numpy_starts_no_threads_that_only_wait(tmp_path):
    code = (
        "import atexit, os, sys\n"
        "sys.argv = ['trajcli', 'info', '--quiet']\n"
        "atexit.register(lambda: print(len(os.listdir('/proc/self/task'))))\n"
        "from trajcli.cli import run\n"
        "run()\n"
    )
    env = {k: v for k, v in os.environ.items() if not k.endswith("_NUM_THREADS")}
    env["PYTHONPATH"] = str(ROOT)
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env)
    assert run.stdout == "1\n"


@pytest.mark.skipif(bool(native.absence()), reason=native.absence())
def test_numpy_in_numpy_out_never_imports_torch():
    code = (
        "import sys, numpy as np, trajcli\n"
        "found = trajcli.integrate(np.ones((2, 9, 3)), np.zeros(3), 0.1, 'central')\n"
        "assert type(found.position) is np.ndarray\n"
        "assert 'torch' not in sys.modules\n"
    )
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    subprocess.run([sys.executable, "-c", code], check=True, env=env)
