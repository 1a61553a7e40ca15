"""differentiate of the command line and of the library: one thing; what its smoothing chooses."""

from __future__ import annotations

import json

import h5py
import numpy as np
import pytest
from journeys.arrays import close, read_h5, same, write_h5

import trajcli as library
from trajcli.modes import METHODS

QUANTITIES = ("position", "velocity", "acceleration", "jerk")
RANDOM = np.random.default_rng(5)
TIMES = np.cumsum(RANDOM.uniform(0.008, 0.012, (6, 200)), axis=1)
POSITIONS = np.sin(TIMES[..., None] * [1.0, 2.0, 3.0]) + 1e-4 * RANDOM.normal(size=(6, 200, 3))


@pytest.fixture
def recording(folder):
    write_h5("in.h5", position=POSITIONS, times=TIMES)


def assert_holds(path: str, expected: library.Trajectory) -> None:
    with h5py.File(path) as file:
        for name in QUANTITIES:
            same(file[name], getattr(expected, name), name)


@pytest.mark.parametrize("method", METHODS)
def test_the_command_and_the_library_give_the_same_bits(trajcli, recording, method):
    trajcli.ok(f"differentiate in.h5 --method {method} -o out.h5")
    assert_holds("out.h5", library.differentiate(POSITIONS, times=TIMES, method=method))
    trajcli.ok("check out.h5 --recompute")


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
    result = trajcli.ok(f"differentiate in.h5:position {words} -o out.h5")
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


@pytest.mark.parametrize(
    ("command", "words"),
    [
        *(("integrate", words) for words in (
            "--start first", "--ends recording", "--mode savgol", "--window 9",
            "--method central", "--max-gap 1", "--repeated-times drop", "--wrap-dofs 0")),
        *(("differentiate", words) for words in (
            "--start zero", "--goal zero", "--mode central", "--scheme zoh", "--ends goal",
            "--alignment full", "--actions delta", "--absolute 0", "--grad up.h5", "--cost jerk")),
    ],
)  # fmt: skip
def test_what_belongs_to_the_other_command_names_it(trajcli, recording, command, words):
    result = trajcli.refuses(f"{command} in.h5:position {words} -o out.h5 --json")
    (fault,) = result.document["error"]["faults"]
    assert words.split()[0] in fault["where"]
    other = {"integrate": "differentiate", "differentiate": "integrate"}[command]
    assert f"trajcli {other}" in fault["hint"]


def test_a_signal_of_one_number_a_row_has_one_dof(trajcli, folder):
    signal = np.sin(np.arange(50) * 0.1)
    np.save("signal.npy", signal)
    np.save("column.npy", signal[:, None])
    for name in ("signal", "column"):
        trajcli.ok(f"differentiate {name}.npy --rate 10 -o {name}.npz")
    with np.load("signal.npz") as one, np.load("column.npz") as other:
        same(one["velocity"], other["velocity"])
        assert one["velocity"].shape == (1, 50, 1)


DRAWN = np.random.default_rng(7)
CLOCK = np.arange(120) / 50
CURVES = np.sin(CLOCK[:, None] * [2.0, 3.0]) + 1e-3 * DRAWN.normal(size=(4, 120, 2))
CURVES[2, :, 1] = 0.25


@pytest.fixture
def curves(folder):
    write_h5("in.h5", position=CURVES, dt=0.02)


def test_what_was_chosen_is_said_and_written_and_repeats_the_result(trajcli, curves):
    result = trajcli("differentiate in.h5 --method smooth --json -o out.h5")
    report = json.loads(result.out)["smoothing"]
    expected = library.differentiate(CURVES, dt=0.02, method="smooth")
    cutoff = expected.options["bandlimit"]
    assert report["bandlimit"] == [[x.min(), x.max()] for x in (cutoff[:, 0], cutoff[[0, 1, 3], 1])]
    assert len(report["residual"]) == 2
    assert "cutoff" in result.err
    with h5py.File("out.h5") as file:
        same(file["bandlimit"], cutoff)
        same(file["residual"], expected.options["residual"])
        assert file["bandlimit"].attrs["units"] == "Hz"
    words = ",".join(map(repr, cutoff[0].tolist()))
    trajcli.ok(f"differentiate in.h5 --method smooth --episodes 0 --bandlimit {words} -o one.h5")
    with h5py.File("one.h5") as file:
        for name in QUANTITIES:
            same(file[name][0], getattr(expected, name)[0])


def test_shards_and_lengths_of_their_own_have_the_same_bits(trajcli, folder):
    demos = enumerate((120, 90, 120))
    write_h5("in.h5", {f"data/demo_{k}/position": CURVES[k, :rows] for k, rows in demos})
    line = "differentiate in.h5:data/*/position --dt 0.02 --method smooth --overwrite"
    for more in ("--robust", ""):
        trajcli.ok(f"{line} -o out.h5 {more}")
        for shard in range(2):
            trajcli.ok(f"{line} -o parts.h5 --shard {shard}/2 {more}")
        trajcli.ok("merge parts.h5 --overwrite")
        trajcli.ok("diff out.h5 parts.h5")
        with h5py.File("out.h5") as whole, h5py.File("parts.h5") as merged:
            assert whole.attrs.get("robust", 0) == merged.attrs.get("robust", 0) == bool(more)
    with h5py.File("out.h5") as file:
        assert file["data/demo_1/bandlimit"].shape == (2,)
        expected = library.differentiate(CURVES[1, :90], dt=0.02, method="smooth")
        same(file["data/demo_1/jerk"], expected.jerk[0])


def test_outliers_and_missing_rows_are_taken_from_the_shell(trajcli, folder):
    rows = CURVES[0].copy()
    rows[50, 0], rows[70:75, 1] = 9.0, np.nan
    np.save("in.npy", rows)
    line = "differentiate in.npy --dt 0.02 --method smooth --robust -o out.h5"
    trajcli.refuses(line)
    assert "1 row with less weight" in trajcli.ok(f"{line} --allow-nonfinite").out
    with h5py.File("out.h5") as file:
        assert np.isfinite(file["jerk"]).all()
        assert abs(file["position"][0] - np.sin(CLOCK[:, None] * [2.0, 3.0])).max() < 0.01


@pytest.mark.parametrize(
    ("words", "factor"),
    [("--units deg", np.pi / 180), ("--units rad,mm", np.array([1.0, 1e-3])), ("", 1.0)],
)
def test_noise_is_in_the_unit_of_the_positions(trajcli, curves, words, factor):
    trajcli.ok(f"differentiate in.h5 --noise 0.02 {words} -o out.h5")
    residual = read_h5("out.h5")["residual"][[0, 1, 3]]
    close(residual, 0.02 * factor + 0.0 * residual, rtol=1e-4)


def test_rows_in_long_gaps_are_flagged(trajcli, folder):
    rows = CURVES[0].copy()
    rows[10, 0] = rows[60:90, 1] = rows[119, 1] = np.nan
    np.savez("in.npz", position=rows[None], dt=0.02)
    trajcli.ok("differentiate in.npz --allow-nonfinite --bandlimit 3 -o out.h5")
    made = read_h5("out.h5")
    same(made["recorded_position"][0], rows)
    same(np.argwhere(made["guessed"][0]), [[row, 1] for row in range(60, 90)])


def test_one_quantity_goes_into_an_npy_file(trajcli, curves):
    trajcli.ok("differentiate in.h5 --write velocity -o out.npy")
    same(np.load("out.npy"), library.differentiate(CURVES, dt=0.02).velocity)


def test_resample_writes_the_spline_itself(trajcli, curves):
    trajcli.ok("differentiate in.h5 --method smooth -o out.h5")
    trajcli.ok("resample out.h5 --to 200 -o fine.h5")
    smooth = library.differentiate(CURVES, dt=0.02, method="smooth")
    fine = read_h5("fine.h5")
    for name, values in library.resample(smooth, rate=200.0).outputs().items():
        close(fine[name], values, atol=1e-8)


AT = np.arange(400) * 0.01
NOISY = np.random.default_rng(11)
MOTION = np.sin(2 * np.pi * np.outer(AT, [0.5, 0.8])) + 0.1
WHITE = NOISY.normal(0.0, 0.01, (400, 2))


def correlated() -> np.ndarray:
    noise = WHITE.copy()
    for row in range(1, 400):
        noise[row] += 0.7 * noise[row - 1]
    return noise


def quantised(step: float) -> np.ndarray:
    """The first dof creeps, by less than a step of the encoder in many rows."""
    rows = MOTION + WHITE
    rows[:, 0] = np.round((0.3 * np.sin(AT) + 0.1 * AT) / step) * step
    return rows


def outliers(share: float) -> np.ndarray:
    rows = MOTION + WHITE
    which = NOISY.choice(400, int(400 * share), replace=False)
    rows[which, 0] += NOISY.choice([-3.0, 3.0], len(which))
    return rows


def missing(rows: int) -> np.ndarray:
    values = MOTION + WHITE
    values[100 : 100 + rows, 0] = np.nan
    return values


KINDS = {
    "gaps": "gaps longer than half a period",
    "outliers": "would be outliers",
    "few rows": "rows are few",
    "stairs": "single steps of the encoder",
    "correlation": "is correlated",
}
DOUBTS = {
    "white noise": (lambda: MOTION + WHITE, "", None),
    "no noise": (lambda: MOTION, "", None),
    "a short gap": (lambda: missing(5), "--allow-nonfinite", None),
    "a long gap": (lambda: missing(80), "--allow-nonfinite", "gaps"),
    "some outliers": (lambda: outliers(0.02), "--robust", None),
    "many outliers": (lambda: outliers(0.2), "--robust", "outliers"),
    "30 rows": (lambda: (MOTION + WHITE)[:30], "", None),
    "29 rows": (lambda: (MOTION + WHITE)[:29, :1], "", "few rows"),
    "29 rows and a bandlimit": (lambda: (MOTION + WHITE)[:29], "--bandlimit 4", None),
    "small steps": (lambda: quantised(1e-3), "", None),
    "large steps": (lambda: quantised(0.1), "", "stairs"),
    "correlated noise": (lambda: MOTION + np.stack([correlated()[:, 0], WHITE[:, 1]], 1), "",
                         "correlation"),
    "correlated noise and a bandlimit": (lambda: MOTION + correlated(), "--bandlimit 3", None),
}  # fmt: skip


@pytest.mark.parametrize("case", DOUBTS)
def test_a_warning_names_dofs_with_a_doubtful_cutoff(trajcli, folder, case):
    make, words, kind = DOUBTS[case]
    np.savez("in.npz", position=make()[None], dt=0.01)
    notes = trajcli.ok(f"differentiate in.npz {words} -o out.h5 --json").document["notes"]
    kinds = [name for name, text in KINDS.items() if any(text in note for note in notes)]
    assert kinds == ([kind] if kind else [])
    assert all(note.startswith("dof 0: ") for note in notes)
