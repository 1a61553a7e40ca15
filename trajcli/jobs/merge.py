"""Merges the parts of a run in shards into one output, one behind the other.

Parts of one length give one array of all trajectories, parts of several lengths a group for every
trajectory. Memory is that of a block, and of the names of the trajectories.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from trajcli.adjoint import NAMES as INPUTS
from trajcli.errors import InputError, Note
from trajcli.files.arrays import ArrayFile
from trajcli.files.file_bytes import Progress
from trajcli.files.hdf5_output import SOURCES
from trajcli.files.opening import Files
from trajcli.files.outputs import (
    Description,
    Group,
    Output,
    Variable,
    describe_output,
    time_variable,
)
from trajcli.files.quantities import (
    QUANTITIES,
    RECORDED_POSITION,
    ROTATIONS,
    SMOOTHING,
    sources_text,
)
from trajcli.files.writing import refuse_output, write
from trajcli.jobs.rotation_block import SMOOTHED
from trajcli.jobs.shards import PART_ATTRIBUTES, Run
from trajcli.memory import MERGED_BYTES

# The parts that hold trajectories, in their order.
Parts = Mapping[ArrayFile, Description]


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
    parts = Run(out).require_all(out)
    with Files() as files:
        files.sources.add([str(part.path) for part in parts])
        opened = [files.open(part.path) for part in parts]
        contents = {file: _stored_description(file) for file in opened}
        empty = [file for file, part in contents.items() if not part.sizes["trajectory"]]
        for file in empty if len(empty) < len(opened) else empty[1:]:
            del contents[file]
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
    kinds = {
        v.dtype.name for part in contents.values() for v in part.variables if v.name in QUANTITIES
    }
    if len(kinds) > 1:
        types = " and ".join(sorted(kinds))
        notes.append(Note(f"parts of {types}, as their files are; --dtype makes them one"))
    return {
        "out": str(out),
        "parts": len(parts),
        "trajectories": description.sizes["trajectory"],
        "notes": notes,
        "bytes_written": description.nbytes,
        "seconds": seconds,
        "gb_per_s": 2 * description.nbytes / seconds / 1e9,
    }


def _stored_description(file: ArrayFile) -> Description:
    """Returns the description that a part was written by, with ``row`` in place of ``time``."""
    paths, prefix, groups = file.names(), "", list[Group]()
    listed = (path for path in paths if path.startswith(f"{SOURCES}/"))
    sources = {path.rpartition("/")[2]: _texts(file, path) or [] for path in listed}
    if "time" not in paths:
        order = {name: number for number, name in enumerate(sources.pop("trajectory", []))}
        members = [path.removesuffix("/time") for path in paths if path.endswith("/time")]
        members.sort(key=lambda name: order.get(name, 0))
        rows = np.array([file.require(f"{name}/time").shape[0] for name in members])
        for count in np.unique(rows).tolist():
            numbers = np.flatnonzero(rows == count)
            groups.append(Group(count, numbers, [members[n] for n in numbers]))
        prefix = f"{members[0]}/"  # every group has the variables of the first
    sizes, variables = dict[str, int](), list[Variable]()
    for path in paths:
        stored = file.require(path) if path.startswith(prefix) else None
        # texts are names of dofs and trajectories
        if stored is None or not stored.numeric:
            continue
        dims = tuple("row" if dim == "time" else dim for dim in file.dims(path))
        sizes |= dict(zip(dims, stored.shape, strict=True))
        dims = ("trajectory",) * bool(groups) + dims
        variables.append(Variable(path.removeprefix(prefix), dims, stored.dtype, stored.attributes))
    if groups:
        sizes["trajectory"] = len(members)
    names = None if groups else _texts(file, "trajectory")
    about = file.attributes()
    return Description(sizes, variables, about, names, _texts(file, "dof"), groups, sources)


def _texts(file: ArrayFile, name: str) -> list[str] | None:
    """Returns a dataset of strings; None where there is none, or one of numbers."""
    stored = file.get(name)  # in groups, names() has one of the links to the dofs' names
    return stored.texts() if stored is not None and not stored.numeric else None


def _shared_time(file: ArrayFile, part: Description) -> Any:
    """Returns the times of the rows of all trajectories, where they have the same; else None."""
    dims = next(v.dims for v in part.variables if v.name == "time")
    return file.require("time").read() if dims == ("row",) else None


def _describe(parts: Parts) -> Description:
    """Describes the merged output; raises InputError where parts differ in their variables."""
    first = next(iter(parts.values()))
    _require_same_axes(parts)
    lengths: dict[int, list[Any]] = {}
    names: list[str] = []
    for part in parts.values():
        count = part.sizes["trajectory"]
        titles = list(part.names or [""] * count)
        for group in part.groups or (Group(part.sizes["row"], np.arange(count), titles),):
            lengths.setdefault(group.rows, []).append(len(names) + np.asarray(group.numbers))
            for number, name in zip(group.numbers, group.names, strict=True):
                titles[number] = name
        names += titles
    times = [_shared_time(file, part) for file, part in parts.items()]
    shared = len(lengths) == 1 and all(
        line is not None and np.array_equal(line, times[0]) for line in times
    )
    versions = [{v.name: v for v in part.variables} for part in parts.values()]
    # variables lie in the order in which a run without shards writes them
    gradients = [f"grad/{name}" for name in (*INPUTS, "dt")]
    variables = []
    rows = (*QUANTITIES, *ROTATIONS, *(f"angular_{name}" for name in SMOOTHED))
    beside = ("time", "start_stamp", "start_index", RECORDED_POSITION, *SMOOTHING, "guessed")
    for name in dict.fromkeys((*rows, *beside, *gradients, *versions[0])):
        if name == "time":
            variables.append(time_variable(shared, times[0] if shared else None))
        elif name in versions[0] and (name != "start_stamp" or _has_stamps(parts)):
            dtype = np.result_type(*(variables_of[name].dtype for variables_of in versions))
            variables.append(replace(versions[0][name], dtype=dtype))
    sizes = {dim: size for dim, size in first.sizes.items() if dim not in ("trajectory", "row")}
    return describe_output(
        {rows: np.concatenate(numbers) for rows, numbers in lengths.items()},
        {dim: sizes[dim] for v in variables for dim in v.dims if dim in sizes},
        variables,
        _attributes(list(parts.values())),
        names=names if any(names) else None,
        joint_names=first.joint_names,
    )


def _has_stamps(parts: Parts) -> bool:
    """Returns whether a run without shards would write ``start_stamp``: all parts have it, in one
    unit, and not all are 0."""
    variables = [v for part in parts.values() for v in part.variables if v.name == "start_stamp"]
    kinds = {(v.dtype.kind, str(v.attributes["units"])) for v in variables}
    if len(variables) < len(parts) or len(kinds) > 1:
        return False
    return any(
        file.require(f"{prefix}start_stamp").read().any()
        for file, part in parts.items()
        for prefix in [f"{name}/" for group in part.groups for name in group.names] or [""]
    )


def _require_same_axes(parts: Parts) -> None:
    """Raises InputError for a part that has other variables than the first, or of other sizes."""

    def axes(part: Description) -> dict[str, list[str]]:
        own = {"trajectory": "", "row": ""}
        sizes = {dim: f" {size}" for dim, size in part.sizes.items()} | own
        return {v.name: [dim + sizes[dim] for dim in v.dims] for v in part.variables}

    (first, expected), *_ = ((file, axes(part)) for file, part in parts.items())
    for file, part in parts.items():
        found = axes(part)
        for name, dims in expected.items():
            there = found.get(name)
            if name not in ("time", "start_stamp") and there != dims:
                raise InputError(
                    "a part of another run",
                    where=f"{file.path}:/{name}",
                    expected=f"as in {first.path.name}: {', '.join(dims)}",
                    found="nothing" if there is None else ", ".join(there),
                    hint="inputs differ in their dofs (--dofs picks the same), or in what they "
                    "hold",
                )


def _copy(parts: Parts, description: Description, output: Output) -> Iterator[int]:
    """Copies the trajectories block by block, length by length."""
    names = [v.name for v in description.streamed if v.by_trajectory and v.name != "time"]
    lengths = {group.rows for part in parts.values() for group in part.groups}
    lengths |= {part.sizes["row"] for part in parts.values() if not part.groups}
    for rows in sorted(lengths):
        for file, part in parts.items():
            for arrays, times in _blocks(file, part, rows, names):
                yield output.append(arrays, times)


def _blocks(
    file: ArrayFile, part: Description, rows: int, names: Sequence[str]
) -> Iterator[tuple[dict[str, Any], Any]]:
    """Reads the trajectories with so many rows block by block.

    Yields:
        Variables [n, ...] by name, and times [1 or n, T].
    """
    read = file.require
    for group in part.groups:
        for name in group.names if group.rows == rows else ():
            values = {variable: read(f"{name}/{variable}").read()[None] for variable in names}
            yield values, read(f"{name}/time").read()[None]
    if not part.groups and part.sizes["row"] == rows:
        shared, count = _shared_time(file, part), part.sizes["trajectory"]
        datasets = {name: read(name) for name in (*names, *(["time"] * (shared is None)))}
        size = sum(stored.nbytes for stored in datasets.values()) // max(count, 1)
        step = max(1, MERGED_BYTES // max(size, 1))
        for begin in range(0, count, step):
            end = min(begin + step, count)
            values = {name: stored.read_rows(begin, end) for name, stored in datasets.items()}
            yield values, values.pop("time") if shared is None else shared[None]


def _attributes(parts: Sequence[Description]) -> dict[str, Any]:
    """Returns the attributes of the merged output: names that parts list are summed up again, and
    other attributes that differ, such as dt, are "varies"."""
    first, merged = parts[0], dict[str, Any]()
    for name in set(first.attributes) - set(PART_ATTRIBUTES):
        values = [part.attributes[name] for part in parts if name in part.attributes]
        same = len(set(map(str, values))) == 1
        merged[name] = values[0] if same else "varies"
    for name in first.sources:
        texts = (text for part in parts for text in part.sources.get(name, ()))
        merged[name] = sources_text(name, texts)
    return merged
