"""Run PTX on the CPU, in NumPy: the subset that Triton emits. A check of *compiled* kernels.

All threads of all CTAs go in lock step; where they diverge, those at the earliest basic block go
first (so they meet again where control flow does). Unlike Triton's interpreter this runs what LLVM
made: specialised arguments, layouts, shuffles, shared memory, ldmatrix/stmatrix, predicates. What
it does not run is what ptxas makes of it (SASS).

Checked on the way, each a `Fault`:
  * every global access of an active thread lies within one of the tensors that were passed, and is
    aligned to its size (v4.b32: 16 bytes) as the hardware wants it;
  * no two threads of a launch write one place (unless the same value: counted), and none reads
    what another thread has written in the same launch;
  * shared memory: what one thread wrote, another reads or writes only after a barrier of the right
    width (bar.warp.sync within a warp, bar.sync between warps), and within its size;
  * at bar.sync all threads of a CTA are there; shuffles name only threads that are there.

As a library:
    module = Module(ptx_text); module.run(grid, arguments, shared_bytes)   # arguments: see run()
With Triton (no device needed), every launch compiled for a target and run here on CPU tensors:
    import ptx_interp; ptx_interp.install(capability=90)
For the project's own tests, in place of Triton's interpreter (see ptx_plugin.py).
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np

U8, U16, U32, U64 = np.uint8, np.uint16, np.uint32, np.uint64
NP = {
    "u8": np.uint8, "u16": np.uint16, "u32": np.uint32, "u64": np.uint64,
    "s8": np.int8, "s16": np.int16, "s32": np.int32, "s64": np.int64,
    "b8": np.uint8, "b16": np.uint16, "b32": np.uint32, "b64": np.uint64,
    "f16": np.float16, "f32": np.float32, "f64": np.float64,
}  # fmt: skip
BITS = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}


class Fault(Exception):
    """What a device would not do, or not always."""


# ---- exact fma ---------------------------------------------------------------------------------

_C = """
#include <math.h>
#define LOOP(T, F) void v##F(const T*a,const T*b,const T*c,T*o,long n){for(long i=0;i<n;i++)o[i]=F(a[i],b[i],c[i]);}
LOOP(double, fma)
LOOP(float, fmaf)
"""


def _library() -> Any:
    place = os.path.join(tempfile.gettempdir(), f"ptx_interp_fma_{os.getuid()}.so")
    if not os.path.exists(place):
        source = place[:-3] + f"{os.getpid()}.c"
        with open(source, "w") as file:
            file.write(_C)
        own = place + str(os.getpid())
        subprocess.run(
            ["gcc", "-O2", "-mfma", "-shared", "-fPIC", source, "-o", own, "-lm"], check=True
        )
        os.replace(own, place)
        os.unlink(source)
    return ctypes.CDLL(place)


_LIB = _library()


def fma(a: Any, b: Any, c: Any, kind: Any) -> Any:
    n = max(np.size(a), np.size(b), np.size(c))
    a, b, c = (np.ascontiguousarray(np.broadcast_to(x, (n,)), dtype=kind) for x in (a, b, c))
    out = np.empty(n, kind)
    call = _LIB.vfma if kind == np.float64 else _LIB.vfmaf
    p = ctypes.c_void_p
    call(p(a.ctypes.data), p(b.ctypes.data), p(c.ctypes.data), p(out.ctypes.data), ctypes.c_long(n))
    return out


def bf16_of(x: Any) -> Any:
    """float32 to the bits of the nearest bfloat16."""
    bits = np.asarray(x, np.float32).view(np.uint32)
    rounded = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
    return np.where(np.isnan(x), np.uint16(0x7FFF), rounded)


# ---- parsing -----------------------------------------------------------------------------------

_OPERAND = re.compile(r"\{[^}]*\}|\[[^\]]*\]|[^,\s][^,]*")


class Instruction:
    __slots__ = ("args", "line", "neg", "op", "pred", "text")

    def __init__(self, text: str, line: int) -> None:
        self.text, self.line = text, line
        self.pred, self.neg = None, False
        if text.startswith("@"):
            guard, text = text.split(None, 1)
            self.neg = guard[1] == "!"
            self.pred = guard[2:] if self.neg else guard[1:]
        head, _, rest = text.partition(" ")
        if "\t" in head:
            head, _, more = head.partition("\t")
            rest = more + " " + rest
        self.op = head.split(".")
        self.args = [a.strip() for a in _OPERAND.findall(rest.replace("|", " , "))]


class Kernel:
    def __init__(
        self, name: str, params: list[tuple[str, int]], body: list[str], threads: int
    ) -> None:
        self.name, self.params, self.threads = name, params, threads
        self.widths: dict[str, int] = {}
        self.blocks: list[list[Instruction]] = [[]]
        labels: dict[str, int] = {}
        for number, line in enumerate(body):
            line = line.split("//")[0].strip()
            if (
                not line
                or line in "{}"
                or line.startswith((".loc", ".file", ".pragma", ".section"))
            ):
                continue
            if line.startswith(".reg"):
                _, kind, what = line.rstrip(";").split(None, 2)
                bits = 1 if kind == ".pred" else int(re.sub(r"\D", "", kind))
                for one in what.split(","):
                    self.widths[re.match(r"%[A-Za-z]+", one.strip())[0]] = bits
                continue
            if line.startswith("."):
                raise NotImplementedError(line)
            if label := re.match(r"([\w$]+):$", line):
                if self.blocks[-1]:
                    self.blocks.append([])
                labels[label[1]] = len(self.blocks) - 1
                continue
            for part in filter(None, (p.strip() for p in line.split(";"))):
                if part.startswith(("{", "}")):
                    part = part.strip("{} \t")
                    if not part:
                        continue
                found = Instruction(part, number)
                self.blocks[-1].append(found)
                if found.op[0] in ("bra", "ret", "exit"):
                    self.blocks.append([])
        self.labels = labels


class Module:
    """The kernels of a PTX text."""

    def __init__(self, text: str) -> None:
        self.text = text
        text = re.sub(r"/\*.*?\*/", "", text, flags=re.S)
        self.kernels: dict[str, Kernel] = {}
        pattern = r"\.entry\s+([\w$]+)\s*\((.*?)\)([^{]*)\{(.*?)\n\}"
        for name, given, about, body in re.findall(pattern, text, flags=re.S):
            params = []
            for line in given.split(","):
                if line.strip():
                    words = line.split()
                    params.append((words[-1], NP[words[1][1:]]().itemsize))
            sizes = re.search(r"\.(?:req|max)ntid\s+(\d+)", about)
            self.kernels[name] = Kernel(
                name, params, body.split("\n"), int(sizes[1]) if sizes else 0
            )
        self.target = re.search(r"\.target\s+(\w+)", text)[1]

    def run(
        self,
        grid: Any,
        arguments: Any,
        shared: int,
        tensors: Any = (),
        threads: int = 0,
        name: str = "",
        races: bool = True,
    ) -> Counter:
        """Launch: arguments are ints or floats (pointers: addresses), tensors what may be touched:
        (address, bytes) each. Returns how often each instruction was executed (threads)."""
        kernel = self.kernels[name] if name else next(iter(self.kernels.values()))
        return Launch(kernel, grid, arguments, shared, tensors, threads, races).go()


# ---- memory ------------------------------------------------------------------------------------


class Global:
    """The tensors of a launch."""

    def __init__(self, tensors: Any, races: bool) -> None:
        spans = sorted({(int(a), int(n)) for a, n in tensors if n})
        merged: list[list[int]] = []
        for a, n in spans:
            if merged and a < merged[-1][1]:
                merged[-1][1] = max(merged[-1][1], a + n)
            else:
                merged.append([a, a + n])
        self.begin = np.array([a for a, _ in merged], np.uint64)
        self.end = np.array([b for _, b in merged], np.uint64)
        self.bytes = [
            np.ctypeslib.as_array((ctypes.c_uint8 * (b - a)).from_address(a)) for a, b in merged
        ]
        self.writer: list[Any] = [None] * len(merged)
        self.races = races
        self.same_value = 0

    def _where(self, at: Any, size: int, what: str) -> Any:
        if (at % U64(size)).any():
            raise Fault(
                f"misaligned: {what}, {size} bytes at {int(at[(at % U64(size)) != 0][0]):#x}"
            )
        if not len(self.begin):
            raise Fault(f"no memory: {what}")
        which = np.searchsorted(self.begin, at, side="right").astype(np.int64) - 1
        bad = (which < 0) | (at + U64(size) > self.end[which])
        if bad.any():
            k = int(np.flatnonzero(bad)[0])
            near = self.begin[max(int(which[k]), 0)]
            raise Fault(
                f"out of bounds: {what} at {int(at[k]):#x}, {int(at[k]) - int(near)} from the tensor before it ({int(bad.sum())} threads)"
            )
        return which

    def load(self, at: Any, kind: Any, count: int, who: Any, what: str) -> list[Any]:
        size = kind().itemsize
        which = self._where(at, size * count, what)
        found = [np.empty(len(at), BITS[size]) for _ in range(count)]
        for w in np.unique(which):
            mine = which == w
            offset = ((at[mine] - self.begin[w]) // U64(size)).astype(np.int64)
            skew = int(self.begin[w]) % size
            view = self.bytes[w]
            if skew:
                raise Fault("a tensor that is not aligned to its elements")
            view = view[: len(view) // size * size].view(BITS[size])
            for j in range(count):
                found[j][mine] = view[offset + j]
            if self.races and self.writer[w] is not None:
                cells = ((at[mine] - self.begin[w]) // U64(2)).astype(np.int64)
                owner = self.writer[w][cells]
                if ((owner >= 0) & (owner != who[mine])).any():
                    raise Fault(f"reads what another thread wrote: {what}")
        return found

    def store(self, at: Any, values: list[Any], kind: Any, who: Any, what: str) -> None:
        size, count = kind().itemsize, len(values)
        which = self._where(at, size * count, what)
        for w in np.unique(which):
            mine = which == w
            offset = ((at[mine] - self.begin[w]) // U64(size)).astype(np.int64)
            view = self.bytes[w]
            view = view[: len(view) // size * size].view(BITS[size])
            if self.races:
                if self.writer[w] is None:
                    self.writer[w] = np.full(len(self.bytes[w]) // 2 + 1, -1, np.int64)
                cells = ((at[mine] - self.begin[w]) // U64(2)).astype(np.int64)
                for j in range(max(1, size * count // 2)):
                    owner = self.writer[w][cells + j]
                    clash = (owner >= 0) & (owner != who[mine])
                    if clash.any():
                        old = [view[offset[clash] + i] for i in range(count)]
                        new = [v[mine][clash] for v in values]
                        if not all(np.array_equal(a, b) for a, b in zip(old, new)):
                            raise Fault(f"two threads write one place: {what}")
                        self.same_value += int(clash.sum())
                    self.writer[w][cells + j] = who[mine]
                first, number = np.unique(offset, return_inverse=True)
                if len(first) < len(offset):  # within one instruction
                    for v in values:
                        one = np.zeros(len(first), v.dtype)
                        one[number] = v[mine]
                        if not np.array_equal(one[number], v[mine]):
                            raise Fault(f"two threads write one place at once: {what}")
                    self.same_value += len(offset) - len(first)
            for j in range(count):
                view[offset + j] = values[j][mine]


class Shared:
    """Shared memory of all CTAs, with who wrote and read what since which barrier."""

    def __init__(self, ctas: int, size: int, threads: int, races: bool) -> None:
        self.size, self.threads, self.races = size, threads, races
        words = (size + 3) // 4
        self.data = np.zeros((ctas, words * 4), np.uint8)
        self.cta_epoch = np.zeros(ctas, np.int64)
        self.warp_epoch = np.zeros((ctas, threads // 32), np.int64)
        self.made = np.zeros((ctas, words), bool)
        if races:
            self.written = np.full((ctas, words, 3), -1, np.int64)  # thread, cta epoch, warp epoch
            self.read = np.full((ctas, words, 3), -1, np.int64)

    def check(self, cta: Any, at: Any, bytes_: int, thread: Any, write: bool, what: str) -> None:
        if (at.astype(np.int64) + bytes_ > self.size).any():
            raise Fault(f"beyond shared memory ({self.size} bytes): {what}")
        if (at % U32(min(bytes_, 16))).any():
            raise Fault(f"misaligned: {what}")
        if not self.races:
            return
        ce, we = self.cta_epoch[cta], self.warp_epoch[cta, thread // 32]
        for word in range((bytes_ + 3) // 4):
            cell = at.astype(np.int64) // 4 + word
            if not write and not self.made[cta, cell].all():
                raise Fault(f"reads shared memory that nobody wrote: {what}")
            for log in (self.written, *([self.read] if write else [])):
                t, c, w = np.moveaxis(log[cta, cell], -1, 0)
                many = t == -2  # more than one thread of a warp; -3: of several warps
                other = (t >= 0) & (t != thread)
                same_warp = ((t >= 0) | many) & (
                    (np.where(many, log[cta, cell, 2] * 0, t) // 32 == thread // 32) | many
                )
                late = (c == ce) & (
                    ((other | many) & same_warp & (w == we))
                    | (other & ~same_warp & ~many)
                    | (t == -3)
                )
                if late.any():
                    kind = "wrote" if log is self.written else "read"
                    raise Fault(f"no barrier since another thread {kind} it: {what}")
            if write:
                self.written[cta, cell] = np.stack([thread, ce, we], -1)
                self.made[cta, cell] = True
            else:
                t, c, w = np.moveaxis(self.read[cta, cell], -1, 0)
                fresh = (
                    (t == -1)
                    | (c < ce)
                    | ((c == ce) & (w < we) & (t >= 0) & (t // 32 == thread // 32))
                )
                # several readers at once or since the same barrier
                key = cta.astype(np.int64) * (1 << 32) + cell
                order = np.argsort(key, kind="stable")
                k, th = key[order], thread[order]
                begins = np.flatnonzero(np.r_[True, k[1:] != k[:-1]])
                low, high = np.minimum.reduceat(th, begins), np.maximum.reduceat(th, begins)
                lowest, highest = (
                    np.repeat(x, np.diff(np.r_[begins, len(k)])) for x in (low, high)
                )
                back = np.empty_like(order)
                back[order] = np.arange(len(order))
                lowest, highest = lowest[back], highest[back]
                own = np.where(
                    lowest == highest, lowest, np.where(lowest // 32 == highest // 32, -2, -3)
                )
                joined = np.where((t == own) & (own >= 0), own, -3)
                joined = np.where(
                    (t >= 0) & (own >= 0) & (t // 32 == own // 32) & (t != own), -2, joined
                )
                value = np.where(fresh, own, np.where(t == -1, own, joined))
                self.read[cta, cell] = np.stack([value, ce, we], -1)

    def view(self, kind: Any) -> Any:
        return self.data.view(kind)


# ---- running -----------------------------------------------------------------------------------

SPECIAL = ("%tid", "%ctaid", "%ntid", "%nctaid", "%laneid", "%warpid", "%WARP_SZ")


class Launch:
    def __init__(
        self,
        kernel: Kernel,
        grid: Any,
        arguments: Any,
        shared: int,
        tensors: Any,
        threads: int,
        races: bool,
    ) -> None:
        grid = (*map(int, grid), 1, 1)[:3]
        self.kernel, self.grid = kernel, grid
        T = kernel.threads or threads
        self.T, self.ctas = T, grid[0] * grid[1] * grid[2]
        self.n = n = T * self.ctas
        flat = np.arange(n)
        self.thread, self.cta = flat % T, flat // T
        special = {
            "%tid.x": self.thread, "%tid.y": flat * 0, "%tid.z": flat * 0,
            "%ctaid.x": self.cta % grid[0], "%ctaid.y": self.cta // grid[0] % grid[1],
            "%ctaid.z": self.cta // grid[0] // grid[1],
            "%ntid.x": flat * 0 + T, "%ntid.y": flat * 0 + 1, "%ntid.z": flat * 0 + 1,
            "%nctaid.x": flat * 0 + grid[0], "%nctaid.y": flat * 0 + grid[1], "%nctaid.z": flat * 0 + grid[2],
            "%laneid": self.thread % 32, "%warpid": self.thread // 32,
        }  # fmt: skip
        self.special = {name: value.astype(np.uint32) for name, value in special.items()}
        self.memory = Global(tensors, races)
        self.shared = Shared(self.ctas, shared, T, races)
        self.regs: dict[str, Any] = {}
        self.act: Any = None  # None: all
        self.count: Counter = Counter()
        self.params: dict[str, Any] = {}
        if len(arguments) > len(kernel.params):
            raise Fault(f"{len(arguments)} arguments for {len(kernel.params)} parameters")
        values = [*arguments, *[0] * (len(kernel.params) - len(arguments))]  # scratch: none
        for (name, size), value in zip(kernel.params, values):
            if isinstance(value, float):
                raw = np.array([value], {4: np.float32, 8: np.float64}[size]).view(BITS[size])
            else:
                raw = np.array([int(value) & ((1 << (8 * size)) - 1)], np.uint64).astype(BITS[size])
            self.params[name] = raw

    # registers
    def width(self, name: str) -> int:
        return self.kernel.widths[re.match(r"%[A-Za-z]+", name)[0]]

    def raw(self, name: str) -> Any:
        if name in self.regs:
            return self.regs[name]
        if name in self.special:
            return self.special[name]
        bits = self.width(name)
        return np.zeros(self.n, bool if bits == 1 else BITS[bits // 8])

    def get(self, operand: str, kind: str) -> Any:
        """The operand as a type: an array or a number."""
        if kind == "pred":
            negated = operand.startswith("!")
            found = (
                self.raw(operand.lstrip("!"))
                if operand.startswith(("%", "!"))
                else np.bool_(int(operand) & 1)
            )
            return ~found if negated else found
        dtype = NP["u16" if kind == "bf16" else kind]
        if operand.startswith("%"):
            found = self.raw(operand)
            size = dtype().itemsize
            if found.dtype.itemsize != size:
                found = found.astype(BITS[size])  # narrower types use the low bits
            return found.view(dtype)
        if operand.startswith(("0d", "0D")):
            return (
                np.array([int(operand[2:], 16)], np.uint64).view(np.float64).astype(dtype)[0]
                if dtype == np.float64
                else np.array([int(operand[2:], 16)], np.uint64).view(dtype)[0]
            )
        if operand.startswith(("0f", "0F")):
            bits = np.array([int(operand[2:], 16)], np.uint32)
            return bits.view(np.float32)[0] if dtype == np.float32 else bits.view(dtype)[0]
        if re.match(r"-?(0x[\da-fA-F]+|\d+)U?$", operand):
            value = int(operand.rstrip("U"), 0)
            size = dtype().itemsize
            return (
                np.array([value & ((1 << (8 * size)) - 1)], np.uint64)
                .astype(BITS[size])
                .view(dtype)[0]
            )
        if operand == "global_smem":
            return dtype(0)
        raise NotImplementedError(f"operand {operand}")

    def put(self, name: str, value: Any, mask: Any) -> None:
        if name == "_":
            return
        bits = self.width(name)
        value = np.asarray(value)
        if bits == 1:
            value = np.broadcast_to(value.astype(bool), (self.n,))
        else:
            size = bits // 8
            if value.dtype.itemsize != size:
                kind = value.dtype.kind
                value = value.astype(np.int64 if kind == "i" else np.uint64).astype(BITS[size])
            else:
                value = value.view(BITS[size]) if value.ndim else np.array([value]).view(BITS[size])
            value = np.broadcast_to(value, (self.n,))
        if mask is not None:
            value = np.where(mask, value, self.raw(name))
        elif not value.flags.owndata:
            value = value.copy()
        self.regs[name] = value

    def go(self) -> Counter:
        blocks, labels = self.kernel.blocks, self.kernel.labels
        pc = np.zeros(self.n, np.int32)
        done = len(blocks)
        with np.errstate(all="ignore"):
            while True:
                at = int(pc.min())
                if at >= done:
                    break
                act = pc == at
                self.alive = pc < done
                self.act = None if act.all() else act
                following = np.int32(at + 1)
                for instruction in blocks[at]:
                    name = instruction.op[0]
                    if name in ("bra", "ret", "exit"):
                        mask = act
                        if instruction.pred:
                            p = self.raw(instruction.pred)
                            mask = act & (~p if instruction.neg else p)
                        target = done if name != "bra" else labels[instruction.args[0]]
                        pc = np.where(mask, np.int32(target), np.where(act, following, pc))
                        break
                    try:
                        self.step(instruction)
                    except Fault as fault:
                        raise Fault(f"{self.kernel.name}: {fault}  [{instruction.text}]") from None
                else:
                    pc = np.where(act, following, pc)
        if self.memory.same_value:
            self.count["same place, same value"] = self.memory.same_value
        return self.count

    def step(self, i: Instruction) -> None:
        op = i.op
        mask = self.act
        if i.pred:
            p = self.raw(i.pred)
            p = ~p if i.neg else p
            mask = p if mask is None else mask & p
            if not mask.any():
                return
        self.count[op[0] + (f".{op[-1]}" if op[0] in _TYPED else "")] += (
            self.n if mask is None else int(mask.sum())
        )
        handler = _HANDLERS.get(op[0])
        if handler is None:
            raise NotImplementedError(i.text)
        handler(self, i, op, i.args, mask)

    def address(self, operand: str) -> tuple[Any, bool]:
        inner = operand.strip("[] ")
        base, _, offset = inner.partition("+")
        base, offset = base.strip(), offset.strip()
        return base, int(offset, 0) if offset else 0

    def lanes(self, mask: Any) -> Any:
        return slice(None) if mask is None else np.flatnonzero(mask)


_TYPED = {
    "add",
    "sub",
    "mul",
    "fma",
    "div",
    "cvt",
    "mad",
    "min",
    "max",
    "neg",
    "abs",
    "selp",
    "setp",
}
_HANDLERS: dict[str, Callable[..., None]] = {}


def handles(*names: str) -> Callable[..., Any]:
    def keep(function: Any) -> Any:
        for name in names:
            _HANDLERS[name] = function
        return function

    return keep


def _no_ftz(op: list[str], text: str) -> None:
    if "ftz" in op or "approx" in op or "full" in op or "sat" in op:
        raise Fault(f"not exact arithmetic: {text}")


@handles("add", "sub", "mul", "div", "min", "max", "rem")
def _binary(s: Launch, i: Instruction, op: list[str], a: list[str], mask: Any) -> None:
    kind = op[-1]
    _no_ftz(op, i.text)
    name = op[0]
    if kind == "f32x2":  # two numbers in a register
        pairs = [np.ascontiguousarray(np.broadcast_to(s.get(v, "b64"), (s.n,))) for v in a[1:3]]
        x, y = (pair.view(np.float32) for pair in pairs)
        r = {"add": np.add, "sub": np.subtract, "mul": np.multiply}[name](x, y)
        return s.put(a[0], r.view(np.uint64), mask)
    x, y = s.get(a[1], kind), s.get(a[2], kind)
    is_float = kind[0] == "f"
    if is_float and name in ("add", "sub", "mul") and "rn" not in op:
        s.count["contractible " + name] += 1  # ptxas may fuse it, unless told --fmad=false
    if name == "mul" and not is_float:
        if "wide" in op:
            big = {"u16": np.uint32, "s16": np.int32, "u32": np.uint64, "s32": np.int64}[kind]
            return s.put(a[0], np.asarray(x).astype(big) * np.asarray(y).astype(big), mask)
        if "hi" in op:
            if kind in ("u16", "s16"):
                big = np.uint32 if kind[0] == "u" else np.int32
                whole = np.asarray(x).astype(big) * np.asarray(y).astype(big)
                return s.put(a[0], (whole >> big(16)).astype(NP[kind]), mask)
            if kind in ("u32", "s32"):
                big = np.uint64 if kind[0] == "u" else np.int64
                whole = np.asarray(x).astype(big) * np.asarray(y).astype(big)
                return s.put(a[0], (whole >> big(32)).astype(NP[kind]), mask)
            ints = [int(p) * int(q) >> 64 for p, q in np.broadcast(np.asarray(x), np.asarray(y))]
            return s.put(a[0], np.array([v & (2**64 - 1) for v in ints], np.uint64), mask)
        return s.put(a[0], x * y, mask)
    if name == "add":
        r = x + y
    elif name == "sub":
        r = x - y
    elif name == "mul":
        r = x * y
    elif name == "div":
        if is_float:
            r = x / y
        else:
            y = np.where(np.asarray(y) == 0, NP[kind](1), y)
            r = np.trunc_divide(x, y) if hasattr(np, "trunc_divide") else _quotient(x, y)
    elif name == "rem":
        y = np.where(np.asarray(y) == 0, NP[kind](1), y)
        r = x - _quotient(x, y) * y
    elif name == "min":
        r = (np.minimum if "NaN" in op else np.fmin)(x, y)
    else:
        r = (np.maximum if "NaN" in op else np.fmax)(x, y)
    s.put(a[0], r, mask)


def _quotient(x: Any, y: Any) -> Any:
    """Towards zero."""
    x, y = np.broadcast_arrays(x, y)
    if x.dtype.kind == "u":
        return x // y
    q = np.floor_divide(x, y)
    return q + ((x - q * y != 0) & ((x < 0) != (y < 0))).astype(x.dtype)


@handles("mad", "fma")
def _mad(s: Launch, i: Instruction, op: list[str], a: list[str], mask: Any) -> None:
    kind = op[-1]
    _no_ftz(op, i.text)
    if kind[0] == "f":
        x, y, z = (s.get(v, kind) for v in a[1:4])
        return s.put(a[0], fma(x, y, z, NP[kind]), mask)
    x, y = s.get(a[1], kind), s.get(a[2], kind)
    if "wide" in op:
        bigger = {"u16": "u32", "s16": "s32", "u32": "u64", "s32": "s64"}[kind]
        big = NP[bigger]
        r = np.asarray(x).astype(big) * np.asarray(y).astype(big) + s.get(a[3], bigger)
    elif "lo" in op:
        r = x * y + s.get(a[3], kind)
    else:
        raise NotImplementedError(i.text)
    s.put(a[0], r, mask)


@handles("neg", "abs", "not", "cnot", "popc", "clz", "sqrt", "rcp")
def _unary(s: Launch, i: Instruction, op: list[str], a: list[str], mask: Any) -> None:
    kind = op[-1]
    _no_ftz(op, i.text)
    if kind == "pred":
        return s.put(a[0], ~s.get(a[1], "pred"), mask)
    x = s.get(a[1], kind)
    name = op[0]
    if name == "neg":
        r = -x if kind[0] == "f" else NP[kind](0) - x
    elif name == "abs":
        r = np.abs(x)
    elif name == "not":
        r = ~x
    elif name == "sqrt":
        r = np.sqrt(x)
    elif name == "rcp":
        r = NP[kind](1) / x
    else:
        raise NotImplementedError(i.text)
    s.put(a[0], r, mask)


@handles("and", "or", "xor")
def _logic(s: Launch, i: Instruction, op: list[str], a: list[str], mask: Any) -> None:
    x, y = s.get(a[1], op[-1]), s.get(a[2], op[-1])
    s.put(
        a[0], {"and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor}[op[0]](x, y), mask
    )


@handles("lop3")
def _lop3(s: Launch, i: Instruction, op: list[str], a: list[str], mask: Any) -> None:
    x, y, z = (np.asarray(s.get(v, "u32")) for v in a[1:4])
    table, r = int(a[4], 0), np.uint32(0)
    for k in range(8):
        if table >> k & 1:
            r = r | ((x if k & 4 else ~x) & (y if k & 2 else ~y) & (z if k & 1 else ~z))
    s.put(a[0], r, mask)


@handles("shl", "shr")
def _shift(s: Launch, i: Instruction, op: list[str], a: list[str], mask: Any) -> None:
    kind = op[-1]
    x, by = np.asarray(s.get(a[1], kind)), np.asarray(s.get(a[2], "u32")).astype(np.int64)
    bits = x.dtype.itemsize * 8
    small = np.minimum(by, bits - 1).astype(x.dtype)
    r = x << small if op[0] == "shl" else x >> small
    if op[0] == "shl" or kind[0] != "s":
        r = np.where(by >= bits, x.dtype.type(0), r)
    s.put(a[0], r, mask)


@handles("shf")
def _funnel(s: Launch, i: Instruction, op: list[str], a: list[str], mask: Any) -> None:
    lo, hi = (np.asarray(s.get(v, "u32")).astype(np.uint64) for v in a[1:3])
    by = np.asarray(s.get(a[3], "u32")).astype(np.uint64)
    by = by & U64(31) if "wrap" in op else np.minimum(by, U64(32))
    whole = (hi << U64(32)) | lo
    r = (whole << by) >> U64(32) if op[1] == "l" else whole >> by
    s.put(a[0], r.astype(np.uint32), mask)


@handles("bfe")
def _bfe(s: Launch, i: Instruction, op: list[str], a: list[str], mask: Any) -> None:
    kind = op[-1]
    x = np.asarray(s.get(a[1], "u" + kind[1:])).astype(np.uint64)
    pos, length = (int(s.get(v, "u32")) & 0xFF for v in a[2:4])
    bits = int(kind[1:])
    part = (x >> U64(pos)) & U64((1 << length) - 1) if length else x * U64(0)
    if kind[0] == "s" and length:
        top = min(pos + length - 1, bits - 1)
        sign = (x >> U64(top)) & U64(1)
        part = np.where(sign == 1, part | U64((2**64 - 1) ^ ((1 << length) - 1)), part)
    s.put(a[0], part.astype(NP["u" + kind[1:]]), mask)


@handles("bfi")
def _bfi(s: Launch, i: Instruction, op: list[str], a: list[str], mask: Any) -> None:
    x, y = (np.asarray(s.get(v, op[-1])) for v in a[1:3])
    pos, length = (int(s.get(v, "u32")) & 0xFF for v in a[3:5])
    kind = NP[op[-1]]
    field = kind((((1 << length) - 1) << pos) & ((1 << kind().itemsize * 8) - 1))
    s.put(a[0], (y & ~field) | ((x << kind(pos)) & field), mask)


@handles("prmt")
def _prmt(s: Launch, i: Instruction, op: list[str], a: list[str], mask: Any) -> None:
    x, y = (np.asarray(s.get(v, "u32")).astype(np.uint64) for v in a[1:3])
    whole, sel = x | (y << U64(32)), np.asarray(s.get(a[3], "u32"))
    r = np.uint64(0)
    for k in range(4):
        nibble = (sel >> U32(4 * k)) & U32(15)
        byte = (whole >> (U64(8) * (nibble & U32(7)).astype(np.uint64))) & U64(255)
        byte = np.where(nibble & U32(8), np.where(byte & U64(128), U64(255), U64(0)), byte)
        r = r | (byte << U64(8 * k))
    s.put(a[0], r.astype(np.uint32), mask)


@handles("selp")
def _selp(s: Launch, i: Instruction, op: list[str], a: list[str], mask: Any) -> None:
    s.put(a[0], np.where(s.get(a[3], "pred"), s.get(a[1], op[-1]), s.get(a[2], op[-1])), mask)


_COMPARE = {
    "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater,
    "ge": np.greater_equal, "lo": np.less, "ls": np.less_equal, "hi": np.greater, "hs": np.greater_equal,
}  # fmt: skip


@handles("setp")
def _setp(s: Launch, i: Instruction, op: list[str], a: list[str], mask: Any) -> None:
    kind, test = op[-1], op[1]
    x, y = (
        (np.asarray(s.get(v, kind)) for v in a[-2:] if True)
        if len(a) == 3
        else (np.asarray(s.get(v, kind)) for v in a[1:3])
    )
    if kind[0] == "f":
        nan = np.isnan(x) | np.isnan(y)
        if test == "num":
            r = ~nan
        elif test == "nan":
            r = nan
        elif test in ("equ", "neu", "ltu", "leu", "gtu", "geu"):
            r = nan | _COMPARE[test[:2]](x, y)
        else:
            r = ~nan & _COMPARE[test](x, y)
    else:
        r = _COMPARE[test](x, y)
    if len(op) > 3 and op[2] in ("and", "or", "xor"):
        c = s.get(a[3], "pred")
        r = {"and": np.logical_and, "or": np.logical_or, "xor": np.logical_xor}[op[2]](r, c)
    s.put(a[0], r, mask)


@handles("mov")
def _mov(s: Launch, i: Instruction, op: list[str], a: list[str], mask: Any) -> None:
    kind = op[-1]
    if kind == "pred":
        return s.put(a[0], s.get(a[1], "pred"), mask)
    if a[0].startswith("{"):  # unpack
        parts = [p.strip() for p in a[0].strip("{} ").split(",")]
        x = np.asarray(s.get(a[1], "u" + kind[1:]))
        size = x.dtype.itemsize * 8 // len(parts)
        for k, part in enumerate(parts):
            s.put(part, (x >> x.dtype.type(size * k)).astype(BITS[size // 8]), mask)
        return None
    if a[1].startswith("{"):  # pack
        parts = [p.strip() for p in a[1].strip("{} ").split(",")]
        whole = NP["u" + kind[1:]]
        size = whole().itemsize * 8 // len(parts)
        r = whole(0)
        for k, part in enumerate(parts):
            r = r | (np.asarray(s.get(part, f"u{size}")).astype(whole) << whole(size * k))
        return s.put(a[0], r, mask)
    return s.put(a[0], s.get(a[1], "u" + kind[1:] if kind[0] in "bfsu" else kind), mask)


@handles("cvt")
def _cvt(s: Launch, i: Instruction, op: list[str], a: list[str], mask: Any) -> None:
    to, of = op[-2], op[-1]
    if "ftz" in op or "sat" in op:
        raise Fault(f"not exact arithmetic: {i.text}")
    if to in ("bf16x2", "f16x2"):
        high, low = (np.asarray(s.get(v, "f32")) for v in a[1:3])
        make = bf16_of if to == "bf16x2" else lambda x: x.astype(np.float16).view(np.uint16)
        r = (make(high).astype(np.uint32) << U32(16)) | make(low).astype(np.uint32)
        return s.put(a[0], r, mask)
    if of == "bf16":
        x = (np.asarray(s.get(a[1], "u16")).astype(np.uint32) << U32(16)).view(np.float32)
    else:
        x = np.asarray(s.get(a[1], of))
    if to == "bf16":
        if of != "f32":
            raise NotImplementedError(i.text)
        return s.put(a[0], bf16_of(x), mask)
    if to[0] == "f":
        if of[0] == "f" and int(to[1:]) < int(of[1:]) and "rn" not in op:
            raise NotImplementedError(i.text)
        return s.put(a[0], x.astype(NP[to]), mask)
    if x.dtype.kind == "f":
        mode = next((m for m in op if m in ("rzi", "rni", "rmi", "rpi")), None)
        x = {"rzi": np.trunc, "rni": np.rint, "rmi": np.floor, "rpi": np.ceil}[mode](x)
        info = np.iinfo(NP[to])
        x = np.nan_to_num(x.astype(np.longdouble), nan=0.0)
        return s.put(a[0], np.clip(x, info.min, info.max).astype(NP[to]), mask)
    return s.put(a[0], x.astype(NP[to]), mask)


@handles("cvta")
def _cvta(s: Launch, i: Instruction, op: list[str], a: list[str], mask: Any) -> None:
    s.put(a[0], s.get(a[1], "u64"), mask)


def _vector(operand: str) -> list[str]:
    return [p.strip() for p in operand.strip("{} ").split(",")]


@handles("ld")
def _load(s: Launch, i: Instruction, op: list[str], a: list[str], mask: Any) -> None:
    kind = op[-1]
    base, offset = s.address(a[1])
    if "param" in op:
        value = s.params[base]
        if offset:
            raise NotImplementedError(i.text)
        if value.dtype.itemsize != NP[kind]().itemsize:  # e.g. ld.param.s32 into 64 bits is apart
            value = value.astype(BITS[NP[kind]().itemsize])
        value = value.view(NP[kind])
        if NP[kind]().itemsize * 8 < s.width(a[0]):
            value = value.astype(np.int64 if kind[0] == "s" else np.uint64)
        return s.put(a[0], value[0], mask)
    parts = _vector(a[0])
    who = s.lanes(mask)
    raw = NP["u16" if kind == "bf16" else kind]
    if "global" in op:
        at = np.broadcast_to(s.get(base, "u64"), (s.n,))[who] + U64(offset)
        found = s.memory.load(at, raw, len(parts), np.arange(s.n)[who], i.text)
    elif any(x.startswith("shared") for x in op):
        at = (np.broadcast_to(s.get(base, "u32"), (s.n,))[who].astype(np.int64) + offset).astype(
            np.uint32
        )
        size = raw().itemsize
        s.shared.check(s.cta[who], at, size * len(parts), s.thread[who], False, i.text)
        view = s.shared.view(BITS[size])
        found = [view[s.cta[who], at.astype(np.int64) // size + j] for j in range(len(parts))]
    else:
        raise NotImplementedError(i.text)
    for part, value in zip(parts, found):
        if raw().itemsize * 8 < s.width(part) and kind[0] == "s":
            value = value.view(raw).astype(np.int64)
        whole = np.zeros(s.n, value.dtype)
        whole[who] = value
        s.put(part, whole, mask)


@handles("st")
def _store(s: Launch, i: Instruction, op: list[str], a: list[str], mask: Any) -> None:
    kind = op[-1]
    raw = NP["u16" if kind == "bf16" else kind]
    size = raw().itemsize
    base, offset = s.address(a[0])
    who = s.lanes(mask)
    values = [np.broadcast_to(s.get(p, f"u{8 * size}"), (s.n,))[who] for p in _vector(a[1])]
    if "global" in op:
        at = np.broadcast_to(s.get(base, "u64"), (s.n,))[who] + U64(offset)
        s.memory.store(at, values, raw, np.arange(s.n)[who], i.text)
    elif any(x.startswith("shared") for x in op):
        at = (np.broadcast_to(s.get(base, "u32"), (s.n,))[who].astype(np.int64) + offset).astype(
            np.uint32
        )
        s.shared.check(s.cta[who], at, size * len(values), s.thread[who], True, i.text)
        view = s.shared.view(BITS[size])
        for j, value in enumerate(values):
            view[s.cta[who], at.astype(np.int64) // size + j] = value
    else:
        raise NotImplementedError(i.text)


def _whole_warps(s: Launch, mask: Any, what: str) -> None:
    if mask is not None and not (mask.reshape(-1, 32).all(1) | ~mask.reshape(-1, 32).any(1)).all():
        raise Fault(f"a part of a warp only: {what}")


@handles("shfl")
def _shuffle(s: Launch, i: Instruction, op: list[str], a: list[str], mask: Any) -> None:
    _whole_warps(s, mask, "shfl")
    out, pred = a[0], None
    rest = a[1:]
    if len(a) == 6:
        pred, rest = a[1], a[2:]
    x = np.broadcast_to(s.get(rest[0], "u32"), (s.n,)).reshape(-1, 32)
    b = np.broadcast_to(s.get(rest[1], "u32"), (s.n,)).reshape(-1, 32).astype(np.int64)
    c = np.broadcast_to(s.get(rest[2], "u32"), (s.n,)).reshape(-1, 32).astype(np.int64)
    if not (np.asarray(s.get(rest[3], "u32")) == U32(0xFFFFFFFF)).all():
        raise NotImplementedError(i.text)
    lane = np.arange(32)[None, :]
    seg, clamp = (c >> 8) & 31, c & 31
    most = (lane & seg) | (clamp & ~seg)
    least = lane & seg
    mode = op[2]
    if mode == "up":
        j = lane - b
        ok = j >= most
    elif mode == "down":
        j = lane + b
        ok = j <= most
    elif mode == "bfly":
        j = lane ^ b
        ok = j <= most
    else:
        j = least | (b & ~seg)
        ok = j <= most
    j = np.where(ok, j, lane)
    s.put(out, np.take_along_axis(x, j, 1).ravel(), mask)
    if pred:
        s.put(pred, ok.ravel(), mask)


@handles("redux")
def _reduce(s: Launch, i: Instruction, op: list[str], a: list[str], mask: Any) -> None:
    _whole_warps(s, mask, "redux")
    members = np.broadcast_to(s.get(a[2], "u32"), (s.n,))[s.lanes(mask)]
    if op[1:3] != ["sync", "max"] or not (members == U32(0xFFFFFFFF)).all():
        raise NotImplementedError(i.text)
    values = np.broadcast_to(s.get(a[1], op[3]), (s.n,)).reshape(-1, 32)
    s.put(a[0], np.repeat(values.max(1), 32), mask)


@handles("bar", "barrier")
def _barrier(s: Launch, i: Instruction, op: list[str], a: list[str], mask: Any) -> None:
    if "warp" in op:
        _whole_warps(s, mask, "bar.warp.sync")
        warps = np.ones(s.n // 32, bool) if mask is None else mask.reshape(-1, 32).any(1)
        s.shared.warp_epoch[warps.reshape(s.ctas, -1)] += 1
        return
    if "red" in op or "arrive" in op or len(a) > 1:
        raise NotImplementedError(i.text)
    if mask is not None:
        there = mask.reshape(s.ctas, s.T)
        if not (there.all(1) | ~there.any(1)).all():
            raise Fault("not all threads of a CTA are at a barrier")
        s.shared.cta_epoch[there.any(1)] += 1
    else:
        s.shared.cta_epoch += 1


@handles("ldmatrix", "stmatrix")
def _matrix(s: Launch, i: Instruction, op: list[str], a: list[str], mask: Any) -> None:
    """8 x 8 matrices of 16 bits: thread 8k..8k+7 of a warp say where the rows of matrix k lie."""
    _whole_warps(s, mask, op[0])
    load = op[0] == "ldmatrix"
    number = {"x1": 1, "x2": 2, "x4": 4}[next(x for x in op if x in ("x1", "x2", "x4"))]
    regs, place = (a[0], a[1]) if load else (a[1], a[0])
    regs = _vector(regs)
    base, offset = s.address(place)
    at = np.broadcast_to(s.get(base, "u32"), (s.n,)).astype(np.int64) + offset
    warps = np.arange(s.n // 32) if mask is None else np.flatnonzero(mask.reshape(-1, 32).any(1))
    at = at.reshape(-1, 32)[warps]
    cta = s.cta.reshape(-1, 32)[warps, 0]
    thread = s.thread.reshape(-1, 32)[warps]
    view = s.shared.view(np.uint16)
    if (at[:, : 8 * number] % 16).any():
        raise Fault("misaligned rows of a matrix")
    lane = np.arange(32)
    for k in range(number):
        rows = at[:, 8 * k : 8 * k + 8]  # [W, 8] bytes
        if "trans" in op:
            # thread l holds elements (2(l%4), l/4) and (2(l%4)+1, l/4)
            r0, c0 = 2 * (lane % 4), lane // 4
            place = [rows[:, r0 + e] // 2 + c0 for e in range(2)]
        else:
            place = [rows[:, lane // 4] // 2 + 2 * (lane % 4) + e for e in range(2)]
        where = np.repeat(cta, 32)
        for e in range(2):  # each thread touches its own elements, for the race check
            word = (place[e].ravel() * 2 // 4 * 4).astype(np.uint32)
            if load:
                s.shared.check(where, word, 4, thread.ravel(), False, i.text)
        if load:
            value = view[where, place[0].ravel()].astype(np.uint32) | (
                view[where, place[1].ravel()].astype(np.uint32) << U32(16)
            )
            whole = np.zeros((s.n // 32, 32), np.uint32)
            whole[warps] = value.reshape(-1, 32)
            s.put(regs[k], whole.ravel(), mask)
        else:
            value = np.broadcast_to(s.get(regs[k], "u32"), (s.n,)).reshape(-1, 32)[warps].ravel()
            if "trans" in op:
                for e in range(2):
                    view[where, place[e].ravel()] = (value >> U32(16 * e)).astype(np.uint16)
                # two threads may share a word: mark it as the warp's
                word = (place[0].ravel() * 2 // 4 * 4).astype(np.uint32)
                s.shared.check(where, word, 4, thread.ravel() // 32 * 32, True, i.text)
            else:
                word = (place[0].ravel() * 2).astype(np.uint32)
                s.shared.check(where, word, 4, thread.ravel(), True, i.text)
                view[where, place[0].ravel()] = value.astype(np.uint16)
                view[where, place[1].ravel()] = (value >> U32(16)).astype(np.uint16)


@handles("membar", "fence", "prefetch", "nop")
def _nothing(s: Launch, i: Instruction, op: list[str], a: list[str], mask: Any) -> None:
    pass


# ---- Triton --------------------------------------------------------------------------------------

REPORT: list[dict[str, Any]] = []
_MODULES: dict[str, Module] = {}


def flattened(kind: Any, value: Any, found: list[Any]) -> None:
    """The arguments that are parameters, in order: what is a constant is none."""
    if isinstance(kind, (tuple, list)):
        for k, v in zip(kind, value, strict=True):
            flattened(k, v, found)
    elif kind != "constexpr":
        found.append((kind, value))


def install(capability: int = 90, races: bool = True, verbose: bool = False) -> None:
    """Every Triton launch of this process is compiled for a capability and run here."""
    import torch
    from triton.backends.compiler import GPUTarget
    from triton.runtime import driver
    from triton.runtime.jit import JITFunction

    target = GPUTarget("cuda", capability, 32)

    class NoDevice:
        def get_current_target(self) -> Any:
            return target

        def get_current_device(self) -> int:
            return 0

        def get_current_stream(self, device: int = 0) -> int:
            return 0

        def get_device_capability(self, device: int = 0) -> tuple[int, int]:
            return capability // 10, capability % 10

        def get_device_interface(self) -> Any:
            return torch.cuda

    driver.set_active(NoDevice())
    run = JITFunction.run

    def emulated(self: Any, *arguments: Any, grid: Any, warmup: bool, **options: Any) -> Any:
        kernel = run(self, *arguments, grid=grid, warmup=True, **options)
        if warmup:
            return kernel
        ptx = kernel.asm["ptx"]
        key = hashlib.sha1(ptx.encode()).hexdigest()
        if key not in _MODULES:
            _MODULES[key] = Module(ptx)
        names = list(self.signature.parameters)
        given = {**dict(zip(names, arguments)), **{k: v for k, v in options.items() if k in names}}
        flat: list[Any] = []
        for name, kind in kernel.src.signature.items():
            flattened(kind, given[name], flat)
        values, tensors = [], []
        for kind, value in flat:
            if hasattr(value, "data_ptr"):
                values.append(value.data_ptr())
                storage = value.untyped_storage()
                tensors.append((storage.data_ptr(), storage.nbytes()))
            else:
                values.append(value)
        shape = grid(given) if callable(grid) else grid
        limits = (2**31 - 1, 65535, 65535)
        if any(int(n) > most or int(n) < 1 for n, most in zip(shape, limits)):
            raise Fault(f"a grid of {shape}")
        module = _MODULES[key]
        name = kernel.metadata.name
        count = module.run(shape, values, kernel.metadata.shared, tensors, name=name, races=races)
        REPORT.append({"kernel": name, "grid": tuple(shape), "ptx": key[:10], "count": count})
        if verbose:
            print(name, shape, sum(count.values()), file=sys.stderr, flush=True)
        return kernel

    JITFunction.run = emulated
