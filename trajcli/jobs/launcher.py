"""Which shard this process is: as the user says, or as its launcher numbers it.

A launcher's environment variables alone are read. The first of the launchers below that is there
counts. A Slurm array multiplies: task 2 of an array of jobs with 4 ranks each holds shards 8 to 11.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from trajcli.errors import Fault, UsageError
from trajcli.jobs.shards import Shard

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


def parse_shard(text: str, environ: Mapping[str, str]) -> Shard:
    """``I/N``, or ``auto`` and ``auto/N``: what the launcher's variables in ``environ`` say."""
    match = re.fullmatch(r"auto(?:/([0-9]{1,9}))?|([0-9]{1,9})/([0-9]{1,9})", text.strip())
    count = int(match[1] or match[3] or 0) if match else 0
    if match is None or (count == 0 and text.strip() != "auto"):
        expected = "I/N, auto or auto/N; I counts from 0"
        raise UsageError(Fault("not a shard", "--shard", expected, repr(text)))
    if match[2] is None:
        return _launched_shard(text, count or None, environ)
    index = int(match[2])
    if index >= count:
        expected = f"0/{count} to {count - 1}/{count}"
        raise UsageError(Fault("no such shard", "--shard", expected, text))
    return Shard(index, count, index)


def _launched_shard(text: str, count: int | None, environ: Mapping[str, str]) -> Shard:
    """The shard of this process among all that a launcher, or a Slurm array of them, starts."""
    rank = _rank(environ)
    ranks, what = rank.count if rank else 1, "not the number of processes started"
    if count is not None and count % ranks:
        raise UsageError(Fault(what, "--shard", f"a multiple of {ranks}", text))
    task = _array_task(environ, None if count is None else count // ranks)
    if task is not None:
        index, local = (rank.index, rank.local) if rank else (0, task)
        return Shard(task * ranks + index, count or ranks, local, ranks)
    if rank is None:
        raise UsageError(_no_launcher(environ))
    if count not in (None, ranks):
        raise UsageError(Fault(what, "--shard", f"auto/{ranks}", text))
    return rank


def _rank(environ: Mapping[str, str]) -> Shard | None:
    """This process among those that were started together; None without a launcher.

    Raises UsageError for variables that are incomplete or not numbers.
    """
    torchrun = _read_rank(environ, "torchrun")
    if torchrun is not None:
        return torchrun
    # srun sets most of its variables for batch scripts, too, which it did not start
    started = environ.get("SLURM_STEP_ID") and _number(environ, "SLURM_STEP_ID")
    is_step = isinstance(started, int) and started < _FIRST_SPECIAL_STEP
    step = _read_rank(environ, "srun") if is_step else None
    mpi = _read_rank(environ, "Open MPI") or _read_rank(environ, "MPICH")
    # Where mpirun starts its daemons with srun, the variables of the daemon's step are set, too:
    # the step counts only where both agree.
    if mpi and not (step and (step.index, step.count) == (mpi.index, mpi.count)):
        return mpi
    return step


def _array_task(environ: Mapping[str, str], tasks: int | None) -> int | None:
    """The task of a Slurm array, of so many in the whole run; None outside of one.

    Slurm says how many tasks were submitted, not how many there are in the run: after
    ``sbatch --array=3,7`` that is 2. So the number of shards has to be stated.
    """
    if not environ.get(_ARRAY_TASK):
        return None
    task = _number(environ, _ARRAY_TASK)
    if tasks is None:
        what, expected = "a task of an array, of unknown size", "auto/N: the shards of all tasks"
        raise UsageError(Fault(what, "--shard", expected, "auto"))
    if task >= tasks:
        expected, hint = f"0 to {tasks - 1}", f"sbatch --array=0-{tasks - 1}"
        raise UsageError(Fault("no such shard", _ARRAY_TASK, expected, str(task), hint))
    return task


def _no_launcher(environ: Mapping[str, str]) -> Fault:
    """The fault of a process that no launcher numbers."""
    names = [f"{rank} ({launcher})" for launcher, (rank, *_) in _VARIABLES.items()]
    expected = f"one of {', '.join(names)}, {_ARRAY_TASK} (Slurm array)"
    in_job = "a Slurm job, but neither an array nor a step of srun"
    there = in_job if environ.get("SLURM_JOB_ID") else "none of them in the environment"
    hint = f"srun before the command; {_HINT}"
    return Fault("no launcher detected", "--shard auto", expected, there, hint)


def _read_rank(environ: Mapping[str, str], launcher: str) -> Shard | None:
    rank, size, local = _VARIABLES[launcher]
    if not (environ.get(rank) or environ.get(size)):
        return None
    index, count = _number(environ, rank), _number(environ, size)
    if index >= count:
        expected = f"less than {size}, {count}"
        raise UsageError(Fault("a rank out of range", rank, expected, str(index), _HINT))
    return Shard(index, count, _number(environ, local if environ.get(local) else rank))


def _number(environ: Mapping[str, str], name: str) -> int:
    """A variable as a whole number; raises UsageError for what is none."""
    text = environ.get(name, "")
    if re.fullmatch("[0-9]{1,18}", text):
        return int(text)
    raise UsageError(Fault("not a whole number", name, "0 or more", repr(text), _HINT))
