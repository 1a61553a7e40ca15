"""Trajectories and states: what calls of the library take and return."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from trajcli.arrays import (
    as_array,
    capturing,
    describe,
    in_one_library,
    time_stamp_shape_faults,
    to_numpy,
)
from trajcli.errors import InputError, UsageError, raise_if_any, unknown, wrong_shape
from trajcli.inputs import LateTimes
from trajcli.kernels.program import Array
from trajcli.modes import MODES, QUANTITIES


@dataclass(frozen=True)
class State:
    """A start or goal state; parts that are None are zero.

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
        """Returns the parts that are not None, by name."""
        return {name: getattr(self, name) for name in QUANTITIES if getattr(self, name) is not None}


@dataclass(frozen=True, repr=False)
class Trajectory:
    """Trajectories, as ``integrate`` and ``differentiate`` return them.

    ``p, v, a, j = trajectory`` unpacks the outputs; those that ``write`` does not name are None.
    NumPy input gives NumPy arrays, torch input tensors.

    Attributes:
        position: [B, T, D], in rad or m.
        velocity: [B, T, D], per s.
        acceleration: [B, T, D], per s².
        jerk: [B, T, D], per s³.
        time: seconds from the start, float64 [T], or [B, T] where steps differ between
            trajectories.
        mode: the mode that made the rows; "" for the rows of other curves.
        options: the options of the mode; of the rows of another curve its method, if it has one.
        lengths: [B], integers: the first rows of each trajectory that are data, the others being
            padding. None: all.
    """

    position: Array | None
    velocity: Array | None
    acceleration: Array | None
    jerk: Array | None
    time: Array
    mode: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)
    lengths: Array | None = None

    def __post_init__(self) -> None:
        if isinstance(self.time, LateTimes):
            self.__dict__["_times"] = self.__dict__.pop("time")

    if not TYPE_CHECKING:  # which would take any name for an attribute

        def __getattr__(self, name: str) -> Any:
            """Computes the time when it is first looked at. No other attribute comes here."""
            if name != "time" or "_times" not in self.__dict__:
                raise AttributeError(f"'Trajectory' object has no attribute {name!r}")
            time = self.__dict__["_times"].compute()
            if not capturing(time.device):  # what a graph captures is not computed yet
                self.__dict__["time"] = time
            return time

    def __iter__(self) -> Iterator[Array | None]:
        return iter((self.position, self.velocity, self.acceleration, self.jerk))

    def __repr__(self) -> str:
        outputs = self.outputs()
        shown = [f"{n} {describe(v.shape)}" for n, v in {**outputs, "time": self.time}.items()]
        kind = str(next(iter(outputs.values())).dtype).removeprefix("torch.")
        mode = f"{self.mode}: " if self.mode else ""
        return f"Trajectory({mode}{', '.join(shown)}; {kind})"

    def _about(self) -> dict[str, Any]:
        """Returns the mode, where there is one, and the options."""
        return {**({"mode": self.mode} if self.mode else {}), **self.options}

    def outputs(self) -> dict[str, Array]:
        """Returns the outputs that are not None, by name."""
        return {name: x for name, x in zip(QUANTITIES, self, strict=True) if x is not None}

    def save(self, path: str | Path, *, overwrite: bool = False) -> None:
        """Writes an .h5 or .npz file as ``trajcli integrate`` does; it appears whole or not at all.

        Trajectories of unequal length have a group each, ``trajectory_0`` and so on.

        Raises:
            OutputError: the file exists and ``overwrite`` is False, or it cannot be written.
        """
        from trajcli.files.clock import equal_step
        from trajcli.files.writing import save
        from trajcli.padding import read_lengths

        self = as_trajectory(self)
        outputs = {name: to_numpy(values) for name, values in self.outputs().items()}
        time = to_numpy(self.time)
        about, lengths = self._about(), self.lengths
        if lengths is not None:
            lengths = read_lengths(lengths, *next(iter(outputs.values())).shape[:2])
        if (step := equal_step(time, lengths)) is not None:
            about["dt"] = step
        save(Path(path), outputs, time, about, overwrite, lengths)

    def to_xarray(self) -> Any:
        """Returns an ``xarray.Dataset`` with dimensions trajectory, time (or row) and dof."""
        import xarray

        time = to_numpy(self.time)
        along = "time" if time.ndim == 1 else "row"
        dims = ("trajectory", along, "dof")
        arrays = {name: (dims, to_numpy(x)) for name, x in self.outputs().items()}
        about = self._about()
        tables = {
            name: (dims[::2], about.pop(name)) for name in [*about] if np.ndim(about[name]) == 2
        }
        axes = along if time.ndim == 1 else ("trajectory", along)
        coordinates = {"time": (axes, time, {"units": "s"})}
        return xarray.Dataset(arrays | tables, coordinates, about)


StateLike = State | Array | Literal["zero"] | None


def as_trajectory(value: Any) -> Trajectory:
    """Returns a trajectory whose arrays fit each other and are of one library.

    Raises InputError for another value, and for one that was made of wrong shapes.
    """
    if not isinstance(value, Trajectory) or not value.outputs():
        raise InputError(
            "not a Trajectory",
            where="trajectory",
            expected="what integrate, differentiate, resample or load returns",
            found=f"a {type(value).__name__}",
            hint="trajcli.differentiate(positions, dt=...) makes one of recorded positions",
        )
    outputs = value.outputs()
    arrays = {name: as_array(x, name) for name, x in {**outputs, "time": value.time}.items()}
    shape = tuple(next(iter(arrays.values())).shape)
    sound = len(shape) == 3 and shape[1] >= 1
    raise_if_any(
        wrong_shape(name, "[B, T, D], T >= 1", x.shape)
        for name, x in arrays.items()
        if name in outputs and not (sound and tuple(x.shape) == shape)
    )
    raise_if_any(time_stamp_shape_faults(arrays["time"].shape, shape[0], shape[1], "time"))
    return replace(value, **in_one_library(arrays))


def load(path: str | Path) -> Trajectory:
    """Reads what ``Trajectory.save``, ``trajcli integrate`` or ``differentiate`` wrote, as NumPy.

    Trajectories of unequal length, which have a group each, are one padded batch in the natural
    order of their names, with ``lengths``.

    Raises:
        InputError: the file has no trajectories.
    """
    from trajcli.files.writing import load

    outputs, time, about, lengths = load(Path(path))
    p, v, a, j = (outputs.get(name) for name in QUANTITIES)
    mode = str(about.get("mode", ""))
    options = MODES[mode].option_names() if mode in MODES else ("method",)
    return Trajectory(p, v, a, j, time, mode, {k: about[k] for k in options if k in about}, lengths)


def wanted_outputs(write: str | Iterable[str]) -> tuple[str, ...]:
    """Returns names of outputs by order; raises UsageError for none and for unknown ones."""
    if write is QUANTITIES:
        return QUANTITIES
    try:
        names: tuple[Any, ...] = (write,) if isinstance(write, str) else tuple(write)
    except TypeError:
        names = (write,)
    others = [name for name in names if name not in QUANTITIES]
    if others or not names:
        found = repr(others or [*names])
        raise UsageError(unknown("output", where="write", choices=QUANTITIES, found=found))
    return tuple([name for name in QUANTITIES if name in names])


def state_parts(state: StateLike, role: str, shape: Sequence[int]) -> dict[str, Array]:
    """Returns the parts of a start or goal state, [S, D]; ``shape`` is [D], for zero."""
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
        hint = "State(p, v); of positions alone numpy.stack(...)" if pair else ""
    if hint:
        expected, found = "a State, or positions as one array", f"a {type(state).__name__}"
        raise UsageError(f"no {role} state", where=role, expected=expected, found=found, hint=hint)
    parts = state.parts() if isinstance(state, State) else {"position": state}
    arrays = {name: as_array(values, f"{role}/{name}") for name, values in parts.items()}
    return {name: v[None] if v.ndim == 1 else v for name, v in arrays.items()}
