"""What is in the datasets of a file, as plain values: shapes, types, ranges and peaks per dof."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from trajcli.errors import InputError
from trajcli.files.arrays import ArrayFile, StoredArray
from trajcli.files.schema import QUANTITIES
from trajcli.files.source import Source
from trajcli.files.steps import STAMPS
from trajcli.views.motions import Motions, Trajectories
from trajcli.views.scan import SAMPLE_BYTES, Extent, Progress, Relation, Scan, scan
from trajcli.views.selection import select

_ALIKE = 4
"""So many datasets with names that differ in numbers alone are shown as one."""
_MOST_SHAPES = 2000
"""So many of them are asked for their shapes."""
TIMES = ("dt", *STAMPS)
"""Datasets whose last axis is that of the rows."""
_LEAST_BYTES = 1 << 20
"""Of each dataset at least so much is looked at."""


@dataclass(frozen=True)
class Wish:
    """What of a file is looked at: trajectories, dofs, rows to list, all of it or a sample."""

    index: str | None = None
    dof: str | None = None
    rows: str | None = None
    full: bool = False
    allow_external: bool = False
    untrusted: bool = False


class Scans:
    """Passes over the sets of a file, made once, when a dataset of theirs is asked for."""

    def __init__(
        self,
        file: ArrayFile,
        found: Trajectories,
        wish: Wish,
        chosen: Sequence[int],
        on_progress: Progress,
    ) -> None:
        self._file, self.wish, self._progress = file, wish, on_progress
        self._members = _members(found, chosen if wish.index else None)
        self._done: dict[int, Scan] = {}
        self._widths = {motions.shape[2:] for motions, _, _ in self._members.values()}
        self.sampled = False

    def of(self, name: str, stored: StoredArray, budget: int) -> tuple[Extent, Motions, str]:
        """What was seen of a dataset; the motions it is in; what it is called there."""
        key = name.strip("/")
        motions, inner, numbers = self._members.get(key) or _alone(self._file, name, stored)
        known = self._done.get(id(motions)) if key in self._members else None
        if known is None:
            known = scan(motions, self.wish.full, numbers, None, self._progress, budget)
            self.sampled |= known.sampled
            if key in self._members:
                self._done[id(motions)] = known
        return known.extents[inner], motions, inner

    def has_dofs(self, name: str, stored: StoredArray) -> bool:
        """Whether the last axis of a dataset is that of the dofs, as far as can be told."""
        key = name.strip("/")
        last = key.rpartition("/")[2]
        if key in self._members:
            return True
        likely = last in QUANTITIES or stored.shape[-1:] in self._widths
        return stored.ndim > 1 and last not in TIMES and likely

    def relation(self) -> dict[str, Any] | None:
        """The worst relation of the sets looked at."""
        found = [one.relation for one in self._done.values() if one.relation is not None]
        if not found:
            return None
        return relation_report(max(found, key=lambda one: one.ratio))


def relation_report(relation: Relation) -> dict[str, Any]:
    """A relation as plain values."""
    place = relation.place
    named = dict(zip(("trajectory", "row", "dof"), place, strict=True)) if place else None
    return {
        "mode": relation.law.name,
        "holds": relation.holds,
        "residual": relation.residual,
        "times_rounding": relation.ratio,
        "failing": relation.failing,
        "numbers": relation.numbers,
        "dataset": relation.dataset if place else None,
        "at": named,
    }


_Member = tuple[Motions, str, Sequence[int] | None]


def _members(found: Trajectories, chosen: Sequence[int] | None) -> dict[str, _Member]:
    """Which set a dataset belongs to, and the numbers in it that are looked at."""
    members: dict[str, _Member] = {}
    for sets in found.aspects:
        first = 0
        for motions in sets:
            numbers: Sequence[int] | None = None
            if chosen is not None:
                numbers = [n - first for n in chosen if first <= n < first + motions.shape[0]]
            first += motions.shape[0]
            for inner in motions.arrays:
                name = "" if inner == "values" else inner
                members[f"{motions.group}{name}".strip("/")] = (motions, inner, numbers)
    return members


def _alone(file: ArrayFile, name: str, stored: StoredArray) -> _Member:
    """A dataset by itself as [B, T, D], whatever its shape."""
    key = name or "values"
    shape = stored.shape
    if len(shape) == 3:
        return Motions(file, "", {f"/{key}": stored}), f"/{key}", None
    size = int(np.prod(shape[1:], dtype=object)) if len(shape) > 1 else 1
    columns = shape[1] if len(shape) == 2 else 1
    rows = shape[0] if shape else 1
    per_row = size // columns if columns else 0

    def read(begin: int, end: int) -> Any:
        values = np.asarray(stored.read_rows(begin, end) if shape else stored.read())
        return values.reshape(end - begin, per_row, columns)

    flat = replace(stored, shape=(rows, per_row, columns), read_rows=read, read_steps=None)
    return Motions(file, "", {f"/{key}": flat}), f"/{key}", None


def describe_datasets(
    file: ArrayFile, names: Sequence[str], source: Source, scans: Scans
) -> list[dict[str, Any]]:
    groups = _patterns(names)
    budget = max(SAMPLE_BYTES // max(len(groups), 1), _LEAST_BYTES)
    reports = []
    for pattern, members in groups.items():
        looked = members if scans.wish.full else _spread(members)
        found: list[dict[str, Any]] = []
        for name in looked:
            try:
                found.append(_dataset(file.require(name), name, scans, budget // len(looked)))
            except InputError as error:
                if source.dataset is not None and len(members) == 1:
                    raise
                reports.append({"name": name, "unreadable": str(error.faults[0])})
        if found:
            alone = len(members) == 1
            joined = found[0] if alone else _joined(found, _shapes(file, members), members, scans)
            reports.append({"name": pattern or source.path.name, **joined})
    return reports


def _patterns(names: Sequence[str]) -> dict[str, list[str]]:
    """Names, those together that differ in numbers alone: data/demo_*/actions."""
    groups: dict[str, list[str]] = {}
    for name in names:
        groups.setdefault(re.sub(r"\d+(?=[^/]*/)", "*", name), []).append(name)
    found: dict[str, list[str]] = {}
    for pattern, members in groups.items():
        if len(members) >= _ALIKE:
            found[pattern] = members
        else:
            found |= {name: [name] for name in members}
    return found


def _spread(members: Sequence[str]) -> list[str]:
    places = {0, len(members) // 2, len(members) - 1}
    return [members[i] for i in sorted(places)]


def _dataset(stored: StoredArray, name: str, scans: Scans, budget: int) -> dict[str, Any]:
    about: dict[str, Any] = {
        "shape": list(stored.shape),
        "dtype": "text" if stored.dtype.kind in "SUO" else str(stored.dtype),
        "storage": stored.storage,
        "units": str(stored.attributes["units"]) if "units" in stored.attributes else None,
    }
    if stored.numeric:
        extent, motions, inner = scans.of(name, stored, budget)
        about |= _extent(extent, motions, inner, stored, scans.wish)
        if scans.has_dofs(name, stored) and stored.dtype.kind == "f":
            own = motions if "dofs" in about else None
            dofs = dofs_of(motions, scans.wish) if own else range(len(extent.low))
            about["per_dof"] = [_dof(extent, dof, own) for dof in dofs]
        about["trajectories"] = (scans.wish.index or "all") if "dofs" in about else "all"
    return about


def _extent(
    extent: Extent, motions: Motions, inner: str, stored: StoredArray, wish: Wish
) -> dict[str, Any]:
    known = np.isfinite(extent.low)
    found: dict[str, Any] = {
        "nan": extent.nan,
        "inf": extent.inf,
        "min": float(extent.low.min()) if known.any() else None,
        "max": float(extent.high.max()) if known.any() else None,
    }
    own = inner in motions.arrays and not inner.startswith("/")
    if extent.places:
        axes = ("trajectory", "row", "dof")
        found["nonfinite_at"] = (
            [dict(zip(axes, p, strict=True)) for p in extent.places] if own else []
        )
    if own:
        found["dofs"] = [motions.dofs[i] for i in dofs_of(motions, wish)]
    return found


def _dof(extent: Extent, dof: int, motions: Motions | None) -> dict[str, Any]:
    at = extent.peak_at[dof]
    if at is None:
        return {"min": None, "max": None, "peak": None}
    found = {
        "min": float(extent.low[dof]),
        "max": float(extent.high[dof]),
        "peak": float(extent.peak[dof]),
    }
    if motions is None:
        return found
    when = float(motions.steps.times(at[0], at[1], at[1] + 1)[0]) if motions.steps else None
    return {**found, "at": {"trajectory": at[0], "row": at[1], "time": when}}


def _shapes(file: ArrayFile, members: Sequence[str]) -> list[tuple[int, ...]]:
    """The shapes of datasets; of very many, of some."""
    shapes = []
    for name in members[:: 1 + len(members) // _MOST_SHAPES]:
        with contextlib.suppress(InputError):
            shapes.append(file.require(name).shape)
    return shapes


def _joined(
    found: Sequence[Mapping[str, Any]],
    shapes: Sequence[tuple[int, ...]],
    members: Sequence[str],
    scans: Scans,
) -> dict[str, Any]:
    """Datasets alike as one: how many, their shapes, the range of those looked at."""
    scans.sampled |= len(found) < len(members)
    lows = [one["min"] for one in found if one.get("min") is not None]
    highs = [one["max"] for one in found if one.get("max") is not None]
    first = found[0]["shape"]
    sizes = np.array([first, *(shape for shape in shapes if len(shape) == len(first))])
    low, high = sizes.min(0).tolist(), sizes.max(0).tolist()
    return {
        "count": len(members),
        "looked_at": len(found),
        "shape": [a if a == b else f"{a}..{b}" for a, b in zip(low, high, strict=True)],
        "dtype": found[0]["dtype"],
        "storage": found[0]["storage"],
        "units": found[0]["units"],
        "trajectories": found[0].get("trajectories", "all"),
        "nan": sum(one.get("nan", 0) for one in found),
        "inf": sum(one.get("inf", 0) for one in found),
        "min": min(lows, default=None),
        "max": max(highs, default=None),
    }


def dofs_of(motions: Motions, wish: Wish) -> Sequence[int]:
    """The dofs that are looked at."""
    return select(wish.dof, motions.shape[2], "--dof", motions.dofs)
