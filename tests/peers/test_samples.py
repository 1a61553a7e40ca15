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
)
ENCODER_STEP = 2 * np.pi / 2**20


def load(path: Path) -> dict[str, np.ndarray]:
    """Every array of a sample file by name; a .npy's array is named like the file."""
    if path.suffix == ".npy":
        return {path.name: np.load(path)}
    if path.suffix == ".npz":
        with np.load(path) as archive:
            return dict(archive)
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
        error = np.abs(getattr(reached, part) - reach[f"reference/{part}"])
        assert error.max() <= tolerance, part


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
    tolerance = 1.01 * ENCODER_STEP if file.startswith("recorded") else 1e-7
    for name, array in here.items():
        assert array.dtype == anew[name].dtype
        if array.dtype.kind == "f":
            np.testing.assert_allclose(anew[name], array, rtol=1e-6, atol=tolerance)
        else:
            assert array.tolist() == anew[name].tolist()
    if file.endswith(".h5"):
        with h5py.File(samples / file) as one, h5py.File(made_anew / file) as other:
            assert dict(one.attrs) == dict(other.attrs)
            for name in here:
                assert dict(one[name].attrs) == dict(other[name].attrs)
