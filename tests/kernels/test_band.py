"""The band, forward: every backend gives the rows of the reference."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from gmpy2 import mpq
from kernels.cases import (
    BANDS,
    DOFS,
    DTYPES,
    SEED,
    STATES,
    Job,
    case,
    job,
    random_band,
    random_cases,
    random_fit,
)
from kernels.comparison import (
    NAMES,
    assert_rows,
    assert_rows_of_torch,
    assert_same_alone,
    assert_same_without_others,
    rows,
)

every_job = pytest.mark.parametrize("work", BANDS, ids=str)

LONG = [(3, 320, 5), (1, 900, 3), (2, 130, 33)]
"""More than a few vectors hold."""


@every_job
def test_rows_are_exact_for_every_shape_of_dt(work: Job, backend: str) -> None:
    for k, form in enumerate(work.forms):
        for horizon in sorted({max(horizon, work.least) for horizon in (1, 2, 6)}):
            assert_rows(backend, case(work, (2, horizon, 2), form, "float64", k), mpq)


@every_job
def test_rows_are_right_for_any_number_of_dofs(work: Job, backend: str) -> None:
    for k, dofs in enumerate(DOFS):
        form, states, dtype = work.forms[k % len(work.forms)], STATES[k % 3], DTYPES[k // 2 % 2]
        assert_rows(backend, case(work, (5, 7, dofs), form, dtype, k, states))


@pytest.mark.parametrize("work", [*BANDS[:4], *BANDS[5::4]], ids=str)
def test_long_trajectories_are_right(work: Job, backend: str) -> None:
    for k, (batch, horizon, dofs) in enumerate(LONG):
        form, steps = work.forms[k % len(work.forms)], dict(work.options).get("steps", 1)
        assert_rows(backend, case(work, (batch, horizon // steps, dofs), form, DTYPES[k % 2], k))


@every_job
def test_very_long_trajectories_are_those_of_torch(work: Job, compiled: str) -> None:
    """More than any tile holds: they are done in pieces."""
    offset, steps = BANDS.index(work), dict(work.options).get("steps", 1)
    for k, (batch, horizon, dofs) in enumerate(((2, 4500, 7), (17, 1300, 1))):
        form, dtype = work.forms[(k + offset) % len(work.forms)], DTYPES[(k + offset) % 2]
        sample = case(work, (batch, horizon // steps, dofs), form, dtype)
        assert_rows_of_torch(compiled, sample)


def test_very_many_are_those_of_torch(compiled: str) -> None:
    """More than a processor's caches hold: several threads write them."""
    for work in BANDS[::4]:
        assert_rows_of_torch(compiled, case(work, (35, 1300, 7), work.forms[-1], "float64"))


@pytest.mark.parametrize("frames", ["actions", "curobo"])
@pytest.mark.parametrize("work", [BANDS[0], BANDS[1], job("teleport")], ids=str)
def test_frames_choose_the_rows(work: Job, frames: str, backend: str) -> None:
    for horizon in (1, 2, 9):
        assert_rows(backend, case(work, (3, horizon, 5), "[B,H]", frames=frames))


@pytest.mark.parametrize("group", range(2))
def test_random_cases_are_right(group: int, backend: str) -> None:
    for drawn in random_cases(BANDS, 16, group):
        assert_rows(backend, drawn)


def test_any_table_and_any_windows_are_right(backend: str) -> None:
    """A new mode is a padding and a table, never a kernel."""
    for k in range(30):
        assert_rows(backend, random_band((SEED + k) % 2**31))


def test_any_window_is_fitted(backend: str) -> None:
    for k in range(20):
        assert_rows(backend, random_fit((SEED + k) % 2**31))


@pytest.mark.parametrize("work", BANDS, ids=str)
def test_derivatives_of_what_stands_still_are_zero(work: Job, backend: str) -> None:
    """At any step, and however far from zero it stands."""
    for dofs in (1, 7):
        sample = case(work, (3, 9, dofs), work.forms[-1], "float64")
        place = np.full((1, dofs), 1234.56789)
        actions = np.broadcast_to(place, (3, 9, dofs))
        still = [place, None, None, None]
        operands = sample.operands._replace(
            actions=actions, start=still, goal=still, start_index=None, goal_index=None
        )
        position, *derivatives = rows(backend, replace(sample, operands=operands))
        for name, result in zip(NAMES[1:], derivatives, strict=True):
            assert not result.any(), name
        assert (position == 1234.56789).all()


@pytest.mark.parametrize("work", [*BANDS[:4], BANDS[7]], ids=str)
def test_what_is_not_finite_reaches_only_windows_that_hold_it(work: Job, backend: str) -> None:
    for value, dofs in ((np.nan, 7), (np.inf, 1), (-np.inf, 3)):
        sample = case(work, (9, 12, dofs), work.forms[-1])
        clean = rows(backend, sample)
        actions = sample.operands.actions.copy()
        actions[4, 6, dofs - 1] = value
        result = rows(backend, replace(sample, operands=sample.operands._replace(actions=actions)))
        begin, point = sample.program.windows.first(), 6 + len(sample.program.head)
        holds = (begin <= point) & (point < begin + sample.program.width)
        reached = np.zeros(result[0].shape, bool)
        reached[4, sample.program.start_row :, dofs - 1] = holds
        for after, before in zip(result, clean, strict=True):
            np.testing.assert_array_equal(after[~reached], before[~reached])
        assert not np.isfinite(result[0][reached]).all()


@pytest.mark.parametrize("work", BANDS[::3], ids=str)
def test_a_trajectory_has_the_same_bits_alone(work: Job, backend: str) -> None:
    for shape in ((11, 9, 1), (6, 40, 3), (5, 9, 7), (3, 9, 33)):
        assert_same_alone(backend, case(work, shape, work.forms[-1]))


@pytest.mark.parametrize("work", BANDS[::5], ids=str)
def test_outputs_that_are_not_wanted_change_no_other(work: Job, backend: str) -> None:
    assert_same_without_others(backend, case(work, (3, 9, 5), work.forms[-1]))
