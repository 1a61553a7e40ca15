"""Finds what diff compares: the datasets of a source by name, with their times and rotations."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache, partial

from trajcli.errors import InputError
from trajcli.files.arrays import NUMERIC_KINDS, Dataset
from trajcli.files.dofs import RotationDofs, named_rotations, pick_dofs
from trajcli.files.opening import Files
from trajcli.files.reading import select
from trajcli.files.source import Source, expand_files, parse_source
from trajcli.files.time import Time
from trajcli.views.rotations import known_rotations
from trajcli.views.trajectories import array_path, read_batches

Compared = tuple[Dataset, Callable[[], "Time | None"], Sequence[RotationDofs]]
"""A dataset to compare, a reader of its times, called where the other has other rows, and its dofs
that are rotations."""


def datasets(files: Files, text: str) -> dict[str, Compared]:
    """Returns the datasets that a source names, by name.

    The names of several files begin with their places in the folder. A single dataset that is
    named is called "": it is compared with whatever the other source holds. With --episodes
    these are the arrays of each of these trajectories, by its place among them.
    """
    source, episodes = parse_source(text), files.reading.episodes
    if episodes is not None:
        return _of_trajectories(files, text, episodes, bool(source.dataset))
    several = expand_files(source)
    if several == [source]:
        return _in_file(files, source, False)
    folder = source.path if source.path.is_dir() else source.path.parent
    return {
        f"{os.path.relpath(member.path, folder)}/{name}".rstrip("/"): compared
        for member in several
        for name, compared in _in_file(files, member, len(several) > 1).items()
    }


def _of_trajectories(files: Files, text: str, episodes: str, named: bool) -> dict[str, Compared]:
    """Returns the arrays of the chosen trajectories, each alone, by "trajectory 3/position"."""
    compared: dict[str, Compared] = {}
    for batch in read_batches(files, [text], as_stored=True):
        for place, number in enumerate(select(episodes, len(batch))):
            block = batch.take([number])
            trajectories, begin, end = block.runs[0]
            which, rows = range(begin, end), range(block.rows)
            time = trajectories.time
            time = None if time is None else time.select(which, block.rows)
            for name, dataset in trajectories.arrays.items():
                title = "" if named and len(trajectories.arrays) == 1 else f"/{name}"
                known = partial(lambda time: time, time)
                selected = dataset.select(which, rows)
                rotations = known_rotations(trajectories)
                compared[f"trajectory {place}{title}"] = selected, known, rotations
    return compared


def _in_file(files: Files, source: Source, several: bool) -> dict[str, Compared]:
    """Returns the datasets of one file, by name.

    Where a layout or options say how to read the file, these are the arrays of its trajectories.
    """
    file, text = files.open(source.path), str(source)
    as_named = files.reading.plain
    of_group = source.dataset is None or file.has_group(source.dataset)
    named = None if of_group or not as_named else file.get(str(source.dataset))
    rotations: dict[str, Sequence[RotationDofs]] = {}
    prefix = f"{source.dataset.strip('/')}/" if of_group and source.dataset else ""
    if as_named and of_group:
        names = [name for name in file.names() if name.startswith(prefix)]
        by_name = {name.removeprefix(prefix): file.require(name) for name in names}
    elif named is not None and not (several and files.layout(file)):
        by_name = {"": pick_dofs(named, source.dofs)}
    else:
        groups = [
            group for one in read_batches(files, [text], as_stored=True) for group in one.groups
        ]
        rotations = {of.where: known_rotations(g) for g in groups for of in g.arrays.values()}
        by_name = {
            array_path(group, trajectories, name).removeprefix(prefix): dataset
            for trajectories in groups
            for group in [trajectories.group if trajectories.member is None else trajectories.name]
            for name, dataset in trajectories.arrays.items()
        }
    readers = cache(partial(_readers_of_times, files, text))  # once for all datasets

    def time_of(where: str) -> Time | None:
        reader = readers().get(where)
        return None if reader is None else reader()

    return {  # the names of the dofs are one dataset of HDF5, found by any of its links
        "dof" if name.endswith("/dof") and not dataset.numeric else name: (
            dataset,
            partial(time_of, dataset.where),
            rotations.get(dataset.where) or _named_rotations(dataset),
        )
        for name, dataset in by_name.items()
        if dataset.dtype.kind in f"{NUMERIC_KINDS}SUOb"
    }


def _named_rotations(dataset: Dataset) -> Sequence[RotationDofs]:
    """Returns the rotations that a dataset's name or those of its columns tell: the angle between
    two does not depend on the order of their components."""
    if not dataset.ndim or dataset.dtype.kind != "f":
        return ()
    names, order = dataset.attributes.get("joint_names"), dataset.attributes.get("order", "wxyz")
    names, path = names if isinstance(names, list) else (), dataset.where.rpartition(":")[2]
    return named_rotations(path, names, dataset.shape[-1], "", order, dataset.where)


def _readers_of_times(files: Files, text: str) -> dict[str, Callable[[], Time | None]]:
    """Returns readers of the times of the datasets of trajectories, by place in the file."""
    readers: dict[str, Callable[[], Time | None]] = {}
    with suppress(InputError):
        for batch in read_batches(files, [text]):
            for trajectories in batch.groups:
                reader = partial(getattr, trajectories, "time")
                for dataset in trajectories.arrays.values():
                    readers.setdefault(dataset.where, reader)
    return readers
