"""Padded batches: each trajectory is what it is alone, and nothing of the padding is read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import torch

import trajcli

RNG = np.random.default_rng(0)
B, H, D = 6, 40, 2
LENGTHS = np.array([40, 7, 13, 7, 25, 9])
BEHIND = np.arange(H) >= LENGTHS[:, None]
VALUES = np.where(BEHIND[..., None], np.nan, RNG.normal(size=(B, H, D)).cumsum(1))
STATES = RNG.normal(size=(3, B, D))
STEPS = RNG.uniform(0.01, 0.03, (B, H + 1))
LIBRARIES = {"numpy": np.asarray, "torch": torch.as_tensor}

MODES: list[tuple[str, dict[str, Any]]] = [
    *[(mode, {"scheme": s}) for mode in ("clique", "jerk") for s in ("euler", "zoh", "foh")],
    ("velocity", {"alignment": "actions"}),
    ("acceleration", {"alignment": "curobo"}),
    ("jerk", {"convention": "curobo"}),
    ("teleport", {}),
    ("central", {}),
    ("central", {"ends": "goal"}),
    ("bspline", {}),
    ("bspline", {"ends": "goal", "degree": 5}),
]
METHODS: list[dict[str, Any]] = [
    {"method": "backward"},
    {"method": "central"},
    {"method": "savgol", "window": 7},
    {"method": "savgol"},
    {"method": "smooth", "robust": True},
    {"method": "smooth", "bandlimit": RNG.uniform(3, 9, (B, D))},
]
# what lies behind the last step or stamp of a trajectory
CLOCKS = {
    "a number": lambda n: {"dt": 0.02},
    "steps of all": lambda n: {"dt": np.where(np.arange(n) < LENGTHS.max(), STEPS[0, :n], np.nan)},
    "steps of each": lambda n: {"dt": np.where(BEHIND[:, :n], np.nan, STEPS[:, :n])},
    "stamps of each": lambda n: {"times": STEPS.cumsum(1)},
}


def of_one(values: Any, b: int, entries: int) -> Any:
    """Returns the part of trajectory b, which has so many steps or stamps."""
    values = values if np.ndim(values) < 2 else values[b]
    return values[:entries] if np.ndim(values) and len(values) > 1 else values


def require_equal(padded: Any, alone: list[Any]) -> None:
    for b, one in enumerate(alone):
        rows = one.position.shape[1]
        assert int(padded.lengths[b]) == rows
        for whole, part in zip(padded, one, strict=True):
            np.testing.assert_array_equal(np.asarray(whole[b, :rows]), np.asarray(part[0]))
            assert (np.asarray(whole[b, rows:]) == 0.0).all()
        time = np.asarray(padded.time if padded.time.ndim == 1 else padded.time[b])
        np.testing.assert_array_equal(time[:rows], np.asarray(one.time))
        assert (np.diff(time) > 0).all()
        for name, value in one.options.items():
            mine = padded.options[name]
            np.testing.assert_array_equal(mine[b] if np.ndim(mine) else mine, np.squeeze(value))


@pytest.mark.parametrize("convert", LIBRARIES.values(), ids=LIBRARIES)
@pytest.mark.parametrize("clock", CLOCKS)
@pytest.mark.parametrize(("mode", "options"), MODES)
def test_actions_of_unequal_length_are_integrated_as_each_alone(
    mode: str, options: dict[str, Any], clock: str, convert: Any
) -> None:
    if mode == "bspline" and clock != "a number":
        pytest.skip("knots are uniform")
    times = CLOCKS[clock](H)
    if "times" in times:
        times["times"] = np.where(np.arange(H + 1) > LENGTHS[:, None], 0.0, times["times"])
    states = {"start": trajcli.State(convert(STATES[0]), convert(STATES[1]))}
    if options.get("ends") == "goal":
        states["goal"] = trajcli.State(convert(STATES[2]))

    def alone(b: int) -> trajcli.Trajectory:
        n = int(LENGTHS[b])
        clock = {k: of_one(x, b, n + (k == "times")) for k, x in times.items()}
        own = {k: trajcli.State(*(x[b] for x in s.parts().values())) for k, s in states.items()}
        return trajcli.integrate(convert(VALUES[b, :n]), mode=mode, **options, **clock, **own)

    clocks = {k: convert(x) if np.ndim(x) else x for k, x in times.items()}
    padded = trajcli.integrate(
        convert(VALUES), mode=mode, **options, **clocks, **states, lengths=convert(LENGTHS)
    )
    require_equal(padded, [alone(b) for b in range(B)])


@pytest.mark.parametrize("convert", LIBRARIES.values(), ids=LIBRARIES)
@pytest.mark.parametrize("clock", CLOCKS)
@pytest.mark.parametrize("options", METHODS)
def test_recordings_of_unequal_length_are_differentiated_as_each_alone(
    options: dict[str, Any], clock: str, convert: Any
) -> None:
    times = CLOCKS[clock](H)
    if "times" in times:
        times["times"] = np.where(BEHIND, 0.0, times["times"][:, :H])

    def alone(b: int) -> trajcli.Trajectory:
        n = int(LENGTHS[b])
        own = {k: x[b] if np.ndim(x) == 2 else x for k, x in options.items()}
        clock = {k: of_one(x, b, n) for k, x in times.items()}
        return trajcli.differentiate(convert(VALUES[b, :n]), **own, **clock)

    clocks = {k: convert(x) if np.ndim(x) else x for k, x in times.items()}
    padded = trajcli.differentiate(convert(VALUES), **options, **clocks, lengths=LENGTHS)
    require_equal(padded, [alone(b) for b in range(B)])


def test_rates_with_a_stamp_each_have_lengths_too() -> None:
    times = np.where(BEHIND, 0.0, STEPS[:, :H].cumsum(1))
    padded = trajcli.integrate(VALUES, "zero", mode="velocity", times=times, lengths=LENGTHS)
    alone = [
        trajcli.integrate(VALUES[b, :n], "zero", mode="velocity", times=times[b, :n])
        for b, n in enumerate(LENGTHS)
    ]
    require_equal(padded, alone)


def test_each_trajectory_starts_where_its_index_says() -> None:
    index = np.array([4, 0, 2, 2, 1, 5])
    for mode in ("acceleration", "central"):
        start = {"start": STATES[0], "start_index": index, "dt": 0.02, "mode": mode}
        padded = trajcli.integrate(VALUES, **start, lengths=LENGTHS)
        np.testing.assert_array_equal(padded.position[:, 0], STATES[0][index])


@pytest.mark.parametrize("mode", ["acceleration", "central"])
def test_gradients_are_those_of_each_alone_and_zero_in_the_padding(mode: str) -> None:
    count, lengths = 3, [9, 5, 5]
    actions = torch.randn(count, 9, 2, dtype=torch.float64, requires_grad=True)
    start = torch.randn(count, 2, dtype=torch.float64, requires_grad=True)
    dt = torch.full((count, 9), 0.1, dtype=torch.float64, requires_grad=True)

    def rows(*inputs: Any) -> Any:
        return tuple(trajcli.integrate(*inputs, mode, lengths=lengths))

    assert torch.autograd.gradcheck(rows, (actions, start, dt))
    spoiled = actions.detach().clone()
    spoiled[1:, 5:] = torch.nan
    spoiled.requires_grad_()
    steps = dt.detach().clone()
    steps[1:, 5:] = -1.0
    steps.requires_grad_()
    made = trajcli.integrate(spoiled, start, steps, mode, lengths=lengths)
    (made.position.sum() + made.time.sum()).backward()
    assert (spoiled.grad[1:, 5:] == 0).all()
    assert (steps.grad[1:, 5:] == 0).all()
    assert spoiled.grad.isfinite().all()


@pytest.mark.parametrize(
    ("lengths", "what"),
    [
        ([3, 4], "wrong shape or type"),
        ([[3, 4, 5]], "wrong shape or type"),
        ([1.0, 2.0, 3.0], "wrong shape or type"),
        ([0, 2, 3], "no such length"),
        ([1, -2, 3], "no such length"),
        ([1, 2, 9], "no such length"),
    ],
)
def test_wrong_lengths_are_refused(lengths: Any, what: str) -> None:
    with pytest.raises(trajcli.InputError) as error:
        trajcli.integrate(np.ones((3, 8, 2)), "zero", 0.1, lengths=lengths)
    assert error.value.faults[0].what == what
    assert error.value.faults[0].where.startswith("lengths")


@pytest.mark.parametrize("mode", ["acceleration", "central"])
def test_nan_within_a_trajectory_is_reported_where_the_caller_sees_it(mode: str) -> None:
    values = VALUES.copy()
    values[4, 3, 1] = np.nan
    with pytest.raises(trajcli.InputError) as error:
        trajcli.integrate(values, "zero", 0.1, mode, lengths=LENGTHS)
    assert error.value.faults[0].where == "actions, trajectory 4, step 3, dof 1"


@pytest.mark.parametrize("clock", [c for c in CLOCKS if c != "stamps of each"])
def test_a_recording_may_have_one_row(clock: str) -> None:
    values = np.array([[[1.0], [2.0], [4.0]], [[5.0], [np.nan], [np.nan]]])
    steps = {"dt": 0.5}
    if clock == "steps of all":
        steps = {"dt": np.array([np.nan, 0.5, 0.5])}
    elif clock == "steps of each":
        steps = {"dt": np.array([[np.nan, 0.5, 0.5], [np.nan] * 3])}
    made = trajcli.differentiate(values, method="backward", **steps, lengths=np.array([3, 1]))
    np.testing.assert_array_equal(made.velocity[..., 0], [[2, 2, 4], [0, 0, 0]])


@pytest.mark.parametrize(("mode", "options"), MODES)
def test_actions_may_be_few(mode: str, options: dict[str, Any]) -> None:
    lengths, values = [5, 1, 2, 3, 4], STATES[0, 0] + STATES[:2].reshape(1, -1, D)[:, :5] ** 2
    values = np.concatenate([values + k for k in range(5)])
    goal = {"goal": STATES[2, 0]} if options.get("ends") == "goal" else {}
    given = {"start": STATES[1, 1], "dt": 0.1, "mode": mode, **options, **goal}
    alone = [trajcli.integrate(values[b, :n], **given) for b, n in enumerate(lengths)]
    require_equal(trajcli.integrate(values, **given, lengths=lengths), alone)


@pytest.mark.parametrize("clock", CLOCKS)
@pytest.mark.parametrize("name", ["out.h5", "out.npz"])
def test_what_is_saved_is_read_back_with_its_lengths(tmp_path: Path, name: str, clock: str) -> None:
    made = trajcli.differentiate(
        np.where(BEHIND[..., None], 0.0, VALUES),
        **{k: x[..., :H] if np.ndim(x) else x for k, x in CLOCKS[clock](H).items()},
        lengths=LENGTHS,
    )
    made.save(tmp_path / name)
    read = trajcli.load(tmp_path / name)
    for a, b in zip([*made, made.lengths], [*read, read.lengths], strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(a, b)
    np.testing.assert_array_equal(made.options["bandlimit"], read.options["bandlimit"])
    for b, n in enumerate(LENGTHS):
        np.testing.assert_array_equal(*(np.atleast_2d(t.time)[b % len(np.atleast_2d(t.time)), :n]
                                        for t in (made, read)))  # fmt: skip
    assert (np.diff(read.time) > 0).all()


def test_trajectories_that_end_together_are_saved_as_one_array(tmp_path: Path) -> None:
    trajcli.integrate(torch.zeros(2, 8, 1), "zero", 0.1).save(tmp_path / "out.h5", lengths=[6, 6])
    read = trajcli.load(tmp_path / "out.h5")
    assert read.position.shape == (2, 6, 1)
    assert read.lengths is None


def test_groups_of_an_output_are_loaded_in_natural_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with h5py.File("in.h5", "w") as file:
        for name, n in {"demo_10": 9, "demo_2": 6, "demo_0": 7}.items():
            file[f"data/{name}/actions"] = VALUES[0, :n]
    from trajcli.cli import main

    command = ["integrate", "in.h5:data/*/actions", "--start", "zero", "--mode", "jerk"]
    for out in ("out.h5", "out.npz"):
        assert main([*command, "--rate", "20", "-o", out]) == 0
        read = trajcli.load(out)
        assert read.lengths.tolist() == [8, 7, 10]
        actions = np.where(
            np.arange(9)[:, None] < np.array([7, 6, 9])[:, None, None], VALUES[0, :9], 0
        )
        mine = trajcli.integrate(actions, "zero", 0.05, "jerk", lengths=[7, 6, 9])
        require_equal(mine, [trajcli.Trajectory(
            *(x[b : b + 1, :n] for x in read), read.time[:n], options=read.options
        ) for b, n in enumerate(read.lengths)])  # fmt: skip


@pytest.mark.parametrize("convert", LIBRARIES.values(), ids=LIBRARIES)
@pytest.mark.parametrize("method", ["central", "backward", "smooth"])
def test_recordings_are_split_at_gaps_as_in_the_shell(
    method: str, convert: Any, tmp_path: Path
) -> None:
    times = STEPS[:2, :H].cumsum(1)
    times[0, 9:] += 1.0
    times[0, 36:] += 1.0
    times[0, 38:] += 1.0  # two rows, and two more: too few but for one method
    position = np.nan_to_num(VALUES[[0, 4]])
    np.savez(tmp_path / "in.npz", position=position, time=times)
    source, out = f"{tmp_path}/in.npz", f"{tmp_path}/out.npz"
    command = f"differentiate {source}:position --times {source}:time --max-gap 0.5"
    from trajcli.cli import main

    assert main([*command.split(), "--method", method, "-o", out]) == 0
    given = {"times": convert(times), "method": method, "max_gap": 0.5}
    made = trajcli.differentiate(convert(position), **given)
    with np.load(out) as want:
        names = [name.removesuffix("/time") for name in want.files if name.endswith("/time")]
        groups = [{x: want[f"{name}/{x}"] for x in (*made.outputs(), "time")} for name in names]
        rows = np.array([len(group["time"]) for group in groups])
        stamps = np.array([want[f"{name}/start_stamp"] for name in names])
    assert len(made.lengths) == len(groups) == (5 if method == "backward" else 3)
    recording, first = made.options["recording"], made.options["first_row"]
    for k, n in enumerate(np.asarray(made.lengths)):
        # found by what it starts with
        (number,) = np.flatnonzero((rows == n) & np.isclose(stamps, times[recording[k], first[k]]))
        for name, x in made.outputs().items():
            np.testing.assert_array_equal(np.asarray(x)[k, :n], groups[number][name])
        np.testing.assert_array_equal(np.asarray(made.time)[k, :n], groups[number]["time"])
    made.save(tmp_path / "made.h5")
    again = trajcli.differentiate(convert(position), **given, lengths=[H, 30])
    np.testing.assert_array_equal(np.asarray(again.lengths), [*np.asarray(made.lengths)[:-1], 30])


@pytest.mark.parametrize("given", [{"dt": 0.1}, {"times": STEPS.cumsum(1)[:, :H], "max_gap": -1.0}])
def test_a_gap_is_between_time_stamps(given: dict[str, Any]) -> None:
    with pytest.raises(trajcli.UsageError) as error:
        trajcli.differentiate(np.zeros((B, H, D)), **{"max_gap": 0.5, **given})
    assert error.value.faults[0].where == "max_gap"


def test_rows_behind_the_last_action_have_times_of_their_own() -> None:
    # of steps that trajectories share, each goes on with the last one that is its own
    options: dict[str, Any] = {"mode": "central", "convention": "curobo"}
    steps, actions = np.array([0.1, 0.2, 0.1, 0.3, 0.1, 0.2]), RNG.normal(size=(2, 6, 1))
    for clock in ({"dt": steps}, {"times": np.append(0.0, steps.cumsum())}):
        both = trajcli.integrate(actions, "zero", **clock, **options, lengths=[3, 6])
        for k, count in enumerate((3, 6)):
            own = {name: x[: len(x) - 6 + count] for name, x in clock.items()}
            alone = trajcli.integrate(actions[k, :count], "zero", **own, **options)
            assert both[k, : count + 4].numpy().position.tolist() == alone.position.tolist()
            np.testing.assert_allclose(both.time[k, : count + 4], alone.time, atol=1e-15)
