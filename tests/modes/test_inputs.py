"""The shapes, number types, layouts and libraries that input may come in."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from exact import QUANTITIES

import trajcli
from trajcli import State
from trajcli.errors import InputError
from trajcli.modes import make_method

MODES = ("clique", "velocity", "acceleration", "jerk", "central", "bspline", "teleport")
CASCADE = MODES[:4]
B, H, D = 4, 6, 3
RNG = np.random.default_rng(0)
ACTIONS = RNG.normal(size=(B, H, D))
START = State(*RNG.normal(size=(4, B, D)))
EVERY_MODE = pytest.mark.parametrize("mode", MODES)


def assert_same(one: trajcli.Trajectory, two: trajcli.Trajectory) -> None:
    """Bit for bit, of the same type."""
    for part in (*QUANTITIES, "time"):
        first, second = getattr(one, part), getattr(two, part)
        assert first.dtype == second.dtype, part
        np.testing.assert_array_equal(np.asarray(first), np.asarray(second), err_msg=part)


# -- shapes ----------------------------------------------------------------------------------


@EVERY_MODE
def test_two_dimensional_actions_are_one_trajectory(mode: str) -> None:
    start = State(*(getattr(START, part)[0] for part in QUANTITIES))
    result = trajcli.integrate(ACTIONS[0], start, 0.1, mode)
    assert result.position.shape[0] == 1
    assert_same(result, trajcli.integrate(ACTIONS[:1], start, 0.1, mode))


@EVERY_MODE
def test_no_trajectories_give_no_trajectories(mode: str) -> None:
    start = State(np.zeros((0, D)))
    for dt in (0.1, np.full((0, 1), 0.1)):
        result = trajcli.integrate(ACTIONS[:0], start, dt, mode)
        rows = trajcli.integrate(ACTIONS[:1], "zero", 0.1, mode).position.shape[1]
        for part in QUANTITIES:
            assert getattr(result, part).shape == (0, rows, D)


@EVERY_MODE
def test_a_state_for_all_is_the_same_as_one_for_each(mode: str) -> None:
    for shared in (lambda x: x[0], lambda x: x[:1]):
        one = State(*(shared(getattr(START, part)) for part in QUANTITIES))
        repeated = State(*(np.tile(getattr(START, part)[:1], (B, 1)) for part in QUANTITIES))
        assert_same(
            trajcli.integrate(ACTIONS, one, 0.1, mode),
            trajcli.integrate(ACTIONS, repeated, 0.1, mode),
        )


@EVERY_MODE
def test_parts_of_a_state_that_are_not_given_are_zero(mode: str) -> None:
    zero = np.zeros((B, D))
    assert_same(
        trajcli.integrate(ACTIONS, State(START.position), 0.1, mode),
        trajcli.integrate(ACTIONS, State(START.position, zero, zero, zero), 0.1, mode),
    )
    assert_same(
        trajcli.integrate(ACTIONS, "zero", 0.1, mode),
        trajcli.integrate(ACTIONS, State(zero[0]), 0.1, mode),
    )
    assert_same(
        trajcli.integrate(ACTIONS, START.position, 0.1, mode),
        trajcli.integrate(ACTIONS, State(START.position), 0.1, mode),
    )


@EVERY_MODE
@pytest.mark.parametrize("kind", [np.int64, np.int32, np.uint8])
def test_start_index_picks_the_state_of_each_trajectory(mode: str, kind: type) -> None:
    index = np.array([2, 0, 2, 1], dtype=kind)
    indexed = State(*(getattr(START, part)[:3] for part in QUANTITIES))
    repeated = State(*(getattr(START, part)[index] for part in QUANTITIES))
    assert_same(
        trajcli.integrate(ACTIONS, indexed, 0.1, mode, start_index=index),
        trajcli.integrate(ACTIONS, repeated, 0.1, mode),
    )


@pytest.mark.parametrize("mode", ["central", "bspline"])
def test_goal_index_picks_the_goal_of_each_trajectory(mode: str) -> None:
    index = np.array([1, 1, 0, 1])
    goals = RNG.normal(size=(2, D))
    options = {"mode": mode, "ends": "goal"}
    indexed = trajcli.integrate(ACTIONS, START, 0.1, goal=goals, goal_index=index, **options)
    assert_same(indexed, trajcli.integrate(ACTIONS, START, 0.1, goal=goals[index], **options))
    np.testing.assert_allclose(indexed.position[:, -1], goals[index], rtol=1e-14)


@EVERY_MODE
def test_dt_for_all_is_the_same_as_one_for_each(mode: str) -> None:
    expected = trajcli.integrate(ACTIONS, START, 0.1, mode)
    for dt in [0.1, np.float64(0.1), np.array(0.1), np.array([0.1]), np.array([[0.1]])]:
        assert_same(trajcli.integrate(ACTIONS, START, dt, mode), expected)
    repeated = trajcli.integrate(ACTIONS, START, np.full((B, 1), 0.1), mode)
    for part in QUANTITIES:
        assert (getattr(repeated, part) == getattr(expected, part)).all()
    assert repeated.time.shape == (B, expected.position.shape[1])
    assert (repeated.time == expected.time).all()


@pytest.mark.parametrize("mode", CASCADE)
def test_time_has_one_row_where_trajectories_share_steps(mode: str) -> None:
    shared = RNG.uniform(0.1, 0.2, size=H)
    per_trajectory = RNG.uniform(0.1, 0.2, size=(B, H))
    one = trajcli.integrate(ACTIONS, START, shared, mode)
    assert one.time.shape == (H + 1,)
    np.testing.assert_allclose(one.time[1:], np.cumsum(shared), rtol=1e-14)
    result = trajcli.integrate(ACTIONS, START, per_trajectory, mode)
    assert result.time.shape == (B, H + 1)
    np.testing.assert_allclose(result.time[:, 1:], np.cumsum(per_trajectory, 1), rtol=1e-14)


# -- number types ----------------------------------------------------------------------------


@EVERY_MODE
@pytest.mark.parametrize(
    ("kind", "wide"), [("int8", "f8"), ("int64", "f8"), ("uint16", "f8"), ("float16", "f4")]
)
def test_whole_numbers_are_taken_as_float64_and_halves_as_float32(
    mode: str, kind: str, wide: str
) -> None:
    actions = RNG.integers(0, 100, size=(B, H, D)).astype(kind)
    result = trajcli.integrate(actions, START, 0.1, mode)
    assert result.position.dtype == wide
    assert_same(result, trajcli.integrate(actions.astype(wide), START, 0.1, mode))


@EVERY_MODE
@pytest.mark.parametrize(("source", "dtype"), [("float32", "float64"), ("float64", "float32")])
def test_dtype_says_what_comes_out_whatever_went_in(mode: str, source: str, dtype: str) -> None:
    actions = ACTIONS.astype(source)
    result = trajcli.integrate(actions, START, 0.1, mode, dtype=dtype)
    full = trajcli.integrate(actions.astype(np.float64), START, 0.1, mode)
    for part in QUANTITIES:
        values = getattr(result, part)
        assert values.dtype == dtype
        assert (values == getattr(full, part).astype(dtype)).all()
    assert result.time.dtype == np.float64


@EVERY_MODE
def test_start_states_keep_their_digits_beside_actions_of_float32(mode: str) -> None:
    result = trajcli.integrate(ACTIONS.astype(np.float32), START, 0.1, mode, dtype="float64")
    for part in QUANTITIES:
        assert (getattr(result, part)[:, 0] == getattr(START, part)).all()


def test_whole_numbers_may_be_time_stamps() -> None:
    stamps = np.array([0, 1, 3, 4, 6, 7, 9])
    expected = trajcli.integrate(ACTIONS, START, np.diff(stamps).astype(float))
    for kind in (np.int64, np.int32, np.uint32, np.uint64):
        assert_same(trajcli.integrate(ACTIONS, START, times=stamps.astype(kind)), expected)


# -- layouts ---------------------------------------------------------------------------------

LAYOUTS = {
    "big-endian": lambda x: x.astype(x.dtype.newbyteorder(">")),
    "Fortran order": np.asfortranarray,
    "read-only": lambda x: np.frombuffer(x.tobytes(), x.dtype).reshape(x.shape),
    "an axis moved": lambda x: np.moveaxis(np.moveaxis(x, 0, -1).copy(), -1, 0),
    "a list": lambda x: x.tolist(),
}


@EVERY_MODE
@pytest.mark.parametrize("layout", LAYOUTS)
def test_how_arrays_lie_in_memory_changes_nothing(mode: str, layout: str) -> None:
    laid = LAYOUTS[layout]
    before = ACTIONS.copy()
    start = State(*(laid(getattr(START, part)) for part in QUANTITIES))
    result = trajcli.integrate(laid(ACTIONS), start, 0.1, mode)
    assert_same(result, trajcli.integrate(ACTIONS, START, 0.1, mode))
    assert (before == ACTIONS).all()


@EVERY_MODE
def test_outputs_are_arrays_of_their_own(mode: str) -> None:
    actions = ACTIONS.copy()
    result = trajcli.integrate(actions, START, 0.1, mode)
    for part in QUANTITIES:
        values = getattr(result, part)
        assert values.flags.writeable
        assert not np.shares_memory(values, actions)
        assert not np.shares_memory(values, getattr(START, part))


# -- torch -----------------------------------------------------------------------------------


@EVERY_MODE
@pytest.mark.parametrize("kind", ["float32", "float64"])
def test_tensors_in_give_tensors_out_with_the_same_bits(mode: str, kind: str) -> None:
    actions = ACTIONS.astype(kind)
    expected = trajcli.integrate(actions, START, 0.1, mode)
    start = State(*(torch.as_tensor(getattr(START, part)) for part in QUANTITIES))
    result = trajcli.integrate(torch.as_tensor(actions), start, 0.1, mode)
    for part in (*QUANTITIES, "time"):
        values = getattr(result, part)
        assert isinstance(values, torch.Tensor)
        assert values.device.type == "cpu"
        assert str(values.dtype) == f"torch.{getattr(expected, part).dtype}"
        assert (values.numpy() == getattr(expected, part)).all()


@pytest.mark.parametrize("mode", [*CASCADE, "central"])
def test_arrays_and_tensors_may_be_mixed(mode: str) -> None:
    steps = RNG.uniform(0.1, 0.2, size=(B, H))
    index = np.array([3, 2, 1, 0])
    tensors = State(*(torch.as_tensor(getattr(START, part)) for part in QUANTITIES))
    expected = trajcli.integrate(ACTIONS, START, steps, mode, start_index=index)
    for actions, start, dt, which in (
        (ACTIONS, tensors, torch.as_tensor(steps), torch.as_tensor(index)),
        (torch.as_tensor(ACTIONS), START, steps, index),
        (torch.as_tensor(ACTIONS), tensors, torch.as_tensor(steps), torch.as_tensor(index).int()),
    ):
        result = trajcli.integrate(actions, start, dt, mode, start_index=which)
        if isinstance(actions, torch.Tensor):
            assert isinstance(result.position, torch.Tensor)
        for part in QUANTITIES:
            assert (np.asarray(getattr(result, part)) == getattr(expected, part)).all()


@pytest.mark.parametrize("dt", [np.zeros(0), np.zeros((1, 0)), 0.1], ids=["[0]", "[1, 0]", "one"])
@pytest.mark.parametrize("make", [np.asarray, torch.tensor])
def test_a_recording_of_one_row_needs_no_step(dt: Any, make: Any) -> None:
    actions = make(np.array([[[3.0]]], dtype="f4"))
    sample = make(dt) if isinstance(dt, np.ndarray) else dt
    result = trajcli.differentiate(actions, dt=sample, method="backward")
    assert [float(x[0, 0, 0]) for x in (result.position, result.velocity)] == [3.0, 0.0]


# -- names -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("alias", "mode"), [("position", "clique"), ("acc", "acceleration")])
def test_a_modes_alias_is_the_mode(alias: str, mode: str) -> None:
    result = trajcli.integrate(ACTIONS, START, 0.1, alias)
    assert result.mode == mode
    assert_same(result, trajcli.integrate(ACTIONS, START, 0.1, mode))


@pytest.mark.parametrize(
    ("mode", "defaults"),
    [
        ("central", {"ends": "plan", "convention": "standard"}),
        ("bspline", {"ends": "plan", "degree": 3, "steps": 1, "convention": "standard"}),
    ],
)
def test_options_that_are_not_given_take_the_modes_default(
    mode: str, defaults: dict[str, Any]
) -> None:
    result = trajcli.integrate(ACTIONS, START, 0.1, mode)
    assert dict(result.options) | defaults == dict(result.options)
    assert_same(result, trajcli.integrate(ACTIONS, START, 0.1, mode, **defaults))


@pytest.mark.parametrize("dtype", [np.float32, np.dtype("float32"), torch.float32, "float32"])
def test_a_dtype_may_be_one_of_numpy_or_torch(dtype: object) -> None:
    actions = np.ones((2, 6, 3))
    assert trajcli.integrate(actions, "zero", 0.1, dtype=dtype).position.dtype == np.float32
    assert trajcli.differentiate(actions, dt=0.1, dtype=dtype).velocity.dtype == np.float32


def test_one_output_may_be_named_by_a_string() -> None:
    made = trajcli.integrate(np.ones((2, 6, 3)), "zero", 0.1, write="velocity")
    assert list(made.outputs()) == ["velocity"]
    with pytest.raises(trajcli.UsageError, match=r"found: +\['speed'\]"):
        trajcli.integrate(np.ones((2, 6, 3)), "zero", 0.1, write="speed")


def test_errors_name_the_argument() -> None:
    actions = np.ones((2, 6, 3))
    with pytest.raises(trajcli.InputError, match=r"^dt: not real numbers"):
        trajcli.integrate(actions, "zero", "0.1")
    with pytest.raises(trajcli.UsageError, match=r"State\(\*\*start\)"):
        trajcli.integrate(actions, {"position": actions[:, 0]}, 0.1)
    with pytest.raises(trajcli.InputError, match=r'start="zero" or a State'):
        trajcli.integrate(actions, dt=0.1)


@pytest.mark.parametrize(
    ("method", "options", "rows"),
    [
        ("central", {}, 5),
        ("backward", {}, 1),
        ("smooth", {}, 4),
        ("smooth", {"order": 4}, 5),
        ("savgol", {"window": 31}, 31),
        ("savgol", {"window": "0.3s", "degree": 5}, 6),
    ],
)
def test_a_method_takes_the_fewest_rows_that_it_names(
    method: str, options: dict[str, Any], rows: int
) -> None:
    assert make_method(method, **options).least_rows == rows
    positions = np.random.default_rng(0).normal(size=(1, rows, 2))
    assert (
        trajcli.differentiate(positions, dt=0.1, method=method, **options).position.shape[1] == rows
    )
    if rows > 1:
        with pytest.raises(InputError):
            trajcli.differentiate(positions[:, 1:], dt=0.1, method=method, **options)
