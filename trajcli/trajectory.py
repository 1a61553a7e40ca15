"""From actions, start state and dt to trajectories: the library call and its checks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np

from trajcli.arrays import is_torch, to_torch
from trajcli.checks import as_array
from trajcli.errors import Fault, UsageError, raise_if_any
from trajcli.input_checks import nonfinite_faults, shape_faults
from trajcli.inputs import Inputs
from trajcli.kernels.choose import Choice, choose
from trajcli.modes import PARTS, Mode, make_mode

Array = Any
"""numpy.ndarray or torch.Tensor."""

DTYPES = ("float32", "float64")
"""What outputs can be."""


@dataclass(frozen=True)
class State:
    """A start or goal state: position and, where not zero, velocity, acceleration and jerk.

    Each part is [B, D] (or [S, D] with a start index), or [D] when all trajectories share it;
    in rad or m, per s, s² and s³.
    """

    position: Array
    velocity: Array | None = None
    acceleration: Array | None = None
    jerk: Array | None = None

    def parts(self) -> dict[str, Array]:
        """The parts that are given, by name."""
        return {name: getattr(self, name) for name in PARTS if getattr(self, name) is not None}


@dataclass(frozen=True)
class Trajectory:
    """What :func:`integrate` returns: the outputs asked for [B, T, D] and the time of the rows.

    ``time`` is float64 [T], or [B, T] where trajectories have steps of their own, in seconds
    from the start (NumPy for NumPy input, torch for torch).
    """

    position: Array | None
    velocity: Array | None
    acceleration: Array | None
    jerk: Array | None
    time: Array
    mode: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)


StateLike = State | Array | Literal["zero", "first"] | None


def integrate(
    actions: Array,
    start: StateLike = None,
    dt: Array | float | None = None,
    mode: str = "acceleration",
    *,
    times: Array | None = None,
    goal: State | Array | None = None,
    start_index: Array | None = None,
    goal_index: Array | None = None,
    scheme: str | None = None,
    ends: str | None = None,
    degree: int | None = None,
    steps: int | None = None,
    frames: str | None = None,
    convention: str | None = None,
    dtype: str | None = None,
    write: Iterable[str] = PARTS,
    backend: str = "auto",
    allow_nonfinite: bool = False,
) -> Trajectory:
    """Integrate actions into position, velocity, acceleration and jerk.

    actions [B, H, D], or [H, D] for one trajectory (B = 1): NumPy or torch on any device with
    float64. start: a :class:`State`, a position [B, D] or [D], ``"zero"``, or ``"first"`` where
    the actions are recorded positions. dt: the step in seconds, a number or an array that
    broadcasts to [B, H]; or ``times``, the time stamps of all rows [H + 1] or [B, H + 1] (a
    recording: [H] or [B, H]). With ``start_index`` [B], trajectory b starts at row
    start_index[b] of the start state; ``goal`` and ``goal_index`` alike. The other options
    belong to the modes; one that is not given takes the mode's default. ``write``: which
    outputs to compute.

    Returns a :class:`Trajectory` of the input's library, device and dtype (integers give
    float64, half precision float32; ``dtype`` says otherwise). Sums are exact to about 100
    bits and rounded once. Row 0 is the start state.

    Raises InputError, with every fault found, for shapes that do not match, dt that is not
    positive and finite, and NaN or Inf in the input unless ``allow_nonfinite``; UsageError for
    unknown modes and options. Formulas: README, "Modes".

    On a CUDA device the work is done on the current stream. The host waits for it only to check
    values and to send numbers and NumPy arrays, those of up to 64 KiB once. With
    ``allow_nonfinite``, and while a CUDA graph is captured (after one call to warm up), no values
    on the device are checked: a start or goal index out of range gives NaN there, a dt that is not
    positive what the formulas give.
    """
    options = {
        "scheme": scheme,
        "ends": ends,
        "degree": degree,
        "steps": steps,
        "frames": frames,
        "convention": convention,
    }
    chosen = make_mode(mode, **options)
    wanted = _wanted(write)
    inputs = _inputs(chosen, actions, start, dt, times, goal, start_index, goal_index)
    inputs = replace(inputs, trusted=allow_nonfinite)
    raise_if_any(shape_faults(inputs))
    if not allow_nonfinite:
        raise_if_any(nonfinite_faults(inputs))
    if dtype not in (None, *DTYPES):
        raise UsageError(Fault("unknown dtype", "dtype", " or ".join(DTYPES), repr(dtype)))
    kind = dtype or output_dtype(inputs.actions)
    tensors = [value for value in inputs.arrays() if is_torch(value)]
    device = str(tensors[0].device) if tensors else "cpu"
    choice = choose(device, backend)
    if tensors:
        outputs = _differentiable(inputs, choice, device, kind)
        time = to_torch(_timed(inputs, device).row_times(), device)
    else:
        outputs = inputs.compute(choice, kind, wanted)
        time = inputs.row_times()
    return Trajectory(
        **{name: outputs[name] if name in wanted else None for name in PARTS},
        time=time[0] if time.shape[0] == 1 else time,
        mode=chosen.name,
        options=chosen.options(inputs.recorded),
    )


def _differentiable(inputs: Inputs, choice: Choice, device: str, dtype: str) -> dict[str, Any]:
    import torch

    from trajcli.autograd import run_differentiable

    # torch.compile must not take the kernels' error-free sums apart: they run as they are.
    run = torch.compiler.disable(run_differentiable)  # type: ignore[no-untyped-call]
    program = inputs.program(device, gathers=choice.backend == "triton")
    outputs = run(program, choice.kernels, getattr(torch, dtype))
    return dict(zip(PARTS, outputs, strict=True))


def _timed(inputs: Inputs, device: str) -> Inputs:
    """The same with one dt for all on the device, so that no times have to be sent there."""
    one = inputs.dt is not None and not is_torch(inputs.dt) and inputs.dt.size == 1
    return replace(inputs, dt=to_torch(inputs.dt, device)) if one else inputs


def _wanted(write: Iterable[str]) -> list[str]:
    names = list(write)
    unknown = [name for name in names if name not in PARTS]
    if unknown or not names:
        raise UsageError(Fault("unknown output", "write", ", ".join(PARTS), repr(unknown or names)))
    return [name for name in PARTS if name in names]


def output_dtype(actions: Array) -> str:
    """float32 for float32 and half precision, float64 for float64 and integers."""
    name = str(actions.dtype).removeprefix("torch.")
    return "float32" if name in ("float32", "float16", "bfloat16") else "float64"


def _inputs(
    mode: Mode,
    actions: Array,
    start: StateLike,
    dt: Array | float | None,
    times: Array | None,
    goal: State | Array | None,
    start_index: Array | None,
    goal_index: Array | None,
) -> Inputs:
    """Arrays as people pass them, given their full rank."""
    actions = as_array(actions)
    if actions.ndim == 2:
        actions = actions[None]
    recorded = isinstance(start, str) and start == "first"
    if getattr(mode, "ends", None) == "recording" and start is None:
        recorded = True
    parts: dict[str, Array] = {}
    if isinstance(start, str):
        if start not in ("zero", "first"):
            raise UsageError(Fault("unknown start", "start", "zero, first or a State", start))
        if start == "zero":
            parts = {"position": np.zeros((1, *actions.shape[-1:]))}
    elif start is not None:
        parts = _parts(start)
    return Inputs(
        mode=mode,
        actions=actions,
        start=parts,
        goal={} if goal is None else _parts(goal),
        dt=None if dt is None else as_array(dt),
        times=None if times is None else as_array(times),
        start_index=None if start_index is None else as_array(start_index),
        goal_index=None if goal_index is None else as_array(goal_index),
        recorded=recorded,
    )


def _parts(state: State | Array) -> dict[str, Array]:
    given = state.parts() if isinstance(state, State) else {"position": state}
    arrays = {name: as_array(values) for name, values in given.items()}
    return {name: v[None] if v.ndim == 1 else v for name, v in arrays.items()}
