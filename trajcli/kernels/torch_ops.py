"""The kernels in plain torch: any device with float64, the reference for the others.

Every operation is torch's and nothing is written in place, so that torch
differentiates, maps (vmap) and batches through it in all operands, dt included, to any order.
Shapes as in :mod:`trajcli.kernels.program`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import TYPE_CHECKING

import numpy as np
import torch

from trajcli.arrays import columns
from trajcli.kernels.program import Band, Cascade, Gradients, Operands, Parts, Program

if TYPE_CHECKING:
    from torch import Tensor

    from trajcli.kernels.program import Floats


_BLOCK = 1 << 19
"""Values of an output that are computed at once, so that intermediate values stay in the cache
of a processor or a device."""


def forward(program: Program, operands: Operands, out: Parts) -> None:
    """Fill the outputs; None is not wanted."""
    wanted = [buffer is not None for buffer in out]
    for block in _blocks(program, operands.actions.shape):
        rows = trajectories(program, _block_operands(operands, block), wanted)
        for buffer, values in zip(out, rows, strict=True):
            if buffer is not None:
                buffer[block].copy_(values)


def adjoint(program: Program, operands: Operands, upstream: Parts, gradients: Gradients) -> None:
    """Fill the gradients from those of the outputs; None is not wanted."""
    buffers = (gradients.actions, *gradients.start, *gradients.goal)
    for block in _blocks(program, operands.actions.shape):
        inputs = _block_operands(operands, block)
        of_rows = [None if grad is None else grad[block] for grad in upstream]
        pulled = pulled_back(program, inputs.actions.shape, inputs.dt, of_rows)
        for buffer, values in zip(buffers, pulled, strict=True):
            if buffer is not None:
                buffer[block].copy_(values)


def _blocks(program: Program, shape: Sequence[int]) -> Iterator[slice]:
    """Trajectories that are computed together."""
    batch, _, dofs = shape
    count = max(1, _BLOCK // max(1, program.rows * dofs))
    return (slice(begin, begin + count) for begin in range(0, batch, count))


def _block_operands(operands: Operands, block: slice) -> Operands:
    """The operands of a block of trajectories."""
    actions, dt, start, goal, start_index, goal_index = operands
    batch = actions.shape[0]

    def rows(values: Tensor | None) -> Tensor | None:
        return values if values is None or values.shape[0] != batch else values[block]

    def states(parts: Parts, index: Tensor | None) -> Parts:
        return [rows(part) for part in parts] if index is None else parts

    return Operands(
        actions[block],
        dt[block] if dt.shape[0] == batch else dt,
        states(start, start_index),
        states(goal, goal_index),
        rows(start_index),
        rows(goal_index),
    )


def pulled_back(
    program: Program, shape: Sequence[int], dt: Tensor, upstream: Sequence[Tensor | None]
) -> list[Tensor]:
    """Gradients of the actions [B, H, D] and of the start and goal of every trajectory, four parts
    [B, D] each, from those of the outputs; float64."""
    batch, _, dofs = shape
    with torch.enable_grad():
        actions = dt.new_zeros(tuple(shape), dtype=torch.float64)
        states = [dt.new_zeros(batch, dofs, dtype=torch.float64) for _ in range(8)]
        inputs = [x.requires_grad_() for x in (actions, *states)]
        operands = Operands(actions, dt.detach(), states[:4], states[4:])
        rows = trajectories(program, operands, [grad is not None for grad in upstream])
        pairs = [
            (x, grad.double())
            for x, grad in zip(rows, upstream, strict=True)
            if x is not None and grad is not None and x.requires_grad
        ]
    pulled: Sequence[Tensor | None] = [None] * 9
    if pairs:
        outputs, of_rows = zip(*pairs, strict=True)
        pulled = torch.autograd.grad(outputs, inputs, of_rows, allow_unused=True)
    return [x.detach() if grad is None else grad for x, grad in zip(inputs, pulled, strict=True)]


def trajectories(
    program: Program, operands: Operands, wanted: Sequence[bool] = (True,) * 4
) -> list[Tensor | None]:
    """The outputs [B, T, D] in float64, None for what is not wanted."""
    if isinstance(program, Cascade):
        return _cascade(program, operands, wanted)
    return _band(program, operands, wanted)


def _cascade(program: Cascade, operands: Operands, wanted: Sequence[bool]) -> list[Tensor | None]:
    k, recorded = program.order, int(program.recorded)
    actions = columns(operands.actions, 0, program.used).double()
    batch, _, dofs = actions.shape
    zero = actions.new_zeros(batch, dofs)
    state = [zero if part is None else part for part in _states(operands, "start")]
    if recorded:
        state, actions = [actions[:, 0], zero, zero, zero], actions[:, 1:]
    count = actions.shape[1]
    dt = operands.dt if operands.dt.shape[1] == 1 else columns(operands.dt, 0, count)
    dt = dt.double()[:, :, None]  # [b, h, 1]
    rows: list[Tensor] = [zero] * 4  # [B, 1 + count, D], the state first
    rows[k] = torch.cat([state[k][:, None], actions], 1)
    for m in reversed(range(k)):
        gain = _gain(program.scheme, rows, dt, m, k)
        rows[m] = torch.cat([state[m][:, None], gain], 1).cumsum(1)
    for m in range(k + 1, 1 + max((m for m in range(4) if wanted[m]), default=0)):
        rows[m] = torch.cat([state[m][:, None], rows[m - 1].diff(dim=1) / dt], 1)
    if recorded:
        rows = [_from_row(values, m) for m, values in enumerate(rows)]
    begin = int(not (program.start_row or recorded))
    return [
        columns(values, begin, 1 + count - begin) if want else None
        for values, want in zip(rows, wanted, strict=True)
    ]


def _gain(scheme: str, rows: Sequence[Tensor], dt: Tensor, m: int, k: int) -> Tensor:
    """What quantity m gains in every step, [B, H, D]."""
    if scheme == "euler":
        return dt * rows[m + 1][:, 1:]
    n = k - m
    now, before = rows[k][:, 1:], rows[k][:, :-1]
    if scheme == "zoh":
        gain = dt**n / math.factorial(n) * now
    else:
        gain = dt**n / math.factorial(n + 1) * (now + n * before)
    for r in range(1, n):
        gain = gain + dt**r / math.factorial(r) * rows[m + r][:, :-1]
    return gain


def _from_row(values: Tensor, first: int) -> Tensor:
    """The rows before the first known one take its values; zero where there is none."""
    if first == 0 or values.dim() != 3:
        return values
    if values.shape[1] <= first:
        return values * 0.0
    known = columns(values, first, values.shape[1] - first)
    return torch.cat([columns(known, 0, 1).expand(-1, first, -1), known], 1)


def _band(program: Band, operands: Operands, wanted: Sequence[bool]) -> list[Tensor | None]:
    actions = columns(operands.actions, 0, program.used).double()
    dt = operands.dt.double()
    start, goal = _states(operands, "start"), _states(operands, "goal")
    spacing = program.spacing * columns(dt, 0, 1)
    held = []
    if program.held and program.used:
        held = [columns(actions, program.used - 1, 1).expand(-1, program.held, -1)]
    zero = actions.new_zeros(actions.shape[0], 1, actions.shape[2])
    head = _points(program.head, start, spacing, zero)
    tail = _points(program.tail, goal, spacing, zero)
    points = torch.cat([*head, actions, *held, *tail], 1)
    if program.windows.count == 0:
        runs: list[list[Tensor]] = [[] for _ in wanted]
    elif program.table is None:
        runs = _uneven(program, points, dt, wanted)
    else:
        runs = _even(program, points, spacing, wanted)
    rows: list[Tensor | None] = []
    for part, run, want in zip(start, runs, wanted, strict=True):
        first = [zero if part is None else part[:, None]] if program.start_row else [zero[:, :0]]
        rows.append(torch.cat([*first, *_of_windows(program, run)], 1) if want else None)
    return rows


def _points(
    coefficients: Floats, state: Sequence[Tensor | None], spacing: Tensor, zero: Tensor
) -> list[Tensor]:
    """Points of a state's Taylor polynomial, [B, 1, D]: Σ_m coefficient·spacingᵐ·part."""
    scaled = [part if part is None else spacing**m * part for m, part in enumerate(state)]
    points = []
    for row in coefficients:
        # a part that has no weight gives a gradient of zero, and no NaN
        terms = [
            float(c) * x if c else x.masked_fill(torch.ones_like(x, dtype=torch.bool), 0.0)
            for c, x in zip(row, scaled, strict=True)
            if x is not None
        ]
        points.append(sum((term[:, None] for term in terms), zero))
    return points


def _runs(program: Band) -> Iterator[tuple[int, int, range]]:
    """The rows from t + offset = 0 on, as runs: first window, number of windows, kinds.

    A run has a row for every kind of every window. In between, windows move on by a point every
    ``steps`` rows; before and after they stand still, and every row is a run.
    """
    windows, kinds = program.windows, len(program.base)
    begin = windows.shift * windows.steps
    end = begin + windows.steps
    yield from ((0, 1, range(kind, kind + 1)) for kind in range(min(begin, kinds)))
    if begin < kinds:
        yield 0, windows.last + 1, range(begin, min(end, kinds))
    yield from ((windows.last, 1, range(kind, kind + 1)) for kind in range(end, kinds))


def _of_windows(program: Band, runs: Sequence[Tensor]) -> list[Tensor]:
    """The rows that the program has, of all that its runs have."""
    first, count = program.windows.offset, program.windows.count
    parts = []
    for values in runs:
        begin, end = max(first, 0), min(first + count, values.shape[1])
        if begin < end:
            parts.append(columns(values, begin, end - begin))
        first -= values.shape[1]
    return parts


def _even(
    program: Band, points: Tensor, spacing: Tensor, wanted: Sequence[bool]
) -> list[list[Tensor]]:
    """Of every output its runs, by the program's table."""
    assert program.table is not None
    powers = torch.stack([spacing**m for m in range(4)], 2)[..., None]  # [b, 1, 4, 1]
    table = torch.as_tensor(program.table, device=points.device)
    weights = (table / powers)[..., None, None]  # [b, P, 4, W − 1, 1, 1]
    gaps = points.diff(dim=1)
    # of dt, too: its gradient is zero where there are no weights
    zero = points.new_zeros(points.shape[0], 1, 1, points.shape[2])
    zeros = [zero / powers[:, :, m, None] for m in range(4)]
    outputs: list[list[Tensor]] = [[] for _ in wanted]
    for first, count, kinds in _runs(program):
        base = columns(points, first + program.base[kinds[0]], count)[:, None]
        for m in (m for m in range(4) if wanted[m]):
            parts = []
            # a zero weight adds nothing, so that a NaN stays in the rows that depend on it
            nonzero = (program.table[:, m] != 0).tolist()
            for mask, group in groupby(kinds, nonzero.__getitem__):
                phases = list(group)
                values = zeros[m] if m else base  # [B, phases, windows, D]
                for i in np.flatnonzero(mask):
                    gap = columns(gaps, first + int(i), count)[:, None]
                    weight = weights[:, phases[0] : phases[-1] + 1, m, i]
                    values = torch.addcmul(values, gap, weight)
                parts.append(values.expand(-1, len(phases), count, -1))
            rows = parts[0] if len(parts) == 1 else torch.cat(parts, 1)
            size = (rows.shape[0], len(kinds) * count, rows.shape[3])
            outputs[m].append(rows.transpose(1, 2).reshape(size))
    return outputs


def _uneven(
    program: Band, points: Tensor, dt: Tensor, wanted: Sequence[bool]
) -> list[list[Tensor]]:
    """The same for unequal steps: derivatives of polynomials through five points, by Newton's form.

    P(x) = f₀ + f₁(x−x₀) + f₂(x−x₀)(x−x₁) + …, f the divided differences.
    """
    gaps = _gaps(program, dt, points.shape[1] - 1)
    divided = [points.diff(dim=1) / gaps] if any(wanted[1:]) else []
    span = gaps
    for order in (2, 3, 4) if divided else ():
        span = span[:, :-1] + gaps[:, order - 1 :]  # from a point to the order-th after it
        divided.append(divided[-1].diff(dim=1) / span)
    outputs: list[list[Tensor]] = [[] for _ in wanted]
    for first, count, (kind,) in _runs(program):
        base = program.base[kind]
        values = [columns(points, first + base, count)]
        if divided:
            steps = [columns(gaps, first + i, count) for i in range(program.width - 1)]
            # the time from points 0 to 3 to the row
            times = [sum(steps[i:base]) - sum(steps[base:i]) for i in range(4)]
            values += _newton([columns(f, first, count) for f in divided], times)
        for runs, run in zip(outputs, values, strict=False):
            runs.append(run)
    return outputs


def _gaps(program: Band, dt: Tensor, count: int) -> Tensor:
    """The time from every point to the next, [b, N − 1, 1]."""
    lead = max(len(program.head) - 1, 0)
    index = np.clip(np.arange(count) - lead, 0, program.steps - 1)
    before, after = int((index == 0).sum()) - 1, int((index == program.steps - 1).sum()) - 1
    steps = columns(dt, 0, program.steps)
    ends = columns(steps, 0, 1), columns(steps, program.steps - 1, 1)
    parts = [ends[0].expand(-1, before), steps, ends[1].expand(-1, after)]
    gaps: Tensor = columns(torch.cat(parts, 1), 0, count)[:, :, None]
    return gaps


def _newton(divided: Sequence[Tensor], times: Sequence[Tensor]) -> list[Tensor]:
    """Derivatives 1 to 3 from divided differences 1 to 4 and the time from points 0 to 3."""
    f1, f2, f3, f4 = divided
    a, b, c, d = times
    pair, triple = a + b, a + b + c
    pairs = a * b + pair * c  # products of two of the first three
    cubic = a * b * (c + d) + c * d * pair
    first = f1 + f2 * pair + f3 * pairs + f4 * cubic
    second = 2.0 * (f2 + f3 * triple + f4 * (pairs + d * triple))
    return [first, second, 6.0 * (f3 + f4 * (triple + d))]


def _states(operands: Operands, role: str) -> list[Tensor | None]:
    """The start or goal state of every trajectory, four parts [B, D] in float64, None is zero.

    NaN where an index that lies on a device is out of range: its values are not checked.
    """
    parts, index = (
        (operands.start, operands.start_index)
        if role == "start"
        else (operands.goal, operands.goal_index)
    )
    batch = operands.actions.shape[0]
    states: list[Tensor | None] = []
    for part in parts:
        if part is None:
            states.append(None)
        elif index is None:
            states.append(part.double().expand(batch, -1))
        else:
            last = part.shape[0] - 1
            outside = (index < 0) | (index > last)
            state = part.double()[index.clamp(0, last)]
            states.append(state.masked_fill(outside[:, None], float("nan")))
    return states
