"""Merging: the parts of a run in shards, one behind the other, as one output.

Parts of one length give packed trajectories, parts of several lengths a group for every
trajectory. Memory is that of a block, and of the names of the trajectories.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from trajcli.adjoint import NAMES as INPUTS
from trajcli.errors import InputError, Stopped
from trajcli.files.arrays import ArrayFile
from trajcli.files.hdf5_output import SOURCES
from trajcli.files.opening import Files
from trajcli.files.outputs import Output
from trajcli.files.refusals import refuse_output
from trajcli.files.schema import QUANTITIES, Group, Schema, Variable, time_variable, unequal_schema
from trajcli.files.writing import open_output
from trajcli.jobs.run import Progress
from trajcli.jobs.segments import sources_text
from trajcli.jobs.shards import PART_ATTRIBUTES, find_run
from trajcli.system import signals

_BLOCK_BYTES = 16 << 20


def merge(
    out: Path,
    overwrite: bool = False,
    on_progress: Progress = lambda done, total: None,
) -> dict[str, Any]:
    """Join the parts of OUT and return a report of plain values. The parts stay.

    Raises InputError for parts that are
    missing, damaged or of another command; OUT is then as it was before.
    """
    began = time.perf_counter()
    out = out.with_suffix("") if out.suffix == ".parts" else out
    refuse_output(out, overwrite)
    parts = find_run(out).require_all(out)
    with Files() as files:
        files.sources.add([str(part.path) for part in parts])
        contents = [PartContents(part.path, files.open(part.path)) for part in parts]
        contents = [part for part in contents if part.count] or contents[:1]
        request = parts[0].request
        schema = _merged_schema(contents)
        level = request.get("compress")
        output = open_output(out, schema, overwrite, compress=level)
        total = sum(part.count for part in contents)
        with signals() as stop, output:
            for done in _copy(contents, schema, output):
                on_progress(done, total)
                signal = stop()
                if signal is not None:
                    raise Stopped(
                        f"stopped by {signal}", where=str(out), hint="run the same command again"
                    )
            files.sources.require_unchanged()
            output.finish()
    seconds = time.perf_counter() - began
    variables = (part.variables.items() for part in contents)
    kinds = {v.dtype.name for each in variables for name, v in each if name in QUANTITIES}
    notes = [f"parts of {' and '.join(sorted(kinds))}, as their files are; --dtype makes them one"]
    return {
        "out": str(out),
        "parts": len(parts),
        "trajectories": total,
        "notes": [*output.notes, *notes * (len(kinds) > 1)],
        "bytes_written": schema.nbytes,
        "seconds": seconds,
        "gb_per_s": 2 * schema.nbytes / seconds / 1e9,
    }


class PartContents:
    """``count`` trajectories in an intact part, packed or (``grouped``) each in a group.

    ``names``: of the trajectories, by their number of rows; "" where packed ones have no names.
    ``variables``: described as [trajectory, ...] in both cases. ``sources``: what it lists for an
    attribute of the whole.
    """

    def __init__(self, path: Path, file: ArrayFile) -> None:
        self.path, self._file, paths, prefix = path, file, file.names(), ""
        self.joint_names, self.attributes = self._texts("dof"), file.attributes()
        lists = [path for path in paths if path.startswith(f"{SOURCES}/")]
        self.sources = {path.rpartition("/")[2]: self._texts(path) or [] for path in lists}
        self.names: dict[int, list[str]] = {}
        self.grouped = "time" not in paths
        if self.grouped:
            groups = [place[: -len("/time")] for place in paths if place.endswith("/time")]
            listed = self.sources.pop("trajectory", [])
            order = {name: number for number, name in enumerate(listed)}
            for group in sorted(groups, key=lambda name: order.get(name, 0)):
                rows = file.require(f"{group}/time").shape[0]
                self.names.setdefault(rows, []).append(group)
            self.count, prefix = len(groups), f"{groups[0]}/"  # all hold what the first one does
            paths = [place for place in paths if place.startswith(prefix)]
        else:
            shape = next(file.require(name).shape for name in QUANTITIES if name in paths)
            self.count = shape[0]
            self.names[shape[1]] = self._texts("trajectory") or [""] * self.count
        self.variables: dict[str, Variable] = {}
        for place in paths:
            dataset, dims = file.require(place), file.dims(place)
            name, shape = place.removeprefix(prefix), dataset.shape
            if self.grouped:
                dims = ("trajectory", *("row" if dim == "time" else dim for dim in dims))
                shape = (self.count, *shape)
            if dataset.numeric:  # not the names of dofs and trajectories
                described = Variable(name, dims, shape, dataset.dtype, dataset.attributes)
                self.variables[name] = described

    def _texts(self, name: str) -> list[str] | None:
        """A dataset of strings; None where there is none, or one of numbers."""
        stored = self._file.get(name)  # in groups, names() has one of the links to the dofs' names
        return stored.texts() if stored is not None and not stored.numeric else None

    def read(self, name: str) -> Any:
        """All values of a dataset."""
        return self._file.require(name).read()

    def blocks(self, rows: int, names: Sequence[str]) -> Iterator[tuple[int, Any, dict[str, Any]]]:
        """The trajectories of so many rows, a block after the other: how many, their times [1 or
        n, T], and variables [n, ...]."""
        if self.grouped:
            for group in self.names.get(rows, ()):
                values = {name: self.read(f"{group}/{name}")[None] for name in names}
                yield 1, self.read(f"{group}/time")[None], values
        elif rows in self.names:
            own_times = self.variables["time"].by_trajectory
            streamed = [*names, "time"] if own_times else names
            size = sum(self.variables[name].row_bytes for name in streamed)
            step = max(1, _BLOCK_BYTES // max(size, 1))
            datasets = {name: self._file.require(name) for name in streamed}
            times = None if own_times else self.read("time")[None]
            for begin in range(0, self.count, step):
                end = min(begin + step, self.count)
                values = {name: stored.read_rows(begin, end) for name, stored in datasets.items()}
                yield end - begin, values.pop("time", times), values


def _merged_schema(parts: Sequence[PartContents]) -> Schema:
    """What the whole holds; raises InputError where parts hold different things."""
    numbers: dict[int, list[Any]] = {}
    names: list[str] = []
    for part in parts:
        for rows, members in part.names.items():
            numbers.setdefault(rows, []).append(np.arange(len(names), len(names) + len(members)))
            names += members
    shared = _shared_time(parts) if len(numbers) == 1 else None
    longest = max(numbers)
    time = time_variable((longest,) if shared is not None else (len(names), longest), shared)
    gradients = [f"grad/{name}" for name in (*INPUTS, "dt")]  # in the order of a run
    order = (*QUANTITIES, "time", "start_index", *gradients, *sorted(parts[0].variables))
    variables = [
        time if name == "time" else _merged_variable(name, parts, len(names), time.dims[-1])
        for name in dict.fromkeys(order)
        if name in parts[0].variables
    ]
    dims = dict(pair for v in variables for pair in zip(v.dims, v.shape, strict=True))
    attributes = _merged_attributes(parts)
    whole = Schema(dims, variables, attributes, parts[0].joint_names)
    if len(numbers) == 1:
        return replace(whole, trajectory_names=names if any(names) else None)
    groups = []
    for rows, runs in sorted(numbers.items()):
        which = np.concatenate(runs)
        groups.append(Group(rows, [names[number] for number in which], which))
    return unequal_schema(whole, groups)


def _shared_time(parts: Sequence[PartContents]) -> Any:
    """The longest time of the parts, where those of the others are its beginning; else None."""
    if any(part.variables["time"].by_trajectory for part in parts):
        return None
    longest = max(parts, key=lambda part: max(part.names)).read("time")
    times = (part.read("time") for part in parts)
    return longest if all(np.array_equal(t, longest[: len(t)]) for t in times) else None


def _merged_variable(name: str, parts: Sequence[PartContents], count: int, along: str) -> Variable:
    """A variable of the whole. along: its dimension of the rows."""
    first = parts[0].variables[name]
    for part in parts:
        there = part.variables.get(name)
        if there is None or there.shape[2:] != first.shape[2:]:
            raise InputError(
                "a part of another run",
                where=f"{part.path}:/{name}",
                expected=f"as in {parts[0].path.name}: {list(first.shape)}",
                found="nothing" if there is None else str(list(there.shape)),
                hint="the inputs differ in their dofs, or in what they hold",
            )
    versions = [part.variables[name] for part in parts]
    dims = tuple(along if dim in ("time", "row") else dim for dim in first.dims)
    shape = np.max([version.shape for version in versions], axis=0).astype(int).tolist()
    if first.by_trajectory:
        shape[0] = count
    dtype = np.result_type(*(version.dtype for version in versions))
    return replace(first, dims=dims, shape=tuple(shape), dtype=dtype)


def _copy(parts: Sequence[PartContents], schema: Schema, output: Output) -> Iterator[int]:
    """Copy the variables of a schema, a block at a time; yields how many trajectories are done."""
    names = [v.name for v in schema.streamed if v.by_trajectory and v.name != "time"]
    done = 0
    for k, rows in enumerate([group.rows for group in schema.groups] or parts[0].names):
        row = 0
        for part in parts:
            for count, times, values in part.blocks(rows, names):
                for name, block in values.items():
                    output.write(name, row, block, k)
                output.write_time(row, count, times, k)
                row, done = row + count, done + count
                yield done


def _merged_attributes(parts: Sequence[PartContents]) -> dict[str, Any]:
    """The attributes of the whole: the names that all parts list are summed up as those of a run
    in one piece, and what differs otherwise (dt) "varies"."""
    stated, merged = [part.attributes for part in parts], dict[str, Any]()
    for name in set(stated[0]) - set(PART_ATTRIBUTES):
        values = list({str(one[name]): one[name] for one in stated if name in one}.values())
        merged[name] = values[0] if len(values) == 1 else "varies"
    for name in parts[0].sources:
        texts = (text for part in parts for text in part.sources.get(name, ()))
        merged[name] = sources_text(name, texts)
    return merged
