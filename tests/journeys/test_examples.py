"""The examples in the help of every command work, from a folder that has sample_data in it."""

from __future__ import annotations

import importlib
import pkgutil
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import trajcli.cli

ROOT = Path(__file__).resolve().parents[2]
MODULES = [name for _, name, _ in pkgutil.iter_modules(trajcli.cli.__path__)]
EXAMPLES = {
    name: re.findall(r"^ +trajcli (.*)$", text, re.MULTILINE)
    for name in MODULES
    if (text := getattr(importlib.import_module(f"trajcli.cli.{name}"), "EXAMPLE", ""))
}


def test_every_command_has_an_example():
    run = [sys.executable, "-m", "trajcli", "--help"]
    shown = subprocess.run(run, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    commands = set(re.findall(r"^  ([a-z]+)  ", shown.partition("Commands:")[2], re.MULTILINE))
    assert {"inspect", "plot", "check", "diff", "export"} <= commands
    assert commands <= set(EXAMPLES)


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_examples_of_a_command_work(trajcli, tmp_path, monkeypatch, name):
    if name == "plot":
        pytest.importorskip("matplotlib")
    shutil.copytree(ROOT / "sample_data", tmp_path / "sample_data")
    monkeypatch.chdir(tmp_path)
    assert EXAMPLES[name]
    for line in EXAMPLES[name]:
        result = trajcli("", *shlex.split(line))
        assert result.code == 0, f"{line}\n{result.err}"
        assert result.out
        help_text = trajcli(f"{name} --help").out
        assert line.split()[0] in help_text


READ_AS = {"reach.h5": "--mode jerk --scheme zoh"}
"""What the actions of a sample are, where it is not what no --mode means."""


@pytest.mark.parametrize("name", EXAMPLES)
def test_examples_integrate_a_sample_as_what_it_holds(name):
    for line in EXAMPLES[name]:
        for sample, mode in READ_AS.items():
            if line.startswith("integrate ") and sample in line.split()[1]:
                assert mode in line
