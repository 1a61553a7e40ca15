"""Writing outputs: beside OUT under a hidden name, renamed last.

Whatever ends the process, OUT is absent, the old one, or complete. The hidden name is the same
for every run of one OUT and locked while a run writes, so a second one is refused, and what a
killed run left behind is taken over by the next.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from trajcli.errors import Fault, OutputError, Stopped
from trajcli.files import journal
from trajcli.files.placing import (
    PROVENANCE,
    locked,
    os_fault,
    output_family,
    refuse_output,
    remove,
    replace,
    require_space,
    reserve,
)
from trajcli.files.schema import Schema, Variable

_COPY_BYTES = 1 << 24
_ROWS_AT_ONCE = 1 << 20


class Output(ABC):
    """An output being written. ``finish`` makes it appear; ``discard`` leaves no trace.

    ``write(name, row, block)`` puts rows row, row+1, … of a streamed variable in place.
    """

    copies = 1
    """How often the values lie on the disk while they are written."""
    keeps = False
    """Whether it goes on reading what it was given to write."""

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
        """Trajectories that a stopped run with the same ``identity`` has left, where resumed."""
        self.carried: dict[str, Any] = {}
        """The arrays it left to go on from."""
        self.begun_anew = False
        """Whether a stopped run has left something that this one cannot go on from."""
        self._durable = durable
        refuse_output(path, overwrite)
        self._hidden = path.parent / f".{path.name}.trajcli-part"
        self._journal = journal.place_of(path)
        self._left = path.parent / f".{path.name}.trajcli-left"
        self._identity = identity
        self._lock = locked(self._hidden, path)
        self._places: dict[str, tuple[int, int]] = {}  # name: file descriptor, offset
        self._open: list[int] = []
        try:
            left = self._left_behind() if resume else None
            if left is not None:
                head, self.carried = left
                self.done = int(head["done"])
                self._reopen(head["offsets"])
                return
            self.begun_anew = resume and self._journal.exists()
            remove(self._journal)
            remove(self._left)
            require_space(path, schema.nbytes * self.copies)
            self._prepare()
            self._write_all_given()
        except OSError as error:
            self.discard()
            raise OutputError(os_fault(path, error)) from None
        except BaseException:
            self.discard()
            raise

    @abstractmethod
    def _prepare(self) -> None:
        """Make the file or files with all that is not streamed, and reserve their space."""

    def _write_all_given(self) -> None:
        for variable in self.schema.variables:
            if variable.values is not None and variable.name in self._places:
                self._write_given(variable)

    def _write_given(self, variable: Variable) -> None:
        if not callable(variable.values):
            self.write(variable.name, 0, variable.values)
            return
        for begin in range(0, variable.shape[0], _ROWS_AT_ONCE):
            end = min(begin + _ROWS_AT_ONCE, variable.shape[0])
            self.write(variable.name, begin, variable.values(begin, end))

    @abstractmethod
    def _reopen(self, offsets: Mapping[str, int]) -> None:
        """Go on with what a stopped run has left."""

    def _left_behind(self) -> tuple[Any, dict[str, Any]] | None:
        """What the journal of a stopped run says, and its arrays, if it was this very run."""
        head, arrays = journal.read(self._journal)
        return (head, arrays) if head.get("identity") == self._fingerprint() else None

    def _fingerprint(self) -> str:
        """The same for runs that write the same values to the same places."""
        import hashlib

        return hashlib.sha256(f"{self._identity}{_layout(self.schema)}".encode()).hexdigest()

    def keep(self, done: int, carried: Mapping[str, Any]) -> None:
        """Leave what is written, to be resumed: so many trajectories.

        carried: arrays that the next run is to have back.
        """
        self._sync(self._hidden)
        offsets = {name: offset for name, (_, offset) in self._places.items()}
        head = {"identity": self._fingerprint(), "done": done, "offsets": offsets}
        journal.write(self._journal, head, carried)
        self._close()
        os.close(self._lock)

    def write(self, name: str, row: int, block: Any) -> None:
        """Rows of a variable, from ``row`` on."""
        descriptor, at = self._at(name, row)
        self._put(descriptor, np.ascontiguousarray(block, self._variable(name).dtype), at)

    def place(self, name: str, row: int) -> tuple[int, int] | None:
        """The file descriptor and byte where rows of a variable lie from ``row`` on, for kernels
        that write into the file. None where the rows must go through ``write``."""
        return self._at(name, row)

    def _at(self, name: str, row: int) -> tuple[int, int]:
        variable, (descriptor, begin) = self._variable(name), self._places[name]
        return descriptor, begin + row * math.prod(variable.shape[1:]) * variable.dtype.itemsize

    def _put(self, descriptor: int, values: Any, at: int) -> None:
        """Bytes in their place in a file."""
        view = memoryview(values).cast("B") if len(values) else memoryview(b"")
        try:
            while view:
                written = os.pwrite(descriptor, view[: 1 << 30], at)
                view, at = view[written:], at + written
        except OSError as error:
            raise OutputError(os_fault(self.path, error)) from None

    def settle(self) -> None:  # noqa: B027
        """What is to be done after each block."""

    @cached_property
    def _by_name(self) -> dict[str, Variable]:
        return {variable.name: variable for variable in self.schema.variables}

    def _variable(self, name: str) -> Variable:
        return self._by_name[name]

    def finish(self) -> None:
        """Complete the output and give it its name."""
        try:
            self._complete()
            if self._durable:
                self._sync(self._hidden)
            self._close()
            replace(self._hidden, self.path)
            remove(self._journal)
            if self._durable:
                self._sync(self.path.parent)
        except OSError as error:
            self.discard()
            raise OutputError(os_fault(self.path, error)) from None
        os.close(self._lock)

    def discard(self) -> None:
        """Remove everything that was written."""
        self._close()
        remove(self._hidden)
        remove(self._journal)
        with contextlib.suppress(OSError):
            os.close(self._lock)

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


class Hdf5Output(Output):
    """Contiguous datasets: h5py lays the file out, the values are written in place."""

    def _prepare(self) -> None:
        import h5py

        with h5py.File(self._hidden, "w", locking=False) as file:
            for name, value in self.schema.attributes.items():
                file.attrs[name] = value
            made = {v.name: self._create(h5py, file, v) for v in self.schema.variables}
            self._attach_scales(h5py, file, made)
            file.flush()
            offsets = {name: dataset.id.get_offset() for name, dataset in made.items()}
        self._reserve(self._open_at(self._hidden), offsets)

    def _reserve(self, descriptor: int, offsets: Mapping[str, int | None]) -> None:
        for variable in self.schema.variables:
            offset = offsets[variable.name]
            if offset is not None and variable.nbytes:
                reserve(descriptor, offset, variable.nbytes)
            self._places[variable.name] = (descriptor, offset or 0)

    def _reopen(self, offsets: Mapping[str, int]) -> None:
        descriptor = self._open_at(self._hidden)
        self._places = {name: (descriptor, offset) for name, offset in offsets.items()}

    def _create(self, h5py: Any, file: Any, variable: Variable) -> Any:
        """A dataset whose place in the file is fixed now and filled later."""
        properties = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        self._layout_of(h5py, variable, properties)
        properties.set_fill_time(h5py.h5d.FILL_TIME_NEVER)
        properties.set_obj_track_times(False)
        shaped, scalar = h5py.h5s.create_simple, h5py.h5s.create
        space = shaped(variable.shape) if variable.shape else scalar(h5py.h5s.SCALAR)
        file.require_group(os.path.dirname(f"/{variable.name}"))
        kind = h5py.h5t.py_create(variable.dtype, logical=True)
        place = h5py.h5d.create(file.id, variable.name.encode(), kind, space, properties)
        made = h5py.Dataset(place)
        for name, value in variable.attributes.items():
            made.attrs[name] = value
        return made

    def _layout_of(self, h5py: Any, variable: Variable, properties: Any) -> None:
        properties.set_layout(h5py.h5d.CONTIGUOUS)
        properties.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)

    def _attach_scales(self, h5py: Any, file: Any, made: Mapping[str, Any]) -> None:
        scales = {}
        for dim, size in self.schema.dims.items():
            if dim == "time":
                scale, label = made["time"], "time"
            elif dim == "dof" and self.schema.joint_names:
                text = h5py.string_dtype()
                scale = file.create_dataset("dof", data=list(self.schema.joint_names), dtype=text)
                label = "dof"
            else:
                # netCDF's mark of a dimension without coordinates; no values are stored
                scale = file.create_dataset(dim, shape=(size,), dtype=">f4")
                label = f"This is a netCDF dimension but not a netCDF variable.{size:10d}"
            scale.make_scale(label)
            scales[dim] = scale
        for variable in self.schema.variables:
            for axis, dim in enumerate(variable.dims):
                if variable.name != dim:
                    h5py.h5ds.attach_scale(made[variable.name].id, scales[dim].id, axis)


class FolderOutput(Output):
    """A folder with one .npy per variable, and the attributes in trajcli.json."""

    def _prepare(self) -> None:
        remove(self._hidden / "*")
        for variable in self.schema.variables:
            (self._hidden / variable.name).parent.mkdir(exist_ok=True)
            descriptor = self._open_at(self._hidden / f"{variable.name}.npy")
            header = _npy_header(variable)
            os.pwrite(descriptor, header, 0)
            reserve(descriptor, len(header), variable.nbytes)
            self._places[variable.name] = (descriptor, len(header))
        document: dict[str, Any] = {"attributes": dict(self.schema.attributes)}
        document["dims"] = {v.name: v.dims for v in self.schema.variables}
        document["units"] = {
            v.name: v.attributes["units"] for v in self.schema.variables if "units" in v.attributes
        }
        if self.schema.joint_names:
            document["dof"] = list(self.schema.joint_names)
        text = json.dumps(document, indent=2, default=_plain) + "\n"
        (self._hidden / PROVENANCE).write_text(text, encoding="utf-8")

    def _reopen(self, offsets: Mapping[str, int]) -> None:
        for name, offset in offsets.items():
            self._places[name] = (self._open_at(self._hidden / f"{name}.npy"), offset)


class NpzOutput(FolderOutput):
    """The same files in one uncompressed .npz archive."""

    copies = 2

    def _complete(self) -> None:
        import shutil
        import zipfile

        self._close()
        archive = self._hidden / "archive.npz"
        with zipfile.ZipFile(archive, "w", zipfile.ZIP_STORED, allowZip64=True) as target:
            for name in [*(f"{v.name}.npy" for v in self.schema.variables), PROVENANCE]:
                info = zipfile.ZipInfo(name)  # dated 1980: same input, same bytes
                part = self._hidden / name
                info.file_size = part.stat().st_size
                with open(part, "rb") as source, target.open(info, "w", force_zip64=True) as sink:
                    shutil.copyfileobj(source, sink, _COPY_BYTES)
                part.unlink()
        inner = self.path.parent / f".{self.path.name}.trajcli-archive"
        os.replace(archive, inner)
        remove(self._hidden)
        self._hidden = inner


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

    identity: all that decides the values; with ``resume`` a stopped run with the same is gone
    on with, if there is one. compress: the level of deflate, for HDF5.
    """
    if compress is not None:
        from trajcli.files.compressed import CompressedOutput

        if output_family(path) != "hdf5" or not 1 <= compress <= 9:
            expected = "OUT.h5 or OUT.hdf5, and a level from 1 to 9"
            found = f"{path.name}, level {compress}"
            raise OutputError(Fault("cannot be compressed", "--compress", expected, found))
        threads = len(os.sched_getaffinity(0))
        return CompressedOutput(
            path, schema, overwrite, durable, identity, resume, level=compress, threads=threads
        )
    if schema.groups:
        from trajcli.files.mirrored import MirroredOutput

        return MirroredOutput(path, schema, overwrite, durable, identity, resume)
    kinds: dict[str, type[Output]] = {"hdf5": Hdf5Output, "npz": NpzOutput, "npy": FolderOutput}
    return kinds[output_family(path)](path, schema, overwrite, durable, identity, resume)


def _layout(schema: Schema) -> str:
    """What is written, in a line: the same for the same run."""
    parts = [(v.name, v.dims, v.shape, v.dtype.str) for v in schema.variables]
    more = [schema.groups, schema.scatter]
    return json.dumps([parts, dict(schema.attributes), *more], default=_plain, sort_keys=True)


def _npy_header(variable: Variable) -> bytes:
    import io

    header = io.BytesIO()
    np.lib.format.write_array_header_2_0(
        header,
        {"descr": variable.dtype.str, "fortran_order": False, "shape": variable.shape},
    )
    return header.getvalue()


def _plain(value: Any) -> Any:
    return value.tolist() if isinstance(value, (np.ndarray, np.generic)) else str(value)


@contextlib.contextmanager
def discarding(output: Output) -> Iterator[Output]:
    """Discard the output unless the block ends without an error, or stopped and settled it."""
    try:
        yield output
    except Stopped:
        raise
    except BaseException:
        output.discard()
        raise
