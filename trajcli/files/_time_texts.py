"""Reads times of rows that are texts: dates, times of day, both, and the days of a spreadsheet."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

# A date, with the year first or last; a time of day; the hours and minutes of a zone.
_MOMENT = re.compile(
    r"(?:((?:19|20)\d\d|\d\d?)([-./])(\d\d?)\2((?:19|20)\d\d|\d\d?))?[T ,]{0,2}"
    r"(?:(\d{1,3}):([0-5]\d)(?::([0-5]\d)(?:(?:[.,]|:(?=\d{3}\b))(\d{1,9}))?)?"
    r"(?: ?([AaPp])\.?[Mm]\.?)?)?"
    r" ?(?:Z|UTC|([+-]\d\d):?(\d\d))?"
)
_SECOND, _DAY, _NS = 10**9, 86_400 * 10**9, "datetime64[ns]"
# A time of day that is earlier than the one before by more than this belongs to the next day.
_MIDNIGHT = 20 * 3600 * _SECOND
# Days since 1899 from 2009 to 2064, and their longest median step: 1.7 s, which in a column of
# seconds would be 20 µs. Written with 15 digits, a stamp is up to 20 µs off its millisecond.
_FIRST_DAY, _LAST_DAY, _LONGEST_STEP, _ROUNDING, _DAYS_TO_1970 = 4e4, 6e4, 2e-5, 20_000, 25_569
FORMS = "HH:MM:SS.mmm, yyyy-mm-dd HH:MM:SS, dd.mm.yyyy or mm/dd/yyyy"


def _split_moment(cell: str) -> tuple[str | None, ...]:
    match = _MOMENT.fullmatch(cell)
    year = match and match[1] and (len(match[1]) == 4) != (len(match[4]) == 4)
    return match.groups() if match and (year or (match[5] and not match[1])) else ()


def moment_kind(cell: str) -> str:
    """Tells whether a cell is a "day", a "time" of day, a "moment" with both, or neither, ""."""
    parts = _split_moment(cell)
    return "" if not parts else "day" if not parts[4] else "moment" if parts[0] else "time"


def moments(cells: Sequence[str]) -> tuple[npt.NDArray[np.datetime64] | None, str]:
    """Parses texts [N] to stamps since 1970, or since the first without a date; with a remark.

    Other texts give None and the reason, which is "" where some are no times.
    """
    rows = [_split_moment(cell) for cell in cells]
    if not rows or not all(rows):
        return None, ""
    first, marks, second, last, *clock, hours, minutes = zip(*rows, strict=True)
    if len({(mark, len(day or "") == 4) for mark, day in {*zip(marks, first, strict=True)}}) > 1:
        return None, "dates of several forms"
    hour, minute, second_of_minute = (np.array([x or 0 for x in y], np.int64) for y in clock[:3])
    if any(clock[4]):
        halves = np.array([half or "" for half in clock[4]])  # a or p
        hour = np.where(halves == "", hour, hour % 12 + 12 * np.isin(halves, ["p", "P"]))
    decimals = np.array([f"{text or '':0<9}" for text in clock[3]], np.int64)
    stamps = ((hour * 60 + minute) * 60 + second_of_minute) * _SECOND + decimals
    remark, mark, order = "", marks[0], (first, second, last)
    since_first, dated = stamps - stamps[0], bool(first[0])
    # A date that ends in the year has the day or the month first. Only a point, or a number above
    # 12, tells which.
    if dated and len(first[0]) < 4:
        over = [mark == "." or any(int(day) > 12 for day in {*part}) for part in (first, second)]
        order = (last, second, first) if over[0] else (last, first, second)
        remark = f"dates are read as {f'dd{mark}mm' if over[0] else f'mm{mark}dd'}{mark}yyyy"
        dated = any(over)
        if not dated and len({*zip(*order, strict=True)}) > 1:
            return None, f"dates that may be dd{mark}mm{mark}yyyy or mm{mark}dd{mark}yyyy"
        if not dated:  # of one day both readings have the same steps
            remark = "the date is left out: is the day or the month first?"
    elif not dated:
        back = np.diff(stamps, prepend=stamps[:1]) < -_MIDNIGHT
        since_first += np.cumsum(back) * _DAY
        if back.any():
            remark = f"row {int(np.argmax(back)) + 1} is past midnight, on the next day"
    if not dated:
        return since_first.astype(_NS), remark
    # NumPy parses each date once: a recording has many rows and few days
    texts = [f"{year}-{month:0>2}-{day:0>2}" for year, month, day in zip(*order, strict=True)]
    dates, number = np.unique(texts, return_inverse=True)
    try:
        stamps += dates.astype(_NS).astype(np.int64)[number]
    except ValueError:
        return None, "dates that are in no calendar"
    zones = [60 * int(h or 0) + int(f"{(h or '0')[0]}{m or 0}")
             for h, m in zip(hours, minutes, strict=True)]  # fmt: skip
    return (stamps - np.array(zones, np.int64) * 60 * _SECOND).astype(_NS), remark


def serial_days(days: npt.NDArray[Any]) -> Any:
    """Converts the days since 1899 that spreadsheets count to stamps; None for other numbers."""
    # days are numbers of 2009 to 2064 that are too close to each other to be seconds
    likely = len(days) > 1 and bool(((days > _FIRST_DAY) & (days < _LAST_DAY)).all())
    if not likely or not 0 < np.median(np.diff(days)) < _LONGEST_STEP:
        return None
    stamps = np.rint((days - _DAYS_TO_1970) * _DAY).astype(np.int64)
    millis = (stamps + 500_000) // 1_000_000 * 1_000_000
    return (millis if np.abs(stamps - millis).max() < _ROUNDING else stamps).astype(_NS)
