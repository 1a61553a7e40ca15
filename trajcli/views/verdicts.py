"""Does a file hold? Each check of each array, what it found and where."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from trajcli.checks import describe
from trajcli.errors import Fault, InputError
from trajcli.files.limits import Bounds, Limits, read_limits
from trajcli.files.opening import open_arrays
from trajcli.files.schema import QUANTITIES, RECORDED_START
from trajcli.files.source import Source
from trajcli.views.laws import ORDERS, Law, law_of
from trajcli.views.motions import ACTIONS, Motions, Trajectories, require_trajectories
from trajcli.views.scan import Extent, Place, Progress, Relation, Scan, scan
from trajcli.views.selection import select
from trajcli.views.starts import find_file, read_start

_BLOCK = 1 << 18


@dataclass(frozen=True)
class Verdict:
    """One check: passed, failed, or (None) could not be made, and why; ``alike``: of how many."""

    check: str
    dataset: str
    passed: bool | None
    found: str
    where: str = ""
    count: int = 0
    numbers: Mapping[str, Any] = field(default_factory=dict)
    alike: int = 1

    def as_dict(self) -> dict[str, Any]:
        """The same, for JSON."""
        about = {"check": self.check, "dataset": self.dataset, "passed": self.passed}
        return {
            **about,
            "found": self.found,
            "where": self.where,
            "count": self.count,
            "alike": self.alike,
            **self.numbers,
        }


@dataclass(frozen=True)
class Asked:
    """What is checked beside the file itself."""

    limits: Path | None = None
    start: str | None = None
    index: str | None = None
    allow_external: bool = False
    untrusted: bool = False


def check_file(
    source: Source, asked: Asked, on_progress: Progress = lambda done, total: None
) -> list[Verdict]:
    """All checks of the trajectories that a source names.

    Raises InputError where the file or the limits cannot be read, or there are no trajectories.
    """
    limits = None if asked.limits is None else read_limits(asked.limits)
    with open_arrays(source.path, asked.allow_external, asked.untrusted) as file:
        found = require_trajectories(file, source)
        verdicts = [*_unreadable(file)] if source.dataset is None else []
        for motions, numbers in _sets(found, asked):
            bounds = _bounds(motions, limits)
            seen = scan(motions, True, numbers, bounds, on_progress)
            verdicts += _verdicts(motions, seen, bounds, asked, numbers)
        return _joined(verdicts)


def _unreadable(file: Any) -> Iterator[Verdict]:
    """Datasets that are trajectories by their names, and cannot be read."""
    for name in file.names():
        if name.rpartition("/")[2] in QUANTITIES:
            try:
                file.require(name)
            except InputError as error:
                fault = error.faults[0]
                yield Verdict("readable", name, False, fault.what, fault.where, 1)


def _sets(found: Trajectories, asked: Asked) -> Iterator[tuple[Motions, Sequence[int] | None]]:
    chosen = None if asked.index is None else select(asked.index, found.count, "--index")
    for sets in found.aspects:
        first = 0
        for motions in sets:
            batch = motions.shape[0]
            numbers = None
            if chosen is not None:
                numbers = [n - first for n in chosen if first <= n < first + batch]
            first += batch
            yield motions, numbers


def _bounds(motions: Motions, limits: Limits | None) -> dict[str, Bounds]:
    """The limits of the quantities that these motions have; of actions, as what they are."""
    if limits is None:
        return {}
    itemsize = min(stored.dtype.itemsize for stored in motions.arrays.values())
    tables = limits.bounds(motions.dofs, itemsize)
    mode = str(motions.attributes.get("mode"))
    meant = QUANTITIES[ORDERS[mode]] if mode in ORDERS else ""
    names = {name: meant if name in ACTIONS else name for name in motions.arrays}
    return {name: tables[quantity] for name, quantity in names.items() if quantity in tables}


def _verdicts(
    motions: Motions,
    seen: Scan,
    bounds: Mapping[str, Bounds],
    asked: Asked,
    numbers: Sequence[int] | None,
) -> Iterator[Verdict]:
    for name, extent in seen.extents.items():
        yield _finite(motions, name, extent)
    law = law_of(motions.attributes)
    if law is not None and set(motions.arrays) & set(QUANTITIES):
        yield _relation(motions, seen.relation, law)
        yield _start_row(motions, law, asked, numbers)
    yield from _time(motions, law, numbers)
    for name, limit in bounds.items():
        yield _limit(motions, name, seen.extents[name], limit)


def _name(motions: Motions, name: str) -> str:
    return f"{motions.group}{name}" if name != "values" else motions.file.path.name


def _where(motions: Motions, place: Place) -> str:
    trajectory, row, dof = place
    which = f"trajectory {trajectory}, " if motions.shape[0] > 1 else ""
    return f"{which}row {row}, {_dof(motions, dof)}"


def _dof(motions: Motions, dof: int) -> str:
    name = motions.dofs[dof]
    return f"dof {dof}" if name == str(dof) else f"dof {dof} ({name})"


def _finite(motions: Motions, name: str, extent: Extent) -> Verdict:
    bad = extent.nan + extent.inf
    if not bad:
        return Verdict("finite", _name(motions, name), True, "no NaN, no Inf")
    found = f"{extent.nan} NaN, {extent.inf} Inf"
    where = _where(motions, extent.places[0])
    return Verdict("finite", _name(motions, name), False, found, where, bad, _at(extent.places[0]))


def _at(place: Place) -> dict[str, Any]:
    return {"at": dict(zip(("trajectory", "row", "dof"), place, strict=True))}


def _relation(motions: Motions, relation: Relation | None, law: Law) -> Verdict:
    what = f"relation ({law.name})"
    group = motions.group.rstrip("/") or "all"
    smoothed = str(motions.attributes.get("smooth", ""))
    if not (motions.shape[0] and motions.shape[1]):
        return Verdict(what, group, None, "not checked: there are no rows")
    if relation is None and smoothed:
        return Verdict(what, group, None, f"not checked: smoothed are {smoothed}")
    if relation is None:
        orders = ", ".join(motions.arrays)
        return Verdict(what, group, None, f"not checked: it needs more than {orders} in these rows")
    numbers: dict[str, Any] = {
        "residual": relation.residual,
        "times_rounding": relation.ratio,
        "numbers": relation.numbers,
    }
    if relation.place is None or relation.holds:
        found = f"residual {abs(relation.residual):.2g}, {relation.ratio:.2g} of rounding"
        return Verdict(what, group, True, found, numbers=numbers)
    found = f"residual {abs(relation.residual):.3g}, {relation.ratio:.3g} times rounding"
    where = _where(motions, relation.place)
    return Verdict(
        what,
        _name(motions, relation.dataset),
        False,
        found,
        where,
        relation.failing,
        {**numbers, **_at(relation.place)},
    )


def _start_row(motions: Motions, law: Law, asked: Asked, numbers: Sequence[int] | None) -> Verdict:
    group = motions.group.rstrip("/") or "all"
    told = str(motions.attributes.get("start", "none"))
    if law.frames == "actions" or (law.mode == "central" and law.convention == "curobo"):
        return Verdict("start row", group, None, "not checked: the rows begin after the start")
    if asked.start is None and (told == RECORDED_START or told == "none"):
        why = "a recording has none" if told == RECORDED_START else "the file does not say which"
        return Verdict("start row", group, None, f"not checked: {why}")
    beside = motions.file.path if asked.start is None else None
    try:
        states = read_start(asked.start or told, beside, asked.allow_external, asked.untrusted)
    except InputError as error:
        if asked.start is not None:
            raise
        name = told.partition(":")[0]
        why = f"no {name} here" if not find_file(name, motions.file.path) else error.faults[0].what
        return Verdict("start row", group, None, f"not checked: {why}; --start names it")
    return _compared(motions, states, numbers, asked.start is not None)


def _compared(
    motions: Motions, states: Mapping[str, Any], numbers: Sequence[int] | None, named: bool
) -> Verdict:
    """Row 0 beside the start states, to the rounding of the stored type. named: by the user."""
    group = motions.group.rstrip("/") or "all"
    batch, rows, dofs = motions.shape
    index = motions.file.get(f"{motions.group}start_index")
    order = range(batch) if index is None else np.asarray(index.read()).tolist()
    count = len(states["position"])
    if not batch or not rows:
        return Verdict("start row", group, None, "not checked: there are no rows")
    if (index is None and count not in (1, batch)) or max(order, default=0) >= max(count, batch):
        found = f"not checked: {count} start states, {batch} trajectories"
        return Verdict("start row", group, None, found)
    for name, known in states.items():
        if known.ndim != 2 or (known.shape[1] != dofs and known.shape != (1, 1)):
            what, shape = "a start state of another shape", describe(known.shape)
            if named:
                expected = f"[S, {dofs}], a row for each state"
                raise InputError(Fault(what, f"--start: {name}", expected, shape))
            return Verdict("start row", group, None, f"not checked: {what}; --start names it")
    worst: tuple[float, str, Place] | None = None
    bad = 0
    for number in range(batch) if numbers is None else numbers:
        row = 0 if count == 1 else order[number]
        for name, stored in motions.arrays.items():
            known = states.get(name, np.zeros((1, 1)))
            wanted = np.broadcast_to(known[row if len(known) > 1 else 0], (dofs,))
            off = np.abs(motions.read(name, number, 0, 1)[0] - wanted)
            unit = np.spacing(np.abs(wanted).astype(stored.dtype)).astype(np.float64)
            beyond = ~(off <= unit)
            bad += int(beyond.sum())
            dof = int(np.argmax(np.where(np.isnan(off), np.inf, off)))
            if beyond.any() and (worst is None or off[dof] > worst[0]):
                worst = float(off[dof]), name, (number, 0, dof)
    if worst is None:
        return Verdict("start row", group, True, "equals the start state")
    off_by, name, place = worst
    found = f"off by {off_by:.3g}" if np.isfinite(off_by) else "not finite"
    return Verdict(
        "start row", _name(motions, name), False, found, _where(motions, place), bad, _at(place)
    )


def _time(motions: Motions, law: Law | None, numbers: Sequence[int] | None) -> Iterator[Verdict]:
    """Stamps must rise; where the file gives one dt, by that."""
    stamps = motions.steps.stamps
    if stamps is None:
        return
    name = motions.steps.source.rpartition(":")[2].strip("/") or "time"
    step = motions.attributes.get("dt")
    uniform = float(step) if law is not None and isinstance(step, (float, np.floating)) else None
    own = stamps.ndim == 2 and stamps.shape[0] > 1
    chosen = (range(motions.shape[0]) if numbers is None else numbers) if own else [0]
    first: str = ""
    what, bad = "", 0
    for number in chosen:
        rows = motions.rows(number) if own else motions.shape[1]
        for begin in range(0, max(rows - 1, 1), _BLOCK):
            end = min(begin + _BLOCK + 1, rows)
            gaps, slack = motions.steps.gaps(number, number + 1, begin, end)
            if end - begin < 2:
                continue
            wrong = ~(gaps[0] > 0)
            kind = "does not rise"
            if uniform is not None and not wrong.any():
                wrong = ~(np.abs(gaps[0] - uniform) <= 2 * slack[0] + 1e-12 * uniform)
                kind = f"not in steps of dt = {uniform:g}"
            if wrong.any() and not first:
                row = begin + int(np.argmax(wrong)) + 1
                first = (f"trajectory {number}, " if own else "") + f"row {row}"
                what = kind
            bad += int(wrong.sum())
    if first:
        yield Verdict("time", name, False, what, first, bad)
    else:
        said = "rises" if uniform is None else f"rises by dt = {uniform:g} s"
        yield Verdict("time", name, True, said)


def _limit(motions: Motions, name: str, extent: Extent, bounds: Bounds) -> Verdict:
    what, label = f"{name} limits", _name(motions, name)
    if extent.worst is None:
        with np.errstate(invalid="ignore", divide="ignore"):
            sides = np.maximum(extent.high / bounds.upper, extent.low / bounds.lower)
        share = float(np.nanmax(np.where(np.isfinite(sides), sides, np.nan), initial=0.0))
        symmetric = bool((bounds.lower == -bounds.upper).all())
        used = f", at most {100 * share:.4g} %" if symmetric else ""
        return Verdict(what, label, True, f"kept{used}")
    _, place = extent.worst
    dof = place[2]
    value = float(motions.read(name, place[0], place[1], place[1] + 1)[0][dof])
    above = value > bounds.upper[dof]
    limit = float((bounds.upper if above else bounds.lower)[dof])
    found = f"{value:.6g}, limit {limit:.6g}"
    numbers = {**_at(place), "value": value, "limit": limit, "per_dof": extent.beyond}
    return Verdict(what, label, False, found, _where(motions, place), sum(extent.beyond), numbers)


def _joined(verdicts: Sequence[Verdict]) -> list[Verdict]:
    """Checks of many groups that came out alike are told once, the closest call of them."""
    found: dict[tuple[Any, ...], Verdict] = {}
    for number, verdict in enumerate(verdicts):
        array = verdict.dataset.rpartition("/")[2]
        own = array if array in (*QUANTITIES, *ACTIONS, "time") else ""
        key: tuple[Any, ...] = (verdict.check, own, verdict.passed or verdict.found)
        if verdict.passed is False or "/" not in verdict.dataset:
            key = (number,)
        first = found.get(key, verdict)
        closest = max(first, verdict, key=lambda v: float(v.numbers.get("times_rounding", 0.0)))
        alike = first.alike + 1 if key in found else 1
        found[key] = replace(closest, alike=alike)
    return list(found.values())
