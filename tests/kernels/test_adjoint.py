"""The adjoint kernels are the transposes of the forward ones, and differentiate by dt."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from exact import PARTS
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import trajcli
from trajcli.kernels import native, torch_ops
from trajcli.kernels.pairs import Pair
from trajcli.kernels.program import Listed, Weights

kernels: Any = torch_ops
"""The backend under test."""


@pytest.fixture(autouse=True, scope="module", params=[torch_ops, native], ids=["torch", "native"])
def _backend(request: pytest.FixtureRequest) -> None:
    if request.param is native and native.absence():
        pytest.skip(native.absence())
    global kernels
    kernels = request.param


ORDERS = pytest.mark.parametrize("order", range(4), ids=["clique", "velocity", "acc", "jerk"])
SCHEMES = pytest.mark.parametrize("scheme", ["euler", "zoh", "foh"])
PROPERTY = settings(max_examples=20, deadline=None, derandomize=True, database=None)
SEEDS = st.integers(0, 2**31)
SUBSETS = st.lists(st.booleans(), min_size=4, max_size=4)


def assert_equal_products(one: Sequence[tuple[Any, Any]], two: Sequence[tuple[Any, Any]]) -> None:
    """⟨Jx, y⟩ = ⟨x, Jᵀy⟩ to 1e-12 of the products' sizes."""
    first, second = (sum(float((a * b).sum()) for a, b in side) for side in (one, two))
    size = sum(float((a * b).abs().sum()) for a, b in [*one, *two])
    assert abs(first - second) <= 1e-12 * size, (first, second)


def normal(rng: np.random.Generator, *shape: int) -> Tensor:
    return torch.as_tensor(rng.normal(size=shape))


def exact_pair(values: Tensor) -> Pair:
    return Pair(values, torch.zeros_like(values))


# -- cascade ---------------------------------------------------------------------------------


def cascade(case: Any, order: int, scheme: str) -> tuple[list[Tensor], list[Tensor]]:
    """Rows 1..H and the state in row H."""
    out = [torch.empty(case.shape, dtype=torch.float64) for _ in range(4)]
    state = [exact_pair(part) for part in case.state]
    end = kernels.cascade(case.sources, state, case.dt, order=order, scheme=scheme, out=out)
    return out, [part.hi + part.lo for part in end]


def cascade_case(
    order: int, seed: int, batch: int, horizon: int, dofs: int, dt_form: str, kept: Sequence[bool]
) -> Any:
    """Random values; which of the sources, upstream rows and ends there are, ``kept`` says."""
    rng = np.random.default_rng(seed)
    shape = (batch, horizon, dofs)
    dt_shape = {"number": (1, 1), "[H]": (1, horizon), "[B,1]": (batch, 1)}
    sources = [normal(rng, *shape) if kept[m] or m == order else None for m in range(4)]
    return SimpleNamespace(
        shape=shape,
        sources=sources,
        state=list(normal(rng, 4, batch, dofs)),
        dt=torch.as_tensor(rng.uniform(0.3, 1.2, size=dt_shape.get(dt_form, (batch, horizon)))),
        upstream=subset(normal(rng, 4, *shape), kept[4:8]),
        end=subset(normal(rng, 4, batch, dofs), kept[8:]),
    )


def subset(values: Iterable[Tensor], kept: Sequence[bool]) -> list[Tensor | None]:
    return [value if keep else None for value, keep in zip(values, kept, strict=True)]


def products(
    values: Iterable[Tensor | None], weights: Iterable[Tensor | None]
) -> list[tuple[Tensor, Tensor]]:
    pairs = zip(values, weights, strict=True)
    return [(v, w) for v, w in pairs if v is not None and w is not None]


EVERYTHING = [True] * 12
ACTIONS_ALONE = [False] * 4 + [True] * 8
SHAPES = {
    "seed": SEEDS,
    "batch": st.integers(1, 4),
    "horizon": st.integers(1, 12),
    "dofs": st.integers(1, 3),
    "dt_form": st.sampled_from(["number", "[H]", "[B,1]", "[B,H]"]),
    "kept": st.lists(st.booleans(), min_size=12, max_size=12),
}


@ORDERS
@SCHEMES
@PROPERTY
@given(**SHAPES)
def test_cascade_adjoint_is_the_transpose_of_the_cascade(
    order: int, scheme: str, **shape: Any
) -> None:
    case = cascade_case(order, **shape)
    rows, end = cascade(case, order, scheme)
    before = [*case.upstream, *case.end, case.dt]
    copies = [None if x is None else x.clone() for x in before]
    grad_sources, grad_state = kernels.cascade_adjoint(
        case.upstream, case.end, case.dt, case.shape, order=order, scheme=scheme
    )
    assert_equal_products(
        products(rows, case.upstream) + products(end, case.end),
        products(case.sources, grad_sources) + products(case.state, grad_state),
    )
    for one, two in zip(before, copies, strict=True):
        assert one is two or torch.equal(one, two)  # it writes into nothing it was given


@ORDERS
@SCHEMES
def test_cascade_adjoint_through_two_pieces_is_that_of_the_whole(order: int, scheme: str) -> None:
    case = cascade_case(order, 0, 3, 11, 2, "[B,H]", EVERYTHING)

    def adjoint(rows: slice, end: Any) -> Any:
        upstream, dt = [g[:, rows] for g in case.upstream], case.dt[:, rows]
        shape = upstream[0].shape
        return kernels.cascade_adjoint(upstream, end, dt, shape, order=order, scheme=scheme)

    whole_sources, whole_state = adjoint(slice(None), case.end)
    later_sources, middle = adjoint(slice(4, 11), case.end)
    earlier_sources, state = adjoint(slice(0, 4), middle)
    close = {"rtol": 1e-10, "atol": 1e-10}
    for whole, earlier, later in zip(whole_sources, earlier_sources, later_sources, strict=True):
        torch.testing.assert_close(torch.cat([earlier, later], 1), whole, **close)
    for one, two in zip(state, whole_state, strict=True):
        torch.testing.assert_close(one, two, **close)


@pytest.mark.parametrize("shape", [(0, 5, 2), (3, 0, 2)], ids=["no trajectories", "no steps"])
@ORDERS
@SCHEMES
def test_cascade_adjoint_of_nothing_passes_the_end_on(
    order: int, scheme: str, shape: tuple[int, int, int]
) -> None:
    case = cascade_case(order, 0, *shape, "number", ACTIONS_ALONE)
    _, end = cascade(case, order, scheme)
    grad_sources, grad_state = kernels.cascade_adjoint(
        case.upstream, case.end, case.dt, shape, order=order, scheme=scheme
    )
    assert all(grad.shape == shape for grad in grad_sources)
    for value, began in zip(end, case.state, strict=True):
        assert torch.equal(value, began)  # no step: the end is the beginning
    for grad, upstream in zip(grad_state, case.end, strict=True):
        assert torch.equal(grad, upstream)


# -- band ------------------------------------------------------------------------------------


def band_case(
    seed: int,
    batch: int,
    shared: bool,
    kinds: int,
    width: int,
    sizes: tuple[int, int, int],
    rows: int,
    dofs: int,
) -> Any:
    rng = np.random.default_rng(seed)
    before, horizon, after = sizes
    horizon = max(horizon, width - before - after)
    table = normal(rng, 1 if shared else batch, kinds, 4, width)
    middle = width // 2  # the weights of derivatives sum to zero
    table[:, :, 1:, middle] -= table[:, :, 1:].sum(-1)
    points = before + horizon + after
    first = np.sort(rng.integers(0, points - width + 1, size=rows))
    return SimpleNamespace(
        actions=normal(rng, batch, horizon, dofs),
        head=normal(rng, batch, before, dofs) if before else None,
        tail=normal(rng, batch, after, dofs) if after else None,
        table=table,
        first=first,
        phase=rng.integers(0, kinds, size=rows),
        upstream=list(normal(rng, 4, batch, rows, dofs)),
    )


BANDS = {
    "seed": SEEDS,
    "batch": st.integers(1, 3),
    "shared": st.booleans(),
    "kinds": st.integers(1, 4),
    "width": st.integers(1, 6),
    "sizes": st.tuples(st.integers(0, 4), st.integers(1, 8), st.integers(0, 4)),
    "rows": st.integers(1, 12),
    "dofs": st.integers(1, 3),
}


def band(case: Any, table: Tensor) -> list[Tensor]:
    out = [torch.empty_like(g) for g in case.upstream]
    weights = Weights(exact_pair(table), Listed(case.first, case.phase))
    head, tail = (None if x is None else exact_pair(x) for x in (case.head, case.tail))
    kernels.band(case.actions, head, tail, weights, out=out)
    return out


def band_adjoint(case: Any, upstream: Sequence[Tensor | None]) -> Any:
    weights = Weights(exact_pair(case.table), Listed(case.first, case.phase))
    head, tail = (None if x is None else exact_pair(x) for x in (case.head, case.tail))
    return kernels.band_adjoint(upstream, case.actions, head, tail, weights)


@PROPERTY
@given(kept=SUBSETS, **BANDS)
def test_band_adjoint_is_the_transpose_of_the_band(kept: list[bool], **shape: Any) -> None:
    case = band_case(**shape)
    upstream = subset(case.upstream, kept)
    grad_actions, grad_head, grad_tail, _ = band_adjoint(case, upstream)
    inputs = [(case.actions, grad_actions)]
    inputs += [(x, g) for x, g in ((case.head, grad_head), (case.tail, grad_tail)) if x is not None]
    assert_equal_products(products(band(case, case.table), upstream), inputs)


@PROPERTY
@given(kept=SUBSETS, **BANDS)
def test_band_adjoint_gives_the_slope_by_each_weight(kept: list[bool], **shape: Any) -> None:
    case = band_case(**shape)
    upstream = subset(case.upstream, kept)
    _, _, _, grad_table = band_adjoint(case, upstream)
    assert grad_table.shape == case.table.shape
    # outputs are linear in the table, also along changes that keep the sums of its rows
    change = normal(np.random.default_rng(shape["seed"] + 1), *case.table.shape)
    change[:, :, 1:, change.shape[-1] // 2] -= change[:, :, 1:].sum(-1)
    assert_equal_products(products(band(case, change), upstream), [(change, grad_table)])


@PROPERTY
@given(**BANDS)
def test_band_is_the_sum_of_weights_times_points(**shape: Any) -> None:
    case = band_case(**shape)
    points = torch.cat([x for x in (case.head, case.actions, case.tail) if x is not None], 1)
    for order, found in enumerate(band(case, case.table)):
        for t, (first, phase) in enumerate(zip(case.first, case.phase, strict=True)):
            window = points[:, first : first + case.table.shape[-1]]  # [B, W, D]
            weights = case.table[:, phase, order, :, None]
            wanted = (weights * window).sum(1)
            size = weights.abs().sum(1) * window.abs().amax(1)
            assert ((found[:, t] - wanted).abs() <= 1e-14 * size).all()


# -- slopes by dt ----------------------------------------------------------------------------

MODES: dict[str, dict[str, Any]] = {
    **{
        f"{mode} {scheme}": {"mode": mode, "scheme": scheme}
        for mode in ("clique", "velocity", "acceleration", "jerk")
        for scheme in ("euler", "zoh", "foh")
    },
    "central": {"mode": "central"},
    "central of curobo": {"mode": "central", "convention": "curobo"},
    "bspline": {"mode": "bspline", "degree": 5, "steps": 2},
}
STEPS = {"number": (), "[H]": (6,), "[B,1]": (2, 1), "[B,H]": (2, 6)}
UNIFORM = ("number", "[B,1]")
MODES_AND_STEPS = [
    (mode, form) for mode in MODES for form in STEPS if mode != "bspline" or form in UNIFORM
]


@pytest.mark.parametrize(("mode", "form"), MODES_AND_STEPS)
def test_gradients_by_dt_are_the_slopes_in_its_own_shape(mode: str, form: str) -> None:
    rng = np.random.default_rng(0)
    actions, start = normal(rng, 2, 6, 2), trajcli.State(*normal(rng, 4, 2, 2))
    dt = torch.as_tensor(rng.uniform(0.3, 1.2, size=STEPS[form]), dtype=torch.float64)
    rows = trajcli.integrate(actions, start, dt, **MODES[mode]).position.shape[1]
    upstream = normal(rng, 4, 2, rows, 2)

    def value(dt: Tensor) -> Tensor:
        found = trajcli.integrate(actions, start, dt, **MODES[mode])
        return sum((getattr(found, p) * g).sum() for p, g in zip(PARTS, upstream, strict=True))

    leaf = dt.clone().requires_grad_()
    value(leaf).backward()
    assert leaf.grad.shape == dt.shape
    expected = torch.zeros_like(dt)
    for place in np.ndindex(*dt.shape):
        # central differences, extrapolated once
        for factor, width in ((4 / 3, 5e-4), (-1 / 3, 1e-3)):
            ahead, behind = dt.clone(), dt.clone()
            ahead[place] += width
            behind[place] -= width
            expected[place] += factor * (value(ahead) - value(behind)) / (2 * width)
    assert (leaf.grad - expected).abs().max() <= 1e-6 * expected.abs().max()
