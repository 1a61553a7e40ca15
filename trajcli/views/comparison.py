"""Differences as a table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from trajcli.views.differences import Difference
from trajcli.views.screen import Screen, shown, shown_list
from trajcli.views.tables import fits, table

_HEADINGS = ("dataset", "differ", "beyond", "absolute", "relative", "ulp", "worst at", "a", "b")
_SIDES = ("left", *["right"] * 5, "left", "right", "right")
_UNNAMED = "values"
"""What the one array of a .npy is called."""
_PAIR = 2
"""The last columns: the two numbers that are worst. Where there is no room they are told below."""


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
    columns = list(zip(_HEADINGS, _SIDES, strict=True))
    rows = [_row(difference) for difference in differences if not difference.why]
    if rows:
        yield from _table(columns, rows, screen)
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


def _table(
    columns: Sequence[tuple[str, str]], rows: Sequence[Sequence[str]], screen: Screen
) -> Iterator[str]:
    """All columns; or those but the pair, and the pair of each dataset on a line of its own."""
    few = columns[:-_PAIR], [row[:-_PAIR] for row in rows]
    if fits(columns, rows, screen) or not fits(*few, screen):
        yield from table(columns, rows, screen)
        return
    yield from table(*few, screen)
    for row in rows:
        if row[-_PAIR]:
            yield f" {shown(row[0])} at {row[-_PAIR - 1]}: a = {row[-2]}, b = {row[-1]}"


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
