"""How people name data: FILE, FILE:DATASET, FILE:DATASET@ATTR, and globs of both."""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

_NAMED = r"(?is)(?P<path>.*?\.(?:h5|hdf5|hdf|npy|npz|parquet))(?P<rest>:.*|@.*)?"


class Source(NamedTuple):
    """A file and, where named, a dataset (or pattern, or group) in it and an attribute of that."""

    path: Path
    dataset: str | None = None
    attribute: str | None = None

    def __str__(self) -> str:
        text = str(self.path)
        if self.dataset is not None:
            text += f":{self.dataset}"
        return f"{text}@{self.attribute}" if self.attribute else text


def parse_source(text: str, attributes: bool = False) -> Source:
    """FILE[:DATASET], and @ATTR behind it where ``attributes`` are asked for.

    A file of this very name wins over a reading with a colon.
    """
    if os.path.exists(text):
        return Source(Path(text))
    match = re.fullmatch(_NAMED, text)
    if match:
        path, rest = match["path"], (match["rest"] or "").removeprefix(":")
    else:
        path, colon, rest = text.rpartition(":")
        path, rest = (path, rest) if colon and os.path.exists(path) else (text, "")
    attribute = ""
    if attributes and "@" in rest:
        rest, _, attribute = rest.rpartition("@")
    return Source(Path(path), rest or None, attribute or None)


def expand_files(source: Source) -> list[Source]:
    """One source per file where FILE is a glob that the shell did not expand."""
    return list(each_file(source))


def each_file(source: Source) -> Iterator[Source]:
    """The same one by one: there may be very many."""
    text = str(source.path)
    if os.path.exists(source.path) or not set(text) & set("*?["):
        yield source
        return
    import glob

    paths = sorted(glob.glob(text), key=natural_key)
    for path in paths:
        yield Source(Path(path), source.dataset, source.attribute)
    if not paths:
        yield source


def natural_key(text: str) -> list[tuple[int, int, str]]:
    """Sorts demo_2 before demo_10."""
    parts = re.split(r"(\d+)", text)
    return [(1, int(part), "") if part.isdecimal() else (0, 0, part) for part in parts]


def in_natural_order(names: Sequence[str]) -> list[str]:
    """Names as :func:`natural_key` sorts them; those of thousands of demos alike at once."""
    first, last = min(names, default=""), max(names, default="")  # what these share, all do
    same = itertools.takewhile(lambda pair: pair[0] == pair[1], zip(first, last, strict=False))
    common = len("".join(a for a, _ in same).rstrip("0123456789"))
    if all(name[common:].isdecimal() for name in names):
        return sorted(names, key=lambda name: int(name[common:]))
    return sorted(names, key=natural_key)
