"""Trajectories for other programs: which ones, and as tables (CSV, Parquet) or for rerun."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from trajcli.checks import describe
from trajcli.errors import Fault, InputError, UsageError
from trajcli.files.atomic_output import new_file
from trajcli.files.trajectory_set import TrajectorySet
from trajcli.views.selection import select, select_rows
from trajcli.views.statistics import Progress
from trajcli.views.trajectories import Array, Batch, Block, batches, main_batch

_TABLE_ROWS = 1 << 16
"""So many rows of a table are written at once."""
SUFFIXES = (".csv", ".parquet", ".rrd", ".npz", ".npy", ".h5", ".hdf5")


@dataclass(frozen=True)
class Selection:
    """What is exported: some rows and dofs of trajectories, in ``blocks``."""

    batch: Batch
    blocks: Sequence[Block]
    dofs: Sequence[int]

    @property
    def arrays(self) -> list[str]:
        """The names of the arrays."""
        return list(self.batch.first.arrays)

    @property
    def dof_names(self) -> list[str]:
        """What the dofs are called."""
        return [self.batch.dofs[i] for i in self.dofs]

    @property
    def numbers(self) -> list[int]:
        """The trajectories, in their order."""
        return [number for block in self.blocks for number in block.numbers.tolist()]

    @property
    def count(self) -> int:
        """How many trajectories there are."""
        return sum(len(block.numbers) for block in self.blocks)

    @property
    def timed(self) -> bool:
        """Whether the file has the times of the rows."""
        return self.batch.first.time is not None

    def dtype(self, name: str) -> np.dtype[Any]:
        """The type of an array, in the byte order of this machine."""
        native: np.dtype[Any] = self.batch.first.arrays[name].dtype.newbyteorder("=")
        return native

    def values(self, block: Block, name: str) -> Array:
        """An array [b, rows, dofs] in the type it is stored as."""
        rows = block.read(name)
        whole = list(self.dofs) == list(range(rows.shape[2]))
        return (rows if whole else rows[:, :, self.dofs]).astype(self.dtype(name), copy=False)

    def times(self, block: Block) -> Array:
        """Times [b, rows] in seconds as the file has them; without any, the row numbers."""
        times = block.times()
        if times is not None:
            return times
        rows = np.arange(block.first, block.first + block.rows)
        return np.broadcast_to(rows, (len(block.numbers), block.rows))


def selection(
    sets: Sequence[TrajectorySet], index: str | None, dof: str | None, rows: str | None
) -> Selection:
    """What is exported of trajectories; raises where nothing is, or not what was named."""
    batch = main_batch(batches(sets))
    if batch is None or not batch.count:
        where = str(sets[0].file.path) if sets else ""
        raise InputError(Fault("nothing to export", where, "trajectories", "an empty batch"))
    if not batch.first.shape[2]:
        where, shape = str(batch.first.file.path), describe(batch.first.shape)
        raise InputError(Fault("nothing to export", where, "D >= 1", shape))
    blocks = []
    for block in batch.blocks(select(index, batch.count, "--index")):
        first, last = select_rows(rows, block.rows)
        blocks.append(replace(block, first=first, rows=last - first))
    return Selection(batch, blocks, select(dof, len(batch.dofs), "--dof", batch.dofs))


def require_kind(out: Path) -> None:
    """Raise UsageError where OUT has no ending that can be exported, or its library is absent."""
    suffix = out.suffix.lower()
    if suffix not in SUFFIXES:
        expected = f"a name that ends in {', '.join(SUFFIXES)}"
        raise UsageError(Fault("unknown kind of export", str(out), expected, suffix or "no ending"))
    if suffix == ".rrd":
        require("rerun", "rerun-sdk")
    if suffix == ".parquet":
        require("pyarrow", "pyarrow")


def require(library: str, package: str) -> Any:
    """A library that is optional; raises UsageError with the line that installs it."""
    from importlib import import_module

    try:
        return import_module(library)
    except ImportError as error:
        hint = f"pip install {package}"
        fault = Fault(f"{library} is not installed", "export", found=str(error), hint=hint)
        raise UsageError(fault) from None


def write(chosen: Selection, out: Path, overwrite: bool, on_progress: Progress) -> None:
    """Write the trajectories in the form that OUT's name asks for.

    Raises UsageError where they do not fit into that form, OutputError where OUT cannot be
    written.
    """
    from trajcli.views import export_arrays as arrays

    suffix = out.suffix.lower()
    if suffix in (".h5", ".hdf5"):
        arrays.write_hdf5(chosen, out, overwrite, on_progress)
        return
    with new_file(out, overwrite) as hidden:
        if suffix == ".csv":
            _write_csv(chosen, hidden, on_progress)
        elif suffix == ".parquet":
            _write_parquet(chosen, hidden, on_progress)
        elif suffix == ".rrd":
            _write_rrd(chosen, hidden, out.name, on_progress)
        elif suffix == ".npz":
            arrays.write_npz(chosen, hidden, on_progress)
        else:
            arrays.write_npy(chosen, hidden, on_progress)


def _headings(chosen: Selection) -> list[str]:
    """t, then quantity/dof; before them the trajectory where there are several."""
    names = [f"{name}/{dof}" for name in chosen.arrays for dof in chosen.dof_names]
    several = ["trajectory"] if chosen.count > 1 else []
    return [*several, "t" if chosen.timed else "row", *names]


def _tables(chosen: Selection, on_progress: Progress) -> Iterator[list[Array]]:
    """The columns of the table, some rows at a time: a row for every time of every trajectory."""
    waiting: list[list[Array]] = []
    done = 0
    for block in chosen.blocks:
        names = [chosen.batch.name(number) for number in block.numbers.tolist()]
        columns = [np.repeat(names, block.rows)] if chosen.count > 1 else []
        columns.append(chosen.times(block).reshape(-1))
        for name in chosen.arrays:
            columns += list(chosen.values(block, name).reshape(-1, len(chosen.dofs)).T)
        waiting.append(columns)
        done += len(names)
        if done == chosen.count or sum(len(one[0]) for one in waiting) >= _TABLE_ROWS:
            yield [np.concatenate(column) for column in zip(*waiting, strict=True)]
            waiting = []
            on_progress(done, chosen.count)


def _write_csv(chosen: Selection, path: Path, on_progress: Progress) -> None:
    """Numbers have as many digits as bring them back."""
    with open(path, "w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(_headings(chosen))
        for columns in _tables(chosen, on_progress):
            for begin in range(0, len(columns[0]), _TABLE_ROWS):
                texts = [_texts(column[begin : begin + _TABLE_ROWS]) for column in columns]
                writer.writerows(zip(*texts, strict=True))


def _texts(column: Array) -> list[Any]:
    short = column.dtype.kind == "f" and column.dtype.itemsize < 8
    texts: list[Any] = (column.astype(str) if short else column).tolist()
    return texts


def _write_parquet(chosen: Selection, path: Path, on_progress: Progress) -> None:
    """The columns of the CSV, with their types; a row group is some trajectories."""
    arrow = require("pyarrow", "pyarrow")
    parquet = require("pyarrow.parquet", "pyarrow")
    writer = None
    try:
        for columns in _tables(chosen, on_progress):
            table = arrow.table(columns, names=_headings(chosen))
            writer = writer or parquet.ParquetWriter(path, table.schema)
            writer.write_table(table)
    finally:
        if writer is not None:
            writer.close()


def _write_rrd(chosen: Selection, path: Path, name: str, on_progress: Progress) -> None:
    """A scalar series per dof on the duration time line `time`."""
    rerun = require("rerun", "rerun-sdk")
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
                    _send(rerun, recording, [*place, array], chosen.dof_names, values[k], clock)
            done += len(block.numbers)
            on_progress(done, chosen.count)
        recording.flush()
    finally:
        recording.disconnect()


def _send(
    rerun: Any, recording: Any, place: Sequence[str], dofs: Sequence[str], rows: Array, clock: Any
) -> None:
    """The columns of one quantity of one trajectory [rows, dofs]."""
    for i, dof in enumerate(dofs):
        entity = rerun.new_entity_path([*place, dof])
        recording.log(entity, rerun.SeriesLines(names=f"{place[-1]}/{dof}"), static=True)
        scalars = rerun.Scalars.columns(scalars=rows[:, i].astype(np.float64))
        recording.send_columns(entity, indexes=[clock], columns=scalars)
