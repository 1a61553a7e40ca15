"""What a file says of itself is believed, or said where it cannot be: units, modes, states."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from trajcli.units import parse_units


def written(name: str, units: str = "", **more: Any) -> None:
    """actions [2, 9, 3] in a unit, dt, and further datasets as (values, unit) or values."""
    with h5py.File(name, "w") as file:
        file["actions"] = np.ones((2, 9, 3), "f4")
        if units:
            file["actions"].attrs["units"] = units
        for key, value in {"dt": 0.02, **more}.items():
            values, unit = value if isinstance(value, tuple) else (value, "")
            file[key.replace("_", "/")] = values
            if unit:
                file[key.replace("_", "/")].attrs["units"] = unit


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
@pytest.mark.parametrize(
    ("unit", "per_second", "message"),
    [
        *(("ms", 1e3, "/{name}, in ms"), ("ns", 1e9, "/{name}, in ns")),
        *(("µs", 1e6, "/{name}, in us"), ("milliseconds", 1e3, "/{name}, in ms")),
        *(("s", 1, "/{name}"), ("[s]", 1, "/{name}"), ("1", 1, "/{name}")),
        ("ticks", 1, "u.h5:/{name} is in 'ticks', which is not known (s, ms, us, ns): taken as s"),
    ],
)
def test_steps_in_another_unit_are_converted(trajcli, folder, name, unit, per_second, message):
    steps = 0.02 if name == "dt" else np.arange(10) * 0.02
    written("u.h5", **{name: (steps * per_second, unit)})
    if name == "times":
        with h5py.File("u.h5", "a") as file:
            del file["dt"]
    result = trajcli("integrate u.h5 --start zero -o out.h5")
    assert result.code == 0
    assert message.format(name=name) in result.out + result.err
    with h5py.File("out.h5") as file:
        np.testing.assert_allclose(file["time"], np.arange(10) * 0.02, rtol=1e-15)
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
    written("u.h5", units, start_position=(np.zeros((1, 3)), start))
    result = trajcli("integrate u.h5 -o out.h5")
    assert result.code == 0
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
def test_the_mode_that_a_file_states_is_used_and_said_unless_another_is_asked_for(
    trajcli, folder, options, mode, scheme, message
):
    written("u.h5")
    with h5py.File("u.h5", "a") as file:
        file.attrs.update(mode="jerk", scheme="zoh")
    result = trajcli(f"integrate u.h5 --start zero -o out.h5 {options}")
    assert result.code == 0
    assert message in result.out + result.err
    assert ("warning" in result.err) == ("not" in message or "which" in message)
    with h5py.File("out.h5") as file:
        assert (file.attrs["mode"], file.attrs["scheme"]) == (mode, scheme)
    again = trajcli("integrate out.h5:position --mode clique --start zero --dt 1 -o more.h5")
    assert "states" not in again.err  # of an output: how it was made


def test_files_that_state_different_modes_are_refused_until_one_is_asked_for(trajcli, folder):
    for name, mode in (("a.h5", "jerk"), ("b.h5", "velocity")):
        written(name)
        with h5py.File(name, "a") as file:
            file.attrs.update(mode=mode, scheme="something else")
    result = trajcli("integrate a.h5 b.h5 --start zero -o out.h5")
    assert result.code == 2
    assert "a.h5:/ mode jerk; b.h5:/ mode velocity" in result.err
    result = trajcli("integrate a.h5 b.h5 --start zero --mode jerk -o out.h5")
    assert result.code == 0
    assert result.err.count("warning") == 1
    assert "b.h5:/ states mode velocity, which" in result.err


@pytest.mark.parametrize("name", ["dt", "times"])
def test_steps_in_minutes_are_refused(trajcli, folder, name):
    written("u.h5", **{"dt": 0.02, name: (np.arange(1, 10), "minutes")})
    result = trajcli("integrate u.h5 --start zero -o out.h5")
    assert result.code == 2
    for part in (f"u.h5:/{name}: a unit that is not converted", "s, ms, us, ns", "minutes"):
        assert part in result.err
    assert not Path("out.h5").exists()
