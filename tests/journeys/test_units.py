"""Degrees, millimetres and milliseconds are SI where trajcli computes and compares, and said so.

More draws than the suite's: TRAJCLI_SEED=99 TRAJCLI_CASES=2000 pytest -k any_type_of_values
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

import trajcli as library

RANDOM = np.random.default_rng(7)
ACTIONS = RANDOM.normal(0, 40, (4, 30, 3))
START = RANDOM.normal(0, 90, (4, 3))
SPEED = RANDOM.normal(0, 30, (4, 3))
MIXED = np.array([np.pi / 180, 1.0, 0.001])
"""What deg, rad and mm are in SI."""


def write(name: str, units: dict[str, str] | None = None, **arrays: Any) -> None:
    """Datasets, "start_position" in a group, and what some are in."""
    with h5py.File(name, "w") as file:
        for key, values in arrays.items():
            file[key.replace("_", "/")] = values
            if key in (units or {}):
                file[key.replace("_", "/")].attrs["units"] = units[key]


def stored(name: str, *datasets: str) -> list[Any]:
    with h5py.File(name) as file:
        return [file[dataset][:] for dataset in datasets]


@pytest.mark.parametrize(
    ("option", "units", "factor", "written"),
    [
        ("--units deg", {}, np.pi / 180, "rad"),
        ("--units deg,rad,mm", {}, MIXED, "rad,rad,m"),
        ("", {"actions": "deg/s^2"}, np.pi / 180, "rad"),
        ("", {"actions": "deg/s^2,rad/s^2,mm/s^2"}, MIXED, "rad,rad,m"),
        ("--units rad", {"actions": "deg/s^2"}, 1.0, "rad"),
        ("--units deg", {"actions": "kg"}, np.pi / 180, "rad"),
        ("--units mm", {"actions": "deg/s^2", "start_position": "deg"}, 0.001, "m"),
        ("", {"actions": "mm/s²", "start_position": "millimetres"}, 0.001, "m"),
    ],
)
def test_inputs_are_converted_to_si_and_said_so(trajcli, folder, option, units, factor, written):
    write("in.h5", units, actions=ACTIONS, dt=0.02, start_position=START, start_velocity=SPEED)
    result = trajcli(f"integrate in.h5 {option} -o out.h5")
    assert result.code == 0, result.err
    read = option.removeprefix("--units ") or units["actions"].replace("²", "^2")
    who = "--units" if option else "in.h5:/actions"
    said = f"units {read}, from {who}, converted to {written}".split(",rad/s", 1)[0]
    assert (said in result.out) == (read != written)
    state = library.State(START * factor, SPEED * factor)
    truth = library.integrate(ACTIONS * factor, state, 0.02, mode="acceleration")
    with h5py.File("out.h5") as file:
        for name, order in (("position", ""), ("velocity", "/s"), ("jerk", "/s^3")):
            values = getattr(truth, name)
            bound = 1e-14 * abs(values).max()
            np.testing.assert_allclose(file[name], values, rtol=1e-14, atol=bound)
            parts = file[name].attrs["units"].split(",")
            assert parts == [part + order for part in written.split(",")]
    assert ("as --units says" in result.err) == bool(option and units)


def test_a_state_may_be_in_another_unit_of_the_same_kind(trajcli, folder):
    units = {"actions": "rad/s^2", "start_position": "deg"}
    write("in.h5", units, actions=ACTIONS, dt=0.02, start_position=START)
    result = trajcli("integrate in.h5 -o out.h5 --frames full")
    assert "start from in.h5:/start, in deg" in result.out
    assert "warning" not in result.err
    np.testing.assert_allclose(stored("out.h5", "position")[0][:, 0], np.radians(START), rtol=1e-15)
    assert trajcli("check out.h5 --recompute").code == 0


PER = {"rad": 1.0, "deg": 180.0 / np.pi, "m": 1.0, "cm": 1e2, "mm": 1e3,
       "s": 1.0, "ms": 1e3, "us": 1e6, "ns": 1e9}  # fmt: skip
CASES = int(os.environ.get("TRAJCLI_CASES", "80"))


def drawn_stamps(random, rows: int):
    """Stamps of a jittery clock of any type and unit, and the same in float64 seconds: from the
    first stamp, where they are converted."""
    unit = str(random.choice(["s", "ms", "us", "ns"]))
    kinds = {"s": ["f4", "f8", "i8"], "ms": ["f4", "f8", "i4", ">i8", "u8"]}
    kind = str(random.choice(kinds.get(unit, ["f8", "i8", ">i8", "u8"])))
    gaps = random.uniform(1e-3, 3e-3, rows) * PER[unit]
    if kind in ("i8", "f4") and unit == "s":
        gaps = np.ones(rows) + random.integers(0, 2, rows)
    begin = random.choice([0.0, 17.0, 1.7e9]) if kind not in ("f4", "i4") else 3.0
    if kind == "f8" and unit == "ns":
        begin = 0.0
    whole = [round(t) for t in np.cumsum(gaps) + gaps.mean()]
    if kind.startswith("f"):
        stamps = (np.cumsum(gaps) + float(begin * PER[unit])).astype(kind)
        if (
            begin > 1e9 and unit != "s"
        ):  # whole numbers, of which a float64 holds those of a microsecond
            stamps = np.array([t + float(begin * PER[unit]) for t in np.unique(whole)], kind)
    else:
        offset = int(begin) * int(PER[unit])
        stamps = np.array([t + offset for t in np.unique(whole)], kind)
    exact = [int(t) if kind[-2] in "iu" else float(t) for t in stamps]
    first = 0 if unit == "s" else exact[0]
    return unit, stamps, np.array([t - first for t in exact], np.float64) / PER[unit]


def test_any_type_of_values_and_stamps_is_converted_in_float64(trajcli, folder):
    """Types and units of values and stamps against NumPy in float64, to the bit."""
    random = np.random.default_rng(int(os.environ.get("TRAJCLI_SEED", "6")))
    for case in range(CASES):
        batch, dofs = (int(random.integers(1, most)) for most in (4, 9))
        clock, stamps, seconds = drawn_stamps(random, int(random.integers(8, 40)))
        kind = str(random.choice(["f2", "f4", ">f4", "f8", "i2", "i8"]))
        units = random.choice(["rad", "deg", "m", "cm", "mm"], dofs if case % 2 else 1)
        values = (150 * random.standard_normal((batch, len(stamps), dofs))).astype(kind)
        stated = case % 3 > 0
        with h5py.File("in.h5", "w") as file:
            file["position"], file["times"] = values, stamps
            if stated:
                file["position"].attrs["units"], file["times"].attrs["units"] = (
                    ",".join(units), clock)  # fmt: skip
        words = "" if stated else f"--units {','.join(units)},{clock}"
        method = str(random.choice(["central", "backward", "savgol --window 7"]))
        line = f"differentiate in.h5:position --method {method} {words} --overwrite -o out.h5"
        result = trajcli(f"{line} --dtype float64")
        assert result.code == 0, (line, result.err)
        with h5py.File("truth.h5", "w") as file:
            file["position"] = values.astype(np.float64) / np.array([PER[unit] for unit in units])
            file["times"] = seconds
        truth = line.replace(words, "") if words else line
        assert (
            trajcli(truth.replace("in.h5", "truth.h5").replace("out.h5", "expected.h5")).code == 0
        )
        about = f"{line}: {kind}, {units}, {stamps.dtype} {clock} from {stamps[0]}"
        with h5py.File("out.h5") as out, h5py.File("expected.h5") as expected:
            np.testing.assert_array_equal(out["time"], expected["time"], about)
            for name in ("position", "velocity", "acceleration", "jerk"):
                np.testing.assert_array_equal(out[name], expected[name], f"{name}: {about}")
        assert trajcli(line).code == 0
        small = "f4" if kind.strip(">") in ("f2", "f4") else "f8"
        with h5py.File("out.h5") as out, h5py.File("expected.h5") as expected:
            for name in ("position", "velocity", "acceleration", "jerk"):
                rounded = expected[name][()].astype(small)
                np.testing.assert_array_equal(out[name], rounded, f"{name}: {about}")


@pytest.mark.parametrize("start", ["", "deg,rad,mm"])
def test_units_for_each_dof_of_the_file_are_picked_with_the_dofs(trajcli, folder, start):
    units = {"actions": "deg/s^2,rad/s^2,mm/s^2"} | ({"start_position": start} if start else {})
    write("in.h5", units, actions=ACTIONS, dt=0.02, start_position=START)
    assert trajcli("integrate in.h5:actions[1:3] -o out.h5").code == 0
    position, acceleration = stored("out.h5", "position", "acceleration")
    np.testing.assert_allclose(acceleration[:, 1:], (ACTIONS * MIXED)[..., 1:], rtol=1e-15)
    np.testing.assert_allclose(position[:, 0], (START * MIXED)[:, 1:], rtol=1e-15)
    with h5py.File("out.h5") as file:
        assert file["velocity"].attrs["units"] == "rad/s,m/s"


def test_stamps_in_a_unit_that_only_the_option_says(trajcli, folder):
    stamps = np.arange(31) * 20
    write("in.h5", actions=ACTIONS, times=stamps)
    assert "--units ms or ns says so" in trajcli("integrate in.h5 --start zero -o a.h5").err
    result = trajcli("integrate in.h5 --start zero -o out.h5 --units deg,ms")
    assert "dt 0.02 s, from time stamps in.h5:/times, in ms" in result.out
    np.testing.assert_allclose(stored("out.h5", "time")[0], np.arange(31) * 0.02, rtol=1e-15)
    result = trajcli("integrate in.h5 --start zero --dt 20 -o b.h5 --units ms")
    assert result.code == 2
    assert "a unit of time, and no stamps or steps in a dataset" in result.err


@pytest.mark.parametrize(
    ("option", "units", "message"),
    [
        ("--units furlong", {}, "--units: unknown unit"),
        ("--units deg/s^2", {}, "--units: not a unit of positions"),
        ("--units deg,rad", {}, "in.h5:/actions: units of other dofs"),
        ("--units ms,s", {}, "--units: more than one unit of time"),
        ("", {"actions": "deg/s^2,rad/s^2"}, "in.h5:/actions: units of other dofs"),
        (
            "",
            {"actions": "rad/s^2", "start_position": "mm"},
            "in.h5:/start/position: units that cannot be converted into each other",
        ),
    ],
)
def test_units_that_cannot_be_are_refused(trajcli, folder, option, units, message):
    write("in.h5", units, actions=ACTIONS, dt=0.02, start_position=START)
    result = trajcli(f"integrate in.h5 -o out.h5 {option}")
    assert result.code == 2
    assert message in result.err
    assert not Path("out.h5").exists()


def test_files_in_different_units_are_one_run(trajcli, folder):
    write("a.h5", {"actions": "rad/s^2"}, actions=ACTIONS, dt=0.02)
    write("b.h5", {"actions": "deg/s^2"}, actions=ACTIONS, dt=0.02)
    write("c.h5", {"actions": "mm/s^2"}, actions=ACTIONS, dt=0.02)
    assert trajcli("integrate a.h5 b.h5 --start zero -o out.h5").code == 0
    expected = np.concatenate([ACTIONS, np.radians(ACTIONS)])
    np.testing.assert_allclose(stored("out.h5", "acceleration")[0][:, 1:], expected, rtol=1e-15)
    result = trajcli("integrate a.h5 c.h5 --start zero -o d.h5")
    assert (result.code, "units that cannot be converted" in result.err) == (2, True)
    assert trajcli("integrate a.h5 b.h5 --start zero -o d.h5 --cost jerk").code == 0
    write("si.h5", {}, actions=expected, dt=0.02)
    assert trajcli("integrate si.h5 --start zero -o e.h5 --cost jerk").code == 0
    with h5py.File("d.h5") as file, h5py.File("e.h5") as in_si:
        np.testing.assert_allclose(file["grad/actions"], in_si["grad/actions"][()], rtol=1e-12)


def test_gradients_are_in_si_whatever_the_file_holds(trajcli, folder):
    """Beside central differences of the cost by what the file holds: deg, rad, mm and ms."""
    units = {"actions": "deg/s^2,rad/s^2,mm/s^2", "start_position": "deg,rad,mm", "times": "ms"}
    inputs = {"actions": ACTIONS[:1] / MIXED / 50, "start_position": START[:1] / MIXED / 90,
              "times": np.cumsum(RANDOM.uniform(40, 60, 31))}  # fmt: skip

    def cost(**changed: Any) -> Any:
        write("in.h5", units, **{**inputs, **changed})
        line = "integrate in.h5 --cost position+0.1*velocity+jerk -o out.h5 --overwrite"
        assert trajcli(line).code == 0
        with h5py.File("out.h5") as file:
            return file["cost"][0], {name: file["grad"][name][:] for name in file["grad"]}

    grads = cost()[1]
    for name, of, places in (
        ("actions", "actions", [(0, 3, 0), (0, 29, 1), (0, 7, 2)]),
        ("start_position", "start_position", [(0, 0), (0, 2)]),
    ):
        for place in places:
            step = 1e-4 * max(abs(inputs[of][place]), 1.0)
            up, down = (np.array(inputs[of]) for _ in range(2))
            up[place] += step
            down[place] -= step
            slope = (cost(**{of: up})[0] - cost(**{of: down})[0]) / (2 * step)
            np.testing.assert_allclose(grads[name][place] * MIXED[place[-1]], slope, rtol=1e-6)
    later = np.array(inputs["times"])
    later[10:] += 1e-3  # the step of row 10, in ms
    sooner = 2 * inputs["times"] - later
    slope = (cost(times=later)[0] - cost(times=sooner)[0]) / 2e-3
    np.testing.assert_allclose(grads["dt"].ravel()[9] * 1e-3, slope, rtol=1e-6)


LIMITS = """{top}
[velocity]
{section}
upper = [{a}, {b}, {c}]
"""


@pytest.mark.parametrize("data", ["rad", "deg"])
@pytest.mark.parametrize(
    ("top", "section", "scale"),
    [
        ('units = "deg"', "", 180 / np.pi),
        ("", 'units = "deg/s"', 180 / np.pi),
        ('units = "rad"', "", 1.0),
        ('units = "rad"', 'units = "deg/s"', 180 / np.pi),
        ("", 'units = ["deg/s", "rad/s", "rad/s"]', np.array([180 / np.pi, 1, 1])),
    ],
)
def test_limits_are_compared_in_one_unit(trajcli, folder, data, top, section, scale):
    speeds = RANDOM.uniform(-1, 1, (3, 20, 3))
    peaks = abs(speeds).max((0, 1))
    inside = speeds if data == "rad" else np.degrees(speeds)
    write("v.h5", {"velocity": f"{data}/s"}, velocity=inside, dt=0.1)
    for share, code in ((1 + 1e-6, 0), (1 - 1e-6, 1)):
        limits = dict(zip("abc", (share * peaks * scale).tolist(), strict=True))
        Path("l.toml").write_text(LIMITS.format(top=top, section=section, **limits))
        result = trajcli("check v.h5 --limits l.toml")
        assert result.code == code, result.out + result.err
        assert ("rad/s" in result.out) == (code == 1)
        assert trajcli("plot v.h5 --limits l.toml --episodes all -o v.svg --overwrite").code == 0
        assert "(rad/s)" in Path("v.svg").read_text()


def test_diff_compares_in_one_unit_or_refuses(trajcli, folder):
    rows = RANDOM.normal(size=(2, 9, 3))
    write("rad.h5", {"position": "rad", "time": "s"}, position=rows, time=np.arange(9) * 0.02)
    write("deg.h5", {"position": "deg", "time": "ms"}, position=np.degrees(rows),
          time=np.arange(9) * 20)  # fmt: skip
    write("m.h5", {"position": "m"}, position=rows)
    write("none.h5", position=np.degrees(rows))
    write("odd.h5", {"position": "counts"}, position=rows)
    result = trajcli("diff rad.h5 deg.h5 --ulp 4")
    assert result.code == 0, result.out
    assert "a is in rad, b is in deg: compared in rad" in result.out
    assert trajcli("diff rad.h5 deg.h5 --rtol 1e-9 --json").document["datasets"][0]["rms"] < 1e-15
    for other, said in (
        ("m.h5", "units differ: a is in deg, b is in m"),
        ("odd.h5", "units differ: a is in deg, b is in counts"),
        ("none.h5", "a is in deg, b says no unit: compared as they are"),
    ):
        result = trajcli(f"diff deg.h5:position {other}:position")
        assert said in result.out
        assert result.code == (0 if other == "none.h5" else 1)


def test_what_is_written_of_rows_is_in_si(trajcli, folder):
    rows = np.cumsum(RANDOM.normal(size=(20, 3)), 0)
    write("in.h5", {"position": "deg", "time": "ms"}, position=rows, time=np.arange(20) * 10)
    for line in ("resample in.h5 --to 100 -o out.h5", "export in.h5 -o out.h5"):
        result = trajcli(f"{line} --overwrite")
        assert "units deg, from in.h5:/position, converted to rad" in result.out, result.err
        with h5py.File("out.h5") as file:
            assert file["position"].attrs["units"] == "rad"
            np.testing.assert_allclose(file["position"][0], np.radians(rows), rtol=1e-12)
            np.testing.assert_allclose(file["time"][:].ravel(), np.arange(20) * 0.01, atol=1e-15)


def test_a_figure_of_files_in_different_units_has_one(trajcli, folder):
    rows = np.linspace(-90, 90, 60).reshape(20, 3)
    write("deg.h5", {"position": "deg"}, position=rows, dt=0.1)
    write("rad.h5", {"position": "rad"}, position=np.radians(rows), dt=0.1)
    write("arm.h5", {"position": "deg,deg,mm"}, position=rows, dt=0.1)
    for sources, label in (("deg.h5 rad.h5", "(rad)"), ("arm.h5", "(rad, m)")):
        assert trajcli(f"plot {sources} -o p.svg --overwrite").code == 0
        assert label in Path("p.svg").read_text()
    assert trajcli("plot arm.h5 --dofs 2 -o p.svg --overwrite").code == 0
    assert "(m)" in Path("p.svg").read_text()


def test_fits_and_scores_of_degrees_are_those_of_radians(trajcli, folder):
    rows = 10 * np.cumsum(RANDOM.normal(size=(2, 40, 3)), 1)
    write("deg.h5", {"position": "deg"}, position=rows, dt=0.1)
    write("rad.h5", {"position": "rad"}, position=np.radians(rows), dt=0.1)
    Path("rad.toml").write_text('units = "rad"\n[velocity]\nupper = [9.0, 8.0, 7.0]')
    Path("deg.toml").write_text(
        f'[velocity]\nunits = "deg/s"\nupper = {np.degrees([9.0, 8.0, 7.0]).tolist()}'
    )
    for unit, start in (("rad", np.radians([10, -20, 30])), ("deg", np.array([10, -20, 30]))):
        line = f"fit {unit}.h5 --knots 9 --start={','.join(map(repr, start.tolist()))}"
        result = trajcli(f"{line} -o fit_{unit}.h5")
        assert result.code == 0, result.err
        assert ("converted to rad" in result.out) == (unit == "deg")
        result = trajcli(f"score {unit}.h5 --limits {unit}.toml --json")
        Path(f"score_{unit}.json").write_text(result.out.replace(f"{unit}.h5", "file"))
    result = trajcli("diff fit_rad.h5 fit_deg.h5 --atol 1e-12 --json")
    assert all(one["passed"] and not one["why"] for one in result.document["datasets"])
    first, second = (
        json.loads(Path(f"score_{unit}.json").read_text())["files"][0] for unit in ("rad", "deg")
    )
    pairs = [(one["limit_share"], two["limit_share"]) for one, two in
             zip(first["trajectories"], second["trajectories"], strict=True)]  # fmt: skip
    np.testing.assert_allclose(*zip(*pairs, strict=True), rtol=1e-12)
