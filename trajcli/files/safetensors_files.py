"""Reading .safetensors."""

from __future__ import annotations

import json
import math
import struct
from collections import Counter
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
