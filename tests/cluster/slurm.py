"""A Slurm of one node, from the distribution's packages: on loopback, in a folder, for a while."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path

PROGRAMS = (
    "setpriv",
    "munged",
    "slurmctld",
    "slurmd",
    "sbatch",
    "srun",
    "squeue",
    "scontrol",
    "scancel",
)
CPUS = 4
"""More than the machine may have: tasks wait for files and each other, not for processors."""

CONFIGURATION = """
ClusterName=trajcli
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmdPort={ports[1]}
AuthType=auth/munge
CredType=cred/munge
# how long a job waits that is queued again, too
AuthInfo=socket={folder}/munge.socket,cred_expire=5
SlurmUser=root
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SwitchType=switch/none
MpiDefault=none
SlurmdParameters=config_overrides
SchedulerType=sched/builtin
SchedulerParameters=sched_interval=1,sched_min_interval=0,batch_sched_delay=0
DependencyParameters=kill_invalid_depend
ReturnToService=2
KillWait=5
NodeName={host} NodeAddr=127.0.0.1 CPUs={cpus} State=UNKNOWN
PartitionName=all Nodes={host} Default=YES MaxTime=INFINITE State=UP
"""

FINISHED = (
    "COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY", "DEADLINE"
)  # fmt: skip


def _path(environ: Mapping[str, str]) -> str:
    """Where programs are, daemons too."""
    return os.pathsep.join((environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"))


def absence() -> str:
    """Why there can be none here; "" where there can."""
    missing = [name for name in PROGRAMS if shutil.which(name, path=_path(os.environ)) is None]
    if missing:
        return f"no Slurm: {', '.join(missing)} not installed (slurm-wlm, munge)"
    return "" if os.geteuid() == 0 else "Slurm's daemons have to be started by root"


class Slurm:
    """Daemons that end with this process at the latest, and the commands that talk to them."""

    def __init__(self, folder: Path, environ: Mapping[str, str]) -> None:
        self.folder = folder
        clean = {k: v for k, v in environ.items() if not k.startswith(("SLURM", "SBATCH"))}
        own = {"PATH": _path(environ), "SLURM_CONF": str(folder / "slurm.conf")}
        self.environ = {**clean, **own}
        self._daemons: list[subprocess.Popen[bytes]] = []

    def start(self, timeout: float = 60) -> None:
        """Start it and wait until the node is idle; raises RuntimeError with what the logs say."""
        self.folder.chmod(0o711)  # munge wants its socket within everyone's reach
        for name in ("state", "spool"):
            (self.folder / name).mkdir()
        (self.folder / "munge.key").touch(0o600)
        (self.folder / "munge.key").write_bytes(os.urandom(1024))
        host = socket.gethostname().partition(".")[0]
        text = CONFIGURATION.format(host=host, ports=_ports(2), folder=self.folder, cpus=CPUS)
        (self.folder / "slurm.conf").write_text(text)
        files = {"key-file": "key", "socket": "socket", "pid-file": "pid", "seed-file": "seed"}
        options = [f"--{name}={self.folder}/munge.{end}" for name, end in files.items()]
        self._daemon("munged", "--foreground", *options)
        self._until(lambda: (self.folder / "munge.socket").exists(), timeout)
        self._daemon("slurmctld", "-D")
        self._daemon("slurmd", "-D")
        self._until(lambda: self.run("sinfo", "-h", "-o", "%T").stdout.strip() == "idle", timeout)

    def stop(self) -> None:
        """End the jobs, the daemons and whatever else was started by them."""
        if len(self._daemons) == 3:
            self.run("scancel", "--full", "--signal=KILL", "--user=root")
            with contextlib.suppress(RuntimeError):
                self._until(lambda: not self.run("squeue", "-h").stdout.strip(), 20)
        for daemon in reversed(self._daemons):
            daemon.terminate()
        for daemon in self._daemons:
            with contextlib.suppress(subprocess.TimeoutExpired):
                daemon.wait(10)
            daemon.kill()
            daemon.wait(10)
        for number in self._left():
            with contextlib.suppress(ProcessLookupError):
                os.kill(number, signal.SIGKILL)

    def run(
        self, *command: str, cwd: Path | None = None, timeout: float = 90
    ) -> subprocess.CompletedProcess[str]:
        """A command that talks to this Slurm; raises RuntimeError where it hangs."""
        try:
            return subprocess.run(
                command, cwd=cwd, env=self.environ, capture_output=True, text=True, timeout=timeout
            )
        except subprocess.TimeoutExpired as error:
            raise RuntimeError(f"{' '.join(command)}: no end in {timeout} s\n{self.logs()}") from (
                error
            )

    def submit(self, cwd: Path, *arguments: str) -> str:
        """The number of a job that `sbatch ARGUMENTS` starts."""
        done = self.run("sbatch", "--parsable", *arguments, cwd=cwd)
        if done.returncode:
            raise RuntimeError(done.stderr)
        return done.stdout.strip().partition(";")[0]

    def states(self, job: str) -> dict[str, str]:
        """The state of every task of a job, by its number in an array; of a job alone by ""."""
        shown = self.run("scontrol", "--oneliner", "show", "job", job).stdout
        found = {}
        for line in shown.splitlines():
            fields = dict(word.partition("=")[::2] for word in line.split())
            found[fields.get("ArrayTaskId", "")] = fields.get("JobState", "")
        return found

    def wait(self, job: str, timeout: float = 240) -> dict[str, str]:
        """Until a job and all its tasks are through; returns their states."""
        states: dict[str, str] = {}

        def over() -> bool:
            nonlocal states
            states = self.states(job)
            return bool(states) and all(state in FINISHED for state in states.values())

        self._until(over, timeout)
        return states

    def logs(self) -> str:
        """The end of what the daemons wrote."""
        texts = [f"{path.name}:\n{path.read_text()[-2000:]}" for path in self.folder.glob("*.log")]
        return "\n".join(texts)

    def _daemon(self, *command: str) -> None:
        """A daemon in the foreground, which the kernel ends when this process is gone."""
        with open(self.folder / f"{command[0]}.out.log", "wb") as log:
            with_us = ["setpriv", "--pdeathsig", "KILL", *command]
            self._daemons.append(
                subprocess.Popen(
                    with_us, cwd=self.folder, env=self.environ, stdout=log, stderr=log,
                    stdin=subprocess.DEVNULL, start_new_session=True,
                )
            )  # fmt: skip

    def _until(self, true: Callable[[], bool], timeout: float) -> None:
        end = time.monotonic() + timeout
        while not true():
            gone = [each.args for each in self._daemons if each.poll() is not None]
            if gone or time.monotonic() > end:
                what = f"ended: {gone}" if gone else f"not so in {timeout} s"
                raise RuntimeError(f"Slurm: {what}\n{self.logs()}")
            time.sleep(0.1)

    def _left(self) -> list[int]:
        """Processes that still have this Slurm's configuration in their environment."""
        mark = f"SLURM_CONF={self.environ['SLURM_CONF']}".encode()
        found = []
        for path in Path("/proc").glob("[0-9]*/environ"):
            with contextlib.suppress(OSError):
                if mark in path.read_bytes().split(b"\0"):
                    found.append(int(path.parent.name))
        return found


def _ports(count: int) -> list[int]:
    """Ports that nobody listens on just now."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
