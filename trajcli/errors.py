"""What can go wrong, said once.

    TrajcliError            anything trajcli raises on purpose
    ├── InputError          input that is wrong, missing or unreadable   exit 2  (also a ValueError)
    ├── UsageError          options that do not fit together             exit 2  (also a ValueError)
    ├── OutputError         an output that is refused or cannot be made  exit 2
    ├── DataError           the data failed what was asked of it         exit 1
    ├── Stopped             a signal ended the run                       exit 75
    └── Cancelled           Ctrl-C ended a command that writes nothing   exit 130

Faults are collected as values at the boundary and raised together, so that one run
reports all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, ClassVar


@dataclass(frozen=True)
class Fault:
    """One thing that is wrong: what, where, what was expected, what was found, what to do."""

    what: str
    _: KW_ONLY
    where: str = ""
    expected: str = ""
    found: str = ""
    hint: str = ""

    def lines(self) -> list[str]:
        """The message: a line for each part that says something."""
        parts = {"expected": self.expected, "found": self.found, "try": self.hint}
        more = [f"  {label + ':':<9} {text}" for label, text in parts.items() if text]
        return [f"{self.where}: {self.what}" if self.where else self.what, *more]

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def as_dict(self) -> dict[str, str]:
        """The same, for JSON: only the parts that say something."""
        return {name: text for name, text in vars(self).items() if text}


class TrajcliError(Exception):
    """Base of every error trajcli raises on purpose; carries one or more faults."""

    exit_code: ClassVar[int] = 70

    def __init__(
        self,
        *faults: Fault | str,
        where: str = "",
        expected: str = "",
        found: str = "",
        hint: str = "",
    ) -> None:
        """faults: what is wrong. Of a text, the keywords say the rest, as they do for Fault."""
        rest = {"where": where, "expected": expected, "found": found, "hint": hint}
        self.faults = tuple(
            fault if isinstance(fault, Fault) else Fault(fault, **rest) for fault in faults
        )
        super().__init__("\n".join(str(fault) for fault in self.faults))


class InputError(TrajcliError, ValueError):
    """Input that is wrong, missing or unreadable."""

    exit_code = 2


class UsageError(TrajcliError, ValueError):
    """Options that are unknown or do not fit together."""

    exit_code = 2


class OutputError(TrajcliError):
    """An output that is refused or cannot be written."""

    exit_code = 2


class BusyError(OutputError):
    """An output that another process is writing."""


class DataError(TrajcliError):
    """The data failed what was asked of it."""

    exit_code = 1


class Stopped(TrajcliError):
    """A signal ended the run before it was done."""

    exit_code = 75


class Cancelled(TrajcliError):
    """Ctrl-C ended a command that writes nothing."""

    exit_code = 130


class FaultCollector:
    """Collects the faults of several steps, so that one run reports all of them."""

    def __init__(self) -> None:
        self.faults: list[Fault] = []

    def attempt(self, *steps: Callable[[], Any]) -> list[Any]:
        """The results of the steps; None of one that failed, whose faults are then kept."""
        results: list[Any] = []
        for step in steps:
            try:
                results.append(step())
            except Stopped:
                raise
            except TrajcliError as error:
                self.faults += error.faults
                results.append(None)
        return results

    def raise_if_any(self) -> None:
        """Raise what was collected, each fault once; those that differ in their place alone as one
        with their number."""
        places: dict[Fault, list[str]] = {}
        for fault in dict.fromkeys(self.faults):
            places.setdefault(replace(fault, where=""), []).append(fault.where)
        raise_if_any(
            replace(fault, where=where[0] + (f" and {len(where) - 1} more" if where[1:] else ""))
            for fault, where in places.items()
        )


def raise_if_any(faults: Iterable[Fault], error: type[TrajcliError] = InputError) -> None:
    """Raise one error that carries all ``faults``; do nothing when there are none."""
    collected = tuple(faults)
    if collected:
        raise error(*collected)
