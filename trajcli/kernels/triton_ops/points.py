"""The last points of a band's windows: actions, and what states make; and their transposes."""

from __future__ import annotations

import triton
import triton.language as tl

from trajcli.kernels.triton_ops.tiles import load_state, load_tile
from trajcli.kernels.triton_ops.windows import first_of


@triton.jit
def load_points(
    pointers, mask, to_lanes, begin, windows, spans, ends, lane, spacing, FORM: tl.constexpr
):  # fmt: skip
    """The last points of the windows of rows begin … begin + K − 1, loaded or made of states."""
    WIDTH: tl.constexpr = FORM.WIDTH
    K: tl.constexpr = FORM.K
    points = load_tile(pointers, mask, to_lanes, K)
    start, goal = ends
    if start[0] is not None or goal[0] is not None:
        head, _, tail = spans
        low = first_of(begin, windows, FORM) + WIDTH - 1
        high = first_of(begin + K - 1, windows, FORM) + WIDTH - 1
        if (low < head) | (high >= tail):
            for k in range(K):
                point = first_of(begin + k, windows, FORM) + WIDTH - 1
                if start[0] is not None:
                    if (point >= 0) & (point < head):
                        state = load_state(start[1], start[2], start[3], lane, FORM.D)
                        made = state_point(start[0], point, state, spacing)
                        points = replace(points, k, made)
                if goal[0] is not None:
                    if point >= tail:
                        state = load_state(goal[1], goal[2], goal[3], lane, FORM.D)
                        made = state_point(goal[0], point - tail, state, spacing)
                        points = replace(points, k, made)
    return points


@triton.jit
def pull_points(
    points, begin, held_sum, windows, spans, ends, places, there, spacing, FORM: tl.constexpr
):  # fmt: skip
    """The transpose: adds the gradients of points that states made to those of the states, and
    those of the held last action to the action's."""
    WIDTH: tl.constexpr = FORM.WIDTH
    K: tl.constexpr = FORM.K
    head, held, tail = spans
    start, goal = ends
    low = first_of(begin, windows, FORM) + WIDTH - 1
    high = first_of(begin + K - 1, windows, FORM) + WIDTH - 1
    if (low < head) | (high >= held - 1):
        for j in range(K):
            k = K - 1 - j
            t = begin + k
            point = first_of(t, windows, FORM) + WIDTH - 1
            value = element(points, k)
            if first_of(t, windows, FORM) != first_of(t - 1, windows, FORM):
                if start[0] is not None:
                    if (point >= 0) & (point < head):
                        add_to_state(start[0], point, start[1], places, there, value, spacing)
                if goal[0] is not None:
                    if point >= tail:
                        add_to_state(goal[0], point - tail, goal[1], places, there, value, spacing)
                if (point >= held) & (point < tail):
                    held_sum += value
                if point == held - 1:
                    points = replace(points, k, value + held_sum)
    return points, held_sum


@triton.jit
def state_point(table, row, state, spacing):
    """A point made of a state: the row's coefficients by the powers of h."""
    powers = powers_of(spacing)
    value = tl.load(table + 4 * row) * state[0]
    for m in tl.static_range(1, 4):
        value = tl.fma(tl.load(table + 4 * row + m) * powers[m - 1], state[m], value)
    return value


@triton.jit
def add_to_state(table, row, parts, places, there, gradient, spacing):
    """The transpose of state_point, added to what is in memory."""
    powers = powers_of(spacing)
    for m in tl.static_range(4):
        if parts[m] is not None:
            weight = tl.load(table + 4 * row + m)
            if m > 0:
                weight = weight * powers[m - 1]
            total = tl.load(parts[m] + places, mask=there, other=0.0)
            tl.store(parts[m] + places, tl.fma(gradient, weight, total), mask=there)


@triton.jit
def powers_of(spacing):
    """h, h², h³."""
    return spacing, spacing * spacing, spacing * spacing * spacing


@triton.jit
def replace(values, k, value):
    """The values with the k-th replaced."""
    new = ()
    for i in tl.static_range(len(values)):
        new = new + (tl.where(k == i, value, values[i]),)
    return new


@triton.jit
def element(values, k):
    """The value at k."""
    value = values[0]
    for i in tl.static_range(1, len(values)):
        value = tl.where(k == i, values[i], value)
    return value
