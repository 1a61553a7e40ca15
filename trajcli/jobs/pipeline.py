"""File → device → file: two blocks on their way, each in memory and a stream of its own.

While the device copies and computes one, the other is written and the next one read. A block's
inputs go to the device in one copy from pinned memory, its outputs come back in one.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from trajcli.jobs.job import Job
from trajcli.kernels.choose import Choice
from trajcli.kernels.device import Device, Lost, NoRoom
from trajcli.kernels.program import Operands
from trajcli.modes import PARTS

SLOTS = 2

_ALIGNED = 64
"""Bytes that arrays begin at a multiple of."""

_lost: list[Slot] = []
"""Memory that a lost device had: to give it back would ask the device, and end the process."""


def device_of(choice: Choice) -> Device:
    """The device of a choice that is not the CPU."""
    from trajcli.kernels.cuda import Cuda

    return Cuda(choice.device)


class Pipeline:
    """Blocks in, results out, in order."""

    def __init__(self, device: Device, choice: Choice) -> None:
        self._device, self._choice = device, choice

    def run(self, jobs: Iterator[Job]) -> Iterator[tuple[Job, int]]:
        """The jobs, done, and how many of their results are not finite."""
        slots = [Slot(self._device, self._choice) for _ in range(SLOTS)]
        free, busy = deque(slots), deque[tuple[Slot, Job]]()

        def finished() -> tuple[Job, int]:
            slot, job = busy.popleft()
            bad = slot.finish(job)
            free.append(slot)
            return job, bad

        try:
            for job in jobs:
                slot = free.popleft()
                slot.begin(job)
                busy.append((slot, job))
                if not free:
                    yield finished()
            while busy:
                yield finished()
        except Lost:
            _lost.extend(slots)
            raise
        finally:  # memory that is in use must not go to anybody else
            for slot in slots:
                with suppress(NoRoom, Lost):
                    slot.stream.wait()
            slots.clear()
            free.clear()
            busy.clear()
            with suppress(NoRoom, Lost):
                self._device.release()


class Slot:
    """Memory for a block, pinned and on the device: as much as the largest so far needed."""

    def __init__(self, device: Device, choice: Choice) -> None:
        self.stream = device.stream()
        self._choice = choice
        self._given = _Memory(device)
        self._made = _Memory(device)
        self._results: dict[str, Any] = {}

    def begin(self, job: Job) -> None:
        """Check a block and have it brought to the device, computed and copied back."""
        job.check()
        plan, inputs = job.plan, job.inputs
        given = inputs.operands()
        flat = _flat(given)
        places = [k for k, array in enumerate(flat) if array is not None]
        kinds = [(flat[k].shape, flat[k].dtype.name) for k in places]
        kinds[0] = (given.actions.shape, _transported(given.actions.dtype))
        here, there = self._given.arrays(kinds)
        for k, pinned, brought in zip(places, here, there, strict=True):
            np.copyto(pinned.numpy(), flat[k], casting="unsafe")
            flat[k] = brought
        operands = _like(flat)
        shape = (int(given.actions.shape[0]), inputs.rows, int(given.actions.shape[2]))
        results, made = self._made.arrays([(shape, plan.dtype)] * len(plan.wanted))
        out = dict(zip(plan.wanted, made, strict=True))

        def work() -> None:
            self._given.bring()
            parts = [out.get(name) for name in PARTS]
            self._choice.kernels.forward(inputs.program(), operands, parts)
            self._made.fetch()

        self.stream.do(work)
        self._results = {
            name: values.numpy() for name, values in zip(plan.wanted, results, strict=True)
        }

    def finish(self, job: Job) -> int:
        """Wait for a block's results and write them; how many are not finite."""
        self.stream.wait()
        begin = job.block.begin
        return job.write((name, begin, values) for name, values in self._results.items())


class _Memory:
    """Arrays behind one another, in pinned memory and on the device."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._pinned: Any = None
        self._there: Any = None
        self._size = 0

    def arrays(self, kinds: Sequence[tuple[Sequence[int], str]]) -> tuple[list[Any], list[Any]]:
        """Tensors of such shapes and types, pinned and on the device."""
        import torch

        sizes = [math.prod(shape) * np.dtype(dtype).itemsize for shape, dtype in kinds]
        begins = [0]
        for size in sizes:
            begins.append(begins[-1] + -(-size // _ALIGNED) * _ALIGNED)
        self._size = begins[-1]
        if self._pinned is None or len(self._pinned) < self._size:
            self._pinned = self._there = None  # before there is more
            self._pinned = self._device.pinned(self._size)
            self._there = self._device.memory(self._size)
        both: list[list[Any]] = [
            [
                whole[begin : begin + size].view(getattr(torch, dtype)).view(tuple(shape))
                for (shape, dtype), begin, size in zip(kinds, begins, sizes, strict=False)
            ]
            for whole in (self._pinned, self._there)
        ]
        return both[0], both[1]

    def bring(self) -> None:
        """Copy to the device."""
        self._there[: self._size].copy_(self._pinned[: self._size], non_blocking=True)

    def fetch(self) -> None:
        """Copy back."""
        self._pinned[: self._size].copy_(self._there[: self._size], non_blocking=True)


def _flat(operands: Operands) -> list[Any]:
    """Their arrays, in their order; None where there is none."""
    actions, dt, start, goal, *indices = operands
    return [actions, dt, *start, *goal, *indices]


def _like(arrays: Sequence[Any]) -> Operands:
    """Operands from arrays in this order."""
    actions, dt, *states, start_index, goal_index = arrays
    return Operands(actions, dt, states[:4], states[4:], start_index, goal_index)


def _transported(dtype: np.dtype[Any]) -> str:
    """The type in which actions are brought to a device."""
    return "float32" if dtype.kind == "f" and dtype.itemsize <= 4 else "float64"
