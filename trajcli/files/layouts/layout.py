"""What every layout says: which trajectories a file holds, what is read of them, their dt."""

from __future__ import annotations

import json
import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from trajcli.errors import Fault, InputError
from trajcli.files.arrays import ArrayFile, StoredArray, text_of

Names = Sequence[str]
Pairs = Sequence[tuple[str, str]]

_LARGEST_JSON = 256 << 20
_UNKNOWN = object()


class Member(NamedTuple):
    """One trajectory of a file: its group, and its rows where arrays hold many one after the other.

    ``name`` is what it is called in messages and, as a group, in outputs.
    """

    name: str
    group: str = ""
    begin: int = 0
    end: int | None = None

    def rows_of(self, array: StoredArray) -> StoredArray:
        """Its part of an array; all of one that is its own."""
        if self.end is None:
            return array
        begin, read = self.begin, array.read_rows

        def read_rows(start: int, stop: int) -> Any:
            return read(begin + start, begin + stop)

        return replace(
            array,
            where=f"{array.where} ({self.name}: rows {begin} to {self.end - 1})",
            shape=(self.end - begin, *array.shape[1:]),
            read_rows=read_rows,
            storage="part of an array",
        )


class Step(NamedTuple):
    """A time step in seconds, and where it comes from."""

    seconds: float
    source: str


class Layout(ABC):
    """How a family of projects lays its trajectories out. One object per open file.

    ``actions`` and ``positions`` name arrays of a trajectory, the most usual first; positions
    are recorded ones. ``start`` pairs arrays whose first row is the state before the first
    action. ``commands_positions``: whether the actions are positions to go to, in rad or m.
    """

    name: ClassVar[str]
    """As --layout takes it."""
    of: ClassVar[str]
    """Who writes it, for people."""
    actions: ClassVar[Names] = ("actions",)
    positions: ClassVar[Names] = ()
    start: ClassVar[Pairs] = ()
    dt_hint: ClassVar[str] = ""
    """Where dt is to be had from when the file does not say it."""
    commands_positions: bool = False

    def __init__(self, file: ArrayFile) -> None:
        self.file = file
        self._step: Any = _UNKNOWN

    @classmethod
    @abstractmethod
    def fits(cls, file: ArrayFile) -> bool:
        """Whether this file is of the family."""

    @abstractmethod
    def members(self) -> list[Member]:
        """The trajectories, in natural order."""

    def step(self) -> Step | None:
        """dt, where the file or what belongs to it says so; found once."""
        if self._step is _UNKNOWN:
            self._step = self.find_step()
        found: Step | None = self._step
        return found

    def find_step(self) -> Step | None:
        """Look dt up."""
        return None

    def dof_names(self, name: str) -> list[str] | None:
        """What the dofs of an array are called, where the family says so outside of it."""
        return None

    @cached_property
    def names_in_first(self) -> list[str]:
        """What lies in the first trajectory; the others are taken to have the same."""
        members = self.members()
        return self.file.children(members[0].group) if members else []

    def chosen(self, key: str) -> list[Member]:
        """The trajectories that a filter key lists; raises InputError where there are none."""
        where = f"{self.file.path}"
        hint = "filter keys are robomimic's: datasets in the group mask"
        what = f"layout {self.name} has no filter keys"
        raise InputError(Fault(what, where, found=f"--filter-key {key}", hint=hint))

    def array(self, member: Member, names: Sequence[str]) -> StoredArray | None:
        """The first of these arrays that a trajectory has."""
        for name in names:
            found = self.file.get(f"{member.group}/{name}" if member.group else name)
            if found is not None:
                return member.rows_of(found)
        return None

    def require_actions(self, member: Member) -> StoredArray:
        """What is read of a trajectory where nothing is named."""
        found = self.array(member, self.actions)
        if found is None:
            raise InputError(
                self.file.missing(f"/{member.group}/{self.actions[0]}".replace("//", "/"))
            )
        return found

    def recorded(self, member: Member) -> list[str]:
        """The recorded positions there are, as they are named behind FILE: ."""
        return [name for name in self.positions if self.array(member, [name]) is not None]


class GroupLayout(Layout):
    """A layout with a group for each trajectory, called PREFIX and a number."""

    prefix: ClassVar[str]
    parent: ClassVar[str] = ""

    @classmethod
    def fits(cls, file: ArrayFile) -> bool:
        first = next(cls.numbered(file), None)
        return first is not None and cls.actions[0] in file.children(first)

    @classmethod
    def numbered(cls, file: ArrayFile) -> Iterator[str]:
        """The groups with a number, in natural order."""
        if cls.parent and cls.parent not in file.children():
            return
        before = f"{cls.parent}/" if cls.parent else ""
        for child in file.children(cls.parent):
            if child.startswith(cls.prefix) and child[len(cls.prefix) :].isdecimal():
                yield before + child

    def members(self) -> list[Member]:
        return self._members

    @cached_property
    def _members(self) -> list[Member]:
        return [Member(group, group) for group in self.numbered(self.file)]


def read_json(text: object) -> dict[str, Any]:
    """A JSON object, as attributes hold it; empty for anything else."""
    try:
        value = json.loads(text_of(text)) if isinstance(text, (str, bytes)) else None
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def read_json_file(path: Path) -> dict[str, Any]:
    """The JSON object in a file; empty where there is none."""
    try:
        if not path.is_file() or path.stat().st_size > _LARGEST_JSON:
            return {}
        return read_json(path.read_bytes())
    except OSError:
        return {}


def found_at(table: Any, *path: str) -> Any:
    """What lies at a path of keys in nested tables; None where it ends."""
    for key in path:
        table = table.get(key) if isinstance(table, dict) else None
    return table


def positive(value: Any) -> float | None:
    """A number above zero; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return float(value) if math.isfinite(value) and value > 0 else None


def from_rate(value: Any, where: str) -> Step | None:
    """The step of so many per second."""
    rate = positive(value)
    return None if rate is None else Step(1.0 / rate, f"1/{where} = 1/{rate:g} Hz")
