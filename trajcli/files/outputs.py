"""Describes an output file, and writes it in a hidden folder next to OUT, to be renamed last.

An output holds arrays [trajectory, time, dof]. Where trajectories have times of their own, the
middle dimension is ``row`` and ``time`` is [trajectory, row]. ``trajectory`` and ``row`` are
plain dimensions, ``time`` is a coordinate in seconds, and ``dof`` one of joint names where they are
known. Whatever ends the process, OUT is absent, the old one, or complete; see
:mod:`.atomic_output`.
"""

from __future__ import annotations

import contextlib
import io
import json
import math
import os
import zipfile
import zlib
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from trajcli.files.atomic_output import HiddenFolder, os_failures, require_space, reserve
from trajcli.files.catalogue import PROVENANCE, Numbers
from trajcli.files.quantities import QUANTITIES
from trajcli.kernels.program import Integers

ROWS = ("trajectory", "row", "dof")
"""The dimensions of an array that has a row for each time of a trajectory."""


@dataclass(frozen=True)
class Variable:
    """An array of an output; its values are None where they are written block by block."""

    name: str
    dims: tuple[str, ...]
    dtype: np.dtype[Any]
    attributes: Mapping[str, Any] = field(default_factory=dict)
    values: Any = None

    @property
    def has_trajectory_axis(self) -> bool:
        return self.dims[:1] == ("trajectory",)


@dataclass(frozen=True)
class Group:
    """The trajectories with these ``numbers``, all of one length, each in a group of its own."""

    rows: int
    numbers: Numbers
    names: Sequence[str]


@dataclass(frozen=True)
class Description:
    """Describes an output file; made by :func:`describe_output`.

    sizes: of the dimensions; ``row`` is the longest trajectory. groups: the trajectories of each
    length where these differ; else all are one array, with ``names`` where they have any. sources:
    in a part of a run, all names that an attribute of the file sums up.
    """

    sizes: Mapping[str, int]
    variables: Sequence[Variable]
    attributes: Mapping[str, Any]
    names: Sequence[str] | None = None
    joint_names: Sequence[str] | None = None
    groups: Sequence[Group] = ()
    sources: Mapping[str, Sequence[str]] = field(default_factory=dict)

    @property
    def kind(self) -> str:
        return "groups" if self.groups else "packed"

    def describe_part(self, sources: Mapping[str, Sequence[str]]) -> Description:
        """Lists all names that attributes sum up in the description of a part, for merge."""
        # the names of the groups, too, in the order of the run
        titles = {n: x for g in self.groups for n, x in zip(g.numbers, g.names, strict=True)}
        order = {"trajectory": [titles[number] for number in sorted(titles)]} if titles else {}
        return replace(self, sources={**sources, **order})

    @cached_property
    def nbytes(self) -> int:
        return sum(
            math.prod(self.shape(variable, k)) * variable.dtype.itemsize
            for variable in self.variables
            for k in range(len(self.groups) if variable.has_trajectory_axis and self.groups else 1)
        )

    @property
    def streamed(self) -> list[Variable]:
        return [variable for variable in self.variables if variable.values is None]

    def shape(self, variable: Variable, group: int = 0) -> tuple[int, ...]:
        sizes = self.sizes
        if self.groups:
            part, shorter = self.groups[group], sizes["row"] - self.groups[group].rows
            sizes = {**sizes, "trajectory": len(part.numbers), "row": part.rows}
            # a spline has a fixed number of control points less than rows, so that a trajectory
            # with fewer rows than the longest has as many points fewer
            sizes["point"] = sizes.get("point", 0) - shorter
        return tuple(sizes[dim] for dim in variable.dims)

    def entry_bytes(self, variable: Variable, group: int = 0) -> int:
        return math.prod(self.shape(variable, group)[1:]) * variable.dtype.itemsize


@dataclass(frozen=True, kw_only=True)
class Span:
    """Trajectories ``begin`` to ``end`` (exclusive) of a group of :attr:`Description.groups`."""

    begin: int
    end: int
    group: int = 0

    def __len__(self) -> int:
        return self.end - self.begin


def describe_output(
    lengths: Mapping[int, Numbers],
    sizes: Mapping[str, int],
    variables: Sequence[Variable],
    attributes: Mapping[str, Any],
    *,
    names: Sequence[str] | None = None,
    joint_names: Sequence[str] | None = None,
) -> Description:
    """Describes an output: one array of all trajectories, or a group for each if lengths differ.

    lengths: the numbers of the trajectories that have each number of rows, counted as ``names``
    are. sizes: the sizes of the other dimensions that variables have. variables: the axis of the
    rows is ``row``; a variable ``time`` [row] says that all trajectories have the same times; where
    each has a group, it has them again. names: of the trajectories, which their groups take.
    """
    total = sum(len(numbers) for numbers in lengths.values())
    groups = []
    if len(lengths) > 1:
        assert names is not None
        # the shortest first, in the order in which Span.group counts them
        for rows, numbers in sorted(lengths.items()):
            groups.append(Group(rows, numbers, [names[n] for n in numbers]))
        # what all trajectories share is written to each group, which can then be read alone
        variables = list(variables)
        for k, v in enumerate(variables):
            if v.name == "time":
                variables[k] = replace(v, dims=ROWS[:2], values=None)
            elif not v.dims:
                variables[k] = replace(v, dims=ROWS[:1], values=np.full(total, v.values))
    # times that all share are the coordinate of the rows, which take their name
    along = "row"
    if any(variable.name == "time" and variable.dims == ("row",) for variable in variables):
        along = "time"
        variables = [
            replace(v, dims=tuple(along if dim == "row" else dim for dim in v.dims))
            for v in variables
        ]
    sizes = {"trajectory": total, along: max(lengths), **sizes}
    labels = None if groups else names
    return Description(sizes, variables, attributes, labels, joint_names, groups)


def row_variable(name: str, dtype: Any, unit: str | None = None) -> Variable:
    """Describes an array [trajectory, row, dof] in this unit, where it is known."""
    labels = {"long_name": f"joint {name}" if name in QUANTITIES else name}
    return Variable(name, ROWS, np.dtype(dtype), labels | ({"units": unit} if unit else {}))


def time_variable(shared: bool, values: Any = None, unit: str = "s") -> Variable:
    """Describes the times of the rows: one [row] for all trajectories, or [trajectory, row]."""
    label = {"long_name": "time from the start", "units": unit}
    return Variable("time", ROWS[1:2] if shared else ROWS[:2], np.dtype("f8"), label, values)


def stamp_variables(stamps: tuple[Any, str] | None) -> list[Variable]:
    """Describes the stamps of the source at which times are 0 [trajectory], if there are any."""
    if stamps is None:
        return []
    values, unit = stamps
    label = {"long_name": "stamp of the source at time 0", "units": unit}
    dtype = values.dtype.newbyteorder("=")
    return [Variable("start_stamp", ("trajectory",), dtype, label, values)]


class Output(ABC):
    """An output file that is being written. ``finish`` makes it appear; leaving its context removes
    what is not finished."""

    def __init__(self, path: Path, description: Description, level: int | None = None) -> None:
        """level: the level of deflate, where values are compressed."""
        self.path, self.description, self.level = path, description, level
        self.notes: list[str] = []
        """Remarks about a complete output."""
        self.inputs: list[str] = []
        """The input files that a part of a run lists; set before it is finished."""
        self._variables = {variable.name: variable for variable in description.variables}
        self._addresses: dict[tuple[str, int], Integers] = {}
        """The byte at which a variable begins, by its name and 0, or at which it begins for each
        trajectory of a group, by its name and the number of the group."""
        self._descriptors: dict[str, int] = {}
        """The files of the variables that are not written to the output itself at first."""
        self._open: list[int] = []

    def begin(self, overwrite: bool) -> None:
        """Makes the hidden folder, reserves the space and writes the values known beforehand."""
        with os_failures(self.path):
            self._hidden = HiddenFolder(self.path, overwrite)
            try:
                # a full disk is an error before anything is computed, and the layout of the file is
                # final before the first block: blocks can then be written in any order
                require_space(self.path, self.description.nbytes)
                self._prepare()
                self._data = self._open_file(self._hidden.data)
                for v in (v for v in self.description.variables if v.values is not None):
                    groups = self.description.groups if v.has_trajectory_axis else ()
                    for k, group in enumerate(groups):
                        self._write_entries(v.name, v.values[group.numbers], 0, k)
                    if not groups:
                        values = np.reshape(v.values, self.description.shape(v))
                        self._write_entries(v.name, values, 0)
            except BaseException:
                self.__exit__()
                raise

    def __enter__(self) -> Output:
        return self

    def __exit__(self, *_: object) -> None:
        # one descriptor that cannot be closed does not keep the others, or the folder
        while self._open:
            with contextlib.suppress(OSError):
                os.close(self._open.pop())
        self._hidden.close()

    @abstractmethod
    def _prepare(self) -> None:
        """Makes the file without the values, reserves its space, and sets their addresses."""

    def write(self, span: Span, arrays: Mapping[str, Any], first: int = 0) -> None:
        """Writes entries [b, ...] of variables of some trajectories.

        Those of rows [b, rows, ...] are written from row ``first`` on, where these are not all.
        ``time`` [1 or b, rows] is left out where the output has none.
        """
        for name, values in arrays.items():
            variable = self._variables.get(name)
            if name != "time":
                self._write_entries(name, values, span.begin, span.group, first)
            # times that a block shares are written for each of its trajectories, or once in all
            elif variable is not None and variable.has_trajectory_axis:
                times = np.broadcast_to(values, (len(span), values.shape[1]))
                self._write_entries(name, times, span.begin, span.group)
            elif (
                variable is not None
                and span.begin == 0
                # an empty part of a run has times of no rows
                and values.shape[1] == self.description.shape(variable)[0]
            ):
                self._write_entries(name, values[0], 0)

    def _write_entries(
        self, name: str, block: Any, begin: int, group: int = 0, first: int = 0
    ) -> None:
        """Writes entries begin, begin + 1, … of a variable, or their rows from ``first`` on."""
        variable = self._variables[name]
        values: Any = np.ascontiguousarray(block, variable.dtype)
        if not values.size:
            return
        entry, count = self.description.entry_bytes(variable, group), len(values)
        # in an array of all trajectories, entries follow the first; in groups, each is a dataset
        if self.description.groups and variable.has_trajectory_axis:
            addresses = self._addresses[name, group][begin : begin + count]
        else:
            address = int(self._addresses[name, 0][0])
            addresses = address + entry * np.arange(begin, begin + count)
        size = values[0].nbytes
        if size < entry:
            addresses = addresses + first * values[0, 0].nbytes
        # entries that follow each other in the file are written at once
        breaks = np.flatnonzero(np.diff(addresses) != size) + 1
        descriptor = self._descriptors.get(name, self._data)
        with os_failures(self.path):
            for start, end in pairwise([0, *breaks.tolist(), count]):
                view, address = memoryview(values[start:end]).cast("B"), int(addresses[start])
                # Linux writes less than 2 GiB at once, and a full disk less than it was asked to
                while view:
                    written = os.pwrite(descriptor, view[: 1 << 30], address)
                    view, address = view[written:], address + written

    def region(self, name: str, span: Span) -> tuple[int, int] | None:
        """Finds the file descriptor and the byte from which all entries of a span lie one after
        the other, for kernels that write into the file; None where they do not."""
        # an array of all trajectories has one address and no gaps; groups of one length have gaps
        # where HDF5 put metadata between their datasets
        group = span.group
        addresses = self._addresses[name, group]
        size = self.description.entry_bytes(self._variables[name], group)
        if int(addresses[-1] - addresses[0]) != size * (len(addresses) - 1):
            return None
        return self._descriptors.get(name, self._data), int(addresses[0]) + span.begin * size

    def finish(self) -> None:
        with os_failures(self.path):
            self._complete()
            while self._open:  # before the rename, as a network disk may only now report errors
                os.close(self._open.pop())
            self._hidden.publish()
        for path in self._hidden.close():
            self.notes.append(f"{path} could not be removed; nothing needs it")

    def _complete(self) -> None:  # noqa: B027
        """Does what remains to be done once all blocks are written."""

    def _open_file(self, path: Path) -> int:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        self._open.append(descriptor)
        return descriptor


class NpzOutput(Output):
    """An uncompressed .npz archive, in which the address of every array is known from the start.

    Trajectories of unequal length have members of their own: ``data/demo_0/position``.
    """

    def _prepare(self) -> None:
        with open(self._hidden.data, "xb+") as file:
            self._write_heads(file)
            reserve(self._hidden.data, file.tell())

    def _write_heads(self, file: BinaryIO) -> list[zipfile.ZipInfo]:
        """Writes the headers of all members; the file is then at the end of the last member."""
        # A header precedes its values and holds their CRC-32, so headers are written twice: to lay
        # the file out, and once all values are written.
        members, description = [], self.description
        for variable in description.variables:
            groups = description.groups if variable.has_trajectory_axis else ()
            for k in range(len(groups) or 1):
                names, shape = [variable.name], description.shape(variable, k)
                if groups:  # each trajectory has a member of its own
                    names, shape = [f"{n}/{variable.name}" for n in groups[k].names], shape[1:]
                head, addresses = _npy_header(variable.dtype, shape), []
                size = math.prod(shape) * variable.dtype.itemsize
                for name in names:
                    begin = file.tell()
                    # ZipInfo is dated 1980 (same input, same bytes); the attributes are the
                    # permissions that zipfile gives what it writes itself
                    member = zipfile.ZipInfo(f"{name}.npy")
                    member.header_offset, member.external_attr, member.CRC = begin, 0o600 << 16, 0
                    member.file_size = member.compress_size = len(head) + size
                    # headers have 64-bit sizes, small or large, and so the same length both times
                    file.seek(begin + len(member.FileHeader(zip64=True)))
                    remaining = member.file_size
                    while remaining > 0 and (piece := file.read(min(remaining, 4 << 20))):
                        member.CRC = zlib.crc32(piece, member.CRC)
                        remaining -= len(piece)
                    file.seek(begin)
                    file.write(member.FileHeader(zip64=True) + head)
                    addresses.append(file.tell())
                    file.seek(size, os.SEEK_CUR)
                    members.append(member)
                self._addresses[variable.name, k] = np.array(addresses, np.int64)
        return members

    def _complete(self) -> None:
        variables, joint_names = self.description.variables, self.description.joint_names
        with open(self._hidden.data, "rb+") as file, zipfile.ZipFile(file, "w") as archive:
            archive.filelist += self._write_heads(file)
            archive.start_dir = file.tell()
            labels = {"dof": joint_names, "trajectory": self.description.names}
            for name, texts in labels.items():
                if texts:
                    member = io.BytesIO()
                    np.save(member, np.array(texts, "U"), allow_pickle=False)
                    archive.writestr(zipfile.ZipInfo(f"{name}.npy"), member.getvalue())
            # what HDF5 files say in attributes and dimension scales
            document: dict[str, Any] = {
                "attributes": dict(self.description.attributes),
                "dims": {v.name: v.dims for v in variables},
                "units": {
                    v.name: v.attributes["units"] for v in variables if "units" in v.attributes
                },
                **({"dof": list(joint_names)} if joint_names else {}),
            }
            text = json.dumps(
                document, indent=2, sort_keys=True,
                default=lambda x: x.tolist() if isinstance(x, np.ndarray | np.generic) else str(x),
            )  # fmt: skip
            archive.writestr(zipfile.ZipInfo(PROVENANCE), f"{text}\n")


class NpyOutput(Output):
    """A .npy file: the one quantity that is written, and nothing else."""

    def _prepare(self) -> None:
        self._name = next(v.name for v in self.description.streamed if v.name != "time")
        variable = self._variables[self._name]
        shape = self.description.shape(variable)
        head = _npy_header(variable.dtype, shape)
        self._hidden.data.write_bytes(head)
        reserve(self._hidden.data, len(head) + math.prod(shape) * variable.dtype.itemsize)
        self._addresses[self._name, 0] = np.array([len(head)])

    def _write_entries(
        self, name: str, block: Any, begin: int, group: int = 0, first: int = 0
    ) -> None:
        if name == self._name:  # times and indices are left out
            super()._write_entries(name, block, begin, group, first)


def _npy_header(dtype: np.dtype[Any], shape: tuple[int, ...]) -> bytes:
    # one version for all shapes, where np.save would choose it by the length of the header
    head = io.BytesIO()
    layout = {"descr": dtype.str, "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_2_0(head, layout)
    return head.getvalue()
