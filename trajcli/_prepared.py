"""Calls of integrate and differentiate: built for arrays of one layout, run, and kept for others.

A call is what depends on layouts and options alone: checks, the program, tables, the filled
structure of the compiled kernels. It runs on the arrays it is built for, and again on others like
them, as an optimiser has them in a loop. Their values are checked in every run.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from trajcli.arrays import (
    copy_overlapping,
    current_stream,
    is_capturing,
    is_finite,
    is_torch,
    is_traced,
    output_dtype,
    to_torch,
)
from trajcli.errors import Fault, InputError, UsageError, describe, raise_if_any, unknown
from trajcli.inputs import (
    Inputs,
    LateTimes,
    compute_rows,
    nonfinite_faults,
    repeated,
    shape_faults,
    step_value_faults,
)
from trajcli.kernels.choose import choose, choose_for_tensors
from trajcli.kernels.program import Array, Operands
from trajcli.modes import QUANTITIES
from trajcli.system import environment_variable
from trajcli.trajectory import State

DTYPES = ("float32", "float64")
"""The types of outputs."""

# More layouts than a training loop has. The oldest call makes room for another one.
_CACHE_SIZE = 64
# Steps of so many bytes are compared with those of the call before, and kept.
_FEW_BYTES = 1 << 12


class Arrays(NamedTuple):
    """The arrays of a call, as they are given; ``parts``: four of the start, four of the goal."""

    actions: Any
    dt: Any
    times: Any
    start: Any = None
    goal: Any = None
    start_index: Any = None
    goal_index: Any = None
    parts: tuple[Any, ...] = (None,) * 8


class _Cache(threading.local):
    """The calls of a thread: a structure serves one call at a time."""

    def __init__(self) -> None:
        self.calls: dict[Any, Call] = {}


_cache = _Cache()


class Recent(threading.local):
    """The last call of a thread with the same options, and the kinds of arrays that it is for."""

    kinds: Any = None
    call: Call | None = None


def run(
    make: Callable[..., Inputs], arrays: Arrays, options: tuple[Any, ...], write: Sequence[str],
    dtype: Any, backend: str | None, allow_nonfinite: bool, out: Any = None,
    recent: Recent | None = None,
) -> tuple[Any, ...]:  # fmt: skip
    """Computes the fields of the Trajectory of ``make(arrays, allow_nonfinite, *options)``.

    out: a Trajectory whose arrays they become. recent: takes the call, if it serves others.
    """
    torch = sys.modules.get("torch")
    if torch is not None and torch.compiler.is_dynamo_compiling():
        # Dynamo has given up our callers, and tries us, whom it would not follow
        eager: Any = torch.compiler.disable(run)
        values = write, dtype, backend, allow_nonfinite, out, recent
        return eager(make, arrays, options, *values)  # type: ignore[no-any-return]
    backend = backend or environment_variable(b"TRAJCLI_BACKEND") or "auto"

    def inputs() -> Inputs:
        return make(arrays, allow_nonfinite, *options)

    # types are in the key, as True equals 1 but is refused
    request = (make, options, *map(type, options), write, dtype, backend, allow_nonfinite)
    kinds, calls = kinds_of(arrays), _cache.calls
    key = None if kinds is None else (*kinds, *request)
    # None is no key of a call: tensors of torch's transforms get a call of their own
    try:
        call = calls.get(key)
    except TypeError:  # an option that has no hash
        call = key = None
    if recent is not None:
        recent.kinds, recent.call = kinds, call
    if call is not None:
        return call.run(arrays, inputs, out)
    first = inputs()
    if key is None and _tensors(first):
        from trajcli import autograd

        # an operator stands for kernels where torch records or imitates operations, but not in
        # torch.func and forward mode, in which it would have no tangents
        if is_traced() and not autograd.needs_torch():
            return _recorded(first, write, dtype, backend)
    call = Call(first, arrays, write, dtype, backend, plain=key is not None and _plain(arrays))
    fields = call.run(arrays, lambda: first, out)
    if call.serves_others:
        if len(calls) >= _CACHE_SIZE:
            del calls[next(iter(calls))]  # the oldest
        calls[key] = call
    return fields


def run_once(
    inputs: Inputs, write: Sequence[str], dtype: Any, backend: str | None
) -> tuple[Any, ...]:
    """Computes the fields of the Trajectory of inputs, by a call that is not kept."""
    arrays = Arrays(None, None, None)
    backend = backend or environment_variable(b"TRAJCLI_BACKEND") or "auto"
    call = Call(inputs, arrays, write, dtype, backend, plain=False)
    return call.run(arrays, lambda: inputs)


def kinds_of(arrays: Arrays) -> list[Any] | None:
    """Lists what decides, with the options, how a call is computed.

    That is libraries, types and layouts of arrays, whether gradients are recorded, and the stream
    of a device. None for tensors within torch.func or without memory, and for what is traced or
    captured: that is recorded, not computed.
    """
    actions, dt, times, start, goal, start_index, goal_index, parts = arrays
    torch = sys.modules.get("torch")
    kinds: list[Any] = [start if isinstance(start, str) else None]
    kinds.append(goal if isinstance(goal, str) else None)
    tensors = []
    for x in (actions, *parts, dt, times, start_index, goal_index):
        if x is None:
            kinds.append(None)
        # subclasses, as masked arrays, are read by as_array, and have the kind of their type
        elif type(x) is np.ndarray:
            kinds.append((x.dtype, x.shape, x.strides, x.flags.aligned))
        elif torch is not None and isinstance(x, torch.Tensor):
            try:
                kinds.append((x.dtype, x.shape, x.stride(), x.device, x.is_neg(), x.requires_grad))
            except RuntimeError:  # a sparse one has no strides
                return None
            tensors.append(x)
        # float64 of NumPy is a float: steps of both kinds share a call
        elif isinstance(x, int | np.generic) and not isinstance(x, float):
            kinds.append(np.asarray(x).dtype)
        else:
            kinds.append(float if isinstance(x, float) else type(x))
    if torch is not None and tensors:
        from trajcli import autograd

        if autograd.needs_torch() or not autograd.addressable(tensors):
            return None
        device = tensors[0].device
        if is_capturing(device):
            return None
        # another stream would not wait for what this one fills
        kinds += [torch.is_grad_enabled(), current_stream(device) if device.type == "cuda" else 0]
    return kinds


def compiled(
    make: Callable[..., Inputs], arrays: Arrays, options: tuple[Any, ...], write: Sequence[str],
    dtype: Any, backend: str | None, allow_nonfinite: bool,
) -> tuple[Any, ...]:  # fmt: skip
    """Computes what ``run`` does within torch.compile, whose Dynamo records one call in it."""
    from trajcli import _compiled

    states = isinstance(arrays.start, State), isinstance(arrays.goal, State)
    start, goal = (None if isinstance(x, State) else x for x in (arrays.start, arrays.goal))
    request = options, write, dtype, backend, allow_nonfinite
    # by name: Dynamo of older versions takes no slices of named tuples
    values = arrays.actions, arrays.dt, arrays.times
    tensors = _compiled.call(
        "trajcli._prepared", "_outputs", make.__module__, make.__name__, states,
        (*values, start, goal, arrays.start_index, arrays.goal_index, arrays.parts), *request,
    )  # fmt: skip
    # the graph computes with tensors, also where the caller has none
    if not any(map(is_torch, (*values, *arrays.parts))):
        tensors = [x.numpy() for x in tensors]
    outputs = dict(zip((*write, "time"), tensors, strict=True))
    rows = [outputs.get(name) for name in QUANTITIES]
    mode, options = _compiled.constants()
    return *rows, outputs["time"], mode, dict(options)


def _outputs(
    module: str, name: str, states: Sequence[bool], values: Sequence[Any], *request: Any
) -> tuple[Any, ...]:
    """Computes outputs and time from what Dynamo passes; ``states``: which of two were a State."""
    from trajcli import _compiled

    make, arrays = getattr(sys.modules[module], name), Arrays(*values)
    options, write, dtype, backend, allow_nonfinite = request
    if states[0]:
        arrays = arrays._replace(start=State(*arrays.parts[:4]))
    if states[1]:
        arrays = arrays._replace(goal=State(*arrays.parts[4:]))
    torch = sys.modules["torch"]
    options = tuple(map(_compiled.fixed, options))
    if isinstance(arrays.dt, torch.SymFloat | torch.SymInt):  # it has changed since the last call
        steps = torch.ones((), dtype=torch.float64) * arrays.dt
        inputs = make(arrays._replace(dt=steps), allow_nonfinite, *options)
        steps = _compiled.fixed(arrays.dt) if inputs.mode.reads_steps else steps
        arrays = arrays._replace(dt=steps)
    *rows, time, mode, chosen = run(make, arrays, options, write, dtype, backend, allow_nonfinite)
    # pairs: torch before 2.13 does not read a dictionary that a constant function returns
    _compiled.keep((mode, tuple(chosen.items())))
    return *[x for x in rows if x is not None], time


def _tensors(inputs: Inputs) -> list[Any]:
    states = (*inputs.start.values(), *inputs.goal.values())
    return [x for x in (inputs.actions, inputs.dt, inputs.times, *states) if is_torch(x)]


def _recorded(inputs: Inputs, write: Sequence[str], dtype: Any, backend: str) -> tuple[Any, ...]:
    from trajcli import _operators

    if sys.modules["torch"]._C._get_tracing_state():
        what, hint = "torch.jit.trace, for which shapes are tensors", "torch.export.export"
        raise UsageError(what, where="actions", expected="another tracer", hint=hint)
    raise_if_any(shape_faults(inputs))
    dtype = _output_dtype(dtype, inputs)
    device = _tensors(inputs)[0].device
    # tensors of torch's tracers have no memory for kernels of a device
    choice = choose_for_tensors(device, backend if device.type == "cpu" else "torch")
    inputs = inputs.prepare_mode(choice)
    if inputs.mode.reads_steps:
        inputs.program()  # which raises where steps cannot be read
    flags = [name in write for name in QUANTITIES]
    operands = inputs.operands(choice.device)
    rows = _operators.integrate(inputs, operands, dtype, flags, backend)
    time = inputs.mode.row_times(operands.dt, inputs.horizon, inputs.recorded)
    time = time[0] if time.shape[0] == 1 else time
    return *rows, time, inputs.mode.name, inputs.options()


def _plain(arrays: Arrays) -> bool:
    """Whether kernels can read actions and states, and the host the numbers, without a copy."""
    values = [x for x in (arrays.actions, *arrays.parts) if x is not None]
    clock = arrays.dt, arrays.times
    numbers = [
        x
        for x in (*clock, arrays.start_index, arrays.goal_index)
        if x is not None and not isinstance(x, int | float | np.generic)
    ]
    if is_torch(arrays.actions):
        device = arrays.actions.device
        in_place = all(is_torch(x) and x.device == device and not x.is_neg() for x in values)
    else:
        in_place = all(type(x) is np.ndarray and x.flags.aligned for x in values)
        in_place = in_place and not any(map(is_torch, clock))
    return (
        in_place
        and all(str(x.dtype).removeprefix("torch.") in DTYPES for x in values)
        and all(x.is_cpu if is_torch(x) else type(x) is np.ndarray for x in numbers)
        and not any(str(x.dtype) == "torch.bfloat16" for x in numbers)
    )


def _output_dtype(dtype: Any, inputs: Inputs) -> str:
    """Chooses float32 or float64, that of the actions for None; raises UsageError for others."""
    if dtype not in (None, *DTYPES):
        raise UsageError(unknown("dtype", choices=" or ".join(DTYPES), found=repr(dtype)))
    return dtype or output_dtype(inputs.actions.dtype)


class Call:
    """A call for arrays of one layout; ``plain``: they may be read as they lie. It keeps none."""

    def __init__(
        self, inputs: Inputs, arrays: Arrays, write: Sequence[str], dtype: Any, backend: str,
        plain: bool,
    ) -> None:  # fmt: skip
        raise_if_any(shape_faults(inputs))
        self._dtype = _output_dtype(dtype, inputs)
        tensors = _tensors(inputs)
        if tensors and tensors[0].device.type != "cpu":
            from trajcli.autograd import addressable

            backend = backend if addressable(tensors) else "torch"
        choice = (
            choose_for_tensors(tensors[0].device, backend) if tensors else choose("cpu", backend)
        )
        inputs = inputs.prepare_mode(choice)
        self._inputs: Inputs | None = inputs
        self._mode, self._horizon, self._recorded = inputs.mode, inputs.horizon, inputs.recorded
        self._rates, self._allow_nonfinite = inputs.rates, inputs.allow_nonfinite
        self._program, self._options = inputs.program(), inputs.options()
        self._flags = tuple([name in write for name in QUANTITIES])
        self._native, self._device = choice.backend == "native", choice.device
        kernels: Any = choice.kernels
        self._kernels = kernels
        # compiled kernels keep a filled structure; Triton's do for the layouts of a loop
        if self._native:
            self._kernels = kernels.Prepared(inputs.allow_nonfinite)
        elif plain and choice.backend == "triton" and not kernels.uses_torch(self._program):
            plain = isinstance(arrays.dt, float) and arrays.goal is arrays.start_index is None
            values = [x for x in (arrays.actions, *arrays.parts) if x is not None]
            plain = plain and all(x.is_contiguous() for x in values)
            self._kernels = kernels.Prepared() if plain else kernels
        else:
            plain = False
        self._plain, self._torch = plain, sys.modules["torch"] if tensors else None
        self.serves_others = plain and not self._mode.reads_steps
        if self._torch is not None:
            from trajcli import autograd

            self._integrate, kind = autograd.integrate, getattr(self._torch, self._dtype)
            self._task = autograd.Task(
                self._program, self._kernels, kernels, kind, self._flags, plain=plain
            )
        if plain:
            self._inputs = None
            self._shape = tuple(inputs.actions.shape)
            # the positions of states that are given as "zero", and the number of states
            zero = np.zeros((1, self._shape[2]))
            zero = zero if self._torch is None else to_torch(zero, self._device)
            self._zero = [zero if isinstance(x, str) else None for x in (arrays.start, arrays.goal)]
            lengths = [[len(x) for x in parts.values()] for parts in (inputs.start, inputs.goal)]
            self._counts = [max(x, default=1) for x in lengths]
            self._dt_differentiable = any(
                is_torch(x) and x.requires_grad for x in (arrays.dt, arrays.times)
            )
            # the steps of the last run: its dt or stamps as a number or bytes, and what they became
            self._clock_key: Any = None
            self._steps: Any = None
            self._time: Any = None

    def run(self, arrays: Arrays, inputs: Callable[[], Inputs], out: Any = None) -> tuple[Any, ...]:
        """Computes the fields of a Trajectory, into ``out`` if given; ``inputs`` tell faults."""
        kernels, device = self._kernels, None if self._torch is None else self._device
        if self._inputs is None:
            operands, time = self._operands(arrays, inputs)
        else:
            operands = self._inputs.operands(device if self._native else self._device)
            time = row_times(self._inputs, device)
        # compiled kernels check values as they read them: inputs are searched only if one is not
        # finite, to say where
        if self._native:
            kernels.finite = None
        elif not self._allow_nonfinite:
            self._check_values(arrays, inputs)
        rows: Sequence[Any] | None = None
        if out is not None:
            # The arrays of ``out`` must have the shapes and the types of this call's outputs, and
            # the library and the device of its actions.
            like, faults = operands.actions, []
            shape = (like.shape[0], self._program.rows, like.shape[2])
            shared = isinstance(time, LateTimes) or time.ndim == 1
            sizes: list[Any] = [shape if want else None for want in self._flags]
            sizes.append(shape[1 if shared else 0 : 2])
            kinds, names = [self._dtype] * 4 + ["float64"], (*QUANTITIES, "time")
            for name, x, size, kind in zip(names, (*out, out.time), sizes, kinds, strict=True):
                if x is None or size is None:
                    fits = x is size
                elif is_torch(like):
                    fits = is_torch(x) and x.is_contiguous() and x.device == like.device
                    fits = fits and x.shape == size and x.dtype == getattr(self._torch, kind)
                else:
                    fits = type(x) is np.ndarray and x.flags.carray
                    fits = fits and x.shape == size and x.dtype == getattr(np, kind)
                if not fits:
                    expected = f"contiguous {kind} {describe(size)}" if size else "None, by write="
                    found = "None" if x is None else f"{x.dtype} {describe(x.shape)}"
                    what, where = "not the memory for this output", f"out.{name}"
                    faults.append(Fault(what, where=where, expected=expected, found=found))
            raise_if_any(faults)
            rows = [*out]
        # an output may share memory with an input, which other trajectories are still to read
        if self._torch is None:
            operands = operands if rows is None else copy_overlapping(operands, rows)
            rows = compute_rows(self._program, operands, kernels, self._dtype, self._flags, rows)
        else:
            rows = self._integrate(self._task, operands, rows)
        if self._native and not (self._allow_nonfinite or kernels.finite):
            self._check_values(arrays, inputs)
            if kernels.finite is False:
                where = inputs().name("actions")
                raise InputError("not finite when it was computed", where=where)
        if out is not None:
            out.time[...] = time.compute() if isinstance(time, LateTimes) else time
            time = out.time
        return *rows, time, self._mode.name, dict(self._options)

    def _check_values(self, arrays: Arrays, inputs: Callable[[], Inputs]) -> None:
        values = [x for x in (arrays.actions, *arrays.parts) if x is not None]
        if not (self._plain and self._torch is not None and is_finite(values)):
            raise_if_any(nonfinite_faults(inputs()))

    def _operands(self, arrays: Arrays, inputs: Callable[[], Inputs]) -> tuple[Operands, Any]:
        """Makes the operands of plain arrays, and the times of the rows."""
        # no Inputs are made here: that would take most of the time of a small call
        actions, dt, times, _, _, start_index, goal_index, states = arrays
        steps, time = self._clock(dt, times, inputs)
        if actions.ndim == 2:
            actions = actions[None]
        parts = [x if x is None or x.ndim == 2 else x[None] for x in states]
        start, goal = parts[:4], parts[4:]
        for state, zero in zip((start, goal), self._zero, strict=True):
            if zero is not None:
                state[0] = zero
        if self._rates:
            start[self._mode.action_order], actions = actions[:, 0], actions[:, 1:]
        indices: list[Array | None] = []
        roles = (start, start_index, self._counts[0]), (goal, goal_index, self._counts[1])
        for state, index, count in roles:
            if index is None:
                indices.append(None)
                continue
            values = index.numpy(force=True) if is_torch(index) else index
            if values.size and not (values.min() >= 0 and values.max() < count):
                raise_if_any(shape_faults(inputs()))
            values = values.astype(np.int64)
            indices.append(values if self._torch is None else self._torch.from_numpy(values))
            # a part of one row is shared, whatever the index says
            state[:] = [x if x is None else repeated(x, count) for x in state]
        return Operands(actions, steps, start, goal, *indices), time

    def _clock(self, dt: Any, times: Any, inputs: Callable[[], Inputs]) -> tuple[Array, Any]:
        """Reads the steps [b, h], and the times of rows for a caller who may write into them."""
        key = values = dt if times is None else times
        if not isinstance(key, float):
            values = key.numpy(force=True) if is_torch(key) else np.asarray(key)
            key = values.tobytes() if values.nbytes <= _FEW_BYTES else None
        # Steps are checked, aligned and sent to the device only when they change. They get new
        # arrays then, as a backward pass may still need the previous ones.
        if key is None or key != self._clock_key:
            if isinstance(values, float):
                steps: Array
                fine, steps = 0.0 < values < np.inf, np.array([[values]], np.float64)
            else:
                pair = (values, None) if times is None else (None, values)
                clock = self._clock_inputs(*pair)
                fine, steps = not step_value_faults(clock), clock.steps
            if not fine:
                raise_if_any(shape_faults(inputs()))
            if not self._dt_differentiable:
                kept = self._torch is not None or np.asarray(values).nbytes <= _FEW_BYTES
                if kept and np.may_share_memory(steps, values):  # the caller may overwrite them
                    steps = np.array(steps, order="C")
                self._steps = steps
                if self._torch is not None:
                    with self._torch.inference_mode(False):  # a backward pass may need it
                        self._steps = to_torch(steps, self._device)
                if self._device == "cpu":
                    time = self._mode.row_times(steps, self._horizon, self._recorded)
                    self._time = time[0] if len(time) == 1 else time
                else:
                    layout = self._mode, self._horizon, self._recorded
                    self._time = LateTimes(*layout, float(values), self._device)
            self._clock_key = key
        if self._dt_differentiable:  # steps and times are functions of dt
            clock = self._clock_inputs(dt, times)
            return clock.steps, row_times(clock, self._device)
        steps, time = self._steps, self._time
        if key is None:  # large steps are not kept
            self._steps = self._time = None
        elif not isinstance(time, LateTimes):
            time = time.copy()
        if self._torch is not None and not isinstance(time, LateTimes):
            time = self._torch.from_numpy(time)
        return steps, time

    def _clock_inputs(self, dt: Any, times: Any) -> Inputs:
        like = np.ndarray(self._shape, np.float64, np.zeros(1), strides=(0, 0, 0))
        return Inputs(self._mode, like, {}, {}, dt, times, recorded=self._recorded)


def row_times(inputs: Inputs, device: str | None) -> Any:
    """Computes the times of the rows, as a tensor on a device if there is one."""
    dt = inputs.dt
    if device not in (None, "cpu") and isinstance(dt, np.ndarray) and dt.size == 1:
        return LateTimes(inputs.mode, inputs.horizon, inputs.recorded, float(dt.item()), device)
    time = inputs.row_times()
    if device is not None and not is_torch(time):
        time = to_torch(time, device).clone()  # a copy: small arrays on a device are cached
    return time[0] if time.shape[0] == 1 else time
