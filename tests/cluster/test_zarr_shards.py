"""Shards that write into one Zarr store: the bytes of a run in one piece, without merging."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from cluster.runs import demonstrations, lengths, many_files, one_array, run_shards
from faults.campaign import contents, hidden
from faults.together import together

from trajcli.errors import InputError, OutputError, Stopped, UsageError
from trajcli.files import zarr_output
from trajcli.jobs.merge import merge
from trajcli.jobs.request import Request
from trajcli.jobs.run import run
from trajcli.jobs.shards import Shard, find_run

OUT, WHOLE, PARTS = Path("out.zarr"), Path("whole.zarr"), Path("out.zarr.parts")
RUNS: dict[str, Callable[[], Request]] = {
    "one array": one_array,
    "steps of their own": lambda: one_array(dt="one_each.npy"),
    "many files": many_files,
    "files of other steps and lengths": lambda: many_files(0.01, 3),
    "padded": lambda: lengths(pack=True),
    "groups": lengths,
    "demonstrations": demonstrations,
    "at a rate": lambda: lengths(to=33.0, options={"scheme": "zoh"}, pack=True),
    "gradients by trajectory": lambda: one_array(cost="jerk", mode="jerk", wrt=("actions",)),
    "some": lambda: one_array(episodes="2:19"),
}


@pytest.fixture(autouse=True)
def _small_chunks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(zarr_output, "_CHUNK_BYTES", 2500)  # a few trajectories


@pytest.mark.parametrize(
    ("name", "count"),
    [*((name, 3) for name in RUNS), ("one array", 1), ("padded", 40), ("groups", 40)],
)
def test_shards_give_the_bytes_of_a_run_in_one_piece(name, count):
    request = RUNS[name]()
    run(replace(request, out=WHOLE))
    run_shards(replace(request, out=OUT), count, reversed(range(count)))
    assert contents(OUT) == contents(WHOLE)
    assert not (PARTS / "store").exists()
    assert not hidden(Path())
    assert not hidden(PARTS)
    assert len(find_run(OUT, checked=True).done) == count
    assert merge(OUT)["parts"] == count  # there is nothing left to do
    assert contents(OUT) == contents(WHOLE)


def test_sums_over_all_trajectories_are_added_when_the_store_is_closed():
    import numpy as np

    zarr = pytest.importorskip("zarr")
    request = one_array(cost="jerk", mode="jerk", wrt=("dt", "start"))
    run(replace(request, out=WHOLE))
    run_shards(replace(request, out=OUT), 3)
    merge(OUT)
    for path, one in zarr.open_group(WHOLE, mode="r").members(max_depth=None):
        if isinstance(one, zarr.Array):
            other = zarr.open_array(OUT / path, mode="r")
            np.testing.assert_allclose(other[...], one[...], rtol=1e-12, atol=1e-12)


def test_what_is_missing_or_damaged_is_found_and_done_again():
    request = replace(one_array(), out=OUT)
    run(replace(request, out=WHOLE))
    run_shards(request, 4, [0, 2, 3])
    assert list(find_run(OUT).missing) == [1]
    with pytest.raises(InputError, match="1 missing"):
        merge(OUT)
    damage(sorted(PARTS.glob("store/position/c.*"))[0])
    notes = run(replace(request, shard=Shard(1, 4)))["notes"]
    assert "damaged; run this shard again" in notes[-1]
    assert not OUT.exists()
    with pytest.raises(InputError, match="damaged"):
        merge(OUT)
    sorted(PARTS.glob("store/jerk/c.*"))[-1].unlink()
    reports = [run(replace(request, shard=Shard(k, 4))) for k in range(4)]
    assert sum("already_done" in report for report in reports) == 2
    assert contents(OUT) == contents(WHOLE)


def damage(chunk: Path) -> None:
    data = bytearray(chunk.read_bytes())
    data[5] ^= 1
    chunk.write_bytes(data)


def test_shards_of_a_store_that_is_complete_are_done_and_it_is_never_mixed_with_others():
    request = replace(one_array(), out=OUT)
    run_shards(request, 4)
    before = {path: path.stat().st_ino for path in OUT.rglob("*")}
    assert all(run(replace(request, shard=Shard(k, 4)))["already_done"] for k in range(4))
    assert {path: path.stat().st_ino for path in OUT.rglob("*")} == before
    run(replace(request, out=WHOLE))
    damage(sorted(OUT.glob("position/c.*"))[0])
    damaged = contents(OUT)
    with pytest.raises(OutputError, match="already exists"):
        run_shards(request, 4, [0])
    notes = run(replace(request, overwrite=True, shard=Shard(0, 4)))["notes"]
    assert "in OUT alone" in notes[-1]
    assert contents(OUT) == damaged
    with pytest.raises(InputError, match="in OUT alone"):
        merge(OUT, overwrite=True)
    shutil.rmtree(PARTS)
    run_shards(replace(request, overwrite=True), 4)
    assert contents(OUT) == contents(WHOLE)


def test_a_shard_that_was_stopped_goes_on(monkeypatch):
    import signal

    request = replace(one_array(memory=1 << 13), out=OUT)
    run(replace(request, out=WHOLE))

    def stop(done: int, total: int) -> None:
        if done > 3:
            os.kill(os.getpid(), signal.SIGTERM)

    one = replace(request, shard=Shard(1, 2))
    with pytest.raises(Stopped, match="kept"):
        run(one, on_progress=stop)
    assert not list(PARTS.glob("store/*"))
    assert run(one)["resumed_after"] > 3
    run_shards(request, 2)
    assert contents(OUT) == contents(WHOLE)


def test_a_shard_that_dies_as_it_moves_its_chunks_is_done_again(monkeypatch):
    request, moved, move = replace(one_array(), out=OUT), [], os.replace
    run(replace(request, out=WHOLE))

    def dies(source: Path, target: Path) -> None:
        if "store" in Path(target).parts and len(moved) > 4:
            raise OSError(5, "Input/output error")
        moved.append(target)
        move(source, target)

    with monkeypatch.context() as patched:
        patched.setattr(os, "replace", dies)
        with pytest.raises(Exception, match="Input/output"):
            run_shards(request, 2, [1])
    assert list(PARTS.glob("store/*"))
    assert not list(PARTS.glob("*.h5"))
    run_shards(request, 2)
    assert contents(OUT) == contents(WHOLE)


def test_nothing_of_another_command_stays_in_the_store():
    request = replace(one_array(), out=OUT)
    run_shards(request, 3)
    other = replace(request, write=("velocity",), mode="jerk", overwrite=True)
    run(replace(other, out=WHOLE))
    old = contents(OUT)
    with pytest.raises(OutputError):
        run_shards(replace(other, overwrite=False), 3)
    run_shards(other, 3, [0, 1])
    assert contents(OUT) == old
    with pytest.raises(InputError):
        merge(OUT, overwrite=True)
    run_shards(other, 3, [2])
    assert contents(OUT) == contents(WHOLE)
    assert not (PARTS / "store").exists()


def test_shards_twice_at_once_write_one_store():
    run(replace(one_array(), out=WHOLE))
    line = "integrate in.npz -o out.zarr --shard"
    shutil.rmtree(WHOLE)
    (alone,) = together("integrate in.npz -o whole.zarr")
    assert alone.code == 0
    ends = together(*[f"{line} {k % 3}/3" for k in range(6)])
    assert {end.code for end in ends} <= {0, 2}, ends
    assert contents(OUT) == contents(WHOLE)


def test_options_that_leave_open_which_trajectories_there_are_are_refused():
    request = replace(one_array(skip_bad=True), out=OUT, shard=Shard(0, 2))
    with pytest.raises(UsageError, match="skip-bad"):
        run(request)
    run_shards(replace(request, skip_bad=False, shard=None), 2)
    with pytest.raises(UsageError, match="virtual"):
        merge(OUT, virtual=True)
