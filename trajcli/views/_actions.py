"""Turns positions into delta or relative actions: the inverse of ``integrate --actions``."""

from __future__ import annotations

from collections.abc import Sequence

from trajcli.commands import Commands
from trajcli.errors import InputError, Note, UsageError
from trajcli.files.dofs import parse_dofs
from trajcli.files.quantities import ROTATIONS
from trajcli.files.recording import Array, Recording
from trajcli.views.recordings import find_quantities, first_labels, first_part

HELD_NOTE = Note("no row follows the last one of an episode, so its action stays there")


def select_positions(batch: Recording, others: Sequence[Recording]) -> Recording:
    """Selects the positions or orientations of trajectories, to make actions of.

    Raises InputError where nothing tells which array these are, for ``others`` of the same
    trajectories that have orientations, and for single rows.
    """
    path, turns = batch.file.path, [ROTATIONS[0]] if ROTATIONS[0] in batch.arrays else []
    names = turns if batch.holds_rotations else [find_quantities(batch)[0].get("position", "")]
    orientations = [other for other in others if ROTATIONS[0] in other.arrays]
    # An array that export wrote as actions states what kind of actions it has.
    exported = batch.is_output and "actions" in names and batch.companions.attribute("actions")[1]
    if orientations or exported or not any(names):
        raise InputError(
            "positions and orientations in two arrays" if orientations else "no positions",
            where=str(first_part(batch).where),
            expected="one array of positions or orientations, to make actions of",
            found=", ".join([*batch.arrays, *first_labels(orientations)]),
            hint=f"{path}:DATASET names it; trajcli inspect {path} lists its datasets",
        )
    if (single := batch.lengths < 2).any():
        where = batch.place_text(int(single.argmax()))
        raise InputError("fewer than two rows, so no action", where=where)
    batch.require_rotations()
    return batch.select_arrays(names)


def make_commands(batch: Recording, kind: str, absolute: str | None) -> Commands:
    """Describes what actions stand for, with ``absolute`` dofs; raises UsageError for rotations
    among these."""
    turning, names = [k for turn in batch.rotations for k in turn.dofs], batch.joint_names or ()
    dofs = parse_dofs(absolute, batch.shape[2], "--absolute", names).numbers if absolute else ()
    if not {*dofs}.isdisjoint(turning):
        what, hint = "a rotation among absolute dofs", "--rotation none takes them as dofs"
        raise UsageError(what, where="--absolute", found=str(batch.rotations[0]), hint=hint)
    return Commands(kind, dofs, turning)


def compute_actions(positions: Array, batch: Recording, commands: Commands, frame: str) -> Array:
    """Computes the actions [b, T - 1, D] that lead from the first of positions [b, T, D] in a batch
    to the others.

    Those of rotations are turns, in the world or the body ``frame``. Raises InputError for values
    that are no rotation.
    """
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
