"""--dofs and --joints: the same dofs in every command, and their names."""

from __future__ import annotations

import json
from pathlib import Path

import h5py
import numpy as np
import pytest
from journeys.arrays import read_h5, same, write_h5

from trajcli import integrate

NAMES = [f"panda_joint{i}" for i in range(1, 8)]
RANDOM = np.random.default_rng(19)


@pytest.fixture
def arm(tmp_path, monkeypatch) -> Path:
    """Eight dofs without names, of which the last is a gripper, and their trajectories."""
    monkeypatch.chdir(tmp_path)
    actions, start = RANDOM.standard_normal((3, 20, 8)), RANDOM.standard_normal((3, 8))
    made = integrate(actions, start, 0.02, mode="velocity")
    outputs = {name: values for name, values in made.outputs().items() if name != "time"}
    write_h5("arm.h5", {**outputs, "@dt": 0.02})
    write_h5("plan.h5", {"start/position": start, "@dt": 0.02}, actions=actions)
    return tmp_path


@pytest.mark.parametrize("dofs", [[0, 1, 2], [6], [7, 1, 5]])
def test_every_command_is_of_the_dofs_that_are_picked(trajcli, arm, dofs):
    """Each beside the same command on a file that holds these dofs alone."""
    joints = [f"j{dof}" for dof in dofs]
    for name, more in (("arm", {"joint_names": joints}), ("plan", {})):
        few = {key: values[..., dofs] for key, values in read_h5(f"{name}.h5").items()}
        write_h5(f"few_{name}.h5", {**few, **more, "@dt": 0.02})
    names = ",".join(joints)
    picks = f"--dofs {','.join(map(str, dofs))} --joints {names}"
    upper = ", ".join(str(limit) for limit in np.linspace(0.5, 2.0, len(dofs)))
    limits = f"joint_names = {json.dumps(joints)}\n[velocity]\nupper = [{upper}]\n"
    Path("limits.toml").write_text(limits)
    for line in (
        "resample {}arm.h5 --to 100",
        "retime {}arm.h5 --limits limits.toml",
        "export {}arm.h5",
        "fit {}arm.h5:position --knots 6 --start rest",
        "integrate {}plan.h5 --mode velocity",
        "resample {}plan.h5 --to 100",
    ):
        trajcli.ok(f"{line.format('')} {picks} -o a.h5 --overwrite")
        trajcli.ok(f"{line.format('few_')} --joints {names} -o b.h5 --overwrite")
        a, b = read_h5("a.h5"), read_h5("b.h5")
        assert a.keys() == b.keys()
        for name, values in b.items():
            same(a[name], values, err_msg=f"{line} {name}")
    sources = (f"arm.h5 {picks}", "few_arm.h5")
    line = "score {} --limits limits.toml --json"
    whole, few = (trajcli(line.format(source)).document["trajectories"] for source in sources)
    assert whole == few
    for line in ("inspect {} --json", "check {} --limits limits.toml --json -v"):
        a, b = (trajcli(line.format(source)) for source in sources)
        assert a.code == b.code, a.err
        text = a.out.replace("arm.h5", "few_arm.h5")
        for position, dof in enumerate(dofs):  # a dof goes by its number in the file
            text = text.replace(f"dof {dof} (j{dof})", f"dof {position} (j{dof})")
        one, two = json.loads(text)["files"][0], b.document
        if "checks" in two:
            for check in (*one["checks"], *two["checks"]):
                check.pop("at", None)
                for about in check.get("dofs", ()):
                    about.pop("dof")
            assert one["checks"] == two["checks"]
        else:
            assert one["joint_names"] == two["joint_names"]
            per_dof = [[d.get("per_dof") for d in of["datasets"] if "per_dof" in d]
                       for of in (one, two)]  # fmt: skip
            assert per_dof[1] == per_dof[0][: len(per_dof[1])]


def test_a_range_names_and_numbers_mean_the_same_dofs(trajcli, arm):
    with h5py.File("arm.h5", "a") as file:
        file["joint_names"] = [*NAMES, "gripper"]
    columns = {"0:7": range(7), "-2:": [6, 7], "panda_joint2,0,-1": [1, 0, 7], ":": range(8),
               "all": range(8), "5:7,0": [5, 6, 0]}  # fmt: skip
    for which, numbers in columns.items():
        trajcli.ok(f"export arm.h5:position --dofs {which} -o out.csv --overwrite")
        with h5py.File("arm.h5") as file, open("out.csv", encoding="utf-8") as out:
            header = out.readline().strip().split(",")
            named = [f"position/{[*NAMES, 'gripper'][number]}" for number in numbers]
            assert header[-len(named) - 1 :] == ["t (s)", *named]
            values = np.loadtxt(out, delimiter=",")[:, -len(named) :]
            same(values, file["position"][:][..., list(numbers)].reshape(-1, len(named)))


def test_joints_make_limits_match(trajcli, arm):
    joint = '<joint name="{}" type="revolute"><limit lower="-9" upper="9" velocity="{}"/></joint>'
    joints = [joint.format(name, 1 + i) for i, name in enumerate([*NAMES, "finger", "tool"])]
    Path("arm.urdf").write_text(f"<robot>{''.join(joints)}</robot>")
    names = "panda_joint5,panda_joint2"
    line = f"check arm.h5:velocity --dofs 4,1 --joints {names} --limits arm.urdf --json"
    report = trajcli(line).document
    (check,) = [one for one in report["checks"] if one["check"] == "velocity limits"]
    outside = np.abs(read_h5("arm.h5")["velocity"][:][..., [4, 1]]) > [5.0, 2.0]
    assert check["failing_values"] == outside.sum() > 0
    assert check["at"]["dof"] == 1
    result = trajcli(f"check arm.h5:velocity --dofs 4,1 --joints a,{NAMES[0]} --limits arm.urdf")
    assert "no limits of a" in result.out or "limits of other joints" in result.err


def test_limits_without_names_are_those_of_the_dofs_in_the_file(trajcli, arm):
    """Eight limits for a file of eight dofs, of which one is looked at."""
    Path("limits.toml").write_text("[velocity]\nupper = [9, 9, 9, 1.5, 9, 9, 9, 9]")
    for which, fails in (("3", True), ("2", False), ("7,3", True), ("-1", False)):
        result = trajcli(f"check arm.h5:velocity --dofs {which} --limits limits.toml")
        assert result.code == fails, result.err
    Path("limits.toml").write_text("[velocity]\nupper = [0.1, 9]")  # two, for two that are picked
    trajcli.fails("check arm.h5:velocity --dofs 6,7 --limits limits.toml")


@pytest.mark.parametrize(
    "command",
    ["integrate plan.h5 -o o.h5", "inspect arm.h5", "plot arm.h5 -o o.png", "check arm.h5",
     "diff arm.h5 arm.h5", "resample arm.h5 --to 100 -o o.h5", "export arm.h5 -o o.csv",
     "retime arm.h5 --limits l.toml -o o.h5", "score arm.h5", "fit arm.h5 --knots 5 -o o.h5"],
)  # fmt: skip
def test_dofs_that_are_not_there_are_exit_2(trajcli, arm, command):
    Path("l.toml").write_text("[velocity]\nupper = [9, 9, 9, 9, 9, 9, 9, 9]")
    for words, message in (
        ("--dofs 8", "numbers from 0 to 7"),
        ("--dofs 0:9", "a range like 0:8"),
        ("--dofs -9", "numbers from 0 to 7"),
        ("--dofs 3:3", "no such dofs"),
        ("--dofs elbow", "there are no names"),
        ("--dofs 1,,2", "no such dofs"),
        ("--dofs 1,0:3", "picked twice"),
        ("--joints a,b", "8 different names"),
        ("--dofs 0:2 --joints a,a", "2 different names"),
        ("--joints ,", "--joints: no names"),
    ):
        trajcli.refuses(f"{command} {words}", message)


def tables(**files: str) -> None:
    """Writes tables with a column of ones, one of twos and so on for joints."""
    for name, joints in files.items():
        heads = ",".join(f"position/{joint}" for joint in joints.split(","))
        rows = "".join(f"{t},1,2\n" for t in range(3))
        Path(f"{name}.csv").write_text(f"t,{heads}\n{rows}")


def test_trajectories_of_other_joints_or_another_order_are_refused(trajcli, folder):
    tables(a="a,b", b="b,a", c="a,c")
    line = "--method backward -o out.h5"
    for other, found in (("b", "b, a"), ("c", "a, c")):
        what = f"{other}.csv:position: trajectories of different joints"
        line_of = f"differentiate a.csv:position {other}.csv:position {line}"
        trajcli.refuses(line_of, what, f"found:    {found}")
    trajcli.ok(f"differentiate a.csv:position b.csv:position --dofs b,a {line}")
    same(read_h5("out.h5")["position"], [[[2, 1]] * 3, [[1, 2]] * 3])
    plans = {f"plan_{k}/joint_names": joints for k, joints in enumerate((["a", "b"], ["b", "a"]))}
    write_h5("plans.h5", {**plans, **{f"plan_{k}/position": np.ones((3, 2)) for k in range(2)}})
    for command in ("export plans.h5 -o out.csv", "resample plans.h5 --to 10 --rate 5 -o r.h5"):
        trajcli.refuses(command, "trajectories of different joints")
    trajcli.ok("inspect plans.h5")
    trajcli.ok("export plans.h5 --dofs a,b -o out.csv")


@pytest.mark.parametrize(
    ("dofs", "kind", "units"),
    [([3, 4, 5], "h5", ""), ([7, 1], "npz", ""), ([7, 1], "h5", " --units deg")],
)
def test_a_start_that_all_trajectories_share_is_of_the_picked_dofs(
    trajcli, folder, dofs, kind, units
):
    random = np.random.default_rng(5)
    actions, start, goal = (random.standard_normal(n) for n in ((3, 9, 8), 8, 8))
    for name, columns in (("whole", slice(None)), ("few", dofs)):
        arrays = {"actions": actions[..., columns], "start/position": start[columns],
                  "start/velocity": goal[columns], "goal/position": goal[columns],
                  "dt": np.array(0.02)}  # fmt: skip
        if kind == "npz":
            np.savez(f"{name}.npz", **arrays)
        else:
            write_h5(f"{name}.h5", arrays)
    picked = f"whole.{kind} --dofs {','.join(map(str, dofs))}"
    for mode in ("acceleration", "central --ends goal"):
        line = f"--mode {mode}{units} --overwrite"
        trajcli.ok(f"integrate {picked} {line} -o a.h5")
        trajcli.ok(f"integrate few.{kind} {line} -o b.h5")
        trajcli.ok("diff a.h5 b.h5")


def test_joints_of_two_files_are_compared_by_the_rule_of_names(trajcli, folder):
    tables(a="pan_joint,elbow", b="pan,elbow.pos", c="elbow.pos,pan")
    line = "--method backward -o out.h5 --overwrite"
    result = trajcli.ok(f"differentiate a.csv:position b.csv:position {line}")
    said = "b.csv:position: joints are matched by name, pan with pan_joint of a.csv:position"
    assert said in " ".join((result.out + result.err).split())
    result = trajcli(f"differentiate a.csv:position a.csv:position {line}")
    assert "matched by name" not in result.out + result.err
    what = "c.csv:position: trajectories of different joints"
    trajcli.refuses(f"differentiate a.csv:position c.csv:position {line}", what)
