"""Recordings are repaired alike by every command that reads them."""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np
import pytest

from trajcli import resample

STAMPS = np.concatenate([np.arange(40) * 0.1, 10 + np.arange(30) * 0.1, [13.0]])
ANGLES = 3.0 * STAMPS


@pytest.fixture
def recording(folder):
    """Two pieces of 40 and 31 rows, a stamp that comes twice, an angle that wraps, in degrees."""
    times, angles = np.insert(STAMPS, 5, STAMPS[5]), np.insert(ANGLES, 5, ANGLES[5])
    position = np.stack([np.angle(np.exp(1j * angles)), np.sin(angles)], 1)
    np.savez("in.npz", position=np.degrees(position), times=times)


REPAIR = "--max-gap 1 --repeated-times drop --wrap-dofs 0 --units deg"


@pytest.mark.parametrize(
    "line", ["differentiate in.npz --method backward", "resample in.npz --to 20"]
)
def test_a_recording_is_split_dropped_and_unwrapped(trajcli, recording, line):
    result = trajcli(f"{line} {REPAIR} -o out.h5")
    assert result.code == 0, result.err
    assert "split at gaps of more than 1 s: 2 segments" in result.err
    assert "1 row with repeated stamps dropped" in result.err
    with h5py.File("out.h5") as file:
        pieces = [file[f"in/segment_{k}"] for k in range(2)]
        for piece, rows in zip(pieces, (slice(0, 40), slice(40, 71)), strict=True):
            stamps = STAMPS[rows] - STAMPS[rows][0]
            given = np.unwrap(np.angle(np.exp(1j * ANGLES[rows])))
            if line.startswith("resample"):
                made = resample(given[:, None], "linear", rate=20, times=stamps)
                given = made.position[0, :, 0]
            np.testing.assert_allclose(piece["position"][:, 0], given, rtol=0, atol=1e-12)
            assert piece["position"].attrs["units"] == "rad"


def test_a_fit_has_a_curve_for_each_piece(trajcli, recording):
    result = trajcli(f"fit in.npz --knots 12 {REPAIR} -o out.h5")
    assert result.code == 0, result.err
    with h5py.File("out.h5") as file:
        assert file["actions"].shape[0] == 2
        assert abs(file["start/position"][1, 0] - np.angle(np.exp(1j * ANGLES[40]))) < 0.1


def test_what_is_too_short_between_gaps_is_left_out(trajcli, folder):
    np.savez("in.npz", position=np.zeros((5, 1)), times=[0.0, 0.1, 0.2, 9.0, 20.0])
    result = trajcli("resample in.npz --to 20 --max-gap 1 -o out.h5")
    assert result.code == 0, result.err
    assert "segments of fewer than 2 rows left out: 2" in result.err
    assert trajcli("resample in.npz --to 20 --max-gap 0.01 -o none.h5").code == 2


def test_a_gap_is_a_length_of_time(trajcli, recording):
    for gap in ("0", "-1", "nan"):
        result = trajcli(f"resample in.npz --to 20 --max-gap={gap} -o out.h5")
        assert (result.code, "not a gap" in result.err) == (2, True)


def test_an_export_is_repaired_too(trajcli, recording):
    assert trajcli(f"export in.npz {REPAIR} -o out.h5").code == 0
    with h5py.File("out.h5") as file:
        np.testing.assert_allclose(
            file["in/segment_1/position"][:, 0],
            np.unwrap(np.angle(np.exp(1j * ANGLES[40:]))),
            rtol=0,
            atol=1e-12,
        )


@pytest.mark.parametrize(
    "command", ["inspect", "check", "score", "plot -o fig.svg", "export -o out.csv", "diff in.npz"]
)
def test_every_command_takes_what_says_how_a_source_is_read(trajcli, folder, command):
    random = np.random.default_rng(0)
    np.savez("in.npz", position=np.cumsum(random.normal(size=(2, 30, 3)), 1))
    words, *more = command.split(" ", 1)
    line = f"{words} in.npz {' '.join(more)} --layout plain --units deg --rate 100 --dofs 0,2"
    result = trajcli(f"{line} --joints a,b --episodes 0")
    assert result.code in (0, 1), result.err
    assert "error" not in result.err, result.err
    if words == "inspect":
        assert "at 100 Hz" in result.out
        assert "deg" in result.out or "rad" in result.out


@pytest.mark.parametrize("command", ["differentiate", "resample --to 20", "export"])
def test_a_recording_that_is_split_has_one_stamp_per_row(trajcli, folder, command):
    np.savez("in.npz", position=np.zeros((5, 1)), times=[0.0, 0.1, 0.2, 9.0, 9.1, 9.2])
    words, *more = command.split(" ", 1)
    result = trajcli(f"{words} in.npz {' '.join(more)} --max-gap 1 -o out.h5")
    assert (result.code, "wrong number of time stamps" in result.err) == (2, True)


def test_segments_of_several_recordings_are_told_apart(trajcli, folder):
    np.savez("in.npz", position=np.zeros((2, 4, 1)), times=[0.0, 0.1, 9.0, 9.1])
    assert trajcli("export in.npz --max-gap 1 -o out.csv").code == 0
    names = {line.partition(",")[0] for line in Path("out.csv").read_text().splitlines()[1:]}
    assert names == {f"in/segment_{k}/trajectory_{b}" for k in range(2) for b in range(2)}
