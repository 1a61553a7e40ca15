"""What is drawn in a terminal: the lines of one trajectory, of long ones some rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from trajcli.views.motions import Motions, Trajectories
from trajcli.views.selection import select

_WHOLE_BYTES = 8 << 20
_FEW, _FEWEST = 400, 24
"""Rows that are drawn of trajectories beyond so many bytes; where chunks have to be unpacked."""
_MOST_STEPS = 1 << 22
_CLOCK = 1e6
"""Times beyond so many seconds are a clock's, not a motion's."""


@dataclass(frozen=True)
class Curve:
    """Lines to draw of one array of one trajectory: time [n] and values [n, D]."""

    name: str
    unit: str
    trajectory: str
    time: Any
    timed: bool
    values: Any
    dofs: Sequence[str]
    numbers: Sequence[int]


def curves_of(found: Trajectories, number: int, dof: str | None) -> list[Curve]:
    """Every array of a trajectory, in all its aspects."""
    curves = []
    for motions, own in found.beside(number):
        dofs = select(dof, motions.shape[2], "--dof", motions.dofs)
        for name in motions.arrays if motions.shape[1] else ():
            at = _points(motions, name)
            time, timed = _times(motions, own, at)
            curves.append(
                Curve(
                    f"{motions.group}{name}".strip("/"),
                    motions.unit(name),
                    found.name(number),
                    time,
                    timed,
                    _rows_at(motions, name, own, at)[:, dofs],
                    [motions.dofs[i] for i in dofs],
                    list(dofs),
                )
            )
    return curves


def _points(motions: Motions, name: str) -> Any:
    """The rows that are drawn: all, or of long trajectories some, fewer where each is dear."""
    rows = motions.shape[1]
    stored = motions.arrays[name]
    few = rows
    if stored.nbytes // stored.shape[0] > _WHOLE_BYTES:
        few = _FEW if stored.storage.startswith("contiguous") else _FEWEST
    return np.unique(np.linspace(0, rows - 1, min(rows, few)).astype(np.int64))


def _rows_at(motions: Motions, name: str, own: int, at: Any) -> Any:
    if len(at) == motions.shape[1]:
        return motions.read(name, own)
    return np.stack([motions.read(name, own, row, row + 1)[0] for row in at.tolist()])


def _times(motions: Motions, own: int, at: Any) -> tuple[Any, bool]:
    """Times of some rows, from the first where they are a clock's; else the numbers of the rows."""
    steps, rows = motions.steps, motions.shape[1]
    if not steps or (rows > _MOST_STEPS and steps.stamps is None and steps.uniform is None):
        return at.astype(np.float64), False
    if len(at) == rows or steps.stamps is None:
        time = steps.times(own, 0, rows)[at] if rows <= _MOST_STEPS else steps.uniform * at
    else:
        time = np.array([steps.times(own, row, row + 1)[0] for row in at.tolist()])
    return time - (time[0] if len(time) and abs(time[0]) > _CLOCK else 0.0), True
