"""Reading ROS 1 and ROS 2 bags (.bag, .mcap, .db3): topics are groups, fields of messages arrays.

``times`` are those of the headers, where messages have them; ``log_times`` are when messages were
recorded. Both are in nanoseconds.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from trajcli.errors import Fault, InputError
from trajcli.files.arrays import ArrayFile, Dataset
from trajcli.files.file_bytes import OpenFiles
from trajcli.files.ros_bag import Bag
from trajcli.files.ros_messages import Arrays, Decoder

_FIRST = 64
"""Messages that show whether the joints of a topic come in turns."""
_TIMES = ("times", "log_times")
_BLOCK, _BLOCK_BYTES = 1 << 13, 1 << 24
"""Messages that are decoded at once, and their bytes."""


class RosFile(ArrayFile):
    """A bag, which is read in blocks of messages.

    A row is a message, and any field of numbers an array: "imu/linear_acceleration.x". Where the
    joints of a JointState come in turns, rows are the messages of those that come most often, and
    the others are as they were last. A JointTrajectory is a trajectory, in a group of its own.
    Both are kept as a whole until the bag is closed.
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
        self._decoder = cache(lambda topic: self.safely(topic, lambda: self._learn(topic)))
        self._like = cache(lambda *where: self.safely(where[0], lambda: self._first(*where)))
        self._counts: dict[str, int] = self.opened().counts  # the last, as it may fail

    def begin(self) -> Bag:
        return Bag(self.path)

    def names(self) -> list[str]:
        return [f"{topic}/{name}" for topic in self._counts for name in self._like(topic, "")]

    def get(self, name: str) -> Dataset | None:
        name = name.strip("/")
        topic = max((t for t in self._counts if name.startswith(f"{t}/")), key=len, default="")
        field = name[len(topic) + 1 :]
        path = field if "." in field else ""
        like = self._like(topic, path).get(field) if topic else None
        if like is None:
            return None
        each = not self._decoder(topic).whole and field != "joint_names"
        shape = (self._counts[topic], *like.shape[1:]) if each else like.shape

        def read_rows(start: int, stop: int) -> Any:
            read = self._rows if each else self._whole
            return self.safely(topic, lambda: read(topic, path, field, start, stop))

        units = {"units": "ns"} if field.endswith("times") else {}
        return Dataset(f"{self.path}:/{name}", shape, like.dtype, read_rows, units, "messages")

    def _learn(self, topic: str) -> Decoder:
        bag: Bag = self.opened()
        ((_, _, raw),) = bag.messages(topic, 0, 1)
        some = max(1, min(_FIRST, _BLOCK_BYTES // max(len(raw), 1), self._counts[topic]))
        first = bag.messages(topic, 0, some)
        return Decoder(first, *bag.format(topic))

    def _first(self, topic: str, path: str) -> Arrays:
        """The arrays of the first message; of a topic that is decoded as a whole, all of it, as
        arrays without their values."""
        bag, decoder = self.opened(), self._decoder(topic)
        if not decoder.whole:
            return decoder.decode(bag.messages(topic, 0, 1), path)
        arrays = self._all(topic, path)
        empty = {name: np.zeros((), values.dtype) for name, values in arrays.items()}
        return {name: np.broadcast_to(empty[name], arrays[name].shape) for name in arrays}

    def _rows(self, topic: str, path: str, field: str, start: int, stop: int) -> Any:
        """Rows of a field, decoded in blocks. The last block is kept, for the fields beside it,
        and both times of all messages."""
        bag, count = self.opened(), self._counts[topic]
        if (topic, field) in bag.times:
            return bag.times[topic, field][start:stop]
        begin, stop, _ = slice(start, stop).indices(count)
        fields = _TIMES if field in _TIMES and (begin, stop) == (0, count) else (field,)
        like = {name: self._like(topic, path)[name] for name in fields}
        rows = {
            name: np.empty((max(stop - begin, 0), *one.shape[1:]), one.dtype)
            for name, one in like.items()
        }
        step = max(1, min(_BLOCK, _BLOCK_BYTES // max(1, self._decoder(topic).size)))
        for first in range(begin, stop, step):
            last = min(first + step, stop)
            key = topic, path, first, last
            if bag.last[0] != key:
                messages = bag.messages(topic, first, last)
                bag.last = key, self._decoder(topic).decode(messages, path)
            for name in fields:
                rows[name][first - begin : last - begin] = bag.last[1][name]
        if len(fields) > 1:
            bag.times.update({(topic, name): rows[name] for name in fields})
        return rows[field]

    def _whole(self, topic: str, path: str, field: str, start: int, stop: int) -> Any:
        if field == "joint_names" and not self._decoder(topic).whole:
            return self._like(topic, path)[field][start:stop]
        return self._all(topic, path)[field][start:stop]

    def _all(self, topic: str, path: str) -> Arrays:
        """All of a topic that is decoded as a whole."""
        bag: Bag = self.opened()
        if (topic, path) not in bag.kept:
            size = self._counts[topic] * self._decoder(topic).size
            self.pool.refuse_larger(size, f"{self.path}:/{topic}", "a part of the bag")
            messages = bag.messages(topic, 0, self._counts[topic])
            arrays = self._decoder(topic).decode(messages, path)
            self.pool.hold(self, sum(values.nbytes for values in arrays.values()))
            bag = self.opened()
            bag.kept[topic, path] = arrays
        return bag.kept[topic, path]
