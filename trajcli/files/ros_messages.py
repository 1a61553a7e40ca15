"""The messages of a ROS topic as arrays: fields of numbers, joints by their names. No files."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from trajcli.errors import Fault, InputError
from trajcli.files.ros_fields import Arrays, Template, fields_of, joints_of
from trajcli.files.ros_turns import Alike, in_turns, planned

Recorded = Sequence[tuple[Any, int, bytes]]
"""What rosbags gives of messages: the connection, when they were recorded in ns, their bytes."""

_MOST_TEMPLATES = 32


class Decoder:
    """Makes arrays of the messages of a topic. Those that differ from one before them in numbers
    alone are read by where that has these, others are deserialized one by one.

    ``whole``: the joints come in turns, or messages are trajectories, so that only all messages
    together are arrays. ``size``: bytes of the first message.
    """

    def __init__(
        self,
        samples: Recorded,
        deserialize: Callable[[bytes], Any],
        serialize: Callable[[Any], Any],
        types: Mapping[str, Any],
    ) -> None:
        """samples: the first messages of the topic, and others. types: the fields of all types."""
        self._deserialize, self._serialize, self._types = deserialize, serialize, types
        self._templates: list[Template] = []
        self.size = len(samples[0][2])
        first = deserialize(samples[0][2])
        self._plans = hasattr(first, "points") and hasattr(first, "joint_names")
        self._joints = joints_of(first)
        sets = {frozenset(joints_of(deserialize(raw))) for _, _, raw in samples}
        self.whole = self._plans or len(sets) > 1
        few = [] if self.whole else [int(one.which[0]) for one in self._alike(samples, "")]
        self._samples = [samples[k] for k in sorted(few)]

    def like(self, path: str = "") -> Arrays:
        """Arrays of one row, of the types and sizes of all fields that a sample has."""
        arrays: Arrays = {}
        for one in self._alike(self._samples, path):
            arrays |= {
                name: values[:1] for name, values in one.arrays.items() if name not in arrays
            }
        return arrays | ({"joint_names": np.array(self._joints)} if self._joints else {})

    def rows(self, messages: Recorded, like: Arrays, path: str, where: str, number: int) -> Arrays:
        """Arrays [n, D] as in ``like``, NaN in messages without the field, without those fields
        that have another number of values in one.

        Raises InputError for messages of other joints; number: of the first, for messages.
        """
        rows = {
            name: np.full(
                (len(messages), *one.shape[1:]), np.nan if one.dtype.kind == "f" else 0, one.dtype
            )
            for name, one in like.items()
            if name != "joint_names"
        }
        for which, joints, arrays in self._alike(messages, path):
            if set(joints) != set(self._joints):
                place = f"{where}, message {number + int(which[0])}"
                what, expected = "messages of other joints", ", ".join(self._joints)
                hint = "cut the bag there: the first and some later messages do not have them"
                raise InputError(Fault(what, place, expected, ", ".join(joints) or "none", hint))
            order = [joints.index(name) for name in self._joints]
            for name in list(rows):
                values = arrays.get(name)
                if values is None and rows[name].dtype.kind == "f":
                    continue
                if values is None or values.shape[1:] != rows[name].shape[1:]:
                    del rows[name]
                    continue
                of_joints = joints != self._joints and values.shape[1:] == (len(joints),)
                rows[name][which] = values[:, order] if of_joints else values
        return rows

    def all(self, blocks: Iterable[Recorded], path: str) -> Arrays:
        """Arrays of all messages of a topic that is read as a whole."""
        if self._plans:
            every = (self._deserialize(raw) for block in blocks for _, _, raw in block)
            return {
                f"{number}/{name}": part
                for number, message in enumerate(every)
                for name, part in planned(message).items()
            }
        parts, count = [], 0
        for block in blocks:
            alike = self._alike(block, path)
            parts += [one._replace(which=one.which + count) for one in alike]
            count += len(block)
        return in_turns(parts, count)

    def _alike(self, messages: Recorded, path: str) -> Iterator[Alike]:
        """The messages by what they are alike in."""
        sizes = np.array([len(raw) for _, _, raw in messages])
        logs = np.array([log for _, log, _ in messages], np.int64)
        rest, tried = np.arange(len(messages)), 0
        while len(rest) and (tried < len(self._templates) or self._learn(messages[rest[0]])):
            template, tried = self._templates[tried], tried + 1
            same = rest[sizes[rest] == template.size]
            raw = b"".join(messages[k][2] for k in same.tolist())
            table = np.frombuffer(raw, np.uint8).reshape(-1, template.size)
            fits = template.fits(table)
            which = same[fits]
            if len(which):
                table = table if fits.all() else table[fits]
                yield Alike(which, template.joints, template.arrays(table, logs[which], path))
                rest = np.setdiff1d(rest, which, assume_unique=True)
        others: dict[Any, list[tuple[int, Arrays]]] = {}
        for k in rest.tolist():
            message = self._deserialize(messages[k][2])
            fields = fields_of(message, messages[k][1], path)
            sizes_of = tuple((name, values.shape) for name, values in fields.items())
            others.setdefault((joints_of(message), sizes_of), []).append((k, fields))
        for (joints, sizes_of), few in others.items():
            stacked = {name: np.stack([one[name] for _, one in few]) for name, _ in sizes_of}
            yield Alike(np.array([k for k, _ in few]), joints, stacked)

    def _learn(self, recorded: tuple[Any, int, bytes]) -> bool:
        """Whether messages like this one can be read by their bytes from now on."""
        _, log, raw = recorded
        if len(self._templates) == _MOST_TEMPLATES:
            return False
        message = self._deserialize(raw)
        template = Template(message, raw, self._serialize, self._types)
        table, one = np.frombuffer(raw, np.uint8)[None], fields_of(message, log)
        arrays = template.arrays(table, np.array([log])) if template.fits(table).all() else {}
        same = list(arrays) == list(one) and all(
            arrays[name][0].tobytes() == values.astype(arrays[name].dtype).tobytes()
            for name, values in one.items()
        )
        if same:
            self._templates.append(template)
        return same
