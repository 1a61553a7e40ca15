"""Fits B-spline control points to recordings, from file to file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from trajcli.curves.fitting import Fitted, fewest_intervals, fit, require_intervals
from trajcli.errors import InputError, Report, UsageError, raise_if_any
from trajcli.files.opening import Files
from trajcli.files.quantities import QUANTITIES
from trajcli.files.recording import States
from trajcli.files.repair import TurnJumps
from trajcli.files.state_sources import state_from_option
from trajcli.files.writing import refuse_output
from trajcli.jobs._rows import (
    describe_control_points,
    find_computable,
    read_finite_rows,
    read_row_times,
    read_trajectories,
    write_trajectories,
)
from trajcli.jobs.job import Block, Results, make_blocks
from trajcli.jobs.request import SourceRequest
from trajcli.trajectory import State

# The word of --start and --goal for a recorded position, and its row.
_ENDS = {"start": ("first", 0), "goal": ("last", -1)}


@dataclass(frozen=True)
class FitRequest(SourceRequest):
    """The options of fit, as typed; steps 0: as many as the median of rows between knots."""

    knots: int | None = None
    error: float | None = None
    degree: int = 3
    steps: int = 0
    start: str | None = None
    goal: str | None = None


def run_fit(request: FitRequest, report: Report | None = None) -> dict[str, Any]:
    """Reads, fits and writes trajectories; returns the result as plain values."""
    refuse_output(request.out, request.overwrite)
    if (request.knots is None) == (request.error is None) or request.steps < 0:
        found = f"{request.knots} and {request.error}, steps {request.steps}"
        expected = "--knots N or --error E, and --steps > 0"
        raise UsageError("which fit is not said", where="fit", expected=expected, found=found)
    with Files(request, report=report) as files:
        # with fewer rows, there are more control points than rows; see require_intervals
        least = 8 if request.knots is None else request.knots - request.degree + 6
        recording = read_trajectories(request, files, actions=False, least=least)
        name = "position" if "position" in recording.arrays else next(iter(recording.arrays))
        if name in QUANTITIES[1:]:
            where, expected = recording.source, "recorded positions"
            raise InputError("not positions", where=where, expected=expected, found=name)
        recording, states = recording.select_arrays([name]), dict[str, States]()
        for role, (word, _) in _ENDS.items():
            if (text := getattr(request, role)) not in (None, word, "rest"):
                words = f"{word}, rest, "
                states[role] = state_from_option(files, role, text, recording, words)
                raise_if_any(states[role].faults(role, len(recording)))
        indices, left_out = find_computable(request, recording)
        # a fitted curve goes the long way where a recorded angle jumps by a turn
        jumps = TurnJumps(recording, acting=True)
        recording, lengths = recording.take(indices), recording.lengths[indices]
        dofs, shortest = recording.shape[2], int(lengths.min())

        def fit_block(block: Block, intervals: int) -> Fitted:
            positions = read_finite_rows(block.recording, name)
            ends: dict[str, State | None] = {}  # None where the end is fitted, too
            for role, (_, row) in _ENDS.items():
                ends[role] = None
                if role in states:
                    ends[role] = State(**states[role].load(indices[block.indices]))
                elif (text := getattr(request, role)) is not None:
                    # at rest, velocity, acceleration and jerk are 0
                    rest = np.zeros((1, dofs)) if text == "rest" else None
                    ends[role] = State(positions[:, row], rest, rest, rest)
            return fit(positions, times=read_row_times(block.recording)[0], knots=intervals,
                       degree=request.degree, start=ends["start"], goal=ends["goal"])  # fmt: skip

        def largest_error(intervals: int) -> float:
            blocks = make_blocks(recording, lengths)
            return max(float(fit_block(block, intervals).error.max()) for block in blocks)

        # One number of intervals for all trajectories gives one shape of control points: the
        # fewest with which the worst trajectory is near enough.
        intervals = request.knots
        if intervals is None:
            intervals = fewest_intervals(largest_error, request.error, request.degree, shortest)
        require_intervals(intervals, request.degree, shortest)
        # rows of the curve are as far apart as rows of a recording of median length
        typical = (float(np.median(lengths)) - 1.0) / intervals
        steps, error = request.steps or max(1, round(typical)), np.empty(len(lengths))

        def compute(block: Block) -> Results:
            curves = fit_block(block, intervals)
            jumps.add_block({name: block.recording.arrays[name].read()}, block.recording)
            error[block.indices] = curves.error
            values = {"actions": curves.actions, "dt": curves.knot[:, None] / steps}
            for role, state in (("start", curves.start), ("goal", curves.goal)):
                values |= {f"{role}/{part}": rows for part, rows in state.parts().items()}
            yield 0, values

        counts = np.full(len(lengths), intervals - request.degree - 1)
        variables = [*describe_control_points(recording.unit(name), [*_ENDS])]
        stated = {"mode": "bspline", "degree": request.degree, "steps": steps, "ends": "goal"}
        sizes = {"point": int(counts[0]), "each": 1}
        result = write_trajectories(
            request, files, recording, counts, variables, compute, stated, left_out, sizes
        )
        files.report.add_notes(*jumps.notes(""))
    return {
        **result, "array": name, "degree": request.degree, "intervals": intervals, "steps": steps,
        "error": {"median": float(np.median(error)), "most": float(error.max())},
        "errors": error.tolist(),
    }  # fmt: skip
