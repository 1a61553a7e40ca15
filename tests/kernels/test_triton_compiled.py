"""What the Triton kernels compile to for compute capability 9.0, with no device at hand."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from trajcli.kernels import triton_ops


def toolchain_absence() -> str:
    """Why nothing can be compiled here; empty where it can."""
    if triton_ops.absence():
        return triton_ops.absence()
    if find_spec("triton.backends.nvidia") is None:
        return "this triton has no NVIDIA backend"
    return ""


pytestmark = pytest.mark.skipif(bool(toolchain_absence()), reason=toolchain_absence())


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    script = Path(__file__).with_name("compile_for_hopper.py")
    environment = {
        **os.environ,
        "TRITON_CACHE_DIR": str(tmp_path_factory.mktemp("triton")),
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    environment.pop("TRITON_INTERPRET", None)
    found = subprocess.run(
        [sys.executable, str(script)], env=environment, capture_output=True, text=True, check=False
    )
    assert found.returncode == 0, found.stderr[-4000:]
    rows: list[dict[str, Any]] = json.loads(found.stdout)
    return rows


def test_no_kernel_spills_registers(report):
    assert {row["kernel"] for row in report} == {
        *("forward", "backward", "carried", "spans", "band", "band_adjoint"),
    }
    spilling = [(row["job"], row["kernel"]) for row in report if row["spilled"]]
    assert not spilling


def test_aligned_rows_are_loaded_and_stored_16_bytes_at_a_time(report):
    aligned = [row for row in report if row["job"][2][2] == 32]
    assert {row["kernel"] for row in aligned} == {"forward", "backward", "band", "band_adjoint"}
    for row in aligned:
        assert row["loads"] == [16], row
        assert row["stores"] == [16], row
