"""Which trajectories, dofs and rows --index, --dof and --rows mean."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np

from trajcli.errors import Fault, UsageError

ALL = "all"
_SLICE = re.compile(r"([+-]?\d{1,18})?(?::([+-]?\d{1,18})?(?::([+-]?\d{1,18})?)?)?")


def runs(numbers: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Numbers that follow one another, as begin and end."""
    if isinstance(numbers, range) and numbers.step == 1:
        if len(numbers):
            yield numbers.start, numbers.stop
        return
    values = np.asarray(numbers, np.int64)
    breaks = [0, *(np.flatnonzero(np.diff(values) != 1) + 1).tolist(), len(values)]
    yield from ((int(values[a]), int(values[b - 1]) + 1) for a, b in pairwise(breaks) if b > a)


def select(text: str | None, count: int, option: str, names: Sequence[str] = ()) -> Sequence[int]:
    """The numbers that 3, 0:10 or -1 (or several, with commas) mean among ``count``.

    None and "all" mean all. ``names`` may stand for the numbers. Raises UsageError for what is
    not there.
    """
    known = {name: i for i, name in enumerate(names)}
    if text is None or (text.strip() == ALL and ALL not in known):
        return range(count)
    chosen: list[int] = []
    for part in (part.strip() for part in text.split(",")):
        if part in known:
            chosen.append(known[part])
            continue
        match = _SLICE.fullmatch(part)
        if not part or match is None or (match[3] and int(match[3]) == 0):
            hint = f"or a name: {', '.join(names[:12])}" if names else ""
            wrong = text if len(text) < 80 else f"{text[:77]}..."
            raise UsageError(
                Fault("not a selection", option, "3, 0:10, 2,5,-1 or all", wrong, hint)
            )
        if ":" in part:
            begin, end, step = (int(n) if n is not None else None for n in match.groups())
            chosen += range(*slice(begin, end, step).indices(count))
            continue
        number = int(part)
        if not -count <= number < count:
            expected = f"0 to {count - 1}, or -1 for the last" if count else "nothing: it is empty"
            raise UsageError(Fault("out of range", option, expected, part))
        chosen.append(number % count)
    if not chosen:
        raise UsageError(Fault("nothing selected", option, f"one or more of {count}", text))
    return list(dict.fromkeys(chosen))


def select_rows(text: str | None, count: int) -> tuple[int, int]:
    """--rows as begin and end: one row, or a slice without a step."""
    numbers = select(text, count, "--rows")
    begin, end = (numbers[0], numbers[-1] + 1) if len(numbers) else (0, 0)
    if len(numbers) != end - begin or any(b < a for a, b in pairwise(numbers)):
        expected = "consecutive rows: 3, 0:10, -5: or all"
        raise UsageError(
            Fault("rows that do not follow one another", "--rows", expected, text or "")
        )
    return begin, end
