"""Files as robot projects write them: names, attributes, types, chunks, filters."""

from __future__ import annotations

import json
from pathlib import Path

import h5py
import numpy as np

COUNT = 12  # so that demo_10 comes after demo_9
LENGTHS = [31, 18, 44, 31, 27, 60, 18, 31, 22, 39, 51, 18]
DOFS = 7

Demos = list[dict[str, np.ndarray]]


def demos(seed: int = 0, scale: float = 3.0) -> Demos:
    """Actions and recorded joint positions and velocities of every demonstration."""
    random = np.random.default_rng(seed)
    found = []
    for length in LENGTHS:
        actions = scale * random.uniform(-1.0, 1.0, (length, DOFS))
        steps = random.normal(0.0, 0.02, (length + 1, DOFS))
        position = random.uniform(-1.5, 1.5, DOFS) + np.cumsum(steps, 0)
        found.append({"actions": actions, "position": position, "velocity": 20 * steps})
    return found


def robomimic(path: Path, given: Demos) -> None:
    """As robomimic's dataset_states_to_obs.py: gzip for images alone, masks of byte strings."""
    with h5py.File(path, "w") as file:
        data = file.create_group("data")
        for i in reversed(range(len(given))):  # in no order of any use
            demo, count = given[i], len(given[i]["actions"])
            group = data.create_group(f"demo_{i}")
            group.create_dataset("actions", data=demo["actions"])
            group.create_dataset("states", data=np.zeros((count, 32)))
            group.create_dataset("rewards", data=np.zeros(count))
            group.create_dataset("dones", data=np.zeros(count, np.int64))
            for part, shift in (("obs", 0), ("next_obs", 1)):
                for name, key in (("joint_pos", "position"), ("joint_vel", "velocity")):
                    values = demo[key][shift : count + shift]
                    group.create_dataset(f"{part}/robot0_{name}", data=values)
                image = np.zeros((count, 8, 8, 3), np.uint8)
                group.create_dataset(f"{part}/agentview_image", data=image, compression="gzip")
            group.attrs["num_samples"] = count
            group.attrs["model_file"] = "<mujoco/>"
        kwargs = {"has_renderer": False, "robots": ["Panda"], "control_freq": 20,
                  "controller_configs": {"type": "OSC_POSE", "input_max": 1}}  # fmt: skip
        data.attrs["env_args"] = json.dumps(
            {"env_name": "Lift", "env_version": "1.4.1", "type": 1, "env_kwargs": kwargs}, indent=4
        )
        data.attrs["total"] = sum(LENGTHS)
        train = [f"demo_{i}" for i in (10, 0, 2, 9)]
        file.create_dataset("mask/train", data=np.array(train, dtype="S"))
        file.create_dataset("mask/valid", data=np.array(["demo_1"], dtype="S"))


def mimicgen(path: Path, given: Demos) -> None:
    """robomimic's, with the generator's own groups."""
    robomimic(path, given)
    with h5py.File(path, "r+") as file:
        for i, demo in enumerate(given):
            group = file[f"data/demo_{i}"]
            group.create_dataset("datagen_info/eef_pose", data=np.zeros((len(demo["actions"]), 4)))
            group.create_dataset("src_demo_inds", data=[0])


def robosuite(path: Path, given: Demos) -> None:
    """As collect_human_demonstrations.py: counted from 1, states, no observations, no rate."""
    with h5py.File(path, "w") as file:
        data = file.create_group("data")
        for i, demo in enumerate(given, 1):
            group = data.create_group(f"demo_{i}")
            group.attrs["model_file"] = "<mujoco/>"
            group.create_dataset("states", data=np.zeros((len(demo["actions"]), 32)))
            group.create_dataset("actions", data=demo["actions"])
        data.attrs["date"] = "3-14-2024"
        data.attrs["time"] = "9:26:53"
        data.attrs["repository_version"] = "1.4.1"
        data.attrs["env"] = "Lift"
        data.attrs["env_info"] = json.dumps({"env_name": "Lift", "robots": "Panda"})


def libero(path: Path, given: Demos) -> None:
    """As LIBERO's create_dataset.py."""
    with h5py.File(path, "w") as file:
        data = file.create_group("data")
        data.attrs["env_name"] = "Libero_Kitchen_Tabletop_Manipulation"
        data.attrs["problem_info"] = json.dumps({"problem_name": "x", "language_instruction": "y"})
        data.attrs["macros_image_convention"] = "opengl"
        for i, demo in enumerate(given):
            count = len(demo["actions"])
            group = data.create_group(f"demo_{i}")
            obs = group.create_group("obs")
            obs.create_dataset("gripper_states", data=np.zeros((count, 2)))
            obs.create_dataset("joint_states", data=demo["position"][:count])
            obs.create_dataset("ee_states", data=np.zeros((count, 6)))
            obs.create_dataset("agentview_rgb", data=np.zeros((count, 8, 8, 3), np.uint8))
            group.create_dataset("actions", data=demo["actions"])
            group.create_dataset("states", data=np.zeros((count, 71)))
            group.create_dataset("robot_states", data=np.zeros((count, 9)))
            group.create_dataset("rewards", data=np.zeros(count, np.uint8))
            group.create_dataset("dones", data=np.zeros(count, np.uint8))
            group.attrs["num_samples"] = count
            group.attrs["model_file"] = "<mujoco/>"
            group.attrs["init_state"] = np.zeros(71)
        data.attrs["num_demos"] = len(given)
        data.attrs["total"] = sum(LENGTHS)
        data.attrs["bddl_file_name"] = "a.bddl"
        data.attrs["bddl_file_content"] = "(define)"
        kwargs = {"robots": ["Panda"], "control_freq": 20, "bddl_file_name": "a.bddl"}
        data.attrs["env_args"] = json.dumps({"type": 1, "env_name": "x", "env_kwargs": kwargs})


def isaaclab(path: Path, given: Demos) -> None:
    """As Isaac Lab's HDF5DatasetFileHandler: everything gzipped, float32, sim_args."""
    with h5py.File(path, "w") as file:
        data = file.create_group("data")
        data.attrs["total"] = sum(LENGTHS)
        args = {"dt": 1 / 120, "decimation": 4, "render_interval": 4, "num_envs": 1}
        data.attrs["env_args"] = json.dumps(
            {"env_name": "Isaac-Stack-Cube-Franka-v0", "type": 2, "sim_args": args}
        )
        for i, demo in enumerate(given):
            count = len(demo["actions"])
            group = data.create_group(f"demo_{i}")
            group.attrs["num_samples"] = count
            group.attrs["seed"] = 1
            group.attrs["success"] = True
            for name, values in {
                "actions": demo["actions"],
                "initial_state/articulation/robot/joint_position": demo["position"][:1],
                "initial_state/articulation/robot/joint_velocity": demo["velocity"][:1],
                "initial_state/articulation/robot/root_pose": np.zeros((1, 7)),
                "obs/joint_pos": demo["position"][:count],
                "obs/joint_vel": demo["velocity"][:count],
                "states/articulation/robot/joint_position": demo["position"][1:],
            }.items():
                group.create_dataset(name, data=values.astype("f4"), compression="gzip")


def aloha(path: Path, demo: dict[str, np.ndarray]) -> None:
    """As ACT's record_sim_episodes.py: one episode a file."""
    count = len(demo["actions"])
    with h5py.File(path, "w", rdcc_nbytes=1024**2 * 2) as root:
        root.attrs["sim"] = True
        obs = root.create_group("observations")
        obs.create_group("images").create_dataset(
            "top", (count, 48, 64, 3), dtype="uint8", chunks=(1, 48, 64, 3)
        )
        obs.create_dataset("qpos", data=demo["position"][:count])
        obs.create_dataset("qvel", data=demo["velocity"][:count])
        root.create_dataset("action", data=demo["actions"])


def maniskill(path: Path, given: Demos, control_mode: str, rate: int | None = 20) -> None:
    """As ManiSkill's RecordEpisode: observations with a row more, and the JSON beside."""
    episodes = []
    with h5py.File(path, "w") as file:
        for i, demo in enumerate(given):
            count = len(demo["actions"])
            group = file.create_group(f"traj_{i}", track_order=True)
            group.create_dataset("actions", data=demo["actions"].astype("f4"), dtype=np.float32)
            for name in ("terminated", "truncated", "success"):
                group.create_dataset(name, data=np.zeros(count, bool), dtype=bool)
            agent = group.create_group("obs/agent", track_order=True)
            for name, key in (("qpos", "position"), ("qvel", "velocity")):
                agent.create_dataset(name, data=demo[key].astype("f4"))
            episodes.append({"episode_id": i, "episode_seed": i, "control_mode": control_mode,
                             "elapsed_steps": count, "reset_kwargs": {"seed": i}})  # fmt: skip
    kwargs = {"obs_mode": "state_dict", "control_mode": control_mode, "sim_backend": "auto"}
    if rate:
        kwargs["sim_config"] = {"sim_freq": 100, "control_freq": rate}
    info = {"env_id": "PickCube-v1", "max_episode_steps": 50, "env_kwargs": kwargs}
    document = {"env_info": info, "commit_info": None, "episodes": episodes}
    path.with_suffix(".json").write_text(json.dumps(document, indent=2))


def d4rl(path: Path, given: Demos) -> None:
    """As D4RL's collection scripts: flat, gzipped, ended by terminals or timeouts."""
    ends = np.zeros(sum(LENGTHS), bool)
    ends[np.cumsum(LENGTHS) - 1] = True
    which = np.arange(len(ends)) % 2 == 0
    with h5py.File(path, "w") as file:
        arrays = {
            "observations": np.concatenate([d["position"][:-1] for d in given]).astype("f4"),
            "actions": np.concatenate([d["actions"] for d in given]).astype("f4"),
            "rewards": np.zeros(len(ends), "f4"),
            "terminals": ends & which,
            "timeouts": ends & ~which,
            "infos/qpos": np.concatenate([d["position"][:-1] for d in given]),
            "infos/qvel": np.concatenate([d["velocity"][:-1] for d in given]),
        }
        for name, values in arrays.items():
            file.create_dataset(name, data=values, compression="gzip")
        file["metadata/algorithm"] = np.bytes_("SAC")


def minari(path: Path, given: Demos, grouped: bool = False) -> None:
    """As Minari's HDF5Storage: chunked and without end; a tuple of actions is a group."""
    with h5py.File(path, "a", track_order=True) as file:
        for i, demo in enumerate(given):
            count = len(demo["actions"])
            group = file.create_group(f"episode_{i}")
            group.attrs["id"] = i
            group.attrs["total_steps"] = count
            actions = demo["actions"].astype("f4")
            parts = {"actions/_index_0": actions, "actions/_index_1": actions[:, :1]}
            for name, values in {
                **(parts if grouped else {"actions": actions}),
                "observations": demo["position"],
                "rewards": np.zeros(count),
                "terminations": np.zeros(count, bool),
                "truncations": np.zeros(count, bool),
            }.items():
                group.create_dataset(
                    name, data=values, chunks=True, maxshape=(None, *values.shape[1:])
                )


def matlab(path: Path, **variables: np.ndarray) -> None:
    """As MATLAB's save -v7.3: dimensions reversed, the class as an attribute, texts as codes."""
    with h5py.File(path, "w", userblock_size=512) as file:
        for name, values in variables.items():
            text = values.dtype.kind == "U"
            codes = np.array([list(map(ord, row)) for row in values], "u2") if text else values
            kind = "char" if text else {"float64": "double"}.get(str(values.dtype), "uint64")
            file.create_dataset(name, data=codes.T).attrs["MATLAB_class"] = np.bytes_(kind)
    with open(path, "r+b") as file:
        text = b"MATLAB 7.3 MAT-file, Platform: GLNXA64, HDF5 schema 1.00 ."
        file.write(text.ljust(116) + bytes(8) + b"\x00\x02IM")
