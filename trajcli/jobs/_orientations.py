"""Orientations and angular rates of a block: of actions that turn, and of recorded rotations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from trajcli.errors import InputError, Report
from trajcli.files.dofs import RotationDofs
from trajcli.inputs import Inputs
from trajcli.mode_options import CURVE

if TYPE_CHECKING:
    from trajcli.rotations import RotationTrajectory

# By how much norms of quaternions in float32 may be off without a remark.
_ROUNDING = 1e-6


def integrate_orientations(
    inputs: Inputs, rotations: Sequence[RotationDofs], kind: str | None, frame: str
) -> RotationTrajectory:
    """Integrates a block's actions from its start; returns orientations and rates.

    Actions are angular rates [b, H, 3] of modes that sum. In other modes they are orientations, one
    for each row or, of kind "delta" or "relative", turns that are composed.
    """
    from trajcli.rotations import compose, differentiate, integrate
    from trajcli.rotations.quaternions import from_quaternions, to_quaternions
    from trajcli.trajectory import State

    lenient = inputs.allow_nonfinite

    def pick(values: Any, quaternions: bool = False) -> Any:
        """Picks the dofs of rotations, [..., 3 or 4] or, of several, [..., R, 3 or 4]."""
        columns: list[Any] = [np.asarray(values[..., list(r.dofs)], np.float64) for r in rotations]
        if quaternions:
            name = inputs.name("actions")
            columns = [
                to_quaternions(x, r.form, name, allow_nonfinite=lenient)
                for x, r in zip(columns, rotations, strict=True)
            ]
        return columns[0] if len(columns) == 1 else np.stack(columns, -2)

    # start states of their own for each trajectory, where they share a table
    index, mode = inputs.start_index, inputs.mode
    states = {
        part: values if index is None or len(values) == 1 else np.asarray(values)[np.asarray(index)]
        for part, values in inputs.start.items()
    }
    # a start of zeros is the identity, which in some forms is not all zeros
    position = np.array(states["position"], np.float64)
    for dofs, form in ((list(r.dofs), r.form) for r in rotations):
        if not position[..., dofs].any():
            position[..., dofs] = from_quaternions(np.array([1.0, 0.0, 0.0, 0.0]), form)
    first, steps = pick(position, quaternions=True), inputs.steps
    if mode.action_order:
        rates = {part: pick(values) for part, values in states.items() if part != "position"}
        curve: Any = {x.name: getattr(mode, x.name) for x in CURVE if x.name in mode.option_names()}
        return integrate(
            pick(inputs.actions), State(first, **rates), steps, mode.name, frame=frame,
            allow_nonfinite=lenient, **curve,
        )  # fmt: skip
    turns = pick(inputs.actions, quaternions=True)
    # orientations follow the start; turns are composed with it
    if kind is not None:
        rows = compose(turns, first, kind=kind, frame=frame)
    else:
        first = np.broadcast_to(first, (len(turns), *first.shape[1:]))[:, None]
        rows = np.concatenate([first, turns], 1)
    return differentiate(rows, dt=steps, method="backward", frame=frame, allow_nonfinite=lenient)


def read_orientations(
    values: Any,
    rotations: Sequence[RotationDofs],
    locate: Callable[[int], str],
    report: Report,
    allow_nonfinite: bool = False,
) -> Any:
    """Reads quaternions [b, T, 4] or [b, T, R, 4] from the dofs [b, T, D] that are rotations."""
    from trajcli.rotations.quaternions import to_quaternions

    columns = [(values[..., list(rotation.dofs)], rotation.form) for rotation in rotations]
    try:
        q = [to_quaternions(x, form, allow_nonfinite=allow_nonfinite) for x, form in columns]
    except InputError:  # find the trajectory, so that the error names it
        for k in range(len(values)):
            for x, form in columns:
                to_quaternions(x[k], form, locate(k), allow_nonfinite=allow_nonfinite)
        raise
    # a norm far from 1 may be no quaternion at all; the first rotation to show it is enough
    for x, form in columns:
        off = abs(np.linalg.norm(x, axis=-1) - 1.0) if form in ("xyzw", "wxyz") else np.zeros(1)
        largest, remark = float(np.nanmax(off, initial=0.0)), "quaternions are normalised: norms"
        if largest > _ROUNDING and not any(remark in note for note in report.notes):
            report.add_notes(f"{locate(0)}: {remark} are off by {largest:.1g}")
    return q[0] if len(q) == 1 else np.stack(q, 2)
