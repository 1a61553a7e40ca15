"""What a curve reaches between its rows, against thousands of samples of it; and retiming by it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from trajcli import integrate, retime, sample
from trajcli.curves.retiming import extremes

RANDOM = np.random.default_rng(7)
CURVES = [
    ("velocity", {"scheme": "foh"}), ("acceleration", {"scheme": "zoh"}),
    ("acceleration", {"scheme": "foh"}), ("jerk", {"scheme": "zoh"}), ("jerk", {"scheme": "foh"}),
    *(("bspline", {"degree": degree, "steps": steps}) for degree in (3, 4, 5) for steps in (1, 3)),
]  # fmt: skip
RATES = ("velocity", "acceleration", "jerk")


def at_rows(made):
    """The same rows of no mode, which have limits there alone."""
    return replace(made, mode="", options={})


def trajectory(mode, options, uneven=False):
    actions = RANDOM.standard_normal((4, 12, 3))
    dt = 0.1 * RANDOM.uniform(0.5, 2, (4, 12)) if uneven and mode != "bspline" else 0.1
    return integrate(actions, actions[:, 0], dt, mode=mode, **options)


@pytest.mark.parametrize(("mode", "options"), CURVES)
def test_extremes_are_those_of_thousands_of_samples(mode, options):
    made = trajectory(mode, options, uneven=True)
    found = extremes(mode, made.options, made.outputs(), made.time)
    begin, end = np.atleast_2d(made.time)[:, 0], np.atleast_2d(made.time)[:, -1]
    curve = sample(made, np.linspace(begin, end, 100_001, axis=1))
    for name in RATES[: {"velocity": 1, "acceleration": 2}.get(mode, 3)]:
        rows = getattr(made, name)  # where a curve may have an edge
        smooth = np.concatenate([rows, getattr(curve, name)], 1)
        every = np.concatenate([rows, found[name].reshape(4, -1, 3)], 1) if name in found else rows
        slack = 1e-4 * np.abs(smooth).max()  # of a sample beside the extreme
        for reduce in (np.min, np.max):
            np.testing.assert_allclose(reduce(every, 1), reduce(smooth, 1), rtol=0, atol=slack)


@pytest.mark.parametrize(("mode", "options"), CURVES)
def test_a_curve_keeps_its_limits_between_rows_after_retiming(mode, options):
    made = trajectory(mode, options)
    limits = {"velocity": 1.0, "acceleration": 4.0}
    parts = {name: getattr(made, name) for name in RATES}
    paced = retime(made, limits)
    assert (paced.factor >= retime(at_rows(made), limits).factor).all()
    assert (paced.row < made.position.shape[1]).all()
    dense = sample(made, np.linspace(made.time[0], made.time[-1], 50_001))
    shares = [
        np.maximum(np.abs(getattr(dense, name)).max((1, 2)), np.abs(parts[name]).max((1, 2)))
        / limit
        / paced.factor**order
        for order, (name, limit) in enumerate(limits.items(), 1)
    ]
    if mode != "velocity":  # whose acceleration is of rows alone
        np.testing.assert_allclose(np.max(shares, 0), 1, rtol=1e-5)
    assert np.max(shares[0]) < 1 + 1e-9


def test_a_coarse_spline_is_slower_than_its_rows_say():
    made = trajectory("bspline", {"degree": 5, "steps": 1})
    slower = retime(at_rows(made), {"velocity": 1.0}).factor
    assert (retime(made, {"velocity": 1.0}).factor > 1.001 * slower).any()
