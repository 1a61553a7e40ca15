"""File → device → file: two blocks on their way, each in memory and a stream of its own.

While the device copies and computes one, the other is written and the next one read. A block's
inputs go to the device in one copy from pinned memory, its outputs come back in one.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import accumulate
from typing import Any

import numpy as np

from trajcli.jobs.block import Block
from trajcli.kernels.choose import Choice
from trajcli.kernels.cuda import Cuda, DeviceLost, DeviceOutOfMemory
from trajcli.kernels.program import Operands
from trajcli.modes import PARTS

SLOTS = 2

_ALIGNED = 64
"""Bytes that arrays begin at a multiple of."""

_lost: list[Slot] = []
"""Memory that a lost device had: to give it back would ask the device, and end the process."""


def device_of(choice: Choice) -> Cuda:
    """The device of a choice that is not the CPU."""
    return Cuda(choice.device)


def pipelined(device: Cuda, choice: Choice, blocks: Iterator[Block]) -> Iterator[tuple[Block, int]]:
    """The blocks, done, in their order, and how many of their results are not finite."""
    slots = [Slot(device, choice) for _ in range(SLOTS)]
    free, busy = deque(slots), deque[tuple[Slot, Block]]()

    def finished() -> tuple[Block, int]:
        slot, block = busy.popleft()
        bad = slot.finish(block)
        free.append(slot)
        return block, bad

    try:
        for block in blocks:
            slot = free.popleft()
            slot.begin(block)
            busy.append((slot, block))
            if not free:
                yield finished()
        while busy:
            yield finished()
    except DeviceLost:
        _lost.extend(slots)
        raise
    finally:  # memory that is in use must not go to anybody else
        for slot in slots:
            with suppress(DeviceOutOfMemory, DeviceLost):
                slot.stream.wait()
        slots.clear()
        free.clear()
        busy.clear()
        with suppress(DeviceOutOfMemory, DeviceLost):
            device.release()


class Slot:
    """Memory for a block, pinned and on the device: as much as the largest so far needed."""

    def __init__(self, device: Cuda, choice: Choice) -> None:
        self.stream = device.stream()
        self._choice = choice
        self._operands = _Memory(device)
        self._outputs = _Memory(device)
        self._results: dict[str, Any] = {}

    def begin(self, block: Block) -> None:
        """Check a block and have it brought to the device, computed and copied back."""
        block.check()
        plan, inputs = block.plan, block.inputs
        host = inputs.operands()
        flat = [host.actions, host.dt, *host.start, *host.goal, host.start_index, host.goal_index]
        places = [k for k, array in enumerate(flat) if array is not None]
        kinds = [(flat[k].shape, flat[k].dtype.name) for k in places]
        kinds[0] = (host.actions.shape, _transported(host.actions.dtype))
        pinned, device = self._operands.arrays(kinds)
        for k, here, there in zip(places, pinned, device, strict=True):
            np.copyto(here.numpy(), flat[k], casting="unsafe")
            flat[k] = there
        operands = Operands(flat[0], flat[1], flat[2:6], flat[6:10], *flat[10:])
        batch, _, dofs = host.actions.shape
        shape = (int(batch), inputs.rows, int(dofs))
        results, device = self._outputs.arrays([(shape, plan.dtype)] * len(plan.quantities))
        out = dict(zip(plan.quantities, device, strict=True))

        def work() -> None:
            self._operands.bring()
            parts = [out.get(name) for name in PARTS]
            self._choice.kernels.forward(inputs.program(), operands, parts)
            self._outputs.fetch()

        self.stream.do(work)
        pairs = zip(plan.quantities, results, strict=True)
        self._results = {name: values.numpy() for name, values in pairs}

    def finish(self, block: Block) -> int:
        """Wait for a block's results and write them; how many are not finite."""
        self.stream.wait()
        return block.write(self._results.items())


class _Memory:
    """Arrays behind one another, in pinned memory and on the device."""

    def __init__(self, device: Cuda) -> None:
        self._device = device
        self._pinned: Any = None
        self._there: Any = None
        self._size = 0

    def arrays(self, kinds: Sequence[tuple[Sequence[int], str]]) -> tuple[list[Any], list[Any]]:
        """Tensors of such shapes and types, pinned and on the device."""
        import torch

        sizes = [math.prod(shape) * np.dtype(dtype).itemsize for shape, dtype in kinds]
        begins = [0, *accumulate(-(-size // _ALIGNED) * _ALIGNED for size in sizes)]
        self._size = begins[-1]
        if self._pinned is None or len(self._pinned) < self._size:
            self._pinned = self._there = None  # before there is more
            self._pinned = self._device.pinned(self._size)
            self._there = self._device.memory(self._size)

        def parts(whole: Any) -> list[Any]:
            return [
                whole[begin : begin + size].view(getattr(torch, dtype)).view(tuple(shape))
                for (shape, dtype), begin, size in zip(kinds, begins, sizes, strict=False)
            ]

        return parts(self._pinned), parts(self._there)

    def bring(self) -> None:
        """Copy to the device."""
        self._there[: self._size].copy_(self._pinned[: self._size], non_blocking=True)

    def fetch(self) -> None:
        """Copy back."""
        self._pinned[: self._size].copy_(self._there[: self._size], non_blocking=True)


def _transported(dtype: np.dtype[Any]) -> str:
    """The type in which actions are brought to a device."""
    return "float32" if dtype.kind == "f" and dtype.itemsize <= 4 else "float64"
