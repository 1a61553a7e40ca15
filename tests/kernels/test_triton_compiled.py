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


CAPABILITIES = ["7.5", "8.0", "8.9", "9.0", "12.0"]


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What compile_triton.py, in a separate process, reports of each capability, and ``variants``:
    the kernels that blocks of other sizes need."""
    script = Path(__file__).with_name("compile_triton.py")
    environment = {
        **os.environ,
        "TRITON_CACHE_DIR": str(tmp_path_factory.mktemp("triton")),
        "PYTHONPATH": os.pathsep.join([str(script.parents[1]), *sys.path]),
    }
    environment.pop("TRITON_INTERPRET", None)
    process = subprocess.run(
        [sys.executable, str(script), "--json", "--variants", *CAPABILITIES],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode == 0, process.stderr[-4000:]
    lines = map(json.loads, process.stdout.splitlines())
    return dict(zip([*CAPABILITIES, "variants"], lines, strict=True))


MOST = {"acceleration": 9, "jerk zoh": 16, "central": 20, "bspline 5": 30}
"""Instructions of the float64 pipe per element: at 1/64 of the rate of float32, more than about 10
keep a card's memory waiting."""


@pytest.mark.parametrize("capability", CAPABILITIES)
def test_every_job_compiles_and_spills_nothing(reports: dict[str, Any], capability: str) -> None:
    rows = reports[capability]
    assert {row["capability"] for row in rows} == {int(capability.replace(".", ""))}
    assert len(rows) == 2 * 10  # forward and adjoint, goal ends included
    assert not [row for row in rows if row["spilled"] > 64]


@pytest.mark.parametrize("capability", ["8.9", "9.0"])
def test_an_element_takes_few_float64_instructions(
    reports: dict[str, Any], capability: str
) -> None:
    counted = {row["job"]: row["float64"] for row in reports[capability] if "float64" in row}
    assert counted.keys() == MOST.keys()
    for job, most in MOST.items():
        assert 0 < counted[job] < most + 0.05, job


def test_blocks_of_other_sizes_compile_nothing_anew(reports: dict[str, Any]) -> None:
    assert reports["variants"] == 0
