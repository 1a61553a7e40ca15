"""Writes ROS's trajectory_msgs/JointTrajectory as YAML or JSON, as ros2_control takes it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping

import numpy as np

from trajcli.errors import InputError, Note, Report
from trajcli.files.recording import Array, Recording
from trajcli.views.recordings import find_quantities, first_part

# Numbers that YAML 1.1 takes for texts, as they have an exponent and no point: 1e-05.
_NO_POINT = re.compile(r"(?<![.\d])(\d)e")
_FIELDS = {"position": "positions", "velocity": "velocities", "acceleration": "accelerations"}


def point_fields(batch: Recording, owners: Iterable[Recording], report: Report) -> dict[str, str]:
    """Assigns an array to each field of a point.

    Raises InputError for what is not one trajectory of joints with their times, as where ``owners``
    of its arrays have rotations.
    """
    stored, path = find_quantities(batch)[0], batch.file.path
    joints = ",".join(f"joint{k + 1}" for k in range(batch.shape[2]))
    # By what is wrong: whether it is, and the way out.
    faults = {
        "several trajectories": (len(batch) > 1, f"--episodes {batch.numbers[0]} picks one"),
        "rotations": (
            any(x.rotations or x.holds_rotations for x in owners),
            f"{path}:DATASET, or --dofs, picks joints",
        ),
        "no positions": ("position" not in stored, f"{path}:DATASET names them"),
        "joints without names": (batch.joint_names is None, f"--joints {joints} names them"),
        "no times": (batch.clock is None, "--dt SECONDS or --rate HZ says the step"),
    }
    for found, (wrong, hint) in faults.items():
        if wrong:
            what, expected = "no JointTrajectory", "one trajectory of joints, with its times"
            where = str(first_part(batch).where)
            raise InputError(what, where=where, expected=expected, found=found, hint=hint)
    if left_out := [name for name in stored if name not in _FIELDS]:
        report.add_notes(Note(f"a JointTrajectory has no {', '.join(left_out)}: left out"))
    return {_FIELDS[quantity]: name for quantity, name in stored.items() if quantity in _FIELDS}


def point_document(batch: Recording, rows: Mapping[str, Array], times: Array, as_json: bool) -> str:
    """Writes a JointTrajectory of rows [T, D] by field at times [T], with a line for each point.

    Numbers have enough digits to read the same numbers back. Raises InputError for values and times
    that no controller follows.
    """
    nanoseconds = np.rint((times.astype(np.float64) - float(times[0])) * 1e9).astype(np.int64)
    finite = all(np.isfinite(values).all() for values in rows.values())
    if not finite or not (np.diff(nanoseconds) > 0).all():
        found = "times that do not increase by 1 ns or more" if finite else "NaN or Inf"
        raise InputError("no JointTrajectory", where=batch.place_text(0), found=found)
    points = []
    lines = zip(*(values.tolist() for values in rows.values()), strict=True)
    for time, values in zip(nanoseconds.tolist(), lines, strict=True):
        stamp = {"sec": time // 10**9, "nanosec": time % 10**9}
        point = json.dumps({**dict(zip(rows, values, strict=True)), "time_from_start": stamp})
        points.append(_NO_POINT.sub(r"\1.0e", point))
    joints = json.dumps(batch.joint_names)
    if as_json:
        return f'{{"joint_names": {joints}, "points": [\n' + ",\n".join(points) + "\n]}\n"
    return f"joint_names: {joints}\npoints:\n" + "".join(f"- {point}\n" for point in points)
