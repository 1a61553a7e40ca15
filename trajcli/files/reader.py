"""The trajectories that SOURCEs name: found by one function that every command calls.

:func:`read_groups` gives a :class:`TrajectoryGroup` for every group of arrays: what they are
called, how long, at which times, and what lies beside them.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import nullcontext, suppress
from fnmatch import fnmatchcase
from itertools import accumulate, groupby
from typing import Any

from trajcli.arrays import describe
from trajcli.errors import Fault, InputError, Note, UsageError, raise_if_any
from trajcli.files.catalogue import Catalogue, Dataset
from trajcli.files.companions import BESIDE
from trajcli.files.conversion import with_axes
from trajcli.files.dofs import bodies_of, match_names
from trajcli.files.layouts import PLAIN, Layout
from trajcli.files.likely import likely_arrays
from trajcli.files.members import LEAVE_OUT, Member
from trajcli.files.opening import Files, JoinedFiles, joining
from trajcli.files.quantities import QUANTITIES, ROTATIONS, STATES, named_rate, role
from trajcli.files.reading import Reading
from trajcli.files.rotation_groups import rotation_remarks, rotations_left_out
from trajcli.files.source import Source, expand_files, parse_source
from trajcli.files.trajectory_group import ACTIONS, TrajectoryGroup
from trajcli.units import InputUnits, require_same_kind

# Families of which a file may be one array without a name.
_LONE = ("npy", "zarr", "pt")
# The first groups, whose units are looked at: those of a file are alike.
_FIRST = 8
_POSE = re.compile(r"(?:^|/)(?:pose|transform)$")  # as messages call positions with orientations


def read_groups(
    files: Files, sources: Sequence[str], as_stored: bool = False, actions: bool = False
) -> tuple[list[TrajectoryGroup], list[str]]:
    """Returns the trajectories that SOURCEs name, in their order, and notes for the user.

    SOURCE is FILE[:DATASET]; FILE may be a glob, DATASET may hold * and end in a slice of dofs,
    [:7]. Without DATASET it is every group with actions or position, velocity, acceleration or
    jerk. A group as DATASET stands for the groups below it, and a name that the file itself does
    not have is looked for in the group of every trajectory. ``files.reading`` says what else is
    known of them.

    Parameters:
        files: the files of the command.
        sources: the SOURCEs.
        as_stored: keeps the units of the files, unless the command line names others; else arrays
            are in SI if the files state units.
        actions: only groups that hold something to integrate.

    Raises:
        InputError: if a file cannot be read or holds no trajectories.
        UsageError: for options that do not fit, and for dofs that are not there.
    """
    if not sources:
        raise UsageError(
            "no SOURCE", where="SOURCE", expected="one or more of FILE[:DATASET]", found="none"
        )
    found: list[tuple[int, list[TrajectoryGroup]]] = []
    notes: list[str] = []
    reading, units = files.reading, files.reading.input_units
    named = [part for text in sources for part in expand_files(parse_source(text))]
    unread = unreadable_files(files, named) if len(named) > len(sources) else {}
    for file, source in _opened(files, [part for part in named if part not in unread]):
        in_file, remarks = _groups_of_file(files, file, source, actions)
        if in_file[0].file.family == "ros" and (actions or not as_stored):
            require_one_topic(in_file)
        found.append((named.index(source), in_file))
        notes += remarks
    for part, fault in unread.items():  # raised where the trajectory is used
        like, name = found[0][1][0], part.path.stem
        member = like.member._replace(name=name) if like.member else Member(name, name)
        found.append((named.index(part), [like.standing_in(like.file, member, fault)]))
    groups = [group for _, members in sorted(found, key=lambda pair: pair[0]) for group in members]
    wanted = [group for group in groups if not actions or group.named or "actions" in group.arrays]
    if not wanted:
        first, expected = groups[0], "a dataset called actions, or one that is named"
        there = ", ".join(f"{name} {describe(first.shape)}" for name in _paths_of(first))
        hint = f"{first.file.typed(_path(first))} integrates it as actions"
        where = str(first.file.path)
        raise InputError("no actions", where=where, expected=expected, found=there, hint=hint)
    if reading.dofs is not None:
        wanted = [group.keep_dofs(reading.dofs, "--dofs") for group in wanted]
    if reading.joints is not None:
        wanted = [group.name_dofs(reading.joints) for group in wanted]
    if reading.quantity is not None:
        wanted = [group.as_quantity(reading.quantity) for group in wanted]
    if reading.rotation is not None:
        wanted = [group.name_rotations(reading.rotation) for group in wanted]
    wanted = marked_faulty(wanted)
    notes += rotation_remarks(wanted[0])
    for file in {id(group.file): group.file for group in wanted if reading.units}.values():
        if "trajcli_version" in file.attributes():
            if files.mixed:
                notes.append(Note(f"{file.path} is in SI, whatever --units says of other sources"))
                units = InputUnits()
                continue
            raise UsageError(
                "units of an output of trajcli, which are known",
                where=f"--units {reading.units}",
                expected=f"none for {file.path}",
                hint="leave it out; --to-units of export and plot says what is written or drawn",
            )
    if not as_stored or reading.units is not None:
        wanted = [group.in_si(units) for group in wanted]
    usable = [group for group in wanted if group.fault is None]
    notes += (remark for group in usable[:_FIRST] for remark in group.unit_remarks())
    if not as_stored or len(sources) > 1:
        # as stored: require_alike raises, of commands that take them together
        with suppress(InputError) if as_stored else nullcontext():
            matched, faults = _compare_joints(wanted)
            notes += matched
            raise_if_any(faults)
    return wanted, list(dict.fromkeys(notes))


def read_recordings(
    files: Files, sources: Sequence[str], as_stored: bool = False
) -> tuple[list[TrajectoryGroup], list[str]]:
    """Returns the positions that SOURCEs name, or else those of every trajectory, and notes for
    the user. Raises InputError for files with none."""
    groups, notes = read_groups(files, sources, as_stored)
    first = groups[0]
    if first.file.family == "ros":
        require_one_topic(groups)
    recorded = [
        group
        for group in groups
        if group.named or group.file.names() == [""] or "position" in group.arrays
    ]
    positions = [group.only("position") for group in recorded]
    if not positions:
        names = first.layout.recorded(first.member) if first.layout and first.member else []
        names = names or [path for path in first.file.names() if _POSE.search(path)]
        named, found = first.file.typed((names or [_path(first)])[0]), ", ".join(_paths_of(first))
        expected, where = "a dataset called position, or one that is named", str(first.file.path)
        hint = f"{named} names them; trajcli integrate takes actions"
        if not names and (rate := first.named_rate) in QUANTITIES:
            hint = f"trajcli integrate {named} --mode {rate} --start zero makes positions of them"
        what = "no recorded positions"
        raise InputError(what, where=where, expected=expected, found=found, hint=hint)
    return positions, [*notes, *rotations_left_out(groups, recorded)]


def one_per_group(groups: Sequence[TrajectoryGroup], actions: bool) -> list[TrajectoryGroup]:
    """Returns the groups to read of files for which SOURCE names no dataset: those with actions, as
    for integrate, or all groups of a file without actions.

    actions: whether to take the actions of a group, not its other arrays, if they differ in shape.
    """
    acting = {str(g.file.path) for g in groups if not g.named and "actions" in g.arrays}
    same: dict[Any, list[TrajectoryGroup]] = {}
    times = Counter[Any]()  # a file may be named twice
    for k, group in enumerate(groups):
        key, arrays = (str(group.file.path), group.name), tuple(group.arrays)
        same.setdefault(k if group.named else (key, times[key, arrays]), []).append(group)
        times[key, arrays] += 1
    return [
        max(members, key=lambda group: group.of_actions == actions)
        for members in same.values()
        if members[0].named
        or str(members[0].file.path) not in acting
        or any("actions" in group.arrays for group in members)
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
        lambda pair: (object() if pair[1].dataset or alone else joining(pair[0]), pair[1].dofs),
    )
    for _, run in runs:
        (file, source), *others = run
        yield JoinedFiles([file, *(other for other, _ in others)]) if others else file, source


def _groups_of_file(
    files: Files, file: Catalogue, source: Source, actions: bool
) -> tuple[list[TrajectoryGroup], list[str]]:
    """Returns the groups of one file, and notes, as on what is taken without being named."""
    filter_key, layout = files.reading.filter_key, files.layout(file)
    if layout is not None:
        groups = _laid_out(file, layout, source, filter_key, actions)
    elif filter_key is not None:
        raise UsageError(
            "a filter key needs a layout",
            where="--filter-key",
            expected=f"{file.path}: robomimic",
            found="plain arrays",
        )
    else:
        groups = _plain(file, source, actions)
    groups, remarks = _arranged(groups, files.reading)
    notes = [layout.remark] if layout is not None and layout.remark else []
    if groups[0].guessed:
        paths = list(dict.fromkeys(map(_path, groups)))
        more = f" and {len(paths) - 1} more are" if paths[1:] else " is"
        taken = f"{file.place(paths[0])}{more} taken"
        notes.append(Note(f"SOURCE names no dataset: {taken}"))
    notes += (text for g in groups for array in g.arrays.values() for text in array.remarks)
    notes += remarks
    if (dofs := source.dofs) is not None:
        groups = [group.keep_dofs(dofs, f"{group.where}[{dofs}]") for group in groups]
    return groups, notes


def _arranged(
    groups: Sequence[TrajectoryGroup], reading: Reading
) -> tuple[list[TrajectoryGroup], list[str]]:
    """Returns groups by the axes that --axes says and the episodes of arrays [N, D], and notes."""
    arranged: list[TrajectoryGroup] = []
    notes: list[str] = []
    kinds: set[str] = set()
    axes = (reading.axes or "").upper()
    dims = {array.ndim for group in groups for array in group.datasets.values()}
    if axes and ("".join(sorted(axes)) not in ("BDT", "DT", "BT") or len(axes) not in dims):
        what, expected = f"not the axes of {groups[0].where}", "T, B and D in their order"
        raise UsageError(what, where="--axes", expected=expected, found=axes)
    for group in groups:
        kind = re.sub(r"\d+", "", f"{group.group}:{group.array_name}")
        foreign = group.layout is None and "trajcli_version" not in group.file.attributes()
        if axes:
            moved = {name: with_axes(array, axes) for name, array in group.datasets.items()}
            group = group.with_datasets(moved)
        elif foreign and not group.file.members and kind not in kinds:
            kinds.add(kind)
            notes += _axes_remarks(group)
        several = foreign and group.single and reading.layout != PLAIN
        parts, remarks = group.episodes() if several else ([group], [])
        arranged += parts
        notes += group.stated_lengths[1]
        notes += remarks
        if (lengths := group.nan_lengths) is not None:
            ended = f"{(lengths < group.shape[1]).sum()} of {len(lengths)} trajectories end"
            notes.append(Note(f"{group.where}: {ended} in rows of NaN, which are padding"))
    return arranged, notes


def _axes_remarks(group: TrajectoryGroup) -> list[str]:
    """Returns a warning of axes that seem to be others; InputError where stamps say so."""
    axes, why, stamped = group.likely_axes()
    array, (batch, rows, dofs) = next(iter(group.datasets.values())), group.shape
    if stamped:
        raise InputError(
            "time stamps of another axis than that of the rows",
            where=f"{array.where} {describe(array.shape)} and {why}",
            expected=f"{rows} stamps, as [B, T, D] has {rows} rows",
            found="[" + why.rpartition("[")[2],
            hint=f"--axes {axes} says which axis is which: B trajectories, T rows, D dofs",
        )
    read = f"{array.where} {describe(array.shape)} is read as {batch} × {rows} rows"
    return [f"{read} of {dofs} dofs, but {why}; --axes {axes}, if they are its axes"] * bool(axes)


def require_alike(groups: Sequence[TrajectoryGroup]) -> None:
    """Raises InputError for groups of different dofs or joints, or of other kinds of units."""
    require_same_kind([(group.as_stored.where, group.position_units) for group in groups])
    raise_if_any(dof_faults(groups))
    raise_if_any(_compare_joints(groups)[1])


def dof_faults(groups: Sequence[TrajectoryGroup]) -> Iterator[Fault]:
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


def _compare_joints(groups: Sequence[TrajectoryGroup]) -> tuple[list[str], list[Fault]]:
    """Returns a note on the first group whose joints match by names that are not equal, and the
    fault of the first that has other joints, or joints in another order."""
    # a group without names of its own has those of its file, which are read once for each file
    firsts = {id(group.file): group for group in reversed(groups)}
    stating = (
        group
        for group in groups
        if not group.of_rotations and (firsts[id(group.file)] is group or group.states_joints())
    )
    named = ((group, names) for group in stating if (names := group.joint_names) is not None)
    first, expected = next(named, (None, []))
    notes: list[str] = []
    for group, names in named:
        if names == expected or first is None:
            continue
        if match_names(names, expected) == list(range(len(expected))):
            a, b = next(pair for pair in zip(names, expected, strict=True) if pair[0] != pair[1])
            matched = f"joints are matched by name, {a} with {b} of {first.where}"
            notes = notes or [Note(f"{group.where}: {matched}")]
        else:
            fault = Fault(
                "trajectories of different joints",
                where=group.where,
                expected=f"{', '.join(expected)}, as in {first.where}",
                found=", ".join(names),
                hint="--dofs with their names takes the same of each, in one order",
            )
            return notes, [fault]
    return notes, []


def require_one_topic(groups: Sequence[TrajectoryGroup]) -> None:
    """Raises InputError for trajectories of several topics, unless SOURCE names them."""
    topics: dict[str, TrajectoryGroup] = {}
    for group in groups:
        topics.setdefault(re.sub(r"/\d+$", "", group.group), group)
    if len(topics) > 1 and not all(group.named and not group.guessed for group in groups):
        file = groups[0].file
        names = [t if g.guessed or "position" in g.arrays else _path(g) for t, g in topics.items()]
        names += (p for p in file.names() if _POSE.search(p) and p.rpartition("/")[0] not in topics)
        listed = (f"/{_path(group)} {describe(group.shape[1:])}" for group in topics.values())
        hint = f"name one: {' or '.join(file.typed(f'/{name}') for name in names)}"
        what, where, found = "several topics with trajectories", str(file.path), ", ".join(listed)
        raise InputError(what, where=where, expected="one of them", found=found, hint=hint)


def _plain(file: Catalogue, source: Source, actions: bool) -> list[TrajectoryGroup]:
    """Returns the groups of a file without a layout. actions: positions stand in for actions where
    there are none, but not positions that trajcli computed."""
    name = source.dataset
    if name is None and file.family in _LONE and file.names() == [""]:
        return [TrajectoryGroup(file, "", {"actions": file.require("")})]
    # a pattern of groups stands for those below them
    below = file.match(name, groups=True) if name is not None and "*" in name else []
    if name is not None and not below and not file.has_group(name):
        paths = _paths(file, name)
        common = _common_name(file, paths)
        return [
            TrajectoryGroup(file, path, {common or path: file.require(path)}, named=True,
                            member=Member(path, path) if common else None)
            for path in paths
        ]  # fmt: skip
    prefixes = [f"{path.strip('/')}/" if path else "" for path in below or [name or ""]]
    groups = [group for prefix in prefixes for group in _recognised(file, prefix)]
    if actions and "request" not in file.attributes():
        groups = [group for group in groups if "actions" in group.arrays]
    return groups or [
        TrajectoryGroup(file, path, {path: file.require(path)}, guessed=True)
        for prefix in prefixes
        for path in likely_arrays(file, prefix)
    ]


def _paths(file: Catalogue, name: str) -> list[str]:
    """Returns the paths of the datasets that a name or pattern means; a name that only groups have
    means the dataset of every group."""
    if "*" in name or file.get(name) is not None:
        paths = file.match(name)
        last = {path: path.rpartition("/")[2].lower() for path in paths}
        dofs = (p for p in paths if last[p] not in BESIDE and not role(last[p]))
        return [path for path in dofs if file.require(path).numeric] or paths
    groups = dict.fromkeys(known.group for known in _recognised(file, "") if known.group)
    paths = [f"{group}/{name.strip('/')}" for group in groups]
    if all(file.get(path) is None for path in paths):  # groups without any known array
        paths = [path for path in file.names() if path.endswith(f"/{name.strip('/')}")]
        if len({re.sub(r"\d+", "*", path) for path in paths}) != 1:
            raise InputError(file.missing(name))
    return paths


def _common_name(file: Catalogue, paths: Sequence[str]) -> str:
    """Returns what arrays of one quantity and the same dofs, which a pattern names, are called
    where each is a trajectory; "" for others."""
    lasts = [path.rpartition("/")[2] for path in paths]
    kinds = {last if last in (*QUANTITIES, *ROTATIONS) else named_rate(last) for last in lasts}
    dofs = {file.require(path).shape[1:][-1:] for path in paths} if len(set(lasts)) > 1 else ()
    if len(kinds) != 1 or len(dofs) != 1:
        return ""
    stems = {re.sub(r"[\W_]*\d+", "", last) for last in lasts}
    return stems.pop() or "data" if len(stems) == 1 else kinds.pop() or "data"


def _recognised(file: Catalogue, prefix: str) -> Iterator[TrajectoryGroup]:
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
            axes = (3, 4) if kind and bodies_of(file) > 1 else (2, 3) if kind else (1, 2, 3)
            short = stored is not None and stored.ndim == 1 and stored.shape[0] < 8  # of a state
            if stored is not None and stored.numeric and stored.ndim in axes and not short:
                by_shape.setdefault((*kind, *stored.shape), {})[paths[last]] = stored
        found += by_shape.values()
    # [T] beside tables is one number for each row, or, as of limits, for each dof
    tables = [datasets for datasets in found if next(iter(datasets.values())).ndim > 1]
    for datasets in tables or found:
        yield TrajectoryGroup(file, next(iter(datasets)), datasets)


def _laid_out(
    file: Catalogue, layout: Layout, source: Source, filter_key: str | None, actions: bool
) -> list[TrajectoryGroup]:
    """Returns a group for every trajectory of a layout, in which, or in the file, DATASET names an
    array. actions: positions stand in for actions where there are none."""
    members = layout.members() if filter_key is None else layout.chosen(filter_key)
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

    def of_member(member: Member) -> TrajectoryGroup:
        path, arrays = layout.arrays_of(member)
        guessed = layout.guesses(path)
        if actions and "actions" not in arrays and "position" in arrays:
            arrays, guessed = {"position": arrays["position"]}, True
        return TrajectoryGroup(file, path, arrays, layout, member, guessed=guessed)

    def of_path(member: Member, path: str) -> TrajectoryGroup:
        stored = file.require(path)
        if member.end is not None and stored.shape[:1] < (layout.rows,):
            raise InputError(
                "too few rows",
                where=stored.where,
                expected=f"at least {layout.rows} rows, those of the trajectories",
                found=describe(stored.shape),
            )
        arrays = {common or path: member.rows_of(stored)}
        if common:  # several arrays, each of which holds all trajectories
            member = member._replace(name=f"{path}/{member.name}", group=path)
        return TrajectoryGroup(file, path, arrays, layout, member, named=True)

    groups, bad = dict[int, TrajectoryGroup](), list[tuple[int, Member, str, InputError]]()
    pairs = [(member, "") for member in below] or _named_arrays(file, members, name)
    flat = dict.fromkeys(path for member, path in pairs if path and not member.group)
    common = _common_name(file, list(flat))
    for k, (member, path) in enumerate(pairs):
        try:
            groups[k] = of_path(member, path) if path else of_member(member)
        except InputError as error:  # which is raised where the trajectory is used
            bad.append((k, member, path[len(member.group) :].strip("/"), error))
    for k, member, path, refusal in bad:
        like = next((group for group in groups.values() if path in ("", group.array_name)), None)
        if like is None:
            raise refusal
        groups[k] = like.standing_in(file, member, refusal.faults[0])
    return [groups[k] for k in sorted(groups)]


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
    paths = file.match(name)
    named = [(m, path) for path in paths for m in (owners(path) if groups else members)]
    if not named:
        raise InputError(file.missing(name))
    return named


def marked_faulty(groups: Sequence[TrajectoryGroup]) -> list[TrajectoryGroup]:
    """Returns the groups, with faults for those of several trajectories, by a layout or by numbers
    in their names, that have no rows or uncommon dofs."""
    patterns = Counter(_numberless(group) for group in groups)
    several = [g.member is not None or (g.single and patterns[_numberless(g)] > 2) for g in groups]
    filled = [group for group, one in zip(groups, several, strict=True) if one and group.shape[1]]
    checked = list(groups)
    counts = Counter((group.array_name, group.shape[2]) for group in filled)
    # of each array the first group with the dofs that most have
    filled.sort(key=lambda group: counts[group.array_name, group.shape[2]], reverse=True)
    usual = {group.array_name: group for group in reversed(filled)}
    for k, group in enumerate(groups):
        like = usual.get(group.array_name)
        if not several[k] or group.fault is not None or like is None:
            continue
        fault = next(dof_faults([like, group]), None)
        if not group.shape[1]:
            fault = Fault("a trajectory without rows", where=group.where, hint=LEAVE_OUT)
        if fault is not None:
            member = group.member or Member(group.name, group.group)
            checked[k] = like.standing_in(group.file, member, fault)
    return checked


def _numberless(group: TrajectoryGroup) -> tuple[str, str]:
    return str(group.file.path), re.sub(r"\d+", "*", f"{group.group}:{group.array_name}")


def _path(group: TrajectoryGroup) -> str:
    """Returns the path of the first array within its file."""
    return f"{group.group}/{group.array_name}".strip("/")


def _paths_of(group: TrajectoryGroup) -> list[str]:
    """Returns the paths of the arrays of a group, by their names in outputs."""
    return [f"{group.group}/{name}".strip("/") for name in group.arrays]


def refuse_control_points(groups: Sequence[TrajectoryGroup]) -> None:
    """Raises InputError for control points: their dt is the step of the curve that they make."""
    for group in groups:
        if group.of_actions and group.stated_mode[0] == "bspline":
            raise InputError(
                "control points of a B-spline, which have no times of their own",
                where=group.where,
                expected="rows of a trajectory",
                hint="trajcli integrate makes a trajectory of them",
            )
