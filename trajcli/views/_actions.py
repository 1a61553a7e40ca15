"""Turns positions into delta or relative actions: the inverse of ``integrate --actions``."""

from __future__ import annotations

from collections.abc import Sequence

from trajcli.commands import Commands
from trajcli.errors import InputError, Note, UsageError
from trajcli.files.dofs import parse_dofs
from trajcli.files.quantities import ROTATIONS
from trajcli.files.recording import Array, Recording
from trajcli.views.recordings import find_quantities, first_labels, first_part

HELD = Note("no row is behind the last of an episode, so that its action stays there")


def positions_alone(batch: Recording, beside: Sequence[Recording]) -> Recording:
    """Returns trajectories with their positions or orientations alone. Raises InputError where
    nothing says which array these are, for both in one file (``beside``), and for single rows."""
    path, turns = batch.file.path, [ROTATIONS[0]] if ROTATIONS[0] in batch.arrays else []
    names = turns if batch.of_rotations else [find_quantities(batch)[0].get("position", "")]
    other = [one for one in beside if ROTATIONS[0] in one.arrays]
    # an array that export wrote as actions, and says so
    made = batch.is_output and "actions" in names and batch.companions.attribute("actions")[1]
    if other or made or not any(names):
        raise InputError(
            "positions and orientations in two arrays" if other else "no positions",
            where=str(first_part(batch).where),
            expected="one array of positions or orientations, to make actions of",
            found=", ".join([*batch.arrays, *first_labels(other)]),
            hint=f"{path}:DATASET names it; trajcli inspect {path} lists what there is",
        )
    if (single := batch.lengths < 2).any():
        where = batch.place_text(int(single.argmax()))
        raise InputError("fewer than two rows, so no action", where=where)
    batch.require_rotations()
    return batch.select_arrays(names)


def commands_for(batch: Recording, kind: str, which: str | None) -> Commands:
    """Returns what actions stand for, with ``which`` dofs absolute. Raises UsageError for rotations
    among these."""
    turning, names = [k for turn in batch.rotations for k in turn.dofs], batch.joint_names or ()
    dofs = parse_dofs(which, batch.shape[2], "--absolute", names).numbers if which else ()
    if not {*dofs}.isdisjoint(turning):
        what, hint = "a rotation among absolute dofs", "--rotation none takes them as dofs"
        raise UsageError(what, where="--absolute", found=str(batch.rotations[0]), hint=hint)
    return Commands(kind, dofs, turning)


def actions_of(positions: Array, batch: Recording, commands: Commands, frame: str) -> Array:
    """Returns the actions [b, T - 1, D] that lead from the first of positions [b, T, D] in a batch
    to the others. Raises InputError for what is no rotation."""
    actions: Array = commands.from_positions(positions)
    if batch.rotations:
        from trajcli.rotations import decompose
        from trajcli.rotations.quaternions import from_quaternions, to_quaternions
    for turn in batch.rotations:
        dofs, where = list(turn.dofs), str(first_part(batch).where)
        values = to_quaternions(positions[..., dofs], turn.form, where)
        turns = decompose(values, kind=str(commands.actions), frame=frame)
        actions[..., dofs] = from_quaternions(turns, turn.form)
    return actions
