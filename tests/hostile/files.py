"""Files that are broken or mean harm: whole ones, and what can be done to them."""

from __future__ import annotations

import io
import struct
from collections.abc import Iterator
from pathlib import Path

import h5py
import numpy as np

SECRET = 7.25  # what lies in the files that must not be read

Case = tuple[str, bytes]
"""What was done, the bytes of the file."""


def whole_files(folder: Path) -> dict[str, bytes]:
    """Small files of every kind that is read, by name; each runs as it is."""
    random = np.random.default_rng(1)
    actions = random.standard_normal((12, 150, 7)).astype("f4")
    demos = [random.standard_normal((40 + i, 7)) for i in range(11)]

    def plain(file: h5py.File) -> None:
        file["actions"] = actions
        file["start/position"] = np.zeros((12, 7), "f4")
        file["dt"] = 0.02
        file.attrs["note"] = "plain"

    def packed(file: h5py.File) -> None:
        options = {"chunks": (1, 50, 7), "compression": "gzip", "shuffle": True}
        file.create_dataset("actions", data=actions, fletcher32=True, **options)
        file.attrs["dt"] = 0.02

    def robomimic(file: h5py.File) -> None:
        data = file.create_group("data")
        data.attrs["env_args"] = '{"env_name": "Lift", "env_kwargs": {"control_freq": 20}}'
        for i, values in enumerate(demos):
            group = data.create_group(f"demo_{i}")
            group.attrs["num_samples"] = len(values)
            group.create_dataset("actions", data=values, compression="gzip")
            group.create_dataset("obs/robot0_joint_pos", data=values, compression="gzip")
        file["mask/train"] = np.array([b"demo_0", b"demo_3"])

    found = {}
    for name, fill, version in (
        ("plain.h5", plain, "earliest"),
        ("new.h5", plain, "latest"),
        ("packed.h5", packed, "earliest"),
        ("robomimic.h5", robomimic, "earliest"),
        ("robomimic_new.h5", robomimic, "latest"),
    ):
        with h5py.File(folder / name, "w", libver=version) as file:
            fill(file)
        found[name] = (folder / name).read_bytes()
    for name, array in (("actions.npy", actions), ("fortran.npy", np.asfortranarray(actions))):
        buffer = io.BytesIO()
        np.save(buffer, array)
        found[name] = buffer.getvalue()
    return found


def cut(whole: bytes, step: int = 4096) -> Iterator[Case]:
    """The file without its end, at every ``step`` bytes."""
    for size in range(0, len(whole), step):
        yield f"cut at {size}", whole[:size]


def flipped(whole: bytes, count: int, seed: int) -> Iterator[Case]:
    """Random bytes changed: one, a few or many, in what describes the data as often as not."""
    random = np.random.default_rng(seed)
    described = np.flatnonzero(np.frombuffer(whole, np.uint8) != 0)
    head = described[described < 4096]
    for number in range(count):
        broken = bytearray(whole)
        how_many = int(random.choice([1, 1, 2, 4, 16, 64]))
        pool = head if random.random() < 0.6 else np.arange(len(whole))
        places = random.choice(pool, how_many)
        for place in places:
            special = random.choice([0x00, 0xFF, 0x80, int(random.integers(256))])
            broken[place] = special if random.random() < 0.7 else broken[place] ^ (
                1 << int(random.integers(8))
            )  # fmt: skip
        yield f"flips {number}: {sorted(int(p) for p in places)[:8]}", bytes(broken)


def swapped(whole: bytes, count: int, seed: int) -> Iterator[Case]:
    """Pieces of eight bytes, addresses among them, put in each other's place or made huge."""
    random = np.random.default_rng(seed)
    limit = min(len(whole), 8192) // 8
    for number in range(count):
        broken = bytearray(whole)
        a, b = (8 * int(k) for k in random.integers(0, limit, 2))
        if random.random() < 0.5:
            broken[a : a + 8], broken[b : b + 8] = whole[b : b + 8], whole[a : a + 8]
        else:
            broken[a : a + 8] = struct.pack("<q", int(random.choice([-1, 1 << 40, 1 << 62, 8])))
        yield f"swap {number}: {a}, {b}", bytes(broken)


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
        "{'descr': [('a', '<f4'), ('b', '<i4')], 'fortran_order': False, 'shape': (5, 5, 7)}",
        "{'descr': __import__('os').system('touch owned'), 'fortran_order': False, 'shape': (5,)}",
        "[" * 3000,
        "{" + "'a':" * 2000,
        "",
    ):
        text = header.encode() + b" " * 16 + b"\n"
        yield (
            f"header {header[:60]}",
            (b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text + bytes(2000)),
        )


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
        group["demo_1"] = h5py.SoftLink("/data/demo_1")
        group["demo_2"] = h5py.SoftLink("/data/demo_3")
        group["demo_3"] = h5py.SoftLink("/data/demo_2")

    def deep(file: h5py.File) -> None:
        group = file
        for _ in range(1500):
            group = group.create_group("g")
        group["actions"] = np.zeros((2, 3, 1))

    other = str(secret)
    cases = {
        "external link": lambda f: f.__setitem__("actions", h5py.ExternalLink(other, "/actions")),
        "external group": lambda f: f.__setitem__("data", h5py.ExternalLink(other, "/data")),
        "external start": lambda f: (
            f.__setitem__("actions", np.zeros(shape, "f4")),
            f.__setitem__("start", h5py.ExternalLink(other, "/start")),
        ),
        "external dt": lambda f: (
            f.__setitem__("actions", np.zeros(shape, "f4")),
            f.__setitem__("start/position", np.zeros(7)),
            f.__setitem__("dt", h5py.ExternalLink(other, "/dt")),
        ),
        "soft link to external": lambda f: (
            f.__setitem__("far", h5py.ExternalLink(other, "/")),
            f.__setitem__("actions", h5py.SoftLink("/far/actions")),
        ),
        "demos behind external links": lambda f: [
            f.__setitem__(f"data/demo_{i}", h5py.ExternalLink(other, f"/data/demo_{i}"))
            for i in range(12)
        ],
        "trajectories behind external links": lambda f: [
            f.__setitem__(f"traj_{i}/actions", h5py.ExternalLink(other, "/actions"))
            for i in range(3)
        ],
        "external storage": lambda f: f.create_dataset("actions", shape, "f4", external=raw),
        "external storage of a flag": lambda f: (
            f.__setitem__("actions", np.zeros((100, 7), "f4")),
            f.__setitem__("observations", np.zeros((100, 7), "f4")),
            f.create_dataset("terminals", (100,), "u1", external=raw),
        ),
        "virtual": lambda f: virtual(f, "actions", other),
        "virtual of itself": lambda f: virtual(f, "actions", "."),
        "virtual demo": lambda f: virtual(f, "data/demo_0/actions", other),
        "4 TB contiguous": lambda f: huge(f),
        "4 TB chunked": lambda f: huge(f, chunks=(1, 1, 1 << 10)),
        "4 TB deflated": lambda f: huge(f, chunks=(1 << 6, 1 << 10, 1), compression="gzip"),
        "an empty dataspace": lambda f: f.create_dataset("actions", data=h5py.Empty("f4")),
        "loops": loop,
        "deep": deep,
        "strings": lambda f: f.__setitem__("actions", ["a", "b"]),
        "references": lambda f: f.create_dataset(
            "actions", data=[f.ref] * 4, dtype=h5py.ref_dtype
        ),
        "a named type": lambda f: f.__setitem__("actions", np.dtype("f4")),
    }  # fmt: skip
    for version in ("earliest", "latest"):
        for name, fill in cases.items():
            path = folder / "case.h5"
            path.unlink(missing_ok=True)
            with h5py.File(path, "w", libver=version) as file:
                fill(file)
            yield f"{name} ({version})", path.read_bytes()
