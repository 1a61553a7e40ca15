"""The few array operations that modes need from either NumPy or torch.

Modes are written once; the arrays they are given say which library runs them, so that a mode
neither imports torch nor knows a device.
"""

from __future__ import annotations

import sys
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from trajcli.errors import Fault, UsageError
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
    return _sent(array, like.device) if is_torch(like) else array


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
    if is_torch(arrays[0]):  # cat, not concatenate, which torch cannot map over (vmap)
        return sys.modules["torch"].cat(list(arrays), axis)
    return np.concatenate(list(arrays), axis)


def differences(stamps: Array) -> Array:
    """stamps[:, 1:] − stamps[:, :-1] as float64; of whole numbers, differenced as such."""
    if is_torch(stamps):
        wide = stamps.double() if stamps.is_floating_point() else stamps.long()
    else:
        wide = stamps.astype(np.float64 if stamps.dtype.kind == "f" else np.int64)
    with np.errstate(invalid="ignore"):
        return float64(wide[:, 1:] - wide[:, :-1])


def settled(values: Array) -> Array:
    """The same values as constants: torch does not differentiate through them."""
    return values.detach() if is_torch(values) else values


def differentiable(exact: Pair, plain: Callable[[], Array]) -> Pair:
    """An exact constant with the derivatives of the same formula in plain float64.

    Derivatives need no extra digits, and would take many times as long through pairs.
    """
    if not is_torch(exact.hi) or sys.modules["torch"].is_inference_mode_enabled():
        return exact
    values = plain()
    return Pair(exact.hi + (values - values.detach()), exact.lo)


def columns(values: Array, begin: int, end: int) -> Array:
    """values[:, begin:end].

    A slice of all there is is an alias in torch, and those cannot be mapped over (vmap).
    """
    return values.narrow(1, begin, end - begin) if is_torch(values) else values[:, begin:end]


def columns_at(values: Array, numbers: Any) -> Array:
    """values[:, numbers], numbers (NumPy) that go on by one and may be held at both ends.

    In torch of slices: numbers would be sent to the device, for which the host has to wait.
    """
    if not is_torch(values) or not len(numbers):
        return values[:, numbers]
    moves = np.diff(numbers)
    going = np.flatnonzero(moves)
    begin, end = (int(going[0]), int(going[-1]) + 1) if len(going) else (len(moves), len(moves))
    if not (moves[begin:end] == 1).all():
        return values.index_select(1, to_torch(numbers, str(values.device), whole=True))
    first, last = int(numbers[0]), int(numbers[-1])
    held = [columns(values, n, n + 1) for n in (first, last)]
    parts = [*held[:1] * begin, columns(values, first, last + 1), *held[1:] * (len(moves) - end)]
    return concatenate(parts, 1) if len(parts) > 1 else parts[0]


def counting(first: int, last: int, like: Array) -> Array:
    """first, first + 1, …, last − 1 in float64, in the library and on the device of ``like``."""
    if is_torch(like):
        import torch

        return torch.arange(first, last, dtype=torch.float64, device=like.device)
    return np.arange(first, last, dtype=np.float64)


def leading(values: Array, count: int) -> Array:
    """The first ``count`` columns; the array itself where it has no more."""
    return values if values.shape[1] == count else columns(values, 0, count)


def zeros(like: Array) -> Array:
    """Zeros of the same shape and type, to be read only: one number, seen from everywhere."""
    if is_torch(like):
        return like.new_zeros(()).expand(like.shape)
    return np.broadcast_to(np.zeros((), like.dtype), like.shape)


def filled(parts: Sequence[Array | None]) -> list[Array]:
    """The parts of a state, zero where none is given."""
    like = next((part for part in parts if part is not None), None)
    if like is None:
        raise ValueError("a state needs its position")
    return [zeros(like) if part is None else part for part in parts]


def pair(values: Array) -> Pair:
    """Float64 values as pairs."""
    return Pair(values, zeros(values))


def loaded(values: Array) -> bool:
    """Whether the values are in memory, not only stored in a file."""
    return isinstance(values, np.ndarray) or is_torch(values)


def readable(values: Array) -> bool:
    """Whether the values can be looked at: not inside vmap, grad and their like, nor while a CUDA
    graph is captured."""
    if not is_torch(values):
        return True
    if values.is_cuda and sys.modules["torch"].cuda.is_current_stream_capturing():
        return False
    try:
        values.data_ptr() if values.is_cuda else to_numpy(values)
    except RuntimeError:
        return False
    return True


def to_numpy(values: Array) -> Any:
    """A NumPy view where there can be one, else a copy."""
    if not is_torch(values):
        return np.asarray(values)
    found = values.detach().cpu()
    return (found.float() if str(found.dtype) == "torch.bfloat16" else found).numpy()


def repeated(values: Array, count: int) -> Array:
    """[1, D] as [count, D], without a copy."""
    if is_torch(values):
        return values.expand(count, -1)
    return np.broadcast_to(values, (count, values.shape[1]))


def own_rows(values: Array, rows: Array) -> Array:
    """Each trajectory's row of states [S, D]: [B, D] of float64, rows [B] of whole numbers.

    In torch NaN where there is no such row: an index on a device may not have been looked at.
    """
    if not is_torch(values):
        return float64(values[rows])
    last = values.shape[0] - 1
    found = float64(values)[rows.clamp(0, last)]
    return found.masked_fill(((rows < 0) | (rows > last))[:, None], float("nan"))


def is_repeated(values: Array) -> bool:
    """Whether all rows are one and the same in memory: see :func:`repeated`. Of NumPy only."""
    return not is_torch(values) and (values.shape[0] == 1 or values.strides[0] == 0)


def held_for(values: Array, count: int) -> Array:
    """[B, 1, D] as [B, count, D]; of NumPy without a copy."""
    if is_torch(values):
        return concatenate([values] * count, 1)
    return np.broadcast_to(values, (len(values), count, values.shape[2]))


def to_torch(values: Array, device: str, whole: bool = False) -> Any:
    """A torch tensor on the device, of the same dtype (integers: float64, unless ``whole``)."""
    import torch

    if is_torch(values):
        return values.to(device)
    native = np.asarray(values)
    if (native.dtype.kind in "iu" and not whole) or native.dtype.itemsize > 8:
        native = native.astype(np.float64)
    native = native.astype(native.dtype.newbyteorder("="), copy=not native.flags.writeable)
    return _sent(np.ascontiguousarray(native), torch.device(device))


_FEW_BYTES = 1 << 16
_MANY = 256
_kept: OrderedDict[tuple[Any, ...], Any] = OrderedDict()
"""Small arrays that were sent to a device, the one used last at the end."""
_sending = threading.Lock()
_captured: dict[int, Any] = {}
"""What CUDA graphs copy from whenever they are replayed."""


def _sent(array: Any, device: Any) -> Any:
    """A NumPy array as a tensor on a device.

    Sending makes the host wait and cannot be captured in a CUDA graph. So what is small, as dt and
    tables of weights are, is sent once and copied there from then on.
    """
    import torch

    if device.type != "cuda":
        return torch.from_numpy(array).to(device)
    capturing = torch.cuda.is_current_stream_capturing()
    few = array.nbytes <= _FEW_BYTES
    if not few and not capturing:
        return torch.from_numpy(array).to(device)
    key = array.tobytes() if few else b"", array.dtype.str, array.shape, device
    with _sending:
        kept = _kept.get(key) if few else None
        if kept is None and capturing:
            raise UsageError(
                Fault(
                    "an array of the host cannot be sent to a device while a graph is captured",
                    f"an array of shape {list(array.shape)}, {array.nbytes} bytes",
                    f"a tensor on the device, or at most {_FEW_BYTES} bytes that were there before",
                    hint="one call with the same arguments just before the capture",
                )
            )
        if kept is None:
            with torch.inference_mode(False):  # so that autograd can use it, too
                kept = _kept[key] = torch.from_numpy(array.copy()).to(device)
            if len(_kept) > _MANY:
                _kept.popitem(last=False)
        _kept.move_to_end(key)
    if capturing:
        _captured[id(kept)] = kept
    else:  # it may be dropped before this stream has read it
        kept.record_stream(torch.cuda.current_stream(device))
    return kept.clone()
