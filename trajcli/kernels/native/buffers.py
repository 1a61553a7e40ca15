"""Arrays as the compiled kernels read and write them: addresses, strides and types."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from trajcli.arrays import is_repeated, is_torch
from trajcli.kernels.native.structs import Pointer
from trajcli.kernels.pairs import Array, Pair


class Points(NamedTuple):
    """Points [B, points, D] and how far apart they lie; lo is None where it is zero."""

    hi: Any
    lo: Any
    points: int
    stride: int
    row: int


class Kept:
    """Arrays the kernels read and write, in the layout they want, alive while they run."""

    def __init__(self) -> None:
        self._alive: list[Any] = []
        self._copied_back: list[tuple[Any, Any]] = []

    def _keep(self, array: Any) -> Any:
        self._alive.append(array)
        return array

    def rows(self, array: Array) -> Any:
        """[B, H, D] of float32 or float64 with rows and dofs side by side."""
        if _kind(array) not in ("float32", "float64"):
            array = array.double() if is_torch(array) else array.astype(np.float64)
        return self._keep(array if _in_rows(array) else _contiguous(array))

    def doubles(self, array: Array) -> Any:
        """Contiguous float64."""
        wide = array.double() if is_torch(array) else np.asarray(array, dtype=np.float64)
        return self._keep(_contiguous(wide))

    def states(self, parts: Sequence[Array]) -> tuple[list[Any], int]:
        """[B, D] each; and from trajectory to trajectory: 0 where all have the same."""
        if parts and all(is_repeated(part) for part in parts):
            return [self.doubles(part[:1]) for part in parts], 0
        return [self.doubles(part) for part in parts], parts[0].shape[1] if parts else 0

    def points(self, part: Pair | None) -> Points:
        """Points before or after the actions."""
        if part is None:
            return Points(None, None, 0, 0, 0)
        hi, lo = part.hi, part.lo
        _, count, dofs = hi.shape
        if is_torch(hi) or is_torch(lo):
            return Points(self.doubles(hi), self.doubles(lo), count, count * dofs, dofs)
        low = bool(np.any(lo)) if not any(lo.strides) else True
        same = is_repeated(hi) and (not low or is_repeated(lo))
        held = count > 1 and hi.strides[1] == 0 and not low
        kept = (slice(1 if same else None), slice(1 if held else None))
        rows = 1 if held else count
        return Points(
            self.doubles(hi[kept]),
            self.doubles(lo[kept]) if low else None,
            count,
            0 if same else rows * dofs,
            0 if held else dofs,
        )

    def integers(self, values: Any) -> Any:
        """Contiguous int64."""
        return self._keep(np.ascontiguousarray(values, dtype=np.int64))

    def inputs(self, arrays: Sequence[Array | None]) -> tuple[list[Any], int, int]:
        """Arrays of one type and stride; and these."""
        given = [None if array is None else self.rows(array) for array in arrays]
        present = [array for array in given if array is not None]
        if not present:
            return given, 0, 1
        strides = {stride_of(array) for array in present}
        if len({_kind(array) for array in present}) > 1 or len(strides) > 1:
            given = [None if array is None else self.doubles(array) for array in given]
            present = [array for array in given if array is not None]
        return given, stride_of(present[0]), is_double(present[0])

    def outputs(self, arrays: Sequence[Array | None]) -> tuple[list[Any], int, int]:
        """Buffers of one type and stride; those laid out otherwise are copied back to later."""
        present = [array for array in arrays if array is not None]
        if not present:
            return list(arrays), 0, 1
        if all(_in_rows(a) for a in present) and len({stride_of(a) for a in present}) == 1:
            return list(arrays), stride_of(present[0]), is_double(present[0])
        places: list[Any] = []
        for array in arrays:
            places.append(None if array is None else _like(array))
            if array is not None:
                self._copied_back.append((array, places[-1]))
        first = next(place for place in places if place is not None)
        return places, stride_of(first), is_double(first)

    def give_back(self) -> None:
        """Copy what was computed elsewhere to where it belongs."""
        for array, place in self._copied_back:
            array[...] = place


def plain(*arrays: Array | None) -> bool:
    """Whether these lie in this machine's memory, not on a device or under a transform."""
    return all(_is_plain(array) for array in arrays if array is not None)


def _is_plain(array: Array) -> bool:
    if not is_torch(array):
        return True
    if array.device.type != "cpu" or array.layout != sys.modules["torch"].strided or array.is_neg():
        return False
    try:
        array.data_ptr()
    except RuntimeError:  # a tensor that stands for many (vmap), or for none
        return False
    return True


def _kind(array: Array) -> str:
    return _name(array.dtype)


@cache
def _name(dtype: Any) -> str:
    return str(dtype).removeprefix("torch.")


def is_double(array: Array) -> int:
    return int(_kind(array) == "float64")


def size_of(array: Array) -> int:
    return int(array.numel() if is_torch(array) else array.size)


def _strides(array: Array) -> tuple[int, ...]:
    if is_torch(array):
        return tuple(array.stride())
    return tuple(stride // array.itemsize for stride in array.strides)


def stride_of(array: Array) -> int:
    """From trajectory to trajectory."""
    return _strides(array)[0] if array.shape[0] > 1 else int(array.shape[1] * array.shape[2])


def _in_rows(array: Array) -> bool:
    """Whether rows and dofs lie side by side, and are aligned: a line of the cache that a kernel
    writes past it holds whole numbers."""
    if not _is_aligned(array):
        return False
    _, rows, dofs = array.shape
    _, by_row, by_dof = _strides(array)
    if not is_torch(array) and not array.dtype.isnative:
        return False
    return (dofs == 1 or by_dof == 1) and (rows <= 1 or by_row == dofs)


def _is_aligned(array: Array) -> bool:
    """Whether numbers lie where the machine wants those of their type."""
    if is_torch(array):
        return bool(array.data_ptr() % array.element_size() == 0)
    return bool(array.flags.aligned)


def _contiguous(array: Array) -> Any:
    """Side by side and aligned: the array itself where it is so, else a copy."""
    if is_torch(array):
        laid = array.contiguous()
        return laid if _is_aligned(laid) else laid.clone()
    laid = np.ascontiguousarray(array)
    return laid if _is_aligned(laid) else laid.copy()


def _like(array: Array) -> Any:
    if is_torch(array):
        return array.new_empty(tuple(array.shape))
    return np.empty(array.shape, array.dtype.newbyteorder("="))


def empty(like: Array, shape: tuple[int, ...], dtype: str = "float64") -> Any:
    if is_torch(like):
        return like.new_empty(shape, dtype=getattr(sys.modules["torch"], dtype))
    return np.empty(shape, dtype)


def address(array: Array | None) -> int | None:
    if array is None or size_of(array) == 0:
        return None
    # array.ctypes.data takes several times as long
    return int(array.data_ptr() if is_torch(array) else array.__array_interface__["data"][0])


def addresses(arrays: Sequence[Array | None]) -> Any:
    return (Pointer * 4)(*(address(array) for array in arrays))
