"""What the files of a request give: start, goal, steps and indices beside the actions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from trajcli.errors import Fault, Gathering, InputError, UsageError
from trajcli.files.schema import RECORDED_START
from trajcli.inputs import Inputs
from trajcli.jobs.batch import Batch
from trajcli.jobs.lookup import EAGER_BYTES, find_dt, find_state
from trajcli.jobs.places import Files, Place
from trajcli.jobs.recorded import is_recording
from trajcli.jobs.request import Request
from trajcli.modes import Mode


@dataclass(frozen=True)
class Found:
    """What the files gave: everything of a job but its mode."""

    batch: Batch
    start: dict[str, Any]
    goal: dict[str, Any]
    dt: Any
    times: Any
    start_index: Any
    goal_index: Any
    recorded: bool
    names: dict[str, str]
    dt_source: str
    start_source: str
    goal_source: str
    notes: Sequence[str]

    def inputs(self, mode: Mode) -> Inputs:
        """The same with a mode, ready to be checked."""
        return Inputs(
            mode=mode,
            actions=self.batch,
            start=self.start,
            goal=self.goal,
            dt=self.dt,
            times=self.times,
            start_index=self.start_index,
            goal_index=self.goal_index,
            recorded=self.recorded,
            names=self.names,
            row_numbers=self.batch.kept,
        )


def find(request: Request, files: Files, places: Sequence[Place], check: Gathering) -> Found:
    """Look up everything beside the actions; what is not found or not right is collected."""
    recorded = is_recording(request)
    batch = check.attempt(lambda: Batch.of([place.array for place in places]))
    start = check.attempt(lambda: _start(request, files, places, recorded))
    goal = check.attempt(lambda: _goal(request, files, places))
    steps = check.attempt(lambda: find_dt(files, request.dt, request.rate, request.times, places))
    index = check.attempt(lambda: _indices(request, files, places))
    if batch is None or start is None or goal is None or steps is None or index is None:
        raise InputError(*check.faults)
    dt, times, dt_source, dt_names = steps
    if dt is None and times is None:
        raise InputError(*check.faults, _no_step(places[0]))
    notes: list[str] = []
    if request.repeated_times == "drop" and times is not None:
        batch, times, note = _without_repeats(batch, times, recorded)
        notes += [note] if note else []
    indices, index_names = index
    return Found(
        batch=batch,
        start=start[0],
        goal=goal[0],
        dt=dt,
        times=times,
        start_index=indices.get("start_index"),
        goal_index=indices.get("goal_index"),
        recorded=recorded,
        names={
            "actions": batch.name,
            **start[1],
            **goal[1],
            **dt_names,
            **index_names,
        },
        dt_source=dt_source,
        start_source=start[2],
        goal_source=goal[2],
        notes=notes,
    )


def _no_step(place: Place) -> Fault:
    """The fault of steps that nothing says."""
    layout = place.layout
    return Fault(
        "no time step",
        "dt",
        "a step in seconds, a rate, or time stamps",
        "none given, and none in the input" + (f" (layout {layout.name})" if layout else ""),
        (layout.dt_hint if layout else "") or "--dt SECONDS, --rate HZ or --times FILE:DATASET",
    )


_State = tuple[dict[str, Any], dict[str, str], str]
"""The parts, the names of the parts for messages, and where they came from."""


def _start(request: Request, files: Files, places: Sequence[Place], recorded: bool) -> _State:
    if not recorded:
        return find_state(files, "start", request.start, request.start_parts, places)
    if request.start_parts:
        given = ", ".join(f"--start-{part}" for part in request.start_parts)
        what = "a recording has no separate start state"
        raise UsageError(Fault(what, given, "none with --start first"))
    return {}, {}, RECORDED_START


def _goal(request: Request, files: Files, places: Sequence[Place]) -> _State:
    if not _wants_goal(request):
        return {}, {}, ""
    return find_state(files, "goal", request.goal, request.goal_parts, places)


def _wants_goal(request: Request) -> bool:
    """A goal stored with the actions is used where the mode asks for one."""
    given = request.goal is not None or request.goal_parts
    return bool(given) or request.options.get("ends") == "goal"


def _indices(
    request: Request, files: Files, places: Sequence[Place]
) -> tuple[dict[str, Any], dict[str, str]]:
    """Start and goal index and their names, from the options or from beside the actions."""
    found: dict[str, Any] = {}
    names: dict[str, str] = {}
    recorded = request.options.get("ends") == "recording"
    own_start = request.start or request.start_parts or recorded
    for role, given, used in (
        ("start_index", request.start_index, not own_start),
        (
            "goal_index",
            request.goal_index,
            _wants_goal(request) and not (request.goal or request.goal_parts),
        ),
    ):
        stored = files.array(given) if given is not None else None
        if stored is None and used:  # an index belongs to the states stored beside it
            beside = [place.find(role) for place in places]
            if len(places) > 1 and any(index is not None for index in beside):
                hint = "run them one at a time"
                raise InputError(
                    Fault(f"several inputs, of which some have a {role}", places[0].name, hint=hint)
                )
            stored = beside[0]
        if stored is not None:
            names[role] = stored.where
            found[role] = stored if stored.nbytes > EAGER_BYTES else stored.read()
    return found, names


def _without_repeats(batch: Batch, times: Any, recorded: bool) -> tuple[Batch, Any, str]:
    """Leave out rows whose stamp equals the one before; one set of stamps for all trajectories."""
    if not recorded:
        hint = "--start first reads the actions as a recording"
        what = "repeated stamps can be dropped from recordings only"
        raise UsageError(Fault(what, "--repeated-times drop", hint=hint))
    if times.ndim == 2 and times.shape[0] > 1:
        raise InputError(
            Fault(
                "trajectories would differ in length",
                "--repeated-times drop",
                "one set of time stamps [T] for all trajectories",
                f"stamps {list(times.shape)}",
                "run the trajectories one at a time",
            )
        )
    if times.shape[-1] != batch.shape[1]:
        return batch, times, ""  # reported as a wrong number of stamps
    stamps = times.reshape(-1)
    kept = np.flatnonzero(np.concatenate([[True], stamps[1:] != stamps[:-1]]))
    dropped = len(stamps) - len(kept)
    if not dropped:
        return batch, stamps, ""
    rows = "row" if dropped == 1 else "rows"
    note = f"{dropped} {rows} with repeated stamps dropped"
    return replace(batch, kept=kept), stamps[kept], note
