"""What a mode asks a kernel to do: the words both sides share.

A mode turns its options, the start and goal state and dt into one of two programs;
trajectory.py hands it to the kernels of the chosen backend.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from trajcli.kernels.pairs import Array, Pair


@dataclass(frozen=True, eq=False)
class CascadeProgram:
    """Sums and differences from the start state on.

    actions [B, H, D]; state: four pairs [B, D]; dt [b, h]. ``start_row``: the start state is
    written as the first row. ``recorded``: the first row is the recording's, and the quantities
    that cannot be differenced there take the first value that can be.
    """

    actions: Array
    state: tuple[Pair, Pair, Pair, Pair]
    dt: Array
    order: int
    scheme: str
    start_row: bool
    recorded: bool = False


@dataclass(frozen=True, eq=False)
class Weights:
    """A table of weights and where each row applies it.

    table [b, P, 4, W]: P kinds of window, four orders of derivative, W points.
    first [T], phase [T] (NumPy int64): row t's window begins at X[first[t]] and is of kind
    phase[t].
    """

    table: Pair
    first: Any
    phase: Any


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
