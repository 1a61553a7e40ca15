"""Whatever goes wrong at a call that changes a file, OUT is the old one or complete; a sample."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[1]
EVERY = 149


@pytest.mark.skipif(not (shutil.which("gcc") or shutil.which("cc")), reason="no C compiler")
def test_every_point_of_a_sample_holds():
    path = os.pathsep.join([str(TESTS.parent), str(TESTS)])
    run = subprocess.run(
        [sys.executable, "-m", "faults.campaign", "--every", str(EVERY)],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": path, "TRAJCLI_DEBUG": "0"},
    )
    print(run.stdout)
    total = re.search(r"([0-9]+) points tried, ([0-9]+) held", run.stdout)
    assert total, run.stdout + run.stderr
    assert int(total[1]) >= 15
    assert total[1] == total[2], run.stdout
    assert run.returncode == 0, run.stderr
