"""Differences as a table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from trajcli.views.differences import Difference
from trajcli.views.screen import Screen, shown, shown_list
from trajcli.views.tables import table

_HEADINGS = ("dataset", "differ", "beyond", "absolute", "relative", "ulp", "worst at", "a", "b")
_SIDES = ("left", *["right"] * 5, "left", "right", "right")
_UNNAMED = "values"
"""What the one array of a .npy is called."""
_WIDE = 100
"""Below this width the two numbers that are worst are left out."""


def comparison(
    first: str,
    second: str,
    differences: Sequence[Difference],
    apart: Sequence[tuple[str, Any, Any]],
    screen: Screen,
) -> Iterator[str]:
    """What differs and by how much, and the sum of it."""
    yield f"a: {shown(first)}"
    yield f"b: {shown_list(second)}"
    yield ""
    shown_columns = len(_HEADINGS) - (0 if screen.width >= _WIDE else 2)
    columns = list(zip(_HEADINGS, _SIDES, strict=True))[:shown_columns]
    rows = [_row(difference)[:shown_columns] for difference in differences if not difference.why]
    if rows:
        yield from table(columns, rows, screen)
    for difference in differences:
        if difference.why:
            yield f"{shown(difference.dataset or _UNNAMED)}: {difference.why}"
    for name, a, b in apart:
        yield f"attribute {shown(name)}: {shown_list(str(a))} and {shown_list(str(b))}"
    yield ""
    failed = [difference for difference in differences if not difference.passed]
    differing = sum(difference.differing for difference in differences)
    if failed:
        datasets = "dataset" if len(differences) == 1 else "datasets"
        differ = "differs" if len(failed) == 1 else "differ"
        count = f"{len(failed)} of {len(differences)} {datasets} {differ} by more than allowed"
        yield screen.alarming(count)
    elif not differences:
        yield "no datasets to compare"
    else:
        count = f"{differing} numbers differ" if differing > 1 else "1 number differs"
        within = f"{count}, within what is allowed" if differing else "equal"
        plural = "s" if len(differences) > 1 else ""
        yield f"{len(differences)} dataset{plural}: {within}"


def _row(difference: Difference) -> list[str]:
    name = difference.dataset or _UNNAMED
    if not difference.differing:
        return [name, "0", "0", "0", "0", "0", "", "", ""]
    at = ", ".join(map(str, difference.at or ()))
    return [
        name,
        str(difference.differing),
        str(difference.beyond),
        f"{difference.absolute:.3g}",
        f"{difference.relative:.3g}",
        f"{difference.ulp:.4g}",
        f"[{at}]",
        *(one if isinstance(one, str) else f"{one:.9g}" for one in difference.pair),
    ]
