"""Which dofs are rotations: those that --rotation names, or that are called so."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from trajcli.errors import InputError, UsageError
from trajcli.files.arrays import text_of
from trajcli.files.dofs import parse_dofs

WIDTHS = {"xyzw": 4, "wxyz": 4, "rotvec": 3, "rot6d": 6, "matrix": 9}
"""How many dofs a rotation is in each form."""
_AXES = re.compile(
    r"(.*(?:\b|_)(?:q|quat|quaternion|orientation|rotation)(?:[._]\w+)?[._]?)([wxyz])(.*)", re.I
)
_NUMBERED = re.compile(r"(.*(?:axis_?angle|rot_?vec|rot_?6d|quat(?:ernion)?))[._]?[0-9]", re.I)
_WORDS = {"rotvec": "rot_?vec|axis_?angle", "rot6d": "rot_?6d|rotation_?6d|6d_rot|ortho6d",
          "matrix": "rot_?mat|rotation_matrix",
          "quaternion": "quat(?:ernion)?s?|orientations?"}  # fmt: skip
# The order of quaternions in families of files.
_ORDERS = {"robomimic": "xyzw", "mimicgen": "xyzw", "robosuite": "xyzw", "libero": "xyzw",
           "ros": "xyzw", "isaaclab": "wxyz"}  # fmt: skip
_ROUNDING = 1e-5


@dataclass(frozen=True)
class RotationDofs:
    """Dofs that are a rotation, by number and in the order of a form of ``rotations.FORMS``."""

    name: str
    dofs: tuple[int, ...]
    form: str

    @property
    def width(self) -> int:
        """How many dofs it is."""
        return len(self.dofs)

    def __str__(self) -> str:
        return f"{self.name} (dofs {', '.join(map(str, self.dofs))}: {self.form})"


def parse_rotations(text: str, count: int, names: Sequence[str]) -> tuple[RotationDofs, ...]:
    """Returns the rotations that WHICH=FORM, or FORM for all dofs, names; several with ";".

    Raises UsageError for another form, or dofs that are not as many as it takes.
    """
    rotations: list[RotationDofs] = []
    for part in text.split(";") if text.strip() != "none" else ():
        which, _, form = part.strip().rpartition("=")
        if form not in WIDTHS:
            raise UsageError(
                "unknown form of rotations",
                where=f"--rotation {text}",
                expected="WHICH=FORM with xyzw, wxyz, rotvec, rot6d or matrix, or none",
                found=form,
            )
        numbers, width = (
            parse_dofs(which or "all", count, "--rotation", names).numbers,
            WIDTHS[form],
        )
        if len(numbers) % width:
            raise UsageError(
                f"dofs that are no {form}",
                where=f"--rotation {text}",
                expected=f"{width} for each rotation",
                found=f"{len(numbers)}",
                hint=f"--rotation 0:{width}={form} takes the first {width}",
            )
        rotations += _split(which or form, list(numbers), form)
    dofs = [dof for rotation in rotations for dof in rotation.dofs]
    if len(set(dofs)) < len(dofs):
        raise UsageError("dofs of two rotations", where=f"--rotation {text}", expected="of one")
    return tuple(rotations)


def named_rotations(
    array: str, names: Sequence[str], count: int, family: str, order: Any, where: str
) -> tuple[RotationDofs, ...]:
    """Returns the rotations that the names of dofs or of their array tell.

    array: the name of the array. names: of its dofs, where there are any. order: what the array
    says of the order of its quaternions. Raises InputError for quaternions of unknown order.
    """
    axes: dict[tuple[str, str], dict[str, int]] = {}
    numbered: dict[str, list[int]] = {}
    for number, name in enumerate(names):
        if match := _AXES.fullmatch(name):
            axes.setdefault((match[1], match[3]), {})[match[2].lower()] = number
        elif match := _NUMBERED.fullmatch(name):
            numbered.setdefault(match[1], []).append(number)
    rotations = [
        RotationDofs(
            f"{before}{after}".strip("._") or "q", tuple(by[axis] for axis in "wxyz"), "wxyz"
        )
        for (before, after), by in axes.items()
        if len(by) == 4
    ]
    if not rotations and not numbered:
        last = array.rpartition("/")[2]
        numbered = {last: list(range(count))}
    for name, dofs in numbered.items():
        kind = next(
            (
                k
                for k, w in _WORDS.items()
                if re.search(f"(?:^|[^a-z])(?:{w})(?:[^a-z]|$)", name, re.I)
            ),
            "",
        )
        if kind == "quaternion" and not len(dofs) % 4:
            text = f"{name} {text_of(order) if order is not None else _ORDERS.get(family, '')}"
            form = next((form for form in ("xyzw", "wxyz") if form in text.lower()), "")
            if not form:
                raise InputError(
                    "quaternions whose order is not known",
                    where=where,
                    expected="x, y, z, w (SciPy, ROS) or w, x, y, z (MuJoCo, Isaac)",
                    hint="--rotation xyzw or --rotation wxyz says it; --rotation none takes dofs",
                )
            rotations += _split(name, dofs, form)
        elif kind and kind != "quaternion" and not len(dofs) % WIDTHS[kind]:
            rotations += _split(name, dofs, kind)
    return tuple(rotations)


def unit_columns(values: npt.NDArray[Any]) -> int | None:
    """Returns the first of four neighbouring columns [T, D] whose norm is 1 in all rows.

    Columns that do not change, or are 0 and 1 alone, are no rotation that anybody recorded.
    """
    if values.dtype.kind != "f" or len(values) < 2:
        return None
    squares = values.astype(np.float64) ** 2
    for first in range(values.shape[1] - 3):
        columns = values[:, first : first + 4]
        norms = np.sqrt(squares[:, first : first + 4].sum(1))
        if (abs(norms - 1.0) < _ROUNDING).all():
            moving = (columns != columns[0]).any()
            if moving and not np.isin(columns, (0.0, 1.0)).all():
                return first
    return None


def _split(name: str, dofs: Sequence[int], form: str) -> Iterator[RotationDofs]:
    """Rotations one after the other, numbered where there are several."""
    width = WIDTHS[form]
    for k in range(0, len(dofs), width):
        number = f"{k // width}" if len(dofs) > width else ""
        yield RotationDofs(name + number, tuple(dofs[k : k + width]), form)
