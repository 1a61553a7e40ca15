"""What a stopped run leaves to be gone on from: how far it came, and arrays."""

from __future__ import annotations

import json
import os
import stat
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from trajcli.files.atomic_output import sync

_JOURNAL = "journal"
_HEAD = "head"
"""The array with all that is no array, as JSON."""
_TICK = 0.02
"""Seconds, more than the clock of a file system takes to go on."""


def write_journal(folder: Path, fingerprint: str, done: int, arrays: Mapping[str, Any]) -> None:
    """Bring a folder to the disk and note its files: how many trajectories are done, and arrays."""
    sync(folder)
    head = json.dumps([fingerprint, done, _files(folder)])
    contents: dict[str, Any] = {**arrays, _HEAD: np.array(head)}
    with open(folder / _JOURNAL, "wb") as file:
        np.savez(file, **contents)
    sync(folder / _JOURNAL)
    time.sleep(_TICK)  # what is changed from now on has another time of change


def read_journal(folder: Path, fingerprint: str) -> tuple[int, dict[str, Any]] | None:
    """What was noted; None for another fingerprint, or where anything is not as it was left."""
    path = folder / _JOURNAL
    try:
        if not stat.S_ISREG(os.lstat(path).st_mode):
            return None
        with open(path, "rb") as file, np.load(file, allow_pickle=False) as stored:
            arrays = {name: stored[name] for name in stored.files}
        noted, done, files = json.loads(str(arrays.pop(_HEAD)))
    except Exception:  # whatever a damaged journal leads to
        return None
    return (int(done), arrays) if (noted, files) == (fingerprint, _files(folder)) else None


def _files(folder: Path) -> list[list[Any]]:
    """Name, inode, size and time of change of what is in a folder: whoever writes to a file, cuts
    it or puts another one in its place changes one of them."""
    states = [(p, p.lstat()) for p in sorted(folder.rglob("*")) if p.name != _JOURNAL]
    return [
        [str(path.relative_to(folder)), state.st_ino, state.st_size, state.st_ctime_ns]
        for path, state in states
    ]
