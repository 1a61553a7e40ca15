"""The pictures of the README and of docs/ are those that their script makes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("matplotlib")

ROOT = Path(__file__).resolve().parents[2]
PICTURES = ROOT / "sample_data" / "pictures"
PAGES = [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A folder that the script wrote its pictures into, and what it printed."""
    folder = tmp_path_factory.mktemp("made")
    copy = folder / "copy" / "sample_data"
    copy.mkdir(parents=True)
    for part in (ROOT / "sample_data").iterdir():
        if part.is_file():
            (copy / part.name).write_bytes(part.read_bytes())
    command = [sys.executable, "-W", "error", str(copy / "make_pictures.py"), str(folder / "new")]
    import os

    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    run = subprocess.run(command, env=env, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    return folder / "new", run.stdout


@pytest.mark.parametrize("name", sorted(path.name for path in PICTURES.iterdir()))
def test_a_picture_is_what_the_script_draws(made, name):
    from matplotlib.image import imread

    here, anew = imread(PICTURES / name), imread(made[0] / name)
    assert here.shape == anew.shape
    assert np.abs(here - anew).mean() < 0.02  # letters differ a little between versions
    assert here.std() > 0.05
    assert (PICTURES / name).stat().st_size < 200_000


def test_every_picture_is_made_and_shown_on_a_page(made):
    text = "".join(page.read_text(encoding="utf-8") for page in PAGES)
    names = sorted(path.name for path in PICTURES.iterdir())
    assert names == sorted(path.name for path in made[0].iterdir())
    assert all(f"sample_data/pictures/{name})" in text for name in names)


def test_the_script_prints_the_transcript(made):
    assert "$ trajcli check out.h5" in made[1]
    assert "checks passed" in made[1]
