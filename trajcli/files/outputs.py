"""Writing outputs: in a hidden folder beside OUT, renamed last.

Whatever ends the process, OUT is absent, the old one, or complete; see :mod:`.atomic_output`.
"""

from __future__ import annotations

import contextlib
import os
from abc import ABC, abstractmethod
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from trajcli.files.atomic_output import HiddenFolder
from trajcli.files.refusals import os_failures, output_family, refuse_form, require_space
from trajcli.files.schema import Schema

_WRITERS = {
    "hdf5": "hdf5_output.Hdf5Output",
    "npz": "numpy_output.NpzOutput",
    "npy": "numpy_output.NpyOutput",
}
"""The class of each family, imported when one is written."""


class Output(ABC):
    """An output being written. ``finish`` makes it appear; the end of its context, or ``discard``,
    removes what is not finished.

    ``group`` numbers the length of the trajectories that are written, where they are of several
    (:attr:`Schema.groups`); ``row`` then counts those of this length.
    """

    level: int | None = None
    """Of deflate, where values are compressed."""

    def __init__(self, path: Path, schema: Schema) -> None:
        self.path = path
        self.schema = schema
        self.notes: list[str] = []
        """What there is to say of an output that is complete."""
        self.inputs: list[str] = []
        """What a part of a run says of its inputs, set before it is finished."""
        self._variables = {variable.name: variable for variable in schema.variables}
        self._descriptors: dict[str, int] = {}
        self._addresses: dict[tuple[str, int], npt.NDArray[np.int64]] = {}
        """By name and group. Of packed variables the byte of the first entry alone; of those in
        groups that of every trajectory."""
        self._open: list[int] = []
        self._file: Any = None

    def begin(self, overwrite: bool) -> None:
        """Make the hidden folder and what is known before the values are."""
        self._hidden = HiddenFolder(self.path, overwrite)
        try:
            with os_failures(self.path):
                self._hidden.make()
                require_space(self.path, self.schema.nbytes)
                self._prepare()
                self._open_files()
                self._write_known()
        except BaseException:
            self.discard()
            raise

    def __enter__(self) -> Output:
        return self

    def __exit__(self, *_: object) -> None:
        self.discard()

    @abstractmethod
    def _prepare(self) -> None:
        """Make the file or files with all that is not streamed, and reserve their space.

        Sets the addresses of every variable.
        """

    def _open_files(self) -> None:
        """Open what was made, and set the descriptors: of one file."""
        descriptor = self._open_file(self._hidden.data)
        self._descriptors = {name: descriptor for name, _ in self._addresses}

    def write(self, name: str, row: int, block: Any, group: int = 0) -> None:
        """Entries row, row + 1, … of a variable."""
        variable = self._variables[name]
        values = np.ascontiguousarray(block, variable.dtype)
        if not values.size:
            return
        size = variable.row_bytes
        if not (self.schema.groups and variable.by_trajectory):  # they follow each other
            at = int(self._addresses[name, 0][0]) + row * size
            self._put(self._descriptors[name], values, at)
            return
        rows = slice(row, row + len(values))
        addresses, size = self._addresses[name, group][rows], values.nbytes // len(values)
        ends = np.flatnonzero(np.diff(addresses) != size) + 1
        for begin, end in pairwise([0, *ends.tolist(), len(values)]):
            self._put(self._descriptors[name], values[begin:end], int(addresses[begin]))

    def write_time(self, row: int, count: int, times: Any, group: int = 0) -> None:
        """Times [count or 1, T] of so many trajectories; what all share is written once."""
        variable = self._variables.get("time")
        if variable is None:
            return
        if variable.by_trajectory:
            self.write("time", row, np.broadcast_to(times, (count, times.shape[-1])), group)
        elif row == 0 and times.shape[-1] == variable.shape[0]:
            self.write("time", 0, times[0])

    def place(self, name: str, row: int, group: int = 0) -> tuple[int, int] | None:
        """The file descriptor and byte where all entries of a variable lie from ``row`` on, one
        after the other, for kernels that write into the file. None where they do
        not: ``write`` finds their places."""
        addresses = self._addresses[name, group]
        size = self.schema.in_group(self._variables[name], group).row_bytes
        if int(addresses[-1] - addresses[0]) != size * (len(addresses) - 1):
            return None
        return self._descriptors[name], int(addresses[0]) + row * size

    def _put(self, descriptor: int, values: Any, at: int) -> None:
        """Bytes of the output in their place in a file."""
        view = memoryview(values).cast("B")
        with os_failures(self.path):
            while view:
                written = os.pwrite(descriptor, view[: 1 << 30], at)
                view, at = view[written:], at + written

    def _write_known(self) -> None:
        """The variables whose values the schema has."""
        for variable in self.schema.variables:
            values = variable.values
            if values is None:
                continue
            if variable.by_trajectory and self.schema.groups:
                for k, group in enumerate(self.schema.groups):
                    self.write(variable.name, 0, values[group.numbers], k)
            else:
                self.write(variable.name, 0, np.reshape(values, variable.shape or 1))

    def finish(self) -> None:
        """Complete the output and give it its name."""
        with os_failures(self.path):
            self._complete()
            self._close()
            self._hidden.publish()
        for path in self._hidden.close():
            self.notes.append(f"{path} could not be removed; nothing needs it")

    def discard(self) -> None:
        """Remove everything that is not finished."""
        while self._open:
            with contextlib.suppress(OSError):
                self._close()
        self._hidden.close()

    def _complete(self) -> None:  # noqa: B027
        """What remains to be done once all blocks are written."""

    def _close(self) -> None:
        while self._open:
            os.close(self._open.pop())

    def _open_file(self, path: Path) -> int:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        self._open.append(descriptor)
        return descriptor


def open_output(
    path: Path,
    schema: Schema,
    overwrite: bool,
    compress: int | None = None,
) -> Output:
    """The output that OUT's name asks for: .h5/.hdf5, .npz or .npy.

    compress: the level of deflate, 1 to 9, for HDF5.

    Raises OutputError where OUT cannot be written, or not in this form.
    """
    refuse_form(path, schema, compress)
    module, name = _WRITERS[output_family(path)].split(".")
    output: Output = getattr(import_module(f"trajcli.files.{module}"), name)(path, schema)
    output.level = compress
    output.begin(overwrite)
    return output
