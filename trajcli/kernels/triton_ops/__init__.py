"""The kernels in Triton, for CUDA devices.

Compiled when first used, for each number of dofs and combination of options, and kept in
Triton's own cache on disk. They run on the current stream of their tensors' device, never wait
for it and copy nothing from the host, so that once warm they can be captured in a CUDA graph.
The arithmetic is that of the C++ kernels; what these do not do themselves (tensors under a
transform, sources beside the actions, windows of no formula) torch_ops does.

The source of Triton's defects that shaped them: associative_scan with reverse=True gives wrong
results (triton-lang/triton issues 4362 and 8412), so there is none; the interpreter reads
bfloat16 as whole numbers (issue 11584) and rounds fma twice, so the first is not tested there
and products' errors are found another way.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import Any

from trajcli.arrays import is_torch
from trajcli.kernels.narrow import narrowed
from trajcli.kernels.pairs import Array, Pair
from trajcli.kernels.program import Weights

OLDEST = (3, 6)
"""The oldest Triton these kernels are tested with."""


@cache
def absence() -> str:
    """Why these kernels cannot run here; empty where they can, given a CUDA device."""
    from importlib.metadata import PackageNotFoundError, version
    from importlib.util import find_spec

    if find_spec("triton") is None:
        return "triton is not installed; it comes with torch's CUDA builds"
    try:
        found = version("triton")
    except PackageNotFoundError:
        return ""  # a build without metadata
    parts = found.split(".")
    if not all(part.isdecimal() for part in parts[:2]):
        return ""
    oldest = ".".join(map(str, OLDEST))
    return f"triton {found} is older than {oldest}" if (*map(int, parts[:2]),) < OLDEST else ""


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
    """See :func:`trajcli.kernels.torch_ops.cascade`; sources beside the actions go there.

    state_rows [B], int64: which of the states [S, D] each trajectory begins with.
    """
    actions = sources[order]
    others = [e for m, e in enumerate(sources) if m != order and e is not None]
    parts = [x for pair in state for x in (pair.hi, pair.lo)]
    if others or actions is None or actions.numel() == 0 or not _own(actions, dt, *out, *parts):
        from trajcli.kernels import torch_ops

        if state_rows is not None:
            state = [Pair(_taken(p.hi, state_rows), _taken(p.lo, state_rows)) for p in state]
        return torch_ops.cascade(
            sources, state, dt, order=order, scheme=scheme, start_row=start_row, out=out, end=end
        )
    from trajcli.kernels.triton_ops import run_cascade

    return run_cascade.forward(
        actions,
        state,
        dt,
        order=order,
        scheme=scheme,
        start_row=start_row,
        out=out,
        end=end,
        state_rows=state_rows,
    )


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
    batch, horizon, dofs = (int(n) for n in shape)
    if batch * horizon * dofs == 0 or not _own(dt, *upstream, *end):
        from trajcli.kernels import torch_ops

        return torch_ops.cascade_adjoint(
            upstream, end, dt, shape, order=order, scheme=scheme, wanted=wanted
        )
    sources = [_doubles(dt, batch, horizon, dofs) if keep else None for keep in wanted]
    state = [_doubles(dt, batch, dofs) for _ in range(4)]
    adjoint_into(upstream, end, dt, shape, order=order, scheme=scheme, sources=sources, state=state)
    return [_doubles(dt, 0) if g is None else g for g in sources], state


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
    """The same into buffers of the caller, sources of any float type, states of float64; None
    where nobody asks. At least one trajectory, row and dof."""
    from trajcli.kernels.triton_ops import run_cascade

    run_cascade.backward(
        upstream, end, dt, shape, order=order, scheme=scheme, sources=sources, state=state
    )


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
    parts = [x for pair in pairs for x in (pair.hi, pair.lo)]
    from trajcli.kernels.triton_ops import formula, run_band

    where = None
    if len(weights.first) and actions.shape[0] and _own(actions, *out, *(start or ()), *parts):
        weights = _usable(weights)
        where = formula.windows(weights.first, weights.phase)
    if where is None:
        from trajcli.kernels import torch_ops

        return torch_ops.band(actions, head, tail, weights, start=start, out=out)
    return run_band.forward(actions, head, tail, weights, where, start=start, out=out)


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
    """See :func:`trajcli.kernels.torch_ops.band_adjoint`.

    into: a buffer [B, H, D] of any float type for the gradient of the actions.
    """
    from trajcli.kernels.triton_ops import formula, run_band, run_table

    where = whole = None
    table = weights.table.hi
    usable = weights
    if len(weights.first) and actions.shape[0] and _own(*upstream, actions, head, tail, table):
        usable = _usable(weights)
        where = whole = formula.windows(usable.first, usable.phase)
        if of_table and usable is not weights:  # what was cut off has gradients, too
            whole = formula.windows(weights.first, weights.phase)
    if where is None or whole is None:
        from trajcli.kernels import torch_ops

        return torch_ops.band_adjoint(upstream, actions, head, tail, weights, of_table=of_table)
    batch, horizon, dofs = (int(n) for n in actions.shape)
    sizes = [0 if part is None else int(part.shape[1]) for part in (head, tail)]
    grad = _doubles(actions, batch, horizon, dofs) if into is None else into
    ends = [_doubles(actions, batch, n, dofs) for n in sizes]
    run_band.backward(upstream, usable, where, grads=(grad, *ends))
    given = None
    if of_table:
        given = run_table.gradient(upstream, actions, head, tail, table, whole)
    return grad, ends[0], ends[1], given


def _usable(weights: Weights) -> Weights:
    """No wider than they need be; what evenly spaced ones were made of if it can be read."""
    evenly = weights.evenly
    if evenly is not None and not _own(evenly.spacing.hi, evenly.spacing.lo):
        return replace(weights, evenly=None)
    return narrowed(weights)


def _taken(part: Any, rows: Array) -> Any:
    """Rows of a part of a pair, which may be the number 0."""
    return part[rows] if is_torch(part) else part


def _own(*arrays: Any) -> bool:
    """Whether Triton can read these: tensors on a device, not under a transform."""
    return all(_is_own(array) for array in arrays if array is not None)


def _is_own(array: Any) -> bool:
    if not is_torch(array):
        return not hasattr(array, "shape")  # the number 0, as a pair's low part
    if array.layout != sys.modules["torch"].strided or array.is_neg() or array.is_complex():
        return False
    if array.device.type != "cuda" and not _interpreted():
        return False
    try:
        array.data_ptr()
    except RuntimeError:  # a tensor that stands for many (vmap), or for none
        return False
    return True


@cache
def _interpreted() -> bool:
    """Whether Triton runs its kernels in Python, on the CPU: for tests."""
    from triton import knobs

    return bool(knobs.runtime.interpret)


def _doubles(like: Array, *shape: int) -> Any:
    return like.new_empty(shape, dtype=sys.modules["torch"].float64)
