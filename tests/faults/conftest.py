"""A folder with inputs, and a library that takes the locks of files away."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from faults.campaign import build_shim, write_inputs


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TRAJCLI_MEMORY", "2kB")  # several blocks
    write_inputs(tmp_path)
    return tmp_path


@pytest.fixture(scope="session")
def shim(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The path of the library that counts calls and takes locks away."""
    if not (shutil.which("gcc") or shutil.which("cc")):
        pytest.skip("no C compiler")
    return str(build_shim(tmp_path_factory.mktemp("shim")))


@pytest.fixture(params=["locks", "no locks"])
def environ(request: pytest.FixtureRequest) -> dict[str, str]:
    """Variables of a process on a file system with, and without locks."""
    if request.param == "locks":
        return {}
    return {"LD_PRELOAD": request.getfixturevalue("shim"), "FAULTS_NO_LOCKS": "1"}
