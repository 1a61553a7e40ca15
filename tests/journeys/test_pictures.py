"""The pictures of the README are those that their script makes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("matplotlib")

ROOT = Path(__file__).resolve().parents[2]


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


@pytest.mark.parametrize("name", ["reach.png", "peaks.png"])
def test_a_picture_is_what_the_script_draws(made, name):
    from matplotlib.image import imread

    here, anew = imread(ROOT / "sample_data" / "pictures" / name), imread(made[0] / name)
    assert here.shape == anew.shape
    assert np.abs(here - anew).mean() < 0.02  # letters differ a little between versions
    assert here.std() > 0.05
    assert (ROOT / "sample_data" / "pictures" / name).stat().st_size < 200_000


def test_every_picture_is_in_the_readme_and_every_one_there_is_in_it(made):
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    names = sorted(path.name for path in (ROOT / "sample_data" / "pictures").iterdir())
    assert names == sorted(path.name for path in made[0].iterdir())
    assert all(f"(sample_data/pictures/{name})" in readme for name in names)


def test_the_script_prints_the_transcript(made):
    assert "$ trajcli check out.h5" in made[1]
    assert "checks passed" in made[1]
