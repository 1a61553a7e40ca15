"""Reading ROS 1 and ROS 2 bags (.bag, .mcap, .db3): topics are groups, fields of messages arrays.

``times`` are those of the headers, where messages have them; ``log_times`` are when messages were
recorded. Both are in nanoseconds.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from trajcli.errors import Fault, InputError
from trajcli.files.arrays import ArrayFile, Dataset
from trajcli.files.file_bytes import open_regular
from trajcli.files.open_files import OpenFiles

Arrays = dict[str, npt.NDArray[Any]]

_POINTS = {"positions": "position", "velocities": "velocity", "accelerations": "acceleration"}
_FIRST, _AT_ONCE = 64, 1 << 13
"""Messages in which a topic shows whether its joints come in turns, and those decoded at once."""


class RosFile(ArrayFile):
    """A bag. A topic is decoded when its first numbers are needed, and kept until it is closed.

    A row is a message, and any field of numbers an array: "imu/linear_acceleration.x". Where the
    joints of a JointState come in turns, rows are the messages of those that come most often, and
    the others are as they were last. A JointTrajectory is a trajectory, in a group of its own.
    """

    failures = (Exception,)  # rosbags has no error that all its others are
    expected = "an intact ROS bag"
    slash = "/"

    def __init__(self, path: Path, pool: OpenFiles | None = None) -> None:
        super().__init__(path, "ros", pool)
        try:
            import rosbags.highlevel  # noqa: F401
        except ImportError:
            what = "bags are read by rosbags, which is not installed"
            raise InputError(Fault(what, str(path), hint="pip install 'trajcli[ros]'")) from None
        self._shapes: dict[tuple[str, str], Arrays] = {}
        self._topics: list[str] = list(self.opened().topics)  # the last, as it may fail

    def begin(self) -> _Bag:
        return _Bag(self.path)

    def names(self) -> list[str]:
        return [f"{topic}/{name}" for topic in self._topics for name in self._known(topic, "")]

    def get(self, name: str) -> Dataset | None:
        name = name.strip("/")
        topic = max((t for t in self._topics if name.startswith(f"{t}/")), key=len, default="")
        field = name[len(topic) + 1 :]
        like = self._known(topic, field if "." in field else "").get(field) if topic else None
        if like is None:
            return None

        def read_rows(start: int, stop: int) -> Any:
            return self._decoded(topic, field if "." in field else "")[field][start:stop]

        units = {"units": "ns"} if field.endswith("times") else {}
        return Dataset(f"{self.path}:/{name}", like.shape, like.dtype, read_rows, units, "messages")

    def _known(self, topic: str, path: str) -> Arrays:
        """Arrays of the shapes and types of those of a topic, or of the one at a path: known from
        the first messages alone, where they are alike."""
        if (topic, path) not in self._shapes:
            bag: _Bag = self.opened()
            count = bag.topics[topic].msgcount
            first = self.safely(topic, lambda: _decode(bag.messages(topic, 1), path))
            if self._turns(topic) > 1 or any("/" in name for name in first):
                first, count = self._decoded(topic, path), 0
            self._shapes[topic, path] = self.safely(topic, lambda: _repeated(first, count))
        return self._shapes[topic, path]

    def _turns(self, topic: str) -> int:
        """How many sets of joints the first messages of a topic are of."""
        bag: _Bag = self.opened()
        return self.safely(topic, lambda: len(set(map(_joints, bag.messages(topic, _FIRST)))))

    def _decoded(self, topic: str, path: str) -> Arrays:
        bag: _Bag = self.opened()
        if (topic, path) not in bag.decoded:
            arrays = self.safely(topic, lambda: self._decode_all(bag, topic, path))
            self.pool.hold(self, _size(arrays))
            bag = self.opened()
            bag.decoded[topic, path] = arrays
        return bag.decoded[topic, path]

    def _decode_all(self, bag: _Bag, topic: str, path: str) -> Arrays:
        """All of a topic, some messages at a time where all are alike."""
        messages, size, parts = bag.messages(topic), 0, list[Arrays]()
        most = _AT_ONCE if self._turns(topic) == 1 else None
        while part := _decode(islice(messages, most), path):
            parts.append(part)
            size += _size(part)
            self.pool.refuse_larger(size, f"{self.path}:/{topic}", "a part of the bag")
        names = [name for name in parts[0] if name != "joint_names"]
        if (
            any(list(part) != list(parts[0]) for part in parts)
            or len({tuple(part.get("joint_names", ())) for part in parts}) > 1
        ):
            raise ValueError("messages that differ in their fields or joints")
        return parts[0] | {name: np.concatenate([part[name] for part in parts]) for name in names}


class _Bag:
    """An open bag, and what was decoded of it."""

    def __init__(self, path: Path) -> None:
        from rosbags.highlevel import AnyReader
        from rosbags.typesys import Stores, get_typestore

        os.close(open_regular(path))
        store = None if path.suffix == ".bag" else get_typestore(Stores.LATEST)
        self._reader = AnyReader([path], default_typestore=store)
        self._reader.open()
        topics = self._reader.topics.items()
        self.topics = {name.strip("/"): topic for name, topic in topics if topic.msgcount}
        self.decoded: dict[tuple[str, str], Arrays] = {}

    def messages(self, topic: str, most: int | None = None) -> Iterator[tuple[int, Any]]:
        """The messages of a topic, and when they were recorded in nanoseconds."""
        about = self.topics[topic]
        for one, stamp, raw in islice(self._reader.messages(about.connections), most):
            yield stamp, self._reader.deserialize(raw, one.msgtype)

    def close(self) -> None:
        """Close it."""
        self._reader.close()
        self.decoded.clear()


def _decode(messages: Iterable[tuple[int, Any]], path: str) -> Arrays:
    """The numbers of messages, of all fields or of the one at a path."""
    columns: dict[str, list[Any]] = {"times": [], "log_times": []}
    arrays: Arrays = {}
    joints: list[tuple[str, ...]] = []
    for number, (log, message) in enumerate(messages):
        if hasattr(message, "points") and hasattr(message, "joint_names"):
            arrays |= {f"{number}/{name}": part for name, part in _planned(message).items()}
            continue
        stamp = getattr(getattr(message, "header", None), "stamp", None)
        columns["times"].append((stamp and _nanoseconds(stamp)) or log)
        columns["log_times"].append(log)
        joints.append(_joints((log, message)))
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


def _repeated(first: Arrays, count: int) -> Arrays:
    """Arrays of so many rows like the first, that take no memory; as they are for 0."""
    return {
        name: values if name == "joint_names" or not count
        else np.broadcast_to(values, (count, *values.shape[1:]))
        for name, values in first.items()
    }  # fmt: skip


def _size(arrays: Arrays) -> int:
    return sum(values.nbytes for values in arrays.values())


def _joints(message: tuple[int, Any]) -> tuple[str, ...]:
    """The names of the joints that a message is of."""
    names = getattr(message[1], "name", ())
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
    numeric = values.dtype.kind in "fiu" and values.itemsize > 1
    return values.reshape(-1) if numeric else np.empty(0)


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
