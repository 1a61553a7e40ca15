"""Recordings as robots make them: angles that wrap, noise, gaps."""

from __future__ import annotations

import json

import h5py
import numpy as np
import pytest

from trajcli import differentiate

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


@pytest.mark.parametrize("method", ["backward", "central"])
def test_angles_that_wrap_are_made_continuous_before_they_are_differenced(trajcli, folder, method):
    record()
    line = f"differentiate in.h5:position --method {method} -o out.h5"
    assert trajcli(f"{line} --wrap-dofs 0,2").code == 0
    continuous = np.unwrap(WRAPPED, axis=0)
    continuous[:, 1] = WRAPPED[:, 1]
    expected = differentiate(continuous, times=TIMES, method=method)
    with h5py.File("out.h5") as file:
        np.testing.assert_allclose(file["position"][0], continuous, rtol=0, atol=1e-13)
        scale = np.abs(expected.jerk).max()
        np.testing.assert_allclose(file["jerk"][0], expected.jerk[0], rtol=0, atol=1e-9 * scale)
        speed = np.abs(file["velocity"][0, 10:-10, 0] - 3).max()
        assert speed < 1e-6
        assert json.loads(file.attrs["request"])["wrap_dofs"] == "0,2"
    assert trajcli(f"{line} --overwrite").code == 0
    with h5py.File("out.h5") as file:
        assert np.abs(file["velocity"][:]).max() > 100  # a turn within a step


@pytest.mark.parametrize("more", ["", "--max-gap 100", "--repeated-times drop"])
def test_unwrapping_is_numpys_also_for_half_turns_up_and_down(trajcli, folder, more):
    turns = np.pi * np.array([0, 1, 0, -1, 0, 2, 1, -1, 3, 0.5])
    np.save("turns.npy", np.stack([turns, turns], 1))
    np.save("stamps.npy", np.arange(10.0) ** 1.5)
    line = "differentiate turns.npy --method backward --times stamps.npy --wrap-dofs 0"
    assert trajcli(f"{line} -o out.h5 {more}").code == 0
    with h5py.File("out.h5") as file:
        np.testing.assert_array_equal(file["position"][0, :, 0], np.unwrap(turns))
        np.testing.assert_array_equal(file["position"][0, :, 1], turns)


def test_a_recording_is_split_at_gaps_and_every_segment_is_a_trajectory(trajcli, folder):
    times = TIMES.copy()
    times[100:] += 1.0
    times[103:] += 2.0
    times[250:] += 0.5
    record(times=times)
    line = "differentiate in.h5:position --method central --max-gap 0.1 -o out.h5"
    result = trajcli(f"{line} --json")
    assert result.code == 0, result.err
    notes = result.document["notes"]
    assert any("4 segments" in note for note in notes)
    assert any("segments of fewer than 5 rows left out: 1" in note for note in notes)
    with h5py.File("out.h5") as file:
        for k, (begin, end) in enumerate([(0, 100), (103, 250), (250, 400)]):
            stamps = times[begin:end]
            expected = differentiate(WRAPPED[begin:end], times=stamps, method="central")
            for name in ("position", "velocity", "jerk"):
                actual = file[f"in/segment_{k}/{name}"][:]
                np.testing.assert_array_equal(actual, getattr(expected, name)[0])
            np.testing.assert_allclose(
                file[f"in/segment_{k}/time"][:], stamps - stamps[0], atol=1e-12
            )
    with h5py.File("in.h5") as file:
        np.save("p.npy", file["position"])
        np.save("t.npy", file["times"])
    more = "differentiate p.npy --times t.npy --method backward --max-gap 0.1 -o q.h5"
    assert trajcli(more).code == 0
    with h5py.File("q.h5") as file:
        assert list(file["p"]) == [f"segment_{k}" for k in range(4)]
        assert len(file["p/segment_1/time"]) == 3


def test_a_window_in_seconds_is_another_number_of_rows_at_another_rate(trajcli, folder):
    position = np.random.default_rng(4).normal(size=(90, 2))
    for name, rate in (("a", 100), ("b", 50)):
        np.savez(f"{name}.npz", position=position, dt=1 / rate)
    line = "differentiate a.npz:position b.npz:position --method savgol -o out.h5 --window"
    result = trajcli(f"{line} 0.3s")
    assert result.code == 0, result.err
    with h5py.File("out.h5") as file:
        groups = [group for group in file.values() if isinstance(group, h5py.Group)] or [file]
        rows = np.concatenate([group["velocity"][:] for group in groups])
    for values, name, window in zip(rows, "ab", (31, 15), strict=True):
        assert trajcli(
            f"differentiate {name}.npz:position --method savgol --window {window} "
            "-o one.npz --overwrite"
        ).code == 0  # fmt: skip
        one = np.load("one.npz")["velocity"][0]
        np.testing.assert_allclose(values, one, rtol=0, atol=1e-11 * abs(one).max())
    sides = trajcli("inspect out.h5 --json").document["one_sided"]
    assert sides == 15


def test_pieces_of_fewer_rows_than_a_polynomial_needs_are_left_out(trajcli, folder):
    times = np.arange(100) * 0.01
    times[4:] += 1.0
    times[14:] += 1.0  # 4, 10 and 86 rows
    np.savez("in.npz", position=np.random.default_rng(5).normal(size=(100, 2)), times=times)
    line = "differentiate in.npz:position --method savgol --window 0.3s --max-gap 0.5"
    result = trajcli(f"{line} -o out.h5")
    assert result.code == 0, result.err
    assert "note: segments of fewer than 5 rows left out: 1" in result.err
    assert "left out" not in trajcli(f"{line} -o out.h5 --overwrite --quiet").err
    np.savez("few.npz", position=np.zeros((4, 2)), times=times[:4])
    result = trajcli("differentiate few.npz:position --method savgol --window 0.3s -o x.h5")
    assert result.code == 2
    assert "more than 4 rows" in result.err


def test_one_sided_ends_are_no_peaks(trajcli, folder):
    """Of noise, the largest jerk by far is at an end; without the ends it is like all others."""
    position = 1e-3 * np.random.default_rng(5).normal(size=(4, 300, 2))
    np.savez("in.npz", position=position, dt=0.01)
    line = "differentiate in.npz:position --method savgol --window 31 -o out.h5"
    assert trajcli(line).code == 0
    with h5py.File("out.h5") as file:
        jerk = np.abs(file["jerk"][:])
    inner = jerk[:, 15:-15]
    assert jerk.max() > 2 * inner.max()
    (dataset,) = (
        one
        for one in trajcli("inspect out.h5 --json").document["datasets"]
        if one["name"] == "jerk"
    )
    for dof, of in enumerate(dataset["per_dof"]):
        assert of["peak"] == inner[..., dof].max()
        at = of["at"]
        assert jerk[at["trajectory"], at["row"], dof] == of["peak"]
    assert dataset["max"] >= inner.max()
    assert "peaks without the first and the last 15 rows" in trajcli("inspect out.h5").out
    lines = trajcli("score out.h5 --json").document["trajectories"]
    expected = np.quantile(inner.reshape(4, -1), 0.95, axis=1)
    assert [one["p95_jerk"] for one in lines] == pytest.approx(list(expected))
    assert [one["duration"] for one in lines] == pytest.approx([2.99] * 4)
    assert "without the first and the last 15 rows" in trajcli("score out.h5").out
