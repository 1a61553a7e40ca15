"""How long it takes to find the trajectories of large files of each family, and in how much memory.

    python benchmarks/formats.py [--rows REGEX] [--episodes 10000] [--messages 1000000]

The files are made in a temporary folder (about 1 GB). ``find`` is ``differentiate --dry-run``: it
looks up every trajectory, its length and its times and reads no actions; ``inspect`` reads a
sample of the values, too. Seconds are processor time of the whole process, which other work on the
machine disturbs least, and those on the clock; memory is its largest resident size.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import struct
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import h5py
import numpy as np

ROWS, DOFS, RATE = 50, 7, 50
SECONDS, MEGABYTES = 5.0, 300.0


def rows(count: int) -> np.ndarray:
    return np.sin(np.arange(count)[:, None] / 50 + np.arange(DOFS)).astype("f4")


def labels(episodes: int) -> np.ndarray:
    return np.repeat(np.arange(episodes), ROWS)


def make_demos(folder: Path, episodes: int) -> str:
    actions = rows(ROWS)
    with h5py.File(folder / "demos.hdf5", "w", libver="latest") as file:
        env = {"env_name": "Lift", "type": 1, "env_kwargs": {"control_freq": RATE}}
        file.create_group("data").attrs["env_args"] = json.dumps(env)
        for k in range(episodes):
            demo = file.create_group(f"data/demo_{k}")
            demo.create_dataset("actions", data=actions)
            demo.create_dataset("obs/robot0_joint_pos", data=actions)
    return f"{folder}/demos.hdf5:actions"


def make_lerobot(folder: Path, episodes: int) -> str:
    import pyarrow as arrow
    from pyarrow import parquet

    features = {"action": {"dtype": "float32", "shape": [DOFS]}}
    info = {"codebase_version": "v3.0", "fps": RATE, "features": features}
    (folder / "meta").mkdir()
    (folder / "meta/info.json").write_text(json.dumps(info))
    (folder / "data/chunk-000").mkdir(parents=True)
    for k, part in enumerate(np.array_split(np.arange(episodes), 10)):
        actions = arrow.array(rows(len(part) * ROWS).reshape(-1))
        columns = {
            "action": arrow.FixedSizeListArray.from_arrays(actions, DOFS),
            "episode_index": np.repeat(part, ROWS),
            "frame_index": np.tile(np.arange(ROWS), len(part)),
        }
        path = folder / f"data/chunk-000/file-{k:03}.parquet"
        parquet.write_table(arrow.table(columns), path)
    return f"{folder}:action"


def make_zarr(folder: Path, episodes: int) -> str:
    import zarr

    root = zarr.open_group(f"{folder}/replay.zarr", mode="w")
    root.create_array("data/action", data=rows(episodes * ROWS), chunks=(4096, DOFS))
    root.create_array("meta/episode_ends", data=ROWS * np.arange(1, episodes + 1))
    return f"{folder}/replay.zarr:data/action"


def make_csv(folder: Path, episodes: int) -> str:
    table = np.column_stack([labels(episodes), rows(episodes * ROWS)])
    heading = ",".join(["episode", *(f"q{k}" for k in range(DOFS))])
    form = ["%d", *["%.7g"] * DOFS]
    np.savetxt(folder / "log.csv", table, form, ",", header=heading, comments="")
    return f"{folder}/log.csv:q"


def make_bag(folder: Path, messages: int) -> str:
    from rosbags.rosbag2 import StoragePlugin, Writer
    from rosbags.typesys import Stores, get_typestore

    store, kind = get_typestore(Stores.ROS2_HUMBLE), "sensor_msgs/msg/JointState"
    types = store.types
    stamp = types["builtin_interfaces/msg/Time"](0, 0)
    header = types["std_msgs/msg/Header"](stamp, "base")
    names, numbers = [f"joint{k}" for k in range(DOFS)], rows(1)[0].astype("f8")
    message = types[kind](header, names, numbers, numbers, numbers)
    raw = bytearray(store.serialize_cdr(message, kind))
    with Writer(folder / "bag", version=9, storage_plugin=StoragePlugin.MCAP) as writer:
        topic = writer.add_connection("/joint_states", kind, typestore=store)
        for k in range(messages):
            now = 1_700_000_000_000_000_000 + k * 10**9 // 1000
            struct.pack_into("<iI", raw, 4, *divmod(now, 10**9))
            writer.write(topic, now, bytes(raw))
    return f"{folder}/bag/bag.mcap:/joint_states/position"


def measure(command: list[str]) -> tuple[float, float, float]:
    """Processor seconds, seconds and MB of a command in a process of its own."""
    began = time.perf_counter()
    pid = os.posix_spawn(
        sys.executable,
        [sys.executable, "-m", "trajcli", *command],
        os.environ,
        file_actions=[(os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)],
    )
    _, status, usage = os.wait4(pid, 0)
    if status:
        raise SystemExit(f"trajcli {' '.join(command)} failed")
    seconds = time.perf_counter() - began
    return usage.ru_utime + usage.ru_stime, seconds, usage.ru_maxrss / 1024


FAMILIES: dict[str, tuple[Callable[[Path, int], str], bool]] = {
    "HDF5 demos": (make_demos, False),
    "LeRobot Parquet": (make_lerobot, False),
    "Zarr replay buffer": (make_zarr, False),
    "CSV": (make_csv, False),
    "mcap": (make_bag, True),
}
"""What makes a file and says its SOURCE, and whether it is one of messages."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("--rows", default="", help="the families that this expression finds")
    parser.add_argument("--episodes", type=int, default=10_000)
    parser.add_argument("--messages", type=int, default=1_000_000)
    options = parser.parse_args()
    for family, (make, of_messages) in FAMILIES.items():
        if not re.search(options.rows, family):
            continue
        with tempfile.TemporaryDirectory() as place:
            count = options.messages if of_messages else options.episodes
            with ProcessPoolExecutor(1, get_context("spawn")) as other:  # memory is inherited
                source = other.submit(make, Path(place), count).result()
            dry = ["--method", "central", "--dry-run", "-o", f"{place}/out.h5"]
            if family in ("Zarr replay buffer", "CSV"):
                dry += ["--rate", str(RATE)]
            for name, command in (
                ("find", ["differentiate", source, *dry]),
                ("inspect", ["inspect", source.partition(":")[0]]),
            ):
                busy, seconds, size = measure(command)
                over = "  over" if busy > SECONDS or size > MEGABYTES else ""
                figures = f"{busy:6.2f} s ({seconds:.2f} s) {size:6.0f} MB{over}"
                print(f"{family:20} {name:8} {figures}", flush=True)


if __name__ == "__main__":
    main()
