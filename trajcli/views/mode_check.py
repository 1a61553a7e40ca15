"""Rows held against the mode that made them: computed again from themselves by the kernels.

Where the rows hold the actions (the cascade's modes, central, teleport), row 0 and the actions
give all other rows. Stored values are rounded, so two results may differ by what the rounding of
the stored rows amounts to; beyond that a row is wrong.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from trajcli.errors import InputError, UsageError
from trajcli.files.blocks import Array, Block, Floats
from trajcli.files.schema import QUANTITIES, RECORDED_START
from trajcli.files.time import positive
from trajcli.inputs import Inputs
from trajcli.kernels.choose import choose
from trajcli.modes import MODES, Mode, make_mode
from trajcli.modes.cascade import Cascade
from trajcli.modes.central import MIDDLE, WINDOW
from trajcli.views.findings import Failure, Finding, failed
from trajcli.views.trajectories import Batch

_PROMISE = 1e-12
"""What the kernels promise, as a share of the largest value along a trajectory."""
_RETIMED = 4
"""Every retiming divides rounded values and rounds them again; one file may have had three."""
_DOUBLE = float(np.finfo(np.float64).eps)


@dataclass
class ModeCheck:
    """Blocks of an output computed again; ``add`` takes them one by one.

    dt: the step that the output states. rows: by quantity, those that are compared. roundings:
    how many times the stored values may have been rounded. exact: whether all rows were equal to
    the bit. reason: why there is nothing to compare. positions: the dofs, by number, that the mode
    has no part in.
    """

    mode: Mode
    recorded: bool
    dt: float | None
    rows: Mapping[str, slice]
    roundings: int = 1
    positions: Sequence[str] = ()
    failures: list[Failure] = field(default_factory=list)
    compared: int = 0
    exact: bool = True
    reason: str = "there are no rows"

    @property
    def name(self) -> str:
        """The mode, and its scheme where it has one."""
        scheme = getattr(self.mode, "scheme", "")
        return f"{self.mode.name}, {scheme}" if scheme else self.mode.name

    def add(self, block: Block, values: Mapping[str, Array]) -> None:
        """Compare a block, whose arrays are values [b, T, D] by name."""
        dt, times = (np.array([[self.dt]]), None) if self.dt is not None else _steps(block)
        if dt is None and times is None:
            self.reason = "the times of the rows are not known"
            return
        least = WINDOW if self.mode.name == "central" and self.recorded else 2
        names = [name for name, rows in self.rows.items() if range(block.rows)[rows]]
        if block.rows < least or not names:
            return
        values = {name: _native(array) for name, array in values.items() if name in QUANTITIES}
        actions = values[QUANTITIES[self.mode.derivatives_of]]
        start = {} if self.recorded else {name: rows[:, 0] for name, rows in values.items()}
        inputs = Inputs(
            mode=self.mode,
            actions=np.ascontiguousarray(actions if self.recorded else actions[:, 1:]),
            start={name: np.ascontiguousarray(part) for name, part in start.items()},
            goal={},
            dt=dt,
            times=times,
            recorded=self.recorded,
        )
        again = inputs.compute(choose("cpu"), "float64", names)
        self._put_positions(again, values, block)
        self.compared += len(block.numbers)
        unequal = {}
        for name in names:
            stored = values[name][:, self.rows[name]]
            rounded = again[name][:, self.rows[name]].astype(stored.dtype, copy=False)
            if not np.array_equal(stored, rounded):
                unequal[name] = again[name]
                self.exact &= np.array_equal(stored, rounded, equal_nan=True)
        if unequal:
            self._judge(inputs, values, unequal, block.numbers)

    def _put_positions(
        self, again: Mapping[str, Array], values: Mapping[str, Array], block: Block
    ) -> None:
        """The rows of dofs that are none of the mode, as they are stored."""
        numbers = block.parts[0][0].dofs.numbers
        columns = [k for k, number in enumerate(numbers) if str(number) in self.positions]
        for name, rows in again.items():
            rows[..., columns] = values[name][..., columns]

    def finding(self, batch: Batch, count: int) -> Finding:
        """Whether the rows are what the actions give."""
        check = f"mode {self.name}"
        if not self.compared:
            return Finding(check, batch.label(), None, f"not checked: {self.reason}", count)
        if not self.failures:
            how = "to the bit" if self.exact else "within rounding"
            text, facts = f"equal to what the actions give, {how}", {"exact": self.exact}
            return Finding(check, batch.label(), True, text, self.compared, facts=facts)
        worst = max(failure.excess for failure in self.failures)
        wrong = sum(failure.count for failure in self.failures)
        are = "value is" if wrong == 1 else "values are"
        text = f"{wrong} {are} not what the actions give, up to {worst:.3g} × rounding"
        return failed(check, batch, "", self.failures, text, count, times_rounding=worst)

    def _judge(
        self,
        inputs: Inputs,
        values: Mapping[str, Array],
        exact: Mapping[str, Floats],
        numbers: Array,
    ) -> None:
        """Hold rows that are not equal to the bit against what rounding may do."""
        share, least = (self.roundings * max(map(of, values.values()))
                        for of in (_half_unit, _half_least))  # fmt: skip
        spread = _rounding(inputs, share + 4 * _DOUBLE, least, list(exact))
        promised = max(_PROMISE, 1.2e-16 * inputs.horizon)
        ratios = {}  # by how many times what is allowed each value [b, T, D] is off
        for name, result in exact.items():
            stored, rows = values[name], self.rows[name]
            size = np.where(np.isfinite(result), np.abs(result), 0.0)
            with np.errstate(all="ignore"):
                allowed = spread[name] + self.roundings * _half_unit(stored) * size
                allowed += self.roundings * _half_least(stored)
                allowed += promised * size[:, rows].max(1, keepdims=True)
                ratio = np.abs(stored - result) / np.maximum(allowed, 1e-300)
            ratios[name] = np.zeros_like(ratio)  # NaN is another check's business
            ratios[name][:, rows] = np.where(np.isfinite(ratio), ratio, 0.0)[:, rows]
        wrong = np.any([(ratio > 1.0).any((1, 2)) for ratio in ratios.values()], axis=0)
        for b in np.flatnonzero(wrong).tolist():
            trajectory = {name: ratio[b] for name, ratio in ratios.items() if ratio[b].max() > 1.0}
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


def _rounding(
    inputs: Inputs, share: float, least: float, names: Sequence[str]
) -> dict[str, Floats]:
    """How far rows [b, T, D] may be off because every input is off by this share of itself, and by
    ``least``, which tells where values are subnormal.

    Modes are linear, so the magnitudes of what single changes do add up. Sums have positive
    coefficients: all changes may be made at once. What is differenced sees WINDOW rows at most:
    every WINDOW-th action may be changed at once, and each part of the start by itself.
    """
    steps = inputs.steps
    if inputs.times is not None and steps.size:
        share += 4 * float(np.spacing(np.abs(inputs.times).max()) / steps.min())
    actions = share * np.abs(inputs.actions, dtype=np.float64) + least
    start = {name: share * np.abs(part, dtype=np.float64) + least
             for name, part in inputs.start.items()}  # fmt: skip
    changes = [replace(inputs, actions=actions, start=start)]
    if any(QUANTITIES.index(name) > inputs.mode.derivatives_of for name in names):
        rows = np.arange(inputs.horizon)[:, None]
        changes = [replace(inputs, actions=np.where(rows % WINDOW == k, actions, 0.0), start={})
                   for k in range(WINDOW)]  # fmt: skip
        changes += [replace(inputs, actions=0.0 * actions, start={name: part})
                    for name, part in start.items()]  # fmt: skip
    effects = [change.compute(choose("cpu"), "float64", names) for change in changes]
    return {name: np.sum([np.abs(effect[name]) for effect in effects], axis=0) for name in names}


def _half_unit(array: Array) -> float:
    """The share of a value by which rounding it moves it at most."""
    return float(np.finfo(array.dtype).eps) / 2


def _half_least(array: Array) -> float:
    """By how much rounding moves a subnormal value at most."""
    return float(np.finfo(array.dtype).smallest_subnormal) / 2


def _native(array: Array) -> Array:
    """float32 or float64 as kernels compute and files store."""
    if array.dtype in (np.float32, np.float64) and array.dtype.isnative:
        return array
    return array.astype(np.float64)


def _steps(block: Block) -> tuple[Floats | None, Floats | None]:
    """dt [1, 1] or the times [b, T] of a block; neither where they are not known."""
    try:
        step, times = block.step, block.times()
    except InputError:  # which the check of the times reports
        return None, None
    if step is not None:
        return np.array([[step]]), None
    return None, times if times is not None and (np.diff(times) > 0).all() else None


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
                rows[quantity] = slice(MIDDLE, -MIDDLE)
            elif (first := _first_row(mode, order, names, recorded, words["frames"])) is not None:
                rows[quantity] = slice(first, None)
    if not rows:
        return f"it needs more than {', '.join(n for n in QUANTITIES if n in names)}"
    roundings = _RETIMED if "slower_only" in attributes else 1  # trajcli retime states it
    step, positions = positive(attributes.get("dt")), str(attributes.get("absolute", ""))
    return ModeCheck(mode, recorded or curobo, step, rows, roundings, positions.split(","))


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
    if mode.name == "central":  # the window of row 1 reaches before the start
        return 1 if frames != "actions" and set(QUANTITIES) <= set(names) else MIDDLE
    between = QUANTITIES[order + 1 : action] if order < action else QUANTITIES[action + 1 : order]
    if set(between) <= set(names):
        return 1
    return None if order < action else order - action
