"""Finds the trajectories that SOURCEs name, for every command.

:func:`read_recordings` makes a :class:`Recording` of every group of arrays, and
:func:`assign_times` adds the times that options name.
"""

from __future__ import annotations

import difflib
import math
import re
import shlex
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from fnmatch import fnmatchcase
from itertools import accumulate, groupby, pairwise
from typing import Any

import numpy as np

from trajcli.errors import Fault, InputError, Note, UsageError, describe, raise_if_any, wrong_shape
from trajcli.files._layouts import PLAIN, Layout
from trajcli.files.catalogue import Catalogue, Dataset
from trajcli.files.clock import Clock
from trajcli.files.conversion import reorder_axes
from trajcli.files.dofs import count_bodies, match_names, named_rotations
from trajcli.files.episodes import BESIDE, LEAVE_OUT, Member, episode_edges, likely_arrays
from trajcli.files.joined_arrays import find_array, match_arrays
from trajcli.files.opening import Files, JoinedFiles, clock_from_options, join_key
from trajcli.files.quantities import QUANTITIES, ROTATIONS, STATES, TIMES, rate_name, role
from trajcli.files.recording import (
    ACTIONS,
    ArrayGroup,
    Recording,
    array_name,
    make_placeholder,
    mask_numbers,
    record,
)
from trajcli.files.source import Source, expand_files, parse_source
from trajcli.units import InputUnits, require_convertible_units

# What roll, pitch and yaw of a body are called.
_ANGLES = re.compile(r"(?:^|[^a-z])(?:rpy|euler)", re.I)
# Names and rows that are searched for times and rotations: enough for hints, and quick in files
# with thousands of datasets.
_SEARCHED = 100
# Families of which a file may be one array without a name.
_LONE = ("npy", "zarr", "pt")
# The groups whose units are looked at: all groups of a file have the same.
_FIRST = 8
_POSE = re.compile(r"(?:^|/)(?:pose|transform)$")  # as messages call positions with orientations

_Groups = list[tuple[ArrayGroup, Fault | None]]
"""Arrays that are trajectories; with a fault, the arrays of others and why these are not read."""


def read_recordings(
    files: Files,
    sources: Sequence[str],
    as_stored: bool = False,
    actions: bool = False,
    compare: bool = True,
    positions: bool = False,
) -> list[Recording]:
    """Reads the trajectories that SOURCEs name, in their order; notes go to ``files.report``.

    SOURCE is FILE[:DATASET]; FILE may be a glob, DATASET may hold * and end in a slice of dofs,
    [:7]. Without DATASET it is every group with actions or position, velocity, acceleration or
    jerk. A group as DATASET stands for the groups below it, and a name that the file itself does
    not have is looked for in the group of every trajectory. ``files.reading`` says what else is
    known about them. Among several trajectories, those that cannot be used carry their fault.

    as_stored: keeps the units of the files, unless the command line names others; else arrays are
    in SI if the files state units. actions: only groups that hold something to integrate. compare:
    refuses trajectories of other joints than the first, as :func:`require_alike`. positions: reads
    the positions alone of a group that has positions.
    """
    groups = _find_groups(files, sources, actions, as_stored)
    for k, (group, fault) in enumerate(groups) if positions else ():
        paths = [path for path in group.datasets if array_name(path) == "position"]
        if paths and len(group.datasets) > 1:
            datasets, folder = {paths[0]: group.datasets[paths[0]]}, group.path.rpartition("/")[0]
            path = f"{folder}/{paths[0].removeprefix(f'{folder}/')}".lstrip("/")
            groups[k] = replace(group, path=path, datasets=datasets), fault
    recordings = _record_groups(files, groups, as_stored)
    if files.reading.window:
        from trajcli.files._windows import cut_to_window

        timed = assign_times(recordings, clock_from_options(files))
        recordings = [*cut_to_window(timed, files.reading, files.report)]
    usable, report = [x for x in recordings if x.fault is None], files.report
    # notes once for what all groups share, in one order: what was done, rotations, units
    for recording in recordings:
        report.add_notes(*recording.notes)
    for recording in usable[:1]:
        report.add_notes(*rotation_remarks(recording))
    for recording in usable[:_FIRST]:
        report.add_notes(*recording.unit_remarks())
    compare = compare and not as_stored
    if compare or len(sources) > 1:
        matched, misfit = _compare_joints(recordings)
        report.add_notes(*matched)
        if misfit is not None and compare:
            raise InputError(misfit)
    return recordings


def _find_groups(files: Files, sources: Sequence[str], actions: bool, as_stored: bool) -> _Groups:
    if not sources:
        raise UsageError(
            "no SOURCE", where="SOURCE", expected="one or more of FILE[:DATASET]", found="none"
        )
    # a file that cannot be opened stops a run only if it is named: in a folder or glob of many the
    # others are read
    parts = [part for text in sources for part in expand_files(parse_source(text))]
    unread = unreadable_files(files, parts) if len(parts) > len(sources) else {}
    opened = ((files.open(part.path), part) for part in parts if part not in unread)
    # consecutive files of one kind become one file with a member for each: groupby joins
    # neighbours with equal keys, and object() equals nothing else
    separate = files.reading.axes is not None
    runs = groupby(
        opened,
        lambda pair: (object() if pair[1].dataset or separate else join_key(pair[0]), pair[1].dofs),
    )
    numbered: list[tuple[int, _Groups]] = []
    for _, run in runs:
        (file, source), *others = run
        if others:
            file = JoinedFiles([file, *(other for other, _ in others)])
        groups = _groups_of_file(files, file, source, actions)
        if file.family == "ros" and (actions or not as_stored):
            require_one_topic([group for group, _ in groups])
        numbered.append((parts.index(source), groups))
    for part, fault in unread.items():  # raised where the trajectory is used
        like, name = numbered[0][1][0][0], part.path.stem
        member = like.member._replace(name=name) if like.member else Member(name, name)
        numbered.append((parts.index(part), [(replace(like, member=member), fault)]))
    every = [pair for _, groups in sorted(numbered, key=lambda pair: pair[0]) for pair in groups]
    if files.reading.skip_rows and all(group.file.family != "csv" for group, _ in every):
        skipped = "--skip-rows leaves out lines of tables of text"
        files.report.add_notes(f"{skipped}, and {every[0][0].file.path} is none")
    # an output holds control points next to the rows that they make: these are one trajectory
    outputs = {group.file for group, _ in every if group.file.is_output and not group.acting}
    chosen = [
        (group, fault)
        for group, fault in every
        if group.named or group.guessed or group.acting or not actions
        if actions or group.named or not (group.acting and group.file in outputs)
    ]
    if not chosen:
        first, expected = every[0][0], "a dataset called actions, or one that is named"
        arrays = ", ".join(f"{path} {describe(x.shape)}" for path, x in first.datasets.items())
        hint = f"{first.file.shell_name(first.path)} integrates it as actions"
        where = str(first.file.path)
        raise InputError("no actions", where=where, expected=expected, found=arrays, hint=hint)
    return chosen


def _record_groups(files: Files, groups: _Groups, as_stored: bool) -> list[Recording]:
    """Makes recordings of groups of arrays; one that cannot be used becomes a placeholder."""
    reading = files.reading
    given = reading.input_units if reading.units or not as_stored else None
    for file in {id(group.file): group.file for group, _ in groups if reading.units}.values():
        if not file.is_output:
            continue
        # outputs of trajcli are in SI, whatever the unit of a file that they are compared with
        if not files.mixed_units:
            raise UsageError(
                "units of an output of trajcli, which are known",
                where=f"--units {reading.units}",
                expected=f"none for {file.path}",
                hint="leave it out; --to-units of export and plot says what is written or drawn",
            )
        files.report.add_notes(Note(f"{file.path} is in SI; --units is for the other sources"))
        given = InputUnits()
    recordings: dict[int, Recording] = {}
    faults: dict[int, Fault] = {}
    errors: list[InputError] = []
    for k, (origin, fault) in enumerate(groups):
        if fault is not None:
            faults[k] = fault
            continue
        try:
            recordings[k] = record(origin, reading, given=given, option=bool(reading.clock))
        except InputError as error:
            errors.append(error)
            faults[k] = error.faults[0]
    if not recordings:
        raise errors[0] if errors else InputError(next(iter(faults.values())))
    usable = [*recordings.values()]
    for k, fault in faults.items():
        origin = groups[k][0]
        alike = (x for x in usable if origin.array_name in ("", x.array_name))
        recordings[k] = make_placeholder(next(alike, usable[0]), origin, fault)
    return mark_faults([recordings[k] for k in range(len(groups))])


def read_positions(files: Files, sources: Sequence[str], compare: bool = True) -> list[Recording]:
    """Reads the positions that SOURCEs name, or else the positions of every trajectory."""
    recordings = read_recordings(files, sources, compare=compare, positions=True)
    first = recordings[0]
    if first.file.family == "ros":
        require_one_topic([recording.origin for recording in recordings])
    recorded = [
        recording
        for recording in recordings
        if recording.named or recording.file.names() == [""] or "position" in recording.arrays
    ]
    if not recorded:
        raise InputError(no_positions(first))
    files.report.add_notes(*note_skipped_rotations(recordings, recorded))
    return recorded


def no_positions(first: Recording) -> Fault:
    """Makes the fault of trajectories without positions, with a hint at those of the file."""
    names = first.layout.position_names(first.member) if first.layout and first.member else []
    names = names or [path for path in first.file.names() if _POSE.search(path)]
    named = first.file.shell_name((names or [first.origin.path])[0]).removesuffix(":")
    found = ", ".join(f"{first.group}/{name}".strip("/") for name in first.arrays)
    expected, where = "a dataset called position, or one that is named", str(first.file.path)
    hint = f"{named} names them; trajcli integrate takes actions"
    if any(unit.order for unit in first.input_units or ()):  # rad/s^3
        hint = "trajcli integrate takes actions"
    if not names and (rate := first.rate_name) in QUANTITIES:
        hint = f"trajcli integrate {named} --mode {rate} --start zero makes positions of them"
    what = "no recorded positions"
    return Fault(what, where=where, expected=expected, found=found, hint=hint)


def choose_recordings(recordings: Sequence[Recording], actions: bool) -> list[Recording]:
    """Chooses one recording per group of files for which SOURCE names no dataset.

    These are the groups with actions, or all groups of a file without actions. actions: whether to
    take the actions of a group, not its other arrays, if they differ in shape.
    """
    # recordings of one group differ in their arrays, since these differ in shape; a key counts how
    # often each was named, so that a file that is named twice is read twice
    acting = {str(x.file.path) for x in recordings if not x.named and "actions" in x.arrays}
    same: dict[Any, list[Recording]] = {}
    times = Counter[Any]()
    for k, recording in enumerate(recordings):
        key, arrays = (str(recording.file.path), recording.name), tuple(recording.arrays)
        same.setdefault(k if recording.named else (key, times[key, arrays]), []).append(recording)
        times[key, arrays] += 1
    return [
        max(members, key=lambda recording: recording.holds_actions == actions)
        for members in same.values()
        if members[0].named
        or str(members[0].file.path) not in acting
        or any("actions" in recording.arrays for recording in members)
    ]


def unreadable_files(files: Files, parts: Sequence[Source]) -> dict[Source, Fault]:
    """Finds the files of a folder or glob that cannot be opened, while others can."""
    faults: dict[Source, Fault] = {}
    for part in parts:
        try:
            files.open(part.path)
        except InputError as error:
            faults[part] = error.faults[0]
    return faults if len(faults) < len(parts) else {}


def _groups_of_file(files: Files, file: Catalogue, source: Source, actions: bool) -> _Groups:
    """Finds the groups of one file; a note says what is read without being named."""
    filter_key, layout = files.reading.filter_key, files.layout(file)
    if "," in (source.dataset or "") and not hasattr(file, "columns"):
        # of several arrays only the first names their group
        leader, *others = str(source.dataset).split(",")
        folder = leader[: leader.rfind("/") + 1]
        names = (leader, *(part.strip().removeprefix(folder) for part in others))
        source = source._replace(dataset=",".join(names))
    groups: _Groups
    if layout is not None:
        groups = _layout_groups(file, layout, source, filter_key, actions)
    elif filter_key is not None:
        raise UsageError(
            "a filter key needs a layout",
            where="--filter-key",
            expected=f"{file.path}: robomimic",
            found="plain arrays",
        )
    else:
        groups = [(group, None) for group in _plain_groups(file, source, actions)]
    # what was guessed is reported before what is computed from it
    report, first = files.report, groups[0][0]
    if layout is not None and layout.split.remark:
        report.add_notes(layout.split.remark)
    if first.guessed:
        paths = list(dict.fromkeys(group.path for group, _ in groups))
        more = f" and {len(paths) - 1} more are" if paths[1:] else " is"
        left = file.motion()[1] if paths == [file.motion()[0]] else ""
        report.add_notes(Note(f"SOURCE names no dataset: {file.place(paths[0])}{more} taken{left}"))
    report.add_notes(*(text for g, _ in groups for x in g.datasets.values() for text in x.remarks))
    groups = _split_episodes(groups, files)
    if source.dofs is None:
        return groups
    return [(replace(group, dofs=source.dofs), fault) for group, fault in groups]


def _split_episodes(groups: _Groups, files: Files) -> _Groups:
    """Reorders groups by the axes of --axes, and splits arrays [N, D] into their episodes."""
    result, reading, report = _Groups(), files.reading, files.report
    kinds: set[str] = set()
    axes = (reading.axes or "").upper()
    dims = {array.ndim for group, _ in groups for array in group.datasets.values()}
    if axes and ("".join(sorted(axes)) not in ("BDT", "DT", "BT") or len(axes) not in dims):
        where = next(iter(groups[0][0].datasets.values())).where
        what, expected = f"not the axes of {where}", "T, B and D in their order"
        raise UsageError(what, where="--axes", expected=expected, found=axes)
    for group, fault in groups:
        try:
            for array in group.datasets.values():
                array.require_numeric()
        except InputError as error:  # of several, it is raised where the trajectory is used
            if len(groups) == 1:
                raise
            result.append((group, error.faults[0]))
            continue
        kind = mask_numbers(f"{group.group}:{group.array_name}")
        foreign = group.layout is None and not group.file.is_output
        if axes:
            moved = {name: reorder_axes(array, axes) for name, array in group.datasets.items()}
            group = replace(group, datasets=moved)
        elif foreign and not group.file.members and kind not in kinds:
            kinds.add(kind)  # demo_0, demo_1, … have the same axes: one warning for all
            array, (guess, why, stamped) = group.companions.array, group.companions.likely_axes()
            batch, rows, dofs = array.shape[-3:] if array.ndim > 2 else (1, *array.shape, 1)[:3]
            if stamped:  # which prove that the axes are others
                raise InputError(
                    "time stamps of another axis than that of the rows",
                    where=f"{array.where} {describe(array.shape)} and {why}",
                    expected=f"{rows} stamps, as [B, T, D] has {rows} rows",
                    found="[" + why.rpartition("[")[2],
                    hint=f"--axes {guess} says which axis is which: B trajectories, T rows, D dofs",
                )
            if guess:
                read = f"{array.where} {describe(array.shape)} is read as {batch} × {rows} rows"
                what = f"of {dofs} dofs, but {why}; --axes {guess}, if they are its axes"
                report.add_notes(f"{read} {what}")
        single = all(array.ndim < 3 for array in group.datasets.values())
        if not (foreign and single and reading.layout != PLAIN):
            result.append((group, fault))
            continue
        array = group.companions.array
        edges, where, remarks = episode_edges(group.file, group.companions.groups, array)
        if edges == [0, array.shape[0]]:
            result.append((group, fault))
            report.add_notes(*remarks)
            continue
        title, count = f"{group.group}/episode_".lstrip("/"), len(edges) - 1
        for k, (begin, end) in enumerate(pairwise(edges)):
            m = Member(f"{title}{k}", group.group, begin, end, None, array.shape[0], k, count)
            parts = {name: m.select_rows(x) for name, x in group.datasets.items()}
            result.append((replace(group, member=m, datasets=parts), fault))
        report.add_notes(Note(f"{array.where}: {count} episodes by {where}"), *remarks)
    return result


def require_alike(groups: Sequence[Recording]) -> None:
    """Raises InputError for groups of different dofs or joints, or of other kinds of units."""
    # units and numbers of dofs first: joints of other robots would be a misleading fault
    require_convertible_units([(group.as_stored.where, group.position_units) for group in groups])
    raise_if_any(dof_faults(groups))
    if (fault := _compare_joints(groups)[1]) is not None:
        raise InputError(fault)


def dof_faults(groups: Sequence[Recording]) -> Iterator[Fault]:
    """Yields the fault of the first trajectories that have another number of dofs."""
    for group in groups:
        if group.shape[2] != groups[0].shape[2]:
            yield Fault(
                "trajectories of different dofs",
                where=group.where,
                expected=f"D = {groups[0].shape[2]}, as in {groups[0].where}",
                found=f"D = {group.shape[2]}",
                hint="--dofs picks the same of each, or name them one at a time",
            )
            return


def _compare_joints(recordings: Sequence[Recording]) -> tuple[list[str], Fault | None]:
    """Notes joints that match by names that are not equal, and makes a fault of other joints."""
    # a recording without names may hold any joints, so only those with names are compared
    first: Recording | None = None
    expected: Sequence[str] = ()
    notes: list[str] = []
    for recording in recordings:
        names = recording.joint_names
        if recording.holds_rotations or names is None:
            continue
        if first is None:
            first, expected = recording, names
        if names is expected or list(names) == list(expected):
            continue
        if match_names(names, expected) == list(range(len(expected))):
            a, b = next(pair for pair in zip(names, expected, strict=True) if pair[0] != pair[1])
            matched = f"joints are matched by name, {a} with {b} of {first.where}"
            notes = notes or [Note(f"{recording.where}: {matched}")]
        else:
            fault = Fault(
                "trajectories of different joints",
                where=recording.where,
                expected=f"{', '.join(expected)}, as in {first.where}",
                found=", ".join(names),
                hint="--dofs with their names takes the same of each, in one order",
            )
            return notes, fault
    return notes, None


def require_one_topic(groups: Sequence[ArrayGroup]) -> None:
    """Raises InputError for trajectories of several topics, unless SOURCE names them."""
    topics: dict[str, ArrayGroup] = {}
    for group in groups:
        topics.setdefault(re.sub(r"/\d+$", "", group.group), group)
    if len(topics) > 1 and not all(group.named for group in groups):
        file = groups[0].file
        above = {re.sub("[^/]+$", array_name(g.path), t) for t, g in topics.items()}
        for path in above if len(above) == 1 else ():  # publishers of joints in one topic
            file.get(path)
        positions = {t: "position" in map(array_name, g.datasets) for t, g in topics.items()}
        # a topic alone means its positions, so other arrays are named by their path
        names = [t if g.guessed or positions[t] else g.path for t, g in topics.items()]
        names += (p for p in file.names() if _POSE.search(p) and p.rpartition("/")[0] not in topics)
        arrays = ((group.path, group.companions.array) for group in topics.values())
        found = ", ".join(f"/{path} {describe(array.shape[-2:])}" for path, array in arrays)
        hint = f"name one: {' or '.join(file.shell_name(f'/{name}') for name in names)}"
        what, where = "several topics with trajectories", str(file.path)
        raise InputError(what, where=where, expected="one of them", found=found, hint=hint)


def _plain_groups(file: Catalogue, source: Source, actions: bool) -> list[ArrayGroup]:
    # in order: a file of one array, arrays that DATASET names, arrays known by their names in the
    # groups that it names, and a guess
    name = source.dataset
    if name is None and file.family in _LONE and file.names() == [""]:
        return [ArrayGroup(file, "", {"actions": file.require("")})]
    # a pattern of groups stands for those below them
    below = file.match(name, groups=True) if name is not None and "*" in name else []
    if name is not None and not below and not file.has_group(name):
        head = name.partition(",")[0]
        if "*" in name or file.get(name) is not None or file.get(head) is not None:
            paths = match_arrays(file, name)
            # a pattern like * matches times and lengths, too: these are left out if anything
            # remains
            last = {path: path.rpartition("/")[2].lower() for path in paths}
            dofs = (p for p in paths if last[p] not in BESIDE and not role(last[p]))
            paths = [path for path in dofs if find_array(file, path).numeric] or paths
        else:  # a name that only groups have means the dataset of every group
            known = dict.fromkeys(group.group for group in _known_groups(file, "") if group.group)
            paths = [f"{group}/{head.strip('/')}" for group in known]
            if all(file.get(path) is None for path in paths):  # groups without any known array
                paths = [path for path in file.names() if path.endswith(f"/{head.strip('/')}")]
                if len(set(map(mask_numbers, paths))) != 1:
                    raise InputError(file.missing(name))
            paths = [path + name[len(head) :] for path in paths]
        common = _common_name(file, paths)
        return [
            ArrayGroup(file, path, {common or path: find_array(file, path)}, named=True,
                            member=Member(path, path) if common else None)
            for path in paths
        ]  # fmt: skip
    prefixes = [f"{path.strip('/')}/" if path else "" for path in below or [name or ""]]
    groups = [group for prefix in prefixes for group in _known_groups(file, prefix)]
    # positions stand in for actions where there are none, but not those that trajcli computed
    if actions and "request" not in file.attributes():
        groups = [group for group in groups if group.acting]
    return groups or [
        ArrayGroup(file, path, {path: file.require(path)}, guessed=True)
        for prefix in prefixes
        for path in likely_arrays(file, prefix)
    ]


def _common_name(file: Catalogue, paths: Sequence[str]) -> str:
    """Finds one name for arrays of one quantity with the same dofs, as run_0 and run_1; else ""."""
    lasts = [path.rpartition("/")[2] for path in paths]
    kinds = {last if last in (*QUANTITIES, *ROTATIONS) else rate_name(last) for last in lasts}
    dofs = {find_array(file, path).shape[1:][-1:] for path in paths} if len(set(lasts)) > 1 else ()
    if len(kinds) != 1 or len(dofs) != 1:
        return ""
    stems = {re.sub(r"[\W_]*\d+", "", last) for last in lasts}
    return stems.pop() or "data" if len(stems) == 1 else kinds.pop() or "data"


def _known_groups(file: Catalogue, prefix: str) -> Iterator[ArrayGroup]:
    """Yields the arrays of one shape in each group of the file that are known by their names."""
    groups: dict[str, dict[str, str]] = {}
    direct = (prefix + name for name in file.children(prefix))  # names() follows no links
    for path in dict.fromkeys((*direct, *file.names())):
        group, _, last = path.rpartition("/")
        known = last in QUANTITIES or last in ACTIONS or last in ROTATIONS
        if known and path.startswith(prefix) and group.rpartition("/")[2] not in STATES:
            groups.setdefault(group, {})[last] = path
    same_shape: list[dict[str, Dataset]] = []
    for paths in groups.values():
        by_shape: dict[tuple[int, ...], dict[str, Dataset]] = {}
        for last in (*ACTIONS, *QUANTITIES, *ROTATIONS):
            if last not in paths:
                continue
            stored = file.get(paths[last])
            # orientations [T, 4] and angular rates [T, 3] are never one group with joints
            kind = (ROTATIONS.index(last) > 0,) if last in ROTATIONS else ()
            axes = (3, 4) if kind and count_bodies(file) > 1 else (2, 3) if kind else (1, 2, 3)
            shape = stored.shape if stored is not None and stored.numeric else ()
            # a few numbers in a line are one state of some joints, no trajectory of one
            state = len(shape) == 1 and shape[0] < 8
            if stored is not None and len(shape) in axes and not state:
                by_shape.setdefault((*kind, *shape), {})[paths[last]] = stored
        same_shape += by_shape.values()
    # next to tables, [T] is one number for each row or, like limits, one for each dof
    tables = [datasets for datasets in same_shape if len(next(iter(datasets.values())).shape) > 1]
    for datasets in tables or same_shape:
        yield ArrayGroup(file, next(iter(datasets)), datasets)


def _layout_groups(
    file: Catalogue, layout: Layout, source: Source, filter_key: str | None, actions: bool
) -> _Groups:
    """Finds the arrays of every trajectory of a layout that DATASET matches."""
    members = layout.split.members if filter_key is None else layout.filter_members(filter_key)
    if not members:
        raise InputError(
            f"no trajectories of layout {layout.name}",
            where=str(file.path),
            hint="--layout plain reads named arrays",
        )
    name = (source.dataset or "").strip("/")
    levels = name.split("/") if name else []
    below = [
        m
        for m in members
        if len(group := m.group.split("/")) >= len(levels) and all(map(fnmatchcase, group, levels))
    ]
    pairs = [(member, "") for member in below]
    if not pairs:  # DATASET names an array in each trajectory, or arrays of the file
        by_group = {member.group: member for member in members if member.group}
        first, tops = name.split("/")[0], {group.split("/")[0] for group in by_group}
        if by_group and first not in tops and "*" not in name:
            pairs = [(member, member.path(name)) for member in members]
        for path in () if pairs else match_arrays(file, name):
            # the nearest group above that is a trajectory owns an array; every trajectory has its
            # rows of a flat array
            above = accumulate(path.split("/"), "{}/{}".format)
            owners = [by_group[g] for g in above if g in by_group][-1:] if by_group else members
            pairs += ((member, path) for member in owners)
        if not pairs:
            raise InputError(file.missing(name))
    flat = dict.fromkeys(path for member, path in pairs if path and not member.group)
    common = _common_name(file, list(flat))
    # all trajectories are looked at before a fault is made, since a placeholder needs the shape of
    # one that can be read
    groups: dict[int, ArrayGroup] = {}
    errors: dict[int, InputError] = {}  # each is raised where the trajectory is used
    for k, (member, path) in enumerate(pairs):
        try:
            if path:
                stored = find_array(file, path, layout)
                if member.end is not None and stored.shape[:1] < (layout.split.rows,):
                    what = "too few rows"
                    expected = f"at least {layout.split.rows} rows, those of the trajectories"
                    raise InputError(wrong_shape(stored.where, expected, stored.shape, what=what))
                arrays = {common or path: member.select_rows(stored)}
                if common:  # several arrays, each of which holds all trajectories
                    member = member._replace(name=f"{path}/{member.name}", group=path)
                groups[k] = ArrayGroup(file, path, arrays, layout, member, named=True)
                continue
            array_path, arrays = layout.family.arrays(layout, member)
            guessed = layout.guesses(array_path)
            # positions stand in for actions where there are none
            if actions and "actions" not in arrays and "position" in arrays:
                arrays, guessed = {"position": arrays["position"]}, True
            groups[k] = ArrayGroup(file, array_path, arrays, layout, member, guessed=guessed)
        except InputError as error:
            errors[k] = error
    result: _Groups = []
    known = [*groups.values()]
    for k, (member, path) in enumerate(pairs):
        if k in groups:
            result.append((groups[k], None))
            continue
        name = path[len(member.group) :].strip("/")
        like = next((group for group in known if name in ("", group.array_name)), None)
        if like is None:
            raise errors[k]
        path = f"{member.group}/{like.array_name}".strip("/")
        result.append((replace(like, member=member, path=path), errors[k].faults[0]))
    return result


def mark_faults(recordings: Sequence[Recording]) -> list[Recording]:
    """Replaces recordings without rows or with uncommon dofs by placeholders with their fault."""
    # only recordings that are one of several, by a layout or by the numbers in their names: one
    # alone is refused where it is used
    patterns = [(str(x.file.path), mask_numbers(f"{x.group}:{x.array_name}")) for x in recordings]
    counts_alike = Counter(patterns)
    several = [
        x.member is not None or (x.single and counts_alike[pattern] > 2)
        for x, pattern in zip(recordings, patterns, strict=True)
    ]
    filled = [x for x, one in zip(recordings, several, strict=True) if one and x.shape[1]]
    checked = list(recordings)
    counts = Counter((x.array_name, x.shape[2]) for x in filled)
    # the recording to compare with is, for each array, the first with the number of dofs that
    # most recordings have, so that one odd file in front does not condemn the others
    filled.sort(key=lambda x: counts[x.array_name, x.shape[2]], reverse=True)
    usual = {x.array_name: x for x in reversed(filled)}
    for k, recording in enumerate(recordings):
        like = usual.get(recording.array_name)
        if not several[k] or recording.fault is not None or like is None:
            continue
        fault = next(dof_faults([like, recording]), None)
        if not recording.shape[1]:
            fault = Fault("a trajectory without rows", where=recording.where, hint=LEAVE_OUT)
        if fault is not None:
            checked[k] = make_placeholder(like, recording.origin, fault)
    return checked


def refuse_control_points(recordings: Sequence[Recording]) -> None:
    """Raises InputError for control points: their dt is the step of the curve that they make."""
    for recording in recordings:
        if recording.holds_actions and recording.stated_mode.name == "bspline":
            raise InputError(
                "control points of a B-spline, which have no times of their own",
                where=recording.where,
                expected="rows of a trajectory",
                hint="trajcli integrate makes a trajectory of them",
            )


def rotation_remarks(recording: Recording) -> Iterator[str]:
    """Yields a note on each rotation, and a warning of roll, pitch and yaw read as dofs."""
    if recording.rotation_fault is None:
        for rotation in recording.rotations:
            read = "; rot6d is two columns of the matrix, rot6d_rows two rows"
            read = read if rotation.form == "rot6d" else ""
            yield Note(f"{recording.input.where}: {rotation} is a rotation{read}")
        if recording.rotation_option is not None or recording.is_output:
            return
        names = {name.lower(): name for name in recording.joint_names or ()}
        last = recording.array_name.rpartition("/")[2]
        option = "rpy" if recording.shape[2] == 3 and _ANGLES.search(last) else ""
        for before, word, after in (name.partition("roll") for name in names):
            three = [f"{before}{axis}{after}" for axis in ("roll", "pitch", "yaw")]
            axes = {f"{before}{axis}{after}" for axis in "xyz"}
            # the joints of a hip are called so, too: a body has these names alone, with x, y and
            # z, or with a word like rpy
            body = not before + after or axes <= names.keys() or _ANGLES.search(before)
            if word and body and names.keys() >= {*three}:
                option = ",".join(names[name] for name in three) + "=rpy"
        if option:
            how = f"--rotation {shlex.quote(option)} reads a rotation, --rotation none dofs"
            rates = "roll, pitch and yaw are read as dofs, whose rates are not the angular velocity"
            yield f"{recording.input.where}: {rates}: {how}"
    try:
        recording.require_rotations()
    except InputError as error:  # which commands that compute raise
        yield from (f"{fault.where}: {fault.what}; {fault.hint}" for fault in error.faults)


def note_skipped_rotations(recordings: Sequence[Recording], read: Sequence[Recording]) -> list[str]:
    """Notes the rotations next to the positions that are read: they are a SOURCE of their own."""
    origins = {id(recording.origin) for recording in read}
    left = [x.where for x in recordings if ROTATIONS[0] in x.arrays and id(x.origin) not in origins]
    firsts = {id(x.file): x for x in reversed(read) if not x.named}
    for recording in firsts.values():
        shapes = recording.shape[:2], recording.shape[1:2]
        for name in recording.file.children(recording.group)[:_SEARCHED]:
            if name in (*QUANTITIES, *ROTATIONS):
                continue
            with suppress(InputError):  # arrays that nobody asked for may be damaged
                stored = recording.file.get(f"{recording.group}/{name}".strip("/"))
                if stored is None or stored.dtype.kind != "f" or stored.shape[:-1] not in shapes:
                    continue
                dofs, where = stored.attributes.get("joint_names", ()), stored.where
                try:
                    turns = bool(named_rotations(name, dofs, stored.shape[-1], "", None, where))
                except InputError:  # quaternions, in whatever order
                    turns = True
                left += [where] if turns else []
    more = f" and {len(left) - 1} more are" if left[1:] else " is"
    return [Note(f"{left[0]}{more} left out: name it as SOURCE")] if left else []


def assign_times(recordings: Sequence[Recording], option: Clock | None) -> list[Recording]:
    """Gives recordings the times that an option names, else those that files state.

    The times of an option, [T] or [B, T], are those of all trajectories through all recordings. The
    first row is at time 0 if there is a time for each row and no mode calls the arrays actions.
    Recordings of a window have their times already.
    """
    option = None if any(recording.windowed for recording in recordings) else option
    count, first, result = sum(map(len, recordings)), 0, []
    if option is not None:
        # how many stamps the rows need is known once it is known whether they are actions: until
        # then one more than rows is allowed
        option = option.fit_shape(count, max(recording.rows for recording in recordings), True)
        _require_count(option, count)
    for recording in recordings:
        batch, rows, _ = recording.shape
        if option is not None and recording.fault is None:
            times = option.take(range(first, first + batch), range(rows)).fit_shape(batch, rows)
            # with a time for each row, rows are actions only if the file states a mode
            acting = recording.holds_actions and (
                bool(recording.stated_mode.name) or not times.fits
            )
            padded = recording.lengths if (recording.lengths < rows).any() else None
            recording = replace(recording, own_clock=times.fit_shape(batch, rows, acting, padded))
        if recording.fault is None:  # which is raised where the recording is used
            if (clock := recording.own_clock) is None:
                raise InputError(no_time(recording))
            raise_if_any([clock.contradiction])
            _require_count(clock, batch)
            require_stamps(recording)
        result.append(recording)
        first += batch
    return result


def require_stamps(recording: Recording) -> None:
    """Raises UsageError where --units names a unit of time, but no dataset says the times."""
    clock = recording.clock
    if recording.option_units.time is not None and (clock is None or not clock.unit):
        raise UsageError(
            "a unit of time, and no stamps or steps in a dataset",
            where=f"--units {recording.option_units.time}",
            expected="units of positions alone",
            found="no times" if clock is None else str(clock.source),
        )


def no_time(recording: Recording) -> Fault:
    """Makes the fault of trajectories without times, with a hint at how to state them."""
    layout, file, likely, others = recording.layout, recording.file, list[str](), list[str]()
    # a family knows where its rate is written down; in plain files, datasets or columns that
    # increase and are no counters are offered, first those with nearly a name of time stamps
    (_, rows, dofs), single = recording.shape, recording.single
    names = list(getattr(file, "columns", ()))[:_SEARCHED]
    names = names or [f"{group}{name}" for group in recording.companions.groups
                      for name in file.children(group)[:_SEARCHED]]  # fmt: skip
    names = [name.lstrip("/") for name in names if name != recording.origin.path]
    for path in names if layout is None else ():
        with suppress(InputError):
            stored, name = file.get(path), path.rpartition("/")[2].lower()
            similar = difflib.get_close_matches(name, TIMES, 1, 0.7)
            named = role(name) in ("time", "likely") or (similar and not role(name))
            if stored is None or not stored.numeric or (role(name) and not named):
                continue
            size = max(stored.shape, default=0) if stored.ndim < 3 else 0
            turned = single and rows < dofs == size  # dofs × rows, as MATLAB has them
            line = math.prod(stored.shape) == size and (turned or size == rows)
            first = stored.read() if stored.ndim == 1 or line else stored.read_rows(0, 1)
            # flags called timeouts do not increase
            if (line or named) and np.size(first) > 1 and (np.diff(np.ravel(first)) > 0).all():
                option = f"--times {shlex.quote(f'{file.path}:{path}')}"
                (likely if named else others).append(f"--axes DT {option}" if turned else option)
    hint = layout.family.dt_hint if layout else ""
    hint = hint or "--dt SECONDS, --rate HZ or --times FILE:DATASET"
    if options := likely + others:
        hint = f"{' or '.join(options[:3])}, if these are times; else {hint}"
    return Fault(
        "no time step",
        where=recording.input.where,
        expected="a step in seconds, a rate, or time stamps",
        found="none given, and none in the input" + (f" (layout {layout.name})" if layout else ""),
        hint=hint,
    )


def _require_count(clock: Clock, count: int) -> None:
    if clock.shape[:-1] not in ((), (1,), (count,)):
        what = "steps and trajectories differ in number"
        expected = f"{count}, one per trajectory, or one for all"
        raise InputError(wrong_shape(clock.where, expected, clock.shape, what=what))
