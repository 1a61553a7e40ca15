"""What is in a file, as plain values: datasets, ranges, peaks and when, states, the relation."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trajcli.errors import InputError
from trajcli.files.arrays import ArrayFile
from trajcli.files.layouts import Layout, layout_of
from trajcli.files.opening import open_arrays
from trajcli.files.source import Source
from trajcli.views.curves import Curve, curves_of
from trajcli.views.datasets import TIMES, Scans, Wish, describe_datasets, dofs_of
from trajcli.views.motions import Motions, Trajectories, find_trajectories, joint_names
from trajcli.views.scan import Progress
from trajcli.views.selection import rows_of, select

_MOST_ROWS = 1000
"""More rows are never listed."""


@dataclass(frozen=True)
class Summary:
    """A file's report of plain values, and the lines to draw."""

    report: dict[str, Any]
    curves: Sequence[Curve]


def summarise(
    source: Source, wish: Wish, on_progress: Progress = lambda done, total: None
) -> Summary:
    """A file, or the datasets of it that the source names.

    Datasets that cannot be read are listed with the reason. Raises InputError where the file
    cannot be opened or the named dataset is not there.
    """
    with open_arrays(source.path, wish.allow_external, wish.untrusted) as file:
        names = _names(file, source)
        found = _trajectories(file, source)
        chosen = _chosen(found, wish)
        scans = Scans(file, found, wish, chosen, on_progress)
        datasets = describe_datasets(file, names, source, scans)
        main = found.at(chosen[0])[0] if chosen else None
        layout = None if "mode" in file.attributes() else layout_of(file)
        report = {
            "file": str(source.path),
            "family": file.family,
            "layout": layout.name if layout else None,
            "bytes": _size(source.path),
            "attributes": dict(file.attributes()),
            "joint_names": joint_names(file, [""]),
            "dt": _dt(main, layout),
            "datasets": datasets,
            "trajectories": {"count": found.count, "shown": [found.name(n) for n in chosen[:1]]},
            "states": [_states(found, n, wish) for n in chosen[:1]],
            "rows": _listed(found, chosen, wish) if wish.rows is not None else None,
            "relation": scans.relation(),
            "sampled": scans.sampled,
        }
        curves = [] if not chosen else curves_of(found, chosen[0], wish.dof)
        return Summary(report, curves)


def _size(path: Path) -> int:
    if os.path.isdir(path):
        return sum(part.stat().st_size for part in Path(path).rglob("*") if part.is_file())
    return os.path.getsize(path)


def _names(file: ArrayFile, source: Source) -> list[str]:
    if source.dataset is None:
        return file.names()
    if file.has_group(source.dataset):
        prefix = source.dataset.strip("/") + "/"
        return [name for name in file.names() if name.startswith(prefix)]
    return file.match(source.dataset)


def _trajectories(file: ArrayFile, source: Source) -> Trajectories:
    """Those there are; none where the named datasets hold something else."""
    if source.dataset is not None and source.dataset.rpartition("/")[2] in TIMES:
        return Trajectories([])
    try:
        return find_trajectories(file, source)
    except InputError:
        return Trajectories([])


def _chosen(found: Trajectories, wish: Wish) -> Sequence[int]:
    """Numbers of the trajectories that are shown; without --index, all."""
    return select(wish.index, found.count, "--index") if wish.index else range(found.count)


def _dt(motions: Motions | None, layout: Layout | None) -> dict[str, Any] | None:
    if motions is None or not motions.steps:
        step = layout.step() if layout else None
        return {"value": step.seconds, "source": step.source} if step else None
    attributes = motions.attributes
    if "dt" in attributes and "dt_source" in attributes:
        return {"value": attributes["dt"], "source": str(attributes["dt_source"])}
    uniform = motions.steps.uniform
    return {"value": "varies" if uniform is None else uniform, "source": motions.steps.source}


def _states(found: Trajectories, number: int, wish: Wish) -> dict[str, Any]:
    """The first and last row of a trajectory."""
    main, own = found.at(number)
    dofs = dofs_of(main, wish)
    rows = main.rows(own)
    ends = {"start": (0, 1), "end": (rows - 1, rows)}
    state = {
        end: {name: main.read(name, own, *span)[0][dofs].tolist() for name in main.arrays}
        for end, span in ends.items()
        if rows
    }
    return {"trajectory": found.name(number), "dofs": [main.dofs[i] for i in dofs], **state}


def _listed(found: Trajectories, chosen: Sequence[int], wish: Wish) -> list[dict[str, Any]]:
    """The numbers of some rows, of the first trajectories chosen."""
    listed = []
    left = _MOST_ROWS
    for number in chosen if wish.index else chosen[:1]:
        main, own = found.at(number)
        dofs = dofs_of(main, wish)
        begin, end = rows_of(wish.rows, main.rows(own))
        end = min(end, begin + left)
        left -= end - begin
        times = main.steps.times(own, begin, end).tolist() if main.steps else None
        values = {name: main.read(name, own, begin, end)[:, dofs] for name in main.arrays}
        listed.append(
            {
                "trajectory": found.name(number),
                "dofs": [main.dofs[i] for i in dofs],
                "first": begin,
                "time": times,
                **{name: rows.tolist() for name, rows in values.items()},
            }
        )
        if left <= 0:
            break
    return listed
