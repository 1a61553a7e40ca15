"""What is taken where nothing is named is said, and near names are offered."""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np
import pytest

ROWS = 30
COMMANDS = {
    "differentiate": "--rate 50 -o out.h5",
    "resample": "--rate 50 --to 100 -o out.h5",
    "fit": "--rate 50 --knots 6 -o out.h5",
    "score": "--rate 50",
    "check": "",
    "plot": "-o out.svg",
    "export": "-o out.csv",
}


def write(**arrays: np.ndarray) -> None:
    with h5py.File("in.h5", "w") as file:
        for name, values in arrays.items():
            file[name] = values


@pytest.fixture
def positions(folder: Path) -> np.ndarray:
    return np.sin(np.linspace(0, 3, ROWS)[:, None] + np.arange(3))


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_says_which_dataset_it_took(trajcli, positions, command):
    write(qpos=positions, force=np.ones((ROWS, 6)), count=np.arange(ROWS))
    result = trajcli(f"{command} in.h5 {COMMANDS[command]}")
    assert result.code == 0, result.err
    text = "SOURCE names no dataset: in.h5:/qpos is taken"
    assert text in (result.out + result.err).replace("\n", " ")
    if "-o" in COMMANDS[command]:
        named = trajcli(f"{command} in.h5:qpos {COMMANDS[command]} --overwrite")
        assert named.code == 0
        assert "is taken" not in named.out + named.err


@pytest.mark.parametrize("command", COMMANDS)
def test_several_candidates_are_listed_with_their_shapes(trajcli, positions, command):
    write(one=positions, other=2 * positions, mass=np.ones(2))
    result = trajcli(f"{command} in.h5 {COMMANDS[command]}")
    assert result.code == 2
    assert f"one [{ROWS}, 3], other [{ROWS}, 3], mass [2]" in result.err


@pytest.mark.parametrize("name", ["timestamps", "timestamp", "stamps", "stamp", "t"])
def test_likely_time_stamps_are_taken_and_named(trajcli, positions, name):
    times = np.cumsum(np.random.default_rng(1).uniform(0.01, 0.03, ROWS))
    write(position=positions, **{name: times})
    result = trajcli("differentiate in.h5:position --method central -o out.h5")
    assert result.code == 0, result.err
    assert f"in.h5:/{name}, by its name" in result.out
    with h5py.File("out.h5") as file:
        np.testing.assert_allclose(file["time"][:], times - times[0], rtol=0, atol=1e-15)


@pytest.mark.parametrize(
    "values", [np.arange(ROWS)[::-1], np.arange(ROWS + 3), np.full(ROWS, np.nan), np.ones((2, 2))]
)
def test_what_cannot_be_the_times_of_the_rows_is_not_taken(trajcli, positions, values):
    write(position=positions, timestamps=values)
    result = trajcli("differentiate in.h5:position --method central -o out.h5")
    assert result.code == 2
    assert "no time step" in result.err


@pytest.mark.parametrize("command", ["differentiate", "resample", "score"])
def test_a_name_near_that_of_times_is_offered(trajcli, positions, command):
    write(position=positions, tiem=np.arange(ROWS) * 0.02)
    options = COMMANDS[command].replace("--rate 50", "")
    result = trajcli(f"{command} in.h5:position {options}")
    assert result.code == 2
    assert "--times in.h5:tiem" in result.err


def test_a_wrong_name_of_times_is_the_only_fault_and_near_ones_are_named(trajcli, positions):
    write(position=positions, timestamps=np.arange(ROWS) * 0.02)
    line = "differentiate in.h5:position --method central -o out.h5"
    for option, near in (
        ("--times in.h5:timestmaps", "timestamps"),
        ("--dt in.h5:postion", "position"),
        ("--times im.h5:timestamps", "did you mean in.h5"),
    ):
        result = trajcli(f"{line} {option}")
        assert result.code == 2
        assert near in result.err
        assert "no time step" not in result.err
        assert result.err.startswith("error: ")


@pytest.mark.parametrize("name", ["position", "qpos"])
def test_positions_are_taken_by_differentiate_alone(trajcli, positions, name):
    write(**{name: positions})
    result = trajcli("differentiate in.h5 --rate 50 -o out.h5")
    assert result.code == 0, result.err
    assert f"in.h5:/{name}" in result.out
    line = "--rate 50 --start zero --overwrite -o out.h5"
    result = trajcli(f"integrate in.h5 {line}")
    assert result.code == 2
    assert "no actions, only positions" in result.err
    assert trajcli(f"integrate in.h5:{name} {line}").code == 0


def test_of_a_table_with_episodes_likely_columns_are_taken_too(trajcli, positions):
    table = np.column_stack([np.repeat([0, 1], ROWS // 2), np.tile(np.arange(ROWS // 2), 2) / 50])
    head = "episode_index,timestamp,q0,q1,q2"
    np.savetxt("in.csv", np.hstack([table, positions]), delimiter=",", header=head, comments="")
    result = trajcli("differentiate in.csv --method central -o out.h5")
    assert result.code == 0, result.err
    assert "in.csv:q" in result.out + result.err
    with h5py.File("out.h5") as file:
        assert file["position"].shape == (2, ROWS // 2, 3)
        np.testing.assert_array_equal(np.concatenate(file["position"]), positions)
