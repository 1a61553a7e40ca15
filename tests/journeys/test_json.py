"""What --json prints is what docs/json.md lists."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
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
def test_a_document_has_the_fields_that_are_documented(trajcli, tmp_path, monkeypatch, command):
    if command == "plot":
        pytest.importorskip("matplotlib")
    shutil.copytree(ROOT / "sample_data", tmp_path / "sample_data")
    monkeypatch.chdir(tmp_path)
    for line in LINES[command]:
        result = trajcli(f"{line} --json")
        assert result.code == 0, result.err
    listed = documented(command)
    found = set(fields(json.loads(result.out)))
    patterns = "|".join(re.sub(r"<\w+>", "[^.]+", re.escape(name)) for name in listed)
    assert not [name for name in found if not re.fullmatch(patterns, name)]
    assert {
        name
        for name, always in listed.items()
        if always and "." not in name.removeprefix("files[].")
    } <= found


def test_an_error_is_a_document(trajcli):
    result = trajcli("check absent.h5 --json")
    assert result.code == 2
    assert set(result.document) == {"error"}
    (fault,) = result.document["error"]["faults"]
    assert set(fault) <= {"what", "where", "expected", "found", "hint"}
