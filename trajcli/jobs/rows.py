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
from trajcli.errors import Fault, InputError, raise_if_any
from trajcli.files.atomic_output import refuse_input
from trajcli.files.catalogue import in_memory
from trajcli.files.opening import Files, time_from_options
from trajcli.files.outputs import Output, Variable, describe_output, row_variable
from trajcli.files.reader import one_per_group, read_groups, refuse_control_points, require_alike
from trajcli.files.reading import select
from trajcli.files.repair import repaired
from trajcli.files.rotation_groups import refuse_rotations, require_rotations, rotations_left_out
from trajcli.files.time import Floats
from trajcli.files.trajectories import Trajectories, timed
from trajcli.files.writing import write
from trajcli.jobs.inputs import MOST_FAULTS, time_of
from trajcli.jobs.request import SourceRequest
from trajcli.jobs.resolve import units_report
from trajcli.memory import CHANGED_BYTES
from trajcli.resampling import rounding_of
from trajcli.units import units_of_dofs

Arrays = Mapping[str, npt.NDArray[Any]]
Numbers = npt.NDArray[np.int64]


def read_trajectories(
    request: SourceRequest, files: Files, actions: bool, least: int = 1, rotations: bool = False
) -> Trajectories:
    """Returns the trajectories of a request, with their times.

    actions: take the actions of a group that holds actions and other arrays. least: the rows that a
    segment between gaps needs. rotations: whether the command computes with rotations.

    Raises InputError for files without trajectories, or without times.
    """
    every, notes = read_groups(files, request.sources)
    groups = one_per_group(every, actions)
    notes += rotations_left_out(every, groups)
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
    refuse_control_points(groups)
    if rotations:
        require_rotations(trajectories.first)
    else:
        command = type(request).__name__.removesuffix("Request").lower()
        refuse_rotations([trajectories.first], command)
    groups = timed(groups, time_from_options(files))
    for time in (time_of(group) for group in groups if group.fault is None):
        raise_if_any(time.faults(0, 1) if time.uniform is not None else time.shape_faults())
    if remark := time_of(Trajectories(groups).first).remark:
        notes.append(remark)
    groups, repairs = repaired(groups, request, least)
    trajectories = Trajectories(groups, notes=[*notes, *repairs])
    trajectories = trajectories.take(np.sort(select(request.episodes, len(trajectories))))
    if not request.skip_bad:
        raise_if_any(group.fault for group in trajectories.groups_in_use if group.fault)
    return trajectories


def computable(
    request: SourceRequest, trajectories: Trajectories, acting: bool = False
) -> tuple[Numbers, list[Fault]]:
    """Returns the places of the trajectories to compute, and the faults of those left out.

    With ``skip_bad`` these are the trajectories whose values are finite and whose times increase;
    all values are read to find them. acting: see :func:`row_times`.

    Raises InputError where none can be computed.
    """
    places = np.arange(len(trajectories))
    if not request.skip_bad:
        return places, []

    good, faults = list[int](), list[Fault]()

    def read(members: Numbers, block: Trajectories) -> None:
        try:
            row_times(block, acting)
            for name in trajectories.arrays:
                finite_rows(block, name, request.allow_nonfinite)
            good.extend(members.tolist())
        except InputError as error:
            if len(members) == 1:
                faults.extend(error.faults)
                return
            for k in range(len(members)):  # one after the other, to tell the bad from the good
                read(members[k : k + 1], block.take([k]))

    for members, block in blocks_of(trajectories, places):
        read(members, block)
    if not good:
        raise InputError(*faults[:MOST_FAULTS])
    return np.array(good), faults


def blocks_of(
    trajectories: Trajectories, places: Numbers, rows: int = 0
) -> Iterator[tuple[Numbers, Trajectories]]:
    """Yields blocks of trajectories that are read at once, each with their places.

    places: the trajectories to yield, in this order. rows: how many rows are computed of each,
    which may be more than are read.
    """
    first = 0
    for block in trajectories.take(places).blocks(size=CHANGED_BYTES, rows=rows):
        yield places[first : first + len(block)], block
        first += len(block)


def finite_rows(block: Trajectories, name: str, allow_nonfinite: bool = False) -> Any:
    """Reads an array [b, T, D]; raises InputError for NaN and Inf, with their place."""
    values, axes = block.read(name), ("trajectory", "step", "dof")
    if allow_nonfinite or nonfinite_fault(values, name, axes) is None:
        return values
    for k, rows in enumerate(values):
        _, where, number = block.locate(k, name)
        if fault := nonfinite_fault(rows[None], where, axes, number):
            hint = "a curve through them does not exist: repair the input, or leave it out"
            raise InputError(replace(fault, hint=hint))
    return values


def row_times(block: Trajectories, acting: bool = False) -> tuple[Floats, float]:
    """Returns times of rows from 0 on, and how far rounding of stored stamps may move them.

    Times are [b, T], or [1, T] where all trajectories share them. acting: T + 1 times of actions,
    from the beginning of the first step to the end of the last, where files state them.

    Raises InputError for times that do not increase.
    """
    runs = [(group, time_of(group), begin, end) for group, begin, end in block.runs]
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
        if part.stamps is not None:  # float32 stamps are far from exact after some hours
            stamps = np.nan_to_num(in_memory(part.stamps))
            rounding = max(rounding, rounding_of(stamps, time.converted_from))
    times = np.concatenate(lines)
    return times[:1] if (times == times[:1]).all() else times, rounding


# Called with a block and its places among all trajectories; returns times [b or 1, T'], or None for
# outputs without them, and arrays [b, T', D], or [b] of one number for each trajectory.
Compute = Callable[[Trajectories, Numbers], tuple[Floats | None, Arrays]]


def array_variables(trajectories: Trajectories, names: Sequence[str] = ()) -> Iterator[Variable]:
    """Describes arrays with their types and units in the files; new ones have that of the first."""
    names, first = names or trajectories.arrays, trajectories.first
    for name in names if first.free_dofs else ():
        stored = name if name in trajectories.arrays else names[0]
        kinds = {group.arrays[stored].precision for group in trajectories.groups}
        dtype = output_dtype(np.result_type(*kinds))
        unit = units_of_dofs(first.unit(name) or "", first.free_dofs, first.shape[2])
        yield row_variable(name, dtype, unit)


def write_rows(
    request: SourceRequest,
    files: Files,
    trajectories: Trajectories,
    counts: Numbers,
    variables: Sequence[Variable],
    compute: Compute,
    attributes: Mapping[str, Any],
    left_out: Sequence[Fault],
    sizes: Mapping[str, int] | None = None,
) -> dict[str, Any]:
    """Computes and writes all trajectories; returns the part of the report that commands share.

    counts: the rows that each trajectory has when it is computed [n]. attributes: of the output;
    origins among them become relative to OUT. left_out: the faults of what is not computed. sizes:
    of dimensions other than ``dof``.
    """
    refuse_input(request.out, files.paths())
    files.sources.add(files.paths())
    stated = {**attributes, "source": trajectories.source, "source_dt": trajectories.time_source}
    lengths = {n: np.flatnonzero(counts == n) for n in np.unique(counts).tolist()}
    first = trajectories.first
    several = len(lengths) > 1 or trajectories.several
    names, dofs = first.joint_names, first.free_dofs
    description = describe_output(
        lengths,
        {"dof": len(dofs), **(sizes or {})},
        variables,
        request.attributes(stated, left_out),
        names=trajectories.names(trajectories.paths) if several else None,
        joint_names=names and [names[dof] for dof in dofs],
    )

    def blocks(output: Output) -> Iterator[int]:
        for count, members in lengths.items():
            for places, block in blocks_of(trajectories, members, count):
                times, arrays = compute(block, places)
                yield output.append(arrays, times)

    remarks = write(
        request.out, description, blocks, overwrite=request.overwrite, sources=files.sources
    )
    return {
        "out": str(request.out),
        "source": str(trajectories.source),
        "dt_source": str(trajectories.time_source),
        "units": units_report(first),
        "trajectories": len(counts),
        "output": description.kind,
        "notes": [*trajectories.notes, *remarks],
        "left_out": [
            {"name": fault.where, "reason": f"{fault.what}: {fault.found}",
             "faults": [fault.as_dict()]}
            for fault in left_out
        ],
        "bytes_written": description.nbytes,
    }  # fmt: skip
