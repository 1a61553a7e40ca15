"""Rotations among the trajectories that are read: which there are, refused, or left out."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

import numpy as np

from trajcli.errors import InputError, Note
from trajcli.files.arrays import ArrayFile, Dataset
from trajcli.files.dofs import RotationDofs, named_rotations, unit_columns
from trajcli.files.quantities import QUANTITIES, ROTATIONS
from trajcli.files.trajectory_group import TrajectoryGroup

# Names in a group that are looked at.
_SEARCHED = 100
# Rows of the first trajectory, in which quaternions without a name are looked for.
_SAMPLED_ROWS = 1000


def require_rotations(group: TrajectoryGroup) -> tuple[RotationDofs, ...]:
    """Returns the rotations of a group.

    Raises InputError for dofs that look like a quaternion if nothing says what they are.
    """
    count, rows = group.shape[2], min(group.shape[1], _SAMPLED_ROWS)
    if group.rotations or group.rotation_option is not None or count < 4 or not group.shape[0]:
        return group.rotations
    first = unit_columns(np.asarray(group.input.read_part(0, 1, 0, rows))[0])
    if first is not None:
        raise InputError(
            "four dofs whose norm is 1 in all rows, as that of a quaternion",
            where=group.input.where,
            expected="names, or --rotation, that say what they are",
            found=f"dofs {first} to {first + 3}",
            hint=f"--rotation {first}:{first + 4}=xyzw (or =wxyz) reads them as a rotation, "
            "--rotation none as four dofs",
        )
    return ()


def refuse_rotations(groups: Sequence[TrajectoryGroup], command: str) -> None:
    """Raises InputError for rotations, whose dofs mean nothing if each is taken alone."""
    for group in groups[:1]:
        for rotation in require_rotations(group):
            raise InputError(
                f"{command} takes dofs one by one, and these are a rotation",
                where=group.input.where,
                expected="other dofs",
                found=str(rotation),
                hint="--dofs picks others, --rotation none takes these as they are; "
                "trajcli.rotations computes with rotations",
            )


def rotations_left_out(
    groups: Sequence[TrajectoryGroup], kept: Sequence[TrajectoryGroup]
) -> list[str]:
    """Returns a note on rotations beside the positions that are read, which are a SOURCE of their
    own; none where there are no such rotations."""
    read = {id(group) for group in kept}
    left: list[str] = [g.where for g in groups if ROTATIONS[0] in g.arrays and id(g) not in read]
    firsts = {id(group.file): group for group in reversed(kept) if not group.named}
    for group in firsts.values():
        left += _rotations_beside(group.file, group.group, group.shape)
    more = f" and {len(left) - 1} more are" if left[1:] else " is"
    return [Note(f"{left[0]}{more} left out: name it as SOURCE")] if left else []


def _rotations_beside(file: ArrayFile, group: str, shape: tuple[int, ...]) -> list[str]:
    """Returns where arrays in a group that have other names than outputs are rotations.

    shape: [B, T, D] of the trajectories that they lie beside.
    """
    beside: list[str] = []
    for child in file.children(group)[:_SEARCHED]:
        with suppress(InputError):  # what is not meant may be anything
            path = f"{group}/{child}".strip("/")
            stored = None if child in (*QUANTITIES, *ROTATIONS) else file.get(path)
            if stored is None or stored.shape[:-1] not in (shape[:2], shape[1:2]):
                continue
            if stored.dtype.kind == "f" and _is_rotation(child, stored):
                beside.append(stored.where)
    return beside


def _is_rotation(name: str, stored: Dataset) -> bool:
    """Whether its name or those of its dofs say that an array is a rotation, in whatever order."""
    dofs = stored.attributes.get("joint_names", ())
    try:
        return bool(named_rotations(name, dofs, stored.shape[-1], "", None, stored.where))
    except InputError:
        return True
