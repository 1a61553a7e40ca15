"""Differences for people: a table, what cannot be compared, and the verdict."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from trajcli.views.diff import Difference
from trajcli.views.terminal import Table, cut

if TYPE_CHECKING:
    from rich.console import RenderableType

_HEADINGS = ("dataset", "> differ", "> beyond", "> absolute", "> relative", "> ulp", "> RMS")
_LONGEST, _BEFORE = 60, 20
"""Letters that are shown of texts that differ, and how many before the first difference."""
_LISTED = 3
"""More datasets whose names differ in numbers only share a line."""


def report(
    sources: tuple[str, str],
    differences: Sequence[Difference],
    attributes: Sequence[tuple[str, Any, Any]],
    verbose: bool,
) -> Iterator[RenderableType]:
    """What differs and by how much; with ``verbose`` every dataset on a line of its own."""
    from rich.text import Text

    yield Text(f"a: {sources[0]}\nb: {sources[1]}\n")
    lines = _lines(differences, verbose)
    compared = [(name, members) for name, members in lines if any(one.values for one in members)]
    if compared:
        yield Table(_HEADINGS, [_row(name, members) for name, members in compared])
    for name, members in compared:
        worst = max(members, key=lambda one: (one.at is not None, one.absolute))
        if worst.at is not None:
            a, b = _pair(worst.a, worst.b)
            group = f"{worst.dataset.rpartition('/')[0]} " if len(members) > 1 else ""
            yield Text(f"{name}: worst at {group}{list(worst.at)}, a = {a}, b = {b}")
    for name, members in lines:
        if notes := [one for one in members if one.why or one.note]:
            first = min(notes, key=lambda one: not one.why)
            more = f" and {len(notes) - 1} more" if len(notes) > 1 else ""
            which = f": {first.dataset}{more}" if len(members) > 1 else ""
            yield Text(f"{name}: {first.why or first.note}{which}")
    for name, a, b in attributes:
        texts = " and ".join(_short(a, b))
        yield Text(f"attribute {name}: {texts}")
    if differences and not compared:
        yield Text("no dataset is in both: name one of each; --episodes all goes by trajectories")
    failed = sum(not one.passed for one in differences)
    yield Text(f"\n{_verdict(differences, failed)}", "bold red" if failed else "")


def _lines(
    differences: Sequence[Difference], verbose: bool
) -> list[tuple[str, Sequence[Difference]]]:
    """Differences, many whose groups differ in numbers only together: data/demo_*/position."""
    patterns: dict[str, list[Difference]] = {}
    for one in differences:
        group, slash, name = one.dataset.rpartition("/")
        patterns.setdefault(re.sub(r"\d+", "*", group) + slash + name, []).append(one)
    lines: list[tuple[str, Sequence[Difference]]] = []
    for pattern, members in patterns.items():
        if verbose or len(members) <= _LISTED:
            lines += [(one.dataset or "values", [one]) for one in members]
        else:
            lines.append((f"{pattern} ({len(members)})", members))
    return lines


def _row(name: str, members: Sequence[Difference]) -> list[str]:
    differing = sum(one.differing for one in members)
    if not differing:
        return [name, "0"]
    return [
        name,
        str(differing),
        str(sum(one.beyond for one in members)),
        f"{max(one.absolute for one in members):.3g}",
        f"{max(one.relative for one in members):.3g}",
        f"{max(one.ulp for one in members):.4g}",
        f"{(sum(one.square for one in members) / sum(one.values for one in members)) ** 0.5:.3g}",
    ]


def _pair(a: float | str | None, b: float | str | None) -> tuple[str, str]:
    """Two values, with as many digits as tell them apart."""
    if not (isinstance(a, float) and isinstance(b, float)):
        return str(a), str(b)
    pairs = ((f"{a:.{digits}g}", f"{b:.{digits}g}") for digits in range(6, 18))
    return next((pair for pair in pairs if pair[0] != pair[1]), (repr(a), repr(b)))


def _short(a: Any, b: Any) -> tuple[str, str]:
    """Two texts that differ, cut; where they begin alike, from before the place where they part."""
    texts = ["absent" if value is None else " ".join(str(value).split()) for value in (a, b)]
    if texts[0] == texts[1]:  # they differ in spaces and ends of lines, or in type
        texts = [repr(value) for value in (a, b)]
    pairs = enumerate(zip(*texts, strict=False))
    alike = next((i for i, (x, y) in pairs if x != y), min(map(len, texts)))
    begin = max(0, alike - _BEFORE)
    if begin and max(map(len, texts)) > _LONGEST:
        texts = [f"…{text[begin:]}" for text in texts]
    return cut(texts[0], _LONGEST), cut(texts[1], _LONGEST)


def _verdict(differences: Sequence[Difference], failed: int) -> str:
    datasets = f"{len(differences)} dataset{'s' * (len(differences) != 1)}"
    if failed:
        differ = "differs" if failed == 1 else "differ"
        return f"{failed} of {datasets} {differ} by more than allowed"
    if not differences:
        return "no datasets to compare"
    count = sum(one.differing for one in differences)
    numbers = f"{count} number{' differs' if count == 1 else 's differ'}, within the tolerance"
    return f"{datasets}: {numbers if count else 'equal'}"
