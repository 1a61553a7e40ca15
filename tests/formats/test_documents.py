"""YAML, JSON and MATLAB 5: arrays by their paths, and JointTrajectory messages of ROS."""

from __future__ import annotations

import json
from pathlib import Path

import h5py
import numpy as np
import pytest

TIMES = 0.25 * np.arange(20)
POSITIONS = np.sin(TIMES[:, None] + np.arange(3))
JOINTS = ["shoulder", "elbow", "wrist"]


def check(result, path: str = "out.h5") -> None:
    assert result.code == 0, result.err
    with h5py.File(path) as file:
        group = next(iter(file.values())) if "position" not in file else file
        np.testing.assert_array_equal(np.squeeze(group["position"]), POSITIONS)
        np.testing.assert_allclose(np.ravel(group["time"]), TIMES, rtol=0, atol=1e-12)
        assert file["dof"].asstr()[:].tolist() == JOINTS


@pytest.mark.parametrize("kind", ["ros1", "ros2", "plain"])
@pytest.mark.parametrize("form", ["json", "yaml"])
@pytest.mark.parametrize("within", ["", "joint_trajectory"])
def test_a_joint_trajectory_is_positions_times_and_names(trajcli, folder, kind, form, within):
    names = {"ros1": ("secs", "nsecs"), "ros2": ("sec", "nanosec")}.get(kind)
    points = []
    for time, row in zip(TIMES.tolist(), POSITIONS.tolist(), strict=True):
        whole = int(time // 1)
        stamp = (
            dict(zip(names, (whole, round((time - whole) * 1e9)), strict=True)) if names else time
        )
        points.append({"positions": row, "velocities": [], "time_from_start": stamp})
    message = {"header": {"frame_id": "base"}, "joint_names": JOINTS, "points": points}
    document = {within: message} if within else message
    if form == "json":
        Path("in.json").write_text(json.dumps(document))
    else:
        yaml = pytest.importorskip("yaml")
        Path("in.yaml").write_text(yaml.safe_dump(document))
    check(trajcli(f"differentiate in.{form} --method central -o out.h5"))


def test_arrays_in_json_are_read_by_their_paths(trajcli, folder):
    document = {"robot": {"q": POSITIONS.tolist(), "times": TIMES.tolist(), "joint_names": JOINTS}}
    Path("in.json").write_text(json.dumps(document))
    check(trajcli("differentiate in.json:robot/q --method central -o out.h5"))


def test_variables_and_structures_of_matlab_5(trajcli, folder):
    scipy = pytest.importorskip("scipy.io")
    names = np.array(JOINTS, object)
    robot = {"position": POSITIONS, "times": TIMES[:, None], "joint_names": names}
    scipy.savemat("in.mat", {**robot, "log": robot, "note": "text"})
    for source in ("in.mat:position", "in.mat:log/position"):
        check(trajcli(f"differentiate {source} --method central -o out.h5 --overwrite"))
    document = trajcli("inspect in.mat --json").document
    assert {one["name"]: one["shape"] for one in document["datasets"]}["log/position"] == [20, 3]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("in.json", "{"), ("in.json", "[" * 100_000), ("in.yaml", "a: [1, 2"),
        ("in.yaml", "a: !!x 1"), ("in.yaml", "a: &a [*a]"),
        ("in.json", '{"position": [[1, 2], [3]]}'), ("in.mat", "MATLAB 5.0 MAT-file"),
        ("in.yaml", "a: &a [1,2]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a,*a]\n" + "".join(
            f"{chr(98 + k + 1)}: &{chr(98 + k + 1)} [{','.join([f'*{chr(98 + k)}'] * 10)}]\n"
            for k in range(8))),
    ],
)  # fmt: skip
def test_what_is_no_document_of_arrays_is_refused(trajcli, folder, name, text):
    pytest.importorskip("yaml")
    pytest.importorskip("scipy.io")
    Path(name).write_text(text)
    trajcli.refuses(f"differentiate {name} --rate 50 -o out.h5", name)
