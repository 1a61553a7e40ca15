"""Trajectories slower or faster within limits, from file to file."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from trajcli.errors import Fault, InputError
from trajcli.files.limits import Bounds, read_limits
from trajcli.files.reader import Files
from trajcli.files.refusals import refuse_output
from trajcli.files.schema import QUANTITIES, Variable
from trajcli.jobs.row_blocks import Block, Floats
from trajcli.jobs.rows import Arrays, Rows, RowsRequest, write_rows
from trajcli.jobs.segments import trajectory_names
from trajcli.retiming import Limit, Retimed, retime

_MODE_ATTRIBUTES = {"mode", "scheme", "frames", "ends", "degree", "steps", "convention", "start",
                    "goal", "as_position"}  # fmt: skip
"""What made the trajectory holds at any pace."""


@dataclass(frozen=True)
class RetimeRequest(RowsRequest):
    """A retime job, as typed."""

    limits: Path = Path()
    slower_only: bool = False


def run_retime(request: RetimeRequest) -> dict[str, Any]:
    """Read, find the factors, write; returns a report of plain values.

    Raises TrajcliError with every fault found; OUT is then as it was before.
    """
    refuse_output(request.out, request.overwrite)
    with Files(request.allow_external, request.untrusted) as files:
        rows = Rows(request, files, actions=False)
        limits = _limits(request, rows)
        paces = Paces(rows, limits)

        def compute(block: Block) -> tuple[Floats, Arrays]:
            values = {name: block.read(name) for name in rows.names}
            retimed = retime(values, limits.paced, slower_only=request.slower_only)
            times = block.times()[0] * retimed.factor[:, None]
            paces.add(block, values, retimed, times)
            return times, {**values, **retimed.parts, "time_scale": retimed.factor}

        stored = rows.first.file.attributes()
        stated = {name: value for name, value in stored.items() if name in _MODE_ATTRIBUTES}
        if "as_position" in stated:  # of the dofs that are picked
            numbers, listed = rows.first.dofs.numbers, str(stated["as_position"]).split(",")
            chosen = [str(dof) for dof, number in enumerate(numbers) if str(number) in listed]
            stated["as_position"] = ",".join(chosen)
        stated |= {"dt": "varies", "limits": str(request.limits)}
        stated["slower_only"] = int(request.slower_only)
        label, shape = {"long_name": "time_scale"}, paces.factor.shape
        scale = Variable("time_scale", ("trajectory",), shape, paces.factor.dtype, label)
        report = write_rows(request, files, rows, rows.lengths, compute, stated, [scale])
    notes = [*report["notes"], *paces.notes()]
    return {**report, "limits": str(request.limits), **paces.report(), "notes": notes}


@dataclass(frozen=True)
class PaceLimits:
    """Limits of what a pace changes, and of positions, in the order of the dofs ``names``."""

    names: Sequence[str]
    paced: Mapping[str, Limit]
    position: Bounds | None
    remarks: Sequence[str]


class Paces:
    """What is reported of each trajectory; ``add`` takes blocks of them.

    factor, time [n]: its scaling, and when it is at a limit; of what quantity, and of which dof.
    slack: by limited quantity, the share [n] of the limit that is left.
    """

    def __init__(self, rows: Rows, limits: PaceLimits) -> None:
        count = len(rows.lengths)
        self._rows, self._limits = rows, limits
        self.factor, self.time = np.ones(count), np.full(count, np.nan)
        self.quantity: list[str] = [""] * count
        self.dof = np.full(count, -1)
        self.slack = {name: np.ones(count) for name in limits.paced}
        self.beyond = 0

    def add(self, block: Block, values: Arrays, retimed: Retimed, times: Floats) -> None:
        """Take in a block, its values [b, T, D] and its new times [b, T]."""
        at, bound = block.numbers, retimed.row >= 0
        self.factor[at], self.dof[at] = retimed.factor, retimed.dof
        self.time[at[bound]] = times[bound, retimed.row[bound]]
        for number, name in zip(at.tolist(), retimed.limited_by, strict=True):
            self.quantity[number] = name
        for name, share in retimed.slack.items():
            self.slack[name][at] = share
        bounds, position = self._limits.position, values.get("position")
        if bounds is not None and position is not None:
            excess = np.maximum(position - bounds.upper, bounds.lower - position) / bounds.size
            self.beyond += int((excess > bounds.slack).any((1, 2)).sum())

    def report(self) -> dict[str, Any]:
        """All of it as plain values."""
        names = [None if dof < 0 else self._limits.names[dof] for dof in self.dof.tolist()]
        return {
            "factor": {"least": float(self.factor.min()), "most": float(self.factor.max())},
            "factors": self.factor.tolist(),
            "limited_by": dict(Counter(name or "nothing" for name in self.quantity)),
            "binding": {
                "trajectory": self._names(),
                "quantity": [name or None for name in self.quantity],
                "joint": names,
                "time": [None if time != time else time for time in self.time.tolist()],
            },
            "slack": {name: share.tolist() for name, share in self.slack.items()},
        }

    def notes(self) -> list[str]:
        """What there is to say of the limits."""
        of = f"positions beyond their limits in {self.beyond} of {len(self.factor)} trajectories"
        beyond = [f"{of}, which no pace changes"] if self.beyond else []
        return [*self._limits.remarks, *beyond]

    def _names(self) -> list[str]:
        """Trajectories by their group, or their number in the file."""
        sets, count = self._rows.sets, len(self.factor)
        if len(sets) == 1:
            return [str(number) for number in range(count)]
        paths = (os.fspath(one.file.path) for one in sets)
        return list(trajectory_names(self._rows.segments, sets, paths).values())


def _limits(request: RetimeRequest, rows: Rows) -> PaceLimits:
    """The limits, in the order of the trajectories' dofs.

    Of what the file holds only the trajectories count; raises InputError where there are none, or
    a limit of what they do not have.
    """
    others = [name for name in rows.names if name not in QUANTITIES]
    rows.names = [name for name in rows.names if name in QUANTITIES]
    if not rows.names:
        hint = "trajcli integrate makes trajectories of actions"
        expected = ", ".join(QUANTITIES)
        raise InputError(Fault("not a trajectory", rows.source, expected, ", ".join(others), hint))
    first = rows.first
    stored = read_limits(request.limits)
    itemsize = min(first.arrays[name].dtype.itemsize for name in rows.names)
    units = {name: first.unit(name) or "" for name in rows.names}
    names, picked = first.dof_labels, first.dofs
    bounds = stored.bounds(names, itemsize, units, picked)
    missing = [name for name in bounds if name not in ("position", *rows.names)]
    if missing:
        what = f"limits of {', '.join(missing)}, and no such rows"
        hint = "trajcli integrate writes them; or leave these limits out"
        have = ", ".join(rows.names)
        raise InputError(Fault(what, rows.source, ", ".join(bounds), have, hint))
    remarks = [
        text
        for name in bounds
        for text in stored.remarks(name, names, first.units.get(name), picked)
    ]
    limits: dict[str, Limit] = {
        name: (bound.lower, bound.upper) for name, bound in bounds.items() if name != "position"
    }
    return PaceLimits(names, limits, bounds.get("position"), list(dict.fromkeys(remarks)))
