"""Limits from TOML, URDF and MoveIt: which are read, and which files are refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from trajcli.errors import InputError
from trajcli.files.dofs import match_names
from trajcli.files.limits import read_limits

URDF = """<?xml version="1.0"?>
<robot name="two">
  <joint name="b" type="revolute"><limit lower="-1" upper="2" velocity="3" effort="9"/></joint>
  <joint name="a" type="continuous"><limit velocity="4" effort="9"/></joint>
  <joint name="fixed" type="fixed"/>
  <joint name="slide" type="prismatic"><limit lower="0" upper="0.5" velocity="1"/></joint>
</robot>
"""


def write(folder: Path, text: str, name: str = "limits.toml") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def test_limits_of_the_sample_come_in_the_order_of_the_joints(samples):
    bounds = read_limits(samples / "limits.toml").bounds([f"panda_joint{n}" for n in (4, 2)])
    assert bounds["position"].lower.tolist() == [-3.0718, -1.7628]
    assert bounds["position"].upper.tolist() == [-0.0698, 1.7628]
    assert bounds["velocity"].lower.tolist() == [-2.175, -2.175]
    assert bounds["jerk"].upper.tolist() == [6250.0, 3750.0]


def test_limits_with_names_are_matched_neither_by_number_nor_to_others(samples, tmp_path):
    for path in (samples / "limits.toml", write(tmp_path, URDF, "two.urdf")):
        limits = read_limits(path)
        for dofs in (["0", "1"], [str(i) for i in range(7)]):
            with pytest.raises(InputError, match="--joints"):
                limits.bounds(dofs)
    with pytest.raises(InputError, match="limits of other joints"):
        read_limits(samples / "limits.toml").bounds(["left", "right"])


def test_a_urdf_gives_limits_of_the_joints_that_move(tmp_path):
    bounds = read_limits(write(tmp_path, URDF, "two.urdf")).bounds(["a", "b", "slide"])
    assert bounds["position"].lower.tolist() == [-np.inf, -1, 0]
    assert bounds["position"].upper.tolist() == [np.inf, 2, 0.5]
    assert bounds["velocity"].upper.tolist() == [4, 3, 1]
    assert set(bounds) == {"position", "velocity"}


@pytest.mark.parametrize(
    "head",
    [
        '<!DOCTYPE robot [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;">]>',
        '<!DOCTYPE robot SYSTEM "file:///etc/passwd">',
        '<!DOCTYPE robot [<!ENTITY x SYSTEM "file:///etc/hostname">]>',
    ],
)
def test_a_urdf_with_entities_or_references_is_refused_unread(tmp_path, head):
    text = URDF.replace('<robot name="two">', f'{head}<robot name="two">')
    with pytest.raises(InputError, match="entities are not read"):
        read_limits(write(tmp_path, text, "two.urdf"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no limits in it"),
        ("[position]\nlower = [1]\nupper = [0]", "impossible limits"),
        ("[velocity]\nupper = [1, 2]\n[jerk]\nupper = [1]", "wrong number of limits"),
        ("[velocity]\nupper = ['a']", "not limits"),
        ("velocity = 3", "not limits"),
        ("[velocity]\nupper = []", "not limits"),
        ("[velocity]\nupper = [nan]", "not limits"),
        ("[velocity]\nupper = [true]", "not limits"),
        (f"[velocity]\nupper = [1{'0' * 400}]", "not limits"),
        (f"[velocity]\nupper = [1{'0' * 5000}]", "cannot be read"),
        ("joint_names = 3\n[velocity]\nupper = [1]", "not names"),
        ("this is no toml", "cannot be read"),
        ("<robot/>", "no limits in it"),
        ("<robot><joint", "cannot be read"),
        (
            '<robot><joint name="a" type="revolute"><limit lower="x"/></joint></robot>',
            "not numbers",
        ),
    ],
)
def test_files_without_limits_give_one_message(tmp_path, text, message):
    with pytest.raises(InputError, match=message):
        read_limits(write(tmp_path, text))


def test_a_missing_file_of_limits_gives_one_message(tmp_path):
    with pytest.raises(InputError, match=r"none\.toml"):
        read_limits(tmp_path / "none.toml")


@pytest.mark.parametrize(
    ("names", "others", "expected"),
    [
        (["b", "a"], ["a", "b"], [1, 0]),
        (["shoulder_pan.pos", "elbow.pos"], ["elbow", "shoulder_pan"], [1, 0]),
        (["shoulder_pan_joint", "elbow_joint"], ["shoulder_pan", "elbow"], [0, 1]),
        (["robot/elbow_pos", "Wrist"], ["wrist", "joint_elbow"], [1, 0]),
        (["joint1", "joint2"], ["panda_joint2", "panda_joint1"], [1, 0]),
        (["joint1", "joint2"], ["left_joint1", "right_joint1"], [None, None]),
        (["elbow", "elbow_joint"], ["elbow"], [0, None]),
        (["elbow.pos", "elbow_joint"], ["elbow"], [None, None]),
        (["0", "1"], ["joint_1", "joint_0"], [None, None]),
    ],
)
def test_names_of_joints_match_by_the_rule(names, others, expected):
    assert match_names(names, others) == expected


def test_names_that_match_by_the_rule_are_reported(tmp_path):
    limits = read_limits(write(tmp_path, URDF.replace('"b"', '"b_joint"'), "two.urdf"))
    assert limits.bounds(["a", "b.pos"])["velocity"].upper.tolist() == [4, 3]
    said = ["limits by name: b.pos is b_joint", "limits without a dof: slide"]
    assert limits.remarks(["a", "b.pos"]) == said


@pytest.mark.parametrize("text", ["upper = 2", "upper = 2.0\nlower = [-2, -2, -2]"])
def test_one_number_is_the_limit_of_all_joints(tmp_path, text):
    limits = read_limits(write(tmp_path, f"[velocity]\n{text}\n"))
    assert limits.bounds(["a", "b", "c"])["velocity"].upper.tolist() == [2, 2, 2]
    named = write(tmp_path, f'joint_names = ["a", "b", "c"]\n[velocity]\n{text}\n[jerk]\nupper = 5')
    assert read_limits(named).bounds(["c", "a"])["jerk"].lower.tolist() == [-5, -5]


MOVEIT = """
joint_limits:
  elbow: {has_velocity_limits: true, max_velocity: 3.15, has_acceleration_limits: true,
    max_acceleration: 5.0, has_position_limits: true, min_position: -1.0, max_position: 2.0}
  wrist: {has_velocity_limits: true, max_velocity: 2.0, has_acceleration_limits: false,
    max_acceleration: 0.0}
"""


def test_limits_of_universal_robots_in_degrees_are_read_in_rad(tmp_path):
    pytest.importorskip("yaml")
    text = """# Joints limits, as in ur_description/config/ur5e/joint_limits.yaml
joint_limits:
  shoulder_pan:
    has_acceleration_limits: false
    has_effort_limits: true
    has_position_limits: true
    has_velocity_limits: true
    max_effort: 150.0
    max_position: !degrees  360.0
    max_velocity: !degrees  180.0
    min_position: !degrees -360.0
  wrist_1_joint:
    has_position_limits: true
    has_velocity_limits: true
    max_position: !radians  1.5
    max_velocity: 3.0
    min_position: !degrees -90
"""
    limits = read_limits(write(tmp_path, text, "joint_limits.yaml"))
    bounds = limits.bounds(["wrist_1_joint", "shoulder_pan_joint"])
    assert bounds["position"].lower.tolist() == [np.radians(-90), np.radians(-360)]
    assert bounds["position"].upper.tolist() == [1.5, np.radians(360)]
    assert bounds["velocity"].upper.tolist() == [3.0, np.pi]
    for wrong in (text.replace("!degrees  180.0", "!degrees fast"),
                  text.replace("!degrees  180.0", "!turns 0.5")):  # fmt: skip
        with pytest.raises(InputError, match="MoveIt's joint_limits"):
            read_limits(write(tmp_path, wrong, "joint_limits.yaml"))


def test_only_limits_that_moveit_sets_are_read(tmp_path):
    pytest.importorskip("yaml")
    for text in (MOVEIT, "robot_description_planning:" + MOVEIT.replace("\n", "\n  ")):
        bounds = read_limits(write(tmp_path, text, "joint_limits.yaml")).bounds(["wrist", "elbow"])
        assert set(bounds) == {"position", "velocity", "acceleration"}
        assert bounds["velocity"].upper.tolist() == [2.0, 3.15]
        assert bounds["acceleration"].lower.tolist() == [-np.inf, -5.0]
        assert bounds["position"].lower.tolist() == [-np.inf, -1.0]


@pytest.mark.parametrize(
    "text", ["a: 1", "joint_limits: 3", "joint_limits: {a: {has_jerk_limits: true}}"]
)
def test_yaml_of_other_programs_is_refused(tmp_path, text):
    pytest.importorskip("yaml")
    with pytest.raises(InputError):
        read_limits(write(tmp_path, text, "joint_limits.yaml"))
