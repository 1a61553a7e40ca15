"""What checks find: which trajectories fail, where the worst is, in words and for JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from trajcli.files.blocks import Array, Block, Floats
from trajcli.views.trajectories import Batch

_SPANS = 3
"""Spans that are shown of each dof that fails."""


@dataclass(frozen=True)
class Failure:
    """A trajectory that fails a check: how many of its values, and the worst of them.

    excess: by how much the worst value fails, which orders trajectories. time: of its row, in
    seconds as the file has it; None where it is not known.
    """

    trajectory: int
    count: int
    row: int
    dof: int
    value: float
    excess: float = np.inf
    dataset: str = ""
    time: float | None = None


@dataclass(frozen=True)
class Excess:
    """The worst of a dof beyond its limits: a trajectory, a row of it, the value and its excess.

    spans: the rows [n, 2] from which and to which this trajectory's dof is beyond them. time,
    times [n, 2]: the seconds of row and spans; None where they are not known.
    """

    trajectory: int
    row: int
    value: float
    excess: float
    spans: Array
    time: float | None = None
    times: Floats | None = None


def failures(
    bad: Array, excess: Array, values: Array, block: Block, name: str = ""
) -> list[Failure]:
    """The trajectories where values [b, T, D] are bad, with the worst by ``excess`` of each."""
    excess, many = np.where(bad, excess, -1.0), []
    times = block.known_times() if block.parts and bad.any() else None
    for b in np.flatnonzero(bad.any((1, 2))).tolist():
        row, dof = (int(n) for n in np.unravel_index(excess[b].argmax(), excess[b].shape))
        worst = float(values[b, row, dof]), float(excess[b, row, dof])
        place = block.first + row, dof
        time = None if times is None else float(times[b, row])
        many.append(Failure(int(block.numbers[b]), int(bad[b].sum()), *place, *worst, name, time))
    return many


@dataclass(frozen=True)
class Finding:
    """One check of one array: passed, failed, or (None) not made, and why.

    trajectories: how many were looked at. count: the values that fail, the worst of them at
    ``where``. failures: every trajectory that fails, in words. facts: more for JSON. details: more
    lines for people.
    """

    check: str
    dataset: str
    passed: bool | None
    text: str
    trajectories: int = 0
    where: str = ""
    count: int = 0
    failures: Sequence[str] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)
    details: Sequence[str] = ()

    def as_dict(self, verbose: bool = False) -> dict[str, Any]:
        """The same, for JSON; verbose: with every trajectory that fails."""
        return {
            "check": self.check,
            "dataset": self.dataset,
            "passed": self.passed,
            "text": self.text,
            "trajectories": self.trajectories,
            "failing_trajectories": len(self.failures),
            "failing_values": self.count,
            "where": self.where or None,
            **self.facts,
            **({"failures": list(self.failures)} if verbose else {}),
        }


def failed(
    check: str,
    batch: Batch,
    name: str,
    failures: Sequence[Failure],
    text: str,
    count: int,
    **facts: Any,
) -> Finding:
    """A check that failed: where the worst is, and every trajectory that fails."""
    worst = max(failures, key=lambda failure: failure.excess)
    dof = batch.first.dofs.numbers[worst.dof]
    facts["at"] = {"trajectory": worst.trajectory, "row": worst.row, "dof": dof}
    if worst.time is not None:
        facts["at"]["time"] = worst.time
    values = sum(failure.count for failure in failures)
    places = [_place(batch, failure) for failure in failures]
    label = batch.label(name or worst.dataset)
    return Finding(check, label, False, text, count, _place(batch, worst), values, places, facts)


def trajectory_text(batch: Batch, number: int) -> str:
    """trajectory 13, or data/demo_13, before a place in it; nothing where there is only one."""
    name = batch.name(number)
    return "" if batch.count == 1 else f"trajectory {name}, " if name.isdecimal() else f"{name}, "


def dof_text(batch: Batch, dof: int) -> str:
    """Returns the number of a dof in the file, and its name: dof 3 (panda_joint4)."""
    name, number = batch.dofs[dof], batch.first.dofs.numbers[dof]
    return f"dof {number}" + ("" if name.isdecimal() else f" ({name})")


def seconds_text(time: float) -> str:
    """Returns a time in words, as inspect has it: 0.400 s."""
    return f"{time:.3f} s"


def dof_facts(batch: Batch, dof: int, worst: Excess) -> dict[str, Any]:
    """A dof that is beyond its limits, for JSON."""
    times = [None] * len(worst.spans) if worst.times is None else worst.times.tolist()
    spans = zip(worst.spans.tolist(), times, strict=True)
    return {
        "dof": batch.first.dofs.numbers[dof],
        "name": batch.dofs[dof],
        "value": worst.value,
        "trajectory": worst.trajectory,
        "row": worst.row,
        "time": worst.time,
        "spans": [{"rows": rows, "seconds": seconds} for rows, seconds in spans],
    }


def worst_text(batch: Batch, worst: Excess) -> str:
    """Where a dof is furthest beyond its limits, and its spans there, of many the first."""
    if worst.times is None:
        at, what = "", "rows"
        ends = [[str(row) for row in span] for span in worst.spans[:_SPANS].tolist()]
    else:
        at, what = f", {seconds_text(worst.time or 0.0)}", "seconds"
        ends = [[f"{time:.3f}" for time in span] for span in worst.times[:_SPANS].tolist()]
    spans = ", ".join(a if a == b else f"{a} to {b}" for a, b in ends)
    more = f" and {len(worst.spans) - _SPANS} more" if len(worst.spans) > _SPANS else ""
    place = f"{trajectory_text(batch, worst.trajectory)}row {worst.row}{at}"
    return f"{place}; beyond it in {what} {spans}{more}"


def _place(batch: Batch, failure: Failure) -> str:
    """A failure in words: trajectory 13, row 20, dof 3 (panda_joint4), 0.400 s."""
    words = [f"row {failure.row}", dof_text(batch, failure.dof)]
    words += [] if failure.time is None else [seconds_text(failure.time)]
    return trajectory_text(batch, failure.trajectory) + ", ".join(words)


def recompute_finding(
    name: str, values: int, differing: int, beyond: int, excess: float, at: Sequence[int]
) -> Finding:
    """What computing a variable again came to: values, how many differ, and beyond rounding."""
    if beyond:
        place = dict(zip(("trajectory", "row", "dof"), at, strict=False))
        where = ", ".join(f"{axis} {i}" for axis, i in place.items())
        text = f"{beyond} of {values} values are not what the recorded command gives"
        facts = {"at": place, "times_rounding": excess}
        return Finding("recompute", name, False, text, 0, where, beyond, facts=facts)
    text = f"{differing} of {values} values differ by rounding" if differing else "equal to the bit"
    return Finding("recompute", name, True, text, facts={"exact": not differing})
