"""Tensors in the layout the Triton kernels read and write."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

FLOATS = (torch.float64, torch.float32, torch.float16, torch.bfloat16)


def on(tensor: Tensor) -> AbstractContextManager[Any]:
    """Makes the tensor's device the current one: kernels run there, on its current stream."""
    if tensor.device.type != "cuda":
        return nullcontext()
    return torch.cuda.device(tensor.device)


def in_rows(array: Tensor) -> bool:
    """Whether rows and dofs of an array [B, H, D] lie side by side."""
    _, rows, dofs = array.shape
    _, by_row, by_dof = array.stride()
    return (dofs == 1 or by_dof == 1) and (rows <= 1 or by_row == dofs)


def stride(array: Tensor) -> int:
    """From trajectory to trajectory."""
    batch, rows, dofs = array.shape
    return int(array.stride(0)) if batch > 1 else int(rows * dofs)


def rows(array: Tensor) -> Tensor:
    """The array, of a type the kernels read, with rows and dofs side by side."""
    if array.dtype not in FLOATS:
        array = array.double()
    return array if in_rows(array) else array.contiguous()


def together(arrays: Sequence[Tensor | None]) -> tuple[tuple[Tensor | None, ...], int]:
    """Arrays of one shape, None where there is none, in rows of one stride; and that."""
    given = [None if array is None else rows(array) for array in arrays]
    present = [array for array in given if array is not None]
    if len({stride(array) for array in present}) > 1:
        given = [None if array is None else array.contiguous() for array in given]
        present = [array for array in given if array is not None]
    return tuple(given), stride(present[0]) if present else 0


class Outputs:
    """Buffers to write, in rows of one stride; those laid out otherwise are copied to later."""

    def __init__(self, buffers: Sequence[Tensor | None]) -> None:
        present = [buffer for buffer in buffers if buffer is not None]
        self._copied: list[tuple[Tensor, Tensor]] = []
        self.places: tuple[Tensor | None, ...] = tuple(buffers)
        fit = all(in_rows(buffer) and buffer.dtype in FLOATS for buffer in present)
        if not fit or len({stride(buffer) for buffer in present}) > 1:
            self.places = tuple(None if buffer is None else _like(buffer) for buffer in buffers)
            self._copied = [
                (buffer, place)
                for buffer, place in zip(buffers, self.places, strict=True)
                if buffer is not None and place is not None
            ]
        self.stride = next((stride(place) for place in self.places if place is not None), 0)

    def give_back(self) -> None:
        """Copy what was written elsewhere to where it belongs."""
        for buffer, place in self._copied:
            buffer.copy_(place)


def _like(buffer: Tensor) -> Tensor:
    kind = buffer.dtype if buffer.dtype in FLOATS else torch.float64
    return torch.empty(buffer.shape, dtype=kind, device=buffer.device)


@dataclass(frozen=True, eq=False)
class States:
    """Parts of states as kernels read them: arrays [B, D] or, with ``rows`` [B] of which state
    each trajectory has, [S, D], S being ``count``; two strides for each in turn."""

    parts: tuple[Tensor | None, ...]
    strides: tuple[int, ...]
    rows: Tensor | None
    count: int


def states(parts: Sequence[Any], rows: Tensor | None) -> States:
    """Parts of any float type, None (or a number that stands for no low part) is zero."""
    given = tuple(_readable(part) if isinstance(part, Tensor) else None for part in parts)
    strides = [s for part in given for s in ((0, 0) if part is None else part.stride())]
    count = next((int(part.shape[0]) for part in given if part is not None), 0)
    rows = None if rows is None else rows.contiguous()  # kernels read them one after the other
    return States(given, tuple(int(s) for s in strides), rows, count)


def _readable(part: Tensor) -> Tensor:
    return part if part.dtype in FLOATS else part.double()


def power_of_two(count: int) -> int:
    """The least power of two that is at least ``count``."""
    return 1 << max(0, count - 1).bit_length()
