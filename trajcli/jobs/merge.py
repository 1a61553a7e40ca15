"""Merging: the parts of a run in shards, one behind the other, as one output.

Parts of one length give one array of all trajectories, parts of several lengths a group for every
trajectory. Memory is that of a block, and of the names of the trajectories.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from trajcli.adjoint import NAMES as INPUTS
from trajcli.errors import InputError
from trajcli.files.arrays import ArrayFile
from trajcli.files.description import (
    Description,
    Variable,
    describe_output,
    stamp_variables,
    time_variable,
)
from trajcli.files.file_bytes import Progress
from trajcli.files.hdf5_output import SOURCES
from trajcli.files.opening import Files
from trajcli.files.outputs import Output
from trajcli.files.refusals import refuse_output
from trajcli.files.schema import QUANTITIES, sources_text
from trajcli.files.writing import write
from trajcli.jobs.shards import PART_ATTRIBUTES, find_run

_BLOCK_BYTES = 16 << 20


def merge(
    out: Path,
    overwrite: bool = False,
    on_progress: Progress = lambda done, total: None,
) -> dict[str, Any]:
    """Joins the parts of OUT and returns a report of plain values. The parts stay.

    Raises InputError for parts that are missing, damaged or of another command; OUT is then as it
    was before.
    """
    began = time.perf_counter()
    out = out.with_suffix("") if out.suffix == ".parts" else out
    refuse_output(out, overwrite)
    parts = find_run(out).require_all(out)
    with Files() as files:
        files.sources.add([str(part.path) for part in parts])
        contents = [PartContents(files.open(part.path)) for part in parts]
        contents = [part for part in contents if part.count] or contents[:1]
        description = _describe(contents)
        notes = write(
            out,
            description,
            partial(_copy, contents, description),
            overwrite=overwrite,
            compress=parts[0].request.get("compress"),
            sources=files.sources,
            on_progress=on_progress,
        )
    seconds = time.perf_counter() - began
    kinds = {v.dtype.name for part in contents for v in part.variables if v.name in QUANTITIES}
    if len(kinds) > 1:
        types = " and ".join(sorted(kinds))
        notes.append(f"parts of {types}, as their files are; --dtype makes them one")
    return {
        "out": str(out),
        "parts": len(parts),
        "trajectories": description.sizes["trajectory"],
        "notes": notes,
        "bytes_written": description.nbytes,
        "seconds": seconds,
        "gb_per_s": 2 * description.nbytes / seconds / 1e9,
    }


class PartContents:
    """What a whole part holds: trajectories in one array or, where ``grouped``, in groups.

    names: of the trajectories, by their number of rows; "" where those in one array have no names.
    variables: as in the description of an output. sizes: of the dimensions other than
    ``trajectory`` and ``row``. sources: all names that an attribute of the file sums up.
    """

    def __init__(self, file: ArrayFile) -> None:
        self.file, paths, prefix = file, file.names(), ""
        self.joint_names, self.attributes = self._texts("dof"), file.attributes()
        lists = [path for path in paths if path.startswith(f"{SOURCES}/")]
        self.sources = {path.rpartition("/")[2]: self._texts(path) or [] for path in lists}
        self.names: dict[int, list[str]] = {}
        self.grouped = "time" not in paths
        if self.grouped:
            groups = [path.removesuffix("/time") for path in paths if path.endswith("/time")]
            listed = self.sources.pop("trajectory", [])
            order = {name: number for number, name in enumerate(listed)}
            for group in sorted(groups, key=lambda name: order.get(name, 0)):
                rows = file.require(f"{group}/time").shape[0]
                self.names.setdefault(rows, []).append(group)
            self.count, prefix = len(groups), f"{groups[0]}/"  # all hold what the first one does
            paths = [path for path in paths if path.startswith(prefix)]
        else:
            shape = next(file.require(name).shape for name in QUANTITIES if name in paths)
            self.count = shape[0]
            self.names[shape[1]] = self._texts("trajectory") or [""] * self.count
        self.variables: list[Variable] = []
        self.sizes: dict[str, int] = {}
        for path in paths:
            stored = file.require(path)
            if not stored.numeric:  # names of dofs and trajectories
                continue
            dims, name = file.dims(path), path.removeprefix(prefix)
            self.sizes |= dict(zip(dims, stored.shape, strict=True))
            dims = ("trajectory",) * self.grouped + dims
            dims = tuple("row" if dim == "time" else dim for dim in dims)
            self.variables.append(Variable(name, dims, stored.dtype, stored.attributes))
        self.sizes = {n: x for n, x in self.sizes.items() if n not in ("trajectory", "time", "row")}

    @property
    def shared_time(self) -> Any:
        """The times of the rows of all trajectories, where they have the same; else None."""
        dims = next(v.dims for v in self.variables if v.name == "time")
        return self.file.require("time").read() if dims == ("row",) else None

    def axes(self) -> dict[str, list[str]]:
        """Returns the dimensions of every variable as text, with the sizes that all parts share."""
        sizes = {dim: f" {size}" for dim, size in self.sizes.items()}
        return {v.name: [dim + sizes.get(dim, "") for dim in v.dims] for v in self.variables}

    def _texts(self, name: str) -> list[str] | None:
        """Returns a dataset of strings; None where there is none, or one of numbers."""
        stored = self.file.get(name)  # in groups, names() has one of the links to the dofs' names
        return stored.texts() if stored is not None and not stored.numeric else None

    def blocks(self, rows: int, names: Sequence[str]) -> Iterator[tuple[dict[str, Any], Any]]:
        """Reads the trajectories of so many rows, block by block: variables [n, ...] by name, and
        times [1 or n, T]."""
        read = self.file.require
        if self.grouped:
            for group in self.names.get(rows, ()):
                values = {name: read(f"{group}/{name}").read()[None] for name in names}
                yield values, read(f"{group}/time").read()[None]
        elif rows in self.names:
            shared = self.shared_time
            datasets = {name: read(name) for name in (*names, *(["time"] * (shared is None)))}
            size = sum(stored.nbytes for stored in datasets.values()) // max(self.count, 1)
            step = max(1, _BLOCK_BYTES // max(size, 1))
            for begin in range(0, self.count, step):
                end = min(begin + step, self.count)
                values = {name: stored.read_rows(begin, end) for name, stored in datasets.items()}
                yield values, values.pop("time") if shared is None else shared[None]


def _describe(parts: Sequence[PartContents]) -> Description:
    """Describes the whole; raises InputError where parts hold different things."""
    first = parts[0]
    for part in parts:
        _require_same_axes(first, part)
    lengths: dict[int, list[Any]] = {}
    names: list[str] = []
    for part in parts:
        for rows, members in part.names.items():
            lengths.setdefault(rows, []).append(np.arange(len(names), len(names) + len(members)))
            names += members
    times = [part.shared_time for part in parts]
    shared = len(lengths) == 1 and all(
        line is not None and np.array_equal(line, times[0]) for line in times
    )
    stamps = _start_stamps(parts)
    versions = [{v.name: v for v in part.variables} for part in parts]
    gradients = [f"grad/{name}" for name in (*INPUTS, "dt")]  # in the order of a run
    variables = []
    for name in dict.fromkeys((*QUANTITIES, "time", "start_index", *gradients, *versions[0])):
        if name == "time":
            variables += [
                time_variable(shared, times[0] if shared else None),
                *stamp_variables(stamps),
            ]
        elif name in versions[0] and name != "start_stamp":
            dtype = np.result_type(*(variables_of[name].dtype for variables_of in versions))
            variables.append(replace(versions[0][name], dtype=dtype))
    return describe_output(
        {rows: np.concatenate(numbers) for rows, numbers in lengths.items()},
        {dim: first.sizes[dim] for v in variables for dim in v.dims if dim in first.sizes},
        variables,
        _attributes(parts),
        names=names if any(names) else None,
        joint_names=first.joint_names,
    )


def _start_stamps(parts: Sequence[PartContents]) -> tuple[Any, str] | None:
    """Returns the first stamps [n] of the sources, and their unit, where a run in one piece would
    have them: all parts, in one unit, and not all 0."""
    variables = [v for part in parts for v in part.variables if v.name == "start_stamp"]
    kinds = {(v.dtype.kind, str(v.attributes["units"])) for v in variables}
    if len(variables) < len(parts) or len(kinds) != 1:
        return None
    stamps = []
    for part in parts:
        groups = chain.from_iterable(part.names.values()) if part.grouped else ("",)
        for group in groups:
            stamps.append(part.file.require(f"{group}/start_stamp".strip("/")).read())
    joined = np.concatenate(list(map(np.ravel, stamps)))
    return (joined, kinds.pop()[1]) if joined.any() else None


def _require_same_axes(first: PartContents, part: PartContents) -> None:
    """Raises InputError for a part that has other variables than the first, or of other sizes."""
    expected, found = first.axes(), part.axes()
    for name, axes in expected.items():
        there = found.get(name)
        if name not in ("time", "start_stamp") and there != axes:
            raise InputError(
                "a part of another run",
                where=f"{part.file.path}:/{name}",
                expected=f"as in {first.file.path.name}: {', '.join(axes)}",
                found="nothing" if there is None else ", ".join(there),
                hint="the inputs differ in their dofs, or in what they hold",
            )


def _copy(parts: Sequence[PartContents], description: Description, output: Output) -> Iterator[int]:
    """Copies the trajectories, block by block, those of each length together."""
    names = [v.name for v in description.streamed if v.by_trajectory and v.name != "time"]
    for rows in sorted({rows for part in parts for rows in part.names}):
        for part in parts:
            for arrays, times in part.blocks(rows, names):
                yield output.append(arrays, times)


def _attributes(parts: Sequence[PartContents]) -> dict[str, Any]:
    """Returns the attributes of the whole: those that parts list the names of are summed up again,
    and others that differ, such as dt, "varies"."""
    first, merged = parts[0], dict[str, Any]()
    for name in set(first.attributes) - set(PART_ATTRIBUTES):
        values = [part.attributes[name] for part in parts if name in part.attributes]
        same = len(set(map(str, values))) == 1
        merged[name] = values[0] if same else "varies"
    for name in first.sources:
        texts = (text for part in parts for text in part.sources.get(name, ()))
        merged[name] = sources_text(name, texts)
    return merged
