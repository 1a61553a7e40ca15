"""Finding start state, goal, dt and names: where the user says, else in the file itself."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from trajcli.errors import Fault, InputError, UsageError
from trajcli.files.arrays import StoredArray, text_of
from trajcli.files.schema import QUANTITIES, RECORDED_ROW
from trajcli.files.source import parse_source
from trajcli.jobs.places import Files, Place

RATE_ATTRIBUTES = ("control_freq", "rate", "frequency", "fps", "hz")
"""Attributes in which files give steps per second."""


NOT_SECONDS = {
    *("n", "nsec", "nanosec", "nanosecond", "u", "µ", "μ", "usec", "microsec", "microsecond"),
    *("m", "msec", "millisec", "millisecond", "min", "minute", "h", "hr", "hour", "d", "day"),
}
"""How files say that steps and stamps are not in seconds; in small letters, without the last s."""


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
    elif "position" not in parts:  # the other parts are in place of what lies there
        found = _state_beside(role, places)
        where = getattr(found.get("position"), "where", "each input's own")
        origin = where.removesuffix("/position") if found else "none"
        if not found and role == "start":
            found, origin = _recorded_start(places)
    for part, text in parts.items():
        found[part] = files.array(text)
        origin = text if origin == "none" else f"{origin}, {text}"
    names = {f"{role}/{part}": getattr(v, "where", role) for part, v in found.items()}
    return {part: _states(values) for part, values in found.items()}, names, origin


def _require_name(option: str, text: str, expected: str) -> None:
    """Raise UsageError for a word that stands for no file: no dot, no colon, and none there."""
    if not set(".:/") & set(text) and not os.path.exists(text):
        raise UsageError(Fault("neither a value nor a file", option, expected, text))


def _state_from(files: Files, role: str, given: str) -> dict[str, Any]:
    words = "zero, first (a recording)" if role == "start" else "zero"
    _require_name(f"--{role}", given, f"{words}, FILE:GROUP or FILE:DATASET")
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
    joined: dict[str, Any] = {}
    for part in QUANTITIES:
        blocks, having, lacking = [], None, None
        for place in places:
            values = place.find(f"{role}/{part}", f"{role}_{part}")
            if values is None:
                lacking = lacking or place
            elif len(places) == 1:
                joined[part] = values
            else:
                having = having or place
                blocks.append(_one_per_trajectory(values, place))
            if having and lacking:
                what = f"{role} {part} in some of the inputs only"
                where, expected = lacking.array.where, f"as in {having.array.where}"
                raise InputError(Fault(what, where, expected))
        if blocks:
            joined[part] = np.concatenate(blocks)
    return joined


def _recorded_start(places: Sequence[Place]) -> tuple[dict[str, Any], str]:
    """The state in which trajectories of a layout began, where its dofs are those of the actions.

    One for all trajectories or none: positions, and velocities where they lie beside them.
    """
    layout, dofs = places[0].layout, places[0].array.shape[-1:]
    for pair in layout.start if layout is not None else ():
        table: dict[str, Any] = {}
        for part, name in zip(("position", "velocity"), pair, strict=True):
            rows = [_first_row(place, name, dofs) for place in places]
            if any(row is None for row in rows):
                break
            table[part] = np.stack(rows)
        if table:
            names = ", ".join(name for name, _ in zip(pair, table, strict=False))
            return table, f"{places[0].file.path}: {RECORDED_ROW} {names}"
    return {}, "none"


def _first_row(place: Place, name: str, dofs: tuple[int, ...]) -> Any:
    """Row 0 of an array of a trajectory, [D]; None where it has none of so many dofs."""
    if place.layout is None or place.member is None or not place.commands:
        return None
    stored = place.layout.array(place.member, [name])
    if stored is None or stored.ndim != 2 or stored.shape[1:] != dofs or not stored.shape[0]:
        return None
    return stored.require_numeric().read_rows(0, 1)[0]


def _one_per_trajectory(values: StoredArray, place: Place) -> Any:
    states = values.read()
    states = states if states.ndim > 1 else np.atleast_2d(states)
    count = place.array.shape[0] if place.array.ndim == 3 else 1
    if len(states) not in (1, count):
        expected = f"{count}, one per trajectory of {place.name}, or one for all"
        raise InputError(
            Fault("states and trajectories differ", values.where, expected, str(len(states)))
        )
    return states if len(states) == count else np.broadcast_to(states, (count, states.shape[1]))


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
    _require_name("--dt", text, "SECONDS (as 0.02), FILE:DATASET or FILE:DATASET@ATTR")
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
    found = _dt_of_each(places)
    first = found[0]
    if len(found) == 1 or all(other is first or _same_step(first, other) for other in found):
        return first
    stamps = [
        _own_stamps(times, place) for (_, times, *_), place in zip(found, places, strict=True)
    ]
    if all(each is not None for each in stamps) and len({s.shape[1] for s in stamps}) == 1:
        return None, np.concatenate(stamps), "time stamps of the inputs", {"times": "time stamps"}
    counts = [place.array.shape[0] if place.array.ndim == 3 else 1 for place in places]
    tables = [_table(dt, times, n) for (dt, times, *_), n in zip(found, counts, strict=True)]
    known = [table for table in tables if table is not None]
    if len(known) < len(tables) or len({table.shape[1] for table in known}) > 1:
        where = places[0].array.where
        what = "inputs with different steps"
        hint = "--dt, --rate or --times for all, or run them one at a time"
        raise InputError(Fault(what, where, "one dt per file, or the same steps", hint=hint))
    told = own_sources([source for *_, source, _ in found])
    return np.concatenate(known), None, told, {"dt": "dt of the inputs"}


def own_sources(sources: Sequence[str]) -> str:
    """Where the steps of some inputs come from, in a line."""
    first, *more = dict.fromkeys(sources)
    return f"the inputs, each its own: {first} and {len(more)} more" if more else first


_Found = tuple[Any, Any, str, dict[str, str]]


def _dt_of_each(places: Sequence[Place]) -> list[_Found]:
    """What each place says of its steps; a file of a layout that says it once is asked once."""
    shared: dict[int, _Found] = {}
    found = []
    for place in places:
        key = id(place.layout)
        if key in shared:
            found.append(shared[key])
            continue
        own = _dt_of(place)
        inside = place.member is not None and f":/{place.member.group}" in own[2]
        if place.layout is not None and place.times is None and not inside:
            shared[key] = own
        found.append(found[0] if found and _same_step(found[0], own) else own)
    return found


def _table(dt: Any, times: Any, count: int) -> Any:
    """Steps as [count, h], each trajectory's own; None where they are not such."""
    if dt is None or times is not None:
        return None
    values = np.asarray(dt.read() if isinstance(dt, StoredArray) else dt, dtype=np.float64)
    values = values.reshape((1,) * (2 - values.ndim) + values.shape) if values.ndim < 2 else values
    if values.ndim != 2 or values.shape[0] not in (1, count):
        return None
    return np.broadcast_to(values, (count, values.shape[1]))


def _own_stamps(times: Any, place: Place) -> Any:
    """The time stamps of a place's trajectories [n, T]; None where it has none of its own."""
    count = place.array.shape[0] if place.array.ndim == 3 else 1
    if times is None or times.ndim not in (1, 2) or (times.ndim == 2 and len(times) != count):
        return None
    values = times.read() if isinstance(times, StoredArray) else times
    return np.broadcast_to(values, (count, values.shape[-1]))


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
    if place.times is not None:
        return None, place.times, f"time stamps {place.times_name}", {"times": place.times_name}
    stored = place.find("dt")
    if stored is not None:
        return _steps(stored), None, stored.where, {"dt": stored.where}
    stamps = place.find("times", "time")
    if stamps is not None:
        return None, _steps(stamps), f"time stamps {stamps.where}", {"times": stamps.where}
    step = place.layout.step() if place.layout is not None else None
    if step is not None:
        return np.asarray(step.seconds), None, step.source, {"dt": step.source}
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
    """Steps or stamps in seconds; those that differ by trajectory, if many, are read by block."""
    told = stored.attributes.get("units", "")
    unit = text_of(told) if isinstance(told, (str, bytes)) else ""
    if unit.strip().rstrip("s").lower() in NOT_SECONDS:
        hint = "divide them first, or give the step: --dt SECONDS, --rate HZ"
        raise InputError(Fault("steps in another unit", stored.where, "s", unit, hint))
    if stored.nbytes > EAGER_BYTES and stored.ndim == 2 and stored.shape[0] > 1:
        return stored
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
    told = place.layout.dof_names(place.array_name) if place.layout is not None else None
    return told if told is not None and len(told) == dofs else None
