"""Reads ROS 1 and ROS 2 bags (.bag, .mcap, .db3): topics are groups, fields of messages are arrays.

``times`` [ns] are the stamps of the headers, or the log times of messages without one. Where
publishers share a topic, as an arm and its gripper do, each set of joints is a group below it.
"""

from __future__ import annotations

import os
import re
import shlex
from array import array
from collections.abc import Iterator, Mapping
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np

from trajcli.errors import InputError
from trajcli.files.catalogue import Catalogue, Dataset, OpenFiles, import_library
from trajcli.files.file_bytes import open_regular
from trajcli.files.source import Place
from trajcli.kernels.program import NumpyArray

# How many messages are read to find the fields of a topic, and at most how many bytes.
_FIRST, _FIRST_BYTES = 64, 1 << 24
# Bytes of messages between two checks of the memory and reports of progress.
_BETWEEN = 1 << 20
_POINTS = {"positions": "position", "velocities": "velocity", "accelerations": "acceleration"}
_ADDED = ("times", "log_times", "joint_names")

TopicArrays = dict[str, NumpyArray]


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


class RosFile(Catalogue):
    """A bag. Every numeric field is an array with a row per message: "imu/linear_acceleration.x".

    The first messages of a topic say which arrays it has; it is read as a whole for its values.
    """

    family, handle_type = "ros", _Bag
    failures = (Exception,)  # rosbags has no common error for damaged bags
    expected = "an intact ROS bag"
    slash = "/"

    def __init__(self, path: Path, pool: OpenFiles | None = None) -> None:
        super().__init__(path, pool)
        import_library("rosbags.highlevel", "rosbags", path)
        bag: _Bag = self.open_handle()
        self._counts = {name: int(topic.msgcount) for name, topic in bag.topics.items()}

    def names(self) -> list[str]:
        # The numbers of a message within a message, such as x, y and z of a vector, are one array;
        # an array within it is an array of its own. Of the joints that share a topic, only those
        # that --dofs picks are listed.
        names = dict[str, None]()
        for topic in self._counts:
            first = self.guard(topic, self._read, topic, _FIRST)
            prefix = self._picked_group(first)
            for path, values in first.items():
                if path.startswith(prefix):
                    name = path.split(".")[0] if values.shape[1:] == (1,) else path
                    names[f"{topic}/{name}"] = None
        return list(names)

    def find(self, name: str) -> Dataset | None:
        topic = max((t for t in self._counts if name.startswith(f"{t}/")), key=len, default="")
        field = name[len(topic) + 1 :]
        first = self.guard(topic, self._read, topic, _FIRST) if topic else {}
        if has_joints := bool(_joint_sets(first)):
            # Publishers that share a topic may begin late: only after all messages are read do
            # their sets of joints, and the number of messages of each, stand.
            first = self.guard(topic, self._read_all, topic)
            sets, fields = _joint_sets(first), {path.partition("/")[2] for path in first}
            if "" not in sets and field in fields.difference(first, _ADDED):
                counts = {group: len(first[f"{group}/times"]) for group in sets}
                raise InputError(
                    "several sets of joints in one topic",
                    where=self.place(topic),
                    expected="one set of joints",
                    found="; ".join(f"{counts[k]} of {', '.join(x)}" for k, x in sets.items()),
                    hint=" or ".join(f"--dofs {shlex.quote(','.join(x))}" for x in sets.values()),
                )
        # a message is all its numbers, but covariances, which are no motion, only on their own
        paths = [path for path in first if f"{path}.".startswith(f"{field}.")]
        paths = [p for p in paths if p == field or not p.endswith(".covariance")]
        if not paths:
            return None
        where, empty = self.place(name), np.hstack([first[path][:0] for path in paths])

        def read_rows(start: int, stop: int) -> Any:
            arrays = self._read_all(topic)
            rows = [arrays[path][start:stop] for path in paths if path in arrays]
            if not rows:
                raise InputError("messages with another number of values", where=where)
            return rows[0] if len(rows) == 1 else np.hstack(rows)

        # joints, and plans, have been read as a whole; else each message of the topic is a row
        is_read = has_joints or "times" not in first or field == "joint_names"
        count = len(first[paths[0]]) if is_read else self._counts[topic]
        about: dict[str, Any] = {"units": "ns"} if field.endswith("times") else {}
        if len(paths) == empty.shape[-1] > 1:  # a vector, whose components have names
            about["joint_names"] = [path[len(field) + 1 :] for path in paths]
        shape = count, *empty.shape[1:]
        return self.make_dataset(name, shape, empty.dtype, read_rows, about, "messages")

    def _read_all(self, topic: str) -> TopicArrays:
        """Reads all messages of a topic; the joints that --dofs picks have no group in it."""
        arrays = self._read(topic)
        if prefix := self._picked_group(arrays):
            picked = {path: x for path, x in arrays.items() if path.startswith(prefix)}
            return arrays | {path.removeprefix(prefix): x for path, x in picked.items()}
        return arrays

    def _picked_group(self, arrays: TopicArrays) -> str:
        """Picks the group of the only set of joints with all names in --dofs, or "" for none."""
        sets = _joint_sets(arrays)
        dofs = {name.strip() for name in (self.pool.reading.dofs or "").split(",")}
        fitting = [group for group, joints in sets.items() if dofs <= {*joints}]
        exact = [group for group in fitting if dofs == {*sets[group]}]
        chosen = exact if len(exact) == 1 else fitting
        return f"{chosen[0]}/" if len(sets) > 1 and len(chosen) == 1 else ""

    def _read(self, topic: str, most: int = 0) -> TopicArrays:
        """Reads the arrays of a topic: of all messages, or at least of the ``most`` first ones."""
        bag: _Bag = self.open_handle()
        for count in (0, most):  # 0: all messages, which include the first ones
            if (topic, count) in bag.arrays:
                return bag.arrays[topic, count]
        where, total = self.place(topic), self._counts[topic]
        parts: dict[tuple[str, ...], _Messages] = {}  # by the names of joints, sorted
        part, count, size = _Messages(bag.types), 0, 0
        for message, log, raw in bag.messages(topic):
            names: Any = getattr(message, "name", None)
            # names in another order are the same joints: messages are sorted as the first is
            if not count or (names != part.joints and isinstance(names, list)):
                key = tuple(sorted(names)) if isinstance(names, list) else ()
                part = parts.setdefault(key, _Messages(bag.types))
            part.add_message(message, log)
            count, size = count + 1, size + raw
            if most and not part.plans and (count == most or size > _FIRST_BYTES):
                break
            if not most and size > _BETWEEN:
                size = 0
                self.pool.report.on_progress(min(count / total, 1.0), 1)
                self._refuse_larger(parts, where)
        else:
            if count != total:
                raise InputError(
                    "not as many messages as the bag declares",
                    where=where,
                    expected=f"{total} messages",
                    found=str(count),
                    hint="a damaged bag; `mcap recover` or `rosbag reindex` counts anew",
                )
        self.pool.reserve(self, self._refuse_larger(parts, where))
        arrays = part.arrays() if len(parts) == 1 else TopicArrays()
        for part in parts.values() if len(parts) > 1 else ():
            # a set of joints is a group, named after the first and the last: a name never becomes a
            # path or a pattern
            ends = (part.joints or ["unnamed"])[:: max(len(part.joints or ()) - 1, 1)]
            group = re.sub(r"[^\w-]", "_", "-".join(ends))
            while f"{group}/times" in arrays:
                group += "_"
            arrays |= {f"{group}/{path}": values for path, values in part.arrays().items()}
        bag = self.open_handle()  # to reserve memory may have closed the one before
        bag.arrays[topic, most] = arrays
        return arrays

    def _refuse_larger(self, parts: Mapping[Any, _Messages], where: Place) -> int:
        nbytes = sum(part.nbytes for part in parts.values())
        self.pool.refuse_larger(nbytes, where, "a part of the bag")
        return nbytes


def _joint_sets(arrays: TopicArrays) -> dict[str, list[str]]:
    """Lists the joints of each group of a topic; a single set has the group "", plans have none."""
    names = {path.removesuffix("joint_names"): x for path, x in arrays.items()}
    return {k.rstrip("/"): x.tolist() for k, x in names.items() if f"{k}log_times" in arrays}


class _Messages:
    """Collects the numbers of messages of one type."""

    def __init__(self, types: Mapping[str, Any]) -> None:
        self._types = types
        self._logs, self._stamps = array("q"), array("q")
        self._numbers: dict[str, array[Any]] = {}
        # by path: the type of an array, its values message after message, and its sizes
        self._arrays: dict[str, tuple[np.dtype[Any], bytearray, array[int]]] = {}
        self.joints: list[str] | None = None
        self.plans: list[TopicArrays] = []

    @property
    def nbytes(self) -> int:
        buffers = sum(len(buffer) for _, buffer, _ in self._arrays.values())
        plans = sum(values.nbytes for plan in self.plans for values in plan.values())
        columns = 2 + len(self._numbers) + len(self._arrays)
        return len(self._logs) * 8 * columns + buffers + plans

    def add_message(self, message: Any, log: int) -> None:
        """Adds a message of the same joints, in any order, with its log time in ns."""
        names: Any = getattr(message, "name", None)
        plan = hasattr(message, "points") and hasattr(message, "joint_names")
        if not self._logs:
            self.joints = names if isinstance(names, list) else None
            for path, kind in [] if plan else _fields(message, self._types):
                if isinstance(kind, str):
                    self._numbers[path] = array(kind)
                else:
                    self._arrays[path] = kind, bytearray(), array("q")
        # a stamp of 0 is that of a message without header, or of a driver that does not set it
        header: Any = getattr(message, "header", None)
        stamp: Any = getattr(header, "stamp", None)
        self._logs.append(log)
        self._stamps.append(0 if stamp is None else int(stamp.sec) * 10**9 + int(stamp.nanosec))
        if plan:
            points = message.points
            fields = [x for x in _POINTS if points and len(getattr(points[0], x))]
            plan_arrays = {_POINTS[x]: np.stack([getattr(y, x) for y in points]) for x in fields}
            times = [point.time_from_start for point in points]
            plan_arrays["times"] = np.array([int(x.sec) * 10**9 + int(x.nanosec) for x in times])
            plan_arrays["joint_names"] = np.array(message.joint_names)
            self.plans.append(plan_arrays)
        for path, column in self._numbers.items():
            column.append(attrgetter(path)(message))
        # values follow the names of the first message, whatever the order in this one
        order = None
        if self.joints is not None and names != self.joints:
            order = [names.index(name) for name in self.joints]
        for path, (_, buffer, sizes) in self._arrays.items():
            values = attrgetter(path)(message)
            sizes.append(len(values))
            buffer.extend((values if order is None or not len(values) else values[order]).tobytes())

    def arrays(self) -> TopicArrays:
        """Makes arrays [T, n] by path, times and log_times in ns, and joint_names."""
        if self.plans:  # planned trajectories are "0/position", "1/position" and so on
            plans = enumerate(self.plans)
            return {f"{k}/{name}": part for k, plan in plans for name, part in plan.items()}
        logs, stamps = np.array(self._logs), np.array(self._stamps)
        arrays = {"times": np.where(stamps == 0, logs, stamps), "log_times": logs}
        if self.joints is not None:
            arrays["joint_names"] = np.array(self.joints, str)
        arrays |= {path: np.array(column)[:, None] for path, column in self._numbers.items()}
        for path, (dtype, buffer, counts) in self._arrays.items():
            # An array that a message leaves empty is NaN there, which only floats can hold. One
            # whose size changes otherwise is left out.
            filled = np.array(counts) > 0
            widths = set(counts) - {0}
            if len(widths) == 1 and (filled.all() or dtype.kind == "f"):
                table = np.full((len(logs), *widths), np.nan if dtype.kind == "f" else 0, dtype)
                table[filled] = np.frombuffer(buffer, dtype).reshape(-1, *widths)
                arrays[path] = table
        return arrays


def _fields(
    message: Any, types: Mapping[str, Any], prefix: str = ""
) -> Iterator[tuple[str, np.dtype[Any] | str]]:
    """Yields numeric fields by path: arrays with their dtype, numbers with a code of ``array``."""
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
