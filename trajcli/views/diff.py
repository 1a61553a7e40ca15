"""Datasets of two sources side by side: how far they are apart, and where the most."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from trajcli.checks import describe
from trajcli.files.arrays import NUMERIC_KINDS, ArrayFile, Dataset, json_object, text_of
from trajcli.files.blocks import Array, Floats, Progress
from trajcli.files.conversion import in_one_unit
from trajcli.files.time import Time
from trajcli.views.diff_sources import Compared

_BLOCK_BYTES = 8 << 20
_SAME_TIME = 1e-9
"""Rows are at the same time where their stamps differ by less than this share of a step."""


@dataclass(frozen=True)
class Tolerance:
    """A pair passes within atol + rtol · the larger magnitude, or within ulp last places."""

    rtol: float = 0.0
    atol: float = 0.0
    ulp: float = 0.0


@dataclass
class Difference:
    """How one dataset differs; ``why`` says why it cannot be compared as a whole.

    ``relative`` is a share of the larger magnitude, ``ulp`` counts last places of the coarser
    type, ``square`` sums the squares of all differences. The values furthest apart are ``a`` and
    ``b``, at ``at``.
    """

    dataset: str
    why: str = ""
    note: str = ""
    shape: tuple[int, ...] = ()
    types: str = ""
    values: int = 0
    differing: int = 0
    beyond: int = 0
    absolute: float = 0.0
    relative: float = 0.0
    ulp: float = 0.0
    square: float = 0.0
    at: tuple[int, ...] | None = None
    a: float | str | None = None
    b: float | str | None = None

    @property
    def passed(self) -> bool:
        """Whether nothing is beyond the tolerance."""
        return not self.why and self.beyond == 0

    def as_dict(self) -> dict[str, Any]:
        """The same for JSON, with the root of the mean square."""
        numbers = {name: value for name, value in vars(self).items() if name != "square"}
        rms = float(np.sqrt(self.square / max(self.values, 1)))
        return {**numbers, "rms": rms, "passed": self.passed}

    def add(self, a: Array, b: Array, begin: int, tolerance: Tolerance) -> None:
        """Take in a block of a pair, which begins at row ``begin`` of the first axis."""
        self.values += a.size
        numeric = a.dtype.kind in NUMERIC_KINDS and b.dtype.kind in NUMERIC_KINDS
        if not numeric:  # strings and booleans are equal or not, without a distance
            a, b = (np.vectorize(text_of, otypes=["U"])(one) if one.size else one for one in (a, b))
        same = np.asarray(a == b)
        if a.dtype.kind == b.dtype.kind == "f":
            same |= np.isnan(a) & np.isnan(b)
        if same.all():
            return
        gap = share = ulp = np.where(same, 0.0, np.inf)
        beyond = ~same
        if numeric:
            x, y = a.astype(np.float64), b.astype(np.float64)
            with np.errstate(all="ignore"):
                size = np.maximum(np.abs(x), np.abs(y))
                gap = np.where(same, 0.0, np.nan_to_num(np.abs(x - y), nan=np.inf, posinf=np.inf))
                share = np.where(gap > 0, np.where(np.isfinite(gap), gap / size, np.inf), 0.0)
                allowed = np.where(np.isfinite(size), tolerance.atol + tolerance.rtol * size, 0.0)
            ulp = np.where(same, 0.0, last_places(a, b))
            beyond &= (gap > allowed) & ~(ulp <= tolerance.ulp)
        self.differing += int((~same).sum())
        self.beyond += int(beyond.sum())
        self.relative = max(self.relative, float(share.max()))
        self.ulp = max(self.ulp, float(ulp.max()))
        with np.errstate(over="ignore"):
            self.square += float(np.square(gap).sum())
        worst = np.unravel_index(int(gap.argmax()), gap.shape)
        if self.at is None or gap[worst] > self.absolute:
            self.absolute = float(gap[worst])
            self.at = tuple(int(n) + begin * (axis == 0) for axis, n in enumerate(worst))
            self.a, self.b = ((float if numeric else str)(one[worst]) for one in (a, b))


def last_places(a: Array, b: Array) -> Floats:
    """The distance of numbers in units of the last place of the larger, both rounded to the
    coarser type; infinite at a NaN."""
    size = min([8, *(one.dtype.itemsize for one in (a, b) if one.dtype.kind == "f")])
    with np.errstate(all="ignore"):
        x, y = (one.astype(f"f{size}") for one in (a, b))
        unit = np.spacing(np.maximum(np.abs(x), np.abs(y)))
        places = np.abs(x.astype(np.float64) - y) / unit
    return np.where(x == y, 0.0, np.where(np.isnan(places), np.inf, places))


def compare(
    first: Mapping[str, Compared],
    second: Mapping[str, Compared],
    tolerance: Tolerance,
    on_progress: Progress = lambda done, total: None,
) -> Iterator[Difference]:
    """Every dataset of either by its name, in the order of the first; one of each by any name."""
    if len(first) == len(second) == 1:
        second = dict(zip(first, second.values(), strict=True))
    names = list(dict.fromkeys([*first, *second]))
    for done, name in enumerate(names):
        if name not in first or name not in second:
            yield Difference(name, f"only in {'a' if name in first else 'b'}")
        else:
            yield _difference(name, first[name], second[name], tolerance)
        on_progress(done + 1, len(names))


def _difference(name: str, a: Compared, b: Compared, tolerance: Tolerance) -> Difference:
    first, second, note, why = in_one_unit(a.dataset, b.dataset)
    a, b = replace(a, dataset=first), replace(b, dataset=second)
    axes = max(a.dataset.ndim, b.dataset.ndim)
    one, two = _with_axes(a.dataset, axes), _with_axes(b.dataset, axes)
    types = " and ".join(dict.fromkeys((str(one.dtype), str(two.dtype))))
    difference = Difference(name, why, note, one.shape, types)
    if why:
        return difference
    if one.shape == two.shape:
        total = one.shape[0] if one.shape else 1
        count = max(1, total * _BLOCK_BYTES // max(1, one.nbytes))
        for begin in range(0, total, count):
            end = min(begin + count, total)
            blocks = [np.asarray(stored.read_rows(begin, end)) for stored in (one, two)]
            difference.add(blocks[0], blocks[1], begin, tolerance)
        return difference
    difference.why = f"shapes differ: {describe(a.dataset.shape)} and {describe(b.dataset.shape)}"
    rows = one.shape[-2:-1] + two.shape[-2:-1]
    if len(rows) == 2 and min(rows) and two.shape == (*one.shape[:-2], rows[1], one.shape[-1]):
        times = a.time(), b.time()
        if times[0] is not None and times[1] is not None:
            pair = _with_axes(a.dataset, 3), _with_axes(b.dataset, 3)
            difference.why = _compare_by_time(difference, pair, (times[0], times[1]), tolerance)
    return difference


def _with_axes(stored: Dataset, axes: int) -> Dataset:
    """A dataset with so many axes, the first of length 1: [T, D] as [1, T, D]."""
    new = axes - stored.ndim
    if new <= 0:
        return stored
    return replace(stored, shape=(1,) * new + stored.shape,
                   reader=lambda begin, end: stored.read()[(None,) * new])  # fmt: skip


def _compare_by_time(
    difference: Difference,
    pair: tuple[Dataset, Dataset],
    times: tuple[Time, Time],
    tolerance: Tolerance,
) -> str:
    """Compare [B, T, D] at the times of the one with fewer rows, the other linear between its.

    Both must begin and end at the same times, up to one step of the one with fewer rows: else
    returns how they differ.
    """
    rows = [stored.shape[1] for stored in pair]
    coarse, fine = (0, 1) if rows[0] < rows[1] else (1, 0)
    for number in range(pair[0].shape[0]):
        clocks = [
            time.rows(number, number + 1, 0, count)[0]
            for time, count in zip(times, rows, strict=True)
        ]
        at, stamps = clocks[coarse], clocks[fine]
        step = float(np.diff(at if len(at) > 1 else stamps).max())
        if max(abs(at[0] - stamps[0]), abs(at[-1] - stamps[-1])) > step * (1 + _SAME_TIME):
            spans = (f"{clock[0]:g} to {clock[-1]:g} s" for clock in clocks)
            return f"times differ: {' and '.join(spans)}"
        values = [np.asarray(stored.read_rows(number, number + 1))[0] for stored in pair]
        values[fine] = _between(at, stamps, values[fine], values[coarse], step * _SAME_TIME)
        difference.add(values[0][None], values[1][None], number, tolerance)
    aligned = f"{rows[0]} and {rows[1]} rows, aligned by time; {'ab'[fine]} interpolated"
    difference.note = "; ".join(filter(None, [aligned, difference.note]))
    return ""


def _between(at: Floats, stamps: Floats, values: Array, outside: Array, slack: float) -> Array:
    """Values [T, D] at other times; a row within ``slack`` of a time is that row exactly."""
    right = np.clip(np.searchsorted(stamps, at), 1, len(stamps) - 1)
    left = np.where(at - stamps[right - 1] < stamps[right] - at, right - 1, right)
    same = np.abs(at - stamps[left]) <= slack
    near = np.where(same, stamps[left], at)
    columns = [np.interp(near, stamps, column) for column in values.T.astype(np.float64)]
    inside = (near >= stamps[0]) & (near <= stamps[-1])
    between = np.where(inside[:, None], np.stack(columns, 1), outside)
    return between.astype(values.dtype) if values.dtype.kind == "f" else between


def attributes_apart(first: ArrayFile, second: ArrayFile) -> list[tuple[str, Any, Any]]:
    """Attributes of the files that differ, and options of their requests: name, both values."""
    a, b = _attributes(first), _attributes(second)
    return [
        (name, a.get(name), b.get(name))
        for name in sorted({*a, *b})
        if not np.array_equal(np.asarray(a.get(name)), np.asarray(b.get(name)))
    ]


def _attributes(file: ArrayFile) -> dict[str, Any]:
    attributes = dict(file.attributes())
    request = json_object(attributes.get("request"))
    if request:
        del attributes["request"]
    texts = {k: v if isinstance(v, str) else json.dumps(v) for k, v in request.items()}
    return attributes | {f"request.{key}": value for key, value in texts.items()}
