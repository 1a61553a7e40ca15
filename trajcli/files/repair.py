"""Repairs recordings: repeated stamps, gaps, angles that wrap, and standstill at both ends."""

from __future__ import annotations

import itertools
import math
import shlex
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from trajcli.arrays import time_stamp_faults
from trajcli.errors import InputError, Note, Report, raise_if_any, wrong_shape
from trajcli.files.catalogue import load_array
from trajcli.files.dofs import parse_dofs
from trajcli.files.quantities import QUANTITIES, rate_name
from trajcli.files.reading import Repair, parse_selection
from trajcli.files.recording import Recording
from trajcli.kernels.program import Floats, Integers, NumpyArray
from trajcli.modes import MODES
from trajcli.padding import split_at_gaps
from trajcli.rotations.quaternions import normalize
from trajcli.units import parse_unit

_TURN = 2.0 * math.pi
_TURNS = {"rad": _TURN, "deg": 360.0, "": math.nan}
# Values that are searched at once; they fit in the caches.
_SEARCHED = 1 << 17
# No shorter step is a turn less the motion that its neighbours explain.
_LEAST_JUMP = 0.7 * _TURN


def repair_recordings(
    recordings: Sequence[Recording], repair: Repair, least: int, report: Report,
    episodes: str | None = None,
) -> list[Recording]:  # fmt: skip
    """Repairs recordings; returns recordings that read the same files.

    least: rows that a segment between gaps needs; shorter ones are left out. episodes: the
    trajectories of the result that are used, which the report is about.
    """
    repair.refuse_gap()
    counts: Counter[str] = Counter()
    result, gap = list(recordings), repair.max_gap
    # gaps first, since they decide what a trajectory is, and standstill last, since it is measured
    # with angles that are continuous
    if gap is not None or repair.repeated_times == "drop":
        least = 1 if gap is None else least
        result = [part for x in result for part in _split_at_gaps(x, repair, least, counts)]
    if repair.wrap_dofs is not None:
        result = [_unwrap(recording, repair.wrap_dofs) for recording in result]
    if repair.trim:
        result = [*_trim(result, repair.still, report, episodes)]
    short = counts["pieces"] - counts["segments"]
    if short and not counts["segments"]:
        raise InputError(
            f"no segment of {least} rows between gaps", where="--max-gap", hint="a larger --max-gap"
        )
    if counts["gaps"]:
        report.add_notes(Note(f"split at gaps of more than {gap:g} s: {counts['pieces']} segments"))
    if counts["longer"]:
        report.add_notes(
            f"--max-gap {gap:g} is less than the equal steps of the rows, which are not split"
        )
    if short:
        report.add_notes(Note(f"segments of fewer than {least} rows left out: {short}"))
    if counts["dropped"]:
        rows = "row" if counts["dropped"] == 1 else "rows"
        report.add_notes(Note(f"{counts['dropped']} {rows} with repeated stamps dropped"))
    return result


def _split_at_gaps(
    recording: Recording, repair: Repair, least: int, counts: Counter[str]
) -> Iterator[Recording]:
    """Yields the segments between gaps of a group; equally spaced trajectories are not split."""
    clock = None if recording.fault is not None else recording.clock
    if clock is None or not clock.stamped or clock.values is None:
        longer = repair.max_gap and clock and clock.step and clock.step > repair.max_gap
        counts["longer"] += bool(longer)
        yield recording
        return
    batch, length, _ = recording.shape
    stamps = np.atleast_2d(load_array(clock.values))
    if stamps.shape[1] != length or len(stamps) not in (1, batch):
        expected, what = f"[{length}], one per row", "wrong number of time stamps"
        raise InputError(wrong_shape(clock.where, expected, clock.values.shape, what=what))
    lengths = recording.lengths
    # trajectories of one length that share their stamps share the rows between gaps, and stay one
    # block; trajectories of joined files are named one by one, so their segments are, too
    if len(stamps) == 1 and not recording.file.members:
        sharing = [np.flatnonzero(lengths == rows) for rows in dict.fromkeys(lengths.tolist())]
    else:
        sharing = [np.array([k]) for k in range(batch)]
    for members in sharing:
        first = int(members[0])
        line = stamps[first if len(stamps) > 1 else 0, : lengths[first]]
        rows = np.arange(len(line))
        # repeated stamps go before gaps are looked for: they would be steps of 0
        if repair.repeated_times == "drop":
            rows = np.flatnonzero(np.concatenate([[True], line[1:] != line[:-1]]))
            counts["dropped"] += len(line) - len(rows)
        raise_if_any(time_stamp_faults(line[rows], clock.where, 0, rows))
        pieces = [rows[x] for x in split_at_gaps(line[rows], repair.max_gap or math.inf)]
        counts["gaps"] += len(pieces) - 1
        counts["pieces"] += len(pieces)
        segments = [piece for piece in pieces if len(piece) >= least]
        counts["segments"] += len(segments)
        for number, piece in enumerate(segments):
            suffix = f"/segment_{number}" if len(segments) > 1 else ""
            yield recording.segment(members, piece, suffix)


def _trim(
    recordings: Sequence[Recording], still: float | None, report: Report, episodes: str | None
) -> Iterator[Recording]:
    """Yields recordings without standstill at both ends, and reports the rows that remain."""
    from trajcli.scores import moving_rows

    taken = set(parse_selection(episodes, sum(map(len, recordings))))
    left_out, never, number = list[float](), 0, 0
    for recording in recordings:
        name = "position" if "position" in recording.arrays else next(iter(recording.arrays))
        spans, idle = list[Any](), list[float]()
        what = "velocity" if "velocity" in recording.arrays else recording.rate_name or "position"
        # actions whose meaning only a mode knows, and accelerations, do not show standstill
        guessed = name == "actions" and not recording.named and recording.file.names() != [""]
        if recording.fault is None and (guessed or what not in QUANTITIES[:2]):
            hint, expected = "FILE:DATASET names them", "positions or velocities"
            what = "no motion whose standstill is known"
            raise InputError(what, where=recording.where, expected=expected, hint=hint)
        usable = recording.fault is None and recording.rows > 0
        for block in recording.blocks() if usable else ():
            values = block.arrays[what if what in block.arrays else name].read().astype(np.float64)
            turned = [normalize(values[..., [*r.dofs]], r.form)[0] for r in block.rotations]
            turns = np.stack(turned, 2) if turned else np.zeros((*values.shape[:2], 0, 4))
            parts, times = {what: values[..., block.free_dofs]}, block.times()
            assert times is not None  # they were required
            rows = moving_rows(parts, times, block.step, still, turns)
            # a trajectory without motion is not cut to nothing, and has NaN idle seconds
            motionless = rows[:, 1] == 0
            rows[motionless] = 0, block.rows
            ends = times[np.arange(len(rows))[:, None], rows - [0, 1]]
            seconds = times[:, -1] - times[:, 0] - ends[:, 1] + ends[:, 0]
            idle += np.where(motionless, np.nan, seconds).tolist()
            spans.append(rows)
        # reports and copies of data sets count rows as the file does
        numbers = range(recording.rows) if recording.row_numbers is None else recording.row_numbers
        for k, (begin, stop) in enumerate(np.concatenate(spans).tolist() if spans else ()):
            if number + k not in taken:
                continue
            never += math.isnan(idle[k])
            left_out.append(idle[k])
            alone = f"/trajectory_{recording.group_indices[k]}" if recording.count > 1 else ""
            report.keep_ranges.append({
                "trajectory": recording.name + alone, "source": str(recording.locate(k)[0]),
                "rows": [int(numbers[begin]), int(numbers[stop - 1]) + 1],
            })  # fmt: skip
        number += len(recording)
        yield from recording.cut(np.concatenate(spans)) if spans else [recording]
    idle = [seconds for seconds in left_out if seconds > 0]
    text = f"idle ends left out: {len(idle)} of {len(left_out)} trajectories"
    text += f", {np.median(idle):.3g} s in the median" if idle else ""
    report.add_notes(Note(text + (f"; {never} left whole, without known motion" if never else "")))


class TurnJumps:
    """Finds rows at which angles jump by a turn, as they do in logs of angles that wrap.

    ``jumps`` [n, 5]: the trajectory, row, dof, turn and time (NaN where unknown) of each jump.
    """

    def __init__(self, group: Recording, acting: bool = False) -> None:
        """acting: the actions of the group are positions, by the mode that integrates them."""
        self.name = "position" if "position" in group.arrays else next(iter(group.arrays))
        self.jumps, self._group = np.empty((0, 5)), group
        # the turn of each dof is 2π or 360 by its unit; NaN means either, 0 no angle
        self._turns = np.zeros(group.shape[2])
        # actions are positions if the mode or the layout says so; rates do not wrap
        layout, mode = group.layout, group.stated_mode.name
        goals = layout is not None and layout.family.commands_positions
        goals = not MODES[mode].action_order if mode else goals
        if rate_name(self.name) or (self.name == "actions" and not (acting or goals)):
            return
        units = [parse_unit(unit) or unit for unit in (group.unit(self.name) or "").split(",")]
        turns = np.resize([_TURNS.get(str(unit), 0.0) for unit in units], len(self._turns))
        # a fault means quaternions of unknown order: which dofs are angles is not known
        if group.rotation_fault is None:
            self._turns[group.free_dofs] = turns[group.free_dofs]

    def add_block(self, values: Mapping[str, NumpyArray], block: Recording) -> None:
        """Searches a block with arrays [b, T, D] by name."""
        if not self._turns.any() or self.name not in values:
            return
        if (jumps := turn_jumps(values[self.name], self._turns)).size:
            times, (batch, rows, *_) = block.known_times(), jumps.T.astype(int)
            seconds = np.full(len(jumps), np.nan) if times is None else times[batch, rows]
            jumps[:, 0], jumps[:, 1] = block.numbers[batch], rows + block.first_row
            self.jumps = np.concatenate([self.jumps, np.c_[jumps, seconds]])

    def notes(self, command: str = "trajcli export ") -> list[str]:
        """Warns of the jumps. command: the command that undoes them, "" for the one that runs."""
        if not len(self.jumps):
            return []
        dofs, names = np.unique(self.jumps[:, 2].astype(int)).tolist(), self._group.joint_names
        which = shlex.quote(",".join(names[dof] if names else str(dof) for dof in dofs))
        # without a unit, angles are made continuous in rad
        in_degrees = np.isnan(self._turns[dofs]).any() and self.jumps[:, 3].max() > _TURN
        degrees = "--units deg " if in_degrees else ""
        labels = ", ".join(self._group.dof_labels[dof] for dof in dofs)
        return [
            f"{labels}: {len(self.jumps)} rows jump by a turn, as angles do that wrap; "
            f"{command}{degrees}--wrap-dofs {which} makes them continuous"
        ]


def turn_jumps(values: NumpyArray, turns: Floats) -> Floats:
    """Finds the trajectory, row, dof and turn [n, 4] of steps of values [b, T, D] by a turn.

    Without the turn, such a step is at most twice as long as its neighbours or the mean, up to
    rounding. The neighbours are no longer than an eighth of a turn, and at least a quarter of the
    steps beyond half a turn are such steps: else the motion is fast. turns [D]: as in
    :class:`TurnJumps`.
    """
    (batch, rows, dofs), jumps = values.shape, [np.empty((0, 4))]
    length = max(2, _SEARCHED // max(dofs, 1))
    many = max(1, length // max(rows, 1))
    for b, r in itertools.product(range(0, batch, many), range(0, rows - 1, length)):
        part = np.ascontiguousarray(values[b : b + many, r : r + length + 1])
        part = part if part.dtype in (np.float32, np.float64) else part.astype(np.float64)
        with np.errstate(invalid="ignore", over="ignore"):
            # one line of memory is fastest; some of its steps lead from one trajectory to the next
            steps = part.reshape(-1)[dofs:] - part.reshape(-1)[:-dofs]
            if steps.max() < _LEAST_JUMP and steps.min() > -_LEAST_JUMP:
                continue
            # first the steps that are long enough, without neighbours that are too long to explain
            # one: this leaves few steps of a fast motion for the exact test
            steps = np.abs(steps)
            far = np.flatnonzero(steps > _LEAST_JUMP)
            turn = np.where(steps[far] < 180.0, _TURN, 360.0)
            for shift in (-2, -1, 1, 2):
                row = far // dofs % part.shape[1] + shift
                near = steps[np.clip(far + shift * dofs, 0, len(steps) - 1)]
                within = (row >= 0) & (row < part.shape[1] - 1)
                fast = (near > 0.13 * turn) & (near < 0.49 * turn) & within
                far, turn = far[~fast], turn[~fast]
            if not far.size:
                continue
            columns = {*(far // part[0].size * dofs + far % dofs).tolist()}
            k, dof = np.divmod(sorted(columns), dofs)
            column, row, turn = _explain_jumps(part[k, :, dof].astype(np.float64), turns[dof])
        jumps.append(np.stack([b + k[column], r + row, dof[column], turn], 1))
    return np.concatenate(jumps)


def _explain_jumps(values: Floats, turns: Floats) -> tuple[Integers, Integers, Floats]:
    """Finds the column, row and turn of each of the :func:`turn_jumps` of columns [n, T]."""
    steps = np.abs(np.diff(values))
    span = (np.fmax.reduce(values, 1) - np.fmin.reduce(values, 1))[:, None]
    # an angle that wraps reaches over two turns at most: what reaches over more is in degrees
    either = np.where(span > 2.1 * _TURN, 360.0, _TURN)
    turn = np.where(np.isnan(turns[:, None]), either, turns[:, None])
    long = (steps > 0.5 * turn) & (span <= 2.1 * turn)
    columns = np.flatnonzero(long.any(1))
    steps, turn, long = steps[columns], turn[columns], long[columns]
    left = np.nan_to_num(np.where(long, np.abs(steps - turn), steps))
    # each step without its turn is compared with two neighbours on either side, and with the mean
    # of the steps that move, since a joint may rest around a jump
    around = np.pad(left, ((0, 0), (2, 2)))
    near = np.max([around[:, k : k + left.shape[1]] for k in (0, 1, 3, 4)], 0)
    usual = np.where(long, 0.0, left)  # a lone step does not explain itself
    moving = np.maximum((usual > 0.0).sum(1, keepdims=True), 1)
    near = np.maximum(near, usual.sum(1, keepdims=True) / moving)
    jumps = long & (left <= 2.0 * near + 0.005 * turn) & (near <= 0.125 * turn)
    jumps &= 4 * jumps.sum(1, keepdims=True) >= long.sum(1, keepdims=True)
    k, rows = np.nonzero(jumps)
    return columns[k], rows + 1, turn[k, 0]


def _unwrap(group: Recording, option: str) -> Recording:
    """Makes wrapped angles in rad continuous as numpy.unwrap does, in float64."""
    dofs = parse_dofs(option, group.shape[2], "--wrap-dofs", group.joint_names or ()).numbers
    name = "position" if "position" in group.arrays else next(iter(group.arrays))
    if name in QUANTITIES[1:]:
        return group
    degrees = np.zeros(group.shape[2])  # 360 for dofs that may be in degrees
    degrees[dofs] = 0.0 if group.unit(name) else 360.0
    array = group.arrays[name]

    def read_rows(start: int, stop: int) -> Floats:
        values = np.array(array.read_rows(start, stop), np.float64)
        if degrees.any() and turn_jumps(values, degrees).size:
            raise InputError(
                "angles that jump by 360, without a unit",
                where=array.where,
                expected="rad, or a unit",
                hint="--units deg",
            )
        for trajectory in values:
            for dof in dofs:
                # numpy.unwrap would spread NaN to all rows behind it
                finite = np.isfinite(trajectory[:, dof])
                trajectory[finite, dof] = np.unwrap(trajectory[finite, dof])
        return values

    unwrapped = replace(array, dtype=np.dtype("f8"), reader=read_rows)
    return replace(group, arrays={**group.arrays, name: unwrapped})
