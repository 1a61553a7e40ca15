"""What is in a file, as plain values: its datasets, its trajectories, their times and peaks."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np

from trajcli.errors import InputError, raise_if_any
from trajcli.files.arrays import ArrayFile
from trajcli.files.reader import Files, read_sources
from trajcli.files.source import Source, expand_files, parse_source
from trajcli.files.stored_time import STAMPS
from trajcli.views.datasets import Datasets, file_bytes
from trajcli.views.selection import select, select_rows
from trajcli.views.statistics import Progress
from trajcli.views.terminal_plot import Curves
from trajcli.views.trajectories import Batch, Block, batches, known_times, main_batch

_MOST_ROWS = 1000
"""More rows are not listed."""
_MOST_TIMES = 64
"""The times of so many trajectories are looked at."""
_PLOTTED_ROWS = 20_000


@dataclass(frozen=True)
class Inspection:
    """A file's report of plain values, and the curves of one trajectory."""

    report: dict[str, Any]
    curves: Sequence[Curves]
    dofs: Sequence[str]


def inspect_source(
    files: Files,
    text: str,
    index: str | None = None,
    dof: str | None = None,
    rows: str | None = None,
    full: bool = False,
    on_progress: Progress = lambda done, total: None,
) -> Inspection:
    """A file, or the datasets of it that SOURCE names; ``full``: all values, not a sample.

    Datasets that cannot be read are listed with the reason. Raises InputError where the file
    cannot be opened or the named dataset is not there.
    """
    source = parse_source(text)
    file = files.open(source.path)
    every = _batches(files, text, source)
    main = main_batch(every)
    chosen = [] if main is None else select(index, main.count, "--index")
    dofs = [] if main is None else select(dof, main.first.shape[2], "--dof", main.dofs)
    names = _names(file, source)
    if not names:  # an array within each trajectory of a layout
        names = [f"{one.group}/{one.array_name}" for batch in every for one in batch.sets]
    datasets = Datasets(file, every, index, dof, full, on_progress)
    layout = files.layout(file)
    report = {
        "file": str(source.path),
        "family": file.family,
        "layout": layout.name if layout else None,
        "bytes": file_bytes(source.path),
        "attributes": dict(file.attributes()),
        "joint_names": main.first.joint_names if main else file.dof_names(),
        "dt": _dt(main) if main else None,
        "trajectories": _trajectories(main, chosen) if main else {"count": 0},
        "datasets": datasets.reports(names, source.dataset is not None),
        "rows": None,
        "sampled": datasets.sampled,
    }
    if main is None or not chosen:
        return Inspection(report, [], [])
    if rows is not None:
        listed = chosen if index else chosen[:1]
        report["rows"] = list(_listed(main, listed, list(dofs), rows))
    return Inspection(report, list(_curves(main.block(chosen[0]), list(dofs))), main.dofs)


def shares(files: Files, source: Source, index: str | None) -> list[tuple[Source, str | None]]:
    """The files of a source, each with what --index means in it.

    Trajectories are numbered through the files of a folder; files without any of --index are left
    out. Raises UsageError where --index names what is not there.
    """
    paths = expand_files(source)
    if index is None or not source.path.is_dir() or len(paths) < 2:
        return [(path, index) for path in paths]
    mains = [main_batch(_batches(files, str(path), path)) for path in paths]
    ends = np.cumsum([0, *(0 if main is None else main.count for main in mains)]).tolist()
    chosen = select(index, ends[-1], "--index")
    numbers = [
        ",".join(str(n - begin) for n in chosen if begin <= n < end)
        for begin, end in pairwise(ends)
    ]
    counts = np.diff(ends).tolist()
    return [
        (path, None if count == 1 else text)
        for path, text, count in zip(paths, numbers, counts, strict=True)
        if text
    ]


def _names(file: ArrayFile, source: Source) -> list[str]:
    if source.dataset is None:
        return file.names()
    if file.has_group(source.dataset):
        prefix = source.dataset.strip("/") + "/"
        return [name for name in file.names() if name.startswith(prefix)]
    return [name for name in file.match(source.dataset) if file.get(name) is not None]


def _batches(files: Files, text: str, source: Source) -> list[Batch]:
    """The trajectories there are; none where SOURCE names something else."""
    if source.dataset is not None and source.dataset.rpartition("/")[2] in ("dt", *STAMPS):
        return []
    try:
        return batches(read_sources(files, [text]))
    except InputError:
        if source.dataset is not None and not _names(files.open(source.path), source):
            raise
        return []


def _dt(main: Batch) -> dict[str, Any] | None:
    """The time step and where it is from; the fault of a file that contradicts itself."""
    steps = set()
    try:
        for one in main.sets[:: 1 + len(main.sets) // _MOST_TIMES]:
            raise_if_any(one.time.shape_faults() if one.time else [])
            steps.add(one.time.uniform if one.time else None)
        time = main.first.time
    except InputError as error:
        fault = error.faults[0]
        found = f", {fault.found} instead of {fault.expected}" if fault.found else ""
        return {"value": None, "source": f"{fault.where}: {fault.what}{found}"}
    if time is None:
        return None
    source = str(main.first.file.attributes().get("dt_source", time.source))
    step = steps.pop() if len(steps) == 1 else None
    return {"value": "varies" if step is None else step, "source": source}


def _trajectories(main: Batch, chosen: Sequence[int]) -> dict[str, Any]:
    """How many, how long in rows and in seconds; the median rate, and how far steps are from it."""
    lengths = [
        n for one in main.sets for n in ([one.shape[1]] if one.lengths is None else one.lengths)
    ]
    report: dict[str, Any] = {
        "count": main.count,
        "rows": [int(min(lengths, default=0)), int(max(lengths, default=0))],
        "dofs": main.first.shape[2],
        "shown": [main.name(number) for number in chosen[:1]],
    }
    steps, durations = [], []
    for number in chosen[:: 1 + len(chosen) // _MOST_TIMES]:
        one, rows = main.at(number)[0], main.rows(number)
        with contextlib.suppress(InputError):
            raise_if_any(one.time.shape_faults() if one.time else [])
            step = None if one.time is None else one.time.uniform
            times = None if step is not None else main.block(number).times()
            if rows > 1 and step is not None:  # of very long trajectories, not every row
                steps.append(np.array([step]))
                durations.append(step * (rows - 1))
            elif rows > 1 and times is not None:
                steps.append(np.diff(times[0]))
                durations.append(float(times[0, -1] - times[0, 0]))
    if steps:
        every = np.concatenate(steps)
        median = float(np.median(every))
        report["duration"] = [min(durations), max(durations)]
        report["rate"] = 1.0 / median if median > 0 else None
        report["jitter"] = float(np.abs(every - median).max())
    return report


def _listed(
    main: Batch, numbers: Sequence[int], dofs: list[int], rows: str
) -> Iterator[dict[str, Any]]:
    """The numbers of some rows of some trajectories."""
    room = _MOST_ROWS
    for number in numbers:
        begin, end = select_rows(rows, main.rows(number))
        block = replace(main.block(number), first=begin, rows=min(end - begin, room))
        times = known_times(block)
        yield {
            "trajectory": main.name(number),
            "dofs": [main.dofs[i] for i in dofs],
            "first": begin,
            "time": None if times is None else times[0].tolist(),
            **{name: block.read(name)[0][:, dofs].tolist() for name in main.first.arrays},
        }
        room -= block.rows
        if room <= 0:
            return


def _curves(block: Block, dofs: list[int]) -> Iterator[Curves]:
    """The arrays of one trajectory to plot, over time where the file says it; of many rows some."""
    one, first = block.parts[0][0], replace(block, rows=min(block.rows, _PLOTTED_ROWS))
    times = known_times(first)
    x = np.arange(float(first.rows)) if times is None else times[0]
    for name in one.arrays if block.rows else ():
        unit = one.unit(name)
        title = name + (f", {unit}" if unit else "") + (" by row" if times is None else "")
        title += f", first {first.rows} rows" if first.rows < block.rows else ""
        values = first.read(name)[0].astype(np.float64)[:, dofs]
        yield Curves(title, x, "" if times is None else " s", values, dofs)
