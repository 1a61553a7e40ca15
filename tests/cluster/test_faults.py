"""Whatever happens to shards: merged they are the run in one piece, or they are refused."""

from __future__ import annotations

import fcntl
import multiprocessing
import os
import random
import signal
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from cluster.runs import OUT, QUANTITIES, write_parts

from trajcli import system
from trajcli.cli import main, start_process
from trajcli.jobs.request import Request
from trajcli.jobs.run import run
from trajcli.jobs.shards import Part, merge

KILLS = 4
REQUEST = Request(sources=["in.npy"], out=OUT, dt="0.02", start="zero")


@pytest.fixture
def whole(monkeypatch: pytest.MonkeyPatch) -> bytes:
    """Writes the run in one piece: 9 MB, in blocks of a few trajectories."""
    np.save("in.npy", np.random.default_rng(0).standard_normal((2400, 40, 6)).astype("f4"))
    run(replace(REQUEST, out=Path("whole.h5")))
    monkeypatch.setenv("TRAJCLI_MEMORY", "200kB")
    return Path("whole.h5").read_bytes()


def work(shard: str) -> None:
    sys.stdout = sys.stderr = open("said", "w", buffering=1)  # noqa: SIM115
    system._complete = False  # what this process has run before was
    start_process()
    sys.exit(main(f"integrate in.npy --dt 0.02 --start zero -o out.h5 --shard {shard}".split()))


def start(shard: str) -> Any:
    """Starts a shard in a process of its own, a fork of this one."""
    process = multiprocessing.get_context("fork").Process(target=work, args=(shard,))
    process.start()
    return process


def start_and_send(shard: str, number: signal.Signals, later: float = 0.0) -> Any:
    """Sends a signal to a shard once it has begun its part."""
    process = start(shard)
    while process.exitcode is None and not any(QUANTITIES.glob(".*.trajcli-*/data")):
        time.sleep(0.001)
    time.sleep(later)
    os.kill(process.pid, number)
    process.join()
    return process


def finish(shard: str) -> int:
    process = start(shard)
    process.join()
    return process.exitcode


def merged() -> bytes:
    merge(OUT, overwrite=True)
    return OUT.read_bytes()


def test_shards_that_are_killed_and_run_again_give_the_same_bytes(whole):
    chance = random.Random(5)
    unfinished = 0
    for _ in range(KILLS):
        start_and_send(f"{chance.randrange(2)}/2", signal.SIGKILL, chance.uniform(0.0, 0.1))
        unfinished += any(QUANTITIES.glob(".*.trajcli-*/data"))
        for part in QUANTITIES.glob("0*.h5"):  # what is there is complete
            Part(part)
            part.unlink()
    assert unfinished  # some of them in the middle of their part
    assert [finish(f"{index}/2") for index in range(2)] == [0, 0]
    assert merged() == whole
    assert sorted(path.name for path in QUANTITIES.iterdir()) == [
        "00000-of-00002.h5",
        "00001-of-00002.h5",
    ]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1])
def test_a_shard_that_slurm_stops_exits_75_and_can_resume(whole, number):
    process, error = start_and_send("0/1", number), Path("said").read_text()
    assert process.exitcode == 75, error
    assert f"stopped by {number.name}" in error
    assert "run the same command again" in error
    assert finish("0/1") == 0
    assert merged() == whole


def test_a_second_process_is_refused_the_same_shard(whole):
    QUANTITIES.mkdir()
    with open(QUANTITIES / ".00001-of-00002.h5.trajcli-lock", "wb") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        assert finish("1/2") == 75
    assert [finish(f"{index}/2") for index in range(2)] == [0, 0]
    assert merged() == whole


def test_status_lists_what_has_to_run_for_sbatch(trajcli):
    write_parts(12, (0, 1, 2, 4, 5, 6))
    result = trajcli("status out.h5", code=1)
    assert result.out.splitlines() == [
        "out.h5.parts: 6 of 12 shards done", "missing: 3,7-11", "--array=3,7-11"
    ]  # fmt: skip
    document = trajcli("status out.h5.parts --json").document
    assert (document["done"], document["array"]) == ([0, 1, 2, 4, 5, 6], "3,7-11")
    write_parts(12, (3, 7, 8, 9, 10, 11))
    result = trajcli("status out.h5")
    assert (result.code, result.out) == (0, "out.h5.parts: 12 of 12 shards done, ready to merge\n")


def test_status_names_parts_of_another_command_and_damaged_ones(trajcli):
    write_parts(5, (0, 1, 2, 3))
    write_parts(5, [1], dt="0.05")
    (QUANTITIES / "00003-of-00005.h5").write_bytes(b"")
    result = trajcli("status out.h5")
    assert result.code == 1
    assert "00001-of-00005.h5: a part of another command" in result.out
    assert "dt 0.05 there, 0.02 here" in result.out
    assert "00003-of-00005.h5: cannot be read" in result.out
    assert result.out.endswith("--array=1,3-4\n")


def change_attribute(name: str, value: object) -> None:
    write_parts(1)
    with h5py.File(QUANTITIES / "00000-of-00001.h5", "r+") as file:
        if value is None:
            del file.attrs[name]
        else:
            file.attrs[name] = value


PART = QUANTITIES / "00000-of-00001.h5"


def another_output() -> None:
    with h5py.File(PART, "w") as file:
        file["position"] = np.zeros((3, 4, 5))


UNREADABLE = {
    "a folder as a part": PART.mkdir,
    "random bytes": lambda: PART.write_bytes(np.random.default_rng(0).bytes(5000)),
    "another output": another_output,
}
DAMAGES = {
    **UNREADABLE,
    "no folder": QUANTITIES.rmdir,
    "a file": lambda: (QUANTITIES.rmdir(), QUANTITIES.write_bytes(b"parts")),
    "other files": lambda: (QUANTITIES / "run.json").write_text("{"),
    "no parts": lambda: None,
    "a FIFO": lambda: os.mkfifo(PART),
    "an index past the end": (QUANTITIES / "00007-of-00002.h5").touch,
    "no shards": (QUANTITIES / "00000-of-00000.h5").touch,
    "another shard": lambda: change_attribute("shard", "4/9"),
    "no request": lambda: change_attribute("request", None),
    "a request that is no JSON": lambda: change_attribute("request", "{"),
    "a request of numbers": lambda: change_attribute("request", np.arange(4)),
    "a request that is a list": lambda: change_attribute("request", "[1, 2]"),
    "a deep request": lambda: change_attribute("request", "[" * 60000),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_folder_of_parts_is_an_input_error(damage, trajcli):
    QUANTITIES.mkdir()
    damage()
    assert trajcli("status out.h5").code in (0, 1, 2)
    trajcli.refuses("merge out.h5", "out.h5.parts")
    assert not OUT.exists()


@pytest.mark.parametrize("name", UNREADABLE)
def test_a_part_that_cannot_be_read_is_written_again_or_refused(name, trajcli):
    QUANTITIES.mkdir()
    UNREADABLE[name]()
    np.save("in.npy", np.zeros((3, 5, 2)))
    code = trajcli("integrate in.npy --dt 0.02 --start zero -o out.h5 --shard 0/1").code
    assert code == (2 if name == "a folder as a part" else 0)
    assert trajcli("merge out.h5").code == code
