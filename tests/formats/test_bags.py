"""Bags of ROS 1 and 2, written by rosbags' own writers: joints, fields, stamps."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from trajcli.errors import InputError, Report

rosbags = pytest.importorskip("rosbags")

from rosbags.rosbag1 import Writer as Writer1  # noqa: E402
from rosbags.rosbag2 import StoragePlugin, Writer  # noqa: E402
from rosbags.typesys import Stores, get_types_from_msg, get_typestore  # noqa: E402

KINDS = ("bag", "mcap", "db3")
JOINTS = "sensor_msgs/msg/JointState"
BEGIN = 1_700_000_000_123_456_789
Messages = list[tuple[str, str, int, Any]]
"""Topic, type, time of recording, message."""


class Maker:
    """Makes messages of ROS 1 or 2."""

    def __init__(self, kind: str) -> None:
        self.old = kind == "bag"
        self.store = get_typestore(Stores.ROS1_NOETIC if self.old else Stores.ROS2_HUMBLE)

    def __call__(self, kind: str, *fields: Any) -> Any:
        return self.store.types[kind](*fields)

    def header(self, stamp: int) -> Any:
        time = self("builtin_interfaces/msg/Time", stamp // 10**9, stamp % 10**9)
        more = (0,) if self.old else ()
        return self("std_msgs/msg/Header", *more, time, "base")

    def joints(self, stamp: int, names: list[str], *arrays: np.ndarray) -> Any:
        arrays += (np.empty(0),) * (3 - len(arrays))
        return self(JOINTS, self.header(stamp), names, *arrays)

    def write(self, kind: str, messages: Messages) -> Path:
        path = Path(f"log.{kind}")
        if self.old:
            writer: Any = Writer1(path)
        else:
            plugin = StoragePlugin.MCAP if kind == "mcap" else StoragePlugin.SQLITE3
            writer = Writer(Path("folder"), version=9, storage_plugin=plugin)
        with writer:
            topics: dict[str, Any] = {}
            for topic, of, time, message in messages:
                if topic not in topics:
                    topics[topic] = writer.add_connection(topic, of, typestore=self.store)
                turn = self.store.serialize_ros1 if self.old else self.store.serialize_cdr
                writer.write(topics[topic], time, turn(message, of))
        return path if self.old else Path(f"folder/folder.{kind}")


def stamps(count: int) -> Iterator[int]:
    random = np.random.default_rng(3)
    return iter((BEGIN + np.cumsum(random.integers(9_000_000, 11_000_000, count))).tolist())


@pytest.mark.parametrize("kind", KINDS)
def test_joint_states_are_trajectories_at_the_times_of_their_headers(trajcli, folder, kind):
    make = Maker(kind)
    positions = np.random.default_rng(1).normal(size=(70, 3))
    times = list(stamps(70))
    messages: Messages = [
        (
            "/arm/joint_states",
            JOINTS,
            time + 5_000_000,
            make.joints(time, ["a", "b", "c"], q, 2 * q),
        )
        for time, q in zip(times, positions, strict=True)
    ]
    path = make.write(kind, messages)
    for source in (f"{path}", f"{path}:/arm/joint_states", f"{path}:arm/joint_states/position"):
        line = f"differentiate {source}{'' if source.endswith('position') else '/position'}"
        line = line if ":" in source else f"differentiate {source}:/arm/joint_states/position"
        trajcli(f"{line} --method central -o out.h5 --overwrite", code=0)
        with h5py.File("out.h5") as file:
            np.testing.assert_array_equal(np.squeeze(file["position"]), positions)
            assert file["dof"].asstr()[:].tolist() == ["a", "b", "c"]
            expected = (np.array(times) - times[0]) / 1e9
            np.testing.assert_allclose(np.squeeze(file["time"]), expected, rtol=0, atol=1e-12)
    shown = trajcli(f"inspect {path if make.old else 'folder'} --json").document
    assert {one["name"].strip("/"): one["shape"] for one in shown["datasets"]}[
        "arm/joint_states/velocity"
    ] == [70, 3]


@pytest.mark.parametrize("kind", KINDS)
def test_any_field_of_numbers_is_read_by_its_path(trajcli, folder, kind):
    make, random = Maker(kind), np.random.default_rng(2)
    values = random.normal(size=(30, 10))
    messages: Messages = []
    for time, row in zip(stamps(30), values, strict=True):
        vector = [make("geometry_msgs/msg/Vector3", *row[i : i + 3]) for i in (4, 7)]
        turn = make("geometry_msgs/msg/Quaternion", *row[:4])
        nine = np.zeros(9)
        imu = make(
            "sensor_msgs/msg/Imu", make.header(time), turn, nine, vector[0], nine, vector[1], nine
        )
        messages.append(("/imu", "sensor_msgs/msg/Imu", time, imu))
        layout = make("std_msgs/msg/MultiArrayLayout", [], 0)
        array = make("std_msgs/msg/Float64MultiArray", layout, row[:5])
        messages.append(("/commands", "std_msgs/msg/Float64MultiArray", time, array))
    path = make.write(kind, messages)
    for field, columns in {
        "imu/linear_acceleration": slice(7, 10),
        "imu/linear_acceleration.y": slice(8, 9),
        "imu/orientation": slice(0, 4),
        "commands/data": slice(0, 5),
    }.items():
        line = (
            f"integrate {path}:/{field} --mode clique --start zero --dt 0.01 -o out.h5 --overwrite"
        )
        trajcli(f"{line} --rotation none", code=0)
        with h5py.File("out.h5") as file:
            np.testing.assert_array_equal(file["position"][0, 1:], values[:, columns])


@pytest.mark.parametrize("kind", KINDS)
def test_reading_a_bag_shows_how_far_it_is(folder, kind):
    from trajcli.jobs.request import DifferentiateRequest
    from trajcli.jobs.run import run

    make, count = Maker(kind), 900
    path = make.write(kind, [
        ("/js", JOINTS, time, make.joints(time, [], np.ones(600))) for time in stamps(count)
    ])  # fmt: skip
    request = DifferentiateRequest([f"{path}:/js/position"], Path("out.h5"))
    shares: list[float] = []
    run(request, report=Report(lambda done, total: shares.append(done / total)), dry=True)
    assert 3 < len(shares) < 10
    assert all(0 < share < 1 for share in np.diff([0, *shares, 1]))


def test_a_topic_that_is_larger_than_the_memory_is_refused(folder):
    from trajcli.files.catalogue import OpenFiles
    from trajcli.files.opening import open_arrays

    make, count = Maker("mcap"), 400
    rows = np.arange(count, dtype=float)[:, None] + np.zeros(22_000)
    path = make.write("mcap", [
        ("/js", JOINTS, time, make.joints(time, [], row))
        for time, row in zip(stamps(count), rows, strict=True)
    ])  # fmt: skip
    with open_arrays(path, OpenFiles(100 << 20)) as file:
        np.testing.assert_array_equal(file.require("js/position").read(), rows)
    refused = pytest.raises(InputError, match="too large to be unpacked")
    with open_arrays(path, OpenFiles(64 << 20)) as file, refused:
        file.require("js/position").read()


@pytest.mark.parametrize("kind", KINDS)
def test_messages_are_read_from_any_number_on_in_any_order(folder, kind):
    from trajcli.files.opening import open_arrays

    make, count = Maker(kind), 2200
    positions = np.random.default_rng(1).normal(size=(count, 2))
    times = np.sort(np.random.default_rng(2).integers(BEGIN, BEGIN + 1800, count))  # some are equal
    other = make("std_msgs/msg/Float64MultiArray", make("std_msgs/msg/MultiArrayLayout", [], 0),
                 np.ones(3))  # fmt: skip
    messages: Messages = []
    for k, (time, row) in enumerate(zip(times.tolist(), positions, strict=True)):
        frame = "base" if k % 1500 < 1400 else "a longer name"  # read one by one, not at once
        one = make.joints(time, ["a", "b"], row, -row)
        one.header.frame_id = frame
        messages.append(("/js", JOINTS, time, one))
        messages.append(("/other", "std_msgs/msg/Float64MultiArray", time, other))
    with open_arrays(make.write(kind, messages)) as file:
        position, velocity = file.require("js/position"), file.require("js/velocity")
        stamped, rest = file.require("js/times"), file.require("other/data")
        for start in (0, 1800, 1, 2199, 1100, 1023, 1024, 1025, 1390):
            stop = min(start + 400, count)
            np.testing.assert_array_equal(position.read_rows(start, stop), positions[start:stop])
            np.testing.assert_array_equal(velocity.read_rows(start, stop), -positions[start:stop])
            np.testing.assert_array_equal(rest.read_rows(start, start + 1), np.ones((1, 3)))
            np.testing.assert_array_equal(stamped.read_rows(start, stop), times[start:stop])
        file.close()
        np.testing.assert_array_equal(position.read(), positions)


@pytest.mark.parametrize("kind", KINDS)
def test_log_times_are_when_messages_were_recorded(trajcli, folder, kind):
    make, headers, logs = Maker(kind), list(stamps(60)), [BEGIN + k * 25_000_000 for k in range(60)]
    rows = np.sin(np.arange(60) / 20)[:, None]
    path = make.write(kind, [
        ("/js", JOINTS, log, make.joints(header, ["a"], row))
        for log, header, row in zip(logs, headers, rows, strict=True)
    ])  # fmt: skip
    line = f"differentiate {path}:/js/position --method central -o out.h5 --overwrite"
    where = [path] if make.old else [path, path.parent]
    clocks = [("", headers), *((f"--times {place}:/js/log_times", logs) for place in where)]
    for more, times in clocks:
        trajcli(f"{line} {more}", code=0)
        with h5py.File("out.h5") as file:
            expected = (np.array(times) - times[0]) / 1e9
            np.testing.assert_allclose(file["time"][:], expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_few_large_messages_are_in_memory_at_a_time(trajcli, folder, kind):
    import tracemalloc

    from trajcli.files.opening import open_arrays

    make, pixels = Maker(kind), np.zeros(1 << 20, np.uint8)
    image = "sensor_msgs/msg/Image"
    path = make.write(kind, [
        ("/image", image, time, make(image, make.header(time), k, 1024, "mono8", 0, 1024, pixels))
        for k, time in enumerate(stamps(80))
    ])  # fmt: skip
    with open_arrays(path) as file:
        tracemalloc.start()
        heights = file.require("image/height").read()
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert heights.ravel().tolist() == list(range(80))
    assert peak < 70 << 20  # twice a block, and the same joined


@pytest.mark.parametrize("kind", KINDS)
def test_a_field_that_some_messages_do_not_fill_is_nan_there(trajcli, folder, kind):
    make, rows = Maker(kind), np.random.default_rng(1).normal(size=(90, 2))
    messages: Messages = [
        ("/js", JOINTS, time, make.joints(time, ["a", "b"], q, *([2 * q] if k % 3 == 1 else [])))
        for k, (time, q) in enumerate(zip(stamps(90), rows, strict=True))
    ]
    path = make.write(kind, messages)
    trajcli(f"export {path}:/js -o out.npz", code=0)
    with np.load("out.npz") as made:
        np.testing.assert_array_equal(made["position"][0], rows)
        filled = np.where(np.arange(90)[:, None] % 3 == 1, 2 * rows, np.nan)
        np.testing.assert_array_equal(made["velocity"][0], filled)


@pytest.mark.parametrize("kind", KINDS)
def test_joints_of_two_publishers_are_not_mixed(trajcli, folder, kind):
    make, rows = Maker(kind), np.random.default_rng(1).normal(size=(90, 2))
    messages: Messages = [
        (
            "/js",
            JOINTS,
            time,
            make.joints(time, *((["a", "b"], q) if k < 80 else (["b", "a"], q[::-1].copy()))),
        )
        for k, (time, q) in enumerate(zip(stamps(90), rows, strict=True))
    ]
    path = make.write(kind, messages)
    trajcli(f"export {path}:/js/position -o out.npz", code=0)
    np.testing.assert_array_equal(np.load("out.npz")["position"][0], rows)
    messages.append(
        ("/js", JOINTS, BEGIN + 10**10, make.joints(BEGIN + 10**10, ["hand"], rows[0, :1]))
    )
    (path if make.old else Path("folder")).rename("before")
    path = make.write(kind, messages)
    result = trajcli(f"export {path}:/js/position -o out.npz --overwrite", code=2)
    for word in ("js: several sets of joints in one topic", "90 of a, b", "1 of hand"):
        assert word in result.err


POINT = "float64[] positions\nfloat64[] velocities\nbuiltin_interfaces/Duration time_from_start"
STATE = f"""std_msgs/Header header
custom_msgs/Point actual
custom_msgs/Point error
{"=" * 80}
MSG: custom_msgs/Point
{POINT}"""


def test_vectors_within_messages_are_arrays(trajcli, folder):
    make, t = Maker("mcap"), np.arange(40) / 10
    make.store.register(get_types_from_msg(STATE, "custom_msgs/msg/State"))
    of, messages = lambda kind, *fields: make(f"geometry_msgs/msg/{kind}", *fields), []
    for k, stamp in enumerate(BEGIN + np.arange(40) * 10**8):
        turn = of("Quaternion", 0.0, 0.0, np.sin(t[k] / 2), np.cos(t[k] / 2))
        pose = of("Pose", of("Point", t[k], 2 * t[k], 1.0), turn)
        vectors = of("Vector3", 1.0, 2.0, 0.0), of("Vector3", 0.0, 0.0, 1.0)
        twist = of("TwistWithCovariance", of("Twist", *vectors), np.zeros(36))
        posed, kind = of("PoseWithCovariance", pose, np.zeros(36)), "nav_msgs/msg/Odometry"
        message = make(kind, make.header(int(stamp)), "base", posed, twist)
        messages.append(("/odom", kind, int(stamp), message))
        now = make("builtin_interfaces/msg/Duration", 0, 0)
        points = (make("custom_msgs/msg/Point", np.arange(2) * t[k], np.ones(2), now),) * 2
        message = make("custom_msgs/msg/State", make.header(int(stamp)), *points)
        messages.append(("/state", "custom_msgs/msg/State", int(stamp), message))
    path = make.write("mcap", messages)
    for source in ("/odom", "/odom/pose", "/odom/pose.pose"):
        trajcli.ok(f"differentiate {path}:{source} --method central -o out.h5 --overwrite")
        with h5py.File("out.h5") as file:
            np.testing.assert_array_equal(file["position"][0, :, 1], 2 * t)
            assert file["position"].shape == (1, 40, 3), source
            assert file["orientation"].shape == (1, 40, 4)
    trajcli.ok(f"differentiate {path}:/state/actual.positions --method central -o s.h5")
    with h5py.File("s.h5") as file:
        np.testing.assert_array_equal(file["position"][0], t[:, None] * np.arange(2))
    trajcli.refuses(f"differentiate {path}:/state -o no.h5", f"{path}:state/actual.positions")


@pytest.mark.parametrize("there", [-3, 3])
def test_a_bag_that_declares_another_number_of_messages_is_refused(trajcli, folder, there):
    make = Maker("mcap")
    times, names = list(stamps(40)), ["a", "b"]
    path = make.write(
        "mcap", [("/js", JOINTS, t, make.joints(t, names, np.ones(2))) for t in times]
    )
    data = bytearray(path.read_bytes())
    counts = (40).to_bytes(8, "little")
    place = data.rindex(counts)
    assert data[: place - 2].rindex(counts) > len(data) - 1000  # of all topics, and of this one
    data[place : place + 8] = (40 + there).to_bytes(8, "little")
    Path("log.mcap").write_bytes(data)
    for line in (
        "inspect log.mcap:/js/position",
        "integrate log.mcap:/js/position --mode clique --start zero --dt 1 -o out.h5",
        "resample log.mcap:/js/position --to 50 -o out.h5",
    ):
        trajcli.refuses(line, "not as many messages", str(40 + there))


def arm_and_gripper(kind: str, count: int, late: int = 0) -> tuple[Path, np.ndarray, np.ndarray]:
    """Returns a bag in which an arm at 100 Hz, whose order of joints changes, and a gripper at
    10 Hz share /joint_states; with the positions of both."""
    make, arm = Maker(kind), np.random.default_rng(1).normal(size=(count, 3))
    names, hand, messages = ["j1", "j2", "j3"], np.zeros(count), Messages()
    for k, row in enumerate(arm):
        order = [0, 1, 2] if k % 2 else [2, 0, 1]
        stamp = BEGIN + k * 10_000_000
        velocity = [2 * row[order]] if k % 3 else []
        message = make.joints(stamp, [names[i] for i in order], row[order], *velocity)
        messages.append(("/joint_states", JOINTS, stamp, message))
        if k % 10 == 0 and k >= late:
            hand[k] = 0.04 * np.sin(k)
            message = make.joints(stamp + 5_000_000, ["finger"], hand[k : k + 1])
            messages.append(("/joint_states", JOINTS, stamp + 5_000_000, message))
    return make.write(kind, messages), arm, hand[late::10]


@pytest.mark.parametrize(
    ("kind", "count", "late"),
    [("bag", 1500, 1200), ("mcap", 200, 0), ("mcap", 1500, 1200), ("db3", 200, 0)],
)
def test_dofs_pick_one_of_the_publishers_that_share_a_topic(trajcli, folder, kind, count, late):
    path, arm, hand = arm_and_gripper(kind, count, late)
    for source in (path, f"{path}:/joint_states", f"{path}:/joint_states/position"):
        for dofs, rows, every in (
            ("j3,j1", arm[:, [2, 0]], 10_000_000),
            ("j1,j2,j3", arm, 10_000_000),
            ("finger", hand[:, None], 100_000_000),
        ):
            trajcli.ok(f"export {source} --dofs {dofs} -o out.npz --overwrite")
            with np.load("out.npz") as made:
                np.testing.assert_array_equal(made["position"][0], rows)
                times = np.arange(len(rows)) * every / 1e9
                np.testing.assert_allclose(np.squeeze(made["time"]), times, rtol=0, atol=1e-12)
                begin = BEGIN + (late * 10_000_000 + 5_000_000) * (dofs == "finger")
                assert made["start_stamp"].tolist() == [begin]
        # one of all would be a guess
        for more in ("", " --dofs 0:2", " --dofs j1,finger", " --joints j1,j2,j3"):
            line = f"export {source}{more} -o no.npz"
            trajcli.refuses(
                line, "several sets of joints", f"{count} of j3, j1, j2", "--dofs finger"
            )


def test_a_publisher_that_begins_late_is_shown(trajcli, folder):
    path, _, hand = arm_and_gripper("mcap", 1500, 1200)
    shown = trajcli.ok(f"inspect {path} --json").document["datasets"]
    shapes = {one["name"].strip("/"): one["shape"] for one in shown}
    assert shapes["joint_states/j3-j2/position"] == [1500, 3]
    assert shapes["joint_states/finger/position"] == [len(hand), 1]


def test_joints_that_share_a_topic_are_listed_by_group(trajcli, folder):
    path, arm, hand = arm_and_gripper("mcap", 200)
    shown = trajcli.ok(f"inspect {path} --json").document["datasets"]
    shapes = {one["name"].strip("/"): one["shape"] for one in shown}
    assert shapes["joint_states/j3-j2/position"] == [200, 3]
    assert shapes["joint_states/finger/position"] == [20, 1]
    for name, rows in (("j3-j2", arm[:, [2, 0, 1]]), ("finger", hand[:, None])):
        for end in ("", "/position"):
            trajcli.ok(f"export {path}:/joint_states/{name}{end} -o out.npz --overwrite")
            np.testing.assert_array_equal(np.load("out.npz")["position"][0], rows)
    filled = np.where(np.arange(200)[:, None] % 3 == 0, np.nan, 2 * arm)
    trajcli.ok(f"export {path}:/joint_states/velocity --dofs j1,j2,j3 -o out.npz --overwrite")
    np.testing.assert_array_equal(np.load("out.npz")["velocity"][0], filled)
