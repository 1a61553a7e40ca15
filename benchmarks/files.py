"""File to file, whole processes: trajcli, a NumPy script, a torch script, and a plain copy.

    python benchmarks/files.py [--elements 35000000] [--rounds 5] [--folder DIR] [--json]
    python benchmarks/files.py --grow        # cost per element as jobs grow
    python benchmarks/files.py --compress    # --compress against h5py's own gzip

Every round runs all of them, one after the other; figures are medians over the rounds, ratios
those of the same round. Peak memory is anonymous memory, looked at every 5 ms (Linux).
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

PEERS = Path(__file__).parent / "peers"
HORIZON, DOFS = 100, 7


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


def script(name: str, source: Path, target: Path, mode: str) -> list[str]:
    """The command that runs one of the scripts in peers/."""
    return [sys.executable, str(PEERS / name), str(source), str(target), mode]


def against_peers(folder: Path, elements: int, rounds: int, modes: list[str]) -> list[Any]:
    """A row per mode: medians and ratios."""
    source = folder / "in.h5"
    make_input(source, elements)
    rows = []
    for mode in modes:
        out = {name: folder / f"{name}.h5" for name in ("trajcli", "numpy", "torch", "cp")}
        line = ["integrate", str(source), "--mode", mode, "--overwrite", "--quiet", "-o"]
        commands = {
            "trajcli": [sys.executable, "-m", "trajcli", *line, str(out["trajcli"])],
            "cp": ["cp", str(out["trajcli"]), str(out["cp"])],
            "numpy": script("numpy_script.py", source, out["numpy"], mode),
            "torch": script("torch_script.py", source, out["torch"], mode),
        }
        found: dict[str, list[tuple[float, int]]] = {name: [] for name in commands}
        for _ in range(rounds + 1):
            for name, command in commands.items():
                out[name].unlink(missing_ok=True)
                found[name].append(whole_process(command))
        seconds = {name: [s for s, _ in runs[1:]] for name, runs in found.items()}
        row: dict[str, Any] = {"mode": mode, "elements": elements}
        row |= {f"{name}_seconds": statistics.median(s) for name, s in seconds.items()}
        for name in ("numpy", "torch", "cp"):
            pairs = zip(seconds["trajcli"], seconds[name], strict=True)
            row[f"over_{name}"] = statistics.median(a / b for a, b in pairs)
        row["peak_mb"] = max(peak for _, peak in found["trajcli"]) / 1e6
        rows.append(row)
        for path in out.values():
            path.unlink(missing_ok=True)
    return rows


def growth(folder: Path, largest: int) -> list[Any]:
    """Nanoseconds per element in this process, from 10⁵ elements on."""
    from trajcli.jobs.request import Request
    from trajcli.jobs.run import run

    rows = []
    elements = 10**5
    while elements <= largest:
        source, out = folder / "in.h5", folder / "out.h5"
        make_input(source, elements)
        seconds = []
        for _ in range(8 if elements <= 10**7 else 4 if elements <= 10**8 else 2):
            out.unlink(missing_ok=True)
            began = time.perf_counter()
            run(Request(sources=[str(source)], out=out))
            seconds.append(time.perf_counter() - began)
        rows.append({"elements": elements, "ns": 1e9 * statistics.median(seconds[1:]) / elements})
        elements *= 10
    return rows


def compression(folder: Path, elements: int, rounds: int, level: int = 4) -> list[Any]:
    """--compress against h5py writing the same arrays with its own filter."""
    from trajcli.jobs.request import Request
    from trajcli.jobs.run import run

    source, out, own = folder / "in.h5", folder / "out.h5", folder / "own.h5"
    make_input(source, elements)
    run(Request(sources=[str(source)], out=out))
    with h5py.File(out) as file:
        arrays = {name: file[name][()] for name in ("position", "velocity", "acceleration", "jerk")}

    def ours() -> None:
        run(Request(sources=[str(source)], out=out, overwrite=True, compress=level))

    def theirs() -> None:
        with h5py.File(own, "w") as file:
            for name, x in arrays.items():
                chunks = (1497, *x.shape[1:]) if len(x) > 1497 else x.shape
                file.create_dataset(name, data=x, chunks=chunks, compression=level, shuffle=True)

    def timed(what: Callable[[], None]) -> float:
        began = time.perf_counter()
        what()
        return time.perf_counter() - began

    pairs = [(timed(ours), timed(theirs)) for _ in range(rounds + 1)][1:]
    return [
        {
            "level": level,
            "elements": elements,
            "seconds": statistics.median(a for a, _ in pairs),
            "h5py_seconds": statistics.median(b for _, b in pairs),
            "ratio": statistics.median(a / b for a, b in pairs),
            "bytes": os.path.getsize(out),
        }
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("--elements", type=int, default=35_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--modes", default="acceleration,clique,central")
    parser.add_argument("--folder", default=".")
    parser.add_argument("--grow", action="store_true")
    parser.add_argument("--compress", action="store_true")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=given.folder) as name:
        folder = Path(name)
        if given.grow:
            rows = growth(folder, given.elements)
        elif given.compress:
            rows = compression(folder, given.elements, given.rounds)
        else:
            rows = against_peers(folder, given.elements, given.rounds, given.modes.split(","))
    if given.json:
        print(json.dumps(rows, indent=2))
        return
    for row in rows:
        print(
            "  ".join(
                f"{k} {v:.3g}" if isinstance(v, float) else f"{k} {v}" for k, v in row.items()
            )
        )


if __name__ == "__main__":
    main()
