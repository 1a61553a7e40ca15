"""Recordings as robots make them: angles that wrap, noise, gaps."""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np
import pytest

from trajcli import integrate
from trajcli.recordings import TAPS, smooth, unwrap

RANDOM = np.random.default_rng(11)
TIMES = np.cumsum(RANDOM.uniform(0.01, 0.02, 400))
TRUE = np.stack([3 * TIMES, np.sin(TIMES), -5 * TIMES + 1], 1)
WRAPPED = np.angle(np.exp(1j * TRUE))


def record(path: str = "in.h5", **more: object) -> None:
    with h5py.File(path, "w") as file:
        file["position"], file["times"] = WRAPPED, TIMES
        for name, values in more.items():
            del file[name]
            file[name] = values


@pytest.mark.parametrize("memory", ["256MiB", "30kB"])
@pytest.mark.parametrize("mode", ["clique", "central"])
def test_angles_that_wrap_are_made_continuous_before_they_are_differenced(
    trajcli, folder, mode, memory
):
    record()
    line = f"integrate in.h5:position --start first --mode {mode} -o out.h5 --memory {memory}"
    assert trajcli(f"{line} --wrap-dofs 0,2").code == 0
    continuous = np.unwrap(WRAPPED, axis=0)
    continuous[:, 1] = WRAPPED[:, 1]
    expected = integrate(continuous, "first", times=TIMES, mode=mode)
    with h5py.File("out.h5") as file:
        np.testing.assert_allclose(file["position"][0], continuous, rtol=0, atol=1e-13)
        scale = np.abs(expected.jerk).max()
        np.testing.assert_allclose(file["jerk"][0], expected.jerk[0], rtol=0, atol=1e-9 * scale)
        speed = np.abs(file["velocity"][0, 10:-10, 0] - 3).max()
        assert speed < 1e-6
        assert file.attrs["wrap_dofs"] == "0,2"
    assert trajcli(f"{line} --overwrite").code == 0
    with h5py.File("out.h5") as file:
        assert np.abs(file["velocity"][:]).max() > 100  # a turn within a step


def test_unwrapping_is_numpys_and_leaves_nan_where_it_is():
    steps = RANDOM.uniform(-3.0, 3.0, (2, 500, 3)).astype("f4")
    wrapped = np.angle(np.exp(1j * np.cumsum(steps, 1))).astype("f8")
    np.testing.assert_allclose(
        unwrap(wrapped, [0, 2])[..., [0, 2]], np.unwrap(wrapped, axis=1)[..., [0, 2]], atol=1e-12
    )
    wrapped[0, 7, 0] = np.nan
    found = unwrap(wrapped, [0, 1, 2])
    assert np.isnan(found).sum() == 1


def by_hand(values: np.ndarray) -> np.ndarray:
    """The five taps, row by row, over those rows that there are."""
    found = np.empty_like(values)
    for t in range(len(values)):
        inside = [k for k in range(-2, 3) if 0 <= t + k < len(values)]
        total = sum(TAPS[k + 2] for k in inside)
        found[t] = sum(TAPS[k + 2] * values[t + k] for k in inside) / total
    return found


@pytest.mark.parametrize("rows", [1, 2, 3, 4, 5, 6, 50])
def test_smoothing_is_five_taps_renormalised_at_the_ends(rows):
    assert TAPS == (0.06136, 0.24477, 0.38774, 0.24477, 0.06136)
    values = RANDOM.standard_normal((2, rows, 3))
    found = smooth(values)
    for b in range(2):
        np.testing.assert_allclose(found[b], by_hand(values[b]), rtol=1e-13)
    np.testing.assert_allclose(smooth(np.ones((rows, 1), "f4")), 1.0, rtol=1e-7)
    assert smooth(values.astype("f4")).dtype == "f4"


@pytest.mark.parametrize("memory", ["256MiB", "30kB"])
@pytest.mark.parametrize("names", ["velocity", "acceleration,jerk"])
def test_smoothing_changes_what_is_named_and_nothing_else(trajcli, folder, names, memory):
    record()
    line = f"integrate in.h5:position --start first --mode clique --memory {memory}"
    assert trajcli(f"{line} -o rough.h5").code == 0
    assert trajcli(f"{line} -o smooth.h5 --smooth {names}").code == 0
    with h5py.File("rough.h5") as rough, h5py.File("smooth.h5") as found:
        for name in ("position", "velocity", "acceleration", "jerk"):
            expected = rough[name][0]
            if name in names.split(","):
                expected = by_hand(expected)
            scale = np.abs(expected).max()
            np.testing.assert_allclose(found[name][0], expected, rtol=0, atol=1e-12 * scale)
        assert found.attrs["smooth"] == names


def test_a_recording_is_split_at_gaps_and_every_piece_is_a_trajectory(trajcli, folder):
    times = TIMES.copy()
    times[100:] += 1.0
    times[103:] += 2.0
    times[250:] += 0.5
    record(times=times)
    line = "integrate in.h5:position --start first --mode central --max-gap 0.1 -o out.h5"
    result = trajcli(f"{line} --json")
    assert result.code == 0, result.err
    notes = result.document["notes"]
    assert any("3 pieces" in note for note in notes)
    assert any("1 pieces of fewer than 5 rows left out" in note for note in notes)
    with h5py.File("out.h5") as file:
        for k, (begin, end) in enumerate([(0, 100), (103, 250), (250, 400)]):
            own = times[begin:end]
            expected = integrate(WRAPPED[begin:end], "first", times=own, mode="central")
            for name in ("position", "velocity", "jerk"):
                found = file[f"in/piece_{k}/{name}"][:]
                np.testing.assert_array_equal(found, getattr(expected, name)[0])
            np.testing.assert_allclose(file[f"in/piece_{k}/time"][:], own - own[0], atol=1e-12)
    with h5py.File("in.h5") as file:
        np.save("p.npy", file["position"])
        np.save("t.npy", file["times"])
    more = "integrate p.npy --times t.npy --start first --mode clique --max-gap 0.1 -o q.h5"
    assert trajcli(more).code == 0
    with h5py.File("q.h5") as file:
        assert list(file["p"]) == [f"piece_{k}" for k in range(4)]
        assert len(file["p/piece_1/time"]) == 3


def test_repeats_gaps_and_wraps_are_handled_together(trajcli, folder):
    times = np.round(TIMES, 2)
    repeats = int((np.diff(times) == 0).sum())
    times[150:] += 5.0
    record(times=times)
    line = "integrate in.h5:position --start first --mode clique -o out.h5 --max-gap 1"
    result = trajcli(line)
    assert result.code == (2 if repeats else 0)
    result = trajcli(f"{line} --repeated-times drop --wrap-dofs 0,1,2 --overwrite")
    assert result.code == 0, result.err
    kept = np.concatenate([[True], np.diff(times) != 0])
    with h5py.File("out.h5") as file:
        for k, part in enumerate((slice(0, 150), slice(150, None))):
            expected = np.unwrap(WRAPPED[part][kept[part]], axis=0)
            np.testing.assert_allclose(file[f"in/piece_{k}/position"][:], expected, atol=1e-12)


def test_a_recording_without_gaps_is_one_packed_array(trajcli, folder):
    record()
    line = "integrate in.h5:position --start first --mode clique --max-gap 1 -o out.h5"
    assert trajcli(line).code == 0
    with h5py.File("out.h5") as file:
        assert file["position"].shape == (1, 400, 3)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ("--wrap-dofs 3", "0 to 2"),
        ("--wrap-dofs a", "like 3,5"),
        ("--max-gap 0", "seconds > 0"),
        ("--max-gap 0.0001 --mode central", "no piece of 5 rows"),
        ("--smooth position", "velocity, acceleration, jerk"),
        ("--smooth velocity --mode teleport", "differences nothing"),
    ],
)
def test_what_cannot_be_is_refused(trajcli, folder, options, told):
    record()
    mode = "" if "--mode" in options else "--mode clique"
    result = trajcli(f"integrate in.h5:position --start first {mode} {options} -o out.h5")
    assert result.code == 2
    assert told in result.err
    assert not Path("out.h5").exists()


def test_plans_are_neither_split_nor_unwrapped(trajcli, folder):
    for options in ("--wrap-dofs 1", "--max-gap 1"):
        result = trajcli(
            f"integrate actions.npy --start start.npy --dt 0.1 --mode clique {options} -o out.h5"
        )
        assert result.code == 2
        assert "recorded positions only" in result.err
    result = trajcli(
        "integrate actions.npy --start start.npy --dt 0.1 --mode jerk --smooth jerk -o out.h5"
    )
    assert result.code == 2
    assert "--smooth" in result.err
