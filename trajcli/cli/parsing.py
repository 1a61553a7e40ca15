"""What is typed after an option, as values."""

from __future__ import annotations

from typing import Any

from trajcli.errors import Fault, UsageError


def parse_size(text: str) -> int:
    """256MiB, 2GB, 1000000: a number of bytes."""
    units = {"": 1, "B": 1}
    for power, letter in enumerate("KMGT", 1):
        units |= {letter: 1024**power, f"{letter}IB": 1024**power, f"{letter}B": 1000**power}
    stripped = text.strip().upper()
    digits = stripped.rstrip("KMGTIB ")
    try:
        size = int(float(digits) * units[stripped[len(digits) :].strip()])
    except (KeyError, ValueError, OverflowError):
        size = 0
    if size <= 0:
        raise UsageError(Fault("not a size", "--memory", "like 256MiB or 2GB", repr(text)))
    return size


def is_slice(text: str) -> bool:
    """Whether a word can be what follows --rows: 3, 0:10, -5:, or several with commas."""
    return (
        bool(text) and set(text) <= set("0123456789:,+-") and any(c in ":0123456789" for c in text)
    )


def given_options(**values: Any) -> dict[str, Any]:
    """The options of a mode that were given."""
    return {name: value for name, value in values.items() if value is not None}


def split_names(text: str | None) -> list[str]:
    """position,velocity → ["position", "velocity"]."""
    return [part.strip() for part in (text or "").split(",") if part.strip()]


def parse_shard(text: str | None) -> bool:
    """Whether the share is to be found in the environment."""
    if text not in (None, "auto"):
        raise UsageError(Fault("not a share", "--shard", "auto", repr(text)))
    return text == "auto"


def parse_numbers(text: str | None, option: str) -> tuple[int, ...]:
    """3,5 → (3, 5)."""
    parts = split_names(text)
    if not all(part.isdecimal() for part in parts):
        raise UsageError(Fault("not numbers of dofs", option, "like 3,5", repr(text)))
    return tuple(int(part) for part in parts)
