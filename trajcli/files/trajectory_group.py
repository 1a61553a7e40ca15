"""Trajectories of one group of a file: their arrays, names, units, times, and what lies beside."""

from __future__ import annotations

import contextlib
import copy
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from trajcli.arrays import describe
from trajcli.errors import Fault, InputError, Note, UsageError, raise_if_any
from trajcli.files.catalogue import Catalogue, Dataset, Numbers, text_of
from trajcli.files.companions import (
    LENGTHS,
    MASKS,
    episode_edges,
    likely_axes,
    mask_lengths,
    named,
    nan_lengths,
    require_equal,
)
from trajcli.files.conversion import (
    as_batch,
    dataset_in_si,
    read_lengths,
    stated_unit,
    units_of_arrays,
    with_axes,
    with_joined_axes,
)
from trajcli.files.dofs import (
    ANGLES,
    Dofs,
    RotationDofs,
    bodies_of,
    named_rotations,
    parse_dofs,
    parse_joints,
    parse_rotations,
)
from trajcli.files.layouts import Layout
from trajcli.files.members import Member
from trajcli.files.quantities import (
    DOF_NAMES,
    POSITIONS,
    QUANTITIES,
    ROTATIONS,
    TAKEN,
    TIMES,
    named_rate,
    role,
    time_rank,
    unit_of,
)
from trajcli.files.source import Place
from trajcli.files.time import (
    DROID_STAMPS,
    RATES,
    STAMPS,
    Lengths,
    Time,
    held_against,
    positive,
    read_time,
    reconciled,
    require_nominal,
    stamps_after,
)
from trajcli.modes import ALIASES, MODES
from trajcli.units import (
    KNOWN,
    NO_UNIT,
    InputUnits,
    Units,
    of_order,
    parse_units,
    unit_text,
)

ACTIONS = ("actions", "action")
SEVERAL = "several"
"""In place of a quantity: of an array whose dofs are of several."""
# Rows at both ends and in the middle of an array in which angles are looked for.
_SAMPLE = 1 << 15
# Names beside the arrays that are looked at.
_SEARCHED = 100


class TrajectoryGroup:
    """Trajectories that lie in one group of a file, as arrays of one shape [B, T, D]. Immutable.

    Methods that change something return another group, which reads the same file. No values are
    read before they are asked for.

    ``arrays`` are called "actions" (what a mode integrates), "position" … "jerk", or, where
    SOURCE names a dataset, by the last part of its name, both here and where they are written.
    Arrays whose name an output cannot use are called actions. ``single``: they lie in the file as
    [T, D], and are seen as [1, T, D]. ``dofs``: which dofs of the file they have. ``commands``:
    they are what a robot was told to do, not what it did. ``named``: SOURCE names the array, or
    its name was ``guessed``. ``array_name``: the first array's path within its trajectory,
    "obs/joint_pos". ``units``: of the arrays where they are known, before :meth:`in_si` converted
    them; ``given``: those of the command line. ``rotation_option``: what --rotation says. ``time``:
    of the rows, None where nothing says it. ``fault``: why they cannot be used.

    Some rows of some trajectories of a group are a :meth:`part`: ``whole`` is then the group that
    it is of, ``numbers`` [B] which of its trajectories these are, ``row_numbers`` [T] which of its
    rows, if not all, and ``suffix`` what their names end in.
    """

    def __init__(
        self,
        file: Catalogue,
        path: str,
        datasets: Mapping[str, Dataset],
        layout: Layout | None = None,
        member: Member | None = None,
        named: bool = False,
        guessed: bool = False,
    ) -> None:
        """Takes ``datasets`` by path or name; ``path`` is that of the first in the file."""
        self.path = path
        self.datasets = {path: with_axes(array, "T") for path, array in datasets.items()}
        group = path.rpartition("/")[0]
        self.file, self.layout, self.member = file, layout, member
        self.named, self.guessed = named or guessed, guessed
        self.group = group if member is None else member.group
        self.array_name = path[len(self.group) :].strip("/")
        parts = group.split("/") if group else []
        # "data/demo_3/", "data/", ""
        self.groups = tuple(accumulate(parts, "{}{}/".format, initial=""))[::-1]
        bodies = bodies_of(file) if self.of_rotations else 1
        joined = {path: with_joined_axes(array, bodies) for path, array in self.datasets.items()}
        self.single = next(iter(joined.values())).ndim == 2
        self._stored = {_array_name(path): as_batch(array) for path, array in joined.items()}
        self.arrays: Mapping[str, Dataset] = self._stored
        self.dofs = Dofs(self.shape[2], range(self.shape[2]))
        self._picks: tuple[Dofs, ...] = ()  # one after the other
        self._joints: list[str] | None = None
        self.rotation_option: str | None = None
        self.units: Mapping[str, Units] = {}
        self.given = InputUnits()
        self.commands = layout is not None and self.array_name.split("/")[0] in layout.actions
        self.name = self.group or file.path.stem if member is None else member.name
        self.fault = None if member is None else member.fault
        self._whole: TrajectoryGroup | None = None
        self.suffix = ""
        self.numbers: Numbers = range(self.shape[0])
        self.row_numbers: Numbers | None = None

    def _with(self, **changes: Any) -> TrajectoryGroup:
        """Returns a copy with other attributes; what depends on arrays is looked up again."""
        group = copy.copy(self)
        for name in ("time", "rotations", "joint_names"):
            group.__dict__.pop(name, None)
        group.__dict__.update(changes)
        return group

    @property
    def whole(self) -> TrajectoryGroup:
        """The group of which this is a part, or the group itself."""
        return self._whole or self

    @property
    def shape(self) -> tuple[int, int, int]:
        """[B, T, D] of the arrays."""
        batch, rows, dofs = next(iter(self.arrays.values())).shape
        return batch, rows, dofs

    @property
    def where(self) -> Place:
        """The place of the first array, for messages."""
        return next(iter(self.arrays.values())).where

    def file_of(self, k: int) -> Catalogue:
        """Returns the file of the k-th trajectory."""
        return self.file.members[self.numbers[k]] if self.file.members else self.file

    def name_of(self, k: int) -> str:
        """Returns the name of the k-th trajectory, of those with a group or file to themselves."""
        return self.file_of(k).path.stem + self.suffix if self.file.members else self.name

    def place(self, k: int, name: str = "") -> tuple[Place, int]:
        """Returns where the k-th trajectory of an array lies, and its number there."""
        if self.file.members:
            return self.file_of(k).place(), 0
        return self.array(name).where, int(self.numbers[k])

    def sources(self, begin: int, end: int) -> list[Place]:
        """Returns where trajectories begin to end of the first array are read from."""
        if self.file.members:
            return [self.file_of(k).place() for k in range(begin, end)]
        rows = self.member is not None and not self.member.group
        return [Place(str(self.file.path), self.array_name) if rows else self.where]

    def part(
        self, trajectories: Numbers, rows: Numbers, suffix: str, time: Time
    ) -> TrajectoryGroup:
        """Returns some rows of some trajectories, with their time, as a group of their own."""
        single = len(trajectories) == 1 < self.shape[0] and not self.file.members
        alone = f"/trajectory_{trajectories[0]}" if single else ""
        return self._with(
            arrays={name: array.select(trajectories, rows) for name, array in self.arrays.items()},
            numbers=trajectories,
            row_numbers=rows,
            suffix=suffix,
            name=self.name + suffix + alone,
            lengths=None,
            time=time,
            _whole=self.whole,
        )

    def changed(
        self, time: Time | None = None, arrays: Mapping[str, Dataset] | None = None
    ) -> TrajectoryGroup:
        """Returns the group with other times than the file states, or other arrays of its shape."""
        time, arrays = time or self.time, arrays or self.arrays
        return self._with(lengths=self.lengths, time=time, arrays=arrays)

    def likely_axes(self) -> tuple[str, str, bool]:
        """Returns the axes of the first array and why, by :func:`.companions.likely_axes`, and
        whether these are its time stamps."""
        array, counts, stamps = next(iter(self.datasets.values())), dict[int, str](), set[str]()
        for folder in self.groups:
            for name, stored in named(self.file, folder, (*TIMES, *POSITIONS, *QUANTITIES)):
                line = math.prod(stored.shape) == max(stored.shape, default=0) > 1
                rows = max(stored.shape) if line else stored.shape[0] if stored.ndim == 2 else 0
                if line if name in TIMES else rows and stored.shape[-1] != array.shape[-1]:
                    counts.setdefault(rows, f"{stored.where} {describe(stored.shape)}")
                    stamps |= {counts[rows]} if name in STAMPS else set()
        axes, why = likely_axes(array, counts, len(self._stored_names(self.groups) or ()))
        return axes, why, why in stamps

    def episodes(self) -> tuple[list[TrajectoryGroup], list[str]]:
        """Returns a group for each episode of arrays [N, D] that hold several, and notes."""
        array = next(iter(self.datasets.values()))
        edges, where, remarks = episode_edges(self.file, self.groups, array)
        if edges == [0, self.shape[1]]:
            return [self], remarks
        title = f"{self.group}/episode_".lstrip("/")
        members = [
            Member(f"{title}{k}", self.group, begin, end, None, self.shape[1], k, len(edges) - 1)
            for k, (begin, end) in enumerate(pairwise(edges))
        ]
        groups = [
            self.with_datasets({n: m.rows_of(array) for n, array in self.datasets.items()}, m)
            for m in members
        ]
        return groups, [Note(f"{self.where}: {len(members)} episodes by {where}"), *remarks]

    def with_datasets(
        self, datasets: Mapping[str, Dataset], member: Member | None = None
    ) -> TrajectoryGroup:
        """Returns the group with arrays that its file holds in another order or among others."""
        return TrajectoryGroup(self.file, self.path, datasets, self.layout, member or self.member,
                               self.named, self.guessed)  # fmt: skip

    def standing_in(self, file: Catalogue, member: Member, fault: Fault) -> TrajectoryGroup:
        """Returns a group like this for a trajectory that cannot be used: reads raise the fault."""

        def read(*_: int) -> Any:
            raise InputError(fault)

        none = {name: replace(array, reader=read) for name, array in self._stored.items()}
        return self._with(_stored=none, arrays=none, file=file, member=member, group=member.group,
                          name=member.name, fault=fault)  # fmt: skip

    def only(self, name: str) -> TrajectoryGroup:
        """Returns the group with this array alone, where it is one of several."""
        if name not in self._stored or len(self._stored) == 1:
            return self
        return self._with(_stored={name: self._stored[name]}, arrays={name: self.arrays[name]},
                          array_name=name)  # fmt: skip

    def keep_dofs(self, which: str, where: str) -> TrajectoryGroup:
        """Returns the group with these dofs alone; ``where``, the option, is for messages."""
        picked = parse_dofs(which, self.shape[2], where, self.joint_names or ())
        stored = {name: picked.pick(array) for name, array in self._stored.items()}
        numbers = picked.pick(list(self.dofs.numbers))
        return self._with(_stored=stored, arrays=stored, _picks=(*self._picks, picked),
                          dofs=replace(self.dofs, numbers=numbers))  # fmt: skip

    def name_dofs(self, joints: str) -> TrajectoryGroup:
        """Returns the group with its dofs called a,b,c; raises UsageError for fewer or more."""
        return self._with(_joints=parse_joints(joints, self.shape[2]))

    def with_dofs(self, names: Sequence[str]) -> TrajectoryGroup:
        """Returns the group with other dofs, to name places in what is computed from it."""
        return self._with(dofs=Dofs(len(names), range(len(names))), _joints=list(names))

    def as_quantity(self, quantity: str) -> TrajectoryGroup:
        """Returns the group with its only array called position … jerk."""
        if len(self.arrays) > 1:
            raise UsageError(
                "several arrays",
                where=f"--as {quantity}",
                expected="one array: FILE:DATASET",
                found=", ".join(self.arrays),
            )
        (stored,) = self._stored.values()
        return self._with(_stored={quantity: stored}, arrays={quantity: stored})

    @property
    def named_rate(self) -> str:
        """The :func:`.quantities.named_rate` of the array, or else of all its dofs, ``SEVERAL``
        where these differ; "" for others."""
        path = f"{self.group}/{self.array_name}" if self.array_name else self.file.path.stem
        names = {named_rate(name) for name in self.joint_names or [""]}
        return named_rate(path) or (names.pop() if len(names) == 1 else SEVERAL)

    def name_rotations(self, text: str) -> TrajectoryGroup:
        """Returns the group with the rotations that --rotation names."""
        group = self._with(rotation_option=text)
        _ = group.rotations  # refused here, if at all
        return group

    @cached_property
    def rotations(self) -> tuple[RotationDofs, ...]:
        """The dofs that are rotations; raises InputError for quaternions of unknown order."""
        names, count, array = self.joint_names or (), self.shape[2], self.input
        if self.rotation_option is not None:
            return parse_rotations(self.rotation_option, count, names)
        family = self.file.family if self.layout is None else self.layout.name
        stored, order = self.as_stored, self._order_of_quaternions
        return named_rotations(self.array_name, names, count, family, order, array.where, stored)

    @property
    def _order_of_quaternions(self) -> Any:
        """The attribute ``order`` of the array, or ``rotation_order`` of the file; None without."""
        # the ``order`` of a file is that of mode smooth
        own = next(iter(self._stored.values())).attributes.get("order")
        return own if own is not None else self.attribute("rotation_order")[1]

    @property
    def turning(self) -> tuple[RotationDofs, ...]:
        """The rotations that actions turn: of arrays called angular_velocity, … their axes."""
        last = self.array_name.rpartition("/")[2]
        if self.rotations or self.rotation_option is not None or last not in ROTATIONS[1:]:
            return self.rotations
        return parse_rotations("rotvec", self.shape[2], ())

    @property
    def free_dofs(self) -> list[int]:
        """The dofs that are no part of a rotation."""
        taken = {dof for rotation in self.rotations for dof in rotation.dofs}
        return [dof for dof in range(self.shape[2]) if dof not in taken]

    def pick(self, values: Any) -> Any:
        """Picks the dofs of this group from values [..., D] that lie beside its arrays."""
        for dofs in self._picks:
            values = dofs.pick(values)
        return values

    def in_si(self, given: InputUnits) -> TrajectoryGroup:
        """Returns the group with arrays, states and times in SI, by the units given, or else those
        that the file states. Values in an unknown unit stay as they are."""
        units, arrays = units_of_arrays(self._stored, given.positions), dict(self._stored)
        for name, known in units.items():
            if given.positions or any(unit.per_si != 1.0 for unit in known):
                units[name] = known = self.without_rotations(known, stated_unit(arrays[name]))
            arrays[name] = dataset_in_si(arrays[name], known)
            # of given units nobody said which derivative actions are
            if given.positions and name not in QUANTITIES:
                rest = {k: v for k, v in arrays[name].attributes.items() if k != "units"}
                arrays[name] = replace(arrays[name], attributes=rest)
        return self._with(arrays=arrays, units=units, given=given)

    def forms(self) -> dict[int, str]:
        """Returns the form of each dof that is part of a rotation, where that is known."""
        with contextlib.suppress(InputError, UsageError):
            return {dof: rotation.form for rotation in self.turning for dof in rotation.dofs}
        return {}

    def without_rotations(self, units: Units, stated: str = "") -> Units:
        """Returns units of dofs, with none for the numbers of rotations that are no angles; angles
        that these do not measure keep those that are stated."""
        forms, every = self.forms(), units if units[1:] else [*units] * self.shape[2]
        own = (parse_units(stated) or [NO_UNIT]) if forms else []
        of_dofs = [*every]
        for dof, form in forms.items():
            fitting = (x for x in (every[dof], own[dof % len(own)]) if x.si == "rad")
            of_dofs[dof] = next(fitting, NO_UNIT) if form in ANGLES else NO_UNIT
        return units if of_dofs == [*every] else of_dofs

    def unit_remarks(self) -> Iterator[str]:
        """Yields what the units of the file leave open, and where --units contradicts them."""
        stated, given = stated_unit(self.as_stored), self.given.positions
        where, units, forms = self.as_stored.where, parse_units(stated), self.forms()
        for name, array in self._stored.items() if given else ():
            said, text = stated_unit(array), unit_text(self.units[name])
            known = parse_units(said)
            if said and (known is None or unit_text(self.without_rotations(known)) != text):
                yield Note(f"{array.where} is in {said}; it is read in {text}, as --units says")
        if given or "trajcli_version" in self.file.attributes():
            return
        if stated and units is None:
            yield f"{where} is in {stated!r}, which is not known ({KNOWN}): taken as it is"
        elif bare := ", ".join(
            f"{name} ({unit})" if unit.name else name
            for dof, (name, unit) in enumerate(zip(self.dof_labels, units or (), strict=False))
            if not unit.known and dof not in forms
        ):
            yield Note(f"{where} says no known unit of {bare}: taken as rad or m")
        elif not stated and (largest := self._largest_angle()) > 2 * np.pi * 1.001:
            yield (
                f"{where} says no unit and has values up to {largest:.4g}: taken as rad or m; "
                "--units deg reads degrees, --units rad or m says what they are"
            )

    def _largest_angle(self) -> float:
        """Returns the largest magnitude of joints in some rows of positions; 0 of other arrays."""
        name, (_, rows, _) = self.array_name.rpartition("/")[2], self.shape
        # bags are in rad and m by convention (REP 103)
        named = self.file.family in ("csv", "parquet") or (
            name in POSITIONS and self.file.family != "ros"
        )
        if not named or self.named_rate or 0 in self.shape:
            return 0.0
        joints = [k for k, dof in enumerate(self.dof_labels) if not re.search("[xyzw]$", dof)]
        starts = {0, max(rows // 2 - _SAMPLE // 2, 0), max(rows - _SAMPLE, 0)}
        parts = [self.as_stored.read_part(0, 1, k, min(k + _SAMPLE, rows)) for k in starts]
        sizes = np.abs(np.concatenate(parts, 1)[..., joints], dtype=np.float64)
        return float(np.fmax.reduce(sizes, None, initial=0.0))

    def without_units(self) -> TrajectoryGroup:
        """Returns the group for states of an output, which are in SI whatever its arrays were."""
        return self._with(units={}, given=InputUnits())

    @property
    def as_stored(self) -> Dataset:
        """The actions, or else the first array, in the units of the file."""
        return self._stored[self._first]

    @property
    def input_units(self) -> Units | None:
        """The units that the actions or the first array were in; None if unknown."""
        return self.units.get(self._first) or self.given.positions

    @property
    def position_units(self) -> Units | None:
        """The units of positions that the input units imply: deg for deg/s^2."""
        return of_order(self.input_units, 0) if self.input_units else None

    @property
    def _first(self) -> str:
        return "actions" if "actions" in self.arrays else next(iter(self.arrays))

    @property
    def of_actions(self) -> bool:
        """Whether the arrays are actions alone."""
        return set(self.arrays) == {"actions"}

    @property
    def input(self) -> Dataset:
        """The array that is integrated: the actions, or else the one that SOURCE names."""
        return self.arrays[self._first]

    def array(self, name: str) -> Dataset:
        """Returns an array by name; without one, :attr:`input`."""
        return self.arrays[name] if name else self.input

    @cached_property
    def lengths(self) -> Lengths | None:
        """The rows of each trajectory [B] of arrays padded to T rows; None if all have T."""
        lengths = self.stated_lengths[0]
        lengths = self.nan_lengths if lengths is None else lengths
        return None if lengths is None or (lengths == self.shape[1]).all() else lengths

    @cached_property
    def nan_lengths(self) -> Lengths | None:
        """The rows [B] before those of NaN at the ends, where no lengths or masks are stated."""
        if self.layout is None and not self.single and self.stated_lengths[0] is None:
            with contextlib.suppress(InputError):  # damage is reported where all values are read
                return nan_lengths(next(iter(self._stored.values())))
        return None

    @cached_property
    def stated_lengths(self) -> tuple[Lengths | None, list[str]]:
        """The rows of each trajectory [B] that lengths or masks state, None without; and warnings
        of masks that are none of padding."""
        if self.layout is not None:
            return None, []
        remarks = list[str]()
        stated: dict[Place, Lengths] = {}
        batch, rows, _ = self.shape
        shapes = [(batch, rows), (batch, rows, 1), *[(rows,), (rows, 1), (1, rows)] * self.single]
        shapes += [self.shape]
        for folder in self.groups:
            for name, stored in named(self.file, folder, (*LENGTHS, *MASKS)):
                stored = self._rows_of(stored)
                if name in MASKS and stored.shape in shapes and stored.dtype.kind in "biuf":
                    try:
                        stated[stored.where] = mask_lengths(stored, batch, rows, name)
                    except InputError:
                        if not self.single:
                            raise
                        remarks.append(f"{stored.where} marks rows that are not used otherwise")
                elif (
                    name in LENGTHS
                    and not self.single
                    and (folder == self.groups[0] or math.prod(stored.shape) == batch)
                ):  # those of a group above may be of other trajectories
                    stated[stored.where] = read_lengths(stored, batch, rows)
            if stated:
                break
        require_equal(stated, "the same rows of every trajectory in both")
        return next(iter(stated.values()), None), remarks

    @cached_property
    def time(self) -> Time | None:
        """The times of the rows; None if nothing states them, InputError for contradictions."""
        if self.fault is not None:
            raise InputError(self.fault)
        where, stated = self.attribute("dt")
        dt, rate = positive(stated), self.layout.step if self.layout else None
        stamps = self._stored_time(where, dt, rate.uniform if dt is None and rate else dt)
        time = stamps or rate
        if rate is not None and stamps is not None and stamps.stamped:
            time = held_against(rate, stamps)
        if time is None and dt is not None:
            time = Time.of(where, dt)
        if time is None:
            where, stated = self.attribute(*RATES)
            if (hertz := positive(stated)) is not None:
                time = Time.of(where.then(f", {hertz:g} Hz"), 1.0 / hertz, where)
        # the rate of some families is in a file of its own
        if time is None and not (self.layout is not None and self.layout.rates):
            stamps = time = self._likely_time()
        if time is None:
            return None
        # rows with a stamp each are at these, although they are actions
        acting = self.of_actions and (bool(self.stated_mode[0]) or not (stamps and stamps.per_row))
        return time.fitted(*self.shape[:2], acting, self.lengths)

    def _stored_time(
        self, attribute: Place, nominal: float | None, step: float | None
    ) -> Time | None:
        """Returns the time that steps or stamps beside the arrays give, else those above that fit.

        attribute, nominal: the place and the value of the attribute dt. step: that, or a layout's.
        """
        misfits: list[Time] = []
        for group in self.groups:
            fitting: list[Time | None] = []
            for names in (("dt",), STAMPS):
                stored = self.companion(*names, groups=[group])
                time = None if stored is None else self._read_time(stored, names is STAMPS, step)
                # how many steps actions need depends on their mode
                if time is not None and not (time.fits or time.actions):
                    misfits.append(time)
                    time = None
                fitting.append(time)
            chosen = reconciled(*fitting)
            if chosen is None:
                continue
            beside = attribute.name == f"/{group.rstrip('/')}"
            if chosen.stamped and nominal is not None and beside:
                require_nominal(chosen, attribute, nominal)
            return chosen
        raise_if_any(fault for time in misfits[:1] for fault in time.shape_faults())
        return None

    def _likely_time(self) -> Time | None:
        """Returns the time of stamps that increase, or else of steps, by their names."""
        beside = self.file.children(self.groups[0])[:_SEARCHED]
        stamps = sorted((name for name in beside if role(name) == "time"), key=time_rank)
        steps = [name for name in beside if role(name) == "step"]
        # in the groups above the most usual names
        for name in dict.fromkeys((*stamps, *steps, *TIMES[2:7], *DROID_STAMPS)):
            stored = None
            with contextlib.suppress(InputError):
                stored = self.companion(name)
            if stored and any(abs(rows - self.shape[1]) < 2 for rows in stored.shape):
                time = self._read_time(stored, name not in steps)
                if time.fits and not time.faults(0, 1):
                    return replace(time, source=time.source.then(", by its name"))
        return None

    def _read_time(self, stored: Dataset, stamps: bool, nominal: float | None = None) -> Time:
        column = self.shape[1] > 1
        time = read_time(stored, stamps, self.given.time, self.lengths, nominal, column)
        return time.fitted(*self.shape[:2], self.of_actions, self.lengths)

    def first_stamps(
        self, begin: int, end: int, of_rows: bool = False
    ) -> tuple[npt.NDArray[Any], str] | None:
        """Returns :meth:`.Time.first_stamps` and their unit; None where nothing says them."""
        stamps = None if self.time is None else self.time.first_stamps(begin, end, of_rows)
        # an output of trajcli counts its own times, in seconds, from the stamp of its source
        own = "trajcli_version" in self.file.attributes()
        stored = self.file.get(f"{self.groups[0]}start_stamp") if own else None
        if stored is None:
            return None if stamps is None else (stamps, (self.time and self.time.unit) or "s")
        if self.whole is not self:  # segments begin at other rows
            return None
        clock, unit = np.ravel(stored.read())[begin:end], stated_unit(stored) or "s"
        begun = stamps is not None and stamps.any()
        return (stamps_after(clock, stamps, unit) if begun else clock), unit

    def companion(self, *names: str, groups: Sequence[str] = ()) -> Dataset | None:
        """Returns the first of these datasets beside the arrays, else in the groups above."""
        stored = (self.file.get(group + name) for group in groups or self.groups for name in names)
        dataset = next((array for array in stored if array is not None), None)
        return None if dataset is None else self._rows_of(dataset.require_numeric())

    def _rows_of(self, dataset: Dataset) -> Dataset:
        """Returns the part of a dataset with rows, or one row, for each trajectory beside this."""
        member = self.member
        if member is None or not dataset.ndim:
            return dataset
        if dataset.shape[0] == (member.total if self.layout is None else self.layout.rows):
            return member.rows_of(dataset)
        each = dataset.ndim == 2 or dataset.where.last.endswith("dt")
        one = member._replace(begin=member.number, end=member.number + 1)
        return one.rows_of(dataset) if each and 0 < dataset.shape[0] == member.siblings else dataset

    def attribute(self, *names: str) -> tuple[Place, Any]:
        """Returns where an attribute of the first array or a group is, and its value, or None."""
        first = next(iter(self.arrays.values()))
        for name in names:
            for place, attributes in ((first.where, first.attributes), *self._group_attributes):
                if (value := attributes.get(name)) is not None:
                    return replace(place, attribute=name), value
        return Place(), None

    @cached_property
    def _group_attributes(self) -> list[tuple[Place, Mapping[str, Any]]]:
        """The attributes of the group and of those above it, each with its place."""
        return [
            (Place(str(self.file.path), f"/{group.rstrip('/')}"), self.file.attributes(group))
            for group in self.groups
        ]

    @cached_property
    def stated_mode(self) -> tuple[str, dict[str, Any], Place]:
        """The mode of trajcli that the file states, or "", with the options that it states, which
        may be words of another program, and where."""
        where, stated = self.attribute("mode")
        name = ALIASES.get(text_of(stated), text_of(stated))
        if name not in MODES:
            return "", {}, Place()
        options: dict[str, Any] = {
            option: int(value) if isinstance(value, (int, np.integer)) else text_of(value)
            for option in MODES[name].option_names()
            if (value := self.attribute(option)[1]) is not None
        }
        return name, options, replace(where, attribute="")

    @cached_property
    def joint_names(self) -> list[str] | None:
        """The names of the dofs, if --joints or the file has one for each."""
        if self._joints is not None:
            return self._joints
        names = self._axes() or self._stored_names(self.groups)
        if names is None and self.layout is not None:
            names = self.layout.dof_names(self.array_name)
        picked: list[str] = self.pick(names or [])
        return picked if len(picked) == self.shape[2] else None

    @property
    def of_rotations(self) -> bool:
        """Whether the arrays are orientations or angular rates, as trajcli writes them."""
        return self.array_name.rpartition("/")[2] in ROTATIONS

    def _axes(self) -> list[str] | None:
        """Returns the names of the components of an orientation or angular rate."""
        if not self.of_rotations:
            return None
        quaternion = [f"q{axis}" for axis in text_of(self._order_of_quaternions or "")]
        axes = quaternion if self.array_name.endswith(ROTATIONS[0]) else list("xyz")
        count = next(iter(self._stored.values())).shape[2] // (len(axes) or 1)
        return [f"{k}/{axis}" for k in range(count) for axis in axes] if count > 1 else axes or None

    @property
    def dof_labels(self) -> list[str]:
        """The names of the dofs, or else their numbers in the file."""
        return self.joint_names or list(map(str, self.dofs.numbers))

    @property
    def labels_to_pair(self) -> list[str]:
        """The names by which dofs are paired with those of another source: its own where --joints
        gives the same ones, in an order that is that of a source without names."""
        own = self._with(_joints=None).joint_names
        same = own is not None and sorted(own) == sorted(self._joints or ())
        return own if own is not None and same else self.dof_labels

    def states_joints(self) -> bool:
        """Whether its columns, --joints or its own group say what the dofs are called."""
        return self._joints is not None or self._stored_names(self.groups[:1]) is not None

    def _stored_names(self, groups: Sequence[str]) -> list[str] | None:
        named = next(iter(self._stored.values())).attributes.get("joint_names")
        named = self.attribute("joint_names")[1] if named is None else named
        if isinstance(named, list) or getattr(named, "ndim", 0) == 1:  # headings of columns, too
            return [text_of(name) for name in named]
        for path in (group + name for group in groups for name in DOF_NAMES):
            with contextlib.suppress(InputError):  # names are a courtesy
                stored = self.file.get(path)
                if stored is not None and stored.dtype.kind in "SUO" and stored.ndim == 1:
                    return stored.texts()
        return None

    def unit(self, name: str) -> str | None:
        """Returns the unit that an array states, else the one that the positions imply."""
        for array in (name, "position") if name in QUANTITIES else (name,):
            unit = stated_unit(self.arrays[array]) if array in self.arrays else ""
            if unit:
                return unit if array == name else unit_of(name, unit)
        return None


def _array_name(path: str) -> str:
    last = text_of(path).strip("/").rpartition("/")[2]
    if not {"*", ","}.isdisjoint(last):  # columns of a table
        return "data"
    return "actions" if last in ("", ".", "..", *ACTIONS) or last in TAKEN else last
