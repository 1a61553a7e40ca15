"""What the Triton kernels compile to for the oldest cards and for large ones, without a device."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from trajcli.kernels.choose import triton_absence

pytestmark = [
    pytest.mark.skipif(bool(triton_absence()), reason=triton_absence()),
    pytest.mark.skipif(
        not triton_absence() and find_spec("triton.backends.nvidia") is None,
        reason="this triton has no NVIDIA backend",
    ),
]
CAPABILITIES = ["7.5", "9.0"]


MOST = {"acceleration": (55, 9), "jerk zoh": (55, 16)}
"""Instructions per action, and those of the float64 pipe: at 1/64 of the rate of float32, more than
about 10 keep a card's memory waiting."""
MOST_OF_TILES = {"forward": 120, "adjoint": 140}
"""Instructions for each row of a band that is computed in tiles."""
MOST_REGISTERS = 100


def test_kernels_spill_nothing_and_compute_little_in_float64(tmp_path: Path) -> None:
    """One test, as workers that share several would each compile all."""
    script = Path(__file__).with_name("compile_triton.py")
    path = os.pathsep.join([str(script.parents[1]), *sys.path])
    process = subprocess.run(
        [sys.executable, str(script), *CAPABILITIES],
        env={**os.environ, "TRITON_CACHE_DIR": str(tmp_path), "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode == 0, process.stderr[-4000:]
    lines = map(json.loads, process.stdout.splitlines())
    report = dict(zip([*CAPABILITIES, "variants"], lines, strict=True))
    for capability in CAPABILITIES:
        rows = report[capability]
        jobs = 11 if capability == CAPABILITIES[-1] else 1
        assert len(rows) >= 2 * jobs  # forward and adjoint, goal ends included
        assert not [row for row in rows if row["spilled"] > 64]
    forward = [row for row in report["9.0"] if row["job"] in MOST and row["kernel"] == "forward"]
    assert {row["job"] for row in forward} == MOST.keys()
    for row in forward:
        instructions, float64 = MOST[row["job"]]
        assert 0 < row["instructions"] < instructions, row
        assert 0 < row["float64"] < float64 + 0.05, row
        assert row["registers"] <= MOST_REGISTERS, row
    tiles = [row for row in report["9.0"] if row["job"] in ("central", "bspline 5")]
    assert [row["kernel"] for row in tiles] == ["forward", "adjoint"] * 2
    for row in tiles:
        assert 0 < row["instructions"] < MOST_OF_TILES[row["kernel"]], row
        assert row["registers"] <= MOST_REGISTERS, row
    assert report["variants"] == 0, "blocks of other sizes compile anew"
