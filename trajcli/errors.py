"""The errors that trajcli raises, and their exit codes.

    TrajcliError            every error that trajcli raises on purpose
    ├── InputError          input that is wrong, missing or unreadable   exit 2  (also a ValueError)
    │   └── MissingFileError    a file that is not there                 (also a FileNotFoundError)
    ├── UsageError          options that cannot be combined              exit 2  (also a ValueError)
    ├── OutputError         an output that is refused or cannot be made  exit 2
    │   ├── MissingFolderError  its folder is not there                  (also a FileNotFoundError)
    │   ├── ExistingFileError   its name is taken                        (also a FileExistsError)
    │   └── BusyError       an output that another process is writing    exit 75
    ├── DataError           data that failed a check                     exit 1
    ├── Stopped             a signal ended the run                       exit 75
    └── Cancelled           Ctrl-C ended a command that writes nothing   exit 130

Faults are collected as values and raised together, so that one run reports all of them.
"""

from __future__ import annotations

import errno
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass, replace
from typing import ClassVar, TypeAlias

Progress: TypeAlias = Callable[[float, int], None]
"""Called with the number of trajectories done, which may be fractional, and their total."""


# How many characters of an unknown word are shown.
_LONGEST_WORD = 100


class Note(str):
    """A remark on what was done or recognised; any other remark is a warning."""


@dataclass(frozen=True)
class Fault:
    """One thing that is wrong: what and where, what was expected and found, and what to do."""

    what: str
    _: KW_ONLY
    where: object = ""
    """A place; it becomes text."""
    expected: str = ""
    found: str = ""
    hint: str = ""
    shell: str = ""
    """The hint in the words of the command line, if they differ from those of Python."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "where", str(self.where))

    def lines(self) -> list[str]:
        """Formats the message, with a line for each part that is not empty."""
        parts = {"expected": self.expected, "found": self.found, "try": self.hint}
        more = [f"  {label + ':':<9} {text}" for label, text in parts.items() if text]
        return [f"{self.where}: {self.what}" if self.where else self.what, *more]

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def in_shell(self) -> Fault:
        """Words the hint for the command line."""
        return replace(self, hint=self.shell or self.hint, shell="")

    def as_dict(self) -> dict[str, str]:
        """Lists the parts that are not empty, for JSON."""
        return {name: text for name, text in vars(self).items() if text and name != "shell"}


def unknown(
    noun: str, *, choices: str | Iterable[object], found: str, where: object = None, hint: str = ""
) -> Fault:
    """Makes the fault of a word that is none of the choices: "unknown mode"."""
    expected = choices if isinstance(choices, str) else ", ".join(map(str, choices))
    where = noun if where is None else where
    # the text of an array has several lines
    found = " ".join(found.split())
    found = f"{found[:_LONGEST_WORD]}…" if len(found) > _LONGEST_WORD else found
    return Fault(f"unknown {noun}", where=where, expected=expected, found=found, hint=hint)


def wrong_shape(
    where: object,
    expected: str | Sequence[int],
    found: Sequence[int],
    *,
    what: str = "wrong shape",
    hint: str = "",
    shell: str = "",
) -> Fault:
    expected, shape = expected if isinstance(expected, str) else describe(expected), describe(found)
    return Fault(what, where=where, expected=expected, found=shape, hint=hint, shell=shell)


def describe(shape: Sequence[int]) -> str:
    """Formats a shape: [64, 100, 7]."""
    return "[" + ", ".join(str(int(n)) for n in shape) + "]" if len(shape) else "one number"


def join_names(names: Iterable[object], most: int) -> str:
    """Joins names by commas: the first ``most``, and how many more there are."""
    texts = list(map(str, names))
    more = f" and {len(texts) - most} more" if len(texts) > most else ""
    return ", ".join(texts[:most]) + more


class TrajcliError(Exception):
    """The base of all errors that trajcli raises on purpose, with one or more faults."""

    # 70 (software error) and 75 (temporary failure, try again) are from sysexits.h; 130 is what
    # shells report for Ctrl-C, and 2 what commands commonly return for wrong usage
    exit_code: ClassVar[int] = 70

    def __init__(
        self,
        *faults: Fault | str,
        where: object = "",
        expected: str = "",
        found: str = "",
        hint: str = "",
        shell: str = "",
    ) -> None:
        """Takes faults, or a text with the keywords of one Fault."""
        self.faults = tuple(
            fault
            if isinstance(fault, Fault)
            else Fault(fault, where=where, expected=expected, found=found, hint=hint, shell=shell)
            for fault in faults
        )
        super().__init__("\n".join(str(fault) for fault in self.faults))


class InputError(TrajcliError, ValueError):
    """Input that is wrong, missing or unreadable."""

    exit_code = 2


class UsageError(TrajcliError, ValueError):
    """Options that are unknown or cannot be combined."""

    exit_code = 2


class OutputError(TrajcliError):
    """An output that is refused or cannot be written."""

    exit_code = 2


class _PathError(TrajcliError, OSError):
    """An error of a path, with the attributes that users of OSError look for."""

    @property
    def filename(self) -> str:
        return str(self.faults[0].where)

    @property
    def strerror(self) -> str:  # type: ignore[override]
        return self.faults[0].what


class MissingFileError(InputError, _PathError, FileNotFoundError):
    """An input file that does not exist."""

    errno = errno.ENOENT


class MissingFolderError(OutputError, _PathError, FileNotFoundError):
    """An output in a folder that does not exist."""

    errno = errno.ENOENT


class ExistingFileError(OutputError, _PathError, FileExistsError):
    """An output whose name is taken."""

    errno = errno.EEXIST


class BusyError(OutputError):
    """An output that another process is writing: try again later."""

    exit_code = 75


class DataError(TrajcliError):
    """Data that failed a check."""

    exit_code = 1


class Stopped(TrajcliError):
    """A signal ended the run before it was done."""

    exit_code = 75


class Cancelled(TrajcliError):
    """Ctrl-C ended a command that writes nothing."""

    exit_code = 130


class Report:
    """Notes, progress and faults of a command: one object from the command line to the readers."""

    def __init__(self, on_progress: Progress | None = None) -> None:
        self.notes: list[str] = []  # remarks for the user, each once, in order
        self._known: set[str] = set()  # the same as a set, since there may be thousands
        self.on_progress: Progress = on_progress or (lambda done, total: None)
        self.began = time.perf_counter()
        self.collected: list[Fault] = []  # to raise together
        # the rows of each trajectory between its idle ends, for JSON
        self.keep_ranges: list[dict[str, object]] = []

    def add_notes(self, *notes: str) -> None:
        # dict.fromkeys keeps the order, and the first of equal remarks
        self.notes += (note for note in dict.fromkeys(notes) if note not in self._known)
        self._known.update(notes)

    @contextmanager
    def attempt(self) -> Iterator[None]:
        """Drops the notes of a block of code that raises an error."""
        known = len(self.notes)
        try:
            yield
        except TrajcliError:
            self._known.difference_update(self.notes[known:])
            del self.notes[known:]
            raise

    @contextmanager
    def faults(self) -> Iterator[None]:
        """Collects the faults of an error in a block of code, and continues after the block."""
        try:
            yield
        except TrajcliError as error:
            if isinstance(error, Stopped):  # a signal ends the command, whatever else is wrong
                raise
            self.collected += error.faults

    def raise_faults(self) -> None:
        # faults that differ only in their place are one: a thousand files give one message
        places: dict[Fault, list[object]] = {}
        for fault in dict.fromkeys(self.collected):
            places.setdefault(replace(fault, where=""), []).append(fault.where)
        self.collected = []
        raise_if_any(replace(fault, where=join_names(where, 1)) for fault, where in places.items())

    @property
    def seconds(self) -> float:
        return time.perf_counter() - self.began


def raise_if_any(faults: Iterable[Fault | None], error: type[TrajcliError] = InputError) -> None:
    """Raises one error that carries all ``faults``, if there are any."""
    collected = tuple(fault for fault in faults if fault is not None)
    if collected:
        raise error(*collected)
