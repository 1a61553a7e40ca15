"""What is opened: regular files of sane size, which unpack to no more than there is memory for."""

from __future__ import annotations

import json
import os
import resource
import zlib
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from hostile.runner import Ended, run_all, warm

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
KINDS = ("pipe", "/dev/zero", "/dev/tty", "/proc/self/mem")


def run_lines(lines: list[Any], folder: Path, **variables: str) -> list[Ended]:
    """Runs command lines, each in a process and in a folder of its own."""

    def work(line: str) -> int:
        from trajcli.cli import main

        os.environ.update(variables)
        return main(line.split())

    warm()
    return sorted(run_all(lines, work, folder), key=lambda end: lines.index(end.job))


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_no_regular_file_is_refused_at_once(tmp_path, kind):
    """Next to a file of ManiSkill, all else that a command opens."""

    def work(job: tuple[str, str]) -> int:
        from trajcli.cli import main

        place, line = job
        with h5py.File("in.h5", "w") as file:
            file["traj_0/actions"] = np.zeros((4, 3))
            file["traj_0/obs/agent/qpos"] = np.zeros((5, 3))
        Path(place).parent.mkdir(exist_ok=True)
        _ = os.mkfifo(place) if kind == "pipe" else os.symlink(kind, place)
        return main(line.split())

    warm()
    ended = list(run_all(LINES, work, tmp_path))
    assert len(ended) == len(LINES)
    assert not [end for end in ended if end.code != 2 or "error" not in end.text]


def write_batch(path: str) -> None:
    np.savez_compressed(path, actions=np.zeros((17 << 4, 1 << 16, 4), "f4"), dt=0.01)


def write_one_chunk(path: str, shape: tuple[int, ...] = (17 << 20, 4)) -> None:
    packer, zeros = zlib.compressobj(1), bytes(1 << 20)
    rounds = 4 * int(np.prod(shape)) >> 20
    packed = b"".join([*(packer.compress(zeros) for _ in range(rounds)), packer.flush()])
    with h5py.File(path, "w") as file:
        stored = file.create_dataset("actions", shape, "f4", chunks=shape, compression="gzip")
        stored.id.write_direct_chunk((0,) * len(shape), packed)
        file["dt"] = 0.01


def write_chunks(path: str) -> None:
    chunk, shape = zlib.compress(bytes(1 << 20), 1), (17 << 20, 4)
    with h5py.File(path, "w") as file:
        chunks = (1 << 16, 4)
        stored = file.create_dataset("actions", shape, "f4", chunks=chunks, compression="gzip")
        for k in range(0, 17 << 20, 1 << 16):
            stored.id.write_direct_chunk((k, 0), chunk)
        file["dt"] = 0.01


def write_row_group(path: str) -> None:
    arrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    rows = arrow.FixedSizeListArray.from_arrays(arrow.array(np.zeros(17 << 22, "f4")), 4)
    options = {"row_group_size": 17 << 20, "use_dictionary": False, "compression": "zstd"}
    parquet.write_table(arrow.table({"actions": rows}), path, **options)


BOMBS = {
    # exit codes; MiB for 272 unpacked ones: Arrow keeps as much as it decodes
    "group.parquet": (write_row_group, (2,), 350),
    "batch.npz": (write_batch, (2,), 250),
    "long_chunk.h5": (write_one_chunk, (2,), 250),
    "chunks.h5": (write_chunks, (0,), 250),
}


@pytest.mark.parametrize("name", BOMBS)
def test_inspecting_a_file_that_unpacks_to_hundreds_of_megabytes_is_cheap(tmp_path, name):
    write, codes, most = BOMBS[name]
    path = tmp_path / name
    (made,) = run_all([str(path)], lambda name: write(name) or 0, tmp_path)
    made.folder.rmdir()
    assert made.code == 0, made.text
    assert path.stat().st_size < 8 << 20
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    resident = pages * resource.getpagesize() >> 10  # what a fork of this process begins with
    (end,) = run_lines([f"inspect {path}"], tmp_path)
    assert end.resident - resident < most << 10, (end.resident, resident)
    listed = "too large" in end.text or "took too long" in end.text  # among the others
    assert end.code in codes or (end.code in (0, 2) and listed), end.text


def test_a_chunk_larger_than_memory_is_refused_with_a_hint(tmp_path):
    write_one_chunk(str(tmp_path / "in.h5"), (3, 100 << 17, 1))
    line = f"integrate {tmp_path}/in.h5 --start zero -o out.h5 --dry-run"
    (small,) = run_lines([line], tmp_path, TRAJCLI_MEMORY="100MB")
    small.folder.rmdir()
    (large,) = run_lines([line], tmp_path, TRAJCLI_MEMORY="200MB")
    assert (small.code, large.code) == (2, 0), small.text + large.text
    assert "too large to be unpacked" in small.text
    assert "a larger TRAJCLI_MEMORY" in small.text


@pytest.mark.parametrize(
    ("data", "info", "step"),
    [
        ("data/chunk-000", "meta", 0.05),
        (".", "meta", 0.05),
        ("data/chunk-000/deeper", "meta", None),
        ("run/today", "meta", None),
        ("run", "meta", None),
    ],
)
def test_companions_of_a_data_set_are_read_from_its_folder_alone(tmp_path, data, info, step):
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    from trajcli.files.opening import Files
    from trajcli.files.reader import read_recordings

    for folder in (data, info):
        (tmp_path / folder).mkdir(parents=True, exist_ok=True)
    (tmp_path / info / "info.json").write_text(json.dumps({"fps": 20}))
    table = arrow.table({"action": [[0.0, 1.0]] * 4, "episode_index": [0] * 4})
    parquet.write_table(table, tmp_path / data / "in.parquet")
    with Files() as files:
        (one,) = read_recordings(files, [str(tmp_path / data / "in.parquet")])
        assert one.step == step


def test_a_companion_of_many_megabytes_is_refused(tmp_path):
    with h5py.File(tmp_path / "in.h5", "w") as file:
        file["traj_0/actions"] = np.zeros((4, 3))
    (tmp_path / "in.json").write_bytes(b" " * (17 << 20))
    (end,) = run_lines([f"integrate {tmp_path}/in.h5 --start zero -o out.h5"], tmp_path)
    assert end.code == 2
    assert "in.json: too large" in end.text
