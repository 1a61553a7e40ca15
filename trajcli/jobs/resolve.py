"""Looks up what an integrate or differentiate request names: trajectories, times, states, mode."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np

from trajcli.arrays import largest
from trajcli.commands import Commands
from trajcli.errors import Fault, InputError, Note, TrajcliError, UsageError, raise_if_any
from trajcli.files.catalogue import decode_text
from trajcli.files.clock import Clock
from trajcli.files.conversion import read_unit
from trajcli.files.dofs import parse_dofs
from trajcli.files.opening import Files, clock_from_options
from trajcli.files.quantities import POSITIONS, QUANTITIES, motion_rank, rate_name
from trajcli.files.reader import (
    assign_times,
    mark_faults,
    read_positions,
    read_recordings,
    require_alike,
    require_stamps,
)
from trajcli.files.reading import parse_selection
from trajcli.files.recording import ACTIONS, NO_STATE, Recording, States, join, make_placeholder
from trajcli.files.repair import repair_recordings
from trajcli.files.source import Place, expand_files, parse_source
from trajcli.files.state_sources import state_from_option, state_units, stored_state
from trajcli.inputs import Inputs
from trajcli.jobs._blocks import LeftOut, has_recorded_rates
from trajcli.jobs.request import Request
from trajcli.mode_options import CURVE
from trajcli.modes import ALIASES, Mode, make_method, make_mode
from trajcli.units import parse_units, per_si, si_units, unit_text

_DEFAULT = "acceleration"
# Options that a file may state with its mode.
_COMMANDS = ("actions", "absolute", "rotation_frame")
_Stated: TypeAlias = tuple[str, tuple[tuple[str, Any], ...]]
# Inputs whose attributes are read; the others are as a rule like them.
_FIRST = 32
# Rows of each that are looked at for normalised commands.
_ROWS = 4096


@dataclass(frozen=True)
class Resolved:
    """What a request names, looked up.

    Attributes:
        recording: all trajectories, with their times and states.
        mode: what is computed of them. mode_source: the file that states it, if the request does
            not.
        commands: what the actions in files stand for.
        left_out: the files and trajectories that ``skip_bad`` leaves out.
    """

    recording: Recording
    mode: Mode
    mode_source: Place | None
    commands: Commands
    left_out: list[LeftOut]


def resolve(request: Request, files: Files, sources: Sequence[str]) -> Resolved:
    """Looks up everything that a request names, without reading values of actions.

    sources: the SOURCEs to read; those of the request, or of one shard.

    Raises InputError or UsageError with everything that is missing or does not fit.
    """
    report, left_out = files.report, list[LeftOut]()
    with report.faults():  # options that are wrong whatever the inputs are
        request.refuse_gap()
        if request.recorded:
            make_method(request.mode, **request.options)
        elif request.mode is not None:
            make_mode(request.mode, **request.options)
    recordings: list[Recording] = []
    with report.faults():
        recordings = _read(request, files, sources, left_out)
    option: Clock | None = None
    with report.faults():
        option = clock_from_options(files)
    if option is None and request.clock:
        report.raise_faults()  # a time option that is wrong is one fault, not two
    if not recordings:
        report.collected += [fault for _, faults in left_out for fault in faults]
        report.raise_faults()
    mode: Mode | None = None
    mode_source: Place | None = None
    states: dict[str, States] = {}
    with report.faults():
        texts = {"start": request.start, "goal": request.goal}
        states = {
            role: state_from_option(files, role, text, recordings[0])
            for role, text in texts.items()
            if text is not None
        }
    with report.faults():
        mode, mode_source = resolve_mode(request, files, recordings)
    # recordings begin at their first row; only modes that end at a goal read goal states
    if request.recorded:
        states.setdefault("start", NO_STATE)
    if mode is None or mode.options().get("ends") != "goal":
        states.setdefault("goal", NO_STATE)
    fitting, bad = _fitting(request, recordings, states, option)
    usable = [recording for recording in fitting if recording.fault is None]
    left_out += bad if request.episodes is None or not fitting else ()
    if not request.skip_bad and request.episodes is None:
        report.collected += [fault for _, faults in bad for fault in faults]
    if usable and not request.recorded:
        with report.faults():
            _require_commands(request, usable[0])
            _require_turns(request, usable[0], mode)
        if request.mode is None:
            with report.faults():
                _refuse_normalised(usable)
    if not fitting:
        report.collected += [fault for _, faults in left_out for fault in faults]
    report.raise_faults()
    assert mode is not None  # else its fault was raised
    # stamps of --times are those of all files together, so they are given out once all are known
    fitting = assign_times(fitting, option)
    usable = [recording for recording in fitting if recording.fault is None]
    raise_if_any(_guess_faults(fitting, mode), UsageError)
    first = usable[0]
    absolute: Sequence[int] = ()
    turning = [] if request.recorded else [dof for turn in first.turning for dof in turn.dofs]
    if (which := request.absolute) is not None:
        names = first.joint_names or ()
        absolute = parse_dofs(which, first.shape[2], "--absolute", names).numbers
    commands = Commands(request.actions, absolute, turning)
    raise_if_any(commands.faults(mode, "--actions"), UsageError)
    if request.recorded:
        if (units := first.position_units) is not None:
            mode = mode.scale_noise(per_si(units))
        fitting = repaired(fitting, request, mode.least_rows, report, request.episodes)
        first.require_rotations()
    recording = join(fitting)
    count = len(recording)
    if not request.recorded and all(has_recorded_rates(part, mode) for part in usable):
        mode, note = _of_rates(request, first, mode)
        report.add_notes(note)
    if request.start_index is not None:
        start = recording.start.with_index("start", files.dataset(request.start_index))
        recording = replace(recording, start=start)
    raise_if_any([*recording.start.faults("start", count), *recording.goal.faults("goal", count)])
    if request.episodes is not None:
        recording = recording.take(np.sort(select(request.episodes, count)))
        recording, find_faults = recording.usable()
        if not request.skip_bad or not len(recording):
            raise_if_any(find_faults.values())
        left_out += ((name, [fault]) for name, fault in find_faults.items())
    return Resolved(recording, mode, mode_source, commands, left_out)


def _read(
    request: Request, files: Files, sources: Sequence[str], left_out: list[LeftOut]
) -> list[Recording]:
    """Returns the trajectories that the sources name.

    With skip_bad, files that cannot be read are added to ``left_out`` instead.
    """

    def read(texts: Sequence[str]) -> list[Recording]:
        with files.report.attempt():
            if request.recorded:
                return read_positions(files, texts, compare=False)
            return read_recordings(files, texts, actions=True, compare=False)

    if not request.skip_bad:
        return read(sources)
    with suppress(InputError, UsageError):  # stand-ins keep the numbers of all episodes
        return read(sources)
    recordings: list[Recording] = []
    for source in (part for text in sources for part in expand_files(parse_source(text))):
        try:
            recordings += read([str(source)])
        except (InputError, UsageError) as error:
            left_out.append((str(source), error.faults))
    return mark_faults(recordings)


def _fitting(
    request: Request, recordings: Sequence[Recording], states: Mapping[str, States],
    option: Clock | None,
) -> tuple[list[Recording], list[LeftOut]]:  # fmt: skip
    """Returns the recordings that are like the first and have times, with their start and goal
    states, and the faults of the others. With --episodes, which counts them, stand-ins have these.
    """
    fitting, left_out = list[Recording](), list[LeftOut]()
    places: list[int] = []  # of those left out
    for place, recording in enumerate(recordings):
        try:
            raise_if_any([recording.fault])
            require_alike([*fitting[:1], recording])
            if option is None:
                assign_times([recording], None)
            else:
                require_stamps(replace(recording, own_clock=option))
            start, goal = (states.get(x) or stored_state(x, recording) for x in ("start", "goal"))
            if request.skip_bad and fitting and start.parts.keys() != fitting[0].start.parts.keys():
                raise InputError("another start state than the others", where=recording.name)
            fitting.append(replace(recording, start=start, goal=goal))
        except TrajcliError as error:
            left_out.append((recording.name, error.faults))
            places.append(place)
    if fitting and request.episodes is not None:
        like = fitting[0]
        for place, (_, faults) in zip(places, left_out, strict=True):
            fitting.insert(place, make_placeholder(like, recordings[place].origin, faults[0]))
    return fitting, left_out


def _of_rates(request: Request, first: Recording, mode: Mode) -> tuple[Mode, str]:
    """Returns the mode that integrates rates with a time stamp each, and a note that says so.

    Raises UsageError for options that such rates do not take.
    """
    if request.absolute is not None:
        raise UsageError(
            "absolute dofs beside rates with a time stamp each",
            where="--absolute",
            expected="none",
            hint="--dofs picks the others",
        )
    named = f"{first.input.where}: a time stamp for each row, so these are recorded"
    how = "integrated by foh (trapezoidal rule) from the first on; row 0 is the start"
    rates = {"velocity": "velocities", "acceleration": "accelerations", "jerk": "jerks"}
    note = Note(f"{named} {rates[mode.name]}, {how}")
    return mode.trapezoidal(request.options), note


def _require_turns(request: Request, first: Recording, mode: Mode | None) -> None:
    """Raises InputError or UsageError for rotations that the mode does not integrate."""
    first.require_rotations()
    if mode is None or not first.turning:
        return
    where, found = first.input.where, str(first.turning[0])
    hint = "--rotation none takes them as dofs, --dofs others"
    if not mode.integrates_rotations:
        raise InputError(
            f"mode {mode.name} takes dofs one by one, and these are a rotation",
            where=where,
            expected="clique, velocity, acceleration or jerk, with alignment full",
            found=found,
            hint=hint,
        )
    if mode.action_order and any(turn.form != "rotvec" for turn in first.turning):
        raise InputError(
            f"orientations, and mode {mode.name} takes angular rates",
            where=where,
            expected="three dofs about x, y and z, which --rotation WHICH=rotvec names",
            found=found,
            hint=hint,
        )
    if request.grad is not None or request.cost is not None:
        raise UsageError(
            "no gradients of rotations in files",
            where="--grad" if request.grad is not None else "--cost",
            expected="none",
            hint="trajcli.rotations.integrate has them",
        )


def _require_commands(request: Request, first: Recording) -> None:
    """Raises UsageError where export wrote the actions as others than the request takes them."""
    known = {word: first.companions.attribute(word)[1] for word in _COMMANDS}
    stated = {
        word: decode_text(value) for word, value in known.items() if value not in (None, "world")
    }
    # a frame that is not said is the world
    missing = [word for word in stated if getattr(request, word) in (None, "world")]
    if first.is_output and first.of_actions and "actions" in stated and missing:
        words = (f"--{word.replace('_', '-')} {stated[word]}" for word in missing)
        hint = " ".join([*words, *(["--mode clique"] if request.mode is None else [])])
        what, where = "actions of another kind than the file states", first.input.where
        raise UsageError(what, where=where, found=f"{stated['actions']} actions", hint=hint)


def _refuse_normalised(members: Sequence[Recording]) -> None:
    """Raises UsageError for commands in [-1, 1] of a controller or family that normalises them,
    whose mode neither the user nor the file says."""
    first, layout = members[0], members[0].layout
    family = layout.family.title if layout is not None and layout.family.normalises else ""
    by, last = first.companions.controller() or family, first.array_name.rpartition("/")[2]
    if not by or last not in ACTIONS or first.input_units or _stated_mode(first)[0]:
        return
    # what is beyond [-1, 1] is not normalised; some rows tell
    some = [*members[:_FIRST], members[-1]]
    if all(largest(g.input.read_part(0, 1, 0, _ROWS)) <= 1.0 + 1e-6 for g in some):
        ways = [recorded_positions_hint(first), "--mode acceleration, if these are accelerations"]
        raise UsageError(
            "normalised commands, and nothing says how to read them",
            where=first.input.where,
            expected="--mode, which reads them as they are, in physical units",
            found=f"values in [-1, 1], as {by} takes them",
            hint="; ".join(filter(None, ways)),
        )


def resolve_mode(
    request: Request, files: Files, recordings: Sequence[Recording]
) -> tuple[Mode, Place | None]:
    """Returns the mode of a run, and the file that states it, if the request does not; warns of
    files that state another mode.

    A recording has the method of the request, whatever files state. Raises InputError where files
    state different modes and the request names none.
    """
    if request.recorded:
        turning = bool(recordings[0].rotations)
        return make_method(request.mode, turning, **request.options), None
    stated: dict[_Stated, Place] = {}
    for recording in recordings[:_FIRST]:
        mode, with_options, where = _stated_mode(recording)
        if mode:
            stated.setdefault((mode, with_options), where)
    name = None if request.mode is None else ALIASES.get(request.mode, request.mode)
    if name is None and len(stated) > 1:
        raise InputError(
            "inputs that state different modes",
            found="; ".join(f"{where} {_described(*mode)}" for mode, where in stated.items()),
            hint="--mode and its options say which",
        )
    options, notes = dict(request.options), list[str]()
    source: Place | None = None
    for (mode, with_options), where in stated.items():
        # a file fills in what the request leaves open: the mode, and options of the same mode
        fills_in = name is None
        name = name or mode
        for option, value in with_options if mode == name else ():
            fills_in = fills_in or option not in options
            options.setdefault(option, value)
        if mode == name and all(options[option] == value for option, value in with_options):
            source = where if fills_in else source
        else:
            words = (("mode", mode), *with_options)
            typed = " ".join(f"--{option} {value}" for option, value in words)
            states = _described(mode, with_options)
            notes.append(f"{where} states {states}, which this run is not ({typed})")
    made = make_mode(name or _DEFAULT, **options)
    files.report.add_notes(*notes)
    return made, source


def _stated_mode(group: Recording) -> tuple[str, tuple[tuple[str, Any], ...], Place]:
    """Returns the mode and options that actions state, and where; "" where there are none.

    Rows of an output state how they were made, not what they are to be integrated by.
    """
    stated, read = group.stated_mode, []
    if not stated.name or group.input.where.last in QUANTITIES:
        return "", (), Place()
    for option in (x.name for x in CURVE if x.name in stated.options):
        with suppress(UsageError):  # another program's attribute of the same name
            made = make_mode(stated.name, **{option: stated.options[option]})
            read.append((option, made.options()[option]))
    return stated.name, tuple(read), stated.where


def _described(mode: str, options: Sequence[tuple[str, Any]]) -> str:
    """Returns a mode and its options as words: mode bspline with degree 3."""
    listed = ", ".join(f"{option} {value}" for option, value in options)
    return f"mode {mode} with {listed}" if options else f"mode {mode}"


def _guess_faults(groups: Sequence[Recording], mode: Mode) -> Iterator[Fault]:
    """Yields the faults of arrays guessed to be positions, of a mode that takes rates."""
    for group in groups if mode.action_order else ():
        name = group.array_name.rpartition("/")[2]
        if group.origin.guessed and (name in POSITIONS or motion_rank(name) == 0):
            yield Fault(
                "no actions, only positions",
                where=group.input.where,
                expected=f"{QUANTITIES[mode.action_order]}, for mode {mode.name}",
                hint="trajcli differentiate takes recorded positions; or name the dataset to read",
            )


def input_warnings(recording: Recording, longest: Inputs) -> Iterator[str]:
    """Yields warnings about what the actions seem to be, about units and about steps.

    longest: the inputs of the longest trajectories.
    """
    mode, commands = longest.mode, recording.commands
    family = None if recording.layout is None else recording.layout.family
    if family is not None and family.commands_positions and commands and mode.action_order:
        yield (
            f"actions of {family.title} are as a rule joint positions to go to; mode {mode.name} "
            f"reads them as {QUANTITIES[mode.action_order]} "
            "(--mode clique or central reads positions)"
        )
    name = recording.array_name.rpartition("/")[2]
    rate = named_rate(name)
    if rate in QUANTITIES and rate != QUANTITIES[mode.action_order]:
        read = f"mode {mode.name} reads as {QUANTITIES[mode.action_order]}"
        how = f"trajcli integrate --mode {rate}" if longest.recorded else f"--mode {rate}"
        yield f"{recording.input.where} is called {name}, which {read} ({how})"
    for part in recording.members[:_FIRST]:
        yield from _units(part, longest)
    clocks = (part.clock for part in recording.parts_in_use()[:_FIRST])
    yield from dict.fromkeys(clock.remark for clock in clocks if clock and clock.remark)


def recorded_positions_hint(group: Recording) -> str | None:
    """Returns a hint at the recorded positions beside commands; None beside others."""
    layout, member = group.layout, group.member
    if layout is None or member is None or not group.commands:
        return None
    listed = ", ".join(f"{group.file.path}:{name}" for name in layout.position_names(member))
    if not listed:
        return f"layout {layout.name} has no recorded positions here"
    return f"the recorded positions are {listed} (trajcli differentiate)"


def position_unit(group: Recording, mode: Mode, start: str | None) -> str | None:
    """Returns the unit of the positions that are written; None where it is not known.

    It is the SI unit of --units, else of the first input, else of the start state. Recorded
    positions in an unknown unit keep that.
    """
    order, units = mode.action_order, group.position_units
    stated = group.input.attributes.get("units")
    if group.option_units.positions or (units is not None and _derivative(group) == order):
        pass
    elif order == 0 and stated is not None and units is None:
        return decode_text(stated)
    elif start is None:
        beside = group.companions.dataset("start/position", "start_position")
        beside = None if beside is None else group.pick(beside)
        units = None if beside is None else state_units(group, "position", beside)
    else:
        units = None
    return None if units is None else unit_text(si_units(units))


def units_report(group: Recording) -> dict[str, str] | None:
    """Returns the unit of a group, who states it, and the SI unit; None where it is not known."""
    units = group.input_units
    if units is None:
        return None
    source = "--units" if group.given.positions else group.as_stored.where
    return {"read": unit_text(units), "from": str(source), "written": unit_text(si_units(units))}


def _derivative(group: Recording) -> int | None:
    """Returns the time derivative that the stated unit is of: 1 for rad/s; None if not known."""
    units = parse_units(read_unit(group.input))
    # dofs may be in rad/s and m/s, but of one order of derivative
    orders = {unit.order for unit in units or () if unit.known}
    return orders.pop() if len(orders) == 1 else None


def _units(group: Recording, inputs: Inputs) -> Iterator[str]:
    """Yields warnings of units that do not fit the mode."""
    stored, order, given = group.as_stored, inputs.mode.action_order, group.given.positions
    where, stated = stored.where, stated_unit(stored)
    if not given and (found := _derivative(group)) is not None and found != order:
        yield f"{where} is in {stated}, which mode {inputs.mode.name} reads as {QUANTITIES[order]}"
    start = group.companions.dataset("start/position", "start_position") if inputs.start else None
    if start is not None and str(start.where) == inputs.names.get("start/position") and not given:
        other = parse_units(read_unit(group.pick(start)))
        if not stated and other is not None and unit_text(other) != unit_text(in_si(other)):
            yield f"{start.where} is in {unit_text(other)}, and {where} says no unit: taken as SI"
