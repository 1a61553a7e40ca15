"""robomimic and those who write as it does: a group data/demo_N for each demonstration."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, ClassVar

from trajcli.errors import Fault, InputError
from trajcli.files.arrays import ArrayFile, text_of
from trajcli.files.layouts.layout import (
    GroupLayout,
    Member,
    Names,
    Pairs,
    Step,
    found_at,
    from_rate,
    positive,
    read_json,
)


class Robomimic(GroupLayout):
    """data/demo_N/actions; filter keys in mask/; the control frequency in data's env_args."""

    name = "robomimic"
    of = "robomimic"
    parent = "data"
    prefix = "demo_"
    positions: ClassVar[Names] = (
        "obs/robot0_joint_pos",
        "obs/joint_states",
        "obs/joint_pos",
    )
    start: ClassVar[Pairs] = (("obs/robot0_joint_pos", "obs/robot0_joint_vel"),)
    dt_hint = "robosuite's default is 20 Hz: --rate 20, if this was recorded with it"

    def find_step(self) -> Step | None:
        where = f"{self.file.path}:/data@env_args"
        table = environment(self.file)
        return from_rate(
            found_at(table, "env_kwargs", "control_freq"), f"{where} env_kwargs.control_freq"
        )

    def chosen(self, key: str) -> list[Member]:
        stored = self.file.get(f"mask/{key}")
        where = f"{self.file.path}:/mask/{key}"
        if stored is None or stored.ndim != 1:
            known = self.file.children("mask") if "mask" in self.file.children() else []
            expected = ", ".join(known) or "a filter key, and the file has none"
            raise InputError(Fault("no such filter key", where, expected, key))
        if stored.dtype.kind not in "SUO":
            raise InputError(Fault("not a list of names", where, "strings", str(stored.dtype)))
        wanted = {text_of(name) for name in stored.read()}
        members = [m for m in self.members() if m.group.rpartition("/")[2] in wanted]
        missing = wanted - {m.group.rpartition("/")[2] for m in members}
        if missing:
            some = ", ".join(sorted(missing)[:5])
            what = "lists trajectories that are not there"
            raise InputError(Fault(what, where, "groups of /data", some))
        return members


class MimicGen(Robomimic):
    """robomimic's, with what the generator did in datagen_info."""

    name = "mimicgen"
    of = "MimicGen"

    @classmethod
    def fits(cls, file: ArrayFile) -> bool:
        return super().fits(file) and "datagen_info" in _in_first(file)


class Libero(Robomimic):
    """robomimic's, with joint positions in obs/joint_states and a task in BDDL."""

    name = "libero"
    of = "LIBERO"
    positions: ClassVar[Names] = ("obs/joint_states",)
    start: ClassVar[Pairs] = (("obs/joint_states", "obs/joint_vel"),)

    @classmethod
    def fits(cls, file: ArrayFile) -> bool:
        attributes = _of_data(file)
        task = "bddl_file_name" in attributes or "problem_info" in attributes
        return super().fits(file) and task


class Robosuite(Robomimic):
    """What robosuite's own collection script writes: simulator states, no observations."""

    name = "robosuite"
    of = "robosuite"

    @classmethod
    def fits(cls, file: ArrayFile) -> bool:
        return super().fits(file) and "repository_version" in _of_data(file)

    def find_step(self) -> Step | None:
        where = f"{self.file.path}:/data@env_info control_freq"
        table = read_json(_of_data(self.file).get("env_info"))
        return super().find_step() or from_rate(found_at(table, "control_freq"), where)


class IsaacLab(Robomimic):
    """Isaac Lab's recorder: robomimic's groups, states of articulations, dt times decimation."""

    name = "isaaclab"
    of = "Isaac Lab"
    positions: ClassVar[Names] = (
        "obs/joint_pos",
        "states/articulation/robot/joint_position",
    )
    start: ClassVar[Pairs] = (
        (
            "initial_state/articulation/robot/joint_position",
            "initial_state/articulation/robot/joint_velocity",
        ),
        ("obs/joint_pos", "obs/joint_vel"),
    )
    dt_hint = "it is the environment's sim.dt times its decimation: --dt SECONDS"

    @classmethod
    def fits(cls, file: ArrayFile) -> bool:
        if not super().fits(file):
            return False
        table = environment(file)
        return "initial_state" in _in_first(file) or "sim_args" in table or table.get("type") == 2

    def find_step(self) -> Step | None:
        table = environment(self.file)
        dt = positive(found_at(table, "sim_args", "dt"))
        decimation = positive(found_at(table, "sim_args", "decimation"))
        if dt is None or decimation is None:
            return super().find_step()
        where = f"{self.file.path}:/data@env_args sim_args.dt × decimation"
        return Step(dt * decimation, f"{where} = {dt:g} s × {decimation:g}")


def environment(file: ArrayFile) -> Mapping[str, Any]:
    """What the file says of the environment it was recorded in."""
    return read_json(_of_data(file).get("env_args"))


def _of_data(file: ArrayFile) -> Mapping[str, Any]:
    return file.attributes("data")


def _in_first(file: ArrayFile) -> list[str]:
    """The names in the first demonstration."""
    first = next((c for c in file.children("data") if re.fullmatch("demo_[0-9]+", c)), None)
    return file.children(f"data/{first}") if first else []
