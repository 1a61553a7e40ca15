"""Hundreds of broken and hostile files: exit 2 or a correct run, and nothing left behind."""

from __future__ import annotations

import ast
import ctypes
import os
import struct
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from hostile.mutants import Mutant, describe, faulty, run
from hostile.runner import warm

COUNT = 68
"""Of one seed, so that what passed passes again; other seeds are for hostile.mutants."""
SECRET = 7.25  # what lies in the files that must not be read
SHAPE = (12, 150, 7)
HEADERS = (
    "{'descr': '<f4', 'fortran_order': False, 'shape': (1000000, 1000, 1000)}",
    "{'descr': '<f8', 'fortran_order': True, 'shape': (4611686018427387904, 7, 7)}",
    "{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999, 1, 1)}",
    "{'descr': '<f4', 'fortran_order': False, 'shape': (-1, 5, 7)}",
    "{'descr': '<f4', 'fortran_order': False, 'shape': (5, 0, 7)}",
    "{'descr': '|O', 'fortran_order': False, 'shape': (5, 5, 7)}",
    "{'descr': '<U9', 'fortran_order': False, 'shape': (5, 5, 7)}",
    "{'descr': '<f4', 'fortran_order': False, 'shape': 5}",
    "{'descr': [('a', '<U4'), ('b', '|S4')], 'fortran_order': False, 'shape': (5, 5, 7)}",
    "{'descr': __import__('os').system('touch owned'), 'fortran_order': False, 'shape': (5,)}",
    "[" * 3000,
    "{" + "'a':" * 2000,
    "",
)


def test_npy_headers_that_declare_too_much_or_no_numbers_are_refused(tmp_path):
    line = "integrate header.npy -o out.h5 --start zero --dt 0.02"
    several = []
    for number, header in enumerate(HEADERS):
        text = header.encode() + b" " * 16 + b"\n"
        data = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text + bytes(2000)
        several.append(Mutant(header[:60], number, line, {"header.npy": data}))
    warm()
    wrong = [end for end in run(several, tmp_path) if end.code != 2 or faulty(end)]
    assert not wrong, "\n".join(map(describe, wrong))


def virtual(target: str) -> Callable[[h5py.File, str], None]:
    def fill(file: h5py.File, name: str) -> None:
        layout = h5py.VirtualLayout(SHAPE, "f4")
        layout[...] = h5py.VirtualSource(target, "actions", SHAPE)
        file.create_virtual_dataset(name, layout)

    return fill


def dataset(*arguments: Any, **options: Any) -> Callable[[h5py.File, str], None]:
    return lambda file, name: file.create_dataset(name, *arguments, **options)


def deep(file: h5py.File, name: str) -> None:
    for _ in range(1500):
        file = file.create_group("g")
    file[name] = np.zeros((2, 3, 1))


def list_hostile_files(secret: Path) -> dict[str, dict[str, Any]]:
    """What lies where in files that lead elsewhere, or declare what no disk holds."""

    def external(name: str) -> h5py.ExternalLink:
        return h5py.ExternalLink(str(secret), name)

    raw = [(str(secret.with_suffix(".raw")), 0, h5py.h5f.UNLIMITED)]
    huge, flags, soft = (1 << 20, 1 << 10, 1 << 10), np.zeros((100, 7), "f4"), h5py.SoftLink
    array, demos = np.zeros(SHAPE, "f4"), [f"/data/demo_{k}" for k in range(12)]
    return {
        "external link": {"actions": external("/actions")},
        "external group": {"data": external("/data")},
        "external start": {"actions": array, "start": external("/start")},
        "external dt": {"actions": array, "start/position": array[0, 0], "dt": external("/dt")},
        "soft link to external": {"far": external("/"), "actions": soft("/far/actions")},
        "demos behind external links": {name: external(name) for name in demos},
        "trajectories behind external links": {f"traj_{k}/actions": external("/actions")
                                               for k in range(3)},
        "external storage": {"actions": dataset(SHAPE, "f4", external=raw)},
        "external storage of a flag": {"actions": flags, "observations": flags,
                                       "terminals": dataset((100,), "u1", external=raw)},
        "virtual": {"actions": virtual(str(secret))},
        "virtual of itself": {"actions": virtual(".")},
        "virtual demo": {"data/demo_0/actions": virtual(str(secret))},
        "4 TB contiguous": {"actions": dataset(huge, "f4")},
        "4 TB chunked": {"actions": dataset(huge, "f4", chunks=(1, 1, 1 << 10))},
        "4 TB deflated": {
            "actions": dataset(huge, "f4", chunks=(1 << 6, 1 << 10, 1), compression="gzip")},
        "an empty dataspace": {"actions": dataset(data=h5py.Empty("f4"))},
        "loops": {"data/demo_0": soft("/data"), "data/demo_1": soft("/data/demo_1"),
                  "data/demo_2": soft("/data/demo_3"), "data/demo_3": soft("/data/demo_2"),
                  "data/demo_4": lambda file, name: file["data"].__setitem__(name, file["data"])},
        "deep": {"actions": deep},
        "strings": {"actions": ["a", "b"]},
        "references": {"actions": lambda file, name: file.create_dataset(
            name, data=[file.ref] * 4, dtype=h5py.ref_dtype)},
        "a named type": {"actions": np.dtype("f4")},
    }  # fmt: skip


def count_openings(descriptor: int) -> int:
    """Counts the events of inotify since the last call."""
    try:
        data, count = os.read(descriptor, 1 << 16), 0
    except BlockingIOError:
        return 0
    while data:
        data, count = data[16 + struct.unpack_from("I", data, 12)[0] :], count + 1
    return count


def test_files_that_lead_elsewhere_or_declare_too_much_are_refused_unread(tmp_path):
    secret, several = tmp_path / "secret.h5", []
    with h5py.File(secret, "w") as file:
        for name in ("actions", "data/demo_0/actions", "start/position"):
            file[name] = np.full(SHAPE, SECRET, "f4")
        file["dt"] = SECRET
    raw = secret.with_suffix(".raw")
    raw.write_bytes(np.full(1 << 16, SECRET, "f4").tobytes())
    for version in ("earliest", "latest"):
        for kind, parts in list_hostile_files(secret).items():
            with h5py.File(tmp_path / "case.h5", "w", libver=version) as file:
                for name, value in parts.items():
                    _ = value(file, name) if callable(value) else file.__setitem__(name, value)
            # the file is asked for start and step where these lead elsewhere
            line = "integrate case.h5 -o out.h5"
            line += "" if kind.startswith("external") else " --start zero --dt 0.02"
            data = (tmp_path / "case.h5").read_bytes()
            several.append(Mutant(f"{kind}, {version}", len(several), line, {"case.h5": data}))
    libc = ctypes.CDLL(None)
    watch = libc.inotify_init1(os.O_NONBLOCK)
    for path in (secret, raw):
        assert libc.inotify_add_watch(watch, os.fsencode(path), 0x21) > 0  # open, access
    warm()
    ended = run(several, tmp_path)
    assert count_openings(watch) == 0
    wrong = [end for end in ended if end.code != 2 or faulty(end) or str(SECRET) in end.text]
    assert not wrong, "\n".join(map(describe, wrong))
    secret.read_bytes()
    assert count_openings(watch) > 0  # it would have been seen


def test_mutants_are_bad_input_or_run_correctly(capsys):
    """In a process of its own, which is small, and so forks fast."""
    process = subprocess.run(
        [sys.executable, "-W", "error", "-m", "hostile.mutants", f"--count={COUNT}", "--seed=5000"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode == 0, process.stdout[-12000:] + process.stderr[-4000:]
    summary = process.stdout.splitlines()[-1]
    with capsys.disabled():
        print(f"\n{summary}")
    ended = Counter(ast.literal_eval(summary[summary.index("{") : summary.index("}") + 1]))
    assert ended["exit 0"] + ended["exit 1"] + ended["exit 2"] >= COUNT - COUNT // 50
    assert ended["exit 0"] > COUNT // 10
    assert ended["exit 2"] > COUNT // 4
