"""The library is a guest in its caller's process: it leaves everything there as it was."""

from __future__ import annotations

import inspect
import json
import os
import subprocess
import sys
from pathlib import Path

import guest
import pytest

import trajcli
from trajcli import matrices


@pytest.fixture(scope="module")
def changes() -> dict[str, list[str]]:
    """By call, what it changed in a process of its own."""
    paths = os.pathsep.join(sys.path)
    process = subprocess.run(
        [sys.executable, "-m", "guest"],
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode == 0, process.stderr
    result: dict[str, list[str]] = json.loads(process.stdout)
    return result


def test_no_call_changes_the_process_of_its_caller(changes: dict[str, list[str]]) -> None:
    assert not [f"{name}: {line}" for name, lines in changes.items() for line in lines]


def test_every_public_function_was_called(tmp_path: Path) -> None:
    public = {name for name in trajcli.__all__ if inspect.isfunction(getattr(trajcli, name))}
    public |= {
        name
        for name, value in inspect.getmembers(matrices, inspect.isfunction)
        if value.__module__ == matrices.__name__ and name[0] != "_"
    }
    called = guest.calls(tmp_path)
    assert {name for name in public if name not in called and f"{name}.h5" not in called} == set()


def test_a_change_would_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    before = guest.surroundings()
    monkeypatch.setenv("TRAJCLI_TEST", "1")
    with open(os.devnull) as _:
        found = guest.different(before, guest.surroundings())
    assert [line.partition(":")[0] for line in found] == [
        "environment",
        "environment of C",
        "descriptors",
    ]
