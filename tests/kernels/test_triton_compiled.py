"""What the Triton kernels compile to for five generations of cards, with no device at hand."""

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


def compiled(folder: Path, *arguments: str) -> Any:
    """The report of compile_triton.py, in a separate process."""
    script = Path(__file__).with_name("compile_triton.py")
    environment = {
        **os.environ,
        "TRITON_CACHE_DIR": str(folder),
        "PYTHONPATH": os.pathsep.join([str(script.parents[1]), *sys.path]),
    }
    environment.pop("TRITON_INTERPRET", None)
    process = subprocess.run(
        [sys.executable, str(script), *arguments],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode == 0, process.stderr[-4000:]
    return json.loads(process.stdout)


MOST = {"acceleration": 9, "jerk zoh": 16, "central": 20, "bspline 5": 30}
"""Instructions of the float64 pipe per element: at 1/64 of the rate of float32, more than about 10
keep a card's memory waiting."""


@pytest.mark.parametrize("capability", ["7.5", "8.0", "8.9", "9.0", "12.0"])
def test_every_job_compiles_spills_nothing_and_takes_few_float64_instructions(
    tmp_path: Path, capability: str
) -> None:
    rows = compiled(tmp_path, "--json", capability)
    assert len(rows) == 2 * 9  # forward and adjoint, goal ends included
    assert not [row for row in rows if row["spilled"] > 64]
    measured = [row for row in rows if row["job"] in MOST and row["direction"] == "forward"]
    assert len(measured) >= len(MOST)
    for row in measured:
        if capability in ("8.9", "9.0") and row["dtype"] == "float32":
            assert 0 < row["float64"] < MOST[row["job"]] + 0.05, row


def test_blocks_of_other_sizes_compile_nothing_anew(tmp_path: Path) -> None:
    assert compiled(tmp_path, "--variants") == 0
