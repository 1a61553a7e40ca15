"""Every command that looks at files, on every sample, on broken files and on empty batches."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]
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


def run(trajcli, name: str, file: Path):
    if "rrd" in name:
        pytest.importorskip("rerun")
    if name in ("plot", "histogram"):
        pytest.importorskip("matplotlib")
    return trajcli(COMMANDS[name].format(file=file))


@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.parametrize("sample", SAMPLES)
def test_a_sample_is_looked_at(trajcli, samples, folder, sample, name):
    result = run(trajcli, name, samples / sample)
    failed = name == "check" and sample == "recorded_faulty.h5"  # as it should
    assert result.code == (1 if failed else 0), result.err
    assert result.out
    assert result.err == ""
    assert "\x1b" not in result.out


@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.parametrize("sample", ["reach.h5", "accelerations.npy", "control_points.npz"])
def test_a_broken_file_is_one_message_and_exit_2(trajcli, samples, folder, sample, name):
    broken = folder / f"broken{Path(sample).suffix}"
    whole = (samples / sample).read_bytes()
    broken.write_bytes(whole[: len(whole) // 3])
    before = sorted(folder.iterdir())
    result = trajcli(COMMANDS[name].format(file=broken))
    assert result.code == 2
    assert result.out == ""
    assert len(re.findall(r"^error: |^\d+ errors: ", result.err, re.MULTILINE)) == 1
    assert "broken" in result.err
    assert "Traceback" not in result.err
    assert sorted(folder.iterdir()) == before


@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.parametrize("kind", ["h5", "npy", "output"])
def test_an_empty_batch_is_no_fault_but_nothing_to_draw_or_export(trajcli, folder, name, kind):
    np.save("none.npy", np.zeros((0, 10, 3)))
    with h5py.File("none.h5", "w") as file:
        file["actions"] = np.zeros((0, 10, 3))
    file = folder / f"none.{kind}"
    if kind == "output":
        assert trajcli("integrate none.npy --start zero --dt 1 -o none.output.h5").code == 0
        file = folder / "none.output.h5"
    result = run(trajcli, name, file)
    if "--episodes" in COMMANDS[name] or name in ("plot", "histogram", "score") or "export" in name:
        assert result.code == 2
        assert result.err.count("error: ") == 1
        assert not list(folder.glob("fig.*")) + list(folder.glob("out.*"))
    else:
        assert result.code == 0, result.err


@pytest.mark.parametrize("name", ["check", "plot", "export csv"])
def test_a_file_without_trajectories_says_what_it_has(trajcli, folder, name):
    with h5py.File("in.h5", "w") as file:
        file["temperature"] = np.ones(5)
    result = run(trajcli, name, folder / "in.h5")
    assert result.code == 2
    assert "no trajectories found" in result.err
    assert "temperature" in result.err


@pytest.mark.parametrize(("columns", "letters"), [(80, "utf-8"), (120, "ascii")])
@pytest.mark.parametrize("name", ["inspect", "check", "score", "diff"])
def test_a_real_terminal_is_not_overrun_and_a_pipe_gets_no_escape_codes(
    samples, name, columns, letters
):
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
    plain = on_a_terminal(command, {**env, "NO_COLOR": "1"})
    assert "\x1b" not in plain


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
    ("command", "line"),
    [("plot", "pip install matplotlib"), ("export", "pip install rerun-sdk")],
)
def test_help_names_the_line_that_installs_what_a_command_needs(trajcli, command, line):
    text = " ".join(trajcli(f"{command} --help").out.split())
    assert f"{line}." in text
    assert "'trajcli" not in text


@pytest.mark.parametrize(
    ("file", "what", "content"),
    [
        ("line.npy", "wrong number of dimensions", "[5]"),
        ("complex.npy", "not real numbers", "complex numbers (complex128)"),
        ("line.h5", "wrong number of dimensions", "[5]"),
    ],
)
@pytest.mark.parametrize("name", ["check", "plot", "export csv"])
def test_an_array_that_is_no_trajectory_says_what_it_is(trajcli, folder, name, file, what, content):
    np.save("line.npy", np.ones(5))
    np.save("complex.npy", np.ones((2, 3, 4), complex))
    with h5py.File("line.h5", "w") as made:
        made["start/position"], made["position"] = np.ones(3), np.ones(5)
    result = run(trajcli, name, folder / file)
    assert result.code == 2
    assert f"{file}{':/position' * file.endswith('h5')}: {what}\n" in result.err
    assert f"  found:    {content}\n" in result.err


def test_one_is_told_as_one(trajcli, folder):
    np.save("one.npy", np.load("actions.npy")[:1])
    job = "integrate one.npy --start zero --dt 1 -o out.h5"
    assert trajcli(f"{job} --shard 0/1").code == 0
    assert "out.h5: 1 trajectory of 1 part, " in trajcli("merge out.h5").out
    (folder / "limits.toml").write_text("[velocity]\nupper = [1.0, 1.0, 1.0]")
    retimed = trajcli("retime out.h5 --limits limits.toml -o new.h5")
    assert ": 1 trajectory, steps from " in retimed.out
