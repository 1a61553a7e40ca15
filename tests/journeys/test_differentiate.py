"""trajcli differentiate and trajcli.differentiate: one thing, apart from integrate."""

from __future__ import annotations

import json

import h5py
import numpy as np
import pytest

import trajcli as library
from trajcli.modes import METHODS

PARTS = ("position", "velocity", "acceleration", "jerk")
RANDOM = np.random.default_rng(5)
TIMES = np.cumsum(RANDOM.uniform(0.008, 0.012, (6, 200)), axis=1)
POSITIONS = np.sin(TIMES[..., None] * [1.0, 2.0, 3.0]) + 1e-4 * RANDOM.normal(size=(6, 200, 3))


@pytest.fixture
def recording(folder):
    with h5py.File("in.h5", "w") as file:
        file["position"], file["times"] = POSITIONS, TIMES


def assert_holds(path: str, expected: library.Trajectory) -> None:
    with h5py.File(path) as file:
        for name in PARTS:
            np.testing.assert_array_equal(file[name], getattr(expected, name), name)


@pytest.mark.parametrize("method", METHODS)
def test_the_command_and_the_library_give_the_same_bits(trajcli, recording, method):
    assert trajcli(f"differentiate in.h5 --method {method} -o out.h5").code == 0
    assert_holds("out.h5", library.differentiate(POSITIONS, times=TIMES, method=method))
    assert trajcli("check out.h5 --recompute").code == 0


@pytest.mark.parametrize(
    ("words", "options"),
    [
        ("--window 0.2s --degree 3", {"window": "0.2s", "degree": 3}),
        ("--window 21", {"window": 21}),
    ],
)
def test_windows_and_degrees_are_those_of_the_library(trajcli, recording, words, options):
    assert trajcli(f"differentiate in.h5 {words} -o out.h5").code == 0
    assert_holds("out.h5", library.differentiate(POSITIONS, times=TIMES, **options))


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ("", "smooth (order=3)"),
        ("--robust", "smooth (order=3 robust=True)"),
        ("--bandlimit 4", "smooth (order=3 bandlimit=4)"),
        ("--window 9", "savgol (window=9 degree=4)"),
        ("--degree 3", "savgol (window=0.3s degree=3)"),
        ("--method savgol", "savgol (window=0.3s degree=4)"),
    ],
)
def test_the_first_lines_say_the_method_which_options_choose(trajcli, recording, words, line):
    result = trajcli(f"differentiate in.h5:position {words} -o out.h5")
    assert result.code == 0, result.err
    assert line in result.out.splitlines()[:4]
    assert "start" not in result.out
    name = line.split()[0]
    options = {"": {}, "--robust": {"robust": True}, "--bandlimit 4": {"bandlimit": 4.0},
               "--window 9": {"window": 9}, "--degree 3": {"degree": 3},
               "--method savgol": {}}[words]  # fmt: skip
    assert_holds("out.h5", library.differentiate(POSITIONS, times=TIMES, method=name, **options))
    assert library.differentiate(POSITIONS, times=TIMES, **options).mode == (
        "smooth" if words == "--method savgol" else name
    )


def test_too_few_rows_for_the_spline_name_a_method_that_takes_them(trajcli, folder):
    np.savez("in.npz", position=POSITIONS[:, :3], dt=0.01)
    result = trajcli("differentiate in.npz -o out.h5 --json")
    assert result.code == 2
    (fault,) = result.document["error"]["faults"]
    assert "method backward" in fault["hint"]
    assert trajcli("differentiate in.npz --method backward -o out.h5").code == 0


def test_pieces_between_gaps_that_are_too_short_are_left_out(trajcli, folder):
    stamps = np.arange(60) * 0.01
    stamps[30:] += 1.0
    stamps[33:] += 1.0
    np.savez("in.npz", position=POSITIONS[:1, :60], times=stamps)
    result = trajcli("differentiate in.npz --max-gap 0.5 -o out.h5 --json")
    assert result.code == 0, result.err
    assert json.loads(result.out)["shape"]["trajectories"] == 2
    assert any("fewer than 4 rows" in note for note in result.document["notes"])


@pytest.mark.parametrize(
    ("command", "words"),
    [
        *(("integrate", words) for words in (
            "--start first", "--ends recording", "--mode savgol", "--window 9",
            "--method central", "--max-gap 1", "--repeated-times drop", "--wrap-dofs 0")),
        *(("differentiate", words) for words in (
            "--start zero", "--goal zero", "--mode central", "--scheme zoh", "--ends goal",
            "--frames full", "--actions delta", "--absolute 0", "--grad up.h5", "--cost jerk")),
    ],
)  # fmt: skip
def test_what_belongs_to_the_other_command_names_it(trajcli, recording, command, words):
    result = trajcli(f"{command} in.h5:position {words} -o out.h5 --json")
    assert result.code == 2
    (fault,) = result.document["error"]["faults"]
    assert words.split()[0] in fault["where"]
    other = {"integrate": "differentiate", "differentiate": "integrate"}[command]
    assert f"trajcli {other}" in fault["hint"]


@pytest.mark.parametrize(
    ("where", "options"),
    [
        ("start", {"start": "first"}),
        ("ends", {"mode": "central", "ends": "recording"}),
        ("mode", {"start": "zero", "mode": "savgol"}),
    ],
)
def test_recordings_are_refused_by_the_library_s_integrate(where, options):
    with pytest.raises(library.UsageError) as error:
        library.integrate(POSITIONS, dt=0.01, **options)
    (fault,) = error.value.faults
    assert fault.where == where
    assert "trajcli.differentiate" in fault.hint


def test_a_method_of_another_name_and_options_of_another_method_are_refused(trajcli, recording):
    for options in ({"method": "clique"}, {"method": "central", "window": 9}, {"degree": 7}):
        with pytest.raises(library.UsageError):
            library.differentiate(POSITIONS, dt=0.01, **options)
    result = trajcli("differentiate in.h5 --method centrl -o out.h5")
    assert (result.code, "did you mean central?" in result.err) == (2, True)
    assert trajcli("differentiate in.h5 --method backward --window 9 -o out.h5").code == 2


def test_actions_are_no_recorded_positions_unless_they_are_named(trajcli, folder):
    np.savez("in.npz", actions=POSITIONS, dt=0.01)
    result = trajcli("differentiate in.npz -o out.h5")
    assert result.code == 2
    assert "trajcli integrate takes actions" in result.err
    assert trajcli("differentiate in.npz:actions -o out.h5").code == 0


def test_shards_of_groups_merged_are_the_whole(trajcli, folder):
    with h5py.File("in.h5", "w") as file:
        for k, rows in enumerate((200, 150, 200, 90, 150)):
            file[f"data/demo_{k}/obs/joint_pos"] = POSITIONS[k, :rows]
    line = "differentiate in.h5:data/demo_*/obs/joint_pos --rate 100 -o"
    assert trajcli(f"{line} whole.h5").code == 0
    for shard in range(3):
        assert trajcli(f"{line} out.h5 --shard {shard}/3").code == 0
    assert trajcli("status out.h5").code == 0
    assert trajcli("merge out.h5").code == 0
    assert trajcli("diff out.h5 whole.h5").code == 0
    assert trajcli("check out.h5 --recompute").code == 0
    alone = library.differentiate(POSITIONS[3, :90], dt=0.01)
    with h5py.File("out.h5") as file:
        np.testing.assert_array_equal(file["data/demo_3/obs/jerk"], alone.jerk[0])


def test_what_is_differentiated_is_resampled_and_retimed(trajcli, recording, folder):
    (folder / "limits.toml").write_text("[velocity]\nupper = [1.0, 1.0, 1.0]\n")
    assert trajcli("differentiate in.h5 -o out.h5").code == 0
    assert trajcli("resample out.h5 --to 50 -o slow.h5").code == 0
    assert trajcli("retime out.h5 --limits limits.toml -o paced.h5").code == 0
    assert trajcli("check paced.h5 --limits limits.toml").code == 0


def test_a_signal_of_one_number_a_row_has_one_dof(trajcli, folder):
    signal = np.sin(np.arange(50) * 0.1)
    np.save("signal.npy", signal)
    np.save("column.npy", signal[:, None])
    for name in ("signal", "column"):
        assert trajcli(f"differentiate {name}.npy --rate 10 -o {name}.npz").code == 0
    with np.load("signal.npz") as one, np.load("column.npz") as other:
        np.testing.assert_array_equal(one["velocity"], other["velocity"])
        assert one["velocity"].shape == (1, 50, 1)
