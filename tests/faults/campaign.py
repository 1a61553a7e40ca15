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
import contextlib
import ctypes
import errno
import gc
import importlib
import os
import pkgutil
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from faults.scenarios import SCENARIOS, Scenario, write_inputs
from hostile.runner import run_all

_EVERYTHING = (
    "integrate in.npy --start zero --dt 1 -o out.h5 --quiet",
    "export out.h5 -o out.csv --quiet",
)
"""Commands that import all that the others do."""
_COUNT, _KILL, _CUT, _FAIL, _SHORT = range(5)
_REMOVALS = "uxc"
"""Calls of which the failure may leave something behind: unlink, rmdir, close."""


class Fault(NamedTuple):
    """What happens at a call: see shim.c."""

    mode: int = _COUNT
    at: int = 0
    error: int = 0
    forever: bool = False

    def __str__(self) -> str:
        what = ("nothing", "killed", "cut", errno.errorcode.get(self.error, ""), "short")[self.mode]
        return f"{what}{' from then on' if self.forever else ''} at call {self.at}"


class Result(NamedTuple):
    """How a run ended: the exit code, negative for a signal; its text; the kinds of its calls."""

    code: int
    error: str
    kinds: str


def faults_at(call: int, kind: str) -> Iterator[Fault]:
    """All that can go wrong at a call of a kind."""
    yield Fault(_KILL, call)
    if kind in "wta":
        yield Fault(_CUT, call)
    if kind == "w":
        yield Fault(_SHORT, call)
    for error in (errno.EIO, errno.ENOSPC, errno.EDQUOT, errno.EINTR, errno.EACCES):
        yield Fault(_FAIL, call, error)
    for error in (errno.EIO, errno.ENOSPC, errno.EDQUOT):
        yield Fault(_FAIL, call, error, forever=True)


def build_shim(folder: Path) -> Path:
    """Compile the library that counts calls."""
    library, source = folder / "shim.so", Path(__file__).with_name("shim.c")
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        sys.exit("no C compiler")
    command = [compiler, "-O1", "-shared", "-fPIC", "-o", library, source, "-ldl"]
    subprocess.run(command, check=True)
    return library


class Runner:
    """Runs command lines in forks of this process, each in a folder with the inputs."""

    def __init__(self, work: Path) -> None:
        self._inputs, self._results, self._work = work / "inputs", work / "results", work / "runs"
        for folder in (self._inputs, self._results, self._work):
            folder.mkdir()
        write_inputs(self._inputs)
        self._shim = ctypes.CDLL(None)
        self._shim.faults_disarm.restype = ctypes.c_char_p
        self._count = 0

    def folder(self) -> Path:
        """A new folder with the inputs."""
        self._count += 1
        folder = self._work / str(self._count)
        shutil.copytree(self._inputs, folder, copy_function=os.link)
        return folder

    def run(self, folder: Path, line: str, fault: Fault = Fault()) -> Result:  # noqa: B008
        """Run a command line."""
        kinds = self._results / "kinds"

        def work(line: str) -> int:
            from trajcli.cli import main, start_process

            os.chdir(folder)
            start_process()
            self._shim.faults_arm(fault.mode, ctypes.c_long(fault.at), fault.error, fault.forever)
            code = main(line.split())
            sys.stdout.flush()
            sys.stderr.flush()
            kinds.write_bytes(self._shim.faults_disarm())
            return code

        (end,) = run_all([line], work, self._results)
        end.folder.rmdir()
        text = kinds.read_text() if kinds.exists() else ""
        kinds.unlink(missing_ok=True)
        return Result(98 if end.hung else end.code, end.text, text)

    def prepared(self, scenario: Scenario) -> Path:
        """A folder in which the commands before that of a scenario have run."""
        folder = self.folder()
        for line in scenario.before:
            result = self.run(folder, line)
            if result.code:
                raise RuntimeError(f"{line}: exit code {result.code}\n{result.error}")
        return folder


def contents(path: Path) -> bytes | None:
    """The bytes of a file; None where there is nothing."""
    return path.read_bytes() if path.exists() else None


def hidden(folder: Path) -> list[str]:
    """What lies beside OUT under hidden names."""
    return [str(path.relative_to(folder)) for path in folder.rglob(".*")]


@dataclass
class Trial:
    """A scenario, and what OUT holds before and after it."""

    runner: Runner
    scenario: Scenario

    def __post_init__(self) -> None:
        folder, scenario = self.runner.prepared(self.scenario), self.scenario
        out = folder / scenario.out
        self.old = contents(out)
        self.kinds = self.runner.run(folder, scenario.line).kinds
        again = self.runner.run(folder, scenario.again)
        self.new = contents(out)
        if self.new is None or self.new == self.old:
            raise RuntimeError(f"{scenario.line}: writes nothing: {again.error}")
        shutil.rmtree(folder)

    def faults(self) -> list[Fault]:
        """Every point at which something can go wrong, in every way."""
        return [fault for k, kind in enumerate(self.kinds) for fault in faults_at(k + 1, kind)]

    def problems(self, fault: Fault) -> Iterator[str]:
        """What is not as promised where this fault happens."""
        kind = self.kinds[fault.at - 1]
        folder = self.runner.prepared(self.scenario)
        out = folder / self.scenario.out
        result = self.runner.run(folder, self.scenario.line, fault)
        yield from self._first(fault, kind, result, contents(out), hidden(folder))
        after = self.runner.run(folder, self.scenario.again)
        if after.code != 0 or contents(out) != self.new:
            right = "right" if contents(out) == self.new else "wrong"
            yield f"the next run: exit code {after.code}, OUT is {right}; {after.error}"
        elif hidden(folder):
            yield f"the next run leaves {hidden(folder)}"
        shutil.rmtree(folder)

    def _first(
        self,
        fault: Fault,
        kind: str,
        result: Result,
        out: bytes | None,
        left: list[str],
    ) -> Iterator[str]:
        """What is not as promised of the run in which the fault happens."""
        code, error = result.code, result.error
        killed = code == -signal.SIGKILL and fault.mode in (_KILL, _CUT)
        if not (killed or code in (0, 2)):
            yield f"exit code {code}: {error}"
        if out not in (self.old, self.new):
            yield f"OUT is neither the old nor the new one, exit code {code}"
        if code == 0 and out != self.new:
            yield "exit code 0, and OUT is not complete"
        if code == 2 and out != self.old:
            yield f"exit code 2, and OUT is changed: {error}"
        if code == 2 and not error.strip():
            yield "exit code 2 without a message"
        if "Traceback" in error or "a bug" in error:
            yield f"a traceback or a bug: {error}"
        if not killed and left and kind not in _REMOVALS:
            yield f"exit code {code} leaves {left}"


def main() -> int:
    """Try all points, or each so many; 1 where one does not hold."""
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
    return _try_all(options.only, options.every)


def _try_all(only: str, every: int) -> int:
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})  # calls in one order
    fast = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    began, tried, failed, number = time.monotonic(), 0, 0, 0
    with tempfile.TemporaryDirectory(dir=fast) as work:
        runner = Runner(Path(work))
        _import_all(runner)
        for name, scenario in SCENARIOS.items():
            if only not in name:
                continue
            trial, before = Trial(runner, scenario), (tried, failed)
            for fault in trial.faults():
                number += 1
                if number % every:
                    continue
                problems = list(trial.problems(fault))
                tried, failed = tried + 1, failed + bool(problems)
                kind = trial.kinds[fault.at - 1]
                for problem in problems:
                    print(f"{name}: {fault} ({kind}): {problem}", flush=True)
            count, wrong = tried - before[0], failed - before[1]
            print(
                f"{name}: {len(trial.kinds)} calls, {count} points, {count - wrong} hold",
                flush=True,
            )
    seconds = time.monotonic() - began
    print(f"{tried} points tried, {tried - failed} held, {seconds:.0f} s")
    return int(failed > 0)


def _import_all(runner: Runner) -> None:
    """Import what runs import, once: forks have it then."""
    folder, (read, write) = runner.folder(), os.pipe()
    if not os.fork():
        try:
            import trajcli
            from trajcli.cli import main

            os.chdir(folder)
            for line in _EVERYTHING:
                main(line.split())
            for room in ("cli", "files", "jobs", "views"):
                for module in pkgutil.iter_modules([f"{trajcli.__path__[0]}/{room}"]):
                    importlib.import_module(f"trajcli.{room}.{module.name}")
            os.write(write, " ".join(sys.modules).encode())
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read) as pipe:
        names = pipe.read().split()
    if not names:
        raise RuntimeError("the commands that import all fail")
    for name in names:
        with contextlib.suppress(ImportError):
            __import__(name)
    os.wait()
    gc.freeze()  # so that forks share it


if __name__ == "__main__":
    sys.exit(main())
