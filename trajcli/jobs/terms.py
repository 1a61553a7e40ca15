"""All that decides the values of a run, in words: what two runs have to agree on."""

from __future__ import annotations

import hashlib
import json
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from trajcli import __version__
from trajcli.files.source import parse_source
from trajcli.jobs.names import without_folders
from trajcli.jobs.request import Request

_FREE = (
    *("out", "overwrite", "resume", "durable", "memory", "device", "backend", "share"),
    *("sources", "untrusted"),
)
_LISTED = 100
_CALLED = {"factor": "grad-factor"}

Stamps = Mapping[str, Sequence[int]]
"""Files by name: size and time of change. Where a machine has them does not matter."""


@dataclass(frozen=True)
class Terms:
    """Version, options by their names on the command line, sources, and the inputs of all units.

    sources: file names and datasets; of very many a digest. inputs: files beside the actions.
    """

    version: str
    options: Mapping[str, str]
    sources: Sequence[str]
    inputs: Stamps

    @staticmethod
    def of(request: Request, backend: str, paths: Sequence[str], shared: Stamps) -> Terms:
        """Those of a request that reads these files, of which some belong to all units."""
        options = {"--backend": backend}
        for field in fields(request):
            value = getattr(request, field.name)
            value = tuple(value) if isinstance(value, list) else value
            if field.name in _FREE or value == field.default or value in ((), {}):
                continue
            name = _CALLED.get(field.name, field.name.replace("_", "-"))
            if isinstance(value, Mapping):
                stem = f"--{name.removesuffix('-parts')}-" if name.endswith("-parts") else "--"
                options |= {stem + key: _text(part, paths) for key, part in value.items()}
            else:
                options[f"--{name}"] = _text(value, paths)
        return Terms(__version__, options, _sources(request, paths), shared)

    @property
    def digest(self) -> str:
        """The same for terms that are the same."""
        text = json.dumps(self.as_dict(), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:32]

    def as_dict(self) -> dict[str, Any]:
        """Plain values."""
        return {name: getattr(self, name) for name in ("version", "options", "sources", "inputs")}

    @staticmethod
    def from_dict(values: Mapping[str, Any]) -> Terms:
        """The terms that :meth:`as_dict` gave."""
        version, options = str(values["version"]), dict(values["options"])
        return Terms(version, options, list(values["sources"]), dict(values["inputs"]))

    def differences(self, other: Terms) -> list[str]:
        """What differs, in words: ``self`` is there, ``other`` here."""
        found = []
        if self.version != other.version:
            found.append(f"trajcli {self.version} there, {other.version} here")
        for name in dict.fromkeys([*self.options, *other.options]):
            there, here = self.options.get(name), other.options.get(name)
            if there != here:
                found.append(f"{_with(name, there)} there, {_with(name, here)} here")
        if self.sources != other.sources:
            there, here = (", ".join(each.sources[:3]) for each in (self, other))
            found.append(f"SOURCE {there} there, {here} here")
        return found + stamp_differences(self.inputs, other.inputs)


def stamps(paths: Sequence[str]) -> dict[str, tuple[str, list[int]]]:
    """For each path what it is called, and its size and time of change in nanoseconds."""
    names = Counter(map(os.path.basename, paths))
    found = {}
    for number, path in enumerate(paths):
        status, name = os.stat(path), os.path.basename(path)
        called = name if names[name] == 1 else f"{name} (file {number})"
        found[path] = (called, [status.st_size, status.st_mtime_ns])
    return found


def stamp_differences(there: Stamps, here: Stamps) -> list[str]:
    """The files that differ, in words."""
    found = []
    for name in dict.fromkeys([*there, *here]):
        old, new = (_stamp(each.get(name)) for each in (there, here))
        if old != new:
            found.append(f"{name}: {old} there, {new} here")
    return found


def _stamp(stamp: Sequence[int] | None) -> str:
    return "not read" if stamp is None else f"{stamp[0]} bytes, changed at {stamp[1]} ns"


def _text(value: Any, paths: Sequence[str]) -> str:
    if isinstance(value, (tuple, list)):
        return ",".join(map(str, value))
    return without_folders(str(value), paths) if len(paths) <= _LISTED else str(value)


def _with(name: str, value: str | None) -> str:
    return f"no {name}" if value is None else name if value == "True" else f"{name} {value}"


def _sources(request: Request, paths: Sequence[str]) -> list[str]:
    sources = [parse_source(text) for text in request.sources]
    named = [f"{each.path.name}:{each.dataset or ''}".rstrip(":") for each in sources]
    named += [os.path.basename(path) for path in paths]
    if len(named) <= _LISTED:
        return named
    digest = hashlib.sha256(json.dumps(named).encode()).hexdigest()[:32]
    return [f"{named[0]} and more, {len(paths)} files ({digest})"]
