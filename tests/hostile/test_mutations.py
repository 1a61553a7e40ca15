"""Hundreds of broken and hostile files: exit 2 or a correct run, and nothing left behind."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import h5py
import numpy as np
import pytest
from hostile import files, mutants
from hostile.runner import Ended, run_all
from hostile.watch import Watch

SEED = 5000
"""The same each time, so that what passed passes again; other seeds are for hostile.mutants."""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("hostile")


@pytest.fixture(scope="module")
def secret(place: Path) -> Path:
    """Two files that nothing may open, with numbers that nothing may show."""
    path = place / "secret.h5"
    with h5py.File(path, "w") as file:
        for name in ("actions", "data/demo_0/actions", "start/position"):
            file[name] = np.full((12, 150, 7), files.SECRET, "f4")
        file["dt"] = files.SECRET
    path.with_suffix(".raw").write_bytes(np.full(1 << 16, files.SECRET, "f4").tobytes())
    return path


def run(cases: list[files.Case], name: str, options: str, place: Path) -> list[Ended]:
    """How integrate ends with each of these files."""
    mutants.warm()
    folder = place / f"run{options.rpartition(' ')[2]}"
    folder.mkdir()
    lines = [(case, _rest(case)) for case, _ in cases]
    jobs = [
        (case, k, f"integrate {name} -o out.h5 {rest} {options}", {name: data}, False)
        for k, ((case, data), (_, rest)) in enumerate(zip(cases, lines, strict=True))
    ]
    ended = list(run_all(jobs, mutants.work, folder))
    shutil.rmtree(folder)
    return ended


def _rest(case: str) -> str:
    """What the command itself says; the file is asked for it where that leads elsewhere."""
    return "" if case.startswith("external") else "--start zero --dt 0.02"


def refused(ended: list[Ended]) -> None:
    wrong = [end for end in ended if end.code != 2 or mutants.faulty(end)]
    assert not wrong, "\n".join(map(mutants.described, wrong))


@pytest.mark.parametrize(("count", "kinds"), [(150, ""), (20, "pt")])
def test_mutants_are_bad_input_or_run_correctly(capsys, count, kinds):
    """In a process of its own, which is small: forking one that has torch takes twice as long."""
    options = ["-W", "error", "-m", "hostile.mutants"]
    process = subprocess.run(
        [sys.executable, *options, f"--count={count}", f"--seed={SEED}", f"--kinds={kinds}"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode == 0, process.stdout[-12000:] + process.stderr[-4000:]
    summary = process.stdout.splitlines()[-1]
    with capsys.disabled():
        print(f"\n{summary}")
    assert f"{count} mutants" in summary
    ended = Counter(ast.literal_eval(summary[summary.index("{") : summary.index("}") + 1]))
    assert ended["exit 0"] > count // 10
    assert ended["exit 2"] > count // 4
    assert ended["ended HDF5"] <= count // 50


def test_npy_headers_that_declare_too_much_or_no_numbers_are_refused(place):
    cases = list(files.huge_numpy_headers())
    refused(run(cases, "header.npy", "", place))
    assert not list(place.rglob("owned"))


def test_files_that_lead_elsewhere_or_declare_too_much_are_refused_unread(place, secret):
    cases = list(files.hostile_hdf5(place, secret))
    watch = Watch(secret, secret.with_suffix(".raw"))
    ended = run(cases, "case.h5", "", place)
    assert watch.count() == 0
    refused(ended)
    assert not [end for end in ended if str(files.SECRET) in end.text]
    secret.read_bytes()
    assert watch.count() > 0  # it would have been seen
