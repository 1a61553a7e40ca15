"""Every family from file to file: what is read, in which order, with which dt and start."""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np
import pytest
from layouts import writers

QUANTITIES = ("position", "velocity", "acceleration", "jerk")
GIVEN = writers.demos()


def by_hand(actions, dt, start=None, speed=None):
    """Semi-implicit Euler of accelerations, row by row, in NumPy alone."""
    actions = actions.astype("f8")
    p = np.zeros(actions.shape[1]) if start is None else start.astype("f8")
    v = np.zeros_like(p) if speed is None else speed.astype("f8")
    rows = [[p, v, 0 * p, 0 * p]]
    for a in actions:
        v = v + dt * a
        p = p + dt * v
        rows.append([p, v, a, (a - rows[-1][2]) / dt])
    return dict(zip(QUANTITIES, np.array(rows).transpose(1, 0, 2), strict=True))


def differenced(positions, dt):
    """Backward differences of a recording; what cannot be differenced takes the first that can."""
    found = [positions.astype("f8")]
    for m in range(1, 4):
        values = np.diff(found[-1], axis=0, prepend=found[-1][:1]) / dt
        values[:m] = values[m]
        found.append(values)
    return dict(zip(QUANTITIES, found, strict=True))


def same(group, expected, dtype):
    assert set(QUANTITIES) <= set(group)
    for name, values in expected.items():
        assert group[name].dtype == dtype
        limit = np.abs(values).max() * (1e-6 if dtype == "f4" else 1e-11)
        np.testing.assert_allclose(group[name][:], values, rtol=0, atol=limit)


WRITERS = {
    "robomimic": (writers.robomimic, "data/demo_{}", "env_kwargs.control_freq, 20 Hz", 0.05),
    "mimicgen": (writers.mimicgen, "data/demo_{}", "env_kwargs.control_freq, 20 Hz", 0.05),
    "libero": (writers.libero, "data/demo_{}", "env_kwargs.control_freq, 20 Hz", 0.05),
    "isaaclab": (writers.isaaclab, "data/demo_{}", "sim_args.dt × decimation", 4 / 120),
    "maniskill": (
        lambda path, given: writers.maniskill(path, given, "pd_joint_delta_pos"),
        "traj_{}", "env_info.env_kwargs.sim_config.control_freq, 20 Hz", 0.05,
    ),
}  # fmt: skip
WITHOUT_DT = {
    "robosuite": (writers.robosuite, "data/demo_{}", 1),
    "d4rl": (writers.d4rl, "trajectory_{}", 0),
    "minari": (writers.minari, "episode_{}", 0),
}


@pytest.mark.parametrize("family", WRITERS)
def test_a_family_is_recognised_and_integrated_at_every_trajectorys_own_length(
    trajcli, folder, family
):
    write, group, source, dt = WRITERS[family]
    write(Path("in.h5"), GIVEN)
    result = trajcli("integrate in.h5 -o out.h5 --json", code=0)
    report = result.document
    assert report["layout"] == family
    assert report["dt"] == pytest.approx(dt, rel=1e-15)
    assert report["dt_source"].endswith(source) or source in report["dt_source"]
    assert f"dt {dt:g} s, from " in result.err
    assert f"({family})" in result.err
    assert report["shape"] == {"trajectories": 12, "horizon": 60, "shortest": 18, "dofs": 7}
    assert report["output"] == "groups"
    kind = "f4" if family in ("isaaclab", "maniskill") else "f8"
    with h5py.File("out.h5") as file:
        assert len(file[group.format(0).rpartition("/")[0] or "/"]) in (12, 13)  # and dof
        for i, demo in enumerate(GIVEN):
            start, speed = demo["position"][0].astype(kind), demo["velocity"][0].astype(kind)
            if family == "libero":
                speed = None
            expected = by_hand(demo["actions"].astype(kind), report["dt"], start, speed)
            same(file[group.format(i)], expected, kind)
            time = file[group.format(i)]["time"][:]
            np.testing.assert_allclose(time, dt * np.arange(len(demo["actions"]) + 1), rtol=1e-14)


@pytest.mark.parametrize("family", WITHOUT_DT)
def test_a_family_without_dt_asks_for_it_and_then_runs(trajcli, folder, family):
    write, group, first = WITHOUT_DT[family]
    write(Path("in.h5"), GIVEN)
    trajcli.refuses("integrate in.h5 --start zero -o out.h5", "no time step", f"layout {family}")
    result = trajcli("integrate in.h5 --start zero --rate 25 -o out.h5 --json", code=0)
    assert result.document["layout"] == family
    assert result.document["dt_source"] == "--rate 25"
    kind = "f8" if family == "robosuite" else "f4"
    with h5py.File("out.h5") as file:
        for i, demo in enumerate(GIVEN):
            expected = by_hand(demo["actions"].astype(kind), 0.04)
            same(file[group.format(i + first)], expected, kind)


def test_d4rl_has_start_states_and_rows_after_the_last_end(trajcli, folder):
    writers.d4rl(Path("in.h5"), GIVEN)
    with h5py.File("in.h5", "r+") as file:
        file["terminals"][-1] = file["timeouts"][-1] = False
    trajcli("integrate in.h5 --rate 25 -o out.h5 --dtype float64", code=0)
    with h5py.File("out.h5") as file:
        for i, demo in enumerate(GIVEN):
            actions = demo["actions"].astype("f4")
            expected = by_hand(actions, 0.04, demo["position"][0], demo["velocity"][0])
            same(file[f"trajectory_{i}"], expected, "f8")


@pytest.mark.parametrize(
    ("family", "name", "group"),
    [
        ("maniskill", "obs/agent/qpos", "traj_{}"),
        ("robomimic", "obs/robot0_joint_pos", "data/demo_{}"),
        ("d4rl", "infos/qpos", "trajectory_{}"),
    ],
)
def test_a_start_is_the_first_row_of_an_array(trajcli, folder, family, name, group):
    wide = [demo | {"position": np.c_[demo["position"], demo["position"][:, :2]]} for demo in GIVEN]
    more = ("pd_joint_delta_pos",) if family == "maniskill" else ()
    getattr(writers, family)(Path("in.h5"), wide, *more)
    line = "integrate in.h5 --mode acceleration --rate 20 --dtype float64 -o out.h5 --overwrite"
    trajcli.refuses(f"{line} --start in.h5:{name}", "D = 7", "D = 9", f"'in.h5:{name}[:7]'")
    trajcli.ok(f"{line} --start in.h5:{name}[:7]")
    kind = "f4" if family == "maniskill" else "f8"
    with h5py.File("out.h5") as file:
        for i, demo in enumerate(GIVEN):
            start = demo["position"][0].astype(kind)
            actions = demo["actions"].astype("f8" if family == "robomimic" else "f4")
            same(file[group.format(i)], by_hand(actions, 0.05, start), "f8")
    trajcli.ok(f"{line} --start in.h5:{name} --dofs 0:5 --episodes 10")
    start = GIVEN[10]["position"][0, :5].astype(kind)
    np.testing.assert_array_equal(h5py.File("out.h5")["position"][0, 0], start)
    for wrong in (f"in.h5:{name}x", "in.h5", f"in.h5:{name.rpartition('/')[0]}"):
        trajcli.refuses(f"{line} --start {wrong}", "no such dataset", f"in.h5:{name}, if it is")
    if family != "d4rl":
        one = group.format(10)
        for which, said in ((one, "first row, for all"), (group.format("*"), "first row of each")):
            assert said in trajcli.ok(f"{line} --start in.h5:{which}/{name}[:7]").out
        trajcli.ok(
            f"{line} --start in.h5:{one}/{name}[:7]".replace("in.h5", f"in.h5:{one}/actions", 1)
        )
        np.testing.assert_array_equal(
            h5py.File("out.h5")["position"][0, 0], GIVEN[10]["position"][0].astype(kind)
        )
        trajcli.refuses(f"{line} --start in.h5:{one}")  # a group with actions, and no states


def test_aloha_episodes_are_files_in_natural_order(trajcli, folder):
    for i, demo in enumerate(GIVEN):
        writers.aloha(Path(f"episode_{i}.hdf5"), demo)
    trajcli.refuses("integrate episode_*.hdf5 --mode clique -o out.h5", "ALOHA records at 50 Hz")
    trajcli.refuses(
        "differentiate episode_*.hdf5 --dt 0.02 -o out.h5",
        "episode_0.hdf5:observations/qpos names them",
    )
    result = trajcli(
        "differentiate episode_*.hdf5:observations/qpos --method backward --dt 0.02 "
        "-o out.h5 --json",
        code=0,
    )
    assert result.document["layout"] == "aloha"
    with h5py.File("out.h5") as file:
        assert len([name for name in file if name.startswith("episode_")]) == 12
        for i, demo in enumerate(GIVEN):
            same(file[f"episode_{i}"], differenced(demo["position"][:-1], 0.02), "f8")


@pytest.mark.parametrize(
    ("family", "name"),
    [
        ("robomimic", "obs/robot0_joint_pos"),
        ("robomimic", "/data/demo_*/obs/robot0_joint_pos"),
        ("libero", "obs/joint_states"),
        ("isaaclab", "states/articulation/robot/joint_position"),
        ("maniskill", "obs/agent/qpos"),
        ("maniskill", "traj_*/obs/agent/qpos"),
        ("d4rl", "infos/qpos"),
        ("minari", "observations"),
    ],
)
def test_recorded_positions_are_read_by_name_in_every_trajectory(trajcli, folder, family, name):
    write, group, *_ = {**WRITERS, **WITHOUT_DT}[family]
    write(Path("in.h5"), GIVEN)
    trajcli(f"differentiate in.h5:{name} --method backward --dt 0.05 -o out.h5", code=0)
    shift = {"isaaclab": slice(1, None), "maniskill": slice(None), "minari": slice(None)}
    with h5py.File("out.h5") as file:
        for i, demo in enumerate(GIVEN):
            written = file[group.format(i)]
            positions = demo["position"][shift.get(family, slice(None, -1))]
            positions = positions.astype(written["position"].dtype)
            assert written["position"].shape == positions.shape
            np.testing.assert_array_equal(written["position"][:], positions)
            expected = differenced(positions, 0.05)["velocity"]
            np.testing.assert_allclose(written["velocity"][:], expected, rtol=1e-4, atol=1e-4)


def test_a_filter_key_chooses_trajectories_in_natural_order(trajcli, folder):
    writers.robomimic(Path("in.h5"), GIVEN)
    result = trajcli("integrate in.h5 --filter-key train -o out.h5 --json", code=0)
    assert result.document["shape"]["trajectories"] == 4
    with h5py.File("out.h5") as file:
        assert set(file["data"]) == {"demo_0", "demo_2", "demo_9", "demo_10"}
    line = "differentiate in.h5:data/demo_*/obs/robot0_joint_pos --method backward"
    trajcli(f"{line} --filter-key valid -o one.h5", code=0)
    with h5py.File("one.h5") as file:
        np.testing.assert_array_equal(file["position"][0], GIVEN[1]["position"][:-1])
    trajcli.refuses("integrate in.h5 --filter-key test -o none.h5", "train, valid")
    writers.minari(Path("minari.h5"), GIVEN)
    trajcli.refuses(
        "integrate minari.h5 --dt 1 --start zero --filter-key train -o none.h5", "no filter keys"
    )


def test_actions_in_a_group_are_read_by_name(trajcli, folder):
    writers.minari(Path("in.h5"), GIVEN, grouped=True)
    trajcli.refuses("integrate in.h5 --start zero --dt 1 -o out.h5", "actions/_index_0")
    trajcli("integrate in.h5:actions/_index_0 --start zero --dt 1 -o out.h5", code=0)
    with h5py.File("out.h5") as file:
        same(file["episode_10"], by_hand(GIVEN[10]["actions"].astype("f4"), 1.0), "f4")


def test_a_layout_can_be_chosen_or_refused(trajcli, folder):
    writers.d4rl(Path("in.h5"), GIVEN)
    result = trajcli("integrate in.h5 --layout plain --start zero --dt 1 -o out.h5 --json", code=0)
    assert result.document["layout"] is None
    assert result.document["shape"]["horizon"] == sum(writers.LENGTHS)
    trajcli.refuses(
        "integrate in.h5 --layout robomimic --start zero --dt 1 -o x.h5",
        "no trajectories of layout robomimic",
    )
    trajcli.refuses("integrate in.h5 --layout rlds --start zero --dt 1 -o x.h5", "robomimic")


def test_an_odd_rate_in_a_file_is_no_rate(trajcli, folder):
    for rate in ('"20"', "0", "-5", "true", "NaN", "null", "{}", "1e999",
                 "1" + "0" * 400, "1" + "0" * 6000):  # fmt: skip
        writers.robomimic(Path("in.h5"), GIVEN)
        with h5py.File("in.h5", "r+") as file:
            file["data"].attrs["env_args"] = f'{{"env_kwargs": {{"control_freq": {rate}}}}}'
        trajcli.refuses("integrate in.h5 --start zero -o out.h5", "no time step")
    with h5py.File("in.h5", "r+") as file:
        file["data"].attrs["env_args"] = "[" * 100_000
    trajcli("integrate in.h5 --start zero -o out.h5", code=2)


WARNING = "normalised commands"


@pytest.mark.parametrize("family", [*WRITERS, *WITHOUT_DT])
def test_normalised_commands_are_warned_of_with_the_positions_to_use(trajcli, folder, family):
    write, *_ = {**WRITERS, **WITHOUT_DT}[family]
    write(Path("in.h5"), writers.demos(scale=1.0))
    line = "integrate in.h5 --start zero --dt 0.05 -o out.h5 --overwrite"
    if family in ("robomimic", "mimicgen", "libero", "robosuite", "maniskill"):
        trajcli.refuses(line, "normalised commands", "--mode", "recorded positions")
        line += " --mode acceleration"
    result = trajcli(f"{line} --json")
    assert any(WARNING in note for note in result.document["notes"])
    assert f"warning: all actions lie within [-1, 1], as {WARNING} do" in result.err
    if family == "robosuite":
        assert "no recorded positions" in result.err
    else:
        named = result.err.partition("recorded positions are ")[2].split()[0].strip(",")
        trajcli(f"differentiate {named} --method central --dt 0.05 -o better.h5", code=0)
    assert WARNING in trajcli(f"{line} --mode clique").err


def test_target_positions_that_are_read_otherwise_are_warned_of(trajcli, folder):
    given = writers.demos(scale=3.0)
    told = "are as a rule joint positions to go to"
    writers.aloha(Path("episode_0.hdf5"), given[0])
    writers.maniskill(Path("t.h5"), given, "pd_joint_pos")
    writers.maniskill(Path("delta.h5"), given, "pd_joint_delta_pos")
    line = "--start zero --dt 0.02 -o out.h5 --overwrite"
    for source in ("episode_0.hdf5", "t.h5"):
        assert told in trajcli(f"integrate {source} {line}").err
        assert told not in trajcli(f"integrate {source} --mode clique {line}").err
    recorded = "integrate episode_0.hdf5:observations/qpos --mode velocity"
    for quiet in ("integrate delta.h5", recorded):
        result = trajcli(f"{quiet} {line}")
        assert result.code == 0, result.err
        assert told not in result.err


def test_files_of_different_rates_keep_their_own_and_say_so(trajcli, folder):
    for name, rate in (("left", 20), ("right", 10)):
        writers.robomimic(Path(f"{name}.h5"), GIVEN)
        with h5py.File(f"{name}.h5", "r+") as file:
            file["data"].attrs["env_args"] = f'{{"env_kwargs": {{"control_freq": {rate}}}}}'
    result = trajcli("integrate left.h5 right.h5 --start zero -o out.h5 --json")
    assert result.code == 0, result.err
    assert result.document["dt"] == "varies"
    source = "left.h5:/data@env_args env_kwargs.control_freq, 20 Hz and 1 more"
    assert result.document["dt_source"] == source
    with h5py.File("out.h5") as file:
        for name, dt in (("left", 0.05), ("right", 0.1)):
            same(file[f"{name}/data/demo_10"], by_hand(GIVEN[10]["actions"], dt), "f8")
    trajcli("check out.h5 --recompute", code=0)
