"""Which trajectories --episodes means."""

from __future__ import annotations

import re
from collections.abc import Sequence

from trajcli.errors import UsageError

ALL = "all"
_SLICE = re.compile(r"([+-]?\d{1,18})?(?::([+-]?\d{1,18})?(?::([+-]?\d{1,18})?)?)?")


def select(text: str | None, count: int) -> Sequence[int]:
    """The numbers that 3, 0:10 or -1 (or several, with commas) mean among ``count``.

    None and "all" mean all. Raises UsageError for what is not there.
    """
    if text is None or text.strip() == ALL:
        return range(count)
    chosen: list[int] = []
    for part in (part.strip() for part in text.split(",")):
        match = _SLICE.fullmatch(part)
        if not part or match is None or (match[3] and int(match[3]) == 0):
            raise UsageError(
                "not a selection",
                where="--episodes",
                expected="3, 0:10, 2,5,-1 or all",
                found=text if len(text) < 80 else f"{text[:77]}...",
            )
        if ":" in part:
            ends = (int(n) if n is not None else None for n in match.groups())
            chosen += range(count)[slice(*ends)]
        elif -count <= int(part) < count:
            chosen.append(int(part) % count)
        else:
            raise UsageError(
                "out of range",
                where="--episodes",
                expected=f"0 to {count - 1}, or -1 for the last"
                if count
                else "nothing: it is empty",
                found=part,
            )
    if not chosen:
        raise UsageError(
            "nothing selected", where="--episodes", expected=f"one or more of {count}", found=text
        )
    return list(dict.fromkeys(chosen))
