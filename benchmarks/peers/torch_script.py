"""The same with torch. python torch_script.py IN.h5 OUT.h5 MODE"""

from __future__ import annotations

import sys

import h5py
import torch


def differences(x: torch.Tensor, dt: float) -> torch.Tensor:
    return torch.cat([torch.zeros_like(x[:, :1]), torch.diff(x, dim=1) / dt], 1)


def main() -> None:
    source, target, mode = sys.argv[1:]
    with h5py.File(source) as file:
        u = torch.from_numpy(file["actions"][:])
        p0, dt = torch.from_numpy(file["start_position"][:])[:, None], float(file["dt"][()])
    zero = torch.zeros_like(p0)
    if mode == "acceleration":
        a = torch.cat([zero, u], 1)
        v = dt * torch.cumsum(a, 1)
        p = p0 + dt * torch.cumsum(v, 1)
        j = differences(a, dt)
    elif mode == "clique":
        p = torch.cat([p0, u], 1)
        v = differences(p, dt)
        a = differences(v, dt)
        j = differences(a, dt)
    else:
        p = torch.cat([p0, u], 1)
        x = torch.cat([p[:, :1], p[:, :1], p, p[:, -1:], p[:, -1:]], 1)
        x0, x1, x2, x3, x4 = (x[:, k : k + p.shape[1]] for k in range(5))
        v = (x0 - 8 * x1 + 8 * x3 - x4) / (12 * dt)
        a = (-x0 + 16 * x1 - 30 * x2 + 16 * x3 - x4) / (12 * dt**2)
        j = (-x0 + 2 * x1 - 2 * x3 + x4) / (2 * dt**3)
    with h5py.File(target, "w") as file:
        for name, x in (("position", p), ("velocity", v), ("acceleration", a), ("jerk", j)):
            file[name] = x.numpy()


main()
