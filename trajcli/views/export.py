"""Writes trajectories for other programs: as a table, for rerun, as arrays, or for LeRobot."""

from __future__ import annotations

import csv
import json
import math
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from importlib import import_module
from pathlib import Path
from statistics import mode
from typing import Any

import numpy as np

from trajcli import __version__
from trajcli.arrays import describe
from trajcli.commands import Commands
from trajcli.errors import (
    Fault,
    InputError,
    Note,
    OutputError,
    Report,
    UsageError,
    raise_if_any,
    unknown,
)
from trajcli.files.atomic_output import HiddenFolder, new_file, os_failures, reserve
from trajcli.files.catalogue import decode_text
from trajcli.files.dofs import count_bodies, parse_dofs
from trajcli.files.lerobot_copy import LeRobotCopy
from trajcli.files.opening import Files
from trajcli.files.outputs import (
    ROWS,
    Description,
    Span,
    Variable,
    describe_output,
    stamp_variables,
    time_variable,
)
from trajcli.files.quantities import ROTATIONS
from trajcli.files.reading import Repair, parse_selection
from trajcli.files.recording import Recording
from trajcli.files.writing import conversion_hint, write
from trajcli.jobs.job import Block, Job, Results, make_blocks, write_blocks
from trajcli.kernels.program import Floats, Integers, NumpyArray
from trajcli.memory import TABLE_ROWS
from trajcli.rotations.quaternions import TOLERANCE
from trajcli.units import InputUnits, parse_time_unit
from trajcli.views._statistics import orientations
from trajcli.views.recordings import (
    find_quantities,
    first_part,
    label,
    other_arrays,
    read_batches,
    units_to_show,
    whole_batch,
)
from trajcli.views.table import TableForm
from trajcli.views.terminal import spreadsheet_text

_IN_SI, _STDOUT = InputUnits(), Path("-")
# Numbers that YAML 1.1 takes for texts, as they have an exponent and no point: 1e-05.
_NO_POINT = re.compile(r"(?<![.\d])(\d)e")
_POINT_FIELDS = {"position": "positions", "velocity": "velocities", "acceleration": "accelerations"}


class Export:
    """The trajectories of a batch that are exported, with other arrays of the same trajectories.

    owners: the batch that holds each array. types: those of the arrays, in native byte order; wider
    floats, which few programs read, become float64. factors: how many of the ``units`` that are
    written are one of SI. others: arrays that are not exported. commands: what positions become as
    actions, with rotations in ``frame``. holds_last: whether the last row has an action, too, which
    stays there.
    """

    form, holds_last, frame = TableForm(), False, "world"
    commands: Commands | None = None

    def __init__(
        self,
        batch: Recording,
        numbers: Sequence[int],
        others: Sequence[str] = (),
        companions: Sequence[Recording] = (),
        to: InputUnits = _IN_SI,
    ) -> None:
        self.batch, self.numbers = batch.take(numbers), numbers
        self.others = others
        self.owners = {name: owner for owner in (batch, *companions) for name in owner.arrays}
        self.types: dict[str, np.dtype[Any]] = {}
        self.target, self.units, self.factors = to, dict[str, str](), dict[str, Floats]()
        for name, owner in self.owners.items():
            self.factors[name], self.units[name] = units_to_show(owner, name, to)
            # Integers in other units are no longer integers.
            kind = owner.arrays[name].precision.newbyteorder("=")
            wide = kind == np.longdouble or (kind.kind != "f" and (self.factors[name] != 1).any())
            self.types[name] = np.dtype("f8") if wide else kind
        self.names = [batch.title(number) for number in numbers]
        self.has_numbers, self.several = all(map(str.isdecimal, self.names)), len(numbers) > 1
        self.has_times = batch.clock is not None

    @property
    def written(self) -> list[str]:
        heads = self.headings()
        named = {heads[k].partition("/")[0] for k in self.form.column_indices(heads)}
        return [name for name in self.types if name in named]

    def as_actions(self, kind: str, absolute: str | None, frame: str) -> Export:
        others = [owner for name, owner in self.owners.items() if name not in self.batch.arrays]
        batch, path = self.batch, self.batch.file.path
        turns = [ROTATIONS[0]] if ROTATIONS[0] in batch.arrays else []
        picked = turns if batch.holds_rotations else [find_quantities(batch)[0].get("position", "")]
        turning = [label(x, next(iter(x.arrays))) for x in others if ROTATIONS[0] in x.arrays]
        # An array that export wrote as actions states what kind of actions it has.
        exported = "actions" in picked and batch.is_output
        exported = exported and batch.companions.attribute("actions")[1]
        if turning or exported or not any(picked):
            raise InputError(
                "positions and orientations in two arrays" if turning else "no positions",
                where=str(first_part(batch).where),
                expected="one array of positions or orientations, to make actions of",
                found=", ".join([*batch.arrays, *turning]),
                hint=f"{path}:DATASET names it; trajcli inspect {path} lists its datasets",
            )
        if (single := batch.lengths < 2).any():
            where = batch.place_text(int(single.argmax()))
            raise InputError("fewer than two rows, so no action", where=where)
        batch.require_rotations()
        batch = batch.select_arrays(picked)
        chosen = Export(batch, range(len(batch)), self.others, to=self.target)
        turned, names = [k for x in batch.rotations for k in x.dofs], batch.joint_names or ()
        dofs = parse_dofs(absolute, batch.shape[2], "--absolute", names).numbers if absolute else ()
        if not {*dofs}.isdisjoint(turned):
            what, hint = "a rotation among absolute dofs", "--rotation none takes them as dofs"
            found = str(batch.rotations[0])
            raise UsageError(what, where="--absolute", found=found, hint=hint)
        chosen.commands, chosen.frame = Commands(kind, dofs, turned), frame
        # The one array of the batch becomes the actions, with its type, unit and factors.
        facts: Any
        for facts in (chosen.owners, chosen.types, chosen.units, chosen.factors):
            facts["actions"] = facts.pop(*batch.arrays)
        return chosen

    @property
    def lengths(self) -> Integers:
        """How many rows are written of each trajectory [B]; actions are one fewer, as steps are."""
        return self.batch.lengths - (self.commands is not None and not self.holds_last)

    def axes(self, name: str) -> dict[str, int]:
        """Finds the sizes of the axes of an array behind trajectory and row: dofs, or rotations."""
        owner = self.owners[name]
        bodies, width, dofs = count_bodies(owner.file), 3 + (name == ROTATIONS[0]), owner.shape[2]
        if not owner.holds_rotations or dofs != bodies * width:
            return {"dof": dofs}
        last = {"quaternion" if name == ROTATIONS[0] else "axis": width}
        return {"rotation": bodies, **last} if bodies > 1 else last

    def read_arrays(self, block: Recording) -> dict[str, NumpyArray]:
        """Reads all arrays [b, rows, dofs] and their ``time`` [b, rows], in the written units."""
        times = self.read_stamps(block)[0] if self.form.stamps else block.times()
        # Without any times, these are row numbers.
        if times is None:
            times = np.broadcast_to(np.arange(block.rows), (len(block), block.rows))
        elif self.target.time is not None:
            times = times * self.target.time.per_si
        self.form.require_distinct(times)
        # Without times, an action has the number of the row that it leads to.
        if self.commands is not None:
            times = np.diff(times) if self.has_times else times[:, 1 - self.holds_last :]
        arrays = {"time": times}
        for name, factors in self.factors.items():
            rows = self._in_si(block, name)
            if (factors != 1).any():
                rows = np.multiply(rows, factors, dtype=np.float64)
            arrays[name] = rows.astype(self.types[name], copy=False)
        return arrays

    def _in_si(self, block: Recording, name: str) -> NumpyArray:
        # The action of the last row leads from there to itself.
        if self.commands is not None:
            values = block.input.read()
            values = np.concatenate([values, values[:, -1:]], 1) if self.holds_last else values
            actions: NumpyArray = self.commands.from_positions(values)
            if self.batch.rotations:
                from trajcli.rotations import decompose
                from trajcli.rotations.quaternions import from_quaternions, to_quaternions
            # Those of rotations are turns, in the world or the body frame.
            for turn in self.batch.rotations:
                dofs, where = list(turn.dofs), str(first_part(self.batch).where)
                quaternions = to_quaternions(values[..., dofs], turn.form, where)
                kind = str(self.commands.actions)
                turns = decompose(quaternions, kind=kind, frame=self.frame)
                actions[..., dofs] = from_quaternions(turns, turn.form)
            return actions
        rows = block if name in self.batch.arrays else self.owners[name].take(block.numbers)
        stored: NumpyArray = rows.arrays[name].read()
        return stored

    def read_stamps(self, block: Recording) -> tuple[NumpyArray, str]:
        """Reads the stamps [b, rows] as the source has them, and their unit."""
        first, unit = block.start_stamps(skip_start=True) or (None, "")
        if first is None:
            what, found = "no stamps of a clock", "times from 0" if self.has_times else "no times"
            hint = "leave it out: t is then the time as SOURCE has it"
            raise InputError(what, where=block.place_text(0), found=found, hint=hint)
        stamps = np.empty((len(block), block.rows), first.dtype)
        for part, indices in block.split_by_group():
            # Since there is a first stamp, every part has a clock.
            assert part.own_clock is not None
            stamps[indices] = part.own_clock.row_stamps()
        return stamps, unit

    def read_poses(self, block: Recording) -> tuple[NumpyArray, NumpyArray] | None:
        """Reads positions [b, rows, 3 or 0] and quaternions w, x, y, z [b, rows, R, 4], if any."""
        owner = next((owner for owner in self.owners.values() if owner.rotations), None)
        if owner is None or self.commands is not None:
            return None
        rotations, free = owner.rotations, owner.free_dofs
        rows = self._in_si(block, next(iter(owner.arrays)))
        quaternions, off = orientations(rows, rotations)
        # Written so that NaN, which is no rotation, is found, too.
        if not (off <= TOLERANCE).all():
            b, row, k = np.argwhere(~(off <= TOLERANCE))[0].tolist()
            raise InputError(
                "not a rotation",
                where=f"{owner.place_text(block.numbers[b])}, row {row}",
                expected=f"{rotations[k]} of norm 1, up to {TOLERANCE:g}",
                found=str(rows[b, row, list(rotations[k].dofs)].tolist()),
            )
        # Three dofs next to the rotations are the position, or an array of that name is.
        position = self.owners.get("position")
        if len(free) != 3 and position is not None and position.shape[2] == 3:
            return self._in_si(block, "position"), quaternions
        return rows[..., free if len(free) == 3 else []], quaternions

    def headings(self, units: bool = False) -> list[str]:
        """Names the columns of a table: trajectory, t and quantity/dof; with ``units`` t (s)."""
        unit = self.read_stamps(self.batch.take([0]))[1] if units and self.form.stamps else ""
        unit, time = unit or str(self.target.time or "s"), "dt" if self.commands else "t"
        heads = {time: unit} if self.has_times else {"row": ""}
        for name, owner in self.owners.items():
            # One unit is that of all dofs.
            dof_units = self.units[name].split(",")
            for k, dof in enumerate(owner.dof_labels):
                heads[f"{name}/{dof}"] = dof_units[k % len(dof_units)].strip("-")
        texts = [f"{head} ({unit})" if units and unit else head for head, unit in heads.items()]
        return ["trajectory"] * self.several + texts


def select_trajectories(
    files: Files, source: str, repair: Repair, to: InputUnits = _IN_SI
) -> Export:
    batch, others = whole_batch(read_batches(files, [source], repair=repair))
    if batch is None or not len(batch) or not batch.shape[2]:
        raise InputError(
            "nothing to export",
            where=source,
            expected="trajectories with dofs",
            found="no trajectories" if batch is None else describe(batch.shape),
        )
    # Orientations and angular rates of the same trajectories are exported with them.
    turning = [other for other in other_arrays(batch, others) if other.holds_rotations]
    left_out = [label(x, next(iter(x.arrays))) for x in others if x not in turning]
    if left_out and batch.origin.named:
        raise InputError(
            "arrays that do not fit into one table",
            where=source,
            expected="arrays of the same dofs and quantity",
            found=", ".join([label(batch), *left_out]),
            hint="name one at a time",
        )
    return Export(batch, parse_selection(files.reading.episodes, len(batch)), left_out, turning, to)


def require_kind(out: Path, to: InputUnits, form: TableForm, actions: bool) -> None:
    """Refuses an OUT of an unknown ending or an absent library, or that cannot be as asked."""
    suffix, fixed = out.suffix.lower(), out.suffix.lower() in (".tum", *_MESSAGES)
    form.require(out)
    # A message and a TUM file have the units of their formats, the time line of rerun has seconds.
    if (fixed and to != _IN_SI) or (suffix == ".rrd" and to.time is not None):
        expected = f"none: {suffix} has times in s{', positions in rad and m' if fixed else ''}"
        raise UsageError("units that are fixed", where="--to-units", expected=expected)
    options = {"--actions-as": actions, "--to-units of times": form.stamps and to.time is not None}
    if (form.stamps or fixed) and any(options.values()):
        found = next(option for option, typed in options.items() if typed)
        where = "--stamps" if form.stamps else suffix
        raise UsageError("cannot be combined", where=where, found=found)
    if out != _STDOUT and suffix not in _WRITERS and suffix not in _ARRAYS:
        expected = f"a name that ends in {', '.join([*_WRITERS, *_ARRAYS])}"
        raise UsageError(
            unknown(
                "kind of export",
                where=out,
                choices=expected,
                found=suffix or "no ending",
                hint=conversion_hint(out),
            )
        )
    library, package = _LIBRARIES.get(suffix, ("numpy", "numpy"))
    try:
        import_module(library)
    except ImportError as error:
        what, hint = f"{library} is not installed", f"pip install {package}"
        raise UsageError(what, where="export", found=str(error), hint=hint) from None


def write_export(chosen: Export, out: Path, overwrite: bool, files: Files) -> None:
    writer, description = _WRITERS.get(out.suffix.lower()), _describe(chosen, out)
    if out == _STDOUT:
        # A reader that has closed the pipe has read enough.
        with os_failures(Path("stdout")), suppress(BrokenPipeError):
            _write_csv(chosen, sys.stdout.fileno(), _make_job(chosen, out), files.report)
        return
    if writer is not None:
        with new_file(out, overwrite) as hidden:
            writer(chosen, hidden, _make_job(chosen, out), files.report)
            files.sources.require_unchanged()
        return
    # Arrays are written in blocks of one length, as outputs of integrate are.
    blocks = make_blocks(chosen.batch, chosen.lengths)
    job = Job(out, description, blocks, partial(_arrays, chosen, description))
    write(
        out, description, lambda output: write_blocks(job, output.write, files.report),
        overwrite=overwrite, sources=files.sources,
    )  # fmt: skip


def _make_job(chosen: Export, out: Path) -> Job[Block]:
    """Makes the job that reads all trajectories in their order, whatever their lengths."""
    numbers = np.arange(len(chosen.batch))
    blocks = (
        Block(begin=span.start, end=span.stop, group_recording=chosen.batch, numbers=numbers)
        for span in chosen.batch.spans()
    )
    description = Description({"trajectory": len(numbers)}, (), {})
    return Job(out, description, blocks, lambda block: [(0, chosen.read_arrays(block.recording))])


class _Columns:
    """Gathers the columns of a table of all trajectories, and writes many rows at once."""

    def __init__(self, chosen: Export, write_rows: Callable[[list[NumpyArray]], object]) -> None:
        self._chosen, self._write_rows, self._buffer = chosen, write_rows, list[list[NumpyArray]]()
        self._indices = chosen.form.column_indices(chosen.headings())

    def write(self, span: Span, arrays: Mapping[str, NumpyArray], _: int) -> None:
        names, rows = self._chosen.names[span.begin : span.end], arrays["time"].shape[1]
        columns = [np.repeat(names, rows)] if self._chosen.several else []
        for values in arrays.values():
            # A reshape to (rows, -1) would fail where there are no rows.
            columns += list(values.reshape(len(span) * rows, math.prod(values.shape[2:])).T)
        self._buffer.append([columns[k] for k in self._indices])
        if sum(len(part[0]) for part in self._buffer) >= TABLE_ROWS:
            self.finish()

    def finish(self) -> None:
        if self._buffer:
            self._write_rows([np.concatenate(x) for x in zip(*self._buffer, strict=True)])
        self._buffer = []


def _write_csv(chosen: Export, path: Path | int, job: Job[Block], report: Report) -> None:
    """Writes CSV with enough digits to read the same numbers back, to a file or its descriptor."""
    form, heads = chosen.form, chosen.headings(units=True)

    def write_rows(columns: list[NumpyArray]) -> None:
        for start in range(0, len(columns[0]), TABLE_ROWS):
            parts = [column[start : start + TABLE_ROWS] for column in columns]
            cells = [
                [*map(spreadsheet_text, x.tolist())] if x.dtype.kind == "U" else form.cells(x)
                for x in parts
            ]
            writer.writerows(zip(*cells, strict=True))

    with open(path, "w", encoding="utf-8", newline="", closefd=isinstance(path, Path)) as file:
        separator = form.separator.replace("tab", "\t")
        writer = csv.writer(file, delimiter=separator, lineterminator="\n")
        if not form.no_heading:
            indices = form.column_indices(chosen.headings())
            writer.writerow(spreadsheet_text(heads[k]) for k in indices)
        columns = _Columns(chosen, write_rows)
        write_blocks(job, columns.write, report)
        columns.finish()


def _write_parquet(chosen: Export, path: Path, job: Job[Block], report: Report) -> None:
    """Writes the columns of the CSV, with their types; a row group is some trajectories."""
    arrow, parquet = import_module("pyarrow"), import_module("pyarrow.parquet")
    writer = None

    def write_rows(columns: list[NumpyArray]) -> None:
        nonlocal writer
        # Trajectories that have only numbers are numbered in integers.
        if chosen.several and chosen.has_numbers:
            columns[0] = columns[0].astype(np.int64)
        table = arrow.table(columns, names=chosen.headings(units=chosen.target != _IN_SI))
        writer = writer or parquet.ParquetWriter(path, table.schema)
        writer.write_table(table)

    columns = _Columns(chosen, write_rows)
    try:
        write_blocks(job, columns.write, report)
        columns.finish()
    finally:
        if writer is not None:
            writer.close()


def _write_rrd(chosen: Export, path: Path, job: Job[Block], report: Report) -> None:
    """Writes a scalar series for each dof, and a transform for each rotation."""
    rerun = import_module("rerun")
    name = job.out.name
    recording = rerun.RecordingStream("trajcli", recording_id=name, send_properties=False)

    def write_span(span: Span, arrays: Mapping[str, NumpyArray], _: int) -> None:
        poses = chosen.read_poses(chosen.batch.take(slice(span.begin, span.end)))
        for k, name in enumerate(chosen.names[span.begin : span.end]):
            parent = [f"trajectory_{name}"] if chosen.several else []
            times = arrays["time"][k]
            # The steps of actions sum up to the times of the rows that they lead to.
            if chosen.commands is not None and chosen.has_times:
                times = np.cumsum(times)
            line = {"duration" if chosen.has_times else "sequence": times}
            clock = rerun.TimeColumn("time" if chosen.has_times else "row", **line)
            if poses is not None:
                positions, quaternions = poses[0][k], poses[1][k]
                bodies = quaternions.shape[1]
                for body in range(bodies):
                    # Only a single body has a position. rerun takes quaternions x, y, z, w.
                    columns = rerun.Transform3D.columns(
                        translation=positions if bodies == 1 and positions.shape[1] else None,
                        quaternion=quaternions[:, body, [1, 2, 3, 0]],
                    )
                    name = f"pose_{body}" if bodies > 1 else "pose"
                    entity = rerun.new_entity_path([*parent, name])
                    recording.send_columns(entity, indexes=[clock], columns=columns)
            for array, owner in chosen.owners.items():
                for i, dof in enumerate(owner.dof_labels):
                    entity = rerun.new_entity_path([*parent, array, dof])
                    recording.log(entity, rerun.SeriesLines(names=f"{array}/{dof}"), static=True)
                    scalars = arrays[array][k, :, i].astype(np.float64)
                    columns = rerun.Scalars.columns(scalars=scalars)
                    recording.send_columns(entity, indexes=[clock], columns=columns)

    try:
        recording.save(path)
        write_blocks(job, write_span, report)
        recording.flush()
    finally:
        recording.disconnect()


def _write_tum(chosen: Export, path: Path, job: Job[Block], report: Report) -> None:
    """Writes lines "timestamp tx ty tz qx qy qz qw" with the stamps of the source in seconds."""
    # J. Sturm et al., "A benchmark for the evaluation of RGB-D SLAM systems", 2012.
    bodies = max(len(owner.rotations) for owner in chosen.owners.values())
    if bodies != 1 or chosen.several or not chosen.has_times:
        raise InputError(
            "not what a TUM trajectory holds",
            where=str(chosen.batch.file.path),
            expected="one trajectory of one rotation with its times",
            found=f"{len(chosen.names)} of {bodies}{'' if chosen.has_times else ', without times'}",
            hint="--episodes 0 picks the first"
            if chosen.several
            else "--rotation WHICH=FORM names one, --dt SECONDS a step",
        )

    def write_span(_: Span, arrays: Mapping[str, NumpyArray], __: int) -> None:
        times, poses = arrays["time"][0].astype(np.float64), chosen.read_poses(chosen.batch)
        assert poses is not None
        # Times count from the first row; a TUM file has the stamps of the source.
        if (stamps := chosen.batch.start_stamps()) is not None:
            unit = parse_time_unit(stamps[1])
            times = times - times[0] + float(stamps[0][0]) / (unit.per_si if unit else 1.0)
        positions, turns = (part[0] for part in poses)
        positions = positions if positions.shape[1] else np.zeros((len(times), 3))
        rows = np.concatenate([times[:, None], positions, turns[:, 0, [1, 2, 3, 0]]], 1)
        with open(path, "w", encoding="utf-8", newline="\n") as file:
            file.write("# timestamp tx ty tz qx qy qz qw\n")
            file.writelines(" ".join(map(repr, row)) + "\n" for row in rows.tolist())

    write_blocks(job, write_span, report)


def _write_joint_trajectory(chosen: Export, path: Path, job: Job[Block], report: Report) -> None:
    """Writes ROS's trajectory_msgs/JointTrajectory as YAML or JSON, as ros2_control takes it."""
    batch, source = chosen.batch, chosen.batch.file.path
    stored, owners = find_quantities(batch)[0], chosen.owners.values()
    names = ",".join(f"joint{k + 1}" for k in range(batch.shape[2]))
    # By what is wrong: whether it is, and the way out.
    faults = {
        "several trajectories": (len(batch) > 1, f"--episodes {batch.numbers[0]} picks one"),
        "rotations": (
            any(x.rotations or x.holds_rotations for x in owners),
            f"{source}:DATASET, or --dofs, picks joints",
        ),
        "no positions": ("position" not in stored, f"{source}:DATASET names them"),
        "joints without names": (batch.joint_names is None, f"--joints {names} names them"),
        "no times": (batch.clock is None, "--dt SECONDS or --rate HZ says the step"),
    }
    for found, (wrong, hint) in faults.items():
        if wrong:
            what, expected = "no JointTrajectory", "one trajectory of joints, with its times"
            where = str(first_part(batch).where)
            raise InputError(what, where=where, expected=expected, found=found, hint=hint)
    if left_out := [name for name in stored if name not in _POINT_FIELDS]:
        report.add_notes(Note(f"a JointTrajectory has no {', '.join(left_out)}: left out"))

    def write_span(_: Span, arrays: Mapping[str, NumpyArray], __: int) -> None:
        times = arrays["time"][0].astype(np.float64)
        rows = {_POINT_FIELDS[x]: arrays[y][0] for x, y in stored.items() if x in _POINT_FIELDS}
        nanoseconds = np.rint((times - float(times[0])) * 1e9).astype(np.int64)
        finite = all(np.isfinite(values).all() for values in rows.values())
        if not finite or not (np.diff(nanoseconds) > 0).all():
            found = "times that do not increase by 1 ns or more" if finite else "NaN or Inf"
            raise InputError("no JointTrajectory", where=batch.place_text(0), found=found)
        # A line for each point, with enough digits to read the same numbers back.
        points = []
        lines = zip(*(values.tolist() for values in rows.values()), strict=True)
        for time, values in zip(nanoseconds.tolist(), lines, strict=True):
            stamp = {"sec": time // 10**9, "nanosec": time % 10**9}
            point = json.dumps({**dict(zip(rows, values, strict=True)), "time_from_start": stamp})
            points.append(_NO_POINT.sub(r"\1.0e", point))
        joints = json.dumps(batch.joint_names)
        if job.out.suffix.lower() == ".json":
            text = f'{{"joint_names": {joints}, "points": [\n' + ",\n".join(points) + "\n]}\n"
        else:
            points = [f"- {point}\n" for point in points]
            text = f"joint_names: {joints}\npoints:\n" + "".join(points)
        path.write_text(text, encoding="utf-8")

    write_blocks(job, write_span, report)


_MESSAGES = dict.fromkeys((".yaml", ".yml", ".json"), _write_joint_trajectory)
_WRITERS = {".csv": _write_csv, ".parquet": _write_parquet, ".rrd": _write_rrd, ".tum": _write_tum,
            **_MESSAGES}  # fmt: skip
_START, _ARRAYS = "start/position", (".npz", ".npy", ".h5", ".hdf5")
# The library of a format, and the package that has it.
_LIBRARIES = {".rrd": ("rerun", "rerun-sdk"), ".parquet": ("pyarrow", "pyarrow")}


def _arrays(chosen: Export, description: Description, block: Block) -> Results:
    arrays = chosen.read_arrays(block.recording)
    if any(variable.name == "start_stamp" for variable in description.variables):
        # The stamp of the first row is written, and times count from it.
        arrays["time"] = arrays["time"] - arrays["time"][:, :1]
    for name in chosen.types:
        shape = arrays[name].shape
        arrays[name] = arrays[name].reshape(*shape[:2], *chosen.axes(name).values())
    # Actions lead on from the first row, which is written as the start state.
    if chosen.commands is not None:
        first = block.recording.input.select(range(len(block)), range(1)).read()[:, 0]
        arrays[_START], steps = first * chosen.factors["actions"], arrays.pop("time")
        arrays |= {"dt": steps} if chosen.has_times and chosen.batch.step is None else {}
    return [(0, arrays)]


def _describe(chosen: Export, out: Path) -> Description:
    """Describes the output: times are shared with one dt, unequal lengths have a group each."""
    batch = chosen.batch
    lengths, step = chosen.lengths, batch.step
    numbers = {rows: np.flatnonzero(lengths == rows) for rows in np.unique(lengths).tolist()}
    variables, sizes = list[Variable](), dict[str, int]()
    for name, dtype in chosen.types.items():
        axes, unit = chosen.axes(name), chosen.units.get(name)
        variables.append(Variable(name, (*ROWS[:2], *axes), dtype, {"units": unit} if unit else {}))
        sizes |= axes
    unit = str(chosen.target.time or "s")
    # Start rows and steps go with actions, except into a .npy, which has one array.
    if chosen.commands is not None and out.suffix.lower() != ".npy":
        variables.append(replace(variables[0], name=_START, dims=("trajectory", *axes)))
        if chosen.has_times and step is None:
            variables.append(Variable("dt", ROWS[:2], np.dtype("f8"), {"units": unit}))
    elif chosen.has_times:
        shared = step is not None or len(lengths) == 1
        variables.append(time_variable(shared, unit=unit))
        variables += stamp_variables(batch.start_stamps(skip_start=True))
    source = batch.source.relative_text(os.path.realpath(out.parent))
    attributes: dict[str, Any] = {"source": source, "trajcli_version": __version__}
    if chosen.commands is not None:
        attributes |= chosen.commands.options()
        attributes |= {"rotation_frame": chosen.frame} if batch.rotations else {}
    # Rotations keep the order and the frame that the source states.
    if sizes.keys() - {"dof"}:
        stored = batch.file.attributes()
        words = ("rotation_order", "rotation_frame")
        attributes |= {word: decode_text(stored[word]) for word in words if word in stored}
        attributes |= {"rotations": sizes["rotation"]} if "rotation" in sizes else {}
    # Trajectories of several lengths are groups with names; one group of numbers needs none.
    names: list[str] | None = chosen.names
    if len(numbers) > 1:
        names = [f"trajectory_{name}" if name.isdecimal() else name for name in chosen.names]
    elif chosen.has_numbers:
        names = None
    return describe_output(
        numbers,
        sizes,
        variables,
        attributes | ({"dt": step} if step else {}),
        names=names,
        joint_names=batch.joint_names if "dof" in sizes else None,
    )


def write_lerobot(chosen: Export, files: Files, folder: Path, out: Path) -> None:
    """Writes a copy of a LeRobot data set with the trajectories as features."""
    # Frame k of an episode has row k of its trajectory; a further row, the state after the last
    # action, has no frame.
    if os.path.lexists(out) or Path(os.path.realpath(out)).is_relative_to(folder.resolve()):
        what = "not a new folder outside of DIR"
        raise OutputError(what, where=str(out), hint="another name: no folder is ever replaced")
    # Features have the same dofs: orientations are left out.
    if chosen.commands is None:
        chosen.owners = dict.fromkeys(chosen.batch.arrays, chosen.batch)
        chosen.types = {name: chosen.types[name] for name in chosen.owners}
        chosen.factors = {name: chosen.factors[name] for name in chosen.owners}
    copy = LeRobotCopy(files, folder)
    if taken := sorted(copy.names.intersection(f"trajcli.{name}" for name in chosen.types)):
        what = "features there already"
        raise InputError(what, where=str(folder), found=", ".join(taken))
    # Trajectories named episode_3, … belong to these episodes, others to the episodes in order.
    batch, episodes, count = chosen.batch, copy.episodes, len(chosen.numbers)
    names = [name.rpartition("/")[2] for name in chosen.names]
    order = names if any(x.startswith("episode_") for x in names) else list(episodes)
    if len(order) != len(names) or sorted(order) != sorted(episodes):
        raise InputError(
            "other trajectories than episodes",
            where=str(batch.file.path),
            expected=f"{len(episodes)} episodes of {copy.folder}",
            found=f"{len(names)} trajectories",
        )
    frames = [episodes[k] for k in order]
    counts = [part.stop - part.start for part in frames]
    # One more row than frames, in most trajectories, is the state after the last action.
    lengths = batch.lengths.tolist()
    more = mode(length - count for length, count in zip(lengths, counts, strict=True)) == 1
    chosen.holds_last = more == 0 and chosen.commands is not None
    expected = "a row for each of {} frames" + ", and one for the state after them" * more
    raise_if_any(
        Fault(
            "other rows than frames",
            where=f"{batch.file.path}, {name}",
            expected=expected.format(count),
            found=str(length),
        )
        for name, count, length in zip(names, counts, lengths, strict=True)
        if length != count + more
    )
    if chosen.holds_last:
        text = "no row follows the last one of an episode, so its action stays there"
        files.report.add_notes(Note(text))
    with os_failures(out), HiddenFolder(out, overwrite=False) as hidden:
        # All frames of a feature [frames, D] are mapped from a file, since they may be more than
        # the memory holds.
        shape, features = (max(part.stop for part in frames), chosen.batch.shape[2]), {}
        for k, (name, dtype) in enumerate(chosen.types.items()):
            path = hidden.path / str(k)
            path.touch()
            reserve(path, shape[0] * shape[1] * dtype.itemsize)
            features[f"trajcli.{name}"] = np.memmap(path, dtype, "r+", shape=shape)

        def write_span(span: Span, arrays: Mapping[str, NumpyArray], _: int) -> None:
            for name in chosen.types:
                values = features[f"trajcli.{name}"]
                for part, rows in zip(frames[span.begin : span.end], arrays[name], strict=True):
                    values[part] = rows[: part.stop - part.start]

        write_blocks(_make_job(chosen, out), write_span, files.report)
        copy.features, copy.dofs = features, chosen.batch.joint_names
        copy.write(hidden.data, partial(files.report.on_progress, count, count))
        files.sources.require_unchanged()
        hidden.publish()
