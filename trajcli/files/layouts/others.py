"""ALOHA, ManiSkill, D4RL, Minari: each with a shape of its own."""

from __future__ import annotations

import itertools
from typing import Any, ClassVar

import numpy as np

from trajcli.errors import Fault, InputError
from trajcli.files.arrays import ArrayFile, StoredArray
from trajcli.files.layouts.layout import (
    GroupLayout,
    Layout,
    Member,
    Names,
    Pairs,
    Step,
    found_at,
    from_rate,
    read_json_file,
)


class Aloha(Layout):
    """ALOHA and ACT: the file is one episode; actions are joint positions to go to."""

    name = "aloha"
    of = "ALOHA / ACT"
    actions: ClassVar[Names] = ("action",)
    positions: ClassVar[Names] = ("observations/qpos",)
    start: ClassVar[Pairs] = (("observations/qpos", "observations/qvel"),)
    dt_hint = "ALOHA records at 50 Hz: --rate 50, if this was recorded so"
    commands_positions = True

    @classmethod
    def fits(cls, file: ArrayFile) -> bool:
        names = file.children()
        return "action" in names and "observations" in names and "qpos" in file.children(
            "observations"
        )  # fmt: skip

    def members(self) -> list[Member]:
        return [Member(self.file.path.stem)]


class ManiSkill(GroupLayout):
    """traj_N; observations and states have a row more than actions. The rest is in a .json."""

    name = "maniskill"
    of = "ManiSkill"
    prefix = "traj_"
    positions: ClassVar[Names] = ("obs/agent/qpos",)
    start: ClassVar[Pairs] = (("obs/agent/qpos", "obs/agent/qvel"),)
    dt_hint = "ManiSkill's default is 20 Hz: --rate 20, if this was recorded with it"

    def __init__(self, file: ArrayFile) -> None:
        super().__init__(file)
        self._beside = file.path.with_suffix(".json")
        self._table = read_json_file(self._beside)
        if self._table:
            file.outside.append(str(self._beside))
        mode = found_at(self._table, "env_info", "env_kwargs", "control_mode")
        self.commands_positions = mode == "pd_joint_pos"

    def find_step(self) -> Step | None:
        for path in (
            ("env_info", "env_kwargs", "control_freq"),
            ("env_info", "env_kwargs", "sim_config", "control_freq"),
            ("env_info", "control_freq"),
        ):
            found = from_rate(found_at(self._table, *path), f"{self._beside} {'.'.join(path)}")
            if found is not None:
                return found
        return None


class D4rl(Layout):
    """Flat arrays; a trajectory ends where terminals or timeouts is set."""

    name = "d4rl"
    of = "D4RL"
    positions: ClassVar[Names] = ("infos/qpos", "observations")
    start: ClassVar[Pairs] = (("infos/qpos", "infos/qvel"),)
    dt_hint = "it is the environment's own: --dt SECONDS"

    @classmethod
    def fits(cls, file: ArrayFile) -> bool:
        return {"actions", "observations", "terminals"} <= set(file.children())

    def members(self) -> list[Member]:
        rows = self.file.require("actions").shape[0]
        ends = np.zeros(rows, bool)
        for name in ("terminals", "timeouts"):
            stored = self.file.get(name)
            if stored is not None:
                ends |= self._flags(stored, rows)
        edges = [0, *(np.flatnonzero(ends) + 1).tolist()]
        edges += [rows] if edges[-1] < rows else []
        pairs = enumerate(itertools.pairwise(edges))
        return [Member(f"trajectory_{i}", "", a, b) for i, (a, b) in pairs]

    def _flags(self, stored: StoredArray, rows: int) -> Any:
        if stored.shape not in ((rows,), (rows, 1)) or stored.dtype.kind not in "biuf":
            expected = f"[{rows}] flags, one per row of actions"
            found = f"{list(stored.shape)} {stored.dtype}"
            raise InputError(Fault("not the ends of trajectories", stored.where, expected, found))
        return np.asarray(stored.read()).reshape(rows) != 0


class Minari(GroupLayout):
    """episode_N; actions may be a group, of which one array is read."""

    name = "minari"
    of = "Minari"
    prefix = "episode_"
    positions: ClassVar[Names] = ("observations", "infos/qpos")
    start: ClassVar[Pairs] = (("infos/qpos", "infos/qvel"),)
    dt_hint = "it is the environment's own: --dt SECONDS"

    def require_actions(self, member: Member) -> StoredArray:
        group = f"{member.group}/actions"
        if not self.file.has_group(group):
            return super().require_actions(member)
        leaves = self.file.children(group)
        if len(leaves) == 1:
            return self.file.require(f"{group}/{leaves[0]}")
        found = ", ".join(leaves) or "an empty group"
        hint = f"{self.file.path}:actions/{leaves[0] if leaves else 'NAME'} reads one of them"
        raise InputError(Fault("actions in several arrays", f"{self.file.path}:/{group}",
                               "one array", found, hint))  # fmt: skip
