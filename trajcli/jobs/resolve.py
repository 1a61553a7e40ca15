"""What a request means: the trajectories its sources name, with their times and states."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from trajcli.checks import describe
from trajcli.errors import (
    FaultCollector,
    InputError,
    TrajcliError,
    UsageError,
    raise_if_any,
)
from trajcli.files.dofs import parse_dofs
from trajcli.files.guesses import require_time
from trajcli.files.opening import Files
from trajcli.files.reader import read_sources, require_one_topic
from trajcli.files.repair import repaired
from trajcli.files.selection import select
from trajcli.files.source import expand_files, parse_source
from trajcli.files.stored_time import time_from_options
from trajcli.files.time import Time
from trajcli.files.trajectory_set import TrajectorySet
from trajcli.jobs.commands import Commands
from trajcli.jobs.request import Request
from trajcli.jobs.resolved import LeftOut, Resolved
from trajcli.jobs.segments import require_alike, segments_of
from trajcli.jobs.statements import guess_faults, resolve_mode
from trajcli.jobs.states import (
    NO_STATE,
    StateValues,
    joined_states,
    state_from_option,
    stored_state,
)
from trajcli.modes import Mode, make_method, make_mode
from trajcli.modes.central import WINDOW, Central
from trajcli.modes.savgol import SavitzkyGolay


class SetInputs(NamedTuple):
    """A set, its times and states."""

    source: TrajectorySet
    time: Time
    start: StateValues
    goal: StateValues


def resolve(request: Request, files: Files, sources: Sequence[str]) -> Resolved:
    """Look up everything that a request names; no values of actions are read.

    sources: those of the request that are read. Raises InputError or UsageError with all that is
    missing or does not fit. With ``skip_bad`` what is wrong with one file or trajectory alone
    leaves that out.
    """
    check, left_out = FaultCollector(), list[LeftOut]()
    _, sets, time = check.attempt(
        lambda: _refuse_options(request),
        lambda: _read_sets(request, files, sources, left_out),
        lambda: time_from_options(files),
    )
    if time is None and (request.dt, request.rate, request.times) != (None, None, None):
        check.raise_if_any()  # it is no second fault that there is no time
    states: Any = None
    stated: Any = None
    if sets:
        states, stated = check.attempt(
            lambda: _option_states(request, files, sets[0]), lambda: resolve_mode(request, sets)
        )
    to_goal = stated is not None and stated[0].options().get("ends") == "goal"
    unwanted = {"start": request.recorded, "goal": not to_goal}
    states = {role: NO_STATE for role in unwanted if unwanted[role]} | (states or {})
    inputs: list[SetInputs] = []
    for one in sets or ():
        try:
            first = inputs[0] if inputs else None
            inputs.append(_look_up(request, one, time, states, first))
        except TrajcliError as error:
            if not request.skip_bad:
                check.faults += error.faults
            left_out.append(LeftOut(one.name, error.faults))
    if not inputs:
        check.faults += [fault for bad in left_out for fault in bad.faults]
    check.raise_if_any()
    if time is not None:
        inputs = _with_time(inputs, time)
    return _resolved(request, files, inputs, left_out, stated)


def _refuse_options(request: Request) -> None:
    """Raise UsageError for options that no input could fit."""
    request.refuse_gap()
    if request.recorded:
        make_method(request.mode or "savgol", **request.options)
    elif request.mode is not None:
        make_mode(request.mode, **request.options)


def _resolved(
    request: Request,
    files: Files,
    inputs: Sequence[SetInputs],
    left_out: Sequence[LeftOut],
    stated: tuple[Mode, str | None, list[str]],
) -> Resolved:
    """All sets as one: their states and times, and the mode that they state."""
    sets = [one.source for one in inputs]
    batches = [one.shape[0] for one in sets]
    start = joined_states("start", [one.start for one in inputs], batches)
    goal = joined_states("goal", [one.goal for one in inputs], batches)
    if request.start_index is not None:
        start = start.with_index("start", files.dataset(request.start_index))
    mode, mode_source, notes = stated
    raise_if_any([fault for one in sets for fault in guess_faults(one, mode)], UsageError)
    commands = _commands(request, sets[0])
    raise_if_any(commands.faults(mode), UsageError)
    parts = [(one.source, one.time) for one in inputs]
    if request.recorded:
        parts, more = repaired(parts, request, _least_rows(mode))
        sets, notes = [one for one, _ in parts], [*notes, *more]
    segments = segments_of(parts)
    count = sum(len(segment.trajectories) for segment in segments)
    raise_if_any([*start.faults("start", count), *goal.faults("goal", count)])
    resolved = Resolved(
        request=request,
        mode=mode,
        mode_source=mode_source,
        sets=sets,
        start=start,
        goal=goal,
        segments=segments,
        commands=commands,
        notes=notes,
        left_out=left_out,
    )
    if request.episodes is not None:
        chosen = select(request.episodes, resolved.count)
        resolved = resolved.take(lambda numbers: np.isin(numbers, chosen))
    resolved.require_shapes()
    return resolved


def _least_rows(mode: Mode) -> int:
    """The rows of a recording that the method of a mode needs."""
    if isinstance(mode, SavitzkyGolay):
        return mode.window if isinstance(mode.window, int) else mode.degree + 1
    return WINDOW if isinstance(mode, Central) else 1


def _commands(request: Request, first: TrajectorySet) -> Commands:
    """What --actions and --absolute say of the dofs that are picked."""
    if request.absolute is None:
        return Commands(request.actions)
    names = first.joint_names or ()
    absolute = parse_dofs(request.absolute, first.shape[2], "--absolute", names)
    return Commands(request.actions, absolute.numbers)


def _read_sets(
    request: Request, files: Files, sources: Sequence[str], left_out: list[LeftOut]
) -> list[TrajectorySet]:
    """The sets that the sources name; with skip_bad those of the files that can be read."""
    read = _read_recordings if request.recorded else partial(read_sources, inputs=True)
    if not request.skip_bad:
        return read(files, sources, as_stored=True)
    sets: list[TrajectorySet] = []
    for source in (one for text in sources for one in expand_files(parse_source(text))):
        try:
            sets += read(files, [str(source)], as_stored=True)
        except (InputError, UsageError) as error:
            left_out.append(LeftOut(str(source), error.faults))
    return sets


def _read_recordings(files: Files, sources: Sequence[str], as_stored: bool) -> list[TrajectorySet]:
    """The positions that sources name; where they name none, those of every trajectory.

    Raises InputError for files with none.
    """
    sets = read_sources(files, sources, as_stored)
    if sets and sets[0].file.family == "ros":
        require_one_topic(sets)
    found = [
        one.only("position") for one in sets if one.named or one.lone or "position" in one.arrays
    ]
    if sets and not found:
        one = sets[0]
        path, layout, member = one.file.path, one.layout, one.member
        names = layout.recorded(member) if layout and member else []
        raise InputError(
            "no recorded positions",
            where=str(one.file.path),
            expected="a dataset called position, or one that is named",
            found=", ".join(f"{one.group}/{name}".strip("/") for name in one.arrays),
            hint=f"{path}:{(names or ['DATASET'])[0]} names them; trajcli integrate takes actions",
        )
    return found


def _look_up(
    request: Request,
    one: TrajectorySet,
    time: Time | None,
    states: Mapping[str, StateValues],
    first: SetInputs | None,
) -> SetInputs:
    """A set with all that belongs to it; time, states: those that are not to be looked for.

    Raises InputError for what is missing, or unlike the first set.
    """
    one.convert(request.input_units)
    if first is not None:
        require_alike([first.source, one])
    stored_time = require_time(time or one.time, one.input.where, one)
    if time is None:
        _require_rows(stored_time, one.shape[0])
    unit = request.input_units.time
    if unit is not None and not stored_time.unit:
        raise UsageError(
            "a unit of time, and no stamps or steps in a dataset",
            where=f"--units {unit}",
            expected="seconds, or none",
            found=stored_time.source,
        )
    start, goal = (states.get(role) or stored_state(role, one) for role in ("start", "goal"))
    if request.skip_bad and first is not None and start.parts.keys() != first.start.parts.keys():
        raise InputError("another start state than the others", where=one.name)
    return SetInputs(one, stored_time, start, goal)


def _option_states(request: Request, files: Files, first: TrajectorySet) -> dict[str, StateValues]:
    """The states that --start and --goal name; the others are those of the sets."""
    texts = {"start": request.start, "goal": request.goal}
    named = {role: text for role, text in texts.items() if text is not None}
    if named:  # they are in the units of the first set
        first.convert(request.input_units)
    return {role: state_from_option(files, role, text, first) for role, text in named.items()}


def _with_time(inputs: Sequence[SetInputs], time: Time) -> list[SetInputs]:
    """The sets with their share of the time that an option names for all trajectories."""
    if not time.shape:
        return list(inputs)
    shapes = [one.source.shape for one in inputs]
    count = sum(batch for batch, _, _ in shapes)
    _require_rows(time, count)
    whole, first = time.fitted(count, max(rows for _, rows, _ in shapes)), 0
    timed = []
    for one, (batch, rows, _) in zip(inputs, shapes, strict=True):
        timed.append(one._replace(time=whole.select(range(first, first + batch), rows)))
        first += batch
    return timed


def _require_rows(time: Time, count: int) -> None:
    """Raise InputError for steps or stamps of another number of trajectories."""
    if time.shape[:-1] not in ((), (1,), (count,)):
        expected = "one per trajectory, or one"
        raise InputError(
            "steps and trajectories differ in number",
            where=time.where,
            expected=f"{count}, {expected} for all",
            found=describe(time.shape),
        )
