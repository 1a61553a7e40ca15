"""integrate --to and --at: a plan at the rate of a controller, or at any times, from the shell."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from scipy.interpolate import BSpline

from trajcli import State, integrate, sample

QUANTITIES = ("position", "velocity", "acceleration", "jerk")
random = np.random.default_rng(3)


def plan_file(horizon: int = 8, batch: int = 4, **more: Any) -> dict[str, np.ndarray]:
    """in.npz, of jerks over steps of their own and start states."""
    arrays = {
        "actions": random.normal(size=(batch, horizon, 2)),
        "start_position": random.normal(size=(batch, 2)),
        "start_velocity": random.normal(size=(batch, 2)),
        "dt": random.uniform(0.02, 0.2, (batch, horizon)),
    } | more
    np.savez("in.npz", **arrays)
    return arrays


def plan_of(arrays: dict[str, np.ndarray], scheme: str = "zoh") -> Any:
    start = State(arrays["start_position"], arrays["start_velocity"])
    return integrate(arrays["actions"], start, arrays["dt"], "jerk", scheme=scheme)


def test_ruckigs_plan_at_a_kilohertz_is_its_own_at_every_millisecond(trajcli, folder):
    ruckig = pytest.importorskip("ruckig")
    move = ruckig.InputParameter(3)
    move.current_position, move.target_position = [0.0, 0.1, -0.5], [1.0, -2.0, 3.0]
    move.current_velocity, move.target_velocity = [0.2, -0.3, 0.0], [0.0, 0.3, -0.1]
    move.max_velocity, move.max_acceleration, move.max_jerk = [1.0] * 3, [2.0] * 3, [4.0] * 3
    profile = ruckig.Trajectory(3)
    assert ruckig.Ruckig(3).calculate(move, profile) == ruckig.Result.Working
    ends = [np.cumsum([*p.brake.t, *p.t]) for p in profile.profiles[0]]
    jerks = [np.array([*p.brake.j, *p.j, 0.0]) for p in profile.profiles[0]]
    times = np.unique(np.concatenate([[0.0], *ends]))
    times = times[np.concatenate([[True], np.diff(times) > 1e-12])]
    middles = (times[1:] + times[:-1]) / 2
    held = [j[np.searchsorted(end, middles)] for j, end in zip(jerks, ends, strict=True)]
    np.savez(
        "in.npz", actions=np.stack(held, -1)[None], times=times,
        start_position=move.current_position, start_velocity=move.current_velocity,
    )  # fmt: skip
    result = trajcli("integrate in.npz --mode jerk --scheme zoh --to 1000 -o out.h5")
    assert result.code == 0, result.err
    with h5py.File("out.h5") as file:
        stamps = file["time"][:]
        np.testing.assert_array_equal(stamps, np.arange(int(times[-1] * 1000) + 1) / 1000)
        states = np.array([profile.at_time(time) for time in stamps])  # [T, 3 parts, dof]
        for k, name in enumerate(QUANTITIES[:3]):
            np.testing.assert_allclose(file[name][0], states[:, k], rtol=0, atol=1e-10)


@pytest.mark.parametrize("degree", [3, 4, 5])
def test_a_b_spline_at_any_rate_is_scipys(trajcli, folder, degree):
    line = f"integrate actions.npy --start start.npy --dt 0.07 --mode bspline --degree {degree}"
    assert trajcli(f"{line} --steps 3 --dtype float64 --to 137.3 -o out.h5").code == 0
    actions, start = np.load("actions.npy").astype("f8"), np.load("start.npy").astype("f8")
    rows = np.repeat(start[:, None], degree + 1, 1), actions, np.repeat(actions[:, -1:], degree, 1)
    points = np.concatenate(rows, 1)
    knots = 0.21 * (np.arange(points.shape[1] + degree + 1) - degree)
    with h5py.File("out.h5") as file:
        assert len(file["time"]) == int(0.21 * (10 + degree + 1) * 137.3) + 1
        for b in range(5):
            curve = BSpline(knots, points[b], degree)
            for m, name in enumerate(QUANTITIES):
                wanted = curve.derivative(m)(file["time"][:]) if m else curve(file["time"][:])
                atol = 1e-11 * max(1.0, abs(wanted).max())
                np.testing.assert_allclose(file[name][b], wanted, rtol=0, atol=atol)


@pytest.mark.parametrize(
    "mode", ["jerk --scheme zoh", "acceleration --scheme foh", "bspline --degree 4 --steps 5"]
)
def test_at_its_own_rate_a_plan_has_its_own_rows_to_the_bit(trajcli, folder, mode):
    line = f"integrate actions.npy --start start.npy --dt 0.02 --mode {mode}"
    assert trajcli(f"{line} -o rows.h5").code == 0
    assert trajcli(f"{line} --to 50 -o out.h5").code == 0
    with h5py.File("rows.h5") as rows, h5py.File("out.h5") as out:
        known = QUANTITIES if "bspline" in mode or "jerk" in mode else QUANTITIES[:3]
        for name in known:
            np.testing.assert_array_equal(out[name][:], rows[name][:])
        np.testing.assert_allclose(out["time"][:], rows["time"][:], rtol=1e-15)


@pytest.mark.parametrize("own", [False, True], ids=["times of all", "times of their own"])
@pytest.mark.parametrize("scheme", ["zoh", "foh"])
def test_times_of_a_file_give_what_the_library_gives(trajcli, folder, scheme, own):
    arrays = plan_file()
    plan = plan_of(arrays, scheme)
    share = np.sort(random.uniform(size=(4, 30)), 1)
    times = share * plan.time[:, -1:] if own else share[0] * plan.time[:, -1].min()
    np.save("times.npy", times)
    line = f"integrate in.npz --mode jerk --scheme {scheme} --at times.npy"
    assert trajcli(f"{line} -o out.h5").code == 0
    assert trajcli(f"{line} -o out --dtype float32 --write velocity,jerk").code == 0
    samples = sample(plan, times)
    with h5py.File("out.h5") as file:
        np.testing.assert_array_equal(file["time"][:], times)
        for name, values in samples.outputs().items():
            np.testing.assert_array_equal(file[name][:], values)
    assert not Path("out/position.npy").exists()
    rounded = samples.velocity.astype("f4")
    np.testing.assert_array_equal(np.load("out/velocity.npy"), rounded)


def test_times_in_milliseconds_are_those_times_in_seconds(trajcli, folder):
    with h5py.File("ms.h5", "w") as file:
        file["t"] = [0.0, 25.0, 130.0]
        file["t"].attrs["units"] = "ms"
    line = "integrate actions.npy --start start.npy --dt 0.02 --scheme zoh"
    assert trajcli(f"{line} --at ms.h5:t -o out.h5").code == 0
    np.save("s.npy", [0.0, 0.025, 0.13])
    assert trajcli(f"{line} --at s.npy -o s.h5").code == 0
    with h5py.File("out.h5") as out, h5py.File("s.h5") as seconds:
        np.testing.assert_allclose(out["time"][:], [0.0, 0.025, 0.13], rtol=1e-15)
        np.testing.assert_allclose(out["position"][:], seconds["position"][:], rtol=1e-6)


def test_every_trajectory_has_the_rows_of_its_own_duration(trajcli, folder):
    arrays = plan_file()
    plan = plan_of(arrays)
    for name in ("out.h5", "p.h5 --pack", "p.npz --pack", "c.h5 --compress 3"):
        result = trajcli(f"integrate in.npz --mode jerk --scheme zoh --to 250 -o {name}")
        assert result.code == 0, result.err
    with h5py.File("out.h5") as file, h5py.File("c.h5") as c, h5py.File("p.h5") as packed:
        npz = np.load("p.npz")
        for b in range(4):
            rows = int(plan.time[b, -1] * 250) + 1
            times = np.arange(rows) / 250
            own = integrate(
                arrays["actions"][b],
                State(arrays["start_position"][b], arrays["start_velocity"][b]),
                arrays["dt"][b], "jerk", scheme="zoh",
            )  # fmt: skip
            samples = sample(own, times)
            assert packed["lengths"][b] == npz["lengths"][b] == rows
            for name, values in samples.outputs().items():
                np.testing.assert_array_equal(file[f"in/trajectory_{b}/{name}"][:], values[0])
                np.testing.assert_array_equal(c[f"in/trajectory_{b}/{name}"][:], values[0])
                np.testing.assert_array_equal(packed[name][b, :rows], values[0])
                np.testing.assert_array_equal(npz[name][b, :rows], values[0])
                assert np.isnan(packed[name][b, rows:]).all()
            np.testing.assert_array_equal(file[f"in/trajectory_{b}/time"][:], times)


def test_shards_of_different_lengths_are_the_run(trajcli, folder):
    plan_file(batch=7, lengths=np.array([8, 3, 8, 5, 8, 8, 3]))
    line = "integrate in.npz --mode jerk --scheme zoh --to 250"
    assert trajcli(f"{line} -o whole.h5").code == 0
    for k in range(3):
        assert trajcli(f"{line} -o out.h5 --shard {k}/3").code == 0
    result = trajcli("merge out.h5")
    assert result.code == 0, result.err
    with h5py.File("whole.h5") as whole, h5py.File("out.h5") as out:
        assert list(whole["in"]) == list(out["in"])
        for b in range(7):
            for name in (*QUANTITIES, "time"):
                path = f"in/trajectory_{b}/{name}"
                np.testing.assert_array_equal(out[path][:], whole[path][:])
    assert trajcli("diff whole.h5 out.h5").code == 0


def test_the_run_says_the_rate_and_the_rows_and_so_does_the_file(trajcli, folder):
    line = "integrate actions.npy --start start.npy --dt 0.02 --scheme zoh"
    result = trajcli(f"{line} --to 1000 -o out.h5")
    assert "at 1000 Hz: 201 rows\n" in result.out
    assert "5 × 201 rows" in result.out
    document = trajcli(f"{line} --to 1000 -o out.h5 --overwrite --json").document
    assert (document["to"], document["at"]) == (1000.0, None)
    assert (document["rows"], document["shortest_rows"]) == (201, 201)
    assert document["dt"] == 0.02
    with h5py.File("out.h5") as file:
        assert file.attrs["dt"] == 0.001
        assert file.attrs["samples_of"].startswith("acceleration frames=full scheme=zoh")
        assert "mode" not in file.attrs  # no relation of it joins these rows
    assert trajcli("check out.h5").code == 0
    checked = trajcli("check out.h5 --recompute")
    assert checked.code == 0, checked.out
    assert checked.out.count("equal to the bit") == 5
    plan_file()
    result = trajcli("integrate in.npz --mode jerk --scheme zoh --to 100 -o o.h5 --dry-run")
    assert " rows\n" in result.out
    assert " to " in result.out.split("at 100 Hz")[1].split("\n")[0]
    np.save("times.npy", [0.0, 0.1])
    document = trajcli(f"{line} --at times.npy -o t.h5 --json").document
    assert (document["to"], document["at"], document["rows"]) == (None, "times.npy", 2)


def test_the_bytes_do_not_depend_on_the_memory(trajcli, folder):
    plan_file(batch=40)
    line = "integrate in.npz --mode jerk --scheme zoh --to 250 --pack"
    assert trajcli(f"{line} -o out.h5").code == 0
    assert trajcli(f"{line} -o small.h5 --memory 64KiB").code == 0
    assert Path("out.h5").read_bytes() == Path("small.h5").read_bytes()


def test_a_long_plan_goes_to_its_place_in_parts(trajcli, folder, monkeypatch):
    import tracemalloc

    np.save("long.npy", random.normal(size=(10_000, 7)))
    line = "integrate long.npy --start zero --dt 0.02 --scheme foh --to 1000"
    for name, parts in (("out.h5", 1 << 16), ("p.npz --pack", 7 * 999), ("whole.h5", 1 << 40)):
        monkeypatch.setattr("trajcli.jobs.block._SAMPLES", parts)
        tracemalloc.start()
        result = trajcli(f"{line} -o {name}")
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert result.err == ""
        assert (peak < 30e6) == (name != "whole.h5")
    assert Path("out.h5").read_bytes() == Path("whole.h5").read_bytes()
    with h5py.File("out.h5") as file:
        for name in QUANTITIES:
            np.testing.assert_array_equal(np.load("p.npz")[name], file[name][:])


def test_memory_is_that_of_a_block(trajcli, folder):
    import tracemalloc

    with h5py.File("in.h5", "w") as file:
        file["dt"], file["start_position"] = 0.1, np.zeros(2)
        file.create_dataset("actions", data=np.ones((20_000, 20, 2), "f4"))
    line = "integrate in.h5 --scheme zoh --to 100 --memory 4MiB"
    assert trajcli(f"{line} -o warm.h5 --dry-run").code == 0
    tracemalloc.start()
    assert trajcli(f"{line} -o out.h5").code == 0
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert Path("out.h5").stat().st_size > 120e6
    assert peak < 10e6


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("--to 0 --scheme zoh", ["--to", "Hz > 0"]),
        ("--to -5 --scheme zoh", ["--to", "Hz > 0"]),
        ("--to nan --scheme zoh", ["--to", "Hz > 0"]),
        ("--to 1e300 --scheme zoh", ["not enough space"]),
        ("--to 100", ["--to 100", "scheme euler", "zoh or foh", "resample"]),
        ("--to 100 --mode central", ["mode central", "resample"]),
        ("--to 100 --at inside.npy --scheme zoh", ["--to and --at", "one of them"]),
        ("--to 100 --scheme zoh --cost jerk", ["gradients", "leave --to out"]),
        ("--to 100 --scheme zoh --frames actions", ["--frames", "full or curobo"]),
        ("--at gone.npy --scheme zoh", ["gone.npy", "no such file"]),
        ("--at late.npy --scheme zoh", ["late.npy, trajectory 0, entry 1", "0.0 to 1.0 s", "1.5"]),
        ("--at early.npy --scheme zoh", ["entry 0", "not within", "-0.1"]),
        ("--at back.npy --scheme zoh", ["entry 2", "do not increase"]),
        ("--at nan.npy --scheme zoh", ["entry 1", "do not increase", "nan"]),
        ("--at one.npy --scheme zoh", ["one.npy, trajectory 3, entry 1", "not within"]),
        ("--at four.npy --scheme zoh", ["four.npy", "[N], or [5, N]", "[4, 2]"]),
        ("--at odd.h5:t --scheme zoh", ["odd.h5:/t", "unknown unit", "fortnights"]),
    ],
)
def test_what_cannot_be_is_refused_and_nothing_is_written(trajcli, folder, options, words):
    np.save("inside.npy", [0.0, 0.5])
    np.save("late.npy", [0.0, 1.5])
    np.save("early.npy", [-0.1, 0.5])
    np.save("back.npy", [0.0, 0.5, 0.5])
    np.save("nan.npy", [0.0, np.nan, 0.5])
    np.save("one.npy", np.array([[0, 1], [0, 1], [0, 1], [0, 1.1], [0, 1.0]]))
    np.save("four.npy", np.zeros((4, 2)))
    with h5py.File("odd.h5", "w") as file:
        file["t"] = [0.0, 0.5]
        file["t"].attrs["units"] = "fortnights"
    result = trajcli(f"integrate actions.npy --start zero --dt 0.1 -o o.h5 {options}")
    assert result.code == 2
    for word in words:
        assert word in result.err
    assert not Path("o.h5").exists()


@pytest.mark.parametrize("scheme", ["zoh", "foh", "bspline"])
def test_rows_between_are_computed_where_the_rows_are(trajcli, folder, monkeypatch, scheme):
    steps = np.full((4, 1), 0.1) if scheme == "bspline" else np.linspace(0.02, 0.2, 8)
    plan_file(dt=steps)
    mode = "bspline --degree 5" if scheme == "bspline" else f"jerk --scheme {scheme}"
    seen = []
    monkeypatch.setattr("trajcli.sampling.sample", lambda *of: seen.append(of) or sample(*of))
    for backend in ("native", "torch"):
        line = f"integrate in.npz --mode {mode} --to 333 --write position,jerk --backend {backend}"
        assert trajcli(f"{line} -o {backend}.h5").code == 0
    assert isinstance(seen[0][0].jerk, np.ndarray)
    assert type(seen[-1][0].jerk).__module__ == "torch"
    with h5py.File("native.h5") as native, h5py.File("torch.h5") as other:
        for name in ("position", "jerk", "time"):
            np.testing.assert_allclose(other[name], native[name], rtol=1e-11, atol=1e-11)
