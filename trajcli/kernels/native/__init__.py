"""Runs the kernels in C++ on plain CPU memory: NumPy arrays and CPU tensors, without torch.

They are built with the package; where that was not possible, :func:`absence` says why. Inputs may
have any strides and any type: those that are not float32 or float64 are copied. Outputs may lie in
files. Threads share the work, and their number does not change the results.
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
    Floats,
    Gradients,
    Operands,
    Parts,
    Program,
    Smoother,
)
from trajcli.memory import NATIVE_TILE
from trajcli.system import environment_variable, processors

_MOST_THREADS = 1024
# A training loop has one or two layouts of gradients. Each holds a filled structure, so code that
# makes a new layout in every step must not collect them without end.
_MOST_LAYOUTS = 16
LEVELS = {1: "any machine's instructions", 3: "x86-64-v3 (AVX2)", 4: "x86-64-v4 (AVX-512)"}
"""The levels of instructions that kernels are compiled for; all give the same bits."""

# What a job computes: the values of its field ``adjoint`` in fields.def.
_GRADIENTS, _SUMS = 1, 2


class FileOutput(NamedTuple):
    """An output that lies in a file: C contiguous, in this machine's byte order.

    descriptor: of a file open for writing. offset: of the first element, in bytes. dtype:
    float32 or float64.
    """

    descriptor: int
    offset: int
    dtype: Any


Outputs = Sequence[Array | FileOutput | None]


def _read_structures() -> dict[str, type[ctypes.Structure]]:
    """Reads fields.def, which C++ includes, so that both sides have the same structures."""
    types: dict[str, Any] = {
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
            types[name] = type(name, (ctypes.Structure,), {"_fields_": fields})
        else:
            kind, field, *count = arguments.split(", ")
            fields.append((field, types[kind] * int(count[0]) if count else types[kind]))
    return types


_STRUCTURES = _read_structures()
KernelJob: Any = _STRUCTURES["Job"]
Curve: Any = _STRUCTURES["Curve"]
Timings: Any = _STRUCTURES["Timings"]


@cache
def _library() -> tuple[Any, str]:
    """Loads the compiled kernels; None and the reason where there are none."""
    spec = find_spec("trajcli.kernels.native._kernels")
    if spec is None or spec.origin is None:
        return None, "not built: no C++ compiler was found when trajcli was installed"
    try:
        library = ctypes.CDLL(spec.origin)
    except OSError as error:
        return None, f"cannot be loaded: {error}"
    # A library of other sources would read other fields. Their sizes, packed into one number as
    # entry.cpp packs them, are no proof that the fields agree, but differ whenever one was added.
    library.trajcli_bytes.restype = ctypes.c_int64
    job, curve, timings = map(ctypes.sizeof, (KernelJob, Curve, Timings))
    if library.trajcli_bytes() != job << 32 | curve << 16 | timings:
        return None, "built from older sources: install trajcli again"
    for function in (library.trajcli_run, library.trajcli_time):
        function.argtypes, function.restype = (ctypes.c_void_p,), ctypes.c_int64
    return library, ""


def absence() -> str:
    """Says why these kernels cannot run here; empty where they can."""
    return _library()[1]


def level() -> int:
    """Picks the level of instructions: TRAJCLI_LEVEL, else the highest of this machine."""
    highest, choice = int(_library()[0].trajcli_level()), environment_variable(b"TRAJCLI_LEVEL")
    choices = [str(n) for n in LEVELS if n <= highest]
    if choice and choice not in choices:
        what, expected = "not a level of this machine", "one of " + ", ".join(choices)
        raise UsageError(what, where="TRAJCLI_LEVEL", expected=expected, found=repr(choice))
    return int(choice or highest)


def threads() -> int:
    """Picks the number of threads: TRAJCLI_THREADS, or the least limit of other libraries."""
    limit, _, openmp, torch = _read_limits()
    if limit and not (limit.isascii() and limit.isdecimal() and int(limit) > 0):
        what, expected = "not a number of threads", "a whole number >= 1"
        raise UsageError(what, where="TRAJCLI_THREADS", expected=expected, found=repr(limit))
    if limit:
        return min(int(limit), _MOST_THREADS)
    # OMP_NUM_THREADS is a list with a number for each level of nesting. OpenMP ignores the variable
    # where it is anything else, and so does this.
    levels = re.fullmatch(r"\s*0*([1-9]\d{0,8})\s*(,\s*0*[1-9]\d*\s*)*", openmp, re.ASCII)
    return min(processors(), int(levels[1]) if levels else _MOST_THREADS, torch or _MOST_THREADS)


def _read_limits() -> tuple[str, str, str, int]:
    """Reads three variables, and torch's number of threads, 0 where torch is not loaded."""
    # torch is in sys.modules without its functions while another thread imports it
    count = getattr(sys.modules.get("torch"), "get_num_threads", None)
    names = b"TRAJCLI_THREADS", b"TRAJCLI_LEVEL", b"OMP_NUM_THREADS"
    limit, level, openmp = map(environment_variable, names)
    return limit, level, openmp, count() if count else 0


def _raise_errno(status: int) -> int:
    """Raises the error of a status above 0, which is an errno; returns any other status."""
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
    _raise_errno(_library()[0].trajcli_time(ctypes.addressof(job)))


class Call:
    """A job that runs again and again, on arrays of one layout.

    It holds its first arrays until :meth:`forget`; the caller keeps those that replace them alive.
    """

    def __init__(self, program: Program, *arrays: Any) -> None:
        self._limits = _read_limits()
        job = KernelJob(threads=threads(), level=level(), allow_nonfinite=True)
        self._job = job
        # copies that the job reads are kept with the arrays: the program's for good, as every run
        # reads them, those of arrays until others replace them
        self._arrays: Any = arrays
        self._copies: Any = None
        self._program: list[Any] = []
        self._function = _library()[0].trajcli_run
        self._pointer = ctypes.addressof(job)
        job.used, job.rows, job.start_row = program.used, program.rows, program.start_row
        if isinstance(program, Band):
            self._program = _set_band(job, program)
        elif isinstance(program, Smoother):
            # the order m is 3 or 4, so no output is a higher derivative than x⁽ᵐ⁾, which is the
            # last row of control
            matrices = penalty(program.order), control(program.order)[-1].copy()
            tables = [*map(np.ascontiguousarray, (program.unit, program.stiffness)), *matrices]
            job.unit, job.stiffness, job.table, job.head = map(address, tables)
            job.smoother = program.order
            self._program = [*tables, _set_array(job.weights, program.weights, (0, 1, 2))]
        else:
            job.order, job.recorded = program.action_order, program.recorded
            job.steps = program.used
            # The factors of dtⁿ in c_n, now_n and before_n of Cascade, for n = 1, 2, 3. Euler's are
            # 1, and Taylor's 1/n!. A ramp from the action before to this one has n and 1 parts of
            # 1/(n+1)!.
            factorials = [1 / math.factorial(n) if program.is_exact else 1.0 for n in (1, 2, 3)]
            job.carry[:], job.now[:] = factorials[:2], factorials
            if program.is_linear:
                job.now[:] = [1 / math.factorial(n + 1) for n in (1, 2, 3)]
                job.before[:] = [n / math.factorial(n + 1) for n in (1, 2, 3)]

    def run(self) -> bool:
        """Runs the job; False where it stopped at an input that is not finite."""
        # Limits may change between two runs, and reading them costs less than a small job.
        if (limits := _read_limits()) != self._limits:
            self._job.threads, self._job.level, self._limits = threads(), level(), limits
        # 0: done, below 0: an input is not finite
        return _raise_errno(self._function(self._pointer)) == 0

    def forget(self) -> None:
        """Lets go of the arrays, before others replace them."""
        self._arrays = self._copies = None

    @property
    def faults(self) -> int:
        """The number of values written to files that are not finite."""
        return int(self._job.faults)


class Forward(Call):
    """Computes rows as :func:`forward` does, prepared for the arrays of its first run."""

    def __init__(
        self, program: Program, operands: Operands, out: Outputs, allow_nonfinite: bool = True
    ) -> None:
        super().__init__(program, operands, out)
        job = self._job
        actions, dt, start, goal, *indices = operands
        job.batch, job.horizon, job.dofs = actions.shape
        self._copies = [_set_array(job.actions, actions, (0, 1, 2)), _set_array(job.dt, dt, (0, 1))]
        for fields, parts in ((job.start, start), (job.goal, goal)):
            pairs = zip(fields, parts, strict=True)
            self._copies += [_set_array(entry, part, (0, 2)) for entry, part in pairs]
        for entry, index in zip((job.start_index, job.goal_index), indices, strict=True):
            if index is not None:
                entry.data = address(index)
                stride = index.strides[0] if isinstance(index, np.ndarray) else 8 * index.stride(0)
                entry.stride[0] = stride if len(index) > 1 else 0
        _set_outputs(job, out)
        job.allow_nonfinite = allow_nonfinite
        # which entries get new addresses in later runs, by their position among all arrays
        entries = [job.actions, *job.start, *job.out, *job.goal, job.start_index, job.goal_index]
        arrays = (actions, *start, *out, *goal, *indices)
        self._entries = [(k, entries[k]) for k, x in enumerate(arrays) if x is not None]
        self._dt: Any = None

    def bind(self, operands: Operands, out: Parts) -> None:
        actions, dt, start, goal, *indices = operands
        # dt is mostly that of the run before. A tensor is not kept: it may hold a graph.
        if dt is not self._dt:
            self._dt = dt if isinstance(dt, np.ndarray) else None
            self._job.dt.data = address(dt)
        arrays: tuple[Any, ...] = (actions, *start, *out, *goal, *indices)
        for k, entry in self._entries:
            entry.data = address(arrays[k])


class Adjoint(Call):
    """Computes gradients as :func:`adjoint` does, prepared for the arrays of its first run."""

    def __init__(
        self, program: Program, operands: Operands, upstream: Parts, gradients: Gradients
    ) -> None:
        super().__init__(program, operands, upstream, gradients)
        job = self._job
        job.adjoint = _GRADIENTS
        parts = zip(job.upstream, upstream, strict=True)
        self._copies = [_set_array(entry, part, (0, 1, 2)) for entry, part in parts]
        self._copies.append(_set_array(job.dt, operands.dt, (0, 1)))
        job.start_gradient[:] = [x if x is None else address(x) for x in gradients.start]
        job.goal_gradient[:] = [x if x is None else address(x) for x in gradients.goal]
        actions = operands.actions if gradients.actions is None else gradients.actions
        job.batch, job.horizon, job.dofs = actions.shape
        # the gradient by the actions is written where forward writes its first output
        _set_outputs(job, (gradients.actions, None, None, None))

    def bind(self, dt: Array, upstream: Parts, gradients: Gradients) -> None:
        job = self._job
        entries = job.dt, job.out[0], *job.upstream
        for entry, array in zip(entries, (dt, gradients.actions, *upstream), strict=True):
            if array is not None:
                entry.data = address(array)
        for addresses, parts in (
            (job.start_gradient, gradients.start),
            (job.goal_gradient, gradients.goal),
        ):
            for m, part in enumerate(parts):
                if part is not None:
                    addresses[m] = address(part)


class Prepared:
    """Runs a program on arrays of one layout, whose structures are filled once; keeps no array.

    finite: whether all inputs that the last forward pass used were finite; they are looked at
    unless ``allow_nonfinite``.
    """

    def __init__(self, allow_nonfinite: bool) -> None:
        self._allow_nonfinite = allow_nonfinite
        self.finite: bool | None = None
        self._forward: Forward | None = None
        self._adjoints: dict[Any, Adjoint] = {}

    def forward(self, program: Program, operands: Operands, out: Parts) -> None:
        if self._forward is None:
            self._forward = Forward(program, operands, out, self._allow_nonfinite)
            self.finite = self._forward.run()
            self._forward.forget()
        else:
            self._forward.bind(operands, out)
            self.finite = self._forward.run()

    def adjoint(
        self, program: Program, operands: Operands, upstream: Sequence[Any], gradients: Gradients
    ) -> None:
        # autograd runs backward passes in threads of its own, so each has structures of its own
        actions, start, goal = gradients
        layouts = [x if x is None else (x.dtype, x.stride()) for x in upstream]
        dtypes = [x if x is None else x.dtype for x in (actions, *start, *goal)]
        key = (threading.get_ident(), *layouts, *dtypes)
        call = self._adjoints.get(key)
        if call is not None:
            call.bind(operands.dt, upstream, gradients)
            call.run()
            return
        call = Adjoint(program, operands, upstream, gradients)
        call.run()
        call.forget()
        # half precision was copied, and the next run's copy would lie elsewhere
        if all(x is None or x.dtype.itemsize >= 4 for x in upstream):
            if len(self._adjoints) >= _MOST_LAYOUTS:
                self._adjoints.clear()
            self._adjoints[key] = call


def forward(
    program: Program, operands: Operands, out: Outputs, allow_nonfinite: bool = True
) -> bool:
    """Computes a program's rows: position, velocity, acceleration and jerk, each [B, T, D].

    out: arrays of one type, or parts of files; None is skipped. Unless ``allow_nonfinite`` it stops
    at an input that is used and not finite, and returns False. Raises OSError for files.
    """
    with _contiguous(out) as results:
        return Forward(program, operands, results, allow_nonfinite).run()


def adjoint(program: Program, operands: Operands, upstream: Parts, gradients: Gradients) -> None:
    """Computes the gradients of a program's inputs from those of its rows; None is zero."""
    with _contiguous((gradients.actions, *gradients.start, *gradients.goal)) as results:
        contiguous = Gradients(results[0], results[1:5], results[5:])
        Adjoint(program, operands, upstream, contiguous).run()


def measure(
    program: Smoother, operands: Operands, residuals: Floats | None = None
) -> tuple[Floats, Floats]:
    """Sums w·r² and leverages of a smoother, each [B, D]; writes r [B, T, D] to ``residuals``."""
    shape = (operands.actions.shape[0], operands.actions.shape[2])
    squares, leverages = np.empty(shape), np.empty(shape)
    call = Forward(program, operands, (residuals, None, None, None))
    # a smoother has no start state, so a job that sums has its results in the start's fields
    call._job.adjoint = _SUMS
    call._job.start_gradient[:2] = address(squares), address(leverages)
    call.run()
    return squares, leverages


@contextmanager
def _contiguous(arrays: Sequence[Any]) -> Iterator[list[Any]]:
    """Yields contiguous copies of arrays that are not contiguous, and copies the results back."""
    results = list(arrays)
    for i, array in enumerate(arrays):
        if isinstance(array, np.ndarray):
            results[i] = np.require(array, requirements=["C", "A"])
        elif hasattr(array, "contiguous"):
            results[i] = array.contiguous()
    yield results
    for array, result in zip(arrays, results, strict=True):
        if result is not array:
            array[...] = result


def address(array: Array) -> int:
    """Finds the address of an array or a CPU tensor."""
    if not isinstance(array, np.ndarray):
        return int(array.data_ptr())
    # the buffer takes a quarter of the time, but arrays that are read-only, strided or empty give
    # no writable one
    try:
        buffer: Any = array
        return ctypes.addressof(ctypes.c_char.from_buffer(buffer))
    except (TypeError, ValueError, BufferError):
        return int(array.__array_interface__["data"][0])


def _type_code(array: Array) -> int:
    name = str(array.dtype).removeprefix("torch.")
    if name not in ("float32", "float64"):
        raise TypeError(f"outputs are float32 or float64, not {name}")
    return int(name == "float64")


def _set_array(entry: Any, array: Array | None, axes: Sequence[int]) -> Array | None:
    """Describes an input by its axes of [trajectory, row, dof]; returns it, or a copy to keep."""
    if array is None:
        return None
    # kernels read float32 and float64 as they lie; any other type becomes the narrower of the two
    # that holds its values
    if isinstance(array, np.ndarray):
        kind = np.promote_types(array.dtype, np.float32)
        if not (array.dtype == kind and array.dtype.isnative and array.flags.aligned):
            array = array.astype(kind)
        strides = array.strides
    else:
        if not array.is_floating_point():
            array = array.float() if array.element_size() <= 2 else array.double()
        elif array.element_size() < 4:
            array = array.float()
        strides = tuple(array.element_size() * stride for stride in array.stride())
    entry.data, entry.type = address(array), _type_code(array)
    # an axis of length 1 is shared by all trajectories or rows
    for axis, stride, length in zip(axes, strides, array.shape, strict=True):
        entry.stride[axis] = stride if length > 1 else 0
    # a single dof is not shared: its values are as far apart as contiguous ones
    if axes[-1] == 2 and array.shape[-1] == 1:
        entry.stride[2] = 8 if entry.type else 4
    return array


def _set_outputs(job: Any, out: Outputs) -> None:
    for entry, output in zip(job.out, out, strict=True):
        entry.file = -1
        if isinstance(output, FileOutput):  # the kernels call pwrite
            entry.file, entry.data = output.descriptor, output.offset
            job.type = np.dtype(output.dtype) == np.float64
        elif output is not None:
            entry.data, job.type = address(output), _type_code(output)
    job.tile = NATIVE_TILE


def _set_band(job: Any, program: Band) -> list[Any]:
    """Describes a band; returns the arrays that must outlive the job."""
    windows, width = program.windows, program.width
    # of each kind of window: its base, the range of the differences that have weights, and pairs
    kinds = np.array([(base, 0, width - 1, 0) for base in program.base], np.int64)
    ends = (np.ascontiguousarray(x, np.float64) for x in (program.head, program.tail))
    arrays: list[Any] = [*ends, kinds]
    job.band = 1
    job.head, job.tail, job.kinds = map(address, arrays)
    job.head_count, job.tail_count = len(program.head), len(program.tail)
    job.held, job.steps, job.spacing = program.held, program.steps, program.spacing
    for field in ("count", "last", "offset", "steps", "shift"):
        setattr(job, f"window_{field}", getattr(windows, field))
    job.width, job.copies, job.degree = width, program.copies, program.degree or 0
    if program.spans is not None:
        arrays.append(np.ascontiguousarray(program.spans, np.int64))
        job.spans = address(arrays[-1])
        job.span_stride = 2 * program.rows if len(program.spans) > 1 else 0
    if program.table is None:
        return arrays
    table = np.array(program.table.swapaxes(1, 2), np.float64, order="C")
    for kind, weights in zip(kinds, table, strict=True):
        weighted = np.flatnonzero(weights.any(axis=1))
        kind[1:3] = (weighted[0], weighted[-1] + 1) if weighted.size else (0, 0)
    # Σ_i w_i·(X_{i+1} − X_i) has the weights w_{i−1} − w_i of points; a position adds its base
    points = np.zeros((len(table), width, 4))
    points[:, 1:] += table
    points[:, :-1] -= table
    points[np.arange(len(table)), kinds[:, 0], 0] += 1.0
    # Weights that are symmetric (position, acceleration) or antisymmetric (velocity, jerk) about
    # the point in the middle take half the products: of sums and differences of the two points on
    # either side. Only the kind of the inner rows is worth it: nearly all rows are of it.
    kind = kinds[windows.shift]
    _, begin, end, _ = map(int, kind)
    middle, pairs = (begin + end) // 2, (end - begin) // 2
    if windows.steps == 1 and pairs and (end - begin) % 2 == 0:
        weights = points[windows.shift]
        after, center = weights[middle + 1 : end + 1], weights[middle]
        error = after - np.array([1, -1, 1, -1]) * weights[begin:middle][::-1]
        # kernels use the point in the middle for positions, and for accelerations if any other
        accelerates = center[2] != 0 or not after[:, 2].any()
        symmetric = np.abs(error).max() <= 1e-14 * np.abs(weights).max()
        if symmetric and center[0] != 0 and accelerates and not center[1::2].any():
            kind[0], kind[3] = middle, pairs
            table[windows.shift, begin : begin + pairs] = after
    # [kinds, 4, width], and room for the vectors that begin at the last
    padded = np.zeros(points.size + 32)
    padded[:-32].reshape(len(table), 4, -1)[...] = points.swapaxes(1, 2)
    job.table, job.points = address(table), address(padded)
    return [*arrays, table, padded]
