"""The kernels in C++, on plain CPU memory: NumPy arrays and CPU tensors, no torch needed.

Built with the package; where that was not possible, :func:`absence` says why and torch_ops does
the work. The arithmetic is that of torch_ops (sums and differences with their rounding errors
carried along), with fused multiply-add, so results agree to the last bit or nearly so.
Trajectories are split over threads; results do not depend on how many there are.
"""

from __future__ import annotations

import ctypes
import os
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from importlib.util import find_spec
from typing import Any, NamedTuple

import numpy as np

from trajcli.arrays import is_repeated, is_torch
from trajcli.kernels.native.differences import on_differences
from trajcli.kernels.native.windows import narrowed
from trajcli.kernels.pairs import Array, Pair
from trajcli.kernels.program import Weights

SCHEMES = ("euler", "zoh", "foh")
_SMALL = 1 << 16
"""Elements below which starting threads costs more than it gains."""
_STREAMED = 4 << 20
"""Bytes of output that no longer fit a cache: they are written past it."""

_Int = ctypes.c_int64
_Pointer = ctypes.c_void_p


class _Cascade(ctypes.Structure):
    _fields_ = (
        ("batch", _Int),
        ("horizon", _Int),
        ("dofs", _Int),
        ("actions", _Pointer),
        ("actions_stride", _Int),
        ("actions_type", _Int),
        ("state_hi", _Pointer * 4),
        ("state_lo", _Pointer * 4),
        ("state_stride", _Int),
        ("dt", _Pointer),
        ("dt_trajectory_stride", _Int),
        ("dt_step_stride", _Int),
        ("order", _Int),
        ("scheme", _Int),
        ("start_row", _Int),
        ("out", _Pointer * 4),
        ("out_stride", _Int),
        ("out_type", _Int),
        ("end_hi", _Pointer * 4),
        ("end_lo", _Pointer * 4),
    )


class _CascadeAdjoint(ctypes.Structure):
    _fields_ = (
        ("batch", _Int),
        ("horizon", _Int),
        ("dofs", _Int),
        ("upstream", _Pointer * 4),
        ("upstream_stride", _Int),
        ("upstream_type", _Int),
        ("end", _Pointer * 4),
        ("dt", _Pointer),
        ("dt_trajectory_stride", _Int),
        ("dt_step_stride", _Int),
        ("order", _Int),
        ("scheme", _Int),
        ("sources", _Pointer * 4),
        ("sources_stride", _Int),
        ("sources_type", _Int),
        ("state", _Pointer * 4),
    )


class _Band(ctypes.Structure):
    _fields_ = (
        ("batch", _Int),
        ("horizon", _Int),
        ("dofs", _Int),
        ("actions", _Pointer),
        ("actions_stride", _Int),
        ("actions_type", _Int),
        ("head_hi", _Pointer),
        ("head_lo", _Pointer),
        ("head", _Int),
        ("head_stride", _Int),
        ("head_row", _Int),
        ("tail_hi", _Pointer),
        ("tail_lo", _Pointer),
        ("tail", _Int),
        ("tail_stride", _Int),
        ("tail_row", _Int),
        ("table_hi", _Pointer),
        ("table_lo", _Pointer),
        ("table_stride", _Int),
        ("width", _Int),
        ("rows", _Int),
        ("unit", _Pointer),
        ("unit_whole", _Int),
        ("scale", _Pointer),
        ("scale_stride", _Int),
        ("first", _Pointer),
        ("phase", _Pointer),
        ("start", _Pointer * 4),
        ("start_stride", _Int),
        ("out", _Pointer * 4),
        ("out_stride", _Int),
        ("out_type", _Int),
    )


class _BandAdjoint(ctypes.Structure):
    _fields_ = (
        ("batch", _Int),
        ("horizon", _Int),
        ("dofs", _Int),
        ("upstream", _Pointer * 4),
        ("upstream_stride", _Int),
        ("upstream_type", _Int),
        ("head", _Int),
        ("tail", _Int),
        ("table", _Pointer),
        ("table_stride", _Int),
        ("width", _Int),
        ("rows", _Int),
        ("first", _Pointer),
        ("phase", _Pointer),
        ("actions", _Pointer),
        ("actions_stride", _Int),
        ("actions_type", _Int),
        ("head_grad", _Pointer),
        ("tail_grad", _Pointer),
    )


@cache
def _library() -> tuple[Any, str]:
    """The compiled kernels, or None and why there are none."""
    spec = find_spec("trajcli.kernels.native._kernels")
    if spec is None or spec.origin is None:
        return None, "not built: no C++ compiler was found when trajcli was installed"
    try:
        library = ctypes.CDLL(spec.origin)
    except OSError as error:
        return None, f"cannot be loaded: {error}"
    if not hasattr(library, "trajcli_guard_up"):
        return None, "built from older sources: install trajcli again"
    for name in ("cascade", "cascade_adjoint", "band", "band_adjoint"):
        function = getattr(library, f"trajcli_run_{name}")
        function.argtypes = (_Pointer, ctypes.c_int, ctypes.c_int, _Int)
    return library, ""


@contextmanager
def guard() -> Iterator[None]:
    """Within it, mapped pages whose file was cut short read as zeros, and do not end the process.

    Only where these kernels are there, and on the main thread.
    """
    library = _library()[0]
    up = library is not None and threading.current_thread() is threading.main_thread()
    if not up or library.trajcli_guard_up():
        yield
        return
    try:
        yield
    finally:
        library.trajcli_guard_down()


def pages_lost() -> bool:
    """Whether the guard has had such pages."""
    library = _library()[0]
    return library is not None and bool(library.trajcli_guard_lost())


def absence() -> str:
    """Why these kernels cannot run here; empty where they can."""
    return _library()[1]


def instruction_set() -> str:
    """What the kernels run on: x86-64-v4, x86-64-v3 or baseline."""
    return {3: "x86-64-v3", 4: "x86-64-v4"}.get(_level(), "baseline")


def cascade(
    sources: Sequence[Array | None],
    state: Sequence[Pair],
    dt: Array,
    *,
    order: int,
    scheme: str,
    start_row: bool = False,
    out: Sequence[Array | None],
    end: bool = True,
) -> list[Pair]:
    """See :func:`trajcli.kernels.torch_ops.cascade`; sources beside the actions go there."""
    if any(e is not None for m, e in enumerate(sources) if m != order) or not _plain(
        *sources, dt, *out, *(x for part in state for x in (part.hi, part.lo))
    ):
        from trajcli.kernels import torch_ops

        return torch_ops.cascade(
            sources, state, dt, order=order, scheme=scheme, start_row=start_row, out=out, end=end
        )
    keep = _Kept()
    actions = keep.rows(sources[order])
    batch, horizon, dofs = actions.shape
    parts, state_stride = keep.states([x for part in state for x in (part.hi, part.lo)])
    ends = [tuple(_empty(part.hi, (batch, dofs)) for _ in range(2)) for part in state if end]
    steps = keep.doubles(dt)
    places, stride, kind = keep.outputs(out)
    job = _Cascade(
        batch=batch,
        horizon=horizon,
        dofs=dofs,
        actions=_address(actions),
        actions_stride=_stride(actions),
        actions_type=_is_double(actions),
        state_hi=_addresses(parts[::2]),
        state_lo=_addresses(parts[1::2]),
        state_stride=state_stride,
        dt=_address(steps),
        dt_trajectory_stride=steps.shape[1] if steps.shape[0] > 1 else 0,
        dt_step_stride=1 if steps.shape[1] > 1 else 0,
        order=order,
        scheme=SCHEMES.index(scheme),
        start_row=start_row,
        out=_addresses(places),
        out_stride=stride,
        out_type=kind,
    )
    if end:
        job.end_hi = _addresses([hi for hi, _ in ends])
        job.end_lo = _addresses([lo for _, lo in ends])
    _run("cascade", job, places, batch * horizon * dofs)
    keep.give_back()
    return [Pair(hi, lo) for hi, lo in ends]


def cascade_adjoint(
    upstream: Sequence[Array | None],
    end: Sequence[Array | None],
    dt: Array,
    shape: Sequence[int],
    *,
    order: int,
    scheme: str,
    wanted: Sequence[bool] = (True,) * 4,
) -> tuple[list[Array], list[Array]]:
    """See :func:`trajcli.kernels.torch_ops.cascade_adjoint`."""
    if not _plain(*upstream, *end, dt):
        from trajcli.kernels import torch_ops

        return torch_ops.cascade_adjoint(
            upstream, end, dt, shape, order=order, scheme=scheme, wanted=wanted
        )
    batch, horizon, dofs = (int(n) for n in shape)
    sources = [_empty(dt, (batch, horizon, dofs)) if keep else None for keep in wanted]
    state = [_empty(dt, (batch, dofs)) for _ in range(4)]
    adjoint_into(upstream, end, dt, shape, order=order, scheme=scheme, sources=sources, state=state)
    return [_empty(dt, (0,)) if g is None else g for g in sources], state


def adjoint_into(
    upstream: Sequence[Array | None],
    end: Sequence[Array | None],
    dt: Array,
    shape: Sequence[int],
    *,
    order: int,
    scheme: str,
    sources: Sequence[Array | None],
    state: Sequence[Array | None],
) -> None:
    """The same into buffers of the caller, of float32 or float64; None where nobody asks."""
    keep = _Kept()
    batch, horizon, dofs = (int(n) for n in shape)
    pulled, pulled_stride, pulled_kind = keep.inputs(upstream)
    ends = [None if g is None else keep.doubles(g) for g in end]
    steps = keep.doubles(dt)
    places, stride, kind = keep.outputs(sources)
    job = _CascadeAdjoint(
        batch=batch,
        horizon=horizon,
        dofs=dofs,
        upstream=_addresses(pulled),
        upstream_stride=pulled_stride,
        upstream_type=pulled_kind,
        end=_addresses(ends),
        dt=_address(steps),
        dt_trajectory_stride=steps.shape[1] if steps.shape[0] > 1 else 0,
        dt_step_stride=1 if steps.shape[1] > 1 else 0,
        order=order,
        scheme=SCHEMES.index(scheme),
        sources=_addresses(places),
        sources_stride=stride,
        sources_type=kind,
        state=_addresses(state),
    )
    _run("cascade_adjoint", job, places, batch * horizon * dofs)
    keep.give_back()


def band(
    actions: Array,
    head: Pair | None,
    tail: Pair | None,
    weights: Weights,
    *,
    start: Sequence[Array] | None = None,
    out: Sequence[Array | None],
) -> None:
    """See :func:`trajcli.kernels.torch_ops.band`."""
    pairs = [weights.table, *(part for part in (head, tail) if part is not None)]
    if not _plain(actions, *out, *(start or ()), *(x for p in pairs for x in (p.hi, p.lo))):
        from trajcli.kernels import torch_ops

        return torch_ops.band(actions, head, tail, weights, start=start, out=out)
    keep, weights = _Kept(), narrowed(weights)
    given = keep.rows(actions)
    batch, horizon, dofs = given.shape
    before, after = keep.points(head), keep.points(tail)
    copied, copied_stride = keep.states(start or [])
    table = keep.doubles(weights.table.hi), keep.doubles(weights.table.lo)
    places, stride, kind = keep.outputs(out)
    first, phase = keep.integers(weights.first), keep.integers(weights.phase)
    unit, whole, scale = None, False, None
    evenly = weights.evenly
    if evenly is not None and not kind and _plain(evenly.spacing.hi, evenly.spacing.lo):
        unit, whole, scale = on_differences(evenly)
    job = _Band(
        batch=batch,
        horizon=horizon,
        dofs=dofs,
        actions=_address(given),
        actions_stride=_stride(given),
        actions_type=_is_double(given),
        head_hi=_address(before.hi),
        head_lo=_address(before.lo),
        head=before.points,
        head_stride=before.stride,
        head_row=before.row,
        tail_hi=_address(after.hi),
        tail_lo=_address(after.lo),
        tail=after.points,
        tail_stride=after.stride,
        tail_row=after.row,
        table_hi=_address(table[0]),
        table_lo=_address(table[1]),
        table_stride=_size(table[0][0]) if table[0].shape[0] > 1 else 0,
        width=table[0].shape[3],
        rows=len(first),
        unit=_address(unit),
        unit_whole=whole,
        scale=_address(scale),
        scale_stride=0 if scale is None or len(scale) == 1 else 4,
        first=_address(first),
        phase=_address(phase),
        start=_addresses(copied or [None] * 4),
        start_stride=copied_stride,
        out=_addresses(places),
        out_stride=stride,
        out_type=kind,
    )
    _run("band", job, places, batch * len(first) * dofs)
    keep.give_back()
    return None


def band_adjoint(
    upstream: Sequence[Array | None],
    actions: Array,
    head: Array | None,
    tail: Array | None,
    weights: Weights,
    *,
    of_table: bool = True,
    into: Array | None = None,
) -> tuple[Array, Array, Array, Array | None]:
    """See :func:`trajcli.kernels.torch_ops.band_adjoint`; gradients of the table go there.

    into: a buffer [B, H, D] of float32 or float64 for the gradient of the actions.
    """
    if (
        of_table
        or not _forward(weights.first)
        or not _plain(*upstream, actions, head, tail, weights.table.hi)
    ):
        from trajcli.kernels import torch_ops

        return torch_ops.band_adjoint(upstream, actions, head, tail, weights, of_table=of_table)
    keep, weights = _Kept(), narrowed(weights)
    batch, horizon, dofs = actions.shape
    sizes = [0 if part is None else part.shape[1] for part in (head, tail)]
    grad = _empty(actions, (batch, horizon, dofs)) if into is None else into
    grad_head, grad_tail = (_empty(actions, (batch, n, dofs)) for n in sizes)
    pulled, pulled_stride, pulled_kind = keep.inputs(upstream)
    table = keep.doubles(weights.table.hi)
    first, phase = keep.integers(weights.first), keep.integers(weights.phase)
    job = _BandAdjoint(
        batch=batch,
        horizon=horizon,
        dofs=dofs,
        upstream=_addresses(pulled),
        upstream_stride=pulled_stride,
        upstream_type=pulled_kind,
        head=sizes[0],
        tail=sizes[1],
        table=_address(table),
        table_stride=_size(table[0]) if table.shape[0] > 1 else 0,
        width=table.shape[3],
        rows=len(first),
        first=_address(first),
        phase=_address(phase),
        actions=_address(grad),
        actions_stride=_stride(grad),
        actions_type=_is_double(grad),
        head_grad=_address(grad_head),
        tail_grad=_address(grad_tail),
    )
    _run("band_adjoint", job, [grad], batch * len(first) * dofs)
    return grad, grad_head, grad_tail, None


class _Points(NamedTuple):
    """Points [B, points, D] and how far apart they lie; lo is None where it is zero."""

    hi: Any
    lo: Any
    points: int
    stride: int
    row: int


class _Kept:
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

    def points(self, part: Pair | None) -> _Points:
        """Points before or after the actions."""
        if part is None:
            return _Points(None, None, 0, 0, 0)
        hi, lo = part.hi, part.lo
        _, count, dofs = hi.shape
        if is_torch(hi) or is_torch(lo):
            return _Points(self.doubles(hi), self.doubles(lo), count, count * dofs, dofs)
        low = bool(np.any(lo)) if not any(lo.strides) else True
        same = is_repeated(hi) and (not low or is_repeated(lo))
        held = count > 1 and hi.strides[1] == 0 and not low
        kept = (slice(1 if same else None), slice(1 if held else None))
        rows = 1 if held else count
        return _Points(
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
        strides = {_stride(array) for array in present}
        if len({_kind(array) for array in present}) > 1 or len(strides) > 1:
            given = [None if array is None else self.doubles(array) for array in given]
            present = [array for array in given if array is not None]
        return given, _stride(present[0]), _is_double(present[0])

    def outputs(self, arrays: Sequence[Array | None]) -> tuple[list[Any], int, int]:
        """Buffers of one type and stride; those laid out otherwise are copied back to later."""
        present = [array for array in arrays if array is not None]
        if not present:
            return list(arrays), 0, 1
        if all(_in_rows(a) for a in present) and len({_stride(a) for a in present}) == 1:
            return list(arrays), _stride(present[0]), _is_double(present[0])
        places: list[Any] = []
        for array in arrays:
            places.append(None if array is None else _like(array))
            if array is not None:
                self._copied_back.append((array, places[-1]))
        first = next(place for place in places if place is not None)
        return places, _stride(first), _is_double(first)

    def give_back(self) -> None:
        """Copy what was computed elsewhere to where it belongs."""
        for array, place in self._copied_back:
            array[...] = place


def _run(name: str, job: ctypes.Structure, outputs: Sequence[Any], elements: int) -> None:
    library = _library()[0]
    written = sum(
        _size(array) * (8 if _is_double(array) else 4) for array in outputs if array is not None
    )
    count = threads() if elements >= _SMALL else 1
    streaming = int(written >= _STREAMED)
    if getattr(library, f"trajcli_run_{name}")(ctypes.byref(job), _level(), streaming, count):
        raise MemoryError


def threads() -> int:
    """Threads to use: TRAJCLI_THREADS, else the processors this process may run on."""
    asked = os.environ.get("TRAJCLI_THREADS", "")
    return int(asked) if asked.isdecimal() and int(asked) > 0 else len(os.sched_getaffinity(0))


def _level() -> int:
    """The instruction set: the machine's best, or less where TRAJCLI_INSTRUCTIONS says so."""
    best = int(_library()[0].trajcli_level())
    asked = os.environ.get("TRAJCLI_INSTRUCTIONS", "")
    return min(best, int(asked)) if asked.isdecimal() else best


def _plain(*arrays: Array | None) -> bool:
    """Whether these lie in this machine's memory, not on a device or under a transform."""
    return all(_is_plain(array) for array in arrays if array is not None)


def _forward(values: Any) -> bool:
    """Whether windows only move on, as those of all modes do."""
    return bool((np.diff(values) >= 0).all())


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
    return str(array.dtype).removeprefix("torch.")


def _is_double(array: Array) -> int:
    return int(_kind(array) == "float64")


def _size(array: Array) -> int:
    return int(array.numel() if is_torch(array) else array.size)


def _strides(array: Array) -> tuple[int, ...]:
    if is_torch(array):
        return tuple(array.stride())
    return tuple(stride // array.itemsize for stride in array.strides)


def _stride(array: Array) -> int:
    """From trajectory to trajectory."""
    return _strides(array)[0] if array.shape[0] > 1 else int(array.shape[1] * array.shape[2])


def _in_rows(array: Array) -> bool:
    """Whether rows and dofs lie side by side."""
    _, rows, dofs = array.shape
    _, by_row, by_dof = _strides(array)
    if not is_torch(array) and not array.dtype.isnative:
        return False
    return (dofs == 1 or by_dof == 1) and (rows <= 1 or by_row == dofs)


def _contiguous(array: Array) -> Any:
    return array.contiguous() if is_torch(array) else np.ascontiguousarray(array)


def _like(array: Array) -> Any:
    if is_torch(array):
        return array.new_empty(tuple(array.shape))
    return np.empty(array.shape, array.dtype.newbyteorder("="))


def _empty(like: Array, shape: tuple[int, ...]) -> Any:
    if is_torch(like):
        return like.new_empty(shape, dtype=sys.modules["torch"].float64)
    return np.empty(shape)


def _address(array: Array | None) -> int | None:
    if array is None or _size(array) == 0:
        return None
    return int(array.data_ptr() if is_torch(array) else array.ctypes.data)


def _addresses(arrays: Sequence[Array | None]) -> Any:
    return (_Pointer * 4)(*(_address(array) for array in arrays))
