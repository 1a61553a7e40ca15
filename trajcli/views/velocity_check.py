"""Are recorded velocities the derivative of recorded positions?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from trajcli.checks import describe
from trajcli.errors import Fault, InputError
from trajcli.files.reader import Files, read_sources
from trajcli.files.source import parse_source
from trajcli.modes.central import WINDOW
from trajcli.trajectory import integrate
from trajcli.views.trajectories import Batch

TOLERANCE = 0.1
"""Encoders and filters make velocities differ from differences of positions by some per cent."""
_FACTORS = {
    180 / np.pi: "degrees for radians?",
    np.pi / 180: "radians for degrees?",
    1000.0: "mm for m?",
    0.001: "m for mm?",
    -1.0: "the sign is turned",
}


def velocity_off(
    files: Files, batch: Batch, numbers: Sequence[int], positions: str
) -> tuple[bool, str, str, dict[str, Any]]:
    """Velocities of trajectories beside the five-point differences of their positions.

    positions: DATASET of the same file, or FILE:DATASET. Returns whether they agree, a text, the
    worst dof, and per dof [D] the RMS of what is between the two as a share of that of the
    differences, and the factor that fits best. Raises InputError where there are no such
    positions, or no time step.
    """
    name = positions if parse_source(positions).path.exists() else f"{batch.path}:{positions}"
    others = read_sources(files, [name])
    shapes = [[describe(one.shape) for one in sets] for sets in (batch.sets, others)]
    if shapes[0] != shapes[1]:
        expected, actual = (", ".join(dict.fromkeys(listed)) for listed in shapes)
        expected += f" in {len(batch.sets)} groups, as the velocities"
        what = "positions and velocities of different shapes"
        raise InputError(Fault(what, name, expected, f"{actual} in {len(others)}"))
    other_of = {id(one): other for one, other in zip(batch.sets, others, strict=True)}
    sums = np.zeros((3, batch.first.shape[2]))
    for velocities in batch.blocks(numbers):
        parts = [(other_of[id(one)], begin, end) for one, begin, end in velocities.parts]
        places = replace(velocities, parts=parts)
        times = velocities.times() if batch.first.time is not None else places.times()
        if times is None:
            hint = "a dataset or an attribute dt says it"
            raise InputError(Fault("no time step", batch.path, "dt or time stamps", hint=hint))
        if velocities.rows < 2:
            continue
        v = velocities.read(next(iter(batch.first.arrays))).astype(np.float64)
        d: Any = integrate(
            places.read(next(iter(others[0].arrays))),
            "first",
            times=times,
            mode="central" if velocities.rows >= WINDOW else "clique",
            write=("velocity",),
            dtype="float64",
            allow_nonfinite=True,
        ).velocity
        good = np.isfinite(v) & np.isfinite(d)
        v, d = np.where(good, v, 0.0), np.where(good, d, 0.0)
        sums += [(a * b).sum((0, 1)) for a, b in ((v, v), (d, d), (v, d))]
    v2, d2, vd = sums
    off = np.sqrt(np.maximum(v2 - 2 * vd + d2, 0.0))
    with np.errstate(invalid="ignore", divide="ignore"):
        errors = np.where(off > 0, off / np.sqrt(d2), 0.0)
        factors = np.where(d2 > 0, vd / d2, 1.0)
    worst = int(errors.argmax())
    passed, factor = bool(errors[worst] <= TOLERANCE), factors[worst]
    text = f"{100 * errors[worst]:.3g} % (RMS) off the derivative of {positions}"
    meanings = [text for known, text in _FACTORS.items() if abs(factor / known - 1) < TOLERANCE]
    if not passed and meanings:
        text += f", {factor:.4g} times as large: {meanings[0]}"
    return passed, text, f"dof {worst}", {"per_dof": errors.tolist(), "factors": factors.tolist()}
