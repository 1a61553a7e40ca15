"""The lines of docs/clusters.md give the run in one piece, by the launchers found here.

Slurm's lines run without its daemons: what it would start, with the variables that it would set.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from trajcli.errors import UsageError
from trajcli.jobs.request import Shard, parse_shard

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "clusters.md").read_text(encoding="utf-8")
(BLOCK,) = re.findall(r"^```shell\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
LINES = {
    # two processes are enough, as each takes its time to start
    title: re.sub("/64", "/2", re.sub("seq 0 63", "seq 0 1", re.sub(r"(-n|node) 4", r"\1 2", line)))
    for title, line in re.findall(r"^# (.*)\n((?:.+\n)+)", BLOCK, re.MULTILINE)
}
STARTED = {  # what a launcher starts on a line: of each process the variables
    "sbatch": lambda k: {"SLURM_ARRAY_TASK_ID": k},
    "srun": lambda k: {"SLURM_PROCID": k, "SLURM_NTASKS": 2},
}
PROGRAMS = {"mpirun": "mpirun.openmpi --oversubscribe", "mpiexec": "mpiexec.hydra"}
"""Names that do not depend on which MPI is the machine's choice, and more tasks than processors."""


def test_there_is_a_line_for_every_launcher():
    programs = [re.findall(r"sbatch|srun|torchrun|mpirun|mpiexec|parallel", line)[0]
               for line in LINES.values()]  # fmt: skip
    assert programs == ["sbatch", "srun", "torchrun", "mpirun", "mpiexec", "parallel"]


@pytest.mark.parametrize("title", LINES)
def test_a_documented_line_computes_every_shard(title, trajcli, tmp_path):
    # trajcli and torchrun on the path, run by this Python; root may use Open MPI
    (tmp_path / "bin").mkdir()
    for name, module in (("trajcli", "trajcli"), ("torchrun", "torch.distributed.run")):
        script = tmp_path / "bin" / name
        script.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m {module} "$@"\n')
        script.chmod(0o755)
    path = f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}"
    root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    environ = {**os.environ, **root, "PATH": path, "PYTHONPATH": str(ROOT)}
    shutil.copytree(ROOT / "sample_data", tmp_path / "sample_data")

    def run(line: str, **more: object) -> None:
        variables = environ | {name: str(value) for name, value in more.items()}
        done = subprocess.run(
            ["bash", "-ec", line], cwd=tmp_path, env=variables, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stdout + done.stderr

    line = LINES[title]
    program = line.split()[0]
    if program in STARTED:
        command = re.search("'(.*)'", line, re.DOTALL)
        for k in range(2):
            run(command[1], **STARTED[program](k))
    else:
        program = "parallel" if "parallel" in line else program
        command = PROGRAMS.get(program, program)
        if shutil.which(command.split()[0], path=environ["PATH"]) is None:
            pytest.skip(f"{command.split()[0]} is not installed")
        run(line.replace(program, command))
    trajcli("status out.h5", code=0)
    trajcli("merge out.h5", code=0)
    trajcli("integrate sample_data/reach.h5 --mode jerk --scheme zoh -o whole.h5", code=0)
    assert (tmp_path / "out.h5").read_bytes() == (tmp_path / "whole.h5").read_bytes()


def test_a_shard_is_two_numbers():
    assert parse_shard("2/5") == Shard(2, 5)
    for text in ("4", "-1/4", "0/0", "1/", "4/4", "auto", "٣/4", "9" * 5000 + "/2"):
        with pytest.raises(UsageError) as refused:
            parse_shard(text)
        assert refused.value.faults[0].what == "not a shard"
        assert refused.value.faults[0].where == "--shard"
