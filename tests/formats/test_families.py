"""Every row of the tables in docs/data.md and docs/robots.md: files made by the project's library
where it installs, else to its documented format; values, order, dt and joint names against NumPy.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

import h5py
import numpy as np
import pytest
from layouts import writers

from trajcli.files.source import natural_key

DOCS = Path(__file__).resolve().parents[2] / "docs"
RATE = 50
JOINTS = ["shoulder", "elbow", "wrist"]
LENGTHS = (9, 6, 8, 7, 9, 6, 8, 7, 9, 6, 8)
"""Of so many that the tenth would come second if names were sorted as texts."""
Rows = list[np.ndarray]


class Made(NamedTuple):
    """SOURCE, what its trajectories are, the place that dt is from (None: in no file), names."""

    source: str
    expected: Rows
    dt_source: str | None = None
    names: list[str] | None = None


def curves(lengths: tuple[int, ...] = LENGTHS, kind: str = "f8") -> Rows:
    return [
        np.sin(np.arange(n)[:, None] / RATE + k + np.arange(3)).astype(kind)
        for k, n in enumerate(lengths)
    ]


def steps(rows: Rows) -> np.ndarray:
    return np.concatenate([np.arange(len(one)) / RATE for one in rows])


def labels(rows: Rows) -> np.ndarray:
    return np.repeat(np.arange(len(rows)), [len(one) for one in rows])


def npy() -> Made:
    rows = curves((9,) * 11)
    np.save("in.npy", np.stack(rows))
    return Made("in.npy", rows)


def npz() -> Made:
    rows = curves((9,) * 11)
    np.savez("in.npz", position=np.stack(rows), dt=1 / RATE, joint_names=np.array(JOINTS))
    return Made("in.npz", rows, "in.npz:dt", JOINTS)


def hdf5() -> Made:
    rows = curves((9,) * 11)
    with h5py.File("in.h5", "w") as file:
        file["position"], file["times"] = np.stack(rows), np.arange(9) / RATE
        file["joint_names"] = JOINTS
    return Made("in.h5", rows, "time stamps in.h5:/times", JOINTS)


def frame(rows: Rows):
    pandas = pytest.importorskip("pandas")
    columns = {f"q/{name}": np.concatenate(rows)[:, k] for k, name in enumerate(JOINTS)}
    return pandas.DataFrame({"episode": labels(rows), "time": steps(rows), **columns})


def csv() -> Made:
    rows = curves()
    frame(rows).to_csv("in.csv", index=False)
    return Made("in.csv:q", rows, "time stamps in.csv:time", JOINTS)


def pandas_parquet() -> Made:
    rows = curves()
    frame(rows).to_parquet("in.parquet", index=False, row_group_size=20)
    return Made("in.parquet:q", rows, "time stamps in.parquet:time", JOINTS)


def bag(kind: str) -> Made:
    pytest.importorskip("rosbags")
    from formats.test_bags import BEGIN, Maker
    from formats.test_bags import JOINTS as TYPE

    make, (rows,) = Maker(kind), curves((40,))
    messages = []
    for k, row in enumerate(rows):
        stamp = BEGIN + k * 10**9 // RATE
        messages.append(("/js", TYPE, stamp + 1, make.joints(stamp, JOINTS, row)))
    path = make.write(kind, messages)
    return Made(f"{path}:/js/position", [rows], f"time stamps {path}:/js/times", JOINTS)


def zarr_arrays() -> Made:
    zarr = pytest.importorskip("zarr")
    rows = curves((9,) * 11)
    root = zarr.open_group("in.zarr", mode="w", zarr_format=3)
    root.create_array("position", data=np.stack(rows), chunks=(4, 9, 3))
    root.attrs["dt"] = 1 / RATE
    return Made("in.zarr", rows, "in.zarr:/@dt")


def replay() -> Made:
    zarr = pytest.importorskip("zarr")
    rows = curves(kind="f4")
    root = zarr.open_group("in.zarr", mode="w", zarr_format=2)
    root.create_array("data/action", data=np.concatenate(rows), chunks=(20, 3))
    root.create_array("meta/episode_ends", data=np.cumsum(LENGTHS))
    return Made("in.zarr:data/action", rows)


def torch_saved() -> Made:
    torch = pytest.importorskip("torch", "2.6")
    rows = curves((9,) * 11)
    torch.save({"policy": {"actions": torch.tensor(np.stack(rows))}}, "in.pt")
    return Made("in.pt:policy/actions", rows)


def matlab() -> Made:
    savemat = pytest.importorskip("scipy.io").savemat
    rows = curves((9,) * 11)
    savemat("in.mat", {"position": np.stack(rows), "dt": 1 / RATE})
    return Made("in.mat", rows, "in.mat:dt")


def json_arrays() -> Made:
    rows = curves((9,) * 11)
    document = {"position": np.stack(rows).tolist(), "dt": 1 / RATE, "joint_names": JOINTS}
    Path("in.json").write_text(json.dumps(document))
    return Made("in.json", rows, "in.json:dt", JOINTS)


def demos() -> tuple[writers.Demos, Rows]:
    given = writers.demos(scale=0.9)
    return given, [demo["actions"] for demo in given]


def of_layout(write: Callable[..., None], dt_source: str | None, kind: str = "f8") -> Made:
    given, rows = demos()
    write(Path("in.hdf5"), given)
    return Made("in.hdf5:actions", [one.astype(kind) for one in rows], dt_source)


def folder_of_files() -> Made:
    given, rows = demos()
    Path("set").mkdir()
    for k, demo in enumerate(given):
        writers.aloha(Path(f"set/episode_{k}.hdf5"), demo)
    return Made("set:action", rows)


def maniskill() -> Made:
    def write(path: Path, given: writers.Demos) -> None:
        writers.maniskill(path, given, "pd_joint_pos")

    return of_layout(write, "sim_config.control_freq, 20 Hz", "f4")


def minari() -> Made:
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
    return Made("reach-v0:actions", rows)


def lerobot() -> Made:
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    rows = curves(kind="f4")
    feature = {"dtype": "float32", "shape": [3], "names": {"motors": JOINTS}}
    about = {"codebase_version": "v3.0", "fps": RATE, "features": {"action": feature}}
    Path("set/meta").mkdir(parents=True)
    Path("set/meta/info.json").write_text(json.dumps(about))
    Path("set/data/chunk-000").mkdir(parents=True)
    flat = arrow.array(np.concatenate(rows).reshape(-1))
    columns = {
        "action": arrow.FixedSizeListArray.from_arrays(flat, 3),
        "timestamp": steps(rows).astype("f4"),
        "frame_index": np.concatenate([np.arange(len(one)) for one in rows]),
        "episode_index": labels(rows),
    }
    parquet.write_table(arrow.table(columns), "set/data/chunk-000/file-000.parquet")
    return Made("set:action", rows, "set/meta/info.json fps, 50 Hz", JOINTS)


ENVIRONMENT = "in.hdf5:/data@env_args env_kwargs.control_freq, 20 Hz"
FAMILIES: dict[str, dict[str, Callable[[], Made]]] = {
    "`.npy`": {"npy": npy},
    "`.npz`, HDF5": {"npz": npz, "hdf5": hdf5},
    "`.csv`, `.tsv`, `.txt`": {"csv": csv},
    "`.parquet`": {"pandas parquet": pandas_parquet},
    "`.mcap`, `.db3`, `.bag`": {kind: partial(bag, kind) for kind in ("mcap", "db3", "bag")},
    "Zarr 2 and 3": {"zarr": zarr_arrays},
    "`.pt`": {"pt": torch_saved},
    "`.mat`": {"matlab 5": matlab},
    "`.yaml`": {"json": json_arrays},
    "a folder": {"folder": folder_of_files},
    "robomimic, MimicGen, LIBERO": {
        "robomimic": lambda: of_layout(writers.robomimic, ENVIRONMENT),
        "mimicgen": lambda: of_layout(writers.mimicgen, ENVIRONMENT),
        "libero": lambda: of_layout(writers.libero, ENVIRONMENT),
    },
    "robosuite": {"robosuite": lambda: of_layout(writers.robosuite, None)},
    "Isaac Lab": {
        "isaaclab": lambda: of_layout(writers.isaaclab, "sim_args.dt × decimation", "f4")
    },
    "ALOHA, ACT": {"aloha": folder_of_files},
    "ManiSkill": {"maniskill": maniskill},
    "D4RL": {"d4rl": lambda: of_layout(writers.d4rl, None, "f4")},
    "Minari": {"minari": minari},
    "LeRobot 2.1 and 3": {"lerobot": lerobot},
    "replay buffers": {"replay": replay},
}
"""By the beginning of its row in docs/data.md or docs/robots.md."""
MAKERS = {name: make for row in FAMILIES.values() for name, make in row.items()}


@pytest.mark.filterwarnings("ignore::UserWarning:minari", "ignore::DeprecationWarning")
@pytest.mark.parametrize("family", MAKERS)
def test_values_order_dt_and_joint_names_of_a_family(trajcli, folder, monkeypatch, family):
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(folder))
    made = MAKERS[family]()
    given = "" if made.dt_source else f" --rate {RATE}"
    line = f"differentiate {made.source} --method central -o out.h5 --json{given}"
    result = trajcli(line)
    assert result.code == 0, result.err
    assert (made.dt_source or "--rate 50") in result.document["dt_source"]
    with h5py.File("out.h5") as file:
        groups = [file]
        if "position" not in file:  # unequal lengths
            names: list[str] = []
            file.visit(names.append)
            groups = [file[n].parent for n in sorted(names, key=natural_key) if "jerk" in n]
        places = [group["position"] for group in groups]
        found = [rows for one in places for rows in np.reshape(one, (-1, *one.shape[-2:]))]
        for rows, expected in zip(found, made.expected, strict=True):
            np.testing.assert_array_equal(rows, expected)
        if made.names:
            assert file["dof"].asstr()[:].tolist() == made.names
        step = np.diff(np.atleast_2d(groups[0]["time"])[0])[:3]
        rate = 20 if "20 Hz" in result.document["dt_source"] else RATE
        if "decimation" not in result.document["dt_source"]:
            np.testing.assert_allclose(step, 1 / rate, rtol=1e-6)
    if not made.dt_source:
        refused = trajcli(line.replace(given, "").replace("out.h5", "other.h5"))
        assert refused.code == 2
        assert "no time step" in refused.err


def test_every_row_of_the_documentation_is_a_family_that_is_tested():
    text = "".join((DOCS / name).read_text().split("\n## ")[0] for name in ("data.md", "robots.md"))
    rows = re.findall(r"^\| (.+?) \|", text, re.M)
    rows = [row for row in rows if not row.startswith(("---", "file", "family"))]
    assert len(rows) == len(FAMILIES)
    for row, beginning in zip(rows, FAMILIES, strict=True):
        assert row.startswith(beginning)
