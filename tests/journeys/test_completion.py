"""The Tab key: FILE:DATASET is completed inside files, in the shells themselves."""

from __future__ import annotations

import os
import pty
import re
import select
import shutil
import subprocess
import time

import pytest
from journeys.arrays import write_h5

COMPLETED = {
    "trajcli inspect reach.h5 : reference/": ["reference/acceleration", "reference/position"],
    "trajcli diff reach.h5 : actions reach.h5 : dt": ["dt"],
    "trajcli integrate a.npy --start reach.h5 : start/p": ["start/position"],
    "trajcli inspect none.h5 :": [""],
    "trajcli inspect rea": [""],
    "trajcli insp": ["inspect"],
}
"""Words as bash divides them, and what it then offers first."""
BASH = """
source <(_TRAJCLI_COMPLETE=source_bash trajcli)
while read -u 3 -ra COMP_WORDS; do
    COMP_CWORD=$(( ${#COMP_WORDS[@]} - 1 ))
    _trajcli_completion trajcli
    printf '%s,' "${COMPREPLY[@]}"
    echo
done 3<&0 </dev/null
"""


@pytest.fixture
def home(with_samples, monkeypatch) -> None:
    """The current folder has the sample reach.h5, and trajcli is a command."""
    monkeypatch.chdir(with_samples / "sample_data")
    monkeypatch.setenv("HOME", str(with_samples))
    monkeypatch.setenv("TERM", "xterm")


def need(shell: str) -> str:
    program = shutil.which(shell)
    if program is None:
        pytest.skip(f"{shell} is not installed")
    return program


def test_bash_completes_what_follows_the_colon(home):
    lines = "\n".join([*COMPLETED, ""])
    run = subprocess.run([need("bash"), "-c", BASH], input=lines, capture_output=True, text=True)
    assert run.stderr == ""
    for found, expected in zip(run.stdout.splitlines(), COMPLETED.values(), strict=True):
        assert found.split(",")[: len(expected)] == expected


@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_the_tab_key_of_a_real_terminal_completes_a_dataset(home, shell):
    quiet = {"bash": ["--norc", "--noprofile", "-i"], "zsh": ["-f", "-i"]}
    ready = {"bash": "", "zsh": "autoload -U compinit; compinit -u; "}
    parent, child = pty.openpty()
    command = [need(shell), *quiet[shell]]
    streams = {"stdin": child, "stdout": child, "stderr": child}
    process = subprocess.Popen(command, start_new_session=True, **streams)
    os.close(child)
    try:
        load = f"{ready[shell]}source <(_TRAJCLI_COMPLETE=source_{shell} trajcli); echo re''ady\n"
        os.write(parent, load.encode())
        until(parent, "ready\r")
        os.write(parent, b"trajcli inspect reach.h5:reference/v\t")
        until(parent, "reach.h5:reference/velocity")
    finally:
        process.kill()
        process.wait()
        os.close(parent)


def until(terminal: int, wanted: str) -> None:
    """Read what a terminal shows until it shows something."""
    shown, end = "", time.monotonic() + 60
    while wanted not in re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]|\x08", "", shown):
        assert time.monotonic() < end, shown
        if select.select([terminal], [], [], 0.5)[0]:
            shown += os.read(terminal, 65536).decode("utf-8", "replace")


def test_fish_completes_datasets_and_leaves_files_to_itself(home):
    load = "_TRAJCLI_COMPLETE=source_fish trajcli | source; "
    for typed, expected in (("reach.h5:start/v", "reach.h5:start/velocity"), ("rea", "reach.h5")):
        script = f'{load} complete -C "trajcli inspect {typed}"'
        run = subprocess.run([need("fish"), "--no-config", "-c", script], capture_output=True)
        assert run.stdout.decode().split() == [expected]


def test_many_datasets_are_completed_group_by_group(tmp_path):
    from trajcli.cli.completion import datasets

    path = tmp_path / "demos.h5"
    names = ("actions", "obs/q")
    write_h5(path, {f"data/demo_{i}/{name}": [[0.0]] for i in range(30) for name in names})
    assert datasets(f"{path}:") == [f"{path}:data/"]
    assert datasets(f"{path}:data/demo_2")[:2] == [
        f"{path}:data/demo_2/actions",
        f"{path}:data/demo_2/obs/q",
    ]
    assert len(datasets(f"{path}:data/")) == 30
    assert datasets(f"{path}:/data/demo_7/a") == [f"{path}:/data/demo_7/actions"]


def test_a_name_that_a_shell_would_evaluate_is_not_offered(tmp_path):
    from trajcli.cli.completion import datasets

    path = tmp_path / "in.h5"
    odd = ("$(touch x)", "\\$(touch x)", "`touch x`", "';touch x;'", '"', "a\x1b[2J")
    write_h5(path, dict.fromkeys((*odd, "größe", "obs/q.pos"), 1.0))
    assert sorted(datasets(f"{path}:")) == [f"{path}:größe", f"{path}:obs/q.pos"]
