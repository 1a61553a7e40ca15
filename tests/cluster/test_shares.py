"""A run in shares, joined, is the run in one piece; what does not fit is said."""

from __future__ import annotations

import json
import os
import re
import shutil
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from trajcli.errors import InputError, OutputError, Stopped, UsageError
from trajcli.jobs.merge import merge
from trajcli.jobs.request import Request
from trajcli.jobs.run import run
from trajcli.jobs.sharded import run_share
from trajcli.jobs.share import Share
from trajcli.jobs.status import status
from trajcli.jobs.units import Division
from trajcli.kernels import cuda
from trajcli.kernels.choose import Work, choose

BATCH = 40


@pytest.fixture(autouse=True)
def small_units(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("trajcli.jobs.sharded.LEAST_BYTES", 20_000)


def packed() -> Request:
    random = np.random.default_rng(0)
    np.savez(
        "in.npz",
        actions=random.standard_normal((BATCH, 30, 3)).astype("f4"),
        start_position=random.standard_normal((4, 3)),
        start_index=random.integers(0, 4, BATCH),
        dt=0.02,
    )
    return Request(sources=["in.npz"], out=Path("out.h5"))


def own_steps() -> Request:
    return replace(packed(), dt="steps.npy") if np.save(
        "steps.npy", np.random.default_rng(1).uniform(0.01, 0.1, (BATCH, 30))
    ) is None else packed()  # fmt: skip


def long(trajectories: int = 3) -> Request:
    random = np.random.default_rng(2)
    np.save("in.npy", random.standard_normal((trajectories, 4000, 3)).astype("f4"))
    return Request(sources=["in.npy"], out=Path("out.h5"), dt="0.01", start="zero", memory=1 << 15)


def many_files() -> Request:
    random = np.random.default_rng(3)
    names = [f"in_{k}.h5" for k in range(9)]
    for name in names:
        with h5py.File(name, "w") as file:
            file["actions"] = random.standard_normal((7, 20, 2))
            file["start/position"] = random.standard_normal(2)
            file["dt"] = 0.1
    return Request(sources=["in_*.h5"], out=Path("out.h5"), mode="jerk")


def unequal() -> Request:
    random = np.random.default_rng(4)
    lengths = random.choice([50, 9, 31], BATCH)
    actions = random.standard_normal((BATCH, 50, 3)).astype("f4")
    index, start = random.integers(0, 3, BATCH), random.standard_normal((3, 3))
    np.savez("in.npz", actions=actions, lengths=lengths, start_index=index, start_position=start)
    return Request(sources=["in.npz"], out=Path("out.h5"), dt="0.05")


def gradients() -> Request:
    return replace(packed(), cost="jerk+velocity", wrt=("actions",), factor=2.0)


RUNS: dict[str, Any] = {
    "one file": packed,
    "steps of their own": own_steps,
    "long trajectories": long,
    "many files": many_files,
    "unequal, in groups": unequal,
    "unequal, padded": lambda: replace(unequal(), pack=True),
    "own steps, padded": lambda: replace(
        unequal(), pack=True, dt="steps.npy", times=None
    ) if np.save("steps.npy", np.random.default_rng(1).uniform(0.1, 0.2, (BATCH, 50))) is None
    else None,
    "gradients": gradients,
    "gradients of a shared dt and of states by index": lambda: replace(packed(), cost="jerk"),
    "gradients of shared steps": lambda: replace(
        packed(), cost="jerk+velocity", dt="shared.npy", mode="central", start="zero"
    ) if np.save("shared.npy", np.random.default_rng(1).uniform(0.01, 0.1, 30)) is None
    else None,
    "gradients of one trajectory": lambda: replace(long(), sources=["one.npy"], cost="jerk")
    if np.save("one.npy", np.random.default_rng(7).standard_normal((1, 30, 3))) is None
    else None,
    "gradients by torch": lambda: replace(packed(), cost="jerk", backend="torch"),
    "compressed": lambda: replace(packed(), compress=3),
    "compressed, long": lambda: replace(long(), compress=1),
    "compressed gradients": lambda: replace(gradients(), compress=1, wrt=("dt", "actions")),
    "npz": lambda: replace(packed(), out=Path("out.npz")),
    "a folder": lambda: replace(packed(), out=Path("out")),
    "padded npz": lambda: replace(unequal(), pack=True, out=Path("out.npz")),
    "positions only, float64": lambda: replace(packed(), write=("position",), dtype="float64"),
    "by torch": lambda: replace(packed(), backend="torch"),
    "no trajectories": lambda: replace(packed(), sources=["none.npy"], start="zero", dt="0.1")
    if np.save("none.npy", np.zeros((0, 10, 3))) is None
    else None,
}  # fmt: skip


SINGLE = ("no trajectories", "gradients of one trajectory")
"""Those of one unit."""


def share(request: Request, index: int, number: int, **more: Any) -> dict[str, Any]:
    return run_share(replace(request, share=Share(index, number)), **more)


def parts(request: Request) -> Path:
    return Path(f"{request.out}.parts")


def contents(path: Path) -> Any:
    if path.is_dir():
        return {p.name: p.read_bytes() for p in sorted(path.rglob("*")) if p.is_file()}
    return path.read_bytes()


def in_one_piece(request: Request) -> Any:
    whole = replace(request, out=Path("whole") / request.out)
    whole.out.parent.mkdir()
    run(whole)
    return contents(whole.out)


@pytest.mark.parametrize("name", RUNS)
def test_the_parts_of_a_run_join_to_the_bytes_of_the_run_in_one_piece(name, monkeypatch):
    monkeypatch.setattr("trajcli.files.compressed._CHUNK_BYTES", 5000)
    monkeypatch.setattr("trajcli.files.compressed._LARGEST_CHUNK", 20_000)
    monkeypatch.setattr("trajcli.jobs.merge._BLOCK_BYTES", 7000)
    request = RUNS[name]()
    want = in_one_piece(request)
    for index in (2, 0, 1):
        report = share(request, index, 3)
        assert report["exit_code"] == 0
    assert status(request.out)["units"]["all"] > (0 if name in SINGLE else 1)
    assert status(request.out)["complete"]
    merge([parts(request)], request.out)
    assert contents(request.out) == want


def test_units_depend_on_the_data_alone_and_shares_cover_them_by_bytes():
    division = Division([(1000, 700), (10, 100_000), (3, 1)], 10_000)
    units = [division.unit(n) for n in range(len(division))]
    assert units[0].trajectories[0] == 0
    for before, unit in pairwise(units):
        assert before.trajectories[1] == unit.trajectories[0]
    assert units[-1].trajectories[1] == 1013
    for shares in (1, 2, 7, 50, 500):
        given = [division.of_share(index, shares) for index in range(shares)]
        assert [n for some in given for n in some] == list(range(len(division)))
        largest = max(sum(units[n].nbytes for n in some) for some in given)
        assert largest <= division.total / shares + max(unit.nbytes for unit in units)


def test_a_share_without_work_says_so_and_is_done(trajcli):
    request = packed()
    number = status_units(request) + 5
    empty = [index for index in range(number) if not share(request, index, number)["units"]["mine"]]
    assert len(empty) == 5
    line = f"integrate in.npz -o out.h5 --shard-index {empty[0]} --num-shards {number}"
    result = trajcli(line)
    assert result.code == 0
    assert "nothing to do" in result.out
    result = trajcli(line + " --dtype float32")
    assert result.code == 2
    assert "--dtype float32 here" in result.err


def status_units(request: Request) -> int:
    return int(share(request, 0, 1, dry=True)["units"]["all"])


def test_what_is_done_counts_also_when_the_number_of_shares_changes():
    request = packed()
    want = in_one_piece(request)
    share(request, 0, 2)
    found = status(request.out)
    assert found["missing_shares"] == [1]
    assert found["array"] == "1"
    done = found["units"]["done"]
    again = [share(request, index, 5) for index in range(5)]
    assert sum(report["units"]["done_before"] for report in again) == done
    assert status(request.out)["shares"] == 5
    merge([parts(request)], request.out)
    assert contents(request.out) == want


def test_finished_units_are_not_written_again():
    request = packed()
    share(request, 0, 1)
    before = {path: path.stat().st_mtime_ns for path in parts(request).rglob("*.h5")}
    report = share(request, 0, 1)
    assert report["units"]["done"] == 0
    assert {path: path.stat().st_mtime_ns for path in parts(request).rglob("*.h5")} == before


def test_parts_of_other_options_are_refused_by_name_and_replaced_when_asked():
    request = packed()
    share(replace(request, dt="0.02"), 0, 2)
    other = replace(request, dt="0.05", mode="jerk")
    with pytest.raises(OutputError, match=r"--dt 0\.02 there, --dt 0\.05 here") as failed:
        share(other, 1, 2)
    assert "no --mode there, --mode jerk here" in str(failed.value)
    want = in_one_piece(other)
    for index in (0, 1):
        share(replace(other, overwrite=True), index, 2)
    merge([parts(request)], request.out)
    assert contents(request.out) == want


def test_a_changed_input_is_refused_by_name():
    request = many_files()
    share(request, 0, 2)
    with h5py.File("in_1.h5", "r+") as file:
        file["actions"][0, 0, 0] = 7
    with pytest.raises(OutputError, match=r"in_1\.h5: .* bytes, changed at .* ns there"):
        share(request, 0, 2)
    share(request, 1, 2)  # does not read it


def test_parts_of_an_input_that_changed_in_between_are_not_joined():
    request = packed()
    share(request, 0, 2)
    packed()
    os.utime("in.npz", ns=(5, 5))
    share(request, 1, 2)
    with pytest.raises(InputError, match=r"in\.npz"):
        merge([parts(request)], request.out)


def test_bad_data_refuse_their_unit_alone_until_they_are_mended():
    request = many_files()
    want = in_one_piece(request)
    with h5py.File("in_4.h5", "r+") as file:
        good = file["actions"][2, 3, 1]
        file["actions"][2, 3, 1] = np.nan
    report = share(request, 0, 1)
    assert report["exit_code"] == 1
    (failed,) = report["units"]["failed"]
    assert "in_4.h5" in failed["faults"][0]["where"]
    found = status(request.out)
    assert (found["units"]["failed"], found["complete"]) == (1, False)
    with pytest.raises(InputError, match="not complete"):
        merge([parts(request)], request.out)
    with h5py.File("in_4.h5", "r+") as file:
        file["actions"][2, 3, 1] = good
    report = share(request, 0, 1)
    assert (report["exit_code"], report["units"]["done"]) == (0, 1)
    merge([parts(request)], request.out)
    assert contents(request.out) == want


def test_an_incomplete_run_is_not_joined_and_says_what_is_missing(trajcli):
    request = packed()
    share(request, 0, 2)
    ((begin, end),) = status(request.out)["trajectories"]["missing"]
    result = trajcli("merge out.h5.parts -o out.h5")
    assert result.code == 2
    assert f"trajectories {begin} to {end - 1}" in result.err
    assert "trajcli status" in result.err
    assert not request.out.exists()


def test_named_parts_have_to_be_all_of_them_and_each_once():
    request = packed()
    share(request, 0, 1)
    files = sorted(parts(request).rglob("*.h5"))
    with pytest.raises(InputError, match="twice"):
        merge([*files, files[0]], request.out)
    with pytest.raises(InputError, match="not complete"):
        merge(files[1:], request.out)
    merge(files, request.out)


def test_parts_made_in_two_folders_are_joined():
    request = packed()
    want = in_one_piece(request)
    share(request, 0, 2)
    parts(request).rename("first.parts")
    share(request, 1, 2)
    merge([Path("first.parts"), parts(request)], request.out)
    assert contents(request.out) == want


def test_parts_of_two_runs_are_not_joined():
    request = packed()
    share(request, 0, 2)
    parts(request).rename("first.parts")
    share(replace(request, dt="0.7"), 1, 2)
    with pytest.raises(InputError, match=r"no --dt there, --dt 0\.7 here"):
        merge([Path("first.parts"), parts(request)], request.out)


def test_gradients_of_goals_with_an_index_are_refused():
    request = replace(packed(), mode="central", options={"ends": "goal"}, cost="jerk")
    with np.load("in.npz") as given:
        index = given["start_index"]
        np.savez("in.npz", **given, goal_position=given["start_position"], goal_index=index)
    with pytest.raises(UsageError, match="goals with an index"):
        share(request, 0, 2)
    share(replace(request, wrt=("actions", "start")), 0, 2)


@pytest.mark.parametrize("number", [0, 1])
def test_a_signal_ends_a_share_between_blocks_and_the_same_command_goes_on(monkeypatch, number):
    request = long(trajectories=8)
    want = in_one_piece(request)
    monkeypatch.setattr("trajcli.jobs.sharded.LEAST_BYTES", 800_000)

    def stop(account: Any, part: float) -> None:
        if account.done == number and part > 0.4:
            os.kill(os.getpid(), 12)

    with pytest.raises(Stopped, match=f"SIGUSR2(.|\n)*{number} of 2 units"):
        share(request, 0, 1, on_progress=stop)
    seen: list[float] = []
    share(request, 0, 1, on_progress=lambda account, part: seen.append(part))
    assert seen[number] > 0.4  # and not from its beginning
    merge([parts(request)], request.out)
    assert contents(request.out) == want


VIRTUAL = ["one file", "steps of their own", "unequal, padded", "own steps, padded", "gradients",
           "gradients of a shared dt and of states by index"]  # fmt: skip


@pytest.mark.parametrize("name", VIRTUAL)
def test_a_virtual_output_reads_as_the_whole_and_never_as_zeros(name, trajcli):
    request = RUNS[name]()
    run(replace(request, out=Path("whole.h5")))
    for index in range(2):
        share(request, index, 2)
    merge([parts(request)], request.out, virtual=True)
    os.mkdir("elsewhere")
    shutil.move("out.h5", "elsewhere/out.h5")
    shutil.move("out.h5.parts", "elsewhere/out.h5.parts")
    with h5py.File("whole.h5") as whole, h5py.File("elsewhere/out.h5") as found:
        datasets = [name for name in whole if isinstance(whole[name], h5py.Dataset)]
        for each in datasets:
            np.testing.assert_array_equal(found[each][()], whole[each][()])
            assert dict(found[each].attrs).keys() == dict(whole[each].attrs).keys()
        assert dict(found.attrs) == dict(whole.attrs)
    for command in ("inspect", "check"):
        refused = trajcli(f"{command} elsewhere/out.h5")
        assert "virtual" in refused.err + refused.out
        assert "--allow-external" in refused.err + refused.out
    checked = [
        trajcli(f"check {path}") for path in ("whole.h5", "elsewhere/out.h5 --allow-external")
    ]
    assert checked[0].code == checked[1].code
    unit = sorted(Path("elsewhere/out.h5.parts").rglob("*.h5"))[1]
    unit.unlink()
    with h5py.File("whole.h5") as whole, h5py.File("elsewhere/out.h5") as found:
        gone = 0
        for each in datasets:
            here, there = found[each][()], whole[each][()]
            same = (here == there) | (np.isnan(here) & np.isnan(there))
            assert np.isnan(here[~same]).all()
            gone += int((~same).sum())
        assert gone


def test_a_virtual_output_needs_hdf5_and_one_array():
    request = unequal()
    share(request, 0, 1)
    with pytest.raises(UsageError, match="--pack"):
        merge([parts(request)], request.out, virtual=True)
    request = replace(unequal(), pack=True, out=Path("packed.h5"))
    share(request, 0, 1)
    with pytest.raises(UsageError, match=r"OUT\.h5 with --virtual"):
        merge([parts(request)], Path("out.npz"), virtual=True)


def test_a_dry_run_says_what_the_share_would_do_and_writes_nothing(trajcli):
    packed()
    result = trajcli("integrate in.npz -o out.h5 --shard-index 1 --num-shards 2 --dry-run")
    assert result.code == 0
    assert result.out.startswith("share 1 of 2 (--shard-index, --num-shards)\n")
    assert "dry run: units" in result.out
    assert sorted(path.name for path in Path().iterdir()) == ["in.npz"]


def test_reports_are_one_json_document(trajcli):
    packed()
    for index in (0, 1):
        line = f"integrate in.npz -o out.h5 --shard-index {index} --num-shards 2 --json"
        report = trajcli(line).document
        assert report["share"]["index"] == index
        assert report["units"]["done"] == report["units"]["mine"]
        assert trajcli("status out.h5 --json").code == (1 if index == 0 else 0)
    assert trajcli("merge out.h5.parts -o out.h5 --json").document["trajectories"] == BATCH


def test_a_part_says_what_the_whole_says_and_is_checked_like_it(trajcli):
    request = packed()
    share(request, 0, 1)
    run(request)
    for part in parts(request).rglob("*.h5"):
        with h5py.File(part) as one, h5py.File("out.h5") as whole:
            assert dict(one.attrs) == dict(whole.attrs)
        assert trajcli("check", part).code == 0
    record = json.loads(next(parts(request).rglob("0*.json")).read_text())
    assert record["terms"]["options"] == {"--backend": "native"}


def test_progress_is_a_line_with_time_share_units_and_speed(trajcli, monkeypatch):
    monkeypatch.setattr("trajcli.cli.share.SECONDS_BETWEEN_LINES", 0.0)
    packed()
    line = "integrate in.npz -o out.h5 --shard-index 1 --num-shards 2"
    result = trajcli(line)
    pattern = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ share 1/2 units \d+\.\d/\d+ \d+\.\d{3} GB/s"
    lines = result.err.splitlines()
    assert lines
    assert all(re.fullmatch(pattern, line) for line in lines)
    assert result.out.splitlines()[0] == "share 1 of 2 (--shard-index, --num-shards)"
    assert "units: " in result.out.splitlines()[-1]
    shutil.rmtree(parts(packed()))
    assert trajcli(f"{line} --no-progress").err == ""


def test_each_share_of_a_machine_has_a_gpu_of_its_own(monkeypatch):
    monkeypatch.setattr(cuda, "driver", lambda: True)
    monkeypatch.setattr(cuda, "absence", lambda: "")
    monkeypatch.setattr(cuda, "count", lambda: 4)
    monkeypatch.setattr(cuda, "trouble", lambda name: "")
    asked: list[str] = []

    def chosen(device: str, backend: str, work: Work, local: int) -> Any:
        asked.append(choose(device, "torch", Work(10**9, 10**6), local).device)
        raise UsageError("stop here")

    monkeypatch.setattr("trajcli.jobs.plan.choose", chosen)
    for device in ("auto", "cuda", "cpu", "cuda:3"):
        request = replace(packed(), device=device, share=Share(9, 16, local=5))
        with pytest.raises(InputError, match="stop here"):
            run_share(request)
    assert asked == ["cuda:1", "cuda:1", "cpu", "cuda:3"]
