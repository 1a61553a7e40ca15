"""Finds the heading of a table of text, its units and where its rows begin."""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from trajcli.errors import InputError
from trajcli.files._time_texts import moment_kind
from trajcli.files.quantities import role, split_unit
from trajcli.units import parse_time_unit, parse_unit

DECIMAL_COMMA = re.compile(r"[+-]?\d+,\d+(?:[eE][+-]?\d+)?")
"""A number with a decimal comma."""
# How many of the last lines show how wide rows are, and what columns hold.
_BODY = 16
_LONGEST_UNIT = 12


class Head(NamedTuple):
    """How a table begins."""

    delimiter: str
    names: dict[str, str] | None  # each with the name that it repeats, or ""; None without heading
    line: int  # the line of the heading
    skipped: int  # how many lines come before the rows
    rows: list[list[str]]
    trailing: bool  # whether a separator follows the last cell of a row
    remark: str  # which lines were left out
    degrees: bool  # whether the table says that its angles are in degrees


def read_head(lines: Sequence[str], skip: int, where: str) -> Head:
    """Finds the heading of a table, the first line with as many cells as its rows."""
    # the headers of OpenSim (.mot, .sto) end in a line of their own
    header_end = next((k for k, line in enumerate(lines, 1) if line.strip() == "endheader"), 0)
    begin = max(skip, header_end)
    separator = re.match(r'"?sep=(.)"?\s*$', lines[begin]) if lines[begin:] else None
    content = [(n, line) for n, line in enumerate(lines, 1)
                if n > begin + bool(separator) and line.strip() and line[0] != "#"]  # fmt: skip
    body = [line for _, line in content][len(content) // 2 if len(content) > 3 else 0 :]
    # a comma divides columns only where no semicolon does: it may then be a decimal comma
    delimiters = (d for d in "\t;," if 2 * sum(d in line for line in body) > len(body))
    delimiter = separator[1] if separator else next(delimiters, " ")
    ends, rows = _split_numbered(content, delimiter)
    last = rows[len(rows) // 2 :][-_BODY:]
    width = Counter(map(len, last)).most_common(1)[0][0] if last else 1
    trailing = width > 1 and not any(len(row) == width and row[-1] for row in rows)
    width -= trailing
    for row in rows:
        if len(row) == width + 1 and not row[-1]:
            row.pop()
    columns = zip(*(row for row in last if len(row) == width), strict=True)
    kinds = [max(("number", "moment", "text"), key=[*map(_kind, column)].count)
             for column in columns]  # fmt: skip
    # The rows begin in the first line of their kind of cells. The heading is one of the lines of
    # their width before it, or that line itself where it has numbers as names.
    first = next((k for k, row in enumerate(rows) if _is_row(row, kinds)), len(rows[:2]) // 2)
    top = first
    while top and len(rows[top - 1]) == width:
        top -= 1
    line, labels, units = 0, list[str](), list[str]()
    if top < first:
        # the last line before the rows may hold units
        *others, last_line = rows[top:first]
        known = (parse_unit(cell.strip("[]()")) or parse_time_unit(cell.strip("()"))
                 or re.fullmatch(r"\[.*\]|\(.*\)", cell) for cell in last_line if cell)  # fmt: skip
        if others and any(known) and max(map(len, last_line)) <= _LONGEST_UNIT:
            units = last_line
        numbers = range(top, first - bool(units))
        # TwinCAT's Scope has names in a line called Name; keys and values are two columns, too
        likely = [k for k in numbers if rows[k][0] == "Name"]
        likely += [k for k in numbers if any(role(cell) == "time" for cell in rows[k])]
        number = likely[0] if likely else numbers[-1 if len(last_line) == 2 else 0]
        line, labels = ends[number], rows[number]
    elif rows[first:] and "moment" not in kinds and _is_heading(*rows[first : first + 2]):
        line, labels, first = ends[first], rows[first], first + 1
    if first == len(rows):
        raise InputError("a table without rows", where=where, expected="numbers in columns")
    if not line and first and len(rows[first - 1]) > 1:
        raise InputError(
            "a heading of another length than the rows",
            where=f"{where}, line {ends[first - 1]}",
            expected=f"{width} cells, as in line {ends[first]}",
            found=f"{len(rows[first - 1])} cells",
            hint=f"--skip-rows {ends[first - 1]} reads the rows without a heading",
        )
    skipped, remark = ends[first - 1] if first else begin, ""
    if first > (line > 0) + bool(units):
        remark = f"line {line} is the heading" if line else "there is no heading"
        remark += f", and rows begin in line {ends[first]}"
    comments = [text[1:] for text in lines[begin : ends[first] - 1] if re.match(r"#.*\S", text)]
    if comments and not line:
        labels = _split_numbered([(0, comments[-1])], delimiter)[1][0]
        labels = labels[: width if trailing else None]
    degrees = any(re.match(r"\s*inDegrees\s*=\s*yes", text, re.I) for text in lines[:header_end])
    names = _name_columns(labels, units) if len(labels) == width else None
    rows = [row for row in rows[first:] if len(row) == width]
    return Head(delimiter, names, line, skipped, rows, trailing, remark, degrees)


def split_cells(lines: Iterable[str], delimiter: str) -> Iterator[list[str]]:
    if delimiter == " ":
        return map(str.split, lines)
    return csv.reader(lines, delimiter=delimiter, skipinitialspace=True)


def is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _split_numbered(
    numbered: Sequence[tuple[int, str]], delimiter: str
) -> tuple[list[int], list[list[str]]]:
    """Splits lines into rows of cells, each with the number of the line on which it ends."""
    reader, ends, rows = split_cells((x for _, x in numbered), delimiter), [], []
    # the cell of a csv.reader may be quoted and go on in the next line
    for k, cells in enumerate(reader, 1):
        ends.append(numbered[getattr(reader, "line_num", k) - 1][0])
        rows.append([cell.strip() for cell in cells])
    return ends, rows


def _kind(cell: str) -> str:
    if not cell or is_number(cell) or DECIMAL_COMMA.fullmatch(cell):
        return "number" if cell else ""
    return "moment" if moment_kind(cell) else "text"


def _is_row(row: Sequence[str], kinds: Sequence[str]) -> bool:
    # half of the cells of a row, and the first, are of the kind of their column
    pairs = [(_kind(cell), kind) for cell, kind in zip(row, kinds, strict=False) if kind != "text"]
    matches = [cell in ("", kind) for cell, kind in pairs]
    usual = len(row) == len(kinds) and any(cell for cell, _ in pairs)
    return usual and matches[0] and 2 * sum(matches) >= len(matches)


def _is_heading(first: Sequence[str], second: Sequence[str] = ()) -> bool:
    # names are words, or whole numbers as pandas writes them, 0, 1, …, above values with decimals
    if not any(map(is_number, first)):
        return True
    whole = all(cell.isdecimal() for cell in first if is_number(cell))
    pairs = zip(first, second, strict=False)
    words = any(cell and not is_number(cell) and is_number(below) for cell, below in pairs)
    labels = [cell for cell in first if cell]
    counted = labels == [str(i) for i in range(len(labels))]
    decimal = any(is_number(below) and not below.lstrip("-").isdecimal() for below in second)
    return whole and (words or (counted and decimal))


def _name_columns(names: Sequence[str], units: Sequence[str]) -> dict[str, str]:
    """Names columns, with their units; each has the name that it repeats, or ""."""
    # pandas writes an index without a name, and calls the second of two columns q ``q.1``. The
    # first column of each group of TwinCAT's Scope, called Name, has its times in ms.
    known: dict[str, str] = {}
    for k, label in enumerate(names):
        label = "Time [ms]" if label == names[0] == "Name" and names[2:] else label
        label = f"data{label}" if label.isdecimal() else label or (f"column{k}" if k else "index")
        stem, unit = split_unit(label)
        suffix = label[len(stem) :]
        if units and not unit and (text := units[k].strip("[]()- ")):
            suffix = f" [{text}]"
        repeated = (f"{stem}.{n}{suffix}" for n in range(1, len(names)))
        name = next(name for name in (stem + suffix, *repeated) if name not in known)
        known[name] = stem + suffix if names[k] else ""
    return known
