"""Windows no wider than their weights."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from trajcli.arrays import namespace
from trajcli.kernels.pairs import Array, Pair
from trajcli.kernels.program import Evenly, Listed, Unit, Weights, Windows


class _Narrow(NamedTuple):
    """What is left; for each kind, how many points before are cut off and which it is now."""

    kinds: Unit
    cut: tuple[int, ...]
    place: tuple[int, ...]


def narrowed(weights: Weights) -> Weights:
    """The same weights without points at the ends that count in no order, and each kind once.

    At a knot a B-spline of degree 5 has five points of six, and the end of a segment is the
    beginning of the next.
    """
    if weights.evenly is None:
        return weights
    found = _narrow(weights.evenly.unit)
    if found is None:
        return weights
    return Weights(
        Pair(*(_columns(part, found) for part in (weights.table.hi, weights.table.lo))),
        _moved(weights.where, found),
        Evenly(found.kinds, weights.evenly.spacing),
    )


def _moved(where: Windows | Listed, found: _Narrow) -> Windows | Listed:
    """Where windows begin after so many points before them are cut off, and of which kind."""
    if isinstance(where, Windows) and len(found.kinds) == 1 and found.cut == (0, 1):
        return replace(where, last=where.count - 1 + where.offset)  # none is held at the end
    return Listed(where.first + np.array(found.cut)[where.kind], np.array(found.place)[where.kind])


@lru_cache(maxsize=32)
def _narrow(unit: Unit) -> _Narrow | None:
    """None where nothing can be left out."""
    width = len(unit[0][0])
    counting = [[i for i in range(width) if any(row[i] for row in kind)] or [0] for kind in unit]
    needed = max(points[-1] - points[0] + 1 for points in counting)
    cut = tuple(min(points[0], width - needed) for points in counting)
    cuts = [
        tuple(row[begin : begin + needed] for row in kind)
        for kind, begin in zip(unit, cut, strict=True)
    ]
    kinds = Unit(dict.fromkeys(cuts))
    if needed == width and len(kinds) == len(unit):
        return None
    return _Narrow(kinds, cut, tuple(kinds.index(kind) for kind in cuts))


def _columns(table: Array, found: _Narrow) -> Any:
    """[b, P, 4, W] of the kinds and points that are left."""
    width = len(found.kinds[0][0])
    kept = []
    for k in range(len(found.kinds)):
        kind = found.place.index(k)
        kept.append(table[:, kind, :, found.cut[kind] : found.cut[kind] + width])
    return namespace(table).stack(kept, 1)
