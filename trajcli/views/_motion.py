"""Looks for what no robot does: jumps, rows that repeat in motion, ends that are not at rest."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from trajcli.files.quantities import ROTATIONS
from trajcli.files.recording import Array, Recording
from trajcli.files.repair import TurnJumps
from trajcli.kernels.program import Floats, Integers
from trajcli.scores import add_derivatives
from trajcli.views._statistics import Failure, failures

# A jump is so many times as fast as the steps beside it, of which so many count on either side, and
# as the mean step; by so many usual changes of speed it is faster. It is longer than rounding.
_JUMP, _BESIDE, _OF_MEAN, _CHANGES, _ROUNDING = 4.0, 4, 2.0, 10.0, 1e-6
# No more than this share of the steps are jumps: a signal of more of them is one of pulses.
_SELDOM = 0.05
# So many equal rows are frozen if before them the robot has this share of its speed behind them.
_FROZEN, _STOPPING = 5, 0.25
# At rest it is slower than ros2_control takes for stopped, or than this share of its peak; over so
# many rows the mean speed counts, as differences of a measured robot at rest are mostly noise.
_STOPPED, _OF_PEAK, _END = 0.01, 0.01, 5


class StepCheck:
    """Finds steps of positions that the speed beside them does not explain, other than turns.

    found: the trajectory, row, dof, step and time of each [n, 7], then how many equal rows in
    motion it ends, and in how many seconds; 0 for a jump. What is not known is NaN.
    """

    def __init__(self, batch: Recording, turns: TurnJumps) -> None:
        """turns: has looked through a block before this."""
        self._turns, self._dofs, self.found = turns, batch.free_dofs, np.empty((0, 7))

    def add(self, values: Mapping[str, Array], block: Recording) -> None:
        """Looks through a block with arrays [b, T, D] by name."""
        rows, times = values[self._turns.name][..., self._dofs], block.known_times()
        if rows.shape[1] <= _FROZEN or not rows.size:
            return
        with np.errstate(all="ignore"):
            rise = np.diff(rows.astype(np.float64, copy=False), axis=1)
            steps = np.ones(rise.shape[:2]) if times is None else np.diff(times)
            # of times that do not increase, which fail for themselves, only the order counts
            usual = np.fmax(np.median(steps, axis=1, keepdims=True), 0.0)
            steps = np.where(steps > 0, steps, np.where(usual > 0, usual, 1.0))
            speed = np.nan_to_num(np.abs(rise) / steps[..., None], posinf=0.0)
            # more than one long step in a direction is a motion
            alike, near = rise[:, 1:] * rise[:, :-1] > 0.0, np.zeros_like(speed)
            near[:, 1:] = np.where(alike, speed[:, :-1], 0.0)
            near[:, :-1] = np.fmax(near[:, :-1], np.where(alike, speed[:, 1:], 0.0))
            alone = speed > np.fmax(_JUMP * near, _OF_MEAN * speed.mean(1, keepdims=True))
            alone &= np.abs(rise) > _ROUNDING * np.nanmax(np.abs(rows), initial=0.0)
        turned = {*map(tuple, self._turns.jumps[:, :3].astype(int).tolist())}
        for b, k in np.argwhere(alone.any(1)).tolist():
            time = np.full(rows.shape[1], np.nan) if times is None else times[b]
            # rows that arrive in a burst were not measured in it
            line = rise[b, :, k], alone[b, :, k]
            by_stamps, by_steps = (
                _jumps(*line, x) for x in (steps[b], np.fmax(steps[b], usual[b]))
            )
            for step in np.intersect1d(by_stamps, by_steps).tolist():
                place = (int(block.numbers[b]), block.first_row + step + 1, self._dofs[k])
                since = step
                while since and not rise[b, since - 1].any():
                    since -= 1
                ends = speed[b, [since - 1, min(step + 1, len(steps[b]) - 1)]]
                before, after = np.linalg.norm(ends, axis=1)
                frozen = [step - since + 1, time[step] - time[since]]
                # a robot that came to rest first has not frozen: it jumps from there
                if since == 0 or frozen[0] < _FROZEN or before < _STOPPING * after:
                    frozen = [0, 0.0]
                row = [*place, rise[b, step, k], time[step + 1], *frozen]
                self.found = self.found if place in turned else np.append(self.found, [row], 0)

    def kinds(self) -> Iterator[tuple[str, Array, str]]:
        """Yields jumps, then rows that repeat: the name of the check, what was found, in words."""
        frozen = self.found[:, 5] > 0
        jumps, repeats = self.found[~frozen], self.found[frozen]
        size = max(jumps[:, 3].tolist(), key=abs, default=0.0)
        yield "jumps", jumps, f"a step of {size:.3g}, which the speed beside it does not explain"
        rows, seconds = repeats[:, 5:].max(0, initial=0.0)
        time = "" if np.isnan(seconds) else f" ({seconds:.3g} s)"
        yield "frozen rows", repeats, f"{rows:.0f} equal rows{time} in motion, before the row"


def _jumps(rise: Floats, alone: Array, steps: Floats) -> Integers:
    """Returns which steps [n] of a dof, of those that stand ``alone``, others do not explain.

    Steps that do not move count for nothing: else each change of an encoder or of a command that is
    held would be a jump.
    """
    moves = np.flatnonzero(np.isfinite(rise) & (rise != 0.0))
    if len(moves) <= _BESIDE:
        return moves[:0]
    velocity = rise[moves] / steps[moves]
    speed, usual = np.abs(velocity), np.median(np.abs(np.diff(velocity)))
    windows = sliding_window_view(np.pad(speed, _BESIDE, mode="reflect"), 2 * _BESIDE + 1)
    near = np.maximum(*(np.median(x, 1) for x in (windows[:, :_BESIDE], windows[:, -_BESIDE:])))
    found = moves[(speed > _JUMP * near) & (speed - near > _CHANGES * usual) & alone[moves]]
    return found if len(found) <= max(2, _SELDOM * len(moves)) else moves[:0]


class RestCheck:
    """Finds ends at which velocities, and accelerations that are stored, are not about zero.

    arrays: their names by quantity. derived: whether velocities are differences of positions.
    largest: the largest magnitude at an end; moving: the worst of each trajectory, by quantity.
    """

    def __init__(self, batch: Recording, arrays: Mapping[str, str]) -> None:
        """arrays: the names of the batch's arrays by their quantity."""
        rates = ("velocity", "acceleration", *ROTATIONS[1:3])
        names = {**{name: name for name in batch.arrays}, **arrays}
        self.arrays = {quantity: names[quantity] for quantity in rates if quantity in names}
        self.derived = batch.clock is not None and {"position"} == {"position", "velocity"} & {
            *names
        }
        self.arrays |= {"velocity": names["position"]} if self.derived else {}
        self.largest = dict.fromkeys(self.arrays, 0.0)
        self.moving: dict[str, list[Failure]] = {name: [] for name in self.arrays}

    def add(self, values: Mapping[str, Array], block: Recording) -> None:
        """Looks at the ends of a block with arrays [b, T, D] by name."""
        for name, array in self.arrays.items() if block.rows else ():
            rates = values[array].astype(np.float64, copy=False)
            ends = [rates[:, :1], rates[:, -1:]]
            if name == "velocity" and self.derived:
                rates, ends = _differences(rates, block.known_times(), block.step)
            allowed = _OF_PEAK * np.fmax.reduce(np.abs(rates), axis=(1, 2), initial=0.0)
            allowed = np.fmax(allowed, _STOPPED if "velocity" in name else 0.0)[:, None, None]
            size = np.zeros(rates.shape)
            size[:, [0, -1]] = np.nan_to_num(np.abs(np.concatenate(ends, 1)), nan=np.inf)
            self.largest[name] = max(self.largest[name], float(size.max(initial=0.0)))
            self.moving[name] += failures(~(size <= allowed), size, size, block, array)


def _differences(
    rows: Floats, times: Floats | None, step: float | None
) -> tuple[Floats, list[Floats]]:
    """Returns velocities by differences of rows [b, T, D], and at both ends [b, 1, D] the lesser of
    these and of the mean velocity there."""
    times = np.zeros(rows.shape[:2]) if times is None else times
    good, last = np.all(np.diff(times) > 0, axis=1), min(_END, rows.shape[1]) - 1
    rates = add_derivatives({"position": rows}, times, step, good, {"velocity"})["velocity"]
    ends = []
    for begin, end in ((0, last), (-1 - last, -1)):
        with np.errstate(invalid="ignore", divide="ignore"):
            mean = (rows[:, end] - rows[:, begin]) / (times[:, end] - times[:, begin])[:, None]
        by_rows = rates[:, -1 if begin else 0]
        ends.append(np.where(np.abs(by_rows) <= np.abs(mean), by_rows, mean)[:, None])
    return rates, ends
