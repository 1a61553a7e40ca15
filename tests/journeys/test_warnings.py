"""Warnings of angles that wrap, of noise and of normalised commands: who gets them, what they
say, and that following them helps."""

from __future__ import annotations

import json
import re
from pathlib import Path

import h5py
import numpy as np
import pytest
from journeys.arrays import write_h5

RNG = np.random.default_rng(47)
AT = np.arange(400) * 0.01
PI = np.pi


def wrapped(angles, turn=2 * PI):
    return (np.asarray(angles) + turn / 2) % turn - turn / 2


def write(path: str, j1, j6, heading: str = "{}") -> None:
    """Writes two dofs with their names and stamps."""
    names, rows = [heading.format(name) for name in ("j1", "j6")], np.stack([j1, j6], 1)
    kind = path.rpartition(".")[2]
    if kind == "csv":
        table, head = np.c_[np.arange(len(rows)) * 0.01, rows], ",".join(["time", *names])
        np.savetxt(path, table, "%.9g", ",", header=head, comments="")
    elif kind == "parquet":
        arrow = pytest.importorskip("pyarrow")
        import pyarrow.parquet

        columns = {"time": np.arange(len(rows)) * 0.01, names[0]: j1, names[1]: j6}
        pyarrow.parquet.write_table(arrow.table(columns), path)
    else:
        arrays = {"position": rows, "dt": 0.01, "joint_names": np.array(names, "S")}
        np.savez(path, **arrays) if kind == "npz" else write_h5(path, None, **arrays)


COMMANDS = {
    "differentiate": "--method central -o out.h5 --overwrite",
    "resample": "--to 50 --method cubic -o out.h5 --overwrite",
    "fit": "--knots 40 -o out.h5 --overwrite",
    "integrate": "--mode clique --start zero --dt 0.01 -o out.h5 --overwrite",
    "check": "", "score": "", "inspect": "",
}  # fmt: skip
OPTIONS = {"differentiate", "resample", "fit"}
TURN = re.compile(r"(trajcli export )?((?:--units deg )?--wrap-dofs \S+) makes")


@pytest.mark.parametrize(
    ("suffix", "scale"),
    [("csv", 1.0), ("csv", 180 / PI), ("parquet", 180 / PI), ("npz", 180 / PI), ("h5", 1.0)],
)
def test_jumps_of_a_turn_are_pointed_out_until_they_are_undone(trajcli, folder, suffix, scale):
    name = f"log.{suffix}"
    write(name, np.sin(AT) * scale, wrapped(2.5 * AT) * scale)

    def hint(command: str, source: str, options: str = "") -> re.Match[str] | None:
        result = trajcli(f"{command} {source} {COMMANDS[command]} {options} --json")
        assert result.code == (command == "check" and "jumps of a turn" in result.out), result.err
        return TURN.search(" ".join((result.out + result.err).split()))

    for command in COMMANDS:
        said = hint(command, name)
        assert said, command
        assert said[2] == "--units deg " * (scale > 1) + "--wrap-dofs j6"
        assert bool(said[1]) == (command not in OPTIONS)
        if command in OPTIONS:
            assert not hint(command, name, said[2])
    trajcli.ok(f"export {name} {said[2]} -o whole.h5")
    for command in COMMANDS:
        assert not hint(command, "whole.h5"), command
    trajcli.ok("differentiate whole.h5 --method central -o out.h5 --overwrite")
    with h5py.File("out.h5") as file:
        np.testing.assert_allclose(file["velocity"][0, :, 1], 2.5, atol=1e-4)


HOLD = np.repeat(wrapped(2.5 * AT), 5)
KINDS = {  # rows, heading of the column, jumps
    "a turn that creeps": (wrapped(0.5 * AT + PI - 1), "{}", 1),
    "0 to 360": (250 * AT % 360, "{}", 2),
    "degrees by heading": (wrapped(250 * AT, 360), "{} [deg]", 3),
    "a compass of whole degrees": (np.floor(250 * AT % 360), "{}", 2),
    "on the seam": (wrapped(PI + np.where(AT < 2, 0.01, -0.01)), "{}", 1),
    "noise": (wrapped(2.5 * AT + RNG.normal(0, 1e-3, 400)), "{}", 2),
    "rows that are held": (HOLD, "{}", 2),
    "a wheel": (wrapped(0.6 * np.arange(400)), "{} [rad]", 38),
    "both ways": (wrapped(4 * np.sin(2 * AT)), "{}", 5),
    "half turns": (wrapped(2.5 * AT, PI), "{}", 0),
    "half turns of degrees": (wrapped(250 * AT, 180), "{}", 0),
    "metres": (wrapped(2.5 * AT), "{} [m]", 0),
    "velocities": (wrapped(2.5 * AT), "{} [rad/s]", 0),
    "a fast joint sampled slowly": (3.3 * np.sin(2.1 * np.arange(400)), "{}", 0),
    "a fast joint in degrees": (170 * np.sin(1.7 * np.arange(400)), "{}", 0),
    "large noise": (RNG.normal(0, 2, 400), "{}", 0),
    "a step of another size": (np.where(AT < 2, 0, 6) + AT, "{}", 0),
    "a gripper of 0 and 255": (255.0 * (np.sin(3 * AT) > 0), "{}", 0),
    "a gripper of nearly a turn": (np.where(np.arange(400) % 200 < 90, 0, 6.0), "{} [rad]", 0),
    "a gripper from -3.2": (np.where(np.arange(400) % 200 < 90, -3.2, 3.2), "{} [rad]", 0),
    "a wheel of many turns that slips": (10 * AT + 6.28 * (AT > 2), "{} [rad]", 0),
    "dropped rows": (np.where(AT < 2, 50 * AT, 50 * AT + 6.3), "{}", 0),
}


@pytest.mark.parametrize("kind", KINDS)
def test_only_what_a_turn_explains_is_a_jump_of_a_turn(trajcli, folder, kind):
    rows, heading, jumps = KINDS[kind]
    write("log.csv", 0.1 * np.sin(np.arange(len(rows)) * 0.01), rows, heading)
    checks = trajcli("check log.csv --json").document["checks"]
    turns = [check for check in checks if check["check"] == "jumps of a turn"]
    assert [check["failing_values"] for check in turns] == [jumps] * bool(jumps)
    if turns:
        step = int(np.argmax(abs(np.diff(rows)) > 3))
        assert turns[0]["at"] == {"trajectory": 0, "row": step + 1, "dof": 1,
                                  "time": pytest.approx((step + 1) * 0.01)}  # fmt: skip
        assert turns[0]["per_dof"] == [0, jumps]


def test_jumps_are_found_in_long_and_in_many_trajectories(trajcli, folder):
    few = np.sin(np.arange(60_000) * 1e-3)[None, :, None] * np.ones(3)
    few[0, 50_001:, 2] += 2 * PI
    many = np.zeros((20_000, 5, 2), "f4")
    many[[0, 13_000], 3:, 1] = 2 * PI
    for rows, places in ((few, ["row 50001"]), (many, ["row 3", "row 3"])):
        np.savez("in.npz", position=rows, dt=0.01)
        (check,) = [
            check for check in trajcli.fails("check in.npz -v --json").document["checks"]
            if check["check"] == "jumps of a turn"
        ]  # fmt: skip
        assert [re.search(r"row \d+", text)[0] for text in check["failures"]] == places


def test_angles_are_made_continuous_without_times(trajcli, folder):
    np.savez("log.npz", position=wrapped(2.5 * AT)[:, None])
    trajcli.fails("check log.npz")
    trajcli.ok("export log.npz --wrap-dofs 0 -o whole.npz")
    trajcli.ok("check whole.npz")


def ar(deviation: float, share: float = 0.9) -> np.ndarray:
    noise = RNG.normal(0.0, deviation, len(TIME))
    for row in range(1, len(noise)):
        noise[row] += share * noise[row - 1]
    return noise


TIME = np.arange(500) * 0.01
MOTIONS = {
    "a swing": (np.sin(TIME), np.cos(TIME)),
    "two swings": (np.sin(TIME) + 0.3 * np.sin(9 * TIME), np.cos(TIME) + 2.7 * np.cos(9 * TIME)),
    "slow": (0.2 * np.sin(0.3 * TIME), 0.06 * np.cos(0.3 * TIME)),
}
NOISE = {  # what is recorded, and whether a warning of noise must come (None: it may)
    "nothing": (lambda x: x, False),
    "float32": (lambda x: x.astype("f4"), False),
    "nine digits": (lambda x: np.round(x, 9), False),
    "three digits": (lambda x: np.round(x, 3), False),
    "white": (lambda x: x + RNG.normal(0, 1e-3, len(x)), False),
    "below a millionth": (lambda x: x + ar(1e-8), False),
    "AR(1)": (lambda x: x + ar(1e-3), True),
    "AR(1) of 0.7": (lambda x: x + ar(3e-3, 0.7), True),
    "little AR(1)": (lambda x: x + ar(1e-4), None),
    "an encoder": (lambda x: np.round(x / 0.05) * 0.05, None),
    "a fine encoder": (lambda x: np.round(x / 0.003) * 0.003, None),
    "a jump": (lambda x: x + (TIME > 2), False),
}


@pytest.mark.parametrize("noise", NOISE)
def test_following_a_warning_of_noise_comes_closer_to_the_truth(trajcli, folder, noise):
    record, warned = NOISE[noise]
    rows = np.stack([record(x) for x, _ in MOTIONS.values()], 1)
    truth = np.stack([v for _, v in MOTIONS.values()], 1)
    np.savez("in.npz", position=rows, dt=0.01)
    notes = trajcli.ok("differentiate in.npz -o out.h5 --json").document["notes"]
    said = [note for note in notes if "--bandlimit" in note]
    assert warned is None or bool(said) == warned
    if not said:
        return
    with h5py.File("out.h5") as file:
        before = np.sqrt(np.mean((file["velocity"][0] - truth) ** 2, 0))
    # the list of one warning has the cutoffs of all
    words = re.search(r"--bandlimit [\d.,]+", said[0])[0]
    again = trajcli.ok(f"differentiate in.npz {words} -o out.h5 --overwrite --json")
    assert not [note for note in again.document["notes"] if "--bandlimit" in note]
    with h5py.File("out.h5") as file:
        after = np.sqrt(np.mean((file["velocity"][0] - truth) ** 2, 0))
    named = {int(n) for note in said for n in re.findall(r"\d+", note.partition(":")[0])}
    for dof in range(3):
        assert after[dof] < (0.95 if dof in named else 1.01) * before[dof], (dof, before, after)


def test_a_dof_of_two_values_is_called_that(trajcli, folder):
    for low, high in ((0.0, 1.0), (0.0, 0.04), (-1.0, 1.0)):
        open_ = np.where(np.sin(2 * TIME) > 0, high, low)
        np.savez("in.npz", position=np.stack([np.sin(TIME), open_], 1), dt=0.01)
        notes = trajcli.ok("differentiate in.npz -o out.h5 --overwrite --json").document["notes"]
        assert [note for note in notes if "two values" in note and note.startswith("dof 1:")]
        assert not [note for note in notes if "encoder" in note or "--bandlimit" in note]


def robosuite(scale=1.0, **facts):
    """Commands in [-1, 1] of a file like robosuite's, with what it says about its controller."""
    with h5py.File("in.hdf5", "w") as file:
        data = file.create_group("data")
        for name, value in facts.items():
            data.attrs[name] = json.dumps(value)
        for k in range(2):
            group, random = data.create_group(f"demo_{k}"), np.random.default_rng(k)
            group["actions"] = scale * np.clip(random.normal(size=(50, 7)), -1, 1)
            group["obs/robot0_joint_pos"] = np.sin(np.outer(AT[:50], np.arange(1, 8)))


def maniskill(mode: str, scale=1.0):
    with h5py.File("in.h5", "w") as file:
        for k in range(2):
            group, random = file.create_group(f"traj_{k}"), np.random.default_rng(k)
            group["actions"] = (scale * np.clip(random.normal(size=(50, 8)), -1, 1)).astype("f4")
            group["obs/agent/qpos"] = np.zeros((51, 8), "f4")
    Path("in.json").write_text(json.dumps({"env_info": {"env_kwargs": {"control_mode": mode}}}))


def controlled(**controllers):
    return lambda: robosuite(env_args={"env_kwargs": controllers})


OSC = {"type": "OSC_POSE", "control_delta": True}
BODY = {"type": "BASIC", "body_parts": {"right": {"type": "JOINT_VELOCITY"}}}
FILES = {  # what makes the file, the source, and what is named instead of a mode
    "OSC": (controlled(controller_configs=OSC), "", "OSC_POSE"),
    "composite": (controlled(controller_configs=BODY), "", "JOINT_VELOCITY"),
    "two arms": (controlled(controller_configs=[OSC, OSC]), "", "OSC_POSE"),
    "of the collector": (lambda: robosuite(env_info={"controller_configs": OSC}), "", "OSC_POSE"),
    "by name": (controlled(controller_configs=OSC), ":data/demo_1/actions", "OSC_POSE"),
    "the family alone": (robosuite, ":actions", "robomimic"),
    "ManiSkill": (lambda: maniskill("pd_ee_delta_pose"), "", "ManiSkill"),
}  # fmt: skip


@pytest.mark.parametrize("kind", FILES)
def test_normalised_commands_need_a_mode(trajcli, folder, kind):
    make, dataset, named = FILES[kind]
    make()
    source = ("in.h5" if kind == "ManiSkill" else "in.hdf5") + dataset
    line = f"integrate {source} --start zero --dt 0.05 -o out.h5 --overwrite"
    trajcli.refuses(line, "--mode", named, "recorded positions are in.")
    trajcli.refuses(f"{line} --actions delta", "--mode")
    for word in ("--mode acceleration", "TRAJCLI_MODE=velocity", "--mode clique --actions delta"):
        notes = trajcli.ok(f"{line} {word} --json").document["notes"]
        assert len([note for note in notes if "normalised commands" in note]) == 1, word


@pytest.mark.parametrize("make", [
    lambda: robosuite(scale=3.0), lambda: maniskill("pd_joint_delta_pos", 3.0),
    lambda: maniskill("pd_joint_pos"),
])  # fmt: skip
def test_commands_that_are_not_normalised_need_none(trajcli, folder, make):
    make()
    (source,) = Path().glob("in.h*5")
    trajcli.ok(f"integrate {source} --start zero --dt 0.05 -o out.h5")


@pytest.mark.parametrize(("scale", "warned"), [(1.0, True), (0.03, False)])
def test_increments_are_normalised_where_they_are_large(trajcli, folder, scale, warned):
    maniskill("pd_joint_delta_pos", scale)
    for kind in ("delta", "relative"):
        line = f"integrate in.h5 --mode clique --actions {kind} --dt 0.05 --start zero -o {kind}.h5"
        notes = trajcli.ok(f"{line} --json").document["notes"]
        assert any("normalised commands" in note for note in notes) == warned
