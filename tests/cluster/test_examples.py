"""The scripts in sample_data/cluster, run by what they are for, give the bytes of one run."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = sorted((ROOT / "sample_data" / "cluster").iterdir())
JERK = ("--mode", "jerk", "--scheme", "zoh")
GIVEN = {"TRAJCLI_START": "zero", "TRAJCLI_DT": "0.02"}
PAGE = ROOT / "docs" / "clusters.md"
MANY = "many.h5:data/demo_*/actions"


def write_many(path: Path, lengths: range) -> None:
    """Demonstrations, each of a length of its own."""
    random = np.random.default_rng(0)
    with h5py.File(path, "w") as file:
        for number, length in enumerate(lengths):
            values = random.standard_normal((length, 3)).astype("f4")
            file[f"data/demo_{number}/actions"] = values


@pytest.fixture
def whole(shell, folder):
    """What a run in one piece writes."""

    def compute(source: str, **variables: str) -> bytes:
        shell("trajcli", "integrate", source, *JERK, "-o", "whole.h5", "--overwrite", **variables)
        return (folder / "whole.h5").read_bytes()

    return compute


@pytest.fixture
def cluster(slurm, monkeypatch):
    """Slurm, whose jobs have the start and dt of the demonstrations in their environment."""
    for name, value in GIVEN.items():
        monkeypatch.setitem(slurm.environ, name, value)
    return slurm


def log(folder: Path) -> str:
    """What all jobs wrote."""
    return "".join(path.read_text() for path in sorted(folder.glob("*.log")))


def until(true: Callable[[], bool], timeout: float = 60) -> None:
    """Wait for something to be so."""
    end = time.monotonic() + timeout
    while not true():
        assert time.monotonic() < end
        time.sleep(0.02)


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_a_script_is_short_and_in_the_documentation(script):
    assert len(script.read_text().splitlines()) < 15
    assert script.name in PAGE.read_text()


@pytest.mark.parametrize(("script", "count"), [("xargs.sh", 8), ("torchrun.sh", 2)])
def test_a_shell_script(shell, folder, whole, script, count):
    write_many(folder / "many.h5", range(20, 44))
    shell("sh", f"sample_data/cluster/{script}", MANY, "out.h5", GPUS="2", **GIVEN)
    assert len(list((folder / "out.h5.parts").iterdir())) == count
    assert (folder / "out.h5").read_bytes() == whole(MANY, **GIVEN)


@pytest.mark.parametrize("launcher", ["mpirun", "hydra"])
def test_mpi(launcher, request, shell, folder, whole):
    write_many(folder / "many.h5", range(20, 44))
    command = ("trajcli", "integrate", MANY, *JERK, "-o", "out.h5", "--shard", "auto/3")
    request.getfixturevalue(launcher)("-n", "3", *command, **GIVEN)
    shell("trajcli", "merge", "out.h5")
    assert (folder / "out.h5").read_bytes() == whole(MANY, **GIVEN)


def test_a_job_of_several_tasks(slurm, folder, whole):
    job = slurm.submit(folder, "sample_data/cluster/srun.sbatch")
    assert slurm.wait(job) == {"": "COMPLETED"}, log(folder)
    assert (folder / "out.h5").read_bytes() == whole("sample_data/reach.h5")


def test_the_page_on_slurm(slurm, shell, folder, whole):
    first, again = re.findall(r"^```slurm\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    merging = slurm.run("sh", "-ec", first, cwd=folder).stdout.split()[-1]
    assert slurm.wait(merging) == {"": "COMPLETED"}, log(folder)
    assert (folder / "out.h5").read_bytes() == whole("sample_data/reach.h5")
    for index in (1, 2, 6):
        (folder / "out.h5.parts" / f"0000{index}-of-00008.h5").unlink()
    assert "--array=1-2,6" in shell("trajcli", "status", "out.h5", check=False).stdout
    assert shell("trajcli", "merge", "out.h5", "--overwrite", check=False).returncode == 2
    job = slurm.run("sh", "-ec", again, cwd=folder).stdout.split()[-1]
    assert set(slurm.wait(job).values()) == {"COMPLETED"}, log(folder)
    shell("trajcli", "status", "out.h5")


def test_an_array_of_steps_is_submitted_again_by_its_tasks(cluster, shell, folder):
    write_many(folder / "many.h5", range(20, 60))
    line = ["trajcli", "integrate", f"'{MANY}'", *JERK, "-o out.h5 --shard auto/6"]
    command = ("-n2", "--output=steps.log", f"--wrap=srun {' '.join(line)}")
    cluster.wait(cluster.submit(folder, "--array=0,2", *command))
    state = shell("trajcli", "status", "out.h5", check=False)
    assert state.stdout.splitlines()[-1] == "--array=1", state.stdout + log(folder)
    cluster.wait(cluster.submit(folder, "--array=1", *command))
    shell("trajcli", "status", "out.h5")


@pytest.mark.parametrize("script", ["array", "srun"])
def test_a_job_that_slurm_warns_goes_on_when_it_is_queued_again(
    cluster, shell, folder, whole, script, monkeypatch
):
    monkeypatch.setitem(cluster.environ, "TRAJCLI_MEMORY", "100kB")  # many blocks take their time
    count = {"array": 400_000, "srun": 100_000}[script]  # of which a job has an eighth, or all
    np.save(folder / "many.npy", np.zeros((count, 20, 3), "f4"))
    command = (f"sample_data/cluster/{script}.sbatch", "many.npy", "out.h5")
    options = ("--array=0",) if script == "array" else ()
    job = cluster.submit(folder, *options, *command)
    until(lambda: any((folder / "out.h5.parts").glob(".*.trajcli-*/data")))
    whom = ("--batch",) if script == "array" else ()
    cluster.run("scancel", "--signal=USR1", *whom, job)  # as Slurm does before the time is up
    assert set(cluster.wait(job).values()) == {"COMPLETED"}, log(folder)
    assert "stopped by SIGUSR1" in log(folder)
    if script == "array":
        assert "missing: 1-7" in shell("trajcli", "status", "out.h5", check=False).stdout
    else:
        assert (folder / "out.h5").read_bytes() == whole("many.npy", **GIVEN)
