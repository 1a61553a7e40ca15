"""Resampled padded batches, and dofs that are held: as each trajectory alone, and as the shell."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import trajcli

RNG = np.random.default_rng(1)
B, T, D = 6, 40, 3
LENGTHS = np.array([40, 7, 13, 7, 1, 7])
BEHIND = np.arange(T) >= LENGTHS[:, None]
ROWS = RNG.normal(size=(B, T, D)).cumsum(1)
ROWS[1, 5:7] = ROWS[1, 5]  # comes to rest
SPOILED = np.where(BEHIND[..., None], np.nan, ROWS)
STEPS = RNG.uniform(0.01, 0.03, (B, T - 1))
STEPS[3] = STEPS[5]
LIBRARIES = {"numpy": np.asarray, "torch": torch.as_tensor}
CLOCKS: dict[str, dict[str, Any]] = {
    "a number": {"dt": 0.02},
    "steps": {"dt": np.where(BEHIND[:, 1:], np.nan, STEPS)},
    "stamps of all": {"times": np.r_[0.0, STEPS[0].cumsum()]},
}
STAMPS = np.concatenate([np.zeros((B, 1)), STEPS.cumsum(1)], 1)
CLOCKS["stamps"] = {"times": np.where(BEHIND, 0.0, STAMPS)}


def require_equal(padded: Any, alone: list[Any]) -> None:
    for b, one in enumerate(alone):
        rows = one.position.shape[1]
        lengths = [padded.shape[1]] * B if padded.lengths is None else padded.lengths
        assert int(lengths[b]) == rows
        for whole, part in zip(padded, one, strict=True):
            assert (whole is None) == (part is None)
            if whole is not None:
                np.testing.assert_array_equal(np.asarray(whole[b, :rows]), np.asarray(part[0]))
                assert (np.asarray(whole[b, rows:]) == 0.0).all()
        time = np.asarray(padded.time if padded.time.ndim == 1 else padded.time[b])
        np.testing.assert_array_equal(time[:rows], np.ravel(one.time))


@pytest.mark.parametrize("convert", LIBRARIES.values(), ids=LIBRARIES)
@pytest.mark.parametrize("clock", CLOCKS)
@pytest.mark.parametrize("method", ["hold", "linear", "cubic"])
def test_trajectories_of_unequal_length_are_resampled_as_each_alone(
    method: str, clock: str, convert: Any
) -> None:
    at = np.sort(RNG.uniform(0, 1, (B, 5)), 1)
    ends = {
        "a number": (LENGTHS - 1) * 0.02,
        "stamps of all": CLOCKS["stamps of all"]["times"][LENGTHS - 1],
    }.get(clock, STAMPS[np.arange(B), LENGTHS - 1])
    given = {k: convert(x) if np.ndim(x) else x for k, x in CLOCKS[clock].items()}
    for new in ({"rate": 70.0}, {"at": at * ends[:, None]}, {"at": np.zeros(2)}):
        padded = trajcli.resample(
            convert(SPOILED), method, **given, **new, lengths=convert(LENGTHS)
        )  # fmt: skip
        alone = []
        for b, n in enumerate(LENGTHS):
            own = {k: x[b] if np.ndim(x) == 2 else x for k, x in CLOCKS[clock].items()}
            own = {k: x[: n - (k == "dt")] if np.ndim(x) else x for k, x in own.items()}
            mine = {k: x[b] if np.ndim(x) == 2 else x for k, x in new.items()}
            alone.append(trajcli.resample(convert(ROWS[b, :n]), method, **own, **mine))
        require_equal(padded, alone)


def test_a_trajectory_knows_its_lengths() -> None:
    made = trajcli.integrate(SPOILED, "zero", 0.02, "jerk", scheme="zoh", lengths=LENGTHS)
    alone = [
        trajcli.resample(
            trajcli.integrate(ROWS[b, :n], "zero", 0.02, "jerk", scheme="zoh"), rate=70.0
        )
        for b, n in enumerate(LENGTHS)
    ]  # fmt: skip
    require_equal(trajcli.resample(made, rate=70.0), alone)


def test_gradients_reach_the_rows_and_are_zero_in_the_padding() -> None:
    rows = torch.tensor(ROWS[:3, :8], requires_grad=True)

    def new(rows: Any) -> Any:
        made = trajcli.resample(rows, "cubic", rate=33.0, dt=0.1, hold_dofs=[2], lengths=[8, 5, 5])
        return tuple(x for x in made if x is not None)

    assert torch.autograd.gradcheck(new, (rows,))
    sum(x.sum() for x in new(rows)).backward()
    assert (rows.grad[1:, 5:] == 0).all()


def test_a_time_after_the_end_of_a_short_trajectory_is_refused() -> None:
    with pytest.raises(trajcli.InputError) as error:
        trajcli.resample(SPOILED, "linear", at=np.array([0.0, 0.1]), dt=0.02, lengths=LENGTHS)
    assert error.value.faults[0].where.startswith("times")


@pytest.mark.parametrize("convert", LIBRARIES.values(), ids=LIBRARIES)
@pytest.mark.parametrize("which", [[1, 2], slice(1, None), [False, True, True], [-1, 1], [2]])
@pytest.mark.parametrize("method", ["linear", "cubic"])
def test_held_dofs_are_those_of_the_shell(
    which: Any, method: str, convert: Any, tmp_path: Path
) -> None:
    from trajcli.cli import main

    np.savez(tmp_path / "in.npz", position=ROWS, dt=0.02)
    listed = ",".join(map(str, np.arange(D)[which]))
    command = f"resample {tmp_path}/in.npz --to 70 --method {method} --hold-dofs {listed}"
    assert main([*command.split(), "-o", str(tmp_path / "out.npz")]) == 0
    made = trajcli.resample(convert(ROWS), method, rate=70.0, dt=0.02, hold_dofs=which)
    with np.load(tmp_path / "out.npz") as want:
        for name, x in made.outputs().items():
            rounding = 0.0 if isinstance(x, np.ndarray) else 1e-14 * abs(want[name]).max()
            np.testing.assert_allclose(np.asarray(x), want[name], 0.0, rounding, err_msg=name)


def test_a_held_dof_keeps_its_rows_and_stands_still() -> None:
    given = {"rate": 70.0, "dt": 0.02}
    made = trajcli.resample(ROWS, "cubic", **given, hold_dofs=[1])
    steps, curve = (trajcli.resample(ROWS, method, **given) for method in ("hold", "cubic"))
    np.testing.assert_array_equal(made.position[..., 1], steps.position[:, : made.shape[1], 1])
    assert (made.velocity[..., 1] == 0).all()
    np.testing.assert_array_equal(made.velocity[..., [0, 2]], curve.velocity[..., [0, 2]])


@pytest.mark.parametrize("which", [3, [0, 0], [0.5], [True, False], "gripper", [[0], [1, 2]]])
def test_dofs_that_are_not_there_are_refused(which: Any) -> None:
    with pytest.raises(trajcli.UsageError) as error:
        trajcli.resample(ROWS, "linear", rate=10.0, dt=0.1, hold_dofs=which)
    assert error.value.faults[0].where == "hold_dofs"
