"""Rows that are there already, trajectories or actions: found, taken one by one, written again."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from trajcli import __version__
from trajcli.checks import describe, nonfinite_fault
from trajcli.errors import Fault, InputError, UsageError, raise_if_any
from trajcli.files.arrays import ArrayFile, StoredArray
from trajcli.files.outputs import discarding, open_output
from trajcli.files.padded import Padded, padded_schema
from trajcli.files.placing import output_family, refuse_input
from trajcli.files.schema import QUANTITIES, Schema, Variable, rows_schema, trajectory_values
from trajcli.files.source import expand_files, parse_source
from trajcli.jobs.lengths import group_names
from trajcli.jobs.lookup import find_dt, joint_names, own_sources
from trajcli.jobs.places import Files, Place, find_actions

_STATES = tuple(
    f"{role}{mark}{part}" for role in ("start", "goal") for mark in "/_" for part in QUANTITIES
)


@dataclass(frozen=True)
class RowsRequest:
    """What ``resample`` and ``retime`` have in common, as typed."""

    sources: Sequence[str]
    out: Path
    layout: str | None = None
    filter_key: str | None = None
    dt: str | None = None
    rate: float | None = None
    times: str | None = None
    pack: bool = False
    overwrite: bool = False
    durable: bool = False
    allow_external: bool = False
    untrusted: bool = False


@dataclass(frozen=True)
class Track:
    """The arrays of one trajectory, each [T, D]: read when they are asked for."""

    name: str
    where: str
    arrays: Mapping[str, Callable[[], Any]]
    knots: Any
    """Times of its rows from 0 on, float64 [T]."""


@dataclass(frozen=True)
class Tracks:
    """All trajectories of a request, and what their files say of them."""

    each: Sequence[Track]
    names: Sequence[str]
    """The arrays that every trajectory has."""
    dtypes: Mapping[str, np.dtype[Any]]
    dofs: int
    dt_source: str
    source: str
    joint_names: Sequence[str] | None
    units: Mapping[str, str]
    attributes: Mapping[str, Any]
    states: Mapping[str, Any] = field(default_factory=dict)
    """Start and goal states that lie beside actions."""


def find_tracks(request: RowsRequest, files: Files) -> Tracks:
    """Look the trajectories up: named arrays, else actions, else position … jerk."""
    groups = [each for text in request.sources for each in _groups(request, files, text)]
    if not groups:
        raise UsageError(Fault("no SOURCE", "SOURCE", "one or more of FILE[:DATASET]", "none"))
    names = [name for name in groups[0] if all(name in group for group in groups)]
    if not names:
        found = "; ".join(", ".join(group) for group in groups[:3])
        raise InputError(Fault("inputs that have nothing in common", "SOURCE", found=found))
    places = [group[names[0]] for group in groups]
    total = sum(p.array.shape[0] if p.array.ndim == 3 else 1 for p in places)
    titles = iter(group_names(places, total))
    each: list[Track] = []
    sources = []
    for group, place in zip(groups, places, strict=True):
        _require_alike(group, names)
        steps = find_dt(files, request.dt, request.rate, request.times, [place])
        sources.append(steps[2])
        each += _tracks_of(group, names, steps, titles)
    first = places[0]
    dofs = {place.array.shape[-1] for place in places}
    if len(dofs) > 1:
        what = "trajectories of different dofs in one run"
        raise InputError(Fault(what, first.name, found=str(sorted(dofs))))
    arrays = {name: groups[0][name].array for name in names}
    return Tracks(
        each=each,
        names=names,
        dtypes={name: np.result_type(*(g[name].array.dtype for g in groups)) for name in names},
        dofs=dofs.pop(),
        dt_source=own_sources(sources),
        source=first.name if len(places) == 1 else f"{first.name} and {len(places) - 1} more",
        joint_names=joint_names(first),
        units={n: str(a.attributes["units"]) for n, a in arrays.items() if "units" in a.attributes},
        attributes=dict(first.file.attributes()),
        states=_states(first) if len(places) == 1 and names == ["actions"] else {},
    )


def _groups(request: RowsRequest, files: Files, text: str) -> Iterator[dict[str, Place]]:
    """Arrays by name, a table for every group of them."""
    for source in expand_files(parse_source(text)):
        file = files.open(source)
        if source.dataset is None and file.family != "npy":
            own = list(_written(file))
            if own:
                yield from own
                continue
        named = f"{source.path}:{source.dataset}" if source.dataset else str(source.path)
        for place in find_actions(files, [named], request.layout, request.filter_key):
            name = (place.array_name or place.array.where).rpartition("/")[2].rpartition(":")[2]
            plain = place.commands or name == "action" or file.family == "npy"
            yield {"actions" if plain else name: place}


def _written(file: ArrayFile) -> Iterator[dict[str, Place]]:
    """position … jerk as trajcli writes them: at the root, or in a group for each trajectory."""
    if any(name in file.children() for name in QUANTITIES):
        yield {n: Place(file, file.require(n), [""]) for n in QUANTITIES if n in file.children()}
    elif "trajcli_version" in file.attributes():
        groups = dict.fromkeys(
            name.rpartition("/")[0] for name in file.names() if name.split("/")[-1] in QUANTITIES
        )
        for group in groups:
            inside = file.children(group)
            yield {
                name: Place(file, file.require(f"{group}/{name}"), [f"{group}/", ""])
                for name in QUANTITIES
                if name in inside
            }


def _require_alike(group: Mapping[str, Place], names: Sequence[str]) -> None:
    first = group[names[0]].array
    faults = [
        Fault(
            "arrays of different shape", array.where, describe(first.shape), describe(array.shape)
        )
        for array in (group[name].array.require_numeric() for name in names)
        if array.shape != first.shape
    ]
    if first.ndim not in (2, 3) or 0 in first.shape[-2:]:
        expected = "[B, T, D], or [T, D] for one trajectory"
        faults.append(Fault("wrong shape", first.where, expected, describe(first.shape)))
    elif first.ndim == 3 and not first.shape[0]:
        faults.append(Fault("no trajectories", first.where, "B >= 1", describe(first.shape)))
    raise_if_any(faults)


def _tracks_of(
    group: Mapping[str, Place], names: Sequence[str], steps: Any, titles: Iterator[str]
) -> Iterator[Track]:
    """The trajectories of one table of arrays, each with the times of its rows."""
    place = group[names[0]]
    shape = place.array.shape
    batch = shape[0] if len(shape) == 3 else 1
    lengths = place.find("lengths")
    dt, times, _, where = steps
    knots = _knots(dt, times, batch, shape[-2], next(iter(where.values()), place.name))
    for b in range(batch):
        rows = shape[-2] if lengths is None else int(lengths.read()[b])
        own = {name: _reader(group[name].array, b, rows) for name in names}
        spot = place.name if batch == 1 else f"{place.name}, trajectory {b}"
        yield Track(next(titles), spot, own, knots[b if len(knots) > 1 else 0][:rows])


def _reader(array: StoredArray, b: int, rows: int) -> Callable[[], Any]:
    if array.ndim == 2:
        return lambda: array.read_rows(0, rows)
    return lambda: array.read_part(b, b + 1, 0, rows)[0]


def _knots(dt: Any, times: Any, batch: int, rows: int, where: str) -> Any:
    """Times of the rows from 0 on, [B or 1, T]."""
    given = dt if times is None else times
    if given is None:
        hint = "--dt SECONDS, --rate HZ or --times FILE:DATASET"
        raise InputError(Fault("no time step", "dt", "a step, a rate, or time stamps", hint=hint))
    values = given.read() if isinstance(given, StoredArray) else np.asarray(given)
    values = values.reshape((1,) * (2 - values.ndim) + values.shape) if values.ndim < 2 else values
    wide = values.astype(np.float64)
    if times is None:
        if not (np.isfinite(wide) & (wide > 0)).all():
            raise InputError(Fault("a step that is not positive and finite", where, "dt > 0"))
        wide = np.cumsum(np.insert(np.broadcast_to(wide, (len(wide), rows - 1)), 0, 0.0, 1), 1) if (
            wide.shape[1] == rows - 1 and rows > 2
        ) else wide[:, :1] * np.arange(rows)  # fmt: skip
    if wide.shape not in ((1, rows), (batch, rows)):
        expected = f"[{rows}] or [{batch}, {rows}]"
        raise InputError(Fault("wrong number of steps", where, expected, describe(values.shape)))
    return wide - wide[:, :1]


def _states(place: Place) -> dict[str, Any]:
    """Start and goal states, and their indices, beside actions."""
    found = {name: place.find(name) for name in (*_STATES, "start_index", "goal_index")}
    return {name: stored.read() for name, stored in found.items() if stored is not None}


def checked(track: Track, name: str) -> Any:
    """The rows of an array of a trajectory; raises InputError for NaN and Inf."""
    rows = track.arrays[name]()
    fault = nonfinite_fault(rows, f"{track.where} {name}", ("step", "dof"))
    hint = "a curve through them does not exist: repair the input, or leave the trajectory out"
    raise_if_any([replace(fault, hint=hint)] if fault else [])
    return rows


def write_tracks(
    request: RowsRequest,
    files: Files,
    tracks: Tracks,
    lengths: Sequence[int],
    attributes: Mapping[str, Any],
    more: Mapping[str, Any],
    compute: Callable[[int], tuple[Any, Mapping[str, Any]]],
    step: float | None = None,
) -> Schema:
    """Compute every trajectory and write it; lengths: their rows. Returns what was written.

    compute(i): the times [T] and arrays [T, D] of trajectory i. more: values of every trajectory
    [B]. step: the one dt of all rows, where there is one.
    """
    refuse_input(request.out, files.paths())
    classes = [np.flatnonzero(np.asarray(lengths) == n) for n in dict.fromkeys(lengths)]
    rows = [int(lengths[numbers[0]]) for numbers in classes]
    unequal = len(classes) > 1
    if unequal and output_family(request.out) != "hdf5" and not request.pack:
        what = "trajectories of different length go to groups of an HDF5 file"
        hint = "--pack makes one array of them, padded with NaN"
        raise UsageError(Fault(what, str(request.out), "OUT.h5", request.out.suffix, hint))
    told = {**attributes, "trajcli_version": __version__}
    parts = [
        rows_schema(
            tracks.names, tracks.dtypes, len(numbers), count, tracks.dofs, shared_step=step,
            attributes=told, joint_names=tracks.joint_names, units=tracks.units,
            more={name: np.asarray(values)[numbers] for name, values in more.items()},
            states=tracks.states,
        )
        for numbers, count in zip(classes, rows, strict=True)
    ]  # fmt: skip
    if not unequal:
        schema = parts[0]
    elif request.pack:
        longest = parts[int(np.argmax(rows))]
        schema = padded_schema(longest, classes, rows, step is not None)
        whole = [trajectory_values(name, np.asarray(values)) for name, values in more.items()]
        schema = replace(schema, variables=[*schema.variables, *whole])
    else:
        schema = _mirrored(tracks, parts, classes)
    output = open_output(request.out, schema, request.overwrite, request.durable)
    sink = Padded(output) if schema.scatter else output
    with discarding(output):
        for k, numbers in enumerate(classes):
            prefix = f"{k}/" if unequal else ""
            for row, i in enumerate(numbers):
                time, arrays = compute(int(i))
                for name, values in arrays.items():
                    sink.write(prefix + name, row, values[None])
                if unequal:
                    sink.write(f"{prefix}time", row, time[None])
                elif step is None and len(numbers) > 1:
                    sink.write("time", row, time[None])
                elif row == 0:
                    sink.write("time", 0, time)
        output.finish()
    return schema


def _mirrored(tracks: Tracks, parts: Sequence[Schema], classes: Sequence[Any]) -> Schema:
    """A group for every trajectory, from what those of each length hold."""
    variables: list[Variable] = []
    for k, (part, numbers) in enumerate(zip(parts, classes, strict=True)):
        for variable in part.variables:
            if variable.dims[:1] == ("state",):
                continue
            if variable.name == "dt":
                values = np.full(len(numbers), variable.values)
                variable = replace(trajectory_values("dt", values), attributes=variable.attributes)
            if variable.name == "time" and len(variable.shape) == 1:
                shape = (len(numbers), *variable.shape)
                variable = replace(variable, shape=shape, dims=("trajectory", "row"), values=None)
            variables.append(replace(variable, name=f"{k}/{variable.name}"))
    names = [[tracks.each[i].name for i in numbers] for numbers in classes]
    return Schema({"dof": tracks.dofs}, variables, parts[0].attributes, parts[0].joint_names, names)
