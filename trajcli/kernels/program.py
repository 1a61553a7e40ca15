"""What a mode asks a kernel to do: the words both sides share.

A mode turns its options, the start and goal state and dt into one of two programs;
``run_program`` hands it to the kernels of the chosen backend.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from trajcli.kernels.pairs import Array, Pair

BLOCK_ROWS = 16
"""A cascade may be cut after a number of steps that this divides: the bits are the same."""


@dataclass(frozen=True, eq=False)
class CascadeProgram:
    """Sums and differences from the start state on.

    sources: the actions [B, H, D] at their order, None elsewhere (kernels say what others do);
    state: four pairs [B, D], or with ``state_rows`` [B] (int64) pairs [S, D] of which trajectory b
    begins with row state_rows[b]; dt [b, h]. ``start_row``: the start state is written as the
    first row. ``recorded``: the first row is the recording's, and the quantities
    that cannot be differenced there take the first value that can be.
    """

    sources: Sequence[Array | None]
    state: Sequence[Pair]
    dt: Array
    order: int
    scheme: str
    start_row: bool
    recorded: bool = False
    state_rows: Array | None = None


@dataclass(frozen=True, eq=False)
class Evenly:
    """Weights for points one unit apart, and how far apart they are.

    unit[kind][order][point]: rational numbers; spacing: a pair [b, 1] in seconds. The table has
    unit over spacing to the order.
    """

    unit: tuple[tuple[tuple[Fraction, ...], ...], ...]
    spacing: Pair


@dataclass(frozen=True, eq=False)
class Weights:
    """A table of weights and where each row applies it.

    table [b, P, 4, W]: P kinds of window, four orders of derivative, W points.
    first [T], phase [T] (NumPy int64): row t's window begins at X[first[t]] and is of kind
    phase[t]. ``evenly``: where the points are evenly spaced, what the table was made of.
    """

    table: Pair
    first: Any
    phase: Any
    evenly: Evenly | None = None


@dataclass(frozen=True, eq=False)
class BandProgram:
    """Weights over the padded actions; head and tail are pairs [B, n, D] or None.

    ``start``: the start state (four arrays [B, D]) when it is written as the first row.
    """

    actions: Array
    head: Pair | None
    tail: Pair | None
    weights: Weights
    start: tuple[Array, Array, Array, Array] | None = None


Program = CascadeProgram | BandProgram


def run_program(
    program: Program, kernels: Any, out: Sequence[Array | None], end: bool = False
) -> Sequence[Pair] | None:
    """Fill the outputs [B, T, D] of a program.

    ``end``: return the state in a cascade's last row.
    """
    if isinstance(program, BandProgram):
        kernels.band(
            program.actions,
            program.head,
            program.tail,
            program.weights,
            start=program.start,
            out=out,
        )
        return None
    gathered = {} if program.state_rows is None else {"state_rows": program.state_rows}
    state: Sequence[Pair] = kernels.cascade(
        program.sources,
        program.state,
        program.dt,
        order=program.order,
        scheme=program.scheme,
        start_row=program.start_row,
        out=out,
        end=end,
        **gathered,
    )
    if program.recorded:
        _fill_before_data(out)
    return state if end else None


def _fill_before_data(out: Sequence[Array | None]) -> None:
    """Rows 0..m−1 of order m take row m; a recording too short for row m is at rest (zero)."""
    for m, buffer in enumerate(out):
        if buffer is not None and m:
            known = buffer[:, m : m + 1]
            buffer[:, :m] = known if known.shape[1] else 0.0
