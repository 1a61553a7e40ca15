"""Looks up what an integrate or differentiate request names: trajectories, times, states, mode."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from trajcli.errors import FaultCollector, InputError, Note, TrajcliError, UsageError, raise_if_any
from trajcli.files.dofs import parse_dofs
from trajcli.files.opening import Files
from trajcli.files.reader import read_groups, read_recordings, require_alike, time_from_options
from trajcli.files.reading import select
from trajcli.files.repair import repaired
from trajcli.files.rotation_groups import require_rotations
from trajcli.files.source import expand_files, parse_source
from trajcli.files.states import NO_STATE, States, joined_states, state_from_option, stored_state
from trajcli.files.time import Time
from trajcli.files.trajectories import Trajectories, timed
from trajcli.files.trajectory_group import TrajectoryGroup
from trajcli.jobs.commands import Commands
from trajcli.jobs.inputs import LeftOut, LengthInputs, inputs_by_length, recorded_rates
from trajcli.jobs.request import Request
from trajcli.jobs.statements import guess_faults, resolve_mode
from trajcli.modes import Mode, make_method, make_mode
from trajcli.modes.cascade import Cascade
from trajcli.modes.central import WINDOW, Central
from trajcli.modes.savgol import SavitzkyGolay
from trajcli.modes.smooth import Smooth
from trajcli.units import per_si


def resolve(
    request: Request, files: Files, sources: Sequence[str]
) -> tuple[Trajectories, list[LengthInputs], str | None, list[LeftOut]]:
    """Looks up everything that a request names, without reading values of actions.

    Parameters:
        sources: the SOURCEs to read; those of the request, or of one shard.

    Returns:
        The trajectories, the inputs of each length, the file that states the mode (or None), and
        the files and trajectories that ``skip_bad`` leaves out.

    Raises:
        InputError, UsageError: with everything that is missing or does not fit.
    """
    check, left_out = FaultCollector(), list[LeftOut]()
    _, groups, option = check.attempt(
        lambda: _refuse_options(request),
        lambda: _read_groups(request, files, sources, left_out),
        lambda: time_from_options(files),
    )
    if option is None and (request.dt, request.rate, request.times) != (None, None, None):
        check.raise_if_any()  # a time option that is wrong is one fault, not two
    states: Any = None
    stated: Any = None
    if groups:
        states, stated = check.attempt(
            lambda: _option_states(request, files, groups[0]), lambda: resolve_mode(request, groups)
        )
    # recordings begin at their first row; only modes that end at a goal read goal states
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
        check.attempt(lambda: _require_turns(request, members, stated and stated[0]))
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
    if not request.recorded and recorded_rates(members, mode):
        mode, note = _of_rates(request, members[0], mode)
        notes = [*notes, note]
    if request.recorded:
        mode = _noise_in_si(mode, members[0])
        members, more = repaired(members, request, _least_rows(mode))
        notes = [*notes, *more]
        require_rotations(members[0])
    trajectories = Trajectories(members, start, goal, notes)
    count = len(trajectories)
    raise_if_any([*start.faults("start", count), *goal.faults("goal", count)])
    if request.episodes is not None:
        trajectories = trajectories.take(np.sort(select(request.episodes, count)))
    parts = inputs_by_length(trajectories, mode, commands, request.recorded)
    raise_if_any(fault for part in parts for fault in part.shape_faults(not request.skip_bad))
    return trajectories, parts, mode_source, left_out


def _refuse_options(request: Request) -> None:
    """Raises UsageError for options that are wrong whatever the inputs are."""
    request.refuse_gap()
    if request.recorded:
        make_method(request.mode, **request.options)
    elif request.mode is not None:
        make_mode(request.mode, **request.options)


def _read_groups(
    request: Request, files: Files, sources: Sequence[str], left_out: list[LeftOut]
) -> list[TrajectoryGroup]:
    """Returns the groups that the sources name, in the units of their files.

    With skip_bad, files that cannot be read are added to ``left_out`` instead.
    """

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
    group: TrajectoryGroup, others: Sequence[TrajectoryGroup], request: Request, option: Time | None
) -> None:
    """Raises InputError for a group that is unlike the others, or has no times.

    Raises UsageError where --units names a unit of time, and the times are not from a dataset.
    """
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
    """Returns the states that --start and --goal name, by role."""
    texts = {"start": request.start, "goal": request.goal}
    named = {role: text for role, text in texts.items() if text is not None}
    if named:  # states without a unit have that of the first group
        first = first.in_si(request.input_units)
    return {role: state_from_option(files, role, text, first) for role, text in named.items()}


def _of_rates(request: Request, first: TrajectoryGroup, mode: Mode) -> tuple[Mode, str]:
    """Returns the mode that integrates rates with a time stamp each, and a note that says so.

    Raises UsageError for options that such rates do not take.
    """
    assert isinstance(mode, Cascade)
    if request.absolute is not None:
        raise UsageError(
            "absolute dofs beside rates with a time stamp each",
            where="--absolute",
            expected="none",
            hint="--dofs picks the others",
        )
    stated = None if mode.scheme == "euler" else mode.scheme
    named = f"{first.input.where}: a time stamp for each row, so these are recorded"
    how = "integrated by foh (trapezoidal rule) from the first on; row 0 is the start"
    rates = {"velocity": "velocities", "acceleration": "accelerations", "jerk": "jerks"}
    return mode.of_rates(request.options.get("scheme", stated)), Note(
        f"{named} {rates[mode.name]}, {how}"
    )


def _least_rows(mode: Mode) -> int:
    """Returns the least number of rows that a method of differentiation needs."""
    if isinstance(mode, SavitzkyGolay):
        return mode.window if isinstance(mode.window, int) else mode.degree + 1
    if isinstance(mode, Smooth):
        return mode.order + 1
    return WINDOW if isinstance(mode, Central) else 1


def _noise_in_si(mode: Mode, first: TrajectoryGroup) -> Mode:
    """The mode with the noise, which is in the unit of the positions, in SI."""
    units = first.position_units
    if not isinstance(mode, Smooth) or mode.noise is None or units is None:
        return mode
    noise = (mode.noise / per_si(units)).tolist()
    return replace(mode, noise=noise[0] if len(set(noise)) == 1 else noise)


def _require_turns(request: Request, members: Sequence[TrajectoryGroup], mode: Mode) -> None:
    """Raise InputError or UsageError for rotations that the mode does not integrate."""
    for group in members[:1]:
        require_rotations(group)
        for rotation in group.turning[:1] if mode is not None else ():
            where, hint = group.input.where, "--rotation none takes them as dofs, --dofs others"
            plain = isinstance(mode, Cascade) and mode.frames == "full"
            if not plain:
                raise InputError(
                    f"mode {mode.name} takes dofs one by one, and these are a rotation",
                    where=where,
                    expected="clique, velocity, acceleration or jerk, with frames full",
                    found=str(rotation),
                    hint=hint,
                )
            if mode.derivatives_of and any(of.form != "rotvec" for of in group.turning):
                raise InputError(
                    f"orientations, and mode {mode.name} takes angular rates",
                    where=where,
                    expected="three dofs about x, y and z, which --rotation WHICH=rotvec names",
                    found=str(rotation),
                    hint=hint,
                )
            if request.grad is not None or request.cost is not None:
                raise UsageError(
                    "no gradients of rotations in files",
                    where="--grad" if request.grad is not None else "--cost",
                    expected="none",
                    hint="trajcli.rotations.integrate has them",
                )


def _commands(request: Request, first: TrajectoryGroup) -> Commands:
    """Returns what --actions and --absolute say of the dofs that are picked."""
    turning = [] if request.recorded else [dof for of in first.turning for dof in of.dofs]
    if request.absolute is None:
        return Commands(request.actions, turning=turning)
    names = first.joint_names or ()
    absolute = parse_dofs(request.absolute, first.shape[2], "--absolute", names)
    return Commands(request.actions, absolute.numbers, turning)
