"""Reads ROS 1 and ROS 2 bags (.bag, .mcap, .db3): topics are groups, fields of messages are arrays.

``times`` are the stamps of the headers, or the log times of messages without one; ``log_times`` are
the times of recording. Both are in nanoseconds.
"""

from __future__ import annotations

import os
from array import array
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import cache
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from trajcli.errors import InputError
from trajcli.files.arrays import ArrayFile, Dataset, OpenFiles
from trajcli.files.file_bytes import open_regular

# How many messages are read to find the fields of a topic, and at most how many bytes.
_FIRST, _FIRST_BYTES = 64, 1 << 24
# Bytes of messages between two checks of the memory and reports of progress.
_BETWEEN = 1 << 20
_POINTS = {"positions": "position", "velocities": "velocity", "accelerations": "acceleration"}
# The fraction of a topic within which all its joints must have appeared.
_LATE = 0.1

Arrays = dict[str, npt.NDArray[Any]]
# The joints that a message names, and the sizes of its arrays.
_Form = tuple[tuple[str, ...], tuple[int, ...]]


class RosFile(ArrayFile):
    """A bag. Every numeric field is an array with a row per message: "imu/linear_acceleration.x".

    A topic is read as a whole when its first values are needed, and kept until the bag is closed:
    all its numbers or, if they exceed the memory limit, those of one field.
    """

    failures = (Exception,)  # rosbags has no common error for damaged bags
    expected = "an intact ROS bag"
    slash = "/"

    def __init__(self, path: Path, pool: OpenFiles | None = None) -> None:
        super().__init__(path, "ros", pool)
        try:
            import rosbags.highlevel  # noqa: F401
        except ImportError:
            raise InputError(
                "bags are read by rosbags, which is not installed",
                where=str(path),
                hint="pip install rosbags",
            ) from None
        self._first = cache(lambda topic: self.safely(topic, lambda: self._sampled(topic)))
        bag: _Bag = self.opened()
        self._counts = {name: int(topic.msgcount) for name, topic in bag.topics.items()}

    def begin(self) -> _Bag:
        return _Bag(self.path)

    def names(self) -> list[str]:
        names = (f"{t}/{path.split('.')[0]}" for t in self._counts for path in self._paths(t))
        return list(dict.fromkeys(names))

    def get(self, name: str) -> Dataset | None:
        name = name.strip("/")
        topic = max((t for t in self._counts if name.startswith(f"{t}/")), key=len, default="")
        field = name[len(topic) + 1 :]
        if not topic or not any(_is_part(path, field) for path in self._paths(topic)):
            return None
        whole, count = self._first(topic).whole, self._counts[topic]
        parts = self.safely(topic, lambda: self._parts(topic, field, whole))
        like = np.hstack([part[:0] for part in parts])

        def read_rows(start: int, stop: int) -> Any:
            parts = self.safely(topic, lambda: self._parts(topic, field, True))
            rows = [part[start:stop] for part in parts]
            return rows[0] if len(rows) == 1 else np.hstack(rows)

        shape = (len(parts[0]) if whole else count, *like.shape[1:])
        about: dict[str, Any] = {"units": "ns"} if field.endswith("times") else {}
        inside = [path for path in self._paths(topic) if path.startswith(f"{field}.")]
        if len(inside) == like.shape[-1] > 1:  # a vector, whose components have names
            about["joint_names"] = [path[len(field) + 1 :] for path in inside]
        where = f"{self.path}:/{name}"
        return Dataset(where, shape, like.dtype, read_rows, about, "messages")

    def _paths(self, topic: str) -> list[str]:
        """Returns the paths of the arrays of a topic."""
        messages = self._first(topic)
        if messages.plans:
            return list(self.safely(topic, lambda: self._read(topic, "")))
        return messages.paths

    def _parts(self, topic: str, field: str, whole: bool) -> list[Any]:
        """Returns the arrays of a field: of all messages if ``whole``, else of the first ones.

        Raises ValueError if there are none, or if later messages have other sizes.
        """
        first = self._first(topic)
        parts = _field_of(self._read(topic, field) if whole else first.arrays(""), field)
        like = parts if first.whole else _field_of(first.arrays(""), field)
        if not parts or [part.shape[1:] for part in parts] != [part.shape[1:] for part in like]:
            raise ValueError(f"messages with another number of values in {field}")
        return parts

    def _sampled(self, topic: str) -> _Messages:
        """Returns the first messages of a topic."""
        bag: _Bag = self.opened()
        messages, size = _Messages(bag.types), 0
        for message, log, raw in bag.messages(topic):
            messages.add(message, log)
            size += raw
            if len(messages) == _FIRST or size > _FIRST_BYTES:
                return messages
        if not messages:
            self._check_count(topic, 0)
        return messages

    def _read(self, topic: str, field: str) -> Arrays:
        """Returns the arrays of all messages of a topic, or of one field if they are too large."""
        bag: _Bag = self.opened()
        first, count = self._first(topic), self._counts[topic]
        key = topic, field if first.nbytes / len(first) * count > self.pool.memory else ""
        if key not in bag.arrays:
            where = f"{self.path}:{self.slash}{topic}"
            messages, size, hint = _Messages(bag.types, key[1]), 0, "a part of the bag"
            for message, log, raw in bag.messages(topic):
                messages.add(message, log)
                size += raw
                if size > _BETWEEN:
                    size = 0
                    self.pool.on_progress(min(len(messages) / count, 1.0), 1)
                    self.pool.refuse_larger(messages.nbytes, where, hint)
            self.pool.refuse_larger(messages.nbytes, where, hint)
            self._check_count(topic, len(messages))
            self.pool.hold(self, messages.nbytes)
            bag = self.opened()
            bag.arrays[key] = messages.arrays(where)
        return bag.arrays[key]

    def _check_count(self, topic: str, found: int) -> None:
        if found != self._counts[topic]:
            raise InputError(
                "not as many messages as the bag says",
                where=f"{self.path}:{self.slash}{topic}",
                expected=f"{self._counts[topic]} messages",
                found=str(found),
                hint="a damaged bag; `mcap recover` or `rosbag reindex` counts anew",
            )


class _Bag:
    """A bag opened by rosbags, and the arrays of its topics that were read."""

    def __init__(self, path: Path) -> None:
        from rosbags.highlevel import AnyReader
        from rosbags.typesys import Stores, get_typestore

        os.close(open_regular(path))
        store = None if path.suffix == ".bag" else get_typestore(Stores.LATEST)
        self._reader = AnyReader([path], default_typestore=store)
        self._reader.open()
        topics = self._reader.topics.items()
        self.topics = {name.strip("/"): topic for name, topic in topics if topic.msgcount}
        self.types = self._reader.typestore.fielddefs
        self.arrays: dict[tuple[str, str], Arrays] = {}

    def messages(self, topic: str) -> Iterator[tuple[Any, int, int]]:
        """Yields the messages of a topic, their log times in ns, and their sizes in bytes."""
        kind = self.topics[topic].msgtype
        if kind is None:
            raise ValueError("messages of several types")
        for _, log, raw in self._reader.messages(self.topics[topic].connections):
            yield self._reader.deserialize(raw, kind), log, len(raw)

    def close(self) -> None:
        self._reader.close()
        self.arrays.clear()


class _Messages:
    """Collects the numbers of messages of one type.

    types: the fields of all message types, as rosbags gives them. field: the path of the only field
    to keep; all are kept if it is empty. plans: the messages are planned trajectories.
    """

    def __init__(self, types: Mapping[str, Any], field: str = "") -> None:
        self._types, self._field = types, field
        self._logs, self._stamps = array("q"), array("q")
        # by path: fields that are a number, with their values, and fields that are an array
        self._numbers: dict[str, array[Any]] = {}
        self._leaves: dict[str, np.dtype[Any]] = {}
        # by joints and sizes of the arrays: the numbers of messages, and the bytes of each array
        self._batches: dict[_Form, tuple[array[int], list[bytearray]]] = {}
        self._plans: list[Arrays] = []
        self._stamped = self._named = self.plans = False

    def __len__(self) -> int:
        return len(self._logs)

    @property
    def whole(self) -> bool:
        """Whether all messages are needed to know the arrays: they name joints, or are plans."""
        return self._named or self.plans

    @property
    def paths(self) -> list[str]:
        """The paths of the arrays in the messages added so far."""
        sizes = list(zip(*(sizes for _, sizes in self._batches), strict=True))
        filled = (path for path, of in zip(self._leaves, sizes, strict=True) if any(of))
        times = ["times", "log_times", *["joint_names"] * self._named]
        return [*times, *self._numbers, *filled]

    @property
    def nbytes(self) -> int:
        """The bytes that are kept."""
        buffers = (len(buffer) for _, batch in self._batches.values() for buffer in batch)
        plans = (values.nbytes for plan in self._plans for values in plan.values())
        return len(self) * 8 * (2 + len(self._numbers)) + sum(buffers) + sum(plans)

    def add(self, message: Any, log: int) -> None:
        """Adds a message with its log time in ns."""
        if not self._logs:
            self._begin(message)
        self._logs.append(log)
        self._stamps.append(_nanoseconds(message.header.stamp) if self._stamped else 0)
        if self.plans:
            self._plans.append(_plan_arrays(message))
        for path, column in self._numbers.items():
            column.append(attrgetter(path)(message))
        values = [attrgetter(path)(message) for path in self._leaves]
        key = tuple(message.name) if self._named else (), tuple(map(len, values))
        if key not in self._batches:
            self._batches[key] = array("q"), [bytearray() for _ in values]
        numbers, buffers = self._batches[key]
        numbers.append(len(self) - 1)
        for buffer, part in zip(buffers, values, strict=True):
            buffer.extend(part.tobytes())

    def _begin(self, message: Any) -> None:
        self._stamped = hasattr(getattr(message, "header", None), "stamp")
        self._named = isinstance(getattr(message, "name", None), list)
        self.plans = hasattr(message, "points") and hasattr(message, "joint_names")
        for path, kind in [] if self.plans else _leaves(message, self._types):
            if not self._field or _is_part(path, self._field):
                if isinstance(kind, str):
                    self._numbers[path] = array(kind)
                else:
                    self._leaves[path] = kind

    def arrays(self, where: str) -> Arrays:
        """Returns arrays [T, n] by path, times and log_times in ns, and joint_names.

        Planned trajectories are "0/position", "1/position" and so on. Where messages hold different
        joints, the rows are the messages of the joints that are sent most often, once all joints
        have appeared; the other joints keep their latest value. A field that a message omits is NaN
        there. An array whose size changes is left out.

        Raises InputError for a joint that appears late.
        """
        if self.plans:
            plans = enumerate(self._plans)
            return {f"{k}/{name}": part for k, plan in plans for name, part in plan.items()}
        joints = list(dict.fromkeys(name for names, _ in self._batches for name in names))
        sets = Counter[frozenset[str]]()
        for (names, _), (numbers, _) in self._batches.items():
            sets[frozenset(names)] += len(numbers)
        rows = slice(None) if len(sets) < 2 else self._rows(joints, sets, where)
        logs, stamps = np.array(self._logs), np.array(self._stamps)
        arrays = {"times": np.where(stamps == 0, logs, stamps)[rows], "log_times": logs[rows]}
        arrays |= {path: np.array(column)[rows, None] for path, column in self._numbers.items()}
        for k, (path, dtype) in enumerate(self._leaves.items()):
            values = self._column(k, dtype, joints, len(sets) > 1)
            if values is not None:
                arrays[path] = values[rows]
        return arrays | ({"joint_names": np.array(joints)} if joints else {})

    def _rows(
        self, joints: list[str], sets: Counter[frozenset[str]], where: str
    ) -> npt.NDArray[np.int64]:
        """Returns the messages of the joints sent most often, once all joints have appeared."""
        kinds = [(names, numbers) for (names, _), (numbers, _) in self._batches.items()]
        firsts = {
            one: min(numbers[0] for names, numbers in kinds if one in names) for one in joints
        }
        last = max(joints, key=lambda name: firsts[name])
        if firsts[last] > _LATE * len(self):
            raise InputError(
                "messages of other joints",
                where=f"{where}, message {firsts[last]}",
                expected=", ".join(name for name in joints if name != last),
                found=last,
                hint="cut the bag there: the messages before it do not have them",
            )
        ((most, _),) = sets.most_common(1)
        often = [np.array(numbers) for names, numbers in kinds if frozenset(names) == most]
        rows = np.sort(np.concatenate(often))
        return np.asarray(rows[rows >= firsts[last]])

    def _column(
        self, k: int, dtype: np.dtype[Any], joints: list[str], turns: bool
    ) -> npt.NDArray[Any] | None:
        """Returns an array of all messages [T, n]; None if its size changes or is 0."""
        sizes = {of[k] for _, of in self._batches}
        if len(self._batches) == 1 and sizes != {0}:
            ((_, buffers),) = self._batches.values()
            return np.frombuffer(buffers[k], dtype).reshape(len(self), -1)
        by_joint = joints and all(of[k] in (0, len(names)) for names, of in self._batches)
        filled = sizes - {0}
        if not filled or (len(filled) > 1 and not by_joint) or (0 in sizes and dtype.kind != "f"):
            return None
        width = len(joints) if by_joint else max(sizes)
        since = np.zeros((len(self), width), np.int64) if turns else None
        table = np.full((len(self), width), np.nan if dtype.kind == "f" else 0, dtype)
        for (names, of), (numbers, buffers) in self._batches.items():
            if of[k]:
                columns = [joints.index(name) for name in names] if by_joint else range(width)
                at = np.array(numbers)[:, None], np.array(columns)
                table[at] = np.frombuffer(buffers[k], dtype).reshape(len(numbers), -1)
                if since is not None:
                    since[at] = np.array(numbers)[:, None]
        if since is None:
            return table
        # since: the number of the latest message with a value for the joint
        return np.take_along_axis(table, np.maximum.accumulate(since, axis=0), 0)


def _field_of(arrays: Arrays, field: str) -> list[npt.NDArray[Any]]:
    """Returns the arrays that are a field, or lie within it."""
    return [values for path, values in arrays.items() if _is_part(path, field)]


def _is_part(path: str, field: str) -> bool:
    """Whether a path is that of a field, or of one within it."""
    return f"{path}.".startswith(f"{field}.")


def _leaves(
    message: Any, types: Mapping[str, Any], prefix: str = ""
) -> Iterator[tuple[str, np.dtype[Any] | str]]:
    """Yields the numeric fields of a message, without its header, flags and bytes: paths of arrays
    with their dtype, and of numbers with their type code of :mod:`array`."""
    kinds = dict(types[message.__msgtype__][1])
    for name in message.__dataclass_fields__:
        value, path = getattr(message, name), f"{prefix}{name}"
        if path == "header":
            continue
        if hasattr(value, "__dataclass_fields__"):
            yield from _leaves(value, types, f"{path}.")
        elif isinstance(value, np.ndarray):
            if value.dtype.kind in "fiu" and value.dtype.itemsize > 1:
                yield path, value.dtype
        elif isinstance(value, (int, float)) and not isinstance(value, bool):
            unsigned = name in kinds and kinds[name][1][0] == "uint64"
            yield path, "d" if isinstance(value, float) else "Q" if unsigned else "q"


def _plan_arrays(message: Any) -> Arrays:
    """Returns the arrays of a planned trajectory."""
    arrays = {
        name: np.stack([getattr(point, field) for point in message.points])
        for field, name in _POINTS.items()
        if message.points and len(getattr(message.points[0], field))
    }
    times = np.array([_nanoseconds(point.time_from_start) for point in message.points])
    return arrays | {"times": times, "joint_names": np.array(message.joint_names)}


def _nanoseconds(stamp: Any) -> int:
    return int(stamp.sec) * 10**9 + int(stamp.nanosec)
