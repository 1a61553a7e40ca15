"""Converts arrays of files to the shape [B, T, D] and to SI units, when they are read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from trajcli.errors import InputError, describe, wrong_shape
from trajcli.files.catalogue import Dataset, PartReader, join_readers
from trajcli.files.quantities import QUANTITIES, derivative_order
from trajcli.kernels.program import Floats, Integers
from trajcli.memory import SCANNED_BYTES
from trajcli.units import (
    Units,
    derivative_units,
    differ,
    parse_time_unit,
    parse_units,
    per_si,
    require_dof_units,
    si_units,
    unit_text,
)

# The attributes of CF that change the meaning of stored numbers, in the order of ``decode_values``.
_PACKING = ("scale_factor", "add_offset", "_FillValue", "missing_value")


def read_unit(stored: Dataset) -> str:
    """Reads the unit that an array states, or "" if it states none."""
    unit = stored.attributes.get("units")
    text = unit.strip() if isinstance(unit, str) else ""
    return "" if text == "1" else text


def convert_to_si(stored: Dataset, units: Units) -> Dataset:
    """Converts an array [..., D] to SI units, in float64 if its values have to change."""
    about, by = {**stored.attributes, "units": unit_text(si_units(units))}, per_si(units)
    labelled = replace(stored, attributes=about)
    if not (by != 1.0).any():
        return labelled
    # results have the precision of the file, although they are computed in float64
    kind = stored.precision if stored.dtype.kind == "f" else None
    return replace(convert_values(labelled, lambda rows: divide(rows, by)), converted_from=kind)


def decode_values(stored: Dataset) -> Dataset:
    """Decodes values by the CF conventions (8.1, 2.5.1): stored · scale_factor + add_offset."""
    # HDF5's own fill value is no attribute: it stands for values that were never written
    about, kind = stored.attributes, stored.dtype.kind
    if about.keys().isdisjoint(_PACKING) or kind not in "fiu":
        return stored
    numbers = [np.ravel(about.get(name, [])) for name in _PACKING]
    scale, offset, *empty = (x if x.dtype.kind in "fiu" else np.zeros(0) for x in numbers)
    fills = np.concatenate(empty)
    fills = fills[~np.isnan(fills)]
    packed = scale.size or offset.size
    # integers of a clock keep their digits: float64 holds nanoseconds since 1970 to 0.2 µs
    clock = kind != "f" and parse_time_unit(read_unit(stored)) is not None
    if not packed and (clock or not fills.size):
        return stored
    factor, zero = (float(x[0]) if x.size else y for x, y in ((scale, 1.0), (offset, 0.0)))
    with np.errstate(all="ignore"):
        fills = fills.astype(stored.dtype)

    def convert(rows: Any) -> Any:
        return np.where(np.isin(rows, fills), np.nan, rows.astype(np.float64) * factor + zero)

    precision = stored.precision if kind == "f" else None
    return replace(convert_values(stored, convert), converted_from=precision)


def as_batch(stored: Dataset) -> Dataset:
    """Gives a dataset the shape [B, T, D]; [T, D] is one trajectory, and [T] one of one dof."""
    if stored.require_numeric().ndim == 3:
        return stored
    stored = reorder_axes(stored, "T")
    if stored.ndim != 2:
        expected, what = "[B, T, D], or [T, D] for one trajectory", "wrong number of dimensions"
        raise InputError(wrong_shape(stored.where, expected, stored.shape, what=what))
    return as_line(stored)


def as_line(stored: Dataset) -> Dataset:
    """Gives [T, ...] the shape [1, T, ...]."""
    reader = join_readers(lambda _, first, last: stored.read_rows(first, last), stored.shape[:1])
    return replace(stored, shape=(1, *stored.shape), reader=reader)


def join_axes(stored: Dataset, count: int) -> Dataset:
    """Joins the axes [..., R, n] of ``count`` = R rotations to [..., R·n]; others are unchanged."""
    if count < 2 or stored.ndim < 3 or stored.shape[-2] != count:
        return stored
    dofs = count * stored.shape[-1]

    def read_rows(start: int, stop: int) -> Any:
        values = stored.reader(start, stop)
        return values.reshape(*values.shape[:-2], dofs)

    return replace(stored, shape=(*stored.shape[:-2], dofs), reader=read_rows)


def read_lengths(stored: Dataset, batch: int, rows: int) -> Integers:
    """Reads how many of the padded rows each trajectory has, [batch]."""
    # MATLAB's are [1, B] or [B, 1], and floats
    fits = stored.dtype.kind in "iu" or (stored.ndim == 2 and stored.dtype.kind == "f")
    values = np.ravel(stored.read()) if fits and stored.ndim in (1, 2) else np.zeros(0)
    if values.shape != (batch,) or (values != np.floor(values)).any():
        raise InputError(
            "not lengths",
            where=stored.where,
            expected=f"integers [{batch}]",
            found=f"{stored.dtype} {describe(stored.shape)}",
        )
    bad = np.flatnonzero((values < 1) | (values > rows))
    if len(bad):
        raise InputError(
            "no such length",
            where=f"{stored.where}, trajectory {bad[0]}",
            expected=f"1 to {rows}",
            found=f"{values[bad[0]]:g}",
        )
    return values.astype(np.int64)


def reorder_axes(stored: Dataset, axes: str) -> Dataset:
    """Reorders an array with axes TBD, DT, T, … to [B, T, D] or [T, D], read in blocks."""
    if stored.ndim != len(axes):
        return stored
    letters = "BTD" if "B" in axes else "TD"
    order = [axes.index(axis) for axis in letters if axis in axes]
    shape = tuple(stored.shape[axes.index(axis)] if axis in axes else 1 for axis in letters)
    # The axis along which the file is read is the result's ``along``-th. Where it is not the first,
    # every block needs the whole file: it is read in steps, of which only start to stop is kept.
    along, size = letters.index(axes[0]), max(1, stored.nbytes // max(1, stored.shape[0]))

    def read_rows(start: int, stop: int) -> Any:
        start, stop, _ = slice(start, stop).indices(shape[0])
        first, last = (start, stop) if along == 0 else (0, stored.shape[0])
        values = np.empty((max(stop - start, 0), *shape[1:]), stored.dtype)
        step = max(1, SCANNED_BYTES // size)
        for row in range(first, last, step):
            part = np.transpose(stored.read_rows(row, min(row + step, last)), order)
            part = part if "D" in axes else part[..., None]
            index = (slice(None),) * along + (slice(row - first, row - first + step),)
            values[index] = part if along == 0 else part[start:stop]
        return values

    storage = stored.storage if order == sorted(order) else "transposed"
    return replace(stored, shape=shape, reader=read_rows, storage=storage)


def convert_values(stored: Dataset, convert: Callable[[Any], Any]) -> Dataset:
    """Makes a dataset whose values are converted when they are read."""
    read = stored.reader
    # an empty array shows which type the conversion gives, without a read of the file
    dtype = convert(np.zeros((0, *stored.shape[-1:]), stored.dtype)).dtype
    if isinstance(read, PartReader):
        reader = PartReader(lambda *span: convert(read.part(*span)), read.count)
        return replace(stored, dtype=dtype, reader=reader)
    return replace(stored, dtype=dtype, reader=lambda start, stop: convert(read(start, stop)))


def divide(values: Any, by: Any) -> Floats:
    with np.errstate(all="ignore"):  # signalling NaNs raise the invalid flag
        quotient: Floats = np.divide(values, by, dtype=np.float64)
    return quotient


def match_units(a: Dataset, b: Dataset) -> tuple[Dataset, Dataset, str, str]:
    """Converts two datasets to SI for a comparison, if both state units of the same kind.

    Returns them with a remark for the user, and the reason why they cannot be compared, or "".
    """
    texts = read_unit(a), read_unit(b)
    times = zip(texts, map(parse_time_unit, texts), strict=True)
    first, second = (parse_units(text) if time is None else [time] for text, time in times)
    names = (f"is in {text}" if text else "states no unit" for text in texts)
    pair = f"a {next(names)}, b {next(names)}"
    if texts[0] == texts[1] or (first and second and unit_text(first) == unit_text(second)):
        return a, b, "", ""
    if not all(texts):
        other = any(units and (per_si(units) != 1.0).any() for units in (first, second))
        return a, b, f"{pair}: compared as they are" if other else "", ""
    if first is None or second is None or differ(si_units(first), si_units(second)):
        return a, b, "", f"units differ: {pair}"
    if len(first) not in (1, *a.shape[-1:]) or len(second) not in (1, *b.shape[-1:]):
        return a, b, "", f"wrong number of units: {pair}"
    note = f"{pair}: compared in {unit_text(si_units(first))}"
    a, b = convert_to_si(a, first), convert_to_si(b, second)
    # rounded to the stored types, whose units in the last place (ulp) diff counts
    kinds = [np.result_type(side.precision, np.float32) for side in (a, b)]
    a = convert_values(a, partial(np.asarray, dtype=kinds[0]))
    b = convert_values(b, partial(np.asarray, dtype=kinds[1]))
    return a, b, note, ""


def find_units(arrays: Mapping[str, Dataset], given: Units) -> dict[str, Units]:
    """Finds the known units of arrays [..., D] by name: given, stated, or those of positions."""
    known: dict[str, Units] = {}
    for name, array in arrays.items():
        text, order = read_unit(array), derivative_order(name)
        # deg of the positions implies deg/s of velocities that state no unit
        implied = given or (not text and name in QUANTITIES and "position" in arrays)
        units = given or parse_units(read_unit(arrays["position"]) if implied else text)
        if units is not None:
            units = derivative_units(units, order) if implied else units
            known[name] = require_dof_units(units, array.shape[-1], array.where)
    return known
