"""Recordings before they are differenced: repeated stamps dropped, split at gaps."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from trajcli.checks import describe, time_stamp_faults
from trajcli.errors import Fault, InputError, UsageError, raise_if_any
from trajcli.files.arrays import Numbers
from trajcli.jobs.row_selection import Segment, in_memory
from trajcli.modes.central import Central

if TYPE_CHECKING:
    from trajcli.files.reader import TrajectorySet
    from trajcli.files.time import Time
    from trajcli.jobs.request import Request
    from trajcli.modes import Mode

_LEAST_ROWS = 5
"""Central differences take five rows; a shorter segment has none."""


def refuse_recording_options(request: Request) -> None:
    """Raise UsageError for options that only a recording can have, and a gap that is none."""
    faults, gap = [], request.max_gap
    options = {
        "--max-gap": gap is not None,
        "--wrap-dofs": bool(request.wrap_dofs),
        "--repeated-times drop": request.repeated_times == "drop",
    }
    if not request.recorded:
        what, hint = "for recorded positions only", "--start first reads the actions as a recording"
        faults = [Fault(what, name, hint=hint) for name, present in options.items() if present]
    if gap is not None and not (math.isfinite(gap) and gap > 0):
        faults.append(Fault("not a gap", "--max-gap", "seconds > 0", str(gap)))
    raise_if_any(faults, UsageError)


def split_recordings(
    request: Request, mode: Mode, sets: Sequence[TrajectorySet], times: Sequence[Time]
) -> tuple[list[Segment], Sequence[str]]:
    """The segments of recordings without repeated stamps, between gaps: numbered as they come."""
    splitter = _Splitter(request, mode)
    segments: list[Segment] = []
    first = 0
    for k, (one, time) in enumerate(zip(sets, times, strict=True)):
        batch, rows, _ = one.shape
        lengths = np.full(batch, rows) if one.lengths is None else one.lengths
        split = [
            part
            for length in np.unique(lengths).tolist()
            for part in splitter.split(one, np.flatnonzero(lengths == length), length, time)
        ]
        many = Counter(int(chosen[0]) for chosen, _, _ in split)
        seen: Counter[int] = Counter()
        for chosen, selected, stamps in split:
            numbers = range(first, first + len(chosen))
            first, at = numbers.stop, int(chosen[0])
            suffix = f"/segment_{seen[at]}" if many[at] > 1 else ""
            seen[at] += 1
            segments.append(Segment(one, k, chosen, numbers, selected, stamps, suffix))
    return segments, list(splitter.notes())


class _Splitter:
    """Drops rows with repeated stamps and splits at gaps; counts what it did."""

    def __init__(self, request: Request, mode: Mode) -> None:
        self._gap, self._drop = request.max_gap, request.repeated_times == "drop"
        self._least = _LEAST_ROWS if isinstance(mode, Central) and self._gap is not None else 1
        self._counts: Counter[str] = Counter()

    def split(
        self, one: TrajectorySet, numbers: Numbers, length: int, time: Time
    ) -> Iterator[tuple[Numbers, Numbers, Any]]:
        """Trajectories of a set that have one length, their rows and the stamps of these; stamps
        are None where all rows are used, as they are equally spaced."""
        if time.stamps is None:
            yield numbers, range(length), None
            return
        stamps = np.atleast_2d(in_memory(time.stamps))
        if stamps.shape[1] < length or len(stamps) not in (1, one.shape[0]):
            expected, found = f"[{length}], one per row", describe(time.stamps.shape)
            raise InputError(Fault("wrong number of time stamps", time.where, expected, found))
        shared = len(stamps) == 1
        for chosen in [numbers] if shared else [range(int(k), int(k) + 1) for k in numbers]:
            line = stamps[0 if shared else chosen[0], :length]
            for rows in self._segments(line, time.where):
                yield chosen, rows, line[rows]

    def _segments(self, stamps: Any, where: str) -> Iterator[Any]:
        rows = np.arange(len(stamps))
        if self._drop:
            rows = np.flatnonzero(np.concatenate([[True], stamps[1:] != stamps[:-1]]))
            self._counts["dropped"] += len(stamps) - len(rows)
        raise_if_any(time_stamp_faults(stamps[rows], where, 0, rows))
        gaps = np.diff(stamps[rows].astype(np.float64)) > (self._gap or math.inf)
        segments = np.split(rows, np.flatnonzero(gaps) + 1)
        self._counts["gaps"] += len(segments) - 1
        for segment in segments:
            long_enough = len(segment) >= self._least
            self._counts["segments" if long_enough else "short"] += 1
            if long_enough:
                yield segment

    def notes(self) -> Iterator[str]:
        """What was done, for people. Raises InputError where no segment is long enough."""
        counts, least = self._counts, self._least
        if counts["short"] and not counts["segments"]:
            what = f"no segment of {least} rows between gaps"
            raise InputError(Fault(what, "--max-gap", hint="a larger --max-gap"))
        if counts["gaps"]:
            number = counts["segments"] + counts["short"]
            yield f"split at gaps of more than {self._gap:g} s: {number} segments"
        if counts["short"]:
            yield f"segments of fewer than {least} rows left out: {counts['short']}"
        if counts["dropped"]:
            rows = "row" if counts["dropped"] == 1 else "rows"
            yield f"{counts['dropped']} {rows} with repeated stamps dropped"
