"""Trajectories of different length in one run: those of one length are done together."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from trajcli.checks import describe
from trajcli.errors import Fault, Gathering, InputError, UsageError
from trajcli.files.arrays import StoredArray
from trajcli.jobs.batch import Batch
from trajcli.jobs.found import Found, find
from trajcli.jobs.places import Files, Place
from trajcli.jobs.request import Request

Numbers = Any
"""Which trajectories, of all in the order of the sources: integers [n]."""


def find_all(
    request: Request, files: Files, places: Sequence[Place], check: Gathering
) -> list[tuple[Numbers, Found]]:
    """What :func:`find` finds, for the trajectories of each length."""
    padded = [place for place in places if _lengths(place) is not None]
    if len(places) == 1 and padded:
        return _padded(request, files, places[0], check)
    if padded:
        hint = "run it alone"
        what = "padded trajectories among other inputs"
        raise InputError(Fault(what, padded[0].name, "one input", str(len(places)), hint))
    classes: dict[tuple[int, ...], list[int]] = {}
    for k, place in enumerate(places):
        classes.setdefault(place.array.shape[-2:], []).append(k)
    if len(classes) == 1:
        return [(np.arange(_count(places)), find(request, files, places, check))]
    _require_dofs(places)
    firsts = np.cumsum([0, *(_batch(place) for place in places)])
    found = []
    for chosen in classes.values():
        numbers = np.concatenate([np.arange(firsts[k], firsts[k + 1]) for k in chosen])
        one = find(request, files, [places[k] for k in chosen], check)
        found.append((numbers, _selected(request, one, numbers, int(firsts[-1]))))
    return found


def _batch(place: Place) -> int:
    return place.array.shape[0] if place.array.ndim == 3 else 1


def _count(places: Sequence[Place]) -> int:
    return sum(map(_batch, places))


def _require_dofs(places: Sequence[Place]) -> None:
    """All trajectories of a run move the same dofs."""
    first = places[0]
    faults = [
        Fault("wrong number of dimensions", place.name, "[B, H, D], or [H, D] for one trajectory",
              describe(place.array.shape))
        for place in places
        if place.array.ndim not in (2, 3)
    ]  # fmt: skip
    faults = faults or [
        Fault(
            "trajectories of different dofs in one run",
            place.name,
            f"D = {first.array.shape[-1]}, as in {first.name}",
            f"D = {place.array.shape[-1]}",
            "run them one at a time",
        )
        for place in places
        if place.array.shape[-1] != first.array.shape[-1]
    ]
    if faults:
        raise InputError(*faults[:5])


def _selected(request: Request, found: Found, numbers: Numbers, total: int) -> Found:
    """The share that some trajectories have of what was given for all."""

    def own(values: Any, what: str) -> Any:
        if values is None or values.ndim < 2 or values.shape[0] == 1:
            return values
        if values.shape[0] != total:
            expected = f"{total}, one per trajectory, or one for all"
            raise InputError(
                Fault("wrong number", found.names.get(what, what), expected, str(values.shape[0]))
            )
        return _read(values)[numbers]

    changes: dict[str, Any] = {}
    for role in ("start", "goal"):
        given = getattr(request, role) or getattr(request, f"{role}_parts")
        indexed = getattr(request, f"{role}_index") is not None
        if given and not indexed:
            parts = getattr(found, role)
            changes[role] = {name: own(v, f"{role}/{name}") for name, v in parts.items()}
        if indexed:
            changes[f"{role}_index"] = _read(getattr(found, f"{role}_index"))[numbers]
    if request.dt is not None:
        changes["dt"] = own(found.dt, "dt")
    if request.times is not None:
        rows = found.batch.shape[1] + (0 if found.recorded else 1)
        times = own(found.times, "times")
        changes["times"] = times[..., :rows] if times.ndim == 2 else times
    return replace(found, **changes)


def _read(values: Any) -> Any:
    return values.read() if isinstance(values, StoredArray) else values


def _lengths(place: Place) -> StoredArray | None:
    """The lengths that say an array is padded; None where all is used."""
    stored = place.find("lengths") if place.layout is None else None
    if stored is None or place.array.ndim != 3:
        return None
    batch, horizon, _ = place.array.shape
    values = stored.read()
    if values.shape != (batch,) or values.dtype.kind not in "iu":
        found = f"{values.dtype} {describe(values.shape)}"
        raise InputError(Fault("not lengths", stored.where, f"integers [{batch}]", found))
    bad = np.flatnonzero((values < 1) | (values > horizon))
    if len(bad):
        where = f"{stored.where}, trajectory {int(bad[0])}"
        found = str(int(values[bad[0]]))
        raise InputError(Fault("no such length", where, f"1 to {horizon}", found))
    return None if (values == horizon).all() else stored


def _padded(
    request: Request, files: Files, place: Place, check: Gathering
) -> list[tuple[Numbers, Found]]:
    """The trajectories of a padded array, by length; what is beyond a length is never read."""
    stored = _lengths(place)
    assert stored is not None
    if request.repeated_times == "drop":
        what = "repeated stamps cannot be dropped from padded trajectories"
        raise UsageError(Fault(what, "--repeated-times drop", "error"))
    whole = find(request, files, [place], check)
    lengths = stored.read()
    found = []
    for length in np.unique(lengths):
        numbers = np.flatnonzero(lengths == length)
        found.append((numbers, _cut(whole, place.array, numbers, int(length))))
    return found


def _cut(whole: Found, array: StoredArray, numbers: Numbers, length: int) -> Found:
    """Some trajectories up to a length, of what was found for all."""
    batch, horizon, dofs = array.shape

    def rows(values: Any) -> Any:
        if values is None or not values.ndim or values.shape[0] != batch:
            return values
        return _read(values)[numbers]

    def steps(values: Any) -> Any:
        if values is None or not values.ndim or values.shape[-1] == 1:
            return rows(values) if values is not None and values.ndim == 2 else values
        values = rows(values) if values.ndim == 2 else _read(values)
        return values[..., : values.shape[-1] - (horizon - length)]

    def read_steps(start: int, stop: int, first: int, last: int) -> Any:
        chosen = [array.read_part(int(b), int(b) + 1, first, last) for b in numbers[start:stop]]
        return np.concatenate(chosen) if chosen else np.zeros((0, last - first, dofs), array.dtype)

    part = replace(
        array,
        shape=(len(numbers), length, dofs),
        read_rows=lambda start, stop: read_steps(start, stop, 0, length),
        read_steps=read_steps,
        storage="part of an array",
        origin=lambda b: (array.where, int(numbers[b])),
    )
    return replace(
        whole,
        batch=Batch([part]),
        start={name: rows(v) for name, v in whole.start.items()},
        goal={name: rows(v) for name, v in whole.goal.items()},
        dt=steps(whole.dt),
        times=steps(whole.times),
        start_index=rows(whole.start_index),
        goal_index=rows(whole.goal_index),
    )


def group_names(places: Sequence[Place], total: int) -> list[str]:
    """A group for every trajectory: its own in the input, below its file where several clash."""
    bases = [_own_group(place) for place in places]
    for longer in (_whole_path, _below_file, _numbered):
        if len(set(bases)) == len(bases):
            break
        bases = longer(places, bases)
    names = []
    for place, base in zip(places, bases, strict=True):
        count = _batch(place)
        single = place.array.ndim == 2 or (count == 1 and len(places) > 1)
        names += [base] if single else [f"{base}/trajectory_{b}" for b in range(count)]
    assert len(names) == total
    return names


def _own_group(place: Place) -> str:
    if place.member is not None:
        return place.member.name
    return place.groups[0].rstrip("/") or Path(place.file.path).stem


def _whole_path(places: Sequence[Place], bases: Sequence[str]) -> list[str]:
    """With the array's own name, where one group has several that are read."""
    seen = [(str(p.file.path), base) for p, base in zip(places, bases, strict=True)]
    return [
        f"{base}/{place.array_name.split('/')[-1]}" if seen.count(key) > 1 else base
        for place, base, key in zip(places, bases, seen, strict=True)
    ]


def _below_file(places: Sequence[Place], bases: Sequence[str]) -> list[str]:
    stems = [Path(place.file.path).stem for place in places]
    return [
        base if base == stem else f"{stem}/{base}" for stem, base in zip(stems, bases, strict=True)
    ]


def _numbered(places: Sequence[Place], bases: Sequence[str]) -> list[str]:
    files = list(dict.fromkeys(os.fspath(place.file.path) for place in places))
    return [
        f"{files.index(os.fspath(place.file.path))}_{base}"
        for place, base in zip(places, bases, strict=True)
    ]
