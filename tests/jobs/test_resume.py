"""A run that was stopped goes on where it was, and gives the same bytes."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from trajcli.errors import OutputError, Stopped
from trajcli.jobs.request import Request
from trajcli.jobs.run import run

BATCH = 40


@pytest.fixture
def request_(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Request:
    monkeypatch.chdir(tmp_path)
    random = np.random.default_rng(0)
    np.save("actions.npy", random.standard_normal((BATCH, 30, 3)).astype("f4"))
    np.save("dt.npy", random.uniform(0.01, 0.1, (BATCH, 1)))
    return Request(
        sources=["actions.npy"], out=Path("out.h5"), dt="dt.npy", start="zero", memory=1 << 15
    )


def stop_at(share: float) -> Callable[[int, int], None]:
    """A progress report that sends SIGTERM when this share is done."""

    def progress(done: int, total: int) -> None:
        if done >= share * total:
            os.kill(os.getpid(), signal.SIGTERM)

    return progress


def contents(path: Path) -> Any:
    if path.is_dir():
        return {p.name: p.read_bytes() for p in sorted(path.rglob("*")) if p.is_file()}
    return path.read_bytes()


@pytest.mark.parametrize("name", ["out.h5", "out.npz", "out"])
@pytest.mark.parametrize("options", [{}, {"write": ("position",), "mode": "jerk"}])
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
    seen: list[int] = []
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


def test_a_damaged_journal_starts_again(request_):
    with pytest.raises(Stopped):
        run(request_, on_progress=stop_at(0.5))
    (journal,) = Path().glob(".*journal")
    journal.write_text("{")
    assert run(replace(request_, resume=True))["resumed_after"] == 0


def test_gradients_start_again(request_):
    asked = replace(request_, cost="jerk", memory=1 << 18)
    with pytest.raises(Stopped, match="nothing was kept"):
        run(asked, on_progress=stop_at(0.3))
    assert sorted(p.name for p in Path().iterdir()) == ["actions.npy", "dt.npy"]
    assert run(replace(asked, resume=True))["resumed_after"] == 0


def test_one_writer_at_a_time_also_when_resuming(request_):
    def second(done: int, total: int) -> None:
        with pytest.raises(OutputError, match="another run"):
            run(replace(request_, resume=True))

    run(request_, on_progress=second)
