"""The launchers of clusters, for real: Slurm, torchrun, mpirun. What is absent is skipped."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from cluster.slurm import Slurm, absence
from journeys.conftest import _no_variables, trajcli  # noqa: F401

ROOT = Path(__file__).resolve().parents[2]
LAUNCHERS = ("SLURM", "SBATCH", "OMPI", "PMI", "PMIX", "TORCHELASTIC", "TRAJCLI")
PLACES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MPI_LOCALRANKID")

Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="session")
def environ(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """An environment with `trajcli` and `torchrun` on the path, run by this Python.

    The variables of a launcher that may have started these tests are not in it.
    """
    folder = tmp_path_factory.mktemp("bin")
    for name, module in (("trajcli", "trajcli"), ("torchrun", "torch.distributed.run")):
        script = folder / name
        script.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m {module} "$@"\n')
        script.chmod(0o755)
    ours = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(LAUNCHERS) and name not in PLACES
    }
    path = f"{folder}{os.pathsep}{os.environ['PATH']}"
    return {**ours, "PATH": path, "PYTHONPATH": str(ROOT)}


@pytest.fixture(scope="session")
def slurm(environ: dict[str, str]) -> Iterator[Slurm]:
    """A Slurm of one node that this process has to itself."""
    why = absence()
    if why:
        pytest.skip(why)
    folder = Path(tempfile.mkdtemp(prefix="slurm-"))  # short: the path of a socket must be
    cluster = Slurm(folder, environ)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def shell(environ: dict[str, str], folder: Path) -> Run:
    """A command in the folder of the test, with a limit on its time."""

    def run(*command: str, check: bool = True, timeout: float = 120, **more: str) -> object:
        done = subprocess.run(
            command, cwd=folder, env={**environ, **more}, capture_output=True, text=True,
            timeout=timeout,
        )  # fmt: skip
        if check:
            assert done.returncode == 0, done.stdout + done.stderr
        return done

    return run


@pytest.fixture
def mpirun(shell: Run) -> Run:
    """Open MPI's launcher, which asks whether root knows what it does."""
    command = shutil.which("mpirun.openmpi") or shutil.which("mpirun")
    version = command and shell(command, "--version", check=False)
    if not version or "open-mpi.org" not in version.stdout:
        pytest.skip("no mpirun of Open MPI (openmpi-bin)")
    allowed = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    return lambda *given, **more: shell(command, "--oversubscribe", *given, **allowed, **more)


@pytest.fixture
def hydra(shell: Run) -> Run:
    """MPICH's launcher."""
    command = shutil.which("mpiexec.hydra")
    if command is None:
        pytest.skip("no mpiexec of MPICH (mpich)")
    return lambda *given, **more: shell(command, *given, **more)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where a test works: a copy of the sample data is in it."""
    shutil.copytree(ROOT / "sample_data", tmp_path / "sample_data")
    return tmp_path
