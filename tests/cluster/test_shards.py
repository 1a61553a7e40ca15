"""A run in shards, merged, is the run in one piece."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from cluster.runs import BATCH, OUT, demonstrations, lengths, many_files, one_array, run_shards

from trajcli.errors import InputError, OutputError
from trajcli.jobs.request import Request, Shard, shard_files
from trajcli.jobs.run import run
from trajcli.jobs.shards import merge

RUNS: dict[str, Callable[[], Request]] = {
    "an array": one_array,
    "with steps of every row": lambda: one_array(dt="steps.npy"),
    "with a step for each trajectory": lambda: one_array(dt="one_each.npy"),
    "float64": lambda: one_array(write=("position",), dtype="float64"),
    "compressed": lambda: one_array(compress=3),
    "npz": lambda: one_array(out=Path("out.npz")),
    "files": many_files,
    "files with steps of their own": lambda: many_files(steps=0.01),
    "files of the same uneven steps": lambda: many_files(np.linspace(0.0, 0.1, 20)),
    "files of several lengths": lambda: many_files(rows=3),
    "demonstrations in groups": demonstrations,
    "demonstrations with joints": lambda: demonstrations(joints="a,b,c"),
    "demonstrations with joints, npz": lambda: demonstrations(joints="a,b,c", out=Path("out.npz")),
    "demonstrations in groups, compressed": lambda: demonstrations(compress=1),
    "an array with lengths": lengths,
    "an array with lengths, as npz": lambda: lengths(out=Path("out.npz")),
    "gradients": lambda: one_array(cost="jerk+velocity", factor=2.0),
    "gradients of shared dt and states": lambda: one_array(cost="jerk"),
    "gradients of one start": lambda: one_array(cost="jerk", start="zero"),
    "a file named twice": lambda: many_files(sources=["in_*.h5", "in_0.h5"]),
    "two arrays of a file": lambda: many_files(
        sources=["in_0.h5:actions", "in_0.h5:more", "in_1.h5"]
    ),
    "files in an order of their own": lambda: demonstrations(
        sources=["c.h5", "a.h5", "d.h5", "b.h5"]
    ),
    "bad demonstrations left out": lambda: bad_demonstrations(skip_bad=True),
    "200 demonstrations": lambda: bad_demonstrations(200),
    "more files than are listed": lambda: short_files(120),
    "more files than are listed, in other folders": lambda: short_files(
        120, out=Path("far/off/out.h5")
    ),
    "gradients of files": lambda: many_files(cost="jerk", start="zero"),
    "groups with steps of every row": lambda: steps_of_groups(),
    "bad ones left out, of which there are none": lambda: one_array(skip_bad=True),
}


def steps_of_groups() -> Request:
    """Writes groups of several lengths, the shortest first, with steps of their own."""
    random = np.random.default_rng(7)
    with h5py.File("in.h5", "w") as file:
        for k, rows in enumerate((5, 9, 7, 9)):
            file[f"data/demo_{k}/actions"] = random.standard_normal((rows, 2))
            file[f"data/demo_{k}/dt"] = random.uniform(0.01, 0.1, rows)
    return Request(sources=["in.h5"], out=OUT, start="zero")


def bad_demonstrations(count: int = 9, **more: Any) -> Request:
    """Writes trajectories of several lengths; actions of the third and the last are not finite."""
    random = np.random.default_rng(6)
    with h5py.File("in.h5", "w") as file:
        for k in range(count):
            actions = random.standard_normal((random.integers(3, 6), 2))
            actions[1] = np.nan if count < 100 and k in (2, count - 1) else actions[1]
            file[f"data/demo_{k}/actions"] = actions
            file[f"data/demo_{k}"].attrs["dt"] = 0.1
    return replace(Request(sources=["in.h5"], out=OUT, start="zero"), **more)


def short_files(count: int, **more: Any) -> Request:
    """Writes files that state dt and start; some names end like others."""
    names = [f"{prefix}run_{k}.npz" for k in range(count // 2) for prefix in ("", "dry_")]
    for k, name in enumerate(names):
        np.savez(name, actions=np.full((2, 3, 1), k), start_position=[1.0], dt=0.1 + 0.1 * (k > 60))
    request = replace(Request(sources=names, out=OUT), **more)
    request.out.parent.mkdir(parents=True, exist_ok=True)
    return request


@pytest.mark.parametrize(
    ("name", "count"),
    [
        *((n, 3) for n in RUNS),
        # more shards than trajectories
        ("an array", BATCH + 1),
        ("gradients of one start", BATCH + 1),
        ("groups with steps of every row", 5),
        ("files of the same uneven steps", 9),  # each shard knows one file only
    ],
)
def test_shards_merged_are_the_run_in_one_piece(name, count):
    request = RUNS[name]()
    run(request)
    whole = request.out.rename(request.out.with_stem("whole"))
    run_shards(request, count, reversed(range(count)))
    merge(request.out)
    assert request.out.read_bytes() == whole.read_bytes()


def test_attributes_name_the_sources_of_an_output_in_another_folder():
    request = short_files(120, out=Path("far/off/out.h5"))
    run_shards(request, 4)
    merge(request.out)
    with h5py.File(request.out) as file:
        said = dict(file.attrs)
    names = [f"../../{name}:actions" for name in request.sources]
    assert said["source"].split("\n") == [*names[:100], "and 20 more"]
    assert said["dt_source"] == "../../run_0.npz:dt and 119 more"
    assert said["start"] == "../../run_0.npz:start_position and 119 more"
    assert said["dt"] == "varies"


def test_a_shard_opens_its_own_files_only(monkeypatch):
    request = many_files()
    run_shards(request, 3, [0])
    for k in range(3):
        stat = os.stat(f"in_{k}.h5")
        Path(f"in_{k}.h5").write_bytes(bytes(stat.st_size))
        os.utime(f"in_{k}.h5", ns=(stat.st_atime_ns, stat.st_mtime_ns))
    run_shards(request, 3, [1, 2])
    assert merge(OUT)["trajectories"] == 63


@pytest.mark.parametrize("sizes", [[1] * 10, [100, 1, 1, 1], [1, 1, 1, 100], [0, 0, 0, 0],
                                   list(range(1, 60)), [7, 7, 7]])  # fmt: skip
def test_files_are_divided_by_their_sizes_and_no_shard_is_empty(sizes):
    for count in range(1, len(sizes) + 1):
        chosen = [list(shard_files(sizes, Shard(k, count))) for k in range(count)]
        assert [n for members in chosen for n in members] == list(range(len(sizes)))
        assert all(chosen)
        largest = max(sum(sizes[n] for n in members) for members in chosen)
        assert largest <= sum(sizes) / count + max(sizes)


def test_trajectories_are_divided_evenly():
    for total in (0, 1, 7, 1000):
        for count in (1, 3, 8, 1200):
            chosen = [range(*Shard(k, count).share(total)) for k in range(count)]
            assert [n for members in chosen for n in members] == list(range(total))
            assert max(map(len, chosen)) - min(map(len, chosen)) <= 1


def test_the_same_command_again_does_what_is_missing(trajcli):
    one_array()
    line = "integrate in.npz -o out.h5 --shard"
    for shard in ("0/3", "2/3"):
        trajcli(f"{line} {shard}", code=0)
    parts = sorted(Path("out.h5.parts").iterdir())
    before = [path.stat().st_mtime_ns for path in parts]
    assert "shard 0/3 is done already" in trajcli(f"{line} 0/3", code=0).out
    assert [path.stat().st_mtime_ns for path in parts] == before
    trajcli(f"{line} 1/3", code=0)
    trajcli("merge out.h5", code=0)


def test_a_part_of_another_command_is_refused_or_overwritten():
    request = one_array(dt="0.02")
    run_shards(request, 2, [0])
    other = replace(request, dt="0.05", mode="jerk")
    with pytest.raises(OutputError, match=r"dt 0\.02 there, 0\.05 here") as failed:
        run_shards(other, 2, [0])
    assert "mode not given there, jerk here" in str(failed.value)
    run_shards(replace(other, overwrite=True), 2)
    merge(OUT)
    OUT.rename("merged.h5")
    run(other)
    assert Path("merged.h5").read_bytes() == OUT.read_bytes()


def test_an_input_that_changed_between_shards_is_found():
    request = one_array()
    run_shards(request, 2, [0])
    os.utime("in.npz", ns=(5, 5))
    run_shards(request, 2, [1])
    with pytest.raises(InputError, match="another state of its inputs"):
        merge(OUT)
    with pytest.raises(OutputError, match="another state of its inputs"):
        run_shards(request, 2, [0])


def test_a_copy_with_another_time_is_refused_with_a_hint():
    request = one_array()
    run_shards(request, 2)
    os.utime("in.npz", ns=(5, 5))
    with pytest.raises(OutputError, match="cp -p and rsync -t keep"):
        run_shards(request, 2, [0])
    one_array(dt="steps.npy")
    Path("in.npz").write_bytes(b"PK" + Path("in.npz").read_bytes())
    with pytest.raises(OutputError, match=r"try: +another OUT"):
        run_shards(request, 2, [0])


def test_a_sound_part_fits_runs_with_or_without_skip_bad(trajcli):
    """Of nine demonstrations, the first third has a bad one, the last, too, the second none."""
    request = bad_demonstrations(skip_bad=True)
    run(request)
    whole = OUT.rename("whole.h5")
    run_shards(request, 3, [0, 2])
    run_shards(replace(request, skip_bad=False), 3, [1])
    parts = [path.stat().st_mtime_ns for path in sorted(Path("out.h5.parts").iterdir())]
    run_shards(request, 3)  # all are done
    assert trajcli("status out.h5").code == 0
    merge(OUT)
    assert OUT.read_bytes() == whole.read_bytes()
    with pytest.raises(OutputError, match="skip_bad True there, not given here"):
        run_shards(replace(request, skip_bad=False), 3, [0])
    run_shards(replace(request, skip_bad=False), 3, [1])
    assert parts == [path.stat().st_mtime_ns for path in sorted(Path("out.h5.parts").iterdir())]


def test_another_number_of_shards_is_refused():
    request = one_array()
    run_shards(request, 2, [0])
    with pytest.raises(OutputError, match="2 shards and 3 shards"):
        run_shards(request, 3, [1])


def test_a_dry_run_writes_nothing(trajcli):
    one_array()
    before = sorted(os.listdir())
    trajcli("integrate in.npz -o out.h5 --shard 1/2 --dry-run", code=0)
    assert sorted(os.listdir()) == before


def test_reports_are_one_json_document(trajcli):
    one_array()
    for index in range(2):
        report = trajcli(f"integrate in.npz -o out.h5 --shard {index}/2 --json").document
        assert report["out"] == f"out.h5.parts/0000{index}-of-00002.h5"
        status = trajcli("status out.h5 --json")
        assert status.code == 1 - index
        assert status.document["complete"] == bool(index)
    assert trajcli("merge out.h5 --json").document["trajectories"] == BATCH


def test_a_part_is_an_output_like_any_other(trajcli):
    run_shards(one_array(), 2, [1])
    trajcli("check out.h5.parts/00001-of-00002.h5", code=0)
    trajcli("inspect out.h5.parts/00001-of-00002.h5", code=0)
