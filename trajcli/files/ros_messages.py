"""What messages of a ROS topic hold: stamps, joints, the numbers of every field. No files."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Arrays = dict[str, npt.NDArray[Any]]
Recorded = Sequence[tuple[Any, int, bytes]]
"""What rosbags gives of messages: the connection, when they were recorded in ns, their bytes."""

_POINTS = {"positions": "position", "velocities": "velocity", "accelerations": "acceleration"}


class Leaf(NamedTuple):
    """Numbers within a message: where its bytes have them, and the type that arrays get."""

    begin: int
    end: int
    stored: np.dtype[Any]
    dtype: np.dtype[Any]


class Decoder:
    """Makes arrays of the messages of a topic. Messages that differ from the first in numbers alone
    are read by where it has these, others are deserialized one by one.

    ``whole``: the joints come in turns, or messages are trajectories, so that only all messages
    together are arrays.
    """

    def __init__(
        self,
        first: Recorded,
        deserialize: Callable[[bytes], Any],
        serialize: Callable[[Any], Any],
        types: Mapping[str, Any],
    ) -> None:
        """first: the first messages of the topic. types: the fields of all types by name."""
        messages = [deserialize(raw) for _, _, raw in first]
        like, raw = messages[0], first[0][2]
        self.size, self._deserialize = len(raw), deserialize
        self._joints, self._fields = _joints(like), list(like.__dataclass_fields__)
        self.whole = _is_plan(like) or len(set(map(_joints, messages))) > 1
        self._leaves = {} if self.whole else dict(_leaves(like, types, lambda: serialize(like)))
        varies = np.zeros(len(raw), bool)
        for leaf in self._leaves.values():
            varies[leaf.begin : leaf.end] = True
        self._fixed = np.flatnonzero(~varies)
        self._fixed_bytes = np.frombuffer(raw, np.uint8)[self._fixed]
        self._alike = not self.whole and _same(
            self._at_once(first[:1], ""), _decode([(first[0][1], like)], "")
        )

    def decode(self, messages: Recorded, path: str = "") -> Arrays:
        """Arrays [T, D] of all fields, or of the one at a path, with times and log_times [T].

        Raises ValueError for messages that make no arrays together.
        """
        arrays = self._at_once(messages, path) if self._alike else None
        if arrays is None:
            arrays = _decode(((log, self._deserialize(raw)) for _, log, raw in messages), path)
        if not self.whole and tuple(arrays.get("joint_names", ())) != self._joints:
            raise ValueError("messages that differ in their joints")
        return arrays

    def _at_once(self, messages: Recorded, path: str) -> Arrays | None:
        """The same of messages that are like the first; None of others."""
        size = self.size
        if any(len(raw) != size for _, _, raw in messages):
            return None
        table = np.frombuffer(b"".join(raw for _, _, raw in messages), np.uint8).reshape(-1, size)
        if (table[:, self._fixed] != self._fixed_bytes).any():
            return None
        logs = np.array([log for _, log, _ in messages], np.int64)
        arrays = {"times": logs, "log_times": logs}
        stamp = [_numbers_at(table, self._leaves.get(f"header.stamp.{name}")) for name in _STAMP]
        if stamp[0].size:
            stamps = (stamp[0] * 10**9 + stamp[1])[:, 0]
            arrays["times"] = np.where(stamps == 0, logs, stamps)
        for field in [path] if path else self._fields:
            parts = [
                _numbers_at(table, leaf)
                for name, leaf in self._leaves.items()
                if f"{name}.".startswith(f"{field}.") and _counts(leaf.dtype)
            ]
            if parts and field != "header":
                arrays[field] = np.concatenate(parts, axis=1)
        return arrays | ({"joint_names": np.array(self._joints)} if self._joints else {})


_STAMP = ("sec", "nanosec")


def _numbers_at(table: npt.NDArray[np.uint8], leaf: Leaf | None) -> npt.NDArray[Any]:
    """The numbers [T, D] of a place in the bytes of messages [T, size]."""
    if leaf is None:
        return np.empty((len(table), 0))
    place = np.ascontiguousarray(table[:, leaf.begin : leaf.end])
    return place.view(leaf.stored).astype(leaf.dtype, copy=False)


def _leaves(
    message: Any, types: Mapping[str, Any], serialize: Callable[[], Any], prefix: str = ""
) -> Iterator[tuple[str, Leaf]]:
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
        yield path, Leaf(begin, begin + size, stored, stored if array else np.asarray(value).dtype)


_SCALARS = (
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32"),
    *("float32", "float64"),
)


def _decode(messages: Iterable[tuple[int, Any]], path: str) -> Arrays:
    """The numbers of messages, of all fields or of the one at a path."""
    columns: dict[str, list[Any]] = {"times": [], "log_times": []}
    arrays: Arrays = {}
    joints: list[tuple[str, ...]] = []
    for number, (log, message) in enumerate(messages):
        if _is_plan(message):
            arrays |= {f"{number}/{name}": part for name, part in _planned(message).items()}
            continue
        stamp = getattr(getattr(message, "header", None), "stamp", None)
        columns["times"].append((stamp and _nanoseconds(stamp)) or log)
        columns["log_times"].append(log)
        joints.append(_joints(message))
        for field in [path] if path else message.__dataclass_fields__:
            values = _numbers(_at(message, field))
            if values.size and field != "header":
                columns.setdefault(field, []).append(values)
    whole = {name: rows for name, rows in columns.items() if len(rows) == len(joints) > 0}
    if len(set(joints)) > 1:
        return _in_turns(joints, whole)
    for name, rows in whole.items():
        if len({np.size(row) for row in rows}) > 1:
            raise ValueError(f"a different number of values in the messages of {name}")
        arrays[name] = np.stack(rows)
    return arrays | ({"joint_names": np.array(joints[0])} if joints and joints[0] else {})


def _is_plan(message: Any) -> bool:
    return hasattr(message, "points") and hasattr(message, "joint_names")


def _same(one: Arrays | None, two: Arrays) -> bool:
    """Whether arrays are equal, and have the same names, in the same order."""
    return (
        one is not None
        and list(one) == list(two)
        and all(
            one[name].shape == values.shape
            and one[name].tobytes() == values.astype(one[name].dtype).tobytes()
            for name, values in two.items()
        )
    )


def _joints(message: Any) -> tuple[str, ...]:
    """The names of the joints that a message is of."""
    names = getattr(message, "name", ())
    return tuple(names) if isinstance(names, list) else ()


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


def _nanoseconds(stamp: Any) -> int:
    return int(stamp.sec) * 10**9 + int(stamp.nanosec)


def _in_turns(joints: list[tuple[str, ...]], columns: dict[str, list[Any]]) -> Arrays:
    """Arrays [T, joints] of messages that have some joints each; T are those of the joints that
    come most often, from when all have come."""
    names = list(dict.fromkeys(name for one in dict.fromkeys(joints) for name in one))
    places = {one: [names.index(name) for name in one] for one in set(joints)}
    most = Counter(map(frozenset, joints)).most_common(1)[0][0]
    rows = np.array([frozenset(one) == most for one in joints])
    come = np.logical_or.accumulate([[name in one for name in names] for one in joints]).all(1)
    arrays: Arrays = {"joint_names": np.array(names)}
    for field, values in columns.items():
        if field.endswith("times"):
            arrays[field] = np.array(values)[rows & come]
            continue
        now, table = np.zeros(len(names)), np.empty((len(joints), len(names)))
        for row, (one, part) in enumerate(zip(joints, values, strict=True)):
            now[places[one]] = part
            table[row] = now
        arrays[field] = table[rows & come]
    return arrays


def _planned(message: Any) -> Arrays:
    """The arrays of a planned trajectory."""
    arrays = {
        name: np.stack([getattr(point, field) for point in message.points])
        for field, name in _POINTS.items()
        if message.points and len(getattr(message.points[0], field))
    }
    times = [_nanoseconds(point.time_from_start) for point in message.points]
    return arrays | {"times": np.array(times), "joint_names": np.array(message.joint_names)}
