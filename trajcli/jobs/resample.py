"""Trajectories and actions at another rate, from file to file."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import numpy as np

from trajcli.errors import Fault, UsageError
from trajcli.files.reader import Files
from trajcli.files.refusals import refuse_output
from trajcli.jobs.row_blocks import Block, Floats
from trajcli.jobs.rows import Arrays, Rows, RowsRequest, write_rows
from trajcli.resampling import Resampler, make_resampler


@dataclass(frozen=True)
class ResampleRequest(RowsRequest):
    """A resample job, as typed."""

    to: float = 0.0
    method: str = "linear"
    hold: float = 0.0
    degree: int = 3


def run_resample(request: ResampleRequest) -> dict[str, Any]:
    """Read, resample, write; returns a report of plain values.

    Raises TrajcliError with every fault found; OUT is then as it was before.
    """
    refuse_output(request.out, request.overwrite)
    if not (np.isfinite(request.to) and request.to > 0):
        raise UsageError(Fault("a rate that is not positive", "--to", "Hz > 0", str(request.to)))
    stated: dict[str, Any] = {"method": request.method, "rate": request.to}
    if request.method == "ramp-and-hold":
        stated["hold"] = request.hold
    if request.method == "bspline":
        stated["degree"] = request.degree

    make = partial(
        make_resampler, request.method, rate=request.to, hold=request.hold, degree=request.degree
    )

    @lru_cache(64)  # most trajectories of one length have the same times
    def resampler_of(knots: bytes, rounding: float, acting: bool) -> Resampler:
        return make(np.frombuffer(knots), rounding=rounding, acting=acting)

    with Files(request.allow_external, request.untrusted) as files:
        rows = Rows(request, files, actions=True)

        def times(block: Block) -> tuple[Floats, float, bool]:
            knots, rounding = block.times(acting=request.method == "hold")
            return knots, rounding, knots.shape[1] > block.part.length

        counts = np.empty(len(rows.lengths), np.int64)
        for _, block in rows.blocks(np.arange(len(counts))):
            knots, rounding, acting = times(block)
            new = [len(resampler_of(line.tobytes(), rounding, acting).time) for line in knots]
            counts[block.numbers] = new

        def compute(block: Block) -> tuple[Floats, Arrays]:
            knots, rounding, acting = times(block)
            same = len(knots) == 1
            resampler = (resampler_of(knots.tobytes(), rounding, acting) if same
                         else make(knots, rounding=rounding, acting=acting))  # fmt: skip
            arrays = {name: resampler.apply(block.read(name)) for name in rows.names}
            return resampler.time[None], arrays

        step = 1.0 / request.to
        report = write_rows(request, files, rows, counts, compute, {**stated, "dt": step}, (), step)
    return {
        **report,
        **stated,
        "arrays": list(rows.names),
        "rows_before": {"least": int(rows.lengths.min()), "most": int(rows.lengths.max())},
        "rows": {"least": int(counts.min()), "most": int(counts.max())},
    }
