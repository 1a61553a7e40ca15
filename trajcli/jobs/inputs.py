"""Inputs of trajectories by length, read block by block; commands and rotations among them.

Commands are increments, offsets, or absolute positions as of a gripper. Turning them into actions
needs start states and rows of another mode, so it belongs to a run and not to files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

import numpy as np

from trajcli.errors import Fault, InputError, raise_if_any
from trajcli.files.catalogue import Values, in_memory, stacked
from trajcli.files.dofs import RotationDofs
from trajcli.files.time import Time
from trajcli.files.trajectories import Trajectories
from trajcli.files.trajectory_group import TrajectoryGroup
from trajcli.inputs import Inputs, shape_faults, value_faults
from trajcli.kernels.choose import Choice
from trajcli.memory import EAGER_BYTES, SCANNED_BYTES
from trajcli.modes import PARTS, Mode
from trajcli.modes.cascade import Cascade, Clique
from trajcli.modes.smooth import Smooth

if TYPE_CHECKING:
    from trajcli.rotations import RotationTrajectory

Arrays = Mapping[str, Any]
MOST_FAULTS = 5
# By how much norms of quaternions in float32 may be off without a remark.
_ROUNDING = 1e-6
# The name of a trajectory or file that --skip-bad leaves out, and its faults.
LeftOut = tuple[str, Sequence[Fault]]


@dataclass(frozen=True)
class Commands:
    """Says what the actions in files stand for, where they are not the actions of the mode.

    Attributes:
        actions: "delta", increments from one step to the next; "relative", offsets from the start
            position; None, the actions of the mode.
        absolute: dofs whose actions are positions, whatever the mode and ``actions``. Their rows
            are those of mode clique: the positions and their differences. Where a mode has not one
            row for each action (bspline, cuRobo's central), they are the mode's own.
        turning: dofs that are rotations, which are no sums.
    """

    actions: str | None = None
    absolute: Sequence[int] = ()
    turning: Sequence[int] = ()

    def among(self, dofs: Sequence[int]) -> Commands:
        """Returns the commands of some dofs, none of which is a rotation."""
        absolute = [dofs.index(dof) for dof in self.absolute if dof in dofs]
        return Commands(self.actions, absolute)

    def options(self) -> dict[str, str]:
        """Returns the options as texts, for reports and attributes; only those that are given."""
        dofs = ",".join(map(str, self.absolute))
        texts = {"actions": self.actions or "", "absolute": dofs}
        return {name: text for name, text in texts.items() if text}

    def faults(self, mode: Mode) -> Iterator[Fault]:
        """Yields the fault of commands that a mode does not take."""
        if self.actions and mode.derivatives_of:
            yield Fault(
                f"{self.actions} actions are positions",
                where="--actions",
                expected="clique, central, teleport or bspline",
                found=f"mode {mode.name}",
            )

    def used(self, inputs: Inputs) -> Inputs:
        """Returns the inputs of a block with the actions of the mode; sums are float64."""
        if self.actions is None:
            return inputs
        start, index = np.asarray(inputs.start["position"], np.float64), inputs.start_index
        if index is not None and len(start) > 1:
            start = start[np.asarray(index)]
        actions = np.asarray(inputs.actions, np.float64)
        # p_t = p_0 + Σ_{s ≤ t} delta_s, or p_0 + offset_t. Overflow is found in the sums
        with np.errstate(over="ignore", invalid="ignore"):
            total = np.cumsum(actions, 1) if self.actions == "delta" else actions
            positions = start[:, None] + total
        copied = [*self.absolute, *self.turning]
        positions[..., copied] = actions[..., copied]
        return replace(inputs, actions=positions)

    def apart(self, inputs: Inputs) -> list[int]:
        """Returns the dofs whose rows are computed by mode clique instead of the mode."""
        if not self.absolute or isinstance(inputs.mode, Clique):
            return []
        mode, clique = inputs.mode, _clique(inputs.mode)
        # two horizons tell whether both modes have as many rows for any
        same = all(mode.rows(n, inputs.recorded) == clique.rows(n, inputs.recorded) for n in (1, 2))
        return list(self.absolute) if same else []

    def positions(self, inputs: Inputs, choice: Choice, dtype: str) -> Arrays:
        """Returns the rows [b, T, n] of the dofs that :meth:`apart` names; {} without any."""
        apart = self.apart(inputs)
        if not apart:
            return {}
        positions = replace(of_dofs(inputs, apart), mode=_clique(inputs.mode))
        return positions.compute(choice, dtype, PARTS)

    def pull_back(
        self, inputs: Inputs, upstream: Callable[[Arrays], Arrays], choice: Choice, dtype: str
    ) -> tuple[Arrays, dict[str, Any]]:
        """Returns outputs, and gradients by the actions as they are in the files.

        upstream: called with the outputs; returns the gradients of the cost by them. See
        :func:`trajcli.adjoint.pull_back`.
        """
        from trajcli.adjoint import pull_back

        chosen, pulled = self.apart(inputs), dict[str, Any]()

        def of_mode(outputs: Arrays) -> Arrays:
            self.put(outputs, self.positions(inputs, choice, dtype))
            pulled.update(upstream(outputs))
            return {n: _without(v, chosen) for n, v in pulled.items()} if chosen else pulled

        def of_positions(_: Arrays) -> Arrays:
            return {n: np.ascontiguousarray(v[..., chosen]) for n, v in pulled.items()}

        outputs, grads = pull_back(inputs, of_mode, choice, dtype)
        if chosen:  # dt is shared, so its gradients add up; actions and states are by dof
            positions = replace(of_dofs(inputs, chosen), mode=_clique(inputs.mode))
            _, others = pull_back(positions, of_positions, choice, dtype)
            for name, grad in others.items():
                if name == "dt":
                    grads[name] = grads[name] + grad
                else:
                    grads[name] = np.array(grads[name])
                    grads[name][..., chosen] = grad
        if self.actions:
            # p_t = p_0 + Σ_{s ≤ t} delta_s: the gradient of p_0 is the sum over t of those of
            # p_t, that of delta_s the sum over t ≥ s
            grad = _without(grads["actions"], self.absolute)
            grads["start_position"] = grads["start_position"] + grad.sum(1)
            if self.actions == "delta":
                grad = np.cumsum(grad[:, ::-1], 1)[:, ::-1]
            grad[..., list(self.absolute)] = grads["actions"][..., list(self.absolute)]
            grads["actions"] = grad
        return outputs, grads

    def put(self, outputs: Arrays, positions: Arrays) -> None:
        """Writes the rows of :meth:`positions` into outputs, in place."""
        for name, values in outputs.items():
            if name in positions:
                values[..., list(self.absolute)] = positions[name]


class LengthInputs:
    """Trajectories of one length with their inputs. Actions stay in the files until they are read.

    Attributes:
        trajectories: the trajectories.
        commands: how actions in the files become those of the mode.
        inputs: the inputs of all trajectories; large arrays lie in the files.
    """

    def __init__(
        self, trajectories: Trajectories, mode: Mode, commands: Commands, recorded: bool
    ) -> None:
        """Raises InputError where the inputs of several files do not fit together."""
        self.trajectories, self.commands = trajectories, commands
        self.inputs = _inputs(trajectories, mode, recorded)

    def of_groups(self) -> Iterator[LengthInputs]:
        """Yields the trajectories of each group alone, where there are several groups."""
        members = [trajectories for _, trajectories in self.trajectories.by_group()]
        for trajectories in members if len(members) > 1 else ():
            yield LengthInputs(trajectories, self.inputs.mode, self.commands, self.inputs.recorded)

    def shape_faults(self, steps: bool) -> list[Fault]:
        """Returns the faults of shapes and numbers and, with ``steps``, of steps that are not
        positive; of several files, each with the file it is in."""
        misfits = shape_faults(self.inputs, steps)
        groups = self.of_groups() if misfits else ()
        located = (shape_faults(group.inputs, steps) for group in groups)
        return list(islice(chain.from_iterable(located), MOST_FAULTS)) or misfits

    def read(self, begin: int, end: int) -> Inputs:
        """Returns the inputs of trajectories begin to end, in memory, named by their places."""
        actions, rates = self.inputs.actions.read_rows(begin, end), self.inputs.rates
        if actions.dtype.kind == "f" and actions.dtype.itemsize > 8:
            # no kernel reads long doubles
            actions = actions.astype(np.float64)
        if begin == end:
            return self.inputs.block(actions, begin, end, 0, {})
        group, where, number = self.trajectories.locate(begin)
        names = {"actions": str(where)}
        inputs = self.inputs.block(actions, begin, end, begin - number, names)
        rows = self.inputs.row_numbers if rates else group.row_numbers
        return self.commands.used(replace(inputs, row_numbers=rows))

    def value_faults(self, begin: int, inputs: Inputs, allow_nonfinite: bool) -> list[Fault]:
        """Returns the faults of the values of a block that begins at trajectory ``begin``."""
        faults, end = value_faults(inputs, allow_nonfinite), begin + len(inputs.actions)
        if not faults or end - begin < 2:
            return faults
        runs = self.trajectories.take(slice(begin, end)).runs
        group = runs[0][0]
        if len(runs) == 1 and isinstance(group.numbers, range) and not group.file.members:
            return faults  # numbers in the block and in the file differ by a constant
        # else one trajectory after the other, so that faults name its place in its file
        located = (faults for _, (_, faults) in self._bad(begin, end, allow_nonfinite))
        return list(islice(chain.from_iterable(located), MOST_FAULTS)) or faults

    def bad(self, allow_nonfinite: bool) -> dict[int, LeftOut]:
        """Reads all values; returns the trajectories that cannot be integrated, by number."""
        batch, rows, dofs = self.inputs.actions.shape
        size = max(1, SCANNED_BYTES // (rows * dofs * 8))
        bad: dict[int, LeftOut] = {}
        for begin in range(0, batch, size):
            end = min(begin + size, batch)
            if value_faults(self.read(begin, end), allow_nonfinite):
                bad |= dict(self._bad(begin, end, allow_nonfinite))
        for group in self.of_groups():  # faults of each file name the places in it
            if not bad.keys().isdisjoint(group.trajectories.numbers.tolist()):
                bad |= group.bad(allow_nonfinite)
        return bad

    def _bad(self, begin: int, end: int, allow_nonfinite: bool) -> Iterator[tuple[int, LeftOut]]:
        for k in range(begin, end):
            if faults := value_faults(self.read(k, k + 1), allow_nonfinite):
                yield int(self.trajectories.numbers[k]), (self.trajectories.place(k), faults)


def inputs_by_length(
    trajectories: Trajectories, mode: Mode, commands: Commands, recorded: bool
) -> list[LengthInputs]:
    """Returns the inputs of the trajectories of each length, the shortest first.

    Raises InputError where inputs do not fit together.
    """
    return [LengthInputs(part, mode, commands, recorded) for part in trajectories.by_length()]


def recorded_rates(groups: Sequence[TrajectoryGroup], mode: Mode) -> bool:
    """Returns whether actions are rates that were recorded with a time stamp each."""
    clocks = [(group.time, group.shape[1]) for group in groups]
    stamped = all(time and time.stamped and time.shape[-1] == n > 1 for time, n in clocks)
    return stamped and isinstance(mode, Cascade) and mode.derivatives_of > 0


def _inputs(trajectories: Trajectories, mode: Mode, recorded: bool) -> Inputs:
    """Returns the inputs of trajectories of one length; actions lie in the files."""
    groups = list(trajectories.by_group())
    foh = getattr(mode, "scheme", "") == "foh"
    rates = foh and not recorded and recorded_rates(trajectories.groups_in_use, mode)
    # T recorded rows have T - 1 steps between them; T actions take T steps. A recording may state
    # T steps, of which the last leads nowhere
    intervals = trajectories.rows - (recorded or rates)
    counts = (intervals, intervals + recorded)
    for group, members in groups if groups[1:] else ():
        if not _fits(_selected_time(group, members), counts):
            raise_if_any(shape_faults(_inputs(members, mode, recorded), False))
    dt, stamps, where = _steps_of(groups, counts)
    start = trajectories.start.of(trajectories.numbers)
    goal = trajectories.goal.of(trajectories.numbers)
    actions = trajectories.dataset()
    named = {"actions": str(actions.where), "dt": str(where), "times": str(where)}
    inputs = Inputs(
        mode=mode,
        actions=actions,
        start=start.parts,
        goal=goal.parts,
        dt=dt,
        times=stamps,
        start_index=start.index,
        goal_index=goal.index,
        recorded=recorded,
        names={**named, **start.names, **goal.names},
        row_numbers=None if groups[1:] else groups[0][0].row_numbers,
    )
    batch, rows, dofs = actions.shape
    if not rates or not batch:
        return inputs
    # the first recorded rate is part of the start state, the others are the actions
    every = np.arange(batch)
    head = actions.select(every, range(1))
    first = replace(head, shape=(batch, dofs), reader=lambda *part: head.read_rows(*part)[:, 0])
    return inputs.of_rates(actions.select(every, range(1, rows)), first)


# A group, and those of its trajectories that are meant.
_Members = tuple[TrajectoryGroup, Trajectories]


def _steps_of(groups: Sequence[_Members], counts: Sequence[int]) -> tuple[Values, Values, object]:
    """Returns steps, or else stamps, of trajectories, and their place for messages.

    Steps are [] (one for all), [h], [n, 1] or [n, h], stamps [T] or [n, T]. counts: how many steps
    a trajectory may have; the first is the number of intervals between rows.
    """
    clocks = [time_of(group) for group, _ in groups]
    first, step, where = clocks[0], clocks[0].uniform, clocks[0].where
    if step is not None and all(clock.uniform == step for clock in clocks):
        selected = _selected_time(*groups[0])
        if _fits(selected, counts):
            return np.asarray(step), None, where
        # equal steps were read as one dt, but their number is wrong: shape_faults shall see it
        steps = np.full(selected.shape, step)
        return (None, np.cumsum(steps, -1), where) if first.stamped else (steps, None, where)
    # steps differ: a table for each group
    tables = [_steps_or_stamps(group, members) for group, members in groups]
    stamped = all(of_stamps for _, of_stamps in tables)
    values = tables[0][0]
    one_for_all = values.ndim == 1 and all(table.shape == values.shape for table, _ in tables)
    if len(tables) == 1 or (one_for_all and all(clock.where == where for clock in clocks)):
        return (None, values, where) if stamped else (values, None, where)
    # steps of some groups and stamps of others become steps of all
    rows = [
        np.diff(in_memory(table).astype("f8")) if of_stamps and not stamped else table
        for table, of_stamps in tables
    ]
    widths = {table.shape[-1] for table in rows} - {1}
    if len(widths) > 1:
        raise InputError(
            "inputs with different steps",
            where=where,
            expected="as many in each",
            hint="--dt, --rate or --times for all, or run them one at a time",
        )
    shapes = [(len(members), max(widths, default=1)) for _, members in groups]
    joined: Values = stacked([
        table if table.shape == shape else np.broadcast_to(in_memory(table), shape)
        for table, shape in zip(rows, shapes, strict=True)
    ])  # fmt: skip
    joined = joined if joined.nbytes > EAGER_BYTES else joined.read()
    if stamped:
        return None, joined, "time stamps of the inputs"
    return joined, None, "dt of the inputs"


def time_of(group: TrajectoryGroup) -> Time:
    """Returns the times of a group that has them."""
    assert group.time is not None  # it was required when the group was looked up
    return group.time


def _selected_time(group: TrajectoryGroup, members: Trajectories) -> Time:
    """Returns the times of some trajectories of a group, for as many rows as they have."""
    batch, rows, _ = group.shape
    if len(members) == batch and members.rows == rows:
        return time_of(group)
    inside = members.numbers - members.numbers[:1] + members.runs[0][1]
    return time_of(group).select(inside, members.rows)


def _fits(selected: Time, counts: Sequence[int]) -> bool:
    """Returns whether a file has as many steps or stamps as its trajectories need."""
    shape = selected.shape
    whole = shape and shape[-1] != 1
    stamped = selected.stamped
    return not whole or (shape[-1] - 1 == counts[0] if stamped else shape[-1] in counts)


def _steps_or_stamps(group: TrajectoryGroup, members: Trajectories) -> tuple[Values, bool]:
    """Returns steps or stamps, [h] or [1 or n, h], and whether they are stamps."""
    if time_of(group).uniform is not None:
        return np.full((1, 1), time_of(group).uniform), False
    time = _selected_time(group, members)
    return (time.dt, False) if time.stamps is None else (time.stamps, True)


def of_dofs(inputs: Inputs, dofs: Sequence[int]) -> Inputs:
    """Returns a block's inputs with some of the dofs, without a goal state."""
    start = {part: np.take(values, dofs, -1) for part, values in inputs.start.items()}
    actions, mode = np.take(inputs.actions, dofs, -1), mode_of_dofs(inputs.mode, dofs)
    return replace(inputs, mode=mode, actions=actions, start=start, goal={}, goal_index=None)


def mode_of_dofs(mode: Mode, dofs: Sequence[int]) -> Mode:
    """Returns a mode for some of the dofs: with their noise, where dofs have one each."""
    if not isinstance(mode, Smooth) or not isinstance(mode.noise, list):
        return mode
    own = [mode.noise[dof] for dof in dofs]
    return replace(mode, noise=own[0] if len(set(own)) == 1 else own)


def _clique(mode: Mode) -> Clique:
    """Returns mode clique with as many rows as a mode and, for cascades, the same steps."""
    convention = getattr(mode, "convention", "") if mode.derivatives_of else "standard"
    return Clique(frames=getattr(mode, "frames", "full"), convention=convention)


def _without(values: Any, columns: Sequence[int]) -> Any:
    """Returns a copy of values [..., D] with zeros in some columns."""
    masked = np.array(values)
    masked[..., list(columns)] = 0.0
    return masked


def integrated(
    inputs: Inputs, rotations: Sequence[RotationDofs], kind: str | None, frame: str
) -> RotationTrajectory:
    """Returns the orientations and rates that a block's actions lead to from its start.

    Actions are angular rates [b, H, 3] of modes that sum, else orientations: each of a row or, of
    kind "delta" or "relative", turns that are composed. Start positions are in the form of the
    actions, zero the identity; rates of composed orientations are differences of neighbours.
    """
    from trajcli.quaternions import from_quaternions, to_quaternions
    from trajcli.rotations import compose, differentiate, integrate
    from trajcli.trajectory import State

    def stacked(values: Any, form: bool = False) -> Any:
        columns = [np.asarray(values[..., list(r.dofs)], np.float64) for r in rotations]
        if form:
            columns = [
                to_quaternions(x, r.form, inputs.name("actions"), allow_nonfinite=inputs.trusted)
                for x, r in zip(columns, rotations, strict=True)
            ]
        return columns[0] if len(columns) == 1 else np.stack(columns, -2)

    index, mode = inputs.start_index, inputs.mode
    states = {
        part: values if index is None or len(values) == 1 else np.asarray(values)[np.asarray(index)]
        for part, values in inputs.start.items()
    }
    position = np.array(states["position"], np.float64)
    for dofs, form in ((list(r.dofs), r.form) for r in rotations):
        if not position[..., dofs].any():
            position[..., dofs] = from_quaternions(np.array([1.0, 0.0, 0.0, 0.0]), form)
    first, steps = stacked(position, form=True), inputs.steps
    if mode.derivatives_of:
        rates = {part: stacked(values) for part, values in states.items() if part != "position"}
        return integrate(
            stacked(inputs.actions), State(first, **rates), steps, mode.name,
            scheme=getattr(mode, "scheme", "euler"), frame=frame, allow_nonfinite=inputs.trusted,
        )  # fmt: skip
    turns = stacked(inputs.actions, form=True)
    if kind is None:
        first = np.broadcast_to(first, (len(turns), *first.shape[1:]))[:, None]
        rows = np.concatenate([first, turns], 1)
    else:
        rows = compose(turns, first, kind=kind, frame=frame)
    return differentiate(
        rows, dt=steps, method="backward", frame=frame, allow_nonfinite=inputs.trusted
    )


def orientations(
    values: Any,
    rotations: Sequence[RotationDofs],
    locate: Callable[[int], str],
    notes: list[str],
    allow_nonfinite: bool = False,
) -> Any:
    """Returns quaternions [b, T, 4] or [b, T, R, 4] from the dofs [b, T, D] that are rotations.

    locate: returns the place of the k-th trajectory, for errors and for the note on norms.
    """
    from trajcli.quaternions import to_quaternions

    columns = [(values[..., list(rotation.dofs)], rotation.form) for rotation in rotations]
    try:
        q = [to_quaternions(x, form, allow_nonfinite=allow_nonfinite) for x, form in columns]
    except InputError:  # find the trajectory, so that the error names it
        for k in range(len(values)):
            for x, form in columns:
                to_quaternions(x[k], form, locate(k), allow_nonfinite=allow_nonfinite)
        raise
    for x, form in columns:
        off = abs(np.linalg.norm(x, axis=-1) - 1.0) if form in ("xyzw", "wxyz") else np.zeros(1)
        largest, remark = float(np.nanmax(off, initial=0.0)), "quaternions are normalised: norms"
        if largest > _ROUNDING and not any(remark in note for note in notes):
            notes.append(f"{locate(0)}: {remark} are off by {largest:.1g}")
    return q[0] if len(q) == 1 else np.stack(q, 2)
