"""JSON Schemas of what --json prints: a file for each command, and what they share."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def schema(command: str) -> dict[str, Any]:
    """The schema (draft 2020-12) of every document of a command, with all it refers to."""
    whole, shared = (
        json.loads(Path(__file__).with_name(f"{name}.json").read_text(encoding="utf-8"))
        for name in (command, "shared")
    )
    whole["$defs"] |= shared
    return dict(whole)


def show(command: str) -> None:
    """Print it."""
    from trajcli.cli.console import Console

    text = json.dumps(schema(command), indent=2, ensure_ascii=False)
    Console(as_json=True).data(text + "\n", "schema")
