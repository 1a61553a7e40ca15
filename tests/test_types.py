"""What a type checker sees of the calls, and that it is what they take and return."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any, get_args

import pytest

import trajcli
from trajcli import calls, names
from trajcli.mode_options import (
    DIFFERENTIATION,
    INTEGRATION,
    METHOD,
    METHODS,
    MODE,
    MODE_TABLE,
    Option,
)
from trajcli.modes import ALIASES, MODES, QUANTITIES

ROOT = Path(__file__).parent.parent
USER = """
import numpy as np
import torch
import trajcli

u, start = torch.zeros(4, 30, 7), trajcli.State(torch.zeros(7))
plan = trajcli.integrate(u, start, 0.02, mode="jerk", scheme="zoh", alignment="full")
reveal_type(plan.position[:, -1])  # Tensor
reveal_type(plan.detach().jerk)  # Tensor
p, v, a, j = plan
reveal_type(v)  # Tensor
reveal_type(trajcli.integrate(u, write=["position", "velocity"]).jerk)  # Tensor | None
reveal_type(trajcli.differentiate(u, dt=0.02, method="central").velocity)  # Tensor
reveal_type(trajcli.differentiate(u, dt=0.02, write="position").position)  # Tensor | None
reveal_type(trajcli.differentiate(np.zeros((9, 7)), dt=0.1).position)  # ndarray
reveal_type(trajcli.prepare((4, 30, 7), "jerk", dt=0.02)(u, start).velocity)  # Tensor
reveal_type(trajcli.prepare((4, 30, 7), dt=0.02, write="jerk")(u, start).jerk)  # Tensor | None
reveal_type(trajcli.sample(plan, [0.1]).position)  # Tensor
reveal_type(plan[:, 3:].position)  # Tensor
reveal_type(trajcli.retime(plan, {"jerk": 9.0}, slower_only=True))  # Retimed
reveal_type(trajcli.retime(plan, {"jerk": 9.0}, "fastest", rate=500.0))  # Fastest
reveal_type(trajcli.retime(np.zeros((9, 7)), {"jerk": 9.0}))  # Fastest
reveal_type(plan.numpy().position)  # ndarray


def last(trajectory: trajcli.Trajectory[torch.Tensor]) -> torch.Tensor:
    return trajectory.position[:, -1]


def kept(trajectory: trajcli.Trajectory) -> trajcli.Trajectory:
    return trajectory


last(plan)
kept(plan).save("out.h5")
last(trajcli.integrate(u, write="velocity"))  # error: arg-type
trajcli.integrate(u, mode="jrek")  # error: call-overload
trajcli.integrate(u, scheme="rk4")  # error: call-overload
trajcli.differentiate(u, dt=0.1, method="savgoll")  # error: call-overload
trajcli.integrate(u, write="speed")  # error: arg-type
trajcli.integrate(u, windows=3)  # error: call-overload
trajcli.resample([[0.0], [1.0]], dt=0.1, rate=20.0)
trajcli.resample(3, dt=0.1, rate=20.0)  # error: arg-type
"""
# Of torch only what defines a tensor is read: the rest of it takes four times as long.
SETTINGS = """
[mypy]
follow_imports = silent
[mypy-torch.*,sympy.*,h5py.*]
follow_imports = skip
[mypy-torch,torch._C,torch._tensor]
follow_imports = silent
"""


def test_a_user_sees_tensors_and_errors_of_words(tmp_path: Path) -> None:
    pytest.importorskip("mypy")
    (tmp_path / "user.py").write_text(USER)
    (tmp_path / "mypy.ini").write_text(SETTINGS)
    command = [sys.executable, "-m", "mypy", "--strict", f"--cache-dir={tmp_path}", "user.py"]
    run = subprocess.run(
        command, cwd=tmp_path, env={"MYPYPATH": str(ROOT)}, capture_output=True, text=True
    )
    assert not run.stderr
    found: dict[int, str] = {}
    for number, kind, text in re.findall(r"user\.py:(\d+): (note|error): (.*)", run.stdout):
        if revealed := re.search('Revealed type is "(.*)"', text):
            shown = re.sub(r"\[.*\]", "", revealed[1])
            found[int(number)] = re.sub(r"[a-z_]+\.", "", shown)
        elif kind == "error":
            found[int(number)] = "error: " + text.rpartition("[")[2].rstrip("]")
    lines = enumerate(USER.splitlines(), 1)
    assert found == {k: line.partition("  # ")[2] for k, line in lines if "  # " in line}, (
        run.stdout
    )


@pytest.mark.parametrize("name", ["integrate", "differentiate"])
def test_overloads_take_what_the_function_takes(name: str) -> None:
    function: Callable[..., Any] = getattr(trajcli, name)
    parameters = inspect.signature(function).parameters
    first = {"actions", "start", "dt", "mode"} if name == "integrate" else {"positions"}
    table = getattr(calls, {"integrate": "_Integration", "differentiate": "_Differentiation"}[name])
    assert {*table.__annotations__} | first | {"write"} == {*parameters}


def test_help_of_the_calls_is_a_screen_and_a_half() -> None:
    for function in (trajcli.integrate, trajcli.differentiate):
        documented = str(inspect.getdoc(function))
        lines = len(documented.splitlines()) + len(str(inspect.signature(function))) // 100
        assert lines <= 60
        for name in inspect.signature(function).parameters:
            assert re.search(rf"^ +[\w, ]*\b{name}\b[\w, ]*:", documented, re.MULTILINE), name


def test_the_table_of_options_says_what_modes_have() -> None:
    assert list(MODE_TABLE) == list(MODES)
    for name, kind in MODES.items():
        assert kind.name == name
        assert [field.name for field in fields(kind)] == [x.name for x in MODE_TABLE[name].options]
        for field, option in zip(fields(kind), MODE_TABLE[name].options, strict=True):
            assert field.default in (option.default, None)
    listed = {x.name for entry in MODE_TABLE.values() for x in entry.options}
    assert listed == {x.name for x in (*INTEGRATION, *DIFFERENTIATION)}


def test_literals_are_the_choices_of_the_table() -> None:
    assert {*MODE.choices} == {*MODE_TABLE, *ALIASES} - {"savgol", "smooth"}
    assert {*METHOD.choices} == {*METHODS}
    assert set(METHODS.values()) <= set(MODE_TABLE)


@pytest.mark.parametrize(
    ("function", "options"),
    [
        (trajcli.integrate, (MODE, *INTEGRATION)),
        (trajcli.differentiate, (METHOD, *DIFFERENTIATION)),
        (trajcli.operator, (MODE, *INTEGRATION, DIFFERENTIATION[0])),
    ],
)
def test_calls_take_and_explain_the_options_of_the_table(
    function: Callable[..., Any], options: tuple[Option, ...]
) -> None:
    parameters, documented = inspect.signature(function).parameters, str(inspect.getdoc(function))
    for option in options:
        assert option.name in parameters
        assert parameters[option.name].default in (option.default, None, False)
        if function is trajcli.operator:  # whose options are those of integrate
            continue
        entry = rf"(?ms)^ +[\w, ]*\b{option.name}\b[\w, ]*: (.*?)(?=^ +\w[\w, ]*: |\Z)"
        (text,) = re.findall(entry, documented)
        for choice in {*option.choices} - {"recording"}:
            assert re.search(rf"\b{choice}\b", text), (option.name, choice)


def test_the_quantities_are_named_once() -> None:
    assert get_args(names.QuantityName) == QUANTITIES
