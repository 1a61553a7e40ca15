"""Sparse matrices in compressed rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

Array = Any
"""numpy.ndarray, float64."""

Entries = tuple[Array, Array, Array]
"""Rows, columns and values."""

_CANCELLED = 2.0**-50
"""A sum this small, relative to its terms, is a rounding error of an exact zero."""


@dataclass(frozen=True, eq=False)
class Csr:
    """A sparse matrix in compressed rows, the format of SciPy.

    ``scipy.sparse.csr_array((m.data, m.indices, m.indptr), shape=m.shape)`` accepts it: row r
    has data[indptr[r]:indptr[r+1]] in the columns indices[indptr[r]:indptr[r+1]].
    """

    data: Array
    indices: Array
    indptr: Array
    shape: tuple[int, int]

    def toarray(self) -> Array:
        """The same matrix, dense."""
        dense = np.zeros(self.shape)
        dense[np.repeat(np.arange(self.shape[0]), np.diff(self.indptr)), self.indices] = self.data
        return dense


def summed(entries: Sequence[Entries], shape: tuple[int, int]) -> Csr:
    """Entries as a matrix; entries of one place are summed, and dropped if they cancel."""
    none = [np.zeros(0, dtype=np.int64)]
    rows = np.concatenate([*none, *(part[0] for part in entries)])
    columns = np.concatenate([*none, *(part[1] for part in entries)])
    values = np.concatenate([np.zeros(0), *(part[2] for part in entries)])
    keys, place = np.unique(rows * shape[1] + columns, return_inverse=True)
    total = np.bincount(place, values, len(keys))
    terms = np.bincount(place, abs(values), len(keys))
    nonzero = (abs(total) > _CANCELLED * terms) | ~np.isfinite(total)
    total, keys = total[nonzero], keys[nonzero]
    per_row = np.bincount(keys // shape[1], minlength=shape[0])
    indptr = np.concatenate([[0], np.cumsum(per_row)])
    return Csr(total, keys % shape[1], indptr, shape)


def compressed(dense: Array) -> Csr:
    """A dense matrix without its zeros."""
    indptr = np.concatenate([[0], np.cumsum(np.count_nonzero(dense, axis=1))])
    rows, columns = np.nonzero(dense)
    return Csr(dense[rows, columns], columns, indptr, dense.shape)
