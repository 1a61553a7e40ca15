"""Recordings made fit to use: repeated stamps dropped, split at gaps, angles made continuous."""

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
from trajcli.files.quantities import QUANTITIES, named_rate
from trajcli.files.reading import Repair, parse_selection
from trajcli.files.recording import Recording
from trajcli.files.source import Place
from trajcli.modes import MODES
from trajcli.padding import split_at_gaps
from trajcli.rotations.quaternions import unit
from trajcli.units import parse_unit

_TURN = 2.0 * math.pi
_TURNS = {"rad": _TURN, "deg": 360.0, "": math.nan}
# Values that are looked through at once; they fit in the caches.
_LOOKED_THROUGH = 1 << 17
# No shorter step is a turn and what its neighbours explain.
_LEAST_JUMP = 0.7 * _TURN


def repair_recordings(
    recordings: Sequence[Recording], repair: Repair, least: int, report: Report,
    episodes: str | None = None,
) -> list[Recording]:  # fmt: skip
    """Repairs recordings; returns recordings that read the same files.

    least: rows that a segment between gaps needs; shorter ones are left out. episodes: which of the
    result are used, of which the report tells. Raises InputError if no segment is long enough, or
    stamps do not increase.
    """
    repair.refuse_gap()
    counts: Counter[str] = Counter()
    result = list(recordings)
    if repair.max_gap is not None or repair.repeated_times == "drop":
        least = 1 if repair.max_gap is None else least
        result = [part for whole in result for part in _split_at_gaps(whole, repair, least, counts)]
    if repair.wrap_dofs is not None:
        result = [_unwrapped(recording, repair.wrap_dofs) for recording in result]
    if repair.trim:
        result = [*_trimmed(result, repair.still, report, episodes)]
    report.add_notes(*_notes(counts, repair.max_gap, least))
    return result


def _split_at_gaps(
    recording: Recording, repair: Repair, least: int, counts: Counter[str]
) -> Iterator[Recording]:
    """Yields the segments of the trajectories of a group; equally spaced ones stay whole."""
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
    # trajectories of one length that share their stamps share the rows between gaps
    if len(stamps) == 1 and not recording.file.members:  # whose segments follow each other
        sharing = [np.flatnonzero(lengths == rows) for rows in dict.fromkeys(lengths.tolist())]
    else:
        sharing = [np.array([k]) for k in range(batch)]
    for members in sharing:
        first = int(members[0])
        line = stamps[first if len(stamps) > 1 else 0, : lengths[first]]
        runs = _runs_between_gaps(line, clock.where, repair, counts)
        pieces = [rows for rows in runs if len(rows) >= least]
        counts["segments"] += len(pieces)
        for number, rows in enumerate(pieces):
            suffix = f"/segment_{number}" if len(pieces) > 1 else ""
            yield recording.segment(members, rows, suffix)


def _trimmed(
    recordings: Sequence[Recording], still: float | None, report: Report, episodes: str | None
) -> Iterator[Recording]:
    """Yields recordings without standstill at both ends; the rows of each trajectory that are kept,
    of those that ``episodes`` takes, go to the report, by its name."""
    from trajcli.scores import moving_rows

    taken = set(parse_selection(episodes, sum(map(len, recordings))))
    left_out, never, number = list[float](), 0, 0
    for recording in recordings:
        name, spans, idle = _name_of_positions(recording), list[Any](), list[float]()
        what = "velocity" if "velocity" in recording.arrays else recording.rate_name or "position"
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
            still_rows = rows[:, 1] == 0
            rows[still_rows] = 0, block.rows
            ends = times[np.arange(len(rows))[:, None], rows - [0, 1]]
            seconds = times[:, -1] - times[:, 0] - ends[:, 1] + ends[:, 0]
            idle += np.where(still_rows, np.nan, seconds).tolist()
            spans.append(rows)
        whole = range(recording.rows) if recording.row_numbers is None else recording.row_numbers
        for k, (begin, stop) in enumerate(np.concatenate(spans).tolist() if spans else ()):
            if number + k not in taken:
                continue
            never += math.isnan(idle[k])
            left_out.append(idle[k])
            alone = f"/trajectory_{recording.group_indices[k]}" if recording.count > 1 else ""
            report.keep_ranges.append({
                "trajectory": recording.name + alone, "source": str(recording.locate(k)[0]),
                "rows": [int(whole[begin]), int(whole[stop - 1]) + 1],
            })  # fmt: skip
        number += len(recording)
        yield from recording.cut(np.concatenate(spans)) if spans else [recording]
    idle = [seconds for seconds in left_out if seconds > 0]
    text = f"idle ends left out: {len(idle)} of {len(left_out)} trajectories"
    text += f", {np.median(idle):.3g} s in the median" if idle else ""
    report.add_notes(Note(text + (f"; {never} left whole, without known motion" if never else "")))


def _runs_between_gaps(
    stamps: Any, where: Place, repair: Repair, counts: Counter[str]
) -> Sequence[Any]:
    """Returns the rows between gaps; raises InputError for stamps that do not increase."""
    rows = np.arange(len(stamps))
    if repair.repeated_times == "drop":
        rows = np.flatnonzero(np.concatenate([[True], stamps[1:] != stamps[:-1]]))
        counts["dropped"] += len(stamps) - len(rows)
    raise_if_any(time_stamp_faults(stamps[rows], where, 0, rows))
    pieces = [rows[x] for x in split_at_gaps(stamps[rows], repair.max_gap or math.inf)]
    counts["gaps"] += len(pieces) - 1
    counts["pieces"] += len(pieces)
    return pieces


def _notes(counts: Counter[str], gap: float | None, least: int) -> Iterator[str]:
    short = counts["pieces"] - counts["segments"]
    if short and not counts["segments"]:
        raise InputError(
            f"no segment of {least} rows between gaps", where="--max-gap", hint="a larger --max-gap"
        )
    if counts["gaps"]:
        yield Note(f"split at gaps of more than {gap:g} s: {counts['pieces']} segments")
    if counts["longer"]:
        yield f"--max-gap {gap:g} is less than the equal steps of the rows, which are not split"
    if short:
        yield Note(f"segments of fewer than {least} rows left out: {short}")
    if counts["dropped"]:
        rows = "row" if counts["dropped"] == 1 else "rows"
        yield Note(f"{counts['dropped']} {rows} with repeated stamps dropped")


class TurnJumps:
    """Finds rows at which angles jump by a turn, as logged ones do that wrap.

    ``jumps``: the trajectory, row, dof, turn and time (NaN where unknown) of each jump [n, 5].
    """

    def __init__(self, group: Recording, acting: bool = False) -> None:
        """acting: the actions of the group are positions, by the mode that integrates them."""
        self.name, self.jumps, self._group = _name_of_positions(group), np.empty((0, 5)), group
        # of each dof 2π or 360 by its unit; NaN: one of them; 0: no angle
        self._turns = np.zeros(group.shape[2])
        layout, mode = group.layout, group.stated_mode.name
        goals = layout is not None and layout.family.commands_positions
        goals = not MODES[mode].action_order if mode else goals
        if named_rate(self.name) or (self.name == "actions" and not (acting or goals)):
            return
        units = [parse_unit(unit) or unit for unit in (group.unit(self.name) or "").split(",")]
        turns = np.resize([_TURNS.get(str(unit), 0.0) for unit in units], len(self._turns))
        if group.rotation_fault is None:  # else of quaternions of unknown order
            self._turns[group.free_dofs] = turns[group.free_dofs]

    def add(self, values: Mapping[str, Any], block: Recording) -> None:
        """Looks through a block with arrays [b, T, D] by name."""
        if not self._turns.any() or self.name not in values:
            return
        if (found := turn_jumps(values[self.name], self._turns)).size:
            times, (batch, rows, *_) = block.known_times(), found.T.astype(int)
            at = np.full(len(found), np.nan) if times is None else times[batch, rows]
            found[:, 0], found[:, 1] = block.numbers[batch], rows + block.first_row
            self.jumps = np.concatenate([self.jumps, np.c_[found, at]])

    def notes(self, command: str = "trajcli export ") -> list[str]:
        """Returns a warning of the jumps; ``command`` undoes them, "" is the one that runs."""
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


def turn_jumps(values: Any, turns: Any) -> Any:
    """Returns the trajectory, row, dof and turn [n, 4] of steps of values [b, T, D] by a turn.

    Without the turn, such a step is at most twice as long as its neighbours or the mean, up to
    rounding. These are no longer than an eighth of a turn, and of the steps beyond half a turn at
    least a quarter are such: else the motion is fast. turns [D]: of :class:`TurnJumps`.
    """
    (batch, rows, dofs), found = values.shape, [np.empty((0, 4))]
    length = max(2, _LOOKED_THROUGH // max(dofs, 1))
    many = max(1, length // max(rows, 1))
    for b, r in itertools.product(range(0, batch, many), range(0, rows - 1, length)):
        part = np.ascontiguousarray(values[b : b + many, r : r + length + 1])
        part = part if part.dtype in (np.float32, np.float64) else part.astype(np.float64)
        with np.errstate(invalid="ignore", over="ignore"):
            # some from one trajectory to the next
            steps = part.reshape(-1)[dofs:] - part.reshape(-1)[:-dofs]
            if steps.max() < _LEAST_JUMP and steps.min() > -_LEAST_JUMP:
                continue
            far = _slow_beside(np.abs(steps), part.shape[1], dofs)
            if not far.size:
                continue
            columns = {*(far // part[0].size * dofs + far % dofs).tolist()}
            k, dof = np.divmod(sorted(columns), dofs)
            which, row, turn = _explained(part[k, :, dof].astype(np.float64), turns[dof])
        found.append(np.stack([b + k[which], r + row, dof[which], turn], 1))
    return np.concatenate(found)


def _slow_beside(steps: Any, rows: int, dofs: int) -> Any:
    """Returns which steps, of so many rows of each trajectory, are long enough for a turn and have
    no neighbours that are too long to explain one. Few steps of a fast motion are left."""
    far = np.flatnonzero(steps > _LEAST_JUMP)
    turn = np.where(steps[far] < 180.0, _TURN, 360.0)
    for k in (-2, -1, 1, 2):
        row = far // dofs % rows + k
        beside = steps[np.clip(far + k * dofs, 0, len(steps) - 1)]
        fast = (beside > 0.13 * turn) & (beside < 0.49 * turn) & (row >= 0) & (row < rows - 1)
        far, turn = far[~fast], turn[~fast]
    return far


def _explained(values: Any, turns: Any) -> tuple[Any, Any, Any]:
    """Returns the number, row and turn of each of the :func:`turn_jumps` of columns [n, T]."""
    steps = np.abs(np.diff(values))
    span = (np.fmax.reduce(values, 1) - np.fmin.reduce(values, 1))[:, None]
    # an angle reaches over two turns at most: what reaches over more is in degrees
    either = np.where(span > 2.1 * _TURN, 360.0, _TURN)
    turn = np.where(np.isnan(turns[:, None]), either, turns[:, None])
    long = (steps > 0.5 * turn) & (span <= 2.1 * turn)
    which = np.flatnonzero(long.any(1))
    steps, turn, long = steps[which], turn[which], long[which]
    left = np.nan_to_num(np.where(long, np.abs(steps - turn), steps))
    around = np.pad(left, ((0, 0), (2, 2)))
    near = np.max([around[:, k : k + left.shape[1]] for k in (0, 1, 3, 4)], 0)
    usual = np.where(long, 0.0, left)  # a lone step does not explain itself
    moving = np.maximum((usual > 0.0).sum(1, keepdims=True), 1)
    near = np.maximum(near, usual.sum(1, keepdims=True) / moving)
    jumps = long & (left <= 2.0 * near + 0.005 * turn) & (near <= 0.125 * turn)
    jumps &= 4 * jumps.sum(1, keepdims=True) >= long.sum(1, keepdims=True)
    k, rows = np.nonzero(jumps)
    return which[k], rows + 1, turn[k, 0]


def _unwrapped(group: Recording, which: str) -> Recording:
    """Returns the group with wrapped angles in rad made continuous, as numpy.unwrap does, in
    float64. A value that is not finite stays, and the rows behind it go on from the last turn."""
    dofs = parse_dofs(which, group.shape[2], "--wrap-dofs", group.joint_names or ()).numbers
    name = _name_of_positions(group)
    if name in QUANTITIES[1:]:
        return group
    degrees = np.zeros(group.shape[2])  # 360 for dofs that may be in degrees
    degrees[dofs] = 0.0 if group.unit(name) else 360.0
    array = group.arrays[name]

    def read_rows(start: int, stop: int) -> Any:
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
                # NaN would spread to all rows behind it
                finite = np.isfinite(trajectory[:, dof])
                trajectory[finite, dof] = np.unwrap(trajectory[finite, dof])
        return values

    unwrapped = replace(array, dtype=np.dtype("f8"), reader=read_rows)
    return replace(group, arrays={**group.arrays, name: unwrapped})


def _name_of_positions(group: Recording) -> str:
    return "position" if "position" in group.arrays else next(iter(group.arrays))
