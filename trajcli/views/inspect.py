"""What is in a file, as plain values: its datasets, its trajectories, their times and peaks."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from trajcli.errors import InputError, raise_if_any
from trajcli.files.arrays import ArrayFile
from trajcli.files.blocks import Block, Progress, common_step, shared
from trajcli.files.opening import Files
from trajcli.files.reader import read_sources
from trajcli.files.selection import select
from trajcli.files.source import Source, expand_files, parse_source
from trajcli.files.stored_time import STAMPS
from trajcli.views.datasets import SAMPLE_BYTES, Datasets
from trajcli.views.terminal import Curves
from trajcli.views.trajectories import Batch, batches, main_batch, whole_batch

_MOST_TIMES = 2000
"""Sets, and trajectories of a large file, whose times are looked at without --full."""
_MOST_GAPS = 4 << 20
"""Of more rows than that, steps for the median are taken evenly from all."""
_BLOCK_BYTES = 8 << 20
_PLOTTED_ROWS = 20_000


@dataclass(frozen=True)
class Inspection:
    """A report of plain values, and the curves of one trajectory."""

    report: dict[str, Any]
    curves: Sequence[Curves]
    dofs: Sequence[str]


def inspect_source(
    files: Files,
    text: str,
    episodes: str | None = None,
    full: bool = False,
    on_progress: Progress = lambda done, total: None,
) -> Inspection:
    """A file, a folder of them, or the datasets that SOURCE names; ``full``: all values.

    Datasets that cannot be read are listed with the reason. Raises InputError where the file
    cannot be opened or the named dataset is not there.
    """
    source = parse_source(text)
    opened = [files.open(one.path) for one in expand_files(source)]
    file, layout = opened[0], files.layout(opened[0])
    names = [(one, name) for one in opened for name in _names(one, source)]
    every = _batches(files, text, source, bool(names))
    try:
        main, _ = whole_batch(every)
    except InputError as error:  # which other commands refuse
        files.note("; ".join(line.strip() for line in error.faults[0].lines()[:3]))
        main = main_batch(every)
    chosen = [] if main is None else select(episodes, main.count)
    numbers = [] if main is None else _numbers(every, main, chosen, episodes)
    if not names:  # an array within each trajectory of a layout
        names = [(one.file, path) for batch in every for one in batch.sets
                 for path in [f"{one.group}/{one.array_name}"]]  # fmt: skip
    size = sum(map(_file_bytes, opened))
    datasets = Datasets(every, numbers, episodes, full, size, on_progress)
    counts = _trajectories(main, chosen, full) if main else {"count": 0}
    report = {
        "file": str(source.path),
        "family": file.family,
        "layout": layout.name if layout else None,
        "bytes": size,
        "attributes": dict(file.attributes()),
        "joint_names": main.first.joint_names if main else None,
        "dt": _dt(main, full) if main else None,
        "trajectories": counts,
        "datasets": datasets.reports(names, source.dataset is not None),
        "sampled": datasets.sampled or counts.get("sampled", False),
        "one_sided": main.one_sided if main else 0,
    }
    if main is None or not chosen:
        return Inspection(report, [], [])
    return Inspection(report, list(_curves(main.block(chosen[0]))), main.dofs)


def _file_bytes(file: ArrayFile) -> int:
    """The size of a file, or of all files in a folder."""
    parts = file.path.rglob("*") if file.path.is_dir() else [file.path]
    return sum(part.stat().st_size for part in parts if part.is_file())


def _names(file: ArrayFile, source: Source) -> list[str]:
    if source.dataset is None:
        return file.names()
    if file.has_group(source.dataset):
        prefix = source.dataset.strip("/") + "/"
        return [name for name in file.names() if name.startswith(prefix)]
    return [name for name in file.match(source.dataset) if file.get(name) is not None]


def _batches(files: Files, text: str, source: Source, listed: bool) -> list[Batch]:
    """The trajectories there are; none where SOURCE names something else that is listed."""
    if source.dataset is not None and source.dataset.rpartition("/")[2] in ("dt", *STAMPS):
        return []
    try:
        return batches(read_sources(files, [text], as_stored=True))
    except InputError:
        if source.dataset is not None and not listed:
            raise
        return []


def _numbers(
    every: Sequence[Batch], main: Batch, chosen: Sequence[int], episodes: str | None
) -> list[Sequence[int]]:
    """The trajectories of each batch that are looked at: those chosen of the ``main`` ones, which
    may be of several batches, and of others those that ``episodes`` says."""
    first_of = {id(one): int(n) for one, n in zip(main.sets, main.offsets, strict=False)}
    numbers: list[Sequence[int]] = []
    for batch in every:
        first = first_of.get(id(batch.sets[0]))
        if first is None:
            numbers.append(select(episodes, batch.count))
        else:
            numbers.append([n - first for n in chosen if 0 <= n - first < batch.count])
    return numbers


def _dt(main: Batch, full: bool) -> dict[str, Any] | None:
    """The time step and where it is from; the fault of a file that contradicts itself."""
    steps = set()
    sets = main.sets if full else main.sets[:: 1 + len(main.sets) // _MOST_TIMES]
    try:
        for one in sets:
            raise_if_any(one.time.shape_faults() if one.time else [])
            steps.add(one.time.uniform if one.time else None)
        time = main.first.time
    except InputError as error:
        fault = error.faults[0]
        actual = f", {fault.found} instead of {fault.expected}" if fault.found else ""
        return {"value": None, "source": f"{fault.where}: {fault.what}{actual}"}
    if time is None:
        return None
    source = str(main.first.file.attributes().get("dt_source", time.source))
    step = steps.pop() if len(steps) == 1 else None
    if step is not None and len(sets) < len(main.sets):
        source += f", sampled: {len(sets)} of {len(main.sets)}"
    return {"value": "varies" if step is None else step, "source": source}


def _trajectories(main: Batch, chosen: Sequence[int], full: bool) -> dict[str, Any]:
    """How many, how long in rows and in seconds; the median rate, and how far steps are from it.

    Of the times of a large file a sample is looked at, unless ``full``.
    """
    rows = main.lengths if main.count else np.array([main.first.shape[1]])
    report: dict[str, Any] = {
        "count": main.count,
        "rows": [int(rows.min()), int(rows.max())],
        "dofs": main.first.shape[2],
        "shown": [main.name(number) for number in chosen[:1]],
    }
    stamps, count = int(main.lengths[np.asarray(chosen, int)].sum()), len(chosen)
    if not full and (len(main.sets) > _MOST_TIMES or _are_long(main, stamps)):
        chosen = chosen[:: 1 + count // _MOST_TIMES]
    report["sampled"] = len(chosen) < count
    steps, ends, durations = [], [], []
    for block in main.blocks(chosen, size=_BLOCK_BYTES):
        for one, begin, end in block.parts if block.rows > 1 else ():
            with contextlib.suppress(InputError):
                if (time := one.time) is None:
                    continue
                raise_if_any(time.shape_faults())
                if time.uniform is not None:  # not every row of a very long trajectory
                    gaps = np.full((end - begin, 1), time.uniform)
                    seconds = gaps[:, 0] * (block.rows - 1)
                else:
                    last = begin + 1 if shared(time) else end
                    times = time.rows(begin, last, 0, block.rows)
                    gaps, seconds = np.diff(times), times[:, -1] - times[:, 0]
                steps.append(gaps.ravel()[:: 1 + stamps // _MOST_GAPS])
                ends += [gaps.min(), gaps.max()]
                durations += [seconds.min(), seconds.max()]
    if steps:
        median = float(np.median(np.concatenate(steps)))
        report["duration"] = [float(min(durations)), float(max(durations))]
        report["rate"] = 1.0 / median if median > 0 else None
        report["jitter"] = float(max(max(ends) - median, median - min(ends)))
    return report


def _are_long(main: Batch, stamps: int) -> bool:
    """Whether there is much to read for the times of so many rows."""
    try:
        return 8 * stamps > SAMPLE_BYTES and common_step(main.sets) is None
    except InputError:
        return False


def _curves(block: Block) -> Iterator[Curves]:
    """The arrays of one trajectory to plot, over time where the file says it; of many rows some."""
    one, first = block.parts[0][0], replace(block, rows=min(block.rows, _PLOTTED_ROWS))
    times = first.known_times()
    x = np.arange(float(first.rows)) if times is None else times[0]
    for name in one.arrays if block.rows else ():
        unit = one.unit(name)
        title = name + (f", {unit}" if unit else "") + (" by row" if times is None else "")
        title += f", first {first.rows} rows" if first.rows < block.rows else ""
        values = first.read(name)[0].astype(np.float64)
        yield Curves(title, x, "" if times is None else " s", values)
