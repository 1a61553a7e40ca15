"""The C++ kernels give what torch_ops gives, on any number of threads and any instruction set."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from kernel_cases import problem

import trajcli
from trajcli import State, integrate
from trajcli.kernels import native
from trajcli.kernels.choose import absent_backends, choose
from trajcli.kernels.pairs import Pair
from trajcli.modes import PARTS

pytestmark = pytest.mark.skipif(bool(native.absence()), reason=native.absence())

MODES: list[tuple[str, dict[str, Any], bool]] = [
    *(
        (mode, {"scheme": scheme}, False)
        for mode in ("clique", "velocity", "acceleration", "jerk")
        for scheme in ("euler", "zoh", "foh")
        if mode != "clique" or scheme == "euler"
    ),
    *((mode, {"frames": f}, False) for mode in ("jerk", "central") for f in ("actions", "curobo")),
    ("acceleration", {"convention": "curobo"}, False),
    ("clique", {}, True),
    ("central", {}, False),
    ("central", {}, True),
    ("central", {"ends": "goal"}, False),
    ("central", {"convention": "curobo"}, False),
    ("teleport", {}, False),
    *(
        ("bspline", {"degree": degree, "steps": steps, "ends": ends}, False)
        for degree, steps in ((3, 1), (4, 3), (5, 2))
        for ends in ("plan", "goal")
    ),
]
SHAPES = [(3, 9, 7), (11, 6, 1), (5, 700, 2), (1, 40, 3), (2, 13, 14), (9, 7, 5), (2, 5, 33)]


def assert_close(found: Any, want: Any, dtype: str) -> None:
    """Within 2 units in the last place; float64 within 1e-15 of the largest value."""
    for name in PARTS:
        a, b = (np.asarray(getattr(x, name), dtype=np.float64) for x in (found, want))
        assert a.shape == b.shape
        ulp = np.spacing(np.abs(getattr(want, name))).astype(np.float64)
        largest = np.abs(b).max(initial=0)
        allowed = 2 * ulp + (1e-15 if dtype == "float64" else 1e-20) * largest
        assert (np.abs(a - b) <= allowed).all(), name


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("mode", "options", "recorded"), MODES)
def test_the_backends_agree(mode, options, recorded, dtype, shape):
    for dt in ("one", "each step", "each", "all"):
        if mode == "bspline" and "step" in dt + ("step" if dt == "all" else ""):
            continue
        given = problem(mode, options, recorded, shape, dtype, dt)
        found = integrate(**given, mode=mode, backend="native")
        want = integrate(**given, mode=mode, backend="torch")
        assert_close(found, want, dtype)


def outputs(given: dict[str, Any], mode: str) -> list[bytes]:
    found = integrate(**given, mode=mode, backend="native")
    return [getattr(found, name).tobytes() for name in PARTS]


@pytest.mark.parametrize("shape", [(13, 2500, 7), (40, 900, 2), (150, 500, 1)], ids=str)
@pytest.mark.parametrize(("mode", "options", "recorded"), MODES[::3])
def test_threads_and_neighbours_change_no_bit(mode, options, recorded, shape, monkeypatch):
    given = problem(mode, options, recorded, shape, "float32", "one")
    found = []
    for threads in ("1", "2", "7"):
        monkeypatch.setenv("TRAJCLI_THREADS", threads)
        found.append(outputs(given, mode))
    assert found[0] == found[1] == found[2]
    whole = integrate(**given, mode=mode)
    for b in (0, shape[0] // 2, shape[0] - 1):
        start, goal = given["start"], given.get("goal")
        alone = dict(given, actions=given["actions"][b])
        if not recorded:
            alone["start"] = State(*(part[b] for part in start.parts().values()))
        if goal is not None:
            alone["goal"] = State(*(part[b] for part in goal.parts().values()))
        single = integrate(**alone, mode=mode)
        for name in PARTS:
            np.testing.assert_array_equal(getattr(single, name)[0], getattr(whole, name)[b])


@pytest.mark.parametrize("shape", SHAPES[:4], ids=str)
@pytest.mark.parametrize(("mode", "options", "recorded"), MODES)
def test_instruction_sets_agree(mode, options, recorded, shape, monkeypatch):
    given = problem(mode, options, recorded, shape, "float32", "each")
    best = integrate(**given, mode=mode, backend="native")
    for level in ("1", "3"):
        monkeypatch.setenv("TRAJCLI_INSTRUCTIONS", level)
        assert_close(integrate(**given, mode=mode, backend="native"), best, "float32")


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("D", [1, 2, 7])
@pytest.mark.parametrize(("mode", "options", "recorded"), MODES)
def test_what_is_not_finite_stays_in_its_trajectory_and_dof(mode, options, recorded, D, value):
    given = problem(mode, options, recorded, (9, 12, D), "float32", "one")
    clean = integrate(**given, mode=mode)
    given["actions"] = given["actions"].copy()
    given["actions"][4, 6, D - 1] = value
    found = integrate(**given, mode=mode, allow_nonfinite=True)
    want = integrate(**given, mode=mode, allow_nonfinite=True, backend="torch")
    for name in PARTS:
        a, b, c = (getattr(x, name) for x in (found, clean, want))
        touched = np.zeros(a.shape, dtype=bool)
        touched[4, :, D - 1] = True
        np.testing.assert_array_equal(a[~touched], b[~touched])
        if mode != "bspline":
            np.testing.assert_array_equal(np.isfinite(a), np.isfinite(c))
            continue
        # differences of control points also bring it to rows in whose window its weight is zero
        reached = np.flatnonzero(
            np.any([~np.isfinite(getattr(want, part)[4, :, D - 1]) for part in PARTS], 0)
        )
        rows = np.flatnonzero(~np.isfinite(a[4, :, D - 1]))
        assert set(np.flatnonzero(~np.isfinite(c[4, :, D - 1]))) <= set(rows)
        assert reached.min() <= rows.min() <= rows.max() <= reached.max()


def test_views_other_types_and_mixed_outputs_are_read_right():
    random = np.random.default_rng(1)
    wide = random.standard_normal((4, 10, 6))
    start = np.zeros(3)
    for actions in (
        wide[:, ::2, ::2],
        np.asfortranarray(wide[..., :3]),
        wide[..., :3].astype(">f8"),
        wide[..., :3].astype("f2"),
        (100 * wide[..., :3]).astype("i4"),
    ):
        plain = np.ascontiguousarray(actions, dtype=np.float64)
        for mode, dtype in itertools.product(("jerk", "central", "clique"), ("float32", "float64")):
            found = integrate(actions, start, 0.1, mode, dtype=dtype)
            want = integrate(plain, start, 0.1, mode, dtype=dtype)
            for name in PARTS:
                np.testing.assert_array_equal(getattr(found, name), getattr(want, name))


def beside_their_places(shape: tuple[int, ...], kind: str) -> Any:
    """Zeros that begin one byte into a buffer, as arrays within other people's files may."""
    size = int(np.prod(shape)) * np.dtype(kind).itemsize
    found = np.frombuffer(bytearray(size + 1), np.uint8, offset=1).view(kind).reshape(shape)
    assert not found.flags.aligned
    return found


@pytest.mark.parametrize("kind", ["f4", "f8"])
@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_arrays_that_are_not_aligned_are_read_and_written_right(library, kind):
    """Also more than 4 MB of them, which are written past the cache in whole lines."""
    torch = pytest.importorskip("torch")
    kept = (lambda a: a) if library == "numpy" else torch.from_numpy
    shape = batch, _, dofs = 8, 9000, 4
    random = np.random.default_rng(2)
    actions = beside_their_places(shape, kind)
    actions[...] = random.standard_normal(shape)
    aligned = actions.copy()
    state = [Pair(kept(np.zeros((batch, dofs))), kept(np.zeros((batch, dofs)))) for _ in range(4)]
    step = kept(np.full((1, 1), 0.1))
    wanted = integrate(aligned, np.zeros(dofs), 0.1, "jerk", frames="actions", backend="native")
    out = [beside_their_places(shape, kind) for _ in range(4)]
    assert sum(part.nbytes for part in out) > 4 << 20
    native.cascade(
        [None, None, None, kept(actions)],
        state,
        step,
        order=3,
        scheme="euler",
        out=[kept(part) for part in out],
    )
    for part, name in zip(out, PARTS, strict=True):
        np.testing.assert_array_equal(part, getattr(wanted, name))
    plan = integrate(aligned, np.zeros(dofs), 0.1, "central", backend="native")
    found = integrate(kept(actions), kept(np.zeros(dofs)), 0.1, "central", backend="native")
    for name in PARTS:
        np.testing.assert_array_equal(np.asarray(getattr(found, name)), getattr(plan, name))


def test_without_compiled_kernels_torch_takes_over_and_says_why(monkeypatch):
    monkeypatch.setattr(native, "_library", lambda: (None, "not built: no C++ compiler"))
    assert choose().backend == "torch"
    assert absent_backends()["native"] == "not built: no C++ compiler"
    with pytest.raises(trajcli.UsageError, match="no C\\+\\+ compiler"):
        choose(backend="native")
    found = integrate(np.ones((2, 5, 3)), np.zeros(3), 0.1)
    assert found.position.shape == (2, 6, 3)


@pytest.mark.parametrize("order", range(4))
@pytest.mark.parametrize("kind", ["f4", "f8"])
def test_without_actions_the_state_is_the_row_and_the_adjoint_that_of_the_end(order, kind):
    state = [Pair(np.full((2, 3), m + 5.0), np.zeros((2, 3))) for m in range(4)]
    sources: list[Any] = [None] * 4
    sources[order] = np.ones((2, 0, 3), kind)
    out = [np.full((2, 1, 3), 777.0, kind) for _ in range(4)]
    dt = np.full((1, 1), 0.5)
    options: dict[str, Any] = {"order": order, "scheme": "euler"}
    ends = native.cascade(sources, state, dt, start_row=True, out=out, **options)
    for m in range(4):
        assert (out[m] == m + 5.0).all()
        assert (ends[m].hi == m + 5.0).all()
    asked = [np.full((2, 3), m + 1.0) for m in range(4)]
    upstream = [np.zeros((2, 0, 3), kind) for _ in range(4)]
    _, given = native.cascade_adjoint(upstream, asked, dt, (2, 0, 3), **options)
    for m in range(4):
        np.testing.assert_array_equal(given[m], asked[m])
