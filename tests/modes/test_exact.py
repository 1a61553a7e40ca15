"""Every mode, option, shape of dt and dtype against exact rational arithmetic."""

from __future__ import annotations

from itertools import accumulate
from typing import Any

import exact
import numpy as np
import pytest
from exact import PARTS, assert_promised
from gmpy2 import mpq

import trajcli
from trajcli import State

ORDERS = ("clique", "velocity", "acceleration", "jerk")
SCHEMES = ("euler", "zoh", "foh")
FRAMES = ("full", "actions", "curobo")
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
    rng = np.random.default_rng(5)
    uneven = rng.uniform(0.02, 0.09, size=(batch, rows))
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
UNIFORM = ("number", "[B,1]")
CUROBO = {"convention": "curobo"}


def every_form(test: Any) -> Any:
    """Every dtype, form of steps and choice of rows."""
    pairs = [(form, {"frames": frames}) for form in STEPS for frames in FRAMES]
    pairs += [(form, CUROBO) for form in STEPS[:4]]
    return pytest.mark.parametrize("dtype", DTYPES)(
        pytest.mark.parametrize(("form", "rows"), pairs)(test)
    )


@every_form
@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("mode", ORDERS)
def test_cascade_is_exact(
    mode: str, scheme: str, form: str, rows: dict[str, str], dtype: str
) -> None:
    actions, start, _ = random_case(dtype)
    options = {"mode": mode, "scheme": scheme, **rows, **steps_of(form)}
    result = trajcli.integrate(actions, start, **options)
    assert_promised(result, exact.integrate(actions, start, **options), dtype)


@every_form
@pytest.mark.parametrize("ends", ["plan", "goal"])
def test_central_is_exact(ends: str, form: str, rows: dict[str, str], dtype: str) -> None:
    actions, start, goal = random_case(dtype)
    options = {"mode": "central", "ends": ends, **rows, **steps_of(form)}
    if ends == "goal":
        options["goal"] = State(goal.position)
    result = trajcli.integrate(actions, start, **options)
    assert_promised(result, exact.integrate(actions, start, **options), dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("form", "count"), [*((form, H - 1) for form in STEPS), ("[H]", H), ("[B,H]", H)]
)
@pytest.mark.parametrize("method", ["backward", "central"])
def test_recording_is_exact(method: str, form: str, count: int, dtype: str) -> None:
    """Where there is a step for every row, the first has no use."""
    actions, _, _ = random_case(dtype)
    steps = steps_of(form, rows=count)
    result = trajcli.differentiate(actions, method=method, **steps)
    assert result.position.shape == (B, H, D)
    assert_promised(result, exact.differentiate(actions, method, **steps), dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("convention", ["standard", "curobo"])
@pytest.mark.parametrize("ends", ["plan", "goal"])
@pytest.mark.parametrize("form", UNIFORM)
@pytest.mark.parametrize("steps", [1, 3])
@pytest.mark.parametrize("degree", [3, 4, 5])
def test_bspline_is_exact(
    degree: int, steps: int, form: str, ends: str, convention: str, dtype: str
) -> None:
    actions, start, goal = random_case(dtype)
    options = {"mode": "bspline", "degree": degree, "steps": steps, "ends": ends}
    options |= {"convention": convention, **steps_of(form)}
    if ends == "goal":
        options["goal"] = goal
    result = trajcli.integrate(actions, start, **options)
    assert result.position.shape == (B, (H + degree + 1) * steps + 1, D)
    assert_promised(result, exact.integrate(actions, start, **options), dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("frames", FRAMES)
@pytest.mark.parametrize("form", STEPS)
def test_teleport_is_exact(form: str, frames: str, dtype: str) -> None:
    actions, start, _ = random_case(dtype)
    options = {"mode": "teleport", "frames": frames, **steps_of(form)}
    result = trajcli.integrate(actions, start, **options)
    assert_promised(result, exact.integrate(actions, start, **options), dtype)


# -- long horizons ---------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["number", "[H]"])
@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("mode", ORDERS)
def test_cascade_is_exact_in_float64_over_a_thousand_steps(
    mode: str, scheme: str, form: str
) -> None:
    actions, start, _ = random_case("float64", 1, (1, 1000, 1))
    options = {"mode": mode, "scheme": scheme, **steps_of(form, 1000, 1)}
    result = trajcli.integrate(actions, start, **options)
    assert_promised(result, exact.integrate(actions, start, **options), "float64")


@pytest.mark.parametrize("form", ["number", "[H]"])
def test_a_central_recording_is_exact_in_float64_over_a_thousand_steps(form: str) -> None:
    actions, _, _ = random_case("float64", 2, (1, 1000, 1))
    steps = steps_of(form, 999, 1)
    result = trajcli.differentiate(actions, method="central", **steps)
    assert_promised(result, exact.differentiate(actions, "central", **steps), "float64")


@pytest.mark.parametrize(
    "options",
    [
        *({"mode": "central", **steps_of(form, 1000, 1)} for form in ("number", "[H]")),
        *({"mode": "bspline", "degree": degree, "dt": 0.01} for degree in (3, 4, 5)),
    ],
    ids=["central", "central [H]", "bspline 3", "bspline 4", "bspline 5"],
)
def test_windows_are_exact_in_float64_over_a_thousand_steps(options: dict[str, Any]) -> None:
    actions, start, _ = random_case("float64", 3, (1, 1000, 1))
    result = trajcli.integrate(actions, start, **options)
    assert_promised(result, exact.integrate(actions, start, **options), "float64")


@pytest.mark.parametrize(
    ("mode", "options", "length"),
    [
        *(
            (mode, {"scheme": scheme}, length)
            for mode in ORDERS
            for scheme, length in (("euler", 10_000), ("zoh", 3000), ("foh", 3000))
        ),
        ("central", {}, 3000),
    ],
)
def test_float32_is_right_over_thousands_of_steps(
    mode: str, options: dict[str, Any], length: int
) -> None:
    actions, start, _ = random_case("float32", 4, (1, length, 1))
    options = {"mode": mode, "dt": 0.01, **options}
    result = trajcli.integrate(actions, start, **options)
    assert_promised(result, exact.integrate(actions, start, **options), "float32")


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
        value = exact.number(getattr(result, part)[0, -1, 0])
        assert abs(value - wanted) <= bound * wanted, part
    in_float32 = np.cumsum(np.full(length, jerk, np.float32), dtype=np.float32)[-1] * dt
    wanted = exact.number(jerk) * step * length
    assert abs(exact.number(in_float32) - wanted) > 1e6 * bound * wanted  # the bound can fail


@pytest.mark.parametrize("form", ["dt", "times"])
def test_time_after_ten_thousand_uneven_steps_keeps_twelve_digits(form: str) -> None:
    sample = np.random.default_rng(13).uniform(0.02, 0.09, size=10_000)
    sample = np.cumsum(sample) if form == "times" else sample
    recording = np.zeros((1, 10_000, 1))
    result = trajcli.differentiate(recording, method="backward", **{form: sample})
    steps = np.diff(sample) if form == "times" else sample[1:]
    expected = list(accumulate((exact.number(dt) for dt in steps), initial=mpq(0)))
    for value, target in zip(result.time, expected, strict=True):
        assert abs(exact.number(value) - target) <= mpq(1e-12) * expected[-1]


# -- cases made to fail ----------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("scheme", SCHEMES)
def test_jerk_that_cancels_over_every_four_steps_keeps_the_promise(scheme: str, dtype: str) -> None:
    pattern = np.array([1.1, -1.1, -1.1, 1.1]) * 1e6
    actions = np.tile(pattern, 500).astype(dtype)[None, :, None]
    start = State(np.array([1e-3]).astype(dtype))
    options = {"mode": "jerk", "scheme": scheme, "dt": 0.1}
    result = trajcli.integrate(actions, start, **options)
    assert_promised(result, exact.integrate(actions, start, **options), dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("mode", ["velocity", "acceleration"])
def test_actions_that_cancel_but_for_a_trace_keep_the_promise(mode: str, dtype: str) -> None:
    large = np.array([3e7, 1.25, -3e7, -1.0])
    actions = np.tile(large, 500).astype(dtype)[None, :, None]
    options = {"mode": mode, "dt": 0.003}
    result = trajcli.integrate(actions, "zero", **options)
    zero = State(np.zeros(1))
    assert_promised(result, exact.integrate(actions, zero, **options), dtype)


@pytest.mark.parametrize("mode", ["clique", "central"])
def test_smooth_positions_at_ten_kilohertz_keep_the_promise(mode: str) -> None:
    positions = 1.0 + np.sin(40 * np.arange(1001) * 1e-4)[None, :, None]
    start = State(positions[0, 0], np.array([40.0]), np.array([0.0]), np.array([-64000.0]))
    options = {"mode": mode, "dt": 1e-4}
    result = trajcli.integrate(positions[:, 1:], start, **options)
    assert_promised(result, exact.integrate(positions[:, 1:], start, **options), "float64")


@pytest.mark.parametrize("method", ["backward", "central"])
@pytest.mark.parametrize("even", [True, False])
def test_a_smooth_recording_near_ten_kilohertz_keeps_the_promise(method: str, even: bool) -> None:
    uneven = np.random.default_rng(7).uniform(0.8e-4, 1.2e-4, size=400)
    dt = np.full(1000, 1e-4) if even else uneven
    positions = 1.0 + np.sin(40 * np.concatenate([[0.0], np.cumsum(dt)]))[None, :, None]
    result = trajcli.differentiate(positions, method=method, dt=1e-4 if even else dt)
    assert_promised(result, exact.differentiate(positions, method, dt=dt), "float64")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("scheme", SCHEMES)
def test_out_and_back_at_constant_velocity_keeps_the_promise(scheme: str, dtype: str) -> None:
    speed = np.full(2500, 0.7)
    out_and_back = np.concatenate([speed, -speed]).astype(dtype)[None, :, None]
    start = State(np.array([1.0]), np.array([-0.7]))  # so that foh also is out and back
    options = {"mode": "velocity", "scheme": scheme, "dt": 0.1}
    result = trajcli.integrate(out_and_back, start, **options)
    assert_promised(result, exact.integrate(out_and_back, start, **options), dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("mode", "options"),
    [
        ("clique", {}),
        ("teleport", {}),
        ("central", {}),
        ("central", {"ends": "goal"}),
        ("central", {"convention": "curobo"}),
        ("bspline", {"degree": 3, "steps": 7}),
        ("bspline", {"degree": 4, "steps": 7}),
        ("bspline", {"degree": 5, "steps": 7}),
        ("bspline", {"degree": 5, "steps": 3, "ends": "goal"}),
    ],
)
def test_a_joint_that_stands_still_has_derivatives_of_exactly_zero(
    mode: str, options: dict[str, Any], dtype: str
) -> None:
    here = np.array([0.1, -1e5 / 3]).astype(dtype)
    actions = np.broadcast_to(here, (3, 50, 2)).astype(dtype)
    if options.get("ends") == "goal":
        options = {**options, "goal": here}
    result = trajcli.integrate(actions, here, 0.003, mode, **options)
    assert (result.position == here).all()
    for part in PARTS[1:]:
        assert (getattr(result, part) == 0).all(), part


@pytest.mark.parametrize("mode", ["clique", "central"])
def test_a_joint_that_stands_still_at_uneven_steps_has_derivatives_of_exactly_zero(
    mode: str,
) -> None:
    here = np.array([0.1, -1e5 / 3])
    actions = np.broadcast_to(here, (1, 50, 2))
    steps = np.random.default_rng(8).uniform(0.001, 0.1, size=50)
    method = "backward" if mode == "clique" else mode
    for result in (
        trajcli.integrate(actions, here, steps, mode),
        trajcli.differentiate(actions, dt=steps[1:], method=method),
    ):
        assert (result.position == here).all()
        for part in PARTS[1:]:
            assert (getattr(result, part) == 0).all(), part


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("mode", ["velocity", "acceleration", "jerk"])
def test_no_action_from_rest_stays_exactly_at_the_start(mode: str, scheme: str) -> None:
    start = np.array([[0.1, 1 / 3]])
    result = trajcli.integrate(np.zeros((1, 1000, 2)), start, 0.01, mode, scheme=scheme)
    assert (result.position == start).all()
    for part in PARTS[1:]:
        assert (getattr(result, part) == 0).all(), part


@pytest.mark.parametrize("mode", ["clique", "velocity", "acceleration", "jerk", "central"])
def test_steps_of_very_different_length_are_taken_exactly(mode: str) -> None:
    actions, start, _ = random_case("float64", 9, (1, 40, 1))
    steps = 10.0 ** np.random.default_rng(10).uniform(-5, 1, size=40)
    options = {"mode": mode, "dt": steps}
    result = trajcli.integrate(actions, start, **options)
    assert_promised(result, exact.integrate(actions, start, **options), "float64")


def test_time_stamps_far_from_zero_give_the_steps_between_them() -> None:
    actions, start, _ = random_case("float64")
    stamps = 1.7e9 + np.array([0, 0.05, 0.1, 0.2, 0.21, 0.4, 0.45])
    options = {"mode": "clique", "times": stamps}
    result = trajcli.integrate(actions, start, **options)
    assert_promised(result, exact.integrate(actions, start, **options), "float64")
    assert (result.time == stamps - stamps[0]).all()
