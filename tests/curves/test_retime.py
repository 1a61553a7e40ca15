"""Pace within limits: the factor is the smallest, and nothing exceeds a limit afterwards."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import trajcli
from trajcli import InputError, Trajectory, integrate

RANDOM = np.random.default_rng(3)
QUANTITIES = {
    name: RANDOM.standard_normal((6, 20, 3)).astype("f4")
    for name in ("velocity", "acceleration", "jerk")
}
LIMITS = {
    "velocity": (np.array([-1.0, -2.0, -0.5]), np.array([1.0, 0.7, 3.0])),
    "acceleration": 2.0,
    "jerk": (np.array([-1.0, -9.0, -9.0]), np.array([2.0, 9.0, 9.0])),
}


def of_rows(parts):
    """A trajectory of no mode, which has limits at its rows alone."""
    rows = [parts.get(name) for name in QUANTITIES]
    return Trajectory(None, *rows, np.arange(next(iter(parts.values())).shape[1]) * 0.1)


def retime(parts, limits, **options):
    return trajcli.retime(of_rows(parts), limits, **options)


def pair(limit):
    return limit if isinstance(limit, tuple) else (-limit, limit)


def smallest(parts, limits):
    """Dof by dof, row by row, in plain Python."""
    factors = []
    for b in range(6):
        worst = 0.0
        for order, name in enumerate(("velocity", "acceleration", "jerk"), 1):
            if name not in limits:
                continue
            low, high = (np.broadcast_to(x, 3) for x in pair(limits[name]))
            for row in parts[name][b]:
                for d, x in enumerate(row.tolist()):
                    share = x / high[d] if x > 0 else x / low[d]
                    worst = max(worst, share ** (1 / order))
        factors.append(worst)
    return np.array(factors)


@pytest.mark.parametrize("kind", ["f4", "f8"])
@pytest.mark.parametrize("names", [("velocity",), ("jerk",), tuple(QUANTITIES)])
def test_the_factor_is_the_smallest_and_limits_hold_after_rounding(kind, names):
    parts = {name: QUANTITIES[name].astype(kind) for name in QUANTITIES}
    limits = {name: LIMITS[name] for name in names}
    found = retime(parts, limits)
    exact = smallest(parts, limits)
    np.testing.assert_allclose(found.factor, exact, rtol=4 * np.finfo(kind).eps)
    for order, name in enumerate(parts, 1):
        expected = parts[name] / found.factor[:, None, None] ** order
        np.testing.assert_allclose(getattr(found, name), expected, rtol=2e-7)
        assert getattr(found, name).dtype == kind
    for name in names:
        values = getattr(found, name).astype("f8")
        assert (values <= pair(limits[name])[1]).all()
        assert (values >= pair(limits[name])[0]).all()
    for b in range(6):  # a thousandth less, and some limit is broken
        less = exact[b] * 0.999
        paced = {n: parts[n][b] / less**o for o, n in enumerate(QUANTITIES, 1) if n in limits}
        over = [(v > pair(limits[n])[1]) | (v < pair(limits[n])[0]) for n, v in paced.items()]
        assert np.any(over)


def test_a_stretched_trajectory_is_the_same_path_at_its_times():
    jerk = RANDOM.standard_normal((2, 30, 3))
    first = integrate(jerk, "zero", 0.02, "jerk")
    parts = {name: getattr(first, name) for name in QUANTITIES}
    found = retime(parts, dict.fromkeys(QUANTITIES, 0.05))
    whole = trajcli.retime(first, dict.fromkeys(QUANTITIES, 0.05))
    for b, s in enumerate(found.factor):
        again = integrate(jerk[b] / s**3, "zero", 0.02 * s, "jerk")
        np.testing.assert_allclose(again.position[0], first.position[b], rtol=0, atol=1e-13)
        np.testing.assert_allclose(again.velocity[0], found.velocity[b], atol=1e-13)
        np.testing.assert_allclose(again.time, whole.time[b], rtol=1e-15)
    np.testing.assert_array_equal(whole.position, first.position)
    assert (whole.mode, whole.options) == (first.mode, first.options)


def test_times_are_stretched_from_the_first_on():
    rows = Trajectory(None, np.ones((1, 3, 1)), None, None, np.array([5.0, 6.0, 8.0]))
    np.testing.assert_allclose(trajcli.retime(rows, {"velocity": 0.5}).time, [5.0, 7.0, 11.0])


def test_padding_decides_nothing():
    made = integrate(RANDOM.standard_normal((3, 12, 2)), "zero", 0.1, "jerk", scheme="foh")
    limits, lengths = {"velocity": 0.3, "acceleration": 0.7}, np.array([13, 5, 1])
    rows = made.outputs()
    for b, length in enumerate(lengths):
        for values in rows.values():
            values[b, length:] = [np.nan, 1e9, -1e9][b]
    padded = trajcli.retime(
        Trajectory(*rows.values(), made.time, made.mode, made.options, lengths), limits
    )
    np.testing.assert_array_equal(padded.lengths, lengths)
    for b, length in enumerate(lengths):
        alone = Trajectory(
            *(x[b : b + 1, :length] for x in rows.values()),
            made.time[:length],
            made.mode,
            made.options,
        )
        want = trajcli.retime(alone, limits)
        assert (padded.factor[b], padded.row[b], padded.dof[b]) == (want.factor, want.row, want.dof)
        np.testing.assert_array_equal(padded.velocity[b : b + 1, :length], want.velocity)
        np.testing.assert_array_equal(padded.time[b, :length], want.time)


def test_slack_makes_faster_unless_only_slower_is_asked_for():
    limits = {"velocity": 100.0}
    assert (retime(QUANTITIES, limits).factor < 1).all()
    found = retime(QUANTITIES, limits, slower_only=True)
    np.testing.assert_array_equal(found.factor, np.ones(6))
    np.testing.assert_array_equal(found.jerk, QUANTITIES["jerk"])
    assert found.limited_by == [""] * 6


def test_what_stands_still_keeps_its_pace_and_what_limits_is_named():
    parts = {name: v.copy() for name, v in QUANTITIES.items()}
    for values in parts.values():
        values[2] = 0
    parts["jerk"][3, 5, 1] = 1e6
    found = retime(parts, LIMITS)
    assert found.factor[2] == 1.0
    assert found.limited_by[2] == ""
    assert found.limited_by[3] == "jerk"


@pytest.mark.parametrize(
    ("limits", "word"),
    [
        ({}, "no limits"),
        ({"position": 1.0}, "no limits"),
        ({"velocity": (-np.ones(2), np.ones(2))}, "3"),
        ({"velocity": (0.1, 1.0)}, "lower < 0"),
        ({"velocity": (-1.0, 0.0)}, "upper > 0"),
    ],
)
def test_limits_that_do_not_fit_are_refused(limits, word):
    with pytest.raises(InputError) as caught:
        retime(QUANTITIES, limits)
    assert word in str(caught.value)


@pytest.mark.parametrize("limit", [1e-320, 1e308])
def test_limits_that_take_longer_than_numbers_go_are_refused(limit):
    velocity = QUANTITIES["velocity"] * (1.0 if limit < 1.0 else 1e-9)
    with pytest.raises(InputError, match=r"trajectory 0, velocity: limits that no pace can keep"):
        retime({"velocity": velocity}, {"velocity": limit})


def test_a_limited_quantity_that_is_missing_and_nan_are_refused():
    with pytest.raises(InputError, match="no jerk"):
        retime({"velocity": QUANTITIES["velocity"]}, LIMITS)
    with pytest.raises(InputError, match="NaN"):
        retime({**QUANTITIES, "velocity": np.full((6, 20, 3), np.nan)}, LIMITS)


@pytest.mark.parametrize("kind", ["f4", "f8"])
@pytest.mark.parametrize("slower_only", [False, True])
def test_the_binding_dof_and_row_are_named_with_the_other_slack(kind, slower_only):
    parts = {name: values.astype(kind) for name, values in QUANTITIES.items()}
    found = retime(parts, LIMITS, slower_only=slower_only)
    for b in range(6):
        used = {}  # share of the limit of each value, after retiming, in plain Python
        for name in parts:
            low, high = (np.broadcast_to(x, 3) for x in pair(LIMITS[name]))
            for t, row in enumerate(getattr(found, name)[b].tolist()):
                for d, x in enumerate(row):
                    used[name, t, d] = x / high[d] if x > 0 else x / low[d]
        for name in parts:
            worst = max(share for (of, *_), share in used.items() if of == name)
            assert abs(found.slack[name][b] - (1 - worst)) < 8 * np.finfo(kind).eps
        name, t, d = max(used, key=used.__getitem__)
        bound = not slower_only or found.factor[b] > 1
        assert (found.limited_by[b], found.row[b], found.dof[b]) == (
            (name, t, d) if bound else ("", -1, -1)
        )
        assert (used[name, t, d] > 1 - 8 * np.finfo(kind).eps) == bound


def test_a_dof_without_limits_does_not_bind():
    free = {name: np.where(np.arange(3) == 1, 1e9, v) for name, v in QUANTITIES.items()}
    limit = np.array([2.0, np.inf, 3.0])
    found = retime(free, {"velocity": (-limit, limit)})
    alone = retime({"velocity": QUANTITIES["velocity"][..., [0, 2]]}, {"velocity": limit[[0, 2]]})
    np.testing.assert_array_equal(found.factor, alone.factor)
    assert set(found.dof.tolist()) <= {0, 2}


def test_limits_hold_for_subnormal_numbers_after_rounding():
    velocity = np.full((1, 4, 1), 1e-44, "f4")  # seven times the smallest there is
    assert 0 < retime({"velocity": velocity}, {"velocity": 1e-44 * 0.6}).velocity.max() <= 0.6e-44


def test_a_duration_is_kept_exactly_or_the_least_is_named():
    motion = integrate(RANDOM.standard_normal((3, 30, 2)), "zero", 0.1, "jerk")
    limits = {"velocity": 0.3, "jerk": 2.0}
    fastest = trajcli.retime(motion, limits)
    least = 3.0 * fastest.factor.max()
    found = trajcli.retime(motion, limits, duration=1.5 * least)
    np.testing.assert_allclose(found.time[:, -1], 1.5 * least, rtol=1e-14)
    np.testing.assert_allclose(found.factor, 0.5 * least, rtol=1e-14)
    for order, name in ((1, "velocity"), (3, "jerk")):
        peak = abs(getattr(found, name)).max((1, 2)) / limits[name]
        assert (1 - found.slack[name] >= peak * (1 - 1e-12)).all()  # between rows it may be higher
        share = (1 - fastest.slack[name]) * (fastest.factor / found.factor) ** order
        np.testing.assert_allclose(1 - found.slack[name], share, rtol=1e-12)
    assert (found.limited_by, found.row.tolist()) == ([""] * 3, [-1] * 3)
    with pytest.raises(InputError, match="forbid") as error:
        trajcli.retime(motion, limits, duration=0.99 * least)
    named = float(error.value.faults[0].hint.removeprefix("duration="))
    assert least <= named < least + 1e-5
    trajcli.retime(motion, limits, duration=named)
    still = integrate(np.zeros((1, 5, 2)), "zero", 0.1)
    assert trajcli.retime(still, limits, duration=0.01).time[-1] == pytest.approx(0.01)


def test_a_padded_batch_lasts_as_long_as_asked_for():
    motions = [integrate(RANDOM.standard_normal((1, n, 2)), "zero", 0.1, "jerk") for n in (9, 30)]
    found = trajcli.retime(trajcli.concatenate(motions), {"jerk": 100.0}, duration=4.0)
    np.testing.assert_allclose(found.time[[0, 1], found.lengths - 1], 4.0, rtol=1e-14)


def test_a_duration_has_the_gradient_of_its_factor():
    time = torch.arange(6.0, dtype=torch.float64, requires_grad=True)
    rows = torch.tensor(RANDOM.standard_normal((1, 6, 2)))
    motion = Trajectory(None, rows, None, None, time)
    found = trajcli.retime(motion, {"velocity": 100.0}, duration=20.0)
    torch.testing.assert_close(
        found.time.detach()[..., -1].reshape(()), torch.tensor(20.0).double()
    )
    found.velocity.sum().backward()
    # v · own / duration, whose gradient by the last time is that of own
    expected = torch.zeros(6, dtype=torch.float64)
    expected[[0, -1]] = torch.stack([-rows.sum(), rows.sum()]) / 20.0
    torch.testing.assert_close(time.grad, expected)


def test_a_margin_is_left_of_all_limits():
    found, half = retime(QUANTITIES, LIMITS, margin=0.5), {}
    for name, limit in LIMITS.items():
        half[name] = tuple(0.5 * np.asarray(side) for side in pair(limit))
    np.testing.assert_array_equal(found.factor, retime(QUANTITIES, half).factor)
