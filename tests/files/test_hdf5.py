"""HDF5 files of every form give the names and values that h5py itself finds, or a refusal."""

from __future__ import annotations

import fcntl
import shutil
import subprocess
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest
from layouts import writers

from trajcli.errors import InputError
from trajcli.files.catalogue import OpenFiles
from trajcli.files.hdf5 import Hdf5File
from trajcli.files.source import natural_key

RANDOM = np.random.default_rng(11)
STORAGE = [
    {},
    {"compression": "gzip"},
    {"compression": "gzip", "shuffle": True, "chunks": (4, 2)},
    {"chunks": (3, 3)},
    {"chunks": True, "maxshape": (None, 3)},
    {"chunks": (64, 3), "maxshape": (None, 3), "compression": 9},
    {"chunks": (4, 2), "fletcher32": True},
    {"compression": "lzf"},
    {"dtype": "i4", "scaleoffset": 0},
]


@pytest.mark.parametrize("options", STORAGE)
@pytest.mark.parametrize("kind", ["<f4", ">f8", "<f2", "|i1", ">u2"])
def test_values_are_read_however_they_are_stored(tmp_path, options, kind):
    values = RANDOM.integers(0, 9, (30, 3)).astype(options.get("dtype", kind))
    with h5py.File(tmp_path / "in.h5", "w") as file:
        file.create_dataset("data/x", data=values, **options)
    with Hdf5File(tmp_path / "in.h5") as file:
        found = file.require("data/x")
        assert (found.shape, found.dtype) == (values.shape, values.dtype)
        np.testing.assert_array_equal(found.read(), values)
        np.testing.assert_array_equal(found.read_rows(5, 17), values[5:17])
        np.testing.assert_array_equal(found.read_rows(28, 99), values[28:99])
        assert found.read_rows(7, 7).shape == (0, 3)
        np.testing.assert_array_equal(found.read_part(3, 9, 1, 2), values[3:9, 1:2])


@pytest.mark.parametrize("write", [writers.robomimic, writers.isaaclab, writers.minari])
def test_all_datasets_have_the_values_that_h5py_reads(tmp_path, write):
    write(tmp_path / "in.h5", writers.demos())
    with Hdf5File(tmp_path / "in.h5") as file, h5py.File(tmp_path / "in.h5") as same:
        names: list[str] = []
        same.visititems(lambda name, item: names.append(name) if hasattr(item, "shape") else None)
        assert len(names) > 50
        assert sorted(file.names()) == sorted(names)
        for name in names:
            found = file.require(name)
            assert (found.shape, found.dtype) == (same[name].shape, same[name].dtype)
            if found.shape and found.numeric:
                np.testing.assert_array_equal(found.read(), same[name][:])
            assert dict(found.attributes) == dict(same[name].attrs)
            assert file.get(f"{name}x") is None
            assert file.get(f"{name}/x") is None


def test_a_file_that_changed_since_it_was_closed_is_refused(tmp_path):
    for name, value in (("in", 1.0), ("other", 2.0)):
        with h5py.File(tmp_path / f"{name}.h5", "w") as file:
            file["x"] = np.full((30, 3), value)
            file["more"] = np.zeros(int(value))
    with Hdf5File(tmp_path / "in.h5") as file:
        found = file.require("x")
    (tmp_path / "other.h5").replace(tmp_path / "in.h5")
    with pytest.raises(InputError, match="replaced while it was read"):
        found.read()


def test_soft_links_are_followed_also_to_themselves(tmp_path):
    values = np.ones((3, 2))
    with h5py.File(tmp_path / "in.h5", "w") as file:
        file["data/demo_0/actions"] = values
        file["soft"] = h5py.SoftLink("/data/demo_0")
        file["data/near"] = h5py.SoftLink("demo_0/./actions")
        file["circle"] = h5py.SoftLink("/circle")
        file["nowhere"] = h5py.SoftLink("/data/demo_1/actions")
        file["a"] = h5py.SoftLink("/b/x")
        file["b"] = h5py.SoftLink("/a/y")
    with Hdf5File(tmp_path / "in.h5") as file:
        np.testing.assert_array_equal(file.require("soft/actions").read(), values)
        np.testing.assert_array_equal(file.require("data/near").read(), values)
        assert file.get("soft/nothing") is None
        assert file.get("circle") is None
        assert file.get("nowhere") is None
        assert file.get("a/y") is None
        assert file.children("b") == []
        assert file.names() == ["data/demo_0/actions"]


@pytest.mark.parametrize("allowed", [False, True])
def test_what_leads_out_of_the_file_is_refused_unless_allowed(tmp_path, monkeypatch, allowed):
    monkeypatch.chdir(tmp_path)
    values = np.arange(6.0).reshape(3, 2)
    with h5py.File("other.h5", "w") as file:
        file["group/x"] = values
        file["group/soft"] = h5py.SoftLink("/group/x")
    values.tofile("raw.bin")
    virtual = h5py.VirtualLayout(shape=(3, 2), dtype="f8")
    virtual[:] = h5py.VirtualSource("other.h5", "group/x", shape=(3, 2))
    with h5py.File("in.h5", "w") as file:
        file["link"] = h5py.ExternalLink("other.h5", "/group")
        file.create_dataset("outside", (3, 2), "f8", external=[("raw.bin", 0, 48)])
        file.create_virtual_dataset("virtual", virtual)
    with Hdf5File(Path("in.h5"), pool=OpenFiles(allow_external=allowed)) as file:
        for name in ("link/x", "link/soft", "outside", "virtual"):
            if allowed:
                np.testing.assert_array_equal(file.require(name).read(), values)
            else:
                with pytest.raises(InputError, match="leads out of the file"):
                    file.get(name)
        assert {Path(path).name for path in file.linked_paths} == (
            {"other.h5", "raw.bin"} if allowed else set()
        )


def test_a_filter_that_needs_a_plug_in_is_refused(tmp_path):
    with h5py.File(tmp_path / "in.h5", "w") as file:
        properties = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        properties.set_chunk((3, 2))
        properties.set_filter(32001, h5py.h5z.FLAG_OPTIONAL, (0, 0, 0, 0))  # Blosc
        space = h5py.h5s.create_simple((3, 2))
        made = h5py.h5d.create(file.id, b"x", h5py.h5t.NATIVE_DOUBLE, space, properties)
        made.write_direct_chunk((0, 0), np.zeros((3, 2)).tobytes())
    with Hdf5File(tmp_path / "in.h5") as file, pytest.raises(InputError, match="plug-in"):
        file.get("x")


def test_chunks_that_were_never_written_are_refused(tmp_path):
    with h5py.File(tmp_path / "in.h5", "w") as file:
        holes = file.create_dataset("x", (40, 2), "f4", chunks=(10, 2), fillvalue=7.0)
        holes[10:20] = 1.0
    with Hdf5File(tmp_path / "in.h5") as file, pytest.raises(InputError, match="never written"):
        file.require("x")


def test_bare_dimensions_of_netcdf_are_no_datasets(tmp_path):
    mark = b"This is a netCDF dimension but not a netCDF variable.         3"
    with h5py.File(tmp_path / "in.h5", "w") as file:
        for group in ("", "data/demo_0/"):
            file.create_dataset(f"{group}dof", (3,), "f4")
            file[f"{group}dof"].make_scale(mark)
            file[f"{group}actions"] = np.ones((4, 3))
            file[f"{group}actions"].dims[1].attach_scale(file[f"{group}dof"])
    with Hdf5File(tmp_path / "in.h5") as file:
        assert file.names() == ["actions", "data/demo_0/actions"]
        assert file.get("dof") is None
        assert file.get("data/demo_0/dof") is None
        assert file.dims("data/demo_0/actions")[1] == "dof"


def test_every_file_that_links_lead_to_is_listed(tmp_path):
    for name in ("one", "two"):
        with h5py.File(tmp_path / f"{name}.h5", "w") as file:
            file["group/x"] = np.full((3, 2), len(name))
            file["group/soft"] = h5py.SoftLink("/group/x")
    with h5py.File(tmp_path / "in.h5", "w") as file:
        file["group/x"] = np.zeros((3, 2))
        file["one"] = h5py.ExternalLink("one.h5", "/group")
        file["two"] = h5py.ExternalLink("two.h5", "/group")
        file["soft"] = h5py.SoftLink("/two")
    with Hdf5File(tmp_path / "in.h5", pool=OpenFiles(allow_external=True)) as file:
        for name in ("one/soft", "soft/x", "soft/soft"):
            assert file.require(name).read().all()  # never that of this file
        assert [Path(path).name for path in file.linked_paths] == ["one.h5", "two.h5"]


@pytest.mark.parametrize(
    "names",
    [[], ["a"], ["demo_9", "demo_10", "demo_100"], ["demo_9", "demo_10", "mask"],
     ["3", "7", "12"], ["v2_demo_9", "v2_demo_10"], ["1_2", "1_10"], ["demo_", "demo_1"],
     ["x2", "x12", "y1"], ["x1", f"x2{'0' * 6000}"], ["x9_2", f"x{'1' * 6000}_1"],
     ["a9b3", "a9b10", "a10b2"]],
)  # fmt: skip
def test_names_with_numbers_are_in_natural_order(names):
    assert sorted({*names}, key=natural_key) == names


def test_sequences_of_different_length_are_not_read(tmp_path):
    path = tmp_path / "in.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset("joint_names", (3,), h5py.vlen_dtype("u1"))
        bytes_of_mode = np.empty((), object)
        bytes_of_mode[()] = np.frombuffer(b"jerk", "u1")
        file.attrs.create("mode", bytes_of_mode, dtype=h5py.vlen_dtype("u1"))
    with Hdf5File(path) as file:
        assert dict(file.attributes()) == {}
        with pytest.raises(InputError, match="sequences"):
            file.get("joint_names")


def test_a_timeout_ends_what_hdf5_reads_for_ever(tmp_path):
    """As docs/promises.md says. Before its version 2, HDF5 ended by itself."""
    path = tmp_path / "endless.h5"
    with h5py.File(path, "w") as file:
        file["actions"], file["joint_names"] = np.zeros((2, 5, 3)), ["a", "b", "c"]
    content = bytearray(path.read_bytes())
    content[content.index(b"GCOL") + 24] = 0  # the length of the first text
    path.write_bytes(content)
    limit = ["timeout", "-s", "KILL", "3", sys.executable, "-m", "trajcli"]
    command = [*limit, "integrate", path, "--dt", "1", "--start", "zero", "-o", tmp_path / "o.h5"]
    process = subprocess.run(command, capture_output=True, text=True, check=False)
    assert process.returncode == (2 if h5py.version.hdf5_version_tuple < (2,) else -9)
    assert [found.name for found in tmp_path.iterdir()] == ["endless.h5"]


def test_characters_of_matlab_are_texts_and_its_empty_arrays_are_refused(tmp_path):
    writers.matlab(
        tmp_path / "in.mat", joint_names=np.array(["hip  ", "kneeé"]), none=np.zeros(2, "u8")
    )
    with h5py.File(tmp_path / "in.mat", "a") as file:
        file["none"].attrs["MATLAB_empty"] = np.uint8(1)
    with Hdf5File(tmp_path / "in.mat") as file:
        names = file.require("joint_names")
        assert (names.shape, names.numeric) == ((2,), False)
        assert names.texts() == ["hip", "kneeé"]
        with pytest.raises(InputError, match="an empty dataset"):
            file.get("none")


@pytest.mark.parametrize("chunks", [None, (4, 3)])
def test_numbers_of_unusual_types_are_converted(tmp_path, chunks):
    kind = h5py.h5t.IEEE_F32LE.copy()
    kind.set_ebias(111)
    values = RANDOM.standard_normal((20, 3))
    with h5py.File(tmp_path / "in.h5", "w") as file:
        form = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        if chunks:
            form.set_chunk(chunks)
            form.set_deflate(4)
        space = h5py.h5s.create_simple(values.shape)
        made = h5py.h5d.create(file.id, b"actions", kind, space, form)
        made.write(h5py.h5s.ALL, h5py.h5s.ALL, values)
        expected = file["actions"][:]
    np.testing.assert_allclose(expected, values, rtol=1e-6)
    with Hdf5File(tmp_path / "in.h5") as file:
        np.testing.assert_array_equal(file.require("actions").read(), expected)


def test_a_file_open_in_another_program_is_refused(tmp_path):
    with h5py.File(tmp_path / "live.h5", "w", libver="latest") as file:
        file["position"], file.swmr_mode = np.zeros((4, 1)), True
        shutil.copy(tmp_path / "live.h5", tmp_path / "killed.h5")
    with open(tmp_path / "live.h5", "rb") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        for name, hint in (("live", "HDF5_USE_FILE_LOCKING=FALSE"), ("killed", "h5clear -s")):
            with pytest.raises(InputError) as refused:
                Hdf5File(tmp_path / f"{name}.h5")
            (fault,) = refused.value.faults
            assert fault.what.endswith("open in another program that writes it")
            assert fault.what.startswith("not closed") == (name == "killed")
            assert hint in fault.hint
    with Hdf5File(tmp_path / "live.h5") as file:
        assert file.names() == ["position"]
