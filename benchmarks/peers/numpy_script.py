"""What people write today: a NumPy script. python numpy_script.py IN.h5 OUT.h5 MODE"""

from __future__ import annotations

import sys

import h5py
import numpy as np


def differences(x: np.ndarray, dt: float) -> np.ndarray:
    first = np.zeros_like(x[:, :1])
    return np.concatenate([first, np.diff(x, axis=1) / np.float32(dt)], 1)


def main() -> None:
    source, target, mode = sys.argv[1:]
    with h5py.File(source) as file:
        u, p0, dt = file["actions"][:], file["start_position"][:][:, None], float(file["dt"][()])
    zero = np.zeros_like(p0)
    if mode == "jerk zoh":
        j = np.concatenate([zero, u], 1)
        a = (dt * np.cumsum(j, 1, dtype=np.float64)).astype(np.float32)
        before = np.concatenate([zero, a[:, :-1]], 1)
        v = np.cumsum(dt * before + dt**2 / 2 * j, 1, dtype=np.float64).astype(np.float32)
        past = np.concatenate([zero, v[:, :-1]], 1)
        gain = dt * past + dt**2 / 2 * before + dt**3 / 6 * j
        p = (p0 + np.cumsum(gain, 1, dtype=np.float64)).astype(np.float32)
    elif mode == "clique":
        p = np.concatenate([p0, u], 1)
        v = differences(p, dt)
        a = differences(v, dt)
        j = differences(a, dt)
    else:
        p = np.concatenate([p0, u], 1)
        x = np.concatenate([p[:, :1], p[:, :1], p, p[:, -1:], p[:, -1:]], 1)
        x0, x1, x2, x3, x4 = (x[:, k : k + p.shape[1]] for k in range(5))
        v = (x0 - 8 * x1 + 8 * x3 - x4) / np.float32(12 * dt)
        a = (-x0 + 16 * x1 - 30 * x2 + 16 * x3 - x4) / np.float32(12 * dt**2)
        j = (-x0 + 2 * x1 - 2 * x3 + x4) / np.float32(2 * dt**3)
    with h5py.File(target, "w") as file:
        for name, x in (("position", p), ("velocity", v), ("acceleration", a), ("jerk", j)):
            file[name] = x


main()
