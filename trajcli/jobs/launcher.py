"""The rank that a launcher gives this process, read from its environment variables alone.

The first of the launchers below that is there counts. A Slurm array multiplies: task 2 of an array
of jobs with 4 ranks each holds shards 8 to 11.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from trajcli.errors import Fault, UsageError, raise_if_any

_MPI = "OMPI_COMM_WORLD_"
_VARIABLES = {  # rank, number of ranks, rank on this machine
    "torchrun": ("RANK", "WORLD_SIZE", "LOCAL_RANK"),
    "Open MPI": (f"{_MPI}RANK", f"{_MPI}SIZE", f"{_MPI}LOCAL_RANK"),
    "MPICH": ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID"),
    "srun": ("SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID"),
}
_ARRAY_TASK = "SLURM_ARRAY_TASK_ID"
_FIRST_SPECIAL_STEP = 0xFFFF0000
"""Slurm numbers batch scripts and interactive shells, which srun did not start, from here."""
_HINT = "--shard I/N works without a launcher"


@dataclass(frozen=True)
class Rank:
    """Process ``index`` of ``count``; ``local`` among those of this machine, for its GPU."""

    launcher: str
    index: int
    count: int
    local: int


def find_rank(environ: Mapping[str, str]) -> Rank | None:
    """The rank among processes that were started together; None without a launcher.

    Raises UsageError for variables that are incomplete or not numbers.
    """
    torchrun = _read_rank(environ, "torchrun")
    if torchrun is not None:
        return torchrun
    step = _read_rank(environ, "srun") if _is_step(environ) else None
    mpi = _read_rank(environ, "Open MPI") or _read_rank(environ, "MPICH")
    # Where mpirun starts its daemons with srun, the variables of the daemon's step are set, too:
    # the step counts only where both agree.
    if mpi and not (step and (step.index, step.count) == (mpi.index, mpi.count)):
        return mpi
    return step


def find_array_task(environ: Mapping[str, str], tasks: int | None) -> int | None:
    """The task of a Slurm array, of so many in the whole run; None outside of one.

    Slurm says how many tasks were submitted, not how many there are in the run: after
    ``sbatch --array=3,7`` that is 2. So the number of shards has to be stated.
    """
    if not environ.get(_ARRAY_TASK):
        return None
    (task,) = _numbers(environ, [_ARRAY_TASK])
    if tasks is None:
        what, expected = "a task of an array, of unknown size", "auto/N: the shards of all tasks"
        raise UsageError(Fault(what, "--shard", expected, "auto"))
    if task >= tasks:
        expected, hint = f"0 to {tasks - 1}", f"sbatch --array=0-{tasks - 1}"
        raise UsageError(Fault("no such shard", _ARRAY_TASK, expected, str(task), hint))
    return task


def no_launcher(environ: Mapping[str, str]) -> Fault:
    """The fault of a process that no launcher numbers."""
    names = [f"{rank} ({launcher})" for launcher, (rank, *_) in _VARIABLES.items()]
    expected = f"one of {', '.join(names)}, {_ARRAY_TASK} (Slurm array)"
    in_job = "a Slurm job, but neither an array nor a step of srun"
    there = in_job if environ.get("SLURM_JOB_ID") else "none of them in the environment"
    hint = f"srun before the command; {_HINT}"
    return Fault("no launcher detected", "--shard auto", expected, there, hint)


def _is_step(environ: Mapping[str, str]) -> bool:
    """Whether srun started this process: a batch script has most of the variables, too."""
    step = environ.get("SLURM_STEP_ID")
    return bool(step) and _numbers(environ, ["SLURM_STEP_ID"])[0] < _FIRST_SPECIAL_STEP


def _read_rank(environ: Mapping[str, str], launcher: str) -> Rank | None:
    rank, size, local = _VARIABLES[launcher]
    if not (environ.get(rank) or environ.get(size)):
        return None
    index, count = _numbers(environ, [rank, size])
    (place,) = _numbers(environ, [local if environ.get(local) else rank])
    if index >= count:
        expected = f"less than {size}, {count}"
        raise UsageError(Fault("a rank out of range", rank, expected, str(index), _HINT))
    return Rank(launcher, index, count, place)


def _numbers(environ: Mapping[str, str], names: Sequence[str]) -> list[int]:
    """Variables as whole numbers; raises UsageError naming all that are not."""
    texts = {name: environ.get(name, "") for name in names}
    faults = [
        Fault("not a whole number", name, "0 or more", repr(text), _HINT)
        for name, text in texts.items()
        if not re.fullmatch("[0-9]{1,18}", text)
    ]
    raise_if_any(faults, UsageError)
    return [int(text) for text in texts.values()]
