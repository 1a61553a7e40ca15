"""LeRobot data sets written again with what was computed, to the documented format."""

from __future__ import annotations

import itertools
import json
import os
import shutil
from pathlib import Path

import h5py
import numpy as np
import pytest
from layouts import writers
from layouts.test_parquet import GIVEN, episode, version_2, version_3

arrow = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")

QUANTITIES = ("position", "velocity", "acceleration", "jerk")
KEYS = ["min", "max", "mean", "std", "count", "q01", "q50", "q99"]
LINE = "integrate set:action --mode clique --start zero -o out --as lerobot"


def data_set(version: int, root: str = "set", features: tuple[str, ...] = ("action",)) -> Path:
    """A data set of 12 episodes, with a camera and statistics of one feature."""
    folder = Path(root)
    (version_2 if version == 2 else version_3)(folder)
    info = json.loads((folder / "meta/info.json").read_text())
    info["features"] = {"action": {"dtype": "float32", "shape": [7], "names": list("abcdefg")}}
    (folder / "meta/info.json").write_text(json.dumps(info))
    (folder / "meta/tasks.jsonl").write_text('{"task_index": 0, "task": "x"}\n')
    stated = {"action": dict.fromkeys(KEYS, [0.0] * 7)}
    video = folder / "videos/chunk-000/camera/episode_000000.mp4"
    video.parent.mkdir(parents=True)
    video.write_bytes(b"frames")
    (folder / "README.md").write_text("A data set.\n")
    (folder / ".cache").mkdir()
    (folder / ".cache/lock").touch()
    if version == 2:
        lines = [json.dumps({"episode_index": i, "stats": stated}) for i in range(12)]
        (folder / "meta/episodes_stats.jsonl").write_text("\n".join(lines) + "\n")
    else:
        (folder / "meta/stats.json").write_text(json.dumps(stated))
        columns = {"episode_index": list(range(12)), "length": writers.LENGTHS}
        columns |= {f"stats/action/{key}": [[0.0] * 7] * 12 for key in KEYS}
        place = folder / "meta/episodes/chunk-000/file-000.parquet"
        place.parent.mkdir(parents=True)
        parquet.write_table(arrow.table(columns), place)
        hf = {"info": {"features": {"action": {"length": 7, "_type": "List"}}}}
        for path in folder.glob("data/*/*.parquet"):
            table = parquet.read_table(path)
            table = table.replace_schema_metadata({"huggingface": json.dumps(hf)})
            parquet.write_table(table, path, row_group_size=50)
    return folder


def columns(root: str, name: str) -> np.ndarray:
    """A column of all frames."""
    paths = sorted(Path(root).glob("data/*/*.parquet"))
    return np.concatenate([np.stack(parquet.read_table(p)[name].to_numpy()) for p in paths])


def computed(trajcli, line: str, name: str) -> np.ndarray:
    """The same quantity of every frame by the HDF5 file of the same run."""
    result = trajcli(line.replace("-o out --as lerobot", "-o out.h5 --overwrite"))
    assert result.code == 0, result.err
    with h5py.File("out.h5") as file:
        parts = [episode(file, i)[name][: len(d["actions"])] for i, d in enumerate(GIVEN)]
    return np.concatenate(parts)


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize(
    "line",
    [
        LINE,
        LINE.replace("zero", "first").replace("action", "observation.state"),
        f"{LINE} --frames actions --dtype float64",
        f"{LINE} --dofs 2 --write velocity",
    ],
)
def test_every_frame_has_the_row_of_its_time_stamp(trajcli, folder, version, line):
    source = data_set(version)
    result = trajcli(line)
    assert result.code == 0, result.err
    written = {q: computed(trajcli, line, q) for q in QUANTITIES if f"trajcli.{q}" in features()}
    assert written.keys() == ({"velocity"} if "--write" in line else set(QUANTITIES))
    for name, values in written.items():
        got = columns("out", f"trajcli.{name}")
        assert got.dtype == values.dtype
        np.testing.assert_array_equal(got.reshape(values.shape), values)
        about = features()[f"trajcli.{name}"]
        assert about["dtype"] == str(values.dtype)
        assert about["shape"] == [values.shape[1]]
    for path in source.glob("data/*/*.parquet"):
        old = parquet.read_table(path)
        new = parquet.read_table(Path("out", path.relative_to(source)))
        assert new.select(old.column_names).equals(old)
        groups = parquet.read_metadata(path).num_row_groups
        assert parquet.read_metadata(Path("out", path.relative_to(source))).num_row_groups == groups
    assert not list(Path().glob(".*"))


def features() -> dict[str, dict[str, object]]:
    return json.loads(Path("out/meta/info.json").read_text())["features"]


def require_statistics(stated: dict[str, list[float]], values: np.ndarray) -> None:
    assert list(stated) == KEYS
    wide = values.astype("f8")
    assert stated["count"] == [len(values)]
    for key, function in {"min": np.min, "max": np.max, "mean": np.mean, "std": np.std}.items():
        np.testing.assert_allclose(stated[key], function(wide, axis=0), rtol=1e-12, atol=1e-15)
    for key in ("q01", "q50", "q99"):
        want = np.quantile(wide, int(key[1:]) / 100, axis=0)
        np.testing.assert_allclose(stated[key], want, rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("version", [2, 3])
def test_statistics_are_those_of_the_new_features_by_episode_and_of_all(trajcli, folder, version):
    data_set(version)
    assert trajcli(LINE).code == 0
    edges = np.cumsum([0, *writers.LENGTHS])
    names = [f"trajcli.{name}" for name in QUANTITIES]
    if version == 3:
        whole = json.loads(Path("out/meta/stats.json").read_text())
        table = parquet.read_table("out/meta/episodes/chunk-000/file-000.parquet")
        assert table["length"].to_pylist() == writers.LENGTHS
        of = {
            name: [
                {key: table[f"stats/{name}/{key}"][i].as_py() for key in KEYS} for i in range(12)
            ]
            for name in names
        }
        assert whole["action"] == dict.fromkeys(KEYS, [0.0] * 7)
        metadata = parquet.read_schema("out/data/chunk-000/file-000.parquet").metadata
        described = json.loads(metadata[b"huggingface"])["info"]["features"]
        value = {"dtype": "float32", "_type": "Value"}
        list_of = {"feature": value, "length": 7, "_type": "List"}
        assert described["trajcli.jerk"] == list_of
        assert described["action"] == {"length": 7, "_type": "List"}
    else:
        lines = Path("out/meta/episodes_stats.jsonl").read_text().splitlines()
        stats = [json.loads(line)["stats"] for line in lines]
        of = {name: [one[name] for one in stats] for name in names}
        whole = {}
    for name in names:
        values = columns("out", name)
        for i, (begin, end) in enumerate(itertools.pairwise(edges)):
            require_statistics(of[name][i], values[begin:end])
        if whole:
            require_statistics(whole[name], values)


@pytest.mark.parametrize("other_disk", [False, True])
def test_videos_are_linked_and_all_else_is_copied(trajcli, folder, monkeypatch, other_disk):
    source, link = data_set(3), os.link

    def refused(a: str, b: str, **more: object) -> None:
        raise OSError(18, "Invalid cross-device link")

    monkeypatch.setattr(os, "link", refused if other_disk else link)
    assert trajcli(LINE).code == 0
    video = Path("videos/chunk-000/camera/episode_000000.mp4")
    assert os.path.samefile(source / video, "out" / video)
    assert Path("out", video).is_symlink() == other_disk
    for name in ("README.md", "meta/tasks.jsonl"):
        assert Path("out", name).read_text() == (source / name).read_text()
        assert not os.path.samefile(Path("out", name), source / name)
    assert not Path("out/.cache").exists()
    about = json.loads(Path("out/meta/trajcli.json").read_text())
    assert about["mode"] == "clique"
    assert json.loads(about["request"])["form"] == "lerobot"


def test_what_is_written_is_a_data_set_to_trajcli(trajcli, folder):
    data_set(3)
    assert trajcli(LINE).code == 0
    line = "integrate out:trajcli.velocity --mode velocity --start zero -o back.h5"
    assert trajcli(line).code == 0
    assert trajcli("inspect out/data/chunk-000/file-000.parquet").code == 0
    result = trajcli(LINE.replace("set:", "out:").replace("-o out", "-o more"))
    assert result.code == 2
    assert "there already" in result.err
    assert trajcli(LINE).code == 2
    assert trajcli(f"{LINE} --overwrite").code == 0
    Path("out/meta/notes.txt").write_text("mine")
    result = trajcli(f"{LINE} --overwrite")
    assert result.code == 2
    assert "found:    meta/notes.txt" in result.err


@pytest.mark.parametrize(
    "more",
    ["--shard 0/2", "--pack", "--compress 4", "--cost jerk", "--skip-bad",
     "--max-gap 1", "--untrusted", "--repeated-times drop"],
)  # fmt: skip
def test_options_that_give_no_row_to_every_frame_are_refused(trajcli, folder, more):
    data_set(3)
    result = trajcli(f"{LINE} {more}")
    assert result.code == 2, result.err
    assert not Path("out").exists()


def test_other_sources_and_parts_of_a_data_set_are_refused(trajcli, folder):
    data_set(3)
    part = LINE.replace("set:", "set/data/chunk-000/file-000.parquet:")
    for line, told in (
        (part, "a part of a data set"),
        (LINE.replace("set:action", "actions.npy --dt 0.1"), "not a LeRobot data set"),
        (LINE.replace("clique", "bspline --steps 3"), "other rows than frames"),
        (f"{LINE} --episodes 0:3", "--episodes"),
        (LINE.replace("-o out", "-o set/meta/out"), "lies in the data set"),
    ):
        result = trajcli(line)
        assert result.code == 2, line
        assert told in result.err
        assert not Path("out").exists()


@pytest.mark.parametrize("name", ["meta/stats.json", "meta/info.json"])
def test_a_fault_at_the_end_leaves_nothing(trajcli, folder, name):
    source = data_set(3)
    (source / name).write_text('{"fps": 30, "action": 3}')
    shutil.copytree(source, "same")
    result = trajcli(LINE)
    assert result.code == (2 if "info" in name else 0), result.err
    (source / "meta/episodes/chunk-000/file-000.parquet").write_bytes(b"PAR1 no more")
    shutil.rmtree("out", ignore_errors=True)
    result = trajcli(LINE)
    assert result.code == 2
    assert "Traceback" not in result.err
    assert not Path("out").exists()
    assert not list(Path().glob(".*"))
