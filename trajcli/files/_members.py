"""Where each of the trajectories of a file lies."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from trajcli.errors import Fault
from trajcli.files.catalogue import Dataset

LEAVE_OUT = "--episodes reads others; --skip-bad of differentiate, check and others leaves it out"
"""The hint at a bad trajectory among good ones."""


class Member(NamedTuple):
    """One trajectory of a file: its group, or its rows in arrays that hold all trajectories.

    name: its name in messages and, as a group, in outputs. fault: why it cannot be used. Without a
    layout such arrays have ``total`` rows of ``siblings``, of which this is the ``number``-th.
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
        """Returns the path of one of its arrays."""
        return f"{self.group}/{name}" if self.group else name

    def rows_of(self, array: Dataset) -> Dataset:
        """Returns its rows of an array that holds all trajectories; any other array unchanged."""
        if self.end is None:
            return array
        begin, read = self.begin, array.read_rows
        return replace(
            array,
            where=array.where.then(f" ({self.name}: rows {begin} to {self.end - 1})"),
            shape=(self.end - begin, *array.shape[1:]),
            reader=lambda start, stop: read(begin + start, begin + stop),
            storage="part of an array",
        )


class Split(NamedTuple):
    """The trajectories of a file, in natural order.

    rows: the number of rows of arrays that hold all trajectories one after the other, else 0.
    remark: a warning about the trajectories that were found.
    """

    members: list[Member]
    rows: int = 0
    remark: str = ""
