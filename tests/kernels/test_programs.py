"""Cascades and bands: every backend gives the rows of torch and their transpose as gradients."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from kernels.cases import (
    BANDS,
    CASCADES,
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
    Way,
    assert_right,
    assert_same_alone,
    assert_same_without_others,
    gradients,
    rows,
)

JOBS = (*CASCADES, *BANDS)

each_way = pytest.mark.parametrize("way", [rows, gradients])


def jobs(*works: Job) -> Any:
    return pytest.mark.parametrize("work", works, ids=str)


@each_way
@jobs(*JOBS)
def test_every_shape_of_dt_is_right(work: Job, way: Way, backend: str) -> None:
    for k, form in enumerate(work.forms):
        for horizon in sorted({max(horizon, work.least) for horizon in (1, 2, 3, 6)}):
            assert_right(way, backend, case(work, (2, horizon, 2), form, "float64", k))


@each_way
@jobs(*JOBS)
def test_any_number_of_dofs_is_right(work: Job, way: Way, backend: str) -> None:
    for k, dofs in enumerate(DOFS):
        form, states, dtype = work.forms[k % len(work.forms)], STATES[k % 3], DTYPES[k // 2 % 2]
        assert_right(way, backend, case(work, (5, 7, dofs), form, dtype, k, states))


@each_way
@jobs(*JOBS)
def test_very_long_trajectories_are_right(work: Job, way: Way, compiled: str) -> None:
    """More than any tile holds: they are done in pieces; and more than caches hold, by threads."""
    offset, steps = JOBS.index(work), dict(work.options).get("steps", 1)
    form, dtype = work.forms[offset % len(work.forms)], DTYPES[offset % 2]
    shape = ((2, 4500, 7), (17, 1300, 1), (4, 1300, 7))[offset % 3]
    assert_right(way, compiled, case(work, (shape[0], shape[1] // steps, shape[2]), form, dtype))


@each_way
@pytest.mark.parametrize("group", range(2))
@pytest.mark.parametrize(("works", "count"), [(CASCADES, 20), (BANDS, 16)], ids=["sums", "bands"])
def test_random_cases_are_right(
    works: tuple[Job, ...], count: int, group: int, way: Way, backend: str
) -> None:
    for drawn in random_cases(works, count, group):
        assert_right(way, backend, drawn)


@each_way
def test_any_table_and_any_windows_are_right(way: Way, backend: str) -> None:
    """A new mode is a padding and a table, never a kernel."""
    for k in range(30):
        assert_right(way, backend, random_band((SEED + k) % 2**31))


@each_way
def test_any_window_is_fitted(way: Way, backend: str) -> None:
    for k in range(20):
        assert_right(way, backend, random_fit((SEED + k) % 2**31))


@each_way
@jobs(*CASCADES, *BANDS[::3])
def test_a_trajectory_has_the_same_bits_alone(work: Job, way: Way, backend: str) -> None:
    # where trajectories are computed side by side, some are left over
    for shape in ((11, 9, 1), (6, 40, 3), (5, 9, 7), (3, 9, 33), (17, 31, 2), (35, 31, 7)):
        for form in {work.forms[0], work.forms[-1]}:
            assert_same_alone(way, backend, case(work, shape, form))


@each_way
@jobs(*CASCADES[::2], *BANDS[::5])
def test_what_is_not_wanted_changes_no_other(work: Job, way: Way, backend: str) -> None:
    assert_same_without_others(way, backend, case(work, (3, 9, 5), work.forms[-1]))


@jobs(*CASCADES[:2], *BANDS)
def test_derivatives_of_what_stands_still_are_zero(work: Job, backend: str) -> None:
    """At any step, and however far from zero it stands."""
    for dofs in (1, 7):
        sample = case(work, (3, 9, dofs), work.forms[-1], "float64")
        place = np.full((1, dofs), 1234.56789)
        still = [place, None, None, None]
        operands = sample.operands._replace(
            actions=np.broadcast_to(place, (3, 9, dofs)), start=still, goal=still,
            start_index=None, goal_index=None,
        )  # fmt: skip
        position, *derivatives = rows(backend, replace(sample, operands=operands))
        assert not any(result.any() for result in derivatives)
        assert (position == 1234.56789).all()


@jobs(*CASCADES, *BANDS[:4], BANDS[7])
def test_nan_stays_in_its_dof_and_in_rows_that_use_it(work: Job, backend: str) -> None:
    for value, dofs in ((np.nan, 7), (np.inf, 1), (-np.inf, 3)):
        sample = case(work, (9, 12, dofs), work.forms[-2 if work in CASCADES else -1])
        program, clean = sample.program, rows(backend, sample)
        actions = sample.operands.actions.copy()
        actions[4, 6, dofs - 1] = value
        operands = sample.operands._replace(actions=actions)
        result = rows(backend, replace(sample, operands=operands))
        reached, first = np.zeros(result[0].shape, bool), program.start_row
        if work in CASCADES:  # every later row; of differences four
            last = None if program.action_order else 10 + first
            reached[4, 6 + first : last, dofs - 1] = True
        else:
            begin, point = program.windows.first(), 6 + len(program.head)
            holds = (begin <= point) & (point < begin + program.width)
            reached[4, first:, dofs - 1] = holds
        for after, before in zip(result, clean, strict=True):
            np.testing.assert_array_equal(after[~reached], before[~reached])
        order = program.action_order
        assert not np.isfinite(result[order][reached]).all()


@pytest.mark.parametrize("uneven", [False, True])
def test_what_is_not_finite_does_not_reach_orders_without_weights(
    uneven: bool, backend: str
) -> None:
    """A parabola has no jerk, whatever points it fits; nor has that a gradient."""
    work = job("savgol", recorded=True, window=7, degree=2)
    sample = case(work, (2, 12, 3), "[B,H]" if uneven else "[1,1]", "float64")
    actions, upstream = sample.operands.actions.copy(), [x.copy() for x in sample.upstream]
    actions[1, 5, 2] = upstream[3][1, 5, 2] = np.nan
    sample = replace(sample, operands=sample.operands._replace(actions=actions), upstream=upstream)
    *others, jerk = rows(backend, sample)
    assert not jerk.any()
    assert all(np.isnan(x[1, 6, 2]) for x in others)
    (of_actions, *_) = gradients(backend, sample)
    assert np.isfinite(of_actions).all()


@each_way
@pytest.mark.parametrize("behind", [0, 3])
@pytest.mark.parametrize("window", [7, 301])
@pytest.mark.parametrize("spans", [False, True])
def test_fits_do_not_depend_on_how_weights_are_kept(
    spans: bool, window: int, behind: int, way: Way, backend: str
) -> None:
    """One dof is as it is among others, and shared steps are as their own: the same bits."""
    shape = (3, 2 * window + 24 + behind, 3)
    sample = case(job("savgol", recorded=True, window=window), shape, "[1,H]", "float64", 5)
    operands, program, upstream = sample.operands, sample.program, sample.upstream
    if spans:
        row, first = np.arange(shape[1]), program.windows.first()
        last = np.clip(row, first + 5, first + window - 1)
        line = np.stack([np.minimum(first + row % 2, row), last], 1)
        program = replace(program, spans=line[None])
        operands = operands._replace(actions=operands.actions.copy())
        operands.actions[1, window] = np.nan
    together = way(backend, replace(sample, program=program, operands=operands))
    if spans:
        program = replace(program, spans=np.repeat(program.spans, shape[0], 0))
    dt, actions = np.repeat(operands.dt, shape[0], 0), operands.actions[..., 1:2]
    alone = replace(
        sample,
        program=program,
        operands=operands._replace(actions=actions, dt=dt),
        upstream=[x[..., 1:2] for x in upstream],
    )
    for all_dofs, dof in zip(together, way(backend, alone), strict=True):
        np.testing.assert_array_equal(all_dofs[..., 1:2], dof)
