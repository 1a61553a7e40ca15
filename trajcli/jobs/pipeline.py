"""File → device → file: blocks go through pinned memory, one lane copying each way, one computing.

While a block is computed, the one before it is copied back, the one before that written, and the
next one is read and copied in. A ring of slots bounds what is on the way: a slot holds a block's
actions and outputs, in pinned memory and on the device, until the block has been written.

Steps, states and tables are small beside the actions; they are copied as they are, in the lane
that copies in. What a stretch of rows leaves for the next stays on the device, and is fetched
with the rows.
"""

from __future__ import annotations

import math
import queue
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Any, Protocol

import numpy as np

from trajcli.arrays import to_numpy
from trajcli.inputs import Carry
from trajcli.jobs.job import Job
from trajcli.kernels.choose import Choice
from trajcli.kernels.cuda import Cuda, judged
from trajcli.kernels.device import Device, Lane, Lost, Mark, NoRoom
from trajcli.kernels.pairs import Pair
from trajcli.kernels.program import Program, run_program
from trajcli.modes import PARTS

SLOTS = 3
"""One copied in and computed, one copied back, one written."""

_SMALL = 1 << 16
"""Actions that are done sooner than another thread takes them over."""

State = Sequence[Pair] | None

_lost: list[Slot] = []
"""Memory that a lost device had: to give it back would ask the device, and end the process."""


@dataclass
class Slot:
    """Memory for one block: as bytes, as much as the largest so far needed, seen as arrays."""

    device: Device
    given: dict[str, Any] = field(default_factory=dict)
    """Pinned "host" and "device" memory for actions."""
    made: dict[str, Any] = field(default_factory=dict)
    """The same for outputs."""
    program: Program | None = None
    state: State = None
    done: Mark | None = None

    def arrays(
        self, held: dict[str, Any], shapes: Mapping[str, tuple[int, ...]], dtype: str
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Tensors of such shapes in pinned memory, and the same on the device."""
        import torch

        kind = getattr(torch, dtype)
        counts = [math.prod(shape) for shape in shapes.values()]
        size = kind.itemsize * sum(counts)
        for place, made in (("host", self.device.pinned), ("device", self.device.memory)):
            if place not in held or held[place].numel() < size:
                held.pop(place, None)  # before there is more
                held[place] = made(size)
        found: list[dict[str, Any]] = []
        for place in ("host", "device"):
            parts = torch.split(held[place][:size].view(kind), counts)
            found.append(
                {n: p.view(shape) for (n, shape), p in zip(shapes.items(), parts, strict=True)}
            )
        return found[0], found[1]

    def clear(self) -> None:
        """Forget the block; the memory stays."""
        self.program = self.state = self.done = None


@dataclass(frozen=True)
class Computed:
    """A block whose results are on their way: values in pinned memory once ``slot.done``."""

    slot: Slot
    results: dict[str, Any]
    bounded: bool


class Worker(Protocol):
    """What computes blocks, in their order; used as a context."""

    @property
    def ahead(self) -> int:
        """How many blocks may be on their way when another one comes."""

    def submit(self, job: Job) -> Future[int]:
        """A block on its way; what its ``write`` returns."""

    def __enter__(self) -> Worker: ...

    def __exit__(self, *error: Any) -> None: ...


class InOrder:
    """One block after the other, by another thread; small ones that need no memory of their own
    by the one that brings them."""

    ahead = 0

    def __init__(self, choice: Choice) -> None:
        self._choice = choice
        self._thread = ThreadPoolExecutor(1)
        self._last: Future[int] = Future()
        self._last.set_result(0)

    def __enter__(self) -> InOrder:
        return self

    def __exit__(self, *error: Any) -> None:
        self._thread.shutdown()

    def submit(self, job: Job) -> Future[int]:
        """See :class:`Worker`."""
        if job.views is None or job.inputs.actions.size >= _SMALL:
            self._last = self._thread.submit(self._run, job)
            return self._last
        self._last.result()
        done: Future[int] = Future()
        done.set_result(self._run(job))
        return done

    def _run(self, job: Job) -> int:
        bounded = job.check()
        if self._choice.device == "cpu":
            return job.write(job.results(), bounded)
        with judged():
            return job.write(job.results(), bounded)


def device_for(choice: Choice) -> Device | None:
    """The device of a choice, where it has memory of its own."""
    return None if choice.device == "cpu" else Cuda(choice.device)


class Pipeline:
    """Blocks in, results out, in order; used as a context.

    After a failure every later block fails too, so that the first one tells what it was and the
    run can go on from there.
    """

    ahead = SLOTS - 1

    def __init__(self, device: Device, choice: Choice, dtype: str, wanted: Sequence[str]) -> None:
        self._device, self._choice = device, choice
        self._dtype, self._wanted = dtype, tuple(wanted)
        self._lanes: list[Lane] = [device.lane() for _ in range(3)]
        self._free: queue.Queue[Slot] = queue.Queue()
        self._slots = [Slot(device) for _ in range(SLOTS)]
        for slot in self._slots:
            self._free.put(slot)
        self._begin = ThreadPoolExecutor(1)
        self._end = ThreadPoolExecutor(1)
        self._writers = ThreadPoolExecutor(len(PARTS))
        self._failed: BaseException | None = None
        self._carry: Carry | None = None
        self._state: dict[str, State] = {}
        self._last: Mark | None = None

    def __enter__(self) -> Pipeline:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Leave nothing running: memory that is in use must not go to anybody else."""
        if error is not None:
            self._failed = self._failed or error
        self._begin.shutdown()
        self._end.shutdown()
        self._writers.shutdown()
        if isinstance(self._failed, Lost):
            _lost.extend(self._slots)
        for lane in self._lanes:
            with suppress(NoRoom, Lost):
                lane.mark().wait()
        self._free, self._state = queue.Queue(), {}
        with suppress(NoRoom, Lost):
            self._device.release()

    def submit(self, job: Job) -> Future[int]:
        """See :class:`Worker`."""
        begun = self._begin.submit(self._guarded, self._compute, job)
        return self._end.submit(self._guarded, self._finish, begun, job)

    def _guarded(self, step: Callable[..., Any], *arguments: Any) -> Any:
        if self._failed is not None:
            raise self._failed
        try:
            return step(*arguments)
        except BaseException as error:
            self._failed = self._failed or error
            raise

    def _compute(self, job: Job) -> Computed:
        """Check a block, bring it to the device and have it computed and copied back."""
        bounded = job.check()
        slot, inputs = self._free.get(), job.inputs
        copy_in, compute, copy_out = self._lanes
        given, (first, last) = inputs.actions, inputs.reach.rows
        host, device = slot.arrays(slot.given, {"actions": given.shape}, _transported(given.dtype))
        shape = (int(given.shape[0]), last - first, int(given.shape[2]))
        results, out = slot.arrays(slot.made, dict.fromkeys(self._wanted, shape), self._dtype)
        there = replace(inputs, actions=device["actions"])
        if self._carry is not job.carry:
            self._state = {"before": job.carry.state}
        passed, goes_on = self._state, first > 0 and self._carry is job.carry
        self._carry = job.carry

        gathers = self._choice.backend == "triton"

        def build() -> None:
            slot.program = there.program(self._choice.device, Carry(passed["before"]), gathers)

        def run() -> None:
            assert slot.program is not None
            places = [out.get(name) for name in PARTS]
            slot.state = passed["before"] = run_program(
                slot.program, self._choice.kernels, places, last < inputs.rows
            )

        np.copyto(host["actions"].numpy(), given, casting="unsafe")
        copy_in.do(lambda: _copy(device, host))
        if goes_on and self._last is not None:
            copy_in.after(self._last)  # where the state was computed
        copy_in.do(build)
        compute.after(copy_in.mark())
        compute.do(run)
        self._last = compute.mark()
        copy_out.after(self._last)
        copy_out.do(lambda: _copy(results, out))
        slot.done = copy_out.mark()
        return Computed(slot, {name: part.numpy() for name, part in results.items()}, bounded)

    def _finish(self, begun: Future[Computed], job: Job) -> int:
        """Wait for a block's results and write them."""
        computed = begun.result()
        slot = computed.slot
        assert slot.done is not None
        slot.done.wait()
        state = slot.state and [Pair(to_numpy(p.hi), to_numpy(p.lo)) for p in slot.state]
        begin = job.block.begin
        results = ((name, begin, values) for name, values in computed.results.items())
        bad = job.write(results, computed.bounded, self._writers.map)
        job.carry.state = state
        slot.clear()
        self._free.put(slot)
        return bad


def _copy(to: Mapping[str, Any], given: Mapping[str, Any]) -> None:
    for name, values in given.items():
        to[name].copy_(values, non_blocking=True)


def _transported(dtype: np.dtype[Any]) -> str:
    """The type in which actions are brought to a device: floats as they are, else float64."""
    return dtype.name if dtype.kind == "f" and dtype.itemsize <= 8 else "float64"
