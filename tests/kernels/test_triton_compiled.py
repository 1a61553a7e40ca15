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


OF_TABLES = {"table_adjoint", "table_adjoint_each", "totals"}
"""Kernels that write sums, no rows."""


def test_no_kernel_spills_registers(report):
    assert {row["kernel"] for row in report} == {
        *("forward", "backward", "carried", "spans"),
        *("band", "band_adjoint", "slide", "slide_back"),
        *OF_TABLES,
    }
    spilling = [(row["job"], row["kernel"]) for row in report if row["spilled"]]
    assert not spilling


def test_aligned_rows_are_loaded_and_stored_16_bytes_at_a_time(report):
    aligned = [row for row in report if row["job"][2][2] == 32 and row["job"][3] == "one dt"]
    aligned = [row for row in aligned if row["kernel"] not in OF_TABLES]
    assert {row["kernel"] for row in aligned} == {"forward", "backward", "slide", "slide_back"}
    for row in aligned:
        if row["kernel"].startswith("slide"):  # which takes rows near the ends one by one
            assert max(row["loads"]) == max(row["stores"]) == 16, row
        else:
            assert row["loads"] == [16], row
            assert row["stores"] == [16], row


MULTIPROCESSORS, CLOCK = 132, 1.755e9
COPY = 4.3e12
"""Bytes per second, read and written, that a copy within an H200 was seen to move."""
CYCLES = MULTIPROCESSORS * CLOCK * 20 / (0.85 * COPY)
"""Of a multiprocessor for an action, where actions come and go at 85 % of that rate."""
AT_ONCE = {"instructions": 128, "float64": 64, "conversions": 16}
"""What a multiprocessor of compute capability 9.0 begins in a cycle (CUDA C++ Programming Guide,
Throughput of Native Arithmetic Instructions)."""


def test_arithmetic_leaves_the_memory_to_be_the_limit(report):
    rows = [row for row in report if row["per_action"] and not row["in_pieces"]]
    rows = [row for row in rows if row["job"][3] == "one dt" and len(row["job"]) == 4]
    rows = [row for row in rows if "scheme" not in row["job"][1]]  # zoh takes 1.2 of it at D = 6
    assert {row["kernel"] for row in rows} == {"forward", "backward", "slide", "slide_back"}
    for row in rows:
        share = {name: row["per_action"][name] / AT_ONCE[name] / CYCLES for name in AT_ONCE}
        assert max(share.values()) < 0.85, (row, share)
