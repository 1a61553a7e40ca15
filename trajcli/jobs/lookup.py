"""Finding start state, goal, dt and names: where the user says, else in the file itself."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from trajcli.errors import Fault, InputError, UsageError
from trajcli.files.arrays import ArrayFile, StoredArray, text_of
from trajcli.files.opening import open_arrays
from trajcli.files.schema import QUANTITIES
from trajcli.files.source import Source, expand_files, parse_source
from trajcli.jobs.batch import gliding

RATE_ATTRIBUTES = ("control_freq", "rate", "frequency", "fps", "hz")
"""Attributes in which files give steps per second."""


class Files:
    """The files of a job, each opened once."""

    def __init__(self, allow_external: bool = False, untrusted: bool = False) -> None:
        self._options = (allow_external, untrusted)
        self._open: dict[str, ArrayFile] = {}

    def open(self, source: Source) -> ArrayFile:
        """The open file of a source."""
        key = str(source.path)
        if key not in self._open:
            self._open[key] = open_arrays(source.path, *self._options)
        return self._open[key]

    def paths(self) -> list[str]:
        """Every file that was opened, also those that a file led to."""
        return [*self._open, *(path for file in self._open.values() for path in file.outside)]

    def array(self, text: str) -> StoredArray:
        """The dataset that FILE[:DATASET] names."""
        source = parse_source(text)
        file = self.open(source)
        names = file.names() if source.dataset is None else []
        if source.dataset is None and len(names) == 1:
            return file.require(names[0]).require_numeric()
        if source.dataset is None:
            raise InputError(file.missing(""))
        return file.require(source.dataset).require_numeric()

    def close(self) -> None:
        """Close all files."""
        for file in self._open.values():
            file.close()


@dataclass(frozen=True)
class Place:
    """A dataset of actions and where its companions are looked for: its group, then the root."""

    file: ArrayFile
    array: StoredArray
    groups: Sequence[str]

    @property
    def name(self) -> str:
        """What the actions are called in messages."""
        return self.array.where

    def find(self, *names: str) -> StoredArray | None:
        """The first of these datasets there is, near the actions first."""
        for group in self.groups:
            for name in names:
                found = self.file.get(group + name)
                if found is not None:
                    return found.require_numeric()
        return None

    def attribute(self, *names: str) -> tuple[str, Any] | None:
        """The first of these attributes, on the actions or a group; with where it was."""
        holders = [(self.array.where, self.array.attributes)]
        for group in self.groups:
            where = f"{self.file.path}:/{group.rstrip('/')}"
            holders.append((where, self.file.attributes(group)))
        for name in names:
            for where, attributes in holders:
                if name in attributes:
                    return f"{where}@{name}", attributes[name]
        return None


def find_actions(files: Files, sources: Sequence[str]) -> list[Place]:
    """Every dataset of actions the sources name, in order."""
    if not sources:
        raise UsageError(Fault("no SOURCE", "SOURCE", "one or more of FILE[:DATASET]", "none"))
    places = []
    for text in sources:
        for source in expand_files(parse_source(text)):
            file = files.open(source)
            if source.dataset is None:
                names = [""] if file.family == "npy" else ["actions"]
            else:
                names = file.match(source.dataset)
            for name in names:
                inner = f"{name.strip('/')}/actions"
                if file.has_group(name) and name and file.get(inner) is not None:
                    name = inner
                group = name.strip("/").rpartition("/")[0]
                groups = [f"{group}/", ""] if group else [""]
                places.append(Place(file, file.require(name), groups))
    return places


def find_state(
    files: Files, role: str, given: str | None, parts: Mapping[str, str], places: Sequence[Place]
) -> tuple[dict[str, Any], dict[str, str], str]:
    """The parts of a start or goal state, the name of each, and where they came from.

    ``given`` is zero or FILE[:GROUP or :DATASET]; without it the files of the actions are asked.
    """
    found: dict[str, Any] = {}
    origin = "none"
    if given == "zero":
        found, origin = {"position": np.zeros((1, *places[0].array.shape[-1:]))}, "zero"
    elif given is not None:
        found, origin = _state_from(files, role, given), given
    elif not parts:
        found = _state_beside(role, places)
        where = getattr(found.get("position"), "where", "each input's own")
        origin = where.removesuffix("/position") if found else "none"
    for part, text in parts.items():
        found[part] = files.array(text)
        origin = ", ".join(parts.values()) if given is None else f"{origin}, {text}"
    names = {f"{role}/{part}": getattr(v, "where", role) for part, v in found.items()}
    return {part: _states(values) for part, values in found.items()}, names, origin


def _state_from(files: Files, role: str, given: str) -> dict[str, Any]:
    source = parse_source(given)
    file = files.open(source)
    if file.family == "npy":
        return {"position": files.array(given)}
    prefixes = [f"{role}/", f"{role}_", ""]
    if source.dataset is not None:
        name = source.dataset.strip("/")
        whole = file.get(name)
        if whole is not None:
            return {"position": whole.require_numeric()}
        prefixes = [f"{name}/", f"{name}_", f"{name}/{role}/", f"{name}/{role}_"]
    for prefix in prefixes:
        found = {part: file.get(prefix + part) for part in QUANTITIES}
        if found["position"] is not None:
            return {part: v.require_numeric() for part, v in found.items() if v is not None}
    raise InputError(file.missing(source.dataset or f"{role}/position"))


def _state_beside(role: str, places: Sequence[Place]) -> dict[str, Any]:
    """The state stored with the actions; of many datasets, one after the other."""
    tables = []
    for place in places:
        found = {part: place.find(f"{role}/{part}", f"{role}_{part}") for part in QUANTITIES}
        tables.append({part: values for part, values in found.items() if values is not None})
    if len(places) == 1 or not any(tables):
        return tables[0]
    joined = {}
    for part in QUANTITIES:
        having = [place for place, table in zip(places, tables, strict=True) if part in table]
        if having and len(having) < len(places):
            lacking = next(p for p, t in zip(places, tables, strict=True) if part not in t)
            what = f"{role} {part} in some of the inputs only"
            raise InputError(Fault(what, lacking.array.where, f"as in {having[0].array.where}"))
        if having:
            blocks = [_one_per_trajectory(t[part], p) for p, t in zip(places, tables, strict=True)]
            joined[part] = np.concatenate(blocks)
    return joined


def _one_per_trajectory(values: StoredArray, place: Place) -> Any:
    states = np.atleast_2d(values.read())
    count = place.array.shape[0] if place.array.ndim == 3 else 1
    if len(states) not in (1, count):
        expected = f"{count}, one per trajectory of {place.name}, or one for all"
        raise InputError(
            Fault("states and trajectories differ", values.where, expected, str(len(states)))
        )
    return np.broadcast_to(states, (count, states.shape[1])) if len(states) == 1 else states


def _states(values: Any) -> Any:
    """[D] as [1, D]; what is small is read now."""
    if isinstance(values, StoredArray):
        if values.ndim == 2 and values.nbytes > EAGER_BYTES:
            return values
        values = values.read()
    return values[None] if values.ndim == 1 else values


EAGER_BYTES = 8 << 20
"""What is larger is read block by block."""


def find_dt(
    files: Files, dt: str | None, rate: float | None, times: str | None, places: Sequence[Place]
) -> tuple[Any, Any, str, dict[str, str]]:
    """dt, time stamps (one of them, or neither), where it came from, and names for messages."""
    given = [
        name
        for name, value in (("--dt", dt), ("--rate", rate), ("--times", times))
        if value is not None
    ]
    if len(given) > 1:
        raise UsageError(Fault("more than one time step", " and ".join(given), "one of them"))
    if dt is not None:
        return _given_dt(files, dt)
    if rate is not None:
        if not (math.isfinite(rate) and rate > 0):
            raise UsageError(Fault("a rate that is not positive", "--rate", "Hz > 0", str(rate)))
        return np.asarray(1.0 / rate), None, f"--rate {rate:g}", {"dt": "--rate"}
    if times is not None:
        stamps = files.array(times)
        return None, _steps(stamps), f"time stamps {stamps.where}", {"times": stamps.where}
    return _dt_beside(places) if places else (None, None, "none", {})


def _given_dt(files: Files, text: str) -> tuple[Any, Any, str, dict[str, str]]:
    try:
        value = float(text)
    except ValueError:
        pass
    else:
        return np.asarray(value), None, "--dt", {"dt": "--dt"}
    source = parse_source(text, attributes=True)
    if source.attribute is None:
        stored = files.array(text)
        return _steps(stored), None, stored.where, {"dt": stored.where}
    file = files.open(source)
    holder = source.dataset or ""
    dataset = file.get(holder) if holder else None
    attributes = dataset.attributes if dataset is not None else file.attributes(holder)
    if source.attribute not in attributes:
        found = ", ".join(attributes) or "no attributes"
        raise InputError(Fault("no such attribute", text, "an attribute of this name", found))
    return _number(attributes[source.attribute], text), None, text, {"dt": text}


def _dt_beside(places: Sequence[Place]) -> tuple[Any, Any, str, dict[str, str]]:
    found = [_dt_of(place) for place in places]
    first = found[0]
    if len(found) == 1 or all(_same_step(first, other) for other in found):
        return first
    counts = [place.array.shape[0] if place.array.ndim == 3 else 1 for place in places]
    tables = [_table(dt, times, n) for (dt, times, *_), n in zip(found, counts, strict=True)]
    known = [table for table in tables if table is not None]
    if len(known) < len(tables) or len({table.shape[1] for table in known}) > 1:
        where = places[0].array.where
        what = "inputs with different steps"
        hint = "--dt, --rate or --times for all, or run them one at a time"
        raise InputError(Fault(what, where, "one dt per file, or the same steps", hint=hint))
    return np.concatenate(known), None, "the inputs, each its own", {"dt": "dt of the inputs"}


def _table(dt: Any, times: Any, count: int) -> Any:
    """Steps as [count, h], each trajectory's own; None where they are not such."""
    if dt is None or times is not None:
        return None
    values = np.asarray(dt.read() if isinstance(dt, StoredArray) else dt, dtype=np.float64)
    values = values.reshape((1,) * (2 - values.ndim) + values.shape) if values.ndim < 2 else values
    if values.ndim != 2 or values.shape[0] not in (1, count):
        return None
    return np.broadcast_to(values, (count, values.shape[1]))


def _same_step(a: Sequence[Any], b: Sequence[Any]) -> bool:
    return all(
        (x is None and y is None)
        or (
            isinstance(x, np.ndarray)
            and isinstance(y, np.ndarray)
            and x.ndim < 2
            and np.array_equal(x, y)
        )
        for x, y in zip(a[:2], b[:2], strict=True)
    )


def _dt_of(place: Place) -> tuple[Any, Any, str, dict[str, str]]:
    """What a file says of its own steps: dt, time stamps, or an attribute."""
    stored = place.find("dt")
    if stored is not None:
        return _steps(stored), None, stored.where, {"dt": stored.where}
    stamps = place.find("times", "time")
    if stamps is not None:
        return None, _steps(stamps), f"time stamps {stamps.where}", {"times": stamps.where}
    attribute = place.attribute("dt")
    if attribute is not None:
        return _number(attribute[1], attribute[0]), None, attribute[0], {"dt": attribute[0]}
    attribute = place.attribute(*RATE_ATTRIBUTES)
    if attribute is not None:
        where, value = attribute
        rate = float(_number(value, where))
        if rate > 0:
            return np.asarray(1.0 / rate), None, f"1/{where} = 1/{rate:g} Hz", {"dt": where}
    return None, None, "none", {}


def _number(value: Any, where: str) -> Any:
    if isinstance(value, (int, float, np.number)) or (
        isinstance(value, np.ndarray) and value.size == 1
    ):
        return np.asarray(np.ravel(value)[0], dtype=np.float64)
    raise InputError(Fault("not a number", where, "one number", repr(value)))


def _steps(stored: StoredArray) -> Any:
    """Steps or stamps: few are read now, many block by block."""
    if stored.nbytes > EAGER_BYTES:
        return gliding(stored)
    values = stored.read()
    return values.reshape(()) if values.shape == (1,) else values


def joint_names(place: Place) -> list[str] | None:
    """The names of the dofs, where the file has one for each."""
    dofs = place.array.shape[-1]
    for group in place.groups:
        for name in ("joint_names", "dof"):
            try:
                stored = place.file.get(group + name)
            except InputError:  # names are a courtesy: no reason to refuse the data
                continue
            if stored is not None and stored.dtype.kind in "SUO" and stored.shape == (dofs,):
                return [text_of(value) for value in stored.read()]
    return None
