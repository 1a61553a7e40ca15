"""test_triton.py in Triton's interpreter, where there is no CUDA device.

The interpreter is chosen by an environment variable when triton is first imported, and then holds
for the whole process: so the tests run in a process of their own, and this one never imports
triton.
"""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from xml.etree import ElementTree

import pytest

from trajcli.kernels import cuda

FILE = Path(__file__).with_name("test_triton.py")


def interpreter_absence() -> str:
    """Why Triton's interpreter does not run here; empty where it does."""
    try:
        found = tuple(map(int, version("triton").split(".")[:2]))
    except PackageNotFoundError:
        return "triton is not installed"
    old = "the interpreter of triton before 3.9 does not work with NumPy from 2.4 on"
    return old if found < (3, 9) else ""


@pytest.mark.skipif(bool(interpreter_absence()), reason=interpreter_absence())
@pytest.mark.skipif(cuda.count() > 0, reason="test_triton.py runs on the CUDA device")
def test_in_the_interpreter(tmp_path):
    environment = {**os.environ, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
    for key in list(environment):
        if key.startswith("PYTEST_"):  # this run's own, of its workers
            del environment[key]
    report = tmp_path / "report.xml"
    own = ["-p", "no:cacheprovider", f"--basetemp={tmp_path / 'inner'}", f"--junitxml={report}"]
    found = subprocess.run(
        [sys.executable, "-m", "pytest", *own, str(FILE)],
        env=environment,
        capture_output=True,
        text=True,
        cwd=FILE.parents[2],
        check=False,
    )
    said = f"exit {found.returncode}: {found.stdout[-6000:]}{found.stderr[-2000:]}"
    assert found.returncode == 0, said
    (suite,) = ElementTree.parse(report).getroot()
    assert int(suite.attrib["tests"]) >= FILE.read_text().count("\ndef test_")
    assert suite.attrib["skipped"] == "0", said
