"""Files of every kind that is read, changed where it hurts: in what describes the data.

    PYTHONPATH=.:tests python -m hostile.mutants --count 100000 [--seed 1]

Every mutant is one command. It must end with exit code 0 and right values, 1 (from check, diff and
status, which judge data) or 2, without a traceback, within the limits of runner.py and one GiB. A
few are run in one process; where anything is wrong with these, each is run again in a process of
its own, which decides. Where HDF5 itself crashes or never ends, that is counted. The first mutant
of every kind is the file as it is.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import io
import os
import re
import shutil
import struct
import sys
import tempfile
import zipfile
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import h5py
import numpy as np
from hostile.runner import Ended, run_all, warm

from trajcli import integrate

PER_SEED = 1000
TOGETHER = 20  # mutants in one process: what it forks and imports takes longer than a mutant
LARGEST_RESIDENT = 1 << 20  # kB
Random = np.random.Generator
Files = dict[str, bytes]


class Mutant(NamedTuple):
    """A command and the files that it finds."""

    kind: str
    number: int
    line: str
    files: Files
    whole: bool = False  # nothing is changed, so it must be read


# -- files ----------------------------------------------------------------------------------------

ACTIONS = np.random.default_rng(1).standard_normal((6, 20, 3)).astype("f4")
STEPS = {"actions": ACTIONS, "start_position": np.zeros((6, 3)), "dt": np.float64(0.02)}
VALUES = "--start zero --dt 0.02 -o out.h5 --allow-nonfinite"
READS = (
    f"integrate {{0}} {VALUES}",
    "integrate {0} -o out.h5",
    "differentiate {0} --method backward --rate 20 -o out.npz",
    "inspect {0}",
    "inspect {0} --full --json",
    "check {0}",
    "diff {0} {0}",
    "export {0} -o out.csv",
    "resample {0} --to 100 -o out.h5",
)
LIMITED = ("check motion.npz --joints a,b,c --limits {0}",
           "retime motion.npz --joints a,b,c --limits {0} -o out.h5")  # fmt: skip
SHARDED = ("merge out.h5", "status out.h5", "integrate in.h5 -o out.h5 --shard 0/2")
TOML = """joint_names = ["a", "b", "c"]
[position]
lower = [-2.8, -1.7, -2.8]
upper = [2.8, 1.7, 2.8]
"""
URDF = """<robot name="r"><!-- two joints -->
<joint name="a" type="revolute"><limit lower="-2.8" upper="2.8" velocity="2.1" effort="9"/></joint>
<joint name="b" type="prismatic"><limit lower="-1" upper="1" velocity="2.1"/></joint>
<joint name="c" type="continuous"><limit velocity="2.1"/></joint></robot>
"""


def write_plain(version: str) -> None:
    with h5py.File("in.h5", "w", libver=version) as file:
        file.create_dataset("actions", data=ACTIONS, chunks=(2, 20, 3), compression="gzip")
        file["start/position"], file["lengths"] = np.zeros((6, 3)), np.full(6, 20)
        file["times"], file["joint_names"] = np.cumsum(np.full(21, 0.02)), ["a", "b", "c"]
        file.attrs["mode"] = "jerk"


def write_demos() -> None:
    """A format's file in the newest layout of HDF5, and with records."""
    from formats import test_thirty

    records = np.zeros(20, [("stamp", [("sec", "i8"), ("nanosec", "u4")]), ("u", "f8", (3,))])
    records["stamp"]["sec"], records["u"] = np.arange(20), ACTIONS[0]
    test_thirty.CASES["robomimic"][0]()
    with h5py.File("demo.hdf5") as old, h5py.File("set.h5", "w", libver="latest") as new:
        for name in old:
            old.copy(name, new)
        new.create_dataset("log", data=records, chunks=(7,), compression="gzip")
    Path("demo.hdf5").unlink()


def write_zarr(version: int) -> None:
    import zarr

    with zarr.storage.ZipStore("set.zip", mode="w") as store:
        group = zarr.open_group(store, mode="w", zarr_format=version)
        group.create_array("data/action", data=ACTIONS.reshape(-1, 3), chunks=(50, 3))
        group.create_array("meta/episode_ends", data=np.array([20, 50, 120]))


def write_limits(name: str, text: str) -> None:
    motion = np.cumsum(ACTIONS[:2, :9].astype("f8"), 1)
    np.savez("motion.npz", position=motion, velocity=motion, dt=0.02)
    Path(name).write_text(text)


def write_parts() -> None:
    from trajcli.cli import main

    write_plain("earliest")
    for shard in ("0/2", "1/2"):
        assert main(f"integrate in.h5 -o out.h5 --quiet --shard {shard}".split()) == 0


def write_tensors(archive: bool) -> None:
    import torch

    saved = {"actions": torch.tensor(ACTIONS), "dt": 0.02, "more": [torch.arange(6)]}
    torch.save(saved, "set.pt", _use_new_zipfile_serialization=archive)


KINDS: dict[str, tuple[Callable[[], Any], str, Sequence[str]]] = {
    "h5 earliest": (lambda: write_plain("earliest"), "in.h5", READS),
    "h5 latest": (lambda: write_plain("latest"), "in.h5", READS),
    "demos": (write_demos, "set.h5", [READS[3], *READS]),
    "records": (write_demos, "set.h5:log", [READS[3], *READS]),
    "npy": (lambda: np.save("in.npy", ACTIONS), "in.npy", READS),
    "npz": (lambda: np.savez("in.npz", **STEPS), "in.npz", READS),
    "npz packed": (lambda: np.savez_compressed("in.npz", **STEPS), "in.npz", READS),
    "zarr 2": (lambda: write_zarr(2), "set.zip", READS),
    "zarr 3": (lambda: write_zarr(3), "set.zip", READS),
    "toml": (lambda: write_limits("limits.toml", TOML), "limits.toml", LIMITED),
    "urdf": (lambda: write_limits("limits.urdf", URDF), "limits.urdf", LIMITED),
    "part": (write_parts, "", SHARDED),
    "pt": (lambda: write_tensors(True), "set.pt", READS),
    "pt old": (lambda: write_tensors(False), "set.pt", READS),
}
TENSORS = ("pt", "pt old")
FORMATS = ("CSV", "JSON", "YAML", "MATLAB 7.3", "ManiSkill", "LeRobot", "replay buffer", "Imu",
           "JointState of ROS 1", "JointState of ROS 2")  # fmt: skip
"""Rows of the table of formats in docs/data.md; each has a file and a command."""


def write_kind(kind: str) -> int:
    """Writes the files of a kind, and its commands to the file lines."""
    if kind in KINDS:
        write, source, lines = KINDS[kind]
        write()
    else:
        from formats import test_thirty

        test_thirty.CASES[kind][0]()
        first = min(Path().iterdir(), key=lambda path: (path.is_dir(), path.name)).name
        command = test_thirty.documented()[kind].replace("FILE", first)
        source, lines = command.split()[1], (command, *READS)
    Path("lines").write_text("\n".join(line.format(source) for line in lines))
    return 0


def mutants(folder: Path, count: int, seed: int, names: Sequence[str]) -> list[Mutant]:
    """Makes so many mutants of these kinds of files."""
    bases: dict[str, tuple[Files, list[str]]] = {}
    for end in run_all(names, write_kind, folder):  # libraries would make later forks slower
        assert end.code == 0 or "Skipped: could not import" in end.text, end.text
        paths = [path for path in sorted(end.folder.rglob("*")) if path.is_file()]
        files = {str(path.relative_to(end.folder)): path.read_bytes() for path in paths}
        shutil.rmtree(end.folder)
        if end.code == 0:
            bases[end.job] = files, files.pop("lines").decode().split("\n")
    several = []
    for number in range(count):
        random = np.random.default_rng([seed, number])
        kind = sorted(bases)[number % len(bases)]
        files, lines = bases[kind]
        if number < len(bases):
            several.append(Mutant(kind, number, lines[0], files, whole=True))
            continue
        name = str(random.choice(list(files)))
        change = CHANGES[int(random.integers(len(CHANGES)))]
        line = lines[int(random.integers(len(lines)))]
        several.append(Mutant(kind, number, line, {**files, name: change(files[name], random)}))
    return several


# -- changes --------------------------------------------------------------------------------------


def cut(whole: bytes, random: Random) -> bytes:
    """The beginning of a file."""
    return whole[: int(random.integers(len(whole) + 1))]


def magic(whole: bytes, random: Random) -> bytes:
    """What says the kind of a file, of another kind."""
    other = MAGICS[int(random.integers(len(MAGICS)))]
    return other + whole[len(other) :]


def pickle(whole: bytes, random: Random) -> bytes:
    """A pickle that makes a folder, in the place of an array, a member or the file."""
    if b'"filters": null' in whole and b"\0" not in whole:
        return whole.replace(b'"filters": null', b'"filters": [{"id": "pickle"}]')
    if not whole.startswith(b"PK"):
        return OBJECTS if whole.startswith(b"\x93NUMPY") else PICKLE
    members = read_members(whole)
    name = str(random.choice(list(members)))
    if name.endswith(".zarray"):
        members[name] = pickle(members[name], random)
    else:
        members[name] = OBJECTS if name.endswith(".npy") else PICKLE
    return pack(members)


def link(whole: bytes, random: Random) -> bytes:
    """A link in the place of an object or a member; a bit where a file has no links."""
    if whole.startswith(b"\x89HDF"):
        buffer, names = io.BytesIO(whole), list[str]()
        with h5py.File(buffer, "r+") as file:
            file.visit(names.append)
            name = str(random.choice(names))
            target = str(random.choice(["/", name, "nowhere", "../.."]))
            soft = random.random() < 0.5
            del file[name]
            file[name] = h5py.SoftLink(target) if soft else h5py.ExternalLink("/etc/passwd", "/x")
        return buffer.getvalue()
    if not whole.startswith(b"PK"):
        return flip(whole, random)
    members = read_members(whole)
    name = str(random.choice(list(members)))
    if random.random() < 0.5:
        members[str(random.choice(["../x.npy", "/x.npy", ".npy"]))] = members.pop(name)
        return pack(members)
    return pack({**members, name: b"/etc/passwd"}, linked=name)


def declared_size(whole: bytes, random: Random) -> bytes:
    """Another number where a file says what it holds."""
    if b"\0" not in whole:
        numbers = list(re.finditer(rb"[0-9.]+", whole)) or [re.match(rb"", whole)]
        begin, end = numbers[int(random.integers(len(numbers)))].span()
        return whole[:begin] + NUMBERS[int(random.integers(len(NUMBERS)))] + whole[end:]
    size = int(random.choice([1, 2, 4, 8]))
    at, limit = choose_byte(whole, random), 1 << (8 * size)
    old = int.from_bytes(whole[at : at + size], "little")
    values = [0, 1, limit - 1, limit >> 1, old + 1, old - 1, old * 2]
    value = values[int(random.integers(len(values)))] % limit
    return whole[:at] + value.to_bytes(size, "little") + whole[at + size :]


def flip(whole: bytes, random: Random) -> bytes:
    """One bit, often of what describes the data."""
    broken = bytearray(whole or b"\0")
    broken[choose_byte(broken, random)] ^= 1 << int(random.integers(8))
    return bytes(broken)


CHANGES = (cut, magic, pickle, link, declared_size, flip)
MAGICS = (b"\x89HDF\r\n\x1a\n", b"\x93NUMPY\1\0", b"PK\3\4", b"PAR1", b"#ROSBAG V2.0\n",
          b"\x89MCAP0\r\n", b"SQLite format 3\0", b"\x80\2", b"{", bytes(8))  # fmt: skip
NUMBERS = (b"-1", b"1e999", b"nan", b"9" * 25, b"1" * 5000, b"1e-320", b"null", b"[" * 3000)
PICKLE = b"\x80\x02cposix\nmkdir\nX\x05\0\0\0owned\x85R."
HEADER = b"\x93NUMPY\1\0\x46\0{'descr': '|O', 'fortran_order': False, 'shape': (1,), }"
OBJECTS = HEADER.ljust(79) + b"\n" + PICKLE
SIGNS = (b"TREE", b"SNOD", b"HEAP", b"OHDR", b"FRHP", b"BTHD", b"FADB", b"EADB", b"GCOL", b"OCHK",
         b"PK\1\2", b"PK\3\4", b"PK\5\6", b"\x93NUMPY", b"descr", b"dt")  # fmt: skip
"""Marks of the parts of a file that say what the others are."""


def choose_byte(whole: bytes, random: Random) -> int:
    """Anywhere, or behind a mark of what describes the data."""
    if b"\0" not in whole or random.random() < 0.2:
        return int(random.integers(len(whole)))
    marks = [0, 64, 128, max(len(whole) - 200, 0), max(len(whole) - 360, 0)]
    for sign in SIGNS:
        marks += [match.start() for match in re.finditer(re.escape(sign), whole)]
    if whole.startswith(b"\x89HDF"):
        with h5py.File(io.BytesIO(whole)) as file:
            file.visititems(lambda _, item: marks.append(h5py.h5o.get_info(item.id).addr))
    if whole.startswith(b"PAR1"):
        footer = len(whole) - 8 - struct.unpack("<I", whole[-8:-4])[0]
        marks += [4, *range(footer, len(whole), 100)]
    mark = marks[int(random.integers(len(marks)))]
    return max(0, min(mark + int(random.integers(160)), len(whole) - 9))


def read_members(whole: bytes) -> Files:
    with zipfile.ZipFile(io.BytesIO(whole)) as archive:
        return {info.filename: archive.read(info) for info in archive.infolist()}


def pack(members: Files, linked: str = "") -> bytes:
    """A zip of these members, of which one may be a symbolic link."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, data in members.items():
            info = zipfile.ZipInfo(name)
            info.external_attr = (0o120777 if name == linked else 0o100644) << 16
            archive.writestr(info, data)
    return buffer.getvalue()


# -- runs -----------------------------------------------------------------------------------------


def work(several: Sequence[Mutant]) -> int:
    """Runs some mutants, each in a folder of its own, and writes their exit codes to codes."""
    from trajcli.cli import main

    place = Path.cwd()
    with (place / "codes").open("w", buffering=1) as codes:
        for number, (_, _, line, files, _) in enumerate(several):
            for name, data in files.items():
                path = place / str(number) / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(data)
            os.chdir(place / str(number))
            code = main(line.split())
            if code == 70:
                os.environ["TRAJCLI_DEBUG"] = "1"
                main(line.split())  # says where
            assert not Path("owned").exists(), "a pickle was made"
            written = [name for name in os.listdir() if name.startswith((".out", "out."))]
            assert not code or all(Path(name).is_dir() for name in written), written
            if not code and VALUES in line and line.split()[1].startswith("in."):
                check_values(line.split()[1])
            codes.write(f"{code}\n")
    return 0


def check_values(name: str) -> None:
    """OUT is what the library makes of the same actions, read by others."""
    with contextlib.ExitStack() as stack:
        out = stack.enter_context(h5py.File("out.h5"))
        actions = np.load(name) if ".np" in name else stack.enter_context(h5py.File(name))
        if not name.endswith(".npy"):
            if "actions" not in actions or "position" not in out:
                return  # a likely dataset was taken, or lengths were changed
            actions = actions["actions"][:]
        options = {key: out.attrs[key] for key in ("mode", "scheme") if key in out.attrs}
        found = out["position"][:]
        values = actions.astype("f8").reshape(-1, *actions.shape[-2:])
        computed = integrate(values, "zero", 0.02, allow_nonfinite=True, **options).position
        np.testing.assert_array_equal(found, computed.reshape(found.shape).astype(found.dtype))


def faulty(end: Ended) -> bool:
    """Whether a mutant ended as none may."""
    judges = end.job.line.split()[0] in ("check", "diff", "status")
    allowed = [0, *[1] * judges, *[2] * (not end.job.whole)]
    large = end.resident > LARGEST_RESIDENT
    return end.code not in allowed or end.hung or large or "Traceback" in end.text


def describe(end: Ended) -> str:
    how = f"exit {end.code}{', hung' if end.hung else ''}, {end.resident >> 10} MiB"
    return f"{end.job.kind} mutant {end.job.number}: {end.job.line}\n  {how}: {end.text[-1500:]}"


def run(several: Sequence[Mutant], folder: Path) -> list[Ended]:
    """Runs mutants, twenty in a process; where one of these is faulty, each again in its own."""
    ended, again = list[Ended](), list[list[Mutant]]()
    for batches in ([several[k : k + TOGETHER] for k in range(0, len(several), TOGETHER)], again):
        for end in run_all(batches, work, folder):
            codes = [int(code) for code in (end.folder / "codes").read_text().split()]
            shutil.rmtree(end.folder)
            # the text of all of them is that of each
            ends = [end._replace(job=job, code=end.code or code)
                    for job, code in zip(end.job, codes or [0], strict=False)]  # fmt: skip
            if len(end.job) > 1 and (end.code or any(map(faulty, ends))):
                again += [[job] for job in end.job]
            else:
                ended += ends
    return ended


def main() -> None:
    """Runs mutants and says how they ended; exits 1 where one ended as none may."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    chosen = parser.parse_args()
    total, faults, tensors = Counter[str](), 0, chosen.count // 8
    warm()
    plain = [kind for kind in (*KINDS, *FORMATS) if kind not in TENSORS]
    # torch comes last, as processes that have it take longer to fork
    for libraries, kinds, count in (
        (("numpy.testing", "rosbags.highlevel", "rosbags.typesys.stores.ros2_jazzy", "zarr",
          "formats.test_thirty"), plain, chosen.count - tensors),
        (("torch",), TENSORS, tensors),
    ):  # fmt: skip
        for library in libraries:
            with contextlib.suppress(ImportError):
                importlib.import_module(library)
        for done in range(0, count, PER_SEED):
            with tempfile.TemporaryDirectory() as name:
                some = min(PER_SEED, count - done), chosen.seed + done // PER_SEED
                ended = run(mutants(Path(name), *some, kinds), Path(name))
            for end in ended:
                total[f"exit {end.code}"] += 1
                if end.code < 0 and end.job.kind.split()[0] in ("h5", "demos", "records", "part"):
                    total["ended HDF5"] += 1
                elif faulty(end):
                    faults += 1
                    print(describe(end))
            print(f"{sum(total.values())} mutants: {dict(total)}; {faults} faulty", flush=True)
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()
