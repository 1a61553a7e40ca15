"""Cells of tables of text: numbers, dates, labels, headings."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from trajcli.errors import Fault

_DATE = re.compile(
    r"((?:19|20)\d\d-\d\d-\d\d(?:[ T]\d\d:\d\d(?::\d\d(?:\.\d{1,9})?)?)?)(?:Z|([+-]\d\d):?(\d\d))?"
)
_WHOLE = re.compile(r"[+-]?(?:\d{16,18}|[1-8]\d{18})")
"""Integers that float64 may not hold."""


def is_number(cell: str) -> bool:
    """Whether a cell is a number."""
    try:
        float(cell)
    except ValueError:
        return False
    return True


def is_date(cell: str) -> bool:
    """Whether a cell is a date of ISO 8601, with a time of day or without."""
    return _DATE.fullmatch(cell) is not None


def is_text(cell: str) -> bool:
    """Whether a column that begins with this cell is read as texts: of labels, of dates, and of
    integers that float64 does not hold. Those with a decimal comma are not."""
    number = is_number(cell.replace(",", ".", 1))
    return bool(cell) and (not number or _WHOLE.fullmatch(cell) is not None)


def is_heading(first: Sequence[str], second: Sequence[str]) -> bool:
    """Whether the first line names columns: by words, or by numbers as pandas does, 0, 1, 2 …,
    above values that are no whole numbers."""
    if not any(map(is_number, first)):
        return True
    whole = all(cell.isdecimal() for cell in first if is_number(cell))
    words = any(
        cell and not is_number(cell) and is_number(below)
        for cell, below in zip(first, second, strict=False)
    )
    labels = [cell for cell in first if cell]
    counted = labels == [str(i) for i in range(len(labels))]
    decimal = any(is_number(below) and not below.lstrip("-").isdecimal() for below in second)
    return whole and (words or (counted and decimal))


def values_of(texts: Sequence[str]) -> tuple[Any, dict[str, Any]]:
    """Texts as integers, dates as nanoseconds since 1970, others as they are; and their unit."""
    cells = [text.strip() for text in texts]
    if all(map(_WHOLE.fullmatch, cells)):
        return np.array(cells, np.int64), {}
    dates = [_DATE.fullmatch(cell) for cell in cells]
    if not all(dates):
        return np.array(texts), {}
    parts = [date.groups("0") for date in dates if date]
    moments = np.array([day for day, _, _ in parts], "datetime64[ns]").astype(np.int64)
    zones = [60 * int(hours) + int(f"{hours[0]}{minutes}") for _, hours, minutes in parts]
    return moments - np.array(zones, np.int64) * (60 * 10**9), {"units": "ns"}


def not_a_number(place: str, cell: str, file: str) -> Fault:
    """The fault of a cell of a column of numbers, and what makes it one."""
    hint, cell = "", cell.strip()
    if not cell:
        hint = f"pandas.read_csv('{file}').dropna().to_csv('filled.csv', index=False) leaves it out"
    elif is_number(cell.replace(",", ".", 1)):
        hint = (
            f"pandas.read_csv('{file}', sep=None, engine='python', decimal=',')"
            ".to_csv('points.csv', index=False) writes decimal points"
        )
    return Fault("not a number", place, "a number", repr(cell) if cell else "a blank cell", hint)
