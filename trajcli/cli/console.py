"""Writes to stdout and stderr: text, notes, progress, errors and JSON documents.

Names come from files and must not control the terminal: control, escape and bidirectional
characters are made visible here, and nowhere else.
"""

from __future__ import annotations

import contextlib
import io
import json
import math
import os
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

from trajcli.errors import InputError, Note, OutputError, Report

if TYPE_CHECKING:
    from trajcli.errors import Fault, TrajcliError
    from trajcli.files.opening import Files

# Between two lines of progress where stderr is no terminal: a log of a day has 3 000.
SECONDS_BETWEEN_LINES = 30.0
# Shorter work shows no bar, which would only flicker.
SECONDS_BEFORE_BAR = 0.5
# Shorter and smaller runs mostly open and close files, so that their rate in GB/s means nothing.
_RATE_SECONDS, _LEAST_RATE = 0.5, 0.01
# Columns of the lines of a run, and of tables in a pipe.
WIDTH, PIPE_WIDTH = 79, 160
# The largest number of faults or notes on stderr; the JSON document has all.
MOST_LISTED = 10


class Console:
    """Writes text to stdout or, where stdout holds a JSON document or data, to stderr."""

    def __init__(self, as_json: bool = False, quiet: bool = False) -> None:
        self.as_json, self.quiet = as_json, quiet
        self.stream = "stderr" if as_json else "stdout"
        self._report = Report()

    def say(self, *lines: str) -> None:
        if not self.quiet:
            self._put(_lines(*lines))

    def show(self, parts: Iterable[Any]) -> None:
        """Writes Rich tables, texts and figures; nothing with --json, as the document has all."""
        if self.quiet or self.as_json:
            return
        # Rich is imported only where there is something to show: it takes longer than most commands
        from rich.segment import Segment, Segments

        for part in parts:
            shown = [Segment(visible(s.text), s.style, s.control) for s in self.rich.render(part)]
            with self.rich.capture() as capture:
                self.rich.print(Segments(shown), end="")
            # Rich pads lines to the width, which a pipe does not need
            lines = capture.get().removesuffix("\n").split("\n")
            self._put("\n".join(line.rstrip(" ") for line in lines) + "\n")

    def remark(self, *lines: str) -> None:
        """Writes notes and warnings, the first of many; with --quiet only warnings."""
        kinds = [(line, "note" if isinstance(line, Note) else "warning") for line in lines]
        listed = [f"{kind}: {line}" for line, kind in kinds if kind == "warning" or not self.quiet]
        more = len(listed) - MOST_LISTED
        rest = [f"note: and {more} more, which --json lists"] if more > 0 else []
        _write("stderr", _lines(*listed[:MOST_LISTED], *rest))

    def finish(self, result: Mapping[str, Any], *lines: str) -> int:
        """Writes the notes of a run, its last lines and its document, and returns the exit code."""
        left_out = result.get("left_out", [])
        faults = (f"left out: {bad['name']}: {bad['reason']}" for bad in left_out)
        self.remark(*result["notes"], *faults)
        self.say(*lines)
        self.write_document(result)
        # --skip-bad left out something
        return 1 if left_out else 0

    def write_document(self, value: Any) -> None:
        """Writes the one JSON document of a run, with null for NaN and Inf."""
        if self.as_json:
            # every command that reads with --trim reports what it kept
            if self._report.keep_ranges:
                value = {**value, "keep_ranges": self._report.keep_ranges}
            self.write_data(_lines(json.dumps(_plain(value), allow_nan=False)), "JSON document")

    def write_data(self, text: str, what: str = "table") -> None:
        """Writes text for programs to stdout; raises OutputError where there is no room for it."""
        error = _write("stdout", visible(text))
        if error is not None:
            raise OutputError(f"the {what} is lost", where="stdout", found=error)

    def fail(self, error: TrajcliError) -> int:
        faults = error.faults
        report = {"exit_code": error.exit_code, "faults": [fault.as_dict() for fault in faults]}
        # where stdout is full, stderr still gets the message
        with contextlib.suppress(OutputError):
            self.write_document({"error": report})
        first, *more = [line for fault in faults[:MOST_LISTED] for line in fault.lines()]
        if len(faults) > MOST_LISTED:
            more.append(f"and {len(faults) - MOST_LISTED} more, which --json lists")
        many = f"{len(faults)} errors" if len(faults) > 1 else "error"
        _write("stderr", _lines(f"{many}: {first}", *more))
        return error.exit_code

    @contextlib.contextmanager
    def report(self, what: str = "trajectories") -> Iterator[Report]:
        with Progress(not self.quiet, what) as progress:
            self._report = Report(progress)
            yield self._report

    @contextlib.contextmanager
    def open_files(self, reading: Mapping[str, Any], what: str = "trajectories") -> Iterator[Files]:
        """Opens files for a command that only reads, with progress in ``what``.

        reading: the fields of files.reading.Reading.
        """
        from trajcli.files.opening import Files
        from trajcli.files.reading import Reading

        with (
            self.report(what) as report,
            Files(Reading(**reading), report=report) as files,
        ):
            yield files
            files.sources.require_unchanged()

    @contextlib.contextmanager
    def skip_unreadable(self, name: str, left_out: dict[str, Fault], alone: bool) -> Iterator[None]:
        """Leaves out a file that cannot be read, unless it is the only one."""
        try:
            yield
        except InputError as error:
            if alone:
                raise
            left_out[name] = error.faults[0]

    def warn_left_out(self, faults: Mapping[str, Fault]) -> list[dict[str, str]]:
        self.remark(*(f"left out: {name}: {fault.what}" for name, fault in faults.items()))
        return [{"name": name, "reason": fault.what} for name, fault in faults.items()]

    @cached_property
    def rich(self) -> Any:
        """A Rich console for the width and colours of the text stream; it writes into a buffer."""
        from rich.console import Console as RichConsole

        stream = getattr(sys, self.stream)
        terminal = stream is not None and stream.isatty()

        class Buffer(io.StringIO):
            encoding = getattr(stream, "encoding", None) or "utf-8"

        return RichConsole(
            file=Buffer(),
            force_terminal=terminal or None,
            width=None if terminal else PIPE_WIDTH,
            # by itself Rich writes bold text under NO_COLOR
            color_system=None if os.environ.get("NO_COLOR") else "auto",
            highlight=False,
            markup=False,
            emoji=False,
        )

    def _put(self, text: str) -> None:
        # with --json the text goes to stderr, which is no loss for the program that reads stdout
        error = _write(self.stream, text)
        if error is not None and not self.as_json:
            self.remark(f"stdout: {error}; the rest of the text is lost")


class Progress:
    """Shows progress on stderr: a bar on a terminal, else a line every 30 seconds."""

    def __init__(self, shown: bool, what: str = "trajectories") -> None:
        self._shown, self._what = shown, what
        self._began = self._last = time.monotonic()
        self._terminal = sys.stderr is not None and sys.stderr.isatty()
        self._bar: Any = None

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def __call__(self, done: float, total: int) -> None:
        """Shows that ``done`` of ``total`` are written; a fraction is part of the next."""
        if not self._shown:
            return
        now = time.monotonic()
        if self._terminal:
            if self._bar is None and done < total and now - self._began >= SECONDS_BEFORE_BAR:
                from rich.console import Console as RichConsole
                from rich.progress import Progress as RichProgress

                self._bar = RichProgress(console=RichConsole(stderr=True), transient=True)
                self._bar.add_task(self._what, total=total)
                self._bar.start()
            if self._bar is not None:
                self._bar.update(0, completed=done, total=total)
        elif now - self._last >= SECONDS_BETWEEN_LINES:
            self._last = now
            percent = int(100 * done / max(total, 1))
            _write("stderr", _lines(f"{int(done)} of {total} {self._what} ({percent} %)"))


def bytes_text(count: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} TB"


def speed_text(report: Mapping[str, Any]) -> str:
    """Says how much was written in how long, and the rate where it means something."""
    meaningful = report["seconds"] >= _RATE_SECONDS and report["gb_per_s"] >= _LEAST_RATE
    rate = f", {report['gb_per_s']:.2f} GB/s" if meaningful else ""
    return f"{bytes_text(report['bytes_written'])} in {report['seconds']:.2f} s{rate}"


def source_lines(report: Mapping[str, Any], size: str = "") -> list[str]:
    count = count_text(report["trajectories"], "trajectory", "trajectories")
    return [
        fit_line("", report["source"], f": {count}{size}"),
        *([fit_line("steps from ", report["dt_source"])] if report["dt_source"] else []),
        *units_lines(report["units"]),
    ]


def units_lines(units: Mapping[str, str] | None) -> list[str]:
    """Says in a line what was converted to SI; no line where nothing was."""
    if units is None or units["read"] == units["written"]:
        return []
    before, behind = f"units {units['read']}, from ", f", converted to {units['written']}"
    return [fit_line(before, units["from"], behind)]


def fit_line(before: str, path: str, behind: str = "") -> str:
    """Fits a line into 80 columns by cutting a long path in the middle."""
    room = max(WIDTH - len(before) - len(behind), 40)
    if len(path) > room:
        from trajcli.views.terminal import shortened

        path = shortened(path, room)
    return before + path + behind


def count_text(number: int, singular: str, plural: str = "") -> str:
    """Writes a number with its noun: 1 dof, 7 dofs."""
    return f"{number} {singular if number == 1 else plural or singular + 's'}"


# C0 and C1 controls, and Unicode's Default_Ignorable_Code_Point: a terminal obeys or hides these.
# A line end is left to the caller.
_HIDDEN = {
    code: f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}" if code < 65536 else f"\\U{code:08x}"
    for code in (
        *(code for code in range(32) if code != 10),
        *range(127, 160),
        *(0x00AD, 0x034F, 0x061C, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x2028, 0x2029, 0x3164, 0xFEFF),
        *(0xFFA0, *range(0xFFF9, 0xFFFC)),
        *range(0x180B, 0x1810),
        *range(0x200B, 0x2010),
        *range(0x202A, 0x202F),
        *range(0x2060, 0x2070),
        *range(0xFE00, 0xFE10),
        *range(0x1D173, 0x1D17B),
        *range(0xE0000, 0xE1000),
    )
}


def visible(text: str) -> str:
    """Escapes control, escape, bidirectional and invisible characters; line ends stay."""
    return text.translate(_HIDDEN)


def _lines(*lines: str) -> str:
    # One text is written at once, since other processes may share the file. Line ends within a line
    # come from names, and become escapes.
    return "".join(visible(line).replace("\n", "\\n") + "\n" for line in lines)


def _write(stream: str, text: str) -> str | None:
    """Writes text to a stream; returns the reason where there is no room for it, else None."""
    file = getattr(sys, stream)
    if file is None:
        return None
    # letters that the stream's encoding lacks are written as escapes
    encoding = getattr(file, "encoding", None) or "utf-8"
    try:
        file.write(text.encode(encoding, "backslashreplace").decode(encoding))
        file.flush()
    # A reader that has closed the pipe, as head does, does not stop a run: the rest goes nowhere.
    # ValueError: the stream is closed.
    except (OSError, ValueError) as error:
        setattr(sys, stream, open(os.devnull, "w"))  # noqa: SIM115 - it lives as long as we do
        if isinstance(error, OSError) and not isinstance(error, BrokenPipeError):
            return error.strerror
    return None


def _plain(value: Any) -> Any:
    """Turns a value into one that JSON holds: arrays as lists, NaN and Inf as None, or text."""
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if hasattr(value, "tolist"):
        return _plain(value.tolist())
    return value if isinstance(value, (str, int, bool, type(None))) else str(value)
