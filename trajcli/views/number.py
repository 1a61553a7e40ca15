"""One number of a file, for scripts."""

from __future__ import annotations

from typing import Any

import numpy as np

from trajcli.checks import describe
from trajcli.errors import Fault, InputError
from trajcli.files.opening import open_arrays
from trajcli.files.source import Source
from trajcli.views.selection import parse_value


def read_number(source: Source, text: str, allow_external: bool, untrusted: bool) -> float | int:
    """The number that NAME[i, j, k] names in a file; a dataset named by the source goes before.

    The one array of a .npy has no name; it may be called as the file.
    Raises InputError where it is not there or not one number; UsageError for other texts.
    """
    wanted = parse_value(text)
    name = "/".join(part for part in (source.dataset or "", wanted.name) if part)
    with open_arrays(source.path, allow_external, untrusted) as file:
        if name == source.path.name and file.names() == [""]:
            name = ""
        stored = file.require(name).require_numeric()
        if len(wanted.index) != stored.ndim:
            example = f"{name}[{', '.join('0' for _ in stored.shape)}]".replace(" ", "")
            raise InputError(
                Fault(
                    "not one number",
                    f"{stored.where}, {text}",
                    f"an index for each of {describe(stored.shape)}, like {example}",
                    f"{len(wanted.index)} indices",
                )
            )
        faults = [
            Fault(
                "out of range", f"{stored.where}, {text}", f"-{n} to {n - 1} on axis {axis}", str(i)
            )
            for axis, (i, n) in enumerate(zip(wanted.index, stored.shape, strict=True))
            if not -n <= i < n
        ]
        if faults:
            raise InputError(*faults)
        at = [i % n for i, n in zip(wanted.index, stored.shape, strict=True)]
        return _plain(_read(stored, at))


def _read(stored: Any, at: list[int]) -> Any:
    if not at:
        return stored.read()
    if len(at) == 1:
        return stored.read_rows(at[0], at[0] + 1)[0]
    window = stored.read_part(at[0], at[0] + 1, at[1], at[1] + 1)
    inner = (0, 0, *at[2:])
    return window[inner]


def _plain(value: Any) -> float | int:
    """A number that prints with as many digits as its type has."""
    number = np.asarray(value).ravel()[0]
    if number.dtype.kind in "iu":
        return int(number)
    return float(str(number)) if number.dtype.itemsize < 8 else float(number)
