"""Findings of checks, in words and for JSON; the checks of start rows and times."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import numpy as np

from trajcli.errors import InputError, listed
from trajcli.files.clock import JUMP, Clock, positive
from trajcli.files.dofs import Dofs
from trajcli.files.quantities import QUANTITIES, ROTATIONS, UNITS_OF_ROTATIONS
from trajcli.files.recording import Array, Recording
from trajcli.files.repair import TurnJumps
from trajcli.files.source import Place
from trajcli.rotations.quaternions import TOLERANCE
from trajcli.views._statistics import Failure, RotationStatistics, failures
from trajcli.views.recordings import dof_text, label, trajectory_text

StartRows = Callable[[Array, Sequence[str]], Mapping[str, Array]]
"""Returns the start states by part, [b, D] or [1, D], of trajectories given by their numbers [b]
and, where each has a group, by the names of the groups; parts that are absent are 0."""
# Rows that are listed of a trajectory whose times are wrong.
_LISTED = 5
BadTimes: TypeAlias = tuple[int, str, str, Sequence[tuple[int, float]]]
"""A trajectory whose times are wrong: its number, what is wrong, in which dataset, in which rows
(and at which times)."""


@dataclass(frozen=True)
class Finding:
    """The result of one check of one array.

    passed: None where the check could not be made; ``text`` says why. trajectories: how many were
    checked. where: the place of the worst value that fails. count: how many values fail. failures:
    every trajectory that fails, in words. facts: more fields for JSON. details: more lines for
    people.
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
        """Returns the finding for JSON; ``verbose``: with every trajectory that fails."""
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
    """Returns the finding of a check that failed in some of ``count`` trajectories.

    name: the array; "" for that of the worst failure. facts: more fields for JSON, to which the
    place of the worst value is added.
    """
    worst = max(failures, key=lambda failure: failure.excess)
    places = [
        place_text(batch, failure, f", {dof_text(batch, failure.dof)}") for failure in failures
    ]
    dof = batch.dofs.numbers[worst.dof]
    facts["at"] = {"trajectory": worst.trajectory, "row": worst.row, "dof": dof}
    facts["at"] |= {} if worst.time is None else {"time": worst.time}
    values = sum(failure.count for failure in failures)
    array, where = label(batch, name or worst.dataset), places[failures.index(worst)]
    return Finding(check, array, False, text, count, where, values, places, facts)


def jumps_findings(jumps: TurnJumps, batch: Recording, count: int) -> Iterator[Finding]:
    """Yields a finding where angles jump by a turn, with the first jump of each trajectory."""
    _, first, counts = np.unique(jumps.found[:, 0], return_index=True, return_counts=True)
    places = []
    for k, n in zip(first, counts, strict=True):
        number, row, dof, turn, time = jumps.found[k].tolist()
        time = None if np.isnan(time) else time
        places.append(Failure(int(number), int(row), int(dof), turn, turn, n, time))
    dofs = np.bincount(jumps.found[:, 2].astype(int), minlength=batch.shape[2]).tolist()
    for text in jumps.notes():
        yield failed("jumps of a turn", batch, jumps.name, places, text, count, per_dof=dofs)


def place_text(batch: Recording, failure: Failure, dof: str = "") -> str:
    """Returns where a value fails: data/demo_13, row 20, 0.400 s; ``dof`` follows the row."""
    time = "" if failure.time is None else f", {failure.time:.3f} s"
    return f"{trajectory_text(batch, failure.trajectory)}row {failure.row}{dof}{time}"


def recompute_finding(
    name: str, values: int, differing: int, beyond: int, excess: float, at: Sequence[int]
) -> Finding:
    """Returns the finding of a variable that was computed again.

    differing: how many values are not equal to the bit. beyond: how many differ by more than
    rounding. excess: how many times the allowed rounding the worst value differs. at: trajectory,
    row and dof of it.
    """
    if beyond:
        place = dict(zip(("trajectory", "row", "dof"), at, strict=False))
        where = ", ".join(f"{axis} {i}" for axis, i in place.items())
        text = f"{beyond} of {values} values are not what the recorded command gives"
        facts = {"at": place, "times_rounding": excess}
        return Finding("recompute", name, False, text, 0, where, beyond, facts=facts)
    text = f"{differing} of {values} values differ by rounding" if differing else "equal to the bit"
    return Finding("recompute", name, True, text, facts={"exact": not differing})


class StartCheck:
    """Compares row 0 with the start states, up to the rounding of the stored type."""

    def __init__(self, start: StartRows | str) -> None:
        """Takes the start states, or the reason why they are not known."""
        self.start = start
        self.failures: list[Failure] = []
        self.compared = 0

    def add(self, values: Mapping[str, Array], block: Recording) -> None:
        """Compares the first rows of a block, values [b, T, D] by name."""
        if isinstance(self.start, str) or not block.rows:
            return
        parts = [block.part(k) for k in range(len(block))]
        states = self.start(block.numbers, [part.group for part in parts if part.single])
        self.compared += len(block)
        for name in (name for name in QUANTITIES if name in values):
            rows = values[name][:, :1]
            state = block.pick(states.get(name, np.zeros((1, 1))))
            state = np.asarray(state, np.float64)[:, None]
            # NaN differs from every state
            off = np.nan_to_num(np.abs(rows.astype(np.float64) - state), nan=np.inf, posinf=np.inf)
            # the state was rounded to the stored type when it was written
            wrong = ~(off <= np.spacing(np.abs(state).astype(parts[0].arrays[name].precision)))
            self.failures += failures(wrong, off, rows, block, name)

    def finding(self, batch: Recording) -> Finding:
        """Returns whether row 0 equals the start state, or why that is not known."""
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
        """Takes the whole batch, whose blocks are then added."""
        attributes = batch.file.attributes()
        self.dt = positive(attributes.get("dt")) if "mode" in attributes else None
        self.failures: list[BadTimes] = []
        self.where: Place | None = None  # the dataset or the option that gives the times
        self.steps: set[float | None] = set()  # None: dt varies
        # groups whose trajectories share their times
        self._shared = {id(x.origin) for x in batch.members if x.clock and x.clock.shared}
        self._checked: set[int] = set()

    def add(self, _: Mapping[str, Array], block: Recording) -> None:
        """Checks the times of a block; those that all trajectories of a group share, once."""
        for group, places in block.by_part():
            clock, origin, numbers = group.clock, id(group.origin), block.numbers[places].tolist()
            if clock is None or origin in self._checked:
                continue
            self._checked |= {origin} & self._shared
            try:
                if clock.contradiction is not None:
                    raise InputError(clock.contradiction)
                self.where = self.where or clock.where
                self.steps.add(clock.step)
                self._check(clock, numbers)
            except InputError as error:
                fault = error.faults[0]
                self.failures.append((numbers[0], fault.what, str(fault.where), ()))

    def _check(self, clock: Clock, numbers: Sequence[int]) -> None:
        """Checks the times of trajectories with these numbers."""
        step = self.dt
        by_dt = clock.nominal is None and (step is None or clock.step is not None)
        # equal steps by definition need no check row by row
        if by_dt and not clock.faults():
            return
        for k, number in enumerate(numbers):
            stamps = clock.rows(k, k + 1)[0]
            gaps = np.diff(stamps)
            wrong, what = ~(gaps > 0), "not increasing"
            if step is not None and not wrong.any():
                # each stamp is rounded once: a gap is off by up to two last places of the largest
                slack = 2 * np.spacing(np.abs(stamps).max()) + 1e-12 * step
                wrong, what = ~(np.abs(gaps - step) <= slack), f"not in steps of dt = {step:g} s"
            if clock.nominal and not wrong.any():
                wrong, what = gaps > JUMP * clock.nominal, f"jumps: steps are {clock.nominal:g} s"
            if wrong.any():
                bad = np.flatnonzero(wrong) + 1
                pairs = list(zip(bad.tolist(), stamps[bad].tolist(), strict=True))
                self.failures.append((number, what, "", pairs))
            if clock.shared:
                return

    def findings(self, batch: Recording, count: int) -> Iterator[Finding]:
        """Yields whether the times of ``count`` trajectories hold; nothing without times."""
        if not (self.where or self.failures):
            return
        place, group = self.where or Place(), batch.group
        if place.path == str(batch.file.path):
            name = place.name.lstrip("/")
            if group and name.startswith(group):  # of all the groups
                name = batch.pattern + name.removeprefix(group)
            place = replace(place, path="", name=name)
        title = str(place).lstrip(":") or "time"
        if self.failures:
            number, what, _, places = self.failures[0]
            texts = [f"{_where_text(batch, x, len(x[3]))}: {x[1]}" for x in self.failures]
            where = _where_text(batch, self.failures[0], _LISTED)
            values = sum(len(rows) or 1 for *_, rows in self.failures)
            rows = [{"trajectory": number, "row": row, "time": time} for row, time in places]
            yield Finding("time", title, False, what, count, where, values, texts, {"rows": rows})
            return
        dt = next(iter(self.steps)) if len(self.steps) == 1 else None
        text = "increases" if dt is None else f"increases by dt = {dt:g} s"
        known = [step for step in self.steps if step is not None]
        if 1 < len(known) == len(self.steps):
            text += f", dt = {min(known):g} to {max(known):g} s"
        yield Finding("time", title, True, text, count, facts={"dt": dt})


def _where_text(batch: Recording, failure: BadTimes, most: int) -> str:
    """Returns the dataset of wrong times, or their rows: of more than ``most`` the first."""
    number, _, where, rows = failure
    texts = [f"row {row} ({time:.3f} s)" for row, time in rows]
    more = " (-v)" if len(rows) > most else ""
    return trajectory_text(batch, number) + (where or listed(texts, most) + more)


def rotation_findings(rotations: RotationStatistics, count: int) -> Iterator[Finding]:
    """Yields whether norms are 1, signs continuous and rates within their limits, of ``count``
    trajectories.

    Signs of recordings mean nothing; orientations that trajcli wrote have continuous ones.
    """
    names = [x.name for x in rotations.rotations] or list(map(str, range(rotations.count)))
    batch = replace(rotations.batch, dofs=Dofs(len(names), range(len(names))), joint_names=names)
    for check, statistics in rotations.of.items():
        name = check if check in rotations.stored else next(iter(batch.arrays))
        peak, array = float(statistics.peak.max()), label(batch, name)
        facts: dict[str, Any] = {"largest": peak} if statistics.known else {}
        passed = not statistics.outside
        if check == "norm":
            text = f"off by up to {peak:.2g}, allowed {TOLERANCE:g}"
        elif check == "sign":
            facts = {"changes": int(statistics.beyond.sum())}
            many = "change" if facts["changes"] == 1 else "changes"
            text = f"{facts['changes']} {many} of sign" if not passed else "continuous"
            if not passed and not batch.own_output:
                passed, text = True, f"{text}, which differentiate and resample undo"
        else:
            of_rate = UNITS_OF_ROTATIONS[ROTATIONS.index(check)]
            text = f"peak magnitude {peak:.6g}, limit {rotations.limits[check]:.6g} {of_rate}"
            if check in rotations.derived:
                text += "; central differences"
            facts |= {"limit": rotations.limits[check], "quantity": check}
            if passed and (statistics.nonfinite or not statistics.known):
                absent = statistics.nan + statistics.inf
                text, passed = f"not checked at {absent} values that are NaN or Inf", False
            check = f"{check} limits"
        if statistics.outside and not passed:
            yield failed(check, batch, name, statistics.outside, text, count, **facts)
        else:
            yield Finding(check, array, passed, text, count, facts=facts)
