"""Reading CSV, TSV and other tables of text: numbers in columns, with a heading or without."""

from __future__ import annotations

import codecs
import contextlib
import csv
import itertools
import json
import math
import os
import re
import shlex
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from trajcli.errors import Fault, InputError, Note
from trajcli.files._tables import Table
from trajcli.files.catalogue import Dataset, OpenFiles
from trajcli.files.file_bytes import open_regular
from trajcli.memory import CSV_ROWS

_LONGEST_LINE = 1 << 20
# How many rows are read to find out what the columns hold.
_SAMPLE = 64
# The bytes at the end that tell whether a file is cut, and the lines that decimals are told by.
_TAIL, _LEAST = 1 << 14, 10
# A date of ISO 8601, with a time of day or without.
_DATE = re.compile(
    r"((?:19|20)\d\d-\d\d-\d\d(?:[ T]\d\d:\d\d(?::\d\d(?:\.\d{1,9})?)?)?)(?:Z|([+-]\d\d):?(\d\d))?"
)
# Integers that float64 may not hold.
_WHOLE = re.compile(r"[+-]?(?:\d{16,18}|[1-8]\d{18})")
_DECIMAL_COMMA = re.compile(r"[+-]?\d+,\d+(?:[eE][+-]?\d+)?")
# How many median steps a step of times may be, how far from 1 the norm of a quaternion, and which
# share of the steps of a TUM trajectory goes forward.
_UNEVEN, _NEAR, _MOSTLY = 5.0, 1e-2, 0.9
# The columns of a TUM trajectory, which may have no heading.
_TUM = ["timestamp", "tx", "ty", "tz", "qx", "qy", "qz", "qw"]


class CsvFile(Table):
    """A table of text. Columns are divided by tabs, semicolons, commas or spaces; lines that begin
    with # are comments, of which the last before the numbers may be the heading. Blank cells are
    NaN.

    The file is read as a whole when the first numbers are needed, and kept until it is closed.
    Without a heading the columns are one array ``data``.
    """

    failures = (OSError, ValueError, csv.Error, MemoryError)
    expected = "a table of text"

    def __init__(self, path: Path, pool: OpenFiles | None = None) -> None:
        super().__init__(path, "csv", pool)
        self._time: str | None = None
        self._cut = 0
        try:
            self.safely("", self._read_heading)
        except BaseException:
            self.close()
            raise

    def begin(self) -> _Text:
        return _Text(self.path)

    def _read_heading(self) -> None:
        stream, heading, self._skipped = self.opened().lines(), "", 0
        for line in stream:
            self._skipped += 1
            if line.strip() and not line.startswith("#"):
                break
            heading = line.removeprefix("#") if line.strip() else heading
        else:
            raise InputError(
                "a table without rows", where=str(self.path), expected="numbers in columns"
            )
        # a comma divides columns only where no semicolon does: it may then be a decimal comma
        self._delimiter = next((d for d in "\t;," if d in line), " ")
        sample = _split([line, *itertools.islice(_data(stream), _SAMPLE)], self._delimiter)
        rows = [[cell.strip() for cell in row] for row in sample]
        self._comma = any(_DECIMAL_COMMA.fullmatch(cell) for row in rows for cell in row)
        if self._comma:
            self.remarks = [Note(f"{self.path}: decimal commas are read as points")]
            rows = [[cell.replace(",", ".") for cell in row] for row in rows]
        first, second = rows[0], rows[1] if rows[1:] else []
        if headed := _is_heading(first, second):
            self._name_columns([f"data{cell}" if cell.isdecimal() else cell for cell in first])
            rows = rows[1:]
            if not rows:
                raise InputError("a table without rows", where=str(self.path), expected="numbers")
        else:
            self._skipped -= 1
            self.columns = [f"data{i}" for i in range(len(first))]
            names = next(_split([heading], self._delimiter), [])
            if headed := len(names) == len(first):
                self._name_columns([name.strip() for name in names])
        cells = list(zip(*(row for row in rows if len(row) == len(self.columns)), strict=True))
        columns = dict(zip(self.columns, cells, strict=False))
        self._texts = {name for name, column in columns.items() if _is_text(column)}
        numbers = {name: column for name, column in columns.items() if name not in self._texts}
        self.fractional = [name for name, column in numbers.items() if any(map(_is_part, column))]
        self.dates = [name for name, column in columns.items() if _DATE.fullmatch(column[0])]
        if not self._texts and (not headed or first[0] == ""):
            self._find_time(np.array([[float(cell or "nan") for cell in row] for row in cells]))

    def _name_columns(self, names: list[str]) -> None:
        """Sets the names of the columns; pandas writes an index without one."""
        self.columns = [name or (f"column{k}" if k else "index") for k, name in enumerate(names)]
        if repeated := [name for name in self.columns if self.columns.count(name) > 1]:
            raise InputError(
                "several columns of one name",
                where=f"{self.path}: {repeated[0]}",
                expected="names that differ",
            )

    def _find_time(self, sample: npt.NDArray[np.float64]) -> None:
        """Finds the time in a table [columns, rows] that does not name it: the first column, if it
        increases evenly, does not count rows, is no position before a quaternion, and no option
        says the time. A TUM trajectory is recognised by its unit quaternions."""
        headless, steps = self.columns[0] == "data0", np.diff(sample[0])
        steps = steps[np.isfinite(steps)]
        if len(steps) < 2:
            return
        forward = (steps >= 0).mean() > _MOSTLY
        if headless and forward and len(sample) == len(_TUM) and _near_one(sample[4:]):
            self.columns, listed = list(_TUM), " ".join(_TUM)
            remark = f"{self.path} has no heading: {listed}, as in a TUM trajectory"
            self.remarks = [*self.remarks, Note(remark)]
        elif not (steps > 0).all() or steps.max() > _UNEVEN * np.median(steps):
            return
        elif (steps == 1).all() and sample[0, 0] in (0, 1):
            if (sample[1:] != np.floor(sample[1:])).any():
                self.columns = ["index", *self.columns[1:]]
        elif not headless or not (self.pool.clock or _near_one(sample[3:7])):
            self._time = self.columns[0]
            if headless:
                found = "its first column, which increases, is the time"
                self.remarks = [*self.remarks, Note(f"{self.path} has no heading: {found}")]

    @cached_property
    def time_column(self) -> str | None:
        return super().time_column or self._time

    def rows_with(self, column: str, value: object) -> str:
        shown = json.dumps(value) if isinstance(value, str) else f"{value:g}"
        test = f"NR == 1 || ${self.columns.index(column) + 1} == {shown}"
        out = self.path.with_stem(f"{self.path.stem}_{re.sub('[^A-Za-z0-9]', '_', f'{value}')}")
        words = ["awk", "-F", self._delimiter, test, str(self.path)]
        return f"{shlex.join(words)} > {shlex.quote(str(out))}"

    def numeric(self, name: str) -> bool:
        return name not in self._texts

    def column(self, name: str) -> Dataset:
        number, text = self.columns.index(name), self.safely(name, self._read)
        if name in text.faults:
            raise InputError(text.faults[name])
        if name in self._texts:
            values, attributes = _values_of(text.texts[number])
            rows = lambda start, stop: values[start:stop]  # noqa: E731
            return self.described(name, values.shape, values.dtype, rows, attributes, "text")
        read = lambda start, stop: self._read().values[number, start:stop]  # noqa: E731
        numbers = text.values[number]
        return self.described(name, numbers.shape, numbers.dtype, read, storage="text")

    def _read(self) -> _Text:
        """Returns the open file after reading all its columns."""
        text: _Text = self.opened()
        if text.values is None:
            count = text.count_lines()
            if self._is_cut(text.tail()):
                self._cut = count
                cut = f"{self.path} breaks off in line {count}, which is left out"
                self.remarks = [*self.remarks, cut]
            size, smaller = 8 * count * len(self.columns), "DataFrame.to_parquet writes"
            self.pool.refuse_larger(size, str(self.path), f"a binary file, as {smaller}")
            self.pool.hold(self, size)
            text = self.opened()
            if not (self._texts or self._comma):
                with contextlib.suppress(ValueError):  # cells that are no numbers, uneven rows
                    values = np.loadtxt(
                        self._rows(text), delimiter=self._delimiter.strip(" ") or None,
                        comments=None, quotechar='"', ndmin=2, encoding=None,
                    )  # fmt: skip
                    text.values = values.T if values.shape[1] == len(self.columns) else None
            if text.values is None:
                text.values = self._read_cells(text)
        return text

    def _rows(self, text: _Text) -> Iterator[str]:
        rows = _data(itertools.islice(text.lines(), self._skipped, None))
        return (row for row in rows if text.line != self._cut)

    def _is_cut(self, tail: str) -> bool:
        """Whether a file that ends so breaks off within a line: it has fewer cells than the lines
        before or, in the last one, fewer decimals than all of them."""
        lines = tail.split("\n")[1:]
        if len(lines) < 2 or not lines[-1].strip() or lines[-1].startswith("#"):
            return False
        *before, last = _split(_data(lines[-_LEAST - 1 :]), self._delimiter)
        decimals = [len(row[-1].strip().partition(".")[2]) for row in (*before, last) if row]
        shorter = len(set(decimals[:-1])) == 1 and 2 < decimals[0] > decimals[-1]
        return len(last) < len(self.columns) or (shorter and len(before) >= _LEAST)

    def _read_cells(self, text: _Text) -> Any:
        """Reads all columns [columns, N], and notes the first cell of each that is not a number."""
        parts, texts = [], [self.columns.index(name) for name in self._texts]
        text.texts = {number: [] for number in texts}
        rows = self._numbered_rows(text)
        while block := list(itertools.islice(rows, CSV_ROWS)):
            lines, cells = zip(*block, strict=True)
            parts.append(np.zeros((len(self.columns), len(block))))
            for number, column in enumerate(zip(*cells, strict=True)):
                if number in text.texts:
                    text.texts[number] += column
                    continue
                if self._comma:
                    column = tuple(cell.replace(",", ".") for cell in column)
                try:
                    parts[-1][number] = [float(cell.strip() or "nan") for cell in column]
                except ValueError:
                    bad = next(k for k, cell in enumerate(column) if not _is_number(cell or "nan"))
                    fault = Fault(
                        "not a number",
                        where=f"{self.path}, line {lines[bad]}, column {self.columns[number]}",
                        expected="a number, or a blank cell",
                        found=repr(column[bad].strip()),
                        hint=f"name other columns: {self.typed('A,B')}",
                    )
                    text.faults.setdefault(self.columns[number], fault)
        return np.concatenate(parts, axis=1)

    def _numbered_rows(self, text: _Text) -> Iterator[tuple[int, list[str]]]:
        """Yields the cells of each row with the number of the line on which it ends."""
        for cells in _split(self._rows(text), self._delimiter):
            if len(cells) != len(self.columns):
                raise InputError(
                    "a row of another length",
                    where=f"{self.path}, line {text.line}",
                    expected=f"{len(self.columns)} cells, as in the first row",
                    found=f"{len(cells)} cells",
                )
            yield text.line, cells


class _Text:
    """An open table of text. ``line`` counts the lines read so far. ``values`` [columns, N] is None
    until they are read, then ``texts`` has the cells of columns of texts by number, ``faults`` by
    name the columns that are not numbers."""

    def __init__(self, path: Path) -> None:
        self._descriptor = open_regular(path)
        self.line = 0
        self.values: Any = None
        self.texts: dict[int, list[str]] = {}
        self.faults: dict[str, Fault] = {}
        self._encoding = _encoding(os.pread(self._descriptor, _LONGEST_LINE, 0))

    def lines(self) -> Iterator[str]:
        """Yields the lines from the beginning; raises ValueError for one that is too long."""
        os.lseek(self._descriptor, 0, os.SEEK_SET)
        self.line = 0
        with open(self._descriptor, encoding=self._encoding, newline="", closefd=False) as text:
            while line := text.readline(_LONGEST_LINE):
                if len(line) == _LONGEST_LINE:
                    raise ValueError(f"a line of more than {_LONGEST_LINE} characters")
                self.line += 1
                yield line

    def tail(self) -> str:
        """Returns the end of the file."""
        begin = max(os.fstat(self._descriptor).st_size - _TAIL, 0)
        end = os.pread(self._descriptor, _TAIL, begin).decode(self._encoding, "replace")
        return end if begin else f"\n{end}"

    def count_lines(self) -> int:
        """Returns how many lines there are."""
        os.lseek(self._descriptor, 0, os.SEEK_SET)
        with open(self._descriptor, "rb", closefd=False) as file:
            return 1 + sum(block.count(b"\n") for block in iter(lambda: file.read(1 << 20), b""))

    def close(self) -> None:
        os.close(self._descriptor)
        self.values = None


def _encoding(head: bytes) -> str:
    """Returns the encoding of a text: UTF-8, UTF-16 by its mark, or else Windows-1252."""
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    try:
        codecs.getincrementaldecoder("utf-8")().decode(head)
    except UnicodeDecodeError:
        return "cp1252"
    return "utf-8-sig"


def _data(lines: Iterable[str]) -> Iterator[str]:
    """Yields the lines that are neither blank nor comments."""
    return (line for line in lines if line.strip() and not line.startswith("#"))


def _split(lines: Iterable[str], delimiter: str) -> Iterator[list[str]]:
    """Yields the cells of each line."""
    if delimiter == " ":
        return map(str.split, lines)
    return csv.reader(lines, delimiter=delimiter, skipinitialspace=True)


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _is_part(cell: str) -> bool:
    """Whether a cell is a number that is not whole."""
    return _is_number(cell) and math.isfinite(float(cell)) and not float(cell).is_integer()


def _is_text(column: Sequence[str]) -> bool:
    """Whether a column that begins with these cells is read as texts: labels, dates, integers that
    float64 does not hold, and blank cells alone."""
    cells = [cell for cell in column if cell]
    return not cells or not _is_number(cells[0]) or any(map(_WHOLE.fullmatch, cells))


def _near_one(columns: npt.NDArray[np.float64]) -> bool:
    """Whether four columns [4, rows] have norm 1, as a quaternion, in all rows without NaN."""
    norms = np.linalg.norm(columns, axis=0)
    norms = norms[np.isfinite(norms)]
    return len(columns) == 4 and len(norms) > 1 and bool((np.abs(norms - 1) < _NEAR).all())


def _is_heading(first: Sequence[str], second: Sequence[str]) -> bool:
    """Whether the first line names columns: by words, or by numbers as pandas does, 0, 1, 2 …,
    above values that are not whole numbers."""
    if not any(map(_is_number, first)):
        return True
    # names may be numbers, but then whole ones
    whole = all(cell.isdecimal() for cell in first if _is_number(cell))
    words = any(
        cell and not _is_number(cell) and _is_number(below)
        for cell, below in zip(first, second, strict=False)
    )
    labels = [cell for cell in first if cell]
    counted = labels == [str(i) for i in range(len(labels))]
    decimal = any(_is_number(below) and not below.lstrip("-").isdecimal() for below in second)
    return whole and (words or (counted and decimal))


def _values_of(texts: Sequence[str]) -> tuple[Any, dict[str, Any]]:
    """Converts texts to integers, to nanoseconds since 1970 of dates, with their unit, or to
    numbers where none is another; leaves other texts as they are."""
    cells = [text.strip() for text in texts]
    if all(map(_WHOLE.fullmatch, cells)):
        return np.array(cells, np.int64), {}
    dates = [_DATE.fullmatch(cell) for cell in cells]
    if not all(dates):
        numbers = any(cells) and all(_is_number(cell or "nan") for cell in cells)
        values = np.array([cell or "nan" for cell in cells], float) if numbers else np.array(texts)
        return values, {}
    parts = [date.groups("0") for date in dates if date]
    moments = np.array([day for day, _, _ in parts], "datetime64[ns]").astype(np.int64)
    zones = [60 * int(hours) + int(f"{hours[0]}{minutes}") for _, hours, minutes in parts]
    return moments - np.array(zones, np.int64) * (60 * 10**9), {"units": "ns"}
