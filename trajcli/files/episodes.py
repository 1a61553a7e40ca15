"""Decides which arrays of a file, and which of their rows, are trajectories, and which axis is
time.

One table of names serves every format: lengths, ends, labels and flags of episodes, and masks.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from trajcli.errors import Fault, InputError, describe
from trajcli.files._tables import TRAJECTORIES
from trajcli.files.catalogue import Catalogue, Dataset, candidates, unlikeness
from trajcli.files.conversion import as_batch, read_unit
from trajcli.files.quantities import EPISODE_ENDS, POSITIONS, QUANTITIES, STATES, role
from trajcli.files.source import Place
from trajcli.kernels.program import Floats, Integers, NumpyArray
from trajcli.memory import EAGER_BYTES, SCANNED_BYTES
from trajcli.units import parse_units

LENGTHS = ("lengths", "traj_lengths", "episode_lengths", "trajectory_lengths", "path_lengths",
           "seq_lengths", "traj_lens", "ep_lengths", "ep_lens", "episode_lens")  # fmt: skip
_ENDS = ("episode_ends", "traj_ends", "trajectory_ends")
# Rows with which episodes begin, with or without 0 and the number of all rows.
_SPLITS = ("split_points", "traj_splits", "episode_starts", "traj_starts")
# numpy.split takes rows of this name, but indices may be anything: a note points it out.
_LIKELY = "indices"
_EPISODES = (*LENGTHS, *_ENDS, *_SPLITS, *TRAJECTORIES, *EPISODE_ENDS)
# Masks that are true where a row is real, masks that are true where it is padding, and masks of
# either meaning: their first row, which is never padding, shows which.
_REAL = ("mask", "masks", "valid", "valid_mask", "is_valid", "attention_mask")
_PADDING = ("action_is_pad", "actions_is_pad", "is_pad", "is_padding")
_EITHER = ("padding_mask", "pad_mask", "action_pad_mask", "timestep_pad_mask")
MASKS = (*_REAL, *_PADDING, *_EITHER)
BESIDE = {*_EPISODES, *MASKS, _LIKELY}
"""Names of arrays that describe trajectories, and are none."""
# The number of trajectories and of values of a large array that are read to guess its padding and
# axes, and the rows that a guess needs.
_SAMPLED, _LOOKED_AT, _LEAST = 64, 1 << 14, 8
LEAVE_OUT = "--episodes reads others; --skip-bad of differentiate, check and others leaves it out"
"""The hint at a bad trajectory among good ones."""


class Member(NamedTuple):
    """One trajectory of a file: its group, or its rows in arrays that hold all trajectories.

    name: its name in messages and, as a group, in outputs. fault: why it cannot be used. Without a
    layout, arrays that hold all trajectories have ``total`` rows of ``siblings`` trajectories, and
    this is trajectory ``number``.
    """

    name: str
    group: str = ""
    begin: int = 0
    end: int | None = None
    fault: Fault | None = None
    total: int = 0
    number: int = 0
    siblings: int = 0

    def path(self, name: str) -> str:
        return f"{self.group}/{name}" if self.group else name

    def select_rows(self, array: Dataset) -> Dataset:
        """Selects its rows of an array that holds all trajectories; any other array is its own."""
        if self.end is None:
            return array
        begin, read = self.begin, array.read_rows
        return replace(
            array,
            where=array.where.with_remark(f" ({self.name}: rows {begin} to {self.end - 1})"),
            shape=(self.end - begin, *array.shape[1:]),
            reader=lambda start, stop: read(begin + start, begin + stop),
            storage="part of an array",
        )


class Split(NamedTuple):
    """The trajectories of a file; ``rows``: of arrays that hold all of them one after the other."""

    members: list[Member]
    rows: int = 0
    remark: str = ""


def find_datasets(
    file: Catalogue, folder: str, names: Sequence[str]
) -> Iterator[tuple[str, Dataset]]:
    """Yields the datasets of a group with these names, in whatever case the file spells them."""
    spelling = file.spelling.get(folder.strip("/"), {})
    if spelling.keys().isdisjoint(names):
        return
    for name in (name for name in names if name in spelling):
        if (stored := file.get(f"{folder}{spelling[name]}")) is not None:
            yield name, stored


def episode_edges(
    file: Catalogue, groups: Sequence[str], array: Dataset
) -> tuple[list[int], Place, list[str]]:
    """Finds the rows with which episodes of an array [N, D] begin, and the row after the last one.

    Returns them with the place that states them, and warnings of statements that do not fit.
    """
    rows, path = array.shape[0], array.where.name.lstrip("/")
    known: dict[Place, list[int]] = {}
    misfits: dict[Place, str] = {}
    flags, flagged = np.zeros(rows, bool), Place()
    for folder in (part for group in groups for part in (group, f"{group}meta/")):
        for name, stored in find_datasets(file, folder, _EPISODES):
            if math.prod(stored.shape) != max(stored.shape, default=0):
                continue  # not one number for each row or episode
            values = np.ravel(stored.read())
            if values.dtype.kind in "US" and {"true", "false"}.issuperset(np.char.lower(values)):
                values = np.char.lower(values) == "true"  # as pandas writes flags
            if name in EPISODE_ENDS and len(values) == rows and values.dtype.kind in "biuf":
                flagged = flagged or stored.where
                # a flag that stays set, as after a success, ends an episode once
                flags |= (values != 0) & np.append(values[1:] == 0, True)
            elif (edges := _edges(name, values, rows, stored)) is not None:
                known[stored.where] = edges
            elif name in LENGTHS and rows in values:
                continue  # the lengths of several arrays, of which this is one
            elif len(values) > 1:
                misfits[stored.where] = describe(stored.shape)
        # the nearest group that states episodes counts
        if known or flagged:
            break
    if flagged and not known:
        known[flagged] = sorted({0, *(np.flatnonzero(flags) + 1).tolist(), rows})
    if not known:
        remarks = [f"{where} {shape} does not fit {rows} rows" for where, shape in misfits.items()]
        for _, stored in find_datasets(file, groups[0], (_LIKELY,)):
            values = np.ravel(stored.read()) if stored.numeric else np.zeros(0)
            if len(values) and (np.diff([0, *values, rows]) > 0).all():
                what = f"may be rows where episodes of an array of {rows} rows begin"
                remarks.append(f"{stored.where} {what} (split_points would say so)")
        return [0, rows], Place(), [f"{text}: they are read as one trajectory" for text in remarks]
    where, edges = next(iter(known.items()))
    require_equal({**known, **misfits}, f"the same episodes of {rows} rows in both")
    rest = f"rows {edges[-1]} to {rows - 1} of {path} are of no episode, and are left out"
    return edges, where, [f"{where}: {rest}"] if edges[-1] < rows else []


def require_equal(stated: Mapping[Place, Any], expected: str) -> None:
    """Raises InputError for statements, by their places, that contradict each other."""
    for (where, first), (other, second) in pairwise(stated.items()):
        if list(first) != list(second):
            raise InputError(
                "statements that contradict each other",
                where=f"{where} and {other}",
                expected=expected,
                hint="leave one of them out of the file",
            )


def _edges(name: str, values: Any, rows: int, stored: Dataset) -> list[int] | None:
    """Reads the edges of episodes that a dataset states; None where they do not fit the rows."""
    if name in TRAJECTORIES:
        return label_edges(values, stored.where) if len(values) == rows > 0 else None
    if name in EPISODE_ENDS or not len(values) or values.dtype.kind not in "iuf":
        return None
    ends = values.astype(np.float64)
    ends = np.cumsum(ends) if name in LENGTHS else ends
    # rows at which an array is split differ; ends may repeat, for episodes without rows
    least = int(name in _SPLITS)
    fits = (np.diff(ends) >= least).all() and (ends == np.floor(ends)).all()
    if not fits or ends[0] < 0 or ends[-1] > rows or (name in LENGTHS and ends[-1] < rows):
        return None
    if name in _SPLITS:
        return sorted({0, *map(int, ends), rows})
    return [0, *map(int, ends)]


def label_edges(labels: NumpyArray, where: Place) -> list[int]:
    """Finds the rows with which trajectories begin, and the row after the last, by their labels."""
    edges = [0, *(np.flatnonzero(labels[1:] != labels[:-1]) + 1).tolist(), len(labels)]
    if len(np.unique(labels[edges[:-1]])) < len(edges) - 1:
        what = "rows of a trajectory that do not follow each other"
        raise InputError(what, where=where, hint="sort them by trajectory")
    return edges


def mask_lengths(stored: Dataset, batch: int, rows: int, name: str) -> Integers:
    """Counts the rows [batch] that a mask [batch, rows] leaves before padding."""
    lengths: list[int] = []
    real, count = name not in _PADDING, stored.shape[0]
    size = max(1, SCANNED_BYTES // rows) if batch > 1 else count
    for begin in range(0, count, size):
        values = np.reshape(stored.read_rows(begin, min(begin + size, count)), (-1, rows))
        if not ((values == 0) | (values == 1)).all():
            raise InputError("not a mask", where=stored.where, expected="true or false, 1 or 0")
        if name in _EITHER and not begin:
            real = bool(values[0, 0])
        mask = values == real
        counts = mask.sum(1)
        bad = np.flatnonzero((mask != (np.arange(rows) < counts[:, None])).any(1) | (counts == 0))
        if len(bad):
            raise InputError(
                "padding that is not at the end",
                where=f"{stored.where}, trajectory {begin + bad[0]}",
                expected="the rows of a trajectory, then those of padding",
            )
        lengths += counts.tolist()
    return np.array(lengths, np.int64)


def nan_lengths(stored: Dataset) -> Integers | None:
    """Counts the rows of trajectories [B, T, D] before rows of NaN at their ends; None without."""
    batch, rows, dofs = stored.shape
    if stored.dtype.kind != "f" or 0 in stored.shape:
        return None
    # all of a large array is read only if one of some trajectories ends in NaN
    if stored.nbytes > EAGER_BYTES:
        indices = np.unique(np.linspace(0, batch - 1, _SAMPLED).astype(int)).tolist()
        if not any(np.isnan(stored.read_part(k, k + 1, rows - 1, rows)).all() for k in indices):
            return None
    lengths = np.full(batch, rows, np.int64)
    size = max(1, SCANNED_BYTES // (rows * dofs * stored.dtype.itemsize))
    for begin in range(0, batch, size):
        values = stored.read_rows(begin, min(begin + size, batch))
        ended = np.flatnonzero(np.isnan(values[:, -1]).all(-1))
        numbers = ~np.isnan(values[ended, ::-1]).all(-1)
        lengths[begin + ended] -= numbers.argmax(1)  # 0 where there are no numbers at all
    return lengths if (lengths < rows).any() else None


def likely_axes(stored: Dataset, counts: Mapping[int, str], dofs: int) -> tuple[str, str]:
    """Guesses the axes of an array, like TBD, and says why; "" for [B, T, D] or [T, D].

    counts: numbers of rows that datasets next to it have, with their names.
    """
    shape, ndim = stored.shape, stored.ndim
    if ndim not in (2, 3) or 0 in shape or dofs == shape[-1] or shape[-2] in counts:
        return "", ""
    for axis in (ndim - 1, 0):
        if shape[axis] in counts and axis != ndim - 2:
            return _letters(shape, axis), counts[shape[axis]]
    # the surest signs come first: rows of other datasets, names of joints, then the values, which
    # are smooth along time
    if dofs in shape[:-1]:
        others = [axis for axis in range(ndim) if axis != shape.index(dofs)]
        return _letters(shape, max(others, key=shape.__getitem__)), f"{dofs} joints are named"
    if ndim == 3 and shape[1] == 1 and max(shape) >= 2 * _LEAST:
        return _letters(shape, 0 if shape[0] >= shape[2] else 2), "its trajectories have one row"
    if stored.nbytes // shape[0] * _LEAST > SCANNED_BYTES:
        return "", ""
    count, values = max(_LEAST, _LOOKED_AT // math.prod(shape[1:])), np.zeros((1,) * ndim)
    with suppress(InputError):  # damage is reported where all values are read
        values = np.asarray(stored.read_rows(0, min(shape[0], count)), np.float64)
    if ndim == 3 and shape[0] >= 2 * max(shape[1], _LEAST) and _smooth(values, 0, 1):
        return "TBD", "it changes little from one trajectory to the next"
    long = shape[-1] >= 4 * max(shape[-2], _LEAST)
    if long and (_smooth(values, -1, -2) or (ndim == 2 and shape[0] <= _LEAST)):
        return _letters(shape, ndim - 1), "dofs are more than rows"
    return "", ""


def _letters(shape: tuple[int, ...], time: int) -> str:
    three = "TBD" if time == 0 else "DBT" if shape[1] == 1 else "BDT"
    return three if len(shape) == 3 else "DT"


def _smooth(values: Floats, axis: int, other: int) -> bool:
    """Whether values are a motion along one axis, and differ far more along another."""
    if min(values.shape[axis], values.shape[other]) < 2:
        return False
    with np.errstate(all="ignore"):
        steps, jumps = (np.abs(np.diff(values, axis=k)).mean() for k in (axis, other))
        return bool(steps < 0.25 * jumps and steps < 0.3 * values.std(axis).mean())


class NoTrajectories(InputError):
    """A file without arrays that are trajectories by their names, or as the only ones."""


def likely_arrays(file: Catalogue, prefix: str) -> list[str]:
    """Finds the arrays that are trajectories by their name, or as the only ones that may be."""
    # below #refs# MATLAB keeps what its cells hold
    paths = [p for p in file.names() if p.startswith(prefix) and not p.startswith("#")]
    by_name: dict[str, list[str]] = {}
    ranks: dict[str, tuple[int, ...]] = {}
    unread: dict[str, InputError] = {}
    for path in paths:
        group, _, last = path.rpartition("/")
        state = group.rpartition("/")[2] in STATES or last.startswith(("start_", "goal_"))
        try:
            stored = None if state else file.get(path)
        except InputError as error:  # such as cells of MATLAB: arrays that nobody asked for
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
                by_name.setdefault(last, []).append(path)
    known = (*POSITIONS, file.motion()[0])
    match = next((name for name in known if name in {*by_name, *unread}), None)
    if match is None:
        # the only motion, else the only one in a unit of positions (not of their derivatives), else
        # the only one that is not named like a rate
        ranked = {name: ranks[by_name[name][0]] for name in by_name}
        motions = [name for name, (nothing, *_) in ranked.items() if not nothing] or [*by_name]
        units = {n: parse_units(read_unit(file.require(by_name[n][0]))) for n in motions}
        positions = [n for n, u in units.items() if u is not None and not any(x.order for x in u)]
        others = [] if positions else [name for name in motions if ranked[name][-2] < 2]
        others = others if [ranked[name][-2] for name in others] == [0] else []
        match = next((ways[0] for ways in (motions, positions, others) if len(ways) == 1), None)
    if match in unread:
        raise unread[match]
    if match is not None:
        return by_name[match]
    if unread and not by_name:
        raise next(iter(unread.values()))
    likely = min(ranks, key=ranks.__getitem__, default="")
    found, hint = candidates(paths, file.get), f"name one as {file.shell_name(likely)}"
    if not likely or ranks[likely][0] == 2:
        hint = f"trajcli inspect {shlex.quote(str(file.path))} lists what it holds"
    expected = f"datasets called actions, {', '.join(QUANTITIES)}: [B, T, D] or [T, D]"
    where, what = str(file.path), "no trajectories found"
    raise NoTrajectories(what, where=where, expected=expected, found=found, hint=hint)
