"""Scores of the trajectories of a source: computed block by block, listed, held to conditions."""

from __future__ import annotations

import csv
import io
import operator
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from trajcli.errors import Fault, InputError, UsageError, raise_if_any
from trajcli.files.limits import Limits
from trajcli.files.reader import Files, read_sources
from trajcli.files.schema import QUANTITIES, unit_of
from trajcli.files.time import Time
from trajcli.scores import UNITS, Scores, block_extremes, block_scores, saturation
from trajcli.views.export import cell
from trajcli.views.selection import select
from trajcli.views.terminal import Table, number
from trajcli.views.trajectories import Batch, Progress, batches, main_batch

if TYPE_CHECKING:
    from rich.console import RenderableType

_CONDITION = re.compile(r"\s*(\w+)\s*(>=|<=|>|<)\s*([-+.\w]+)\s*")
_COMPARE = {">": operator.gt, "<": operator.lt, ">=": operator.ge, "<=": operator.le}
_BASES = ("rad", "deg", "m", "mm")
_OF_PEAKS = {"rms_jerk", "p95_jerk", "log_jerk", "limit_share"}
"""Scores that a few rows can make."""
_LISTED = 10
"""Trajectories that a sorted table shows."""


class Condition(NamedTuple):
    """A score that makes a trajectory fail: p95_jerk > 50."""

    text: str
    score: str
    sign: str
    value: float


@dataclass(frozen=True)
class ScoreTable:
    """Scores [n] by name, NaN where there is none, of the trajectories ``names`` [n].

    rows: of the shortest and the longest. notes: what was derived, or is not known.
    """

    label: str
    names: Sequence[str]
    scores: Scores
    units: Mapping[str, str]
    rows: tuple[int, int]
    notes: Sequence[str]

    def values(self, name: str, option: str) -> Any:
        """A score [n]; raises UsageError for one that there is none of."""
        if name not in self.scores:
            what = f"no such score of {self.label}" if name in UNITS else "no such score"
            hint = "--limits FILE" if name == "limit_share" else ""
            raise UsageError(Fault(what, option, ", ".join(self.scores), name, hint))
        return self.scores[name]

    def order(self, sort: str | None) -> Any:
        """The numbers of the trajectories, the largest score first; with -NAME the least."""
        if sort is None:
            return np.arange(len(self.names))
        values = self.values(sort.removeprefix("-"), "--sort")
        return np.argsort(values if sort[:1] == "-" else -values, kind="stable")

    def failing(self, condition: Condition) -> Any:
        """The numbers of the trajectories that fail, the worst first; so does what has no score."""
        values = self.values(condition.score, "--fail")
        failing = ~np.isfinite(values) | _COMPARE[condition.sign](values, condition.value)
        order = self.order(("" if condition.sign[0] == ">" else "-") + condition.score)
        return order[failing[order]]

    def summary(self) -> dict[str, dict[str, Any]]:
        """By score: unit, least, median and largest, which trajectories, and how many have none."""
        lines: dict[str, dict[str, Any]] = {}
        for name, values in self.scores.items():
            known = np.flatnonzero(np.isfinite(values))
            lines[name] = {"unit": self.units[name], "absent": len(values) - len(known)}
            if len(known):
                low, high = known[values[known].argmin()], known[values[known].argmax()]
                lines[name] |= {"least": values[low], "median": np.median(values[known]),
                                "largest": values[high], "least_at": self.names[low],
                                "largest_at": self.names[high]}  # fmt: skip
        return lines

    def lines(self, sort: str | None) -> Iterator[dict[str, Any]]:
        """A row per trajectory, for JSON and CSV."""
        for i in self.order(sort).tolist():
            yield {"trajectory": self.names[i], **{n: v[i].item() for n, v in self.scores.items()}}


def parse_conditions(texts: Sequence[str]) -> list[Condition]:
    """--fail as typed; raises UsageError for what is no condition, and names the scores."""
    conditions, faults = [], []
    for text in texts:
        try:
            name, sign, value = _CONDITION.fullmatch(text).groups()  # type: ignore[union-attr]
            conditions.append(Condition(text.strip(), name, sign, float(value)))
            if name not in UNITS or np.isnan(float(value)):
                raise ValueError
        except (AttributeError, ValueError):
            expected = f"SCORE>NUMBER (or <, >=, <=); scores are {', '.join(UNITS)}"
            faults.append(Fault("not a condition", "--fail", expected, text))
    raise_if_any(faults, UsageError)
    return conditions


def score_source(
    files: Files,
    source: str,
    limits: Limits | None = None,
    index: str | None = None,
    time: Time | None = None,
    on_progress: Progress = lambda done, total: None,
) -> ScoreTable:
    """The scores of the trajectories that a source names; time: in place of what the file says.

    Raises InputError where there are no trajectories, or no time step.
    """
    batch, others = _alike(batches(read_sources(files, [source])))
    if batch is None or any(0 in one.shape for one in batch.sets):
        expected = "trajectories with rows and dofs"
        raise InputError(Fault("nothing to score", source, expected, "an empty array"))
    for one in batch.sets if time is not None else ():
        one.time = time.fitted(*one.shape[:2], one.of_actions, one.lengths)  # type: ignore[union-attr]
    numbers = np.asarray(select(index, batch.count))
    by_length = np.argsort(batch.lengths[numbers], kind="stable")  # for few, large blocks
    stored, notes = _quantities(batch)
    notes += [f"not scored: {', '.join(others)}; FILE:DATASET names one"] if others else []
    if batch.one_sided:
        rows = f"the first and the last {batch.one_sided} rows, whose windows are one-sided"
        notes.append(f"jerk and limit_share without {rows}")
    first = next(iter(stored))
    bounds, units = {}, _units(batch, stored)
    if limits is not None:
        picked = batch.first.dofs
        tables = limits.bounds(batch.dofs, units=units, picked=picked)
        bounds = {name: (table.lower, table.upper) for name, table in tables.items()}
        for name in (name for name in bounds if name in stored):
            said = limits.remarks(name, batch.dofs, batch.first.units.get(stored[name]), picked)
            notes += [f"{name} limits: {text}" for text in said]
    scores: list[Scores] = []
    extremes: list[Any] = []
    for block in batch.blocks(numbers[by_length].tolist(), on_progress):
        times = block.times()
        if times is None:
            hint = "trajcli score takes --dt SECONDS, --rate HZ or --times FILE:DATASET"
            expected = "a step, a rate, or time stamps"
            raise InputError(Fault("no time step", batch.path, expected, hint=hint))
        parts = {name: block.read(array) for name, array in stored.items()}
        steps = {None if one.time is None else one.time.uniform for one, *_ in block.parts}
        step = steps.pop() if len(steps) == 1 else None
        every = block_scores(parts, times, step, bounds)
        if (ends := batch.one_sided) and block.rows > 2 * ends:
            inner = {name: values[:, ends:-ends] for name, values in parts.items()}
            without = block_scores(inner, times[:, ends:-ends], step, bounds)
            every |= {name: without[name] for name in _OF_PEAKS & without.keys()}
        scores.append(every)
        extremes.append(block_extremes(parts[first], bounds.get(first)))
    found = {name: np.concatenate([one[name] for one in scores]) for name in scores[0]}
    found["saturation"] = saturation(np.concatenate(extremes, axis=1))
    back, lengths = np.argsort(by_length), batch.lengths[numbers]
    if absent := int(np.isnan(found.get("still", np.zeros(1))).sum()):
        what = (
            "NaN, fewer than five rows, or stamps that do not increase (trajcli check says which)"
        )
        notes.append(f"without a speed: {absent} of {len(numbers)}; {what}")
    return ScoreTable(
        batch.label(stored[first]),
        [batch.name(n) for n in numbers.tolist()],
        {name: found[name][back] for name in UNITS if name in found},
        {name: _each_once(units.get(unit, unit)) for name, unit in UNITS.items()},
        (int(lengths.min()), int(lengths.max())),
        notes,
    )


def _alike(found: Sequence[Batch]) -> tuple[Batch | None, list[str]]:
    """The trajectories, of any group, that have the most arrays; what else there is."""
    main = main_batch(found)
    if main is None:
        return None, []
    kinds = [(list(one.first.arrays), one.first.shape[2]) for one in found]
    alike = [
        one for one, kind in zip(found, kinds, strict=True) if kind == kinds[found.index(main)]
    ]
    pattern = main.pattern if len(alike) == 1 else "*"
    others = [one.label(next(iter(one.first.arrays))) for one in found if one not in alike]
    return Batch(pattern, [one for batch in alike for one in batch.sets]), others


def _quantities(batch: Batch) -> tuple[dict[str, str], list[str]]:
    """The arrays by what they hold, as far as that is known, and notes on it."""
    one, notes = batch.first, []
    first = next(iter(one.arrays))
    by_quantity = {batch.quantity(name): name for name in one.arrays}
    stored = {name: by_quantity[name] for name in QUANTITIES if name in by_quantity}
    unit = one.unit(first) or ""
    base = unit.partition("/")[0]
    by_unit = [name for name in QUANTITIES if base in _BASES and unit == unit_of(name, base)]
    if not stored and (by_unit or one.named or one.file.family == "npy"):
        quantity = by_unit[0] if by_unit else "position"
        stored = {quantity: first}
        notes.append(f"{first} read as {quantity}" + ", by its unit" * bool(by_unit))
    absent = [name for name in ("velocity", "jerk") if name not in stored]
    if "position" in stored and absent:
        notes.append(f"{' and '.join(absent)} by central differences of the positions")
    elif not stored:
        notes.append(f"{first}: of which quantity is not known; FILE:DATASET names positions")
    return stored or {"": first}, notes


def _units(batch: Batch, stored: Mapping[str, str]) -> dict[str, str]:
    """The unit of each quantity, as far as the file says it, "" else; of dofs that differ, all."""
    base = batch.first.unit(stored["position"]) if "position" in stored else None
    known = {name: batch.first.unit(array) or "" for name, array in stored.items()}
    return {n: unit_of(n, base) if base else known.get(n, "") for n in QUANTITIES}


def _each_once(unit: str) -> str:
    """The units of dofs, each once: rad, m of rad,rad,m."""
    return ", ".join(dict.fromkeys(unit.split(",")))


def csv_text(tables: Mapping[str, ScoreTable], sort: str | None) -> str:
    """A line per trajectory of every file; no number where there is none."""
    names = [name for name in UNITS if any(name in table.scores for table in tables.values())]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["file", "trajectory", *names])
    for file, table in tables.items():
        for line in table.lines(sort):
            values = [line.get(name, np.nan) for name in names]
            numbers = [repr(value) if np.isfinite(value) else "" for value in values]
            writer.writerow([cell(file), cell(line["trajectory"]), *numbers])
    return text.getvalue()


def report(
    table: ScoreTable, conditions: Sequence[Condition], sort: str | None, verbose: bool
) -> Iterator[RenderableType]:
    """The summary; sorted or verbose, a row per trajectory; what fails."""
    from rich.text import Text

    count, (least, most) = len(table.names), table.rows
    rows = f"{least}" if least == most else f"{least} to {most}"
    yield Text(f"{table.label}: {count} trajector{'y' if count == 1 else 'ies'} × {rows} rows")
    for note in table.notes:
        yield Text(note)
    columns = ["least", "median", "largest", "least_at", "largest_at"] if count > 1 else ["median"]
    lines = []
    for name, line in table.summary().items():
        cells = [line.get(column) for column in columns]
        unit = f" ({line['unit']})" if line["unit"] else ""
        lines.append([name + unit, *(x if isinstance(x, str) else number(x) for x in cells)])
    heads = ["> least", "> median", "> largest", "least in", "largest in"]
    yield Table(["score", *(heads if count > 1 else ["> value"])], lines)
    if (sort or verbose) and count > 1:
        order = table.order(sort).tolist()[: None if verbose else _LISTED]
        key = (sort or "").removeprefix("-")
        names = sorted(table.scores, key=lambda name: name != key)
        lines = [[table.names[i], *(number(table.scores[n][i]) for n in names)] for i in order]
        yield Text()
        yield Table(["trajectory", *(f"> {name}" for name in names)], lines, spare=names[1:])
        if len(order) < count:
            yield Text(f"and {count - len(order)} more; -v lists all")
    for condition in conditions:
        failing = table.failing(condition)
        worst = [
            f"{table.names[i]} {number(table.scores[condition.score][i])}" for i in failing[:1]
        ]
        text = f"{len(failing)} of {count}, worst {worst[0]}" if worst else "no trajectory"
        yield Text(f"\n{condition.text}: {text}", "bold red" if worst else "")
