"""Files that mean harm: those that lead elsewhere, and those that declare too much."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

import h5py
import numpy as np

SECRET = 7.25  # what lies in the files that must not be read

Case = tuple[str, bytes]
"""What was done, the bytes of the file."""


def huge_numpy_headers() -> Iterator[Case]:
    """.npy files that declare far more than they hold, or what is no array of numbers."""
    for header in (
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
    ):
        text = header.encode() + b" " * 16 + b"\n"
        size = struct.pack("<H", len(text))
        yield f"header {header[:60]}", b"\x93NUMPY\x01\x00" + size + text + bytes(2000)


def hostile_hdf5(folder: Path, secret: Path) -> Iterator[Case]:
    """Files that lead elsewhere, or declare what no disk holds."""
    raw = [(str(secret.with_suffix(".raw")), 0, h5py.h5f.UNLIMITED)]
    shape = (12, 150, 7)

    def virtual(file: h5py.File, name: str, target: str) -> None:
        layout = h5py.VirtualLayout(shape, "f4")
        layout[...] = h5py.VirtualSource(target, "actions", shape)
        file.create_virtual_dataset(name, layout)

    def huge(file: h5py.File, **options: object) -> None:
        file.create_dataset("actions", shape=(1 << 20, 1 << 10, 1 << 10), dtype="f4", **options)

    def loop(file: h5py.File) -> None:
        group = file.create_group("data")
        group["demo_0"] = group
        for k, other in ((1, 1), (2, 3), (3, 2)):
            group[f"demo_{k}"] = h5py.SoftLink(f"/data/demo_{other}")

    def deep(file: h5py.File) -> None:
        group = file
        for _ in range(1500):
            group = group.create_group("g")
        group["actions"] = np.zeros((2, 3, 1))

    def far(path: str) -> h5py.ExternalLink:
        return h5py.ExternalLink(str(secret), path)

    zeros, several = np.zeros(shape, "f4"), np.zeros((100, 7), "f4")
    contents = {
        "external link": {"actions": far("/actions")},
        "external group": {"data": far("/data")},
        "external start": {"actions": zeros, "start": far("/start")},
        "external dt": {"actions": zeros, "start/position": np.zeros(7), "dt": far("/dt")},
        "soft link to external": {"far": far("/"), "actions": h5py.SoftLink("/far/actions")},
        "demos behind external links": {
            f"data/demo_{i}": far(f"/data/demo_{i}") for i in range(12)
        },
        "trajectories behind external links": {
            f"traj_{i}/actions": far("/actions") for i in range(3)
        },
        "an empty dataspace": {"actions": h5py.Empty("f4")},
        "strings": {"actions": ["a", "b"]},
        "a named type": {"actions": np.dtype("f4")},
    }
    cases = {name: lambda f, values=values: f.update(values) for name, values in contents.items()}
    cases |= {
        "external storage": lambda f: f.create_dataset("actions", shape, "f4", external=raw),
        "external storage of a flag": lambda f: (
            f.update({"actions": several, "observations": several}),
            f.create_dataset("terminals", (100,), "u1", external=raw),
        ),
        "virtual": lambda f: virtual(f, "actions", str(secret)),
        "virtual of itself": lambda f: virtual(f, "actions", "."),
        "virtual demo": lambda f: virtual(f, "data/demo_0/actions", str(secret)),
        "4 TB contiguous": lambda f: huge(f),
        "4 TB chunked": lambda f: huge(f, chunks=(1, 1, 1 << 10)),
        "4 TB deflated": lambda f: huge(f, chunks=(1 << 6, 1 << 10, 1), compression="gzip"),
        "loops": loop,
        "deep": deep,
        "references": lambda f: f.create_dataset("actions", data=[f.ref] * 4, dtype=h5py.ref_dtype),
    }
    for version in ("earliest", "latest"):
        for name, fill in cases.items():
            path = folder / "case.h5"
            path.unlink(missing_ok=True)
            with h5py.File(path, "w", libver=version) as file:
                fill(file)
            yield f"{name} ({version})", path.read_bytes()
