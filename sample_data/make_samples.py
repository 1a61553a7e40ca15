"""Make the sample files: ``python sample_data/make_samples.py [FOLDER]``, by default beside this.

Everything is drawn from one seed, so the same library versions give the same bytes. What each
file holds is in README.md. Needs ruckig, numpy and h5py.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import ruckig
from numpy.typing import NDArray

Floats = NDArray[np.float64]

SEED = 7

# Joints and limits of a Franka Panda arm; the jerk limit is 500 times the acceleration limit.
JOINTS = [f"panda_joint{n}" for n in range(1, 8)]
DOFS = len(JOINTS)
LOWER = np.array([-2.8973, -1.7628, -2.8973, -3.0718, -2.8973, -0.0175, -2.8973])
UPPER = np.array([2.8973, 1.7628, 2.8973, -0.0698, 2.8973, 3.7525, 2.8973])
VELOCITY = np.array([2.175, 2.175, 2.175, 2.175, 2.61, 2.61, 2.61])
ACCELERATION = np.array([15.0, 7.5, 10.0, 12.5, 15.0, 20.0, 20.0])
JERK = np.array([7500.0, 3750.0, 5000.0, 6250.0, 7500.0, 10000.0, 10000.0])

UNITS = {"position": "rad", "velocity": "rad/s", "acceleration": "rad/s^2", "jerk": "rad/s^3"}


def main(folder: Path) -> None:
    """Write all sample files into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    write_limits(folder / "limits.toml")
    write_reach(folder / "reach.h5")
    write_accelerations(folder / "accelerations.npy", folder / "start.npy")
    write_control_points(folder / "control_points.npz")
    write_recordings(folder / "recorded.h5", folder / "recorded_faulty.h5")
    write_log(folder / "log.csv")
    write_demonstrations(folder / "demos.hdf5")


# limits.toml


def write_limits(path: Path) -> None:
    names = ", ".join(f'"{name}"' for name in JOINTS)
    path.write_text(
        f"""\
# Joint limits of a Franka Panda arm, one number per joint in the order of joint_names.
# Where only upper is given, the limit is symmetric: lower is its negative.

joint_names = [{names}]
units = "rad"

[position] # rad
lower = {LOWER.tolist()}
upper = {UPPER.tolist()}

[velocity] # rad/s
upper = {VELOCITY.tolist()}

[acceleration] # rad/s^2
upper = {ACCELERATION.tolist()}

[jerk] # rad/s^3
upper = {JERK.tolist()}
""",
        encoding="utf-8",
    )


# reach.h5: time-optimal motions, as pieces of constant jerk


def write_reach(path: Path, batch: int = 64, horizon: int = 64) -> None:
    rng = np.random.default_rng([SEED, 1])
    motions = [random_motion(rng, index) for index in range(batch)]
    times = np.stack([split(break_times(motion), horizon) for motion in motions])  # [B, H + 1]
    states = np.array(  # [B, H + 1, (p, v, a), D]
        [[motion.at_time(t) for t in row] for motion, row in zip(motions, times, strict=True)]
    )
    jerks = [jerk_between(motion, row) for motion, row in zip(motions, times, strict=True)]
    with h5py.File(path, "w") as file:
        file.attrs.update(mode="jerk", scheme="zoh")
        put(file, "actions", np.stack(jerks), UNITS["jerk"])
        put(file, "dt", np.diff(times), "s")
        for order, part in enumerate(("position", "velocity", "acceleration")):
            put(file, f"start/{part}", states[:, 0, order], UNITS[part])
            put(file, f"reference/{part}", states[:, :, order], UNITS[part])
        file["joint_names"] = JOINTS


def random_motion(rng: np.random.Generator, index: int) -> Any:
    """A Ruckig trajectory that keeps the limits and has no phase shorter than a microsecond.

    Of four motions in turn, the first is from rest to rest, the second starts moving, the third
    ends moving, the fourth does both. Each plans for a speed of its own, down to half the limit;
    where a joint starts a little faster than that, it brakes first.
    """
    task = ruckig.InputParameter(DOFS)
    task.max_acceleration, task.max_jerk = ACCELERATION, JERK
    while True:
        speed = rng.uniform(0.5, 0.95) * VELOCITY
        task.max_velocity = speed
        task.current_position, task.target_position = rng.uniform(LOWER, UPPER, (2, DOFS))
        if index % 4 in (1, 3):
            task.current_velocity = np.clip(rng.uniform(-1.2, 1.2, DOFS), -1.003, 1.003) * speed
            task.current_acceleration = rng.uniform(-0.3, 0.3, DOFS) * ACCELERATION
        if index % 4 in (2, 3):
            task.target_velocity = rng.uniform(-0.5, 0.5, DOFS) * speed
        motion = plan(task)
        if keeps_position_limits(motion) and shortest_phase(motion) > 1e-6:
            return motion


def keeps_position_limits(motion: Any) -> bool:
    # Ruckig's position_extrema leave out turning points at constant acceleration.
    margin = 1e-3  # more than a joint moves off its way between two of the times
    times = np.linspace(0.0, motion.duration, 1000)
    position = np.array([motion.at_time(t)[0] for t in times])
    return bool(np.all((position > LOWER + margin) & (position < UPPER - margin)))


def shortest_phase(motion: Any) -> float:
    # After some brakes Ruckig leaves a phase of 2.2e-14 s: too long to drop, too short to plot.
    lengths = np.concatenate([phases(joint)[0] for joint in motion.profiles[0]])
    shortest = min(lengths[lengths > 0].min(), np.diff(break_times(motion)).min())
    return float(shortest)


def plan(task: Any) -> Any:
    motion = ruckig.Trajectory(DOFS)
    result = ruckig.Ruckig(DOFS).calculate(task, motion)
    if result != ruckig.Result.Working:
        raise RuntimeError(f"Ruckig found no motion: {result}")
    return motion


def phases(profile: Any) -> tuple[Floats, Floats]:
    """Length of each phase of one joint, and its jerk; a brake comes before the seven others."""
    brake = profile.brake
    if brake.duration > 0:
        return np.array([*brake.t, *profile.t]), np.array([*brake.j, *profile.j])
    return np.array(profile.t), np.array(profile.j)


def break_times(motion: Any) -> Floats:
    """All times at which the jerk of some joint changes, from 0 to the motion's end."""
    ends = [np.cumsum(phases(joint)[0]) for joint in motion.profiles[0]]
    times = np.sort(np.concatenate([[0.0], *ends]))
    # Joints stop at the same time, but for rounding.
    return times[np.diff(times, prepend=-1.0) > 1e-12]


def split(times: Floats, steps: int) -> Floats:
    """Cut the longest intervals, each into equal parts, until there are this many."""
    lengths = np.diff(times)
    parts = np.ones(len(lengths), dtype=np.int64)
    if len(parts) > steps:
        raise ValueError(f"a motion has {len(parts)} phases, more than {steps}")
    while parts.sum() < steps:
        parts[np.argmax(lengths / parts)] += 1
    intervals = [
        np.linspace(t, t + length, n, endpoint=False)
        for t, length, n in zip(times[:-1], lengths, parts, strict=True)
    ]
    return np.concatenate([*intervals, times[-1:]])


def jerk_between(motion: Any, times: Floats) -> Floats:
    """The jerk [H, D] that holds in each step."""
    middle = (times[:-1] + times[1:]) / 2
    columns = []
    for joint in motion.profiles[0]:
        lengths, jerks = phases(joint)
        columns.append(jerks[np.searchsorted(np.cumsum(lengths), middle)])
    return np.stack(columns, axis=1)


# accelerations.npy and start.npy: minimum-jerk motions


def write_accelerations(path: Path, start_path: Path, batch: int = 64, steps: int = 100) -> None:
    rng = np.random.default_rng([SEED, 2])
    dt = 0.02
    duration = rng.uniform(1.2, 1.9, (batch, 1))
    start, goal = rng.uniform(LOWER, UPPER, (2, batch, DOFS))
    # Stop short of a goal too far away; the peak speed is 15/8 of the mean speed.
    way = goal - start
    peak = 15 / 8 * np.max(np.abs(way) / VELOCITY, axis=1, keepdims=True) / duration
    way *= np.minimum(1.0, rng.uniform(0.3, 0.9, (batch, 1)) / peak)
    # Row −1 is before the start: its difference says that the motion starts at rest.
    time = dt * np.arange(-1, steps + 1)
    progress = minimum_jerk(np.clip(time / duration, 0.0, 1.0))[..., None]
    position = start[:, None] + progress * way[:, None]
    # Second differences, so that v += dt·a, p += dt·v meets these positions.
    acceleration = np.diff(position, n=2, axis=1) / dt**2
    np.save(path, acceleration.astype(np.float32))
    np.save(start_path, start.astype(np.float32))


def minimum_jerk(s: Floats) -> Floats:
    """From 0 to 1 with the least jerk, at rest at both ends (Flash and Hogan, 1985)."""
    return s**3 * (10 - 15 * s + 6 * s**2)


# control_points.npz: B-spline control points of curved motions


def write_control_points(path: Path, batch: int = 16, points: int = 24) -> None:
    rng = np.random.default_rng([SEED, 3])
    middle, half = (LOWER + UPPER) / 2, (UPPER - LOWER) / 2
    start, goal = middle + half * rng.uniform(-0.45, 0.45, (2, batch, DOFS))
    bend = half * rng.uniform(-0.2, 0.2, (batch, DOFS))
    s = np.linspace(0.0, 1.0, points)[:, None]
    actions = start[:, None] + minimum_jerk(s) * (goal - start)[:, None]
    actions += 64 * (s * (1 - s)) ** 3 * bend[:, None]
    np.savez(
        path,
        actions=actions,
        start_position=start,
        goal_position=goal,
        dt=np.float64(0.02),
        joint_names=np.array(JOINTS),
    )


# recorded.h5 and recorded_faulty.h5: what a logger writes


ENCODER_STEP = 2 * np.pi / 2**20


def write_recordings(path: Path, faulty_path: Path, rows: int = 2000) -> None:
    rng = np.random.default_rng([SEED, 4])
    jitter = np.clip(rng.normal(0.0, 4e-4, rows), -2e-3, 2e-3)
    elapsed = 0.01 * np.arange(1, rows + 1) + jitter
    position = wander(rng, elapsed)
    position = np.round(position / ENCODER_STEP) * ENCODER_STEP
    times = 1.7e9 + elapsed
    write_recording(path, position, times)
    # A logger that writes a message twice: rows 120 and 250 repeat the row before them.
    chosen = np.sort(np.concatenate([np.arange(298), [119, 248]]))
    write_recording(faulty_path, position[chosen], times[chosen])


def write_recording(path: Path, position: Floats, times: Floats) -> None:
    with h5py.File(path, "w") as file:
        put(file, "position", position, UNITS["position"])
        put(file, "times", times, "s")
        file["joint_names"] = JOINTS


def wander(rng: np.random.Generator, times: Floats) -> Floats:
    """Position [H, D] at some times: unhurried motions from place to place, with rests between."""
    task = ruckig.InputParameter(DOFS)
    task.max_velocity, task.max_acceleration = 0.5 * VELOCITY, 0.1 * ACCELERATION
    task.max_jerk = 0.001 * JERK
    task.target_position = (LOWER + UPPER) / 2
    position = np.tile(task.target_position, (len(times), 1))
    begin = 0.3
    while True:
        task.current_position = task.target_position
        task.target_position = rng.uniform(0.8 * LOWER + 0.2 * UPPER, 0.2 * LOWER + 0.8 * UPPER)
        motion = plan(task)
        if begin + motion.duration > times[-1]:
            return position
        later = times >= begin
        position[later] = [motion.at_time(t - begin)[0] for t in times[later]]
        begin += motion.duration + rng.uniform(0.0, 0.5)


# log.csv: what a controller was told and what its robot did


def write_log(path: Path, rows: int = 600) -> None:
    rng = np.random.default_rng([SEED, 5])
    jitter = np.clip(rng.normal(0.0, 4e-4, rows), -2e-3, 2e-3)
    elapsed = 0.01 * np.arange(1, rows + 1) + jitter
    commanded, measured = (wander(np.random.default_rng([SEED, 5]), elapsed - late)
                           for late in (0.0, 0.03))  # fmt: skip
    measured[:, 3] -= 0.004  # an arm that hangs a little below its command
    measured = np.round(measured / ENCODER_STEP) * ENCODER_STEP
    names = [f"{side}/{joint}" for side in ("commanded", "measured") for joint in JOINTS]
    lines = [",".join(["time", *names])]
    for stamp, row in zip(1.7e9 + elapsed, np.hstack([commanded, measured]), strict=True):
        lines.append(",".join([f"{stamp:.6f}", *(f"{value:.6f}" for value in row)]))
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


# demos.hdf5: demonstrations as robomimic keeps them


def write_demonstrations(path: Path, count: int = 8, rate: int = 20) -> None:
    rng = np.random.default_rng([SEED, 6])
    with h5py.File(path, "w") as file:
        environment = {"env_name": "Reach", "env_kwargs": {"control_freq": rate}}
        file.create_group("data").attrs["env_args"] = json.dumps(environment)
        for number in range(count):
            commanded, measured, gripper = demonstration(rng, rate)
            if number == 5:  # one reading that went wrong
                measured[len(measured) // 2, 2] += 0.6
            group = file.create_group(f"data/demo_{number}")
            group.attrs["num_samples"] = len(measured)
            actions = np.hstack([commanded, 2.0 * gripper - 1.0])
            group["actions"] = actions.astype(np.float32)
            group["obs/robot0_joint_pos"] = measured.astype(np.float32)
            group["obs/robot0_gripper_qpos"] = (0.04 * gripper).astype(np.float32)


def demonstration(rng: np.random.Generator, rate: int) -> tuple[Floats, Floats, Floats]:
    """Commands, joints [T, D] and gripper [T, 1]: a motion there and back, with idle ends."""
    task = ruckig.InputParameter(DOFS)
    task.max_velocity, task.max_acceleration = 0.6 * VELOCITY, 0.2 * ACCELERATION
    task.max_jerk = 0.005 * JERK
    middle, half = (LOWER + UPPER) / 2, (UPPER - LOWER) / 2
    task.current_position = middle + 0.2 * half * rng.uniform(-1.0, 1.0, DOFS)
    task.target_position = middle + 0.6 * half * rng.uniform(-1.0, 1.0, DOFS)
    motion, first, last = plan(task), rng.uniform(0.4, 2.0), rng.uniform(0.3, 1.2)
    times = np.arange(0.0, first + 2 * motion.duration + last, 1 / rate)

    def position(elapsed: Floats) -> Floats:
        turn = motion.duration - abs(elapsed - first - motion.duration)  # back as it came
        return np.array([motion.at_time(max(t, 0.0))[0] for t in turn])

    closed = (times > first + motion.duration)[:, None].astype(np.float64)
    return position(times), position(times - 1.5 / rate), closed


def put(file: Any, name: str, values: Floats, units: str) -> None:
    file[name] = values
    file[name].attrs["units"] = units


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parent)
