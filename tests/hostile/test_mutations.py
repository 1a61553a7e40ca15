"""Hundreds of broken and hostile files: exit 2 or a correct run, and nothing left behind.

Every file is run with --untrusted, so that what ends its reader is reported; how many files
needed that is printed. Some are run without as well.
"""

from __future__ import annotations

import gc
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from hostile import files
from hostile.runner import Ended, run_all
from hostile.watch import Watch

from trajcli import integrate

FLIPS, SWAPS = 60, 50
"""Per whole file; with the cuts some 900 files in all."""
AT_ONCE = 3


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


def mutated(place: Path) -> list[tuple[str, str, bytes]]:
    """Name, what was done, bytes."""
    found = []
    for seed, (name, whole) in enumerate(files.whole_files(place).items()):
        cases = [
            ("whole", whole),
            *files.cut(whole),
            *files.flipped(whole, FLIPS, seed),
            *files.swapped(whole, SWAPS, seed),
        ]
        found += [(name, case, data) for case, data in cases]
    return found + [("header.npy", case, data) for case, data in files.huge_numpy_headers()]


def work(job: tuple[str, str, bytes, str]) -> int:
    """Run a file; a run that says it succeeded is checked against what h5py and NumPy read.

    What the command does once its words are parsed, and its exit code: parsing them nine hundred
    times would take longer than all else.
    """
    from trajcli.cli.console import Console
    from trajcli.errors import TrajcliError
    from trajcli.jobs.request import Request
    from trajcli.jobs.run import run

    name, case, data, option = job
    Path(name).write_bytes(data)
    # where the file itself has the rest, it is asked for it
    rest = {} if case.startswith("external") else {"start": "zero", "dt": "0.02"}
    request = Request([name], Path("out.h5"), allow_nonfinite=True, untrusted=bool(option), **rest)
    try:
        run(request)
        code = 0
    except TrajcliError as error:
        code = Console().fail(error)
    left = sorted(path.name for path in Path().iterdir() if path.name != name)
    assert left == ([] if code else ["out.h5"]), left
    if code == 0:
        check_values(name)
    return code


def check_values(name: str) -> None:
    """Every trajectory of OUT is what the library makes of the same actions, read by others."""
    with h5py.File("out.h5") as out:
        if "position" in out:
            given = _actions(name)
            given = given[None] if given.ndim == 2 else given
            found = integrate(given, "zero", 0.02, allow_nonfinite=True)
            np.testing.assert_array_equal(out["position"][:], found.position)
            return
        with h5py.File(name) as file:
            for demo, group in out["data"].items():
                given = file[f"data/{demo}/actions"][:]
                found = integrate(given, "zero", 0.02, allow_nonfinite=True)
                np.testing.assert_array_equal(group["position"][:], found.position[0])


def _actions(name: str) -> Any:
    if name.endswith(".npy"):
        return np.load(name)
    with h5py.File(name) as file:
        if "actions" in file:
            return file["actions"][:]
        return np.stack([file[f"data/{demo}/actions"][:] for demo in file["data"]])


def run(jobs: list[Any], option: str, place: Path) -> list[Ended]:
    folder = place / f"run{option}"
    folder.mkdir(exist_ok=True)
    ended = []
    for end in run_all([(*job, option) for job in jobs], work, folder, AT_ONCE):
        ended.append(end)
        shutil.rmtree(end.folder)
    return ended


def _warm() -> None:
    """Import here what every child would import."""
    import trajcli.cli.console
    import trajcli.files.hdf5
    import trajcli.files.limits
    import trajcli.files.numpy_files
    import trajcli.files.untrusted
    import trajcli.jobs.run  # noqa: F401
    from trajcli.kernels import native

    native.absence()
    gc.collect()
    gc.freeze()  # what is never looked at again need not be copied for every child


ENDED = ("ended the reader", "too long to read")


def describe(ends: list[Ended]) -> str:
    return "\n".join(f"{e.job[:2]} → {e.code} in {e.seconds:.1f} s: {e.text[-500:]}" for e in ends)


def test_hundreds_of_broken_files_are_bad_input_or_run_correctly(place, capsys):
    _warm()
    jobs = mutated(place)
    contained = run(jobs, "--untrusted", place)
    bad = [e for e in contained if e.code not in (0, 2) or e.hung or "Traceback" in e.text]
    assert not bad, describe(bad)
    needed = [e for e in contained if any(told in e.text for told in ENDED)]
    assert len(needed) <= len(jobs) // 50, describe(needed)
    plain = run([e.job[:3] for e in contained if e not in needed][::8], "", place)
    wrong = [e for e in plain if e.code not in (0, 2) or e.hung or "Traceback" in e.text]
    assert not wrong, describe(wrong)
    kinds = Counter(e.code for e in contained)
    with capsys.disabled():
        print(f"\n{len(jobs)} files: {kinds[2]} refused, {kinds[0]} run; {len(needed)} needed "
              "--untrusted")  # fmt: skip
    assert len(jobs) >= 900
    assert kinds[0] > 100
    assert kinds[2] > 300
    for name in files.whole_files(place):  # and all of them run as they are
        (whole,) = (e for e in contained if e.job[:2] == (name, "whole"))
        assert whole.code == 0, whole.text


def test_files_that_lead_elsewhere_or_declare_too_much_are_refused_unread(place, secret):
    _warm()
    jobs = [("case.h5", *case) for case in files.hostile_hdf5(place, secret)]
    watch = Watch(secret, secret.with_suffix(".raw"))
    for option in ("", "--untrusted"):
        ended = run(jobs, option, place)
        assert watch.count() == 0
        wrong = [e for e in ended if e.code != 2 or e.hung or "Traceback" in e.text]
        assert not wrong, describe(wrong)
        assert not [e for e in ended if str(files.SECRET) in e.text]
    secret.read_bytes()
    assert watch.count() > 0  # it would have been seen


def test_a_reader_that_dies_is_a_bad_file_and_one_that_hangs_is_stopped(place, monkeypatch):
    """The containment itself, with readers that do their worst."""
    import os
    import time

    from trajcli.errors import InputError
    from trajcli.files import opening, untrusted

    np.save(place / "good.npy", np.zeros((2, 3, 1)))
    with untrusted.UntrustedFile(place / "good.npy", "npy", False) as file:
        assert file.require("").shape == (2, 3, 1)
        os.kill(file.opened().process.pid, 11)
        with pytest.raises(InputError, match="SIGSEGV"):
            file.names()
    monkeypatch.setattr(untrusted, "SECONDS", 1.0)
    with untrusted.UntrustedFile(place / "good.npy", "npy", False) as file:
        os.kill(file.opened().process.pid, 19)
        began = time.monotonic()
        with pytest.raises(InputError, match="too long"):
            file.names()
        assert time.monotonic() - began < 5
    assert opening.recognise(place / "good.npy") == "npy"
