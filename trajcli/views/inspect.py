"""What is in a file, as plain values: its datasets, its trajectories, their times and peaks."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from trajcli.errors import InputError, raise_if_any
from trajcli.files.arrays import ArrayFile
from trajcli.files.blocks import Block, Progress
from trajcli.files.opening import Files
from trajcli.files.reader import read_sources
from trajcli.files.selection import select
from trajcli.files.source import Source, expand_files, parse_source
from trajcli.files.stored_time import STAMPS
from trajcli.views.datasets import Datasets
from trajcli.views.terminal import Curves
from trajcli.views.trajectories import Batch, batches, main_batch, whole_batch

_MOST_TIMES = 64
"""Trajectories whose times are read."""
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
    main = main_batch(every)
    try:
        whole_batch(every)
    except InputError as error:  # which other commands refuse
        files.note("; ".join(line.strip() for line in error.faults[0].lines()[:3]))
    chosen = [] if main is None else select(episodes, main.count)
    if not names:  # an array within each trajectory of a layout
        names = [(one.file, path) for batch in every for one in batch.sets
                 for path in [f"{one.group}/{one.array_name}"]]  # fmt: skip
    size = sum(map(_file_bytes, opened))
    datasets = Datasets(every, episodes, full, size, on_progress)
    report = {
        "file": str(source.path),
        "family": file.family,
        "layout": layout.name if layout else None,
        "bytes": size,
        "attributes": dict(file.attributes()),
        "joint_names": main.first.joint_names if main else None,
        "dt": _dt(main) if main else None,
        "trajectories": _trajectories(main, chosen) if main else {"count": 0},
        "datasets": datasets.reports(names, source.dataset is not None),
        "sampled": datasets.sampled,
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
        actual = f", {fault.found} instead of {fault.expected}" if fault.found else ""
        return {"value": None, "source": f"{fault.where}: {fault.what}{actual}"}
    if time is None:
        return None
    source = str(main.first.file.attributes().get("dt_source", time.source))
    step = steps.pop() if len(steps) == 1 else None
    return {"value": "varies" if step is None else step, "source": source}


def _trajectories(main: Batch, chosen: Sequence[int]) -> dict[str, Any]:
    """How many, how long in rows and in seconds; the median rate, and how far steps are from it."""
    rows = main.lengths if main.count else np.array([main.first.shape[1]])
    report: dict[str, Any] = {
        "count": main.count,
        "rows": [int(rows.min()), int(rows.max())],
        "dofs": main.first.shape[2],
        "shown": [main.name(number) for number in chosen[:1]],
    }
    steps, durations = [], []
    for number in chosen[:: 1 + len(chosen) // _MOST_TIMES]:
        block = main.block(number)
        with contextlib.suppress(InputError):
            time = block.parts[0][0].time
            raise_if_any(time.shape_faults() if time else [])
            if time is None or block.rows < 2:
                continue
            if time.uniform is not None:  # not every row of a very long trajectory
                steps.append(np.array([time.uniform]))
                durations.append(time.uniform * (block.rows - 1))
            elif (times := block.times()) is not None:
                steps.append(np.diff(times[0]))
                durations.append(float(times[0, -1] - times[0, 0]))
    if steps:
        gaps = np.concatenate(steps)
        median = float(np.median(gaps))
        report["duration"] = [min(durations), max(durations)]
        report["rate"] = 1.0 / median if median > 0 else None
        report["jitter"] = float(np.abs(gaps - median).max())
    return report


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
