"""Run command lines at once, each in a fork of a process.

python -m faults.together '[{"words": ["info"], "limits": {"NOFILE": 9}}]'   prints their ends
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from hostile.runner import run_all, warm

TESTS = Path(__file__).resolve().parents[1]


class End(NamedTuple):
    """How a command ended."""

    code: int
    error: str


def together(
    *commands: Sequence[str] | str, limits: Sequence[dict[str, int]] = (), **environ: str
) -> list[End]:
    """Runs commands at once in this folder; limits: of resources, by name, for each of them; of the
    address space (AS) what it may have beyond what it has. Variables take another process."""
    words = [c.split() if isinstance(c, str) else list(c) for c in commands]
    pairs = zip(words, limits or [{}] * len(words), strict=True)
    jobs = [{"words": line, "limits": limit} for line, limit in pairs]
    if not environ:
        return fork(jobs)
    path = os.pathsep.join([str(TESTS.parent), str(TESTS)])
    run = subprocess.run(
        [sys.executable, "-m", "faults.together", json.dumps(jobs)],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": path, **environ},
    )
    assert run.returncode == 0, run.stderr
    return [End(*end) for end in json.loads(run.stdout)]


def fork(jobs: list[dict[str, Any]]) -> list[End]:
    from trajcli.cli import main, start_process

    warm()
    here, begin = os.getcwd(), time.monotonic() + 0.02 * len(jobs)

    def work(number: int) -> int:
        os.chdir(here)
        with open("/dev/null", "w") as quiet:
            os.dup2(quiet.fileno(), 1)
        os.closerange(3, 50)
        start_process()
        time.sleep(max(0.0, begin - time.monotonic()))  # all of them at once
        for name, value in jobs[number]["limits"].items():
            kind = getattr(resource, f"RLIMIT_{name}")
            if name == "AS":
                pages = int(Path("/proc/self/statm").read_text().split()[0])
                value += pages * resource.getpagesize()
            resource.setrlimit(kind, (value, resource.getrlimit(kind)[1]))
        return main(jobs[number]["words"])

    with tempfile.TemporaryDirectory() as folder:
        ends = sorted(run_all(range(len(jobs)), work, Path(folder), len(jobs)))
    return [End(end.code, end.text) for end in ends]


if __name__ == "__main__":
    print(json.dumps(fork(json.loads(sys.argv[1]))))
