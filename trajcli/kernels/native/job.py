"""The arguments of the compiled kernels: the structures of fields.def, filled."""

from __future__ import annotations

import ctypes
import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from trajcli.kernels.fit import control, penalty
from trajcli.kernels.program import Array, Band, Cascade, Operands, Program, Smoother
from trajcli.memory import NATIVE_TILE

TYPES = ("f4", "f8", "f2", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8")
SWAPPED = 16


class InFile(NamedTuple):
    """An output that lies in a file: C contiguous, in this machine's byte order.

    descriptor: of a file open for writing. offset: of the first element, in bytes. dtype:
    float32 or float64.
    """

    descriptor: int
    offset: int
    dtype: Any


Outputs = Sequence[Array | InFile | None]


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


Job: Any = _structures()["Job"]


def address(array: Array) -> int:
    """Returns the address of an array or a CPU tensor."""
    if not isinstance(array, np.ndarray):
        return int(array.data_ptr())
    try:
        buffer: Any = array
        return ctypes.addressof(ctypes.c_char.from_buffer(buffer))  # four times as fast
    except (TypeError, ValueError, BufferError):  # read-only, strided or empty
        return int(array.__array_interface__["data"][0])


def layout(array: Array) -> tuple[tuple[int, ...], int]:
    """Returns the strides in bytes and the type of the elements."""
    if isinstance(array, np.ndarray):
        code = array.dtype.str
        swapped = 0 if array.dtype.isnative else SWAPPED
        return array.strides, TYPES.index(code[1:].replace("b1", "u1")) + swapped
    size = array.element_size()
    kind = "f" if array.dtype.is_floating_point else "u" if not array.dtype.is_signed else "i"
    return tuple(size * s for s in array.stride()), TYPES.index(f"{kind}{size}")


def place(entry: Any, array: Array | None, axes: Sequence[int]) -> None:
    """Describes an array to the kernels; axes: which of [trajectory, row, dof] it has.

    Trajectories and rows that are one alone are shared by all: their stride is 0.
    """
    if array is None:
        return
    strides, entry.type = layout(array)
    entry.data = address(array)
    for axis, stride, length in zip(axes, strides, array.shape, strict=True):
        entry.stride[axis] = stride if length > 1 else 0
    # a single dof is not shared: its values are as far apart as contiguous ones
    if axes[-1] == 2 and array.shape[-1] == 1:
        entry.stride[2] = int(TYPES[entry.type % SWAPPED][1])


def place_outputs(job: Any, out: Outputs) -> None:
    """Describes outputs: contiguous memory, or places in files."""
    for entry, output in zip(job.out, out, strict=True):
        entry.file = -1
        if isinstance(output, InFile):  # the kernels call pwrite
            entry.file, entry.data = output.descriptor, output.offset
            job.type = np.dtype(output.dtype) == np.float64
        elif output is not None:
            entry.data, job.type = address(output), layout(output)[1]
    if job.type > 1:
        raise TypeError(f"outputs are float32 or float64, not {TYPES[job.type]}")
    job.tile = NATIVE_TILE


def place_program(job: Any, program: Program) -> list[Any]:
    """Describes a program; returns the arrays that must outlive the job."""
    job.used, job.rows, job.start_row = program.used, program.rows, program.start_row
    if isinstance(program, Cascade):
        job.order, job.recorded = program.order, program.recorded
        job.steps = program.used
        # coefficients of a step: x_m += Σ_r carry_r dtʳ x_m+r + now_n dtⁿ u_t + before_n dtⁿ u_t−1,
        # n = order − m; see torch_ops/cascade.py
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
        place(job.weights, program.weights, (0, 1, 2))
        return [*arrays, program.weights]
    return _place_band(job, program)


def _place_band(job: Any, program: Band) -> list[Any]:
    windows = program.windows
    # a kind's base, and the differences that have weights: from the first to behind the last
    kinds = np.array([(base, 0, program.width - 1) for base in program.base], np.int64)
    arrays: list[Any] = [
        np.ascontiguousarray(program.head, np.float64),
        np.ascontiguousarray(program.tail, np.float64),
        kinds,
    ]
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
        arrays.append(np.ascontiguousarray(program.table.swapaxes(1, 2), np.float64))
        job.table = address(arrays[-1])
        weighted = [np.flatnonzero(table.any(axis=0)) for table in program.table]
        kinds[:, 1:] = [(x[0], x[-1] + 1) if x.size else (0, 0) for x in weighted]
    return arrays


def place_operands(job: Any, operands: Operands) -> None:
    """Describes what a program is applied to."""
    job.batch, job.horizon, job.dofs = operands.actions.shape
    place(job.actions, operands.actions, (0, 1, 2))
    place(job.dt, operands.dt, (0, 1))
    for m in range(4):
        place(job.start[m], operands.start[m], (0, 2))
        place(job.goal[m], operands.goal[m], (0, 2))
    place(job.start_index, operands.start_index, (0,))
    place(job.goal_index, operands.goal_index, (0,))
