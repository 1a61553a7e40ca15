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
def columns(program, batch, D: tl.constexpr, PITCH: tl.constexpr, LANES: tl.constexpr):
    """Returns the trajectory and the dof of each lane, and whether there are such. Trajectories
    begin at multiples of ``PITCH`` lanes."""
    column = program.to(tl.int64) * LANES + tl.arange(0, LANES)
    trajectory, dof = column // PITCH, (column % PITCH).to(tl.int32)
    return trajectory, dof, (trajectory < batch) & (dof < D)


@triton.jit
def within(number, count):
    """Returns whether 0 ≤ number < count."""
    return number.to(tl.uint32) < count.to(tl.uint32)


@triton.jit
def shift_of(trajectory, count, first, PHASE: tl.constexpr):
    """Returns how many rows before row ``first`` of a trajectory there is one, of all rows of
    trajectories of ``count`` rows, whose number is a multiple of ``PHASE``."""
    return ((trajectory * count + first) % PHASE).to(tl.int32)


@triton.jit
def tile_of(
    program, batch, count, first, D: tl.constexpr, PITCH: tl.constexpr, ROWS: tl.constexpr,
    PHASE: tl.constexpr, LANES: tl.constexpr,
):  # fmt: skip
    """Returns where a program's first trajectory begins, and of what :func:`store_tile` stores: the
    places from there on, the rows from row ``first`` on, and whether there are such trajectories.
    """
    place = tl.arange(0, LANES * ROWS)
    trajectory = program.to(tl.int64) * (LANES // PITCH)
    number, dof = place // (ROWS * PITCH), place % PITCH
    row = place // PITCH % ROWS - shift_of(trajectory + number, count, first, PHASE)
    there = (trajectory + number < batch) & (dof < D)
    return trajectory * count * D, (number * count + first + row) * D + dof, row, there


@triton.jit
def rounded(parts, values):
    """Returns four values, each rounded to what its array holds."""
    row = ()
    for m in tl.static_range(4):
        if parts[m] is None:
            row = row + (values[m],)  # which nothing uses
        else:
            row = row + (values[m].to(parts[m].dtype.element_ty),)
    return row


@triton.jit
def store_tile(parts, rows, begin, places, there, PITCH: tl.constexpr, LANES: tl.constexpr):
    """Stores the four values of a power of two of rows, which are :func:`rounded`.

    Lanes exchange them, so that lanes that are neighbours store what is consecutive in memory.
    """
    ROWS: tl.constexpr = len(rows)
    for m in tl.static_range(4):
        if parts[m] is not None:
            tiles = ()
            for k in tl.static_range(ROWS):
                tiles = tiles + (rows[k][m],)
            for _ in tl.static_range(5):
                if len(tiles) > 1:
                    pairs = ()
                    for k in tl.static_range(len(tiles) // 2):
                        pairs = pairs + (tl.join(tiles[k], tiles[k + len(tiles) // 2]),)
                    tiles = pairs
            tile = tl.trans(tl.reshape(tiles[0], [LANES // PITCH, PITCH, ROWS]), 0, 2, 1)
            tl.store(parts[m] + begin + places, tl.reshape(tile, [LANES * ROWS]), mask=there)


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
