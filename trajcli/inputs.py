"""The input of a job or of one block of it: arrays, parts of them, and the kernel call."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from trajcli.arrays import (
    concatenate,
    differences,
    float64,
    is_torch,
    loaded,
    own_rows,
    readable,
    repeated,
    to_numpy,
    to_torch,
)
from trajcli.checks import largest
from trajcli.kernels.choose import Choice
from trajcli.kernels.pairs import Pair
from trajcli.kernels.program import Program, run_program
from trajcli.modes import PARTS, Mode
from trajcli.modes.stretch import Range, Stretch

Array = Any
"""numpy.ndarray or torch.Tensor."""


@dataclass
class Carry:
    """What one stretch of rows leaves for the next."""

    state: Sequence[Pair] | None = None
    """Of a cascade, in NumPy: four pairs [B, D]."""
    time: Pair | None = None
    peak: float = 0.0
    shortest: float = math.inf
    longest: float = 0.0

    def arrays(self) -> dict[str, Any]:
        """The same as arrays, to be kept in a file."""
        found = {"bounds": np.array([self.peak, self.shortest, self.longest])}
        for name, pairs in (("state", self.state), ("time", self.time and [self.time])):
            if pairs:
                found[name] = np.stack([np.stack([to_numpy(p.hi), to_numpy(p.lo)]) for p in pairs])
        return found

    @staticmethod
    def of(arrays: Mapping[str, Any]) -> Carry:
        """What :meth:`arrays` gave."""
        state, time = ([Pair(*p) for p in arrays.get(name, ())] for name in ("state", "time"))
        return Carry(state or None, time[0] if time else None, *map(float, arrays["bounds"]))


@dataclass(frozen=True)
class Inputs:
    """All input of a job or of one block of it, in one library, with names for messages.

    ``start`` and ``goal`` hold the given parts [S, D] (S = 1: shared by all), ``dt`` is
    [b, h] as given (aligned by :meth:`Mode.align_dt`, unless ``steps_aligned``), ``names`` says
    where each came from; ``row_numbers`` [H] counts rows in the file where some were left out.
    With a ``stretch``, actions, dt and times are those it needs and no others. ``trusted``: what
    lies on a device is not read back to check its values.
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
    steps_aligned: bool = False
    row_numbers: Array | None = None
    names: Mapping[str, str] = field(default_factory=dict)
    first_trajectory: int = 0
    stretch: Stretch | None = None
    trusted: bool = False

    @property
    def horizon(self) -> int:
        """H, the number of actions per trajectory."""
        return int(self.actions.shape[1]) if self.stretch is None else self.stretch.horizon

    @property
    def rows(self) -> int:
        """T, the number of rows per trajectory."""
        return self.mode.rows(self.horizon, self.recorded)

    @property
    def reach(self) -> Stretch:
        """The stretch of rows these inputs are for."""
        return self.stretch or self.mode.whole(self.horizon, self.recorded)

    @property
    def intervals(self) -> int:
        """How many steps the rows span."""
        return self.mode.intervals(self.horizon, self.recorded)

    def name(self, role: str) -> str:
        """Where an input came from, for messages."""
        return self.names.get(role, role)

    def used_dt(self) -> Array:
        """dt as [b, h]; a recording's H entries lose the first, which leads into row 0."""
        assert self.dt is not None
        dt = float64(self.dt)
        dt = dt.reshape(1, 1) if dt.ndim == 0 else dt
        dt = dt[None] if dt.ndim == 1 else dt
        return dt[:, 1:] if self.unused_steps() else dt

    def unused_steps(self) -> int:
        """1 where a recording's dt has an entry for the step into row 0, else 0."""
        if self.stretch is not None:
            return 0
        assert self.dt is not None
        count = self.dt.shape[-1] if self.dt.ndim else 1
        return int(self.recorded and count == self.horizon and self.horizon > 1)

    def can_check(self, values: Array) -> bool:
        """Whether values are at hand to be looked at."""
        if self.trusted and is_torch(values) and values.device.type != "cpu":
            return False
        return loaded(values) and readable(values)

    def arrays(self) -> list[Array]:
        """Every array there is, the actions first."""
        single = (self.actions, self.dt, self.times)
        parts = (*self.start.values(), *self.goal.values())
        return [value for value in (*single, *parts) if value is not None]

    def block(
        self,
        actions: Array,
        begin: int,
        end: int,
        shift: int,
        names: Mapping[str, str],
        stretch: Stretch | None = None,
    ) -> Inputs:
        """Trajectories begin..end with their actions; what was stored is read now.

        shift: how far the numbering of messages lies below that of all trajectories. stretch: the
        rows that are wanted, the actions being those it needs.
        """

        def states(parts: Mapping[str, Array], index: Array | None) -> dict[str, Array]:
            whole = index is not None
            return {
                name: _rows(values, 0, values.shape[0])
                if whole or values.shape[0] == 1
                else _rows(values, begin, end)
                for name, values in parts.items()
            }

        def steps(values: Array | None) -> Array | None:
            return None if values is None else _part(values, begin, end, self._needed(stretch))

        def indices(values: Array | None) -> Array | None:
            return None if values is None else _rows(values, begin, end)

        return replace(
            self,
            actions=actions,
            start=states(self.start, self.start_index),
            goal=states(self.goal, self.goal_index),
            dt=steps(self.dt),
            times=steps(self.times),
            start_index=indices(self.start_index),
            goal_index=indices(self.goal_index),
            names={**self.names, **names},
            first_trajectory=begin - shift,
            stretch=stretch,
        )

    def only(self, k: int, names: Mapping[str, str], number: int) -> Inputs:
        """One trajectory of a block, called ``number`` in messages; its states are the block's."""

        def own(values: Array | None) -> Array | None:
            if values is None or values.ndim < 2 or values.shape[0] == 1:
                return values
            return values[k : k + 1]

        return replace(
            self,
            actions=self.actions[k : k + 1],
            start={name: own(v) for name, v in self.start.items()}
            if self.start_index is None
            else self.start,
            goal={name: own(v) for name, v in self.goal.items()}
            if self.goal_index is None
            else self.goal,
            dt=own(self.dt),
            times=own(self.times),
            start_index=None if self.start_index is None else self.start_index[k : k + 1],
            goal_index=None if self.goal_index is None else self.goal_index[k : k + 1],
            names={**self.names, **names},
            first_trajectory=number,
        )

    def _needed(self, stretch: Stretch | None) -> Range | None:
        """The entries of dt, or the time stamps, that a stretch needs; None: all there are."""
        given = self.dt if self.times is None else self.times
        if stretch is None or given is None or not given.ndim or given.shape[-1] == 1:
            return None
        begin, end = stretch.steps
        if self.times is not None:
            return begin, end + 1
        count, ahead = given.shape[-1], self.unused_steps() + self.mode.dt_ahead
        begin = min(begin + ahead, count - 1)
        return begin, max(min(end + ahead, count), begin + 1)

    def stays_below(self, limit: float, carry: Carry) -> bool:
        """Whether no result can reach a magnitude, by a bound that costs one look at the input.

        Of order m a result is at most a sum over all steps, or a stencil of them: see modes.md.
        ``carry``: what is known of the rows before; of these, added to it.
        """
        values = [self.actions, *self.start.values(), *self.goal.values()]
        peaks = [carry.peak, *(largest(to_numpy(v)) for v in values)]
        carry.peak = max(peaks) if not any(map(math.isnan, peaks)) else math.nan
        steps = to_numpy(self.steps())
        carry.shortest = min(float(steps.min(initial=1.0)), carry.shortest)
        carry.longest = max(float(steps.max(initial=1.0)), carry.longest)
        spread = (1.0 + self.rows * carry.longest) * (1.0 + 8.0 / carry.shortest)
        bound = 64.0 * carry.peak * spread * spread * spread  # infinite where ** would raise
        return bound < limit  # False for NaN

    def steps(self) -> Array:
        """dt as float64 [b, h] in the library it came in, aligned to rows."""
        if self.times is None:
            used = self.used_dt()
            if not used.shape[1]:  # of a recording of one row
                return float64(used.sum(1)[:, None] + 1)  # any step will do, none is used
            if self.stretch is None:
                return used if self.steps_aligned else self.mode.align_dt(used)
            begin, end = self.stretch.steps
            lacking = 0 if used.shape[1] == 1 else end - begin - int(used.shape[1])
            return concatenate([used, *[used[:, -1, None]] * lacking], 1) if lacking else used
        times = self.times[None] if self.times.ndim == 1 else self.times
        # A recording of one row has no step; any will do, none is used.
        return differences(times) if times.shape[1] > 1 else float64(times * 0 + 1)

    def raw_steps(self) -> Array:
        """The steps as they are given, [b, h]: dt, or the gaps between time stamps."""
        if self.times is not None:
            return self.steps()
        assert self.dt is not None
        return self.dt.reshape((1,) * (2 - self.dt.ndim) + tuple(self.dt.shape))

    def unaligned(self, grads: Array) -> Array:
        """Gradients of the steps [B, 1 or n] as those of dt as it is given, or of the gaps."""
        if self.times is not None:
            return grads
        given = int(self.raw_steps().shape[1])
        if given == 1:
            return grads.sum(1)[:, None]
        ahead = self.unused_steps() + self.mode.dt_ahead
        found = np.zeros((len(grads), given))
        count = given - ahead
        found[:, ahead:] = grads[:, :count]
        found[:, -1] += grads[:, count:].sum(1)
        return found

    def gathered(self, role: str, device: str | None) -> dict[str, Any]:
        """The given parts of the start or goal state, each trajectory's own: float64 [B, D]."""
        parts, index = getattr(self, role), getattr(self, f"{role}_index")
        found = _gathered(parts, index, int(self.actions.shape[0]), device)
        return {name: part for name, part in zip(PARTS, found, strict=True) if part is not None}

    def row_times(self, carry: Carry | None = None) -> Array:
        """Time of each row, float64 [b, T] in dt's library; ``carry``: of the rows before."""
        before = None if carry is None else carry.time
        times, after = self.mode.row_times(self.steps(), self.reach, before)
        if carry is not None:
            carry.time = after
        return times

    def program(
        self, device: str | None, carry: Carry | None = None, gathers: bool = False
    ) -> Program:
        """What the kernels are to do, on torch tensors on the device; None: on NumPy arrays.

        gathers: the kernels read start and goal states of any float type, and take a start and a
        goal index, themselves.
        """
        actions = _placed(self.actions, device)
        state = None
        if carry is not None and carry.state is not None:
            state = [Pair(_placed(p.hi, device), _placed(p.lo, device)) for p in carry.state]
        start, start_rows = self._states("start", device, gathers and state is None)
        goal, goal_rows = self._states("goal", device, gathers)
        dt = float64(_placed(self.steps(), device))
        program = self.mode.program(self.reach, actions, start, goal, dt, self.recorded, state)
        return program.indexed(start_rows, goal_rows)

    def _states(
        self, role: str, device: str | None, as_given: bool
    ) -> tuple[list[Any], Array | None]:
        """The four parts of the start or goal state, and which row of them each trajectory has.

        as_given: of the type they have, and with their index, if there is one. Else float64
        [B, D], each trajectory its own.
        """
        parts, index = getattr(self, role), getattr(self, f"{role}_index")
        batch = int(self.actions.shape[0])
        if not as_given:
            return _gathered(parts, index, batch, device), None
        many = batch if index is None else max(map(len, parts.values()), default=1)
        rows = None if index is None else _whole(index, device)
        found: list[Any] = [None] * 4
        for m, name in enumerate(PARTS):
            if name in parts:
                values = _placed(parts[name], device)
                values = values if values.is_floating_point() else values.double()
                # of one for all the gradients are summed before they are rounded
                found[m] = repeated(float64(values), many) if values.shape[0] == 1 else values
        return found, rows

    def compute(
        self,
        choice: Choice,
        dtype: str,
        wanted: Sequence[str],
        into: Mapping[str, Array] | None = None,
        carry: Carry | None = None,
    ) -> dict[str, Any]:
        """Run the kernels; the outputs [B, T, D] are NumPy arrays, those of ``into`` if given.

        Only kernels that work in this machine's memory take ``into``. ``carry``: what the rows
        before have left; then what these leave.
        """
        batch, _, dofs = self.actions.shape
        first, last = self.reach.rows
        shape = (batch, last - first, dofs)
        carry = carry or Carry()
        end = last < self.rows
        if choice.backend == "native":
            arrays = dict(into or {name: np.empty(shape, dtype) for name in wanted})
            program = self.program(None, carry)
            out = [arrays.get(name) for name in PARTS]
            carry.state = run_program(program, choice.kernels, out, end)
            return arrays
        import torch

        kind = getattr(torch, dtype)
        outputs = {name: torch.empty(shape, dtype=kind, device=choice.device) for name in wanted}
        with torch.inference_mode():
            program = self.program(choice.device, carry, choice.backend == "triton")
            out = [outputs.get(name) for name in PARTS]
            state = run_program(program, choice.kernels, out, end)
        carry.state = state and [Pair(to_numpy(p.hi), to_numpy(p.lo)) for p in state]
        return {name: values.cpu().numpy() for name, values in outputs.items()}


def _placed(values: Array, device: str | None, whole: bool = False) -> Array:
    """A torch tensor on the device, or without one a NumPy array; ``whole``: whole numbers."""
    if device is None:
        return to_numpy(values)
    return to_torch(values, device, whole)


def _whole(index: Array, device: str | None) -> Array:
    """Rows to take, int64; those of a device stay there."""
    if is_torch(index) and device is not None:
        return index.to(device).long()
    return _placed(to_numpy(index).astype(np.int64), device, whole=True)


def _rows(values: Array, begin: int, end: int) -> Array:
    return values[begin:end] if loaded(values) else values.read_rows(begin, end)


def _part(values: Array, begin: int, end: int, span: Range | None) -> Array:
    """Trajectories begin..end of dt or time stamps, where each has its own; entries ``span``."""
    if values.ndim == 0 or (values.ndim == 1 and span is None):
        return values
    if values.ndim == 1 and span is not None:
        return _rows(values, *span)
    begin, end = (begin, end) if values.shape[0] > 1 else (0, 1)
    if span is None:
        return _rows(values, begin, end)
    return (
        values[begin:end, slice(*span)] if loaded(values) else values.read_part(begin, end, *span)
    )


def _gathered(
    parts: Mapping[str, Array], index: Array | None, batch: int, device: str | None
) -> list[Any]:
    """The four parts as float64 [B, D] where they are wanted, each its own; None if absent."""
    found: list[Any] = []
    for name in PARTS:
        if name not in parts:
            found.append(None)
            continue
        values = _placed(parts[name], device)
        if values.shape[0] == 1:
            found.append(repeated(float64(values), batch))
            continue
        found.append(float64(values) if index is None else own_rows(values, _whole(index, device)))
    return found
