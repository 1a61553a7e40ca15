"""Rotations in the commands that look at files, and in what they export."""

from __future__ import annotations

import csv
import re
from pathlib import Path

import h5py
import numpy as np
import pytest
from journeys.arrays import close, read_h5, same, write_h5
from scipy.spatial.transform import Rotation

from trajcli import rotations
from trajcli.files.opening import Files
from trajcli.views.plot import plot_sources

AXIS = np.array([2.0, -1.0, 2.0]) / 3.0
TIMES = np.arange(101) / 100


@pytest.fixture
def recordings(folder):
    """turn.h5: a body that turns to and fro about a tilted axis, with flips of signs, beside its
    positions; pair.h5: two bodies and one other dof, of two trajectories."""
    angles = 1.5 * np.sin(2.0 * TIMES)
    q = (
        rotations.exp(angles[:, None] * AXIS)
        * np.where(np.arange(101) % 10 == 5, -1.0, 1.0)[:, None]
    )
    pose = np.column_stack([TIMES, 0 * TIMES, TIMES**2, q])
    write_h5("turn.h5", orientation_wxyz=q, times=TIMES, angle=angles[:, None], pose=pose)
    rng = np.random.default_rng(1)
    pair = rotations.exp(np.cumsum(rng.normal(0, 0.05, (2, 30, 2, 3)), 1))
    other = rng.normal(size=(2, 30, 1))
    write_h5("pair.h5", position=np.concatenate([pair.reshape(2, 30, 8), other], 2))
    return q


@pytest.fixture
def outputs(recordings, trajcli):
    """pair.h5 and turn.h5 differentiated: two.h5, two.npz with [B, T, R, 4], and one.h5."""
    for out in ("two.h5", "two.npz"):
        line = "differentiate pair.h5 --rotation 0:8=wxyz --method central --dt 0.1 -o"
        trajcli.ok(f"{line} {out}")
    trajcli.ok("differentiate turn.h5:pose --rotation 3:7=wxyz --method central -o one.h5")
    return recordings


@pytest.mark.parametrize("file", ["two.h5", "two.npz"])
def test_several_rotations_are_read_back_by_every_command(trajcli, outputs, file):
    with h5py.File("two.h5") as stored:
        q, omega = stored["orientation"][:], stored["angular_velocity"][:]
    for name, values in (("orientation", q), ("angular_velocity", omega)):
        trajcli.ok(f"export {file}:{name} -o back.npy --overwrite")
        same(np.load("back.npy"), values)
    shown = trajcli(f"inspect {file} --json").document
    (about,) = [d for d in shown["datasets"] if d["name"] == "orientation"]
    assert about["dofs"] == [f"{k}/q{axis}" for k in range(2) for axis in "wxyz"]
    for k, rotation in enumerate(about["rotations"]):
        turns = Rotation.from_quat(q[:, :, k], scalar_first=True)
        first = Rotation.from_quat(np.repeat(q[:, :1, k], 30, 1), scalar_first=True)
        assert rotation["turn"] == pytest.approx((turns * first.inv()).magnitude().max())
        assert rotation["signs"] == 0
    trajcli.ok(f"resample {file}:orientation --to 10 -o same.h5 --overwrite")
    close(read_h5("same.h5")["orientation"][:], q, atol=1e-12)
    trajcli.ok(f"differentiate {file}:orientation --method central -o again.h5 --overwrite")
    close(read_h5("again.h5")["angular_velocity"][:], omega, atol=1e-12)
    for line in ("check {}", "score {}", "plot {} -o fig.svg --overwrite", "diff {} two.h5"):
        trajcli.ok(line.format(file))


def test_plot_draws_components_and_the_angle_from_the_start(outputs):
    (source,) = plot_sources(Files(), ["one.h5"])
    lines = {line.quantity: line for line in source.lines()}
    assert [name for _, name in lines["orientation"].dofs] == ["qw", "qx", "qy", "qz"]
    drawn = lines["angle from the start"]
    expected = np.abs(1.5 * np.sin(2.0 * TIMES))
    close(drawn.values[:, 0], expected, atol=1e-9)
    assert drawn.unit == "rad"
    (raw,) = plot_sources(Files(), ["turn.h5:orientation_wxyz"])
    angles = {line.quantity: line.values for line in raw.lines()}["angle from the start"]
    close(angles[:, 0], expected, atol=1e-9)


def test_check_holds_norms_signs_and_magnitudes_of_rates(trajcli, outputs):
    def check(source, *more):
        checks = trajcli(f"check {source} --json", *more).document["checks"]
        return {(found["check"], found["dataset"]): found for found in checks}

    raw = check("turn.h5:orientation_wxyz")["sign", "orientation_wxyz"]
    assert (raw["passed"], raw["changes"]) == (True, 20)
    with h5py.File("one.h5", "a") as file:
        assert check("one.h5")["norm", "orientation"]["passed"]
        file["orientation"][0, 30] *= -1
        file["orientation"][0, 60] *= 1.01
    found = check("one.h5")
    assert not found["sign", "orientation"]["passed"]
    assert found["sign", "orientation"]["at"]["row"] in (30, 31)
    assert not found["norm", "orientation"]["passed"]
    assert found["norm", "orientation"]["at"]["row"] == 60
    # the largest rate is 3 rad/s, at the start
    for limit, units, passed in ((3.01, "rad/s", True), (171.0, "deg/s", False)):
        text = f'[angular_velocity]\nupper = {limit}\nunits = "{units}"\n'
        Path("limits.toml").write_text(text, encoding="utf-8")
        for source, name in (("turn.h5:orientation_wxyz", "orientation_wxyz"),
                             ("one.h5", "angular_velocity")):  # fmt: skip
            held = check(source, "--limits", "limits.toml")["angular_velocity limits", name]
            assert held["passed"] is passed
            assert held["largest"] == pytest.approx(3.0, abs=1e-3)
    missing = trajcli("check turn.h5:angle --limits limits.toml")
    assert (missing.code, "no dofs are rotations" in missing.out) == (1, True)
    Path("limits.toml").write_text("[velocity]\nupper = 1\n", encoding="utf-8")
    missing = trajcli("check turn.h5:orientation_wxyz --limits limits.toml")
    assert (missing.code, "all dofs are rotations" in missing.out) == (1, True)
    Path("limits.toml").write_text("[angular_jerk]\nupper = [1, 2]\n", encoding="utf-8")
    trajcli.refuses("check one.h5 --limits limits.toml")


def test_score_has_the_path_and_the_smoothness_of_a_turn(trajcli, outputs):
    def score(source):
        return trajcli(f"score {source} --json").document["summary"]

    about_the_axis = score("turn.h5:angle")
    for source in ("turn.h5:orientation_wxyz", "turn.h5:pose --rotation 3:7=wxyz", "one.h5"):
        found = score(source)
        # the same speeds, one number instead of a rotation
        for name in ("path_length", "sparc"):
            angular = found[f"angular_{name.removesuffix('_length')}"]["median"]
            assert angular == pytest.approx(about_the_axis[name]["median"], abs=1e-9)
    assert "rms_jerk" in score("turn.h5:pose --rotation 3:7=wxyz")
    assert set(score("turn.h5:orientation_wxyz")) == {
        "duration", "time_jumps", "angular_path", "angular_sparc",
        "idle_start", "idle_end", "idle_longest"}  # fmt: skip
    trajcli.fails("score one.h5 --fail", "angular_path > 1")


def test_diff_gives_the_angle_between_rotations_whatever_their_signs(trajcli, recordings):
    q, apart = recordings, rotations.exp(np.array([0.0, 0.01, 0.0]))
    tilted = rotations.multiply(apart, q) * np.where(np.arange(101) % 3, 1.0, -1.0)[:, None]
    write_h5("other.h5", quat=tilted, times=TIMES, negated=-q, xyzw_order=q[:, [1, 2, 3, 0]])
    whole = "turn.h5:orientation_wxyz"
    (found,) = trajcli(f"diff {whole} other.h5:quat --json").document["datasets"]
    assert found["angle"] == pytest.approx(0.01, abs=1e-12)
    assert found["angle_rms"] == pytest.approx(0.01, abs=1e-12)
    assert found["absolute"] < 0.006
    trajcli.ok(f"diff {whole} other.h5:quat --atol 0.006")
    assert "0.01 rad between rotations" in trajcli(f"diff {whole} other.h5:quat").out
    equal = trajcli(f"diff {whole} other.h5:negated --rotation wxyz --json").document["datasets"]
    assert [x["differing"] for x in equal] == [0]
    write_h5("half.h5", orientation_wxyz=tilted[::2], times=TIMES[::2])
    (late,) = trajcli(f"diff {whole} half.h5:orientation_wxyz --json").document["datasets"]
    assert late["angle"] == pytest.approx(0.01, abs=1e-12)


def test_export_has_rotations_beside_positions(trajcli, outputs):
    trajcli.ok("export one.h5 -o one.csv")
    with open("one.csv", newline="", encoding="utf-8") as file:
        head, *rows = list(csv.reader(file))
    columns = dict(zip(head, np.array(rows, np.float64).T, strict=True))
    with h5py.File("one.h5") as stored:
        for k, axis in enumerate("wxyz"):
            same(columns[f"orientation/q{axis}"], stored["orientation"][0, :, k])
        same(columns["angular_velocity/z (rad/s)"], stored["angular_velocity"][0, :, 2])
    for out in ("copy.h5", "copy.npz"):
        trajcli.ok(f"export two.h5 -o {out}")
        trajcli.ok(f"diff two.h5 {out}")
        trajcli.ok(f"inspect {out}:orientation")


def test_a_tum_trajectory_is_what_evo_and_the_benchmark_read(trajcli, samples, outputs):
    trajcli.ok("export one.h5 -o one.tum")
    rows = np.loadtxt("one.tum")
    with h5py.File("one.h5") as stored:
        same(rows[:, 1:4], stored["position"][0])
        close(rows[:, 4:], stored["orientation"][0][:, [1, 2, 3, 0]], rtol=0, atol=1e-15)
    first = Path("one.tum").read_text(encoding="utf-8").splitlines()[0]
    assert first == "# timestamp tx ty tz qx qy qz qw"
    # with the stamps of the source, as recorded and after differentiate
    camera = f"{samples}/camera.h5:orientation_xyzw"
    trajcli.ok(f"differentiate {camera} -o camera.h5")
    for source in (camera, "camera.h5"):
        trajcli.ok(f"export {source} -o camera.tum --overwrite")
        with h5py.File(f"{samples}/camera.h5") as file:
            close(np.loadtxt("camera.tum")[:, 0], file["times"], rtol=1e-15)
    trajcli.ok("differentiate one.tum --method central -o back.h5")
    with h5py.File("back.h5") as stored, h5py.File("one.h5") as one:
        close(stored["angular_velocity"][0], one["angular_velocity"][0], atol=1e-9)
    trajcli.refuses("export two.h5 -o two.tum", "one trajectory of one rotation")


def test_an_rrd_has_a_transform_for_each_row(trajcli, outputs):
    pytest.importorskip("rerun")
    reader = pytest.importorskip("rerun.chunk").RrdReader
    trajcli.ok("export one.h5 -o one.rrd")
    found = {}
    for chunk in reader("one.rrd").stream().to_chunks():
        batch = chunk.to_record_batch()
        for name in batch.schema.names:
            if str(chunk.entity_path) == "/pose" and re.search("quaternion|translation", name):
                found[name.rpartition(":")[2]] = np.array([x[0] for x in batch[name].to_pylist()])
    with h5py.File("one.h5") as stored:
        close(found["translation"], stored["position"][0], rtol=1e-6)
        close(found["quaternion"], stored["orientation"][0][:, [1, 2, 3, 0]], atol=1e-6)


def test_check_passes_no_start_row_that_it_did_not_compare(trajcli, folder):
    rates = np.random.default_rng(5).standard_normal((2, 20, 3))
    write_h5("rates.h5", angular_velocity=rates, **{"start/position": np.zeros((2, 3))}, dt=0.01)
    line = "integrate rates.h5:angular_velocity --mode velocity --start rates.h5:start -o out.h5"
    trajcli.ok(line)
    checks = trajcli.ok("check out.h5 --json").document["checks"]
    made = {check["check"]: check["passed"] for check in checks}
    assert [check["check"] for check in checks].count("time") == 1
    assert made["time"] is True
    assert made["start row"] is None  # --recompute compares all rows
    assert all(c["passed"] for c in trajcli.ok("check out.h5 --recompute --json").document["checks"]
               if c["check"] == "recompute")  # fmt: skip
