"""The site builds without a warning and has every command, option and public name."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from html import unescape
from pathlib import Path

import pytest
from journeys.conftest import ROOT

import trajcli
from trajcli.cli import COMMANDS, command_line

for module in ("mkdocs", "material", "mkdocstrings"):
    pytest.importorskip(module)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "-f", ".mkdocs.yml", "-d"]
    env = {**os.environ, "PYTHONPATH": str(ROOT), "NO_MKDOCS_2_WARNING": "1"}
    run = subprocess.run([*command, out], cwd=ROOT, env=env, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert "excluded" not in run.stderr  # what a page links to
    return out


def text(page: Path) -> str:
    return unescape(re.sub(r"<[^>]*>", "", page.read_text(encoding="utf-8")))


def test_every_link_leads_to_a_file(site):
    pages = list(site.rglob("*.html"))
    assert {"index.html", "modes.html", "CONTRIBUTING.html"} <= {page.name for page in pages}
    for page in pages:
        if page.name != "404.html":
            links = re.findall(r'(?:href|src)="([^"#?]+)', page.read_text(encoding="utf-8"))
            for link in (link for link in links if "://" not in link):
                assert (page.parent / link).exists(), f"{page.name} links to {link}"


def test_every_command_is_there_with_its_options_and_fields(site):
    shown = text(site / "commands.html")
    commands = command_line().commands
    flags = {max(one.opts, key=len) for each in commands.values() for one in each.params}
    assert all(flag in shown for flag in flags if flag.startswith("--"))
    assert "shape.trajectories" in text(site / "json.html")
    sections = re.findall(r'<h2 id="(\w+)"', (site / "commands.html").read_text(encoding="utf-8"))
    assert sections == list(COMMANDS)


def test_every_public_name_is_there_with_its_docstring(site):
    page = (site / "api.html").read_text(encoding="utf-8")
    assert all(f'id="trajcli.{name}"' in page for name in trajcli.__all__)
    assert trajcli.integrate.__doc__.split("\n")[0].replace("`", "") in text(site / "api.html")
