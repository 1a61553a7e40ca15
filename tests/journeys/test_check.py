"""trajcli check, as a user types it."""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np
import pytest


@pytest.fixture
def out(trajcli, samples, tmp_path, monkeypatch) -> Path:
    """A good output with its source beside it, in the current folder."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "reach.h5").write_bytes((samples / "reach.h5").read_bytes())
    assert trajcli("integrate reach.h5 --mode jerk --scheme zoh -o out.h5").code == 0
    return tmp_path / "out.h5"


def verdicts(result) -> dict[str, dict]:
    checks = result.document["checks"]
    return {f"{c['check']} {c['dataset']}": c for c in checks}


def failing(result) -> list[tuple[str, str]]:
    return [(c["check"], c["dataset"]) for c in result.document["checks"] if c["passed"] is False]


def test_a_good_output_passes_every_check(trajcli, out, samples):
    result = trajcli(f"check out.h5 --limits {samples}/limits.toml --json")
    assert result.code == 0
    assert result.document["passed"]
    assert all(check["passed"] for check in result.document["checks"])
    names = {check["check"] for check in result.document["checks"]}
    assert names == {
        "finite",
        "relation (jerk, zoh)",
        "start row",
        "time",
        *(f"{q} limits" for q in ("position", "velocity", "acceleration", "jerk")),
    }
    assert "checks passed" in trajcli("check out.h5").out


def test_one_damaged_number_fails_and_is_named(trajcli, out):
    with h5py.File(out, "r+") as file:
        file["velocity"][13, 20, 3] += 0.5
    result = trajcli("check out.h5")
    assert result.code == 1
    line = next(line for line in result.out.splitlines() if "FAILS" in line)
    assert "relation" in line
    assert "velocity" in line
    assert "trajectory 13, row 20, dof 3 (panda_joint4)" in line
    report = trajcli("check out.h5 --json")
    assert failing(report) == [("relation (jerk, zoh)", "velocity")]
    at = verdicts(report)["relation (jerk, zoh) velocity"]["at"]
    assert at == {"trajectory": 13, "row": 20, "dof": 3}


def test_nan_the_start_row_and_time_each_have_a_check_of_their_own(trajcli, out):
    with h5py.File(out, "r+") as file:
        file["jerk"][2, 60, 6] = np.nan
        file["position"][5, 0, 1] += 1e-9
        file["time"][7, 9] = file["time"][7, 8]
    report = trajcli("check out.h5 --json")
    assert report.code == 1
    found = verdicts(report)
    assert found["finite jerk"]["at"] == {"trajectory": 2, "row": 60, "dof": 6}
    assert found["start row position"]["at"] == {"trajectory": 5, "row": 0, "dof": 1}
    assert found["time time"]["where"] == "trajectory 7, row 9"


def test_the_start_row_is_compared_with_the_start_that_is_named(trajcli, out, samples):
    (out.parent / "reach.h5").unlink()
    found = verdicts(trajcli("check out.h5 --json"))
    assert found["start row all"]["passed"] is None
    assert "no reach.h5 here" in found["start row all"]["found"]
    named = verdicts(trajcli(f"check out.h5 --start {samples}/reach.h5 --json"))
    assert named["start row all"]["passed"] is True
    assert trajcli("check out.h5 --start zero").code == 1
    assert trajcli("check out.h5 --start none.h5").code == 2


def test_zero_and_start_index_are_start_rows_too(trajcli, folder):
    assert trajcli("integrate actions.npy --start zero --dt 0.1 -o zero.h5").code == 0
    assert verdicts(trajcli("check zero.h5 --json"))["start row all"]["passed"] is True
    index = np.array([4, 4, 0, 1, 2])
    np.savez("in.npz", actions=np.load("actions.npy"), start_position=np.load("start.npy"),
             start_index=index, dt=0.1)  # fmt: skip
    assert trajcli("integrate in.npz -o out.h5").code == 0
    assert verdicts(trajcli("check out.h5 --json"))["start row all"]["passed"] is True
    with h5py.File("out.h5", "r+") as file:
        file["start_index"][1] = 3
    assert failing(trajcli("check out.h5 --json")) == [("start row", "position")]


@pytest.mark.parametrize("kind", ["toml", "urdf"])
def test_what_passes_a_limit_is_counted_and_the_worst_is_named(trajcli, out, kind):
    with h5py.File(out) as file:
        speed = np.abs(file["velocity"][:, :, 1])
    limit = 0.9 * speed.max()
    limits = out.parent / f"limits.{kind}"
    if kind == "toml":
        limits.write_text(f"[velocity]\nupper = [9, {limit}, 9, 9, 9, 9, 9]")
    else:
        joints = "".join(
            f'<joint name="panda_joint{n}" type="revolute"><limit lower="-9" upper="9" '
            f'velocity="{limit if n == 2 else 9}"/></joint>'
            for n in range(1, 8)
        )
        limits.write_text(f"<robot>{joints}</robot>")
    report = trajcli(f"check out.h5 --limits {limits} --json")
    assert report.code == 1
    (verdict,) = [c for c in report.document["checks"] if c["passed"] is False]
    assert verdict["check"] == "velocity limits"
    assert verdict["count"] == int((speed > limit).sum())
    at = np.unravel_index(speed.argmax(), speed.shape)
    assert verdict["at"] == {"trajectory": at[0], "row": at[1], "dof": 1}
    assert abs(verdict["value"]) == speed.max()


def test_a_motion_at_its_limit_to_rounding_keeps_it(trajcli, folder):
    with h5py.File("in.h5", "w") as file:
        file["velocity"] = np.full((1, 3, 1), 2.0 * (1 + 1e-12))
    Path("limits.toml").write_text("[velocity]\nupper = [2.0]")
    assert trajcli("check in.h5 --limits limits.toml").code == 0
    Path("limits.toml").write_text("[velocity]\nupper = [1.999]")
    assert trajcli("check in.h5 --limits limits.toml").code == 1


def test_limits_of_other_joints_are_exit_2(trajcli, out):
    limits = out.parent / "limits.toml"
    limits.write_text('joint_names = ["a"]\n[velocity]\nupper = [1]')
    result = trajcli(f"check out.h5 --limits {limits}")
    assert result.code == 2
    assert "limits of other joints" in result.err


def test_time_that_does_not_go_by_dt_fails(trajcli, folder):
    assert trajcli("integrate actions.npy --start zero --dt 0.1 -o out.h5").code == 0
    with h5py.File("out.h5", "r+") as file:
        file["time"][4] += 0.01
    assert failing(trajcli("check out.h5 --json")) == [("time", "time")]


def test_the_faulty_sample_fails_at_the_row_that_repeats(trajcli, samples):
    report = trajcli(f"check {samples}/recorded_faulty.h5 --json")
    assert report.code == 1
    assert failing(report) == [("time", "times")]
    assert verdicts(report)["time times"]["where"] == "row 120"


@pytest.mark.parametrize("target", ["out.npz", "out"])
def test_every_kind_of_output_is_checked_alike(trajcli, folder, target):
    line = f"integrate actions.npy --start start.npy --dt 0.1 --mode jerk -o {target}"
    assert trajcli(line).code == 0
    report = trajcli(f"check {target} --json")
    assert report.code == 0
    assert verdicts(report)["relation (jerk, euler) all"]["passed"] is True
    if target == "out":
        values = np.load("out/position.npy")
        values[3, 4, 2] += 0.5
        np.save("out/position.npy", values)
        assert trajcli("check out").code == 1


def test_several_files_are_one_document_and_one_failure_is_exit_1(trajcli, samples):
    result = trajcli(f"check {samples}/recorded.h5 {samples}/recorded_faulty.h5 --json")
    assert result.code == 1
    assert [file["passed"] for file in result.document["files"]] == [True, False]


def test_one_check_is_no_checks_and_nothing_is_said_of_rows_that_are_not_there(trajcli, folder):
    assert trajcli("check actions.npy").out.endswith("actions.npy: 1 check passed\n")
    np.save("none.npy", np.zeros((0, 10, 3)))
    assert trajcli("integrate none.npy --start zero --dt 1 -o none.h5").code == 0
    report = trajcli("check none.h5 --json").document
    found = {c["check"]: c["found"] for c in report["checks"] if c["passed"] is None}
    assert found == {
        "relation (acceleration, euler)": "not checked: there are no rows",
        "start row": "not checked: there are no rows",
    }
