"""What the user asks for, as plain values: one field per option, nothing looked up yet."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, ClassVar

from trajcli import __version__
from trajcli.files.quantities import QUANTITIES
from trajcli.files.reading import Reading, Repair
from trajcli.files.source import (
    Source,
    expand_files,
    expand_pattern,
    is_pattern,
    parse_source,
    relative_path,
)
from trajcli.files.states import parse_floats
from trajcli.jobs.shards import Shard
from trajcli.memory import memory_bound

_NOT_STORED = {
    *("out", "overwrite", "memory", "device", "backend", "shard"),
    *("allow_external"),
}
"""Fields that do not shape the result, and those that say what is trusted."""
_PATHS = ("dt", "times", "at", "start", "start_index", "goal", "grad")
"""Fields that may name a file, besides ``sources``."""


@dataclass(frozen=True)
class SourceRequest(Reading, Repair):
    """What all commands that read trajectories and write OUT take, as typed."""

    sources: Sequence[str]
    out: Path
    overwrite: bool = False

    def to_json(self) -> str:
        """What shapes the result, as one JSON text; paths are relative to OUT's folder, and those
        of all files that a pattern stands for. Bytes that are no text are escaped.

        Of a command other than integrate it has the name.
        """
        folder, defaults = os.path.realpath(self.out.parent), vars(type(self)([], Path()))
        chosen = {
            name: relative_path(str(value), folder) if isinstance(value, Path) else value
            for name, value in vars(self).items()
            if name not in _NOT_STORED and value != defaults[name]
        }
        chosen["sources"] = [
            named
            for text in self.sources
            for named in map(str, expand_pattern(parse_source(text)) or (text,))
        ]
        moved = _with_paths(chosen, lambda text: relative_path(text, folder))
        if command := type(self).__name__.removesuffix("Request").lower():
            moved["command"] = command
        text = json.dumps(moved, sort_keys=True, ensure_ascii=False)
        return re.sub("[\ud800-\udfff]", lambda byte: f"\\u{ord(byte[0]):04x}", text)

    def attributes(self, texts: Mapping[str, Any], paths: Iterable[str]) -> dict[str, Any]:
        """What an output states: these, with the paths in them as they are seen from its folder,
        the version and the request."""
        stated = relative_texts(texts, paths, self.out)
        return {**stated, "trajcli_version": __version__, "request": self.to_json()}


@dataclass(frozen=True)
class Request(SourceRequest):
    """An integrate run. ``dt``, ``start``, ``goal`` and their like are as typed.

    mode: None takes the one that the file states, else acceleration. dtype: None takes that of
    the input.
    """

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
    allow_nonfinite: bool = False
    skip_bad: bool = False
    shard: Shard | None = None
    recorded: ClassVar[bool] = False
    """Whether the actions are recorded positions, with no start state of their own."""

    @staticmethod
    def from_json(text: str, folder: Path) -> Request:
        """The request of an output in this folder. Raises ValueError for what is none, and where a
        pattern stands for files: a file may not have any folder searched."""
        values = json.loads(text)
        os.fsencode(json.dumps(values, ensure_ascii=False))  # a ValueError of half a character
        stored = {f.name: str(f.type) for f in fields(Request) if f.name not in _NOT_STORED}
        if not isinstance(values, dict) or "sources" not in values or "\\u0000" in text:
            raise ValueError("not a request")
        kind = DifferentiateRequest if values.get("command") == "differentiate" else Request
        values = {
            name: value for name, value in values.items() if name != "command" or kind is Request
        }
        if not all(
            name in stored and _is_of(value, stored[name]) for name, value in values.items()
        ):
            raise ValueError("not a request of this version")
        moved = _with_paths(values, lambda text: os.path.join(folder, text))
        if any(is_pattern(parse_source(text)) for text in moved["sources"]):
            raise ValueError("a pattern")
        return kind(out=Path(folder), **moved)

    def expanded(self) -> list[Source]:
        """The sources, one for each file; patterns are expanded, without opening any."""
        return [source for text in self.sources for source in expand_files(parse_source(text))]

    def source_paths(self) -> list[str]:
        """The files that the sources name, in their order."""
        return list(dict.fromkeys(os.fspath(source.path) for source in self.expanded()))

    def paths(self) -> list[str]:
        """All files that it names."""
        named = [parse_source(text, attributes=True) for text in self._named_files]
        more = [os.fspath(source.path) for source in named]
        return list(dict.fromkeys([*self.source_paths(), *more]))

    @property
    def path(self) -> Path:
        """What this process writes: OUT, or the part of a shard."""
        return self.out if self.shard is None else self.shard.path(self.out)

    @property
    def shares_all(self) -> bool:
        """Whether no option picks trajectories by their number, or gives them values of their
        own."""
        return self.episodes is None and not self._named_files

    @property
    def _named_files(self) -> list[str]:
        """The options that name a file, as typed."""
        texts = [getattr(self, name, None) for name in _PATHS]
        return [text for text in texts if text is not None and not is_value(text)]


class DifferentiateRequest(Request):
    """A differentiate run: of recordings, by a method, which is its ``mode`` (None: smooth)."""

    recorded: ClassVar[bool] = True


def _is_of(value: Any, kind: str) -> bool:
    """Whether a value of a file, which may hold anything, is of a field's type."""
    if kind.startswith("Sequence"):
        return isinstance(value, list) and all(isinstance(v, str) for v in value)
    kinds: dict[str, Any] = {
        "str": str, "bool": bool, "int": int, "float": (int, float), "Mapping": dict
    }  # fmt: skip
    return isinstance(value, kinds.get(re.split(r"\W", kind)[0], ()))


def fingerprint(request: Request) -> str:
    """Returns a hash that is equal for two runs that give the same output: of the request, of this
    version, and of the name, size and time of change of each input."""
    import hashlib  # which loads OpenSSL: a plain run does without

    folder = os.path.realpath(request.out.parent)
    inputs = []
    for path in request.paths():
        with suppress(OSError):  # what is not there is said when it is read
            status = os.stat(path)
            inputs.append((relative_path(path, folder), status.st_size, status.st_mtime_ns))
    text = json.dumps([request.to_json(), __version__, sorted(inputs)])
    return hashlib.sha256(text.encode()).hexdigest()


def is_value(text: str) -> bool:
    """Whether a start, goal or dt is a word or numbers, not a file."""
    return text == "zero" or parse_floats(text) is not None


def _with_paths(values: dict[str, Any], move: Callable[[str], str]) -> dict[str, Any]:
    """The same with the paths among the values moved."""
    moved = dict(values, sources=[move(text) for text in values["sources"]])
    for name in _PATHS:
        text = moved.get(name)
        if isinstance(text, str) and not is_value(text):
            moved[name] = move(text)
    return moved


def relative_texts(texts: Mapping[str, Any], paths: Iterable[str], out: Path) -> dict[str, Any]:
    """Attributes of an output with the paths in their texts as they are seen from its folder."""
    folder = os.path.realpath(out.parent)
    whole = "\n".join(value for value in texts.values() if isinstance(value, str))
    present = sorted({path for path in paths if path and path in whole}, key=len, reverse=True)
    if not present:
        return dict(texts)
    pattern = re.compile("|".join(map(re.escape, present)))  # in one pass: one may end like another
    return {
        name: pattern.sub(lambda found: relative_path(found[0], folder), value)
        if isinstance(value, str)
        else value
        for name, value in texts.items()
    }
