"""Gradients from the shell are those of torch."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from journeys.arrays import read_h5, same

from trajcli import State, integrate

QUANTITIES = ("position", "velocity", "acceleration", "jerk")


def gradients(path: str) -> dict[str, np.ndarray]:
    stored = np.load(path) if path.endswith(".npz") else read_h5(path)
    names = [name for name in stored if name.startswith("grad/") or name == "cost"]
    return {name.removeprefix("grad/"): stored[name] for name in names}


def close(actual: np.ndarray, want: torch.Tensor) -> None:
    """Within one unit in the last place of the largest entry's type."""
    expected = want.detach().numpy()
    assert actual.shape == expected.shape
    eps = np.finfo(actual.dtype).eps
    np.testing.assert_allclose(
        actual, expected, rtol=2 * eps, atol=2 * eps * np.abs(expected).max()
    )


@pytest.mark.parametrize(
    ("mode", "options", "memory"),
    [
        ("jerk", {"scheme": "foh"}, "1kB"),
        ("acceleration", {}, "1GB"),
        ("clique", {"convention": "curobo"}, "1kB"),
        ("central", {}, "1GB"),
        ("bspline", {"degree": 4, "steps": 2}, "1kB"),
    ],
)
def test_the_gradient_of_a_cost_is_torchs(trajcli, folder, mode, options, memory):
    words = " ".join(f"--{name} {value}" for name, value in options.items())
    line = f"integrate actions.npy --start start.npy --dt 0.05 --mode {mode} {words} -o out.h5"
    trajcli.ok(f"{line} --cost velocity+0.1*jerk TRAJCLI_MEMORY={memory}")
    u = torch.as_tensor(np.load("actions.npy")).requires_grad_()
    s = torch.as_tensor(np.load("start.npy")).requires_grad_()
    dt = torch.tensor(0.05, dtype=torch.float64, requires_grad=True)
    rows = integrate(u, s, dt, mode, **options)
    cost = (rows.velocity**2).sum((1, 2)) + 0.1 * (rows.jerk**2).sum((1, 2))
    want = torch.autograd.grad(cost.sum(), (u, s, dt))
    grads = gradients("out.h5")
    close(grads["actions"], want[0])
    close(grads["start_position"], want[1])
    assert grads["dt"].shape == (5, 1)
    np.testing.assert_allclose(grads["dt"].sum(), want[2], rtol=1e-5)
    np.testing.assert_allclose(grads["cost"], cost.detach(), rtol=1e-5)
    same(read_h5("out.h5")["position"], rows.position.detach())


@pytest.mark.parametrize(
    "dt", ["0.05", "steps.npy", "each.npy", "both.npy", "--times stamps.npy", "--times own.npy"]
)
def test_upstream_gradients_reach_all_inputs_in_their_shapes_whatever_the_block(
    trajcli, folder, dt
):
    random = np.random.default_rng(5)
    arrays = {
        "steps": random.uniform(0.5, 1, 10),
        "each": random.uniform(0.5, 1, (5, 1)),
        "both": random.uniform(0.5, 1, (5, 10)),
        "stamps": np.cumsum(random.uniform(0.5, 1, 11)),
        "own": np.cumsum(random.uniform(0.5, 1, (5, 11)), 1),
        "index": np.array([1, 0, 1, 1, 0]),
        "wide": np.load("actions.npy").astype("f8"),
        "states": random.standard_normal((2, 3)),
    }
    for name, values in arrays.items():
        np.save(f"{name}.npy", values)
    upstream = {name: random.standard_normal((5, 11, 3)) for name in ("position", "jerk")}
    np.savez("up.npz", **upstream)
    line = "integrate wide.npy --start states.npy --start-index index.npy --mode jerk --scheme zoh"
    line += f" --grad up.npz --grad-factor -2 {dt if dt.startswith('--') else f'--dt {dt}'}"
    for out, memory in (("whole.h5", "1GB"), ("parts.h5", "1kB")):
        trajcli.ok(f"{line} -o {out} TRAJCLI_MEMORY={memory}")
    assert Path("whole.h5").read_bytes() == Path("parts.h5").read_bytes()
    u = torch.as_tensor(arrays["wide"]).requires_grad_()
    s = torch.as_tensor(arrays["states"]).requires_grad_()
    steps = arrays.get(dt.split()[-1].removesuffix(".npy"), 0.05)
    steps = np.diff(steps) if dt.startswith("--") else steps
    d = torch.as_tensor(steps, dtype=torch.float64).requires_grad_()
    rows = integrate(u, s, d, "jerk", scheme="zoh", start_index=arrays["index"])
    want = torch.autograd.grad(
        [rows.position, rows.jerk], (u, s, d), [-2 * torch.as_tensor(x) for x in upstream.values()]
    )
    grads = gradients("whole.h5")
    assert grads["start_position"].shape == (5, 3)
    by_state = np.zeros((2, 3))
    np.add.at(by_state, arrays["index"], grads["start_position"])
    assert grads["dt"].shape == (5, 1 if d.ndim == 0 or d.shape[-1] == 1 else 10)
    by_dt = grads["dt"].sum(0) if d.ndim < 2 else grads["dt"]
    for given, grad in zip((grads["actions"], by_state, by_dt), want, strict=True):
        grad = grad.numpy().reshape(given.shape)
        np.testing.assert_allclose(given, grad, rtol=1e-13, atol=1e-13 * abs(grad).max())


def test_goals_have_gradients_in_an_archive_too(trajcli, folder, samples):
    line = f"integrate {samples}/control_points.npz --mode bspline --ends goal -o g.npz"
    trajcli.ok(f"{line} --cost acceleration")
    names = ("actions", "start_position", "goal_position", "dt")
    with np.load(samples / "control_points.npz") as file:
        actions, start, goal, dt = (torch.as_tensor(file[name]) for name in names)
    goal.requires_grad_()
    rows = integrate(actions, State(start), dt, "bspline", ends="goal", goal=goal)
    (want,) = torch.autograd.grad((rows.acceleration**2).sum(), goal)
    grads = gradients("g.npz")
    assert set(grads) == {*names, "cost"}
    np.testing.assert_allclose(grads["goal_position"], want, rtol=1e-9)


@pytest.mark.parametrize(
    ("options", "parts"),
    [
        ("--cost jerks", ["jerks", "NUMBER*NAME", "velocity"]),
        ("--cost velocity+", ["velocity+", "--cost"]),
        ("--cost velocity**2", ["velocity**2"]),
        ("--cost velocity*jerk", ["velocity*jerk"]),
        ("--cost 2", ["'2'"]),
        ("--cost nan*jerk", ["nan*jerk"]),
        ("--cost jerk+2*jerk", ["jerk comes twice"]),
        ("--cost __import__('os')", ["__import__"]),
        ("--cost jerk --grad up.npz", ["one of them"]),
        ("--grad-factor 2", ["--cost", "--grad"]),
        ("--grad missing.npz", ["missing.npz"]),
        ("--grad up.npz", ["up.npz:jerk", "[5, 11, 3]", "[5, 10, 3]"]),
        ("--grad names.npz", ["named like the outputs", "speed"]),
        ("--cost jerk --grad-factor nan", ["finite"]),
    ],
)
def test_gradients_that_make_no_sense_are_refused(trajcli, folder, options, parts):
    np.savez("up.npz", jerk=np.zeros((5, 10, 3)))
    np.savez("names.npz", speed=np.zeros((5, 11, 3)))
    line = "integrate actions.npy --start start.npy --dt 0.05 -o out.h5"
    trajcli.refuses(f"{line} {options}", *parts)
    assert trajcli(f"{line} --cost", "").code == 2


@pytest.mark.parametrize("name", ["dt", "times"])
def test_steps_read_in_blocks_have_their_own_gradients(trajcli, folder, name):
    random = np.random.default_rng(0)
    steps = random.uniform(0.01, 0.02, (12_000, 100))  # more than is read at once
    stored = steps if name == "dt" else np.insert(np.cumsum(steps, 1), 0, 0.0, 1)
    actions = random.standard_normal((12_000, 100, 1)).astype("f4")
    np.savez("in.npz", actions=actions, **{name: stored})
    trajcli.ok("integrate in.npz --start zero --cost velocity --write position -o out.h5")
    given = torch.as_tensor(steps[-3:]).requires_grad_()
    (integrate(torch.as_tensor(actions[-3:]), "zero", given).velocity ** 2).sum().backward()
    grads = gradients("out.h5")["dt"]
    assert grads.shape == (12_000, 100)
    np.testing.assert_allclose(grads[-3:], given.grad, rtol=1e-5)
