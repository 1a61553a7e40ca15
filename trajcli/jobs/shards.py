"""Shards: a run divided among processes, each of which writes an ordinary output.

    OUT.h5.parts/00003-of-00064.h5    shard 3 of 64; it is done when this file is there

A part has attributes that other outputs do not have, ``PART_ATTRIBUTES``. ``fingerprint`` is
that of the request and its inputs, the same in all parts. In the dataset ``inputs`` it lists the
files that were opened for it, each as a JSON text: the name as it is seen from OUT's folder, size,
time of modification, and a hash of up to 64 KiB at both ends.
"""

from __future__ import annotations

import bisect
import itertools
import json
import os
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter
from pathlib import Path
from typing import Any

from trajcli.errors import Fault, InputError, OutputError, UsageError, raise_if_any
from trajcli.files.arrays import ArrayFile, json_object
from trajcli.files.atomic_output import os_fault
from trajcli.files.file_bytes import SourceFiles, file_content
from trajcli.files.hdf5 import Hdf5File
from trajcli.files.hdf5_output import INPUTS
from trajcli.files.source import Source, relative_path
from trajcli.files.writing import output_family

# The attributes that a part has and a merged output has not.
PART_ATTRIBUTES = ("shard", "fingerprint")


@dataclass(frozen=True)
class Shard:
    """Shard ``index``, from 0, of ``count``."""

    index: int
    count: int

    def share(self, count: int) -> tuple[int, int]:
        """Returns the first of its trajectories, of ``count``, and the one after the last; they are
        equal where there are fewer trajectories than shards."""
        return self.index * count // self.count, (self.index + 1) * count // self.count

    def path(self, out: Path) -> Path:
        """Returns the file of its part of OUT."""
        return parts_folder(out) / f"{self.index:05}-of-{self.count:05}.h5"

    def sources(self, files: Sequence[Source]) -> list[str] | None:
        """Returns the files that it reads; None where the trajectories are divided instead, because
        there are fewer files than shards or one is named twice."""
        try:
            sizes = [os.stat(file.path).st_size for file in files]
        except OSError:
            return None  # a file that cannot be read is reported when it is opened
        few = len({file.path for file in files}) < max(self.count, len(files))
        return None if few else [str(files[k]) for k in shard_files(sizes, self)]

    def refuse_one_array(self, out: Path) -> None:
        """Raises OutputError where OUT is a .npy file, which cannot be merged from parts."""
        if output_family(out) == "npy":
            raise OutputError(
                "a run in shards has no .npy output",
                where=str(out),
                expected="OUT.h5 or OUT.npz",
                found=out.suffix,
            )

    def __str__(self) -> str:
        return f"{self.index}/{self.count}"


def parse_shard(text: str) -> Shard:
    """Reads I/N; raises UsageError for anything else, and where I is not below N."""
    match = re.fullmatch("([0-9]{1,9})/([0-9]{1,9})", text.strip())
    index, count = map(int, match.groups()) if match else (0, 0)
    if index >= count:
        raise UsageError(
            "not a shard",
            where="--shard",
            expected=f"0/{count} to {count - 1}/{count}" if count else "I/N, like 0/64 to 63/64",
            found=repr(text),
        )
    return Shard(index, count)


def shard_files(sizes: Sequence[int], shard: Shard) -> range:
    """Returns which files a shard reads, of at least as many files as shards.

    Shards follow each other in the order of the files, have about the same number of bytes, and
    none is empty.
    """
    # shard k ends with the file in which the share (k + 1) / count of all bytes ends, but leaves
    # one file for each shard behind it
    ends = list(itertools.accumulate(sizes))
    bounds = [0]
    for index in range(1, shard.count):
        middle = bisect.bisect_left(ends, ends[-1] * index / shard.count) + 1
        last = len(sizes) - (shard.count - index)
        bounds.append(min(max(middle, bounds[-1] + 1), last))
    bounds.append(len(sizes))
    return range(bounds[shard.index], bounds[shard.index + 1])


def parts_folder(out: Path) -> Path:
    """Returns the folder of the parts of OUT, which may be named itself."""
    return out if out.name.endswith(".parts") else out.parent / f"{out.name}.parts"


class Part:
    """The output of a finished shard: its ``path``, and the ``fingerprint``, the ``request`` and
    the ``inputs`` of its run."""

    def __init__(self, path: Path) -> None:
        """Reads the part; raises InputError for a file that is damaged or no part."""
        index, count = _numbers_of(path.name)
        if not path.is_file():
            raise InputError(
                "cannot be read", where=str(path), expected="a file", found="something else"
            )
        with Hdf5File(path) as file:
            stated, self.inputs = dict(file.attributes()), _inputs_of(file)
        self.path, self.request = path, json_object(stated.get("request"))
        shard, self.fingerprint = stated.get("shard"), str(stated.get("fingerprint") or "")
        if not self.request or shard != f"{index}/{count}" or not self.fingerprint:
            raise InputError(
                "not a part",
                where=str(path),
                expected=f"shard {index}/{count} of a run",
                found=f"shard {shard}",
            )

    def difference(self, fingerprint: str, request: Mapping[str, Any], hint: str) -> Fault | None:
        """Returns the fault of a part that was written by another command than this request."""
        if self.fingerprint == fingerprint:
            return None
        # name the options that differ
        there, absent = self.request, "not given"
        keys = sorted(k for k in {**there, **request} if there.get(k) != request.get(k))
        texts = [f"{k} {there.get(k, absent)} there, {request.get(k, absent)} here" for k in keys]
        same = "the same options, but another input file or version of trajcli"
        return Fault(
            "a part of another command",
            where=str(self.path),
            expected="parts of one command",
            found="; ".join(texts) or same,
            hint=hint,
        )

    def input_fault(self, name: str, expected: str | None, hint: str) -> Fault | None:
        """Returns the fault of a part that read an input in another state."""
        there = self.inputs.get(name, expected)
        if there == expected:
            return None
        wanted = expected or "no such file"
        return Fault(
            "a part of another state of its inputs",
            where=str(self.path),
            expected=f"{name}: {wanted}",
            found=str(there),
            hint=hint,
        )


def input_lines(sources: SourceFiles, out: Path) -> list[str]:
    """Returns the lines by which a part lists the files that were opened for it."""
    folder = os.path.realpath(out.parent)
    return sorted(
        json.dumps([relative_path(path, folder), content]) for path, content in sources.contents()
    )


def _inputs_of(file: ArrayFile) -> dict[str, str]:
    """Returns the files that a part lists; raises InputError where the list is damaged."""
    stored = file.get(INPUTS)
    try:
        lines = [json.loads(text) for text in stored.texts()] if stored is not None else []
        return {str(name): str(content) for name, content in lines}
    except (TypeError, ValueError):
        raise InputError("damaged", where=str(file.path), expected=f"files in {INPUTS}") from None


def part_is_done(path: Path, fingerprint: str, request: str, overwrite: bool) -> bool:
    """Returns whether a part exists, intact and of this run; makes the folder of parts.

    A part that cannot be read is to be replaced. Raises OutputError for a part of
    another run, or of inputs that are others now, unless ``overwrite``, and where there are parts
    of another number of shards.
    """
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
        return False
    hint = "another OUT, or --overwrite"
    fault = part.difference(fingerprint, json.loads(request), hint)
    states = ((name, _content_now(path, name)) for name in part.inputs)
    fault = fault or next(filter(None, (part.input_fault(*one, hint) for one in states)), None)
    if fault and not overwrite:
        raise OutputError(fault)
    return fault is None


class Run:
    """The parts of a run in shards, by the index of the shard: those that are ``done``, and the
    ``faults`` of those that cannot be read or are of another command."""

    def __init__(self, out: Path) -> None:
        """Reads all parts of OUT; raises InputError where there are none, or parts of two runs."""
        self.folder = folder = parts_folder(out)
        try:
            names, reason = _part_names(folder), "no parts in it"
        except OSError as error:
            names, reason = [], error.strerror or str(error)
        if not names:
            raise InputError(
                "no run in shards",
                where=str(folder),
                expected="a folder of parts",
                found=reason,
                hint=f"trajcli integrate … -o {out} --shard I/N writes parts",
            )
        if fault := _count_fault(folder, names):
            raise InputError(fault)
        self.count, self.done, faults = _numbers_of(names[0])[1], dict[int, Part](), {}
        for name in names:
            index = _numbers_of(name)[0]
            try:
                self.done[index] = Part(folder / name)
            except InputError as error:
                faults[index] = replace(error.faults[0], hint="run this shard again")
        if self.done:  # the request of most parts is that of the run
            counts = Counter(part.fingerprint for part in self.done.values())
            usual = counts.most_common(1)[0][0]
            like = next(part for part in self.done.values() if part.fingerprint == usual)
            for index, part in self.done.items():
                if fault := part.difference(usual, like.request, "run this shard again"):
                    faults[index] = fault
        alike = {index: part for index, part in self.done.items() if index not in faults}
        faults |= _input_faults(alike)
        self.done = {index: part for index, part in alike.items() if index not in faults}
        self.faults = dict(sorted(faults.items()))

    @property
    def missing(self) -> Sequence[int]:
        """The shards without a part."""
        return [k for k in range(self.count) if k not in self.done and k not in self.faults]

    def require_all(self, out: Path) -> list[Part]:
        """Returns all parts in their order, or raises InputError with everything that is wrong."""
        faults = list(self.faults.values())
        if self.missing:
            faults.append(
                Fault(
                    "the run is not complete",
                    where=str(self.folder),
                    expected=f"shards 0 to {self.count - 1}",
                    found=f"{ranges(self.missing)} missing",
                    hint=f"trajcli status {out} says what to run",
                )
            )
        raise_if_any(faults)
        return [self.done[index] for index in range(self.count)]

    @property
    def array(self) -> str:
        """The shards to run again, as ``sbatch --array=`` takes them: 3,7-9."""
        return ranges((*self.missing, *self.faults))


def _input_faults(parts: Mapping[int, Part]) -> dict[int, Fault]:
    """Returns the faults of parts that read an input in another state than the others did.

    The present state is the right one if any part read it, else the one that most parts read.
    """
    states: dict[str, Counter[str]] = {}
    for part in parts.values():
        for name, content in part.inputs.items():
            states.setdefault(name, Counter())[content] += 1
    faults: dict[int, Fault] = {}
    for name, counts in states.items():
        if len(counts) == 1:
            continue
        now = _content_now(next(iter(parts.values())).path, name)
        usual = now if now in counts else counts.most_common(1)[0][0]
        for index, part in parts.items():
            fault = part.input_fault(name, usual, "run this shard again with --overwrite")
            if fault is not None:
                faults.setdefault(index, fault)
    return faults


def _content_now(part: Path, name: str) -> str | None:
    """Returns the present state of a file that a part lists."""
    return file_content(os.path.join(part.parent.parent, name))


def ranges(numbers: Iterable[int]) -> str:
    """Returns numbers as text, in order, with consecutive ones as a range: 0,3-5."""
    pairs = ((number - k, number) for k, number in enumerate(sorted(set(numbers))))
    spans = [[n for _, n in span] for _, span in itertools.groupby(pairs, key=itemgetter(0))]
    return ",".join(f"{span[0]}-{span[-1]}" if len(span) > 1 else f"{span[0]}" for span in spans)


def _part_names(folder: Path) -> list[str]:
    return sorted(name for name in os.listdir(folder) if _numbers_of(name)[0] >= 0)


def _numbers_of(name: str) -> tuple[int, int]:
    """Parses 00003-of-00064.h5 as 3 and 64; returns -1 and 0 for any other name."""
    match = re.fullmatch(r"([0-9]{5,9})-of-([0-9]{5,9})\.h5", name)
    index, count = (int(match[1]), int(match[2])) if match else (0, 0)
    return (index, count) if index < count else (-1, 0)


def _count_fault(folder: Path, names: Sequence[str]) -> Fault | None:
    """Returns the fault of parts of runs with different numbers of shards."""
    counts = sorted({_numbers_of(name)[1] for name in names})
    if len(counts) == 1:
        return None
    return Fault(
        "parts of different numbers of shards",
        where=str(folder),
        expected="one number",
        found=" and ".join(f"{count} shards" for count in counts),
        hint=f"rm {folder}/*-of-{counts[0]:05}.h5 removes those of {counts[0]}",
    )
