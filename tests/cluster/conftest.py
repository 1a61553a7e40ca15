"""The command as a function and a folder to work in, for tests of shards."""

from __future__ import annotations

from pathlib import Path

import pytest
from journeys.conftest import _no_variables, trajcli  # noqa: F401


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
