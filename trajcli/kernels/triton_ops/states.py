"""Rows and states in memory: of four arrays, None where one is absent."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def load_row(parts, places, there):
    """Four values in float64; zero from an array that is absent."""
    values = ()
    for m in tl.static_range(4):
        if parts[m] is None:
            values = values + (tl.zeros(places.shape, tl.float64),)
        else:
            value = tl.load(parts[m] + places, mask=there, other=0.0)
            values = values + (value.to(tl.float64),)
    return values


@triton.jit
def store_row(parts, values, places, there):
    """Store four values, rounded to what the arrays hold; an array that is absent is skipped."""
    for m in tl.static_range(4):
        store_part(parts, values, m, places, there)


@triton.jit
def store_part(parts, values, m: tl.constexpr, places, there):
    """Store one of four values."""
    if parts[m] is not None:
        tl.store(parts[m] + places, values[m].to(parts[m].dtype.element_ty), mask=there)


@triton.jit
def load_state(parts, index, count, trajectory, dof, there, D: tl.constexpr):
    """Four parts of each trajectory's state, of which there are ``count``: one for all, or one for
    each, or those that the index names. NaN where an index is out of range."""
    row = tl.where(count > 1, trajectory, 0)
    valid = there
    if index is not None:
        row = tl.load(index + trajectory, mask=there, other=0)
        valid = there & (row >= 0) & (row < count)
    state = ()
    for m in tl.static_range(4):
        if parts[m] is None:
            state = state + (tl.zeros(dof.shape, tl.float64),)
        else:
            value = tl.load(parts[m] + row * D + dof, mask=valid, other=float("nan"))
            state = state + (value.to(tl.float64),)
    return state


@triton.jit
def write_one(number):
    """For a probe of what compiles."""
    tl.store(number, 1.0)
