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
    result = trajcli(f"{command} in.h5 {COMMANDS[command]}", code=0)
    text = "SOURCE names no dataset: in.h5:/qpos is taken"
    assert text in (result.out + result.err).replace("\n", " ")
    if "-o" in COMMANDS[command]:
        named = trajcli(f"{command} in.h5:qpos {COMMANDS[command]} --overwrite", code=0)
        assert "is taken" not in named.out + named.err


@pytest.mark.parametrize("name", ["timestamps", "timestamp", "stamps", "stamp", "t"])
def test_likely_time_stamps_are_taken_and_named(trajcli, positions, name):
    times = np.cumsum(np.random.default_rng(1).uniform(0.01, 0.03, ROWS))
    write(position=positions, **{name: times})
    result = trajcli("differentiate in.h5:position --method central -o out.h5", code=0)
    assert f"in.h5:/{name}, by its name" in result.out
    with h5py.File("out.h5") as file:
        np.testing.assert_allclose(file["time"][:], times - times[0], rtol=0, atol=1e-15)


@pytest.mark.parametrize(
    "values", [np.arange(ROWS)[::-1], np.arange(ROWS + 3), np.full(ROWS, np.nan), np.ones((2, 2))]
)
def test_what_cannot_be_the_times_of_the_rows_is_not_taken(trajcli, positions, values):
    write(position=positions, timestamps=values)
    trajcli.refuses("differentiate in.h5:position --method central -o out.h5", "no time step")


@pytest.mark.parametrize("name", ["position", "qpos"])
def test_positions_are_taken_by_differentiate_alone(trajcli, positions, name):
    write(**{name: positions})
    assert f"in.h5:/{name}" in trajcli("differentiate in.h5 --rate 50 -o out.h5", code=0).out
    line = "--rate 50 --start zero --overwrite -o out.h5"
    trajcli.refuses(f"integrate in.h5 {line}", "no actions, only positions")
    trajcli(f"integrate in.h5:{name} {line}", code=0)
