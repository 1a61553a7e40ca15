"""Recordings as robots make them: noise, wrapped angles and gaps, and rates to integrate."""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np
import pytest
from journeys.arrays import close, read_h5, same, write_h5
from scipy.integrate import cumulative_trapezoid

import trajcli as library
from trajcli import State, resample


@pytest.mark.parametrize("more", ["", "--max-gap 100", "--repeated-times drop"])
def test_unwrapping_is_numpys_also_for_half_turns_up_and_down(trajcli, folder, more):
    turns = np.pi * np.array([0, 1, 0, -1, 0, 2, 1, -1, 3, 0.5])
    np.save("turns.npy", np.stack([turns, turns], 1))
    np.save("stamps.npy", np.arange(10.0) ** 1.5)
    line = "differentiate turns.npy --method backward --times stamps.npy --wrap-dofs 0"
    trajcli.ok(f"{line} -o out.h5 {more}")
    with h5py.File("out.h5") as file:
        same(file["position"][0, :, 0], np.unwrap(turns))
        same(file["position"][0, :, 1], turns)


def test_a_window_in_seconds_follows_the_rate(trajcli, folder):
    position = np.random.default_rng(4).normal(size=(90, 2))
    for name, rate in (("a", 100), ("b", 50)):
        np.savez(f"{name}.npz", position=position, dt=1 / rate)
    line = "differentiate a.npz:position b.npz:position --method savgol -o out.h5 --window"
    trajcli.ok(f"{line} 0.3s")
    made = read_h5("out.h5")["velocity"]
    for k, (name, window) in enumerate((("a", 31), ("b", 15))):
        line = f"differentiate {name}.npz:position --method savgol --window {window} -o {name}.h5"
        trajcli.ok(line)
        alone = read_h5(f"{name}.h5")["velocity"][0]
        close(made[k], alone, rtol=0, atol=1e-11 * abs(alone).max())
    assert trajcli("inspect out.h5 --json").document["one_sided"] == 15


def test_one_sided_ends_are_no_peaks(trajcli, folder):
    """Of noise, the largest jerk by far is at an end; without the ends it is like all others."""
    np.savez("in.npz", position=1e-3 * np.random.default_rng(5).normal(size=(4, 300, 2)), dt=0.01)
    trajcli.ok("differentiate in.npz:position --method savgol --window 31 -o out.h5")
    jerk = np.abs(read_h5("out.h5")["jerk"][:])
    inner = jerk[:, 15:-15]
    assert jerk.max() > 2 * inner.max()
    datasets = trajcli("inspect out.h5 --json").document["datasets"]
    (dataset,) = (of for of in datasets if of["name"] == "jerk")
    for dof, of in enumerate(dataset["per_dof"]):
        assert of["peak"] == inner[..., dof].max()
        at = of["at"]
        assert jerk[at["trajectory"], at["row"], dof] == of["peak"]
    assert dataset["max"] >= inner.max()
    assert "peaks without the first and the last 15 rows" in trajcli("inspect out.h5").out
    lines = trajcli("score out.h5 --json").document["trajectories"]
    expected = np.quantile(inner.reshape(4, -1), 0.95, axis=1)
    assert [one["p95_jerk"] for one in lines] == pytest.approx(list(expected))
    assert [one["duration"] for one in lines] == pytest.approx([2.99] * 4)
    assert "without the first and the last 15 rows" in trajcli("score out.h5").out


STAMPS = np.concatenate([np.arange(40) * 0.1, 10 + np.arange(30) * 0.1, [13.0]])
ANGLES = 3.0 * STAMPS


@pytest.fixture
def recording(folder):
    """Two pieces of 40 and 31 rows, a stamp that comes twice, an angle that wraps, in degrees."""
    times, angles = np.insert(STAMPS, 5, STAMPS[5]), np.insert(ANGLES, 5, ANGLES[5])
    position = np.stack([np.angle(np.exp(1j * angles)), np.sin(angles)], 1)
    np.savez("in.npz", position=np.degrees(position), times=times)


@pytest.mark.parametrize("rate", [2000, 1500, 30000, 1970.25])
@pytest.mark.parametrize("rounded", [np.floor, np.rint])
def test_the_rate_of_rows_is_found_under_a_clock_of_milliseconds(rate, rounded):
    rows = np.arange(3000)
    with pytest.raises(library.InputError) as refused:
        library.differentiate(rows[:, None], times=1.7e9 + rounded(rows / rate * 1000) / 1000)
    fault = refused.value.faults[0]
    assert fault.hint.startswith("dt=")
    assert fault.shell.startswith("--rate")
    found = float(fault.shell.split()[1])
    assert float(fault.hint.split()[0].removeprefix("dt=")) == pytest.approx(1 / found, rel=1e-5)
    assert abs(found / rate - 1) < 2 * rate * 1e-3 / len(rows) + 1e-3
    assert found == rate or rate % 1
    twice = np.sort(np.r_[rows, np.random.default_rng(0).integers(0, 3000, 500)])
    with pytest.raises(library.InputError) as refused:  # rows that were logged twice
        library.differentiate(twice[:, None], times=twice / 1000)
    assert "--rate" not in refused.value.faults[0].shell


REPAIR = "--max-gap 1 --repeated-times drop --wrap-dofs 0 --units deg"


@pytest.mark.parametrize(
    "line", ["differentiate in.npz --method backward", "resample in.npz --to 20", "export in.npz"]
)
def test_a_recording_is_split_dropped_and_unwrapped(trajcli, recording, line):
    result = trajcli.ok(f"{line} {REPAIR} -o out.h5")
    assert "split at gaps of more than 1 s: 2 segments" in result.err
    assert "1 row with repeated stamps dropped" in result.err
    with h5py.File("out.h5") as file:
        pieces = [file[f"in/segment_{k}"] for k in range(2)]
        for piece, rows in zip(pieces, (slice(0, 40), slice(40, 71)), strict=True):
            stamps = STAMPS[rows] - STAMPS[rows][0]
            given = np.unwrap(np.angle(np.exp(1j * ANGLES[rows])))
            if line.startswith("resample"):
                given = resample(given[:, None], "linear", rate=20, times=stamps).position[0, :, 0]
            close(piece["position"][:, 0], given, rtol=0, atol=1e-12)
            if line.startswith("differentiate"):
                close(piece["velocity"][:, 0], 3.0, rtol=1e-9)
            assert piece["position"].attrs["units"] == "rad"


def test_a_fit_has_a_curve_for_each_piece(trajcli, recording):
    trajcli.ok(f"fit in.npz --knots 12 {REPAIR} -o out.h5")
    with h5py.File("out.h5") as file:
        assert file["actions"].shape[0] == 2
        assert abs(file["start/position"][1, 0] - np.angle(np.exp(1j * ANGLES[40]))) < 0.1


@pytest.mark.parametrize(
    ("line", "least"),
    [
        ("differentiate in.npz --method savgol --window 0.3s", 5),
        ("differentiate in.npz", 4),
        ("resample in.npz --to 20", 2),
    ],
)
def test_segments_that_are_too_short_are_left_out(trajcli, folder, line, least):
    times = np.arange(100) * 0.01
    times[least - 1 :] += 1.0
    times[60:] += 1.0
    np.savez("in.npz", position=np.sin(times)[:, None] * [1.0, 2.0], times=times)
    result = trajcli.ok(f"{line} --max-gap 0.5 -o out.h5")
    assert f"note: segments of fewer than {least} rows left out: 1" in result.err
    assert len({name.rpartition("/")[0] for name in read_h5("out.h5")} - {""}) == 2
    assert "left out" not in trajcli.ok(f"{line} --max-gap 0.5 -o q.h5 --quiet").err
    trajcli.refuses(f"{line} --max-gap 0.001 -o none.h5")


def test_a_gap_is_a_length_of_time(trajcli, recording):
    for gap in ("0", "-1", "nan"):
        trajcli.refuses(f"resample in.npz --to 20 --max-gap={gap} -o out.h5", "not a gap")


@pytest.mark.parametrize(
    "command", ["inspect", "check", "score", "plot -o fig.svg", "export -o out.csv", "diff in.npz"]
)
def test_every_command_takes_what_says_how_a_source_is_read(trajcli, folder, command):
    np.savez("in.npz", position=np.cumsum(np.random.default_rng(0).normal(size=(2, 30, 3)), 1))
    words, *more = command.split(" ", 1)
    line = f"{words} in.npz {' '.join(more)} --layout plain --units deg --rate 100 --dofs 0,2"
    result = trajcli(f"{line} --joints a,b --episodes 0")
    assert result.code in (0, 1), result.err
    assert "error" not in result.err, result.err
    if words == "inspect":
        assert "at 100 Hz" in result.out
        assert "deg" in result.out or "rad" in result.out


@pytest.mark.parametrize("command", ["differentiate", "resample --to 20", "export"])
def test_a_recording_that_is_split_has_one_stamp_per_row(trajcli, folder, command):
    np.savez("in.npz", position=np.zeros((5, 1)), times=[0.0, 0.1, 0.2, 9.0, 9.1, 9.2])
    words, *more = command.split(" ", 1)
    line = f"{words} in.npz {' '.join(more)} --max-gap 1 -o out.h5"
    trajcli.refuses(line, "wrong number of time stamps")


def test_segments_of_several_recordings_are_told_apart(trajcli, folder):
    np.savez("in.npz", position=np.zeros((2, 4, 1)), times=[0.0, 0.1, 9.0, 9.1])
    trajcli.ok("export in.npz --max-gap 1 -o out.csv")
    names = {line.partition(",")[0] for line in Path("out.csv").read_text().splitlines()[1:]}
    assert names == {f"in/segment_{k}/trajectory_{b}" for k in range(2) for b in range(2)}


MODES = {"velocity": 1, "acceleration": 2, "jerk": 3}
QUANTITIES = ("position", "velocity", "acceleration", "jerk")


def rates(rows: int = 200, dofs: int = 3, batch: int = 1) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(7)
    stamps = np.cumsum(random.uniform(0.008, 0.012, (batch, rows)), 1)
    return stamps, random.standard_normal((batch, rows, dofs)).cumsum(1)


def state(dofs: int, order: int) -> dict[str, np.ndarray]:
    return {name: np.arange(1.0, dofs + 1) * (m + 1) for m, name in enumerate(QUANTITIES[:order])}


@pytest.mark.parametrize("mode", MODES)
def test_recorded_rates_are_integrated_by_foh_from_the_first_on(mode):
    stamps, u = rates(batch=2)
    start, rate = state(3, MODES[mode]), QUANTITIES[MODES[mode]]
    made = library.integrate(u, State(**start), times=stamps, mode=mode)
    assert made.options["scheme"] == "foh"
    begin = State(**start | {rate: u[:, 0]})
    lines = library.integrate(u[:, 1:], begin, times=stamps, mode=mode, scheme="foh")
    for name in QUANTITIES[: MODES[mode]]:
        expected = getattr(lines, name)
        close(getattr(made, name), expected, rtol=0, atol=1e-12 * abs(expected).max())
    close(made.time, stamps - stamps[:, :1], rtol=0, atol=1e-15)
    same(getattr(made, rate), u)


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


def test_one_stamp_more_than_actions_is_the_start():
    stamps, u = rates(rows=11)
    made = library.integrate(u[:, 1:], "zero", times=stamps[0], mode="velocity")
    assert made.options["scheme"] == "euler"
    steps = np.diff(stamps[0])[:, None]
    expected = np.concatenate([np.zeros((1, 3)), np.cumsum(steps * u[0, 1:], 0)])
    close(made.position[0], expected, rtol=0, atol=1e-13)


def test_a_log_of_velocities_becomes_positions(trajcli, folder):
    stamps, u = rates()
    head = "timestamp,actual_qd_0,actual_qd_1,actual_qd_2"
    rows = np.column_stack([1.7e9 + stamps[0], u[0]])
    np.savetxt("log.csv", rows, "%.17g", ",", header=head, comments="")
    result = trajcli.ok("integrate log.csv:actual_qd --mode velocity --start 1,2,3 -o out.h5")
    said = " ".join(result.err.split())
    assert "a time stamp for each row, so these are recorded velocities" in said
    assert "foh (trapezoidal rule)" in said
    with h5py.File("out.h5") as file:
        assert file["position"].shape == (1, 200, 3)
        assert file.attrs["scheme"] == "foh"
        expected = cumulative_trapezoid(u[0], stamps[0], axis=0, initial=0.0) + np.arange(1, 4)
        # stamps since 1970 have 2e-7 s
        close(file["position"][0], expected, rtol=0, atol=1e-4)
        assert file["start_stamp"][0] == 1.7e9 + stamps[0, 0]
    trajcli.ok("check out.h5 --recompute")


def test_gradients_of_a_run_are_those_of_all_recorded_rates(trajcli, folder):
    torch = pytest.importorskip("torch")
    stamps, u = rates(rows=9, batch=3)
    np.savez("in.npz", qdd=u, t=stamps)
    line = "integrate in.npz:qdd --times in.npz:t --start zero --cost position+0.5*velocity"
    trajcli.ok(f"{line} -o out.h5")
    actions = torch.tensor(u, requires_grad=True)
    made = library.integrate(actions, "zero", times=torch.tensor(stamps))
    cost = (made.position**2).sum() + 0.5 * (made.velocity**2).sum()
    (expected,) = torch.autograd.grad(cost, (actions,))
    with h5py.File("out.h5") as file:
        assert set(file["grad"]) == {"actions", "start_position", "dt"}
        scale = float(expected.abs().max())
        close(file["grad/actions"], expected, rtol=0, atol=1e-12 * scale)


def test_faults_name_the_row_of_the_file(trajcli, folder):
    stamps, u = rates()
    for row in (0, 7):
        bad = u.copy()
        bad[0, row, 1] = np.nan
        np.savez("in.npz", qd=bad, t=stamps[0])
        line = "integrate in.npz:qd --times in.npz:t --mode velocity --start zero -o out.h5"
        trajcli.refuses(line, f"step {row}, dof 1")
    stamps[0, 7] = stamps[0, 6]
    np.savez("in.npz", qd=u, t=stamps[0])
    trajcli.refuses(line, "row 7")


def test_padded_trajectories_have_their_own_lengths_and_stamps(trajcli, folder):
    stamps, u = rates(rows=20, batch=2)
    write_h5("in.h5", actions=u, times=stamps, lengths=[20, 12])
    trajcli.ok("integrate in.h5 --mode velocity --start zero -o out.h5")
    for k, count in enumerate((20, 12)):
        expected = cumulative_trapezoid(u[k, :count], stamps[k, :count], axis=0, initial=0.0)
        close(read_h5("out.h5")[f"in/trajectory_{k}/position"], expected, rtol=0, atol=1e-13)


def test_columns_of_a_pattern_get_a_name_that_reads_back(trajcli, folder):
    stamps, u = rates(rows=30)
    rows = np.column_stack([stamps[0], u[0]])
    np.savetxt("log.csv", rows, delimiter=",", header="t,a_joint,b_joint,g", comments="")
    trajcli.ok("resample log.csv:*_joint,g --to 50 -o out.h5")
    trajcli.ok("differentiate out.h5:data --method backward -o again.h5")
    with h5py.File("again.h5") as file:
        assert file["dof"].asstr()[:].tolist() == ["a_joint", "b_joint", "g"]
