"""A table of text: its lines, the cells of its rows, and its columns as numbers or texts."""

from __future__ import annotations

import csv
import io
import itertools
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from trajcli.errors import Fault, InputError
from trajcli.files.file_bytes import open_regular
from trajcli.files.text_cells import is_number, not_a_number

_LONGEST_LINE = 1 << 20
_BLOCK = 1 << 12
"""Rows that are made numbers of at once."""


class Form(NamedTuple):
    """How a table is written: lines above the first row, what divides columns, the names of these,
    and which are of ``texts``."""

    skipped: int
    delimiter: str
    columns: Sequence[str]
    texts: Collection[str]


def split(lines: Iterable[str], delimiter: str) -> Iterator[list[str]]:
    """The cells of lines."""
    return map(str.split, lines) if delimiter == " " else csv.reader(lines, delimiter=delimiter)


class TextFile:
    """An open table of text. ``line``: how many lines were read; ``values`` [columns, N], None
    until they are read, and ``texts``; ``faults`` of columns that are no numbers."""

    def __init__(self, path: Path) -> None:
        self._path, self._file = path, open(open_regular(path), "rb")  # noqa: SIM115
        self.line = 0
        self.values: Any = None
        self.texts: dict[str, list[str]] = {}
        self.faults: dict[str, Fault] = {}

    def lines(self) -> Iterator[str]:
        """The lines from the beginning; raises ValueError for one that is too long."""
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
        """How many lines there are."""
        self._file.seek(0)
        return 1 + sum(block.count(b"\n") for block in iter(lambda: self._file.read(1 << 20), b""))

    def read(self, form: Form) -> None:
        """Read all columns; raises InputError for a row of more or fewer cells."""
        self.texts = {name: [] for name in form.texts}
        self.values = self._at_once(form)
        if self.values is None:
            self.texts = {name: [] for name in form.texts}
            self.values = self._one_by_one(form)

    def _rows(self, form: Form) -> Iterator[str]:
        lines = itertools.islice(self.lines(), form.skipped, None)
        return (line for line in lines if line.strip() and not line.startswith("#"))

    def _at_once(self, form: Form) -> Any:
        """All columns; None where rows differ in length, or numbers are none."""

        def keep(cells: list[str]) -> Callable[[str], float]:
            return lambda cell: cells.append(cell) or 0.0  # type: ignore[func-returns-value]

        texts: Any = {form.columns.index(name): keep(cells) for name, cells in self.texts.items()}
        try:
            values = np.loadtxt(
                self._rows(form), delimiter=form.delimiter.strip(" ") or None, converters=texts,
                comments=None, quotechar='"', ndmin=2, encoding=None,
            )  # fmt: skip
        except ValueError:
            return None
        return values.T if values.shape[1] == len(form.columns) else None

    def _one_by_one(self, form: Form) -> Any:
        """The same, with the first cell of each column that is no number."""
        rows, parts = self._cells(form), []
        while block := list(itertools.islice(rows, _BLOCK)):
            lines, cells = zip(*block, strict=True)
            parts.append(np.zeros((len(form.columns), len(block))))
            for name, into, column in zip(form.columns, parts[-1], zip(*cells), strict=True):  # noqa: B905
                if name in form.texts:
                    self.texts[name] += column
                    continue
                try:
                    into[:] = list(map(float, column))
                except ValueError:
                    bad = next(k for k, cell in enumerate(column) if not is_number(cell))
                    place = f"{self._path}, line {lines[bad]}, column {name}"
                    fault = not_a_number(place, column[bad], self._path.name)
                    self.faults.setdefault(name, fault)
        return np.concatenate(parts, axis=1)

    def _cells(self, form: Form) -> Iterator[tuple[int, list[str]]]:
        """The cells of each row, and the number of the line on which it ends."""
        for cells in split(self._rows(form), form.delimiter):
            if len(cells) != len(form.columns):
                expected = f"{len(form.columns)} cells, as in the first row"
                what, place = "a row of another length", f"{self._path}, line {self.line}"
                raise InputError(Fault(what, place, expected, f"{len(cells)} cells"))
            yield self.line, cells

    def close(self) -> None:
        """Close it."""
        self._file.close()
        self.values = None
