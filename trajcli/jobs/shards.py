"""Shards: a run divided among processes, each of which writes an ordinary output; and their merge.

    OUT.h5.parts/00003-of-00064.h5    shard 3 of 64; it is done when this file exists

A part has the attribute ``shard``, which other outputs do not have. In the dataset ``inputs`` it
lists the files that were opened for it, each as a JSON text: the name as it is seen from OUT's
folder, size, time of modification, and a hash of up to 64 KiB at both ends.

Merged parts of one length give one array of all trajectories, parts of several lengths a group for
every trajectory. Memory is that of a block, and of the names of the trajectories.
"""

from __future__ import annotations

import itertools
import json
import os
import re
import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np

from trajcli import __version__
from trajcli.adjoint import NAMES
from trajcli.errors import Fault, InputError, Note, OutputError, Report, raise_if_any
from trajcli.files.atomic_output import HiddenFolder, os_fault
from trajcli.files.catalogue import Catalogue, json_object
from trajcli.files.file_bytes import file_content
from trajcli.files.hdf5 import Hdf5File
from trajcli.files.hdf5_output import INPUTS, SOURCES
from trajcli.files.opening import Files
from trajcli.files.outputs import Description, Group, Span, Variable, describe_output, time_variable
from trajcli.files.quantities import (
    ANGULAR_SMOOTHING,
    QUANTITIES,
    RECORDED_POSITION,
    ROTATIONS,
    SMOOTHING,
    sources_text,
)
from trajcli.files.writing import output_family, refuse_output, write
from trajcli.jobs.job import Job, Results, write_blocks
from trajcli.jobs.request import SourceRequest, parts_folder
from trajcli.memory import MERGED_BYTES

# The parts that hold trajectories, in their order.
Parts = Mapping[Catalogue, Description]


class Part:
    """The output of a finished shard: its ``path``, and the ``request``, the ``version`` of trajcli
    and the ``inputs`` of its run."""

    def __init__(self, path: Path) -> None:
        index, count = _parse_name(path.name)
        if not path.is_file():
            what, expected, found = "cannot be read", "a file", "something else"
            raise InputError(what, where=path, expected=expected, found=found)
        with Hdf5File(path) as file:
            stated, stored = dict(file.attributes()), file.get(INPUTS)
            try:
                lines = [json.loads(text) for text in stored.texts()] if stored else []
                self.inputs = {str(name): str(content) for name, content in lines}
            except (TypeError, ValueError):
                raise InputError("damaged", where=path, expected=f"files in {INPUTS}") from None
        self.path, self.request = path, json_object(stated.get("request"))
        shard, self.version = stated.get("shard"), str(stated.get("trajcli_version"))
        if not self.request or shard != f"{index}/{count}":
            expected, found = f"shard {index}/{count} of a run", f"shard {shard}"
            raise InputError("not a part", where=path, expected=expected, found=found)

    @property
    def command(self) -> str:
        """The version of trajcli and the request, as a text that parts of one run share."""
        # of one run, parts that left something out state skip_bad, and the others do not
        return json.dumps([self.version, {**self.request, "skip_bad": True}], sort_keys=True)

    def compare(
        self, version: str, request: Mapping[str, Any], states: Mapping[str, str | None]
    ) -> Fault | None:
        """Finds the fault of a part of another command, or of an input in another state."""
        stored = {**self.request, "trajcli": self.version}
        current = {**request, "trajcli": version}
        if request.get("skip_bad"):
            stored["skip_bad"] = True  # a part that left nothing out does not state it
        if stored != current:
            absent = "not given"
            keys = sorted(k for k in {**stored, **current} if stored.get(k) != current.get(k))
            found = "; ".join(
                f"{k} {stored.get(k, absent)} there, {current.get(k, absent)} here" for k in keys
            )
            what, expected = "a part of another command", "parts of one command"
            return Fault(what, where=self.path, expected=expected, found=found)
        for name, content in self.inputs.items():
            if (state := states.get(name, content)) != content:
                # a copy has another time, and the same size and ends
                size, _, ends = (state or "no such file").partition(", modified")
                copied = content.startswith(size) and content.endswith(ends[-16:])
                hint = "cp -p and rsync -t keep the times of copies; " if copied else ""
                what = "a part of another state of its inputs"
                expected = f"{name}: {state or 'no such file'}"
                return Fault(what, where=self.path, expected=expected, found=content, hint=hint)
        return None


def read_finished_part(request: SourceRequest, dry: bool = False) -> dict[str, Any] | None:
    """Reads the result of a shard whose part is done, and makes the folder of parts.

    The result is None where the part is to be written, as one that cannot be read is, or ``dry``.
    Raises OutputError for parts of another run, and for inputs that have changed.
    """
    if output_family(request.out) == "npy":
        what, expected = "a run in shards has no .npy output", "OUT.h5 or OUT.npz"
        raise OutputError(what, where=request.out, expected=expected, found=request.out.suffix)
    if dry:
        return None
    path = request.path
    try:
        path.parent.mkdir(exist_ok=True)
        names = [*_part_names(path.parent), path.name]
    except OSError as error:
        raise OutputError(os_fault(path.parent, error)) from None
    if fault := _count_fault(path.parent, names):
        raise OutputError(fault)
    try:
        part = Part(path)
    except InputError:
        return None
    # names of inputs are relative to the folder of OUT, which holds the folder of parts
    states = {name: file_content(path.parent.parent / name) for name in part.inputs}
    if fault := part.compare(__version__, json.loads(request.to_json()), states):
        if request.overwrite:
            return None
        raise OutputError(replace(fault, hint=f"{fault.hint}another OUT, or --overwrite"))
    # what a killed run of this shard left is removed, unless another process writes there
    with suppress(OutputError, OSError):
        HiddenFolder(path, overwrite=True).close()
    shard, nothing = str(request.shard), list[str]()
    return {"out": str(path), "shard": shard, "already_done": True, "notes": nothing,
            "left_out": nothing}  # fmt: skip


class Run:
    """The parts of a run in shards, by the index of the shard: the parts that are ``done``, the
    ``faults`` of parts that cannot be read or are of another command, and the ``missing`` ones."""

    def __init__(self, out: Path) -> None:
        self.folder = folder = parts_folder(out)
        try:
            names, reason = _part_names(folder), "no parts in it"
        except OSError as error:
            names, reason = [], error.strerror or str(error)
        if not names:
            what, expected = "no run in shards", "a folder of parts"
            hint = f"trajcli integrate … -o {shlex.quote(str(out))} --shard I/N writes parts"
            raise InputError(what, where=folder, expected=expected, found=reason, hint=hint)
        if fault := _count_fault(folder, names):
            raise InputError(fault)
        self.count, self.done, faults = _parse_name(names[0])[1], dict[int, Part](), {}
        for name in names:
            index = _parse_name(name)[0]
            try:
                self.done[index] = Part(folder / name)
            except InputError as error:
                faults[index] = replace(error.faults[0], hint="run this shard again")

        # The command of most parts is that of the run. Of an input that its parts read in several
        # states, the present one is right if any part read it; otherwise that of most parts is.
        commands = Counter(part.command for part in self.done.values())
        usual = commands.most_common(1)[0][0] if commands else ""
        parts = [part for part in self.done.values() if part.command == usual]
        counts: dict[str, Counter[str]] = {}
        for part in parts:
            for name, content in part.inputs.items():
                counts.setdefault(name, Counter())[content] += 1
        states = dict[str, str | None]()
        for name, contents in counts.items():
            if len(contents) > 1:
                present = file_content(folder.parent / name)
                states[name] = present if present in contents else contents.most_common(1)[0][0]
        for index, part in self.done.items():
            again = "run this shard again" + " with --overwrite" * (part in parts)
            request = {**parts[0].request, "skip_bad": True}
            if fault := part.compare(parts[0].version, request, states):
                faults[index] = replace(fault, hint=f"{fault.hint}{again}")
        self.done = {index: part for index, part in self.done.items() if index not in faults}
        self.faults = dict(sorted(faults.items()))
        self.missing = [k for k in range(self.count) if k not in {*self.done, *faults}]

    @property
    def array(self) -> str:
        """The shards to run again, as ``sbatch --array=`` takes them: 3,7-9."""
        return ranges((*self.missing, *self.faults))


def ranges(numbers: Iterable[int]) -> str:
    """Writes numbers in order, with consecutive ones as a range: 0,3-5."""
    # n - k is the same for all k-th numbers n of a range
    pairs = ((number - k, number) for k, number in enumerate(sorted(set(numbers))))
    spans = [[n for _, n in span] for _, span in itertools.groupby(pairs, key=itemgetter(0))]
    return ",".join(f"{span[0]}-{span[-1]}" if len(span) > 1 else f"{span[0]}" for span in spans)


def _part_names(folder: Path) -> list[str]:
    return sorted(name for name in os.listdir(folder) if _parse_name(name)[0] >= 0)


def _parse_name(name: str) -> tuple[int, int]:
    """Parses 00003-of-00064.h5 as 3 and 64; returns -1 and 0 for any other name."""
    # with five digits, names sort as numbers do up to 100 000 shards
    match = re.fullmatch(r"([0-9]{5,9})-of-([0-9]{5,9})\.h5", name)
    index, count = (int(match[1]), int(match[2])) if match else (0, 0)
    return (index, count) if index < count else (-1, 0)


def _count_fault(folder: Path, names: Sequence[str]) -> Fault | None:
    counts = sorted({_parse_name(name)[1] for name in names})
    if len(counts) == 1:
        return None
    found = " and ".join(f"{count} shards" for count in counts)
    hint = f"rm {shlex.quote(str(folder))}/*-of-{counts[0]:05}.h5 removes those of {counts[0]}"
    what = "parts of different numbers of shards"
    return Fault(what, where=folder, expected="one number", found=found, hint=hint)


def merge(out: Path, overwrite: bool = False, report: Report | None = None) -> dict[str, Any]:
    """Joins the parts of OUT and returns the result as plain values. The parts stay."""
    report = report or Report()
    out = out.with_suffix("") if out.suffix == ".parts" else out
    refuse_output(out, overwrite)
    run = Run(out)
    faults = list(run.faults.values())
    if run.missing:
        expected, found = f"shards 0 to {run.count - 1}", f"{ranges(run.missing)} missing"
        hint = f"trajcli status {shlex.quote(str(out))} says what to run"
        what, where = "the run is not complete", run.folder
        faults.append(Fault(what, where=where, expected=expected, found=found, hint=hint))
    raise_if_any(faults)
    parts = [run.done[index] for index in range(run.count)]
    # parts are watched for changes, as inputs of a run are
    with Files() as files:
        files.sources.watch([str(part.path) for part in parts])
        opened = [files.open(part.path) for part in parts]
        contents = {file: _read_description(file) for file in opened}
        # parts without trajectories say nothing about times and lengths
        empty = [file for file, part in contents.items() if not part.sizes["trajectory"]]
        for file in empty if len(empty) < len(opened) else empty[1:]:
            del contents[file]
        description = _describe(contents)
        job = Job(out, description, _spans(contents), partial(_read_span, description))
        remarks = write(
            out,
            description,
            lambda output: write_blocks(job, output.write, report),
            overwrite=overwrite,
            compress=parts[0].request.get("compress"),
            sources=files.sources,
        )
    report.add_notes(*remarks)
    seconds = report.seconds
    # files of float32 and of float64 in different shards give parts of both
    variables = (v for part in contents.values() for v in part.variables)
    kinds = {v.dtype.name for v in variables if v.name in QUANTITIES}
    if len(kinds) > 1:
        types = " and ".join(sorted(kinds))
        report.add_notes(Note(f"parts of {types}, as their files are; --dtype makes them one"))
    size, count = description.nbytes, description.sizes["trajectory"]
    result = {"out": str(out), "parts": len(parts), "trajectories": count, "notes": report.notes}
    return result | {"bytes_written": size, "seconds": seconds, "gb_per_s": 2e-9 * size / seconds}


def _read_description(file: Catalogue) -> Description:
    """Reads the description that a part was written by, with ``row`` in place of ``time``."""
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
        if groups:
            dims = ("trajectory", *dims)
        variables.append(Variable(path.removeprefix(prefix), dims, stored.dtype, stored.attributes))
    if groups:
        sizes["trajectory"] = len(members)
    names = None if groups else _texts(file, "trajectory")
    about = file.attributes()
    return Description(sizes, variables, about, names, _texts(file, "dof"), groups, sources)


def _texts(file: Catalogue, name: str) -> list[str] | None:
    """Reads a dataset of strings; None where there is none, or one of numbers."""
    stored = file.get(name)  # in groups, names() has one of the links to the dofs' names
    return stored.texts() if stored is not None and not stored.numeric else None


def _shared_time(file: Catalogue, part: Description) -> Any:
    """Reads the times of the rows of all trajectories; None where they differ."""
    dims = next(v.dims for v in part.variables if v.name == "time")
    return file.require("time").read() if dims == ("row",) else None


def _describe(parts: Parts) -> Description:
    """Describes the merged output; raises InputError where parts differ in their variables."""
    first, shares = next(iter(parts.values())), list(parts.values())
    _require_same_axes(parts)
    # trajectories are numbered through the parts: each length collects its numbers from all parts
    lengths: dict[int, list[Any]] = {}
    names: list[str] = []
    for part in shares:
        count = part.sizes["trajectory"]
        titles = list(part.names or [""] * count)
        for group in part.groups or (Group(part.sizes["row"], np.arange(count), titles),):
            lengths.setdefault(group.rows, []).append(len(names) + np.asarray(group.numbers))
            for number, name in zip(group.numbers, group.names, strict=True):
                titles[number] = name
        names += titles
    # one line of times for all, if all parts have the same
    times = [_shared_time(file, part) for file, part in parts.items()]
    shared = len(lengths) == 1 and all(
        line is not None and np.array_equal(line, times[0]) for line in times
    )
    versions = [{v.name: v for v in part.variables} for part in shares]
    # start_stamp is written where all parts have it, in one unit, and not all stamps are 0
    stamps = [version["start_stamp"] for version in versions if "start_stamp" in version]
    units = {(v.dtype.kind, str(v.attributes["units"])) for v in stamps}
    alike = len(stamps) == len(parts) and len(units) == 1
    paths = ((file, path) for file in parts if alike for path in file.names())
    stored = (file.require(p) for file, p in paths if p.rpartition("/")[2] == "start_stamp")
    stamped = any(values.read().any() for values in stored)
    # variables lie in the order in which a run without shards writes them
    gradients = [f"grad/{name}" for name in (*NAMES, "dt")]
    variables = []
    rows = (*QUANTITIES, *ROTATIONS, *ANGULAR_SMOOTHING)
    others = ("time", "start_stamp", "start_index", RECORDED_POSITION, *SMOOTHING, "guessed")
    for name in dict.fromkeys((*rows, *others, *gradients, *versions[0])):
        if name == "time":
            variables.append(time_variable(shared, times[0] if shared else None))
        elif name in versions[0] and (name != "start_stamp" or stamped):
            dtype = np.result_type(*(version[name].dtype for version in versions))
            variables.append(replace(versions[0][name], dtype=dtype))
    # control points differ between trajectories by as many as rows do
    sizes = {dim: size for dim, size in first.sizes.items() if dim not in ("trajectory", "row")}
    if "point" in sizes:
        sizes["point"] += max(lengths) - first.sizes["row"]

    # attributes that differ, such as dt, are "varies"; names that parts list are summed up again
    merged = dict[str, Any]()
    for name in set(first.attributes) - {"shard"}:
        values = [part.attributes[name] for part in shares if name in part.attributes]
        merged[name] = values[0] if len(set(map(str, values))) == 1 else "varies"
    # requests of one run differ in skip_bad alone, which parts state that left something out
    merged["request"] = max((part.attributes["request"] for part in shares), key=len)
    for name in first.sources:
        texts = (text for part in shares for text in part.sources.get(name, ()))
        merged[name] = sources_text(name, texts)
    return describe_output(
        {rows: np.concatenate(numbers) for rows, numbers in lengths.items()},
        {dim: sizes[dim] for v in variables for dim in v.dims if dim in sizes},
        variables,
        merged,
        names=names if any(names) else None,
        joint_names=first.joint_names,
    )


def _require_same_axes(parts: Parts) -> None:
    """Raises InputError for a part that has other variables than the first, or of other sizes."""

    def axes(part: Description) -> dict[str, list[str]]:
        # parts of one run may differ in these sizes
        free = {"trajectory": "", "row": "", "point": ""}
        sizes = {dim: f" {size}" for dim, size in part.sizes.items()} | free
        return {v.name: [dim + sizes[dim] for dim in v.dims] for v in part.variables}

    (first, expected), *_ = ((file, axes(part)) for file, part in parts.items())
    for file, part in parts.items():
        present = axes(part)
        for name, dims in expected.items():
            found = present.get(name)
            if name not in ("time", "start_stamp") and found != dims:
                what, where = "a part of another run", f"{file.path}:/{name}"
                needed = f"as in {first.path.name}: {', '.join(dims)}"
                text = "nothing" if found is None else ", ".join(found)
                hint = "inputs differ in what they hold, or in their dofs: --dofs of integrate "
                hint += "or differentiate picks the same"
                raise InputError(what, where=where, expected=needed, found=text, hint=hint)


@dataclass(frozen=True, kw_only=True)
class PartSpan(Span):
    """Trajectories that lie in one part."""

    file: Catalogue
    source: int | str  # index of the first in the arrays of the part; the name of a group
    time: Any  # times of the rows, where all trajectories of the part share them


def _spans(parts: Parts) -> Iterator[PartSpan]:
    lengths = {group.rows for part in parts.values() for group in part.groups}
    lengths |= {part.sizes["row"] for part in parts.values() if not part.groups}
    for k, rows in enumerate(sorted(lengths)):
        begin = 0
        for file, part in parts.items():
            # of groups, one trajectory at a time; of an array, as many as memory allows
            count, step, time = 0, 1, None
            names = [name for group in part.groups if group.rows == rows for name in group.names]
            if names:
                count = len(names)
            elif not part.groups and part.sizes["row"] == rows:
                count, time = part.sizes["trajectory"], _shared_time(file, part)
                size = sum(part.entry_bytes(v) for v in part.variables if v.has_trajectory_axis)
                step = max(1, MERGED_BYTES // max(size, 1))
            for first in range(0, count, step):
                yield PartSpan(
                    begin=begin + first, end=begin + min(first + step, count), group=k, file=file,
                    source=names[first] if names else first, time=time,
                )  # fmt: skip
            begin += count


def _read_span(description: Description, span: PartSpan) -> Results:
    read = span.file.require
    names = [v.name for v in description.streamed if v.has_trajectory_axis or v.name == "time"]
    stored = names if span.time is None else [name for name in names if name != "time"]
    if isinstance(span.source, str):
        yield 0, {name: read(f"{span.source}/{name}").read()[None] for name in stored}
        return
    end = span.source + len(span)
    arrays = {name: read(name).read_rows(span.source, end) for name in stored}
    yield 0, arrays if span.time is None else {**arrays, "time": span.time[None]}
