"""Retimes trajectories, from file to file: by one factor each, or by the fastest timing."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, fields, replace
from itertools import islice
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, NamedTuple

import numpy as np

from trajcli.calls import integrate
from trajcli.curves import fastest, retiming
from trajcli.curves.resampling import ARRAY_COUNTS
from trajcli.curves.sampling import is_known, missing_parts
from trajcli.errors import Fault, InputError, Note, Report, UsageError, join_names, raise_if_any
from trajcli.files.atomic_output import os_failures
from trajcli.files.limits import read_limits
from trajcli.files.opening import Files
from trajcli.files.outputs import Variable, row_variable, stamp_variables, time_variable
from trajcli.files.quantities import QUANTITIES, RECORDED_START, derive_unit
from trajcli.files.reader import no_positions, no_time
from trajcli.files.reading import Reading, parse_floats
from trajcli.files.recording import Recording
from trajcli.files.source import Place, parse_source
from trajcli.files.writing import refuse_output, stop_error
from trajcli.jobs._blocks import MOST_FAULTS
from trajcli.jobs._rows import (
    describe_arrays,
    describe_control_points,
    find_computable,
    read_finite_rows,
    read_row_times,
    read_trajectories,
    write_trajectories,
)
from trajcli.jobs.job import Block, Results
from trajcli.jobs.request import SourceRequest
from trajcli.jobs.resample import curves_between
from trajcli.mode_options import ANY_PACE
from trajcli.names import EndsName
from trajcli.system import hold_signals, pending_signal, processors
from trajcli.trajectory import State

_RATE = 1000.0  # of the setpoints of slower sources, in Hz
# The options that only one method takes, and the first variables of OUT, in the order of merge.
_METHOD_OPTIONS = {"uniform": ("slower_only",), "fastest": ("to", "rows", "corners")}
_FIRST = (*QUANTITIES, "time", "start_stamp")


@dataclass(frozen=True)
class RetimeRequest(SourceRequest):
    """The options of retime, as typed. method: None takes uniform for trajectories with times."""

    limits: Path = Path()
    method: str | None = None
    slower_only: bool = False
    to: float | None = None
    rows: int | None = None
    duration: float | None = None
    corners: str | None = None
    margin: float = 1.0

    def faults(self, method: str) -> Iterator[Fault]:
        if self.to is not None and self.rows is not None:
            yield Fault("a rate and a number of rows", where="--to and --rows", expected="one")
        if self.turns not in (None, "stop") and not isinstance(self.turns, float):
            what, expected = "neither stop nor a distance", "stop, or a distance like 0.05"
            yield Fault(what, where="--corners", expected=expected, found=str(self.turns))
        other = "fastest" if method == "uniform" else "uniform"
        for name in _METHOD_OPTIONS[other]:
            if getattr(self, name) not in (None, False):
                yield Fault(f"an option of --method {other}", where=f"--{name.replace('_', '-')}")

    @property
    def turns(self) -> str | float | None:
        """What becomes of corners: None refuses them, "stop" rests there, a distance cuts them."""
        values = parse_floats(self.corners or "")
        return float(values[0]) if values and values[0] > 0 else self.corners


def run_retime(request: RetimeRequest, report: Report | None = None) -> dict[str, Any]:
    """Reads trajectories, times them anew and writes them; returns the result as plain values."""
    if (shard := request.shard) is not None:
        from trajcli.jobs.shards import read_finished_part

        if result := read_finished_part(request):
            return result
    refuse_output(request.out, request.overwrite or shard is not None)
    with Files(request, report=report) as files, ExitStack() as stack:
        recording = read_trajectories(request, files, actions=False, paths=True)
        method = request.method or ("uniform" if recording.clock else "fastest")
        raise_if_any(request.faults(method), UsageError)
        if not recording.clock:
            if method == "uniform":
                fault = no_time(recording)
                raise InputError(replace(fault, hint=f"--method fastest; or {fault.hint}"))
            files.report.add_notes(Note("no times: the rows are a path"))

        # limits are checked against the arrays of the whole run, so that all shards agree on
        # them; only then does a shard take its share
        paces = (Paces if method == "uniform" else Timings)(recording, request, files)
        share = recording if shard is None else recording.take(slice(*shard.share(len(recording))))
        indices, left_out = find_computable(request, share)
        left_out += paces.prepare(
            share.take(indices).select_arrays(paces.arrays), files.report, stack
        )

        stamps = paces.recording.start_stamps(relative=shard is not None)
        variables = [*paces.variables(), time_variable(len(recording) == 1)]
        variables += stamp_variables(stamps)
        variables.sort(key=lambda v: ((*_FIRST, v.name).index(v.name), v.name))
        for k, v in enumerate(variables):  # plot draws the limits that OUT states
            sides = zip(("lower_limit", "upper_limit"), paces.limits.get(v.name, ()), strict=False)
            variables[k] = replace(v, attributes=dict(sorted([*v.attributes.items(), *sides])))
        result = write_trajectories(
            request, files, paces.recording, paces.counts, variables, paces.compute,
            {**paces.attributes(), "limits": Place(str(request.limits))},
            left_out, paces.sizes, paces.has_names,
        )  # fmt: skip
        files.report.add_notes(*paces.notes())
    about = {"limits": str(request.limits), "method": method, "matched": paces.matched}
    return {**result, **about, **paces.result()}


def _differentiate_command(
    request: RetimeRequest, recording: Recording, method: str = "central"
) -> str:
    """Writes the command that makes a trajectory of arrays; central does not move positions."""
    sources, layout, member = request.sources, recording.layout, recording.member
    if "actions" in recording.arrays and not recording.named and recording.file.names() != [""]:
        # recorded positions of the layout, if there are any, take the place of the actions
        positions = layout and member and layout.position_names(member)
        if not positions:
            return "trajcli integrate takes actions, differentiate --method central positions"
        sources = [f"{parse_source(text).path}:{positions[0]}" for text in sources]
    options = {x.name.replace("_", "-"): getattr(request, x.name) for x in fields(Reading)}
    words = [w for k, x in options.items() if x for w in (f"--{k}", str(x))[: 1 + (x is not True)]]
    words += ["--overwrite"] * request.overwrite
    out = str(request.out.with_name(f"{request.out.stem}_{method}.h5"))
    line = shlex.join([*sources, *words, "--method", method, "-o", out])
    return f"trajcli differentiate {line}, then retime {shlex.quote(out)}"


class Paces:
    """The uniform pace of each trajectory: one factor of its time, and the limit that binds it.

    Attributes:
        limits: bounds of velocity, acceleration and jerk, in the order of the dofs.
        matched: which limit each dof takes, for the result.
        recording, counts: the trajectories that are written, and the rows of each in OUT [n].
        sizes, has_names: see :func:`.write_trajectories`.
        copied: dofs whose actions are positions, whatever the mode.
    """

    def __init__(self, recording: Recording, request: RetimeRequest, files: Files) -> None:
        self._input, self._request, self.sizes = recording, request, dict[str, int]()
        stored = read_limits(request.limits, files.sources)
        names, dofs = recording.dof_labels, recording.dofs
        self.arrays, units, itemsize = self._choose_arrays()
        bounds = stored.bounds(names, itemsize, units, dofs)
        remarks = [x for n in bounds for x in stored.unit_remarks(n, recording.units.get(n))]
        self._remarks = [*dict.fromkeys(remarks), *stored.remarks(names, dofs)]
        self.matched, margin = stored.matched(names, dofs), request.margin
        # No pace changes positions: they are compared with their limits, but do not set the pace,
        # and need no margin.
        self._position, self._beyond = bounds.pop("position", None), 0
        self.limits: fastest.Bounds = {
            name: (margin * b.lower, margin * b.upper) for name, b in bounds.items()
        }
        faults = fastest.limit_faults([*self.limits], self.limits)
        raise_if_any(replace(f, where=f"{request.limits}: {f.where}") for f in faults)
        # shards that differ in length would otherwise disagree on whether trajectories have names
        self.has_names = len({*recording.lengths.tolist()}) > 1

    def _choose_arrays(self) -> tuple[list[str], dict[str, str], int]:
        """Chooses the arrays to read; returns their names, and units and bytes of values in OUT."""
        recording = self._input
        if not (names := [name for name in recording.arrays if name in QUANTITIES]):
            found = ", ".join(recording.arrays)
            hint = _differentiate_command(self._request, recording)
            plain = "actions" not in recording.arrays or recording.file.names() == [""]
            if plain and not self._request.slower_only:
                hint = f"--method fastest if these are positions; or {hint}"
            what, where, expected = "not a trajectory", recording.source, ", ".join(QUANTITIES)
            raise InputError(what, where=where, expected=expected, found=found, hint=hint)
        itemsize = min(recording.arrays[name].precision.itemsize for name in names)
        return names, {name: recording.unit(name) or "" for name in names}, itemsize

    def prepare(self, recording: Recording, report: Report, stack: ExitStack) -> list[Fault]:
        """Takes the trajectories to write, and returns the faults of those that are left out."""
        everything, arrays, count = self._input, self.arrays, len(recording)
        if missing := [name for name in self.limits if name not in arrays]:
            what, where = f"limits of {', '.join(missing)}, and no such rows", everything.source
            expected, found = ", ".join(self.limits), ", ".join(arrays)
            command = _differentiate_command(self._request, everything)
            hint = command if "position" in arrays else "leave them out"
            raise InputError(what, where=where, expected=expected, found=found, hint=hint)
        absolute = str(everything.file.attributes().get("absolute", "")).split(",")
        numbers = everything.dofs.numbers
        self.copied = [dof for dof, number in enumerate(numbers) if str(number) in absolute]
        # the curve between the rows where the file states no mode
        self._curve = curves_between(self._request, everything.select_arrays(arrays)).method
        self.recording, self.counts, self.factor = recording, recording.lengths, np.ones(count)
        # what binds each trajectory: a quantity of a dof at a time; "", -1 and NaN where nothing
        self._quantity = np.full(count, "", object)
        self._dof, self._time = np.full(count, -1), np.full(count, np.nan)
        self._slack = {name: np.ones(count) for name in self.limits}
        return []

    def attributes(self) -> dict[str, Any]:
        stored = self._input.file.attributes()
        stated: dict[str, Any] = {k: v for k, v in stored.items() if k in ANY_PACE}
        if "absolute" in stated:
            stated["absolute"] = ",".join(map(str, self.copied))
        # other starts are named by paths relative to the file that states them
        if stored.get("start") == RECORDED_START:
            stated["start"] = RECORDED_START
        # each trajectory has its own factor, and so its own steps
        return stated | {"dt": "varies", "slower_only": int(self._request.slower_only)}

    def variables(self) -> list[Variable]:
        label, kind = {"long_name": "time_scale"}, np.dtype("f8")
        scale = Variable("time_scale", ("trajectory",), kind, label)
        return [*describe_arrays(self.recording), scale]

    def compute(self, block: Block) -> Results:
        """Finds the pace of each trajectory of a block, and its rows at that pace."""
        values = {name: read_finite_rows(block.recording, name) for name in self.arrays}
        times, indices = read_row_times(block.recording)[0], block.indices

        # The largest values lie between rows. Their curve is that of the file's mode or, without
        # a mode, the one that resample takes; lines and unknown curves have no extremes there.
        mode, options = self.recording.stated_mode.name, self.recording.stated_mode.options
        kinds = {name: self.recording.arrays[name].precision for name in values}
        extremes: dict[str, Any] = {}
        if not is_known(mode, options):
            if self._curve in ARRAY_COUNTS and {"position", "velocity"} <= {*values}:
                extremes = retiming.method_extremes(self._curve, values, times, kinds)
        elif missing := missing_parts(mode, options, values):
            what = "limits hold at the rows alone: between them the curve takes"
            self._remarks.append(Note(f"{what} {', '.join(missing)}"))
        else:  # the curve knows how rounding has moved its rows
            rows = {name: x.astype(kinds[name]) for name, x in values.items()}
            extremes = retiming.extremes(mode, options, rows, times)
        for part in extremes.values():
            part[..., self.copied] = 0.0  # positions that are copied have no curve

        pace = retiming.find_pace(values, self.limits, self._request.slower_only, extremes)
        if (duration := self._request.duration) is not None:
            ends = np.broadcast_to(times[:, -1], len(indices))
            pace = retiming.stretch_pace(pace, ends, duration)
        times = times * pace.factor[:, None]  # t → s·t
        self.factor[indices], self._dof[indices] = pace.factor, pace.dof
        self._quantity[indices] = pace.limited_by
        bound = pace.row >= 0
        self._time[indices[bound]] = times[bound, pace.row[bound]]
        for name, share in pace.slack.items():
            self._slack[name][indices] = share
        self._count_beyond(values.get("position"))
        scaled = retiming.scale_outputs(values, pace.factor)
        yield 0, {"time": times, **scaled, "time_scale": pace.factor}

    def _count_beyond(self, position: Any) -> None:
        if (bounds := self._position) is not None and position is not None:
            # slack forgives the rounding of a motion that was planned to its limits
            excess = np.maximum(position - bounds.upper, bounds.lower - position) / bounds.size
            self._beyond += int((excess > bounds.slack).any((1, 2)).sum())

    def names(self) -> list[str]:
        recording, grouped = self.recording, self.recording.several or self.has_names
        paths = recording.paths
        return recording.output_names(paths) if grouped else [*map(str, range(len(recording)))]

    def result(self) -> dict[str, Any]:
        quantities, labels = self._quantity.tolist(), self._input.dof_labels
        least, most = self.factor.min(initial=np.inf), self.factor.max(initial=-np.inf)
        return {
            "factor": {"least": float(least), "most": float(most)},
            "factors": self.factor.tolist(),
            "limited_by": dict(Counter(name or "nothing" for name in quantities)),
            "binding": {
                "trajectory": self.names(),
                "quantity": [name or None for name in quantities],
                "joint": [None if dof < 0 else labels[dof] for dof in self._dof.tolist()],
                "time": [None if time != time else time for time in self._time.tolist()],
            },
            "slack": {name: share.tolist() for name, share in self._slack.items()},
        }

    def notes(self) -> list[str]:
        notes = list(self._remarks)
        if self._beyond:
            share = f"{self._beyond} of {len(self.counts)} trajectories"
            notes.append(f"positions beyond their limits in {share}, which no pace changes")
        return notes


class _Timing(NamedTuple):
    """What the result says of a timing, and where its control points lie in the temporary file."""

    recorded: float | None  # durations: of the rows, of OUT and by the fastest uniform pace
    duration: float
    uniform: float
    state: str
    rows: int
    step: float
    offset: int
    dwells: Sequence[tuple[float, float]]
    corners: Sequence[tuple[float, float]]
    remarks: Sequence[fastest.Remark]


class Timings(Paces):
    """The fastest timing of each trajectory along its path."""

    def _choose_arrays(self) -> tuple[list[str], dict[str, str], int]:
        recording = self._input
        name = "position" if "position" in recording.arrays else next(iter(recording.arrays))
        known = name == "position" or recording.named or recording.file.names() == [""]
        if not known or name in QUANTITIES[1:] or (name != "position" and recording.rate_name):
            raise InputError(no_positions(recording))
        # velocity and acceleration say whether a path moves at its ends
        rates = [n for n in QUANTITIES[1:3] if name == "position" and n in recording.arrays]
        unit = self._unit = recording.unit(name)
        return [name, *rates], {q: derive_unit(q, unit) for q in QUANTITIES if unit}, 8

    def prepare(self, recording: Recording, report: Report, stack: ExitStack) -> list[Fault]:
        request, everything, limits, index = self._request, self._input, self.limits, -1
        if free := [name for name in QUANTITIES[1:] if name not in limits]:
            text = f"no limits of {' and '.join(free)}, which may be of any size"
            self._remarks.append(Note(text) if free == ["jerk"] else text)
        self._ends: EndsName = "plan"
        # without --to, setpoints are at least as dense as the recorded rows
        self._rate = request.to or max(_RATE, 1 / (everything.step or 1))
        self._even = request.rows is None and request.duration is None
        self.has_names, faults = len(everything) > 1 and self._even, list[Fault]()
        # OUT of all shards has goal states if any of its trajectories moves at its end, so a
        # shard looks through the others'; without rates none moves there
        if request.shard and len(self.arrays) > 1:
            for _ in self._courses(everything.select_arrays(self.arrays), []):
                pass

        # How many rows OUT has must be known before any are written. Until then control points lie
        # in a file without a name in its folder, which ends with the process.
        courses, timings = self._courses(recording, faults), dict[int, _Timing]()
        with os_failures(request.path), hold_signals():
            self._points = stack.enter_context(TemporaryFile(dir=request.path.parent))  # noqa: SIM115
            # so many at once that a signal is answered within about a second
            while group := list(islice(courses, 8 * processors())):
                timed = fastest.solve_timings([course for _, course, _ in group], limits)
                for (index, course, recorded), timing in zip(group, timed, strict=True):
                    with self._collect_faults(recording, index, faults):
                        points = fastest.make_setpoints(
                            course, timing, limits, self._rate, request.rows, request.duration
                        )
                        timings[index] = _Timing(
                            recorded, (points.count - 1) * points.step, timing.uniform,
                            timing.state, points.count, points.step, self._points.tell(),
                            course.dwells, course.corners,
                            [*_course_remarks(course, recorded is not None)],
                        )  # fmt: skip
                        state_points = [points.start, points.goal, points.actions]
                        np.save(self._points, np.concatenate(state_points))
                raise_if_any(() if request.skip_bad else faults[:MOST_FAULTS])
                report.on_progress(index + 1, len(recording))
                if signal := pending_signal():
                    raise stop_error(request.out, signal, index + 1, len(recording))
        raise_if_any(() if timings and request.skip_bad else faults[:MOST_FAULTS])

        self.recording, self._timings = recording.take([*timings]), [*timings.values()]
        self.counts = np.array([timing.rows for timing in self._timings], np.int64)
        # a plan of n rows has n - 5 control points
        self.sizes = {"point": int(self.counts.max(initial=5)) - 5, "each": 1}
        self._shares = {name: np.zeros((len(timings), recording.shape[2])) for name in limits}
        cut = isinstance(request.turns, float)  # which leaves no noise
        if everything.clock and not everything.stated_mode.name and timings and not cut:
            first = self.recording.take([0])
            rows, times = first.arrays[self.arrays[0]].read()[0], read_row_times(first)[0][0]
            if (cost := fastest.noise_cost(rows, times, limits)) is not None:
                what = f"noise in the rows costs {100 * cost:.0f} % of the time"
                command = _differentiate_command(request, everything, "smooth")
                self._remarks.append(f"{what} (measured on trajectory 0): {command}")
        return faults

    def _courses(
        self, recording: Recording, faults: list[Fault]
    ) -> Iterator[tuple[int, fastest.Course, float | None]]:
        """Yields the index, the path and the duration of each trajectory; adds others' faults."""
        index = -1
        for block in recording.blocks():
            # what --skip-bad leaves out may be in other shards
            arrays = [read_finite_rows(block, n, self._request.skip_bad) for n in self.arrays]
            times = np.broadcast_to(read_row_times(block)[0], (len(block), block.rows))
            for rows, *rates, line in zip(*arrays, times, strict=True):
                index, course, knots = index + 1, None, line if block.clock else None
                states = dict(zip(self.arrays[1:], rates, strict=True))
                with self._collect_faults(recording, index, faults):
                    course = fastest.make_course(rows, knots, **states, corners=self._request.turns)
                if course is not None:
                    self._ends = "goal" if course.moving[1] else self._ends
                    self._even &= not all(course.moving)  # whose speeds leave no step free
                    yield index, course, None if knots is None else float(knots[-1])

    @contextmanager
    def _collect_faults(
        self, recording: Recording, index: int, faults: list[Fault]
    ) -> Iterator[None]:
        try:
            yield
        except InputError as error:
            for fault in error.faults:
                where = f"{recording.place_text(index)}, {fault.where}"
                hint = fault.shell or fault.hint
                # a uniform pace needs the rows of every limit
                if hint == "--method uniform" and not {*self.limits} <= {*self._input.arrays}:
                    hint = _differentiate_command(self._request, self._input)
                faults.append(replace(fault, where=where, hint=hint, shell=""))

    def attributes(self) -> dict[str, Any]:
        about = {"mode": "bspline", "degree": 3, "steps": 1, "ends": self._ends}
        return {**about, "method": "fastest", "dt": 1 / self._rate if self._even else "varies"}

    def variables(self) -> list[Variable]:
        unit, roles = self._unit, ["start", "goal"] if self._ends == "goal" else ["start"]
        rows = [row_variable(q, np.float64, unit and derive_unit(q, unit)) for q in QUANTITIES]
        return [*rows, *describe_control_points(unit, roles)]

    def compute(self, block: Block) -> Results:
        timings, arrays = [self._timings[index] for index in block.indices.tolist()], list[Any]()
        for timing in timings:
            self._points.seek(timing.offset)
            arrays.append(np.load(self._points))
        # [b, 4 + 4 + H, D]: start and goal states, then the control points, as prepare saved them
        points, step = np.stack(arrays), np.array([[timing.step] for timing in timings])
        states: dict[str, Any] = {"start": State(*points[:, :4].swapaxes(0, 1))}
        if self._ends == "goal":
            states["goal"] = State(*points[:, 4:8].swapaxes(0, 1))
        # rows are those that integrate makes of the control points in OUT
        motion = integrate(
            points[:, 8:], dt=step, mode="bspline", ends=self._ends, backend="native", **states
        )
        rows: dict[str, Any] = motion.outputs()
        for name, shares in fastest.binding_shares(rows, self.limits).items():
            self._shares[name][block.indices] = shares
        self._count_beyond(rows["position"])
        yield 0, {
            **rows, "time": np.atleast_2d(motion.time), "actions": points[:, 8:], "dt": step,
            **{f"{role}/{n}": x for role, s in states.items() for n, x in s.parts().items()},
        }  # fmt: skip

    def result(self) -> dict[str, Any]:
        timings = self._timings
        return {
            "trajectory": self.names(),
            "durations": {
                "before": [timing.recorded for timing in timings],
                "after": [timing.duration for timing in timings],
                "uniform": [timing.uniform for timing in timings],
            },
            "states": [timing.state for timing in timings],
            "rows": [timing.rows for timing in timings],
            "dwells": [timing.dwells for timing in timings],
            "corners": [timing.corners for timing in timings],
            "joints": [*self._input.dof_labels],
            "shares": {name: share.tolist() for name, share in self._shares.items()},
        }

    def notes(self) -> list[str]:
        notes, names = super().notes(), self.names()
        remarks = [(x, n) for n, t in zip(names, self._timings, strict=True) for x in t.remarks]
        for kind in dict.fromkeys(remark.kind for remark, _ in remarks):
            same_kind = [(x.size, x.text, name) for x, name in remarks if x.kind == kind]
            text = join_names((text for _, text, _ in same_kind), 3)
            if len(names) > 1:
                # of many trajectories, the one where most is left out or assumed
                _, most, name = max(same_kind)
                count = f"{len({n for *_, n in same_kind})} of {len(names)} trajectories"
                text = f"{most} in {name}, the most; found in {count}" if most else count
            notes.append(Note(f"{kind}: {text}" if text else kind))
        return notes


def _course_remarks(course: fastest.Course, has_times: bool) -> Iterator[fastest.Remark]:
    """Yields the remarks on a path: where it rests, moves at an end, or is assumed."""
    for begin, end in course.dwells:
        text = f"{begin:.6g} to {end:.6g} s"
        yield fastest.Remark("standstill left out", end - begin, text)
    for knot, angle in course.corners:
        text = f"{f'{knot:.6g} s' if has_times else f'row {knot:g}'} ({angle:.0f}°)"
        yield fastest.Remark("rest at corners", angle, text)
    for side, name in enumerate(("start", "end")):
        if course.moving[side]:
            speed = float(np.abs(np.array(course.paths[-side].ends)[side, 0]).max())
            yield fastest.Remark("in motion at ends", speed, f"{speed:.3g}/s at the {name}")
    yield from course.remarks
