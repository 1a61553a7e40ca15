"""The cascade's adjoint: every backend gives the reference's gradients."""

from __future__ import annotations

import pytest
from gmpy2 import mpq
from kernels.cases import CASCADES, DOFS, DTYPES, Job, case, random_cases
from kernels.comparison import (
    assert_gradients,
    assert_gradients_of_torch,
    assert_same_gradients_alone,
    assert_same_gradients_without_others,
)

every_job = pytest.mark.parametrize("work", CASCADES, ids=str)

LONG = [(3, 320, 5), (1, 900, 3), (2, 130, 33)]
"""More than a few vectors hold."""


@every_job
def test_gradients_are_exact_for_every_shape_of_dt(work: Job, backend: str) -> None:
    for k, form in enumerate(work.forms):
        for horizon in (1, 2, 3, 5):
            assert_gradients(backend, case(work, (2, horizon, 2), form, "float64", k), mpq)


@every_job
def test_gradients_are_right_for_any_number_of_dofs(work: Job, backend: str) -> None:
    for k, dofs in enumerate(DOFS):
        for form in work.forms:
            assert_gradients(backend, case(work, (5, 7, dofs), form, DTYPES[k // 2 % 2], k))


@every_job
def test_those_of_long_trajectories_are_right(work: Job, backend: str) -> None:
    offset = CASCADES.index(work)
    for k, shape in enumerate(LONG):
        form = work.forms[(k + offset) % 4]
        assert_gradients(backend, case(work, shape, form, DTYPES[(k + offset // 2) % 2], k))


@every_job
def test_those_of_very_long_trajectories_are_those_of_torch(work: Job, compiled: str) -> None:
    """More than any tile holds: they are done in pieces."""
    offset, steps = CASCADES.index(work), dict(work.options).get("steps", 1)
    for k, (batch, horizon, dofs) in enumerate(((2, 4500, 7), (17, 1300, 1))):
        form, dtype = work.forms[(k + offset) % len(work.forms)], DTYPES[(k + offset) % 2]
        sample = case(work, (batch, horizon // steps, dofs), form, dtype)
        assert_gradients_of_torch(compiled, sample)


def test_those_of_very_many_are_those_of_torch(compiled: str) -> None:
    """More than a processor's caches hold: several threads write them."""
    for work in CASCADES[::4]:
        assert_gradients_of_torch(compiled, case(work, (35, 1300, 7), work.forms[-1], "float64"))


@pytest.mark.parametrize("frames", ["actions", "curobo"])
@every_job
def test_actions_that_are_not_used_have_none(work: Job, frames: str, backend: str) -> None:
    if work.recorded:
        pytest.skip("a recording has the rows it has")
    for horizon in (1, 2, 9):
        assert_gradients(backend, case(work, (3, horizon, 5), "[B,H]", frames=frames))


@pytest.mark.parametrize("group", range(2))
def test_random_cases_are_right(group: int, backend: str) -> None:
    for drawn in random_cases(CASCADES, 20, group):
        assert_gradients(backend, drawn)


@every_job
def test_a_trajectory_has_the_same_bits_alone(work: Job, backend: str) -> None:
    for shape in ((11, 9, 1), (6, 40, 3), (5, 9, 7), (3, 9, 33)):
        assert_same_gradients_alone(backend, case(work, shape, "[B,H]"))
        assert_same_gradients_alone(backend, case(work, shape, "[1,1]"))


@pytest.mark.parametrize("work", CASCADES[::2], ids=str)
def test_gradients_that_are_not_wanted_change_no_other(work: Job, backend: str) -> None:
    assert_same_gradients_without_others(backend, case(work, (3, 9, 5), "[B,H]"))
