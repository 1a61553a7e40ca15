"""The Triton kernels give what the C++ kernels and torch_ops give, in every mode.

On a CUDA device these run as they are. Without one they run in Triton's interpreter, which has to
be switched on before triton is imported: test_triton_interpreted.py does that, in processes of
their own.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch

from trajcli import State, integrate
from trajcli.kernels import native, torch_ops, triton_ops
from trajcli.kernels.choose import absent_backends, choose, interpreted
from trajcli.kernels.pairs import Pair
from trajcli.modes import PARTS, make_mode

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
on_device = pytest.mark.skipif(DEVICE == "cpu", reason="no CUDA device")
pytestmark = [
    pytest.mark.skipif(bool(triton_ops.absence()), reason=triton_ops.absence()),
    pytest.mark.skipif(
        DEVICE == "cpu" and not interpreted(),
        reason="no CUDA device; test_triton_interpreted.py runs these in Triton's interpreter",
    ),
]

CASCADES = [
    ("clique", {}, False),
    ("clique", {}, True),
    *(
        (mode, {"scheme": scheme}, False)
        for mode in ("velocity", "acceleration", "jerk")
        for scheme in ("euler", "zoh", "foh")
    ),
    ("jerk", {"frames": "actions"}, False),
    ("acceleration", {"convention": "curobo"}, False),
]
BANDS = [
    ("central", {}, False),
    ("central", {}, True),
    ("central", {"frames": "actions"}, False),
    ("central", {"ends": "goal"}, False),
    ("central", {"convention": "curobo"}, False),
    ("teleport", {}, False),
    ("bspline", {"degree": 3}, False),
    ("bspline", {"degree": 4, "steps": 3, "ends": "goal"}, False),
    ("bspline", {"degree": 5, "steps": 2}, False),
    ("bspline", {"degree": 5, "ends": "goal", "convention": "curobo"}, False),
]
SMALL = [(3, 9, 7)]  # the interpreter takes some milliseconds for a row
MEDIUM = [(2, 21, 1), (1, 16, 33), (2, 40, 2)]
LARGE = [(5000, 100, 7), (300_000, 16, 1), (4000, 37, 6), (1, 200_000, 7), (3, 50_000, 2)]
SHAPES = SMALL if DEVICE == "cpu" else [*SMALL, *MEDIUM, *LARGE]
STEPS = ("one", "each step", "each", "all")


def alternating(cases: Iterable[Any], options: Sequence[Any]) -> list[Any]:
    """Cases with all options each on a device; in the interpreter with every other one, in turns,
    so that each case has some and each option many."""
    return [
        (*case, option)
        for k, case in enumerate(cases)
        for j, option in enumerate(options)
        if DEVICE == "cuda" or (j + k) % 2 == 0
    ]


def problem(
    mode: str, options: dict[str, Any], recorded: bool, shape: tuple[int, ...], dtype: str, dt: str
) -> dict[str, Any]:
    """Arguments of integrate, NumPy arrays."""
    random = np.random.default_rng(sum(shape))
    B, H, D = shape
    steps = H - 1 if recorded else H
    shapes = {"one": (), "each step": (steps,), "each": (B, 1), "all": (B, steps)}
    given: dict[str, Any] = dict(options)
    given["actions"] = random.standard_normal(shape).astype(dtype)
    parts = random.standard_normal((2, 4, B, D)).astype(dtype)
    given["start"] = "first" if recorded else State(*parts[0])
    given["dt"] = random.uniform(0.01, 0.2, shapes[dt])
    if options.get("ends") == "goal":
        given["goal"] = State(*parts[1][: 1 if mode == "central" else 4])
    return given


def as_tensors(value: Any) -> Any:
    if isinstance(value, np.ndarray | np.floating):
        return torch.as_tensor(value, device=DEVICE)
    if isinstance(value, State):
        return State(**{name: as_tensors(part) for name, part in value.parts().items()})
    return value


def on_triton(given: dict[str, Any], mode: str) -> Any:
    tensors = {name: as_tensors(value) for name, value in given.items()}
    return integrate(**tensors, mode=mode, backend="triton")


def assert_close(found: Any, want: Any, name: str = "") -> None:
    """Within 2 ulp, or 1e-12 of the largest value along the trajectory and dof; float64 within
    1e-15 of the largest value."""
    found, want = (x.cpu().numpy() if isinstance(x, torch.Tensor) else x for x in (found, want))
    assert found.shape == want.shape
    assert found.dtype == want.dtype
    a, b = found.astype(np.float64), want.astype(np.float64)
    ulp = np.spacing(np.abs(want)).astype(np.float64)
    if want.dtype == np.float64:
        allowed = 2 * ulp + 1e-15 * np.abs(b).max(initial=0)
    else:
        allowed = 2 * ulp + 1e-12 * np.abs(b).max(axis=1, keepdims=True, initial=0)
    assert (np.abs(a - b) <= allowed).all(), name


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
    want = integrate(**given, mode=mode, allow_nonfinite=True, backend="torch")
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


def test_the_formula_of_windows_is_found_for_every_band():
    from trajcli.kernels.triton_ops.run_band import windows

    for mode, options, recorded in BANDS:
        for H, dt in itertools.product((5, 6, 8, 40), ("one", "all")):
            if mode == "bspline" and dt == "all":
                continue
            given = problem(mode, {}, recorded, (2, H, 1), "float64", dt)
            start = [np.zeros((2, 1))] * 4
            steps = np.broadcast_to(given["dt"], (1, 1) if dt == "one" else given["dt"].shape)
            made = make_mode(mode, **options)
            program = made.program(
                made.whole(H, recorded), given["actions"], start, start, steps, recorded
            )
            first, phase = program.weights.first, program.weights.phase
            where = windows(first, phase)
            assert where is not None
            row = np.arange(len(first))
            begins = np.clip((row + where.offset) // where.steps - where.shift, 0, where.last)
            np.testing.assert_array_equal(begins, first)
            begin, end = where.rows_of(1, where.last - 1)
            assert np.isin(first[begin:end], np.arange(1, where.last)).all()
            assert np.bincount(first).max() <= where.most_rows()


@on_device
@pytest.mark.parametrize(("mode", "options", "recorded"), [*CASCADES[::3], *BANDS[::3]])
def test_the_same_bits_every_time_and_whatever_the_neighbours(mode, options, recorded):
    given = problem(mode, options, recorded, (700, 100, 7), "float32", "one")
    first, second = on_triton(given, mode), on_triton(given, mode)
    few = {**given, "actions": given["actions"][300:303]}
    if isinstance(given["start"], State):
        few["start"] = State(*(part[300:303] for part in given["start"].parts().values()))
    if "goal" in given:
        few["goal"] = State(*(part[300:303] for part in given["goal"].parts().values()))
    third = on_triton(few, mode)
    for name in PARTS:
        assert torch.equal(getattr(first, name), getattr(second, name))
        assert torch.equal(getattr(first, name)[300:303], getattr(third, name))


@on_device
@pytest.mark.parametrize("mode", ["acceleration", "central", "bspline"])
@pytest.mark.parametrize("shape", [(1000, 32, 7), (1, 100_000, 7)])
def test_kernels_are_captured_in_a_cuda_graph_and_replayed(mode, shape):
    from trajcli.inputs import Inputs
    from trajcli.kernels.program import run_program

    actions = torch.randn(shape, device=DEVICE)
    inputs = Inputs(
        mode=make_mode(mode),
        actions=actions,
        start={"position": torch.zeros(1, shape[2], device=DEVICE)},
        goal={},
        dt=torch.tensor(0.02, device=DEVICE),
    )
    program = inputs.program("cuda")
    rows = inputs.mode.rows(shape[1], False)
    out = [torch.empty(shape[0], rows, shape[2], device=DEVICE) for _ in range(4)]
    run_program(program, triton_ops, out)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run_program(program, triton_ops, out)
    actions.copy_(torch.randn_like(actions))
    for place in out:
        place.fill_(float("nan"))
    graph.replay()
    found = [place.clone() for place in out]
    program = inputs.program("cuda")
    run_program(program, triton_ops, out)
    if mode == "acceleration":
        assert all(torch.equal(a, b) for a, b in zip(found, out, strict=True))
    assert all(torch.isfinite(a).all() for a in found)


@on_device
def test_kernels_run_on_the_current_stream_and_do_not_wait():
    actions = torch.randn(20_000, 100, 7, device=DEVICE)
    start = torch.zeros(7, device=DEVICE)
    dt = torch.full((1, 1), 0.02, dtype=torch.float64, device=DEVICE)
    want = integrate(actions, start, 0.02, backend="triton").position
    zero = Pair(*(torch.zeros(20_000, 7, dtype=torch.float64, device=DEVICE) for _ in range(2)))
    out = [torch.zeros(20_000, 101, 7, device=DEVICE) for _ in range(4)]
    stream = torch.cuda.Stream()
    torch.cuda.synchronize()
    with torch.cuda.stream(stream), torch.cuda.device(0):
        torch.cuda.set_sync_debug_mode("error")
        try:
            triton_ops.cascade(
                [None, None, actions, None],
                [zero] * 4,
                dt,
                order=2,
                scheme="euler",
                start_row=True,
                out=out,
                end=False,
            )
        finally:
            torch.cuda.set_sync_debug_mode("default")
    stream.synchronize()
    assert torch.equal(out[0], want)


@on_device
@pytest.mark.parametrize("mode", ["clique", "acceleration", "jerk", "central", "bspline"])
def test_gradcheck_on_the_device(mode):
    torch.manual_seed(0)
    actions = torch.randn(2, 6, 3, dtype=torch.float64, device=DEVICE, requires_grad=True)
    start = torch.randn(2, 3, dtype=torch.float64, device=DEVICE, requires_grad=True)
    dt = torch.tensor(0.3, dtype=torch.float64, device=DEVICE, requires_grad=True)

    def run(*leaves: torch.Tensor) -> tuple[torch.Tensor, ...]:
        rows = integrate(*leaves, mode, backend="triton")
        return tuple(getattr(rows, name) for name in PARTS)

    assert torch.autograd.gradcheck(run, (actions, start, dt), check_forward_ad=True)
    assert torch.autograd.gradgradcheck(run, (actions, start, dt))


@on_device
def test_bfloat16_actions_are_read_right():
    actions = torch.randn(50, 33, 7, device=DEVICE, dtype=torch.bfloat16)
    start = torch.zeros(7, device=DEVICE)
    for mode in ("acceleration", "central"):
        found = integrate(actions, start, 0.1, mode, backend="triton")
        want = integrate(actions.float(), start, 0.1, mode, backend="torch")
        for name in PARTS:
            assert_close(getattr(found, name), getattr(want, name), name)


@on_device
@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="one CUDA device")
def test_kernels_run_on_the_device_of_their_input():
    actions = torch.randn(5, 9, 7)
    found = [
        integrate(actions.to(f"cuda:{k}"), torch.zeros(7, device=f"cuda:{k}"), 0.1) for k in (0, 1)
    ]
    assert found[1].position.device.index == 1
    assert torch.equal(found[0].position.cpu(), found[1].position.cpu())


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
