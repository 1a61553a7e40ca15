"""Reads the mode and options that a file states, and warns where they disagree with the request."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from trajcli.errors import Fault, InputError, UsageError
from trajcli.files.arrays import text_of
from trajcli.files.conversion import stated_unit
from trajcli.files.guesses import POSITIONS, named_rate
from trajcli.files.quantities import QUANTITIES
from trajcli.files.states import state_units
from trajcli.modes import ALIASES, PARTS, Mode, make_method, make_mode
from trajcli.units import KNOWN, in_si, of_order, parse_units, unit_text

if TYPE_CHECKING:
    from trajcli.files.trajectories import Trajectories
    from trajcli.files.trajectory_group import TrajectoryGroup
    from trajcli.inputs import Inputs
    from trajcli.jobs.request import Request

_DEFAULT = "acceleration"
# Options that a file may state with its mode.
_STATED = ("scheme", "degree", "steps", "ends")
_Stated: TypeAlias = tuple[str, tuple[tuple[str, Any], ...]]
# Inputs whose attributes are read; the others are as a rule like them.
_FIRST = 32
# Seconds; no robot takes longer or shorter steps. Stamps in ns, µs or ms are far beyond.
_LONGEST_STEP, _SHORTEST_STEP = 1.0, 1e-5


def resolve_mode(
    request: Request, groups: Sequence[TrajectoryGroup]
) -> tuple[Mode, str | None, list[str]]:
    """Returns the mode of a run, the file that states it (or None), and warnings of files that
    state another mode.

    A recording has the method of the request, whatever files state. Raises InputError where files
    state different modes and the request names none.
    """
    if request.recorded:
        return make_method(request.mode, bool(groups[0].rotations), **request.options), None, []
    stated: dict[_Stated, str] = {}
    for group in groups[:_FIRST]:
        mode, with_options, where = _stated_mode(group)
        if mode:
            stated.setdefault((mode, with_options), where)
    name = None if request.mode is None else ALIASES.get(request.mode, request.mode)
    if name is None and len(stated) > 1:
        raise InputError(
            "inputs that state different modes",
            found="; ".join(f"{where} {_described(*one)}" for one, where in stated.items()),
            hint="--mode and its options say which",
        )
    options, notes, source = dict(request.options), list[str](), None
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
    return make_mode(name or _DEFAULT, **options), source, notes


def _stated_mode(group: TrajectoryGroup) -> tuple[str, tuple[tuple[str, Any], ...], str]:
    """Returns the mode and options that actions state, and where; "" where there are none.

    Rows of an output state how they were made, not what they are to be integrated by.
    """
    mode, options, where = group.stated_mode
    if not mode or group.input.where.rpartition("/")[2] in QUANTITIES:
        return "", (), ""
    read = []
    for option in (name for name in _STATED if name in options):
        with suppress(UsageError):  # another program's attribute of the same name
            read.append((option, getattr(make_mode(mode, **{option: options[option]}), option)))
    return mode, tuple(read), where


def _described(mode: str, options: Sequence[tuple[str, Any]]) -> str:
    """Returns a mode and its options as words: mode jerk with scheme zoh."""
    listed = ", ".join(f"{option} {value}" for option, value in options)
    return f"mode {mode}" + f" with {listed}" * bool(options)


def guess_faults(group: TrajectoryGroup, mode: Mode) -> list[Fault]:
    """Returns the fault of arrays that were guessed to be positions, of a mode that takes rates."""
    path, name = group.input.where, group.array_name.rpartition("/")[2]
    if not group.guessed or not mode.derivatives_of or name not in POSITIONS:
        return []
    expected = PARTS[mode.derivatives_of]
    return [
        Fault(
            "no actions, only positions",
            where=path,
            expected=f"{expected}, for mode {mode.name}",
            hint="trajcli differentiate takes recorded positions; or name the dataset to read",
        )
    ]


def input_warnings(trajectories: Trajectories, longest: Inputs) -> Iterator[str]:
    """Yields warnings about what the actions seem to be, about units and about steps.

    longest: the inputs of the longest trajectories.
    """
    first, mode = trajectories.first, longest.mode
    layout = first.layout
    if layout is not None and layout.commands_positions and first.commands and mode.derivatives_of:
        yield (
            f"actions of {layout.of} are as a rule joint positions to go to; mode {mode.name} "
            f"reads them as {PARTS[mode.derivatives_of]} (--mode clique or central reads positions)"
        )
    name = first.array_name.rpartition("/")[2]
    if (rate := named_rate(name)) not in ("", PARTS[mode.derivatives_of]):
        read = f"mode {mode.name} reads as {PARTS[mode.derivatives_of]}"
        yield f"{first.input.where} is called {name}, which {read} (--mode {rate})"
    for group in trajectories.groups[:_FIRST]:
        yield from _units(group, longest)
    clocks = (group.time for group in trajectories.groups[:_FIRST])
    yield from dict.fromkeys(clock.remark for clock in clocks if clock and clock.remark)
    yield from _steps(longest)


def recorded_positions(group: TrajectoryGroup, mode: Mode) -> str | None:
    """Returns a hint at the recorded positions, where commands may be normalised; else None."""
    layout, member = group.layout, group.member
    if layout is None or member is None or not group.commands:
        return None
    if layout.commands_positions and mode.derivatives_of == 0:
        return None  # the commands are positions in rad or m, and are read as such
    listed = ", ".join(f"{group.file.path}:{name}" for name in layout.recorded(member))
    if not listed:
        return f"layout {layout.name} has no recorded positions here"
    return f"the recorded positions are {listed} (trajcli differentiate)"


def position_unit(group: TrajectoryGroup, mode: Mode, start: str | None) -> str | None:
    """Returns the unit of the positions that are written; None where it is not known.

    It is the SI unit of --units, else of the first input, else of the start state. Recorded
    positions in an unknown unit keep that.
    """
    order, units = mode.derivatives_of, group.position_units
    stated = group.input.attributes.get("units")
    if group.given.positions or (units is not None and _derivative(group) == order):
        pass
    elif order == 0 and stated is not None and units is None:
        return text_of(stated)
    elif start is None:
        beside = group.companion("start/position", "start_position")
        beside = None if beside is None else group.pick(beside)
        units = None if beside is None else state_units(group, "position", beside, group.shape[2])
    else:
        units = None
    return None if units is None else unit_text(in_si(units))


def units_report(group: TrajectoryGroup) -> dict[str, str] | None:
    """Returns the unit of a group, who states it, and the SI unit; None where it is not known."""
    units = group.input_units
    if units is None:
        return None
    source = "--units" if group.given.positions else group.as_stored.where
    return {"read": unit_text(units), "from": source, "written": unit_text(in_si(units))}


def _derivative(group: TrajectoryGroup) -> int | None:
    """Returns the time derivative that the stated unit is of: 1 for rad/s; None if not known."""
    units = parse_units(stated_unit(group.input))
    orders = {unit.order for unit in units or ()}
    return orders.pop() if len(orders) == 1 else None


def _units(group: TrajectoryGroup, inputs: Inputs) -> Iterator[str]:
    """Yields warnings of units that are unknown, contradict --units, or do not fit the mode."""
    stored, order = group.as_stored, inputs.mode.derivatives_of
    where, stated, units = stored.where, stated_unit(stored), parse_units(stated_unit(stored))
    given = group.given.positions
    if stated and units is None and not given:
        yield f"{where} is in {stated!r}, which is not known ({KNOWN}): taken as it is"
    positions = stated if units is None else unit_text(of_order(units, 0))
    if given and stated and positions != unit_text(given):
        yield f"{where} is in {stated}; it is read in {unit_text(given)}, as --units says"
    elif (found := _derivative(group)) is not None and found != order:
        yield f"{where} is in {stated}, which mode {inputs.mode.name} reads as {PARTS[order]}"
    start = group.companion("start/position", "start_position") if inputs.start else None
    if start is not None and start.where == inputs.names.get("start/position") and not given:
        other = parse_units(stated_unit(group.pick(start)))
        if not stated and other is not None and unit_text(other) != unit_text(in_si(other)):
            yield f"{start.where} is in {unit_text(other)}, and {where} says no unit: taken as SI"


def _steps(inputs: Inputs) -> Iterator[str]:
    """Yields a warning where steps are so long or short that they cannot be seconds."""
    values: Any = inputs.dt if inputs.times is None else inputs.times
    if not isinstance(values, np.ndarray) or values.dtype.kind not in "iuf" or not values.size:
        return
    wide = values.astype(np.float64 if values.dtype.kind == "f" else np.int64)
    steps = wide if inputs.times is None else np.diff(wide)
    step = float(np.sort(steps, axis=None)[steps.size // 2]) if steps.size else _LONGEST_STEP
    if step > _LONGEST_STEP or step < _SHORTEST_STEP:
        where = inputs.name("dt" if inputs.times is None else "times")
        yield (
            f"{where}: steps of {step:g}, taken as seconds; of stamps in milliseconds, "
            "nanoseconds or the like, --units ms or ns says so"
        )
