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
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from hostile.runner import run_all

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


def _run(job: dict[str, Any]) -> int:
    from trajcli.cli import main, start_process

    os.chdir(job["folder"])
    with open("/dev/null", "w") as quiet:
        os.dup2(quiet.fileno(), 1)
    os.closerange(3, 50)
    start_process()
    time.sleep(max(0.0, job["begin"] - time.monotonic()))  # all of them at once
    for name, value in job["limits"].items():
        kind = getattr(resource, f"RLIMIT_{name}")
        if name == "AS":
            value += int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(kind, (value, resource.getrlimit(kind)[1]))
    return main(job["words"])


def _main() -> None:

    import trajcli.files.hdf5_output
    import trajcli.jobs.run  # noqa: F401

    jobs = json.loads(sys.argv[1])
    begin = time.monotonic() + 0.02 * len(jobs)
    jobs = [
        {**job, "folder": os.getcwd(), "begin": begin, "number": k} for k, job in enumerate(jobs)
    ]
    with tempfile.TemporaryDirectory() as folder:
        ends = list(run_all(jobs, _run, Path(folder), len(jobs)))
    ends.sort(key=lambda end: end.job["number"])
    print(json.dumps([(end.code, end.text) for end in ends]))


if __name__ == "__main__":
    _main()
