"""Resamples trajectories and actions, from file to file: at another rate, or at any times."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from trajcli.arrays import output_dtype
from trajcli.curves import resampling
from trajcli.curves.resampling import DEFAULT, new_count
from trajcli.curves.sampling import (
    curve_name,
    is_cascade,
    is_known,
    located,
    missing_parts,
    slack_at_ends,
)
from trajcli.errors import InputError, Note, Report, UsageError, raise_if_any
from trajcli.files.catalogue import decode_text
from trajcli.files.dofs import parse_dofs
from trajcli.files.opening import Files
from trajcli.files.output_times import choose_clock, times_of_file
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
    read_trajectories,
    read_row_times,
    write_trajectories,
)
from trajcli.jobs.job import Arrays, Block, Results, make_blocks
from trajcli.jobs.plan import rotation_attributes, rotation_sizes, describe_rotations
from trajcli.jobs.request import SourceRequest
from trajcli.kernels.program import Floats, Integers
from trajcli.memory import RESAMPLED_VALUES
from trajcli.modes import make_mode

ModeAndOptions: TypeAlias = tuple[str, dict[str, Any]]


@dataclass(frozen=True)
class ResampleRequest(SourceRequest):
    """The options of resample, as typed.

    method: None chooses as ``trajcli.resample`` does, by the mode that made the rows, where files
        state one, or by the rows.
    """

    to: float | None = None
    at: str | None = None
    method: str | None = None
    hold: float = 0.0
    rotation_frame: str = "world"
    hold_dofs: str | None = None


def curves_between(reading: Reading, recording: Recording) -> Curves:
    """Returns the curves that resample sends without further options."""
    request = ResampleRequest([], Path(), dt=reading.dt, rate=reading.rate, times=reading.times)
    return Curves(request, recording, Report())


class Curves:
    """The curves through the rows: one for position to jerk together, one for any other array.

    Attributes:
        mode: the mode whose polynomials the curves are; None where ``method`` interpolates.
        stops: whether a row after the end may hold the last row of any trajectory.
        names: the arrays that can be evaluated between the rows.
        held: dofs that keep each row until the next, as a gripper does.
    """

    def __init__(self, request: ResampleRequest, recording: Recording, report: Report) -> None:
        """Raises UsageError for options that do not fit the rows."""
        quantities = [name for name in QUANTITIES if name in recording.arrays]
        self._report = report
        modes = [_mode_of_file(part) for part in recording.members]
        mode = modes[0] if modes.count(modes[0]) == len(modes) else ("", {})
        method = self._chosen(request, recording, quantities, mode)
        self.mode = mode if method is None else None
        self.method, self.hold = method or DEFAULT, request.hold
        # a recording, by stamps of a clock, may go on after its last row
        recorded = not mode[0] and recording.start_stamps() is not None
        self.stops = resampling.stops(method, *mode) and not recorded
        self._numbers, self._labels = recording.free_dofs, recording.dof_labels
        self._precision = {name: recording.arrays[name].precision for name in quantities}
        self.held: list[int] = []
        self._which_held = which = request.hold_dofs
        if which is not None:
            names = recording.joint_names or ()
            picked = parse_dofs(which, recording.shape[2], "--hold-dofs", names)
            if not set(picked.numbers) <= set(self._numbers):
                raise UsageError("a part of a rotation", where="--hold-dofs", found=which)
            self.held = [self._numbers.index(number) for number in picked.numbers]
        self._two_valued = np.ones(len(self._numbers), bool)
        self._moving = np.zeros(len(self._numbers), bool)
        known: Sequence[str] = ()
        if self.mode is not None:
            known = resampling.finite_mode_outputs(*self.mode, quantities)
        elif quantities:
            known = resampling.finite_outputs(self.method, quantities)
        self._others = [name for name in recording.arrays if name not in QUANTITIES]
        if self._others:
            # refuses methods that take derivatives
            resampling.finite_outputs(self.method, QUANTITIES[:1])
        self.names = [*known, *self._others]
        if left := [name for name in quantities if name not in known]:
            curve = curve_name(*self.mode) if self.mode else self.method
            why = f"by {curve} it is not finite between the rows"
            report.add_notes(Note(f"no {', '.join(left)}: {why}"))

    def _chosen(
        self, request: ResampleRequest, whole: Recording, names: Sequence[str], mode: ModeAndOptions
    ) -> str | None:
        """Returns the method: where none is named, by the mode that made the rows of all files or,
        where they state none, by the first trajectory; None is the curve of the mode."""
        if request.method or not names:
            return request.method or DEFAULT
        one, known = whole.take([0]), is_known(*mode)
        part = one.take(slice(None), range(min(one.rows, resampling.SAMPLED_ROWS)))
        rows, knots = {name: part.arrays[name].read() for name in names}, read_row_times(one)[0]
        method, what = resampling.default_method(*mode, rows, knots[:, : part.rows]), ""
        if not mode[0] and method == DEFAULT and "velocity" in names[1:]:
            what = "velocities are zeros or differences, not the derivatives at the rows"
        elif not mode[0] or (method == DEFAULT and not known):
            return method
        elif is_cascade(*mode) and any("absolute" in x.file.attributes() for x in whole.members):
            method, what = DEFAULT, f"no known curve joins the absolute dofs of {whole.source}"
        elif (request.dt, request.rate, request.times) != (None, None, None):
            what = f"{whole.source} states {mode_text(*mode)}, but other times are given"
            method = DEFAULT
        elif known and (missing := ", ".join(missing_parts(*mode, names))):
            what = f"exactly, as {mode_text(*mode)}, it takes {missing} as well"
        if what:
            self._report.add_notes(Note(f"by {method}: {what}"))
        return method

    def may_hold(self, block: Recording, knots: Floats) -> list[bool]:
        """Returns for each trajectory of a block whether a row after its end may hold its last."""
        if self.stops:
            return [True] * len(block)
        last = block.take(slice(None), range(max(0, block.rows - 2), block.rows))
        rows = {name: last.arrays[name].read() for name in QUANTITIES if name in block.arrays}
        return list(resampling.at_rest(rows or {QUANTITIES[0]: last.input.read()}, knots))

    def attributes(self) -> dict[str, Any]:
        """Returns what an output says of its curves."""
        stated: dict[str, Any] = {"method": self.method}
        if self.mode is not None:
            stated = {"samples_of": mode_text(*self.mode)}
        stated |= {"hold": self.hold} if self.hold else {}
        return stated | ({"hold_dofs": self._which_held} if self.held else {})

    def evaluate(self, values: Arrays, knots: Floats, at: Floats) -> dict[str, Any]:
        """Evaluates arrays [b, T, D] with rows at ``knots`` at other times; returns [b, N, D].

        at: times [1 or b, N].
        """
        values = {n: x.astype(output_dtype(x.dtype), copy=False) for n, x in values.items()}
        quantities = {name: values[name] for name in values if name in QUANTITIES}
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
        batch, _, dofs = next(iter(values.values())).shape
        shape = (batch, at.shape[1], dofs)
        lowest = values[self.names[0]]  # others of its curve are of its type
        arrays = {name: np.empty(shape, values.get(name, lowest).dtype) for name in self.names}
        size = max(1, RESAMPLED_VALUES // (batch * dofs))
        # dofs that have only two values, like a gripper, open or closed
        rows = next(iter(values.values()))
        low, high = rows.min((0, 1)), rows.max((0, 1))
        self._two_valued &= ((rows == low) | (rows == high)).all((0, 1))
        self._moving |= (low < high) & (rows.shape[1] > 10)  # fewer are points of a plan
        for first in range(0, at.shape[1], size):
            part = slice(first, first + size)
            for curve, names in curves:
                samples = curve(at[:, part])
                for name, array in names.items():
                    arrays[array][:, part] = samples[name]
        for name in self.names if self.held else ():
            rows = values.get(name, lowest)
            resampling.hold_dof_rows(arrays[name], name, rows, knots, at, self.held)
        return arrays

    def two_valued(self) -> list[str]:
        """Returns a warning about dofs with two values, between which the curve takes others."""
        dofs = np.flatnonzero(self._two_valued & self._moving).tolist()
        numbers = [self._numbers[dof] for dof in dofs if dof not in self.held]
        if not numbers or (self.mode is None and self.method == "hold"):
            return []
        names = ", ".join(self._labels[number] for number in numbers)
        what = f"dofs with two values: {names}, of which values between are written"
        listed = ",".join(map(str, numbers))
        return [f"{what}; --hold-dofs {listed} keeps each until the next row"]


def run_resample(request: ResampleRequest, report: Report | None = None) -> dict[str, Any]:
    """Reads, resamples and writes trajectories; returns the result as plain values.

    Raises TrajcliError with every fault that was found. OUT is then what it was before.
    """
    refuse_output(request.out, request.overwrite)
    rate = _rate(request)
    with Files(request, report=report) as files:
        recording = read_trajectories(request, files, actions=True, least=2, rotations=True)
        rotations, others = recording.rotations, recording.free_dofs
        turns = _turns_method(request.method) if rotations else ""
        frame = request.rotation_frame
        new = None if rate else times_of_file(files, str(request.at), len(recording))
        raise_if_any(resampling.option_faults(request.method, request.hold), UsageError)
        holding = request.method == "hold"
        good, left_out = find_computable(request, recording, holding)
        remarks, recording = list[str](), recording.take(good)
        curves = Curves(request, recording, files.report)
        counts, ends, slack = _measured(recording, holding, rate, curves)
        # by how much the new rows of each trajectory end after its last row
        late = (counts - 1) / rate - ends if rate else 0.0 * ends
        held = int((late > slack + 1e-9).sum())
        if held:
            what = f"the last row is held at the next step, up to {late.max():.3g} s later"
            remarks.append(Note(f"{what} ({held} of {len(late)} trajectories)"))
        if not curves.stops and (late < -slack - 1e-9).any():
            what = f"up to {-late.min():.3g} s before the last row, which is in motion"
            remarks.append(Note(f"the new rows end {what}: none is held after it"))
        jumps, said = TurnJumps(recording), Report()
        clock, stamps = recording.start_stamps(skip_start=not holding), None
        if new is not None:
            stamps = choose_clock(new, good, clock, ends, slack)
            inside = np.flatnonzero(stamps.counts)
            if stamps.faults and not (request.skip_bad and len(inside)):
                raise InputError(*stamps.faults[:MOST_FAULTS])
            left_out += stamps.faults
            recording, stamps = recording.take(inside), stamps.take(inside)
            counts = stamps.counts
            if clock is not None:
                remarks.append(Note(stamps.remark))
                clock = stamps.start_stamps((clock[0][inside], clock[1]))

        def compute(of_job: Block) -> Results:
            block, places = of_job.recording, of_job.indices
            knots, rounding = read_row_times(block, acting=holding)
            if stamps is None:
                times = since = np.arange(counts[places[0]])[None] / (rate or 1.0)
            else:
                times, since = stamps.at(places)
            lenient = request.allow_nonfinite
            values = {name: read_finite_rows(block, name, lenient) for name in recording.arrays}
            jumps.add(values, block)
            # ends may be off by rounding
            at = locate_times(np.clip(times, 0.0, knots[:, -1:]), knots, len(block), rounding)
            arrays: dict[str, Any] = {}
            if rotations:
                from trajcli.rotations import resample

                rows = values[next(iter(recording.arrays))]
                q = read_orientations(rows, rotations, block.place_text, said, lenient)
                motion = resample(q, turns, times=knots, at=at, frame=frame)
                named = zip(ROTATIONS, motion, strict=True)
                arrays |= {name: turned for name, turned in named if turned is not None}
                values = {name: x[..., others] for name, x in values.items()}
            if others:
                with np.errstate(over="ignore", invalid="ignore"):
                    arrays |= curves.evaluate(values, knots, at)
            yield 0, {"time": times if clock is None else since, **arrays}

        stated = {"dt": "varies" if rate is None else 1.0 / rate, **curves.attributes()}
        stated |= {"held_ends": held} if held else {}
        dtype = output_dtype(recording.input.precision)
        written = QUANTITIES[: 4 if turns == "spline" else 2]
        turned = [*describe_rotations(rotations, written, dtype, frame)]
        if rotations:
            stated |= rotation_attributes(rotations, frame)
        variables = [
            *describe_arrays(recording, curves.names),
            *turned,
            time_variable(shared=stamps is None or not stamps.own_times or len(counts) == 1),
            *stamp_variables(clock),
            *_beside_actions(recording, rate),
        ]
        result = write_trajectories(
            request, files, recording, counts, variables, compute, stated, left_out,
            rotation_sizes(rotations),
        )  # fmt: skip
        files.report.add_notes(*curves.two_valued(), *remarks, *said.notes, *jumps.notes(""))
    return {
        **result,
        "to": request.to,
        "at": request.at,
        "method": stated.get("method"),
        "samples_of": stated.get("samples_of"),
        "held_ends": held,
        "arrays": [*(curves.names if others else ()), *(v.name for v in turned)],
        "rows_before": _extent(recording.lengths),
        "rows": _extent(counts),
    }


def _extent(counts: Integers) -> dict[str, int]:
    return {"least": int(counts.min()), "most": int(counts.max())}


def _rate(request: ResampleRequest) -> float | None:
    """Returns the rate in Hz; None where --at names times. Raises UsageError for neither or both,
    and for a rate that is not positive."""
    rate = request.to
    if (rate is None) == (request.at is None):
        raise UsageError(
            "no rate and no times" if rate is None else "a rate and times",
            where="--to and --at",
            expected="one of them",
        )
    if rate is not None and not (math.isfinite(rate) and rate > 0):
        raise UsageError(
            "a rate that is not positive", where="--to", expected="Hz > 0", found=f"{rate:g}"
        )
    return rate


def _beside_actions(recording: Recording, rate: float | None) -> Iterator[Variable]:
    """Describes what lies beside actions: their step at a rate, start and goal states [(n,) D].

    Raises InputError for states, or an index of states, that do not fit.
    """
    if "actions" in recording.arrays and rate is not None:
        label = {"long_name": "step of the actions", "units": "s"}
        yield Variable("dt", (), np.dtype("f8"), label, np.asarray(1.0 / rate))
    # the start belongs to the first action, which a window may leave out
    alone = not recording.parts and recording.holds_actions and not recording.windowed
    for role in ("start", "goal") if alone else ():
        state = stored_state(role, recording)
        raise_if_any(state.faults(role, recording.count))
        for part, rows in state.load(recording.group_indices).items():
            values = rows if len(rows) == len(recording) else rows[0]
            dims = ("trajectory", "dof")[-values.ndim :]
            yield Variable(f"{role}/{part}", dims, values.dtype, {}, values)


def _measured(
    recording: Recording, holding: bool, rate: float | None, curves: Curves
) -> tuple[Integers, Floats, Floats]:
    """Returns, for each trajectory, its number of rows at a rate, the time of its last row in
    seconds from the first, and how far rounding may move that time."""
    counts, (ends, slack) = np.zeros(len(recording), np.int64), np.zeros((2, len(recording)))
    for group_recording in make_blocks(recording, recording.lengths):
        block, places = group_recording.recording, group_recording.indices
        knots, rounding = read_row_times(block, acting=holding)
        ends[places] = knots[:, -1]
        slack[places] = np.maximum(*end_slack(knots))[:, 0] + rounding
        if rate is not None:
            acting, held = knots.shape[1] > block.rows, curves.may_hold(block, knots)
            each = zip(ends[places].tolist(), held, strict=True)
            counts[places] = [count_new_rows(rate, end, rounding, acting, may) for end, may in each]
    return counts, ends, slack


def _turns_method(method: str | None) -> str:
    """Returns the curve of orientations for a method; raises UsageError where there is none."""
    turns = {None: "slerp", "linear": "slerp", "cubic": "spline"}.get(method)
    if turns is None:
        raise UsageError(
            "no such curve of rotations",
            where="--method",
            expected="linear (slerp) or cubic (a spline of the logarithm)",
            found=str(method),
        )
    return turns


def mode_text(mode: str, options: Mapping[str, Any]) -> str:
    """Returns a mode and its options as text: jerk scheme=zoh alignment=full."""
    return " ".join([mode, *(f"{name}={value}" for name, value in options.items())])


def _mode_of_file(part: Recording) -> ModeAndOptions:
    """Returns the mode that a file states, and all its options; else "", and the method by which
    its rows were resampled, if any."""
    stated = part.stated_mode
    try:
        if stated.name:
            return stated.name, make_mode(stated.name, **stated.options).options()
    except UsageError:  # another program's word
        pass
    return "", {"method": decode_text(part.companions.attribute("method")[1])}
