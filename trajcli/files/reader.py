"""The trajectories that a SOURCE names: found by one function that every command calls.

:func:`read_sources` gives a :class:`TrajectorySet` for every group of arrays: what they are
called, how long, at which times, and what lies beside them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from trajcli.checks import describe
from trajcli.errors import Fault, InputError, UsageError, raise_if_any
from trajcli.files.arrays import ArrayFile, Dataset
from trajcli.files.guesses import STATES, likely_arrays
from trajcli.files.layout import Layout, Member
from trajcli.files.opening import Files
from trajcli.files.schema import QUANTITIES
from trajcli.files.source import Source, expand_files, parse_source
from trajcli.files.trajectory_set import ACTIONS, TrajectorySet

_LONE = ("npy", "zarr", "pt")
"""Families of which a file may be one array without a name."""


def read_sources(
    files: Files,
    sources: Sequence[str],
    as_stored: bool = False,
    inputs: bool = False,
) -> list[TrajectorySet]:
    """The trajectories that SOURCEs name, in their order, in SI where the files state units.

    SOURCE is FILE[:DATASET]; FILE may be a glob, DATASET may hold
    * and end in a slice of dofs, [:7]. Without DATASET it is every group with actions or position,
    velocity, acceleration or jerk; a group as DATASET is those below it, and a name that the file
    itself does not have is looked for in the group of every trajectory. ``files.reading`` says
    what else is to be known of them. as_stored: in the units of the files, unless it names others.
    inputs: those alone that hold something to integrate.

    Raises InputError where a file cannot be read or holds no trajectories, UsageError for options
    that do not fit, and for dofs that there are not.
    """
    if not sources:
        raise UsageError(
            "no SOURCE", where="SOURCE", expected="one or more of FILE[:DATASET]", found="none"
        )
    sets: list[TrajectorySet] = []
    reading, units = files.reading, files.reading.input_units
    filter_key = reading.filter_key
    for source in (part for text in sources for part in expand_files(parse_source(text))):
        file = files.open(source.path)
        family = files.layout(file)
        if family is not None:
            found = _laid_out(file, family, source, filter_key, inputs)
        elif filter_key is not None:
            raise UsageError(
                "a filter key needs a layout",
                where="--filter-key",
                expected=f"{file.path}: robomimic",
                found="plain arrays",
            )
        else:
            found = _plain(file, source, inputs)
        if file.family == "ros" and (inputs or not as_stored):
            require_one_topic(found)
        if family is not None and family.remark:
            files.note(family.remark)
        if found[0].guessed:
            paths = list(dict.fromkeys(map(_path, found)))
            more = f" and {len(paths) - 1} more are" if paths[1:] else " is"
            files.note(f"SOURCE names no dataset: {file.path}:{file.slash}{paths[0]}{more} taken")
        for remark in dict.fromkeys(part.remark for one in found for part in one.arrays.values()):
            if remark:
                files.note(remark)
        if source.dofs is not None:
            for one in found:
                one.keep_dofs(source.dofs, f"{one.where}[{source.dofs}]")
        sets += found
    wanted = [one for one in sets if not inputs or one.named or "actions" in one.arrays]
    if sets and not wanted:
        raise InputError(_without_actions(sets))
    for one in wanted:
        if reading.dofs is not None:
            one.keep_dofs(reading.dofs, "--dofs")
        if reading.joints is not None:
            one.name_dofs(reading.joints)
        if not as_stored or units.positions:
            one.convert(units)
    if not as_stored:
        raise_if_any(joint_faults(wanted))
    return wanted


def dof_faults(sets: Sequence[TrajectorySet]) -> Iterator[Fault]:
    """The fault of trajectories that have another number of dofs than the first."""
    for one in sets:
        if one.shape[2] != sets[0].shape[2]:
            yield Fault(
                "trajectories of different dofs",
                where=one.where,
                expected=f"D = {sets[0].shape[2]}, as in {sets[0].where}",
                found=f"D = {one.shape[2]}",
                hint="--dofs picks the same of each, or name them one at a time",
            )
            return


def joint_faults(sets: Sequence[TrajectorySet]) -> Iterator[Fault]:
    """The fault of trajectories whose joints are others, or in another order.

    What is not said in a trajectory's own group holds for its file, and is read once of each.
    """
    firsts = {id(one.file): one for one in reversed(sets)}
    stating = (one for one in sets if firsts[id(one.file)] is one or one.states_joints())
    named = ((one, names) for one in stating if (names := one.joint_names) is not None)
    first, expected = next(named, (None, []))
    for one, names in named:
        if names != expected and first is not None:
            as_in = f"as in {first.where}"
            yield Fault(
                "trajectories of different joints",
                where=one.where,
                expected=f"{', '.join(expected)}, {as_in}",
                found=", ".join(names),
                hint="--dofs with their names takes the same of each, in one order",
            )
            return


def require_one_topic(sets: Sequence[TrajectorySet]) -> None:
    """Raise InputError for trajectories of several topics, which nobody asked for together."""
    topics: dict[str, TrajectorySet] = {}
    for one in sets:
        topics.setdefault(re.sub(r"/\d+$", "", one.group), one)
    if len(topics) > 1 and not all(one.named and not one.guessed for one in sets):
        path = sets[0].file.path
        names = [f"{path}:/{topic}" for topic in topics]
        listed = (f"/{_path(one)} {describe(one.shape[1:])}" for one in topics.values())
        raise InputError(
            "several topics with trajectories",
            where=str(path),
            expected="one of them",
            found=", ".join(listed),
            hint=f"name one: {' or '.join(names)}",
        )


def _without_actions(sets: Sequence[TrajectorySet]) -> Fault:
    """The fault of trajectories without anything to integrate."""
    path, arrays = sets[0].file.path, sets[0].arrays.items()
    shapes = {f"{sets[0].group}/{name}".strip("/"): describe(one.shape) for name, one in arrays}
    return Fault(
        "no actions",
        where=str(path),
        expected="a dataset called actions, or one that is named",
        found=", ".join(f"{name} {shape}" for name, shape in shapes.items()),
        hint=f"{path}:{next(iter(shapes))} integrates it as actions",
    )


def _plain(file: ArrayFile, source: Source, inputs: bool) -> list[TrajectorySet]:
    """The sets of a file without a layout; for ``inputs`` positions stand in for actions, but not
    those that trajcli computed."""
    name = source.dataset
    if name is None and file.family in _LONE and file.names() == [""]:
        return [TrajectorySet(file, "", {"actions": file.require("")})]
    if name is not None and not file.has_group(name):
        return [
            TrajectorySet(file, path, {path: file.require(path)}, named=True)
            for path in _paths(file, name)
        ]
    prefix = f"{name.strip('/')}/" if name else ""
    found = list(_recognised(file, prefix))
    if inputs and "request" not in file.attributes():
        found = [one for one in found if "actions" in one.arrays]
    return found or [
        TrajectorySet(file, path, {path: file.require(path)}, guessed=True)
        for path in likely_arrays(file, prefix)
    ]


def _paths(file: ArrayFile, name: str) -> list[str]:
    """The datasets of a name or pattern; of a name that only groups have, that of every group.

    Raises InputError where there is none, or a group of trajectories is without it.
    """
    if "*" in name or file.get(name) is not None:
        return file.match(name)
    groups = dict.fromkeys(one.group for one in _recognised(file, "") if one.group)
    paths = [f"{group}/{name.strip('/')}" for group in groups]
    if all(file.get(path) is None for path in paths):
        raise InputError(file.missing(name))
    return paths


def _recognised(file: ArrayFile, prefix: str) -> Iterator[TrajectorySet]:
    """A set for the arrays of one shape in one group, recognised by their names."""
    groups: dict[str, dict[str, str]] = {}
    direct = (prefix + name for name in file.children(prefix))  # names() follows no links
    for path in dict.fromkeys((*direct, *file.names())):
        group, _, last = path.rpartition("/")
        known = last in QUANTITIES or last in ACTIONS
        if known and path.startswith(prefix) and group.rpartition("/")[2] not in STATES:
            groups.setdefault(group, {})[last] = path
    for paths in groups.values():
        by_shape: dict[tuple[int, ...], dict[str, Dataset]] = {}
        for path in (paths[last] for last in (*ACTIONS, *QUANTITIES) if last in paths):
            stored = file.get(path)
            if stored is not None and stored.numeric and stored.ndim in (2, 3):
                by_shape.setdefault(stored.shape, {})[path] = stored
        for datasets in by_shape.values():
            yield TrajectorySet(file, next(iter(datasets)), datasets)


def _laid_out(
    file: ArrayFile, layout: Layout, source: Source, filter_key: str | None, inputs: bool
) -> list[TrajectorySet]:
    """A set for every trajectory of a layout; DATASET names an array in each, or in the file. For
    ``inputs`` positions stand in for actions."""
    members = layout.members() if filter_key is None else layout.chosen(filter_key)
    if not members:
        raise InputError(
            f"no trajectories of layout {layout.name}",
            where=str(file.path),
            hint="--layout plain reads named arrays",
        )
    name = (source.dataset or "").strip("/")
    below = [one for one in members if f"{one.group}/".startswith(f"{name}/")] if name else members
    if below:
        found = []
        for member in below:
            path, arrays = layout.arrays_of(member)
            guessed = layout.guesses(path)
            if inputs and "actions" not in arrays and "position" in arrays:
                arrays, guessed = {"position": arrays["position"]}, True
            found.append(TrajectorySet(file, path, arrays, layout, member, guessed=guessed))
        return found
    return [
        TrajectorySet(file, path, {path: stored}, layout, member, named=True)
        for member, path, stored in _named_arrays(file, layout, members, name)
    ]


def _named_arrays(
    file: ArrayFile, layout: Layout, members: Sequence[Member], name: str
) -> Iterator[tuple[Member, str, Dataset]]:
    """The arrays that FILE:DATASET names, with their trajectories and paths."""
    groups = {member.group: member for member in members if member.group}
    inside = groups and name.split("/")[0] not in {group.split("/")[0] for group in groups}
    if inside and "*" not in name:
        for member in members:
            yield member, member.path(name), file.require(member.path(name))
        return
    owners = {path: _owner(path, groups) for path in file.match(name)}
    paths = [path for path, owner in owners.items() if not groups or owner]
    if not paths:
        raise InputError(file.missing(name))
    for path in paths:
        stored, owner = file.require(path), owners[path]
        if owner is None and layout.rows and stored.shape[:1] < (layout.rows,):
            raise InputError(
                "too few rows",
                where=stored.where,
                expected=f"at least {layout.rows} rows, those of the trajectories",
                found=describe(stored.shape),
            )
        for member in [owner] if owner else members:  # flat arrays: each has its rows
            yield member, path, stored if owner else member.rows_of(stored)


def _owner(path: str, groups: Mapping[str, Member]) -> Member | None:
    """The trajectory in whose group a dataset lies."""
    while "/" in path:
        path = path.rpartition("/")[0]
        if path in groups:
            return groups[path]
    return None


def _path(one: TrajectorySet) -> str:
    """The path of the first array within its file."""
    return f"{one.group}/{one.array_name}".strip("/")
