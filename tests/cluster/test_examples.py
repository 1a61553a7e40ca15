"""The scripts of sample_data/cluster, run by what they are for, give the bytes of one piece."""

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
MANY = "many.h5:data/demo_*/actions"


def write_many(path: Path, lengths: range) -> None:
    """Demonstrations of different length: each length is done on its own, whatever its size."""
    random = np.random.default_rng(0)
    with h5py.File(path, "w") as file:
        for number, length in enumerate(lengths):
            values = random.standard_normal((length, 3)).astype("f4")
            file[f"data/demo_{number}/actions"] = values


@pytest.fixture
def whole(shell, folder):
    """What a run in one piece writes, of the sample and of many lengths."""

    def compute(source: str, **given: str) -> bytes:
        shell("trajcli", "integrate", source, *JERK, "-o", "whole.h5", "--overwrite", **given)
        return (folder / "whole.h5").read_bytes()

    return compute


@pytest.fixture
def cluster(slurm, monkeypatch):
    """Slurm, whose jobs are told start and dt of the many lengths."""
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
def test_a_script_is_short_and_in_the_readme(script):
    assert len(script.read_text().splitlines()) < 15
    assert script.name in (ROOT / "README.md").read_text()


@pytest.mark.parametrize("many", [False, True], ids=["sample", "many lengths"])
@pytest.mark.parametrize("script", ["xargs.sh", "torchrun.sh"])
def test_a_shell_script(shell, folder, whole, script, many):
    given = {"GPUS": "2", **(GIVEN if many else {})}
    write_many(folder / "many.h5", range(20, 44))
    named = (MANY, "out.h5") if many else ()
    done = shell("sh", f"sample_data/cluster/{script}", *named, **given)
    number = 8 if script == "xargs.sh" else 2
    assert {f"share {i} of {number}" for i in range(number)} <= set(
        re.findall(r"^share \d+ of \d+", done.stdout, re.MULTILINE)
    )
    source = MANY if many else "sample_data/reach.h5"
    assert (folder / "out.h5").read_bytes() == whole(source, **(GIVEN if many else {}))


def test_mpirun(mpirun, shell, folder, whole):
    write_many(folder / "many.h5", range(20, 44))
    command = ("trajcli", "integrate", MANY, *JERK, "-o", "out.h5", "--shard", "auto")
    mpirun("-n", "3", *command, **GIVEN)
    shell("trajcli", "merge", "out.h5.parts", "-o", "out.h5")
    assert (folder / "out.h5").read_bytes() == whole(MANY, **GIVEN)


def test_an_array_of_jobs_and_a_merge_that_waits_for_them(slurm, shell, folder, whole):
    job = slurm.submit(folder, "sample_data/cluster/array.sbatch")
    text = (folder / "sample_data/cluster/array.sbatch").read_text()
    line = re.search(r'--dependency=(\S+) --wrap "(.*)"', text)
    dependency = "--dependency=" + line[1].replace("JOB", job)
    merging = slurm.submit(folder, dependency, "--output=merge.log", "--wrap", line[2])
    assert slurm.wait(merging) == {"": "COMPLETED"}, log(folder)
    assert len(list(folder.glob("share-*.log"))) == 8
    assert (folder / "out.h5").read_bytes() == whole("sample_data/reach.h5")


@pytest.mark.parametrize("many", [False, True], ids=["sample", "many lengths"])
def test_a_job_of_several_tasks(slurm, folder, whole, monkeypatch, many):
    given = GIVEN if many else {}
    for name, value in given.items():
        monkeypatch.setitem(slurm.environ, name, value)
    write_many(folder / "many.h5", range(20, 44))
    named = (MANY, "out.h5") if many else ()
    job = slurm.submit(folder, "sample_data/cluster/srun.sbatch", *named)
    assert slurm.wait(job) == {"": "COMPLETED"}, log(folder)
    source = MANY if many else "sample_data/reach.h5"
    assert (folder / "out.h5").read_bytes() == whole(source, **given)


def test_what_status_prints_submits_what_is_missing(cluster, shell, folder, whole):
    write_many(folder / "many.h5", range(20, 60))
    command = ("sample_data/cluster/array.sbatch", MANY, "out.h5")
    cluster.wait(cluster.submit(folder, "--array=0-2,4-6", *command))
    state = shell("trajcli", "status", "out.h5", check=False)
    assert state.returncode == 1
    line = re.search(r"^(--array=\S+)$", state.stdout, re.MULTILINE)
    assert line[1] == "--array=3,7"
    refused = shell("trajcli", "merge", "out.h5.parts", "-o", "out.h5", check=False)
    assert refused.returncode == 2
    cluster.wait(cluster.submit(folder, line[1], *command))
    shell("trajcli", "status", "out.h5")
    shell("trajcli", "merge", "out.h5.parts", "-o", "out.h5")
    assert (folder / "out.h5").read_bytes() == whole(MANY, **GIVEN)


def test_the_readme_on_slurm(slurm, shell, folder, whole):
    text = (ROOT / "README.md").read_text()
    first, again = re.findall(r"^```slurm\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    merging = slurm.run("sh", "-ec", first, cwd=folder).stdout.split()[-1]
    assert slurm.wait(merging) == {"": "COMPLETED"}, log(folder)
    assert (folder / "out.h5").read_bytes() == whole("sample_data/reach.h5")
    part = sorted((folder / "out.h5.parts").glob("*/*.h5"))[1]
    part.unlink()  # as a share does that has not come to its end
    shell("trajcli", "status", "out.h5", check=False)
    job = slurm.run("sh", "-ec", again, cwd=folder).stdout.split()[-1]
    assert set(slurm.wait(job).values()) == {"COMPLETED"}, log(folder)
    shell("trajcli", "status", "out.h5")
    assert len(list(folder.glob("share-*.log"))) == 8


def test_an_array_of_steps_is_submitted_again_by_its_tasks(cluster, shell, folder):
    write_many(folder / "many.h5", range(20, 60))
    line = ["trajcli", "integrate", f"'{MANY}'", *JERK, "-o out.h5 --shard auto --num-shards 6"]
    command = ("-n2", "--output=steps.log", f"--wrap=srun {' '.join(line)}")
    cluster.wait(cluster.submit(folder, "--array=0,2", *command))
    state = shell("trajcli", "status", "out.h5", check=False)
    assert state.stdout.splitlines()[-1] == "--array=1", state.stdout + log(folder)
    cluster.wait(cluster.submit(folder, "--array=1", *command))
    shell("trajcli", "status", "out.h5")


LONG = range(10, 410)
"""Lengths that take seconds, a few milliseconds each."""


WAYS = [
    ("array", "warned"), ("srun", "warned"), ("array", "queued again"),
    ("array", "cancelled"), ("srun", "cancelled"),
]  # fmt: skip


@pytest.mark.parametrize(("script", "way"), WAYS)
def test_a_job_that_does_not_come_to_its_end_goes_on_later(
    cluster, shell, folder, whole, script, way
):
    write_many(folder / "many.h5", LONG)
    command = (f"sample_data/cluster/{script}.sbatch", MANY, "out.h5")
    options = ("--array=0",) if script == "array" else ()
    job = cluster.submit(folder, *options, *command)
    parts = folder / "out.h5.parts"
    begun = 4 if script == "srun" else 1
    until(lambda: log(folder).count(" dofs · ") == begun)
    until(lambda: len(list(parts.glob("*/*.json"))) > 5)
    if way == "warned":  # as Slurm does before the time is up
        whom = ("--batch",) if script == "array" else ()
        cluster.run("scancel", "--signal=USR1", *whom, job)
    elif way == "queued again":
        cluster.run("scontrol", "requeue", job)
    else:
        cluster.run("scancel", job)
    states = cluster.wait(job)
    before = len(list(parts.glob("*/*.json")))
    if way == "cancelled":
        assert set(states.values()) == {"CANCELLED"}, log(folder)  # and not queued again
        assert 5 < before < len(LONG)
    else:
        assert set(states.values()) == {"COMPLETED"}, log(folder)
        assert "done before" in log(folder)
    if way == "warned":
        assert "stopped by SIGUSR1" in log(folder)
    if way == "cancelled" or script == "array":
        again = () if script == "srun" else ("--array=0-7",)
        states = cluster.wait(cluster.submit(folder, *again, *command))
        assert set(states.values()) == {"COMPLETED"}, log(folder)
    if script == "array":
        shell("trajcli", "merge", "out.h5.parts", "-o", "out.h5")
    assert (folder / "out.h5").read_bytes() == whole(MANY, **GIVEN)
