"""Trajectories slower or faster within limits, from file to file."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from trajcli.errors import Fault, InputError
from trajcli.files.limits import read_limits
from trajcli.files.reader import Files
from trajcli.files.refusals import refuse_output
from trajcli.files.schema import QUANTITIES, Variable
from trajcli.jobs.row_blocks import Block, Floats
from trajcli.jobs.rows import Arrays, Rows, RowsRequest, write_rows
from trajcli.retiming import Limit, retime

_MODE_ATTRIBUTES = {"mode", "scheme", "frames", "ends", "degree", "steps", "convention", "start",
                    "goal"}  # fmt: skip
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
        factors = np.ones(len(rows.lengths))
        limited_by: Counter[str] = Counter()

        def compute(block: Block) -> tuple[Floats, Arrays]:
            values = {name: block.read(name) for name in rows.names}
            retimed = retime(values, limits, slower_only=request.slower_only)
            factors[block.numbers] = retimed.factor
            limited_by.update(reason or "nothing" for reason in retimed.limited_by)
            arrays = {**values, **retimed.parts, "time_scale": retimed.factor}
            return block.times()[0] * retimed.factor[:, None], arrays

        stored = rows.first.file.attributes()
        stated = {name: value for name, value in stored.items() if name in _MODE_ATTRIBUTES}
        stated |= {"dt": "varies", "limits": str(request.limits)}
        stated["slower_only"] = int(request.slower_only)
        label = {"long_name": "time_scale"}
        scale = Variable("time_scale", ("trajectory",), factors.shape, factors.dtype, label)
        report = write_rows(request, files, rows, rows.lengths, compute, stated, [scale])
    return {
        **report,
        "limits": str(request.limits),
        "factor": {"least": float(factors.min()), "most": float(factors.max())},
        "factors": factors.tolist(),
        "limited_by": dict(limited_by),
    }


def _limits(request: RetimeRequest, rows: Rows) -> dict[str, Limit]:
    """The limits of what a pace changes, in the order of the trajectories' dofs.

    Of what the file holds only the trajectories count; raises InputError where there are none.
    """
    others = [name for name in rows.names if name not in QUANTITIES]
    rows.names = [name for name in rows.names if name in QUANTITIES]
    if not rows.names:
        hint = "trajcli integrate makes trajectories of actions"
        expected = ", ".join(QUANTITIES)
        raise InputError(Fault("not a trajectory", rows.source, expected, ", ".join(others), hint))
    names = rows.first.joint_names or [str(d) for d in range(rows.dofs)]
    bounds = read_limits(request.limits).bounds(names)
    limits: dict[str, Limit] = {
        name: (bound.lower, bound.upper) for name, bound in bounds.items() if name != "position"
    }
    missing = [name for name in limits if name not in rows.names]
    if missing:
        what = f"limits of {', '.join(missing)}, and no such rows"
        hint = "trajcli integrate writes them; or leave these limits out"
        have = ", ".join(rows.names)
        raise InputError(Fault(what, rows.source, ", ".join(limits), have, hint))
    return limits
