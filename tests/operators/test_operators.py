"""A mode's matrices do what the mode does, and nothing else."""

from __future__ import annotations

import numpy as np
import pytest
from kernels.cases import BANDS, CASCADES, job

import trajcli

QUANTITIES = ("position", "velocity", "acceleration", "jerk")

WORKS = [
    *(work for work in (*CASCADES, *BANDS) if work.mode != "savgol"),
    *(job(mode, alignment=x) for mode in ("jerk", "central") for x in ("actions", "curobo")),
    *(job(mode, convention="curobo") for mode in ("jerk", "bspline")),
    job("central", convention="curobo", ends="goal"),
]


@pytest.mark.parametrize("steps", ["one", "each"])
@pytest.mark.parametrize("work", WORKS, ids=str)
@pytest.mark.parametrize("H", [1, 2, 9])
def test_matrices_times_inputs_are_what_integrate_gives(work, H, steps):
    mode, options, recorded = work.mode, dict(work.options), work.recorded
    if mode == "bspline":
        steps = "one"
    if recorded:
        H += 4 if mode == "central" else 1
    random = np.random.default_rng(H)
    dt = random.uniform(0.01, 0.2, H - recorded) if steps == "each" else 0.07
    u, s, g = random.standard_normal((H, 2)), *random.standard_normal((2, 4, 2))
    sample = {}
    if options.get("ends") == "goal":
        used = 1 if mode == "central" else 4
        sample["goal"] = trajcli.State(*g[:used, None])
    result = work.trajectory(u, trajcli.State(*s[:, None]), dt, **sample)
    operator = trajcli.operator(H, dt, mode, start="first" if recorded else None, **options)
    want = np.concatenate([getattr(result, name)[0] for name in QUANTITIES])
    got, size = operator.A @ u, np.abs(operator.A) @ np.abs(u)
    assert (operator.C is None) == recorded
    assert (operator.G is None) == ("goal" not in sample)
    for matrix, state in ((operator.C, s), (operator.G, g)):
        if matrix is not None:
            got, size = got + matrix @ state, size + np.abs(matrix) @ np.abs(state)
    assert got.shape == want.shape
    # a window's points are subtracted: their rounding is divided by the spacing to the order
    h = np.min(dt) * options.get("steps", 1)
    points = max(
        np.abs(u).max(), *(np.abs(x * h**m).max() for x in (s, g) for m, x in enumerate(x))
    )
    if mode in ("central", "bspline"):
        size = size + (points / h ** np.arange(4)).repeat(len(size) // 4)[:, None]
    assert (np.abs(got - want) <= 1e-14 * size + 1e-24).all()
    np.testing.assert_array_equal(operator.time, result.time)


@pytest.mark.parametrize("dt", [0.01, 0.02, 0.05, 0.07, 0.25, 1.0])
def test_no_entry_is_what_rounding_left(dt):
    counts = set()
    for mode, options in (("central", {}), ("bspline", {"degree": 4, "steps": 4})):
        entries = np.abs(trajcli.operator(50, dt, mode, **options).A)
        entries = entries[entries > 0]
        assert entries.min() > 1e-12
        counts.add((mode, len(entries)))
    assert ("central", 684) in counts


def test_rows_name_the_quantities():
    operator = trajcli.operator(5, 0.1, "jerk")
    np.testing.assert_array_equal(operator.A[operator.rows("jerk")][1:], np.eye(5))
    assert operator.A[operator.rows("position")].shape == (6, 5)


def test_time_stamps_serve_as_steps():
    stamps = np.array([0.0, 0.1, 0.4, 0.5])
    by_times = trajcli.operator(3, mode="central", times=stamps)
    np.testing.assert_array_equal(by_times.A, trajcli.operator(3, np.diff(stamps), "central").A)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"horizon": 0, "dt": 0.1}, "horizon"),
        ({"horizon": -3, "dt": 0.1}, "horizon"),
        ({"horizon": 3.0, "dt": 0.1}, "horizon"),
        ({"horizon": True, "dt": 0.1}, "horizon"),
        ({"horizon": 10**18, "dt": 0.1}, "do not fit into memory"),
        ({"horizon": 3, "dt": "0.1"}, "not real numbers"),
        ({"horizon": 3, "dt": [0.1, [0.2]]}, "not an array"),
        ({"horizon": 3, "dt": np.timedelta64(1, "ms")}, "not real numbers"),
        ({"horizon": 3, "dt": 0.1, "mode": "clique", "start": "bogus"}, "unknown start"),
        ({"horizon": 5, "dt": 1e-320, "mode": "central"}, "beyond float64"),
        ({"horizon": 5, "dt": 1e-160, "mode": "clique"}, "beyond float64"),
        ({"horizon": 3}, "no time step"),
        ({"horizon": 3, "dt": [0.1, 0.2]}, "wrong shape"),
        ({"horizon": 3, "dt": -0.1}, "not positive"),
        ({"horizon": 3, "dt": 0.1, "mode": "snap"}, "unknown mode"),
        ({"horizon": 3, "dt": 0.1, "mode": "jerk", "degree": 3}, "takes no option"),
        ({"horizon": 3, "dt": 0.1, "mode": "jerk", "start": "first"}, "no position to start from"),
        ({"horizon": 3, "dt": 0.1, "mode": "bspline", "start": "first"}, "cannot be a recording"),
    ],
)
def test_what_cannot_be_a_matrix_is_refused(options, message):
    with pytest.raises(trajcli.TrajcliError, match=message):
        trajcli.operator(**options)
