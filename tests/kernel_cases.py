"""Inputs that the tests of all kernels share; modes and comparisons for those of Triton's."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import torch

from trajcli import State, integrate

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"

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
    arguments: dict[str, Any] = dict(options)
    arguments["actions"] = random.standard_normal(shape).astype(dtype)
    parts = random.standard_normal((2, 4, B, D)).astype(dtype)
    arguments["start"] = "first" if recorded else State(*parts[0])
    arguments["dt"] = random.uniform(0.01, 0.2, shapes[dt])
    if options.get("ends") == "goal":
        arguments["goal"] = State(*parts[1][: 1 if mode == "central" else 4])
    return arguments


def as_tensors(value: Any) -> Any:
    if isinstance(value, np.ndarray | np.floating):
        return torch.as_tensor(value, device=DEVICE)
    if isinstance(value, State):
        return State(**{name: as_tensors(part) for name, part in value.parts().items()})
    return value


def on_triton(arguments: dict[str, Any], mode: str) -> Any:
    tensors = {name: as_tensors(value) for name, value in arguments.items()}
    return integrate(**tensors, mode=mode, backend="triton")


def assert_close(actual: Any, want: Any, name: str = "") -> None:
    """Within 2 ulp, or 1e-12 of the largest value along the trajectory and dof; float64 within
    1e-15 of the largest value."""
    actual, want = (x.cpu().numpy() if isinstance(x, torch.Tensor) else x for x in (actual, want))
    assert actual.shape == want.shape
    assert actual.dtype == want.dtype
    a, b = actual.astype(np.float64), want.astype(np.float64)
    ulp = np.spacing(np.abs(want)).astype(np.float64)
    if want.dtype == np.float64:
        allowed = 2 * ulp + 1e-15 * np.abs(b).max(initial=0)
    else:
        allowed = 2 * ulp + 1e-12 * np.abs(b).max(axis=1, keepdims=True, initial=0)
    assert (np.abs(a - b) <= allowed).all(), name
