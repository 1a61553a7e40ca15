"""Loads and stores rows and states: tuples of four arrays, None where one is absent.

A lane is a thread. ``valid`` masks lanes that have something to load or store.
"""

from __future__ import annotations

from functools import partial

import triton
import triton.language as tl

# Triton compiles another kernel for an integer that is 1 or a multiple of 16, and for an aligned
# pointer. Without that a last, smaller block needs no other kernel, and arrays begin anywhere.
SIZES = ["start_count", "goal_count", "batch", "horizon", "used", "held", "dt_stride", "dt_step"]
SIZES += ["table_stride", "entries", "count", "last", "offset", "shift", "programs"]
SIZES += ["steps", "tiles", "inner", "inner_row", "inner_action"]
POINTERS = ["actions", "start", "start_index", "goal", "goal_index", "dt", "rows", "table"]
POINTERS += ["ends_table"]
kernel = partial(triton.jit, do_not_specialize=SIZES, do_not_specialize_on_alignment=POINTERS)


@triton.jit
def zeros(like, COUNT: tl.constexpr):
    """Makes COUNT zeros in float64, for all lanes."""
    values = ()
    for _ in tl.static_range(COUNT):
        values = values + (tl.zeros(like.shape, tl.float64),)
    return values


@triton.jit
def load_row(parts, offsets, valid, other):
    """Loads four values in float64: zero from an absent array, ``other`` in lanes not valid."""
    values = ()
    for m in tl.static_range(4):
        if parts[m] is None:
            values = values + (tl.zeros(offsets.shape, tl.float64),)
        else:
            value = tl.load(parts[m] + offsets, mask=valid, other=other)
            values = values + (value.to(tl.float64),)
    return values


@triton.jit
def store_row(parts, values, offsets, valid):
    """Stores four values, each as :func:`store` does."""
    # not range(len(parts)), which is no constant to Triton 3.5 and 3.6 if a part is None
    for m in tl.static_range(4):
        store(parts[m], values[m], offsets, valid)


@triton.jit
def store(array, value, offsets, valid):
    """Stores a value, rounded to what the array holds. An absent array is skipped."""
    if array is not None:
        tl.store(array + offsets, value.to(array.dtype.element_ty), mask=valid)


@triton.jit
def locate_columns(program, batch, D: tl.constexpr, PITCH: tl.constexpr, LANES: tl.constexpr):
    """Finds trajectory, dof and existence of lanes; a trajectory has ``PITCH`` of them."""
    # 64 bits for trajectories, whose offsets may exceed 32; divisions of dofs are of small numbers
    column = program.to(tl.int64) * LANES + tl.arange(0, LANES)
    trajectory, dof = column // PITCH, (column % PITCH).to(tl.int32)
    return trajectory, dof, (trajectory < batch) & (dof < D)


@triton.jit
def in_range(number, count):
    """Tells whether 0 ≤ number < count."""
    # one comparison: as an unsigned number a negative one is larger than any count
    return number.to(tl.uint32) < count.to(tl.uint32)


@triton.jit
def phase_shift(trajectory, count, first, PHASE: tl.constexpr):
    """Counts the rows from the last aligned one to row ``first`` of a trajectory."""
    # rows of all trajectories are numbered in the order of memory: those whose number is a multiple
    # of PHASE begin a sector of memory
    return ((trajectory * count + first) % PHASE).to(tl.int32)


@triton.jit
def locate_tile(
    program, batch, count, first, D: tl.constexpr, PITCH: tl.constexpr, ROWS: tl.constexpr,
    PHASE: tl.constexpr, LANES: tl.constexpr,
):  # fmt: skip
    """Finds the first trajectory's offset and, of values to store, offset, row and existence."""
    # values in the order in which they are stored: trajectory, row, dof
    index = tl.arange(0, LANES * ROWS)
    trajectory = program.to(tl.int64) * (LANES // PITCH)
    number, dof = index // (ROWS * PITCH), index % PITCH
    row = index // PITCH % ROWS - phase_shift(trajectory + number, count, first, PHASE)
    valid = (trajectory + number < batch) & (dof < D)
    return trajectory * count * D, (number * count + first + row) * D + dof, row, valid


@triton.jit
def round_row(parts, values):
    """Rounds four values, each to what its array holds."""
    row = ()
    for m in tl.static_range(4):
        if parts[m] is None:
            row = row + (values[m],)
        else:
            row = row + (values[m].to(parts[m].dtype.element_ty),)
    return row


@triton.jit
def select_row(condition, row, other):
    """Selects the four values of a row where the condition holds, else those of the other row."""
    values = ()
    for m in tl.static_range(4):
        values = values + (tl.where(condition, row[m], other[m]),)
    return values


@triton.jit
def store_tile(parts, rows, begin, offsets, valid, PITCH: tl.constexpr, LANES: tl.constexpr):
    """Stores a power of two of rows; lanes exchange values to store neighbours side by side."""
    # Each lane has ROWS values of one dof. Joining halves again and again gives a last axis of
    # rows, [lane, row]; joining row k with row k + half keeps them in order. Transposed to
    # [trajectory, row, dof], the tile has the order of memory. Five joins suffice: ROWS is at most
    # the 32 lanes of a warp.
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
            tl.store(parts[m] + begin + offsets, tl.reshape(tile, [LANES * ROWS]), mask=valid)


@triton.jit
def load_state(parts, index, count, trajectory, dof, valid, D: tl.constexpr):
    """Loads four parts of each trajectory's state; NaN where an index is out of range."""
    row = tl.where(count > 1, trajectory, 0)
    if index is not None:
        row = tl.load(index + trajectory, mask=valid, other=0)
    return load_row(parts, row * D + dof, valid & (row >= 0) & (row < count), float("nan"))


@triton.jit
def write_one(parts):
    """Writes 1 to each array that is present, to probe whether kernels compile."""
    index = tl.arange(0, 1)
    store_row(parts, load_row(parts, index, index < 0, 1.0), index, index == 0)
