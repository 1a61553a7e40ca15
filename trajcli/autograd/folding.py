"""Gradients that are absent or of another dtype, and dimensions that vmap adds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from trajcli.kernels.torch_ops import mapped_zero

Tensors = Sequence[Tensor | None]


def buffers(
    shape: Sequence[int], dtype: torch.dtype, inputs: Tensors, count: int = 4
) -> list[Tensor]:
    """Empty outputs, on the device of the inputs."""
    zero = mapped_zero(*inputs)
    return [zero.new_empty(tuple(shape), dtype=dtype) for _ in range(count)]


def like(grad: Tensor | None, of: Tensor | None) -> Tensor | None:
    """A gradient in the dtype of what it belongs to; None where that is absent."""
    return None if of is None or grad is None else grad.to(of.dtype)


def or_zero(tangent: Tensor | None, of: Tensor | None) -> Any:
    """The tangent, zeros where it is absent; None where what it belongs to is."""
    if of is None:
        return None
    return torch.zeros_like(of) if tangent is None else tangent


def batch_of(inputs: Sequence[Any], dims: Sequence[int | None]) -> int:
    """B, of tensors of which some carry the dimension that is mapped over."""
    for x, dim in zip(inputs, dims, strict=True):
        if x is not None:
            return int(x.shape[0] if dim is None or dim % x.ndim != 0 else x.shape[1])
    raise AssertionError("no tensor")


def fold(x: Any, dim: int | None, size: int, batch: int) -> Any:
    """Make the mapped dimension part of the batch; what is shared by all stays [1, ...]."""
    if x is None:
        return None
    if dim is None:
        if x.shape[0] == 1 and batch != 1:
            return x
        x = x.expand(size, *x.shape)
    else:
        x = x.movedim(dim, 0)
    if x.shape[1] != batch:
        x = x.expand(size, batch, *x.shape[2:])
    return x.reshape(size * batch, *x.shape[2:])


def unfold(x: Tensor, size: int) -> Tensor:
    """The mapped dimension again, first."""
    return x.reshape(size, x.shape[0] // size, *x.shape[1:])
