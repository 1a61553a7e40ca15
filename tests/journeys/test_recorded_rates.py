"""Velocities and accelerations recorded with a stamp each are integrated from the first on."""

from __future__ import annotations

import json

import h5py
import numpy as np
import pytest
from scipy.integrate import cumulative_trapezoid

import trajcli as library
from trajcli import State

MODES = {"velocity": 1, "acceleration": 2, "jerk": 3}
PARTS = ("position", "velocity", "acceleration", "jerk")


def rates(rows: int = 200, dofs: int = 3, batch: int = 1) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(7)
    stamps = np.cumsum(random.uniform(0.008, 0.012, (batch, rows)), 1)
    return stamps, random.standard_normal((batch, rows, dofs)).cumsum(1)


def state(dofs: int, order: int) -> dict[str, np.ndarray]:
    return {name: np.arange(1.0, dofs + 1) * (m + 1) for m, name in enumerate(PARTS[:order])}


def looped(
    stamps: np.ndarray, u: np.ndarray, start: dict[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """Integrates u, linear between its stamps, step by step: n integrals of a line."""
    order = len(start)
    now = [np.array(start[name]) for name in PARTS[:order]]
    rows = [[x.copy() for x in now]]
    for t in range(1, len(u)):
        h, slope = stamps[t] - stamps[t - 1], (u[t] - u[t - 1]) / (stamps[t] - stamps[t - 1])
        above = [*now, u[t - 1], slope]
        factorial = [1.0, 1.0, 2.0, 6.0, 24.0]
        now = [
            sum(above[m + r] * h**r / factorial[r] for r in range(len(above) - m))
            for m in range(order)
        ]
        rows.append([x.copy() for x in now])
    return {name: np.array([row[m] for row in rows]) for m, name in enumerate(PARTS[:order])}


@pytest.mark.parametrize("mode", MODES)
def test_they_are_the_exact_integral_of_the_lines_between_them(mode):
    stamps, u = rates(batch=2)
    start = state(3, MODES[mode])
    made = library.integrate(u, State(**start), times=stamps, mode=mode)
    assert made.position.shape == u.shape
    assert made.options["scheme"] == "foh"
    for b in range(2):
        for name, expected in looped(stamps[b], u[b], start).items():
            scale = abs(expected).max()
            np.testing.assert_allclose(
                made.outputs()[name][b], expected, rtol=0, atol=1e-12 * scale
            )
        np.testing.assert_allclose(made.time[b], stamps[b] - stamps[b, 0], rtol=0, atol=1e-15)
    np.testing.assert_array_equal(made.outputs()[PARTS[MODES[mode]]], u)


def test_the_first_integral_is_that_of_the_trapezoidal_rule():
    stamps, u = rates()
    made = library.integrate(u, "zero", times=stamps[0], mode="velocity")
    expected = cumulative_trapezoid(u[0], stamps[0], axis=0, initial=0.0)
    np.testing.assert_allclose(made.position[0], expected, rtol=0, atol=1e-13)


@pytest.mark.parametrize("mode", MODES)
def test_gradients_reach_every_action_and_agree_with_differences(mode):
    torch = pytest.importorskip("torch")
    stamps, u = rates(rows=6, dofs=2)
    start = {name: torch.tensor(x) for name, x in state(2, MODES[mode]).items()}

    def positions(actions, times):
        return library.integrate(actions, State(**start), times=times, mode=mode).position

    inputs = (torch.tensor(u, requires_grad=True), torch.tensor(stamps[0], requires_grad=True))
    assert torch.autograd.gradcheck(positions, inputs, eps=1e-6, atol=1e-6)
    (grad,) = torch.autograd.grad(positions(*inputs)[0, -1].sum(), inputs[:1])
    assert (grad[0] != 0).all()


def test_a_stamp_more_than_actions_is_that_of_the_start_as_before():
    stamps, u = rates(rows=11)
    made = library.integrate(u[:, 1:], "zero", times=stamps[0], mode="velocity")
    assert made.options["scheme"] == "euler"
    steps = np.diff(stamps[0])[:, None]
    expected = np.concatenate([np.zeros((1, 3)), np.cumsum(steps * u[0, 1:], 0)])
    np.testing.assert_allclose(made.position[0], expected, rtol=0, atol=1e-13)


@pytest.mark.parametrize("scheme", ["euler", "zoh"])
def test_other_schemes_are_refused_in_words_that_help(trajcli, folder, scheme):
    stamps, u = rates()
    with pytest.raises(library.UsageError, match="foh"):
        library.integrate(u, "zero", times=stamps[0], mode="velocity", scheme=scheme)
    np.savez("in.npz", qd=u, t=stamps[0])
    line = "integrate in.npz:qd --times in.npz:t --mode velocity --start zero -o out.h5 --scheme"
    refused = trajcli(f"{line} {scheme}")
    assert refused.code == 2
    assert "--scheme foh" in refused.err
    assert trajcli(f"{line} foh").code == 0


def test_positions_with_a_stamp_each_are_still_no_actions():
    stamps, u = rates()
    with pytest.raises(library.InputError, match="time stamps"):
        library.integrate(u, "zero", times=stamps[0], mode="clique")


def test_a_log_of_velocities_becomes_positions(trajcli, folder):
    stamps, u = rates()
    head = "timestamp," + ",".join(f"actual_qd_{k}" for k in range(3))
    np.savetxt(
        "log.csv", np.column_stack([1.7e9 + stamps[0], u[0]]), delimiter=",", header=head,
        comments="", fmt="%.17g",
    )  # fmt: skip
    line = "integrate log.csv:actual_qd --mode velocity --start 1,2,3 -o out.h5"
    result = trajcli(line)
    assert result.code == 0, result.err
    said = " ".join(result.err.split())
    assert "a time stamp for each row, so these are recorded velocities" in said
    assert "foh (trapezoidal rule)" in said
    with h5py.File("out.h5") as file:
        assert file["position"].shape == (1, 200, 3)
        assert file.attrs["scheme"] == "foh"
        expected = cumulative_trapezoid(u[0], stamps[0], axis=0, initial=0.0) + np.arange(1, 4)
        # stamps since 1970 have 2e-7 s
        np.testing.assert_allclose(file["position"][0], expected, rtol=0, atol=1e-4)
        assert file["start_stamp"][0] == 1.7e9 + stamps[0, 0]
    assert trajcli("check out.h5 --recompute").code == 0


def test_an_imu_in_a_bag_is_integrated_twice(trajcli, folder):
    pytest.importorskip("rosbags")
    from formats.test_bags import BEGIN, Maker

    make, kind = Maker("mcap"), "sensor_msgs/msg/Imu"
    random = np.random.default_rng(2)
    stamps = BEGIN + np.cumsum(random.integers(4_000_000, 6_000_000, 80))
    rows = random.standard_normal((80, 3))

    def vector(x):
        return make("geometry_msgs/msg/Vector3", *map(float, x))

    messages = []
    for stamp, row in zip(stamps.tolist(), rows, strict=True):
        turn = make("geometry_msgs/msg/Quaternion", 0.0, 0.0, 0.0, 1.0)
        zeros = np.zeros(9)
        fields = (turn, zeros, vector(0 * row), zeros, vector(row), zeros)
        messages.append(("/imu", kind, stamp, make(kind, make.header(stamp), *fields)))
    path = make.write("mcap", messages)
    line = f"integrate {path}:/imu/linear_acceleration --start zero -o out.h5"
    result = trajcli(line)
    assert result.code == 0, result.err
    since = (stamps - stamps[0]) / 1e9
    expected = looped(since, rows, {"position": np.zeros(3), "velocity": np.zeros(3)})
    with h5py.File("out.h5") as file:
        np.testing.assert_array_equal(file["acceleration"][0], rows)
        for name, values in expected.items():
            np.testing.assert_allclose(file[name][0], values, rtol=0, atol=1e-12)


def test_gradients_of_a_run_are_those_of_all_recorded_rates(trajcli, folder):
    torch = pytest.importorskip("torch")
    stamps, u = rates(rows=9, batch=3)
    np.savez("in.npz", qdd=u, t=stamps)
    line = "integrate in.npz:qdd --times in.npz:t --start zero --cost position+0.5*velocity"
    result = trajcli(f"{line} -o out.h5")
    assert result.code == 0, result.err
    actions = torch.tensor(u, requires_grad=True)
    made = library.integrate(actions, "zero", times=torch.tensor(stamps))
    cost = (made.position**2).sum() + 0.5 * (made.velocity**2).sum()
    (expected,) = torch.autograd.grad(cost, (actions,))
    with h5py.File("out.h5") as file:
        assert set(file["grad"]) == {"actions", "start_position", "dt"}
        scale = float(expected.abs().max())
        np.testing.assert_allclose(file["grad/actions"], expected, rtol=0, atol=1e-12 * scale)


def test_faults_name_the_row_of_the_file(trajcli, folder):
    stamps, u = rates()
    for row in (0, 7):
        bad = u.copy()
        bad[0, row, 1] = np.nan
        np.savez("in.npz", qd=bad, t=stamps[0])
        line = "integrate in.npz:qd --times in.npz:t --mode velocity --start zero -o out.h5"
        refused = trajcli(line)
        assert refused.code == 2
        assert f"step {row}, dof 1" in " ".join(refused.err.split())
    stamps[0, 7] = stamps[0, 6]
    np.savez("in.npz", qd=u, t=stamps[0])
    refused = trajcli(line)
    assert refused.code == 2
    assert "row 7" in refused.err


def test_padded_trajectories_have_their_own_lengths_and_stamps(trajcli, folder):
    stamps, u = rates(rows=20, batch=2)
    with h5py.File("in.h5", "w") as file:
        file["actions"], file["times"], file["lengths"] = u, stamps, [20, 12]
    result = trajcli("integrate in.h5 --mode velocity --start zero -o out.h5 --json")
    assert result.code == 0, result.err
    assert json.loads(result.out)["rows"] == 20
    with h5py.File("out.h5") as file:
        rows = [file[f"in/trajectory_{k}/position"][()] for k in range(2)]
    for k, count in enumerate((20, 12)):
        expected = cumulative_trapezoid(u[k, :count], stamps[k, :count], axis=0, initial=0.0)
        np.testing.assert_allclose(rows[k], expected, rtol=0, atol=1e-13)


def test_a_start_index_is_refused(folder):
    stamps, u = rates(batch=2)
    with pytest.raises(library.UsageError, match="start index"):
        library.integrate(
            u, np.zeros((3, 3)), times=stamps, mode="velocity", start_index=np.array([0, 2])
        )


def test_rates_are_known_by_their_names(trajcli, folder):
    stamps, u = rates(rows=30)
    head = "timestamp," + ",".join(f"actual_qd_{k}" for k in range(3))
    rows = np.column_stack([stamps[0], 9 * u[0]])
    np.savetxt("log.csv", rows, delimiter=",", header=head, comments="")
    result = trajcli("integrate log.csv:actual_qd --start zero -o out.h5 --json")
    assert result.code == 0, result.err
    assert any("--mode velocity" in note for note in result.document["notes"])
    assert result.document["shape"]["horizon"] == 30
    line = "integrate log.csv:actual_qd --mode velocity --start zero -o out.h5 --overwrite --json"
    notes = trajcli(line).document["notes"]
    assert not any("--mode velocity" in note or "says no unit" in note for note in notes)


def test_columns_of_a_pattern_are_written_by_a_name_that_can_be_read(trajcli, folder):
    stamps, u = rates(rows=30)
    rows = np.column_stack([stamps[0], u[0]])
    np.savetxt("log.csv", rows, delimiter=",", header="t,a_joint,b_joint,g", comments="")
    assert trajcli("resample log.csv:*_joint,g --to 50 -o out.h5").code == 0
    result = trajcli("differentiate out.h5:data --method backward -o again.h5")
    assert result.code == 0, result.err
    with h5py.File("again.h5") as file:
        assert file["dof"].asstr()[:].tolist() == ["a_joint", "b_joint", "g"]
