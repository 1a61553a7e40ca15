"""What lies beside an array: times, lengths and episodes, names, mode, start and goal.

One table of names for every format, whether a value is stored as an attribute, an array, a number
or a column. Two statements that disagree are an error that names both.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import accumulate, combinations, pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from trajcli.errors import InputError, describe, raise_if_any
from trajcli.files._layouts import Layout
from trajcli.files.catalogue import Catalogue, Dataset, text_of
from trajcli.files.clock import Clock, compare_with_rate, positive, reconcile, require_nominal
from trajcli.files.conversion import read_lengths, stated_unit
from trajcli.files.episodes import (
    LENGTHS,
    MASKS,
    Member,
    likely_axes,
    mask_lengths,
    named,
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
"""Names that say the times of rows, and nothing else."""
RATES = ("control_freq", "control_frequency", "fps", "rate", "frequency", "hz", "fs",
         "mocap_framerate", "mocap_frame_rate", "framerate", "frame_rate", "sample_rate",
         "sampling_rate", "sample_frequency", "sampling_frequency")  # fmt: skip
"""What rows per second are called."""
_DROID_STAMPS = ("timestamp/robot_state/read_start", "observation/timestamp/control/step_start")
# Names beside the arrays that are looked at.
_SEARCHED = 100
# By how much two statements of one rate may differ, as a share.
_SAME_RATE = 1e-2


@dataclass(frozen=True)
class StatedMode:
    """The mode that a file states, "" for none, its options, which may be words of another program,
    and where."""

    name: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)
    where: Place = field(default_factory=Place)


class Companions:
    """Finds what lies beside an array and in the groups above it.

    Attributes:
        file: the file of the array.
        groups: the group of the array and those above it: "data/demo_3/", "data/", "".
        array: the first array of the trajectories, as the file has it.
        layout, member: the family of the file, and which of its trajectories this is.
        dof_names: the names of dofs that the array, a group or a dataset of names says.
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
        self.dof_names = self._dof_names()

    def dataset(self, *names: str, groups: Sequence[str] = ()) -> Dataset | None:
        """Returns the first of these datasets beside the array, else in the groups above."""
        for folder in groups or self.groups:
            for name in names:
                if (stored := self.file.get(folder + name)) is not None:
                    return self._rows_of(stored.require_numeric())
        return None

    def _rows_of(self, dataset: Dataset) -> Dataset:
        """Returns the part of a dataset with rows, or one row, for each trajectory beside this."""
        member = self.member
        if member is None or not dataset.ndim:
            return dataset
        if dataset.shape[0] == (member.total if self.layout is None else self.layout.split.rows):
            return member.select_rows(dataset)
        each = dataset.ndim == 2 or dataset.where.last in STEPS
        one = member._replace(begin=member.number, end=member.number + 1)
        return (
            one.select_rows(dataset)
            if each and 0 < dataset.shape[0] == member.siblings
            else dataset
        )

    def attribute(self, *names: str) -> tuple[Place, Any]:
        """Returns where an attribute of the array or a group is, and its value, or None."""
        for name in names:
            for place, attributes in ((self.array.where, self.array.attributes), *self._attributes):
                if (value := attributes.get(name)) is not None:
                    return replace(place, attribute=name), value
        return Place(), None

    @property
    def order_of_quaternions(self) -> Any:
        """The attribute ``order`` of the array, or ``rotation_order`` of the file; None without."""
        # the ``order`` of a file is that of mode smooth
        own = self.array.attributes.get("order")
        return own if own is not None else self.attribute("rotation_order")[1]

    def controller(self) -> str:
        """Returns the controller that a file like robosuite's names, OSC_POSE; "" for none."""
        about = self.file.attributes("data")
        text = " ".join(decode_text(about.get(name, "")) for name in ("env_args", "env_info"))
        named = re.search('"((OSC|IK|JOINT|WHOLE_BODY)_[A-Z_]+)"', text)
        return named[1] if named else ""

    def mode(self) -> StatedMode:
        """Returns the mode of trajcli that the file states."""
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

    def _dof_names(self) -> list[str] | None:
        stated = self.array.attributes.get("joint_names")
        stated = self.attribute("joint_names")[1] if stated is None else stated
        if isinstance(stated, list) or getattr(stated, "ndim", 0) == 1:  # headings of columns, too
            return [decode_text(name) for name in stated]
        for path in (group + name for group in self.groups for name in DOF_NAMES):
            with suppress(InputError):  # names are a courtesy
                stored = self.file.get(path)
                if stored is not None and stored.dtype.kind in "SUO" and stored.ndim == 1:
                    return stored.texts()
        return None

    def lengths(self, batch: int, rows: int, single: bool) -> tuple[Integers | None, list[str]]:
        """Returns the rows of each trajectory [batch] that lengths or masks state, None without;
        and warnings of masks that are none of padding. single: arrays are [T, D] in the file."""
        if self.layout is not None:
            return None, []
        remarks = list[str]()
        stated: dict[Place, Integers] = {}
        shapes = [(batch, rows), (batch, rows, 1)]
        shapes += [(rows,), (rows, 1), (1, rows)] if single else []
        shapes += [self.array.shape] if self.array.ndim == 3 else []
        for folder in self.groups:
            for name, stored in named(self.file, folder, (*LENGTHS, *MASKS)):
                stored = self._rows_of(stored)
                if name in MASKS and stored.shape in shapes and stored.dtype.kind in "biuf":
                    try:
                        stated[stored.where] = mask_lengths(stored, batch, rows, name)
                    except InputError:
                        if not single:
                            raise
                        remarks.append(f"{stored.where} marks rows that are not used otherwise")
                elif (
                    name in LENGTHS
                    and not single
                    and (folder == self.groups[0] or math.prod(stored.shape) == batch)
                ):  # those of a group above may be of other trajectories
                    stated[stored.where] = read_lengths(stored, batch, rows)
            if stated:
                break
        require_equal(stated, "the same rows of every trajectory in both")
        return next(iter(stated.values()), None), remarks

    def rate(self) -> Clock | None:
        """Returns the times of rows at a rate that an attribute, a number or a column states.

        The nearest group that states any counts. Raises InputError for rates that disagree.
        """
        known: list[tuple[Place, float]] = []
        own = self.array.where, self.array.attributes
        for place, attributes, folder in (
            (*own, None),
            *((*held, group) for held, group in zip(self._attributes, self.groups, strict=True)),
        ):
            known += (
                (replace(place, attribute=name), hertz)
                for name in attributes
                if name in RATES and (hertz := positive(attributes[name])) is not None
            )
            if folder is not None and self.layout is None:
                known += self._rates_in(folder)
            if known:
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

    def _rates_in(self, folder: str) -> Iterator[tuple[Place, float]]:
        """Yields the rates that numbers, or columns of one number, of a group state."""
        for name, stored in named(self.file, folder, RATES):
            # of columns only those whose names say nothing else
            line = math.prod(stored.shape) == (max(stored.shape, default=1) if role(name) else 1)
            if not line or not stored.numeric or 0 in stored.shape or stored.nbytes > SCANNED_BYTES:
                continue
            values = np.ravel(stored.read())
            if (hertz := positive(values[0].item())) is not None and (values == values[0]).all():
                yield stored.where, hertz

    def clock(
        self, batch: int, rows: int, acting: bool, lengths: Integers | None, given: Unit | None
    ) -> Clock | None:
        """Returns the times of the rows of trajectories [batch, rows]; None if nothing states them.

        acting: the arrays are actions alone. given: the unit of stamps on the command line. Of two
        statements that contradict each other it has the fault.
        """
        try:
            clock, stamps = self._clock((batch, rows), acting, lengths, given)
        except InputError as error:
            return Clock.unknown(error.faults[0], batch, rows)
        # rows with a stamp each are at these, although they are actions
        at_stamps = acting and stamps is not None and stamps.per_row and not self.mode().name
        return clock and clock.fit_shape(batch, rows, acting and not at_stamps, lengths)

    def _clock(
        self, shape: tuple[int, int], acting: bool, lengths: Integers | None, given: Unit | None
    ) -> tuple[Clock | None, Clock | None]:
        """Returns the times of rows [B, T], and the stamps or steps that lie beside them."""

        def read(stored: Dataset, stamps: bool, nominal: float | None = None) -> Clock:
            if not stamps:
                return Clock.from_steps(stored, given).fit_shape(*shape, acting, lengths)
            clock = Clock.from_stamps(stored, given, lengths, nominal, column=shape[1] > 1)
            return clock.fit_shape(*shape, acting, lengths)

        where, stated = self.attribute(*STEPS)
        step, family = positive(stated), self.layout.step if self.layout else None
        nominal = family.step if step is None and family is not None else step
        beside = self._stored_clock(read, where, step, nominal)
        if family is not None:
            if beside is None or not beside.stamped:
                return beside or family, beside
            return compare_with_rate(family, beside), beside
        rate, constant = self.rate(), None if step is None else Clock.even(step, where)
        self._require_agreement([clock for clock in (constant, rate, beside) if clock is not None])
        if beside is None and constant is not None:
            return constant, None
        if rate is not None:
            return beside or rate, beside
        # the rate of some families is in a file of its own
        if beside is None and not (self.layout is not None and self.layout.family.rates):
            beside = self._likely_clock(shape[1], read)
        return beside, beside

    def _require_agreement(self, stated: Sequence[Clock]) -> None:
        """Raises InputError for steps, rates and stamps that disagree, of one group: what a nearer
        group says goes before what those above it say."""
        for first, second in combinations(stated, 2):
            if self._level(first.where) != self._level(second.where):
                continue
            if second.stamped:
                compare_with_rate(first, second)
                continue
            steps = [clock.step for clock in (first, second) if clock.step is not None]
            if len(steps) == 2 and abs(steps[0] - steps[1]) > _SAME_RATE * steps[0]:
                raise InputError(
                    "steps that contradict each other",
                    where=f"{first.where} and {second.where}",
                    expected="one step",
                    found=f"{steps[0]:g} s and {steps[1]:g} s",
                    hint="--dt SECONDS or --rate HZ says which to use",
                )

    def _level(self, where: Place) -> int:
        """Returns how many groups above the array a statement lies."""
        name = where.name.strip("/")
        folder = name if where.attribute else name.rpartition("/")[0]
        folder = f"{folder}/" if folder else ""
        return self.groups.index(folder) if folder in self.groups else 0

    def _stored_clock(
        self, read: Callable[..., Clock], attribute: Place, step: float | None,
        nominal: float | None,
    ) -> Clock | None:  # fmt: skip
        """Returns the time that steps or stamps beside the arrays give, else those above that fit.

        attribute, step: the place and the value of the attribute dt. nominal: that, or a layout's.
        """
        misfits: list[Clock] = []
        for group in self.groups:
            fitting: list[Clock | None] = []
            for names in (STEPS, STAMPS):
                stored = self.dataset(*names, groups=[group])
                clock = None if stored is None else read(stored, names is STAMPS, nominal)
                # how many steps actions need depends on their mode: stamps beside a step may be of
                # the rows that they make
                if clock is not None and not (clock.fits or (clock.acting and not any(fitting))):
                    misfits.append(clock)
                    clock = None
                fitting.append(clock)
            chosen = reconcile(*fitting)
            if chosen is None:
                continue
            beside = attribute.name == f"/{group.rstrip('/')}"
            if chosen.stamped and step is not None and beside:
                require_nominal(chosen, attribute, step)
            return chosen
        raise_if_any(fault for clock in misfits[:1] for fault in clock.shape_faults())
        return None

    def _likely_clock(self, rows: int, read: Callable[..., Clock]) -> Clock | None:
        """Returns the time of stamps that increase, or else of steps, by their names."""
        beside = self.file.children(self.groups[0])[:_SEARCHED]
        stamps = sorted((name for name in beside if role(name) == "time"), key=time_rank)
        steps = [name for name in beside if role(name) == "step"]
        # in the groups above the most usual names
        for name in dict.fromkeys((*stamps, *steps, *TIMES[2:7], TIMES[-1], *_DROID_STAMPS)):
            stored = None
            with suppress(InputError):
                stored = self.dataset(name)
            if stored and any(abs(count - rows) < 2 for count in stored.shape):
                clock = read(stored, name not in steps)
                if clock.fits and not clock.faults(0, 1):
                    return replace(clock, source=clock.source.with_remark(", by its name"))
        return None

    def start_stamps(self) -> tuple[npt.NDArray[Any], str] | None:
        """Returns the stamps at which an output of trajcli begins, and their unit: it counts its
        own times from 0. None of any other file."""
        own = self.file.is_output
        stored = self.file.get(f"{self.groups[0]}start_stamp") if own else None
        return None if stored is None else (np.ravel(stored.read()), read_unit(stored) or "s")

    def likely_axes(self) -> tuple[str, str, bool]:
        """Returns the axes of the array and why, by :func:`.episodes.likely_axes`, and whether
        these are its time stamps."""
        counts, stamps = dict[int, str](), set[str]()
        for folder in self.groups:
            for name, stored in named(self.file, folder, (*TIMES, *POSITIONS, *QUANTITIES)):
                line = math.prod(stored.shape) == max(stored.shape, default=0) > 1
                rows = max(stored.shape) if line else stored.shape[0] if stored.ndim == 2 else 0
                other = rows and stored.shape[-1] != self.array.shape[-1]
                if line if name in TIMES else other:
                    counts.setdefault(rows, f"{stored.where} {describe(stored.shape)}")
                    stamps |= {counts[rows]} if name in STAMPS else set()
        axes, why = likely_axes(self.array, counts, len(self.dof_names or ()))
        return axes, why, why in stamps
