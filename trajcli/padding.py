"""Padded batches: trajectories of unequal length in one array, with zeros behind their rows.

This is how ``torch.nn.utils.rnn.pad_sequence`` pads. What a caller has in the padding is not read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from trajcli.arrays import (
    as_array,
    concatenate,
    index_shape_faults,
    is_torch,
    library,
    to_numpy,
    widened,
)
from trajcli.errors import Fault, raise_if_any
from trajcli.inputs import Inputs, repeated
from trajcli.kernels.program import Array

Numbers = npt.NDArray[np.int64]


def read_lengths(lengths: Array, batch: int, most: int) -> Numbers:
    """Returns the lengths [B] of trajectories; raises InputError unless each is 1 to ``most``."""
    values = as_array(lengths, "lengths")
    raise_if_any(index_shape_faults("lengths", batch, values))
    numbers: Numbers = to_numpy(values, "lengths").astype(np.int64)
    wrong = np.flatnonzero((numbers < 1) | (numbers > most))
    if len(wrong):
        where, found = f"lengths, trajectory {wrong[0]}", str(numbers[wrong[0]])
        raise_if_any([Fault("no such length", where=where, expected=f"1 to {most}", found=found)])
    return numbers


def grouped(lengths: Numbers) -> list[Numbers]:
    """Returns the numbers of the trajectories of each length."""
    return [np.flatnonzero(lengths == length) for length in sorted({*lengths.tolist()})]


def beside(numbers: npt.NDArray[Any], values: Array) -> Array:
    """Returns numbers in the library, and on the device, of values."""
    return library(values).from_numpy(numbers).to(values.device) if is_torch(values) else numbers


def split_at_gaps(stamps: npt.NDArray[Any], gap: float) -> list[Numbers]:
    """Returns the rows of each segment of a recording, by stamps [T] that are ``gap`` apart."""
    ends = np.flatnonzero(np.diff(stamps.astype(np.float64)) > gap) + 1
    return np.split(np.arange(len(stamps)), ends)


def zero_padding(values: Array, lengths: Numbers) -> Array:
    """Returns values [B, T, D] with zeros behind the rows of each trajectory."""
    behind = beside(np.arange(values.shape[1]) >= lengths[:, None], values)[..., None]
    if is_torch(values):
        return values.masked_fill(behind, 0)
    return np.where(behind, values.dtype.type(0), values)


def rows_of(values: Array, numbers: Numbers, count: int) -> Array:
    """Returns the first rows of some trajectories of values [B, T, D]."""
    return values[beside(numbers, values)][:, :count]


def extend_steps(inputs: Inputs, lengths: Numbers, horizon: int) -> Inputs:
    """Returns inputs whose steps, or time stamps, go on as the last one of each trajectory does.

    horizon: of the rows or actions that ``lengths`` count. Single steps, and those of a shape that
    is reported as wrong, are left as they are.
    """
    stamped = inputs.times is not None
    values = inputs.times if stamped else inputs.dt
    count = values.shape[-1] if values is not None and values.ndim else 1
    if values is None or count == 1 or values.shape[:-1] not in ((), (1,), lengths.shape):
        return inputs
    wide = widened(values).reshape(-1, count)
    last = (lengths if len(wide) == len(lengths) else lengths.max(keepdims=True))[:, None]
    last = last - 1 + count - horizon
    line, since = beside(np.arange(len(wide))[:, None], wide), np.arange(count) - last
    at, before = (beside(x.clip(min=0), wide) for x in (last, last - 1))
    step = wide[line, at] - wide[line, before] if stamped else wide[line, at]
    choose = library(wide).where
    # one row alone has no step; any that is positive serves
    unused = 1 if stamped else int(inputs.recorded and count == horizon)
    step = choose(beside(last < unused, wide), library(wide).ones_like(step), step)
    going_on = wide[line, at] + beside(since, wide) * step if stamped else step
    wide = choose(beside(since > 0, wide), going_on, wide).reshape(values.shape)
    return replace(inputs, **{"times" if stamped else "dt": wide})


def with_own_steps(inputs: Inputs) -> Inputs:
    """Returns inputs in which steps, or time stamps, that trajectories share are [B, h] or [B, T],
    for a mode whose last rows go on as the last step of each does."""
    batch, clock = len(inputs.actions), {"dt": inputs.dt, "times": inputs.times}
    shared = {k: x for k, x in clock.items() if x is not None and x.ndim and x.shape[-1] > 1}
    one = {k: x[None] if x.ndim == 1 else x for k, x in shared.items()}
    return replace(inputs, **{k: repeated(x, batch) for k, x in one.items() if len(x) == 1})


def select_trajectories(inputs: Inputs, numbers: Numbers, count: int) -> Inputs:
    """Returns inputs of some trajectories with their first ``count`` rows or actions."""
    batch, horizon, _ = inputs.actions.shape

    def pick(values: Any) -> Any:
        single = values is None or values.ndim == 0 or len(values) != batch
        return values if single else values[beside(numbers, values)]

    def steps(values: Any, first: int = 0) -> Any:
        if values is None or values.ndim == 0:
            return values
        values = pick(values) if values.ndim == 2 else values
        entries = values.shape[-1]
        return values if entries == 1 else values[..., first : entries + count - horizon]

    def states(parts: Mapping[str, Array], index: Array | None) -> Mapping[str, Array]:
        return parts if index is not None else {name: pick(x) for name, x in parts.items()}

    name = inputs.name("actions")
    return replace(
        inputs,
        mode=inputs.mode.select_trajectories(numbers),
        actions=rows_of(inputs.actions, numbers, count),
        start=states(inputs.start, inputs.start_index),
        goal=states(inputs.goal, inputs.goal_index),
        dt=inputs.dt if inputs.dt is None else steps(inputs.dt, inputs.unused_steps),
        times=steps(inputs.times),
        start_index=pick(inputs.start_index),
        goal_index=pick(inputs.goal_index),
        names={**inputs.names, "actions": f"{name}, trajectories of {count} rows"},
    )


def padded(values: Array, rows: int) -> Array:
    """Returns values [B, T, D] with zeros behind them, [B, rows, D]."""
    shape = (len(values), rows - values.shape[1], *values.shape[2:])
    zeros = values.new_zeros(shape) if is_torch(values) else np.zeros(shape, values.dtype)
    return concatenate([values, zeros], 1)


def joined(parts: Sequence[Array], groups: Sequence[Numbers], rows: int = 0) -> Array:
    """Returns values [B, D], or rows [B, T, D] with zeros behind those of each trajectory, of all
    trajectories from those of each group."""
    places = np.argsort(np.concatenate(groups))
    whole = concatenate([padded(x, rows) for x in parts] if rows else parts, 0)
    return whole[beside(places, whole)]
