"""What a request says that may not be what was meant: said, and done all the same."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import numpy as np

from trajcli.files.arrays import text_of
from trajcli.files.schema import QUANTITIES, derived_unit
from trajcli.files.source import natural_key
from trajcli.inputs import Inputs
from trajcli.jobs.places import Place
from trajcli.modes import MODES, PARTS, Mode, make_mode
from trajcli.modes.cascade import SCHEMES

_LONG_STEP = 1000.0
"""Seconds that no robot waits between two rows; stamps in ns, µs and ms are millions apart."""


_ASKED = 32
"""Inputs that are asked what they say of themselves; the others are as a rule like them."""


def doubts(sources: Sequence[str], places: Sequence[Place], inputs: Inputs) -> Iterator[str]:
    """Notes on the order of files, on what the actions are and on units."""
    yield from _order(sources)
    layout, mode = places[0].layout, inputs.mode
    if layout is not None and layout.commands_positions and places[0].commands:
        order = mode.derivatives_of
        if order:
            yield (
                f"actions of {layout.of} are as a rule joint positions to go to; mode {mode.name} "
                f"reads them as {PARTS[order]} (--mode clique or central reads positions)"
            )
    for place in places[:_ASKED]:
        yield from _told_mode(place, mode)
        yield from _told_units(place, inputs)
    yield from _steps(inputs)


def _told_mode(place: Place, mode: Mode) -> Iterator[str]:
    """A file may say what its actions are for."""
    if place.array.where.rpartition("/")[2] in QUANTITIES:
        return  # of an output, which says how it was made
    named, scheme = place.attribute("mode"), place.attribute("scheme")
    if named is None or text_of(named[1]) not in MODES:
        return
    told = {"mode": text_of(named[1])}
    summed = "scheme" in make_mode(told["mode"]).options(False)
    if scheme is not None and summed and text_of(scheme[1]) in SCHEMES:
        told["scheme"] = text_of(scheme[1])
    used = {"mode": mode.name, **mode.options(False)}
    if any(used.get(name) != value for name, value in told.items()):
        said = " ".join(f"{name}={value}" for name, value in told.items())
        asked = " ".join(f"--{name} {value}" for name, value in told.items())
        yield f"{named[0].rpartition('@')[0]} says {said}, which this run is not ({asked})"


def _told_units(place: Place, inputs: Inputs) -> Iterator[str]:
    """The unit of the actions says what they are, and that of the start what they lead to."""
    mode, told = inputs.mode, place.array.attributes.get("units")
    derived = derived_unit(told)
    if derived is None:
        return
    if derived[1] != mode.derivatives_of:
        quantity = PARTS[mode.derivatives_of]
        yield f"{place.name} is in {text_of(told)}, which mode {mode.name} reads as {quantity}"
        return
    start = place.find("start/position", "start_position")
    if start is not None and start.where == inputs.names.get("start/position"):
        other = derived_unit(start.attributes.get("units"))
        if other is not None and other[0] != derived[0]:
            yield f"{place.name} is in {text_of(told)}, but {start.where} in {other[0]}"


def _order(sources: Sequence[str]) -> Iterator[str]:
    """A shell puts episode_10 before episode_2."""
    names = list(sources)
    if names != sorted(names) or names == sorted(names, key=natural_key):
        return
    pairs = itertools.pairwise(names)
    first, second = next((a, b) for a, b in pairs if natural_key(a) > natural_key(b))
    yield (
        f"files are taken in the order given, {first} before {second}; "
        "a pattern in quotes is taken in natural order"
    )


def _steps(inputs: Inputs) -> Iterator[str]:
    given = inputs.dt if inputs.times is None else inputs.times
    if not isinstance(given, np.ndarray) or given.dtype.kind not in "iuf" or not given.size:
        return
    wide = given.astype(np.float64 if given.dtype.kind == "f" else np.int64)
    steps = wide if inputs.times is None else np.diff(wide)
    step = float(np.sort(steps, axis=None)[steps.size // 2]) if steps.size else 0.0
    if step >= _LONG_STEP:
        what = "dt" if inputs.times is None else "times"
        yield (
            f"{inputs.name(what)}: steps of {step:g}, taken as seconds; if these are "
            "nanoseconds or the like, convert them first"
        )
