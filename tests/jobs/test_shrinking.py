"""An input that another program cuts short during a run is an error, and OUT is as it was."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from trajcli.kernels import native

ROOT = str(Path(__file__).resolve().parents[2])
CODE = """
import os, sys
from pathlib import Path
from trajcli.errors import Report, TrajcliError
from trajcli.jobs.request import Request
from trajcli.jobs.run import run

def cut(done, total):
    os.truncate("actions.npy", int(sys.argv[1]))

request = Request(sources=["actions.npy"], out=Path("out.h5"), start="zero", dt="1",
                  backend=sys.argv[2], mode=sys.argv[3], memory=1 << 20)
try:
    run(request, report=Report(cut))
except TrajcliError as error:
    print(error)
    sys.exit(error.exit_code)
"""


@pytest.mark.skipif(bool(native.absence()), reason=native.absence())
@pytest.mark.parametrize(
    ("left", "backend", "mode"),
    [
        (5000, "native", "jerk"),
        (128 + 1000 * 300 * 8 - 9, "native", "central"),
        (4096 * 300 + 7, "torch", "jerk"),
    ],
)
def test_a_file_that_is_cut_short_is_reported(tmp_path, left, backend, mode):
    np.save(tmp_path / "actions.npy", np.ones((1000, 300, 2), "f4"))
    run = subprocess.run(
        [sys.executable, "-c", CODE, str(left), backend, mode],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": ROOT},
    )
    assert run.returncode == 2, (run.returncode, run.stdout, run.stderr)
    assert "actions.npy: became shorter while it was read" in run.stdout
    assert str(left) in run.stdout
    assert sorted(p.name for p in tmp_path.iterdir()) == ["actions.npy"]


VIEWS = """
import os, sys
from trajcli.cli import main
from trajcli.files.file_bytes import FileBytes

read = FileBytes.read_rows

def change(*arguments):
    values = read(*arguments)
    {change}
    return values

FileBytes.read_rows = change
sys.exit(main(sys.argv[1:]))
"""
CHANGES = {
    "became shorter": 'os.truncate("motion.npy", 5000)',
    "changed": 'os.utime("motion.npy", (1, 1))',
}
COMMANDS = (
    "check motion.npy:",
    "score motion.npy: --rate 50",
    "inspect motion.npy: --full",
    "diff motion.npy other.npy",
    "export motion.npy: -o out.h5",
)


@pytest.mark.skipif(bool(native.absence()), reason=native.absence())
@pytest.mark.parametrize(
    ("line", "change"), [(line, [*CHANGES][k % 2]) for k, line in enumerate(COMMANDS)]
)
def test_a_file_that_changes_while_it_is_looked_at_is_reported(tmp_path, line, change):
    """Views report it, too; reading a mapped page that is gone would end the process."""
    for name in ("motion", "other"):
        np.save(tmp_path / f"{name}.npy", np.ones((1000, 300, 2), "f4"))
    run = subprocess.run(
        [sys.executable, "-c", VIEWS.replace("{change}", CHANGES[change]), *line.split()],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": ROOT},
    )
    assert run.returncode == 2, (run.returncode, run.stdout, run.stderr)
    assert f"motion.npy: {change} while it was read" in run.stderr
    assert not list(tmp_path.glob("*out*"))
