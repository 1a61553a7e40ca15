"""The sample files: what sample_data/README.md says of them, and Ruckig as a second opinion."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

import trajcli

DATA = (
    "reach.h5",
    "accelerations.npy",
    "start.npy",
    "control_points.npz",
    "recorded.h5",
    "recorded_faulty.h5",
    "log.csv",
    "demos.hdf5",
)
ENCODER_STEP = 2 * np.pi / 2**20


def load(path: Path) -> dict[str, np.ndarray]:
    """Every array of a sample file by name; a .npy's array is named like the file."""
    if path.suffix == ".npy":
        return {path.name: np.load(path)}
    if path.suffix == ".npz":
        with np.load(path) as archive:
            return dict(archive)
    if path.suffix == ".csv":
        columns = np.genfromtxt(path, delimiter=",", names=True, deletechars="")
        return {name: columns[name] for name in columns.dtype.names}
    return {name: dataset[()] for name, dataset in datasets(path).items()}


def datasets(path: Path) -> dict[str, Any]:
    arrays: dict[str, Any] = {}

    def visit(name: str, thing: Any) -> None:
        if isinstance(thing, h5py.Dataset):
            arrays[name] = thing

    h5py.File(path).visititems(visit)
    return arrays


def test_jerk_with_zero_order_hold_lands_on_the_positions_of_ruckig(samples: Path) -> None:
    reach = load(samples / "reach.h5")
    with h5py.File(samples / "reach.h5") as file:
        options = dict(file.attrs)
    assert options == {"mode": "jerk", "scheme": "zoh"}
    parts = ("position", "velocity", "acceleration")
    start = trajcli.State(*(reach[f"start/{part}"] for part in parts))
    reached = trajcli.integrate(reach["actions"], start, reach["dt"], **options)
    for part, tolerance in zip(parts, (1e-11, 1e-11, 1e-10), strict=True):
        assert np.abs(getattr(reached, part) - reach[f"reference/{part}"]).max() <= tolerance, part


def test_the_faulty_recording_repeats_two_rows_and_is_refused(samples: Path) -> None:
    faulty = load(samples / "recorded_faulty.h5")
    gaps = np.diff(faulty["times"])
    assert gaps.min() == 0
    repeats = np.flatnonzero(gaps == 0) + 1
    assert repeats.tolist() == [120, 250]
    assert np.array_equal(faulty["position"][repeats], faulty["position"][repeats - 1])
    good = load(samples / "recorded.h5")
    assert np.array_equal(np.delete(faulty["times"], repeats), good["times"][:298])
    assert np.array_equal(np.delete(faulty["position"], repeats, 0), good["position"][:298])
    with pytest.raises(trajcli.InputError, match="row 120"):
        trajcli.differentiate(faulty["position"], method="central", times=faulty["times"])


def test_the_log_follows_its_commands_late_with_one_joint_below(samples: Path) -> None:
    log = load(samples / "log.csv")
    time = log["time"] - log["time"][0]
    assert len(time) == 600
    for joint in range(1, 8):
        commanded, measured = (log[f"{x}/panda_joint{joint}"] for x in ("commanded", "measured"))
        for values in (commanded, measured):  # at rest at both ends
            assert np.ptp(values[:25]) == np.ptp(values[-25:]) == 0
        late = np.interp(time - 0.03, time, commanded) - 0.004 * (joint == 4)
        np.testing.assert_allclose(measured, late, atol=1e-4)


def test_demonstrations_follow_their_actions_and_one_reading_is_off(samples: Path) -> None:
    demos = load(samples / "demos.hdf5")
    rows = [len(demos[f"data/demo_{k}/actions"]) for k in range(8)]
    assert (min(rows), max(rows), len(demos)) == (94, 131, 24)
    for k in range(8):
        actions, joints = (
            demos[f"data/demo_{k}/actions"],
            demos[f"data/demo_{k}/obs/robot0_joint_pos"],
        )
        late = 0.5 * (actions[:-2, :7] + actions[1:-1, :7])  # 1.5 rows
        off = np.abs(joints[2:] - late) > 0.02
        assert np.argwhere(off).tolist() == ([[len(joints) // 2 - 2, 2]] if k == 5 else [])
        assert np.unique(actions[:, 7]).tolist() == [-1, 1]
        closed = demos[f"data/demo_{k}/obs/robot0_gripper_qpos"][:, 0] > 0
        assert np.array_equal(closed, actions[:, 7] > 0)


@pytest.fixture(scope="module")
def made_anew(samples: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder as the script writes it."""
    pytest.importorskip("ruckig")
    folder = tmp_path_factory.mktemp("samples")
    script = samples / "make_samples.py"
    subprocess.run([sys.executable, "-W", "error", str(script), str(folder)], check=True)
    return folder


@pytest.mark.parametrize("file", DATA)
def test_the_script_makes_the_sample_that_is_here(
    samples: Path, made_anew: Path, file: str
) -> None:
    assert (made_anew / "limits.toml").read_text() == (samples / "limits.toml").read_text()
    here, anew = load(samples / file), load(made_anew / file)
    assert here.keys() == anew.keys()
    # Other processors round otherwise; a reading may then fall on the next encoder step.
    tolerance = 1.01 * ENCODER_STEP if file.startswith(("recorded", "log")) else 1e-7
    for name, array in here.items():
        assert array.dtype == anew[name].dtype
        if array.dtype.kind == "f":
            np.testing.assert_allclose(anew[name], array, rtol=1e-6, atol=tolerance)
        else:
            assert array.tolist() == anew[name].tolist()
    if file.endswith(("h5", "hdf5")):
        with h5py.File(samples / file) as one, h5py.File(made_anew / file) as other:
            assert dict(one.attrs) == dict(other.attrs)
            for name in here:
                assert dict(one[name].attrs) == dict(other[name].attrs)
