"""A folder to work in and the command as a function."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]


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


class Command:
    """A command line of trajcli, run in this process; spaces separate arguments. Words like
    TRAJCLI_MEMORY=1MB are variables of its environment. ``code`` is the exit code it must have."""

    def __init__(self, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
        self.capfd, self.monkeypatch = capfd, monkeypatch

    def __call__(self, line: str, *more: object, code: int | None = None) -> Result:
        from trajcli.cli import main

        words = [*line.split(), *map(str, more)]
        variables = [word for word in words if word.startswith("TRAJCLI_")]
        words = [word for word in words if word not in variables]
        self.capfd.readouterr()
        with self.monkeypatch.context() as environment:
            for name, _, value in (word.partition("=") for word in variables):
                environment.setenv(name, value)
            ended = main(words)
        captured = self.capfd.readouterr()
        assert code in (None, ended), f"{line} {more}\n{captured.out}\n{captured.err}"
        return Result(ended, captured.out, captured.err)

    def repeats_and_divides(self, line: str) -> None:
        """Runs a command whole, computes it again, and in two shards to the same bytes."""
        self.ok(f"{line} -o whole.h5")
        self.ok("check whole.h5 --recompute")
        for k in range(2):
            self.ok(f"{line} -o parts.h5 --shard {k}/2")
        self.ok("merge parts.h5")
        assert Path("parts.h5").read_bytes() == Path("whole.h5").read_bytes()

    def ok(self, line: str, *more: object) -> Result:
        """Runs what must succeed."""
        return self(line, *more, code=0)

    def fails(self, line: str, *more: object) -> Result:
        """Runs what must find that the data failed."""
        return self(line, *more, code=1)

    def refuses(self, line: str, *parts: str) -> Result:
        """Runs what must be refused, in a message with these parts and with nothing written."""
        before = sorted(os.listdir())
        result = self(line, code=2)
        assert "Traceback" not in result.err
        assert sorted(os.listdir()) == before, line
        text = " ".join(result.err.split())
        for part in parts:
            assert part in result.err or part in text, f"{line}\n{part}\n{result.err}"
        return result


@pytest.fixture
def trajcli(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Command:
    return Command(capfd, monkeypatch)


def python(*words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Runs this Python in a process of its own, with trajcli to import."""
    env = {**os.environ, "PYTHONPATH": str(ROOT), **variables}
    return subprocess.run([sys.executable, *words], capture_output=True, text=True, env=env)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with actions [5, 10, 3] and start positions [5, 3] in it."""
    monkeypatch.chdir(tmp_path)
    random = np.random.default_rng(0)
    np.save("actions.npy", random.standard_normal((5, 10, 3)).astype("f4"))
    np.save("start.npy", random.standard_normal((5, 3)).astype("f4"))
    return tmp_path


@pytest.fixture
def out(trajcli: Command, samples: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An output of the sample reach.h5, alone in the current folder."""
    monkeypatch.chdir(tmp_path)
    trajcli.ok(f"integrate {samples}/reach.h5 --mode jerk --scheme zoh -o out.h5")
    return tmp_path / "out.h5"


@pytest.fixture
def with_samples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with sample_data in it and the command trajcli on the path."""
    shutil.copytree(ROOT / "sample_data", tmp_path / "sample_data")
    command = tmp_path / "bin" / "trajcli"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m trajcli "$@"\n')
    command.chmod(0o755)
    monkeypatch.setenv("PATH", f"{command.parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def figures(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The figures that would be saved, as matplotlib's own objects; none is drawn."""
    pytest.importorskip("matplotlib")
    from matplotlib.figure import Figure

    made: list[Any] = []

    def save(figure: Figure, path: Any, **_: object) -> None:
        made.append(figure)
        Path(path).touch()

    monkeypatch.setattr(Figure, "savefig", save)
    return made


@pytest.fixture(autouse=True)
def _no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith("TRAJCLI_"):
            monkeypatch.delenv(name)
