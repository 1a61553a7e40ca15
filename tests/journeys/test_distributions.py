"""What is published: a complete sdist, and from it a wheel of the package alone."""

from __future__ import annotations

import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
from journeys.conftest import ROOT

BUILD = "from scikit_build_core.build import {0} as build; build({1!r}, {2!r})"


def build(kind: str, source: Path, out: Path, **options: str) -> Path:
    """Builds in this environment, and away from the source."""
    options |= {"build-dir": f"{out}-build"}
    code = BUILD.format(f"build_{kind}", str(out), options)
    subprocess.run([sys.executable, "-c", code], cwd=source, check=True, capture_output=True)
    (made,) = out.iterdir()
    return made


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An sdist, unpacked."""
    folder = tmp_path_factory.mktemp("source")
    with tarfile.open(build("sdist", ROOT, tmp_path_factory.mktemp("sdist"))) as archive:
        archive.extractall(folder, filter="data")
    (source,) = folder.iterdir()
    return source


def test_an_sdist_has_what_it_takes_to_build_test_and_read(source):
    found = {str(path.relative_to(source)) for path in source.rglob("*") if path.is_file()}
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True)
    if tracked.returncode == 0 and (ROOT / ".git").exists():
        assert found == {*tracked.stdout.splitlines(), "PKG-INFO"}
    assert {".ci/constraints.txt", "CHANGELOG.md", "LICENSE", "README.md"} <= found
    assert {"tests/conftest.py", "sample_data/reach.h5", "docs/data.md"} <= found


def test_a_wheel_holds_the_package_alone(source, tmp_path):
    # the loops take ten seconds to compile, and no other file of the wheel depends on them
    for loops in (source / "trajcli/kernels/native").glob("level*.cpp"):
        loops.write_text("")
    plain = {"cmake.define.CMAKE_CXX_FLAGS_RELEASE": "-O0"}
    made = build("wheel", source, tmp_path / "wheel", **plain)
    assert made.name.startswith("trajcli-")
    assert "-py3-none-" in made.name
    with zipfile.ZipFile(made) as wheel:
        names = {name for name in wheel.namelist() if ".dist-info/" not in name}
        kernels = wheel.read("trajcli/kernels/native/_kernels.so")
        assert not [name for name in wheel.namelist() if b"/tmp/" in wheel.read(name)]
    modules = {str(path.relative_to(ROOT)) for path in (ROOT / "trajcli").rglob("*.py")}
    beside = {"py.typed", "kernels/native/_kernels.so", "kernels/native/fields.def"}
    assert names == modules | {f"trajcli/{name}" for name in beside}
    assert str(source.parent).encode() not in kernels


def test_without_a_compiler_a_wheel_is_built_without_kernels(source, tmp_path, monkeypatch):
    monkeypatch.setenv("CXX", "/bin/false")
    with zipfile.ZipFile(build("wheel", source, tmp_path / "wheel")) as archive:
        assert "trajcli/kernels/native/_kernels.so" not in archive.namelist()
        assert "trajcli/__init__.py" in archive.namelist()
