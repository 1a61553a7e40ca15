"""Writes what people and programs read: the one place for stdout, stderr and JSON.

Names come from files and must not steer the terminal: control, escape and bidirectional
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
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

from trajcli.errors import Note, OutputError

if TYPE_CHECKING:
    from trajcli.errors import TrajcliError
    from trajcli.files.opening import Files
    from trajcli.files.reading import Reading

SECONDS_BETWEEN_LINES = 30.0
SECONDS_BEFORE_BAR = 0.5
"""Shorter work shows no bar."""
# Shorter and smaller runs mostly open and close files: their rate, in GB/s, says nothing.
_RATE_SECONDS, _LEAST_RATE = 0.5, 0.01
WIDTH, PIPE_WIDTH = 79, 160
"""Columns of the first lines of a run, and of tables that are piped."""
MOST_LISTED = 10
"""The most faults, and the most notes, on stderr; JSON has all."""


class Console:
    """Writes text to stdout or, where stdout holds a JSON document or data, to stderr."""

    def __init__(
        self, as_json: bool = False, quiet: bool = False, text_on_stderr: bool = False
    ) -> None:
        self.as_json = as_json
        self.quiet = quiet
        self._text = "stderr" if as_json or text_on_stderr else "stdout"

    def say(self, *lines: str) -> None:
        """Writes lines for people."""
        if not self.quiet:
            self._put(_lines(*lines))

    def remark(self, *lines: str) -> None:
        """Writes notes and warnings, with --quiet only these: the first ones, and how many more
        there are."""
        kinds = [(line, "note" if isinstance(line, Note) else "warning") for line in lines]
        listed = [f"{kind}: {line}" for line, kind in kinds if kind == "warning" or not self.quiet]
        more = len(listed) - MOST_LISTED
        rest = [f"note: and {more} more, which --json lists"] if more > 0 else []
        _write("stderr", _lines(*listed[:MOST_LISTED], *rest))

    def document(self, value: Any) -> None:
        """Writes the one JSON document of a run, with null for NaN and Inf.

        Raises OutputError where stdout has no room for it.
        """
        if self.as_json:
            self.data(_lines(json.dumps(_plain(value), allow_nan=False)), "JSON document")

    def data(self, text: str, what: str = "table") -> None:
        """Writes text for programs to stdout; raises OutputError where there is no room for it."""
        error = _write("stdout", visible(text))
        if error is not None:
            raise OutputError(f"the {what} is lost", where="stdout", found=error)

    @cached_property
    def rich(self) -> Any:
        """Returns a Rich console like the stream for people that writes into a buffer instead.

        Text that is piped may be wider than 80 columns.
        """
        from rich.console import Console as RichConsole

        stream = getattr(sys, self._text)
        terminal = stream is not None and stream.isatty()

        class Buffer(io.StringIO):
            encoding = getattr(stream, "encoding", None) or "utf-8"

        return RichConsole(
            file=Buffer(),
            force_terminal=terminal or None,
            width=None if terminal else PIPE_WIDTH,
            color_system=None if os.environ.get("NO_COLOR") else "auto",  # else Rich writes bold
            highlight=False,
            markup=False,
            emoji=False,
        )

    def show(self, renderable: Any) -> None:
        """Writes a Rich table, text or figure for people."""
        if self.quiet:
            return
        from rich.segment import Segment, Segments

        parts = [Segment(visible(s.text), s.style, s.control) for s in self.rich.render(renderable)]
        with self.rich.capture() as capture:
            self.rich.print(Segments(parts), end="")
        # Rich pads lines to the width, which a pipe does not need
        lines = capture.get().removesuffix("\n").split("\n")
        self._put("\n".join(line.rstrip(" ") for line in lines) + "\n")

    def _put(self, text: str) -> None:
        """Writes text for people, and warns where there is no room for it."""
        error = _write(self._text, text)
        if error is not None and not self.as_json:
            self.remark(f"stdout: {error}; the rest of the text is lost")

    def fail(self, error: TrajcliError) -> int:
        """Writes an error, and returns its exit code."""
        faults = error.faults
        report = {"exit_code": error.exit_code, "faults": [fault.as_dict() for fault in faults]}
        with contextlib.suppress(OutputError):  # stderr still gets the message
            self.document({"error": report})
        first, *more = [line for fault in faults[:MOST_LISTED] for line in fault.lines()]
        if len(faults) > MOST_LISTED:
            more.append(f"and {len(faults) - MOST_LISTED} more, which --json lists")
        many = f"{len(faults)} errors" if len(faults) > 1 else "error"
        _write("stderr", _lines(f"{many}: {first}", *more))
        return error.exit_code


@contextlib.contextmanager
def opened(
    how: Reading, quiet: bool, what: str = "trajectories"
) -> Iterator[tuple[Files, Progress]]:
    """Opens files for a command that reads, with progress in ``what``.

    Raises InputError where a file has changed when the command is done with it.
    """
    from trajcli.files.opening import Files

    with Progress(not quiet, what) as progress, Files(how, on_progress=progress) as files:
        yield files, progress
        files.sources.require_unchanged()


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
        """Shows that ``done`` of ``total`` are written; of the last one maybe a part."""
        if not self._shown:
            return
        now = time.monotonic()
        if self._terminal:
            # short work shows no bar
            if self._bar is None and done < total and now - self._began >= SECONDS_BEFORE_BAR:
                self._bar = self._make_bar(total)
            if self._bar is not None:
                self._bar.update(0, completed=done, total=total)
        elif now - self._last >= SECONDS_BETWEEN_LINES:
            self._last = now
            percent = int(100 * done / max(total, 1))
            _write("stderr", _lines(f"{int(done)} of {total} {self._what} ({percent} %)"))

    def _make_bar(self, total: int) -> Any:
        from rich.console import Console as RichConsole
        from rich.progress import Progress as RichProgress

        bar = RichProgress(console=RichConsole(stderr=True), transient=True)
        bar.add_task(self._what, total=total)
        bar.start()
        return bar


def bytes_text(count: float) -> str:
    """Returns a number of bytes as text: 1.4 MB."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} TB"


def speed_text(report: Mapping[str, Any]) -> str:
    """Returns what was written and how long it took; the rate of runs that show one."""
    shown = report["seconds"] >= _RATE_SECONDS and report["gb_per_s"] >= _LEAST_RATE
    rate = f", {report['gb_per_s']:.2f} GB/s" if shown else ""
    return f"{bytes_text(report['bytes_written'])} in {report['seconds']:.2f} s{rate}"


def units_lines(units: Mapping[str, str] | None) -> list[str]:
    """Returns a line on what was converted to SI; none where nothing was."""
    if units is None or units["read"] == units["written"]:
        return []
    return [
        fitted(f"units {units['read']}, from ", units["from"], f", converted to {units['written']}")
    ]


def fitted(before: str, path: str, behind: str = "") -> str:
    """Returns a line for 80 columns, in which a long path is cut in the middle."""
    from trajcli.views.terminal import shortened

    return before + shortened(path, max(WIDTH - len(before) - len(behind), 40)) + behind


def counted(number: int, singular: str, plural: str = "") -> str:
    """Returns a number and a noun: 1 dof, 7 dofs."""
    return f"{number} {singular if number == 1 else plural or singular + 's'}"


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
    """Returns text with control, escape, bidirectional and invisible characters as escapes.

    Line ends stay. Invisible are Unicode's Default_Ignorable_Code_Point.
    """
    return text.translate(_HIDDEN)


def _lines(*lines: str) -> str:
    """Returns lines as one text, written at once: other processes may write to the same file.

    Line ends within a line come from names, and become escapes.
    """
    return "".join(visible(line).replace("\n", "\\n") + "\n" for line in lines)


def _write(stream: str, text: str) -> str | None:
    """Writes text to a stream, and returns the reason where there is no room for it.

    A reader that has gone, or was never there, does not stop a run. Letters that the stream's
    encoding lacks are written as escapes.
    """
    file = getattr(sys, stream)
    if file is None:
        return None
    encoding = getattr(file, "encoding", None) or "utf-8"
    try:
        file.write(text.encode(encoding, "backslashreplace").decode(encoding))
        file.flush()
    except (OSError, ValueError) as error:
        setattr(sys, stream, open(os.devnull, "w"))  # noqa: SIM115 - it lives as long as we do
        if isinstance(error, OSError) and not isinstance(error, BrokenPipeError):
            return error.strerror
    return None


def _plain(value: Any) -> Any:
    """Returns a value that JSON has: arrays as lists, NaN and Inf as None, all else as text."""
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if hasattr(value, "tolist"):
        return _plain(value.tolist())
    return value if isinstance(value, (str, int, bool, type(None))) else str(value)
