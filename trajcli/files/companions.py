"""Finds what a file holds next to an array: times, lengths, names, mode, start and goal.

One table of names serves every format, whether a value is stored as an attribute, an array, a
number or a column. Two statements that disagree are an error that names both.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import accumulate, combinations, pairwise
from typing import Any

import numpy as np

from trajcli.errors import InputError, describe, raise_if_any
from trajcli.files._layouts import Layout
from trajcli.files.catalogue import Catalogue, Dataset, decode_text
from trajcli.files.clock import Clock, compare_with_rate, positive, reconcile, require_nominal
from trajcli.files.conversion import read_lengths
from trajcli.files.episodes import (
    LENGTHS,
    MASKS,
    Member,
    find_datasets,
    likely_axes,
    mask_lengths,
    require_equal,
)
from trajcli.files.quantities import DOF_NAMES, POSITIONS, QUANTITIES, TIMES, role, time_rank
from trajcli.files.source import Place
from trajcli.kernels.program import Integers
from trajcli.memory import SCANNED_BYTES
from trajcli.modes import ALIASES, MODES
from trajcli.units import Unit

STEPS = ("dt",)
STAMPS: tuple[str, ...] = ("times", "time")
"""Names of the times of rows, and of nothing else."""
RATES = ("control_freq", "control_frequency", "fps", "rate", "frequency", "hz", "fs",
         "mocap_framerate", "mocap_frame_rate", "framerate", "frame_rate", "sample_rate",
         "sampling_rate", "sample_frequency", "sampling_frequency")  # fmt: skip
"""Names of the number of rows per second."""
_DROID_STAMPS = ("timestamp/robot_state/read_start", "observation/timestamp/control/step_start")
# Names next to the arrays that are searched, so that a file of thousands of datasets opens fast.
_SEARCHED = 100
# The share by which two statements of one rate may differ: 30 and 29.97 Hz are one rate of cameras,
# 30 and 25 Hz are not.
_SAME_RATE = 1e-2


@dataclass(frozen=True)
class StatedMode:
    """The mode that a file states, "" for none; the options may be words of another program."""

    name: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)
    where: Place = field(default_factory=Place)


class Companions:
    """Finds datasets and attributes next to an array and in the groups above it.

    groups: the group of the array and those above it: "data/demo_3/", "data/", "". array: the first
    array of the trajectories, as the file has it. dof_names: from the array, a group or a dataset.
    """

    def __init__(
        self, file: Catalogue, group: str, array: Dataset, layout: Layout | None,
        member: Member | None,
    ) -> None:  # fmt: skip
        parts = group.split("/") if group else []
        self.groups = tuple(accumulate(parts, "{}{}/".format, initial=""))[::-1]
        self.file, self.array, self.layout, self.member = file, array, layout, member
        self._attributes = [
            (Place(str(file.path), f"/{folder.rstrip('/')}"), file.attributes(folder))
            for folder in self.groups
        ]
        self.dof_names: list[str] | None = None
        stated = array.attributes.get("joint_names")
        stated = self.attribute("joint_names")[1] if stated is None else stated
        if isinstance(stated, list) or getattr(stated, "ndim", 0) == 1:  # headings of columns, too
            self.dof_names = [decode_text(name) for name in stated]
            return
        for path in (folder + name for folder in self.groups for name in DOF_NAMES):
            # names only make messages clearer: damage in them must not stop a run
            with suppress(InputError):
                stored = file.get(path)
                if stored is not None and stored.dtype.kind in "SUO" and stored.ndim == 1:
                    self.dof_names = stored.texts()
                    return

    def dataset(self, *names: str, groups: Sequence[str] = ()) -> Dataset | None:
        """Finds the first of these datasets next to the array, else in the groups above."""
        for folder in groups or self.groups:
            for name in names:
                if (stored := self.file.get(folder + name)) is not None:
                    return self._select_rows(stored.require_numeric())
        return None

    def _select_rows(self, dataset: Dataset) -> Dataset:
        """Selects the rows of this trajectory from a dataset that has rows for all of a file."""
        member = self.member
        if member is None or not dataset.ndim:
            return dataset
        if dataset.shape[0] == (member.total if self.layout is None else self.layout.split.rows):
            return member.select_rows(dataset)
        # with as many rows as trajectories, a table or the steps have one row for each of them
        table = dataset.ndim == 2 or dataset.where.last in STEPS
        if not (table and 0 < dataset.shape[0] == member.siblings):
            return dataset
        return member._replace(begin=member.number, end=member.number + 1).select_rows(dataset)

    def attribute(self, *names: str) -> tuple[Place, Any]:
        """Finds an attribute of the array or a group: its place, and its value or None."""
        for name in names:
            for place, attributes in ((self.array.where, self.array.attributes), *self._attributes):
                if (value := attributes.get(name)) is not None:
                    return replace(place, attribute=name), value
        return Place(), None

    @property
    def order_of_quaternions(self) -> Any:
        """The attribute ``order`` of the array, or ``rotation_order`` of the file; None without."""
        # the ``order`` of a file is that of mode smooth
        order = self.array.attributes.get("order")
        return order if order is not None else self.attribute("rotation_order")[1]

    def controller(self) -> str:
        """Finds the controller that a file like those of robosuite names, OSC_POSE; "" for none."""
        about = self.file.attributes("data")
        text = " ".join(decode_text(about.get(name, "")) for name in ("env_args", "env_info"))
        named = re.search('"((OSC|IK|JOINT|WHOLE_BODY)_[A-Z_]+)"', text)
        return named[1] if named else ""

    def mode(self) -> StatedMode:
        """Reads the mode of trajcli that the file states."""
        where, stated = self.attribute("mode")
        name = ALIASES.get(decode_text(stated), decode_text(stated))
        if name not in MODES:
            return StatedMode()
        options: dict[str, Any] = {
            option: int(value) if isinstance(value, (int, np.integer)) else decode_text(value)
            for option in MODES[name].option_names()
            if (value := self.attribute(option)[1]) is not None
        }
        return StatedMode(name, options, replace(where, attribute=""))

    def lengths(self, batch: int, rows: int, single: bool) -> tuple[Integers | None, list[str]]:
        """Reads the rows of each trajectory [batch] that lengths or masks state, None without, with
        warnings of masks that mark no padding. single: arrays are [T, D] in the file."""
        if self.layout is not None:
            return None, []
        remarks = list[str]()
        stated: dict[Place, Integers] = {}
        shapes = [(batch, rows), (batch, rows, 1)]
        shapes += [(rows,), (rows, 1), (1, rows)] if single else []
        shapes += [self.array.shape] if self.array.ndim == 3 else []
        for folder in self.groups:
            for name, stored in find_datasets(self.file, folder, (*LENGTHS, *MASKS)):
                stored = self._select_rows(stored)
                if name in MASKS and stored.shape in shapes and stored.dtype.kind in "biuf":
                    try:
                        stated[stored.where] = mask_lengths(stored, batch, rows, name)
                    except InputError:
                        if not single:
                            raise
                        remarks.append(
                            f"{stored.where} is a mask of rows, but not of padding: it is not used"
                        )
                # lengths of a group above may be of other trajectories
                elif (
                    name in LENGTHS
                    and not single
                    and (folder == self.groups[0] or math.prod(stored.shape) == batch)
                ):
                    stated[stored.where] = read_lengths(stored, batch, rows)
            if stated:
                break
        require_equal(stated, "the same rows of every trajectory in both")
        return next(iter(stated.values()), None), remarks

    def rate(self) -> Clock | None:
        """Finds the rate of rows that an attribute, a number or a column states, as times."""
        known: list[tuple[Place, float]] = []
        sources = [(self.array.where, self.array.attributes), *self._attributes]
        for (place, attributes), folder in zip(sources, (None, *self.groups), strict=True):
            known += (
                (replace(place, attribute=name), hertz)
                for name in attributes
                if name in RATES and (hertz := positive(attributes[name])) is not None
            )
            # a layout knows where its files hold the rate
            skip = folder is None or self.layout is not None
            for name, stored in () if skip else find_datasets(self.file, folder or "", RATES):
                # of columns only those whose names mean nothing else
                count = max(stored.shape, default=1) if role(name) else 1
                empty = not stored.numeric or 0 in stored.shape
                if math.prod(stored.shape) != count or empty or stored.nbytes > SCANNED_BYTES:
                    continue
                values = np.ravel(stored.read())
                number = positive(values[0].item())
                if number is not None and (values == values[0]).all():
                    known.append((stored.where, number))
            if known:  # the nearest group that states any counts
                break
        for (where, hertz), (other, second) in pairwise(known):
            if abs(hertz - second) > _SAME_RATE * hertz:
                raise InputError(
                    "rates that contradict each other",
                    where=f"{where} and {other}",
                    expected="one rate",
                    found=f"{hertz:g} Hz and {second:g} Hz",
                    hint="--rate HZ or --dt SECONDS says which to use",
                )
        if not known:
            return None
        where, hertz = known[0]
        return Clock.even(1.0 / hertz, where.with_remark(f", {hertz:g} Hz"), where)

    def clock(
        self, batch: int, rows: int, acting: bool, lengths: Integers | None, given: Unit | None
    ) -> Clock | None:
        """Finds the times of the rows of trajectories [batch, rows], or why they are not known."""

        def read(stored: Dataset, stamps: bool, nominal: float | None = None) -> Clock:
            if not stamps:
                return Clock.from_steps(stored, given).fit_shape(batch, rows, acting, lengths)
            clock = Clock.from_stamps(stored, given, lengths, nominal, column=rows > 1)
            return clock.fit_shape(batch, rows, acting, lengths)

        try:
            clock, stamps = self._choose_clock(rows, read)
        except InputError as error:
            return Clock.unknown(error.faults[0], batch, rows)
        # rows with a stamp each are at these, although they are actions
        at_stamps = acting and stamps is not None and stamps.per_row and not self.mode().name
        return clock and clock.fit_shape(batch, rows, acting and not at_stamps, lengths)

    def _choose_clock(
        self, rows: int, read: Callable[..., Clock]
    ) -> tuple[Clock | None, Clock | None]:
        """Chooses the times of rows, and finds the stamps or steps in datasets."""
        # the step of a layout, an attribute dt, a rate and datasets are compared, so that a file
        # that contradicts itself is refused whichever is used
        where, stated = self.attribute(*STEPS)
        step, family = positive(stated), self.layout.step if self.layout else None
        nominal = family.step if step is None and family is not None else step
        stored = self._stored_clock(read, where, step, nominal)
        if family is not None:
            if stored is None or not stored.stamped:
                return stored or family, stored
            return compare_with_rate(family, stored), stored
        rate, constant = self.rate(), None if step is None else Clock.even(step, where)
        stated = [clock for clock in (constant, rate, stored) if clock is not None]
        levels = list[int]()
        for clock in stated:
            name = clock.where.name.strip("/")
            folder = name if clock.where.attribute else name.rpartition("/")[0]
            folder = f"{folder}/" if folder else ""
            levels.append(self.groups.index(folder) if folder in self.groups else 0)
        pairs = combinations(zip(stated, levels, strict=True), 2)
        for (first, level), (second, other_level) in pairs:
            # a statement of a nearer group overrides those of the groups above
            if level != other_level:
                continue
            if second.stamped:
                compare_with_rate(first, second)
                continue
            dts = [clock.step for clock in (first, second) if clock.step is not None]
            if len(dts) == 2 and abs(dts[0] - dts[1]) > _SAME_RATE * dts[0]:
                raise InputError(
                    "steps that contradict each other",
                    where=f"{first.where} and {second.where}",
                    expected="one step",
                    found=f"{dts[0]:g} s and {dts[1]:g} s",
                    hint="--dt SECONDS or --rate HZ says which to use",
                )
        if stored is None and constant is not None:
            return constant, None
        # the rate of some families is in a file of its own
        own_rate = self.layout is not None and self.layout.family.rates
        if rate is not None or stored is not None or own_rate:
            return stored or rate, stored
        # last, stamps that increase, or else steps, by names that are likely those of times; the
        # most usual names are looked for in the groups above, too
        names = self.file.children(self.groups[0])[:_SEARCHED]
        stamps = sorted((name for name in names if role(name) == "time"), key=time_rank)
        steps = [name for name in names if role(name) == "step"]
        for name in dict.fromkeys((*stamps, *steps, *TIMES[2:7], TIMES[-1], *_DROID_STAMPS)):
            likely = None
            with suppress(InputError):
                likely = self.dataset(name)
            if likely and any(abs(count - rows) < 2 for count in likely.shape):
                clock = read(likely, name not in steps)
                if clock.fits and not clock.faults(0, 1):
                    clock = replace(clock, source=clock.source.with_remark(", by its name"))
                    return clock, clock
        return None, None

    def _stored_clock(
        self, read: Callable[..., Clock], attribute: Place, step: float | None,
        nominal: float | None,
    ) -> Clock | None:  # fmt: skip
        """Reads the times of steps or stamps next to the arrays, else of those above that fit."""
        misfits: list[Clock] = []
        for group in self.groups:
            fitting: list[Clock | None] = []
            for names in (STEPS, STAMPS):
                stored = self.dataset(*names, groups=[group])
                clock = None if stored is None else read(stored, names is STAMPS, nominal)
                # how many steps actions need depends on their mode: stamps next to a step may be
                # those of the rows that they make
                if clock is not None and not (clock.fits or (clock.acting and not any(fitting))):
                    misfits.append(clock)
                    clock = None
                fitting.append(clock)
            chosen = reconcile(*fitting)
            if chosen is None:
                continue
            # a dt of another group may be the step of something else
            same_group = attribute.name == f"/{group.rstrip('/')}"
            if chosen.stamped and step is not None and same_group:
                require_nominal(chosen, attribute, step)
            return chosen
        raise_if_any(fault for clock in misfits[:1] for fault in clock.shape_faults())
        return None

    def likely_axes(self) -> tuple[str, str, bool]:
        """Guesses the axes of the array, with the reason, and whether that is its time stamps."""
        counts, stamps = dict[int, str](), set[str]()
        for folder in self.groups:
            for name, stored in find_datasets(self.file, folder, (*TIMES, *POSITIONS, *QUANTITIES)):
                line = math.prod(stored.shape) == max(stored.shape, default=0) > 1
                rows = max(stored.shape) if line else stored.shape[0] if stored.ndim == 2 else 0
                # a table of the same dofs has the rows of another recording
                other = rows and stored.shape[-1] != self.array.shape[-1]
                if line if name in TIMES else other:
                    counts.setdefault(rows, f"{stored.where} {describe(stored.shape)}")
                    stamps |= {counts[rows]} if name in STAMPS else set()
        axes, why = likely_axes(self.array, counts, len(self.dof_names or ()))
        return axes, why, why in stamps
