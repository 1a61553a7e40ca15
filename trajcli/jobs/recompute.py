"""An output computed once more: from the sources that it names, or from what it holds itself."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from trajcli.errors import Fault, InputError
from trajcli.files.arrays import ArrayFile, StoredArray
from trajcli.files.opening import open_arrays
from trajcli.files.schema import QUANTITIES, RECORDED_ROW, RECORDED_START
from trajcli.files.source import parse_source
from trajcli.jobs.request import Request
from trajcli.jobs.run import run

_OPTIONS = ("scheme", "ends", "frames", "convention", "degree", "steps")
_SHARE = re.compile(r" \((\S+: )?rows \d+ to \d+\)$", re.MULTILINE)
"""Behind a source, which of its rows are one trajectory: all of them are computed again."""
_ORDERS = {"clique": 0, "velocity": 1, "acceleration": 2, "jerk": 3, "central": 0, "teleport": 0}


@dataclass(frozen=True)
class Recomputed:
    """The arrays of a re-computation by name, and what they were computed from, a line each."""

    arrays: Mapping[str, StoredArray]
    origin: str


@contextmanager
def recomputed(
    file: ArrayFile, sources: Sequence[str], allow_external: bool, untrusted: bool
) -> Iterator[Recomputed]:
    """An output once more. From ``sources`` where given; else from those it names, where they
    lie beside it or in the current folder; else from its own actions and start row.

    The first two are written into a temporary folder. Raises InputError where neither can be.
    """
    attributes = dict(file.attributes())
    if "mode" not in attributes or "dt" not in attributes:
        expected = "an output of trajcli integrate: mode, options and dt as attributes"
        raise InputError(Fault("cannot be computed again", str(file.path), expected))
    found, why = (list(sources), "") if sources else _recorded(file, attributes)
    if not found:
        arrays = _from_itself(file, attributes, why)
        yield Recomputed(
            arrays, f"its own actions and start row, as far as they are not rounded ({why})"
        )
        return
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="trajcli-")))
        out = folder / "again.h5"
        request = _request(file, attributes, found, out, bool(sources))
        run(_with(request, allow_external=allow_external, untrusted=untrusted))
        again = stack.enter_context(open_arrays(out))
        names = [name for name in again.names() if again.require(name).numeric]
        yield Recomputed({name: again.require(name) for name in names}, "\n".join(found))


def _with(request: Request, **values: Any) -> Request:
    from dataclasses import replace

    return replace(request, **values)


def _recorded(file: ArrayFile, attributes: Mapping[str, Any]) -> tuple[list[str], str]:
    """The sources that an output names, a line each, or why there are none."""
    told = _SHARE.sub("", str(attributes.get("source", "")))
    if not told:
        return [], "it names no source"
    found = {source: _located(file, source) for source in told.split("\n")}
    lacking = next((source for source, place in found.items() if place is None), None)
    if lacking is not None:
        return [], f"{lacking} is neither beside it nor in this folder"
    return [place for place in found.values() if place], ""


def _located(file: ArrayFile, told: str) -> str | None:
    """A FILE[:DATASET] without its folder, with the folder where it is found."""
    source = parse_source(told)
    for folder in (file.path.parent, Path()):
        path = folder / source.path.name
        if os.path.isfile(path) and not os.path.samefile(path, file.path):
            return f"{path}:{source.dataset}" if source.dataset else str(path)
    return None


def _request(
    file: ArrayFile, attributes: Mapping[str, Any], sources: list[str], out: Path, given: bool
) -> Request:
    """The job whose output the file is."""
    arrays = {name.rpartition("/")[2]: name for name in file.names()}
    wanted = [name for name in QUANTITIES if name in arrays]
    if not wanted:
        expected = f"any of {', '.join(QUANTITIES)}"
        raise InputError(Fault("nothing to compare", str(file.path), expected))
    options = {name: _plain(attributes[name]) for name in _OPTIONS if name in attributes}
    if str(attributes["mode"]) == "central" and attributes.get("start") != RECORDED_START:
        options["ends"] = options.get("ends") or "plan"
    dt, times = _steps(file, attributes, given)
    index = file.get("start_index")
    start = _start(file, attributes, given)
    return Request(
        sources=sources,
        out=out,
        mode=str(attributes["mode"]),
        options=options,
        dt=dt,
        times=times,
        repeated_times=str(attributes.get("repeated_times", "error")),
        start=start,
        start_index=f"{file.path}:start_index" if index is not None and start else None,
        goal=_goal(file, attributes, sources, given),
        write=wanted,
        wrap_dofs=tuple(int(d) for d in str(attributes.get("wrap_dofs", "")).split(",") if d),
        max_gap=_plain(attributes.get("max_gap")),
        smooth=tuple(name for name in str(attributes.get("smooth", "")).split(",") if name),
        pack="lengths" in arrays,
        dtype=str(file.require(arrays[wanted[0]]).dtype.newbyteorder("=")),
        device="cpu",
        allow_nonfinite=True,
    )


def _steps(
    file: ArrayFile, attributes: Mapping[str, Any], given: bool
) -> tuple[str | None, str | None]:
    """--dt and --times as they must have been; neither where the source itself says them."""
    dt = attributes["dt"]
    if not isinstance(dt, str):
        return repr(float(dt)), None
    told = str(attributes.get("dt_source", ""))
    if told.startswith("the inputs"):
        return None, None
    stamps = told.removeprefix("time stamps ")
    where = _located(file, stamps)
    if given or where is None:
        return None, None
    return (None, where) if stamps != told else (where, None)


def _start(file: ArrayFile, attributes: Mapping[str, Any], given: bool) -> str | None:
    told = str(attributes.get("start", "none"))
    if told == "zero":
        return "zero"
    if told == RECORDED_START:
        return "first"
    _require_one("start", file, told)
    beside = told in ("none", "each input's own") or RECORDED_ROW in told or given
    if beside and not _is_file(told):
        return None
    found = _located(file, told)
    if found is None and not given:
        raise InputError(_missing("start", file, told))
    return found


def _goal(
    file: ArrayFile, attributes: Mapping[str, Any], sources: Sequence[str], given: bool
) -> str | None:
    """--goal as it must have been; None where there is none, or it lies beside the actions."""
    told = str(attributes.get("goal", "none"))
    if told in ("none", "zero", "each input's own"):
        return "zero" if told == "zero" else None
    _require_one("goal", file, told)
    if given and not _is_file(told):
        return None
    found = _located(file, told)
    if found is None and not given:
        raise InputError(_missing("goal", file, told))
    goal = parse_source(found or told)
    name = (goal.dataset or "").rpartition("/")[2]
    beside = any(parse_source(source).path == goal.path for source in sources)
    return None if beside and name.startswith("goal") else found


def _require_one(role: str, file: ArrayFile, told: str) -> None:
    """Raise InputError for a state whose parts came from several datasets."""
    if ", " not in told or RECORDED_ROW in told or _is_file(told):
        return
    hint = "integrate the source again, and diff the two outputs"
    raise InputError(Fault(f"a {role} state of several places", str(file.path), "one", told, hint))


def _missing(role: str, file: ArrayFile, told: str) -> Fault:
    hint = "trajcli diff OUT SOURCE --recompute names the source"
    return Fault(f"the {role} state is not found", str(file.path), told, hint=hint)


def _is_file(told: str) -> bool:
    """Whether a start is a file of its own: an .npy holds nothing else."""
    return parse_source(told).path.suffix == ".npy"


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


def _from_itself(
    file: ArrayFile, attributes: Mapping[str, Any], why: str
) -> dict[str, StoredArray]:
    """The arrays of an output as functions of its own actions, start row and steps."""
    mode = str(attributes["mode"])
    reasons = {
        mode not in _ORDERS: f"mode {mode} does not keep its actions",
        attributes.get("frames") == "actions": "it has no start row (frames = actions)",
        mode == "central" and attributes.get("convention") == "curobo": "its start is not a row",
    }
    names = [name for name in QUANTITIES if file.get(name) is not None]
    own = QUANTITIES[_ORDERS.get(mode, 0)]
    reasons[own not in names or "position" not in names] = f"it lacks {own} or position"
    reasons[not names] = "it has a group for each trajectory"
    reason = next((text for applies, text in reasons.items() if applies), "")
    stored = {name: file.require(name) for name in names}
    if not reason and any(array.ndim != 3 for array in stored.values()):
        reason = "its trajectories are not packed"
    if reason:
        hint = "trajcli diff OUT SOURCE --recompute names the source"
        found = f"{why}; and from the file alone it cannot be: {reason}"
        raise InputError(
            Fault("cannot be computed again", str(file.path), "its source", found, hint)
        )
    again = _Again(file, attributes, stored)
    return {name: again.array(name) for name in names}


class _Again:
    """Blocks of trajectories computed from a file's own rows; the last one is at hand."""

    def __init__(
        self, file: ArrayFile, attributes: Mapping[str, Any], stored: Mapping[str, StoredArray]
    ) -> None:
        self._attributes, self._stored = attributes, stored
        self._time = file.get("time")
        self._span: tuple[int, int] | None = None
        self._values: dict[str, Any] = {}

    def array(self, name: str) -> StoredArray:
        """A quantity, computed as it is read."""
        from dataclasses import replace

        def read_rows(begin: int, end: int) -> Any:
            if self._span != (begin, end):
                self._values, self._span = self._compute(begin, end), (begin, end)
            return self._values[name]

        return replace(self._stored[name], read_rows=read_rows, read_steps=None)

    def _compute(self, begin: int, end: int) -> dict[str, Any]:
        from trajcli.trajectory import State, integrate

        about = self._attributes
        mode = str(about["mode"])
        recorded = about.get("start") == RECORDED_START
        rows = {name: np.asarray(s.read_rows(begin, end)) for name, s in self._stored.items()}
        if begin == end:
            return rows
        actions = rows[QUANTITIES[_ORDERS[mode]]]
        ends = str(about["ends"]) if mode == "central" else None
        found = integrate(
            actions if recorded else actions[:, 1:],
            "first" if recorded else State(**{name: values[:, 0] for name, values in rows.items()}),
            self._steps(begin, end),
            mode,
            scheme=about.get("scheme") if mode not in ("central", "teleport") else None,
            ends="plan" if ends == "goal" else ends,  # the goal is the last row of positions
            dtype=str(actions.dtype.newbyteorder("=")),
            write=list(rows),
            allow_nonfinite=True,
            backend="auto",
        )
        return {name: getattr(found, name) for name in rows}

    def _steps(self, begin: int, end: int) -> Any:
        dt = self._attributes["dt"]
        if not isinstance(dt, str):
            return float(dt)
        if self._time is None:
            expected = "the dataset time, as dt varies"
            raise InputError(Fault("cannot be computed again", "its steps", expected))
        times = self._time.read() if self._time.ndim == 1 else self._time.read_rows(begin, end)
        return np.diff(times)
