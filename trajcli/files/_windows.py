"""Cuts trajectories to a window of time, --since and --until, where they are read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace

import numpy as np

from trajcli.errors import Fault, InputError, Note, Report, UsageError
from trajcli.files.clock import SINCE_1970, add_seconds, exact_seconds, unit_of_size
from trajcli.files.episodes import LEAVE_OUT
from trajcli.files.output_times import OutputTimes, choose_clock
from trajcli.files.reading import Reading
from trajcli.files.recording import Recording, join
from trajcli.files.source import Place
from trajcli.kernels.program import Floats
from trajcli.units import parse_time_unit


def cut_to_window(
    recordings: Sequence[Recording], reading: Reading, report: Report
) -> Iterator[Recording]:
    """Cuts recordings, which have their times, to the window of --since and --until.

    Those without rows in it are left out or, where --episodes counts them, become placeholders.
    """
    options = {"--since": reading.since, "--until": reading.until}
    typed = {flag: text for flag, text in options.items() if text is not None}
    bounds = np.array([_parse_bound(flag, text) for flag, text in typed.items()])
    where = Place(remark=" ".join(f"{flag} {text}" for flag, text in typed.items()))
    if not (np.diff(bounds) > 0).all():
        raise UsageError("a window that ends where it begins, or before", where=where)
    usable = [recording for recording in recordings if recording.fault is None]
    whole, lines = join(usable), list[Floats]()
    # bounds are compared with the times of rows from the first row on, without padding
    for recording in usable:
        assert recording.own_clock is not None  # what has no fault has times
        times = recording.own_clock.stored_times()
        every = np.broadcast_to(times - times[:, :1], recording.shape[:2])
        lines += [line[:rows] for line, rows in zip(every, recording.lengths, strict=True)]
    ends = np.array([np.fmax.reduce(line, initial=0.0) for line in lines])
    starts, unit = whole.start_stamps(skip_start=True), unit_of_size(bounds[0])
    reached = f"times within 0 to {ends.max():.9g} s from the first row"
    if starts is not None:
        last = add_seconds(starts[0], ends, starts[1]).max()
        reached += f", or stamps from {starts[0].min()} to {last} {starts[1]}"
        if min(float(bounds[0]), float(exact_seconds(starts[0][0], starts[1]))) > SINCE_1970:
            unit = unit or "s"
    # bounds mean seconds from the first row or stamps of the clock, as the times of resample do;
    # they may miss a row by the rounding of its time, which four spacings cover
    named_times = OutputTimes(bounds, where, parse_time_unit(unit))
    window = choose_clock(named_times, np.arange(len(ends)), starts, ends, 4 * np.spacing(ends))
    spans = np.zeros((len(ends), 2), np.int64)
    for k, line in enumerate(lines):
        seconds, slack = window.seconds(k)
        since = seconds[0] - slack if reading.since is not None else -np.inf
        until = seconds[-1] + slack if reading.until is not None else np.inf
        rows_in_window = np.flatnonzero((line >= since) & (line <= until))
        # rows between the first and the last stay, whatever their stamps are: a faulty clock is
        # reported where times are checked
        if len(rows_in_window):
            spans[k] = rows_in_window[0], rows_in_window[-1] + 1
    absent, rows = int((spans[:, 1] == 0).sum()), int(np.diff(spans).sum())
    fault = Fault("no rows in the window", where=where, expected=reached, hint=LEAVE_OUT)
    if not rows:
        raise InputError(replace(fault, found=f"none in {whole.source}", hint=""))
    left = f"; {absent} of {len(ends)} trajectories have none" if absent else ""
    report.add_notes(
        Note(f"{where}: {window.clock_name}; {rows} of {sum(map(len, lines))} rows{left}")
    )
    parts = iter(np.split(spans, np.cumsum([*map(len, usable)])))
    for recording in recordings:
        if recording.fault is None:
            cut = recording.cut(next(parts), fault if reading.episodes is not None else None)
            yield from (replace(part, windowed=True) for part in cut)
        else:
            yield recording


def _parse_bound(flag: str, text: str) -> float:
    """Parses a number, or a date and time in UTC, which becomes nanoseconds since 1970."""
    # integers first: nanoseconds since 1970 lose digits as floats
    for kind in (int, float):
        with suppress(ValueError):
            if abs(number := kind(text)) < 2**63:
                return number
    with suppress(ValueError):
        moment = np.datetime64(text.removesuffix("Z"), "ns")
        if not np.isnat(moment):
            return int(moment.astype(np.int64))
    expected = "seconds from the first row, a stamp, or a date and time like 2026-01-31T12:30:00"
    raise UsageError("not a time", where=flag, expected=expected, found=repr(text))
