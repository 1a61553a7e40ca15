"""The kernels in C++, on plain CPU memory: NumPy arrays and CPU tensors, no torch needed.

Built with the package; where that was not possible, :func:`absence` says why. Inputs may have any
type, byte order and strides, outputs may lie in files. Work is split over threads; results do not
depend on how many there are.
"""

from __future__ import annotations

import ctypes
import errno
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from importlib.util import find_spec
from typing import Any

import numpy as np

from trajcli.kernels.native.job import (
    InFile,
    Job,
    Outputs,
    address,
    place,
    place_operands,
    place_outputs,
    place_program,
)
from trajcli.kernels.program import Floats, Gradients, Operands, Parts, Program, Smoother
from trajcli.system import processors

__all__ = ["Adjoint", "Forward", "InFile", "absence", "address", "adjoint", "forward"]

_MOST_THREADS = 1024


@cache
def _library() -> tuple[Any, str]:
    """Returns the compiled kernels, or None and why there are none."""
    spec = find_spec("trajcli.kernels.native._kernels")
    if spec is None or spec.origin is None:
        return None, "not built: no C++ compiler was found when trajcli was installed"
    try:
        library = ctypes.CDLL(spec.origin)
    except OSError as error:
        return None, f"cannot be loaded: {error}"
    if not hasattr(library, "trajcli_bytes") or library.trajcli_bytes() != ctypes.sizeof(Job):
        return None, "built from older sources: install trajcli again"
    library.trajcli_run.argtypes, library.trajcli_run.restype = (ctypes.c_void_p,), ctypes.c_int64
    return library, ""


def absence() -> str:
    """Returns why these kernels cannot run here; empty where they can."""
    return _library()[1]


def instruction_set() -> str:
    """Returns what the kernels run on: x86-64-v4, x86-64-v3 or baseline.

    The machine's best, or less where TRAJCLI_INSTRUCTIONS (1, 3 or 4) says so.
    """
    return {3: "x86-64-v3", 4: "x86-64-v4"}.get(_library()[0].trajcli_level(), "baseline")


def threads() -> int:
    """Returns how many threads to use: TRAJCLI_THREADS, else the processors of this process."""
    limit = os.environ.get("TRAJCLI_THREADS", "")
    if limit.isdecimal() and int(limit) > 0:
        return int(limit)
    return processors()


class Call:
    """A job that runs again and again, on arrays of one layout: :class:`Forward`, :class:`Adjoint`.

    It holds the arrays it is made of; those put in their place later the caller keeps alive while
    it runs. Results in memory are C contiguous.
    """

    def __init__(self, program: Program, *arrays: Any) -> None:
        self._job, self._arrays = Job(threads=min(threads(), _MOST_THREADS)), arrays
        self._program = place_program(self._job, program)
        self._function = _library()[0].trajcli_run
        self._pointer = ctypes.addressof(self._job)

    def run(self) -> bool:
        """False where it stopped at an input that is not finite.

        Raises OSError where a file cannot be written, MemoryError where there is none.
        """
        # 0: done, below 0: an input is not finite, above: errno
        status = int(self._function(self._pointer))
        if status > 0:
            raise MemoryError if status == errno.ENOMEM else OSError(status, os.strerror(status))
        return status == 0

    def step_at(self, place: int) -> None:
        """Puts another dt in the place of the first: the address of float64 in the same layout."""
        self._job.dt.data = place

    @property
    def faults(self) -> int:
        """How many values that were written to files are not finite."""
        return int(self._job.faults)


class Forward(Call):
    """:func:`forward`, prepared: made of the arrays of its first run."""

    def __init__(
        self, program: Program, operands: Operands, out: Outputs, finite: bool = False
    ) -> None:
        super().__init__(program, operands, out)
        place_operands(self._job, operands)
        place_outputs(self._job, out)
        self._job.finite = finite
        self._entries = [self._job.actions, *self._job.start, *self._job.out]

    def at(self, actions: int, start: Sequence[int | None], out: Sequence[int | None]) -> None:
        """Puts others in the place of these arrays: their addresses (see :func:`address`)."""
        for entry, where in zip(self._entries, (actions, *start, *out), strict=True):
            entry.data = where


class Adjoint(Call):
    """:func:`adjoint`, prepared: made of the arrays of its first run."""

    def __init__(
        self, program: Program, operands: Operands, upstream: Parts, gradients: Gradients
    ) -> None:
        super().__init__(program, operands, upstream, gradients)
        job = self._job
        # the gradient by the actions is written where forward writes its first output
        job.adjoint = 1
        place(job.dt, operands.dt, (0, 1))
        for entry, part in zip(job.upstream, upstream, strict=True):
            place(entry, part, (0, 1, 2))
        job.start_gradient[:] = [x if x is None else address(x) for x in gradients.start]
        job.goal_gradient[:] = [x if x is None else address(x) for x in gradients.goal]
        actions = operands.actions if gradients.actions is None else gradients.actions
        job.batch, job.horizon, job.dofs = actions.shape
        place_outputs(job, (gradients.actions, None, None, None))
        self._entries = [*job.upstream, job.out[0]]

    def at(
        self, upstream: Sequence[int | None], actions: int | None, start: Sequence[int | None]
    ) -> None:
        """Puts others in the place of these arrays: their addresses (see :func:`address`)."""
        for entry, where in zip(self._entries, (*upstream, actions), strict=True):
            entry.data = where
        self._job.start_gradient[:] = start


def forward(program: Program, operands: Operands, out: Outputs, finite: bool = False) -> bool:
    """Computes a program's rows: position, velocity, acceleration and jerk, each [B, T, D].

    out: arrays of float32 or float64, all of one type, or places in files; None is not wanted.
    With ``finite`` it stops at an input that is used and not finite, and returns False.
    Raises OSError where a file cannot be written.
    """
    with _contiguous(out) as places:
        return Forward(program, operands, places, finite).run()


def adjoint(program: Program, operands: Operands, upstream: Parts, gradients: Gradients) -> None:
    """Computes the gradients of a program's inputs from those of its rows.

    upstream: four arrays [B, T, D], None is zero. Of the operands only dt counts, and the shape
    of the actions where no gradient has it.
    """
    wanted = (gradients.actions, *gradients.start, *gradients.goal)
    with _contiguous(wanted) as places:
        inner = Gradients(places[0], places[1:5], places[5:])
        Adjoint(program, operands, upstream, inner).run()


def measure(
    program: Smoother, operands: Operands, residuals: Floats | None = None
) -> tuple[Floats, Floats]:
    """Returns sums over a smoother's rows of w·r² and of the leverages, [B, D]; r are residuals.

    residuals: where r goes, [B, T, D].
    """
    shape = (operands.actions.shape[0], operands.actions.shape[2])
    squares, leverages = np.empty(shape), np.empty(shape)
    call = Forward(program, operands, (residuals, None, None, None))
    call._job.adjoint = 2
    call._job.start_gradient[:2] = address(squares), address(leverages)
    call.run()
    return squares, leverages


@contextmanager
def _contiguous(arrays: Sequence[Any]) -> Iterator[list[Any]]:
    """Yields the arrays, with contiguous copies of those that are not, which are copied back."""
    places = list(arrays)
    for i, array in enumerate(arrays):
        if isinstance(array, np.ndarray):
            places[i] = np.require(array, requirements=["C", "A"])
        elif hasattr(array, "contiguous"):
            places[i] = array.contiguous()
    yield places
    for array, result in zip(arrays, places, strict=True):
        if result is not array:
            array[...] = result
