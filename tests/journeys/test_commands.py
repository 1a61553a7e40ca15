"""--actions delta|relative and --absolute: commands as robot-learning data hold them.

More cases than the suite draws: TRAJCLI_SEED=99 TRAJCLI_CASES=2000 pytest -k anything_absolute
"""

from __future__ import annotations

import os
from pathlib import Path

import h5py
import numpy as np
import pytest

from trajcli import integrate

PARTS = ("position", "velocity", "acceleration", "jerk")
MODES = ("clique --scheme zoh", "central", "bspline --steps 2", "teleport", "central --ends goal")
RANDOM = np.random.default_rng(7)


def write(path: str, actions, start, **more) -> None:
    with h5py.File(path, "w") as file:
        file["actions"], file["start/position"], file.attrs["dt"] = actions, start, 0.02
        for name, values in more.items():
            file[name.replace("__", "/")] = values


def summed(actions, start, kind: str):
    """Positions to go to, one by one."""
    used = np.empty(actions.shape, np.float64)
    for b, t, d in np.ndindex(*actions.shape):
        begin = start[b % len(start), d].astype(np.float64)
        if kind == "relative":
            used[b, t, d] = begin + np.float64(actions[b, t, d])
            continue
        total = np.float64(0.0)
        for k in range(t + 1):
            total = total + np.float64(actions[b, k, d])
        used[b, t, d] = begin + total
    return used


def rows(path: str) -> dict[str, np.ndarray]:
    with h5py.File(path) as file:
        return {name: file[name][()] for name in PARTS}


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("kind", ["delta", "relative"])
@pytest.mark.parametrize("mode", MODES)
def test_increments_and_offsets_are_the_positions_that_they_sum_to(trajcli, folder, kind, mode):
    for dofs in (1, 2, 8):
        for dtype in ("f4", "f8"):
            actions = (0.1 * RANDOM.standard_normal((3, 8, dofs))).astype(dtype)
            start = RANDOM.standard_normal((1 if dofs == 2 else 3, dofs)).astype(dtype)
            goal = RANDOM.standard_normal((3, dofs))
            write("in.h5", actions, start, goal__position=goal)
            write("sums.h5", summed(actions, start, kind), start, goal__position=goal)
            line = f"--mode {mode} --dtype float{8 * actions.itemsize} --overwrite"
            result = trajcli(f"integrate in.h5 --actions {kind} {line} -o out.h5")
            assert result.code == 0, result.err
            assert trajcli(f"integrate sums.h5 {line} -o expected.h5").code == 0
            out, expected = rows("out.h5"), rows("expected.h5")
            for name in PARTS:
                np.testing.assert_array_equal(out[name], expected[name])
    assert trajcli("check out.h5 --recompute").code == 0


@pytest.mark.parametrize("kind", ["delta", "relative"])
@pytest.mark.parametrize("mode", MODES)
def test_gradients_are_those_of_what_the_file_holds(trajcli, folder, kind, mode):
    torch = pytest.importorskip("torch")
    words = mode.split()
    options = {words[k].removeprefix("--"): words[k + 1] for k in range(1, len(words), 2)}
    options |= {"steps": int(options["steps"])} if "steps" in options else {}
    actions = 0.1 * RANDOM.standard_normal((3, 6, 4))
    start, goal = RANDOM.standard_normal((3, 4)), RANDOM.standard_normal((3, 4))
    goes = options.get("ends") == "goal"
    write("in.h5", actions, start, **({"goal__position": goal} if goes else {}))
    line = f"integrate in.h5 --mode {mode} --actions {kind} --cost position+0.01*acceleration"
    result = trajcli(f"{line} -o out.h5")
    assert result.code == 0, result.err
    x, s, h = (torch.tensor(v, requires_grad=True) for v in (actions, start, np.array(0.02)))
    used = s[:, None] + (x.cumsum(1) if kind == "delta" else x)
    more = {"goal": torch.tensor(goal)} if goes else {}
    made = integrate(used, s, h, mode=words[0], **more, **options)
    cost = (made.position**2).sum() + 0.01 * (made.acceleration**2).sum()
    cost.backward()
    with h5py.File("out.h5") as file:
        for name, values in (("actions", x), ("start_position", s)):
            np.testing.assert_allclose(file["grad"][name], values.grad, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(np.sum(file["grad/dt"]), h.grad, rtol=1e-9)


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("unit", ["s", "ms"])
@pytest.mark.parametrize(
    "mode",
    ["jerk", "jerk --frames curobo", "clique", "central"],
)
def test_gradients_of_stamps_are_by_the_steps_between_them(trajcli, folder, mode, unit, shared):
    """And a difference of these is what the library gives by stamps."""
    torch = pytest.importorskip("torch")
    name, *words = mode.split()
    options = {words[k].removeprefix("--"): words[k + 1] for k in range(0, len(words), 2)}
    actions, states = RANDOM.standard_normal((3, 9, 2)), RANDOM.standard_normal((3, 2))
    times = RANDOM.uniform(0.05, 0.2, (1 if shared else 3, 10)).cumsum(1)
    times = times[0] if shared else times
    with h5py.File("in.h5", "w") as file:
        file["actions"], file["start/position"] = actions, states
        file["times"] = times * (1.0 if unit == "s" else 1000.0)
        file["times"].attrs["units"] = unit
    line = f"integrate in.h5:actions --mode {mode} --times in.h5:times --cost velocity"
    result = trajcli(f"{line} --start in.h5:start -o out.h5")
    assert result.code == 0, result.err
    stamps = torch.tensor(times, requires_grad=True)
    made = integrate(
        torch.tensor(actions), torch.tensor(states), times=stamps, mode=name, **options
    )
    (made.velocity**2).sum().backward()
    with h5py.File("out.h5") as file:
        by_steps = file["grad/dt"][:].sum(0) if shared else file["grad/dt"][:]
    by_stamps = -np.diff(by_steps, prepend=0.0, append=0.0)
    np.testing.assert_allclose(by_stamps, stamps.grad, rtol=1e-9, atol=1e-9 * abs(by_stamps).max())


@pytest.mark.parametrize(
    "mode",
    ["acceleration --scheme zoh", "jerk --scheme foh", "velocity", "clique", "central",
     "central --ends goal", "teleport", "jerk --frames curobo", "velocity --frames actions"],
)  # fmt: skip
@pytest.mark.parametrize("device", ["", " TRAJCLI_BACKEND=torch"])
def test_a_gripper_is_copied_and_the_arm_is_as_without_it(trajcli, folder, mode, device):
    for dofs, grippers in ((8, [7]), (3, [0]), (9, [8, 2]), (1, [0])):
        actions = RANDOM.standard_normal((4, 12, dofs)).astype("f4")
        start = RANDOM.standard_normal((4, dofs)).astype("f4")
        goal = RANDOM.standard_normal((4, dofs))
        arm = [d for d in range(dofs) if d not in grippers]
        write("in.h5", actions, start, goal__position=goal)
        line = f"--mode {mode} --overwrite{device}"
        which = ",".join(map(str, grippers))
        result = trajcli(f"integrate in.h5 --absolute {which} {line} -o out.h5")
        assert result.code == 0, result.err
        out = rows("out.h5")
        if arm:
            write("arm.h5", actions[..., arm], start[:, arm], goal__position=goal[:, arm])
            assert trajcli(f"integrate arm.h5 {line} -o arm_out.h5").code == 0
            for name, values in rows("arm_out.h5").items():
                np.testing.assert_array_equal(out[name][..., arm], values)
        copied = np.concatenate([start[:, None], actions], 1)[..., grippers]
        copied = copied[:, 1:] if "actions" in mode else copied
        copied = copied[:, :-1] if "curobo" in mode else copied
        np.testing.assert_array_equal(out["position"][..., grippers], copied)
        frames = mode.partition("--frames ")[2] or "full"
        convention = "curobo" if frames == "curobo" else "standard"
        moved = integrate(actions[..., grippers], start[:, grippers], 0.02, mode="clique",
                          frames=frames, convention=convention)  # fmt: skip
        for name in PARTS:
            np.testing.assert_allclose(out[name][..., grippers], getattr(moved, name), rtol=1e-6)
        for words in ("", "--recompute", f"--dofs {which}"):
            result = trajcli(f"check out.h5 {words} --json")
            assert result.code == 0, result.out
    with h5py.File("out.h5", "a") as file:
        file["position"][1, -1, 0] += 0.01
    assert trajcli("check out.h5 --recompute").code == 1


LINES = ("acceleration", "jerk --scheme zoh", "velocity --scheme foh", "clique", "teleport",
         "central", "central --ends goal", "bspline --steps 2", "bspline --ends goal",
         "central --convention curobo", "acceleration --frames actions")  # fmt: skip
OF_THE_MODE = ("bspline", "central --convention curobo")  # their rows are not one for each action
CASES = int(os.environ.get("TRAJCLI_CASES", "60"))


def test_anything_absolute_is_as_alone_beside_what_is_not(trajcli, folder):
    """Any mode, any kind of actions, any dofs absolute, against the library on either's columns."""
    random = np.random.default_rng(int(os.environ.get("TRAJCLI_SEED", "8")))
    for case in range(CASES):
        line = LINES[case % len(LINES)]
        words = line.split()
        options = {words[k].removeprefix("--"): words[k + 1] for k in range(1, len(words), 2)}
        options |= {"steps": int(options["steps"])} if "steps" in options else {}
        positions = words[0] in ("clique", "teleport", "central", "bspline")
        kind = random.choice(["", "delta", "relative"]) if positions else ""
        batch, horizon, dofs = (int(random.integers(1, most)) for most in (5, 12, 9))
        chosen = random.permutation(dofs)[: random.integers(1, dofs + 1)].tolist()
        others = [d for d in range(dofs) if d not in chosen]
        actions = random.standard_normal((batch, horizon, dofs))
        start = random.standard_normal((1 if case % 3 == 0 else batch, dofs))
        goal = random.standard_normal((batch, dofs))
        write("in.h5", actions, start, goal__position=goal)
        which = ",".join(map(str, chosen))
        command = f"integrate in.h5 --mode {line} --absolute {which} --cost velocity+jerk"
        command += f" --actions {kind}" if kind else ""
        result = trajcli(f"{command} -o out.h5 --overwrite")
        assert result.code == 0, (command, result.err)
        alone = line.startswith(OF_THE_MODE)
        frames = {k: v for k, v in options.items() if k == "frames"}
        for columns, absolute in ((others, False), (chosen, True)):
            if not columns:
                continue
            used = summed(actions, start, kind) if kind and not absolute else actions
            how = {"mode": words[0], **options} if alone or not absolute else frames
            how |= {"goal": goal[:, columns]} if options.get("ends") == "goal" and alone | (
                not absolute) else {}  # fmt: skip
            made = integrate(used[..., columns], start[:, columns], 0.02,
                             **{"mode": "clique", **how})  # fmt: skip
            for name, values in rows("out.h5").items():
                np.testing.assert_array_equal(
                    values[..., columns], getattr(made, name), f"{command}: {name}"
                )
        assert trajcli("check out.h5 --recompute").code == 0


def test_a_gripper_of_a_retimed_output_is_known(trajcli, folder):
    write("in.h5", RANDOM.standard_normal((2, 12, 3)), np.zeros((2, 3)))
    assert trajcli("integrate in.h5 --mode velocity --absolute 2 -o out.h5").code == 0
    Path("limits.toml").write_text("[velocity]\nupper = [0.5, 0.5, 0.5]")
    for dofs in ("0:3", "2,0", "1,2"):
        line = f"retime out.h5 --limits limits.toml --dofs {dofs} -o paced.h5 --overwrite"
        assert trajcli(line).code == 0
        assert trajcli("check paced.h5").code == 0


@pytest.mark.parametrize("mode", ["velocity", "jerk", "central", "clique"])
@pytest.mark.parametrize("kind", ["", "delta", "relative"])
def test_gradients_of_a_gripper_are_those_of_its_positions(trajcli, folder, mode, kind):
    torch = pytest.importorskip("torch")
    if kind and mode in ("velocity", "jerk"):
        pytest.skip("positions only")
    actions, start = RANDOM.standard_normal((3, 6, 3)), RANDOM.standard_normal((3, 3))
    write("in.h5", actions, start)
    line = f"integrate in.h5 --mode {mode} --absolute 1 --cost position+0.1*velocity -o out.h5"
    result = trajcli(line + (f" --actions {kind}" if kind else ""))
    assert result.code == 0, result.err
    x, s, h = (torch.tensor(v, requires_grad=True) for v in (actions, start, np.array(0.02)))
    used = {"": x, "delta": s[:, None] + x.cumsum(1), "relative": s[:, None] + x}[kind]
    arm = integrate(used[..., [0, 2]], s[:, [0, 2]], h, mode=mode)
    gripper = integrate(x[..., [1]], s[:, [1]], h, mode="clique")
    cost = sum((of.position**2).sum() + 0.1 * (of.velocity**2).sum() for of in (arm, gripper))
    cost.backward()
    with h5py.File("out.h5") as file:
        np.testing.assert_allclose(file["grad/actions"], x.grad, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(file["grad/start_position"], s.grad, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(np.sum(file["grad/dt"]), h.grad, rtol=1e-9)
        np.testing.assert_allclose(np.sum(file["cost"]), cost.item(), rtol=1e-12)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--mode jerk --actions delta", "delta actions are positions"),
        ("--mode velocity --actions relative", "relative actions are positions"),
        ("--mode clique --actions sum", "delta, relative"),
        ("--mode jerk --absolute 3", "numbers from 0 to 2"),
        ("--mode jerk --absolute gripper", "--absolute"),
        ("--mode jerk --absolute 1,1", "picked twice"),
    ],
)
def test_what_cannot_be_such_commands_is_exit_2(trajcli, folder, words, message):
    write("in.h5", RANDOM.standard_normal((2, 9, 3)), np.zeros((2, 3)))
    result = trajcli(f"integrate in.h5 {words} -o out.h5")
    assert (result.code, message in result.err) == (2, True), result.err
    assert not Path("out.h5").exists()


def test_nan_among_increments_is_found_where_it_is(trajcli, folder):
    actions = RANDOM.standard_normal((2, 9, 3))
    actions[1, 4, 2] = np.nan
    write("in.h5", actions, np.zeros((2, 3)))
    result = trajcli("integrate in.h5 --mode clique --actions delta -o out.h5")
    assert result.code == 2
    assert "trajectory 1" in result.err
    assert "4" in result.err
