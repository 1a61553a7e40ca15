"""--dofs and --joints: the same dofs in every command, and their names."""

from __future__ import annotations

import json
from pathlib import Path

import h5py
import numpy as np
import pytest

from trajcli import integrate

NAMES = [f"panda_joint{i}" for i in range(1, 8)]
RANDOM = np.random.default_rng(19)


@pytest.fixture
def arm(tmp_path, monkeypatch) -> Path:
    """Eight dofs without names, of which the last is a gripper, and their trajectories."""
    monkeypatch.chdir(tmp_path)
    actions, start = RANDOM.standard_normal((3, 20, 8)), RANDOM.standard_normal((3, 8))
    made = integrate(actions, start, 0.02, mode="velocity")
    with h5py.File("arm.h5", "w") as file:
        for name in ("position", "velocity", "acceleration", "jerk"):
            file[name] = getattr(made, name)
        file.attrs["dt"] = 0.02
    with h5py.File("plan.h5", "w") as file:
        file["actions"], file["start/position"], file.attrs["dt"] = actions, start, 0.02
    return tmp_path


@pytest.mark.parametrize("dofs", [[0, 1, 2], [6], [5, 0, 3], [7, 1]])
def test_every_command_is_of_the_dofs_that_are_picked(trajcli, arm, dofs):
    """Each beside the same command on a file that holds these dofs alone."""
    with h5py.File("arm.h5") as file, h5py.File("few.h5", "w") as few:
        for name, stored in file.items():
            few[name] = stored[:][..., dofs]
        few.attrs["dt"] = 0.02
        few["joint_names"] = [f"j{dof}" for dof in dofs]
    with h5py.File("plan.h5") as file, h5py.File("few_plan.h5", "w") as few:
        few["actions"], few.attrs["dt"] = file["actions"][:][..., dofs], 0.02
        few["start/position"] = file["start/position"][:][:, dofs]
    names = ",".join(f"j{dof}" for dof in dofs)
    picks = f"--dofs {','.join(map(str, dofs))} --joints {names}"
    upper = ", ".join(str(limit) for limit in np.linspace(0.5, 2.0, len(dofs)))
    Path("limits.toml").write_text(
        f"joint_names = {json.dumps(names.split(','))}\n[velocity]\nupper = [{upper}]\n"
    )
    for line, of_plan in (
        ("resample {} --to 100 -o {}", False),
        ("retime {} --limits limits.toml -o {}", False),
        ("export {} -o {}", False),
        ("fit {}:position --knots 6 --start rest -o {}", False),
        ("integrate {} --mode velocity -o {}", True),
        ("resample {} --to 100 -o {}", True),
    ):
        whole, few = ("plan.h5", "few_plan.h5") if of_plan else ("arm.h5", "few.h5")
        assert trajcli(f"{line.format(whole, 'a.h5')} --overwrite {picks}").code == 0, line
        assert trajcli(f"{line.format(few, 'b.h5')} --overwrite --joints {names}").code == 0, line
        with h5py.File("a.h5") as a, h5py.File("b.h5") as b:
            datasets = [name for name in (*b, *(f"{group}/position" for group in b))
                        if isinstance(b.get(name), h5py.Dataset) and b[name].shape]  # fmt: skip
            assert datasets
            for name in datasets:
                np.testing.assert_array_equal(a[name][()], b[name][()], err_msg=f"{line} {name}")
    scores = [trajcli(f"score {words} --limits limits.toml --json").document
              for words in (f"arm.h5 {picks}", "few.h5")]  # fmt: skip
    assert scores[0]["trajectories"] == scores[1]["trajectories"]
    for line in ("inspect {} --json", "check {} --limits limits.toml --json -v"):
        a, b = (trajcli(line.format(words)) for words in (f"arm.h5 {picks}", "few.h5"))
        assert a.code == b.code, a.err
        text = a.out.replace("arm.h5", "few.h5")
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
        line = f"export arm.h5:position --dofs {which} -o out.csv --overwrite"
        assert trajcli(line).code == 0
        with h5py.File("arm.h5") as file, open("out.csv", encoding="utf-8") as out:
            header = out.readline().strip().split(",")
            named = [f"position/{[*NAMES, 'gripper'][number]}" for number in numbers]
            assert header[-len(named) - 1 :] == ["t (s)", *named]
            values = np.loadtxt(out, delimiter=",")[:, -len(named) :]
            expected = file["position"][:][..., list(numbers)]
            np.testing.assert_array_equal(values, expected.reshape(-1, len(named)))


def test_joints_make_limits_match(trajcli, arm):
    joint = '<joint name="{}" type="revolute"><limit lower="-9" upper="9" velocity="{}"/></joint>'
    joints = [joint.format(name, 1 + i) for i, name in enumerate([*NAMES, "finger", "tool"])]
    Path("arm.urdf").write_text(f"<robot>{''.join(joints)}</robot>")
    names = "panda_joint5,panda_joint2"
    line = f"check arm.h5:velocity --dofs 4,1 --joints {names} --limits arm.urdf --json"
    report = trajcli(line).document
    (check,) = [one for one in report["checks"] if one["check"] == "velocity limits"]
    with h5py.File("arm.h5") as file:
        outside = np.abs(file["velocity"][:][..., [4, 1]]) > [5.0, 2.0]
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
    assert trajcli("check arm.h5:velocity --dofs 6,7 --limits limits.toml").code == 1


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
        result = trajcli(f"{command} {words}")
        assert (result.code, message in result.err) == (2, True), (words, result.err, result.out)
        assert not list(Path().glob("o.*"))


def test_trajectories_of_other_joints_or_another_order_are_refused(trajcli, folder):
    for name, joints, rows in (("a", "a,b", "1,2"), ("b", "b,a", "2,1"), ("c", "a,c", "1,3")):
        heads = ",".join(f"position/{joint}" for joint in joints.split(","))
        Path(f"{name}.csv").write_text(f"t,{heads}\n0,{rows}\n1,{rows}\n2,{rows}\n")
    line = "--method backward -o out.h5 --overwrite"
    for other, found in (("b", "b, a"), ("c", "a, c")):
        result = trajcli(f"differentiate a.csv:position {other}.csv:position {line}")
        assert result.code == 2
        assert f"{other}.csv:position: trajectories of different joints" in result.err
        assert f"found:    {found}" in result.err
    result = trajcli(f"differentiate a.csv:position b.csv:position --dofs b,a {line}")
    assert result.code == 0, result.err
    with h5py.File("out.h5") as file:
        assert np.all(file["position"][:] == [2, 1])
    with h5py.File("plans.h5", "w") as file:
        for k, joints in enumerate((["a", "b"], ["b", "a"])):
            group = file.create_group(f"plan_{k}")
            group["position"], group["joint_names"] = np.ones((3, 2)), joints
    for command in ("export plans.h5 -o out.csv", "resample plans.h5 --to 10 --rate 5 -o r.h5"):
        result = trajcli(command)
        assert result.code == 2
        assert "trajectories of different joints" in result.err
    assert trajcli("inspect plans.h5").code == 0
    assert trajcli("export plans.h5 --dofs a,b -o out.csv").code == 0


@pytest.mark.parametrize("units", ["", " --units deg"])
@pytest.mark.parametrize("kind", ["h5", "npz"])
@pytest.mark.parametrize("dofs", [[3, 4, 5], [7, 1]])
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
            with h5py.File(f"{name}.h5", "w") as file:
                for key, values in arrays.items():
                    file[key] = values
    picked = f"whole.{kind} --dofs {','.join(map(str, dofs))}"
    for mode in ("acceleration", "central --ends goal"):
        line = f"--mode {mode}{units} --overwrite"
        result = trajcli(f"integrate {picked} {line} -o a.h5")
        assert result.code == 0, result.err
        assert trajcli(f"integrate few.{kind} {line} -o b.h5").code == 0
        assert trajcli("diff a.h5 b.h5").code == 0


def test_joints_of_two_files_are_compared_by_the_rule_of_names(trajcli, folder):
    for name, joints in (("a", "pan_joint,elbow"), ("b", "pan,elbow.pos"), ("c", "elbow.pos,pan")):
        heads = ",".join(f"position/{joint}" for joint in joints.split(","))
        Path(f"{name}.csv").write_text(f"t,{heads}\n0,1,2\n1,1,2\n2,1,2\n")
    line = "--method backward -o out.h5 --overwrite"
    result = trajcli(f"differentiate a.csv:position b.csv:position {line}")
    assert result.code == 0, result.err
    said = "b.csv:position: joints are matched by name, pan with pan_joint of a.csv:position"
    assert said in " ".join((result.out + result.err).split())
    result = trajcli(f"differentiate a.csv:position a.csv:position {line}")
    assert "matched by name" not in result.out + result.err
    result = trajcli(f"differentiate a.csv:position c.csv:position {line}")
    assert result.code == 2
    assert "c.csv:position: trajectories of different joints" in result.err
