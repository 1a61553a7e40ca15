"""What a run leaves for the next one's choice, and that it leaves nothing else."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from trajcli.errors import Stopped
from trajcli.jobs import pace
from trajcli.jobs.request import Request
from trajcli.jobs.run import run
from trajcli.jobs.sharded import run_share
from trajcli.jobs.share import Share
from trajcli.kernels import cuda, native

ROOT = Path(__file__).resolve().parents[2]
SHAPE = (4000, 50, 7)

pytestmark = pytest.mark.skipif(bool(native.absence()), reason=native.absence())


@pytest.fixture
def request_(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Request:
    """A job on a machine with a driver, long enough for what is measured here."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TRAJCLI_SPEEDS", "speed.json")
    monkeypatch.setattr(cuda, "driver", lambda: True)
    monkeypatch.setattr(pace, "LEAST_SECONDS", 1e-4)
    monkeypatch.setattr(pace, "LEAST_ACTIONS", 1_000_000)
    np.save("actions.npy", np.ones(SHAPE, "f4"))
    return Request(sources=["actions.npy"], out=Path("out.h5"), dt="0.02", start="zero")


def left() -> dict[str, Any]:
    """What the file says of this machine."""
    if not os.path.exists("speed.json"):
        return {}
    (here,) = json.loads(Path("speed.json").read_text())["machines"].values()
    return {name: [value for value, _ in values] for name, values in here.items()}


@pytest.mark.parametrize("backend", ["native", "torch"])
def test_a_run_on_the_cpu_leaves_its_rate(request_, backend):
    began = time.perf_counter()
    report = run(replace(request_, device="cpu", backend=backend))
    seconds = time.perf_counter() - began
    assert report["device"] == "cpu"
    (name,), ((rate,),) = left(), left().values()
    assert name == f"cpu {backend}"
    least = np.prod(SHAPE) / seconds
    assert least <= rate < 100 * least


def test_a_second_run_adds_to_the_first(request_):
    for _ in range(2):
        run(replace(request_, overwrite=True))
    assert len(left()["cpu native"]) == 2


@pytest.mark.parametrize(("least", "value"), [("SECONDS", 60.0), ("ACTIONS", 1_400_001)])
def test_a_short_run_leaves_nothing(request_, monkeypatch, least, value):
    monkeypatch.setattr(pace, f"LEAST_{least}", value)
    run(request_)
    assert not os.path.exists("speed.json")


def test_without_a_driver_a_run_leaves_nothing(request_, monkeypatch):
    monkeypatch.setattr(cuda, "driver", lambda: False)
    assert run(request_)["device_reason"] == "no CUDA device is present"
    assert left() == {}


def test_a_run_that_is_unlike_most_leaves_nothing(request_):
    run(replace(request_, cost="jerk"))
    run(replace(request_, compress=1, overwrite=True))
    run_share(replace(request_, overwrite=True, share=Share(0, 2)))
    assert left() == {}


def test_shares_decide_by_figures_that_all_machines_have(request_):
    run(request_)
    asked = replace(request_, overwrite=True)
    assert "the CPU's measured here" in run(asked, dry=True)["device_reason"]
    reason = run_share(replace(asked, share=Share(0, 2)), dry=True)["device_reason"]
    assert reason.endswith("(built-in figures)")


def test_a_run_that_did_not_end_leaves_nothing(request_):
    import signal

    few = replace(request_, memory=1 << 22)
    with pytest.raises(Stopped):
        run(few, on_progress=lambda *_: os.kill(os.getpid(), signal.SIGTERM))
    assert left() == {}


@pytest.mark.parametrize("place", ["/proc/none/speed.json", ".", "", "actions.npy/speed.json"])
def test_a_run_is_the_same_where_figures_cannot_be_kept(request_, monkeypatch, place):
    run(request_)
    want = request_.out.read_bytes()
    monkeypatch.setenv("TRAJCLI_SPEEDS", place)
    report = run(replace(request_, overwrite=True))
    assert request_.out.read_bytes() == want
    assert report["notes"] == []


def test_to_keep_figures_takes_less_than_a_millisecond(request_):
    from trajcli.kernels import speeds

    def timed() -> float:
        began = time.perf_counter()
        speeds.keep({"cpu native": 1e8, "cuda start": 3.0})
        return time.perf_counter() - began

    assert min(timed() for _ in range(50)) < 1e-3


WATCHED = """
import runpy, sys
sys.addaudithook(lambda name, given: name == "open" and print("opened", given[0], file=sys.stderr))
runpy.run_module("trajcli", run_name="__main__", alter_sys=True)
"""


@pytest.mark.skipif(cuda.driver(), reason="a driver is loaded")
@pytest.mark.parametrize("words", ["integrate actions.npy --dt 0.1 --start zero -o o.h5", "info"])
def test_without_a_driver_the_file_is_never_looked_at(request_, words):
    Path("speed.json").write_text("mine")
    done = subprocess.run(
        [sys.executable, "-c", WATCHED, *words.split()],
        capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "opened " in done.stderr
    assert "speed.json" not in done.stderr
    assert Path("speed.json").read_text() == "mine"
