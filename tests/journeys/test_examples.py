"""What the help, docs/json.md, the pictures and the notebook show is what happens."""

from __future__ import annotations

import importlib
import json
import pkgutil
import re
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

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
        result = trajcli.ok("", *shlex.split(line))
        assert result.out
        assert line.split()[0] in trajcli(f"{name} --help").out
        if re.match(r"integrate \S*reach.h5", line):  # what this sample holds
            assert "--mode jerk --scheme zoh" in line


REACH = "integrate sample_data/reach.h5 --mode jerk --scheme zoh -o"
LINES = {
    "integrate": [f"{REACH} out.h5"],
    "differentiate": ["differentiate sample_data/recorded.h5 -o out.h5"],
    "inspect": ["inspect sample_data/reach.h5"],
    "check": ["check sample_data/recorded.h5"],
    "score": ["score sample_data/recorded.h5 sample_data/reach.h5"],
    "diff": ["diff sample_data/start.npy sample_data/start.npy"],
    "plot": ["plot sample_data/reach.h5 -o out.png"],
    "export": ["export sample_data/recorded.h5 -o out.npz"],
    "resample": ["resample sample_data/recorded.h5:position --to 250 -o out.h5"],
    "retime": [f"{REACH} out.h5", "retime out.h5 --limits sample_data/limits.toml -o paced.h5"],
    "fit": ["fit sample_data/recorded.h5:position --knots 20 -o out.h5"],
    "status": [f"{REACH} out.h5 --shard 0/1", "status out.h5"],
    "merge": [f"{REACH} out.h5 --shard 0/1", "merge out.h5"],
    "modes": ["modes"],
    "info": ["info"],
}


def documented(command: str) -> dict[str, bool]:
    """The fields of a command in docs/json.md, and whether each is always there."""
    page = (ROOT / "docs/json.md").read_text(encoding="utf-8")
    section = re.split(r"(?m)^## ", page.split(f"\n## {command}\n")[1])[0]
    more = documented("integrate") if "The fields of `integrate`" in section else {}
    rows = re.findall(r"(?m)^\| `([^`]+)`(\??) \|", section)
    return more | {name: not optional for name, optional in rows}


def fields(value: Any, prefix: str = "") -> Iterator[str]:
    """The paths of all fields of a document."""
    if isinstance(value, dict):
        for name, inner in value.items():
            yield prefix + name
            yield from fields(inner, f"{prefix}{name}.")
    for entry in value if isinstance(value, list) else ():
        yield from fields(entry, f"{prefix[:-1]}[].")


@pytest.mark.parametrize("command", LINES)
def test_a_document_has_the_fields_that_are_documented(trajcli, with_samples, command):
    if command == "plot":
        pytest.importorskip("matplotlib")
    for line in LINES[command]:
        result = trajcli.ok(f"{line} --json")
    listed = documented(command)
    found = set(fields(json.loads(result.out)))
    patterns = "|".join(re.sub(r"<\w+>", "[^.]+", re.escape(name)) for name in listed)
    assert not [name for name in found if not re.fullmatch(patterns, name)]
    required = {name for name, always in listed.items() if always}
    assert {name for name in required if "." not in name.removeprefix("files[].")} <= found


def test_an_error_is_a_document(trajcli):
    result = trajcli.refuses("check absent.h5 --json")
    assert set(result.document) == {"error"}
    (fault,) = result.document["error"]["faults"]
    assert set(fault) <= {"what", "where", "expected", "found", "hint"}


PICTURES = ROOT / "sample_data" / "pictures"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that the script wrote its pictures into; it prints the transcript."""
    pytest.importorskip("matplotlib")
    folder = tmp_path_factory.mktemp("made")
    ignored = shutil.ignore_patterns("pictures")
    copy = Path(shutil.copytree(ROOT / "sample_data", folder / "sample_data", ignore=ignored))
    script, new = copy / "make_pictures.py", folder / "new"
    run = python("-W", "error", str(script), str(new))
    assert run.returncode == 0, run.stderr
    assert "$ trajcli check out.h5" in run.stdout
    assert "checks passed" in run.stdout
    return new


@pytest.mark.parametrize("name", sorted(path.name for path in PICTURES.iterdir()))
def test_a_picture_is_what_the_script_draws(made, name):
    from matplotlib.image import imread

    here, anew = imread(PICTURES / name), imread(made / name)
    assert here.shape == anew.shape
    assert np.abs(here - anew).mean() < 0.02  # letters differ a little between versions
    assert here.std() > 0.05
    assert (PICTURES / name).stat().st_size < 200_000


def test_every_picture_is_made_and_shown_on_a_page(made):
    pages = [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]
    text = "".join(page.read_text(encoding="utf-8") for page in pages)
    names = sorted(path.name for path in PICTURES.iterdir())
    assert names == sorted(path.name for path in made.iterdir())
    assert all(f"sample_data/pictures/{name})" in text for name in names)


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
