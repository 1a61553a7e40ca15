"""What the Triton kernels compile to for the oldest cards and for large ones, without a device."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from trajcli.kernels.choose import triton_absence


def toolchain_absence() -> str:
    """Why nothing can be compiled here; empty where it can."""
    if triton_absence():
        return triton_absence()
    if find_spec("triton.backends.nvidia") is None:
        return "this triton has no NVIDIA backend"
    return ""


pytestmark = pytest.mark.skipif(bool(toolchain_absence()), reason=toolchain_absence())


CAPABILITIES = ["7.5", "9.0"]


MOST = {"acceleration": (55, 9), "jerk zoh": (55, 16)}
"""Instructions per action, and those of the float64 pipe: at 1/64 of the rate of float32, more than
about 10 keep a card's memory waiting."""
MOST_OF_TILES = {"forward": 120, "adjoint": 140}
"""Instructions for each row of a band that is computed in tiles."""
MOST_REGISTERS = 100


def reports(cache: Path) -> dict[str, Any]:
    """What compile_triton.py, in a separate process, reports of each capability, of the newest
    every job; and ``variants``: the kernels that blocks of other sizes need."""
    script = Path(__file__).with_name("compile_triton.py")
    environment = {
        **os.environ,
        "TRITON_CACHE_DIR": str(cache),
        "PYTHONPATH": os.pathsep.join([str(script.parents[1]), *sys.path]),
    }
    process = subprocess.run(
        [sys.executable, str(script), "--variants", *CAPABILITIES],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode == 0, process.stderr[-4000:]
    lines = map(json.loads, process.stdout.splitlines())
    return dict(zip([*CAPABILITIES, "variants"], lines, strict=True))


def test_jobs_compile_and_spill_nothing_with_few_float64_instructions(tmp_path: Path) -> None:
    """One test, as workers that share several would each compile all."""
    report = reports(tmp_path)
    for capability in CAPABILITIES:
        rows = report[capability]
        assert {row["capability"] for row in rows} == {int(capability.replace(".", ""))}
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
