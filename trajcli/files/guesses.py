"""Guesses which arrays of a file are trajectories, where neither SOURCE nor the usual names say it.

Callers report the guess.
"""

from __future__ import annotations

import re

from trajcli.errors import InputError
from trajcli.files.arrays import ArrayFile, candidates
from trajcli.files.conversion import as_batch, stated_unit
from trajcli.files.quantities import QUANTITIES
from trajcli.units import parse_units

STATES = ("start", "goal", "grad")
"""Groups that hold states or gradients, not trajectories."""
POSITIONS = ("position", "qpos", "q", "joint_positions", "joint_position", "joint_pos", "actual_q",
             "arr_0")  # fmt: skip
"""Other names of positions; the first of these is taken where nothing is named."""
_RATES = {"velocity": "vel|twist|gyro|(?:^|_)(?:qd|dq)(?:$|_)",
          "acceleration": "acc|(?:^|_)(?:qdd|ddq)(?:$|_)", "jerk": "jerk"}  # fmt: skip
"""What arrays of derivatives of positions are called, by quantity."""


def named_rate(name: str) -> str:
    """Returns the derivative that an array is by its name, velocity to jerk; "" for others."""
    return next((rate for rate, words in _RATES.items() if re.search(words, name.lower())), "")


def likely_arrays(file: ArrayFile, prefix: str) -> list[str]:
    """Returns the arrays that are trajectories by their name, or as the only ones of numbers.

    Raises InputError with what there is instead, likely arrays first.
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
