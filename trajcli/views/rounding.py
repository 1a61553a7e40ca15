"""What the rounding of stored start rows and actions comes to in the rows computed from them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from trajcli.files.schema import QUANTITIES
from trajcli.inputs import Inputs
from trajcli.kernels.choose import choose
from trajcli.kernels.program import Band, Cascade
from trajcli.modes.stencils import derivative_weights
from trajcli.views.trajectories import Array, Floats

_DOUBLE = float(np.finfo(np.float64).eps)


def half_unit(dtype: np.dtype[Any]) -> float:
    """The share of a value by which rounding it moves it at most."""
    return float(np.finfo(dtype).eps) / 2


def rounding_spread(
    inputs: Inputs, values: Mapping[str, Array], names: Sequence[str], roundings: int = 1
) -> dict[str, Floats]:
    """How far rows [b, T, D] may be off because start row, actions and time stamps are rounded.

    values: the stored rows by quantity, float32 or float64, rounded so many times; inputs: what
    was made of them.
    """
    steps = inputs.steps()
    share = roundings * max(half_unit(array.dtype) for array in values.values()) + 4 * _DOUBLE
    if inputs.times is not None and steps.size:
        share += 4 * float(np.spacing(np.abs(inputs.times).max()) / steps.min())
    program = inputs.program()
    if isinstance(program, Band):
        return _of_band(program, inputs, values["position"], steps, share, names)
    return _of_cascade(program, inputs, values, steps, share, names)


def _of_cascade(
    program: Cascade,
    inputs: Inputs,
    values: Mapping[str, Array],
    steps: Floats,
    share: float,
    names: Sequence[str],
) -> dict[str, Floats]:
    """All coefficients of the sums are positive: the sums of magnitudes bound those of errors.

    A difference of two has the errors of both, over dt.
    """
    spread: dict[str, Floats] = {}
    sums = [name for name in names if QUANTITIES.index(name) < program.order]
    if sums:
        start = {
            name: share * np.abs(part, dtype=np.float64) for name, part in inputs.start.items()
        }
        actions = share * np.abs(inputs.actions, dtype=np.float64)
        sized = replace(inputs, actions=actions, start=start)
        spread = sized.compute(choose("cpu"), "float64", sums)
    highest = max(QUANTITIES.index(name) for name in names)
    before = share * np.abs(values[QUANTITIES[program.order]], dtype=np.float64)
    for m in range(program.order + 1, highest + 1):
        here = np.zeros_like(before)
        here[:, 1:] = (before[:, 1:] + before[:, :-1]) / steps[..., None]
        if QUANTITIES[m] in values:
            here[:, 0] = share * np.abs(values[QUANTITIES[m]][:, 0])
        if inputs.recorded:  # rows that take the first value that can be differenced
            here[:, :m] = here[:, m : m + 1] if here.shape[1] > m else 0.0
        spread[QUANTITIES[m]] = before = here
    return spread


def _of_band(
    program: Band,
    inputs: Inputs,
    positions: Array,
    steps: Floats,
    share: float,
    names: Sequence[str],
) -> dict[str, Floats]:
    """The sums of the magnitudes of a row's weights, times the largest point of the trajectory."""
    shape = positions.shape
    if program.width < 2 or program.steps < 1:
        return {name: np.zeros(shape) for name in names}
    size = np.abs(positions, dtype=np.float64)
    size = np.where(np.isfinite(size), size, 0.0).max(1, keepdims=True)
    for m, part in enumerate(inputs.operands().start):
        if part is not None and m:
            size = size + np.abs(part[:, None]) * steps[:, :1, None] ** m
    ahead = len(program.head)
    points = ahead + program.used + program.held
    gap = np.clip(np.arange(points - 1) - max(ahead - 1, 0), 0, program.steps - 1)
    gaps = steps[:, np.minimum(gap, steps.shape[1] - 1)]
    places = np.cumsum(np.insert(gaps, 0, 0.0, 1), axis=1)
    first, base = program.windows.first(), np.array(program.base)[program.windows.kind()]
    window = [places[:, first + i] for i in range(program.width)]
    weights = derivative_weights(window, places[:, first + base], 1.0)
    spread = {}
    for name in names:
        total: Any = sum(np.abs(weight) for weight in weights[QUANTITIES.index(name)])
        allowed = np.zeros((len(size), *shape[1:]))
        allowed[:, int(program.start_row) :] = share * total[..., None] * size
        spread[name] = allowed
    return spread
