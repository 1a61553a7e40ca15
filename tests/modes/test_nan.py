"""NaN in an action reaches what is made from it, and nothing else."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from kernels.cases import Job, job

import trajcli
from trajcli import State

RNG = np.random.default_rng(0)
ACTIONS = RNG.normal(size=(1, 9, 1))
START = State(*RNG.normal(size=(4, 1, 1)))

BANDS = [
    job("central", recorded=True),
    job("central"),
    job("central", convention="curobo"),
    # steps so few that no weight is small but not 0
    *(job("bspline", degree=degree, steps=steps) for degree in (3, 4, 5) for steps in (1, 2, 3, 4)),
    *(
        job("savgol", recorded=True, window=window, degree=degree)
        for window, degree in ((5, 2), (5, 4), (7, 2), (7, 5), (9, 3))
    ),
    job("clique", recorded=True),
]


@pytest.mark.parametrize("backend", ["native", "torch"])
@pytest.mark.parametrize("work", BANDS, ids=str)
def test_nan_reaches_just_what_has_weight(work: Job, backend: str) -> None:
    """A quantity has it from the actions that it changes with, and gives it back to these."""
    for rows in (x for x in (1, 3, 9) if x >= work.least):

        def call(actions: Any, start: Any = START, **options: Any) -> trajcli.Trajectory:
            return work.trajectory(actions, start, 0.1, backend=backend, **options)

        units = torch.eye(rows, dtype=torch.float64)[..., None]
        weights = np.stack([x[..., 0].T for x in call(units, "zero")])
        used = abs(weights) > 1e-9 * abs(weights).max((1, 2), keepdims=True)  # [4, T, rows]
        last = rows - (not work.recorded)  # a plan holds the last action, which has several weights
        actions = torch.from_numpy(ACTIONS[:, :rows])
        wrong = torch.where(units[:last] == 1, torch.nan, actions)  # each with one NaN
        clean = list(call(wrong.nan_to_num(1.0)))
        for m, values in enumerate(call(wrong, allow_nonfinite=True)):
            for i, nan in enumerate(used[m, :, :last].T):
                np.testing.assert_array_equal(values[i, :, 0].isnan(), nan)
                atol = 1e-13 * clean[m][i].abs().max()
                np.testing.assert_allclose(values[i, ~nan], clean[m][i, ~nan], rtol=0, atol=atol)
        many = actions.repeat(used.shape[1], 1, 1).requires_grad_()
        upstream = torch.where(torch.eye(used.shape[1]) == 1, torch.nan, 0.0).double()[..., None]
        for m, values in enumerate(call(many)):
            (grad,) = torch.autograd.grad(values, many, upstream, retain_graph=True)
            np.testing.assert_array_equal(grad[:, :last, 0].isnan(), used[m, :, :last])
