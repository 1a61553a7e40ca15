"""Shared by all tests: where the sample files and the golden numbers are."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

os.environ.pop("TRAJCLI_SPEEDS", None)  # figures of who runs the tests are not theirs


@pytest.fixture(scope="session")
def samples() -> Path:
    return ROOT / "sample_data"


@pytest.fixture(scope="session")
def golden() -> Path:
    return ROOT / "tests" / "data" / "curobo.h5"
