"""What checks find: which trajectories fail, where the worst is, in words and for JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from trajcli.files.blocks import Array, Block
from trajcli.views.trajectories import Batch


@dataclass(frozen=True)
class Failure:
    """A trajectory that fails a check: how many of its values, and the worst of them.

    excess: by how much the worst value fails, which orders trajectories.
    """

    trajectory: int
    count: int
    row: int
    dof: int
    value: float
    excess: float = np.inf
    dataset: str = ""


def failures(
    bad: Array, excess: Array, values: Array, block: Block, name: str = ""
) -> list[Failure]:
    """The trajectories where values [b, T, D] are bad, with the worst by ``excess`` of each."""
    excess, many = np.where(bad, excess, -1.0), []
    for b in np.flatnonzero(bad.any((1, 2))).tolist():
        row, dof = (int(n) for n in np.unravel_index(excess[b].argmax(), excess[b].shape))
        worst = float(values[b, row, dof]), float(excess[b, row, dof])
        place = block.first + row, dof
        many.append(Failure(int(block.numbers[b]), int(bad[b].sum()), *place, *worst, name))
    return many


@dataclass(frozen=True)
class Finding:
    """One check of one array: passed, failed, or (None) not made, and why.

    trajectories: how many were looked at. count: the values that fail, the worst of them at
    ``where``. failures: every trajectory that fails, in words. facts: more for JSON.
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
    values = sum(failure.count for failure in failures)
    places = [_place(batch, failure) for failure in failures]
    label = batch.label(name or worst.dataset)
    return Finding(check, label, False, text, count, _place(batch, worst), values, places, facts)


def trajectory_text(batch: Batch, number: int) -> str:
    """trajectory 13, or data/demo_13, before a place in it; nothing where there is only one."""
    name = batch.name(number)
    return "" if batch.count == 1 else f"trajectory {name}, " if name.isdecimal() else f"{name}, "


def _place(batch: Batch, failure: Failure) -> str:
    """A failure in words: trajectory 13, row 20, dof 3 (panda_joint4)."""
    name, number = batch.dofs[failure.dof], batch.first.dofs.numbers[failure.dof]
    joint = "" if name.isdecimal() else f" ({name})"
    return f"{trajectory_text(batch, failure.trajectory)}row {failure.row}, dof {number}{joint}"


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
