"""Arrays and tensors as people have them in memory: views, drawn at random from a seed."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

Values = Callable[[np.random.Generator, Sequence[int]], Any]
"""Draws values of a shape."""

WIDER = ("f2", ">f4", ">f8", "i1", "u1", "<i2", ">u2", "<i4", ">u4", "<i8", ">i8")
"""Types that kernels convert: those beside float32 and float64."""


class _Layout(NamedTuple):
    """Where the elements of a view lie. ``steps``: from one to the next along an axis, in elements
    of its memory; 0 is expanded. ``order``: the axes as memory has them, outermost first."""

    sizes: list[int]
    order: list[int]
    slices: tuple[slice, ...]
    flips: tuple[slice, ...]
    shift: int

    @property
    def memory(self) -> list[int]:
        return [self.sizes[axis] for axis in self.order]


def _layout(shape: Sequence[int], draw: random.Random, steps: Sequence[int]) -> _Layout:
    by = [draw.choice(steps) for _ in shape]
    begin = [draw.choice((0, 0, 1, 2)) if step else 0 for step in by]
    sizes = [
        first + abs(step) * length if step else 1
        for first, step, length in zip(begin, by, shape, strict=True)
    ]
    order = list(range(len(shape)))
    if draw.random() < 0.4:
        draw.shuffle(order)
    return _Layout(
        sizes,
        order,
        tuple(slice(first, None, abs(step) or 1) for first, step in zip(begin, by, strict=True)),
        tuple(slice(None, None, -1 if step < 0 else 1) for step in by),
        draw.choice((0, 0, 1, 3)),
    )


def normal(rng: np.random.Generator, shape: Sequence[int]) -> Any:
    return rng.standard_normal(shape)


def steps(rng: np.random.Generator, shape: Sequence[int]) -> Any:
    return rng.uniform(0.02, 0.2, shape)


def stamps(rng: np.random.Generator, shape: Sequence[int]) -> Any:
    return np.cumsum(steps(rng, shape), -1)


def one_of_three(rng: np.random.Generator, shape: Sequence[int]) -> Any:
    return rng.integers(0, 3, shape)


def array(shape: Sequence[int], dtype: str, draw: random.Random, values: Values = normal) -> Any:
    """A view of this shape that is expanded, transposed, flipped, sliced, not aligned or begins
    anywhere, or several of these. What lies around its values is NaN, or 77 where there is none."""
    layout = _layout(shape, draw, (1, 1, 1, 1, 0, 0, 2, 3, -1, -1, -2))
    kind = np.dtype(dtype)
    behind = draw.choice((layout.shift * kind.itemsize,) * 3 + (1,))
    memory = np.zeros(math.prod(layout.memory) * kind.itemsize + behind, np.uint8)
    base = np.ndarray(layout.memory, kind, memory.data, behind)
    base[...] = np.nan if kind.kind == "f" else 77
    view = base.transpose(np.argsort(layout.order))[layout.slices][layout.flips]
    drawn = values(np.random.default_rng(draw.randrange(2**31)), view.shape)
    view[...] = np.abs(4 * drawn) if kind.kind == "u" else drawn
    return np.broadcast_to(view, shape)


def tensor(shape: Sequence[int], dtype: str, draw: random.Random, values: Values = normal) -> Any:
    """The same as a tensor. torch flips no view; some of its views negate what lies in memory, or
    are the real or imaginary parts of conjugate complex numbers."""
    layout = _layout(shape, draw, (1, 1, 1, 1, 0, 0, 2, 3))
    kind = getattr(torch, dtype)
    wide = dtype in ("float32", "float64")
    of = draw.choice(("numbers", "numbers", "negatives", *("real parts", "imaginary parts") * wide))
    part = kind.to_complex() if of.endswith("parts") else kind
    around = torch.nan if kind.is_floating_point else 77
    flat = torch.full((math.prod(layout.memory) + layout.shift,), around, dtype=part)
    view = flat[layout.shift :].view(layout.memory).permute(*np.argsort(layout.order).tolist())
    view = view[layout.slices]
    drawn = torch.from_numpy(values(np.random.default_rng(draw.randrange(2**31)), view.shape))
    drawn = drawn.to(kind)
    drawn = -drawn if of == "negatives" else drawn
    view.copy_(torch.complex(drawn, -drawn) if part != kind else drawn)
    view = view.expand(tuple(shape))
    if of == "negatives":
        return torch._neg_view(view)
    return view.conj().real if of[0] == "r" else view.conj().imag if of[0] == "i" else view


def plain(values: Any) -> Any:
    """The same values, contiguous, in float32 or in the widest type of their kind."""
    if isinstance(values, torch.Tensor):
        return values.detach().resolve_neg().clone(memory_format=torch.contiguous_format)
    kind = {"f4": "f4", "i8": "i8"}.get(values.dtype.str[1:], "f8")
    return np.ascontiguousarray(values, kind)
