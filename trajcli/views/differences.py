"""Two sets of arrays side by side: how far apart, absolute, relative, in last places; and where."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from trajcli.checks import describe
from trajcli.files.arrays import NUMERIC_KINDS, ArrayFile, StoredArray, text_of
from trajcli.files.source import Source

_BLOCK_BYTES = 8 << 20
Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Tolerance:
    """A pair passes within atol + rtol · the larger magnitude, or within so many last places."""

    rtol: float = 0.0
    atol: float = 0.0
    ulp: float = 0.0


@dataclass
class Difference:
    """One dataset: ``why`` it cannot be compared, or what the comparison gave."""

    dataset: str
    why: str = ""
    shape: tuple[int, ...] = ()
    types: str = ""
    values: int = 0
    differing: int = 0
    beyond: int = 0
    absolute: float = 0.0
    relative: float = 0.0
    ulp: float = 0.0
    at: tuple[int, ...] | None = None
    pair: tuple[float | str, float | str] = (0.0, 0.0)

    @property
    def passed(self) -> bool:
        """Whether nothing is beyond the tolerances."""
        return not self.why and self.beyond == 0

    def as_dict(self) -> dict[str, Any]:
        """The same, for JSON."""
        about: dict[str, Any] = {"dataset": self.dataset, "passed": self.passed}
        if self.why:
            return {**about, "why": self.why}
        numbers = {
            "values": self.values,
            "differing": self.differing,
            "beyond": self.beyond,
            "absolute": self.absolute,
            "relative": self.relative,
            "ulp": self.ulp,
        }
        worst = {"at": list(self.at), "a": self.pair[0], "b": self.pair[1]} if self.at else {}
        return {**about, "shape": list(self.shape), "types": self.types, **numbers, **worst}


Arrays = Mapping[str, StoredArray]


def arrays_of(file: ArrayFile, source: Source) -> dict[str, StoredArray]:
    """The numeric datasets a source names, by what they are called below it.

    A single dataset that is named is called "": it is compared whatever the other is called.
    """
    if source.dataset is None:
        names = {name: name for name in file.names()}
    elif file.has_group(source.dataset):
        prefix = source.dataset.strip("/") + "/"
        names = {n.removeprefix(prefix): n for n in file.names() if n.startswith(prefix)}
    else:
        found = file.match(source.dataset)
        names = {found[0]: found[0]} if "*" in source.dataset else {"": found[0]}
        names |= {name: name for name in found[1:]}
    stored = {label: file.require(name) for label, name in names.items()}
    return {label: array for label, array in stored.items() if array.numeric or _is_text(array)}


def _is_text(array: StoredArray) -> bool:
    """Strings, and yes or no: equal or not, but no distance apart."""
    return array.dtype.kind in "SUOb"


def compare(
    first: Arrays,
    second: Arrays,
    tolerance: Tolerance,
    on_progress: Progress = lambda done, total: None,
) -> Iterator[Difference]:
    """Every dataset of either, in the order of the first."""
    if len(first) == len(second) == 1:  # of one dataset each, the names do not matter
        (name, own), (other_name, other) = next(iter(first.items())), next(iter(second.items()))
        first, second = {name or other_name: own}, {name or other_name: other}
    total = sum(_blocks(first[name]) for name in first if name in second)
    done = 0
    for name in [*first, *(name for name in second if name not in first)]:
        if name not in first or name not in second:
            yield Difference(name, f"only in {'the first' if name in first else 'the second'}")
        elif first[name].shape != second[name].shape:
            shapes = describe(first[name].shape), describe(second[name].shape)
            yield Difference(name, f"shapes differ: {shapes[0]} and {shapes[1]}")
        else:
            found = _start(name, first[name], second[name])
            for begin, end in _spans(first[name]):
                a, b = (np.asarray(s.read_rows(begin, end)) for s in (first[name], second[name]))
                _take_in(found, a, b, begin, tolerance)
                done += 1
                on_progress(done, total)
            yield found


def _start(name: str, first: StoredArray, second: StoredArray) -> Difference:
    kinds = dict.fromkeys((str(first.dtype), str(second.dtype)))
    return Difference(name, shape=first.shape, types=" and ".join(kinds))


def _spans(stored: StoredArray) -> Iterator[tuple[int, int]]:
    if not stored.shape:
        yield 0, 1
        return
    size = max(1, _BLOCK_BYTES // max(1, stored.nbytes // max(1, stored.shape[0])))
    for begin in range(0, stored.shape[0], size):
        yield begin, min(begin + size, stored.shape[0])


def _blocks(stored: StoredArray) -> int:
    return sum(1 for _ in _spans(stored))


def _take_in(found: Difference, a: Any, b: Any, begin: int, tolerance: Tolerance) -> None:
    """One block of a pair."""
    found.values += a.size
    if not (_counts(a) and _counts(b)):
        _take_in_texts(found, a, b, begin)
        return
    same = a == b
    if a.dtype.kind == b.dtype.kind == "f":
        same |= np.isnan(a) & np.isnan(b)
    if same.all():
        return
    x, y = a.astype(np.float64), b.astype(np.float64)
    with np.errstate(all="ignore"):
        off = np.where(same, 0.0, np.abs(x - y))
        off = np.where(np.isnan(off), np.inf, off)
        size = np.maximum(np.abs(x), np.abs(y))
        relative = np.where(same, 0.0, np.where(np.isfinite(off), off / size, np.inf))
        ulp = np.where(same, 0.0, last_places(a, b))
        allowed = np.where(np.isfinite(size), tolerance.atol + tolerance.rtol * size, 0.0)
        beyond = ~same & (off > allowed) & ~(ulp <= tolerance.ulp)
    found.differing += int((~same).sum())
    found.beyond += int(beyond.sum())
    found.relative = max(found.relative, float(relative.max()))
    found.ulp = max(found.ulp, float(ulp.max()))
    at = np.unravel_index(int(off.argmax()), off.shape)
    most = float(off[at])
    if found.at is None or most > found.absolute:
        found.absolute = most
        found.at = tuple(int(i) + (begin if axis == 0 else 0) for axis, i in enumerate(at))
        found.pair = float(x[at]), float(y[at])


def _counts(values: Any) -> bool:
    return values.dtype.kind in NUMERIC_KINDS


def _take_in_texts(found: Difference, a: Any, b: Any, begin: int) -> None:
    """Values that are equal or not."""
    texts = [np.array([text_of(v) for v in one.ravel().tolist()], "U") for one in (a, b)]
    apart = np.flatnonzero(texts[0] != texts[1])
    if not len(apart):
        return
    found.differing += len(apart)
    found.beyond += len(apart)
    found.absolute = found.relative = found.ulp = np.inf
    if found.at is None:
        at = np.unravel_index(int(apart[0]), a.shape)
        found.at = tuple(int(i) + (begin if axis == 0 else 0) for axis, i in enumerate(at))
        found.pair = str(texts[0][apart[0]]), str(texts[1][apart[0]])


def last_places(a: Any, b: Any) -> Any:
    """How many numbers of the coarser type lie between two, as float64; infinite at a NaN."""
    floats = [one.dtype for one in (a, b) if one.dtype.kind == "f"]
    kind = min(floats, key=lambda dtype: dtype.itemsize, default=np.dtype("f8"))
    size = min(kind.itemsize, 8)
    counts = [_ordered(one.astype(f"f{size}"), size) for one in (a, b)]
    if size < 8:
        gap = np.abs(counts[0] - counts[1]).astype(np.float64)
    else:  # the difference of two may not fit into 64 bits
        gap = np.abs(counts[0].astype(np.float64) - counts[1].astype(np.float64))
        near = gap < 2.0**53
        exact = np.where(near, counts[0], 0) - np.where(near, counts[1], 0)
        gap = np.where(near, np.abs(exact).astype(np.float64), gap)
    return np.where(np.isnan(a) | np.isnan(b), np.inf, gap)


def _ordered(values: Any, size: int) -> Any:
    """Floats as whole numbers in the same order, neighbours one apart."""
    bits = np.ascontiguousarray(values).view(f"i{size}").astype(np.int64)
    lowest = np.int64(-(2 ** (8 * size - 1)))
    return np.where(bits < 0, lowest - bits, bits)


def attributes_apart(first: ArrayFile, second: ArrayFile) -> list[tuple[str, Any, Any]]:
    """Attributes of the files that differ: name, and both values."""
    a, b = first.attributes(), second.attributes()
    names: Sequence[str] = sorted({*a, *b})
    return [(n, a.get(n), b.get(n)) for n in names if not _equal(a.get(n), b.get(n))]


def _equal(a: Any, b: Any) -> bool:
    return bool(np.array_equal(np.asarray(a), np.asarray(b)))
