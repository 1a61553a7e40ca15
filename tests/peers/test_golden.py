"""Outputs and gradients of cuRobo's own kernels, in float32; tests/data/README.md."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import torch
from exact import QUANTITIES

import trajcli
from trajcli import State

FILE = Path(__file__).resolve().parent.parent / "data" / "curobo.h5"


def cases() -> list[str]:
    with h5py.File(FILE) as file:
        return [f"{mode}/{case}" for mode in file for case in file[mode]]


def with_gradients() -> list[str]:
    with h5py.File(FILE) as file:
        return [case for case in cases() if "grad_actions" in file[case]]


EVERY_CASE = pytest.mark.parametrize("case", cases())


@pytest.fixture
def group(case: str) -> Iterator[Any]:
    with h5py.File(FILE) as file:
        yield file[case]


def state(inputs: Any, role: str) -> State:
    return State(
        *(inputs[f"{role}_{p}"][()] if f"{role}_{p}" in inputs else None for p in QUANTITIES)
    )


def arguments(case: str, group: Any) -> dict[str, Any]:
    """The case in trajcli's words."""
    mode, name = case.split("/")
    inputs = group["input"]
    values: dict[str, Any] = {
        "actions": inputs["actions"][()],
        "start": state(inputs, "start"),
        "dt": inputs["dt"][()],
        "mode": mode,
        "convention": "curobo",
    }
    if "start_index" in inputs:
        values["start_index"] = inputs["start_index"][()]
    if name.endswith("_goal"):
        values |= {"ends": "goal", "goal": state(inputs, "goal")}
    if mode == "bspline":
        values["degree"] = int(group.attrs["degree"])
        values["steps"] = int(group.attrs["interpolation_steps"])
    return values


def assert_close(actual: Any, expected: np.ndarray, name: str) -> None:
    assert actual.shape == expected.shape
    assert actual.dtype == expected.dtype == np.float32
    error = np.abs(actual.astype(np.float64) - expected.astype(np.float64)).max()
    assert error <= 2e-6 * np.abs(expected).max(), name


def test_the_file_has_every_kind_of_case() -> None:
    kinds = {case.split("/")[0] + case.split("/")[1][1:] for case in cases()}
    splines = {f"bspline_degree{d}_{e}" for d in (3, 4, 5) for e in ("rest", "goal")}
    ones = {f"acceleration_{kind}" for kind in ("uniform", "per_step", "start_index")}
    assert kinds == splines | ones | {"clique", "central", "central_hold", "central_goal"}
    assert len(cases()) == 39
    assert len(with_gradients()) == 9


@EVERY_CASE
def test_outputs_are_curobos(case: str, group: Any) -> None:
    trajectory = trajcli.integrate(**arguments(case, group))
    for part in QUANTITIES:
        assert_close(getattr(trajectory, part), group["output"][part][()], part)


@pytest.mark.parametrize("case", [c for c in cases() if c.startswith(("acceleration", "clique"))])
def test_frames_of_curobo_with_steps_one_place_on_are_curobos(case: str, group: Any) -> None:
    values = arguments(case, group)
    del values["convention"]
    if values["dt"].ndim:  # the step into row t is dt[t] there and dt[t − 1] here
        values["dt"] = np.append(values["dt"][1:], np.float32(1.0))
    trajectory = trajcli.integrate(**values, alignment="curobo")
    for part in QUANTITIES:
        assert_close(getattr(trajectory, part), group["output"][part][()], part)


@pytest.mark.parametrize("case", with_gradients())
def test_gradients_are_curobos(case: str, group: Any) -> None:
    values = arguments(case, group)
    values["actions"] = torch.from_numpy(values["actions"]).requires_grad_()
    upstream = [torch.from_numpy(group["upstream"][part][()]) for part in QUANTITIES]
    (grad,) = torch.autograd.grad(tuple(trajcli.integrate(**values)), values["actions"], upstream)
    assert_close(grad.numpy(), group["grad_actions"][()], "grad_actions")
