"""Whatever happens to shares: the joined result is that of a run in one piece, or it is refused."""

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
from typing import Any

import numpy as np
import pytest

from trajcli.errors import InputError, Stopped
from trajcli.jobs.merge import merge
from trajcli.jobs.request import Request
from trajcli.jobs.run import run
from trajcli.jobs.sharded import run_share
from trajcli.jobs.share import Share
from trajcli.jobs.status import status

ROOT = Path(__file__).resolve().parents[2]
KILLS = 50
RUNNER = """
import sys
from trajcli.jobs import sharded
sharded.LEAST_BYTES = 20_000
from trajcli.cli import main
print("ready", flush=True)
line = "integrate in.npy --dt 0.02 --start zero -o out.h5 --no-progress"
sys.exit(main([*line.split(), "--shard-index", sys.argv[1], "--num-shards", sys.argv[2]]))
"""
PARTS = Path("out.h5.parts")
REQUEST = Request(sources=["in.npy"], out=Path("out.h5"), dt="0.02", start="zero")


@pytest.fixture(autouse=True)
def whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> bytes:
    """A run of some 300 units of a few trajectories, and the bytes of it in one piece."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("trajcli.jobs.sharded.LEAST_BYTES", 20_000)
    np.save("in.npy", np.random.default_rng(0).standard_normal((1500, 40, 6)).astype("f4"))
    run(replace(REQUEST, out=Path("whole.h5")))
    return Path("whole.h5").read_bytes()


def share(index: int, number: int, **more: Any) -> dict[str, Any]:
    return run_share(replace(REQUEST, share=Share(index, number)), **more)


def start(index: int, number: int, **variables: str) -> subprocess.Popen[str]:
    """A share in a process of its own, about to begin."""
    process = subprocess.Popen(
        [sys.executable, "-c", RUNNER, str(index), str(number)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT), **variables},
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def joined() -> bytes:
    merge([PARTS], REQUEST.out, overwrite=True)
    return REQUEST.out.read_bytes()


def test_shares_killed_at_any_time_and_run_again_with_other_numbers_give_the_same_bytes(whole):
    chance = random.Random(5)
    kills = left_behind = 0
    for _ in range(10 * KILLS):
        number = chance.choice([1, 2, 3, 7])
        processes = [start(chance.randrange(number), number) for _ in range(2)]
        time.sleep(chance.uniform(0.01, 0.08))
        for process in processes:
            process.send_signal(signal.SIGKILL)
            process.communicate()
            kills += process.returncode == -signal.SIGKILL
        left_behind += any(PARTS.rglob(".*trajcli-part"))
        if kills >= KILLS:
            break
    assert kills >= KILLS
    assert left_behind  # some of them in the middle of a unit
    for index in range(3):
        assert share(index, 3)["exit_code"] == 0
    assert joined() == whole
    assert not list(PARTS.rglob(".*trajcli-*"))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2, signal.SIGINT])
def test_a_share_that_slurm_warns_exits_75_and_goes_on_when_requeued(whole, number):
    process = start(0, 1)
    while process.poll() is None and not any(PARTS.glob("*/*.json")):
        time.sleep(0.001)
    process.send_signal(number)
    _, error = process.communicate()
    assert process.returncode == 75
    assert f"stopped by {number.name}" in error
    assert "run the same command again" in error
    process = start(0, 1)
    assert process.communicate()[0].count("done before") == 1
    assert process.returncode == 0
    assert joined() == whole


def test_two_shares_of_one_index_at_once_do_the_work_once_or_say_to_run_again(whole):
    processes = [start(0, 1), start(0, 1)]
    for process in processes:
        process.communicate()
    assert {process.returncode for process in processes} <= {0, 75}
    process = start(0, 1)
    process.communicate()
    assert process.returncode == 0
    assert joined() == whole


def test_a_unit_that_another_run_writes_is_left_to_it_and_the_exit_code_says_so(whole):
    share(0, 2)
    unit = sorted(PARTS.rglob("*.h5"))[3]
    unit.with_suffix(".json").unlink()
    hidden = unit.parent / f".{unit.name}.trajcli-part"
    with open(hidden, "wb") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        assert status(REQUEST.out)["units"]["running"] == 1
        report = share(0, 1)
        assert report["exit_code"] == 75
        assert report["units"]["elsewhere"] == [3]
        assert status(REQUEST.out)["units"]["missing"] == 0
        with pytest.raises(InputError, match="1 running"):
            joined()
    assert share(0, 1)["exit_code"] == 0
    assert joined() == whole


@pytest.mark.parametrize("size", [0, 100, -1])
def test_a_part_cut_short_on_the_disk_is_found_and_done_again(whole, size):
    share(0, 1)
    part = sorted(PARTS.rglob("*.h5"))[7]
    os.truncate(part, part.stat().st_size + size if size < 0 else size)
    found = status(REQUEST.out)
    assert (found["complete"], found["units"]["missing"], found["array"]) == (False, 1, "0")
    assert str(part) in found["notes"][0]
    with pytest.raises(InputError, match=part.name):
        joined()
    report = share(0, 1)
    assert report["units"]["done"] == 1
    assert str(part) in report["units"]["redone"][0]
    assert joined() == whole


def test_a_part_of_other_bytes_is_refused(whole):
    share(0, 1)
    part = sorted(PARTS.rglob("*.h5"))[7]
    data = bytearray(part.read_bytes())
    data[-4000:-3000] = bytes(1000)  # as a machine that lost power leaves it
    part.write_bytes(data)
    with pytest.raises(InputError, match=r"a damaged part\n.*checksum"):
        joined()
    part.unlink()
    share(0, 1)
    assert joined() == whole


@pytest.mark.parametrize("gone", [".h5", ".json"])
def test_a_part_without_record_or_a_record_without_part_is_done_again(whole, gone):
    share(0, 1)
    sorted(PARTS.rglob(f"0*{gone}"))[9].unlink()
    assert status(REQUEST.out)["units"]["missing"] == 1
    assert share(0, 1)["units"]["done"] == 1
    assert joined() == whole


def test_clocks_and_times_of_parts_decide_nothing(whole, monkeypatch):
    share(0, 3)
    for k, path in enumerate(sorted(PARTS.rglob("*"))):
        os.utime(path, ns=(0, 0) if k % 2 else (1 << 62, 1 << 62))
    monkeypatch.setattr("time.time", lambda: 1e5)  # this machine believes it is 1970
    monkeypatch.setattr("time.time_ns", lambda: 10**14)
    share(1, 3)
    monkeypatch.setattr("time.time", lambda: 1e10)
    process = start(2, 3, TZ="Pacific/Kiritimati", SOURCE_DATE_EPOCH="1")
    process.communicate()
    assert process.returncode == 0
    report = share(0, 1)
    assert (report["units"]["done"], report["exit_code"]) == (0, 0)
    assert joined() == whole


def test_a_share_that_never_starts_is_reported_and_ready_for_sbatch(whole, trajcli):
    for index in (0, 1, 3):
        share(index, 5)
    result = trajcli("status out.h5")
    assert result.code == 1
    assert result.out.endswith("--array=2,4\n")
    assert trajcli("merge out.h5.parts -o out.h5").code == 2
    for index in (2, 4):
        share(index, 5)
    assert trajcli("status out.h5").code == 0
    assert joined() == whole


def test_a_damaged_description_of_the_run_is_refused(whole):
    share(0, 1)
    (PARTS / "run.json").write_text('{"format": 1')
    with pytest.raises(InputError, match="not a JSON document"):
        joined()
    with pytest.raises(InputError, match=r"run\.json"):
        status(REQUEST.out)


def test_a_unit_that_was_stopped_begins_anew_where_its_input_has_changed(whole, monkeypatch):
    monkeypatch.setattr("trajcli.jobs.sharded.LEAST_BYTES", 1 << 30)  # one unit of many blocks
    request = replace(REQUEST, memory=1 << 18, share=Share(0, 1))

    def stop(account: Any, part: float) -> None:
        if part > 0.4:
            os.kill(os.getpid(), signal.SIGTERM)

    with pytest.raises(Stopped):
        run_share(request, on_progress=stop)
    assert list(PARTS.rglob(".*trajcli-journal"))
    np.save("in.npy", np.load("in.npy") + 1)
    assert run_share(request)["exit_code"] == 0
    run(replace(REQUEST, overwrite=True, out=Path("whole.h5")))
    assert joined() == Path("whole.h5").read_bytes()
