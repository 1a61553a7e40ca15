"""The times of rows: one order for all commands, checked in one place."""

from __future__ import annotations

import h5py
import numpy as np
import pytest

from trajcli.errors import InputError, UsageError
from trajcli.files.clock import Clock, equal_step
from trajcli.files.opening import Files, clock_from_options
from trajcli.files.reader import assign_times, read_recordings
from trajcli.files.reading import Reading
from trajcli.files.recording import Recording

ROWS = 6
RANDOM = np.random.default_rng(5)


@pytest.fixture
def read(tmp_path, monkeypatch):
    """The only set of a file with position [2, ROWS, 1] and what else is said."""
    monkeypatch.chdir(tmp_path)
    numbers = iter(range(100))
    with Files() as files:

        def written(attributes: dict[str, object] | None = None, **arrays: object) -> Recording:
            path = f"in_{next(numbers)}.h5"
            with h5py.File(path, "w") as file:
                if "actions" not in arrays:
                    file["position"] = np.zeros((2, ROWS, 1))
                for name, values in arrays.items():
                    file[name] = values
                file.attrs.update(attributes or {})
            (one,) = read_recordings(files, [path])
            return one

        yield written


def require(one: Recording) -> Clock:
    assert one.clock is not None
    return one.clock


def test_stamps_that_wander_about_a_stated_dt_are_used(read):
    stamps = np.arange(ROWS) * 0.02 + np.array([0, 1, -1, 1, 0, 0]) * 1e-4
    found = require(read({"dt": 0.02}, times=stamps))
    assert found.step is None
    np.testing.assert_array_equal(found.row_times()[0], stamps)


@pytest.mark.parametrize(
    ("stamps", "step"),
    [
        (np.arange(50) * 0.02, 0.02),
        (1.7e9 + np.arange(50) * 0.01, 0.01),
        (np.cumsum(np.full(50, 0.1)), 0.1),
        ((np.arange(50) / 30).astype("f4"), 1 / 30),
        (np.arange(50) * 0.1 * (1 + 1e-10 * np.arange(50)), None),
        (np.arange(50), 1.0),
        (np.arange(50) * 3, 3.0),
        (np.cumsum(np.linspace(0.01, 0.011, 50)), None),
        (np.array([0.0, 1.0, np.nan, 3.0]), None),
        (np.zeros(4), None),
        (np.arange(4)[::-1], None),
        (np.arange(1.0), None),
    ],
)
def test_stamps_at_equal_distances_are_one_step(stamps, step):
    assert equal_step(stamps) == step


@pytest.mark.parametrize("step", [1 / 29.97, 1001 / 30000, 0.1 + 1e-11])
def test_one_step_gives_every_stamp_to_its_rounding(read, step):
    stamps = np.arange(200) * step
    found = equal_step(stamps)
    assert found is not None
    np.testing.assert_allclose(np.arange(200) * found, stamps, rtol=1e-15)
    short = np.arange(ROWS) * step
    found = require(read({"dt": round(step, 8)}, time=short)).step
    assert found is not None
    np.testing.assert_allclose(np.arange(ROWS) * found, short, rtol=1e-15)


@pytest.mark.parametrize(
    ("dt", "expected"),
    [
        (0.5, np.arange(ROWS) * 0.5),
        (np.array([0.5]), np.arange(ROWS) * 0.5),
        (np.array([1.0, 2, 3, 4, 5]), [0, 1, 3, 6, 10, 15]),
        (np.array([9.0, 1, 2, 3, 4, 5]), [0, 1, 3, 6, 10, 15]),
        (np.array([[1.0], [2.0]]), [np.arange(ROWS), 2 * np.arange(ROWS)]),
    ],
)
def test_steps_of_every_shape_give_the_times_of_the_rows(read, dt, expected):
    np.testing.assert_array_equal(require(read(dt=dt)).row_times(), np.atleast_2d(expected))


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ([0, 1, 1, 3, 4, 5], "repeat"),
        ([0, 1, 0.5, 3, 4, 5], "go back"),
        ([0, 1, np.nan, 3, 4, 5], "not finite"),
    ],
)
def test_stamps_that_do_not_increase_are_refused_when_used(read, values, words):
    found = require(read(times=np.array(values, float)))
    assert [fault for fault in found.faults() if words in fault.what]
    with pytest.raises(InputError, match=words):
        found.row_times()
    np.testing.assert_array_equal(found.stored_times(0, 1)[0], values)  # to be looked at


@pytest.mark.parametrize("dt", [-0.1, 0.0, np.inf, [0.1, 0.1, -0.1, 0.1, 0.1]])
def test_steps_that_are_not_positive_are_refused_when_used(read, dt):
    with pytest.raises(InputError, match="not positive and finite"):
        require(read(dt=dt)).row_times()


def test_times_of_groups_above_are_used_without_nearer_ones(tmp_path):
    with h5py.File(tmp_path / "in.h5", "w") as file:
        file["run/position"] = np.zeros((ROWS, 1))
        file["run/deep/position"] = np.zeros((ROWS, 1))
        file["times"] = np.arange(ROWS) * 0.5
        file["run/dt"] = 0.25
        file["run/other/position"] = np.zeros((9, 1))
        file["run/other/times"] = np.arange(9) * 0.1
        file["far/position"] = np.zeros((ROWS, 1))
        file.attrs["rate"] = 2
    with Files() as files:
        found = [one.clock for one in read_recordings(files, [f"{tmp_path}/in.h5"])]
    assert [one.step for one in found if one is not None] == [0.5, 0.25, 0.1, 0.25]


def test_rates_of_attributes_come_last(read):
    found = require(read({"fps": 25}))
    assert found.step == 0.04
    assert str(found.source).endswith("@fps, 25 Hz")
    assert read({"fps": -1, "dt": "fast"}).clock is None


def test_statements_of_one_group_that_disagree_are_an_error(read):
    for attributes, arrays in (
        ({"fps": 25, "dt": 0.02}, {}),
        ({"fps": 25, "rate": 50}, {}),
        ({"fps": 25}, {"rate": 50.0}),
        ({"fps": 25}, {"dt": 0.02}),
        ({"fps": 25}, {"times": np.arange(ROWS) * 0.02}),
        ({}, {"fps": np.array([25]), "mocap_framerate": 50}),
    ):
        found = require(read(attributes, **arrays))
        with pytest.raises(InputError, match="contradict each other") as error:
            found.stored_times()
        (fault,) = error.value.faults
        assert all(name in fault.where for name in [*attributes, *arrays]), fault.where
        assert "--dt" in fault.hint or "--rate" in fault.hint
    assert require(read({"fps": 29.97, "dt": 1 / 30}, times=np.arange(ROWS) / 30)).step == 1 / 30


@pytest.mark.parametrize("name", ["fps", "rate", "control_freq", "fs", "mocap_framerate"])
@pytest.mark.parametrize("value", [25, np.array([25]), np.array([[25.0]]), np.float32(25)])
def test_rates_are_attributes_numbers_or_arrays_of_one_number(read, name, value):
    assert require(read({name: value})).step == 0.04
    assert require(read({}, **{name: value})).step == 0.04


def test_actions_lead_to_times_a_step_later(read):
    found = require(read(actions=np.zeros((3, 4, 1)), dt=0.5))
    np.testing.assert_array_equal(found.stored_times(1, 2)[0], [0.5, 1.0, 1.5, 2.0])
    np.testing.assert_array_equal(found.row_times(), [[0.0, 0.5, 1.0, 1.5]])
    stamps = np.array([0.0, 1, 3, 6, 10])
    found = require(read(actions=np.zeros((3, 4, 1)), times=stamps))
    np.testing.assert_array_equal(found.stored_times(1, 2)[0], stamps[1:])


def test_a_clock_in_nanoseconds_loses_nothing(tmp_path):
    """float64 holds seconds since 1970 to 0.2 µs only."""
    steps = RANDOM.integers(9_900_000, 10_100_000, (3, ROWS))
    stamps = 1_700_000_000_123_456_789 + np.cumsum(steps, 1)
    with h5py.File(tmp_path / "in.h5", "w") as file:
        file["position"] = np.zeros((3, ROWS, 1))
        file["times"] = stamps
        file["times"].attrs["units"] = "nanoseconds since 1970-01-01"
    with Files() as files:
        time = read_recordings(files, [f"{tmp_path}/in.h5"])[0].clock
        exact = [[(int(t) - int(line[0])) / 10**9 for t in line] for line in stamps]
        np.testing.assert_array_equal(time.row_times(), exact)


def test_padding_is_not_checked(read):
    stamps = np.array([[0.0, 1, 3, 4, np.nan, np.nan], [0.0, 2, 3, 4, 5, 9]])
    assert not require(read(times=stamps, lengths=[4, 6])).faults()
    assert require(read(times=stamps, lengths=[5, 6])).faults()
    assert require(read(times=stamps, lengths=[4, 5])).faults(1) == []
    steps = np.array([[0.1, 0.2, 0.3, np.nan, np.nan], [0.1, 0.2, 0.3, 0.4, 0.5]])
    assert not require(read(dt=steps, lengths=[4, 6])).faults()
    assert require(read(dt=steps, lengths=[5, 6])).faults()


def test_options_name_a_time(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with h5py.File("in.h5", "w") as file:
        file["t"] = np.arange(4) * 0.5
        file["step"] = [0.1, 0.2]
        file["step"].attrs["nominal"] = 0.15
        file.attrs["text"] = "no"
    with Files() as files:
        assert clock_from_options(files) is None
        for options, step in (
            ({"dt": "0.25"}, 0.25),
            ({"rate": 50.0}, 0.02),
            ({"times": "in.h5:t"}, 0.5),
            ({"dt": "in.h5:step@nominal"}, 0.15),
        ):
            found = clock_from_options(files.with_reading(Reading(**options)))
            assert found is not None
            assert found.step == step
        found = clock_from_options(files.with_reading(Reading(dt="in.h5:step")))
        assert found is not None
        np.testing.assert_array_equal(found.fit_shape(1, 3).row_times(), [[0, 0.1, 0.1 + 0.2]])
        for options, kind in (
            ({"dt": "0.1", "rate": 3.0}, UsageError),
            ({"rate": -3.0}, UsageError),
            ({"rate": float("nan")}, UsageError),
            ({"dt": "fast"}, UsageError),
            ({"dt": "in.h5@text"}, InputError),
            ({"dt": "in.h5@none"}, InputError),
        ):
            with pytest.raises(kind):
                clock_from_options(files.with_reading(Reading(**options)))


def test_a_file_without_times_suggests_increasing_datasets_of_similar_names(tmp_path):
    with h5py.File(tmp_path / "in.h5", "w") as file:
        file["actions"], file["time_stamps"] = np.zeros((5, 2)), np.arange(5) * 0.1
        file["timeouts"] = np.zeros(5, np.uint8)
    with Files() as files, pytest.raises(InputError) as error:
        assign_times(read_recordings(files, [f"{tmp_path}/in.h5"]), None)
    (fault,) = error.value.faults
    assert fault.hint.startswith(f"--times {tmp_path}/in.h5:time_stamps,")
    assert "timeouts" not in fault.hint
