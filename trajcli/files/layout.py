"""The interface of layouts: which trajectories a file of robot data holds, and their dt."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import pairwise
from typing import Any, ClassVar, NamedTuple

from trajcli.errors import Fault, InputError
from trajcli.files.catalogue import Catalogue, Dataset, json_object, text_of
from trajcli.files.companions import episode_edges
from trajcli.files.source import Place
from trajcli.files.time import Time, positive

LEAVE_OUT = "--episodes reads others; --skip-bad of differentiate, check and others leaves it out"
"""The hint at a bad trajectory among good ones."""
Names = Sequence[str]
Pairs = Sequence[tuple[str, str]]


class Member(NamedTuple):
    """One trajectory of a file: its group, or its rows in arrays that hold all trajectories.

    name: its name in messages and, as a group, in outputs. fault: why it cannot be used. Without a
    layout such arrays have ``total`` rows of ``siblings``, of which this is the ``number``-th.
    """

    name: str
    group: str = ""
    begin: int = 0
    end: int | None = None
    fault: Fault | None = None
    total: int = 0
    number: int = 0
    siblings: int = 0

    def path(self, name: str) -> str:
        """Returns the path of one of its arrays."""
        return f"{self.group}/{name}" if self.group else name

    def rows_of(self, array: Dataset) -> Dataset:
        """Returns its rows of an array that holds all trajectories; any other array unchanged."""
        if self.end is None:
            return array
        begin, read = self.begin, array.read_rows
        return replace(
            array,
            where=array.where.then(f" ({self.name}: rows {begin} to {self.end - 1})"),
            shape=(self.end - begin, *array.shape[1:]),
            reader=lambda start, stop: read(begin + start, begin + stop),
            storage="part of an array",
        )


class Layout:
    """Describes how a family of projects stores trajectories in files. One object per file.

    Attributes:
        name: the value of --layout.
        title: the project, for messages.
        groups: the name of a trajectory's group without its number; empty if a file is one
            trajectory.
        holds: arrays that the first trajectory must have (default: the first of ``actions``).
        marks: names of which the trajectory, the group above it or the description of the
            environment must have one.
        actions, positions: names of the arrays of actions and of recorded positions, most common
            first.
        start: pairs of arrays (position, velocity) whose first row is the state before the first
            action.
        rates: paths of the rate in Hz in the description of the recording.
        dt_hint: where to find dt if it is not there.
        commands_positions: the actions are target positions in rad or m.
        normalises: the actions are as a rule commands in [-1, 1].
        rows: the number of rows of arrays that hold all trajectories one after the other, else 0.
        remark: a warning about the trajectories that were found.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    groups: ClassVar[str] = ""
    holds: ClassVar[Names] = ()
    marks: ClassVar[Names] = ()
    actions: ClassVar[Names] = ("actions",)
    positions: ClassVar[Names] = ()
    start: ClassVar[Pairs] = ()
    rates: ClassVar[Sequence[Names]] = ()
    dt_hint: ClassVar[str] = ""
    commands_positions: bool = False
    normalises: bool = False
    rows: int = 0
    remark: str = ""

    def __init__(self, file: Catalogue) -> None:
        self.file = file

    @classmethod
    def fits(cls, file: Catalogue) -> bool:
        """Whether a file is of this family."""
        # the first trajectory stands for all
        first = next(cls.numbered(file), "") if cls.groups else ""
        if cls.groups and not first:
            return False
        for name in cls.holds or cls.actions[:1]:
            group, _, last = f"{first}/{name}".strip("/").rpartition("/")
            if last not in file.children(group):
                return False
        places = file.attributes("data"), file.children(first), environment(file)
        return not cls.marks or any(mark in there for there in places for mark in cls.marks)

    @classmethod
    def numbered(cls, file: Catalogue) -> Iterator[str]:
        """Yields the numbered groups, in natural order."""
        parent, slash, prefix = cls.groups.rpartition("/")
        if parent and parent not in file.children():
            return
        for child in file.children(parent):
            if child.startswith(prefix) and child[len(prefix) :].isdecimal():
                yield parent + slash + child

    def members(self) -> list[Member]:
        """Returns the trajectories, in natural order."""
        if not self.groups:
            return [Member(self.file.path.stem)]
        return [Member(group, group) for group in self.numbered(self.file)]

    def flat_members(self, array: Dataset, title: str) -> list[Member]:
        """Returns the episodes of an array that holds all of them one behind the other."""
        self.rows = (array.shape or (0,))[0]
        edges, _, remarks = episode_edges(self.file, [""], array)
        self.remark = "; ".join(remarks)
        return [Member(f"{title}_{k}", "", a, b) for k, (a, b) in enumerate(pairwise(edges))]

    def facts(self) -> tuple[Place, Mapping[str, Any]]:
        """Returns where the family describes its recordings, and that description."""
        return Place(str(self.file.path), "/data", "env_args"), environment(self.file)

    @cached_property
    def step(self) -> Time | None:
        """The time step, if the file or a side-car file states it."""
        where, facts = self.facts() if self.rates else (Place(), {})
        steps = (from_rate(facts, path, where) for path in self.rates)
        return next((step for step in steps if step is not None), None)

    def dof_names(self, name: str) -> list[str] | None:
        """Returns the names of an array's dofs, if the family states them elsewhere."""
        return None

    def chosen(self, key: str) -> list[Member]:
        """Returns the trajectories that a filter key lists; raises InputError if there are none."""
        raise InputError(
            f"layout {self.name} has no filter keys",
            where=str(self.file.path),
            found=f"--filter-key {key}",
            hint="robomimic's are datasets of /mask",
        )

    def array(self, member: Member, names: Names) -> Dataset | None:
        """Returns the first of these arrays that a trajectory has."""
        stored = (self.file.get(member.path(name)) for name in names)
        return next((member.rows_of(array) for array in stored if array is not None), None)

    def actions_of(self, member: Member) -> tuple[str, Dataset]:
        """Returns the path and rows of the actions that are integrated by default."""
        path = member.path(self.actions[0])
        return path, member.rows_of(self.file.require(path))

    def arrays_of(self, member: Member) -> tuple[str, dict[str, Dataset]]:
        """Returns the path of the first array that is read by default, and all such arrays."""
        path, stored = self.actions_of(member)
        return path, {"actions": stored}

    def guesses(self, path: str) -> bool:
        """Whether an array was chosen only because its name is likely."""
        return False

    def recorded(self, member: Member) -> list[str]:
        """Returns the datasets of recorded positions, as a user names them after FILE:."""
        return [name for name in self.positions if self.array(member, [name]) is not None]


def environment(file: Catalogue) -> Mapping[str, Any]:
    """Returns the description of the environment in a file like robomimic's."""
    return json_object(file.attributes("data").get("env_args"))


def controller(file: Catalogue) -> str:
    """Returns the controller that a file like robosuite's names, OSC_POSE; "" for none."""
    about = (text_of(file.attributes("data").get(name, "")) for name in ("env_args", "env_info"))
    named = re.search('"((OSC|IK|JOINT|WHOLE_BODY)_[A-Z_]+)"', " ".join(about))
    return named[1] if named else ""


def entry(table: Any, path: Names) -> Any:
    """Returns the value at a path of keys in nested tables; None if there is none."""
    for key in path:
        table = table.get(key) if isinstance(table, dict) else None
    return table


def from_rate(table: Any, path: Names, where: Place) -> Time | None:
    """Returns the time of the rate in Hz at a path of keys in a table; None if there is none."""
    rate = positive(entry(table, path))
    if rate is None:
        return None
    return Time.of(where.then(f" {'.'.join(path)}, {rate:g} Hz"), 1.0 / rate)
