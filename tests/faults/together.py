"""Run command lines at once, each in a fork of this process, and print their ends as JSON.

python -m faults.together '[{"words": ["info"], "limits": {"NOFILE": 9}}]'
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

TESTS = Path(__file__).resolve().parents[1]


class End(NamedTuple):
    """How a command ended."""

    code: int
    error: str


def together(
    *commands: Sequence[str] | str, limits: Sequence[dict[str, int]] = (), **environ: str
) -> list[End]:
    """Run commands at once in this folder; limits: of resources, by name, for each of them; of the
    address space (AS) what it may have beyond what it has."""
    words = [c.split() if isinstance(c, str) else list(c) for c in commands]
    pairs = zip(words, limits or [{}] * len(words), strict=True)
    jobs = [{"words": line, "limits": limit} for line, limit in pairs]
    path = os.pathsep.join([str(TESTS.parent), str(TESTS)])
    run = subprocess.run(
        [sys.executable, "-m", "faults.together", json.dumps(jobs)],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": path, **environ},
    )
    assert run.returncode == 0, run.stderr
    return [End(*end) for end in json.loads(run.stdout)]


def _run(job: dict[str, Any], barrier: int, error: int) -> None:
    from trajcli.cli import main, start_process

    quiet = os.open("/dev/null", os.O_WRONLY)
    os.dup2(quiet, 1)
    os.dup2(error, 2)
    for descriptor in range(3, 50):
        if descriptor != barrier:
            try:
                os.close(descriptor)
            except OSError:
                continue
    start_process()
    os.read(barrier, 1)  # ends for all of them at once
    os.close(barrier)
    for name, value in job["limits"].items():
        kind = getattr(resource, f"RLIMIT_{name}")
        if name == "AS":
            value += int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(kind, (value, resource.getrlimit(kind)[1]))
    code = main(job["words"])
    sys.stderr.flush()
    os._exit(code)


def _main() -> None:

    read, write = os.pipe()
    running = []
    for job in json.loads(sys.argv[1]):
        error = tempfile.TemporaryFile()  # noqa: SIM115
        process = os.fork()
        if not process:
            try:
                os.close(write)
                _run(job, read, error.fileno())
            finally:
                os._exit(99)
        running.append((process, error))
    os.close(write)
    ends = []
    for process, error in running:
        code = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
        error.seek(0)
        ends.append((code, error.read().decode("utf-8", "replace")))
    print(json.dumps(ends))


if __name__ == "__main__":
    _main()
