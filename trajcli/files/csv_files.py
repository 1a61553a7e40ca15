"""Reading CSV, TSV and other tables of text: numbers in columns, with a heading or without."""

from __future__ import annotations

import csv
import io
import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from trajcli.errors import Fault, InputError
from trajcli.files.arrays import Dataset
from trajcli.files.file_bytes import OpenFiles, open_regular
from trajcli.files.tables import Table

_LONGEST_LINE = 1 << 20
_BLOCK = 1 << 12
"""Rows that are converted to numbers at once."""
_DATE = re.compile(
    r"((?:19|20)\d\d-\d\d-\d\d(?:[ T]\d\d:\d\d(?::\d\d(?:\.\d{1,9})?)?)?)(?:Z|([+-]\d\d):?(\d\d))?"
)
"""A date of ISO 8601, with a time of day or without."""
_WHOLE = re.compile(r"[+-]?(?:\d{16,18}|[1-8]\d{18})")
"""Integers that float64 may not hold."""


class CsvFile(Table):
    """A table of text. Columns are divided by tabs, semicolons, commas or spaces; lines that begin
    with # are comments, of which the last before the numbers may be the heading.

    The file is read as a whole when the first numbers are needed, and kept until it is closed.
    Without a heading the columns are one array ``data``.
    """

    failures = (OSError, ValueError, csv.Error, MemoryError)
    expected = "a table of text"

    def __init__(self, path: Path, pool: OpenFiles | None = None) -> None:
        super().__init__(path, "csv", pool)
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
        self._delimiter = next((d for d in "\t;," if d in line), " ")
        first, second = self._cells(line), self._cells(next(stream, ""))
        if _is_heading(first, second):
            self.columns = [f"data{cell}" if cell.isdecimal() else cell for cell in first]
            first = second
            if not first:
                raise InputError("a table without rows", where=str(self.path), expected="numbers")
        else:
            self._skipped -= 1
            columns = self._cells(heading)
            named = len(columns) == len(first)
            self.columns = columns if named else [f"data{i}" for i in range(len(first))]
        repeated = [name for name in self.columns if self.columns.count(name) > 1]
        if repeated:
            raise InputError(
                "several columns of one name",
                where=f"{self.path}: {repeated[0]}",
                expected="names that differ",
            )
        if self.columns[0] == "" and _DATE.fullmatch(first[0]):
            self.columns[0] = "index"  # as pandas writes one without a name
        cells = dict(zip(self.columns, first, strict=False))
        self._texts = {name for name, cell in cells.items() if _is_text(cell) or not name}
        self.dates = [name for name, cell in cells.items() if _DATE.fullmatch(cell)]

    def _cells(self, line: str) -> list[str]:
        return [cell.strip() for cell in next(_split([line], self._delimiter), [])]

    def column(self, name: str) -> Dataset:
        where, number = f"{self.path}:{name}", self.columns.index(name)
        text = self.safely(name, self._read)
        if name in text.faults:
            raise InputError(text.faults[name])
        if name in self._texts:
            values, attributes = _values_of(text.texts[number])
            rows = lambda start, stop: values[start:stop]  # noqa: E731
            return Dataset(where, values.shape, values.dtype, rows, attributes, "text")

        def read_rows(start: int, stop: int) -> Any:
            return self.safely(name, self._read).values[number, start:stop]

        numbers = text.values[number]
        return Dataset(where, numbers.shape, numbers.dtype, read_rows, storage="text")

    def _read(self) -> _Text:
        """Returns the open file after reading all its columns.

        Raises InputError for a row with more or fewer cells than there are columns.
        """
        text: _Text = self.opened()
        if text.values is None:
            size = text.count_lines() * len(self.columns) * np.dtype(np.float64).itemsize
            self.pool.refuse_larger(size, str(self.path), "a binary format: trajcli export")
            self.pool.hold(self, size)
            text = self.opened()
            text.values = self._read_fast(text)
            if text.values is None:
                text.values = self._read_blocks(text)
        return text

    def _rows(self, text: _Text) -> Iterator[str]:
        text.texts = {self.columns.index(name): [] for name in self._texts}
        lines = itertools.islice(text.lines(), self._skipped, None)
        return (line for line in lines if line.strip() and not line.startswith("#"))

    def _read_fast(self, text: _Text) -> Any:
        """Reads all columns [columns, N]; None where rows differ in length, or cells are not
        numbers."""

        def keep(cells: list[str]) -> Callable[[str], float]:
            return lambda cell: cells.append(cell) or 0.0  # type: ignore[func-returns-value]

        rows = self._rows(text)
        converters: Any = {number: keep(cells) for number, cells in text.texts.items()}
        try:
            values = np.loadtxt(
                rows, delimiter=self._delimiter.strip(" ") or None, converters=converters,
                comments=None, quotechar='"', ndmin=2, encoding=None,
            )  # fmt: skip
        except ValueError:
            return None
        return values.T if values.shape[1] == len(self.columns) else None

    def _read_blocks(self, text: _Text) -> Any:
        """Reads all columns [columns, N] and notes the first cell of each that is not a number."""
        rows, parts, count = self._numbered_rows(text), [], len(self.columns)
        while block := list(itertools.islice(rows, _BLOCK)):
            lines, cells = zip(*block, strict=True)
            parts.append(np.zeros((count, len(block))))
            for number, column in enumerate(zip(*cells, strict=True)):
                if number in text.texts:
                    text.texts[number] += column
                    continue
                try:
                    parts[-1][number] = list(map(float, column))
                except ValueError:
                    bad, name = list(map(_is_number, column)).index(False), self.columns[number]
                    where = f"{self.path}, line {lines[bad]}, column {name}"
                    fault = _not_a_number(where, column[bad], self.path.name)
                    text.faults.setdefault(name, fault)
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
    """An open table of text.

    ``line`` counts the lines read so far. ``values`` [columns, N] is None until they are read,
    then ``texts`` has the cells of columns of texts by number, ``faults`` by name the columns that
    are not numbers.
    """

    def __init__(self, path: Path) -> None:
        self._file = open(open_regular(path), "rb")  # noqa: SIM115
        self.line = 0
        self.values: Any = None
        self.texts: dict[int, list[str]] = {}
        self.faults: dict[str, Fault] = {}

    def lines(self) -> Iterator[str]:
        """Yields the lines from the beginning; raises ValueError for one that is too long."""
        self._file.seek(0)
        self.line = 0
        text = io.TextIOWrapper(self._file, "utf-8-sig", newline="")
        try:
            while line := text.readline(_LONGEST_LINE):
                if len(line) == _LONGEST_LINE:
                    raise ValueError(f"a line of more than {_LONGEST_LINE} characters")
                self.line += 1
                yield line
        finally:
            if not self._file.closed:
                text.detach()

    def count_lines(self) -> int:
        """Returns how many lines there are."""
        self._file.seek(0)
        return 1 + sum(block.count(b"\n") for block in iter(lambda: self._file.read(1 << 20), b""))

    def close(self) -> None:
        self._file.close()
        self.values = None


def _split(lines: Iterable[str], delimiter: str) -> Iterator[list[str]]:
    """Yields the cells of each line."""
    return map(str.split, lines) if delimiter == " " else csv.reader(lines, delimiter=delimiter)


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _is_text(cell: str) -> bool:
    """Whether a column that begins with this cell is read as texts: labels, dates, and integers
    that float64 does not hold. Numbers with a decimal comma are not."""
    number = _is_number(cell.replace(",", ".", 1))
    return bool(cell) and (not number or _WHOLE.fullmatch(cell) is not None)


def _is_heading(first: Sequence[str], second: Sequence[str]) -> bool:
    """Whether the first line names columns: by words, or by numbers as pandas does, 0, 1, 2 …,
    above values that are not whole numbers."""
    if not any(map(_is_number, first)):
        return True
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
    """Converts texts to integers, or dates to nanoseconds since 1970, with their unit; leaves
    other texts as they are."""
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


def _not_a_number(where: str, cell: str, file: str) -> Fault:
    hint, cell = "", cell.strip()
    if not cell:
        hint = f"pandas.read_csv('{file}').dropna().to_csv('filled.csv', index=False) leaves it out"
    elif _is_number(cell.replace(",", ".", 1)):
        hint = (
            f"pandas.read_csv('{file}', sep=None, engine='python', decimal=',')"
            ".to_csv('points.csv', index=False) writes decimal points"
        )
    return Fault(
        "not a number",
        where=where,
        expected="a number",
        found=repr(cell) if cell else "a blank cell",
        hint=hint,
    )
