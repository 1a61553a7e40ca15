"""Reads and writes the trajectories that ``resample``, ``retime`` and ``fit`` change.

Trajectories of one length are read, computed and written in blocks, as arrays [b, T, D].
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from trajcli.arrays import nonfinite_fault, output_dtype
from trajcli.errors import InputError, raise_if_any
from trajcli.files.arrays import in_memory
from trajcli.files.atomic_output import refuse_input
from trajcli.files.opening import Files
from trajcli.files.outputs import Output, Variable, describe_output, row_variable, time_variable
from trajcli.files.reader import one_per_group, read_groups, require_alike, time_from_options
from trajcli.files.reading import select
from trajcli.files.repair import repaired
from trajcli.files.rotation_groups import (
    note_rotations_left_out,
    refuse_rotations,
    require_rotations,
)
from trajcli.files.states import stored_state
from trajcli.files.time import Floats, Time
from trajcli.files.trajectories import Trajectories, timed
from trajcli.files.trajectory_group import TrajectoryGroup
from trajcli.files.writing import write
from trajcli.jobs.request import SourceRequest
from trajcli.jobs.resolve import units_report
from trajcli.jobs.rotation_block import rotation_sizes
from trajcli.memory import CHANGED_BYTES
from trajcli.resampling import rounding_of

Arrays = Mapping[str, npt.NDArray[Any]]
Numbers = npt.NDArray[np.int64]


def read_trajectories(
    request: SourceRequest, files: Files, actions: bool, least: int = 1, rotations: bool = False
) -> Trajectories:
    """Returns the trajectories of a request, with their times.

    Parameters:
        actions: take the actions of a group that holds actions and other arrays.
        least: the rows that a segment between gaps needs.
        rotations: whether the command computes with rotations.

    Raises:
        InputError: for files without trajectories, or without times.
    """
    every = read_groups(files, request.sources)
    groups = one_per_group(every, actions)
    note_rotations_left_out(files, every, groups)
    trajectories = Trajectories(groups)
    if not trajectories.arrays:
        raise InputError(
            "inputs that have nothing in common",
            where="SOURCE",
            found="; ".join(", ".join(group.arrays) for group in groups[:3]),
        )
    for group in groups:
        if 0 in group.shape:
            raise InputError(
                "an empty array", where=group.where, expected="B, T, D >= 1", found=str(group.shape)
            )
    require_alike(groups)
    if rotations:
        require_rotations(groups[0])
    else:
        refuse_rotations(groups, type(request).__name__.removesuffix("Request").lower())
    groups = timed(groups, time_from_options(files))
    for time in map(_time, groups):
        raise_if_any(time.faults(0, 1) if time.uniform is not None else time.shape_faults())
    if remark := _time(groups[0]).remark:
        files.warn(remark)
    groups, notes = repaired(groups, request, least)
    for note in notes:
        files.note(note)
    trajectories = Trajectories(groups)
    return trajectories.take(np.sort(select(request.episodes, len(trajectories))))


def trajectory_names(trajectories: Trajectories) -> list[str]:
    """Returns the names that trajectories have in an output."""
    return trajectories.names(trajectories.paths)


def states_beside(trajectories: Trajectories) -> dict[str, npt.NDArray[Any]]:
    """Returns start and goal states beside actions: one [D] for all, or [n, D].

    Raises InputError for states, or an index of states, that do not fit.
    """
    states: dict[str, npt.NDArray[Any]] = {}
    if len(trajectories.groups) > 1 or trajectories.arrays != ["actions"]:
        return states
    for role in ("start", "goal"):
        state = stored_state(role, trajectories.first)
        raise_if_any(state.faults(role, trajectories.first.shape[0]))
        for part, rows in state.rows(trajectories.numbers).items():
            states[f"{role}/{part}"] = rows if len(rows) == len(trajectories) else rows[0]
    return states


def blocks_of(
    trajectories: Trajectories, places: Numbers, rows: int = 0
) -> Iterator[tuple[int, Numbers, Trajectories]]:
    """Yields blocks of trajectories that are read at once.

    Parameters:
        places: the trajectories to yield, in this order.
        rows: how many rows are computed of each, which may be more than are read.

    Yields:
        The number of trajectories before the block, the places of its own, and the block.
    """
    first = 0
    for block in trajectories.take(places).blocks(size=CHANGED_BYTES, rows=rows):
        end = first + len(block)
        yield first, places[first:end], block
        first = end


def finite_rows(block: Trajectories, name: str) -> Any:
    """Reads an array [b, T, D]; raises InputError for NaN and Inf, with their place."""
    values, axes = block.read(name), ("trajectory", "step", "dof")
    if nonfinite_fault(values, name, axes) is not None:
        hint = "a curve through them does not exist: repair the input, or leave it out"
        for k, rows in enumerate(values):
            _, where, number = block.locate(k, name)
            fault = nonfinite_fault(rows[None], where, axes, number)
            if fault:
                raise InputError(replace(fault, hint=hint))
    return values


def row_times(block: Trajectories, acting: bool = False) -> tuple[Floats, float]:
    """Returns times of rows from 0 on, and how far rounding of stored stamps may move them.

    Times are [b, T], or [1, T] where all trajectories share them. acting: T + 1 times of actions,
    from the beginning of the first step to the end of the last, where files state them.

    Raises InputError for times that do not increase.
    """
    runs = [(group, _time(group), begin, end) for group, begin, end in block.runs]
    acting = acting and all(
        group.of_actions and time.fitted(group.shape[0], group.shape[1] + 1).fits
        for group, time, *_ in runs
    )
    if (step := block.step) is not None:
        return step * np.arange(float(block.rows + acting))[None], 0.0
    lines, rounding = [], 0.0
    for _, time, begin, end in runs:
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


def _time(group: TrajectoryGroup) -> Time:
    assert group.time is not None
    return group.time


# Called with a block and its places among all trajectories; returns times [b or 1, T'] and arrays
# [b, T', D], or [b] of one number for each trajectory.
Compute = Callable[[Trajectories, Numbers], tuple[Floats, Arrays]]


def write_rows(
    request: SourceRequest,
    files: Files,
    trajectories: Trajectories,
    counts: Numbers,
    compute: Compute,
    attributes: Mapping[str, Any],
    more: Sequence[Variable] = (),
    step: float | None = None,
    own_times: bool = True,
    rotations: Sequence[Variable] = (),
) -> dict[str, Any]:
    """Computes and writes all trajectories; returns the part of the report that commands share.

    Parameters:
        counts: the rows that each trajectory has when it is computed [n].
        attributes: attributes of the output; origins among them become relative to OUT.
        more: variables with one number for each trajectory.
        step: the dt of all rows, where there is one.
        own_times: without a step, whether rows of trajectories are at different times.
        rotations: variables of the dofs that are rotations, which leave the other arrays.
    """
    refuse_input(request.out, files.paths())
    stated = {**attributes, "source": trajectories.source, "source_dt": trajectories.time_source}
    lengths = {n: np.flatnonzero(counts == n) for n in np.unique(counts).tolist()}
    own_times = own_times and step is None and len(counts) > 1
    first = trajectories.first
    names, others = first.joint_names, first.free_dofs if rotations else [*range(first.shape[2])]
    of_dofs = _arrays(trajectories) if others else ()
    variables = [*of_dofs, *rotations, time_variable(shared=not own_times), *more]
    several = len(lengths) > 1 or trajectories.several
    description = describe_output(
        lengths,
        {"dof": len(others), **rotation_sizes(first.rotations if rotations else ())},
        [*variables, *_beside_actions(trajectories, step)],
        request.attributes(stated),
        names=trajectory_names(trajectories) if several else None,
        joint_names=names and [names[dof] for dof in others],
    )
    files.sources.add(files.paths())

    def blocks(output: Output) -> Iterator[int]:
        for count, places_of_length in lengths.items():
            for _, places, block in blocks_of(trajectories, places_of_length, count):
                times, arrays = compute(block, places)
                yield output.append(arrays, times)

    remarks = write(
        request.out, description, blocks, overwrite=request.overwrite, sources=files.sources
    )
    return {
        "out": str(request.out),
        "source": trajectories.source,
        "dt_source": trajectories.time_source,
        "units": units_report(trajectories.first),
        "trajectories": len(counts),
        "output": description.kind,
        "notes": [*files.notes, *remarks],
        "bytes_written": description.nbytes,
    }


def _arrays(trajectories: Trajectories) -> Iterator[Variable]:
    """Describes the arrays, each with its type and unit in the files."""
    for name in trajectories.arrays:
        kinds = {group.arrays[name].precision for group in trajectories.groups}
        yield row_variable(
            name, output_dtype(np.result_type(*kinds)), trajectories.first.unit(name)
        )


def _beside_actions(trajectories: Trajectories, step: float | None) -> Iterator[Variable]:
    """Describes the step of actions, where it is one, and their start and goal states."""
    if "actions" in trajectories.arrays and step is not None:
        label = {"long_name": "step of the actions", "units": "s"}
        yield Variable("dt", (), np.dtype("f8"), label, np.asarray(step))
    for name, values in states_beside(trajectories).items():
        yield Variable(name, ("trajectory", "dof")[-values.ndim :], values.dtype, {}, values)
