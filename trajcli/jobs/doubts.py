"""What a request says that may not be what was meant: said, and done all the same."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import numpy as np

from trajcli.files.source import natural_key
from trajcli.inputs import Inputs
from trajcli.jobs.places import Place
from trajcli.modes import PARTS

_LONG_STEP = 1000.0
"""Seconds that no robot waits between two rows; stamps in ns, µs and ms are millions apart."""


def doubts(sources: Sequence[str], places: Sequence[Place], inputs: Inputs) -> Iterator[str]:
    """Notes on the order of files, on what the actions are and on the unit of time."""
    yield from _order(sources)
    layout, mode = places[0].layout, inputs.mode
    if layout is not None and layout.commands_positions and places[0].commands:
        order = mode.derivatives_of
        if order:
            yield (
                f"actions of {layout.of} are as a rule joint positions to go to; mode {mode.name} "
                f"reads them as {PARTS[order]} (--mode clique or central reads positions)"
            )
    yield from _steps(inputs)


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
    step = float(np.median(steps)) if steps.size else 0.0
    if step >= _LONG_STEP:
        what = "dt" if inputs.times is None else "times"
        yield (
            f"{inputs.name(what)}: steps of {step:g}, taken as seconds; if these are "
            "nanoseconds or the like, convert them first"
        )
