"""Recordings before they are differenced: cut at gaps, angles made continuous."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from trajcli.checks import describe, time_stamp_faults
from trajcli.errors import Fault, Gathering, InputError, UsageError, raise_if_any
from trajcli.files.arrays import StoredArray
from trajcli.files.layouts import Member
from trajcli.jobs.places import Files, Place
from trajcli.jobs.request import Request
from trajcli.modes import PARTS, Mode, make_mode
from trajcli.modes.cascade import Cascade
from trajcli.modes.central import Central
from trajcli.recordings import pieces, unwrap

_LEAST_ROWS = 5
"""Central differences take five rows; a shorter piece has none."""


def is_recording(request: Request) -> bool:
    """Whether the actions have no start state of their own."""
    return request.start == "first" or (
        request.options.get("ends") == "recording" and not request.start
    )


def prepared(
    request: Request, files: Files, places: Sequence[Place]
) -> tuple[Request, list[Place], list[str]]:
    """Places as they are to be read, the request that is left, and what there is to say of it."""
    mode = make_mode(request.mode, **request.options)
    check = Gathering()
    check.attempt(lambda: _require_fitting(request, mode))
    check.attempt(lambda: _require_dofs(request, places))
    check.raise_if_any()
    found = list(places)
    notes: list[str] = []
    if request.max_gap is not None:
        least = _LEAST_ROWS if isinstance(mode, Central) else 1
        found, notes = _split(request, files, places, least)
        request = replace(request, times=None, repeated_times="error")
    if request.wrap_dofs:
        found = [p._replace(array=_unwrapped(p.array, request.wrap_dofs)) for p in found]
    return request, found, notes


def _require_fitting(request: Request, mode: Mode) -> None:
    faults = []
    for option, given in (("--max-gap", request.max_gap), ("--wrap-dofs", request.wrap_dofs)):
        if given is not None and given != () and not is_recording(request):
            hint = "--start first reads the actions as a recording"
            faults.append(Fault("for recorded positions only", option, hint=hint))
    if request.max_gap is not None and not (math.isfinite(request.max_gap) and request.max_gap > 0):
        found = str(request.max_gap)
        faults.append(Fault("not a gap", "--max-gap", "seconds > 0", found))
    differenced = PARTS[mode.derivatives_of + 1 :] if isinstance(mode, (Cascade, Central)) else ()
    unknown = [name for name in request.smooth if name not in differenced]
    if unknown:
        expected = ", ".join(differenced) or f"nothing: mode {mode.name} differences nothing"
        what = "only what is differenced can be smoothed"
        faults.append(Fault(what, "--smooth", expected, ", ".join(unknown)))
    if faults:
        raise UsageError(*faults)


def _require_dofs(request: Request, places: Sequence[Place]) -> None:
    count = min(place.array.shape[-1] if place.array.ndim else 0 for place in places)
    bad = [d for d in request.wrap_dofs if not 0 <= d < count]
    if bad:
        found = ", ".join(map(str, bad))
        raise UsageError(Fault("no such dof", "--wrap-dofs", f"0 to {count - 1}", found))


def _split(
    request: Request, files: Files, places: Sequence[Place], least: int
) -> tuple[list[Place], list[str]]:
    """The pieces between gaps, each a place of its own."""
    assert request.max_gap is not None
    found: list[Place] = []
    left_out = dropped = 0
    for place in places:
        stamps, named = _stamps(request, files, place)
        kept = np.arange(len(stamps))
        if request.repeated_times == "drop":
            kept = np.flatnonzero(np.concatenate([[True], stamps[1:] != stamps[:-1]]))
            dropped += len(stamps) - len(kept)
        raise_if_any(time_stamp_faults(stamps[kept], place.name, 0, kept))
        whole = list(pieces(stamps[kept], request.max_gap))
        fitting = [(a, b) for a, b in whole if b - a >= least]
        left_out += len(whole) - len(fitting)
        name = place.member.name if place.member is not None else _own_name(place)
        for k, (begin, end) in enumerate(fitting):
            rows = kept[begin:end]
            member = Member(f"{name}/piece_{k}" if len(fitting) > 1 else name)
            array = _chosen(place.array, rows)
            own = {"array": array, "member": member, "times": stamps[rows], "times_name": named}
            found.append(place._replace(**own))
    if not found:
        what = f"no piece of {least} rows between gaps"
        raise InputError(Fault(what, places[0].name, hint="a larger --max-gap"))
    notes = []
    if len(found) > len(places):
        notes.append(f"split at gaps of more than {request.max_gap:g} s: {len(found)} pieces")
    if left_out:
        notes.append(f"{left_out} pieces of fewer than {least} rows left out")
    if dropped:
        notes.append(f"{dropped} {'row' if dropped == 1 else 'rows'} with repeated stamps dropped")
    return found, notes


def _own_name(place: Place) -> str:
    return place.groups[0].rstrip("/") or Path(place.file.path).stem


def _stamps(request: Request, files: Files, place: Place) -> tuple[Any, str]:
    """The time stamps of a recording's rows, and what they are called."""
    shape = place.array.shape
    if len(shape) == 3 and shape[0] != 1:
        what = "several recordings in one array"
        hint = "gaps are looked for in one recording: [T, D]"
        raise InputError(Fault(what, place.name, "[T, D]", describe(shape), hint))
    stored = files.array(request.times) if request.times else place.find("times", "time")
    if stored is None:
        hint = "--times FILE:DATASET"
        raise InputError(Fault("no time stamps to find gaps in", place.name, hint=hint))
    stamps = stored.read().reshape(-1)
    if len(stamps) != shape[-2]:
        expected, found = f"[{shape[-2]}], one per row", describe(stored.shape)
        raise InputError(Fault("wrong number of time stamps", stored.where, expected, found))
    return stamps, stored.where


def _chosen(array: StoredArray, rows: Any) -> StoredArray:
    """Some rows of a recording [T, D], or [1, T, D]."""
    alone = array.ndim == 3

    def read_rows(begin: int, end: int) -> Any:
        some = rows[begin:end]
        first, last = (int(some[0]), int(some[-1]) + 1) if len(some) else (0, 0)
        block = array.read_part(0, 1, first, last)[0] if alone else array.read_rows(first, last)
        return block if last - first == len(some) else block[some - first]

    return StoredArray(
        f"{array.where} (rows {int(rows[0])} to {int(rows[-1])})",
        (len(rows), array.shape[-1]),
        array.dtype,
        read_rows,
        array.attributes,
        "part of an array",
    )


def _unwrapped(array: StoredArray, dofs: Sequence[int]) -> StoredArray:
    """The same in float64, with some dofs made continuous along each trajectory."""

    def read_rows(begin: int, end: int) -> Any:
        if array.ndim == 2:
            return unwrap(array.read_rows(0, end), dofs)[begin:]
        rows = array.read_rows(begin, end)
        return unwrap(rows, dofs) if len(rows) else rows

    return replace(
        array,
        dtype=np.dtype(np.float64),
        read_rows=read_rows,
        read_steps=None,
        storage="unwrapped",
    )
