"""Checks arrays and inputs, returns faults, and words shapes and places."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from trajcli.arrays import columns, differences, is_torch, largest, readable, to_numpy
from trajcli.errors import Fault, UsageError, raise_if_any

if TYPE_CHECKING:
    from trajcli.inputs import Inputs

Array = Any


def require_counts(least: int = 1, **counts: Any) -> None:
    """Raises UsageError for values that are not whole numbers of at least ``least``."""
    expected = f"a whole number >= {least}"
    faults = [
        Fault("not a count", where=name, expected=expected, found=repr(value))
        for name, value in counts.items()
        if not isinstance(value, (int, np.integer)) or isinstance(value, bool) or value < least
    ]
    raise_if_any(faults, UsageError)


def time_stamp_shape_faults(shape: Sequence[int], batch: int, rows: int, where: str) -> list[Fault]:
    """Returns the fault of time stamps of a shape that does not fit [batch, rows]."""
    if tuple(shape) in {(rows,), (batch, rows), (1, rows)}:
        return []
    return [
        Fault(
            "wrong number of time stamps",
            where=where,
            expected=f"one per row: [{rows}] or [{batch}, {rows}]",
            found=describe(shape),
            hint="one dt for all; integrate has a row more than actions (recorded rates: as many), "
            "differentiate as many as positions",
        )
    ]


def step_faults(
    steps: Array, where: str, first_trajectory: int = 0, first_step: int = 0
) -> list[Fault]:
    """Returns the fault of steps, NumPy [b, h] or one number, not all positive and finite."""
    if steps.min(initial=1.0) > 0.0 and steps.max(initial=1.0) < np.inf:  # false for NaN
        return []
    wrong = np.argwhere(~(np.isfinite(steps) & (steps > 0)))
    axes = ("trajectory", "step")[2 - steps.ndim :]
    first = wrong[0] + ((0, first_step)[2 - steps.ndim :])
    step = repr(float(steps[tuple(wrong[0])]))
    step += f" ({len(wrong)} such steps)" if len(wrong) > 1 else ""
    return [
        Fault(
            "a step that is not positive and finite",
            where=place(where, axes, first, steps.shape, first_trajectory),
            expected="dt > 0, in seconds",
            found=step,
        )
    ]


def time_stamp_faults(
    times: Array, where: str, first_trajectory: int = 0, row_numbers: Array | None = None
) -> list[Fault]:
    """Returns the faults of time stamps [T] or [B, T]: NaN, repeats, steps back."""
    values = to_numpy(times)
    table = values[None] if values.ndim == 1 else values
    gaps = differences(table)
    drop_hint = "leave those rows out, as trajcli differentiate --repeated-times drop does"
    sort_hint = "sort the rows by time, or split the recording"
    faults = []
    for what, wrong, first_row, hint in (
        ("time stamps that are not finite", ~np.isfinite(table), 0, ""),
        ("time stamps that repeat", gaps == 0, 1, drop_hint),
        ("time stamps that go back", gaps < 0, 1, sort_hint),
    ):
        places = np.argwhere(wrong)
        if not len(places):
            continue
        named = []
        for trajectory, row in (places[:3] + np.array([0, first_row])).tolist():
            number = row if row_numbers is None else int(row_numbers[row])
            spot = place("", ("trajectory",), (trajectory,), table.shape[:1], first_trajectory)
            stamp = f"row {number} ({float(table[trajectory, row])!r})"
            named.append(f"{spot}, {stamp}" if spot else stamp)
        more = f" and {len(places) - 3} more" if len(places) > 3 else ""
        faults.append(
            Fault(
                what,
                where=where,
                expected="strictly increasing seconds",
                found=f"{len(places)} such: " + "; ".join(named) + more,
                hint=hint,
            )
        )
    return faults


def nonfinite_fault(
    values: Array,
    where: str,
    axes: Sequence[str],
    first_trajectory: int = 0,
    row_numbers: Array | None = None,
) -> Fault | None:
    """Returns the fault of an array with NaN or Inf, with the first place; None without any.

    ``row_numbers`` are the numbers of the rows in the file, where some were dropped.
    """
    if not readable(values):
        return None
    if is_torch(values) and values.is_cuda and bool(values.detach().isfinite().all()):
        return None  # this copies nothing to the host
    array = to_numpy(values)
    if array.dtype.kind != "f" or np.isfinite(largest(array)):
        return None
    finite = np.isfinite(array)
    wrong = np.argwhere(~finite)
    first = list(wrong[0])
    if row_numbers is not None and "step" in axes:
        first[axes.index("step")] = int(row_numbers[first[axes.index("step")]])
    count = f" ({len(wrong)} values that are not finite)" if len(wrong) > 1 else ""
    return Fault(
        "NaN or Inf",
        where=place(where, axes, first, array.shape, first_trajectory),
        expected="finite numbers",
        found=f"{float(array[tuple(wrong[0])])}{count}",
        hint="--allow-nonfinite (allow_nonfinite=True) computes with it; "
        "it stays within its trajectory and dof",
    )


def describe(shape: Sequence[int]) -> str:
    """Returns a shape as text: [64, 100, 7]."""
    return "[" + ", ".join(str(int(n)) for n in shape) + "]" if len(shape) else "one number"


def place(
    where: str,
    axes: Sequence[str],
    index: Iterable[int],
    shape: Sequence[int],
    first_trajectory: int,
) -> str:
    """Returns "where, trajectory 3, step 17, dof 2" for an index, without axes of length 1."""
    named = [where] if where else []
    for axis, i, size in zip(axes, index, shape, strict=True):
        offset = first_trajectory if axis == "trajectory" else 0
        if size > 1 or offset or (axis == "trajectory" and len(axes) == 3):
            named.append(f"{axis} {int(i) + offset}")
    return ", ".join(named)


def shape_faults(inputs: Inputs, steps: bool = True) -> list[Fault]:
    """Returns the faults of shapes, of missing inputs, and of dt and indices that are in memory.

    Without ``steps``, :func:`value_faults` checks the values of dt and of time stamps.
    """
    shape = tuple(inputs.actions.shape)
    where = inputs.name("actions")
    if len(shape) != 3:
        what, expected = "wrong number of dimensions", "[B, H, D], or [H, D] for one trajectory"
        hint = "[:, None] makes one number per row one dof" if len(shape) == 1 else ""
        return [Fault(what, where=where, expected=expected, found=describe(shape), hint=hint)]
    if shape[1] < 1 or shape[2] < 1:
        expected = "H >= 1 and D >= 1"
        return [Fault("no actions", where=where, expected=expected, found=describe(shape))]
    faults = _step_shape_faults(inputs)
    if steps and not faults:
        faults = _step_value_faults(inputs)
    faults += _state_faults(inputs, "start")
    faults += _state_faults(inputs, "goal")
    faults += inputs.mode.faults(inputs.case)
    return [replace(fault, where=inputs.name(fault.where)) for fault in faults]


def value_faults(inputs: Inputs, allow_nonfinite: bool) -> list[Fault]:
    """Returns the faults of the values of a block whose shapes are right."""
    faults = _step_value_faults(inputs)
    for role in ("start", "goal"):
        index = getattr(inputs, f"{role}_index")
        if index is not None:
            counts = [int(values.shape[0]) for values in getattr(inputs, role).values()]
            faults += _index_faults(inputs, role, index, max(counts, default=1))
    return faults if allow_nonfinite else faults + nonfinite_faults(inputs)


def nonfinite_faults(inputs: Inputs) -> list[Fault]:
    """Returns the faults of NaN and Inf in the actions and states that are used."""
    axes = ("trajectory", "step", "dof")
    shift, rows = inputs.first_trajectory, inputs.row_numbers
    program = inputs.program()
    faults = []
    if inputs.can_check(inputs.actions):
        # actions beyond the last one that is used may hold anything
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
    """Returns states [S, D], with zeros for those that the index does not name."""
    unnamed = np.setdiff1d(np.arange(states.shape[0]), to_numpy(index))
    if not len(unnamed):
        return states
    states = states.detach().clone() if is_torch(states) else states.copy()
    states[unnamed] = 0
    return states


def _step_shape_faults(inputs: Inputs) -> list[Fault]:
    """Returns the fault of dt or time stamps that are absent, both given, or of another shape."""
    batch, steps = int(inputs.actions.shape[0]), inputs.intervals
    if inputs.times is not None:
        where = inputs.name("times")
        if inputs.dt is not None:
            return [Fault("both dt and times", where=where, expected="one of them", found="both")]
        return time_stamp_shape_faults(inputs.times.shape, batch, steps + 1, where)
    if inputs.dt is None:
        expected, found = "a step, a rate, or time stamps", "none given, and none in the input"
        hint = "dt= or times= (in the shell --dt SECONDS, --rate HZ or --times FILE:DATASET)"
        return [Fault("no time step", where="dt", expected=expected, found=found, hint=hint)]
    shape = tuple(inputs.dt.shape)
    # a recording may have an entry for the step into row 0, which is unused
    counts = [steps, steps + 1] if inputs.recorded else [steps]
    allowed = [(), *((n,) for n in counts), (batch, 1), *((batch, n) for n in counts)]
    if shape in allowed or shape in ((1,), (1, 1), *((1, n) for n in counts)):
        return []
    where, expected = inputs.name("dt"), " or ".join(dict.fromkeys(map(describe, allowed)))
    hint = "one dt per trajectory has shape [B, 1]" if shape == (batch,) else ""
    found = describe(shape)
    return [Fault("wrong shape", where=where, expected=expected, found=found, hint=hint)]


def _step_value_faults(inputs: Inputs) -> list[Fault]:
    """Returns the faults of steps that are not positive and of stamps that do not increase.

    Values that are not in memory are not checked.
    """
    if not inputs.can_check(inputs.dt if inputs.times is None else inputs.times):
        return []
    shift = inputs.first_trajectory
    if inputs.times is not None:
        rows = inputs.row_numbers if inputs.recorded else None
        return time_stamp_faults(inputs.times, inputs.name("times"), shift, rows)
    where, unused = inputs.name("dt"), inputs.unused_steps()
    return step_faults(to_numpy(inputs.used_dt()), where, shift, unused)


def _state_faults(inputs: Inputs, role: str) -> list[Fault]:
    """Returns the faults of the shapes of the start or goal state, and of its index."""
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
        faults.append(Fault(f"a {role} index without a {role} state", where=inputs.name(role)))
    if len(counts) > 1:
        what, expected = f"parts of the {role} state differ in number", "one number of states"
        found = str(sorted(counts))
        faults.append(Fault(what, where=inputs.name(role), expected=expected, found=found))
    return faults


def _part_faults(
    inputs: Inputs, role: str, part: str, shape: tuple[int, ...], indexed: bool
) -> list[Fault]:
    """Returns the fault of a part of a state whose shape does not fit the actions."""
    batch, _, dofs = (int(n) for n in inputs.actions.shape)
    where = inputs.name(f"{role}/{part}")
    if len(shape) != 2:
        what, expected = "wrong number of dimensions", "[B, D] or [D]"
        return [Fault(what, where=where, expected=expected, found=describe(shape))]
    if shape[1] != dofs:
        what = f"{role} and actions differ in their dofs (D)"
        expected = f"D = {dofs}, as in {inputs.name('actions')}"
        found = f"D = {shape[1]}, shape {describe(shape)}"
        return [Fault(what, where=where, expected=expected, found=found)]
    fits = indexed or shape[0] in (1, batch)
    return [] if fits else [state_count_fault(role, where, batch, shape)]


def state_count_fault(role: str, where: str, batch: int, shape: Sequence[int]) -> Fault:
    """Returns the fault of states [S, D] where S is neither the number of trajectories nor 1."""
    return Fault(
        f"{role} states and trajectories differ in number (B)",
        where=where,
        expected=f"[{batch}, {shape[1]}], or one for all: [{shape[1]}]",
        found=describe(shape),
        hint=f"{role}_index [B] beside them says which each trajectory uses",
    )


def index_shape_faults(where: str, batch: int, index: Array) -> list[Fault]:
    """Returns the fault of an index of states that is not an integer per trajectory."""
    kind = str(index.dtype).removeprefix("torch.")
    if tuple(index.shape) == (batch,) and "int" in kind:
        return []
    expected, found = f"integers [{batch}]", f"{kind} {describe(index.shape)}"
    return [Fault("wrong shape or type", where=where, expected=expected, found=found)]


def _index_faults(inputs: Inputs, role: str, index: Array, count: int) -> list[Fault]:
    """Returns the fault of an index that is no index of ``count`` states."""
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
    return [Fault("index out of range", where=where, expected=expected, found=str(int(values[b])))]
