"""How a cascade is laid out over programs: lanes, tiles, and pieces of long trajectories."""

from __future__ import annotations

from dataclasses import dataclass

from trajcli.kernels.triton_ops.memory import power_of_two

COLUMNS = 32
WARPS = 2048
"""Warps that keep a large device busy: trajectories are cut into pieces to have as many."""
LONG = 2048
"""Rows from which that pays for a cascade: the actions are then read twice."""
LEAST_ROWS = 64
_LARGEST_OFFSET = 2**31 - 1


@dataclass(frozen=True)
class Grid:
    """How a job is laid out: ``pieces`` of ``piece_rows`` per trajectory, N lanes of DP columns
    and K rows to a tile."""

    batch: int
    dofs: int
    pieces: int
    piece_rows: int
    N: int
    DP: int
    K: int

    @property
    def programs(self) -> tuple[int, int]:
        return -(-self.batch * self.pieces // self.N), -(-self.dofs // self.DP)

    @property
    def tile(self) -> dict[str, int]:
        return {"D": self.dofs, "DP": self.DP, "N": self.N, "K": self.K}

    def wide(self, *strides: int) -> bool:
        """Whether offsets within a program may not fit 32 bits."""
        reach = self.N * max(strides) + self.pieces * self.piece_rows * self.dofs
        return reach + self.K * self.dofs > _LARGEST_OFFSET


def grid(batch: int, rows: int, dofs: int, heavy: bool = False, cheap: bool = False) -> Grid:
    """The layout of so many rows; it does not depend on the device.

    It depends on the number of trajectories: where few are long, they are cut into pieces. Sums
    are carried to 106 bits either way and rounded once, so that the pieces change a float32 only
    where a sum lies within 2^-80 or so of the middle between two.

    heavy: a row takes many registers (steps of its own, foh), so a tile has fewer rows. cheap:
    a piece begins anywhere (windows), with a few rows that are read twice.
    """
    long = 2 * LEAST_ROWS if cheap else LONG
    DP = min(COLUMNS, power_of_two(dofs))
    N = COLUMNS // DP
    K = 4 if heavy else 8
    warps = -(-batch // N) * -(-dofs // DP)
    whole = Grid(batch, dofs, 1, rows, N, DP, K)
    if rows < long or warps * 2 > WARPS:
        return whole
    pieces = WARPS * N // (batch * -(-dofs // DP))
    piece_rows = max(LEAST_ROWS, -(-rows // max(1, pieces)))
    piece_rows = -(-piece_rows // K) * K
    if rows <= piece_rows:
        return whole  # of rows as many as there are, which kernels rely on
    return Grid(batch, dofs, -(-rows // piece_rows), piece_rows, N, DP, K)
