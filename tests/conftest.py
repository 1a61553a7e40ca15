"""Shared by all tests: where the sample files are."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def samples() -> Path:
    return ROOT / "sample_data"
