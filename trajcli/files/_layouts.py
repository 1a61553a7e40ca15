"""Locates trajectories, actions and rates in the files of each family of robot data.

:data:`FAMILIES` has a row for each family: the names in its files, one of three ways of splitting
them into trajectories, and functions for what no other family does. To add a family, add a row, its
name to ``LayoutName`` in cli/options.py, and a line to docs/robots.md.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from trajcli.errors import Fault, InputError
from trajcli.files._tables import TRAJECTORIES
from trajcli.files.catalogue import Catalogue, Dataset, decode_text, json_object
from trajcli.files.clock import JUMP, Clock, positive
from trajcli.files.episodes import (
    LEAVE_OUT,
    Member,
    Split,
    episode_edges,
    label_edges,
    likely_arrays,
)
from trajcli.files.file_bytes import read_regular
from trajcli.files.quantities import QUANTITIES
from trajcli.files.source import Place, natural_key

PLAIN = "plain"
"""The value of --layout for files that are only named arrays."""
_LARGEST_JSON = 16 << 20
_LEROBOT_CLOCKS = ("frame_index", "timestamp")
_COLUMNS = ("actions", "action", *QUANTITIES)

Names: TypeAlias = tuple[str, ...]
Children: TypeAlias = Callable[[str], list[str]]
"""Returns the names directly in a group."""
PathAndArrays: TypeAlias = tuple[str, dict[str, Dataset]]
"""The path of the first array of a trajectory that is read, and all arrays that are."""


class Metadata(NamedTuple):
    """A JSON object that describes recordings: an attribute of the group data, or a file."""

    place: Place
    table: Mapping[str, Any]

    def value(self, *keys: str) -> Any:
        """Gets the value at a path of keys; None if there is none."""
        value: Any = self.table
        for key in keys:
            value = value.get(key) if isinstance(value, dict) else None
        return value


def read_metadata(file: Catalogue, name: str) -> Metadata:
    """Reads metadata of a file: an attribute of its group data or, as *.json, a side-car file."""
    if not name.endswith(".json"):
        table = json_object(file.attributes("data").get(name))
        return Metadata(Place(str(file.path), "/data", name), table)
    # FOLDER/data/CHUNK/FILE has FOLDER/meta, any other file has meta in its own folder; nothing
    # else is read, since other users may write there
    folders = file.path.absolute().parents
    chunked = name.startswith("meta/") and len(folders) > 2 and folders[1].name == "data"
    relative = f"../../{name}" if chunked else name.replace("*", file.path.stem)
    path = Path(os.path.normpath(file.path.parent / relative))
    file.pool.sources.record(path)
    if not os.path.lexists(path):
        return Metadata(Place(str(path)), {})
    file.linked_paths = list(dict.fromkeys([*file.linked_paths, str(path)]))
    table = json_object(read_regular(path, _LARGEST_JSON, "a JSON file"))
    return Metadata(Place(str(path)), table)


def select_actions(layout: Layout, member: Member) -> PathAndArrays:
    path = member.path(layout.family.actions[0])
    return path, {"actions": member.select_rows(layout.file.require(path))}


@dataclass(frozen=True)
class Family:
    """Describes how a family of projects stores trajectories in files: a row of FAMILIES."""

    name: str  # the value of --layout
    title: str  # the project, for messages
    split: Callable[[Layout], Split]  # finds the trajectories
    groups: str = ""  # the name of a trajectory's group without its number
    prefix: str = "episode_"  # the name, without its number, of a trajectory without a group
    labels: Names = ()  # columns of tables; the first in a table tells the trajectory of a row
    required: Names = ()  # arrays that the first trajectory must have
    # names one of which must be that of a part of the trajectory, an attribute of the group above
    # it, or a key of the description of the environment
    marks: Names = ()
    actions: Names = ("actions",)  # arrays, most common first
    positions: Names = ()  # arrays of recorded positions, most common first
    # pairs (position, velocity) of arrays whose first row is the state before the first action
    start: tuple[tuple[str, str], ...] = ()
    rates: tuple[Names, ...] = ()  # metadata, each with the keys in it of the rate in Hz
    dt_hint: str = ""  # where to find dt if the file does not state it
    filter_keys: str = ""  # the group of datasets that list trajectories
    commands_positions: bool = False  # the actions are target positions in rad or m
    normalises: bool = False  # the actions are as a rule commands in [-1, 1]
    # functions for what no other family does, such as a time step that is not simply a rate
    is_marked: Callable[[Catalogue], bool] = lambda file: False
    adapt: Callable[[Layout], Family] = lambda layout: layout.family
    arrays: Callable[[Layout, Member], PathAndArrays] = select_actions
    step: Callable[[Layout], Clock | None] = lambda layout: None
    dof_names: Callable[[Layout, str], list[str] | None] = lambda layout, name: None

    def matches(self, file: Catalogue, children: Children) -> bool:
        # the first trajectory stands for all: a file may have ten thousand of them
        first = next(self.numbered_groups(children), "")
        if self.groups and not first:
            return False
        paths = (f"{first}/{name}".strip("/").rpartition("/") for name in self.required)
        if any(last not in children(group) for group, _, last in paths):
            return False
        if self.labels and (file.family not in ("csv", "parquet") or not self.find_label(file)):
            return False
        if not self.marks or self.is_marked(file):
            return True
        tables = file.attributes("data"), children(first), read_metadata(file, "env_args").table
        return any(mark in table for table in tables for mark in self.marks)

    def numbered_groups(self, children: Children) -> Iterator[str]:
        parent, slash, prefix = self.groups.rpartition("/")
        for child in children(parent) if self.groups else ():
            if child.startswith(prefix) and child[len(prefix) :].isdecimal():
                yield parent + slash + child

    def find_label(self, file: Catalogue) -> tuple[str, Dataset] | None:
        names = set(file.children())
        columns = ((name, file.require(name)) for name in self.labels if name in names)
        return next(((name, column) for name, column in columns if column.ndim == 1), None)


class Layout:
    """Locates the trajectories of one file, by the row of its family."""

    def __init__(self, family: Family, file: Catalogue) -> None:
        self.file = file
        self._metadata: dict[str, Metadata] = {}
        self.family: Family = family
        self.family = family.adapt(self)
        self.name = family.name

    @cached_property
    def split(self) -> Split:
        return self.family.split(self)

    @cached_property
    def step(self) -> Clock | None:
        """The time step, if the file or a side-car file states it."""
        if (step := self.family.step(self)) is not None:
            return step
        for name, *keys in self.family.rates:
            about = self.metadata(name)
            if (rate := positive(about.value(*keys))) is not None:
                text = f" {'.'.join(keys)}, {rate:g} Hz"
                return Clock.even(1.0 / rate, about.place.with_remark(text))
        return None

    def filter_members(self, key: str) -> list[Member]:
        """Selects the trajectories that a filter key lists; raises InputError if there are none."""
        if not (group := self.family.filter_keys):
            raise InputError(
                f"layout {self.name} has no filter keys",
                where=str(self.file.path),
                found=f"--filter-key {key}",
                hint="robomimic's are datasets of /mask",
            )
        stored, where = self.file.get(f"{group}/{key}"), f"{self.file.path}:/{group}/{key}"
        if stored is None or stored.ndim != 1:
            known = self.file.children(group) if group in self.file.children() else []
            expected = ", ".join(known) or "a filter key, and the file has none"
            raise InputError("no such filter key", where=where, expected=expected, found=key)
        if stored.dtype.kind not in "SUO":
            found = str(stored.dtype)
            raise InputError("not a list of names", where=where, expected="strings", found=found)
        groups = set(stored.texts())
        members = {member.group.rpartition("/")[2]: member for member in self.split.members}
        if missing := ", ".join(sorted(groups - members.keys())[:5]):
            what = "lists trajectories that the file lacks"
            raise InputError(what, where=where, expected="groups of /data", found=missing)
        return [member for name, member in members.items() if name in groups]

    def array(self, member: Member, names: Sequence[str]) -> Dataset | None:
        """Finds the first of these arrays that a trajectory has."""
        stored = (self.file.get(member.path(name)) for name in names)
        return next((member.select_rows(array) for array in stored if array is not None), None)

    def guesses(self, path: str) -> bool:
        """Whether an array was chosen only because its name is likely."""
        return self.family.arrays is select_columns and path not in _COLUMNS

    def position_names(self, member: Member) -> list[str]:
        """Lists the datasets of recorded positions, as a user names them after FILE:."""
        return [name for name in self.family.positions if self.array(member, [name]) is not None]

    def metadata(self, name: str) -> Metadata:
        if name not in self._metadata:
            self._metadata[name] = read_metadata(self.file, name)
        return self._metadata[name]


def split_by_groups(layout: Layout) -> Split:
    """Splits a file by its numbered groups; without groups the file is one trajectory."""
    groups = layout.family.numbered_groups(layout.file.children)
    members = [Member(path, path) for path in groups]
    return Split(members if layout.family.groups else [Member(layout.file.path.stem)])


def split_by_ends(layout: Layout) -> Split:
    """Splits arrays that hold all rows, by flags at the ends of episodes (D4RL's terminals and
    timeouts) or by a list of their ends (meta/episode_ends of UMI's replay buffers)."""
    folder, _, name = layout.family.actions[0].rpartition("/")
    # a folder of such arrays need not have actions
    paths = [f"{folder}/{child}" for child in layout.file.children(folder)] if folder else [name]
    stored = (layout.file.require(path) for path in paths)
    array = next((array for array in stored if array.ndim), None)
    if array is None:
        return Split([])
    edges, _, remarks = episode_edges(layout.file, [""], array)
    prefix, spans = layout.family.prefix, enumerate(pairwise(edges))
    members = [Member(f"{prefix}{k}", "", begin, end) for k, (begin, end) in spans]
    return Split(members, array.shape[0], "; ".join(remarks))


def split_by_label(layout: Layout) -> Split:
    """Splits a table into episodes, by the column that tells the episode of each row."""
    if (label := layout.family.find_label(layout.file)) is None:
        what = "no column tells the trajectory of a row"
        expected = f"one of {', '.join(layout.family.labels)}"
        raise InputError(what, where=str(layout.file.path), expected=expected)
    name, stored = label
    labels = stored.read()
    edges = label_edges(labels, stored.where) if len(labels) else []
    if labels.dtype.kind == "f" and (labels == np.floor(labels)).all():
        labels = labels.astype(np.int64)  # a CSV file is read as floats
    # trajcli itself writes a column trajectory, whose labels are whole names
    prefix = layout.family.prefix if labels.dtype.kind in "iu" and name != "trajectory" else ""
    texts = [f"{prefix}{decode_text(labels[begin])}" for begin in edges[:-1]]
    spans = zip(texts, pairwise(edges), strict=True)
    return Split([Member(text, "", begin, end) for text, (begin, end) in spans], len(labels))


def select_columns(layout: Layout, member: Member) -> PathAndArrays:
    """Selects the columns of a table with known names, or the likely ones, of one shape."""
    file = layout.file
    names = [name for name in _COLUMNS if file.get(name) is not None] or likely_arrays(file, "")
    stored = {name: file.require(name) for name in names}
    path, first = next(iter(stored.items()))
    return path, {
        "actions" if name == "action" else name: member.select_rows(array)
        for name, array in stored.items()
        if array.shape == first.shape
    }


def _replay_actions(layout: Layout, member: Member) -> PathAndArrays:
    # UMI's replay buffers have no actions, but a likely array
    if layout.file.get(layout.family.actions[0]) is not None:
        return select_actions(layout, member)
    path = likely_arrays(layout.file, "data/")[0]
    return path, {path: member.select_rows(layout.file.require(path))}


def _minari_actions(layout: Layout, member: Member) -> PathAndArrays:
    file, group = layout.file, member.path("actions")
    if not file.has_group(group):
        return select_actions(layout, member)
    leaves = file.children(group)
    if len(leaves) == 1:
        return f"{group}/{leaves[0]}", {"actions": file.require(f"{group}/{leaves[0]}")}
    raise InputError(
        "actions in several arrays",
        where=f"{file.path}:/{group}",
        expected="one array",
        found=", ".join(leaves) or "an empty group",
        hint=f"{file.shell_name(f'actions/{leaves[0]}')} reads one of them" if leaves else "",
    )


def _adapt_maniskill(layout: Layout) -> Family:
    mode = layout.metadata("*.json").value("env_info", "env_kwargs", "control_mode")
    positions = mode == "pd_joint_pos"
    return replace(MANISKILL, commands_positions=positions, normalises=not positions)


def _isaac_step(layout: Layout) -> Clock | None:
    """Reads Isaac Lab's time step, the product of the simulation's step and the decimation."""
    about = layout.metadata("env_args")
    dt, decimation = (positive(about.value("sim_args", n)) for n in ("dt", "decimation"))
    if dt is None or decimation is None:
        return None
    text = f" sim_args.dt × decimation = {dt:g} s × {decimation:g}"
    return Clock.even(dt * decimation, about.place.with_remark(text))


def _lerobot_dof_names(layout: Layout, name: str) -> list[str] | None:
    # info.json has a list of names, or a dictionary with one such list
    names = layout.metadata("meta/info.json").value("features", name, "names")
    if isinstance(names, dict) and len(names) == 1:
        (names,) = names.values()
    texts = isinstance(names, list) and all(isinstance(name, str) for name in names)
    return [decode_text(name) for name in names] if texts else None


def _lerobot_episodes(layout: Layout) -> Split:
    """Splits LeRobot's frames by label, in natural order, and notes faults of episodes."""
    split = split_by_label(layout)
    stored = {name: layout.file.get(name) for name in _LEROBOT_CLOCKS}
    columns = {n: np.ravel(x.read()) for n, x in stored.items() if x is not None and x.numeric}
    members = list[Member]()
    for member in sorted(split.members, key=lambda member: natural_key(member.name)):
        members.append(member)
        count = (member.end or 0) - member.begin
        if count < 2:
            continue
        clocks = {name: column[member.begin : member.end] for name, column in columns.items()}
        both = [clocks.get(name, np.arange(count)) for name in _LEROBOT_CLOCKS]
        frames, stamps = np.diff(np.array(both, np.float64))
        # An episode that begins anew has a fault. Frames may be left out where as much time
        # passed (a pause of the recording). Stamps that are all equal prove nothing.
        anew = (frames <= 0) | (stamps < 0)
        wrong = anew | ((frames > 1) & ~(stamps > JUMP * np.median(stamps)))
        if wrong.any():
            row = int(wrong.argmax())
            pairs = (f"{n} {x[row]:g} and then {x[row + 1]:g}" for n, x in clocks.items())
            what = "that starts over" if anew[row] else "in which frames are missing"
            fault = Fault(
                f"an episode {what}",
                where=f"{layout.file.path}, {member.name}",
                expected="frame_index 0, 1, 2, … and a timestamp that increases with it",
                found=", ".join(pairs),
                hint=LEAVE_OUT,
            )
            members[-1] = member._replace(fault=fault)
    return split._replace(members=members)


# -- the table -------------------------------------------------------------------------------------
# fmt: off
ROBOMIMIC = Family(
    "robomimic", "robomimic", split_by_groups, groups="data/demo_", required=("actions",),
    positions=("obs/robot0_joint_pos", "obs/joint_states", "obs/joint_pos"),
    start=(("obs/robot0_joint_pos", "obs/robot0_joint_vel"),),
    rates=(("env_args", "env_kwargs", "control_freq"),),
    dt_hint="robosuite's default is 20 Hz: --rate 20, if this was recorded with it",
    filter_keys="mask", normalises=True,
)
LIBERO = replace(
    ROBOMIMIC, name="libero", title="LIBERO", marks=("bddl_file_name", "problem_info"),
    positions=("obs/joint_states",), start=(("obs/joint_states", "obs/joint_vel"),),
)
MIMICGEN = replace(ROBOMIMIC, name="mimicgen", title="MimicGen", marks=("datagen_info",))
# the output of robosuite's collection script: simulator states without observations
ROBOSUITE = replace(
    ROBOMIMIC, name="robosuite", title="robosuite", marks=("repository_version",),
    rates=(*ROBOMIMIC.rates, ("env_info", "control_freq")),
)
ISAAC_LAB = replace(
    ROBOMIMIC, name="isaaclab", title="Isaac Lab", marks=("initial_state", "sim_args"),
    positions=("obs/joint_pos", "states/articulation/robot/joint_position"),
    start=(("initial_state/articulation/robot/joint_position",
            "initial_state/articulation/robot/joint_velocity"), ("obs/joint_pos", "obs/joint_vel")),
    dt_hint="it is the environment's sim.dt times its decimation: --dt SECONDS",
    # robomimic numbers the kinds of its own environments, and Isaac Lab's is 2
    normalises=False, is_marked=lambda file: read_metadata(file, "env_args").value("type") == 2,
    step=_isaac_step,
)
ALOHA = Family(
    "aloha", "ALOHA / ACT", split_by_groups, required=("action", "observations/qpos"),
    actions=("action",), positions=("observations/qpos",),
    start=(("observations/qpos", "observations/qvel"),),
    dt_hint="ALOHA records at 50 Hz: --rate 50, if this was recorded so",
    commands_positions=True,
)
# observations and states have one row more than actions
MANISKILL = Family(
    "maniskill", "ManiSkill", split_by_groups, groups="traj_", required=("actions",),
    positions=("obs/agent/qpos",), start=(("obs/agent/qpos", "obs/agent/qvel"),),
    rates=(("*.json", "env_info", "env_kwargs", "control_freq"),
           ("*.json", "env_info", "env_kwargs", "sim_config", "control_freq"),
           ("*.json", "env_info", "control_freq")),
    dt_hint="ManiSkill's default is 20 Hz: --rate 20, if this was recorded with it",
    adapt=_adapt_maniskill,
)
D4RL = Family(
    "d4rl", "D4RL", split_by_ends, prefix="trajectory_",
    required=("actions", "observations", "terminals"), positions=("infos/qpos", "observations"),
    start=(("infos/qpos", "infos/qvel"),),
    dt_hint="it is the environment's own: --dt SECONDS",
)
MINARI = Family(
    "minari", "Minari", split_by_groups, groups="episode_", required=("actions",),
    positions=("observations", "infos/qpos"), start=(("infos/qpos", "infos/qvel"),),
    dt_hint="it is the environment's own: --dt SECONDS", arrays=_minari_actions,
)
# one episode per Parquet file (2.1) or many (3), described by meta/info.json
LEROBOT = Family(
    "lerobot", "LeRobot", _lerobot_episodes, labels=("episode_index",),
    required=("action", "episode_index"), actions=("action",), positions=("observation.state",),
    start=(("observation.state", "observation.velocity"),), rates=(("meta/info.json", "fps"),),
    dt_hint="meta/info.json gives fps; it is not where it belongs: --rate HZ",
    commands_positions=True, arrays=select_columns, dof_names=_lerobot_dof_names,
)
# Zarr: data has arrays of all rows, meta/episode_ends the row after the last of each episode
UMI_REPLAY_BUFFER = Family(
    "replay", "a replay buffer of UMI or a diffusion policy", split_by_ends,
    required=("meta/episode_ends",), actions=("data/action",),
    positions=("data/state", "data/qpos", "data/agent_pos"),
    dt_hint="it is not in the file: --rate HZ", arrays=_replay_actions,
)
TABLE = Family(
    "table", "a table", split_by_label, labels=TRAJECTORIES,
    arrays=select_columns,
)
FAMILIES = (LIBERO, MIMICGEN, ROBOSUITE, ISAAC_LAB, ROBOMIMIC, ALOHA, MANISKILL, D4RL, MINARI,
            LEROBOT, UMI_REPLAY_BUFFER, TABLE)
"""The families, the most specific first: a file is of the first that fits."""
# fmt: on
