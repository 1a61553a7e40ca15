"""--device auto goes by what this machine has measured, and a file that is never in the way.

The device here is only said to be there.
"""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pytest

from trajcli.kernels import cuda, native, speeds
from trajcli.kernels.choose import choose

ROOT = Path(__file__).resolve().parents[2]
TODAY = date.today().isoformat()

pytestmark = pytest.mark.skipif(bool(native.absence()), reason=native.absence())


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where figures are kept, on a machine with a device; not there yet."""
    monkeypatch.setenv("TRAJCLI_SPEEDS", str(tmp_path / "speed.json"))
    monkeypatch.setattr(cuda, "driver", lambda: True)
    monkeypatch.setattr(cuda, "absence", lambda: "")
    monkeypatch.setattr(cuda, "count", lambda: 1)
    monkeypatch.setattr(cuda, "trouble", lambda name: "")
    monkeypatch.setattr(cuda, "capability", lambda name: (9, 0))
    return tmp_path / "speed.json"


def measure(**runs: float) -> None:
    """What two runs on each device have left: cpu_native=1e8."""
    for _ in range(2):
        speeds.keep({name.replace("_", " "): value for name, value in runs.items()})


@pytest.mark.parametrize(
    ("known", "even"),
    [
        ({}, 300_000_000),
        ({"cpu_native": 5e7}, 150_000_000),
        ({"cuda_start": 2.0}, 200_000_000),
        ({"cpu_native": 5e7, "cuda_start": 2.0}, 100_000_000),
        ({"cuda_start": 2.0, "cuda_triton": 2e8}, 400_000_000),
        ({"cuda_start": 2.0, "cuda_torch": 2e8}, 400_000_000),
        ({"cuda_start": 2.0, "cuda_triton": 4e8, "cuda_torch": 2e8}, 266_666_666),
    ],
)
def test_a_device_is_taken_from_where_it_is_done_sooner(file, known, even):
    measure(**known)
    assert choose(actions=even - 1000).device == "cpu"
    assert choose(actions=even + 1000).device == "cuda:0"


def test_a_device_that_is_slower_than_the_cpu_is_never_taken(file):
    measure(cuda_triton=9e7)
    assert choose(actions=10**12).device == "cpu"


def test_backend_torch_is_weighed_by_its_own_figures(file):
    measure(cpu_native=1e8, cpu_torch=1e6, cuda_start=2.0, cuda_triton=9e5, cuda_torch=2e6)
    assert choose(backend="torch", actions=3_999_000).device == "cpu"
    assert choose(backend="torch", actions=4_001_000).device == "cuda:0"


@pytest.mark.parametrize(
    ("known", "actions", "reason"),
    [
        ({}, 10_000, "less than 0.1 s, a CUDA device about 3.0 s to start (built-in figures)"),
        (
            {"cpu_native": 9e7},
            35_000_000,
            "about 0.4 s, a CUDA device about 3.0 s to start "
            "(the CPU's measured here, the device's built in)",
        ),
        (
            {"cuda_start": 2.61},
            35_000_000_000,
            "about 350 s, a CUDA device about 2.6 s to start "
            "(the device's measured here, the CPU's built in)",
        ),
        (
            {"cpu_native": 9e7, "cuda_start": 2.61, "cuda_triton": 1e9},
            900_000_000,
            "about 10.0 s, a CUDA device about 3.5 s with its start (both measured here)",
        ),
    ],
)
def test_the_reason_says_the_figures_and_where_they_are_from(file, known, actions, reason):
    measure(**known)
    assert choose(actions=actions).reason.split("; ")[0] == f"{actions:,} actions take the CPU " + (
        reason
    )


def test_shares_go_by_the_figures_that_all_machines_have(file):
    measure(cpu_native=1e12)
    assert choose(actions=10**10).device == "cpu"
    chosen = choose(actions=10**10, shared=True)
    assert chosen.device == "cuda:0"
    assert "(built-in figures)" in chosen.reason


@pytest.mark.parametrize(("before", "device"), [("native", "cpu"), ("triton", "cuda:0")])
@pytest.mark.parametrize("actions", [1000, 10**12])
def test_a_job_goes_on_with_the_backend_it_was_begun_with(file, before, device, actions):
    chosen = choose(actions=actions, before=before)
    assert chosen.device == device
    assert chosen.reason.startswith(f"the run it goes on with had backend {before}")


def test_a_job_begun_on_a_device_that_is_gone_goes_on_as_it_can(file, monkeypatch):
    monkeypatch.setattr(cuda, "absence", lambda: "torch finds no CUDA device")
    assert choose(actions=10**12, before="triton").device == "cpu"


def test_only_a_device_that_starts_with_torch_says_how_long_it_took(file, monkeypatch):
    assert choose("cuda", actions=0).start is None  # torch is here already
    monkeypatch.setattr(sys, "modules", {n: m for n, m in sys.modules.items() if n != "torch"})
    monkeypatch.setattr(cuda, "absence", lambda: "")
    start = choose("cuda", "torch", actions=0).start
    assert start is not None
    assert 0 < start < 60
    assert choose("cpu", "torch").start is None


def test_the_median_of_rates_and_the_least_of_starts_count(file):
    for start, rate in [(9.0, 1e8), (2.5, 9e7), (7.0, 5e6)]:
        speeds.keep({"cuda start": start, "cpu native": rate})
    found = speeds.figures()
    assert found["cuda start"] == speeds.Figure(2.5, TODAY)
    assert found["cpu native"] == speeds.Figure(9e7, TODAY)


def test_the_last_five_values_are_kept(file):
    for rate in range(1, 10):
        speeds.keep({"cpu native": 1e6 * rate})
    assert speeds.figures()["cpu native"].value == 7e6


def test_the_first_run_on_a_device_compiles_kernels_and_does_not_count(file):
    speeds.keep({"cuda start": 40.0, "cuda triton": 1e6})
    assert speeds.figures() == speeds.BUILT_IN
    speeds.keep({"cuda start": 4.0, "cuda triton": 1e9})
    assert speeds.figures()["cuda start"].value == 4.0


def test_each_machine_has_its_own_figures(file, monkeypatch):
    measure(cpu_native=5e7)
    monkeypatch.setenv("TRAJCLI_THREADS", "99")
    assert speeds.figures() == speeds.BUILT_IN
    measure(cpu_native=6e8)
    assert speeds.figures()["cpu native"].value == 6e8
    monkeypatch.delenv("TRAJCLI_THREADS")
    assert speeds.figures()["cpu native"].value == 5e7


def test_the_file_does_not_grow_with_the_machines_that_share_a_home(file, monkeypatch):
    for threads in range(1, 50):
        monkeypatch.setenv("TRAJCLI_THREADS", str(threads))
        for _ in range(5):
            speeds.keep(dict.fromkeys((*speeds.BUILT_IN, "cuda triton", "cuda torch"), 1.234e11))
    assert speeds.figures()["cpu native"].value == 1.234e11
    assert file.stat().st_size < 20_000


def test_values_of_long_ago_are_forgotten(file):
    measure(cpu_native=5e7)
    text = file.read_text()
    for days, known in ((80, True), (100, False), (-100, False)):
        file.write_text(text.replace(TODAY, (date.today() - timedelta(days)).isoformat()))
        assert (speeds.figures()["cpu native"].value == 5e7) == known


def values(*given: Any) -> str:
    """A file with these values of this machine."""
    here = {speeds._machine(): {"cpu native": given}}
    return json.dumps({"format": 1, "machines": here})


GARBAGE = {
    "nothing": "",
    "no JSON": "\x00\xff{",
    "half": values([1e9, TODAY])[:-9],
    "deep": "[" * 60_000,
    "large": values([1e9, TODAY])[:-1] + ', "more": "' + "x" * (1 << 17) + '"}',
    "a list": "[]",
    "another version": values([1e9, TODAY]).replace('"format": 1', '"format": 2'),
    "no machines": '{"format": 1, "machines": 3}',
    "a machine that is none": json.dumps({"format": 1, "machines": {speeds._machine(): [1]}}),
    "no values": json.dumps({"format": 1, "machines": {speeds._machine(): {"cpu native": 3}}}),
    "no number": values(["fast", TODAY], [None, TODAY], [[], TODAY], 7, [], {}),
    "no day": values([1e9], [1e9, None], [1e9, "\x1b[31mred"], [1e9, "2026-99-99"]),
    "senseless": values([-1e9, TODAY], [0, TODAY], [1e300, TODAY], [10**400, TODAY]),
    "not a number": values([float("nan"), TODAY], [float("inf"), TODAY]),
}
OTHER_FILES = list(GARBAGE.values())[:8]


@pytest.mark.parametrize("text", GARBAGE.values(), ids=GARBAGE)
def test_a_file_that_makes_no_sense_is_as_if_it_were_not_there(file, text):
    file.write_text(text, encoding="latin-1")
    assert speeds.figures() == speeds.BUILT_IN
    assert choose(actions=299_999_000).device == "cpu"
    before = file.read_bytes()
    speeds.keep({"cpu native": 5e7})
    if text in OTHER_FILES:  # which may be of value
        assert file.read_bytes() == before
    else:
        assert speeds.figures()["cpu native"].value == 5e7


def test_of_a_file_that_makes_some_sense_that_is_used(file):
    file.write_text(values([1e9, TODAY], "?", [2e9, TODAY], [-1, TODAY]))
    assert speeds.figures()["cpu native"].value == 2e9


def test_what_cannot_be_read_or_written_is_no_error(file, tmp_path, monkeypatch):
    (tmp_path / "plain").write_text("mine")
    os.mkfifo(tmp_path / "fifo")
    for place in ("plain/speed.json", ".", "/proc/none/speed.json", "x" * 300):
        monkeypatch.setenv("TRAJCLI_SPEEDS", str(tmp_path / place))
        measure(cpu_native=5e7)
        assert speeds.figures() == speeds.BUILT_IN
    monkeypatch.setenv("TRAJCLI_SPEEDS", str(tmp_path / "fifo"))
    assert speeds.figures() == speeds.BUILT_IN  # and nobody waits for a writer
    assert sorted(path.name for path in tmp_path.iterdir()) == ["fifo", "plain"]
    assert (tmp_path / "plain").read_text() == "mine"


def test_a_full_disk_leaves_the_file_as_it_was(file, monkeypatch):
    measure(cpu_native=5e7)
    before = file.read_bytes()

    def full(path: Any, mode: str = "r", **more: Any) -> Any:
        if mode == "rb":
            return open(path, mode)
        with open(path, mode, **more) as found:
            found.write("{")
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(speeds, "open", full, raising=False)
    measure(cpu_native=6e7)
    assert file.read_bytes() == before
    assert list(file.parent.iterdir()) == [file]


WRITER = """
from trajcli.kernels import speeds
for k in range(100):
    speeds.keep({"cpu native": 1e8 + k, "cuda start": 2.0})
"""


def test_many_processes_may_write_and_read_at_once(file):
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    writers = [subprocess.Popen([sys.executable, "-c", WRITER], env=env) for _ in range(4)]
    seen = 0
    while any(writer.poll() is None for writer in writers):
        if file.exists():
            here = json.loads(file.read_text())["machines"][speeds._machine()]
            assert 1 <= len(here["cpu native"]) <= 5
            seen += 1
    assert seen
    assert [writer.returncode for writer in writers] == [0] * 4
    assert list(file.parent.iterdir()) == [file]


def test_nothing_but_speeds_is_in_the_file(file):
    measure(cpu_native=123456789.0, cuda_start=2.5)
    host, threads = os.uname().nodename, native.threads()
    assert json.loads(file.read_text()) == {
        "format": 1,
        "machines": {
            f"{host}, {threads} threads": {
                "cpu native": [[123500000.0, TODAY]] * 2,
                "cuda start": [[2.5, TODAY]] * 2,
            }
        },
    }


def test_nothing_is_kept_where_no_file_is_named(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("TRAJCLI_SPEEDS", raising=False)
    speeds.keep({"cpu native": 2e8})
    assert speeds.place() is None
    assert speeds.figures() == speeds.BUILT_IN
    assert not list(tmp_path.iterdir())
