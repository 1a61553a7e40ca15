"""Real launchers give every process a share of its own, and all of them together are all."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

SHOW = """
import os, sys
from trajcli.errors import TrajcliError
from trajcli.jobs.share import find_share
number = int(sys.argv[1]) if len(sys.argv) > 1 else None
try:
    share = find_share(None, number, True, os.environ)
    line = f"{share.index} {share.number} {share.local} {share.tasks}"
except TrajcliError as error:
    line = f"refused: {error.faults[0].what}"
os.write(1, (line + chr(10)).encode())
"""


def show(folder: Path) -> list[str]:
    """A command that prints its share, in a folder of its own."""
    (folder / "show.py").write_text(SHOW)
    return [sys.executable, str(folder / "show.py")]


def shares(done: subprocess.CompletedProcess[str] | str) -> list[tuple[int, ...]]:
    """The shares that processes printed."""
    text = done if isinstance(done, str) else done.stdout
    return sorted(tuple(map(int, line.split())) for line in text.splitlines())


def test_torchrun(shell, folder):
    command = ("--standalone", "--no-python", "--nproc-per-node", "2", *show(folder))
    assert shares(shell("torchrun", *command)) == [(0, 2, 0, 1), (1, 2, 1, 1)]


def test_open_mpi(mpirun, folder):
    assert shares(mpirun("-n", "3", *show(folder))) == [(i, 3, i, 1) for i in range(3)]


def test_mpich(hydra, folder):
    assert shares(hydra("-n", "3", *show(folder))) == [(i, 3, i, 1) for i in range(3)]


def in_slurm(slurm, folder, command, *options):
    """What the tasks of a batch job print."""
    (folder / "job.sh").write_text("#!/bin/sh\n" + command)
    job = slurm.submit(folder, "-n1", "-o", "out-%A-%a", "--open-mode=append", *options, "job.sh")
    assert set(slurm.wait(job).values()) == {"COMPLETED"}
    return "".join(path.read_text() for path in sorted(folder.glob(f"out-{job}-*")))


def test_an_array(slurm, folder):
    line = " ".join(show(folder))
    for listed, count in (("0-3", 4), ("1-3", 3), ("0-30:10", 4), ("5", 1)):
        found = shares(in_slurm(slurm, folder, line, f"--array={listed}"))
        assert found == [(i, count, i, 1) for i in range(count)], listed


def test_an_array_with_holes_is_refused_unless_the_number_of_shares_is_given(slurm, folder):
    line = " ".join(show(folder))
    without = in_slurm(slurm, folder, line, "--array=1,2,6").splitlines()
    assert without == ["refused: an array with holes does not say which share this is"] * 3
    found = shares(in_slurm(slurm, folder, f"{line} 8", "--array=1,2,6"))
    assert found == [(i, 8, i, 1) for i in (1, 2, 6)]


def test_a_step_and_what_is_none(slurm, folder):
    line = " ".join(show(folder))
    text = in_slurm(slurm, folder, f"{line}; srun {line}", "-n2")
    refused, *rest = text.splitlines()
    assert refused == "refused: no launcher is to be seen"
    assert shares("\n".join(rest)) == [(0, 2, 0, 1), (1, 2, 1, 1)]


def test_an_array_of_steps(slurm, folder):
    line = " ".join(show(folder))
    found = shares(in_slurm(slurm, folder, f"srun {line}", "-n2", "--array=0-2"))
    assert found == [(i, 6, i % 2, 2) for i in range(6)]


def test_an_array_of_mpiruns(slurm, mpirun, folder):
    line = " ".join(mpirun("-n", "2", *show(folder)).args)
    allowed = "OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1"
    command = f"{allowed} {line}"
    found = shares(in_slurm(slurm, folder, command, "-n2", "--array=0-1"))
    assert found == [(i, 4, i % 2, 2) for i in range(4)]
