"""The search for jumps by a turn, which looks closely at few steps, finds what a close look at all
of them finds."""

from __future__ import annotations

import numpy as np
import pytest

from trajcli.files import repair

TURN = 2 * np.pi


@pytest.mark.parametrize("kind", ["noise", "walk", "wrapped", "wrapped degrees", "faults"])
def test_jumps_equal_those_of_a_full_search(kind):
    random, found = np.random.default_rng(3), 0
    for _ in range(200):
        batch, rows, dofs = random.integers(1, 6), random.integers(2, 60), random.integers(1, 5)
        values = random.standard_normal((batch, rows, dofs)) * 10 ** random.uniform(-2, 1.2)
        if kind != "noise":
            values = 0.3 * np.cumsum(values, 1)
        if kind in ("wrapped", "wrapped degrees", "faults"):
            turn = 360.0 if "degrees" in kind else TURN
            values = (values * turn / TURN + turn / 2) % turn - turn / 2
        if kind == "faults":
            values.reshape(-1)[random.integers(0, values.size, 2)] = random.choice(
                [np.nan, np.inf, 400.0, 7.0], 2
            )
        values = values.astype(random.choice(["f4", "f8"]))
        turns = random.choice([np.nan, TURN, 360.0, 0.0], dofs)
        columns = values.swapaxes(1, 2).reshape(-1, rows).astype(np.float64)
        with np.errstate(all="ignore"):
            which, row, turn = repair._explain_jumps(columns, np.tile(turns, batch))
        expected = np.stack([which // dofs, row, which % dofs, turn], 1)
        np.testing.assert_array_equal(repair.turn_jumps(values, turns), expected)
        found += len(expected)
    assert found or kind in ("noise", "walk")
