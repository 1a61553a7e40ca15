"""trajcli diff, as a user types it."""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np
import pytest
from journeys.arrays import write_h5
from layouts import writers


def datasets(result) -> dict[str, dict]:
    return {one["dataset"]: one for one in result.document["datasets"]}


@pytest.mark.parametrize(
    "line",
    [
        "integrate {s}/reach.h5 --mode jerk --scheme zoh",
        "integrate {s}/reach.h5 --mode jerk --dtype float32 --cost velocity --joints a,b,c,d,e,f,g",
        "integrate named.h5 --start zero",
        "integrate actions.npy --start zero --dt 0.1 --start-index index.npy",
        "resample {s}/recorded.h5 --to 50",
        "fit {s}/recorded.h5:position --knots 20",
        "export {s}/reach.h5:reference",
    ],
)
def test_two_outputs_of_one_run_are_equal_whatever_holds_them(trajcli, folder, samples, line):
    np.save("index.npy", np.zeros(5, int))
    named = {f"{name}/actions": np.ones((k, 2)) for k, name in enumerate(("a", "b", "ab"), 5)}
    write_h5("named.h5", {**named, "@dt": 0.1}, joint_names=["ä", "an elbow"])
    line = line.format(s=samples)
    for out in ("a.h5", "a.npz"):
        trajcli.ok(f"{line} -o {out}")
    for pair in ("a.h5 a.npz", "a.npz a.h5"):
        assert trajcli.ok(f"diff {pair} --json").document["attributes"] == []
    with h5py.File("a.h5") as file, np.load("a.npz") as arrays:
        for name in ("dof", "trajectory"):
            there = name in file and file[name].dtype.kind == "O"
            assert (name in arrays) is there
            if there:
                assert arrays[name].tolist() == file[name].asstr()[...].tolist()


def test_the_worst_is_named_and_measured_in_three_ways(trajcli, folder):
    a = np.load("actions.npy")
    b = a.copy()
    b[3, 7, 1] = np.nextafter(b[3, 7, 1], np.float32(9))
    np.save("b.npy", b)
    (found,) = trajcli.fails("diff actions.npy b.npy --json").document["datasets"]
    assert (found["differing"], found["beyond"], found["ulp"]) == (1, 1, 1.0)
    assert found["at"] == [3, 7, 1]
    assert found["absolute"] == abs(float(a[3, 7, 1]) - float(b[3, 7, 1]))
    assert found["rms"] == pytest.approx(found["absolute"] / a.size**0.5)
    for tolerance in ("--ulp 1", "--rtol 1e-6", "--atol 1e-6"):
        trajcli.ok(f"diff actions.npy b.npy {tolerance}")
    b[0, 0, 0] += 0.25
    np.save("b.npy", b)
    assert "[0, 0, 0]" in trajcli.fails("diff actions.npy b.npy --ulp 1").out
    trajcli.ok("diff actions.npy b.npy --atol 0.25")
    trajcli.fails("diff actions.npy b.npy --atol 0.2")


def test_units_in_the_last_place_are_the_larger_number():
    from trajcli.views.diff import last_places

    for kind in (np.float32, np.float64):
        one = kind(1.0)
        tiny = np.nextafter(kind(0), kind(1), dtype=kind)
        a = np.array([one, tiny, 0.0, one, np.inf], kind)
        b = np.array([np.nextafter(one, kind(2), dtype=kind), -tiny, -0.0, np.nan, np.inf], kind)
        assert last_places(a, b).tolist() == [1.0, 2.0, 0.0, np.inf, 0.0]
        zero_and_one = last_places(np.zeros(1, kind), np.ones(1, kind))
        assert zero_and_one.tolist() == [1.0 / np.finfo(kind).eps]


def test_nan_equals_nan_and_nothing_else(trajcli, folder):
    a = np.load("actions.npy")
    a[1, 2, 0] = np.nan
    np.save("a.npy", a)
    trajcli.ok("diff a.npy a.npy")
    result = trajcli.fails("diff a.npy actions.npy --atol 1e9 --rtol 1e9 --json")
    assert result.document["datasets"][0]["at"] == [1, 2, 0]


def test_what_only_one_file_has_and_other_shapes_fail(trajcli, folder):
    more = {"more": np.ones((4, 3))}
    write_h5("a.h5", {"@dt": 0.1, **more}, x=np.ones(3), y=np.ones((2, 3)), names=["a", "b"])
    write_h5("b.h5", {"@dt": 0.2, **more}, y=np.ones((3, 3)), z=np.ones(3), names=["a", "c"])
    result = trajcli.fails("diff a.h5 b.h5")
    for text in ("x: only in a", "z: only in b", "shapes differ: [2, 3] and [3, 3]"):
        assert text in result.out
    assert "attribute dt: 0.1 and 0.2" in result.out
    found = datasets(trajcli("diff a.h5 b.h5 --json"))
    assert found["names"]["differing"] == 1
    assert (found["names"]["a"], found["names"]["b"]) == ("b", "c")


def test_datasets_of_different_names_are_compared_when_named(trajcli, out, samples):
    Path("reach.h5").write_bytes((samples / "reach.h5").read_bytes())
    pair = "out.h5:position reach.h5:reference/position"
    trajcli.ok(f"diff {pair} --atol 1e-11")
    trajcli.fails(f"diff {pair}")
    trajcli.ok("diff out.h5:position[1:3] reach.h5:reference/position[1:3] --atol 1e-11")
    trajcli.fails("diff out.h5 out.h5:position")


@pytest.mark.parametrize(
    "line", ["diff start.npy", "diff start.npy start.npy --rtol -1", "diff start.npy none.npy"]
)
def test_what_makes_no_sense_is_exit_2(trajcli, folder, line):
    assert trajcli.refuses(line).err.startswith("error: ")


def save_motion(name: str, dt: float, rows: int, batch: int = 2, bump: float = 0.0) -> None:
    time = dt * np.arange(rows)
    values = np.sin(time[:, None] * [1.0, 2.0, 3.0] + np.arange(batch)[:, None, None])
    values[-1, rows // 2, 1] += bump
    write_h5(name, {"@dt": dt}, position=values)


def test_trajectories_of_different_rates_are_aligned_by_time(trajcli, folder):
    save_motion("fine.h5", 0.01, 201)
    save_motion("coarse.h5", 0.04, 51)
    for pair in ("fine.h5 coarse.h5", "coarse.h5 fine.h5"):
        (found,) = trajcli.ok(f"diff {pair} --atol 1e-12 --json").document["datasets"]
        assert found["values"] == 2 * 51 * 3
        assert "aligned by time" in found["note"]
    save_motion("bent.h5", 0.01, 201, bump=0.5)  # at row 100: row 25 of the coarse one
    (found,) = trajcli("diff bent.h5 coarse.h5 --json").document["datasets"]
    assert found["at"] == [1, 25, 1]
    assert found["absolute"] == pytest.approx(0.5)
    save_motion("other.h5", 1 / 30, 61)  # its rows lie between those of the fine one
    (found,) = trajcli("diff fine.h5 other.h5 --atol 2e-4 --json").document["datasets"]
    assert found["passed"]
    assert 1e-6 < found["absolute"] < 9 * 0.01**2 / 8  # the error of linear interpolation


def test_trajectories_that_end_at_other_times_differ(trajcli, folder):
    save_motion("whole.h5", 0.01, 201)
    save_motion("half.h5", 0.02, 51)
    result = trajcli.fails("diff whole.h5 half.h5 --atol 9")
    assert "position: times differ: 0 to 2 s and 0 to 1 s" in result.out


def test_an_array_in_every_demo_is_compared(trajcli, folder):
    demos = writers.demos()
    for name in ("a", "b"):
        writers.robomimic(Path(f"{name}.hdf5"), demos)
        demos[11]["position"] += 0.25
    pair = [f"{name}.hdf5:obs/robot0_joint_pos" for name in "ab"]
    found = datasets(trajcli.fails(f"diff {pair[0]} {pair[1]} --json"))
    assert len(found) == 12
    assert [name for name, one in found.items() if not one["passed"]] == [
        "data/demo_11/obs/robot0_joint_pos"
    ]
    assert "data/demo_*/obs/robot0_joint_pos (12)" in trajcli(f"diff {pair[0]} {pair[1]}").out
    trajcli.refuses(f"diff {pair[0]}[:0] {pair[1]}[:2]")


@pytest.mark.parametrize("pattern", ["{}", "ep*/{}"])
def test_two_arrays_of_every_trajectory_are_compared_by_trajectory(trajcli, folder, pattern):
    rows = {k: np.random.default_rng(k).normal(size=(20 + k, 2)) for k in range(12)}
    write_h5("a.h5", {f"ep{k}/q": values for k, values in rows.items()}
             | {f"ep{k}/r": values + (k == 3) for k, values in rows.items()})  # fmt: skip
    pair = " ".join(f"a.h5:{pattern.format(name)}" for name in "qr")
    found = datasets(trajcli.fails(f"diff {pair} --json"))
    assert {name: one["values"] for name, one in found.items()} == {
        f"ep{k}": values.size for k, values in rows.items()
    }
    assert [name for name, one in found.items() if one["beyond"]] == ["ep3"]
    assert "ep* (12): worst at ep3 " in trajcli(f"diff {pair}").out
    trajcli.ok(f"diff {pair} --atol 1.01")
    write_h5("b.h5", {f"ep{k}/r": values for k, values in rows.items() if k != 3})
    less = f"diff a.h5:{pattern.format('q')} b.h5:{pattern.format('r')}"
    assert "only in a: ep3\n" in trajcli.fails(less).out
    found = datasets(trajcli.fails("diff a.h5:q a.h5:ep3/* --json"))  # of no trajectory alone
    assert {one["why"] for name, one in found.items() if name != "ep3/q"} == {
        "only in a",
        "only in b",
    }


def test_trajectories_are_compared_one_by_one_whatever_holds_them(trajcli, folder):
    position = np.random.default_rng(3).standard_normal((3, 20, 2)).cumsum(1)
    write_h5("packed.h5", {"@dt": 0.02}, position=position)
    trajcli.ok("export packed.h5 -o table.csv")
    pair = "table.csv:position packed.h5:position"
    trajcli.fails(f"diff {pair}")  # [60, 2] and [3, 20, 2]
    assert len(trajcli.ok(f"diff {pair} --episodes all --json").document["datasets"]) == 3
    with h5py.File("packed.h5", "a") as file:
        file["position"][2, 5, 1] += 1.0
    trajcli.ok(f"diff {pair} --episodes 0:2")
    write_h5("late.h5", {"@dt": 0.02}, position=np.roll(position, 2, 1))
    tracking = trajcli.fails("diff packed.h5 late.h5 --episodes 1:3 --json").document["tracking"]
    assert [entry["trajectories"] for entry in tracking] == [2]
    result = trajcli.fails(f"diff {pair} --episodes -1,0 --json")
    (wrong,) = (one for one in result.document["datasets"] if not one["passed"])
    assert (wrong["dataset"], wrong["at"]) == ("trajectory 0", [0, 5, 1])
    trajcli.refuses(f"diff {pair} --episodes 3")


def test_several_files_are_paired_by_their_names_and_datasets(trajcli, folder):
    for name, change in (("a", 0.0), ("b", 0.5)):
        Path(name).mkdir()
        for i in (2, 10):
            position = np.full((2, 3, 1), i + change * (i == 10))
            write_h5(f"{name}/{i}.h5", {f"extra_{name}": np.zeros(i)}, position=position)
    found = datasets(trajcli.fails("diff a/*.h5 b/*.h5 --json"))
    differing = {name: of["differing"] for name, of in found.items() if not of["why"]}
    assert differing == {"2.h5/position": 0, "10.h5/position": 6}
    why = {name: of["why"] for name, of in found.items() if of["why"]}
    assert why == {f"{n}.h5/extra_{name}": f"only in {name}" for n in (2, 10) for name in "ab"}
    Path("b/2.h5").unlink()
    assert "2.h5/position: only in a" in trajcli("diff a/*.h5 b/*.h5").out


def late_and_offset(seconds: float) -> None:
    """Writes a.h5, and b.h5 that is later by so much and off by 0.01 per dof."""
    for name, late, offset in (("a", 0.0, 0.0), ("b", seconds, 0.01)):
        time, dof = np.arange(300)[:, None] * 0.02 - late, np.arange(3)
        motion = np.sin((1 + 0.3 * dof) * time + dof) + offset * dof
        write_h5(f"{name}.h5", {"@dt": 0.02}, position=[motion, motion])


@pytest.mark.parametrize("seconds", [0.05, -0.034, 0.0])
def test_a_delay_and_an_offset_are_told_from_what_remains(trajcli, folder, seconds):
    late_and_offset(seconds)
    (tracked,) = trajcli.fails("diff a.h5 b.h5 --json").document["tracking"]
    joints = tracked["joints"]
    assert np.allclose([x["delay"] for x in joints], seconds, atol=2e-4)
    assert np.allclose([x["offset"] for x in joints], [0, 0.01, 0.02], atol=2e-4)
    assert np.allclose([x["rms"] for x in joints], [0, 0.01, 0.02], atol=3e-4)
    text = trajcli("diff a.h5 b.h5").out
    assert "position: how b follows a" in text
    assert f"{1e3 * seconds:.3g} ms" in text


def test_noise_and_still_joints_have_no_delay(trajcli, folder):
    late_and_offset(0.1)
    with h5py.File("b.h5", "a") as file:
        file["position"][..., 0] = np.random.default_rng(0).normal(size=(2, 300))
        file["position"][..., 1] = 0.5
    joints = trajcli("diff a.h5 b.h5 --json").document["tracking"][0]["joints"]
    assert [x["delay"] is None for x in joints] == [True, True, False]


def test_files_with_wrong_times_are_compared_without_a_delay(trajcli, folder):
    for name, offset in (("a", 0.0), ("b", 0.5)):
        write_h5(f"{name}.h5", position=np.full((2, 30, 3), offset), time=np.arange(29))
    assert trajcli.fails("diff a.h5 b.h5 --json").document["tracking"] == []
