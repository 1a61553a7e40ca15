"""A run that was stopped goes on where it was, and gives the same bytes."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from trajcli.errors import OutputError, Stopped
from trajcli.jobs.request import Request
from trajcli.jobs.run import run

BATCH = 40
ROOT = str(Path(__file__).resolve().parents[2])


@pytest.fixture
def request_(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Request:
    monkeypatch.chdir(tmp_path)
    random = np.random.default_rng(0)
    np.save("actions.npy", random.standard_normal((BATCH, 30, 3)).astype("f4"))
    np.save("dt.npy", random.uniform(0.01, 0.1, (BATCH, 1)))
    return Request(
        sources=["actions.npy"], out=Path("out.h5"), dt="dt.npy", start="zero", memory=1 << 15
    )


def stop_at(share: float) -> Callable[[float, int], None]:
    """A progress report that sends SIGTERM when this share is done."""

    def progress(done: float, total: int) -> None:
        if done >= share * total:
            os.kill(os.getpid(), signal.SIGTERM)

    return progress


def contents(path: Path) -> Any:
    if path.is_dir():
        return {
            str(p.relative_to(path)): p.read_bytes() for p in sorted(path.rglob("*")) if p.is_file()
        }
    return path.read_bytes()


@pytest.mark.parametrize("name", ["out.h5", "out.npz", "out", "out.zarr"])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"write": ("position",), "mode": "jerk"},
        {"to": 200.0, "options": {"scheme": "zoh"}, "pack": True},
    ],
)
def test_a_stopped_run_is_resumed_to_the_same_bytes(request_, name, options):
    asked = replace(request_, out=Path(name), **options)
    run(asked)
    want = contents(Path(name))
    asked = replace(asked, overwrite=True)
    with pytest.raises(Stopped, match="--resume"):
        run(asked, on_progress=stop_at(0.3))
    assert contents(Path(name)) == want  # the old one is as it was
    with pytest.raises(Stopped):
        run(replace(asked, resume=True), on_progress=stop_at(0.7))
    seen: list[float] = []
    report = run(replace(asked, resume=True), on_progress=lambda done, total: seen.append(done))
    assert 0.7 * BATCH <= report["resumed_after"] < min(seen)
    assert contents(Path(name)) == want
    assert sorted(p.name for p in Path().iterdir()) == ["actions.npy", "dt.npy", name]


def test_what_another_command_left_is_not_gone_on_with(request_):
    with pytest.raises(Stopped):
        run(request_, on_progress=stop_at(0.5))
    other = replace(request_, mode="jerk", resume=True)
    assert run(other)["resumed_after"] == 0
    fresh = replace(request_, mode="jerk", out=Path("fresh.h5"))
    run(fresh)
    assert Path("out.h5").read_bytes() == Path("fresh.h5").read_bytes()


def test_a_changed_input_starts_again(request_):
    with pytest.raises(Stopped):
        run(request_, on_progress=stop_at(0.5))
    np.save("actions.npy", np.ones((BATCH, 30, 3), "f4"))
    os.utime("actions.npy", ns=(0, 1))
    assert run(replace(request_, resume=True))["resumed_after"] == 0


def test_without_resume_a_run_starts_again_and_leaves_nothing(request_):
    with pytest.raises(Stopped):
        run(request_, on_progress=stop_at(0.5))
    assert not Path("out.h5").exists()
    assert run(request_)["resumed_after"] == 0
    assert sorted(p.name for p in Path().iterdir()) == ["actions.npy", "dt.npy", "out.h5"]


def test_resume_with_nothing_left_behind_is_a_run(request_):
    assert run(replace(request_, resume=True))["resumed_after"] == 0


def deflated() -> bytes:
    """An archive whose compressed array is damaged."""
    buffer = io.BytesIO()
    np.savez_compressed(buffer, backend=np.arange(1000))
    return buffer.getvalue()[:70] + b"\xff" * 20 + buffer.getvalue()[90:]


def endless() -> bytes:
    """An archive of an array that says it has 10^13 numbers."""
    header = b"{'descr':'<f8','fortran_order':False,'shape':(10000000000000,)}"
    header = header.ljust(117) + b"\n"
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("backend.npy", b"\x93NUMPY\x01\x00\x76\x00" + header)
    return buffer.getvalue()


@pytest.mark.parametrize("damaged", [b"{", deflated(), endless()], ids=["text", "zlib", "size"])
def test_a_damaged_journal_starts_again(request_, damaged):
    with pytest.raises(Stopped):
        run(request_, on_progress=stop_at(0.5))
    Path(".out.h5.trajcli-stopped/journal").write_bytes(damaged)
    assert run(replace(request_, resume=True))["resumed_after"] == 0


RESUMABLE: dict[str, dict[str, Any]] = {
    "compressed": {"compress": 2},
    "gradients": {"cost": "jerk+velocity"},
    "compressed gradients": {"cost": "jerk", "compress": 1, "wrt": ("start", "dt")},
    "by torch": {"cost": "jerk", "backend": "torch"},
    "sums over states": {"cost": "jerk", "start_index": "index.npy", "start": "states.npy"},
    "sums over steps": {"cost": "jerk", "dt": "steps.npy", "mode": "central"},
}


@pytest.mark.parametrize("options", RESUMABLE.values(), ids=RESUMABLE)
def test_gradients_and_compressed_files_are_resumed_to_the_same_bytes(
    request_, monkeypatch, options
):
    monkeypatch.setattr("trajcli.files.compressed._CHUNK_BYTES", 5000)
    random = np.random.default_rng(1)
    np.save("index.npy", random.integers(0, 3, BATCH))
    np.save("states.npy", random.standard_normal((3, 3)))
    np.save("steps.npy", random.uniform(0.01, 0.1, 30))
    asked = replace(request_, memory=1 << 18 if "cost" in options else 1 << 15, **options)
    run(asked)
    want = Path("out.h5").read_bytes()
    asked = replace(asked, overwrite=True)
    with pytest.raises(Stopped, match="--resume"):
        run(asked, on_progress=stop_at(0.3))
    assert Path("out.h5").read_bytes() == want
    with pytest.raises(Stopped):
        run(replace(asked, resume=True), on_progress=stop_at(0.7))
    assert run(replace(asked, resume=True))["resumed_after"] >= 0.7 * BATCH
    assert Path("out.h5").read_bytes() == want
    assert not [p for p in Path().iterdir() if p.name.startswith(".")]


def test_results_that_are_not_finite_are_counted_over_all_of_a_run(request_):
    np.save("actions.npy", np.full((BATCH, 30, 3), 3e38, "f4"))
    whole = run(request_)["notes"]
    assert "too large" in str(whole)
    asked = replace(request_, overwrite=True)
    with pytest.raises(Stopped):
        run(asked, on_progress=stop_at(0.5))
    assert run(replace(asked, resume=True))["notes"] == whole


def test_a_resume_that_is_killed_while_it_completes_leaves_nothing_to_trust(request_, monkeypatch):
    asked = replace(request_, compress=1)
    run(asked)
    want = Path("out.h5").read_bytes()
    asked = replace(asked, overwrite=True)
    with pytest.raises(Stopped):
        run(asked, on_progress=stop_at(0.5))
    code = (
        "import os, signal, h5py\n"
        "h5py.h5d.open = lambda *_: os.kill(os.getpid(), signal.SIGKILL)\n"
        "from trajcli.cli import main\n"
        "main('integrate actions.npy --dt dt.npy --start zero --memory 32kB --compress 1 '\n"
        "     '-o out.h5 --overwrite --resume'.split())\n"
    )
    killed = subprocess.run([sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": ROOT})
    assert killed.returncode == -signal.SIGKILL
    assert list(Path().glob(".out.h5.trajcli-*/chunks"))
    assert run(replace(asked, resume=True))["resumed_after"] == 0
    assert Path("out.h5").read_bytes() == want
    assert not [p for p in Path().iterdir() if p.name.startswith(".")]


def removed(path: Path) -> None:
    path.unlink()


def cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def zeroed(path: Path) -> None:
    """The same file with the same size and the same time of its last change."""
    before = path.stat()
    with open(path, "rb+") as file:
        file.write(bytes(before.st_size))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def replaced(path: Path) -> None:
    path.write_bytes(path.read_bytes())


def linked(path: Path) -> None:
    os.link(path, path.parent.parent / "another name")


@pytest.mark.parametrize("damage", [removed, cut, zeroed, replaced, linked])
@pytest.mark.parametrize("name", ["out.h5", "out.npz", "out", "packed.h5"])
def test_what_is_not_as_it_was_left_is_begun_anew(request_, name, damage):
    asked = replace(request_, out=Path(name), compress=1 if name == "packed.h5" else None)
    run(asked)
    want = contents(Path(name))
    asked = replace(asked, overwrite=True)
    with pytest.raises(Stopped, match="--resume"):
        run(asked, on_progress=stop_at(0.5))
    stopped = Path(f".{name}.trajcli-stopped")
    files = [p for p in stopped.rglob("*") if p.is_file() and p.name != "journal"]
    damage(max(files, key=lambda path: path.stat().st_size))
    report = run(replace(asked, resume=True))
    assert report["resumed_after"] == 0
    assert any("begun anew" in note for note in report["notes"])
    assert contents(Path(name)) == want
    assert not list(Path().glob(".*"))


def test_what_another_user_left_is_not_adopted(request_, monkeypatch):
    run(request_)
    want = contents(Path("out.h5"))
    asked = replace(request_, overwrite=True)
    with pytest.raises(Stopped):
        run(asked, on_progress=stop_at(0.5))
    stopped = Path(".out.h5.trajcli-stopped")
    os.chmod(stopped, 0o777)
    before = sorted(p.name for p in stopped.iterdir())
    report = run(replace(asked, resume=True))
    assert any("begun anew" in note for note in report["notes"])
    assert contents(Path("out.h5")) == want
    assert sorted(p.name for p in stopped.iterdir()) == before


def test_a_fifo_as_a_journal_is_not_waited_for(request_):
    stopped = Path(".out.h5.trajcli-stopped")
    stopped.mkdir(0o700)
    os.mkfifo(stopped / "journal")
    assert run(replace(request_, resume=True))["resumed_after"] == 0


def test_one_writer_at_a_time_also_when_resuming(request_):
    def second(done: float, total: int) -> None:
        with pytest.raises(OutputError, match="another run"):
            run(replace(request_, resume=True))

    run(request_, on_progress=second)


@pytest.mark.parametrize("pack", [False, True])
@pytest.mark.parametrize("memory", [1 << 15, 1 << 20])
def test_trajectories_of_different_length_are_resumed_to_the_same_bytes(request_, pack, memory):
    random = np.random.default_rng(4)
    lengths = [30, 900, 7, 30, 411, 7, 899, 30, 12, 5000]
    with h5py.File("demos.h5", "w") as file:
        for i, length in enumerate(lengths):
            file[f"data/demo_{i}/actions"] = random.standard_normal((length, 3)).astype("f4")
            file[f"data/demo_{i}/dt"] = random.uniform(0.01, 0.1)
    asked = replace(request_, sources=["demos.h5"], dt=None, pack=pack, memory=memory)
    run(asked)
    want = contents(Path("out.h5"))
    asked = replace(asked, overwrite=True)
    for share in (0.2, 0.6, 0.85):
        with pytest.raises(Stopped, match="--resume"):
            run(replace(asked, resume=share > 0.2), on_progress=stop_at(share))
        assert contents(Path("out.h5")) == want
    assert run(replace(asked, resume=True))["resumed_after"] > 0.8 * len(lengths)
    assert contents(Path("out.h5")) == want
    left = sorted(p.name for p in Path().iterdir())
    assert left == ["actions.npy", "demos.h5", "dt.npy", "out.h5"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2])
def test_a_signal_before_the_work_begins_is_exit_code_75_too(number):
    code = (
        "import os\n"
        "from trajcli.cli import start_process\n"
        "start_process()\n"
        f"os.kill(os.getpid(), {int(number)})\n"
    )
    done = subprocess.run([sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": ROOT})
    assert done.returncode == 75


def test_what_another_command_has_left_is_not_dropped_without_a_word(request_):
    with pytest.raises(Stopped):
        run(request_, on_progress=stop_at(0.5))
    other = replace(request_, mode="jerk", resume=True)
    assert any("begun anew" in note for note in run(other)["notes"])
    assert not any("begun anew" in note for note in run(replace(other, overwrite=True))["notes"])


def test_what_lies_in_the_place_of_what_a_run_has_left_is_begun_anew(request_):
    stopped = Path(".out.h5.trajcli-stopped")
    np.savez("other.npz", backend=np.array("\x1b[31mnative"))
    np.savez("more.npz", more=np.array("native"))
    for garbage in (b"", b"PK\x03\x04", *map(_bytes, ("actions.npy", "other.npz", "more.npz"))):
        stopped.mkdir(0o700)
        (stopped / "journal").write_bytes(garbage)
        report = run(replace(request_, resume=True, overwrite=True))
        assert any("begun anew" in note for note in report["notes"])


def _bytes(name: str) -> bytes:
    return Path(name).read_bytes()
