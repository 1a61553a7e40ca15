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


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    script = Path(__file__).with_name("compile_triton.py")
    environment = {
        **os.environ,
        "TRITON_CACHE_DIR": str(tmp_path_factory.mktemp("triton")),
        "PYTHONPATH": os.pathsep.join([str(script.parents[1]), *sys.path]),
    }
    environment.pop("TRITON_INTERPRET", None)
    found = subprocess.run(
        [sys.executable, str(script), "--json"],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.returncode == 0, found.stderr[-4000:]
    said: dict[str, Any] = json.loads(found.stdout)
    return said


def test_kernels_compile_for_every_generation_and_spill_nothing_to_memory(report):
    assert {row["capability"] for row in report["kernels"]} == {75, 80, 89, 90, 120}
    spilling = [row for row in report["kernels"] if row["spilled"] > 64]
    assert not spilling


MOST = {"acceleration": 9, "jerk zoh": 16, "central": 20, "bspline 5": 30}
"""Instructions of the float64 pipe for an element: with 1/64 of the rate of float32, more than
some 10 keep a card's memory waiting."""


@pytest.mark.parametrize("name", MOST)
def test_float64_instructions_are_few(report, name):
    rows = [
        row
        for row in report["kernels"]
        if row["job"] == name and row["direction"] == "forward" and row["capability"] in (89, 90)
    ]
    assert len(rows) == 2
    for row in rows:
        assert 0 < row["float64"] < MOST[name] + 0.05, row


def test_blocks_of_other_sizes_compile_nothing_anew(report):
    assert report["variants"] == 0
