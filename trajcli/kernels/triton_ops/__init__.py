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
from trajcli.kernels.program import Held, Padding, StatePoints, Weights, Windows

OLDEST = (3, 6)
"""The oldest Triton these kernels are tested with."""
_MOST_DOFS = 32 * 65535
"""As many as the second axis of a grid has places for."""


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

    The state may be of any float type. A trajectory whose row there is no state for is NaN.
    """
    actions = sources[order]
    others = [e for m, e in enumerate(sources) if m != order and e is not None]
    parts = [x for pair in state for x in (pair.hi, pair.lo)]
    if (
        others
        or actions is None
        or actions.numel() == 0
        or not _own(actions, dt, *out, *parts, state_rows)
    ):
        from trajcli.kernels import torch_ops

        return torch_ops.cascade(
            sources,
            state,
            dt,
            order=order,
            scheme=scheme,
            start_row=start_row,
            out=out,
            end=end,
            state_rows=state_rows,
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
    of_sources: str = "float64",
) -> tuple[list[Array], list[Array]]:
    """See :func:`trajcli.kernels.torch_ops.cascade_adjoint`."""
    batch, horizon, dofs = (int(n) for n in shape)
    if batch * horizon * dofs == 0 or not _own(dt, *upstream, *end) or _wide(shape):
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
    kind = getattr(sys.modules["torch"], of_sources)
    full = batch, horizon, dofs
    sources = [dt.new_empty(full, dtype=kind) if keep else None for keep in wanted]
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
    head: Padding,
    tail: Padding,
    weights: Weights,
    *,
    start: Sequence[Array | None] | None = None,
    start_rows: Array | None = None,
    out: Sequence[Array | None],
) -> None:
    """See :func:`trajcli.kernels.torch_ops.band`.

    States may be of any float type. Where there is none for a trajectory's row, its points are
    NaN.
    """
    made_of = [*(start or ()), *_arrays(head, tail, weights.table)]
    if not _by_formula(actions, head, tail, weights) or not _own(actions, *out, *made_of):
        from trajcli.kernels import torch_ops

        return torch_ops.band(
            actions, head, tail, weights, start=start, start_rows=start_rows, out=out
        )
    from trajcli.kernels.triton_ops import run_band

    given: tuple[Any, Any] = (head, tail)
    return run_band.forward(
        actions, *given, _usable(weights), start=start, start_rows=start_rows, out=out
    )


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
    """See :func:`trajcli.kernels.torch_ops.band_adjoint`."""
    made_of = _arrays(head, tail, weights.table)
    if not _by_formula(actions, head, tail, weights) or not _own(
        *upstream, actions, into, *made_of
    ):
        from trajcli.kernels import torch_ops

        return torch_ops.band_adjoint(
            upstream, actions, head, tail, weights, of_table=of_table, into=into
        )
    from trajcli.kernels.triton_ops import run_band, run_table

    given: tuple[Any, Any] = (head, tail)
    grad = _doubles(actions, *actions.shape) if into is None else into
    ends = run_band.backward(upstream, *given, _usable(weights), grad)
    of_weights = None
    if of_table:  # what is cut off as of no use has gradients, too
        of_weights = run_table.gradient(upstream, actions, *given, weights)
    return grad, *ends, of_weights


def _by_formula(actions: Array, head: Padding, tail: Padding, weights: Weights) -> bool:
    """Whether there is something to do, and windows and points are as kernels are told them."""
    if not isinstance(weights.where, Windows) or not weights.where.count or not len(actions):
        return False
    if _wide(actions.shape):
        return False
    return not isinstance(head, Pair | Held) and not isinstance(tail, Pair)


def _wide(shape: Sequence[int]) -> bool:
    return int(shape[2]) > _MOST_DOFS


def _usable(weights: Weights) -> Weights:
    """No wider than they need be; what evenly spaced ones were made of if it can be read."""
    evenly = weights.evenly
    if evenly is not None and not _own(evenly.spacing.hi, evenly.spacing.lo):
        return replace(weights, evenly=None)
    narrow = narrowed(weights)
    return narrow if isinstance(narrow.where, Windows) else weights


def _arrays(*padding: Padding) -> list[Any]:
    """What points are made of, and pairs."""
    found: list[Any] = []
    for part in padding:
        if isinstance(part, StatePoints):
            found += [*part.parts, part.rows, *_arrays(part.spacing)]
        if isinstance(part, Pair):
            found += [part.hi, part.lo]
    return found


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
