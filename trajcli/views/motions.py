"""The trajectories that lie in a file, however they are stored."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from trajcli.errors import Fault, InputError
from trajcli.files.arrays import ArrayFile, StoredArray, text_of
from trajcli.files.schema import QUANTITIES, unit_of
from trajcli.files.source import Source
from trajcli.files.steps import Steps, find_steps

ACTIONS = ("actions", "action")
_STATES = ("start", "goal", "grad")
"""Groups that hold states or gradients, not trajectories."""


@dataclass(frozen=True)
class Motions:
    """Arrays [B, T, D] of one group: trajectories of the same rows, by what they are called."""

    file: ArrayFile
    group: str
    arrays: Mapping[str, StoredArray]

    @property
    def shape(self) -> tuple[int, int, int]:
        """[B, T, D]."""
        batch, rows, dofs = next(iter(self.arrays.values())).shape
        return batch, rows, dofs

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays."""
        return sum(stored.nbytes for stored in self.arrays.values())

    @cached_property
    def steps(self) -> Steps:
        """What the file says of the times of the rows."""
        batch, rows, _ = self.shape
        actions = all(name in ACTIONS for name in self.arrays)
        return find_steps(self.file, self.groups, batch, rows, actions)

    @cached_property
    def lengths(self) -> Any:
        """Of arrays padded to one length, how many rows each trajectory has; None of others."""
        batch, rows, _ = self.shape
        try:
            stored = self.file.get(f"{self.group}lengths")
        except InputError:
            return None
        if stored is None or stored.shape != (batch,) or stored.dtype.kind not in "iu":
            return None
        found = np.asarray(stored.read()).astype(np.int64)
        return found if ((found >= 0) & (found <= rows)).all() else None

    def rows(self, number: int) -> int:
        """The rows of a trajectory, without padding."""
        return self.shape[1] if self.lengths is None else int(self.lengths[number])

    def padding(self, begin: int, end: int, first: int, last: int) -> Any:
        """Which of the rows first..last of trajectories begin..end are padding; None: none."""
        if self.lengths is None:
            return None
        return np.arange(first, last) >= self.lengths[begin:end, None]

    @property
    def groups(self) -> list[str]:
        """Where companions are looked for: beside the arrays, above them, in the root."""
        parts = self.group.strip("/").split("/") if self.group.strip("/") else []
        return ["/".join(parts[:n]) + "/" for n in range(len(parts), 0, -1)] + [""]

    @cached_property
    def attributes(self) -> dict[str, Any]:
        """Words and numbers in attributes of the file and of the group, the group's winning."""
        found: dict[str, Any] = {}
        for group in reversed(self.groups):
            found |= self.file.attributes(group)
        return {name: value for name, value in found.items() if np.ndim(value) == 0}

    @cached_property
    def dofs(self) -> list[str]:
        """Names of the dofs; their numbers where the file has none."""
        count = self.shape[2]
        names = joint_names(self.file, self.groups)
        return names if names and len(names) == count else [str(i) for i in range(count)]

    def unit(self, name: str) -> str:
        """The unit of an array; of actions without one, what their mode makes them."""
        stored = self.arrays[name]
        if "units" in stored.attributes:
            return str(stored.attributes["units"])
        other = self.arrays.get("position")
        base = str(other.attributes.get("units", "")) if other is not None else ""
        return unit_of(name, base) if base and name in QUANTITIES else ""

    def read(self, name: str, trajectory: int, begin: int = 0, end: int | None = None) -> Any:
        """Rows begin..end of a trajectory [rows, D], float64."""
        stored = self.arrays[name]
        stop = stored.shape[1] if end is None else end
        rows = stored.read_part(trajectory, trajectory + 1, begin, stop)[0]
        return np.asarray(rows, dtype=np.float64)


@dataclass(frozen=True)
class Trajectories:
    """All trajectories of a source, numbered through the groups that differ in numbers alone.

    What lies in groups of other names (actions, and reference/position) are other aspects of the
    same trajectories.
    """

    aspects: Sequence[Sequence[Motions]]

    @staticmethod
    def of(sets: Iterable[Motions]) -> Trajectories:
        """Sets in natural order, sorted into aspects."""
        aspects: dict[tuple[str, ...], list[Motions]] = {}
        for one in sets:
            key = (re.sub(r"\d+", "*", one.group), *one.arrays)
            aspects.setdefault(key, []).append(one)
        return Trajectories(list(aspects.values()))

    @property
    def main(self) -> Sequence[Motions]:
        """The aspect that shows most."""
        return max(self.aspects, key=lambda sets: len(sets[0].arrays), default=[])

    @property
    def count(self) -> int:
        """How many there are."""
        return sum(one.shape[0] for one in self.main)

    def at(self, number: int) -> tuple[Motions, int]:
        """The main set and the number in it of a trajectory."""
        found = _within(self.main, number)
        if found is None:
            raise IndexError(number)
        return found

    def beside(self, number: int) -> list[tuple[Motions, int]]:
        """A trajectory in all its aspects."""
        found = (_within(sets, number) for sets in self.aspects)
        return [one for one in found if one is not None]

    def name(self, number: int) -> str:
        """The name of a trajectory: its group where it has one of its own, else its number."""
        one, _ = self.at(number)
        own = len(self.main) > 1 and one.shape[0] == 1
        return one.group.strip("/") if own else str(number)


def _within(sets: Sequence[Motions], number: int) -> tuple[Motions, int] | None:
    for one in sets:
        if number < one.shape[0]:
            return one, number
        number -= one.shape[0]
    return None


def find_trajectories(file: ArrayFile, source: Source) -> Trajectories:
    """The trajectories a source names; without a dataset, those that the file's names give away.

    Raises InputError where a named dataset is not there or cannot be one.
    """
    if source.dataset is None:
        return Trajectories.of(_recognised(file, file.names()))
    if file.has_group(source.dataset):
        prefix = source.dataset.strip("/") + "/"
        names = [name for name in file.names() if name.startswith(prefix)]
        found = list(_recognised(file, names))
        if not found:
            raise InputError(file.missing(source.dataset))
        return Trajectories.of(found)
    names = file.match(source.dataset)
    return Trajectories.of(_named(file, name) for name in names)


def require_trajectories(file: ArrayFile, source: Source) -> Trajectories:
    """The same; raises InputError where there are none, or none that can be read."""
    found = find_trajectories(file, source)
    if found.aspects:
        return found
    for name in file.names():
        group, _, last = name.rpartition("/")
        if last in (*QUANTITIES, *ACTIONS, "") and group.rpartition("/")[2] not in _STATES:
            as_batch(file.require(name))  # or why it is not read, or is none
    raise InputError(
        Fault(
            "no trajectories found",
            str(file.path),
            f"arrays called {', '.join(QUANTITIES)} or actions, [B, T, D] or [T, D]",
            ", ".join(file.names()[:8]) or "no datasets",
            "name one as FILE:DATASET",
        )
    )


def joint_names(file: ArrayFile, groups: Sequence[str]) -> list[str] | None:
    """The names of the dofs, where the file has any."""
    for group in groups:
        for name in ("joint_names", "dof"):
            try:
                stored = file.get(group + name)
            except InputError:  # names are a courtesy: no reason to refuse the data
                continue
            if stored is not None and stored.dtype.kind in "SUO":
                return [text_of(value) for value in np.ravel(stored.read())]
    return file.dof_names()


def _recognised(file: ArrayFile, names: Sequence[str]) -> Iterator[Motions]:
    """Sets by their names: quantities of one group together, actions by themselves."""
    groups: dict[str, dict[str, str]] = {}
    for name in names:
        group, _, last = name.rpartition("/")
        if group.rpartition("/")[2] in _STATES:
            continue
        if last in QUANTITIES or last in ACTIONS or name == "":
            groups.setdefault(group, {})[last] = name
    for group, members in groups.items():
        prefix = f"{group}/" if group else ""
        found = {last: _batch(file, name) for last, name in members.items()}
        usable = {last: stored for last, stored in found.items() if stored is not None}
        together = {last: usable[last] for last in QUANTITIES if last in usable}
        while together:
            shape = next(iter(together.values())).shape
            alike = {last: s for last, s in together.items() if s.shape == shape}
            yield Motions(file, prefix, alike)
            together = {last: s for last, s in together.items() if last not in alike}
        for last in (*ACTIONS, ""):
            if last in usable:
                yield Motions(file, prefix, {last or "values": usable[last]})


def _batch(file: ArrayFile, name: str) -> StoredArray | None:
    """A dataset as [B, T, D], None where it is none or cannot be read."""
    try:
        stored = file.get(name)
        return None if stored is None else as_batch(stored)
    except InputError:
        return None


def _named(file: ArrayFile, name: str) -> Motions:
    group, _, last = name.strip("/").rpartition("/")
    stored = as_batch(file.require(name))
    return Motions(file, f"{group}/" if group else "", {last or "values": stored})


def as_batch(stored: StoredArray) -> StoredArray:
    """A dataset as [B, T, D]; [T, D] is one trajectory. Raises InputError for another."""
    stored.require_numeric()
    if stored.ndim == 3:
        return stored
    if stored.ndim != 2:
        from trajcli.checks import describe

        expected = "[B, T, D], or [T, D] for one trajectory"
        found = describe(stored.shape)
        raise InputError(Fault("wrong number of dimensions", stored.where, expected, found))
    rows = stored.read_rows
    return replace(
        stored,
        shape=(1, *stored.shape),
        read_rows=lambda begin, end: rows(0, stored.shape[0])[None][begin:end],
        read_steps=lambda begin, end, first, last: rows(first, last)[None][begin:end],
    )
