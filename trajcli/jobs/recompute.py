"""Computes an output again from its recorded request, and compares; looks up its start states."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from trajcli.errors import InputError, Report, TrajcliError
from trajcli.files.catalogue import Catalogue
from trajcli.files.clock import positive
from trajcli.files.opening import Files
from trajcli.files.outputs import Span
from trajcli.files.quantities import QUANTITIES
from trajcli.files.reading import Reading
from trajcli.jobs.job import write_blocks
from trajcli.jobs.plan import Plan
from trajcli.jobs.request import Request
from trajcli.jobs.run import Integration
from trajcli.kernels.program import Array
from trajcli.modes.mode import promise

# Called with the numbers [b] of trajectories and the names of their groups (none in one array);
# returns start states [b, D] by part.
StartRows = Callable[[Array, Sequence[str]], Mapping[str, Array]]

# Sums of costs and gradients differ by less between backends, as a share of the largest of them.
_SUMS = 1e-9


def _stored_request(file: Catalogue) -> Request:
    """Returns the recorded request of an output; raises InputError for a file without one."""
    try:
        return Request.from_json(str(file.attributes().get("request", "")), file.path.parent)
    except (ValueError, RecursionError):
        raise InputError(
            "no recorded command",
            where=str(file.path),
            expected="an output of integrate or differentiate, with its command",
        ) from None


def _plan_again(request: Request, files: Files) -> Plan:
    """Plans a request on the CPU; nothing will be written."""
    out = Path(tempfile.gettempdir()) / "trajcli-again.h5"
    again = replace(request, out=out, overwrite=True, device="cpu")
    return Plan(again, files.with_reading(again))


@dataclass
class Comparison:
    """A variable of an output, compared with what its request gives.

    Attributes:
        values: the number of values that were compared.
        differing: the number that are not equal bit by bit.
        beyond: the number whose difference rounding does not explain.
        excess: the largest difference as a multiple of rounding; ``at`` trajectory, row, dof.
    """

    name: str
    values: int = 0
    differing: int = 0
    beyond: int = 0
    excess: float = 0.0
    at: tuple[int, ...] = ()

    def add(self, stored: Array, again: Array, numbers: Array, allowed: Array | float) -> None:
        """Adds stored and recomputed entries [n, ...] of trajectories by number [n].

        allowed: how far they may be apart by rounding.
        """
        if stored.shape != again.shape:
            self.values, self.differing, self.beyond = again.size, again.size, again.size
            self.excess = np.inf
            return
        self.values += again.size
        differs = (stored != again) & ~(np.isnan(stored) & np.isnan(again))
        with np.errstate(all="ignore"):
            off = np.abs(stored.astype(np.float64) - again)
            excess = np.where(differs, off / allowed, 0.0)
        excess[differs & ~np.isfinite(excess)] = np.inf
        self.differing += int(differs.sum())
        self.beyond += int((excess > 1.0).sum())
        worst = np.unravel_index(int(excess.argmax()), excess.shape)
        if excess[worst] > self.excess:
            self.excess = float(excess[worst])
            self.at = (int(numbers[worst[0]]), *map(int, worst[1:]))


class StoredOutput:
    """An output with which the results of a job are compared, instead of being written."""

    def __init__(self, file: Catalogue, plan: Plan) -> None:
        self.description = plan.output
        self._variables = {variable.name: variable for variable in plan.output.variables}
        self._file, self._mode = file, plan.mode
        absolute = bool(plan.commands.absolute)  # differences of positions, in every mode
        self._order = 0 if absolute else self._mode.action_order
        self._rows: dict[str, list[Array]] = {}
        self.compared = {v.name: Comparison(v.name) for v in plan.output.streamed}

    def write(self, span: Span, arrays: Mapping[str, Any], first: int = 0) -> None:
        """Compares variables [b, ...] with the file; those of rows once the last of them is there,
        as what rounding allows depends on the largest value along a whole trajectory."""
        for name, values in arrays.items():
            variable = self._variables[name]
            again = np.asarray(values, variable.dtype)
            if name == "time" and variable.has_trajectory_axis:
                again = np.broadcast_to(again, (len(span), again.shape[1]))
            elif name == "time":
                if span.begin:  # compared already
                    continue
                again = again[0]
            shape = self.description.shape(variable, span.group)
            if again.ndim > 1 and again.shape[1] < shape[1]:
                self._rows.setdefault(name, []).append(again.copy())
                if first + again.shape[1] < shape[1]:
                    continue
                again = np.concatenate(self._rows.pop(name), 1)
            stored, numbers = self._stored(name, span.begin, again, span.group)
            same = np.array_equal(stored, again)
            allowed = 0.0 if same else self._rounding(name, span.begin, again, span.group)
            self.compared[name].add(stored, again, numbers, allowed)

    def _rounding(self, name: str, row: int, again: Array, group: int) -> Array:
        """Returns how far two backends may differ in each value.

        Kernels promise a relative error in the largest value along a trajectory and dof. A value
        that is a difference of lower derivatives over dt also inherits their error over dt.
        """
        unit = np.spacing(np.abs(again))
        copied = self._mode.copies_actions and name == QUANTITIES[self._order]
        if copied or name == "time":
            return unit / 4  # less than the distance of two numbers: copies must be equal
        size = np.where(np.isfinite(again), np.abs(again, dtype=np.float64), 0.0)
        largest: Array = size.max(1 if size.ndim > 2 else 0, keepdims=True, initial=0.0)
        if name not in QUANTITIES:
            return unit + _SUMS * largest
        last, step = QUANTITIES.index(name), positive(self.description.attributes.get("dt"))
        if step is None:  # the shortest one
            gaps = np.diff(self._stored("time", row, again, group)[0].astype(np.float64))
            step = float(gaps.min(initial=np.inf, where=gaps > 0))
        for m in range(self._order, last):
            if QUANTITIES[m] in self._variables:
                lower = self._stored(QUANTITIES[m], row, again, group)[0]
                size = np.where(np.isfinite(lower), np.abs(lower, dtype=np.float64), 0.0)
                # the m-th difference of values off by ε is off by up to ε (2/dt)^m
                difference = size.max(1, keepdims=True) * (2 / step) ** (last - m)
                largest = np.maximum(largest, difference)
        return unit + 2 * promise(int(again.shape[1])) * largest

    def _stored(self, name: str, row: int, again: Array, group: int) -> tuple[Array, Array]:
        """Returns entries as the file has them, and the numbers of their trajectories."""
        rows = slice(row, row + len(again))
        if not self._variables[name].has_trajectory_axis or not self.description.groups:
            stored = self._file.require(name).read_rows(rows.start, rows.stop)
            return np.atleast_1d(stored), np.arange(rows.start, rows.stop)
        part = self.description.groups[group]
        numbers = np.asarray(part.numbers)[rows]
        values = [self._file.require(f"{title}/{name}").read() for title in part.names[rows]]
        return np.stack(values), numbers


def recompute(
    path: Path, allow_external: bool = False, report: Report | None = None
) -> list[Comparison]:
    """Compares every variable of an output with what its recorded request gives.

    Writes nothing. Raises InputError for a file without a request, or without its sources.
    """
    with Files(Reading(allow_external=allow_external), report=report) as files:
        file = files.open(path)
        plan = _plan_again(_stored_request(file), files)
        output = StoredOutput(file, plan)
        job = replace(Integration(plan).job(), out=path)
        write_blocks(job, output.write, files.report)
        files.sources.require_unchanged()
        return list(output.compared.values())


def start_rows(files: Files, path: Path) -> StartRows | str:
    """Returns a function that looks up start states of an output, or why they are not known."""
    try:
        file = files.open(path)
        # the fastest timing keeps the actions and states that make its rows
        made = file.attributes().get("method") == "fastest"
        request = Request([str(path)], path) if made else _stored_request(file)
        plan = _plan_again(request, files)
    except TrajcliError as error:
        fault = error.faults[0]
        return f"{fault.where}: {fault.what}"
    recording = plan.recording
    names = recording.output_names(plan.request.source_paths())
    place_of = dict(zip(names, range(len(recording)), strict=True))

    def rows(numbers: Array, groups: Sequence[str]) -> Mapping[str, Array]:
        try:
            if plan.output.groups:
                places = np.array([place_of[name] for name in groups])
            else:
                places = np.arange(len(recording))[numbers]
        except LookupError:
            raise InputError(
                "the recorded sources have other trajectories now", where=str(path)
            ) from None
        states = recording.start.load(places)
        if plan.batches[0].inputs.rates:  # the first action is a part of the start
            actions = recording.input
            first = np.stack([actions.read_part(k, k + 1, 0, 1)[0, 0] for k in places.tolist()])
            states[QUANTITIES[plan.mode.action_order]] = first
        return states

    return rows
