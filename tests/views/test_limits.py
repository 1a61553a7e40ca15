"""Limits from TOML and URDF: what is read, what is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from trajcli.errors import InputError
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


def test_the_sample_gives_limits_by_joint_in_the_order_that_is_asked_for(samples):
    names = [f"panda_joint{n}" for n in (4, 2)]
    bounds = read_limits(samples / "limits.toml").bounds(names)
    assert bounds["position"].lower.tolist() == [-3.0718, -1.7628]
    assert bounds["position"].upper.tolist() == [-0.0698, 1.7628]
    assert bounds["velocity"].lower.tolist() == [-2.175, -2.175]
    assert bounds["jerk"].upper.tolist() == [6250.0, 3750.0]


def test_joints_without_names_are_matched_by_number(samples):
    bounds = read_limits(samples / "limits.toml").bounds([str(i) for i in range(7)])
    assert bounds["velocity"].upper.tolist() == [2.175] * 4 + [2.61] * 3


def test_data_without_names_may_have_fewer_joints_than_a_urdf(tmp_path):
    limits = read_limits(write(tmp_path, URDF, "two.urdf"))
    assert limits.bounds(["0", "1"])["velocity"].upper.tolist() == [3, 4]
    with pytest.raises(InputError, match="limits of other joints"):
        limits.bounds(["0", "1", "2", "3"])


def test_joints_of_another_robot_are_refused(samples):
    with pytest.raises(InputError, match="limits of other joints"):
        read_limits(samples / "limits.toml").bounds(["left", "right"])


def test_a_urdf_gives_position_and_velocity_of_what_moves(tmp_path):
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
        ("[position]\nlower = [1]\nupper = [0]", "nothing can keep"),
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
def test_what_is_not_limits_is_one_message(tmp_path, text, message):
    with pytest.raises(InputError, match=message):
        read_limits(write(tmp_path, text))


def test_a_limit_that_is_missing_is_one_message(tmp_path):
    with pytest.raises(InputError, match=r"none\.toml"):
        read_limits(tmp_path / "none.toml")
