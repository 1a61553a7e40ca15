"""HDF5's earliest form, read from its bytes: what HDF5 itself says of it, or nothing."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import h5py
import numpy as np
import pytest
from layouts import writers

from trajcli.errors import InputError
from trajcli.files.hdf5 import Hdf5File
from trajcli.files.hdf5_chunks import find_chunks
from trajcli.files.hdf5_early import ODD, Early, types
from trajcli.files.source import in_natural_order, natural_key

RANDOM = np.random.default_rng(11)
TYPES = types(h5py)


@contextmanager
def early(path: Path) -> Iterator[Early]:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        yield Early(descriptor)
    finally:
        os.close(descriptor)


@pytest.mark.parametrize("count", [0, 1, 8, 9, 256, 257, 9000])
def test_every_name_of_a_group_is_found(tmp_path, count):
    with h5py.File(tmp_path / "in.h5", "w") as file:
        for i in range(count):
            file.create_group(f"demo_{i}").attrs["num_samples"] = i
        file["soft"] = h5py.SoftLink("/demo_0")
        addresses = {name: h5py.h5o.get_info(file.id, name.encode()).addr for name in file
                     if name != "soft"}  # fmt: skip
    with early(tmp_path / "in.h5") as found:
        assert found.names(found.root) == {**addresses, "soft": None}


@pytest.mark.parametrize("kind", ["<f4", ">f4", "<f8", ">f8", "<f2", "|i1", "|u1", "<i8", ">u2"])
@pytest.mark.parametrize("attributes", [0, 40])
def test_a_dataset_is_where_hdf5_says_it_is(tmp_path, kind, attributes):
    values = RANDOM.integers(0, 100, (5, 3)).astype(kind)
    with h5py.File(tmp_path / "in.h5", "w") as file:
        data = file.create_dataset("data/demo_3/actions", data=values)
        for i in range(attributes):  # the header goes on elsewhere
            data.attrs[f"attribute {i}"] = "x" * 500
        place = data.id.get_offset()
    with early(tmp_path / "in.h5") as found:
        group = found.names(found.names(found.root)["data"])["demo_3"]
        header = found.names(group)["actions"]
        assert found.dataset(header, TYPES) == ((5, 3), np.dtype(kind), place)


@pytest.mark.parametrize(
    "options",
    [{"compression": "gzip"}, {"chunks": True}, {"maxshape": (None, 3)}, {"dtype": "c16"},
     {"dtype": "S4"}, {"external": [("beside.bin", 0, 1000)]}],
)  # fmt: skip
def test_other_datasets_are_left_to_hdf5(tmp_path, monkeypatch, options):
    monkeypatch.chdir(tmp_path)
    with h5py.File("in.h5", "w") as file:
        file.create_dataset("x", shape=(5, 3), **{"dtype": "f4", **options})[...] = 1
    with early(Path("in.h5")) as found, pytest.raises(ODD):
        found.dataset(found.names(found.root)["x"], TYPES)


PACKED = [
    {"compression": "gzip"},
    {"compression": "gzip", "shuffle": True, "chunks": (4, 2)},
    {"shuffle": True, "chunks": (7, 3)},
    {"chunks": (3, 3)},
    {"chunks": True, "maxshape": (None, 3)},
    {"chunks": (64, 3), "maxshape": (None, 3), "compression": 9},
]
LEFT = [
    {"chunks": (4, 2), "fletcher32": True},
    {"compression": "lzf"},
    {"chunks": (1, 1)},
    {"dtype": "i4", "scaleoffset": 0},
]


@pytest.mark.parametrize("options", PACKED + LEFT)
@pytest.mark.parametrize("kind", ["<f4", ">f8"])
def test_chunks_are_unpacked_as_hdf5_does(tmp_path, options, kind):
    values = RANDOM.integers(0, 9, (30, 3)).astype(options.get("dtype", kind))
    with h5py.File(tmp_path / "in.h5", "w") as file:
        file.create_dataset("data/x", data=values, **options)
    with Hdf5File(tmp_path / "in.h5") as file, early(tmp_path / "in.h5") as straight:
        found = file.require("data/x")
        np.testing.assert_array_equal(found.read(), values)
        np.testing.assert_array_equal(found.read_rows(5, 17), values[5:17])
        np.testing.assert_array_equal(found.read_rows(28, 99), values[28:99])
        np.testing.assert_array_equal(found.read_part(3, 9, 1, 2), values[3:9, 1:2])
        careful = file._found("data/x")
        assert (found.shape, found.dtype, found.storage) == (
            careful.shape, careful.dtype, careful.storage,
        )  # fmt: skip
        header = straight.names(straight.names(straight.root)["data"])["x"]
        if options in LEFT:
            with pytest.raises(ODD):
                find_chunks(straight, header, TYPES)
        else:
            whole = find_chunks(straight, header, TYPES).read(straight.at, 0, 30)
            np.testing.assert_array_equal(whole, values)


def test_chunks_that_were_never_written_are_left_to_hdf5(tmp_path):
    with h5py.File(tmp_path / "in.h5", "w") as file:
        holes = file.create_dataset("x", (40, 2), "f4", chunks=(10, 2), fillvalue=7.0)
        holes[10:20] = 1.0
    with Hdf5File(tmp_path / "in.h5") as file, pytest.raises(InputError, match="never written"):
        file.require("x")


def test_damaged_chunks_are_an_error_with_hdf5s_words(tmp_path):
    values = RANDOM.standard_normal((200, 7))
    with h5py.File(tmp_path / "in.h5", "w") as file:
        packed = file.create_dataset("x", data=values, compression="gzip", chunks=(200, 7))
        place, size = packed.id.get_chunk_info(0).byte_offset, packed.id.get_chunk_info(0).size
    data = bytearray((tmp_path / "in.h5").read_bytes())
    data[place + size // 2 : place + size // 2 + 40] = bytes(40)
    (tmp_path / "in.h5").write_bytes(data)
    with (
        Hdf5File(tmp_path / "in.h5") as file,
        pytest.raises(InputError, match="cannot be read"),
    ):
        file.require("x").read()


@pytest.mark.parametrize("options", [{"libver": "latest"}, {"userblock_size": 512},
                                     {"track_order": True}])  # fmt: skip
def test_files_of_another_form_are_read_all_the_same(tmp_path, options):
    values = RANDOM.standard_normal((12, 4, 2))
    with h5py.File(tmp_path / "in.h5", "w", **options) as file:
        for i, each in enumerate(values):
            file[f"data/demo_{i}/actions"] = each
    with Hdf5File(tmp_path / "in.h5") as file:
        assert file.children("data") == [f"demo_{i}" for i in range(12)]
        assert file.get("data/demo_12/actions") is None
        for i, each in enumerate(values):
            np.testing.assert_array_equal(file.require(f"data/demo_{i}/actions").read(), each)


@pytest.mark.parametrize("write", [writers.robomimic, writers.isaaclab, writers.minari])
def test_all_that_hdf5_finds_is_found_with_the_same_values(tmp_path, write):
    write(tmp_path / "in.h5", writers.demos())
    with Hdf5File(tmp_path / "in.h5") as file, h5py.File(tmp_path / "in.h5") as same:
        names: list[str] = []
        same.visititems(lambda name, item: names.append(name) if hasattr(item, "shape") else None)
        assert len(names) > 50
        for name in names:
            found = file.require(name)
            assert (found.shape, found.dtype) == (same[name].shape, same[name].dtype)
            if found.shape and found.numeric:
                np.testing.assert_array_equal(found.read(), same[name][:])
            assert file.get(f"{name}x") is None
            assert file.get(f"{name}/x") is None


def test_links_out_of_the_file_and_soft_links_are_not_taken_for_absent(tmp_path):
    np_values = np.ones((3, 2))
    with h5py.File(tmp_path / "in.h5", "w") as file:
        file["data/demo_0/actions"] = np_values
        file["soft"] = h5py.SoftLink("/data/demo_0")
    with Hdf5File(tmp_path / "in.h5") as file:
        np.testing.assert_array_equal(file.require("soft/actions").read(), np_values)
        assert file.get("soft/nothing") is None


def test_a_tree_that_leads_in_a_circle_ends(tmp_path):
    with h5py.File(tmp_path / "in.h5", "w") as file:
        for i in range(600):
            file.create_group(f"demo_{i}")
    data = bytearray((tmp_path / "in.h5").read_bytes())
    tops = [at for at in range(0, len(data), 8) if data[at : at + 6] == b"TREE\0\1"]
    assert tops
    for top in tops:
        first = struct.unpack_from("<Q", data, top + 32)[0]
        for k in range(32):
            struct.pack_into("<Q", data, top + 32 + 16 * k, first)
        struct.pack_into("<H", data, top + 6, 32)
        for k in range(8):  # and the node below names it again
            struct.pack_into("<Q", data, first + 32 + 16 * k, top)
    (tmp_path / "bad.h5").write_bytes(data)
    with early(tmp_path / "bad.h5") as found, pytest.raises(ODD):
        found.names(found.root)


def test_bytes_that_are_wrong_give_names_or_nothing(tmp_path):
    writers.robomimic(tmp_path / "in.h5", writers.demos())
    data = (tmp_path / "in.h5").read_bytes()
    places = [
        at for at in range(0, len(data), 8) if data[at : at + 4] in (b"TREE", b"SNOD", b"HEAP")
    ]
    found_some = 0
    for k in range(400):
        broken = bytearray(data)
        for place in RANDOM.choice(places, 3):
            broken[place + RANDOM.integers(4, 64)] = RANDOM.integers(256)
        for place in RANDOM.integers(0, 20_000, 6):
            broken[place] = RANDOM.integers(256)
        if k % 4 == 0:
            broken = broken[: RANDOM.integers(100, len(broken))]
        (tmp_path / "bad.h5").write_bytes(broken)
        try:
            with early(tmp_path / "bad.h5") as found:
                for group in found.names(found.names(found.root)["data"]).values():
                    header = found.names(group)["actions"]
                    shape, kind, place = found.dataset(header, TYPES)
                    assert place + np.prod(shape) * kind.itemsize <= len(broken)
                    found_some += 1
        except ODD:
            pass
    assert found_some > 100


@pytest.mark.parametrize(
    "names",
    [[], ["a"], ["demo_10", "demo_9", "demo_100"], ["demo_10", "demo_9", "mask"],
     ["7", "12", "3"], ["v2_demo_10", "v2_demo_9"], ["1_2", "1_10"], ["demo_1", "demo_01", "demo_"],
     ["x12", "x2", "y1"]],
)  # fmt: skip
def test_names_alike_are_sorted_as_all_others(names):
    assert in_natural_order(names) == sorted(names, key=natural_key)


def test_a_closed_file_gives_no_values_of_another(tmp_path):
    for name, value in (("in", 1.0), ("other", 2.0)):
        with h5py.File(tmp_path / f"{name}.h5", "w") as file:
            file.create_dataset("x", data=np.full((30, 3), value), compression="gzip")
    with Hdf5File(tmp_path / "in.h5") as file:
        found = file.require("x")
    with h5py.File(tmp_path / "other.h5"), pytest.raises(InputError):
        found.read()
