"""The words of outputs: what quantities, their units, and the dimensions beside them are called."""

from __future__ import annotations

TAKEN = ("trajectory", "time", "row", "step", "point", "each", "dof", "times", "dt", "lengths",
         "joint_names")  # fmt: skip
"""What outputs call their dimensions and what lies beside the arrays of trajectories."""
QUANTITIES = ("position", "velocity", "acceleration", "jerk")
_PER_SECOND = {"position": "", "velocity": "/s", "acceleration": "/s^2", "jerk": "/s^3"}
RECORDED_START = "the recording's first row"
"""What the attribute ``start`` of an output says where the actions were a recording."""
RECORDED_ROW = "first row of each"
"""What it says where the start was looked up in what was recorded beside the actions."""


def unit_of(quantity: str, positions: str) -> str:
    """The unit of a quantity, by that of the positions: rad gives rad/s, rad/s^2, …"""
    return ",".join(part + _PER_SECOND[quantity] for part in positions.split(","))
