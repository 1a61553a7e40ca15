"""The kernel that times a path as fast as limits of velocity, acceleration and jerk allow."""

from __future__ import annotations

import ctypes
import itertools

import numpy as np
import pytest
from kernels import fastest_reference
from scipy.interpolate import make_interp_spline

from trajcli.kernels import native
from trajcli.kernels.native.fastest import Path, Timing, fastest, sample
from trajcli.kernels.program import Floats

pytestmark = pytest.mark.skipif(bool(native.absence()), reason=native.absence())

PANDA = np.array(
    [
        [2.175, 2.175, 2.175, 2.175, 2.61, 2.61, 2.61],
        [15, 7.5, 10, 12.5, 15, 20, 20],
        [7500, 3750, 5000, 6250, 7500, 10000, 10000],
    ]
)


def chords(points: Floats) -> Floats:
    """Returns the length of the straight lines up to each point."""
    steps = np.linalg.norm(np.diff(points, axis=0), axis=1)
    return np.concatenate([[0], np.cumsum(np.maximum(steps, 1e-3 * np.ptp(points) or 1))])


def waypoints(kind: str, rng: np.random.Generator, dofs: int = 7) -> Path:
    """Returns a path through waypoints of a kind."""
    points = rng.uniform(-1, 1, (6, dofs))
    if kind == "many":
        points = rng.uniform(-0.3, 0.3, (30, dofs))
    elif kind == "line":
        points = points[:2]
    elif kind == "collinear":
        points = np.sort(rng.uniform(0, 1, 8))[:, None] * points[:1]
    elif kind == "repeated":
        points = np.repeat(points, [1, 2, 1, 3, 1, 1], 0)
    elif kind == "one joint":
        points = points * (np.arange(dofs) == 2)
    elif kind == "tiny":
        points = points * 1e-6
    elif kind == "long":
        points = points * 1000
    elif kind == "far away":
        points = points * 1e-2 + 1e4
    elif kind == "of all sizes":
        points = points * 10 ** rng.uniform(-9, 0, dofs)
    return Path(chords(points), points)


def plan(rng: np.random.Generator, moving: tuple[bool, bool]) -> Path:
    """Returns a slow plan over its own clock, which moves at those of its ends."""
    ends = rng.uniform(-0.1, 0.1, (2, 2, 7)) * np.reshape(moving, (2, 1, 1))
    points = rng.uniform(-0.5, 0.5, (6, 7))
    return Path(np.linspace(3, 23, 6), points, ends=ends, clock=True, held=moving)


def both(limits: Floats) -> tuple[Floats, Floats]:
    return -limits, limits


def with_jerk(divisor: float) -> Floats:
    return PANDA / np.array([[1], [1], [divisor]])


def motion(path: Path, timing: Timing, count: int, jerkless: bool = False) -> Floats:
    """Returns rows at even times over the whole duration."""
    times = np.linspace(0, timing.duration, count)
    (rows,) = sample([path], [timing.solution], [times], jerkless)
    return rows


def worst(rows: Floats, lower: Floats, upper: Floats) -> float:
    """Returns the largest share of any limit."""
    pairs = zip(rows[1:], lower, upper, strict=True)
    return float(max(max((x / low).max(), (x / up).max()) for x, low, up in pairs))


# -- how long it takes ------------------------------------------------------------------------

KINDS = (
    "random", "many", "line", "collinear", "repeated", "one joint", "tiny", "long", "far away",
    "of all sizes",
)  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_paths_take_as_long_as_by_dense_matrices(kind: str) -> None:
    divisor = (1, 50, 500)[KINDS.index(kind) % 3]
    rng = np.random.default_rng([KINDS.index(kind), divisor])
    path, limits = waypoints(kind, rng), both(with_jerk(divisor))
    (timing,) = fastest([path], *limits, 100)
    duration, iterations, state = fastest_reference.fastest(path, *limits, 100)
    assert (timing.state, state) == ("solved", "solved")
    assert timing.duration == pytest.approx(duration, rel=1e-6)
    assert abs(timing.iterations - iterations) <= 2


@pytest.mark.parametrize(
    ("missing", "dofs"),
    [("none", 8), ("some sides", 1), ("some sides", 17), ("acceleration", 7), ("jerk", 17),
     ("jerk", 1), ("velocity", 8)],
)  # fmt: skip
def test_one_sided_limits_are_those_of_dense_matrices(missing: str, dofs: int) -> None:
    rng = np.random.default_rng(dofs)
    path = waypoints("random", rng, dofs)
    upper = np.array([[1.0], [5.0], [80.0]]) * rng.uniform(0.5, 2, (3, dofs))
    lower = -upper * rng.uniform(0.3, 1, (3, dofs))
    if missing == "some sides":
        lower[1, ::2], upper[2, 0], lower[2, -1], upper[0, -1] = -np.inf, np.inf, -np.inf, np.inf
    elif missing != "none":
        row = ["velocity", "acceleration", "jerk"].index(missing)
        lower[row], upper[row] = -np.inf, np.inf
    (timing,) = fastest([path], lower, upper, 60)
    duration, _, state = fastest_reference.fastest(path, lower, upper, 60)
    assert timing.state == state == "solved"
    assert timing.duration == pytest.approx(duration, rel=1e-6)
    jerkless = bool(np.isinf(lower[2]).all() and np.isinf(upper[2]).all())
    assert worst(motion(path, timing, 20001, jerkless), lower, upper) <= 1


@pytest.mark.parametrize(
    ("moving", "divisor"),
    [((True, False), 1), ((False, True), 100), ((True, True), 1), ((True, True), 100),
     ((False, False), 100)],
)  # fmt: skip
def test_plans_that_move_at_their_ends_keep_their_speed_there(
    moving: tuple[bool, bool], divisor: int
) -> None:
    path, limits = plan(np.random.default_rng(divisor), moving), both(with_jerk(divisor))
    (timing,) = fastest([path], *limits, 50)
    duration, _, _ = fastest_reference.fastest(path, *limits, 50)
    assert timing.state == "solved"
    assert timing.duration == pytest.approx(duration, rel=1e-6)
    rows = motion(path, timing, 20001)
    np.testing.assert_allclose(rows[1:3, [0, -1]].swapaxes(0, 1), path.ends, atol=1e-9)
    np.testing.assert_allclose(rows[0, [0, -1]], path.points[[0, -1]], atol=1e-11)
    assert worst(rows, *limits) <= 1


def test_a_straight_line_takes_what_its_phases_of_constant_jerk_take() -> None:
    line = np.array([3.0, 4.0])
    path = Path(np.array([0.0, 1.0]), np.stack([0 * line, line]))
    # of the second dof, which is the slower one: limits along the line's length of 4
    limits = np.array([[9.0, 2.0], [99.0, 5.0], [9999.0, 25.0]])
    (timing,) = fastest([path], *both(limits), 400)
    exact = 4 / 2 + 2 / 5 + 5 / 25
    assert exact <= timing.duration <= 1.0005 * exact
    limits[2] = np.inf
    (timing,) = fastest([path], *both(limits), 400)
    exact = 4 / 2 + 2 / 5
    assert exact <= timing.duration <= 1.0005 * exact
    limits[1:] = np.inf
    (timing,) = fastest([path], *both(limits), 400)
    assert 2 <= timing.duration <= 1.0005 * 2


def test_limits_of_velocity_alone_bind_some_dof_everywhere() -> None:
    rng = np.random.default_rng(5)
    points = rng.uniform(-1, 1, (5, 3))
    knots = np.append(0, np.cumsum(np.linalg.norm(np.diff(points, axis=0), axis=1)))
    limits = np.full((3, 3), np.inf)
    limits[0] = 1.0
    path = Path(knots, points)
    (timing,) = fastest([path], *both(limits))
    # the sum of what the dof that turns fastest at each place has to go
    curve = motion(path, timing, 200_001, jerkless=True)[0]
    exact = np.abs(np.diff(curve, axis=0)).max(1).sum()
    assert timing.state == "solved"
    assert exact * (1 - 1e-6) <= timing.duration <= 1.001 * exact


def test_backward_in_time_a_path_takes_as_long() -> None:
    rng = np.random.default_rng(5)
    path = waypoints("random", rng)
    upper = with_jerk(50) * rng.uniform(0.4, 1, (3, 7))
    lower = -with_jerk(50) * rng.uniform(0.4, 1, (3, 7))
    back = Path(path.knots[-1] - path.knots[::-1], path.points[::-1])
    signs = [True, False, True]  # velocity and jerk change theirs
    low = np.stack([-u if s else x for s, x, u in zip(signs, lower, upper, strict=True)])
    high = np.stack([-x if s else u for s, x, u in zip(signs, lower, upper, strict=True)])
    (one,), (two,) = fastest([path], lower, upper), fastest([back], low, high)
    assert two.duration == pytest.approx(one.duration, rel=1e-6)


def test_limits_of_a_faster_clock_are_reached_by_it() -> None:
    path = waypoints("random", np.random.default_rng(6))
    (one,) = fastest([path], *both(with_jerk(50)))
    speed = 3.0 ** np.arange(1, 4)[:, None]
    (two,) = fastest([path], *both(with_jerk(50) * speed))
    assert two.duration * 3 == pytest.approx(one.duration, rel=1e-6)


# -- within limits ----------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_no_limit_is_exceeded_at_any_time(kind: str) -> None:
    rng = np.random.default_rng(KINDS.index(kind))
    path = waypoints(kind, rng)
    for divisor, intervals in ((1, 40), (50, None), (500, 100)):
        limits = both(with_jerk(divisor))
        (timing,) = fastest([path], *limits, intervals)
        rows = motion(path, timing, int(np.clip(20000 * timing.duration, 20000, 200000)))
        assert worst(rows, *limits) <= 1
        assert timing.duration < timing.uniform


def test_pieces_shorter_than_a_grid_step_keep_limits() -> None:
    # points crowd where a joint turns
    points = np.sin(np.linspace(0, 9, 175))[:, None]
    path = Path(chords(points), points)
    limits = np.array([[1.0], [5.0], [100.0]])
    for intervals in (100, 350, 700):
        (timing,) = fastest([path], *both(limits), intervals)
        assert worst(motion(path, timing, 200001), *both(limits)) <= 1


def test_rows_are_derivatives_of_each_other_and_rest_at_both_ends() -> None:
    path = waypoints("random", np.random.default_rng(1))
    (timing,) = fastest([path], *both(with_jerk(50)))
    rows = motion(path, timing, 200001)
    step = timing.duration / 200000
    for m in range(3):
        change = (rows[m, 2:] - rows[m, :-2]) / (2 * step)
        inner = np.abs(change - rows[m + 1, 1:-1])
        # the jerk of a path jumps at its waypoints
        assert np.quantile(inner, 0.999) <= 1e-5 * np.abs(rows[m + 1]).max()
    np.testing.assert_allclose(rows[0, [0, -1]], path.points[[0, -1]], atol=1e-13)
    assert np.abs(rows[1:3, [0, -1]]).max() <= 1e-9
    beyond = np.array([-1.0, 0.0, timing.duration, timing.duration + 1.0])
    (outer,) = sample([path], [timing.solution], [beyond], False)
    np.testing.assert_allclose(outer[:, [0, 3]], outer[:, [1, 2]], atol=1e-11)


# -- the path ---------------------------------------------------------------------------------


def evenly(path: Path, duration: float, count: int) -> Floats:
    """Returns samples [4, count, D] of a path with a clock at an even pace: the path as it is."""
    pace = np.array([[x, duration**-2, 0.0] for x in np.linspace(0, 1, 401)]).T
    return sample([path], [pace], [np.linspace(0, duration, count)], True)[0]


@pytest.mark.parametrize("count", [2, 3, 4, 12, 200])
@pytest.mark.parametrize("ends", ["free", "given", "start", "end"])
def test_a_path_through_points_is_the_quintic_spline_of_scipy(count: int, ends: str) -> None:
    rng = np.random.default_rng(count)
    knots = 1.7e9 + np.cumsum(rng.uniform(0.05, 2, count))
    points = rng.uniform(-1, 1, (count, 3))
    known = np.full((2, 2, 3), np.nan)
    given = [ends in ("given", "start"), ends in ("given", "end")]
    known[given] = rng.uniform(-1, 1, (2, 2, 3))[given]
    path = Path(knots, points, ends=None if ends == "free" else known, clock=True)
    u, slow = knots - knots[0], 1e3
    rows = evenly(path, slow * u[-1], 1001)
    zero = np.zeros(3)
    conditions = [
        [(1, k[0]), (2, k[1])] if is_given else [(3, zero), (4, zero)]
        for k, is_given in zip(known, given, strict=True)
    ]
    if count == 2 and ends == "free":
        spline = make_interp_spline(u, points, 1)
    elif count == 3 and ends == "free":
        spline = make_interp_spline(u, points, 2)
    else:
        spline = make_interp_spline(u, points, 5, bc_type=tuple(conditions))
    inside = np.linspace(0, u[-1], 1001)
    want = [spline(inside, m) if m <= spline.k else 0 * points[:1] for m in range(3)]
    for m in range(3):
        scale = np.abs(want[m]).max() + np.abs(want[0]).max()
        np.testing.assert_allclose(
            rows[m] * slow**m, np.broadcast_to(want[m], rows[m].shape), atol=1e-7 * scale
        )


def test_a_path_has_the_slopes_that_it_is_given() -> None:
    # u³, whose natural spline through two points is another curve
    knots = np.array([0.0, 2.0])
    path = Path(
        knots, knots[:, None] ** 3, np.stack([3 * knots**2, 6 * knots])[..., None], clock=True
    )
    np.testing.assert_allclose(
        evenly(path, 2.0, 101)[0, :, 0], np.linspace(0, 2, 101) ** 3, atol=1e-14
    )


# -- what there is to say ---------------------------------------------------------------------


def test_states_say_what_became_of_a_path() -> None:
    rng = np.random.default_rng(2)
    limits = both(with_jerk(50))
    good = waypoints("random", rng)
    still = Path(good.knots, np.repeat(good.points[:1], 6, 0))
    hole = Path(good.knots, np.where(np.arange(6)[:, None] == 2, np.nan, good.points))
    end = Path(good.knots, np.where(np.arange(6)[:, None] == 5, np.inf, good.points))
    backward = Path(good.knots[::-1], good.points)
    hasty = plan(rng, (True, True))._replace(knots=np.linspace(0, 1e-2, 6))
    paths = [good, still, hole, end, hasty, good._replace(knots=0 * good.knots), backward]
    timings = fastest(paths, *limits)
    states = [timing.state for timing in timings]
    assert states[:6] == [
        "solved", "does not move", "not finite", "not finite", "beyond limits", "not finite"
    ]  # fmt: skip
    for timing in timings[1:6]:
        assert timing.duration == 0
        assert timing.solution.shape == (3, 0)
    assert timings[0].solution.shape[0] == 3
    assert np.isfinite(timings[0].solution).all()


def test_any_numbers_at_all_come_to_an_end() -> None:
    rng = np.random.default_rng(3)
    odd = [0.0, 1e-300, 1e300, np.nan, np.inf, -np.inf, 1e-6, 1e4]
    for _ in range(80):
        points = rng.uniform(-1, 1, (4, 2))
        knots = np.sort(rng.uniform(0, 1, 4))
        upper, ends = rng.uniform(0.1, 10, (3, 2)), rng.uniform(-1, 1, (2, 2, 2))
        for array in (points, knots, upper, ends):
            if rng.uniform() < 0.5:
                array.flat[rng.integers(array.size)] = rng.choice(odd)
        held = tuple(rng.uniform(size=2) < 0.3)
        path = Path(knots, points, ends=ends, clock=rng.uniform() < 0.5, held=held)
        (timing,) = fastest([path], -upper, upper, 40)
        if timing.solution.size and np.isfinite(upper).all():
            assert np.isfinite(timing.duration)
            sample([path], [timing.solution], [np.array([0.0, timing.duration])], False)


# -- threads, levels, memory ------------------------------------------------------------------


def test_neither_batch_nor_threads_nor_level_change_a_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(4)
    limits = both(with_jerk(50))
    paths = [waypoints(kind, rng) for kind in KINDS] + [plan(rng, (True, False))]
    highest = native.level()
    monkeypatch.setenv("TRAJCLI_THREADS", "1")
    want = [fastest([path], *limits, 100)[0] for path in paths]
    times = [np.linspace(0, timing.duration, 50) for timing in want]
    rows = [
        sample([path], [timing.solution], [at], False)[0]
        for path, timing, at in zip(paths, want, times, strict=True)
    ]
    for level, threads in itertools.product([n for n in native.LEVELS if n <= highest], (1, 3)):
        monkeypatch.setenv("TRAJCLI_LEVEL", str(level))
        monkeypatch.setenv("TRAJCLI_THREADS", str(threads))
        got = fastest(paths, *limits, 100)
        for one, two in zip(got, want, strict=True):
            assert one[:4] == two[:4]
            np.testing.assert_array_equal(one.solution, two.solution)
        sampled = sample(paths, [timing.solution for timing in got], times, False)
        for one_rows, two_rows in zip(sampled, rows, strict=True):
            np.testing.assert_array_equal(one_rows, two_rows)


def test_where_there_is_no_memory_it_is_said() -> None:
    path = waypoints("line", np.random.default_rng(0))
    curve = (native.Curve * 1)()
    knots, points = np.ascontiguousarray(path.knots), np.ascontiguousarray(path.points)
    curve[0].knots, curve[0].points = knots.ctypes.data, points.ctypes.data
    curve[0].count, curve[0].intervals = 2, 1 << 42
    lower, upper = both(np.ascontiguousarray(PANDA))
    sides = {"lower": lower.ctypes.data, "upper": upper.ctypes.data}
    with pytest.raises(MemoryError):
        native.time_curves(curve, dofs=7, power=3, tolerance=1e-3, **sides)
    assert ctypes.sizeof(curve) == ctypes.sizeof(native.Curve)


def test_an_empty_batch_has_no_timings() -> None:
    assert fastest([], *both(PANDA)) == []
