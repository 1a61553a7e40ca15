"""What of a divided run is done, running, missing or failed; from its folder alone."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from trajcli.jobs.pieces import trajectory_ranges
from trajcli.jobs.records import DONE, FAILED, MISSING, OTHER, RUNNING, Folder, parts_folder

KINDS = (DONE, RUNNING, MISSING, FAILED, OTHER)


def status(out: Path) -> dict[str, Any]:
    """The state of a divided run as plain values; raises InputError where there is none."""
    folder = Folder.require(parts_folder(out))
    division, shares = folder.division, folder.shares
    found: dict[str, list[int]] = {kind: [] for kind in KINDS}
    whys: list[str] = []
    failed = []
    done_bytes = 0
    for number in range(len(division)):
        unit = division.unit(number)
        state = folder.state(unit)
        found[state.kind].append(number)
        done_bytes += unit.nbytes if state.kind == DONE else 0
        whys += [state.why] if state.why else []
        if state.kind == FAILED and state.record is not None:
            about = {"unit": number, "trajectories": list(unit.trajectories)}
            failed.append({**about, "faults": state.record["faults"]})
    ranges = {
        kind: trajectory_ranges([division.unit(n) for n in numbers])
        for kind, numbers in found.items()
    }
    left = [n for kind in (MISSING, FAILED, OTHER) for n in found[kind]]
    return {
        "parts": str(folder.path),
        "complete": len(found[DONE]) == len(division),
        "shares": shares,
        "units": {"all": len(division), **{kind: len(found[kind]) for kind in KINDS}},
        "bytes": {"all": division.total, "done": done_bytes},
        "trajectories": ranges,
        "running_shares": _shares(division.share_of, found[RUNNING], shares),
        "missing_shares": (missing := _shares(division.share_of, left, shares)),
        "array": as_ranges(sorted({share // folder.tasks for share in missing})),
        "failed": failed,
        "notes": whys,
    }


def _shares(share_of: Any, numbers: Sequence[int], shares: int) -> list[int]:
    return sorted({share_of(number, shares) for number in numbers})


def as_ranges(numbers: Sequence[int]) -> str:
    """0,3-5: what sbatch --array= takes."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and runs[-1][1] == number - 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)
