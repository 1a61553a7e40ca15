"""Sums up rotations: norms, changes of sign, angles from the start, and angular rates."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from trajcli.errors import InputError
from trajcli.files.dofs import RotationDofs
from trajcli.files.limits import Bounds
from trajcli.files.quantities import ROTATIONS, UNITS_OF_ROTATIONS
from trajcli.files.trajectories import Array, Floats, Trajectories
from trajcli.files.trajectory_group import TrajectoryGroup
from trajcli.quaternions import TOLERANCE, unit
from trajcli.rotations import angle
from trajcli.scores import angular_rates
from trajcli.views.findings import Finding, failed
from trajcli.views.statistics import Statistics
from trajcli.views.trajectories import label

# Rows whose rotations are converted at once.
_ROWS = 1 << 15


def known_rotations(group: TrajectoryGroup) -> Sequence[RotationDofs]:
    """Returns the rotations of a group; none where the order of quaternions is not known."""
    with suppress(InputError):
        return group.rotations
    return ()


def orientations(values: Array, rotations: Sequence[RotationDofs]) -> tuple[Floats, Floats]:
    """Returns unit quaternions [b, T, R, 4] of dofs [b, T, D], and how far each is off, [b, T, R].

    What is no rotation becomes NaN.
    """
    shape = (*values.shape[:2], len(rotations))
    quaternions, off = np.empty((*shape, 4)), np.empty(shape)
    for k, rotation in enumerate(rotations):
        for begin in range(0, shape[1], _ROWS):
            rows = slice(begin, begin + _ROWS)
            columns = values[:, rows, list(rotation.dofs)].astype(np.float64)
            quaternions[:, rows, k], off[:, rows, k] = unit(columns, rotation.form)
    return quaternions, off


class RotationStatistics:
    """Statistics of the rotations of a batch, each of which counts as a dof.

    Attributes:
        rotations: those of the batch; none where it has angular rates alone, or other dofs.
        of: by "norm", how far norms are from 1; by "sign", 1 where a quaternion's sign changes;
            by "angle", angles from the first row; by the names of angular rates, magnitudes.
    """

    def __init__(
        self,
        batch: Trajectories,
        names: Sequence[str],
        limits: Mapping[str, float] | None = None,
        stored: Collection[str] = (),
    ) -> None:
        """names: norm, sign, angle. limits: the largest magnitudes of rates, which are derived from
        orientations where they are not ``stored`` in the file."""
        self.batch, self.limits = batch, limits or {}
        self.rotations = known_rotations(batch.first)
        self.derived = [name for name in self.limits if self.rotations and name not in stored]
        self.stored = [name for name in self.limits if name in batch.first.arrays]
        widths = {rotation.width for rotation in self.rotations}
        fitting = {"norm": {4, 9}, "sign": {4}, "angle": widths}
        names = [name for name in names if widths & fitting[name]]
        self.count = len(self.rotations) or batch.first.shape[2] // 3
        upper = {"norm": TOLERANCE, "sign": 0.5, "angle": np.inf, **self.limits}
        self.of = {
            name: Statistics(self.count, _up_to(upper[name], self.count))
            for name in (*names, *self.stored, *self.derived)
        }

    @property
    def alone(self) -> bool:
        """Whether the batch has no dofs but rotations or their rates."""
        width = sum(rotation.width for rotation in self.rotations)
        return self.batch.first.of_rotations or width == self.batch.first.shape[2]

    def add(self, values: Mapping[str, Array], block: Trajectories) -> None:
        """Adds a block with arrays [b, T, D] by name."""
        for name in self.stored:
            rates = values[name].astype(np.float64).reshape(*values[name].shape[:2], -1, 3)
            self.of[name].add(np.linalg.norm(rates, axis=-1), block)
        if not self.rotations or not block.rows:
            return
        quaternions, off = orientations(next(iter(values.values())), self.rotations)
        if "norm" in self.of:
            self.of["norm"].add(off, block)
        if "sign" in self.of:
            turned = np.zeros(off.shape)
            turned[:, 1:] = (quaternions[:, 1:] * quaternions[:, :-1]).sum(-1) < 0
            turned[..., [rotation.width != 4 for rotation in self.rotations]] = 0.0
            self.of["sign"].add(turned, block)
        if "angle" in self.of:
            start = block.rows_only(0, 1).read(next(iter(values)))
            start, _ = orientations(start, self.rotations)
            self.of["angle"].add(angle(quaternions, start), block)
        if self.derived:
            times = block.known_times()
            times = np.zeros(off.shape[:2]) if times is None else times
            derived = angular_rates(quaternions, times, block.step, self.derived)
            for name, rates in derived.items():
                self.of[name].add(np.linalg.norm(rates, axis=-1), block)

    def facts(self) -> list[dict[str, Any]]:
        """Returns what is known of each rotation, for JSON: null where nothing is."""
        known = {name: (x.peak, x.beyond) for name, x in self.of.items() if x.known}
        return [
            {
                "name": rotation.name,
                "form": rotation.form,
                "turn": float(known["angle"][0][k]) if "angle" in known else None,
                "norm": float(known["norm"][0][k]) if "norm" in known else None,
                "signs": int(known["sign"][1][k]) if "sign" in known else None,
            }
            for k, rotation in enumerate(self.rotations)
        ]

    def findings(self, count: int) -> Iterator[Finding]:
        """Yields whether norms are 1, signs continuous and rates within their limits, of ``count``
        trajectories.

        Signs of recordings mean nothing; orientations that trajcli wrote have continuous ones.
        """
        names = [rotation.name for rotation in self.rotations] or list(map(str, range(self.count)))
        groups = [group.with_dofs(names) for group in self.batch.groups] if self.of else []
        batch = Trajectories(groups)
        for check, statistics in self.of.items():
            name = check if check in self.stored else next(iter(batch.first.arrays))
            peak, array = float(statistics.peak.max()), label(batch, name)
            facts: dict[str, Any] = {"largest": peak} if statistics.known else {}
            passed = not statistics.outside
            if check == "norm":
                text = f"off by up to {peak:.2g}, allowed {TOLERANCE:g}"
            elif check == "sign":
                facts = {"changes": int(statistics.beyond.sum())}
                text = f"{facts['changes']} changes of sign" if not passed else "continuous"
                if not passed and "trajcli_version" not in batch.first.file.attributes():
                    passed, text = True, f"{text}, which differentiate and resample undo"
            else:
                of_rate = UNITS_OF_ROTATIONS[ROTATIONS.index(check)]
                text = f"peak magnitude {peak:.6g}, limit {self.limits[check]:.6g} {of_rate}"
                text += "; central differences" * (check in self.derived)
                facts |= {"limit": self.limits[check], "quantity": check}
                if passed and (statistics.nonfinite or not statistics.known):
                    absent = statistics.nan + statistics.inf
                    text, passed = f"not checked at {absent} values that are NaN or Inf", False
                check = f"{check} limits"
            if statistics.outside and not passed:
                yield failed(check, batch, name, statistics.outside, text, count, **facts)
            else:
                yield Finding(check, array, passed, text, count, facts=facts)


def _up_to(limit: float, count: int) -> Bounds:
    return Bounds(np.full(count, -np.inf), np.full(count, limit))
