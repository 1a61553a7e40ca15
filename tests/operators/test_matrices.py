"""The building blocks against the fast path, and against what they are defined to be."""

from __future__ import annotations

import numpy as np
import pytest

import trajcli
from trajcli import matrices

RANDOM = np.random.default_rng(3)
X = RANDOM.standard_normal((9, 2))
STEPS = RANDOM.uniform(0.05, 0.3, 9)
QUANTITIES = ("position", "velocity", "acceleration", "jerk")


@pytest.mark.parametrize("dt", [0.1, STEPS], ids=["one", "each"])
@pytest.mark.parametrize("order", [1, 2, 3])
def test_differences_are_those_of_clique(order, dt):
    result = trajcli.differentiate(X, dt=dt if np.ndim(dt) == 0 else dt[1:], method="backward")
    want = getattr(result, QUANTITIES[order])[0]
    got = matrices.difference_matrix(9, order, dt) @ X
    np.testing.assert_allclose(got[order:], want[order:], rtol=1e-10)
    assert (got[:order] == 0).all()
    shifted = matrices.difference_matrix(9, order, dt, shifted=True) @ X
    np.testing.assert_array_equal(shifted[: 9 - order], got[order:])
    assert (shifted[9 - order :] == 0).all()


@pytest.mark.parametrize("order", [1, 2, 3])
def test_differences_with_previous_states_have_no_empty_row(order):
    before = RANDOM.standard_normal((order, 2))
    got = matrices.difference_matrix(9, order, STEPS, previous=True)
    assert got.shape == (9, order + 9)
    assert (np.abs(got) > 0).any(1).all()
    both = np.concatenate([before, X])
    steps = np.concatenate([np.full(order - 1, STEPS[0]), STEPS])
    result = trajcli.differentiate(both, dt=steps, method="backward")
    want = getattr(result, QUANTITIES[order])[0, order:]
    np.testing.assert_allclose(got @ both, want, rtol=1e-10)


@pytest.mark.parametrize("dt", [0.1, STEPS], ids=["one", "each"])
@pytest.mark.parametrize("order", [1, 2, 3])
def test_sums_are_those_of_the_modes_and_undo_differences(order, dt):
    mode = ("velocity", "acceleration", "jerk")[order - 1]
    result = trajcli.integrate(X, "zero", dt, mode, alignment="actions")
    got = matrices.integration_matrix(9, order, dt) @ X
    np.testing.assert_allclose(got, result.position[0], rtol=1e-12, atol=1e-15)
    full = matrices.difference_matrix(9, order, dt, previous=True)[:, order:]
    np.testing.assert_allclose(full @ got, X, rtol=1e-9)


def test_an_offset_moves_the_diagonal():
    explicit = matrices.integration_matrix(4, 1, 0.5, offset=-1) @ np.array([1.0, 2, 3, 4])
    np.testing.assert_array_equal(explicit, [0, 0.5, 1.5, 3.0])
    ahead = matrices.integration_matrix(4, 1, 1.0, offset=1) @ np.array([1.0, 2, 3, 4])
    np.testing.assert_array_equal(ahead, [3, 6, 10, 10])


def test_masks_put_the_start_state_in_row_0():
    start = np.array([[5.0, -5.0]])
    place, keep = matrices.start_state_masks(9)
    np.testing.assert_array_equal(place @ start + keep @ X, np.concatenate([start, X[1:]]))


@pytest.mark.parametrize("dt", [0.1, STEPS], ids=["one", "each"])
def test_the_clique_matrix_is_the_mode(dt):
    state = RANDOM.standard_normal((4, 2))
    result = trajcli.integrate(X, trajcli.State(*state[:, None]), dt, "clique", alignment="actions")
    want = np.concatenate([getattr(result, name)[0] for name in QUANTITIES])
    matrix = matrices.clique_matrix(9, dt)
    assert matrix.shape == (36, 13)
    np.testing.assert_allclose(matrix @ np.concatenate([state, X]), want, rtol=1e-10)
    operator = trajcli.operator(9, dt, "clique", alignment="actions")
    np.testing.assert_allclose(matrix, np.concatenate([operator.C, operator.A], 1), rtol=1e-10)


@pytest.mark.parametrize("factor", [1, 2, 5])
@pytest.mark.parametrize("n", [1, 2, 4])
def test_upsampling_matches_interpolation_at_the_new_times(n, factor):
    x = X[:n]
    times = np.arange((n - 1) * factor + 1) / factor
    linear = matrices.linear_matrix(n, factor) @ x
    hold = matrices.hold_matrix(n, factor) @ x
    assert linear.shape == hold.shape == (len(times), 2)
    for dof in range(2):
        np.testing.assert_allclose(linear[:, dof], np.interp(times, np.arange(n), x[:, dof]))
    np.testing.assert_array_equal(hold, x[np.floor(times).astype(int)])
    ramp = matrices.ramp_and_hold_matrix(n, factor, 0)
    np.testing.assert_array_equal(ramp, matrices.linear_matrix(n, factor))


def test_a_ramp_arrives_early_and_holds():
    got = matrices.ramp_and_hold_matrix(3, 4, 2) @ np.array([0.0, 2, 6])
    np.testing.assert_array_equal(got, [0, 1, 2, 2, 2, 4, 6, 6, 6])
    # each ramp is a plan in mode velocity: the sum of its constant slopes
    plan = trajcli.integrate(np.array([1.0, 1, 0, 0, 2, 2, 0, 0])[:, None], "zero", 1.0, "velocity")
    np.testing.assert_array_equal(plan.position[0, :, 0], got)


def test_lines_meet_both_ends_exactly():
    a, b = RANDOM.standard_normal((2, 5, 3))
    line = matrices.linspace(a, b, 8)
    assert line.shape == (5, 8, 3)
    np.testing.assert_array_equal(line[:, 0], a)
    np.testing.assert_array_equal(line[:, -1], b)
    velocities = trajcli.differentiate(line, dt=1.0, method="backward").velocity
    np.testing.assert_allclose(velocities, np.broadcast_to(((b - a) / 7)[:, None], line.shape))
    np.testing.assert_array_equal(matrices.linspace(a, b, 1)[:, 0], a)
    single = [x.astype("f4") for x in (a, b)]
    wide = [x.astype("f8") for x in single]
    np.testing.assert_array_equal(matrices.linspace(*single, 8), matrices.linspace(*wide, 8))


@pytest.mark.parametrize(
    "call",
    [
        lambda: matrices.difference_matrix(0),
        lambda: matrices.difference_matrix(3, 0),
        lambda: matrices.difference_matrix(3, 1, [0.1, 0.1]),
        lambda: matrices.difference_matrix(3, 1, -1.0),
        lambda: matrices.difference_matrix(3, shifted=True, previous=True),
        lambda: matrices.integration_matrix(3, 1, [0.1, np.nan, 0.1]),
        lambda: matrices.clique_matrix(0, 0.1),
        lambda: matrices.hold_matrix(3, 0),
        lambda: matrices.linear_matrix(2.5, 1),
        lambda: matrices.ramp_and_hold_matrix(3, 4, 4),
        lambda: matrices.start_state_masks(0),
        lambda: matrices.linspace([0.0], [1.0], 0),
        lambda: matrices.linspace([0.0, 1.0], [1.0, 2.0, 3.0], 4),
        lambda: matrices.hold_matrix(3, "2"),
        lambda: matrices.difference_matrix(True),
        lambda: matrices.integration_matrix(3, offset=0.5),
        lambda: matrices.ramp_and_hold_matrix(3, 4, 1.5),
    ],
)
def test_shapes_that_make_no_sense_are_refused(call):
    with pytest.raises(trajcli.UsageError):
        call()
