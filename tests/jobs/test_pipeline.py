"""A run through a device's pipeline gives the bytes of a run without, whatever happens on the way.

The device here is the CPU behind streams that are threads; it can be short of memory, or be
lost, at any point.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import torch

from trajcli.errors import InputError, Stopped, UsageError
from trajcli.jobs import pipeline
from trajcli.jobs.block import Block
from trajcli.jobs.request import Request
from trajcli.jobs.run import run
from trajcli.kernels import cuda
from trajcli.kernels.choose import Choice, Work, choose
from trajcli.kernels.cuda import DeviceLost, DeviceOutOfMemory

BATCH, HORIZON, DOFS = 23, 150, 3


class ThreadStream:
    """Work done by a thread, some of it late."""

    def __init__(self, device: ThreadDevice, delay: float) -> None:
        self._device, self._delay = device, delay
        self._work: queue.Queue[Callable[[], None] | None] = queue.Queue()
        self._error: BaseException | None = None
        self.busy = False
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        with torch.inference_mode():
            while (work := self._work.get()) is not None:
                try:
                    work()
                except BaseException as error:
                    self._error = self._error or error

    def do(self, work: Callable[[], None]) -> None:
        def step() -> None:
            if self._error is None:
                self.busy = True
                time.sleep(self._delay)
                self._device.happens("work")
                work()
                self.busy = False

        self._work.put(step)

    def wait(self) -> None:
        reached = threading.Event()
        self._work.put(reached.set)
        assert reached.wait(20)
        if self._error is not None:
            raise self._error

    def close(self) -> None:
        self._work.put(None)


class ThreadDevice:
    """The CPU; ``faults``: what to raise at the n-th piece of work or asking for memory."""

    name = "cpu"

    def __init__(self, faults: dict[tuple[str, int], BaseException] | None = None) -> None:
        self._faults = faults or {}
        self._counts = {"work": 0, "memory": 0}
        self._lock = threading.Lock()
        self.streams: list[ThreadStream] = []
        self.largest = 0
        self.delays = 0.004, 0.001  # seconds, of streams in turn

    def happens(self, what: str) -> None:
        with self._lock:
            self._counts[what] += 1
            fault = self._faults.get((what, self._counts[what]))
        if fault is not None:
            raise fault

    def pinned(self, count: int) -> Any:
        return torch.full((count,), 255, dtype=torch.uint8)  # a NaN where nothing is written

    def memory(self, count: int) -> Any:
        self.happens("memory")
        self.largest = max(self.largest, count)
        return self.pinned(count)

    def stream(self) -> ThreadStream:
        self.streams.append(ThreadStream(self, self.delays[len(self.streams) % 2]))
        return self.streams[-1]

    def release(self) -> None:
        pass

    def errors(self) -> Any:
        return nullcontext()


@pytest.fixture
def use(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., ThreadDevice]]:
    """Have runs of this process go through such a device."""
    made: list[ThreadDevice] = []

    def install(faults: dict[tuple[str, int], BaseException] | None = None) -> ThreadDevice:
        made.append(ThreadDevice(faults))
        monkeypatch.setattr("trajcli.jobs.run.device_of", lambda choice: made[-1])
        monkeypatch.setattr(
            "trajcli.jobs.plan.choose", lambda *_: Choice("torch", "cpu:0", "a test")
        )
        monkeypatch.setattr("trajcli.jobs.block.free_bytes", lambda name: 1 << 40)
        return made[-1]

    yield install
    for device in made:
        for stream in device.streams:
            stream.close()
            stream.thread.join(20)
            assert not stream.thread.is_alive()


@pytest.fixture
def request_(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Request:
    """A job of many blocks."""
    monkeypatch.chdir(tmp_path)
    random = np.random.default_rng(0)
    actions = random.standard_normal((BATCH, HORIZON, DOFS))
    np.save("actions.npy", actions.astype("f4"))
    np.save("halves.npy", actions.astype(">f2"))
    np.save("counts.npy", (100 * actions).astype("i2"))
    np.save("each.npy", random.uniform(0.01, 0.1, (BATCH, 1)))
    np.save("all.npy", random.uniform(0.01, 0.1, (BATCH, HORIZON)))
    np.save("index.npy", random.integers(0, 4, BATCH))
    np.save("states.npy", random.standard_normal((4, DOFS)))
    with h5py.File("lengths.h5", "w") as file:
        for k, rows in enumerate((70, 40, 70, 90, 40)):
            file[f"demo_{k}/actions"] = actions[k, :rows]
    return Request(
        sources=["actions.npy"],
        out=Path("out.h5"),
        dt="0.02",
        start="zero",
        backend="torch",
        memory=1 << 20,
    )


CASES: dict[str, dict[str, Any]] = {
    "jerk": {"mode": "jerk"},
    "a dt each": {"dt": "each.npy", "options": {"scheme": "foh"}},
    "a dt for every step": {"dt": "all.npy", "mode": "velocity"},
    "states by index": {"start": "states.npy", "start_index": "index.npy"},
    "central": {"mode": "central"},
    "bspline": {"mode": "bspline"},
    "half precision": {"sources": ["halves.npy"]},
    "whole numbers": {"sources": ["counts.npy"], "mode": "jerk"},
    "float64": {"dtype": "float64"},
    "one quantity": {"write": ("velocity",)},
    "compressed": {"compress": 1},
    "different lengths": {"sources": ["lengths.h5:*/actions"]},
    "padded": {"sources": ["lengths.h5:*/actions"], "pack": True},
    "one block": {"memory": 1 << 28},
}


def bytes_of(request: Request) -> bytes:
    run(request)
    written = request.out.read_bytes()
    request.out.unlink()
    return written


@pytest.mark.parametrize("options", CASES.values(), ids=CASES)
def test_the_pipeline_writes_the_same_bytes(request_, use, options):
    request = replace(request_, **options)
    want = bytes_of(request)
    use()
    assert bytes_of(request) == want


@pytest.mark.parametrize(
    ("what", "number"), [("memory", 1), ("memory", 4), ("work", 2), ("work", 5)]
)
def test_where_memory_is_short_blocks_are_halved_and_the_run_goes_on(request_, use, what, number):
    request = replace(request_, mode="jerk", dt="all.npy")
    want = bytes_of(request)
    use({(what, number): DeviceOutOfMemory("out of memory")})
    report = run(request)
    assert request.out.read_bytes() == want
    assert report["notes"] == ["blocks were halved: memory on cpu:0 was short"]


def test_blocks_are_halved_as_often_as_needed(request_, use):
    request = replace(request_, memory=1 << 28)
    want = bytes_of(request)
    device = use()
    room = 4 * 4 * 4 * (HORIZON + 1) * DOFS  # of four trajectories

    def memory(count: int) -> Any:
        if count > room:
            raise DeviceOutOfMemory("out of memory")
        return device.pinned(count)

    device.memory = memory  # type: ignore[method-assign]
    report = run(request)
    assert request.out.read_bytes() == want
    assert report["notes"] == ["blocks were halved 3 times: memory on cpu:0 was short"]


def test_no_room_for_the_smallest_block_is_one_message(request_, use):
    device = use()

    def memory(count: int) -> Any:
        raise DeviceOutOfMemory("CUDA out of memory, 3 bytes free")

    device.memory = memory  # type: ignore[method-assign]
    with pytest.raises(UsageError, match="3 bytes free"):
        run(request_)
    assert not [path for path in Path().iterdir() if "out" in path.name]


@pytest.mark.parametrize("number", [1, 5])
def test_a_device_lost_on_the_way_stops_a_run(request_, use, number, monkeypatch):
    request = replace(request_, mode="jerk", dt="all.npy")
    lost_slots: list[pipeline.Slot] = []
    monkeypatch.setattr(pipeline, "_lost", lost_slots)
    use({("work", number): DeviceLost("unspecified launch failure")})
    with pytest.raises(
        Stopped, match=r"loss of cpu:0 .*failure(?s:.*)same command again"
    ) as stopped:
        run(request)
    assert stopped.value.exit_code == 75
    assert not request.out.exists()
    assert len(lost_slots) == pipeline.SLOTS  # to free it would ask the device


def test_wrong_values_are_named_and_nothing_is_left(request_, use):
    actions = np.load("actions.npy")
    actions[20, 5, 1] = np.nan
    np.save("actions.npy", actions)
    use()
    with pytest.raises(InputError, match="trajectory 20, step 5, dof 1"):
        run(request_)
    assert not [path for path in Path().iterdir() if "out" in path.name]


def test_memory_on_the_way_is_bounded_by_the_slots(request_, use):
    device = use()
    run(replace(request_, memory=1 << 18))
    assert 0 < 2 * pipeline.SLOTS * device.largest <= 1 << 18


def test_a_block_is_computed_while_another_is_read_or_written(request_, use, monkeypatch):
    device = use()
    device.delays = 0.05, 0.05  # longer than a busy machine takes to come back
    at_once: list[int] = []
    write = Block.write

    def look(self: Block, results: Any) -> int:
        at_once.append(sum(stream.busy for stream in device.streams))
        return write(self, results)

    monkeypatch.setattr(Block, "write", look)
    run(request_)
    assert len(device.streams) == pipeline.SLOTS
    assert max(at_once) == 1


@pytest.fixture
def two_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda, "driver", lambda: True)
    monkeypatch.setattr(cuda, "absence", lambda: "")
    monkeypatch.setattr(cuda, "count", lambda: 2)
    monkeypatch.setattr(cuda, "trouble", lambda name: "")
    monkeypatch.setattr(cuda, "capability", lambda name: (9, 0))
    monkeypatch.setattr("trajcli.kernels.choose._probe", lambda name: "")


def test_auto_takes_a_device_for_large_jobs_of_many_trajectories(two_devices):
    small, long = choose(work=Work(10_000, 700)), choose(work=Work(10**10, 70))
    large = choose(work=Work(10**10, 10**8))
    assert small.device == long.device == "cpu"
    assert "actions do not pay for a CUDA device's start" in small.reason
    assert "one lane for each trajectory and dof, here 70" in long.reason
    assert large.device == "cuda:0"
    assert choose("cuda", work=Work(10**10, 70)).device == "cuda:0"
    assert choose("cuda:1", "torch").device == "cuda:1"


def test_a_device_that_is_absent_or_busy_is_said(two_devices, monkeypatch):
    monkeypatch.setattr(cuda, "trouble", lambda name: "all CUDA-capable devices are busy")
    with pytest.raises(UsageError, match=r"busy or broken(?s:.*)devices are busy"):
        choose("cuda", work=Work(0, 0))
    assert "cuda:0 is busy" in choose(work=Work(10**10, 10**8)).reason
    monkeypatch.setattr(cuda, "count", lambda: 0)
    with pytest.raises(UsageError, match="no such device"):
        choose("cuda", work=Work(0, 0))


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("trajcli.kernels.cuda.capability", (7, 0), "needs compute capability 7.5, this has 7.0"),
        ("trajcli.kernels.choose.triton_absence", "it is too old", "absent: it is too old"),
        ("trajcli.kernels.choose._probe", "no C compiler", "no kernel here: no C compiler"),
    ],
)
def test_where_triton_cannot_be_had_torch_is_taken_and_why_is_said(
    two_devices, monkeypatch, name, value, says
):
    monkeypatch.setattr(name, lambda *device: value)
    choice = choose("cuda", work=Work(0, 0))
    assert choice.backend == "torch"
    assert says in choice.reason


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (
            torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB"),
            DeviceOutOfMemory,
        ),
        (RuntimeError("CUDA error: out of memory\nmore"), DeviceOutOfMemory),
        (RuntimeError("CUDA error: unspecified launch failure\nmore"), DeviceLost),
        (RuntimeError("CUDA error: uncorrectable ECC error encountered\nmore"), DeviceLost),
        (RuntimeError("CUDA error: invalid configuration argument"), RuntimeError),
        (RuntimeError("shapes differ"), RuntimeError),
        (ValueError("CUDA"), ValueError),
    ],
)
def test_errors_of_cuda_are_told_apart(error, kind):
    with pytest.raises(kind) as raised, cuda.judged():
        raise error
    assert raised.type is kind
    assert "more" not in str(raised.value)


def test_gradients_that_do_not_fit_are_computed_in_smaller_blocks(request_, monkeypatch):
    request = replace(request_, cost="jerk", memory=1 << 28)
    want = bytes_of(request)
    from trajcli import adjoint

    plain = adjoint.pull_back

    def cramped(inputs: Any, *more: Any) -> Any:
        if len(inputs.actions) > 6:
            raise DeviceOutOfMemory("out of memory")
        return plain(inputs, *more)

    monkeypatch.setattr(adjoint, "pull_back", cramped)
    report = run(request)
    assert request.out.read_bytes() == want
    assert report["notes"] == ["blocks were halved 2 times: memory on cpu was short"]
