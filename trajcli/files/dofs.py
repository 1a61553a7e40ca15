"""Decides which dofs are read, by SOURCE[:7], --dofs and --joints, and which are rotations."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from trajcli.errors import Fault, InputError, UsageError, unknown
from trajcli.files.catalogue import Catalogue, Dataset, decode_text
from trajcli.files.conversion import convert_values, read_unit
from trajcli.kernels.program import NumpyArray
from trajcli.units import units_of_dofs

JOINED = "joined"
"""The attribute of arrays that were joined from several: only their dofs say what is a rotation."""
_PART = re.compile(r"(-?[0-9]{1,9})?(:?)(-?[0-9]{1,9})?")
WIDTHS = {"xyzw": 4, "wxyz": 4, "rotvec": 3, "rot6d": 6, "rot6d_rows": 6, "matrix": 9, "rpy": 3}
"""The number of dofs of a rotation in each form."""
ANGLES = ("rotvec", "rpy")
"""Forms whose numbers are angles, in rad or deg; numbers of the other forms have no unit."""
_AXES = re.compile(
    r"(.*(?:\b|_)(?:q|quat|quaternion|orientation|rotation)(?:[._]\w+)?[._]?)([wxyz])(.*)", re.I
)
_NUMBERED = re.compile(
    r"(.*(?:axis_?angle|rot_?vec|rot_?mat|rotation_matrix|(?:rot|rotation)_?6d(?:_?rows)?|6d_rot"
    r"|ortho6d|quat(?:ernion)?))[._]?[0-9]",
    re.I,
)
_ENDING = re.compile(r"(.*)([wxyz])()", re.I)
_FORMS = {"rotvec": "rot_?vec|axis_?angle", "rot6d_rows": "rot_?6d_?rows",
          "rot6d": "rot_?6d|rotation_?6d|6d_rot|ortho6d", "matrix": "rot_?mat|rotation_matrix",
          "quaternion": "quat(?:ernion)?s?|orientations?"}  # fmt: skip
_WORDS = {form: re.compile(f"(?:^|[^a-z])(?:{word})(?:[^a-z]|$)", re.I)
          for form, word in _FORMS.items()}  # fmt: skip
# The order of quaternions in each family of files.
_ORDERS = {"robomimic": "xyzw", "mimicgen": "xyzw", "robosuite": "xyzw", "libero": "xyzw",
           "ros": "xyzw", "isaaclab": "wxyz"}  # fmt: skip
# Rotations without a name are looked for in this many rows: enough for a motion to show that dofs
# keep norm 1 and are no constants, and little to read before every command.
_SAMPLED_ROWS = 1000
# The forms that neighbouring dofs may have, by the order of the dofs in the vectors of norm 1.
_UNNAMED = {(0, 1, 2, 3, 4, 5, 6, 7, 8): ("matrix",),
            (0, 1, 2, 3, 4, 5): ("rot6d", "rot6d_rows"),
            (0, 2, 4, 1, 3, 5): ("rot6d", "rot6d_rows"),
            (0, 1, 2, 3): ("xyzw", "wxyz")}  # fmt: skip
# How far norms and products of unit vectors may be from 1 and 0: CSV files may have three digits.
_ROUNDING = 2e-3
# Labels that are numbers, not names: 0, q_0, actual_qd[0], joint_0, A1. panda_joint1 is a name.
_NUMBERED_DOF = re.compile(
    r"((?:|j|a|m|joint|axis|motor|dof|data|(?:.*[^a-z])?(?:d{0,2}q|qd{1,2}|q?pos|q?vel|q?acc|jerk|tau"
    r"|position|velocity|velocitie|acceleration|angle|action|state|effort|torque|current)s?)"
    r"[ ._\[]*)([0-9]{1,9})\]?", re.I)  # fmt: skip


@dataclass(frozen=True)
class Dofs:
    """Some of ``count`` dofs: their ``numbers``, in the order in which they are read."""

    count: int
    numbers: Sequence[int]

    def pick(self, values: Any) -> Any:
        """Picks these dofs from values [..., count], or of more dofs, as [..., n].

        Any other values have these dofs already. Those of a Dataset are picked when it is read.
        """
        present = (values.shape or (0,))[-1] if hasattr(values, "shape") else len(values)
        if present != self.count and present <= len(self.numbers):
            return values
        if max(self.numbers) >= present:
            return values  # whose shape is then refused
        if isinstance(values, Dataset):
            first, last = self.numbers[0], self.numbers[-1] + 1
            # the rows of [count], a state that all trajectories share, are its dofs
            if values.ndim == 1:
                picked = replace(
                    values, reader=lambda *rows: np.take(values.read(), self.numbers)[slice(*rows)]
                )
            elif list(self.numbers) == list(range(first, last)):  # a slice copies no values
                picked = convert_values(values, lambda rows: rows[..., first:last])
            else:
                picked = convert_values(values, lambda rows: np.take(rows, self.numbers, -1))
            about = dict(values.attributes)
            if text := read_unit(values):
                about["units"] = units_of_dofs(text, self.numbers, present)
            return replace(picked, attributes=about, shape=(*values.shape[:-1], len(self.numbers)))
        if hasattr(values, "shape"):
            return values[..., list(self.numbers)]
        return [values[number] for number in self.numbers]


def parse_dofs(text: str, count: int, where: object, names: Sequence[str] = ()) -> Dofs:
    """Parses the dofs that 0:7, 2,5,-1, names or "all" mean among ``count``."""
    known = {name: number for number, name in enumerate(names)}
    numbers: list[int] = []
    every = text.strip() == "all" and "all" not in known
    for part in [":"] if every else [part.strip() for part in text.split(",")]:
        match = _PART.fullmatch(part)
        ends = [int(end) for end in match.group(1, 3) if end] if part and match else [count]
        # names come first: a dof may be called 3
        if part in known:
            numbers.append(known[part])
        # a range may end at count, a number may not
        elif match is None or not all(-count <= end < count + (":" in part) for end in ends):
            numbers = []
            break
        else:
            begin, colon, end = match.groups()
            run = range(count)[int(begin or 0) : int(end) if end else None]
            numbers += run if colon else [int(begin) % count]
    if not numbers:
        numbered = f"a range like 0:{count}, or numbers from 0 to {count - 1}"
        listed = ", ".join(names[:12]) + (", ..." if len(names) > 12 else "")
        by_name = f", or names: {listed}" if names else " (there are no names)"
        raise UsageError(
            "no such dofs",
            where=where,
            expected=(numbered if count else "no dofs") + by_name,
            found=text if len(text) < 80 else f"{text[:77]}...",
        )
    if len(set(numbers)) < len(numbers):
        what = "a dof that is picked twice"
        raise UsageError(what, where=where, expected="each once", found=text)
    return Dofs(count, numbers)


def match_names(names: Sequence[str], others: Sequence[str]) -> list[int | None]:
    """Finds for each name the number of the other name that means the same dof, or None.

    Names match in three steps: names that are equal; names that are equal in lower case, without
    the path before a slash and without ``.pos``, ``_pos``, ``_position``, ``_joint`` and
    ``joint_``; and names that differ in a prefix, as panda_joint1 and joint1. The last two steps
    match only names that fit one other name.
    """
    number = {other: k for k, other in enumerate(others)}
    matches = [number.get(name) for name in names]
    stems, other_stems = list(map(_stem, names)), list(map(_stem, others))
    for same in (str.__eq__, _differ_in_prefix):
        free = [k for k in range(len(others)) if k not in matches]
        left = [k for k, match in enumerate(matches) if match is None]
        pairs = [(a, b) for a in left for b in free if same(stems[a], other_stems[b])]
        for a, b in pairs:
            # a name that fits two others says nothing
            if sum(a == pair[0] or b == pair[1] for pair in pairs) == 1:
                matches[a] = b
    return matches


@dataclass(frozen=True)
class DofPairs:
    """The dofs that two sides share, as their numbers on each side.

    by: "name", or "place" where neither side has names. unpaired: those of side "a" or "b" alone.
    """

    first: Sequence[int]
    second: Sequence[int]
    by: str
    unpaired: dict[str, list[str]]

    @property
    def remark(self) -> str:
        return "; ".join(f"only in {k}: {', '.join(x)}" for k, x in self.unpaired.items() if x)


def pair_dofs(first: Sequence[str], second: Sequence[str], places: Sequence[object]) -> DofPairs:
    """Pairs the dofs of two sides by their labels.

    Names are matched by :func:`match_names`. Dofs without names are matched by their numbers or,
    where two sides of equal size have different numbers, by their order. Raises InputError where
    one side alone has names.
    """
    a, b = dof_numbers(first), dof_numbers(second)
    if a is not None and b is not None:
        if sorted(a) != sorted(b) and len(a) == len(b):
            return DofPairs(range(len(a)), range(len(a)), "place", {"a": [], "b": []})
        match = [b.index(number) if number in b else None for number in a]
    else:
        match = match_names(first, second)
    pairs = [(k, other) for k, other in enumerate(match) if other is not None]
    # names on one side and numbers on the other: only --joints can say which is which, except for
    # a single dof
    if (a is None) != (b is None) and len(pairs) < min(len(first), len(second)):
        if len(first) == len(second) == 1:
            return DofPairs([0], [0], "place", {"a": [], "b": []})
        without = int(a is None)
        names, labels = (first, second) if without else (second, first)
        raise InputError(
            "dofs with names on one side only",
            where=places[without],
            expected=f"names, as in {places[1 - without]}: {', '.join(names)}",
            found=", ".join(labels),
            hint=f"--joints {','.join(names)}, in the order of {', '.join(labels)}, names them"
            if len(names) == len(labels)
            else "FILE:DATASET[:n] takes as many of both, and --joints a,b,c names them",
        )
    ours, theirs = [k for k, _ in pairs], [k for _, k in pairs]
    unpaired = {"a": [name for k, name in enumerate(first) if k not in ours],
                "b": [name for k, name in enumerate(second) if k not in theirs]}  # fmt: skip
    return DofPairs(ours, theirs, "name", unpaired)


def dof_numbers(labels: Sequence[str]) -> list[int] | None:
    """Reads the numbers of dofs whose labels are numbers, such as q_0, q_1; None for names."""
    matches = [_NUMBERED_DOF.fullmatch(label) for label in labels]
    known = [(match[1], int(match[2])) for match in matches if match]
    alike = len(known) == len(set(known)) == len(labels) and len({stem for stem, _ in known}) < 2
    return [number for _, number in known] if alike else None


def _stem(name: str) -> str:
    """Strips the name of a joint of the words that projects add to it."""
    stem = re.sub(r"[._](pos|position)$", "", name.rpartition("/")[2].lower())
    return re.sub(r"^joint_(?=\D)|(?<=.)_joint$", "", stem)


def _differ_in_prefix(a: str, b: str) -> bool:
    long, short = sorted((a, b), key=len, reverse=True)
    return bool(short) and not short.isdecimal() and long.endswith(f"_{short}")


def parse_joints(text: str, count: int) -> list[str]:
    """Parses names a,b,c of ``count`` dofs. Raises UsageError unless there is one for each."""
    names = [name.strip() for name in text.split(",") if name.strip()]
    if not names:
        expected = "one or more, like a,b"
        raise UsageError("no names", where="--joints", expected=expected, found=repr(text))
    if len(names) != count or len(set(names)) != count:
        what, expected = "names that do not fit the dofs", f"{count} different names, one per dof"
        raise UsageError(what, where="--joints", expected=expected, found=",".join(names))
    return names


def pick_dofs(stored: Dataset, which: str | None) -> Dataset:
    """Picks the dofs that FILE:DATASET[which] names from a dataset [..., D]."""
    if which is None:
        return stored
    count = stored.shape[-1] if stored.ndim else 0
    picked: Dataset = parse_dofs(which, count, f"{stored.where}[{which}]").pick(stored)
    return picked


@dataclass(frozen=True)
class RotationDofs:
    """Dofs that are a rotation, by number and in the order of a form of ``rotations.FORMS``."""

    name: str
    dofs: tuple[int, ...]
    form: str

    @property
    def width(self) -> int:
        return len(self.dofs)

    def __str__(self) -> str:
        return f"{self.name} (dofs {', '.join(map(str, self.dofs))}: {self.form})"


def parse_rotations(text: str, count: int, names: Sequence[str]) -> tuple[RotationDofs, ...]:
    """Parses the rotations of WHICH=FORM, or FORM for all dofs; several with ";"."""
    rotations, where = list[RotationDofs](), f"--rotation {text}"
    for part in text.split(";") if text.strip() != "none" else ():
        which, _, form = part.strip().rpartition("=")
        if form not in WIDTHS:
            choices, hint = f"WHICH=FORM with {', '.join(WIDTHS)}, or none", ""
            if "euler" in form.lower():
                hint = "rpy is about fixed axes x, y, z; of other angles SciPy makes quaternions: "
                hint += "Rotation.from_euler(ORDER, angles).as_quat()"
            noun = "form of rotations"
            raise UsageError(unknown(noun, choices=choices, found=form, where=where, hint=hint))
        numbers = parse_dofs(which or "all", count, "--rotation", names).numbers
        width = WIDTHS[form]
        if len(numbers) % width:
            what, expected = f"not a multiple of {width} dofs", f"{width} for each {form}"
            found, hint = f"{len(numbers)}", f"--rotation 0:{width}={form} takes the first {width}"
            raise UsageError(what, where=where, expected=expected, found=found, hint=hint)
        rotations += _split(which or form, list(numbers), form)
    dofs = [dof for rotation in rotations for dof in rotation.dofs]
    if len(set(dofs)) < len(dofs):
        raise UsageError("dofs in two rotations", where=where, expected="each in one")
    return tuple(rotations)


def named_rotations(
    array: str, names: Sequence[str], count: int, family: str, order: Any, where: object,
    stored: Dataset | None = None,
) -> tuple[RotationDofs, ...]:  # fmt: skip
    """Finds the rotations that the names of dofs or of their array tell.

    order: the order of quaternions that the array states; if none is known, InputError is raised.
    stored: the values [B, T, D]; with these, four neighbouring dofs of norm 1 whose names end in w,
    x, y and z are a quaternion without a word for a rotation.
    """
    # four names that differ in w, x, y and z alone are a quaternion
    axes: dict[tuple[str, str], dict[str, int]] = {}
    numbered: dict[str, list[int]] = {}
    for number, name in enumerate(names):
        if match := _AXES.fullmatch(name) or (stored and _ENDING.fullmatch(name)):
            axes.setdefault((match[1], match[3]), {})[match[2].lower()] = number
        elif match := _NUMBERED.fullmatch(name):
            numbered.setdefault(match[1], []).append(number)
    rotations = list[RotationDofs]()
    for (before, after), by_axis in axes.items():
        if len(by_axis) < 4:
            continue
        if stored is not None and not _AXES.fullmatch(names[by_axis["w"]]):
            # without a word for a rotation the values decide
            dofs = sorted(by_axis.values())
            if dofs[3] != dofs[0] + 3 or unit_columns(_sample_rows(stored)[:, dofs]) is None:
                continue
        name = f"{before}{after}".strip("._") or "q"
        rotations.append(RotationDofs(name, tuple(by_axis[axis] for axis in "wxyz"), "wxyz"))
    # names of dofs say more than the name of their array
    if not rotations and not numbered:
        numbered = {array.rpartition("/")[2]: list(range(count))}
    for name, dofs in numbered.items():
        form = next((form for form, words in _WORDS.items() if words.search(name)), "")
        if not form or len(dofs) % WIDTHS.get(form, 4):
            continue
        # the order: in the name, else by the array, else by the habit of the family of files
        if form == "quaternion":
            text = f"{name} {decode_text(order) if order is not None else _ORDERS.get(family, '')}"
            form = next((form for form in ("xyzw", "wxyz") if form in text.lower()), "")
            if not form:
                raise InputError(
                    "quaternions whose order is not known",
                    where=where,
                    expected="x, y, z, w (SciPy, ROS) or w, x, y, z (MuJoCo, Isaac)",
                    hint="--rotation xyzw or --rotation wxyz says it; --rotation none takes dofs",
                )
        rotations += _split(name, dofs, form)
    return tuple(rotations)


def unit_columns(values: NumpyArray, order: Sequence[int] = range(4)) -> int | None:
    """Finds the first of neighbouring columns [T, D] that are, in this order, four of norm 1 or
    orthonormal triples, in all rows without NaN; None if there are none."""
    for first in range(values.shape[1] - max(order)):
        columns = values[:, [first + k for k in order]].astype(np.float64)
        columns = columns[np.isfinite(columns).all(1)]
        # columns that do not change, or are only 0 and 1, are no rotation that anybody recorded
        if len(columns) < 2 or np.isin(columns, (0.0, 1.0)).all() or (columns == columns[0]).all():
            continue
        vectors = columns.reshape(len(columns), -1, 3 if len(order) > 4 else 4)
        # V Vᵀ = 1: norms on the diagonal, products of different vectors next to it
        products = vectors @ vectors.swapaxes(1, 2)
        if (abs(products - np.eye(vectors.shape[1])) < _ROUNDING).all():
            return first
    return None


def unnamed_rotation(stored: Dataset) -> Fault | None:
    """Makes the fault of an array [B, T, D] with dofs that look like a rotation; None without."""
    if 0 in stored.shape or stored.shape[2] < 4 or stored.dtype.kind != "f":
        return None
    rows = _sample_rows(stored)
    # the longest forms first: parts of a matrix look like shorter forms
    for order, forms in _UNNAMED.items():
        if (first := unit_columns(rows, order)) is None:
            continue
        count, dofs = len(order), [first + k for k in order]
        which = f"{first}:{first + count}" if order[1] == 1 else ",".join(map(str, dofs))
        ways = " (or =".join(forms) + (")" if forms[1:] else "")
        what = f"{count} dofs that are orthonormal in all rows, as in a rotation matrix"
        if count == 4:
            what = "four dofs whose norm is 1 in all rows, as for a quaternion"
        return Fault(
            what,
            where=stored.where,
            expected="names, or --rotation, that say what they are",
            found=f"dofs {first} to {first + count - 1}",
            hint=f"--rotation {which}={ways} reads them as a rotation, "
            f"--rotation none as {count} dofs",
        )
    return None


def _sample_rows(stored: Dataset) -> NumpyArray:
    """Reads the first rows [T, D] of the first trajectory, where rotations are looked for."""
    rows = stored.read_part(0, 1, 0, min(stored.shape[1], _SAMPLED_ROWS))
    return np.asarray(rows).reshape(-1, stored.shape[2])


def _split(name: str, dofs: Sequence[int], form: str) -> Iterator[RotationDofs]:
    """Yields the rotations of consecutive dofs, numbered if there are several."""
    width = WIDTHS[form]
    for k in range(0, len(dofs), width):
        number = f"{k // width}" if len(dofs) > width else ""
        yield RotationDofs(name + number, tuple(dofs[k : k + width]), form)


def count_bodies(file: Catalogue) -> int:
    """Counts the rotations in a row [..., R, 4] of an output of trajcli; 1 for other files."""
    count = file.attributes().get("rotations", 1)
    return int(count) if isinstance(count, (int, np.integer)) else 1
