"""What an integrate or differentiate request means: its trajectories with their times and states,
the mode, and the inputs that each length of trajectory is computed from."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain, islice
from typing import Any

import numpy as np

from trajcli.checks import shape_faults, value_faults
from trajcli.errors import (
    Fault,
    FaultCollector,
    InputError,
    TrajcliError,
    UsageError,
    raise_if_any,
)
from trajcli.files.arrays import in_memory
from trajcli.files.dofs import parse_dofs
from trajcli.files.opening import Files
from trajcli.files.reader import read_groups, read_recordings, refuse_rotations, require_alike
from trajcli.files.reading import select
from trajcli.files.repair import repaired
from trajcli.files.rotation_dofs import RotationDofs
from trajcli.files.schema import RECORDED_START
from trajcli.files.source import expand_files, parse_source
from trajcli.files.stacked import Values, stacked
from trajcli.files.states import (
    NO_STATE,
    States,
    joined_states,
    state_from_option,
    stored_state,
)
from trajcli.files.stored_time import time_from_options
from trajcli.files.time import EAGER_BYTES, Time
from trajcli.files.trajectories import Trajectories, timed
from trajcli.files.trajectory_group import TrajectoryGroup
from trajcli.inputs import Inputs
from trajcli.jobs.commands import Commands
from trajcli.jobs.request import Request
from trajcli.jobs.rotation_block import other_dofs
from trajcli.jobs.statements import guess_faults, resolve_mode
from trajcli.modes import Mode, make_method, make_mode
from trajcli.modes.central import WINDOW, Central
from trajcli.modes.savgol import SavitzkyGolay

_MOST_FAULTS = 5
_BLOCK_BYTES = 8 << 20
"""Of actions that are looked through for values that are not finite."""
LeftOut = tuple[str, Sequence[Fault]]
"""The name of a trajectory or file that --skip-bad leaves out, and why."""


class LengthInputs:
    """Trajectories of one length, and the inputs that they are computed from, read when needed."""

    def __init__(self, trajectories: Trajectories, inputs: Inputs, commands: Commands) -> None:
        self.trajectories, self.inputs, self._commands = trajectories, inputs, commands

    def read(self, begin: int, end: int) -> Inputs:
        """Return the inputs of trajectories begin to end, in memory; their names say where they
        lie in the files."""
        actions = self.inputs.actions.read_rows(begin, end)
        if actions.dtype.kind == "f" and actions.dtype.itemsize > 8:
            actions = actions.astype(np.float64)
        if begin == end:
            return self.inputs.block(actions, begin, end, 0, {})
        group, number = self.trajectories.locate(begin)
        names = {"actions": group.input.where}
        inputs = self.inputs.block(actions, begin, end, begin - number, names)
        return self._commands.used(replace(inputs, row_numbers=group.row_numbers))

    def value_faults(self, begin: int, inputs: Inputs, allow_nonfinite: bool) -> list[Fault]:
        """Return what is wrong with the values that were read of trajectories from ``begin`` on."""
        faults, end = value_faults(inputs, allow_nonfinite), begin + len(inputs.actions)
        if not faults or end - begin < 2:
            return faults
        runs = self.trajectories.take(slice(begin, end)).runs
        if len(runs) == 1 and isinstance(runs[0][0].numbers, range):
            return faults  # they lie in the file as they are numbered
        located = (faults for _, faults in self._bad(begin, end, allow_nonfinite).values())
        return list(islice(chain.from_iterable(located), _MOST_FAULTS)) or faults

    def bad(self, allow_nonfinite: bool) -> dict[int, LeftOut]:
        """Read all values; return the trajectories, by number, that cannot be integrated."""
        batch, rows, dofs = self.inputs.actions.shape
        size = max(1, _BLOCK_BYTES // (rows * dofs * 8))
        bad: dict[int, LeftOut] = {}
        for begin in range(0, batch, size):
            end = min(begin + size, batch)
            if value_faults(self.read(begin, end), allow_nonfinite):
                bad |= self._bad(begin, end, allow_nonfinite)
        return bad

    def _bad(self, begin: int, end: int, allow_nonfinite: bool) -> dict[int, LeftOut]:
        bad: dict[int, LeftOut] = {}
        for k in range(begin, end):
            faults = value_faults(self.read(k, k + 1), allow_nonfinite)
            if faults:
                group, number = self.trajectories.locate(k)
                name = f"{group.input.where}, trajectory {number}"
                bad[int(self.trajectories.numbers[k])] = name, faults
        return bad


@dataclass(frozen=True)
class Resolved:
    """The trajectories of a run and what they are computed with.

    mode_source: the file that states the mode, where it is taken from one. left_out: by --skip-bad.
    """

    request: Request
    trajectories: Trajectories
    mode: Mode
    mode_source: str | None
    commands: Commands
    notes: Sequence[str] = ()
    left_out: Sequence[LeftOut] = ()
    rotations: Sequence[RotationDofs] = ()

    @cached_property
    def other_dofs(self) -> list[int]:
        """The dofs that are no part of a rotation."""
        return other_dofs(self.first) if self.rotations else [*range(self.first.shape[2])]

    @property
    def first(self) -> TrajectoryGroup:
        """The first group of trajectories, for what all groups share."""
        return self.trajectories.first

    @cached_property
    def sources(self) -> dict[str, Sequence[str]]:
        """All names that attributes of the output sum up, by attribute."""
        groups = self.trajectories.groups_in_use
        start, goal = self.trajectories.start, self.trajectories.goal
        return {
            "source": list(dict.fromkeys(group.source for group in groups)),
            "dt_source": list(dict.fromkeys(group.time.source for group in groups if group.time)),
            "start": [RECORDED_START] if self.request.recorded else start.sources,
            **({"goal": goal.sources} if goal.parts else {}),
        }

    @cached_property
    def by_length(self) -> list[LengthInputs]:
        """The trajectories of each length, the shortest first, with their inputs.

        Raises InputError where inputs do not fit together.
        """
        return [
            LengthInputs(part, self._inputs(part), self.commands)
            for part in self.trajectories.by_length()
        ]

    @cached_property
    def longest(self) -> Inputs:
        """The inputs of the longest trajectories."""
        return self.by_length[-1].inputs

    @cached_property
    def dt(self) -> float | str:
        """The step where all trajectories have the same one, else "varies"."""
        steps = [part.inputs.dt for part in self.by_length]
        if any(dt is None or dt.ndim or dt != steps[0] for dt in steps):
            return "varies"
        return float(steps[0])  # type: ignore[arg-type]

    @property
    def times_differ(self) -> bool:
        """Whether trajectories differ in the times of their rows."""
        several = len(self.by_length) > 1 and self.dt == "varies"
        return several or any(part.inputs.steps_differ for part in self.by_length)

    def require_shapes(self) -> None:
        """Raise InputError with all that does not fit by its shape or number, and, but for
        skip_bad, steps that do not go forward."""
        steps, faults = not self.request.skip_bad, list[Fault]()
        for part in self.by_length:
            misfits = shape_faults(part.inputs, steps)
            alone = self._inputs_of_groups(part.trajectories) if misfits else ()
            located = (shape_faults(inputs, steps) for _, inputs in alone)
            faults += list(islice(chain.from_iterable(located), _MOST_FAULTS)) or misfits
        raise_if_any(faults)

    def take(self, which: Any) -> Resolved:
        """Return some of the trajectories: by their places among these, a slice, or booleans."""
        return replace(self, trajectories=self.trajectories.take(which))

    def without_bad_values(self) -> Resolved:
        """Return the trajectories whose values are finite and whose steps go forward; reads all
        values. Raises InputError where none remain."""
        bad: dict[int, LeftOut] = {}
        for part in self.by_length:
            bad |= part.bad(self.request.allow_nonfinite)
            for members, inputs in self._inputs_of_groups(part.trajectories):  # in its file's terms
                if not bad.keys().isdisjoint(members.numbers.tolist()):
                    alone = LengthInputs(members, inputs, self.commands)
                    bad |= alone.bad(self.request.allow_nonfinite)
        left_out = [bad[number] for number in sorted(bad)]
        rest = self.take(~np.isin(self.trajectories.numbers, list(bad)))
        if not len(rest.trajectories):
            raise InputError(*(fault for _, faults in left_out[:_MOST_FAULTS] for fault in faults))
        return replace(rest, left_out=[*self.left_out, *left_out])

    def _inputs_of_groups(self, part: Trajectories) -> Iterator[tuple[Trajectories, Inputs]]:
        """The inputs of each group alone, where there are several."""
        members = [trajectories for _, trajectories in part.by_group()]
        return ((each, self._inputs(each)) for each in (members if members[1:] else ()))

    def _inputs(self, part: Trajectories) -> Inputs:
        """The inputs of trajectories of one length; actions lie in the files."""
        recorded, groups = self.request.recorded, list(part.by_group())
        intervals = part.rows - recorded
        counts = (intervals, intervals + recorded)
        for group, members in groups if groups[1:] else ():
            if not _fits(_selected_time(group, members), counts):
                raise_if_any(shape_faults(self._inputs(members), False))
        dt, stamps, where = _steps_of(groups, counts)
        start, goal = part.start.of(part.numbers), part.goal.of(part.numbers)
        actions = part.dataset()
        named = {"actions": actions.where, "dt": where, "times": where}
        return Inputs(
            mode=self.mode,
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


def resolve(request: Request, files: Files, sources: Sequence[str]) -> Resolved:
    """Look up everything that a request names; no values of actions are read.

    sources: those of the request that are read. Raises InputError or UsageError with all that is
    missing or does not fit. With ``skip_bad`` what is wrong with one file or trajectory alone
    leaves that out.
    """
    check, left_out = FaultCollector(), list[LeftOut]()
    _, groups, option = check.attempt(
        lambda: _refuse_options(request),
        lambda: _read_groups(request, files, sources, left_out),
        lambda: time_from_options(files),
    )
    if option is None and (request.dt, request.rate, request.times) != (None, None, None):
        check.raise_if_any()  # it is no second fault that there is no time
    states: Any = None
    stated: Any = None
    if groups:
        states, stated = check.attempt(
            lambda: _option_states(request, files, groups[0]),
            lambda: resolve_mode(request, groups),
        )
    to_goal = stated is not None and stated[0].options().get("ends") == "goal"
    unwanted = {"start": request.recorded, "goal": not to_goal}
    states = {role: NO_STATE for role in unwanted if unwanted[role]} | (states or {})
    members: list[TrajectoryGroup] = []
    starts: list[States] = []
    goals: list[States] = []
    for group in groups or ():
        try:
            group = group.in_si(request.input_units)
            _require_like(group, members, request, option)
            start, goal = (
                states.get(role) or stored_state(role, group) for role in ("start", "goal")
            )
            if request.skip_bad and starts and start.parts.keys() != starts[0].parts.keys():
                raise InputError("another start state than the others", where=group.name)
        except TrajcliError as error:
            if not request.skip_bad:
                check.faults += error.faults
            left_out.append((group.name, error.faults))
        else:
            members.append(group)
            starts.append(start)
            goals.append(goal)
    if not request.recorded:
        check.attempt(lambda: refuse_rotations(members, "integrate"))
    if not members:
        check.faults += [fault for _, faults in left_out for fault in faults]
    check.raise_if_any()
    members = timed(members, option)
    batches = [group.shape[0] for group in members]
    start, goal = joined_states("start", starts, batches), joined_states("goal", goals, batches)
    if request.start_index is not None:
        start = start.with_index("start", files.dataset(request.start_index))
    mode, mode_source, notes = stated
    raise_if_any([fault for one in members for fault in guess_faults(one, mode)], UsageError)
    commands = _commands(request, members[0])
    raise_if_any(commands.faults(mode), UsageError)
    if request.recorded:
        members, more = repaired(members, request, _least_rows(mode))
        notes = [*notes, *more]
    rotations = members[0].require_rotations() if request.recorded else ()
    if rotations and request.shard is not None:
        raise UsageError("rotations are not computed in shards", where="--shard", expected="none")
    trajectories = Trajectories(members, start, goal)
    count = len(trajectories)
    raise_if_any([*start.faults("start", count), *goal.faults("goal", count)])
    if request.episodes is not None:
        trajectories = trajectories.take(np.sort(select(request.episodes, count)))
    resolved = Resolved(
        request=request,
        trajectories=trajectories,
        mode=mode,
        mode_source=mode_source,
        commands=commands,
        notes=notes,
        left_out=left_out,
        rotations=rotations,
    )
    resolved.require_shapes()
    return resolved


def _refuse_options(request: Request) -> None:
    """Raise UsageError for options that no input could fit."""
    request.refuse_gap()
    if request.recorded:
        make_method(request.mode or "savgol", **request.options)
    elif request.mode is not None:
        make_mode(request.mode, **request.options)


def _read_groups(
    request: Request, files: Files, sources: Sequence[str], left_out: list[LeftOut]
) -> list[TrajectoryGroup]:
    """The groups that the sources name, in the units of their files; with skip_bad those of the
    files that can be read."""

    def read(texts: Sequence[str]) -> list[TrajectoryGroup]:
        if request.recorded:
            return read_recordings(files, texts, as_stored=True)
        return read_groups(files, texts, as_stored=True, actions=True)

    if not request.skip_bad:
        return read(sources)
    groups: list[TrajectoryGroup] = []
    for source in (part for text in sources for part in expand_files(parse_source(text))):
        try:
            groups += read([str(source)])
        except (InputError, UsageError) as error:
            left_out.append((str(source), error.faults))
    return groups


def _require_like(
    group: TrajectoryGroup,
    others: Sequence[TrajectoryGroup],
    request: Request,
    option: Time | None,
) -> None:
    """Raise InputError for a group that is unlike the others, or has no times; UsageError where
    a unit of time is given and there are no stamps or steps in it."""
    if others:
        require_alike([others[0], group])
    if option is None:
        timed([group], None)
    time, unit = option or group.time, request.input_units.time
    if unit is not None and time is not None and not time.unit:
        raise UsageError(
            "a unit of time, and no stamps or steps in a dataset",
            where=f"--units {unit}",
            expected="seconds, or none",
            found=time.source,
        )


def _option_states(request: Request, files: Files, first: TrajectoryGroup) -> dict[str, States]:
    """The states that --start and --goal name; the others are those of the groups."""
    texts = {"start": request.start, "goal": request.goal}
    named = {role: text for role, text in texts.items() if text is not None}
    if named:  # they are in the units of the first group
        first = first.in_si(request.input_units)
    return {role: state_from_option(files, role, text, first) for role, text in named.items()}


def _least_rows(mode: Mode) -> int:
    """The rows of a recording that the method of a mode needs."""
    if isinstance(mode, SavitzkyGolay):
        return mode.window if isinstance(mode.window, int) else mode.degree + 1
    return WINDOW if isinstance(mode, Central) else 1


def _commands(request: Request, first: TrajectoryGroup) -> Commands:
    """What --actions and --absolute say of the dofs that are picked."""
    if request.absolute is None:
        return Commands(request.actions)
    names = first.joint_names or ()
    absolute = parse_dofs(request.absolute, first.shape[2], "--absolute", names)
    return Commands(request.actions, absolute.numbers)


_Members = tuple[TrajectoryGroup, Trajectories]
"""A group, and which of its trajectories."""


def _steps_of(groups: Sequence[_Members], counts: Sequence[int]) -> tuple[Values, Values, str]:
    """dt [], [h], [n, 1] or [n, h] or else stamps [T] or [n, T] of trajectories, and their name.

    counts: how many steps there may be, the first of them between the rows.
    """
    clocks = [_time(group) for group, _ in groups]
    first, step, where = clocks[0], clocks[0].uniform, clocks[0].where
    if step is not None and all(clock.uniform == step for clock in clocks):
        selected = _selected_time(*groups[0])
        if _fits(selected, counts):
            return np.asarray(step), None, where
        # dt stands for too many or too few steps or stamps, whose number is then refused
        steps = np.full(selected.shape, step)
        return (None, np.cumsum(steps, -1), where) if first.stamped else (steps, None, where)
    tables = [_steps_or_stamps(group, members) for group, members in groups]
    stamped = all(of_stamps for _, of_stamps in tables)
    values = tables[0][0]
    one_for_all = values.ndim == 1 and all(table.shape == values.shape for table, _ in tables)
    if len(tables) == 1 or (one_for_all and all(clock.where == where for clock in clocks)):
        return (None, values, where) if stamped else (values, None, where)
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


def _time(group: TrajectoryGroup) -> Time:
    assert group.time is not None  # it was required when the group was looked up
    return group.time


def _selected_time(group: TrajectoryGroup, members: Trajectories) -> Time:
    """The time of these trajectories of a group, for as many rows as they have."""
    batch, rows, _ = group.shape
    if len(members) == batch and members.rows == rows:
        return _time(group)
    inside = members.numbers - members.numbers[:1] + members.runs[0][1]
    return _time(group).select(inside, members.rows)


def _fits(selected: Time, counts: Sequence[int]) -> bool:
    """Whether the steps or stamps of a file are so many as its trajectories need."""
    shape = selected.shape
    whole = shape and shape[-1] != 1
    stamped = selected.stamped
    return not whole or (shape[-1] - 1 == counts[0] if stamped else shape[-1] in counts)


def _steps_or_stamps(group: TrajectoryGroup, members: Trajectories) -> tuple[Values, bool]:
    """Steps or stamps of trajectories, [h] or [1 or n, h], and whether they are stamps."""
    if _time(group).uniform is not None:
        return np.full((1, 1), _time(group).uniform), False
    time = _selected_time(group, members)
    return (time.dt, False) if time.stamps is None else (time.stamps, True)
