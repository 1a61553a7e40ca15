"""What --json prints is what --json-schema says: the fixture `trajcli` checks every document."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest

ROOT = Path(__file__).resolve().parents[2]
REACH = "integrate sample_data/reach.h5 --mode jerk --scheme zoh -o"
LINES = {
    "integrate": [f"{REACH} out.h5"],
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


def objects(schema: Any) -> Iterator[dict[str, Any]]:
    """Everything in a schema that lists fields."""
    if isinstance(schema, dict):
        if "properties" in schema:
            yield schema
        schema = list(schema.values())
    for part in schema if isinstance(schema, list) else ():
        yield from objects(part)


@pytest.mark.parametrize("command", LINES)
def test_a_command_has_a_schema_that_allows_no_other_fields(trajcli, command):
    result = trajcli(f"{command} --json-schema")
    assert result.code == 0
    assert result.err == ""
    schema = json.loads(result.out)
    jsonschema.Draft202012Validator.check_schema(schema)
    assert schema["title"] == f"trajcli {command} --json"
    assert all("additionalProperties" in one for one in objects(schema))
    assert schema["$defs"][command]["additionalProperties"] is False


@pytest.mark.parametrize("command", LINES)
def test_a_document_is_what_the_schema_says(trajcli, tmp_path, monkeypatch, command):
    if command == "plot":
        pytest.importorskip("matplotlib")
    shutil.copytree(ROOT / "sample_data", tmp_path / "sample_data")
    monkeypatch.chdir(tmp_path)
    for line in LINES[command]:
        result = trajcli(f"{line} --json")
        assert result.code == 0, result.err
    validator = jsonschema.Draft202012Validator(json.loads(trajcli(f"{command} --json-schema").out))
    document = result.document
    assert validator.is_valid(document)
    assert not validator.is_valid({**document, "another": 1})
    for name in document:
        assert not validator.is_valid({n: v for n, v in document.items() if n != name}) or (
            name in ("resumed_after", "seconds", "gb_per_s")
        )


def test_an_error_is_a_document_of_every_schema(trajcli):
    result = trajcli("check absent.h5 --json")
    assert result.code == 2
    assert set(result.document) == {"error"}
