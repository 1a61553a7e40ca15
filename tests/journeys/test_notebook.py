"""The notebook runs, cell by cell, and is stored without outputs."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("matplotlib")
pytest.importorskip("xarray")

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "sample_data" / "tour.ipynb").read_text(encoding="utf-8")
CODE = [cell for cell in json.loads(TEXT)["cells"] if cell["cell_type"] == "code"]


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    return Path(shutil.copytree(ROOT / "sample_data", tmp_path / "sample_data"))


def test_the_cells_run_in_their_order(copy):
    script = "\n\n".join("".join(cell["source"]) for cell in CODE)
    env = {**os.environ, "PYTHONPATH": str(ROOT), "MPLBACKEND": "Agg"}
    command = [sys.executable, "-W", "error", "-c", script]
    run = subprocess.run(command, cwd=copy, env=env, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr


def test_a_kernel_runs_it(copy, monkeypatch):
    nbclient, nbformat = pytest.importorskip("nbclient"), pytest.importorskip("nbformat")
    pytest.importorskip("ipykernel")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("IPYTHONDIR", str(copy / "ipython"))
    notebook = nbformat.reads(TEXT, as_version=4)
    nbformat.validate(notebook)
    resources = {"metadata": {"path": str(copy)}}
    nbclient.NotebookClient(notebook, timeout=300, resources=resources).execute()
    shown = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    assert any("image/png" in output.get("data", {}) for output in shown)
    assert all(output["output_type"] in ("execute_result", "display_data") for output in shown)


def test_it_is_stored_without_outputs_and_places():
    assert not any(cell["outputs"] or cell["execution_count"] for cell in CODE)
    assert not re.search(r"/(home|tmp|work|Users)/|20\d\d-", TEXT)
    assert set(json.loads(TEXT)["metadata"]["language_info"]) == {"name"}
