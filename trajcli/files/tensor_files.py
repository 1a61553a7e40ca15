"""Reading tensors: .safetensors, and what torch.save wrote as far as it needs no pickled code."""

from __future__ import annotations

import json
import math
import pickle
import struct
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from trajcli.errors import Fault, InputError
from trajcli.files.arrays import ArrayFile, Dataset
from trajcli.files.file_bytes import FileBytes, OpenFiles, open_regular
from trajcli.files.source import natural_order

_LONGEST_HEADER = 100_000_000
"""Bytes; longer ones safetensors itself refuses."""
_TYPES = {
    "F64": "<f8", "F32": "<f4", "F16": "<f2", "I64": "<i8", "I32": "<i4", "I16": "<i2",
    "I8": "i1", "U64": "<u8", "U32": "<u4", "U16": "<u2", "U8": "u1", "BOOL": "?", "BF16": "<u2",
}  # fmt: skip


class SafetensorsFile(ArrayFile):
    """A .safetensors file: the length of a header, the header in JSON, then all numbers.

    https://huggingface.co/docs/safetensors/index#format
    """

    failures = (OSError, ValueError, KeyError, TypeError, RecursionError)
    expected = "an intact .safetensors file"

    def __init__(self, path: Path, pool: OpenFiles | None = None) -> None:
        super().__init__(path, "safetensors", pool)
        try:
            self._header, self._begin = self.safely("", self._read_header)
        except BaseException:
            self.close()
            raise

    def begin(self) -> FileBytes:
        return FileBytes(self.path)

    def _read_header(self) -> tuple[dict[str, Any], int]:
        with open(open_regular(self.path), "rb") as file:
            (length,) = struct.unpack("<Q", file.read(8))
            if length > min(_LONGEST_HEADER, self.opened().size):
                raise ValueError(f"a header of {length} bytes")
            header = json.loads(file.read(length))
        if not isinstance(header, dict):
            raise ValueError("a header that is no table")
        header.pop("__metadata__", None)
        return header, 8 + length

    @cached_property
    def _keys(self) -> dict[str, str]:
        """What tensors are called in the file by their names: policy.head is policy/head."""
        paths = {key: key.replace(".", "/").strip("/") for key in self._header}
        count = Counter(paths.values())
        return {path if count[path] == 1 else key: key for key, path in paths.items()}

    def names(self) -> list[str]:
        return natural_order(self._keys)

    def get(self, name: str) -> Dataset | None:
        path = name.strip("/")
        key = self._keys.get(path, name if name in self._header else None)
        return None if key is None else self.safely(path, lambda: self._described(path, key))

    def _described(self, name: str, key: str) -> Dataset:
        about, where = self._header[key], f"{self.path}:{name}"
        if about["dtype"] not in _TYPES:
            raise InputError(Fault("not real numbers", where, ", ".join(_TYPES), about["dtype"]))
        dtype, shape = np.dtype(_TYPES[about["dtype"]]), tuple(map(int, about["shape"]))
        first, last = map(int, about["data_offsets"])
        size = math.prod(shape) * dtype.itemsize
        whole = self.opened().size - self._begin
        if min(shape, default=0) < 0 or not 0 <= first <= last <= whole or last - first != size:
            raise ValueError(f"a tensor of {list(shape)} in bytes {first} to {last} of {whole}")

        short = about["dtype"] == "BF16"  # the upper halves of float32

        def read_rows(start: int, stop: int) -> Any:
            with self.lock:
                rows = self.opened().rows(dtype, shape, self._begin + first, start, stop)
            return (rows.astype("<u4") << 16).view("<f4") if short else rows

        stored = np.dtype("<f4") if short else dtype
        return Dataset(where, shape, stored, read_rows, storage="contiguous")


class TorchFile(ArrayFile):
    """What torch.save wrote: tensors in dictionaries and lists, mapped. Other objects are never
    made (``weights_only``)."""

    failures = (Exception,)  # pickle, zipfile and torch raise what they like over a damaged file
    expected = "tensors, as torch.save writes them"

    def __init__(self, path: Path, pool: OpenFiles | None = None) -> None:
        super().__init__(path, "pt", pool)
        self._names = self.opened().names

    def begin(self) -> _Tensors:
        return _Tensors(self.path)

    def names(self) -> list[str]:
        names: list[str] = self._names
        return names

    def get(self, name: str) -> Dataset | None:
        name = name.strip("/")
        if name not in self._names:
            return None
        like = self.safely(name, lambda: self.opened().array(name))

        def read_rows(start: int, stop: int) -> Any:
            values = self.opened().array(name)
            return values[start:stop] if values.ndim else values

        where = f"{self.path}:{name}" if name else str(self.path)
        return Dataset(where, like.shape, like.dtype, read_rows, storage="tensor")


class _Tensors:
    """The tensors of a file, by their names."""

    def __init__(self, path: Path) -> None:
        import torch

        with open(open_regular(path), "rb") as file:
            mapped = torch.serialization._is_zipfile(file)  # older files cannot be mapped
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of a pickle that torch did not write
                saved = torch.load(path, map_location="cpu", weights_only=True, mmap=mapped)
        except pickle.UnpicklingError:  # torch's text is long, and advises to trust the file
            line = "where it was made: torch.save({'actions': tensor}, 'actions.pt')"
            what, expected = "holds other objects than tensors", "dictionaries and lists of tensors"
            raise InputError(Fault(what, str(path), expected, hint=line)) from None
        self._tensors = dict(_flat(saved))
        self.names = natural_order(self._tensors)

    def array(self, name: str) -> Any:
        """A tensor as an array; bfloat16 as float32. Raises TypeError for sparse ones and such."""
        import torch

        tensor = self._tensors[name]
        return (tensor.float() if tensor.dtype == torch.bfloat16 else tensor).numpy(force=True)

    def close(self) -> None:
        """Forget them; what is in use stays mapped."""
        self._tensors = {}


def _flat(saved: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    if hasattr(saved, "numpy"):
        yield name, saved
        return
    pairs: Any = ()
    if isinstance(saved, Mapping):
        import torch

        pairs = [
            (key, torch.tensor(value, dtype=torch.float64) if type(value) is float else value)
            for key, value in saved.items()
        ]
    if isinstance(saved, (list, tuple)):
        pairs = enumerate(saved)
    for key, value in pairs:
        yield from _flat(value, f"{name}/{key}".strip("/"))
