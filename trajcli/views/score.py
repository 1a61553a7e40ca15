"""Scores the trajectories of a source block by block, lists them, and tests conditions."""

from __future__ import annotations

import csv
import io
import math
import operator
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from trajcli.errors import Fault, InputError, UsageError, raise_if_any
from trajcli.files.limits import Limits
from trajcli.files.opening import Files
from trajcli.files.quantities import QUANTITIES
from trajcli.files.reader import no_time, refuse_control_points
from trajcli.files.reading import parse_selection
from trajcli.files.recording import Recording
from trajcli.files.repair import TurnJumps
from trajcli.kernels.program import Floats, Integers, NumpyArray
from trajcli.scores import UNITS, Scores, block_extremes, block_scores, saturation
from trajcli.views._statistics import orientations, read_blocks
from trajcli.views.recordings import (
    dof_bounds,
    find_quantities,
    first_part,
    label,
    one_sided_rows,
    other_arrays,
    read_batches,
    whole_batch,
)
from trajcli.views.terminal import TextTable, number, spreadsheet_text

if TYPE_CHECKING:
    from rich.console import RenderableType

_CONDITION = re.compile(r"(\w+)\s*(>=|<=|>|<)\s*([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)")
_COMPARE = {">": operator.gt, "<": operator.lt, ">=": operator.ge, "<=": operator.le}
# Trajectories that a sorted table shows.
_LISTED = 10
# Quartiles of fewer trajectories tell nothing about outliers.
_LEAST_FOR_QUARTILES = 8
# Scores that differ by less of the largest one differ by rounding; those of times by far less.
_ROUNDING, _ROUNDING_OF_TIMES = 1e-4, 1e-6
_COLUMNS = {"least": "> least", "median": "> median", "largest": "> largest",
            "least_at": "least in", "largest_at": "largest in"}  # fmt: skip


class Condition(NamedTuple):
    """What makes a trajectory fail: p95_jerk > 50. ``text`` is the condition as it was typed."""

    text: str
    score: str
    sign: str
    limit: float


@dataclass(frozen=True)
class ScoreTable:
    """Scores [n] by name, NaN where there is none, of the trajectories ``names`` [n].

    rows: how many rows the shortest and the longest trajectory have. numbers: those that --episodes
    takes [n]. rounding: by how much the rounding of positions and times may move a score.
    unscored: the arrays and limits that were not used. matched: which limit each dof has.
    """

    label: str
    names: Sequence[str]
    scores: Mapping[str, NumpyArray]
    units: Mapping[str, str]
    rows: tuple[int, int]
    notes: Sequence[str]
    numbers: Sequence[int]
    rounding: Mapping[str, float] = field(default_factory=dict)
    unscored: Sequence[str] = ()
    matched: Sequence[Mapping[str, Any]] = ()

    def values(self, name: str, option: str) -> Any:
        """Looks up a score [n]; raises UsageError where the source has no such score."""
        if name not in self.scores:
            raise UsageError(
                f"no such score of {self.label}",
                where=option,
                expected=", ".join(self.scores),
                found=name,
                hint="--limits FILE" if name == "limit_share" else "",
            )
        return self.scores[name]

    def heading(self, name: str) -> str:
        """Names a score with its unit: p95_jerk (rad/s^3)."""
        return f"{name} ({self.units[name]})" if self.units[name] else name

    def order(self, sort: str | None) -> Any:
        """Sorts the indices of the trajectories: the largest score first; for -NAME the least."""
        if sort is None:
            return np.arange(len(self.names))
        values = self.values(sort.removeprefix("-"), "--sort")
        return np.argsort(values if sort[:1] == "-" else -values, kind="stable")

    def failing(self, condition: Condition) -> Any:
        """Finds the indices of the trajectories that fail or have no score, the worst first."""
        values = self.values(condition.score, "--fail")
        # A trajectory without a score fails, since nothing shows that it passes.
        failing = ~np.isfinite(values) | _COMPARE[condition.sign](values, condition.limit)
        order = self.order(f"{'' if condition.sign[0] == '>' else '-'}{condition.score}")
        return order[failing[order]]

    def outliers(self) -> dict[str, list[int]]:
        """Finds by score the numbers of trajectories far beyond the quartiles and any rounding."""
        # J. Tukey, "Exploratory Data Analysis", 1977: by 1.5 interquartile ranges and more.
        outliers: dict[str, list[int]] = {}
        for name, values in self.scores.items():
            known = values[np.isfinite(values)]
            if len(known) < _LEAST_FOR_QUARTILES:
                continue
            # Where all scores are about equal, their quartiles differ by rounding alone.
            low, high = np.quantile(known, (0.25, 0.75))
            share = _ROUNDING_OF_TIMES if name in ("duration", "time_jumps") else _ROUNDING
            rounding = share * float(np.abs(known).max())
            reach = max(1.5 * (high - low), rounding, self.rounding.get(name, 0.0))
            indices = np.flatnonzero((values < low - reach) | (values > high + reach))
            if len(indices):
                outliers[name] = [self.numbers[i] for i in indices.tolist()]
        return outliers

    def summary(self) -> dict[str, dict[str, Any]]:
        """Computes the least, median and largest of each score, and how often there is none."""
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
        for i in self.order(sort).tolist():
            yield {"trajectory": self.names[i], **{n: v[i].item() for n, v in self.scores.items()}}


NOTHING = ScoreTable("", (), {}, {}, (0, 0), (), ())
"""The scores of a file that could not be read."""


def parse_conditions(texts: Sequence[str], sort: str | None = None) -> list[Condition]:
    conditions, faults, scores = list[Condition](), list[Fault](), ", ".join(UNITS)
    for text in dict.fromkeys(texts):
        match = _CONDITION.fullmatch(text.strip())
        if match is None or match[1] not in UNITS:
            expected = f"SCORE>NUMBER (or <, >=, <=); scores are {scores}"
            faults.append(Fault("not a condition", where="--fail", expected=expected, found=text))
        else:
            conditions.append(Condition(match[0], match[1], match[2], float(match[3])))
    if sort is not None and sort.removeprefix("-") not in UNITS:
        expected = f"{scores}; -SCORE: least first"
        faults.append(Fault("no such score", where="--sort", expected=expected, found=sort))
    raise_if_any(faults, UsageError)
    return conditions


@dataclass(frozen=True)
class BlockScores:
    """Scores trajectories block by block.

    turning: orientations of the same trajectories. ends: rows at both ends whose derivatives do not
    count. still: the speed of standstill; None: a share of the peak. noise: by how much the
    rounding of positions and times may move a jerk derived from them.
    """

    batch: Recording
    stored: Mapping[str, str]
    bounds: Mapping[str, tuple[Floats, Floats]]
    turning: Recording | None
    ends: int
    still: float | None = None
    parts: list[Scores] = field(default_factory=list)
    numbers: list[Integers] = field(default_factory=list)
    noise: list[float] = field(default_factory=list)
    extremes: list[Floats] = field(default_factory=list)

    def add_block(self, values: Mapping[str, NumpyArray], block: Recording) -> None:
        if (times := block.times()) is None:
            raise InputError(no_time(first_part(self.batch)))
        dofs = self.batch.free_dofs if self.batch.rotations else slice(None)
        arrays = {quantity: values[name][..., dofs] for quantity, name in self.stored.items()}
        quaternions = None
        if self.turning is not None:
            turned = self.turning.take(block.numbers).arrays[next(iter(self.turning.arrays))]
            quaternions, _ = orientations(turned.read(), self.turning.rotations)
        scores = block_scores(
            arrays, times, block.step, self.bounds, self.ends, self.still, quaternions
        )
        # Saturation needs the extremes of all trajectories: it is computed at the end.
        first, array = next(iter(self.stored.items()))
        self.extremes.append(block_extremes(arrays[first], self.bounds.get(first)))
        self.parts.append(scores)
        self.numbers.append(block.numbers)
        if "position" in arrays and "jerk" not in arrays and block.rows > 1:
            # The jerk (p_{t+2} − 2 p_{t+1} + 2 p_{t−1} − p_{t−2}) / 2 dt³ moves by up to 3 ε / dt³
            # where each position is rounded by ε. float16 is derived in float32.
            kind = np.result_type(block.arrays[array].precision, np.float32)
            size = float(np.abs(arrays["position"]).max()) * np.finfo(kind).eps
            self.noise.append(3 * size / float(np.median(np.diff(times))) ** 3)

    def join(self, numbers: Integers) -> tuple[Integers, dict[str, Floats]]:
        """Joins the scores of all scored trajectories in the order of ``numbers``, with these."""
        scores = {n: np.concatenate([part[n] for part in self.parts]) for n in self.parts[0]}
        if self.batch.free_dofs:
            scores["saturation"] = saturation(np.concatenate(self.extremes, axis=1))
        scored = np.concatenate(self.numbers)
        ranks = {number: k for k, number in enumerate(numbers.tolist())}
        order = np.argsort([ranks[number] for number in scored.tolist()])
        return scored[order], {name: values[order] for name, values in scores.items()}


def score_source(
    files: Files,
    source: str,
    limits: Limits | None = None,
    left_out: dict[str, Fault] | None = None,
    still: float | None = None,
) -> ScoreTable:
    """Scores the trajectories that a source names; ``still`` is the speed of standstill."""
    batch, others = whole_batch(read_batches(files, [source]))
    numbers = np.asarray(parse_selection(files.reading.episodes, len(batch or ())))
    if batch is None or any(0 in part.shape for part in batch.take(numbers).parts_in_use()):
        what, expected, found = "nothing to score", "rows and dofs", "an empty array"
        raise InputError(what, where=source, expected=expected, found=found)
    refuse_control_points(batch.members)
    # Rotations may be dofs of the batch, or an array of their own. Where the source has their rates
    # as well, the orientations are scored.
    candidates = (batch, *other_arrays(batch, others))
    turning = next((other for other in candidates if other.rotations), None)
    if turning is not None and batch.holds_rotations:
        batch = turning
    unscored = [label(x, next(iter(x.arrays))) for x in others if x is not turning]
    named = "; FILE:DATASET names one" if unscored else ""
    first_part(batch).require_rotations()
    free = batch.free_dofs
    stored, units, notes = find_quantities(batch) if free else ({}, {}, [])
    array = next(iter(batch.arrays))
    absent = [name for name in ("velocity", "jerk") if name not in stored]
    if "position" in stored and absent:
        notes.append(f"{' and '.join(absent)} by central differences of the positions")
    elif not stored and free and not notes:
        notes.append(f"{array}: its quantity is not known; FILE:DATASET names positions")
    stored = stored or {"": array}
    # Peaks at the ends would be those of the method, not of the motion.
    ends = one_sided_rows(batch)
    if ends:
        rows = f"the first and the last {ends} rows, whose windows are one-sided"
        notes.append(f"jerk and limit_share without {rows}")
    bounds, matched = _match_limits(limits, batch, stored, units, notes)
    if limits is not None:
        # All derivatives of positions are scored; of other quantities, only they themselves.
        scored = QUANTITIES if "position" in stored else stored
        skipped = [*(name for name in limits.tables if name not in scored), *limits.turns]
        unscored += [f"limits of {name}" for name in skipped]
    if unscored:
        notes.append(f"not scored: {', '.join(unscored)}{named}")
    scores = BlockScores(batch, stored, bounds, turning, ends, still)
    jumps = TurnJumps(batch)
    # Trajectories of one length share a block: sorted by length, there are fewer blocks.
    order = np.argsort(batch.lengths[numbers], kind="stable")
    blocks = batch.take(numbers[order]).blocks(files.report)
    read_blocks(blocks, stored.values(), (scores, jumps), left_out)
    if not scores.parts:
        raise InputError(*(left_out or {}).values())
    numbers, known = scores.join(numbers)
    lengths = batch.lengths[numbers]
    if speedless := int(np.isnan(known.get("still", np.zeros(1))).sum()):
        why = "NaN, fewer than five rows, or stamps that do not increase (trajcli check says which)"
        notes.append(f"without a speed: {speedless} of {len(numbers)}; {why}")
    # A trajectory that stands still has no spectrum to be without.
    moved = np.isnan(known.get("sparc", np.zeros(1))) & (known.get("still", np.ones(1)) < 1)
    if moved.any():
        why = "NaN, too short for any frequency from 0 to 10 Hz"
        notes.append(f"without sparc: {moved.sum()} of {len(numbers)}; {why}")
    jerk = max(scores.noise, default=0.0)
    return ScoreTable(
        label=label(batch, next(iter(stored.values()))),
        names=[batch.title(n) for n in numbers.tolist()],
        scores={name: known[name] for name in UNITS if name in known},
        units={n: ", ".join(dict.fromkeys(units.get(x, x).split(","))) for n, x in UNITS.items()},
        rows=(int(lengths.min()), int(lengths.max())),
        notes=[*files.report.notes, *notes, *jumps.notes()],
        matched=matched,
        numbers=numbers.tolist(),
        rounding={
            **dict.fromkeys(("rms_jerk", "p95_jerk"), jerk),
            "log_jerk": 2 * jerk / max(np.nanmin([*known.get("rms_jerk", ()), 1e9]), 1e-9),
            # One trajectory has the extremes of all: at least two of its rows are at them.
            "saturation": 2 / int(lengths.min()),
        },
        unscored=unscored,
    )


def _match_limits(
    limits: Limits | None, batch: Recording, stored: Mapping[str, str], units: Mapping[str, str],
    notes: list[str],
) -> tuple[dict[str, tuple[Floats, Floats]], list[dict[str, Any]]]:  # fmt: skip
    """Finds the bounds of each quantity by dof, and which limit each dof has; adds notes."""
    free, bounds = batch.free_dofs, dict[str, tuple[Floats, Floats]]()
    if limits is None:
        return bounds, []
    for name, table in dof_bounds(batch, limits, units).items():
        bounds[name] = table.lower[free], table.upper[free]
        if name in stored:
            texts = limits.unit_remarks(name, batch.units.get(stored[name]))
            notes += [f"{name} limits: {text}" for text in texts]
    if not free:
        return bounds, []
    notes += limits.remarks(batch.dof_labels, batch.dofs)
    return bounds, limits.matched(batch.dof_labels, batch.dofs)


def csv_text(tables: Mapping[str, ScoreTable], sort: str | None) -> str:
    """Writes a CSV table with a line per trajectory of every file; absent scores are empty."""
    # Files may have different scores: the columns are those of all.
    heads = dict.fromkeys(table.heading(n) for table in tables.values() for n in table.scores)
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["file", "trajectory", *heads])
    for file, table in tables.items():
        order = table.order(sort)
        scores = {table.heading(name): values[order] for name, values in table.scores.items()}
        absent = np.full(len(order), np.nan)
        columns = [scores.get(head, absent).tolist() for head in heads]
        for i, *row in zip(order.tolist(), *columns, strict=True):
            cells = (repr(x) if math.isfinite(x) else "" for x in row)
            writer.writerow([*map(spreadsheet_text, (file, table.names[i])), *cells])
    return text.getvalue()


def comparison(tables: Mapping[str, ScoreTable]) -> RenderableType:
    lines = []
    for name in dict.fromkeys(name for table in tables.values() for name in table.scores):
        medians = (table.summary().get(name, {}).get("median") for table in tables.values())
        heading = next(t.heading(name) for t in tables.values() if name in t.scores)
        lines.append([heading, *map(number, medians)])
    return TextTable(["median of", *(f"> {label}" for label in tables)], lines)


def report(
    table: ScoreTable, conditions: Sequence[Condition], sort: str | None, verbose: bool
) -> Iterator[RenderableType]:
    from rich.text import Text

    count, (least, most) = len(table.names), table.rows
    rows = f"{least}" if least == most else f"{least} to {most}"
    yield Text(f"{table.label}: {count} trajector{'y' if count == 1 else 'ies'} × {rows} rows")
    yield from map(Text, table.notes)
    columns = _COLUMNS if count > 1 else {"median": "> value"}
    lines = []
    for name, line in table.summary().items():
        cells = (x if isinstance(x, str) else number(x) for x in map(line.get, columns))
        lines.append([table.heading(name), *cells])
    yield TextTable(["score", *columns.values()], lines)
    for name, numbers in table.outliers().items():
        shown = ",".join(map(str, numbers if verbose else numbers[:_LISTED]))
        more = len(numbers) - _LISTED
        ending = f" and {more} more" if more > 0 and not verbose else ""
        yield Text(f"outliers of {name}: --episodes {shown}{ending}")
    if (sort or verbose) and count > 1:
        order = table.order(sort).tolist()[: None if verbose else _LISTED]
        names = sorted(table.scores, key=lambda name: name != (sort or "").removeprefix("-"))
        lines = [[table.names[i], *(number(table.scores[n][i]) for n in names)] for i in order]
        heads = [table.heading(name) for name in names]
        yield Text()
        headings = ["trajectory", *(f"> {heading}" for heading in heads)]
        yield TextTable(headings, lines, spare=heads[:0:-1])
        if len(order) < count:
            yield Text(f"and {count - len(order)} more; -v lists all")
    for condition in conditions:
        failing, text = table.failing(condition), "no trajectory"
        if len(failing):
            worst = number(table.scores[condition.score][failing[0]])
            text = f"{len(failing)} of {count}, worst {table.names[failing[0]]} {worst}"
        yield Text(f"\n{condition.text}: {text}", "bold red" if len(failing) else "")
