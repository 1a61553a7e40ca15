"""Rows from rows: trajectories that ``resample`` and ``retime`` read, change and write again.

Trajectories of one length are read, computed and written in blocks, as arrays [b, T, D].
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from trajcli import __version__
from trajcli.checks import nonfinite_fault
from trajcli.errors import Fault, InputError, raise_if_any
from trajcli.files.arrays import Dataset
from trajcli.files.atomic_output import refuse_input
from trajcli.files.outputs import discarding, open_output
from trajcli.files.reader import Files, read_sources
from trajcli.files.schema import Group, Schema, Variable, packed_schema, unequal_schema
from trajcli.files.stored_time import time_from_options
from trajcli.files.time import Time
from trajcli.files.trajectory_set import TrajectorySet
from trajcli.jobs.output_schema import set_names
from trajcli.jobs.request import relative_texts, request_json
from trajcli.jobs.row_selection import in_memory
from trajcli.jobs.states import stored_state
from trajcli.resampling import output_type, rounding_of

_BLOCK_ELEMENTS = 1 << 17
"""Of one array at once; more would leave the processor's caches."""

Numbers = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Arrays = Mapping[str, npt.NDArray[Any]]


@dataclass(frozen=True)
class RowsRequest:
    """What ``resample`` and ``retime`` have in common, as typed."""

    sources: Sequence[str]
    out: Path
    layout: str | None = None
    filter_key: str | None = None
    dt: str | None = None
    rate: float | None = None
    times: str | None = None
    pack: bool = False
    overwrite: bool = False
    durable: bool = False
    allow_external: bool = False
    untrusted: bool = False


class Rows:
    """All trajectories of a request, numbered, and what their files say of them.

    names: the arrays that all of them have. lengths: the rows of each trajectory, int64 [n].
    """

    def __init__(self, request: RowsRequest, files: Files, actions: bool) -> None:
        """actions: of actions and trajectories side by side, the actions are meant.

        Raises InputError for files without trajectories, or without their time.
        """
        sets = read_sources(files, request.sources, request.layout, request.filter_key)
        self.sets = _select(sets, actions)
        self.first = self.sets[0]
        self.names = [n for n in self.first.arrays if all(n in one.arrays for one in self.sets)]
        if not self.names:
            listed = "; ".join(", ".join(one.arrays) for one in self.sets[:3])
            raise InputError(Fault("inputs that have nothing in common", "SOURCE", found=listed))
        self.dofs = _dofs(self.sets)
        option = time_from_options(files, request.dt, request.rate, request.times)
        self._times = [_time_of(one, option) for one in self.sets]
        self._roundings = [_rounding(time) for time in self._times]
        self._firsts = np.cumsum([0, *(one.shape[0] for one in self.sets)])
        self.lengths: Numbers = np.concatenate(
            [np.full(one.shape[0], one.shape[1]) if one.lengths is None else one.lengths
             for one in self.sets]
        )  # fmt: skip
        self.source = _first_and_more([next(iter(self.first.arrays.values())).where,
                                       *self.sets[1:]])  # fmt: skip
        self.dt_source = _first_and_more(list(dict.fromkeys(time.source for time in self._times)))

    def states(self) -> dict[str, npt.NDArray[Any]]:
        """Start and goal states beside actions: one [D] for all, or [n, D].

        Raises InputError for states, or an index of states, that do not fit.
        """
        states: dict[str, npt.NDArray[Any]] = {}
        if len(self.sets) > 1 or self.names != ["actions"]:
            return states
        count = len(self.lengths)
        for role in ("start", "goal"):
            state = stored_state(role, self.first).with_dofs(self.first, None)
            raise_if_any(state.faults(role, count))
            for part, values in state.parts.items():
                rows = in_memory(values)
                if state.index is not None:
                    index = in_memory(state.index)
                    if index.dtype.kind not in "iu" or index.min() < 0 or index.max() >= len(rows):
                        where, expected = state.names[f"{role}_index"], f"0 to {len(rows) - 1}"
                        raise InputError(Fault("not an index of states", where, expected))
                    rows = rows[index]
                states[f"{role}/{part}"] = rows if len(rows) == count else rows[0]
        return states

    def trajectory_names(self) -> list[str]:
        """What each trajectory is called as a group."""
        paths = list(dict.fromkeys(os.fspath(one.file.path) for one in self.sets))
        names: list[str] = []
        for base, one in zip(set_names(self.sets, paths), self.sets, strict=True):
            batch = one.shape[0]
            single = one.single or (batch == 1 and len(self.sets) > 1)
            names += [base] if single else [f"{base}/trajectory_{b}" for b in range(batch)]
        return names

    def blocks(self, numbers: Numbers) -> Iterator[tuple[int, Numbers]]:
        """Trajectories of one length that are read at once, and the place of the first."""
        for begin, end in _runs(np.diff(self.lengths[numbers]) != 0):
            size = max(1, _BLOCK_ELEMENTS // int(self.lengths[numbers[begin]] * self.dofs))
            for at in range(begin, end, size):
                yield at, numbers[at : min(at + size, end)]

    def read(self, name: str, numbers: Numbers) -> npt.NDArray[Any]:
        """The rows of an array of trajectories of one length, [b, T, D].

        Raises InputError for NaN and Inf.
        """
        parts = []
        for k, begin, end in self._ranges(numbers):
            stored = self.sets[k].arrays[name]
            values = np.asarray(stored.read_rows(begin, end))[:, : self.lengths[numbers[0]]]
            fault = nonfinite_fault(values, stored.where, ("trajectory", "step", "dof"), begin)
            if fault:
                hint = "a curve through them does not exist: repair the input, or leave it out"
                raise InputError(replace(fault, hint=hint))
            parts.append(values)
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def times(self, numbers: Numbers, acting: bool = False) -> tuple[Floats, float]:
        """Times of the rows of trajectories of one length from 0 on, and how far they may be off.

        [b, T], or [1, T] where all have the same. acting: T + 1 times of actions, from the first
        step's beginning to the last one's end, where the files say them. Raises InputError for
        times that do not go on.
        """
        rows, ranges = int(self.lengths[numbers[0]]), list(self._ranges(numbers))
        ends = int(acting and all(self._spans_steps(k) for k, _, _ in ranges))
        steps = {self._times[k].uniform for k, _, _ in ranges}
        step = steps.pop()
        if step is not None and not steps:
            return step * np.arange(float(rows + ends))[None], 0.0
        lines = []
        for k, begin, end in ranges:
            time = self._times[k]
            if self.sets[k].lengths is not None:
                time = time.select(np.arange(begin, end), rows)
                begin, end = 0, end - begin
            if ends:
                time = time.fitted(time.batch, rows + 1)
            line = time.row_times(begin, end)
            shape = (end - begin, rows + ends)
            lines.append(line if len(ranges) == 1 else np.broadcast_to(line, shape))
        return np.concatenate(lines), self._roundings[ranges[0][0]]

    def _spans_steps(self, k: int) -> bool:
        """Whether the times of a set say where the step of each of its actions begins and ends."""
        time, (batch, count, _) = self._times[k], self.sets[k].shape
        return self.sets[k].of_actions and time.fitted(batch, count + 1).fits

    def _ranges(self, numbers: Numbers) -> Iterator[tuple[int, int, int]]:
        """Trajectories that follow each other in a set: its number, begin, end."""
        sets = np.searchsorted(self._firsts, numbers, "right") - 1
        for begin, end in _runs((np.diff(numbers) != 1) | (np.diff(sets) != 0)):
            first = int(numbers[begin] - self._firsts[sets[begin]])
            yield int(sets[begin]), first, first + end - begin


Compute = Callable[[Numbers], tuple[Floats, Arrays]]
"""Times [b or 1, T'] and arrays of a block of trajectories; [b, T', D], or [b] of one number."""


def write_rows(
    request: RowsRequest,
    files: Files,
    rows: Rows,
    counts: Numbers,
    compute: Compute,
    attributes: Mapping[str, Any],
    more: Sequence[Variable] = (),
    step: float | None = None,
) -> dict[str, Any]:
    """Compute every trajectory and write it; returns what both commands report.

    counts: the rows of each when they are computed. attributes: paths in them become relative to
    OUT. more: what has one number for each trajectory. step: the one dt of all rows, where there
    is one.
    """
    refuse_input(request.out, files.paths())
    command = type(request).__name__.removesuffix("Request").lower()
    stated = {**attributes, "source": rows.source, "source_dt": rows.dt_source}
    stated = relative_texts(stated, files.paths(), request.out)
    stated |= {"trajcli_version": __version__, "request": request_json(request, command=command)}
    schema = _schema(rows, int(counts.max()), stated, more, step)
    by_length = [np.flatnonzero(counts == n) for n in dict.fromkeys(counts.tolist())]
    if len(by_length) > 1 or len(rows.sets) > 1:
        names = rows.trajectory_names()
        schema = replace(schema, trajectory_names=names)
    if len(by_length) > 1:
        groups = [Group(int(counts[n[0]]), [names[i] for i in n], n) for n in by_length]
        schema = unequal_schema(schema, groups, request.pack)
    with discarding(open_output(request.out, schema, request.overwrite, request.durable)) as output:
        for group, numbers in enumerate(by_length):
            for begin, block in rows.blocks(numbers):
                times, arrays = compute(block)
                for name, values in arrays.items():
                    output.write(name, begin, values, group)
                output.write_time(begin, len(block), times, group)
        output.finish()
    return {
        "out": str(request.out),
        "source": rows.source,
        "dt_source": rows.dt_source,
        "trajectories": len(counts),
        "output": schema.kind,
        "bytes_written": schema.nbytes,
    }


def _schema(
    rows: Rows,
    most: int,
    attributes: Mapping[str, Any],
    more: Sequence[Variable],
    step: float | None,
) -> Schema:
    """What is written, as if all trajectories had the most rows."""
    count, others = len(rows.lengths), list(more)
    if "actions" in rows.names and step is not None:
        label = {"long_name": "step of the actions", "units": "s"}
        others.append(Variable("dt", (), (), np.dtype("f8"), label, np.asarray(step)))
    for name, values in rows.states().items():
        dims = ("trajectory", "dof")[-values.ndim :]
        others.append(Variable(name, dims, values.shape, values.dtype, {}, values))
    schema = packed_schema(
        count,
        most,
        rows.dofs,
        wanted=rows.names,
        dtype="float64",
        own_times=step is None and count > 1,
        attributes=attributes,
        joint_names=rows.first.joint_names,
        more=others,
    )
    variables = []
    for variable in schema.variables:
        if variable.name in rows.names:  # its type and unit in the files
            kinds = {one.arrays[variable.name].dtype for one in rows.sets}
            unit = rows.first.unit(variable.name)
            labels = {**variable.attributes, **({"units": unit} if unit else {})}
            dtype = output_type(np.result_type(*kinds))
            variable = replace(variable, dtype=dtype, attributes=labels)
        variables.append(variable)
    return replace(schema, variables=variables)


def _select(sets: Sequence[TrajectorySet], actions: bool) -> list[TrajectorySet]:
    """What files hold that SOURCE does not name more closely: as for integrate the groups that
    have actions, in a file without any all groups.

    Of the arrays of a group that differ in shape, the actions, or else those of trajectories.
    """
    acting = {str(one.file.path) for one in sets if not one.named and "actions" in one.arrays}
    groups: dict[Any, list[TrajectorySet]] = {}
    for k, one in enumerate(sets):
        groups.setdefault(k if one.named else (str(one.file.path), one.name), []).append(one)
    return [
        max(group, key=lambda one: one.of_actions == actions)
        for group in groups.values()
        if group[0].named
        or str(group[0].file.path) not in acting
        or any("actions" in one.arrays for one in group)
    ]


def _dofs(sets: Sequence[TrajectorySet]) -> int:
    """The dofs of all; raises InputError for arrays without trajectories, rows or dofs."""
    for one in sets:
        if 0 in one.shape:
            where, found = next(iter(one.arrays.values())).where, str(list(one.shape))
            raise InputError(Fault("an empty array", where, "B, T, D >= 1", found))
    dofs = sorted({one.shape[2] for one in sets})
    if len(dofs) > 1:
        what = "trajectories of different dofs in one run"
        raise InputError(Fault(what, sets[0].name, found=str(dofs)))
    return dofs[0]


def _time_of(one: TrajectorySet, option: Time | None) -> Time:
    """The times of a set's rows; raises InputError where there are none, or they do not fit."""
    batch, count, _ = one.shape
    time = one.time if option is None else option.fitted(batch, count, one.of_actions)
    if time is None:
        hint = "--dt SECONDS, --rate HZ or --times FILE:DATASET"
        where = next(iter(one.arrays.values())).where
        raise InputError(Fault("no time step", where, "a step, a rate, or time stamps", hint=hint))
    raise_if_any(time.faults(0, 1) if time.uniform is not None else time.shape_faults())
    return time


def _rounding(time: Time) -> float:
    """How far time stamps may be off because of their type."""
    stamps = time.stamps.read_rows(0, 1) if isinstance(time.stamps, Dataset) else time.stamps
    return 0.0 if stamps is None else rounding_of(np.nan_to_num(stamps))


def _runs(changes: npt.NDArray[np.bool_]) -> Iterator[tuple[int, int]]:
    """Begin and end of what lies between changes from one item to the next."""
    return pairwise([0, *(np.flatnonzero(changes) + 1).tolist(), len(changes) + 1])


def _first_and_more(names: Sequence[Any]) -> str:
    return str(names[0]) if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"
