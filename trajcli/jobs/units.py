"""The units a divided run is made of, and which of them a share does.

A unit is some trajectories that follow each other in the order of a run in one piece, all of one
length. Where units begin and end is decided by the data alone, so that what one share has done
counts whatever the number of shares is next time. Shares get runs of units of about equal bytes.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate

LEAST_BYTES = 64 << 10
_USUAL_BYTES = 64 << 20
"""Of a unit; a part takes some 5 ms beside what is written to it."""
_USUAL_UNITS = 1 << 7
"""Less data are cut into smaller units, so that many shares have some."""
_MOST_UNITS = 1 << 16
_PER_FOLDER = 1000
"""Large folders are slow on the file systems of clusters."""


@dataclass(frozen=True)
class Unit:
    """Trajectories begin..end of one length; ``first``: how many of other lengths come before."""

    number: int
    length: int
    begin: int
    end: int
    first: int
    nbytes: int

    @property
    def trajectories(self) -> tuple[int, int]:
        """Its trajectories in the order of the run."""
        return self.first + self.begin, self.first + self.end

    @property
    def name(self) -> str:
        """What its files are called: its number and its range."""
        begin, end = self.trajectories
        return f"{self.number:06d}-{begin}-{end}"

    @property
    def folder(self) -> str:
        """The folder its files are in."""
        return f"{self.number // _PER_FOLDER:04d}"


@dataclass(frozen=True)
class Division:
    """How a run is cut: for each length how many trajectories, and the bytes written for each."""

    lengths: Sequence[tuple[int, int]]
    least: int

    def __len__(self) -> int:
        return self._units[-1]

    @property
    def total(self) -> int:
        """Bytes of the whole."""
        return self._bytes[-1]

    def unit(self, number: int) -> Unit:
        """A unit by its number."""
        k = bisect_right(self._units, number) - 1
        count, each = self.lengths[k]
        begin = (number - self._units[k]) * self._steps[k]
        end = min(begin + self._steps[k], count)
        return Unit(number, k, begin, end, self._firsts[k], (end - begin) * each)

    def share_of(self, number: int, shares: int) -> int:
        """Which of so many shares does a unit: the one whose bytes its middle lies in."""
        unit = self.unit(number)
        before = self._bytes[unit.length] + unit.begin * self.lengths[unit.length][1]
        return (2 * before + unit.nbytes) * shares // (2 * self.total) if self.total else 0

    def of_share(self, index: int, shares: int) -> range:
        """The units of a share, which follow each other; none where there are more shares."""

        def share(number: int) -> int:
            return self.share_of(number, shares)

        numbers = range(len(self))
        return numbers[
            bisect_left(numbers, index, key=share) : bisect_right(numbers, index, key=share)
        ]

    @cached_property
    def _steps(self) -> list[int]:
        """How many trajectories of each length go together."""
        usual = min(_USUAL_BYTES, max(self.least, self.total // _USUAL_UNITS))
        target = max(usual, self.total // _MOST_UNITS)
        return [max(1, target // max(1, each)) for _, each in self.lengths]

    @cached_property
    def _units(self) -> list[int]:
        """The number of the first unit of each length, and of all."""
        counts = [
            max(1, -(-count // step))
            for (count, _), step in zip(self.lengths, self._steps, strict=True)
        ]
        return [0, *accumulate(counts)]

    @cached_property
    def _firsts(self) -> list[int]:
        return [0, *accumulate(count for count, _ in self.lengths)]

    @cached_property
    def _bytes(self) -> list[int]:
        return [0, *accumulate(count * each for count, each in self.lengths)]
