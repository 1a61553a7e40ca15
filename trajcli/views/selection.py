"""--index, --dof, --rows and --value: which trajectories, dofs, rows and number are meant."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from trajcli.errors import Fault, UsageError

ALL = "all"
_SLICE = re.compile(r"([+-]?\d+)?(?::([+-]?\d+)?(?::([+-]?\d+)?)?)?")
_VALUE = re.compile(r"(?P<name>[^\[\]]*)(?:\[(?P<index>[^\[\]]*)\])?")


def select(text: str | None, count: int, option: str, names: Sequence[str] = ()) -> Sequence[int]:
    """The numbers 3, 0:10 or -1 (separated by commas) mean among ``count``; all of "all" or None.

    ``names``: what may stand for the numbers. Raises UsageError for what is not there.
    """
    known = {name: i for i, name in enumerate(names)}
    if text is None or (text.strip() == ALL and ALL not in known):
        return range(count)
    found: list[int] = []
    for part in (piece.strip() for piece in text.split(",")):
        if part in known:
            found.append(known[part])
            continue
        match = _SLICE.fullmatch(part)
        if not part or match is None or match[3] in ("0", "-0", "+0"):
            hint = f"or a name: {', '.join(names[:12])}" if names else ""
            raise UsageError(Fault("not a selection", option, "3, 0:10, 2,5,-1 or all", text, hint))
        if ":" in part:
            begin, end, step = (int(n) if n is not None else None for n in match.groups())
            found += range(*slice(begin, end, step).indices(count))
            continue
        number = int(part)
        if not -count <= number < count:
            expected = f"0 to {count - 1}, or -1 for the last" if count else "none: there are none"
            raise UsageError(Fault("out of range", option, expected, part))
        found.append(number % count)
    if not found:
        raise UsageError(Fault("nothing selected", option, f"some of the {count} there are", text))
    return list(dict.fromkeys(found))


def rows_of(text: str | None, count: int) -> tuple[int, int]:
    """--rows as begin and end: one row, or a slice without a step."""
    numbers = select(text, count, "--rows")
    begin, end = (numbers[0], numbers[-1] + 1) if len(numbers) else (0, 0)
    if len(numbers) != end - begin or any(b < a for a, b in pairwise(numbers)):
        expected = "like 3, 0:10, -5: or all"
        raise UsageError(Fault("not one run of rows", "--rows", expected, text or ""))
    return begin, end


@dataclass(frozen=True)
class Value:
    """NAME[i, j, k]: one number of an array."""

    name: str
    index: tuple[int, ...]


def parse_value(text: str) -> Value:
    """position[3,-1,2]; raises UsageError for anything else."""
    match = _VALUE.fullmatch(text.strip())
    expected = "DATASET[i,j,k], like position[3,-1,2]"
    if match is None:
        raise UsageError(Fault("not one number", "--value", expected, repr(text)))
    parts = [part.strip() for part in (match["index"] or "").split(",") if part.strip()]
    if not all(re.fullmatch(r"[+-]?\d+", part) for part in parts):
        raise UsageError(Fault("not one number", "--value", expected, repr(text)))
    return Value(match["name"].strip("/ "), tuple(map(int, parts)))
