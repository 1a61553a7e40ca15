"""What of an HDF5 dataset and its attributes may be read: nothing outside of the file, nothing that
is more than the file holds."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import h5py
import numpy as np

from trajcli.errors import Fault, InputError
from trajcli.files.arrays import Dataset

FAULTS = (OSError, RuntimeError, ValueError, KeyError, TypeError, MemoryError, OverflowError)
"""What h5py raises over a damaged file."""
_LONGEST_ATTRIBUTE = 1 << 20
_PLAIN_TYPES = (h5py.h5t.INTEGER, h5py.h5t.FLOAT, h5py.h5t.STRING)
_EXPANSION_LIMIT = 1100
"""No filter of HDF5's own packs more: deflate reaches about 1030 : 1."""
_BUILT_IN_FILTERS = {*range(1, 7), 32000}
"""deflate to scale-offset, and h5py's LZF; others are loaded as plug-ins."""
_COMPRESSORS = {1: "gzip", 4: "szip", 5: "nbit", 6: "scaleoffset", 32000: "lzf"}


def files_outside(dataset: Any, where: str, allow_external: bool) -> list[str]:
    """The other files that hold its values; raises InputError unless they may be read."""
    properties = dataset.id.get_create_plist()
    filters = (properties.get_filter(k) for k in range(properties.get_nfilters()))
    plug_ins = [name.decode("utf-8", "replace") for code, *_, name in filters
                if code not in _BUILT_IN_FILTERS]  # fmt: skip
    for present, found in (
        (dataset.is_virtual, "a virtual dataset"),
        (dataset.external, f"values in {dataset.external and dataset.external[0][0]}"),
        (plug_ins, f"a filter that is a plug-in: {', '.join(plug_ins)}"),
    ):
        if present and not allow_external:
            raise InputError(leads_outside(where, found))
    sources = dataset.virtual_sources() if dataset.is_virtual else ()
    names = [source.file_name for source in sources if source.file_name != "."]
    return names + [name for name, *_ in dataset.external or ()]


def leads_outside(where: str, target: str) -> Fault:
    """The fault of values that lie elsewhere."""
    hint = "--allow-external reads it, if you trust the file"
    return Fault("leads out of the file", where, "values in the file itself", target, hint)


def unpacked_bytes(dataset: Any, where: str) -> int:
    """What must be unpacked at once to read some of it; 0 where it is not packed.

    Raises InputError where far less is stored than is declared.
    """
    each = min(dataset.dtype.itemsize, dataset.id.get_type().get_size())  # before HDF5 converts
    size, held = dataset.size * each, dataset.id.get_storage_size()
    properties = dataset.id.get_create_plist()
    packed = dataset.chunks and properties.get_nfilters()
    codes = [properties.get_filter(k)[0] for k in range(packed or 0)]
    packers = [_COMPRESSORS[code] for code in codes if code in _COMPRESSORS]
    if len(packers) > 1:  # a few kB may unpack to any size
        what, hint = "packed more than once", "write it again with one compressor"
        raise InputError(Fault(what, where, "one compressor", ", ".join(packers), hint))
    # unfiltered chunks are as long as they say: of shorter ones HDF5 reads what lies behind
    expansion = _EXPANSION_LIMIT if packed else 1
    if size > held * expansion and not (dataset.is_virtual or dataset.external):
        raise InputError(
            Fault(
                "declares more than the file holds",
                where,
                f"the values of {size} bytes declared ({list(dataset.shape)} {dataset.dtype})",
                f"{held} bytes stored",
                "it was never written, or cut off: get or write it again",
            )
        )
    if not packed:
        return 0
    chunk: int = math.prod(dataset.chunks) * dataset.dtype.itemsize
    return max(chunk, size) if dataset.ndim == 1 else chunk  # lines are read as a whole


class Attributes(Mapping[str, Any]):
    """The attributes of an object that are numbers or text, read when they are asked for.

    References, very long ones and what cannot be read are left out.
    """

    def __init__(self, names: list[str], read: Callable[[str], Any]) -> None:
        self._names, self._read = names, read
        self._values: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name in self._names and name not in self._values:
            with contextlib.suppress(InputError):
                self._values[name] = self._read(name)
        value = self._values.get(name)
        if value is None:
            raise KeyError(name)
        return value

    def __iter__(self) -> Iterator[str]:
        return (name for name in self._names if name in self)

    def __len__(self) -> int:
        return sum(1 for _ in self)


def attribute(item: Any, name: bytes) -> Any:
    """An attribute as a number, an array of numbers or text; None where it is no such thing.

    h5py's AttributeManager takes three times as long, and every array is asked for its units.
    """
    stored = h5py.h5a.open(item, name)
    if stored.get_type().get_class() not in _PLAIN_TYPES:
        return None  # of a damaged one HDF5 may read memory that is not there
    shape, dtype = stored.shape, stored.dtype
    if stored.get_storage_size() > _LONGEST_ATTRIBUTE or shape is None:
        return None
    if shape and dtype.kind not in "fiu":
        return None  # of many strings any number may be one long one
    value: Any = np.empty(shape, dtype)
    stored.read(value)
    value = value if shape else value[()]
    if isinstance(value, bytes):
        value = value.decode("utf-8", "replace")
    kinds = (str, int, float, np.integer, np.floating, np.ndarray)
    return value if isinstance(value, kinds) else None


def is_bare_dimension(item: Any) -> bool:
    """Whether a dataset is netCDF's mark of a dimension that has no values."""
    if not h5py.h5a.exists(item, b"NAME"):
        return False
    name = attribute(item, b"NAME")
    return isinstance(name, str) and name.startswith("This is a netCDF dimension but not")


def of_matlab(stored: Dataset, turned: Callable[[int, int], Any]) -> Dataset:
    """A dataset as MATLAB shows it, where MATLAB wrote it (``save -v7.3``).

    It stores arrays with their dimensions reversed; ``turned`` reads along the last one, and
    transposes. An array of characters [N, C] is N texts.
    """
    kind = stored.attributes.get("MATLAB_class")
    if not kind or not stored.shape:
        return stored
    shape = stored.shape[::-1]
    if kind != "char" or stored.dtype.kind != "u" or stored.dtype.itemsize > 2:
        return replace(stored, shape=shape, reader=turned)
    width = max(math.prod(shape[1:]), 1)

    def texts(start: int, stop: int) -> Any:
        rows = turned(start, stop)
        lines = ["".join(map(chr, codes.ravel())).rstrip() for codes in rows]
        return np.array(lines, f"U{width}")

    return replace(stored, shape=shape[:1], dtype=np.dtype(f"U{width}"), reader=texts)
