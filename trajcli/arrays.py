"""Array operations for NumPy and torch alike, and the checks that all rooms share.

Each works in the library of its arguments, so that calls with NumPy arrays never import torch.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import wraps
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    ParamSpec,
    Protocol,
    TypeAlias,
    TypeVar,
    overload,
)

import numpy as np

from trajcli.errors import Fault, InputError, UsageError, raise_if_any, wrong_shape
from trajcli.errors import describe as describe
from trajcli.kernels.program import Array, NumpyArray, Operands
from trajcli.system import HUGE_PAGE, PAGE, allocate_memory, free_memory

if TYPE_CHECKING:
    from torch import Tensor
    from typing_extensions import TypeIs

P = ParamSpec("P")
R = TypeVar("R")


def is_torch(value: object) -> TypeIs[Tensor]:
    """Tells whether a value is a torch tensor, without importing torch."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


_REAL = {
    *("torch.float16", "torch.bfloat16", "torch.float32", "torch.float64"),
    *(f"torch.{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)),
}


def as_array(values: Any, where: str = "input") -> Array:
    """Converts values to a NumPy array, but for tensors; raises InputError if they are not real."""
    # numpy.ma takes a fortieth of a short command to load, and another thread may be loading it:
    # nobody has masked arrays before it is loaded
    ma: Any = sys.modules.get("numpy.ma")
    masked = getattr(ma, "MaskedArray", ())
    for part in values if isinstance(values, list | tuple) else (values,):
        # a masked value still has a number in memory, which would be read as data
        if isinstance(part, masked) and ma.is_masked(part):
            found = f"{np.sum(part.mask)} of them"
            hint = "values.astype(float).filled(numpy.nan) makes them NaN"
            raise InputError("masked values", where=where, found=found, hint=hint)
    try:
        array: Array = values if is_torch(values) else np.asarray(values)
    except (TypeError, ValueError, RuntimeError) as error:
        several = isinstance(values, list | tuple) and any(map(is_torch, values))
        hint = "torch.stack(...) makes one tensor of them, which keeps gradients" if several else ""
        found = str(error).partition("\n")[0]
        raise InputError("not an array of numbers", where=where, found=found, hint=hint) from None
    kind, hint = str(array.dtype), ""
    if is_torch(array):
        torch = sys.modules["torch"]
        if array.is_nested:
            kind, hint = "a nested tensor", "tensor.to_padded_tensor(0.0)"
        elif array.layout is not torch.strided:
            kind, hint = f"a tensor of layout {array.layout}", "tensor.to_dense()"
        elif array.is_quantized:
            hint = "tensor.dequantize()"
        elif array.is_floating_point():
            hint = "tensor.float()"
        real = kind in _REAL
        # a fake tensor has a shape and no values; operations on it need its mode
        mode, fake = getattr(array, "fake_mode", None), torch._C._TorchDispatchModeKey.FAKE
        if mode and torch._C._get_dispatch_mode(fake) is not mode:
            expected = "a call within it: with tensor.fake_mode"
            raise UsageError("a fake tensor outside of its mode", where=where, expected=expected)
    else:
        real = array.dtype.kind in "fiu"
        if not (real or isinstance(values, np.ndarray | list | tuple)):
            kind = f"a {type(values).__name__}"
            hint = "its arrays, such as .position" if hasattr(values, "position") else ""
    if not real:
        expected = "floats or integers"
        raise InputError("not real numbers", where=where, expected=expected, found=kind, hint=hint)
    # long double: kernels and torch have none
    if not is_torch(array) and array.dtype.itemsize > 8:
        with np.errstate(over="ignore"):
            return array.astype(np.float64)
    return array


def number(value: Any, where: str) -> float:
    """Converts a number, or an array or tensor of one, to float; raises UsageError for others."""
    values = read_values(as_array(value, where), where)
    if values.size != 1:
        raise UsageError(wrong_shape(where, "one number", values.shape, what="not a number"))
    return float(values.item())


DofChoice: TypeAlias = "int | slice | Sequence[int] | Sequence[bool] | Array"
"""A choice of dofs: their numbers, a slice, or a mask [D]."""


def dof_numbers(choice: DofChoice, shape: Sequence[int], where: str) -> list[int]:
    """Lists the numbers of chosen dofs of a shape [D]; raises UsageError for wrong ones."""
    with suppress(IndexError, TypeError, ValueError):
        index = choice if isinstance(choice, slice) else np.atleast_1d(np.asarray(choice))
        empty = not isinstance(index, slice) and not index.size
        numbers: list[int] = [] if empty else np.arange(*shape)[index].tolist()
        if len(set(numbers)) == len(numbers):
            return numbers
    expected = f"numbers below D, a slice, or a mask {describe(shape)}"
    raise UsageError("no such dofs", where=where, expected=expected, found=repr(choice))


# Sizes in bytes from which the memory of an array is reused, and from which it has huge pages.
_REUSED, _LARGE = 1 << 17, 1 << 20
# The number of rows that are reduced together.
_GROUPED = 256


class Pages:
    """Memory of an array, which is reused once freed because the system clears new pages.

    Mode acceleration on [4000, 30, 7] has outputs of 3.3 MiB each. It takes 0.7 ms in reused pages,
    1.5 ms in new pages of 2 MiB and 9 ms in new pages of 4 KiB.
    """

    spare: ClassVar[list[tuple[int, int]]] = []
    """Sizes and addresses of freed memory, oldest first."""
    most_spare: ClassVar[int] = 1 << 26

    def __init__(self, size: int) -> None:
        page = HUGE_PAGE if size >= _LARGE else PAGE
        self.size = -(-size // page) * page
        for block in reversed(self.spare):
            with suppress(ValueError):  # another thread took the block in between
                if block[0] == self.size:
                    self.spare.remove(block)
                    self.address = block[1]
                    break
        else:
            self.address = allocate_memory(self.size)
        where = self.address, False
        self.__array_interface__ = {"shape": (size,), "typestr": "|u1", "data": where, "version": 3}

    def __del__(self, free: Callable[[int], None] = free_memory) -> None:
        self.spare.append((self.size, self.address))
        while sum(size for size, _ in self.spare) > self.most_spare:
            free(self.spare.pop(0)[1])


def empty_arrays(
    shape: Sequence[int], dtype: str, device: str | None, selected: Sequence[bool]
) -> list[Any]:
    """Allocates arrays, None where not selected: NumPy without a device, else tensors."""
    if device not in (None, "cpu"):
        torch = sys.modules["torch"]
        options = {"dtype": getattr(torch, dtype), "device": device}
        return [torch.empty(tuple(shape), **options) if take else None for take in selected]
    size = math.prod(shape) * (8 if dtype == "float64" else 4)

    def allocate() -> Any:
        # malloc reuses small blocks by itself, and maps larger ones anew each time
        if size < _REUSED:
            return np.empty(shape, dtype)
        return np.asarray(Pages(size)).view(dtype).reshape(shape)

    arrays = [allocate() if take else None for take in selected]
    if device is None:
        return arrays
    from_numpy = sys.modules["torch"].from_numpy
    return [x if x is None else from_numpy(x) for x in arrays]


def copy_overlapping(operands: Operands, outputs: Sequence[Any]) -> Operands:
    """Copies the operands that share memory with the outputs."""
    # a kernel that writes there may still read them for other trajectories
    memory = [x for x in outputs if x is not None]
    tensors = [x for x in memory if is_torch(x)]
    stores = {x.untyped_storage().data_ptr() for x in tensors}
    arrays: list[Any] = [operands.actions, *operands.start, *operands.goal]
    for k, x in enumerate(arrays):
        if x is None:
            continue
        if is_torch(x):
            # tensors made of one NumPy array have a storage each: compare addresses, too
            address = x.data_ptr()
            overlaps = x.untyped_storage().data_ptr() in stores or any(
                y.data_ptr() <= address < y.data_ptr() + y.nbytes for y in tensors
            )
            arrays[k] = x.clone() if overlaps else x
        elif any(np.may_share_memory(x, y) for y in memory):
            arrays[k] = x.copy()
    goal = 1 + len(operands.start)
    start, end = tuple(arrays[1:goal]), tuple(arrays[goal:])
    return operands._replace(actions=arrays[0], start=start, goal=end)


def float64(values: Array) -> Array:
    return values.double() if is_torch(values) else np.asarray(values, dtype=np.float64)


def cast(values: Array, dtype: str) -> Array:
    if is_torch(values):
        return values.to(getattr(sys.modules["torch"], dtype))
    return values.astype(dtype)


def concatenate(arrays: Sequence[Array], axis: int) -> Array:
    if is_torch(arrays[0]):  # vmap can map over torch.cat, and not over torch.concatenate
        joined: Array = sys.modules["torch"].cat(list(arrays), axis)
        return joined
    return np.concatenate(list(arrays), axis)


class Library(Protocol):
    """The functions that NumPy and torch have in common."""

    linalg: Library

    def __getattr__(self, name: str, /) -> Callable[..., Array]: ...


def library(values: Array) -> Library:
    """Finds the module of an array: torch for a tensor, else NumPy."""
    return sys.modules["torch"] if is_torch(values) else np


def interleave(even: Array, odd: Array) -> Array:
    """Joins the even and the odd rows of [..., T, n] into all rows."""
    count = odd.shape[-2]
    pairs = library(odd).stack([even[..., :count, :], odd], -2)
    # there may be one even row more
    rows = pairs.reshape(*odd.shape[:-2], 2 * count, odd.shape[-1])
    return concatenate([rows, even[..., count:, :]], -2)


def elapsed(steps: Array) -> Array:
    """Sums steps [b, h] up to each row, from 0 on: [b, h + 1]."""
    # times 0: zeros on the device, and in the graph, of the steps
    if is_torch(steps):
        return concatenate([steps[:, :1] * 0.0, steps.cumsum(1)], 1)
    times = np.zeros((len(steps), steps.shape[1] + 1))
    np.cumsum(steps, 1, out=times[:, 1:])
    return times


def differences(stamps: Array) -> Array:
    """Subtracts neighbouring time stamps [b, T], integers as integers: float64 [b, T − 1]."""
    wide = widen(stamps)
    # infinite stamps give NaN, and are reported as not finite
    with np.errstate(invalid="ignore"):
        return float64(wide[:, 1:] - wide[:, :-1])


def seconds(stamps: Array, *others: Array) -> list[Array]:
    """Converts time stamps [b, T], and other times on their axis, to float64."""
    # integers, such as nanoseconds since 1970, are counted from the first stamp of each trajectory,
    # because float64 would round them
    first: Any = 0 if "float" in str(stamps.dtype) else widen(stamps)[:, :1]
    return [float64(widen(times) - first) for times in (stamps, *others)]


def widen(stamps: Array) -> Array:
    """Converts steps or time stamps to float64, or integers to int64."""
    if is_torch(stamps):
        return stamps.double() if stamps.is_floating_point() else stamps.long()
    return stamps.astype(np.float64 if stamps.dtype.kind == "f" else np.int64)


def largest(array: Any) -> float:
    """Finds the largest magnitude in a NumPy array: NaN if it holds one, 0 if it is empty."""
    if array.size == 0:
        return 0.0
    # abs would copy the array
    with np.errstate(invalid="ignore"):
        high, low = float(array.max()), float(array.min())
    return low if math.isnan(low) else max(high, -low)


def reduce_rows(function: np.ufunc, values: Array) -> Array:
    """Takes the minimum or maximum over rows of NumPy values [b, T, D]: [b, D], NaN if none."""
    count, rows, dofs = values.shape
    if not rows:
        return np.full((count, dofs), np.nan)
    # NumPy is slow along an axis of few dofs. Long trajectories, which may be mapped and must not
    # be copied, are first reduced in groups of rows; what is left is folded in halves.
    if rows > 2 * _GROUPED:
        end = rows // _GROUPED * _GROUPED
        grouped = function.reduce(values[:, :end].reshape(count, -1, _GROUPED * dofs), 1)
        values = np.concatenate([grouped.reshape(count, _GROUPED, dofs), values[:, end:]], 1)
    while (rows := values.shape[1]) > 1:
        half = (rows + 1) // 2  # the halves of an odd number share a row
        values = function(values[:, :half], values[:, rows - half :])
    return values[:, 0]


def is_finite(tensors: Sequence[Any]) -> bool:
    """Tells whether tensors on one device hold neither NaN nor Inf."""
    # one kernel reads each tensor once, and the host waits once
    floats = [x.detach() for x in tensors if x.is_floating_point() and x.numel()]
    # NaN is both the minimum and the maximum of a tensor that holds one
    bounds = [bound for x in floats for bound in x.aminmax()]
    return not bounds or bool(sys.modules["torch"].stack(bounds).cpu().isfinite().all())


def arange(first: int, last: int, like: Array) -> Array:
    """Counts from first to last − 1 in float64, in the library and on the device of ``like``."""
    if is_torch(like):
        torch = sys.modules["torch"]
        numbers: Array = torch.arange(first, last, dtype=torch.float64, device=like.device)
        return numbers
    return np.arange(first, last, dtype=np.float64)


def replace_dofs(values: Array, dofs: Sequence[int], new: Any) -> Array:
    """Replaces dofs of values [B, T, D] by ``new`` [B, T, n], in NumPy arrays in place."""
    if is_torch(values):
        torch = sys.modules["torch"]  # a copy, so that gradients pass
        index = torch.tensor(list(dofs), dtype=torch.int64, device=values.device)
        return values.index_copy(2, index, new.to(values.dtype))
    values[..., list(dofs)] = new
    return values


@overload
def columns(values: Tensor, begin: int, count: int) -> Tensor: ...
@overload
def columns(values: Array, begin: int, count: int) -> Array: ...
def columns(values: Array, begin: int, count: int) -> Array:
    # not even a full slice: in torch that is an alias, which vmap refuses
    if values.shape[1] == count:
        return values
    return values.narrow(1, begin, count) if is_torch(values) else values[:, begin : begin + count]


def is_traced() -> bool:
    """Tells whether torch records operations instead of computing, so that there are no values."""
    # within functionalize the memory of a tensor holds whatever was there
    torch = sys.modules["torch"]
    if torch.compiler.is_compiling():
        return True
    core = torch._C
    if core._get_tracing_state() or core._dispatch_tls_is_dispatch_key_included(
        core.DispatchKey.PreDispatch
    ):
        return True
    modes = core._TorchDispatchModeKey.__members__.values()
    if core._len_torch_dispatch_stack() and any(map(core._get_dispatch_mode, modes)):
        return True
    if not core._are_functorch_transforms_active():
        return False
    transforms = torch._functorch.pyfunctorch.retrieve_all_functorch_interpreters()
    return any(x.key() == core._functorch.TransformType.Functionalize for x in transforms)


def eager(function: Callable[P, R]) -> Callable[P, R]:
    """Makes torch.compile leave its graph for a function that reads values."""
    # Dynamo that has given up a caller tries each function that the caller calls, so the function
    # is hidden from it as soon as Dynamo is loaded.
    hidden: list[Callable[P, R]] = []

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        dynamo = sys.modules.get("torch._dynamo")
        if dynamo is None:
            return function(*args, **kwargs)
        if not hidden:
            hidden.append(dynamo.disable(function))
        return hidden[0](*args, **kwargs)

    return call


def readable(values: Array) -> bool:
    """Tells whether values can be read: not within vmap, a capture or a trace."""
    return not is_torch(values) or _in_memory(values) is not None


def _in_memory(values: Any) -> Any:
    """Finds the tensor in memory that holds the values, in torch.func the innermost; else None."""
    # reading would end a capture, and make constants of values while operations are traced
    if values.is_meta or is_capturing(values.device) or is_traced():
        return None
    functorch = sys.modules["torch"]._C._functorch
    while functorch.is_gradtrackingtensor(values):
        values = functorch.get_unwrapped(values)
    try:
        return values if values.data_ptr() or not values.numel() else None
    except RuntimeError:
        return None


def to_numpy(values: Array, where: str = "a tensor") -> Any:
    """Converts values to NumPy, as a view where possible; raises UsageError if they have none."""
    if not is_torch(values):
        return np.asarray(values)
    tensor = _in_memory(values)
    if tensor is None:
        raise UsageError(
            "values that cannot be read",
            where=where,
            expected="a tensor in memory",
            found=f"{type(values).__name__} on {values.device}",
            hint="the call outside torch.func.vmap, make_fx, torch.export and CUDA graphs",
        )
    # within a transform, operations would wrap the values again
    with sys.modules["torch"]._C._DisableFuncTorch():
        tensor = tensor.detach().cpu().resolve_neg()
        return (tensor.float() if str(tensor.dtype) == "torch.bfloat16" else tensor).numpy()


def read_values(values: Array, where: str) -> Any:
    """Converts values to NumPy; raises UsageError where a gradient would be lost."""
    array = to_numpy(values, where)
    if has_gradient(values):
        what, hint = "a gradient that would be lost", f"{where}.detach()"
        hint = hint if where.isidentifier() else ".detach()"
        raise UsageError(what, where=where, expected="values without one", hint=hint)
    return array


def has_gradient(values: Array) -> bool:
    """Tells whether values are a tensor with a gradient, or with a tangent of forward mode."""
    if not is_torch(values):
        return False
    torch = sys.modules["torch"]
    # forward mode carries derivatives as tangents, which requires_grad does not show
    dual = torch.autograd.forward_ad.unpack_dual(values).tangent is not None
    return bool(dual or (values.requires_grad and torch.is_grad_enabled()))


def in_one_library(arrays: Mapping[str, Array]) -> dict[str, Array]:
    """Converts arrays by name to tensors if one of them is a tensor."""
    like = next(filter(is_torch, arrays.values()), next(iter(arrays.values())))
    return {name: match_library(x, like, name) for name, x in arrays.items()}


_SMALL_BYTES = 1 << 12
_CACHE_SIZE = 256
# Small arrays on devices, by their bytes.
_cache: dict[tuple[Any, ...], Any] = {}
# Numbers on devices, by their bytes and by the stream that filled them.
_numbers: dict[tuple[Any, int], Any] = {}
# Tensors that captured graphs read, by identity: a graph may be replayed at any time.
_captured: dict[int, Any] = {}


def is_capturing(device: Any) -> bool:
    """Tells whether a CUDA graph is capturing the current stream of a torch device."""
    cuda = sys.modules["torch"].cuda
    return device.type == "cuda" and bool(cuda.is_current_stream_capturing())


def keep_for_graphs(tensors: Any) -> None:
    """Keeps tensors until the process ends, because the graph being captured reads them."""
    _captured[id(tensors)] = tensors


def current_stream(device: Any) -> int:
    """Finds the address of a CUDA device's current stream."""
    torch = sys.modules["torch"]
    # a device without an index is the current one
    index = torch.device(device).index
    index = torch.cuda.current_device() if index is None else index
    return int(torch._C._cuda_getCurrentRawStream(index))


def to_torch(values: Array, device: str) -> Any:
    """Converts values to a tensor on a device, which may be cached: do not write into it.

    Raises UsageError for an array that would have to be sent while a CUDA graph is captured.
    """
    import torch

    if is_torch(values):
        return values.to(device).resolve_neg()
    array = np.asarray(values)
    if array.dtype.itemsize > 8 or array.dtype.kind not in "fiu":
        array = array.astype(np.float64)
    # torch takes only the byte order of the machine; its older versions have no unsigned integers
    # of more than a byte
    array = np.ascontiguousarray(array, array.dtype.newbyteorder("="))
    if array.dtype.kind == "u" and array.dtype.itemsize > 1:
        array = array.astype(np.float64)
    if not array.flags.writeable:  # torch would warn
        array = array.copy()
    if not device.startswith("cuda") or is_traced():  # fake tensors must not be cached
        return torch.from_numpy(array).to(device)
    # Sending makes the host wait and cannot be captured in a graph: one number is filled in by the
    # device, and small arrays are sent once.
    if array.size == 1:
        return _filled(array, device)
    key = (array.tobytes(), array.dtype.str, array.shape, device)
    small = array.nbytes <= _SMALL_BYTES
    captured = torch.cuda.is_current_stream_capturing()
    if small and key in _cache:
        if captured:
            keep_for_graphs(_cache[key])
        return _cache[key]
    if captured:
        raise UsageError(
            "an array of the host cannot be sent to a device while a graph is captured",
            where=f"an array of shape {list(array.shape)}, {array.nbytes} bytes",
            expected=f"a tensor on the device, or at most {_SMALL_BYTES} bytes, sent before",
            hint="one call with the same arguments just before the capture",
        )
    with torch.inference_mode(False):  # autograd cannot use tensors made in inference mode
        sent = torch.from_numpy(array).to(device)
    if small:
        if len(_cache) >= _CACHE_SIZE:
            # other streams may still be reading the tensors
            torch.cuda.synchronize(device)
            _cache.clear()
        _cache[key] = sent
    return sent


def _filled(array: Any, device: str) -> Any:
    """Fills one number into a tensor on a CUDA device, so that the host does not wait."""
    # The tensor is cached for the stream that fills it. A graph may use that of any stream, because
    # captures begin when all streams are idle.
    torch = sys.modules["torch"]
    number = array.tobytes(), array.dtype.str, array.shape, device
    captured = torch.cuda.is_current_stream_capturing()
    if captured:
        filled = next((x for (key, _), x in list(_numbers.items()) if key == number), None)
    else:
        filled = _numbers.get((number, current_stream(device)))
    if captured and filled is not None:
        keep_for_graphs(filled)
    if filled is None:
        kind = torch.from_numpy(array).dtype
        with torch.inference_mode(False):  # autograd cannot use tensors made in inference mode
            filled = torch.full(array.shape, array.item(), dtype=kind, device=device)
        if not captured:  # only replays fill a captured tensor
            if len(_numbers) >= _CACHE_SIZE:
                oldest, *_ = list(_numbers)  # one step: other threads may call meanwhile
                _numbers.pop(oldest, None)
            _numbers[number, current_stream(device)] = filled
    return filled


def match_library(values: Array, like: Array, where: str = "a tensor") -> Array:
    """Converts values to the library and device of ``like``; see ``read_values``."""
    matched: Array
    matched = to_torch(values, str(like.device)) if is_torch(like) else read_values(values, where)
    return matched


def output_dtype(kind: Any) -> str:
    """Chooses the dtype of outputs: float32 for float32 and half precision, else float64."""
    floats = kind.kind == "f" if isinstance(kind, np.dtype) else kind.is_floating_point
    return "float32" if floats and kind.itemsize <= 4 else "float64"


def require_counts(least: int = 1, **counts: Any) -> None:
    """Raises UsageError unless all values are whole numbers of at least ``least``."""
    expected = f"a whole number >= {least}"
    faults = [
        Fault("not a count", where=name, expected=expected, found=repr(value))
        for name, value in counts.items()
        if not isinstance(value, (int, np.integer)) or isinstance(value, bool) or value < least
    ]
    raise_if_any(faults, UsageError)


def time_stamp_shape_faults(
    shape: Sequence[int], batch: int, rows: int, where: object
) -> list[Fault]:
    """Checks that the shape of time stamps fits [batch, rows]."""
    if tuple(shape) in ((rows,), (batch, rows), (1, rows)):
        return []
    expected, what = f"one per row: [{rows}] or [{batch}, {rows}]", "wrong number of time stamps"
    hint = "one dt for all; integrate has a row more than actions (recorded rates: as many), "
    hint += "differentiate as many as positions"
    return [wrong_shape(where, expected, shape, what=what, hint=hint)]


def step_faults(
    steps: NumpyArray, where: object, first_trajectory: int = 0, first_step: int = 0
) -> list[Fault]:
    """Checks that steps, NumPy [b, h] or one number, are positive and finite."""
    if steps.min(initial=1.0) > 0.0 and steps.max(initial=1.0) < np.inf:  # both false for NaN
        return []
    # the first of them is named by its number in the file
    wrong = np.argwhere(~(np.isfinite(steps) & (steps > 0)))
    first = wrong[0] + ((0, first_step) if steps.ndim == 2 else first_step)
    axes = ("trajectory", "step") if steps.ndim == 2 else ("step",) if steps.ndim else ()
    step = repr(float(steps[tuple(wrong[0])]))
    step += f" ({len(wrong)} such steps)" if len(wrong) > 1 else ""
    what, expected = "a step that is not positive and finite", "dt > 0, in seconds"
    where = indexed(where, axes, first, steps.shape, first_trajectory)
    return [Fault(what, where=where, expected=expected, found=step)]


def time_stamp_faults(
    times: Array, where: object, first_trajectory: int = 0, row_numbers: Array | None = None
) -> list[Fault]:
    """Checks that time stamps [T] or [B, T] are finite and increase; names rows of the file."""
    values = to_numpy(times)
    table = values[None] if values.ndim == 1 else values
    gaps = differences(table)
    faults = []
    # a gap is named by the row after it
    for what, wrong, first_row, hint in (
        ("time stamps that are not finite", ~np.isfinite(table), 0, ""),
        ("time stamps that repeat", gaps == 0, 1, "leave repeated rows out"),
        ("time stamps that go back", gaps < 0, 1, "sort the rows by time, or split the recording"),
    ):
        indices = np.argwhere(wrong)
        if not len(indices):
            continue
        stamps = []
        for trajectory, row in (indices[:3] + np.array([0, first_row])).tolist():
            number = row if row_numbers is None else int(row_numbers[row])
            label = indexed("", ("trajectory",), (trajectory,), table.shape[:1], first_trajectory)
            stamp = f"row {number} ({float(table[trajectory, row])!r})"
            stamps.append(f"{label}, {stamp}" if label else stamp)
        more = f" and {len(indices) - 3} more" if len(indices) > 3 else ""
        shell = ""
        if what.endswith("repeat"):
            shell = f"{hint}, as trajcli differentiate --repeated-times drop does"
            if rate := _row_rate(table[indices[0, 0]]):
                coarse = "if a coarser clock stamped the rows; else "
                hint, shell = f"dt={1 / rate:g} {coarse}{hint}", f"--rate {rate:g} {coarse}{shell}"
        found = f"{len(indices)} such: " + "; ".join(stamps) + more
        expected = "strictly increasing seconds"
        fault = Fault(what, where=where, expected=expected, found=found, hint=hint, shell=shell)
        faults.append(fault)
    return faults


def _row_rate(stamps: Array) -> float | None:
    """Estimates the rate in Hz of rows whose stamps [T] repeat because their clock is coarse."""
    # few stamps repeat where rows were logged twice
    changes = np.flatnonzero(np.diff(stamps)) + 1
    if not 2 < len(changes) < 0.75 * len(stamps):
        return None
    rows, span = np.ptp(changes), np.ptp(stamps[changes])
    # at an even rate, no stamp is off by more than a few ticks of the clock
    late = np.ptp(stamps - np.arange(len(stamps)) * (span / rows))
    if not late < 4 * np.diff(stamps[changes]).min():
        return None
    # rounding may move a change of the stamp by one row: take the roundest rate within that
    rates = (float(f"{rows / span:.{digits}g}") for digits in range(1, 18))
    return next(rate for rate in rates if abs(rate * span - rows) < 1.5)


def nonfinite_fault(
    values: Array,
    where: str,
    axes: Sequence[str],
    first_trajectory: int = 0,
    row_numbers: Array | None = None,
) -> Fault | None:
    """Checks that an array is finite; the fault names the first index in the file that is not."""
    if not readable(values):
        return None
    if is_torch(values) and values.is_cuda and is_finite([values]):
        return None  # the common case copies nothing to the host
    array = to_numpy(values)
    if array.dtype.kind != "f" or np.isfinite(largest(array)):
        return None
    finite = np.isfinite(array)
    wrong = np.argwhere(~finite)
    first = list(wrong[0])
    if row_numbers is not None and "step" in axes:
        first[axes.index("step")] = int(row_numbers[first[axes.index("step")]])
    count = f" ({len(wrong)} values that are not finite)" if len(wrong) > 1 else ""
    effect = "computes with it; it stays within its trajectory and dof"
    return Fault(
        "NaN or Inf",
        where=indexed(where, axes, first, array.shape, first_trajectory),
        expected="finite numbers",
        found=f"{float(array[tuple(wrong[0])])}{count}",
        hint=f"allow_nonfinite=True {effect}",
        shell=f"--allow-nonfinite {effect}",
    )


def indexed(
    where: object,
    axes: Sequence[str],
    index: Iterable[int],
    shape: Sequence[int],
    first_trajectory: int,
) -> str:
    """Formats an index as "where, trajectory 3, step 17, dof 2", without axes of length 1."""
    texts = [str(where)] if where else []
    for axis, i, size in zip(axes, index, shape, strict=True):
        offset = first_trajectory if axis == "trajectory" else 0
        if size > 1 or offset or (axis == "trajectory" and len(axes) == 3):
            texts.append(f"{axis} {int(i) + offset}")
    return ", ".join(texts)


def state_count_fault(role: str, where: str, batch: int, shape: Sequence[int]) -> Fault:
    """Makes the fault of states [S, D] where S is neither the number of trajectories nor 1."""
    option = " (trajcli integrate --start-index FILE:DATASET)" if role == "start" else ""
    what = f"{role} states and trajectories differ in number (B)"
    expected = f"[{batch}, {shape[1]}], or one for all: [{shape[1]}]"
    hint = f"{role}_index= [B] says which each trajectory uses"
    shell = f"{role}_index [B] next to them{option} says which each trajectory uses"
    return wrong_shape(where, expected, shape, what=what, hint=hint, shell=shell)


def index_shape_faults(where: str, batch: int, index: Any) -> list[Fault]:
    """Checks that an index of states has an integer per trajectory."""
    kind = str(index.dtype).removeprefix("torch.")
    if tuple(index.shape) == (batch,) and "int" in kind:
        return []
    expected, found = f"integers [{batch}]", f"{kind} {describe(index.shape)}"
    return [Fault("wrong shape or type", where=where, expected=expected, found=found)]
