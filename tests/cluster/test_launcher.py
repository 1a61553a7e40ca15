"""A process is a shard by what --shard says, or by its launcher's variables."""

from __future__ import annotations

import pytest

from trajcli.errors import UsageError
from trajcli.jobs.launcher import parse_shard
from trajcli.jobs.shards import Shard

TORCHRUN = {"RANK": "3", "WORLD_SIZE": "8", "LOCAL_RANK": "1"}
OPEN_MPI = {
    "OMPI_COMM_WORLD_RANK": "5",
    "OMPI_COMM_WORLD_SIZE": "6",
    "OMPI_COMM_WORLD_LOCAL_RANK": "2",
}
MPICH = {"PMI_RANK": "1", "PMI_SIZE": "3", "MPI_LOCALRANKID": "0"}
BATCH = {"SLURM_JOB_ID": "77", "SLURM_PROCID": "0", "SLURM_LOCALID": "0", "SLURM_NTASKS": "4"}
"""A batch script, of four tasks that srun would start."""


def array(task: int) -> dict[str, str]:
    """As Slurm sets them in a task of an array."""
    return {**BATCH, "SLURM_ARRAY_JOB_ID": "70", "SLURM_ARRAY_TASK_ID": str(task)}


def step(rank: int, size: int, local: int, number: int = 0) -> dict[str, str]:
    """As srun sets them in a task of a step."""
    places = {"PROCID": rank, "NTASKS": size, "LOCALID": local, "STEP_ID": number}
    return {"SLURM_JOB_ID": "77", **{f"SLURM_{name}": str(value) for name, value in places.items()}}


LAUNCHED = {
    "torchrun": (TORCHRUN, Shard(3, 8, 1)),
    "torchrun without a local rank": ({"RANK": "3", "WORLD_SIZE": "8"}, Shard(3, 8, 3)),
    "srun": (step(6, 8, 2), Shard(6, 8, 2)),
    "second step of a job": (step(1, 2, 1, 5), Shard(1, 2, 1)),
    "Open MPI": (OPEN_MPI, Shard(5, 6, 2)),
    "MPICH": (MPICH, Shard(1, 3, 0)),
    "empty variables are not set": ({**MPICH, "RANK": "", "SLURM_STEP_ID": ""}, Shard(1, 3, 0)),
    "torchrun started by srun": ({**step(0, 2, 0), **TORCHRUN}, Shard(3, 8, 1)),
    "torchrun before MPI": ({**OPEN_MPI, **MPICH, **TORCHRUN}, Shard(3, 8, 1)),
    "Open MPI before MPICH": ({**MPICH, **OPEN_MPI}, Shard(5, 6, 2)),
    "srun that speaks PMI": (
        {**step(1, 3, 1), "PMI_RANK": "1", "PMI_SIZE": "3"},
        Shard(1, 3, 1),
    ),
    "mpirun in a batch script": ({**BATCH, **OPEN_MPI}, Shard(5, 6, 2)),
    "mpirun whose daemon srun has started": ({**step(0, 1, 0), **OPEN_MPI}, Shard(5, 6, 2)),
}


@pytest.mark.parametrize(("environ", "expected"), LAUNCHED.values(), ids=LAUNCHED)
def test_a_launcher_says_which_shard(environ, expected):
    assert parse_shard("auto", environ) == expected
    assert parse_shard(f"auto/{expected.count}", environ) == expected


ARRAYS = {
    "array": (array(2), Shard(2, 24, 2)),
    "array of srun steps": ({**array(2), **step(1, 3, 1)}, Shard(2 * 3 + 1, 24, 1, 3)),
    "array of torchruns": ({**array(2), **TORCHRUN}, Shard(2 * 8 + 3, 24, 1, 8)),
    "array of mpiruns": ({**array(1), **OPEN_MPI}, Shard(11, 24, 2, 6)),
}


@pytest.mark.parametrize(("environ", "expected"), ARRAYS.values(), ids=ARRAYS)
def test_a_task_of_an_array_is_some_of_the_shards_that_are_stated(environ, expected):
    assert parse_shard("auto/24", environ) == expected
    with pytest.raises(UsageError, match="auto/N"):
        parse_shard("auto", environ)


WRONG = {
    "nothing": ({}, r"RANK \(torchrun\)"),
    "a batch script": (BATCH, "neither an array nor a step"),
    "the batch step by its number": ({**BATCH, "SLURM_STEP_ID": "4294967291"}, "neither"),
    "an interactive step": ({**BATCH, "SLURM_STEP_ID": "4294967290"}, "neither"),
    "half of torchrun": ({"RANK": "0"}, "WORLD_SIZE: not a whole number"),
    "the other half": ({"WORLD_SIZE": "4"}, "RANK: not a whole number"),
    "half of torchrun in a step": ({**step(0, 2, 0), "WORLD_SIZE": "4"}, "RANK: not"),
    "half of a step": ({"SLURM_STEP_ID": "0", "SLURM_PROCID": "0"}, "SLURM_NTASKS: not"),
    "half of Open MPI": ({"OMPI_COMM_WORLD_SIZE": "4"}, "OMPI_COMM_WORLD_RANK: not"),
    "half of MPICH": ({"PMI_RANK": "0"}, "PMI_SIZE: not"),
    "a word": ({**TORCHRUN, "RANK": "three"}, "RANK: not a whole number"),
    "a negative rank": ({**MPICH, "PMI_RANK": "-1"}, "PMI_RANK: not a whole number"),
    "a local rank that is none": ({**TORCHRUN, "LOCAL_RANK": "x"}, "LOCAL_RANK: not"),
    "a rank out of range": ({**TORCHRUN, "RANK": "8"}, "RANK: a rank out of range"),
    "no processes": ({"RANK": "0", "WORLD_SIZE": "0"}, "RANK: a rank out of range"),
}


@pytest.mark.parametrize(("environ", "match"), WRONG.values(), ids=WRONG)
def test_variables_that_do_not_say_a_shard_are_refused(environ, match):
    with pytest.raises(UsageError, match=match):
        parse_shard("auto", environ)


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("4", "I/N, auto or auto/N"),
        ("-1/4", "I/N, auto or auto/N"),
        ("0/0", "not a shard"),
        ("1/", "not a shard"),
        ("auto/0", "not a shard"),
        ("Auto", "not a shard"),
        ("4/4", "0/4 to 3/4"),
        ("٣/4", "not a shard"),
        ("9" * 5000 + "/2", "not a shard"),
        ("auto/16", "auto/8"),
        ("auto/12", "a multiple of 8"),
    ],
)
def test_a_shard_that_cannot_be_is_refused(text, match):
    with pytest.raises(UsageError, match=match):
        parse_shard(text, TORCHRUN)


def test_shards_that_an_array_does_not_have_are_refused():
    with pytest.raises(UsageError, match="a multiple of 3"):
        parse_shard("auto/8", {**array(1), **step(0, 3, 0)})
    with pytest.raises(UsageError, match="--array=0-7"):
        parse_shard("auto/8", array(8))
    with pytest.raises(UsageError, match="SLURM_ARRAY_TASK_ID: not a whole number"):
        parse_shard("auto/8", {**BATCH, "SLURM_ARRAY_TASK_ID": "x"})


def test_a_shard_by_its_number_needs_no_launcher():
    shard = parse_shard("2/5", {**TORCHRUN, "RANK": "x"})
    assert (shard.index, shard.count, shard.local) == (2, 5, 2)
