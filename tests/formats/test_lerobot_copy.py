"""Copies of LeRobot data sets with what was computed as features, in the documented format."""

from __future__ import annotations

import itertools
import json
import os
from pathlib import Path

import h5py
import numpy as np
import pytest
from layouts import writers
from layouts.test_parquet import GIVEN, episode, version_2, version_3

from trajcli.system import Interrupt

arrow = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")

QUANTITIES = ("position", "velocity", "acceleration", "jerk")
KEYS = ["min", "max", "mean", "std", "count", "q01", "q50", "q99"]
COMPUTE = "integrate set:action --mode clique --start zero -o out.h5"
LINE = "export out.h5 --lerobot set -o out"


def data_set(version: int) -> Path:
    """A data set of 12 episodes, with a camera and statistics of one feature."""
    folder = Path("set")
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
    return folder


def column(root: str, name: str) -> np.ndarray:
    """A column of all frames."""
    paths = sorted(Path(root).glob("data/*/*.parquet"))
    return np.concatenate([np.stack(parquet.read_table(p)[name].to_numpy()) for p in paths])


def features() -> dict[str, dict[str, object]]:
    return json.loads(Path("out/meta/info.json").read_text())["features"]


@pytest.mark.parametrize(
    ("version", "compute", "more"),
    [
        (2, COMPUTE, ""),
        (3, COMPUTE, ""),
        (3, "differentiate set:observation.state --method backward -o out.h5", ""),
        (2, f"{COMPUTE} --alignment actions --dtype float64", ""),
        (3, f"{COMPUTE} --write velocity", " --dofs 2"),
    ],
)
def test_frame_k_has_row_k_of_its_episode(trajcli, folder, version, compute, more):
    source = data_set(version)
    trajcli(compute, code=0)
    trajcli(LINE + more, code=0)
    names = ["velocity"] if "--write" in compute else QUANTITIES
    assert list(features()) == ["action", *(f"trajcli.{name}" for name in names)]
    dofs = slice(2, 3) if more else slice(None)
    for name in names:
        with h5py.File("out.h5") as file:
            rows = [episode(file, i)[name][: len(d["actions"])] for i, d in enumerate(GIVEN)]
        want, got = np.concatenate(rows)[:, dofs], column("out", f"trajcli.{name}")
        assert got.dtype == want.dtype
        np.testing.assert_array_equal(got.reshape(want.shape), want)
        assert features()[f"trajcli.{name}"] == {
            "dtype": str(want.dtype),
            "shape": [want.shape[1]],
            "names": None if "state" in compute else list("abcdefg")[dofs],
        }
    for path in source.glob("data/*/*.parquet"):
        old, copy = parquet.read_table(path), Path("out", path.relative_to(source))
        assert parquet.read_table(copy).select(old.column_names).equals(old)
        groups = parquet.read_metadata(path).num_row_groups
        assert parquet.read_metadata(copy).num_row_groups == groups
    assert not list(Path().glob(".*"))


def test_equally_long_trajectories_are_the_episodes_in_their_order(trajcli, folder):
    Path("set/meta").mkdir(parents=True)
    Path("set/data/chunk-000").mkdir(parents=True)
    Path("set/meta/info.json").write_text('{"fps": 50, "features": {}}')
    for name, episodes in {"file-000": [2, 1], "file-001": [0]}.items():
        index = np.repeat(episodes, 4)
        actions = index[:, None] + np.zeros((len(index), 2))
        table = arrow.table({"action": list(actions), "episode_index": index})
        parquet.write_table(table, f"set/data/chunk-000/{name}.parquet")
    trajcli("integrate set --mode clique --start zero -o out.h5", code=0)
    trajcli(LINE, code=0)
    with h5py.File("out.h5") as file:
        assert file["position"].shape == (3, 5, 2)
    position, action = column("out", "trajcli.position"), column("out", "action")
    first = np.arange(12) % 4 == 0  # starts from zero
    np.testing.assert_array_equal(position, np.where(first[:, None], 0.0, action))


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
def test_statistics_of_new_features_are_computed_by_episode_and_overall(trajcli, folder, version):
    data_set(version)
    trajcli(COMPUTE, code=0)
    trajcli(LINE, code=0)
    edges = np.cumsum([0, *writers.LENGTHS])
    names = [f"trajcli.{name}" for name in QUANTITIES]
    if version == 3:
        whole = json.loads(Path("out/meta/stats.json").read_text())
        assert whole["action"] == dict.fromkeys(KEYS, [0.0] * 7)
        table = parquet.read_table("out/meta/episodes/chunk-000/file-000.parquet")
        assert table["length"].to_pylist() == writers.LENGTHS
        stats = [
            {n: {k: table[f"stats/{n}/{k}"][i].as_py() for k in KEYS} for n in names}
            for i in range(12)
        ]
    else:
        lines = Path("out/meta/episodes_stats.jsonl").read_text().splitlines()
        stats, whole = [json.loads(line)["stats"] for line in lines], {}
    for name in names:
        values = column("out", name)
        for i, (begin, end) in enumerate(itertools.pairwise(edges)):
            require_statistics(stats[i][name], values[begin:end])
        if whole:
            require_statistics(whole[name], values)


@pytest.mark.parametrize("other_disk", [False, True])
def test_videos_are_linked_and_all_else_is_copied(trajcli, folder, monkeypatch, other_disk):
    source, link = data_set(3), os.link

    def refused(a: str, b: str) -> None:
        raise OSError(18, "Invalid cross-device link")

    monkeypatch.setattr(os, "link", refused if other_disk else link)
    (source / "meta/same.jsonl").symlink_to("tasks.jsonl")
    trajcli(COMPUTE, code=0)
    trajcli(LINE, code=0)
    video = Path("videos/chunk-000/camera/episode_000000.mp4")
    assert os.path.samefile(source / video, "out" / video)
    assert Path("out", video).is_symlink() == other_disk
    for name in ("README.md", "meta/tasks.jsonl", "meta/same.jsonl"):
        assert Path("out", name).read_text() == (source / name).read_text()
        assert not os.path.samefile(Path("out", name), source / name)
    assert not Path("out/.cache").exists()


def test_a_copy_is_read_as_a_data_set_with_its_features(trajcli, folder):
    data_set(3)
    trajcli(COMPUTE, code=0)
    trajcli(LINE, code=0)
    trajcli("integrate out:trajcli.velocity --mode velocity --start zero -o back.h5", code=0)
    copied = trajcli("export back.h5:jerk --lerobot set -o more --json")
    assert copied.document["trajectories"] == 12
    result = trajcli("export out.h5 --lerobot out -o again")
    assert (result.code, "features there already" in result.err) == (2, True)


BSPLINE = COMPUTE.replace("clique", "bspline --steps 3")
ONE_FILE = COMPUTE.replace("set:", "set/data/chunk-000/file-001.parquet:")


@pytest.mark.parametrize(
    ("compute", "line", "what"),
    [
        (COMPUTE, f"{LINE} --episodes 0:3", "other trajectories than episodes"),
        (ONE_FILE, LINE, "other trajectories than episodes"),
        (BSPLINE, LINE, "other rows than frames"),
        (COMPUTE, LINE.replace("--lerobot set", "--lerobot set/data"), "cannot be read"),
        (COMPUTE, LINE.replace("-o out", "-o set/meta/out"), "not a new folder"),
        (COMPUTE, LINE.replace("-o out", "-o set"), "not a new folder"),
        (COMPUTE, f"{LINE} --overwrite", "a new folder"),
    ],
)
def test_features_that_exist_or_do_not_match_are_refused(trajcli, folder, compute, line, what):
    data_set(3)
    trajcli(compute, code=0)
    before = sorted(Path().rglob("*"))
    result = trajcli(line)
    assert (result.code, what in result.err) == (2, True), result.err
    assert sorted(Path().rglob("*")) == before


def outside(place: Path) -> None:
    place.symlink_to("/etc/shadow")


@pytest.mark.parametrize(
    ("place", "spoil"),
    [
        ("meta/shadow.json", outside),
        ("meta/kmsg.json", lambda place: place.symlink_to("/proc/kmsg")),
        ("videos/mine.mp4", lambda place: place.symlink_to(Path("actions.npy").absolute())),
        ("images", lambda place: place.symlink_to("/etc")),
        ("data/inside", lambda place: place.symlink_to("chunk-000")),
        ("meta/pipe", os.mkfifo),
        ("meta/info.json", lambda place: (place.unlink(), outside(place))),
        ("meta/info.json", lambda place: place.write_text('{"fps": 30, "features": []}')),
        ("meta/info.json", lambda place: place.write_text('{"fps": 30, "features": ')),
        ("meta/stats.json", lambda place: place.write_text("[" * 100_000)),
        ("meta/episodes/chunk-000/file-000.parquet", lambda p: p.write_bytes(b"PAR1 no more")),
        ("meta/episodes_stats.jsonl", lambda place: place.write_text('{"stats": []}')),
    ],
)
def test_files_that_are_not_the_data_sets_leave_nothing(trajcli, folder, place, spoil):
    source = data_set(3)
    trajcli(COMPUTE, code=0)
    spoil(source / place)
    result = trajcli(LINE)
    assert result.code == 2, result.err
    assert place in result.err
    assert not Path("out").exists()
    assert not list(Path().glob(".*"))


def test_a_signal_leaves_nothing(trajcli, folder, monkeypatch):
    def interrupted(*_: object) -> None:
        raise Interrupt("SIGTERM")

    data_set(3)
    trajcli(COMPUTE, code=0)
    monkeypatch.setattr(os, "link", interrupted)
    Path("set/videos/z.mp4").touch()
    trajcli(LINE, code=75)
    assert not Path("out").exists()
    assert not list(Path().glob(".*"))
