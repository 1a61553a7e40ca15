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
_COMMAND_OPTIONS = ("actions", "absolute", "rotation_frame")
_StatedMode: TypeAlias = tuple[str, tuple[tuple[str, Any], ...]]
# Inputs whose attributes are read; the others are as a rule like them.
_FIRST = 32
# Rows of each that are searched for commands beyond [-1, 1].
_ROWS = 4096


@dataclass(frozen=True)
class Resolved:
    """What a request names, looked up."""

    recording: Recording  # all trajectories, with their times and states
    mode: Mode
    mode_source: Place | None  # the file that states the mode, if the request does not
    commands: Commands
    left_out: list[LeftOut]


def resolve(request: Request, files: Files, sources: Sequence[str]) -> Resolved:
    """Looks up what a request names in ``sources``, its own or those of a shard."""
    report, left_out = files.report, list[LeftOut]()
    recordings, mode, mode_source = _look_up(request, files, sources, left_out)
    usable = [recording for recording in recordings if recording.fault is None]
    first = usable[0]
    faults = list[Fault]()
    for part in recordings if mode.action_order else ():
        name = part.array_name.rpartition("/")[2]
        if part.origin.guessed and (name in POSITIONS or motion_rank(name) == 0):
            what, where = "no actions, only positions", part.input.where
            expected = f"{QUANTITIES[mode.action_order]}, for mode {mode.name}"
            hint = "trajcli differentiate takes recorded positions; or name the dataset to read"
            faults.append(Fault(what, where=where, expected=expected, hint=hint))
    raise_if_any(faults, UsageError)

    absolute: Sequence[int] = ()
    turning = [] if request.recorded else [dof for turn in first.turning for dof in turn.dofs]
    if request.absolute is not None:
        names = first.joint_names or ()
        absolute = parse_dofs(request.absolute, first.shape[2], "--absolute", names).numbers
    # the dofs of rotations are composed, so that increments of them are no sums
    commands = Commands(request.actions, absolute, turning)
    raise_if_any(commands.faults(mode, "--actions"), UsageError)
    # noise is stated in the units of the file, positions are computed in SI
    if request.recorded:
        if (units := first.position_units) is not None:
            mode = mode.scale_noise(per_si(units))
        recordings = repair_recordings(
            recordings, request, mode.least_rows, report, request.episodes
        )
        first.require_rotations()
    recording = join(recordings)
    if not request.recorded and all(has_recorded_rates(part, mode) for part in usable):
        if request.absolute is not None:
            what = "absolute dofs with rates that have a time stamp each"
            hint = "--dofs picks the others"
            raise UsageError(what, where="--absolute", expected="none", hint=hint)
        named = f"{first.input.where}: a time stamp for each row, so these are recorded"
        how = "integrated by foh (trapezoidal rule) from the first on; row 0 is the start"
        rates = {"velocity": "velocities", "acceleration": "accelerations", "jerk": "jerks"}
        note = Note(f"{named} {rates[mode.name]}, {how}")
        mode = mode.trapezoidal(request.options)
        report.add_notes(note)
    if request.start_index is not None:
        start = recording.start.with_index("start", files.dataset(request.start_index))
        recording = replace(recording, start=start)
    count = len(recording)
    raise_if_any([*recording.start.faults("start", count), *recording.goal.faults("goal", count)])

    # last, since options that list one value for each trajectory count them before they are picked
    if request.episodes is not None:
        recording = recording.take(np.sort(parse_selection(request.episodes, count)))
        recording, faulty = recording.usable()
        if not request.skip_bad or not len(recording):
            raise_if_any(faulty.values())
        left_out += ((name, [fault]) for name, fault in faulty.items())
    return Resolved(recording, mode, mode_source, commands, left_out)


def _look_up(
    request: Request, files: Files, sources: Sequence[str], left_out: list[LeftOut]
) -> tuple[list[Recording], Mode, Place | None]:
    """Reads the recordings of the sources, with times and states, and the mode and its source."""
    report = files.report  # which collects faults, to raise them together
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
    states: dict[str, States] = {}
    with report.faults():
        for role, text in (("start", request.start), ("goal", request.goal)):
            if text is not None:
                states[role] = state_from_option(files, role, text, recordings[0])
    mode: Mode | None = None
    mode_source: Place | None = None
    with report.faults():
        mode, mode_source = resolve_mode(request, files, recordings)
    # recordings begin at their first row; only modes that end at a goal read goal states
    if request.recorded:
        states.setdefault("start", NO_STATE)
    if mode is None or mode.options().get("ends") != "goal":
        states.setdefault("goal", NO_STATE)
    # with --episodes, faults of what is not picked do not matter: they are raised once it is known
    fitting, bad = _fit_together(request, recordings, states, option)
    usable = [recording for recording in fitting if recording.fault is None]
    left_out += bad if request.episodes is None or not fitting else ()
    if not request.skip_bad and request.episodes is None:
        report.collected += [fault for _, faults in bad for fault in faults]
    if usable and not request.recorded:
        with report.faults():
            _require_commands(request, usable[0], mode)
        if request.mode is None:
            with report.faults():
                _refuse_normalised(usable)
    if not fitting:
        report.collected += [fault for _, faults in left_out for fault in faults]
    report.raise_faults()
    assert mode is not None  # else its fault was raised
    # stamps of --times are those of all files together, so they are given out once all are known
    return assign_times(fitting, option), mode, mode_source


def _read(
    request: Request, files: Files, sources: Sequence[str], left_out: list[LeftOut]
) -> list[Recording]:
    """Reads the trajectories of the sources; with skip_bad, adds bad files to ``left_out``."""

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


def _fit_together(
    request: Request, recordings: Sequence[Recording], states: Mapping[str, States],
    option: Clock | None,
) -> tuple[list[Recording], list[LeftOut]]:  # fmt: skip
    """Selects the recordings that are like the first and have times, with their start and goal
    states; returns the faults of the others as well."""
    fitting, left_out, indices = list[Recording](), list[LeftOut](), list[int]()
    for index, recording in enumerate(recordings):
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
            indices.append(index)
    if fitting and request.episodes is not None:  # it counts the others, too
        like = fitting[0]
        for index, (_, faults) in zip(indices, left_out, strict=True):
            fitting.insert(index, make_placeholder(like, recordings[index].origin, faults[0]))
    return fitting, left_out


def _require_commands(request: Request, first: Recording, mode: Mode | None) -> None:
    """Raises an error for actions that export wrote in another form than the request takes, and
    for rotations that the mode does not integrate."""
    known = {word: first.companions.attribute(word)[1] for word in _COMMAND_OPTIONS}
    # without a word about it, the frame is the world
    stated = {
        word: decode_text(value) for word, value in known.items() if value not in (None, "world")
    }
    missing = [word for word in stated if getattr(request, word) in (None, "world")]
    if first.is_output and first.holds_actions and "actions" in stated and missing:
        words = (f"--{word.replace('_', '-')} {stated[word]}" for word in missing)
        hint = " ".join([*words, *(["--mode clique"] if request.mode is None else [])])
        what, where = "actions of another kind than the file states", first.input.where
        raise UsageError(what, where=where, found=f"{stated['actions']} actions", hint=hint)
    first.require_rotations()
    if mode is None or not first.turning:
        return
    where, found = first.input.where, str(first.turning[0])
    hint = "--rotation none takes them as dofs, --dofs others"
    if not mode.integrates_rotations:
        what = f"mode {mode.name} takes dofs one by one, and these are a rotation"
        expected = "clique, velocity, acceleration or jerk, with alignment full"
        raise InputError(what, where=where, expected=expected, found=found, hint=hint)
    if mode.action_order and any(turn.form != "rotvec" for turn in first.turning):
        what = f"orientations, and mode {mode.name} takes angular rates"
        expected = "three dofs about x, y and z, which --rotation WHICH=rotvec names"
        raise InputError(what, where=where, expected=expected, found=found, hint=hint)
    if request.grad is not None or request.cost is not None:
        what, hint = "no gradients of rotations in files", "trajcli.rotations.integrate has them"
        option = "--cost" if request.grad is None else "--grad"
        raise UsageError(what, where=option, expected="none", hint=hint)


def _refuse_normalised(members: Sequence[Recording]) -> None:
    """Raises UsageError for commands in [-1, 1] of whoever normalises them, without a mode."""
    first, layout = members[0], members[0].layout
    family = layout.family.title if layout is not None and layout.family.normalises else ""
    by, last = first.companions.controller() or family, first.array_name.rpartition("/")[2]
    if not by or last not in ACTIONS or first.input_units or _read_mode(first)[0]:
        return
    # Commands beyond [-1, 1] are not normalised. The first rows of some members show it, and keep
    # this check from reading all values of a large set.
    sample = [*members[:_FIRST], members[-1]]
    if all(largest(x.input.read_part(0, 1, 0, _ROWS)) <= 1.0 + 1e-6 for x in sample):
        ways = [recorded_positions_hint(first), "--mode acceleration, if these are accelerations"]
        what, where = "normalised commands, and nothing says how to read them", first.input.where
        expected = "--mode, which reads them as they are, in physical units"
        found, hint = f"values in [-1, 1], as {by} takes them", "; ".join(filter(None, ways))
        raise UsageError(what, where=where, expected=expected, found=found, hint=hint)


def resolve_mode(
    request: Request, files: Files, recordings: Sequence[Recording]
) -> tuple[Mode, Place | None]:
    """Chooses the mode of a run, with the file that states it where the request does not."""
    if request.recorded:  # by the method of the request, whatever files state
        turning = bool(recordings[0].rotations)
        return make_method(request.mode, turning, **request.options), None
    # files that state the same mode count as one, the first
    stated: dict[_StatedMode, Place] = {}
    for recording in recordings[:_FIRST]:
        mode, mode_options, where = _read_mode(recording)
        if mode:
            stated.setdefault((mode, mode_options), where)
    name = None if request.mode is None else ALIASES.get(request.mode, request.mode)
    if name is None and len(stated) > 1:
        found = "; ".join(f"{where} {_mode_words(*mode)}" for mode, where in stated.items())
        hint = "--mode and its options say which"
        raise InputError("inputs that state different modes", found=found, hint=hint)
    # the request comes first; what it leaves open is filled in by the files, in their order
    options, notes = dict(request.options), list[str]()
    source: Place | None = None
    for (mode, mode_options), where in stated.items():
        # a file fills in what the request leaves open: the mode, and options of the same mode
        fills_in = name is None
        name = name or mode
        for option, value in mode_options if mode == name else ():
            fills_in = fills_in or option not in options
            options.setdefault(option, value)
        if mode == name and all(options[option] == value for option, value in mode_options):
            source = where if fills_in else source
        else:
            words = (("mode", mode), *mode_options)
            typed = " ".join(f"--{option} {value}" for option, value in words)
            states = _mode_words(mode, mode_options)
            notes.append(f"{where} states {states}, which this run is not ({typed})")
    result = make_mode(name or _DEFAULT, **options)  # before the notes: a fault stands alone
    files.report.add_notes(*notes)
    return result, source


def _read_mode(recording: Recording) -> tuple[str, tuple[tuple[str, Any], ...], Place]:
    """Reads the mode and options that actions state, and where; "" where there are none."""
    stated, options = recording.stated_mode, []
    # rows of an output state how they were made, not how to integrate them
    if not stated.name or recording.input.where.last in QUANTITIES:
        return "", (), Place()
    for option in (x.name for x in CURVE if x.name in stated.options):
        with suppress(UsageError):  # another program's attribute of the same name
            mode = make_mode(stated.name, **{option: stated.options[option]})
            options.append((option, mode.options()[option]))
    return stated.name, tuple(options), stated.where


def _mode_words(mode: str, options: Sequence[tuple[str, Any]]) -> str:
    """Writes a mode and its options as words: mode bspline with degree 3."""
    words = ", ".join(f"{option} {value}" for option, value in options)
    return f"mode {mode} with {words}" if options else f"mode {mode}"


def input_warnings(recording: Recording, longest: Inputs) -> Iterator[str]:
    """Yields warnings about what the actions seem to be, about units and about steps."""
    mode, commands = longest.mode, recording.commands
    family = None if recording.layout is None else recording.layout.family
    if family is not None and family.commands_positions and commands and mode.action_order:
        yield (
            f"actions of {family.title} are as a rule joint positions to go to; mode {mode.name} "
            f"reads them as {QUANTITIES[mode.action_order]} "
            "(--mode clique or central reads positions)"
        )
    # an array that is named after one quantity and read as another
    name = recording.array_name.rpartition("/")[2]
    rate = rate_name(name)
    if rate in QUANTITIES and rate != QUANTITIES[mode.action_order]:
        read = f"mode {mode.name} reads as {QUANTITIES[mode.action_order]}"
        how = f"trajcli integrate --mode {rate}" if longest.recorded else f"--mode {rate}"
        yield f"{recording.input.where} is called {name}, which {read} ({how})"
    for part in recording.members[:_FIRST]:
        if part.option_units.positions:
            continue  # --units names the unit, whatever the file states
        stored, order = part.as_stored, mode.action_order
        where, unit = stored.where, read_unit(stored)
        if (found := _unit_order(part)) is not None and found != order:
            yield f"{where} is in {unit}, which mode {mode.name} reads as {QUANTITIES[order]}"
        # the start state that is used, and not another of the same file
        names = ("start/position", "start_position")
        start = part.companions.dataset(*names) if longest.start else None
        if start is not None and str(start.where) == longest.names.get("start/position"):
            other = parse_units(read_unit(part.pick(start)))
            if not unit and other is not None and unit_text(other) != unit_text(si_units(other)):
                other_unit = f"{start.where} is in {unit_text(other)}"
                yield f"{other_unit}, and {where} says no unit: taken as SI"
    clocks = (part.clock for part in recording.parts_in_use()[:_FIRST])
    yield from dict.fromkeys(clock.remark for clock in clocks if clock and clock.remark)


def recorded_positions_hint(recording: Recording) -> str | None:
    """Writes a hint at the recorded positions that lie next to commands; None for other arrays."""
    layout, member = recording.layout, recording.member
    if layout is None or member is None or not recording.commands:
        return None
    names = ", ".join(f"{recording.file.path}:{name}" for name in layout.position_names(member))
    if not names:
        return f"layout {layout.name} has no recorded positions here"
    return f"the recorded positions are {names} (trajcli differentiate)"


def position_unit(recording: Recording, mode: Mode, start: str | None) -> str | None:
    """Finds the unit of the positions that are written; None where it is not known."""
    # It is the SI unit of --units or, without it, of the first input or of the start state.
    # Recorded positions in an unknown unit keep that.
    order, units = mode.action_order, recording.position_units
    stated = recording.input.attributes.get("units")
    if recording.option_units.positions or (units is not None and _unit_order(recording) == order):
        return None if units is None else unit_text(si_units(units))
    if order == 0 and stated is not None and units is None:
        return decode_text(stated)
    if start is not None:  # a start state that an option names says nothing about the file
        return None
    position = recording.companions.dataset("start/position", "start_position")
    if position is None:
        return None
    units = state_units(recording, "position", recording.pick(position))
    return None if units is None else unit_text(si_units(units))


def units_report(recording: Recording) -> dict[str, str] | None:
    """Reports the unit of a recording, who states it, and the SI unit; None where not known."""
    units = recording.input_units
    if units is None:
        return None
    source = "--units" if recording.option_units.positions else recording.as_stored.where
    return {"read": unit_text(units), "from": str(source), "written": unit_text(si_units(units))}


def _unit_order(recording: Recording) -> int | None:
    """Reads the order of the time derivative from the stated unit: 1 for rad/s; None if unknown."""
    units = parse_units(read_unit(recording.input))
    # dofs may be in rad/s and m/s, but of one order of derivative
    orders = {unit.order for unit in units or () if unit.known}
    return orders.pop() if len(orders) == 1 else None
