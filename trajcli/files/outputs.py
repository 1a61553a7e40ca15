"""Writing outputs: beside OUT under a hidden name, renamed last.

Whatever ends the process, OUT is absent, the old one, or complete. The hidden name is the same
for every run of one OUT and locked while a run writes, so a second one is refused, and what a
killed run left behind is taken over by the next.
"""

from __future__ import annotations

import contextlib
import json
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from trajcli.errors import Fault, OutputError, Stopped
from trajcli.files import journal
from trajcli.files.atomic_output import (
    locked,
    os_fault,
    output_family,
    refuse_output,
    remove,
    replace,
    require_space,
)
from trajcli.files.schema import Schema

_ROWS_AT_ONCE = 1 << 20
_ADDRESSES = "addresses"

Addresses = npt.NDArray[np.int64]


class Output(ABC):
    """An output being written. ``finish`` makes it appear; ``discard`` leaves no trace.

    ``group`` numbers the length of the trajectories that are written, where they are of several
    (:attr:`Schema.groups`); ``row`` then counts those of this length.
    """

    copies = 1
    """How often the values lie on the disk while they are written."""

    def __init__(
        self,
        path: Path,
        schema: Schema,
        overwrite: bool,
        durable: bool,
        identity: str = "",
        resume: bool = False,
    ) -> None:
        self.path = path
        self.schema = schema
        self.done = 0
        """Trajectories that a stopped run with the same ``identity`` wrote, where resumed."""
        self.carried: dict[str, Any] = {}
        """The arrays that it kept to be resumed."""
        self.begun_anew = False
        """Whether there is a stopped run that this one cannot resume."""
        self._durable = durable
        refuse_output(path, overwrite)
        self._hidden = path.parent / f".{path.name}.trajcli-part"
        self._journal = journal.place_of(path)
        self._waiting = path.parent / f".{path.name}.trajcli-chunks"
        self._identity = identity
        self._lock = locked(self._hidden, path)
        self._variables = {variable.name: variable for variable in schema.variables}
        self._descriptors: dict[str, int] = {}
        self._addresses: dict[tuple[str, int], Addresses] = {}
        """By name and group. Of packed variables the byte of the first entry alone; of those in
        groups that of every trajectory."""
        self._open: list[int] = []
        with self._discarding():
            if resume and self._resume():
                return
            self.begun_anew = resume and self._journal.exists()
            self._remove_rest()
            require_space(path, schema.nbytes * self.copies)
            self._prepare()
            self._open_files()
            self._write_known()

    @abstractmethod
    def _prepare(self) -> None:
        """Make the file or files with all that is not streamed, and reserve their space.

        Sets the addresses of every variable.
        """

    @abstractmethod
    def _open_files(self) -> None:
        """Open what was made, now or by a stopped run, and set the descriptors."""

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
            values = _padded(values, variable.shape[1:])
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
        after the other, for kernels that write into the file. None where they do not: ``write``
        finds their places."""
        if self.schema.pack:
            return None
        variable, addresses = self._variables[name], self._addresses[name, group]
        if self.schema.groups:
            variable = self.schema.in_group(variable, group)
        if int(addresses[-1] - addresses[0]) != variable.row_bytes * (len(addresses) - 1):
            return None
        return self._descriptors[name], int(addresses[0]) + row * variable.row_bytes

    def _put(self, descriptor: int, values: Any, at: int) -> None:
        """Bytes in their place in a file."""
        view = memoryview(values).cast("B")
        try:
            while view:
                written = os.pwrite(descriptor, view[: 1 << 30], at)
                view, at = view[written:], at + written
        except OSError as error:
            raise OutputError(os_fault(self.path, error)) from None

    def _write_known(self) -> None:
        """The variables whose values the schema has."""
        for variable in self.schema.variables:
            values = variable.values
            if values is None or variable.name not in self._descriptors:
                continue
            if variable.by_trajectory and self.schema.groups:
                for k, group in enumerate(self.schema.groups):
                    self.write(variable.name, 0, values[group.numbers], k)
            elif callable(values):
                for begin in range(0, variable.shape[0], _ROWS_AT_ONCE):
                    end = min(begin + _ROWS_AT_ONCE, variable.shape[0])
                    self.write(variable.name, begin, values(begin, end))
            else:
                self.write(variable.name, 0, np.reshape(values, variable.shape or 1))

    def keep(self, done: int, carried: Mapping[str, Any]) -> None:
        """Leave what is written to be resumed: so many trajectories, and arrays to go on from."""
        self._sync(self._hidden)
        keys = [(*key, len(where)) for key, where in self._addresses.items()]
        head = {"identity": self._fingerprint(), "done": done, _ADDRESSES: keys}
        every = np.concatenate([np.zeros(0, np.int64), *self._addresses.values()])
        journal.write(self._journal, head, {**carried, _ADDRESSES: every})
        self._close()
        os.close(self._lock)

    def _resume(self) -> bool:
        """Go on with what a stopped run wrote; False where there is none of this identity."""
        head, arrays = journal.read(self._journal)
        if head.get("identity") != self._fingerprint():
            return False
        every = arrays.pop(_ADDRESSES)
        for name, group, count in head[_ADDRESSES]:
            self._addresses[name, group], every = every[:count], every[count:]
        self.done, self.carried = int(head["done"]), arrays
        self._open_files()
        return True

    def _fingerprint(self) -> str:
        """The same for runs that write the same values to the same places."""
        import hashlib

        schema = self.schema
        layout = [
            [(v.name, v.dims, v.shape, v.dtype.str) for v in schema.variables],
            [(g.rows, list(g.names), g.numbers) for g in schema.groups],
            schema.pack,
            dict(schema.attributes),
        ]
        text = json.dumps(layout, default=plain_value, sort_keys=True)
        return hashlib.sha256(f"{self._identity}{text}".encode()).hexdigest()

    def finish(self, extend: Callable[[Path], None] | None = None) -> None:
        """Complete the output and give it its name. ``extend`` adds to the complete file first."""
        with self._discarding():
            self._complete()
            if extend is not None:
                extend(self._hidden)
            if self._durable:
                self._sync(self._hidden)
            self._close()
            replace(self._hidden, self.path)
            self._remove_rest()
            if self._durable:
                self._sync(self.path.parent)
        os.close(self._lock)

    def discard(self) -> None:
        """Remove everything that was written."""
        self._close()
        remove(self._hidden)
        self._remove_rest()
        with contextlib.suppress(OSError):
            os.close(self._lock)

    @contextlib.contextmanager
    def _discarding(self) -> Iterator[None]:
        """Discard what was written where anything fails; raises OutputError for files that do."""
        try:
            yield
        except BaseException as error:
            self.discard()
            if isinstance(error, OSError):
                raise OutputError(os_fault(self.path, error)) from None
            raise

    def _remove_rest(self) -> None:
        remove(self._journal)
        remove(self._waiting)

    def _complete(self) -> None:  # noqa: B027
        """What remains to be done once all blocks are written."""

    def _close(self) -> None:
        while self._open:
            os.close(self._open.pop())

    def _open_at(self, path: Path) -> int:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        self._open.append(descriptor)
        return descriptor

    def _sync(self, path: Path) -> None:
        for part in [*sorted(path.glob("*")), path] if path.is_dir() else [path]:
            descriptor = os.open(part, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)


def open_output(
    path: Path,
    schema: Schema,
    overwrite: bool,
    durable: bool,
    identity: str = "",
    resume: bool = False,
    compress: int | None = None,
) -> Output:
    """The output that OUT's name asks for: .h5/.hdf5, .npz, or a folder of .npy files.

    identity: all that decides the values; with ``resume`` a stopped run with the same is
    continued, if there is one. compress: the level of deflate, 1 to 9, for HDF5.

    Raises OutputError where OUT cannot be written, or not in this form.
    """
    refuse_form(path, schema, compress)
    from trajcli.files.hdf5_output import Hdf5Output
    from trajcli.files.numpy_output import FolderOutput, NpzOutput

    if compress is not None:
        from trajcli.files.compressed import CompressedOutput

        return CompressedOutput(path, schema, overwrite, durable, identity, resume, level=compress)
    kinds: dict[str, type[Output]] = {"hdf5": Hdf5Output, "npz": NpzOutput, "npy": FolderOutput}
    return kinds[output_family(path)](path, schema, overwrite, durable, identity, resume)


def refuse_form(path: Path, schema: Schema, compress: int | None = None) -> None:
    """Raise OutputError where trajectories of unequal length or compression need another OUT."""
    family, faults = output_family(path), []
    if compress is not None and (family != "hdf5" or not 1 <= compress <= 9):
        expected = "OUT.h5 or OUT.hdf5, and a level from 1 to 9"
        found = f"{path.name}, level {compress}"
        faults.append(Fault("cannot be compressed", "--compress", expected, found))
    if schema.kind == "groups" and family != "hdf5":
        what = "trajectories of unequal length are written as groups of an HDF5 file"
        hint = "--pack makes one array of them, padded with NaN"
        faults.append(Fault(what, str(path), "OUT.h5", path.suffix, hint))
    if schema.kind == "padded" and compress is not None:
        what = "a padded array is not compressed while it is written"
        hint = "leave --pack out, or compress it afterwards: h5repack -f SHUF -f GZIP=4"
        faults.append(Fault(what, "--compress", found="--pack", hint=hint))
    if faults:
        raise OutputError(*faults)


def _padded(values: Any, shape: tuple[int, ...]) -> Any:
    """Trajectories [n, rows, ...] with NaN behind their rows up to those of the shape."""
    if values.shape[1:] == shape:
        return values
    whole = np.full((len(values), *shape), np.nan, values.dtype)
    whole[:, : values.shape[1]] = values
    return whole


def plain_value(value: Any) -> Any:
    """A NumPy value as JSON can hold it; anything else as text."""
    return value.tolist() if isinstance(value, (np.ndarray, np.generic)) else str(value)


@contextlib.contextmanager
def discarding(output: Output) -> Iterator[Output]:
    """Discard the output unless the block ends without an error, or stopped and kept it."""
    try:
        yield output
    except Stopped:
        raise
    except BaseException:
        output.discard()
        raise
