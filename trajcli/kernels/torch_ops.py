"""The four kernels in plain torch: any device with float64, the reference for the others.

Sums and differences carry the rounding error of every operation along (see pairs.py), so
results are the exact ones rounded once to the output's type. Each trajectory and dof is
computed on its own, and a run of steps can be computed in pieces: ``cascade`` returns the
state it ended in, from which the next piece continues with the same bits.

Shapes: B trajectories, H steps, D dofs; b is 1 or B, h is 1 or H.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from trajcli.kernels.padding import count_of, points_of, pull_points, taken
from trajcli.kernels.pairs import Pair, power, split, two_product, two_sum
from trajcli.kernels.transpose import action_weights

if TYPE_CHECKING:
    from torch import Tensor

    from trajcli.kernels.program import Padding, Weights


def cascade(
    sources: Sequence[Tensor | None],
    state: Sequence[Pair],
    dt: Tensor,
    *,
    order: int,
    scheme: str,
    start_row: bool = False,
    out: Sequence[Tensor | None],
    end: bool = True,
    state_rows: Tensor | None = None,
) -> list[Pair]:
    """Sum the actions down to position and difference them up to jerk.

    sources: four arrays [B, H, D] or None. The one of ``order`` is the actions: that quantity in
    rows 1..H. Others are added to what the relation gives for their quantity in each row (they
    carry tangents of dt). state: position, velocity, acceleration and jerk in row 0, each a pair
    of float64 [B, D], or with ``state_rows`` [B] (int64) [S, D], of which each trajectory has the
    row that it says. dt [b, h] float64. out: four buffers [B, H, D] for rows 1..H, None where a
    quantity is not wanted; with ``start_row`` [B, H + 1, D], whose first row is the state.
    Returns the state in row H, unrounded; ``end`` says whether anybody wants it.
    """
    actions = sources[order]
    assert actions is not None
    state = [Pair(taken(part.hi, state_rows), taken(part.lo, state_rows)) for part in state]
    if start_row:
        out = _after_start(out, [part.hi for part in state])
    if actions.numel() == 0:
        return list(state)
    step = Pair(dt[:, :, None])  # [b, h, 1]
    x: list[Pair | None] = [None] * 4
    x[order] = _exact(actions)
    for m in range(order - 1, -1, -1):
        increment = _plus(_increment(x, state, step, m, order, scheme), sources[m])
        x[m] = _running_sum(increment, state[m])
    for m in range(order + 1, 4):
        below = _known(x[m - 1])
        x[m] = _plus((below - _previous(below, state[m - 1])) / step, sources[m])
    for m, buffer in enumerate(out):
        if buffer is not None:
            buffer.copy_(actions if m == order else _rounded(_known(x[m])))
    rows = [_known(quantity) for quantity in x]
    return [row[:, -1] for row in rows]


def cascade_adjoint(
    upstream: Sequence[Tensor | None],
    end: Sequence[Tensor | None],
    dt: Tensor,
    shape: Sequence[int],
    *,
    order: int,
    scheme: str,
    wanted: Sequence[bool] = (True,) * 4,
    of_sources: str = "float64",
) -> tuple[list[Tensor], list[Tensor]]:
    """The transpose of :func:`cascade` at fixed dt: gradients of its inputs from its outputs'.

    upstream: gradients of the four outputs, each of the ``shape`` [B, H, D]; end: gradients of
    the returned state [B, D]; None counts as zero. Returns the gradients of the four sources
    [B, H, D] (of those not ``wanted`` nothing, an empty tensor), of the type ``of_sources``, and of
    the four parts of the state [B, D], float64; none of them is an input or one another. The
    gradient of dt follows from those of the sources: see autograd/.
    """
    zero = torch.zeros(tuple(shape), dtype=torch.float64, device=dt.device)
    grad = [zero if g is None else g.double() for g in upstream]
    still = zero.new_zeros(shape[0], shape[2])
    grad_state = [still] * 4
    if zero.numel() == 0:  # no steps: the state is returned as it came
        kind = getattr(torch, of_sources)
        return [g.to(kind, copy=True) for g in grad], [
            (still if g is None else g.double()).clone() for g in end
        ]
    for m, g in enumerate(end):
        if g is not None:
            grad[m] = grad[m].clone()
            grad[m][:, -1] += g
    step = dt[:, :, None]

    def push_before(m: int, amount: Tensor) -> None:
        """Add to the gradient of the rows one step earlier; the first is the state's."""
        grad_state[m] = grad_state[m] + amount[:, 0]
        grad[m] = grad[m] + torch.cat([amount[:, 1:], torch.zeros_like(amount[:, 0, None])], 1)

    for m in range(3, order, -1):  # x_m = (x_{m-1} - previous x_{m-1}) / dt
        share = grad[m] / step
        grad[m - 1] = grad[m - 1] + share
        push_before(m - 1, -share)
    for m in range(order):  # x_m = previous x_m + increment
        n = order - m
        later = _suffix_sum(grad[m])
        grad[m] = later
        grad_state[m] = grad_state[m] + later[:, 0]
        if scheme == "euler":
            grad[m + 1] = grad[m + 1] + step * later
            continue
        for r in range(1, n):
            push_before(m + r, step**r / math.factorial(r) * later)
        now, earlier = action_weights(n, scheme)
        grad[order] = grad[order] + now * step**n * later
        if earlier:
            push_before(order, earlier * step**n * later)
    none = zero.new_zeros(0)
    kept = [g if keep else none for g, keep in zip(grad, wanted, strict=True)]
    kind = getattr(torch, of_sources)
    return [g.to(kind, copy=True) for g in kept], [g.clone() for g in grad_state]


def band(
    actions: Tensor,
    head: Padding,
    tail: Padding,
    weights: Weights,
    *,
    start: Sequence[Tensor | None] | None = None,
    start_rows: Tensor | None = None,
    out: Sequence[Tensor | None],
) -> None:
    """Slide a window of weights over the padded actions.

    The padded sequence X is head [B, n, D], actions [B, H, D], tail [B, m, D]. Row t of order m
    is the sum over i of table[:, kind[t], m, i] times X[first[t] + i], with the table, kinds and
    firsts of ``weights``. The weights of orders 1 to 3 sum to zero and are applied to differences
    from the middle of the window, so a constant has exactly zero derivatives. out: four buffers
    [B, T, D] or None; with ``start`` (parts [B, D], None is zero, or [S, D] with ``start_rows``)
    they have one row more, the first, which is the start.
    """
    if start is not None:
        out = _after_start(out, [taken(part, start_rows) for part in start])
    if actions.shape[0] == 0:
        return
    padded = _padded(actions, points_of(head, actions), points_of(tail, actions))
    table, first, kind, width = _on_device(weights, actions.device)
    window = [padded[:, first + i] for i in range(width)]  # each [B, T, D]
    middle = window[width // 2]
    offsets = [None if i == width // 2 else window[i] - middle for i in range(width)]
    for orders, points in (((0,), window), ((1, 2, 3), offsets)):
        wanted = [m for m in orders if out[m] is not None]
        sums = _weighted_sums(table[:, kind], wanted, points)
        for m, total in zip(wanted, sums, strict=True):
            out[m].copy_(_rounded(total))  # type: ignore[union-attr]


def band_adjoint(
    upstream: Sequence[Tensor | None],
    actions: Tensor,
    head: Padding,
    tail: Padding,
    weights: Weights,
    *,
    of_table: bool = True,
    into: Tensor | None = None,
) -> tuple[Tensor, Any, Any, Tensor | None]:
    """The transpose of :func:`band`: gradients of its inputs from those of its outputs.

    Returns the gradients of actions, of head and tail (see padding.pull_points) and of the table
    [b, P, 4, W] (None unless ``of_table``), all float64. into: a buffer [B, H, D] of any float
    type for the gradient of the actions.
    """
    table, first, kind, width = _on_device(weights, actions.device)
    padded = _padded(actions, points_of(head, actions), points_of(tail, actions)).hi
    grad = torch.zeros_like(padded) + mapped_zero(*upstream, table.hi)
    grad_table = torch.zeros_like(table.hi) + mapped_zero(*upstream, padded)
    shared = table.hi.shape[0] == 1
    middle = first + width // 2
    for m, g in enumerate(upstream):
        if g is None:
            continue
        g = g.double()
        for i in range(width):
            if m and i == width // 2:
                continue
            amount = table.hi[:, kind, m, i][:, :, None] * g
            grad.index_add_(1, first + i, amount)
            value = padded[:, first + i]
            if m:  # applied to the difference from the middle
                grad.index_add_(1, middle, -amount)
                value = value - padded[:, middle]
            if not of_table:
                continue
            share = (g * value).sum(2)
            share = share.sum(0, keepdim=True) if shared else share
            grad_table[:, :, m, i].index_add_(1, kind, share)
    sizes = [count_of(head), actions.shape[1], count_of(tail)]
    of_head, of_actions, of_tail = torch.split(grad, sizes, 1)
    of_head, of_tail = (
        pull_points(part, found, of_actions) for part, found in ((head, of_head), (tail, of_tail))
    )
    of_actions = of_actions.clone() if into is None else into.copy_(of_actions)
    return of_actions, of_head, of_tail, grad_table if of_table else None


def mapped_zero(*tensors: Tensor | None) -> Tensor:
    """A float64 zero that vmap maps over if it does so over one of these tensors.

    What is written into in place must be mapped over like all that is written.
    """
    present = [t for t in tensors if t is not None]
    zero = present[0].new_zeros((), dtype=torch.float64)
    for tensor in present:
        zero = zero + tensor[:0].sum()
    return zero


def _after_start(out: Sequence[Tensor | None], start: Sequence[Any]) -> Sequence[Tensor | None]:
    """The buffers without their first row, which gets the start."""
    for buffer, part in zip(out, start, strict=True):
        if buffer is not None:
            buffer[:, 0] = 0.0 if part is None else part
    return [None if buffer is None else buffer[:, 1:] for buffer in out]


def _weighted_sums(table: Pair, orders: Sequence[int], points: Sequence[Pair | None]) -> list[Pair]:
    """Σ_i weight_i · point_i for each order: table [b, T, 4, W], points W times [B, T, D].

    A point that is None is zero.
    """
    zero = table.hi.new_zeros(())
    sums = [Pair(zero, zero) for _ in orders]
    for i, point in enumerate(points):
        if point is None:
            continue
        parts = split(point.hi)  # once for all orders
        for k, m in enumerate(orders):
            hi, lo = (part[:, :, m, i, None] for part in (table.hi, table.lo))  # [b, T, 1]
            term = two_product(hi, point.hi, b_parts=parts)
            error = term.lo + (hi * point.lo + lo * point.hi)
            unused = hi == 0  # keeps a NaN out of rows it has no part in
            total = two_sum(sums[k].hi, term.hi.masked_fill(unused, 0.0))
            sums[k] = Pair(total.hi, sums[k].lo + (total.lo + error.masked_fill(unused, 0.0)))
    return sums


def _increment(
    x: Sequence[Pair | None],
    state: Sequence[Pair],
    step: Pair,
    m: int,
    order: int,
    scheme: str,
) -> Pair:
    """What quantity m gains in each step, [B, H, D]."""
    if scheme == "euler":
        above = _known(x[m + 1])
        product = two_product(step.hi, above.hi)
        return Pair(product.hi, product.lo + step.hi * above.lo)
    n = order - m
    action = _known(x[order])
    if scheme == "foh":
        action = action + Pair(float(n)) * _previous(action, state[order])
    factor = math.factorial(n) if scheme == "zoh" else math.factorial(n + 1)
    total = power(step, n) / Pair(float(factor)) * action
    for r in range(n - 1, 0, -1):
        taylor = power(step, r) / Pair(float(math.factorial(r)))
        total = total + taylor * _previous(_known(x[m + r]), state[m + r])
    return total


def _exact(values: Tensor) -> Pair:
    wide = values.double()
    return Pair(wide, torch.zeros_like(wide))


def _plus(x: Pair, source: Tensor | None) -> Pair:
    return x if source is None else x + _exact(source)


def _running_sum(increment: Pair, start: Pair) -> Pair:
    """start + increment_1 + ... + increment_t for every t, with the error of each sum.

    The plain sums may be formed in any order the device likes: what they miss of each
    increment is found exactly and summed beside them.
    """
    sums = torch.cumsum(torch.cat([start.hi[:, None], increment.hi], 1), 1)
    gained = two_sum(sums[:, 1:], -sums[:, :-1])
    missed = ((increment.hi - gained.hi) - gained.lo) + increment.lo
    errors = torch.cat([start.lo[:, None], torch.nan_to_num(missed, 0.0, 0.0, 0.0)], 1)
    return Pair(sums[:, 1:], torch.cumsum(errors, 1)[:, 1:])


def _suffix_sum(values: Tensor) -> Tensor:
    """values_t + values_{t+1} + ... to the end, rounded once."""
    zero = values.new_zeros(values.shape[0], values.shape[2])
    return _rounded(
        _running_sum(Pair(values.flip(1), torch.zeros_like(values)), Pair(zero, zero))
    ).flip(1)


def _previous(x: Pair, state: Pair) -> Pair:
    """The quantity one row earlier; the state's before the first row."""
    return Pair(
        torch.cat([state.hi[:, None], x.hi[:, :-1]], 1),
        torch.cat([state.lo[:, None], x.lo[:, :-1]], 1),
    )


def _rounded(x: Pair) -> Tensor:
    total: Tensor = x.hi + torch.nan_to_num(x.lo, 0.0, 0.0, 0.0)
    return total


def _known(x: Pair | None) -> Pair:
    assert x is not None
    return x


def _padded(actions: Tensor, head: Pair | None, tail: Pair | None) -> Pair:
    """The padded sequence, [B, n + H + m, D]."""
    parts = [head, _exact(actions), tail]
    present = [part for part in parts if part is not None]
    return Pair(torch.cat([p.hi for p in present], 1), torch.cat([p.lo for p in present], 1))


def _on_device(weights: Weights, device: torch.device) -> tuple[Pair, Tensor, Tensor, int]:
    first = torch.as_tensor(weights.where.first, device=device)
    kind = torch.as_tensor(weights.where.kind, device=device)
    return weights.table, first, kind, int(weights.table.hi.shape[-1])
