"""The fastest timing of a path by dense matrices, a second opinion on the compiled kernel.

One path at a time, as straight as the method is written down: matrices of splines from SciPy,
normal equations in full, each limit a row of its own. It is meant to take the same steps as the
kernel, so that durations agree far beyond the tolerance of the method.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.interpolate import BPoly, BSpline, PPoly, make_interp_spline
from scipy.optimize import brentq

from trajcli.kernels.native.fastest import Path

Floats = npt.NDArray[np.float64]

END = 8
GAUSS = np.polynomial.legendre.leggauss(6)


def slopes(path: Path) -> Floats:
    """Returns the first and second derivative of a path at its points."""
    if path.slopes is not None:
        return np.asarray(path.slopes)
    u, q = path.knots - path.knots[0], path.points
    free = [np.isnan(e).any() for e in (path.ends if path.ends is not None else [np.nan] * 2)]
    if len(u) == 2 and all(free):
        step = np.diff(q, axis=0) / u[1]
        return np.stack([np.repeat(step, 2, 0), 0 * q])
    zero = np.zeros(q.shape[1])
    ends = [
        [(3, zero), (4, zero)] if free[k] else [(1, path.ends[k][0]), (2, path.ends[k][1])]
        for k in (0, 1)
    ]
    spline = make_interp_spline(u, q, k=5, bc_type=(ends[0], ends[1]))
    return np.stack([spline(u, 1), spline(u, 2)])


class Geometry:
    """A path over x in [0, 1], warped so that it may begin and end at rest."""

    def __init__(self, path: Path, jerk: bool) -> None:
        u = path.knots - path.knots[0]
        rows = np.stack([path.points - path.points[0], *slopes(path)], 1)
        self.curve = PPoly.from_bernstein_basis(BPoly.from_derivatives(u, rows))
        self.length = u[-1]
        warps = [0, 1], [0, 0, 3, -2], [0, 0, 0, 10, -15, 6]
        self.warp = np.polynomial.Polynomial(warps[0 if path.clock else 2 if jerk else 1])
        part = u[1:-1] / u[-1]
        self.breaks = np.array(
            [brentq(lambda x, y=y: self.warp(x) - y, 0, 1, xtol=1e-16) for y in part]
        )

    def __call__(self, x: Floats) -> list[Floats]:
        """Returns the position and its derivatives by x, each [n, D]."""
        g = [self.length * (self.warp.deriv(m) if m else self.warp)(x)[:, None] for m in range(4)]
        q = [self.curve(g[0][:, 0], m) for m in range(4)]
        second = q[2] * g[1] ** 2 + q[1] * g[2]
        third = q[3] * g[1] ** 3 + 3 * q[2] * g[1] * g[2] + q[1] * g[3]
        return [q[0], q[1] * g[1], second, third]


def grid(intervals: int) -> Floats:
    """Returns points, even but near the ends, where they are an eighth of their distance apart."""
    count = np.arange(intervals + 1.0)
    step = 0.5 / (intervals - 8 * np.log(16))
    near, far = count * step / 16, 0.5 - (intervals - count) * step
    x = np.where(count < 8, near, np.where(count < 31, step / 2 * np.exp((count - 8) / 8), far))
    return np.concatenate([x, 1 - x[-2::-1]])


def matrices(x: Floats) -> list[Floats]:
    """Returns what coefficients are of b, b' and b'' at the points, each [points, n]."""
    knots = np.concatenate([x[:1], x[END:-END:2], x[-1:]])
    first, last = knots[1] - knots[0], knots[-1] - knots[-2]
    before, after = first * np.arange(-3, 0), last * np.arange(1, 4)
    t = np.concatenate([knots[0] + before, knots, knots[-1] + after])
    n = len(knots) + 2
    splines = BSpline(t, np.eye(n), 3)
    e = [splines(x, m) for m in range(3)]
    for out, near in ((0, (1, 2)), (n - 1, (n - 2, n - 3))):  # b'' = 0 gives the one beyond
        end = e[2][0 if out == 0 else -1].copy()
        for matrix in e:
            for k in near:
                matrix[:, k] -= end[k] / end[out] * matrix[:, out]
    return [matrix[:, 1:-1] for matrix in e]


@dataclass
class Limits:
    """Rows of limits at the points, [rows, points] each: c[0] b + c[1] b' + c[2] b'' <= 1, or
    <= b^(-1/2) where ``jerk``. Infinite ones are left out."""

    c: Floats
    jerk: npt.NDArray[np.bool_]

    def sides(self, b: Floats) -> Floats:
        return np.where(self.jerk[:, None], 1 / np.sqrt(b[0]), 1.0)

    def slack(self, b: Floats) -> Floats:
        return self.sides(b) - np.einsum("mrp,mp->rp", self.c, b)


def limits_at(q: list[Floats], lower: Floats, upper: Floats, scale: float, tight: Floats) -> Limits:
    speed = np.maximum(q[1] / upper[0], q[1] / lower[0]).max(1)
    velocity = np.maximum(speed**2 * scale * tight[0] ** 2, 1e-8)
    rows, jerk = [np.stack([velocity, 0 * velocity, 0 * velocity])], [False]
    parts = [q[2], q[1] / 2, 0 * q[1]], [q[3], 1.5 * q[2], q[1] / 2]
    for m in (1, 2):
        for side in (upper[m], lower[m]):
            for d in np.flatnonzero(np.isfinite(side)):
                unit = scale ** (1 if m == 1 else 1.5) * tight[m] / side[d]
                rows.append(np.stack([part[:, d] * unit for part in parts[m - 1]]))
                jerk.append(m == 2)
    return Limits(np.stack(rows, 1), np.array(jerk))


def solve(
    e: list[Floats], limits: Limits, w: Floats, c: Floats, tol: float, gap0: float, held: Any
) -> tuple[Floats, int, bool]:
    """Returns the coefficients, how many iterations it took, and whether they converged."""
    old = sigma = z = dz = step = None
    m = limits.c.shape[1] * len(w)
    jerk = limits.jerk[:, None]
    matrix = np.stack(e)
    for turn in range(200):
        b = matrix @ c
        root = 1 / np.sqrt(b[0])
        total = (w * root).sum()
        g = limits.slack(b)
        z = gap0 * total / m / g if z is None else z + step * dz
        gap = (z * g).sum() / total
        if old is not None and gap < tol and abs(total / old - 1) < tol / 4:
            return c, turn + 1, True
        if turn == 199:
            break
        old, sigma = total, 0.3 if sigma is None else sigma
        mu = sigma * gap * total / m
        fall = root**3 / 2
        slope = -limits.c.copy()  # of each slack, by b, b' and b''
        slope[0] -= np.where(jerk, fall, 0)
        ratio = z / g
        curve = np.maximum(w - np.where(jerk, z, 0).sum(0), 0.1 * w)
        h = np.einsum("rp,irp,jrp->ijp", ratio, slope, slope)
        h[0, 0] += 0.75 * curve * root**5
        f = np.einsum("rp,irp->ip", mu / g, slope)
        f[0] += w * fall
        s = np.einsum("ipa,ijp,jpb->ab", matrix, h, matrix, optimize=True)
        right = np.einsum("ipa,ip->a", matrix, f)
        kept = np.ones(len(c), bool)
        kept[:2], kept[-2:] = not held[0], not held[1]
        dc = np.zeros(len(c))
        own = s[np.ix_(kept, kept)]
        unit = 1 / np.sqrt(np.diag(own))
        dc[kept] = unit * np.linalg.solve(unit[:, None] * own * unit, unit * right[kept])
        db = matrix @ dc
        dg = np.einsum("irp,ip->rp", slope, db)
        dz = mu / g - z - ratio * dg
        primal = max((-dg / g).max(), (-db[0] / b[0]).max(), 1e-9)
        dual = max((-dz / z).max(), 1e-9)
        reach, step = min(1, 0.99 / primal), min(1, 0.99 / dual)
        c = c + reach * dc
        sigma = np.clip((1 - min(reach, step)) ** 2, 0.08, 0.8)
    return c, 200, False


@dataclass
class Pace:
    """b at the points of a grid, and its derivatives [4, points]."""

    x: Floats
    b: Floats

    def at(self, step: Any, x: Floats) -> Floats:
        """Returns b, b' and b'' at places of steps."""
        tau = x - self.x[step]
        b0, b1, b2, b3 = self.b[:, step]
        values = b0 + tau * (b1 + tau * (b2 / 2 + tau * b3 / 6)), b1 + tau * (b2 + tau * b3 / 2)
        return np.stack([*values, b2 + tau * b3])

    def times(self) -> Floats:
        step, h = np.arange(len(self.x) - 1)[:, None], np.diff(self.x)[:, None]
        b = self.at(step, self.x[:-1, None] + h * (GAUSS[0] + 1) / 2)
        steps = np.diff(self.x) * (GAUSS[1] / 2 / np.sqrt(b[0])).sum(1)
        return np.concatenate([[0], np.cumsum(steps)])


def shares(geometry: Geometry, pace: Pace, lower: Floats, upper: Floats) -> Floats:
    """Returns the largest share of each limit in each step of the grid, [3, steps]."""
    part = np.linspace(0, 1, 9)
    part[[0, -1]] = 1e-9, 1 - 1e-9
    spans = np.union1d(pace.x, geometry.breaks)  # no jump of the path's jerk inside
    x = spans[:-1, None] + np.diff(spans)[:, None] * part
    step = np.searchsorted(pace.x, spans[:-1], side="right") - 1
    b = pace.at(step[:, None], x)
    q = [part.reshape(*x.shape, -1) for part in geometry(x.ravel())]
    b = b[..., None]
    steps = np.arange(len(pace.x) - 1)
    motion = (
        q[1] * np.sqrt(b[0]),
        q[2] * b[0] + q[1] * b[1] / 2,
        np.sqrt(b[0]) * (q[3] * b[0] + 1.5 * q[2] * b[1] + q[1] * b[2] / 2),
    )
    out = []
    for m, value in enumerate(motion):
        bulge = np.abs(np.diff(value, 2, axis=1)).max(1) / 8
        up, down = (value.max(1) + bulge) / upper[m], (value.min(1) - bulge) / lower[m]
        out.append(np.maximum.reduceat(np.maximum(up, down).max(1), np.searchsorted(step, steps)))
    return np.stack(out)


def needed(share: Floats) -> float:
    worst = share.max(1)
    return float(max(worst[0], np.sqrt(worst[1]), np.cbrt(worst[2])))


def fastest(
    path: Path, lower: Floats, upper: Floats, intervals: int, tolerance: float = 1e-3
) -> tuple[float, int, str]:
    """Returns the duration, the number of iterations and the state."""
    limited = [bool(np.isfinite(np.stack([lower[m], upper[m]])).any()) for m in (1, 2)]
    geometry, held = Geometry(path, limited[1]), path.held
    x = points = grid(intervals)
    flat = np.zeros((4, len(x)))
    flat[0] = 1
    uniform = needed(shares(geometry, Pace(x, flat), lower, upper))
    if any(held):
        if uniform >= geometry.length:
            return 0.0, 0, "beyond limits"
        uniform = geometry.length
    scale = uniform**-2.0
    best, took, iterations, done = Pace(x, flat * scale), uniform, 0, True
    c = np.full(intervals - END + 3, 0.8)
    tight = np.ones((3, len(x)))
    tolerance *= 1 if limited[1] else 0.01
    for turn in range(4 if any(limited) else 0):
        e = matrices(x)
        limits = limits_at(geometry(x), lower, upper, scale, tight)
        w = (np.append(x[1:], x[-1]) - np.append(x[0], x[:-1])) / 2
        if any(held):
            c = np.ones(len(c))
            if (limits.slack(np.stack(e) @ c) <= 0).any():
                break
        else:
            b = np.stack(e) @ c
            share = 1 - limits.slack(b) / limits.sides(b)
            share[limits.jerk] = np.cbrt(np.maximum(share[limits.jerk], 0)) ** 2
            c = c / max(1.05 * share.max(), 1)
        gap = 1.0 if any(held) or turn == 0 else (0.1 if turn == 1 else 0.01)
        c, count, done = solve(e, limits, w, c, tolerance * (1 if turn else 10), gap, held)
        iterations += count
        b = scale * np.stack([matrix @ c for matrix in e])
        third = np.diff(b[2]) / np.diff(x)
        now = Pace(x, np.stack([*b, np.append(third, third[-1])]))
        share = shares(geometry, now, lower, upper)
        over, own = max(needed(share), 1e-3), flat * scale
        if any(held):
            parts = [1 - 2.0**-k for k in range(14, 0, -1)]
            for part in parts if over > 1 else []:
                nearer = Pace(x, own + part * (now.b - own))
                over = needed(shares(geometry, nearer, lower, upper))
                if over <= 1:
                    now = nearer
                    break
            over = np.inf if over > 1 else 1.0
        now = Pace(x, now.b / over**2)
        time = now.times()[-1]
        if time < took:
            best, took = now, time
        if turn == 0:
            t = best.times()
            at = 0.9 * t / t[-1] + 0.1 * best.x
            x = np.interp(points, at, best.x)
            for _ in range(4):
                x = np.concatenate([x[:1], (x[2:] + 2 * x[1:-1] + x[:-2]) / 4, x[-1:]])
            value = np.interp(x, best.x, best.b[0]) / scale
            c = np.concatenate([value[:1], value[END:-END:2], value[-1:]])
        else:
            over_at = np.pad(np.maximum(share, 1), ((0, 0), (1, 1)), constant_values=1)
            tight = tight * np.maximum(over_at[:, 1:], over_at[:, :-1])
    duration = took * (1 if any(held) else 1 + 1e-11)
    state = "uniform" if took >= uniform else "solved" if done else "not converged"
    return float(duration), iterations, state
