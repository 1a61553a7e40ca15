"""Trajectories for other programs: as a table, for rerun, or as arrays that trajcli reads, too."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from trajcli import __version__
from trajcli.checks import describe
from trajcli.errors import Fault, InputError, UsageError
from trajcli.files.atomic_output import new_file
from trajcli.files.blocks import Array, Block, Progress, common_step
from trajcli.files.file_bytes import SourceFiles
from trajcli.files.outputs import open_output
from trajcli.files.schema import Group, Schema, Variable, time_variable, unequal_schema
from trajcli.files.selection import select
from trajcli.files.trajectory_set import TrajectorySet
from trajcli.views.terminal import spreadsheet_text
from trajcli.views.trajectories import Batch, batches, whole_batch

_TABLE_ROWS = 1 << 16
"""Rows of a table that are put together and written at once."""


@dataclass(frozen=True)
class Selection:
    """The trajectories of a batch that are exported; ``others``: arrays that are not."""

    batch: Batch
    numbers: Sequence[int]
    on_progress: Progress
    others: Sequence[str] = ()

    def blocks(self) -> Iterator[Block]:
        """The trajectories, in their order."""
        return self.batch.blocks(self.numbers, self.on_progress)

    @cached_property
    def arrays(self) -> dict[str, np.dtype[Any]]:
        """The types of the arrays in native byte order, by name; float64 for wider ones, which
        few programs read."""
        stored = self.batch.first.arrays.items()
        types = {name: array.precision.newbyteorder("=") for name, array in stored}
        return {n: np.dtype("f8") if kind == np.longdouble else kind for n, kind in types.items()}

    @property
    def timed(self) -> bool:
        """Whether the file has the times of the rows."""
        return self.batch.first.time is not None

    def values(self, block: Block, name: str) -> Array:
        """An array [b, rows, dofs]."""
        return block.read(name).astype(self.arrays[name], copy=False)

    def times(self, block: Block) -> Array:
        """Times [b, rows] in seconds as stored; without any, the row numbers."""
        times = block.times()
        if times is not None:
            return times
        return np.broadcast_to(np.arange(block.rows), (len(block.numbers), block.rows))


def selection(
    sets: Sequence[TrajectorySet], episodes: str | None, on_progress: Progress
) -> Selection:
    """What is exported of trajectories; raises where nothing is, or not what was named."""
    batch, others = whole_batch(batches(sets))
    if batch is None or not batch.count or not batch.first.shape[2]:
        found = "no trajectories" if batch is None else describe(batch.first.shape)
        where = str(sets[0].file.path) if sets else ""
        raise InputError(Fault("nothing to export", where, "trajectories with dofs", found))
    return Selection(batch, select(episodes, batch.count), on_progress, others)


def require_kind(out: Path) -> None:
    """Raise UsageError where OUT has no ending that can be exported, or its library is absent."""
    suffix = out.suffix.lower()
    if suffix not in _WRITERS and suffix not in _ARRAYS:
        expected = f"a name that ends in {', '.join([*_WRITERS, *_ARRAYS])}"
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

    Raises InputError where ``sources`` changed in the meantime, OutputError where OUT cannot be
    written.
    """
    writer = _WRITERS.get(out.suffix.lower())
    if writer is None:
        _write_arrays(chosen, out, overwrite, sources)
        return
    with new_file(out, overwrite) as hidden:
        writer(chosen, hidden, out.name)
        sources.require_unchanged()


def _headings(chosen: Selection, units: bool = False) -> list[str]:
    """t, then quantity/dof, with ``units`` as t (s); before them the trajectory where there are
    several."""
    names = {"t": "s"} if chosen.timed else {"row": ""}
    for name in chosen.arrays:
        of_dofs = (chosen.batch.first.unit(name) or "").split(",")  # one for all, or one for each
        for k, dof in enumerate(chosen.batch.dofs):
            names[f"{name}/{dof}"] = of_dofs[k % len(of_dofs)]
    heads = [f"{name} ({unit})" if units and unit else name for name, unit in names.items()]
    return ["trajectory"] * (len(chosen.numbers) > 1) + heads


def _tables(chosen: Selection) -> Iterator[list[Array]]:
    """The columns of the table, some rows at a time: a row for every time of every trajectory."""
    waiting: list[list[Array]] = []
    for block in chosen.blocks():
        names = [chosen.batch.name(number) for number in block.numbers.tolist()]
        columns = [np.repeat(names, block.rows)] if len(chosen.numbers) > 1 else []
        columns.append(chosen.times(block).reshape(-1))
        for name in chosen.arrays:
            columns += list(chosen.values(block, name).reshape(-1, len(chosen.batch.dofs)).T)
        waiting.append(columns)
        if sum(len(one[0]) for one in waiting) >= _TABLE_ROWS:
            yield [np.concatenate(column) for column in zip(*waiting, strict=True)]
            waiting = []
    if waiting:
        yield [np.concatenate(column) for column in zip(*waiting, strict=True)]


def _write_csv(chosen: Selection, path: Path, _: str) -> None:
    """Numbers have the digits that bring them back."""
    with open(path, "w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(map(spreadsheet_text, _headings(chosen, units=True)))
        for columns in _tables(chosen):
            for begin in range(0, len(columns[0]), _TABLE_ROWS):
                cells = [_cells(column[begin : begin + _TABLE_ROWS]) for column in columns]
                writer.writerows(zip(*cells, strict=True))


def _cells(column: Array) -> list[Any]:
    if column.dtype.kind == "U":
        return list(map(spreadsheet_text, column.tolist()))
    cells: list[Any] = column.tolist()  # of float32 all digits of the same number in float64
    return cells


def _write_parquet(chosen: Selection, path: Path, _: str) -> None:
    """The columns of the CSV, with their types; a row group is some trajectories."""
    arrow, parquet = import_module("pyarrow"), import_module("pyarrow.parquet")
    names = [chosen.batch.name(number) for number in chosen.numbers] if chosen.numbers[1:] else []
    numbered = bool(names) and all(map(str.isdecimal, names))
    writer = None
    try:
        for columns in _tables(chosen):
            if numbered:
                columns[0] = columns[0].astype(np.int64)
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
    try:
        recording.save(path)
        for block in chosen.blocks():
            times = chosen.times(block)
            arrays = {array: chosen.values(block, array) for array in chosen.arrays}
            for k, number in enumerate(block.numbers.tolist()):
                several = len(chosen.numbers) > 1
                place = [f"trajectory_{chosen.batch.name(number)}"] if several else []
                line = {"duration" if chosen.timed else "sequence": times[k]}
                clock = rerun.TimeColumn("time" if chosen.timed else "row", **line)
                for array, values in arrays.items():
                    for i, dof in enumerate(chosen.batch.dofs):
                        entity = rerun.new_entity_path([*place, array, dof])
                        series = rerun.SeriesLines(names=f"{array}/{dof}")
                        recording.log(entity, series, static=True)
                        scalars = values[k, :, i].astype(np.float64)
                        columns = rerun.Scalars.columns(scalars=scalars)
                        recording.send_columns(entity, indexes=[clock], columns=columns)
        recording.flush()
    finally:
        recording.disconnect()


def _write_arrays(chosen: Selection, out: Path, overwrite: bool, sources: SourceFiles) -> None:
    """As integrate writes them."""
    schema = _schema(chosen)
    lengths = np.unique(chosen.batch.lengths[chosen.numbers]).tolist()
    written = dict.fromkeys(lengths, 0)
    with open_output(out, schema, overwrite) as output:
        for block in chosen.blocks():
            place, group = written[block.rows], lengths.index(block.rows)
            for name in chosen.arrays:
                output.write(name, place, chosen.values(block, name), group)
            if chosen.timed:
                output.write_time(place, len(block.numbers), chosen.times(block), group)
            written[block.rows] += len(block.numbers)
        sources.require_unchanged()
        output.finish()


def _schema(chosen: Selection) -> Schema:
    """Times are shared where all steps are one dt; trajectories of unequal length have a group
    each."""
    batch, first, count = chosen.batch, chosen.batch.first, len(chosen.numbers)
    lengths = batch.lengths[chosen.numbers]
    rows = np.unique(lengths).tolist()
    step = common_step(batch.sets)
    along = "time" if chosen.timed and (step or count == 1) else "row"
    shape, dims = (count, rows[-1], len(batch.dofs)), ("trajectory", along, "dof")
    units = {name: {"units": unit} for name in chosen.arrays if (unit := first.unit(name))}
    variables = [
        Variable(name, dims, shape, dtype, units.get(name, {}))
        for name, dtype in chosen.arrays.items()
    ]
    if chosen.timed:
        variables.append(time_variable(shape[1:2] if along == "time" else shape[:2]))
    attributes: dict[str, Any] = {"source": Path(batch.path).name, "trajcli_version": __version__}
    attributes |= {"dt": step} if step else {}
    sizes, joints = dict(zip(dims, shape, strict=True)), first.joint_names
    schema = Schema(sizes, variables, attributes, joints)
    names = [batch.name(number) for number in chosen.numbers]
    if len(rows) == 1:
        named = not all(map(str.isdecimal, names))
        return replace(schema, trajectory_names=names) if named else schema
    names = [f"trajectory_{name}" if name.isdecimal() else name for name in names]
    places = [(length, np.flatnonzero(lengths == length)) for length in rows]
    groups = [Group(length, [names[n] for n in which], which) for length, which in places]
    return unequal_schema(schema, groups)


_WRITERS: dict[str, Callable[[Selection, Path, str], None]] = {
    ".csv": _write_csv,
    ".parquet": _write_parquet,
    ".rrd": _write_rrd,
}
_ARRAYS = (".npz", ".npy", ".h5", ".hdf5")
_LIBRARIES = {".rrd": ("rerun", "rerun-sdk"), ".parquet": ("pyarrow", "pyarrow")}
"""What a form needs, and the package that has it."""
