"""Bad input: exit 2, one clear message, nothing left behind."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest

GOOD = "actions.npy --start start.npy --dt 0.02 -o out.h5"


def refused(trajcli, line: str, *parts: str) -> str:
    """Run what must be refused; the message has all parts and nothing new is in the folder."""
    before = sorted(os.listdir())
    result = trajcli(f"integrate {line}")
    assert result.code == 2, (result.out, result.err)
    assert "Traceback" not in result.err
    assert sorted(os.listdir()) == before
    for part in parts:
        assert part in result.err, (part, result.err)
    return result.err


@pytest.mark.parametrize(
    ("line", "parts"),
    [
        ("missing.npy --start zero --dt 1 -o out.h5", ["missing.npy", "no such file"]),
        ("action.npy --start zero --dt 1 -o out.h5", ["did you mean actions.npy"]),
        (". --start zero --dt 1 -o out.h5", ["a folder"]),
        ("actions.npy --dt 1 -o out.h5", ["--start zero", "--start FILE", "trajcli differentiate"]),
        ("actions.npy --start zero -o out.h5", ["--dt", "--rate", "--times"]),
        ("actions.npy --start zero --dt 0 -o out.h5", ["--dt", "> 0", "0.0"]),
        ("actions.npy --start zero --dt -0.1 -o out.h5", ["--dt", "> 0", "-0.1"]),
        ("actions.npy --start zero --dt nan -o out.h5", ["--dt", "nan"]),
        ("actions.npy --start zero --dt inf -o out.h5", ["--dt", "inf"]),
        ("actions.npy --start zero --rate 0 -o out.h5", ["--rate", "Hz > 0"]),
        ("actions.npy --start zero --dt 1 --rate 2 -o out.h5", ["--dt and --rate", "one of them"]),
        (f"{GOOD} --mode accelerate", ["accelerate", "clique", "did you mean acceleration"]),
        (f"{GOOD} --degree 4", ["acceleration takes no option degree", "scheme"]),
        (f"{GOOD} --mode bspline --degree 2", ["degree", "3, 4, 5"]),
        (f"{GOOD} --mode bspline --steps 0", ["steps", ">= 1"]),
        (f"{GOOD} --scheme rk4", ["scheme", "euler, zoh, foh", "rk4"]),
        (f"{GOOD} --mode central --ends goal", ["goal position"]),
        (f"{GOOD} --goal zero", ["takes no goal"]),
        (f"{GOOD} --frames some", ["frames", "full, actions, curobo"]),
        (f"{GOOD} --write position,speed", ["speed", "velocity"]),
        (f"{GOOD} --dtype int8", ["float32, float64"]),
        (f"{GOOD} TRAJCLI_MEMORY=lots", ["256MiB", "lots"]),
        (f"{GOOD} --device tpu", ["auto, cpu, cuda"]),
        (f"{GOOD} TRAJCLI_BACKEND=fortran", ["native, triton, torch"]),
        (f"{GOOD} TRAJCLI_BACKEND=triton", ["triton", "absent"]),
        (f"{GOOD} --no-such-option", ["--no-such-option", "--help"]),
        ("actions.npy --start zero --dt 1", ["-o"]),
        ("actions.npy --start zero --dt 1 -o none/out.h5", ["none", "no such folder"]),
        ("actions.npy --start zero --dt 1 -o out.csv", [".csv", "OUT.h5"]),
        ("actions.npy --start zero --dt 1 -o out.npy", ["holds one array", "--write position"]),
        ("actions.npy --start actions.npy --dt 1 -o out.h5", ["actions.npy", "[B, D]"]),
        ("actions.npy:other --start zero --dt 1 -o out.h5", ["other"]),
    ],
)
def test_what_cannot_be_done_is_refused_in_one_message(trajcli, folder, line, parts):
    refused(trajcli, line, *parts)


@pytest.mark.parametrize(
    ("name", "values", "line", "parts"),
    [
        ("rank4", np.zeros((1, 2, 3, 4)), "rank4.npy --start zero", ["[1, 2, 3, 4]"]),
        ("nodof", np.zeros((2, 3, 0)), "nodof.npy --start zero", ["D >= 1"]),
        ("nostep", np.zeros((2, 0, 3)), "nostep.npy --start zero", ["H >= 1"]),
        (
            "seven",
            np.zeros((5, 7)),
            "actions.npy --start seven.npy",
            ["seven.npy", "D = 3", "actions.npy", "D = 7"],
        ),
        (
            "four",
            np.zeros((4, 3)),
            "actions.npy --start four.npy",
            ["four.npy", "[5, 3]", "[4, 3]", "start_index"],
        ),
        ("complex", np.zeros((2, 3, 1), complex), "complex.npy --start zero", ["complex"]),
        ("text", np.array([[["a"]]]), "text.npy --start zero", ["strings"]),
        ("yes", np.ones((1, 2, 3), bool), "yes.npy --start zero", ["booleans"]),
        ("records", np.zeros((1, 2, 3), "f4,i4"), "records.npy --start zero", ["records"]),
    ],
)
def test_arrays_of_the_wrong_kind_are_refused_by_name(trajcli, folder, name, values, line, parts):
    np.save(f"{name}.npy", values)
    refused(trajcli, f"{line} --dt 1 -o out.h5", *parts)


def test_a_bad_step_deep_in_a_large_table_is_found_and_leaves_nothing(trajcli, folder):
    steps = np.full((120_000, 10), 0.1)
    steps[119_000, 4] = 0.0
    np.save("steps.npy", steps)
    np.save("many.npy", np.zeros((120_000, 10, 1), "f4"))
    line = "many.npy --start zero --dt steps.npy -o out.h5"
    refused(trajcli, line, "steps.npy, trajectory 119000, step 4")


@pytest.mark.parametrize(
    ("lengths", "message"),
    [([5, 6], "1 to 5"), ([5, 0], "trajectory 1"), ([5], "integers [2]"), ([5.0, 3.0], "float64")],
)
def test_lengths_that_cannot_be_are_refused(trajcli, folder, lengths, message):
    np.savez("in.npz", actions=np.zeros((2, 5, 1)), lengths=np.array(lengths), dt=1.0)
    refused(trajcli, "in.npz --start zero -o out.h5", "in.npz:lengths", message)


@pytest.mark.parametrize("count", [0, 1, 4, 6])
def test_a_start_index_has_one_entry_for_each_trajectory(trajcli, folder, count):
    np.save("index.npy", np.zeros(count, int))
    line = "actions.npy --start start.npy --start-index index.npy --dt 1 -o out.h5"
    refused(trajcli, line, "index.npy", "[5]", f"[{count}]")


def test_a_missing_dataset_names_the_near_ones(trajcli, folder):
    with h5py.File("in.h5", "w") as file:
        file["data/joint_positions"] = np.zeros((2, 3, 1))
    refused(trajcli, "in.h5:data/joint_position --dt 1 -o out.h5", "data/joint_positions")
    np.savez("in.npz", acts=np.zeros((2, 3, 1)), wrench=np.zeros((2, 4, 6)), rest=np.zeros(3))
    refused(trajcli, "in.npz --dt 1 -o out.h5", "acts [2, 3, 1], wrench [2, 4, 6]", "in.npz:acts")


def test_files_that_are_not_what_they_seem_are_refused(trajcli, folder):
    Path("empty.h5").touch()
    refused(trajcli, "empty.h5 --dt 1 -o out.h5", "empty.h5", "an empty file")
    Path("empty.npy").touch()
    refused(trajcli, "empty.npy --dt 1 -o out.h5", "empty.npy", "an empty file")
    Path("text.h5").write_text("time,position\n")
    refused(trajcli, "text.h5 --dt 1 -o out.h5", "text.h5", "begins with b'time,pos'")
    for name, head, *words in (
        ("a.mat", b"MATLAB 5.0 MAT-file", "expected: a MATLAB 5 file"),
        ("a.pkl", b"\x80\x05\x95", "a pickle", "numpy.savez('a.npz'"),
        ("a.xlsx", b"PK\3\4", "a workbook", 'pandas.read_excel("a.xlsx")'),
        ("a.csv.gz", b"\x1f\x8b\x08", "gunzip -k a.csv.gz"),
    ):
        Path(name).write_bytes(head + bytes(200))
        refused(trajcli, f"{name} --dt 1 -o out.h5", name, *words)
    os.mkfifo("pipe.npy")
    refused(trajcli, "pipe.npy --start zero --dt 1 -o out.h5", "pipe.npy", "not a regular file")
    Path("folder.h5").mkdir()
    refused(trajcli, "folder.h5 --dt 1 -o out.h5", "folder.h5", "a folder")


def test_pickled_data_is_never_loaded(trajcli, folder):
    class Evil:
        def __reduce__(self):
            return (open, ("owned", "w"))

    np.save("object.npy", np.array([[[Evil()]]], dtype=object), allow_pickle=True)
    refused(trajcli, "object.npy --start zero --dt 1 -o out.h5", "object.npy", "pickle")
    np.savez("object.npz", actions=np.array([[[Evil()]]], dtype=object))
    refused(trajcli, "object.npz --start zero --dt 1 -o out.h5", "object.npz", "pickle")
    Path("plain.npy").write_bytes(pickle.dumps(Evil()))
    refused(trajcli, "plain.npy --start zero --dt 1 -o out.h5", "plain.npy", "pickle")
    assert not Path("owned").exists()


def test_a_small_file_that_declares_4_tb_is_refused_at_once(trajcli, folder):
    with h5py.File("vast.h5", "w") as file:
        file.create_dataset("actions", (10**6, 10**5, 10), "f4", chunks=(1, 1000, 10))
        file.create_dataset("solid", (10**6, 10**5, 10), "f4")
    assert os.path.getsize("vast.h5") < 8192
    refused(trajcli, "vast.h5 --start zero --dt 1 -o out.h5", "vast.h5:/actions", "4000000000000")
    refused(trajcli, "vast.h5:solid --start zero --dt 1 -o out.h5", "vast.h5:/solid")
    header = b"\x93NUMPY\x01\x00v\x00{'descr': '<f4', 'fortran_order': False, 'shape': "
    header += b"(1000000, 100000, 10), }"
    Path("vast.npy").write_bytes(header.ljust(127) + b"\n")
    refused(trajcli, "vast.npy --start zero --dt 1 -o out.h5", "vast.npy", "header")


def test_an_unreadable_file_is_said_to_be_so(folder):
    os.chmod("actions.npy", 0)
    if os.geteuid() == 0:  # root reads everything: ask as nobody
        os.chmod(folder, 0o777)
        command = ["setpriv", "--reuid", "65534", "--clear-groups"]
        probe = subprocess.run(
            [*command, sys.executable, "-c", "import trajcli.cli, os; os.listdir('.')"],
            capture_output=True,
            cwd=folder,
            env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        )
        if probe.returncode:
            pytest.skip("cannot run as another user here")
    else:
        command = []
    line = "integrate actions.npy --start zero --dt 1 -o out.h5"
    run = subprocess.run(
        [*command, sys.executable, "-m", "trajcli", *line.split()],
        capture_output=True,
        text=True,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
    )
    assert run.returncode == 2, run.stderr
    assert "actions.npy" in run.stderr
    assert "Permission denied" in run.stderr
    assert "Traceback" not in run.stderr


def test_an_existing_output_is_kept_unless_overwrite_is_said(trajcli, folder):
    Path("out.h5").write_text("precious")
    refused(trajcli, GOOD, "out.h5", "--overwrite")
    assert Path("out.h5").read_text() == "precious"
    refused(trajcli, "missing.npy --start zero --dt 1 -o out.h5 --overwrite", "missing.npy")
    assert Path("out.h5").read_text() == "precious"
    assert trajcli(f"integrate {GOOD} --overwrite").code == 0
    assert h5py.is_hdf5("out.h5")


def test_an_output_that_is_an_input_is_refused_also_with_overwrite(trajcli, folder):
    np.savez("in.npz", actions=np.zeros((2, 3, 1)), start_position=np.zeros(1), dt=1.0)
    data = Path("in.npz").read_bytes()
    refused(trajcli, "in.npz -o in.npz --overwrite", "the output is an input")
    os.symlink("in.npz", "alias.npz")
    refused(trajcli, "in.npz -o alias.npz --overwrite", "the output is an input")
    os.link("in.npz", "twin.npz")
    refused(trajcli, "in.npz -o twin.npz --overwrite", "the output is an input")
    assert Path("in.npz").read_bytes() == data


def test_a_full_disk_is_exit_2_and_leaves_the_old_output(trajcli, folder, monkeypatch):
    import errno

    Path("out.h5").write_text("precious")

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", full)
    refused(trajcli, f"{GOOD} --overwrite", "out.h5", "No space left")
    assert Path("out.h5").read_text() == "precious"
    monkeypatch.undo()
    os.chdir(folder)
    monkeypatch.setattr(os, "pwrite", full)
    refused(trajcli, f"{GOOD} --overwrite", "out.h5", "No space left")
    assert Path("out.h5").read_text() == "precious"


def test_a_disk_that_is_full_when_the_kernels_write_is_exit_2(trajcli, folder, monkeypatch):
    """The limit of the process on the size of files stands for it."""
    import resource

    np.save("many.npy", np.ones((2000, 100, 3)))
    monkeypatch.setattr("trajcli.files.outputs.reserve", lambda *_: None)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, limits[1]))
    try:
        refused(trajcli, "many.npy --start zero --dt 0.1 -o out.npz", "out.npz", "File too large")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("differentiate in.npy --dt 0.1 --method savgol --window 4", "--window: no such"),
        ("differentiate in.npy --dt 0.1 --method central --degree 3", "--degree: method central"),
        ("fit in.npy --dt 0.1 --knots 2", "--knots: no such number"),
        ("fit in.npy --dt 0.1 --error=-1", "--error: not an error"),
    ],
)
def test_options_are_named_as_the_shell_has_them(trajcli, folder, line, said):
    np.save("in.npy", np.random.default_rng(0).normal(size=(1, 40, 2)))
    result = trajcli(f"{line} -o out.h5 --json")
    assert result.code == 2
    assert said in result.err
    assert result.document["error"]["faults"][0]["where"] == said.partition(":")[0]


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ({"dt": np.linspace(0.1, 0.2, 13)}, "b.npz:dt: wrong shape"),
        ({"times": np.arange(10.0)}, "b.npz:times: wrong number of time stamps"),
    ],
)
@pytest.mark.parametrize("dt", [np.linspace(0.1, 0.2, 10), 1.0])
def test_of_several_inputs_the_one_with_other_steps_is_named(trajcli, folder, dt, bad, message):
    good = {"actions": np.load("actions.npy"), "start_position": np.zeros(3)}
    np.savez("a.npz", **good, dt=dt)
    np.savez("b.npz", **good, **bad)
    err = refused(trajcli, "a.npz b.npz -o out.h5", message)
    assert "a.npz" not in err
