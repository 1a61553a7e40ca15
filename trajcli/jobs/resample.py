"""Resamples trajectories and actions, from file to file: at another rate, or at any times."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from trajcli.arrays import output_dtype
from trajcli.curves import resampling
from trajcli.curves.resampling import DEFAULT, count_new_rows
from trajcli.curves.sampling import (
    curve_name,
    end_slack,
    finite_mode_outputs,
    is_cascade,
    is_known,
    locate_times,
    missing_parts,
)
from trajcli.errors import InputError, Note, Report, UsageError, raise_if_any
from trajcli.files.catalogue import decode_text
from trajcli.files.dofs import parse_dofs
from trajcli.files.opening import Files
from trajcli.files.output_times import ChosenTimes, choose_clock, times_of_file
from trajcli.files.outputs import Variable, stamp_variables, time_variable
from trajcli.files.quantities import QUANTITIES, ROTATIONS
from trajcli.files.reading import Reading
from trajcli.files.recording import Recording
from trajcli.files.repair import TurnJumps
from trajcli.files.state_sources import stored_state
from trajcli.files.writing import refuse_output
from trajcli.jobs._blocks import MOST_FAULTS
from trajcli.jobs._orientations import read_orientations
from trajcli.jobs._rows import (
    describe_arrays,
    find_computable,
    read_finite_rows,
    read_row_times,
    read_trajectories,
    write_trajectories,
)
from trajcli.jobs.job import Arrays, Block, Results, make_blocks
from trajcli.jobs.plan import describe_rotations
from trajcli.jobs.request import SourceRequest
from trajcli.kernels.program import Floats, Integers
from trajcli.memory import RESAMPLED_VALUES
from trajcli.modes import make_mode

ModeAndOptions: TypeAlias = tuple[str, dict[str, Any]]


@dataclass(frozen=True)
class ResampleRequest(SourceRequest):
    """The options of resample, as typed; method None chooses as ``trajcli.resample`` does."""

    to: float | None = None
    at: str | None = None
    method: str | None = None
    hold: float = 0.0
    rotation_frame: str = "world"
    hold_dofs: str | None = None


def curves_between(reading: Reading, recording: Recording) -> Curves:
    """Makes the curves that resample sends through rows without further options."""
    request = ResampleRequest([], Path(), dt=reading.dt, rate=reading.rate, times=reading.times)
    return Curves(request, recording, Report())


class Curves:
    """The curves through the rows: one for position to jerk together, one for any other array."""

    def __init__(self, request: ResampleRequest, recording: Recording, report: Report) -> None:
        quantities = [name for name in QUANTITIES if name in recording.arrays]
        self._report, modes = report, list[ModeAndOptions]()
        for part in recording.members:
            # without a known mode, the method by which the rows were resampled, if any, counts
            modes.append(("", {"method": decode_text(part.companions.attribute("method")[1])}))
            with suppress(UsageError):  # another program's word
                if name := part.stated_mode.name:
                    modes[-1] = name, make_mode(name, **part.stated_mode.options).options()
        # files that state different modes have no polynomials in common
        mode = modes[0] if modes.count(modes[0]) == len(modes) else ("", {})
        method = self._choose_method(request, recording, quantities, mode)
        # the mode whose polynomials the curves are; None where the method interpolates
        self.mode = mode if method is None else None
        self.method, self.hold = method or DEFAULT, request.hold
        # A row after the end may hold the last row of a trajectory that stops. A recording, by
        # stamps of a clock, may go on.
        recorded = not mode[0] and recording.start_stamps() is not None
        self.stops = resampling.stops(method, *mode) and not recorded
        self._numbers, self._labels = recording.free_dofs, recording.dof_labels
        self._precision = {name: recording.arrays[name].precision for name in quantities}
        self.held_dofs: list[int] = []
        self._hold_option = option = request.hold_dofs
        if option is not None:
            names = recording.joint_names or ()
            dofs = parse_dofs(option, recording.shape[2], "--hold-dofs", names).numbers
            if not set(dofs) <= set(self._numbers):
                raise UsageError("a part of a rotation", where="--hold-dofs", found=option)
            self.held_dofs = [self._numbers.index(dof) for dof in dofs]
        self._two_valued = np.ones(len(self._numbers), bool)
        self._moving = np.zeros(len(self._numbers), bool)
        finite: Sequence[str] = ()
        if self.mode is not None:
            finite = finite_mode_outputs(*self.mode, quantities)
        elif quantities:
            finite = resampling.finite_outputs(self.method, quantities)
        self._others = [name for name in recording.arrays if name not in QUANTITIES]
        if self._others:
            # refuses methods that take derivatives
            resampling.finite_outputs(self.method, QUANTITIES[:1])
        self.names = [*finite, *self._others]
        if missing := [name for name in quantities if name not in finite]:
            curve = curve_name(*self.mode) if self.mode else self.method
            why = f"by {curve} it is not finite between the rows"
            report.add_notes(Note(f"no {', '.join(missing)}: {why}"))

    def _choose_method(
        self, request: ResampleRequest, recording: Recording, names: Sequence[str],
        mode: ModeAndOptions,
    ) -> str | None:  # fmt: skip
        """Chooses the method where none is named, by the mode or by the first trajectory. None is
        the curve of the mode."""
        if request.method or not names:
            return request.method or DEFAULT
        first, known = recording.take([0]), is_known(*mode)
        # the beginning of one trajectory is enough to tell measured rates from derived ones
        sample = first.take(slice(None), range(min(first.rows, resampling.SAMPLED_ROWS)))
        rows, knots = {name: sample.arrays[name].read() for name in names}, read_row_times(first)[0]
        method, what = resampling.default_method(*mode, rows, knots[:, : sample.rows]), ""
        if not mode[0] and method == DEFAULT and "velocity" in names[1:]:
            what = "velocities are zeros or differences, not the derivatives at the rows"
        elif not mode[0] or (method == DEFAULT and not known):
            return method
        # a mode's polynomials fit rows that it made, at its own times, with all their derivatives
        elif is_cascade(*mode) and any(
            "absolute" in part.file.attributes() for part in recording.members
        ):
            method, what = DEFAULT, f"no known curve joins the absolute dofs of {recording.source}"
        elif (request.dt, request.rate, request.times) != (None, None, None):
            what = f"{recording.source} states {mode_text(*mode)}, but other times are given"
            method = DEFAULT
        elif known and (missing := ", ".join(missing_parts(*mode, names))):
            what = f"exactly, as {mode_text(*mode)}, it takes {missing} as well"
        if what:
            self._report.add_notes(Note(f"by {method}: {what}"))
        return method

    def attributes(self) -> dict[str, Any]:
        stated: dict[str, Any] = {"method": self.method}
        if self.mode is not None:
            stated = {"samples_of": mode_text(*self.mode)}
        stated |= {"hold": self.hold} if self.hold else {}
        return stated | ({"hold_dofs": self._hold_option} if self.held_dofs else {})

    def evaluate(self, values: Arrays, knots: Floats, times: Floats) -> dict[str, Any]:
        """Evaluates arrays [b, T, D] with rows at ``knots`` at ``times`` [1 or b, N]: [b, N, D]."""
        values = {n: x.astype(output_dtype(x.dtype), copy=False) for n, x in values.items()}
        quantities = {name: values[name] for name in values if name in QUANTITIES}
        # any other array is interpolated as positions are
        curves = [
            (resampling.method_curve(self.method, {QUANTITIES[0]: values[name]}, knots, self.hold),
             {QUANTITIES[0]: name})
            for name in self._others
        ]  # fmt: skip
        if quantities:
            if self.mode is None:
                curve = resampling.method_curve(self.method, quantities, knots, self.hold)
            else:  # which knows how far rounding has moved the rows
                for name, rows in quantities.items():
                    quantities[name] = rows.astype(output_dtype(self._precision[name]), copy=False)
                curve = resampling.mode_curve(*self.mode, quantities, knots)
            curves.append((curve, {name: name for name in self.names if name in QUANTITIES}))
        rows = next(iter(values.values()))
        batch, _, dofs = rows.shape
        lowest = values[self.names[0]]  # others of its curve are of its type
        shape = (batch, times.shape[1], dofs)
        arrays = {name: np.empty(shape, values.get(name, lowest).dtype) for name in self.names}
        # dofs that have only two values, like a gripper, open or closed
        low, high = rows.min((0, 1)), rows.max((0, 1))
        self._two_valued &= ((rows == low) | (rows == high)).all((0, 1))
        self._moving |= (low < high) & (rows.shape[1] > 10)  # fewer are points of a plan
        # long trajectories are evaluated in pieces, which bounds what a curve takes for itself
        size = max(1, RESAMPLED_VALUES // (batch * dofs))
        for first in range(0, times.shape[1], size):
            piece = slice(first, first + size)
            for curve, names in curves:
                samples = curve(times[:, piece])
                for name, array in names.items():
                    arrays[array][:, piece] = samples[name]
        for name in self.names if self.held_dofs else ():
            rows = values.get(name, lowest)
            resampling.hold_dof_rows(arrays[name], name, rows, knots, times, self.held_dofs)
        return arrays

    def notes(self) -> list[str]:
        """Warns about dofs with two values, between which the curve takes others."""
        dofs = np.flatnonzero(self._two_valued & self._moving).tolist()
        numbers = [self._numbers[dof] for dof in dofs if dof not in self.held_dofs]
        if not numbers or (self.mode is None and self.method == "hold"):
            return []
        names = ", ".join(self._labels[number] for number in numbers)
        what = f"dofs with two values: {names}, of which values between are written"
        dofs_option = ",".join(map(str, numbers))
        return [f"{what}; --hold-dofs {dofs_option} keeps each until the next row"]


@dataclass(frozen=True)
class _Resampling:
    request: ResampleRequest
    recording: Recording
    curves: Curves
    counts: Integers  # the new rows of each trajectory [n]
    stamps: ChosenTimes | None  # of --at; None at a rate
    relative: bool  # times are written from the first new row
    rotation_curve: str  # slerp or spline
    jumps: TurnJumps
    report: Report  # takes the notes on rotations

    def compute(self, block: Block) -> Results:
        request, part, indices = self.request, block.recording, block.indices
        knots, rounding = read_row_times(part, acting=request.method == "hold")
        if self.stamps is None:
            times = since = np.arange(self.counts[indices[0]])[None] / (request.to or 1.0)
        else:
            times, since = self.stamps.row_times(indices)
        # curves through positions and rates need all arrays of a block at once
        lenient, names = request.allow_nonfinite, list(self.recording.arrays)
        values = {name: read_finite_rows(part, name, lenient) for name in names}
        self.jumps.add_block(values, part)
        # ends may be off by rounding
        at: Any = locate_times(np.clip(times, 0.0, knots[:, -1:]), knots, len(part), rounding)
        arrays: dict[str, Any] = {"time": since if self.relative else times}
        if rotations := self.recording.rotations:
            from trajcli.rotations import resample

            frame, rows = request.rotation_frame, values[names[0]]
            q = read_orientations(rows, rotations, part.place_text, self.report, lenient)
            motion = resample(q, self.rotation_curve, times=knots, at=at, frame=frame)
            named = zip(ROTATIONS, motion, strict=True)
            arrays |= {name: turned for name, turned in named if turned is not None}
            values = {name: x[..., self.recording.free_dofs] for name, x in values.items()}
        if self.recording.free_dofs:
            with np.errstate(over="ignore", invalid="ignore"):
                arrays |= self.curves.evaluate(values, knots, at)
        yield 0, arrays


def run_resample(request: ResampleRequest, report: Report | None = None) -> dict[str, Any]:
    """Reads, resamples and writes trajectories; returns the result as plain values."""
    refuse_output(request.out, request.overwrite)
    rate = request.to
    if (rate is None) == (request.at is None):
        what = "no rate and no times" if rate is None else "a rate and times"
        raise UsageError(what, where="--to and --at", expected="one of them")
    if rate is not None and not (math.isfinite(rate) and rate > 0):
        what = "a rate that is not positive"
        raise UsageError(what, where="--to", expected="Hz > 0", found=f"{rate:g}")
    with Files(request, report=report) as files:
        recording = read_trajectories(request, files, actions=True, least=2, rotations=True)
        rotations, others = recording.rotations, recording.free_dofs
        curve = {None: "slerp", "linear": "slerp", "cubic": "spline"}.get(request.method, "")
        if rotations and not curve:
            expected = "linear (slerp) or cubic (a spline of the logarithm)"
            what, found = "no such curve of rotations", str(request.method)
            raise UsageError(what, where="--method", expected=expected, found=found)
        new = None if rate else times_of_file(files, str(request.at), len(recording))
        raise_if_any(resampling.option_faults(request.method, request.hold), UsageError)
        holding = request.method == "hold"
        indices, left_out = find_computable(request, recording, holding)
        recording = recording.take(indices)
        curves = Curves(request, recording, files.report)
        counts, ends, slack = _measure_rows(recording, holding, rate, curves.stops)
        # by how much the new rows of each trajectory end after its last row
        delay, remarks = (counts - 1) / rate - ends if rate else 0.0 * ends, list[str]()
        held_count = int((delay > slack + 1e-9).sum())
        if held_count:
            what = f"the last row is held at the next step, up to {delay.max():.3g} s later"
            remarks.append(Note(f"{what} ({held_count} of {len(delay)} trajectories)"))
        if not curves.stops and (delay < -slack - 1e-9).any():
            what = f"up to {-delay.min():.3g} s before the last row, which is in motion"
            remarks.append(Note(f"the new rows end {what}: none is held after it"))
        jumps, rotation_report = TurnJumps(recording), Report()
        clock, stamps = recording.start_stamps(skip_start=not holding), None
        if new is not None:
            stamps = choose_clock(new, indices, clock, ends, slack)
            nonempty = np.flatnonzero(stamps.counts)
            if stamps.faults and not (request.skip_bad and len(nonempty)):
                raise InputError(*stamps.faults[:MOST_FAULTS])
            left_out += stamps.faults
            recording, stamps = recording.take(nonempty), stamps.take(nonempty)
            counts = stamps.counts
            if clock is not None:
                remarks.append(Note(stamps.remark))
                clock = stamps.start_stamps((clock[0][nonempty], clock[1]))

        job = _Resampling(
            request, recording, curves, counts, stamps, clock is not None, curve, jumps,
            rotation_report,
        )  # fmt: skip
        stated = {"dt": "varies" if rate is None else 1.0 / rate, **curves.attributes()}
        stated |= {"held_ends": held_count} if held_count else {}
        turned, sizes = list[Variable](), dict[str, int]()
        if rotations:
            dtype, frame = output_dtype(recording.input.precision), request.rotation_frame
            # slerp turns at a constant rate between rows, and so has no acceleration to write
            written = QUANTITIES[: 4 if curve == "spline" else 2]
            turned, sizes, attributes = describe_rotations(rotations, written, dtype, frame)
            stated |= attributes
        shared = stamps is None or not stamps.times_differ or len(counts) == 1
        variables = [*describe_arrays(recording, curves.names), *turned, time_variable(shared)]
        variables += [*stamp_variables(clock), *_describe_states(recording, rate)]
        result = write_trajectories(
            request, files, recording, counts, variables, job.compute, stated, left_out, sizes
        )
        files.report.add_notes(*curves.notes(), *remarks, *rotation_report.notes, *jumps.notes(""))
    result |= {"to": rate, "at": request.at, "method": stated.get("method")}
    result |= {"samples_of": stated.get("samples_of"), "held_ends": held_count}
    result["arrays"] = [*(curves.names if others else ()), *(v.name for v in turned)]
    for name, n in (("rows_before", recording.lengths), ("rows", counts)):
        result[name] = {"least": int(n.min()), "most": int(n.max())}
    return result


def _measure_rows(
    recording: Recording, holding: bool, rate: float | None, stops: bool
) -> tuple[Integers, Floats, Floats]:
    """Measures the new rows of each trajectory at a rate, its duration, and its rounding."""
    counts, (ends, slack) = np.zeros(len(recording), np.int64), np.zeros((2, len(recording)))
    # this pass over all trajectories is cheap: it reads times and, at most, the last two rows
    for block in make_blocks(recording, recording.lengths):
        part, indices = block.recording, block.indices
        knots, rounding = read_row_times(part, acting=holding)
        ends[indices] = knots[:, -1]
        early, late = end_slack(knots)
        slack[indices] = np.maximum(early, late)[:, 0] + rounding
        if rate is not None:
            acting, may_hold = knots.shape[1] > part.rows, [True] * len(part)
            # a row after the end may hold the last one where that is at rest, as two rows show
            if not stops:
                last = part.take(slice(None), range(max(0, part.rows - 2), part.rows))
                rows = {n: last.arrays[n].read() for n in QUANTITIES if n in part.arrays}
                rows = rows or {QUANTITIES[0]: last.input.read()}
                may_hold = list(resampling.at_rest(rows, knots))
            pairs = zip(ends[indices].tolist(), may_hold, strict=True)
            counts[indices] = [
                count_new_rows(rate, end, rounding, acting, may) for end, may in pairs
            ]
    return counts, ends, slack


def _describe_states(recording: Recording, rate: float | None) -> Iterator[Variable]:
    """Describes what integrate reads with actions: their step, start and goal states [(n,) D]."""
    if "actions" in recording.arrays and rate is not None:
        label = {"long_name": "step of the actions", "units": "s"}
        yield Variable("dt", (), np.dtype("f8"), label, np.asarray(1.0 / rate))
    # the start belongs to the first action, which a window may leave out
    complete = not recording.parts and recording.holds_actions and not recording.windowed
    for role in ("start", "goal") if complete else ():
        state = stored_state(role, recording)
        raise_if_any(state.faults(role, recording.count))
        for part, rows in state.load(recording.group_indices).items():
            values = rows if len(rows) == len(recording) else rows[0]
            dims = ("trajectory", "dof")[-values.ndim :]
            yield Variable(f"{role}/{part}", dims, values.dtype, {}, values)


def mode_text(mode: str, options: Mapping[str, Any]) -> str:
    """Writes a mode and its options: bspline degree=3 steps=2."""
    return " ".join([mode, *(f"{name}={value}" for name, value in options.items())])
