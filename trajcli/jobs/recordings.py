"""Recordings before they are differenced: repeated stamps dropped, split at gaps."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from trajcli.checks import describe, time_stamp_faults
from trajcli.errors import Fault, InputError, UsageError, raise_if_any
from trajcli.jobs.segments import Segment, in_memory
from trajcli.modes.central import WINDOW, Central
from trajcli.modes.savgol import SavitzkyGolay

if TYPE_CHECKING:
    from trajcli.jobs.request import Request
    from trajcli.modes import Mode


def _least_rows(mode: Mode) -> int:
    """A segment with fewer has no derivatives."""
    if isinstance(mode, SavitzkyGolay):
        return mode.window if isinstance(mode.window, int) else mode.degree + 1
    return WINDOW if isinstance(mode, Central) else 1


def refuse_gap(request: Request) -> None:
    """Raise UsageError for a gap that is none."""
    gap = request.max_gap
    if gap is not None and not (math.isfinite(gap) and gap > 0):
        raise UsageError(Fault("not a gap", "--max-gap", "seconds > 0", str(gap)))


def split_recordings(
    request: Request, mode: Mode, recordings: Sequence[Segment]
) -> tuple[list[Segment], list[str]]:
    """The segments of recordings without repeated stamps, between gaps, numbered as they come; and
    notes on what was done. Raises InputError where no segment is long enough."""
    least = 1 if request.max_gap is None else _least_rows(mode)
    counts: Counter[str] = Counter()
    split = [part for whole in recordings for part in _split(whole, request, least, counts)]
    keys = [(id(part.source), *part.trajectories[:1]) for part in split]
    number_of, seen, first = Counter(keys), Counter[Any](), 0
    segments = []
    for part, key in zip(split, keys, strict=True):
        numbers = range(first, first + len(part.trajectories))
        suffix = f"/segment_{seen[key]}" if number_of[key] > 1 else ""
        segments.append(replace(part, numbers=numbers, suffix=suffix))
        seen[key], first = seen[key] + 1, numbers.stop
    return segments, list(_notes(counts, request.max_gap, least))


def _split(whole: Segment, request: Request, least: int, counts: Counter[str]) -> Iterator[Segment]:
    """The segments of recordings of one length; those that are equally spaced as they are."""
    time, length = whole.time, len(whole.rows)
    if time.stamps is None:
        yield whole
        return
    stamps = np.atleast_2d(in_memory(time.stamps))
    if stamps.shape[1] < length or len(stamps) not in (1, whole.source.shape[0]):
        expected, shape = f"[{length}], one per row", describe(time.stamps.shape)
        raise InputError(Fault("wrong number of time stamps", time.where, expected, shape))
    if len(stamps) == 1:
        lines = [(whole.trajectories, stamps[0, :length])]
    else:
        lines = [(range(int(k), int(k) + 1), stamps[k, :length]) for k in whole.trajectories]
    for trajectories, line in lines:
        for rows in _between_gaps(line, time.where, request, counts):
            long_enough = len(rows) >= least
            counts["segments" if long_enough else "short"] += 1
            if long_enough:
                yield replace(whole, trajectories=trajectories, rows=rows, stamps=line[rows])


def _between_gaps(stamps: Any, where: str, request: Request, counts: Counter[str]) -> Sequence[Any]:
    """The numbers of the rows between gaps; raises InputError for stamps that do not increase."""
    rows = np.arange(len(stamps))
    if request.repeated_times == "drop":
        rows = np.flatnonzero(np.concatenate([[True], stamps[1:] != stamps[:-1]]))
        counts["dropped"] += len(stamps) - len(rows)
    raise_if_any(time_stamp_faults(stamps[rows], where, 0, rows))
    gaps = np.diff(stamps[rows].astype(np.float64)) > (request.max_gap or math.inf)
    counts["gaps"] += int(gaps.sum())
    return np.split(rows, np.flatnonzero(gaps) + 1)


def _notes(counts: Counter[str], gap: float | None, least: int) -> Iterator[str]:
    if counts["short"] and not counts["segments"]:
        what = f"no segment of {least} rows between gaps"
        raise InputError(Fault(what, "--max-gap", hint="a larger --max-gap"))
    if counts["gaps"]:
        number = counts["segments"] + counts["short"]
        yield f"split at gaps of more than {gap:g} s: {number} segments"
    if counts["short"]:
        yield f"segments of fewer than {least} rows left out: {counts['short']}"
    if counts["dropped"]:
        rows = "row" if counts["dropped"] == 1 else "rows"
        yield f"{counts['dropped']} {rows} with repeated stamps dropped"
