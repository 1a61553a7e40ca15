"""Reading CSV, TSV and other tables of text: numbers in columns, with a heading or without."""

from __future__ import annotations

import csv
import io
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from trajcli.errors import Fault, InputError
from trajcli.files.arrays import Dataset
from trajcli.files.file_bytes import OpenFiles, open_regular
from trajcli.files.tables import Table

_LONGEST_LINE = 1 << 20
_NUMBERS = np.dtype(np.float64)


class CsvFile(Table):
    """A table of text. Columns are divided by tabs, commas, semicolons or spaces; lines that begin
    with # are comments, of which the last before the numbers may be the heading.

    The numbers are read as a whole when the first are needed, and kept until the file is closed.
    Without a heading they are one array ``data``.
    """

    failures = (OSError, ValueError, IndexError, csv.Error, MemoryError)
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
            raise InputError(Fault("a table without rows", str(self.path), "numbers in columns"))
        self._delimiter = next((d for d in "\t,;" if d in line), " ")
        first, second = self._cells(line), self._cells(next(stream, ""))
        if _is_heading(first, second):
            self.columns = [f"data{cell}" if cell.isdecimal() else cell for cell in first]
            first = second
            if not first:
                raise InputError(Fault("a table without rows", str(self.path), "numbers"))
        else:
            self._skipped -= 1
            columns = self._cells(heading)
            named = len(columns) == len(first)
            self.columns = columns if named else [f"data{i}" for i in range(len(first))]
        repeated = [name for name in self.columns if self.columns.count(name) > 1]
        if repeated:
            what, where = "several columns of one name", f"{self.path}: {repeated[0]}"
            raise InputError(Fault(what, where, "names that differ"))
        cells = itertools.zip_longest(self.columns, first, fillvalue="")
        self._numeric = [name for name, cell in cells if name and (not cell or _is_number(cell))]

    def _cells(self, line: str) -> list[str]:
        if self._delimiter == " ":
            return line.split()
        cells = next(csv.reader([line], delimiter=self._delimiter), [])
        return [cell.strip() for cell in cells]

    def column(self, name: str) -> Dataset:
        where = f"{self.path}:{name}"
        if name not in self._numeric:
            texts = self.safely(name, lambda: self._texts(name))
            rows = lambda start, stop: texts[start:stop]  # noqa: E731
            return Dataset(where, texts.shape, texts.dtype, rows, storage="text")
        place = self._numeric.index(name)
        values = self.safely("", self._values)

        def read_rows(start: int, stop: int) -> Any:
            return self.safely("", self._values)[start:stop, place]

        return Dataset(where, values.shape[:1], _NUMBERS, read_rows, storage="text")

    def _texts(self, name: str) -> Any:
        """The cells of a column [N]."""
        place = self.columns.index(name)
        text = itertools.islice(self.opened().lines(), self._skipped, None)
        lines = (line for line in text if line.strip() and not line.startswith("#"))
        rows = (
            (line.split() for line in lines)
            if self._delimiter == " "
            else csv.reader(lines, delimiter=self._delimiter)
        )
        texts = []
        for cells in rows:
            if len(cells) != len(self.columns):
                raise ValueError(f"a row of {len(cells)} cells, not {len(self.columns)}")
            texts.append(cells[place])
        return np.array(texts)

    def _values(self) -> npt.NDArray[np.float64]:
        """The numbers of all rows [N, columns]."""
        handle: _Text = self.opened()
        if handle.values is None:
            size = handle.count_lines() * len(self._numeric) * _NUMBERS.itemsize
            self.pool.refuse_larger(size, str(self.path), "a binary format: trajcli export")
            self.pool.hold(self, size)
            handle = self.opened()
            places = [self.columns.index(name) for name in self._numeric]
            values = np.loadtxt(
                handle.lines(),
                delimiter=None if self._delimiter == " " else self._delimiter,
                skiprows=self._skipped,
                usecols=places if len(places) < len(self.columns) else None,
                quotechar='"',
                ndmin=2,
            )
            if values.shape[1] != len(self._numeric):
                raise ValueError(f"rows of {values.shape[1]} cells, not {len(self.columns)}")
            handle.values = values
        return handle.values


class _Text:
    """An open file of text, and the numbers that were read of it."""

    def __init__(self, path: Path) -> None:
        self._file = open(open_regular(path), "rb")  # noqa: SIM115
        self.values: npt.NDArray[np.float64] | None = None

    def lines(self) -> Iterator[str]:
        """The lines from the beginning; raises ValueError for one that is too long."""
        self._file.seek(0)
        text = io.TextIOWrapper(self._file, "utf-8-sig", newline="")
        try:
            while line := text.readline(_LONGEST_LINE):
                if len(line) == _LONGEST_LINE:
                    raise ValueError(f"a line of more than {_LONGEST_LINE} characters")
                yield line
        finally:
            if not self._file.closed:
                text.detach()

    def count_lines(self) -> int:
        """How many lines there are."""
        self._file.seek(0)
        return 1 + sum(block.count(b"\n") for block in iter(lambda: self._file.read(1 << 20), b""))

    def close(self) -> None:
        """Close it."""
        self._file.close()
        self.values = None


def _is_heading(first: list[str], second: list[str]) -> bool:
    """Whether the first line names columns: by words, or by numbers as pandas does, 0, 1, 2 …,
    above values that are no whole numbers."""
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


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True
