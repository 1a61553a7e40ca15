"""Bad input: exit 2, one clear message, nothing left behind; what is not to be trusted."""

from __future__ import annotations

import errno
import json
import os
import pickle
import subprocess
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest
from journeys.arrays import read_h5, write_h5
from journeys.conftest import ROOT

GOOD = "actions.npy --start start.npy --dt 0.02 -o out.h5"


@pytest.mark.parametrize(
    ("line", "parts"),
    [
        ("missing.npy --start zero --dt 1 -o out.h5", ["missing.npy", "no such file"]),
        (". --start zero --dt 1 -o out.h5", ["a folder"]),
        ("actions.npy --start zero --dt 0 -o out.h5", ["--dt", "> 0", "0.0"]),
        ("actions.npy --start zero --dt nan -o out.h5", ["--dt", "nan"]),
        ("actions.npy --start zero --dt inf -o out.h5", ["--dt", "inf"]),
        ("actions.npy --start zero --rate 0 -o out.h5", ["--rate", "Hz > 0"]),
        ("actions.npy --start zero --dt 1 --rate 2 -o out.h5", ["--dt and --rate", "one of them"]),
        (f"{GOOD} --degree 4", ["acceleration takes no option degree", "scheme"]),
        (f"{GOOD} --mode bspline --degree 2", ["degree", "3, 4, 5"]),
        (f"{GOOD} --mode bspline --steps 0", ["steps", ">= 1"]),
        (f"{GOOD} --scheme rk4", ["scheme", "euler, zoh, foh", "rk4"]),
        (f"{GOOD} --mode central --ends goal", ["goal position"]),
        (f"{GOOD} --goal zero", ["takes no goal"]),
        (f"{GOOD} --alignment some", ["alignment", "full, actions, curobo"]),
        (f"{GOOD} --write position,speed", ["speed", "velocity"]),
        (f"{GOOD} --dtype int8", ["float32, float64"]),
        (f"{GOOD} TRAJCLI_MEMORY=lots", ["256MiB", "lots"]),
        (f"{GOOD} --device tpu", ["auto, cpu, cuda"]),
        (f"{GOOD} TRAJCLI_BACKEND=fortran", ["native, triton, torch"]),
        (f"{GOOD} TRAJCLI_BACKEND=triton", ["triton", "absent"]),
        ("actions.npy --start zero --dt 1", ["-o"]),
        ("actions.npy --start actions.npy --dt 1 -o out.h5", ["actions.npy", "[B, D]"]),
        ("actions.npy:other --start zero --dt 1 -o out.h5", ["other"]),
    ],
)
def test_what_cannot_be_done_is_refused_in_one_message(trajcli, folder, line, parts):
    trajcli.refuses(f"integrate {line}", *parts)


@pytest.mark.parametrize(
    ("values", "line", "parts"),
    [
        (np.zeros((1, 2, 3, 4)), "bad.npy --start zero", ["[1, 2, 3, 4]"]),
        (np.zeros((2, 3, 0)), "bad.npy --start zero", ["D >= 1"]),
        (np.zeros((2, 0, 3)), "bad.npy --start zero", ["H >= 1"]),
        (np.zeros((5, 7)), "actions.npy --start bad.npy", ["D = 3", "actions.npy", "D = 7"]),
        (np.zeros((4, 3)), "actions.npy --start bad.npy", ["[5, 3]", "[4, 3]", "start_index"]),
        (np.zeros((2, 3, 1), complex), "bad.npy --start zero", ["complex"]),
        (np.array([[["a"]]]), "bad.npy --start zero", ["strings"]),
        (np.ones((1, 2, 3), bool), "bad.npy --start zero", ["booleans"]),
        (np.zeros(4, int), "actions.npy --start start.npy --start-index bad.npy", ["[5]", "[4]"]),
        (np.zeros(0, int), "actions.npy --start start.npy --start-index bad.npy", ["[5]", "[0]"]),
    ],
)
def test_arrays_of_the_wrong_kind_are_refused_by_name(trajcli, folder, values, line, parts):
    np.save("bad.npy", values)
    trajcli.refuses(f"integrate {line} --dt 1 -o out.h5", "bad.npy", *parts)


def test_a_bad_step_deep_in_a_large_table_leaves_nothing(trajcli, folder):
    steps = np.full((120_000, 10), 0.1)
    steps[119_000, 4] = 0.0
    np.save("steps.npy", steps)
    np.save("many.npy", np.zeros((120_000, 10, 1), "f4"))
    line = "many.npy --start zero --dt steps.npy -o out.h5"
    trajcli.refuses(f"integrate {line}", "steps.npy, trajectory 119000, step 4")


def test_lengths_that_cannot_be_are_refused(trajcli, folder):
    refused = {(5, 6): "1 to 5", (5, 0): "trajectory 1", (5,): "integers [2]", (5.5, 3): "float64"}
    for lengths, message in refused.items():
        np.savez("in.npz", actions=np.zeros((2, 5, 1)), lengths=np.array(lengths), dt=1.0)
        trajcli.refuses("integrate in.npz --start zero -o out.h5", "in.npz:lengths", message)


@pytest.mark.parametrize(
    ("name", "head", "words"),
    [
        ("empty.npy", b"", ["an empty file"]),
        ("text.h5", b"time,position\n", ["begins with b'time,pos'"]),
        ("a.mat", b"MATLAB 5.0 MAT-file" + bytes(200), ["expected: a MATLAB 5 file"]),
        ("plain.npy", pickle.dumps([1.0]), ["pickle"]),
    ],
)
def test_files_that_are_not_what_they_seem_are_refused(trajcli, folder, name, head, words):
    Path(name).write_bytes(head)
    trajcli.refuses(f"integrate {name} --start zero --dt 1 -o out.h5", name, *words)


@pytest.mark.parametrize("name", ["in.npy", "in.npz"])
def test_pickled_data_is_never_loaded(trajcli, folder, name):
    class Evil:
        def __reduce__(self):
            return (open, ("owned", "w"))

    with open(name, "wb") as file:
        (np.save if name == "in.npy" else np.savez)(file, np.array([[[Evil()]]], dtype=object))
    trajcli.refuses(f"integrate {name} --start zero --dt 1 -o out.h5", name, "pickle")
    assert not Path("owned").exists()


def test_a_full_disk_leaves_the_old_output(trajcli, folder, monkeypatch):
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    Path("out.h5").write_text("precious")
    monkeypatch.setattr("trajcli.kernels.native.Forward.run", full)
    trajcli.refuses(f"integrate {GOOD} --overwrite", "out.h5", "No space left")
    assert Path("out.h5").read_text() == "precious"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root becomes another user")
def test_an_unreadable_file_is_said_to_be_so(trajcli, folder):
    trajcli("inspect actions.npy")  # everything is imported
    os.chmod("actions.npy", 0)
    os.chmod(folder, 0o777)
    os.seteuid(65534)
    try:
        line = "integrate actions.npy --start zero --dt 1 -o out.h5"
        trajcli.refuses(line, "actions.npy", "Permission denied")
    finally:
        os.seteuid(0)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("differentiate in.npy --dt 0.1 --method savgol --window 4", "--window: no such"),
        ("differentiate in.npy --dt 0.1 --method central --degree 3", "--degree: method central"),
        ("differentiate in.npy --dt 0.1 --bandlimit x", "--bandlimit: "),
        ("fit in.npy --dt 0.1 --knots 2", "--knots: no such number"),
        ("fit in.npy --dt 0.1 --error=-1", "--error: not an error"),
    ],
)
def test_options_are_named_as_the_shell_has_them(trajcli, folder, line, said):
    np.save("in.npy", np.random.default_rng(0).normal(size=(1, 40, 2)))
    result = trajcli.refuses(f"{line} -o out.h5 --json", said)
    assert result.document["error"]["faults"][0]["where"] == said.partition(":")[0]


def test_of_several_inputs_the_one_with_other_steps_is_named(trajcli, folder):
    good = {"actions": np.load("actions.npy"), "start_position": np.zeros(3)}
    for dt, bad, message in (
        (np.linspace(0.1, 0.2, 10), {"dt": np.linspace(0.1, 0.2, 13)}, "b.npz:dt: wrong shape"),
        (1.0, {"times": np.arange(10.0)}, "b.npz:times: wrong number of time stamps"),
    ):
        np.savez("a.npz", **good, dt=dt)
        np.savez("b.npz", **good, **bad)
        assert "a.npz" not in trajcli.refuses("integrate a.npz b.npz -o out.h5", message).err


RUN = "integrate actions.npy --start start.npy --dt 0.02"


def test_a_file_reached_through_a_link_is_an_input_too(trajcli, folder):
    write_h5("other.h5", x=np.zeros((2, 3, 1)))
    write_h5("in.h5", actions=h5py.ExternalLink("other.h5", "/x"))
    before = Path("other.h5").read_bytes()
    line = "integrate in.h5 --start zero --dt 1 -o other.h5 --overwrite --allow-external"
    trajcli.refuses(line, "the output is an input")
    assert Path("other.h5").read_bytes() == before


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
@pytest.mark.parametrize(
    ("line", "stream", "code"),
    [
        *(("--help", ">/dev/full", 2), ("--help", ">&-", 0)),
        *(
            ("diff start.npy actions.npy", ">/dev/full", 1),
            ("diff start.npy actions.npy", ">&-", 1),
        ),
        *(("check actions.npy --json", ">/dev/full", 2), ("check actions.npy --json", "| true", 0)),
        ("inspect none.h5", ">&-", 2),
    ],
)
def test_the_exit_code_without_room_on_stdout_and_without_stdout(folder, line, stream, code):
    """Help and a JSON document that are lost are exit 2; other text is a warning."""
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "LC_ALL": "C"}  # and no HOME
    command = f'"{sys.executable}" -m trajcli {line} {stream}; exit ${{PIPESTATUS[0]}}'
    run = subprocess.run(["bash", "-c", command], env=env, capture_output=True, text=True)
    assert run.returncode == code, run.stderr
    assert not any(words in run.stderr for words in ("Traceback", "a bug"))
    assert stream != ">/dev/full" or "No space left" in run.stderr


def test_a_stored_start_index_belongs_to_the_states_stored_with_it(trajcli, folder):
    start = np.array([[10.0], [20.0], [30.0]])
    arrays = {"actions": np.zeros((3, 2, 1)), "start_index": np.array([2, 0, 1]), "dt": 1.0}
    for name in ("a", "b"):
        write_h5(f"{name}.h5", {"start/position": start}, **arrays)

    def first_rows(line: str) -> list[float]:
        trajcli.ok(f"integrate {line} -o out.h5 --overwrite")
        return read_h5("out.h5")["position"][:, 0, 0].tolist()

    assert first_rows("a.h5") == [30.0, 10.0, 20.0]
    np.save("own.npy", start)
    assert first_rows("a.h5 --start own.npy") == [10.0, 20.0, 30.0]
    assert first_rows("a.h5 --start zero") == [0.0, 0.0, 0.0]
    trajcli.refuses("integrate a.h5 b.h5 -o two.h5", "an index of states in some of several")


def test_faults_name_rows_of_the_file_in_every_block(trajcli, folder):
    start = np.zeros((6000, 1))
    start[5000] = np.nan
    np.save("start.npy", start)
    np.save("actions.npy", np.zeros((6000, 40, 1), "f4"))
    trajcli.refuses(f"{RUN} -o out.h5 TRAJCLI_MEMORY=1MB", "start.npy, trajectory 5000")
    positions = np.zeros((12, 2))
    positions[9, 1] = np.nan
    np.savez("r.npz", position=positions, times=[0, 1, 1, 2, 3, 3, 4, 5, 6, 7, 8, 9])
    line = "differentiate r.npz:position --method backward --repeated-times drop -o out.h5"
    trajcli.refuses(line, "step 9, dof 1")


def test_names_of_files_may_hold_any_bytes(trajcli, folder):
    name = os.fsdecode(b"in\xff\xfe.npy")
    Path("actions.npy").rename(name)
    trajcli.ok(f"integrate {name} --start zero --dt 1 -o out.h5")
    for line in (f"inspect {name}", f"check {name}", "check out.h5 --recompute",
                 f"inspect {name} --json", "inspect out.h5", f"plot {name} -o fig.svg",
                 f"plot {name} -o fig.svg --histogram --overwrite"):  # fmt: skip
        trajcli.ok(line)
    assert trajcli("inspect", os.fsdecode(b"none\xff.h5")).code == 2


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize(("version", "kind"), [(2, "folder"), (3, "zip")])
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
    trajcli.ok("integrate in*.npy --start zero --dt 1 -o out.h5")
    trajcli.ok("integrate in0.npy in1.npy --start zero --dt 1 -o named.h5")
    assert Path("out.h5").read_bytes() == Path("named.h5").read_bytes()
    trajcli.ok("check out.h5 --recompute")
    with h5py.File("out.h5", "a") as file:
        request = json.loads(file.attrs["request"])
        assert request["sources"] == ["in0.npy", "in1.npy"]
    for odd in ("/**/**/**/**/**/*.npy", "in*.npy", "\ud800", "in0.npy:a\ud800[0:1]"):
        with h5py.File("out.h5", "a") as file:
            file.attrs["request"] = json.dumps(request | {"sources": [odd]})
        for line in ("check out.h5 --recompute", "check out.h5", "inspect out.h5 --json",
                     "diff out.h5 named.h5", "diff out.h5 named.h5 --json"):  # fmt: skip
            result = trajcli(line)
            assert result.code in (0, 1, 2), (odd, line, result.err)
        trajcli.refuses("check out.h5 --recompute")


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-32"])
def test_a_urdf_in_any_encoding_has_no_entities(trajcli, folder, encoding):
    text = f'<?xml version="1.0" encoding="{encoding}"?><!DOCTYPE r [<!ENTITY a "j">]><robot><joint'
    text += ' name="&a;" type="revolute"><limit lower="-1" upper="1"/></joint></robot>'
    Path("arm.urdf").write_bytes(text.encode(encoding))
    trajcli.refuses("check actions.npy --limits arm.urdf", "arm.urdf")
