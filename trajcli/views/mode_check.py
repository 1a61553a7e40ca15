"""Rows held against the mode that made them: computed again from themselves by the kernels.

Where the rows hold the actions (the cascade's modes, central, teleport), row 0 and the actions
give all other rows. What is stored was rounded, so that two results may differ by what rounding
of the stored rows comes to; beyond that a row is wrong.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from trajcli.errors import InputError, UsageError
from trajcli.files.schema import QUANTITIES, RECORDED_START
from trajcli.files.time import positive
from trajcli.inputs import Inputs
from trajcli.kernels.choose import choose
from trajcli.modes import MODES, Mode, make_mode
from trajcli.modes.cascade import Cascade
from trajcli.modes.central import MIDDLE, WINDOW
from trajcli.views.rounding import half_unit, rounding_spread
from trajcli.views.statistics import Failure
from trajcli.views.trajectories import Array, Block, Floats

_PROMISE = 1e-12
"""What the kernels promise, as a share of the largest value along a trajectory."""
_RETIMED = 4
"""Every retiming divides rounded values and rounds them again; one file may have had three."""


@dataclass
class ModeCheck:
    """Blocks of an output computed again; ``add`` takes them one by one.

    dt: the step that the output states. rows: by quantity, the first row that is compared, and
    how many are left out at the end. exact: whether all rows were equal to the bit. roundings:
    how many times the stored values may have been rounded.
    """

    mode: Mode
    recorded: bool
    dt: float | None
    rows: Mapping[str, tuple[int, int]]
    roundings: int = 1
    failures: list[Failure] = field(default_factory=list)
    compared: int = 0
    exact: bool = True
    reason: str = ""

    @property
    def name(self) -> str:
        """The mode, and its scheme where it has one."""
        scheme = getattr(self.mode, "scheme", "")
        return f"{self.mode.name}, {scheme}" if scheme else self.mode.name

    def add(self, block: Block, values: Mapping[str, Array]) -> None:
        """Compare a block, whose arrays are values [b, T, D] by name."""
        count = block.rows
        dt, times = (np.array([[self.dt]]), None) if self.dt is not None else _times(block)
        if dt is None and times is None:
            self.reason = "the times of the rows are not known"
            return
        least = WINDOW if self.mode.name == "central" and self.recorded else 2
        names = [name for name, (first, cut) in self.rows.items() if first < count - cut]
        if count < least or not names:
            return
        values = {name: _native(array) for name, array in values.items() if name in QUANTITIES}
        inputs = _inputs(self.mode, self.recorded, values, dt, times)
        kinds = {values[name].dtype.name for name in names}
        kind = kinds.pop() if len(kinds) == 1 and self.exact else "float64"
        again = inputs.compute(choose("cpu"), kind, names)
        self.compared += len(block.numbers)
        unequal = []
        for name in names:
            first, cut = self.rows[name]
            stored, computed = (x[name][:, first : count - cut] for x in (values, again))
            computed = computed.astype(stored.dtype, copy=False)
            if not np.array_equal(stored, computed):
                unequal.append(name)
                self.exact &= np.array_equal(stored, computed, equal_nan=True)
        if unequal:
            exact = again if kind == "float64" else inputs.compute(choose("cpu"), "float64", names)
            self._judge(inputs, values, {name: exact[name] for name in unequal}, block.numbers)

    def _judge(
        self,
        inputs: Inputs,
        values: Mapping[str, Array],
        exact: Mapping[str, Floats],
        numbers: Array,
    ) -> None:
        """Hold rows that are not equal to the bit against what rounding may do.

        ratios: by how many times the rounding each value [b, T, D] is off.
        """
        count = next(iter(exact.values())).shape[1]
        spread = rounding_spread(inputs, values, list(exact), self.roundings)
        ratios = {}
        for name, result in exact.items():
            first, cut = self.rows[name]
            rows = slice(first, count - cut)
            size = np.where(np.isfinite(result), np.abs(result), 0.0)
            with np.errstate(all="ignore"):
                off = np.abs(values[name] - result)
                allowed = spread[name] + self.roundings * half_unit(values[name].dtype) * size
                if not (off > allowed)[:, rows].any():
                    continue
                promised = max(_PROMISE, 1.2e-16 * inputs.horizon)
                allowed += promised * size[:, rows].max(1, keepdims=True)
                ratio = off / np.maximum(allowed, 1e-300)
            ratios[name] = np.zeros_like(ratio)  # NaN is another check's business
            ratios[name][:, rows] = np.where(np.isfinite(ratio), ratio, 0.0)[:, rows]
        every = [(ratio > 1.0).any((1, 2)) for ratio in ratios.values()]
        for b in np.flatnonzero(np.any(every, 0)).tolist() if every else ():
            trajectory = {name: ratio[b] for name, ratio in ratios.items()}
            self.failures.append(self._failure(int(numbers[b]), trajectory))

    def _failure(self, trajectory: int, ratios: Mapping[str, Array]) -> Failure:
        """The worst dof of a trajectory, and the array to be suspected there.

        A wrong action spoils all that is computed from it; another wrong number only its array,
        and those between it and the actions are right.
        """
        worst = max(ratios, key=lambda name: float(ratios[name].max()))
        dof = int(ratios[worst].max(0).argmax())
        wrong = {
            name: rows for name, ratio in ratios.items() if (rows := ratio[:, dof] > 1.0).any()
        }
        order = self.mode.derivatives_of
        suspect = min(wrong, key=lambda name: abs(QUANTITIES.index(name) - order))
        rows = wrong[suspect]
        if len(wrong) == len(self.rows) > 1:
            suspect, rows = QUANTITIES[order], np.any(list(wrong.values()), 0)
        count = sum(int((ratio > 1.0).sum()) for ratio in ratios.values())
        excess = float(ratios[worst].max())
        return Failure(trajectory, count, int(rows.argmax()), dof, excess, excess, suspect)


def _inputs(mode: Mode, recorded: bool, values: Mapping[str, Array], dt: Any, times: Any) -> Inputs:
    """The start row and the actions of rows [b, T, D] by quantity."""
    actions = values[QUANTITIES[mode.derivatives_of]]
    start = {} if recorded else {name: rows[:, 0] for name, rows in values.items()}
    return Inputs(
        mode=mode,
        actions=np.ascontiguousarray(actions if recorded else actions[:, 1:]),
        start={name: np.ascontiguousarray(part) for name, part in start.items()},
        goal={},
        dt=dt,
        times=times,
        recorded=recorded,
    )


def mode_check(attributes: Mapping[str, Any], names: Sequence[str]) -> ModeCheck | str:
    """The check that the attributes of an output allow for its arrays; else why there is none.

    The reason is empty where the file does not say that a mode made it.
    """
    name = str(attributes.get("mode", ""))
    kind = MODES.get(name)
    if kind is None or not all(option in attributes for option in kind.option_names()):
        return ""
    words = {option: str(attributes[option]) for option in kind.option_names()}
    action = QUANTITIES[kind.derivatives_of]
    if not (issubclass(kind, Cascade) or name in ("central", "teleport")):
        return "the rows do not hold the actions"
    if action not in names:
        return f"{action} is not in the file, and the actions are {action}"
    recorded = is_recording(attributes)
    curobo = name == "central" and words["convention"] == "curobo"
    try:
        mode = make_mode(name, scheme=words.get("scheme"))
    except UsageError as error:
        return f"{error.faults[0].what} {error.faults[0].found}"
    rows = {}
    for order, quantity in enumerate(QUANTITIES):
        if quantity in names and quantity != action:
            if curobo:  # its past and held rows are rows: inside of them, a recording's windows
                rows[quantity] = (MIDDLE, MIDDLE)
            elif (first := _first_row(mode, order, names, recorded, words["frames"])) is not None:
                rows[quantity] = (first, 0)
    if not rows:
        return f"it needs more than {', '.join(n for n in QUANTITIES if n in names)}"
    roundings = _RETIMED if "slower_only" in attributes else 1  # trajcli retime states it
    return ModeCheck(mode, recorded or curobo, positive(attributes.get("dt")), rows, roundings)


def is_recording(attributes: Mapping[str, Any]) -> bool:
    """Whether an output was made of a recording, which has no start state."""
    start, ends = str(attributes.get("start")), str(attributes.get("ends"))
    return start == RECORDED_START or ends == "recording"


def _first_row(
    mode: Mode, order: int, names: Sequence[str], recorded: bool, frames: str
) -> int | None:
    """The first row of a quantity that follows from the file's own rows; None: there is none."""
    action = mode.derivatives_of
    if recorded:
        return 0
    if mode.name == "teleport":
        return int(frames != "actions")
    if mode.name == "central":  # the window of row 1 reaches before the start
        return 1 if frames != "actions" and set(QUANTITIES) <= set(names) else MIDDLE
    between = QUANTITIES[order + 1 : action] if order < action else QUANTITIES[action + 1 : order]
    if set(between) <= set(names):
        return 1
    return None if order < action else order - action


def _native(array: Array) -> Array:
    """float32 or float64 as kernels compute and files store."""
    if array.dtype in (np.float32, np.float64) and array.dtype.isnative:
        return array
    return array.astype(np.float64)


def _times(block: Block) -> tuple[Floats | None, Floats | None]:
    """dt [1, 1] or the times [b, T] of a block; neither where they are not known."""
    try:
        clocks = [one.time for one, *_ in block.parts]
        steps = {None if clock is None else clock.uniform for clock in clocks}
        if len(steps) == 1 and None not in steps:
            return np.array([[*steps]], np.float64), None
        rows = [
            np.broadcast_to(clock.row_times(begin, end)[:, : block.rows], (end - begin, block.rows))
            for clock, (_, begin, end) in zip(clocks, block.parts, strict=True)
            if clock is not None
        ]
    except InputError:  # which the check of the times reports
        return None, None
    return None, np.concatenate(rows) if len(rows) == len(clocks) else None
