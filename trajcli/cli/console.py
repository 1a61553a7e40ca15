"""What people and programs are told, and where: one place for stdout, stderr and JSON."""

from __future__ import annotations

import json
import math
import os
import sys
import time
from functools import cached_property
from types import TracebackType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trajcli.errors import TrajcliError

SECONDS_BETWEEN_LINES = 30.0
PIPE_WIDTH = 160
SECONDS_BEFORE_BAR = 0.5
"""What is over before that needs no bar."""


class Console:
    """Text goes to stdout; with JSON, stdout holds one document and text goes to stderr."""

    def __init__(self, as_json: bool = False, quiet: bool = False) -> None:
        self.as_json = as_json
        self.quiet = quiet

    def say(self, text: str) -> None:
        """A line for people."""
        if not self.quiet:
            _print(text, "stderr" if self.as_json else "stdout")

    def warn(self, text: str) -> None:
        """A line that matters also with --quiet."""
        _print(f"warning: {text}", "stderr")

    def note(self, text: str) -> None:
        """A line about what is going on, apart from the results."""
        if not self.quiet:
            _print(text, "stderr")

    def document(self, value: Any) -> None:
        """The one JSON document of a run; NaN and Inf become null."""
        if self.as_json:
            _print(json.dumps(_plain(value), allow_nan=False), "stdout")

    @cached_property
    def rich(self) -> Any:
        """A Rich console on the stream for people. What is piped is not folded at 80 columns."""
        from rich.console import Console as RichConsole

        stream = sys.stderr if self.as_json else sys.stdout
        width = None if stream is not None and stream.isatty() else PIPE_WIDTH
        colours: Any = None if os.environ.get("NO_COLOR") else "auto"  # else Rich writes bold
        return RichConsole(file=stream, highlight=False, width=width, color_system=colours)

    def show(self, renderable: Any) -> None:
        """A Rich table, text or figure for people, its text as :func:`visible` has it."""
        if self.quiet:
            return
        from rich.segment import Segment, Segments

        parts = [Segment(visible(s.text), s.style, s.control) for s in self.rich.render(renderable)]
        with self.rich.capture() as capture:
            self.rich.print(Segments(parts), end="")
        lines = [line.rstrip(" ") for line in capture.get().splitlines()]
        _write("\n".join([*lines, ""]), "stderr" if self.as_json else "stdout")

    def fail(self, error: TrajcliError) -> int:
        """Report an error; returns its exit code."""
        faults = [fault.as_dict() for fault in error.faults]
        self.document({"error": {"exit_code": error.exit_code, "faults": faults}})
        many = f"{len(error.faults)} errors" if len(error.faults) > 1 else "error"
        _print(f"{many}: " + "\n".join(map(str, error.faults)), "stderr")
        return error.exit_code

    def fail_with_bug(self, error: Exception) -> int:
        """Report what should never happen; returns exit code 70."""
        text = f"{type(error).__name__}: {error}"
        self.document({"error": {"exit_code": 70, "faults": [{"what": text}]}})
        _print(f"error: a bug in trajcli: {text}", "stderr")
        _print("  try:      TRAJCLI_DEBUG=1 shows where; please report it", "stderr")
        return 70


class Progress:
    """A bar on a terminal, else a line every 30 seconds; on stderr."""

    def __init__(self, shown: bool, what: str = "trajectories") -> None:
        self._shown, self._what = shown, what
        self._began = time.monotonic()
        self._terminal = sys.stderr is not None and sys.stderr.isatty()
        self._bar: Any = None
        self._task: Any = None
        self._last = time.monotonic()

    def __enter__(self) -> Progress:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def __call__(self, done: float, total: int) -> None:
        """``done`` of ``total`` trajectories are written, of the last one maybe a part."""
        if not self._shown:
            return
        if self._terminal:
            self._update_bar(done, total)
        elif time.monotonic() - self._last >= SECONDS_BETWEEN_LINES:
            self._last = time.monotonic()
            percent = int(100 * done / max(total, 1))
            _print(f"{int(done)} of {total} {self._what} ({percent} %)", "stderr")

    def _update_bar(self, done: float, total: int) -> None:
        if self._bar is None:
            if done == total or time.monotonic() - self._began < SECONDS_BEFORE_BAR:
                return
            from rich.console import Console as RichConsole
            from rich.progress import Progress as RichProgress

            self._bar = RichProgress(console=RichConsole(stderr=True), transient=True)
            self._task = self._bar.add_task(self._what, total=total)
            self._bar.start()
        self._bar.update(self._task, completed=done)


def bytes_text(count: float) -> str:
    """A number of bytes for people: 1.4 MB."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} TB"


def counted(number: int, one: str, many: str = "") -> str:
    """1 dof, 7 dofs."""
    return f"{number} {one if number == 1 else many or one + 's'}"


_HIDDEN = {
    code: f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}"
    for code in (
        *(code for code in range(32) if code != 10),
        *range(127, 160),
        *(0x061C, 0x200E, 0x200F, 0x2028, 0x2029),
        *range(0x202A, 0x202F),
        *range(0x2066, 0x206A),
    )
}


def visible(text: str) -> str:
    """Text with control, escape and bidirectional characters written out; line ends stay.

    Names come from files: what they hold must not steer the terminal.
    """
    return text.translate(_HIDDEN)


def _print(text: str, stream: str) -> None:
    """Print a line, and its end with it, as other processes may write to the same file."""
    _write(visible(text) + "\n", stream)


def _write(text: str, stream: str) -> None:
    """Write text; a reader that has gone, or was never there, is no reason to stop a run.

    What the stream's encoding has no letters for is written as an escape.
    """
    file = getattr(sys, stream)
    if file is None:
        return
    encoding = getattr(file, "encoding", None) or "utf-8"
    try:
        file.write(text.encode(encoding, "backslashreplace").decode(encoding))
        file.flush()
    except (OSError, ValueError):
        setattr(sys, stream, open(os.devnull, "w"))  # noqa: SIM115 - it lives as long as we do


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if hasattr(value, "tolist"):
        return _plain(value.tolist())
    return value if isinstance(value, (str, int, bool, type(None))) else str(value)
