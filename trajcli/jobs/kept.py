"""Rows that are used where some are left out, in a bit each: there may be very many."""

from __future__ import annotations

from typing import Any

import numpy as np

from trajcli.files.arrays import StoredArray

_AT_ONCE = 1 << 18


class Kept:
    """The numbers of the rows whose time stamp differs from the one before; sliced like an array.

    ``stamps`` [T]: an array, or stored.
    """

    def __init__(self, stamps: Any) -> None:
        self._rows = int(stamps.shape[0])
        self._bits: list[Any] = []
        counts = [0]
        for begin in range(0, self._rows, _AT_ONCE):
            some = _read(stamps, max(begin - 1, 0), min(begin + _AT_ONCE, self._rows))
            differs = some[1:] != some[:-1]
            differs = differs if begin else np.concatenate([[True], differs])
            self._bits.append(np.packbits(differs))
            counts.append(counts[-1] + int(np.count_nonzero(differs)))
        self._counts = np.array(counts)

    def __len__(self) -> int:
        return int(self._counts[-1])

    @property
    def dropped(self) -> int:
        """How many rows are left out."""
        return self._rows - len(self)

    def __getitem__(self, part: slice) -> Any:
        begin, end, _ = part.indices(len(self))
        if begin >= end:
            return np.zeros(0, dtype=np.int64)
        first = int(np.searchsorted(self._counts, begin, "right")) - 1
        last = int(np.searchsorted(self._counts, end, "left"))
        rows = [
            k * _AT_ONCE + np.flatnonzero(np.unpackbits(self._bits[k])) for k in range(first, last)
        ]
        shift = int(self._counts[first])
        return np.concatenate(rows)[begin - shift : end - shift]

    def of(self, stamps: Any) -> Any:
        """The stamps of the rows that are used, stored if the others are."""
        if not isinstance(stamps, StoredArray):
            return stamps[self[:]]

        def read_rows(begin: int, end: int) -> Any:
            rows = self[begin:end]
            first = int(rows[0]) if len(rows) else 0
            return stamps.read_rows(first, int(rows[-1]) + 1 if len(rows) else 0)[rows - first]

        return StoredArray(stamps.where, (len(self),), stamps.dtype, read_rows)


def _read(stamps: Any, begin: int, end: int) -> Any:
    if isinstance(stamps, StoredArray):
        return stamps.read_rows(begin, end)
    return stamps[begin:end]
