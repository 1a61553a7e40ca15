"""Reading TOML: configuration and limits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from trajcli.errors import Fault, InputError, UsageError


def read_toml(path: Path, option: str) -> dict[str, Any]:
    """A TOML file as a table; ``option`` is what named it, for messages."""
    try:
        import tomllib
    except ImportError:  # Python 3.10
        try:
            import tomli as tomllib
        except ImportError:
            hint = "pip install tomli, or use Python 3.11 or later"
            raise UsageError(Fault("no reader for TOML here", option, hint=hint)) from None
    try:
        with open(path, "rb") as file:
            table: dict[str, Any] = tomllib.load(file)
            return table
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InputError(Fault("cannot be read", str(path), "a TOML file", reason)) from None
