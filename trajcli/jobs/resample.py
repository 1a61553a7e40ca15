"""Trajectories and actions at another rate, from file to file."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from trajcli.errors import Fault, UsageError
from trajcli.files.placing import refuse_output
from trajcli.jobs.names import without_folders
from trajcli.jobs.places import Files
from trajcli.jobs.tracks import RowsRequest, checked, find_tracks, write_tracks
from trajcli.resampling import Plan, make_plan


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
    files = Files(request.allow_external, request.untrusted)
    try:
        tracks = find_tracks(request, files)
        plans = _Plans(request)
        lengths = [len(plans.of(track.knots).time) for track in tracks.each]

        def compute(i: int) -> tuple[Any, dict[str, Any]]:
            track = tracks.each[i]
            plan = plans.of(track.knots)
            arrays = {name: plan.apply(checked(track, name)[None])[0] for name in tracks.names}
            return plan.time, arrays

        options = {"hold": request.hold} if request.method == "ramp-and-hold" else {}
        options |= {"degree": request.degree} if request.method == "bspline" else {}
        attributes = {
            "method": request.method,
            **options,
            "rate": request.to,
            "dt": 1.0 / request.to,
            "source": without_folders(tracks.source, files.paths()),
            "source_dt": without_folders(tracks.dt_source, files.paths()),
        }
        schema = write_tracks(
            request, files, tracks, lengths, attributes, {}, compute, 1.0 / request.to
        )
    finally:
        files.close()
    rows = [len(track.knots) for track in tracks.each]
    return {
        "out": str(request.out),
        "source": tracks.source,
        "arrays": list(tracks.names),
        "method": request.method,
        **options,
        "rate": request.to,
        "dt_source": tracks.dt_source,
        "trajectories": len(tracks.each),
        "rows_before": {"least": min(rows), "most": max(rows)},
        "rows": {"least": min(lengths), "most": max(lengths)},
        "output": schema.kind,
        "bytes_written": schema.nbytes,
    }


class _Plans:
    """Plans, made once for all trajectories with the same times."""

    def __init__(self, request: ResampleRequest) -> None:
        self._request = request
        self._made = lru_cache(64)(self._make)

    def of(self, knots: Any) -> Plan:
        """The plan for rows at these times."""
        return self._made(knots.tobytes())

    def _make(self, raw: bytes) -> Plan:
        asked = self._request
        knots = np.frombuffer(raw, np.float64)
        return make_plan(asked.method, knots, asked.to, asked.hold, asked.degree)
