"""Reading ROS 1 and ROS 2 bags (.bag, .mcap, .db3): topics are groups, fields of messages arrays.

``times`` are those of the headers, where messages have them; ``log_times`` are when messages were
recorded. In nanoseconds.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from trajcli.errors import Fault, InputError
from trajcli.files.arrays import ArrayFile, Dataset
from trajcli.files.file_bytes import OpenFiles, open_regular
from trajcli.files.ros_messages import Arrays, Messages, field_of, is_part, joined

_FIRST, _FIRST_BYTES = 64, 1 << 24
"""Messages that show what fields a topic has, and their bytes."""
_BETWEEN = 1 << 20
"""Bytes from one look at the memory, and word of the progress, to the next."""


class RosFile(ArrayFile):
    """A bag. A row is a message, and any field of numbers an array: "imu/linear_acceleration.x".

    A topic is read as a whole when its first values are needed, and kept until the bag is closed:
    all its numbers, or only those of a field where all are more than the memory.
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
        if not topic or not any(is_part(path, field) for path in self._paths(topic)):
            return None
        whole, count = self._first(topic).whole, self._counts[topic]
        parts = self.safely(topic, lambda: self._parts(topic, field, whole))
        like = joined([part[:0] for part in parts])

        def read_rows(start: int, stop: int) -> Any:
            parts = self.safely(topic, lambda: self._parts(topic, field, True))
            return joined([part[start:stop] for part in parts])

        shape = (len(parts[0]) if whole else count, *like.shape[1:])
        units = {"units": "ns"} if field.endswith("times") else {}
        where = f"{self.path}:/{name}"
        return Dataset(where, shape, like.dtype, read_rows, units, "messages")

    def _paths(self, topic: str) -> list[str]:
        """What a topic has arrays of."""
        messages = self._first(topic)
        if messages.plans:
            return list(self.safely(topic, lambda: self._read(topic, "")))
        return messages.paths

    def _parts(self, topic: str, field: str, whole: bool) -> list[Any]:
        """The arrays in a field: of all messages, or the first. Raises ValueError where there are
        none, or others in all than in the first."""
        first = self._first(topic)
        parts = field_of(self._read(topic, field) if whole else first.arrays(""), field)
        like = parts if first.whole else field_of(first.arrays(""), field)
        if not parts or [part.shape[1:] for part in parts] != [part.shape[1:] for part in like]:
            raise ValueError(f"messages with another number of values in {field}")
        return parts

    def _sampled(self, topic: str) -> Messages:
        """The first messages of a topic."""
        bag: _Bag = self.opened()
        messages, size = Messages(bag.types), 0
        for message, log, raw in bag.messages(topic):
            messages.add(message, log)
            size += raw
            if len(messages) == _FIRST or size > _FIRST_BYTES:
                return messages
        if not messages:
            raise InputError(self._miscounted(topic, 0))
        return messages

    def _read(self, topic: str, field: str) -> Arrays:
        """The arrays of all messages of a topic, of this field alone where they are too many."""
        bag: _Bag = self.opened()
        first, count = self._first(topic), self._counts[topic]
        key = topic, field if first.nbytes / len(first) * count > self.pool.memory else ""
        if key not in bag.arrays:
            where = f"{self.path}:{self.slash}{topic}"
            messages, size, hint = Messages(bag.types, key[1]), 0, "a part of the bag"
            for message, log, raw in bag.messages(topic):
                messages.add(message, log)
                size += raw
                if size > _BETWEEN:
                    size = 0
                    self.pool.on_progress(min(len(messages) / count, 1.0), 1)
                    self.pool.refuse_larger(messages.nbytes, where, hint)
            self.pool.refuse_larger(messages.nbytes, where, hint)
            if len(messages) != count:
                raise InputError(self._miscounted(topic, len(messages)))
            self.pool.hold(self, messages.nbytes)
            bag = self.opened()
            bag.arrays[key] = messages.arrays(where)
        return bag.arrays[key]

    def _miscounted(self, topic: str, found: int) -> Fault:
        what, where = "not as many messages as the bag says", f"{self.path}:{self.slash}{topic}"
        hint = "a damaged bag; `mcap recover` or `rosbag reindex` counts anew"
        return Fault(what, where, f"{self._counts[topic]} messages", str(found), hint)


class _Bag:
    """A bag that rosbags reads, and the arrays of its topics, or of their fields."""

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
        """The messages of a topic, when they were recorded in ns, and their sizes in bytes."""
        kind = self.topics[topic].msgtype
        if kind is None:
            raise ValueError("messages of several types")
        for _, log, raw in self._reader.messages(self.topics[topic].connections):
            yield self._reader.deserialize(raw, kind), log, len(raw)

    def close(self) -> None:
        """Close it."""
        self._reader.close()
        self.arrays.clear()
