"""What is taken for trajectories and for their times where neither the user nor the usual names say
it. Callers report the guess. And what may have been meant where nothing can be taken."""

from __future__ import annotations

import difflib
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from trajcli.errors import Fault, InputError
from trajcli.files.arrays import ArrayFile, Dataset, candidates
from trajcli.files.conversion import as_batch, stated_unit
from trajcli.files.schema import QUANTITIES
from trajcli.files.stored_time import STAMPS, read_time
from trajcli.files.time import Time
from trajcli.units import parse_units

if TYPE_CHECKING:
    from trajcli.files.trajectory_group import TrajectoryGroup

STATES = ("start", "goal", "grad")
"""Groups that hold states or gradients, not trajectories."""
POSITIONS = ("position", "qpos", "q", "joint_positions", "joint_position", "joint_pos", "actual_q",
             "arr_0")  # fmt: skip
"""What arrays of positions are called, too; the first of these is taken where nothing is named."""
_STAMPS = ("timestamps", "timestamp", "stamps", "stamp", "t")
"""What time stamps are called, too."""


def likely_arrays(file: ArrayFile, prefix: str) -> list[str]:
    """The arrays that by their name, or as the only ones of numbers, are trajectories.

    Raises InputError with what there is instead, likely ones first.
    """
    # below #refs# MATLAB keeps what its cells hold
    paths = [p for p in file.names() if p.startswith(prefix) and not p.startswith("#")]
    named: dict[str, list[str]] = {}
    unread: dict[str, InputError] = {}
    for path in paths:
        group, _, last = path.rpartition("/")
        state = group.rpartition("/")[2] in STATES or last.startswith(("start_", "goal_"))
        try:
            stored = None if state else file.get(path)
        except InputError as error:  # as MATLAB's cells; what is not meant may be anything
            unread.setdefault(last if last in POSITIONS else "", error)
            continue
        if stored and stored.dtype.kind == "f":
            if last in QUANTITIES:
                as_batch(stored)  # raises why it is no trajectory
            if stored.ndim in (2, 3):
                named.setdefault(last, []).append(path)
    taken = next((name for name in POSITIONS if name in {*named, *unread}), None)
    if taken is None:  # the only one, or the only one in a unit of positions
        placed = [name for name in named if _of_positions(file, named[name][0])]
        taken = next(iter(placed if len(named) > 1 else named), None) if len(placed) < 2 else None
    if taken in unread:
        raise unread[taken]
    if taken is not None:
        return named[taken]
    if unread and not named:
        raise next(iter(unread.values()))
    likely = [path for paths in named.values() for path in paths]
    raise InputError(
        "no trajectories found",
        where=str(file.path),
        expected=f"datasets called actions, {', '.join(QUANTITIES)}: [B, T, D] or [T, D]",
        found=candidates([*likely, *(path for path in paths if path not in likely)], file.get),
        hint=f"name one as {file.path}:{likely[0] if likely else 'DATASET'}",
    )


def _of_positions(file: ArrayFile, path: str) -> bool:
    """Whether an array says that it is in a unit of positions, not of their derivatives."""
    units = parse_units(stated_unit(file.require(path)))
    return units is not None and all(unit.order == 0 for unit in units)


def likely_time(one: TrajectoryGroup) -> Time | None:
    """Increasing numbers, one for each row, that by their name are time stamps."""
    for name in _STAMPS:
        with suppress(InputError):
            stored = one.companion(name)
            if stored is None:
                continue
            time = read_time(stored, True, one.given.time, one.lengths)
            time = time.fitted(*one.shape[:2], one.of_actions, one.lengths)
            if time.fits and not time.faults(0, 1):
                return replace(time, source=f"{time.source}, by its name")
    return None


def require_time(time: Time | None, where: str, one: TrajectoryGroup | None = None) -> Time:
    """The time itself, of a set where there is one; raises InputError where it is None."""
    if time is None:
        raise InputError(no_time(one, where))
    return time


def no_time(one: TrajectoryGroup | None, where: str) -> Fault:
    """The fault of trajectories without times: where to get them, or what may be them."""
    layout, near = (None, []) if one is None else (one.layout, _near_times(one))
    found = "none given, and none in the input" + (f" (layout {layout.name})" if layout else "")
    hint = (layout.dt_hint if layout else "") or "--dt SECONDS, --rate HZ or --times FILE:DATASET"
    if near:
        hint = f"--times {near[0]}, if these are times; else {hint}"
    return Fault(
        "no time step",
        where=where,
        expected="a step in seconds, a rate, or time stamps",
        found=found,
        hint=hint,
    )


def _near_times(one: TrajectoryGroup) -> list[str]:
    """Datasets beside the trajectories that are called nearly as time stamps are."""
    near: list[str] = []
    for group in one.groups:
        for name in one.file.children(group)[:100]:
            words = (*STAMPS, *_STAMPS[:-1])
            path, close = f"{group}{name}", difflib.get_close_matches(name.lower(), words, 1, 0.7)
            if close and isinstance(one.file.get(path), Dataset):
                near.append(f"{one.file.path}:{path}")
    return near
