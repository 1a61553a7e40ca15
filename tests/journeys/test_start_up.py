"""What must start fast imports little."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


Run = subprocess.CompletedProcess


def imported(arguments: list[str], **variables: str) -> tuple[set[str], Run]:
    """The top-level modules a command line imports, and what it printed."""
    run = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "trajcli", *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT), **variables},
    )
    lines = [line for line in run.stderr.split("\n") if line.startswith("import time:")]
    names = {line.rpartition("|")[2].strip().partition(".")[0] for line in lines}
    assert "typer" in names
    return names, run


@pytest.mark.parametrize(
    "arguments", [["--help"], ["--version"], ["integrate", "--help"], ["inspect", "--help"]]
)
def test_help_imports_neither_torch_nor_h5py_nor_numpy(arguments):
    names, run = imported(arguments)
    assert run.returncode == 0
    assert run.stdout
    assert names.isdisjoint({"torch", "h5py", "numpy", "matplotlib"})


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_imports_neither_torch_nor_h5py(shell):
    variables = {
        "_TRAJCLI_COMPLETE": f"complete_{shell}",
        "COMP_WORDS": "trajcli int",
        "COMP_CWORD": "1",
        "_TYPER_COMPLETE_ARGS": "trajcli int",
        "_TYPER_COMPLETE_FISH_ACTION": "get-args",
    }
    names, run = imported([], **variables)
    assert "integrate" in run.stdout
    assert names.isdisjoint({"torch", "h5py", "matplotlib"})


def test_inspect_and_modes_never_import_torch(samples):
    for arguments in (["modes"], ["inspect", str(samples / "reach.h5")]):
        names, run = imported(arguments)
        assert run.returncode == 0
        assert "torch" not in names


def test_importing_the_package_imports_neither_torch_nor_h5py():
    code = "import trajcli, sys; print({'torch', 'h5py', 'numpy'} & set(sys.modules))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert run.stdout == "set()\n"
