"""Checks of arrays and values, which return faults, and the words for shapes and places."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from trajcli.arrays import differences, is_torch, readable, to_numpy
from trajcli.errors import Fault, InputError, UsageError

Array = Any


def as_array(values: Any, where: str = "input") -> Array:
    """Numbers as a torch tensor or a NumPy array; raises InputError unless they are real."""
    try:
        array: Any = values if is_torch(values) else np.asarray(values)
    except (TypeError, ValueError) as error:
        raise InputError(Fault("not an array of numbers", where, found=str(error))) from None
    kind = str(array.dtype)
    if is_torch(array):
        real = not (array.dtype.is_complex or kind == "torch.bool")
    else:
        real = array.dtype.kind in "fiu"
    if not real:
        raise InputError(Fault("not real numbers", where, "floats or integers", kind))
    if not is_torch(array) and array.dtype.itemsize > 8:
        with np.errstate(over="ignore"):
            return array.astype(np.float64)
    return array


def require_counts(least: int = 1, **counts: Any) -> None:
    """Raise UsageError for values that are not whole numbers of at least ``least``."""
    faults = [
        Fault("not a count", f"--{name}", f"a whole number >= {least}", repr(value))
        for name, value in counts.items()
        if not isinstance(value, (int, np.integer)) or isinstance(value, bool) or value < least
    ]
    if faults:
        raise UsageError(*faults)


def time_stamp_shape_faults(shape: Sequence[int], batch: int, rows: int, where: str) -> list[Fault]:
    """Faults of the shape of time stamps for ``batch`` trajectories of ``rows``."""
    if tuple(shape) in {(rows,), (batch, rows), (1, rows)}:
        return []
    return [
        Fault(
            "wrong number of time stamps",
            where,
            f"one per row: [{rows}] or [{batch}, {rows}]",
            describe(shape),
            "the stamps of the start and of every action; of every row in a recording",
        )
    ]


def time_stamp_faults(
    times: Array, where: str, first_trajectory: int = 0, row_numbers: Array | None = None
) -> list[Fault]:
    """Faults of time stamps [T] or [B, T]: NaN, repeats, steps back."""
    values = to_numpy(times)
    table = values[None] if values.ndim == 1 else values
    gaps = differences(table)
    drop = "leave those rows out, as integrate --repeated-times drop does"
    faults = []
    for what, wrong, first_row, hint in (
        ("time stamps that are not finite", ~np.isfinite(table), 0, ""),
        ("time stamps that repeat", gaps == 0, 1, drop),
        ("time stamps that go back", gaps < 0, 1, "sort the rows by time, or split the recording"),
    ):
        places = np.argwhere(wrong)
        if not len(places):
            continue
        named = []
        for trajectory, row in (places[:3] + np.array([0, first_row])).tolist():
            number = row if row_numbers is None else int(row_numbers[row])
            spot = place(("trajectory",), (trajectory,), table.shape[:1], first_trajectory)
            stamp = f"row {number} ({float(table[trajectory, row])!r})"
            named.append(located(spot, stamp) if spot else stamp)
        more = f" and {len(places) - 3} more" if len(places) > 3 else ""
        listed = f"{len(places)} such: " + "; ".join(named) + more
        faults.append(Fault(what, where, "strictly increasing seconds", listed, hint))
    return faults


def largest(array: Any) -> float:
    """The largest magnitude in a NumPy array; NaN if it has one, 0 if it is empty."""
    if array.size == 0:
        return 0.0
    with np.errstate(invalid="ignore"):
        high, low = float(array.max()), float(array.min())
    return max(high, -low) if low == low else low  # NaN is never equal to itself


def nonfinite_fault(
    values: Array,
    where: str,
    axes: Sequence[str],
    first_trajectory: int = 0,
    row_numbers: Array | None = None,
) -> Fault | None:
    """The fault of NaN or Inf in an array, naming the first place; None if there is none.

    row_numbers: the steps' numbers in the file, if rows were dropped.
    """
    if not readable(values):
        return None
    if is_torch(values) and values.is_cuda and bool(values.detach().isfinite().all()):
        return None  # without copying them to the host
    array = to_numpy(values)
    if array.dtype.kind != "f":
        return None
    if np.isfinite(largest(array)):
        return None
    finite = np.isfinite(array)
    wrong = np.argwhere(~finite)
    first = list(wrong[0])
    if row_numbers is not None and "step" in axes:
        first[axes.index("step")] = int(row_numbers[first[axes.index("step")]])
    spot = place(axes, first, array.shape, first_trajectory)
    count = f" ({len(wrong)} values that are not finite)" if len(wrong) > 1 else ""
    return Fault(
        "NaN or Inf",
        located(where, spot),
        "finite numbers",
        f"{float(array[tuple(wrong[0])])}{count}",
        "--allow-nonfinite computes with it; it stays within its trajectory and dof",
    )


def describe(shape: Sequence[int]) -> str:
    """A shape in words: [64, 100, 7]."""
    return "[" + ", ".join(str(int(n)) for n in shape) + "]" if len(shape) else "one number"


def place(
    axes: Sequence[str], index: Iterable[int], shape: Sequence[int], first_trajectory: int
) -> str:
    """An index in words, "trajectory 3, step 17, dof 2", without axes of one entry."""
    named = []
    for axis, i, size in zip(axes, index, shape, strict=True):
        offset = first_trajectory if axis == "trajectory" else 0
        if size > 1 or offset or (axis == "trajectory" and len(axes) == 3):
            named.append(f"{axis} {int(i) + offset}")
    return ", ".join(named)


def located(where: str, place: str) -> str:
    """A name and a place in it."""
    return f"{where}, {place}" if place else where
