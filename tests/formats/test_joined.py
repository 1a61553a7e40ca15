"""Several arrays of one group as the dofs of one trajectory: FILE:eef_pos,eef_quat,gripper."""

from __future__ import annotations

import json
from pathlib import Path

import h5py
import numpy as np
import pytest
from scipy.spatial.transform import Rotation

TIMES = 0.05 * np.arange(60)
POSITION = np.stack([np.sin(TIMES), np.cos(2 * TIMES), TIMES], 1)
TURNS = Rotation.from_rotvec(np.outer(TIMES, [0.3, -0.5, 0.9]))
GRIPPER = np.sin(3 * TIMES)
ARRAYS = {"eef_pos": POSITION, "eef_quat": TURNS.as_quat(), "gripper": GRIPPER}
CENTRAL = "--method central -o out.h5 --overwrite"
QUATERNION = "--rotation 3:7=xyzw"


def write(name: str, group: str = "", **arrays: np.ndarray) -> None:
    """Writes arrays with their times into a file of the format that its name says."""
    arrays = {"times": TIMES, **arrays}
    named = {f"{group}{key}": array for key, array in arrays.items()}
    if name.endswith(("h5", "hdf5")):
        with h5py.File(name, "a") as file:
            for key, array in named.items():
                file[key] = array
    elif name.endswith("npz"):
        np.savez(name, **named)
    elif name.endswith("json"):
        table = {key: array.tolist() for key, array in arrays.items()}
        Path(name).write_text(json.dumps({group.strip("/"): table} if group else table))
    elif name.endswith("jsonl"):
        rows = ({key: array[k].tolist() for key, array in arrays.items()} for k in range(60))
        Path(name).write_text("\n".join(map(json.dumps, rows)))
    elif name.endswith("mat"):
        table = {k: x[:, None] if x.ndim == 1 else x for k, x in arrays.items()}
        pytest.importorskip("scipy.io").savemat(name, {group.strip("/"): table} if group else table)
    elif name.endswith("pt"):
        torch = pytest.importorskip("torch")
        table = {key: torch.tensor(array) for key, array in arrays.items()}
        torch.save({group.strip("/"): table} if group else table, name)
    elif name.endswith("zarr"):
        root = pytest.importorskip("zarr").open_group(name, mode="w")
        for key, array in named.items():
            root.create_array(key, data=array)
    else:
        arrow, parquet = (pytest.importorskip(f"pyarrow{x}") for x in ("", ".parquet"))
        parquet.write_table(arrow.table({k: x.tolist() for k, x in arrays.items()}), name)


def motion(path: str = "out.h5") -> dict[str, np.ndarray]:
    with h5py.File(path) as file:
        return {name: np.squeeze(x) for name, x in file.items() if isinstance(x, h5py.Dataset)}


NAMES = ["in.h5", "in.npz", "in.json", "in.jsonl", "in.mat", "in.pt", "in.zarr", "in.parquet"]


@pytest.mark.parametrize("group", ["", "log/obs/"])
@pytest.mark.parametrize("name", NAMES)
def test_arrays_of_a_group_are_one_trajectory(trajcli, folder, name, group):
    if group and name in ("in.jsonl", "in.parquet"):
        group = ""
    if group and name in ("in.json", "in.jsonl", "in.mat", "in.pt"):
        group = "log/"
    write(name, group, **ARRAYS)
    trajcli(f"differentiate {name}:{group}eef_quat --rotation xyzw {CENTRAL}", code=0)
    alone = motion()
    long = ",".join(f"{group}{array}" for array in ARRAYS)
    for source in (f"{group}eef_pos,eef_quat,gripper", long):
        trajcli(f"differentiate {name}:{source} {QUATERNION} {CENTRAL}", code=0)
        found = motion()
        np.testing.assert_array_equal(found["position"], np.c_[POSITION, GRIPPER])
        np.testing.assert_array_equal(found["time"], TIMES)
        for part in ("orientation", "angular_velocity"):
            np.testing.assert_array_equal(found[part], alone[part])
        names = [x.decode() for x in found["dof"]]
        assert names == ["eef_pos_0", "eef_pos_1", "eef_pos_2", "gripper"]


@pytest.mark.parametrize("order", ["xyzw", "wxyz"])
@pytest.mark.parametrize("stated", ["attribute", "name", "nowhere"])
def test_a_part_is_turned_as_it_is_alone(trajcli, folder, order, stated):
    quaternions = TURNS.as_quat(scalar_first=order == "wxyz")
    name = f"eef_quat_{order}" if stated == "name" else "eef_quat"
    write("in.h5", **{"eef_pos": POSITION, name: quaternions})
    if stated == "attribute":
        with h5py.File("in.h5", "a") as file:
            file[name].attrs["order"] = order
    line = f"differentiate in.h5:eef_pos,{name} {CENTRAL}"
    if stated == "nowhere":
        trajcli.refuses(line, "quaternions whose order is not known")
        line += f" --rotation 3:7={order}"
    trajcli(line, code=0)
    rotation = Rotation.from_quat(motion()["orientation"], scalar_first=True)
    assert (rotation * TURNS.inv()).magnitude().max() < 1e-14


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("eef_rot6d", lambda: TURNS.as_matrix()[:, :, :2].swapaxes(1, 2).reshape(-1, 6)),
        ("eef_rot_mat", lambda: TURNS.as_matrix().reshape(-1, 9)),
        ("eef_axis_angle", TURNS.as_rotvec),
    ],
)
def test_other_forms_of_rotations_are_recognised_next_to_positions(trajcli, folder, name, values):
    write("in.npz", **{"eef_pos": POSITION, name: values()})
    trajcli(f"differentiate in.npz:{name},eef_pos {CENTRAL}", code=0)
    found = motion()
    np.testing.assert_array_equal(found["position"], POSITION)
    rotation = Rotation.from_quat(found["orientation"], scalar_first=True)
    assert (rotation * TURNS.inv()).magnitude().max() < 1e-7


def test_parts_keep_their_units_and_joint_names(trajcli, folder):
    write("in.h5", arm=np.degrees(POSITION), lift=1000 * GRIPPER, quat=TURNS.as_quat())
    with h5py.File("in.h5", "a") as file:
        file["arm"].attrs["units"], file["lift"].attrs["units"] = "deg", "mm"
        file["joint_names"] = ["a", "b", "c"]
        file["quat"].attrs["order"] = "xyzw"
    trajcli(f"differentiate in.h5:lift,quat,arm {CENTRAL}", code=0)
    np.testing.assert_allclose(motion()["position"], np.c_[GRIPPER, POSITION], atol=1e-15)
    with h5py.File("out.h5") as file:
        assert file["position"].attrs["units"] == "m,rad,rad,rad"
        assert file["dof"].asstr()[:].tolist() == ["lift", "a", "b", "c"]


def test_a_slice_picks_among_the_dofs_of_all_parts(trajcli, folder):
    write("in.h5", "obs/", **ARRAYS)
    for source, expected in (
        ("obs/eef_pos,gripper[1:]", np.c_[POSITION[:, 1:], GRIPPER]),
        ("obs/gripper,obs/eef_quat[:3]", np.c_[GRIPPER, TURNS.as_quat()[:, :2]]),
    ):
        trajcli(f"differentiate in.h5:{source} {CENTRAL}", code=0)
        found = motion()
        np.testing.assert_array_equal(found["position"], expected)
        assert "orientation" not in found
    trajcli.refuses("differentiate in.h5:obs/eef_pos,gripper[:9] -o no.h5", "no such dofs")


def test_demonstrations_of_robomimic_and_their_patterns(trajcli, folder):
    with h5py.File("demo.hdf5", "w") as file:
        about = json.dumps({"env_kwargs": {"control_freq": 20}})
        file.create_group("data").attrs["env_args"] = about
        for k, count in enumerate((40, 60)):
            group = file.create_group(f"data/demo_{k}")
            group["actions"] = np.zeros((count, 7))
            for name, array in ARRAYS.items():
                group[f"obs/{name}"] = array[:count]
    for source in (
        "obs/eef_pos,obs/eef_quat,obs/gripper", "obs/eef_pos,eef_quat,gripper",
        "data/demo_*/obs/eef_pos,data/demo_*/obs/eef_quat,gripper",
    ):  # fmt: skip
        trajcli(f"differentiate demo.hdf5:{source} {CENTRAL}", code=0)
        with h5py.File("out.h5") as file:
            for k, count in enumerate((40, 60)):
                found, expected = file[f"data/demo_{k}"], np.c_[POSITION, GRIPPER][:count]
                np.testing.assert_array_equal(found["position"], expected)
                turned = Rotation.from_quat(found["orientation"][:], scalar_first=True)
                assert (turned * TURNS[:count].inv()).magnitude().max() < 1e-14


def test_batches_are_joined_and_unequal_rows_refused_by_both_names(trajcli, folder):
    batch = np.stack([POSITION, 2 * POSITION])
    np.savez("in.npz", a=batch, b=batch[..., 0], c=batch[:, :-1], d=batch[:1], dt=0.05)
    trajcli(f"differentiate in.npz:a,b {CENTRAL}", code=0)
    np.testing.assert_array_equal(motion()["position"], np.concatenate([batch, batch[..., :1]], 2))
    for other in "cd":
        line = f"differentiate in.npz:a,{other} -o no.h5"
        trajcli.refuses(line, f"in.npz:{other} and in.npz:a: arrays that differ in rows")
    trajcli.refuses("differentiate in.npz:a,nix -o no.h5", "in.npz:nix: no such dataset")


def test_fields_of_messages_are_joined_with_the_names_of_joints(trajcli, folder):
    pytest.importorskip("rosbags")
    from formats.test_bags import JOINTS, Maker

    make, messages = Maker("mcap"), []
    for k in range(60):
        arrays = POSITION[k, :2], TURNS.as_rotvec()[k, :2]
        state = make.joints(10**18 + 5 * 10**7 * k, ["a", "b"], *arrays)
        messages.append(("/joint_states", JOINTS, 10**18 + k, state))
    path = make.write("mcap", messages)
    trajcli(f"differentiate {path}:/joint_states/position,velocity[1:3] {CENTRAL}", code=0)
    expected = np.c_[POSITION[:, 1], TURNS.as_rotvec()[:, 0]]
    np.testing.assert_array_equal(motion()["position"], expected)
    assert motion()["dof"].astype(str).tolist() == ["b", "velocity.a"]
    trajcli(f"differentiate {path}:/joint_states/position,velocity {CENTRAL}", code=0)
    assert motion()["dof"].astype(str).tolist() == ["a", "b", "velocity.a", "velocity.b"]


def test_features_of_a_lerobot_data_set_are_joined(trajcli, folder):
    arrow, parquet = (pytest.importorskip(f"pyarrow{x}") for x in ("", ".parquet"))
    Path("set/meta").mkdir(parents=True)
    Path("set/data/chunk-000").mkdir(parents=True)
    features = {"observation.pose": {"shape": [3], "names": ["x", "y", "z"]}}
    Path("set/meta/info.json").write_text(json.dumps({"fps": 20, "features": features}))
    columns = {
        "observation.pose": POSITION.tolist(), "observation.quat": TURNS.as_quat().tolist(),
        "observation.gripper": GRIPPER, "action": POSITION.tolist(), "timestamp": TIMES % 1.5,
        "frame_index": np.arange(60) % 30, "episode_index": np.arange(60) // 30,
    }  # fmt: skip
    parquet.write_table(arrow.table(columns), "set/data/chunk-000/episode_000000.parquet")
    source = "set:observation.pose,observation.quat,observation.gripper"
    trajcli(f"differentiate {source} {QUATERNION} {CENTRAL}", code=0)
    with h5py.File("out.h5") as file:
        for k, rows in enumerate((slice(30), slice(30, 60))):
            found = file["position"][k] if "position" in file else file[f"episode_{k}/position"]
            np.testing.assert_array_equal(found, np.c_[POSITION, GRIPPER][rows])
        assert file["dof"].asstr()[:].tolist() == ["x", "y", "z", "observation.gripper"]
