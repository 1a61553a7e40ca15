"""The values of an output do not depend on the blocks that its trajectories are computed in."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from kernels.cases import BANDS, CASCADES

from trajcli.errors import InputError
from trajcli.jobs.request import DifferentiateRequest, Request
from trajcli.jobs.run import run
from trajcli.kernels import native

ROOT = Path(__file__).resolve().parents[2]
B, H, D = 3, 25, 3
RNG = np.random.default_rng(0)

MODES: dict[str, dict[str, Any]] = {
    **{
        str(work): {
            "mode": "backward" if work.recorded and work.mode == "clique" else work.mode,
            "options": dict(work.options),
            **({"goal": "goal.npy"} if ("ends", "goal") in work.options else {}),
        }
        for work in (*CASCADES, *BANDS)
    },
    "actions' rows": {"mode": "acceleration", "options": {"alignment": "actions"}},
    "curobo's rows": {"mode": "jerk", "options": {"alignment": "curobo"}},
    "curobo's steps": {"mode": "clique", "options": {"convention": "curobo"}},
}
RECORDED = {str(work) for work in (*CASCADES, *BANDS) if work.recorded}
STEPS = {
    "one step": {"dt": "0.013"},
    "each its own": {"dt": "each.npy"},
    "per step": {"dt": "steps{n}.npy"},
    "own steps": {"dt": "own{n}.npy"},
    "stamps": {"times": "stamps{n}.npy"},
    "own stamps": {"times": "ownstamps{n}.npy"},
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    np.save("actions.npy", RNG.standard_normal((B, H, D)).astype("f4"))
    parts = {part: RNG.standard_normal((B, D)) for part in ("position", "velocity")}
    np.savez("start.npz", **parts)
    np.save("goal.npy", RNG.standard_normal((B, D)))
    np.save("each.npy", RNG.uniform(0.01, 0.1, (B, 1)))
    for n in (H, H - 1):
        steps = RNG.uniform(0.01, 0.1, (B, n))
        np.save(f"own{n}.npy", steps)
        np.save(f"steps{n}.npy", steps[0])
        np.save(f"ownstamps{n}.npy", np.cumsum(np.pad(steps, [(0, 0), (1, 0)]), 1))
        np.save(f"stamps{n}.npy", np.cumsum(np.pad(steps[0], (1, 0))))
    return tmp_path


def request_of(mode: str, steps: str, **more: object) -> Request:
    """Makes the request for a mode with one kind of steps."""
    recorded = mode in RECORDED
    kind, start = (DifferentiateRequest, {}) if recorded else (Request, {"start": "start.npz"})
    named = {k: v.format(n=H - 1 if recorded else H) for k, v in STEPS[steps].items()}
    options = {**start, **MODES[mode], **named, **more}
    return kind(sources=["actions.npy"], out=Path("whole.h5"), **options)


def blockwise(request: Request) -> dict[str, Any]:
    """Runs a request trajectory by trajectory."""
    report = run(replace(request, memory=1))
    assert report["block"] == {"trajectories": 1}
    return report


ALL = [
    (mode, steps)
    for k, mode in enumerate(MODES)
    for i, steps in enumerate(STEPS)
    if (steps in ("one step", "each its own") if mode.startswith("bspline") else (i + k) % 3 == 0)
]
"""Two kinds of steps for most modes, in turns."""


def values(path: Path) -> dict[str, Any]:
    """Reads the datasets of an output."""
    if path.suffix == ".npz":
        with np.load(path) as archive:
            return dict(archive)
    with h5py.File(path) as file:
        return {name: stored[()] for name, stored in file.items()}


def assert_same(one: Path, two: Path) -> None:
    wanted = values(two)
    assert {"time", "velocity"} <= wanted.keys()
    for name, found in values(one).items():
        np.testing.assert_array_equal(found, wanted.pop(name), name)
    assert not wanted


@pytest.mark.parametrize(("mode", "steps"), ALL)
def test_the_values_do_not_depend_on_memory(folder, mode, steps):
    request = request_of(mode, steps)
    run(request)
    blockwise(replace(request, out=Path("blocks.h5")))
    assert_same(Path("whole.h5"), Path("blocks.h5"))
    with h5py.File("blocks.h5") as file:
        assert file["position"][:, -1].all()
        assert file["time"][..., -1].all()


@pytest.mark.parametrize("steps", ["dt", "times"])
@pytest.mark.parametrize("mode", ["jerk", "central", "backward"])
def test_large_tables_of_steps_and_states_are_read_in_blocks(folder, mode, steps):
    batch, rows, recorded = 1400, 900, mode == "backward"
    given = RNG.uniform(0.01, 0.1, (batch, rows + (steps == "times") - recorded))
    np.save("given.npy", given if steps == "dt" else given.cumsum(1))
    np.save("long.npy", RNG.standard_normal((batch, rows, 1)).astype("f4"))
    np.save("states.npy", RNG.standard_normal((batch, 1)))
    kind, start = (DifferentiateRequest, {}) if recorded else (Request, {"start": "states.npy"})
    request = kind(sources=["long.npy"], out=Path("whole.h5"), mode=mode, **start,
                   **{steps: "given.npy"})  # fmt: skip
    run(replace(request, memory=1 << 30))
    report = run(replace(request, out=Path("blocks.h5"), memory=4 << 20))
    assert report["block"]["trajectories"] < batch / 4
    assert_same(Path("whole.h5"), Path("blocks.h5"))


@pytest.mark.parametrize("mode", ["jerk foh", "central"])
@pytest.mark.parametrize("backend", ["torch", "native"])
@pytest.mark.parametrize(
    ("out", "more"),
    [("o.npz", {}), ("o.h5", {"dtype": "float64"}),
     ("o.h5", {"write": ("velocity",), "compress": 4})],
)  # fmt: skip
def test_nor_do_those_of_other_outputs(folder, mode, backend, out, more):
    if backend == "native" and native.absence():
        pytest.skip(native.absence())
    request = request_of(mode, "own steps", backend=backend, **more)
    run(replace(request, out=Path(out)))
    blockwise(replace(request, out=Path(f"blocks-{out}")))
    assert_same(Path(out), Path(f"blocks-{out}"))


@pytest.mark.parametrize(
    "kind", ["archive", "one trajectory", "chunked", "big-endian", "integers", "half"]
)
def test_nor_do_those_of_inputs_that_cannot_be_mapped(folder, kind):
    source, actions = "in.h5", np.load("actions.npy")
    if kind == "archive":
        source = "in.npz"
        np.savez_compressed(source, actions=actions, dt=np.load(f"steps{H}.npy"))
    elif kind == "one trajectory":
        source = "one.npy"
        np.save(source, actions[0])
    else:
        with h5py.File(source, "w") as file:
            options = {"chunks": (1, 7, 2), "compression": 1} if kind == "chunked" else {}
            types = {"chunked": "f4", "big-endian": ">f4", "integers": "i2", "half": "f2"}
            file.create_dataset("actions", data=(8 * actions).astype(types[kind]), **options)
    request = replace(request_of("central", "per step"), sources=[source])
    if kind == "one trajectory":
        with np.load("start.npz") as archive:
            np.savez("first.npz", **{name: values[:1] for name, values in archive.items()})
        request = replace(request, start="first.npz")
    run(request)
    blockwise(replace(request, out=Path("blocks.h5")))
    assert_same(Path("whole.h5"), Path("blocks.h5"))


def test_rows_with_repeated_stamps_are_left_out_block_by_block(folder):
    stamps = np.load(f"stamps{H - 1}.npy")
    stamps[[10, 11, 20]] = stamps[[9, 9, 19]]
    np.save("repeats.npy", stamps)
    request = replace(
        request_of("clique recorded", "stamps"), times="repeats.npy", repeated_times="drop"
    )
    assert "3 rows" in str(run(request)["notes"])
    blockwise(replace(request, out=Path("blocks.h5")))
    assert_same(Path("whole.h5"), Path("blocks.h5"))
    with h5py.File("blocks.h5") as file:
        assert file["position"].shape == (B, H - 3, D)
        kept = np.delete(np.arange(H), [10, 11, 20])
        np.testing.assert_array_equal(file["position"], np.load("actions.npy")[:, kept])


def test_an_index_is_read_block_by_block(folder):
    np.save("index.npy", np.array([1, 0, 1], "i4"))
    request = request_of("jerk zoh", "one step", start_index="index.npy")
    run(request)
    blockwise(replace(request, out=Path("blocks.h5")))
    assert_same(Path("whole.h5"), Path("blocks.h5"))
    np.save("index.npy", np.array([1, 3, 0], "i4"))
    with pytest.raises(InputError, match=r"index\.npy, trajectory 1(.|\n)*0 to 2"):
        blockwise(replace(request, out=Path("bad.h5")))


@pytest.mark.parametrize(
    ("name", "place", "value", "says"),
    [
        ("actions", (2, 20, 2), np.nan, "actions.npy, trajectory 2, step 20, dof 2"),
        (f"own{H}", (2, 21), 0.0, f"own{H}.npy, trajectory 2, step 21"),
        (f"ownstamps{H}", (2, 21), 0.0, "trajectory 2, row 21"),
    ],
)
def test_faults_far_on_are_named_by_their_place(folder, name, place, value, says):
    values = np.load(f"{name}.npy")
    values[place] = value
    np.save(f"{name}.npy", values)
    request = request_of("acceleration euler", "own stamps" if "stamps" in name else "own steps")
    with pytest.raises(InputError) as error:
        blockwise(request)
    assert says in str(error.value)
    assert not Path("whole.h5").exists()


def test_results_that_overflow_are_counted(folder):
    np.save("large.npy", np.full((1, H, D), 2e37, "f4"))
    request = replace(request_of("velocity euler", "one step"), sources=["large.npy"], dt="1",
                      start="zero", write=("position",))  # fmt: skip
    report = blockwise(request)
    with h5py.File("whole.h5") as file:
        lost = int((~np.isfinite(file["position"][()])).sum())
    assert lost == D * (H - 17)
    assert f"{lost} results are too large" in str(report["notes"])


def test_no_trajectories_have_times_all_the_same(folder):
    np.save("none.npy", np.zeros((0, H, D), "f4"))
    request = replace(request_of("velocity euler", "per step"), sources=["none.npy"],
                      start="zero")  # fmt: skip
    blockwise(request)
    with h5py.File("whole.h5") as file:
        assert file["position"].shape == (0, H + 1, D)
        np.testing.assert_allclose(file["time"][1:], np.cumsum(np.load(f"steps{H}.npy")))


SCRIPT = """
import dataclasses, sys, threading, time
from pathlib import Path
from trajcli.jobs.request import Request
from trajcli.jobs.run import run
import h5py, numpy, trajcli.kernels.native, zlib

def anonymous():
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("RssAnon")) / 1024

def watch():
    while not done.is_set():
        peak[0] = max(peak[0], anonymous())
        time.sleep(0.002)

before, peak, done = anonymous(), [0.0], threading.Event()
watcher = threading.Thread(target=watch, daemon=True)
watcher.start()
request = Request(sources=["in.h5"], out=Path("out.h5"), start="zero", memory=32 << 20)
run(dataclasses.replace(request, **eval(sys.argv[1])))
done.set()
watcher.join()
print(peak[0] - before)
"""


@pytest.mark.skipif(bool(native.absence()), reason=native.absence())
@pytest.mark.parametrize(
    ("words", "long", "most"),
    [
        ({"mode": "central", "dt": "in.h5:steps"}, False, 50),
        ({"mode": "jerk", "dt": "0.01", "compress": 1, "write": ("position",)}, False, 90),
        ({"mode": "jerk", "dt": "0.01", "sources": ["in.h5:packed"]}, False, 50),
        ({"mode": "central", "dt": "0.01"}, True, 56),  # of which 16 are its times
    ],
)
def test_memory_is_bounded(tmp_path, words, long, most):
    """A long trajectory that is mapped takes no more memory than its 160 MB."""
    shape = (1, 2_000_000, 4) if long else (2000, 1000, 4)
    with h5py.File(tmp_path / "in.h5", "w") as file:
        noise = RNG.standard_normal(shape).astype("f4")
        file["actions"] = noise
        if "sources" in words:
            file.create_dataset("packed", data=noise, chunks=(10, 1000, 4), compression=1)
        file["steps"] = RNG.uniform(0.01, 0.02, shape[:2])
    run_ = subprocess.run(
        [sys.executable, "-c", SCRIPT, repr(words)],
        capture_output=True, text=True, cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert run_.returncode == 0, run_.stderr
    assert float(run_.stdout) < most
