"""Reads ROS 1 and ROS 2 bags (.bag, .mcap, .db3): topics are groups, fields of messages are arrays.

``times`` are the stamps of the headers, or the log times of messages without one; ``log_times`` are
the times of recording. Both are in nanoseconds.
"""

from __future__ import annotations

import os
from array import array
from collections.abc import Iterator, Mapping
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from trajcli.errors import InputError
from trajcli.files.catalogue import Catalogue, Dataset, OpenFiles, import_library
from trajcli.files.file_bytes import open_regular
from trajcli.files.source import Place

# How many messages are read to find the fields of a topic, and at most how many bytes.
_FIRST, _FIRST_BYTES = 64, 1 << 24
# Bytes of messages between two checks of the memory and reports of progress.
_BETWEEN = 1 << 20
_POINTS = {"positions": "position", "velocities": "velocity", "accelerations": "acceleration"}

TopicArrays = dict[str, npt.NDArray[Any]]


class RosFile(Catalogue):
    """A bag. Every numeric field is an array with a row per message: "imu/linear_acceleration.x".

    The first messages of a topic say which arrays it has. Its numbers are read as a whole when the
    first values are needed, and kept until the bag is closed.
    """

    failures = (Exception,)  # rosbags has no common error for damaged bags
    expected = "an intact ROS bag"
    slash = "/"

    def __init__(self, path: Path, pool: OpenFiles | None = None) -> None:
        super().__init__(path, "ros", pool)
        import_library("rosbags.highlevel", "rosbags", path)
        bag: _Bag = self.opened()
        self._counts = {name: int(topic.msgcount) for name, topic in bag.topics.items()}

    def begin(self) -> _Bag:
        return _Bag(self.path)

    def names(self) -> list[str]:
        # numbers within a message are read with their whole, arrays within it by themselves
        names = (
            f"{topic}/{path.split('.')[0] if array.shape[1:] == (1,) else path}"
            for topic in self._counts
            for path, array in self._first(topic).items()
        )
        return list(dict.fromkeys(names))

    def find(self, name: str) -> Dataset | None:
        topic = max((t for t in self._counts if name.startswith(f"{t}/")), key=len, default="")
        field = name[len(topic) + 1 :]
        first = self._first(topic) if topic else {}
        paths = [path for path in first if f"{path}.".startswith(f"{field}.")]
        paths = [p for p in paths if p == field or not p.endswith(".covariance")]
        if not paths:
            return None
        where, like = self.place(name), np.hstack([first[path][:0] for path in paths])

        def read_rows(start: int, stop: int) -> Any:
            whole = self._read(topic)
            rows = [whole[path][start:stop] for path in paths if path in whole]
            if not rows:
                raise InputError("messages with another number of values", where=where)
            return rows[0] if len(rows) == 1 else np.hstack(rows)

        plan = "times" not in first
        count = len(first[field]) if plan or field == "joint_names" else self._counts[topic]
        about: dict[str, Any] = {"units": "ns"} if field.endswith("times") else {}
        if len(paths) == like.shape[-1] > 1:  # a vector, whose components have names
            about["joint_names"] = [path[len(field) + 1 :] for path in paths]
        shape = count, *like.shape[1:]
        return self.described(name, shape, like.dtype, read_rows, about, "messages")

    def _first(self, topic: str) -> TopicArrays:
        """Returns the arrays of the first messages of a topic, or of all if they are plans."""
        return self.safely(topic, lambda: self._read(topic, _FIRST))

    def _read(self, topic: str, most: int = 0) -> TopicArrays:
        """Returns the arrays of a topic: of all messages, or of the first ones."""
        bag: _Bag = self.opened()
        if (topic, most) in bag.arrays:
            return bag.arrays[topic, most]
        where, count = self.place(topic), self._counts[topic]
        messages, size = _Messages(bag.types, where), 0
        for message, log, raw in bag.messages(topic):
            messages.add(message, log)
            size += raw
            if most and not messages.plans and (len(messages) == most or size > _FIRST_BYTES):
                break
            if not most and size > _BETWEEN:
                size = 0
                self.pool.report.on_progress(min(len(messages) / count, 1.0), 1)
                self.pool.refuse_larger(messages.nbytes, where, "a part of the bag")
        else:
            if len(messages) != count:
                raise InputError(
                    "not as many messages as the bag says",
                    where=where,
                    expected=f"{count} messages",
                    found=str(len(messages)),
                    hint="a damaged bag; `mcap recover` or `rosbag reindex` counts anew",
                )
        self.pool.refuse_larger(messages.nbytes, where, "a part of the bag")
        self.pool.hold(self, messages.nbytes)
        bag = self.opened()
        bag.arrays[topic, most] = messages.arrays()
        return bag.arrays[topic, most]


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
        self.arrays: dict[tuple[str, int], TopicArrays] = {}

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

    types: the fields of all message types, as rosbags gives them. where: the topic, for errors.
    """

    def __init__(self, types: Mapping[str, Any], where: Place) -> None:
        self._types, self._where = types, where
        self._logs, self._stamps = array("q"), array("q")
        self._numbers: dict[str, array[Any]] = {}
        # by path: the type of an array, its values message after message, and its sizes
        self._arrays: dict[str, tuple[np.dtype[Any], bytearray, array[int]]] = {}
        self._joints: list[str] | None = None
        self.plans: list[TopicArrays] = []

    def __len__(self) -> int:
        return len(self._logs)

    @property
    def nbytes(self) -> int:
        """The bytes that are kept."""
        buffers = sum(len(buffer) for _, buffer, _ in self._arrays.values())
        plans = sum(values.nbytes for plan in self.plans for values in plan.values())
        columns = 2 + len(self._numbers) + len(self._arrays)
        return len(self) * 8 * columns + buffers + plans

    def add(self, message: Any, log: int) -> None:
        """Adds a message with its log time in ns; raises InputError if it has other joints."""
        names: Any = getattr(message, "name", None)
        plan = hasattr(message, "points") and hasattr(message, "joint_names")
        if not self._logs:
            self._joints = names if isinstance(names, list) else None
            for path, kind in [] if plan else _fields(message, self._types):
                if isinstance(kind, str):
                    self._numbers[path] = array(kind)
                else:
                    self._arrays[path] = kind, bytearray(), array("q")
        # a stamp of 0 is that of a message without header, or of a driver that does not set it
        header: Any = getattr(message, "header", None)
        self._logs.append(log)
        self._stamps.append(_nanoseconds(header.stamp) if hasattr(header, "stamp") else 0)
        if plan:
            self.plans.append(_plan_arrays(message))
        for path, column in self._numbers.items():
            column.append(attrgetter(path)(message))
        order = None
        if self._joints is not None and names != self._joints:
            if sorted(names) != sorted(self._joints):
                raise InputError(
                    "messages of other joints",
                    where=f"{self._where}, message {len(self) - 1}",
                    expected=", ".join(self._joints),
                    found=", ".join(names),
                    hint="record each publisher's joints in a topic of their own",
                )
            order = [names.index(name) for name in self._joints]
        for path, (_, buffer, sizes) in self._arrays.items():
            values = attrgetter(path)(message)
            sizes.append(len(values))
            buffer.extend((values if order is None or not len(values) else values[order]).tobytes())

    def arrays(self) -> TopicArrays:
        """Returns arrays [T, n] by path, times and log_times in ns, and joint_names.

        Planned trajectories are "0/position", "1/position" and so on. An array that a message
        leaves empty is NaN there; one whose size changes otherwise is left out.
        """
        if self.plans:
            plans = enumerate(self.plans)
            return {f"{k}/{name}": part for k, plan in plans for name, part in plan.items()}
        logs, stamps = np.array(self._logs), np.array(self._stamps)
        arrays = {"times": np.where(stamps == 0, logs, stamps), "log_times": logs}
        if self._joints is not None:
            arrays["joint_names"] = np.array(self._joints, str)
        arrays |= {path: np.array(column)[:, None] for path, column in self._numbers.items()}
        for path, (dtype, buffer, counts) in self._arrays.items():
            # NaN marks a missing row, which only floats can hold
            filled = np.array(counts) > 0
            widths = set(counts) - {0}
            if len(widths) == 1 and (filled.all() or dtype.kind == "f"):
                table = np.full((len(self), *widths), np.nan if dtype.kind == "f" else 0, dtype)
                table[filled] = np.frombuffer(buffer, dtype).reshape(-1, *widths)
                arrays[path] = table
        return arrays


def _fields(
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
            yield from _fields(value, types, f"{path}.")
        elif isinstance(value, np.ndarray):
            if value.dtype.kind in "fiu" and value.dtype.itemsize > 1:
                yield path, value.dtype
        elif isinstance(value, (int, float)) and not isinstance(value, bool):
            unsigned = name in kinds and kinds[name][1][0] == "uint64"
            yield path, "d" if isinstance(value, float) else "Q" if unsigned else "q"


def _plan_arrays(message: Any) -> TopicArrays:
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
