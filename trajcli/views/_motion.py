"""Looks for what no robot does: jumps, rows that repeat in motion, ends that are not at rest."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from trajcli.files.quantities import ROTATIONS
from trajcli.files.recording import Recording
from trajcli.files.repair import TurnJumps
from trajcli.kernels.program import Floats, Integers, NumpyArray
from trajcli.scores import add_derivatives
from trajcli.views._statistics import Failure, find_failures

# A jump is four times as fast as the steps next to it, of which four count on either side, and
# twice as fast as the mean step; it is faster by ten usual changes of speed, and longer than
# rounding.
_JUMP, _NEIGHBOURS, _MEANS, _CHANGES, _ROUNDING = 4.0, 4, 2.0, 10.0, 1e-6
# No more than this share of the steps are jumps: a signal of more of them is one of pulses.
_JUMP_SHARE = 0.05
# So many equal rows are frozen if before them the robot has this share of its speed behind them.
_FROZEN, _STOPPING = 5, 0.25
# At rest a robot is slower than ros2_control takes for stopped (0.01 rad/s), or than a hundredth
# of its peak; the mean speed of so many rows counts, as differences of a measured robot at rest are
# mostly noise.
_STOPPED, _PEAK_SHARE, _END = 0.01, 0.01, 5


class StepCheck:
    """Finds steps of positions that the speed next to them does not explain, other than turns.

    steps: the trajectory, row, dof, size and time of each [n, 7], then how many equal rows in
    motion it ends, and in how many seconds; 0 for a jump. What is not known is NaN.
    """

    def __init__(self, batch: Recording, turns: TurnJumps) -> None:
        """turns: the jumps by a turn, in which each block is looked for before it comes here."""
        self._turns, self._dofs, self.steps = turns, batch.free_dofs, np.empty((0, 7))

    def add_block(self, values: Mapping[str, NumpyArray], block: Recording) -> None:
        rows, times = values[self._turns.name][..., self._dofs], block.known_times()
        if rows.shape[1] <= _FROZEN or not rows.size:
            return
        with np.errstate(all="ignore"):
            rise = np.diff(rows.astype(np.float64, copy=False), axis=1)
            durations = np.ones(rise.shape[:2]) if times is None else np.diff(times)
            # Of times that do not increase, which fail for themselves, only the order counts.
            usual = np.fmax(np.median(durations, axis=1, keepdims=True), 0.0)
            durations = np.where(durations > 0, durations, np.where(usual > 0, usual, 1.0))
            speed = np.nan_to_num(np.abs(rise) / durations[..., None], posinf=0.0)
            # A cheap test of all steps first. Two long steps in one direction are a motion, so a
            # neighbour counts only where it goes the same way.
            alike, neighbour = rise[:, 1:] * rise[:, :-1] > 0.0, np.zeros_like(speed)
            neighbour[:, 1:] = np.where(alike, speed[:, :-1], 0.0)
            neighbour[:, :-1] = np.fmax(neighbour[:, :-1], np.where(alike, speed[:, 1:], 0.0))
            lone = speed > np.fmax(_JUMP * neighbour, _MEANS * speed.mean(1, keepdims=True))
            lone &= np.abs(rise) > _ROUNDING * np.nanmax(np.abs(rows), initial=0.0)
        turned = {*map(tuple, self._turns.jumps[:, :3].astype(int).tolist())}
        for b, k in np.argwhere(lone.any(1)).tolist():
            time = np.full(rows.shape[1], np.nan) if times is None else times[b]
            # Rows that arrive in a burst were not measured in it: a jump is one by their stamps and
            # by usual steps.
            by_stamps, by_steps = (
                _find_jumps(rise[b, :, k], lone[b, :, k], x)
                for x in (durations[b], np.fmax(durations[b], usual[b]))
            )
            for step in np.intersect1d(by_stamps, by_steps).tolist():
                where = (int(block.numbers[b]), block.first_row + step + 1, self._dofs[k])
                since = step
                while since and not rise[b, since - 1].any():
                    since -= 1
                ends = speed[b, [since - 1, min(step + 1, len(durations[b]) - 1)]]
                before, after = np.linalg.norm(ends, axis=1)
                frozen = [step - since + 1, time[step] - time[since]]
                # A robot that came to rest first has not frozen: it jumps from there.
                if since == 0 or frozen[0] < _FROZEN or before < _STOPPING * after:
                    frozen = [0, 0.0]
                line = [*where, rise[b, step, k], time[step + 1], *frozen]
                self.steps = self.steps if where in turned else np.append(self.steps, [line], 0)

    def kinds(self) -> Iterator[tuple[str, NumpyArray, str]]:
        """Yields jumps, then rows that repeat: the name of the check, the steps, and a text."""
        frozen = self.steps[:, 5] > 0
        jumps, repeats = self.steps[~frozen], self.steps[frozen]
        size = max(jumps[:, 3].tolist(), key=abs, default=0.0)
        yield "jumps", jumps, f"a step of {size:.3g}, which the speed next to it does not explain"
        rows, seconds = repeats[:, 5:].max(0, initial=0.0)
        time = "" if np.isnan(seconds) else f" ({seconds:.3g} s)"
        yield "frozen rows", repeats, f"{rows:.0f} equal rows{time} in motion, before the row"


def _find_jumps(rise: Floats, lone: NumpyArray, durations: Floats) -> Integers:
    """Finds the steps [n] of a dof, of those that are ``lone``, that other steps do not explain."""
    # Steps that do not move count for nothing: otherwise each change of an encoder or of a command
    # that is held would be a jump.
    moves = np.flatnonzero(np.isfinite(rise) & (rise != 0.0))
    if len(moves) <= _NEIGHBOURS:
        return moves[:0]
    velocity = rise[moves] / durations[moves]
    speed, usual = np.abs(velocity), np.median(np.abs(np.diff(velocity)))
    windows = sliding_window_view(np.pad(speed, _NEIGHBOURS, mode="reflect"), 2 * _NEIGHBOURS + 1)
    sides = windows[:, :_NEIGHBOURS], windows[:, -_NEIGHBOURS:]
    # The faster side counts, since a motion that begins or ends has a slow one.
    expected = np.maximum(*(np.median(side, 1) for side in sides))
    jumps = (speed > _JUMP * expected) & (speed - expected > _CHANGES * usual) & lone[moves]
    return moves[jumps] if jumps.sum() <= max(2, _JUMP_SHARE * len(moves)) else moves[:0]


class RestCheck:
    """Finds ends at which velocities, and accelerations that are stored, are not about zero.

    arrays: their names by quantity. derived: whether velocities are differences of positions.
    largest: the largest magnitude at an end; moving: the worst of each trajectory, by quantity.
    """

    def __init__(self, batch: Recording, arrays: Mapping[str, str]) -> None:
        rates = ("velocity", "acceleration", *ROTATIONS[1:3])
        names = {**{name: name for name in batch.arrays}, **arrays}
        self.arrays = {quantity: names[quantity] for quantity in rates if quantity in names}
        self.derived = batch.clock is not None and "position" in names and "velocity" not in names
        self.arrays |= {"velocity": names["position"]} if self.derived else {}
        self.largest = dict.fromkeys(self.arrays, 0.0)
        self.moving: dict[str, list[Failure]] = {name: [] for name in self.arrays}

    def add_block(self, values: Mapping[str, NumpyArray], block: Recording) -> None:
        for name, array in self.arrays.items() if block.rows else ():
            rates: Any = values[array].astype(np.float64, copy=False)
            ends = [rates[:, :1], rates[:, -1:]]
            if name == "velocity" and self.derived:
                rows, times = rates, block.known_times()
                times = np.zeros(rows.shape[:2]) if times is None else times
                good, last = np.all(np.diff(times) > 0, axis=1), min(_END, rows.shape[1]) - 1
                rates = add_derivatives({"position": rows}, times, block.step, good, {name})[name]
                # The lesser of the velocity at an end and of the mean velocity there counts.
                ends = []
                for begin, end in ((0, last), (-1 - last, -1)):
                    with np.errstate(invalid="ignore", divide="ignore"):
                        duration = (times[:, end] - times[:, begin])[:, None]
                        mean = (rows[:, end] - rows[:, begin]) / duration
                    rate = rates[:, -1 if begin else 0]
                    ends.append(np.where(np.abs(rate) <= np.abs(mean), rate, mean)[:, None])
            allowed = _PEAK_SHARE * np.fmax.reduce(np.abs(rates), axis=(1, 2), initial=0.0)
            allowed = np.fmax(allowed, _STOPPED if "velocity" in name else 0.0)[:, None, None]
            size = np.zeros(rates.shape)
            size[:, [0, -1]] = np.nan_to_num(np.abs(np.concatenate(ends, 1)), nan=np.inf)
            self.largest[name] = max(self.largest[name], float(size.max(initial=0.0)))
            self.moving[name] += find_failures(~(size <= allowed), size, size, block, array)
