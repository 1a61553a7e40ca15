"""FILE:a,b and --episodes mean the same in every command that reads."""

from __future__ import annotations

import json
from pathlib import Path

import h5py
import numpy as np
import pytest

DT, COUNT, ROWS = 0.02, 7, 40
READS = {
    "integrate": "--mode clique --start zero --rate 50 -o out.h5",
    "resample": "--to 100 -o out.h5",
    "retime": "--limits limits.toml -o out.h5",
    "fit": "--knots 5 -o out.h5",
    "export": "-o out.h5",
}


def curves(count: int = COUNT) -> np.ndarray:
    phase = np.arange(count)[:, None, None] + np.arange(2)
    return np.sin(DT * np.arange(ROWS)[:, None] + phase)


@pytest.fixture
def demos(folder: Path) -> np.ndarray:
    """demos.hdf5, robomimic's, and stacked.h5, the same as one array."""
    positions = curves()
    Path("limits.toml").write_text("[velocity]\nupper = [100.0, 100.0]\n")
    with h5py.File("demos.hdf5", "w") as file:
        about = {"env_name": "Lift", "type": 1, "env_kwargs": {"control_freq": 50}}
        file.create_group("data").attrs["env_args"] = json.dumps(about)
        for k, rows in enumerate(positions):
            file[f"data/demo_{k}/actions"] = rows
            file[f"data/demo_{k}/velocity"] = np.gradient(rows, DT, axis=0)
    with h5py.File("stacked.h5", "w") as file:
        file["position"], file["velocity"] = positions, np.gradient(positions, DT, axis=1)
        share = np.linspace(0, 1, ROWS)
        warped = share + 0.1 * np.arange(COUNT)[:, None] / COUNT * share * (1 - share)
        file["times"] = DT * (ROWS - 1) * warped
        file["start_position"] = positions[:, 0]
    return positions


@pytest.mark.parametrize("command", READS)
@pytest.mark.parametrize(
    ("episodes", "numbers"), [("2:5", [2, 3, 4]), ("1,-1", [1, COUNT - 1]), ("3", [3])]
)
@pytest.mark.parametrize("source", ["demos.hdf5:actions", "stacked.h5"])
def test_episodes_are_chosen_by_number_and_range(
    trajcli, demos, command, episodes, numbers, source
):
    if source == "stacked.h5":
        source += ":position" * (command in ("integrate", "fit"))
    elif command == "retime":
        source = "demos.hdf5:velocity"
    line = f"{command} {source} {READS[command]}"
    trajcli(line.replace("out.h5", "all.h5"), code=0)
    trajcli(f"{line} --episodes {episodes}", code=0)
    with h5py.File("out.h5") as one, h5py.File("all.h5") as every:
        name = next(n for n in ("position", "actions", "velocity", source.split(":")[-1])
                    if n in every or n in every.get("data/demo_1", ()))  # fmt: skip
        for place, number in enumerate(numbers):
            if name in every:
                rows, expected = one[name][place], every[name][number]
            else:
                rows, expected = (f[f"data/demo_{number}/{name}"][:] for f in (one, every))
            length = min(len(rows), len(expected))  # padding differs
            tolerance = 1e-12 if command == "fit" else 0.0  # of least squares of several at once
            np.testing.assert_allclose(rows[:length], expected[:length], rtol=0, atol=tolerance)
            if command == "integrate":
                np.testing.assert_array_equal(rows[1:], demos[number])


def test_a_shard_of_some_episodes_is_a_part_of_them(trajcli, demos):
    line = f"integrate demos.hdf5 {READS['integrate']} --episodes 1:6"
    trajcli(line.replace("out.h5", "all.h5"), code=0)
    for k in range(2):
        trajcli(f"{line} --shard {k}/2", code=0)
    trajcli("merge out.h5", code=0)
    trajcli("diff out.h5 all.h5", code=0)
    # these random positions jump, which is not what is asked here
    checks = trajcli("check all.h5 --recompute --json", code=1).document["checks"]
    assert {x["check"] for x in checks if not x["passed"]} == {"jumps"}


TAKING = {
    **{name: READS[name] for name in READS if name != "retime"},  # of positions that are called so
    "inspect": "",
    "check": "",
    "diff": "log.csv:y,x",
    "plot": "-o out.svg",
    "score": "",
}


@pytest.mark.parametrize("command", TAKING)
def test_columns_of_a_table_are_a_dataset(trajcli, folder, command):
    values = np.column_stack([DT * np.arange(ROWS), *curves(2).transpose(2, 0, 1).reshape(4, -1)])
    np.savetxt("log.csv", values, delimiter=",", header="t,x,a,y,b", comments="")
    trajcli(f"{command} log.csv:y,x {TAKING[command]}", code=0)
    if command in ("integrate", "export"):
        with h5py.File("out.h5") as file:
            name = "position" if command == "integrate" else "data"
            np.testing.assert_array_equal(file[name][0, -ROWS:], values[:, [3, 1]])
            assert file["dof"].asstr()[:].tolist() == ["y", "x"]


def test_a_table_needs_a_column_of_trajectories(trajcli, demos):
    trajcli.refuses(
        "integrate stacked.h5 --layout table --start zero -o out.h5",
        "no column tells the trajectory of a row",
    )
