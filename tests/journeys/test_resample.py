"""resample and retime, from file to file."""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np
import pytest
from layouts import writers

from trajcli import Trajectory, integrate, load, resample, retime, sample

QUANTITIES = ("position", "velocity", "acceleration", "jerk")
REACH = "integrate {samples}/reach.h5 --mode jerk --scheme zoh -o reach.h5 -q"


@pytest.mark.parametrize(
    ("options", "method", "more", "count"),
    [
        ("", "linear", {}, 2),
        ("--method hold", "hold", {}, 1),
        ("--method ramp-and-hold --hold 0.5", "ramp-and-hold", {"hold": 0.5}, 2),
        ("--method cubic", "cubic", {}, 3),
        ("--method quintic", "quintic", {}, 4),
    ],
)
def test_the_command_writes_what_the_library_computes(
    trajcli, folder, options, method, more, count
):
    assert trajcli("integrate actions.npy --start start.npy --dt 0.02 -o t.h5").code == 0
    result = trajcli(f"resample t.h5 --to 130 {options} -o out.h5 --json")
    assert result.code == 0, result.err
    assert result.document["arrays"] == list(QUANTITIES[:count])
    assert result.document["dt_source"].endswith("t.h5:/time")
    assert all(name in " ".join(result.document["notes"]) for name in QUANTITIES[count:])
    expected = resample(load("t.h5"), method, rate=130, **more)
    with h5py.File("out.h5") as after:
        assert not set(QUANTITIES[count:]) & set(after)
        for name in QUANTITIES[:count]:
            np.testing.assert_array_equal(after[name][:], getattr(expected, name))
            np.testing.assert_array_equal(after["time"][:], expected.time)
        assert after["position"].dims[1].keys() == ["time"]
        assert after.attrs["method"] == method


@pytest.mark.parametrize(
    "mode", ["jerk --scheme zoh", "acceleration --scheme foh", "bspline --degree 5 --steps 3"]
)
def test_a_file_that_states_its_polynomials_is_resampled_exactly(trajcli, folder, mode):
    line = f"integrate actions.npy --start start.npy --dt 0.02 --dtype float64 --mode {mode}"
    assert trajcli(f"{line} -o t.h5").code == 0
    result = trajcli("resample t.h5 --to 137 -o out.h5")
    assert result.code == 0, result.err
    assert "exactly as " + mode.split()[0] in result.out
    with h5py.File("out.h5") as out:
        direct = sample(load("t.h5"), out["time"][:]).outputs()
        for name, values in direct.items():
            np.testing.assert_array_equal(out[name][:], values)
        assert "mode" not in out.attrs
    # a method that is named is used, and so is one where the file is not all there
    assert trajcli("resample t.h5 --to 137 --method quintic -o q.h5 --json").code == 0
    result = trajcli("resample t.h5:position --to 137 -o p.h5 --json")
    assert result.document["method"] == "linear"
    assert "velocity" in result.document["notes"][0]
    result = trajcli("resample t.h5 --rate 20 --to 137 -o r.h5 --json")
    assert result.document["method"] == "linear"
    assert "other times" in result.document["notes"][0]


def test_a_held_acceleration_has_no_jerk(trajcli, folder):
    line = "integrate actions.npy --start start.npy --dt 0.02 --scheme zoh -o t.h5"
    assert trajcli(line).code == 0
    result = trajcli("resample t.h5 --to 137 -o out.h5")
    assert result.code == 0
    assert "no jerk: by scheme zoh it is not finite" in result.err
    with h5py.File("out.h5") as file:
        assert "jerk" not in file


def test_a_paced_plan_keeps_its_limits_at_an_even_rate(trajcli, folder, samples):
    assert trajcli(REACH.format(samples=samples)).code == 0
    limits = f"--limits {samples}/limits.toml"
    assert trajcli(f"retime reach.h5 {limits} -o paced.h5").code == 0
    for how in ("--to 100", "--to 1000", "--to 250 --method quintic"):
        result = trajcli(f"resample paced.h5 {how} -o even.h5 --overwrite")
        assert result.err == ""
        checked = trajcli(f"check even.h5 {limits}")
        assert checked.code == 0, checked.out
        assert checked.out.count("within limits") == 4


@pytest.mark.parametrize("own", [False, True], ids=["times of all", "times of their own"])
def test_times_of_a_file_are_seconds_from_the_first_row(trajcli, folder, own):
    plan = integrate(np.load("actions.npy"), np.load("start.npy"), 0.02, "velocity")
    plan.save("t.h5")
    random = np.random.default_rng(2)
    times = np.sort(random.uniform(0, 0.2, (5, 30) if own else 30))
    np.save("times.npy", times)
    result = trajcli("resample t.h5 --at times.npy --method cubic -o out.h5")
    assert result.code == 0, result.err
    assert "at the times of times.npy" in result.out
    expected = resample(plan, "cubic", at=times)
    with h5py.File("out.h5") as file:
        np.testing.assert_array_equal(file["time"][:], times)
        for name in QUANTITIES[:3]:
            np.testing.assert_array_equal(file[name][:], getattr(expected, name))


@pytest.mark.parametrize("key", ["dt", "times"])
def test_a_held_action_acts_over_its_own_step_so_that_the_motion_stays(trajcli, folder, key):
    counts = np.array([[1, 3, 2, 1], [2, 1, 1, 4]])
    steps = counts / 10
    times = np.cumsum(np.pad(steps, [(0, 0), (1, 0)]), axis=1)
    actions = np.random.default_rng(5).standard_normal((2, 4, 3))
    np.savez("in.npz", actions=actions, start_position=np.ones(3),
             **{key: {"dt": steps, "times": times}[key]})  # fmt: skip
    assert trajcli("resample in.npz --to 10 --method hold -o held.h5").code == 0
    for name in ("in.npz", "held.h5"):
        assert trajcli(f"integrate {name} --mode jerk --scheme zoh -o {name}.h5").code == 0
    with h5py.File("in.npz.h5") as coarse, h5py.File("held.h5.h5") as fine:
        for b in range(2):
            rows = np.cumsum(np.insert(counts[b], 0, 0))
            group = (
                fine[f"in/trajectory_{b}"] if "in" in fine else {k: fine[k][b] for k in QUANTITIES}
            )
            for name in QUANTITIES:
                actual = np.asarray(group[name])[rows]
                np.testing.assert_allclose(actual, coarse[name][b], rtol=0, atol=1e-13)


def test_a_file_stands_for_its_actions_as_in_integrate(trajcli, folder, samples):
    line = f"resample {samples}/reach.h5 --to 500 --method hold -o out.h5 --json"
    result = trajcli(line)
    assert result.code == 0, result.err
    assert result.document["arrays"] == ["actions"]
    with h5py.File(samples / "reach.h5") as before, h5py.File("out.h5") as after:
        assert "position" not in after
        for b in range(64):
            group = after[f"reach/trajectory_{b}"]
            ends = np.cumsum(before["dt"][b])
            time = np.arange(np.ceil(ends[-1] * 500)) / 500
            held = before["actions"][b][np.searchsorted(ends, time, "right")]
            np.testing.assert_array_equal(group["actions"][:], held)
            np.testing.assert_array_equal(group["start/position"], before["start/position"][b])
    result = trajcli(f"retime {samples}/reach.h5 --limits {samples}/limits.toml -o o.h5")
    assert "not a trajectory" in result.err


def test_demonstrations_are_resampled_each_at_its_own_length(trajcli, folder):
    demos = writers.demos()
    writers.robomimic(Path("in.h5"), demos)
    assert trajcli("resample in.h5 --to 50 -o out.h5").code == 0
    assert trajcli("resample in.h5:obs/robot0_joint_pos --to 50 -o p.h5").code == 0
    with h5py.File("out.h5") as file, h5py.File("p.h5") as named:
        for i, demo in enumerate(demos):
            expected = resample(demo["actions"], "linear", rate=50, dt=0.05).position[0]
            np.testing.assert_allclose(file[f"data/demo_{i}/actions"][:], expected, atol=1e-14)
            assert file[f"data/demo_{i}/dt"][()] == 1 / 50
            expected = resample(demo["position"][:-1], "linear", rate=50, dt=0.05).position[0]
            values = named[f"data/demo_{i}/robot0_joint_pos"]
            np.testing.assert_allclose(values[:], expected, atol=1e-14)
    assert trajcli("integrate out.h5 --start zero -o again.h5").code == 0


def test_retime_keeps_limits_with_the_smallest_factor_of_each_trajectory(trajcli, folder, samples):
    assert trajcli(REACH.format(samples=samples)).code == 0
    Path("tight.toml").write_text(
        "[velocity]\nupper = [1.0, 2.0, 1.5, 2.0, 2.0, 2.0, 9.0]\n"
        "lower = [-0.5, -2.0, -1.5, -2.0, -2.0, -2.0, -9.0]\n"
        "[acceleration]\nupper = [9.0, 9.0, 9.0, 9.0, 9.0, 9.0, 9.0]\n"
        "[jerk]\nupper = [4000.0, 4000.0, 4000.0, 4000.0, 4000.0, 4000.0, 4000.0]\n"
    )
    result = trajcli("retime reach.h5 --limits tight.toml -o out.h5 --json")
    assert result.code == 0, result.err
    with h5py.File("reach.h5") as before, h5py.File("out.h5") as after:
        parts = {name: before[name][:] for name in QUANTITIES[1:]}
        v, a, j = parts.values()
        upper, lower = np.array([1, 2, 1.5, 2, 2, 2, 9]), np.array([0.5, 2, 1.5, 2, 2, 2, 9])
        # velocity has its extremes where acceleration is zero, also between rows
        v1, a1, j1 = (np.float64(part[:, 1:]) for part in (v, a, j))
        back = np.where(j1 != 0, a1 / np.where(j1 != 0, j1, 1), 0)
        inside = (back > 0) & (back < np.diff(np.atleast_2d(before["time"]))[..., None])
        v = np.concatenate([v, np.where(inside, v1 - a1 * back / 2, v1)], 1)
        by_hand = np.maximum.reduce([
            np.maximum(v / upper, -v / lower).max((1, 2)),
            np.sqrt(np.abs(a).max((1, 2)) / 9),
            np.cbrt(np.abs(j).max((1, 2)) / 4000),
        ])  # fmt: skip
        factor = after["time_scale"][:]
        np.testing.assert_allclose(factor, by_hand, rtol=1e-13)
        np.testing.assert_allclose(result.document["factors"], factor, rtol=1e-15)
        assert len(np.unique(factor)) > 5
        np.testing.assert_array_equal(after["position"][:], before["position"][:])
        np.testing.assert_allclose(after["time"][:], before["time"][:] * factor[:, None])
        for order, name in enumerate(QUANTITIES[1:], 1):
            expected = parts[name] / factor[:, None, None] ** order
            np.testing.assert_allclose(after[name][:], expected, rtol=1e-14)
        assert (after["velocity"][:] <= upper).all()
        assert (-after["velocity"][:] <= lower).all()
        assert after.attrs["mode"] == "jerk"


def test_a_retimed_file_goes_on_to_one_rate_in_groups(trajcli, folder, samples):
    assert trajcli(REACH.format(samples=samples)).code == 0
    Path("slow.toml").write_text("[velocity]\nupper = [1, 1, 1, 1, 1, 1, 1]\n")
    assert trajcli("retime reach.h5 --limits slow.toml --slower-only -o slow.h5").code == 0
    result = trajcli("resample slow.h5 --to 100 -o out.h5 --json")
    assert result.code == 0, result.err
    assert result.document["output"] == "groups"
    with h5py.File("slow.h5") as slow, h5py.File("out.h5") as out:
        assert (slow["time_scale"][:] >= 1).all()
        for b in (0, 9, 10, 63):
            rows = (slow[name][b][None] for name in QUANTITIES)
            paced = Trajectory(*rows, slow["time"][b], "jerk", {"scheme": "zoh"})
            for name, values in resample(paced, rate=100).outputs().items():
                np.testing.assert_array_equal(out[f"slow/trajectory_{b}/{name}"][:], values[0])
    result = trajcli("retime out.h5 --limits slow.toml -o again.h5")
    assert result.code == 0, result.err
    with h5py.File("again.h5") as again:
        assert again["out/slow/trajectory_3" if "out" in again else "slow/trajectory_3"]
    parts = {"velocity": np.ones((1, 3, 1))}
    assert retime(parts, {"velocity": 1.0}).factor[0] == 1.0


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("resample actions.npy --to 10 -o o.h5", "--dt"),
        ("resample actions.npy --dt 1 --to 0 -o o.h5", "--to"),
        ("resample actions.npy --dt 1 --at late.npy -o o.h5", "late.npy, trajectory 0, entry 1"),
        ("resample bad.npy --dt 1 --to 10 -o o.h5", "bad.npy, trajectory 1, step 2, dof 0"),
        ("retime actions.npy --dt 1 --limits limits.toml -o o.h5", "not a trajectory"),
        ("retime short.npz --dt 1 --limits limits.toml -o o.h5", "no such rows"),
        ("retime t.h5 --limits missing.toml -o o.h5", "missing.toml"),
        ("retime t.h5 --limits two.toml -o o.h5", "joints"),
    ],
)
def test_what_cannot_be_done_is_refused_and_nothing_is_written(trajcli, folder, line, message):
    assert trajcli("integrate actions.npy --start start.npy --dt 0.02 -o t.h5").code == 0
    bad = np.load("actions.npy")
    bad[1, 2, 0] = np.nan
    np.save("bad.npy", bad)
    np.savez("short.npz", position=bad)
    np.save("late.npy", [0.0, 9.5])
    Path("limits.toml").write_text("[velocity]\nupper = [1.0, 1.0, 1.0]\n")
    Path("two.toml").write_text("[velocity]\nupper = [1.0, 1.0]\n")
    result = trajcli(line)
    assert result.code == 2
    assert message in result.err
    assert not Path("o.h5").exists()


def test_unix_stamps_are_resampled_without_losing_a_row(trajcli, folder):
    stamps = 1.7e9 + np.delete(np.arange(300), [100, 101]) * 0.01
    position = np.arange(298.0)[None, :, None] * np.ones(2)
    np.savez("in.npz", position=position, times=stamps)
    assert trajcli("resample in.npz --to 100 --method hold -o out.h5").code == 0
    with h5py.File("out.h5") as file:
        rows = np.insert(np.arange(298.0), 100, [99, 99])
        np.testing.assert_array_equal(file["position"][0, :, 0], rows)


def test_start_states_go_with_the_actions_whatever_their_lengths(trajcli, folder):
    random = np.random.default_rng(2)
    np.savez(
        "in.npz",
        actions=random.standard_normal((3, 6, 2)), lengths=[6, 3, 4], dt=0.1,
        start_position=random.standard_normal((3, 2)),
    )  # fmt: skip
    assert trajcli("resample in.npz --to 20 --method hold -o fine.h5").code == 0
    assert trajcli("integrate fine.h5 --mode velocity -o out.h5").code == 0
    source = np.load("in.npz")
    with h5py.File("out.h5") as file:
        for b, name in enumerate(sorted(file["in"])):
            held = np.repeat(source["actions"][b, : source["lengths"][b]], 2, axis=0)
            expected = integrate(held, source["start_position"][b], 1 / 20, "velocity")
            np.testing.assert_array_equal(file[f"in/{name}/position"][:], expected.position[0])


@pytest.mark.parametrize(("method", "batch", "rate"), [
    ("linear", 60_000, 20), ("cubic", 60_000, 20), ("cubic", 300, 2000),
])  # fmt: skip
def test_memory_does_not_grow_with_the_input(trajcli, folder, method, batch, rate):
    import tracemalloc

    with h5py.File("in.h5", "w") as file:
        file["dt"] = 0.1
        file.create_dataset("actions", data=np.ones((batch, 50, 2), "f4"))
    trajcli("resample in.h5:actions --to 20 -o warm.h5")
    tracemalloc.start()
    assert trajcli(f"resample in.h5 --to {rate} --method {method} -o out.h5").code == 0
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 25e6


@pytest.mark.parametrize("lengths", [[6, 6, 6], [6, 3, 4]])
@pytest.mark.parametrize(
    "states",
    [
        {"start_position": np.array([0.5, -2.0])},
        {"start_position": np.arange(8.0).reshape(4, 2), "start_index": np.array([3, 0, 3])},
        {"start_position": np.arange(6.0).reshape(3, 2), "start_index": np.array([2, 0, 1])},
    ],
)
def test_shared_start_states_stay_those_of_their_trajectories(trajcli, folder, lengths, states):
    actions = np.random.default_rng(3).standard_normal((3, 6, 2))
    np.savez("in.npz", actions=actions, lengths=lengths, dt=0.1, **states)
    assert trajcli("resample in.npz --to 10 -o same.h5").code == 0
    for name in ("in.npz", "same.h5"):
        result = trajcli(f"integrate {name} --mode velocity -o {name}.out.npz")
        assert result.code == 0, result.err
    with np.load("in.npz.out.npz") as first, np.load("same.h5.out.npz") as again:
        names = [name for name in first.files if name.endswith("position")]
        assert len(names) == (1 if len(set(lengths)) == 1 else 3)
        for name in names:
            np.testing.assert_allclose(again[name], first[name], rtol=0, atol=1e-14)


def gripper() -> np.ndarray:
    """Two joints that move and a gripper that is open or closed."""
    joints = np.sin(np.arange(40)[:, None] / 5 + np.arange(2))
    return np.column_stack([joints, (np.arange(40) // 10 % 2).astype(float)])


@pytest.mark.parametrize("which", ["2", "gripper", "-1"])
def test_held_dofs_keep_each_row_until_the_next(trajcli, folder, which):
    rows = gripper()
    names = np.array(["a", "b", "gripper"])
    velocity = np.gradient(rows, 0.1, axis=0)
    np.savez("in.npz", position=rows, velocity=velocity, dt=0.1, joint_names=names)
    line = "resample in.npz --to 37 --method cubic"
    said = trajcli(f"{line} -o free.h5")
    assert "--hold-dofs 2" in said.err
    held = trajcli(f"{line} --hold-dofs {which} -o held.h5")
    assert held.code == 0, held.err
    assert "two values" not in held.err
    with h5py.File("free.h5") as free, h5py.File("held.h5") as file:
        found, times = np.squeeze(file["position"]), np.ravel(file["time"])
        np.testing.assert_array_equal(found[:, :2], np.squeeze(free["position"])[:, :2])
        before = np.floor(times / 0.1 + 1e-9).astype(int)
        np.testing.assert_array_equal(found[:, 2], rows[before, 2])
        assert not np.squeeze(file["velocity"])[:, 2].any()
        assert file.attrs["hold_dofs"] == which


def test_dofs_that_cannot_be_held_are_refused(trajcli, folder):
    np.savez("in.npz", position=gripper(), dt=0.1)
    refused = trajcli("resample in.npz --to 37 --hold-dofs 9 -o out.h5")
    assert refused.code == 2
    assert "--hold-dofs" in refused.err


@pytest.mark.parametrize(("unit", "scale"), [("s", 1.0), ("ms", 1e3), ("us", 1e6), ("ns", 1e9)])
def test_times_in_any_unit_count_from_the_first_row(trajcli, folder, unit, scale):
    t = np.arange(101) * 0.01
    with h5py.File("in.h5", "w") as file:
        file["position"], file["times"] = np.stack([t, t**2], 1), t
        file["at"] = np.array([0.1, 0.25, 0.3]) * scale
        file["at"].attrs["units"] = unit
    assert trajcli("resample in.h5:position --at in.h5:at -o out.h5").code == 0
    with h5py.File("out.h5") as file:
        np.testing.assert_allclose(file["time"], [0.1, 0.25, 0.3], rtol=1e-14)
        np.testing.assert_allclose(file["position"][0, :, 0], [0.1, 0.25, 0.3], rtol=1e-14)
