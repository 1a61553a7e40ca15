"""What is not to be trusted: files, folders, neighbours and the other end of a pipe."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import h5py
import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]

RUN = "integrate actions.npy --start start.npy --dt 0.02"


def test_a_file_reached_through_a_link_is_an_input_too(trajcli, folder):
    with h5py.File("other.h5", "w") as file:
        file["x"] = np.zeros((2, 3, 1))
    with h5py.File("in.h5", "w") as file:
        file["actions"] = h5py.ExternalLink("other.h5", "/x")
    before = Path("other.h5").read_bytes()
    line = "integrate in.h5 --start zero --dt 1 -o other.h5 --overwrite --allow-external"
    result = trajcli(line)
    assert result.code == 2
    assert "the output is an input" in result.err
    assert Path("other.h5").read_bytes() == before


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
@pytest.mark.parametrize(
    ("line", "full", "gone"),
    [
        ("--help", 2, 0),
        ("diff start.npy actions.npy", 1, 1),
        ("check actions.npy --json", 2, 0),
        ("inspect none.h5", 2, 2),
    ],
)
def test_the_exit_code_without_room_on_stdout_and_without_stdout(folder, line, full, gone):
    """Help and a JSON document that are lost are exit 2; other text is a warning."""
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "LC_ALL": "C"}  # and no HOME
    for stream, code in ((">/dev/full", full), (">&-", gone), ("| true", gone)):
        command = f'"{sys.executable}" -m trajcli {line} {stream}; exit ${{PIPESTATUS[0]}}'
        run = subprocess.run(["bash", "-c", command], env=env, capture_output=True, text=True)
        assert run.returncode == code, (stream, run.stderr)
        assert "Traceback" not in run.stderr
        assert "a bug" not in run.stderr
        if stream == ">/dev/full" and line != "inspect none.h5":
            assert "No space left" in run.stderr


def test_a_stored_start_index_belongs_to_the_states_stored_with_it(trajcli, folder):
    start = np.array([[10.0], [20.0], [30.0]])
    for name in ("a", "b"):
        with h5py.File(f"{name}.h5", "w") as file:
            file["actions"] = np.zeros((3, 2, 1))
            file["start/position"] = start
            file["start_index"] = np.array([2, 0, 1])
            file["dt"] = 1.0

    def first_rows(line: str) -> list[float]:
        result = trajcli(f"integrate {line} -o out.h5 --overwrite")
        assert result.code == 0, result.err
        with h5py.File("out.h5") as file:
            return file["position"][:, 0, 0].tolist()

    assert first_rows("a.h5") == [30.0, 10.0, 20.0]
    np.save("own.npy", start)
    assert first_rows("a.h5 --start own.npy") == [10.0, 20.0, 30.0]
    assert first_rows("a.h5 --start zero") == [0.0, 0.0, 0.0]
    result = trajcli("integrate a.h5 b.h5 -o two.h5")
    assert result.code == 2
    assert "some have an index of states" in result.err


def test_places_are_those_of_the_file_in_every_block_and_after_dropped_rows(trajcli, folder):
    start = np.zeros((6000, 1))
    start[5000] = np.nan
    np.save("start.npy", start)
    np.save("actions.npy", np.zeros((6000, 40, 1), "f4"))
    result = trajcli(f"{RUN} -o out.h5 TRAJCLI_MEMORY=1MB")
    assert result.code == 2
    assert "start.npy, trajectory 5000" in result.err
    positions = np.zeros((12, 2))
    positions[9, 1] = np.nan
    np.savez("r.npz", position=positions, times=[0, 1, 1, 2, 3, 3, 4, 5, 6, 7, 8, 9])
    line = "differentiate r.npz:position --method backward --repeated-times drop -o out.h5"
    result = trajcli(line)
    assert result.code == 2
    assert "step 9, dof 1" in result.err


def test_names_of_files_may_hold_any_bytes(trajcli, folder):
    name = os.fsdecode(b"in\xff\xfe.npy")
    Path("actions.npy").rename(name)
    result = trajcli(f"integrate {name} --start zero --dt 1 -o out.h5")
    assert result.code == 0, result.err
    for line in (f"inspect {name}", f"check {name}", "check out.h5 --recompute",
                 f"inspect {name} --json", "inspect out.h5", f"plot {name} -o fig.svg",
                 f"plot {name} -o fig.svg --histogram --overwrite"):  # fmt: skip
        result = trajcli(line)
        assert result.code == 0, result.err
    assert trajcli("inspect", os.fsdecode(b"none\xff.h5")).code == 2


def write_npz(path: str, method: int) -> None:
    with zipfile.ZipFile(path, "w", method) as archive, archive.open("actions.npy", "w") as member:
        np.save(member, np.zeros((3, 9, 2)))


def write_packed_twice(path: str, *_: int) -> None:
    with h5py.File(path, "w") as file:
        properties = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        properties.set_chunk((3, 9, 2))
        properties.set_deflate(9)
        properties.set_deflate(9)
        space = h5py.h5s.create_simple((3, 9, 2))
        h5py.h5d.create(file.id, b"actions", h5py.h5t.NATIVE_DOUBLE, space, properties)
        file["actions"][:] = 0.0


@pytest.mark.parametrize(
    ("name", "write", "message"),
    [
        ("in.npz", lambda path: write_npz(path, zipfile.ZIP_BZIP2), "bzip2"),
        ("in.npz", lambda path: write_npz(path, zipfile.ZIP_LZMA), "lzma"),
        ("in.h5", write_packed_twice, "gzip, gzip"),
    ],
)
def test_what_unpacks_to_any_number_of_bytes_is_refused(trajcli, folder, name, write, message):
    write(name)
    for line in (f"integrate {name} --start zero --dt 1 -o out.h5", f"check {name}"):
        result = trajcli(line)
        assert (result.code, message in result.err) == (2, True), result.err
    assert trajcli(f"inspect {name}").code in (0, 2)


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("kind", ["folder", "zip"])
@pytest.mark.parametrize("version", [2, 3])
def test_zarr_that_is_packed_more_than_once_or_oddly_is_refused(trajcli, folder, version, kind):
    zarr = pytest.importorskip("zarr")
    numcodecs, of_zarr = pytest.importorskip("numcodecs"), pytest.importorskip("zarr.codecs")
    from zarr.codecs import numcodecs as wrapped

    values = np.zeros((3, 9, 2))
    odd = ([numcodecs.BZ2()], [numcodecs.LZMA()], [numcodecs.Zlib(), numcodecs.Zlib()])
    fine = ([numcodecs.Blosc()], [numcodecs.Delta("f8"), numcodecs.Zlib()], [])
    if version == 3:
        odd = ([wrapped.BZ2()], [of_zarr.GzipCodec(), of_zarr.ZstdCodec()])
        fine = ([of_zarr.ZstdCodec()], [of_zarr.BloscCodec()], [])
    for codecs, code in [(one, 2) for one in odd] + [(one, 0) for one in fine]:
        path = Path(f"in{len(list(Path().iterdir()))}.zarr{'.zip' * (kind == 'zip')}")
        store = zarr.storage.ZipStore(path, mode="w") if kind == "zip" else str(path)
        how = {"compressors": codecs} if version == 3 else {
            "filters": codecs[:-1] or None, "compressors": (codecs or [None])[-1]}  # fmt: skip
        root = zarr.open_group(store, mode="w", zarr_format=version)
        root.create_array("actions", data=values, chunks=(3, 9, 2), **how)
        if kind == "zip":
            store.close()
        result = trajcli(f"integrate {path} --start zero --dt 1 --overwrite -o out.h5")
        assert result.code == code, (codecs, result.err)


def test_a_request_in_a_file_searches_no_folders(trajcli, folder):
    for number in range(2):
        np.save(f"in{number}.npy", np.full((1, 4, 2), number))
    line = "integrate in*.npy --start zero --dt 1 -o out.h5"
    assert trajcli(line).code == 0
    assert trajcli("integrate in0.npy in1.npy --start zero --dt 1 -o named.h5").code == 0
    assert Path("out.h5").read_bytes() == Path("named.h5").read_bytes()
    assert trajcli("check out.h5 --recompute").code == 0
    with h5py.File("out.h5", "a") as file:
        request = json.loads(file.attrs["request"])
        assert request["sources"] == ["in0.npy", "in1.npy"]
    for odd in (
        "/**/**/**/**/**/*.npy",
        "in*.npy",
        "\ud800",
        "in0.npy:\udfff",
        "in0.npy:a\ud800[0:1]",
    ):
        with h5py.File("out.h5", "a") as file:
            file.attrs["request"] = json.dumps(request | {"sources": [odd]})
        for line in ("check out.h5 --recompute", "check out.h5", "inspect out.h5 --json",
                     "diff out.h5 named.h5", "diff out.h5 named.h5 --json"):  # fmt: skip
            result = trajcli(line)
            assert result.code in (0, 1, 2), (odd, line, result.err)
        assert trajcli("check out.h5 --recompute").code == 2


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32"])
def test_a_urdf_in_any_encoding_has_no_entities(trajcli, folder, encoding):
    np.save("in.npy", np.zeros((1, 4, 1)))
    text = (
        '<?xml version="1.0" encoding="{}"?><!DOCTYPE r [<!ENTITY a "j">]><robot><joint name="&a;"'
    )
    text += ' type="revolute"><limit lower="-1" upper="1" velocity="1"/></joint></robot>'
    Path("arm.urdf").write_bytes(text.format(encoding).encode(encoding))
    result = trajcli("check in.npy --limits arm.urdf")
    assert result.code == 2
    assert "arm.urdf" in result.err
