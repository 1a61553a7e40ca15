"""The few array operations that modes need from either NumPy or torch.

Modes are written once; the arrays they are given say which library runs them, so that a mode
neither imports torch nor knows a device.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from trajcli.kernels.pairs import Array, Pair


def is_torch(value: object) -> bool:
    """Whether this is a torch tensor, asked without importing torch."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def namespace(like: Array) -> Any:
    """The module ``like`` belongs to: torch or numpy."""
    return sys.modules["torch"] if is_torch(like) else np


def float64(values: Array) -> Array:
    """The same values as float64."""
    return values.double() if is_torch(values) else values.astype(np.float64)


def constant(values: Any, like: Array) -> Array:
    """float64 constants in the library and on the device of ``like``."""
    array = np.asarray(values, dtype=np.float64)
    return namespace(like).as_tensor(array, device=like.device) if is_torch(like) else array


def constant_pair(values: Any, like: Array) -> Pair:
    """An array of fractions as a pair, in the library and on the device of ``like``."""
    from trajcli.kernels.pairs import from_fraction

    exact = np.asarray(values, dtype=object)
    pairs = [from_fraction(value) for value in exact.ravel()]
    hi = np.array([p.hi for p in pairs]).reshape(exact.shape)
    lo = np.array([p.lo for p in pairs]).reshape(exact.shape)
    return Pair(constant(hi, like), constant(lo, like))


def stack(pairs: Sequence[Pair], axis: int) -> Pair:
    """Pairs of one shape, stacked along a new axis."""
    xp = namespace(pairs[0].hi)
    return Pair(xp.stack([p.hi for p in pairs], axis), xp.stack([p.lo for p in pairs], axis))


def concatenate(arrays: Sequence[Array], axis: int) -> Array:
    """Arrays joined along an axis they have."""
    return namespace(arrays[0]).concatenate(list(arrays), axis)


def pair(values: Array) -> Pair:
    """Float64 values as pairs."""
    return Pair(values, namespace(values).zeros_like(values))


def to_numpy(values: Array) -> Any:
    """A NumPy view where there can be one, else a copy."""
    return values.detach().cpu().numpy() if is_torch(values) else np.asarray(values)


def to_torch(values: Array, device: str) -> Any:
    """A torch tensor on the device, of the same dtype (integers: float64)."""
    import torch

    if is_torch(values):
        return values.to(device)
    native = np.asarray(values)
    if native.dtype.kind in "iu" or native.dtype.itemsize > 8:
        native = native.astype(np.float64)
    native = native.astype(native.dtype.newbyteorder("="), copy=not native.flags.writeable)
    return torch.from_numpy(np.ascontiguousarray(native)).to(device)
