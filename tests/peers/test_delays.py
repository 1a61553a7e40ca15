"""Delays and factors that check --velocity-of fits, beside those that velocities were made with."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest

import trajcli
from trajcli.views._delay import VelocityFit

SEED = int(os.environ.get("TRAJCLI_SEED") or 0)
DELAYS = int(os.environ.get("TRAJCLI_DELAYS") or 100)
"""How many random sums of sines are fitted."""
STEP = 0.01


def fitted(positions: np.ndarray, velocities: np.ndarray) -> dict[str, Any]:
    """The fit of [T], its delay in rows."""
    rows = len(positions)
    derived = trajcli.differentiate(positions[None, :, None], dt=STEP, method="central").velocity
    fit = VelocityFit(1, rows)
    fit.add_block(velocities[None, :, None], derived, STEP * np.arange(rows)[None])
    facts = fit.facts()
    facts["rows"] = facts["delays"][0] * (facts["rate"]["fitted"] or 1 / STEP)
    return facts


def sines(rows: int, frequencies: np.ndarray, delay: float, random: np.random.Generator):
    """Positions [T] and their velocities, late by so many rows; frequencies per row."""
    rates = 2 * np.pi * frequencies
    gain, phase = random.uniform([[0.2], [0]], [[1], [6.3]], (2, len(rates)))
    angle = np.outer(np.arange(rows), rates) + phase
    late = (gain * rates * np.cos(angle - delay * rates)).sum(1)
    return (gain * np.sin(angle)).sum(1), late / STEP


def test_delays_of_sums_of_sines_keep_their_sign():
    wrong = []
    for number in range(DELAYS):
        random = np.random.default_rng([SEED, number])
        frequencies = random.uniform(0.005, 0.2, random.integers(1, 5))
        # up to half the shortest period: a longer delay of one sine is as short the other way
        delay, factor = random.uniform(-2.4, 2.4), random.choice([1.0, 1.7, 180 / np.pi])
        x, v = sines(random.integers(150, 600), frequencies, delay, random)
        noise = random.choice([0.0, 0.003, 0.02, 0.05]) * v.std()
        facts = fitted(x, factor * (v + noise * random.normal(size=len(v))))
        if abs(facts["rows"] - delay) > 0.3 or abs(facts["factors"][0] / factor - 1) > 0.15:
            wrong.append((number, delay, factor, facts))
    assert not wrong


def test_half_a_period_is_not_taken_for_a_turned_sign():
    x, v = sines(400, np.array([0.09]), 0.5, np.random.default_rng(0))  # 9 Hz, 5 ms late
    facts = fitted(x, v)
    assert facts["rows"] == pytest.approx(0.5, abs=0.02)
    assert facts["factors"] == pytest.approx([1.0], abs=0.01)


@pytest.mark.parametrize("factor", [-1.0, -57.3, 57.3, 1.0])
@pytest.mark.parametrize("delay", [-14, -3, 0, 1, 16])
def test_turned_signs_and_long_delays_of_broad_bands_are_found(factor, delay):
    x, v = sines(500, np.linspace(0.003, 0.15, 40), delay, np.random.default_rng(abs(delay)))
    facts = fitted(x, factor * v)
    assert facts["rows"] == pytest.approx(delay, abs=0.1)
    assert facts["factors"] == pytest.approx([factor], rel=0.05)
