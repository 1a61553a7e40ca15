"""Whatever goes wrong at a call that changes a file, OUT is the old one or complete; a sample."""

from __future__ import annotations

import os
import re
import subprocess
import sys

from faults.together import TESTS

EVERY = 149


def test_every_point_of_a_sample_holds(shim):
    path = os.pathsep.join([str(TESTS.parent), str(TESTS)])
    run = subprocess.run(
        [sys.executable, "-m", "faults.campaign", "--every", str(EVERY)],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": path, "TRAJCLI_DEBUG": "0", "LD_PRELOAD": shim},
    )
    print(run.stdout)
    total = re.search(r"([0-9]+) points tried, ([0-9]+) held", run.stdout)
    assert total, run.stdout + run.stderr
    assert int(total[1]) >= 15
    assert total[1] == total[2], run.stdout
    assert run.returncode == 0, run.stderr
