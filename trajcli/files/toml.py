"""Reading TOML, with whichever reader this Python has."""

from __future__ import annotations

from typing import Any

from trajcli.errors import Fault, InputError, UsageError


def parse_toml(data: bytes, where: str) -> dict[str, Any]:
    """The table that a TOML document is; raises InputError where it is none."""
    try:
        import tomllib
    except ImportError:  # Python 3.10
        try:
            import tomli as tomllib
        except ImportError:
            hint = "pip install tomli, or use Python 3.11 or later"
            raise UsageError(Fault("no reader for TOML here", where, hint=hint)) from None
    try:
        table: dict[str, Any] = tomllib.loads(data.decode("utf-8"))
        return table
    except (ValueError, RecursionError) as error:
        raise InputError(Fault("cannot be read", where, "a TOML file", str(error))) from None
