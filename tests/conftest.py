"""Shared by all tests: where the sample files and the golden numbers are."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def samples() -> Path:
    return ROOT / "sample_data"


@pytest.fixture(scope="session")
def golden() -> Path:
    return ROOT / "tests" / "data" / "curobo.h5"
