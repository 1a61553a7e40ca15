"""What the help, docs/json.md, the pictures and the notebook show is what happens."""

from __future__ import annotations

import importlib
import json
import pkgutil
import re
import shlex
import shutil
from pathlib import Path

import numpy as np
import pytest
from journeys.conftest import ROOT, python

import trajcli.cli
from trajcli.cli import COMMANDS

MODULES = [name for _, name, _ in pkgutil.iter_modules(trajcli.cli.__path__)]
EXAMPLES = {
    name: re.findall(r"^ +trajcli (.*)$", text, re.MULTILINE)
    for name in MODULES
    if (text := getattr(importlib.import_module(f"trajcli.cli.{name}"), "EXAMPLE", ""))
}


def test_every_command_has_an_example():
    assert set(COMMANDS) <= set(EXAMPLES)


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_examples_of_a_command_work(trajcli, with_samples, name):
    if name == "plot":
        pytest.importorskip("matplotlib")
    assert EXAMPLES[name]
    for line in EXAMPLES[name]:
        assert trajcli.ok("", *shlex.split(line)).out
        assert line.split()[0] in trajcli(f"{name} --help").out
        if re.match(r"integrate \S*reach.h5", line):  # what this sample holds
            assert "--mode jerk --scheme zoh" in line


def test_the_page_of_json_is_what_commands_print(monkeypatch):
    pytest.importorskip("matplotlib")
    monkeypatch.syspath_prepend(ROOT / "docs")
    page = importlib.import_module("make_json").page()
    assert page == (ROOT / "docs/json.md").read_text(encoding="utf-8")


def test_an_error_is_a_document(trajcli):
    result = trajcli.refuses("check absent.h5 --json")
    assert set(result.document) == {"error"}
    (fault,) = result.document["error"]["faults"]
    assert set(fault) <= {"what", "where", "expected", "found", "hint"}


PICTURES = ROOT / "sample_data" / "pictures"


def test_pictures_are_what_the_script_draws(tmp_path):
    imread = pytest.importorskip("matplotlib.image").imread
    ignored = shutil.ignore_patterns("pictures")
    copy = Path(shutil.copytree(ROOT / "sample_data", tmp_path / "sample_data", ignore=ignored))
    made = tmp_path / "new"
    run = python("-W", "error", str(copy / "make_pictures.py"), str(made))
    assert run.returncode == 0, run.stderr
    assert "$ trajcli check out.h5" in run.stdout
    assert "checks passed" in run.stdout
    assert {path.name for path in PICTURES.iterdir()} == {path.name for path in made.iterdir()}
    pages = [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]
    text = "".join(page.read_text(encoding="utf-8") for page in pages)
    for picture in PICTURES.iterdir():
        here, anew = imread(picture), imread(made / picture.name)
        assert here.shape == anew.shape
        assert np.abs(here - anew).mean() < 0.02  # letters differ a little between versions
        assert here.std() > 0.05
        assert picture.stat().st_size < 200_000
        assert f"sample_data/pictures/{picture.name})" in text


NOTEBOOK = (ROOT / "sample_data" / "tour.ipynb").read_text(encoding="utf-8")
CODE = [cell for cell in json.loads(NOTEBOOK)["cells"] if cell["cell_type"] == "code"]


def test_the_cells_of_the_notebook_run_in_their_order(with_samples, monkeypatch):
    pytest.importorskip("matplotlib")
    pytest.importorskip("xarray")
    monkeypatch.chdir("sample_data")
    script = "\n\n".join("".join(cell["source"]) for cell in CODE)
    run = python("-W", "error", "-c", script, MPLBACKEND="Agg")
    assert run.returncode == 0, run.stderr


def test_a_kernel_runs_the_notebook(with_samples, monkeypatch):
    nbclient, nbformat = pytest.importorskip("nbclient"), pytest.importorskip("nbformat")
    pytest.importorskip("ipykernel")
    monkeypatch.setenv("IPYTHONDIR", str(with_samples / "ipython"))
    notebook = nbformat.reads(NOTEBOOK, as_version=4)
    nbformat.validate(notebook)
    resources = {"metadata": {"path": str(with_samples / "sample_data")}}
    nbclient.NotebookClient(notebook, timeout=300, resources=resources).execute()
    shown = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    assert any("image/png" in output.get("data", {}) for output in shown)
    assert all(output["output_type"] in ("execute_result", "display_data") for output in shown)


def test_the_notebook_is_stored_without_outputs_and_places():
    assert not any(cell["outputs"] or cell["execution_count"] for cell in CODE)
    assert not re.search(r"/(home|tmp|work|Users)/|20\d\d-", NOTEBOOK)
    assert set(json.loads(NOTEBOOK)["metadata"]["language_info"]) == {"name"}
