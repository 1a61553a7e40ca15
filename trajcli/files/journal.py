"""What a stopped run leaves beside OUT to be gone on from: how far it came, and arrays."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from trajcli.files.atomic_output import remove

_HEAD = "journal"
"""The array that holds it as text."""


def place_of(path: Path) -> Path:
    """Where the journal of OUT is."""
    return path.parent / f".{path.name}.trajcli-journal"


def write(journal: Path, head: Mapping[str, Any], carried: Mapping[str, Any]) -> None:
    """Leave a head that JSON can hold, and arrays; in one step."""
    fresh = journal.parent / f"{journal.name}-new"
    remove(fresh)
    with open(fresh, "xb") as file:  # never through a link that lies there
        text = np.frombuffer(json.dumps(head).encode(), np.uint8)
        np.savez(file, **{_HEAD: text, **carried})
    os.replace(fresh, journal)


def read(journal: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Head and arrays: none where there is no journal, or what numpy cannot read."""
    import zipfile
    import zlib

    broken = ValueError, LookupError, TypeError, AttributeError, EOFError, MemoryError
    try:
        with open(journal, "rb") as file, np.load(file, allow_pickle=False) as left:
            arrays = {name: left[name] for name in left.files}
        head = json.loads(arrays.pop(_HEAD).tobytes())
    except (OSError, RecursionError, *broken, zipfile.BadZipFile, zlib.error):
        return {}, {}
    return (head, arrays) if isinstance(head, dict) else ({}, {})
