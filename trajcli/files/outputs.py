"""Writing outputs: beside OUT under a hidden name, renamed last.

Whatever ends the process, OUT is absent, the old one, or complete. The hidden name is the same
for every run of one OUT and locked while a run writes, so a second one is refused, and what a
killed run left behind is taken over by the next.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import shutil
import zipfile
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from trajcli.errors import Fault, OutputError
from trajcli.files.mapping import map_writable
from trajcli.files.schema import Schema, Variable

PROVENANCE = "trajcli.json"
"""In a folder of .npy files, the attributes; also the mark of a folder that may be replaced."""

_COPY_BYTES = 1 << 24


class Output(ABC):
    """An output being written. ``finish`` makes it appear; ``discard`` leaves no trace.

    ``write(name, row, block)`` puts rows row, row+1, … of a streamed variable in place.
    """

    copies = 1
    """How often the values lie on the disk while they are written."""

    def __init__(self, path: Path, schema: Schema, overwrite: bool, durable: bool) -> None:
        self.path = path
        self.schema = schema
        self._durable = durable
        refuse_output(path, overwrite)
        self._hidden = path.parent / f".{path.name}.trajcli-part"
        self._lock = _locked(self._hidden, path)
        self._places: dict[str, tuple[int, int]] = {}  # name: file descriptor, offset
        self._open: list[int] = []
        self._views: dict[str, Any] = {}
        try:
            _require_space(path, schema.nbytes * self.copies)
            self._prepare()
            for variable in schema.variables:
                if variable.values is not None and variable.name in self._places:
                    self.write(variable.name, 0, variable.values)
        except OSError as error:
            self.discard()
            raise OutputError(_os_fault(path, error)) from None
        except BaseException:
            self.discard()
            raise

    @abstractmethod
    def _prepare(self) -> None:
        """Make the file or files with all that is not streamed, and reserve their space."""

    def write(self, name: str, row: int, block: Any) -> None:
        """Rows of a variable, from ``row`` on."""
        variable = next(v for v in self.schema.variables if v.name == name)
        descriptor, offset = self._places[name]
        values: Any = np.ascontiguousarray(block, dtype=variable.dtype)
        per_row = int(np.prod(variable.shape[1:], dtype=object)) * variable.dtype.itemsize
        view = memoryview(values).cast("B") if values.size else memoryview(b"")
        at = offset + row * per_row
        try:
            while view:
                written = os.pwrite(descriptor, view[: 1 << 30], at)
                view, at = view[written:], at + written
        except OSError as error:
            raise OutputError(_os_fault(self.path, error)) from None

    def view(self, name: str) -> Any:
        """A variable as memory to compute into; None where it has to be written."""
        if name not in self._views:
            variable = next(v for v in self.schema.variables if v.name == name)
            descriptor, offset = self._places[name]
            self._views[name] = map_writable(
                descriptor, self._hidden, variable.dtype, offset, variable.shape
            )
        return self._views[name]

    def finish(self) -> None:
        """Complete the output and give it its name."""
        try:
            self._complete()
            if self._durable:
                self._sync(self._hidden)
            self._close()
            _replace(self._hidden, self.path)
            if self._durable:
                self._sync(self.path.parent)
        except OSError as error:
            self.discard()
            raise OutputError(_os_fault(self.path, error)) from None
        os.close(self._lock)

    def discard(self) -> None:
        """Remove everything that was written."""
        self._close()
        _remove(self._hidden)
        with contextlib.suppress(OSError):
            os.close(self._lock)

    def _complete(self) -> None:  # noqa: B027
        """What remains to be done once all blocks are written."""

    def _close(self) -> None:
        self._views.clear()
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
            for variable in self.schema.variables:
                self._create(h5py, file, variable)
            self._attach_scales(h5py, file)
            file.flush()
            offsets = {v.name: file[v.name].id.get_offset() for v in self.schema.variables}
        descriptor = self._open_at(self._hidden)
        for variable in self.schema.variables:
            offset = offsets[variable.name]
            if offset is not None and variable.nbytes:
                _reserve(descriptor, offset, variable.nbytes)
            self._places[variable.name] = (descriptor, offset or 0)

    def _create(self, h5py: Any, file: Any, variable: Variable) -> None:
        """A dataset whose place in the file is fixed now and filled later."""
        properties = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        properties.set_layout(h5py.h5d.CONTIGUOUS)
        properties.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
        properties.set_fill_time(h5py.h5d.FILL_TIME_NEVER)
        properties.set_obj_track_times(False)
        shaped, scalar = h5py.h5s.create_simple, h5py.h5s.create
        space = shaped(variable.shape) if variable.shape else scalar(h5py.h5s.SCALAR)
        file.require_group(os.path.dirname(f"/{variable.name}"))
        kind = h5py.h5t.py_create(variable.dtype, logical=True)
        h5py.h5d.create(file.id, variable.name.encode(), kind, space, properties)
        for name, value in variable.attributes.items():
            file[variable.name].attrs[name] = value

    def _attach_scales(self, h5py: Any, file: Any) -> None:
        scales = {}
        for dim, size in self.schema.dims.items():
            if dim == "time":
                file["time"].make_scale("time")
            elif dim == "dof" and self.schema.joint_names:
                text = h5py.string_dtype()
                file.create_dataset("dof", data=list(self.schema.joint_names), dtype=text)
                file["dof"].make_scale("dof")
            else:
                # netCDF's mark of a dimension without coordinates; no values are stored
                file.create_dataset(dim, shape=(size,), dtype=">f4")
                file[dim].make_scale(
                    f"This is a netCDF dimension but not a netCDF variable.{size:10d}"
                )
            scales[dim] = file[dim]
        for variable in self.schema.variables:
            for axis, dim in enumerate(variable.dims):
                if variable.name != dim:
                    file[variable.name].dims[axis].attach_scale(scales[dim])


class FolderOutput(Output):
    """A folder with one .npy per variable, and the attributes in trajcli.json."""

    def _prepare(self) -> None:
        _remove(self._hidden / "*")
        for variable in self.schema.variables:
            (self._hidden / variable.name).parent.mkdir(exist_ok=True)
            descriptor = self._open_at(self._hidden / f"{variable.name}.npy")
            header = _npy_header(variable)
            os.pwrite(descriptor, header, 0)
            _reserve(descriptor, len(header), variable.nbytes)
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


class NpzOutput(FolderOutput):
    """The same files in one uncompressed .npz archive."""

    copies = 2

    def _complete(self) -> None:
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
        _remove(self._hidden)
        self._hidden = inner


def open_output(path: Path, schema: Schema, overwrite: bool, durable: bool) -> Output:
    """The output that OUT's name asks for: .h5/.hdf5, .npz, or a folder of .npy files."""
    kinds: dict[str, type[Output]] = {"hdf5": Hdf5Output, "npz": NpzOutput, "npy": FolderOutput}
    return kinds[output_family(path)](path, schema, overwrite, durable)


def output_family(path: Path) -> str:
    """ "hdf5", "npz" or "npy" (a folder), by the name of OUT."""
    families = {".h5": "hdf5", ".hdf5": "hdf5", ".npz": "npz", "": "npy"}
    family = families.get(path.suffix.lower())
    if family is None:
        hint = "one .npy holds one array; a name without ending makes a folder of .npy files"
        raise OutputError(
            Fault(
                "unknown kind of output",
                str(path),
                "OUT.h5, OUT.hdf5, OUT.npz, or OUT without ending (a folder of .npy files)",
                path.suffix,
                hint if path.suffix == ".npy" else "",
            )
        )
    return family


def refuse_output(path: Path, overwrite: bool) -> None:
    """Raise OutputError where OUT cannot or must not be written."""
    family = output_family(path)
    if not os.path.isdir(path.parent):
        what = "not a folder" if os.path.exists(path.parent) else "no such folder"
        hint = f"mkdir -p {path.parent}"
        raise OutputError(Fault(what, str(path.parent), "the folder of OUT", hint=hint))
    if not os.access(path.parent, os.W_OK | os.X_OK):
        raise OutputError(Fault("not writable", str(path.parent), "a folder that can be written"))
    if not os.path.lexists(path):
        return
    is_folder = path.is_dir() and not path.is_symlink()
    if is_folder != (family == "npy"):
        found = "a folder" if is_folder else "not a folder"
        raise OutputError(Fault("OUT is there and of another kind", str(path), found=found))
    if not overwrite:
        hint = "--overwrite replaces it once the new one is complete"
        raise OutputError(Fault("OUT exists", str(path), "a name that is free", hint=hint))
    if is_folder:
        ours = (path / PROVENANCE).is_file()
        parts = [*path.iterdir(), *(path / "grad").glob("*")]
        others = [
            part.name
            for part in parts
            if not (ours and (part.suffix == ".npy" or part.name in (PROVENANCE, "grad")))
        ]
        if others:
            hint = "choose another name; only folders that trajcli wrote are replaced"
            found = ", ".join(sorted(others)[:5])
            raise OutputError(
                Fault("a folder with other things in it", str(path), found=found, hint=hint)
            )


def _locked(hidden: Path, path: Path) -> int:
    """Make the hidden file or folder and hold its lock; refuse where another run does."""
    folder = output_family(path) != "hdf5"
    for _ in range(100):
        try:
            if hidden.is_symlink():
                hidden.unlink()  # nobody's but a stranger's: never write through it
            if folder:
                hidden.mkdir(exist_ok=True)
                descriptor = os.open(hidden, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            else:
                descriptor = os.open(hidden, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
        except OSError as error:
            raise OutputError(_os_fault(path, error)) from None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            found = "it holds " + hidden.name
            raise OutputError(
                Fault("another run is writing this OUT", str(path), "one writer", found)
            ) from None
        except OSError:
            return descriptor  # a file system without locks
        with contextlib.suppress(OSError):
            if os.path.samestat(os.fstat(descriptor), os.stat(hidden)):
                return descriptor
        os.close(descriptor)  # the other run finished and renamed it in between
    raise OutputError(Fault("cannot lock the output", str(path)))


def _replace(hidden: Path, path: Path) -> None:
    """Give the finished output its name; a file in one step, a folder in two."""
    if not hidden.is_dir() or not path.is_dir():
        os.replace(hidden, path)
        return
    old = path.parent / f".{path.name}.trajcli-old"
    _remove(old)
    os.rename(path, old)
    os.rename(hidden, path)
    _remove(old)


def _remove(path: Path) -> None:
    """Remove a file, a folder, or (``folder/*``) all that is in a folder."""
    parts: Iterable[Path] = path.parent.iterdir() if path.name == "*" else [path]
    for part in list(parts):
        if part.is_dir() and not part.is_symlink():
            shutil.rmtree(part, ignore_errors=True)
        else:
            part.unlink(missing_ok=True)


def _reserve(descriptor: int, offset: int, size: int) -> None:
    """Take the space now, so that a full disk is an error before anything is computed."""
    if size == 0:
        return
    try:
        os.posix_fallocate(descriptor, offset, size)
    except OSError as error:
        if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS):
            raise
        os.ftruncate(descriptor, max(offset + size, os.fstat(descriptor).st_size))


def _require_space(path: Path, needed: int) -> None:
    free = shutil.disk_usage(path.parent).free
    if needed > free:
        raise OutputError(
            Fault(
                "not enough space on the disk",
                str(path.parent),
                f"{needed} bytes for the output",
                f"{free} bytes free",
                "--write position writes less; --dtype float32 halves float64",
            )
        )


def _os_fault(path: Path, error: OSError) -> Fault:
    reason = error.strerror or str(error)
    hint = "nothing was written; free some space" if error.errno == errno.ENOSPC else ""
    return Fault("cannot be written", str(path), found=reason, hint=hint)


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
    """Discard the output unless the block ends without an error."""
    try:
        yield output
    except BaseException:
        output.discard()
        raise
