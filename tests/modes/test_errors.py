"""What trajcli refuses, and that it says what, where, what was expected and what was found."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from recordings import trajectory_of

import trajcli
from trajcli import Fault, InputError, State, TrajcliError, UsageError

B, H, D = 3, 6, 2
ACTIONS = np.random.default_rng(0).normal(size=(B, H, D))
ZERO = np.zeros(D)
MODES = ("clique", "velocity", "acceleration", "jerk", "central", "bspline", "teleport")


def refusal(
    error: type[TrajcliError], actions: Any = ACTIONS, *arguments: Any, **options: Any
) -> Any:
    """The error of a call that must be refused."""
    with pytest.raises(error) as caught:
        trajectory_of(actions, *arguments, **options)
    assert isinstance(caught.value, (TrajcliError, ValueError))
    assert caught.value.exit_code == 2
    return caught.value


def fault(
    error: type[TrajcliError], actions: Any = ACTIONS, *arguments: Any, **options: Any
) -> Fault:
    """The one fault of a call that must be refused, which the message is made of."""
    raised = refusal(error, actions, *arguments, **options)
    (report,) = raised.faults
    for words in (report.what, report.where, report.expected, report.found, report.hint):
        assert words in str(raised)
    return report


def changed(values: np.ndarray, place: tuple[int, ...], value: float) -> np.ndarray:
    copy = values.copy()
    copy[place] = value
    return copy


# -- actions ---------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(), (6,), (1, 3, 6, 2)])
def test_actions_must_have_two_or_three_dimensions(shape: tuple[int, ...]) -> None:
    report = fault(InputError, np.zeros(shape), np.zeros(2), 0.1)
    assert "actions" in report.where
    assert "[B, H, D]" in report.expected
    assert report.found


@pytest.mark.parametrize("shape", [(3, 0, 2), (3, 6, 0), (0, 2)])
def test_there_must_be_an_action_and_a_dof(shape: tuple[int, ...]) -> None:
    report = fault(InputError, np.zeros(shape), np.zeros(shape[-1]), 0.1)
    assert "H >= 1" in report.expected
    assert "0" in report.found


@pytest.mark.parametrize(
    "actions",
    [
        np.zeros((B, H, D), complex),
        np.zeros((B, H, D), bool),
        np.full((B, H, D), "1"),
        np.full((B, H, D), None),
        torch.zeros((B, H, D), dtype=torch.complex64),
        torch.zeros((B, H, D), dtype=torch.bool),
    ],
    ids=["complex", "bool", "text", "object", "complex tensor", "bool tensor"],
)
def test_actions_must_be_real_numbers(actions: Any) -> None:
    report = fault(InputError, actions, ZERO, 0.1)
    assert "floats or integers" in report.expected
    assert str(actions.dtype) in report.found


# -- start -----------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
def test_a_start_is_needed(mode: str) -> None:
    report = fault(InputError, ACTIONS, None, 0.1, mode)
    assert "start" in report.what
    assert "none" in report.found


def test_a_start_in_words_is_zero() -> None:
    report = fault(UsageError, ACTIONS, "last", 0.1)
    assert "zero" in report.expected
    assert "last" in report.found


@pytest.mark.parametrize(
    ("start", "mode", "more"),
    [("first", "clique", {}), (None, "savgol", {}), (None, "central", {"ends": "recording"})],
)
def test_recordings_are_for_differentiate(start: Any, mode: str, more: dict[str, str]) -> None:
    with pytest.raises(UsageError) as caught:
        trajcli.integrate(ACTIONS, start, 0.1, mode, **more)
    assert "trajcli.differentiate" in caught.value.faults[0].hint


@pytest.mark.parametrize("part", ["position", "velocity", "acceleration", "jerk"])
def test_start_and_actions_must_have_the_same_dofs(part: str) -> None:
    start = State(**{"position": ZERO, part: np.zeros((B, D + 1))})
    report = fault(InputError, ACTIONS, start, 0.1)
    assert part in report.where
    assert "start" in report.where
    assert f"D = {D}" in report.expected
    assert f"D = {D + 1}" in report.found


@pytest.mark.parametrize("count", [0, 2, 4])
def test_there_must_be_one_start_or_one_for_each_trajectory(count: int) -> None:
    report = fault(InputError, ACTIONS, np.zeros((count, D)), 0.1)
    assert f"[{B}, {D}]" in report.expected
    assert f"[{count}, {D}]" in report.found
    assert "index" in report.hint


def test_a_start_must_have_one_or_two_dimensions() -> None:
    report = fault(InputError, ACTIONS, State(np.zeros((1, B, D))), 0.1)
    assert "start/position" in report.where
    assert f"[1, {B}, {D}]" in report.found
    assert "position" in fault(InputError, ACTIONS, State(np.zeros(())), 0.1).where


# -- index -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("index", "trajectory", "value"), [([0, 1, 2], 2, "2"), ([0, -1, 5], 1, "-1")]
)
def test_a_start_index_must_be_within_the_states(
    index: list[int], trajectory: int, value: str
) -> None:
    report = fault(InputError, ACTIONS, np.zeros((2, D)), 0.1, start_index=index)
    assert "start_index" in report.where
    assert f"trajectory {trajectory}" in report.where
    assert "0 to 1" in report.expected
    assert report.found == value


def test_a_goal_index_must_be_within_the_goals() -> None:
    options = {"ends": "goal", "goal": np.zeros((2, D)), "goal_index": [0, 0, 2]}
    report = fault(InputError, ACTIONS, ZERO, 0.1, "central", **options)
    assert "goal_index" in report.where
    assert "trajectory 2" in report.where


@pytest.mark.parametrize("index", [[0, 1], [[0, 1, 0]], [0.0, 1.0, 0.0], 1])
def test_an_index_is_one_whole_number_for_each_trajectory(index: Any) -> None:
    report = fault(InputError, ACTIONS, np.zeros((2, D)), 0.1, start_index=np.array(index))
    assert "start_index" in report.where
    assert f"integers [{B}]" in report.expected


def test_parts_of_a_state_under_an_index_must_be_as_many() -> None:
    start = State(np.zeros((2, D)), np.zeros((4, D)))
    report = fault(InputError, ACTIONS, start, 0.1, start_index=[0, 1, 0])
    assert "start" in report.where
    assert "2" in report.found
    assert "4" in report.found


@pytest.mark.parametrize("role", ["start", "goal"])
def test_an_index_needs_states_to_choose_from(role: str) -> None:
    raised = refusal(InputError, ACTIONS, None, 0.1, **{f"{role}_index": [0, 0, 0]})
    assert any(f"{role} index" in f.what for f in raised.faults)


# -- steps -----------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
def test_a_time_step_is_needed(mode: str) -> None:
    report = fault(InputError, ACTIONS, ZERO, None, mode)
    assert "time step" in report.what
    assert "none" in report.found


def test_dt_and_time_stamps_are_one_too_many() -> None:
    report = fault(InputError, ACTIONS, ZERO, 0.1, times=np.arange(H + 1.0))
    assert "dt" in report.what
    assert "times" in report.what


@pytest.mark.parametrize("bad", [0.0, -0.1, np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("mode", MODES)
def test_a_step_must_be_positive_and_finite(mode: str, bad: float) -> None:
    report = fault(InputError, ACTIONS, ZERO, bad, mode)
    assert "positive" in report.what
    assert "dt" in report.where
    assert repr(bad) in report.found


def test_a_step_that_is_zero_is_refused_where_nan_is_allowed() -> None:
    for bad in (0.0, np.nan):
        fault(InputError, ACTIONS, ZERO, bad, allow_nonfinite=True)


@pytest.mark.parametrize(
    ("dt", "where"),
    [
        (changed(np.full(H, 0.1), (4,), 0.0), ("step 4",)),
        (changed(np.full((B, 1), 0.1), (2, 0), -1.0), ("trajectory 2",)),
        (changed(np.full((B, H), 0.1), (1, 5), np.nan), ("trajectory 1", "step 5")),
    ],
    ids=["[H]", "[B,1]", "[B,H]"],
)
def test_the_first_step_that_is_not_positive_is_named(
    dt: np.ndarray, where: tuple[str, ...]
) -> None:
    report = fault(InputError, ACTIONS, ZERO, dt)
    for words in where:
        assert words in report.where


def test_how_many_steps_are_not_positive_is_said() -> None:
    dt = np.full((B, H), 0.1)
    dt[1, 2:] = 0.0
    assert "4" in fault(InputError, ACTIONS, ZERO, dt).found


def test_a_bad_step_of_a_recording_is_named_by_its_place_in_what_was_given() -> None:
    dt = changed(np.full(H, 0.1), (4,), 0.0)
    assert "step 4" in fault(InputError, ACTIONS, "first", dt, "clique").where


def test_the_step_into_a_recordings_first_row_may_be_anything() -> None:
    for unused in (0.0, -1.0, np.nan):
        dt = changed(np.full(H, 0.1), (0,), unused)
        report = trajectory_of(ACTIONS, "first", dt, "clique")
        assert np.isfinite(report.jerk).all()


@pytest.mark.parametrize(
    "shape", [(H + 1,), (H - 1,), (B,), (B, H - 1), (B + 1, 1), (H, B), (1, B, H), (2,), (0,)]
)
def test_dt_must_broadcast_to_the_actions(shape: tuple[int, ...]) -> None:
    report = fault(InputError, ACTIONS, ZERO, np.full(shape, 0.1))
    assert "dt" in report.where
    assert f"[{H}]" in report.expected
    assert f"[{B}, 1]" in report.expected
    assert f"[{B}, {H}]" in report.expected
    assert report.found == "[" + ", ".join(map(str, shape)) + "]"


def test_one_step_per_trajectory_is_told_its_shape() -> None:
    assert "[B, 1]" in fault(InputError, ACTIONS, ZERO, np.full(B, 0.1)).hint


def test_bspline_takes_no_step_per_action() -> None:
    report = fault(InputError, ACTIONS, ZERO, np.full(H, 0.1), "bspline")
    assert "bspline" in report.what
    assert "[B, 1]" in report.expected
    fault(InputError, ACTIONS, ZERO, None, "bspline", times=np.arange(H + 1.0))


# -- time stamps -----------------------------------------------------------------------------

STAMPS = np.arange(H + 1.0)


@pytest.mark.parametrize("shape", [(H,), (H + 2,), (B, H), (B + 1, H + 1), ()])
def test_there_must_be_a_time_stamp_for_every_row(shape: tuple[int, ...]) -> None:
    report = fault(InputError, ACTIONS, ZERO, times=np.zeros(shape))
    assert "times" in report.where
    assert f"[{H + 1}]" in report.expected
    assert f"[{B}, {H + 1}]" in report.expected


def test_a_recording_has_as_many_time_stamps_as_rows() -> None:
    report = fault(InputError, ACTIONS, "first", None, "clique", times=STAMPS)
    assert f"[{H}]" in report.expected


def test_time_stamps_that_repeat_are_named() -> None:
    report = fault(InputError, ACTIONS, ZERO, times=changed(STAMPS, (3,), 2.0))
    assert "repeat" in report.what
    assert "row 3" in report.found
    assert "2.0" in report.found


def test_time_stamps_that_go_back_are_named() -> None:
    report = fault(InputError, ACTIONS, ZERO, times=changed(STAMPS, (4,), 2.5))
    assert "go back" in report.what
    assert "row 4" in report.found


def test_the_first_three_repeats_are_named_and_the_others_counted() -> None:
    stamps = np.array([0.0, 0.0, 1.0, 1.0, 1.0, 2.0, 2.0])
    report = fault(InputError, ACTIONS, ZERO, times=stamps)
    for words in ("4 such", "row 1 ", "row 3 ", "row 4 ", "1 more"):
        assert words in report.found
    assert "row 6" not in report.found


def test_repeats_in_one_trajectory_name_it() -> None:
    stamps = changed(np.tile(STAMPS, (B, 1)), (2, 5), 4.0)
    report = fault(InputError, ACTIONS, ZERO, times=stamps)
    assert "trajectory 2" in report.found
    assert "row 5" in report.found


def test_time_stamps_that_repeat_and_go_back_are_two_faults() -> None:
    stamps = np.array([0.0, 1.0, 1.0, 2.0, 1.5, 3.0, 4.0])
    raised = refusal(InputError, ACTIONS, ZERO, times=stamps)
    assert len(raised.faults) == 2
    assert any("repeat" in f.what for f in raised.faults)
    assert any("go back" in f.what for f in raised.faults)


@pytest.mark.parametrize("kind", ["uint8", "uint32", "uint64", "int8", "int64"])
def test_whole_time_stamps_that_go_back_are_named(kind: str) -> None:
    stamps = np.array([0, 1, 2, 5, 4, 6, 7]).astype(kind)
    report = fault(InputError, ACTIONS, ZERO, times=stamps)
    assert "go back" in report.what
    assert "row 4" in report.found


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_time_stamps_must_be_finite(bad: float) -> None:
    raised = refusal(InputError, ACTIONS, ZERO, times=changed(STAMPS, (3,), bad))
    first = raised.faults[0]
    assert "finite" in first.what
    assert "row 3" in first.found


def test_two_infinite_time_stamps_are_refused_as_one_is() -> None:
    raised = refusal(InputError, ACTIONS, ZERO, times=np.array([0.0, 1, 2, 3, 4, np.inf, np.inf]))
    assert "finite" in raised.faults[0].what
    assert "row 5" in raised.faults[0].found


# -- modes and options -----------------------------------------------------------------------


@pytest.mark.parametrize("name", ["accel", "", "Jerk", "spline"])
def test_an_unknown_mode_is_told_all_modes(name: str) -> None:
    report = fault(UsageError, ACTIONS, ZERO, 0.1, name)
    for mode in (*MODES, "position", "acc"):
        assert mode in report.expected
    assert repr(name) in report.found


@pytest.mark.parametrize(
    ("mode", "option", "value"),
    [
        ("acceleration", "degree", 4),
        ("acceleration", "steps", 4),
        ("acceleration", "ends", "plan"),
        ("clique", "ends", "plan"),
        ("central", "scheme", "euler"),
        ("central", "degree", 3),
        ("bspline", "scheme", "zoh"),
        ("bspline", "frames", "full"),
        ("teleport", "convention", "curobo"),
        ("teleport", "scheme", "euler"),
    ],
)
def test_an_option_a_mode_does_not_take_is_refused(mode: str, option: str, value: Any) -> None:
    report = fault(UsageError, ACTIONS, ZERO, 0.1, mode, **{option: value})
    assert mode in report.what
    assert option in report.what
    assert option not in report.expected.split(", ")


@pytest.mark.parametrize(
    ("mode", "option", "value", "choices"),
    [
        ("acceleration", "scheme", "rk4", ("euler", "zoh", "foh")),
        ("acceleration", "frames", "all", ("full", "actions", "curobo")),
        ("acceleration", "convention", "mujoco", ("standard", "curobo")),
        ("central", "ends", "hold", ("plan", "recording", "goal")),
        ("bspline", "degree", 2, ("3", "4", "5")),
        ("bspline", "degree", 6, ("3", "4", "5")),
    ],
)
def test_a_value_an_option_does_not_have_is_told_those_it_has(
    mode: str, option: str, value: Any, choices: tuple[str, ...]
) -> None:
    report = fault(UsageError, ACTIONS, ZERO, 0.1, mode, **{option: value})
    assert option in report.what
    assert repr(value) in report.found
    for choice in choices:
        assert choice in report.expected


@pytest.mark.parametrize("steps", [0, -1, 1.5, "2"])
def test_steps_per_knot_interval_are_a_whole_number_from_one(steps: Any) -> None:
    report = fault(UsageError, ACTIONS, ZERO, 0.1, "bspline", steps=steps)
    assert "steps" in report.where
    assert ">= 1" in report.expected
    assert repr(steps) in report.found


@pytest.mark.parametrize("degree", [3.5, 3.0, "3"])
def test_a_degree_must_be_a_whole_number(degree: Any) -> None:
    report = fault(UsageError, ACTIONS, ZERO, 0.1, "bspline", degree=degree)
    assert "degree" in report.what
    assert repr(degree) in report.found


@pytest.mark.parametrize("write", [["speed"], [], ["position", "snap"], "position"])
def test_outputs_to_write_must_be_known_and_some(write: Any) -> None:
    report = fault(UsageError, ACTIONS, ZERO, 0.1, write=write)
    assert "position, velocity, acceleration, jerk" in report.expected


@pytest.mark.parametrize("dtype", ["float16", "double", "int64"])
def test_a_dtype_to_write_is_float32_or_float64(dtype: str) -> None:
    raised = refusal(UsageError, ACTIONS, ZERO, 0.1, dtype=dtype)
    assert "float32" in str(raised)
    assert "float64" in str(raised)
    assert dtype in str(raised)


def test_an_unknown_backend_is_told_those_there_are() -> None:
    raised = refusal(UsageError, ACTIONS, ZERO, 0.1, backend="numpy")
    assert "torch" in str(raised)
    assert "'numpy'" in str(raised)


# -- ends ------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["central", "bspline"])
def test_ends_goal_needs_a_goal(mode: str) -> None:
    report = fault(InputError, ACTIONS, ZERO, 0.1, mode, ends="goal")
    assert "goal" in report.what
    assert "none" in report.found


@pytest.mark.parametrize("mode", ["central", "bspline"])
@pytest.mark.parametrize("ends", [None, "plan"])
def test_a_goal_is_refused_where_nothing_ends_on_it(mode: str, ends: str | None) -> None:
    report = fault(InputError, ACTIONS, ZERO, 0.1, mode, ends=ends, goal=ZERO)
    assert "goal" in report.what
    assert "goal" in report.hint


@pytest.mark.parametrize("mode", ["clique", "velocity", "acceleration", "jerk", "teleport"])
def test_modes_without_an_end_take_no_goal(mode: str) -> None:
    report = fault(InputError, ACTIONS, ZERO, 0.1, mode, goal=ZERO)
    assert mode in report.what
    assert "goal" in report.what


def test_central_takes_no_moving_goal() -> None:
    goal = State(ZERO, ZERO + 1)
    report = fault(InputError, ACTIONS, ZERO, 0.1, "central", ends="goal", goal=goal)
    assert "velocity" in report.found


def test_a_goal_must_have_the_dofs_of_the_actions() -> None:
    options = {"ends": "goal", "goal": np.zeros(D + 2)}
    report = fault(InputError, ACTIONS, ZERO, 0.1, "bspline", **options)
    assert "goal" in report.where
    assert f"D = {D + 2}" in report.found


@pytest.mark.parametrize("rows", [1, 2, 3, 4])
def test_central_needs_five_rows_of_a_recording(rows: int) -> None:
    report = fault(InputError, ACTIONS[:, :rows], "first", 0.1, "central")
    assert "5" in report.expected
    assert str(rows) in report.found
    assert "backward" in report.hint


@pytest.mark.parametrize("mode", ["clique", "central"])
def test_the_curobo_convention_has_frames_of_its_own(mode: str) -> None:
    options = {"convention": "curobo", "frames": "actions"}
    report = fault(InputError, ACTIONS, ZERO, 0.1, mode, **options)
    assert "frames" in report.where


# -- NaN and Inf -----------------------------------------------------------------------------


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("mode", MODES)
def test_actions_that_are_not_finite_name_their_place(mode: str, bad: float) -> None:
    report = fault(InputError, changed(ACTIONS, (1, 4, 1), bad), ZERO, 0.1, mode)
    for words in ("actions", "trajectory 1", "step 4", "dof 1"):
        assert words in report.where
    assert str(bad) in report.found


def test_the_first_action_that_is_not_finite_is_named_and_the_others_counted() -> None:
    actions = ACTIONS.copy()
    actions[2, 1, 0] = actions[0, 3, 1] = actions[0, 5, 0] = np.nan
    report = fault(InputError, actions, ZERO, 0.1)
    for words in ("trajectory 0", "step 3", "dof 1"):
        assert words in report.where
    assert "3" in report.found


@pytest.mark.parametrize("kind", [np.float16, np.float32, ">f8"])
def test_actions_of_every_float_type_are_looked_through(kind: Any) -> None:
    report = fault(InputError, changed(ACTIONS, (1, 4, 1), np.nan).astype(kind), ZERO, 0.1)
    assert "step 4" in report.where


def test_tensors_are_looked_through() -> None:
    report = fault(InputError, torch.as_tensor(changed(ACTIONS, (1, 4, 1), np.nan)), ZERO, 0.1)
    assert "step 4" in report.where


@pytest.mark.parametrize("part", ["position", "velocity", "acceleration", "jerk"])
def test_a_start_that_is_not_finite_names_its_place(part: str) -> None:
    values = changed(np.zeros((B, D)), (2, 1), np.nan)
    report = fault(InputError, ACTIONS, State(**{"position": ZERO, part: values}), 0.1)
    for words in (f"start/{part}", "2", "dof 1"):
        assert words in report.where


def test_a_goal_that_is_not_finite_names_its_place() -> None:
    options = {"ends": "goal", "goal": changed(np.zeros(D), (1,), np.inf)}
    report = fault(InputError, ACTIONS, ZERO, 0.1, "bspline", **options)
    assert "goal/position" in report.where
    assert "dof 1" in report.where
    assert "inf" in report.found


def test_a_start_with_an_index_names_its_state() -> None:
    states = changed(np.zeros((4, D)), (2, 1), np.nan)
    report = fault(InputError, ACTIONS, State(states), 0.1, start_index=[0, 2, 2])
    assert "state 2, dof 1" in report.where


NOT_USED: dict[str, tuple[Any, ...]] = {
    "the last action": (changed(ACTIONS, (1, H - 1, 1), np.nan), ZERO, {"frames": "curobo"}),
    "the last action with a goal": (
        changed(ACTIONS, (1, H - 1, 1), np.nan),
        ZERO,
        {"mode": "central", "ends": "goal", "goal": ZERO},
    ),
    "a state no index names": (
        ACTIONS,
        changed(np.zeros((4, D)), (3, 1), np.nan),
        {"start_index": np.array([0, 2, 1])},
    ),
    "a goal no index names": (
        ACTIONS,
        ZERO,
        {
            "mode": "bspline",
            "ends": "goal",
            "goal": changed(np.zeros((4, D)), (0, 0), np.inf),
            "goal_index": np.array([1, 2, 1]),
        },
    ),
    "the start of positions alone": (
        ACTIONS,
        changed(ZERO, (0,), np.nan),
        {"mode": "teleport", "frames": "actions"},
    ),
}


@pytest.mark.parametrize("backend", ["native", "torch"])
@pytest.mark.parametrize("library", [np.array, torch.as_tensor])
@pytest.mark.parametrize("case", NOT_USED.values(), ids=NOT_USED)
def test_what_is_not_used_may_have_any_values(case: Any, library: Any, backend: str) -> None:
    actions, start, options = case
    result = trajectory_of(library(actions), library(start), 0.1, backend=backend, **options)
    for values in result:
        assert np.isfinite(np.asarray(values)).all()


# -- several at once -------------------------------------------------------------------------


def test_all_faults_of_the_input_are_reported_together() -> None:
    start = State(np.zeros((B, D + 1)), np.zeros((B + 1, D)))
    raised = refusal(
        InputError, ACTIONS, start, np.full(H + 3, 0.1), "central", ends="goal", start_index=[0, 9]
    )
    for words in ("dt", "start/position", "start_index", "goal position"):
        assert words in str(raised)
    assert len(raised.faults) >= 4


def test_all_faults_of_the_options_are_reported_together() -> None:
    raised = refusal(
        UsageError, ACTIONS, ZERO, 0.1, "central", scheme="zoh", degree=4, frames="none"
    )
    assert len(raised.faults) == 3
    for option in ("scheme", "degree", "frames"):
        assert option in str(raised)


def test_all_inputs_that_are_not_finite_are_reported_together() -> None:
    start = State(np.array([np.nan, 0]), np.array([0, np.inf]))
    raised = refusal(InputError, changed(ACTIONS, (0, 0, 0), np.nan), start, 0.1)
    assert len(raised.faults) == 3
    for words in ("actions", "start/position", "start/velocity"):
        assert words in str(raised)


def test_faults_are_values_that_make_json() -> None:
    raised = refusal(InputError, ACTIONS, ZERO, -1.0)
    (report,) = raised.faults
    assert report.as_dict()["where"] == "dt"
    assert set(report.as_dict()) <= {"what", "where", "expected", "found", "hint"}
    assert all(report.as_dict().values())
