"""Fail, kill or cut a command at every call by which it changes a file, and look what comes of it.

    cd tests
    python -m faults.campaign                every point of all scenarios: minutes
    python -m faults.campaign --every 40     each 40th of them
    python -m faults.campaign --only merge   scenarios with this in their name

Whatever happens, OUT is as it was before or complete, nothing that a user would have to clean up is
left, and the next run writes the right bytes. The process imports trajcli once, under a preloaded
library that counts the calls (shim.c), and forks for every run.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from errno import EACCES, EDQUOT, EINTR, EIO, ENOSPC, errorcode
from pathlib import Path
from typing import NamedTuple

import h5py
import numpy as np
from hostile.runner import run_all, warm

RUN = "integrate in.npy --start zero --dt 0.02"
SHARDS = tuple(f"{RUN} -o out.h5 --shard {k}/2" for k in range(2))
SCENARIOS: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "plain": (f"{RUN} --joints a,b -o out.h5", "out.h5", ()),
    "overwrite": (f"{RUN} -o out.h5 --overwrite", "out.h5", (f"{RUN} --mode jerk -o out.h5",)),
    "groups": ("integrate demos.h5 --start zero --dt 0.02 -o out.h5", "out.h5", ()),
    "npz": (f"{RUN} -o out.npz", "out.npz", ()),
    "shard": (SHARDS[0], "out.h5.parts/00000-of-00002.h5", ()),
    "merge": ("merge out.h5", "out.h5", SHARDS),
    "export": ("export in.npy -o out.csv", "out.csv", ()),
}
"""A command line, what it writes, and the commands that run before it."""
COUNT, KILL, CUT, FAIL, SHORT = range(5)


class Fault(NamedTuple):
    """What happens at a call: see shim.c."""

    mode: int = COUNT
    at: int = 0
    error: int = 0
    forever: bool = False

    def __str__(self) -> str:
        what = ("nothing", "killed", "cut", errorcode.get(self.error, ""), "short")[self.mode]
        return f"{what}{' from then on' if self.forever else ''} at call {self.at}"


FAULTS = [
    # at calls of these kinds, or of all; the kinds are those of shim.c
    ("", Fault(KILL)),
    ("wta", Fault(CUT)),
    ("w", Fault(SHORT)),
    *(("", Fault(FAIL, error=error)) for error in (EIO, ENOSPC, EDQUOT, EINTR, EACCES)),
    *(("", Fault(FAIL, error=error, forever=True)) for error in (EIO, ENOSPC, EDQUOT)),
]


def write_inputs(folder: Path) -> None:
    """Writes the files that the commands read."""
    random = np.random.default_rng(0)
    np.save(folder / "in.npy", random.standard_normal((8, 6, 2)).astype("f4"))
    with h5py.File(folder / "demos.h5", "w") as file:
        for k, length in enumerate((5, 3, 5, 9)):
            file[f"data/demo_{k}/actions"] = random.standard_normal((length, 2)).astype("f4")
    for path in folder.rglob("*"):
        os.utime(path, ns=(0, 0))


def build_shim(folder: Path) -> Path:
    """Compiles the library that counts calls."""
    library, source = folder / "shim.so", Path(__file__).with_name("shim.c")
    compiler = shutil.which("gcc") or shutil.which("cc") or sys.exit("no C compiler")
    subprocess.run([compiler, "-O1", "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
    return library


def contents(path: Path) -> bytes | None:
    """The bytes of a file; None where there is nothing."""
    return path.read_bytes() if path.exists() else None


def hidden(folder: Path) -> list[str]:
    """What lies beside OUT under hidden names."""
    return [str(path.relative_to(folder)) for path in folder.rglob(".*")]


class Trial:
    """A scenario, in forks of this process; what OUT holds before and after it, and the kinds of
    the calls that it takes."""

    def __init__(self, work: Path, name: str) -> None:
        self.line, self.out, self.before = SCENARIOS[name]
        self.again = self.line.removesuffix(" --overwrite") + " --overwrite"
        self.inputs, self.folder, self.results = work / "inputs", work / "run", work / "results"
        self.shim = ctypes.CDLL(None)
        self.shim.faults_disarm.restype = ctypes.c_char_p
        self.prepare()
        self.old = contents(self.folder / self.out)
        _, _, self.kinds = self.run(self.line)
        _, error, _ = self.run(self.again)
        self.new = contents(self.folder / self.out)
        if self.new is None or self.new == self.old:
            raise RuntimeError(f"{self.line}: writes nothing: {error}")

    def prepare(self) -> None:
        """Makes the folder anew, with the inputs and what the commands before have written."""
        shutil.rmtree(self.folder, ignore_errors=True)
        shutil.copytree(self.inputs, self.folder, copy_function=os.link)
        for line in self.before:
            code, error, _ = self.run(line)
            if code:
                raise RuntimeError(f"{line}: exit code {code}\n{error}")

    def run(self, line: str, fault: Fault = Fault()) -> tuple[int, str, str]:  # noqa: B008
        """Returns the exit code, negative for a signal; the text; the kinds of the calls."""
        kinds = self.results / "kinds"

        def work(line: str) -> int:
            from trajcli.cli import main, start_process

            os.chdir(self.folder)
            start_process()
            self.shim.faults_arm(fault.mode, ctypes.c_long(fault.at), fault.error, fault.forever)
            code = main(line.split())
            sys.stdout.flush()
            sys.stderr.flush()
            kinds.write_bytes(self.shim.faults_disarm())
            return code

        kinds.write_text("")
        (end,) = run_all([line], work, self.results)
        end.folder.rmdir()
        return 98 if end.hung else end.code, end.text, kinds.read_text()

    def list_faults(self) -> list[Fault]:
        """Every point at which something can go wrong, in every way."""
        calls = enumerate(self.kinds, 1)
        return [f._replace(at=k) for k, kind in calls for at, f in FAULTS if not at or kind in at]

    def find_problems(self, fault: Fault) -> Iterator[str]:
        """What is not as promised where this fault happens, and in the next run."""
        self.prepare()
        code, error, _ = self.run(self.line, fault)
        out, left = contents(self.folder / self.out), hidden(self.folder)
        killed = code == -signal.SIGKILL and fault.mode in (KILL, CUT)
        if not (killed or code in (0, 2)):
            yield f"exit code {code}: {error}"
        if out not in (self.old, self.new):
            yield f"OUT is neither the old nor the new one, exit code {code}"
        if code == 0 and out != self.new:
            yield "exit code 0, and OUT is not complete"
        if code == 2 and (out != self.old or not error.strip()):
            yield f"exit code 2, and OUT is changed, or there is no message: {error}"
        if "Traceback" in error or "a bug" in error:
            yield f"a traceback or a bug: {error}"
        # where unlink, rmdir or close fails, something may be left
        if left and not killed and self.kinds[fault.at - 1] not in "uxc":
            yield f"exit code {code} leaves {left}"
        code, error, _ = self.run(self.again)
        if code != 0 or contents(self.folder / self.out) != self.new:
            right = "right" if contents(self.folder / self.out) == self.new else "wrong"
            yield f"the next run: exit code {code}, OUT is {right}; {error}"
        elif left := hidden(self.folder):
            yield f"the next run leaves {left}"


def main() -> int:
    """Tries all points, or each so many; 1 where one does not hold."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    os.environ["TRAJCLI_MEMORY"] = "2kB"  # several blocks
    if "LD_PRELOAD" not in os.environ:
        with tempfile.TemporaryDirectory() as folder:
            environ = {**os.environ, "LD_PRELOAD": str(build_shim(Path(folder)))}
            command = [sys.executable, "-B", "-m", "faults.campaign", *sys.argv[1:]]
            return subprocess.run(command, env=environ).returncode
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})  # calls in one order
    fast = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    began, tried, held, number = time.monotonic(), 0, 0, 0
    warm()
    with tempfile.TemporaryDirectory(dir=fast) as name:
        work = Path(name)
        for folder in (work / "inputs", work / "results"):
            folder.mkdir()
        write_inputs(work / "inputs")
        for name in SCENARIOS:
            if options.only not in name:
                continue
            trial, before = Trial(work, name), (tried, held)
            for fault in trial.list_faults():
                number += 1
                if number % options.every:
                    continue
                problems = list(trial.find_problems(fault))
                tried, held = tried + 1, held + (not problems)
                for problem in problems:
                    print(f"{name}: {fault} ({trial.kinds[fault.at - 1]}): {problem}", flush=True)
            points = f"{tried - before[0]} points, {held - before[1]} hold"
            print(f"{name}: {len(trial.kinds)} calls, {points}", flush=True)
    print(f"{tried} points tried, {held} held, {time.monotonic() - began:.0f} s")
    return int(held < tried)


if __name__ == "__main__":
    sys.exit(main())
