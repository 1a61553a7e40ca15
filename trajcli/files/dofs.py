"""Some of the dofs: what SOURCE[:7], --dofs and --joints mean, and arrays of these alone."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from trajcli.errors import UsageError
from trajcli.files.arrays import Dataset
from trajcli.files.conversion import converted, stated_unit

_PART = re.compile(r"(-?[0-9]{1,9})?(:?)(-?[0-9]{1,9})?")


@dataclass(frozen=True)
class Dofs:
    """Some of ``count`` dofs: their ``numbers``, in the order in which they are wanted."""

    count: int
    numbers: Sequence[int]

    def pick(self, values: Any) -> Any:
        """Returns values [..., count], or of more dofs, as [..., n]; any others are of these dofs
        already.

        values: a Dataset, whose values are picked when they are read, an array, or a list.
        """
        present = (values.shape or (0,))[-1] if hasattr(values, "shape") else len(values)
        if present != self.count and present <= len(self.numbers):
            return values
        if max(self.numbers) >= present:
            return values  # whose shape is then refused
        if isinstance(values, Dataset):
            first, last = self.numbers[0], self.numbers[-1] + 1
            if values.ndim == 1:  # [count], a state that all share: its rows are its dofs
                picked = replace(
                    values, reader=lambda *rows: np.take(values.read(), self.numbers)[slice(*rows)]
                )
            elif list(self.numbers) == list(range(first, last)):
                picked = converted(values, lambda rows: rows[..., first:last])
            else:
                picked = converted(values, lambda rows: np.take(rows, self.numbers, -1))
            units = stated_unit(values).split(",")
            if len(units) == present > 1:
                units = [units[number] for number in self.numbers]
                attributes = {**values.attributes, "units": ",".join(units)}
                picked = replace(picked, attributes=attributes)
            return replace(picked, shape=(*values.shape[:-1], len(self.numbers)))
        if hasattr(values, "shape"):
            return values[..., list(self.numbers)]
        return [values[number] for number in self.numbers]


def parse_dofs(text: str, count: int, where: str, names: Sequence[str] = ()) -> Dofs:
    """Returns the dofs that 0:7, 2,5,-1, names or "all" mean among ``count``.

    where: the option, for messages. Raises UsageError for dofs that are not there, or named twice.
    """
    known = {name: number for number, name in enumerate(names)}
    numbers: list[int] = []
    every = text.strip() == "all" and "all" not in known
    for part in [":"] if every else [part.strip() for part in text.split(",")]:
        match = _PART.fullmatch(part)
        ends = [int(end) for end in match.group(1, 3) if end] if part and match else [count]
        if part in known:
            numbers.append(known[part])
        elif match is None or not all(-count <= end < count + (":" in part) for end in ends):
            raise _no_such_dofs(text, count, where, names)
        else:
            begin, colon, end = match.groups()
            run = range(count)[int(begin or 0) : int(end) if end else None]
            numbers += run if colon else [int(begin) % count]
    if not numbers:
        raise _no_such_dofs(text, count, where, names)
    if len(set(numbers)) < len(numbers):
        raise UsageError(
            "a dof that is picked twice", where=where, expected="each once", found=text
        )
    return Dofs(count, numbers)


def match_names(names: Sequence[str], others: Sequence[str]) -> list[int | None]:
    """Returns for each name the number of the other name that means the same dof, or None.

    Names match where they are equal; else, in upper or lower case, where they are after what comes
    before a slash, ``.pos``, ``_pos``, ``_position``, ``_joint`` and ``joint_`` are taken off; else
    where one is the other behind a prefix, panda_joint1 and joint1. A match of the last two kinds
    is one that no second name has.
    """
    number = {other: k for k, other in enumerate(others)}
    found = [number.get(name) for name in names]
    stems, other_stems = list(map(_stem, names)), list(map(_stem, others))
    for alike in (str.__eq__, _behind_prefix):
        free = [k for k in range(len(others)) if k not in found]
        left = [k for k, match in enumerate(found) if match is None]
        pairs = [(a, b) for a in left for b in free if alike(stems[a], other_stems[b])]
        for a, b in pairs:
            if sum(a == pair[0] or b == pair[1] for pair in pairs) == 1:
                found[a] = b
    return found


def _stem(name: str) -> str:
    """Returns the name of a joint without what projects add to it."""
    stem = re.sub(r"[._](pos|position)$", "", name.rpartition("/")[2].lower())
    return re.sub(r"^joint_(?=\D)|(?<=.)_joint$", "", stem)


def _behind_prefix(a: str, b: str) -> bool:
    long, short = sorted((a, b), key=len, reverse=True)
    return bool(short) and not short.isdecimal() and long.endswith(f"_{short}")


def parse_joints(text: str, count: int) -> list[str]:
    """Parses the names a,b,c of so many dofs. Raises UsageError unless there is one for each."""
    names = [name.strip() for name in text.split(",") if name.strip()]
    if not names:
        raise UsageError(
            "no names", where="--joints", expected="one or more, like a,b", found=repr(text)
        )
    if len(names) != count or len(set(names)) != count:
        raise UsageError(
            "names that do not fit the dofs",
            where="--joints",
            expected=f"{count} different names, one per dof",
            found=",".join(names),
        )
    return names


def pick_dofs(stored: Dataset, which: str | None) -> Dataset:
    """Returns a dataset [..., D] with only the dofs that FILE:DATASET[which] names."""
    if which is None:
        return stored
    count = stored.shape[-1] if stored.ndim else 0
    picked: Dataset = parse_dofs(which, count, f"{stored.where}[{which}]").pick(stored)
    return picked


def _no_such_dofs(text: str, count: int, where: str, names: Sequence[str]) -> UsageError:
    expected = f"a range like 0:{count}, or numbers from 0 to {count - 1}" if count else "no dofs"
    listed = ", ".join(names[:12]) + (", ..." if len(names) > 12 else "")
    expected += f", or names: {listed}" if names else " (there are no names)"
    return UsageError(
        "no such dofs",
        where=where,
        expected=expected,
        found=text if len(text) < 80 else f"{text[:77]}...",
    )
