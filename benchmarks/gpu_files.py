"""What a CUDA device costs before it computes, and a file to a file by way of it; for gpu.py."""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import h5py
import numpy as np

_CHILD = """
import json, sys, time
began = time.perf_counter()
import torch
imported = time.perf_counter()
torch.zeros(1, device="{device}")
if "{device}" == "cuda":
    torch.cuda.synchronize()
ready = time.perf_counter()
from trajcli import integrate
actions = torch.zeros(64, {horizon}, 7, device="{device}", requires_grad=True)
start = torch.zeros(7, device="{device}")
run = lambda: integrate(actions, start, 0.02, backend="triton")
position = run().position
forward = time.perf_counter()
position.sum().backward()
if "{device}" == "cuda":
    torch.cuda.synchronize()
backward = time.perf_counter()
print(json.dumps(dict(
    import_torch=imported - began,
    device_ready=ready - imported,
    first_forward=forward - ready,
    first_adjoint=backward - forward,
)))
"""


def start_up(root: Path, dry: bool) -> dict[str, dict[str, float]]:
    """Seconds until a new process has results: with nothing compiled yet, and with all of it."""
    code = _CHILD.format(device="cpu" if dry else "cuda", horizon=9 if dry else 100)
    found = {}
    with tempfile.TemporaryDirectory() as place:
        variables = {**os.environ, "TRITON_CACHE_DIR": place, "PYTHONPATH": str(root)}
        for name in ("cold", "warm"):
            child = subprocess.run(
                [sys.executable, "-c", code], env=variables, capture_output=True, text=True
            )
            if child.returncode:
                sys.exit(child.stderr)
            found[name] = json.loads(child.stdout)
    return found


def file_to_file(elements: int, device: str, rounds: int) -> dict[str, Any]:
    """Mode acceleration, 100 actions of 7 dofs, from .npy to HDF5: seconds on the
    device and on the CPU, those of a copy of the result, and how far the two are apart."""
    from trajcli.jobs.request import Request
    from trajcli.jobs.run import run

    batch = elements // 700
    seconds: dict[str, list[float]] = {device: [], "cpu": [], "copy": []}
    backends = {}
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        random = np.random.default_rng(0)
        np.save(place / "a.npy", random.standard_normal((batch, 100, 7), dtype=np.float32))
        for _ in range(rounds + 1):
            for kind in dict.fromkeys((device, "cpu")):
                source, out = str(place / "a.npy"), place / f"{kind}.h5"
                asked = Request([source], out, dt="0.02", start="zero", device=kind, overwrite=True)
                began = time.perf_counter()
                report = run(asked)
                seconds[kind].append(time.perf_counter() - began)
                backends[kind] = report["backend"]
            began = time.perf_counter()
            shutil.copy(place / "cpu.h5", place / "copy.h5")
            seconds["copy"].append(time.perf_counter() - began)
        far = 0.0
        with h5py.File(place / f"{device}.h5") as one, h5py.File(place / "cpu.h5") as other:
            for part in ("position", "velocity", "acceleration", "jerk"):
                for k in range(0, batch, 10_000):
                    a, b = one[part][k : k + 10_000], other[part][k : k + 10_000]
                    off = np.abs(a.astype(np.float64) - b) / np.spacing(np.abs(b))
                    far = max(far, float(off.max()))
    return {
        "actions": batch * 700,
        "bytes_written": report["bytes_written"],
        "backends": backends,
        "seconds": {kind: statistics.median(times[1:]) for kind, times in seconds.items()},
        "apart_in_ulp": far,
    }
