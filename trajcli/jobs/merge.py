"""Joining the parts of a divided run, in order, into what a run in one piece writes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from trajcli.errors import Fault, InputError, Stopped, UsageError
from trajcli.files.arrays import ArrayFile, StoredArray
from trajcli.files.hdf5 import Hdf5File
from trajcli.files.outputs import Output, discarding, open_output
from trajcli.files.padded import Padded
from trajcli.files.placing import output_family, refuse_input, refuse_output
from trajcli.files.schema import Schema
from trajcli.files.sink import Sink
from trajcli.files.virtual import Pointed, VirtualOutput
from trajcli.jobs.gradient import Total
from trajcli.jobs.outline import variable_of
from trajcli.jobs.pieces import Piece, Pieces, gather
from trajcli.jobs.run import signals
from trajcli.jobs.shrinking import guarded
from trajcli.jobs.units import Unit

_BLOCK_BYTES = 16 << 20

Progress = Callable[[float, int], None]


def merge(
    parts: Sequence[Path],
    out: Path,
    overwrite: bool = False,
    durable: bool = False,
    virtual: bool = False,
    on_progress: Progress = lambda done, total: None,
) -> dict[str, Any]:
    """Join parts into OUT and return a report of plain values.

    Raises InputError for what is missing, comes twice, is damaged or belongs to another run; OUT
    is then as it was before.
    """
    began = time.perf_counter()
    refuse_output(out, overwrite)
    pieces = gather(parts)
    schema = pieces.schema()
    if schema.groups and output_family(out) != "hdf5":
        what = "trajectories of different length go to groups of an HDF5 file"
        raise UsageError(Fault(what, str(out), "OUT.h5", out.suffix, "integrate with --pack"))
    refuse_input(out, [piece.path for piece in pieces.each[:1]])
    output = _open(pieces, schema, out, overwrite, durable, virtual)
    with signals() as stop, discarding(output):
        if virtual:
            _copy_times(pieces, output)
            _write_sums(pieces, output)
        else:
            _copy(pieces, output, stop, on_progress)
        output.finish()
    seconds = time.perf_counter() - began
    return {
        "out": str(out),
        "virtual": virtual,
        "parts": len(pieces.each),
        "trajectories": sum(len(range(*piece.unit.trajectories)) for piece in pieces.each),
        "bytes_written": out.stat().st_size if virtual else schema.nbytes,
        "nonfinite": sum(int(piece.record["bad"]) for piece in pieces.each),
        "seconds": seconds,
        "gb_per_s": (0 if virtual else 2 * schema.nbytes) / seconds / 1e9,
    }


def _open(
    pieces: Pieces, schema: Schema, out: Path, overwrite: bool, durable: bool, virtual: bool
) -> Output:
    """OUT, to be filled."""
    if not virtual:
        return open_output(out, schema, overwrite, durable, compress=pieces.compress)
    if output_family(out) != "hdf5":
        raise UsageError(Fault("not an HDF5 file", str(out), "OUT.h5 with --virtual", out.suffix))
    if schema.groups:
        what = "a group for every trajectory is not made virtual"
        hint = "integrate with --pack, or merge without --virtual"
        raise UsageError(Fault(what, "--virtual", hint=hint))
    parts = [
        Pointed(
            piece.path,
            piece.record.get("numbers") or range(*piece.unit.trajectories),
            pieces.rows[piece.unit.length],
        )
        for piece in pieces.each
    ]
    return VirtualOutput(out, schema, overwrite, durable, parts=parts)


def _copy_times(pieces: Pieces, output: Output) -> None:
    """The time that all trajectories share, where they do."""
    if any(variable.name == "time" and variable.dims == ("time",) for variable in
           output.schema.variables):  # fmt: skip
        longest = max(range(len(pieces.rows)), key=pieces.rows.__getitem__)
        piece = next(piece for piece in pieces.each if piece.unit.length == longest)
        times = piece.read("time")
        output.write("time", 0, times[0] if times.ndim == 2 else times)


def _copy(
    pieces: Pieces, output: Output, stop: Callable[[], str | None], on_progress: Progress
) -> None:
    """Every part into its place."""
    sink = Padded(output) if output.schema.scatter else output
    for number, piece in enumerate(pieces.each, 1):
        came = stop()
        if came is not None:
            output.discard()
            hint = "run the same command again"
            raise Stopped(Fault(f"stopped by {came}", found="OUT is as it was before", hint=hint))
        piece.require_intact()
        with guarded([str(piece.path)]) as sizes, Hdf5File(piece.path) as file:
            _copy_part(_Part(pieces, piece, file), sink)
            sizes.require_pages()
            sizes.require_all()
        on_progress(number, len(pieces.each))
    _write_sums(pieces, output)


def _write_sums(pieces: Pieces, output: Output) -> None:
    """Gradients of what trajectories share, from those of each, as a run adds them up."""
    for variable in output.schema.streamed:
        if not variable.summed:
            continue
        total = Total(variable.shape)
        indexed = any(each.name == "start_index" for each in output.schema.variables)
        for piece in pieces.each:
            values = piece.read(variable.name)
            if indexed and variable.name.startswith("grad/start") and variable.shape[0] > 1:
                total.add(values, piece.read("start_index"))
            else:
                total.add(values)
        output.write(variable.name, 0, total.value)


class _Part:
    """An open part: its variables as the run calls them."""

    def __init__(self, pieces: Pieces, piece: Piece, file: ArrayFile) -> None:
        self.begin, self.end = piece.unit.begin, piece.unit.end
        self.first = piece.unit.number == 0
        self.prefix = pieces.prefix(piece.unit)
        self.arrays: dict[str, StoredArray] = {}
        for name, dtype, shape in _variables(pieces, piece.unit):
            array = file.require(name)
            if array.shape != shape or array.dtype != dtype:
                expected, found = f"{dtype} {list(shape)}", f"{array.dtype} {list(array.shape)}"
                raise InputError(Fault("not the part of this run", array.where, expected, found))
            self.arrays[name] = array

    def spans(self) -> Iterator[tuple[int, int]]:
        """Trajectories that are copied at once."""
        count = self.end - self.begin
        size = sum(array.nbytes for array in self.arrays.values() if array.ndim > 1)
        step = max(1, _BLOCK_BYTES * count // max(size, 1))
        for begin in range(0, count, step) if count else (0,):
            yield begin, min(begin + step, count)


def _variables(pieces: Pieces, unit: Unit) -> Iterator[tuple[str, np.dtype[Any], tuple[int, ...]]]:
    """What a part must hold of what is copied: name, type and shape."""
    prefix, rows = pieces.prefix(unit), pieces.rows[unit.length]
    for each in pieces.variables(unit.length):
        variable = variable_of(each)
        if each["given"] or variable.summed:
            continue
        name = each["name"].removeprefix(prefix)
        dims, shape = each["dims"], each["shape"]
        if prefix and name == "time":
            dims, shape = ["trajectory", "row"], [0, rows]
        if dims[:1] == ["trajectory"]:
            own = [
                rows if dim in ("time", "row") else n for dim, n in zip(dims, shape, strict=True)
            ]
            shape = [unit.end - unit.begin, *own[1:]]
        yield name, np.dtype(each["dtype"]), tuple(shape)


def _copy_part(part: _Part, sink: Sink) -> None:
    """A part, block by block, as a run writes them."""
    for begin, end in part.spans():
        for name, array in part.arrays.items():
            if array.ndim == 1 and name == "time":  # of all trajectories: it comes with the first
                if part.first and begin == 0:
                    sink.write("time", 0, array.read())
            elif begin < end:
                values = array.read_rows(begin, end)
                sink.write(part.prefix + name, part.begin + begin, values)
        sink.settle()
