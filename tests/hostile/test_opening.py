"""What is opened: regular files of sane size, which unpack to no more than there is memory for."""

from __future__ import annotations

import json
import os
import resource
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from hostile.mutants import warm
from hostile.runner import Ended, run_all

PLACES = {
    "odd.h5": ("integrate odd.h5 --start zero --dt 1 -o out.h5", "inspect odd.h5", "check odd.h5",
               "plot odd.h5 -o fig.svg", "diff odd.h5 in.h5", "export odd.h5 -o out.csv",
               "resample odd.h5 --to 9 -o out.h5"),
    "states.npy": ("integrate in.h5 --start states.npy --dt 1 -o out.h5",
                   "integrate in.h5 --start zero --times states.npy -o out.h5",
                   "integrate in.h5 --start zero --dt ./states.npy -o out.h5"),
    "limits.toml": ("check in.h5 --limits limits.toml", "plot in.h5 --limits limits.toml -o f.svg"),
    "in.json": ("integrate in.h5 --start zero -o out.h5", "inspect in.h5"),
    "folder/trajcli.json": ("inspect folder", "check folder"),
    "out.h5.parts/00000-of-00002.h5": ("merge out.h5",),
}  # fmt: skip
LINES = [(place, line) for place, lines in PLACES.items() for line in lines]


def make(place: str, what: str) -> None:
    """A ManiSkill file, and at a place beside it something that is no regular file."""
    with h5py.File("in.h5", "w") as file:
        file["traj_0/actions"] = np.zeros((4, 3))
        file["traj_0/obs/agent/qpos"] = np.zeros((5, 3))
    Path(place).parent.mkdir(exist_ok=True)
    if what == "pipe":
        os.mkfifo(place)
    else:
        os.symlink(what, place)


def endings(jobs: list[Any], work: Callable[[Any], int], folder: Path) -> list[Ended]:
    warm()
    return sorted(run_all(jobs, work, folder), key=lambda end: jobs.index(end.job))


def open_odd_place(job: tuple[str, str, str]) -> int:
    from trajcli.cli import main

    place, line, what = job
    make(place, what)
    return main(line.split())


@pytest.mark.parametrize("what", ["pipe", "/dev/zero", "/dev/tty", "/proc/self/mem"])
def test_what_is_no_regular_file_is_refused_at_once(tmp_path, what):
    ended = endings([(*line, what) for line in LINES], open_odd_place, tmp_path)
    wrong = [
        (end.job, end.code, end.text) for end in ended if end.code != 2 or "error" not in end.text
    ]
    assert not wrong
    assert len(ended) == len(LINES)


def resident_memory() -> int:
    """Of this process, in KiB, which a fork of it begins with."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() // 1024


def packed_archive(path: str, shape: tuple[int, ...]) -> None:
    np.savez_compressed(path, actions=np.zeros(shape, "f4"), dt=0.01)


def one_chunk(path: str, shape: tuple[int, ...]) -> None:
    packer, zeros = zlib.compressobj(1), bytes(1 << 20)
    size = 4 * int(np.prod(shape))
    packed = b"".join([*(packer.compress(zeros) for _ in range(size >> 20)), packer.flush()])
    with h5py.File(path, "w") as file:
        stored = file.create_dataset("actions", shape, "f4", chunks=shape, compression="gzip")
        stored.id.write_direct_chunk((0,) * len(shape), packed)
        file["dt"] = 0.01


def many_chunks(path: str, shape: tuple[int, ...]) -> None:
    with h5py.File(path, "w") as file:
        file.create_dataset("actions", data=np.zeros(shape, "f4"), chunks=(1 << 18, *shape[1:]),
                            compression="gzip", compression_opts=1)  # fmt: skip
        file["dt"] = 0.01


def one_row_group(path: str, shape: tuple[int, ...]) -> None:
    arrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    values = arrow.array(np.zeros(int(np.prod(shape)), "f4"))
    rows = arrow.FixedSizeListArray.from_arrays(values, shape[1])
    parquet.write_table(arrow.table({"actions": rows}), path, row_group_size=shape[0])


BOMBS = {
    "group.parquet": (one_row_group, (1 << 25, 4), (2,)),
    "batch.npz": (packed_archive, (1 << 9, 1 << 16, 4), (2,)),
    "long_chunk.h5": (one_chunk, (1 << 25, 4), (2,)),
    "chunks.h5": (many_chunks, (1 << 25, 4), (0,)),
}


@pytest.mark.parametrize("name", BOMBS)
def test_inspecting_a_file_that_unpacks_to_hundreds_of_megabytes_is_cheap(tmp_path, name):
    make_bomb, shape, codes = BOMBS[name]
    path = tmp_path / name
    place = tmp_path / "made"
    place.mkdir()
    (made,) = endings([str(path)], lambda name: make_bomb(name, shape) or 0, place)
    assert made.code == 0, made.text
    assert path.stat().st_size < 8 << 20

    def look(option: str) -> int:
        from trajcli.cli import main

        return main(["inspect", str(path), *option.split()])

    resident = resident_memory()
    for end in endings([""], look, tmp_path):
        assert end.code in (0, 2), end.text
        most = 600 if name.endswith("parquet") else 350  # MiB; Arrow keeps as much as it decodes
        assert end.resident - resident < most << 10, (end.job, end.resident, resident)
        listed = "too large" in end.text or "took too long" in end.text  # among the others
        assert end.code in codes or listed, end.text


def test_a_chunk_larger_than_memory_is_refused_with_a_hint(tmp_path):
    one_chunk(str(tmp_path / "in.h5"), (3, 100 << 17, 1))

    def integrate(memory: str) -> int:
        from trajcli.cli import main

        os.environ["TRAJCLI_MEMORY"] = memory  # of a process of its own
        line = f"integrate {tmp_path}/in.h5 --start zero -o out.h5 --dry-run"
        return main(line.split())

    small, large = endings(["100MB", "200MB"], integrate, tmp_path)
    assert (small.code, large.code) == (2, 0), small.text + large.text
    assert "too large to be unpacked" in small.text
    assert "a larger TRAJCLI_MEMORY" in small.text


def test_companions_of_a_data_set_are_read_from_its_folder_alone(tmp_path, monkeypatch):
    pytest.importorskip("pyarrow")
    import pyarrow as arrow
    from pyarrow import parquet

    from trajcli.errors import InputError
    from trajcli.files.opening import Files
    from trajcli.files.reader import read_recordings

    columns = {"action": [[0.0, 1.0]] * 4, "episode_index": [0] * 4}

    def step(folder: str, info: str) -> float | None:
        for place, text in ((folder, None), (info, json.dumps({"fps": 20}))):
            (tmp_path / place).mkdir(parents=True)
            if text:
                (tmp_path / place / "info.json").write_text(text)
        source = tmp_path / folder / "in.parquet"
        parquet.write_table(arrow.table(columns), source)
        with Files() as files:
            (one,) = read_recordings(files, [str(source)])
            return one.step

    assert step("a/data/chunk-000", "a/meta") == 0.05
    assert step("b", "b/meta") == 0.05
    assert step("c/data/chunk-000/deeper", "c/meta") is None
    assert step("d/run/today", "d/meta") is None
    assert step("e/run", "e/meta") is None
    with h5py.File(tmp_path / "in.h5", "w") as file:
        file["traj_0/actions"] = np.zeros((4, 3))
    (tmp_path / "in.json").write_bytes(b" " * (17 << 20))
    with Files() as files, pytest.raises(InputError, match="too large"):
        _ = read_recordings(files, [str(tmp_path / "in.h5")])
