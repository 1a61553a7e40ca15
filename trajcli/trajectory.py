"""Trajectories and states: what calls of the library take and return."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Literal, overload

import numpy as np

from trajcli._container import Container, equal
from trajcli.arrays import (
    arange,
    as_array,
    cast,
    describe,
    eager,
    in_one_library,
    is_capturing,
    is_torch,
    library,
    match_library,
    output_dtype,
    readable,
    seconds,
    time_stamp_faults,
    time_stamp_shape_faults,
    to_numpy,
)
from trajcli.arrays import concatenate as join_arrays
from trajcli.errors import InputError, UsageError, raise_if_any, unknown, wrong_shape
from trajcli.inputs import LateTimes, repeated
from trajcli.kernels.program import Array, ArrayLike
from trajcli.modes import MODES, QUANTITIES
from trajcli.names import QuantityName
from trajcli.padding import padded, read_lengths

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from typing_extensions import TypeVar

    T = TypeVar("T", default=Any, covariant=True)
else:
    from typing import TypeVar

    T = TypeVar("T")


@dataclass(frozen=True, repr=False, eq=False)
class State(Container):
    """A start or goal state; parts that are None are zero.

    torch treats it as a pytree, and a DataLoader joins states into one of [S, D].

    Attributes:
        position: [B, D], [D] where all trajectories share it, or [S, D] with a start index; in rad
            or m.
        velocity: of the same shape, per s.
        acceleration: per s².
        jerk: per s³.
    """

    position: Array
    velocity: Array | None = None
    acceleration: Array | None = None
    jerk: Array | None = None

    def parts(self) -> dict[str, Array]:
        """Lists the parts that are not None, by name."""
        return self._arrays()

    def __repr__(self) -> str:
        return f"State({_shapes(self.parts())})"


@dataclass(frozen=True, repr=False, eq=False)
class Trajectory(Container, Generic[T]):
    """Trajectories, as ``integrate`` and ``differentiate`` return them.

    ``p, v, a, j = trajectory`` unpacks the outputs; an output that ``write`` does not name is None.
    NumPy input gives NumPy arrays, torch input tensors. Type checkers see ``Trajectory[Tensor]``,
    or ``Trajectory[Tensor | None]`` with ``write``.

    ``trajectory[3]`` selects one trajectory, as a batch of one; ``trajectory[:, 10:20]`` selects
    rows, which keep their times; ``trajectory[..., :3]`` selects dofs. An index is a number, a
    slice, a mask or a list of numbers, and several are applied independently. Slices share memory,
    and slices of rows keep the mode. A wrong index is an IndexError.

    torch treats it as a pytree, with mode and options as constants, and a DataLoader joins
    trajectories by ``concatenate``.

    Attributes:
        position: [B, T, D], in rad or m.
        velocity: [B, T, D], per s.
        acceleration: [B, T, D], per s².
        jerk: [B, T, D], per s³.
        time: seconds from the start, float64 [T], or [B, T] where steps differ between
            trajectories.
        mode: the mode that made the rows; "" for rows of another curve.
        options: the options of the mode, or the method of another curve.
        lengths: integers [B], how many rows of each trajectory are data; the others, at its end,
            are padding. None: all rows are data.
    """

    position: T
    velocity: T
    acceleration: T
    jerk: T
    time: Array
    mode: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)
    lengths: Array | None = None

    def __post_init__(self) -> None:
        # times that are computed late leave the attribute to __getattr__
        if isinstance(self.time, LateTimes):
            self.__dict__["_times"] = self.__dict__.pop("time")

    if TYPE_CHECKING:

        def numpy(self) -> Trajectory[NDArray[Any]]: ...  # type: ignore[override]

    else:  # hidden from type checkers, which would accept any attribute

        def __getattr__(self, name: str) -> Any:
            # the time is computed when it is first looked at
            if name != "time" or "_times" not in self.__dict__:
                raise AttributeError(f"'Trajectory' object has no attribute {name!r}")
            time = self.__dict__["_times"].compute()
            if not is_capturing(time.device):  # while a graph is captured, nothing is computed yet
                self.__dict__["time"] = time
            return time

    def __iter__(self) -> Iterator[T]:
        return iter((self.position, self.velocity, self.acceleration, self.jerk))

    def __repr__(self) -> str:
        mode = f"{self.mode}: " if self.mode else ""
        return f"Trajectory({mode}{_shapes({**self.outputs(), 'time': self.time})})"

    def __getitem__(self, key: Any) -> Trajectory[T]:
        self = as_trajectory(self)
        (batch, count, width), keys = self.shape, key if isinstance(key, tuple) else (key,)
        if keys and keys[0] is Ellipsis:
            keys = (*[slice(None)] * (4 - len(keys)), *keys[1:])
        if len(keys) > 3:
            raise IndexError(f"{len(keys)} indices of trajectories {describe(self.shape)}")
        keys = (*keys, *[slice(None)] * (3 - len(keys)))
        numbers, rows, dofs = (_axis_index(x, n) for x, n in zip(keys, self.shape, strict=True))
        outputs = {name: x[numbers][:, rows][..., dofs] for name, x in self.outputs().items()}
        parts: Any = map(outputs.get, QUANTITIES)
        p, v, a, j = parts
        time, lengths, mode, options = self.time, self.lengths, "", {}
        time = time[rows] if time.ndim == 1 else repeated(time, batch)[numbers][:, rows]
        if lengths is not None:
            lengths = (arange(0, count, lengths)[rows] < lengths[numbers][:, None]).sum(1)
        # the curve of a mode joins neighbouring rows: it is not known where rows are left out
        if isinstance(rows, slice) and rows.step in (None, 1):
            mode, options = self.mode, dict(self.options)
            if "first_row" in options:  # counts from the first row of the trajectory
                options["first_row"] = options["first_row"] + rows.indices(count)[0]
        # options that are tables have a row per trajectory, and may have a column per dof
        for name, table in options.items():
            shape = tuple(getattr(table, "shape", ()))
            if shape in ((batch,), (batch, width)):
                options[name] = table[numbers][:, dofs] if len(shape) > 1 else table[numbers]
        if text := options.pop("absolute", ""):
            # the numbers of absolute dofs are those among the dofs that are selected
            absolute = [*map(int, str(text).split(","))]
            indices = [k for k, dof in enumerate(np.arange(width)[dofs]) if dof in absolute]
            options |= {"absolute": ",".join(map(str, indices))} if indices else {}
        return Trajectory(p, v, a, j, time, mode, options, lengths)

    @property
    def shape(self) -> tuple[int, ...]:
        """The numbers of trajectories, rows and dofs: (B, T, D)."""
        return tuple(next(iter(self.outputs().values())).shape)

    @property
    @eager
    def dt(self) -> Array | float:
        """The step between rows in seconds: a number if all are equal up to rounding, else an
        array [T − 1], or [B, T − 1] for times [B, T]; empty for a single row."""
        from trajcli.files.clock import equal_step

        step = None
        if readable(self.time):
            lengths = None if self.lengths is None else to_numpy(self.lengths)
            step = equal_step(to_numpy(self.time), lengths)
        return self.time[..., 1:] - self.time[..., :-1] if step is None else step

    def state(self, at: ArrayLike | float) -> State:
        """Takes the state [B, D] at a row or at a time. Differentiable.

        ``integrate(actions, plan.state(-1), dt)`` continues a plan from its end.

        Parameters:
            at: an integer, or integers [B], is the number of a row; a negative one counts from the
                last row of data. A float, or floats [B], is a time as ``sample`` takes it.

        Raises:
            UsageError: ``write`` left out an output, which would be zero in the state; or as
                ``sample``.
            InputError, IndexError: no such time or row.
        """
        if missing := ", ".join(name for name in QUANTITIES if getattr(self, name) is None):
            hint = "write= names the outputs; State(trajectory.position[:, -1]) has zeros"
            raise UsageError(f"no state without {missing}", where="trajectory", hint=hint)
        if len(self.shape) != 3:
            as_trajectory(self)  # raises
        # one row of all trajectories is a view
        if type(at) is int and self.lengths is None:
            return State(*[x[:, at] for x in self.outputs().values()])
        like: Any = self.position
        index = match_library(as_array(at, "at"), like, "at")
        if "int" not in str(index.dtype):
            samples = sample(self, index.reshape(-1, 1))
            return State(*[x[:, 0] for x in samples.outputs().values()])
        ends = self.shape[1] if self.lengths is None else self.lengths
        rows = cast(index, "int64") + (index < 0) * ends
        wrong = (rows < 0) | (rows >= ends)
        if readable(wrong) and wrong.any():
            raise IndexError(f"no row {at} in trajectories of {ends} rows")
        return State(*[x[np.arange(len(x)), rows] for x in self.outputs().values()])

    def outputs(self) -> dict[str, Array]:
        """Lists the outputs that are not None, by name."""
        values: Iterable[Any] = self
        return {name: x for name, x in zip(QUANTITIES, values, strict=True) if x is not None}

    @eager
    def save(
        self, path: str | Path, *, overwrite: bool = False, lengths: ArrayLike | None = None
    ) -> None:
        """Writes an .h5 or .npz file as ``trajcli integrate`` does.

        The file appears complete or not at all. Trajectories of unequal length have a group each,
        ``trajectory_0`` and so on. ``lengths`` [B] replace those of the trajectory.

        Raises:
            OutputError: the file exists and ``overwrite`` is False, or it cannot be written.
        """
        from trajcli.files.clock import equal_step
        from trajcli.files.writing import save

        self = as_trajectory(self)
        outputs = {name: to_numpy(values) for name, values in self.outputs().items()}
        time = to_numpy(self.time)
        about: dict[str, Any] = {"mode": self.mode} if self.mode else {}
        about |= self.options
        lengths = self.lengths if lengths is None else lengths
        if lengths is not None:
            lengths = read_lengths(lengths, *next(iter(outputs.values())).shape[:2])
        # equal steps are stored as a number as well
        if (step := equal_step(time, lengths)) is not None:
            about["dt"] = step
        save(Path(path), outputs, time, about, overwrite, lengths)

    def to_xarray(self) -> Any:
        """Makes an ``xarray.Dataset`` with dimensions trajectory, time (or row) and dof."""
        import xarray

        time = to_numpy(self.time)
        along = "time" if time.ndim == 1 else "row"
        dims = ("trajectory", along, "dof")
        arrays = {name: (dims, to_numpy(x)) for name, x in self.outputs().items()}
        about = {**({"mode": self.mode} if self.mode else {}), **self.options}
        # options [B, D] become variables, since attributes are small
        tabular = [name for name in about if np.ndim(about[name]) == 2]
        tables = {name: (dims[::2], about.pop(name)) for name in tabular}
        axes = along if time.ndim == 1 else ("trajectory", along)
        coordinates = {"time": (axes, time, {"units": "s"})}
        return xarray.Dataset(arrays | tables, coordinates, about)


def _axis_index(key: Any, size: int) -> Any:
    """Converts an index of one axis to a slice, or to the numbers [n] that it selects."""
    if isinstance(key, slice) and (key.step is None or key.step > 0):
        return key
    if isinstance(key, int) and not isinstance(key, bool) and -size <= key < size:
        return slice(key % size, key % size + 1)
    # slices of negative steps become numbers, since torch has no such slices
    numbers = np.arange(size)[to_numpy(key) if is_torch(key) else key]
    if np.ndim(numbers) > 1:
        raise IndexError(f"no index of trajectories, rows or dofs: {key!r}")
    return np.ascontiguousarray(numbers)  # one number becomes [1]


def _shapes(named: Mapping[str, Any]) -> str:
    shown = [f"{n} {describe(x.shape) if hasattr(x, 'shape') else x}" for n, x in named.items()]
    kind = str(getattr(next(iter(named.values())), "dtype", "")).removeprefix("torch.")
    return ", ".join(shown) + (f"; {kind}" if kind else "")


StateLike = State | ArrayLike | Literal["zero"] | None
Written = QuantityName | Iterable[QuantityName]
"""One name of an output, or several."""


def as_trajectory(value: Any) -> Trajectory:
    """Checks that a value is a trajectory of consistent shapes, and unifies its library."""
    if not isinstance(value, Trajectory) or not value.outputs():
        what, found = "not a Trajectory", f"a {type(value).__name__}"
        expected = "what integrate, differentiate, resample or load returns"
        hint = "trajcli.differentiate(positions, dt=...) makes one of recorded positions"
        raise InputError(what, where="trajectory", expected=expected, found=found, hint=hint)
    outputs = value.outputs()
    arrays = {name: as_array(x, name) for name, x in {**outputs, "time": value.time}.items()}
    shape = tuple(next(iter(arrays.values())).shape)
    # all outputs have the shape of the first, if that is right
    sound = len(shape) == 3 and shape[1] >= 1
    raise_if_any(
        wrong_shape(name, "[B, T, D], T >= 1", x.shape)
        for name, x in arrays.items()
        if name in outputs and not (sound and tuple(x.shape) == shape)
    )
    raise_if_any(time_stamp_shape_faults(arrays["time"].shape, shape[0], shape[1], "time"))
    alike: dict[str, Any] = in_one_library(arrays)
    return replace(value, **alike)


@overload
def sample(trajectory: Trajectory[T], times: ArrayLike | float) -> Trajectory[T]: ...
@overload
def sample(
    trajectory: Trajectory[T], times: ArrayLike | float, *, write: Written
) -> Trajectory[T | None]: ...
def sample(
    trajectory: Trajectory, times: ArrayLike | float, *, write: str | Iterable[str] = QUANTITIES
) -> Trajectory:
    """Samples a trajectory exactly, at any times between its first row and its last.

    A known polynomial must join the rows: that of jerk, acceleration or velocity (and of clique)
    under ``zoh`` or ``foh``, or of ``bspline``. Under zoh the action of a row is held over the step
    that ends there, and higher derivatives are zero; under foh the action is linear, and the next
    derivative constant. Computed in float64 and rounded once; differentiable with respect to the
    rows and, for torch, the times.

    Parameters:
        trajectory: what ``integrate`` or ``load`` returns.
        times: seconds on the axis of ``trajectory.time``, in any order, [N] or [B, N]; a number is
            [1]. The time of a row, up to rounding of the sum of steps, gives that row.
        write: the outputs to compute.

    Returns:
        A ``Trajectory`` of outputs [B, N, D] of the same library, device and dtype.

    Raises:
        UsageError: a mode whose curve is not known; unknown outputs; or rows without an output
            that the polynomial needs: those up to the action, and all for bspline.
        InputError: times that are NaN or outside the trajectory.
    """
    from trajcli.curves.sampling import derivative, locate_times, missing_parts, taylor

    trajectory = as_trajectory(trajectory)
    outputs = trajectory.outputs()
    if missing := missing_parts(trajectory.mode, trajectory.options, outputs):
        what, hint = "between rows takes outputs above it", "write= of integrate names the outputs"
        what, expected = f"{next(iter(outputs))} {what}", f"{', '.join(missing)} as well"
        raise UsageError(what, where="trajectory", expected=expected, hint=hint)
    like = next(iter(outputs.values()))
    # integer stamps are counted from the first row before they become float64
    times = match_library(as_array(times, "times"), like, "times")
    times = times.reshape(1) if times.ndim == 0 else times
    if readable(trajectory.time):
        raise_if_any(time_stamp_faults(trajectory.time, "time"))
    stamps = trajectory.time[None] if trajectory.time.ndim == 1 else trajectory.time
    knots, at = seconds(stamps, times)
    at = locate_times(at, knots, like.shape[0], lengths=trajectory.lengths)
    known, tau = taylor(trajectory.mode, trajectory.options, [*trajectory], knots, at)
    names, dtype = output_names(write), output_dtype(like.dtype)
    p, v, a, j = (
        None if row is None or name not in names else cast(derivative(known, tau, m), dtype)
        for m, (name, row) in enumerate(zip(QUANTITIES, trajectory, strict=True))
    )
    return Trajectory(p, v, a, j, times)


def concatenate(
    trajectories: Iterable[Trajectory[T]], along: Literal["batch", "time"] = "batch"
) -> Trajectory[T]:
    """Joins trajectories into one batch, or one after the other in time. Differentiable.

    Along ``batch``, shorter trajectories are padded with zeros, and with times that continue at
    their last step; the result then has ``lengths``. Its times are [T] if all are the same, else
    [B, T]. It keeps the mode and options that all share.

    Along ``time``, each trajectory begins where the previous one ends: its times are shifted, and
    its row at time 0 is left out, so that
    ``concatenate([plan[:, :k + 1], integrate(u, plan.state(k), dt)], "time")`` is the motion of two
    plans. Times that are later already, as in slices of one trajectory, are not shifted. The result
    has no mode, since no curve is known at the joints: ``resample`` interpolates there.

    Parameters:
        trajectories: of the same dofs and outputs; along time also of the same number B.
        along: ``"batch"`` or ``"time"``.

    Returns:
        A ``Trajectory``; of tensors if any argument has tensors.

    Raises:
        InputError: different shapes or outputs; along time also lengths, or a start away from the
            end of the previous trajectory (``trajectory[:, 1:]`` leaves the start out).
        UsageError: another direction; along time also times that cannot be read, as in
            torch.compile.
    """
    if along not in ("batch", "time"):
        found = repr(along)
        raise UsageError(unknown("direction", where="along", choices="batch, time", found=found))
    parts = [as_trajectory(trajectory) for trajectory in trajectories]
    if not parts:
        raise InputError("no trajectories", where="trajectories", expected="one or more")
    # layouts are compared as the text that the message shows
    layout = ""
    for number, part in enumerate(parts):
        batch, _, width = part.shape
        found = f"{', '.join(part.outputs())} [{batch if along == 'time' else 'B'}, T, {width}]"
        layout = layout or found
        found += " with lengths" if along == "time" and part.lengths is not None else ""
        if found != layout:
            where = f"trajectories, entry {number}"
            raise InputError("another layout", where=where, expected=layout, found=found)
    like = next((part.time for part in parts if is_torch(part.time)), parts[0].time)
    parts = [part._mapped(lambda x: match_library(x, like)) for part in parts]
    return _join_in_time(parts) if along == "time" else _join_in_batch(parts)


def _join_in_batch(parts: Sequence[Trajectory]) -> Trajectory:
    counts = [part.shape[1] for part in parts]
    rows = max(counts)
    # None stays None: layouts are equal
    p, v, a, j = (
        None if x[0] is None else join_arrays([padded(values, rows) for values in x], 0)
        for x in zip(*parts, strict=True)
    )
    times = [part.time for part in parts]
    time = times[counts.index(rows)]
    if not all(x.ndim == 1 and readable(x) and equal(x, time[: len(x)]) for x in times):
        tables = []
        for part, count in zip(parts, counts, strict=True):
            table = library(part.time).atleast_2d(part.time)
            if count < rows:
                # padding continues at the last step, or at 1 s after a single row
                end, after = table[:, -1:], arange(1, rows - count + 1, table)
                step = end - table[:, -2:-1] if count > 1 else 1.0
                table = join_arrays([table, end + step * after], 1)
            tables.append(repeated(table, part.shape[0]))
        time = join_arrays(tables, 0)
    lengths = None
    if min(counts) < rows or any(part.lengths is not None for part in parts):
        known = [
            np.full(part.shape[0], count) if part.lengths is None else part.lengths
            for part, count in zip(parts, counts, strict=True)
        ]
        lengths = join_arrays([match_library(x, time) for x in known], 0)
    # the mode and options that all share; options [B, D] are joined like the rows
    mode, options = parts[0].mode, dict(parts[0].options)
    tabular = [name for name, x in options.items() if getattr(x, "ndim", 0)]
    scalars = [{k: x for k, x in part.options.items() if k not in tabular} for part in parts]
    if all(
        part.mode == mode and part.options.keys() == options.keys() and equal(x, scalars[0])
        for part, x in zip(parts, scalars, strict=True)
    ):
        for name in tabular:
            options[name] = join_arrays([part.options[name] for part in parts], 0)
    else:
        mode, options = "", {}
    return Trajectory(p, v, a, j, time, mode, options, lengths)


@eager
def _join_in_time(parts: Sequence[Trajectory]) -> Trajectory:
    pieces, times = [parts[0]], [library(parts[0].time).atleast_2d(parts[0].time)]
    end = times[0][:, -1:]
    for previous, part in pairwise(parts):
        time = library(part.time).atleast_2d(part.time)
        begin = to_numpy(time, "time")[:, :1]
        later = (begin > to_numpy(end, "time")).all()
        time = time if later else time + end
        end = time[:, -1:]
        # the row at time 0 is the end of the previous trajectory, up to the rounding of float32
        if not later and (begin <= 0.0).all():
            name, first = next(iter(part.outputs().items()))
            jump: Any = first[:, 0] - previous.outputs()[name][:, -1]
            if readable(jump) and (abs(jump) > 1e-6 * library(first).abs(first[:, 0])).any():
                what = "a trajectory that does not start where the one before ends"
                hint = "trajectory[:, 1:] leaves its start out"
                raise InputError(what, where="trajectories", hint=hint)
            part, time = part[:, 1:], time[:, 1:]
        pieces.append(part)
        times.append(time)
    p, v, a, j = (None if x[0] is None else join_arrays(x, 1) for x in zip(*pieces, strict=True))
    batch = max(map(len, times))
    time = join_arrays([repeated(x, batch) for x in times], 1)
    return Trajectory(p, v, a, j, time[0] if batch == 1 else time)


def concatenate_states(states: Iterable[State]) -> State:
    """Joins states into one of [S, D]; a part that only some states have is zero in the others."""
    # a state of shape [D] counts as one row
    tables = [state_parts(state, "state", ()) for state in states]
    counts = [max(map(len, parts.values())) for parts in tables]
    joined = {}
    for name in QUANTITIES:
        if any(name in parts for parts in tables):
            values = [parts.get(name, parts["position"] * 0) for parts in tables]
            joined[name] = join_arrays([*map(repeated, values, counts)], 0)
    return State(**joined)


def load(path: str | Path) -> Trajectory:
    """Reads a file of ``Trajectory.save``, ``trajcli integrate`` or ``differentiate``, as NumPy.

    Trajectories of unequal length, which have a group each, become one padded batch with
    ``lengths``, in the natural order of their names.

    Raises:
        InputError: the file has no trajectories.
    """
    from trajcli.files.writing import load

    parts = []
    for outputs, time, about in load(Path(path)):
        p, v, a, j = map(outputs.get, QUANTITIES)
        mode, options = str(about.get("mode", "")), ["method"]
        if mode in MODES:
            options = [*MODES[mode].option_names(), "actions", "absolute"]
        about = {name: about[name] for name in options if name in about}  # a file has others, too
        parts.append(Trajectory(p, v, a, j, time, mode, about))
    return concatenate(parts)


def output_names(write: str | Iterable[str]) -> tuple[str, ...]:
    """Lists the names of outputs by order; raises UsageError for none and for unknown ones."""
    if write is QUANTITIES:
        return QUANTITIES
    try:
        names: tuple[Any, ...] = (write,) if isinstance(write, str) else tuple(write)
    except TypeError:
        names = (write,)
    others = [name for name in names if not (isinstance(name, str) and name in QUANTITIES)]
    if others or not names:
        found = repr(others or [*names])
        raise UsageError(unknown("output", where="write", choices=QUANTITIES, found=found))
    return tuple([name for name in QUANTITIES if name in names])


def state_parts(state: StateLike, role: str, shape: Sequence[int]) -> dict[str, Array]:
    """Lists the parts [S, D] of a start or goal state by name; ``shape`` [D] is that of "zero"."""
    if state is None:
        return {}
    if isinstance(state, str):
        if state == "zero":
            return {"position": np.zeros((1, *shape))}
        raise UsageError(unknown(role, choices="zero or a State", found=state))
    # (p, v) for two trajectories would be read as two positions; lists of lists are one array
    rows = (list, tuple) if isinstance(state, tuple) else ()
    hint = ""
    if isinstance(state, Mapping):
        hint = f"State(position=..., velocity=...), or State(**{role})"
    elif isinstance(state, list | tuple):
        pair = any(getattr(x, "ndim", isinstance(x, rows)) for x in state)
        library = "torch" if any(map(is_torch, state)) else "numpy"
        hint = f"State(p, v); of positions alone {library}.stack(...)" if pair else ""
    if hint:
        expected, found = "a State, or positions as one array", f"a {type(state).__name__}"
        raise UsageError(f"no {role} state", where=role, expected=expected, found=found, hint=hint)
    # an array is a position, and the other parts are zero
    parts = state.parts() if isinstance(state, State) else {"position": state}
    arrays = {name: as_array(values, f"{role}/{name}") for name, values in parts.items()}
    return {name: v[None] if v.ndim == 1 else v for name, v in arrays.items()}
