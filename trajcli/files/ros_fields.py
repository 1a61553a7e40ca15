"""The numbers in one ROS message: its fields, and where its bytes have them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Arrays = dict[str, npt.NDArray[Any]]
Bytes = npt.NDArray[np.uint8]

_SCALARS = (
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32"),
    *("float32", "float64"),
)


def fields_of(message: Any, log: int, path: str = "") -> Arrays:
    """The numbers [D] of all fields of a message that have any, or of the one at a path; times,
    log_times (when it was recorded) and, if it has a header, header_times, in ns."""
    arrays = {"times": np.asarray(log), "log_times": np.asarray(log)}
    stamp = getattr(getattr(message, "header", None), "stamp", None)
    if stamp is not None:
        arrays["header_times"] = np.asarray(nanoseconds(stamp))
        arrays["times"] = arrays["header_times"] if nanoseconds(stamp) else arrays["log_times"]
    for field in [path] if path else message.__dataclass_fields__:
        values = _numbers(_at(message, field))
        if values.size and field != "header":
            arrays[field] = values
    return arrays


def joints_of(message: Any) -> tuple[str, ...]:
    """The names of the joints that a message is of."""
    names = getattr(message, "name", ())
    return tuple(names) if isinstance(names, list) else ()


def nanoseconds(stamp: Any) -> int:
    """A stamp or duration in ns."""
    return int(stamp.sec) * 10**9 + int(stamp.nanosec)


def _at(message: Any, path: str) -> Any:
    for part in path.split("."):
        message = getattr(message, part, "")
    return message


def _numbers(value: Any) -> npt.NDArray[Any]:
    """The numbers of a field [D], of a message within it all; none of bytes and of texts."""
    if hasattr(value, "__dataclass_fields__"):
        parts = [_numbers(getattr(value, name)) for name in value.__dataclass_fields__]
        return np.concatenate(parts) if parts else np.empty(0)
    values = np.asarray(value if isinstance(value, (float, int, np.ndarray)) else ())
    return values.reshape(-1) if _counts(values.dtype) else np.empty(0)


def _counts(dtype: np.dtype[Any]) -> bool:
    """Whether values are numbers, not bytes or flags."""
    return dtype.kind in "fiu" and dtype.itemsize > 1


class _Leaf(NamedTuple):
    """Numbers within a message: where its bytes have them, and the type that arrays get."""

    begin: int
    end: int
    stored: np.dtype[Any]
    dtype: np.dtype[Any]

    def of(self, table: Bytes) -> npt.NDArray[Any]:
        """The numbers [n, D] of messages [n, size]."""
        place = np.ascontiguousarray(table[:, self.begin : self.end])
        return place.view(self.stored).astype(self.dtype, copy=False)


class Template:
    """Messages that differ in numbers alone, read by where their bytes have these."""

    def __init__(
        self, message: Any, raw: bytes, serialize: Callable[[Any], Any], types: Mapping[str, Any]
    ) -> None:
        self.size, self.joints = len(raw), joints_of(message)
        self._fields = list(message.__dataclass_fields__)
        self._leaves = dict(_leaves(message, types, lambda: serialize(message)))
        varies = np.zeros(len(raw), bool)
        for leaf in self._leaves.values():
            varies[leaf.begin : leaf.end] = True
        self._fixed = np.flatnonzero(~varies)
        self._bytes = np.frombuffer(raw, np.uint8)[self._fixed]

    def fits(self, table: Bytes) -> npt.NDArray[np.bool_]:
        """Which of the messages [n, size] are such."""
        return np.asarray((table[:, self._fixed] == self._bytes).all(1))

    def arrays(self, table: Bytes, logs: npt.NDArray[np.int64], path: str = "") -> Arrays:
        """What :func:`fields_of` gives of each, [n, D]."""
        arrays = {"times": logs, "log_times": logs}
        stamp = [self._leaves.get(f"header.stamp.{name}") for name in ("sec", "nanosec")]
        if stamp[0] is not None and stamp[1] is not None:
            stamps = (stamp[0].of(table) * 10**9 + stamp[1].of(table))[:, 0]
            arrays["header_times"] = stamps
            arrays["times"] = np.where(stamps == 0, logs, stamps)
        for field in [path] if path else self._fields:
            parts = [
                leaf.of(table)
                for name, leaf in self._leaves.items()
                if f"{name}.".startswith(f"{field}.") and _counts(leaf.dtype)
            ]
            if parts and field != "header":
                arrays[field] = np.concatenate(parts, axis=1)
        return arrays


def _leaves(
    message: Any, types: Mapping[str, Any], serialize: Callable[[], Any], prefix: str = ""
) -> Iterator[tuple[str, _Leaf]]:
    """The numbers of a message by their paths. Where they lie shows in which bytes change with
    them."""
    kinds = dict(types[message.__msgtype__][1])
    for name in message.__dataclass_fields__:
        value, path = getattr(message, name), f"{prefix}{name}"
        if hasattr(value, "__dataclass_fields__"):
            yield from _leaves(value, types, serialize, f"{path}.")
            continue
        array = isinstance(value, np.ndarray) and value.dtype.kind in "fiub" and value.size > 0
        kind = str(kinds[name][1][0]) if name in kinds else ""
        if not array and (not isinstance(value, (int, float)) or kind not in _SCALARS):
            continue
        stored = value.dtype if array else np.dtype(kind)
        size, written = stored.itemsize * np.size(value), []
        for byte in (b"\0", b"\1"):
            numbers = np.frombuffer(byte * size, stored)
            setattr(message, name, numbers if array else numbers[0].item())
            written.append(np.frombuffer(bytes(serialize()), np.uint8))
        setattr(message, name, value)
        begin = int(np.argmax(written[0] != written[1]))
        yield path, _Leaf(begin, begin + size, stored, stored if array else np.asarray(value).dtype)
