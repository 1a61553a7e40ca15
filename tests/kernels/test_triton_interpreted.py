"""test_triton.py in Triton's interpreter, where there is no CUDA device.

The interpreter is chosen by an environment variable when triton is first imported, and then holds
for the whole process: so the tests run in a separate process, and this one never imports
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
        process = tuple(map(int, version("triton").split(".")[:2]))
    except PackageNotFoundError:
        return "triton is not installed"
    old = "the interpreter of triton before 3.9 does not work with NumPy from 2.4 on"
    return old if process < (3, 9) else ""


@pytest.mark.skipif(bool(interpreter_absence()), reason=interpreter_absence())
@pytest.mark.skipif(cuda.count() > 0, reason="test_triton.py runs on the CUDA device")
def test_in_the_interpreter(tmp_path):
    environment = {**os.environ, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
    for key in list(environment):
        if key.startswith("PYTEST_"):  # set by this run for its workers
            del environment[key]
    report = tmp_path / "report.xml"
    options = ["-p", "no:cacheprovider", f"--basetemp={tmp_path / 'inner'}", f"--junitxml={report}"]
    process = subprocess.run(
        [sys.executable, "-m", "pytest", *options, str(FILE)],
        env=environment,
        capture_output=True,
        text=True,
        cwd=FILE.parents[2],
        check=False,
    )
    said = f"exit {process.returncode}: {process.stdout[-6000:]}{process.stderr[-2000:]}"
    assert process.returncode == 0, said
    (suite,) = ElementTree.parse(report).getroot()
    assert int(suite.attrib["tests"]) >= FILE.read_text().count("\ndef test_")
    assert suite.attrib["skipped"] == "0", said
