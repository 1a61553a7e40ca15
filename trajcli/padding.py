"""Padded batches: trajectories of unequal length in one array, with zeros behind their rows.

This is how ``torch.nn.utils.rnn.pad_sequence`` pads. What a caller has in the padding is not read.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
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
from trajcli.inputs import Inputs
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


def beside(numbers: npt.NDArray[Any], values: Array) -> Array:
    """Returns numbers in the library, and on the device, of values."""
    return library(values).from_numpy(numbers).to(values.device) if is_torch(values) else numbers


def grouped(keys: Iterable[Hashable]) -> list[Numbers]:
    """Returns the numbers of the trajectories that have equal keys."""
    groups: dict[Hashable, list[int]] = {}
    for number, key in enumerate(keys):
        groups.setdefault(key, []).append(number)
    return [np.array(numbers) for numbers in groups.values()]


def zeroed(values: Array, lengths: Numbers) -> Array:
    """Returns values [B, T, D] with zeros behind the rows of each trajectory."""
    behind = beside(np.arange(values.shape[1]) >= lengths[:, None], values)[..., None]
    if is_torch(values):
        return values.masked_fill(behind, 0)
    return np.where(behind, values.dtype.type(0), values)


def rows_of(values: Array, numbers: Numbers, count: int) -> Array:
    """Returns the first rows of some trajectories of values [B, T, D]."""
    return values[beside(numbers, values)][:, :count]


def continued(inputs: Inputs, lengths: Numbers, horizon: int) -> Inputs:
    """Returns inputs whose steps, or time stamps, go on as the last one of each trajectory does.

    horizon: of the rows or actions that ``lengths`` count.
    """
    dt, times = inputs.dt, inputs.times
    if dt is not None:
        unused = int(inputs.recorded and dt.ndim > 0 and dt.shape[-1] == horizon > 1)
        dt = _continued(dt, lengths, horizon, unused, stamps=False)
    if times is not None:
        times = _continued(times, lengths, horizon, 1, stamps=True)
    return replace(inputs, dt=dt, times=times)


def _continued(values: Array, lengths: Numbers, horizon: int, first: int, *, stamps: bool) -> Array:
    """Returns steps or time stamps, [n] or [B, n], that go on behind those of each trajectory.

    first: the entry of the first step, or of the stamp at its end. Single steps, and those of a
    shape that is reported as wrong, are returned unchanged.
    """
    count = values.shape[-1] if values.ndim else 1
    if count == 1 or tuple(values.shape[:-1]) not in ((), (1,), lengths.shape):
        return values
    wide = widened(values).reshape(-1, count)
    last = (lengths if len(wide) == len(lengths) else lengths.max(keepdims=True))[:, None]
    last = last - 1 + count - horizon
    line, since = beside(np.arange(len(wide))[:, None], wide), np.arange(count) - last
    at, before = (beside(x.clip(min=0), wide) for x in (last, last - 1))
    end = wide[line, at]
    step = end - wide[line, before] if stamps else end
    choose = library(wide).where
    # one row alone has no step; any that is positive serves
    step = choose(beside(last < first, wide), library(wide).ones_like(step), step)
    going_on = end + beside(since, wide) * step if stamps else step
    going_on = going_on.detach() if is_torch(wide) else going_on
    return choose(beside(since > 0, wide), going_on, wide).reshape(values.shape)


def of_some(inputs: Inputs, numbers: Numbers, count: int) -> Inputs:
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
        mode=inputs.mode.of_trajectories(numbers),
        actions=rows_of(inputs.actions, numbers, count),
        start=states(inputs.start, inputs.start_index),
        goal=states(inputs.goal, inputs.goal_index),
        dt=inputs.dt if inputs.dt is None else steps(inputs.dt, inputs.unused_steps()),
        times=steps(inputs.times),
        start_index=pick(inputs.start_index),
        goal_index=pick(inputs.goal_index),
        names={**inputs.names, "actions": f"{name}, trajectories of {count} rows"},
    )


def joined(parts: Sequence[Array], groups: Sequence[Numbers], rows: int = 0) -> Array:
    """Returns values [B, D], or rows [B, T, D] with zeros behind those of each trajectory, of all
    trajectories from those of each group."""
    padded = []
    for x in parts:
        if not rows:
            padded.append(x)
            continue
        shape = (len(x), rows - x.shape[1], *x.shape[2:])
        zeros = x.new_zeros(shape) if is_torch(x) else np.zeros(shape, x.dtype)
        padded.append(concatenate([x, zeros], 1))
    places = np.argsort(np.concatenate(groups))
    return concatenate(padded, 0)[beside(places, parts[0])]
