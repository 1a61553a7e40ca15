"""Many processes that write the same output at once: it is that of one of them."""

from __future__ import annotations

from pathlib import Path

import pytest
from faults.campaign import contents, hidden
from faults.together import together

RUN = "integrate in.npy --start zero --dt 0.02"
MODES = ("acceleration", "jerk", "velocity", "clique")


@pytest.mark.parametrize(("name", "count"), [("out.h5", 10), ("out.npz", 5)])
def test_of_many_writers_one_writes_and_the_others_are_refused(folder, name, count):
    (alone,) = together(f"{RUN} -o {name}")
    assert alone.code == 0, alone.error
    Path(name).rename(f"whole{Path(name).suffix}")
    ends = together(*[f"{RUN} -o {name}"] * count)
    assert [end.code for end in ends].count(0) == 1
    said = {2: "already exists", 75: "another run"}
    assert all(said[end.code] in end.error for end in ends if end.code)
    assert contents(Path(name)) == contents(Path(f"whole{Path(name).suffix}"))
    assert not hidden(folder)


def test_writers_of_different_values_give_those_of_one_of_them(folder, environ):
    name, suffix = ("out.npz", ".npz") if environ else ("out.h5", ".h5")
    ends = together(*[f"{RUN} --mode {mode} -o {mode}{suffix}" for mode in MODES])
    assert [end.code for end in ends] == [0] * len(MODES)
    wholes = [contents(Path(f"{mode}{suffix}")) for mode in MODES]
    lines = [f"{RUN} --mode {mode} -o {name} --overwrite" for mode in MODES * 2]
    codes = {end.code for end in together(*lines, **environ)}
    assert codes in ([{0}] if environ else [{0}, {0, 75}])
    assert contents(Path(name)) in wholes
    assert not hidden(folder)


def test_without_file_locks_the_hint_names_the_variable_of_hdf5(folder, shim):
    environ = {"LD_PRELOAD": shim, "FAULTS_NO_LOCKS": "1", "HDF5_USE_FILE_LOCKING": "TRUE"}
    (alone,) = together(f"{RUN} -o old.h5")
    assert alone.code == 0, alone.error
    lines = (f"{RUN} -o out.h5", "inspect old.h5")
    for end in together(*lines, **environ):
        assert end.code == 2, end.error
        assert "HDF5_USE_FILE_LOCKING=FALSE" in end.error
    for end in together(*lines, **{**environ, "HDF5_USE_FILE_LOCKING": "FALSE"}):
        assert end.code == 0, end.error


def test_shards_run_twice_at_once_merge_to_the_same_bytes(folder, environ):
    (alone,) = together(f"{RUN} -o whole.h5")
    assert alone.code == 0
    shards = [f"{RUN} -o out.h5 --shard {k}/4" for k in range(4)]
    ends = together(*shards, *shards, **environ)
    assert [end.code for end in ends].count(0) >= 4, ends
    assert {end.code for end in ends} <= ({0} if environ else {0, 75})
    (merged,) = together("merge out.h5", **environ)
    assert merged.code == 0, merged.error
    assert Path("out.h5").read_bytes() == Path("whole.h5").read_bytes()
    assert not hidden(folder)
