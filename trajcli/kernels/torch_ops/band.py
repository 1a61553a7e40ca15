"""The band in plain torch; see :class:`trajcli.kernels.program.Band`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby, pairwise
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import torch

from trajcli.arrays import columns
from trajcli.kernels.fit import fit_weights
from trajcli.kernels.program import Band

if TYPE_CHECKING:
    from torch import Tensor

    from trajcli.kernels.program import Floats


def outputs(
    program: Band,
    actions: Tensor,
    dt: Tensor,
    start: Sequence[Tensor | None],
    goal: Sequence[Tensor | None],
    wanted: Sequence[bool],
) -> list[Tensor | None]:
    """Rows [B, T, D] from the used actions, dt [b, h] and state parts [B, D], all in float64."""
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
    elif program.degree is not None and program.table is None:
        runs = _fitted(program, points, dt, wanted)
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
            # points without a weight are left out, so that their NaN stays in other rows
            weighted = _weighted(program.table[kinds.start : kinds.stop, m]).tolist()
            for mask, group in groupby(range(len(kinds)), weighted.__getitem__):
                phases = [kinds[k] for k in group]
                values = zeros[m] if m else base  # [B, phases, windows, D]
                for before, after in pairwise(np.flatnonzero(mask).tolist()):
                    gap = columns(gaps, first + before, count)
                    if after > before + 1:
                        near, far = (columns(points, first + i, count) for i in (before, after))
                        gap = far - near
                    weight = weights[:, phases[0] : phases[-1] + 1, m, before]
                    values = torch.addcmul(values, gap[:, None], weight)
                parts.append(values.expand(-1, len(phases), count, -1))
            rows = parts[0] if len(parts) == 1 else torch.cat(parts, 1)
            size = (rows.shape[0], len(kinds) * count, rows.shape[3])
            outputs[m].append(rows.transpose(1, 2).reshape(size))
    return outputs


def _weighted(weights: Floats) -> npt.NDArray[np.bool_]:
    """Which points [P, W] have a weight, by those of differences [P, W − 1]."""
    weighted: npt.NDArray[np.bool_] = np.diff(weights, prepend=0.0, append=0.0) != 0.0
    return weighted


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


def _fitted(
    program: Band, points: Tensor, dt: Tensor, wanted: Sequence[bool]
) -> list[list[Tensor]]:
    """The same by polynomials that fit the points of a window best."""
    assert program.degree is not None
    gaps = _gaps(program, dt, points.shape[1] - 1)
    outputs: list[list[Tensor]] = [[] for _ in wanted]
    for first, count, (kind,) in _runs(program):
        base = program.base[kind]
        steps = [columns(gaps, first + i, count) for i in range(program.width - 1)]
        # the time from the row to every point of its window, [b, count, W]
        since = [sum(steps[base:i]) - sum(steps[i:base]) for i in range(program.width)]
        times = torch.cat([torch.zeros_like(steps[0]) + x for x in since], 2)
        inside = None
        if program.spans is not None:
            row = first + kind
            spans = torch.as_tensor(program.spans[:, row : row + count], device=points.device)
            place = first + torch.arange(count, device=points.device)[:, None]
            place = place + torch.arange(program.width, device=points.device)  # [count, W]
            inside = (place >= spans[..., :1]) & (place <= spans[..., 1:])  # [b, count, W]
        weights = fit_weights(times, program.degree, 1.0 if inside is None else inside.double())
        here = columns(points, first + base, count)
        rises = [columns(points, first + i, count) - here for i in range(program.width)]
        if inside is not None:  # a NaN beyond a window stays there
            rises = [x.masked_fill(~inside[..., i, None], 0.0) for i, x in enumerate(rises)]
        for m in (m for m in range(4) if wanted[m]):
            value = here if m == 0 else torch.zeros_like(here)
            for i, rise in enumerate(rises):
                value = torch.addcmul(value, rise, weights[m][..., i, None])
            outputs[m].append(value)
    return outputs


def _gaps(program: Band, dt: Tensor, count: int) -> Tensor:
    """The time from every point to the next, [b, N − 1, 1]."""
    lead = max(len(program.head) - 1, 0)
    index = np.clip(np.arange(count) - lead, 0, program.steps - 1)
    before, after = int((index == 0).sum()) - 1, int((index == program.steps - 1).sum()) - 1
    steps = dt.expand(-1, program.steps) if dt.shape[1] == 1 else columns(dt, 0, program.steps)
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
