"""trajcli diff, as a user types it."""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np
import pytest

JOBS = [
    "reach.h5 --mode jerk --scheme zoh",
    "reach.h5 --mode jerk --scheme foh --frames curobo --dtype float32",
    "accelerations.npy --start start.npy --dt 0.02",
    "accelerations.npy --start zero --rate 50 --mode velocity --write position,velocity",
    "accelerations.npy --start start.npy --dt 0.02 --mode central",
    "recorded.h5:position --start first --mode central",
    "recorded.h5:position --start first --mode clique --times recorded.h5:times",
    "control_points.npz --mode bspline --degree 5 --steps 3 --ends goal",
]


@pytest.fixture
def home(samples, tmp_path, monkeypatch) -> Path:
    """The current folder, with the samples in it."""
    monkeypatch.chdir(tmp_path)
    for sample in samples.glob("*.*"):
        if sample.suffix in (".h5", ".npy", ".npz"):
            (tmp_path / sample.name).write_bytes(sample.read_bytes())
    return tmp_path


def datasets(result) -> dict[str, dict]:
    return {one["dataset"]: one for one in result.document["datasets"]}


def test_a_file_equals_itself_and_its_copy_in_another_format(trajcli, home):
    assert trajcli("integrate reach.h5 --mode jerk -o a.h5").code == 0
    assert trajcli("integrate reach.h5 --mode jerk -o a.npz").code == 0
    assert trajcli("diff a.h5 a.h5").code == 0
    result = trajcli("diff a.h5 a.npz --json")
    assert {n for n, d in datasets(result).items() if d["passed"]} >= {"position", "jerk", "time"}


def test_the_worst_is_named_and_measured_in_three_ways(trajcli, folder):
    a = np.load("actions.npy")
    b = a.copy()
    b[3, 7, 1] = np.nextafter(b[3, 7, 1], np.float32(9))
    np.save("b.npy", b)
    one = trajcli("diff actions.npy b.npy --json")
    assert one.code == 1
    (found,) = one.document["datasets"]
    assert (found["differing"], found["beyond"], found["ulp"]) == (1, 1, 1.0)
    assert found["at"] == [3, 7, 1]
    assert found["absolute"] == abs(float(a[3, 7, 1]) - float(b[3, 7, 1]))
    assert trajcli("diff actions.npy b.npy --ulp 1").code == 0
    assert trajcli("diff actions.npy b.npy --rtol 1e-6").code == 0
    assert trajcli("diff actions.npy b.npy --atol 1e-6").code == 0
    b[0, 0, 0] += 0.25
    np.save("b.npy", b)
    text = trajcli("diff actions.npy b.npy --ulp 1")
    assert text.code == 1
    assert "[0, 0, 0]" in text.out
    assert trajcli("diff actions.npy b.npy --atol 0.25").code == 0
    assert trajcli("diff actions.npy b.npy --atol 0.2").code == 1


def test_last_places_count_numbers_between_across_zero_and_infinity():
    from trajcli.views.differences import last_places

    for kind in (np.float32, np.float64):
        one = kind(1.0)
        tiny = np.nextafter(kind(0), kind(1), dtype=kind)
        a = np.array([one, tiny, 0.0, one, np.inf], kind)
        b = np.array([np.nextafter(one, kind(2), dtype=kind), -tiny, -0.0, np.nan, np.inf], kind)
        assert last_places(a, b).tolist() == [1.0, 2.0, 0.0, np.inf, 0.0]


def test_nan_equals_nan_and_nothing_else(trajcli, folder):
    a = np.load("actions.npy")
    a[1, 2, 0] = np.nan
    np.save("a.npy", a)
    assert trajcli("diff a.npy a.npy").code == 0
    result = trajcli("diff a.npy actions.npy --atol 1e9 --rtol 1e9 --json")
    assert result.code == 1
    assert result.document["datasets"][0]["at"] == [1, 2, 0]


def test_what_only_one_file_has_and_other_shapes_fail(trajcli, folder):
    with h5py.File("a.h5", "w") as file:
        file["x"], file["y"], file["names"] = np.ones(3), np.ones((2, 3)), ["a", "b"]
        file.attrs["dt"] = 0.1
    with h5py.File("b.h5", "w") as file:
        file["y"], file["z"], file["names"] = np.ones((3, 3)), np.ones(3), ["a", "c"]
        file.attrs["dt"] = 0.2
    result = trajcli("diff a.h5 b.h5")
    assert result.code == 1
    for text in ("only in the first", "only in the second", "shapes differ: [2, 3] and [3, 3]"):
        assert text in result.out
    assert "attribute dt: 0.1 and 0.2" in result.out
    found = datasets(trajcli("diff a.h5 b.h5 --json"))
    assert found["names"]["differing"] == 1


def test_datasets_of_different_names_are_compared_when_named(trajcli, home):
    assert trajcli("integrate reach.h5 --mode jerk --scheme zoh -o out.h5").code == 0
    pair = "out.h5:position reach.h5:reference/position"
    assert trajcli(f"diff {pair} --atol 1e-11").code == 0
    assert trajcli(f"diff {pair}").code == 1
    assert trajcli("diff out.h5 out.h5:position").code == 1


@pytest.mark.parametrize("job", JOBS)
def test_an_output_equals_its_job_done_again_from_its_source(trajcli, home, job):
    assert trajcli(f"integrate {job} -o out.h5").code == 0
    result = trajcli("diff out.h5 --recompute --json")
    assert result.code == 0, result.out + result.err
    source = job.split()[0].partition(":")[0]
    assert source in result.document["b"]
    quantity = "velocity"
    with h5py.File("out.h5", "r+") as file:
        place = tuple(n // 2 for n in file[quantity].shape)
        file[quantity][place] += 0.125
    damaged = trajcli("diff out.h5 --recompute --json")
    assert damaged.code == 1
    assert datasets(damaged)[quantity]["at"] == list(place)
    assert datasets(damaged)[quantity]["differing"] == 1


def test_all_sources_are_used_again_and_all_must_be_there(trajcli, home):
    accelerations = np.load("accelerations.npy")
    np.save("more.npy", accelerations[:2] + 1)
    job = "accelerations.npy more.npy --start zero --dt 0.02"
    assert trajcli(f"integrate {job} -o out.h5").code == 0
    result = trajcli("diff out.h5 --recompute --json")
    assert result.code == 0, result.out + result.err
    assert "accelerations.npy" in result.document["b"]
    assert "more.npy" in result.document["b"]
    with h5py.File("out.h5", "r+") as file:
        file["position"][len(accelerations) + 1, 5, 0] += 0.5
    assert trajcli("diff out.h5 --recompute").code == 1
    assert (
        "b: recomputed from accelerations.npy, more.npy" in trajcli("diff out.h5 --recompute").out
    )
    Path("more.npy").unlink()
    lacking = trajcli("diff out.h5 --recompute --json")
    assert "more.npy is neither beside it nor in this folder" in lacking.document["b"]


def test_a_goal_of_its_own_is_used_again(trajcli, home):
    np.save("goal.npy", np.load("start.npy") + 0.25)
    job = "accelerations.npy --start start.npy --dt 0.02 --mode central --ends goal --goal goal.npy"
    assert trajcli(f"integrate {job} -o out.h5").code == 0
    assert trajcli("diff out.h5 --recompute").code == 0
    assert trajcli("diff out.h5 accelerations.npy --recompute").code == 0
    np.save("goal.npy", np.load("goal.npy") + 1)
    assert trajcli("diff out.h5 --recompute").code == 1
    Path("goal.npy").unlink()
    assert "the goal state is not found" in trajcli("diff out.h5 --recompute").err


def test_rows_with_repeated_stamps_are_dropped_again(trajcli, home):
    times = np.arange(40) * 0.1
    times[7] = times[6]
    np.save("times.npy", times)
    np.save("recorded.npy", np.random.default_rng(5).normal(size=(3, 40, 2)))
    job = "recorded.npy --start first --mode clique --times times.npy --repeated-times drop"
    assert trajcli(f"integrate {job} -o out.h5").code == 0
    result = trajcli("diff out.h5 --recompute")
    assert result.code == 0, result.out + result.err


@pytest.mark.parametrize("job", JOBS[:7])
def test_without_its_source_it_is_computed_from_itself(trajcli, home, job):
    if "--write" in job:
        job = job.partition(" --write")[0]
    assert trajcli(f"integrate {job} -o out.h5").code == 0
    for name in ("reach.h5", "accelerations.npy", "recorded.h5"):
        Path(name).unlink()
    rounded = "--dt " not in job and "--rate" not in job  # its actions, or its steps
    loose = " --rtol 1e-4 --atol 1e-4" if rounded else ""
    result = trajcli(f"diff out.h5 --recompute --json{loose}")
    assert result.code == 0, result.out
    assert "its own actions and start row" in result.document["b"]
    with h5py.File("out.h5", "r+") as file:
        file["velocity"][0, 9, 2] += 1.0
    assert trajcli(f"diff out.h5 --recompute{loose}").code == 1


def test_what_cannot_be_computed_again_is_said_clearly(trajcli, home):
    assert trajcli("integrate control_points.npz --mode bspline -o out.h5").code == 0
    Path("control_points.npz").unlink()
    result = trajcli("diff out.h5 --recompute")
    assert result.code == 2
    assert "control_points.npz:actions is neither beside it nor in this folder" in result.err
    assert "bspline does not keep its actions" in result.err
    assert trajcli("diff start.npy --recompute").code == 2
    frames = "integrate accelerations.npy --start start.npy --dt 1 --frames actions -o b.h5"
    assert trajcli(frames).code == 0
    Path("accelerations.npy").unlink()
    assert "no start row" in trajcli("diff b.h5 --recompute").err


def test_the_source_can_be_named(trajcli, home, samples):
    assert trajcli("integrate reach.h5 --mode jerk --scheme zoh -o out.h5").code == 0
    Path("reach.h5").unlink()
    assert trajcli(f"diff out.h5 {samples}/reach.h5 --recompute").code == 0


@pytest.mark.parametrize(
    "line", ["diff start.npy", "diff start.npy start.npy --rtol -1", "diff start.npy none.npy"]
)
def test_what_makes_no_sense_is_exit_2(trajcli, folder, line):
    result = trajcli(line)
    assert result.code == 2
    assert result.err.startswith("error: ")


@pytest.mark.parametrize("option", ["--rtol", "--atol", "--ulp"])
@pytest.mark.parametrize("value", ["-1", "nan", "inf", "-inf"])
def test_a_tolerance_is_a_finite_number_from_0_on(trajcli, folder, option, value):
    result = trajcli(f"diff start.npy start.npy {option} {value}")
    assert result.code == 2
    assert result.out == ""
    assert result.err == (
        f"error: {option}: not a tolerance\n  expected: a finite number >= 0\n  found:    {value}\n"
    )


def test_what_cannot_be_compared_has_a_name_and_one_dataset_is_no_datasets(trajcli, folder):
    np.save("flat.npy", np.ones((5, 3)))
    np.save("other.npy", np.load("start.npy") + np.eye(5, 3, dtype="f4"))
    assert (
        "\nvalues: shapes differ: [5, 10, 3] and [5, 3]\n"
        in trajcli("diff actions.npy flat.npy").out
    )
    assert trajcli("diff start.npy other.npy").out.endswith(
        "\n1 of 1 dataset differs by more than allowed\n"
    )
