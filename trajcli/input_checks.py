"""Checks of inputs: faults of shapes and dt, and of values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from trajcli.arrays import columns, is_torch, to_numpy
from trajcli.checks import (
    describe,
    located,
    nonfinite_fault,
    place,
    time_stamp_faults,
    time_stamp_shape_faults,
)
from trajcli.errors import Fault
from trajcli.modes.mode import Case

if TYPE_CHECKING:
    from trajcli.inputs import Inputs

Array = Any


def shape_faults(inputs: Inputs, steps: bool = True) -> list[Fault]:
    """Faults of shapes, of missing inputs, and of dt and indices that are in memory.

    steps: False leaves the values of dt and of time stamps to :func:`value_faults`.
    """
    shape = tuple(inputs.actions.shape)
    where = inputs.name("actions")
    if len(shape) != 3:
        what, expected = "wrong number of dimensions", "[B, H, D], or [H, D] for one trajectory"
        return [Fault(what, where, expected, describe(shape))]
    if shape[1] < 1 or shape[2] < 1:
        return [Fault("no actions", where, "H >= 1 and D >= 1", describe(shape))]
    faults = _step_shape_faults(inputs)
    if steps and not faults:
        faults = _step_value_faults(inputs)
    faults += _state_faults(inputs, "start")
    faults += _state_faults(inputs, "goal")
    case = Case(
        horizon=shape[1],
        start=frozenset(inputs.start),
        goal=frozenset(inputs.goal),
        recorded=inputs.recorded,
        steps_vary=inputs.uneven or inputs.times is not None,
    )
    return faults + inputs.mode.faults(case)


def value_faults(inputs: Inputs, allow_nonfinite: bool) -> list[Fault]:
    """Faults of the values of a block whose shapes are right."""
    faults = _step_value_faults(inputs)
    for role in ("start", "goal"):
        index = getattr(inputs, f"{role}_index")
        if index is not None:
            counts = [int(values.shape[0]) for values in getattr(inputs, role).values()]
            faults += _index_faults(inputs, role, index, max(counts, default=1))
    return faults if allow_nonfinite else faults + nonfinite_faults(inputs)


def nonfinite_faults(inputs: Inputs) -> list[Fault]:
    """NaN and Inf in the actions and states that are used, each with its first place."""
    axes = ("trajectory", "step", "dof")
    shift, rows = inputs.first_trajectory, inputs.row_numbers
    program = inputs.program()
    faults = []
    if inputs.can_check(inputs.actions):
        used = columns(inputs.actions, 0, program.used)
        faults.append(nonfinite_fault(used, inputs.name("actions"), axes, shift, rows))
    for role in program.roles:
        index = getattr(inputs, f"{role}_index")
        for part, values in getattr(inputs, role).items():
            if not inputs.can_check(values) or not (index is None or inputs.can_check(index)):
                continue
            count = int(values.shape[0])
            axis = "trajectory" if index is None and count != 1 else "state"
            named = values if index is None or count == 1 else _without_unnamed(values, index)
            where = inputs.name(f"{role}/{part}")
            faults.append(nonfinite_fault(named, where, (axis, "dof"), shift))
    return [fault for fault in faults if fault is not None]


def _without_unnamed(states: Array, index: Array) -> Array:
    """The states [S, D]; those that no entry of the index names are zero."""
    unnamed = np.setdiff1d(np.arange(states.shape[0]), to_numpy(index))
    if not len(unnamed):
        return states
    states = states.detach().clone() if is_torch(states) else states.copy()
    states[unnamed] = 0
    return states


def _step_shape_faults(inputs: Inputs) -> list[Fault]:
    batch, steps = int(inputs.actions.shape[0]), inputs.intervals
    if inputs.times is not None:
        where = inputs.name("times")
        if inputs.dt is not None:
            return [Fault("both dt and times", where, "one of them", "both")]
        return time_stamp_shape_faults(inputs.times.shape, batch, steps + 1, where)
    if inputs.dt is None:
        what, expected = "no time step", "a step in seconds, a rate, or time stamps"
        hint = "--dt SECONDS, --rate HZ or --times FILE:DATASET"
        return [Fault(what, "dt", expected, "none given, and none in the input", hint)]
    shape = tuple(inputs.dt.shape)
    counts = [steps, steps + 1] if inputs.recorded else [steps]
    allowed = [(), *((n,) for n in counts), (batch, 1), *((batch, n) for n in counts)]
    if shape in allowed or shape in ((1,), (1, 1), *((1, n) for n in counts)):
        return []
    expected = " or ".join(dict.fromkeys(map(describe, allowed)))
    hint = "one dt per trajectory has shape [B, 1]" if shape == (batch,) else ""
    return [Fault("wrong shape", inputs.name("dt"), expected, describe(shape), hint)]


def _step_value_faults(inputs: Inputs) -> list[Fault]:
    """Steps that are not positive, stamps that do not increase, if they are in memory."""
    if not inputs.can_check(inputs.dt if inputs.times is None else inputs.times):
        return []
    shift = inputs.first_trajectory
    if inputs.times is not None:
        return time_stamp_faults(inputs.times, inputs.name("times"), shift, inputs.row_numbers)
    values = to_numpy(inputs.used_dt())
    if values.min(initial=1.0) > 0.0 and values.max(initial=1.0) < np.inf:  # false for NaN
        return []
    wrong = np.argwhere(~(np.isfinite(values) & (values > 0)))
    if not len(wrong):
        return []
    first = wrong[0] + (0, inputs.unused_steps())
    spot = place(("trajectory", "step"), first, values.shape, shift)
    step = repr(float(values[tuple(wrong[0])]))
    step += f" ({len(wrong)} such entries)" if len(wrong) > 1 else ""
    what, where = "a step that is not positive and finite", located(inputs.name("dt"), spot)
    return [Fault(what, where, "dt > 0, in seconds", step)]


def _state_faults(inputs: Inputs, role: str) -> list[Fault]:
    """Faults of the start or goal state by shape."""
    parts: Mapping[str, Array] = getattr(inputs, role)
    index: Array | None = getattr(inputs, f"{role}_index")
    faults = [
        fault
        for part, values in parts.items()
        for fault in _part_faults(inputs, role, part, tuple(values.shape), index is not None)
    ]
    counts = {int(v.shape[0]) for v in parts.values() if v.ndim == 2 and v.shape[0] != 1}
    if index is None:
        return faults
    faults += _index_faults(inputs, role, index, max(counts, default=1))
    if not parts:
        faults.append(Fault(f"a {role} index without a {role} state", inputs.name(role)))
    if len(counts) > 1:
        what = f"parts of the {role} state differ in number"
        faults.append(Fault(what, inputs.name(role), "one number of states", str(sorted(counts))))
    return faults


def _part_faults(
    inputs: Inputs, role: str, part: str, shape: tuple[int, ...], indexed: bool
) -> list[Fault]:
    batch, _, dofs = (int(n) for n in inputs.actions.shape)
    where = inputs.name(f"{role}/{part}")
    if len(shape) != 2:
        return [Fault("wrong number of dimensions", where, "[B, D] or [D]", describe(shape))]
    if shape[1] != dofs:
        what, expected = f"{role} and actions differ in their dofs (D)", inputs.name("actions")
        actual = f"D = {shape[1]}, shape {describe(shape)}"
        return [Fault(what, where, f"D = {dofs}, as in {expected}", actual)]
    fits = indexed or shape[0] in (1, batch)
    return [] if fits else [state_count_fault(role, where, batch, shape)]


def state_count_fault(role: str, where: str, batch: int, shape: Sequence[int]) -> Fault:
    """The fault of states [S, D] where S is neither the number of trajectories nor 1."""
    what = f"{role} states and trajectories differ in number (B)"
    expected = f"[{batch}, {shape[1]}], or one for all: [{shape[1]}]"
    hint = f"a {role} index [B] selects a state per trajectory"
    return Fault(what, where, expected, describe(shape), hint)


def index_shape_faults(where: str, batch: int, index: Array) -> list[Fault]:
    """The fault of an index of states that is not whole numbers, one for each trajectory."""
    kind = str(index.dtype).removeprefix("torch.")
    if tuple(index.shape) == (batch,) and "int" in kind:
        return []
    actual = f"{kind} {describe(index.shape)}"
    return [Fault("wrong shape or type", where, f"integers [{batch}]", actual)]


def _index_faults(inputs: Inputs, role: str, index: Array, count: int) -> list[Fault]:
    where = inputs.name(f"{role}_index")
    faults = index_shape_faults(where, int(inputs.actions.shape[0]), index)
    if faults or not inputs.can_check(index):
        return faults
    values = to_numpy(index)
    wrong = np.flatnonzero((values < 0) | (values >= count))
    if not len(wrong):
        return []
    b = int(wrong[0])
    where = f"{where}, trajectory {inputs.first_trajectory + b}"
    expected = f"0 to {count - 1} (there are {count} {role} states)"
    return [Fault("index out of range", where, expected, str(int(values[b])))]
