"""Trajectories as features of a copy of a LeRobot data set.

Frame k of an episode has row k of its trajectory. A row after those, the state after the last
action, has no frame.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from statistics import mode
from typing import Any

import numpy as np

from trajcli.errors import Fault, InputError, OutputError, raise_if_any
from trajcli.files.atomic_output import HiddenFolder, reserve
from trajcli.files.lerobot_copy import LeRobotCopy
from trajcli.files.opening import Files
from trajcli.files.refusals import os_failures
from trajcli.views.export import Selection


def write(chosen: Selection, files: Files, folder: Path, out: Path) -> None:
    """Writes a copy of a data set with the trajectories as features; calls their on_progress before
    each block and file, which may raise.

    Raises InputError where they do not match its episodes or it is not as LeRobot has it,
    OutputError where OUT is not new or cannot be written; OUT is then as it was.
    """
    if os.path.lexists(out) or Path(os.path.realpath(out)).is_relative_to(folder.resolve()):
        hint = "another name: no folder is ever replaced"
        raise OutputError(Fault("not a new folder outside of DIR", str(out), hint=hint))
    copy = LeRobotCopy(files, folder)
    if taken := sorted(copy.names.intersection(f"trajcli.{name}" for name in chosen.arrays)):
        raise InputError(Fault("features there already", str(folder), found=", ".join(taken)))
    frames = _frames_of(chosen, copy)
    hidden = HiddenFolder(out, overwrite=False)
    try:
        with os_failures(out):
            hidden.make()
            copy.features = _features(chosen, frames, hidden.path)
            copy.dofs = chosen.batch.first.joint_names
            copy.write(hidden.data, partial(chosen.on_progress, len(frames), len(frames)))
            files.sources.require_unchanged()
            hidden.publish()
    finally:
        hidden.close()


def _frames_of(chosen: Selection, copy: LeRobotCopy) -> dict[int, slice]:
    """Returns the frames of each trajectory by its number.

    Trajectories named episode_3, … are those episodes, others the episodes in their order.
    """
    batch, episodes = chosen.batch, copy.episodes
    names = {number: batch.name(number).rpartition("/")[2] for number in chosen.numbers}
    named = any(name.startswith("episode_") for name in names.values())
    order = list(names.values()) if named else list(episodes)
    if len(order) != len(names) or sorted(order) != sorted(episodes):
        expected, found = f"{len(episodes)} episodes of {copy.folder}", f"{len(names)} trajectories"
        raise InputError(Fault("other trajectories than episodes", batch.path, expected, found))
    frames = {number: episodes[k] for number, k in zip(names, order, strict=True)}
    counts = {number: part.stop - part.start for number, part in frames.items()}
    more = mode(int(batch.lengths[number]) - count for number, count in counts.items()) == 1
    expected = "a row for each of {} frames" + ", and one for the state after them" * more
    raise_if_any(
        Fault("other rows than frames", f"{batch.path}, {names[k]}", expected.format(count), rows)
        for k, count in counts.items()
        if (rows := str(batch.lengths[k])) != str(count + more)
    )
    return frames


def _features(chosen: Selection, frames: Mapping[int, slice], folder: Path) -> dict[str, Any]:
    """Gathers the rows of all frames in files, as arrays [frames, D]."""
    shape = max(part.stop for part in frames.values()), len(chosen.batch.dofs)
    features = {}
    for k, (name, dtype) in enumerate(chosen.arrays.items()):
        path = folder / str(k)
        path.touch()
        reserve(path, shape[0] * shape[1] * dtype.itemsize)
        features[name] = np.memmap(path, dtype, "r+", shape=shape)
    for block in chosen.blocks():
        for name, values in features.items():
            for number, rows in zip(
                block.numbers.tolist(), chosen.values(block, name), strict=True
            ):
                values[frames[number]] = rows[: len(values[frames[number]])]
    return {f"trajcli.{name}": values for name, values in features.items()}
