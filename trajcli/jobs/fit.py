"""Fits B-spline control points to recordings, from file to file."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from trajcli.errors import InputError, UsageError, raise_if_any
from trajcli.files.atomic_output import refuse_input
from trajcli.files.file_bytes import Progress
from trajcli.files.opening import Files
from trajcli.files.outputs import Description, Output, Variable, describe_output
from trajcli.files.quantities import QUANTITIES, unit_of
from trajcli.files.states import state_from_option
from trajcli.files.trajectories import Trajectories
from trajcli.files.writing import refuse_output, write
from trajcli.fitting import Fitted, fewest_intervals, fit, require_intervals
from trajcli.jobs.request import SourceRequest
from trajcli.jobs.resolve import units_report
from trajcli.jobs.rows import Numbers, blocks_of, finite_rows, read_trajectories, row_times
from trajcli.trajectory import State

# The word of --start and --goal that stands for a recorded position, and its row.
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


def run_fit(
    request: FitRequest, on_progress: Progress = lambda done, total: None
) -> dict[str, Any]:
    """Reads, fits and writes trajectories; returns a report of plain values.

    Raises TrajcliError with every fault that was found. OUT is then what it was before.
    """
    refuse_output(request.out, request.overwrite)
    if (request.knots is None) == (request.error is None) or request.steps < 0:
        raise UsageError(
            "which fit is not said",
            where="fit",
            expected="--knots N or --error E, and --steps > 0",
            found=f"{request.knots} and {request.error}, steps {request.steps}",
        )
    with Files(request, on_progress=on_progress) as files:
        least = 8 if request.knots is None else request.knots - request.degree + 6
        trajectories = read_trajectories(request, files, actions=False, least=least)
        arrays, lengths = trajectories.arrays, trajectories.lengths
        name = "position" if "position" in arrays else arrays[0]
        if name in QUANTITIES[1:]:
            raise InputError(
                "not positions",
                where=trajectories.source,
                expected="recorded positions",
                found=name,
            )
        refuse_input(request.out, files.paths())
        files.sources.add(files.paths())
        held = _held_states(request, files, trajectories)

        def fits(intervals: int) -> Iterator[tuple[int, Fitted]]:
            for begin, places, block in blocks_of(trajectories, np.arange(len(lengths))):
                times, positions = row_times(block)[0], finite_rows(block, name)
                start, goal = (state(places, positions) for state in held)
                yield begin, fit(positions, times=times, knots=intervals,
                                 degree=request.degree, start=start, goal=goal)  # fmt: skip

        intervals, least = request.knots, int(lengths.min())
        if intervals is None:
            worst = lambda n: max(float(one.error.max()) for _, one in fits(n))  # noqa: E731
            intervals = fewest_intervals(worst, request.error, request.degree, least)
        require_intervals(intervals, request.degree, least)
        typical = (float(np.median(lengths)) - 1.0) / intervals
        steps = request.steps or max(1, round(typical))
        description = _describe(request, trajectories, name, intervals, steps)
        error = np.empty(len(lengths))

        def blocks(output: Output) -> Iterator[int]:
            for begin, fitted in fits(intervals):
                values = {"actions": fitted.actions, "dt": fitted.knot[:, None] / steps}
                for role, state in (("start", fitted.start), ("goal", fitted.goal)):
                    values |= {f"{role}/{part}": rows for part, rows in state.parts().items()}
                error[begin : begin + len(fitted.error)] = fitted.error
                yield output.append(values)

        remarks = write(
            request.out, description, blocks, overwrite=request.overwrite, sources=files.sources
        )
    return {
        "out": str(request.out), "source": trajectories.source, "array": name,
        "dt_source": trajectories.time_source, "units": units_report(trajectories.first),
        "trajectories": len(error), "degree": request.degree,
        "intervals": intervals, "steps": steps, "notes": [*files.notes, *remarks],
        "error": {"median": float(np.median(error)), "most": float(error.max())},
        "errors": error.tolist(), "bytes_written": description.nbytes,
    }  # fmt: skip


def _held_states(request: FitRequest, files: Files, trajectories: Trajectories) -> list[Any]:
    """Returns a function for start and goal: of a block's places and positions, the state that the
    fit is held to, or None."""
    makers = []
    for role, (word, row) in _ENDS.items():
        text = getattr(request, role)
        state = None
        if text not in (None, word, "rest"):
            state = state_from_option(files, role, text, trajectories.first)
            raise_if_any(state.faults(role, len(trajectories)))

        def held(
            places: Numbers, positions: Any, text: Any = text, row: int = row, state: Any = state
        ) -> State | None:
            if text is None:
                return None
            if state is not None:
                return State(**state.rows(places))
            still = np.zeros((1, trajectories.first.shape[2])) if text == "rest" else None
            return State(positions[:, row], still, still, still)

        makers.append(held)
    return makers


def _describe(
    request: FitRequest,
    trajectories: Trajectories,
    name: str,
    intervals: int,
    steps: int,
) -> Description:
    """Describes what ``integrate --mode bspline --ends goal`` reads: control points, dt and both
    states."""
    count, points = len(trajectories), intervals - request.degree - 1
    kind, unit = np.dtype("f8"), trajectories.first.unit(name) or ""
    labels = {"long_name": "control points", **({"units": unit} if unit else {})}
    spacing = {"long_name": "knot spacing / steps", "units": "s"}
    variables = [
        Variable("actions", ("trajectory", "point", "dof"), kind, labels),
        Variable("dt", ("trajectory", "each"), kind, spacing),
    ]
    for role in _ENDS:
        for part in QUANTITIES:
            labels = {"units": unit_of(part, unit)} if unit else {}
            variables.append(Variable(f"{role}/{part}", ("trajectory", "dof"), kind, labels))
    stated = {"mode": "bspline", "degree": request.degree, "steps": steps, "ends": "goal",
              "source": trajectories.source, "source_dt": trajectories.time_source}  # fmt: skip
    return describe_output(
        {points: range(count)},
        {"point": points, "dof": trajectories.first.shape[2], "each": 1},
        variables,
        request.attributes(stated),
        joint_names=trajectories.first.joint_names,
    )
