"""Describes and reads rotations: orientations and angular rates beside the other dofs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from trajcli.errors import InputError
from trajcli.files.dofs import RotationDofs
from trajcli.files.outputs import ROWS, Variable
from trajcli.files.quantities import QUANTITIES, ROTATIONS, UNITS_OF_ROTATIONS

SMOOTHED = {
    "bandlimit": {"long_name": "cutoff frequency", "units": "Hz"},
    "residual": {"long_name": "deviation of residuals", "units": "rad"},
}
"""What method smooth chooses for each axis, with its labels."""
if TYPE_CHECKING:
    from trajcli.inputs import Inputs
    from trajcli.rotations import RotationTrajectory

# By how much norms of quaternions in float32 may be off without a remark.
_ROUNDING = 1e-6


def rotation_variables(
    rotations: Sequence[RotationDofs], quantities: Sequence[str], dtype: str, frame: str
) -> Iterator[Variable]:
    """Describes orientations [trajectory, row, (rotation,) 4] and angular rates [..., 3] for the
    quantities that are written: orientation with position, angular_velocity with velocity, …"""
    several = ("rotation",) if len(rotations) > 1 else ()
    for order, (name, quantity) in enumerate(zip(ROTATIONS, QUANTITIES, strict=True)):
        if rotations and quantity in quantities:
            last = "axis" if order else "quaternion"
            labels = {"long_name": name.replace("_", " ")}
            labels |= (
                {"units": UNITS_OF_ROTATIONS[order], "frame": frame} if order else {"order": "wxyz"}
            )
            yield Variable(name, (*ROWS[:2], *several, last), np.dtype(dtype), labels)


def smoothed_variables(rotations: Sequence[RotationDofs]) -> Iterator[Variable]:
    """Describes what method smooth chose about each axis of each rotation."""
    dims = ("trajectory", *["rotation"] * (len(rotations) > 1), "axis")
    for name, labels in SMOOTHED.items():
        yield Variable(f"angular_{name}", dims, np.dtype("f8"), labels)


def rotation_sizes(rotations: Sequence[RotationDofs]) -> dict[str, int]:
    """Returns the sizes of the dimensions of :func:`rotation_variables`."""
    several = {"rotation": len(rotations)} if len(rotations) > 1 else {}
    return several | ({"quaternion": 4, "axis": 3} if rotations else {})


def rotation_attributes(rotations: Sequence[RotationDofs], frame: str) -> dict[str, Any]:
    """Returns the attributes of an output with these rotations."""
    several = {"rotations": len(rotations)} if len(rotations) > 1 else {}
    return {"rotation_order": "wxyz", "rotation_frame": frame, **several}


def integrated(
    inputs: Inputs, rotations: Sequence[RotationDofs], kind: str | None, frame: str
) -> RotationTrajectory:
    """Returns the orientations and rates that a block's actions lead to from its start.

    Actions are angular rates [b, H, 3] of modes that sum, else orientations: each of a row or, of
    kind "delta" or "relative", turns that are composed. Start positions are in the form of the
    actions, zero the identity; rates of composed orientations are differences of neighbours.
    """
    from trajcli.quaternions import from_quaternions, to_quaternions
    from trajcli.rotations import compose, differentiate, integrate
    from trajcli.trajectory import State

    def stacked(values: Any, form: bool = False) -> Any:
        columns = [np.asarray(values[..., list(of.dofs)], np.float64) for of in rotations]
        if form:
            columns = [
                to_quaternions(x, of.form, inputs.name("actions"), allow_nonfinite=inputs.trusted)
                for x, of in zip(columns, rotations, strict=True)
            ]
        return columns[0] if len(columns) == 1 else np.stack(columns, -2)

    index, mode = inputs.start_index, inputs.mode
    states = {
        part: values if index is None or len(values) == 1 else np.asarray(values)[np.asarray(index)]
        for part, values in inputs.start.items()
    }
    position = np.array(states["position"], np.float64)
    for dofs, form in ((list(of.dofs), of.form) for of in rotations):
        if not position[..., dofs].any():
            position[..., dofs] = from_quaternions(np.array([1.0, 0.0, 0.0, 0.0]), form)
    first, steps = stacked(position, form=True), inputs.steps
    if mode.derivatives_of:
        rates = {part: stacked(values) for part, values in states.items() if part != "position"}
        return integrate(
            stacked(inputs.actions), State(first, **rates), steps, mode.name,
            scheme=getattr(mode, "scheme", "euler"), frame=frame, allow_nonfinite=inputs.trusted,
        )  # fmt: skip
    turns = stacked(inputs.actions, form=True)
    if kind is None:
        first = np.broadcast_to(first, (len(turns), *first.shape[1:]))[:, None]
        rows = np.concatenate([first, turns], 1)
    else:
        rows = compose(turns, first, kind=kind, frame=frame)
    return differentiate(
        rows, dt=steps, method="backward", frame=frame, allow_nonfinite=inputs.trusted
    )


def orientations(
    values: Any,
    rotations: Sequence[RotationDofs],
    locate: Callable[[int], str],
    notes: list[str],
    allow_nonfinite: bool = False,
) -> Any:
    """Returns quaternions [b, T, 4] or [b, T, R, 4] from the dofs [b, T, D] that are rotations.

    locate: returns the place of the k-th trajectory, for errors and for the note on norms.
    """
    from trajcli.quaternions import to_quaternions

    columns = [(values[..., list(rotation.dofs)], rotation.form) for rotation in rotations]
    try:
        found = [to_quaternions(*each, allow_nonfinite=allow_nonfinite) for each in columns]
    except InputError:  # find the trajectory, so that the error names it
        for k in range(len(values)):
            for x, form in columns:
                to_quaternions(x[k], form, locate(k), allow_nonfinite=allow_nonfinite)
        raise
    for x, form in columns:
        off = abs(np.linalg.norm(x, axis=-1) - 1.0) if form in ("xyzw", "wxyz") else np.zeros(1)
        largest, remark = float(np.nanmax(off, initial=0.0)), "quaternions are normalised: norms"
        if largest > _ROUNDING and not any(remark in note for note in notes):
            notes.append(f"{locate(0)}: {remark} are off by {largest:.1g}")
    return found[0] if len(found) == 1 else np.stack(found, 2)
