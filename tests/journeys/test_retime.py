"""retime, as a user types it: limits of some joints, what binds, and that check agrees."""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np
import pytest

MODES = [
    *(f"{mode} --scheme {scheme}" for mode in ("acceleration", "jerk")
      for scheme in ("euler", "zoh", "foh")),
    *("velocity --scheme zoh", "clique", "central", "teleport"),
    *("bspline --degree 5 --steps 3", "jerk --frames curobo"),
]  # fmt: skip
QUANTITIES = ("velocity", "acceleration", "jerk")
IN_SI = {"": 1.0, "rad": 1.0, "deg": np.pi / 180, "mm": 0.001}


def rows(kind: str = "f8") -> dict[str, np.ndarray]:
    random = np.random.default_rng(1)
    return {name: random.normal(size=(4, 15, 3)).astype(kind) for name in QUANTITIES}


def write(name: str, joints: str = "", **arrays: np.ndarray) -> None:
    with h5py.File(name, "w") as file:
        for key, values in {**arrays, "dt": 0.1}.items():
            file[key] = values
        if joints:
            file["joint_names"] = list(joints)


def limits(text: str, name: str = "limits.toml") -> None:
    Path(name).write_text(text)


@pytest.mark.parametrize(
    ("mode", "kind"), [(mode, ("f4", "f8")[k % 2]) for k, mode in enumerate(MODES)]
)
def test_what_is_retimed_passes_check_with_the_same_limits(trajcli, folder, mode, kind):
    for turn in range(4):
        random = np.random.default_rng([turn, MODES.index(mode), kind == "f4"])
        batch, rows, dofs = (int(random.integers(*of)) for of in ((1, 5), (9, 50), (1, 5)))
        scale, dt, data = 10 ** random.uniform(-4, 4), 10 ** random.uniform(-3, 0), turn % 3
        actions = np.cumsum(random.normal(size=(batch, rows, dofs)) * scale, 1)
        with h5py.File("in.h5", "w") as file:
            file["joint_names"] = [f"j{k}" for k in range(dofs)]
            for b in range(batch):  # of unequal length
                length = int(random.integers(9, rows + 1))
                file[f"d_{b}/actions"] = actions[b, :length].astype(kind)
                file[f"d_{b}/dt"] = dt
                file[f"d_{b}/start/position"] = random.normal(size=dofs) * scale
        unit = ("rad", "deg", "mm")[data]
        assert (
            trajcli(f"integrate in.h5 --mode {mode} --units {unit} -o out.h5 --overwrite").code == 0
        )
        peaks = dict.fromkeys(QUANTITIES, 1e-30)
        with h5py.File("out.h5") as file:
            for b in range(batch):
                for name in QUANTITIES:
                    values = file[f"d_{b}/{name}" if f"d_{b}" in file else name][:]
                    largest = abs(values).reshape(-1, dofs).max(0)
                    peaks[name] = np.maximum(peaks[name], largest)
        named = random.permutation(dofs)[: random.integers(1, dofs + 1)].tolist()
        other = "deg" if unit == "rad" else "rad" if unit == "deg" else unit
        text = [f"joint_names = {[f'j{k}' for k in named]}".replace("'", '"'), f'units = "{other}"']
        for name in QUANTITIES[random.integers(3) :]:
            upper = peaks[name][named] * 10 ** random.uniform(-3, 3, len(named)) / IN_SI[other]
            lower = -upper * 10 ** random.uniform(-1, 1, len(named))
            text += [f"[{name}]", f"upper = {upper.tolist()}", f"lower = {lower.tolist()}"]
        limits("\n".join(text))
        slower = "--slower-only" * int(turn == 3)
        result = trajcli(f"retime out.h5 --limits limits.toml -o paced.h5 --overwrite {slower}")
        assert result.code == 0, result.err
        result = trajcli("check paced.h5 --limits limits.toml")
        assert result.code == 0, result.out
        assert "within limits" in result.out


def test_limits_of_some_joints_leave_the_others_free(trajcli, folder):
    write("in.h5", "abc", **rows())
    limits('joint_names = ["c", "a"]\n[velocity]\nupper = [0.5, 0.3]\nlower = [-0.3, -0.5]')
    result = trajcli("retime in.h5 --limits limits.toml -o out.h5 --json")
    assert result.document["notes"] == ["no limits of b"]
    velocity = rows()["velocity"]
    worst = np.maximum(velocity / [0.3, np.inf, 0.5], velocity / [-0.5, np.inf, -0.3])
    np.testing.assert_allclose(result.document["factors"], worst.max((1, 2)), rtol=1e-15)
    assert set(result.document["binding"]["joint"]) == {"a", "c"}
    assert "no limits of b" in trajcli("check out.h5 --limits limits.toml").out


def test_limits_of_a_urdf_may_be_of_other_joints_too(trajcli, folder):
    write("in.h5", "abc", **rows())
    joint = '<joint name="{}" type="revolute"><limit lower="-9" upper="9" velocity="0.5"/></joint>'
    limits(f"<robot>{''.join(map(joint.format, 'xb'))}</robot>", "arm.urdf")
    result = trajcli("retime in.h5 --limits arm.urdf -o out.h5 --json")
    assert result.document["notes"] == ["no limits of a, c"]
    expected = abs(rows()["velocity"][..., 1]).max(1) / 0.5
    np.testing.assert_allclose(result.document["factors"], expected, rtol=1e-15)
    limits(joint.format("x"), "arm.urdf")
    result = trajcli("retime in.h5 --limits arm.urdf -o new.h5")
    assert (result.code, "limits of other joints" in result.err) == (2, True)


def test_what_binds_is_reported_with_its_joint_and_time(trajcli, folder):
    """Beside a slow search in the output."""
    write("in.h5", "abc", **rows())
    upper = {"velocity": [1.0, 2.0, 3.0], "acceleration": [9.0, 0.7, 5.0]}
    limits("\n".join(f"[{name}]\nupper = {of}" for name, of in upper.items()))
    result = trajcli("retime in.h5 --limits limits.toml -o out.h5 --json")
    binding, slack = result.document["binding"], result.document["slack"]
    lines = trajcli("retime in.h5 --limits limits.toml -o out.h5 --overwrite -v").out.splitlines()
    with h5py.File("out.h5") as file:
        shares = {name: abs(file[name][:]) / of for name, of in upper.items()}
        times = file["time"][:]
    for b in range(4):
        name = max(shares, key=lambda of: shares[of][b].max())
        row, dof = np.unravel_index(shares[name][b].argmax(), (15, 3))
        assert shares[name][b, row, dof] == pytest.approx(1, abs=1e-15)
        assert [binding[of][b] for of in ("trajectory", "quantity", "joint")] == [
            str(b), name, "abc"[dof]
        ]  # fmt: skip
        assert binding["time"][b] == times[b, row]
        for of, share in shares.items():
            assert slack[of][b] == pytest.approx(1 - share[b].max(), abs=1e-14)
        other = next(of for of in upper if of != name)
        line = f"{name} of {'abc'[dof]} binds at {times[b, row]:.6g} s; slack: {other} "
        assert f"{b}: time × " in lines[3 + b]
        assert f"{line}{100 * slack[other][b]:.1f} %" in lines[3 + b]


def test_positions_that_no_pace_brings_within_limits_are_pointed_out(trajcli, folder):
    position = np.zeros((4, 15, 3))
    position[1:3, 4, 1] = 2.0
    write("in.h5", position=position, **rows())
    limits(f"[position]\nupper = {[1.0] * 3}\n[velocity]\nupper = {[1.0] * 3}")
    result = trajcli("retime in.h5 --limits limits.toml -o out.h5")
    assert result.code == 0
    said = "positions beyond their limits in 2 of 4 trajectories, which no pace changes"
    assert said in result.err
    assert trajcli("check out.h5 --limits limits.toml").code == 1


def test_a_joint_that_the_data_does_not_have_is_refused(trajcli, folder):
    write("in.h5", "abc", **rows())
    limits('joint_names = ["a", "bb"]\n[velocity]\nupper = [1.0, 1.0]')
    for command in ("retime in.h5 -o out.h5", "check in.h5"):
        result = trajcli(f"{command} --limits limits.toml")
        assert result.code == 2
        for part in (
            "limits.toml: joint_names: unknown joint",
            "expected: a, b, c",
            "found:    bb",
        ):
            assert part in result.err
    assert not Path("out.h5").exists()


@pytest.mark.parametrize("mode", ["bspline --degree 5 --steps 1", "jerk --scheme zoh"])
def test_limits_hold_between_the_rows_of_a_known_curve(trajcli, folder, mode):
    Path("limits.toml").write_text("[velocity]\nupper = 0.5\n[acceleration]\nupper = 2.0\n")
    line = f"integrate actions.npy --start start.npy --dt 0.2 --dtype float64 --mode {mode} -o a.h5"
    assert trajcli(line).code == 0
    assert trajcli("retime a.h5 --limits limits.toml -o paced.h5").code == 0
    assert trajcli("resample paced.h5 --to 5000 -o fine.h5").code == 0
    with h5py.File("fine.h5") as fine:
        paths: list[str] = []
        fine.visit(paths.append)

        def peak(name: str) -> float:
            found = [np.abs(fine[path]).max() for path in paths if path.endswith(name)]
            return float(max(found))

        worst = [peak("velocity") / 0.5, peak("acceleration") / 2]
    assert 0.999 < max(worst) < 1 + 1e-6


def test_what_cannot_be_retimed_is_left_out_and_the_clock_is_written(trajcli, folder):
    arrays, stamps = rows(), 1_700_000_000_000 + 100 * np.arange(4 * 15).reshape(4, 15)
    with h5py.File("in.h5", "w") as file:
        for name, values in arrays.items():
            file[name] = values
        file["times"] = stamps
        file["times"].attrs["units"] = "ms"
        file["velocity"][2, 3, 1] = np.nan
    limits("[velocity]\nupper = 0.5")
    line = "retime in.h5 --limits limits.toml -o"
    assert trajcli(f"{line} out.h5").code == 2
    result = trajcli(f"{line} out.h5 --skip-bad --json")
    assert result.code == 1
    (left,) = result.document["left_out"]
    assert "trajectory 2, step 3, dof 1" in left["name"]
    with h5py.File("out.h5") as file:
        np.testing.assert_array_equal(file["start_stamp"], stamps[[0, 1, 3], 0])
        assert file["start_stamp"].attrs["units"] == "ms"
        assert file["velocity"].shape == (3, 15, 3)
        assert np.abs(file["velocity"]).max() <= 0.5
