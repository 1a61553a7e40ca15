"""Which share of a job this process does: as told, or as the launcher's variables say.

    torchrun        RANK                  WORLD_SIZE               LOCAL_RANK
    Slurm array     SLURM_ARRAY_TASK_ID   SLURM_ARRAY_TASK_COUNT
    srun step       SLURM_PROCID          SLURM_NTASKS             SLURM_LOCALID
    Open MPI        OMPI_COMM_WORLD_RANK  OMPI_COMM_WORLD_SIZE     OMPI_COMM_WORLD_LOCAL_RANK
    MPICH           PMI_RANK              PMI_SIZE                 MPI_LOCALRANKID

The first whose variables are there is believed; an array multiplies with the tasks inside it.
Nothing is asked of a launcher: no socket, no file.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from trajcli.errors import Fault, Gathering, UsageError, raise_if_any

_ARRAY = "SLURM_ARRAY_TASK_"

_FIRST_SPECIAL_STEP = 0xFFFF0000
"""Slurm numbers what is no step of srun's (a batch script, an interactive shell) from the top."""

_HINT = "--shard-index I --num-shards N say it without a launcher"


@dataclass(frozen=True)
class Share:
    """Share ``index``, from 0, of ``number``.

    ``local``: rank on this machine, for a GPU of its own. ``why``: what was chosen, and from where.
    ``tasks``: how many shares one task of a Slurm array stands for.
    """

    index: int
    number: int
    local: int = 0
    why: str = ""
    tasks: int = 1


class _Launcher(NamedTuple):
    """The variables in which a launcher tells a process its place."""

    name: str
    rank: str
    size: str
    local: str

    def place(self, environ: Mapping[str, str]) -> Share | None:
        """What they say; None where they are not set."""
        if not (_is_set(environ, self.rank) or _is_set(environ, self.size)):
            return None
        places = [self.rank, self.local] if _is_set(environ, self.local) else [self.rank]
        size, rank, *local = _numbers(environ, [self.size, *places], self.name)
        if rank >= size:
            expected = f"less than {self.size}, {size}"
            raise UsageError(Fault("a rank out of range", self.rank, expected, str(rank), _HINT))
        why = f"{self.name}: {self.rank} {rank} of {self.size} {size}"
        return Share(rank, size, local[0] if local else rank, why)


_TORCHRUN = _Launcher("torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK")
_SRUN = _Launcher("srun", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID")
_MPI = (
    _Launcher(
        "Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"
    ),
    _Launcher("MPICH", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID"),
)


def find_share(
    index: int | None, number: int | None, auto: bool, environ: Mapping[str, str]
) -> Share | None:
    """The share as given, or with ``auto`` as ``environ`` says; None where none is asked for.

    ``number`` beside ``auto`` is for Slurm arrays: index I is then task I of the array, whichever
    of its tasks were submitted, so that `sbatch --array=3,7` does shares 3 and 7 again.
    """
    if not auto:
        return _given(index, number)
    found = Gathering()
    if index is not None:
        found.faults.append(
            Fault("two ways to say which share", "--shard-index", "this or --shard auto", "both")
        )
    if number is not None:
        found.attempt(lambda: _require_some(number))
    tasks = found.attempt(lambda: _tasks(environ))
    array = found.attempt(lambda: _Array.of(environ))
    raise_if_any(dict.fromkeys(found.faults), UsageError)
    if array is not None:
        size = 1 if tasks is None else tasks.number
        task = array.even() if number is None else array.task_of(number, size)
        return task if tasks is None else _product(task, tasks)
    if tasks is None:
        raise UsageError(_nothing_found(environ))
    if number not in (None, tasks.number):
        what = "the launcher has started another number of shares"
        raise UsageError(Fault(what, "--num-shards", f"{tasks.number} ({tasks.why})", f"{number}"))
    return tasks


def _given(index: int | None, number: int | None) -> Share | None:
    """The share by --shard-index and --num-shards."""
    if index is None and number is None:
        return None
    if index is None or number is None:
        missing, given = ("--shard-index", "--num-shards")[:: 1 if index is None else -1]
        what = "half of what says which share"
        raise UsageError(Fault(what, given, f"{missing} beside it", "nothing", "or --shard auto"))
    _require_some(number)
    if not 0 <= index < number:
        raise UsageError(
            Fault("no such share", "--shard-index", f"0 to {number - 1}, as there are {number}",
                  str(index))
        )  # fmt: skip
    return Share(index, number, index, "--shard-index, --num-shards")


def _require_some(number: int) -> None:
    if number < 1:
        raise UsageError(Fault("no shares", "--num-shards", "1 or more", str(number)))


def _tasks(environ: Mapping[str, str]) -> Share | None:
    """The place among processes that were started together."""
    found = _TORCHRUN.place(environ)
    if found is not None:
        return found
    step = _step(environ)
    for launcher in _MPI:
        ranked = launcher.place(environ)
        # mpirun has srun start one daemon on each further machine of a job: what these run has
        # the variables of the daemon's step, too.
        if ranked is not None and (step is None or _place(step) != _place(ranked)):
            return ranked
    return step


def _place(share: Share) -> tuple[int, int]:
    return share.index, share.number


def _step(environ: Mapping[str, str]) -> Share | None:
    """The place in a step of srun's; a batch script has some of its variables without being one."""
    if not _is_set(environ, "SLURM_STEP_ID"):
        return None
    if _numbers(environ, ["SLURM_STEP_ID"], "srun")[0] >= _FIRST_SPECIAL_STEP:
        return None
    return _SRUN.place(environ)


@dataclass(frozen=True)
class _Array:
    """What Slurm says about an array: this task, how many there are, from where to where."""

    here: int
    count: int
    least: int
    most: int
    step: int

    @staticmethod
    def of(environ: Mapping[str, str]) -> _Array | None:
        """None where this is no task of an array."""
        names = [_ARRAY + part for part in ("ID", "COUNT", "MIN")]
        if not any(_is_set(environ, name) for name in names):
            return None
        more = [name for name in (_ARRAY + "MAX", _ARRAY + "STEP") if _is_set(environ, name)]
        read = dict(zip(names + more, _numbers(environ, names + more, "Slurm"), strict=True))
        here, count, least = (read[name] for name in names)
        step = read.get(_ARRAY + "STEP") or 1
        most = read.get(_ARRAY + "MAX", least + (count - 1) * step)
        return _Array(here, count, least, most, step)

    def even(self) -> Share:
        """The place among the tasks there are, which must lie at even distances.

        Where there are holes, as with --array=3,7, Slurm does not say which tasks there are.
        """
        index, rest = divmod(self.here - self.least, self.step)
        even = self.most - self.least == (self.count - 1) * self.step
        if not even or rest or not 0 <= index < self.count:
            raise UsageError(
                Fault("an array with holes does not say which share this is", _ARRAY + "ID",
                      "tasks at even distances, or --num-shards with the shares of the first run",
                      f"task {self.here}, one of {self.count} from {self.least} to {self.most}",
                      "--shard auto --num-shards N, with --array=0-(N-1) at first")
            )  # fmt: skip
        why = f"Slurm array: {_ARRAY}ID {self.here}, {index} of {_ARRAY}COUNT {self.count}"
        return Share(index, self.count, index, why)

    def task_of(self, number: int, tasks: int) -> Share:
        """The place in a run of so many shares, whichever of its tasks were submitted."""
        count, rest = divmod(number, tasks)
        if rest:
            raise UsageError(
                Fault("shares that do not go evenly into the tasks of an array", "--num-shards",
                      f"a multiple of {tasks}, the tasks in each", str(number))
            )  # fmt: skip
        if self.here >= count:
            raise UsageError(
                Fault("no such share", _ARRAY + "ID", f"0 to {count - 1}, as there are {count}",
                      str(self.here), f"sbatch --array=0-{count - 1}")
            )  # fmt: skip
        why = f"Slurm array: {_ARRAY}ID {self.here} of {count}, by --num-shards"
        return Share(self.here, count, self.here, why)


def _product(array: Share, tasks: Share) -> Share:
    """Tasks within each task of an array."""
    return Share(
        array.index * tasks.number + tasks.index,
        array.number * tasks.number,
        tasks.local,
        f"{array.why} × {tasks.why}",
        tasks.number,
    )


def _nothing_found(environ: Mapping[str, str]) -> Fault:
    pairs = [(each.name, each.rank, each.size) for each in (_TORCHRUN, _SRUN, *_MPI)]
    pairs.insert(1, ("Slurm array", _ARRAY + "ID", _ARRAY + "COUNT"))
    in_job = "a Slurm job, but neither an array nor a step of srun's"
    return Fault(
        "no launcher is to be seen",
        "--shard auto",
        "one of " + "; ".join(f"{rank}, {size} ({name})" for name, rank, size in pairs),
        in_job if _is_set(environ, "SLURM_JOB_ID") else "none of them in the environment",
        "srun before the command, or --shard-index I --num-shards N",
    )


def _is_set(environ: Mapping[str, str], name: str) -> bool:
    return environ.get(name, "") != ""


def _numbers(environ: Mapping[str, str], names: Sequence[str], who: str) -> list[int]:
    """Variables as whole numbers; raises UsageError for all that are missing or none."""
    faults: list[Fault] = []
    for name in names:
        text = environ.get(name, "")
        if not text:
            what = "half of what says which share"
            faults.append(Fault(what, name, f"a number; {who} sets it", "not set", _HINT))
        elif not re.fullmatch("[0-9]{1,18}", text):
            expected = f"0 or more; {who} sets it"
            faults.append(Fault("not a whole number", name, expected, repr(text), _HINT))
    raise_if_any(faults, UsageError)
    return [int(environ[name]) for name in names]
