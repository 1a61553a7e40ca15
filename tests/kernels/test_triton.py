"""The Triton kernels give what the C++ kernels and torch_ops give, in every mode.

On a CUDA device these run as they are. Without one they run in Triton's interpreter, which has to
be switched on before triton is imported: test_triton_interpreted.py does that, in processes of
their own.
"""

from __future__ import annotations

import itertools
from dataclasses import replace
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from kernel_cases import (
    BANDS,
    CASCADES,
    DEVICE,
    alternating,
    as_tensors,
    assert_close,
    on_triton,
    problem,
)

from trajcli import State, integrate
from trajcli.inputs import Inputs
from trajcli.kernels import native, torch_ops, triton_ops
from trajcli.kernels.choose import absent_backends, choose, interpreted
from trajcli.kernels.padding import points_of
from trajcli.kernels.pairs import Pair
from trajcli.kernels.program import (
    CascadeProgram,
    Listed,
    StatePoints,
    Weights,
    Windows,
    run_program,
)
from trajcli.modes import PARTS, make_mode

pytestmark = [
    pytest.mark.skipif(bool(triton_ops.absence()), reason=triton_ops.absence()),
    pytest.mark.skipif(
        DEVICE == "cpu" and not interpreted(),
        reason="no CUDA device; test_triton_interpreted.py runs these in Triton's interpreter",
    ),
]

SMALL = [(3, 9, 7)]  # the interpreter takes some milliseconds for a row
MEDIUM = [(2, 21, 1), (1, 16, 33), (2, 40, 2)]
LARGE = [(5000, 100, 7), (300_000, 16, 1), (4000, 37, 6), (1, 200_000, 7), (3, 50_000, 2)]
SHAPES = SMALL if DEVICE == "cpu" else [*SMALL, *MEDIUM, *LARGE]
STEPS = ("one", "each step", "each", "all")


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize(
    ("mode", "options", "recorded", "kind"),
    alternating(CASCADES, [*((dt, "float32") for dt in STEPS), ("all", "float64")]),
)
def test_cascades_agree_with_the_other_backends(mode, options, recorded, kind, shape):
    dt, dtype = kind
    given = problem(mode, options, recorded, shape, dtype, dt)
    found = on_triton(given, mode)
    want = integrate(**given, mode=mode, backend="auto")
    for name in PARTS:
        assert_close(getattr(found, name), getattr(want, name), name)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize(
    ("mode", "options", "recorded", "kind"),
    alternating(BANDS, [("one", "float32"), ("own", "float64"), ("own", "float32")]),
)
def test_bands_agree_with_the_other_backends(mode, options, recorded, kind, shape):
    dt, dtype = kind
    own = "each" if mode == "bspline" else "all"
    given = problem(mode, options, recorded, shape, dtype, "one" if dt == "one" else own)
    found = on_triton(given, mode)
    want = integrate(**given, mode=mode, backend="auto")
    for name in PARTS:
        assert_close(getattr(found, name), getattr(want, name), name)


@pytest.mark.parametrize("shape", MEDIUM, ids=str)
@pytest.mark.parametrize(("mode", "options", "recorded"), [CASCADES[5], CASCADES[0], BANDS[0]])
def test_any_number_of_dofs_is_computed_in_whole_rows(mode, options, recorded, shape):
    given = problem(mode, options, recorded, shape, "float32", "one")
    found = on_triton(given, mode)
    want = integrate(**given, mode=mode, backend="auto")
    for name in PARTS:
        assert_close(getattr(found, name), getattr(want, name), name)


def gradients(given: dict[str, Any], mode: str, backend: str, of_dt: bool) -> list[torch.Tensor]:
    """Of a weighted sum of all outputs, by actions, start and, where asked for, dt."""
    tensors = {name: as_tensors(value) for name, value in given.items()}
    actions = tensors["actions"].requires_grad_()
    leaves = [actions]
    if isinstance(tensors["start"], State):
        leaves += [part.requires_grad_() for part in tensors["start"].parts().values()]
    if of_dt:
        leaves.append(tensors["dt"].requires_grad_())
    rows = integrate(**tensors, mode=mode, backend=backend)
    torch.manual_seed(0)
    outputs = [getattr(rows, name) for name in PARTS]
    weights = [torch.randn(out.shape, dtype=torch.float64).to(out) for out in outputs]
    return list(torch.autograd.grad(outputs, leaves, weights, allow_unused=True))


@pytest.mark.parametrize(
    ("mode", "options", "recorded", "own"), alternating([*CASCADES, *BANDS], (False, True))
)
def test_gradients_are_those_of_torch_ops(mode, options, recorded, own):
    each = "each" if mode == "bspline" else "all"
    of_dt = own and not recorded
    given = problem(mode, options, recorded, (2, 9, 3), "float64", each if own else "one")
    found = gradients(given, mode, "triton", of_dt)
    want = gradients(given, mode, "torch", of_dt)
    for a, b in zip(found, want, strict=True):
        assert (a is None) == (b is None)
        if b is not None:
            torch.testing.assert_close(a, b, rtol=0, atol=1e-13 * float(b.abs().max() + 1e-9))


def weighed(
    mode: str, options: dict[str, Any], recorded: bool, shape: tuple[int, ...], dtype: str, dt: str
) -> tuple[list[Any], Any]:
    """Gradients of the outputs, and arguments of band_adjoint after them."""
    given = problem(mode, options, recorded, shape, dtype, dt)
    parts = [given.get(name, "none") for name in ("start", "goal")]
    start, goal = (x.parts() if isinstance(x, State) else {} for x in parts)
    inputs = Inputs(
        mode=make_mode(mode, **options),
        actions=as_tensors(given["actions"]),
        start={name: as_tensors(part) for name, part in start.items()},
        goal={name: as_tensors(part) for name, part in goal.items()},
        dt=as_tensors(given["dt"]),
        recorded=recorded,
    )
    program: Any = inputs.program(DEVICE)
    torch.manual_seed(0)
    upstream = torch.randn(4, shape[0], program.weights.where.count, shape[2])
    of_actions = program.actions, program.head, program.tail, program.weights
    return list(upstream.to(program.actions)), of_actions


def sizes_of_terms(upstream: list[Any], of_actions: Any) -> torch.Tensor:
    """For each weight the sum of what is added up for its gradient, without signs."""
    actions, head, tail, weights = of_actions
    before, after = (points_of(part, actions) for part in (head, tail))
    parts = [before and before.hi, actions.double(), after and after.hi]
    X = torch.cat([x for x in parts if x is not None], 1)
    sizes = torch.zeros_like(weights.table.hi)
    width, where = sizes.shape[-1], weights.where
    first, kind = (torch.as_tensor(x, device=DEVICE) for x in (where.first, where.kind))
    for m, i in itertools.product(range(4), range(width)):
        if upstream[m] is not None and (m == 0 or i != width // 2):
            apart = X[:, first + i] - (X[:, first + width // 2] if m else 0.0)
            share = (upstream[m].double() * apart).abs().sum(2)
            share = share.sum(0, keepdim=True) if len(sizes) == 1 else share
            sizes[:, :, m, i].index_add_(1, kind, share)
    return sizes


def assert_gradients_of_weights(
    upstream: list[Any], of_actions: Any, monkeypatch: pytest.MonkeyPatch
) -> torch.Tensor:
    """They are those of torch_ops, found without it."""
    *points, want = torch_ops.band_adjoint(upstream, *of_actions)
    with monkeypatch.context() as patch:
        patch.delattr(torch_ops, "band_adjoint")
        *of_points, found = triton_ops.band_adjoint(upstream, *of_actions)
    assert found.shape == want.shape
    assert found.dtype == torch.float64
    assert ((found - want).abs() <= 1e-13 * sizes_of_terms(upstream, of_actions)).all()
    (of_u, *of_ends), (u, *ends) = of_points, points
    of_parts, parts = ([x for end in each for x in end or ()] for each in (of_ends, ends))
    for a, b in zip([of_u, *of_parts], [u, *parts], strict=True):
        assert (a is None) == (b is None)
        if b is not None:
            torch.testing.assert_close(a, b, rtol=0, atol=1e-13 * float(b.abs().sum()))
    return found


@pytest.mark.parametrize("shape", [(2, 7, 2), *([] if DEVICE == "cpu" else LARGE)], ids=str)
@pytest.mark.parametrize(
    ("mode", "options", "recorded", "kind"),
    alternating(
        BANDS,
        [("one", "float32"), ("own", "float64"), ("each", "float32"), ("each step", "float64")],
    ),
)
def test_gradients_of_weights_are_those_of_torch_ops(
    mode, options, recorded, kind, shape, monkeypatch
):
    dt, dtype = kind
    if mode == "bspline" and dt == "each step":
        dt = "one"
    dt = ("each" if mode == "bspline" else "all") if dt == "own" else dt
    upstream, of_actions = weighed(mode, options, recorded, shape, dtype, dt)
    if dtype == "float64":
        upstream[1] = None
    assert_gradients_of_weights(upstream, of_actions, monkeypatch)


@pytest.mark.parametrize("absent", [(), (1, 2, 3), (0, 2), (0, 1, 2, 3)], ids=str)
def test_outputs_without_a_gradient_ask_nothing_of_weights(absent, monkeypatch):
    upstream, of_actions = weighed("central", {}, True, (2, 7, 2), "float32", "each")
    upstream = [None if m in absent else g for m, g in enumerate(upstream)]
    found = assert_gradients_of_weights(upstream, of_actions, monkeypatch)
    for m in absent:
        assert (found[:, :, m] == 0).all()


@pytest.mark.parametrize(
    ("mode", "options", "recorded", "dt", "shape"),
    [
        ("central", {}, False, "one", (1, 45, 7)),
        ("central", {}, True, "each", (2, 45, 7)),
        ("central", {}, False, "each step", (7, 9, 9)),
        ("bspline", {"degree": 3, "steps": 2}, False, "each", (2, 27, 7)),
        ("bspline", {"degree": 3}, False, "one", (9, 9, 3)),
        ("central", {"frames": "actions"}, False, "one", (70, 2, 2)),
    ],
)
def test_gradients_of_weights_are_summed_in_pieces_and_over_trajectories(
    mode, options, recorded, dt, shape, monkeypatch
):
    from trajcli.kernels.triton_ops import run_table

    monkeypatch.setattr(run_table, "_TILES", 4)
    monkeypatch.setattr(run_table, "_PROGRAMS", 4)
    monkeypatch.setattr(run_table, "_PROGRAMS_OF_ROWS", 6)
    upstream, of_actions = weighed(mode, options, recorded, shape, "float32", dt)
    added: list[int] = []
    whole = run_table._added
    monkeypatch.setattr(run_table, "_added", lambda x: added.append(x.shape[1]) or whole(x))
    assert_gradients_of_weights(upstream, of_actions, monkeypatch)
    assert added[0] > 1


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize(
    ("rows", "offset", "steps", "shift", "kinds", "sizes"),
    [
        (11, 1, 3, 0, 4, (0, 9, 0)),  # begins within a window
        (5, 0, 3, 0, 3, (0, 9, 0)),  # ends within one
        (9, 0, 1, 0, 3, (0, 10, 0)),  # the last window for three rows
        (2, 0, 2, 0, 3, (0, 5, 0)),  # one window, a table for every row and one more
        (1, 0, 1, 0, 1, (0, 0, 4)),
        (7, 0, 1, 2, 5, (3, 2, 3)),  # no window of actions alone
    ],
)
def test_gradients_of_weights_wherever_rows_begin_and_end(
    rows, offset, steps, shift, kinds, sizes, batch, monkeypatch
):
    width, random = 4, np.random.default_rng(0)
    last = min((rows - 1 + offset) // steps, sum(sizes) - width)
    table, upstream, *points = (
        torch.as_tensor(random.standard_normal(shape), device=DEVICE)
        for shape in (
            (batch, kinds, 4, width),
            (4, max(batch, 2), rows, 2),
            *((max(batch, 2), n, 2) for n in sizes),
        )
    )
    where = Windows(rows, last, offset, steps, shift)
    weights = Weights(Pair(table, torch.zeros_like(table)), where)
    head, actions, tail = points
    ends = (as_state(points) if points.shape[1] else None for points in (head, tail))
    assert_gradients_of_weights(list(upstream), (actions, *ends, weights), monkeypatch)


def as_state(points: torch.Tensor) -> StatePoints:
    """Up to four points [B, n, D], each a part of its own."""
    count = points.shape[1]
    parts = [points[:, m] if m < count else None for m in range(4)]
    numbers = [tuple(Fraction(int(m == i)) for m in range(4)) for i in range(count)]
    return StatePoints(parts, tuple(numbers), None)


def test_gradients_of_outputs_may_be_one_for_all_trajectories(monkeypatch):
    upstream, of_actions = weighed("central", {}, False, (3, 5, 2), "float32", "one")
    upstream = [g[:1].expand(3, -1, -1) for g in upstream]
    assert_gradients_of_weights(upstream, of_actions, monkeypatch)


def test_gradients_of_weights_without_a_formula_are_of_all_of_them():
    upstream, (*points, weights) = weighed(
        "bspline", {"degree": 5}, False, (2, 5, 2), "float32", "one"
    )
    where = weights.where
    backwards = replace(weights, where=Listed(where.first[::-1].copy(), where.kind[::-1].copy()))
    (*_, found), (*_, want) = (
        kernels.band_adjoint(upstream, *points, backwards) for kernels in (triton_ops, torch_ops)
    )
    assert torch.equal(found, want)


def test_no_trajectories_ask_nothing_of_weights():
    upstream, of_actions = weighed("central", {}, False, (0, 5, 2), "float32", "one")
    *_, found = triton_ops.band_adjoint(upstream, *of_actions)
    assert torch.equal(found, torch.zeros_like(of_actions[-1].table.hi))


def test_parts_of_sums_are_added_up_whatever_their_number():
    from trajcli.kernels.triton_ops import run_table

    for number, count, values in ((2, 129, 5), (1, 17_000, 3), (3, 2, 70), (2, 1, 4)):
        parts = torch.randint(-1000, 1000, (number, count, values, 2), device=DEVICE).double()
        assert torch.equal(run_table._added(parts), parts.sum(1))


def test_gradients_of_weights_have_the_same_bits_whatever_the_neighbours(monkeypatch):
    from trajcli.kernels.triton_ops import run_table

    monkeypatch.setattr(run_table, "_TILES", 4)
    for dt in ("each", "all"):
        upstream, (actions, head, tail, weights) = weighed(
            "central", {}, False, (3, 37, 4), "float32", dt
        )
        table = Pair(weights.table.hi[1:3], weights.table.lo[1:3])
        few = replace(weights, table=table, evenly=None)
        spacing = Pair(head.spacing.hi[1:3], head.spacing.lo[1:3])
        own = replace(head, parts=[part[1:3] for part in head.parts], spacing=spacing)
        (*_, whole), (*_, found) = (
            triton_ops.band_adjoint(pulled, *of_actions)
            for pulled, of_actions in (
                (upstream, (actions, head, tail, weights)),
                ([g[1:3] for g in upstream], (actions[1:3], own, tail, few)),
            )
        )
        assert torch.equal(found, whole[1:3])


@pytest.mark.parametrize(
    ("mode", "dt"), [("central", "each"), ("central", "all"), ("bspline", "one")]
)
def test_second_derivatives_are_those_of_torch_ops(mode, dt):
    given = problem(mode, {}, False, (2, 6, 2), "float64", dt)

    def twice(backend: str) -> list[torch.Tensor]:
        tensors = {name: as_tensors(value) for name, value in given.items()}
        leaves = [tensors[name].requires_grad_() for name in ("actions", "dt")]
        rows = integrate(**tensors, mode=mode, backend=backend)
        cost = sum((getattr(rows, name) ** 2).sum() for name in PARTS)
        once = torch.autograd.grad(cost, leaves, create_graph=True)
        return list(torch.autograd.grad(sum((g**2).sum() for g in once), leaves))

    for a, b in zip(twice("triton"), twice("torch"), strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-12 * float(b.abs().max()))


def pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cut even short trajectories."""
    from trajcli.kernels.triton_ops import layout

    monkeypatch.setattr(layout, "LONG", 16)
    monkeypatch.setattr(layout, "WARPS", 12)
    monkeypatch.setattr(layout, "LEAST_ROWS", 8)
    assert layout.grid(1, 100, 7).pieces > 9


@pytest.mark.parametrize(
    ("mode", "options", "recorded", "dt"), alternating(CASCADES, ("one", "all"))
)
def test_few_long_trajectories_are_computed_in_pieces(mode, options, recorded, dt, monkeypatch):
    pieces(monkeypatch)
    shape = (1, 37, 7) if dt == "one" else (2, 29, 2)
    given = problem(mode, options, recorded, shape, "float32", dt)
    found = on_triton(given, mode)
    want = integrate(**given, mode=mode, backend="auto")
    for name in PARTS:
        assert_close(getattr(found, name), getattr(want, name), name)


SLIDING = [case for case in BANDS if case[1].get("steps", 1) == 1 and not case[2]]
"""Bands whose windows slide by one point."""


@pytest.mark.parametrize("horizon", range(1, 7))
@pytest.mark.parametrize(("mode", "options", "recorded"), SLIDING)
def test_windows_longer_than_the_actions_are_filled_from_both_ends(
    mode, options, recorded, horizon
):
    given = problem(mode, options, recorded, (2, horizon, 1), "float32", "each")
    found, want = on_triton(given, mode), integrate(**given, mode=mode, backend="torch")
    for name in PARTS:
        assert_close(getattr(found, name), getattr(want, name), name)
    slopes, wanted = (gradients(given, mode, backend, True) for backend in ("triton", "torch"))
    for a, b in zip(slopes, wanted, strict=True):
        assert (a is None) == (b is None)
        if b is not None:
            torch.testing.assert_close(a, b, rtol=0, atol=1e-6 * float(b.abs().max() + 1e-9))


@pytest.mark.parametrize(("mode", "options", "recorded"), [BANDS[3], BANDS[6], BANDS[9]])
def test_windows_slide_to_the_same_bits_in_pieces(mode, options, recorded, monkeypatch):
    given = problem(mode, options, recorded, (2, 29, 3), "float32", "each")

    def both() -> list[torch.Tensor]:
        rows = on_triton(given, mode)
        return [getattr(rows, name) for name in PARTS] + gradients(given, mode, "triton", False)

    whole = both()
    asked: list[Any] = []
    pieces(monkeypatch)
    from trajcli.kernels.triton_ops import run_band

    made = run_band.grid
    monkeypatch.setattr(run_band, "grid", lambda *a, **k: asked.append(made(*a, **k)) or asked[-1])
    for a, b in zip(both(), whole, strict=True):
        assert (a is None) == (b is None)
        if a is not None:
            np.testing.assert_array_equal(a, b)
    assert len(asked) == 3  # the rows, and again with their gradients
    assert all(layout.pieces > 2 for layout in asked)


@pytest.mark.parametrize(
    ("mode", "options", "recorded", "dtype"),
    [
        ("central", {}, False, "float32"),
        ("central", {}, True, "float32"),
        ("central", {}, True, "float64"),
        ("bspline", {"degree": 3}, False, "float32"),
        ("bspline", {"degree": 3}, False, "float64"),
        ("bspline", {"degree": 5}, False, "float32"),
        ("bspline", {"degree": 4, "ends": "goal"}, False, "float32"),
    ],
)
def test_stretches_of_rows_have_the_bits_of_the_whole_and_nothing_else(
    mode, options, recorded, dtype
):
    B, H, D, guard = 2, 37, 2, 777.0
    graded = 10.0 ** torch.linspace(-3, 3, H)[:, None]
    inputs = Inputs(
        mode=make_mode(mode, **options),
        actions=graded * torch.randn(B, H, D, generator=torch.manual_seed(0)),
        start={} if recorded else {"position": torch.ones(1, D)},
        goal={"position": torch.ones(1, D)} if "ends" in options else {},
        dt=torch.tensor(0.1),
        recorded=recorded,
    )

    def computed(part: Inputs) -> list[torch.Tensor]:
        program: Any = part.program(DEVICE)
        rows = program.weights.where.count + (program.start is not None)
        around = torch.full((4, B + 2, rows, D), guard, dtype=getattr(torch, dtype), device=DEVICE)
        run_program(program, triton_ops, list(around[:, 1:-1]))
        assert (around[:, [0, -1]] == guard).all()
        return list(around[:, 1:-1])

    whole = computed(inputs)
    for begin, end in ((0, 16), (7, 22), (16, inputs.rows)):
        stretch = inputs.mode.stretch((begin, end), H, recorded)
        part = replace(inputs, actions=inputs.actions[:, slice(*stretch.actions)], stretch=stretch)
        for found, want in zip(computed(part), whole, strict=True):
            np.testing.assert_array_equal(found.cpu(), want[:, begin:end].cpu())


@pytest.mark.parametrize(("horizon", "degree"), [(33, 3), (38, 3), (40, 3), (38, 5)])
def test_the_last_row_asks_its_points_wherever_a_piece_begins(horizon, degree, monkeypatch):
    pieces(monkeypatch)
    torch.manual_seed(0)
    inputs = Inputs(
        mode=make_mode("bspline", degree=degree),
        actions=torch.randn(1, horizon, 2, device=DEVICE),
        start={"position": torch.zeros(1, 2, device=DEVICE)},
        goal={},
        dt=torch.tensor(0.5, device=DEVICE),
    )
    program: Any = inputs.program(DEVICE)
    upstream = [torch.randn(1, program.weights.where.count, 2, device=DEVICE) for _ in range(4)]
    found, want = (
        kernels.band_adjoint(
            upstream,
            program.actions,
            program.head,
            program.tail,
            program.weights,
            of_table=False,
        )
        for kernels in (triton_ops, torch_ops)
    )
    assert found[2] is None
    pairs = zip((found[0], *found[1]), (want[0], *want[1]), strict=True)
    for a, b in ((a, b) for a, b in pairs if b is not None):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-13 * float(b.abs().max()))


def test_one_piece_has_the_rows_there_are(monkeypatch):
    from trajcli.kernels.triton_ops import layout

    monkeypatch.setattr(layout, "LONG", 16)
    monkeypatch.setattr(layout, "LEAST_ROWS", 64)
    for rows in range(1, 200):
        found = layout.grid(1, rows, 7)
        assert found.pieces * found.piece_rows >= rows
        assert found.pieces > 1 or found.piece_rows == rows


def test_launches_fit_a_grid_however_long_a_trajectory_is():
    from trajcli.kernels.triton_ops import run_band

    for each, steps, inside in itertools.product((True, False), (1, 3), (True, False)):
        where = Windows(10**8, 10**8, steps=steps, each=each)
        rows = 10**8 if inside else 100_000
        programs, _ = run_band._layout(1, rows, 7, inside, where)
        assert len(programs) == 1  # the other axes have 65535 at most
        assert programs[0] < 2**31


@pytest.mark.parametrize(
    ("mode", "frames", "in_pieces"),
    [("acceleration", "full", False), ("jerk", "actions", True), ("clique", "full", True)],
)
def test_a_start_index_is_taken_by_the_kernel(mode, frames, in_pieces, monkeypatch):
    if in_pieces:
        pieces(monkeypatch)
    from trajcli.kernels.triton_ops import run_cascade

    asked: list[Any] = []
    forward = run_cascade.forward
    monkeypatch.setattr(
        run_cascade, "forward", lambda *a, **k: asked.append(k["state_rows"]) or forward(*a, **k)
    )
    random = np.random.default_rng(5)
    actions, index = random.standard_normal((3, 37, 7)), np.array([3, 0, 3])
    velocity = random.standard_normal((4, 7))
    start = State(position=random.standard_normal((1, 7)), velocity=velocity)
    own = State(position=start.position, velocity=velocity[index])
    run = partial(integrate, actions, dt=0.02, mode=mode, frames=frames, scheme="zoh")
    found = run(start, start_index=index, backend="triton")
    want = run(own, backend="triton")
    assert asked[0].tolist() == [3, 0, 3]
    assert asked[1] is None
    for name in PARTS:
        np.testing.assert_array_equal(getattr(found, name), getattr(want, name))


INDEXED: list[tuple[str, dict[str, Any]]] = [
    ("jerk", {"frames": "actions", "scheme": "zoh"}),
    ("clique", {}),
    ("teleport", {}),
    ("central", {}),
    ("bspline", {"degree": 4, "ends": "goal"}),
    ("bspline", {"degree": 3, "steps": 2}),
]


def indexed(mode: str, options: dict[str, Any], start: Any, goal: Any) -> Inputs:
    """Trajectories that take their states by an index."""
    random = np.random.default_rng(5)
    parts, goals = (random.standard_normal((4, n, 7)).astype(np.float32) for n in (3, 2))
    return Inputs(
        mode=make_mode(mode, **options),
        actions=as_tensors(random.standard_normal((len(start), 21, 7)).astype(np.float32)),
        start=dict(zip(PARTS, map(as_tensors, parts), strict=True)),
        goal=dict(zip(PARTS, map(as_tensors, goals), strict=True)) if "ends" in options else {},
        dt=torch.rand(len(start), 1, generator=torch.manual_seed(0)).to(DEVICE) + 0.1,
        start_index=torch.tensor(start, device=DEVICE),
        goal_index=torch.tensor(goal, device=DEVICE) if "ends" in options else None,
    )


def rows_on_triton(inputs: Inputs) -> Any:
    out = [torch.zeros(len(inputs.actions), inputs.rows, 7, device=DEVICE) for _ in PARTS]
    program = inputs.program(DEVICE, gathers=True)
    run_program(program, triton_ops, out)
    return torch.stack(out).cpu(), program


@pytest.mark.parametrize(("mode", "options"), INDEXED)
def test_states_are_taken_by_their_index_in_the_kernel(mode, options):
    shared = indexed(mode, options, [2, 0, 2], [1, 1, 0])
    own = replace(
        shared,
        start={name: part[[2, 0, 2]] for name, part in shared.start.items()},
        goal={name: part[[1, 1, 0]] for name, part in shared.goal.items()},
        start_index=None,
        goal_index=None,
    )
    found, program = rows_on_triton(shared)
    np.testing.assert_array_equal(found, rows_on_triton(own)[0])
    head = getattr(program, "head", None)
    parts = [head.parts if head else getattr(program, "start", None)]
    parts += [program.tail.parts] if "ends" in options else []
    if isinstance(program, CascadeProgram):
        parts = [[part.hi for part in program.state]]
    assert [[len(part) for part in each] for each in parts] == [[3] * 4, [2] * 4][: len(parts)]
    assert all(part.dtype == torch.float32 for each in parts for part in each)  # as it was given


@pytest.mark.parametrize(("mode", "options"), [INDEXED[0], INDEXED[4]])
def test_an_index_may_lie_anyhow_in_memory(mode, options):
    shared = indexed(mode, options, [2, 0, 1], [1, 1, 0])
    wide = torch.tensor([2, 9, 0, 9, 1, 9], device=DEVICE)
    strided = replace(shared, start_index=wide[::2])
    np.testing.assert_array_equal(rows_on_triton(strided)[0], rows_on_triton(shared)[0])
    same = replace(shared, start_index=torch.tensor([1], device=DEVICE).expand(3))
    ones = replace(shared, start_index=torch.tensor([1, 1, 1], device=DEVICE))
    np.testing.assert_array_equal(rows_on_triton(same)[0], rows_on_triton(ones)[0])


@pytest.mark.parametrize("in_pieces", [False, True])
@pytest.mark.parametrize(("mode", "options"), [INDEXED[0], *INDEXED[3:5]])
def test_what_no_state_begins_is_nan_and_nothing_else(mode, options, in_pieces, monkeypatch):
    if in_pieces:
        pieces(monkeypatch)
    start, none = ([0, 1, 2, 1], [2]) if "ends" in options else ([0, 3, -1, 1], [1, 2])
    shared = indexed(mode, options, start, [0, 1, -2, 1])
    right = indexed(mode, options, [0, 1, 2, 1], [0, 1, 1, 1])
    found, want = rows_on_triton(shared)[0], rows_on_triton(right)[0]
    for b in range(4):
        if b in none:
            assert torch.isnan(found[0, b]).any()
        else:
            np.testing.assert_array_equal(found[:, b], want[:, b])


@pytest.mark.parametrize(
    ("order", "scheme", "dt"),
    alternating(itertools.product(range(4), ("euler", "zoh", "foh")), ("one", "all")),
)
def test_adjoints_of_pieces_are_those_of_the_whole(order, scheme, dt, monkeypatch):
    pieces(monkeypatch)
    torch.manual_seed(0)
    B, H, D = 2, 29, 3
    steps = torch.rand((1, 1) if dt == "one" else (B, H), dtype=torch.float64, device=DEVICE) + 0.1
    upstream = [torch.randn(B, H, D, device=DEVICE) for _ in range(4)]
    end = [torch.randn(B, D, dtype=torch.float64, device=DEVICE) for _ in range(4)]
    options: dict[str, Any] = {"order": order, "scheme": scheme}
    found = triton_ops.cascade_adjoint(upstream, end, steps, (B, H, D), **options)
    want = torch_ops.cascade_adjoint(upstream, end, steps, (B, H, D), **options)
    for a, b in zip((*found[0], *found[1]), (*want[0], *want[1]), strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-13 * float(b.abs().max() + 1e-9))


@pytest.mark.parametrize("scheme", ["euler", "zoh", "foh"])
@pytest.mark.parametrize("order", [1, 2, 3])
def test_gradients_keep_what_large_sums_leave_when_they_cancel(order, scheme):
    upstream = torch.zeros(4, 1, 11, 1, dtype=torch.float64, device=DEVICE)
    upstream[order - 1, 0, 3:10:3, 0] = torch.tensor([-(2.0**60), 3.0, 2.0**60])
    dt = torch.full((1, 1), 0.5, dtype=torch.float64, device=DEVICE)
    none: list[Any] = [None] * 4
    (found, _), (want, _) = (
        kernels.cascade_adjoint(list(upstream), none, dt, (1, 11, 1), order=order, scheme=scheme)
        for kernels in (triton_ops, torch_ops)
    )
    np.testing.assert_array_equal(found[order].cpu(), want[order].cpu())
    assert found[order][0, 0, 0] == 1.5


@pytest.mark.parametrize(("order", "in_pieces"), alternating([(0,), (3,), (2,)], (False, True)))
def test_the_state_at_the_end_continues_where_the_rows_stop(order, in_pieces, monkeypatch):
    if in_pieces:
        pieces(monkeypatch)
    torch.manual_seed(0)
    B, H, D, cut = 1, 37, 3, 16
    actions = torch.randn(B, H, D, device=DEVICE)
    dt = torch.full((1, 1), 0.1, dtype=torch.float64, device=DEVICE)
    state = [
        Pair(x, torch.zeros_like(x)) for x in torch.randn(4, B, D, device=DEVICE).double().unbind()
    ]

    def run(u: torch.Tensor, begin: list[Pair]) -> tuple[list[torch.Tensor], list[Pair]]:
        sources: list[Any] = [None] * 4
        sources[order] = u
        out = [torch.empty(u.shape, device=DEVICE) for _ in range(4)]
        end = triton_ops.cascade(sources, begin, dt, order=order, scheme="foh", out=out)
        return out, end

    whole, last = run(actions, state)
    front, middle = run(actions[:, :cut], state)
    back, end = run(actions[:, cut:], middle)
    for m in range(4):
        torch.testing.assert_close(
            torch.cat([front[m], back[m]], 1), whole[m], rtol=0, atol=0, msg=PARTS[m]
        )
        torch.testing.assert_close(end[m].hi, last[m].hi, rtol=1e-15, atol=1e-15)


@pytest.mark.parametrize("mode", ["acceleration", "central"])
def test_views_and_half_precision_are_read_and_written_right(mode):
    random = np.random.default_rng(1)
    wide = random.standard_normal((4, 18, 6))
    start = torch.zeros(3, device=DEVICE)
    views = [
        torch.as_tensor(wide, device=DEVICE)[:, ::2, ::2],
        torch.as_tensor(wide, device=DEVICE)[1:, 3:, :3],
        torch.as_tensor(wide, device=DEVICE).transpose(0, 1)[..., :3],
        torch.as_tensor(wide[..., :3].astype("f2"), device=DEVICE),
        torch.as_tensor(wide[0, :, :3], device=DEVICE).expand(3, -1, -1),
    ]
    for actions in views:
        plain = actions.double().contiguous()
        found = integrate(actions, start, 0.1, mode, backend="triton", dtype="float32")
        want = integrate(plain, start, 0.1, mode, backend="torch", dtype="float32")
        for name in PARTS:
            assert_close(getattr(found, name), getattr(want, name), name)
    out = [torch.empty(4, 18, 6, dtype=torch.float16, device=DEVICE) for _ in range(4)]
    zero = Pair(*(torch.zeros(4, 6, dtype=torch.float64, device=DEVICE) for _ in range(2)))
    dt = torch.full((1, 1), 0.1, dtype=torch.float64, device=DEVICE)
    half = torch.as_tensor(wide, device=DEVICE).half()
    for kernels, places in ((triton_ops, out), (torch_ops, [torch.empty_like(x) for x in out])):
        kernels.cascade(
            [None, None, half, None], [zero] * 4, dt, order=2, scheme="euler", out=places
        )
        out, want_half = places, out
    for a, b in zip(out, want_half, strict=True):
        torch.testing.assert_close(a, b, rtol=2e-3, atol=1e-6)


@pytest.mark.parametrize(
    ("mode", "options", "recorded", "value"),
    alternating([*CASCADES[:6:2], *BANDS[:2], BANDS[6]], (np.nan, np.inf)),
)
@np.errstate(all="ignore")  # of the interpreter's NumPy
def test_what_is_not_finite_stays_in_its_trajectory_and_dof(mode, options, recorded, value):
    given = problem(mode, options, recorded, (5, 12, 3), "float32", "one")
    clean = on_triton(given, mode)
    given["actions"][2, 6, 1] = value
    found = on_triton({**given, "allow_nonfinite": True}, mode)
    want = integrate(**given, mode=mode, allow_nonfinite=True, backend="auto")
    for name in PARTS:
        a, b = (getattr(x, name).cpu().numpy() for x in (found, clean))
        touched = np.zeros(a.shape, dtype=bool)
        touched[2, :, 1] = True
        np.testing.assert_array_equal(a[~touched], b[~touched])
        np.testing.assert_array_equal(np.isfinite(a), np.isfinite(getattr(want, name)))


@pytest.mark.parametrize("mode", ["jerk", "central"])
def test_forward_mode_and_vmap_work_on_these_kernels(mode):
    torch.manual_seed(0)
    u, du = torch.randn(2, 3, 9, 2, dtype=torch.float64, device=DEVICE).unbind()
    s, ds = torch.randn(2, 3, 2, dtype=torch.float64, device=DEVICE).unbind()

    def run(actions: Any, start: Any, backend: str) -> Any:
        rows = integrate(actions, start, 0.1, mode, backend=backend, allow_nonfinite=True)
        return torch.stack([getattr(rows, name) for name in PARTS])

    found, want = (
        torch.func.jvp(partial(run, backend=k), (u, s), (du, ds)) for k in ("triton", "torch")
    )
    for a, b in zip(found, want, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-11)
    found, want = (
        torch.func.vmap(partial(run, backend=k))(u[:, None], s[:, None])
        for k in ("triton", "torch")
    )
    torch.testing.assert_close(found, want, rtol=1e-12, atol=1e-11)


def test_the_backend_is_said_and_chosen_where_there_is_a_device():
    assert "triton" not in absent_backends()
    assert choose(DEVICE, "triton").kernels is triton_ops
    if DEVICE == "cuda":
        assert choose().backend == "triton"


def weights_of(mode: str, options: dict[str, Any], H: int, recorded: bool, steps: Any) -> Any:
    at = np.zeros((2, 1))
    made = make_mode(mode, **options)
    stretch = made.whole(H, recorded)
    return made.program(stretch, np.zeros((2, H, 1)), [at] * 4, [at] * 4, steps, recorded).weights  # type: ignore[union-attr]


@pytest.mark.parametrize(("mode", "options", "recorded"), BANDS)
def test_rows_are_told_apart_by_where_their_windows_lie(mode, options, recorded):
    from trajcli.kernels.narrow import narrowed
    from trajcli.kernels.triton_ops.formula import most_rows, rows_of, stencil

    one = np.full((1, 1), 0.1)
    if (mode, options, recorded) in SLIDING:
        weights = narrowed(weights_of(mode, options, 9, recorded, one))
        assert stencil(weights, weights.where) is not None
    for H, steps in itertools.product((5, 6, 8, 40), (1, 40)):
        if mode == "bspline" and steps > 1:
            continue
        dt = one if steps == 1 else np.full((2, H - recorded), 0.1)
        where = weights_of(mode, options, H, recorded, dt).where
        begin, end = rows_of(where, 1, where.last - 1)
        assert np.isin(where.first[begin:end], np.arange(1, where.last)).all()
        assert np.bincount(where.first).max() <= most_rows(where)
        assert where.kind.min() >= 0


@pytest.mark.skipif(bool(native.absence()), reason=native.absence())
def test_float32_sums_are_rounded_once_over_a_long_horizon():
    H = 200 if DEVICE == "cpu" else 1_000_000
    random = np.random.default_rng(0)
    actions = random.standard_normal((1, H, 1), dtype=np.float32)
    want = integrate(actions, np.zeros(1), 2.0**-6, "jerk", backend="native")
    tensors = torch.as_tensor(actions, device=DEVICE), torch.zeros(1, device=DEVICE)
    found = integrate(*tensors, 2.0**-6, "jerk", backend="triton")
    for name in PARTS:
        a, b = getattr(found, name).cpu().numpy(), getattr(want, name)
        assert (np.abs(a - b) <= np.spacing(np.abs(b))).all(), name
        assert (a == b).mean() > 0.999


def test_float64_results_of_float32_actions_are_rounded_once():
    given = problem("central", {}, False, (2, 9, 3), "float32", "one")
    found = on_triton({**given, "dtype": "float64"}, "central")
    want = integrate(**given, dtype="float64", mode="central", backend="torch")
    for name in PARTS:
        a, b = getattr(found, name).cpu().numpy(), getattr(want, name)
        assert (np.abs(a - b) <= np.spacing(np.abs(b))).all(), name
        assert (a == b).mean() > 0.95, name
