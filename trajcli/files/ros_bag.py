"""An open ROS bag, and its messages by their numbers."""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

from trajcli.errors import Fault, InputError
from trajcli.files.file_bytes import open_regular
from trajcli.files.ros_fields import Arrays
from trajcli.files.ros_messages import Recorded

_APART = 1 << 10
"""Messages from one that can be gone back to, to the next."""
_PLACES = 8
"""Times of a bag from which messages are taken as samples."""
_Mark = tuple[int, int | None]
"""The number of a message, and when it was recorded; None of the first."""


class Bag:
    """A bag that rosbags reads. ``counts``: the topics, and how many messages it says they have.
    ``last``: the block that was decoded last; ``kept``: topics that were decoded as a whole;
    ``times``: of topics of which all were needed."""

    def __init__(self, path: Path) -> None:
        from rosbags.highlevel import AnyReader
        from rosbags.typesys import Stores, get_typestore

        os.close(open_regular(path))
        store = None if path.suffix == ".bag" else get_typestore(Stores.LATEST)
        self._path, self._reader = path, AnyReader([path], default_typestore=store)
        self._reader.open()
        topics = self._reader.topics.items()
        self._topics = {name.strip("/"): topic for name, topic in topics if topic.msgcount}
        self.counts = {name: int(topic.msgcount) for name, topic in self._topics.items()}
        self.last: tuple[Any, Arrays] = None, {}
        self.kept: dict[tuple[str, str], Arrays] = {}
        self.times: dict[tuple[str, str], Any] = {}
        self._marks: dict[str, list[_Mark]] = {name: [(0, None)] for name in self.counts}
        self._stream: Iterator[tuple[Any, int, bytes]] = iter(())
        # the topic and the number of the next message, and when the last was recorded
        self._next: tuple[str, int, int | None] = "", 0, None

    def format(
        self, topic: str
    ) -> tuple[Callable[..., Any], Callable[..., Any], Mapping[str, Any]]:
        """What makes messages of bytes, bytes of messages, and the fields of all types."""
        kind, store = self._topics[topic].msgtype, self._reader.typestore
        if kind is None:
            raise ValueError("messages of several types")
        names = ("deserialize_cdr", "serialize_cdr")
        if not self._reader.is2:
            names = ("deserialize_ros1", "serialize_ros1")
        read, write = (getattr(store, name) for name in names)
        return lambda raw: read(raw, kind), lambda message: write(message, kind), store.fielddefs

    def messages(self, topic: str, start: int, stop: int) -> Recorded:
        """Messages start..stop of a topic.

        Raises InputError where the topic has more or fewer messages than the bag says.
        """
        marks, (at, number, _) = self._marks[topic], self._next
        mark = marks[bisect_right(marks, start, key=lambda mark: mark[0]) - 1]
        if at != topic or not mark[0] <= number <= start:
            connections = self._topics[topic].connections
            self._stream = iter(self._reader.messages(connections, start=mark[1]))
            self._next = topic, mark[0], mark[1]
        step = min(_APART, max(1, stop - start))  # of large messages few are held
        while self._next[1] < start and self._read(min(step, start - self._next[1])):
            pass
        messages = self._read(stop - start) if self._next[1] == start else []
        more = stop == self.counts[topic] and next(self._stream, None) is not None
        if more or len(messages) < stop - start:
            what, where = "not as many messages as the bag says", f"{self._path}:/{topic}"
            found = "more" if more else str(self._next[1])
            hint = "a damaged bag; `mcap recover` or `rosbag reindex` counts anew"
            raise InputError(Fault(what, where, f"{self.counts[topic]} messages", found, hint))
        return messages

    def later(self, topic: str, count: int) -> list[tuple[Any, int, bytes]]:
        """About so many messages of a topic, spread over the time of the bag."""
        begin, end = self._reader.start_time, self._reader.end_time
        connections, few = self._topics[topic].connections, -(-count // _PLACES)
        starts = (begin + (end - begin) * k // _PLACES for k in range(1, _PLACES))
        return [
            message
            for start in starts
            for message in islice(self._reader.messages(connections, start=start), few)
        ]

    def _read(self, count: int) -> Recorded:
        """The next messages. One that was recorded later than all before it may become a mark."""
        topic, number, latest = self._next
        messages, marks = list(islice(self._stream, count)), self._marks[topic]
        for k in range(max(0, marks[-1][0] + _APART - number), len(messages)):
            log = messages[k][1]
            if log > (messages[k - 1][1] if k else latest or 0):
                marks.append((number + k, log))
                break
        last = messages[-1][1] if messages else latest
        self._next = topic, number + len(messages), last
        return messages

    def close(self) -> None:
        """Close it."""
        self._reader.close()
        self.kept.clear()
