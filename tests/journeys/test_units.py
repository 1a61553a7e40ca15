"""Degrees, millimetres and milliseconds are SI where trajcli computes and compares, and said so.

More draws than the suite's: TRAJCLI_SEED=99 TRAJCLI_CASES=2000 pytest -k any_type_of_values
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from journeys.arrays import close, read_h5, same, write_h5

import trajcli as library
from trajcli import rotations
from trajcli.files.limits import read_limits
from trajcli.files.opening import Files
from trajcli.files.quantities import derive_unit
from trajcli.units import parse_option, parse_units
from trajcli.views.plot import plot_sources

RANDOM = np.random.default_rng(7)
ACTIONS = RANDOM.normal(0, 40, (4, 30, 3))
START = RANDOM.normal(0, 90, (4, 3))
SPEED = RANDOM.normal(0, 30, (4, 3))
TIMES = np.arange(40) * 0.02
JOINTS = np.stack([90 * np.sin(TIMES), 45 * np.cos(TIMES)], 1)
"""Of degrees: read as rad they are beyond a turn."""
MIXED = np.array([np.pi / 180, 1.0, 0.001])
"""What deg, rad and mm are in SI."""


def write(name: str, units: dict[str, str] | None = None, **arrays: Any) -> None:
    """Datasets, "start_position" in a group, and what some are in."""
    named = {key.replace("_", "/"): values for key, values in arrays.items()}
    of = {f"{key.replace('_', '/')}@units": unit for key, unit in (units or {}).items() if unit}
    write_h5(name, named | of)


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
    result = trajcli.ok(f"integrate in.h5 {option} -o out.h5")
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
            close(file[name], values, rtol=1e-14, atol=bound)
            parts = file[name].attrs["units"].split(",")
            assert parts == [part + order for part in written.split(",")]
    assert ("as --units says" in result.err) == bool(option and units)


PER = {"rad": 1.0, "deg": 180.0 / np.pi, "m": 1.0, "cm": 1e2, "mm": 1e3,
       "s": 1.0, "ms": 1e3, "us": 1e6, "ns": 1e9}  # fmt: skip
CASES = int(os.environ.get("TRAJCLI_CASES", "20"))


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
        if begin > 1e9 and unit != "s":  # whole numbers: a float64 holds those of a microsecond
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
        said = {"position": ",".join(units), "times": clock} if stated else {}
        write("in.h5", said, position=values, times=stamps)
        words = "" if stated else f"--units {','.join(units)},{clock}"
        method = str(random.choice(["central", "backward", "savgol --window 7"]))
        line = f"differentiate in.h5:position --method {method} {words} --overwrite -o out.h5"
        si = values.astype(np.float64) / np.array([PER[unit] for unit in units])
        write_h5("truth.h5", position=si, times=seconds)
        truth = line.replace(words, "") if words else line
        trajcli.ok(truth.replace("in.h5", "truth.h5").replace("out.h5", "expected.h5"))
        about = f"{line}: {kind}, {units}, {stamps.dtype} {clock} from {stamps[0]}"
        expected = read_h5("expected.h5")
        small = "f4" if kind.strip(">") in ("f2", "f4") else "f8"
        for more, dtype in (("--dtype float64", "f8"), ("", small)):
            trajcli.ok(f"{line} {more}")
            out = read_h5("out.h5")
            same(out["time"], expected["time"], about)
            for name in ("position", "velocity", "acceleration", "jerk"):
                same(out[name], expected[name].astype(dtype), f"{name}: {about}")


def test_units_of_dofs_are_picked_with_the_dofs(trajcli, folder):
    units = {"actions": "deg/s^2,rad/s^2,mm/s^2", "start_position": "deg,rad,mm"}
    write("in.h5", units, actions=ACTIONS, dt=0.02, start_position=START)
    trajcli.ok("integrate in.h5:actions[1:3] -o out.h5")
    made = read_h5("out.h5")
    close(made["acceleration"][:, 1:], (ACTIONS * MIXED)[..., 1:], rtol=1e-15)
    close(made["position"][:, 0], (START * MIXED)[:, 1:], rtol=1e-15)
    with h5py.File("out.h5") as file:
        assert file["velocity"].attrs["units"] == "rad/s,m/s"


def test_units_that_cannot_be_are_refused(trajcli, folder):
    run = {"actions": ACTIONS, "dt": 0.02, "start_position": START}
    write("in.h5", **run)
    write("two.h5", {"actions": "deg/s^2,rad/s^2"}, **run)
    write("mm.h5", {"actions": "rad/s^2", "start_position": "mm"}, **run)
    write("q.h5", {"position": "rad,m"}, position=JOINTS, time=TIMES)
    np.savez("q.npz", position=JOINTS, times=TIMES)
    endings = {"integrate": "h5", "export": "csv", "plot": "svg"}
    for line, message in {
        "integrate in.h5 --units furlong": "--units: unknown unit",
        "integrate in.h5 --units deg/s^2": "--units: not a unit of positions",
        "integrate in.h5 --units deg,rad": "in.h5:/actions: wrong number of units",
        "integrate in.h5 --units ms,s": "--units: more than one unit of time",
        "integrate in.h5 --start zero --dt 20 --units ms": "and no stamps or steps in a dataset",
        "integrate two.h5": "two.h5:/actions: wrong number of units",
        "integrate mm.h5": "mm.h5:/start/position: units that cannot be converted into each other",
        "export q.npz --to-units deg": "--units says what SOURCE is in",
        "plot q.npz --to-units deg": "--units says what SOURCE is in",
        "export q.h5 --to-units mm,deg": "units that cannot be converted",
        "plot q.h5 --to-units mm,deg": "units that cannot be converted",
        "export q.h5 --to-units deg,rad,deg": "units that cannot be converted",
        "export q.h5 --to-units furlong": "--to-units: unknown unit",
        "export q.npz --units deg --to-units m": "units that cannot be converted",
    }.items():
        trajcli.refuses(f"{line} -o out.{endings[line.split()[0]]}", message)


def test_files_in_different_units_are_one_run(trajcli, folder):
    write("a.h5", {"actions": "rad/s^2"}, actions=ACTIONS, dt=0.02)
    write("b.h5", {"actions": "deg/s^2"}, actions=ACTIONS, dt=0.02)
    write("c.h5", {"actions": "mm/s^2"}, actions=ACTIONS, dt=0.02)
    trajcli.ok("integrate a.h5 b.h5 --start zero -o out.h5")
    expected = np.concatenate([ACTIONS, np.radians(ACTIONS)])
    close(read_h5("out.h5")["acceleration"][:, 1:], expected, rtol=1e-15)
    trajcli.refuses("integrate a.h5 c.h5 --start zero -o d.h5", "units that cannot be converted")


def test_gradients_are_in_si_whatever_the_file_holds(trajcli, folder):
    units = {"actions": "deg/s^2,rad/s^2,mm/s^2", "start_position": "deg,rad,mm", "times": "ms"}
    times = np.cumsum(RANDOM.uniform(0.04, 0.06, 31))
    write("in.h5", units, actions=ACTIONS / MIXED, start_position=START / MIXED, times=1e3 * times)
    write("si.h5", actions=ACTIONS, start_position=START, times=times)
    for name in ("in", "si"):
        trajcli.ok(f"integrate {name}.h5 --cost position+0.1*velocity+jerk -o {name}_out.h5")
    grads, expected = read_h5("in_out.h5"), read_h5("si_out.h5")
    for name in ("grad/actions", "grad/start_position", "grad/dt", "cost"):
        close(grads[name], expected[name], rtol=1e-9, atol=1e-12 * abs(expected[name]).max())


LIMITS = """{top}
[velocity]
{section}
upper = [{a}, {b}, {c}]
"""


@pytest.mark.parametrize(
    ("data", "top", "section", "scale"),
    [
        ("rad", 'units = "deg"', "", 180 / np.pi),
        ("deg", "", 'units = "deg/s"', 180 / np.pi),
        ("deg", 'units = "rad"', "", 1.0),
        ("rad", 'units = "rad"', 'units = "deg/s"', 180 / np.pi),
        ("deg", "", 'units = ["deg/s", "rad/s", "rad/s"]', np.array([180 / np.pi, 1, 1])),
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
        result = (trajcli.fails if code else trajcli.ok)("check v.h5 --limits l.toml")
        assert ("rad/s" in result.out) == (code == 1)


def test_diff_compares_in_one_unit_or_refuses(trajcli, folder):
    rows = RANDOM.normal(size=(2, 9, 3))
    write("rad.h5", {"position": "rad", "time": "s"}, position=rows, time=np.arange(9) * 0.02)
    write("deg.h5", {"position": "deg", "time": "ms"}, position=np.degrees(rows),
          time=np.arange(9) * 20)  # fmt: skip
    write("m.h5", {"position": "m"}, position=rows)
    write("none.h5", position=np.degrees(rows))
    write("odd.h5", {"position": "counts"}, position=rows)
    result = trajcli.ok("diff rad.h5 deg.h5 --ulp 4")
    assert "a is in rad, b is in deg: compared in rad" in result.out
    assert trajcli("diff rad.h5 deg.h5 --rtol 1e-9 --json").document["datasets"][0]["rms"] < 1e-15
    for other, said in (
        ("m.h5", "units differ: a is in deg, b is in m"),
        ("odd.h5", "units differ: a is in deg, b is in counts"),
        ("none.h5", "a is in deg, b states no unit: compared as they are"),
    ):
        result = trajcli(f"diff deg.h5:position {other}:position")
        assert said in result.out
        assert result.code == (0 if other == "none.h5" else 1)


def test_a_figure_has_one_unit_or_those_that_are_asked_for(trajcli, folder):
    rows = np.linspace(-90, 90, 60).reshape(20, 3)
    write("deg.h5", {"position": "deg"}, position=rows, dt=0.1)
    write("rad.h5", {"position": "rad"}, position=np.radians(rows), dt=0.1)
    write("arm.h5", {"position": "deg,deg,mm"}, position=rows, dt=0.1)
    Path("l.toml").write_text('units = "deg"\n[position]\nlower = -90.0\nupper = 90.0')
    for sources, label in (
        ("deg.h5 rad.h5 --limits l.toml", "(rad)"),
        ("arm.h5", "(rad, m)"),
        ("arm.h5 --dofs 2", "(m)"),
    ):
        trajcli.ok(f"plot {sources} -o p.svg --overwrite")
        assert label in Path("p.svg").read_text()
    trajcli.ok("differentiate rad.h5 --method smooth -o out.h5")
    with Files() as files:
        limits = read_limits(Path("l.toml"), files.sources)
        to = parse_option("deg,ms", "--to-units")
        (si,), (other,) = (plot_sources(files, ["out.h5"], limits, None, *more)
                           for more in ((), (to,)))  # fmt: skip
        for a, b in zip(si.lines(), other.lines(), strict=True):
            assert (b.unit, b.time_unit) == (derive_unit(a.quantity, "deg"), "ms")
            close(b.values, np.degrees(a.values))
            close(b.time, a.time * 1e3)
            if a.quantity == "position":
                close(b.recording, rows, rtol=1e-12, atol=1e-12)
                close(b.bounds.upper, np.degrees(a.bounds.upper))
                close(b.bounds.lower, np.degrees(a.bounds.lower))
        for a, b in zip(si.peaks(files.report), other.peaks(files.report), strict=True):
            close(b.values, np.degrees(a.values))


def test_fits_of_degrees_are_those_of_radians(trajcli, folder):
    rows = 10 * np.cumsum(RANDOM.normal(size=(2, 40, 3)), 1)
    write("deg.h5", {"position": "deg"}, position=rows, dt=0.1)
    write("rad.h5", {"position": "rad"}, position=np.radians(rows), dt=0.1)
    for unit, start in (("rad", np.radians([10, -20, 30])), ("deg", np.array([10, -20, 30]))):
        line = f"fit {unit}.h5 --knots 9 --start={','.join(map(repr, start.tolist()))}"
        result = trajcli.ok(f"{line} -o fit_{unit}.h5")
        assert ("converted to rad" in result.out) == (unit == "deg")
    result = trajcli("diff fit_rad.h5 fit_deg.h5 --atol 1e-12 --json")
    assert all(one["passed"] and not one["why"] for one in result.document["datasets"])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        *(("rad/s^2", ("rad", 2)), ("rad / s**2", ("rad", 2)), ("m/s²", ("m", 2))),
        *(("mm/s/s", ("mm", 2)), ("rad/s2", ("rad", 2)), ("m s-2", ("m", 2))),
        *(("rad s^-1", ("rad", 1)), ("rad·s⁻¹", ("rad", 1)), ("deg/s^3", ("deg", 3))),
        *(("rad", ("rad", 0)), (b"rad/s", ("rad", 1)), ("N m", None), ("1", None), ("", None)),
        *(("normalized", None), (1, None), (np.array([1.0, 2.0]), None), (None, None)),
    ],
    ids=str,
)
def test_units_are_taken_apart(text, expected):
    units = parse_units(text)
    assert (None if units is None else (units[0].name, units[0].order)) == expected


@pytest.mark.parametrize("name", ["dt", "times"])
def test_steps_in_another_unit_are_converted(trajcli, folder, name):
    steps = 0.02 if name == "dt" else np.arange(10) * 0.02
    for unit, per_second, message in (
        *(("ms", 1e3, ", in ms"), ("ns", 1e9, ", in ns"), ("µs", 1e6, ", in us")),
        *(("milliseconds", 1e3, ", in ms"), ("s", 1, ""), ("[s]", 1, ""), ("1", 1, "")),
        ("ticks", 1, " is in 'ticks', which is not known (s, ms, us, ns): taken as s"),
    ):
        write("u.h5", {name: unit}, actions=np.ones((2, 9, 3)), **{name: steps * per_second})
        result = trajcli.ok("integrate u.h5 --start zero -o out.h5 --overwrite")
        assert f"u.h5:/{name}{message}" in result.out + result.err
        with h5py.File("out.h5") as file:
            close(file["time"], np.arange(10) * 0.02, rtol=1e-15)
            assert file.attrs["dt"] == 0.02


@pytest.mark.parametrize(
    ("units", "start", "message"),
    [
        ("rad/s", "", "u.h5:/actions is in rad/s, which mode acceleration reads as acceleration"),
        ("m/s^2", "mm", ""),
        ("rad/s^2", "rad", ""),
        ("rad s-2", "rad", ""),
        ("normalized", "rad", "u.h5:/actions is in 'normalized', which is not known (rad, deg, m,"),
        ("", "mm", "u.h5:/start/position is in mm, and u.h5:/actions says no unit: taken as SI"),
    ],
)
def test_units_that_do_not_fit_are_said(trajcli, folder, units, start, message):
    units = {"actions": units, "start_position": start}
    write("u.h5", units, actions=np.ones((2, 9, 3)), dt=0.02, start_position=np.zeros((1, 3)))
    result = trajcli.ok("integrate u.h5 -o out.h5")
    assert (message in result.err) if message else ("warning" not in result.err)


@pytest.mark.parametrize(
    ("options", "mode", "scheme", "message"),
    [
        ("", "jerk", "zoh", "as u.h5:/ states"),
        ("--mode jerk", "jerk", "zoh", "as u.h5:/ states"),
        ("--mode jerk --scheme zoh", "jerk", "zoh", ""),
        ("--scheme foh", "jerk", "foh", "u.h5:/ states mode jerk with scheme zoh, which this run"),
        ("--mode acc", "acceleration", "euler", "which this run is not (--mode jerk --scheme zoh)"),
    ],
)
def test_the_mode_that_a_file_states_is_used(trajcli, folder, options, mode, scheme, message):
    write_h5("u.h5", {"@mode": "jerk", "@scheme": "zoh"}, actions=np.ones((2, 9, 3)), dt=0.02)
    result = trajcli.ok(f"integrate u.h5 --start zero -o out.h5 {options}")
    assert message in result.out + result.err
    assert ("warning" in result.err) == ("not" in message or "which" in message)
    with h5py.File("out.h5") as file:
        assert (file.attrs["mode"], file.attrs["scheme"]) == (mode, scheme)
    again = trajcli("integrate out.h5:position --mode clique --start zero --dt 1 -o more.h5")
    assert "states" not in again.err  # of an output: how it was made


def table(ending: str, units: dict[str, str], columns: dict[str, Any]) -> str:
    """Writes columns as CSV or Parquet with their units in headings, or as an array ``position``
    and ``time`` with attributes; returns the name of the file."""
    name, heads = f"in.{ending}", {key: f"{key} [{units[key]}]" if key in units else key
                                   for key in columns}  # fmt: skip
    rows = np.stack(list(columns.values()), 1)
    if ending == "csv":
        np.savetxt(name, rows, "%.17g", ",", header=",".join(heads.values()), comments="")
    elif ending == "parquet":
        arrow = pytest.importorskip("pyarrow")
        named = {heads[key]: values for key, values in columns.items()}
        pytest.importorskip("pyarrow.parquet").write_table(arrow.table(named), name)
    else:
        of_dofs = ",".join(units.get(key, "") for key in columns if key != "t")
        about = {"position": of_dofs if of_dofs.strip(",") else "", "time": units.get("t", "")}
        if ending == "h5":
            write(name, about, position=rows[:, 1:], time=rows[:, 0])
        else:
            group = pytest.importorskip("zarr").open(name, mode="w")
            for key, values in (("position", rows[:, 1:]), ("time", rows[:, 0])):
                group.create_array(key, data=values).attrs["units"] = about[key]
    return name


FORMATS = ["csv", "parquet", "h5", "zarr"]
WRITERS = ["differentiate {} --method central", "resample {} --to {}", "export {}"]


def positions(path: str) -> Any:
    return np.squeeze(read_h5(path)["position"])


def outputs(trajcli: Any, ending: str, units: dict[str, str], rate: float, option: str) -> Any:
    """Runs all commands for tables, and one for each of the other formats, which are read alike;
    yields values, their units, times, and what was printed."""
    name = table(ending, units, {"t": TIMES, "a": JOINTS[:, 0], "b": JOINTS[:, 1]})
    for line in WRITERS if ending == "csv" else [WRITERS[FORMATS.index(ending) - 1]]:
        result = trajcli.ok(f"{line.format(name, rate)} {option} -o out.h5 --overwrite")
        with h5py.File("out.h5") as file:
            array = file["position" if "position" in file else "data"]
            times = np.ravel(file["time"])
            yield np.squeeze(array), array.attrs.get("units", ""), times, result.err + result.out


@pytest.mark.parametrize("ending", FORMATS)
def test_units_of_the_command_line_win_over_those_of_the_file(trajcli, folder, ending):
    for stated, option, factor, step in (
        ({"a": "rad", "b": "rad"}, "deg", np.pi / 180, 0.02),
        ({"a": "deg", "b": "deg"}, "rad", 1.0, 0.02),
        ({"a": "deg", "b": "rad"}, "mm,deg", np.array([1e-3, np.pi / 180]), 0.02),
        ({"t": "s", "a": "rad", "b": "rad"}, "ms", 1.0, 2e-5),
        ({"t": "ms", "a": "rad", "b": "rad"}, "deg,s", np.pi / 180, 0.02),
    ):
        for values, _, times, _ in outputs(trajcli, ending, stated, 1 / step, f"--units {option}"):
            close(values[:39], (JOINTS * factor)[:39], rtol=1e-9, atol=1e-12)
            close(np.diff(times)[0], step, rtol=1e-9)


@pytest.mark.parametrize("ending", FORMATS)
def test_columns_without_a_known_unit_leave_those_of_the_others(trajcli, folder, ending):
    for stated, said in (({"a": "deg"}, "b"), ({"a": "deg", "b": "V"}, "b (V)")):
        for values, units, _, printed in outputs(trajcli, ending, stated, 50, ""):
            assert ending not in ("csv", "parquet") or f"no known unit for {said}:" in printed
            assert units.startswith("rad,")
            close(values, JOINTS * [np.pi / 180, 1], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("units", [{"x": "mm", "y": "mm", "z": "mm"}, {}])
def test_a_quaternion_beside_lengths_is_not_in_millimetres(trajcli, folder, units):
    turn = {"qx": 0 * TIMES, "qy": 0 * TIMES, "qz": np.sin(TIMES), "qw": np.cos(TIMES)}
    places = {"t": TIMES, "x": JOINTS[:, 0], "y": JOINTS[:, 1], "z": TIMES}
    name = table("csv", units, places | turn)
    option = "" if units else " --units mm"
    trajcli.ok(f"differentiate {name} --method central{option} -o out.h5")
    close(positions("out.h5"), np.c_[JOINTS, TIMES] / 1e3, rtol=1e-12, atol=1e-15)
    axes = np.squeeze(read_h5("out.h5")["orientation"])
    close(np.abs(axes), np.abs(np.stack([turn["qw"], *[turn[f"q{k}"] for k in "xyz"]], 1)),
          atol=1e-9)  # fmt: skip


@pytest.mark.parametrize("ending", ["h5", "zarr"])
@pytest.mark.parametrize(("kind", "chunks"), [("i2", None), ("u1", (8, 2)), ("f4", (8, 2))])
def test_values_packed_by_the_cf_conventions_are_unpacked(trajcli, folder, ending, kind, chunks):
    packed = RANDOM.integers(0, 200, (40, 2)).astype(kind)
    packed[3, 1], packed[5, 0] = 250, 251
    about = {"scale_factor": np.array([0.01]), "add_offset": -0.5, "missing_value": 251}
    about["_FillValue"] = np.array([250], kind)
    if ending == "h5":
        with h5py.File("in.h5", "w") as file:
            file.create_dataset("position", data=packed, chunks=chunks).attrs.update(about)
            file["time"] = TIMES
    else:
        group = pytest.importorskip("zarr").open("in.zarr", mode="w")
        array = group.create_array("position", data=packed, chunks=chunks or "auto")
        array.attrs.update({key: float(np.ravel(value)[0]) for key, value in about.items()})
        group.create_array("time", data=TIMES)
    trajcli.ok(f"export in.{ending} -o out.npz")
    expected = packed.astype(float) * 0.01 - 0.5
    expected[3, 1] = expected[5, 0] = np.nan
    close(np.load("out.npz")["position"][0], expected, rtol=1e-6 if kind == "f4" else 1e-14)
    assert trajcli.fails(f"check in.{ending}")


@pytest.mark.parametrize("ending", ["csv", "h5"])
def test_times_since_a_date_are_in_their_unit_or_refused(trajcli, folder, ending):
    line = f"differentiate in.{ending} --method central -o out.h5 --overwrite"
    for unit in ("Hours since 2024-05-01", "weeks since 2024-05-01", "days", "min"):
        table(ending, {"t": unit}, {"t": TIMES, "a": TIMES, "b": TIMES})
        trajcli.refuses(line, "a unit that is not converted", unit, "--dt SECONDS")
        trajcli.ok(f"{line} --dt 0.02")
    for unit, factor in (
        ("milliseconds since 2024-05-01 10:00:00", 1e3),
        ("s since 1970-01-01", 1),
    ):
        table(ending, {"t": unit}, {"t": TIMES * factor, "a": TIMES, "b": TIMES})
        trajcli.ok(line)
        close(np.ravel(read_h5("out.h5")["time"]), TIMES, atol=1e-9)


READERS = ["differentiate {} -o o.h5", "resample {} --to 25 -o o.h5", "fit {} --knots 9 -o o.h5",
           "export {} -o o.csv", "plot {} -o o.svg", "inspect {}", "check {}", "score {}",
           "integrate {}:position --mode clique --start zero --rate 50 -o o.h5"]  # fmt: skip


@pytest.mark.parametrize("ending", FORMATS)
def test_every_command_warns_of_degrees_until_obeyed(trajcli, folder, ending):
    name = table(ending, {}, {"t": TIMES, "position/a": JOINTS[:, 0], "position/b": JOINTS[:, 1]})
    for line in READERS if ending == "csv" else READERS[1 + FORMATS.index(ending) :: 3]:
        command = f"{line.format(name)}{' --overwrite' * ('-o' in line)}"
        for option, warned in (("", True), (" --units deg", False), (" --units rad", False)):
            result = trajcli(command + option)
            words = " ".join((result.out + result.err).split())
            assert result.code in (0, 1), words
            assert ("reads degrees" in words) == warned, (command + option, words)


@pytest.mark.parametrize("ending", ["h5", "npz"])
def test_outputs_are_in_si_whatever_units_are_asked_of_them(trajcli, folder, ending):
    Path("l.toml").write_text("[velocity]\nupper = 9e9\n")
    np.savez("in.npz", position=np.radians(JOINTS), times=TIMES)
    trajcli.ok(f"differentiate in.npz --method central -o out.{ending}")
    units = ("deg", "rad", "ms")
    for k, line in enumerate((*READERS, "retime {} --limits l.toml -o o.h5", "diff {0} {0}")):
        trajcli.refuses(f"{line.format(f'out.{ending}')} --units {units[k % 3]}", "--to-units")


def test_a_start_in_an_output_is_in_si(trajcli, folder):
    write_h5("made.h5", {"@trajcli_version": "1.0"}, position=np.radians(JOINTS[1]))
    for units, option in (("", "--units deg"), ("deg/s^2", "")):
        write("in.h5", {"actions": units}, actions=np.ones((5, 2)), dt=0.1)
        trajcli.ok(f"integrate in.h5 {option} --start made.h5:position -o o.h5 --overwrite")
        close(positions("o.h5")[0], np.radians(JOINTS[1]))


@pytest.mark.parametrize(
    ("out", "stated", "options", "factors", "heads"),
    [
        ("h5", "m,rad", "--to-units mm,deg,ms", [1e3, 180 / np.pi], ["ms", "mm", "deg"]),
        ("parquet", "m,rad", "--to-units deg,us", [1, 180 / np.pi], ["us", "m", "deg"]),
        ("npz", "deg", "--to-units deg,ms", 1.0, ["ms", "deg", "deg"]),
        ("csv", "deg", "--units rad --to-units deg", 180 / np.pi, ["s", "deg", "deg"]),
        ("csv", "", "--units mm,deg --to-units cm,deg", [0.1, 1], ["s", "cm", "deg"]),
        ("h5", "rad", "--to-units us", 1.0, ["us", "rad", "rad"]),
    ],
)
def test_exports_are_in_the_units_that_are_asked_for(
    trajcli, folder, out, stated, options, factors, heads
):
    factors = np.array(factors)
    write("in.h5", {"position": stated}, position=JOINTS.astype("f4"), time=TIMES)
    trajcli.ok(f"export in.h5 {options} -o out.{out}")
    per = PER[heads[0]]
    if out in ("h5", "npz"):
        read = read_h5("out.h5") if out == "h5" else np.load("out.npz")
        close(np.squeeze(read["position"]), JOINTS * factors, rtol=1e-6)
        close(np.ravel(read["time"]), TIMES * per, rtol=1e-12, atol=1e-12)
    else:
        if out == "csv":
            first, *rows = Path("out.csv").read_text().splitlines()
            rows = np.array([row.split(",") for row in rows], float)
        else:
            read = pytest.importorskip("pyarrow.parquet").read_table("out.parquet")
            first, rows = ",".join(read.column_names), np.stack(read.columns, 1)
        assert first == f"t ({heads[0]}),position/0 ({heads[1]}),position/1 ({heads[2]})"
        close(rows, np.c_[TIMES * per, JOINTS * factors], rtol=1e-6, atol=1e-12)
    si_units = np.array([PER[head] for head in heads[1:]])
    trajcli.ok(f"differentiate out.{out} --method central -o back.h5")
    close(positions("back.h5"), JOINTS * factors / si_units, rtol=1e-6)
    close(np.ravel(read_h5("back.h5")["time"]), TIMES, atol=1e-12)


QUATERNION = np.array([0.6, 0.0, 0.8, 0.0])


@pytest.mark.parametrize(
    ("array", "options", "units"),
    [
        ("angular_velocity", "--mode velocity --dofs 0:3 --units deg", ""),
        ("turns_rotvec", "--mode clique --actions delta", "deg"),
        ("turns", "--mode clique --actions delta --rotation rpy --units deg", ""),
        ("turns", "--mode clique --actions relative --rotation rotvec", "deg"),
    ],
)
def test_a_quaternion_to_start_from_has_no_unit(trajcli, folder, array, options, units):
    turns = RANDOM.normal(0, 20, (2, 12, 3))
    attributes = {f"{array}@units": units} if units else {}
    arrays = {array: turns, "dt": 0.02}
    write_h5("number.h5", arrays | attributes)
    write_h5("position.h5", arrays | attributes, **{"start/position": QUATERNION})
    turned = {"start/orientation": QUATERNION[[1, 2, 3, 0]], "start/position": np.ones(3)}
    write_h5("turned.h5", arrays | attributes | turned, **{"start/orientation@order": "xyzw"})
    for start in ("number.h5 --start 0.6,0,0.8,0", "position.h5", "turned.h5"):
        name, _, more = start.partition(" ")
        trajcli.ok(f"integrate {name}:{array} {options} {more} --overwrite -o out.h5")
        close(read_h5("out.h5")["orientation"][:, 0], [QUATERNION] * 2, rtol=0, atol=1e-12)


def test_units_leave_what_has_none(trajcli, folder):
    """Rotations beside lengths, and dofs whose unit is -: read, written, and compared."""
    random, names = np.random.default_rng(0), ["x", "y", "z", "qx", "qy", "qz", "qw", "gripper"]
    turns = rotations.exp(np.cumsum(random.normal(0, 0.05, (40, 3)), 0))[:, [1, 2, 3, 0]]
    pose = np.c_[np.cumsum(random.normal(size=(40, 3)), 0), turns, random.random(40)]
    metres = pose * ([1e-3] * 3 + [1.0] * 5)
    write_h5("mm.h5", pose=pose, joint_names=names, dt=0.02, **{"pose@units": "mm,mm,mm,-,-,-,-,-"})
    write_h5("all.h5", pose=pose[:, :7], joint_names=names[:7], dt=0.02, **{"pose@units": "mm"})
    write_h5("m.h5", pose=metres[:, :7], joint_names=names[:7], dt=0.02, **{"pose@units": "m"})
    write_h5("bare.h5", pose=pose, joint_names=names, dt=0.02)
    write_h5("si.h5", pose=metres, joint_names=names, dt=0.02)
    assert trajcli("diff all.h5:pose m.h5:pose --atol 1e-12").code == 0
    more, noise = "--method smooth --overwrite", "--noise 0.01 -o out.h5"
    trajcli.ok(f"differentiate si.h5:pose {more} --noise 1e-5 -o lengths.h5")
    trajcli.ok(f"differentiate si.h5:pose {more} --noise 0.01 -o turns.h5")
    lengths, others = read_h5("lengths.h5"), read_h5("turns.h5")
    for source in ("mm.h5:pose", "bare.h5:pose --units mm,mm,mm,-,-,-,-,-"):
        trajcli.ok(f"differentiate {source} {more} {noise}")
        found = read_h5("out.h5")
        for name in ("recorded_position", "position", "velocity", "residual"):
            close(found[name][..., :3], lengths[name][..., :3], rtol=1e-9)
            close(found[name][..., 3], others[name][..., 3], rtol=1e-9)
        same(found["angular_velocity"], others["angular_velocity"])
        with h5py.File("out.h5") as file:
            assert file["recorded_position"].attrs["units"] == "m,m,m,-"
            assert file["residual"].attrs["units"] == "m,m,m,-"
    trajcli.ok("resample all.h5:pose --to 25 -o out.h5 --overwrite")
    with h5py.File("out.h5") as file:
        assert file["pose"].attrs["units"] == "m,m,m"


def test_a_unit_of_lengths_leaves_angular_rates_in_theirs(trajcli, folder):
    rates = RANDOM.normal(size=(1, 9, 3))
    write_h5("w.h5", angular_velocity=rates, dt=0.02, **{"angular_velocity@units": "deg/s"})
    line = "integrate w.h5:angular_velocity --mode velocity --start zero --overwrite -o out.h5"
    found = []
    for units in ("", " --units mm", " --units m"):
        trajcli.ok(line + units)
        found.append(read_h5("out.h5")["angular_velocity"])
    close(found, [np.radians(np.concatenate([0 * rates[:, :1], rates], 1))] * 3, rtol=1e-14)
    trajcli.ok("export out.h5:angular_velocity --to-units mm -o out.csv")
    assert "rad/s" in Path("out.csv").read_text().split("\n")[0]
