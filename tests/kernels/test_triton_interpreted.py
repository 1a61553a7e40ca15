"""test_triton.py in Triton's interpreter, where there is no CUDA device.

The interpreter is chosen by an environment variable when triton is first imported, and then holds
for the whole process: so the tests run in processes of their own, and this one never imports
triton.
"""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from xml.etree import ElementTree

import pytest

from trajcli.kernels import cuda, triton_ops

FILE = Path(__file__).with_name("test_triton.py")


def names() -> list[str]:
    """The tests of that file."""
    functions = [x for x in ast.parse(FILE.read_text()).body if isinstance(x, ast.FunctionDef)]
    return [function.name for function in functions if function.name.startswith("test_")]


def interpreter_absence() -> str:
    """Why Triton's interpreter does not run here; empty where it does."""
    found = triton_ops.absence()
    if not found and (*map(int, version("triton").split(".")[:2]),) < (3, 9):
        found = "the interpreter of triton before 3.9 does not work with NumPy from 2.4 on"
    return found


pytestmark = [
    pytest.mark.skipif(bool(interpreter_absence()), reason=interpreter_absence()),
    pytest.mark.skipif(cuda.count() > 0, reason="test_triton.py runs on the CUDA device"),
]


@pytest.mark.parametrize("share", [0, 1])
def test_in_the_interpreter(share, tmp_path):
    chosen = [f"{FILE}::{name}" for name in names()[share::2]]
    environment = {**os.environ, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
    for key in list(environment):
        if key.startswith("PYTEST_"):  # this run's own, of its workers
            del environment[key]
    report = tmp_path / "report.xml"
    own = ["-p", "no:cacheprovider", f"--basetemp={tmp_path / 'inner'}", f"--junitxml={report}"]
    found = subprocess.run(
        [sys.executable, "-m", "pytest", *own, *chosen],
        env=environment,
        capture_output=True,
        text=True,
        cwd=FILE.parents[2],
        check=False,
    )
    said = f"exit {found.returncode}: {found.stdout[-6000:]}{found.stderr[-2000:]}"
    assert found.returncode == 0, said
    (suite,) = ElementTree.parse(report).getroot()
    assert int(suite.attrib["tests"]) >= len(chosen)
    assert suite.attrib["skipped"] == "0", said
