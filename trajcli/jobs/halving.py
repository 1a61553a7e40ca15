"""Blocks of half the size, where a device has no room for whole ones."""

from __future__ import annotations

from dataclasses import replace

from trajcli.jobs.batch import Size
from trajcli.jobs.plan import Plan
from trajcli.modes.stretch import PIECE


def halved(plan: Plan) -> Plan | None:
    """The same work in smaller blocks; None where they cannot be smaller.

    Trajectories are parted first, then the rows of one, unless they have to be done at once.
    """
    parts = [replace(part, size=_half(part)) for part in plan.each()]
    if all(new.size == old.size for new, old in zip(parts, plan.each(), strict=True)):
        return None
    return replace(plan, size=_half(plan), parts=parts if plan.parts else ())


def _half(part: Plan) -> Size:
    size, inputs = part.size, part.inputs
    if size.trajectories > 1:
        return replace(size, trajectories=size.trajectories // 2)
    if part.gradient is not None or part.smooth or size.rows <= 2 * PIECE:
        return size
    lead = int(inputs.recorded or inputs.mode.lead(inputs.recorded))
    return Size(1, max(2 * PIECE, size.rows // 2 // PIECE * PIECE), lead)
