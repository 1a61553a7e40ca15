"""--config: defaults for options from a TOML file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import typer

from trajcli.errors import Fault, Gathering, InputError, UsageError


def load_config(context: typer.Context, path: Path | None) -> Path | None:
    """Take defaults from a TOML file: keys are option names, also in a table per command."""
    if path is None:
        return None
    command = context.info_name or ""
    table = _read_toml(path)
    chosen = {key: value for key, value in table.items() if not isinstance(value, dict)}
    tables = {key: value for key, value in table.items() if isinstance(value, dict)}
    chosen.update(tables.get(command, {}))
    by_flag = {
        _plain(flag.lstrip("-")): parameter.name
        for parameter in context.command.params
        if parameter.name
        for flag in parameter.opts
    }
    check = Gathering()
    check.attempt(lambda: _require_tables(tables, path))
    check.attempt(lambda: _require_options(chosen, by_flag, path))
    check.raise_if_any()
    defaults = {by_flag[_plain(key)]: value for key, value in chosen.items()}
    context.default_map = {**(context.default_map or {}), **defaults}
    return path


def _plain(name: str) -> str:
    return name.replace("-", "_")


def _require_tables(tables: dict[str, Any], path: Path) -> None:
    from trajcli.cli.app import COMMANDS

    unknown = [f"[{name}]" for name in tables if name not in COMMANDS]
    if unknown:
        known = ", ".join(f"[{name}]" for name in COMMANDS)
        raise UsageError(Fault("unknown table", f"{path}: {', '.join(unknown)}", f"one of {known}"))


def _require_options(chosen: dict[str, Any], by_flag: dict[str, Any], path: Path) -> None:
    unknown = [key for key in chosen if _plain(key) not in by_flag]
    if unknown:
        known = ", ".join(sorted(flag.replace("_", "-") for flag in by_flag if len(flag) > 1))
        raise UsageError(
            Fault("unknown option", f"{path}: {', '.join(unknown)}", f"one of {known}")
        )


def _read_toml(path: Path) -> dict[str, Any]:
    from trajcli.files.toml import parse_toml

    try:
        data = path.read_bytes()
    except OSError as error:
        reason = error.strerror or str(error)
        raise InputError(Fault("cannot be read", str(path), "a TOML file", reason)) from None
    return parse_toml(data, str(path))
