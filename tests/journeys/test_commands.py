"""--actions delta|relative and --absolute: commands as robot-learning data hold them.

More cases than the suite draws: TRAJCLI_SEED=99 TRAJCLI_CASES=2000 pytest -k anything_absolute
"""

from __future__ import annotations

import os
from pathlib import Path

import h5py
import numpy as np
import pytest
from journeys.arrays import close, read_h5, same, write_h5

from trajcli import integrate

QUANTITIES = ("position", "velocity", "acceleration", "jerk")
MODES = ("clique --scheme zoh", "central", "bspline --steps 2", "teleport", "central --ends goal")
RANDOM = np.random.default_rng(7)


def write(path: str, actions, start, **more) -> None:
    more = {name.replace("__", "/"): values for name, values in more.items()}
    write_h5(path, {"actions": actions, "start/position": start, "@dt": 0.02, **more})


def summed(actions, start, kind: str):
    """Positions to go to."""
    used = actions.astype(np.float64)
    return start.astype(np.float64)[:, None] + (used.cumsum(1) if kind == "delta" else used)


def options_of(words: list[str]) -> dict[str, str | int]:
    """The options that follow a mode, as the library has them."""
    pairs = zip(words[1::2], words[2::2], strict=True)
    return {name[2:]: int(value) if value.isdecimal() else value for name, value in pairs}


def rows(path: str) -> dict[str, np.ndarray]:
    return {name: values for name, values in read_h5(path).items() if name in QUANTITIES}


@pytest.mark.parametrize("kind", ["delta", "relative"])
@pytest.mark.parametrize("mode", MODES)
def test_increments_and_offsets_are_the_positions_that_they_sum_to(trajcli, folder, kind, mode):
    for dofs in (1, 2, 8):
        for dtype in ("f4", "f8"):
            actions = (0.1 * RANDOM.standard_normal((3, 8, dofs))).astype(dtype)
            start = RANDOM.standard_normal((1 if dofs == 2 else 3, dofs)).astype(dtype)
            # near the last of the positions: check finds no jump
            goal = summed(actions, start, kind)[:, -1] + 0.1 * RANDOM.standard_normal((3, dofs))
            write("in.h5", actions, start, goal__position=goal)
            write("sums.h5", summed(actions, start, kind), start, goal__position=goal)
            line = f"--mode {mode} --dtype float{8 * actions.itemsize} --overwrite"
            trajcli.ok(f"integrate in.h5 --actions {kind} {line} -o out.h5")
            trajcli.ok(f"integrate sums.h5 {line} -o expected.h5")
            out, expected = rows("out.h5"), rows("expected.h5")
            for name in QUANTITIES:
                same(out[name], expected[name])
    trajcli.ok("check out.h5 --recompute")


@pytest.mark.parametrize("kind", ["delta", "relative"])
@pytest.mark.parametrize("mode", MODES)
def test_gradients_are_those_of_what_the_file_holds(trajcli, folder, kind, mode):
    torch = pytest.importorskip("torch")
    words = mode.split()
    options = options_of(words)
    actions = 0.1 * RANDOM.standard_normal((3, 6, 4))
    start, goal = RANDOM.standard_normal((3, 4)), RANDOM.standard_normal((3, 4))
    goes = options.get("ends") == "goal"
    write("in.h5", actions, start, **({"goal__position": goal} if goes else {}))
    line = f"integrate in.h5 --mode {mode} --actions {kind} --cost position+0.01*acceleration"
    trajcli.ok(f"{line} -o out.h5")
    x, s, h = (torch.tensor(v, requires_grad=True) for v in (actions, start, np.array(0.02)))
    used = s[:, None] + (x.cumsum(1) if kind == "delta" else x)
    more = {"goal": torch.tensor(goal)} if goes else {}
    made = integrate(used, s, h, mode=words[0], **more, **options)
    ((made.position**2).sum() + 0.01 * (made.acceleration**2).sum()).backward()
    with h5py.File("out.h5") as file:
        for name, values in (("actions", x), ("start_position", s)):
            close(file["grad"][name], values.grad, rtol=1e-9, atol=1e-9)
        close(np.sum(file["grad/dt"]), h.grad, rtol=1e-9)


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("mode", ["jerk", "jerk --alignment curobo", "clique", "central"])
def test_gradients_of_stamps_are_by_the_steps_between_them(trajcli, folder, mode, shared):
    """And a difference of these is what the library gives by stamps."""
    torch = pytest.importorskip("torch")
    name, options = mode.split()[0], options_of(mode.split())
    actions, states = RANDOM.standard_normal((3, 9, 2)), RANDOM.standard_normal((3, 2))
    times = RANDOM.uniform(0.05, 0.2, (1 if shared else 3, 10)).cumsum(1)
    times = times[0] if shared else times
    write("in.h5", actions, states, times=times)
    line = f"integrate in.h5:actions --mode {mode} --times in.h5:times --cost velocity"
    trajcli.ok(f"{line} --start in.h5:start -o out.h5")
    stamps = torch.tensor(times, requires_grad=True)
    made = integrate(
        torch.tensor(actions), torch.tensor(states), times=stamps, mode=name, **options
    )
    (made.velocity**2).sum().backward()
    with h5py.File("out.h5") as file:
        by_steps = file["grad/dt"][:].sum(0) if shared else file["grad/dt"][:]
    by_stamps = -np.diff(by_steps, prepend=0.0, append=0.0)
    close(by_stamps, stamps.grad, rtol=1e-9, atol=1e-9 * abs(by_stamps).max())


@pytest.mark.parametrize(
    "mode",
    ["acceleration --scheme zoh", "central --ends goal", "teleport", "jerk --alignment curobo"],
)
@pytest.mark.parametrize("backend", ["native", "torch"])
def test_a_gripper_is_copied_by_every_backend(trajcli, folder, mode, backend):
    actions = RANDOM.standard_normal((4, 12, 9)).astype("f4")
    start, goal = RANDOM.standard_normal((2, 4, 9)).astype("f4")
    write("in.h5", actions, start, goal__position=goal)
    line = f"integrate in.h5 --absolute 8,2 --mode {mode} -o out.h5"
    trajcli.ok(f"{line} TRAJCLI_BACKEND={backend}")
    copied = np.concatenate([start[:, None], actions], 1)[..., [8, 2]]
    alignment = "curobo" if "curobo" in mode else "full"
    convention = "curobo" if "curobo" in mode else "standard"
    options = {"mode": "clique", "alignment": alignment, "convention": convention}
    moved = integrate(actions[..., [8, 2]], start[:, [8, 2]], 0.02, **options)
    for name in QUANTITIES:
        close(rows("out.h5")[name][..., [8, 2]], getattr(moved, name), rtol=1e-6)
    same(rows("out.h5")["position"][..., [8, 2]], copied[:, : moved.position.shape[1]])
    for words in ("", "--recompute", "--dofs 8,2"):
        trajcli.ok(f"check out.h5 {words}")
    with h5py.File("out.h5", "a") as file:
        file["position"][1, -1, 8] += 0.01
    trajcli.fails("check out.h5 --recompute")


LINES = ("acceleration", "jerk --scheme zoh", "velocity --scheme foh", "clique", "teleport",
         "central", "central --ends goal", "bspline --steps 2", "bspline --ends goal",
         "central --convention curobo", "acceleration --alignment actions")  # fmt: skip
OF_THE_MODE = ("bspline", "central --convention curobo")  # their rows are not one for each action
CASES = int(os.environ.get("TRAJCLI_CASES", "33"))


def test_anything_absolute_is_as_alone_beside_what_is_not(trajcli, folder):
    """Any mode, any kind of actions, any dofs absolute, against the library on either's columns."""
    random = np.random.default_rng(int(os.environ.get("TRAJCLI_SEED", "8")))
    for case in range(CASES):
        line = LINES[case % len(LINES)]
        words = line.split()
        options = options_of(words)
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
        trajcli.ok(f"{command} -o out.h5 --overwrite")
        alone = line.startswith(OF_THE_MODE)
        alignment = {k: v for k, v in options.items() if k == "alignment"}
        for columns, absolute in ((others, False), (chosen, True)):
            if not columns:
                continue
            used = summed(actions, start, kind) if kind and not absolute else actions
            how = {"mode": words[0], **options} if alone or not absolute else alignment
            how |= {"goal": goal[:, columns]} if options.get("ends") == "goal" and alone | (
                not absolute) else {}  # fmt: skip
            made = integrate(used[..., columns], start[:, columns], 0.02,
                             **{"mode": "clique", **how})  # fmt: skip
            for name, values in rows("out.h5").items():
                same(values[..., columns], getattr(made, name), f"{command}: {name}")
        trajcli.ok("check out.h5 --recompute")


def test_a_gripper_of_a_retimed_output_is_known(trajcli, folder):
    write("in.h5", RANDOM.standard_normal((2, 12, 3)), np.zeros((2, 3)))
    trajcli.ok("integrate in.h5 --mode velocity --absolute 2 -o out.h5")
    Path("limits.toml").write_text("[velocity]\nupper = [0.5, 0.5, 0.5]")
    for dofs in ("0:3", "2,0", "1,2"):
        trajcli.ok(f"retime out.h5 --limits limits.toml --dofs {dofs} -o paced.h5 --overwrite")
        trajcli.ok("check paced.h5")


@pytest.mark.parametrize("mode", ["velocity", "jerk", "central", "clique"])
@pytest.mark.parametrize("kind", ["", "delta", "relative"])
def test_gradients_of_a_gripper_are_those_of_its_positions(trajcli, folder, mode, kind):
    torch = pytest.importorskip("torch")
    if kind and mode in ("velocity", "jerk"):
        pytest.skip("positions only")
    actions, start = RANDOM.standard_normal((3, 6, 3)), RANDOM.standard_normal((3, 3))
    write("in.h5", actions, start)
    line = f"integrate in.h5 --mode {mode} --absolute 1 --cost position+0.1*velocity -o out.h5"
    trajcli.ok(line + (f" --actions {kind}" if kind else ""))
    x, s, h = (torch.tensor(v, requires_grad=True) for v in (actions, start, np.array(0.02)))
    used = {"": x, "delta": s[:, None] + x.cumsum(1), "relative": s[:, None] + x}[kind]
    arm = integrate(used[..., [0, 2]], s[:, [0, 2]], h, mode=mode)
    gripper = integrate(x[..., [1]], s[:, [1]], h, mode="clique")
    cost = sum((of.position**2).sum() + 0.1 * (of.velocity**2).sum() for of in (arm, gripper))
    cost.backward()
    with h5py.File("out.h5") as file:
        close(file["grad/actions"], x.grad, rtol=1e-9, atol=1e-12)
        close(file["grad/start_position"], s.grad, rtol=1e-9, atol=1e-12)
        close(np.sum(file["grad/dt"]), h.grad, rtol=1e-9)
        close(np.sum(file["cost"]), cost.item(), rtol=1e-12)


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
    trajcli.refuses(f"integrate in.h5 {words} -o out.h5", message)


def test_nan_among_increments_is_found_where_it_is(trajcli, folder):
    actions = RANDOM.standard_normal((2, 9, 3))
    actions[1, 4, 2] = np.nan
    write("in.h5", actions, np.zeros((2, 3)))
    trajcli.refuses("integrate in.h5 --mode clique --actions delta -o out.h5", "trajectory 1", "4")
