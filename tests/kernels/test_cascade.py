"""The cascade, forward: every backend gives the rows of the reference."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from gmpy2 import mpq
from kernels.cases import CASCADES, DOFS, DTYPES, STATES, Job, case, random_cases
from kernels.comparison import (
    assert_rows,
    assert_rows_of_torch,
    assert_same_alone,
    assert_same_without_others,
    rows,
)

every_job = pytest.mark.parametrize("work", CASCADES, ids=str)

LONG = [(3, 320, 5), (1, 900, 3), (2, 130, 33)]
"""More than a few vectors hold."""


@every_job
def test_rows_are_exact_for_every_shape_of_dt(work: Job, backend: str) -> None:
    for k, form in enumerate(work.forms):
        for horizon in (1, 2, 3, 6):
            assert_rows(backend, case(work, (2, horizon, 3), form, "float64", k), mpq)


@every_job
def test_rows_are_right_for_any_number_of_dofs(work: Job, backend: str) -> None:
    for k, dofs in enumerate(DOFS):
        form, states, dtype = work.forms[k % 4], STATES[k % 3], DTYPES[k // 2 % 2]
        assert_rows(backend, case(work, (5, 7, dofs), form, dtype, k, states))


@every_job
def test_long_trajectories_are_right(work: Job, backend: str) -> None:
    offset = CASCADES.index(work)
    for k, shape in enumerate(LONG):
        form = work.forms[(k + offset) % 4]
        assert_rows(backend, case(work, shape, form, DTYPES[(k + offset // 2) % 2], k))


@every_job
def test_very_long_trajectories_are_those_of_torch(work: Job, compiled: str) -> None:
    """More than any tile holds: they are done in pieces."""
    offset, steps = CASCADES.index(work), dict(work.options).get("steps", 1)
    for k, (batch, horizon, dofs) in enumerate(((2, 4500, 7), (17, 1300, 1))):
        form, dtype = work.forms[(k + offset) % len(work.forms)], DTYPES[(k + offset) % 2]
        sample = case(work, (batch, horizon // steps, dofs), form, dtype)
        assert_rows_of_torch(compiled, sample)


def test_very_many_are_those_of_torch(compiled: str) -> None:
    """More than a processor's caches hold: several threads write them."""
    for work in CASCADES[::4]:
        assert_rows_of_torch(compiled, case(work, (35, 1300, 7), work.forms[-1], "float64"))


@pytest.mark.parametrize("frames", ["actions", "curobo"])
@every_job
def test_frames_choose_the_rows(work: Job, frames: str, backend: str) -> None:
    if work.recorded:
        pytest.skip("a recording has the rows it has")
    for horizon in (1, 2, 9):
        assert_rows(backend, case(work, (3, horizon, 5), "[B,H]", frames=frames))


@pytest.mark.parametrize("group", range(2))
def test_random_cases_are_right(group: int, backend: str) -> None:
    for drawn in random_cases(CASCADES, 20, group):
        assert_rows(backend, drawn)


@every_job
def test_what_is_not_finite_stays_in_its_dof_and_in_later_rows(work: Job, backend: str) -> None:
    for value, dofs in ((np.nan, 7), (np.inf, 1), (-np.inf, 3)):
        sample = case(work, (9, 12, dofs), "[B,1]")
        clean = rows(backend, sample)
        actions = sample.operands.actions.copy()
        actions[4, 6, dofs - 1] = value
        result = rows(backend, replace(sample, operands=sample.operands._replace(actions=actions)))
        reached = np.zeros(result[0].shape, bool)
        reached[4, 6 + sample.program.start_row :, dofs - 1] = True
        for after, before in zip(result, clean, strict=True):
            np.testing.assert_array_equal(after[~reached], before[~reached])
        assert not np.isfinite(result[sample.program.order][reached]).all()
        if not sample.program.order:  # four rows of differences, then it is over
            reached[4, : 10 + sample.program.start_row] = False
            for after, before in zip(result, clean, strict=True):
                np.testing.assert_array_equal(after[reached], before[reached])


@every_job
def test_a_trajectory_has_the_same_bits_alone(work: Job, backend: str) -> None:
    for shape in ((11, 9, 1), (6, 40, 3), (5, 9, 7), (3, 9, 33)):
        assert_same_alone(backend, case(work, shape, "[B,H]"))
        assert_same_alone(backend, case(work, shape, "[1,1]"))


@pytest.mark.parametrize("work", CASCADES[::2], ids=str)
def test_outputs_that_are_not_wanted_change_no_other(work: Job, backend: str) -> None:
    assert_same_without_others(backend, case(work, (3, 9, 5), "[B,H]"))


def test_what_stands_still_has_derivatives_of_zero(backend: str) -> None:
    for work in CASCADES[:2]:
        sample = case(work, (3, 9, 5), "[B,H]")
        place = np.full((1, 5), 1234.56789, np.float32)
        operands = sample.operands._replace(
            actions=np.broadcast_to(place, (3, 9, 5)), start=[place, None, None, None]
        )
        position, *derivatives = rows(backend, replace(sample, operands=operands))
        assert not any(result.any() for result in derivatives)
        assert (position == place[0, 0]).all()
