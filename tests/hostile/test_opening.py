"""What is opened: regular files of sane size, which unpack to no more than there is memory for."""

from __future__ import annotations

import json
import math
import os
import resource
import zipfile
import zlib
from functools import partial
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from hostile.runner import Ended, run_all, warm

LINES = [(place, line) for place, lines in {
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
}.items() for line in lines]  # fmt: skip
KINDS = ("pipe", "/dev/zero", "/dev/tty", "/proc/self/mem")


def run_lines(lines: list[Any], folder: Path, **variables: str) -> list[Ended]:
    """Runs command lines, each in a process and in a folder of its own."""

    def work(line: str) -> int:
        from trajcli.cli import main

        os.environ.update(variables)
        return main(line.split())

    warm()
    return sorted(run_all(lines, work, folder), key=lambda end: lines.index(end.job))


def test_what_is_no_regular_file_is_refused_at_once(tmp_path):
    """Next to a file of ManiSkill, all else that a command opens."""

    def work(kind: str) -> int:
        from trajcli.cli import main

        for number, (place, line) in enumerate(LINES):
            os.mkdir(f"../{kind[-4:]}{number}")
            os.chdir(f"../{kind[-4:]}{number}")
            with h5py.File("in.h5", "w") as file:
                file["traj_0/actions"] = np.zeros((4, 3))
                file["traj_0/obs/agent/qpos"] = np.zeros((5, 3))
            Path(place).parent.mkdir(exist_ok=True)
            _ = os.mkfifo(place) if kind == "pipe" else os.symlink(kind, place)
            assert main(line.split()) == 2, line
        return 0

    warm()
    ended = list(run_all(KINDS, work, tmp_path))
    assert len(ended) == len(KINDS)
    assert not [end for end in ended if end.code or end.text.count("error") < len(LINES)]


def pack_zeros(mebibytes: int) -> bytes:
    """What zlib makes of so many zeros, without packing each of them."""
    packer = zlib.compressobj(1)
    first, other = (packer.compress(bytes(1 << 20)) + packer.flush(zlib.Z_FULL_FLUSH) for _ in "12")
    adler = ((mebibytes << 20) % 65521 << 16) + 1
    return first + other * (mebibytes - 1) + b"\3\0" + adler.to_bytes(4, "big")


def write_batch(path: str) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        with archive.open("actions.npy", "w") as file:
            np.save(file, np.zeros((17 << 4, 1 << 16, 4), "f4"))
        with archive.open("dt.npy", "w") as file:
            np.save(file, 0.01)


def write_chunks(
    path: str,
    shape: tuple[int, ...] = (17 << 20, 4),
    chunk: tuple[int, ...] = (17 << 20, 4),
) -> None:
    packed = pack_zeros(4 * math.prod(chunk) >> 20)
    with h5py.File(path, "w") as file:
        options = {"chunks": chunk, "compression": "gzip"}
        stored = file.create_dataset("actions", shape, "f4", **options)
        for row in range(0, shape[0], chunk[0]):
            stored.id.write_direct_chunk((row, *[0] * (len(shape) - 1)), packed)
        file["dt"] = 0.01


def write_row_group(path: str) -> None:
    arrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    rows = arrow.array(np.zeros(17 << 21))
    options = {"use_dictionary": False, "compression": "zstd", "write_statistics": False}
    parquet.write_table(arrow.table({"actions": rows}), path, 17 << 21, **options)


BOMBS = {
    # exit codes; MiB for 272 unpacked ones: Arrow keeps as much as it decodes
    "group.parquet": (write_row_group, (2,), 400),
    "batch.npz": (write_batch, (2,), 250),
    "long_chunk.h5": (write_chunks, (2,), 250),
    "chunks.h5": (partial(write_chunks, chunk=(1 << 16, 4)), (0,), 250),
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
    write_chunks(str(tmp_path / "in.h5"), *[(3, 100 << 17, 1)] * 2)
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
