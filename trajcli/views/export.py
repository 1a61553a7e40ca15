"""Writes trajectories for other programs: as a table, for rerun, as arrays, or for LeRobot."""

from __future__ import annotations

import csv
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from importlib import import_module
from pathlib import Path
from statistics import mode
from typing import Any

import numpy as np

from trajcli import __version__
from trajcli.checks import describe
from trajcli.errors import Fault, InputError, OutputError, UsageError, raise_if_any
from trajcli.files.atomic_output import HiddenFolder, new_file, reserve
from trajcli.files.description import ROWS, Description, Variable, describe_output, time_variable
from trajcli.files.file_bytes import Progress, SourceFiles
from trajcli.files.lerobot_copy import LeRobotCopy
from trajcli.files.opening import Files
from trajcli.files.outputs import Output
from trajcli.files.reading import Repair, select
from trajcli.files.refusals import os_failures
from trajcli.files.trajectories import Array, Trajectories
from trajcli.files.writing import write
from trajcli.views.terminal import spreadsheet_text
from trajcli.views.trajectories import read_batches, whole_batch

# Rows of a table that are put together and written at once.
_TABLE_ROWS = 1 << 16


@dataclass(frozen=True)
class Export:
    """The trajectories of a batch that are exported; ``others`` are arrays that are not."""

    batch: Trajectories
    numbers: Sequence[int]
    on_progress: Progress
    others: Sequence[str] = ()

    def blocks(self) -> Iterator[Trajectories]:
        """Returns blocks of the trajectories, in their order."""
        return self.batch.take(self.numbers).blocks(self.on_progress)

    @cached_property
    def arrays(self) -> dict[str, np.dtype[Any]]:
        """The types of the arrays in native byte order, by name.

        Wider floats, which few programs read, become float64.
        """
        stored = self.batch.first.arrays.items()
        types = {name: array.precision.newbyteorder("=") for name, array in stored}
        return {n: np.dtype("f8") if kind == np.longdouble else kind for n, kind in types.items()}

    @cached_property
    def names(self) -> list[str]:
        """The names of the trajectories, or their numbers."""
        return [self.batch.name(number) for number in self.numbers]

    @property
    def numbered(self) -> bool:
        """Whether all trajectories have numbers for names."""
        return all(map(str.isdecimal, self.names))

    @property
    def several(self) -> bool:
        """Whether there is more than one trajectory."""
        return len(self.numbers) > 1

    @property
    def timed(self) -> bool:
        """Whether the file has the times of the rows."""
        return self.batch.first.time is not None

    def values(self, block: Trajectories, name: str) -> Array:
        """Returns an array [b, rows, dofs]."""
        return block.read(name).astype(self.arrays[name], copy=False)

    def times(self, block: Trajectories) -> Array:
        """Returns times [b, rows] in seconds as stored; without any, the row numbers."""
        times = block.times()
        if times is not None:
            return times
        return np.broadcast_to(np.arange(block.rows), (len(block), block.rows))

    def headings(self, units: bool = False) -> list[str]:
        """Returns t and quantity/dof, with ``units`` like t (s); first trajectory, of several."""
        heads = {"t": "s"} if self.timed else {"row": ""}
        for name in self.arrays:
            of_dofs = (self.batch.first.unit(name) or "").split(",")  # one for all, or one for each
            for k, dof in enumerate(self.batch.dofs):
                heads[f"{name}/{dof}"] = of_dofs[k % len(of_dofs)]
        texts = [f"{head} ({unit})" if units and unit else head for head, unit in heads.items()]
        return ["trajectory"] * self.several + texts

    def tables(self) -> Iterator[list[Array]]:
        """Yields columns of the table, which has a row for each time of each trajectory."""
        waiting: list[list[Array]] = []
        rows = 0
        for block in self.blocks():
            names = [self.batch.name(number) for number in block.numbers.tolist()]
            columns = [np.repeat(names, block.rows)] if self.several else []
            columns.append(self.times(block).reshape(-1))
            for name in self.arrays:
                columns += list(self.values(block, name).reshape(-1, len(self.batch.dofs)).T)
            waiting.append(columns)
            rows += len(columns[0])
            if rows >= _TABLE_ROWS:
                yield [np.concatenate(column) for column in zip(*waiting, strict=True)]
                waiting, rows = [], 0
        if waiting:
            yield [np.concatenate(column) for column in zip(*waiting, strict=True)]


def select_trajectories(files: Files, source: str, repair: Repair, on_progress: Progress) -> Export:
    """Returns the trajectories to export; raises InputError where there are none."""
    batch, others = whole_batch(read_batches(files, [source], repair=repair))
    if batch is None or not len(batch) or not batch.first.shape[2]:
        raise InputError(
            "nothing to export",
            where=source,
            expected="trajectories with dofs",
            found="no trajectories" if batch is None else describe(batch.first.shape),
        )
    return Export(batch, select(files.reading.episodes, len(batch)), on_progress, others)


def require_kind(out: Path) -> None:
    """Raises UsageError where the ending of OUT is unknown, or its library is absent."""
    suffix = out.suffix.lower()
    if suffix not in _WRITERS and suffix not in _ARRAYS:
        expected = f"a name that ends in {', '.join([*_WRITERS, *_ARRAYS])}"
        what, found = "unknown kind of export", suffix or "no ending"
        raise UsageError(what, where=str(out), expected=expected, found=found)
    library, package = _LIBRARIES.get(suffix, ("numpy", "numpy"))
    try:
        import_module(library)
    except ImportError as error:
        what, hint = f"{library} is not installed", f"pip install {package}"
        raise UsageError(what, where="export", found=str(error), hint=hint) from None


def write_export(chosen: Export, out: Path, overwrite: bool, sources: SourceFiles) -> None:
    """Writes trajectories in the format that the ending of OUT names.

    Raises InputError where ``sources`` have changed since, OutputError where OUT cannot be written.
    """
    writer = _WRITERS.get(out.suffix.lower())
    if writer is None:
        _write_arrays(chosen, out, overwrite, sources)
        return
    with new_file(out, overwrite) as hidden:
        writer(chosen, hidden, out.name)
        sources.require_unchanged()


def _write_csv(chosen: Export, path: Path, _: str) -> None:
    """Writes numbers with enough digits to read the same numbers back."""
    with open(path, "w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(map(spreadsheet_text, chosen.headings(units=True)))
        for columns in chosen.tables():
            for begin in range(0, len(columns[0]), _TABLE_ROWS):
                # float32 is written with all digits of the same number in float64
                cells = [column[begin : begin + _TABLE_ROWS].tolist() for column in columns]
                if chosen.several:
                    cells[0] = list(map(spreadsheet_text, cells[0]))
                writer.writerows(zip(*cells, strict=True))


def _write_parquet(chosen: Export, path: Path, _: str) -> None:
    """Writes the columns of the CSV, with their types; a row group is some trajectories."""
    arrow, parquet = import_module("pyarrow"), import_module("pyarrow.parquet")
    writer = None
    try:
        for columns in chosen.tables():
            if chosen.several and chosen.numbered:
                columns[0] = columns[0].astype(np.int64)
            table = arrow.table(columns, names=chosen.headings())
            writer = writer or parquet.ParquetWriter(path, table.schema)
            writer.write_table(table)
    finally:
        if writer is not None:
            writer.close()


def _write_rrd(chosen: Export, path: Path, name: str) -> None:
    """Writes a scalar series for each dof on the duration time line ``time``."""
    rerun = import_module("rerun")
    recording = rerun.RecordingStream("trajcli", recording_id=name, send_properties=False)
    try:
        recording.save(path)
        for block in chosen.blocks():
            times = chosen.times(block)
            arrays = {array: chosen.values(block, array) for array in chosen.arrays}
            for k, number in enumerate(block.numbers.tolist()):
                place = [f"trajectory_{chosen.batch.name(number)}"] if chosen.several else []
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


_WRITERS = {".csv": _write_csv, ".parquet": _write_parquet, ".rrd": _write_rrd}
_ARRAYS = (".npz", ".npy", ".h5", ".hdf5")
# The library of a format, and the package that has it.
_LIBRARIES = {".rrd": ("rerun", "rerun-sdk"), ".parquet": ("pyarrow", "pyarrow")}


def _write_arrays(chosen: Export, out: Path, overwrite: bool, sources: SourceFiles) -> None:
    """Writes arrays as integrate does, the trajectories of each length in their order."""

    def blocks(output: Output) -> Iterator[int]:
        for block in chosen.blocks():
            times = chosen.times(block) if chosen.timed else None
            yield output.append({name: chosen.values(block, name) for name in chosen.arrays}, times)

    write(out, _describe(chosen), blocks, overwrite=overwrite, sources=sources)


def _describe(chosen: Export) -> Description:
    """Describes the output: times are shared where all steps are one dt, and trajectories of
    unequal length have a group each."""
    batch, first = chosen.batch, chosen.batch.first
    lengths = batch.lengths[chosen.numbers]
    numbers = {rows: np.flatnonzero(lengths == rows) for rows in np.unique(lengths).tolist()}
    step = batch.step
    units = {name: {"units": unit} for name in chosen.arrays if (unit := first.unit(name))}
    variables = [
        Variable(name, ROWS, dtype, units.get(name, {})) for name, dtype in chosen.arrays.items()
    ]
    if chosen.timed:
        variables.append(time_variable(shared=step is not None or len(lengths) == 1))
    attributes: dict[str, Any] = {"source": Path(batch.path).name, "trajcli_version": __version__}
    names: list[str] | None = chosen.names
    if len(numbers) > 1:
        names = [f"trajectory_{name}" if name.isdecimal() else name for name in chosen.names]
    elif chosen.numbered:
        names = None
    return describe_output(
        numbers,
        {"dof": len(batch.dofs)},
        variables,
        attributes | ({"dt": step} if step else {}),
        names=names,
        joint_names=first.joint_names,
    )


def write_lerobot(chosen: Export, files: Files, folder: Path, out: Path) -> None:
    """Writes a copy of a LeRobot data set with the trajectories as features.

    Frame k of an episode has row k of its trajectory; a further row, the state after the last
    action, has no frame. Raises InputError where the trajectories do not match the episodes or the
    data set is no LeRobot one, OutputError where OUT is not new or cannot be written; OUT is then
    as it was.
    """
    if os.path.lexists(out) or Path(os.path.realpath(out)).is_relative_to(folder.resolve()):
        what = "not a new folder outside of DIR"
        raise OutputError(what, where=str(out), hint="another name: no folder is ever replaced")
    copy = LeRobotCopy(files, folder)
    if taken := sorted(copy.names.intersection(f"trajcli.{name}" for name in chosen.arrays)):
        what = "features there already"
        raise InputError(what, where=str(folder), found=", ".join(taken))
    frames = _frames(chosen, copy)
    hidden = HiddenFolder(out, overwrite=False)
    try:
        with os_failures(out):
            hidden.make()
            copy.features = _features(chosen, frames, hidden.path)
            copy.dofs = chosen.batch.first.joint_names
            copy.write(hidden.data, partial(chosen.on_progress, len(frames), len(frames)))
            files.sources.require_unchanged()
            hidden.publish()
    finally:
        hidden.close()


def _frames(chosen: Export, copy: LeRobotCopy) -> dict[int, slice]:
    """Returns the frames of each trajectory by its number.

    Trajectories named episode_3, … belong to these episodes, others to the episodes in order.
    """
    batch, episodes = chosen.batch, copy.episodes
    names = [name.rpartition("/")[2] for name in chosen.names]
    named = any(name.startswith("episode_") for name in names)
    order = names if named else list(episodes)
    if len(order) != len(names) or sorted(order) != sorted(episodes):
        raise InputError(
            "other trajectories than episodes",
            where=batch.path,
            expected=f"{len(episodes)} episodes of {copy.folder}",
            found=f"{len(names)} trajectories",
        )
    frames = {number: episodes[k] for number, k in zip(chosen.numbers, order, strict=True)}
    counts = [part.stop - part.start for part in frames.values()]
    rows = batch.lengths[list(frames)].tolist()
    more = mode(length - count for length, count in zip(rows, counts, strict=True)) == 1
    expected = "a row for each of {} frames" + ", and one for the state after them" * more
    raise_if_any(
        Fault(
            "other rows than frames",
            where=f"{batch.path}, {name}",
            expected=expected.format(count),
            found=str(length),
        )
        for name, count, length in zip(names, counts, rows, strict=True)
        if length != count + more
    )
    return frames


def _features(chosen: Export, frames: Mapping[int, slice], folder: Path) -> dict[str, Any]:
    """Returns the rows of all frames by feature, mapped from files, [frames, D]."""
    shape = max(part.stop for part in frames.values()), len(chosen.batch.dofs)
    features = {}
    for k, (name, dtype) in enumerate(chosen.arrays.items()):
        path = folder / str(k)
        path.touch()
        reserve(path, shape[0] * shape[1] * dtype.itemsize)
        features[f"trajcli.{name}"] = np.memmap(path, dtype, "r+", shape=shape)
    for block in chosen.blocks():
        for name in chosen.arrays:
            values = features[f"trajcli.{name}"]
            rows_of = zip(block.numbers.tolist(), chosen.values(block, name), strict=True)
            for number, rows in rows_of:
                values[frames[number]] = rows[: len(values[frames[number]])]
    return features
