"""The layouts of robot data, the most specific first."""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping
from functools import cached_property
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np

from trajcli.errors import Fault, InputError, UsageError
from trajcli.files.catalogue import Catalogue, Dataset, candidates, json_object, text_of, unlikeness
from trajcli.files.companions import BESIDE, label_edges
from trajcli.files.conversion import as_batch, stated_unit
from trajcli.files.layout import (
    LEAVE_OUT,
    Layout,
    Member,
    Names,
    Pairs,
    entry,
    environment,
    from_rate,
)
from trajcli.files.quantities import POSITIONS, QUANTITIES, STATES, role
from trajcli.files.source import Place, natural_key
from trajcli.files.tables import TRAJECTORIES
from trajcli.files.time import JUMP, Time, positive
from trajcli.units import parse_units

# Columns of a table that are read by default.
_NAMES = ("actions", "action", *QUANTITIES)


class Robomimic(Layout):
    """data/demo_N/actions, filter keys in mask/, and the control frequency in env_args of data."""

    name = "robomimic"
    title = "robomimic"
    groups = "data/demo_"
    positions: ClassVar[Names] = ("obs/robot0_joint_pos", "obs/joint_states", "obs/joint_pos")
    start: ClassVar[Pairs] = (("obs/robot0_joint_pos", "obs/robot0_joint_vel"),)
    rates = (("env_kwargs", "control_freq"),)
    normalises = True
    dt_hint = "robosuite's default is 20 Hz: --rate 20, if this was recorded with it"

    def chosen(self, key: str) -> list[Member]:
        stored = self.file.get(f"mask/{key}")
        where = f"{self.file.path}:/mask/{key}"
        if stored is None or stored.ndim != 1:
            known = self.file.children("mask") if "mask" in self.file.children() else []
            raise InputError(
                "no such filter key",
                where=where,
                expected=", ".join(known) or "a filter key, and the file has none",
                found=key,
            )
        if stored.dtype.kind not in "SUO":
            raise InputError(
                "not a list of names", where=where, expected="strings", found=str(stored.dtype)
            )
        wanted = set(stored.texts())
        members = {member.group.rpartition("/")[2]: member for member in self.members()}
        missing = ", ".join(sorted(wanted - members.keys())[:5])
        if missing:
            raise InputError(
                "lists trajectories that are not there",
                where=where,
                expected="groups of /data",
                found=missing,
            )
        return [member for name, member in members.items() if name in wanted]


class Libero(Robomimic):
    """Like robomimic, with joint positions in obs/joint_states and a task in BDDL."""

    name = "libero"
    title = "LIBERO"
    marks = ("bddl_file_name", "problem_info")
    positions = ("obs/joint_states",)
    start = (("obs/joint_states", "obs/joint_vel"),)


class MimicGen(Robomimic):
    """Like robomimic, with the generator's record in datagen_info."""

    name = "mimicgen"
    title = "MimicGen"
    marks = ("datagen_info",)


class Robosuite(Robomimic):
    """The output of robosuite's collection script: simulator states without observations."""

    name = "robosuite"
    title = "robosuite"
    marks = ("repository_version",)

    @cached_property
    def step(self) -> Time | None:
        about = json_object(self.file.attributes("data").get("env_info"))
        where = Place(str(self.file.path), "/data", "env_info")
        return super().step or from_rate(about, ("control_freq",), where)


class IsaacLab(Robomimic):
    """Like robomimic, with states of articulations; dt is the simulation's times the decimation."""

    name = "isaaclab"
    title = "Isaac Lab"
    marks = ("initial_state", "sim_args")
    positions = ("obs/joint_pos", "states/articulation/robot/joint_position")
    start = (
        (
            "initial_state/articulation/robot/joint_position",
            "initial_state/articulation/robot/joint_velocity",
        ),
        ("obs/joint_pos", "obs/joint_vel"),
    )
    normalises = False
    dt_hint = "it is the environment's sim.dt times its decimation: --dt SECONDS"

    @classmethod
    def fits(cls, file: Catalogue) -> bool:
        # robomimic numbers its kinds of environments; Isaac Lab takes 2 for its own
        numbered = environment(file).get("type") == 2 and Robomimic.fits(file)
        return super().fits(file) or numbered

    @cached_property
    def step(self) -> Time | None:
        where, facts = self.facts()
        dt, decimation = (positive(entry(facts, ("sim_args", n))) for n in ("dt", "decimation"))
        if dt is None or decimation is None:
            return super().step
        formula = f" sim_args.dt × decimation = {dt:g} s × {decimation:g}"
        return Time.of(where.then(formula), dt * decimation)


class Aloha(Layout):
    """ALOHA and ACT: a file is one episode, and actions are target joint positions."""

    name = "aloha"
    title = "ALOHA / ACT"
    holds = ("action", "observations/qpos")
    actions = ("action",)
    positions = ("observations/qpos",)
    start = (("observations/qpos", "observations/qvel"),)
    dt_hint = "ALOHA records at 50 Hz: --rate 50, if this was recorded so"
    commands_positions = True


class ManiSkill(Layout):
    """traj_N; observations and states have one row more than actions; a .json has the rate."""

    name = "maniskill"
    title = "ManiSkill"
    groups = "traj_"
    positions = ("obs/agent/qpos",)
    start = (("obs/agent/qpos", "obs/agent/qvel"),)
    rates = (
        ("env_info", "env_kwargs", "control_freq"),
        ("env_info", "env_kwargs", "sim_config", "control_freq"),
        ("env_info", "control_freq"),
    )
    dt_hint = "ManiSkill's default is 20 Hz: --rate 20, if this was recorded with it"

    def __init__(self, file: Catalogue) -> None:
        super().__init__(file)
        self._beside = file.path.with_suffix(".json")
        self._table = file.beside(self._beside.name)
        mode = entry(self._table, ("env_info", "env_kwargs", "control_mode"))
        self.commands_positions = mode == "pd_joint_pos"
        self.normalises = not self.commands_positions

    def facts(self) -> tuple[Place, Mapping[str, Any]]:
        return Place(str(self._beside)), self._table


class Minari(Layout):
    """episode_N; actions may be a group of arrays, one of which is read."""

    name = "minari"
    title = "Minari"
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
        found, where = ", ".join(leaves) or "an empty group", f"{self.file.path}:/{group}"
        hint = f"{self.file.typed(f'actions/{leaves[0]}')} reads one of them" if leaves else ""
        what = "actions in several arrays"
        raise InputError(what, where=where, expected="one array", found=found, hint=hint)


class D4rl(Layout):
    """Arrays of all rows; a trajectory ends where terminals or timeouts is set."""

    name = "d4rl"
    title = "D4RL"
    holds = ("actions", "observations", "terminals")
    positions = ("infos/qpos", "observations")
    start = (("infos/qpos", "infos/qvel"),)
    dt_hint = "it is the environment's own: --dt SECONDS"

    def members(self) -> list[Member]:
        return self.flat_members(self.file.require("actions"), "trajectory")


class TableLayout(Layout):
    """A table with a column that tells which trajectory a row belongs to."""

    name = "table"
    title = "a table"
    columns: Names = TRAJECTORIES

    @classmethod
    def _label(cls, file: Catalogue) -> Dataset | None:
        """Returns that column, with one number or text in each row."""
        there = set(file.children())
        stored = (file.require(name) for name in cls.columns if name in there)
        return next((column for column in stored if column.ndim == 1), None)

    @classmethod
    def fits(cls, file: Catalogue) -> bool:
        return file.family in ("csv", "parquet") and cls._label(file) is not None

    def members(self) -> list[Member]:
        stored = self._label(self.file)
        if stored is None:
            what = "no column says of which trajectory a row is"
            raise InputError(
                what, where=str(self.file.path), expected=f"one of {', '.join(self.columns)}"
            )
        labels = stored.read()
        self.rows = len(labels)
        edges = label_edges(labels, stored.where) if len(labels) else []
        if labels.dtype.kind == "f" and (labels == np.floor(labels)).all():
            labels = labels.astype(np.int64)  # a CSV file is read as floats
        counted = labels.dtype.kind in "iu" and stored.where.last != "trajectory"
        texts = [f"{'episode_' * counted}{text_of(labels[begin])}" for begin in edges[:-1]]
        return [Member(text, "", *rows) for text, rows in zip(texts, pairwise(edges), strict=True)]

    def arrays_of(self, member: Member) -> tuple[str, dict[str, Dataset]]:
        names = [name for name in _NAMES if self.file.get(name)] or likely_arrays(self.file, "")
        stored = {name: self.file.require(name) for name in names}
        path, first = next(iter(stored.items()))
        return path, {
            "actions" if name == "action" else name: member.rows_of(array)
            for name, array in stored.items()
            if array.shape == first.shape
        }

    def guesses(self, path: str) -> bool:
        return path not in _NAMES


class Replay(Layout):
    """The replay buffer of diffusion policies: arrays of all rows, and the ends of episodes."""

    name = "replay"
    title = "a replay buffer"
    holds = ("meta/episode_ends",)
    actions = ("data/action",)
    positions = ("data/state", "data/qpos", "data/agent_pos")
    dt_hint = "it is not in the file: --rate HZ"

    def members(self) -> list[Member]:
        stored = (self.file.require(f"data/{name}") for name in self.file.children("data"))
        first = next((array for array in stored if array.ndim), None)
        return [] if first is None else self.flat_members(first, "episode")

    def arrays_of(self, member: Member) -> tuple[str, dict[str, Dataset]]:
        if self.file.get(self.actions[0]) is not None:
            return super().arrays_of(member)
        path = likely_arrays(self.file, "data/")[0]
        return path, {path: member.rows_of(self.file.require(path))}


class LeRobot(TableLayout):
    """LeRobot 2.1 (one episode per Parquet file) and 3 (many), described by meta/info.json."""

    name = "lerobot"
    title = "LeRobot"
    holds = ("action", "episode_index")
    columns = ("episode_index",)
    actions = ("action",)
    positions = ("observation.state",)
    start = (("observation.state", "observation.velocity"),)
    rates = (("fps",),)
    dt_hint = "meta/info.json gives fps; it is not where it belongs: --rate HZ"
    commands_positions = True

    @classmethod
    def fits(cls, file: Catalogue) -> bool:
        return set(cls.holds) <= set(file.children()) and super().fits(file)

    def members(self) -> list[Member]:
        # files may hold episodes in any order
        members = sorted(super().members(), key=lambda member: natural_key(member.name))
        stored = {name: self.file.get(name) for name in ("frame_index", "timestamp")}
        columns = {n: np.ravel(x.read()) for n, x in stored.items() if x is not None and x.numeric}
        return [member._replace(fault=self._fault(member, columns)) for member in members]

    def _fault(self, member: Member, columns: Mapping[str, Any]) -> Fault | None:
        """Returns the fault of an episode that begins anew, or lacks frames but no time."""
        columns = {name: x[member.begin : member.end] for name, x in columns.items()}
        even = np.arange((member.end or 0) - member.begin)
        both = [columns.get(name, even) for name in ("frame_index", "timestamp")]
        if len(even) < 2:
            return None
        frames, stamps = np.diff(np.array(both, np.float64))
        anew = (frames <= 0) | (stamps < 0)  # stamps that all are one say nothing
        wrong = anew | ((frames > 1) & ~(stamps > JUMP * np.median(stamps)))
        if not wrong.any():
            return None
        row = int(wrong.argmax())
        return Fault(
            "an episode " + ("that begins anew" if anew[row] else "in which frames are missing"),
            where=f"{self.file.path}, {member.name}",
            expected="frame_index 0, 1, 2, … and a timestamp that increases with it",
            found=", ".join(f"{n} {x[row]:g} and then {x[row + 1]:g}" for n, x in columns.items()),
            hint=LEAVE_OUT,
        )

    def dof_names(self, name: str) -> list[str] | None:
        names = entry(self._info[1], ("features", name, "names"))
        if isinstance(names, dict) and len(names) == 1:  # {"motors": [...]}
            (names,) = names.values()
        texts = isinstance(names, list) and all(isinstance(name, str) for name in names)
        return [text_of(name) for name in names] if texts else None

    def facts(self) -> tuple[Place, Mapping[str, Any]]:
        return self._info

    @cached_property
    def _info(self) -> tuple[Place, dict[str, Any]]:
        """The path and content of info.json: in FOLDER/meta for FOLDER/data/CHUNK/FILE, else in
        meta beside the file; nowhere else, since other users may write there."""
        folders = self.file.path.absolute().parents
        above = "../../" if len(folders) > 2 and folders[1].name == "data" else ""
        name = f"{above}meta/info.json"
        return Place(str(self.file.path_beside(name))), self.file.beside(name)


_FAMILIES: tuple[type[Layout], ...] = (
    Libero, MimicGen, Robosuite, IsaacLab, Robomimic, Aloha, ManiSkill, D4rl, Minari, LeRobot,
    Replay, TableLayout,
)  # fmt: skip
LAYOUTS = {family.name: family for family in _FAMILIES}
"""Layouts by name; of several that fit a file, the first is the most specific."""

PLAIN = "plain"
"""The value of --layout for files that are only named arrays."""


def layout_of(file: Catalogue, wanted: str | None = None) -> Layout | None:
    """Returns the layout of a file: the one wanted, or the first that fits; None for none."""
    if wanted is not None and wanted not in (*LAYOUTS, PLAIN):
        raise UsageError(
            "unknown layout",
            where="--layout",
            expected=", ".join((*LAYOUTS, PLAIN)),
            found=repr(wanted),
        )
    if wanted is not None:
        return None if wanted == PLAIN else LAYOUTS[wanted](file)
    if file.family in ("npy", "npz"):
        return None
    return next((kind(file) for kind in LAYOUTS.values() if kind.fits(file)), None)


def likely_arrays(file: Catalogue, prefix: str) -> list[str]:
    """Returns the arrays that are trajectories by their name, or as the only ones that may be.

    Callers report the guess. Raises InputError with what there is instead, likely arrays first.
    """
    # below #refs# MATLAB keeps what its cells hold
    paths = [p for p in file.names() if p.startswith(prefix) and not p.startswith("#")]
    named: dict[str, list[str]] = {}
    ranks: dict[str, tuple[int, ...]] = {}
    unread: dict[str, InputError] = {}
    for path in paths:
        group, _, last = path.rpartition("/")
        state = group.rpartition("/")[2] in STATES or last.startswith(("start_", "goal_"))
        try:
            stored = None if state else file.get(path)
        except InputError as error:  # as MATLAB's cells; what is not meant may be anything
            unread.setdefault(last if last in POSITIONS else "", error)
            continue
        line = stored is not None and math.prod(stored.shape) == max(stored.shape, default=1)
        if state or (line and (last.lower() in BESIDE or role(last))):
            continue
        ranks[path] = unlikeness(path, stored)
        if stored and stored.dtype.kind == "f" and math.prod(stored.shape) != 1:
            if last in QUANTITIES:
                as_batch(stored)  # raises why it is no trajectory
            if stored.ndim in (2, 3) and not (role(last) and stored.shape[-1] == 1):
                named.setdefault(last, []).append(path)
    taken = next((name for name in POSITIONS if name in {*named, *unread}), None)
    if taken is None:  # the only motion, the only one in a unit of positions, or beside rates
        ranked = {name: ranks[named[name][0]] for name in named}
        motions = [name for name, (nothing, *_) in ranked.items() if not nothing] or [*named]
        placed = [name for name in motions if _of_positions(file, named[name][0])]
        beside = [] if placed else [name for name in motions if ranked[name][-2] < 2]
        beside = beside if [ranked[name][-2] for name in beside] == [0] else []
        taken = next((ways[0] for ways in (motions, placed, beside) if len(ways) == 1), None)
    if taken in unread:
        raise unread[taken]
    if taken is not None:
        return named[taken]
    if unread and not named:
        raise next(iter(unread.values()))
    likely, what = min(ranks, key=ranks.__getitem__, default=""), "no trajectories found"
    found, hint = candidates(paths, file.get), f"name one as {file.typed(likely)}"
    if not likely or ranks[likely][0] == 2:
        hint = f"trajcli inspect {shlex.quote(str(file.path))} lists what it holds"
    expected = f"datasets called actions, {', '.join(QUANTITIES)}: [B, T, D] or [T, D]"
    raise InputError(what, where=str(file.path), expected=expected, found=found, hint=hint)


def _of_positions(file: Catalogue, path: str) -> bool:
    """Whether an array says that it is in a unit of positions, not of their derivatives."""
    units = parse_units(stated_unit(file.require(path)))
    return units is not None and all(unit.order == 0 for unit in units)
