"""test_triton.py in Triton's interpreter, where there is no CUDA device.

The interpreter is chosen by an environment variable when triton is first imported, and then holds
for the whole process: so each test runs in one of its own, and this one never imports triton.
"""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

from trajcli.kernels import triton_ops
from trajcli.kernels.choose import cuda_devices

FILE = Path(__file__).with_name("test_triton.py")


def names() -> list[str]:
    """The tests of that file that need no device."""
    functions = [x for x in ast.parse(FILE.read_text()).body if isinstance(x, ast.FunctionDef)]
    return [
        function.name
        for function in functions
        if function.name.startswith("test_")
        and "on_device" not in map(ast.unparse, function.decorator_list)
    ]


pytestmark = [
    pytest.mark.skipif(bool(triton_ops.absence()), reason=triton_ops.absence()),
    pytest.mark.skipif(cuda_devices() > 0, reason="test_triton.py runs on the CUDA device"),
]


@pytest.mark.parametrize("name", names())
def test_in_the_interpreter(name):
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    for key in list(environment):
        if key.startswith("PYTEST_"):  # this run's own, of its workers
            del environment[key]
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", f"{FILE}::{name}"]
    found = subprocess.run(
        command, env=environment, capture_output=True, text=True, cwd=FILE.parents[2], check=False
    )
    said = found.stdout[-6000:] + found.stderr[-2000:]
    assert found.returncode == 0, said
    assert "s" not in found.stdout.split("[")[0], f"skipped: {said}"
