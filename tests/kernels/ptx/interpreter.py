"""Runs PTX on the CPU, in NumPy: the subset that Triton emits for kernels of float32 and float64.

All threads of all CTAs go in lock step. Where they diverge, those at the earliest basic block go
first, so that they meet again where the control flow does. Unlike Triton's own interpreter this
runs what LLVM made of a kernel: layouts, shuffles, shared memory, predicates. What ptxas makes of
it (SASS) is not run.

An instruction that is not in the tables raises NotImplementedError. A `Fault` is raised where

* a global access of an active thread lies outside the tensors that were passed, or is not aligned
  to its size (v4.b32: 16 bytes);
* two threads of a launch write different values to one place, or one reads what another has
  written in the same launch;
* shared memory that a thread wrote is read or written by another without the right barrier between
  them (bar.warp.sync within a warp, bar.sync between warps), or is read before it is written;
* not all threads of a CTA are at a barrier, or a shuffle names threads that are not there;
* arithmetic is not that of IEEE 754, as with ftz, approx or sat.
"""

from __future__ import annotations

import ctypes
import math
import re
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import numpy as np

TYPES: dict[str, Any] = {
    **{f"{k}{8 * size}": np.dtype(f"u{size}") for k in "ub" for size in (1, 2, 4, 8)},
    **{f"s{8 * size}": np.dtype(f"i{size}") for size in (1, 2, 4, 8)},
    "f32": np.dtype("f4"),
    "f64": np.dtype("f8"),
    "pred": np.dtype(bool),
}
CELL = 4
"""Bytes of global and of shared memory whose last writer is known: the smallest that is stored."""
SEVERAL = 34
FULL = 0xFFFFFFFF
"""The mask of a shuffle that all threads of a warp take part in."""


class Fault(Exception):
    """What a device would not do, or not always."""


# ---- parsing -----------------------------------------------------------------------------------


class Instruction:
    """One instruction: ``@guard name.modifiers operands``; the kind is the last modifier."""

    def __init__(self, text: str) -> None:
        self.text = text
        guard, words = re.match(r"(@!?%\w+)?\s*(.*)", text, re.DOTALL).groups()
        self.negated, self.guard = (guard or "").startswith("@!"), (guard or "").lstrip("@!")
        head, *rest = words.split(None, 1)
        self.name, *self.modifiers = head.split(".")
        self.kind = self.modifiers[-1] if self.modifiers else ""
        operands = re.findall(r"\{[^}]*\}|\[[^\]]*\]|[^,\s|]+", "".join(rest))
        self.operands = [re.sub(r"\s", "", operand) for operand in operands]


class Kernel:
    """The parameters, the number of threads and the basic blocks of an entry."""

    def __init__(self, parameters: str, about: str, body: str) -> None:
        words = [line.split() for line in parameters.split(",") if line.strip()]
        self.params = [(line[-1], TYPES[line[1][1:]].itemsize) for line in words]
        self.threads = int(re.search(r"\.(?:req|max)ntid\s+(\d+)", about)[1])
        self.widths: dict[str, int] = {}
        self.blocks: list[list[Instruction]] = [[]]
        self.labels: dict[str, int] = {}
        body = re.sub(r"//.*|^\s*\.(loc|file|pragma).*|^\s*[{}]\s*$", "", body, flags=re.M)
        for label, text in re.findall(r"\s*(?:([\w$]+):(?!\S)|([^;]+);)", body):
            if label:
                self.blocks.append([])
                self.labels[label] = len(self.blocks) - 1
            elif text.startswith(".reg"):
                _, kind, names = text.split(None, 2)
                for name in re.findall(r"%[a-z]+", names):
                    self.widths[name] = int(kind[2:]) if kind != ".pred" else 1
            elif text:
                self.blocks[-1].append(Instruction(text))
                if self.blocks[-1][-1].name in ("bra", "ret", "exit"):
                    self.blocks.append([])


def parse(text: str) -> dict[str, Kernel]:
    """Returns the kernels of a PTX text by name."""
    pattern = r"\.entry\s+([\w$]+)\s*\((.*?)\)([^{]*)\{(.*?)\n\}"
    return {name: Kernel(*parts) for name, *parts in re.findall(pattern, text, flags=re.S)}


@cache
def constant(operand: str, kind: str) -> Any:
    """A number in the text of a kernel: hexadecimal bits of a float, an integer, or the address of
    shared memory, which is 0."""
    if operand == "global_smem":
        operand = "0"
    base = 16 if operand[:2].lower() in ("0d", "0f") else 0
    value = int(operand[2:] if base else operand.rstrip("U"), base)
    if kind == "pred":
        return np.bool_(value & 1)
    size = TYPES[kind].itemsize
    return np.array(value % (1 << 8 * size), f"u{size}").view(TYPES[kind])[()]


# ---- memory ------------------------------------------------------------------------------------


class Global:
    """The tensors of a launch: addresses and sizes in bytes, and which thread wrote each cell."""

    def __init__(self, tensors: list[tuple[int, int]]) -> None:
        spans: list[list[int]] = []
        for begin, size in sorted({x for x in tensors if x[1]}):
            if spans and begin < spans[-1][1]:
                spans[-1][1] = max(spans[-1][1], begin + size)
            else:
                spans.append([begin, begin + size])
        self.begin, self.end = np.array(spans, np.int64).reshape(-1, 2).T
        self.bytes = [
            np.ctypeslib.as_array((ctypes.c_uint8 * (end - begin)).from_address(begin))
            for begin, end in spans
        ]
        self.writer = [np.full(len(x) // CELL + 1, -1, np.int64) for x in self.bytes]

    def parts(self, at: Any, size: int, count: int) -> Iterator[tuple[int, Any, Any, Any]]:
        """For every tensor: its number, which threads access it, where in values, where in cells.

        The positions are [threads, 1] plus the ``count`` values, or the cells, that each accesses.
        """
        if (at % (size * count)).any():
            raise Fault(f"misaligned: {size * count} bytes at {at[at % (size * count) != 0][0]:#x}")
        tensor = np.searchsorted(self.begin, at, side="right") - 1
        if len(at) and not len(self.begin):
            raise Fault("out of bounds: no tensors")
        outside = (tensor < 0) | (at + size * count > self.end[tensor])
        if outside.any():
            before = at[outside][0] - self.begin[max(tensor[outside][0], 0)]
            raise Fault(f"out of bounds: {outside.sum()} threads, {before} from a tensor's begin")
        for number in np.unique(tensor):
            mine = tensor == number
            offset = (at[mine] - self.begin[number])[:, None]
            cells = offset // CELL + np.arange(size * count // CELL)
            yield number, mine, offset // size + np.arange(count), cells

    def load(self, at: Any, kind: str, count: int, threads: Any) -> Any:
        """The values [count, threads] at addresses."""
        size = TYPES[kind].itemsize
        values = np.zeros((len(at), count), f"u{size}")
        for number, mine, index, cells in self.parts(at, size, count):
            values[mine] = self.bytes[number][: len(self.bytes[number]) // size * size].view(
                f"u{size}"
            )[index]
            writer = self.writer[number][cells]
            if ((writer >= 0) & (writer != threads[mine, None])).any():
                raise Fault("reads what another thread wrote")
        return values.T

    def store(self, at: Any, values: Any, threads: Any) -> None:
        """Stores values [threads, count] of unsigned integers."""
        size, count = values.itemsize, values.shape[1]
        if size < CELL:
            raise NotImplementedError(f"stores of {size} bytes")
        for number, mine, index, cells in self.parts(at, size, count):
            view = self.bytes[number][: len(self.bytes[number]) // size * size].view(values.dtype)
            writer = self.writer[number][cells]
            other = ((writer >= 0) & (writer != threads[mine, None])).any(1)
            if (view[index[other]] != values[mine][other]).any():
                raise Fault("two threads write one place")
            view[index] = values[mine]
            self.writer[number][cells] = threads[mine, None]
            if (view[index] != values[mine]).any():
                raise Fault("two threads write one place at once")


class Shared:
    """Shared memory of all CTAs, and which accesses of each warp no barrier has made visible yet.

    ``pending`` [2, CTA, cell, warp] of reads and of writes: until the warp's next barrier 2 plus
    the lane, or SEVERAL; 1 until the next barrier of the CTA, and 0 when all threads know.
    """

    def __init__(self, ctas: int, size: int, threads: int) -> None:
        cells = -(-size // CELL)
        self.size, self.data = size, np.zeros((ctas, cells * CELL), np.uint8)
        self.filled = np.zeros((ctas, cells), bool)
        self.pending = np.zeros((2, ctas, cells, threads // 32), np.uint8)

    def access(self, cta: Any, thread: Any, at: Any, size: int, write: bool) -> None:
        """Checks that threads may access ``size`` bytes each, and notes that they did."""
        if (at + size > self.size).any():
            raise Fault(f"beyond shared memory, {self.size} bytes")
        if (at % size).any():
            raise Fault(f"misaligned: {size} bytes of shared memory")
        cell = at[:, None] // CELL + np.arange(max(size // CELL, 1))
        cta, warp, code = cta[:, None], thread[:, None] // 32, 2 + thread[:, None] % 32
        if not write and not self.filled[cta, cell].all():
            raise Fault("reads shared memory that nobody wrote")
        # a read has to come after writes, a write after both
        pending = self.pending[0 if write else 1 :, cta, cell]
        own = np.arange(self.pending.shape[-1]) == warp[..., None]
        other = np.where(own, (pending >= 2) & (pending != code[..., None]), pending > 0)
        if other.any():
            raise Fault("no barrier since another thread accessed it")
        where = int(write), cta, cell, warp
        before = self.pending[where]
        self.pending[where] = np.where((before < 2) | (before == code), code, SEVERAL)
        np.maximum.at(self.pending, where, np.where(self.pending[where] == code, code, SEVERAL))
        self.filled[cta, cell] |= write


# ---- running -----------------------------------------------------------------------------------


class Launch:
    """One launch of a kernel: registers by name, an entry for each of the n threads.

    Arguments are integers or floats, pointers among them addresses; tensors are the memory that
    may be touched, as addresses and sizes.
    """

    def __init__(
        self, kernel: Kernel, grid: Any, arguments: list[Any], shared: int, tensors: Any
    ) -> None:
        self.kernel, self.ctas = kernel, math.prod(grid)
        self.n = kernel.threads * self.ctas
        self.flat = np.arange(self.n)
        self.thread, self.cta = self.flat % kernel.threads, self.flat // kernel.threads
        x, y, *_ = (*map(int, grid), 1, 1)
        values = {"%tid.x": self.thread, "%ctaid.x": self.cta % x, "%ctaid.y": self.cta // x % y}
        values |= {"%ctaid.z": self.cta // (x * y), "%laneid": self.thread % 32}
        self.registers = {name: value.astype(np.uint32) for name, value in values.items()}
        self.memory = Global(tensors)
        self.shared = Shared(self.ctas, shared, kernel.threads)
        self.params: dict[str, Any] = {}
        missing = len(kernel.params) - len(arguments)  # pointers to scratch memory, which is none
        if not 0 <= missing <= 2:
            raise Fault(f"{len(arguments)} arguments for {len(kernel.params)} parameters")
        for (name, size), value in zip(kernel.params, [*arguments, *[0] * missing], strict=True):
            if isinstance(value, float):
                self.params[name] = np.array(value, f"f{size}").view(f"u{size}")[()]
            else:
                self.params[name] = np.array(int(value) % (1 << 8 * size), f"u{size}")[()]

    def width(self, register: str) -> int:
        return self.kernel.widths[re.match(r"%[a-z]+", register)[0]]

    def get(self, operand: str, kind: str) -> Any:
        """The operand as a type: an array of all threads, or a number."""
        if operand.startswith("!"):
            return ~self.get(operand[1:], kind)
        if not operand.startswith("%"):
            return constant(operand, kind)
        if operand not in self.registers:
            width = self.width(operand)
            self.registers[operand] = np.zeros(self.n, f"u{width // 8}" if width > 1 else bool)
        value, dtype = self.registers[operand], TYPES[kind]
        if value.itemsize != dtype.itemsize:  # narrower types use the low bits
            value = value.astype(f"u{dtype.itemsize}")
        return value.view(dtype)

    def every(self, operand: str, kind: str) -> Any:
        """The operand as an array, also where it is a number."""
        return np.broadcast_to(self.get(operand, kind), self.n)

    def put(self, register: str, value: Any, mask: Any) -> None:
        """Writes the threads of the mask; a narrower value is extended by its sign, if any."""
        if register == "_":
            return
        width = self.width(register)
        value = np.asarray(value)
        if width > 1:
            wide = value if value.itemsize * 8 == width else value.astype(
                f"{'i' if value.dtype.kind == 'i' else 'u'}{width // 8}")  # fmt: skip
            value = np.ascontiguousarray(wide).view(f"u{width // 8}").reshape(value.shape)
        if not mask.all():
            value = np.where(mask, value, self.get(register, f"b{width}" if width > 1 else "pred"))
        self.registers[register] = np.array(np.broadcast_to(value, self.n))

    def run(self) -> None:
        """Runs all threads to their ends, those at the earliest basic block first."""
        blocks, labels = self.kernel.blocks, self.kernel.labels
        block = np.zeros(self.n, np.int64)
        with np.errstate(all="ignore"):
            while (now := int(block.min())) < len(blocks):
                active = block == now
                block[active] = now + 1
                for i in blocks[now]:
                    mask = active
                    if i.guard:
                        mask = active & (self.get(i.guard, "pred") ^ i.negated)
                    if i.name in ("bra", "ret", "exit"):
                        target = labels[i.operands[0]] if i.name == "bra" else len(blocks)
                        block[mask] = target
                    elif mask.any():
                        try:
                            self.step(i, mask)
                        except Fault as fault:
                            raise Fault(f"{fault}: {i.text}") from None

    def step(self, i: Instruction, mask: Any) -> None:
        """Runs one instruction: by the table of arithmetic, or by one that needs the launch."""
        if {"ftz", "approx", "full", "sat"} & {*i.modifiers}:
            raise Fault("not exact arithmetic")
        if i.name in WITH_LAUNCH:
            WITH_LAUNCH[i.name](self, i, mask)
            return
        if i.name not in ARITHMETIC:
            raise NotImplementedError(i.text)
        kinds, function = ARITHMETIC[i.name]
        to, *sources = i.operands
        if i.kind == "f32x2":  # two numbers in a register
            values = [self.every(x, "b64").copy().view(np.float32) for x in sources]
            self.put(to, function(i, *values).view(np.uint64), mask)
        else:
            values = [self.get(x, k) for x, k in zip(sources, kinds(i), strict=False)]
            self.put(to, function(i, *values), mask)


# ---- arithmetic: for each instruction the kinds of its sources, and its value --------------------


def double(kind: str) -> str:
    """The kind of twice the width, or that of 64 bits."""
    return f"{kind[0]}{min(2 * int(kind[1:]), 64)}"


def multiply(i: Instruction, x: Any, y: Any) -> Any:
    """The whole product (wide), its upper half (hi) or its lower half; of floats, the product."""
    if "wide" not in i.modifiers and "hi" not in i.modifiers:
        return x * y
    bits, wide = int(i.kind[1:]), TYPES[double(i.kind)]
    if bits == 64:  # exact in Python's integers
        product = np.asarray(x).astype(object) * np.asarray(y).astype(object) >> 64
        return np.asarray(product, TYPES[i.kind])
    product = np.asarray(x, wide) * np.asarray(y, wide)
    return product if "wide" in i.modifiers else (product >> wide.type(bits)).astype(TYPES[i.kind])


def divide(i: Instruction, x: Any, y: Any) -> Any:
    """A quotient; that of integers is cut towards zero."""
    if i.kind[0] == "f":
        return x / y
    quotient = x // np.where(y == 0, y.dtype.type(1), y)
    return quotient + ((quotient < 0) & (quotient * y != x)).astype(y.dtype)


def shift(i: Instruction, x: Any, by: Any) -> Any:
    """Shifts by the width and more leave zero or, of signed numbers to the right, the sign."""
    bits = x.dtype.itemsize * 8
    if i.name == "shr" and i.kind[0] == "s":
        return x >> np.minimum(by, bits - 1).astype(x.dtype)
    shifted = (np.left_shift if i.name == "shl" else np.right_shift)(x, by.astype(x.dtype))
    return np.where(by < bits, shifted, x.dtype.type(0))


def extract(i: Instruction, x: Any, begin: Any, length: Any) -> Any:
    """A field of bits, extended by its highest one where the kind is signed."""
    if not length or begin + length > x.dtype.itemsize * 8:
        raise NotImplementedError(i.text)
    upper = x.dtype.type(x.dtype.itemsize * 8 - int(begin + length))
    return (x << upper) >> x.dtype.type(x.dtype.itemsize * 8 - int(length))


def fused(i: Instruction, x: Any, y: Any, z: Any) -> Any:
    """x·y + z, in a wider type: rounded at least 2^11 times finer than a result in between."""
    wider = np.longdouble if i.kind == "f64" else np.float64
    return (np.asarray(x, wider) * y + z).astype(TYPES[i.kind])


COMPARE = {
    "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal,
    "gt": np.greater, "ge": np.greater_equal,
}  # fmt: skip


def compare(i: Instruction, x: Any, y: Any) -> Any:
    """A comparison, false where a number is NaN; with a u behind its name, true there."""
    test = i.modifiers[0]
    if test in ("num", "nan"):
        return (np.isnan(x) | np.isnan(y)) ^ (test == "num")
    if len(i.modifiers) != 2:
        raise NotImplementedError(i.text)
    unordered = np.isnan(x) | np.isnan(y) if i.kind[0] == "f" else np.False_
    return unordered | COMPARE[test[:2]](x, y) if test[2:] else ~unordered & COMPARE[test](x, y)


def convert(i: Instruction, x: Any) -> Any:
    """A number of another kind: floats are rounded to the nearest, integers cut or extended."""
    to, kind = i.modifiers[-2:]
    if kind[0] == "f" and (to[0] != "f" or (to < kind and "rn" not in i.modifiers)):
        raise NotImplementedError(i.text)
    return x.astype(TYPES[to])


Kinds = Callable[[Instruction], list[str]]


def same(i: Instruction) -> list[str]:
    """All sources are of the instruction's kind."""
    return [i.kind] * 3


ARITHMETIC: dict[str, tuple[Kinds, Callable[..., Any]]] = {
    "add": (same, lambda i, x, y: x + y),
    "sub": (same, lambda i, x, y: x - y),
    "mul": (same, multiply),
    "mad": (
        lambda i: [i.kind, i.kind, double(i.kind) if "wide" in i.modifiers else i.kind],
        lambda i, x, y, z: multiply(i, x, y) + z,
    ),
    "fma": (same, fused),
    "div": (same, divide),
    "rem": (same, lambda i, x, y: x - divide(i, x, y) * y),
    "min": (same, lambda i, x, y: np.fmin(x, y)),
    "max": (same, lambda i, x, y: np.fmax(x, y)),
    "neg": (same, lambda i, x: -x),
    "abs": (same, lambda i, x: np.abs(x)),
    "not": (same, lambda i, x: ~x),
    "and": (same, lambda i, x, y: x & y),
    "or": (same, lambda i, x, y: x | y),
    "xor": (same, lambda i, x, y: x ^ y),
    "shl": (lambda i: [i.kind, "u32"], shift),
    "shr": (lambda i: [i.kind, "u32"], shift),
    "bfe": (lambda i: [i.kind, "u32", "u32"], extract),
    "setp": (same, compare),
    "selp": (lambda i: [i.kind, i.kind, "pred"], lambda i, x, y, p: np.where(p, x, y)),
    "cvt": (lambda i: [i.kind], convert),
    "cvta": (same, lambda i, x: x),
}


# ---- instructions that need the launch -----------------------------------------------------------


def move(s: Launch, i: Instruction, mask: Any) -> None:
    """Copies a register, packs several narrow ones into it, or unpacks it."""
    to, source = i.operands
    if to[0] == "{":
        parts = to[1:-1].split(",")
        value = s.every(source, i.kind).copy().view(f"u{TYPES[i.kind].itemsize // len(parts)}")
        for k, part in enumerate(parts):
            s.put(part, value[k :: len(parts)], mask)
    elif source[0] == "{":
        parts = source[1:-1].split(",")
        kind = f"b{TYPES[i.kind].itemsize * 8 // len(parts)}"
        value = np.stack([s.every(part, kind) for part in parts], -1)
        s.put(to, value.view(TYPES[i.kind])[:, 0], mask)
    else:
        s.put(to, s.get(source, i.kind), mask)


def address(s: Launch, operand: str, mask: Any) -> Any:
    """The addresses of the active threads, of ``[register + offset]``."""
    base, _, offset = operand[1:-1].partition("+")
    kind = f"u{s.width(base)}" if base[0] == "%" else "u32"
    return s.every(base, kind)[mask].astype(np.int64) + int(offset or 0)


def load(s: Launch, i: Instruction, mask: Any) -> None:
    """Reads a parameter, or one to four values of each thread from global or shared memory."""
    registers = i.operands[0].strip("{}").split(",")
    if "param" in i.modifiers:
        value = s.params[i.operands[1].strip("[]")]
        s.put(registers[0], np.asarray(value).astype(TYPES[i.kind]), mask)
        return
    at = address(s, i.operands[1], mask)
    if "global" in i.modifiers:
        values = s.memory.load(at, i.kind, len(registers), s.flat[mask])
    else:
        size = TYPES[i.kind].itemsize
        s.shared.access(s.cta[mask], s.thread[mask], at, size * len(registers), write=False)
        index = at // size + np.arange(len(registers))[:, None]
        values = s.shared.data.view(f"u{size}")[s.cta[mask], index]
    for register, value in zip(registers, values, strict=True):
        every = np.zeros(s.n, value.dtype)
        every[mask] = value
        s.put(register, every.view(TYPES[i.kind]), mask)


def store(s: Launch, i: Instruction, mask: Any) -> None:
    """Writes one to four values of each thread to global or shared memory."""
    size, at = TYPES[i.kind].itemsize, address(s, i.operands[0], mask)
    registers = i.operands[1].strip("{}").split(",")
    values = np.stack([s.every(x, f"b{8 * size}")[mask] for x in registers], -1)
    if "global" in i.modifiers:
        s.memory.store(at, values, s.flat[mask])
        return
    s.shared.access(s.cta[mask], s.thread[mask], at, size * len(registers), write=True)
    index = at // size + np.arange(len(registers))[:, None]
    s.shared.data.view(f"u{size}")[s.cta[mask], index] = values.T


def whole_warps(mask: Any) -> Any:
    """Which warps are active; they are so with all their threads."""
    warps = mask.reshape(-1, 32)
    if (warps.any(1) != warps.all(1)).any():
        raise Fault("only a part of a warp")
    return warps.any(1)


def shuffle(s: Launch, i: Instruction, mask: Any) -> None:
    """Has each thread read a register of another one of its warp."""
    whole_warps(mask)
    to, source, lane, clamp, members = i.operands
    mode = i.modifiers[1]
    if mode not in ("idx", "bfly") or int(clamp) != 31 or int(members) % (FULL + 1) != FULL:
        raise NotImplementedError(i.text)
    other = s.every(lane, "s32").reshape(-1, 32)
    if mode == "bfly":
        other = other ^ np.arange(32)
    value = np.take_along_axis(s.every(source, "u32").reshape(-1, 32), other & 31, 1)
    s.put(to, value.ravel(), mask)


def reduce(s: Launch, i: Instruction, mask: Any) -> None:
    """Gives all threads of a warp the largest value among them."""
    whole_warps(mask)
    to, source, members = i.operands
    if i.modifiers[1] != "max" or (s.every(members, "u32")[mask] != FULL).any():
        raise NotImplementedError(i.text)
    s.put(to, np.repeat(s.every(source, i.kind).reshape(-1, 32).max(1), 32), mask)


def barrier(s: Launch, i: Instruction, mask: Any) -> None:
    """Makes accesses of shared memory visible within a warp (bar.warp.sync), or within a CTA."""
    pending = s.shared.pending
    warps = whole_warps(mask).reshape(s.ctas, -1)
    if "warp" in i.modifiers:
        by_warp = np.moveaxis(pending, 3, 2)  # [2, CTA, warp, cell]
        by_warp[:, warps] = np.minimum(by_warp[:, warps], 1)
        return
    if i.modifiers != ["sync"] or len(i.operands) > 1:
        raise NotImplementedError(i.text)
    if (warps.any(1) != warps.all(1)).any():
        raise Fault("not all threads of a CTA are at a barrier")
    pending[:, warps.any(1)] = 0


def matrix(s: Launch, i: Instruction, mask: Any) -> None:
    """Loads or stores four 8 x 8 matrices of 16 bits: threads 8k to 8k + 7 of a warp say where the
    rows of matrix k lie; each thread holds two neighbours of a row, thread 4r + c of row r."""
    if i.modifiers[2:] != ["m8n8", "x4", "shared", "b16"]:
        raise NotImplementedError(i.text)
    whole_warps(mask)
    loads = i.name == "ldmatrix"
    registers, place = i.operands if loads else i.operands[::-1]
    row = address(s, place, mask).reshape(-1, 4, 8)  # [warp, matrix, row]
    lane = np.arange(32)
    at = np.moveaxis(row[:, :, lane // 4] + 4 * (lane % 4), 1, 0).reshape(4, -1)
    cta, thread = s.cta[mask], s.thread[mask]
    if (row % 16).any():
        raise Fault("misaligned rows of a matrix")
    data = s.shared.data.view(np.uint32)
    s.shared.access(np.tile(cta, 4), np.tile(thread, 4), at.ravel(), 4, write=not loads)
    for register, index in zip(registers.strip("{}").split(","), at // 4, strict=True):
        if loads:
            every = np.zeros(s.n, np.uint32)
            every[mask] = data[cta, index]
            s.put(register, every, mask)
        else:
            data[cta, index] = s.every(register, "u32")[mask]


WITH_LAUNCH: dict[str, Callable[[Launch, Instruction, Any], None]] = {
    "mov": move, "ld": load, "st": store, "shfl": shuffle, "redux": reduce, "bar": barrier,
    "barrier": barrier, "ldmatrix": matrix, "stmatrix": matrix,
}  # fmt: skip
