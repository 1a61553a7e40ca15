"""Rotations in the commands that look at files, and in what they export."""

from __future__ import annotations

import csv
import re
from pathlib import Path

import h5py
import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from trajcli import rotations
from trajcli.files.opening import Files
from trajcli.views.plot import plot_sources

AXIS = np.array([2.0, -1.0, 2.0]) / 3.0
TIMES = np.arange(101) / 100


def about_an_axis(angles):
    return rotations.exp(angles[:, None] * AXIS)


@pytest.fixture
def recordings(folder):
    """turn.h5: a body that turns to and fro about a tilted axis, with flips of signs, beside its
    positions; pair.h5: two bodies and one other dof, of two trajectories."""
    angles = 1.5 * np.sin(2.0 * TIMES)
    q = about_an_axis(angles) * np.where(np.arange(101) % 10 == 5, -1.0, 1.0)[:, None]
    with h5py.File("turn.h5", "w") as file:
        file["orientation_wxyz"], file["times"], file["angle"] = q, TIMES, angles[:, None]
        file["pose"] = np.concatenate([np.stack([TIMES, 0 * TIMES, TIMES**2], 1), q], 1)
    rng = np.random.default_rng(1)
    pair = rotations.exp(np.cumsum(rng.normal(0, 0.05, (2, 30, 2, 3)), 1))
    with h5py.File("pair.h5", "w") as file:
        other = rng.normal(size=(2, 30, 1))
        file["position"] = np.concatenate([pair.reshape(2, 30, 8), other], 2)
    return q


@pytest.fixture
def outputs(recordings, trajcli):
    """pair.h5 and turn.h5 differentiated: two.h5, two.npz with [B, T, R, 4], and one.h5."""
    for out in ("two.h5", "two.npz"):
        line = "differentiate pair.h5 --rotation 0:8=wxyz --method central --dt 0.1 -o"
        assert trajcli(f"{line} {out}").code == 0
    line = "differentiate turn.h5:pose --rotation 3:7=wxyz --method central -o one.h5"
    assert trajcli(line).code == 0
    return recordings


@pytest.mark.parametrize("file", ["two.h5", "two.npz"])
def test_several_rotations_are_read_back_by_every_command(trajcli, outputs, file):
    with h5py.File("two.h5") as stored:
        q, omega = stored["orientation"][:], stored["angular_velocity"][:]
    for name, values in (("orientation", q), ("angular_velocity", omega)):
        assert trajcli(f"export {file}:{name} -o back.npy --overwrite").code == 0
        np.testing.assert_array_equal(np.load("back.npy"), values)
    shown = trajcli(f"inspect {file} --json").document
    (about,) = [d for d in shown["datasets"] if d["name"] == "orientation"]
    assert about["dofs"] == [f"{k}/q{axis}" for k in range(2) for axis in "wxyz"]
    for k, rotation in enumerate(about["rotations"]):
        turns = Rotation.from_quat(q[:, :, k], scalar_first=True)
        first = Rotation.from_quat(np.repeat(q[:, :1, k], 30, 1), scalar_first=True)
        assert rotation["turn"] == pytest.approx((turns * first.inv()).magnitude().max())
        assert rotation["signs"] == 0
    assert trajcli(f"resample {file}:orientation --to 10 -o same.h5 --overwrite").code == 0
    with h5py.File("same.h5") as same:
        np.testing.assert_allclose(same["orientation"][:], q, atol=1e-12)
    again = trajcli(f"differentiate {file}:orientation --method central -o again.h5 --overwrite")
    assert again.code == 0, again.err
    with h5py.File("again.h5") as stored:
        np.testing.assert_allclose(stored["angular_velocity"][:], omega, atol=1e-12)
    for line in ("check {}", "score {}", "plot {} -o fig.svg --overwrite", "diff {} two.h5"):
        assert trajcli(line.format(file)).code == 0, line


def test_plot_draws_components_and_the_angle_from_the_start(outputs):
    (source,) = plot_sources(Files(), ["one.h5"])
    lines = {line.quantity: line for line in source.lines()}
    assert [name for _, name in lines["orientation"].dofs] == ["qw", "qx", "qy", "qz"]
    drawn = lines["angle from the start"]
    expected = np.abs(1.5 * np.sin(2.0 * TIMES))
    np.testing.assert_allclose(drawn.values[:, 0], expected, atol=1e-9)
    assert drawn.unit == "rad"
    (raw,) = plot_sources(Files(), ["turn.h5:orientation_wxyz"])
    angles = {line.quantity: line.values for line in raw.lines()}["angle from the start"]
    np.testing.assert_allclose(angles[:, 0], expected, atol=1e-9)


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
    assert trajcli("check one.h5 --limits limits.toml").code == 2


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
        "duration", "time_jumps", "angular_path", "angular_sparc"}  # fmt: skip
    assert trajcli("score one.h5 --fail", "angular_path > 1").code == 1


def test_diff_gives_the_angle_between_rotations_whatever_their_signs(trajcli, recordings):
    q, apart = recordings, rotations.exp(np.array([0.0, 0.01, 0.0]))
    tilted = rotations.multiply(apart, q) * np.where(np.arange(101) % 3, 1.0, -1.0)[:, None]
    with h5py.File("other.h5", "w") as file:
        file["quat"], file["times"] = tilted, TIMES
        file["negated"], file["xyzw_order"] = -q, q[:, [1, 2, 3, 0]]
    whole = "turn.h5:orientation_wxyz"
    (found,) = trajcli(f"diff {whole} other.h5:quat --json").document["datasets"]
    assert found["angle"] == pytest.approx(0.01, abs=1e-12)
    assert found["angle_rms"] == pytest.approx(0.01, abs=1e-12)
    assert found["absolute"] < 0.006
    assert trajcli(f"diff {whole} other.h5:quat --atol 0.006").code == 0
    assert "0.01 rad between them" in trajcli(f"diff {whole} other.h5:quat").out
    same = trajcli(f"diff {whole} other.h5:negated --rotation wxyz --json").document["datasets"]
    assert [x["differing"] for x in same] == [0]
    with h5py.File("half.h5", "w") as file:
        file["orientation_wxyz"], file["times"] = tilted[::2], TIMES[::2]
    (late,) = trajcli(f"diff {whole} half.h5:orientation_wxyz --json").document["datasets"]
    assert late["angle"] == pytest.approx(0.01, abs=1e-12)


def test_export_has_rotations_beside_positions(trajcli, outputs):
    assert trajcli("export one.h5 -o one.csv").code == 0
    with open("one.csv", newline="", encoding="utf-8") as file:
        head, *rows = list(csv.reader(file))
    columns = dict(zip(head, np.array(rows, np.float64).T, strict=True))
    with h5py.File("one.h5") as stored:
        for k, axis in enumerate("wxyz"):
            values = columns[f"orientation/q{axis}"]
            np.testing.assert_array_equal(values, stored["orientation"][0, :, k])
        omega = columns["angular_velocity/z (rad/s)"]
        np.testing.assert_array_equal(omega, stored["angular_velocity"][0, :, 2])
    for out in ("copy.h5", "copy.npz"):
        assert trajcli(f"export two.h5 -o {out}").code == 0
        assert trajcli(f"diff two.h5 {out}").code == 0
        assert trajcli(f"inspect {out}:orientation").code == 0


def test_a_tum_trajectory_is_what_evo_and_the_benchmark_read(trajcli, samples, outputs):
    assert trajcli("export one.h5 -o one.tum").code == 0
    rows = np.loadtxt("one.tum")
    with h5py.File("one.h5") as stored:
        np.testing.assert_array_equal(rows[:, 1:4], stored["position"][0])
        xyzw = stored["orientation"][0][:, [1, 2, 3, 0]]
        np.testing.assert_allclose(rows[:, 4:], xyzw, rtol=0, atol=1e-15)
    first = Path("one.tum").read_text(encoding="utf-8").splitlines()[0]
    assert first == "# timestamp tx ty tz qx qy qz qw"
    # with the stamps of the source, as recorded and after differentiate
    camera = f"{samples}/camera.h5:orientation_xyzw"
    assert trajcli(f"differentiate {camera} -o camera.h5").code == 0
    for source in (camera, "camera.h5"):
        assert trajcli(f"export {source} -o camera.tum --overwrite").code == 0
        with h5py.File(f"{samples}/camera.h5") as file:
            np.testing.assert_allclose(np.loadtxt("camera.tum")[:, 0], file["times"], rtol=1e-15)
    back = trajcli("differentiate one.tum --method central -o back.h5")
    assert back.code == 0, back.err
    with h5py.File("back.h5") as stored, h5py.File("one.h5") as one:
        np.testing.assert_allclose(
            stored["angular_velocity"][0], one["angular_velocity"][0], atol=1e-9
        )
    refused = trajcli("export two.h5 -o two.tum")
    assert (refused.code, "one trajectory of one rotation" in refused.err) == (2, True)


def test_an_rrd_has_a_transform_for_each_row(trajcli, outputs):
    pytest.importorskip("rerun")
    reader = pytest.importorskip("rerun.chunk").RrdReader
    assert trajcli("export one.h5 -o one.rrd").code == 0
    found = {}
    for chunk in reader("one.rrd").stream().to_chunks():
        batch = chunk.to_record_batch()
        for name in batch.schema.names:
            if str(chunk.entity_path) == "/pose" and re.search("quaternion|translation", name):
                found[name.rpartition(":")[2]] = np.array([x[0] for x in batch[name].to_pylist()])
    with h5py.File("one.h5") as stored:
        np.testing.assert_allclose(found["translation"], stored["position"][0], rtol=1e-6)
        q = stored["orientation"][0][:, [1, 2, 3, 0]]
        np.testing.assert_allclose(found["quaternion"], q, atol=1e-6)
