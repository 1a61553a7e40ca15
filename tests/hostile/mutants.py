"""Files of every kind that is read, changed where it hurts: in what describes the data.

    PYTHONPATH=.:tests python -m hostile.mutants --count 100000 [--seed 1] [--kinds h5,toml]

Every mutant is one command. It must end with exit code 0 and right values, 1 (from check, diff and
status, which judge data) or 2, without a traceback, within ten seconds and one GiB. A few are run
in one process; where anything is wrong with these, each is run again in a process of its own, which
decides. One that kills the library that reads it, or that this one never ends with, is run again
with --untrusted, which must refuse it. The first mutant of every kind is the file as it is.
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
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from hostile.runner import Ended, run_all

from trajcli import integrate

PER_SEED = 1000
TOGETHER = 8
"""Mutants in one process: forking takes longer than a mutant."""
JUDGES = ("check", "diff", "status")
LARGEST_RESIDENT = 1 << 20
"""kB"""
Random = np.random.Generator
Files = dict[str, bytes]
"""All files of a mutant, by name; the first is the one to change."""

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
LIMITED = ("check motion.npz --limits {0}", "retime motion.npz --limits {0} -o out.h5")
PARTS = ("merge out.h5", "status out.h5", "integrate in.h5 -o out.h5 --shard 0/2")


def bases(folder: Path, tensors: bool = False) -> dict[str, tuple[Files, Sequence[str]]]:
    """The files that are changed, by kind, and the commands that read them."""
    random = np.random.default_rng(1)
    actions = random.standard_normal((6, 20, 3)).astype("f4")
    if tensors:
        return _tensors(actions)
    steps = {"actions": actions, "start_position": np.zeros((6, 3)), "dt": np.float64(0.02)}
    found: dict[str, tuple[Files, Sequence[str]]] = {}
    for version in ("earliest", "latest"):
        found[f"h5 {version}"] = ({"in.h5": _hdf5(version, _plain, actions)}, READS)
        found[f"demos {version}"] = ({"in.h5": _hdf5(version, _demos, actions)}, READS)
    found["npy"] = ({"in.npy": _saved(np.save, actions)}, READS)
    found["npz"] = ({"in.npz": _saved(np.savez, **steps)}, READS)
    found["npz packed"] = ({"in.npz": _saved(np.savez_compressed, **steps)}, READS)
    found["side-car"] = (
        {"set.json": _SIDE_CAR, "set.h5": _hdf5("earliest", _trajectories, actions)},
        [line.replace("{0}", "set.h5") for line in READS],
    )
    found["trajcli.json"] = (
        {"in/trajcli.json": _PROVENANCE, "in/actions.npy": _saved(np.save, actions)},
        [line.replace("{0}", "in") for line in READS],
    )
    motion = np.cumsum(random.standard_normal((2, 9, 3)), 1)
    still = {"motion.npz": _saved(np.savez, position=motion, velocity=motion, dt=0.02)}
    found["toml"] = ({"limits.toml": _TOML, **still}, LIMITED)
    found["urdf"] = ({"limits.urdf": _URDF, **still}, LIMITED)
    found["part"] = (_parts(folder, found["h5 earliest"][0]["in.h5"]), PARTS)
    found |= _formats(folder, actions)
    try:
        import pyarrow  # noqa: F401
    except ImportError:
        return found
    table = {"info.json": _INFO, "data/chunk-0/set.parquet": _parquet(actions)}
    lines = [line.replace("{0}", "data/chunk-0/set.parquet") for line in READS]
    found["parquet"] = (dict(reversed(table.items())), READS)
    found["info"] = ({"meta/info.json": _INFO, **_without(table, "info.json")}, lines)
    return found


def _formats(folder: Path, actions: Any) -> dict[str, tuple[Files, Sequence[str]]]:
    """Tables of text, and what needs a library that is there: bags and Zarr stores."""
    head = "t,q/a,q/b,q/c\n"
    rows = "".join(f"{k / 50},{a},{b},{c}\n" for k, (a, b, c) in enumerate(actions[0]))
    found: dict[str, tuple[Files, Sequence[str]]] = {
        "csv": ({"log.csv": (head + rows).encode()}, READS),
    }
    with contextlib.suppress(ImportError):
        import zarr

        for version in (2, 3):
            store = zarr.storage.ZipStore(folder / f"set{version}.zip", mode="w")
            group = zarr.open_group(store, mode="w", zarr_format=version)
            group.create_array("data/action", data=actions.reshape(-1, 3), chunks=(50, 3))
            group.create_array("meta/episode_ends", data=np.array([20, 50, 120]))
            store.close()
            found[f"zarr {version}"] = ({"set.zip": Path(store.path).read_bytes()}, READS)
    with contextlib.suppress(ImportError):
        for kind in ("mcap", "db3", "bag"):
            name, lines = f"log.{kind}", [line.replace("{0}", "{0}:/js/position") for line in READS]
            found[kind] = ({name: _bag(folder / kind, kind, actions[0].astype("f8"))}, lines)
    return found


def _tensors(actions: Any) -> dict[str, tuple[Files, Sequence[str]]]:
    """What torch.save writes and what it wrote once: of kinds that are asked for by name, as torch
    makes every fork slower."""
    import torch

    found: dict[str, tuple[Files, Sequence[str]]] = {}
    for name, archive in (("pt", True), ("pt old", False)):
        buffer = io.BytesIO()
        saved = {"actions": torch.tensor(actions), "dt": 0.02, "more": [torch.arange(6)]}
        torch.save(saved, buffer, _use_new_zipfile_serialization=archive)
        found[name] = ({"set.pt": buffer.getvalue()}, READS)
    return found


def _bag(place: Path, kind: str, positions: Any) -> bytes:
    """A bag of joint states."""
    from rosbags.rosbag1 import Writer as Writer1
    from rosbags.rosbag2 import StoragePlugin, Writer
    from rosbags.typesys import Stores, get_typestore

    old, joints = kind == "bag", "sensor_msgs/msg/JointState"
    store = get_typestore(Stores.ROS1_NOETIC if old else Stores.ROS2_HUMBLE)
    plugin = StoragePlugin.MCAP if kind == "mcap" else StoragePlugin.SQLITE3
    writer: Any = Writer1(place) if old else Writer(place, version=9, storage_plugin=plugin)
    turn = store.serialize_ros1 if old else store.serialize_cdr
    with writer:
        topic = writer.add_connection("/js", joints, typestore=store)
        for k, row in enumerate(positions):
            stamp = store.types["builtin_interfaces/msg/Time"](1_700_000_000, k * 20_000_000)
            header = store.types["std_msgs/msg/Header"](*[k] * old, stamp, "base")
            message = store.types[joints](header, ["a", "b", "c"], row, row, np.zeros(0))
            writer.write(topic, 1_700_000_000_000_000_000 + k, turn(message, joints))
    return (place if old else next(place.glob(f"*.{kind}"))).read_bytes()


def mutant(files: Files, random: Random) -> Files:
    """The same files with the first of them changed."""
    name, whole = next(iter(files.items()))
    kind = name.rpartition(".")[2]
    change: Callable[[bytes, Random], bytes]
    if kind in ("json", "toml", "urdf", "csv"):
        change = changed_text
    elif kind == "h5" and random.random() < 0.4:
        change = changed_objects
    elif kind in ("npz", "zip", "pt") and whole.startswith(b"PK") and random.random() < 0.5:
        change = changed_members
    else:
        change = changed_bytes
    return {**files, name: change(whole, random)}


NUMBERS = ("0", "-1", "1e999", "nan", "NaN", "Infinity", "inf", "-0.0", "1" * 5000, "9" * 25,
           "1e-320", "18446744073709551616", "0x10", "1_0", "true", "null", "[]", "{}", '""',
           '"\\u0000"', '"\\ud800"', "[" * 3000, "{\"a\":" * 3000, "'a'", "()", "(1,)", "\udc80",
           "<f4", "|O", ">c16", "S9", "\x1b[2J", "-", "")  # fmt: skip


def changed_text(whole: bytes, random: Random) -> bytes:
    """Tokens replaced by odd ones, left out, doubled or swapped."""
    tokens = re.findall(rb"[\w.+-]+|\s+|.", whole, re.DOTALL)
    for _ in range(int(random.choice([1, 1, 1, 2, 4]))):
        a, b = (int(k) for k in random.integers(0, len(tokens), 2))
        odd = NUMBERS[int(random.integers(len(NUMBERS)))].encode("utf-8", "surrogateescape")
        action = int(random.integers(6))
        if action < 3:
            tokens[a] = odd
        elif action == 3:
            tokens[a] = b""
        elif action == 4:
            tokens[a] = tokens[a] * int(random.choice([2, 3, 1000]))
        else:
            tokens[a], tokens[b] = tokens[b], tokens[a]
    text = b"".join(tokens)
    return text[: int(random.integers(len(text) + 1))] if random.random() < 0.05 else text


def changed_bytes(whole: bytes, random: Random) -> bytes:
    """Bits, bytes, integers and words changed near what describes the data."""
    broken = bytearray(whole)
    marks = _marks(whole)
    for _ in range(int(random.choice([1, 1, 2, 4, 16]))):
        mark = marks[int(random.integers(len(marks)))]
        at = min(mark + int(random.integers(160)), len(broken) - 9)
        action, size = int(random.integers(6)), int(random.choice([1, 2, 4, 8]))
        if action == 0:
            broken[at] ^= 1 << int(random.integers(8))
        elif action < 4:
            limit = 1 << (8 * size)
            old = int.from_bytes(broken[at : at + size], "little")
            value = [0, 1, limit - 1, limit >> 1, old + 1, old - 1, old * 2][
                int(random.integers(7))
            ]
            broken[at : at + size] = (value % limit).to_bytes(size, "little")
        elif action == 4:
            other = min(marks[int(random.integers(len(marks)))], len(broken) - 32)
            broken[at : at + 32] = broken[other : other + 32]
        else:
            broken[at : at + size] = random.bytes(size)
    if random.random() < 0.05:
        return bytes(broken[: int(random.integers(len(broken)))])
    return bytes(broken)


def _marks(whole: bytes) -> list[int]:
    """Where the parts of a file begin that say what the others are."""
    marks = [0, 64, 128, max(len(whole) - 200, 0), max(len(whole) - 360, 0)]
    signs = (b"TREE", b"SNOD", b"HEAP", b"OHDR", b"FRHP", b"BTHD", b"FADB", b"EADB", b"GCOL",
             b"OCHK", b"PK\1\2", b"PK\3\4", b"PK\5\6", b"\x93NUMPY", b"descr", b"dt")  # fmt: skip
    for sign in signs:
        marks += [match.start() for match in re.finditer(re.escape(sign), whole)]
    if whole.startswith(b"\x89HDF"):
        with h5py.File(io.BytesIO(whole)) as file:
            file.visititems(lambda _, item: marks.append(h5py.h5o.get_info(item.id).addr))
    if whole.startswith(b"PAR1"):
        footer = len(whole) - 8 - struct.unpack("<I", whole[-8:-4])[0]
        marks += [4, *range(footer, len(whole), 100)]
    return marks


ATTRIBUTES: Sequence[Any] = (0, -1, np.nan, np.inf, 2**63 - 1, "x", b"\xff", "", [1.0, 2.0],
              "[" * 9000, np.zeros((3, 3)), np.array(["a", "b"], "S"), 1e-320, "9" * 5000,
              h5py.Empty("f8"), np.float16(3), np.complex64(1), "\x1b[2J", True)  # fmt: skip


def changed_objects(whole: bytes, random: Random) -> bytes:
    """An HDF5 file with another object, link or attribute in the place of one of its own."""
    buffer = io.BytesIO(whole)
    with h5py.File(buffer, "r+") as file:
        names: list[str] = []
        file.visit(names.append)
        name = names[int(random.integers(len(names)))]
        odd = ATTRIBUTES[int(random.integers(len(ATTRIBUTES)))]
        action = int(random.integers(9))
        with contextlib.suppress(OSError, TypeError, ValueError, KeyError, RuntimeError):
            _changed(file, name, random, odd, action)
    return buffer.getvalue()


def _changed(file: h5py.File, name: str, random: Random, odd: Any, action: int) -> None:
    """Change one thing, as far as HDF5 allows it."""
    if action == 0:
        label = str(random.choice(["dt", "units", "mode", "env_args", "request", "NAME"]))
        (file[name] if random.random() < 0.5 else file).attrs[label] = odd
    elif action == 1 and "data" in file:
        file["data"].attrs["env_args"] = changed_text(_SIDE_CAR, random).replace(b"\0", b"")
    else:
        _replaced(file, name, random, odd, action)


def _replaced(file: h5py.File, name: str, random: Random, odd: Any, action: int) -> None:
    other = str(random.choice(["dt", "times", "lengths", "start_index", "joint_names", "goal/x"]))
    if action == 2:
        name = other
    if name in file:
        del file[name]
    shapes = (
        (),
        (0,),
        (1,),
        (6, 20, 3),
        (6, 0, 3),
        (0, 20, 3),
        (20, 3),
        (6,),
        (6, 20),
        (1, 1, 1, 1),
    )
    kinds = ("f2", ">f4", "i8", "u1", "S3", "?", "c8", "V5", "O", "f8", "i1")
    shape = shapes[int(random.integers(len(shapes)))]
    kind = kinds[int(random.integers(len(kinds)))]
    if action == 3:
        file[name] = odd
    elif action == 4:
        file[name] = h5py.SoftLink(str(random.choice(["/", "/data", name, "nowhere", "../.."])))
    elif action == 5:
        file[name] = h5py.ExternalLink("/etc/passwd", "/x")
    elif action == 6:
        file.create_group(name)
    elif kind == "O":
        file.create_dataset(name, shape, h5py.string_dtype())
    else:
        packed = {"chunks": True, "compression": "gzip"} if shape and 0 not in shape else {}
        file.create_dataset(name, shape, kind, **(packed if random.random() < 0.4 else {}))
        if kind not in ("S3", "V5", "?") and shape and random.random() < 0.7:
            file[name][...] = random.integers(-2, 9, shape)


def changed_members(whole: bytes, random: Random) -> bytes:
    """An archive that is whole, with an odd member in it."""
    with zipfile.ZipFile(io.BytesIO(whole)) as archive:
        members = {info.filename: archive.read(info) for info in archive.infolist()}
    name = str(random.choice(list(members)))
    data = members.pop(name)
    if random.random() < 0.6:
        data = changed_text(data[:128], random) + data[128:]
    else:
        name = str(random.choice(["../x.npy", "/x.npy", ".npy", "a/b.npy", "times.npy", "dt.npy"]))
    members[name] = data
    buffer = io.BytesIO()
    kind = zipfile.ZIP_DEFLATED if random.random() < 0.5 else zipfile.ZIP_STORED
    with zipfile.ZipFile(buffer, "w", kind) as archive:
        for title, values in members.items():
            archive.writestr(title, values)
    return buffer.getvalue()


def jobs(
    folder: Path, count: int, seed: int, kinds: Sequence[str] = ()
) -> Iterator[tuple[Any, ...]]:
    """So many mutants: kind, number, command, files, and whether they are as they were."""
    several = bases(folder, "pt" in kinds)
    found = {k: v for k, v in several.items() if not kinds or k.split()[0] in kinds}
    names = list(found)
    for number in range(count):
        random = np.random.default_rng([seed, number])
        kind = names[number % len(names)]
        files, commands = found[kind]
        if number < len(names):
            yield kind, number, commands[0].format(next(iter(files))), files, True
            continue
        changed = mutant(files, random)
        line = commands[int(random.integers(len(commands)))].format(next(iter(changed)))
        untrusted = commands is READS and random.random() < 0.25
        yield kind, number, line + untrusted * " --untrusted", changed, False


def work(job: tuple[Any, ...]) -> int:
    """Write the files of a mutant and run its command."""
    from trajcli.cli import main

    _, _, line, files, _ = job
    for name, data in files.items():
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_bytes(data)
    code = main(line.split())
    if code == 70:
        os.environ["TRAJCLI_DEBUG"] = "1"
        main(line.split())  # says where
    written = [path.name for path in Path().iterdir() if path.is_file()]
    assert not code or not [name for name in written if name.startswith((".out", "out."))], written
    if not code and VALUES in line and next(iter(files)).startswith("in."):
        check_values(line.split()[1])
    return code


def work_together(several: Sequence[tuple[Any, ...]]) -> int:
    """Run some mutants, each in a folder of its own, and write their exit codes to codes."""
    place = Path.cwd()
    with (place / "codes").open("w") as codes:
        for number, job in enumerate(several):
            folder = place / str(number)
            folder.mkdir()
            os.chdir(folder)
            codes.write(f"{work(job)}\n")
            codes.flush()
    return 0


def check_values(name: str) -> None:
    """Every trajectory of OUT is what the library makes of the same actions, read by others."""
    if name.endswith((".npz", ".h5")):
        opened = np.load(name) if name.endswith(".npz") else h5py.File(name)
        with opened as file:
            if "actions" not in file and "data" not in file:
                return  # a likely dataset was taken
    with h5py.File("out.h5") as out:
        options = {k: out.attrs[k] for k in ("mode", "scheme") if k in out.attrs}
        groups = {"": out} if "position" in out else dict(out.get("data", {}))
        for title, group in groups.items():
            several = "position" not in group  # actions [B, T, D] in a group of one trajectory
            rows = [group[f"trajectory_{k}"]["position"][:] for k in range(len(group) * several)]
            found = np.stack(rows) if several else np.asarray(group["position"])
            found = found if found.ndim == 3 else found[None]
            actions = _actions(name, title)[..., : found.shape[1] - 1, :].reshape(
                len(found), -1, found.shape[2]
            )
            computed = integrate(
                actions.astype("f8"), "zero", 0.02, allow_nonfinite=True, **options
            )
            np.testing.assert_array_equal(found, computed.position.astype(found.dtype))


def _actions(name: str, title: str) -> Any:
    if name.endswith(".npy"):
        return np.load(name)
    if name.endswith(".npz"):
        with np.load(name) as archive:
            return archive["actions"]
    with h5py.File(name) as file:
        if title or "actions" in file:
            return file[f"data/{title}/actions" if title else "actions"][:]
        demos = sorted(file["data"], key=lambda demo: int(demo.rpartition("_")[2]))
        return np.stack([file[f"data/{demo}/actions"][:] for demo in demos])


def faulty(end: Ended) -> bool:
    """Whether a mutant ended as none may."""
    allowed = (0, 1, 2) if end.job[2].split()[0] in JUDGES else (0, 2)
    large = end.resident > LARGEST_RESIDENT
    return end.code not in allowed or end.hung or large or "Traceback" in end.text


def wrong(end: Ended) -> bool:
    """The same; and a file as it is must be read."""
    return faulty(end) or bool(end.job[4] and end.code == 2)


def run(
    count: int, seed: int, folder: Path, kinds: Sequence[str] = (), at_once: int = 2
) -> tuple[Counter[str], list[Ended]]:
    """Run so many mutants: how they ended, by exit code, and those that ended as none may."""
    warm()
    ended: Counter[str] = Counter()
    bad: list[Ended] = []
    suspects: list[tuple[Any, ...]] = []
    killers: list[tuple[Any, ...]] = []
    for end in run_all(_batched(jobs(folder, count, seed, kinds)), work_together, folder, at_once):
        codes = [int(code) for code in (end.folder / "codes").read_text().split()]
        shutil.rmtree(end.folder)
        several = [replace(end, job=job, code=code) for job, code in zip(end.job, codes)]  # noqa: B905
        if end.code or len(codes) < len(end.job) or any(map(wrong, several)):
            suspects += end.job
        else:
            ended.update(f"exit {code}" for code in codes)
    for end in run_all(suspects, work, folder, at_once):
        shutil.rmtree(end.folder)
        ended[f"exit {end.code}"] += 1
        reads = end.job[2].split()[0] not in ("status", "merge", "retime")
        if end.code < 0 and reads and "--untrusted" not in end.job[2]:
            killers.append((*end.job[:2], f"{end.job[2]} --untrusted", *end.job[3:]))
        elif wrong(end):
            bad.append(end)
    for end in run_all(killers, work, folder, at_once):
        shutil.rmtree(end.folder)
        ended["needed --untrusted"] += 1
        shown = end.code == 0 and "not read" in end.text  # by inspect, which goes on
        if (end.code != 2 and not shown) or faulty(end):
            bad.append(end)
    return ended, bad


def _batched(several: Iterable[tuple[Any, ...]]) -> Iterator[list[tuple[Any, ...]]]:
    remaining = iter(several)
    while batch := list(islice(remaining, TOGETHER)):
        yield batch


def warm() -> None:
    """Import here what every child would import."""
    import gc
    import pkgutil

    import trajcli

    place = trajcli.__path__[0]
    for name in (
        *(
            f"trajcli.{room}.{module.name}"
            for room in ("cli", "files", "jobs", "views")
            for module in pkgutil.iter_modules([f"{place}/{room}"])
        ),
        *("trajcli.resampling", "trajcli.retiming", "rich.console", "numpy.testing"),
        *("rosbags.highlevel", "rosbags.typesys.stores.ros2_jazzy", "zarr"),
    ):
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    from trajcli.cli import main

    with contextlib.redirect_stderr(io.StringIO()):
        main(["inspect", "none.h5", "--quiet"])  # builds what parses words
    gc.collect()
    gc.freeze()


def _saved(save: Callable[..., None], *arrays: Any, **named: Any) -> bytes:
    buffer = io.BytesIO()
    save(buffer, *arrays, **named)
    return buffer.getvalue()


def _hdf5(version: str, fill: Callable[[h5py.File, Any], None], actions: Any) -> bytes:
    buffer = io.BytesIO()
    with h5py.File(buffer, "w", libver=version) as file:
        fill(file, actions)
    return buffer.getvalue()


def _plain(file: h5py.File, actions: Any) -> None:
    file.create_dataset("actions", data=actions, chunks=(2, 20, 3), compression="gzip")
    file["start/position"] = np.zeros((6, 3))
    file["times"] = np.cumsum(np.full(21, 0.02))
    file["joint_names"] = ["a", "b", "c"]
    file["lengths"] = np.full(6, 20)
    file.attrs["mode"] = "jerk"


def _demos(file: h5py.File, actions: Any) -> None:
    for k, values in enumerate(actions):
        group = file.create_group(f"data/demo_{k}")
        group["actions"], group["obs/robot0_joint_pos"] = values[: 9 + k], values[: 9 + k]
        group.attrs["num_samples"] = 9 + k
    file["data"].attrs["env_args"] = '{"env_name": "Lift", "env_kwargs": {"control_freq": 20}}'
    file["mask/train"] = np.array([b"demo_0", b"demo_3"])


def _trajectories(file: h5py.File, actions: Any) -> None:
    for k, values in enumerate(actions):
        file[f"traj_{k}/actions"] = values
        file[f"traj_{k}/obs/agent/qpos"] = np.vstack([values, values[:1]])


def _parquet(actions: Any) -> bytes:
    import pyarrow as arrow
    from pyarrow import parquet

    rows = list(actions.reshape(-1, 3))
    columns = {"action": rows, "observation.state": rows, "episode_index": np.repeat(range(6), 20),
               "frame_index": np.tile(range(20), 6)}  # fmt: skip
    buffer = io.BytesIO()
    parquet.write_table(arrow.table(columns), buffer, row_group_size=50)
    return buffer.getvalue()


def _parts(folder: Path, source: bytes) -> Files:
    """What two shards have written, the second part first, and their source."""
    from trajcli.cli import main

    place = folder / "parts"
    (place / "in").mkdir(parents=True)
    (place / "in.h5").write_bytes(source)
    for shard in ("0/2", "1/2"):
        line = f"integrate {place}/in.h5 -o {place}/out.h5 --quiet --shard {shard}"
        assert main(line.split()) == 0, line
    parts = sorted((place / "out.h5.parts").glob("*.h5"), reverse=True)
    files = {f"out.h5.parts/{part.name}": part.read_bytes() for part in parts}
    return {**files, "in.h5": source}


def _without(files: Files, name: str) -> Files:
    return {other: data for other, data in files.items() if other != name}


_SIDE_CAR = b"""{"env_info": {"env_id": "PickCube-v1", "control_freq": 20, "env_kwargs":
 {"control_mode": "pd_joint_pos", "control_freq": 20, "sim_config": {"control_freq": 20}}},
 "env_kwargs": {"control_freq": 20}, "episodes": [{"episode_id": 0, "elapsed_steps": 20}]}"""
_INFO = b"""{"codebase_version": "v2.1", "fps": 30,
 "features": {"action": {"names": ["a", "b", "c"]},
 "observation.state": {"names": {"motors": ["a", "b", "c"]}}}}"""
_PROVENANCE = b"""{"attributes": {"mode": "jerk", "dt": 0.02}, "units": {"position": "rad"},
 "dof": ["a", "b", "c"]}"""
_TOML = b"""joint_names = ["a", "b", "c"]
[position]
lower = [-2.8, -1.7, -2.8]
upper = [2.8, 1.7, 2.8]
[velocity]
upper = [2.1, 2.1, 2.1]
"""
_URDF = b"""<?xml version="1.0"?>
<robot name="r"><!-- three joints -->
<joint name="a" type="revolute"><limit lower="-2.8" upper="2.8" velocity="2.1" effort="9"/></joint>
<joint name="b" type="prismatic"><limit lower="-1" upper="1" velocity="2.1"/></joint>
<joint name="c" type="continuous"><limit velocity="2.1"/></joint></robot>
"""


def main() -> None:
    """Run mutants and say how they ended; exits 1 where one ended as none may."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kinds", default="")
    chosen = parser.parse_args()
    kinds = [kind for kind in chosen.kinds.split(",") if kind]
    total, faults = Counter[str](), 0
    for done in range(0, chosen.count, PER_SEED):
        count, seed = min(PER_SEED, chosen.count - done), chosen.seed + done // PER_SEED
        with tempfile.TemporaryDirectory() as name:
            ended, bad = run(count, seed, Path(name), kinds)
        total, faults = total + ended, faults + len(bad)
        for end in bad:
            print(described(end))
        print(f"seed {seed}, {done + count} mutants: {dict(total)}; {faults} faulty", flush=True)
    sys.exit(1 if faults else 0)


def described(end: Ended) -> str:
    """A mutant and how it ended."""
    how = f"exit {end.code}{', hung' if end.hung else ''}, {end.resident >> 10} MiB"
    return f"{end.job[0]} mutant {end.job[1]}: trajcli {end.job[2]}\n  {how}: {end.text[-1500:]}"


if __name__ == "__main__":
    main()
