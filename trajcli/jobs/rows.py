"""Rows from rows: trajectories that ``resample``, ``retime`` and ``fit`` read, change and write.

Trajectories of one length are read, computed and written in blocks, as arrays [b, T, D].
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from trajcli.errors import Fault, InputError, raise_if_any
from trajcli.files.outputs import open_output
from trajcli.files.reader import Files, read_sources
from trajcli.files.refusals import refuse_input
from trajcli.files.schema import Schema, Variable, packed_schema
from trajcli.files.selection import select
from trajcli.files.stored_time import time_from_options
from trajcli.files.trajectory_set import TrajectorySet
from trajcli.jobs.request import SourceRequest
from trajcli.jobs.row_blocks import Block, Floats, Numbers, Part
from trajcli.jobs.segments import (
    Segment,
    by_length,
    first_and_more,
    in_groups,
    require_alike,
    require_time,
    segments_of,
    trajectory_names,
)
from trajcli.jobs.statements import units_report
from trajcli.jobs.states import stored_state
from trajcli.resampling import output_type

_BLOCK_ELEMENTS = 1 << 17
"""Of one array at once; more would leave the processor's caches."""

Arrays = Mapping[str, npt.NDArray[Any]]


class Rows:
    """All trajectories of a request, numbered, and what their files say of them.

    names: the arrays that all of them have. lengths: the rows of each trajectory, int64 [n].
    """

    def __init__(self, request: SourceRequest, files: Files, actions: bool) -> None:
        """actions: of actions and trajectories side by side, the actions are meant.

        Raises InputError for files without trajectories, or without their time.
        """
        files = files.picking(request.dofs, request.joints, request.stamp)
        sets = read_sources(files, request.sources, request.layout, request.filter_key)
        self.sets = _select(sets, actions)
        self.first = self.sets[0]
        self.names = [n for n in self.first.arrays if all(n in one.arrays for one in self.sets)]
        if not self.names:
            listed = "; ".join(", ".join(one.arrays) for one in self.sets[:3])
            raise InputError(Fault("inputs that have nothing in common", "SOURCE", found=listed))
        for one in self.sets:
            if 0 in one.shape:
                raise InputError(Fault("an empty array", one.where, "B, T, D >= 1", str(one.shape)))
        require_alike(self.sets)
        self.dofs = self.first.shape[2]
        option = time_from_options(files, request.dt, request.rate, request.times)
        times = []
        for one in self.sets:
            batch, count, _ = one.shape
            time = one.time if option is None else option.fitted(batch, count, one.of_actions)
            times.append(time := require_time(time, one.where))
            raise_if_any(time.faults(0, 1) if time.uniform is not None else time.shape_faults())
        self._count = sum(one.shape[0] for one in self.sets)
        self._chosen = np.sort(select(request.episodes, self._count))
        every = segments_of(zip(self.sets, times, strict=True))
        self.segments = [only for one in every if (only := self._only(one)) is not None]
        self._parts = [Part(equal.segments) for equal in by_length(self.segments)]
        self.lengths, self._part_of, self._at = np.empty((3, len(self._chosen)), np.int64)
        for k, part in enumerate(self._parts):
            self.lengths[part.numbers], self._part_of[part.numbers] = part.length, k
            self._at[part.numbers] = np.arange(len(part.numbers))
        self.source = first_and_more(one.where for one in self.sets)
        self.dt_source = first_and_more(time.source for time in times)

    def _only(self, segment: Segment) -> Segment | None:
        """The trajectories of a segment that are chosen, numbered anew; None without any."""
        if len(self._chosen) == self._count:
            return segment
        wanted = segment.only(np.isin(segment.numbers, self._chosen))
        numbers = np.searchsorted(self._chosen, np.asarray(wanted.numbers))
        return replace(wanted, numbers=numbers) if len(numbers) else None

    def trajectory_names(self) -> list[str]:
        """The names of all trajectories, in their order."""
        paths = (os.fspath(one.file.path) for one in self.sets)
        return list(trajectory_names(self.segments, self.sets, paths).values())

    def states(self) -> dict[str, npt.NDArray[Any]]:
        """Start and goal states beside actions: one [D] for all, or [n, D].

        Raises InputError for states, or an index of states, that do not fit.
        """
        states: dict[str, npt.NDArray[Any]] = {}
        if len(self.sets) > 1 or self.names != ["actions"]:
            return states
        for role in ("start", "goal"):
            state = stored_state(role, self.first)
            raise_if_any(state.faults(role, self._count))
            for part, rows in state.rows(self._chosen).items():
                states[f"{role}/{part}"] = rows if len(rows) == len(self._chosen) else rows[0]
        return states

    def blocks(self, numbers: Numbers, rows: int = 0) -> Iterator[tuple[int, Block]]:
        """These trajectories as they are read at once, and how many come before them.

        rows: that are computed of each.
        """
        changes = np.flatnonzero(np.diff(self._part_of[numbers])) + 1
        for begin, end in pairwise([0, *changes.tolist(), len(numbers)]):
            part = self._parts[self._part_of[numbers[begin]]]
            size = max(1, _BLOCK_ELEMENTS // (max(part.length, rows) * self.dofs))
            for first in range(begin, end, size):
                yield first, Block(part, self._at[numbers[first : min(first + size, end)]])


Compute = Callable[[Block], tuple[Floats, Arrays]]
"""Times [b or 1, T'] and arrays of a block of trajectories; [b, T', D], or [b] of one number."""


def write_rows(
    request: SourceRequest,
    files: Files,
    rows: Rows,
    counts: Numbers,
    compute: Compute,
    attributes: Mapping[str, Any],
    more: Sequence[Variable] = (),
    step: float | None = None,
    own_times: bool = True,
) -> dict[str, Any]:
    """Compute every trajectory and write it; returns what both commands report.

    counts: the rows of each when they are computed. attributes: paths in them become relative to
    OUT. more: what has one number for each trajectory. step: the one dt of all rows, where there
    is one. own_times: without it, whether trajectories differ in the times of their rows.
    """
    refuse_input(request.out, files.paths())
    stated = {**attributes, "source": rows.source, "source_dt": rows.dt_source}
    stated = request.attributes(stated, files.paths())
    own_times = own_times and step is None and len(counts) > 1
    more = [*more, *_beside_actions(rows, step)]
    schema = _schema(rows, int(counts.max()), stated, more, own_times)
    lengths = [(n, np.flatnonzero(counts == n)) for n in dict.fromkeys(counts.tolist())]
    names = rows.trajectory_names() if len(lengths) > 1 or len(rows.sets) > 1 else None
    schema = in_groups(schema, lengths, names, request.pack)
    files.sources.add(files.paths())
    with open_output(request.out, schema, request.overwrite, request.durable) as output:
        for group, (count, numbers) in enumerate(lengths):
            for begin, block in rows.blocks(numbers, count):
                times, arrays = compute(block)
                for name, values in arrays.items():
                    output.write(name, begin, values, group)
                output.write_time(begin, len(block.at), times, group)
        files.sources.require_unchanged()
        output.finish()
    return {
        "out": str(request.out),
        "source": rows.source,
        "dt_source": rows.dt_source,
        "units": units_report(rows.first),
        "trajectories": len(counts),
        "output": schema.kind,
        "notes": output.notes,
        "bytes_written": schema.nbytes,
    }


def _beside_actions(rows: Rows, step: float | None) -> Iterator[Variable]:
    """The step of actions, where it is one, and their start and goal states."""
    if "actions" in rows.names and step is not None:
        label = {"long_name": "step of the actions", "units": "s"}
        yield Variable("dt", (), (), np.dtype("f8"), label, np.asarray(step))
    for name, values in rows.states().items():
        dims = ("trajectory", "dof")[-values.ndim :]
        yield Variable(name, dims, values.shape, values.dtype, {}, values)


def _schema(
    rows: Rows,
    longest: int,
    attributes: Mapping[str, Any],
    more: Sequence[Variable],
    own_times: bool,
) -> Schema:
    """What is written, as if all trajectories had the most rows."""
    schema = packed_schema(
        len(rows.lengths),
        longest,
        rows.dofs,
        wanted=rows.names,
        dtype="float64",
        own_times=own_times,
        attributes=attributes,
        joint_names=rows.first.joint_names,
        more=more,
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
