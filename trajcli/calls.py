"""Integrates actions and differentiates recordings: the calls of the library."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Generic, NoReturn, TypedDict, overload

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
    replace_dofs,
    to_numpy,
)
from trajcli.commands import Commands, clique_like
from trajcli.errors import (
    InputError,
    UsageError,
    describe,
    raise_if_any,
    unknown,
    wrong_shape,
)
from trajcli.inputs import Inputs, nonfinite_faults, repeated, shape_faults
from trajcli.kernels.program import Array, ArrayLike
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
    extend_steps,
    group_by_length,
    index_array,
    merge_groups,
    read_lengths,
    select_trajectories,
    split_at_gaps,
    zero_padding,
)
from trajcli.trajectory import (
    State,
    StateLike,
    Trajectory,
    as_trajectory,
    output_names,
    state_parts,
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


# What the calls take in their overloads besides the arguments that these name.
class _Common(TypedDict, total=False):
    times: ArrayLike | None
    dtype: Any
    backend: BackendName | None
    allow_nonfinite: bool
    lengths: ArrayLike | None


class _Integration(_Common, total=False):
    goal: State | ArrayLike | None
    start_index: ArrayLike | None
    goal_index: ArrayLike | None
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
    dt: ArrayLike | float | None
    method: MethodName | None
    window: int | str | None
    degree: int | None
    bandlimit: ArrayLike | float | None
    noise: float | None
    robust: bool
    order: int | None
    max_gap: float | None


@overload
def integrate(
    actions: A, start: StateLike = ..., dt: ArrayLike | float | None = ..., mode: ModeName = ...,
    **options: Unpack[_Integration],
) -> Trajectory[A]: ...  # fmt: skip
@overload
def integrate(
    actions: A, start: StateLike = ..., dt: ArrayLike | float | None = ..., mode: ModeName = ...,
    *, write: Written, **options: Unpack[_Integration],
) -> Trajectory[A | None]: ...  # fmt: skip
def integrate(
    actions: ArrayLike,
    start: StateLike = None,
    dt: ArrayLike | float | None = None,
    mode: ModeName = "acceleration",
    *,
    times: ArrayLike | None = None,
    goal: State | ArrayLike | None = None,
    start_index: ArrayLike | None = None,
    goal_index: ArrayLike | None = None,
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
    lengths: ArrayLike | None = None,
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
    # these compute on copies, of which no output is the caller's array
    if out is not None and any(x is not None for x in (lengths, commands, absolute)):
        what = "out= with lengths, commands or absolute"
        raise UsageError(what, where="out", expected="none of them")
    if not isinstance(out, (Trajectory, type(None))):
        as_trajectory(out)  # raises
    if commands is not None or absolute is not None:
        return _commanded(
            arrays, options, dtype, write, backend, allow_nonfinite, lengths, commands, absolute
        )
    # the options stay a tuple: with the layouts of arrays it is the key of calls that are kept
    values = dtype, write, backend, allow_nonfinite, lengths, out
    return _trajectory(_integration, arrays, options, *values)


@overload
def differentiate(positions: A, **options: Unpack[_Differentiation]) -> Trajectory[A]: ...
@overload
def differentiate(
    positions: A, *, write: Written, **options: Unpack[_Differentiation]
) -> Trajectory[A | None]: ...
def differentiate(
    positions: ArrayLike,
    *,
    dt: ArrayLike | float | None = None,
    times: ArrayLike | None = None,
    method: MethodName | None = None,
    window: int | str | None = None,
    degree: int | None = None,
    bandlimit: ArrayLike | float | None = None,
    noise: float | None = None,
    robust: bool = False,
    order: int | None = None,
    dtype: Any = None,
    write: str | Iterable[str] = QUANTITIES,
    backend: BackendName | None = None,
    allow_nonfinite: bool = False,
    lengths: ArrayLike | None = None,
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
    origin: dict[str, Numbers] = {}
    if max_gap is not None:
        inputs = _differentiation(arrays, allow_nonfinite, *options)
        arrays, lengths, origin = _segments(inputs, lengths, number(max_gap, "max_gap"))
        limits: Any = bandlimit
        if np.ndim(limits) == 2 and len(limits) > 1:
            # each segment has the bandlimits of the recording that it is a part of
            bandlimit = to_numpy(limits)[origin["recording"]]
            options = method, window, degree, bandlimit, noise, bool(robust), order
    values = dtype, write, backend, allow_nonfinite, lengths
    result = _trajectory(_differentiation, arrays, options, *values)
    return replace(result, options={**result.options, **origin}) if origin else result


@eager
def _segments(
    inputs: Inputs, lengths: ArrayLike | None, gap: float
) -> tuple[_prepared.Arrays, Numbers, dict[str, Numbers]]:
    """Cuts recordings at gaps: a padded batch of segments, their lengths and their origins."""
    positions, times, least = inputs.actions, inputs.times, inputs.mode.least_rows
    if times is None or not gap > 0:
        expected, found = "times=, and seconds > 0", f"{gap}" if times is not None else "no times"
        raise UsageError("not a gap", where="max_gap", expected=expected, found=found)
    batch, rows, _ = positions.shape if positions.ndim == 3 else (1, 1, 1)
    counts = np.full(batch, rows) if lengths is None else read_lengths(lengths, batch, rows)
    # stamps in the padding are not read, so they are replaced before stamps are checked
    raise_if_any(shape_faults(extend_steps(inputs, counts, rows)))
    table = np.broadcast_to(to_numpy(times, "times"), (batch, rows))
    segments = [
        (k, part[0], len(part))
        for k, count in enumerate(counts)
        for part in split_at_gaps(table[k, :count], gap)
        if len(part) >= least
    ]
    if not segments:
        what, hint = f"no segment of {least} rows between gaps", "a larger max_gap"
        raise InputError(what, where="max_gap", hint=hint)
    # segments become lines of one batch, read by row numbers that stop at the last row
    recording, first, counts = np.array(segments).T
    line, column = recording[:, None], first[:, None] + np.arange(counts.max())
    column = column.clip(max=rows - 1)  # behind the end of a segment is padding
    stamps = times if times.ndim == 2 else times[None]
    positions, stamps = (
        x[index_array(line % len(x), x), index_array(column, x)] for x in (positions, stamps)
    )
    arrays = _prepared.Arrays(positions, None, stamps)
    return arrays, counts, {"recording": recording, "first_row": first}


@eager
def _commanded(
    arrays: _prepared.Arrays, options: tuple[Any, ...], dtype: Any, write: Any,
    backend: str | None, allow_nonfinite: bool, lengths: ArrayLike | None, commands: str | None,
    absolute: DofChoice | None,
) -> Trajectory:  # fmt: skip
    """Integrates actions that are increments, offsets or, for some dofs, positions."""
    if commands not in (None, "delta", "relative"):
        raise UsageError(unknown("commands", choices="delta or relative", found=repr(commands)))
    inputs = _integration(arrays, allow_nonfinite, *options)
    raise_if_any(shape_faults(inputs, steps=False))
    dofs = () if absolute is None else dof_numbers(absolute, inputs.actions.shape[2:], "absolute")
    if dofs and inputs.rates:
        what = "absolute dofs among rates with a time stamp each"
        raise UsageError(what, where="absolute", expected="none", hint="a call for the other dofs")
    meaning = Commands(commands, dofs)
    raise_if_any(meaning.faults(inputs.mode, "commands"), UsageError)
    # positions are float64 sums, which must not decide the type of outputs
    dtype = dtype or output_dtype(inputs.actions.dtype)
    values = dtype, write, backend, allow_nonfinite, lengths
    positions = meaning.mode_inputs(inputs).actions
    result = _trajectory(_integration, arrays._replace(actions=positions), options, *values)
    outputs: dict[str, Any] = result.outputs()
    if clique_dofs := meaning.clique_dofs(inputs):
        # a second call computes these dofs alone; the first has computed them as rates, in vain
        start = State(**{name: x[..., clique_dofs] for name, x in inputs.start.items()})
        clique = clique_like(inputs.mode)
        clique_options = clique.name, *map(clique.options().get, _MODE_OPTIONS)
        parts = (*_parts(start), *_parts(None))
        arrays = arrays._replace(actions=positions[..., clique_dofs], start=start, parts=parts)
        arrays = arrays._replace(goal=None, goal_index=None)
        others = _trajectory(_integration, arrays, clique_options, *values).outputs()
        outputs = {name: replace_dofs(x, clique_dofs, others[name]) for name, x in outputs.items()}
    return replace(result, **outputs, options={**result.options, **meaning.options()})


def _trajectory(
    make: Callable[..., Inputs], arrays: _prepared.Arrays, options: tuple[Any, ...], dtype: Any,
    write: Any, backend: str | None, allow_nonfinite: bool, lengths: ArrayLike | None,
    out: Trajectory | None = None,
) -> Trajectory:  # fmt: skip
    """Computes a batch: padded, within torch.compile, or by a call that is kept for others."""
    write, dtype = output_names(write), _dtype_name(dtype)
    call = make, arrays, options, write, dtype, backend, allow_nonfinite
    if lengths is not None:
        return _padded(*call, lengths=lengths)
    torch = sys.modules.get("torch")
    if torch is not None and torch.compiler.is_dynamo_compiling() and out is None:
        return Trajectory(*_prepared.compiled(*call))
    return _filled(_prepared.run(*call, out), out)


def _filled(fields: tuple[Any, ...], out: Trajectory | None) -> Trajectory:
    """Makes a trajectory of a call's fields: ``out`` where its arrays are written already."""
    if out is None:
        return Trajectory(*fields)
    # a Trajectory is frozen for its users
    vars(out).update(mode=fields[5], options=fields[6], lengths=None)
    return out


@overload
def prepare(
    shape: Sequence[int], mode: ModeName = ..., *, dt: ArrayLike | float | None = ...,
    **options: Unpack[_Integration],
) -> Integrator: ...  # fmt: skip
@overload
def prepare(
    shape: Sequence[int], mode: ModeName = ..., *, dt: ArrayLike | float | None = ...,
    write: Written,
    **options: Unpack[_Integration],
) -> Integrator[None]: ...  # fmt: skip
def prepare(
    shape: Sequence[int], mode: ModeName = "acceleration", *, dt: ArrayLike | float | None = None,
    **options: Any,
) -> Integrator:  # fmt: skip
    """Makes ``integrate`` for actions of one shape, which looks up its options once.

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
    # mistakes are reported here, where the options are written, and not at the first call
    known = signature(integrate).parameters.keys() - {"actions", "start", "out"}
    if others := ", ".join(sorted(options.keys() - known)):
        raise UsageError(unknown("option", choices="those of integrate", found=others))
    make_mode(mode, **{name: options.get(name) for name in _MODE_OPTIONS})
    output_names(options.get("write", QUANTITIES))
    return Integrator(tuple(shape), {"mode": mode, "dt": dt, **options})


class Integrator(Generic[N]):
    """Integrates actions [B, H, D] of one shape, with the options that ``prepare`` was given.

    ``integrator(actions, start)`` returns what ``integrate`` does, for arrays of any library, type
    and device, and takes fewer microseconds as long as these stay the same. Threads may share it.
    """

    def __init__(self, shape: tuple[int, ...], options: dict[str, Any]) -> None:
        self._shape, options = shape, {name: x for name, x in options.items() if x is not None}
        self._options, get = options, options.get
        self._mode: tuple[Any, ...] = (get("mode"), *map(get, _MODE_OPTIONS))
        write, dtype = output_names(get("write", QUANTITIES)), _dtype_name(get("dtype"))
        self._values = write, dtype, get("backend"), get("allow_nonfinite", False)
        self._indices = get("start_index"), get("goal_index")
        # padded batches and commands go through integrate, which cuts or turns them first
        self._quick = not options.keys() & {"lengths", "commands", "absolute"}
        self._recent = _prepared.Recent()

    def __reduce__(self) -> tuple[Any, ...]:  # the calls that a thread keeps stay with it
        return type(self), (self._shape, self._options)

    def __repr__(self) -> str:
        shown = [describe(self._shape)]
        for name, x in self._options.items():
            shown.append(f"{name}={describe(x.shape) if hasattr(x, 'shape') else repr(x)}")
        return f"Integrator({', '.join(shown)})"

    def __call__(
        self, actions: A, start: StateLike = None, dt: ArrayLike | float | None = None, *,
        goal: State | Array | None = None, out: Trajectory | None = None,
    ) -> Trajectory[A | N]:  # fmt: skip
        """Computes ``integrate(actions, start, dt, goal=goal, out=out)`` with the options.

        dt and goal replace those that were prepared. Raises InputError for actions of another
        shape, and what ``integrate`` raises.
        """
        options = self._options
        times = options.get("times") if dt is None else None
        dt = options.get("dt") if dt is None else dt
        goal = options.get("goal") if goal is None else goal
        # Dynamo records integrate, not the state of an object
        torch = sys.modules.get("torch")
        compiling = torch is not None and torch.compiler.is_compiling()
        if compiling or not self._quick or not (out is None or isinstance(out, Trajectory)):
            self._require_shape(actions)
            changes = {"dt": dt, "times": times, "goal": goal, "out": out}
            return integrate(actions, start, **{**options, **changes})
        parts = (*_parts(start), *_parts(goal))
        arrays = _prepared.Arrays(actions, dt, times, start, goal, *self._indices, parts)
        kinds, recent = _prepared.kinds_of(arrays), self._recent
        # the last call of this thread serves arrays of the same kinds, without a look at the cache
        if recent.call is not None and kinds == recent.kinds:
            lenient, mode = self._values[3], self._mode
            fields = recent.call.run(arrays, lambda: _integration(arrays, lenient, *mode), out)
        else:
            self._require_shape(actions)
            values = self._values
            fields = _prepared.run(_integration, arrays, self._mode, *values, out, recent)
        return _filled(fields, out)

    def _require_shape(self, actions: Array) -> None:
        if (shape := tuple(as_array(actions, "actions").shape)) != self._shape:
            raise InputError(wrong_shape("actions", self._shape, shape))


@eager
def _padded(
    make: Callable[..., Inputs], arrays: _prepared.Arrays, options: tuple[Any, ...],
    write: Sequence[str], dtype: Any, backend: str | None, allow_nonfinite: bool,
    lengths: ArrayLike,
) -> Trajectory:  # fmt: skip
    """Computes the trajectories of a padded batch."""
    inputs = make(arrays, allow_nonfinite, *options)
    if inputs.actions.ndim != 3:
        raise_if_any(shape_faults(inputs))
    # the caller's actions, not those of inputs, which may lack a row that is a part of the start
    actions = as_array(arrays.actions)
    actions = actions[None] if actions.ndim == 2 else actions
    horizon = actions.shape[1]
    counts = read_lengths(lengths, len(actions), horizon)
    # Rows behind the last action (central of cuRobo, bspline) go on as its own step does: each
    # trajectory then has steps, or time stamps, of its own.
    if inputs.mode.row_count(1, inputs.recorded) > 2 and counts.min(initial=horizon) < horizon:
        changes: dict[str, Any] = {}
        for name, values in (("dt", inputs.dt), ("times", inputs.times)):
            if values is not None and values.ndim and values.shape[-1] > 1:
                lines = values[None] if values.ndim == 1 else values
                changes[name] = repeated(lines, len(actions))
        inputs = replace(inputs, **changes)
    clock = extend_steps(inputs, counts, horizon)
    clean = arrays._replace(actions=zero_padding(actions, counts), dt=clock.dt, times=clock.times)
    batch = make(clean, allow_nonfinite, *options)
    mode = batch.mode
    row_counts = np.array(
        [mode.row_count(count - batch.rates, batch.recorded) for count in counts.tolist()], np.int64
    )
    row_lengths = index_array(row_counts, actions)
    # A causal mode computes all at once, with zeros behind the last actions; another one the
    # trajectories of each length by themselves, as their ends are part of its formulas. The first
    # rows of a recording are differences of later ones.
    if mode.causal and not batch.recorded:
        *outputs, time, name, mode_options = _prepared.run(
            make, clean, options, write, dtype, backend, allow_nonfinite
        )
        p, v, a, j = (None if x is None else zero_padding(x, row_counts) for x in outputs)
        return Trajectory(p, v, a, j, time, name, mode_options, row_lengths)
    # all trajectories are checked before they are grouped: faults have the caller's numbers
    raise_if_any([*shape_faults(batch), *([] if allow_nonfinite else nonfinite_faults(batch))])
    batch.program()
    groups = group_by_length(counts)
    results = [
        _prepared.run_once(
            select_trajectories(batch, numbers, int(counts[numbers[0]])), write, dtype, backend
        )
        for numbers in groups
    ]
    *group_outputs, _, names, group_options = zip(*results, strict=True)
    p, v, a, j = (
        None if x[0] is None else merge_groups(x, groups, batch.rows) for x in group_outputs
    )
    time = _prepared.row_times(batch, str(actions.device) if is_torch(actions) else None)
    # an option that the values decide for each dof is [B, D]; the others are the same in all groups
    mode_options = {
        key: merge_groups([x[key] for x in group_options], groups) if np.ndim(value) == 2 else value
        for key, value in group_options[0].items()
    }
    return Trajectory(p, v, a, j, time, names[0], mode_options, row_lengths)


def _integration(
    arrays: _prepared.Arrays, allow_nonfinite: bool, mode: str, scheme: str | None,
    ends: str | None, degree: int | None, steps: int | None, alignment: str | None,
    convention: str | None,
) -> Inputs:  # fmt: skip
    """Makes the inputs of integrate."""

    def refuse_recording(where: str, expected: str, found: str) -> NoReturn:
        hint = "trajcli.differentiate(positions, dt=...) takes recorded positions"
        raise UsageError(unknown(where, choices=expected, found=repr(found), hint=hint))

    # words for recordings are taken by differentiate, where their rows have times
    start = arrays.start
    if isinstance(start, str) and start != "zero":
        refuse_recording("start", "zero or a State", start)
    if ends == "recording":
        refuse_recording("ends", "plan or goal", ends)
    kind = make_mode(
        mode, scheme=scheme, ends=ends, degree=degree, steps=steps, alignment=alignment,
        convention=convention,
    )  # fmt: skip
    if not kind.takes_start:
        refuse_recording("mode", "a mode that has a start state", mode)
    actions = as_array(arrays.actions, "actions")
    actions = actions[None] if actions.ndim == 2 else actions
    optional: dict[str, Any] = {
        name: None if (x := getattr(arrays, name)) is None else as_array(x, name)
        for name in ("dt", "times", "start_index", "goal_index")
    }
    inputs = Inputs(
        mode=kind,
        actions=actions,
        start=state_parts(start, "start", actions.shape[-1:]),
        goal=state_parts(arrays.goal, "goal", actions.shape[-1:]),
        allow_nonfinite=allow_nonfinite,
        **optional,
    )
    # as many stamps as actions, not one more: each action was recorded at its stamp
    stamps = () if inputs.times is None or actions.ndim != 3 else inputs.times.shape[-1:]
    if stamps and kind.action_order and stamps[0] == inputs.horizon > 1:
        inputs = replace(inputs, mode=kind.trapezoidal({"scheme": scheme}))
        inputs = inputs.start_from_rates(actions[:, 1:], actions[:, 0])
    return inputs


def _differentiation(
    arrays: _prepared.Arrays, allow_nonfinite: bool, method: str | None, window: int | str | None,
    degree: int | None, bandlimit: Any, noise: float | None, robust: bool, order: int | None,
) -> Inputs:  # fmt: skip
    """Makes the inputs of differentiate."""
    kind = make_method(
        method, window=window, degree=degree, bandlimit=bandlimit, noise=noise, robust=robust,
        order=order,
    )  # fmt: skip
    positions = as_array(arrays.actions, "positions")
    return Inputs(
        mode=kind,
        actions=positions[None] if positions.ndim == 2 else positions,
        start={},
        goal={},
        dt=None if arrays.dt is None else as_array(arrays.dt, "dt"),
        times=None if arrays.times is None else as_array(arrays.times, "times"),
        recorded=True,
        allow_nonfinite=allow_nonfinite,
        names={"actions": "positions"},
    )


def _parts(state: Any) -> tuple[Any, ...]:
    """Lists position, velocity, acceleration and jerk of a start or goal state."""
    if state is None or isinstance(state, str):
        return (None,) * 4
    if isinstance(state, State):
        return state.position, state.velocity, state.acceleration, state.jerk
    return state, None, None, None


def _dtype_name(dtype: Any) -> Any:
    """Names a type of NumPy or torch, like "float32"; anything else is returned unchanged."""
    if dtype is None or isinstance(dtype, str):
        return dtype
    # types of NumPy have a name, those of torch a text; others are refused where outputs are made
    name = getattr(dtype, "__name__", str(dtype)).removeprefix("torch.")
    return name if name in _prepared.DTYPES else dtype
