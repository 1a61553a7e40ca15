"""Rows from rows: trajectories that ``resample``, ``retime`` and ``fit`` read, change and write.

Trajectories of one length are read, computed and written in blocks, as arrays [b, T, D].
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from trajcli.arrays import output_dtype
from trajcli.checks import nonfinite_fault
from trajcli.errors import InputError, raise_if_any
from trajcli.files.arrays import in_memory
from trajcli.files.blocks import Block, Floats, Trajectories
from trajcli.files.description import Variable, describe_output, row_variable, time_variable
from trajcli.files.guesses import require_time
from trajcli.files.opening import Files
from trajcli.files.outputs import Output
from trajcli.files.reader import read_sources
from trajcli.files.refusals import refuse_input
from trajcli.files.repair import repaired
from trajcli.files.selection import select
from trajcli.files.stored_time import time_from_options
from trajcli.files.time import Time
from trajcli.files.trajectory_set import TrajectorySet
from trajcli.files.writing import write
from trajcli.jobs.request import SourceRequest
from trajcli.jobs.segments import (
    first_and_more,
    require_alike,
    segments_of,
    trajectory_names,
)
from trajcli.jobs.statements import units_report
from trajcli.jobs.states import stored_state
from trajcli.resampling import rounding_of

_BLOCK_BYTES = 1 << 20
"""Of one array at once; more would leave the processor's caches."""

Arrays = Mapping[str, npt.NDArray[Any]]
Numbers = npt.NDArray[np.int64]


class Rows:
    """All trajectories of a request, numbered, and what their files say of them.

    names: the arrays that all of them have. lengths: the rows of each trajectory, int64 [n].
    """

    def __init__(self, request: SourceRequest, files: Files, actions: bool, least: int = 1) -> None:
        """actions: of actions and trajectories side by side, the actions are meant. least: the rows
        that a segment between gaps needs.

        Raises InputError for files without trajectories, or without their time.
        """
        sets = read_sources(files, request.sources)
        self.sets = _select(sets, actions)
        self.first = self.sets[0]
        self.names = [n for n in self.first.arrays if all(n in one.arrays for one in self.sets)]
        if not self.names:
            raise InputError(
                "inputs that have nothing in common",
                where="SOURCE",
                found="; ".join(", ".join(one.arrays) for one in self.sets[:3]),
            )
        for one in self.sets:
            if 0 in one.shape:
                raise InputError(
                    "an empty array", where=one.where, expected="B, T, D >= 1", found=str(one.shape)
                )
        require_alike(self.sets)
        self.dofs = self.first.shape[2]
        option = time_from_options(files)
        for one in self.sets:
            batch, count, _ = one.shape
            time = one.time if option is None else option.fitted(batch, count, one.of_actions)
            one.time = time = require_time(time, one.where, one)
            raise_if_any(time.faults(0, 1) if time.uniform is not None else time.shape_faults())
        if remark := _time(self.first).remark:
            files.note(remark)
        parts, notes = repaired([(one, _time(one)) for one in self.sets], request, least)
        self.sets = [one for one, _ in parts]
        for one, time in parts:
            one.time = time
        for note in notes:
            files.note(note)
        self.first = self.sets[0]
        self._trajectories = Trajectories(self.sets)
        self._chosen = np.sort(select(request.episodes, self._trajectories.count))
        self.lengths = self._trajectories.lengths[self._chosen]
        self.source = first_and_more(one.source for one in self.sets)
        self.dt_source = first_and_more(_time(one).source for one in self.sets)

    def trajectory_names(self) -> list[str]:
        """The names of all trajectories, in their order."""
        paths = (os.fspath(one.file.path) for one in self.sets)
        segments = segments_of((one, _time(one)) for one in self.sets)
        names = trajectory_names(segments, self.sets, paths)
        return [names[number] for number in self._chosen.tolist()]

    def states(self) -> dict[str, npt.NDArray[Any]]:
        """Start and goal states beside actions: one [D] for all, or [n, D].

        Raises InputError for states, or an index of states, that do not fit.
        """
        states: dict[str, npt.NDArray[Any]] = {}
        if len(self.sets) > 1 or self.names != ["actions"]:
            return states
        for role in ("start", "goal"):
            state = stored_state(role, self.first)
            raise_if_any(state.faults(role, self._trajectories.count))
            for part, rows in state.rows(self._chosen).items():
                states[f"{role}/{part}"] = rows if len(rows) == len(self._chosen) else rows[0]
        return states

    def blocks(self, numbers: Numbers, rows: int = 0) -> Iterator[tuple[int, Block]]:
        """These trajectories as they are read at once, and how many come before them.

        rows: that are computed of each.
        """
        first, of = 0, self._chosen[numbers].tolist()
        for block in self._trajectories.blocks(of, size=_BLOCK_BYTES, rows=rows):
            end = first + len(block.numbers)
            yield first, replace(block, numbers=numbers[first:end])
            first = end


def finite_rows(block: Block, name: str) -> Any:
    """The rows of an array [b, T, D]; raises InputError for NaN and Inf."""
    values, axes = block.read(name), ("trajectory", "step", "dof")
    if nonfinite_fault(values, name, axes) is not None:
        hint = "a curve through them does not exist: repair the input, or leave it out"
        places = ((one, k) for one, begin, end in block.parts for k in range(begin, end))
        for (one, k), rows in zip(places, values, strict=True):
            fault = nonfinite_fault(rows[None], one.arrays[name].where, axes, k)
            if fault:
                raise InputError(replace(fault, hint=hint))
    return values


def row_times(block: Block, acting: bool = False) -> tuple[Floats, float]:
    """Times of the rows from 0 on, and how far they may be off because of their type.

    [b, T], or [1, T] where all have the same. acting: T + 1 times of actions, from the first step's
    beginning to the last one's end, where the files say them. Raises InputError for times that do
    not go on.
    """
    parts = [(one, _time(one), begin, end) for one, begin, end in block.parts]
    acting = acting and all(
        one.of_actions and time.fitted(one.shape[0], one.shape[1] + 1).fits
        for one, time, *_ in parts
    )
    if (step := block.step) is not None:
        return step * np.arange(float(block.rows + acting))[None], 0.0
    lines, rounding = [], 0.0
    for _, time, begin, end in parts:
        raise_if_any(time.faults(begin, end))
        part = time.select(range(begin, end), block.rows)
        if acting:
            part = part.fitted(end - begin, block.rows + 1)
        lines.append(np.broadcast_to(part.row_times(), (end - begin, block.rows + acting)))
        if part.stamps is not None:
            stamps = np.nan_to_num(in_memory(part.stamps))
            rounding = max(rounding, rounding_of(stamps, time.converted_from))
    times = np.concatenate(lines)
    return times[:1] if (times == times[:1]).all() else times, rounding


def _time(one: TrajectorySet) -> Time:
    assert one.time is not None
    return one.time


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
    lengths = {n: np.flatnonzero(counts == n) for n in np.unique(counts).tolist()}
    own_times = own_times and step is None and len(counts) > 1
    variables = [*_arrays(rows), time_variable(shared=not own_times), *more]
    description = describe_output(
        lengths,
        {"dof": rows.dofs},
        [*variables, *_beside_actions(rows, step)],
        request.attributes(stated, files.paths()),
        names=rows.trajectory_names() if len(lengths) > 1 or len(rows.sets) > 1 else None,
        joint_names=rows.first.joint_names,
    )
    files.sources.add(files.paths())

    def blocks(output: Output) -> Iterator[int]:
        for count, numbers in lengths.items():
            for _, block in rows.blocks(numbers, count):
                times, arrays = compute(block)
                yield output.append(arrays, times)

    remarks = write(
        request.out, description, blocks, overwrite=request.overwrite, sources=files.sources
    )
    return {
        "out": str(request.out),
        "source": rows.source,
        "dt_source": rows.dt_source,
        "units": units_report(rows.first),
        "trajectories": len(counts),
        "output": description.kind,
        "notes": [*files.notes, *remarks],
        "bytes_written": description.nbytes,
    }


def _arrays(rows: Rows) -> Iterator[Variable]:
    """Describes the arrays, each with its type and unit in the files."""
    for name in rows.names:
        kinds = {one.arrays[name].precision for one in rows.sets}
        yield row_variable(name, output_dtype(np.result_type(*kinds)), rows.first.unit(name))


def _beside_actions(rows: Rows, step: float | None) -> Iterator[Variable]:
    """Describes the step of actions, where it is one, and their start and goal states."""
    if "actions" in rows.names and step is not None:
        label = {"long_name": "step of the actions", "units": "s"}
        yield Variable("dt", (), np.dtype("f8"), label, np.asarray(step))
    for name, values in rows.states().items():
        yield Variable(name, ("trajectory", "dof")[-values.ndim :], values.dtype, {}, values)


def _select(sets: Sequence[TrajectorySet], actions: bool) -> list[TrajectorySet]:
    """What files hold that SOURCE does not name more closely: as for integrate the groups that
    have actions, in a file without any all groups.

    Of the arrays of a group that differ in shape, the actions, or else those of trajectories.
    """
    acting = {str(one.file.path) for one in sets if not one.named and "actions" in one.arrays}
    groups: dict[Any, list[TrajectorySet]] = {}
    times = Counter[Any]()  # a file may be named twice
    for k, one in enumerate(sets):
        place, arrays = (str(one.file.path), one.name), tuple(one.arrays)
        groups.setdefault(k if one.named else (place, times[place, arrays]), []).append(one)
        times[place, arrays] += 1
    return [
        max(group, key=lambda one: one.of_actions == actions)
        for group in groups.values()
        if group[0].named
        or str(group[0].file.path) not in acting
        or any("actions" in one.arrays for one in group)
    ]
