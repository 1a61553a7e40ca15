"""The fastest timing beside toppra, which limits no jerk, and Ruckig, which has no waypoints."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.interpolate import make_interp_spline

import trajcli

VELOCITY = np.array([2.0, 1.5, 2.5])
ACCELERATION = np.array([15.0, 7.5, 10.0])


def duration_by_toppra(points: np.ndarray, velocity: np.ndarray, acceleration: np.ndarray) -> float:
    """The time along the C4 spline through waypoints [K, 3] over their chord length."""
    toppra = pytest.importorskip("toppra")
    chords = np.linalg.norm(np.diff(points, axis=0), axis=1)
    free = [(3, np.zeros(3)), (4, np.zeros(3))]
    knots = np.concatenate([[0.0], np.cumsum(chords)]) / chords.sum()
    spline = make_interp_spline(knots, points, k=5, bc_type=(free, free))

    class Curve(toppra.interpolator.AbstractGeometricPath):
        dof, path_interval, waypoints = 3, np.array([0.0, 1.0]), None

        def __call__(self, places: Any, order: int = 0) -> Any:
            return spline(places, order)

    scheme = toppra.constraint.DiscretizationType.Interpolation
    constraints = [
        toppra.constraint.JointVelocityConstraint(velocity.T),
        toppra.constraint.JointAccelerationConstraint(acceleration.T, discretization_scheme=scheme),
    ]
    count = 1000
    planner = toppra.algorithm.TOPPRA(
        constraints, Curve(), np.linspace(0, 1, count + 1), solver_wrapper="seidel"
    )
    speeds = planner.compute_parameterization(0, 0)[1]
    return float((2 / count / (speeds[1:] + speeds[:-1])).sum())


def duration_by_ruckig(along: np.ndarray, limits: Any, speeds: tuple[float, float]) -> float:
    """The time from 0 to 1 along a line [D], from and to speeds in lengths of it per second."""
    ruckig = pytest.importorskip("ruckig")
    problem, trajectory = ruckig.InputParameter(1), ruckig.Trajectory(1)
    problem.current_position, problem.target_position = [0.0], [1.0]
    problem.current_velocity, problem.target_velocity = [speeds[0]], [speeds[1]]
    most = [[float((limits[name] / np.abs(along)).min())] for name in limits]
    problem.max_velocity, problem.max_acceleration, problem.max_jerk = most
    assert ruckig.Ruckig(1).calculate(problem, trajectory) == ruckig.Result.Working
    return float(trajectory.duration)


def durations(trajectory: Any, limits: Any, at_rest: tuple[bool, bool] = (True, True)) -> Any:
    """The times of motion by the fastest timing: rows at rest are a step before it, two behind."""
    retime: Any = trajcli.retime
    result = retime(trajectory, limits, method="fastest", rows=1000)
    return result.duration - (at_rest[0] + 2 * at_rest[1]) * result.step


@pytest.mark.parametrize("uneven", [1.0, 0.4], ids=["symmetric", "asymmetric"])
def test_without_limits_of_jerk_paths_take_the_time_of_toppra(uneven: float) -> None:
    paths = np.random.default_rng(3).uniform(-1, 1, (5, 6, 3))
    velocity = np.stack([-uneven * VELOCITY, VELOCITY])
    acceleration = np.stack([-ACCELERATION, uneven * ACCELERATION])
    limits = {"velocity": tuple(velocity), "acceleration": tuple(acceleration)}
    for points, duration in zip(paths, durations(paths, limits), strict=True):
        assert 0.9985 <= duration / duration_by_toppra(points, velocity, acceleration) <= 1.002


@pytest.mark.parametrize("jerk", [5000.0, 100.0, 10.0])
def test_straight_lines_from_rest_to_rest_take_the_time_of_ruckig(jerk: float) -> None:
    limits = {"velocity": VELOCITY, "acceleration": ACCELERATION, "jerk": np.full(3, jerk)}
    random = np.random.default_rng(4)
    for length in (1e-3, 0.1, 5.0):
        along = length * random.uniform(-1, 1, 3)
        (duration,) = durations(np.stack([0 * along, along]), limits)
        assert 1 - 1e-9 <= duration / duration_by_ruckig(along, limits, (0.0, 0.0)) <= 1.001


@pytest.mark.parametrize("jerk", [300.0, 30.0])
@pytest.mark.parametrize("speeds", [(0.3, 0.0), (0.5, 0.5), (0.0, 0.4)], ids=str)
def test_straight_lines_with_moving_ends_take_the_time_of_ruckig(
    speeds: tuple[float, float], jerk: float
) -> None:
    limits = {"velocity": VELOCITY, "acceleration": ACCELERATION, "jerk": np.full(3, jerk)}
    along = np.array([0.7, -0.4, 0.9])
    # A plan of 3 s: a quintic with these speeds and no acceleration at its ends.
    times = np.linspace(0.0, 3.0, 31)
    whole = make_interp_spline(
        [0.0, 3.0], [0.0, 1.0], k=5,
        bc_type=([(1, speeds[0]), (2, 0.0)], [(1, speeds[1]), (2, 0.0)]),
    )  # fmt: skip
    rows = [whole(times, order)[:, None] * along for order in range(3)]
    plan = trajcli.Trajectory(*(part[None] for part in rows), None, times)  # type: ignore[arg-type]
    (duration,) = durations(plan, limits, (speeds[0] == 0, speeds[1] == 0))
    assert 1 - 1e-9 <= duration / duration_by_ruckig(along, limits, speeds) <= 1.003
