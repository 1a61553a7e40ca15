"""Launches of the cascade kernels: lanes, tiles, and pieces where there are few trajectories."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from trajcli.arrays import own_rows
from trajcli.kernels.pairs import Pair
from trajcli.kernels.triton_ops import backward_rows, carry, forward_rows
from trajcli.kernels.triton_ops.layout import Grid, grid
from trajcli.kernels.triton_ops.memory import (
    Outputs,
    on,
    rows,
    states,
    stride,
    together,
)

SCHEMES = ("euler", "zoh", "foh")
OPTIONS = {"num_warps": 1, "enable_fp_fusion": False}
"""A warp has 32 columns; fused multiplications and additions would spoil the pairs."""
NONE: tuple[None, ...] = (None,) * 8


def _dt(dt: Tensor) -> dict[str, Any]:
    steps = dt.double().contiguous()
    return {
        "dt": steps,
        "dt_stride": int(steps.shape[1]) if steps.shape[0] > 1 else 0,
        "STEPPED": int(steps.shape[1]) > 1,
    }


def forward(
    actions: Tensor,
    state: Sequence[Pair],
    dt: Tensor,
    *,
    order: int,
    scheme: str,
    start_row: bool,
    out: Sequence[Tensor | None],
    end: bool,
    state_rows: Tensor | None = None,
) -> list[Pair]:
    """cascade without sources beside the actions, of at least one row and trajectory."""
    given = rows(actions)
    batch, horizon, dofs = (int(n) for n in given.shape)
    outputs = Outputs(out)
    ends: list[Tensor | None] = [None] * 8
    if end:
        ends = [_doubles(given, batch, dofs) for _ in range(8)]
    wanted = [m for m in range(4) if end or out[m] is not None]
    given_states = states([x for pair in state for x in (pair.hi, pair.lo)], state_rows)
    parts = given_states.parts
    heavy = scheme == "foh" or dt.shape[1] > 1
    layout = grid(batch, horizon + start_row, dofs, heavy)
    common: dict[str, Any] = {
        "actions": given,
        "actions_stride": stride(given),
        "state": parts,
        "state_strides": given_states.strides,
        "state_rows": given_states.rows,
        "states": given_states.count,
        **_dt(dt),
        "out_stride": outputs.stride,
        "batch": batch,
        "horizon": horizon,
        "pieces": layout.pieces,
        "piece_rows": layout.piece_rows,
        "ORDER": order,
        "SCHEME": SCHEMES.index(scheme),
        "START_ROW": int(start_row),
        **layout.tile,
        "WIDE": layout.wide(stride(given), outputs.stride),
        **OPTIONS,
    }
    final = {
        "out": outputs.places,
        "end": tuple(ends),
        "BOTTOM": min(wanted, default=3),
        "TOP": max(wanted, default=0),
    }
    totals_only = {"out": NONE[:4], "end": NONE, "out_stride": 0, "BOTTOM": 0, "TOP": 2}
    sums = [k for m in range(order - 1, -1, -1) for k in (2 * m, 2 * m + 1)]
    begin = [parts[k] for k in sums]
    with on(given):
        if state_rows is not None and layout.pieces > 1:  # few trajectories, read once more
            begin = [None if part is None else own_rows(part, state_rows) for part in begin]
        _launch(forward_rows.forward, layout, common, final, totals_only, sums, begin)
        outputs.give_back()
    if not end:
        return []
    return [Pair(ends[2 * m], ends[2 * m + 1]) for m in range(4)]


def backward(
    upstream: Sequence[Tensor | None],
    end: Sequence[Tensor | None],
    dt: Tensor,
    shape: Sequence[int],
    *,
    order: int,
    scheme: str,
    sources: Sequence[Tensor | None],
    state: Sequence[Tensor | None],
) -> None:
    """cascade_adjoint into buffers of the caller: sources [B, H, D], state [B, D] of float64."""
    batch, horizon, dofs = (int(n) for n in shape)
    pulled, pulled_stride = together(upstream)
    outputs = Outputs(sources)
    ends = tuple(None if g is None else g.double().contiguous() for g in end)
    heavy = scheme == "foh" or dt.shape[1] > 1
    layout = grid(batch, horizon, dofs, heavy)
    common: dict[str, Any] = {
        "upstream": pulled,
        "upstream_stride": pulled_stride,
        "end": ends,
        **_dt(dt),
        "sources_stride": outputs.stride,
        "batch": batch,
        "horizon": horizon,
        "pieces": layout.pieces,
        "piece_rows": layout.piece_rows,
        "ORDER": order,
        "SCHEME": SCHEMES.index(scheme),
        "EVEN": layout.pieces == 1 and horizon % layout.K == 0,
        **layout.tile,
        "WIDE": layout.wide(pulled_stride, outputs.stride),
        **OPTIONS,
    }
    final = {"sources": outputs.places, "state": tuple(state)}
    totals_only = {"sources": NONE[:4], "state": NONE[:4], "sources_stride": 0}
    sums = list(range(2 * order))
    begin = [ends[k // 2] if k % 2 == 0 else None for k in sums]
    with on(dt):
        _launch(backward_rows.backward, layout, common, final, totals_only, sums, begin)
        outputs.give_back()


def _launch(
    kernel: Any,
    layout: Grid,
    common: dict[str, Any],
    final: dict[str, Any],
    totals_only: dict[str, Any],
    sums: Sequence[int],
    begin: Sequence[Tensor | None],
) -> None:
    """One launch, or of pieces: their totals, what they pass on, and the rows."""
    programs = layout.programs
    if layout.pieces == 1:
        kernel[programs](**common, **final, totals=NONE, bases=NONE, CHUNKED=0)
        return
    totals, bases = (_piecewise(layout, common["dt"]) for _ in range(2))
    kernel[programs](**{**common, **totals_only}, totals=totals, bases=NONE, CHUNKED=1)
    if sums:
        _carry(layout, common, totals, bases, begin, sums, kernel is backward_rows.backward)
    kernel[programs](**common, **final, totals=totals, bases=bases, CHUNKED=2)


def _carry(
    layout: Grid,
    job: dict[str, Any],
    totals: Sequence[Tensor],
    bases: Sequence[Tensor],
    begin: Sequence[Tensor | None],
    sums: Sequence[int],
    backwards: bool,
) -> None:
    """Fill ``bases`` from the totals of all pieces; see carry.py. ``sums``: which of the flat
    pairs are carried, in the order in which they depend on each other."""
    group = max(1, int(layout.pieces**0.5))
    groups = -(-layout.pieces // group)
    start_row = job.get("START_ROW", 0)
    steps, steps_stride, stepped = job["dt"], job["dt_stride"], job["STEPPED"]
    apart = steps.shape[0] if stepped else 1
    span = _spans(layout, job, start_row) if stepped else (None,) * 4
    like = totals[0]
    group_span = [_doubles(like, apart, groups) for _ in range(4)] if stepped else [None] * 4
    group_sums = [_doubles(like, layout.batch * groups, layout.dofs) for _ in sums]
    group_bases = [_doubles(like, layout.batch * groups, layout.dofs) for _ in sums]
    given = [None if part is None else part.double().contiguous() for part in begin]
    own_totals, own_bases = [totals[k] for k in sums], [bases[k] for k in sums]

    def launch(
        values: Sequence[Any],
        start: Sequence[Any],
        maps: Sequence[Any],
        count: int,
        each: int,
        size: int,
        per: int,
        into: Any,
        passed: Any,
        passed_span: Any,
    ) -> None:
        # ``count`` values of a trajectory, each of ``each`` rows, in ``per`` groups of ``size``
        lanes = layout.batch * per
        carry.carried[-(-lanes // layout.N), layout.programs[1]](
            tuple(values),
            tuple(start),
            steps,
            steps_stride,
            tuple(maps),
            count if apart > 1 else 0,
            into,
            passed,
            passed_span,
            lanes,
            count,
            each,
            job["horizon"] + start_row,
            size,
            per,
            start_row,
            SCHEME=job["SCHEME"],
            STEPPED=stepped,
            BACKWARDS=backwards,
            SUMS=len(sums) // 2,
            D=layout.dofs,
            DP=layout.DP,
            N=layout.N,
            AT_ONCE=4 if stepped else 8,
            **OPTIONS,
        )

    none = [None] * len(sums)
    launch(
        own_totals,
        none,
        span,
        layout.pieces,
        layout.piece_rows,
        group,
        groups,
        None,
        tuple(group_sums),
        tuple(group_span) if stepped else None,
    )
    launch(
        group_sums,
        given,
        group_span,
        groups,
        layout.piece_rows * group,
        groups,
        1,
        tuple(group_bases),
        None,
        None,
    )
    launch(
        own_totals,
        group_bases,
        span,
        layout.pieces,
        layout.piece_rows,
        group,
        groups,
        tuple(own_bases),
        None,
        None,
    )


def _spans(layout: Grid, job: dict[str, Any], start_row: int) -> tuple[Tensor, ...]:
    """How sums grow over each piece, [b, pieces] in four parts."""
    steps = job["dt"]
    count = int(steps.shape[0]) * layout.pieces
    span = tuple(_doubles(steps, int(steps.shape[0]), layout.pieces) for _ in range(4))
    lanes = 32
    carry.spans[(-(-count // lanes),)](
        steps,
        job["dt_stride"],
        span,
        count,
        job["horizon"],
        layout.pieces,
        layout.piece_rows,
        START_ROW=start_row,
        SCHEME=job["SCHEME"],
        N=lanes,
        K=layout.K,
        **OPTIONS,
    )
    return span


def _piecewise(layout: Grid, like: Tensor) -> tuple[Tensor, ...]:
    """Eight numbers for every piece and dof: four pairs, flat."""
    return tuple(_doubles(like, layout.batch * layout.pieces, layout.dofs) for _ in range(8))


def _doubles(like: Tensor, *shape: int) -> Tensor:
    return torch.empty(shape, dtype=torch.float64, device=like.device)
