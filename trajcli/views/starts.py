"""The start states that an output says it was computed from, found again."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from trajcli.errors import Fault, InputError
from trajcli.files.arrays import ArrayFile
from trajcli.files.opening import open_arrays
from trajcli.files.schema import QUANTITIES
from trajcli.files.source import parse_source


def find_file(name: str, beside: Path) -> Path | None:
    """The file of this name beside an output, or in the current folder."""
    for folder in (beside.parent, Path()):
        if os.path.isfile(folder / name):
            return folder / name
    return None


def read_start(
    text: str, beside: Path | None, allow_external: bool, untrusted: bool
) -> Mapping[str, Any]:
    """Start states [S, D] by part, as "zero" or FILE[:GROUP] names them; absent parts are 0.

    ``beside``: an output, beside which the file lies, where the text is what that output says.
    Raises InputError where they are not there.
    """
    if text == "zero":
        return {"position": np.zeros((1, 1))}
    source = parse_source(text)
    path: Path | None = source.path
    if beside is not None:
        path = find_file(source.path.name, beside)
    if path is None:
        raise InputError(Fault("not found", text, "the file beside this one, or in this folder"))
    with open_arrays(path, allow_external, untrusted) as file:
        found = _parts(file, (source.dataset or "").strip("/"))
        return {part: np.atleast_2d(np.asarray(v, np.float64)) for part, v in found.items()}


def _parts(file: ArrayFile, name: str) -> dict[str, Any]:
    whole = file.get(name) if name or file.family == "npy" else None
    if whole is not None:
        return {"position": whole.require_numeric().read()}
    for prefix in (f"{name}/", f"{name}_") if name else ("start/", "start_", ""):
        found = {part: file.get(prefix + part) for part in QUANTITIES}
        if found["position"] is not None:
            return {part: v.require_numeric().read() for part, v in found.items() if v is not None}
    raise InputError(file.missing(name or "start/position"))
