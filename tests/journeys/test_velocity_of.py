"""trajcli check --velocity-of: delays, wrong rates and noise that the fit must name."""

from __future__ import annotations

import h5py
import numpy as np
import pytest
from scipy import optimize

PHASES = np.array([0.3, 1.1, 2.0])
SPEEDS = np.array([[1.3, 2.9], [0.8, 3.7], [1.9, 2.3]])


def motion(time):
    """Positions and velocities [T, 3], sums of two sines per dof."""
    angle = time[:, None, None] * SPEEDS + PHASES[:, None]
    return np.sin(angle).sum(-1), (SPEEDS * np.cos(angle)).sum(-1)


def write(path, rate=100.0, stated=None, delay=0.0, factor=1.0, noise=0.0, demos=8, still=False):
    """Demos of unequal length at a rate; their velocities late by a delay in seconds."""
    random = np.random.default_rng(0)
    with h5py.File(path, "w") as file:
        for n in range(demos):
            time = n + np.arange(150 + 10 * (n % 3)) / rate
            v = factor * motion(time - delay)[1]
            p = motion(time)[0]
            if still:
                p[:, 1], v[:, 1] = 0.5, 0.0
            file[f"demo_{n}/obs/qpos"] = p
            file[f"demo_{n}/obs/qvel"] = v + noise * random.normal(size=v.shape)
            file[f"demo_{n}/position"] = p  # by which the demos are recognised
        file.attrs["dt"] = 1.0 / (stated or rate)


def found(trajcli, code):
    result = trajcli("check in.h5:obs/qvel --velocity-of obs/qpos --json")
    assert result.code == code, result.err
    (finding,) = [one for one in result.document["checks"] if one["check"] == "velocity"]
    return finding


def test_a_wrong_rate_is_named(trajcli, folder):
    write("in.h5", rate=50.0, stated=30.0)
    finding = found(trajcli, 1)
    assert "fits 50 rows a second, not 30" in finding["text"]
    pair = trajcli("check in.h5 --velocity-of obs/qpos=obs/qvel --json")
    assert (pair.code, pair.document["checks"][-1]) == (1, finding)
    assert finding["rate"]["fitted"] == pytest.approx(50.0, rel=1e-3)
    assert finding["rate"]["stated"] == pytest.approx(30.0)
    assert finding["factors"] == pytest.approx([5 / 3] * 3, rel=1e-3)


@pytest.mark.parametrize("rows", [-7.3, -2.0, 0.0, 0.4, 3.5, 12.0, 16.0])
def test_a_delay_is_found_to_a_part_of_a_row(trajcli, folder, rows):
    write("in.h5", delay=rows / 100)
    finding = found(trajcli, 1 if abs(rows) > 3 else 0)
    assert np.multiply(finding["delays"], 100) == pytest.approx([rows] * 3, abs=0.02)
    assert finding["factors"] == pytest.approx([1.0] * 3, abs=0.01)
    if abs(rows) > 3:
        late = f"{10 * abs(rows):.3g} ms {'late' if rows > 0 else 'early'}"
        assert late in finding["text"]


def test_the_fit_is_that_of_a_search_over_factor_and_delay(trajcli, folder):
    write("in.h5", factor=1.7, delay=0.031, noise=0.05, demos=1)
    finding = found(trajcli, 1)
    with h5py.File("in.h5") as file:
        v = file["demo_0/obs/qvel"][:, 0]
    time = np.arange(len(v)) / 100

    def squares(x):
        return np.sum((v - x[0] * motion(time - x[1])[1][:, 0])[20:-20] ** 2)

    best = optimize.minimize(squares, [1.5, 0.02], method="Nelder-Mead", options={"xatol": 1e-6})
    assert finding["factors"][0] == pytest.approx(best.x[0], rel=0.01)
    # a factor that all dofs share is another rate
    assert finding["rate"]["fitted"] == pytest.approx(170.0, rel=0.01)
    assert finding["delays"][0] * finding["rate"]["fitted"] == pytest.approx(
        best.x[1] * 100, abs=0.15
    )
    with_noise = np.sqrt(best.fun / np.sum(v[20:-20] ** 2))
    assert finding["residuals"][0] == pytest.approx(with_noise, rel=0.15)


def test_velocities_of_another_motion_fit_nothing(trajcli, folder):
    write("in.h5")
    with h5py.File("in.h5", "r+") as file:
        for n in range(8):
            values = file[f"demo_{n}/obs/qvel"]
            values[...] = np.random.default_rng(n).normal(size=values.shape)
    finding = found(trajcli, 1)
    assert "no rate and delay fits" in finding["text"]
    assert finding["rate"]["fitted"] is None


@pytest.mark.parametrize("shape", [(0, 20, 3), (2, 0, 3), (2, 20, 0)])
def test_nothing_to_compare_is_refused(trajcli, folder, shape):
    np.savez("empty.npz", position=np.zeros(shape), velocity=np.zeros(shape), dt=0.1)
    result = trajcli("check empty.npz --velocity-of position=velocity")
    assert result.code == 2
    assert "nothing to compare" in result.err


def test_of_all_arrays_of_a_group_the_velocities_and_positions_are_compared(trajcli, folder):
    times = np.arange(150) / 100.0
    p, v = motion(times)
    np.savez("in.npz", actions=v, position=p, velocity=v, dt=0.01)
    np.savez("turned.npz", actions=p, position=p, velocity=-v, dt=0.01)
    for positions in ("position", "in.npz", "turned.npz"):
        result = trajcli(f"check in.npz --velocity-of {positions}")
        assert result.code == 0, result.out
    assert trajcli("check turned.npz --velocity-of in.npz").code == 1


def test_positions_of_another_shape_are_refused_with_both_shapes(trajcli, folder):
    write("a.h5", demos=2)
    write("b.h5", demos=3)
    result = trajcli("check a.h5:obs/qvel --velocity-of b.h5:obs/qpos")
    assert result.code == 2
    assert "2 × [1, 150, 3], [1, 160, 3], as the velocities" in result.err
    assert "3 × [1, 150, 3], [1, 160, 3], [1, 170, 3]" in result.err
