"""Without the calls that only some systems have, results are the same."""

from __future__ import annotations

import ctypes
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from trajcli import system

RUN = "integrate actions.npy --start start.npy --dt 0.02 --quiet"


@pytest.fixture
def poor(monkeypatch: pytest.MonkeyPatch) -> None:
    """A system without any of them."""

    class Library:
        signal = ctypes.CDLL(None).signal

    def refused(*_: object) -> None:
        raise ValueError("not on this system")

    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.delattr(os, "posix_fallocate", raising=False)
    monkeypatch.setattr(system.ctypes, "CDLL", lambda *_, **options: Library())
    monkeypatch.setattr(resource, "setrlimit", refused)
    monkeypatch.setattr(system, "_MOUNTS", "/not/on/this/system")


def written(trajcli, name: str) -> list[bytes]:
    for _ in range(2):  # the second time in the place of the first
        result = trajcli(f"{RUN} -o {name} --overwrite")
        assert result.code == 0, result.err
    assert trajcli(f"check {name} --quiet").code == 0
    assert not [path for path in os.listdir() if path.startswith(".")]
    path = Path(name)
    parts = sorted(path.glob("*.npy")) if path.is_dir() else [path]
    return [part.read_bytes() for part in parts]


@pytest.mark.parametrize("out", ["out.h5", "out.npz"])
def test_outputs_are_the_same(trajcli, folder, request, out):
    rich = written(trajcli, out)
    request.getfixturevalue("poor")
    assert written(trajcli, out) == rich


def test_each_call_has_another_way(folder, poor):
    assert system.processors() == os.cpu_count()
    assert system.file_system("/") == ""
    before = os.stat("actions.npy").st_size
    descriptor = os.open("actions.npy", os.O_RDWR)
    system.allocate(descriptor, 3)
    assert os.stat("actions.npy").st_size == before
    system.allocate(descriptor, 5000)
    assert os.stat("actions.npy").st_size == 5000
    os.close(descriptor)


def test_windows_is_refused_in_a_line_that_names_wsl():
    code = "import sys; sys.platform = 'win32'; import trajcli"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    last = ended.stderr.splitlines()[-1]
    assert last.startswith("ImportError: trajcli does not run on Windows itself")
    assert "WSL" in last


def test_a_run_without_compiled_kernels_says_so_and_what_it_costs(trajcli, folder, monkeypatch):
    from trajcli.kernels import native

    monkeypatch.setattr(native, "_library", lambda: (None, "not built: no C++ compiler was found"))
    result = trajcli("integrate actions.npy --start start.npy --dt 0.02 -o out.h5")
    assert result.code == 0
    line = next(line for line in result.out.splitlines() if line.startswith("on cpu by torch"))
    assert "kernels not built: no C++ compiler was found; torch takes ten times as long" in line
