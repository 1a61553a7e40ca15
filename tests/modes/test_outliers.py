"""smooth --robust beside the same rows without their outliers, and the true motion."""

from __future__ import annotations

import os

import numpy as np
import pytest

import trajcli

SEED = int(os.environ.get("TRAJCLI_SEED") or 0)
CASES = int(os.environ.get("TRAJCLI_OUTLIERS") or 2)
"""How many random recordings of each kind are smoothed."""
ROWS, STEP = 300, 0.01

KINDS = {
    "single": {},
    "slow": {"fastest": 0.01},
    "much noise": {"noise": 0.1},
    "five per cent": {"share": 0.05},
    "one side": {"sides": [1.0]},
    "huge": {"sizes": (10.0, 1e8)},
    "float32": {"kind": np.float32},
    "uneven": {"jitter": 0.4},
    "order 4": {"order": 4},
    "ends": {"at": [0, ROWS // 2, ROWS - 1]},
    "none": {"at": []},
}


def recording(random, share=0.08, fastest=0.03, noise=0.01, sizes=(10.0, 100.0),
              sides=(-1.0, 1.0), kind=np.float64, jitter=0.0, at=None):  # fmt: skip
    """The true rows [T], recorded ones, times, and where their outliers are.

    ``fastest`` is in periods a row, ``noise`` a share of the range, ``sizes`` are in deviations.
    """
    times = np.arange(ROWS) + np.sort(random.uniform(-jitter, jitter, ROWS))
    rates = 2 * np.pi * random.uniform(fastest / 10, fastest, 3)
    gain, phase = random.uniform([[0.2], [0]], [[1], [6.3]], (2, 3))
    true = (gain * np.sin(np.outer(times, rates) + phase)).sum(1)
    noise *= np.ptp(true)
    at = random.choice(ROWS, round(share * ROWS), replace=False) if at is None else at
    rows = true + noise * random.normal(size=ROWS)
    far = np.exp(random.uniform(*np.log(sizes), len(at)))
    rows[at] += noise * far * random.choice(sides, len(at))
    return true, rows.astype(kind).astype(float), times * STEP, at


@pytest.mark.parametrize("name", KINDS)
def test_outliers_do_as_little_as_if_they_were_missing(name):
    options = dict(KINDS[name])
    order, noise, curve = options.pop("order", 3), [], []
    for number in range(CASES):
        true, rows, times, at = recording(np.random.default_rng([SEED, number]), **options)
        clean = rows.copy()
        clean[at] = np.nan
        found, best = (
            trajcli.differentiate(z[:, None], times=times, order=order, method="smooth", **more)
            for z, more in ((rows, {"robust": True}), (clean, {"allow_nonfinite": True}))
        )
        off = [np.sqrt(np.mean((x.position[0, :, 0] - true) ** 2)) for x in (found, best)]
        residual = [x.options["residual"][0, 0] for x in (found, best)]
        if abs(residual[0] / residual[1] - 1) > 0.1:
            noise.append(number)
        if off[0] > 1.2 * off[1]:
            curve.append(number)
    # at the very ends, what continues the curve may be far from both
    assert len(noise) <= 0.01 * CASES, noise
    assert len(curve) <= 0.05 * CASES, curve


def test_a_short_motion_without_outliers_is_not_smoothed_worse():
    share = np.clip((np.arange(ROWS) - 140) / 15, 0, 1)
    true = share**3 * (10 - 15 * share + 6 * share**2)
    for number in range(5 * CASES):
        random = np.random.default_rng([SEED, number])
        noise = np.exp(random.uniform(*np.log([1e-4, 3e-2])))
        z = (true + noise * random.normal(size=ROWS))[:, None]
        plain, robust = (
            trajcli.differentiate(z, dt=STEP, method="smooth", robust=r) for r in (False, True)
        )
        off = [np.sqrt(np.mean((x.position[0, :, 0] - true) ** 2)) for x in (plain, robust)]
        assert off[1] <= 1.1 * off[0], number


def test_pauses_and_short_motions_of_encoders_have_no_outliers():
    share = np.clip((np.arange(300) - 140) / 40, 0, 1)
    motion = share**3 * (10 - 15 * share + 6 * share**2)
    z = np.stack([motion, np.round(100 * motion) / 100], 1)
    robust = trajcli.differentiate(z, dt=0.01, method="smooth", robust=True)
    assert (robust.position == trajcli.differentiate(z, dt=0.01, method="smooth").position).all()
