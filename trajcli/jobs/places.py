"""Which arrays the sources of a request name, and where what belongs to them is looked for."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from trajcli.errors import Fault, InputError, UsageError
from trajcli.files.alike import AlikeFile, Kinds
from trajcli.files.arrays import ArrayFile, StoredArray
from trajcli.files.layouts import Layout, Member, layout_of
from trajcli.files.opening import open_arrays
from trajcli.files.source import Source, each_file, parse_source

_MANY = 100


def _allow_open_files() -> None:
    """As many open files as the system lets a process ask for."""
    import resource

    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


class Files:
    """The files of a job, each opened once."""

    def __init__(self, allow_external: bool = False, untrusted: bool = False) -> None:
        self._options = (allow_external, untrusted)
        self._open: dict[str, ArrayFile] = {}
        self._layouts: dict[str, Layout | None] = {}
        self._kinds = Kinds()

    def layout(self, file: ArrayFile, wanted: str | None = None) -> Layout | None:
        """The layout of an open file, looked up once."""
        if isinstance(file, AlikeFile):
            return None
        key = str(file.path)
        if key not in self._layouts:
            self._layouts[key] = layout_of(file, wanted)
        return self._layouts[key]

    def open(self, source: Source) -> ArrayFile:
        """The open file of a source."""
        key = str(source.path)
        if key not in self._open:
            self._open[key] = self._opened(source.path)
        return self._open[key]

    def _opened(self, path: Path) -> ArrayFile:
        """A file; of many that are alike only the first is really opened."""
        if not self._open or any(self._options):  # what lies outside a file may differ too
            return open_arrays(path, *self._options)
        found = self._kinds.like(path)
        if len(self._open) == _MANY:
            _allow_open_files()
        if found is None:
            found = open_arrays(path, *self._options)
            if self.layout(found) is None:
                self._kinds.add(found)
        return found

    def paths(self) -> list[str]:
        """Every file that was opened, also those that a file led to."""
        return [*self._open, *(path for file in self._open.values() for path in file.outside)]

    def array(self, text: str) -> StoredArray:
        """The dataset that FILE[:DATASET] names."""
        source = parse_source(text)
        file = self.open(source)
        names = file.names() if source.dataset is None else []
        if source.dataset is None and len(names) == 1:
            return file.require(names[0]).require_numeric()
        if source.dataset is None:
            raise InputError(file.missing(""))
        return file.require(source.dataset).require_numeric()

    def close(self) -> None:
        """Close all files."""
        for file in self._open.values():
            file.close()


class Place(NamedTuple):
    """A dataset of actions and where its companions are looked for: its group, then the root."""

    file: ArrayFile
    array: StoredArray
    groups: Sequence[str]
    layout: Layout | None = None
    member: Member | None = None
    array_name: str = ""
    """What the array is called within its trajectory."""
    times: Any = None
    """The time stamps of its rows, where they have been looked up."""
    times_name: str = ""

    @property
    def commands(self) -> bool:
        """Whether this is what a robot was told to do, and not what it did."""
        known = self.layout.actions if self.layout is not None else ()
        return any(self.array_name.split("/")[0] == name for name in known)

    @property
    def name(self) -> str:
        """What the actions are called in messages."""
        return self.array.where

    def find(self, *names: str) -> StoredArray | None:
        """The first of these datasets there is, near the actions first."""
        if isinstance(self.file, AlikeFile):
            name = self.file.first_of(self.groups, names)
            return None if name is None else self.file.require(name).require_numeric()
        for group in self.groups:
            near = self._near(group)
            for name in names:
                if name.split("/")[0] not in near:
                    continue
                found = self.file.get(group + name)
                if found is not None:
                    return found.require_numeric()
        return None

    def _near(self, group: str) -> list[str]:
        """The names in a group; the trajectories of a layout all have those of its first."""
        if group and self.layout is not None and self.member is not None:
            return self.layout.names_in_first
        return self.file.children(group)

    def attribute(self, *names: str) -> tuple[str, Any] | None:
        """The first of these attributes, on the actions or a group; with where it was."""
        holders = [(self.array.where, self.array.attributes)]
        for group in self.groups:
            where = f"{self.file.path}:/{group.rstrip('/')}"
            holders.append((where, self.file.attributes(group)))
        for name in names:
            for where, attributes in holders:
                if name in attributes:
                    return f"{where}@{name}", attributes[name]
        return None


def find_actions(
    files: Files, sources: Sequence[str], layout: str | None = None, filter_key: str | None = None
) -> list[Place]:
    """Every dataset of actions the sources name, in order.

    layout: the family to read the files as, in place of the one they are recognised to be of;
    filter_key: of what a layout holds, only the trajectories it lists under this name.
    """
    if not sources:
        raise UsageError(Fault("no SOURCE", "SOURCE", "one or more of FILE[:DATASET]", "none"))
    places = []
    for text in sources:
        for source in each_file(parse_source(text)):
            file = files.open(source)
            family = files.layout(file, layout)
            if family is None and filter_key is not None:
                found = "plain arrays"
                what = "a filter key needs a layout"
                raise UsageError(Fault(what, "--filter-key", f"{file.path}: robomimic", found))
            if family is None:
                places += _plain_places(file, source.dataset)
            else:
                places += _laid_out_places(file, family, source.dataset, filter_key)
    return places


def _plain_places(file: ArrayFile, dataset: str | None) -> list[Place]:
    if dataset is None:
        names = [""] if file.family == "npy" else ["actions"]
    else:
        names = file.match(dataset)
    places = []
    for name in names:
        inner = f"{name.strip('/')}/actions"
        if file.has_group(name) and name and file.get(inner) is not None:
            name = inner
        places.append(Place(file, file.require(name), _groups_of(name)))
    return places


def _groups_of(name: str) -> list[str]:
    group = name.strip("/").rpartition("/")[0]
    return [f"{group}/", ""] if group else [""]


def _laid_out_places(
    file: ArrayFile, layout: Layout, dataset: str | None, filter_key: str | None
) -> list[Place]:
    """A place for every trajectory; DATASET names an array in each, or datasets of the file."""
    members = layout.members() if filter_key is None else layout.chosen(filter_key)
    if not members:
        what = f"no trajectories of layout {layout.name}"
        raise InputError(Fault(what, str(file.path), hint="--layout plain reads named arrays"))
    if dataset is None:
        name = layout.actions[0]
        arrays = [(member, layout.require_actions(member), name) for member in members]
    else:
        arrays = _named_arrays(file, layout, members, dataset)
    return [
        Place(file, array, _groups_of(f"{member.group}/x"), layout, member, name)
        for member, array, name in arrays
    ]


def _named_arrays(
    file: ArrayFile, layout: Layout, members: Sequence[Member], dataset: str
) -> list[tuple[Member, StoredArray, str]]:
    """The arrays that FILE:DATASET names, each with its trajectory and its name in that."""
    name = dataset.strip("/")
    within = [member for member in members if member.group]
    roots = {member.group.split("/")[0] for member in within}
    if within and name.split("/")[0] not in roots and "*" not in name:
        found = []
        for member in within:
            array = layout.array(member, [name])
            if array is None:
                raise InputError(file.missing(f"/{member.group}/{name}"))
            found.append((member, array, name))
        return found
    by_group = {member.group: member for member in members}
    found = []
    for path in file.match(dataset):
        holder = _holder(path, by_group)
        if holder is not None:
            found.append((holder, file.require(path), path[len(holder.group) + 1 :]))
        elif not within:  # flat arrays, of which every trajectory has its rows
            array = _long_enough(file.require(path), members)
            found += [(member, member.rows_of(array), path) for member in members]
    if not found:
        raise InputError(file.missing(dataset))
    return found


def _holder(path: str, by_group: Mapping[str, Member]) -> Member | None:
    """The trajectory that a dataset belongs to."""
    group = path
    while "/" in group:
        group = group.rpartition("/")[0]
        if group in by_group:
            return by_group[group]
    return None


def _long_enough(array: StoredArray, members: Sequence[Member]) -> StoredArray:
    """An array of all trajectories' rows."""
    rows = max(member.end or 0 for member in members)
    if rows and (not array.ndim or array.shape[0] < rows):
        expected = f"at least {rows} rows, those of the trajectories"
        raise InputError(Fault("too few rows", array.where, expected, str(list(array.shape))))
    return array
