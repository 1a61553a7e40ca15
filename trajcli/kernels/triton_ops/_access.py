"""Rows and states in memory: of four arrays, None where one is absent."""

from __future__ import annotations

from functools import partial

import triton
import triton.language as tl

# Not specialised: a last, smaller block needs no other kernel, and arrays may begin anywhere.
SIZES = ["start_count", "goal_count", "batch", "horizon", "used", "held", "dt_stride", "dt_step"]
SIZES += ["table_stride", "entries", "count", "last", "offset", "shift", "programs"]
SIZES += ["steps", "tiles", "inner", "inner_row", "inner_action"]
POINTERS = ["actions", "start", "start_index", "goal", "goal_index", "dt", "rows", "table"]
POINTERS += ["ends_table"]
kernel = partial(triton.jit, do_not_specialize=SIZES, do_not_specialize_on_alignment=POINTERS)


@triton.jit
def zeros(like, COUNT: tl.constexpr):
    """Returns COUNT zeros in float64, for all lanes."""
    values = ()
    for _ in tl.static_range(COUNT):
        values = values + (tl.zeros(like.shape, tl.float64),)
    return values


@triton.jit
def load_row(parts, places, there, other):
    """Loads four values in float64: zero from an absent array, ``other`` where not there."""
    values = ()
    for m in tl.static_range(4):
        if parts[m] is None:
            values = values + (tl.zeros(places.shape, tl.float64),)
        else:
            value = tl.load(parts[m] + places, mask=there, other=other)
            values = values + (value.to(tl.float64),)
    return values


@triton.jit
def store_row(parts, values, places, there):
    """Stores four values; see :func:`store`."""
    for m in tl.static_range(4):  # len(parts) is no constant to Triton 3.5 and 3.6 if one is None
        store(parts[m], values[m], places, there)


@triton.jit
def store(array, value, places, there):
    """Stores a value, rounded to what the array holds. An absent array is skipped."""
    if array is not None:
        tl.store(array + places, value.to(array.dtype.element_ty), mask=there)


@triton.jit
def load_state(parts, index, count, trajectory, dof, there, D: tl.constexpr):
    """Loads four parts of each trajectory's state, of which there are ``count``: one for all, one
    for each, or those that the index names. They are NaN where an index is out of range."""
    row = tl.where(count > 1, trajectory, 0)
    if index is not None:
        row = tl.load(index + trajectory, mask=there, other=0)
    return load_row(parts, row * D + dof, there & (row >= 0) & (row < count), float("nan"))


@triton.jit
def write_one(parts):
    """Writes 1 to each array: a probe of what compiles. As in all kernels, some are absent."""
    place = tl.arange(0, 1)
    store_row(parts, load_row(parts, place, place < 0, 1.0), place, place == 0)
