"""Retimes trajectories, from file to file: as fast as limits allow, or only slower."""

from __future__ import annotations

import shlex
from collections import Counter
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

from trajcli.curves.resampling import GIVEN
from trajcli.curves.retiming import (
    OF_ANY_PACE,
    Limit,
    Pace,
    at_pace,
    extremes,
    extremes_of_method,
    paced,
)
from trajcli.curves.sampling import is_known, missing_parts
from trajcli.errors import InputError, Note, Report
from trajcli.files.limits import read_limits
from trajcli.files.opening import Files
from trajcli.files.outputs import Variable, stamp_variables, time_variable
from trajcli.files.quantities import QUANTITIES, RECORDED_START
from trajcli.files.reading import Reading
from trajcli.files.recording import Recording
from trajcli.files.source import Place, parse_source
from trajcli.files.writing import refuse_output
from trajcli.jobs._rows import (
    array_variables,
    computable,
    finite_rows,
    read_trajectories,
    row_times,
    write_rows,
)
from trajcli.jobs.job import Arrays, Block, Results
from trajcli.jobs.request import SourceRequest
from trajcli.jobs.resample import curves_between
from trajcli.kernels.program import Floats, Integers


@dataclass(frozen=True)
class RetimeRequest(SourceRequest):
    """The options of retime, as typed."""

    limits: Path = Path()
    slower_only: bool = False


def run_retime(request: RetimeRequest, report: Report | None = None) -> dict[str, Any]:
    """Reads trajectories, scales their time and writes them; returns the result as plain values.

    Raises TrajcliError with every fault that was found. OUT is then what it was before.
    """
    refuse_output(request.out, request.overwrite)
    with Files(request, report=report) as files:
        recording = read_trajectories(request, files, actions=False)
        arrays = [name for name in recording.arrays if name in QUANTITIES]
        if not arrays:
            found, hint = ", ".join(recording.arrays), _way(request, recording)
            what, where, expected = "not a trajectory", recording.source, ", ".join(QUANTITIES)
            raise InputError(what, where=where, expected=expected, found=found, hint=hint)
        recording = recording.only(arrays)
        good, left_out = computable(request, recording)
        recording = recording.take(good)
        paces = Paces(recording, request, files)

        def compute(block: Block) -> Results:
            values = {name: finite_rows(block.recording, name) for name in arrays}
            times = row_times(block.recording)[0]
            reached = paces.between(values, times)
            pace = paced(values, paces.limits, request.slower_only, reached)
            times = times * pace.factor[:, None]  # t → s·t
            paces.add(block.places, values, pace, times)
            scaled = at_pace(values, pace.factor)
            yield 0, {"time": times, **scaled, "time_scale": pace.factor}

        stored = recording.file.attributes()
        stated: dict[str, Any] = {k: v for k, v in stored.items() if k in OF_ANY_PACE}
        if "absolute" in stated:
            stated["absolute"] = ",".join(map(str, paces.copied))
        # each trajectory has its own factor, and so its own steps
        stated |= {"dt": "varies", "limits": Place(str(request.limits))}
        if stored.get("start") == RECORDED_START:  # other starts are named as seen from their file
            stated["start"] = RECORDED_START
        stated["slower_only"] = int(request.slower_only)
        label = {"long_name": "time_scale"}
        variables = [
            *array_variables(recording),
            time_variable(shared=len(recording) == 1),
            Variable("time_scale", ("trajectory",), paces.factor.dtype, label),
            *stamp_variables(recording.start_stamps()),
        ]
        result = write_rows(
            request, files, recording, recording.lengths, variables, compute, stated, left_out
        )
        files.report.add(*paces.notes())
    return {**result, "limits": str(request.limits), **paces.result()}


def _way(request: RetimeRequest, recording: Recording) -> str:
    """Returns the command that makes a trajectory of arrays, whose positions stay as they are."""
    sources, layout, member = request.sources, recording.layout, recording.member
    if "actions" in recording.arrays and not recording.named and recording.file.names() != [""]:
        near = layout and member and layout.recorded(member)
        if not near:
            return "trajcli integrate takes actions, differentiate --method central positions"
        sources = [f"{parse_source(text).path}:{near[0]}" for text in sources]
    read = {x.name.replace("_", "-"): getattr(request, x.name) for x in fields(Reading)}
    words = [w for k, x in read.items() if x for w in (f"--{k}", str(x))[: 1 + (x is not True)]]
    words += ["--overwrite"] * request.overwrite
    out = str(request.out.with_name(f"{request.out.stem}_central.h5"))
    line = shlex.join([*sources, *words, "--method", "central", "-o", out])
    return f"trajcli differentiate {line}, then retime {shlex.quote(out)}"


class Paces:
    """Limits, and for every trajectory the factor of its time and the limit that binds it.

    Attributes:
        limits: those of velocity, acceleration and jerk, in the order of the dofs.
        factor: the scaling of time [n].
        copied: dofs whose actions are positions whatever the mode.
    """

    def __init__(self, recording: Recording, request: RetimeRequest, files: Files) -> None:
        """Raises InputError for limits of quantities that the trajectories do not have."""
        arrays, count = list(recording.arrays), len(recording)
        stored = read_limits(request.limits, files.sources)
        itemsize = min(recording.arrays[name].precision.itemsize for name in arrays)
        units = {name: recording.unit(name) or "" for name in arrays}
        names, picked = recording.dof_labels, recording.dofs
        bounds = stored.bounds(names, itemsize, units, picked)
        missing = [name for name in bounds if name not in ("position", *arrays)]
        if missing:
            what, where = f"limits of {', '.join(missing)}, and no such rows", recording.source
            expected, found = ", ".join(bounds), ", ".join(arrays)
            hint = _way(request, recording) if "position" in arrays else "leave them out"
            raise InputError(what, where=where, expected=expected, found=found, hint=hint)
        remarks = [x for n in bounds for x in stored.unit_remarks(n, recording.units.get(n))]
        self._remarks = [*dict.fromkeys(remarks), *stored.remarks(names, picked)]
        self.matched = stored.matched(names, picked)
        listed = str(recording.file.attributes().get("absolute", "")).split(",")
        self.copied = [k for k, number in enumerate(picked.numbers) if str(number) in listed]
        self._recording, self._position = recording, bounds.pop("position", None)
        self.limits: dict[str, Limit] = {n: (b.lower, b.upper) for n, b in bounds.items()}
        self.factor = np.ones(count)
        # what binds each trajectory: a quantity of a dof at a time; "", -1 and NaN where nothing
        self._quantity = np.full(count, "", object)
        self._dof, self._time = np.full(count, -1), np.full(count, np.nan)
        self._slack = {name: np.ones(count) for name in self.limits}
        self._beyond = 0
        self._curve = curves_between(request, recording).method  # where the file states no mode

    def between(self, values: Arrays, times: Floats) -> dict[str, Floats]:
        """Returns the extremes between the rows by quantity: of the curve of the file's mode, else
        of that which resample sends. Lines, and dofs whose positions are copied, have none."""
        mode, options = self._recording.stated.name, self._recording.stated.options
        if not is_known(mode, options):
            if self._curve not in GIVEN or not {"position", "velocity"} <= {*values}:
                return {}
            kinds = {name: self._recording.arrays[name].precision for name in values}
            reached = extremes_of_method(self._curve, values, times, kinds)
            return self._without_copied(reached)
        if needed := missing_parts(mode, options, values):
            what = "limits hold at the rows alone: between them the curve takes"
            self._remarks.append(Note(f"{what} {', '.join(needed)}"))
            return {}
        stored = self._recording.arrays  # the curve knows how rounding has moved its rows
        rows = {name: x.astype(stored[name].precision) for name, x in values.items()}
        return self._without_copied(extremes(mode, options, rows, times))

    def _without_copied(self, reached: dict[str, Floats]) -> dict[str, Floats]:
        for part in reached.values():
            part[..., self.copied] = 0.0
        return reached

    def add(self, places: Integers, values: Arrays, pace: Pace, times: Floats) -> None:
        """Adds a block with values [b, T, D] at times [b, T]."""
        self.factor[places], self._dof[places] = pace.factor, pace.dof
        self._quantity[places] = pace.limited_by
        bound = pace.row >= 0
        self._time[places[bound]] = times[bound, pace.row[bound]]
        for name, share in pace.slack.items():
            self._slack[name][places] = share
        bounds, position = self._position, values.get("position")
        if bounds is not None and position is not None:
            # slack forgives the rounding of a motion that was planned to its limits
            excess = np.maximum(position - bounds.upper, bounds.lower - position) / bounds.size
            self._beyond += int((excess > bounds.slack).any((1, 2)).sum())

    def result(self) -> dict[str, Any]:
        """Returns all results as plain values; trajectories by group name or number."""
        whole, quantities = self._recording, self._quantity.tolist()
        names = whole.output_names(whole.paths) if whole.several else [*map(str, range(len(whole)))]
        labels = whole.dof_labels
        return {
            "factor": {"least": float(self.factor.min()), "most": float(self.factor.max())},
            "factors": self.factor.tolist(),
            "limited_by": dict(Counter(name or "nothing" for name in quantities)),
            "binding": {
                "trajectory": names,
                "quantity": [name or None for name in quantities],
                "joint": [None if dof < 0 else labels[dof] for dof in self._dof.tolist()],
                "time": [None if time != time else time for time in self._time.tolist()],
            },
            "matched": self.matched,
            "slack": {name: share.tolist() for name, share in self._slack.items()},
        }

    def notes(self) -> list[str]:
        """Returns the warnings about limits."""
        notes = list(self._remarks)
        if self._beyond:
            share = f"{self._beyond} of {len(self.factor)} trajectories"
            notes.append(f"positions beyond their limits in {share}, which no pace changes")
        return notes
