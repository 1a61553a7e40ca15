"""A folder to work in and the command as a function."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest


@dataclass
class Result:
    code: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        """What --json printed; of several files' reports the only one, where there is one."""
        document = json.loads(self.out)
        files = document.get("files", ())
        return files[0] if len(files) == 1 else document


Command = Callable[..., Result]


@pytest.fixture
def trajcli(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Command:
    """Run a command line in this process; spaces separate arguments. Words like TRAJCLI_MEMORY=1MB
    are variables of its environment. ``code`` is the exit code that it must have."""
    from trajcli.cli import main

    def command(line: str, *more: object, code: int | None = None) -> Result:
        words = [*line.split(), *map(str, more)]
        variables = [word for word in words if word.startswith("TRAJCLI_")]
        words = [word for word in words if word not in variables]
        capfd.readouterr()
        with monkeypatch.context() as environment:
            for name, _, value in (word.partition("=") for word in variables):
                environment.setenv(name, value)
            ended = main(words)
        captured = capfd.readouterr()
        assert code in (None, ended), captured.out + captured.err
        return Result(ended, captured.out, captured.err)

    return command


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with actions [5, 10, 3] and start positions [5, 3] in it."""
    monkeypatch.chdir(tmp_path)
    random = np.random.default_rng(0)
    np.save("actions.npy", random.standard_normal((5, 10, 3)).astype("f4"))
    np.save("start.npy", random.standard_normal((5, 3)).astype("f4"))
    return tmp_path


@pytest.fixture(autouse=True)
def _no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    import os

    for name in list(os.environ):
        if name.startswith("TRAJCLI_"):
            monkeypatch.delenv(name)
