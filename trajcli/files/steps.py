"""What a file says of the times of its rows: stamps, steps, or a rate."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from trajcli.errors import InputError
from trajcli.files.arrays import ArrayFile, StoredArray

STAMPS = ("time", "times")
RATES = ("control_freq", "rate", "frequency", "fps", "hz")
"""Attributes in which files give steps per second."""


@dataclass(frozen=True)
class Steps:
    """Times of the rows of trajectories [batch, rows]; none at all where ``source`` is "".

    One of: ``stamps`` [rows] or [batch, rows]; ``dt``, a number or an array that broadcasts to
    [batch, rows − 1] (or [batch, rows]: then each step leads to its row from the one before).
    """

    source: str = ""
    stamps: StoredArray | None = None
    dt: float | StoredArray | None = None
    after: bool = False
    """Whether the first row lies a step after time 0: the rows are actions."""

    def __bool__(self) -> bool:
        return bool(self.source)

    @property
    def uniform(self) -> float | None:
        """The step where it is one number."""
        return self.dt if isinstance(self.dt, float) else None

    def times(self, trajectory: int, begin: int, end: int) -> Any:
        """Times of rows begin..end of a trajectory, float64, in seconds."""
        if self.stamps is not None:
            return _rows(self.stamps, trajectory, trajectory + 1, begin, end)[0].astype("f8")
        if isinstance(self.dt, float):
            return self.dt * np.arange(begin + self.after, end + self.after)
        assert self.dt is not None
        count = self.dt.shape[-1]
        steps = _rows(self.dt, trajectory, trajectory + 1, 0, count)[0]
        elapsed = np.concatenate([[0.0], np.cumsum(steps, dtype=np.float64)])
        return elapsed[begin + self.after : end + self.after]

    def gaps(self, begin: int, end: int, first: int, last: int) -> tuple[Any, Any]:
        """Steps between rows first..last of trajectories begin..end, [b or 1, rows − 1], and how
        far each may be off because stamps are rounded; a single row has one step, of 1.
        """
        if last - first < 2 or not self:
            one = np.ones((1, max(last - first - 1, 1)))
            return one, one * 0.0
        if isinstance(self.dt, float):
            steps = np.full((1, last - first - 1), self.dt)
            return steps, steps * 0.0
        if self.dt is not None:
            lead = int(self.after)
            steps = np.asarray(_rows(self.dt, begin, end, first + lead, last - 1 + lead), "f8")
            return steps, steps * 0.0
        assert self.stamps is not None
        times = np.asarray(_rows(self.stamps, begin, end, first, last), "f8")
        unit = np.spacing(np.abs(times))
        with np.errstate(invalid="ignore"):
            return np.diff(times, axis=1), (unit[:, 1:] + unit[:, :-1]) / 2


def find_steps(
    file: ArrayFile, groups: Sequence[str], batch: int, rows: int, actions: bool = False
) -> Steps:
    """What a file says of the steps of trajectories [batch, rows], near them first."""
    fitting = {(rows,), (batch, rows), (1, rows)}
    for name, stored in _arrays(file, groups, STAMPS):
        if stored.shape in fitting:
            return Steps(f"time stamps {name}", stamps=stored)
    for name, stored in _arrays(file, groups, ("dt",)):
        count = stored.shape[-1] if stored.shape else 1
        if stored.nbytes == stored.dtype.itemsize:
            return Steps(name, dt=float(np.ravel(stored.read())[0]), after=actions)
        if count in (rows, rows - 1) and stored.shape[:-1] in {(), (1,), (batch,)}:
            return Steps(name, dt=stored, after=count == rows)
        if stored.shape == (batch, 1):
            return Steps(name, dt=_spread(stored, rows), after=actions)
    for group in groups:
        attributes = file.attributes(group)
        where = f"{file.path}:/{group.rstrip('/')}"
        step = _positive(attributes.get("dt"))
        if step is not None:
            return Steps(f"{where}@dt", dt=step, after=actions)
        for name in RATES:
            rate = _positive(attributes.get(name))
            if rate is not None:
                return Steps(f"1/{where}@{name} = 1/{rate:g} Hz", dt=1.0 / rate, after=actions)
    return Steps()


def _arrays(file: ArrayFile, groups: Sequence[str], names: Sequence[str]) -> Any:
    """Those of the named arrays that hold numbers, with what to call them."""
    for group in groups:
        for name in names:
            try:
                stored = file.get(group + name)
            except InputError:  # not to be read: as good as not there
                continue
            if stored is not None and stored.numeric:
                yield stored.where, stored


def _spread(stored: StoredArray, rows: int) -> StoredArray:
    """Steps [batch, 1] as [batch, rows − 1]."""
    return StoredArray(
        stored.where,
        (stored.shape[0], rows - 1),
        stored.dtype,
        lambda start, stop: np.repeat(stored.read_rows(start, stop), rows - 1, axis=1),
    )


def _rows(stored: StoredArray, begin: int, end: int, first: int, last: int) -> Any:
    """Entries first..last of trajectories begin..end, [b or 1, n]."""
    if not stored.shape:
        return np.reshape(stored.read(), (1, 1))
    if stored.ndim == 1:
        return np.asarray(stored.read_rows(first, last))[None]
    if stored.shape[0] == 1:
        begin, end = 0, 1
    return np.asarray(stored.read_part(begin, end, first, last))


def _positive(value: Any) -> float | None:
    if isinstance(value, np.ndarray) and value.size == 1:
        value = value.ravel()[0]
    if isinstance(value, (int, float, np.number)) and np.isfinite(value) and value > 0:
        return float(value)
    return None
