"""Reads CSV, TSV and other tables of text: numbers in columns, with a heading or without."""

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
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from trajcli.errors import Fault, InputError, Note
from trajcli.files._headings import DECIMAL_COMMA, is_number, read_head, split_cells
from trajcli.files._tables import Table
from trajcli.files._time_texts import FORMS, moment_kind, moments, serial_days
from trajcli.files.catalogue import Dataset, OpenFiles
from trajcli.files.file_bytes import open_regular
from trajcli.files.quantities import split_unit
from trajcli.kernels.program import Floats
from trajcli.memory import CSV_ROWS

_LONGEST_LINE = 1 << 20
# How many lines are read to find the heading, also among comments at most, and how many rows to
# find what the columns hold.
_HEAD_LINES, _COMMENT_LINES, _SAMPLE_ROWS = 256, 1 << 14, 64
# The bytes at the end that show whether a file is cut, and the lines that show its decimals.
_TAIL_BYTES, _TAIL_ROWS = 1 << 14, 10
_LONG_INTEGER = re.compile(r"[+-]?(?:\d{16,18}|[1-8]\d{18})")
# How many median steps a step of times may be, how far from 1 the norm of a quaternion, and which
# share of the steps of a TUM trajectory goes forward.
_LONGEST_STEP, _NORM_ERROR, _FORWARD_SHARE = 5.0, 1e-2, 0.9
_TUM = ["timestamp", *(_POSE := ["tx", "ty", "tz", "qx", "qy", "qz", "qw"])]
_JOINT_STATE = ("position", "velocity", "effort")


class _Text:
    """An open table of text."""

    def __init__(self, path: Path) -> None:
        self.descriptor = open_regular(path)
        self.line = 0  # how many lines were read so far
        self.values: Any = None  # [columns, N], None until they are read
        self.texts: dict[int, list[str]] = {}  # the cells of columns of texts by number
        self.faults: dict[str, Fault] = {}  # of columns that are not numbers, by name
        self.converted: dict[str, Any] = {}
        # UTF-16 has a mark; Windows-1252, which spreadsheets write, is rarely valid UTF-8
        head = os.pread(self.descriptor, _LONGEST_LINE, 0)
        self.encoding = "utf-8-sig"
        if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
            self.encoding = "utf-16"
        else:
            try:
                codecs.getincrementaldecoder("utf-8")().decode(head)
            except UnicodeDecodeError:
                self.encoding = "cp1252"

    def lines(self) -> Iterator[str]:
        """Yields the lines from the beginning; raises ValueError for one that is too long."""
        os.lseek(self.descriptor, 0, os.SEEK_SET)
        self.line = 0
        with open(self.descriptor, encoding=self.encoding, newline="", closefd=False) as text:
            while line := text.readline(_LONGEST_LINE):
                if len(line) == _LONGEST_LINE:
                    raise ValueError(f"a line of more than {_LONGEST_LINE} characters")
                self.line += 1
                yield line

    def close(self) -> None:
        os.close(self.descriptor)
        self.values = None


class CsvFile(Table):
    """A table of text, which is read as a whole and kept until it is closed.

    Lines that begin with # are comments, of which the last before the numbers may be the heading.
    """

    family, handle_type = "csv", _Text
    failures = (OSError, ValueError, csv.Error, MemoryError)
    expected = "a table of text"

    def __init__(self, path: Path, pool: OpenFiles | None = None) -> None:
        super().__init__(path, pool)
        self._end: int | None = None  # nothing is read after this line
        self._reasons: dict[str, str] = {}  # how, or why not, columns of texts were converted
        try:
            self.guard("", self._read_heading)
        except BaseException:
            self.close()
            raise

    def _read_heading(self) -> None:
        reading, lines, count = self.pool.reading, list[str](), 0
        skip = reading.skip_rows or 0
        for line in itertools.islice(self.open_handle().lines(), skip + _COMMENT_LINES):
            lines.append(line)
            count += not line.startswith("#")
            if count == skip + _HEAD_LINES:
                break
        # the first rows show what the columns hold; all rows are read when a value is needed
        head = read_head(lines, skip, str(self.path))
        self._delimiter, self._skipped, self._trailing = head[0], head.skipped, head.trailing
        self._heading = f"line {head.line} is the heading" if head.line else "there is no heading"
        self.remarks = [Note(f"{self.path}: {head.remark}")] if head.remark else []
        if head.degrees and reading.units is None:
            text = "inDegrees=yes says that angles are in degrees: --units deg,m,… says which are"
            self.remarks += [f"{self.path}: {text}"]
        rows = head.rows[:_SAMPLE_ROWS]
        self._comma = any(DECIMAL_COMMA.fullmatch(cell) for row in rows for cell in row)
        if self._comma:
            self._note("decimal commas are read as points")
            rows = [[cell.replace(",", ".") for cell in row] for row in rows]
        cells = list(zip(*rows, strict=True))
        # texts are labels and dates, integers that float64 does not hold, and blank cells
        texts = [
            not is_number(next(filter(None, column), ""))
            or any(map(_LONG_INTEGER.fullmatch, column))
            for column in cells
        ]
        unnamed = [f"{'text' if text else 'data'}{i}" for i, text in enumerate(texts)]
        names = head.names or dict.fromkeys(unnamed, "")
        self._numbered = [] if head.names else unnamed
        self.columns, columns = list(names), dict(zip(names, cells, strict=True))
        self.copies = {n: first for n, first in names.items() if first and n != first}
        if self.copies:
            self._note(f"the second of two columns of one name is {next(iter(self.copies))}")
        self._texts = {name for name, text in zip(names, texts, strict=True) if text}
        numbers = {name: column for name, column in columns.items() if name not in self._texts}
        fractions = lambda x: is_number(x) and math.isfinite(float(x)) and float(x) % 1  # noqa: E731
        self.fractional = [name for name, column in numbers.items() if any(map(fractions, column))]
        kinds = {name: moment_kind(columns[name][0]) for name in names if name in self._texts}
        # a date and a time of day may be two columns, but only where no other could be meant
        clocks, days = ([n for n, kind in kinds.items() if kind == k] for k in ("time", "day"))
        self._days = dict(zip(clocks, days, strict=True)) if len(clocks) == len(days) == 1 else {}
        self.dates = [*(n for n, kind in kinds.items() if kind in ("time", "moment")), *days]
        if self._texts and head.names is None:
            self._name_echo_columns(rows, _numbers(cells[-4:]))
        elif not self._texts and not names[self.columns[0]]:
            self._find_time_column(_numbers(cells))

    def _find_column(self, name: str) -> list[str]:
        # without a heading the number of a column stays its name, whatever it is recognised as
        if name in self._numbered:
            return [self.columns[self._numbered.index(name)]]
        return super()._find_column(name)

    def _note(self, text: str) -> None:
        self.remarks = [*self.remarks, Note(f"{self.path}: {text}")]

    def _name_echo_columns(self, rows: list[list[str]], last: Floats) -> None:
        """Names the columns of messages that ``ros2 topic echo --csv`` writes."""
        # they are seconds since 1970, nanoseconds, the frame, and the fields; those of a JointState
        # are names, then numbers
        stamps = [(int(a), int(b)) for a, b, *_ in rows if a.isdecimal() and b.isdecimal()]
        frames = len(stamps) == len(rows) and self.columns[2] == "text2"
        if not frames or not all(1e9 < a < 4e9 and b < 1e9 for a, b in stamps):
            return
        columns = ["stamp_sec", "stamp_nanosec", *self.columns[2:]]
        remark = "its first columns are seconds and nanoseconds since 1970"
        is_label = [name in self._texts for name in columns[3:]]
        count, rest = sum(is_label), len(is_label) - sum(is_label)
        if all(is_label[:count]) and count and rest in (count, 2 * count, 3 * count):
            labels, kinds = rows[0][3 : 3 + count], _JOINT_STATE[: rest // count]
            # under these names, columns are searched for names that change from row to row
            columns[3:-rest] = [f"name{k}" for k in range(count)]
            columns[-rest:] = [f"{kind}/{label}" for kind in kinds for label in labels]
            remark += f", then {', '.join(kinds)} of the joints that it names"
            self._texts = {*columns[2:-rest]}
        elif len(is_label) == rest == len(_POSE) and _has_unit_norm(last):
            columns[-rest:] = _POSE
            remark += f", then {' '.join(_POSE)}, as in a pose"
        self.columns = columns
        self._note(f"there is no heading: {remark}")

    def _find_time_column(self, sample: Floats) -> None:
        """Finds the time in a table [columns, rows] that does not name it."""
        # It is the first column, if it increases evenly, does not count rows, is no position before
        # a quaternion, and no option says the time. A TUM trajectory has unit quaternions.
        headless, steps = self.columns[0] == "data0", np.diff(sample[0])
        steps = steps[np.isfinite(steps)]
        if len(steps) < 2:
            return
        forward = (steps >= 0).mean() > _FORWARD_SHARE
        if headless and forward and len(sample) == len(_TUM) and _has_unit_norm(sample[4:]):
            self.columns = list(_TUM)
            self._note(f"there is no heading: {' '.join(_TUM)}, as in a TUM trajectory")
        elif not (steps > 0).all() or steps.max() > _LONGEST_STEP * np.median(steps):
            return
        elif (steps == 1).all() and sample[0, 0] in (0, 1):
            if (sample[1:] != np.floor(sample[1:])).any():
                self.columns = ["index", *self.columns[1:]]
        elif not headless or not (self.pool.reading.clock or _has_unit_norm(sample[3:7])):
            self.dates = self.columns[:1]
            if headless:
                self._note("there is no heading: its first column, which increases, is the time")

    def hint_at_rows(self, column: str, value: object) -> str:
        shown = json.dumps(value) if isinstance(value, str) else f"{value:g}"
        test = f"NR == 1 || ${self.columns.index(column) + 1} == {shown}"
        out = self.path.with_stem(f"{self.path.stem}_{re.sub('[^A-Za-z0-9]', '_', f'{value}')}")
        words = ["awk", "-F", self._delimiter, test, str(self.path)]
        return f"{shlex.join(words)} > {shlex.quote(str(out))}"

    def is_numeric(self, name: str) -> bool:
        return name not in self._texts

    def missing(self, name: str, names: Sequence[str] | None = None) -> Fault:
        expected = f"a dataset in the file; {self._heading}"
        return replace(super().missing(name, names), expected=expected)

    def column(self, name: str) -> Dataset:
        number, text = self.columns.index(name), self.guard(name, self._read_columns)
        if name in text.faults:
            raise InputError(text.faults[name])
        if name not in text.converted:
            values, reason = None, ""
            if name in self._texts:
                cells = [cell.strip() for cell in text.texts[number]]
                if name in self._days:
                    dates = text.texts[self.columns.index(self._days[name])]
                    pairs = zip(dates, cells, strict=True)
                    cells = [f"{date.strip()} {cell}" for date, cell in pairs]
                values, reason = parse_column(cells)
            elif name == self.time_column and not split_unit(name)[1]:
                values = serial_days(text.values[number])
                reason = "" if values is None else "days since 1899, as in a spreadsheet"
            text.converted[name], self._reasons[name] = values, reason
        values = text.converted[name]
        if values is not None:
            about = {"units": "ns"} if values.dtype.kind == "M" else {}
            values = values.astype(np.int64) if about else values
            rows = lambda start, stop: values[start:stop]  # noqa: E731
            return self.make_dataset(name, values.shape, values.dtype, rows, about, "text")
        # numbers are read from the open file each time: the pool may close it in between
        read = lambda start, stop: self._read_columns().values[number, start:stop]  # noqa: E731
        numbers = text.values[number]
        return self.make_dataset(name, numbers.shape, numbers.dtype, read, storage="text")

    def _read_times(self, column: str) -> Dataset:
        stored = super()._read_times(column)
        if not stored.numeric:
            cells = stored.read().tolist()
            raise InputError(
                self._reasons[column] or "times that are not understood",
                where=f"{self.path}:{column}",
                expected=f"seconds, or {FORMS}; {self._heading}",
                found=repr(next((x for x in cells if not moment_kind(x)), cells[0]))[:60],
                hint="--times FILE:DATASET, --rate HZ or --dt SECONDS says the time instead",
            )
        for copy in (name for name, first in self.copies.items() if first == column):
            if not np.array_equal(self.column(copy).read(), stored.read()):
                raise InputError(
                    "columns with different times",
                    where=f"{self.path}:{copy}",
                    expected=f"the times of {column}; {self._heading}",
                    hint=f"name columns, and their times: --times {self.shell_name(copy)}",
                )
        return stored

    def _collect_remarks(self, name: str, taken: Sequence[str], stored: Dataset) -> list[str]:
        remarks, time = super()._collect_remarks(name, taken, stored), self.time_column
        if time is None or time in self._stamp_pair or self.pool.reading.clock:
            return remarks
        with contextlib.suppress(InputError):  # raised where the times are used
            self._read_times(time)
            if self._reasons[time]:
                remarks.append(Note(f"{self.path}:{time}: {self._reasons[time]}"))
        return remarks

    def _read_columns(self) -> _Text:
        text: _Text = self.open_handle()
        if text.values is None:
            os.lseek(text.descriptor, 0, os.SEEK_SET)
            with open(text.descriptor, "rb", closefd=False) as file:
                blocks = iter(lambda: file.read(1 << 20), b"")
                count = 1 + sum(block.count(b"\n") for block in blocks)
            begin = max(os.fstat(text.descriptor).st_size - _TAIL_BYTES, 0)
            tail = os.pread(text.descriptor, _TAIL_BYTES, begin).decode(text.encoding, "replace")
            tail = tail if begin else f"\n{tail}"  # it begins behind a line end
            # spreadsheets write separators for rows that are blank
            body = re.sub(rf"\r?\n[\s{re.escape(self._delimiter)}]*\Z", "", tail)
            if "\r" not in tail.replace("\r\n", ""):  # a lone \r would end a line, too
                self._end = count - tail[len(body) :].count("\n")
            # The last line is cut if it has fewer cells than the lines before or, in its last cell,
            # no number or fewer decimals, where every row before it writes as many, as printf does.
            # The first line of the tail may lack its beginning.
            lines = body.split("\n")[1:]
            if self._end and len(lines) > 1 and lines[-1].strip() and lines[-1][0] != "#":
                ends = _skip_comments(lines[-_TAIL_ROWS - 1 :])
                *before, last = split_cells(ends, self._delimiter)
                cells = [row[-1].strip() for row in (*before, last) if row]
                decimals = [len(cell.partition(".")[2]) for cell in cells]
                shorter = len(set(decimals[:-1])) == 1 and 2 < decimals[0] > decimals[-1]
                no_number = is_number(cells[-2:][0]) and not is_number(cells[-1])
                broken = (shorter and len(before) >= _TAIL_ROWS) or no_number
                if len(last) < len(self.columns) + self._trailing or (body == tail and broken):
                    cut = f"{self.path} breaks off in line {self._end}, which is left out"
                    self.remarks, self._end = [*self.remarks, cut], self._end - 1
            size = 8 * count * len(self.columns)
            hint = "a binary file, as DataFrame.to_parquet writes"
            self.pool.refuse_larger(size, str(self.path), hint)
            self.pool.reserve(self, size)
            text = self.open_handle()  # to reserve memory may have closed the one before
            # np.loadtxt is faster than _read_cells, but reads neither texts nor decimal commas
            if not (self._texts or self._comma):
                with contextlib.suppress(ValueError):  # cells that are no numbers, uneven rows
                    values = np.loadtxt(
                        self._row_lines(text), delimiter=self._delimiter.strip(" ") or None,
                        comments=None, quotechar='"', ndmin=2, encoding=None,
                    )  # fmt: skip
                    text.values = values.T if values.shape[1] == len(self.columns) else None
            if text.values is None:
                text.values = self._read_cells(text)
        return text

    def _row_lines(self, text: _Text) -> Iterator[str]:
        rows = _skip_comments(itertools.islice(text.lines(), self._skipped, self._end))
        if not self._trailing:
            return rows
        return (row.rstrip("\r\n ").removesuffix(self._delimiter) for row in rows)

    def _read_cells(self, text: _Text) -> Any:
        parts, texts = [], [self.columns.index(name) for name in self._texts]
        text.texts = {number: [] for number in texts}
        rows = ((text.line, x) for x in split_cells(self._row_lines(text), self._delimiter))
        while block := list(itertools.islice(rows, CSV_ROWS)):
            lines, cells = zip(*block, strict=True)
            if uneven := [k for k, row in enumerate(cells) if len(row) != len(self.columns)]:
                raise InputError(
                    "a row of another length",
                    where=f"{self.path}, line {lines[uneven[0]]}",
                    expected=f"{len(self.columns)} cells, as in the first row; {self._heading}",
                    found=f"{len(cells[uneven[0]])} cells",
                )
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
                    bad = next(k for k, cell in enumerate(column) if not is_number(cell or "nan"))
                    fault = Fault(
                        "not a number",
                        where=f"{self.path}, line {lines[bad]}, column {self.columns[number]}",
                        expected=f"a number, or a blank cell; {self._heading}",
                        found=repr(column[bad].strip()),
                        hint=f"name other columns: {self.shell_name('A,B')}",
                    )
                    text.faults.setdefault(self.columns[number], fault)
        return np.concatenate(parts, axis=1)


def _skip_comments(lines: Iterable[str]) -> Iterator[str]:
    return (line for line in lines if line.strip() and not line.startswith("#"))


def _numbers(cells: Iterable[Sequence[str]]) -> Floats:
    """Parses the numbers in columns of cells, with NaN for other cells."""
    return np.array([[float(x) if is_number(x) else np.nan for x in column] for column in cells])


def _has_unit_norm(columns: Floats) -> bool:
    # as a quaternion has, in all rows without NaN
    norms = np.linalg.norm(columns, axis=0)
    norms = norms[np.isfinite(norms)]
    return len(columns) == 4 and len(norms) > 1 and bool((np.abs(norms - 1) < _NORM_ERROR).all())


def parse_column(cells: Sequence[str]) -> tuple[Any, str]:
    """Converts texts to integers, stamps or numbers; others stay, with why they are no times."""
    if all(map(_LONG_INTEGER.fullmatch, cells)):
        return np.array(cells, np.int64), ""
    stamps, remark = moments(cells)
    if stamps is not None:
        return stamps, remark
    # a column that is blank in the sample of rows may have numbers below
    if any(cells) and all(is_number(cell or "nan") for cell in cells):
        return np.array([cell or "nan" for cell in cells], float), ""
    return np.array(cells), remark
