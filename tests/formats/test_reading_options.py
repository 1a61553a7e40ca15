"""--columns, --stamp and --episodes mean the same in every command that reads."""

from __future__ import annotations

import json
import re
from pathlib import Path

import h5py
import numpy as np
import pytest

DT, COUNT, ROWS = 0.02, 7, 40
LIMITS = "[velocity]\nupper = [100.0, 100.0]\n"
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
    Path("limits.toml").write_text(LIMITS)
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
    assert trajcli(line.replace("out.h5", "all.h5")).code == 0
    result = trajcli(f"{line} --episodes {episodes}")
    assert result.code == 0, result.err
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


@pytest.mark.parametrize("command", ["integrate", "resample", "inspect", "score", "check"])
def test_episodes_that_there_are_not_are_refused(trajcli, demos, command):
    result = trajcli(f"{command} demos.hdf5:actions {READS.get(command, '')} --episodes 7")
    assert result.code == 2
    assert "0 to 6" in result.err


def test_a_shard_of_some_episodes_is_a_part_of_them(trajcli, demos):
    line = f"integrate demos.hdf5 {READS['integrate']} --pack --episodes 1:6"
    assert trajcli(line.replace("out.h5", "all.h5")).code == 0
    for k in range(2):
        assert trajcli(f"{line} --shard {k}/2").code == 0
    assert trajcli("merge out.h5").code == 0
    assert trajcli("diff out.h5 all.h5").code == 0
    assert trajcli("check all.h5 --recompute").code == 0


@pytest.mark.parametrize("command", [*READS, "inspect", "check", "diff", "plot", "score"])
def test_columns_of_a_table_are_what_a_dataset_of_columns_is(trajcli, folder, command):
    Path("limits.toml").write_text(LIMITS)
    values = np.column_stack([DT * np.arange(ROWS), *curves(2).transpose(2, 0, 1).reshape(4, -1)])
    np.savetxt("log.csv", values, delimiter=",", header="t,x,a,y,b", comments="")
    other = " log.csv" if command == "diff" else ""
    more = READS.get(command, "")
    more = {"plot": "-o out.svg", "retime": "--rate 50 --limits limits.toml -o out.h5"}.get(
        command, more
    )
    result = trajcli(f"{command} log.csv{other} {more} --columns y,x")
    more += " --overwrite" * ("-o" in more)
    named = trajcli(f"{command} log.csv:y,x{other and ' log.csv:y,x'} {more}")
    assert (result.code, result.err) == (named.code, named.err)
    assert re.sub(r"in [\d.]+ s.*", "", result.out) == re.sub(r"in [\d.]+ s.*", "", named.out)
    if command == "integrate":
        with h5py.File("out.h5") as file:
            np.testing.assert_array_equal(file["position"][0, 1:], values[:, [3, 1]])
    refused = trajcli(f"{command} log.csv:a{other} {more} --columns y,x")
    assert refused.code == 2
    assert "--columns" in refused.err


@pytest.mark.parametrize("command", ["integrate", "resample", "export"])
def test_a_fault_of_an_episode_that_is_not_chosen_is_none(trajcli, folder, command):
    good = [f"{0.02 * k},0,{k},{k}\n" for k in range(9)]
    bad = [f"{time},1,0,0\n" for time in (0.0, 0.02, 0.01)]
    Path("log.csv").write_text("t,episode,q0,q1\n" + "".join(good + bad))
    line = f"{command} log.csv {READS[command].replace('--rate 50', '')} --overwrite"
    line = line.replace("--start zero", "--start first")
    result = trajcli(f"{line} --episodes 0")
    assert result.code == 0, result.err
    if command != "export":
        assert result.out.startswith("log.csv:q"), result.out
        assert "more" not in result.out.split(":")[1]
        result = trajcli(f"{line} --episodes 1")
        assert result.code == 2
        assert "go back" in result.err or "goes back" in result.err


def test_a_column_of_texts_is_named_with_one_of_them(trajcli, folder):
    Path("log.csv").write_text("t,q0,q1\n0,a,1\n0.1,b,2\n")
    result = trajcli("integrate log.csv --start zero -o out.h5")
    assert result.code == 2
    assert "strings (<U1), 'a' and so on" in result.err


def test_a_table_needs_a_column_of_trajectories(trajcli, demos):
    result = trajcli("integrate stacked.h5 --layout table --start zero -o out.h5")
    assert result.code == 2
    assert "no column says of which trajectory a row is" in result.err
