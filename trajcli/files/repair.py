"""Recordings made fit to use: repeated stamps dropped, split at gaps, angles made continuous."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from trajcli.checks import describe, time_stamp_faults
from trajcli.errors import InputError, raise_if_any
from trajcli.files.arrays import Dataset, in_memory
from trajcli.files.dofs import parse_dofs
from trajcli.files.reading import Repair
from trajcli.files.schema import QUANTITIES
from trajcli.files.time import Time
from trajcli.files.trajectory_set import TrajectorySet


def repaired(
    recordings: Sequence[tuple[TrajectorySet, Time]], repair: Repair, least: int
) -> tuple[list[tuple[TrajectorySet, Time]], list[str]]:
    """Repair recordings, each with its times.

    Returns the sets that take their place, which read the same files, and notes on what was done.
    A segment between gaps needs ``least`` rows, else it is left out. Raises InputError where no
    segment has so many, or stamps do not increase.
    """
    repair.refuse_gap()
    counts: Counter[str] = Counter()
    sets = list(recordings)
    if repair.max_gap is not None or repair.repeated_times == "drop":
        least = 1 if repair.max_gap is None else least
        sets = [part for one, time in sets for part in _split(one, time, repair, least, counts)]
    if repair.wrap_dofs is not None:
        for one, _ in sets:
            _unwrap(one, repair.wrap_dofs)
    return sets, list(_notes(counts, repair.max_gap, least))


def _split(
    one: TrajectorySet, time: Time, repair: Repair, least: int, counts: Counter[str]
) -> Iterator[tuple[TrajectorySet, Time]]:
    """The segments of the recordings of a set; equally spaced recordings as they are."""
    if time.stamps is None:
        yield one, time
        return
    batch, length, _ = one.shape
    stamps = np.atleast_2d(in_memory(time.stamps))
    if stamps.shape[1] != length or len(stamps) not in (1, batch):
        raise InputError(
            "wrong number of time stamps",
            where=time.where,
            expected=f"[{length}], one per row",
            found=describe(time.stamps.shape),
        )
    lengths = np.full(batch, length) if one.lengths is None else one.lengths
    if len(stamps) == 1:
        groups = [np.flatnonzero(lengths == rows) for rows in dict.fromkeys(lengths.tolist())]
    else:
        groups = [np.array([k]) for k in range(batch)]
    for group in groups:
        line = stamps[group[0] if len(stamps) > 1 else 0, : lengths[group[0]]]
        pieces = [
            rows for rows in _between_gaps(line, time.where, repair, counts) if len(rows) >= least
        ]
        counts["segments"] += len(pieces)
        for number, rows in enumerate(pieces):
            kept = Time(
                time.source, time.where, stamps=line[rows][None], batch=len(group),
                count=len(rows), shape=(1, len(rows)), stamped=True, unit=time.unit,
                converted_from=time.converted_from,
            )  # fmt: skip
            yield one.part(group, rows, f"/segment_{number}" * (len(pieces) > 1)), kept


def _between_gaps(stamps: Any, where: str, repair: Repair, counts: Counter[str]) -> Sequence[Any]:
    """The numbers of the rows between gaps; raises InputError for stamps that do not increase."""
    rows = np.arange(len(stamps))
    if repair.repeated_times == "drop":
        rows = np.flatnonzero(np.concatenate([[True], stamps[1:] != stamps[:-1]]))
        counts["dropped"] += len(stamps) - len(rows)
    raise_if_any(time_stamp_faults(stamps[rows], where, 0, rows))
    gaps = np.diff(stamps[rows].astype(np.float64)) > (repair.max_gap or math.inf)
    counts["gaps"] += int(gaps.sum())
    pieces = np.split(rows, np.flatnonzero(gaps) + 1)
    counts["pieces"] += len(pieces)
    return pieces


def _notes(counts: Counter[str], gap: float | None, least: int) -> Iterator[str]:
    short = counts["pieces"] - counts["segments"]
    if short and not counts["segments"]:
        raise InputError(
            f"no segment of {least} rows between gaps", where="--max-gap", hint="a larger --max-gap"
        )
    if counts["gaps"]:
        yield f"split at gaps of more than {gap:g} s: {counts['pieces']} segments"
    if short:
        yield f"segments of fewer than {least} rows left out: {short}"
    if counts["dropped"]:
        rows = "row" if counts["dropped"] == 1 else "rows"
        yield f"{counts['dropped']} {rows} with repeated stamps dropped"


def _unwrap(one: TrajectorySet, which: str) -> None:
    """Make angles in rad that wrap continuous, as numpy.unwrap does, in the positions of a set."""
    dofs = parse_dofs(which, one.shape[2], "--wrap-dofs", one.joint_names or ()).numbers
    name = "position" if "position" in one.arrays else next(iter(one.arrays))
    if name not in QUANTITIES[1:]:
        one.arrays = {**one.arrays, name: _unwrapped(one.arrays[name], dofs)}


def _unwrapped(array: Dataset, dofs: Sequence[int]) -> Dataset:
    """[B, T, D] in float64. What is not finite stays where it is, and the rows behind it go on from
    the last turn."""

    def read_rows(start: int, stop: int) -> Any:
        values = np.array(array.read_rows(start, stop), np.float64)
        for trajectory in values:
            for dof in dofs:
                finite = np.isfinite(trajectory[:, dof])
                trajectory[finite, dof] = np.unwrap(trajectory[finite, dof])
        return values

    return replace(array, dtype=np.dtype("f8"), reader=read_rows)
