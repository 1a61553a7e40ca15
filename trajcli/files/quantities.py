"""Names of quantities, their units, and the dimensions beside them in outputs."""

from __future__ import annotations

import re
from collections.abc import Iterable

TAKEN = ("trajectory", "time", "row", "step", "point", "each", "dof", "times", "dt", "lengths",
         "joint_names", "start_stamp")  # fmt: skip
"""Names in outputs of dimensions and of what lies beside the arrays of trajectories."""
QUANTITIES = ("position", "velocity", "acceleration", "jerk")
ROTATIONS = ("orientation", "angular_velocity", "angular_acceleration", "angular_jerk")
UNITS_OF_ROTATIONS = ("", "rad/s", "rad/s^2", "rad/s^3")
_PER_SECOND = {"position": "", "velocity": "/s", "acceleration": "/s^2", "jerk": "/s^3"}
_LISTED_SOURCES = 100
SMOOTHING: dict[str, dict[str, str]] = {
    "bandlimit": {"long_name": "cutoff frequency", "units": "Hz"},
    "residual": {"long_name": "deviation of residuals"},
    "reweighted": {"long_name": "rows with less weight"},
}
"""Arrays of the smoothing spline for each dof of each trajectory, with their labels."""
RECORDED_POSITION = "recorded_position"
"""The positions that an output was smoothed from."""
RECORDED_START = "the recording's first row"
"""The attribute ``start`` of an output that was computed from a recording."""
RECORDED_ROW = "first row of each"
"""The attribute ``start`` where states were recorded beside the actions."""
STATES = ("start", "goal", "grad")
"""Groups that hold states or gradients, not trajectories."""
POSITIONS = ("position", "qpos", "q", "joint_positions", "joint_position", "joint_pos", "actual_q",
             "arr_0")  # fmt: skip
"""Other names of positions; the first of these is taken where nothing is named."""
_RATES = {"velocity": "vel|twist|gyro|(?:^|_)(?:qd|dq)(?:$|_)",
          "acceleration": "acc|(?:^|_)(?:qdd|ddq)(?:$|_)", "jerk": "jerk"}  # fmt: skip
"""What arrays of derivatives of positions are called, by quantity."""


def named_rate(name: str) -> str:
    """Returns the derivative that an array is by its name, velocity to jerk; "" for others."""
    return next((rate for rate, words in _RATES.items() if re.search(words, name.lower())), "")


def sources_text(attribute: str, names: Iterable[str]) -> str:
    """Returns an attribute of an output that sums up names: ``source`` has a line for each, of many
    the first; another one the first, and how many others there are."""
    lines = list(dict.fromkeys(names))
    most, between = (_LISTED_SOURCES, "\n") if attribute == "source" else (1, " ")
    more = len(lines) - most
    return between.join(lines[:most] + [f"and {more} more"] * (more > 0))


def unit_of(quantity: str, positions: str) -> str:
    """Returns the unit of a quantity, by that of the positions: rad gives rad/s, rad/s^2, …"""
    parts = positions.split(",")
    return ",".join(part if part == "-" else part + _PER_SECOND[quantity] for part in parts)
