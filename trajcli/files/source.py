"""Parses the names of data: FILE, FILE:DATASET, FILE:DATASET@ATTR, and globs of both."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from trajcli.errors import UsageError

ENDINGS = (
    "h5|hdf5|hdf|npy|npz|parquet|csv|tsv|txt|mot|sto|zarr|zarr\\.zip|bag|db3|mcap|pt|pth|mat"
    "|jsonl|ndjson|json"
    "|yaml|yml"
)
_NAMED = rf"(?is)(?P<path>.*?\.(?:{ENDINGS}))(?P<rest>:.*|@.*)?"
# Runs of digits, by which names are sorted as people count.
_DIGITS = re.compile(r"(\d+)")
ONE_SOURCE = ("zarr.json", ".zgroup", ".zarray")
"""Files one of which marks a folder as a Zarr store."""


@dataclass(frozen=True)
class Place:
    """A place that values come from: a file, a dataset or group in it, and one of its attributes.

    Messages print a place as text; code compares and changes its fields, and never parses the text.

    path: the file; "" for values that no file holds, such as those of an option. name: the dataset
    or group as messages show it behind the path, "/data/demo_0". remark: text behind all that, such
    as ", in ms"; without a file, the whole text. title: text in front, such as "time stamps ".
    """

    path: str = ""
    name: str = ""
    attribute: str = ""
    remark: str = ""
    title: str = ""

    def __str__(self) -> str:
        name = f":{self.name}" if self.name else ""
        attribute = f"@{self.attribute}" if self.attribute else ""
        return f"{self.title}{self.path}{name}{attribute}{self.remark}"

    @property
    def last(self) -> str:
        """The last part of the name: the dataset without its groups."""
        return self.name.rpartition("/")[2]

    def __bool__(self) -> bool:
        return self != Place()

    def with_remark(self, text: str) -> Place:
        return replace(self, remark=self.remark + text)

    def relative_text(self, folder: str) -> str:
        """Prints the place with its path relative to a folder, as outputs have it."""
        return str(replace(self, path=relative_path(self.path, folder)) if self.path else self)


def first_and_more(places: Iterable[Place]) -> Place:
    """Summarizes places as the first of them, and how many others there are."""
    first, *others = dict.fromkeys(places)
    return first.with_remark(f" and {len(others)} more") if others else first


class Source(NamedTuple):
    """A file and, if named, a dataset, pattern or group in it and an attribute of that."""

    path: Path
    dataset: str | None = None
    attribute: str | None = None
    dofs: str | None = None
    """The slice of dofs: ":7" in FILE:DATASET[:7]."""

    @property
    def place(self) -> Place:
        dofs = "" if self.dofs is None else f"[{self.dofs}]"
        if self.dataset is None:
            return Place(str(self.path), "", self.attribute or "", dofs)
        return Place(str(self.path), self.dataset + dofs, self.attribute or "")

    def __str__(self) -> str:
        return str(self.place)


def parse_source(text: str, attributes: bool = False) -> Source:
    """Parses FILE[:DATASET], which may end in a slice of dofs or, with ``attributes``, in @ATTR."""
    if text == "-":
        hint = "write it to a file first: ... > actions.npy"
        raise UsageError(
            "standard input is not read", where="SOURCE -", expected="a file", hint=hint
        )
    if re.match(r"[A-Za-z][A-Za-z0-9+.-]+://", text):
        # the hint names the usual command of each store; hf takes OWNER/NAME of
        # hf://datasets/OWNER/NAME/PATH
        name = "/".join(re.sub("(?i)^hf://(datasets/)?", "", text).split("/")[:2])
        lines = {"s3": f"aws s3 cp {text} .", "gs": f"gcloud storage cp {text} .",
                 "hf": f"hf download --repo-type dataset {name}"}  # fmt: skip
        line = lines.get(text.split(":")[0].lower(), f"curl -LO {text}")
        hint = f"{line} downloads it, which no command here does"
        raise UsageError("a URL, not a file", where=text, expected="a file on a disk", hint=hint)
    text = os.path.expanduser(text)
    if os.path.exists(text):  # a file of this name comes first
        return Source(Path(text))
    # a slice of dofs ends the text; other brackets may be part of a name
    sliced = re.fullmatch(r"(?s)(.*)\[(-?[0-9]{0,9}:-?[0-9]{0,9})\]", text)
    dofs = None
    if sliced is not None and ":" in sliced[1]:
        text, dofs = sliced.groups()
    # the path is the shortest text that ends as files do: a dataset may be called x.npy, too
    match = re.fullmatch(_NAMED, text)
    if match:
        path, rest = match["path"], (match["rest"] or "").removeprefix(":")
    else:
        path, colon, rest = text.rpartition(":")
        path, rest = (path, rest) if colon and os.path.exists(path) else (text, "")
    attribute = ""
    if attributes and "@" in rest:
        rest, _, attribute = rest.rpartition("@")
    return Source(Path(path), rest or None, attribute or None, dofs)


def expand_files(source: Source) -> list[Source]:
    """Expands a glob, or the folder of a data set, to one source per file, in natural order."""
    text = str(source.path)
    if not os.path.isdir(text):
        return expand_pattern(source) or [source]
    # files that mark a data set, the most specific first, and patterns of its trajectories:
    # LeRobot, Minari, a ROS 2 bag, and a Zarr store, which is one source
    marks: list[tuple[str, tuple[str, ...]]] = [
        ("meta/info.json", ("data/*/*.parquet",)),
        ("data/main_data.hdf5", ("data/main_data.hdf5",)),
        ("metadata.yaml", ("*.mcap", "*.db3")),
        *((name, ()) for name in ONE_SOURCE),
    ]
    # robomimic, ManiSkill and others have files side by side, and no such mark
    side_by_side = ("*.h5", "*.hdf5")
    known = (files for mark, files in marks if os.path.isfile(os.path.join(text, mark)))
    patterns = next(known, side_by_side)
    return _match_files(source, [os.path.join(glob.escape(text), name) for name in patterns])


def is_pattern(source: Source) -> bool:
    """Whether FILE is a glob that the shell did not expand, and not the name of a file."""
    text = str(source.path)
    return bool(set(text) & set("*?[")) and not os.path.exists(text)


def expand_pattern(source: Source) -> list[Source]:
    """Lists a source for each file that a glob matches, in natural order; none without a glob."""
    return _match_files(source, [str(source.path)]) if is_pattern(source) else []


def _match_files(source: Source, patterns: Iterable[str]) -> list[Source]:
    """Lists a source for each file that a pattern matches; if none does, the source itself."""
    paths = natural_order(path for pattern in patterns for path in glob.glob(pattern))
    return [Source(Path(path), *source[1:]) for path in paths] or [source]


def natural_order(names: Iterable[str]) -> list[str]:
    """Sorts names so that demo_2 comes before demo_10."""
    return sorted(names, key=natural_key)


def natural_key(text: str) -> list[Any]:
    """Makes a sort key that compares runs of digits, of any length, as whole numbers."""
    parts: list[Any] = _DIGITS.split(text)  # text, digits, text, …
    # of two numbers without leading zeros, the one with more digits is larger
    significant = [digits.lstrip("0") for digits in parts[1::2]]
    parts[1::2] = [(len(digits), digits) for digits in significant]
    return parts


def relative_path(text: str, folder: str) -> str:
    """Writes FILE[:DATASET] relative to a folder."""
    # links among the folders are followed first: .. leads to the parent of what a link points to,
    # not to the folder that holds the link
    head, tail = os.path.split(os.path.expanduser(text))
    return os.path.join(_relative_folder(head, folder), tail).removeprefix("./")


@lru_cache(maxsize=256)
def _relative_folder(path: str, folder: str) -> str:
    return os.path.relpath(os.path.realpath(path), folder)
