"""What the user asks for, as plain values: one field per option, nothing looked up yet."""

from __future__ import annotations

import bisect
import itertools
import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, ClassVar

from trajcli import __version__
from trajcli.errors import UsageError
from trajcli.files.quantities import QUANTITIES
from trajcli.files.reading import Reading, Repair, parse_floats
from trajcli.files.source import (
    Place,
    expand_files,
    expand_pattern,
    is_pattern,
    parse_source,
    relative_path,
)
from trajcli.memory import memory_bound

# Fields that do not shape the result. allow_external says which links are trusted: a file must not
# extend that when its request is run again.
_NOT_STORED = {"out", "overwrite", "memory", "device", "backend", "shard", "allow_external"}
# Fields that may name a file, in addition to ``sources``.
_PATHS = ("dt", "times", "at", "start", "start_index", "goal", "grad")


@dataclass(frozen=True)
class Shard:
    """Shard ``index``, from 0, of ``count``."""

    index: int
    count: int

    def share(self, count: int) -> tuple[int, int]:
        """Computes the first of its trajectories, of ``count``, and the one after the last."""
        # ⌊kB/N⌋ to ⌊(k+1)B/N⌋: shares differ by one trajectory at most, and may be empty
        return self.index * count // self.count, (self.index + 1) * count // self.count

    def __str__(self) -> str:
        return f"{self.index}/{self.count}"


@dataclass(frozen=True)
class SourceRequest(Reading, Repair):
    """The options that every command takes that reads trajectories and writes OUT, as typed."""

    sources: Sequence[str]
    out: Path
    overwrite: bool = False
    skip_bad: bool = False
    allow_nonfinite: bool = False
    shard: Shard | None = None

    @property
    def path(self) -> Path:
        """The file that this process writes: OUT, or the part of a shard."""
        if self.shard is None:
            return self.out
        return parts_folder(self.out) / f"{self.shard.index:05}-of-{self.shard.count:05}.h5"

    def to_json(self) -> str:
        """Writes everything that shapes the result as one JSON text."""
        # Paths are relative to OUT's folder, and patterns are replaced by the files that they
        # match. Defaults are left out, so that options of later versions change no stored request.
        folder, defaults = self.folder, vars(type(self)([], Path()))
        chosen = {
            name: relative_path(str(value), folder) if isinstance(value, Path) else value
            for name, value in vars(self).items()
            if name not in _NOT_STORED and value != defaults[name]
        }
        sources = (expand_pattern(parse_source(text)) or (text,) for text in self.sources)
        chosen["sources"] = [*map(str, itertools.chain.from_iterable(sources))]
        stored = _move_paths(chosen, lambda text: relative_path(text, folder))
        if command := type(self).__name__.removesuffix("Request").lower():
            stored["command"] = command
        text = json.dumps(stored, sort_keys=True, ensure_ascii=False)
        # Python reads a byte of a file name that is no UTF-8 as half of a surrogate pair
        return re.sub("[\ud800-\udfff]", lambda byte: f"\\u{ord(byte[0]):04x}", text)

    @property
    def folder(self) -> str:
        """The folder of OUT. Paths in an output are relative to it."""
        return os.path.realpath(self.out.parent)

    def attributes(self, stated: Mapping[str, Any], left_out: Sequence[Any]) -> dict[str, Any]:
        """Collects the attributes of an output: ``stated`` ones, version, and request."""
        # without --skip-bad, a request that left nothing out gives the same
        request = self if left_out else replace(self, skip_bad=False)
        seen = {
            name: value.relative_text(self.folder) if isinstance(value, Place) else value
            for name, value in stated.items()
        }
        return {**seen, "trajcli_version": __version__, "request": request.to_json()}


@dataclass(frozen=True)
class Request(SourceRequest):
    """The options of an integrate run, as typed."""

    absolute: str | None = None
    actions: str | None = None
    mode: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    rotation_frame: str = "world"
    start: str | None = None
    start_index: str | None = None
    goal: str | None = None
    grad: str | None = None
    cost: str | None = None
    factor: float | None = None
    write: Sequence[str] = QUANTITIES
    dtype: str | None = None
    device: str = "auto"
    backend: str = field(default_factory=lambda: os.environ.get("TRAJCLI_BACKEND") or "auto")
    memory: int = field(default_factory=memory_bound)
    compress: int | None = None
    recorded: ClassVar[bool] = False
    """Whether the actions are recorded positions, with no start state of their own."""

    @staticmethod
    def from_json(text: str, folder: Path) -> Request:
        """Reads the request of an output in this folder; raises ValueError for any other text."""
        values = json.loads(text)
        # half of a surrogate pair cannot be part of a path: UnicodeEncodeError is a ValueError
        os.fsencode(json.dumps(values, ensure_ascii=False))
        if not isinstance(values, dict) or "sources" not in values or "\\u0000" in text:
            raise ValueError("not a request")
        kind = DifferentiateRequest if values.get("command") == "differentiate" else Request
        if kind is not Request:
            del values["command"]
        # a file may hold anything: every value must have the type of its field
        types = {f.name: str(f.type) for f in fields(Request) if f.name not in _NOT_STORED}
        classes: dict[str, Any] = {
            "str": str, "bool": bool, "int": int, "float": (int, float), "Mapping": dict
        }  # fmt: skip
        for name, value in values.items():
            if types.get(name, "").startswith("Sequence"):
                valid = isinstance(value, list) and all(isinstance(v, str) for v in value)
            else:
                valid = isinstance(value, classes.get(re.split(r"\W", types.get(name, ""))[0], ()))
            if not valid:
                raise ValueError("not a request of this version")
        moved = _move_paths(values, lambda text: os.path.join(folder, text))
        # stored requests name every file: one must not make trajcli search folders
        states = (moved.get(role) or "zero" for role in ("start", "goal"))
        if any(is_pattern(parse_source(text)) for text in (*moved["sources"], *states)):
            raise ValueError("a pattern")
        return kind(out=Path(folder), **moved)

    def source_paths(self) -> list[str]:
        """Lists the paths of the files that the sources name, in their order; opens none."""
        files = (file for text in self.sources for file in expand_files(parse_source(text)))
        return list(dict.fromkeys(os.fspath(file.path) for file in files))

    def paths(self) -> list[str]:
        others = (parse_source(text, attributes=True).path for text in self._file_options)
        return list(dict.fromkeys([*self.source_paths(), *map(os.fspath, others)]))

    def files_of_shard(self) -> list[str] | None:
        """Lists the files that the shard reads; None where the trajectories are divided instead."""
        # options that count trajectories, or list values for them, count through all files
        if self.shard is None or self.episodes is not None or self._file_options or self.window:
            return None
        files = [file for text in self.sources for file in expand_files(parse_source(text))]
        try:
            sizes = [os.stat(file.path).st_size for file in files]
        except OSError:
            return None  # a file that cannot be read is reported when it is opened
        # not with fewer files than shards, nor with a file that is named twice
        if len({file.path for file in files}) < max(self.shard.count, len(files)):
            return None
        return [str(files[k]) for k in shard_files(sizes, self.shard)]

    @property
    def _file_options(self) -> list[str]:
        texts = [getattr(self, name, None) for name in _PATHS]
        return [text for text in texts if text is not None and not is_value(text)]


class DifferentiateRequest(Request):
    """A differentiate run: of recordings, by a method, which is its ``mode`` (None: smooth)."""

    recorded: ClassVar[bool] = True


def parse_shard(text: str) -> Shard:
    """Reads I/N, with I below N."""
    match = re.fullmatch("([0-9]{1,9})/([0-9]{1,9})", text.strip())
    index, count = map(int, match.groups()) if match else (0, 0)
    if index >= count:
        expected = f"0/{count} to {count - 1}/{count}" if count else "I/N, like 0/64 to 63/64"
        raise UsageError("not a shard", where="--shard", expected=expected, found=repr(text))
    return Shard(index, count)


def shard_files(sizes: Sequence[int], shard: Shard) -> range:
    """Divides files among shards by their ``sizes``; returns the indices of the files of one."""
    # shard k ends with the file in which the share (k + 1) / count of all bytes ends, but leaves
    # one file for each shard after it
    ends = list(itertools.accumulate(sizes))
    bounds = [0]
    for index in range(1, shard.count):
        middle = bisect.bisect_left(ends, ends[-1] * index / shard.count) + 1
        last = len(sizes) - (shard.count - index)
        bounds.append(min(max(middle, bounds[-1] + 1), last))
    bounds.append(len(sizes))
    return range(bounds[shard.index], bounds[shard.index + 1])


def parts_folder(out: Path) -> Path:
    """Names the folder of the parts of OUT; OUT may be this folder."""
    return out if out.name.endswith(".parts") else out.parent / f"{out.name}.parts"


def is_value(text: str) -> bool:
    """Tells a start, goal or dt of "zero" or numbers from the name of a file."""
    return text == "zero" or parse_floats(text) is not None


def _move_paths(values: dict[str, Any], move: Callable[[str], str]) -> dict[str, Any]:
    moved = dict(values, sources=[move(text) for text in values["sources"]])
    for name in _PATHS:
        text = moved.get(name)
        if isinstance(text, str) and not is_value(text):
            moved[name] = move(text)
    return moved
