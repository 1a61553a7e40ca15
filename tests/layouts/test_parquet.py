"""LeRobot's Parquet, old and new; what is not read says how to convert it."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import h5py
import numpy as np
import pyarrow as arrow
import pytest
from layouts import writers
from layouts.test_layouts import by_hand, differenced, same
from pyarrow import parquet

GIVEN = writers.demos()


def table(numbers: list[int], fixed: bool) -> arrow.Table:
    """The frames of some episodes, as LeRobot's features are written."""
    columns: dict[str, list[arrow.Array]] = {}
    for i in numbers:
        demo = GIVEN[i]
        count = len(demo["actions"])
        frames = np.arange(count)
        for name, values in (
            ("observation.state", demo["position"][:-1].astype("f4")),
            ("action", demo["actions"].astype("f4")),
        ):
            kind = arrow.list_(arrow.float32(), 7 if fixed else -1)
            columns.setdefault(name, []).append(arrow.array(list(values), kind))
        for name, values in (
            ("timestamp", (frames / 30).astype("f4")),
            ("frame_index", frames),
            ("episode_index", np.full(count, i)),
            ("index", frames),
            ("task_index", frames * 0),
        ):
            columns.setdefault(name, []).append(arrow.array(values))
    return arrow.table({name: arrow.chunked_array(parts) for name, parts in columns.items()})


def info(folder: Path, version: str) -> None:
    (folder / "meta").mkdir(parents=True)
    document = {"codebase_version": version, "fps": 30, "total_episodes": 12, "features": {}}
    (folder / "meta/info.json").write_text(json.dumps(document))


def version_2(folder: Path) -> None:
    info(folder, "v2.1")
    data = folder / "data/chunk-000"
    data.mkdir(parents=True)
    for i in range(12):
        parquet.write_table(table([i], False), data / f"episode_{i:06d}.parquet")


def version_3(folder: Path) -> None:
    info(folder, "v3.0")
    data = folder / "data/chunk-000"
    data.mkdir(parents=True)
    whole = table(list(range(8)), True)
    parquet.write_table(whole, data / "file-000.parquet", row_group_size=50, compression="snappy")
    parquet.write_table(table(list(range(8, 12)), True), data / "file-001.parquet")


def episode(file: h5py.File, number: int) -> h5py.Group:
    """The group of an episode: that of its file, or one in it."""
    for name, group in file.items():
        if name == f"episode_{number:06d}" or f"episode_{number}" in group:
            return group.get(f"episode_{number}", group)
    raise KeyError(number)


@pytest.mark.parametrize("write", [version_2, version_3])
def test_every_episode_is_integrated_at_its_length_and_rate(trajcli, folder, write):
    write(Path("set"))
    result = trajcli("integrate set --mode acceleration -o out.h5 --json", code=0)
    assert result.document["layout"] == "lerobot"
    assert result.document["dt_source"].endswith("set/meta/info.json fps, 30 Hz")
    assert "fps, 30 Hz" in result.err
    assert result.document["shape"]["trajectories"] == 12
    with h5py.File("out.h5") as file:
        for i, demo in enumerate(GIVEN):
            start = demo["position"][0].astype("f4")
            expected = by_hand(demo["actions"].astype("f4"), 1 / 30, start)
            same(episode(file, i), expected, "f4")


@pytest.mark.parametrize("nested", [False, True])
def test_dofs_have_their_names_in_the_info(trajcli, folder, nested):
    motors = [f"motor_{i}.pos" for i in range(7)]
    written = []
    for place in ("here", "elsewhere/there"):
        version_3(Path(place))
        told = json.loads(Path(place, "meta/info.json").read_text())
        told["features"] = {"action": {"names": {"motors": motors} if nested else motors},
                            "observation.state": {"names": ["too", "few"]}}  # fmt: skip
        Path(place, "meta/info.json").write_text(json.dumps(told))
        line = f"integrate {place}/data/chunk-000/file-000.parquet"
        trajcli(f"{line} --mode clique -o {place}/out.h5", code=0)
        written.append(Path(place, "out.h5").read_bytes())
        trajcli(f"{line} --mode clique -o {place}/meta/info.json --overwrite", code=2)
        states = line.replace("integrate", "differentiate") + ":observation.state"
        trajcli(f"{states} -o s.h5 --overwrite", code=0)
    assert written[0] == written[1]
    with h5py.File("here/out.h5") as file:
        assert [name.decode() for name in file["dof"]] == motors
        assert file.attrs["dt_source"] == "meta/info.json fps, 30 Hz"


@pytest.mark.parametrize("write", [version_2, version_3])
def test_recorded_states_are_a_column_by_name(trajcli, folder, write):
    write(Path("set"))
    line = "differentiate set/data/*/*.parquet:observation.state --method backward"
    trajcli(f"{line} --dtype float64 -o out.h5", code=0)
    with h5py.File("out.h5") as file:
        for i, demo in enumerate(GIVEN):
            expected = differenced(demo["position"][:-1].astype("f4"), 1 / 30)
            same(episode(file, i), expected, "f8")


@pytest.mark.parametrize(
    ("column", "told"),
    [
        (arrow.array([[1.0, 2.0], [1.0]]), "lists of different length"),
        (arrow.array(["a", "b"]), "not real numbers"),
        (arrow.array([[1.0], None]), "NaN or Inf"),
        (arrow.array([[1.0], [None]]), "NaN or Inf"),
        (arrow.array([["x"], ["y"]]), "not real numbers"),
    ],
)
def test_columns_that_are_no_arrays_are_refused(trajcli, folder, column, told):
    values = arrow.table({"action": column, "episode_index": arrow.array([0, 0])})
    parquet.write_table(values, "bad.parquet")
    trajcli.refuses("integrate bad.parquet --start zero --rate 30 -o out.h5", told)


def test_without_pyarrow_the_extra_is_named(trajcli, folder, monkeypatch):
    parquet.write_table(table([0], True), "one.parquet")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    trajcli.refuses("integrate one.parquet --start zero --rate 30 -o out.h5", "pip install pyarrow")


@pytest.mark.parametrize(
    "command", ["inspect set", "check set", "plot set --episodes 9 -o fig.png"]
)
def test_a_folder_is_one_data_set(trajcli, folder, command):
    version_2(Path("set"))
    result = trajcli(command, code=0)
    assert str(folder) not in result.out + result.err
    if command == "inspect set":
        assert result.out.startswith("set: parquet, lerobot, ")
        assert "from set/meta/info.json fps, 30 Hz" in result.out
    if command == "check set":
        assert "set/meta/info.json fps, 30 Hz  ok" in result.out


@pytest.mark.parametrize("write", [version_2, version_3])
def test_index_counts_through_the_files_of_a_folder(trajcli, folder, write):
    write(Path("set"))
    report = trajcli("inspect set --episodes 9 --json").document
    assert report["trajectories"]["shown"] == ["episode_9"]
    both = trajcli("inspect set --episodes 1,9 --json").document
    assert both["trajectories"]["count"] == 12
    (action,) = [one for one in both["datasets"] if one["name"] == "action"]
    assert action["trajectories"] == "1,9"
    checks = trajcli("check set --episodes 9,10 --json").document["checks"]
    assert [check["trajectories"] for check in checks if check["check"] == "finite"] == [2]
    for command in ("inspect", "check"):
        trajcli.refuses(f"{command} set --episodes 12", "0 to 11")


def test_rlds_is_refused_with_a_way_to_convert_it(trajcli, folder):
    Path("bridge-train.tfrecord-00000-of-00512").write_bytes(b"\x01\x02" * 50)
    Path("set/1.0.0").mkdir(parents=True)
    Path("set/1.0.0/dataset_info.json").write_text("{}")
    Path("set/1.0.0/features.json").write_text("{}")
    for source in ("bridge-train.tfrecord-00000-of-00512", "set/1.0.0"):
        trajcli.refuses(
            f"integrate {source} --start zero --rate 5 -o out.h5",
            "tfds.builder_from_directory",
            "LeRobot",
        )
