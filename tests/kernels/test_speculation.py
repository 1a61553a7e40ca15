"""Sums and differences that doubles cannot hold exactly are found out and done again in pairs."""

from __future__ import annotations

from typing import Any

import exact
import numpy as np
import pytest

import trajcli
from trajcli import State
from trajcli.kernels import native
from trajcli.kernels.pairs import Pair
from trajcli.kernels.program import BLOCK_ROWS
from trajcli.modes import PARTS

pytestmark = pytest.mark.skipif(bool(native.absence()), reason=native.absence())

MODES: list[tuple[str, dict[str, Any]]] = [
    ("clique", {}),
    ("velocity", {}),
    ("acceleration", {}),
    ("jerk", {}),
    ("central", {}),
    ("bspline", {"degree": 3}),
    ("bspline", {"degree": 5}),
    ("bspline", {"degree": 4, "steps": 3}),
]
EVERY_MODE = pytest.mark.parametrize(("mode", "options"), MODES)
LEVELS = pytest.mark.parametrize("level", ["1", "3", "4"])
LARGE, SMALL = 2.0**40, 2.0**-40
"""Their sum needs 81 bits."""


def wild(shape: tuple[int, ...], seed: int = 0) -> Any:
    """Floats of very different sizes that also cancel, row after row."""
    random = np.random.default_rng(seed)
    sizes = random.choice([LARGE, 1.0, SMALL], shape)
    values = (sizes * random.uniform(0.5, 1, shape)).astype(np.float32)
    values[:, 1::2] = np.where(random.random(values[:, 1::2].shape) < 0.5, -values[:, :-1:2], 1.0)
    return values


def tame(shape: tuple[int, ...]) -> Any:
    return np.random.default_rng(1).uniform(-1, 1, shape).astype(np.float32)


def start_of(batch: int, dofs: int) -> State:
    return State(*np.random.default_rng(2).normal(size=(4, batch, dofs)))


@LEVELS
@EVERY_MODE
def test_numbers_of_very_different_size_are_summed_exactly(mode, options, level, monkeypatch):
    monkeypatch.setenv("TRAJCLI_INSTRUCTIONS", level)
    actions, start = wild((2, 38, 3)), start_of(2, 3)
    found = trajcli.integrate(actions, start, 0.01, mode, **options)
    want = exact.integrate(actions, start, 0.01, mode=mode, **options)
    for part in PARTS:
        exact.assert_within_ulp(getattr(found, part), want[part])


@pytest.mark.parametrize("dofs", [1, 2, 3, 7, 17])
@EVERY_MODE
def test_wild_neighbours_change_no_bit(mode, options, dofs):
    batch, horizon = 16, 70
    actions, start = tame((batch, horizon, dofs)), start_of(batch, dofs)
    alone = trajcli.integrate(actions, start, 0.02, mode, **options)
    mixed = actions.copy()
    mixed[::3, :, 0] = wild((batch, horizon, dofs))[::3, :, 0]
    beside = trajcli.integrate(mixed, start, 0.02, mode, **options)
    same = (mixed == actions).all(axis=1)  # [B, D]
    for part in PARTS:
        a, b = getattr(alone, part), getattr(beside, part)
        for dof in range(dofs):
            np.testing.assert_array_equal(a[same[:, dof], :, dof], b[same[:, dof], :, dof])


@pytest.mark.parametrize("make", [tame, wild])
@pytest.mark.parametrize("order", range(4))
def test_a_run_cut_between_blocks_goes_on_with_the_same_bits(order, make):
    shape, cut = (5, 150, 3), 48
    assert cut % BLOCK_ROWS == 0
    actions, dt = make(shape), np.asarray([[0.013]])
    parts = [getattr(start_of(5, 3), part) for part in PARTS]
    state = [Pair(part, np.zeros_like(part)) for part in parts]

    def run(state: Any, rows: Any) -> tuple[list[Any], Any]:
        sources: list[Any] = [None] * 4
        sources[order] = np.ascontiguousarray(actions[:, rows])
        out = [np.empty(sources[order].shape, np.float32) for _ in PARTS]
        end = native.cascade(sources, state, dt, order=order, scheme="euler", out=out)
        return out, end

    whole, end = run(state, slice(None))
    early, between = run(state, slice(0, cut))
    late, last = run(between, slice(cut, None))
    for m in range(4):
        np.testing.assert_array_equal(whole[m], np.concatenate([early[m], late[m]], 1))
        np.testing.assert_array_equal(end[m].hi, last[m].hi)


def test_a_joint_that_stands_still_has_no_velocity_and_a_straight_line_no_acceleration():
    still = np.full((3, 40, 7), np.float32(0.1))
    line = np.float32(0.25) * np.arange(1, 41, dtype=np.float32)[None, :, None] * np.ones((3, 1, 7))
    for mode in ("clique", "central", "bspline"):
        found = trajcli.integrate(still, np.full(7, np.float32(0.1)), 0.013, mode)
        assert (found.position == np.float32(0.1)).all()
        for part in PARTS[1:]:
            assert (getattr(found, part) == 0).all(), (mode, part)
        moving = State(position=np.zeros(7), velocity=np.full(7, 0.25 / 0.5))
        found = trajcli.integrate(line.astype(np.float32), moving, 0.5, mode)
        inner = slice(8 if mode == "bspline" else 0, 36)
        assert (found.acceleration[:, inner] == 0).all(), mode
        assert (found.jerk[:, inner] == 0).all(), mode
