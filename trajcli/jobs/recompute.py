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
from trajcli.kernels.program import NumpyArray
from trajcli.modes.mode import promise

# Called with the numbers [b] of trajectories and the names of their groups (none in one array);
# returns start states [b, D] by part.
StartRows = Callable[[NumpyArray, Sequence[str]], Mapping[str, NumpyArray]]

# Costs and gradients are sums, which backends add in another order. They differ by less than this
# share of the largest.
_SUMS = 1e-9


def _plan_again(file: Catalogue, files: Files, request: Request | None = None) -> Plan:
    """Plans the recorded request of an output, or another, on the CPU; nothing will be written."""
    try:
        text = str(file.attributes().get("request", ""))
        request = request or Request.from_json(text, file.path.parent)
    except (ValueError, RecursionError):
        expected = "an output of integrate or differentiate, with its command"
        raise InputError("no recorded command", where=file.path, expected=expected) from None
    out = Path(tempfile.gettempdir()) / "trajcli-again.h5"
    again = replace(request, out=out, overwrite=True, device="cpu")
    return Plan(again, files.with_reading(again))


@dataclass
class Comparison:
    """A variable of an output, compared with what its request gives."""

    name: str
    values: int = 0  # how many were compared
    differing: int = 0  # how many are not equal bit by bit
    beyond: int = 0  # how many differ by more than rounding explains
    excess: float = 0.0  # the largest difference as a multiple of rounding
    at: tuple[int, ...] = ()  # its trajectory, row and dof


class StoredOutput:
    """An output with which the results of a job are compared, instead of being written."""

    def __init__(self, file: Catalogue, plan: Plan) -> None:
        self.description = plan.output
        self._variables = {variable.name: variable for variable in plan.output.variables}
        self._file, self._mode = file, plan.mode
        absolute = bool(plan.commands.absolute)  # differences of positions, in every mode
        self._order = 0 if absolute else self._mode.action_order
        self._pieces: dict[str, list[NumpyArray]] = {}
        self.compared = {v.name: Comparison(v.name) for v in plan.output.streamed}

    def write(self, span: Span, arrays: Mapping[str, Any], first: int = 0) -> None:
        for name, values in arrays.items():
            variable = self._variables[name]
            computed = np.asarray(values, variable.dtype)
            if name == "time" and variable.has_trajectory_axis:
                computed = np.broadcast_to(computed, (len(span), computed.shape[1]))
            elif name == "time":
                if span.begin:  # compared already
                    continue
                computed = computed[0]
            # Rows that come in pieces are compared once the last of them is here: what rounding
            # allows depends on the largest value along a whole trajectory.
            shape = self.description.shape(variable, span.group)
            if computed.ndim > 1 and computed.shape[1] < shape[1]:
                self._pieces.setdefault(name, []).append(computed.copy())
                if first + computed.shape[1] < shape[1]:
                    continue
                computed = np.concatenate(self._pieces.pop(name), 1)
            stored, numbers = self._read(name, span.begin, len(computed), span.group)
            same, result = np.array_equal(stored, computed), self.compared[name]
            allowed = 0.0 if same else self._rounding(name, span.begin, computed, span.group)
            if stored.shape != computed.shape:
                result.values = result.differing = result.beyond = computed.size
                result.excess = np.inf
                continue
            differs = (stored != computed) & ~(np.isnan(stored) & np.isnan(computed))
            # infinite values differ by NaN, and allowed may be 0: both count as any excess
            with np.errstate(all="ignore"):
                off = np.abs(stored.astype(np.float64) - computed)
                excess = np.where(differs, off / allowed, 0.0)
            excess[differs & ~np.isfinite(excess)] = np.inf
            result.values += computed.size
            result.differing += int(differs.sum())
            result.beyond += int((excess > 1.0).sum())
            worst = np.unravel_index(int(excess.argmax()), excess.shape)
            if excess[worst] > result.excess:
                result.excess = float(excess[worst])
                result.at = (int(numbers[worst[0]]), *map(int, worst[1:]))

    def _rounding(self, name: str, begin: int, computed: NumpyArray, group: int) -> NumpyArray:
        """Computes how far two backends may differ in each value."""
        # Kernels promise a relative error in the largest value along a trajectory and dof. A value
        # that is a difference of lower derivatives over dt also inherits their error over dt.
        unit = np.spacing(np.abs(computed))
        copied = self._mode.copies_actions and name == QUANTITIES[self._order]
        if copied or name == "time":
            return unit / 4  # less than the distance of two numbers: copies must be equal
        size = np.where(np.isfinite(computed), np.abs(computed, dtype=np.float64), 0.0)
        largest: NumpyArray = size.max(1 if size.ndim > 2 else 0, keepdims=True, initial=0.0)
        if name not in QUANTITIES:
            return unit + _SUMS * largest
        last, step = QUANTITIES.index(name), positive(self.description.attributes.get("dt"))
        count = len(computed)
        if step is None:  # the shortest one
            gaps = np.diff(self._read("time", begin, count, group)[0].astype(np.float64))
            step = float(gaps.min(initial=np.inf, where=gaps > 0))
        for m in range(self._order, last):
            if QUANTITIES[m] in self._variables:
                lower = self._read(QUANTITIES[m], begin, count, group)[0]
                size = np.where(np.isfinite(lower), np.abs(lower, dtype=np.float64), 0.0)
                # the m-th difference of values off by ε is off by up to ε (2/dt)^m
                difference = size.max(1, keepdims=True) * (2 / step) ** (last - m)
                largest = np.maximum(largest, difference)
        # twice the promise, as both backends may be off
        return unit + 2 * promise(int(computed.shape[1])) * largest

    def _read(self, name: str, begin: int, count: int, group: int) -> tuple[NumpyArray, NumpyArray]:
        """Reads entries from the file; returns them and the numbers of their trajectories."""
        end = begin + count
        if not self._variables[name].has_trajectory_axis or not self.description.groups:
            stored = self._file.require(name).read_rows(begin, end)
            return np.atleast_1d(stored), np.arange(begin, end)
        part = self.description.groups[group]
        stacked = [self._file.require(f"{n}/{name}").read() for n in part.names[begin:end]]
        return np.stack(stacked), np.asarray(part.numbers)[begin:end]


def recompute(
    path: Path, allow_external: bool = False, report: Report | None = None
) -> list[Comparison]:
    """Compares every variable of an output with what its recorded request gives."""
    with Files(Reading(allow_external=allow_external), report=report) as files:
        file = files.open(path)
        plan = _plan_again(file, files)
        output = StoredOutput(file, plan)
        job = replace(Integration(plan).job(), out=path)
        write_blocks(job, output.write, files.report)
        files.sources.require_unchanged()
        return list(output.compared.values())


def start_rows(files: Files, path: Path) -> StartRows | str:
    """Makes a function that looks up start states of an output, or says why they are not known."""
    try:
        file = files.open(path)
        # the fastest timing keeps the actions and states that make its rows
        fastest = file.attributes().get("method") == "fastest"
        plan = _plan_again(file, files, Request([str(path)], path) if fastest else None)
    except TrajcliError as error:
        return f"{error.faults[0].where}: {error.faults[0].what}"
    recording = plan.recording
    names = recording.output_names(plan.request.source_paths())
    index_by_name = dict(zip(names, range(len(recording)), strict=True))

    def look_up(numbers: NumpyArray, groups: Sequence[str]) -> Mapping[str, NumpyArray]:
        try:
            if plan.output.groups:
                indices = np.array([index_by_name[name] for name in groups])
            else:
                indices = np.arange(len(recording))[numbers]
        except LookupError:
            what = "the recorded sources have other trajectories now"
            raise InputError(what, where=path) from None
        states = recording.start.load(indices)
        if plan.batches[0].inputs.rates:  # the first action is a part of the start
            actions = recording.input
            first = np.stack([actions.read_part(k, k + 1, 0, 1)[0, 0] for k in indices.tolist()])
            states[QUANTITIES[plan.mode.action_order]] = first
        return states

    return look_up
