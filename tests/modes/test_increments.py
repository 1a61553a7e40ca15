"""Increments, offsets and absolute dofs in Python: what the shell writes, and differentiable."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import trajcli
from trajcli.cli import main

RNG = np.random.default_rng(3)
B, H, D = 3, 12, 4
ACTIONS = (0.1 * RNG.normal(size=(B, H, D))).astype(np.float32)
POSITION, VELOCITY = RNG.normal(size=(2, B, D))
START = trajcli.State(POSITION, VELOCITY)
LIBRARIES = {"numpy": np.asarray, "torch": torch.as_tensor}
CASES: list[tuple[str, dict[str, Any], str]] = [
    *[
        (mode, {"commands": kind, **absolute}, f"--actions {kind} {option}")
        for mode in ("clique", "central", "teleport", "bspline")
        for kind in ("delta", "relative")
        for absolute, option in (({}, ""), ({"absolute": [3, 1]}, "--absolute 3,1"))
    ],
    ("velocity", {"absolute": slice(2, None)}, "--absolute 2:"),
    ("jerk", {"absolute": [False, False, True, False]}, "--absolute 2"),
    ("acceleration", {"absolute": -1, "alignment": "actions"}, "--absolute 3 --alignment actions"),
]  # fmt: skip


@pytest.mark.parametrize("convert", LIBRARIES.values(), ids=LIBRARIES)
@pytest.mark.parametrize(("mode", "options", "line"), CASES)
def test_actions_that_stand_for_positions_are_read_as_in_the_shell(
    mode: str, options: dict[str, Any], line: str, convert: Any, tmp_path: Path
) -> None:
    np.savez(
        tmp_path / "in.npz", actions=ACTIONS, **{"start/position": POSITION},
        **{"start/velocity": VELOCITY},
    )  # fmt: skip
    source, out = str(tmp_path / "in.npz"), str(tmp_path / "out.npz")
    command = ["integrate", source, "--dt", "0.05", "--mode", mode, *line.split(), "-o", out]
    assert main(command) == 0
    start = trajcli.State(convert(POSITION), convert(VELOCITY))
    made = trajcli.integrate(convert(ACTIONS), start, 0.05, mode, **options)
    want = trajcli.load(out)
    for name, x in made.outputs().items():
        assert str(x.dtype).endswith("float32")
        np.testing.assert_array_equal(np.asarray(x), getattr(want, name), err_msg=name)
    assert dict(made.options) == dict(want.options)


@pytest.mark.parametrize(("mode", "options", "line"), CASES)
def test_gradients_pass_through_what_actions_stand_for(
    mode: str, options: dict[str, Any], line: str
) -> None:
    actions = torch.tensor(ACTIONS[:2, :4], dtype=torch.float64, requires_grad=True)
    start = torch.tensor(POSITION[:2], requires_grad=True)

    def rows(actions: Any, start: Any) -> Any:
        return tuple(trajcli.integrate(actions, start, 0.05, mode, **options))

    assert torch.autograd.gradcheck(rows, (actions, start))


def test_positions_are_the_start_and_what_was_added_to_it() -> None:
    sums = POSITION[:, None] + ACTIONS.astype(np.float64).cumsum(1)
    sums[..., 1] = ACTIONS[..., 1]
    given = {"dt": 0.1, "dtype": "float64"}
    made = trajcli.integrate(ACTIONS, START, mode="clique", commands="delta", absolute=1, **given)
    np.testing.assert_array_equal(made.position[:, 1:], sums)
    made = trajcli.integrate(ACTIONS, START, mode="jerk", absolute=[2], **given)
    want = trajcli.integrate(ACTIONS[..., 2:3], POSITION[:, 2:3], mode="clique", **given)
    np.testing.assert_array_equal(made.position[..., 2:3], want.position)
    rest = trajcli.integrate(ACTIONS, START, mode="jerk", **given)
    np.testing.assert_array_equal(made.velocity[..., [0, 1, 3]], rest.velocity[..., [0, 1, 3]])


def test_padding_does_not_spread() -> None:
    lengths = [12, 5, 5]
    actions = ACTIONS.copy()
    actions[1:, 5:] = np.nan
    given = {"commands": "delta", "absolute": [0], "mode": "central", "dt": 0.1}
    made = trajcli.integrate(actions, START, **given, lengths=lengths)
    for b, n in enumerate(lengths):
        alone = trajcli.integrate(ACTIONS[b, :n], trajcli.State(POSITION[b], VELOCITY[b]), **given)
        for x, y in zip(made, alone, strict=True):
            np.testing.assert_array_equal(x[b, : n + 1], y[0])


@pytest.mark.parametrize(
    ("given", "where"),
    [
        ({"commands": "deltas", "mode": "clique"}, "commands"),
        ({"commands": "delta", "mode": "jerk"}, "commands"),
        ({"absolute": [D]}, "absolute"),
    ],
)
def test_what_no_mode_takes_is_refused(given: dict[str, Any], where: str) -> None:
    with pytest.raises(trajcli.UsageError) as error:
        trajcli.integrate(ACTIONS, START, 0.1, **given)
    assert error.value.faults[0].where == where


def test_rows_of_absolute_dofs_are_of_no_scheme() -> None:
    made = trajcli.integrate(ACTIONS, START, 0.1, "jerk", scheme="zoh", absolute=[1])
    with pytest.raises(trajcli.UsageError, match="absolute"):
        trajcli.sample(made, np.array([0.05]))
    assert trajcli.resample(made, rate=3.0).options["method"] == "linear"
