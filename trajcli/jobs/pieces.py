"""The parts of a divided run that are to be joined: all there, of one run, none twice."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from trajcli.errors import Fault, InputError, UsageError, raise_if_any
from trajcli.files.hdf5 import Hdf5File
from trajcli.files.schema import Schema
from trajcli.jobs.outline import schema_of
from trajcli.jobs.records import DONE, OTHER, RUN, Folder, State, checksum, parts_folder
from trajcli.jobs.terms import stamp_differences
from trajcli.jobs.units import Division, Unit

_NAMED = 5


@dataclass(frozen=True)
class Piece:
    """A unit that is done: where its part is and what its record says."""

    unit: Unit
    path: Path
    record: Mapping[str, Any]

    def require_intact(self) -> None:
        """Raise InputError where the part's bytes are not those that were written."""
        found = checksum(self.path)
        if found != self.record["checksum"]:
            expected, here = (f"checksum {value:08x}" for value in (self.record["checksum"], found))
            hint = f"rm {self.path}, and run its share again"
            raise InputError(Fault("a damaged part", str(self.path), expected, here, hint))

    def read(self, name: str) -> Any:
        """A variable of the part."""
        with Hdf5File(self.path) as file:
            return np.array(file.require(name).read())


@dataclass(frozen=True)
class Pieces:
    """All parts of a run, in order."""

    folder: Folder
    each: Sequence[Piece]

    @property
    def compress(self) -> int | None:
        """The level of deflate that the run asked for."""
        level = self.folder.run["compress"]
        return None if level is None else int(level)

    @property
    def rows(self) -> list[int]:
        """The rows of the trajectories of each length."""
        return [int(n) for n in self.folder.run["rows"]]

    def prefix(self, unit: Unit) -> str:
        """What the variables of a unit are called in the whole, before their names."""
        return "" if self.folder.run["schema"]["kind"] == "packed" else f"{unit.length}/"

    def variables(self, length: int) -> Sequence[Mapping[str, Any]]:
        """What run.json says of the variables of a length."""
        about = self.folder.run["schema"]
        if about["kind"] != "mirrored":
            return list(about["variables"])
        count = len(about["variables"]) // len(self.rows)  # all lengths have the same
        return list(about["variables"][length * count : (length + 1) * count])

    def schema(self) -> Schema:
        """That of a run in one piece."""
        about = self.folder.run["schema"]
        names = [each["name"] for each in about["variables"] if each["given"]]
        if about["kind"] == "packed":
            return schema_of(about, {name: self._some(name) for name in names})
        if about["kind"] == "padded":
            numbers = [np.array(each, np.int64) for each in self._members("numbers")]
            given = {name: self._scattered(name, numbers) for name in names}
            return replace(schema_of(about, given), scatter=tuple(numbers))
        given = {}
        for name in names:
            length, _, own = name.partition("/")
            values = [p.read(own) for p in self.each if p.unit.length == int(length)]
            given[name] = np.concatenate(values)
        return replace(schema_of(about, given), groups=self._members("names"))

    def _members(self, what: str) -> list[list[Any]]:
        """What the records say of their trajectories, by length."""
        found: list[list[Any]] = [[] for _ in self.rows]
        for piece in self.each:
            found[piece.unit.length] += piece.record[what]
        return found

    def _some(self, name: str) -> Callable[[int, int], Any]:
        """A number for every trajectory, some at a time."""

        def values(begin: int, end: int) -> Any:
            some = [np.zeros(0, np.int64)]
            for piece in self.each:
                first, last = piece.unit.trajectories
                if first < end and begin < last:
                    some.append(piece.read(name)[max(begin - first, 0) : end - first])
            return np.concatenate(some)

        return values

    def _scattered(self, name: str, numbers: Sequence[Any]) -> Any:
        """A number for every trajectory, of those of each length in its place."""
        values = np.zeros(sum(map(len, numbers)), np.int64)
        for piece in self.each:
            some = piece.record["numbers"]
            length = self.rows[piece.unit.length]
            values[some] = length if name == "lengths" else piece.read(name)
        return values


def gather(paths: Sequence[Path]) -> Pieces:
    """The parts that folders and files name; raises InputError unless they are a whole run."""
    if not paths:
        raise UsageError(Fault("no PART", "PART", "a folder OUT.parts", "none"))
    named = [_named(path) for path in paths]
    folder = named[0][0]
    for other, _ in named[1:]:
        _require_same(folder, other)
    division = folder.division
    pieces: dict[int, Piece] = {}
    left: dict[int, State] = {}
    faults = []
    for where, number in named:
        for unit in _units(division, number):
            state = where.state(unit)
            if state.kind == OTHER:
                path = str(where.record(unit))
                faults.append(Fault("a part made otherwise", path, "one run", state.why))
            elif state.kind != DONE or state.record is None:
                left[unit.number] = state
            elif unit.number in pieces:
                found = f"{pieces[unit.number].path} too"
                faults.append(Fault("a part twice", str(where.part(unit)), "once", found))
            else:
                pieces[unit.number] = Piece(unit, where.part(unit), state.record)
    raise_if_any(faults[:_NAMED])
    _require_all(folder, division, pieces, left)
    joined = [pieces[number] for number in sorted(pieces)]
    raise_if_any(_input_faults(joined)[:_NAMED])
    return Pieces(folder, joined)


def _named(path: Path) -> tuple[Folder, int | None]:
    """The folder that a path names, and which of its units; None for all."""
    if (path / RUN).is_file() or not path.exists():
        return Folder.require(path), None
    if path.is_dir() or (parts_folder(path) / RUN).is_file():
        return Folder.require(parts_folder(path)), None
    folder = next((each for each in path.parents[:2] if (each / RUN).is_file()), path.parent)
    found, number = Folder.require(folder), path.name.partition("-")[0]
    if number.isdecimal() and int(number) < len(found.division):
        unit = found.division.unit(int(number))
        if path.name in (f"{unit.name}.h5", f"{unit.name}.json"):
            return found, unit.number
    raise InputError(Fault("not a part of this run", str(path), "NUMBER-BEGIN-END.h5"))


def _units(division: Division, number: int | None) -> Iterator[Unit]:
    numbers = range(len(division)) if number is None else [number]
    return map(division.unit, numbers)


def _require_same(first: Folder, other: Folder) -> None:
    """All parts are of one run."""
    own = ("terms", "division", "schema", "rows", "compress")
    if all(first.run[name] == other.run[name] for name in own):
        return
    found = "; ".join(first.terms.differences(other.terms)[:_NAMED]) or "another division"
    what = "parts of different runs"
    raise InputError(Fault(what, str(other.path), f"as {first.path}", found))


def _require_all(
    folder: Folder, division: Division, pieces: Mapping[int, Piece], left: Mapping[int, State]
) -> None:
    """Raise InputError where units are missing, saying which trajectories these are."""
    missing = [n for n in range(len(division)) if n not in pieces]
    if not missing:
        return
    ranges = trajectory_ranges([division.unit(n) for n in missing])
    texts = [f"{begin} to {end - 1}" for begin, end in ranges[:_NAMED]]
    texts += [f"{len(ranges) - _NAMED} more runs"] if len(ranges) > _NAMED else []
    states = [left[n].kind for n in missing if n in left]
    kinds = ", ".join(f"{states.count(kind)} {kind}" for kind in dict.fromkeys(states))
    whys = [left[n].why for n in missing if n in left and left[n].why]
    expected = f"all {len(division)} units"
    found = f"{len(missing)} not done ({kinds or 'not named'}): trajectories {', '.join(texts)}"
    hint = f"trajcli status {folder.path} says which shares have to run"
    what = "the run is not complete"
    raise InputError(Fault(what, str(folder.path), expected, "; ".join([found, *whys[:3]]), hint))


def trajectory_ranges(units: Sequence[Unit]) -> list[tuple[int, int]]:
    """The trajectories of units, in the order of the run, as few ranges as possible."""
    ranges: list[tuple[int, int]] = []
    for begin, end in (unit.trajectories for unit in units):
        if ranges and ranges[-1][1] == begin:
            begin = ranges.pop()[0]
        ranges.append((begin, end))
    return ranges


def _input_faults(pieces: Sequence[Piece]) -> list[Fault]:
    """Files that changed between two units that read them."""
    known: dict[str, tuple[Any, Path]] = {}
    faults = []
    for piece in pieces:
        for name, stamp in piece.record["inputs"].items():
            before, where = known.setdefault(name, (stamp, piece.path))
            if before != stamp:
                found = "; ".join(stamp_differences({name: before}, {name: stamp}))
                hint = "run with --overwrite: the parts of the old input are replaced"
                what = f"another input than for {where}"
                faults.append(Fault(what, str(piece.path), "one input", found, hint))
    return faults
