"""The relation of a mode holds in what trajcli writes, and breaks where one number is wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from trajcli.cli import main
from trajcli.files.opening import open_arrays
from trajcli.files.source import Source
from trajcli.views.motions import find_trajectories
from trajcli.views.scan import Relation, scan

QUANTITIES = ("position", "velocity", "acceleration", "jerk")

JOBS = [
    *(f"reach.h5 --mode jerk --scheme {s} --frames {f}" for s in ("euler", "zoh", "foh")
      for f in ("full", "actions", "curobo")),
    *(f"accelerations.npy --mode {m} --scheme {s} --start {{s}}/start.npy --dt 0.02 {d}"
      for m in ("acceleration", "velocity", "clique") for s in ("euler", "zoh", "foh")
      for d in ("", "--dtype float64")),
    "accelerations.npy --mode clique --convention curobo --start {s}/start.npy --dt 0.02",
    *(f"accelerations.npy --mode central --frames {f} --start {{s}}/start.npy --dt 0.02"
      for f in ("full", "actions", "curobo")),
    "accelerations.npy --mode central --convention curobo --start {s}/start.npy --dt 0.02",
    *(f"accelerations.npy --mode teleport --frames {f} --start {{s}}/start.npy --dt 0.02"
      for f in ("full", "actions")),
    *(f"recorded.h5:position --start first --mode {m}" for m in ("central", "clique", "teleport")),
    *(f"control_points.npz --mode bspline --degree {d} --steps {n} --ends {e} {t}"
      for d in (3, 4, 5) for n, e, t in
      ((1, "plan", ""), (5, "goal", "--dtype float32"), (4, "goal", "--convention curobo"))),
]  # fmt: skip


def relation_of(path: Path) -> Relation:
    with open_arrays(path) as file:
        (motions,) = find_trajectories(file, Source(path)).main
        found = scan(motions).relation
    assert found is not None
    return found


def make(samples: Path, job: str, out: Path) -> None:
    words = f"integrate {samples}/{job.format(s=samples)} --quiet -o".split()
    assert main([*words, str(out)]) == 0


def without_relation(job: str, quantity: str, row: int, rows: int) -> bool:
    """Numbers that nothing in the file says anything about."""
    if "teleport" in job:
        return quantity == "position"
    start_row = row == 0 and "bspline" not in job and "first" not in job
    if start_row and (quantity in ("acceleration", "jerk") or "central" in job):
        return True  # a copy of the start state, which the start row's own check compares
    windows = "central" in job and ("actions" in job or "curobo" in job)
    return windows and row < 4 and "--frames curobo" not in job and rows > 0


@pytest.mark.parametrize("job", JOBS)
def test_it_holds_in_an_output_and_one_damaged_number_breaks_it_and_is_named(
    samples, tmp_path, job
):
    out = tmp_path / "out.h5"
    make(samples, job, out)
    good = relation_of(out)
    assert good.holds, (good.dataset, good.place, good.ratio)
    assert good.numbers > 0
    assert good.failing == 0
    random = np.random.default_rng(len(job))
    for quantity in QUANTITIES * 2:
        with h5py.File(out, "r+") as file:
            data: Any = file[quantity]
            place = tuple(int(random.integers(n)) for n in data.shape)
            if without_relation(job, quantity, place[1], data.shape[1]):
                continue
            kept = data[place]
            data[place] = kept + (0.01 * float(np.abs(data[...]).max()) or 1.0)
        bad = relation_of(out)
        assert not bad.holds, (quantity, place)
        assert (bad.dataset, bad.place) == (quantity, place)
        with h5py.File(out, "r+") as file:
            file[quantity][place] = kept


def test_damage_beyond_rounding_is_found_however_small(samples, tmp_path):
    out = tmp_path / "out.h5"
    make(samples, "accelerations.npy --start {s}/start.npy --dt 0.02", out)
    with h5py.File(out, "r+") as file:
        value = np.float32(file["position"][7, 40, 2])
        file["position"][7, 40, 2] = np.nextafter(value, np.float32(9), dtype=np.float32)
    assert relation_of(out).holds  # one unit in the last place is what rounding may do
    with h5py.File(out, "r+") as file:
        file["position"][7, 40, 2] = value + 12 * np.spacing(value)
    bad = relation_of(out)
    assert (bad.dataset, bad.place) == ("position", (7, 40, 2))


def test_windows_of_long_trajectories_cover_every_row_once(samples, tmp_path, monkeypatch):
    from trajcli.views import scan as module

    out = tmp_path / "out.h5"
    make(samples, "recorded.h5:position --start first --mode central", out)
    whole = relation_of(out)
    monkeypatch.setattr(module, "_BLOCK_BYTES", 4096)
    pieces = relation_of(out)
    assert pieces.numbers == whole.numbers
    assert pieces.holds
    with h5py.File(out, "r+") as file:
        file["velocity"][0, 1234, 5] += 0.1
    assert relation_of(out).place == (0, 1234, 5)


def test_nan_is_no_business_of_the_relation(samples, tmp_path):
    out = tmp_path / "out.h5"
    make(samples, "reach.h5 --mode jerk --scheme zoh", out)
    with h5py.File(out, "r+") as file:
        file["velocity"][3, 9, 1] = np.nan
    assert relation_of(out).holds
