"""Which dofs are rotations: by name, by --rotation, and what looks like one."""

import numpy as np
import pytest

from trajcli.errors import InputError, UsageError
from trajcli.files.dofs import named_rotations, parse_rotations, unit_columns


def named(array="x", names=(), count=None, layout="", order=None):
    count = len(names) if count is None else count
    found = named_rotations(array, list(names), count, layout, order, "here")
    return [(rotation.dofs, rotation.form) for rotation in found]


@pytest.mark.parametrize(
    ("names", "dofs"),
    [
        ("x y z qx qy qz qw", [(6, 3, 4, 5)]),
        ("qw qx qy qz gripper", [(0, 1, 2, 3)]),
        ("left_qx left_qy left_qz left_qw right_qx right_qy right_qz right_qw",
         [(3, 0, 1, 2), (7, 4, 5, 6)]),
        ("pose.position.x pose.orientation.x pose.orientation.y pose.orientation.z "
         "pose.orientation.w", [(4, 1, 2, 3)]),
        ("q_RS_w q_RS_x q_RS_y q_RS_z", [(0, 1, 2, 3)]),
        ("quat_w quat_x quat_y quat_z", [(0, 1, 2, 3)]),
        ("rotation.W rotation.X rotation.Y rotation.Z", [(0, 1, 2, 3)]),
        ("qx qy qz", []), ("x y z w", []), ("seq_x seq_y seq_z seq_w", [])
    ],
)  # fmt: skip
def test_columns_are_recognised_by_their_axes(names, dofs):
    assert named(names=names.split()) == [(numbers, "wxyz") for numbers in dofs]


def test_numbered_dofs_and_arrays_are_recognised_by_their_words():
    state = ["x", "y", "z", "axis_angle1", "axis_angle2", "axis_angle3", "gripper"]
    assert named(names=state) == [((3, 4, 5), "rotvec")]
    assert named(names=["x", *[f"rot6d_{k}" for k in range(6)]]) == [((1, 2, 3, 4, 5, 6), "rot6d")]
    assert named("obs/orientation_xyzw", count=4) == [((0, 1, 2, 3), "xyzw")]
    assert named("obs/robot0_eef_quat", count=4, layout="robomimic") == [((0, 1, 2, 3), "xyzw")]
    assert named("body_quat", count=8, layout="isaaclab") == [
        ((0, 1, 2, 3), "wxyz"), ((4, 5, 6, 7), "wxyz")]  # fmt: skip
    assert named("orientation", count=4, order=b"wxyz") == [((0, 1, 2, 3), "wxyz")]
    assert named("ee_rotvec", count=3) == [((0, 1, 2), "rotvec")]
    assert named("rotation_matrix", count=9) == [(tuple(range(9)), "matrix")]
    for array, count in (("orientation", 3), ("equation", 4), ("velocity", 4), ("rot6d", 7)):
        assert named(array, count=count) == []
    for name in ("quat", "orientation"):
        with pytest.raises(InputError) as error:
            named(name, count=4)
        assert error.value.faults[0].what == "quaternions whose order is not known"


def test_the_option_names_dofs_and_forms():
    names = ["x", "qx", "qy", "qz", "qw"]
    for text in ("1:5=xyzw", "qx,qy,qz,qw=xyzw"):
        (found,) = parse_rotations(text, 5, names)
        assert (found.dofs, found.form) == ((1, 2, 3, 4), "xyzw")
    pair = parse_rotations("0:3=rotvec;3:11=wxyz", 11, ())
    assert [one.dofs for one in pair] == [(0, 1, 2), (3, 4, 5, 6), (7, 8, 9, 10)]
    assert len(parse_rotations("xyzw", 8, ())) == 2
    assert parse_rotations("none", 4, ()) == ()
    for text in ("euler", "0:3=xyzw", "0:4=xyzw;3:7=xyzw", "9:13=xyzw", ""):
        with pytest.raises(UsageError):
            parse_rotations(text, 7, ())


def test_unit_norms_that_change_look_like_quaternions():
    rng = np.random.default_rng(0)
    q = rng.normal(size=(50, 4))
    q /= np.linalg.norm(q, axis=1)[:, None]
    rows = np.concatenate([rng.normal(size=(50, 3)), q, np.ones((50, 1))], 1)
    assert unit_columns(rows) == 3
    assert unit_columns(rows.astype(np.float32)) == 3
    assert unit_columns(np.delete(rows, 4, 1)) is None
    rows[20, 3:7] *= 1.01
    assert unit_columns(rows) is None
    assert unit_columns(np.tile(q[0], (50, 1))) is None  # stands still
    assert unit_columns(np.eye(4)[rng.integers(0, 4, 50)]) is None  # one of four
    assert unit_columns(np.eye(4)) is None
