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
FILES = [HERE / "test_memory.py", HERE / "test_fastest.py"]
CHOSEN = "(test_memory and native and 1-) or (test_fastest and (level or states or free))"


def sanitizer() -> str:
    """Where g++ has the address sanitizer; empty without."""
    if not shutil.which("g++"):
        return ""
    command = ["g++", "-print-file-name=libasan.so"]
    found = subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
    return found if os.path.isabs(found) else ""


@pytest.mark.skipif(bool(native.absence()), reason=native.absence())
@pytest.mark.skipif(not sanitizer(), reason="it takes g++ and its address sanitizer")
def test_memory_is_read_and_written_within_its_bounds(tmp_path: Path) -> None:
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST_")}
    options = [f"--basetemp={tmp_path / 'inner'}", "-k", CHOSEN]
    process = subprocess.run(
        [sys.executable, HERE / "sanitize.py", "--small", *FILES, *options],
        env={**environment, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    said = process.stdout[-6000:] + process.stderr[-6000:]
    assert process.returncode == 0, said
    assert " passed" in said
