"""Horizons too long to be held: times are made as they are written."""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np
import pytest

from trajcli.jobs.request import Request
from trajcli.jobs.run import run


@pytest.mark.parametrize(
    ("mode", "options"),
    [
        ("acceleration", {}),
        ("jerk", {"frames": "actions"}),
        ("central", {"frames": "curobo"}),
        ("central", {"convention": "curobo"}),
        ("bspline", {"steps": 2}),
    ],
)
def test_the_times_of_many_rows_are_those_of_few(tmp_path, monkeypatch, mode, options):
    monkeypatch.chdir(tmp_path)
    np.save("actions.npy", np.zeros((50, 1), "f4"))
    request = Request(sources=["actions.npy"], out=Path("few.h5"), dt="0.013", start="zero",
                      mode=mode, options=options, write=("position",))  # fmt: skip
    run(request)
    monkeypatch.setattr("trajcli.inputs._MANY_ROWS", 10)
    monkeypatch.setattr("trajcli.files.outputs._ROWS_AT_ONCE", 7)
    from dataclasses import replace

    run(replace(request, out=Path("many.h5")))
    with h5py.File("few.h5") as few, h5py.File("many.h5") as many:
        np.testing.assert_array_equal(few["time"], many["time"])
        assert few["time"].shape == few["position"].shape[1:2]
