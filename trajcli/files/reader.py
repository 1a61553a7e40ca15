"""The trajectories that SOURCEs name: found by one function that every command calls.

:func:`read_recordings` gives a :class:`Recording` for every group of arrays, and
:func:`assign_times` the times that options say.
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
from trajcli.files.conversion import with_axes
from trajcli.files.dofs import count_bodies, match_names, named_rotations
from trajcli.files.episodes import BESIDE, LEAVE_OUT, Member, episode_edges, likely_arrays
from trajcli.files.joined_arrays import find_array, match_arrays, shorten_source
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
# Names and rows that are looked at for times and rotations.
_SEARCHED = 100
# Families of which a file may be one array without a name.
_LONE = ("npy", "zarr", "pt")
# The first groups, whose units are looked at: those of a file are alike.
_FIRST = 8
_POSE = re.compile(r"(?:^|/)(?:pose|transform)$")  # as messages call positions with orientations


def read_recordings(
    files: Files,
    sources: Sequence[str],
    as_stored: bool = False,
    actions: bool = False,
    compare: bool = True,
    positions: bool = False,
) -> list[Recording]:
    """Returns the trajectories that SOURCEs name, in their order; notes go to ``files.report``.

    SOURCE is FILE[:DATASET]; FILE may be a glob, DATASET may hold * and end in a slice of dofs,
    [:7]. Without DATASET it is every group with actions or position, velocity, acceleration or
    jerk. A group as DATASET stands for the groups below it, and a name that the file itself does
    not have is looked for in the group of every trajectory. ``files.reading`` says what else is
    known of them. Of several trajectories those that cannot be used have their fault.

    Parameters:
        files: the files of the command.
        sources: the SOURCEs.
        as_stored: keeps the units of the files, unless the command line names others; else arrays
            are in SI if the files state units.
        actions: only groups that hold something to integrate.
        compare: refuses trajectories of other joints than the first; :func:`require_alike` does.
        positions: of a group that has positions, these alone.

    Raises:
        InputError: if a file cannot be read or holds no trajectories.
        UsageError: for options that do not fit, and for dofs that are not there.
    """
    if not sources:
        raise UsageError(
            "no SOURCE", where="SOURCE", expected="one or more of FILE[:DATASET]", found="none"
        )
    found: list[tuple[int, list[_Found]]] = []
    named = [part for text in sources for part in expand_files(parse_source(text))]
    unread = unreadable_files(files, named) if len(named) > len(sources) else {}
    for file, source in _opened(files, [part for part in named if part not in unread]):
        in_file = _groups_of_file(files, file, source, actions)
        if file.family == "ros" and (actions or not as_stored):
            require_one_topic([group for group, _ in in_file])
        found.append((named.index(source), in_file))
    for part, fault in unread.items():  # raised where the trajectory is used
        like, name = found[0][1][0][0], part.path.stem
        member = like.member._replace(name=name) if like.member else Member(name, name)
        found.append((named.index(part), [(replace(like, member=member), fault)]))
    groups = [pair for _, members in sorted(found, key=lambda pair: pair[0]) for pair in members]
    if files.reading.skip_rows and all(group.file.family != "csv" for group, _ in groups):
        skipped = "--skip-rows leaves out lines of tables of text"
        files.report.add_notes(f"{skipped}, and {groups[0][0].file.path} is none")
    # control points beside the rows that they make are no other trajectory
    made = {group.file for group, _ in groups if group.file.is_output and not group.acting}
    wanted = [
        (group, fault)
        for group, fault in groups
        if group.named or group.guessed or group.acting or not actions
        if actions or group.named or not (group.acting and group.file in made)
    ]
    if not wanted:
        first, expected = groups[0][0], "a dataset called actions, or one that is named"
        there = ", ".join(f"{path} {describe(x.shape)}" for path, x in first.datasets.items())
        hint = f"{first.file.shell_name(first.path)} integrates it as actions"
        where = str(first.file.path)
        raise InputError("no actions", where=where, expected=expected, found=there, hint=hint)
    if positions:
        wanted = [(group.select_array("position"), fault) for group, fault in wanted]
    given = _given_units(files, [group for group, _ in wanted])
    recordings = _recorded(files, wanted, None if as_stored and not files.reading.units else given)
    if files.reading.window:
        from trajcli.files._windows import windowed

        at_times = assign_times(recordings, clock_from_options(files))
        recordings = [*windowed(at_times, files.reading, files.report)]
    usable, report = [x for x in recordings if x.fault is None], files.report
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


def _given_units(files: Files, groups: Sequence[ArrayGroup]) -> InputUnits:
    """Returns the units that --units says; outputs of trajcli are in SI.

    Raises UsageError for units of such an output, unless it is compared with another file.
    """
    units, option = files.reading.input_units, files.reading.units
    for file in {id(group.file): group.file for group in groups if option}.values():
        if not file.is_output:
            continue
        if not files.mixed_units:
            raise UsageError(
                "units of an output of trajcli, which are known",
                where=f"--units {option}",
                expected=f"none for {file.path}",
                hint="leave it out; --to-units of export and plot says what is written or drawn",
            )
        files.report.add_notes(
            Note(f"{file.path} is in SI, whatever --units says of other sources")
        )
        units = InputUnits()
    return units


def _recorded(files: Files, found: Sequence[_Found], given: InputUnits | None) -> list[Recording]:
    """Returns the recordings of groups of arrays; those of several that cannot be used have their
    fault, and the shape of others."""
    reading = files.reading
    recordings: list[Recording | None] = []
    faults: list[tuple[int, ArrayGroup, Fault]] = []
    errors: list[InputError] = []
    for k, (origin, fault) in enumerate(found):
        recordings.append(None)
        try:
            if fault is None:
                recordings[k] = record(origin, reading, given=given, option=bool(reading.clock))
                continue
        except InputError as error:
            errors.append(error)
            fault = error.faults[0]
        faults.append((k, origin, fault))
    made = [recording for recording in recordings if recording is not None]
    if not made:
        raise errors[0] if errors else InputError(faults[0][2])
    for k, origin, fault in faults:
        alike = (x for x in made if origin.array_name in ("", x.array_name))
        recordings[k] = make_placeholder(next(alike, made[0]), origin, fault)
    return mark_faults([recording for recording in recordings if recording is not None])


def read_positions(files: Files, sources: Sequence[str], compare: bool = True) -> list[Recording]:
    """Returns the positions that SOURCEs name, or else those of every trajectory.

    Raises InputError for files with none.
    """
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
    files.report.add(*note_skipped_rotations(recordings, recorded))
    return recorded


def no_positions(first: Recording) -> Fault:
    """Returns the fault of trajectories without positions, with a hint at those of the file."""
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
    """Returns the recordings to read of files for which SOURCE names no dataset: those with
    actions, as for integrate, or all of a file without actions.

    actions: whether to take the actions of a group, not its other arrays, if they differ in shape.
    """
    acting = {str(x.file.path) for x in recordings if not x.named and "actions" in x.arrays}
    same: dict[Any, list[Recording]] = {}
    times = Counter[Any]()  # a file may be named twice
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
    """Returns the files of a folder or glob that cannot be opened, while others can."""
    faults: dict[Source, Fault] = {}
    for part in parts:
        try:
            files.open(part.path)
        except InputError as error:
            faults[part] = error.faults[0]
    return faults if len(faults) < len(parts) else {}


def _opened(files: Files, sources: Sequence[Source]) -> Iterator[tuple[Catalogue, Source]]:
    """Opens the files of sources; those that follow each other are joined where they can be."""
    opened = ((files.open(source.path), source) for source in sources)
    # groupby joins neighbours of equal keys, and object() equals nothing else
    alone = files.reading.axes is not None
    runs = groupby(
        opened,
        lambda pair: (object() if pair[1].dataset or alone else join_key(pair[0]), pair[1].dofs),
    )
    for _, run in runs:
        (file, source), *others = run
        yield JoinedFiles([file, *(other for other, _ in others)]) if others else file, source


_Found = tuple[ArrayGroup, Fault | None]
"""Arrays that are trajectories, or those of others and why these cannot be read."""


def _groups_of_file(files: Files, file: Catalogue, source: Source, actions: bool) -> list[_Found]:
    """Returns the groups of one file; what is taken without being named is noted."""
    filter_key, layout = files.reading.filter_key, files.layout(file)
    if "," in (source.dataset or "") and not hasattr(file, "columns"):
        source = shorten_source(source)
    found: list[_Found]
    if layout is not None:
        found = _laid_out(file, layout, source, filter_key, actions)
    elif filter_key is not None:
        raise UsageError(
            "a filter key needs a layout",
            where="--filter-key",
            expected=f"{file.path}: robomimic",
            found="plain arrays",
        )
    else:
        found = [(group, None) for group in _plain(file, source, actions)]
    report, groups = files.report, [group for group, _ in found]
    if layout is not None and layout.split.remark:
        report.add_notes(layout.split.remark)
    if groups[0].guessed:
        paths = list(dict.fromkeys(group.path for group in groups))
        more = f" and {len(paths) - 1} more are" if paths[1:] else " is"
        left = file.motion()[1] if paths == [file.motion()[0]] else ""
        report.add_notes(Note(f"SOURCE names no dataset: {file.place(paths[0])}{more} taken{left}"))
    report.add_notes(*(text for g in groups for x in g.datasets.values() for text in x.remarks))
    arranged = _arranged(found, files)
    if source.dofs is None:
        return arranged
    return [(replace(group, dofs=source.dofs), fault) for group, fault in arranged]


def _arranged(found: Sequence[_Found], files: Files) -> list[_Found]:
    """Returns groups by the axes that --axes says and the episodes of arrays [N, D]."""
    arranged, reading, report = list[_Found](), files.reading, files.report
    kinds: set[str] = set()
    axes = (reading.axes or "").upper()
    dims = {array.ndim for group, _ in found for array in group.datasets.values()}
    if axes and ("".join(sorted(axes)) not in ("BDT", "DT", "BT") or len(axes) not in dims):
        where = next(iter(found[0][0].datasets.values())).where
        what, expected = f"not the axes of {where}", "T, B and D in their order"
        raise UsageError(what, where="--axes", expected=expected, found=axes)
    for group, fault in found:
        try:
            for array in group.datasets.values():
                array.require_numeric()
        except InputError as error:  # of several, it is raised where the trajectory is used
            if len(found) == 1:
                raise
            arranged.append((group, error.faults[0]))
            continue
        kind = mask_numbers(f"{group.group}:{group.array_name}")
        foreign = group.layout is None and not group.file.own_output
        if axes:
            moved = {name: reorder_axes(array, axes) for name, array in group.datasets.items()}
            group = replace(group, datasets=moved)
        elif foreign and not group.file.members and kind not in kinds:
            kinds.add(kind)
            report.add_notes(*_axes_remarks(group))
        single = all(array.ndim < 3 for array in group.datasets.values())
        parts = [group]
        if foreign and single and reading.layout != PLAIN:
            parts, remarks = _episodes(group)
            report.add_notes(*remarks)
        arranged += ((part, fault) for part in parts)
    return arranged


def _episodes(group: ArrayGroup) -> tuple[list[ArrayGroup], list[str]]:
    """Returns a group for each episode of arrays [N, D] that hold several, and notes."""
    array = group.companions.array
    edges, where, remarks = episode_edges(group.file, group.companions.groups, array)
    if edges == [0, array.shape[0]]:
        return [group], remarks
    title = f"{group.group}/episode_".lstrip("/")
    members = [
        Member(f"{title}{k}", group.group, begin, end, None, array.shape[0], k, len(edges) - 1)
        for k, (begin, end) in enumerate(pairwise(edges))
    ]
    groups = [
        replace(group, member=m, datasets={n: m.select_rows(x) for n, x in group.datasets.items()})
        for m in members
    ]
    return groups, [Note(f"{array.where}: {len(members)} episodes by {where}"), *remarks]


def _axes_remarks(group: ArrayGroup) -> list[str]:
    """Returns a warning of axes that seem to be others; InputError where stamps say so."""
    array, (axes, why, stamped) = group.companions.array, group.companions.likely_axes()
    batch, rows, dofs = (1, 1, 1, *array.shape)[-3:] if array.ndim > 1 else (1, *array.shape, 1)
    if stamped:
        raise InputError(
            "time stamps of another axis than that of the rows",
            where=f"{array.where} {describe(array.shape)} and {why}",
            expected=f"{rows} stamps, as [B, T, D] has {rows} rows",
            found="[" + why.rpartition("[")[2],
            hint=f"--axes {axes} says which axis is which: B trajectories, T rows, D dofs",
        )
    read = f"{array.where} {describe(array.shape)} is read as {batch} × {rows} rows"
    if not axes:
        return []
    return [f"{read} of {dofs} dofs, but {why}; --axes {axes}, if they are its axes"]


def require_alike(groups: Sequence[Recording]) -> None:
    """Raises InputError for groups of different dofs or joints, or of other kinds of units."""
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
    """Returns a note on the first recording whose joints match by names that are not equal, and the
    fault of the first that has other joints, or joints in another order."""
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
        names = [t if g.guessed or positions[t] else g.path for t, g in topics.items()]
        names += (p for p in file.names() if _POSE.search(p) and p.rpartition("/")[0] not in topics)
        arrays = ((group.path, group.companions.array) for group in topics.values())
        found = ", ".join(f"/{path} {describe(array.shape[-2:])}" for path, array in arrays)
        hint = f"name one: {' or '.join(file.shell_name(f'/{name}') for name in names)}"
        what, where = "several topics with trajectories", str(file.path)
        raise InputError(what, where=where, expected="one of them", found=found, hint=hint)


def _plain(file: Catalogue, source: Source, actions: bool) -> list[ArrayGroup]:
    """Returns the groups of a file without a layout. actions: positions stand in for actions where
    there are none, but not positions that trajcli computed."""
    name = source.dataset
    if name is None and file.family in _LONE and file.names() == [""]:
        return [ArrayGroup(file, "", {"actions": file.require("")})]
    # a pattern of groups stands for those below them
    below = file.match(name, groups=True) if name is not None and "*" in name else []
    if name is not None and not below and not file.has_group(name):
        paths = _paths(file, name)
        common = _common_name(file, paths)
        return [
            ArrayGroup(file, path, {common or path: find_array(file, path)}, named=True,
                            member=Member(path, path) if common else None)
            for path in paths
        ]  # fmt: skip
    prefixes = [f"{path.strip('/')}/" if path else "" for path in below or [name or ""]]
    groups = [group for prefix in prefixes for group in _recognised(file, prefix)]
    if actions and "request" not in file.attributes():
        groups = [group for group in groups if group.acting]
    return groups or [
        ArrayGroup(file, path, {path: file.require(path)}, guessed=True)
        for prefix in prefixes
        for path in likely_arrays(file, prefix)
    ]


def _paths(file: Catalogue, name: str) -> list[str]:
    """Returns the paths of the datasets that a name or pattern means; a name that only groups have
    means the dataset of every group."""
    head = name.partition(",")[0]
    if "*" in name or file.get(name) is not None or file.get(head) is not None:
        paths = match_arrays(file, name)
        last = {path: path.rpartition("/")[2].lower() for path in paths}
        dofs = (p for p in paths if last[p] not in BESIDE and not role(last[p]))
        return [path for path in dofs if find_array(file, path).numeric] or paths
    groups = dict.fromkeys(known.group for known in _recognised(file, "") if known.group)
    paths = [f"{group}/{head.strip('/')}" for group in groups]
    if all(file.get(path) is None for path in paths):  # groups without any known array
        paths = [path for path in file.names() if path.endswith(f"/{head.strip('/')}")]
        if len(set(map(mask_numbers, paths))) != 1:
            raise InputError(file.missing(name))
    return [path + name[len(head) :] for path in paths]


def _common_name(file: Catalogue, paths: Sequence[str]) -> str:
    """Returns what arrays of one quantity and the same dofs, which a pattern names, are called
    where each is a trajectory; "" for others."""
    lasts = [path.rpartition("/")[2] for path in paths]
    kinds = {last if last in (*QUANTITIES, *ROTATIONS) else rate_name(last) for last in lasts}
    dofs = {find_array(file, path).shape[1:][-1:] for path in paths} if len(set(lasts)) > 1 else ()
    if len(kinds) != 1 or len(dofs) != 1:
        return ""
    stems = {re.sub(r"[\W_]*\d+", "", last) for last in lasts}
    return stems.pop() or "data" if len(stems) == 1 else kinds.pop() or "data"


def _recognised(file: Catalogue, prefix: str) -> Iterator[ArrayGroup]:
    """Yields a group for arrays of one shape in each group of the file, known by their names."""
    groups: dict[str, dict[str, str]] = {}
    direct = (prefix + name for name in file.children(prefix))  # names() follows no links
    for path in dict.fromkeys((*direct, *file.names())):
        group, _, last = path.rpartition("/")
        known = last in QUANTITIES or last in ACTIONS or last in ROTATIONS
        if known and path.startswith(prefix) and group.rpartition("/")[2] not in STATES:
            groups.setdefault(group, {})[last] = path
    found: list[dict[str, Dataset]] = []
    for paths in groups.values():
        by_shape: dict[tuple[int, ...], dict[str, Dataset]] = {}
        for last in (*ACTIONS, *QUANTITIES, *ROTATIONS):
            if last not in paths:
                continue
            stored = file.get(paths[last])
            kind = (ROTATIONS.index(last) > 0,) if last in ROTATIONS else ()
            axes = (3, 4) if kind and count_bodies(file) > 1 else (2, 3) if kind else (1, 2, 3)
            shape = stored.shape if stored is not None and stored.numeric else ()
            state = len(shape) == 1 and shape[0] < 8
            if stored is not None and len(shape) in axes and not state:
                by_shape.setdefault((*kind, *shape), {})[paths[last]] = stored
        found += by_shape.values()
    # [T] beside tables is one number for each row, or, as of limits, for each dof
    tables = [datasets for datasets in found if len(next(iter(datasets.values())).shape) > 1]
    for datasets in tables or found:
        yield ArrayGroup(file, next(iter(datasets)), datasets)


def _laid_out(
    file: Catalogue, layout: Layout, source: Source, filter_key: str | None, actions: bool
) -> list[_Found]:
    """Returns the arrays of every trajectory of a layout in which, or in the file, DATASET names an
    array. actions: positions stand in for actions where there are none."""
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

    def of_member(member: Member) -> ArrayGroup:
        path, arrays = layout.family.arrays(layout, member)
        guessed = layout.guesses(path)
        if actions and "actions" not in arrays and "position" in arrays:
            arrays, guessed = {"position": arrays["position"]}, True
        return ArrayGroup(file, path, arrays, layout, member, guessed=guessed)

    def of_path(member: Member, path: str) -> ArrayGroup:
        stored = find_array(file, path, layout)
        if member.end is not None and stored.shape[:1] < (layout.split.rows,):
            expected = f"at least {layout.split.rows} rows, those of the trajectories"
            fault = wrong_shape(stored.where, expected, stored.shape, what="too few rows")
            raise InputError(fault)
        arrays = {common or path: member.select_rows(stored)}
        if common:  # several arrays, each of which holds all trajectories
            member = member._replace(name=f"{path}/{member.name}", group=path)
        return ArrayGroup(file, path, arrays, layout, member, named=True)

    pairs = [(member, "") for member in below] or _named_arrays(file, members, name)
    flat = dict.fromkeys(path for member, path in pairs if path and not member.group)
    common = _common_name(file, list(flat))
    found: list[_Found | None] = [None] * len(pairs)
    bad: list[tuple[int, str, InputError]] = []
    for k, (member, path) in enumerate(pairs):
        try:
            found[k] = (of_path(member, path) if path else of_member(member)), None
        except InputError as error:  # which is raised where the trajectory is used
            bad.append((k, path[len(member.group) :].strip("/"), error))
    known = [pair[0] for pair in found if pair is not None]
    for k, path, refusal in bad:
        like = next((group for group in known if path in ("", group.array_name)), None)
        if like is None:
            raise refusal
        member = pairs[k][0]
        named = f"{member.group}/{like.array_name}".strip("/")
        found[k] = replace(like, member=member, path=named), refusal.faults[0]
    return [pair for pair in found if pair is not None]


def _named_arrays(
    file: Catalogue, members: Sequence[Member], name: str
) -> list[tuple[Member, str]]:
    """Returns the paths of the arrays that FILE:DATASET names, with their trajectories."""
    groups = {member.group: member for member in members if member.group}
    inside = groups and name.split("/")[0] not in {group.split("/")[0] for group in groups}
    if inside and "*" not in name:
        return [(member, member.path(name)) for member in members]

    def owners(path: str) -> Sequence[Member]:
        above = accumulate(path.split("/"), "{}/{}".format)
        return [groups[group] for group in above if group in groups][-1:]

    # of flat arrays each trajectory has its rows
    paths = match_arrays(file, name)
    named = [(m, path) for path in paths for m in (owners(path) if groups else members)]
    if not named:
        raise InputError(file.missing(name))
    return named


def mark_faults(recordings: Sequence[Recording]) -> list[Recording]:
    """Returns the recordings, with faults for those of several trajectories, by a layout or by
    numbers in their names, that have no rows or uncommon dofs."""
    patterns = [(str(x.file.path), mask_numbers(f"{x.group}:{x.array_name}")) for x in recordings]
    counts_alike = Counter(patterns)
    several = [
        x.member is not None or (x.single and counts_alike[pattern] > 2)
        for x, pattern in zip(recordings, patterns, strict=True)
    ]
    filled = [x for x, one in zip(recordings, several, strict=True) if one and x.shape[1]]
    checked = list(recordings)
    counts = Counter((x.array_name, x.shape[2]) for x in filled)
    # of each array the first with the dofs that most have
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
    """Yields a note on each rotation, and a warning of roll, pitch and yaw that are read as dofs,
    unless --rotation says so."""
    if recording.rotation_fault is None:
        for rotation in recording.rotations:
            read = "; rot6d is two columns of the matrix, rot6d_rows two rows"
            read = read if rotation.form == "rot6d" else ""
            yield Note(f"{recording.input.where}: {rotation} is a rotation{read}")
        if recording.rotation_option is not None or recording.is_output:
            return
        if option := _angles(recording):
            how = f"--rotation {shlex.quote(option)} reads a rotation, --rotation none dofs"
            rates = "roll, pitch and yaw are read as dofs, whose rates are not the angular velocity"
            yield f"{recording.input.where}: {rates}: {how}"
    try:
        recording.require_rotations()
    except InputError as error:  # which commands that compute raise
        yield from (f"{fault.where}: {fault.what}; {fault.hint}" for fault in error.faults)


def _angles(recording: Recording) -> str:
    """Returns the option that reads roll, pitch and yaw as a rotation; "" where there are none."""
    names = {name.lower(): name for name in recording.joint_names or ()}
    last = recording.array_name.rpartition("/")[2]
    option = "rpy" if recording.shape[2] == 3 and _ANGLES.search(last) else ""
    for before, word, after in (name.partition("roll") for name in names):
        three = [f"{before}{axis}{after}" for axis in ("roll", "pitch", "yaw")]
        beside = {f"{before}{axis}{after}" for axis in "xyz"}
        # the joints of a hip are called so, too: not alone, nor beside x, y and z
        alone = not before + after or beside <= names.keys() or _ANGLES.search(before)
        if word and alone and names.keys() >= {*three}:
            option = ",".join(names[name] for name in three) + "=rpy"
    return option


def note_skipped_rotations(recordings: Sequence[Recording], kept: Sequence[Recording]) -> list[str]:
    """Returns a note on rotations beside the positions that are read, which are a SOURCE of their
    own; none where there are no such rotations."""
    read = {id(recording.origin) for recording in kept}
    left = [x.where for x in recordings if ROTATIONS[0] in x.arrays and id(x.origin) not in read]
    firsts = {id(x.file): x for x in reversed(kept) if not x.named}
    for recording in firsts.values():
        shapes = recording.shape[:2], recording.shape[1:2]
        for name in recording.file.children(recording.group)[:_SEARCHED]:
            with suppress(InputError):  # what is not meant may be anything
                path = f"{recording.group}/{name}".strip("/")
                known = name in (*QUANTITIES, *ROTATIONS)
                stored = None if known else recording.file.get(path)
                fits = stored and stored.dtype.kind == "f" and stored.shape[:-1] in shapes
                if stored and fits and _is_rotation(name, stored):
                    left.append(stored.where)
    more = f" and {len(left) - 1} more are" if left[1:] else " is"
    return [Note(f"{left[0]}{more} left out: name it as SOURCE")] if left else []


def _is_rotation(name: str, stored: Dataset) -> bool:
    """Whether its name or those of its dofs say that an array is a rotation, in whatever order."""
    dofs = stored.attributes.get("joint_names", ())
    try:
        return bool(named_rotations(name, dofs, stored.shape[-1], "", None, stored.where))
    except InputError:
        return True


def assign_times(recordings: Sequence[Recording], option: Clock | None) -> list[Recording]:
    """Returns the recordings at the times that an option names, else at those that files state.

    The times of an option, [T] or [B, T], are those of all trajectories through all recordings. The
    first row is at time 0 if there is a time for each row and no mode calls the arrays actions.
    Those of a window have them already. Raises InputError for times of another number of
    trajectories, and if there are none.
    """
    option = None if any(recording.windowed for recording in recordings) else option
    count, first, at_times = sum(map(len, recordings)), 0, []
    if option is not None:
        # how many stamps they need is known once it is known whether rows are actions
        option = option.fit_shape(count, max(recording.rows for recording in recordings), True)
        _require_times_of(option, count)
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
            _require_times_of(clock, batch)
            require_stamps(recording)
        at_times.append(recording)
        first += batch
    return at_times


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
    """Returns the fault of trajectories without times, with a hint at how to state them."""
    layout = recording.layout
    hint = layout.family.dt_hint if layout else ""
    hint = hint or "--dt SECONDS, --rate HZ or --times FILE:DATASET"
    if near := _near_times(recording) if layout is None else []:
        hint = f"{' or '.join(near[:3])}, if these are times; else {hint}"
    return Fault(
        "no time step",
        where=recording.input.where,
        expected="a step in seconds, a rate, or time stamps",
        found="none given, and none in the input" + (f" (layout {layout.name})" if layout else ""),
        hint=hint,
    )


def _near_times(recording: Recording) -> list[str]:
    """Returns options for datasets or columns beside the trajectories that increase: those
    with nearly a name of time stamps first, and no counters."""
    file, near, others = recording.file, list[str](), list[str]()
    (_, rows, dofs), single = recording.shape, recording.single
    columns = list(getattr(file, "columns", ()))[:_SEARCHED]
    beside = [f"{group}{name}" for group in recording.companions.groups
              for name in file.children(group)[:_SEARCHED]]  # fmt: skip
    paths = (name.lstrip("/") for name in columns or beside if name != recording.origin.path)
    for path in paths:
        with suppress(InputError):
            stored, name = file.get(path), path.rpartition("/")[2].lower()
            near_one = difflib.get_close_matches(name, TIMES, 1, 0.7)
            named = role(name) in ("time", "likely") or (near_one and not role(name))
            if stored is None or not stored.numeric or (role(name) and not named):
                continue
            size = max(stored.shape, default=0) if stored.ndim < 3 else 0
            turned = single and rows < dofs == size  # dofs × rows, as MATLAB has them
            lone = math.prod(stored.shape) == size and (turned or size == rows)
            first = stored.read() if stored.ndim == 1 or lone else stored.read_rows(0, 1)
            # flags called timeouts do not increase
            if (lone or named) and np.size(first) > 1 and (np.diff(np.ravel(first)) > 0).all():
                way = f"--times {shlex.quote(f'{file.path}:{path}')}"
                (near if named else others).append(f"--axes DT {way}" if turned else way)
    return near + others


def _require_times_of(clock: Clock, count: int) -> None:
    """Raises InputError for steps or stamps of another number of trajectories."""
    if clock.shape[:-1] not in ((), (1,), (count,)):
        what = "steps and trajectories differ in number"
        expected = f"{count}, one per trajectory, or one for all"
        raise InputError(wrong_shape(clock.where, expected, clock.shape, what=what))
