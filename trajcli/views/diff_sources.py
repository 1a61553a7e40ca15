"""The datasets that two sources have side by side, as they are or trajectory by trajectory."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from trajcli.errors import InputError
from trajcli.files.arrays import NUMERIC_KINDS, Dataset
from trajcli.files.dofs import pick_dofs
from trajcli.files.opening import Files
from trajcli.files.reader import read_sources
from trajcli.files.selection import select
from trajcli.files.source import Source, expand_files, parse_source
from trajcli.files.time import Time
from trajcli.views.trajectories import array_path, batches


@dataclass(frozen=True)
class Compared:
    """A dataset to compare; ``time`` is called, and may be None, where another has other rows."""

    dataset: Dataset
    time: Callable[[], Time | None]


def datasets(files: Files, text: str, episodes: str | None = None) -> dict[str, Compared]:
    """The datasets that a source names; of several files, by their places in the folder, too.

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
    """The arrays of some trajectories, each alone: named ones are compared whatever they are
    called."""
    found = {}
    for batch in batches(read_sources(files, [text], as_stored=True)):
        for place, number in enumerate(select(episodes, batch.count)):
            block = batch.block(number)
            one, begin, end = block.parts[0]
            which, rows = range(begin, end), range(block.rows)
            time = None if one.time is None else one.time.select(which, block.rows)
            for name, stored in one.arrays.items():
                alone = stored.select(which, rows)
                title = "" if named and len(one.arrays) == 1 else f"/{name}"
                found[f"trajectory {place}{title}"] = Compared(alone, partial(_same, time))
    return found


def _same(time: Time | None) -> Time | None:
    return time


def _in_file(files: Files, source: Source, several: bool) -> dict[str, Compared]:
    """Of a layout's array in several files, those of each trajectory; with --dofs or --joints the
    trajectories alone."""
    file, text = files.open(source.path), str(source)
    as_named = files.dofs is None and files.joints is None
    of_group = source.dataset is None or file.has_group(source.dataset)
    prefix = f"{source.dataset.strip('/')}/" if of_group and source.dataset else ""
    if as_named and of_group:
        names = [name for name in file.names() if name.startswith(prefix)]
        by_name = {name.removeprefix(prefix): file.require(name) for name in names}
    elif (
        as_named
        and (named := file.get(str(source.dataset))) is not None
        and not (several and files.layout(file))
    ):
        by_name = {"": pick_dofs(named, source.dofs)}
    else:
        by_name = {
            array_path(group, one, name).removeprefix(prefix): stored
            for one in read_sources(files, [text], as_stored=True)
            for group in [one.group if one.member is None else one.name]
            for name, stored in one.arrays.items()
        }
    return {  # the names of the dofs are one dataset of HDF5, found by any of its links
        "dof" if name.endswith("/dof") and not stored.numeric else name: Compared(
            stored, partial(_time_of, files, text, stored.where)
        )
        for name, stored in by_name.items()
        if stored.dtype.kind in f"{NUMERIC_KINDS}SUOb"
    }


def _time_of(files: Files, text: str, where: str) -> Time | None:
    """The times of the rows of a dataset; None where it is no trajectory or has no times."""
    try:
        sets = read_sources(files, [text])
    except InputError:
        return None
    holds = (one for one in sets if any(stored.where == where for stored in one.arrays.values()))
    return next((one.time for one in holds), None)
