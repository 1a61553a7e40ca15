"""The kernels in plain torch: any device with float64, the reference for the others.

Every operation is one of torch's own and nothing is written in place, so that torch
differentiates, maps (vmap) and batches through it in all operands, dt included, to any order.
Shapes as in :mod:`trajcli.kernels.program`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch

from trajcli.arrays import columns
from trajcli.kernels.program import Band, Cascade, Gradients, Operands, Parts, Program, Windows

if TYPE_CHECKING:
    from torch import Tensor

    from trajcli.kernels.program import Floats


_BLOCK = 1 << 19
"""Values of an output that are computed at once, so that what lies between the operations stays in
the cache of a processor or a device."""


def forward(program: Program, operands: Operands, out: Parts) -> None:
    """Fill the outputs that are wanted."""
    wanted = [buffer is not None for buffer in out]
    for some in _blocks(program, operands.actions.shape):
        rows = trajectories(program, _taken_from(operands, some), wanted)
        for buffer, values in zip(out, rows, strict=True):
            if buffer is not None:
                buffer[some].copy_(values)


def adjoint(program: Program, operands: Operands, upstream: Parts, gradients: Gradients) -> None:
    """Fill the gradients that are wanted from those of the outputs."""
    wanted = (gradients.actions, *gradients.start, *gradients.goal)
    for some in _blocks(program, operands.actions.shape):
        given = _taken_from(operands, some)
        asked = [None if g is None else g[some] for g in upstream]
        found = pulled_back(program, given.actions.shape, given.dt, asked)
        for buffer, values in zip(wanted, found, strict=True):
            if buffer is not None:
                buffer[some].copy_(values)


def _blocks(program: Program, shape: Sequence[int]) -> Iterator[slice]:
    """Trajectories that are computed together."""
    batch, _, dofs = shape
    count = max(1, _BLOCK // max(1, program.rows * dofs))
    return (slice(begin, begin + count) for begin in range(0, batch, count))


def _taken_from(operands: Operands, some: slice) -> Operands:
    """The operands of some trajectories."""
    actions, dt, start, goal, *index = operands
    batch = actions.shape[0]

    def own(part: Tensor | None, rows: Tensor | None = None) -> Tensor | None:
        if part is None or rows is not None or part.shape[0] != batch:
            return part
        return part[some]

    return Operands(
        actions[some],
        dt[some] if dt.shape[0] == batch else dt,
        [own(part, index[0]) for part in start],
        [own(part, index[1]) for part in goal],
        *(own(rows) for rows in index),
    )


def pulled_back(
    program: Program, shape: Sequence[int], dt: Tensor, upstream: Sequence[Tensor | None]
) -> list[Tensor]:
    """Gradients of the actions [B, H, D] and of each trajectory's own start and goal, four parts
    [B, D] each, from those of the outputs; float64."""
    batch, _, dofs = shape
    with torch.enable_grad():
        actions = dt.new_zeros(tuple(shape), dtype=torch.float64).requires_grad_()
        states = [dt.new_zeros(batch, dofs, dtype=torch.float64) for _ in range(8)]
        given = [actions, *(part.requires_grad_() for part in states)]
        rows = trajectories(
            program,
            Operands(actions, dt.detach(), states[:4], states[4:]),
            [g is not None for g in upstream],
        )
        pairs = [
            (x, g.double())
            for x, g in zip(rows, upstream, strict=True)
            if x is not None and g is not None and x.requires_grad
        ]
    found: Sequence[Tensor | None] = [None] * 9
    if pairs:
        outputs, asked = zip(*pairs, strict=True)
        found = torch.autograd.grad(outputs, given, asked, allow_unused=True)
    return [x.detach() if g is None else g for x, g in zip(given, found, strict=True)]


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
    none = actions.new_zeros(batch, dofs)
    state = [none if part is None else part for part in _own(operands, "start")]
    if recorded:
        state, actions = [actions[:, 0], none, none, none], actions[:, 1:]
    count = actions.shape[1]
    dt = operands.dt if operands.dt.shape[1] == 1 else columns(operands.dt, 0, count)
    dt = dt.double()[:, :, None]  # [b, h, 1]
    rows: list[Tensor] = [none] * 4  # [B, 1 + count, D], the state first
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
    """What quantity m gains in each step, [B, H, D]."""
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
    """The rows before the first that is known take its values; zero where there is none."""
    if first == 0 or values.dim() != 3:
        return values
    if values.shape[1] <= first:
        return values * 0.0
    known = columns(values, first, values.shape[1] - first)
    return torch.cat([columns(known, 0, 1).expand(-1, first, -1), known], 1)


def _band(program: Band, operands: Operands, wanted: Sequence[bool]) -> list[Tensor | None]:
    actions = columns(operands.actions, 0, program.used).double()
    dt = operands.dt.double()
    start, goal = _own(operands, "start"), _own(operands, "goal")
    spacing = program.spacing * columns(dt, 0, 1)
    held = []
    if program.held and program.used:
        held = [columns(actions, program.used - 1, 1).expand(-1, program.held, -1)]
    zero = actions.new_zeros(actions.shape[0], 1, actions.shape[2])
    head = _points(program.head, start, spacing, zero)
    tail = _points(program.tail, goal, spacing, zero)
    points = torch.cat([*head, actions, *held, *tail], 1)
    rows: list[Tensor | None] = [_positions(program, points) if wanted[0] else None]
    if not any(wanted[1:]):
        rows += [None] * 3
    elif program.table is None:
        rows += _uneven(program, points, dt, wanted)
    else:
        rows += _even(program, points, spacing, wanted)
    if program.start_row:
        first = [zero if part is None else part[:, None] for part in start]
        rows = [x if x is None else torch.cat([s, x], 1) for s, x in zip(first, rows, strict=True)]
    return rows


def _points(
    coefficients: Floats, state: Sequence[Tensor | None], spacing: Tensor, zero: Tensor
) -> list[Tensor]:
    """Points of a state's Taylor polynomial, each [B, 1, D]: Σ_m coefficient·spacingᵐ·part."""
    scaled = [part if part is None else spacing**m * part for m, part in enumerate(state)]
    found = []
    for row in coefficients:
        # a part that has no weight gives a gradient of zero, and no NaN
        terms = [
            float(c) * x if c else x.masked_fill(torch.ones_like(x, dtype=torch.bool), 0.0)
            for c, x in zip(row, scaled, strict=True)
            if x is not None
        ]
        found.append(sum((term[:, None] for term in terms), zero))
    return found


def _positions(program: Band, points: Tensor) -> Tensor:
    where, own = program.windows, len(set(program.base)) > 1  # of a recording: a row's own point
    rows = points if own else _taken(points, where, program.base[0])
    if not program.copies and program.table is not None:
        rows = rows + _weighted(program, 0, points.diff(dim=1))
    return rows


def _even(
    program: Band, points: Tensor, spacing: Tensor, wanted: Sequence[bool]
) -> list[Tensor | None]:
    gaps = points.diff(dim=1)
    return [
        _weighted(program, m, gaps) / (spacing**m)[:, :, None] if wanted[m] else None
        for m in (1, 2, 3)
    ]


def _weighted(program: Band, order: int, gaps: Tensor) -> Tensor:
    """Σ_i table[kind, order, i]·d_i for every row, [B, T, D]."""
    assert program.table is not None
    where, weights = program.windows, program.table[:, order]  # [P, W − 1]
    total = gaps.new_zeros(gaps.shape[0], where.count, gaps.shape[2])
    for i in range(program.width - 1):
        column = weights[:, i]
        if not column.any():
            continue
        values = _taken(gaps, where, i)
        if len(weights) == 1:
            total = total + float(column[0]) * values
        else:
            each = torch.as_tensor(column[where.kind()], device=gaps.device)[:, None]
            # a NaN has no part in rows whose weight for it is zero
            total = total + (each * values).masked_fill(each == 0, 0.0)
    return total


def _uneven(
    program: Band, points: Tensor, dt: Tensor, wanted: Sequence[bool]
) -> list[Tensor | None]:
    """Derivatives of the polynomials through five points at unequal times, by Newton's form.

    P(x) = f₀ + f₁(x−x₀) + f₂(x−x₀)(x−x₁) + …, f the divided differences.
    """
    where, places = program.windows, program.base
    count = points.shape[1] - 1
    lead = max(len(program.head) - 1, 0)
    index = np.clip(np.arange(count) - lead, 0, program.steps - 1)
    before, after = int((index == 0).sum()) - 1, int((index == program.steps - 1).sum()) - 1
    steps = columns(dt, 0, program.steps)
    ends = columns(steps, 0, 1), columns(steps, program.steps - 1, 1)
    parts = [ends[0].expand(-1, before), steps, ends[1].expand(-1, after)]
    gaps = columns(torch.cat(parts, 1), 0, count)[:, :, None]  # [b, N − 1, 1]
    divided = [points.diff(dim=1) / gaps]
    span = gaps
    for order in (2, 3, 4):
        span = span[:, :-1] + gaps[:, order - 1 :]  # from a point to the order-th after it
        divided.append(divided[-1].diff(dim=1) / span)
    f1, f2, f3, f4 = (_taken(f, where, 0) for f in divided)
    own = [_taken(gaps, where, i) for i in range(program.width - 1)]
    place = torch.as_tensor(np.array(places)[where.kind()], device=points.device)[:, None]
    a = [  # how far the row's time lies behind that of each of the first four points
        sum((g * (place > j) for j, g in enumerate(own) if j >= i), own[0] * 0.0)
        - sum((g * (place <= j) for j, g in enumerate(own) if j < i), own[0] * 0.0)
        for i in range(4)
    ]
    a01, a012, a0123 = a[0] + a[1], a[0] + a[1] + a[2], a[0] + a[1] + a[2] + a[3]
    p01, p23 = a[0] * a[1], a[2] * a[3]
    p3 = p01 + a01 * a[2]  # products of two of the first three
    first = f1 + f2 * a01 + f3 * p3 + f4 * (p01 * (a[2] + a[3]) + p23 * a01)
    second = 2.0 * (f2 + f3 * a012 + f4 * (p01 + a01 * (a[2] + a[3]) + p23))
    third = 6.0 * (f3 + f4 * a0123)
    found = (first, second, third)
    return [x if want else None for x, want in zip(found, wanted[1:], strict=True)]


def _taken(values: Tensor, where: Windows, shift: int) -> Tensor:
    """values[:, first + shift] for the windows of all rows, by slices: [B, T, …]."""
    if where.count == 0:
        return values[:, :0]
    some = columns(values, min(shift, values.shape[1] - 1), min(where.last + 1, values.shape[1]))
    if where.steps > 1:
        some = some.repeat_interleave(where.steps, 1)
    begin = where.offset - where.shift * where.steps  # of row 0, before it is clipped
    end = begin + where.count
    size = some.shape[1]
    first, last = min(max(begin, 0), size), max(min(end, size), 0)
    parts = []
    if begin < 0:
        parts.append(columns(some, 0, 1).expand(-1, min(-begin, where.count), -1))
    if last > first:
        parts.append(columns(some, first, last - first))
    if end > size:
        parts.append(columns(some, size - 1, 1).expand(-1, min(end - size, where.count), -1))
    return parts[0] if len(parts) == 1 else torch.cat(parts, 1)


def _own(operands: Operands, role: str) -> list[Tensor | None]:
    """Each trajectory's own start or goal state, four parts [B, D] in float64, None is zero.

    NaN where an index that lies on a device is out of range: nobody has looked at it.
    """
    parts, index = (
        (operands.start, operands.start_index)
        if role == "start"
        else (operands.goal, operands.goal_index)
    )
    batch = operands.actions.shape[0]
    found: list[Tensor | None] = []
    for part in parts:
        if part is None:
            found.append(None)
        elif index is None or (part.shape[0] == 1 and index is None):
            found.append(part.double().expand(batch, -1))
        else:
            last = part.shape[0] - 1
            own = part.double()[index.clamp(0, last)]
            outside = (index < 0) | (index > last)
            found.append(own.masked_fill(outside[:, None], float("nan")))
    return found
