"""The inputs of an integration, as arrays of full rank, and blocks of them."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

import numpy as np

from trajcli.arrays import (
    columns,
    concatenate,
    describe,
    differences,
    empty_arrays,
    float64,
    index_shape_faults,
    is_torch,
    nonfinite_fault,
    readable,
    state_count_fault,
    step_faults,
    time_stamp_faults,
    time_stamp_shape_faults,
    to_numpy,
    to_torch,
)
from trajcli.errors import Fault, UsageError, wrong_shape
from trajcli.kernels.choose import Choice, choose
from trajcli.kernels.program import Array, Operands, Program
from trajcli.modes import QUANTITIES, Mode
from trajcli.modes.mode import Case, Smoothed


class LateTimes(NamedTuple):
    """The times of rows one step apart, which are computed on a device when someone looks at them.

    Most callers never do, and in a CUDA graph each computation would be another node.
    """

    mode: Mode
    horizon: int
    recorded: bool
    step: float
    device: str

    def compute(self) -> Array:
        with sys.modules["torch"].inference_mode(False):  # they may be looked at again outside
            step = to_torch(np.array([[self.step]]), self.device)
            return self.mode.row_times(step, self.horizon, self.recorded)[0]


@dataclass(frozen=True)
class Inputs:
    """All inputs of a job or of one block of it, with names for messages.

    Attributes:
        start, goal: parts by name, [S, D]; S = 1 is shared by all trajectories.
        dt: a number, [h] or [b, h], not aligned to rows (see ``Mode.dt_ahead``).
        names: the source of every input.
        row_numbers: the numbers of the rows in the file [H], where they are not 0 to H − 1.
        rates: the action of row 0 is a part of the start, as each was recorded with a time stamp.
        allow_nonfinite: NaN and Inf are computed with, so that values are not read back from a
            device to check them.
        smoothed: what mode smooth chose by the values; None before, and of other modes.
    """

    mode: Mode
    actions: Array
    start: Mapping[str, Array]
    goal: Mapping[str, Array]
    dt: Array | None
    times: Array | None = None
    start_index: Array | None = None
    goal_index: Array | None = None
    recorded: bool = False
    row_numbers: Array | None = None
    rates: bool = False
    names: Mapping[str, str] = field(default_factory=dict)
    first_trajectory: int = 0
    allow_nonfinite: bool = False
    smoothed: Smoothed | None = None

    @property
    def horizon(self) -> int:
        """H, the number of actions per trajectory."""
        return self.actions.shape[1]  # a symbol while torch traces

    @cached_property
    def rows(self) -> int:
        """T, the number of rows per trajectory."""
        return self.mode.row_count(self.horizon, self.recorded)

    @property
    def uneven(self) -> bool:
        """Whether steps may differ within a trajectory."""
        steps = self.dt if self.times is None else self.times
        return steps is not None and steps.ndim > 0 and steps.shape[-1] > 1

    @property
    def steps_differ(self) -> bool:
        """Whether each trajectory has its own steps or time stamps."""
        steps = self.dt if self.times is None else self.times
        return steps is not None and steps.ndim == 2 and steps.shape[0] != 1

    def name(self, role: str) -> str:
        return self.names.get(role, role)

    @property
    def unused_steps(self) -> int:
        """1 where the dt of a recording begins with an unused step, that into row 0; else 0."""
        assert self.dt is not None
        count = self.dt.shape[-1] if self.dt.ndim else 1
        return 1 if self.recorded and count == self.horizon and self.horizon > 1 else 0

    @property
    def row_steps(self) -> Array:
        """dt as float64 [b, h], without its unused entry; not aligned to rows."""
        assert self.dt is not None
        dt = float64(self.dt.reshape((1,) * (2 - self.dt.ndim) + tuple(self.dt.shape)))
        return dt[:, 1:] if self.unused_steps else dt

    @cached_property
    def steps(self) -> Array:
        """dt as float64 [b, h] in its library, aligned to rows."""
        if self.times is not None:
            times = self.times[None] if self.times.ndim == 1 else self.times
            # one stamp has no steps; any positive one serves, in the library of the stamps
            return differences(times) if times.shape[1] > 1 else float64(times) * 0.0 + 1.0
        steps = self.row_steps
        if self.mode.dt_ahead and steps.shape[1] > 1:
            # the step behind the last row is not known: the last one goes on
            return concatenate([steps[:, 1:], steps[:, -1, None]], 1)
        # a recording of one row has no steps. Any positive one serves: the sum of none, which is
        # zero and has the library, the device and a gradient of dt, plus one
        return steps if steps.shape[1] else steps.sum(1)[:, None] + 1.0

    def row_times(self) -> Array:
        return self.mode.row_times(self.steps, self.horizon, self.recorded)

    def dt_gradient(self, grads: Array) -> Array:
        """Turns gradients by steps [B, 1 or n] into those by dt; those by stamps stay."""
        if self.times is not None:
            return grads
        assert self.dt is not None
        entries = int(self.dt.shape[-1]) if self.dt.ndim else 1
        if entries == 1:
            return grads.sum(1)[:, None]
        # entries before this one are unused, and the last one then serves several steps
        ahead = self.unused_steps + self.mode.dt_ahead
        result = np.zeros((len(grads), entries))
        count = entries - ahead
        result[:, ahead:] = grads[:, :count]
        result[:, -1] += grads[:, count:].sum(1)
        return result

    def start_from_rates(self, rest: Array, first: Array) -> Inputs:
        """Makes inputs of rates that were recorded with a time stamp each.

        The ``first`` of them [B, D] is a part of the start state, the ``rest`` [B, H − 1, D] are
        integrated by the trapezoidal rule (foh).
        """
        if self.start_index is not None:
            raise UsageError(
                "a start index with actions that have a time stamp each",
                where=self.name("start_index"),
                expected="a start state for each trajectory, or one for all",
                hint="position[index] in place of position and index",
            )
        part = f"start/{QUANTITIES[self.mode.action_order]}"
        return replace(
            self,
            actions=rest,
            start={**self.start, part.removeprefix("start/"): first},
            names={**self.names, part: f"{self.name('actions')}, step 0"},
            row_numbers=np.arange(1, rest.shape[1] + 1),
            rates=True,
        )

    def block(
        self, actions: Array, begin: int, end: int, shift: int, names: Mapping[str, str]
    ) -> Inputs:
        """Reads trajectories begin..end; messages number them from begin − shift on."""

        def read(values: Any, shared: bool = False) -> Any:
            if values is None or values.ndim == 0:
                return values
            first, last = (0, values.shape[0]) if shared else (begin, end)
            in_file = hasattr(values, "read_rows")
            return values.read_rows(first, last) if in_file else values[first:last]

        # what all trajectories share, or choose from by an index, is read whole
        start, goal = (
            {name: read(x, index is not None or x.shape[0] == 1) for name, x in parts.items()}
            for parts, index in ((self.start, self.start_index), (self.goal, self.goal_index))
        )
        dt, times = (
            read(x, shared=x is not None and (x.ndim < 2 or x.shape[0] == 1))
            for x in (self.dt, self.times)
        )
        return replace(
            self,
            actions=actions,
            start=start,
            goal=goal,
            dt=dt,
            times=times,
            start_index=read(self.start_index),
            goal_index=read(self.goal_index),
            names={**self.names, **names},
            first_trajectory=begin - shift,
        )

    def program(self) -> Program:
        """Makes the program for the kernels; raises UsageError if steps it needs cannot be read."""
        if self.smoothed is not None:
            return self.smoothed.program
        if not self.mode.reads_steps:
            return program_for(self.mode, int(self.horizon), self.recorded, self.uneven)
        if not readable(self.steps):
            raise UsageError(
                "steps that cannot be read",
                where=self.name("dt"),
                expected="values",
                found="none here",
                hint="dt as a number, or method savgol with a window in rows",
            )
        # how many rows a window in seconds has depends on the steps
        return self.mode.stepped_program(self.actions.shape, to_numpy(self.steps))

    def prepare_mode(self, choice: Choice) -> Inputs:
        """Adds what the mode chooses by the values, on the CPU, which no CUDA graph can capture."""
        if not self.mode.result_names or self.smoothed is not None:
            return self
        self.program()  # which raises where steps cannot be read
        if is_torch(self.actions):
            from trajcli.kernels import torch_ops

            torch_ops.refuse_capture(self.actions.device)
        values = to_numpy(self.actions) if readable(self.actions) else None
        steps = to_numpy(self.steps)
        finite = values is None or self.allow_nonfinite or np.isfinite(values).all()
        if not (finite and ((steps > 0.0) & np.isfinite(steps)).all()):
            return self
        kernels = choice.kernels if choice.device == "cpu" else choose("cpu").kernels
        shape, where = self.actions.shape, self.name("actions")
        return replace(self, smoothed=self.mode.prepare(values, shape, steps, kernels, where))

    def options(self) -> dict[str, Any]:
        """Returns the options of the mode, with the results that it chose."""
        options = self.mode.options(self.recorded)
        if self.smoothed is None:
            return options
        options |= self.smoothed.results
        # a result replaces the option of its name, where that stands among the others
        names = dict.fromkeys((*self.mode.option_names(), *options))
        return {name: options[name] for name in names if name in options}

    def operands(self, device: str | None = None) -> Operands:
        """Makes the operands for the kernels: NumPy arrays, or torch tensors on a device."""

        def state(parts: Mapping[str, Array], index: Array | None) -> list[Array | None]:
            values = {}
            for name, part in parts.items():
                part = _on_device(part, device)
                wide = str(part.dtype).removeprefix("torch.") in ("float32", "float64")
                values[name] = part if wide else float64(part)
            if index is not None:  # a part of one row is shared, whatever the index says
                count = max((part.shape[0] for part in values.values()), default=1)
                values = {name: repeated(part, count) for name, part in values.items()}
            return [values.get(name) for name in QUANTITIES]

        def index(rows: Array | None) -> Any:
            if rows is None:
                return None
            # int64 is what every backend indexes with
            if is_torch(rows) and device is not None:
                return _on_device(rows, device).long()
            return _on_device(to_numpy(rows).astype(np.int64), device)

        actions: Any = _on_device(self.actions, device)
        if str(actions.dtype) == "torch.bfloat16":
            actions = actions.float()  # not all kernels read bfloat16
        steps = self.steps
        if device is not None and not is_torch(steps):
            steps = np.array(steps)  # the caller may overwrite dt before a backward pass
        return Operands(
            actions,
            float64(_on_device(steps, device)),
            state(self.start, self.start_index),
            state(self.goal, self.goal_index),
            index(self.start_index),
            index(self.goal_index),
        )

    def compute(self, choice: Choice, dtype: str, write: Sequence[str]) -> dict[str, Any]:
        """Computes the outputs [B, T, D] as NumPy arrays."""
        self = self.prepare_mode(choice)
        operands = self.operands(None if choice.backend == "native" else choice.device)
        flags = [name in write for name in QUANTITIES]
        rows = compute_rows(self.program(), operands, choice.kernels, dtype, flags)
        return {name: x for name, x in zip(QUANTITIES, rows, strict=True) if x is not None}

    def can_check(self, values: Array | None) -> bool:
        if not is_torch(values):
            return isinstance(values, np.ndarray)
        return not (self.allow_nonfinite and values.device.type != "cpu") and readable(values)


def compute_rows(
    program: Program, operands: Operands, kernels: Any, dtype: str, flags: Sequence[bool],
    out: Sequence[Array | None] | None = None,
) -> Sequence[Any]:  # fmt: skip
    """Computes rows [B, T, D] by kernels, as NumPy arrays or into ``out``; None without a flag."""
    batch, _, dofs = operands.actions.shape
    device = str(operands.actions.device) if is_torch(operands.actions) else None
    rows = empty_arrays((batch, program.rows, dofs), dtype, device, flags) if out is None else out
    if device is None:
        kernels.forward(program, operands, rows)
        return rows
    # kernels made of torch's operations would record a graph for gradients that nobody takes
    with sys.modules["torch"].inference_mode():
        kernels.forward(program, operands, rows)
    return [x if x is None else to_numpy(x) for x in rows]


@lru_cache(maxsize=256)
def program_for(mode: Mode, horizon: int, recorded: bool, uneven: bool) -> Program:
    return mode.program(horizon, recorded, uneven)


def _on_device(values: Array, device: str | None) -> Any:
    """Moves values to a device as a torch tensor; without a device, makes a NumPy array."""
    if device is not None:
        return to_torch(values, device)
    return values if isinstance(values, np.ndarray) else to_numpy(values)


def repeated(part: Array, count: int) -> Array:
    if part.shape[0] == count:
        return part
    shape = (count, part.shape[1])
    return part.expand(shape) if is_torch(part) else np.broadcast_to(part, shape)


def shape_faults(inputs: Inputs, steps: bool = True) -> list[Fault]:
    """Lists faults of shapes, of missing inputs, of dt (if ``steps``) and of indices in memory."""
    # without actions of three axes nothing else can be compared with them: they are reported alone
    shape = tuple(inputs.actions.shape)
    where = inputs.name("actions")
    if len(shape) != 3:
        what, expected = "wrong number of dimensions", "[B, H, D], or [H, D] for one trajectory"
        hint = "[:, None] makes one number per row one dof" if len(shape) == 1 else ""
        return [wrong_shape(where, expected, shape, what=what, hint=hint)]
    if shape[1] < 1 or shape[2] < 1:
        expected = "H >= 1 and D >= 1"
        return [wrong_shape(where, expected, shape, what="no actions")]
    faults: list[Fault] = []
    # steps between the rows of the input, which is the number of entries in dt
    # int: the symbols of torch before 2.13 take no bool
    batch, count = shape[0], inputs.horizon - int(inputs.recorded)
    if inputs.times is not None and inputs.dt is not None:
        what, where = "both dt and times", inputs.name("times")
        faults.append(Fault(what, where=where, expected="one of them", found="both"))
    elif inputs.times is not None:
        where = inputs.name("times")
        faults += time_stamp_shape_faults(inputs.times.shape, batch, count + 1, where)
    elif inputs.dt is None:
        what, found = "no time step", "none given, and none in the input"
        expected, hint = "a step, a rate, or time stamps", "dt= or times="
        shell = "--dt SECONDS, --rate HZ or --times FILE:DATASET"
        fault = Fault(what, where="dt", expected=expected, found=found, hint=hint, shell=shell)
        faults.append(fault)
    else:
        shape = tuple(inputs.dt.shape)
        # a recording may have an entry for the step into row 0, which is unused
        counts = [count, count + 1] if inputs.recorded else [count]
        allowed = [(), *((n,) for n in counts), (batch, 1), *((batch, n) for n in counts)]
        # an axis of one broadcasts as well, but is nothing to advise
        if not (shape in allowed or shape in ((1,), (1, 1), *((1, n) for n in counts))):
            expected = " or ".join(dict.fromkeys(map(describe, allowed)))
            hint = "one dt per trajectory has shape [B, 1]" if shape == (batch,) else ""
            faults.append(wrong_shape(inputs.name("dt"), expected, shape, hint=hint))
    # values of steps are checked only once their shape is right
    if steps and not faults:
        faults = step_value_faults(inputs)
    faults += _state_faults(inputs, "start")
    faults += _state_faults(inputs, "goal")
    faults += inputs.mode.faults(
        Case(
            horizon=inputs.horizon,
            start=frozenset(inputs.start),
            goal=frozenset(inputs.goal),
            recorded=inputs.recorded,
            steps_vary=inputs.uneven or inputs.times is not None,
        )
    )
    return [replace(fault, where=inputs.name(str(fault.where))) for fault in faults]


def value_faults(inputs: Inputs, allow_nonfinite: bool) -> list[Fault]:
    """Lists the faults of the values of a block whose shapes are right."""
    faults = step_value_faults(inputs)
    for role in ("start", "goal"):
        index = getattr(inputs, f"{role}_index")
        if index is not None:
            counts = [int(values.shape[0]) for values in getattr(inputs, role).values()]
            faults += _index_faults(inputs, role, index, max(counts, default=1))
    return faults if allow_nonfinite else faults + nonfinite_faults(inputs)


def nonfinite_faults(inputs: Inputs) -> list[Fault]:
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
            # states that the index does not name may hold anything, and are checked as zeros
            if index is not None and count != 1:
                unnamed = np.setdiff1d(np.arange(count), to_numpy(index))
                if len(unnamed):
                    values = values.detach().clone() if is_torch(values) else values.copy()
                    values[unnamed] = 0
            where = inputs.name(f"{role}/{part}")
            faults.append(nonfinite_fault(values, where, (axis, "dof"), shift))
    return [fault for fault in faults if fault is not None]


def step_value_faults(inputs: Inputs) -> list[Fault]:
    """Lists faults of steps, and of stamps, that are in memory: not positive, not increasing."""
    if not inputs.can_check(inputs.dt if inputs.times is None else inputs.times):
        return []
    shift = inputs.first_trajectory
    if inputs.times is not None:
        rows = inputs.row_numbers if inputs.recorded else None
        return time_stamp_faults(inputs.times, inputs.name("times"), shift, rows)
    steps = to_numpy(inputs.row_steps)
    return step_faults(steps, inputs.name("dt"), shift, inputs.unused_steps)


def _state_faults(inputs: Inputs, role: str) -> list[Fault]:
    parts: Mapping[str, Array] = getattr(inputs, role)
    index: Array | None = getattr(inputs, f"{role}_index")
    batch, _, dofs = inputs.actions.shape
    faults = []
    for part, values in parts.items():
        where, shape = inputs.name(f"{role}/{part}"), tuple(values.shape)
        if len(shape) != 2:
            what, expected = "wrong number of dimensions", "[B, D] or [D]"
            faults.append(wrong_shape(where, expected, shape, what=what))
        elif shape[1] != dofs:
            what = f"{role} and actions differ in their dofs (D)"
            expected = f"D = {dofs}, as in {inputs.name('actions')}"
            found = f"D = {shape[1]}, shape {describe(shape)}"
            faults.append(Fault(what, where=where, expected=expected, found=found))
        elif index is None and shape[0] not in (1, batch):
            faults.append(state_count_fault(role, where, batch, shape))
    if index is None:
        return faults
    # parts of one state are shared; the others must agree on how many states there are
    counts = {int(v.shape[0]) for v in parts.values() if v.ndim == 2 and v.shape[0] != 1}
    faults += _index_faults(inputs, role, index, max(counts, default=1))
    if not parts:
        faults.append(Fault(f"a {role} index without a {role} state", where=inputs.name(role)))
    if len(counts) > 1:
        what, expected = f"parts of the {role} state differ in number", "one number of states"
        found = str(sorted(counts))
        faults.append(Fault(what, where=inputs.name(role), expected=expected, found=found))
    return faults


def _index_faults(inputs: Inputs, role: str, index: Array, count: int) -> list[Fault]:
    where = inputs.name(f"{role}_index")
    faults = index_shape_faults(where, int(inputs.actions.shape[0]), index)
    if faults or not inputs.can_check(index):
        return faults
    values = to_numpy(index)
    wrong = np.flatnonzero((values < 0) | (values >= count))
    if not len(wrong):
        return []
    # one trajectory is named: an index that is off is often off everywhere
    b = int(wrong[0])
    where = f"{where}, trajectory {inputs.first_trajectory + b}"
    expected = f"0 to {count - 1} (there are {count} {role} states)"
    return [Fault("index out of range", where=where, expected=expected, found=str(int(values[b])))]
