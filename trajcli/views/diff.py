"""Datasets of two sources side by side: how far they are apart, and where the most."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from trajcli.checks import describe
from trajcli.errors import InputError
from trajcli.files.arrays import NUMERIC_KINDS, ArrayFile, Dataset, json_object, text_of
from trajcli.files.blocks import Array, Floats, Progress
from trajcli.files.conversion import in_one_unit
from trajcli.files.dofs import pick_dofs
from trajcli.files.opening import Files
from trajcli.files.selection import select
from trajcli.files.source import Source, expand_files, parse_source
from trajcli.files.time import Time
from trajcli.views.terminal import Table, cut
from trajcli.views.trajectories import array_path, read_batches

if TYPE_CHECKING:
    from rich.console import RenderableType

_BLOCK_BYTES = 8 << 20
_SAME_TIME = 1e-9
"""Rows are at the same time where their stamps differ by less than this share of a step."""
_HEADINGS = ("dataset", "> differ", "> beyond", "> absolute", "> relative", "> ulp", "> RMS")
_LONGEST, _BEFORE = 60, 20
"""Letters that are shown of texts that differ, and how many before the first difference."""
_LISTED = 3
"""More datasets whose names differ in numbers only share a line."""

Compared = tuple[Dataset, Callable[[], "Time | None"]]
"""A dataset to compare, and the times of its rows, which are read where another has other rows."""


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
        """Returns the difference for JSON, with the root of the mean square."""
        numbers = {name: value for name, value in vars(self).items() if name != "square"}
        rms = float(np.sqrt(self.square / max(self.values, 1)))
        return {**numbers, "rms": rms, "passed": self.passed}

    def add(self, a: Array, b: Array, begin: int, tolerance: Tolerance) -> None:
        """Adds a block of a pair, which begins at row ``begin`` of the first axis."""
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
    """Returns the distance of numbers in units of the last place of the larger, both rounded to the
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
    """Compares the datasets of the same name, in the order of the first source; where both have
    one, whatever it is called."""
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
    one, two, note, why = in_one_unit(a[0], b[0])
    shapes = one.shape, two.shape
    axes = max(one.ndim, two.ndim)
    one, two = _with_axes(one, axes), _with_axes(two, axes)
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
    difference.why = f"shapes differ: {describe(shapes[0])} and {describe(shapes[1])}"
    rows = one.shape[-2:-1] + two.shape[-2:-1]
    if len(rows) == 2 and min(rows) and two.shape == (*one.shape[:-2], rows[1], one.shape[-1]):
        times = a[1](), b[1]()
        if times[0] is not None and times[1] is not None:
            pair = _with_axes(one, 3), _with_axes(two, 3)
            difference.why = _compare_by_time(difference, pair, (times[0], times[1]), tolerance)
    return difference


def _with_axes(stored: Dataset, axes: int) -> Dataset:
    """Returns a dataset with so many axes, the first of length 1: [T, D] as [1, T, D]."""
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
    """Compares [B, T, D] at the times of the one with fewer rows, the other linear between its.

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
    """Returns values [T, D] at other times; exactly a row where it is within ``slack`` of one."""
    right = np.clip(np.searchsorted(stamps, at), 1, len(stamps) - 1)
    left = np.where(at - stamps[right - 1] < stamps[right] - at, right - 1, right)
    same = np.abs(at - stamps[left]) <= slack
    near = np.where(same, stamps[left], at)
    columns = [np.interp(near, stamps, column) for column in values.T.astype(np.float64)]
    inside = (near >= stamps[0]) & (near <= stamps[-1])
    between = np.where(inside[:, None], np.stack(columns, 1), outside)
    return between.astype(values.dtype) if values.dtype.kind == "f" else between


def attributes_apart(first: ArrayFile, second: ArrayFile) -> list[tuple[str, Any, Any]]:
    """Returns the attributes of the files that differ, and the options of their requests that do:
    name, both values."""
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


def datasets(files: Files, text: str, episodes: str | None = None) -> dict[str, Compared]:
    """Returns the datasets that a source names; of several files, by their places in the folder,
    too.

    A single dataset that is named is called "": it is compared whatever the other is called. With
    ``episodes`` the arrays of each of these trajectories, by its place among them.
    """
    source = parse_source(text)
    if episodes is not None:
        return _of_trajectories(files, text, episodes, bool(source.dataset))
    several = expand_files(source)
    if several == [source]:
        return _in_file(files, source, False)
    folder = source.path if source.path.is_dir() else source.path.parent
    return {
        f"{os.path.relpath(one.path, folder)}/{name}".rstrip("/"): compared
        for one in several
        for name, compared in _in_file(files, one, len(several) > 1).items()
    }


def _of_trajectories(files: Files, text: str, episodes: str, named: bool) -> dict[str, Compared]:
    """Returns the arrays of some trajectories, each alone: named ones are compared whatever they
    are called."""
    compared: dict[str, Compared] = {}
    for batch in read_batches(files, [text], as_stored=True):
        for place, number in enumerate(select(episodes, batch.count)):
            block = batch.block(number)
            one, begin, end = block.parts[0]
            which, rows = range(begin, end), range(block.rows)
            time = None if one.time is None else one.time.select(which, block.rows)
            for name, stored in one.arrays.items():
                title = "" if named and len(one.arrays) == 1 else f"/{name}"
                known = partial(lambda time: time, time)
                compared[f"trajectory {place}{title}"] = stored.select(which, rows), known
    return compared


def _in_file(files: Files, source: Source, several: bool) -> dict[str, Compared]:
    """Returns the datasets of a file; of a layout's array in several files, those of each
    trajectory; where options say how to read it the trajectories alone."""
    file, text = files.open(source.path), str(source)
    as_named = files.reading.plain
    of_group = source.dataset is None or file.has_group(source.dataset)
    named = None if of_group or not as_named else file.get(str(source.dataset))
    prefix = f"{source.dataset.strip('/')}/" if of_group and source.dataset else ""
    if as_named and of_group:
        names = [name for name in file.names() if name.startswith(prefix)]
        by_name = {name.removeprefix(prefix): file.require(name) for name in names}
    elif named is not None and not (several and files.layout(file)):
        by_name = {"": pick_dofs(named, source.dofs)}
    else:
        by_name = {
            array_path(group, one, name).removeprefix(prefix): stored
            for batch in read_batches(files, [text], as_stored=True)
            for one in batch.sets
            for group in [one.group if one.member is None else one.name]
            for name, stored in one.arrays.items()
        }
    return {  # the names of the dofs are one dataset of HDF5, found by any of its links
        "dof" if name.endswith("/dof") and not stored.numeric else name: (
            stored,
            partial(_time_of, files, text, stored.where),
        )
        for name, stored in by_name.items()
        if stored.dtype.kind in f"{NUMERIC_KINDS}SUOb"
    }


def _time_of(files: Files, text: str, where: str) -> Time | None:
    """Returns the times of the rows of a dataset; None where it is no trajectory or has none."""
    try:
        every = read_batches(files, [text])
    except InputError:
        return None
    sets = (one for batch in every for one in batch.sets)
    holds = (one for one in sets if any(stored.where == where for stored in one.arrays.values()))
    return next((one.time for one in holds), None)


def report(
    sources: tuple[str, str],
    differences: Sequence[Difference],
    attributes: Sequence[tuple[str, Any, Any]],
    verbose: bool,
) -> Iterator[RenderableType]:
    """Returns what differs and by how much: many datasets whose groups differ in numbers only on
    one line, data/demo_*/position; with ``verbose`` each on its own."""
    from rich.text import Text

    yield Text(f"a: {sources[0]}\nb: {sources[1]}\n")
    patterns: dict[str, list[Difference]] = {}
    for one in differences:
        group, slash, name = one.dataset.rpartition("/")
        patterns.setdefault(re.sub(r"\d+", "*", group) + slash + name, []).append(one)
    lines: list[tuple[str, list[Difference]]] = []
    for pattern, members in patterns.items():
        if verbose or len(members) <= _LISTED:
            lines += [(one.dataset or "values", [one]) for one in members]
        else:
            lines.append((f"{pattern} ({len(members)})", members))
    compared = [(name, members) for name, members in lines if any(one.values for one in members)]
    if compared:
        yield Table(_HEADINGS, [_row(name, members) for name, members in compared])
    for name, members in compared:
        worst = max(members, key=lambda one: (one.at is not None, one.absolute))
        if worst.at is not None:
            a, b = _pair(worst.a, worst.b)
            group = f"{worst.dataset.rpartition('/')[0]} " if len(members) > 1 else ""
            yield Text(f"{name}: worst at {group}{list(worst.at)}, a = {a}, b = {b}")
    for name, members in lines:
        if notes := [one for one in members if one.why or one.note]:
            first = min(notes, key=lambda one: not one.why)
            more = f" and {len(notes) - 1} more" if len(notes) > 1 else ""
            which = f": {first.dataset}{more}" if len(members) > 1 else ""
            yield Text(f"{name}: {first.why or first.note}{which}")
    for name, *values in attributes:
        yield Text(f"attribute {name}: {' and '.join(_short(*values))}")
    if differences and not compared:
        yield Text("no dataset is in both: name one of each; --episodes all goes by trajectories")
    failed = sum(not one.passed for one in differences)
    datasets = f"{len(differences)} dataset{'s' * (len(differences) != 1)}"
    count = sum(one.differing for one in differences)
    if failed:
        differ = "differs" if failed == 1 else "differ"
        yield Text(f"\n{failed} of {datasets} {differ} by more than allowed", "bold red")
    elif count:
        numbers = f"{count} number{' differs' if count == 1 else 's differ'}"
        yield Text(f"\n{datasets}: {numbers}, within the tolerance")
    else:
        yield Text(f"\n{datasets}: equal" if differences else "\nno datasets to compare")


def _row(name: str, members: Sequence[Difference]) -> list[str]:
    differing = sum(one.differing for one in members)
    if not differing:
        return [name, "0"]
    return [
        name,
        str(differing),
        str(sum(one.beyond for one in members)),
        f"{max(one.absolute for one in members):.3g}",
        f"{max(one.relative for one in members):.3g}",
        f"{max(one.ulp for one in members):.4g}",
        f"{(sum(one.square for one in members) / sum(one.values for one in members)) ** 0.5:.3g}",
    ]


def _pair(a: float | str | None, b: float | str | None) -> tuple[str, str]:
    """Returns two values, with as many digits as tell them apart."""
    if not (isinstance(a, float) and isinstance(b, float)):
        return str(a), str(b)
    pairs = ((f"{a:.{digits}g}", f"{b:.{digits}g}") for digits in range(6, 18))
    return next((pair for pair in pairs if pair[0] != pair[1]), (repr(a), repr(b)))


def _short(a: Any, b: Any) -> tuple[str, str]:
    """Returns two texts, cut; where they begin alike, from before the place where they part."""
    texts = ["absent" if value is None else " ".join(str(value).split()) for value in (a, b)]
    if texts[0] == texts[1]:  # they differ in spaces and ends of lines, or in type
        texts = [repr(value) for value in (a, b)]
    pairs = enumerate(zip(*texts, strict=False))
    alike = next((i for i, (x, y) in pairs if x != y), min(map(len, texts)))
    begin = max(0, alike - _BEFORE)
    if begin and max(map(len, texts)) > _LONGEST:
        texts = [f"…{text[begin:]}" for text in texts]
    return cut(texts[0], _LONGEST), cut(texts[1], _LONGEST)
