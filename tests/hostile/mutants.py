"""Files of every kind that is read, changed where it hurts: in what describes the data.

    PYTHONPATH=.:tests python -m hostile.mutants --count 100000 [--seed 1] [--kinds h5,toml]

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
import json
import os
import re
import shutil
import struct
import sys
import tempfile
import zipfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
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
_PICKLE = b"\x80\x02cposix\nmkdir\nX\x05\0\0\0owned\x85R."
_OBJECTS = (
    b"\x93NUMPY\1\0\x46\0{'descr': '|O', 'fortran_order': False, 'shape': (1,), }".ljust(79)
    + b"\n"
    + _PICKLE
)
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
LIMITED = (
    "check motion.npz --joints a,b,c --limits {0}",
    "retime motion.npz --joints a,b,c --limits {0} -o out.h5",
)
QUANTITIES = ("merge out.h5", "status out.h5", "integrate in.h5 -o out.h5 --shard 0/2")


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
    motion = np.cumsum(random.standard_normal((2, 9, 3)), 1)
    still = {"motion.npz": _saved(np.savez, position=motion, velocity=motion, dt=0.02)}
    found["toml"] = ({"limits.toml": _TOML, **still}, LIMITED)
    found["urdf"] = ({"limits.urdf": _URDF, **still}, LIMITED)
    found["part"] = (_parts(folder, found["h5 earliest"][0]["in.h5"]), QUANTITIES)
    found |= _formats(folder, actions)
    try:
        import pyarrow  # noqa: F401
    except ImportError:
        return found
    table = {"data/chunk-0/set.parquet": _parquet(actions)}
    lines = [line.replace("{0}", "data/chunk-0/set.parquet") for line in READS]
    found["parquet"] = ({**table, "info.json": _INFO}, READS)
    found["info"] = ({"meta/info.json": _INFO, **table}, lines)
    return found


def _formats(folder: Path, actions: Any) -> dict[str, tuple[Files, Sequence[str]]]:
    """Tables of text, and what needs a library that is there: bags and Zarr stores."""
    head = "t,u/a,u/b,u/c\n"
    rows = "".join(f"{k / 50},{a},{b},{c}\n" for k, (a, b, c) in enumerate(actions[0]))
    found: dict[str, tuple[Files, Sequence[str]]] = {
        "csv": ({"log.csv": (head + rows).encode()}, READS),
        "json": ({"log.json": json.dumps({"u": actions[0].tolist()}).encode()}, READS),
    }
    records = np.zeros(20, [("stamp", [("sec", "i8"), ("nanosec", "u4")]), ("u", "f8", (3,))])
    records["stamp"]["sec"], records["u"] = np.arange(20), actions[0]
    lines = "\n".join(json.dumps({"t": k, "u": u.tolist()}) for k, u in enumerate(actions[0]))
    echo = "".join(f"stamp: {{sec: {k}, nanosec: 0}}\nname: [a, b, c]\nu: {u.tolist()}\n---\n"
                   for k, u in enumerate(actions[0]))  # fmt: skip
    found["records npy"] = ({"log.npy": _saved(np.save, records)}, READS)
    found["records h5"] = ({"log.h5": _hdf5("latest", _compound, records)}, READS)
    found["jsonl"] = ({"log.jsonl": lines.encode()}, READS)
    found["echo"] = ({"log.yaml": echo.encode()}, READS)
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
            found[kind] = ({name: _bag(kind, actions[0].astype("f8"))}, lines)
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


def _bag(kind: str, positions: Any) -> bytes:
    """A bag of joint states."""
    from formats.test_bags import BEGIN, JOINTS, Maker

    make = Maker(kind)
    states = [make.joints(BEGIN + k, ["a", "b", "c"], row, row) for k, row in enumerate(positions)]
    messages = [("/js", JOINTS, BEGIN + k, state) for k, state in enumerate(states)]
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        return make.write(kind, messages).read_bytes()


def mutant(files: Files, random: Random) -> Files:
    """The same files with the first of them changed in one way."""
    name, whole = next(iter(files.items()))
    change = CHANGES[int(random.integers(len(CHANGES)))]
    return {**files, name: change(whole, random)}


def cut(whole: bytes, random: Random) -> bytes:
    """The beginning of a file."""
    return whole[: int(random.integers(len(whole)))]


def magic(whole: bytes, random: Random) -> bytes:
    """What says the kind of a file, of another kind."""
    other = MAGICS[int(random.integers(len(MAGICS)))]
    return other + whole[len(other) :]


def pickle(whole: bytes, random: Random) -> bytes:
    """A pickle that makes a folder, in the place of an array, a member or the file."""
    if whole.startswith(b"\x93NUMPY"):
        return _OBJECTS
    if not whole.startswith(b"PK"):
        return _PICKLE
    members = _members(whole)
    name = str(random.choice(list(members)))
    packed = members[name].replace(b'"filters": null', b'"filters": [{"id": "pickle"}]')
    replaced = packed if name.endswith(".zarray") else _PICKLE
    members[name] = _OBJECTS if name.endswith(".npy") else replaced
    return _archive(members)


def link(whole: bytes, random: Random) -> bytes:
    """A link in the place of an object or a member; a bit where a file has no links."""
    if whole.startswith(b"\x89HDF"):
        buffer = io.BytesIO(whole)
        with h5py.File(buffer, "r+") as file:
            names: list[str] = []
            file.visit(names.append)
            name = str(random.choice(names))
            target = str(random.choice(["/", name, "nowhere", "../.."]))
            soft = random.random() < 0.5
            del file[name]
            file[name] = h5py.SoftLink(target) if soft else h5py.ExternalLink("/etc/passwd", "/x")
        return buffer.getvalue()
    if whole.startswith(b"PK"):
        members = _members(whole)
        name = str(random.choice(list(members)))
        if random.random() < 0.5:
            members[str(random.choice(["../x.npy", "/x.npy", ".npy"]))] = members.pop(name)
            return _archive(members)
        members[name] = b"/etc/passwd"
        return _archive(members, name)
    return flip(whole, random)


def declared_size(whole: bytes, random: Random) -> bytes:
    """Another number where a file says what it holds."""
    if _is_text(whole):
        numbers = list(re.finditer(rb"[0-9.]+", whole)) or [re.search(rb"", whole)]
        begin, end = numbers[int(random.integers(len(numbers)))].span()
        return whole[:begin] + NUMBERS[int(random.integers(len(NUMBERS)))] + whole[end:]
    broken, size = bytearray(whole), int(random.choice([1, 2, 4, 8]))
    at, limit = _place(whole, random), 1 << (8 * size)
    old = int.from_bytes(broken[at : at + size], "little")
    values = [0, 1, limit - 1, limit >> 1, old + 1, old - 1, old * 2]
    value = values[int(random.integers(len(values)))] % limit
    broken[at : at + size] = value.to_bytes(size, "little")
    return bytes(broken)


def flip(whole: bytes, random: Random) -> bytes:
    """One bit, often of what describes the data."""
    broken = bytearray(whole)
    broken[_place(whole, random)] ^= 1 << int(random.integers(8))
    return bytes(broken)


CHANGES = (cut, magic, pickle, link, declared_size, flip)
MAGICS = (b"\x89HDF\r\n\x1a\n", b"\x93NUMPY\1\0", b"PK\3\4", b"PAR1", b"#ROSBAG V2.0\n",
          b"\x89MCAP0\r\n", b"SQLite format 3\0", b"\x80\2", b"{", bytes(8))  # fmt: skip
NUMBERS = (b"-1", b"1e999", b"nan", b"9" * 25, b"1" * 5000, b"1e-320", b"null", b"[" * 3000)


def _place(whole: bytes, random: Random) -> int:
    """Anywhere, or behind a mark of the parts that say what the others are."""
    if _is_text(whole) or random.random() < 0.2:
        return int(random.integers(len(whole)))
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
    mark = marks[int(random.integers(len(marks)))]
    return max(0, min(mark + int(random.integers(160)), len(whole) - 9))


def _is_text(whole: bytes) -> bool:
    return b"\0" not in whole


def _members(whole: bytes) -> Files:
    with zipfile.ZipFile(io.BytesIO(whole)) as archive:
        return {info.filename: archive.read(info) for info in archive.infolist()}


def _archive(members: Files, linked: str = "") -> bytes:
    """A zip of these members, of which one may be a symbolic link."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, data in members.items():
            info = zipfile.ZipInfo(name)
            info.external_attr = (0o120777 if name == linked else 0o100644) << 16
            archive.writestr(info, data)
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
        yield kind, number, line, changed, False


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
    assert not Path("owned").exists(), "a pickle was made"
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
    for end in run_all(_batched(jobs(folder, count, seed, kinds)), work_together, folder, at_once):
        codes = [int(code) for code in (end.folder / "codes").read_text().split()]
        shutil.rmtree(end.folder)
        several = [end._replace(job=job, code=code) for job, code in zip(end.job, codes)]  # noqa: B905
        if end.code or len(codes) < len(end.job) or any(map(wrong, several)):
            suspects += end.job
        else:
            ended.update(f"exit {code}" for code in codes)
    for end in run_all(suspects, work, folder, at_once):
        shutil.rmtree(end.folder)
        ended[f"exit {end.code}"] += 1
        if end.code < 0 and end.job[0].split()[0] in ("h5", "demos", "side-car", "part"):
            ended["ended HDF5"] += 1
        elif wrong(end):
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
        *("trajcli.curves.resampling", "trajcli.curves.retiming", "rich.console", "numpy.testing"),
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


def _compound(file: h5py.File, records: Any) -> None:
    file.create_dataset("log", data=records, chunks=(7,), compression="gzip")
    file["contiguous"] = records


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


_SIDE_CAR = b"""{"env_info": {"env_id": "PickCube-v1", "control_freq": 20, "env_kwargs":
 {"control_mode": "pd_joint_pos", "control_freq": 20, "sim_config": {"control_freq": 20}}},
 "env_kwargs": {"control_freq": 20}, "episodes": [{"episode_id": 0, "elapsed_steps": 20}]}"""
_INFO = b"""{"codebase_version": "v2.1", "fps": 30,
 "features": {"action": {"names": ["a", "b", "c"]},
 "observation.state": {"names": {"motors": ["a", "b", "c"]}}}}"""
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
