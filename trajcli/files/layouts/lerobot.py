"""LeRobot, version 2.1 and 3: episodes in Parquet, what holds for all of them in meta/info.json."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from trajcli.errors import Fault, InputError
from trajcli.files.arrays import ArrayFile, text_of
from trajcli.files.layouts.layout import (
    Layout,
    Member,
    Names,
    Pairs,
    Step,
    found_at,
    from_rate,
    read_json_file,
)


class LeRobot(Layout):
    """One file per episode (2.1) or many episodes in a file (3): episode_index says which."""

    name = "lerobot"
    of = "LeRobot"
    actions: ClassVar[Names] = ("action",)
    positions: ClassVar[Names] = ("observation.state",)
    start: ClassVar[Pairs] = (("observation.state", "observation.velocity"),)
    dt_hint = "meta/info.json gives fps; it is not where it belongs: --rate HZ"
    commands_positions = True

    @classmethod
    def fits(cls, file: ArrayFile) -> bool:
        return file.family == "parquet" and {"action", "episode_index"} <= set(file.names())

    def members(self) -> list[Member]:
        index = self.file.require("episode_index").read()
        if index.dtype.kind not in "iu" or index.ndim != 1:
            where = f"{self.file.path}:episode_index"
            raise InputError(Fault("not numbers of episodes", where, "integers", str(index.dtype)))
        frames = self._frames(index)
        begins = np.flatnonzero(np.concatenate([[True], index[1:] != index[:-1]])[: len(index)])
        ends = [*begins[1:].tolist(), len(index)]
        members = [
            Member(f"episode_{int(index[a])}", "", int(a), int(b))
            for a, b in zip(begins, ends, strict=True)
        ]
        if len({member.name for member in members}) < len(members):
            what = "rows of an episode that do not follow each other"
            raise InputError(Fault(what, f"{self.file.path}:episode_index"))
        for member in members:
            rows = frames[member.begin : member.end]
            if len(rows) and (np.diff(rows) != 1).any():
                what = "frames of an episode that do not follow each other"
                where = f"{self.file.path}:frame_index, {member.name}"
                raise InputError(Fault(what, where, "0, 1, 2, ..."))
        return sorted(members, key=lambda member: int(member.name.rpartition("_")[2]))

    def _frames(self, index: Any) -> Any:
        stored = self.file.get("frame_index")
        return stored.read() if stored is not None else np.arange(len(index))

    def find_step(self) -> Step | None:
        return from_rate(self._info.get("fps"), f"{self._info_path} fps")

    def dof_names(self, name: str) -> list[str] | None:
        names = found_at(self._info, "features", name, "names")
        if isinstance(names, dict) and len(names) == 1:  # {"motors": [...]}
            (names,) = names.values()
        texts = isinstance(names, list) and all(isinstance(each, str) for each in names)
        return [text_of(each) for each in names] if texts else None

    @cached_property
    def _info_path(self) -> Path | None:
        folders = list(self.file.path.resolve().parents)[:4]
        paths = (folder / "meta" / "info.json" for folder in folders)
        return next((path for path in paths if path.is_file()), None)

    @cached_property
    def _info(self) -> dict[str, Any]:
        """What holds for all episodes; empty where it is not where it belongs."""
        if self._info_path is None:
            return {}
        self.file.outside.append(str(self._info_path))
        return read_json_file(self._info_path)
