"""A process finds its share of a job by what it is told, or by its launcher's variables."""

from __future__ import annotations

import pytest

from trajcli.errors import UsageError
from trajcli.jobs.share import Share, find_share

TORCHRUN = {"RANK": "3", "WORLD_SIZE": "8", "LOCAL_RANK": "1"}
OPEN_MPI = {
    "OMPI_COMM_WORLD_RANK": "5",
    "OMPI_COMM_WORLD_SIZE": "6",
    "OMPI_COMM_WORLD_LOCAL_RANK": "2",
}
MPICH = {"PMI_RANK": "1", "PMI_SIZE": "3", "MPI_LOCALRANKID": "0"}
BATCH = {"SLURM_JOB_ID": "77", "SLURM_PROCID": "0", "SLURM_LOCALID": "0", "SLURM_NTASKS": "4"}
"""A batch script, of four tasks that srun would start."""


def array(here: int, count: int, least: int, most: int, step: int = 1) -> dict[str, str]:
    """As Slurm sets them in a task of an array."""
    values = {"ID": here, "COUNT": count, "MIN": least, "MAX": most, "STEP": step}
    own = {f"SLURM_ARRAY_TASK_{name}": str(value) for name, value in values.items()}
    return {**BATCH, "SLURM_ARRAY_JOB_ID": "70", **own}


def step(rank: int, size: int, local: int, number: int = 0) -> dict[str, str]:
    """As srun sets them in a task of a step."""
    places = {"PROCID": rank, "NTASKS": size, "LOCALID": local, "STEP_ID": number}
    return {"SLURM_JOB_ID": "77", **{f"SLURM_{name}": str(each) for name, each in places.items()}}


FOUND = {
    "torchrun": (TORCHRUN, Share(3, 8, 1)),
    "torchrun without a local rank": ({"RANK": "3", "WORLD_SIZE": "8"}, Share(3, 8, 3)),
    "array": (array(2, 4, 0, 3), Share(2, 4, 2)),
    "array from 1": (array(1, 8, 1, 8), Share(0, 8, 0)),
    "array with steps": (array(20, 4, 0, 30, 10), Share(2, 4, 2)),
    "array of one": (array(5, 1, 5, 5), Share(0, 1, 0)),
    "array of an older Slurm": (
        {"SLURM_ARRAY_TASK_ID": "6", "SLURM_ARRAY_TASK_COUNT": "4", "SLURM_ARRAY_TASK_MIN": "4"},
        Share(2, 4, 2),
    ),
    "srun": (step(6, 8, 2), Share(6, 8, 2)),
    "second step of a job": (step(1, 2, 1, 5), Share(1, 2, 1)),
    "Open MPI": (OPEN_MPI, Share(5, 6, 2)),
    "MPICH": (MPICH, Share(1, 3, 0)),
    "empty variables are not set": ({**MPICH, "RANK": "", "SLURM_STEP_ID": ""}, Share(1, 3, 0)),
    "torchrun started by srun": ({**step(0, 2, 0), **TORCHRUN}, Share(3, 8, 1)),
    "torchrun before MPI": ({**OPEN_MPI, **MPICH, **TORCHRUN}, Share(3, 8, 1)),
    "Open MPI before MPICH": ({**MPICH, **OPEN_MPI}, Share(5, 6, 2)),
    "srun that speaks PMI": (
        {**step(1, 3, 1), "PMI_RANK": "1", "PMI_SIZE": "3"},
        Share(1, 3, 1),
    ),
    "mpirun in a batch script": ({**BATCH, **OPEN_MPI}, Share(5, 6, 2)),
    "mpirun whose daemon srun has started": ({**step(0, 1, 0), **OPEN_MPI}, Share(5, 6, 2)),
    "array of srun steps": (
        {**array(2, 4, 0, 3), **step(1, 3, 1)},
        Share(2 * 3 + 1, 12, 1, tasks=3),
    ),
    "array of torchruns": ({**array(2, 4, 0, 3), **TORCHRUN}, Share(2 * 8 + 3, 32, 1, tasks=8)),
    "array of mpiruns": ({**array(1, 2, 1, 2), **OPEN_MPI}, Share(5, 12, 2, tasks=6)),
}


@pytest.mark.parametrize(("environ", "want"), FOUND.values(), ids=FOUND)
def test_a_launcher_says_which_share(environ, want):
    share = find_share(None, None, True, environ)
    assert share is not None
    assert (share.index, share.number, share.local, share.tasks) == (
        want.index,
        want.number,
        want.local,
        want.tasks,
    )


SAID = {
    "torchrun": (TORCHRUN, "torchrun: RANK 3 of WORLD_SIZE 8"),
    "array": (
        array(4, 8, 1, 8),
        "Slurm array: SLURM_ARRAY_TASK_ID 4, 3 of SLURM_ARRAY_TASK_COUNT 8",
    ),
    "both": (
        {**array(1, 2, 0, 1), **step(1, 3, 1)},
        "Slurm array: SLURM_ARRAY_TASK_ID 1, 1 of SLURM_ARRAY_TASK_COUNT 2 × "
        "srun: SLURM_PROCID 1 of SLURM_NTASKS 3",
    ),
}


@pytest.mark.parametrize(("environ", "want"), SAID.values(), ids=SAID)
def test_a_share_says_where_it_is_from(environ, want):
    share = find_share(None, None, True, environ)
    assert share is not None
    assert share.why == want


@pytest.mark.parametrize("tasks", [{}, step(2, 3, 2)], ids=["array", "array of steps"])
@pytest.mark.parametrize("submitted", ["0-7", "3,7", "3-7", "7", "1,3,7"])
def test_a_task_submitted_again_does_the_share_it_did_before(submitted, tasks):
    numbers: list[int] = []
    for run in submitted.split(","):
        begin, _, end = run.partition("-")
        numbers += range(int(begin), int(end or begin) + 1)
    environ = {**array(7, len(numbers), numbers[0], numbers[-1]), **tasks}
    size = 3 if tasks else 1
    share = find_share(None, 8 * size, True, environ)
    assert share is not None
    assert (share.index, share.number) == (7 * size + size - 1, 8 * size)


@pytest.mark.parametrize("listed", [(3, 7), (3, 7, 8), (1, 4, 7), (0, 1, 3), (0, 2, 3)])
def test_every_task_of_an_array_with_holes_is_refused_and_none_does_wrong_work(listed):
    for here in listed:
        environ = array(here, len(listed), listed[0], listed[-1])
        with pytest.raises(UsageError, match="holes") as error:
            find_share(None, None, True, environ)
        assert "--num-shards N" in str(error.value)


def test_all_tasks_of_an_array_together_are_all_shares():
    places = [
        find_share(None, None, True, {**array(here, 4, 2, 11, 3), **step(rank, 5, rank)})
        for here in (2, 5, 8, 11)
        for rank in range(5)
    ]
    assert sorted(share.index for share in places if share) == list(range(20))


WRONG = {
    "nothing": ({}, "RANK, WORLD_SIZE"),
    "a batch script": (BATCH, "neither an array nor a step"),
    "the batch step by its number": ({**BATCH, "SLURM_STEP_ID": "4294967291"}, "neither"),
    "an interactive step": ({**BATCH, "SLURM_STEP_ID": "4294967290"}, "neither"),
    "half of torchrun": ({"RANK": "0"}, "WORLD_SIZE: half"),
    "the other half": ({"WORLD_SIZE": "4"}, "RANK: half"),
    "half of torchrun in a whole step": ({**step(0, 2, 0), "WORLD_SIZE": "4"}, "RANK: half"),
    "half of an array": ({**BATCH, "SLURM_ARRAY_TASK_ID": "4"}, "SLURM_ARRAY_TASK_COUNT: half"),
    "half of a step": (
        {"SLURM_STEP_ID": "0", "SLURM_PROCID": "0"},
        "SLURM_NTASKS: half",
    ),
    "half of Open MPI": ({"OMPI_COMM_WORLD_SIZE": "4"}, "OMPI_COMM_WORLD_RANK: half"),
    "half of MPICH": ({"PMI_RANK": "0"}, "PMI_SIZE: half"),
    "a word": ({**TORCHRUN, "RANK": "three"}, "RANK: not a whole number"),
    "a negative rank": ({**MPICH, "PMI_RANK": "-1"}, "PMI_RANK: not a whole number"),
    "a fraction": (array(1, 2, 0, 1) | {"SLURM_ARRAY_TASK_MIN": "0.5"}, "MIN: not a whole"),
    "a local rank that is none": ({**TORCHRUN, "LOCAL_RANK": "x"}, "LOCAL_RANK: not"),
    "a rank out of range": ({**TORCHRUN, "RANK": "8"}, "RANK: a rank out of range"),
    "no processes": ({"RANK": "0", "WORLD_SIZE": "0"}, "RANK: a rank out of range"),
}


@pytest.mark.parametrize(("environ", "match"), WRONG.values(), ids=WRONG)
def test_variables_that_do_not_say_a_share_are_refused(environ, match):
    with pytest.raises(UsageError, match=match):
        find_share(None, None, True, environ)


def test_faults_of_array_and_tasks_are_reported_together():
    environ = {**array(1, 2, 0, 1), "SLURM_ARRAY_TASK_COUNT": "", "RANK": "x", "WORLD_SIZE": "y"}
    with pytest.raises(UsageError) as error:
        find_share(2, 0, True, environ)
    where = {fault.where for fault in error.value.faults}
    assert where == {
        "--shard-index", "--num-shards", "RANK", "WORLD_SIZE", "SLURM_ARRAY_TASK_COUNT"
    }  # fmt: skip


GIVEN = {
    "index alone": ((0, None, False), "--shard-index: half"),
    "number alone": ((None, 4, False), "--num-shards: half"),
    "past the end": ((4, 4, False), "0 to 3"),
    "negative": ((-1, 4, False), "0 to 3"),
    "no shares": ((0, 0, False), "1 or more"),
    "both ways": ((0, 4, True), "two ways"),
    "another number than the launcher's": ((None, 4, True), "expected: 8"),
}


@pytest.mark.parametrize(("given", "match"), GIVEN.values(), ids=GIVEN)
def test_a_share_that_cannot_be_is_refused(given, match):
    with pytest.raises(UsageError, match=match):
        find_share(*given, TORCHRUN)


def test_shares_that_do_not_go_into_an_array_are_refused():
    with pytest.raises(UsageError, match="a multiple of 3"):
        find_share(None, 8, True, {**array(1, 4, 0, 3), **step(0, 3, 0)})
    with pytest.raises(UsageError, match="--array=0-7"):
        find_share(None, 8, True, array(8, 8, 1, 8))


def test_what_is_given_is_taken_and_nothing_else_is_looked_at():
    assert find_share(None, None, False, TORCHRUN) is None
    share = find_share(2, 5, False, {**TORCHRUN, "RANK": "x"})
    assert share == Share(2, 5, 2, "--shard-index, --num-shards")
