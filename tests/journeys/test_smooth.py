"""differentiate --method smooth, from the shell."""

from __future__ import annotations

import json

import h5py
import numpy as np
import pytest

import trajcli as library

RANDOM = np.random.default_rng(7)
TIMES = np.arange(120) / 50
POSITIONS = np.sin(TIMES[:, None] * [2.0, 3.0]) + 1e-3 * RANDOM.normal(size=(4, 120, 2))
POSITIONS[2, :, 1] = 0.25
PARTS = ("position", "velocity", "acceleration", "jerk")


@pytest.fixture
def recording(folder):
    with h5py.File("in.h5", "w") as file:
        file["position"] = POSITIONS
        file["dt"] = 0.02


def test_what_was_chosen_is_said_and_written_and_repeats_the_result(trajcli, recording):
    result = trajcli("differentiate in.h5 --method smooth --json -o out.h5")
    report = json.loads(result.out)["smoothing"]
    expected = library.differentiate(POSITIONS, dt=0.02, method="smooth")
    cutoff = expected.options["bandlimit"]
    assert report["bandlimit"] == [[x.min(), x.max()] for x in (cutoff[:, 0], cutoff[[0, 1, 3], 1])]
    assert len(report["residual"]) == 2
    assert "cutoff" in result.err
    with h5py.File("out.h5") as file:
        np.testing.assert_array_equal(file["bandlimit"], cutoff)
        np.testing.assert_array_equal(file["residual"], expected.options["residual"])
        assert file["bandlimit"].attrs["units"] == "Hz"
    words = ",".join(map(repr, cutoff[0].tolist()))
    again = f"differentiate in.h5 --method smooth --episodes 0 --bandlimit {words} -o one.h5"
    assert trajcli(again).code == 0
    with h5py.File("one.h5") as file:
        for name in PARTS:
            np.testing.assert_array_equal(file[name][0], getattr(expected, name)[0])


def test_shards_and_lengths_of_their_own_have_the_same_bits(trajcli, folder):
    with h5py.File("in.h5", "w") as file:
        for k, rows in enumerate((120, 90, 120)):
            file[f"data/demo_{k}/position"] = POSITIONS[k, :rows]
    line = "differentiate in.h5:data/*/position --dt 0.02 --method smooth --overwrite"
    for more in ("--robust", ""):
        assert trajcli(f"{line} -o out.h5 {more}").code == 0
        for shard in range(2):
            assert trajcli(f"{line} -o parts.h5 --shard {shard}/2 {more}").code == 0
        assert trajcli("merge parts.h5 --overwrite").code == 0
        assert trajcli("diff out.h5 parts.h5").code == 0
        with h5py.File("out.h5") as whole, h5py.File("parts.h5") as merged:
            assert whole.attrs.get("robust", 0) == merged.attrs.get("robust", 0) == bool(more)
    with h5py.File("out.h5") as file:
        assert file["data/demo_1/bandlimit"].shape == (2,)
        expected = library.differentiate(POSITIONS[1, :90], dt=0.02, method="smooth")
        np.testing.assert_array_equal(file["data/demo_1/jerk"], expected.jerk[0])


def test_outliers_and_missing_rows_are_taken_from_the_shell(trajcli, folder):
    rows = POSITIONS[0].copy()
    rows[50, 0], rows[70:75, 1] = 9.0, np.nan
    np.save("in.npy", rows)
    line = "differentiate in.npy --dt 0.02 --method smooth --robust -o out.h5"
    assert trajcli(line).code == 2
    result = trajcli(f"{line} --allow-nonfinite")
    assert result.code == 0
    assert "1 row with less weight" in result.out
    with h5py.File("out.h5") as file:
        assert np.isfinite(file["jerk"]).all()
        assert abs(file["position"][0] - np.sin(TIMES[:, None] * [2.0, 3.0])).max() < 0.01


@pytest.mark.parametrize(
    ("words", "factor"),
    [("--units deg", np.pi / 180), ("--units rad,mm", np.array([1.0, 1e-3])), ("", 1.0)],
)
def test_noise_is_in_the_unit_of_the_positions(trajcli, recording, words, factor):
    line = f"differentiate in.h5 --noise 0.02 {words} -o out.h5"
    assert trajcli(line).code == 0
    with h5py.File("out.h5") as file:
        residual = file["residual"][[0, 1, 3]]
        np.testing.assert_allclose(residual, 0.02 * factor + 0.0 * residual, rtol=1e-4)


def test_rows_in_long_gaps_are_flagged(trajcli, folder):
    rows = POSITIONS[0].copy()
    rows[10, 0] = rows[60:90, 1] = rows[119, 1] = np.nan
    np.savez("in.npz", position=rows[None], dt=0.02)
    assert trajcli("differentiate in.npz --allow-nonfinite --bandlimit 3 -o out.h5").code == 0
    with h5py.File("out.h5") as file:
        flagged = np.argwhere(file["guessed"][0])
        np.testing.assert_array_equal(file["recorded_position"][0], rows)
    np.testing.assert_array_equal(flagged, [[row, 1] for row in range(60, 90)])


def test_one_quantity_goes_into_an_npy_file(trajcli, recording):
    assert trajcli("differentiate in.h5 --write velocity -o out.npy").code == 0
    expected = library.differentiate(POSITIONS, dt=0.02)
    np.testing.assert_array_equal(np.load("out.npy"), expected.velocity)


def test_resample_writes_the_spline_itself(trajcli, recording):
    assert trajcli("differentiate in.h5 --method smooth -o out.h5").code == 0
    assert trajcli("resample out.h5 --to 200 -o fine.h5").code == 0
    smooth = library.differentiate(POSITIONS, dt=0.02, method="smooth")
    expected = library.resample(smooth, rate=200.0)
    with h5py.File("fine.h5") as file:
        for name in PARTS:
            np.testing.assert_allclose(file[name], getattr(expected, name), atol=1e-8)


@pytest.mark.parametrize(
    ("words", "where"),
    [
        ("--bandlimit 3 --window 5", "--bandlimit"),
        ("--method smooth --bandlimit x", "--bandlimit"),
        ("--method smooth --noise 0", "--noise"),
        ("--method smooth --window 5", "--window"),
    ],
)
def test_options_of_another_method_are_named(trajcli, recording, words, where):
    result = trajcli(f"differentiate in.h5 {words} -o out.h5")
    assert result.code == 2
    assert where in result.err
