"""The fastest timing of a path: within limits at every step, and as fast as is known exactly."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import trajcli
from trajcli import InputError, State, Trajectory, UsageError
from trajcli.curves import fastest

NAMES = ("velocity", "acceleration", "jerk")
LIMITS = {
    "velocity": np.array([2.0, 2.5, 1.5]),
    "acceleration": np.array([10.0, 8.0, 15.0]),
    "jerk": np.array([100.0, 150.0, 80.0]),
}
RANDOM = np.random.default_rng(54)
WAYPOINTS = RANDOM.uniform(-1, 1, (4, 6, 3))
MIXED = [
    WAYPOINTS[0],  # curved
    WAYPOINTS[1] * [1, 0, 0],  # one joint goes to and fro
    WAYPOINTS[2] * 1e-4,
    np.repeat(WAYPOINTS[3], [1, 2, 1, 3, 1, 1], 0),  # waypoints given twice
]


def pair(limit: Any) -> Any:
    return limit if isinstance(limit, tuple) else (-np.asarray(limit), np.asarray(limit))


def control_points(made: Any, k: int) -> np.ndarray:
    """All control points of a trajectory, from its states and actions: the Taylor polynomial of the
    start gives four, and that of the goal, or rest on the last action, those at the end."""
    h, count = made.step[k], made.shape[1] if made.lengths is None else made.lengths[k]
    actions = made.actions[k, : count - 5]

    def points(state: Any, at: int) -> list[np.ndarray]:
        p, v, a, j = (
            x[k] for x in (state.position, state.velocity, state.acceleration, state.jerk)
        )
        # the blossom of p + v t + a t²/2 + j t³/6 at three knots in a row, from a knot on
        knots = [np.array([n - 2, n - 1, n]) - at for n in range(4)]
        return [
            p + v * h * u.sum() / 3
            + a * h**2 / 2 * (u[0] * u[1] + u[0] * u[2] + u[1] * u[2]) / 3 + j * h**3 / 6 * u.prod()
            for u in knots
        ]  # fmt: skip

    if made.goal is None:
        return np.concatenate([points(made.start, 0), actions, [actions[-1]] * 3])
    return np.concatenate([points(made.start, 0), actions[:-1], points(made.goal, 1)])


def used(made: Any, k: int, limits: Any) -> dict[str, float]:
    """The largest share of each limit that the differences of the control points take."""
    points = control_points(made, k)
    shares = {}
    for order, name in enumerate(NAMES, 1):
        if name in limits:
            rate = np.diff(points, order, axis=0) / made.step[k] ** order
            low, high = pair(limits[name])
            shares[name] = float(np.maximum(rate / high, rate / low).max())
    return shares


def motion_of(made: Any) -> np.ndarray:
    """How long motions from rest to rest last, to the next step, or exactly with ``rows``."""
    return made.duration - 3 * made.step


def min_jerk(rows: int = 101) -> np.ndarray:
    u = np.linspace(0, 1, rows)[:, None]
    return u**3 * (10 - 15 * u + 6 * u * u) * [1.0, -0.5, 0.3]


def plan(points: Any, duration: float = 1.0, velocity: Any = None, acceleration: Any = None) -> Any:
    parts = [None if x is None else np.asarray(x)[None] for x in (points, velocity, acceleration)]
    return Trajectory(*parts, None, np.linspace(0, duration, len(points)))


@pytest.mark.parametrize("rate", [1000.0, 125.0])
def test_differences_of_control_points_keep_limits_at_every_step(rate: float) -> None:
    for path in MIXED:
        made = trajcli.retime(path, LIMITS, rate=rate)
        shares = used(made, 0, LIMITS)
        assert max(shares.values()) <= 1 + 1e-9
        assert max(shares.values()) > 0.98 or rate < 1000
        assert made.states == ["solved"]
        assert made.duration[0] <= 0.9 * made.uniform[0]


def test_rows_are_those_of_integrate_bit_for_bit() -> None:
    u = np.linspace(0, 4, 81)[:, None] + [0, 1, 2]
    for path in (WAYPOINTS, WAYPOINTS[:, :, :1], plan(np.sin(u), 4.0, np.cos(u))):
        made = trajcli.retime(path, {n: x[: path.shape[-1]] for n, x in LIMITS.items()}, "fastest")
        again = trajcli.integrate(
            made.actions, made.start, made.step[:, None], "bspline", goal=made.goal,
            lengths=None if made.lengths is None else made.lengths - 5, **made.options,
        )  # fmt: skip
        for one, other in zip(made, again, strict=True):
            np.testing.assert_array_equal(one, other)
        np.testing.assert_array_equal(made.time, again.time)
        at_rows = trajcli.sample(made[:1], made[:1].time.reshape(-1)[:9])
        np.testing.assert_array_equal(at_rows.position, made.position[:1, :9])


@pytest.mark.parametrize("jerk", [1000.0, 50.0, 5.0, np.inf])
def test_lines_take_as_long_as_ruckig_does(jerk: float) -> None:
    ruckig = pytest.importorskip("ruckig")
    problem = ruckig.InputParameter(1)
    problem.current_position, problem.target_position = [0.0], [1.0]
    problem.max_velocity, problem.max_acceleration, problem.max_jerk = [1.0], [4.0], [jerk]
    known = ruckig.Trajectory(1)
    ruckig.Ruckig(1).calculate(problem, known)
    limits = {"velocity": 1.0, "acceleration": 4.0, "jerk": jerk}
    exact = trajcli.retime([[0.0], [1.0]], limits, rows=500)
    assert 1 - 1e-9 < motion_of(exact)[0] / known.duration < 1.001
    made = trajcli.retime([[0.0], [1.0]], limits)
    # two points before and three behind, and less than a step
    assert 0 <= made.duration[0] - motion_of(exact)[0] - 0.003 < 0.001
    assert made.duration[0] == pytest.approx(made.time[-1], rel=1e-14)


@pytest.mark.parametrize("k", [0.1, 7.0])
def test_time_scales_as_the_limits_do(k: float) -> None:
    scaled = {name: LIMITS[name] * k**order for order, name in enumerate(NAMES, 1)}
    one, other = (trajcli.retime(WAYPOINTS, x, rows=500).duration for x in (LIMITS, scaled))
    np.testing.assert_allclose(other * k, one, rtol=1e-6)


def test_a_mirrored_path_within_mirrored_limits_takes_as_long() -> None:
    skew = {n: (-0.4 * x, 1.3 * x) for n, x in LIMITS.items()}
    mirrored = {n: (-high, -low) for n, (low, high) in skew.items()}
    wide = {n: (-1.3 * x, 1.3 * x) for n, x in LIMITS.items()}
    one, looser = (trajcli.retime(WAYPOINTS, x, rows=500) for x in (skew, wide))
    other = trajcli.retime(-WAYPOINTS, mirrored, rows=500)
    np.testing.assert_allclose(other.duration, one.duration, rtol=1e-9)
    assert (one.duration > 1.05 * looser.duration).all()
    for k in range(4):
        assert max(used(one, k, skew).values()) <= 1 + 1e-9


def test_infinite_limits_are_none() -> None:
    faster = trajcli.retime(WAYPOINTS, {**LIMITS, "jerk": np.array([100.0, np.inf, np.inf])})
    assert (faster.duration < trajcli.retime(WAYPOINTS, LIMITS).duration).all()
    assert not faster.shares["jerk"][:, 1:].any()
    without = {n: LIMITS[n] for n in NAMES[:2]}
    none = trajcli.retime(WAYPOINTS, {**without, "jerk": (-np.inf, np.inf)})
    np.testing.assert_array_equal(none.duration, trajcli.retime(WAYPOINTS, without).duration)
    for jerk in ((-5.0, np.inf), (-np.inf, 5.0)):  # on one side alone
        made = trajcli.retime(WAYPOINTS, {**without, "jerk": jerk})
        for k in range(4):
            assert 0.98 < max(used(made, k, {"jerk": jerk}).values()) <= 1 + 1e-9
    motion = trajcli.integrate(np.ones((1, 9, 3)), "zero", 0.1)
    assert trajcli.retime(motion, {"velocity": np.inf}).factor.tolist() == [1.0]
    assert motion_of(trajcli.retime([[0.0], [1.0]], {"velocity": 0.5}))[0] >= 2.0


def test_trajectories_of_a_padded_batch_are_as_alone_bit_for_bit() -> None:
    motions = [plan(min_jerk(n), n / 100) for n in (101, 41, 71)]
    motions.append(plan(np.ones((5, 3))))
    batch = trajcli.concatenate(motions)
    batch.position[1, 41:] = np.nan
    made = trajcli.retime(batch, LIMITS, "fastest")
    assert made.states == ["solved"] * 3 + ["does not move"]
    for k, motion in enumerate(motions):
        alone = trajcli.retime(motion, LIMITS, "fastest")
        count = made.lengths[k]
        assert count == alone.shape[1]
        for one, other in zip(made, alone, strict=True):
            np.testing.assert_array_equal(one[k, :count], other[0])
            assert not one[k, count:].any()
        np.testing.assert_array_equal(made.actions[k, : count - 5], alone.actions[0])
        assert made.duration[k] == alone.duration[0]
        for name in NAMES:
            np.testing.assert_array_equal(made.shares[name][k], alone.shares[name][0])


def test_tensors_have_the_values_of_arrays() -> None:
    limits = {name: torch.tensor(x) for name, x in LIMITS.items()}
    made, known = trajcli.retime(torch.tensor(WAYPOINTS), limits), trajcli.retime(WAYPOINTS, LIMITS)
    assert isinstance(made.duration, torch.Tensor)
    assert made.position.dtype == torch.float64
    assert made.start.jerk.shape == (4, 3)
    assert made.numpy() == known
    assert trajcli.retime(torch.tensor(WAYPOINTS).float(), limits).position.dtype == torch.float64


def test_rows_with_gradients_are_for_the_uniform_pace() -> None:
    rows = torch.tensor(WAYPOINTS, requires_grad=True)
    with pytest.raises(UsageError, match="no gradient") as error:
        trajcli.retime(rows, LIMITS)
    assert "uniform" in error.value.faults[0].hint
    with torch.no_grad():
        trajcli.retime(rows, LIMITS)


U = np.linspace(0, 5, 101)[:, None] + [0.0, 0.7, 2.0]
CURVE, RATES, BENDS = 0.3 * np.sin(U), 0.3 * np.cos(U), -0.3 * np.sin(U)


@pytest.mark.parametrize("options", [{}, {"rate": 130.0}, {"rows": 501}])
def test_moving_ends_keep_their_velocity_and_acceleration(options: Any) -> None:
    for stored in ((RATES, BENDS), (RATES, None)):
        made = trajcli.retime(plan(CURVE, 5.0, *stored), LIMITS, "fastest", **options)
        assert made.options["ends"] == "goal"
        assert made.duration[0] < 0.5 * 5.0
        assert made.step[0] <= 1 / options.get("rate", 1000.0) or "rows" in options
        step = made.step[0]
        for state, row in ((made.start, 0), (made.goal, -1)):
            # the B-spline is h² q̈ / 6 beside the path, and so are its derivatives
            np.testing.assert_allclose(state.position[0], CURVE[row], atol=2 * step**2)
            away = abs(state.velocity[0] - RATES[row])
            assert (away <= step**2 * LIMITS["jerk"] / 6 + 1e-9).all()
            away = abs(state.acceleration[0] - BENDS[row])
            assert (away <= 1e-3 + step * LIMITS["jerk"] / 2).all()
        assert max(used(made, 0, LIMITS).values()) <= 1 + 1e-9
    course = fastest.make_course(CURVE, np.linspace(0, 5, 101))  # positions alone
    assert course.moving == (False, False)
    assert [remark.kind for remark in course.remarks] == ["taken as at rest"] * 2
    cut = fastest.make_course(CURVE, np.linspace(0, 5, 101), RATES, BENDS, 0.05)
    assert cut.moving == (False, False)
    assert ["corners are cut" in remark.kind for remark in cut.remarks] == [True]
    said = [f"the {end}, where it moves at {v}/s" for end, v in (("start", 0.3), ("end", 0.246))]
    assert [remark.text for remark in course.remarks] == said
    with pytest.raises(InputError, match=r"curve through its rows .* own pace") as error:
        trajcli.retime(plan(CURVE, 0.5, RATES * 10, BENDS * 100), LIMITS, "fastest")
    assert "uniform" in error.value.faults[0].hint


@pytest.mark.parametrize("rate", [1000.0, 60.0])
@pytest.mark.parametrize("end", [0, -1])
def test_an_end_that_moves_keeps_its_speed_where_the_other_rests(end: int, rate: float) -> None:
    u, slope = np.linspace(0, 1, 101)[:, None], np.array([1.0, 0.5, -0.3])
    rows, rates, bends = u**3 * slope, 1.5 * u**2 * slope, 1.5 * u * slope
    if end == 0:  # backwards in time
        rows, rates, bends = rows[::-1], -rates[::-1], bends[::-1]
    made = trajcli.retime(plan(rows, 2.0, rates, bends), LIMITS, "fastest", rate=rate)
    state, step = (made.start if end == 0 else made.goal), made.step[0]
    assert step == 1 / rate
    away = abs(state.velocity[0] - rates[end])
    # half of that, as the speed that is stretched to whole steps would be far off at 60 Hz
    assert (away <= step**2 * LIMITS["jerk"] / 6 + 1e-9).all()
    assert (abs(made.position[0, -1 - end] - rows[-1 - end]) < 1e-12).all()
    assert max(used(made, 0, LIMITS).values()) <= 1 + 1e-9


def test_an_end_that_moves_takes_no_other_duration() -> None:
    motion = plan(CURVE, 5.0, RATES, BENDS)
    with pytest.raises(InputError, match="keeps its speed") as error:
        trajcli.retime(motion, LIMITS, "fastest", duration=4.0)
    assert error.value.faults[0].hint == "method='uniform'"
    made = trajcli.retime(motion, LIMITS, "fastest")
    own = float(error.value.faults[0].expected.split()[0])
    assert own == pytest.approx(made.duration[0], rel=1e-9)
    again = trajcli.retime(motion, LIMITS, "fastest", duration=own)
    np.testing.assert_array_equal(again.position, made.position)


def test_an_end_near_its_limits_slows_down_as_required() -> None:
    """At the limit of its speed and slowing down it was faster a step before its first row."""
    limits = {"velocity": 1.0001 * RATES[0, 1], "acceleration": 2.0, "jerk": 20.0}
    motion = plan(CURVE[:20, 1:2], 0.95, RATES[:20, 1:2], BENDS[:20, 1:2])
    made = trajcli.retime(motion, limits, "fastest", rate=100.0)
    assert max(used(made, 0, limits).values()) <= 1 + 1e-9
    assert 0.99 * RATES[0, 1] < made.start.velocity[0, 0] < RATES[0, 1]


def test_one_moving_end_gives_the_other_trajectories_goals_at_rest() -> None:
    u, slope = np.linspace(0, 1, 101)[:, None], np.array([1.0, 0.5, -0.3])
    cubes = plan(u**3 * slope, 2.0, 1.5 * u**2 * slope)
    motion = trajcli.concatenate([cubes, plan(min_jerk(), 2.0, 0 * u * slope)])
    made = trajcli.retime(motion, LIMITS, "fastest")
    assert made.options["ends"] == "goal"
    assert made.goal.velocity[0].any()
    assert not made.goal.velocity[1].any()
    alone = trajcli.retime(motion[1], LIMITS, "fastest")
    np.testing.assert_array_equal(made.position[1, : alone.shape[1]], alone.position[0])


def test_standstills_are_left_out() -> None:
    there, dwell = min_jerk(), np.ones((30, 1))
    rows = np.concatenate([dwell * there[0], there, dwell * there[-1], there[-1] - there])
    made = trajcli.retime(plan(rows, len(rows) / 100), LIMITS, "fastest")
    once = trajcli.retime(plan(there), LIMITS, "fastest")
    np.testing.assert_allclose(motion_of(made), 2 * motion_of(once), rtol=2e-3)
    course = fastest.make_course(rows, np.arange(len(rows)) * 0.01 + 1.7e9)
    first, second = course.dwells
    np.testing.assert_allclose(first, 1.7e9 + np.array([0.0, 0.3]), atol=1e-6)
    np.testing.assert_allclose(second, 1.7e9 + np.array([1.3, 1.61]), atol=1e-6)
    assert course.moving == (False, False)
    assert fastest.make_course(MIXED[3]).remarks == [("repeated waypoints left out", 3, "3")]
    twice = np.repeat(WAYPOINTS[3], [1, 2, 1, 1, 1, 1], 0)
    assert fastest.make_course(twice).remarks == [("repeated waypoints left out", 1, "1")]


def test_a_standstill_may_differ_by_rounding() -> None:
    there, dwell = 100 + min_jerk(), np.ones((30, 1))
    exact = np.concatenate([there, dwell * there[-1], 2 * there[-1] - there[::-1]])
    near = exact.copy()
    near[102:131:2] = np.nextafter(near[102:131:2], 0)
    near[131:] = np.nextafter(near[131:], 200)
    motions = [plan(x, len(x) / 100) for x in (exact, near)]
    one, other = (trajcli.retime(x, LIMITS, "fastest", rate=4000.0) for x in motions)
    assert len(fastest.make_course(near, np.arange(len(near)) / 100).dwells) == 1
    np.testing.assert_allclose(other.duration, one.duration, rtol=2e-3)


def test_a_gentle_start_is_no_standstill() -> None:
    limits = {"velocity": 2.0, "acceleration": 10.0, "jerk": 100.0}
    motions = [plan(min_jerk(n), 20.0) for n in (2000, 20_000)]
    coarse, fine = (trajcli.retime(motion, limits, "fastest") for motion in motions)
    np.testing.assert_allclose(fine.duration, coarse.duration, rtol=2e-3)
    np.testing.assert_allclose(fine.uniform, coarse.uniform, rtol=1e-3)


def polyline(*counts: int) -> np.ndarray:
    corners = [[0, 0, 0], [1, 0, 0], [1, 1, 0], [1, 1, 0.5]]
    lines = [
        np.linspace(a, b, n + 1)[1:] for a, b, n in zip(corners, corners[1:], counts, strict=False)
    ]
    return np.concatenate([[corners[0]], *lines])


@pytest.mark.parametrize("timed", [False, True])
def test_corners_are_refused_by_name(timed: bool) -> None:
    rows = polyline(20, 30, 10)
    with pytest.raises(InputError, match="turns at once") as error:
        trajcli.retime(plan(rows, 6.0) if timed else rows, LIMITS, "fastest")
    said = "2 s, 90°, 5 s, 90°" if timed else "row 20, 90°, row 50, 90°"
    assert error.value.faults[0].found == said


@pytest.mark.parametrize("timed", [False, True])
def test_corners_that_stop_take_as_long_as_their_lines(timed: bool) -> None:
    rows = polyline(20, 30, 10)
    made = trajcli.retime(plan(rows, 6.0) if timed else rows, LIMITS, "fastest", corners="stop")
    lines = [trajcli.retime(rows[[i, k]], LIMITS) for i, k in ((0, 20), (20, 50), (50, 60))]
    np.testing.assert_allclose(motion_of(made), sum(map(motion_of, lines)), atol=3e-3)
    for corner in rows[[20, 50]]:
        assert np.linalg.norm(made.position[0] - corner, axis=1).min() < 1e-4
    sharp = WAYPOINTS[0]  # each is a corner, with none of the rows beside it smoother
    alone = [trajcli.retime(sharp[k : k + 2], LIMITS, rows=500) for k in range(5)]
    whole = trajcli.retime(sharp, LIMITS, corners="stop", rows=500)
    np.testing.assert_allclose(motion_of(whole), sum(map(motion_of, alone)), rtol=1e-9)


@pytest.mark.parametrize("radius", [0.01, 0.1, 3.0])
def test_corners_are_cut_within_a_radius(radius: float) -> None:
    for rows in (polyline(20, 30, 10), polyline(1, 1, 1), WAYPOINTS[0], min_jerk()):
        made = trajcli.retime(rows, LIMITS, corners=radius)
        begin, along = rows[:-1], np.diff(rows, axis=0)
        share = ((made.position[0][:, None] - begin) * along).sum(-1) / (along**2).sum(-1)
        near = begin + np.clip(share, 0, 1)[..., None] * along
        away = np.linalg.norm(made.position[0][:, None] - near, axis=-1).min(1)
        assert away.max() <= radius * (1 + 1e-9)
        np.testing.assert_allclose(made.position[0, [0, -1]], rows[[0, -1]], atol=1e-12)
        assert max(used(made, 0, LIMITS).values()) <= 1 + 1e-9
    # at the corner weights are 1, 26, 66, 26, 1, and points 0.9 of the radius before and behind
    square = trajcli.retime(polyline(1, 1), LIMITS, corners=radius).position[0]
    reach = min(0.9 * radius, 0.4) * (26 / 2 + 1) / 120 * np.sqrt(2)
    assert np.linalg.norm(square - [1, 0, 0], axis=1).min() == pytest.approx(reach, rel=2e-2)
    stop = trajcli.retime(polyline(1, 1, 1), LIMITS, corners="stop").duration[0]
    assert trajcli.retime(polyline(20, 30, 10), LIMITS, corners=radius).duration[0] < 0.99 * stop


def test_a_duration_is_kept_exactly_or_the_least_is_named() -> None:
    for path, options in ((WAYPOINTS[0], {}), (WAYPOINTS[0], {"rows": 300}), (np.ones((3, 3)), {})):
        made = trajcli.retime(path, LIMITS, duration=7.0, **options)
        assert made.time.reshape(-1)[-1] == pytest.approx(7.0, rel=1e-14)
        assert made.shape[1] == options.get("rows", 7001)
    for options in ({}, {"rows": 300}, {"rate": 123.4}):
        with pytest.raises(InputError, match="forbid") as error:
            trajcli.retime(WAYPOINTS, LIMITS, duration=0.5, **options)
        least = float(error.value.faults[0].hint.removeprefix("duration="))
        free = trajcli.retime(WAYPOINTS, LIMITS, **options)
        assert free.duration.max() <= least < free.duration.max() + 1e-5
        made = trajcli.retime(WAYPOINTS, LIMITS, duration=least, **options)
        assert max(used(made, int(made.duration.argmax()), LIMITS).values()) <= 1 + 1e-9


def test_rows_and_rates_are_those_asked_for() -> None:
    made = trajcli.retime(WAYPOINTS, LIMITS, rows=150)
    assert made.shape == (4, 150, 3)
    np.testing.assert_allclose(made.step * 149, made.duration, rtol=1e-12)
    assert trajcli.retime(WAYPOINTS, LIMITS, rate=250.0).step.tolist() == [1 / 250] * 4
    # the rate of the source, where that is higher
    assert trajcli.retime(plan(min_jerk(401), 0.2), LIMITS, "fastest").step.tolist() == [1 / 2000]
    assert trajcli.retime(WAYPOINTS, LIMITS, rows=6).shape[1] == 6


def test_a_rate_at_which_rounding_exceeds_limits_is_refused() -> None:
    far = WAYPOINTS[0] + 1e4
    with pytest.raises(InputError, match="rounding") as error:
        trajcli.retime(far, LIMITS, rate=20_000.0)
    made = trajcli.retime(far, LIMITS, rate=float(error.value.faults[0].hint.removeprefix("rate=")))
    assert max(used(made, 0, LIMITS).values()) <= 1 + 1e-9


def test_a_high_rate_does_not_make_a_motion_longer() -> None:
    line, limits = [[0.0], [5.0]], {"velocity": 2.0, "acceleration": 4.0, "jerk": 3.0}
    slow, fast = (trajcli.retime(line, limits, rate=rate) for rate in (1000.0, 7_500.0))
    assert motion_of(fast)[0] == pytest.approx(motion_of(slow)[0], rel=3e-3)
    with pytest.raises(InputError, match="rounding"):
        trajcli.retime(line, limits, rate=40_000.0)


def test_a_margin_is_left_of_all_limits() -> None:
    made = trajcli.retime(WAYPOINTS, LIMITS, margin=0.5)
    assert 0.49 < max(max(used(made, k, LIMITS).values()) for k in range(4)) <= 0.5 * (1 + 1e-9)
    half = {n: x / 2 for n, x in LIMITS.items()}
    np.testing.assert_array_equal(made.duration, trajcli.retime(WAYPOINTS, half).duration)


def test_shares_count_the_rows_at_a_limit() -> None:
    made = trajcli.retime(WAYPOINTS, LIMITS)
    for k, length in enumerate(made.lengths):
        for name in NAMES:
            near = abs(getattr(made, name)[k, :length]) >= 0.98 * LIMITS[name]
            np.testing.assert_allclose(made.shares[name][k], near.mean(0), rtol=1e-12)
    assert sum(x.sum() for x in made.shares.values()) > 4 * 0.8  # some limit binds nearly always


def test_what_does_not_move_rests() -> None:
    made = trajcli.retime(np.ones((2, 7, 3)), LIMITS)
    assert made.states == ["does not move"] * 2
    assert made.shape == (2, 6, 3)
    assert (made.position == 1).all()
    assert not made.velocity.any()
    np.testing.assert_array_equal(made.duration, 0.005)


def test_values_that_are_not_finite_are_refused_by_trajectory() -> None:
    wrong = WAYPOINTS.copy()
    wrong[2, 3, 1] = wrong[0, 0, 0] = np.nan
    with pytest.raises(InputError, match="NaN") as error:
        trajcli.retime(wrong, LIMITS)
    assert [x.where for x in error.value.faults] == [f"trajectory {k}, position" for k in (0, 2)]
    with pytest.raises(InputError, match="few") as error:
        trajcli.retime(WAYPOINTS, LIMITS, rows=5)
    places = sorted(str(x.where) for x in error.value.faults)
    assert places == [f"trajectory {k}, rows" for k in range(4)]


@pytest.mark.parametrize(
    ("options", "where"),
    [
        ({"method": "slow"}, "method"),
        ({"slower_only": True}, "slower_only"),
        ({"method": "uniform", "rate": 100.0}, "rate"),
        ({"method": "uniform", "corners": "stop"}, "corners"),
        ({"rate": 100.0, "rows": 100}, "rate, rows"),
        ({"rows": 0}, "rows"),
        ({"rate": -1.0}, "rate"),
        ({"duration": np.nan}, "duration"),
        ({"margin": 1.5}, "margin"),
        ({"margin": 0.0}, "margin"),
        ({"corners": "round"}, "corners"),
        ({"corners": -0.1}, "corners"),
    ],
)
def test_options_that_cannot_be_are_refused(options: Any, where: str) -> None:
    with pytest.raises(UsageError) as error:
        trajcli.retime(WAYPOINTS, LIMITS, **options)
    assert error.value.faults[0].where == where


def test_limits_and_rows_are_checked_as_those_of_the_uniform_pace() -> None:
    for limits, word in (
        ({}, "no limits"),
        ({"velocity": -1.0}, "^velocity lower: a limit that no pace can keep"),
        ({"jerk": (-1.0, np.array([1.0, np.nan, 1.0]))}, "^jerk upper, joint 1: a limit that"),
        ({"velocity": np.inf}, "no limits of velocity, acceleration or jerk"),
        ({"jerk": [1.0] * 2}, "3"),
    ):
        with pytest.raises(InputError, match=word):
            trajcli.retime(WAYPOINTS, limits)
    with pytest.raises(InputError, match="no path"):
        trajcli.retime(Trajectory(None, WAYPOINTS, None, None, np.arange(6.0)), LIMITS, "fastest")
    for value in (np.ones(3), np.ones((2, 0, 3)), np.ones((0, 3, 3)), "rows", None):
        with pytest.raises(InputError):
            trajcli.retime(value, LIMITS)


@pytest.mark.parametrize(
    ("noise", "found"), [(0.0, False), (1e-5, True), (1e-4, True), ("steps", True), ("f4", False)]
)
def test_noise_is_told_by_what_it_costs(noise: Any, found: bool) -> None:
    rows, times = min_jerk(201), np.linspace(0, 2, 201) + 1.7e9
    if noise == "steps":  # of an encoder
        rows = np.round(rows / 5e-4) * 5e-4
    elif noise == "f4":
        rows = rows.astype("f4")
    else:
        rows = rows + RANDOM.normal(size=rows.shape) * noise
    bounds = {name: (-x, x) for name, x in LIMITS.items()}
    cost = fastest.noise_cost(rows, times, bounds)
    assert (cost is not None) == found
    assert cost is None or cost > 0.05
    jerky = trajcli.integrate(RANDOM.normal(size=(1, 60, 3)), "zero", 0.02, "jerk").position[0]
    assert fastest.noise_cost(jerky, np.arange(61) * 0.02, bounds) is None


def test_plans_go_on_where_the_fastest_ends() -> None:
    made = trajcli.retime(WAYPOINTS[0], LIMITS)
    ahead = trajcli.integrate(np.zeros((1, 5, 3)), made.state(-1), 0.01)
    np.testing.assert_array_equal(ahead.position[0, -1], made.position[0, -1])
    assert isinstance(made[:, 5:10], Trajectory)
    assert isinstance(made.start, State)


def test_ends_rest_where_rows_do_and_hardly_moving_dofs_decide_nothing() -> None:
    there, times = min_jerk(), np.linspace(0, 1.08, 109)
    rows = there[[0] * 4 + [*range(101)] + [-1] * 4]
    rates = np.gradient(rows, times, axis=0)
    rates[[0, -1]] = 0.4  # as of a filter that lags behind
    assert fastest.make_course(rows, times, rates).moving == (False, False)
    noise = np.where(np.arange(101)[:, None] % 2, 1e-5, -1e-5)
    slow, quick = there[:, :1] * 1e-4 + noise / 100, there[:, :1]
    rates = np.gradient(np.hstack([quick, slow]), 0.01, axis=0)
    rates[[0, -1]] = [0, 1e-3]
    course = fastest.make_course(np.hstack([quick, slow]), times[:101], rates)
    assert course.moving == (False, False)


@pytest.mark.parametrize("digits", [6, 9, 12])
def test_rounding_makes_no_corner(digits: int) -> None:
    for count in (200, 1000, 5000):
        course = fastest.make_course(np.round(min_jerk(count), digits), np.linspace(0, 2, count))
        assert not course.corners
