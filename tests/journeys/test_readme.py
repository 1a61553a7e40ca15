"""What the README and the pages in docs show is what happens: every example in them runs."""

from __future__ import annotations

import re
import shlex
import subprocess
from functools import partial

import pytest
from journeys.conftest import ROOT

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
TEXTS = {page.name: page.read_text(encoding="utf-8") for page in PAGES}
README = TEXTS["README.md"]
JOBS = ("logs.md", "demonstrations.md")
"""Pages whose commands are typed one after the other."""


def page_blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def blocks(language: str) -> list[str]:
    return [block for text in TEXTS.values() for block in page_blocks(text, language)]


@pytest.fixture
def shell(trajcli, with_samples):
    """What a block of commands prints, all of which must succeed: those that a shell has nothing
    to add to are run in this process, which has NumPy and torch already."""

    def run(block: str) -> str:
        printed = ""
        for line in block.strip().split("\n"):
            if line.startswith("trajcli ") and not re.search(r"[|<$&*]", line):
                printed += trajcli.ok("", *shlex.split(line)[1:]).out
                continue
            done = subprocess.run(["sh", "-ec", line], capture_output=True, text=True)
            assert done.returncode == 0, done.stderr
            printed += done.stdout
        return printed

    return run


ALONE = [x for name in TEXTS if name not in JOBS for x in page_blocks(TEXTS[name], "sh")]


@pytest.mark.parametrize("block", ALONE, ids=lambda block: block.split("\n")[0][:60])
def test_a_shell_example_runs(shell, block):
    assert shell(block)


@pytest.mark.parametrize("page", JOBS)
def test_the_five_commands_of_a_page_run_one_after_the_other(shell, page):
    sections = re.split(r"^## ([0-9])\. .*$", TEXTS[page], flags=re.MULTILINE)
    assert sections[1::2] == ["1", "2", "3", "4", "5"]
    for section in sections[2::2]:
        assert page_blocks(section, "sh")[0].count("\n") == 1
    for block in page_blocks(TEXTS[page], "sh"):
        assert shell(block)


@pytest.mark.parametrize("block", blocks("python"), ids=lambda block: block.split("\n")[0][:60])
def test_a_python_example_runs(with_samples, block, capsys, monkeypatch):
    for peer in re.findall(r"^(?:import|from) (ray|torchdiffeq|diffrax)\b", block, re.MULTILINE):
        pytest.importorskip(peer)
    if "torch.compile" in block:  # C++ of inductor takes most of the time, and is none of ours
        torch = pytest.importorskip("torch")
        monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="aot_eager"))
    exec(compile(block, "example", "exec"), {"__name__": "__main__"})
    printed = capsys.readouterr().out
    for line in re.findall(r"print\(.*\)  # (.*)", block):
        assert line in printed


def test_the_readme_is_short_and_leads_to_every_page():
    assert README.count("\n") <= 260
    for page in PAGES[1:]:
        assert f"docs/{page.name}" in README
    for name, text in TEXTS.items():
        folder = ROOT if name == "README.md" else ROOT / "docs"
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text):
            assert (folder / target).exists(), f"{name} links to {target}"


def test_there_are_two_set_up_commands_of_one_line_each():
    commands = "".join(blocks("bash")).strip().split("\n")
    assert len(commands) == 2
    assert all(line.startswith("python3 -m venv .venv && ") for line in commands)


def test_the_transcript_shows_what_the_commands_print(shell):
    transcript = "\n".join(blocks("text"))
    printed = "".join(map(shell, re.findall(r"^\$ (.*)$", transcript, re.MULTILINE)))
    known = {line.strip() for line in printed.split("\n")} | {"", "..."}
    for line in transcript.split("\n"):
        if not re.search(r"^\$ |B in .* s$|───", line):
            assert line.strip() in known, line


def test_every_option_named_in_the_pages_exists():
    from trajcli.cli import command_line

    flags = {flag for c in command_line().commands.values() for p in c.params for flag in p.opts}
    text = "\n".join(TEXTS.values())
    for block in blocks("shell"):  # run in tests/cluster, or on a device
        text = text.replace(block, "")
    named = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", text))
    flags |= {"--help", "--version", "--install-completion"}
    flags |= {"--array", "--user"}  # of sbatch and systemd-run
    flags |= {"--seconds", "--report"}  # of benchmarks/gpu.py
    assert named <= flags
