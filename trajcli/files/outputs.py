"""Writing outputs: in a hidden folder beside OUT, renamed last.

Whatever ends the process, OUT is absent, the old one, or complete; see :mod:`.atomic_output`.
"""

from __future__ import annotations

import contextlib
import json
import os
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from trajcli.files.atomic_output import HiddenFolder
from trajcli.files.checksums import Segments, append_checksums
from trajcli.files.refusals import is_folder, os_failures, output_family, refuse_form, require_space
from trajcli.files.schema import Schema, padded, plain_value

_WRITERS = {
    "hdf5": "hdf5_output.Hdf5Output",
    "npz": "numpy_output.NpzOutput",
    "npy": "numpy_output.FolderOutput",
    "zarr": "zarr_output.ZarrOutput",
}
"""The class of each family, imported when one is written."""
_ADDRESSES, _SEGMENTS = "addresses/", "segments"
"""Arrays of a journal besides those of the run."""


class Output(ABC):
    """An output being written. ``finish`` makes it appear; the end of its context, or ``discard``,
    removes what is not finished.

    ``group`` numbers the length of the trajectories that are written, where they are of several
    (:attr:`Schema.groups`); ``row`` then counts those of this length.
    """

    copies = 1
    """How often the values lie on the disk: not at all where OUT refers to them."""

    def __init__(self, path: Path, schema: Schema) -> None:
        self.path = path
        self.schema = schema
        self.done = 0
        """Trajectories that a stopped run with the same ``identity`` wrote, where resumed."""
        self.carried: dict[str, Any] = {}
        """The arrays that it kept to be resumed."""
        self.begun_anew = False
        """Whether there is a stopped run that this one cannot resume."""
        self.notes: list[str] = []
        """What there is to say of an output that is complete."""
        self._variables = {variable.name: variable for variable in schema.variables}
        self._descriptors: dict[str, int] = {}
        self._addresses: dict[tuple[str, int], npt.NDArray[np.int64]] = {}
        """By name and group. Of packed variables the byte of the first entry alone; of those in
        groups that of every trajectory."""
        self._open: list[int] = []
        self._segments: Segments | None = None

    def begin(
        self,
        overwrite: bool,
        durable: bool = False,
        identity: str = "",
        resume: bool = False,
        checksum: bool = False,
    ) -> None:
        """Make the hidden folder and what is known before the values are, or resume a stopped run.

        The options are those of :func:`open_output`.
        """
        self._durable, self._identity = durable, identity
        self._segments = {} if checksum else None
        self._hidden = HiddenFolder(self.path, overwrite, is_folder(self.path))
        try:
            with os_failures(self.path):
                stopped = self._hidden.has_stopped
                if self._hidden.take_stopped() and resume and self._resume():
                    return
                self.begun_anew = resume and stopped
                self._hidden.make()
                require_space(self.path, self.schema.nbytes * self.copies)
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
        """Open what was made, now or by a stopped run, and set the descriptors: of one file."""
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
        if self.schema.pack:
            values = padded(values, variable.shape[1:])
            addresses = self._addresses[name, 0] + self.schema.groups[group].numbers[rows] * size
        else:
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
        after the other, for kernels that write into the file. None where they do not, or where
        a checksum is taken: ``write`` finds their places."""
        if self.schema.pack or self._segments is not None:
            return None
        addresses = self._addresses[name, group]
        size = self.schema.in_group(self._variables[name], group).row_bytes
        if int(addresses[-1] - addresses[0]) != size * (len(addresses) - 1):
            return None
        return self._descriptors[name], int(addresses[0]) + row * size

    def _put(self, descriptor: int, values: Any, at: int) -> None:
        """Bytes of the output in their place in a file."""
        view = memoryview(values).cast("B")
        if self._segments is not None:
            self._segments[at] = (len(view), zlib.crc32(view))
        self._pwrite(descriptor, view, at)

    def _pwrite(self, descriptor: int, view: memoryview, at: int) -> None:
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

    def keep(self, done: int, carried: Mapping[str, Any]) -> None:
        """Leave what is written to be resumed: so many trajectories, and arrays to go on from."""
        with os_failures(self.path):
            self._close()
            arrays = {f"{_ADDRESSES}{k}/{n}": found for (n, k), found in self._addresses.items()}
            if self._segments is not None:
                table = [(at, *known) for at, known in self._segments.items()]
                arrays[_SEGMENTS] = np.reshape(table, (-1, 3)).astype(np.int64)
            self._hidden.leave_stopped(self._fingerprint(), done, {**carried, **arrays})

    def _resume(self) -> bool:
        """Go on with what a stopped run wrote; False where it is of another identity, or where
        anything in it is not as it was left."""
        stopped = self._hidden.read_stopped(self._fingerprint())
        if stopped is None:
            return False
        self.done, self.carried = stopped
        for key in [key for key in self.carried if key.startswith(_ADDRESSES)]:
            group, _, name = key.removeprefix(_ADDRESSES).partition("/")
            self._addresses[name, int(group)] = self.carried.pop(key)
        if self._segments is not None:
            table = self.carried.pop(_SEGMENTS).tolist()
            self._segments = {at: (size, crc) for at, size, crc in table}
        self._open_files()
        return True

    def _fingerprint(self) -> str:
        """The same for runs that write the same values to the same places."""
        import hashlib

        schema = self.schema
        variables = [(v.name, v.dims, v.shape, v.dtype.str) for v in schema.variables]
        groups = [(g.rows, list(g.names), g.numbers) for g in schema.groups]
        parts = self._identity, variables, groups, schema.pack, dict(schema.attributes)
        text = json.dumps(parts, default=plain_value, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()

    def finish(self) -> None:
        """Complete the output and give it its name."""
        with os_failures(self.path):
            self._complete()
            self._close()
            if self._segments is not None:
                append_checksums(self._hidden.data, self._segments)
            self._hidden.publish(self._durable)
        for path in self._hidden.close():
            self.notes.append(f"{path} could not be removed; nothing needs it")

    def discard(self) -> None:
        """Remove everything that is not finished or kept."""
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
    durable: bool,
    identity: str = "",
    resume: bool = False,
    compress: int | None = None,
    checksum: bool = False,
    make: Callable[[Path, Schema], Output] | None = None,
) -> Output:
    """The output that OUT's name asks for: .h5/.hdf5, .npz, .zarr, or a folder of .npy files.

    identity: all that decides the values; with ``resume`` a stopped run with the same is
    continued, if there is one. compress: the level of deflate, 1 to 9, for HDF5. checksum: end an
    HDF5 file by checksums of what was computed, see :mod:`.checksums`. make: of another form.

    Raises OutputError where OUT cannot be written, or not in this form.
    """
    if make is not None:
        output = make(path, schema)
    elif compress is not None:
        from trajcli.files.compressed import CompressedOutput

        refuse_form(path, schema, compress)
        output = CompressedOutput(path, schema, compress)
    else:
        refuse_form(path, schema)
        module, name = _WRITERS[output_family(path)].split(".")
        output = getattr(import_module(f"trajcli.files.{module}"), name)(path, schema)
    output.begin(overwrite, durable, f"{identity} deflated {compress}", resume, checksum)
    return output
