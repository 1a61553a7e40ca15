"""Trajectories slower or faster within limits, from file to file."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from trajcli.errors import Fault, InputError
from trajcli.files.limits import read_limits
from trajcli.files.placing import refuse_output
from trajcli.files.schema import QUANTITIES
from trajcli.jobs.names import without_folders
from trajcli.jobs.places import Files
from trajcli.jobs.tracks import RowsRequest, Tracks, checked, find_tracks, write_tracks
from trajcli.retiming import Limit, retime

_KEPT = ("mode", "scheme", "frames", "ends", "degree", "steps", "convention", "start", "goal")
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
    files = Files(request.allow_external, request.untrusted)
    try:
        tracks = find_tracks(request, files)
        limits = _limits(request, tracks)
        factors, reasons = _factors(request, tracks, limits)

        def compute(i: int) -> tuple[Any, dict[str, Any]]:
            track, factor = tracks.each[i], factors[i]
            arrays = {}
            for name in tracks.names:
                rows = checked(track, name)
                kind = tracks.dtypes[name]
                paced = rows.astype(np.float64) / factor ** QUANTITIES.index(name)
                arrays[name] = rows if name == "position" else paced.astype(kind)
            return track.knots * factor, arrays

        paths = [*files.paths(), str(request.limits)]
        kept = {n: v for n, v in tracks.attributes.items() if n in _KEPT}
        attributes = {
            **kept,
            "dt": "varies",
            "limits": without_folders(str(request.limits), paths),
            "slower_only": int(request.slower_only),
            "source": without_folders(tracks.source, paths),
            "source_dt": without_folders(tracks.dt_source, paths),
        }
        lengths = [len(track.knots) for track in tracks.each]
        more = {"time_scale": factors}
        schema = write_tracks(request, files, tracks, lengths, attributes, more, compute)
    finally:
        files.close()
    return {
        "out": str(request.out),
        "source": tracks.source,
        "limits": str(request.limits),
        "dt_source": tracks.dt_source,
        "trajectories": len(factors),
        "factor": {"least": float(factors.min()), "most": float(factors.max())},
        "factors": factors.tolist(),
        "limited_by": dict(Counter(reason or "nothing" for reason in reasons)),
        "output": schema.kind,
        "bytes_written": schema.nbytes,
    }


def _limits(request: RetimeRequest, tracks: Tracks) -> dict[str, Limit]:
    """The limits of what a pace changes, in the order of the trajectories' dofs."""
    unknown = [name for name in tracks.names if name not in QUANTITIES]
    if unknown:
        hint = "trajcli integrate makes trajectories of actions"
        expected = ", ".join(QUANTITIES)
        raise InputError(
            Fault("not a trajectory", tracks.source, expected, ", ".join(unknown), hint)
        )
    names = tracks.joint_names or [str(d) for d in range(tracks.dofs)]
    bounds = read_limits(request.limits).bounds(names)
    found = {n: (b.lower, b.upper) for n, b in bounds.items() if n != "position"}
    missing = [name for name in found if name not in tracks.names]
    if missing:
        what = f"limits of {', '.join(missing)}, and no such rows"
        hint = "trajcli integrate writes them; or leave these limits out"
        have = ", ".join(tracks.names)
        raise InputError(Fault(what, tracks.source, ", ".join(found), have, hint))
    return dict(found)


def _factors(
    request: RetimeRequest, tracks: Tracks, limits: dict[str, Limit]
) -> tuple[Any, list[str]]:
    """The factor of every trajectory, and the quantity that asks for it."""
    factors, reasons = np.ones(len(tracks.each)), []
    for i, track in enumerate(tracks.each):
        parts = {name: checked(track, name)[None] for name in tracks.names if name != "position"}
        found = retime(parts, limits, slower_only=request.slower_only)
        factors[i] = found.factor[0]
        reasons += found.limited_by
    return factors, reasons
