"""Whatever happens to shards: merged they are the run in one piece, or they are refused."""

from __future__ import annotations

import fcntl
import os
import random
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import h5py
import numpy as np
import pytest
from cluster.runs import OUT, QUANTITIES, write_parts

from trajcli.jobs.request import Request
from trajcli.jobs.run import run
from trajcli.jobs.shards import Part, merge

ROOT = Path(__file__).resolve().parents[2]
KILLS = 4
RUNNER = """
import sys
from trajcli.cli import main, start_process
start_process()
print("ready", flush=True)
line = "integrate in.npy --dt 0.02 --start zero -o out.h5 --shard"
sys.exit(main([*line.split(), sys.argv[1]]))
"""
REQUEST = Request(sources=["in.npy"], out=OUT, dt="0.02", start="zero")


@pytest.fixture
def whole() -> bytes:
    """Writes the run in one piece: 9 MB, in blocks of a few trajectories."""
    np.save("in.npy", np.random.default_rng(0).standard_normal((2400, 40, 6)).astype("f4"))
    run(replace(REQUEST, out=Path("whole.h5")))
    return Path("whole.h5").read_bytes()


def start(shard: str) -> subprocess.Popen[str]:
    """Starts a shard in a process of its own, which waits to begin."""
    process = subprocess.Popen(
        [sys.executable, "-c", RUNNER, shard],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT), "TRAJCLI_MEMORY": "200kB"},
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def finish(shard: str) -> int:
    process = start(shard)
    process.communicate()
    return process.returncode


def merged() -> bytes:
    merge(OUT, overwrite=True)
    return OUT.read_bytes()


def test_shards_that_are_killed_and_run_again_give_the_same_bytes(whole):
    chance = random.Random(5)
    kills = unfinished = 0
    while kills < KILLS:
        process = start(f"{chance.randrange(2)}/2")
        while process.poll() is None and not any(QUANTITIES.glob(".*.trajcli-*/data")):
            time.sleep(0.001)
        time.sleep(chance.uniform(0.0, 0.1))
        process.send_signal(signal.SIGKILL)
        process.communicate()
        kills += 1
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
    process = start("0/1")
    while process.poll() is None and not any(QUANTITIES.glob(".*.trajcli-*/data")):
        time.sleep(0.001)
    process.send_signal(number)
    _, error = process.communicate()
    assert process.returncode == 75, error
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
