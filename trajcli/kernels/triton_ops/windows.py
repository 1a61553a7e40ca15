"""The windows of a band's rows: where they begin, and their values as they move along."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def first_of(t, windows, FORM: tl.constexpr):
    """The first point of row t's window. Before row 0 windows go back point by point, so that the
    first window is filled like the others."""
    offset, shift, last = windows
    inside = (tl.maximum(t, 0) + offset) // FORM.STEPS - shift
    return tl.minimum(tl.maximum(inside, 0), last) + tl.minimum(t, 0)


@triton.jit
def kind_of(t, windows, FORM: tl.constexpr):
    """The kind of row t's weights."""
    kind = t + windows[0] - FORM.STEPS * first_of(t, windows, FORM)
    return tl.minimum(tl.maximum(kind, 0), FORM.KINDS - 1)


@triton.jit
def action_of(t, windows, spans, FORM: tl.constexpr):
    """The action that is the last point of row t's window, and whether one is."""
    head, held, tail = spans
    point = first_of(t, windows, FORM) + FORM.WIDTH - 1
    action = tl.minimum(point, held - 1) - head
    return action.to(tl.int64), (point >= head) & (point < tail) & (action >= 0)


@triton.jit
def base_of(values, kind, BASE: tl.constexpr):
    """The value at the base of a window."""
    value = values[BASE[0]]
    for k in tl.static_range(1, len(BASE)):
        if BASE[k] != BASE[k - 1]:
            value = tl.where(kind >= k, values[BASE[k]], value)
    return value


@triton.jit
def pull_base(points, upstream, kind, BASE: tl.constexpr):
    """The transpose of base_of, added to the gradients of the points."""
    base = BASE[0]
    for k in tl.static_range(1, len(BASE)):
        base = tl.where(kind >= k, BASE[k], base)
    new = ()
    for i in tl.static_range(len(points)):
        if len(BASE) == 1:
            if i == BASE[0]:
                new = new + (points[i] + upstream,)
            else:
                new = new + (points[i],)
        else:
            new = new + (tl.where(base == i, points[i] + upstream, points[i]),)
    return new


@triton.jit
def push(values, value):
    """The values without the first, and with a new last one."""
    new = ()
    for i in tl.static_range(1, len(values)):
        new = new + (values[i],)
    return new + (value,)


@triton.jit
def push_first(values, value):
    """The values with a new first one, and without the last."""
    new = (value,)
    for i in tl.static_range(len(values) - 1):
        new = new + (values[i],)
    return new


@triton.jit
def select(condition, ALWAYS: tl.constexpr, values, others):
    """The values where the condition holds, else the others."""
    new = ()
    for i in tl.static_range(len(values)):
        new = new + (values[i] if ALWAYS else tl.where(condition, values[i], others[i]),)
    return new
