"""File to file, whole processes in turns: trajcli, a NumPy script, and a plain copy.

    python benchmarks/files.py [--jobs large,small,stamped] [--rounds 5] [--folder DIR] [--json]

large: 3.5·10⁷ actions [B, 100, 7], float32, 140 MB to 560 MB, in three modes, beside ``cp`` of the
finished output and peers/numpy_script.py. small: the hundredth of it. stamped: a recording of 10⁶
rows × 7 with a time stamp for each, mode central, in memory, beside three times numpy.gradient.
Seconds are medians over the rounds, ratios those of the same round. Peak memory is anonymous
memory, looked at every 5 ms (Linux).
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np

import trajcli

SCRIPT = Path(__file__).parent / "peers" / "numpy_script.py"
HORIZON, DOFS = 100, 7
MODES = {
    "clique": ["--mode", "clique"],
    "central": ["--mode", "central"],
    "jerk zoh": ["--mode", "jerk", "--scheme", "zoh"],
}
TARGETS = {"large": {"cp": 1.0, "numpy": 0.4}, "small": {"numpy": 1.2}}


def make_input(path: Path, elements: int) -> None:
    """Random actions [B, 100, 7], float32, with start and dt beside them."""
    random = np.random.default_rng(0)
    batch = max(1, elements // (HORIZON * DOFS))
    with h5py.File(path, "w") as file:
        actions = file.create_dataset("actions", (batch, HORIZON, DOFS), "f4")
        for begin in range(0, batch, 50_000):
            count = min(50_000, batch - begin)
            block = random.standard_normal((count, HORIZON, DOFS), dtype=np.float32)
            actions[begin : begin + count] = block
        file["start_position"] = random.standard_normal((batch, DOFS), dtype=np.float32)
        file["dt"] = 0.02


def whole_process(command: list[str]) -> tuple[float, int]:
    """Seconds and peak anonymous memory in bytes; modules are loaded as bytecode, as installed."""
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    began, peak = time.perf_counter(), 0
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, env=environment) as process:
        while process.poll() is None:
            try:
                with open(f"/proc/{process.pid}/status") as file:
                    for line in file:
                        if line.startswith("RssAnon:"):
                            peak = max(peak, int(line.split()[1]) * 1024)
            except OSError:
                pass
            time.sleep(0.005)
    if process.returncode:
        raise SystemExit(f"{' '.join(command)} failed")
    return time.perf_counter() - began, peak


def against_peers(folder: Path, job: str, elements: int, rounds: int) -> list[dict[str, Any]]:
    """A row per mode."""
    source = folder / "in.h5"
    make_input(source, elements)
    rows = []
    for mode, options in MODES.items():
        out = {name: folder / f"{name}.h5" for name in ("trajcli", "cp", "numpy")}
        line = ["integrate", str(source), *options, "--quiet", "-o", str(out["trajcli"])]
        commands = {
            "trajcli": [sys.executable, "-m", "trajcli", *line],
            "cp": ["cp", str(out["trajcli"]), str(out["cp"])],
            "numpy": [sys.executable, str(SCRIPT), str(source), str(out["numpy"]), mode],
        }
        found: dict[str, list[tuple[float, int]]] = {name: [] for name in commands}
        for _ in range(rounds + 1):
            for name, command in commands.items():
                out[name].unlink(missing_ok=True)
                found[name].append(whole_process(command))
        seconds = {name: [s for s, _ in runs[1:]] for name, runs in found.items()}
        row = compared(f"{job} {mode}", seconds, TARGETS[job])
        rows.append(row | {"peak_mb": max(peak for _, peak in found["trajcli"]) / 1e6})
        for path in out.values():
            path.unlink(missing_ok=True)
    return rows


def compared(
    job: str, seconds: dict[str, list[float]], targets: dict[str, float]
) -> dict[str, Any]:
    """Medians, ratios and their targets."""
    row: dict[str, Any] = {"job": job}
    row |= {f"{name}_seconds": statistics.median(s) for name, s in seconds.items()}
    for name, target in targets.items():
        pairs = zip(seconds["trajcli"], seconds[name], strict=True)
        row[f"over_{name}"] = statistics.median(a / b for a, b in pairs)
        row[f"over_{name}_target"] = target
    return row


def stamped(rounds: int) -> dict[str, Any]:
    """A recording at unequal times, in memory."""
    random = np.random.default_rng(0)
    times = np.cumsum(random.uniform(0.9e-3, 1.1e-3, 1_000_000))
    positions = random.standard_normal((len(times), DOFS), dtype=np.float32)

    def by_numpy() -> Any:
        rows = [positions]
        for _ in range(3):
            rows.append(np.gradient(rows[-1], times, axis=0))
        return rows

    def by_trajcli() -> Any:
        return trajcli.differentiate(positions, method="central", times=times)

    seconds: dict[str, list[float]] = {"trajcli": [], "gradient": []}
    works = {"trajcli": by_trajcli, "gradient": by_numpy}
    for _ in range(rounds + 1):
        for name, work in works.items():
            seconds[name].append(processor_time(work))
    kept = {name: x[1:] for name, x in seconds.items()}
    return compared("stamped central", kept, {"gradient": 1.0})


def processor_time(work: Callable[[], object]) -> float:
    began = time.process_time()
    made = work()
    seconds = time.process_time() - began
    del made
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("--jobs", default="large,small,stamped")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--elements", type=int, default=35_000_000, help="of the large job")
    parser.add_argument("--folder", default=".", help="where the files are for a while")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    rows = []
    for job in given.jobs.split(","):
        if job == "stamped":
            rows.append(stamped(given.rounds))
            continue
        elements = given.elements // (1 if job == "large" else 100)
        with tempfile.TemporaryDirectory(dir=given.folder) as name:
            rows += against_peers(Path(name), job, elements, given.rounds)
    if given.json:
        print(json.dumps(rows, indent=2))
        return
    for row in rows:
        numbers = (f"{k} {v:.3g}" for k, v in row.items() if isinstance(v, float))
        print(f"{row['job']:16}", "  ".join(numbers))


if __name__ == "__main__":
    main()
