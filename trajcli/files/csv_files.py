"""Reading CSV, TSV and other tables of text: numbers in columns, with a heading or without."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np

from trajcli.errors import Fault, InputError
from trajcli.files.arrays import Dataset
from trajcli.files.file_bytes import OpenFiles
from trajcli.files.tables import Table
from trajcli.files.text_cells import is_date, is_heading, is_text, values_of
from trajcli.files.text_table import Form, TextFile, split


class CsvFile(Table):
    """A table of text. Columns are divided by tabs, semicolons, commas or spaces; lines that begin
    with # are comments, of which the last before the numbers may be the heading.

    The file is read as a whole when the first numbers are needed, and kept until it is closed.
    Without a heading they are one array ``data``.
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

    def begin(self) -> TextFile:
        return TextFile(self.path)

    def _read_heading(self) -> None:
        stream, heading, self._skipped = self.opened().lines(), "", 0
        for line in stream:
            self._skipped += 1
            if line.strip() and not line.startswith("#"):
                break
            heading = line.removeprefix("#") if line.strip() else heading
        else:
            raise InputError(Fault("a table without rows", str(self.path), "numbers in columns"))
        self._delimiter = next((d for d in "\t;," if d in line), " ")
        first, second = self._cells(line), self._cells(next(stream, ""))
        if is_heading(first, second):
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
        if self.columns[0] == "" and is_date(first[0]):
            self.columns[0] = "index"  # as pandas writes one without a name
        cells = dict(zip(self.columns, first, strict=False))
        self._texts = {name for name, cell in cells.items() if is_text(cell) or not name}
        self.dates = [name for name, cell in cells.items() if is_date(cell)]

    def _cells(self, line: str) -> list[str]:
        return [cell.strip() for cell in next(split([line], self._delimiter), [])]

    def column(self, name: str) -> Dataset:
        where = f"{self.path}:{name}"
        text = self.safely(name, self._read)
        if name in text.faults:
            raise InputError(text.faults[name])
        if name in self._texts:
            values, about = values_of(text.texts[name])
            rows = lambda start, stop: values[start:stop]  # noqa: E731
            return Dataset(where, values.shape, values.dtype, rows, about, "text")
        place = self.columns.index(name)

        def read_rows(start: int, stop: int) -> Any:
            return self.safely(name, self._read).values[place, start:stop]

        numbers = text.values[place]
        return Dataset(where, numbers.shape, numbers.dtype, read_rows, storage="text")

    def _read(self) -> TextFile:
        """The file with all its columns."""
        text: TextFile = self.opened()
        if text.values is None:
            size = text.count_lines() * len(self.columns) * np.dtype(np.float64).itemsize
            self.pool.refuse_larger(size, str(self.path), "a binary format: trajcli export")
            self.pool.hold(self, size)
            text = self.opened()
            text.read(Form(self._skipped, self._delimiter, self.columns, self._texts))
        return text
