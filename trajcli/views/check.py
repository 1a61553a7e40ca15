"""Checks the trajectories of a file: finite values, time stamps, the start row and limits."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from trajcli.calls import differentiate
from trajcli.errors import Fault, InputError, describe, join_names
from trajcli.files.clock import JUMP, positive
from trajcli.files.dofs import DofPairs, Dofs, pair_dofs
from trajcli.files.limits import Limits, read_limits
from trajcli.files.opening import Files
from trajcli.files.quantities import (
    QUANTITIES,
    RECORDED_START,
    ROTATIONS,
    UNITS_OF_ROTATIONS,
    rate_name,
)
from trajcli.files.reader import read_recordings
from trajcli.files.reading import Reading, parse_selection
from trajcli.files.recording import Recording, join, mask_numbers
from trajcli.files.repair import TurnJumps
from trajcli.files.source import Place, parse_source
from trajcli.kernels.program import Floats, NumpyArray
from trajcli.modes import MODES
from trajcli.modes.central import WINDOW
from trajcli.names import MethodName
from trajcli.rotations.quaternions import TOLERANCE
from trajcli.scores import add_derivatives
from trajcli.units import derivative_units, si_units, unit_of_dof
from trajcli.views._between import CurveCheck
from trajcli.views._delay import LARGEST_ERROR, VelocityFit, fit_text
from trajcli.views._motion import RestCheck, StepCheck
from trajcli.views._statistics import (
    Failure,
    RotationStatistics,
    Statistics,
    Summary,
    find_failures,
    read_blocks,
)
from trajcli.views.recordings import (
    GAP,
    PairedTimes,
    array_path,
    array_quantity,
    dof_bounds,
    dof_text,
    find_quantities,
    interpolate,
    label,
    locations,
    paired_times,
    read_batches,
    trajectory_text,
)
from trajcli.views.terminal import TextTable

if TYPE_CHECKING:
    from rich.console import RenderableType

_WORDS = {True: "ok", False: "FAILS", None: "-"}
# Number of spans beyond a limit that are listed for each dof.
_SPANS = 3
StartRows = Callable[[NumpyArray, Sequence[str]], Mapping[str, NumpyArray]]
"""Returns the start states by part, [b, D] or [1, D], of trajectories given by their numbers [b]
and, where each has a group, by the names of the groups; parts that are absent are 0."""
# Rows that are listed of a trajectory whose times are wrong.
_LISTED = 5
BadTimes: TypeAlias = tuple[int, str, str, Sequence[tuple[int, float]]]
"""A trajectory whose times are wrong: its number, what is wrong, in which dataset, in which rows
(and at which times)."""


def check_source(
    files: Files,
    source: str,
    start_of: Callable[[Files, Path], StartRows | str],
    limits: Path | None = None,
    velocity_of: str | None = None,
    left_out: dict[str, Fault] | None = None,
    rest: bool = False,
) -> list[Finding]:
    """Checks the trajectories that a source names, each batch in one pass.

    start_of: returns the states that row 0 of an output must equal, or why they are unknown.
    velocity_of: positions whose derivative the source must be. left_out: takes the faults of
    trajectories that cannot be read, which fail without it.
    """
    tables = None if limits is None else read_limits(limits, files.sources)
    batches, findings = read_batches(files, [source]), list[Finding]()
    unchecked = dict.fromkeys(() if tables is None else (*tables.tables, *tables.turns))
    located: list[object] = []
    for batch in batches:
        numbers = parse_selection(files.reading.episodes, len(batch))
        count, attributes = len(numbers), batch.file.attributes()
        # An array that is compared with positions is a velocity.
        default = "position" if velocity_of is None else "velocity"
        checks = BatchChecks(batch, batches, tables, default, files.reading, rest)
        for name in checks.limited:
            unchecked.pop(name, None)
        # Orientations and their rates are batches of the same times and start: these fail once.
        if locations(batch) not in located:
            located.append(locations(batch))
            checks.times = TimeCheck(batch)
            if (mode := str(attributes.get("mode", ""))) in MODES:
                # With convention curobo, row 0 of a band mode is a row of the curve.
                curobo = str(attributes.get("convention")) == "curobo"
                if str(attributes.get("start")) == RECORDED_START:
                    start: StartRows | str = "a recording has no start state"
                elif batch.members[0].windowed:
                    start = "row 0 is that of a window"
                elif batch.holds_rotations:
                    start = "rotations are compared by --recompute"
                elif str(attributes.get("alignment")) == "actions" or (
                    curobo and mode in ("central", "bspline")
                ):
                    start = "row 0 is not the start"
                else:
                    start = start_of(files, parse_source(source).path)
                checks.start = StartCheck(start)
        usable, faults = batch.take(numbers).usable()
        read_blocks(usable.blocks(files.report), batch.arrays, checks.summaries(), faults)
        if faults and len(faults) == len(numbers):
            raise InputError(*faults.values())
        if left_out is not None:
            left_out |= faults
        elif faults:
            texts = [f"{name}: {fault.what}" for name, fault in faults.items()]
            text, name = next(iter(faults.values())).what, label(batch)
            findings.append(Finding("readable", name, False, text, count, texts[0], 0, texts))
        findings += checks.findings(count, sorted({*numbers} & {*map(int, usable.numbers)}))
        if velocity_of is not None:
            # Positions are FILE:DATASET, or a DATASET of the file of the batch.
            path = parse_source(velocity_of).path
            positions = velocity_of if path.exists() else f"{batch.file.path}:{velocity_of}"
            others = join(read_recordings(files, [positions]))
            findings.append(compare_velocities(batch, numbers, others, velocity_of))
    if rest and not any(finding.check == "rest" for finding in findings):
        text = "not checked: no velocities, and no positions with times to differentiate"
        findings.append(Finding("rest", source, False, text))
    # A limit that cannot be checked is a failure, never a pass.
    for name in unchecked:
        which = "no" if tables and name in tables.turns else "all"
        text = f"not checked: {which} dofs are rotations"
        findings.append(Finding(f"{name} limits", source, False, text))
    return findings


class BatchChecks:
    """The checks of one batch, which read its arrays together, once.

    times, start: set where these have not been checked with another batch of the same trajectories.
    """

    times: TimeCheck | None = None
    start: StartCheck | None = None

    def __init__(
        self, batch: Recording, batches: Sequence[Recording], tables: Limits | None, default: str,
        reading: Reading, rest: bool,
    ) -> None:  # fmt: skip
        """default: the quantity of an array that SOURCE names and whose quantity nothing tells."""
        self.batch, self.arrays = batch, {x: Statistics(x, batch.shape[2]) for x in batch.arrays}
        stored = {name for other in batches for name in other.arrays}
        turns = {} if tables is None else tables.turns
        self.rotations = RotationStatistics(batch, ("norm", "sign"), turns, stored)
        self.limits: LimitCheck | None = None
        self.limited = [*self.rotations.statistics]
        # A batch has free dofs to hold limits against unless all are rotations or their rates.
        if tables and tables.tables and batch.free_dofs and not batch.holds_rotations:
            self.limits = LimitCheck(batch, tables, default, batches, reading)
            self.arrays |= self.limits.stored
            self.limited += tables.tables
        self.turns, quantities = TurnJumps(batch), find_quantities(batch, default)[0]
        # A plain .npy is called actions whatever it holds.
        acting = batch.holds_actions and batch.array_name != ""
        positions = self.turns.name == quantities.get("position") and not acting
        # A spline is one curve, however far apart its rows are.
        spline = batch.file.attributes().get("mode") == "bspline"
        self.steps = StepCheck(batch, self.turns) if positions and not spline else None
        self.ends = RestCheck(batch, quantities) if rest and not acting else None

    def summaries(self) -> list[Summary]:
        # Steps need the turns that are found before them.
        checks: tuple[Summary | None, ...] = (
            self.rotations, self.limits, self.times, self.start, self.turns, self.steps, self.ends
        )  # fmt: skip
        return [*self.arrays.values(), *filter(None, checks)]

    def findings(self, count: int, numbers: Sequence[int]) -> Iterator[Finding]:
        """Yields the findings of ``count`` trajectories; those with ``numbers`` were read."""
        batch = self.batch
        for name, statistics in self.arrays.items():
            nan, inf = statistics.nan, statistics.inf
            if statistics.nonfinite:
                worst, text = statistics.nonfinite, f"{nan} NaN, {inf} Inf"
                yield failed("finite", batch, name, worst, text, count, nan=nan, inf=inf)
            else:
                yield Finding("finite", label(batch, name), True, "no NaN or Inf", count)
        turns = self.turns
        kinds = [("jumps of a turn", turns.jumps, text) for text in turns.notes()]
        for check, steps, text in (*kinds, *(self.steps.kinds() if self.steps else ())):
            # The first step of each trajectory stands for all of it.
            _, first, counts = np.unique(steps[:, 0], return_index=True, return_counts=True)
            failures = []
            for k, n in zip(first, counts, strict=True):
                number, row, dof, size, time = steps[k, :5].tolist()
                time = None if np.isnan(time) else time
                failures.append(Failure(int(number), int(row), int(dof), size, abs(size), n, time))
            dofs = np.bincount(steps[:, 2].astype(int), minlength=batch.shape[2]).tolist()
            if failures:
                yield failed(check, batch, turns.name, failures, text, count, per_dof=dofs)
            else:
                yield Finding(check, label(batch, turns.name), True, "none", count)
        for quantity, array in self.ends.arrays.items() if self.ends else ():
            assert self.ends is not None
            text = f"{quantity} of up to {self.ends.largest[quantity]:.3g} at an end"
            if self.ends.derived and quantity == "velocity":
                text += f"; differences of {array}"
            if moving := self.ends.moving[quantity]:
                yield failed("rest", batch, array, moving, text, count, quantity=quantity)
            else:
                facts = {"quantity": quantity}
                yield Finding("rest", label(batch, array), True, text, count, facts=facts)
        # Trajectories that nothing states as padded are taken to end before their rows of NaN.
        padded: list[bool] = []
        for part in batch.members:
            short = part.lengths < part.rows
            lengths = short.any() and part.companions.lengths(*part.shape[:2], part.single)[0]
            padded += (short if lengths is None else short & False).tolist()
        if texts := [f"trajectory {batch.title(number)}" for number in numbers if padded[number]]:
            text = "rows of NaN at the ends, which neither lengths nor a mask state as padding"
            name = label(batch, next(iter(self.arrays)))
            yield Finding("padding", name, False, text, count, texts[0], len(texts), texts)
        yield from self.times.findings(batch, count) if self.times else ()
        yield from [self.start.finding(batch)] if self.start else ()
        yield from self.limits.findings(count) if self.limits else ()
        yield from _rotation_findings(self.rotations, count)


@dataclass(frozen=True)
class Finding:
    """The result of one check of one array; ``passed`` is None where it could not be made.

    where, count: the place of the worst value that fails, and how many fail. failures: every
    trajectory that fails, in words. facts, details: more fields for JSON, more lines for people.
    """

    check: str
    dataset: str
    passed: bool | None
    text: str
    trajectories: int = 0
    where: str = ""
    count: int = 0
    failures: Sequence[str] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)
    details: Sequence[str] = ()

    def as_dict(self, verbose: bool = False) -> dict[str, Any]:
        return {
            "check": self.check,
            "dataset": self.dataset,
            "passed": self.passed,
            "text": self.text,
            "trajectories": self.trajectories,
            "failing_trajectories": len(self.failures),
            "failing_values": self.count,
            "where": self.where or None,
            **self.facts,
            **({"failures": list(self.failures)} if verbose else {}),
        }


def failed(
    check: str,
    batch: Recording,
    name: str,
    failures: Sequence[Failure],
    text: str,
    count: int,
    **facts: Any,
) -> Finding:
    """Builds the finding of a check that failed in some of ``count`` trajectories.

    name: the array; "" for that of the worst failure. facts: more fields for JSON.
    """
    worst = max(failures, key=lambda failure: failure.excess)
    texts = [
        place_text(batch, failure, f", {dof_text(batch, failure.dof)}") for failure in failures
    ]
    dof = batch.dofs.numbers[worst.dof]
    facts["at"] = {"trajectory": worst.trajectory, "row": worst.row, "dof": dof}
    facts["at"] |= {} if worst.time is None else {"time": worst.time}
    values = sum(failure.count for failure in failures)
    array, where = label(batch, name or worst.dataset), texts[failures.index(worst)]
    return Finding(check, array, False, text, count, where, values, texts, facts)


def place_text(batch: Recording, failure: Failure, dof: str = "") -> str:
    """Tells where a value fails: data/demo_13, row 20, 0.400 s; ``dof`` follows the row."""
    time = "" if failure.time is None else f", {failure.time:.3f} s"
    return f"{trajectory_text(batch, failure.trajectory)}row {failure.row}{dof}{time}"


def recompute_finding(
    name: str, values: int, differing: int, beyond: int, excess: float, at: Sequence[int]
) -> Finding:
    """Builds the finding of a variable that was computed again."""
    # Values beyond rounding fail; the worst differs by ``excess`` times that.
    if beyond:
        index = dict(zip(("trajectory", "row", "dof"), at, strict=False))
        where = ", ".join(f"{axis} {i}" for axis, i in index.items())
        text = f"{beyond} of {values} values are not what the recorded command gives"
        facts = {"at": index, "times_rounding": excess}
        return Finding("recompute", name, False, text, 0, where, beyond, facts=facts)
    text = f"{differing} of {values} values differ by rounding" if differing else "equal to the bit"
    return Finding("recompute", name, True, text, facts={"exact": not differing})


class StartCheck:
    """Compares row 0 with the start states, up to the rounding of the stored type."""

    def __init__(self, start: StartRows | str) -> None:
        self.start = start
        self.failures: list[Failure] = []
        self.compared = 0

    def add_block(self, values: Mapping[str, NumpyArray], block: Recording) -> None:
        if isinstance(self.start, str) or not block.rows:
            return
        parts = [block.part(k) for k in range(len(block))]
        states = self.start(block.numbers, [part.group for part in parts if part.single])
        self.compared += len(block)
        for name in (name for name in QUANTITIES if name in values):
            rows = values[name][:, :1]
            state = block.pick(states.get(name, np.zeros((1, 1))))
            state = np.asarray(state, np.float64)[:, None]
            # NaN differs from every state.
            off = np.nan_to_num(np.abs(rows.astype(np.float64) - state), nan=np.inf, posinf=np.inf)
            # The state was rounded to the stored type when it was written.
            bad = ~(off <= np.spacing(np.abs(state).astype(parts[0].arrays[name].precision)))
            self.failures += find_failures(bad, off, rows, block, name)

    def finding(self, batch: Recording) -> Finding:
        if isinstance(self.start, str) or not self.compared:
            reason = self.start if isinstance(self.start, str) else "there are no rows"
            return Finding("start row", label(batch), None, f"not checked: {reason}")
        if not self.failures:
            return Finding("start row", label(batch), True, "equals the start state", self.compared)
        worst = max(self.failures, key=lambda failure: failure.excess).excess
        text = f"off by {worst:.3g}" if np.isfinite(worst) else "not finite"
        return failed("start row", batch, "", self.failures, text, self.compared)


class TimeCheck:
    """Checks that time stamps increase and, where an output states one dt, that they go by it."""

    def __init__(self, batch: Recording) -> None:
        attributes = batch.file.attributes()
        self.dt = positive(attributes.get("dt")) if "mode" in attributes else None
        self.failures: list[BadTimes] = []
        # Only recordings have gaps: an output states one dt, or the stamps that it was made for.
        self._recorded, self._uneven = "mode" not in attributes, list[tuple[int, Floats]]()
        self.where: Place | None = None
        # Those of all groups; None of one whose step varies.
        self.steps: set[float | None] = set()
        # Times that all trajectories of a group share are checked once.
        self._shared = {id(x.origin) for x in batch.members if x.clock and x.clock.shared}
        self._checked: set[int] = set()

    def add_block(self, _: Mapping[str, NumpyArray], block: Recording) -> None:
        for group, indices in block.split_by_group():
            clock, origin, numbers = group.clock, id(group.origin), block.numbers[indices].tolist()
            if clock is None or origin in self._checked:
                continue
            self._checked |= {origin} & self._shared
            try:
                if clock.contradiction is not None:
                    raise InputError(clock.contradiction)
                self.where = self.where or clock.where
                self.steps.add(clock.step)
                step = self.dt
                by_dt = clock.nominal is None and (step is None or clock.step is not None)
                good = not clock.faults()
                uneven = self._recorded and good and clock.stamped and clock.step is None
                # Steps that are equal by definition need no check row by row.
                if by_dt and good and not uneven:
                    continue
                for k, number in enumerate(numbers[:1] if clock.shared else numbers):
                    stamps = clock.stored_times(k, k + 1)[0]
                    length = len(stamps) if clock.lengths is None else clock.lengths[k]
                    if uneven and length > 2:
                        self._uneven.append((number, stamps[:length]))
                    gaps = np.diff(stamps)
                    bad, what = ~(gaps > 0), "not increasing"
                    if step is not None and not bad.any():
                        # Each stamp is rounded once: a gap is off by up to two last places of the
                        # largest.
                        slack = 2 * np.spacing(np.abs(stamps).max()) + 1e-12 * step
                        bad = ~(np.abs(gaps - step) <= slack)
                        what = f"not in steps of dt = {step:g} s"
                    if clock.nominal and not bad.any():
                        bad = gaps > JUMP * clock.nominal
                        what = f"jumps: steps are {clock.nominal:g} s"
                    if bad.any():
                        rows = np.flatnonzero(bad) + 1
                        pairs = list(zip(rows.tolist(), stamps[rows].tolist(), strict=True))
                        self.failures.append((number, what, "", pairs))
            except InputError as error:
                fault = error.faults[0]
                self.failures.append((numbers[0], fault.what, str(fault.where), ()))

    def findings(self, batch: Recording, count: int) -> Iterator[Finding]:
        if not (self.where or self.failures):
            return
        place, group = self.where or Place(), batch.group
        if place.path == str(batch.file.path):
            name = place.name.lstrip("/")
            # The dataset of the first group stands for those of all.
            if group and name.startswith(group):
                name = batch.pattern + name.removeprefix(group)
            place = replace(place, path="", name=name)
        title = str(place).lstrip(":") or "time"
        check, facts = "time", dict[str, Any]()
        if not self.failures:
            dt = next(iter(self.steps)) if len(self.steps) == 1 else None
            text = "increases" if dt is None else f"increases by dt = {dt:g} s"
            known = [step for step in self.steps if step is not None]
            if 1 < len(known) == len(self.steps):
                text += f", dt = {min(known):g} to {max(known):g} s"
            yield Finding("time", title, True, text, count, facts={"dt": dt})
            if not self._uneven:
                return
            check = "gaps"
            parts = [np.diff(stamps) for _, stamps in self._uneven]
            usual = [np.quantile(x, 0.5, method="inverted_cdf") for x in parts]
            # Each step is compared with the usual one of its trajectory, which may differ in rate.
            expected, steps = np.repeat(usual, [*map(len, parts)]), np.concatenate(parts)
            # Of few points, as of a plan, or of stamps that are uneven as a rule, no step is too
            # long: the limit is twice what 95 of 100 steps keep.
            most = np.quantile(steps / expected, 0.95, method="inverted_cdf")
            limit = max(GAP * (1.0 + 1e-6), 2.0 * most)
            off = (steps - expected)[steps <= limit * expected]
            facts = {"step": float(np.median(expected)), "longest": float(steps.max()),
                     "jitter": float(np.sqrt(np.mean(off**2)))}  # fmt: skip
            text = f"steps up to {facts['longest']:.3g} s, usually {facts['step']:.3g} s; "
            text += f"jitter {1e3 * facts['jitter']:.3g} ms (RMS)"
            for (number, stamps), step in zip(self._uneven, usual, strict=True):
                rows = np.flatnonzero(np.diff(stamps) > limit * step) + 1
                late = list(zip(rows.tolist(), stamps[rows].tolist(), strict=True))
                self.failures += [(number, text, "", late)] if late else []
            if not self.failures:
                yield Finding("gaps", title, True, f"none; {text}", count, facts=facts)
                return
        number, what, _, pairs = self.failures[0]
        texts = [f"{_where_text(batch, x, len(x[3]))}: {x[1]}" for x in self.failures]
        where = _where_text(batch, self.failures[0], _LISTED)
        values = sum(len(rows) or 1 for *_, rows in self.failures)
        listed = [{"trajectory": number, "row": row, "time": time} for row, time in pairs]
        facts = {"rows": listed} | facts
        yield Finding(check, title, False, what, count, where, values, texts, facts)


def _where_text(batch: Recording, failure: BadTimes, most: int) -> str:
    """Names the dataset of wrong times, or their rows: of more than ``most`` the first."""
    number, _, where, rows = failure
    texts = [f"row {row} ({time:.3f} s)" for row, time in rows]
    more = " (-v)" if len(rows) > most else ""
    return trajectory_text(batch, number) + (where or join_names(texts, most) + more)


def _rotation_findings(rotations: RotationStatistics, count: int) -> Iterator[Finding]:
    """Yields whether norms are 1, signs continuous and rates within their limits."""
    names = [x.name for x in rotations.rotations] or list(map(str, range(rotations.count)))
    batch = replace(rotations.batch, dofs=Dofs(len(names), range(len(names))), joint_names=names)
    for check, statistics in rotations.statistics.items():
        name = check if check in rotations.stored else next(iter(batch.arrays))
        peak, array = float(statistics.peak.max()), label(batch, name)
        facts: dict[str, Any] = {"largest": peak} if statistics.known else {}
        passed = not statistics.failures
        if check == "norm":
            text = f"off by up to {peak:.2g}, allowed {TOLERANCE:g}"
        elif check == "sign":
            facts = {"changes": int(statistics.violations.sum())}
            noun = "change" if facts["changes"] == 1 else "changes"
            text = f"{facts['changes']} {noun} of sign" if not passed else "continuous"
            # Signs of recordings mean nothing; orientations that trajcli wrote are continuous.
            if not passed and not batch.is_output:
                passed, text = True, f"{text}, which differentiate and resample undo"
        else:
            unit, limit = UNITS_OF_ROTATIONS[ROTATIONS.index(check)], rotations.limits[check]
            text = f"peak magnitude {peak:.6g}, limit {limit:.6g} {unit}"
            if check in rotations.derived:
                text += "; central differences"
            facts |= {"limit": limit, "quantity": check}
            if passed and (statistics.nonfinite or not statistics.known):
                absent = statistics.nan + statistics.inf
                text, passed = f"not checked at {absent} values that are NaN or Inf", False
            check = f"{check} limits"
        if statistics.failures and not passed:
            yield failed(check, batch, name, statistics.failures, text, count, **facts)
        else:
            yield Finding(check, array, passed, text, count, facts=facts)


class LimitCheck:
    """Holds the arrays of a batch, and central differences of its positions, against limits.

    stored, derived, between: the statistics of arrays, of what is derived from ``positions``, and
    of the extremes that the curve reaches between rows. missing: quantities whose limits cannot be
    checked, for a ``reason``.
    """

    def __init__(
        self, batch: Recording, limits: Limits, default: str, batches: Sequence[Recording],
        reading: Reading,
    ) -> None:  # fmt: skip
        """Assigns each quantity with limits to an array, to differences, or to ``missing``."""
        self.batch, self.limits, dofs = batch, limits, batch.shape[2]
        arrays, units, self.notes = find_quantities(batch, default)
        bounds = dof_bounds(batch, limits, units)
        self.quantities = {name: array_quantity(batch, name) for name in batch.arrays}
        self.quantities |= {name: quantity for quantity, name in arrays.items()}
        self.positions, self.reason = arrays.get("position", ""), ""
        # Limits on a quantity that nothing gives are a failure, never a pass with a remark.
        if not self.positions:
            self.reason = "and no positions to differentiate; FILE:DATASET names them"
        elif batch.clock is None:
            step = f"and no time step to differentiate {self.positions} with"
            self.reason = f"{step}; --dt SECONDS says it"
        # Batches of as many trajectories, in groups of other names, hold other arrays of the same
        # ones. A batch without positions (actions) need not have the quantities that these hold;
        # nor is anything derived from positions where only the other batch has them.
        patterns = {mask_numbers(part.group) for part in batch.members}
        others = [
            find_quantities(other, default)[0]
            for other in batches
            if len(other) == len(batch)
            and patterns.isdisjoint(mask_numbers(part.group) for part in other.members)
        ]
        checked = {*arrays}
        if "position" in arrays:
            checked |= {x for arrays in others if "position" not in arrays for x in arrays}
        elif any("position" in arrays for arrays in others):
            checked |= {*QUANTITIES}
        else:
            checked |= {x for arrays in others for x in arrays}
        lacking = [quantity for quantity in bounds if quantity not in checked]
        self.missing = lacking if self.reason else []
        self.derived = {q: Statistics(q, dofs, bounds[q]) for q in lacking if not self.reason}
        self.stored = {
            name: Statistics(name, dofs, bounds[quantity])
            for name, quantity in self.quantities.items()
            if quantity in bounds
        }
        self.curve = CurveCheck(batch, bounds, reading)
        self.between = {q: Statistics(q, dofs, bounds[q]) for q in self.curve.names}

    def add_block(self, values: Mapping[str, NumpyArray], block: Recording) -> None:
        extremes = self.curve.find_extremes(values, block) if self.between else {}
        for quantity, (reached, delays) in extremes.items():
            self.between[quantity].add_block({quantity: reached}, block, delays)
        if not self.derived:
            return
        position, times = values[self.positions], block.known_times()
        # Times that contradict each other are as bad as none. Differences need stamps that
        # increase; other trajectories get NaN, which fails.
        times = np.zeros(position.shape[:2]) if times is None else times
        good = np.all(np.diff(times) > 0, axis=1)
        needed = {*self.derived}
        rates: Any = add_derivatives({"position": position}, times, block.step, good, needed)
        for statistics in self.derived.values():
            statistics.add_block(rates, block)

    def findings(self, count: int) -> Iterator[Finding]:
        for quantity in self.missing:
            text = "; ".join([f"not checked: no {quantity}, {self.reason}", *self.notes])
            yield Finding(f"{quantity} limits", label(self.batch), False, text, count)
        for name, statistics in self.stored.items():
            quantity = self.quantities[name]
            # An array that is read as another quantity, as the notes say, has its title.
            title = name if quantity == array_quantity(self.batch, name) else quantity
            yield self._finding(f"{title} limits", name, quantity, statistics, count)
        for quantity, statistics in self.derived.items():
            yield self._finding(f"{quantity} limits", self.positions, quantity, statistics, count)
        failing = {q for q, x in self.derived.items() if x.failures}
        failing |= {self.quantities[name] for name, x in self.stored.items() if x.failures}
        for quantity, statistics in self.between.items():
            # What fails on rows, or for NaN and times there, needs no second line.
            if statistics.known and not statistics.nonfinite and quantity not in failing:
                array = quantity if quantity in self.batch.arrays else self.positions
                check = f"{quantity} limits between rows"
                finding = self._finding(check, array, quantity, statistics, count)
                text = f"{self.curve.curve}: {finding.text.partition(';')[0]}"
                facts = {**finding.facts, "curve": self.curve.curve}
                # The limits were matched with the dofs for the rows.
                del facts["matched"]
                yield replace(finding, text=text, facts=facts)

    def _finding(
        self, check: str, name: str, quantity: str, statistics: Statistics, count: int
    ) -> Finding:
        """Tells whether an array keeps its limits; values that cannot be compared fail."""
        batch, units = self.batch, self.batch.units.get(name)
        units = units and derivative_units(units, QUANTITIES.index(quantity))
        array, share, bounds = label(batch, name), statistics.limit_share(), statistics.bounds
        absent = f"not checked at {statistics.nan + statistics.inf} values that are NaN or Inf"
        if statistics.failures:
            assert bounds is not None
            texts, dofs, lines = {}, {}, []
            for dof, worst in sorted(statistics.worst.items()):
                # A value below the lower limit is held against that one.
                side = bounds.upper if worst.value > bounds.upper[dof] else bounds.lower
                limit, unit = float(side[dof]), unit_of_dof(si_units(units), dof) if units else ""
                texts[dof] = f"{worst.value:.6g}, limit {limit:.6g} {unit}".rstrip()
                # Runs of rows are listed by their times: 0.001 to 0.061, 2.379 and 2 more.
                ends = [
                    [str(row) for row in rows] if times is None else [f"{x:.3f}" for x in times]
                    for rows, times in worst.spans
                ]
                spans = join_names((a if a == b else f"{a} to {b}" for a, b in ends), _SPANS)
                spans = f"{'rows' if worst.spans[0][1] is None else 'seconds'} {spans}"
                where = f"{place_text(batch, worst)}; beyond it in {spans}"
                lines.append(f"{dof_text(batch, dof)}: {texts[dof]}, {where}")
                dofs[dof] = {
                    "dof": batch.dofs.numbers[dof],
                    "name": batch.dof_labels[dof],
                    "value": worst.value,
                    "trajectory": worst.trajectory,
                    "row": worst.row,
                    "time": worst.time,
                    "spans": [{"rows": rows, "seconds": seconds} for rows, seconds in worst.spans],
                    "limit": limit,
                    "failing_values": int(statistics.violations[dof]),
                }
            dof = max(sorted(statistics.worst), key=lambda dof: statistics.worst[dof].excess)
            text = f"{texts[dof]}; {absent}" if statistics.nonfinite else texts[dof]
            about: dict[str, Any] = {name: dofs[dof][name] for name in ("value", "limit")}
            about |= {"per_dof": statistics.violations.tolist(), "dofs": list(dofs.values())}
            finding = failed(check, batch, name, statistics.failures, text, count, **about)
            finding = replace(finding, details=lines)
        elif statistics.nonfinite:
            finding = failed(check, batch, name, statistics.nonfinite, absent, count)
        elif not statistics.known:
            finding = Finding(check, array, False, "not checked: there are no rows", count)
        else:
            text = "within limits" + ("" if share is None else f", peak {100 * share:.1f} %")
            finding = Finding(check, array, True, text, count, facts={"used": share})
        remarks = self.limits.unit_remarks(quantity, units)
        remarks += self.limits.remarks(batch.dof_labels, batch.dofs)
        facts = {"quantity": quantity, **finding.facts}
        differences = []
        if statistics is self.derived.get(quantity):
            facts["derived_from"] = array
            differences.append(f"central differences of {name}")
            # An array in the same group whose name tells this quantity, for as many dofs.
            path = array_path(batch.group, batch, next(iter(batch.arrays)))
            folder = path.rpartition("/")[0]
            for measured in batch.file.children(folder):
                other = f"{folder}/{measured}"
                if rate_name(measured) != quantity or other.lstrip("/") == path:
                    continue
                dataset = batch.file.get(other)
                if dataset is None or not dataset.numeric:
                    continue
                if dataset.shape[-1:] == (batch.dofs.count,):
                    text = f"{measured}, which is measured, is not used: name it to check it"
                    differences.append(text)
                    break
        text = "; ".join([finding.text, *differences, *self.notes, *remarks])
        facts["matched"] = self.limits.matched(batch.dof_labels, batch.dofs)
        return replace(finding, text=text, facts=facts)


def compare_velocities(
    batch: Recording, numbers: Sequence[int], others: Recording, positions: str
) -> Finding:
    """Compares velocities with the five-point differences of ``others``, called ``positions``."""
    shapes = [[part.shape for part in side.members] for side in (batch, others)]
    if any(0 in shape for shape in shapes[0]):
        what, expected, found = "nothing to compare", "rows and dofs", "an empty array"
        raise InputError(what, where=batch.file.path, expected=expected, found=found)
    sources = batch.source, others.source
    pairs = pair_dofs(batch.pairing_labels, others.pairing_labels, sources)
    times = None
    if len(batch) == len(others):
        with suppress(InputError):
            times = paired_times(batch.take(numbers), others.take(numbers))
    same_rows = [shape[:2] for shape in shapes[0]] == [shape[:2] for shape in shapes[1]]
    # Rows are compared one by one unless a shared clock, or their number, tells them apart.
    if times is not None and ((same_rows and not times.shared_clock) or times.identical):
        remark, times = times.remark, None
    else:
        remark = times.remark if times else ""
    if not (pairs.first and (times or same_rows)):
        expected, actual = (
            f"{len(side)} × {', '.join(dict.fromkeys(map(describe, side)))}".removeprefix("1 × ")
            for side in shapes
        )
        raise InputError(
            "positions and velocities of different shapes" if pairs.first else "no dofs of both",
            where=others.source,
            expected=f"{expected}, as the velocities",
            found="; ".join(filter(None, [actual, pairs.remark])),
        )
    velocity = "velocity" if "velocity" in batch.arrays else next(iter(batch.arrays))
    fit, rows, seconds = _fit_velocities(batch, velocity, numbers, others, pairs, times)
    facts = fit.facts()
    worst = int(np.argmax(facts["per_dof"]))
    error = facts["per_dof"][worst]
    facts |= {"paired": pairs.by, "only": pairs.unpaired}
    texts = [f"{100 * error:.3g} % (RMS) off the derivative of {positions}"]
    if error > LARGEST_ERROR:
        texts.append(fit_text(facts, worst))
    if times:
        how = "on one clock" if times.shared_clock else "by time"
        texts.append(f"{how}, {rows} rows ({seconds:.6g} s)")
        facts["overlap"] = {"rows": rows, "seconds": seconds}
    texts += [remark, pairs.remark]
    if pairs.by == "place":
        texts.append("dofs paired by place")
    return Finding(
        "velocity",
        label(batch, velocity),
        # A velocity without positions has not been compared.
        passed=error <= LARGEST_ERROR and not pairs.unpaired["a"],
        text="; ".join(filter(None, texts)),
        trajectories=len(numbers),
        where=f"dof {batch.dofs.numbers[pairs.first[worst]]}",
        facts=facts,
    )


def _fit_velocities(
    batch: Recording, velocity: str, numbers: Sequence[int], others: Recording, pairs: DofPairs,
    times: PairedTimes | None,
) -> tuple[VelocityFit, int, float]:  # fmt: skip
    """Fits velocities by the derivatives of the positions of ``others``, block by block."""
    position = "position" if "position" in others.arrays else next(iter(others.arrays))
    fit, rows, seconds = VelocityFit(len(pairs.first), int(np.median(batch.lengths))), 0, 0.0
    # Trajectories that are paired by time have rows of their own, and are read one by one.
    single = map(batch.take, np.asarray(numbers)[:, None])
    for k, block in enumerate(single if times else batch.take(numbers).blocks()):
        reference = others.take(block.numbers)
        stamps = block.times() if batch.clock is not None else reference.times()
        known = reference.times() if times else stamps
        if stamps is None or known is None:
            expected, hint = "dt or time stamps", "--dt SECONDS or --rate HZ says it"
            where = batch.file.path
            raise InputError("no time step", where=where, expected=expected, hint=hint)
        if reference.rows < 2:
            continue
        method: MethodName = "central" if reference.rows >= WINDOW else "backward"
        rates: Any = differentiate(
            reference.arrays[position].read(), times=known, method=method, write=("velocity",),
            dtype="float64", allow_nonfinite=True, backend="auto",
        )  # fmt: skip
        v = block.arrays[velocity].read()[..., pairs.first]
        derived = rates.velocity[..., pairs.second]
        if times:
            clocks = times.read_times(k)
            indices, slack = times.overlap(clocks)[0], times.tolerance(clocks[0])
            stamps = clocks[0][indices]
            derived = interpolate(stamps, clocks[1], derived[0], slack)[0][None]
            v, stamps = v[:, indices], stamps[None]
            rows, seconds = rows + len(indices), seconds + float(np.ptp(stamps))
        fit.add_block(v.astype(np.float64), derived, stamps)
    return fit, rows, seconds


def report(name: str, findings: Sequence[Finding], verbose: bool) -> Iterator[RenderableType]:
    from rich.text import Text

    failing = [finding for finding in findings if finding.passed is False]
    rows = []
    for finding in findings:
        count = str(finding.count) if finding.passed is False and finding.count else ""
        if count and finding.trajectories > 1:
            count += f" in {len(finding.failures)} of {finding.trajectories}"
        row = [finding.check, finding.dataset, _WORDS[finding.passed], finding.text, count]
        rows.append(row if failing else row[:-1])
    columns = ["check", "dataset", "", "found", "> failing"]
    yield TextTable(columns if failing else columns[:-1], rows, spare=["failing"])
    for finding in failing:
        if finding.where and not finding.details:
            yield Text(f"{finding.check}, {finding.dataset}: worst at {finding.where}")
    # Each dof that fails comes first, with -v followed by each trajectory.
    lists = [(finding, finding.details) for finding in failing]
    lists += [(finding, finding.failures) for finding in failing if verbose]
    for finding, lines in lists:
        if lines:
            yield Text(f"\n{finding.check}, {finding.dataset}", "bold")
            yield Text("\n".join(f"  {line}" for line in lines))
    done = sum(finding.passed is not None for finding in findings)
    checks = "check" if done == 1 else "checks"
    if failing:
        yield Text(f"\n{name}: {len(failing)} of {done} {checks} failed", "bold red")
        if not verbose and any(len(finding.failures) > 1 for finding in failing):
            yield Text("-v lists every trajectory that fails")
    else:
        omitted = len(findings) - done
        more = f", {omitted} could not be made" if omitted else ""
        yield Text(f"\n{name}: {done} {checks} passed{more}")
