"""Finds the arrays that are trajectories where no name or layout says which are."""

from __future__ import annotations

import math
import shlex

from trajcli.errors import InputError
from trajcli.files._episodes import BESIDE
from trajcli.files.catalogue import Catalogue, candidates, unlikeness
from trajcli.files.conversion import as_batch, stated_unit
from trajcli.files.quantities import POSITIONS, QUANTITIES, STATES, role
from trajcli.units import parse_units


class NoTrajectories(InputError):
    """A file without arrays that are trajectories by their names, or as the only ones."""


def likely_arrays(file: Catalogue, prefix: str) -> list[str]:
    """Returns the arrays that are trajectories by their name, or as the only ones that may be.

    Callers report the guess. Raises InputError with what there is instead, likely arrays first.
    """
    # below #refs# MATLAB keeps what its cells hold
    paths = [p for p in file.names() if p.startswith(prefix) and not p.startswith("#")]
    named: dict[str, list[str]] = {}
    ranks: dict[str, tuple[int, ...]] = {}
    unread: dict[str, InputError] = {}
    for path in paths:
        group, _, last = path.rpartition("/")
        state = group.rpartition("/")[2] in STATES or last.startswith(("start_", "goal_"))
        try:
            stored = None if state else file.get(path)
        except InputError as error:  # as MATLAB's cells; what is not meant may be anything
            unread.setdefault(last if last in POSITIONS else "", error)
            continue
        line = stored is not None and math.prod(stored.shape) == max(stored.shape, default=1)
        if state or (line and (last.lower() in BESIDE or role(last))):
            continue
        ranks[path] = unlikeness(path, stored)
        if stored and stored.dtype.kind == "f" and math.prod(stored.shape) != 1:
            if last in QUANTITIES:
                as_batch(stored)  # raises why it is no trajectory
            if stored.ndim in (2, 3) and not (role(last) and stored.shape[-1] == 1):
                named.setdefault(last, []).append(path)
    taken = next((name for name in POSITIONS if name in {*named, *unread}), None)
    if taken is None:  # the only motion, the only one in a unit of positions, or beside rates
        ranked = {name: ranks[named[name][0]] for name in named}
        motions = [name for name, (nothing, *_) in ranked.items() if not nothing] or [*named]
        placed = [name for name in motions if _of_positions(file, named[name][0])]
        beside = [] if placed else [name for name in motions if ranked[name][-2] < 2]
        beside = beside if [ranked[name][-2] for name in beside] == [0] else []
        taken = next((ways[0] for ways in (motions, placed, beside) if len(ways) == 1), None)
    if taken in unread:
        raise unread[taken]
    if taken is not None:
        return named[taken]
    if unread and not named:
        raise next(iter(unread.values()))
    likely = min(ranks, key=ranks.__getitem__, default="")
    found, hint = candidates(paths, file.get), f"name one as {file.typed(likely)}"
    if not likely or ranks[likely][0] == 2:
        hint = f"trajcli inspect {shlex.quote(str(file.path))} lists what it holds"
    expected = f"datasets called actions, {', '.join(QUANTITIES)}: [B, T, D] or [T, D]"
    where, what = str(file.path), "no trajectories found"
    raise NoTrajectories(what, where=where, expected=expected, found=found, hint=hint)


def _of_positions(file: Catalogue, path: str) -> bool:
    """Whether an array says that it is in a unit of positions, not of their derivatives."""
    units = parse_units(stated_unit(file.require(path)))
    return units is not None and all(unit.order == 0 for unit in units)
