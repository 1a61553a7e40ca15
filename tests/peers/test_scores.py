"""Scores beside slow loops over the published definitions, and motions known in closed form."""

from __future__ import annotations

import os
from itertools import pairwise

import numpy as np
import pytest

import trajcli

SEED = int(os.environ.get("TRAJCLI_SEED") or 0)
SPARC = int(os.environ.get("TRAJCLI_SPARC") or 10)
"""How many random trajectories have their spectra summed up."""


def minimum_jerk(rows: int, duration: float, amplitudes) -> tuple:
    """10 s³ − 15 s⁴ + 6 s⁵ and its derivatives, [1, rows, D], with the times [rows]."""
    time = np.linspace(0.0, duration, rows)
    s, a = time[:, None] / duration, np.asarray(amplitudes)
    p = a * (10 * s**3 - 15 * s**4 + 6 * s**5)
    v = a * (30 * s**2 - 60 * s**3 + 30 * s**4) / duration
    acceleration = a * (60 * s - 180 * s**2 + 120 * s**3) / duration**2
    j = a * (60 - 360 * s + 360 * s**2) / duration**3
    return p[None], v[None], acceleration[None], j[None], time


def random_trajectory(seed: int = 0, uneven: bool = False) -> trajcli.Trajectory:
    random = np.random.default_rng(seed)
    steps = random.uniform(0.005, 0.015, 150) if uneven else np.full(150, 0.01)
    time = np.concatenate([[0.0], np.cumsum(steps)])
    k = np.arange(1, 6)
    phase, gain = random.uniform(0, 6, (3, 1, 4, 5)), random.normal(size=(3, 1, 4, 5)) / k
    angle = 4.0 * k * time[:, None, None] + phase
    p = (gain * np.sin(angle)).sum(-1)
    v = (4 * k * gain * np.cos(angle)).sum(-1)
    return trajcli.Trajectory(p, v, None, (-((4 * k) ** 3) * gain * np.cos(angle)).sum(-1), time)


def sparc_by_definition(speed, rate: float) -> float:
    """Balasubramanian et al. 2015, bin by bin, with the Fourier sums written out."""
    size = 2 ** (int(np.ceil(np.log2(len(speed)))) + 4)
    rows = np.arange(len(speed))
    frequencies = [k * rate / size for k in range(size // 2 + 1) if k * rate / size <= 10.0]
    magnitude = np.array(
        [abs(np.sum(speed * np.exp(-2j * np.pi * f / rate * rows))) for f in frequencies]
    )
    magnitude = magnitude / magnitude[0]
    cutoff = max(k for k, one in enumerate(magnitude) if one >= 0.05)
    if cutoff == 0:
        return np.nan  # an integral from 0 to 0 over its width
    total = 0.0
    for k in range(cutoff):
        df = (frequencies[k + 1] - frequencies[k]) / frequencies[cutoff]
        total -= np.sqrt(df**2 + (magnitude[k + 1] - magnitude[k]) ** 2)
    return total


def test_a_minimum_jerk_motion_has_its_known_scores():
    p, v, a, j, time = minimum_jerk(4001, 1.6, [0.3, -0.4])
    found = trajcli.score(trajcli.Trajectory(p, v, a, j, time), {"velocity": 2.0})
    assert found["log_jerk"] == pytest.approx([-np.log(720 / 1.875**2)], abs=1e-5)
    assert found["duration"] == pytest.approx([1.6])
    assert found["path_length"] == pytest.approx([0.5], rel=1e-12)  # a straight line
    # the mean of (60 − 360 s + 360 s²)² is 720
    assert found["rms_jerk"] == pytest.approx([np.sqrt(720 * 0.25 / 2) / 1.6**3], rel=1e-3)
    assert found["limit_share"] == pytest.approx([1.875 * 0.4 / 1.6 / 2.0], rel=1e-6)
    # 16 s² (1 − s)² = 0.05
    s = 0.5 - np.sqrt(0.25 - np.sqrt(0.05 / 16))
    assert found["still"] == pytest.approx([2 * s], abs=1e-3)
    assert found["time_jumps"] == [0]


def test_sparc_is_the_published_sum():
    motion = random_trajectory()
    found = trajcli.score(motion)["sparc"]
    speed = np.sqrt((np.asarray(motion.velocity) ** 2).sum(-1))
    assert found == pytest.approx([sparc_by_definition(one, 100.0) for one in speed], rel=1e-11)


@pytest.mark.parametrize("number", range(SPARC))
def test_sparc_is_the_published_sum_at_any_rate(number):
    random = np.random.default_rng([SEED, number])
    rows = int(random.integers(5, 60))
    rates = np.exp(random.uniform(np.log([5.0, 300.0, 3000.0]), np.log([50.0, 3000.0, 3e5])))
    speed = abs(random.normal(size=(3, rows)).cumsum(1)) + 0.1
    times = np.arange(rows) / rates[:, None]
    found = trajcli.score(trajcli.Trajectory(None, speed[..., None], None, None, times))["sparc"]
    expected = [sparc_by_definition(one, rate) for one, rate in zip(speed, rates, strict=True)]
    assert found == pytest.approx(expected, rel=1e-9, nan_ok=True)
    for b in range(3):
        one = trajcli.Trajectory(None, speed[b : b + 1, :, None], None, None, times[b])
        assert trajcli.score(one)["sparc"] == pytest.approx(expected[b : b + 1], nan_ok=True)


def test_equal_trajectories_have_equal_scores_wherever_they_are_in_a_batch():
    motion = random_trajectory(uneven=True)
    same = np.repeat(motion.velocity[:1], 1000, 0)
    many = trajcli.Trajectory(None, same, None, None, motion.time)
    for name, values in trajcli.score(many).items():
        assert (values == values[0]).all(), name


def test_sparc_of_uneven_rows_is_that_of_the_even_motion():
    times = np.sort(np.concatenate([np.linspace(0, 1.5, 600), [0.1003, 0.72]]))
    p, v, a, j, _ = minimum_jerk(len(times), 1.5, [1.0])
    even = trajcli.score(trajcli.Trajectory(p, v, a, j, np.linspace(0, 1.5, len(times))))
    s = times / 1.5
    v = (30 * s**2 - 60 * s**3 + 30 * s**4)[None, :, None] / 1.5
    found = trajcli.score(trajcli.Trajectory(None, v, None, None, times))
    assert found["sparc"] == pytest.approx(even["sparc"], abs=1e-5)
    idle = {"idle_start", "idle_end", "idle_longest"}
    assert set(found) == {"duration", "sparc", "still", "time_jumps", "saturation"} | idle


@pytest.mark.parametrize("uneven", [False, True])
def test_sums_over_rows_are_those_of_slow_loops(uneven):
    motion = random_trajectory(1, uneven)
    found = trajcli.score(motion, {"position": (-2.0, 3.0), "velocity": (-40.0, 50.0)})
    time = motion.time
    for b in range(3):
        p, v, j = (np.asarray(x)[b] for x in (motion.position, motion.velocity, motion.jerk))
        path = sum(float(np.linalg.norm(y - x)) for x, y in pairwise(p))
        cost = moved = 0.0
        speeds = [float(np.linalg.norm(row)) for row in v]
        for t in range(len(time) - 1):
            dt = time[t + 1] - time[t]
            cost += dt * (np.sum(j[t] ** 2) + np.sum(j[t + 1] ** 2)) / 2
            moved += dt * (0.5 * (speeds[t] + speeds[t + 1]) > 0.05 * max(speeds))
        duration = time[-1] - time[0]
        assert found["path_length"][b] == pytest.approx(path, rel=1e-12)
        expected = -np.log(duration**3 * cost / max(speeds) ** 2)
        assert found["log_jerk"][b] == pytest.approx(expected, rel=1e-12)
        assert found["still"][b] == pytest.approx(1 - moved / duration, abs=1e-12)
        assert found["rms_jerk"][b] == pytest.approx(np.sqrt(np.mean(j**2)), rel=1e-12)
        ordered = sorted(np.abs(j).ravel())
        place = 0.95 * (len(ordered) - 1)
        low = int(place)
        p95 = ordered[low] + (place - low) * (ordered[low + 1] - ordered[low])
        assert found["p95_jerk"][b] == pytest.approx(p95, rel=1e-12)
        shares = [*(abs(x - 0.5) / 2.5 for x in p.ravel())]
        shares += [x / 50 if x > 0 else x / -40 for x in v.ravel()]
        assert found["limit_share"][b] == pytest.approx(max(shares), rel=1e-12)


def test_standing_still_is_by_the_mean_speed_of_each_step():
    speeds, times = [0.0, 0.04, 0.08, 1.0, 0.02, 0.0], np.array([0.0, 1, 3, 4, 5, 7])
    motion = trajcli.Trajectory(None, np.array(speeds)[None, :, None], None, None, times)
    assert trajcli.score(motion)["still"] == pytest.approx([3 / 7])  # the first and the last


def test_what_is_absent_is_the_central_difference_of_the_positions():
    motion = random_trajectory()
    found = trajcli.score(trajcli.Trajectory(motion.position, None, None, None, motion.time))
    expected = trajcli.score(trajcli.differentiate(motion.position, dt=0.01, method="central"))
    assert set(found) == set(expected)
    for name, values in found.items():
        assert values == pytest.approx(expected[name], rel=1e-9), name


def test_saturation_counts_values_at_limits_or_at_the_extremes_of_all():
    values = np.zeros((2, 4, 3))
    values[0, :, 0] = [1.0, 1.0, 0.3, -1.0]  # three at the extremes of the dof
    values[1, :, 0] = [0.5, 0.5, 0.2, 0.1]  # none: others reach further
    values[:, :, 2] = [0.1, 0.2, 0.3, 0.4]  # two each
    motion = trajcli.Trajectory(values, None, None, None, np.arange(4.0))
    assert trajcli.score(motion)["saturation"] == pytest.approx([5 / 12, 2 / 12])
    limits = {"position": (np.array([-2.0, -1.0, -1.0]), np.array([0.5, 1.0, np.inf]))}
    found = trajcli.score(motion, limits)["saturation"]  # at or beyond 0.5: two and two
    assert found == pytest.approx([5 / 12, 4 / 12])


def test_absent_scores_are_nan_and_leave_other_trajectories_alone():
    motion = random_trajectory()
    alone = trajcli.score(motion)
    broken = np.array(motion.velocity)
    broken[1, 7, 2] = np.nan
    times = np.tile(motion.time, (3, 1))
    times[2, 50] = times[2, 49]
    found = trajcli.score(trajcli.Trajectory(motion.position, broken, None, motion.jerk, times))
    for name in ("sparc", "still", "log_jerk"):
        assert np.isnan(found[name][1:]).all()
        assert found[name][0] == pytest.approx(alone[name][0], rel=1e-9)
    assert found["time_jumps"].tolist() == [0, 0, 2]  # a repeated stamp, and a step of two after it
    found = trajcli.score(trajcli.Trajectory(np.ones((1, 9, 2)), None, None, None, np.arange(9.0)))
    assert np.isnan(found["sparc"]).all()
    assert np.isnan(found["log_jerk"]).all()
    assert found["still"] == [1.0]
    assert found["saturation"] == [0.0]


@pytest.mark.parametrize("limit", [-1.0, (2.0, 1.0), np.array([1.0, np.nan])])
def test_limits_that_nothing_keeps_are_refused(limit):
    motion = trajcli.Trajectory(None, np.ones((1, 5, 2)), None, None, 0.1 * np.arange(5))
    with pytest.raises(trajcli.InputError, match="velocity: limits that nothing keeps"):
        trajcli.score(motion, {"velocity": limit})


def idle_by_a_loop(speed, times, most: float) -> tuple[float, float, float]:
    """Returns the seconds of slow steps at the start, at the end, and the longest run between."""
    runs: list[tuple[bool, float]] = []
    for (a, b), (s, t) in zip(pairwise(speed), pairwise(times), strict=True):
        slow = bool((a + b) / 2 <= most)
        if runs and runs[-1][0] == slow:
            runs[-1] = slow, runs[-1][1] + (t - s)
        else:
            runs.append((slow, t - s))
    if len(runs) == 1 and runs[0][0]:
        return runs[0][1], runs[0][1], 0.0
    start = runs[0][1] if runs[0][0] else 0.0
    end = runs[-1][1] if runs[-1][0] else 0.0
    return start, end, max((length for slow, length in runs[1:-1] if slow), default=0.0)


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("still", [None, 0.4])
def test_idle_time_is_that_of_a_loop_over_the_steps(seed, still):
    random = np.random.default_rng(seed)
    times = np.cumsum(random.uniform(0.01, 0.03, (4, 60)), 1)
    moving = random.uniform(size=(4, 60)) < 0.5
    moving[0, :20] = moving[0, 40:] = False
    moving[1] = seed % 2
    speed = np.repeat(np.repeat(moving[:, ::5], 5, 1)[..., None], 2, 2) * random.normal(size=2)
    found = trajcli.score(trajcli.Trajectory(None, speed, None, None, times), still=still)
    norm = np.linalg.norm(speed, axis=2)
    for b in range(4):
        most = 0.05 * norm[b].max() if still is None else still
        expected = idle_by_a_loop(norm[b], times[b], most)
        names = ("idle_start", "idle_end", "idle_longest")
        np.testing.assert_allclose([found[n][b] for n in names], expected, rtol=0, atol=1e-12)


def test_idle_time_is_not_known_without_a_speed():
    speed = np.ones((2, 9, 1))
    speed[1, 4] = np.nan
    motion = trajcli.Trajectory(None, speed, None, None, np.arange(9.0))
    for name in ("idle_start", "idle_end", "idle_longest"):
        assert np.isnan(trajcli.score(motion)[name]).tolist() == [False, True]
