"""Rotations among the trajectories that are read: which there are, refused, or left out."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from contextlib import suppress

from trajcli.errors import InputError, Note
from trajcli.files.catalogue import Dataset
from trajcli.files.dofs import (
    UNNAMED,
    RotationDofs,
    named_rotations,
    sampled_rows,
    unit_columns,
)
from trajcli.files.quantities import QUANTITIES, ROTATIONS
from trajcli.files.trajectory_group import TrajectoryGroup

# What roll, pitch and yaw of a body are called.
_ANGLES = re.compile(r"(?:^|[^a-z])(?:rpy|euler)", re.I)
# Names in a group that are looked at.
_SEARCHED = 100


def require_rotations(group: TrajectoryGroup) -> tuple[RotationDofs, ...]:
    """Returns the rotations of a group.

    Raises InputError for dofs that look like a quaternion if nothing says what they are.
    """
    known = group.rotations or group.rotation_option is not None
    if known or 0 in group.shape or group.shape[2] < 4 or group.input.dtype.kind != "f":
        return group.rotations
    rows = sampled_rows(group.input)
    for order, forms in UNNAMED.items():
        if (first := unit_columns(rows, order)) is None:
            continue
        count, dofs = len(order), [first + k for k in order]
        which = f"{first}:{first + count}" if order[1] == 1 else ",".join(map(str, dofs))
        raise InputError(
            "four dofs whose norm is 1 in all rows, as that of a quaternion"
            if count == 4
            else f"{count} dofs that are orthonormal in all rows, as those of a rotation matrix",
            where=group.input.where,
            expected="names, or --rotation, that say what they are",
            found=f"dofs {first} to {first + count - 1}",
            hint=f"--rotation {which}={' (or ='.join(forms)}{')' * (len(forms) > 1)} reads them as "
            f"a rotation, --rotation none as {count} dofs",
        )
    return ()


def rotation_remarks(group: TrajectoryGroup) -> Iterator[str]:
    """Yields a note on each rotation, and a warning of roll, pitch and yaw that are read as dofs,
    unless --rotation says so."""
    with suppress(InputError):  # of an order that matters to commands that compute
        for rotation in group.rotations:
            read = "; rot6d is two columns of the matrix, rot6d_rows two rows"
            read *= rotation.form == "rot6d"
            yield Note(f"{group.input.where}: {rotation} is a rotation{read}")
        if group.rotation_option is not None or "trajcli_version" in group.file.attributes():
            return
        if option := _angles(group):
            how = f"--rotation {shlex.quote(option)} reads a rotation, --rotation none dofs"
            rates = "roll, pitch and yaw are read as dofs, whose rates are not the angular velocity"
            yield f"{group.input.where}: {rates}: {how}"
    try:
        require_rotations(group)
    except InputError as error:  # which commands that compute raise
        yield from (f"{fault.where}: {fault.what}; {fault.hint}" for fault in error.faults)


def _angles(group: TrajectoryGroup) -> str:
    """Returns the option that reads roll, pitch and yaw as a rotation; "" where there are none."""
    names, last = {name.lower(): name for name in group.joint_names or ()}, group.array_name
    option = "rpy" if group.shape[2] == 3 and _ANGLES.search(last.rpartition("/")[2]) else ""
    for before, word, after in (name.partition("roll") for name in names):
        three = [f"{before}{axis}{after}" for axis in ("roll", "pitch", "yaw")]
        beside = {f"{before}{axis}{after}" for axis in "xyz"}
        # the joints of a hip are called so, too: not alone, nor beside x, y and z
        alone = not before + after or beside <= names.keys() or _ANGLES.search(before)
        if word and alone and names.keys() >= {*three}:
            option = ",".join(names[name] for name in three) + "=rpy"
    return option


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
    left = [g.where for g in groups if ROTATIONS[0] in g.arrays and id(g) not in read]
    firsts = {id(group.file): group for group in reversed(kept) if not group.named}
    for group in firsts.values():
        shapes = group.shape[:2], group.shape[1:2]
        for name in group.file.children(group.group)[:_SEARCHED]:
            with suppress(InputError):  # what is not meant may be anything
                path = f"{group.group}/{name}".strip("/")
                stored = None if name in (*QUANTITIES, *ROTATIONS) else group.file.get(path)
                fits = stored and stored.dtype.kind == "f" and stored.shape[:-1] in shapes
                if stored and fits and _is_rotation(name, stored):
                    left.append(stored.where)
    more = f" and {len(left) - 1} more are" if left[1:] else " is"
    return [Note(f"{left[0]}{more} left out: name it as SOURCE")] if left else []


def _is_rotation(name: str, stored: Dataset) -> bool:
    """Whether its name or those of its dofs say that an array is a rotation, in whatever order."""
    dofs = stored.attributes.get("joint_names", ())
    try:
        return bool(named_rotations(name, dofs, stored.shape[-1], "", None, stored.where))
    except InputError:
        return True
