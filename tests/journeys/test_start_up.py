"""What must start fast imports little; systems that lack some calls get the same results."""

from __future__ import annotations

import ctypes
import os
import resource
from pathlib import Path
from subprocess import CompletedProcess as Run

import pytest
from journeys.conftest import python

from trajcli import system
from trajcli.cli import COMMANDS
from trajcli.kernels import native

LOADED = """
import atexit, runpy, sys
atexit.register(lambda: print("loaded:", *sys.modules, file=sys.stderr))
runpy.run_module("trajcli", run_name="__main__", alter_sys=True)
"""


def loaded(*arguments: str, **variables: str) -> tuple[set[str], Run[str]]:
    """The modules a command line imports, and what it printed."""
    run = python("-c", LOADED, *arguments, **variables)
    (line,) = (line for line in run.stderr.split("\n") if line.startswith("loaded:"))
    names = set(line.split()[1:])
    assert "typer" in names
    return names, run


@pytest.mark.parametrize("words", ["--version", "integrate --help", "modes --json"])
def test_help_and_modes_import_no_large_library_and_no_other_command(words):
    names, run = loaded(*words.split())
    assert run.returncode == 0
    assert run.stdout
    assert names.isdisjoint({"torch", "h5py", "numpy", "matplotlib", "rich", "markdown_it", "attr"})
    commands = [name for name in COMMANDS if f"trajcli.cli.{name}" in names]
    assert words == "--version" or commands == [words.split()[0]]


@pytest.mark.parametrize("shell", ["bash", "fish"])
def test_completion_imports_neither_torch_nor_h5py(shell):
    variables = {
        "_TRAJCLI_COMPLETE": f"complete_{shell}",
        "COMP_WORDS": "trajcli int",
        "COMP_CWORD": "1",
        "_TYPER_COMPLETE_ARGS": "trajcli int",
        "_TYPER_COMPLETE_FISH_ACTION": "get-args",
    }
    names, run = loaded(**variables)
    assert "integrate" in run.stdout
    assert names.isdisjoint({"torch", "h5py", "matplotlib"})


def test_importing_the_package_imports_neither_torch_nor_h5py():
    code = "import trajcli, sys; print({'torch', 'h5py', 'numpy'} & set(sys.modules))"
    assert python("-c", code).stdout == "set()\n"


def test_functions_of_gradients_can_be_the_first_to_import_torch():
    pytest.importorskip("torch")
    code = "import trajcli; print(trajcli.clip_gradient.__name__)"
    assert python("-c", code).stdout == "clip_gradient\n"


@pytest.mark.skipif(bool(native.absence()), reason=native.absence())
@pytest.mark.parametrize(
    "words",
    [
        "integrate {samples}/reach.h5 --mode jerk -o {out}",
        "differentiate {samples}/recorded.h5:position --method central -o {out}",
        "integrate {samples}/control_points.npz --mode bspline --ends goal -o {out} --cost jerk",
        "resample {samples}/recorded.h5:position --to 50 --method cubic -o {out}",
        "info",
    ],
)
def test_cpu_jobs_import_neither_torch_nor_masked_arrays(samples, tmp_path, words):
    names, run = loaded(*words.format(samples=samples, out=tmp_path / "out.h5").split())
    assert run.returncode == 0, run.stderr
    assert "torch" not in names
    # masked arrays take a fortieth of the time of a short command
    assert "numpy.ma" not in names or words.startswith("resample")


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="counts threads as Linux does")
def test_numpy_starts_no_threads_that_only_wait(monkeypatch):
    code = (
        "import atexit, os, sys\n"
        "sys.argv = ['trajcli', 'info', '--quiet']\n"
        "atexit.register(lambda: print(len(os.listdir('/proc/self/task'))))\n"
        "from trajcli.cli import run\n"
        "run()\n"
    )
    for name in [name for name in os.environ if name.endswith("_NUM_THREADS")]:
        monkeypatch.delenv(name)
    assert python("-c", code).stdout == "1\n"


@pytest.mark.skipif(bool(native.absence()), reason=native.absence())
def test_numpy_in_numpy_out_never_imports_torch():
    code = (
        "import sys, numpy as np, trajcli\n"
        "found = trajcli.integrate(np.ones((2, 9, 3)), np.zeros(3), 0.1, 'central')\n"
        "assert type(found.position) is np.ndarray\n"
        "assert 'torch' not in sys.modules\n"
    )
    assert python("-c", code).returncode == 0


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


def written(trajcli, name: str) -> bytes:
    for _ in range(2):  # the second time in the place of the first
        trajcli.ok(f"{RUN} -o {name} --overwrite")
    trajcli.ok(f"check {name} --quiet")
    assert not [path for path in os.listdir() if path.startswith(".")]
    return Path(name).read_bytes()


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
    ended = python("-c", "import sys; sys.platform = 'win32'; import trajcli")
    last = ended.stderr.splitlines()[-1]
    assert last.startswith("ImportError: trajcli does not run on Windows itself")
    assert "WSL" in last


def test_a_run_without_compiled_kernels_says_so_and_what_it_costs(trajcli, folder, monkeypatch):
    monkeypatch.setattr(native, "_library", lambda: (None, "not built: no C++ compiler was found"))
    result = trajcli.ok("integrate actions.npy --start start.npy --dt 0.02 -o out.h5")
    line = next(line for line in result.out.splitlines() if line.startswith("on cpu by torch"))
    assert "kernels not built: no C++ compiler was found; torch takes ten times as long" in line
