"""--compress: the same values in fewer bytes, for any reader."""

from __future__ import annotations

import threading
from pathlib import Path

import h5py
import numpy as np
import pytest

from trajcli.files.compressed import chunk_shape, trajectories_per_chunk
from trajcli.files.schema import packed_schema


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    steps = np.random.default_rng(0).integers(-3, 4, (700, 200, 7))
    np.save("actions.npy", (steps / 8).astype("f4"))
    np.save("dt.npy", np.full((700, 1), 0.125))
    return tmp_path


def run(line: str) -> int:
    from trajcli.cli import main

    return main(["integrate", *line.split(), "--quiet"])


@pytest.mark.parametrize("memory", ["100kB", "256MiB"])
@pytest.mark.parametrize("options", ["--dt 0.125", "--dt dt.npy --cost jerk --wrt actions,start"])
def test_a_compressed_file_holds_the_same(folder, memory, options):
    line = f"actions.npy --start zero {options} --memory {memory}"
    assert run(f"{line} -o plain.h5") == 0
    assert run(f"{line} -o packed.h5 --compress 4") == 0
    assert run(f"{line} -o again.h5 --compress 4") == 0
    assert Path("packed.h5").read_bytes() == Path("again.h5").read_bytes()
    assert Path("packed.h5").stat().st_size < 0.7 * Path("plain.h5").stat().st_size
    with h5py.File("plain.h5") as plain, h5py.File("packed.h5") as packed:
        names: list[str] = []
        plain.visit(names.append)
        for name in names:
            if isinstance(plain[name], h5py.Dataset) and plain[name].dtype != ">f4":
                np.testing.assert_array_equal(plain[name][()], packed[name][()])
        found = packed["position"]
        assert (found.compression, found.compression_opts, found.shuffle) == ("gzip", 4, True)
        chunk = np.prod(found.chunks) * 4
        assert found.chunks[1:] == found.shape[1:]
        assert 1 << 20 <= chunk <= 8 << 20
        told = [{**file.attrs, "request": ""} for file in (plain, packed)]
        assert told[0] == told[1]
        assert packed["position"].dims[0].keys() == plain["position"].dims[0].keys()


def test_the_bytes_are_those_of_hdf5s_own_filters(folder):
    assert run("actions.npy --start zero --dt 0.125 -o packed.h5 --compress 6") == 0
    with h5py.File("packed.h5") as packed, h5py.File("own.h5", "w") as own:
        found = packed["velocity"]
        made = own.create_dataset(
            "velocity", data=found[()], chunks=found.chunks, compression=6, shuffle=True
        )
        assert made.id.get_num_chunks() == found.id.get_num_chunks()
        for k in range(found.id.get_num_chunks()):
            at = found.id.get_chunk_info(k).chunk_offset
            assert found.id.read_direct_chunk(at) == made.id.read_direct_chunk(at)


def test_long_trajectories_are_cut_along_their_rows(folder):
    np.save("long.npy", np.ones((2, 400_000, 7), "f4"))
    assert run("long.npy --start zero --dt 0.125 -o packed.h5 --compress 1 --write velocity") == 0
    with h5py.File("packed.h5") as packed:
        assert packed["velocity"].chunks[0] == 1
        np.testing.assert_array_equal(
            packed["velocity"][1, :, 3], np.arange(400_001, dtype="f4") * 0.125
        )


@pytest.mark.parametrize(
    ("shape", "chunk"),
    [
        ((10, 5, 7), (10, 5, 7)),
        ((10**6, 100, 7), (1497, 100, 7)),
        ((3, 10**8, 7), (1, 149796, 7)),
    ],
)
def test_chunks_are_of_a_few_mebibytes(shape, chunk):
    schema = packed_schema(*shape, wanted=["jerk"], dtype="float32", own_times=True, attributes={})
    jerk, time = schema.variables
    together = trajectories_per_chunk(schema)
    assert chunk_shape(jerk, together) == chunk
    assert chunk_shape(time, together)[0] == chunk[0]


def test_without_threads_the_bytes_are_the_same(folder, monkeypatch):
    line = "actions.npy --start zero --dt 0.125 --compress 1 -o"
    assert run(f"{line} threads.h5") == 0

    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    assert run(f"{line} none.h5") == 0
    assert Path("none.h5").read_bytes() == Path("threads.h5").read_bytes()


@pytest.mark.parametrize("words", ["-o out.npz --compress 4", "-o out.h5 --compress 0"])
def test_what_cannot_be_compressed_is_refused(folder, words, capsys):
    assert run(f"actions.npy --start zero --dt 1 {words}") == 2
    assert "--compress" in capsys.readouterr().err
    assert sorted(p.name for p in folder.iterdir()) == ["actions.npy", "dt.npy"]
