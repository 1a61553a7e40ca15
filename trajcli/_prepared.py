"""Repeated calls of integrate with the same shapes and options, as an optimiser makes them.

The first such call caches what depends on shapes and options alone: checks, the program, tables,
the filled structure of the compiled kernels. A later one allocates the outputs and runs, and the
kernels report inputs that are not finite. The bits are the same.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import numpy as np

from trajcli.arrays import (
    capturing,
    current_stream,
    empty,
    is_finite,
    is_torch,
    keep_for_graphs,
    to_torch,
)
from trajcli.inputs import Inputs, LateTimes
from trajcli.kernels.choose import Choice
from trajcli.kernels.program import Array, Gradients, Operands, Parts, Program
from trajcli.modes import QUANTITIES

_CACHE_SIZE = 64
_FLOATS = {np.dtype(np.float32), np.dtype(np.float64)}


def key_of(actions: Any, start: Any, dt: Any, about: tuple[Any, ...]) -> Any:
    """Returns what decides how a call is computed: libraries, types, shapes, options ``about``, and
    a device's stream.

    None for a call that is not cached: arrays that are not float32 or float64, C contiguous, in the
    memory of the CPU or of one CUDA device, a dt that is not a number, tensors within torch.func
    or without memory, and what is traced or captured: that is recorded, not computed.
    """
    if not isinstance(dt, float):
        return None
    arrays = (actions, *parts_of(start))
    if is_torch(actions):
        from trajcli import autograd

        if autograd.needs_torch() or capturing(actions.device) or not autograd.addressable(arrays):
            return None
        if actions.is_cuda:  # another stream would not wait for what this one fills
            about = (*about, current_stream(actions.device))
    kinds = tuple([x if x is None else _kind(x) for x in arrays])
    library = kinds[0] and kinds[0][0]
    if any(x is not None and (not x or x[0] != library) for x in kinds):
        return None
    return kinds, start if isinstance(start, str) else "", about


def parts_of(start: Any) -> tuple[Any, ...]:
    """Returns four parts of a start state: of a State, a position, or none."""
    if start is None or isinstance(start, str):
        return (None,) * 4
    if hasattr(start, "jerk"):
        return start.position, start.velocity, start.acceleration, start.jerk
    return start, None, None, None


def _kind(array: Any) -> tuple[Any, ...]:
    """Returns library, type and shape of an array that kernels read in place; () for others."""
    if type(array) is np.ndarray:
        flags = array.flags
        plain = array.dtype in _FLOATS and flags.c_contiguous and flags.aligned
        return ("numpy", array.dtype, array.shape) if plain else ()
    if is_torch(array) and (array.is_cpu or array.is_cuda) and array.is_contiguous():
        plain = array.dtype.is_floating_point and array.dtype.itemsize >= 4 and not array.is_neg()
        return (array.device, array.dtype, array.shape) if plain else ()
    return ()


class _Cache(threading.local):
    """The calls of a thread: a structure serves one call at a time."""

    def __init__(self) -> None:
        self.calls: dict[Any, PreparedCall | DeviceCall] = {}


_cache = _Cache()


def lookup(key: Any) -> PreparedCall | DeviceCall | None:
    """Returns the cached call of this key, if there is one."""
    try:
        return _cache.calls.get(key)
    except TypeError:  # an option that has no hash
        return None


def store(key: Any, call: PreparedCall | DeviceCall) -> None:
    """Caches a call."""
    calls = _cache.calls
    if len(calls) >= _CACHE_SIZE:
        del calls[next(iter(calls))]  # the oldest
    calls[key] = call


class CheckingKernels:
    """The compiled kernels, which set ``finite`` to whether all inputs of the first run were
    finite; those of later ones are derivatives, which may be NaN."""

    def __init__(self, kernels: Any) -> None:
        self._forward, self.adjoint = kernels.forward, kernels.adjoint
        self.finite: bool | None = None

    def forward(self, program: Program, operands: Operands, out: Parts) -> None:
        """As :func:`trajcli.kernels.native.forward`."""
        finite = self._forward(program, operands, out, allow_nonfinite=self.finite is not None)
        self.finite = finite if self.finite is None else self.finite


class PreparedCall:
    """A call for certain shapes and options. autograd runs it as it runs kernels.

    It refers to no array of the first call, but for the start state if that is ``zero``.
    """

    def __init__(
        self, inputs: Inputs, dtype: str, wanted: Sequence[str], allow_nonfinite: bool, zero: bool
    ) -> None:
        from trajcli.kernels import native

        operands = inputs.operands()
        batch, _, dofs = operands.actions.shape
        self._native, self._address = native, native.address
        self._program = inputs.program()
        self._mode, self._horizon, self._recorded = inputs.mode, inputs.horizon, inputs.recorded
        self._options = inputs.mode.options(inputs.recorded)
        self._shape, self._dtype = (batch, inputs.rows, dofs), dtype
        self._wanted = tuple([name in wanted for name in QUANTITIES])
        start = [x if x is None or zero else _without_memory(x) for x in operands.start]
        self._default = [x if x is None else self._address(x) for x in start]
        self._operands = operands._replace(actions=_without_memory(operands.actions), start=start)
        nothing = np.empty(0, dtype)
        out = [_without_memory(nothing, self._shape) if want else None for want in self._wanted]
        self._forward = native.Forward(self._program, self._operands, out, allow_nonfinite)
        self._adjoints: dict[Any, Any] = {}
        self._finite = True
        self._torch: Any = None
        self._take_step(float(operands.dt[0, 0]))

    def _take_step(self, dt: float) -> None:
        """Uses another dt, in a new array: a backward pass may still need the previous one."""
        self._dt, self._step = dt, np.array([[dt]])
        self._forward.step_at(self._address(self._step))
        self._time = self._mode.row_times(self._step, self._horizon, self._recorded)[0]
        self._torch = None

    def run(self, actions: Array, start: Sequence[Array | None], dt: Any) -> Any:
        """The fields of a Trajectory. None if an input is not finite or dt is not positive: then
        the general path is taken."""
        if dt != self._dt:
            if not 0.0 < dt < np.inf:
                return None
            self._take_step(float(dt))
        if type(actions) is np.ndarray:
            rows = [empty(self._shape, self._dtype) if x else None for x in self._wanted]
            self._forward.at(
                self._address(actions),
                self._addresses(start),
                [x if x is None else self._address(x) for x in rows],
            )
            if not self._forward.run():
                return None
            time = self._time.copy()
        else:
            rows, time = self._of_torch(actions, start)
            if not self._finite:
                return None
        return *rows, time, self._mode.name, dict(self._options)

    def _of_torch(self, actions: Any, start: Sequence[Any]) -> Any:
        import torch

        from trajcli import autograd

        if self._torch is None:
            with torch.inference_mode(False):  # a backward pass may need it
                step = torch.from_numpy(self._step)
            dtype = getattr(torch, self._dtype)
            task = autograd.Task(self._program, self, self._native, dtype, self._wanted)
            self._torch = task, step
        actions = actions[None] if actions.dim() == 2 else actions
        start = [x[None] if x is not None and x.dim() == 1 else x for x in start]
        rows = autograd.Integrate.apply(*self._torch, actions, *start, *(None,) * 4)
        return rows, torch.from_numpy(self._time.copy())

    def _addresses(self, start: Sequence[Any]) -> list[int | None]:
        return [
            default if part is None else self._address(part)
            for part, default in zip(start, self._default, strict=True)
        ]

    def forward(self, program: Program, operands: Operands, out: Parts) -> None:
        """As :func:`trajcli.kernels.native.forward`, for arrays of the first call's layout."""
        places = [None if x is None else x.data_ptr() for x in out]
        start = self._addresses(operands.start)
        self._forward.at(operands.actions.data_ptr(), start, places)
        self._finite = self._forward.run()

    def adjoint(
        self, program: Program, operands: Operands, upstream: Parts, gradients: Gradients
    ) -> None:
        """As :func:`trajcli.kernels.native.adjoint`."""
        arrays = (*upstream, gradients.actions, *gradients.start)
        if not all(x is None or x.is_contiguous() for x in arrays):
            self._native.adjoint(program, operands, upstream, gradients)
            return
        at = [None if x is None else x.data_ptr() for x in arrays]
        # a backward pass may run in another thread than its forward pass
        key = threading.get_ident(), *[None if x is None else x.dtype for x in arrays]
        call = self._adjoints.get(key)
        if call is None:
            call = self._native.Adjoint(program, self._operands, upstream, gradients)
            self._adjoints[key] = call
        call.at(at[:4], at[4], at[5:])
        call.step_at(operands.dt.data_ptr())
        call.run()


class DeviceCall:
    """A call for tensors on a CUDA device, by Triton's kernels."""

    def __init__(
        self, inputs: Inputs, choice: Choice, dtype: str, wanted: Sequence[str], zero: bool
    ) -> None:
        import torch

        from trajcli import autograd
        from trajcli.kernels import triton_ops

        self._launch, self._apply = triton_ops, autograd.Integrate.apply
        operands, self._program = inputs.operands(choice.device), inputs.program()
        self._mode, self._horizon, self._recorded = inputs.mode, inputs.horizon, inputs.recorded
        self._options = inputs.mode.options(inputs.recorded)
        self._allow_nonfinite, self._device = inputs.allow_nonfinite, operands.actions.device
        self._start = operands.start if zero else (None,) * 4
        # parts for all trajectories beside parts for each: kernels read as many rows of all
        self._mixed = len({len(x) for x in operands.start if x is not None}) > 1
        names = tuple([name in wanted for name in QUANTITIES])
        self._task = autograd.Task(
            self._program, self, choice.kernels, getattr(torch, dtype), names
        )
        self._forward: Any = None
        self._adjoints: dict[Any, Any] = {}
        self._take_step(float(operands.dt[0, 0]) if inputs.dt is None else float(inputs.dt))

    def _take_step(self, dt: float) -> None:
        device = str(self._device)
        self._step = to_torch(np.array([[dt]]), device)
        self._time = LateTimes(self._mode, self._horizon, self._recorded, dt, device)
        self._dt = dt

    def run(self, actions: Array, start: Sequence[Array | None], dt: Any) -> Any:
        """As :meth:`PreparedCall.run`."""
        if dt != self._dt:
            if not 0.0 < dt < np.inf:
                return None
            self._take_step(float(dt))
        if not (
            self._allow_nonfinite or is_finite([x for x in (actions, *start) if x is not None])
        ):
            return None
        actions = actions[None] if actions.dim() == 2 else actions
        start = [
            default if x is None else x[None] if x.dim() == 1 else x
            for x, default in zip(start, self._start, strict=True)
        ]
        rows = self._apply(self._task, self._step, actions, *start, *(None,) * 4)
        return *rows, self._time, self._mode.name, dict(self._options)

    def forward(self, program: Program, operands: Operands, out: Parts) -> None:
        """As :func:`trajcli.kernels.triton_ops.forward`."""
        if self._forward is None:
            self._forward = self._launch.forward_launch(program, operands, out).without_tensors()
        start = operands.start
        if self._mixed:
            start = self._launch.state("start", start, None)["start"]
        self._forward(operands.actions, start, operands.dt, out)

    def adjoint(
        self, program: Program, operands: Operands, upstream: Parts, gradients: Gradients
    ) -> None:
        """As :func:`trajcli.kernels.triton_ops.adjoint`."""
        if capturing(self._device):  # the forward pass ran before the capture
            keep_for_graphs(operands.dt)
            self._launch.adjoint(program, operands, upstream, gradients)
            return
        upstream = [x if x is None else x.contiguous() for x in upstream]
        arrays = (*upstream, gradients.actions, *gradients.start)
        key = tuple([None if x is None else x.dtype for x in arrays])
        call = self._adjoints.get(key)
        if call is None:
            call = self._launch.adjoint_launch(program, operands, upstream, gradients)
            self._adjoints[key] = call.without_tensors()
        call(gradients.actions, gradients.start, operands.dt, upstream)


def _without_memory(array: Any, shape: tuple[int, ...] | None = None) -> Any:
    """Returns an array of this type and shape, or another shape, C contiguous, without memory."""
    shape = array.shape if shape is None else shape
    size = array.dtype.itemsize
    strides = [size * int(np.prod(shape[k + 1 :], dtype=np.int64)) for k in range(len(shape))]
    return np.lib.stride_tricks.as_strided(np.zeros(1, array.dtype), shape, strides)
