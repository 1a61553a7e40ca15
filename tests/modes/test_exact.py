"""Every mode, option, shape of dt and dtype against exact rational arithmetic, on each backend."""

from __future__ import annotations

from itertools import accumulate
from typing import Any

import exact
import numpy as np
import pytest
from exact import assert_promised
from gmpy2 import mpq

import trajcli
from trajcli import State
from trajcli.kernels import native

BACKENDS = ["torch"] if native.absence() else ["torch", "native"]
ORDERS = ("clique", "velocity", "acceleration", "jerk")
SCHEMES = ("euler", "zoh", "foh")
ALIGNMENTS = ("full", "actions", "curobo")
DTYPES = ("float32", "float64")
B, H, D = 2, 6, 2


def random_case(dtype: str, seed: int = 0, shape: tuple[int, int, int] = (B, H, D)) -> Any:
    """Actions, a start state and a goal state."""
    rng = np.random.default_rng(seed)
    batch, _, dofs = shape
    actions = rng.normal(size=shape).astype(dtype)
    start, goal = (
        State(*rng.normal(size=(4, batch, dofs)).astype(dtype) * [[[1]], [[1]], [[3]], [[9]]])
        for _ in range(2)
    )
    return actions, start, goal


def steps_of(form: str, rows: int = H, batch: int = B) -> dict[str, Any]:
    """The same kind of steps in each of the forms a caller may give them."""
    uneven = np.random.default_rng(5).uniform(0.02, 0.09, size=(batch, rows))
    stamps = np.concatenate([np.zeros((batch, 1)), np.cumsum(uneven, 1)], 1) + 1.7e3
    return {
        "number": {"dt": 0.05},
        "[H]": {"dt": uneven[0]},
        "[B,1]": {"dt": uneven[:, :1]},
        "[B,H]": {"dt": uneven},
        "float32 [B,H]": {"dt": uneven.astype(np.float32)},
        "times [H+1]": {"times": stamps[0]},
        "times [B,H+1]": {"times": stamps},
    }[form]


STEPS = ("number", "[H]", "[B,1]", "[B,H]", "float32 [B,H]", "times [H+1]", "times [B,H+1]")
ROWS = [
    *((form, {"alignment": alignment}) for form in STEPS for alignment in ALIGNMENTS),
    *((form, {"convention": "curobo"}) for form in STEPS[:4]),
]
MODES: list[dict[str, Any]] = [
    *({"mode": mode, "scheme": scheme} for mode in ORDERS for scheme in SCHEMES),
    {"mode": "central"},
    {"mode": "central", "ends": "goal"},
    {"mode": "teleport"},
]
PLANS = [
    (mode, form, rows, DTYPES[(i + k // 3) % 2])
    for i, mode in enumerate(MODES)
    for k, (form, rows) in enumerate(ROWS)
    if (i + k) % 3 == 0 and not (mode["mode"] == "teleport" and "convention" in rows)
]
"""Of every mode and scheme a third of the forms of steps and rows, its neighbours the others."""


def assert_exact(actions: Any, start: Any, **options: Any) -> None:
    """The backends keep the promise; start "first": of a recording."""
    want = exact.integrate(actions, start, **options)
    for backend in BACKENDS:
        if isinstance(start, str):
            method = "backward" if options["mode"] == "clique" else options["mode"]
            steps = {name: x for name, x in options.items() if name != "mode"}
            found = trajcli.differentiate(actions, method=method, backend=backend, **steps)
        else:
            found = trajcli.integrate(actions, start, backend=backend, **options)
        assert_promised(found, want, str(actions.dtype))


@pytest.mark.parametrize(("mode", "form", "rows", "dtype"), PLANS)
def test_a_plan_is_exact(mode: Any, form: str, rows: Any, dtype: str) -> None:
    actions, start, goal = random_case(dtype)
    more = {"goal": State(goal.position)} if "ends" in mode else {}
    assert_exact(actions, start, **mode, **rows, **more, **steps_of(form))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("form", "count"), [*((form, H - 1) for form in STEPS), ("[H]", H), ("[B,H]", H)]
)
@pytest.mark.parametrize("mode", ["clique", "central"])
def test_a_recording_is_exact(mode: str, form: str, count: int, dtype: str) -> None:
    """Where there is a step for every row, the first has no use."""
    assert_exact(random_case(dtype)[0], "first", mode=mode, **steps_of(form, rows=count))


@pytest.mark.parametrize("rows", [1, 2, 3, 4])
def test_a_short_recording_is_at_rest_where_it_has_no_difference(rows: int) -> None:
    assert_exact(random_case("float64")[0][:, :rows], "first", mode="clique", dt=0.1)


@pytest.mark.parametrize("convention", ["standard", "curobo"])
@pytest.mark.parametrize("ends", ["plan", "goal"])
@pytest.mark.parametrize(("steps", "form"), [(1, "number"), (3, "[B,1]")])
@pytest.mark.parametrize("degree", [3, 4, 5])
def test_bspline_is_exact(degree: int, steps: int, form: str, ends: str, convention: str) -> None:
    actions, start, goal = random_case(DTYPES[degree % 2])
    options = {"degree": degree, "steps": steps, "ends": ends, "convention": convention}
    more = {"goal": goal} if ends == "goal" else {}
    assert_exact(actions, start, mode="bspline", **options, **more, **steps_of(form))


# -- long horizons ---------------------------------------------------------------------------

LONG: list[tuple[str, int, Any, dict[str, Any]]] = [
    *(
        ("float64", 1000, None, {"mode": mode, "scheme": scheme, **steps_of(form, 1000, 1)})
        for mode in ORDERS
        for scheme, form in zip(SCHEMES, ("number", "[H]", "number"), strict=True)
    ),
    *(
        ("float32", length, None, {"mode": mode, "scheme": scheme, "dt": 0.01})
        for mode in ORDERS
        for scheme, length in (("euler", 10_000), ("zoh", 3000), ("foh", 3000))
    ),
    *(
        ("float64", 1000, None, {"mode": "central", **steps_of(f, 1000, 1)})
        for f in ("number", "[H]")
    ),
    ("float64", 1000, "first", {"mode": "central", **steps_of("[H]", 999, 1)}),
    ("float32", 3000, None, {"mode": "central", "dt": 0.01}),
    *(("float64", 1000, None, {"mode": "bspline", "degree": d, "dt": 0.01}) for d in (3, 4, 5)),
    (
        "float64",
        40,
        None,
        {"mode": "jerk", "dt": 10.0 ** np.random.default_rng(10).uniform(-5, 1, 40)},
    ),
    ("float64", 40, None, {"mode": "central", "dt": 10.0 ** np.linspace(-5, 1, 40)}),
]


@pytest.mark.parametrize(("dtype", "length", "start", "options"), LONG)
def test_thousands_of_steps_and_steps_of_very_different_length_are_exact(
    dtype: str, length: int, start: Any, options: dict[str, Any]
) -> None:
    actions, state, _ = random_case(dtype, 1, (1, length, 1))
    assert_exact(actions, start or state, **options)


def test_three_sums_over_a_hundred_thousand_biased_steps_keep_the_promise() -> None:
    length, dt = 100_000, 0.02
    jerk = np.float64(0.1)
    result = trajcli.integrate(np.full((1, length, 1), jerk), "zero", dt, "jerk")
    n = np.arange(length + 1).astype(object)
    step = exact.number(dt)
    sums = {"acceleration": n, "velocity": n * (n + 1) // 2, "position": n * (n + 1) * (n + 2) // 6}
    bound = 1.2e-16 * length
    for order, (part, count) in enumerate(sums.items(), 1):
        wanted = exact.number(jerk) * step**order * count[-1]
        assert abs(exact.number(getattr(result, part)[0, -1, 0]) - wanted) <= bound * wanted, part


@pytest.mark.parametrize("form", ["dt", "times"])
def test_time_after_ten_thousand_uneven_steps_keeps_twelve_digits(form: str) -> None:
    sample = np.random.default_rng(13).uniform(0.02, 0.09, size=10_000)
    sample = np.cumsum(sample) if form == "times" else sample
    result = trajcli.differentiate(np.zeros((1, 10_000, 1)), method="backward", **{form: sample})
    steps = np.diff(sample) if form == "times" else sample[1:]
    expected = list(accumulate((exact.number(dt) for dt in steps), initial=mpq(0)))
    for value, target in zip(result.time, expected, strict=True):
        assert abs(exact.number(value) - target) <= mpq(1e-12) * expected[-1]


# -- cases made to fail ----------------------------------------------------------------------

SINE = 1.0 + np.sin(40 * np.arange(1001) * 1e-4)
MOVING = State(SINE[:1], np.array([40.0]), np.array([0.0]), np.array([-64000.0]))
SPEED = np.full(2500, 0.7)
STAMPS = 1.7e9 + np.array([0, 0.05, 0.1, 0.2, 0.21, 0.4, 0.45])
HARD: dict[str, tuple[Any, Any, dict[str, Any]]] = {
    **{
        f"jerk that cancels over every four steps, {scheme}": (
            np.tile(np.array([1.1, -1.1, -1.1, 1.1]) * 1e6, 500),
            State(np.array([1e-3])),
            {"mode": "jerk", "scheme": scheme, "dt": 0.1},
        )
        for scheme in SCHEMES
    },
    **{
        f"{mode} that cancels but for a trace": (
            np.tile([3e7, 1.25, -3e7, -1.0], 500), State(np.zeros(1)), {"mode": mode, "dt": 0.003},
        )
        for mode in ("velocity", "acceleration")
    },
    **{
        f"{mode} of smooth positions at ten kilohertz": (
            SINE[1:], MOVING, {"mode": mode, "dt": 1e-4},
        )
        for mode in ("clique", "central")
    },
    **{
        f"{mode} of a smooth recording near ten kilohertz": (
            SINE, "first", {"mode": mode, "dt": np.linspace(0.8e-4, 1.2e-4, 1000)},
        )
        for mode in ("clique", "central")
    },
    # the start's velocity, so that foh also is out and back
    **{
        f"out and back at constant velocity, {scheme}": (
            np.concatenate([SPEED, -SPEED]), State(np.array([1.0]), np.array([-0.7])),
            {"mode": "velocity", "scheme": scheme, "dt": 0.1},
        )
        for scheme in SCHEMES
    },
    "stamps far from zero": (SINE[:6], State(np.zeros(1)), {"mode": "clique", "times": STAMPS}),
}  # fmt: skip


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", HARD)
def test_cases_made_to_fail_keep_the_promise(name: str, dtype: str) -> None:
    actions, start, options = HARD[name]
    assert_exact(actions.astype(dtype)[None, :, None], start, **options)
