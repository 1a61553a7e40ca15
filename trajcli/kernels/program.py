"""What a mode asks a kernel to do: the words both sides share.

A mode turns its options, the start and goal state and dt into one of two programs;
``run_program`` hands it to the kernels of the chosen backend.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np

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

    def indexed(self, start_rows: Array | None, goal_rows: Array | None) -> CascadeProgram:
        """The same with a state of which each trajectory has the row that ``start_rows`` says."""
        return replace(self, state_rows=start_rows)


Kind = tuple[tuple[Fraction, ...], ...]
"""Weights of one kind of window: [order][point]."""


class Unit(tuple[Kind, ...]):
    """Weights for points one unit apart, [kind][order][point].

    Only the same object is equal: what is made of one is kept by it, and to hash hundreds of
    fractions takes longer than to launch a kernel.
    """

    __hash__ = object.__hash__
    __eq__ = object.__eq__
    __ne__ = object.__ne__


@dataclass(frozen=True, eq=False)
class Evenly:
    """Weights for points one unit apart, and how far apart they are: a pair [b, 1] in seconds.

    The table has the unit's over spacing to the order.
    """

    unit: Unit
    spacing: Pair


@dataclass(frozen=True)
class Windows:
    """Which points and which weights each of ``count`` rows takes, as a formula.

    Row t's window begins at point clip((t + offset) // steps − shift, 0, last). Its weights are
    of kind t where ``each`` row has its own, else of the kind that is the row's place in the
    window, t + offset − steps · begin.
    """

    count: int
    last: int
    offset: int = 0
    steps: int = 1
    shift: int = 0
    each: bool = False

    @cached_property
    def first(self) -> Any:
        """Where the windows begin, [T] in NumPy."""
        begin = (np.arange(self.count) + self.offset) // self.steps - self.shift
        return np.clip(begin, 0, self.last)

    @cached_property
    def kind(self) -> Any:
        """Of which kind they are, [T] in NumPy."""
        row = np.arange(self.count)
        return row if self.each else row + self.offset - self.steps * self.first


@dataclass(frozen=True, eq=False)
class Listed:
    """The same as arrays [T], NumPy int64."""

    first: Any
    kind: Any

    @property
    def count(self) -> int:
        return len(self.first)


@dataclass(frozen=True, eq=False)
class Weights:
    """A table of weights and where each row applies it.

    table [b, P, 4, W]: P kinds of window, four orders of derivative, W points. ``evenly``: where
    the points are evenly spaced, what the table was made of.
    """

    table: Pair
    where: Windows | Listed
    evenly: Evenly | None = None


@dataclass(frozen=True, eq=False)
class StatePoints:
    """Points on a state's Taylor polynomial: Σ_m coefficients[i][m] · spacingᵐ · part_m.

    parts: four arrays [B, D], None is zero, or with ``rows`` [B] (int64) arrays [S, D] of which
    trajectory b has row rows[b]. spacing: a pair [b, 1] in seconds; None is one, of parts that
    are scaled already.
    """

    parts: Sequence[Array | None]
    coefficients: tuple[tuple[Fraction, ...], ...]
    spacing: Pair | None
    rows: Array | None = None


@dataclass(frozen=True)
class Held:
    """The last action, so many times again."""

    count: int


Padding = StatePoints | Held | Pair | None
"""What lies before or after the actions; a pair [B, n, D] holds the points themselves."""


@dataclass(frozen=True, eq=False)
class BandProgram:
    """Weights over the padded actions: head, actions [B, H, D], tail.

    ``start``: the start state (parts as in :class:`StatePoints`, with ``start_rows``) when it is
    written as the first row.
    """

    actions: Array
    head: StatePoints | None
    tail: StatePoints | Held | None
    weights: Weights
    start: Sequence[Array | None] | None = None
    start_rows: Array | None = None

    def indexed(self, start_rows: Array | None, goal_rows: Array | None) -> BandProgram:
        """The same with states of which each trajectory has the row that these say."""
        head, tail = self.head, self.tail
        if head is not None:
            head = replace(head, rows=start_rows)
        if isinstance(tail, StatePoints):
            tail = replace(tail, rows=goal_rows)
        return replace(self, head=head, tail=tail, start_rows=start_rows)


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
            start_rows=program.start_rows,
            out=out,
        )
        return None
    state: Sequence[Pair] = kernels.cascade(
        program.sources,
        program.state,
        program.dt,
        order=program.order,
        scheme=program.scheme,
        start_row=program.start_row,
        out=out,
        end=end,
        state_rows=program.state_rows,
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
