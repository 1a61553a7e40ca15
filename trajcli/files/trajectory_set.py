"""Trajectories of one group of a file: their arrays, names, units, times, what lies beside them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from trajcli.checks import describe
from trajcli.errors import Fault, InputError
from trajcli.files.arrays import ArrayFile, Dataset, OneTrajectory, text_of
from trajcli.files.layouts import Layout, Member
from trajcli.files.schema import QUANTITIES, unit_of
from trajcli.files.stored_time import (
    RATES,
    STAMPS,
    from_stamps,
    from_steps,
    reconciled,
    require_nominal,
)
from trajcli.files.time import Lengths, Time, positive


class TrajectorySet:
    """Trajectories that lie in one group of a file, as arrays of one shape [B, T, D].

    ``arrays`` are called "actions" (what a mode integrates), "position" … "jerk", or, where
    SOURCE names a dataset, as the last part of that name. ``single``: they lie there as [T, D],
    and are seen as [1, T, D]. ``dofs``: the slice of the file's dofs that SOURCE picked.
    ``commands``: they are what a robot was told to do, not what it did. ``named``: SOURCE names
    the array.
    """

    __slots__ = ("_groups", "_lengths", "_path", "_time", "arrays", "commands", "dofs", "file",
                 "group", "layout", "member", "name", "named", "single")  # fmt: skip

    def __init__(
        self,
        file: ArrayFile,
        path: str,
        datasets: Mapping[str, Dataset],
        layout: Layout | None = None,
        member: Member | None = None,
        dofs: slice | None = None,
        named: bool = False,
    ) -> None:
        """path: of the first dataset, within the file."""
        self.named = named
        group = path.rpartition("/")[0]
        self.file, self.layout, self.member, self.dofs = file, layout, member, dofs
        self.group = group if member is None else member.group
        self._path = path
        self._groups = _upward(group)
        self.single = next(iter(datasets.values())).ndim == 2
        self.arrays: Mapping[str, Dataset] = {
            name: as_batch(stored, dofs) for name, stored in datasets.items()
        }
        inside = path[len(self.group) :].strip("/") if member is not None else ""
        self.commands = layout is not None and inside.split("/")[0] in layout.actions
        self.name = self.group or file.path.stem if member is None else member.name
        self._time: Time | None = None
        self._lengths: Lengths | bool | None = False

    @property
    def shape(self) -> tuple[int, int, int]:
        """[B, T, D] of the arrays."""
        batch, rows, dofs = next(iter(self.arrays.values())).shape
        return batch, rows, dofs

    @property
    def array_name(self) -> str:
        """What the first array is called within its trajectory: "obs/joint_pos"."""
        return self._path[len(self.group) :].strip("/")

    @property
    def of_actions(self) -> bool:
        """Whether the arrays are actions alone."""
        return set(self.arrays) == {"actions"}

    @property
    def input(self) -> Dataset:
        """What is integrated: the actions, or the array that SOURCE names.

        Raises InputError with what there is instead.
        """
        if "actions" in self.arrays:
            return self.arrays["actions"]
        if self.named:
            return next(iter(self.arrays.values()))
        raise InputError(without_actions([self]))

    @property
    def lengths(self) -> Lengths | None:
        """Of arrays padded to T rows, how many each trajectory has [B]; None where all have T.

        Raises InputError for a dataset ``lengths`` that cannot be such.
        """
        if isinstance(self._lengths, bool):
            self._lengths = self._read_lengths()
        return self._lengths

    def _read_lengths(self) -> Lengths | None:
        if self.layout is not None or self.single:
            return None
        stored = self.file.get(f"{self._groups[0]}lengths")
        if stored is None:
            return None
        batch, rows, _ = self.shape
        if stored.shape != (batch,) or stored.dtype.kind not in "iu":
            found = f"{stored.dtype} {describe(stored.shape)}"
            raise InputError(Fault("not lengths", stored.where, f"integers [{batch}]", found))
        values = np.asarray(stored.read()).astype(np.int64)
        bad = np.flatnonzero((values < 1) | (values > rows))
        if len(bad):
            where = f"{stored.where}, trajectory {int(bad[0])}"
            found = str(int(values[bad[0]]))
            raise InputError(Fault("no such length", where, f"1 to {rows}", found))
        return None if (values == rows).all() else values

    @property
    def time(self) -> Time | None:
        """What the file says of the times of the rows; None where it says nothing.

        Raises InputError where it contradicts itself.
        """
        if self._time is None:
            self._time = self._find_time() or Time("", "")
        return self._time if self._time.source else None

    def _find_time(self) -> Time | None:
        stated = self.attribute("dt")
        nominal = (stated[0], positive(stated[1])) if stated is not None else ("", None)
        found = self._stored_time(*nominal)
        if found is not None:
            return found
        if self.layout is not None and self.layout.step is not None:
            return self._fitted(self.layout.step)
        if nominal[1] is not None:
            return self._fitted(Time.of(nominal[0], nominal[1]))
        for name in RATES:
            stated = self.attribute(name)
            rate = positive(stated[1]) if stated is not None else None
            if stated is not None and rate is not None:
                source = f"{stated[0]}, {rate:g} Hz"
                return self._fitted(Time.of(source, 1.0 / rate, stated[0]))
        return None

    def _stored_time(self, attribute: str, nominal: float | None) -> Time | None:
        """Steps or stamps beside the arrays, else in the groups above.

        Those above may be of other trajectories, and are passed over where they do not fit. How
        many steps actions need is for their mode to say. attribute, nominal: the attribute dt.
        """
        misfit: Time | None = None
        for group in self._groups:
            candidates: list[Time | None] = []
            for names in (("dt",), STAMPS):
                stored = next(self._near(names, [group]), None)
                if stored is None:
                    candidates.append(None)
                    continue
                steps = names[0] == "dt"
                time = from_steps(stored) if steps else from_stamps(stored, self.lengths, nominal)
                time = self._fitted(time)
                candidates.append(time if time.fits or time.actions else None)
                misfit = misfit or (time if candidates[-1] is None else None)
            beside = attribute == f"{self.file.path}:/{group.rstrip('/')}@dt"
            found = reconciled(candidates[0], candidates[1])
            if found is not None and found is candidates[1] and nominal is not None and beside:
                require_nominal(found, attribute, nominal)
            if found is not None:
                return found
        if misfit is not None:
            raise InputError(*misfit.shape_faults())
        return None

    def _fitted(self, time: Time) -> Time:
        batch, rows, _ = self.shape
        return time.fitted(batch, rows, self.of_actions, self.lengths)

    def companion(self, *names: str) -> Dataset | None:
        """The first of these datasets there is, beside the arrays, else in the groups above."""
        return next(self._near(names, self._groups), None)

    def _near(self, names: Sequence[str], groups: Sequence[str]) -> Iterator[Dataset]:
        for group in groups:
            for name in names:
                stored = self.file.get(group + name)
                if stored is not None:
                    yield self._own_rows(stored.require_numeric())

    def _own_rows(self, stored: Dataset) -> Dataset:
        """The rows of this trajectory, where arrays hold those of many one after the other."""
        if self.member is None or self.member.end is None or self.layout is None:
            return stored
        rows = self.layout.rows
        return self.member.rows_of(stored) if stored.shape[:1] == (rows,) else stored

    def attribute(self, *names: str) -> tuple[str, Any] | None:
        """The first of these attributes and where it is: of the first array, else of a group."""
        first = next(iter(self.arrays.values()))
        for name in names:
            if name in first.attributes:
                return f"{first.where}@{name}", first.attributes[name]
            for group in self._groups:
                attributes = self.file.attributes(group)
                if name in attributes:
                    where = f"{self.file.path}:/{group.rstrip('/')}"
                    return f"{where}@{name}", attributes[name]
        return None

    @property
    def joint_names(self) -> list[str] | None:
        """The names of the dofs, where the file has one for each."""
        names = self._stored_names()
        if names is None and self.layout is not None:
            names = self.layout.dof_names(self.array_name)
        names = names or self.file.dof_names()
        dofs = self.shape[2]
        if names is not None and len(names) != dofs and self.dofs is not None:
            names = names[self.dofs]
        return names if names is not None and len(names) == dofs else None

    def _stored_names(self) -> list[str] | None:
        for group in self._groups:
            for name in ("joint_names", "dof"):
                try:
                    stored = self.file.get(group + name)
                except InputError:  # names are a courtesy: no reason to refuse the data
                    continue
                if stored is not None and stored.dtype.kind in "SUO" and stored.ndim == 1:
                    return [text_of(value) for value in stored.read()]
        return None

    def unit(self, name: str) -> str | None:
        """The unit of an array: the one it states, else the one its position implies."""
        stated = self.arrays[name].attributes.get("units")
        if isinstance(stated, (str, bytes)):
            return text_of(stated)
        position = self.arrays.get("position")
        base = position.attributes.get("units") if position is not None else None
        if isinstance(base, (str, bytes)) and name in QUANTITIES:
            return unit_of(name, text_of(base))
        return None


def _upward(group: str) -> tuple[str, ...]:
    """A group and those above it, up to the root: ("data/demo_3/", "data/", "")."""
    found = [""]
    for part in group.split("/") if group else ():
        found.append(f"{found[-1]}{part}/")
    return tuple(reversed(found))


def as_batch(stored: Dataset, dofs: slice | None = None) -> Dataset:
    """A dataset as [B, T, D], of its dofs those picked; [T, D] is one trajectory.

    Raises InputError for what is not numbers of such a shape.
    """
    stored = pick_dofs(stored.require_numeric(), dofs)
    if stored.ndim == 3:
        return stored
    if stored.ndim != 2:
        expected = "[B, T, D], or [T, D] for one trajectory"
        found = describe(stored.shape)
        raise InputError(Fault("wrong number of dimensions", stored.where, expected, found))
    read_rows = OneTrajectory(stored.read_rows, stored.shape[0])
    return replace(stored, shape=(1, *stored.shape), read_rows=read_rows)


def pick_dofs(stored: Dataset, dofs: slice | None) -> Dataset:
    """The dataset with only some entries of its last axis; raises InputError where none are."""
    if dofs is None:
        return stored
    count = stored.shape[-1] if stored.ndim else 0
    begin, end, step = dofs.indices(count)
    wanted = range(begin, end, step)
    if not wanted or (dofs.stop is not None and dofs.stop > count):
        picked = (
            f"[{'' if dofs.start is None else dofs.start}:{'' if dofs.stop is None else dofs.stop}]"
        )
        raise InputError(Fault("no such dofs", stored.where, f"0 to {count - 1}", picked))
    rows = stored.read_rows
    return replace(
        stored,
        shape=(*stored.shape[:-1], len(wanted)),
        read_rows=lambda start, stop: rows(start, stop)[..., dofs],
    )


def without_actions(sets: Sequence[TrajectorySet]) -> Fault:
    """The fault of trajectories without anything to integrate."""
    first = sets[0]
    names = [f"{first.group}/{name}".strip("/") for name in first.arrays]
    return Fault(
        "no actions",
        str(first.file.path),
        "a dataset called actions, or one that is named",
        ", ".join(names),
        f"{first.file.path}:{names[0]} integrates it as actions",
    )
