"""HDF5 whose large variables are virtual: they point at parts that lie beside the file.

What is not there reads as NaN: every virtual dataset is of floats, with NaN as its fill value.
Integers have no such value, so that they, and the time that all trajectories share, are copied.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from trajcli.files.outputs import Hdf5Output
from trajcli.files.schema import Schema, Variable


@dataclass(frozen=True)
class Pointed:
    """A part: its path, the trajectories of the whole that are its rows, and rows of each."""

    path: Path
    numbers: Sequence[int]
    rows: int


class VirtualOutput(Hdf5Output):
    """The same file with its streamed variables in the parts."""

    copies = 0

    def __init__(
        self,
        path: Path,
        schema: Schema,
        overwrite: bool,
        durable: bool,
        *,
        parts: Sequence[Pointed],
    ) -> None:
        self._parts = parts
        super().__init__(path, schema, overwrite, durable)

    def _layout_of(self, h5py: Any, variable: Variable, properties: Any) -> None:
        if not is_virtual(variable):
            super()._layout_of(h5py, variable, properties)
            return
        properties.set_layout(h5py.h5d.VIRTUAL)
        properties.set_fill_value(np.array(np.nan, variable.dtype))
        whole = h5py.h5s.create_simple(variable.shape)
        for part in self._parts:
            name = os.path.relpath(part.path, self.path.parent).replace("%", "%%")
            along = part.rows if variable.dims[1:2] in (("time",), ("row",)) else None
            rest = variable.shape[1:] if along is None else (along, *variable.shape[2:])
            source = h5py.h5s.create_simple((len(part.numbers), *rest))
            for local, first, count in _runs(part.numbers):
                zeros, one, block = (0,) * len(rest), (1,) * (1 + len(rest)), (count, *rest)
                whole.select_hyperslab((first, *zeros), one, block=block)
                source.select_hyperslab((local, *zeros), one, block=block)
                properties.set_virtual(whole, os.fsencode(name), variable.name.encode(), source)

    def _reserve(self, descriptor: int, offsets: Mapping[str, int | None]) -> None:
        real = {name: at for name, at in offsets.items() if at is not None}
        self._places = {name: (descriptor, at) for name, at in real.items()}


def is_virtual(variable: Variable) -> bool:
    """Whether a variable of a virtual output points at parts."""
    return variable.values is None and variable.dims[:1] == ("trajectory",)


def _runs(numbers: Sequence[int]) -> Iterator[tuple[int, int, int]]:
    """Runs of numbers that follow each other: where they begin, the first, how many."""
    if isinstance(numbers, range):
        if numbers:
            yield 0, numbers[0], len(numbers)
        return
    values = np.asarray(numbers)
    begins = np.flatnonzero(np.diff(values, prepend=values[:1] - 2) != 1)
    for begin, end in zip(begins, [*begins[1:], len(values)], strict=True):
        yield int(begin), int(values[begin]), int(end - begin)
