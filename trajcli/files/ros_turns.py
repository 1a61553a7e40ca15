"""Topics of which only all messages together are arrays: joints in turns, planned trajectories."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from trajcli.files.ros_fields import Arrays, nanoseconds

_POINTS = {"positions": "position", "velocities": "velocity", "accelerations": "acceleration"}


class Alike(NamedTuple):
    """Messages of the same joints whose fields have equally many numbers: which, and these."""

    which: npt.NDArray[np.int64]
    joints: tuple[str, ...]
    arrays: Arrays


def in_turns(parts: Sequence[Alike], count: int) -> Arrays:
    """Arrays [T, joints] of messages that have some joints each; T are those of the joints that
    come most often, from when all have come. NaN where a joint has no such field."""
    parts = sorted(parts, key=lambda one: int(one.which[0]))
    names = list(dict.fromkeys(name for one in parts for name in one.joints))
    often: Counter[frozenset[str]] = Counter()
    for one in parts:
        often[frozenset(one.joints)] += len(one.which)
    ((most, _),) = often.most_common(1)
    begin = max(min(int(p.which[0]) for p in parts if name in p.joints) for name in names)
    rows = np.sort(np.concatenate([p.which for p in parts if frozenset(p.joints) == most]))
    rows = rows[rows >= begin]
    arrays: Arrays = {"joint_names": np.array(names)}
    for field in dict.fromkeys(name for one in parts for name in one.arrays):
        held = [one for one in parts if field in one.arrays]
        if field.endswith("times"):
            stamps = np.zeros(count, np.int64)
            for one in held:
                stamps[one.which] = one.arrays[field]
            arrays[field] = stamps[rows]
        elif all(one.arrays[field].shape[1] == len(one.joints) for one in held):
            table, since = np.full((count, len(names)), np.nan), np.zeros((count, len(names)), int)
            for one in held:
                at = one.which[:, None], [names.index(name) for name in one.joints]
                table[at], since[at] = one.arrays[field], one.which[:, None]
            np.maximum.accumulate(since, axis=0, out=since)
            arrays[field] = np.take_along_axis(table, since[rows], 0)
    return arrays


def planned(message: Any) -> Arrays:
    """The arrays of a planned trajectory."""
    arrays = {
        name: np.stack([getattr(point, field) for point in message.points])
        for field, name in _POINTS.items()
        if message.points and len(getattr(message.points[0], field))
    }
    times = np.array([nanoseconds(point.time_from_start) for point in message.points])
    names = np.array(message.joint_names)
    return arrays | {"times": times, "header_times": times, "joint_names": names}
