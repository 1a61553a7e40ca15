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
    request: Request, sets: Sequence[TrajectoryGroup]
) -> tuple[Mode, str | None, list[str]]:
    """The mode of a run, which file states it, if one does, and what others state.

    Raises InputError where files state different modes and the user names none. A recording's is
    the method, whatever files state.
    """
    if request.recorded:
        return make_method(request.mode, bool(sets[0].rotations), **request.options), None, []
    stated: dict[_Stated, str] = {}
    for one in sets[:_FIRST]:
        mode, said, where = _stated_mode(one)
        if mode:
            stated.setdefault((mode, said), where)
    name = None if request.mode is None else ALIASES.get(request.mode, request.mode)
    if name is None and len(stated) > 1:
        raise InputError(
            "inputs that state different modes",
            found="; ".join(f"{where} {_described(*one)}" for one, where in stated.items()),
            hint="--mode and its options say which",
        )
    options, notes, source = dict(request.options), list[str](), None
    for (mode, said), where in stated.items():
        taken = name is None
        name = name or mode
        for option, value in said if mode == name else ():
            taken = taken or option not in options
            options.setdefault(option, value)
        if mode == name and all(options[option] == value for option, value in said):
            source = where if taken else source
        else:
            typed = " ".join(f"--{option} {value}" for option, value in (("mode", mode), *said))
            states = _described(mode, said)
            notes.append(f"{where} states {states}, which this run is not ({typed})")
    return make_mode(name or _DEFAULT, **options), source, notes


def _stated_mode(one: TrajectoryGroup) -> tuple[str, tuple[tuple[str, Any], ...], str]:
    """Mode and options that an input states, and where; none of an output, which says how it was
    made."""
    mode, options, where = one.stated_mode
    if not mode or one.input.where.rpartition("/")[2] in QUANTITIES:
        return "", (), ""
    said = []
    for option in (name for name in _STATED if name in options):
        with suppress(UsageError):  # what another program means by that name
            said.append((option, getattr(make_mode(mode, **{option: options[option]}), option)))
    return mode, tuple(said), where


def _described(mode: str, said: Sequence[tuple[str, Any]]) -> str:
    options = ", ".join(f"{option} {value}" for option, value in said)
    return f"mode {mode}" + f" with {options}" * bool(said)


def guess_faults(one: TrajectoryGroup, mode: Mode) -> list[Fault]:
    """Positions by their name alone, which a mode would read as their derivatives."""
    path, name = one.input.where, one.array_name.rpartition("/")[2]
    if not one.guessed or not mode.derivatives_of or name not in POSITIONS:
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
    """Yields notes on what the actions are, on units and on steps.

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
    for one in trajectories.groups[:_FIRST]:
        yield from _units(one, longest)
    clocks = (group.time for group in trajectories.groups[:_FIRST])
    yield from dict.fromkeys(clock.remark for clock in clocks if clock and clock.remark)
    yield from _steps(longest)


def recorded_positions(one: TrajectoryGroup, mode: Mode) -> str | None:
    """What to read instead, where a robot's commands would be taken for physical quantities."""
    layout, member = one.layout, one.member
    if layout is None or member is None or not one.commands:
        return None
    if layout.commands_positions and mode.derivatives_of == 0:
        return None  # positions to go to, in rad or m
    listed = ", ".join(f"{one.file.path}:{name}" for name in layout.recorded(member))
    if not listed:
        return f"layout {layout.name} has no recorded positions here"
    return f"the recorded positions are {listed} (trajcli differentiate)"


def position_unit(one: TrajectoryGroup, mode: Mode, start: str | None) -> str | None:
    """The unit of the positions that are written: in SI, by --units, else the first input, else
    the start. Of recorded positions in a unit that is not known, that."""
    order, units = mode.derivatives_of, one.position_units
    stated = one.input.attributes.get("units")
    if one.given.positions or (units is not None and _derivative(one) == order):
        pass
    elif order == 0 and stated is not None and units is None:
        return text_of(stated)
    elif start is None:
        beside = one.companion("start/position", "start_position")
        beside = None if beside is None else one.pick(beside)
        units = None if beside is None else state_units(one, "position", beside, one.shape[2])
    else:
        units = None
    return None if units is None else unit_text(in_si(units))


def units_report(one: TrajectoryGroup) -> dict[str, str] | None:
    """What a set is in, who says so, and what SI has for it; None where that is not
    known."""
    units = one.input_units
    if units is None:
        return None
    said = "--units" if one.given.positions else one.as_stored.where
    return {"read": unit_text(units), "from": said, "written": unit_text(in_si(units))}


def _derivative(one: TrajectoryGroup) -> int | None:
    """How often the unit that the input states is derived by time."""
    units = parse_units(stated_unit(one.input))
    orders = {unit.order for unit in units or ()}
    return orders.pop() if len(orders) == 1 else None


def _units(one: TrajectoryGroup, inputs: Inputs) -> Iterator[str]:
    """Units that are not known, that --units says otherwise, or that are no such derivative."""
    stored, order = one.as_stored, inputs.mode.derivatives_of
    where, stated, units = stored.where, stated_unit(stored), parse_units(stated_unit(stored))
    given = one.given.positions
    if stated and units is None and not given:
        yield f"{where} is in {stated!r}, which is not known ({KNOWN}): taken as it is"
    positions = stated if units is None else unit_text(of_order(units, 0))
    if given and stated and positions != unit_text(given):
        yield f"{where} is in {stated}; it is read in {unit_text(given)}, as --units says"
    elif (found := _derivative(one)) is not None and found != order:
        yield f"{where} is in {stated}, which mode {inputs.mode.name} reads as {PARTS[order]}"
    start = one.companion("start/position", "start_position") if inputs.start else None
    if start is not None and start.where == inputs.names.get("start/position") and not given:
        other = parse_units(stated_unit(one.pick(start)))
        if not stated and other is not None and unit_text(other) != unit_text(in_si(other)):
            yield f"{start.where} is in {unit_text(other)}, and {where} says no unit: taken as SI"


def _steps(inputs: Inputs) -> Iterator[str]:
    """Steps that no robot takes are in another unit."""
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
