"""Reads and writes the trajectories that ``resample``, ``retime`` and ``fit`` change."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from trajcli.arrays import nonfinite_fault, output_dtype
from trajcli.curves.resampling import stamp_rounding
from trajcli.errors import Fault, InputError, raise_if_any
from trajcli.files.atomic_output import refuse_input
from trajcli.files.catalogue import load_array
from trajcli.files.opening import Files, clock_from_options
from trajcli.files.outputs import Span, Variable, describe_output, row_variable
from trajcli.files.quantities import QUANTITIES, derive_unit, sources_text
from trajcli.files.reader import (
    assign_times,
    choose_recordings,
    note_skipped_rotations,
    read_recordings,
    refuse_control_points,
    require_alike,
)
from trajcli.files.reading import parse_selection
from trajcli.files.recording import Recording, join
from trajcli.files.repair import repair_recordings
from trajcli.files.source import first_and_more
from trajcli.files.writing import write
from trajcli.jobs._blocks import MOST_FAULTS
from trajcli.jobs.job import Block, Job, Results, find_faults, make_blocks, write_blocks
from trajcli.jobs.request import SourceRequest
from trajcli.jobs.resolve import units_report
from trajcli.kernels.program import Floats, Integers
from trajcli.memory import CHANGED_BYTES
from trajcli.units import units_of_dofs


def read_trajectories(
    request: SourceRequest, files: Files, actions: bool, least: int = 1, rotations: bool = False,
    paths: bool = False,
) -> Recording:  # fmt: skip
    """Reads the trajectories of a request, with their times.

    actions: prefer the actions of a group to its other arrays. least: the rows that a segment
    between gaps needs. rotations: the command computes with rotations. paths: it needs no times.
    """
    everything, report = read_recordings(files, request.sources), files.report
    recordings = choose_recordings(everything, actions)
    report.add_notes(*note_skipped_rotations(everything, recordings))
    usable = [x for x in recordings if x.fault is None] or recordings
    if not any(all(name in x.arrays for x in recordings) for name in usable[0].arrays):
        found = "; ".join(", ".join(recording.arrays) for recording in recordings[:3])
        raise InputError("inputs that have nothing in common", where="SOURCE", found=found)
    for x in recordings:
        if 0 in x.shape:
            what, expected, found = "an empty array", "B, T, D >= 1", str(x.shape)
            raise InputError(what, where=x.where, expected=expected, found=found)
    # shapes are compared first, as the number of times is checked against them
    require_alike(recordings)
    refuse_control_points(recordings)
    if rotations:
        usable[0].require_rotations()
    else:
        usable[0].refuse_rotations(type(request).__name__.removesuffix("Request").lower())
    # a path needs no times, but if one recording or option has times, all must
    if request.clock or not paths or any(x.own_clock for x in recordings if x.fault is None):
        recordings = assign_times(recordings, clock_from_options(files))
    clocks = [x.clock for x in recordings if x.fault is None and x.clock is not None]
    for clock in clocks:
        raise_if_any(clock.faults(0, 1) if clock.step is not None else clock.shape_faults())
    if clocks and (remark := clocks[0].remark):
        report.add_notes(remark)
    # --episodes counts the trajectories that are there after repairs, as integrate does
    recording = join(repair_recordings(recordings, request, least, report, request.episodes))
    recording = recording.take(np.sort(parse_selection(request.episodes, len(recording))))
    if not request.skip_bad:
        raise_if_any(part.fault for part in recording.parts_in_use() if part.fault)
    return recording


def find_computable(
    request: SourceRequest, recording: Recording, acting: bool = False
) -> tuple[Integers, list[Fault]]:
    """Finds the indices of the trajectories to compute, and the faults of those left out."""
    # without --skip-bad, values are read once, as they are computed; with it all are read before,
    # to leave out trajectories with values that are not finite or times that do not increase
    if not request.skip_bad:
        return np.arange(len(recording)), []

    def check(span: Span) -> None:
        block = recording.take(slice(span.begin, span.end))
        read_row_times(block, acting)
        for name in recording.arrays:
            read_finite_rows(block, name, request.allow_nonfinite)

    spans = (Span(begin=x.start, end=x.stop) for x in recording.spans(CHANGED_BYTES))
    bad = find_faults(spans, check)
    faults = [fault for faults in bad.values() for fault in faults]
    if bad and len(bad) == len(recording):
        raise InputError(*faults[:MOST_FAULTS])
    return np.setdiff1d(np.arange(len(recording)), [span.begin for span in bad]), faults


def read_finite_rows(block: Recording, name: str, allow_nonfinite: bool = False) -> Any:
    """Reads an array [b, T, D]; raises InputError for NaN and Inf, with their place."""
    values, axes = block.arrays[name].read(), ("trajectory", "step", "dof")
    if allow_nonfinite or nonfinite_fault(values, name, axes) is None:
        return values
    # one trajectory after the other, so that the fault counts rows as its file does
    for k, rows in enumerate(values):
        where, number = block.locate(k, name)
        if fault := nonfinite_fault(rows[None], str(where), axes, number):
            hint = "a curve through them does not exist: repair the input, or leave it out"
            raise InputError(replace(fault, hint=hint, shell=""))
    return values


def read_row_times(block: Recording, acting: bool = False) -> tuple[Floats, float]:
    """Reads times of rows from 0 on, and how far rounding of stored stamps may move them.

    Times are [b, T], or [1, T] where all share them; for paths, the numbers of the rows. acting:
    T + 1 times of actions, from the begin of the first step to the end of the last, where stated.
    """
    clock, rows = block.clock, block.rows
    if clock is None:
        return np.arange(float(rows))[None], 0.0
    acting = acting and block.holds_actions and clock.fit_shape(len(block), rows + 1).fits
    if clock.step is not None:
        return clock.step * np.arange(float(rows + acting))[None], 0.0
    for part, _ in block.split_by_group() if clock.faults() else ():
        raise_if_any(part.clock.faults() if part.clock else ())
    times = block.lines(lambda x: (x.fit_shape(x.batch, rows + 1) if acting else x).row_times())
    rounding = 0.0
    if clock.stamped:  # float32 stamps are far from exact after some hours
        stamps = np.nan_to_num(load_array(clock.values))
        rounding = stamp_rounding(stamps, clock.converted_from)
    return times[:1] if (times == times[:1]).all() else times, rounding


def describe_arrays(recording: Recording, names: Sequence[str] = ()) -> Iterator[Variable]:
    """Describes arrays with their types and units in the files; new ones take the first's type."""
    names, free = names or list(recording.arrays), recording.free_dofs
    for name in names if free else ():
        stored = name if name in recording.arrays else names[0]
        dtype = output_dtype(recording.arrays[stored].precision)
        unit = units_of_dofs(recording.unit(name) or "", free, recording.shape[2])
        yield row_variable(name, dtype, unit)


def describe_control_points(unit: str | None, roles: Sequence[str]) -> Iterator[Variable]:
    """Describes what ``integrate --mode bspline`` reads: control points with the ``unit`` of their
    positions, dt and the states of these roles."""
    labels = {"long_name": "control points", **({"units": unit} if unit else {})}
    kind = np.dtype("f8")
    yield Variable("actions", ("trajectory", "point", "dof"), kind, labels)
    labels = {"long_name": "knot spacing / steps", "units": "s"}
    yield Variable("dt", ("trajectory", "each"), kind, labels)
    for role in roles:
        for part in QUANTITIES:
            labels = {"units": derive_unit(part, unit)} if unit else {}
            yield Variable(f"{role}/{part}", ("trajectory", "dof"), kind, labels)


def write_trajectories(
    request: SourceRequest,
    files: Files,
    recording: Recording,
    counts: Integers,
    variables: Sequence[Variable],
    compute: Callable[[Block], Results],
    attributes: Mapping[str, Any],
    left_out: Sequence[Fault],
    sizes: Mapping[str, int] | None = None,
    has_names: bool = False,
) -> dict[str, Any]:
    """Computes and writes all trajectories; returns the part of the result that commands share.

    counts: the rows of each trajectory in OUT [n]. sizes: of dimensions other than ``dof``.
    has_names: name trajectories of one length, too, as those of other shards may have another.
    """
    refuse_input(request.out, files.paths())
    files.sources.watch(files.paths())
    clocks = (part.clock.source for part in recording.parts_in_use() if part.clock)
    sources = {"source": recording.sources(), "source_dt": list(dict.fromkeys(clocks))}
    # paths in an output are relative to its folder; a path without times has no source of them
    seen = {k: [x.relative_text(request.folder) for x in s] for k, s in sources.items() if s}
    stated = {**attributes, **{k: sources_text(k, texts) for k, texts in seen.items()}}
    shard = request.shard
    stated |= {"shard": str(shard)} if shard else {}
    # a part of a run may have no trajectories, but has variables as the others do
    rows = np.unique(counts).tolist() or [recording.rows]
    lengths = {n: np.flatnonzero(counts == n) for n in rows}
    has_names = has_names or len(lengths) > 1 or recording.several
    joint_names, dofs = recording.joint_names, recording.free_dofs
    description = describe_output(
        lengths,
        {"dof": len(dofs), **(sizes or {})},
        variables,
        request.attributes(stated, left_out),
        names=recording.output_names(recording.paths) if has_names else None,
        joint_names=joint_names and [joint_names[dof] for dof in dofs],
    )
    description = description.describe_part(seen) if shard else description
    blocks, report = make_blocks(recording, counts), files.report
    job = Job(request.path, description, blocks, compute)
    remarks = write(
        request.path,
        description,
        lambda output: write_blocks(job, output.write, report),
        overwrite=request.overwrite or shard is not None,
        sources=files.sources,
    )
    report.add_notes(*remarks)
    return {
        "out": str(request.path),
        "source": str(recording.source),
        "dt_source": str(first_and_more(sources["source_dt"])) if recording.clock else None,
        "units": units_report(recording),
        "trajectories": len(counts),
        "output": description.kind,
        "notes": report.notes,
        "left_out": [
            {"name": fault.where, "reason": f"{fault.what}: {fault.found}",
             "faults": [fault.in_shell().as_dict()]}
            for fault in left_out
        ],
        "bytes_written": description.nbytes,
    }  # fmt: skip
