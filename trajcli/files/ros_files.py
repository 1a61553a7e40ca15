"""Reading ROS 1 and ROS 2 bags (.bag, .mcap, .db3): topics are groups, fields of messages arrays.

``times`` are those of the headers, where messages have them; ``log_times`` are when messages were
recorded, and ``header_times``, which is not listed, those of headers alone. In nanoseconds.
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
from trajcli.files.ros_fields import Arrays, joints_of
from trajcli.files.ros_messages import Decoder

_FIRST = 64
"""Messages that show whether the joints of a topic come in turns."""
_TIMES = ("times", "log_times", "header_times")
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
        names = (f"{topic}/{name}" for topic in self._counts for name in self._like(topic, ""))
        return [name for name in names if not name.endswith("/header_times")]

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
        samples, form = [*bag.messages(topic, 0, some)], bag.format(topic)
        if joints_of(form[0](raw)):
            samples += bag.later(topic, _FIRST)
        return Decoder(samples, *form)

    def _first(self, topic: str, path: str) -> Arrays:
        """The arrays of one message; of a topic that is decoded as a whole, all of it, as arrays
        without their values."""
        decoder = self._decoder(topic)
        if not decoder.whole:
            return decoder.like(path)
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
        decoder, like = self._decoder(topic), self._like(topic, path)
        every = field in _TIMES and (begin, stop) == (0, count)
        fields = [name for name in like if name in _TIMES] if every else [field]
        rows = {
            name: np.empty((max(stop - begin, 0), *like[name].shape[1:]), like[name].dtype)
            for name in fields
        }
        step = self._step(topic)
        for first in range(begin, stop, step):
            last = min(first + step, stop)
            key = topic, path, first, last
            if bag.last[0] != key:
                messages, where = bag.messages(topic, first, last), f"{self.path}:/{topic}"
                bag.last = key, decoder.rows(messages, like, path, where, first)
            for name in fields:
                if name not in bag.last[1]:
                    raise ValueError(f"messages with another number of values in {name}")
                rows[name][first - begin : last - begin] = bag.last[1][name]
        if every:
            bag.times.update({(topic, name): rows[name] for name in fields})
        return rows[field]

    def _step(self, topic: str) -> int:
        """Messages that are decoded at once."""
        return max(1, min(_BLOCK, _BLOCK_BYTES // max(1, self._decoder(topic).size)))

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
            step = self._step(topic)
            blocks = (
                bag.messages(topic, first, min(first + step, self._counts[topic]))
                for first in range(0, self._counts[topic], step)
            )
            arrays = self._decoder(topic).all(blocks, path)
            self.pool.hold(self, sum(values.nbytes for values in arrays.values()))
            bag = self.opened()
            bag.kept[topic, path] = arrays
        return bag.kept[topic, path]
