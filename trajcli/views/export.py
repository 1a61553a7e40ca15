"""Trajectories for other programs: as a table, as arrays, for rerun, or as HDF5."""

from __future__ import annotations

import csv
import json
import zipfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from trajcli.checks import describe
from trajcli.errors import Fault, InputError, UsageError
from trajcli.files.atomic_output import new_file
from trajcli.files.file_bytes import SourceFiles
from trajcli.files.outputs import open_output
from trajcli.files.refusals import PROVENANCE
from trajcli.files.schema import Group, Schema, Variable, time_variable, unequal_schema
from trajcli.files.trajectory_set import TrajectorySet
from trajcli.views.selection import select, select_rows
from trajcli.views.statistics import Progress
from trajcli.views.trajectories import Array, Batch, Block, batches, main_batch

_TABLE_ROWS = 1 << 16
"""Rows of a table that are put together and written at once."""


@dataclass(frozen=True)
class Selection:
    """What is exported: some rows of trajectories, in ``blocks``."""

    batch: Batch
    blocks: Sequence[Block]
    on_progress: Progress = lambda done, total: None

    @property
    def arrays(self) -> list[str]:
        """The names of the arrays."""
        return list(self.batch.first.arrays)

    @property
    def dof_names(self) -> list[str]:
        """The names of the dofs."""
        return self.batch.dofs

    @property
    def count(self) -> int:
        """The number of trajectories."""
        return sum(len(block.numbers) for block in self.blocks)

    @property
    def names(self) -> list[str]:
        """The names of the trajectories, in their order."""
        return [self.batch.name(n) for block in self.blocks for n in block.numbers.tolist()]

    @property
    def timed(self) -> bool:
        """Whether the file has the times of the rows."""
        return self.batch.first.time is not None

    def dtype(self, name: str) -> np.dtype[Any]:
        """The type of an array in native byte order; of times, where ``name`` is no array."""
        stored = self.batch.first.arrays.get(name)
        return np.dtype(np.float64) if stored is None else stored.dtype.newbyteorder("=")

    def values(self, block: Block, name: str) -> Array:
        """An array [b, rows, dofs]; times [b, rows], where ``name`` is no array."""
        if name not in self.batch.first.arrays:
            return self.times(block)
        return block.read(name).astype(self.dtype(name), copy=False)

    def times(self, block: Block) -> Array:
        """Times [b, rows] in seconds as stored; without any, the row numbers."""
        times = block.times()
        if times is not None:
            return times
        rows = np.arange(block.first, block.first + block.rows)
        return np.broadcast_to(rows, (len(block.numbers), block.rows))

    def units(self) -> dict[str, str]:
        """The units of the arrays that have one."""
        stated = {name: self.batch.first.unit(name) for name in self.arrays}
        return {name: unit for name, unit in stated.items() if unit}

    def rows(self) -> int:
        """The rows of all trajectories; raises UsageError where they differ."""
        lengths = sorted({block.rows for block in self.blocks})
        if len(lengths) > 1:
            found = f"{lengths[0]} to {lengths[-1]} rows"
            hint = ".h5, .csv and .parquet hold them all; --rows takes those that all have"
            what = "trajectories of different length in one array"
            raise UsageError(Fault(what, self.batch.path, "equal lengths", found, hint))
        return lengths[0]


def selection(
    sets: Sequence[TrajectorySet],
    index: str | None,
    rows: str | None,
    on_progress: Progress = lambda done, total: None,
) -> Selection:
    """What is exported of trajectories; raises where nothing is, or not what was named."""
    batch = main_batch(batches(sets))
    if batch is None or not batch.count:
        where = str(sets[0].file.path) if sets else ""
        raise InputError(Fault("nothing to export", where, "trajectories", "an empty batch"))
    if not batch.first.shape[2]:
        shape = describe(batch.first.shape)
        raise InputError(Fault("nothing to export", batch.path, "D >= 1", shape))
    blocks = []
    for block in batch.blocks(select(index, batch.count, "--index")):
        first, last = select_rows(rows, block.rows)
        blocks.append(replace(block, first=first, rows=last - first))
    return Selection(batch, blocks, on_progress)


def require_kind(out: Path) -> None:
    """Raise UsageError where OUT has no ending that can be exported, or its library is absent."""
    suffix = out.suffix.lower()
    if suffix not in _WRITERS:
        expected = f"a name that ends in {', '.join(_WRITERS)}"
        raise UsageError(Fault("unknown kind of export", str(out), expected, suffix or "no ending"))
    library, package = _LIBRARIES.get(suffix, ("numpy", "numpy"))
    try:
        import_module(library)
    except ImportError as error:
        hint = f"pip install {package}"
        fault = Fault(f"{library} is not installed", "export", found=str(error), hint=hint)
        raise UsageError(fault) from None


def write(chosen: Selection, out: Path, overwrite: bool, sources: SourceFiles) -> None:
    """Write the trajectories in the form that OUT's name asks for.

    Raises UsageError where they do not fit into that form, InputError where ``sources`` changed in
    the meantime, OutputError where OUT cannot be written.
    """
    writer = _WRITERS[out.suffix.lower()]
    if writer is None:
        _write_hdf5(chosen, out, overwrite, sources)
        return
    with new_file(out, overwrite) as hidden:
        writer(chosen, hidden, out.name)
        sources.require_unchanged()


def _headings(chosen: Selection) -> list[str]:
    """t, then quantity/dof; before them the trajectory where there are several."""
    names = [f"{name}/{dof}" for name in chosen.arrays for dof in chosen.dof_names]
    several = ["trajectory"] if chosen.count > 1 else []
    return [*several, "t" if chosen.timed else "row", *names]


def _tables(chosen: Selection) -> Iterator[list[Array]]:
    """The columns of the table, some rows at a time: a row for every time of every trajectory."""
    waiting: list[list[Array]] = []
    done = 0
    for block in chosen.blocks:
        names = [chosen.batch.name(number) for number in block.numbers.tolist()]
        columns = [np.repeat(names, block.rows)] if chosen.count > 1 else []
        columns.append(chosen.times(block).reshape(-1))
        for name in chosen.arrays:
            columns += list(chosen.values(block, name).reshape(-1, len(chosen.dof_names)).T)
        waiting.append(columns)
        done += len(names)
        if done == chosen.count or sum(len(one[0]) for one in waiting) >= _TABLE_ROWS:
            yield [np.concatenate(column) for column in zip(*waiting, strict=True)]
            waiting = []
            chosen.on_progress(done, chosen.count)


def _write_csv(chosen: Selection, path: Path, _: str) -> None:
    """Numbers have the digits that bring them back."""
    with open(path, "w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(map(cell, _headings(chosen)))
        for columns in _tables(chosen):
            for begin in range(0, len(columns[0]), _TABLE_ROWS):
                cells = [_cells(column[begin : begin + _TABLE_ROWS]) for column in columns]
                writer.writerows(zip(*cells, strict=True))


def _cells(column: Array) -> list[Any]:
    if column.dtype.kind == "U":
        return list(map(cell, column.tolist()))
    short = column.dtype.kind == "f" and column.dtype.itemsize < 8
    cells: list[Any] = (column.astype(str) if short else column).tolist()
    return cells


@lru_cache(1024)
def cell(name: str) -> str:
    """A name from a file that a spreadsheet takes for a text and a terminal shows as it is.

    What begins with = + - or @ would be a formula, and gets an apostrophe before it.
    """
    text = "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in name)
    return f"'{text}" if text.startswith(("=", "+", "-", "@")) else text


def _write_parquet(chosen: Selection, path: Path, _: str) -> None:
    """The columns of the CSV, with their types; a row group is some trajectories."""
    arrow, parquet = import_module("pyarrow"), import_module("pyarrow.parquet")
    writer = None
    try:
        for columns in _tables(chosen):
            table = arrow.table(columns, names=_headings(chosen))
            writer = writer or parquet.ParquetWriter(path, table.schema)
            writer.write_table(table)
    finally:
        if writer is not None:
            writer.close()


def _write_rrd(chosen: Selection, path: Path, name: str) -> None:
    """A scalar series for each dof on the duration time line ``time``."""
    rerun = import_module("rerun")
    recording = rerun.RecordingStream("trajcli", recording_id=name, send_properties=False)
    done = 0
    try:
        recording.save(path)
        for block in chosen.blocks:
            times = chosen.times(block)
            arrays = {array: chosen.values(block, array) for array in chosen.arrays}
            for k, number in enumerate(block.numbers.tolist()):
                place = [f"trajectory_{chosen.batch.name(number)}"] * (chosen.count > 1)
                line = {"duration" if chosen.timed else "sequence": times[k]}
                clock = rerun.TimeColumn("time" if chosen.timed else "row", **line)
                for array, values in arrays.items():
                    for i, dof in enumerate(chosen.dof_names):
                        entity = rerun.new_entity_path([*place, array, dof])
                        series = rerun.SeriesLines(names=f"{array}/{dof}")
                        recording.log(entity, series, static=True)
                        scalars = values[k, :, i].astype(np.float64)
                        columns = rerun.Scalars.columns(scalars=scalars)
                        recording.send_columns(entity, indexes=[clock], columns=columns)
            done += len(block.numbers)
            chosen.on_progress(done, chosen.count)
        recording.flush()
    finally:
        recording.disconnect()


def _write_npz(chosen: Selection, path: Path, _: str) -> None:
    """Every array [n, rows, dofs] and the times [n, rows], each read once."""
    names = [*chosen.arrays, *(["time"] if chosen.timed else [])]
    shape = chosen.count, chosen.rows(), len(chosen.dof_names)
    about = {
        "attributes": {"source": Path(chosen.batch.path).name},
        "units": chosen.units() | ({"time": "s"} if chosen.timed else {}),
        **({"dof": chosen.dof_names} if chosen.batch.first.joint_names else {}),
    }
    done = 0
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        for name in names:
            kind = chosen.dtype(name)
            layout = {"descr": kind.str, "fortran_order": False,
                      "shape": shape if name in chosen.arrays else shape[:2]}  # fmt: skip
            # a ZipInfo is dated 1980: the same input gives the same bytes
            with archive.open(zipfile.ZipInfo(f"{name}.npy"), "w", force_zip64=True) as member:
                np.lib.format.write_array_header_2_0(member, layout)
                for block in chosen.blocks:
                    values = np.ascontiguousarray(chosen.values(block, name), kind)
                    member.write(values.reshape(-1).view(np.uint8).data)
                    done += len(block.numbers)
                    chosen.on_progress(done, len(names) * chosen.count)
        archive.writestr(zipfile.ZipInfo(PROVENANCE), json.dumps(about, indent=2))


def _write_hdf5(chosen: Selection, out: Path, overwrite: bool, sources: SourceFiles) -> None:
    """As integrate writes it: packed, or in groups where trajectories differ in length."""
    schema = _schema(chosen)
    rows = sorted({block.rows for block in chosen.blocks})
    written = dict.fromkeys(rows, 0)
    with open_output(out, schema, overwrite, durable=False) as output:
        for block in chosen.blocks:
            count, place, group = len(block.numbers), written[block.rows], rows.index(block.rows)
            for name in chosen.arrays:
                output.write(name, place, chosen.values(block, name), group)
            if chosen.timed:
                output.write_time(place, count, chosen.times(block), group)
            written[block.rows] += count
            chosen.on_progress(sum(written.values()), chosen.count)
        sources.require_unchanged()
        output.finish()


def _schema(chosen: Selection) -> Schema:
    """What the HDF5 file holds; times are shared where all steps are one dt."""
    clocks = [one.time for block in chosen.blocks for one, *_ in block.parts]
    steps = {None if clock is None else clock.uniform for clock in clocks}
    step = steps.pop() if len(steps) == 1 else None
    along = "time" if chosen.timed and (step or chosen.count == 1) else "row"
    lengths = np.concatenate([np.full(len(block.numbers), block.rows) for block in chosen.blocks])
    rows = np.unique(lengths).tolist()
    shape = chosen.count, rows[-1], len(chosen.dof_names)
    dims, units = ("trajectory", along, "dof"), chosen.units()
    variables = [
        Variable(name, dims, shape, chosen.dtype(name), {"units": units[name]} if name in units
                 else {}) for name in chosen.arrays
    ]  # fmt: skip
    if chosen.timed:
        variables.append(time_variable(shape[1:2] if along == "time" else shape[:2]))
    attributes = {"source": Path(chosen.batch.path).name} | ({"dt": step} if step else {})
    joints = chosen.dof_names if chosen.batch.first.joint_names else None
    schema = Schema(dict(zip(dims, shape, strict=True)), variables, attributes, joints)
    names = chosen.names
    if len(rows) > 1:
        names = [f"trajectory_{name}" if name.isdecimal() else name for name in names]
        places = [np.flatnonzero(lengths == length) for length in rows]
        groups = [Group(length, [names[n] for n in which], which)
                  for length, which in zip(rows, places, strict=True)]  # fmt: skip
        return unequal_schema(schema, groups, pack=False)
    named = not all(map(str.isdecimal, names))
    return replace(schema, trajectory_names=names) if named else schema


_WRITERS: dict[str, Callable[[Selection, Path, str], None] | None] = {
    ".csv": _write_csv,
    ".parquet": _write_parquet,
    ".rrd": _write_rrd,
    ".npz": _write_npz,
    ".h5": None,  # written as every output is
    ".hdf5": None,
}
_LIBRARIES = {".rrd": ("rerun", "rerun-sdk"), ".parquet": ("pyarrow", "pyarrow")}
"""What a form needs, and the package that has it."""
