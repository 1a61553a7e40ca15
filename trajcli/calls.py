"""Integrates actions and differentiates recordings: the calls of the library."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Generic, TypedDict, overload

import numpy as np

from trajcli import _prepared
from trajcli.arrays import (
    DofChoice,
    as_array,
    dof_numbers,
    eager,
    is_torch,
    number,
    output_dtype,
    to_numpy,
    with_dofs,
)
from trajcli.commands import Commands, clique_like
from trajcli.errors import (
    Fault,
    InputError,
    UsageError,
    describe,
    raise_if_any,
    unknown,
    wrong_shape,
)
from trajcli.inputs import Inputs, nonfinite_faults, shape_faults
from trajcli.kernels.program import Array
from trajcli.mode_options import INTEGRATION
from trajcli.modes import QUANTITIES, make_method, make_mode
from trajcli.names import (
    AlignmentName,
    BackendName,
    ConventionName,
    EndsName,
    KindName,
    MethodName,
    ModeName,
    SchemeName,
)
from trajcli.padding import (
    Numbers,
    beside,
    extend_steps,
    grouped,
    joined,
    read_lengths,
    select_trajectories,
    split_at_gaps,
    with_own_steps,
    zero_padding,
)
from trajcli.trajectory import (
    State,
    StateLike,
    Trajectory,
    as_trajectory,
    state_parts,
    wanted_outputs,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor
    from typing_extensions import Never, TypeVar, Unpack

    from trajcli.trajectory import Written

    A = TypeVar("A", NDArray[Any], Tensor)
    N = TypeVar("N", default=Never, covariant=True)  # None where ``write`` is given
else:
    from typing import TypeVar

    N = TypeVar("N")

_MODE_OPTIONS = tuple(option.name for option in INTEGRATION)


class _Common(TypedDict, total=False):
    times: Array | None
    dtype: Any
    backend: BackendName | None
    allow_nonfinite: bool
    lengths: Array | None


class _Integration(_Common, total=False):
    goal: State | Array | None
    start_index: Array | None
    goal_index: Array | None
    scheme: SchemeName | None
    ends: EndsName | None
    degree: int | None
    steps: int | None
    alignment: AlignmentName | None
    convention: ConventionName | None
    commands: KindName | None
    absolute: DofChoice | None
    out: Trajectory | None


class _Differentiation(_Common, total=False):
    dt: Array | float | None
    method: MethodName | None
    window: int | str | None
    degree: int | None
    bandlimit: Array | float | None
    noise: float | None
    robust: bool
    order: int | None
    max_gap: float | None


@overload
def integrate(
    actions: A, start: StateLike = ..., dt: Array | float | None = ..., mode: ModeName = ...,
    **options: Unpack[_Integration],
) -> Trajectory[A]: ...  # fmt: skip
@overload
def integrate(
    actions: A, start: StateLike = ..., dt: Array | float | None = ..., mode: ModeName = ...,
    *, write: Written, **options: Unpack[_Integration],
) -> Trajectory[A | None]: ...  # fmt: skip
def integrate(
    actions: Array,
    start: StateLike = None,
    dt: Array | float | None = None,
    mode: ModeName = "acceleration",
    *,
    times: Array | None = None,
    goal: State | Array | None = None,
    start_index: Array | None = None,
    goal_index: Array | None = None,
    scheme: SchemeName | None = None,
    ends: EndsName | None = None,
    degree: int | None = None,
    steps: int | None = None,
    alignment: AlignmentName | None = None,
    convention: ConventionName | None = None,
    dtype: Any = None,
    write: str | Iterable[str] = QUANTITIES,
    backend: BackendName | None = None,
    allow_nonfinite: bool = False,
    lengths: Array | None = None,
    commands: KindName | None = None,
    absolute: DofChoice | None = None,
    out: Trajectory | None = None,
) -> Trajectory:
    """Integrates actions and a start state into position, velocity, acceleration and jerk.

    Everything is computed in float64 and rounded once; row 0 is the start state. Differentiable.
    Formulas: docs/modes.md. What is checked on a device and within torch.func: docs/cuda.md.

    Parameters:
        actions: [B, H, D], or [H, D] for B = 1; NumPy, or torch on a device that has float64.
        start: a ``State``, positions [B, D] or [D] as one array, or ``"zero"``.
        dt: the step in seconds, a number or an array that broadcasts to [B, H]; dt[t] ends with
            row t + 1.
        mode: what the actions are: acceleration (acc), jerk, velocity, clique (position), central,
            bspline or teleport. Recorded positions are for ``differentiate``.
        times: instead of dt, stamps of all rows, [H + 1] or [B, H + 1]; as many as actions, [H] or
            [B, H], for rates that were recorded with a stamp each (foh, from the first on: H rows).
        goal: a state like ``start``, for ``ends="goal"``.
        start_index, goal_index: [B], the row of the start, or goal, states [S, D] for each.
        scheme: euler, zoh (zero-order hold) or foh (first-order hold), of clique to jerk.
        ends: plan or goal, of central and bspline.
        degree: 3, 4 or 5, of bspline.
        steps: rows per knot interval of bspline.
        alignment: full (rows 0 to H), actions (1 to H) or curobo (0 to H − 1).
        convention: standard or curobo.
        dtype: float32 or float64; None: that of the actions (integers: float64, half: float32).
        write: the outputs to compute, one name or several; the others are None.
        backend: auto, native, triton or torch; None: what TRAJCLI_BACKEND says, else auto.
        allow_nonfinite: computes with NaN and Inf, which stay in their trajectory and dof.
        lengths: [B], how many actions each has; others are padding, which is not read. Rows behind
            are zeros.
        commands: actions of a mode of positions are delta (increments from step to step) or
            relative (offsets from the start position).
        absolute: dofs whose actions are positions in any mode: numbers, a slice or a mask [D].
        out: a ``Trajectory`` like the result, which is written to and returned; no gradients pass.

    Returns:
        A ``Trajectory`` of the library, device and dtype of the actions.

    Raises:
        InputError: shapes that do not match, steps that are not positive and finite, or NaN or Inf
            in values that are used; all faults at once.
        UsageError: an unknown mode or option.
    """
    parts = (*_parts(start), *_parts(goal))
    arrays = _prepared.Arrays(actions, dt, times, start, goal, start_index, goal_index, parts)
    options = mode, scheme, ends, degree, steps, alignment, convention
    if out is not None and any(x is not None for x in (lengths, commands, absolute)):
        what = "out= beside lengths, commands or absolute"
        raise UsageError(what, where="out", expected="none of them")
    if not isinstance(out, (Trajectory, type(None))):
        as_trajectory(out)  # raises
    if commands is not None or absolute is not None:
        return _commanded(
            arrays, options, dtype, write, backend, allow_nonfinite, lengths, commands, absolute
        )
    values = dtype, write, backend, allow_nonfinite, lengths, out
    return _trajectory(_integration, arrays, options, *values)


@overload
def differentiate(positions: A, **options: Unpack[_Differentiation]) -> Trajectory[A]: ...
@overload
def differentiate(
    positions: A, *, write: Written, **options: Unpack[_Differentiation]
) -> Trajectory[A | None]: ...
def differentiate(
    positions: Array,
    *,
    dt: Array | float | None = None,
    times: Array | None = None,
    method: MethodName | None = None,
    window: int | str | None = None,
    degree: int | None = None,
    bandlimit: Array | float | None = None,
    noise: float | None = None,
    robust: bool = False,
    order: int | None = None,
    dtype: Any = None,
    write: str | Iterable[str] = QUANTITIES,
    backend: BackendName | None = None,
    allow_nonfinite: bool = False,
    lengths: Array | None = None,
    max_gap: float | None = None,
) -> Trajectory:
    """Differentiates recorded positions into position, velocity, acceleration and jerk.

    Differentiable by positions and, but for ``smooth``, by dt and times. The gradient of ``smooth``
    is exact for the bandlimits and weights that were used; these are chosen from all rows of a dof
    at once, and are not differentiated. Formulas: docs/modes.md.

    Parameters:
        positions: [B, T, D], or [T, D] for B = 1; NumPy, or torch on a device that has float64.
        dt: the step in seconds, a number or an array that broadcasts to [B, T − 1], row 1 first;
            [T] and [B, T] have the step into row 0, which is not used, before it.
        times: instead of dt, the stamps of the rows in seconds, [T] or [B, T]. Integers are
            subtracted as integers.
        method: ``smooth`` is the smoothing spline, ``savgol`` fits local polynomials, ``central``
            takes five-point differences, which do not smooth, and ``backward`` differences of
            neighbours. None: savgol where window or degree is given, else smooth.
        window: of savgol, an odd number of rows, or seconds like "0.2s", for which steps are read
            from their device; None: "0.3s".
        degree: of savgol's polynomials, 2, 3, 4 or 5; None: 4.
        bandlimit: of smooth, the frequency in Hz above which motion is cut off, a number or an
            array that broadcasts to [B, D]. None, or NaN, chooses it for each dof of each
            trajectory by cross-validation; the options of the result have what was chosen.
        noise: of smooth, the deviation of the residuals, in the positions' unit, instead.
        robust: whether smooth lowers the weights of outliers.
        order: of the derivative that smooth penalises, 3 or 4; None: 3.
        dtype, write, backend, allow_nonfinite: as for ``integrate``.
        lengths: [B], how many rows each recording has, as for ``integrate``.
        max_gap: in seconds; where stamps of ``times`` are further apart, one trajectory ends and
            another begins. The result is a padded batch of those that have enough rows; its options
            have the ``recording`` that each is from, and its ``first_row`` there.

    Returns:
        A ``Trajectory`` with T rows, of the library, device and dtype of the positions.

    Raises:
        InputError, UsageError: as ``integrate`` does; also where dt or times of ``smooth``
            require a gradient.
    """
    arrays = _prepared.Arrays(positions, dt, times)
    options = method, window, degree, bandlimit, noise, bool(robust), order
    about: dict[str, Numbers] = {}
    if max_gap is not None:
        inputs = _differentiation(arrays, allow_nonfinite, *options)
        arrays, lengths, about = _segments(inputs, lengths, number(max_gap, "max_gap"))
        of_each: Any = bandlimit
        if np.ndim(of_each) == 2 and len(of_each) > 1:
            bandlimit = to_numpy(of_each)[about["recording"]]
            options = method, window, degree, bandlimit, noise, bool(robust), order
    values = dtype, write, backend, allow_nonfinite, lengths
    made = _trajectory(_differentiation, arrays, options, *values)
    return replace(made, options={**made.options, **about}) if about else made


@eager
def _segments(
    inputs: Inputs, lengths: Array | None, gap: float
) -> tuple[_prepared.Arrays, Numbers, dict[str, Numbers]]:
    """Returns a padded batch of the segments of recordings, the lengths, and where each is from."""
    positions, times, least = inputs.actions, inputs.times, inputs.mode.least_rows
    if times is None or not gap > 0:
        expected, found = "times=, and seconds > 0", f"{gap}" if times is not None else "no times"
        raise UsageError("not a gap", where="max_gap", expected=expected, found=found)
    batch, rows, _ = positions.shape if positions.ndim == 3 else (1, 1, 1)
    counts = np.full(batch, rows) if lengths is None else read_lengths(lengths, batch, rows)
    raise_if_any(shape_faults(extend_steps(inputs, counts, rows)))
    stamps = np.broadcast_to(to_numpy(times, "times"), (batch, rows))
    segments = [
        (k, part[0], len(part))
        for k, count in enumerate(counts)
        for part in split_at_gaps(stamps[k, :count], gap)
        if len(part) >= least
    ]
    if not segments:
        what, hint = f"no segment of {least} rows between gaps", "a larger max_gap"
        raise InputError(what, where="max_gap", hint=hint)
    recording, first, of_each = np.array(segments).T
    line, column = recording[:, None], first[:, None] + np.arange(of_each.max())
    column = column.clip(max=rows - 1)  # what is behind the end of a segment is padding
    stamps = times if times.ndim == 2 else times[None]
    taken = (x[beside(line % len(x), x), beside(column, x)] for x in (positions, stamps))
    parts = _prepared.Arrays(next(taken), None, next(taken))
    return parts, of_each, {"recording": recording, "first_row": first}


@eager
def _commanded(
    arrays: _prepared.Arrays, options: tuple[Any, ...], dtype: Any, write: Any,
    backend: str | None, allow_nonfinite: bool, lengths: Array | None, commands: str | None,
    absolute: DofChoice | None,
) -> Trajectory:  # fmt: skip
    """Returns the trajectory of actions that are increments, offsets or, of some dofs, positions:
    that of the positions they stand for, with the rows of clique for these dofs."""
    if commands not in (None, "delta", "relative"):
        raise UsageError(unknown("commands", choices="delta or relative", found=repr(commands)))
    inputs = _integration(arrays, allow_nonfinite, *options)
    raise_if_any(shape_faults(inputs, steps=False))
    dofs = () if absolute is None else dof_numbers(absolute, inputs.actions.shape[2:], "absolute")
    if dofs and inputs.rates:
        what = "absolute dofs beside rates with a time stamp each"
        raise UsageError(what, where="absolute", expected="none", hint="a call for the other dofs")
    meaning = Commands(commands, dofs)
    raise_if_any(meaning.faults(inputs.mode, "commands"), UsageError)
    dtype = dtype or output_dtype(inputs.actions.dtype)
    values = dtype, write, backend, allow_nonfinite, lengths
    positions = meaning.mode_inputs(inputs).actions
    whole = _trajectory(_integration, arrays._replace(actions=positions), options, *values)
    outputs = whole.outputs()
    if apart := meaning.clique_dofs(inputs):
        start = State(**{name: x[..., apart] for name, x in inputs.start.items()})
        given = {"actions": positions[..., apart], "start": start, "goal": None, "goal_index": None}
        some = arrays._replace(**given, parts=(*_parts(start), *_parts(None)))
        rows = clique_like(inputs.mode)
        clique = rows.name, *map(rows.options().get, _MODE_OPTIONS)
        others = _trajectory(_integration, some, clique, *values).outputs()
        outputs = {name: with_dofs(x, apart, others[name]) for name, x in outputs.items()}
    return replace(whole, **outputs, options={**whole.options, **meaning.options()})


def _trajectory(
    make: Callable[..., Inputs], arrays: _prepared.Arrays, options: tuple[Any, ...], dtype: Any,
    write: Any, backend: str | None, allow_nonfinite: bool, lengths: Array | None,
    out: Trajectory | None = None,
) -> Trajectory:  # fmt: skip
    wanted, dtype = wanted_outputs(write), _dtype_name(dtype)
    if lengths is not None:
        values = wanted, dtype, backend, allow_nonfinite
        return _padded(make, arrays, options, *values, lengths=lengths)
    about = make, arrays, options, wanted, dtype, backend, allow_nonfinite
    torch = sys.modules.get("torch")
    if torch is not None and torch.compiler.is_dynamo_compiling() and out is None:
        return Trajectory(*_prepared.compiled(*about))
    return _filled(_prepared.run(*about, out), out)


def _filled(fields: tuple[Any, ...], out: Trajectory | None) -> Trajectory:
    """Returns the trajectory of a call's fields: ``out`` where its arrays are written already."""
    if out is None:
        return Trajectory(*fields)
    vars(out).update(mode=fields[5], options=fields[6], lengths=None)
    return out


@overload
def prepare(
    shape: Sequence[int], mode: ModeName = ..., *, dt: Array | float | None = ...,
    **options: Unpack[_Integration],
) -> Integrator: ...  # fmt: skip
@overload
def prepare(
    shape: Sequence[int], mode: ModeName = ..., *, dt: Array | float | None = ..., write: Written,
    **options: Unpack[_Integration],
) -> Integrator[None]: ...  # fmt: skip
def prepare(
    shape: Sequence[int], mode: ModeName = "acceleration", *, dt: Array | float | None = None,
    **options: Any,
) -> Integrator:  # fmt: skip
    """Returns ``integrate`` for actions of one shape, which looks up its options once.

    Parameters:
        shape: (B, H, D), or (H, D) for one trajectory.
        mode, dt, options: as for ``integrate``.

    Raises:
        InputError: another number of dimensions.
        UsageError: an unknown mode or option.
    """
    from inspect import signature

    if not hasattr(shape, "__len__") or len(shape) not in (2, 3):
        found = describe(shape) if hasattr(shape, "__len__") else repr(shape)
        raise InputError("wrong shape", where="shape", expected="(B, H, D) or (H, D)", found=found)
    known = signature(integrate).parameters.keys() - {"actions", "start", "out"}
    if others := ", ".join(sorted(options.keys() - known)):
        raise UsageError(unknown("option", choices="those of integrate", found=others))
    make_mode(mode, **{name: options.get(name) for name in _MODE_OPTIONS})
    wanted_outputs(options.get("write", QUANTITIES))
    return Integrator(tuple(shape), {"mode": mode, "dt": dt, **options})


class Integrator(Generic[N]):
    """Integrates actions [B, H, D] of one shape, with the options that ``prepare`` was told.

    ``integrator(actions, start)`` returns what ``integrate`` does, for arrays of any library, type
    and device, and takes fewer microseconds as long as these stay the same. Threads may share it.
    """

    def __init__(self, shape: tuple[int, ...], options: dict[str, Any]) -> None:
        self._shape, given = shape, {name: x for name, x in options.items() if x is not None}
        self._given, get = given, given.get
        self._mode: tuple[Any, ...] = (get("mode"), *map(get, _MODE_OPTIONS))
        wanted, dtype = wanted_outputs(get("write", QUANTITIES)), _dtype_name(get("dtype"))
        self._values = wanted, dtype, get("backend"), get("allow_nonfinite", False)
        self._indices = get("start_index"), get("goal_index")
        self._quick = not given.keys() & {"lengths", "commands", "absolute"}
        self._recent = _prepared.Recent()

    def __reduce__(self) -> tuple[Any, ...]:  # what a thread has kept stays with it
        return type(self), (self._shape, self._given)

    def __repr__(self) -> str:
        shown = [describe(self._shape)]
        for name, x in self._given.items():
            shown.append(f"{name}={describe(x.shape) if hasattr(x, 'shape') else repr(x)}")
        return f"Integrator({', '.join(shown)})"

    def __call__(
        self, actions: A, start: StateLike = None, dt: Array | float | None = None, *,
        goal: State | Array | None = None, out: Trajectory | None = None,
    ) -> Trajectory[A | N]:  # fmt: skip
        """Returns ``integrate(actions, start, dt, goal=goal, out=out)`` with the options.

        dt and goal replace those that were prepared. Raises InputError for actions of another
        shape, and what ``integrate`` raises.
        """
        given = self._given
        times = given.get("times") if dt is None else None
        dt = given.get("dt") if dt is None else dt
        goal = given.get("goal") if goal is None else goal
        torch = sys.modules.get("torch")
        compiling = torch is not None and torch.compiler.is_compiling()
        if compiling or not self._quick or not (out is None or isinstance(out, Trajectory)):
            self._require_shape(actions)
            changed = {"dt": dt, "times": times, "goal": goal, "out": out}
            return integrate(actions, start, **{**given, **changed})
        parts = (*_parts(start), *_parts(goal))
        arrays = _prepared.Arrays(actions, dt, times, start, goal, *self._indices, parts)
        kinds, recent = _prepared.kinds_of(arrays), self._recent
        if recent.call is not None and kinds == recent.kinds:
            lenient, mode = self._values[3], self._mode
            fields = recent.call.run(arrays, lambda: _integration(arrays, lenient, *mode), out)
        else:
            self._require_shape(actions)
            values = self._values
            fields = _prepared.run(_integration, arrays, self._mode, *values, out, recent)
        return _filled(fields, out)

    def _require_shape(self, actions: Array) -> None:
        if (found := tuple(as_array(actions, "actions").shape)) != self._shape:
            raise InputError(wrong_shape("actions", self._shape, found))


@eager
def _padded(
    make: Callable[..., Inputs], arrays: _prepared.Arrays, options: tuple[Any, ...],
    wanted: Sequence[str], dtype: Any, backend: str | None, allow_nonfinite: bool, lengths: Array,
) -> Trajectory:  # fmt: skip
    """Returns the trajectories of a padded batch.

    A mode that is causal computes all at once, with zeros behind the last actions; another one the
    trajectories of each length by themselves, as their ends are part of its formulas.
    """
    inputs = make(arrays, allow_nonfinite, *options)
    if inputs.actions.ndim != 3:
        raise_if_any(shape_faults(inputs))
    actions = as_array(arrays.actions)
    actions = actions[None] if actions.ndim == 2 else actions
    horizon = actions.shape[1]
    counts = read_lengths(lengths, len(actions), horizon)
    # rows behind the last action go on as its own step does
    if inputs.mode.row_count(1, inputs.recorded) > 2 and counts.min(initial=horizon) < horizon:
        inputs = with_own_steps(inputs)
    clock = extend_steps(inputs, counts, horizon)
    clean = arrays._replace(actions=zero_padding(actions, counts), dt=clock.dt, times=clock.times)
    whole = make(clean, allow_nonfinite, *options)
    rows = [whole.mode.row_count(count - whole.rates, whole.recorded) for count in counts.tolist()]
    own = beside(np.array(rows, np.int64), actions)
    if whole.mode.causal and not whole.recorded:  # whose first rows are differences of later ones
        *outputs, time, name, chosen = _prepared.run(
            make, clean, options, wanted, dtype, backend, allow_nonfinite
        )
        p, v, a, j = (None if x is None else zero_padding(x, np.array(rows)) for x in outputs)
        return Trajectory(p, v, a, j, time, name, chosen, own)
    # the faults of all are numbered as the caller numbers them
    raise_if_any([*shape_faults(whole), *([] if allow_nonfinite else nonfinite_faults(whole))])
    whole.program()
    groups = grouped(counts)
    parts = [select_trajectories(whole, numbers, int(counts[numbers[0]])) for numbers in groups]
    of_parts = [_prepared.run_once(part, wanted, dtype, backend) for part in parts]
    *of_each, _, names, options_of_parts = zip(*of_parts, strict=True)
    p, v, a, j = (None if x[0] is None else joined(x, groups, whole.rows) for x in of_each)
    time = _prepared.row_times(whole, str(actions.device) if is_torch(actions) else None)
    # what the values decide for each dof is [B, D]
    chosen = {
        key: joined([x[key] for x in options_of_parts], groups) if np.ndim(value) == 2 else value
        for key, value in options_of_parts[0].items()
    }
    return Trajectory(p, v, a, j, time, names[0], chosen, own)


def _integration(
    arrays: _prepared.Arrays, allow_nonfinite: bool, mode: str, scheme: str | None,
    ends: str | None, degree: int | None, steps: int | None, alignment: str | None,
    convention: str | None,
) -> Inputs:  # fmt: skip
    """Returns the inputs of integrate."""
    start = arrays.start
    if isinstance(start, str) and start != "zero":
        raise UsageError(_recording("start", "zero or a State", start))
    if ends == "recording":
        raise UsageError(_recording("ends", "plan or goal", ends))
    made = make_mode(
        mode, scheme=scheme, ends=ends, degree=degree, steps=steps, alignment=alignment,
        convention=convention,
    )  # fmt: skip
    if not made.takes_start:
        raise UsageError(_recording("mode", "a mode that has a start state", mode))
    actions = as_array(arrays.actions, "actions")
    actions = actions[None] if actions.ndim == 2 else actions
    inputs = Inputs(
        mode=made,
        actions=actions,
        start=state_parts(start, "start", actions.shape[-1:]),
        goal=state_parts(arrays.goal, "goal", actions.shape[-1:]),
        dt=_optional(arrays.dt, "dt"),
        times=_optional(arrays.times, "times"),
        start_index=_optional(arrays.start_index, "start_index"),
        goal_index=_optional(arrays.goal_index, "goal_index"),
        allow_nonfinite=allow_nonfinite,
    )
    stamps = actions.ndim == 3 and inputs.times is not None and inputs.times.shape[-1:]
    of_rates = stamps and stamps[0] == inputs.horizon > 1
    if of_rates and made.action_order:
        inputs = replace(inputs, mode=made.trapezoidal({"scheme": scheme}))
        inputs = inputs.start_from_rates(actions[:, 1:], actions[:, 0])
    return inputs


def _differentiation(
    arrays: _prepared.Arrays, allow_nonfinite: bool, method: str | None, window: int | str | None,
    degree: int | None, bandlimit: Any, noise: float | None, robust: bool, order: int | None,
) -> Inputs:  # fmt: skip
    """Returns the inputs of differentiate."""
    made = make_method(
        method, window=window, degree=degree, bandlimit=bandlimit, noise=noise, robust=robust,
        order=order,
    )  # fmt: skip
    positions = as_array(arrays.actions, "positions")
    return Inputs(
        mode=made,
        actions=positions[None] if positions.ndim == 2 else positions,
        start={},
        goal={},
        dt=_optional(arrays.dt, "dt"),
        times=_optional(arrays.times, "times"),
        recorded=True,
        allow_nonfinite=allow_nonfinite,
        names={"actions": "positions"},
    )


def _parts(state: Any) -> tuple[Any, ...]:
    """Returns position, velocity, acceleration and jerk of a start or goal state."""
    if state is None or isinstance(state, str):
        return (None,) * 4
    if isinstance(state, State):
        return state.position, state.velocity, state.acceleration, state.jerk
    return state, None, None, None


def _recording(where: str, expected: str, found: str) -> Fault:
    """Returns the fault of a recording given to integrate."""
    hint = "trajcli.differentiate(positions, dt=...) takes recorded positions"
    return unknown(where, choices=expected, found=repr(found), hint=hint)


def _optional(values: Any, where: str) -> Array | None:
    return None if values is None else as_array(values, where)


def _dtype_name(dtype: Any) -> Any:
    """Returns "float32" for numpy.float32 and torch.float32, and so on; anything else unchanged."""
    if dtype is None or isinstance(dtype, str):
        return dtype
    name = getattr(dtype, "__name__", str(dtype)).removeprefix("torch.")
    return name if name in _prepared.DTYPES else dtype
