"""Lanes, and the tiles of rows that they exchange with memory, as Triton functions.

A lane computes one dof of one trajectory, row after row. A program has LANES of them: DOFS dofs
of N = LANES // DOFS trajectories (all D dofs if there are no more than LANES). In memory the
lanes of a row are N short runs far apart; K rows of a trajectory are one long run. So rows are
loaded and stored K at a time: neighbouring threads load neighbours in memory, whatever D is, and
pass them through shared memory to the lanes that compute with them, and back.

A trajectory's bits do not depend on its neighbours.
"""

from __future__ import annotations

from dataclasses import dataclass

import triton
import triton.language as tl

from trajcli.kernels.cuda import interpreted


@dataclass(frozen=True)
class Form:
    """What a kernel is compiled for. D: dofs; DOFS: how many of them in one of its programs;
    K: rows in a tile; EVEN: all steps are equal (of bands: there is a table)."""

    D: int
    DOFS: int
    K: int
    EVEN: bool

    def __post_init__(self) -> None:
        # within a kernel Triton 3.4 passes on constexpr alone, which its interpreter has not
        if not interpreted():
            for name, value in vars(self).items():
                object.__setattr__(self, name, tl.constexpr(value))


@dataclass(frozen=True)
class CascadeForm(Form):
    """See :class:`trajcli.kernels.program.Cascade`."""

    ORDER: int
    SCHEME: str
    RECORDED: bool


@dataclass(frozen=True)
class BandForm(Form):
    """See :class:`trajcli.kernels.program.Band`. STEADY: a row's window is one point after that of
    the row before. BASE has one entry where all KINDS have the same."""

    STEPS: int
    STEADY: bool
    WIDTH: int
    KINDS: int
    BASE: tuple[int, ...]
    COPIES: bool


@triton.jit
def lanes(batch, D: tl.constexpr, DOFS: tl.constexpr, LANES: tl.constexpr):
    """The trajectory and the dof of the lanes, and whether they exist."""
    PARTS: tl.constexpr = (D + DOFS - 1) // DOFS
    N: tl.constexpr = LANES // DOFS
    lane = tl.arange(0, LANES)
    trajectory = (tl.program_id(0) // PARTS).to(tl.int64) * N + lane // DOFS
    dof = tl.program_id(0) % PARTS * DOFS + lane % DOFS
    return trajectory, dof, (lane < N * DOFS) & (trajectory < batch) & (dof < D)


@triton.jit
def slots(batch, D: tl.constexpr, DOFS: tl.constexpr, LANES: tl.constexpr, K: tl.constexpr):
    """K rows of all lanes in the order of memory: by trajectory, row, dof.

    Returns the trajectory, the row (0 … K − 1) and the dof of every place in that order, whether
    they exist, and two permutations. The first takes a tile in the order of memory to that of
    lanes (by row, lane); the second takes it back.
    """
    PARTS: tl.constexpr = (D + DOFS - 1) // DOFS
    N: tl.constexpr = LANES // DOFS
    LAST: tl.constexpr = LANES * K - 1
    slot = tl.arange(0, LANES * K)
    n, rest = slot // (K * DOFS), slot % (K * DOFS)
    row, column = rest // DOFS, rest % DOFS
    trajectory = (tl.program_id(0) // PARTS).to(tl.int64) * N + n
    dof = tl.program_id(0) % PARTS * DOFS + column
    there = (n < N) & (trajectory < batch) & (dof < D)
    lane = slot % LANES
    to_lanes = lane // DOFS * (K * DOFS) + slot // LANES * DOFS + lane % DOFS
    to_memory = row * LANES + n * DOFS + column
    # lanes without a dof would point beyond the tile
    return trajectory, row, dof, there, tl.minimum(to_lanes, LAST), tl.minimum(to_memory, LAST)


@triton.jit
def load_tile(pointers, mask, to_lanes, K: tl.constexpr):
    """K rows (2 to 16) of all lanes in float64; zero where the mask is not set."""
    tile = tl.gather(tl.load(pointers, mask=mask, other=0), to_lanes, 0)
    LANES: tl.constexpr = tile.shape[0] // K
    # apart bit by bit of the row's number, the lowest first
    parts = (tl.permute(tl.reshape(tile, [K, LANES]), [1, 0]),)
    for bit in tl.static_range(4):
        if 2**bit < K:
            even = ()
            odd = ()
            for part in tl.static_range(2**bit):
                low, high = tl.split(tl.reshape(parts[part], [LANES, K >> (bit + 1), 2]))
                even = even + (low,)
                odd = odd + (high,)
            parts = even + odd
    rows = ()
    for k in tl.static_range(K):
        rows = rows + (tl.reshape(parts[k], [LANES]).to(tl.float64),)
    return rows


@triton.jit
def store_tile(pointers, rows, mask, to_memory, K: tl.constexpr):
    """K rows of all lanes, rounded to what is pointed to."""
    LANES: tl.constexpr = rows[0].shape[0]
    parts = ()
    for k in tl.static_range(K):
        parts = parts + (rows[k].to(pointers.dtype.element_ty),)
    for bit in tl.static_range(4):
        if 2**bit < K:
            joined = ()
            for k in tl.static_range(K >> (bit + 1)):
                joined = joined + (tl.join(parts[k], parts[k + (K >> (bit + 1))]),)
            parts = joined
    tile = tl.reshape(tl.permute(tl.reshape(parts[0], [LANES, K]), [1, 0]), [LANES * K])
    tl.store(pointers, tl.gather(tile, to_memory, 0), mask=mask)


@triton.jit
def load_tiles(arrays, places, mask, to_lanes, K: tl.constexpr):
    """K rows of four arrays; zeros for an array that is None."""
    columns = ()
    for m in tl.static_range(4):
        if arrays[m] is None:
            columns = columns + (zeros_like(tl.arange(0, places.shape[0] // K), K),)
        else:
            columns = columns + (load_tile(arrays[m] + places, mask, to_lanes, K),)
    return columns


@triton.jit
def store_tiles(arrays, places, columns, mask, to_memory, K: tl.constexpr):
    """K rows of four arrays; None is skipped."""
    for m in tl.static_range(4):
        if arrays[m] is not None:
            store_tile(arrays[m] + places, columns[m], mask, to_memory, K)


@triton.jit
def zeros_like(x, COUNT: tl.constexpr):
    """COUNT times zero, for all lanes, in float64."""
    values = ()
    for _ in tl.static_range(COUNT):
        values = values + (tl.zeros(x.shape, tl.float64),)
    return values


@triton.jit
def append(columns, row):
    """Four tuples, a row's values added to their ends."""
    return (
        columns[0] + (row[0],),
        columns[1] + (row[1],),
        columns[2] + (row[2],),
        columns[3] + (row[3],),
    )


@triton.jit
def add(values, others):
    """The sums of two tuples' values."""
    sums = ()
    for i in tl.static_range(len(values)):
        sums = sums + (values[i] + others[i],)
    return sums


@triton.jit
def load_state(parts, index, count, lane, D: tl.constexpr):
    """The four parts of the lanes' states in float64; NaN where an index is out of range."""
    trajectory, dof, there = lane
    row = trajectory
    valid = there
    if index is not None:
        row = tl.load(index + trajectory, mask=there, other=0)
        valid = there & (row >= 0) & (row < count)
    else:
        row = tl.where(count > 1, trajectory, 0)
    state = ()
    for m in tl.static_range(4):
        if parts[m] is None:
            state = state + (tl.zeros(dof.shape, tl.float64),)
        else:
            value = tl.load(parts[m] + row * D + dof, mask=valid, other=float("nan"))
            state = state + (value.to(tl.float64),)
    return state


@triton.jit
def store_state(parts, state, places, there):
    """Store a state's parts; None is not wanted."""
    for m in tl.static_range(4):
        if parts[m] is not None:
            tl.store(parts[m] + places, state[m].to(parts[m].dtype.element_ty), mask=there)


@triton.jit
def load_row(parts, places, there):
    """A row of four arrays in float64; zero for an array that is None."""
    values = ()
    for m in tl.static_range(4):
        if parts[m] is None:
            values = values + (tl.zeros(places.shape, tl.float64),)
        else:
            value = tl.load(parts[m] + places, mask=there, other=0.0)
            values = values + (value.to(tl.float64),)
    return values


@triton.jit
def load_step(steps, i, there):
    """The i-th step of the lanes' trajectories, or the nearest there is."""
    pointers, by_step, entries = steps
    entry = tl.minimum(tl.maximum(i, 0), entries - 1)
    return tl.load(pointers + entry.to(tl.int64) * by_step, mask=there, other=1.0)


@triton.jit
def write_one(number):
    """For a probe of what compiles."""
    tl.store(number, 1.0)
