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
    array_variables,
    computable,
    control_variables,
    finite_rows,
    read_trajectories,
    row_times,
    write_rows,
)
from trajcli.jobs.job import Arrays, Block, Results
from trajcli.jobs.request import SourceRequest
from trajcli.jobs.resample import curves_between
from trajcli.kernels.program import Floats
from trajcli.mode_options import ANY_PACE
from trajcli.names import EndsName
from trajcli.system import hold_signals, pending_signal, processors
from trajcli.trajectory import State

_RATE = 1000.0  # of the setpoints of slower sources, in Hz
# The options of one method alone, and the first variables of OUT, in the order of merge.
_OF_METHOD = {"uniform": ("slower_only",), "fastest": ("to", "rows", "corners")}
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
        """Yields the faults of options that cannot be combined."""
        if self.to is not None and self.rows is not None:
            yield Fault("a rate and a number of rows", where="--to and --rows", expected="one")
        if self.turns not in (None, "stop") and not isinstance(self.turns, float):
            what, expected = "neither stop nor a distance", "stop, or a distance like 0.05"
            yield Fault(what, where="--corners", expected=expected, found=str(self.turns))
        other = "fastest" if method == "uniform" else "uniform"
        for name in _OF_METHOD[other]:
            if getattr(self, name) not in (None, False):
                yield Fault(f"an option of --method {other}", where=f"--{name.replace('_', '-')}")

    @property
    def turns(self) -> str | float | None:
        """What becomes of corners: None refuses them, "stop" rests there, a distance cuts them."""
        values = parse_floats(self.corners or "")
        return float(values[0]) if values and values[0] > 0 else self.corners


def run_retime(request: RetimeRequest, report: Report | None = None) -> dict[str, Any]:
    """Reads trajectories, times them anew and writes them; returns the result as plain values.

    Raises TrajcliError with every fault that was found. OUT is then what it was before.
    """
    if (shard := request.shard) is not None:
        from trajcli.jobs.shards import done_already

        if done := done_already(request):
            return done
    refuse_output(request.out, request.overwrite or shard is not None)
    with Files(request, report=report) as files, ExitStack() as opened:
        whole = read_trajectories(request, files, actions=False, paths=True)
        method = request.method or ("uniform" if whole.clock else "fastest")
        raise_if_any(request.faults(method), UsageError)
        if not whole.clock and method == "uniform":
            fault = no_time(whole)
            raise InputError(replace(fault, hint=f"--method fastest; or {fault.hint}"))
        if not whole.clock:
            files.report.add_notes(Note("no times: the rows are a path"))
        paces = (Paces if method == "uniform" else Timings)(whole, request, files)
        part = whole if shard is None else whole.take(slice(*shard.share(len(whole))))
        good, left_out = computable(request, part)
        left_out += paces.prepare(part.take(good).select_arrays(paces.arrays), files.report, opened)
        stamps = paces.recording.start_stamps(relative=shard is not None)
        variables = [*paces.variables(), time_variable(len(whole) == 1), *stamp_variables(stamps)]
        variables.sort(key=lambda v: ((*_FIRST, v.name).index(v.name), v.name))
        for k, v in enumerate(variables):  # plot draws the limits that they keep
            sides = zip(("lower_limit", "upper_limit"), paces.limits.get(v.name, ()), strict=False)
            variables[k] = replace(v, attributes=dict(sorted([*v.attributes.items(), *sides])))
        stated = {**paces.stated(), "limits": Place(str(request.limits))}
        result = write_rows(
            request, files, paces.recording, paces.counts, variables, paces.compute, stated,
            left_out, paces.sizes, paces.named,
        )  # fmt: skip
        files.report.add_notes(*paces.notes())
    about = {"limits": str(request.limits), "method": method, "matched": paces.matched}
    return {**result, **about, **paces.result()}


def _way(request: RetimeRequest, recording: Recording, method: str = "central") -> str:
    """Returns the command that makes a trajectory of arrays: by central, their positions stay."""
    sources, layout, member = request.sources, recording.layout, recording.member
    if "actions" in recording.arrays and not recording.named and recording.file.names() != [""]:
        near = layout and member and layout.position_names(member)
        if not near:
            return "trajcli integrate takes actions, differentiate --method central positions"
        sources = [f"{parse_source(text).path}:{near[0]}" for text in sources]
    read = {x.name.replace("_", "-"): getattr(request, x.name) for x in fields(Reading)}
    words = [w for k, x in read.items() if x for w in (f"--{k}", str(x))[: 1 + (x is not True)]]
    words += ["--overwrite"] * request.overwrite
    out = str(request.out.with_name(f"{request.out.stem}_{method}.h5"))
    line = shlex.join([*sources, *words, "--method", method, "-o", out])
    return f"trajcli differentiate {line}, then retime {shlex.quote(out)}"


class Paces:
    """Limits, and for every trajectory the factor of its time and the limit that binds it.

    Attributes:
        arrays: the names of those that are read.
        limits: those of velocity, acceleration and jerk, in the order of the dofs.
        recording, counts: the trajectories that are written, and the rows of each in OUT [n].
        sizes, named: see :func:`.write_rows`.
        factor: the scaling of time [n].
        copied: dofs whose actions are positions whatever the mode.
    """

    def __init__(self, whole: Recording, request: RetimeRequest, files: Files) -> None:
        """Raises InputError for arrays that cannot be timed."""
        self._whole, self._request, self.sizes = whole, request, dict[str, int]()
        stored = read_limits(request.limits, files.sources)
        names, picked = whole.dof_labels, whole.dofs
        self.arrays, units, itemsize = self._read()
        bounds = stored.bounds(names, itemsize, units, picked)
        remarks = [x for n in bounds for x in stored.unit_remarks(n, whole.units.get(n))]
        self._remarks = [*dict.fromkeys(remarks), *stored.remarks(names, picked)]
        self.matched, by = stored.matched(names, picked), request.margin
        self._position, self._beyond = bounds.pop("position", None), 0
        self.limits: fastest.Bounds = {n: (by * b.lower, by * b.upper) for n, b in bounds.items()}
        faults = fastest.limit_faults([*self.limits], self.limits)
        raise_if_any(replace(f, where=f"{request.limits}: {f.where}") for f in faults)
        self.named = len({*whole.lengths.tolist()}) > 1

    def _read(self) -> tuple[list[str], dict[str, str], int]:
        """Returns the names of the arrays to read, and the units and the bytes of values in OUT."""
        whole = self._whole
        if not (names := [name for name in whole.arrays if name in QUANTITIES]):
            found, hint = ", ".join(whole.arrays), _way(self._request, whole)
            plain = "actions" not in whole.arrays or whole.file.names() == [""]
            if plain and not self._request.slower_only:
                hint = f"--method fastest if these are positions; or {hint}"
            what, where, expected = "not a trajectory", whole.source, ", ".join(QUANTITIES)
            raise InputError(what, where=where, expected=expected, found=found, hint=hint)
        itemsize = min(whole.arrays[name].precision.itemsize for name in names)
        return names, {name: whole.unit(name) or "" for name in names}, itemsize

    def prepare(self, recording: Recording, report: Report, opened: ExitStack) -> list[Fault]:
        """Takes the trajectories to write, and returns the faults of those that are left out.

        Raises InputError for limits of quantities that the trajectories do not have.
        """
        whole, arrays, count = self._whole, self.arrays, len(recording)
        if missing := [name for name in self.limits if name not in arrays]:
            what, where = f"limits of {', '.join(missing)}, and no such rows", whole.source
            expected, found = ", ".join(self.limits), ", ".join(arrays)
            hint = _way(self._request, whole) if "position" in arrays else "leave them out"
            raise InputError(what, where=where, expected=expected, found=found, hint=hint)
        absolute = str(whole.file.attributes().get("absolute", "")).split(",")
        self.copied = [k for k, number in enumerate(whole.dofs.numbers) if str(number) in absolute]
        # where the file states no mode
        self._curve = curves_between(self._request, whole.select_arrays(arrays)).method
        self.recording, self.counts, self.factor = recording, recording.lengths, np.ones(count)
        # what binds each trajectory: a quantity of a dof at a time; "", -1 and NaN where nothing
        self._quantity = np.full(count, "", object)
        self._dof, self._time = np.full(count, -1), np.full(count, np.nan)
        self._slack = {name: np.ones(count) for name in self.limits}
        return []

    def stated(self) -> dict[str, Any]:
        """Returns the attributes of OUT."""
        stored = self._whole.file.attributes()
        stated: dict[str, Any] = {k: v for k, v in stored.items() if k in ANY_PACE}
        if "absolute" in stated:
            stated["absolute"] = ",".join(map(str, self.copied))
        if stored.get("start") == RECORDED_START:  # other starts are named as seen from their file
            stated["start"] = RECORDED_START
        # each trajectory has its own factor, and so its own steps
        return stated | {"dt": "varies", "slower_only": int(self._request.slower_only)}

    def variables(self) -> list[Variable]:
        """Describes what OUT has beside times."""
        label, kind = {"long_name": "time_scale"}, np.dtype("f8")
        scale = Variable("time_scale", ("trajectory",), kind, label)
        return [*array_variables(self.recording), scale]

    def compute(self, block: Block) -> Results:
        """Returns the variables of a block."""
        values = {name: finite_rows(block.recording, name) for name in self.arrays}
        times, exact, places = row_times(block.recording)[0], self._request.duration, block.places
        between = self._between(values, times)
        pace = retiming.find_pace(values, self.limits, self._request.slower_only, between)
        if exact is not None:
            pace = retiming.stretch_pace(pace, np.broadcast_to(times[:, -1], len(places)), exact)
        times = times * pace.factor[:, None]  # t → s·t
        self.factor[places], self._dof[places] = pace.factor, pace.dof
        self._quantity[places] = pace.limited_by
        bound = pace.row >= 0
        self._time[places[bound]] = times[bound, pace.row[bound]]
        for name, share in pace.slack.items():
            self._slack[name][places] = share
        self._look(values.get("position"))
        yield (
            0,
            {
                "time": times,
                **retiming.scale_outputs(values, pace.factor),
                "time_scale": pace.factor,
            },
        )

    def _look(self, position: Any) -> None:
        """Counts the trajectories with positions [b, T, D] beyond their limits."""
        if (bounds := self._position) is not None and position is not None:
            # slack forgives the rounding of a motion that was planned to its limits
            excess = np.maximum(position - bounds.upper, bounds.lower - position) / bounds.size
            self._beyond += int((excess > bounds.slack).any((1, 2)).sum())

    def _between(self, values: Arrays, times: Floats) -> dict[str, Floats]:
        """Returns the extremes between the rows by quantity: of the curve of the file's mode, else
        of that which resample sends. Lines, and dofs whose positions are copied, have none."""
        mode, options = self.recording.stated_mode.name, self.recording.stated_mode.options
        kinds = {name: self.recording.arrays[name].precision for name in values}
        reached = dict[str, Floats]()
        if not is_known(mode, options):
            if self._curve in ARRAY_COUNTS and {"position", "velocity"} <= {*values}:
                reached = retiming.method_extremes(self._curve, values, times, kinds)
        elif needed := missing_parts(mode, options, values):
            what = "limits hold at the rows alone: between them the curve takes"
            self._remarks.append(Note(f"{what} {', '.join(needed)}"))
        else:  # the curve knows how rounding has moved its rows
            rows = {name: x.astype(kinds[name]) for name, x in values.items()}
            reached = retiming.extremes(mode, options, rows, times)
        for part in reached.values():
            part[..., self.copied] = 0.0
        return reached

    def names(self) -> list[str]:
        """Returns the names of the trajectories: of their groups, or their numbers."""
        whole, named = self.recording, self.recording.several or self.named
        return whole.output_names(whole.paths) if named else [*map(str, range(len(whole)))]

    def result(self) -> dict[str, Any]:
        """Returns all results as plain values; trajectories by group name or number."""
        quantities, labels = self._quantity.tolist(), self._whole.dof_labels
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
        """Returns the warnings about limits."""
        notes = list(self._remarks)
        if self._beyond:
            share = f"{self._beyond} of {len(self.counts)} trajectories"
            notes.append(f"positions beyond their limits in {share}, which no pace changes")
        return notes


class _Timed(NamedTuple):
    """What the result says of a timing, and where its control points lie in the temporary file.

    before, after, uniform: durations of the rows, of OUT and by the fastest uniform pace.
    """

    before: float | None
    after: float
    uniform: float
    state: str
    rows: int
    step: float
    at: int
    dwells: Sequence[tuple[float, float]]
    corners: Sequence[tuple[float, float]]
    remarks: Sequence[fastest.Remark]


class Timings(Paces):
    """The fastest timing of each trajectory along its path.

    How many rows OUT has must be known before any are written: until then control points lie in a
    file without a name in its folder, which ends with the process.
    """

    def _read(self) -> tuple[list[str], dict[str, str], int]:
        whole = self._whole
        name = "position" if "position" in whole.arrays else next(iter(whole.arrays))
        known = name == "position" or whole.named or whole.file.names() == [""]
        if not known or name in QUANTITIES[1:] or (name != "position" and whole.rate_name):
            raise InputError(no_positions(whole))
        rates = [n for n in QUANTITIES[1:3] if name == "position" and n in whole.arrays]
        unit = self._unit = whole.unit(name)
        return [name, *rates], {q: derive_unit(q, unit) for q in QUANTITIES if unit}, 8

    def prepare(self, recording: Recording, report: Report, opened: ExitStack) -> list[Fault]:
        request, whole, limits, place = self._request, self._whole, self.limits, -1
        if free := [name for name in QUANTITIES[1:] if name not in limits]:
            text = f"no limits of {' and '.join(free)}, which may be of any size"
            self._remarks.append(Note(text) if free == ["jerk"] else text)
        self._ends: EndsName = "plan"
        self._rate = request.to or max(_RATE, 1 / (whole.step or 1))
        self._even = request.rows is None and request.duration is None
        self.named, faults = len(whole) > 1 and self._even, list[Fault]()
        if request.shard and len(self.arrays) > 1:  # without rates none moves at an end
            for _ in self._courses(whole.select_arrays(self.arrays), []):
                pass  # whether any trajectory of OUT does
        # by place: what the result says of a timing, where its control points lie
        courses, done = self._courses(recording, faults), dict[int, _Timed]()
        with os_failures(request.path), hold_signals():
            self._points = opened.enter_context(TemporaryFile(dir=request.path.parent))  # noqa: SIM115
            # so many that a signal is answered within about a second
            while some := list(islice(courses, 8 * processors())):
                timings = fastest.solve_timings([course for _, course, _ in some], limits)
                for (place, course, before), timing in zip(some, timings, strict=True):
                    with self._placed(recording, place, faults):
                        made = fastest.make_setpoints(
                            course, timing, limits, self._rate, request.rows, request.duration
                        )
                        after, at = (made.count - 1) * made.step, self._points.tell()
                        done[place] = _Timed(
                            before, after, timing.uniform, timing.state, made.count, made.step, at,
                            course.dwells, course.corners, [*_remarks(course, before is not None)],
                        )  # fmt: skip
                        np.save(self._points, np.concatenate([made.start, made.goal, made.actions]))
                raise_if_any(() if request.skip_bad else faults[:MOST_FAULTS])
                report.on_progress(place + 1, len(recording))
                if signal := answered():
                    raise stop_error(request.out, signal, place + 1, len(recording))
        raise_if_any(() if done and request.skip_bad else faults[:MOST_FAULTS])
        self.recording, self._timed = recording.take([*done]), [*done.values()]
        self.counts = np.array([timed.rows for timed in self._timed], np.int64)
        self.sizes = {"point": int(self.counts.max(initial=5)) - 5, "each": 1}
        self._shares = {name: np.zeros((len(done), recording.shape[2])) for name in limits}
        cut = isinstance(request.turns, float)  # which leaves no noise
        if whole.clock and not whole.stated_mode.name and done and not cut:
            first = self.recording.take([0])
            rows, times = first.arrays[self.arrays[0]].read()[0], row_times(first)[0][0]
            if (cost := fastest.noise_cost(rows, times, limits)) is not None:
                what = f"noise in the rows costs {100 * cost:.0f} % of the time"
                way = _way(request, whole, "smooth")
                self._remarks.append(f"{what} (measured on trajectory 0): {way}")
        return faults

    def _courses(
        self, recording: Recording, faults: list[Fault]
    ) -> Iterator[tuple[int, fastest.Course, float | None]]:
        """Yields the place of each trajectory, its path and its duration; adds the faults of those
        that have none."""
        place = -1
        for block in recording.blocks():
            # what --skip-bad leaves out may be in other shards
            arrays = [finite_rows(block, n, self._request.skip_bad) for n in self.arrays]
            clock = block.clock
            times = np.broadcast_to(row_times(block)[0], (len(block), block.rows))
            for rows, *rates, line in zip(*arrays, times, strict=True):
                place, course, at = place + 1, None, line if clock else None
                own = dict(zip(self.arrays[1:], rates, strict=True))
                with self._placed(recording, place, faults):
                    course = fastest.make_course(rows, at, **own, corners=self._request.turns)
                if course is not None:
                    self._ends = "goal" if course.moving[1] else self._ends
                    self._even &= not all(course.moving)  # whose speeds leave no step free
                    yield place, course, float(line[-1]) if clock else None

    @contextmanager
    def _placed(self, recording: Recording, place: int, faults: list[Fault]) -> Iterator[None]:
        """Adds the faults of a trajectory, with its place."""
        try:
            yield
        except InputError as error:
            for fault in error.faults:
                where = f"{recording.place_text(place)}, {fault.where}"
                hint = fault.shell or fault.hint
                if hint == "--method uniform" and not {*self.limits} <= {*self._whole.arrays}:
                    hint = _way(self._request, self._whole)
                faults.append(replace(fault, where=where, hint=hint, shell=""))

    def stated(self) -> dict[str, Any]:
        about = {"mode": "bspline", "degree": 3, "steps": 1, "ends": self._ends}
        return {**about, "method": "fastest", "dt": 1 / self._rate if self._even else "varies"}

    def variables(self) -> list[Variable]:
        unit, roles = self._unit, ["start", "goal"] if self._ends == "goal" else ["start"]
        rows = [row_variable(q, np.float64, unit and derive_unit(q, unit)) for q in QUANTITIES]
        return [*rows, *control_variables(unit, roles)]

    def compute(self, block: Block) -> Results:
        some, arrays = [self._timed[place] for place in block.places.tolist()], list[Any]()
        for timed in some:
            self._points.seek(timed.at)
            arrays.append(np.load(self._points))
        points, step = np.stack(arrays), np.array([[timed.step] for timed in some])
        states: dict[str, Any] = {"start": State(*points[:, :4].swapaxes(0, 1))}
        if self._ends == "goal":
            states["goal"] = State(*points[:, 4:8].swapaxes(0, 1))
        motion = integrate(
            points[:, 8:], dt=step, mode="bspline", ends=self._ends, backend="native", **states
        )
        rows = motion.outputs()
        for name, shares in fastest.binding_shares(rows, self.limits).items():
            self._shares[name][block.places] = shares
        self._look(rows["position"])
        yield 0, {
            **rows, "time": np.atleast_2d(motion.time), "actions": points[:, 8:], "dt": step,
            **{f"{role}/{n}": x for role, s in states.items() for n, x in s.parts().items()},
        }  # fmt: skip

    def result(self) -> dict[str, Any]:
        def of(name: str) -> list[Any]:
            return [getattr(timed, name) for timed in self._timed]

        return {
            "trajectory": self.names(),
            "durations": {name: of(name) for name in ("before", "after", "uniform")},
            "states": of("state"), "rows": of("rows"),
            "dwells": of("dwells"), "corners": of("corners"),
            "joints": [*self._whole.dof_labels],
            "shares": {name: share.tolist() for name, share in self._shares.items()},
        }  # fmt: skip

    def notes(self) -> list[str]:
        """Returns where motion rests, what is assumed of ends, and the warnings about limits."""
        notes, names = super().notes(), self.names()
        remarks = [(x, n) for n, t in zip(names, self._timed, strict=True) for x in t.remarks]
        for kind in dict.fromkeys(remark.kind for remark, _ in remarks):
            alike = [(x.size, x.text, name) for x, name in remarks if x.kind == kind]
            text = join_names((text for _, text, _ in alike), 3)
            if len(names) > 1:
                _, most, name = max(alike)
                count = f"{len({n for *_, n in alike})} of {len(names)} trajectories"
                text = f"{most} in {name}, the most; found in {count}" if most else count
            notes.append(Note(f"{kind}: {text}" if text else kind))
        return notes


def _remarks(course: fastest.Course, timed: bool) -> Iterator[fastest.Remark]:
    """Yields what is said of a path that has been timed."""
    for begin, end in course.dwells:
        text = f"{begin:.6g} to {end:.6g} s"
        yield fastest.Remark("standstill left out", end - begin, text)
    for place, angle in course.corners:
        text = f"{f'{place:.6g} s' if timed else f'row {place:g}'} ({angle:.0f}°)"
        yield fastest.Remark("rest at corners", angle, text)
    for side, name in enumerate(("start", "end")):
        if course.moving[side]:
            speed = float(np.abs(np.array(course.paths[-side].ends)[side, 0]).max())
            yield fastest.Remark("in motion at ends", speed, f"{speed:.3g}/s at the {name}")
    yield from course.remarks
