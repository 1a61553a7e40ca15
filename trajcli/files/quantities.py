"""Recognises arrays and columns by their names: quantities, their units, times and counts."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache

from trajcli.modes.mode import QUANTITIES as QUANTITIES
from trajcli.units import parse_time_unit

RESERVED_NAMES = (
    "trajectory", "time", "row", "step", "point", "each", "dof", "times", "dt", "lengths",
    "joint_names", "start_stamp",
)  # fmt: skip
"""Names in outputs of dimensions and of the arrays that describe trajectories."""
DOF_NAMES = ("joint_names", "dof")
"""Datasets that name the dofs of the arrays in their group and in groups below it."""
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
ANGULAR_SMOOTHING = {
    "angular_bandlimit": SMOOTHING["bandlimit"],
    "angular_residual": {**SMOOTHING["residual"], "units": "rad"},
}
"""Arrays of the smoothing spline for each axis of each rotation, with their labels."""
RECORDED_POSITION = "recorded_position"
"""The positions that an output was smoothed from."""
RECORDED_START = "the recording's first row"
"""The attribute ``start`` of an output that was computed from a recording."""
RECORDED_ROW = "first row of each"
"""The attribute ``start`` where states were recorded with the actions."""
STATES = ("start", "goal", "grad")
"""Groups that hold states or gradients, not trajectories."""
POSITIONS = ("position", "qpos", "q", "joint_positions", "joint_position", "joint_pos", "actual_q",
             "arr_0")  # fmt: skip
"""Other names of positions; the first of these is taken where nothing is named."""
# The letters around a short name are excluded, so that q matches joint_q but not sequence.
_RATES = {"jerk": "jerk",
          "acceleration": r"acceler|(?<![a-z])(?:q|ang|lin)?acc(?:el)?s?(?![a-z])"
          r"|(?<![a-z])(?:qdd|ddq)(?![a-z])|(?<![a-z])dd(?:theta|x)|(?<![a-z])(?:q|theta|x)_?ddot",
          "velocity": r"(?<!le)(?<!tra)(?<!no)vel|twist|gyro|omega|speed"
          r"|(?<![a-z])(?:qd|dq)(?![a-z])|(?<![a-z])d(?:theta|x)|(?<![a-z])(?:q|theta|x)_?dot",
          "effort": r"(?<![a-z])(?:eff(?:ort)?|torque|force|wrench|tau|temp(?:erature)?"
          r"|volt(?:age)?)s?(?![a-z])"
          r"|(?<![a-z])currents?[^a-z]*(?:,|$)"}  # fmt: skip
"""Names of arrays of derivatives of positions by quantity, and of efforts."""
_POSITIONS = r"pos|(?<![a-z])q(?!_?d?dot)(?![a-z])"
_NO_MOTION = (
    "cov(?:ariance)?s?|images?|imgs?|rgbd?|depths?|masks?|gains?|(?:in|ex)trinsics?|calib(?:ration)?|cam(?:era)?s?"
    "|(?:point_?)?clouds?|rewards?|returns?|labels?|embeddings?|features?|weights?|ids?|counts?"
)
TIMES = ("time", "times", "timestamp", "timestamps", "stamp", "stamps", "t", "seconds", "second",
         "secs", "sec", "ts", "time_stamp", "zeit", "zeitstempel", "temps", "tiempo",
         "tempo", "时间", "時間", "elapsed", "monotonic", "datetime", "date_time",
         "tout")  # fmt: skip
"""Names of time stamps in arrays and columns, the most usual first."""
EPISODE_ENDS = ("terminals", "timeouts", "dones", "done", "terminal", "timeout", "terminated",
                "truncated", "terminations", "truncations", "is_last")  # fmt: skip
"""Names of flags that are set in the last row of an episode."""
_COUNTED = "frame|row|sample|step|global|message|msg|packet|image|line|seq|scan"
# Names that are no dofs, by role: time stamps, with any sensor or clock before them; steps; what
# may be a time or a count; counts of rows; and flags of the last row.
_ROLES = {
    "time": "|".join(TIMES) + r"|.+_(?:time_?stamps?|stamp)|(?:log|rel(?:ative)?|abs(?:olute)?|ros|"
    "elapsed|sim(?:ulation)?|bag|unix|epoch|utc|gps|robot|controller|system|host|local|wall|real|"
    "record(?:ing)?|receive|publish|capture|camera|sample|current|monotonic|traj(?:ectory)?)_?time",
    "step": "dt|delta_?t|delta_?time|time_?delta",
    "rate": "fps|control_freq(?:uency)?|(?:mocap_?)?frame_?rate"
    "|sampl(?:e|ing)_?(?:rate|freq(?:uency)?)",
    "likely": "time_?steps?|epoch|clock|ticks?|.+_(?:times?|stamps)|time_stamps",
    "count": "(?:sub_?)?frames?|rows?|index|idx|seq|sequence|id|no|nr|count(?:er)?|samples?|steps?|"
    f"lines?|iter(?:ation)?s?|packet|unnamed:_0|(?:{_COUNTED})_?(?:index|idx|id|no|nr|num|number|"
    "count|counter)",
    "end": "|".join(EPISODE_ENDS),
}


def rate_name(name: str) -> str:
    """Recognises a derivative, velocity to jerk, or an effort by its name; "" for others."""
    # the last part of a path that says anything counts: obs/velocity/pos is a position
    for part in reversed(name.lower().split("/")):
        rate = next((rate for rate, words in _RATES.items() if re.search(words, part)), "")
        if rate or re.search(_POSITIONS, part):
            return "" if re.search(_POSITIONS, part) else rate
    return ""


def motion_rank(name: str) -> int:
    """Ranks names: 0 for positions, 1 for others, 2 for rates and efforts, 3 for no motion."""
    last = re.split(r"[./]", name.lower())[-1]
    if role(name) or re.search(f"(?:^|[^a-z])(?:{_NO_MOTION})(?:[^a-z]|$)", last):
        return 3
    return 2 if rate_name(name) else int(not re.search(f"{_POSITIONS}|joint|state|xyz", last))


def derivative_order(name: str) -> int:
    """Counts the derivatives from positions to an array by its name, 0 for positions and others."""
    rate = rate_name(name)
    return QUANTITIES.index(rate) if rate in QUANTITIES else 0


def split_unit(name: str) -> tuple[str, str]:
    """Splits a name and its unit: q [deg] → q, deg; for times and steps also timestamp_ns."""
    match = re.fullmatch(r"(.*?)\s*[\[(]([^\])]*)[\])]", name)
    if match and match[1] and not match[2].isdecimal():
        return match[1], match[2]
    # a unit without brackets, as in q_m, may be part of the name of a dof
    stem, _, unit = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).rpartition("_")
    timed = stem and parse_time_unit(unit) and role(stem) in ("time", "step")
    return (stem, unit) if timed else (name, "")


def last_word(name: str) -> str:
    """Reduces a path to the words of its last part: /header/stamp → stamp, Time [s] → time."""
    last = re.split(r"[./]", split_unit(name)[0])[-1]
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|[ -]+", "_", last).lower().strip("_%#")


@lru_cache(maxsize=4096)
def role(name: str) -> str:
    """Tells by its name the role of a column or array that is no dof; "" for dofs.

    It is a "time", "step", "rate", "count" of rows, "likely" a time, or the "end" of episodes.
    """
    # cached: thousands of files and demonstrations have the same few names
    word = last_word(name)
    return next((role for role, words in _ROLES.items() if re.fullmatch(words, word)), "")


def time_rank(name: str) -> int:
    """Ranks a name of time stamps by how usual it is, 0 for the most usual."""
    # __time and %time are when a recorder received a row; the time in a header is more accurate
    word = last_word(name) if name[:1] not in "%_" else ""
    return TIMES.index(word) if word in TIMES else len(TIMES)


def sources_text(attribute: str, names: Iterable[str]) -> str:
    # ``source`` has a line for each of the first hundred names, other attributes have one name
    lines = list(dict.fromkeys(names))
    most, between = (_LISTED_SOURCES, "\n") if attribute == "source" else (1, " ")
    more = len(lines) - most
    return between.join([*lines[:most], *([f"and {more} more"] if more > 0 else [])])


def derive_unit(quantity: str, positions: str) -> str:
    """Derives the unit of a quantity from that of the positions: rad gives rad/s, rad/s^2, …"""
    parts = positions.split(",")
    return ",".join(part if part == "-" else part + _PER_SECOND[quantity] for part in parts)
