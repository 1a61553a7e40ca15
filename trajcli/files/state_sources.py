"""Finds start and goal states: named by an option, or next to the trajectories."""

from __future__ import annotations

import math
import os
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from trajcli.errors import InputError, UsageError, wrong_shape
from trajcli.files.catalogue import Catalogue, Dataset, Values, load_array, stack_arrays
from trajcli.files.conversion import convert_to_si, divide, join_axes, read_unit
from trajcli.files.dofs import RotationDofs, named_rotations, pick_dofs
from trajcli.files.opening import Files
from trajcli.files.quantities import QUANTITIES, RECORDED_ROW, ROTATIONS
from trajcli.files.reader import read_recordings
from trajcli.files.reading import Reading, parse_floats
from trajcli.files.recording import NO_STATE, Recording, States, load_small, without_rotations
from trajcli.files.source import Place, expand_files, parse_source
from trajcli.units import (
    InputUnits,
    Units,
    derivative_units,
    parse_units,
    per_si,
    require_convertible_units,
    require_dof_units,
    unit_text,
)

# An orientation stands for positions, an angular velocity for velocities, and so on.
_PAIRS = tuple(zip(ROTATIONS, QUANTITIES, strict=True))


def state_from_option(
    files: Files, role: str, text: str, group: Recording, words: str = ""
) -> States:
    """Reads the state that --start or --goal names: zero, numbers, FILE[:GROUP] or FILE:DATASET.

    It has the dofs of a group, and its units unless it states others. For --start, a DATASET of
    several trajectories gives their first rows. words: words that the command itself takes.
    """
    numbers = parse_floats(text)
    if text == "zero" or numbers is not None:
        values = np.zeros(group.shape[2]) if numbers is None else np.array(numbers)
        state = _state(role, {"position": values}, Place(remark=text), group)
        # zeros are the same in every unit, so that none is named
        return state if values.any() else replace(state, sources=[Place(remark=text)])
    # a single word without . : or / is more likely a misspelled value than a missing file
    if not set(".:/") & set(text) and not os.path.exists(text):
        first = text == "first" and not words
        raise UsageError(
            "neither a value nor a file",
            where=f"--{role}",
            expected=f"{words}zero, numbers like 0,0.1, FILE[:GROUP] or FILE:DATASET",
            found=text,
            hint="trajcli differentiate takes recorded positions" if first else "",
        )
    # a folder or glob can only mean recorded trajectories, one start for each
    source = parse_source(text)
    if expand_files(source) != [source]:
        return _first_rows(files, role, text, group)
    file = files.open(source.path)
    if file.is_output:  # its states are in SI, whatever the units of the group
        group = replace(group, units={}, option_units=InputUnits())
    name = (source.dataset or "").strip("/")
    stored = file.get(name) if name or file.family == "npy" else None
    layout = files.layout(file) if name else None
    laid_out = layout and layout.split.members and name.startswith(layout.family.groups)
    layout_rows = layout.split.rows if layout and laid_out else None
    # arrays of a layout, and any other [B, T, D] than the actions, hold rows and not states
    table = stored and stored.ndim == 3 and stored.where != group.as_stored.where
    recorded = table and not group.turning and role == "start"
    if recorded or (stored and stored.ndim == 2 and layout_rows in (0, stored.shape[0])):
        return _first_rows(files, role, text, group)
    if stored is not None:
        state = _state(role, {"position": files.dataset(text)}, source.place, group)
        folder = "" if file.family == "npy" else name[: name.rfind("/") + 1]
        return _with_stored_index(state, role, file, folder)
    # start/position and start_position, in the group that is named or in one called start
    prefixes = (f"{name}/", f"{name}_", f"{name}/{role}/", f"{name}/{role}_")
    for prefix in prefixes if name else (f"{role}/", f"{role}_", ""):
        parts = _parts(group, lambda *names: next(filter(None, map(file.get, names)), None), prefix)
        if parts["position"] is not None:
            dofs = source.dofs
            numeric = {k: x and pick_dofs(x.require_numeric(), dofs) for k, x in parts.items()}
            state = _state(role, numeric, source.place, group)
            return _with_stored_index(state, role, file, prefix)
    layout = group.layout if group.member and file.path == group.file.path else None
    absent = layout and group.member and "*" not in name and not layout.array(group.member, [name])
    if name and not absent and not file.has_group(name):
        return _first_rows(files, role, text, group)
    # the hint names one array that may be meant: recorded positions, or one of a state's size
    fault, names = file.missing(name or f"{role}/position"), file.names()
    sizes = (group.shape[2], 4 * len(_turning(group)))
    if layout and group.member:
        names = layout.position_names(group.member)[: role == "start"]
    elif len(names) != 1 or math.prod(file.require(names[0]).shape) not in sizes:
        names = []
    hint = f"{file.shell_name(names[0])}, if it is meant" if names else fault.hint
    raise InputError(replace(fault, hint=hint))


def _first_rows(files: Files, role: str, text: str, group: Recording) -> States:
    """Reads the first row of every trajectory that FILE:DATASET names, as SOURCE would."""
    source = parse_source(text)
    reading = Reading(layout=files.reading.layout, filter_key=files.reading.filter_key)
    recorded = read_recordings(files.with_reading(reading), [text], as_stored=True)
    if role == "goal" or not all(x.named or x.file.family == "npy" for x in recorded):
        raise InputError(recorded[0].file.missing(source.dataset or f"{role}/position"))
    if recorded[0].file.is_output:
        group = replace(group, units={}, option_units=InputUnits())
    rows = stack_arrays([each.input.select(range(len(each)), range(1)) for each in recorded])
    states = replace(
        rows, where=source.place, shape=(rows.shape[0], rows.shape[2]),
        reader=lambda *run: rows.read_rows(*run)[:, 0], attributes=recorded[0].input.attributes,
    )  # fmt: skip
    remark = RECORDED_ROW if rows.shape[0] > 1 else "first row, for all"
    return _state(role, {"position": states}, source.place.with_remark(f": {remark}"), group)


def _with_stored_index(state: States, role: str, file: Catalogue, prefix: str) -> States:
    """Adds the index that the file holds next to a state, such as goal_index next to goal/."""
    index = file.get(re.sub(f"(^|/){role}[/_]$", r"\1", prefix) + f"{role}_index")
    return state if index is None else state.with_index(role, index)


def stored_state(role: str, group: Recording) -> States:
    """Reads the state and its index next to the trajectories of a group.

    Without one, the start is the recorded state before the first command of a layout.
    """
    parts = _parts(group, group.companions.dataset, f"{role}/", f"{role}_")
    if (position := parts["position"]) is not None:
        where = position.where
        source = replace(where, name=re.sub(r"/(?:position|orientation\w*)$", "", where.name))
        state = _state(role, parts, source, group)
        index = group.companions.dataset(f"{role}_index")
        return state if index is None else state.with_index(role, index)
    if role != "start" or group.layout is None or group.member is None or not group.commands:
        return NO_STATE
    # a family lists pairs of positions and velocities, the surest first; velocities may be absent
    for pair in group.layout.family.start:
        first_rows: dict[str, Dataset] = {}
        for part, name in zip(("position", "velocity"), pair, strict=True):
            array = group.layout.array(group.member, [name])
            if not array or group.pick(array).shape[1:] != group.shape[2:] or not array.shape[0]:
                break
            # the first recorded row, seen as one state
            first_rows[part] = replace(array.require_numeric(), shape=(1, *array.shape[1:]))
        if first_rows:
            read = ", ".join(pair[: len(first_rows)])
            source = group.file.place().with_remark(f": {RECORDED_ROW} {read}")
            return _state("start", first_rows, source, group)
    return NO_STATE


def _parts(
    group: Recording, get: Callable[..., Dataset | None], *prefixes: str
) -> dict[str, Dataset | None]:
    """Finds the parts of a state; where all dofs turn, names like orientation come first."""
    parts = dict[str, Dataset | None]()
    for turn, part in _PAIRS:
        names = (turn, f"{turn}_wxyz", f"{turn}_xyzw", part) if _turning(group) else (part,)
        parts[part] = get(*(prefix + name for name in names for prefix in prefixes))
    return parts


def _turning(group: Recording) -> Sequence[RotationDofs]:
    """Lists the rotations of a group all of whose dofs are rotations or their rates; else none."""
    return group.turning if sum(turn.width for turn in group.turning) == group.shape[2] else ()


def _state(
    role: str, stored: Mapping[str, Values | None], source: Place, group: Recording
) -> States:
    """Prepares states [D] or [S, D] in SI with the dofs of a group; large ones stay in files."""
    parts, names, dofs = dict[str, Values](), dict[str, str](), group.shape[2]
    for part, values in stored.items():
        if values is None:
            continue
        where: Place = getattr(values, "where", Place(remark=f"--{role}"))
        names[f"{role}/{part}"] = str(where)
        if isinstance(values, Dataset):
            values = join_axes(values, len(group.turning))
        if len(values.shape) not in (1, 2):
            what = "wrong number of dimensions"
            raise InputError(wrong_shape(where, "[B, D] or [D]", values.shape, what=what))
        # before dofs are picked and counted: four numbers of a quaternion may become three
        turned = _convert_quaternions(group, values, where) if part == "position" else None
        values = group.pick(values) if turned is None else turned
        count, dataset = values.shape[-1], values if isinstance(values, Dataset) else None
        if count != dofs:
            what, found = f"{role} and actions differ in their dofs (D)", f"D = {count}"
            expected, hint = f"D = {dofs}, as in {group.input.where}", ""
            if dataset is not None and dofs > 1:
                name = f"{where.path}:{where.name.removesuffix(f'/{part}')}[:{dofs}]"
                first = f"{shlex.quote(name)} takes the first {dofs}"
                hint = first if count > dofs else f"--dofs 0:{count} takes as many"
            raise InputError(what, where=where, expected=expected, found=found, hint=hint)
        # numbers of a quaternion have no unit
        units = state_units(group, part, dataset) if turned is None else None
        if units is not None:
            by = per_si(units)
            if (by != 1.0).any():
                values = convert_to_si(dataset, units) if dataset else divide(values, by)
                if part == "position":
                    source = source.with_remark(f", in {unit_text(units)}")
        parts[part] = load_small(values)
    return States(parts, names, [source])


def state_units(group: Recording, part: str, stored: Dataset | None) -> Units | None:
    """Finds the units of a state: on the command line, in its dataset, else those of the arrays."""
    group_units, text = group.position_units, "" if stored is None else read_unit(stored)
    units = parse_units(text) if text and not group.option_units.positions else group_units
    if units is None:
        return None
    where = part if stored is None else stored.where
    count = group.shape[2]
    units = without_rotations(group.turning, require_dof_units(units, count, where), count)
    if group_units is not None and len(group_units) in (1, len(units)):
        require_convertible_units([(group.as_stored.where, group_units), (where, units)])
    return derivative_units(units, QUANTITIES.index(part))


def _convert_quaternions(group: Recording, values: Values, where: Place) -> Values | None:
    """Converts quaternions to the form of a group whose dofs all turn; None for any other values.

    Their order is that of their columns, name or attribute, else w, x, y, z. Four numbers are in
    the form of actions that are quaternions, unless something else says their order.
    """
    turning, width, order = _turning(group), values.shape[-1], ""
    count, dofs = len(turning), group.shape[2]
    if isinstance(values, Dataset):
        text = f"{values.where.name} {values.attributes.get('order')}".lower()
        order = next((order for order in ("xyzw", "wxyz") if order in text), "")
        about = values.attributes
        named = next((about[k] for k in ("joint_names", "names", "columns") if k in about), "")
        names = [f"q_{x.strip()}" for x in ",".join(map(str, np.ravel(named))).split(",")]
        if len(names) == width == 4 * count:
            # columns q_x, q_y, … in any order are sorted into one that is known
            known = named_rotations("", names, width, "", order or "wxyz", str(where))
            if len(ordered := [dof for turn in known for dof in turn.dofs]) == width:
                values, order = load_array(values)[..., ordered], known[0].form
    if not turning or width != 4 * count or (dofs == width and not order):
        # three numbers called orientation are rotation vectors, or roll, pitch and yaw
        if turning and where.name.endswith(ROTATIONS[0]) and (width != dofs or width == 3 * count):
            expected, what = f"[B, {4 * count}]: w, x, y, z", "not quaternions"
            raise InputError(wrong_shape(where, expected, values.shape, what=what))
        return None
    from trajcli.rotations.quaternions import from_quaternions, to_quaternions

    read = load_array(values)
    read = read.reshape(*read.shape[:-1], count, 4)
    quaternions = to_quaternions(read, order or "wxyz", str(where))
    turned = np.empty((*read.shape[:-2], dofs))
    for k, turn in enumerate(turning):
        turned[..., list(turn.dofs)] = from_quaternions(quaternions[..., k, :], turn.form)
    return turned
