"""What trajcli refuses, and that it says what, where and what was found."""

from __future__ import annotations

import errno
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from words import require_words_of_python

import trajcli
from trajcli import InputError, OutputError, State, TrajcliError, UsageError
from trajcli.errors import Fault
from trajcli.files.hdf5_output import Hdf5Output

B, H, D = 3, 6, 2
ACTIONS = np.random.default_rng(0).normal(size=(B, H, D))
ZERO = np.zeros(D)
PLAN = trajcli.integrate(ACTIONS, ZERO, 0.1)
STAMPS = np.arange(H + 1.0)
MODES = ("clique", "velocity", "acceleration", "jerk", "central", "bspline", "teleport")
GOAL = {"mode": "central", "ends": "goal"}


def refusal(
    error: type[TrajcliError],
    actions: Any = ACTIONS,
    start: Any = ZERO,
    dt: Any = 0.1,
    **options: Any,
) -> Any:
    """The error of a call that must be refused."""
    with pytest.raises(error) as caught:
        trajcli.integrate(actions, start, dt, **options)
    require_words_of_python(caught.value)
    assert isinstance(caught.value, ValueError)
    assert caught.value.exit_code == 2
    return caught.value


def fault(error: type[TrajcliError], **call: Any) -> Fault:
    """The one fault of a call that must be refused, which the message is made of."""
    raised = refusal(error, **call)
    (report,) = raised.faults
    for words in (report.what, report.where, report.expected, report.found, report.hint):
        assert words in str(raised)
    return report


def changed(values: np.ndarray, place: tuple[int, ...], value: float) -> np.ndarray:
    copy = values.copy()
    copy[place] = value
    return copy


INPUTS: list[tuple[dict[str, Any], str, str, str]] = [
    # what is given, and words of what, where and found
    *(({"actions": np.zeros(shape), "start": ZERO}, "", "actions", "")
      for shape in ((), (6,), (1, 3, 6, 2), (3, 0, 2), (0, 2))),
    ({"actions": np.zeros((3, 6, 0)), "start": np.zeros(0)}, "", "actions", "0"),
    *(({"actions": actions}, "not real numbers", "", str(actions.dtype)) for actions in (
        *(np.zeros((B, H, D)).astype(kind) for kind in ("complex", "bool", "U1", "O")),
        torch.zeros(B, H, D, dtype=torch.complex64), torch.zeros(B, H, D, dtype=torch.bool))),
    ({"start": None}, "start", "", "none"),
    *(({"start": State(**{"position": ZERO, part: np.zeros((B, D + 1))})}, "", f"start/{part}",
       f"D = {D + 1}") for part in ("position", "velocity", "acceleration", "jerk")),
    *(({"start": np.zeros((count, D))}, "", "start", f"[{count}, {D}]") for count in (0, 2, 4)),
    ({"start": State(np.zeros((1, B, D)))}, "", "start/position", f"[1, {B}, {D}]"),
    ({"start": State(np.zeros(()))}, "", "start/position", ""),
    ({"start": np.zeros((2, D)), "start_index": [0, 1, 2]}, "", "start_index, trajectory 2", "2"),
    ({"start": np.zeros((2, D)), "start_index": [0, -1, 5]}, "", "start_index, trajectory 1", "-1"),
    ({**GOAL, "goal": np.zeros((2, D)), "goal_index": [0, 0, 2]}, "", "goal_index, trajectory 2",
     "2"),
    *(({"start": np.zeros((2, D)), "start_index": np.array(index)}, "", "start_index", "")
      for index in ([0, 1], [[0, 1, 0]], [0.0, 1.0, 0.0], 1)),
    ({"start": State(np.zeros((2, D)), np.zeros((4, D))), "start_index": [0, 1, 0]}, "", "start",
     "4"),
    ({"dt": None}, "time step", "", "none"),
    ({"times": STAMPS}, "dt and times", "", ""),
    ({"dt": changed(np.full(H, 0.1), (4,), 0.0)}, "positive", "step 4", "0.0"),
    ({"dt": changed(np.full((B, 1), 0.1), (2, 0), -1.0)}, "positive", "trajectory 2", "-1.0"),
    ({"dt": changed(np.full((B, H), 0.1), (1, 5), np.nan)}, "positive", "trajectory 1, step 5",
     "nan"),
    *(({"dt": np.full(shape, 0.1)}, "", "dt", str(list(shape)))
      for shape in ((H + 1,), (H - 1,), (B,), (B, H - 1), (B + 1, 1), (H, B), (1, B, H), (0,))),
    ({"mode": "bspline", "dt": np.full(H, 0.1)}, "bspline", "dt", ""),
    ({"mode": "bspline", "dt": None, "times": STAMPS}, "bspline", "dt", ""),
    *(({"dt": None, "times": np.zeros(shape)}, "", "times", "")
      for shape in ((H,), (H + 2,), (B, H), (B + 1, H + 1), ())),
    ({"dt": None, "times": changed(STAMPS, (3,), 2.0)}, "repeat", "times", "row 3"),
    ({"dt": None, "times": changed(STAMPS, (4,), 2.5)}, "go back", "times", "row 4"),
    ({"dt": None, "times": np.array([0, 1, 2, 5, 4, 6, 7], "u8")}, "go back", "times", "row 4"),
    ({"dt": None, "times": changed(np.tile(STAMPS, (B, 1)), (2, 5), 4.0)}, "repeat", "",
     "trajectory 2"),
    ({**GOAL}, "goal", "", "none"),
    *(({"mode": mode, "goal": ZERO}, "goal", "", "") for mode in MODES),
    ({**GOAL, "goal": State(ZERO, ZERO + 1)}, "", "goal", "velocity"),
    ({"mode": "bspline", "ends": "goal", "goal": np.zeros(D + 2)}, "", "goal", f"D = {D + 2}"),
    *(({"mode": mode, "convention": "curobo", "alignment": "actions"}, "", "alignment", "")
      for mode in ("clique", "central")),
    *(({"mode": mode, "actions": changed(ACTIONS, (1, 4, 1), bad)}, "",
       "actions, trajectory 1, step 4, dof 1", str(bad))
      for mode, bad in zip(MODES, [np.nan, np.inf, -np.inf] * 3, strict=False)),
    *(({"actions": changed(ACTIONS, (1, 4, 1), np.nan).astype(kind)}, "", "step 4", "nan")
      for kind in ("f2", "f4", ">f8")),
    ({"actions": torch.as_tensor(changed(ACTIONS, (1, 4, 1), np.nan))}, "", "step 4", "nan"),
    *(({"start": State(**{"position": ZERO, part: changed(np.zeros((B, D)), (2, 1), np.nan)})}, "",
       f"start/{part}, trajectory 2, dof 1", "nan") for part in ("position", "velocity", "jerk")),
    ({"mode": "bspline", "ends": "goal", "goal": changed(ZERO, (1,), np.inf)}, "",
     "goal/position, dof 1", "inf"),
    ({"start": State(changed(np.zeros((4, D)), (2, 1), np.nan)), "start_index": [0, 2, 2]}, "",
     "state 2, dof 1", "nan"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "what", "where", "found"), INPUTS)
def test_an_input_that_does_not_fit_is_named(
    call: dict[str, Any], what: str, where: str, found: str
) -> None:
    report = fault(InputError, **call)
    assert what in report.what
    assert where in report.where
    assert found in report.found


@pytest.mark.parametrize("bad", [0.0, -0.1, np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("mode", MODES)
def test_a_step_must_be_positive_and_finite(mode: str, bad: float) -> None:
    for allow in (False, True):
        report = fault(InputError, dt=bad, mode=mode, allow_nonfinite=allow)
        assert "positive" in report.what
        assert report.where == "dt"
        assert repr(bad) in report.found


OPTIONS: list[tuple[dict[str, Any], str, str]] = [
    # what is given, and words of what and found
    ({"start": "last"}, "start", "last"),
    *(({"mode": name}, "mode", repr(name)) for name in ("accel", "", "Jerk", "spline")),
    *(({"mode": mode, option: value}, option, "") for mode, option, value in (
        ("acceleration", "degree", 4), ("acceleration", "steps", 4), ("clique", "ends", "plan"),
        ("central", "scheme", "euler"), ("bspline", "scheme", "zoh"),
        ("bspline", "alignment", "full"), ("teleport", "convention", "curobo"))),
    *(({"mode": mode, option: value}, option, repr(value)) for mode, option, value in (
        ("acceleration", "scheme", "rk4"), ("acceleration", "alignment", "all"),
        ("acceleration", "convention", "mujoco"), ("central", "ends", "hold"),
        ("bspline", "degree", 2), ("bspline", "degree", 3.0), ("bspline", "degree", "3"),
        *(("bspline", "steps", steps) for steps in (0, -1, 1.5, "2")))),
    *(({"mode": mode}, "mode", str(mode)) for mode in (["jerk"], None, 3, ("acc", "jerk"))),
    *(({"write": write}, "output", "") for write in (
        ["speed"], [], None, 3, [["position"]], trajcli.State(ZERO))),
    *(({option: np.array(["zoh", "foh"])}, option, "zoh") for option in ("scheme", "alignment")),
    *(({"dtype": dtype}, "type", dtype) for dtype in ("float16", "double", "int64")),
    ({"backend": "numpy"}, "backend", "'numpy'"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "what", "found"), OPTIONS)
def test_an_option_that_does_not_fit_is_named(call: dict[str, Any], what: str, found: str) -> None:
    report = fault(UsageError, **call)
    assert what in f"{report.what} {report.where}"
    assert found in report.found


@pytest.mark.parametrize(
    ("start", "mode", "more"),
    [("first", "clique", {}), (None, "savgol", {}), (None, "central", {"ends": "recording"})],
)
def test_recordings_are_for_differentiate(start: Any, mode: str, more: dict[str, str]) -> None:
    assert "trajcli.differentiate" in fault(UsageError, start=start, mode=mode, **more).hint


@pytest.mark.parametrize("role", ["start", "goal"])
def test_an_index_needs_states_to_choose_from(role: str) -> None:
    raised = refusal(InputError, start=None, **{f"{role}_index": [0, 0, 0]})
    assert any(f"{role} index" in f.what for f in raised.faults)


def test_faults_of_recordings_name_the_rows_of_the_argument() -> None:
    for options, where in (
        ({"dt": changed(np.full(H, 0.1), (4,), 0.0)}, "step 4"),
        ({"times": STAMPS}, "times"),
    ):
        with pytest.raises(InputError) as caught:
            trajcli.differentiate(ACTIONS, method="backward", **options)
        assert where in caught.value.faults[0].where
    for rows in (1, 4):
        with pytest.raises(InputError) as caught:
            trajcli.differentiate(ACTIONS[:, :rows], dt=0.1, method="central")
        assert str(rows) in caught.value.faults[0].found


def test_the_step_into_a_recordings_first_row_may_be_anything() -> None:
    for unused in (0.0, -1.0, np.nan):
        dt = changed(np.full(H, 0.1), (0,), unused)
        assert np.isfinite(trajcli.differentiate(ACTIONS, dt=dt, method="backward").jerk).all()


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_time_stamps_must_be_finite(bad: float) -> None:
    first = refusal(InputError, dt=None, times=changed(STAMPS, (3,), bad)).faults[0]
    assert "finite" in first.what
    assert "row 3" in first.found


def test_the_first_places_are_named_and_the_others_counted() -> None:
    report = fault(InputError, dt=None, times=np.array([0.0, 0.0, 1.0, 1.0, 1.0, 2.0, 2.0]))
    for words in ("4 such", "row 1 ", "row 3 ", "row 4 ", "1 more"):
        assert words in report.found
    actions = ACTIONS.copy()
    actions[2, 1, 0] = actions[0, 3, 1] = actions[0, 5, 0] = np.nan
    report = fault(InputError, actions=actions)
    assert "trajectory 0, step 3, dof 1" in report.where
    assert "3" in report.found


NOT_USED: dict[str, tuple[Any, ...]] = {
    "the last action": (changed(ACTIONS, (1, H - 1, 1), np.nan), ZERO, {"alignment": "curobo"}),
    "the last action with a goal": (
        changed(ACTIONS, (1, H - 1, 1), np.nan), ZERO, {**GOAL, "goal": ZERO},
    ),
    "a state no index names": (
        ACTIONS, changed(np.zeros((4, D)), (3, 1), np.nan), {"start_index": np.array([0, 2, 1])},
    ),
    "a goal no index names": (
        ACTIONS, ZERO,
        {"mode": "bspline", "ends": "goal", "goal": changed(np.zeros((4, D)), (0, 0), np.inf),
         "goal_index": np.array([1, 2, 1])},
    ),
    "the start of positions alone": (
        ACTIONS, changed(ZERO, (0,), np.nan), {"mode": "teleport", "alignment": "actions"},
    ),
}  # fmt: skip


@pytest.mark.parametrize("backend", ["native", "torch"])
@pytest.mark.parametrize("library", [np.array, torch.as_tensor])
@pytest.mark.parametrize("case", NOT_USED.values(), ids=NOT_USED)
def test_what_is_not_used_may_have_any_values(case: Any, library: Any, backend: str) -> None:
    actions, start, options = case
    result = trajcli.integrate(library(actions), library(start), 0.1, backend=backend, **options)
    for values in result:
        assert np.isfinite(np.asarray(values)).all()


@pytest.mark.parametrize(
    ("error", "call", "wheres"),
    [
        (
            InputError,
            {"start": State(np.zeros((B, D + 1)), np.zeros((B + 1, D))), "dt": np.full(H + 3, 0.1),
             **GOAL, "start_index": [0, 9]},
            ("dt", "start/position", "start_index"),
        ),
        (UsageError, {"mode": "central", "scheme": "zoh", "degree": 4, "alignment": "none"}, ()),
        (
            InputError,
            {"actions": changed(ACTIONS, (0, 0, 0), np.nan),
             "start": State(np.array([np.nan, 0]), np.array([0, np.inf]))},
            ("actions", "start/position", "start/velocity"),
        ),
        (InputError, {"dt": None, "times": np.array([0.0, 1, 1, 2, 1.5, 3, 4])}, ()),
    ],
)  # fmt: skip
def test_all_faults_are_reported_together(
    error: type[TrajcliError], call: dict[str, Any], wheres: tuple[str, ...]
) -> None:
    faults = refusal(error, **call).faults
    assert len(faults) >= max(2, len(wheres))
    for where in wheres:
        assert any(report.where.startswith(where) for report in faults)


def test_faults_are_values_that_make_json() -> None:
    (report,) = refusal(InputError, dt=-1.0).faults
    assert report.as_dict()["where"] == "dt"
    assert set(report.as_dict()) <= {"what", "where", "expected", "found", "hint"}
    assert all(report.as_dict().values())


def test_an_unknown_mode_is_answered_with_the_modes_of_integrate():
    listed = fault(UsageError, mode="jrek").expected.split(", ")
    assert listed == [*MODES, "position (= clique)", "acc (= acceleration)"]
    for name in MODES:
        trajcli.integrate(ACTIONS, State(*[ZERO] * 4), 0.1, name)


def made(make: Callable[[Path], None]) -> Callable[[Path], Path]:
    """Returns what makes out.h5 in a folder, and returns its path."""

    def path(folder: Path) -> Path:
        make(folder / "out.h5")
        return folder / "out.h5"

    return path


FILES: dict[str, tuple[Any, Any, type[OSError], type[TrajcliError], int]] = {
    # what fails, on which path, and what it raises
    "load": (trajcli.load, lambda folder: folder / "in.h5", FileNotFoundError, InputError,
             errno.ENOENT),
    "load from no folder": (trajcli.load, lambda folder: folder / "no" / "in.h5",
                            FileNotFoundError, InputError, errno.ENOENT),
    "save to no folder": (PLAN.save, lambda folder: folder / "no" / "out.h5", FileNotFoundError,
                          OutputError, errno.ENOENT),
    "save to a file": (PLAN.save, made(Path.touch), FileExistsError, OutputError, errno.EEXIST),
    "save to a folder": (PLAN.save, made(Path.mkdir), FileExistsError, OutputError,
                         errno.EEXIST),
}  # fmt: skip


@pytest.mark.parametrize("name", FILES)
def test_files_that_are_missing_or_there_raise_what_python_raises(
    name: str, tmp_path: Path
) -> None:
    call, place, builtin, own, number = FILES[name]
    path = place(tmp_path)
    with pytest.raises(builtin) as caught:
        call(path)
    error = caught.value
    assert isinstance(error, own)
    for raised in (error, pickle.loads(pickle.dumps(error))):
        (fault,) = raised.faults
        assert (type(raised), str(raised), raised.exit_code) == (type(error), str(fault), 2)
        assert (raised.errno, raised.filename, raised.strerror) == (number, fault.where, fault.what)
    assert str(path).startswith(error.filename)
    require_words_of_python(error)


def test_a_file_that_appears_while_another_is_written_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, write = tmp_path / "out.h5", Hdf5Output.finish

    def finish(output: Hdf5Output) -> None:
        path.write_text("another's")
        write(output)

    monkeypatch.setattr(Hdf5Output, "finish", finish)
    with pytest.raises(FileExistsError):
        PLAN.save(path)
    assert path.read_text() == "another's"
