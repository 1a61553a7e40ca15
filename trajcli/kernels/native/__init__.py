"""The kernels in C++, on plain CPU memory: NumPy arrays and CPU tensors, no torch needed.

Built with the package; where that was not possible, :func:`absence` says why and torch_ops does
the work. The arithmetic is that of torch_ops (sums and differences with their rounding errors
carried along), with fused multiply-add, so results agree to the last bit or nearly so.
Trajectories are split over threads; results do not depend on how many there are.
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from importlib.util import find_spec
from typing import Any

import numpy as np

from trajcli.arrays import filled
from trajcli.kernels.differences import on_differences
from trajcli.kernels.narrow import narrowed
from trajcli.kernels.native.buffers import (
    Kept,
    address,
    addresses,
    empty,
    is_double,
    plain,
    size_of,
    stride_of,
)
from trajcli.kernels.native.structs import (
    Band,
    BandAdjoint,
    Cascade,
    CascadeAdjoint,
    Int,
    Pointer,
)
from trajcli.kernels.padding import count_of, points_of, pull_points, taken
from trajcli.kernels.pairs import Array, Pair
from trajcli.kernels.program import Listed, Padding, StatePoints, Weights, Windows

SCHEMES = ("euler", "zoh", "foh")
_SMALL = 1 << 16
"""Elements below which starting threads costs more than it gains."""
_STREAMED = 4 << 20
"""Bytes of output that no longer fit a cache: they are written past it."""


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
    expected = sum(map(ctypes.sizeof, (Cascade, CascadeAdjoint, Band, BandAdjoint)))
    if not hasattr(library, "trajcli_bytes") or library.trajcli_bytes() != expected:
        return None, "built from older sources: install trajcli again"
    for name in ("cascade", "cascade_adjoint", "band", "band_adjoint"):
        function = getattr(library, f"trajcli_run_{name}")
        function.argtypes = (Pointer, ctypes.c_int, ctypes.c_int, Int)
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
    state_rows: Array | None = None,
) -> list[Pair]:
    """See :func:`trajcli.kernels.torch_ops.cascade`; sources beside the actions go there."""
    if state_rows is not None:
        state = [Pair(taken(part.hi, state_rows), taken(part.lo, state_rows)) for part in state]
    if any(e is not None for m, e in enumerate(sources) if m != order) or not plain(
        *sources, dt, *out, *(x for part in state for x in (part.hi, part.lo))
    ):
        from trajcli.kernels import torch_ops

        return torch_ops.cascade(
            sources, state, dt, order=order, scheme=scheme, start_row=start_row, out=out, end=end
        )
    keep = Kept()
    actions = keep.rows(sources[order])
    batch, horizon, dofs = actions.shape
    parts, state_stride = keep.states([x for part in state for x in (part.hi, part.lo)])
    ends = [tuple(empty(part.hi, (batch, dofs)) for _ in range(2)) for part in state if end]
    steps = keep.doubles(dt)
    places, stride, kind = keep.outputs(out)
    job = Cascade(
        batch=batch,
        horizon=horizon,
        dofs=dofs,
        actions=address(actions),
        actions_stride=stride_of(actions),
        actions_type=is_double(actions),
        state_hi=addresses(parts[::2]),
        state_lo=addresses(parts[1::2]),
        state_stride=state_stride,
        dt=address(steps),
        dt_trajectory_stride=steps.shape[1] if steps.shape[0] > 1 else 0,
        dt_step_stride=1 if steps.shape[1] > 1 else 0,
        order=order,
        scheme=SCHEMES.index(scheme),
        start_row=start_row,
        out=addresses(places),
        out_stride=stride,
        out_type=kind,
    )
    if end:
        job.end_hi = addresses([hi for hi, _ in ends])
        job.end_lo = addresses([lo for _, lo in ends])
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
    of_sources: str = "float64",
) -> tuple[list[Array], list[Array]]:
    """See :func:`trajcli.kernels.torch_ops.cascade_adjoint`."""
    if not plain(*upstream, *end, dt):
        from trajcli.kernels import torch_ops

        return torch_ops.cascade_adjoint(
            upstream,
            end,
            dt,
            shape,
            order=order,
            scheme=scheme,
            wanted=wanted,
            of_sources=of_sources,
        )
    batch, horizon, dofs = (int(n) for n in shape)
    full = batch, horizon, dofs
    sources = [empty(dt, full, of_sources) if keep else None for keep in wanted]
    state = [empty(dt, (batch, dofs)) for _ in range(4)]
    adjoint_into(upstream, end, dt, shape, order=order, scheme=scheme, sources=sources, state=state)
    return [empty(dt, (0,)) if g is None else g for g in sources], state


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
    keep = Kept()
    batch, horizon, dofs = (int(n) for n in shape)
    pulled, pulled_stride, pulled_kind = keep.inputs(upstream)
    ends = [None if g is None else keep.doubles(g) for g in end]
    steps = keep.doubles(dt)
    places, stride, kind = keep.outputs(sources)
    job = CascadeAdjoint(
        batch=batch,
        horizon=horizon,
        dofs=dofs,
        upstream=addresses(pulled),
        upstream_stride=pulled_stride,
        upstream_type=pulled_kind,
        end=addresses(ends),
        dt=address(steps),
        dt_trajectory_stride=steps.shape[1] if steps.shape[0] > 1 else 0,
        dt_step_stride=1 if steps.shape[1] > 1 else 0,
        order=order,
        scheme=SCHEMES.index(scheme),
        sources=addresses(places),
        sources_stride=stride,
        sources_type=kind,
        state=addresses(state),
    )
    _run("cascade_adjoint", job, places, batch * horizon * dofs)
    keep.give_back()


def band(
    actions: Array,
    head: Padding,
    tail: Padding,
    weights: Weights,
    *,
    start: Sequence[Array | None] | None = None,
    start_rows: Array | None = None,
    out: Sequence[Array | None],
) -> None:
    """See :func:`trajcli.kernels.torch_ops.band`."""
    if start is not None and start_rows is not None:
        start = [taken(part, start_rows) for part in start]
    if not plain(
        actions, *out, *(start or ()), *_arrays(head), *_arrays(tail), *_arrays(weights.table)
    ):
        from trajcli.kernels import torch_ops

        return torch_ops.band(actions, head, tail, weights, start=start, out=out)
    keep, weights = Kept(), narrowed(weights)
    given = keep.rows(actions)
    batch, horizon, dofs = given.shape
    before, after = (keep.points(points_of(part, actions)) for part in (head, tail))
    copied, copied_stride = keep.states([] if start is None else filled(start))
    table = keep.doubles(weights.table.hi), keep.doubles(weights.table.lo)
    places, stride, kind = keep.outputs(out)
    first, kind_of = keep.integers(weights.where.first), keep.integers(weights.where.kind)
    unit, whole, scale = None, False, None
    evenly = weights.evenly
    if evenly is not None and not kind and plain(evenly.spacing.hi, evenly.spacing.lo):
        unit, whole, scale = on_differences(evenly)
    job = Band(
        batch=batch,
        horizon=horizon,
        dofs=dofs,
        actions=address(given),
        actions_stride=stride_of(given),
        actions_type=is_double(given),
        head_hi=address(before.hi),
        head_lo=address(before.lo),
        head=before.points,
        head_stride=before.stride,
        head_row=before.row,
        tail_hi=address(after.hi),
        tail_lo=address(after.lo),
        tail=after.points,
        tail_stride=after.stride,
        tail_row=after.row,
        table_hi=address(table[0]),
        table_lo=address(table[1]),
        table_stride=size_of(table[0][0]) if table[0].shape[0] > 1 else 0,
        width=table[0].shape[3],
        rows=len(first),
        unit=address(unit),
        unit_whole=whole,
        scale=address(scale),
        scale_stride=0 if scale is None or len(scale) == 1 else 4,
        first=address(first),
        phase=address(kind_of),
        start=addresses(copied or [None] * 4),
        start_stride=copied_stride,
        out=addresses(places),
        out_stride=stride,
        out_type=kind,
    )
    _run("band", job, places, batch * len(first) * dofs)
    keep.give_back()
    return None


def band_adjoint(
    upstream: Sequence[Array | None],
    actions: Array,
    head: Padding,
    tail: Padding,
    weights: Weights,
    *,
    of_table: bool = True,
    into: Array | None = None,
) -> tuple[Array, Any, Any, Array | None]:
    """See :func:`trajcli.kernels.torch_ops.band_adjoint`; gradients of the table go there.

    into: a buffer [B, H, D] of float32 or float64 for the gradient of the actions.
    """
    if of_table or not _forward(weights.where) or not plain(*upstream, actions, weights.table.hi):
        from trajcli.kernels import torch_ops

        return torch_ops.band_adjoint(
            upstream, actions, head, tail, weights, of_table=of_table, into=into
        )
    keep, weights = Kept(), narrowed(weights)
    batch, horizon, dofs = actions.shape
    sizes = [count_of(part) for part in (head, tail)]
    grad = empty(actions, (batch, horizon, dofs)) if into is None else into
    grad_head, grad_tail = (empty(actions, (batch, n, dofs)) for n in sizes)
    pulled, pulled_stride, pulled_kind = keep.inputs(upstream)
    table = keep.doubles(weights.table.hi)
    first, kind_of = keep.integers(weights.where.first), keep.integers(weights.where.kind)
    job = BandAdjoint(
        batch=batch,
        horizon=horizon,
        dofs=dofs,
        upstream=addresses(pulled),
        upstream_stride=pulled_stride,
        upstream_type=pulled_kind,
        head=sizes[0],
        tail=sizes[1],
        table=address(table),
        table_stride=size_of(table[0]) if table.shape[0] > 1 else 0,
        width=table.shape[3],
        rows=len(first),
        first=address(first),
        phase=address(kind_of),
        actions=address(grad),
        actions_stride=stride_of(grad),
        actions_type=is_double(grad),
        head_grad=address(grad_head),
        tail_grad=address(grad_tail),
    )
    _run("band_adjoint", job, [grad], batch * len(first) * dofs)
    of_head, of_tail = (pull_points(*part, grad) for part in ((head, grad_head), (tail, grad_tail)))
    return grad, of_head, of_tail, None


def _run(name: str, job: ctypes.Structure, outputs: Sequence[Any], elements: int) -> None:
    library = _library()[0]
    written = sum(
        size_of(array) * (8 if is_double(array) else 4) for array in outputs if array is not None
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


def _forward(where: Windows | Listed) -> bool:
    """Whether windows only move on, as those of all modes do."""
    return isinstance(where, Windows) or bool((np.diff(where.first) >= 0).all())


def _arrays(padding: Padding) -> list[Any]:
    """What points are made of."""
    if isinstance(padding, StatePoints):
        return [*padding.parts, *_arrays(padding.spacing)]
    return [padding.hi, padding.lo] if isinstance(padding, Pair) else []
