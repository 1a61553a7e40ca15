"""The families of robot data: who lays files out how. Where several fit, the first is nearest."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from trajcli.errors import Fault, InputError, UsageError
from trajcli.files.arrays import ArrayFile, Dataset, json_object
from trajcli.files.layout import (
    Layout,
    Member,
    Names,
    Pairs,
    entry,
    environment,
    from_rate,
)
from trajcli.files.row_layouts import D4rl, LeRobot, Replay, Table
from trajcli.files.time import Time, positive


class Robomimic(Layout):
    """data/demo_N/actions; filter keys in mask/; the control frequency in data's env_args."""

    name = "robomimic"
    of = "robomimic"
    groups = "data/demo_"
    positions: ClassVar[Names] = ("obs/robot0_joint_pos", "obs/joint_states", "obs/joint_pos")
    start: ClassVar[Pairs] = (("obs/robot0_joint_pos", "obs/robot0_joint_vel"),)
    rates = (("env_kwargs", "control_freq"),)
    dt_hint = "robosuite's default is 20 Hz: --rate 20, if this was recorded with it"

    def chosen(self, key: str) -> list[Member]:
        stored = self.file.get(f"mask/{key}")
        where = f"{self.file.path}:/mask/{key}"
        if stored is None or stored.ndim != 1:
            known = self.file.children("mask") if "mask" in self.file.children() else []
            expected = ", ".join(known) or "a filter key, and the file has none"
            raise InputError(Fault("no such filter key", where, expected, key))
        if stored.dtype.kind not in "SUO":
            raise InputError(Fault("not a list of names", where, "strings", str(stored.dtype)))
        wanted = set(stored.texts())
        members = [m for m in self.members() if m.group.rpartition("/")[2] in wanted]
        missing = wanted - {m.group.rpartition("/")[2] for m in members}
        if missing:
            names = ", ".join(sorted(missing)[:5])
            what = "lists trajectories that are not there"
            raise InputError(Fault(what, where, "groups of /data", names))
        return members


class Libero(Robomimic):
    """robomimic's, with joint positions in obs/joint_states and a task in BDDL."""

    name = "libero"
    of = "LIBERO"
    marks = ("bddl_file_name", "problem_info")
    positions = ("obs/joint_states",)
    start = (("obs/joint_states", "obs/joint_vel"),)


class MimicGen(Robomimic):
    """robomimic's, with what the generator did in datagen_info."""

    name = "mimicgen"
    of = "MimicGen"
    marks = ("datagen_info",)


class Robosuite(Robomimic):
    """What robosuite's own collection script writes: simulator states, no observations."""

    name = "robosuite"
    of = "robosuite"
    marks = ("repository_version",)

    def find_step(self) -> Time | None:
        about = json_object(self.file.attributes("data").get("env_info"))
        where = f"{self.file.path}:/data@env_info"
        return super().find_step() or from_rate(about, ("control_freq",), where)


class IsaacLab(Robomimic):
    """Isaac Lab's recorder: robomimic's groups, states of articulations, dt times decimation."""

    name = "isaaclab"
    of = "Isaac Lab"
    marks = ("initial_state", "sim_args")
    positions = ("obs/joint_pos", "states/articulation/robot/joint_position")
    start = (
        (
            "initial_state/articulation/robot/joint_position",
            "initial_state/articulation/robot/joint_velocity",
        ),
        ("obs/joint_pos", "obs/joint_vel"),
    )
    dt_hint = "it is the environment's sim.dt times its decimation: --dt SECONDS"

    @classmethod
    def fits(cls, file: ArrayFile) -> bool:
        if super().fits(file):
            return True
        return environment(file).get("type") == 2 and Robomimic.fits(file)

    def find_step(self) -> Time | None:
        where, facts = self.facts()
        dt, decimation = (positive(entry(facts, ("sim_args", n))) for n in ("dt", "decimation"))
        if dt is None or decimation is None:
            return super().find_step()
        source = f"{where} sim_args.dt × decimation = {dt:g} s × {decimation:g}"
        return Time.of(source, dt * decimation)


class Aloha(Layout):
    """ALOHA and ACT: the file is one episode; actions are joint positions to go to."""

    name = "aloha"
    of = "ALOHA / ACT"
    holds = ("action", "observations/qpos")
    actions = ("action",)
    positions = ("observations/qpos",)
    start = (("observations/qpos", "observations/qvel"),)
    dt_hint = "ALOHA records at 50 Hz: --rate 50, if this was recorded so"
    commands_positions = True


class ManiSkill(Layout):
    """traj_N; observations and states have a row more than actions. The rest is in a .json."""

    name = "maniskill"
    of = "ManiSkill"
    groups = "traj_"
    positions = ("obs/agent/qpos",)
    start = (("obs/agent/qpos", "obs/agent/qvel"),)
    rates = (
        ("env_info", "env_kwargs", "control_freq"),
        ("env_info", "env_kwargs", "sim_config", "control_freq"),
        ("env_info", "control_freq"),
    )
    dt_hint = "ManiSkill's default is 20 Hz: --rate 20, if this was recorded with it"

    def __init__(self, file: ArrayFile) -> None:
        super().__init__(file)
        self._beside = file.path.with_suffix(".json")
        self._table = file.beside(self._beside.name)
        mode = entry(self._table, ("env_info", "env_kwargs", "control_mode"))
        self.commands_positions = mode == "pd_joint_pos"

    def facts(self) -> tuple[str, Mapping[str, Any]]:
        return str(self._beside), self._table


class Minari(Layout):
    """episode_N; actions may be a group, of which one array is read."""

    name = "minari"
    of = "Minari"
    groups = "episode_"
    positions = ("observations", "infos/qpos")
    start = (("infos/qpos", "infos/qvel"),)
    dt_hint = "it is the environment's own: --dt SECONDS"

    def actions_of(self, member: Member) -> tuple[str, Dataset]:
        group = f"{member.group}/actions"
        if not self.file.has_group(group):
            return super().actions_of(member)
        leaves = self.file.children(group)
        if len(leaves) == 1:
            return f"{group}/{leaves[0]}", self.file.require(f"{group}/{leaves[0]}")
        where, found = f"{self.file.path}:/{group}", ", ".join(leaves) or "an empty group"
        hint = f"{self.file.path}:actions/{leaves[0] if leaves else 'NAME'} reads one of them"
        raise InputError(Fault("actions in several arrays", where, "one array", found, hint))


_FAMILIES: tuple[type[Layout], ...] = (
    Libero, MimicGen, Robosuite, IsaacLab, Robomimic, Aloha, ManiSkill, D4rl, Minari, LeRobot,
    Replay, Table,
)  # fmt: skip
LAYOUTS = {family.name: family for family in _FAMILIES}
"""By name; where several fit, the first is the nearest."""

PLAIN = "plain"
"""--layout plain: arrays with names, and no family."""


def layout_of(file: ArrayFile, wanted: str | None = None) -> Layout | None:
    """The layout of a file: the one that is wanted, or the one that fits; None for plain arrays.

    Raises UsageError for a layout that is unknown.
    """
    if wanted is not None and wanted not in (*LAYOUTS, PLAIN):
        expected = ", ".join((*LAYOUTS, PLAIN))
        raise UsageError(Fault("unknown layout", "--layout", expected, repr(wanted)))
    if wanted == PLAIN or file.family in ("npy", "npz"):
        return None
    if wanted is not None:
        return LAYOUTS[wanted](file)
    return next((kind(file) for kind in LAYOUTS.values() if kind.fits(file)), None)
