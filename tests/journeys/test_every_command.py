"""Every command that looks at files, on every sample, on broken files and on empty batches."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from journeys.conftest import ROOT

SAMPLES = (
    "reach.h5",
    "accelerations.npy",
    "start.npy",
    "control_points.npz",
    "recorded.h5",
    "recorded_faulty.h5",
)
COMMANDS = {
    "inspect": "inspect {file}",
    "inspect full": "inspect {file} --full --episodes 0",
    "check": "check {file}",
    "score": "score {file} --rate 50",
    "diff": "diff {file} {file}",
    "plot": "plot {file} -o fig.png",
    "histogram": "plot {file} --histogram -o fig.svg",
    "export csv": "export {file} --episodes 0 -o out.csv",
    "export npz": "export {file} -o out.npz",
    "export rrd": "export {file} -o out.rrd",
}


@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.parametrize("sample", SAMPLES)
def test_a_sample_is_looked_at(trajcli, samples, folder, sample, name):
    if "rrd" in name:
        pytest.importorskip("rerun")
    if name in ("plot", "histogram"):
        pytest.importorskip("matplotlib")
    result = trajcli(COMMANDS[name].format(file=samples / sample))
    failed = name == "check" and sample == "recorded_faulty.h5"  # as it should
    assert result.code == (1 if failed else 0), result.err
    assert result.out
    assert result.err == ""
    assert "\x1b" not in result.out


@pytest.mark.parametrize(
    ("name", "columns", "letters"), [("inspect", 80, "utf-8"), ("score", 120, "ascii")]
)
def test_terminals_are_not_overrun_and_pipes_get_no_escape_codes(samples, name, columns, letters):
    words = COMMANDS[name].format(file=samples / "reach.h5").split()
    command = [sys.executable, "-m", "trajcli", *words]
    env = {**os.environ, "PYTHONPATH": str(ROOT), "TERM": "xterm-256color"}
    env |= {"COLUMNS": str(columns), "PYTHONIOENCODING": letters}
    env.pop("NO_COLOR", None)
    piped = subprocess.run(command, capture_output=True, env=env, check=True).stdout
    assert b"\x1b" not in piped
    shown = on_a_terminal(command, env)
    lines = re.sub(r"\x1b\[[0-9;]*m", "", shown).splitlines()
    assert all(len(line) <= columns for line in lines)
    if letters == "ascii":
        assert shown.isascii()
        assert piped.isascii()
    elif name == "inspect":
        assert re.search("[\u2801-\u28ff]", shown)
        assert "\x1b[38;5;" in shown
        assert not re.search("[\u2801-\u28ff]", piped.decode())
    assert "\x1b" not in on_a_terminal(command, {**env, "NO_COLOR": "1"})


def on_a_terminal(command: list[str], env: dict[str, str]) -> str:
    """What a command shows on a pseudo-terminal."""
    parent, child = pty.openpty()
    with subprocess.Popen(command, stdout=child, stderr=child, stdin=child, env=env) as process:
        os.close(child)
        shown = b""
        while True:
            try:
                piece = os.read(parent, 65536)
            except OSError:
                break
            if not piece:
                break
            shown += piece
    os.close(parent)
    assert process.returncode == 0
    return shown.decode()


@pytest.mark.parametrize(
    "line",
    [
        "integrate in.npz --start zero -o out.h5",
        "differentiate in.npz:actions -o out.npz",
        "resample in.npz --to 20 -o out.h5",
        "fit in.npz:actions --knots 8 -o out.h5",
        "export in.npz -o out.csv",
        "export in.npz -o out.h5",
        "export in.npz -o out.npz",
        "plot in.npz -o out.png",
        "score in.npz:actions --csv out.csv",
    ],
)
def test_an_existing_output_is_kept_unless_told_and_an_input_always(trajcli, folder, line):
    if line.startswith("plot"):
        pytest.importorskip("matplotlib")
    np.savez("in.npz", actions=np.sin(np.arange(30.0))[:, None], dt=0.1)
    command, _, out = line.rpartition(" ")
    mine, data = Path(out), Path("in.npz").read_bytes()
    mine.write_bytes(b"mine")
    trajcli.refuses(line, "already exists")
    trajcli.refuses(f"{line.replace('in.npz', 'none.npz')} --overwrite", "none.npz")
    assert mine.read_bytes() == b"mine"
    trajcli.ok(f"{line} --overwrite")
    assert mine.read_bytes() != b"mine"
    os.symlink("in.npz", f"alias{mine.suffix}")
    os.link("in.npz", f"twin{mine.suffix}")
    for other in (f"alias{mine.suffix}", f"twin{mine.suffix}"):
        trajcli.refuses(f"{command} {other} --overwrite", "the output is an input")
    assert Path("in.npz").read_bytes() == data
