"""A Recording keeps what each trajectory is through any takes and joins."""

from __future__ import annotations

import dataclasses

import h5py
import numpy as np
import pytest

from trajcli.errors import Fault, InputError
from trajcli.files.catalogue import Catalogue
from trajcli.files.opening import Files
from trajcli.files.reader import make_placeholder, read_positions, read_recordings
from trajcli.files.reading import Reading
from trajcli.files.recording import Recording, join

RANDOM = np.random.default_rng(7)
# By kind the times of T rows: one step for all or for each, stamps, steps, stamps since 1970.
CLOCKS = {
    "even": lambda rows, k: {"dt": 0.02},
    "own": lambda rows, k: {"dt": 0.01 * (k + 1)},
    "stamps": lambda rows, k: {"times": np.cumsum(RANDOM.uniform(0.01, 0.03, rows))},
    "steps": lambda rows, k: {"dt": RANDOM.uniform(0.01, 0.03, rows - 1)},
    "ns": lambda rows, k: {
        "times": 1_700_000_000_000_000_000 + np.cumsum(RANDOM.integers(10**7, 2 * 10**7, rows))
    },
}


def write(path: str, kinds: list[str], count: int = 12) -> list[np.ndarray]:
    """Writes groups of unequal length with clocks of these kinds; returns their positions."""
    positions = []
    with h5py.File(path, "w") as file:
        for k in range(count):
            rows = int(RANDOM.integers(3, 9))
            values = RANDOM.standard_normal((rows, 3)).astype("f4" if k % 2 else "f8")
            group = file.create_group(f"run/demo_{k}")
            group["position"], group["other"] = values, values[:, :1]
            for name, stated in CLOCKS[kinds[k % len(kinds)]](rows, k).items():
                group[name] = stated
                if np.asarray(stated).dtype.kind == "i":
                    group[name].attrs["units"] = "ns"
            positions.append(values)
    return positions


@pytest.fixture
def read(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with Files() as files:
        yield lambda *texts, **how: read_recordings(files.with_reading(Reading(**how)), texts)


@pytest.mark.parametrize("kinds", [["even"], ["own"], ["stamps"], ["steps"], ["ns"], [*CLOCKS]])
def test_takes_of_takes_are_the_trajectories_that_each_is_alone(read, kinds):
    positions = write("in.h5", kinds)
    parts = read("in.h5")
    whole = join(parts)
    assert (len(whole), whole.rows) == (12, max(map(len, positions)))
    times = [part.times() for part in parts]
    for _ in range(20):
        first = RANDOM.permutation(12)[: RANDOM.integers(1, 13)]
        again = np.sort(RANDOM.integers(0, len(first), RANDOM.integers(1, len(first) + 1)))
        chosen = whole.take(first).take(np.unique(again))
        numbers = chosen.numbers.tolist()
        assert numbers == first[np.unique(again)].tolist()
        assert [chosen.title(k) for k in range(len(chosen))] == [f"run/demo_{n}" for n in numbers]
        assert [str(chosen.locate(k)[0]) for k in range(len(chosen))] == [
            f"in.h5:/run/demo_{n}/position" for n in numbers
        ]
        for block in chosen.blocks(size=int(RANDOM.integers(1, 1000))):
            values, clock = block.arrays["position"].read(), block.times()
            for k, number in enumerate(block.numbers.tolist()):
                assert values.dtype == positions[number].dtype or len(block) > 1
                np.testing.assert_array_equal(values[k], positions[number])
                np.testing.assert_array_equal(clock[k], times[number][0])


def test_a_window_has_the_rows_and_times_of_its_trajectory(read):
    positions = write("in.h5", [*CLOCKS])
    whole = join(read("in.h5"))
    for number, values in enumerate(positions):
        one = whole.take([number])
        begin = int(RANDOM.integers(0, len(values)))
        window = one.take(slice(None), range(begin, len(values)))
        within = int(RANDOM.integers(0, len(values) - begin))
        row = window.take([0], range(within, within + 1))
        assert (window.first_row, row.first_row) == (begin, begin + within)
        np.testing.assert_array_equal(window.arrays["position"].read()[0], values[begin:])
        np.testing.assert_array_equal(row.arrays["position"].read()[0, 0], values[begin + within])
        np.testing.assert_allclose(
            row.times()[0, 0], one.times()[0, begin + within], rtol=0, atol=1e-15
        )


def test_padded_trajectories_are_cut_to_their_lengths_in_their_order(read):
    values = RANDOM.standard_normal((40, 9, 2))
    lengths = RANDOM.integers(1, 10, 40)
    np.savez("in.npz", position=values, lengths=lengths, times=np.sort(RANDOM.random((40, 9))))
    (recording,) = read("in.npz")
    assert recording.unequal
    blocks = list(recording.blocks())
    assert np.concatenate([block.numbers for block in blocks]).tolist() == list(range(40))
    assert [block.rows for block in blocks for _ in range(len(block))] == lengths.tolist()
    for part in recording.split_by_length():
        np.testing.assert_array_equal(
            part.arrays["position"].read(), values[lengths == part.rows, : part.rows]
        )
        np.testing.assert_array_equal(part.times(), recording.times()[part.numbers, : part.rows])


def test_facts_are_fields_that_no_attribute_changes(read, monkeypatch):
    write("in.h5", ["even"])
    looked_up: list[str] = []
    find = Catalogue.get
    monkeypatch.setattr(Catalogue, "get", lambda s, name: looked_up.append(name) or find(s, name))
    recording = join(read("in.h5:position", dofs="2,0", joints="a,b", units="deg"))
    before = len(looked_up)
    assert (recording.joint_names, recording.dofs.numbers) == (["a", "b"], [2, 0])
    assert [recording.unit("position"), recording.step] == ["rad", 0.02]
    assert (recording.stated_mode.name, recording.lengths.max()) == ("", recording.rows)
    assert len(looked_up) == before
    with pytest.raises(dataclasses.FrozenInstanceError):
        recording.step = 0.1  # type: ignore[misc]
    assert isinstance(recording, Recording)


def test_an_array_has_the_clock_and_mode_of_its_own(read):
    with h5py.File("in.h5", "w") as file:
        for name, step, mode in (("actions", 0.1, "jerk"), ("position", 0.02, "velocity")):
            file[name] = RANDOM.standard_normal((2, 9, 3))
            file[name].attrs.update(dt=step, mode=mode)
    (both,) = read("in.h5")
    assert (both.step, both.stated_mode.name) == (0.1, "jerk")
    with Files() as files:
        (positions,) = read_positions(files, ["in.h5"])
    assert (positions.step, positions.stated_mode.name) == (0.02, "velocity")
    assert list(positions.arrays) == ["position"]


@pytest.mark.parametrize("stated", [{}, {"dt": 0.1}])
def test_start_stamps_follow_the_selected_trajectories(read, stated):
    firsts = np.array([100.0, 200, 300, 400, 500, 600, 700])
    np.savez(
        "in.npz", position=np.zeros((7, 9, 2)), times=firsts[:, None] + 0.1 * np.arange(9), **stated
    )
    np.savez("plan.npz", actions=np.zeros((2, 9, 2)), times=50 + 0.1 * np.arange(10))
    (one,) = read("in.npz")
    (plan,) = read("plan.npz")
    whole = join([one, plan, one])
    every = np.concatenate([firsts, [50, 50], firsts])
    of_rows = np.concatenate([firsts, [50.1, 50.1], firsts])
    for _ in range(20):
        places = RANDOM.permutation(16)[: RANDOM.integers(1, 17)]
        stamps, unit = whole.take(places).start_stamps()
        np.testing.assert_array_equal(stamps, every[places])
        assert unit == "s"
        taken, _ = whole.take(places).start_stamps(skip_start=True)
        np.testing.assert_allclose(taken, of_rows[places], rtol=1e-15)
    np.testing.assert_array_equal(one.take([4, 2]).start_stamps()[0], [500, 300])


def test_a_group_without_a_fitting_clock_leaves_the_others_theirs(read):
    positions = write("in.h5", ["stamps", "even", "steps"])
    with h5py.File("in.h5", "r+") as file:
        del file["run/demo_3/times"]
        file["run/demo_3/times"] = np.arange(44.0)
    parts = read("in.h5")
    for block in join(parts).blocks():
        if 3 in block.numbers:
            assert block.known_times() is None
            continue
        for k, number in enumerate(block.numbers.tolist()):
            np.testing.assert_array_equal(block.times()[k], parts[number].times()[0])
            np.testing.assert_array_equal(block.arrays["position"].read()[k], positions[number])


def test_trajectories_with_faults_keep_their_numbers_among_the_others(read):
    positions = write("in.h5", [*CLOCKS])
    parts = read("in.h5")
    for bad in ({3}, {0, 5, 6}, set(range(12))):
        fault = Fault("bad")
        whole = join(
            [make_placeholder(p, p.origin, fault) if k in bad else p for k, p in enumerate(parts)]
        )
        usable, faults = whole.usable()
        assert faults == {f"run/demo_{k}": fault for k in sorted(bad)}
        assert usable.numbers.tolist() == [k for k in range(12) if k not in bad]
        for block in usable.blocks():
            for k, number in enumerate(block.numbers.tolist()):
                np.testing.assert_array_equal(block.arrays["position"].read()[k], positions[number])
                np.testing.assert_array_equal(block.times()[k], parts[number].times()[0])
        for k in bad:
            with pytest.raises(InputError, match="bad"):
                whole.take([k]).times()
