"""The compiled kernels touch no memory that is not theirs: a part of what sanitize.py runs."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from trajcli.kernels import native

HERE = Path(__file__).parent


def sanitizer() -> str:
    """Where g++ has the address sanitizer; empty without."""
    if not shutil.which("g++"):
        return ""
    command = ["g++", "-print-file-name=libasan.so"]
    found = subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
    return found if os.path.isabs(found) else ""


@pytest.mark.skipif(bool(native.absence()), reason=native.absence())
@pytest.mark.skipif(not sanitizer(), reason="it takes g++ and its address sanitizer")
def test_views_of_any_kind_are_read_within_their_bounds(tmp_path: Path) -> None:
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST_")}
    options = [f"--basetemp={tmp_path / 'inner'}", "-k", "native and 1-"]
    process = subprocess.run(
        [sys.executable, HERE / "sanitize.py", "--small", HERE / "test_memory.py", *options],
        env={**environment, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    said = process.stdout[-6000:] + process.stderr[-6000:]
    assert process.returncode == 0, said
    assert " passed" in said
