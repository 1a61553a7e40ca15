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
from trajcli.files.ros_messages import Arrays, Recorded

_APART = 1 << 10
"""Messages from one that can be gone back to, to the next."""
_Mark = tuple[int, int]


class Bag:
    """A bag that rosbags reads. ``counts``: the topics, and how many messages it says they have.
    ``last``: the block that was decoded last; ``kept``: topics that were decoded as a whole."""

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
        self._marks: dict[str, list[_Mark]] = {name: [(0, 0)] for name in self.counts}
        self._stream: Iterator[tuple[int, bytes]] = iter(())
        self._next: tuple[str, int] = "", 0

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
        if self._next != (topic, start):
            self._go_to(topic, start)
        messages = list(islice(self._stream, stop - start))
        self._next = topic, start + len(messages)
        more = stop == self.counts[topic] and next(self._stream, None) is not None
        if more or len(messages) < stop - start:
            what, where = "not as many messages as the bag says", f"{self._path}:/{topic}"
            found = "more" if more else str(self._next[1])
            hint = "a damaged bag; `mcap recover` or `rosbag reindex` counts anew"
            raise InputError(Fault(what, where, f"{self.counts[topic]} messages", found, hint))
        return messages

    def _go_to(self, topic: str, number: int) -> None:
        """Have the stream go on with this message, from the nearest mark before it."""
        marks = self._marks[topic]
        mark = marks[bisect_right(marks, number, key=lambda mark: mark[0]) - 1]
        if self._next[0] != topic or not mark[0] <= self._next[1] <= number:
            self._stream, self._next = self._from(topic, mark), (topic, mark[0])
        skipped = sum(1 for _ in islice(self._stream, number - self._next[1]))
        self._next = topic, self._next[1] + skipped

    def _from(self, topic: str, mark: _Mark) -> Iterator[tuple[int, bytes]]:
        """The messages from a mark on; marks others: those recorded later than all before them."""
        marks, (first, latest) = self._marks[topic], mark
        connections = self._topics[topic].connections
        messages = self._reader.messages(connections, start=latest if first else None)
        for number, (_, log, raw) in enumerate(messages, first):
            if log > latest and number >= marks[-1][0] + _APART:
                marks.append((number, log))
            latest = max(latest, log)
            yield log, raw

    def close(self) -> None:
        """Close it."""
        self._reader.close()
        self.kept.clear()
