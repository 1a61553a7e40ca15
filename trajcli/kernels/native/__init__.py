"""The kernels in C++, on plain CPU memory: NumPy arrays and CPU tensors, no torch needed.

Built with the package; where that was not possible, :func:`absence` says why. Inputs may have any
strides, and any type: those that are not float32 or float64 are copied. Outputs may lie in files.
Work is split over threads; results do not depend on how many there are.
"""

from __future__ import annotations

import ctypes
import errno
import math
import os
import re
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from trajcli.errors import UsageError
from trajcli.kernels.least_squares import control, penalty
from trajcli.kernels.program import (
    Array,
    Band,
    Cascade,
    Floats,
    Gradients,
    Operands,
    Parts,
    Program,
    Smoother,
)
from trajcli.memory import NATIVE_TILE
from trajcli.system import processors, variable

_MOST_THREADS = 1024
# Of gradients, each with a structure of its own.
_MOST_LAYOUTS = 16
LEVELS = {1: "any machine's instructions", 3: "x86-64-v3 (AVX2)", 4: "x86-64-v4 (AVX-512)"}
"""The levels of instructions that kernels are compiled for; all give the same bits."""


class FileOutput(NamedTuple):
    """An output that lies in a file: C contiguous, in this machine's byte order.

    descriptor: of a file open for writing. offset: of the first element, in bytes. dtype:
    float32 or float64.
    """

    descriptor: int
    offset: int
    dtype: Any


Outputs = Sequence[Array | FileOutput | None]


def _structures() -> dict[str, type[ctypes.Structure]]:
    kinds: dict[str, Any] = {
        "Int": ctypes.c_int64,
        "Real": ctypes.c_double,
        "Address": ctypes.c_void_p,
    }
    fields: list[tuple[str, Any]] = []
    name = ""
    text = Path(__file__).with_name("fields.def").read_text()
    for word, arguments in re.findall(r"^([A-Z]+)(?:\((.*?)\))?", text, re.MULTILINE):
        if word == "STRUCT":
            name, fields = arguments, []
        elif word == "END":
            kinds[name] = type(name, (ctypes.Structure,), {"_fields_": fields})
        else:
            kind, field, *count = arguments.split(", ")
            fields.append((field, kinds[kind] * int(count[0]) if count else kinds[kind]))
    return kinds


_STRUCTURES = _structures()
Job: Any = _STRUCTURES["Job"]
Curve: Any = _STRUCTURES["Curve"]
Timings: Any = _STRUCTURES["Timings"]


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
    library.trajcli_bytes.restype = ctypes.c_int64
    job, curve, timings = map(ctypes.sizeof, (Job, Curve, Timings))
    if library.trajcli_bytes() != job << 32 | curve << 16 | timings:
        return None, "built from older sources: install trajcli again"
    for function in (library.trajcli_run, library.trajcli_time):
        function.argtypes, function.restype = (ctypes.c_void_p,), ctypes.c_int64
    return library, ""


def absence() -> str:
    """Returns why these kernels cannot run here; empty where they can."""
    return _library()[1]


def level() -> int:
    """Returns the level of instructions to use: TRAJCLI_LEVEL, else the highest of this machine."""
    highest, asked = int(_library()[0].trajcli_level()), variable(b"TRAJCLI_LEVEL")
    here = [str(n) for n in LEVELS if n <= highest]
    if asked and asked not in here:
        what, expected = "not a level of this machine", "one of " + ", ".join(here)
        raise UsageError(what, where="TRAJCLI_LEVEL", expected=expected, found=repr(asked))
    return int(asked or highest)


def threads() -> int:
    """Returns how many threads to use: TRAJCLI_THREADS; without it the processors of this process,
    and no more than OMP_NUM_THREADS and torch.set_num_threads allow others."""
    limit, _, openmp, torch = _limits()
    if limit and not (limit.isascii() and limit.isdecimal() and int(limit) > 0):
        what, expected = "not a number of threads", "a whole number >= 1"
        raise UsageError(what, where="TRAJCLI_THREADS", expected=expected, found=repr(limit))
    if limit:
        return min(int(limit), _MOST_THREADS)
    # a number for each level of nesting; like OpenMP, what is no such list counts as not set
    levels = re.fullmatch(r"\s*0*([1-9]\d{0,8})\s*(,\s*0*[1-9]\d*\s*)*", openmp, re.ASCII)
    return min(processors(), int(levels[1]) if levels else _MOST_THREADS, torch or _MOST_THREADS)


def _limits() -> tuple[str, str, str, int]:
    """Returns TRAJCLI_THREADS, TRAJCLI_LEVEL, OMP_NUM_THREADS, and torch's number of threads, 0
    where it is not loaded."""
    # while another thread imports torch, it has no functions yet
    count = getattr(sys.modules.get("torch"), "get_num_threads", None)
    names = b"TRAJCLI_THREADS", b"TRAJCLI_LEVEL", b"OMP_NUM_THREADS"
    limit, level, openmp = map(variable, names)
    return limit, level, openmp, count() if count else 0


def raise_errno(status: int) -> int:
    """Raises what a status above 0 stands for; returns any other."""
    if status > 0:
        raise MemoryError if status == errno.ENOMEM else OSError(status, os.strerror(status))
    return status


def time_curves(curves: Any, **fields: Any) -> None:
    """Times or samples an array of Curve; fields: of Timings."""
    job = Timings(
        count=len(curves),
        curves=ctypes.addressof(curves),
        threads=threads(),
        level=level(),
        **fields,
    )
    raise_errno(_library()[0].trajcli_time(ctypes.addressof(job)))


class Call:
    """A job that runs again and again, on arrays of one layout: :class:`Forward`, :class:`Adjoint`.

    It holds the arrays it is made of until it is told to forget them; those put in their place the
    caller keeps alive while it runs. Results in memory are C contiguous.
    """

    def __init__(self, program: Program, *arrays: Any) -> None:
        self._limits = _limits()
        self._job = Job(threads=threads(), level=level(), allow_nonfinite=True)
        self._arrays: Any = arrays
        self._program = set_program(self._job, program)
        self._function = _library()[0].trajcli_run
        self._pointer = ctypes.addressof(self._job)

    def run(self) -> bool:
        """False where it stopped at an input that is not finite.

        Raises OSError where a file cannot be written, MemoryError where there is none.
        """
        if (limits := _limits()) != self._limits:
            self._job.threads, self._job.level, self._limits = threads(), level(), limits
        # 0: done, below 0: an input is not finite
        return raise_errno(self._function(self._pointer)) == 0

    def forget(self) -> None:
        """Lets go of the arrays, before others are put in their place."""
        self._arrays = self._placed = None

    @property
    def faults(self) -> int:
        """How many values that were written to files are not finite."""
        return int(self._job.faults)


class Forward(Call):
    """:func:`forward`, prepared: made of the arrays of its first run."""

    def __init__(
        self, program: Program, operands: Operands, out: Outputs, allow_nonfinite: bool = True
    ) -> None:
        super().__init__(program, operands, out)
        job = self._job
        self._placed: Any = set_operands(job, operands)
        set_outputs(job, out)
        job.allow_nonfinite = allow_nonfinite
        entries = [job.actions, *job.start, *job.out, *job.goal, job.start_index, job.goal_index]
        present = (operands.actions, *operands.start, *out, *operands.goal, *operands[4:])
        self._entries = [(k, entries[k]) for k, x in enumerate(present) if x is not None]
        self._dt: Any = None

    def at(self, operands: Operands, out: Parts) -> None:
        """Puts arrays of the same layout in the place of these."""
        actions, dt, start, goal, *indices = operands
        if dt is not self._dt:  # mostly that of the run before; a tensor may have a graph
            self._dt = dt if isinstance(dt, np.ndarray) else None
            self._job.dt.data = address(dt)
        arrays = (actions, *start, *out, *goal, *indices)
        for k, entry in self._entries:
            entry.data = address(arrays[k])


class Adjoint(Call):
    """:func:`adjoint`, prepared: made of the arrays of its first run."""

    def __init__(
        self, program: Program, operands: Operands, upstream: Parts, gradients: Gradients
    ) -> None:
        super().__init__(program, operands, upstream, gradients)
        job = self._job
        # the gradient by the actions is written where forward writes its first output
        job.adjoint = 1
        parts = zip(job.upstream, upstream, strict=True)
        self._placed: Any = [set_array(entry, part, (0, 1, 2)) for entry, part in parts]
        self._placed.append(set_array(job.dt, operands.dt, (0, 1)))
        job.start_gradient[:] = [x if x is None else address(x) for x in gradients.start]
        job.goal_gradient[:] = [x if x is None else address(x) for x in gradients.goal]
        actions = operands.actions if gradients.actions is None else gradients.actions
        job.batch, job.horizon, job.dofs = actions.shape
        set_outputs(job, (gradients.actions, None, None, None))

    def at(self, dt: Array, upstream: Parts, gradients: Gradients) -> None:
        """Puts arrays of the same layout in the place of these."""
        job = self._job
        entries = job.dt, job.out[0], *job.upstream
        for entry, array in zip(entries, (dt, gradients.actions, *upstream), strict=True):
            if array is not None:
                entry.data = address(array)
        for places, parts in (
            (job.start_gradient, gradients.start),
            (job.goal_gradient, gradients.goal),
        ):
            for m, part in enumerate(parts):
                if part is not None:
                    places[m] = address(part)


class Prepared:
    """The kernels for a program and arrays of one layout, whose structures are filled once.

    They keep no array. ``finite``: whether all inputs that the last forward pass used were; they
    are looked at unless ``allow_nonfinite``.
    """

    def __init__(self, allow_nonfinite: bool) -> None:
        self._allow_nonfinite = allow_nonfinite
        self.finite: bool | None = None
        self._forward: Forward | None = None
        self._adjoints: dict[Any, Adjoint] = {}

    def forward(self, program: Program, operands: Operands, out: Parts) -> None:
        """As :func:`forward`; one thread at a time."""
        if self._forward is None:
            self._forward = Forward(program, operands, out, self._allow_nonfinite)
            self.finite = self._forward.run()
            self._forward.forget()
        else:
            self._forward.at(operands, out)
            self.finite = self._forward.run()

    def adjoint(
        self, program: Program, operands: Operands, upstream: Parts, gradients: Gradients
    ) -> None:
        """As :func:`adjoint`, in any thread."""
        actions, start, goal = gradients
        layouts = [x if x is None else (x.dtype, x.stride()) for x in upstream]
        kinds = [x if x is None else x.dtype for x in (actions, *start, *goal)]
        key = (threading.get_ident(), *layouts, *kinds)
        call = self._adjoints.get(key)
        if call is not None:
            call.at(operands.dt, upstream, gradients)
            call.run()
            return
        call = Adjoint(program, operands, upstream, gradients)
        call.run()
        call.forget()
        # what is not of these types was copied, to where it may not be the next time
        if all(x is None or x.dtype.itemsize >= 4 for x in upstream):
            if len(self._adjoints) >= _MOST_LAYOUTS:
                self._adjoints.clear()
            self._adjoints[key] = call


def forward(
    program: Program, operands: Operands, out: Outputs, allow_nonfinite: bool = True
) -> bool:
    """Computes a program's rows: position, velocity, acceleration and jerk, each [B, T, D].

    out: arrays of float32 or float64, all of one type, or places in files; None is not wanted.
    Unless ``allow_nonfinite`` it stops at an input that is used and not finite, and returns False.
    Raises OSError where a file cannot be written.
    """
    with _contiguous(out) as places:
        return Forward(program, operands, places, allow_nonfinite).run()


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


def address(array: Array) -> int:
    """Returns the address of an array or a CPU tensor."""
    if not isinstance(array, np.ndarray):
        return int(array.data_ptr())
    try:
        buffer: Any = array
        return ctypes.addressof(ctypes.c_char.from_buffer(buffer))  # four times as fast
    except (TypeError, ValueError, BufferError):  # read-only, strided or empty
        return int(array.__array_interface__["data"][0])


def plain(array: Array) -> Array:
    """Returns an array of float32 or float64 as it lies, and a copy of any other."""
    if isinstance(array, np.ndarray):
        kind = np.promote_types(array.dtype, np.float32)
        fits = array.dtype == kind and array.dtype.isnative and array.flags.aligned
        return array if fits else array.astype(kind)
    if array.dtype.is_floating_point:
        return array if array.element_size() >= 4 else array.float()
    return array.float() if array.element_size() <= 2 else array.double()


def strides(array: Array) -> tuple[int, ...]:
    """Returns the distances from an element to the next, in bytes."""
    if isinstance(array, np.ndarray):
        return array.strides
    return tuple(array.element_size() * stride for stride in array.stride())


def type_of(array: Array) -> int:
    """Returns the type of an array's elements: 0 float32, 1 float64."""
    name = str(array.dtype).removeprefix("torch.")
    if name not in ("float32", "float64"):
        raise TypeError(f"outputs are float32 or float64, not {name}")
    return int(name == "float64")


def set_array(entry: Any, array: Array | None, axes: Sequence[int]) -> Array | None:
    """Describes an array to the kernels; returns what must outlive their run: it, or a copy.

    axes: which of [trajectory, row, dof] it has. Trajectories and rows that are one alone are
    shared by all: their stride is 0.
    """
    if array is None:
        return None
    array = plain(array)
    entry.data, entry.type = address(array), type_of(array)
    for axis, stride, length in zip(axes, strides(array), array.shape, strict=True):
        entry.stride[axis] = stride if length > 1 else 0
    # a single dof is not shared: its values are as far apart as contiguous ones
    if axes[-1] == 2 and array.shape[-1] == 1:
        entry.stride[2] = 8 if entry.type else 4
    return array


def set_outputs(job: Any, out: Outputs) -> None:
    """Describes outputs: contiguous memory, or places in files."""
    for entry, output in zip(job.out, out, strict=True):
        entry.file = -1
        if isinstance(output, FileOutput):  # the kernels call pwrite
            entry.file, entry.data = output.descriptor, output.offset
            job.type = np.dtype(output.dtype) == np.float64
        elif output is not None:
            entry.data, job.type = address(output), type_of(output)
    job.tile = NATIVE_TILE


def set_program(job: Any, program: Program) -> list[Any]:
    """Describes a program; returns the arrays that must outlive the job."""
    job.used, job.rows, job.start_row = program.used, program.rows, program.start_row
    if isinstance(program, Cascade):
        job.order, job.recorded = program.action_order, program.recorded
        job.steps = program.used
        # coefficients of a step: x_m += Σ_r carry_r dtʳ x_m+r + now_n dtⁿ u_t + before_n dtⁿ u_t−1,
        # n = order − m; see torch_ops
        euler = program.scheme == "euler"
        # the factors of dtⁿ in c_n, now_n and before_n: see Cascade
        hold = [1.0 if euler else 1 / math.factorial(n) for n in (1, 2, 3)]
        job.carry[:], job.now[:] = hold[:2], hold
        if program.scheme == "foh":
            job.now[:] = [1 / math.factorial(n + 1) for n in (1, 2, 3)]
            job.before[:] = [n / math.factorial(n + 1) for n in (1, 2, 3)]
        return []
    if isinstance(program, Smoother):
        arrays = [np.ascontiguousarray(x) for x in (program.unit, program.stiffness)]
        arrays += [penalty(program.order), control(program.order)[-1].copy()]
        job.unit, job.stiffness, job.table, job.head = map(address, arrays)
        job.smoother = program.order
        return [*arrays, set_array(job.weights, program.weights, (0, 1, 2))]
    return _place_band(job, program)


def _place_band(job: Any, program: Band) -> list[Any]:
    windows = program.windows
    # a kind's base, the differences that have weights, from the first to behind the last, and pairs
    kinds = np.array([(base, 0, program.width - 1, 0) for base in program.base], np.int64)
    ends = (np.ascontiguousarray(x, np.float64) for x in (program.head, program.tail))
    arrays: list[Any] = [*ends, kinds]
    job.band = 1
    job.head, job.tail, job.kinds = map(address, arrays)
    job.head_count, job.tail_count = len(program.head), len(program.tail)
    job.held, job.steps, job.spacing = program.held, program.steps, program.spacing
    for field in ("count", "last", "offset", "steps", "shift"):
        setattr(job, f"window_{field}", getattr(windows, field))
    job.width, job.copies, job.degree = program.width, program.copies, program.degree or 0
    if program.spans is not None:
        arrays.append(np.ascontiguousarray(program.spans, np.int64))
        job.spans = address(arrays[-1])
        job.span_stride = 2 * program.rows if len(program.spans) > 1 else 0
    if program.table is not None:
        table = np.array(program.table.swapaxes(1, 2), np.float64, order="C")
        weighted = [np.flatnonzero(of.any(axis=1)) for of in table]
        kinds[:, 1:3] = [(x[0], x[-1] + 1) if x.size else (0, 0) for x in weighted]
        points = np.zeros((len(table), program.width, 4))
        points[:, 1:] += table
        points[:, :-1] -= table
        points[np.arange(len(table)), kinds[:, 0], 0] += 1.0
        if windows.steps == 1:
            _pair(kinds[windows.shift], table[windows.shift], points[windows.shift])
        # [kinds, 4, width], and room for the vectors that begin at the last
        turned = np.zeros(points.size + 32)
        turned[:-32].reshape(len(table), 4, -1)[...] = points.swapaxes(1, 2)
        arrays += [table, turned]
        job.table, job.points = address(table), address(turned)
    return arrays


def _pair(kind: Any, table: Floats, points: Floats) -> None:
    """Puts weights of symmetric rows on sums and differences of two points in place of the table.

    kind: base, begin, end and pairs; points [width, 4]: weights of points.
    """
    _, begin, end, _ = kind
    middle, pairs = (begin + end) // 2, (end - begin) // 2
    after, before, own = points[middle + 1 : end + 1], points[begin:middle][::-1], points[middle]
    if pairs == 0 or (end - begin) % 2:
        return
    # kernels use the point in the middle for positions, and for accelerations if any other
    used = own[0] != 0 and (own[2] != 0 or not after[:, 2].any()) and not own[1::2].any()
    off = np.abs(after - np.array([1, -1, 1, -1]) * before).max()
    if used and off <= 1e-14 * np.abs(points).max():
        kind[0], kind[3] = middle, pairs
        table[begin : begin + pairs] = after


def set_operands(job: Any, operands: Operands) -> list[Array | None]:
    """Describes what a program is applied to; returns the arrays that must outlive the job."""
    job.batch, job.horizon, job.dofs = operands.actions.shape
    arrays = [
        set_array(job.actions, operands.actions, (0, 1, 2)),
        set_array(job.dt, operands.dt, (0, 1)),
    ]
    for m in range(4):
        arrays.append(set_array(job.start[m], operands.start[m], (0, 2)))
        arrays.append(set_array(job.goal[m], operands.goal[m], (0, 2)))
    for entry, index in (
        (job.start_index, operands.start_index),
        (job.goal_index, operands.goal_index),
    ):
        if index is not None:
            entry.data = address(index)
            entry.stride[0] = strides(index)[0] if len(index) > 1 else 0
    return arrays
