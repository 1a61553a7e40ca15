"""docs/json.md names exactly the fields that the commands print."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "json.md").read_text(encoding="utf-8")
REACH = "integrate sample_data/reach.h5 --mode jerk --scheme zoh -o"
LINES = {
    "integrate": [f"{REACH} out.h5"],
    "inspect": ["inspect sample_data/reach.h5"],
    "check": ["check sample_data/recorded.h5"],
    "score": ["score sample_data/recorded.h5"],
    "diff": ["diff sample_data/start.npy sample_data/start.npy"],
    "plot": ["plot sample_data/reach.h5 -o out.png"],
    "export": ["export sample_data/recorded.h5 -o out.npz"],
    "resample": ["resample sample_data/recorded.h5:position --to 250 -o out.h5"],
    "retime": [f"{REACH} out.h5", "retime out.h5 --limits sample_data/limits.toml -o paced.h5"],
    "fit": ["fit sample_data/recorded.h5:position --knots 20 -o out.h5"],
    "operator": ["operator --mode jerk --horizon 10 --dt 0.02 -o out.npz"],
    "status": [f"{REACH} out.h5 --shard 0/1", "status out.h5"],
    "merge": [f"{REACH} out.h5 --shard 0/1", "merge out.h5"],
    "modes": ["modes"],
    "info": ["info"],
}


def documented(command: str) -> set[str]:
    section = PAGE.split(f"\n## {command}\n")[1].split("\n## ")[0]
    cells = re.findall(r"^\| (`[^|]*) \|", section, re.MULTILINE)
    return {name for cell in cells for name in re.findall(r"`(\w+)`", cell)}


def test_every_command_has_its_section(trajcli):
    assert set(re.findall(r"^## (\w+)$", PAGE, re.MULTILINE)) == set(LINES)


@pytest.mark.parametrize("command", LINES)
def test_the_page_names_the_fields_of_a_command(trajcli, tmp_path, monkeypatch, command):
    if command == "plot":
        pytest.importorskip("matplotlib")
    shutil.copytree(ROOT / "sample_data", tmp_path / "sample_data")
    monkeypatch.chdir(tmp_path)
    for line in LINES[command]:
        result = trajcli(f"{line} --json")
        assert result.code == 0, result.err
    assert set(json.loads(result.out)) == documented(command)
