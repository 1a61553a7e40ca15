"""Points before and after the actions: made once where all trajectories share them."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from trajcli.kernels.padding import points_of
from trajcli.kernels.pairs import Pair
from trajcli.kernels.program import StatePoints
from trajcli.modes import make_mode

B, H, D = 50, 9, 3


def test_points_of_a_state_that_all_share_are_made_once():
    start = [np.broadcast_to(np.full((1, D), 0.5), (B, D)), None, None, None]
    for mode in ("central", "bspline"):
        made = make_mode(mode)
        dt = np.full((1, 1), 0.1)
        actions = np.zeros((B, H, D), np.float32)
        program = made.program(made.whole(H, False), actions, start, [None] * 4, dt, False)
        points = points_of(program.head, actions)
        assert points.hi.shape[0] == B
        assert points.hi.strides[0] == points.lo.strides[0] == 0
        np.testing.assert_allclose(points.hi, 0.5)


def test_a_position_that_is_held_is_itself():
    position = np.random.default_rng(0).standard_normal((B, D))
    hold = ((Fraction(1), Fraction(0), Fraction(0), Fraction(0)),) * 3
    spacing = Pair(np.full((1, 1), 0.1), np.zeros((1, 1)))
    points = points_of(StatePoints([position, None, None, None], hold, spacing), position[:, None])
    assert points.hi.shape == (B, 3, D)
    assert points.hi.strides[1] == 0
    np.testing.assert_array_equal(points.hi[:, 2], position)
    assert not points.lo.any()
