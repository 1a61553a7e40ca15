"""Outputs say at which stamp of the source's own clock their times begin."""

from __future__ import annotations

import json
from pathlib import Path

import h5py
import numpy as np
import pytest

FIRST = np.array([1_700_000_000_000_000_123, 0, 1_700_000_060_000_000_457])
"""More digits than float64 has."""
COUNTS = (40, 60, 40)


@pytest.fixture
def recordings(folder: Path) -> None:
    """Three files with stamps in ns, one of which begins at 0; as many without stamps."""
    random = np.random.default_rng(4)
    for k, (first, rows) in enumerate(zip(FIRST, COUNTS, strict=True)):
        with h5py.File(f"rec_{k}.h5", "w") as file:
            file["q"] = np.cumsum(random.standard_normal((rows, 2)), 0)
            file["times"] = first + np.cumsum(random.integers(9, 12, rows)) * 1_000_000 - 10**7
            file["times"][0] = first
            file["times"].attrs["units"] = "ns"


def stamps(path: str) -> dict[str, tuple[int, str]]:
    """The stamps in a file and their unit, by the group or number of the trajectory."""
    found = {}
    with h5py.File(path) as file:

        def visit(name: str, dataset: object) -> None:
            if name.endswith("start_stamp") and isinstance(dataset, h5py.Dataset):
                for k, value in enumerate(np.ravel(dataset[()])):
                    key = name.rpartition("/")[0] or str(k)
                    assert value.dtype == np.int64
                    found[key] = (int(value), dataset.attrs["units"])

        file.visititems(visit)
    return found


def test_every_trajectory_has_its_first_stamp_as_the_source_has_it(trajcli, recordings):
    assert trajcli("differentiate rec_*.h5 --method central -o out.h5").code == 0
    expected = {f"rec_{k}": (int(first), "ns") for k, first in enumerate(FIRST)}
    assert stamps("out.h5") == expected
    with h5py.File("out.h5") as file:
        assert file["rec_2/time"][0] == 0.0


def test_resampling_an_output_keeps_the_clock_and_inspect_says_it(trajcli, recordings):
    assert trajcli("differentiate rec_2.h5 --method central -o out.h5").code == 0
    assert trajcli("resample out.h5:position --to 50 -o again.h5").code == 0
    assert stamps("again.h5") == {"0": (int(FIRST[2]), "ns")}
    (facts,) = json.loads(trajcli("inspect again.h5 --json").out)["files"]
    assert facts["trajectories"]["start_stamps"] == [int(FIRST[2])]
    assert facts["trajectories"]["stamps_unit"] == "ns"
    assert f"begins at {FIRST[2]} ns" in trajcli("inspect again.h5").out


def test_segments_have_the_stamps_at_which_they_begin(trajcli, recordings):
    with h5py.File("rec_0.h5", "r+") as file:
        times = file["times"][()]
        times[15:] += 10**9
        file["times"][...] = times
    assert trajcli("differentiate rec_0.h5 --method central --max-gap 0.5 -o out.h5").code == 0
    assert sorted(value for value, _ in stamps("out.h5").values()) == [times[0], times[15]]


@pytest.mark.parametrize("sources", ["rec_*.h5", "rec_0.h5 rec_2.h5", "rec_1.h5 rec_1.h5"])
def test_parts_merge_to_the_bytes_of_a_run_in_one_piece(trajcli, recordings, sources):
    run = f"differentiate {sources} --method central -o"
    count = 3 if "*" in sources else 2
    for k in range(count):
        assert trajcli(f"{run} out.h5 --shard {k}/{count}").code == 0
    assert trajcli("merge out.h5").code == 0
    assert trajcli(f"{run} whole.h5").code == 0
    assert Path("out.h5").read_bytes() == Path("whole.h5").read_bytes()
    assert bool(stamps("whole.h5")) == ("rec_0" in sources or "*" in sources)


def test_nothing_is_said_where_a_source_has_no_clock(trajcli, recordings):
    assert trajcli("differentiate rec_1.h5 --method central -o zero.h5").code == 0
    assert trajcli("differentiate rec_0.h5 --rate 100 --method central -o rate.h5").code == 0
    assert not stamps("zero.h5")
    assert not stamps("rate.h5")


def test_an_output_that_begins_after_its_source_keeps_the_clock(trajcli, recordings):
    with h5py.File("rec_2.h5", "r+") as file:
        file["at"] = np.array([100, 150, 200, 250])
        file["at"].attrs["units"] = "ms"
    line = "resample rec_2.h5:q --times rec_2.h5:times --at rec_2.h5:at -o later.h5"
    assert trajcli(line).code == 0
    with h5py.File("later.h5") as file:
        np.testing.assert_allclose(file["time"], [0, 0.05, 0.1, 0.15], rtol=1e-15)
    assert trajcli("resample later.h5 --to 20 -o again.h5").code == 0
    assert stamps("again.h5") == {"0": (int(FIRST[2]) + 100_000_000, "ns")}


@pytest.mark.parametrize(("method", "first"), [("hold", 0), ("linear", 1)])
def test_actions_with_a_stamp_more_begin_where_their_rows_do(trajcli, folder, method, first):
    clock = FIRST[0] + np.arange(21) * 10_000_000
    with h5py.File("in.h5", "w") as file:
        file["actions"], file["times"] = np.random.default_rng(0).normal(size=(20, 2)), clock
        file["times"].attrs["units"] = "ns"
    assert trajcli(f"resample in.h5:actions --method {method} --to 50 -o out.h5").code == 0
    assert stamps("out.h5") == {"0": (int(clock[first]), "ns")}


def test_segments_of_trajectories_at_equal_steps_have_their_own_stamps(trajcli, folder):
    with h5py.File("in.h5", "w") as file:
        file["position"] = np.random.default_rng(1).normal(size=(3, 40, 2))
        file["times"] = FIRST[:, None] + np.arange(40) * 10_000_000
        file["times"].attrs["units"] = "ns"
    assert trajcli("differentiate in.h5 --method central --max-gap 0.5 -o out.h5").code == 0
    assert sorted(value for value, _ in stamps("out.h5").values()) == sorted(FIRST)


def test_segments_behind_a_gap_have_the_stamp_of_their_own_trajectory(trajcli, folder):
    after = 20 * 10_000_000 + 1_000_000_000
    rows = np.arange(40) * 10_000_000 + np.where(np.arange(40) < 20, 0, 1_000_000_000)
    with h5py.File("in.h5", "w") as file:
        file["position"] = np.random.default_rng(1).normal(size=(3, 40, 2))
        file["times"] = FIRST[:, None] + rows
        file["times"].attrs["units"] = "ns"
    assert trajcli("differentiate in.h5 --method central --max-gap 0.5 -o out.h5").code == 0
    found = sorted(value for value, _ in stamps("out.h5").values())
    assert found == sorted([*FIRST, *(FIRST + after)])
