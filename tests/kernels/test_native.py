"""What the C++ kernels alone have: any input as it lies, outputs in files, threads, prepared calls.

That they give torch's rows and gradients, on every instruction set, is tested beside the other
backends (test_programs).
"""

from __future__ import annotations

import errno
import gc
import os
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from kernels.cases import BANDS, CASCADES, Case, Job, case
from kernels.comparison import gradients, rows

import trajcli
from trajcli.kernels import native
from trajcli.kernels.native import Adjoint, FileOutput, Forward
from trajcli.kernels.program import Gradients, Operands

pytestmark = pytest.mark.skipif(bool(native.absence()), reason=native.absence())

JOBS = [CASCADES[0], CASCADES[1], CASCADES[10], BANDS[0], BANDS[2], BANDS[6], BANDS[-1]]
TYPES = ("f4", "f8", "f2", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8")
every_job = pytest.mark.parametrize("work", JOBS, ids=str)


def with_actions(sample: Case, actions: Any) -> Case:
    return replace(sample, operands=sample.operands._replace(actions=actions))


def assert_same(result: Iterable[Any], want: Iterable[Any]) -> None:
    for x, y in zip(result, want, strict=True):
        np.testing.assert_array_equal(x, y)


# -- inputs as they lie -----------------------------------------------------------------------


@every_job
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("order", ["<", ">"])
def test_actions_of_any_type_are_read_as_they_are(work: Job, dtype: str, order: str) -> None:
    for dofs in (2, 7):
        sample = case(work, (5, 9, dofs), dtype="float64")
        actions = (40 * np.abs(sample.operands.actions)).astype(order + dtype)
        want = rows("native", with_actions(sample, actions.astype(np.float64)))
        assert_same(rows("native", with_actions(sample, actions)), want)


@every_job
def test_outputs_may_lie_anyhow(work: Job) -> None:
    sample = case(work, (5, 9, 7))
    want = rows("native", sample)
    raw = np.zeros((4, want[0].nbytes + 1), np.uint8)
    unaligned = [
        np.ndarray(want[0].shape, np.float32, line[1:].view(np.uint8).data) for line in raw
    ]
    strided = [np.zeros((5, 2 * want[0].shape[1], 9), np.float32)[:, ::2, 1:-1] for _ in range(4)]
    for out in (unaligned, strided):
        native.forward(sample.program, sample.operands, out)
        assert_same(out, want)


def test_large_outputs_may_begin_anywhere() -> None:
    sample = case(CASCADES[0], (2000, 100, 7))
    want = rows("native", sample)
    assert want[0].nbytes > 4 << 20
    for shift in (0, 1, 4, 63):
        raw = np.zeros((4, want[0].nbytes + 64), np.uint8)
        out = [np.ndarray(want[0].shape, np.float32, line[shift:].data) for line in raw]
        native.forward(sample.program, sample.operands, out)
        assert_same(out, want)
        assert not any(line[:shift].any() or line[shift + want[0].nbytes :].any() for line in raw)


# -- tiles, blocks, threads -------------------------------------------------------------------


@every_job
def test_tiles_and_threads_change_no_bit(work: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    for shape in ((700, 13, 1), (2, 9000, 3), (3700, 41, 7), (1, 30, 2500)):
        sample = case(work, shape, work.forms[-1])
        monkeypatch.setenv("TRAJCLI_THREADS", "1")
        forward, backward = rows("native", sample), gradients("native", sample)
        for count, tile in (("3", native.NATIVE_TILE), ("1", 64), ("2", 1 << 15)):
            monkeypatch.setenv("TRAJCLI_THREADS", count)
            monkeypatch.setattr(native, "NATIVE_TILE", tile)
            assert_same(rows("native", sample), forward)
            assert_same(gradients("native", sample), backward)


BOUNDS: list[tuple[dict[str, str], int, int]] = [
    # the environment, torch's number, and how many threads run on six processors
    ({}, 8, 6),
    ({}, 3, 3),
    ({"OMP_NUM_THREADS": "2"}, 8, 2),
    ({"OMP_NUM_THREADS": " 4 , 2"}, 8, 4),
    ({"OMP_NUM_THREADS": "4"}, 3, 3),
    ({"OMP_NUM_THREADS": "99999999999999999999"}, 8, 6),
    *(({"OMP_NUM_THREADS": bad}, 8, 6)
      for bad in ("", "many", "0", "-1", "2.5", "2,", "2,0", "2 1", ",2", "²")),
    ({"TRAJCLI_THREADS": "5", "OMP_NUM_THREADS": "2"}, 3, 5),
    ({"TRAJCLI_THREADS": "8", "OMP_NUM_THREADS": "bad"}, 1, 8),
]  # fmt: skip


@pytest.fixture
def six_processors(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Six processors, and no number of threads in the environment; torch has its own back."""
    monkeypatch.setattr(native, "processors", lambda: 6)
    for name in ("TRAJCLI_THREADS", "OMP_NUM_THREADS"):
        monkeypatch.delenv(name, raising=False)
    count = torch.get_num_threads()
    yield
    torch.set_num_threads(count)


def threads_of(function: Callable[[], object], count: int) -> int:
    """Returns how many threads at most were seen to work while a function ran, with its own. It
    runs five times, and until ``count`` were seen, if they are within ten seconds."""
    before, most, done = len(os.listdir("/proc/self/task")), 0, threading.Event()

    def watch() -> None:
        nonlocal most
        while not done.is_set():
            # the watcher is one more, the thread that calls was there before
            most = max(most, len(os.listdir("/proc/self/task")) - before)

    watcher = threading.Thread(target=watch)
    watcher.start()
    runs, end = 0, time.monotonic() + 10
    while runs < 5 or (most < count and time.monotonic() < end):
        function()
        runs += 1
    done.set()
    watcher.join()
    return most


@pytest.mark.parametrize(("environment", "of_torch", "count"), BOUNDS)
def test_threads_are_bound_as_those_of_others(
    environment: dict[str, str],
    of_torch: int,
    count: int,
    six_processors: None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    actions, start = np.random.default_rng(0).normal(size=(2000, 200, 4)), np.zeros(4)
    call = partial(trajcli.integrate, actions, start, 0.5, backend="native", write="position")
    want = call().position
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    torch.set_num_threads(of_torch)
    assert native.threads() == count
    assert threads_of(call, count) == count  # of a call that is prepared with another number
    np.testing.assert_array_equal(call().position, want)


def test_torch_bounds_threads_only_where_it_is_loaded(
    six_processors: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.set_num_threads(2)
    monkeypatch.delitem(sys.modules, "torch")
    assert native.threads() == 6
    monkeypatch.setitem(sys.modules, "torch", ModuleType("torch"))  # while it is imported
    assert native.threads() == 6


@pytest.mark.parametrize("work", [*CASCADES, *BANDS], ids=str)
def test_every_level_gives_the_same_bits(work: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    levels = [level for level in native.LEVELS if level <= native.level()]
    for dofs, dtype in ((1, "float32"), (2, "float64"), (5, "float32"), (7, "float64")):
        sample = case(work, (3, 40, dofs), work.forms[-1], dtype)
        monkeypatch.setenv("TRAJCLI_LEVEL", "1")
        forward, backward = rows("native", sample), gradients("native", sample)
        for level in levels:
            monkeypatch.setenv("TRAJCLI_LEVEL", str(level))
            assert_same(rows("native", sample), forward)
            assert_same(gradients("native", sample), backward)


@every_job
def test_many_dofs_have_the_bits_of_few(work: Job) -> None:
    def cut(array: Any) -> Any:
        return None if array is None else array[..., -9:]

    # blocks of dofs that are not whole vectors, that are, and those whose rows lie pages apart; and
    # so many that one dof would be left over
    for dofs in (2501, 2504, 3072, 128 * 1024 + 1):
        sample = case(work, (2 if dofs < 4000 else 1, 9, dofs), work.forms[-1])
        actions, dt, start, goal, *_ = sample.operands
        operands = Operands(cut(actions), dt, tuple(map(cut, start)), tuple(map(cut, goal)))
        few = replace(sample, operands=operands, upstream=[cut(x) for x in sample.upstream])
        assert_same(map(cut, rows("native", sample)), rows("native", few))
        assert_same(map(cut, gradients("native", sample)), gradients("native", few))
        assert_same([cut(rows("native", sample, (False, True) * 2)[1])], rows("native", few)[1:2])


@every_job
def test_nothing_is_written_beyond_the_results(work: Job) -> None:
    for shape in ((7, 5, 1), (7, 5, 3), (7, 5, 6), (7, 5, 9)):
        sample = case(work, shape)
        want = rows("native", sample)
        guarded = [np.full((9, *want[0].shape[1:]), 777, np.float32) for _ in range(4)]
        native.forward(sample.program, sample.operands, [x[1:-1] for x in guarded])
        assert_same([x[1:-1] for x in guarded], want)
        assert all((x[[0, -1]] == 777).all() for x in guarded)


def test_without_trajectories_nothing_happens() -> None:
    for work in JOBS:
        sample = case(work, (1, 9, 3))
        empty = sample.operands._replace(
            actions=np.zeros((0, 9, 3), np.float32), start=(None,) * 4, goal=(None,) * 4
        )
        out = [np.zeros((0, sample.program.rows, 3), np.float32)] * 4
        assert native.forward(sample.program, empty, out)
        native.adjoint(sample.program, empty, out, Gradients(np.zeros((0, 9, 3))))


# -- inputs that are not finite ---------------------------------------------------------------


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@every_job
def test_inputs_that_are_not_finite_are_noticed(work: Job, value: float) -> None:
    for shape in ((9, 5, 1), (9, 5, 7), (3, 400, 33)):
        sample = case(work, shape)
        out = [np.zeros((shape[0], sample.program.rows, shape[2])) for _ in range(4)]
        assert native.forward(sample.program, sample.operands, out, allow_nonfinite=False)
        for place in ((0, 0, 0), (-1, sample.program.used - 1, -1)):
            actions = sample.operands.actions.copy()
            actions[place] = value
            wrong = sample.operands._replace(actions=actions)
            assert not native.forward(sample.program, wrong, out, allow_nonfinite=False)
            assert native.forward(sample.program, wrong, out)
        for m, part in enumerate(sample.operands.start):
            if part is not None and not getattr(sample.program, "recorded", False):
                parts = list(sample.operands.start)
                parts[m] = part.copy()
                parts[m][-1, -1] = value
                wrong = sample.operands._replace(start=parts)
                used = not hasattr(sample.program, "head") or len(sample.program.head) > 0
                assert native.forward(sample.program, wrong, out, allow_nonfinite=False) is not used


# -- files ------------------------------------------------------------------------------------


@every_job
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_rows_are_written_into_files(work: Job, dtype: str, tmp_path: Path) -> None:
    for shape in ((300, 40, 1), (50, 70, 7), (2, 20000, 2), (2, 9, 2100)):
        sample = case(work, shape, dtype=dtype)
        want = rows("native", sample)
        size = want[0].nbytes
        path = tmp_path / "rows"
        path.write_bytes(b"\x07" * (4 * size + 32))
        with path.open("r+b") as file:
            places = [FileOutput(file.fileno(), 13 + m * size, dtype) for m in range(4)]
            places[2] = None  # type: ignore[call-overload]
            call = Forward(sample.program, sample.operands, places)
            assert call.run()
        result = path.read_bytes()
        for m, expected in enumerate(want):
            part = result[13 + m * size : 13 + (m + 1) * size]
            assert part == (b"\x07" * size if m == 2 else expected.tobytes())
        assert result[:13] == b"\x07" * 13
        assert result[13 + 4 * size :] == b"\x07" * 19
        assert call.faults == 0


def test_values_that_overflow_are_counted_in_files(tmp_path: Path) -> None:
    sample = case(CASCADES[0], (40, 30, 7))
    actions = sample.operands.actions.copy()
    actions[3, 4, 5] = 3e38
    with (tmp_path / "rows").open("w+b") as file:
        size = 40 * sample.program.rows * 7 * 4
        places = [FileOutput(file.fileno(), m * size, "float32") for m in range(4)]
        call = Forward(sample.program, sample.operands._replace(actions=actions), places)
        assert call.run()
        file.seek(0)
        written = np.frombuffer(file.read(), np.float32)
    assert call.faults == (~np.isfinite(written)).sum() > 0


def test_a_file_that_takes_no_more_is_an_error(tmp_path: Path) -> None:
    sample = case(CASCADES[0], (400, 100, 7))
    (tmp_path / "rows").touch()
    descriptor = os.open(tmp_path / "rows", os.O_RDONLY)
    try:
        with pytest.raises(OSError, match=os.strerror(errno.EBADF)):
            native.forward(sample.program, sample.operands, [FileOutput(descriptor, 0, "f4")] * 4)
    finally:
        os.close(descriptor)
    if os.path.exists("/dev/full"):
        with open("/dev/full", "wb") as full, pytest.raises(OSError, match="space") as raised:
            native.forward(
                sample.program, sample.operands, [FileOutput(full.fileno(), 0, "f4")] * 4
            )
        assert raised.value.errno == errno.ENOSPC


# -- prepared calls ---------------------------------------------------------------------------


@every_job
def test_a_prepared_call_runs_on_other_arrays(work: Job) -> None:
    first, second = (case(work, (2, 9, 5), seed=seed) for seed in (1, 2))
    start = [np.zeros((2, 5), np.float32) if x is None else x for x in first.operands.start]
    later = [np.zeros((2, 5), np.float32) if x is None else x for x in second.operands.start]
    sample = first.operands._replace(start=start)
    out = [np.zeros_like(g) for g in first.upstream]
    call = Forward(first.program, sample, out)
    operands = sample._replace(actions=second.operands.actions, start=later)
    place = [np.zeros_like(x) for x in out]
    call.bind(operands, place)
    assert call.run()
    assert_same(place, rows("native", replace(first, operands=operands)))

    def buffers() -> Gradients:
        return Gradients(np.zeros((2, 9, 5), np.float32), [np.zeros((2, 5)) for _ in range(4)])

    into, other = buffers(), buffers()
    back = Adjoint(first.program, sample, first.upstream, into)
    back.bind(sample.dt, second.upstream, other)
    assert back.run()
    want = gradients("native", replace(first, operands=sample, upstream=second.upstream))
    assert_same([other.actions, *other.start], want[:5])


@every_job
def test_a_prepared_call_holds_the_arrays_it_is_made_of(work: Job) -> None:
    sample = case(work, (300, 9, 7), work.forms[-1], states="indexed")
    want, back = rows("native", sample), gradients("native", sample)

    def copied(x: Any) -> Any:
        if not isinstance(x, np.ndarray):
            return None if x is None else [copied(part) for part in x]
        return x.copy()

    out = [np.zeros_like(x) for x in want]
    parts = [np.zeros_like(x) for x in back]
    into = Gradients(parts[0], parts[1:5], parts[5:])

    def operands() -> Operands:
        return Operands(*map(copied, sample.operands))

    calls = (
        Forward(sample.program, operands(), out),
        Adjoint(sample.program, operands(), copied(sample.upstream), into),
    )
    gc.collect()
    arrays = [x for x in (*sample.operands, *sample.operands.start) if isinstance(x, np.ndarray)]
    litter = [np.full_like(x, -1) for x in arrays for _ in range(4)]
    assert all(call.run() for call in calls)
    assert_same([*out, *parts], [*want, *back])
    del litter


def test_without_compiled_kernels_there_is_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "_library", lambda: (None, "not built: no C++ compiler"))
    assert native.absence() == "not built: no C++ compiler"
