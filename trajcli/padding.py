"""Padded batches: trajectories of unequal length in one array, with zeros behind their rows.

This is how ``torch.nn.utils.rnn.pad_sequence`` pads. What a caller has in the padding is not read.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from trajcli.arrays import (
    as_array,
    concatenate,
    index_shape_faults,
    is_torch,
    library,
    to_numpy,
    widen,
)
from trajcli.errors import Fault, raise_if_any
from trajcli.inputs import Inputs
from trajcli.kernels.program import Array, ArrayLike, Integers, NumpyArray

Numbers = Integers


def read_lengths(lengths: ArrayLike, batch: int, most: int) -> Numbers:
    """Reads the lengths [B] of trajectories; raises InputError unless each is 1 to ``most``."""
    # a trajectory of no rows would have no first row to start from
    values = as_array(lengths, "lengths")
    raise_if_any(index_shape_faults("lengths", batch, values))
    numbers: Numbers = to_numpy(values, "lengths").astype(np.int64)
    wrong = np.flatnonzero((numbers < 1) | (numbers > most))
    if len(wrong):
        where, found = f"lengths, trajectory {wrong[0]}", str(numbers[wrong[0]])
        raise_if_any([Fault("no such length", where=where, expected=f"1 to {most}", found=found)])
    return numbers


def group_by_length(lengths: Numbers) -> list[Numbers]:
    return [np.flatnonzero(lengths == length) for length in sorted({*lengths.tolist()})]


def index_array(numbers: NumpyArray, values: Array) -> Any:
    """Moves numbers to the library, and the device, of the values that they index."""
    if is_torch(values):
        return sys.modules["torch"].from_numpy(numbers).to(values.device)
    return numbers


def split_at_gaps(stamps: NumpyArray, gap: float) -> list[Numbers]:
    """Splits the rows of a recording where its stamps [T] are more than ``gap`` apart."""
    ends = np.flatnonzero(np.diff(stamps.astype(np.float64)) > gap) + 1
    return np.split(np.arange(len(stamps)), ends)


def zero_padding(values: Array, lengths: Numbers) -> Array:
    # masked, not multiplied: the padding may hold NaN
    behind = index_array(np.arange(values.shape[1]) >= lengths[:, None], values)[..., None]
    if is_torch(values):
        return values.masked_fill(behind, 0)
    return np.where(behind, values.dtype.type(0), values)


def extend_steps(inputs: Inputs, lengths: Numbers, horizon: int) -> Inputs:
    """Continues steps, or time stamps, behind each of the lengths, by the last step before."""
    stamped = inputs.times is not None
    values = inputs.times if stamped else inputs.dt
    count = values.shape[-1] if values is not None and values.ndim else 1
    # single steps, and those of a shape that is reported as wrong, are left as they are
    if values is None or count == 1 or values.shape[:-1] not in ((), (1,), lengths.shape):
        return inputs
    wide: Array = widen(values).reshape(-1, count)
    # the last entry of each line; one line that several trajectories share ends with the longest
    last = (lengths if len(wide) == len(lengths) else lengths.max(keepdims=True))[:, None]
    last = last - 1 + count - horizon
    line = index_array(np.arange(len(wide))[:, None], wide)
    since = np.arange(count) - last
    end, before = (index_array(x.clip(min=0), wide) for x in (last, last - 1))
    step = wide[line, end] - wide[line, before] if stamped else wide[line, end]
    choose = library(wide).where
    # one row alone has no step, and dt may have an unused entry before it: any positive one serves
    unused = 1 if stamped else int(inputs.recorded and count == horizon)
    step = choose(index_array(last < unused, wide), library(wide).ones_like(step), step)
    tail = wide[line, end] + index_array(since, wide) * step if stamped else step
    wide = choose(index_array(since > 0, wide), tail, wide).reshape(values.shape)
    changed: dict[str, Any] = {"times" if stamped else "dt": wide}
    return replace(inputs, **changed)


def select_trajectories(inputs: Inputs, numbers: Numbers, count: int) -> Inputs:
    """Selects some trajectories, with their first ``count`` rows or actions."""
    batch, horizon, _ = inputs.actions.shape

    def select(values: Any) -> Any:
        shared = values is None or values.ndim == 0 or len(values) != batch
        return values if shared else values[index_array(numbers, values)]

    def shorten(values: Any, first: int = 0) -> Any:
        if values is None or values.ndim == 0:
            return values
        values = select(values) if values.ndim == 2 else values
        # as many entries are cut as rows, whether steps, stamps or steps after an unused one
        entries = values.shape[-1]
        return values if entries == 1 else values[..., first : entries + count - horizon]

    # states that an index names stay whole, and the index is selected
    start, goal = (
        parts if index is not None else {name: select(x) for name, x in parts.items()}
        for parts, index in (
            (inputs.start, inputs.start_index),
            (inputs.goal, inputs.goal_index),
        )
    )
    name = inputs.name("actions")
    return replace(
        inputs,
        mode=inputs.mode.select_trajectories(numbers),
        actions=inputs.actions[index_array(numbers, inputs.actions)][:, :count],
        start=start,
        goal=goal,
        dt=inputs.dt if inputs.dt is None else shorten(inputs.dt, inputs.unused_steps),
        times=shorten(inputs.times),
        start_index=select(inputs.start_index),
        goal_index=select(inputs.goal_index),
        names={**inputs.names, "actions": f"{name}, trajectories of {count} rows"},
    )


def padded(values: Array, rows: int) -> Array:
    shape = (len(values), rows - values.shape[1], *values.shape[2:])
    zeros = values.new_zeros(shape) if is_torch(values) else np.zeros(shape, values.dtype)
    return concatenate([values, zeros], 1)


def merge_groups(parts: Sequence[Array], groups: Sequence[Numbers], rows: int = 0) -> Array:
    """Merges values [B, D], or with ``rows`` padded rows [B, T, D], in the order of numbers."""
    # groups hold each number once, so sorting them inverts the grouping
    order = np.argsort(np.concatenate(groups))
    values = concatenate([padded(x, rows) for x in parts] if rows else parts, 0)
    return values[index_array(order, values)]
