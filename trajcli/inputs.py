"""The input of a job or of one block of it: arrays, their checks, and the kernel call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from trajcli.arrays import (
    differences,
    float64,
    is_torch,
    readable,
    repeated,
    to_numpy,
    to_torch,
)
from trajcli.checks import (
    describe,
    largest,
    located,
    nonfinite_fault,
    place,
    time_stamp_faults,
    time_stamp_shape_faults,
)
from trajcli.errors import Fault
from trajcli.kernels.choose import Choice
from trajcli.kernels.program import Program, run_program
from trajcli.modes import PARTS, Mode
from trajcli.modes.mode import Case

Array = Any
"""numpy.ndarray or torch.Tensor."""

_MANY_ROWS = 1 << 20


@dataclass(frozen=True)
class Inputs:
    """All input of a job or of one block of it, in one library, with names for messages.

    ``start`` and ``goal`` hold the given parts [S, D] (S = 1: shared by all), ``dt`` is
    [b, h] as given (aligned by :meth:`Mode.align_dt`, unless ``steps_aligned``), ``names`` says
    where each came from; ``row_numbers`` [H] counts rows in the file where some were left out.
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

    @property
    def horizon(self) -> int:
        """H, the number of actions per trajectory."""
        return int(self.actions.shape[1])

    @property
    def intervals(self) -> int:
        """How many steps the rows span."""
        return self.mode.intervals(self.horizon, self.recorded)

    def name(self, role: str) -> str:
        """Where an input came from, for messages."""
        return self.names.get(role, role)

    def faults(self) -> list[Fault]:
        """Everything that keeps these inputs from being computed, by shape, dt and index."""
        shape = tuple(self.actions.shape)
        if len(shape) != 3:
            return [
                Fault(
                    "wrong number of dimensions",
                    self.name("actions"),
                    "[B, H, D], or [H, D] for one trajectory",
                    describe(shape),
                )
            ]
        if shape[1] < 1 or shape[2] < 1:
            where = self.name("actions")
            return [Fault("no actions", where, "H >= 1 and D >= 1", describe(shape))]
        found = self._step_faults()
        found += self._state_faults("start", self.start, self.start_index)
        found += self._state_faults("goal", self.goal, self.goal_index)
        steps = self.dt if self.times is None else self.times
        case = Case(
            horizon=shape[1],
            start=frozenset(self.start),
            goal=frozenset(self.goal),
            recorded=self.recorded,
            steps_vary=self.times is not None
            or (steps is not None and steps.ndim > 0 and steps.shape[-1] > 1),
        )
        return found + self.mode.faults(case)

    def _step_faults(self) -> list[Fault]:
        batch, steps = int(self.actions.shape[0]), self.intervals
        if self.times is not None:
            if self.dt is not None:
                return [Fault("both dt and times", self.name("times"), "one of them", "both")]
            faults = time_stamp_shape_faults(self.times.shape, batch, steps + 1, self.name("times"))
            if faults or not (_loaded(self.times) and readable(self.times)):
                return faults
            return time_stamp_faults(
                self.times, self.name("times"), self.first_trajectory, self.row_numbers
            )
        if self.dt is None:
            return [
                Fault(
                    "no time step",
                    "dt",
                    "a step in seconds, a rate, or time stamps",
                    "none given, and none in the input",
                    "--dt SECONDS, --rate HZ or --times FILE:DATASET",
                )
            ]
        shape = tuple(self.dt.shape)
        allowed = _dt_shapes(batch, steps, self.recorded)
        if shape not in allowed:
            return [
                Fault(
                    "wrong shape",
                    self.name("dt"),
                    " or ".join(dict.fromkeys(describe(s) for s in allowed)),
                    describe(shape),
                    "one dt per trajectory has shape [B, 1]" if shape == (batch,) else "",
                )
            ]
        if not (_loaded(self.dt) and readable(self.dt)):
            return []
        values = to_numpy(self._used_dt())
        bad = np.argwhere(~(np.isfinite(values) & (values > 0)))
        if not len(bad):
            return []
        first = bad[0] + (0, self._unused_steps())
        spot = place(("trajectory", "step"), first, values.shape, self.first_trajectory)
        number = f" ({len(bad)} such entries)" if len(bad) > 1 else ""
        return [
            Fault(
                "a step that is not positive and finite",
                located(self.name("dt"), spot),
                "dt > 0, in seconds",
                f"{float(values[tuple(bad[0])])!r}{number}",
            )
        ]

    def _used_dt(self) -> Array:
        """dt as [b, h]; a recording's H entries lose the first, which leads into row 0."""
        assert self.dt is not None
        dt = float64(self.dt)
        dt = dt.reshape(1, 1) if dt.ndim == 0 else dt
        dt = dt[None] if dt.ndim == 1 else dt
        return dt[:, 1:] if self._unused_steps() else dt

    def _unused_steps(self) -> int:
        """1 where a recording's dt has an entry for the step into row 0, else 0."""
        assert self.dt is not None
        count = self.dt.shape[-1] if self.dt.ndim else 1
        return int(self.recorded and count == self.horizon and self.horizon > 1)

    def _state_faults(
        self, role: str, parts: Mapping[str, Array], index: Array | None
    ) -> list[Fault]:
        batch, _, dofs = (int(n) for n in self.actions.shape)
        found = []
        for part, values in parts.items():
            where = self.name(f"{role}/{part}")
            shape = tuple(values.shape)
            if len(shape) != 2:
                found.append(
                    Fault("wrong number of dimensions", where, "[B, D] or [D]", describe(shape))
                )
            elif shape[1] != dofs:
                found.append(
                    Fault(
                        f"{role} and actions differ in their dofs (D)",
                        where,
                        f"D = {dofs}, as in {self.name('actions')}",
                        f"D = {shape[1]}, shape {describe(shape)}",
                    )
                )
            elif index is None and shape[0] not in (1, batch):
                found.append(
                    Fault(
                        f"{role} states and trajectories differ in number (B)",
                        where,
                        f"[{batch}, {dofs}], or one for all: [{dofs}]",
                        describe(shape),
                        f"a {role} index [B] says which of the states each trajectory uses",
                    )
                )
        counts = {int(v.shape[0]) for v in parts.values() if v.ndim == 2 and v.shape[0] != 1}
        if index is not None:
            found += self._index_faults(role, index, max(counts, default=1))
            if not parts:
                found.append(Fault(f"a {role} index without a {role} state", self.name(role)))
        if len(counts) > 1 and (index is not None):
            what = f"parts of the {role} state differ in number"
            found.append(Fault(what, self.name(role), "one number of states", str(sorted(counts))))
        return found

    def _index_faults(self, role: str, index: Array, count: int) -> list[Fault]:
        where = self.name(f"{role}_index")
        batch = int(self.actions.shape[0])
        values = to_numpy(index)
        if values.shape != (batch,) or values.dtype.kind not in "iu":
            found = f"{values.dtype} {describe(values.shape)}"
            return [Fault("wrong shape or type", where, f"integers [{batch}]", found)]
        bad = np.flatnonzero((values < 0) | (values >= count))
        if not len(bad):
            return []
        b = int(bad[0])
        return [
            Fault(
                "index out of range",
                f"{where}, trajectory {self.first_trajectory + b}",
                f"0 to {count - 1} (there are {count} {role} states)",
                str(int(values[b])),
            )
        ]

    def arrays(self) -> list[Array]:
        """Every array there is, the actions first."""
        single = (self.actions, self.dt, self.times)
        parts = (*self.start.values(), *self.goal.values())
        return [value for value in (*single, *parts) if value is not None]

    def nonfinite(self) -> list[Fault]:
        """NaN and Inf in actions and states, each with its first place."""
        axes = ("trajectory", "step", "dof")
        shift, rows = self.first_trajectory, self.row_numbers
        found = [nonfinite_fault(self.actions, self.name("actions"), axes, shift, rows)]
        for role, parts in (("start", self.start), ("goal", self.goal)):
            for part, values in parts.items():
                where = self.name(f"{role}/{part}")
                own = getattr(self, f"{role}_index") is None and values.shape[0] != 1
                kinds = ("trajectory" if own else "state", "dof")
                found.append(nonfinite_fault(values, where, kinds, shift))
        return [fault for fault in found if fault is not None]

    def block(
        self, actions: Array, begin: int, end: int, shift: int, names: Mapping[str, str]
    ) -> Inputs:
        """Trajectories begin..end with their actions; what was stored is read now.

        shift: how far the numbering of messages lies below that of all trajectories.
        """

        def states(parts: Mapping[str, Array], index: Array | None) -> dict[str, Array]:
            whole = index is not None
            return {
                name: _rows(values, 0, values.shape[0])
                if whole or values.shape[0] == 1
                else _rows(values, begin, end)
                for name, values in parts.items()
            }

        def per_trajectory(values: Array | None) -> Array | None:
            if values is None or values.ndim < 2 or values.shape[0] == 1:
                return values
            return _rows(values, begin, end)

        def indices(values: Array | None) -> Array | None:
            return None if values is None else values[begin:end]

        return replace(
            self,
            actions=actions,
            start=states(self.start, self.start_index),
            goal=states(self.goal, self.goal_index),
            dt=per_trajectory(self.dt),
            times=per_trajectory(self.times),
            start_index=indices(self.start_index),
            goal_index=indices(self.goal_index),
            names={**self.names, **names},
            first_trajectory=begin - shift,
        )

    def stays_below(self, limit: float) -> bool:
        """Whether no result can reach a magnitude, by a bound that costs one look at the input.

        Of order m a result is at most a sum over all steps, or a stencil of them: see modes.md.
        """
        values = [self.actions, *self.start.values(), *self.goal.values()]
        peak = max(largest(to_numpy(v)) for v in values)
        steps = to_numpy(self.steps())
        shortest, longest = float(steps.min(initial=1.0)), float(steps.max(initial=1.0))
        rows = self.mode.rows(self.horizon, self.recorded)
        bound = 64.0 * peak * (1.0 + rows * longest) ** 3 * (1.0 + 8.0 / shortest) ** 3
        return bound < limit  # False for NaN

    def steps(self) -> Array:
        """dt as float64 [b, h] in the library it came in, aligned to rows."""
        if self.times is None:
            used = self._used_dt()
            return used if self.steps_aligned else self.mode.align_dt(used)
        times = self.times[None] if self.times.ndim == 1 else self.times
        # A recording of one row has no step; any will do, none is used.
        return differences(times) if times.shape[1] > 1 else float64(times * 0 + 1)

    def raw_steps(self) -> Array:
        """The steps as they are given, [b, h]: dt, or the gaps between time stamps."""
        if self.times is not None:
            return self.steps()
        assert self.dt is not None
        return self.dt.reshape((1,) * (2 - self.dt.ndim) + tuple(self.dt.shape))

    def gathered(self, role: str, device: str | None) -> dict[str, Any]:
        """The given parts of the start or goal state, each trajectory's own: float64 [B, D]."""
        parts, index = getattr(self, role), getattr(self, f"{role}_index")
        found = _gathered(parts, index, int(self.actions.shape[0]), device)
        return {name: part for name, part in zip(PARTS, found, strict=True) if part is not None}

    def row_times(self) -> Array:
        """Time of each row, float64 [b, T] in dt's library."""
        return self.mode.row_times(self.steps(), self.horizon, self.recorded)

    def shared_times(self) -> Any:
        """Time of the rows [T], all trajectories' own; of many rows, a function that makes some."""
        rows = self.mode.rows(self.horizon, self.recorded)
        uniform = self.times is None and self.dt is not None and self.dt.ndim == 0
        if not uniform or self.mode.row_0 is None or rows <= _MANY_ROWS:
            return self.row_times()[0]
        step, row_0 = float(self.steps()[0, 0]), self.mode.row_0
        return lambda begin, end: step * np.arange(begin + row_0, end + row_0)

    def program(self, device: str | None) -> Program:
        """What the kernels are to do, on torch tensors on the device; None: on NumPy arrays."""
        actions = _placed(self.actions, device)
        batch = actions.shape[0]
        start = _gathered(self.start, self.start_index, batch, device)
        goal = _gathered(self.goal, self.goal_index, batch, device)
        dt = float64(_placed(self.steps(), device))
        return self.mode.program(actions, start, goal, dt, self.recorded)

    def compute(
        self,
        choice: Choice,
        dtype: str,
        wanted: Sequence[str],
        into: Mapping[str, Array] | None = None,
    ) -> dict[str, Any]:
        """Run the kernels; the outputs [B, T, D] are NumPy arrays, those of ``into`` if given.

        Only kernels that work in this machine's memory take ``into``.
        """
        batch, horizon, dofs = self.actions.shape
        shape = (batch, self.mode.rows(horizon, self.recorded), dofs)
        if choice.backend == "native":
            arrays = dict(into or {name: np.empty(shape, dtype) for name in wanted})
            run_program(self.program(None), choice.kernels, [arrays.get(name) for name in PARTS])
            return arrays
        import torch

        kind = getattr(torch, dtype)
        outputs = {name: torch.empty(shape, dtype=kind, device=choice.device) for name in wanted}
        with torch.inference_mode():
            program = self.program(choice.device)
            run_program(program, choice.kernels, [outputs.get(name) for name in PARTS])
        return {name: values.cpu().numpy() for name, values in outputs.items()}


def _placed(values: Array, device: str | None, whole: bool = False) -> Array:
    """A torch tensor on the device, or without one a NumPy array; ``whole``: whole numbers."""
    if device is None:
        return to_numpy(values)
    return to_torch(values, device, whole)


def _loaded(values: Array) -> bool:
    """Whether the values are in memory, not only stored in a file."""
    return isinstance(values, np.ndarray) or is_torch(values)


def _rows(values: Array, begin: int, end: int) -> Array:
    return values[begin:end] if _loaded(values) else values.read_rows(begin, end)


def _dt_shapes(batch: int, steps: int, recorded: bool) -> list[tuple[int, ...]]:
    counts = [steps, steps + 1] if recorded else [steps]
    shapes: list[tuple[int, ...]] = [(), *((n,) for n in counts), (batch, 1)]
    shapes += [(batch, n) for n in counts]
    return [*shapes, (1,), (1, 1), *((1, n) for n in counts)]


def _gathered(
    parts: Mapping[str, Array], index: Array | None, batch: int, device: str | None
) -> list[Any]:
    """The four parts as float64 [B, D] where they are wanted, each its own; None if absent."""
    found: list[Any] = []
    for name in PARTS:
        if name not in parts:
            found.append(None)
            continue
        values = float64(_placed(parts[name], device))
        if values.shape[0] == 1:
            values = repeated(values, batch)
        elif index is not None:
            values = values[_placed(to_numpy(index).astype(np.int64), device, whole=True)]
        found.append(values)
    return found
