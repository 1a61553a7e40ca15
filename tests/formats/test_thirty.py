"""The table of formats in docs/data.md: each command as it stands, on a small file that the
project's own library wrote where it installs; p, v, a, j and times against NumPy."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pytest
from formats import test_tables as tables
from layouts import writers

from trajcli.files.source import natural_key

RATE = 50
JOINTS = ["shoulder", "elbow", "wrist"]
LENGTHS = (9, 6, 8, 7, 9, 6, 8, 7, 9, 6, 8)
"""Of so many that the tenth would come second if names were sorted as texts."""
QUANTITIES = ("position", "velocity", "acceleration", "jerk")
DOCS = Path(__file__).resolve().parents[2] / "docs" / "data.md"
Rows = list[np.ndarray]
Case = tuple[Callable[[], "Rows | None"], float]
"""Makes the files and returns the positions [T, D] of each trajectory; the step in seconds."""


def dialect(name: str, path: str = "log.csv") -> Case:
    def make() -> Rows:
        write, _, _, expected = tables.DIALECTS[name]
        write()
        shutil.move("log.csv", path)
        return [expected]

    return make, tables.STEP


def curves(lengths: tuple[int, ...] = LENGTHS, kind: str = "f8") -> Rows:
    return [
        np.sin(np.arange(n)[:, None] / RATE + k + np.arange(3)).astype(kind)
        for k, n in enumerate(lengths)
    ]


def columns(rows: Rows) -> dict[str, np.ndarray]:
    """The number of its trajectory, its place there and its time, of each row."""
    frames = np.concatenate([np.arange(len(one)) for one in rows])
    numbers = np.repeat(np.arange(len(rows)), [len(one) for one in rows])
    return {"episode_index": numbers, "frame_index": frames, "timestamp": frames / RATE}


def pandas_parquet() -> Rows:
    pandas, rows = pytest.importorskip("pandas"), curves()
    joints = {f"q/{name}": np.concatenate(rows)[:, k] for k, name in enumerate(JOINTS)}
    frame = pandas.DataFrame({**columns(rows), **joints})
    frame.to_parquet("log.parquet", index=False, row_group_size=20)
    return rows


def replay() -> Rows:
    zarr, rows = pytest.importorskip("zarr"), curves(kind="f4")
    root = zarr.open_group("buffer.zarr", mode="w", zarr_format=2)
    root.create_array("data/action", data=np.concatenate(rows), chunks=(20, 3))
    root.create_array("meta/episode_ends", data=np.cumsum(LENGTHS))
    return rows


def matlab_5() -> Rows:
    rows = curves((9,) * 11)
    pytest.importorskip("scipy.io").savemat("log.mat", {"position": np.stack(rows), "dt": 1 / RATE})
    return rows


def folder_of_files() -> Rows:
    given = writers.demos(scale=0.9)
    Path("set").mkdir()
    for k, demo in enumerate(given):
        writers.aloha(Path(f"set/episode_{k}.hdf5"), demo)
    return [demo["actions"] for demo in given]


def minari() -> Rows:
    library = pytest.importorskip("minari")
    from gymnasium.spaces import Box
    from minari.data_collector import EpisodeBuffer

    rows, buffers = curves(), []
    for k, actions in enumerate(rows):
        ends = np.arange(len(actions)) == len(actions) - 1
        buffers.append(
            EpisodeBuffer(
                id=k, seed=None, actions=actions, observations=np.zeros((len(actions) + 1, 4)),
                rewards=np.zeros(len(actions)), terminations=ends, truncations=np.zeros_like(ends),
            )
        )  # fmt: skip
    library.create_dataset_from_buffers(
        "reach-v0", buffers, env=None,
        action_space=Box(-9, 9, (3,)), observation_space=Box(-9, 9, (4,)),
    )  # fmt: skip
    return rows


def lerobot() -> Rows:
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    rows = curves(kind="f4")
    feature = {"dtype": "float32", "shape": [3], "names": {"motors": JOINTS}}
    about = {"codebase_version": "v3.0", "fps": RATE, "features": {"action": feature}}
    Path("set/meta").mkdir(parents=True)
    Path("set/meta/info.json").write_text(json.dumps(about))
    Path("set/data/chunk-000").mkdir(parents=True)
    flat = arrow.FixedSizeListArray.from_arrays(np.concatenate(rows).reshape(-1), 3)
    table = arrow.table({"action": flat, **columns(rows)})
    parquet.write_table(table, "set/data/chunk-000/file-000.parquet")
    return rows


def demos(write: Callable[..., None], path: str, *more: object, extra: int = 0) -> Case:
    def make() -> Rows:
        given = writers.demos(scale=0.9)
        write(Path(path), given, *more)
        return [demo["position"][: len(demo["actions"]) + extra] for demo in given]

    return make, 1 / 20


def ruckig() -> Rows:
    library = pytest.importorskip("ruckig")
    planner, given = library.Ruckig(3), library.InputParameter(3)
    given.target_position = [1.0, -0.5, 2.0]
    given.max_velocity = given.max_acceleration = given.max_jerk = [1.0, 2.0, 3.0]
    planned = library.Trajectory(3)
    planner.calculate(given, planned)
    times = np.linspace(0, 0.02 * 40, 41)
    rows = np.array([np.concatenate(planned.at_time(t)[:3]) for t in times])
    names = [f"{name}_{k}" for name in ("position", "velocity", "acceleration") for k in range(3)]
    np.savetxt("profile.csv", np.column_stack([times, rows]), "%.17g", ",",
               header=",".join(["time", *names]), comments="")  # fmt: skip
    return [rows[:, :3]]


def matlab_73() -> Rows:
    rows = curves((9,) * 3)
    writers.matlab(Path("log.mat"), position=np.stack(rows), dt=np.full((1, 1), 0.02))
    return rows


def ros(kind: str, of: str) -> Case:
    """Messages of one type in log.bag, log.mcap or log.db3, by rosbags."""

    def make() -> Rows:
        pytest.importorskip("rosbags")
        from formats.test_bags import BEGIN, Maker

        make, (rows,), messages = Maker(kind), curves((40,)), []
        name = f"{'sensor_msgs' if of in ('JointState', 'Imu') else 'nav_msgs'}/msg/{of}"
        for k, row in enumerate(rows):
            stamp = BEGIN + k * 20_000_000
            point = make("geometry_msgs/msg/Point", *row)
            turn = make("geometry_msgs/msg/Quaternion", 0.0, 0.0, 0.0, 1.0)
            vector, nine = make("geometry_msgs/msg/Vector3", *row), np.zeros(9)
            if of == "JointState":
                message = make.joints(stamp, JOINTS, row)
            elif of == "Imu":
                message = make(name, make.header(stamp), turn, nine, vector, nine, vector, nine)
            else:
                pose = make("geometry_msgs/msg/Pose", point, turn)
                twist = make("geometry_msgs/msg/Twist", vector, vector)
                message = make(
                    name, make.header(stamp), "base",
                    make("geometry_msgs/msg/PoseWithCovariance", pose, np.zeros(36)),
                    make("geometry_msgs/msg/TwistWithCovariance", twist, np.zeros(36)),
                )  # fmt: skip
            messages.append(
                ("/js" if of == "JointState" else f"/{of.lower()}", name, stamp, message)
            )
        path = make.write(kind, messages)
        if path != Path(f"log.{kind}"):
            shutil.move(path, f"log.{kind}")
        return [rows]

    return make, 0.02


def joint_trajectory() -> Rows:
    pytest.importorskip("rosbags")
    from formats.test_bags import BEGIN, Maker

    make, (rows,) = Maker("mcap"), curves((40,))
    empty, points = np.empty(0), []
    for k, row in enumerate(rows):
        time = make("builtin_interfaces/msg/Duration", 0, k * 20_000_000)
        kind = "trajectory_msgs/msg/JointTrajectoryPoint"
        points.append(make(kind, row, empty, empty, empty, time))
    name = "trajectory_msgs/msg/JointTrajectory"
    message = make(name, make.header(BEGIN), JOINTS, points)
    shutil.move(make.write("mcap", [("/plan", name, BEGIN, message)]), "log.mcap")
    return [rows]


def document(path: str) -> Case:
    def make() -> Rows:
        (rows,) = curves((40,))
        points = [
            {"positions": row, "time_from_start": {"sec": 0, "nanosec": k * 20_000_000}}
            for k, row in enumerate(rows.tolist())
        ]
        message = {"joint_names": JOINTS, "points": points}
        if path.endswith("json"):
            Path(path).write_text(json.dumps(message))
        else:
            Path(path).write_text(pytest.importorskip("yaml").safe_dump(message))
        return [rows]

    return make, 0.02


def droid() -> Rows:
    rows = curves((40,))
    with h5py.File("trajectory.h5", "w") as file:
        file["observation/robot_state/joint_positions"] = rows[0]
        file["action/joint_position"] = rows[0]
    return rows


def numpy_archive() -> Rows:
    rows = curves((9,) * 3)
    np.savez("log.npz", position=np.stack(rows), dt=0.02)
    return rows


CASES: dict[str, Case] = {
    "CSV": dialect("decimal commas"),
    "CSV without a heading": dialect("no heading"),
    "some columns of a CSV": dialect("some columns"),
    "LeRobot's names": dialect("LeRobot's names"),
    "pandas": dialect("pandas, an index of dates"),
    "polars": dialect("polars"),
    "PlotJuggler": dialect("PlotJuggler"),
    "`rostopic echo -p`": dialect("rostopic echo -p"),
    "EuRoC": dialect("EuRoC", "data.csv"),
    "TUM": dialect("TUM", "poses.txt"),
    "UR": dialect("UR"),
    "KUKA": dialect("KUKA"),
    "Ruckig": (ruckig, 0.02),
    "MATLAB 5": (matlab_5, 1 / RATE),
    "MATLAB 7.3": (matlab_73, 0.02),
    "JointState of ROS 1": ros("bag", "JointState"),
    "JointState of ROS 2": ros("db3", "JointState"),
    "JointTrajectory": (joint_trajectory, 0.02),
    "Imu": ros("mcap", "Imu"),
    "Odometry": ros("mcap", "Odometry"),
    "robomimic": demos(writers.robomimic, "demo.hdf5"),
    "ManiSkill": demos(writers.maniskill, "demo.hdf5", "pd_joint_pos", extra=1),
    "Isaac Lab": demos(writers.isaaclab, "demo.hdf5"),
    "ALOHA": (folder_of_files, 1 / RATE),
    "DROID": (droid, 1 / 15),
    "Minari": (minari, 1 / RATE),
    "LeRobot": (lerobot, 1 / RATE),
    "replay buffer": (replay, 1 / RATE),
    "npz": (numpy_archive, 0.02),
    "Parquet": (pandas_parquet, 1 / RATE),
    "YAML": document("plan.yaml"),
    "JSON": document("plan.json"),
}


XYZ = ["x", "y", "z"]
NAMES: dict[str, list[str] | None] = {
    "CSV": tables.JOINTS, "some columns of a CSV": [f"{joint}_joint" for joint in tables.JOINTS],
    "LeRobot's names": tables.JOINTS, "pandas": tables.JOINTS, "polars": tables.JOINTS,
    "PlotJuggler": tables.JOINTS, "`rostopic echo -p`": tables.NUMBERS,
    "EuRoC": [f"p_RS_R_{axis}" for axis in XYZ], "TUM": [f"t{axis}" for axis in XYZ],
    "UR": tables.NUMBERS, "KUKA": ["A1", "A2", "A3"], "Ruckig": tables.NUMBERS,
    "JointState of ROS 1": JOINTS, "JointState of ROS 2": JOINTS,
    "JointTrajectory": JOINTS, "Imu": XYZ, "Odometry": XYZ, "LeRobot": JOINTS,
    "Parquet": JOINTS, "YAML": JOINTS, "JSON": JOINTS,
}  # fmt: skip
UNITS = {"EuRoC": "m", "KUKA": "rad"}
CLOCKS = {
    "pandas": ("ns", 1714557600 * 10**9), "polars": ("ns", 1700000000123456789),
    "PlotJuggler": ("s", 1.7e9), "`rostopic echo -p`": ("ns", 1700000000123456789),
    "EuRoC": ("ns", 1700000000123456789), "TUM": ("s", 1.3e9), "UR": ("s", 99.5),
    "JointState of ROS 1": ("ns", 1700000000123456789), "Imu": ("ns", 1700000000123456789),
    "JointState of ROS 2": ("ns", 1700000000123456789), "Odometry": ("ns", 1700000000123456789),
}  # fmt: skip
"""The names of dofs, the units of positions and the first stamps that formats state."""


def require_labels(file: h5py.File, group: h5py.Group, name: str) -> None:
    named = "dof" in file and file["dof"].dtype.kind == "O"
    assert (file["dof"].asstr()[:].tolist() if named else None) == NAMES.get(name)
    orders = ("", "/s", "/s^2", "/s^3")
    units = [UNITS[name] + order for order in orders] if name in UNITS else [None] * 4
    assert [group[quantity].attrs.get("units") for quantity in QUANTITIES] == units
    assert group["time"].attrs["units"] == "s"
    stamp = group.get("start_stamp")
    found = stamp is not None and (stamp.attrs["units"], np.ravel(stamp[()])[0])
    assert (found or None) == CLOCKS.get(name)


def documented() -> dict[str, str]:
    """The commands of the table by the names of their rows."""
    section = DOCS.read_text().split("\n## One command for each format\n")[1].split("\n## ")[0]
    rows = re.findall(r"^\| (.+?) \| `trajcli (.+?)` \|$", section, re.M)
    assert len(rows) == len({command for _, command in rows}), "two rows have the same command"
    return {name: command for names, command in rows for name in names.split(", ")}


def test_the_table_comes_first_and_has_the_formats_that_are_tested():
    assert sorted(documented()) == sorted(CASES)
    assert DOCS.read_text().startswith("# Data\n\n## One command for each format\n")


@pytest.mark.filterwarnings("ignore::UserWarning:minari", "ignore::DeprecationWarning")
@pytest.mark.parametrize("name", CASES)
def test_a_documented_command_gives_p_v_a_j(trajcli, folder, monkeypatch, name):
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(folder))
    make, step = CASES[name]
    here = set(Path().iterdir())
    expected = make()
    made = min(set(Path().iterdir()) - here, key=lambda path: (path.is_dir(), path.name)).name
    command = documented()[name].replace("FILE", made)
    for more in ("", " --method backward --overwrite"):  # whose values are NumPy's differences
        trajcli(command + more, code=0)
    with h5py.File("out.h5") as file:
        names: list[str] = []
        file.visit(names.append)
        groups = [
            file[one].parent
            for one in sorted(names, key=natural_key)
            if one.split("/")[-1] == "jerk"
        ]
        require_labels(file, groups[0], name)
        if name == "Isaac Lab":  # whose step is dt times decimation
            step = float(np.diff(np.ravel(groups[0]["time"]))[0])
        found: list[tuple[np.ndarray, ...]] = []
        for group in groups:
            parts = [group[q][:].reshape(-1, *group[q].shape[-2:]) for q in QUANTITIES]
            time = np.ravel(group["time"])[: parts[0].shape[1]]
            found += [(time, *rows) for rows in zip(*parts, strict=True)]
        assert len(found) == len(expected)
        for (time, *parts), given in zip(found, expected, strict=True):
            np.testing.assert_allclose(time, step * np.arange(len(given)), rtol=0, atol=3e-7)
            steps = np.diff(time)[:, None]
            for order, rows in enumerate(parts):
                np.testing.assert_allclose(rows[order:], given, rtol=1e-6, atol=1e-6 / step**order)
                given = np.diff(given, axis=0) / steps[order:]
