"""Many processes that write the same output at once: it is that of one of them."""

from __future__ import annotations

from pathlib import Path

import pytest
from faults.campaign import contents, hidden
from faults.together import together

RUN = "integrate in.npy --start zero --dt 0.02"
MODES = ("acceleration", "jerk", "velocity", "clique")
NAMES = ("out.h5", "out.npz")


@pytest.mark.parametrize(("name", "count"), [*zip(NAMES, (20, 5), strict=True)])
def test_of_many_writers_one_writes_and_the_others_are_refused(folder, name, count):
    (alone,) = together(f"{RUN} -o {name}")
    assert alone.code == 0, alone.error
    Path(name).rename(f"whole{Path(name).suffix}")
    ends = together(*[f"{RUN} -o {name}"] * count)
    assert sorted(end.code for end in ends) == [0, *[2] * (count - 1)]
    refused = [end.error for end in ends if end.code]
    assert all("another run" in error or "already exists" in error for error in refused)
    assert contents(Path(name)) == contents(Path(f"whole{Path(name).suffix}"))
    assert not hidden(folder)


@pytest.mark.parametrize("name", NAMES)
def test_writers_of_different_values_give_those_of_one_of_them(folder, name, environ):
    suffix = Path(name).suffix
    ends = together(*[f"{RUN} --mode {mode} -o {mode}{suffix}" for mode in MODES])
    assert [end.code for end in ends] == [0] * len(MODES)
    wholes = [contents(Path(f"{mode}{suffix}")) for mode in MODES]
    lines = [f"{RUN} --mode {mode} -o {name} --overwrite" for mode in MODES * 2]
    codes = {end.code for end in together(*lines, **environ)}
    assert codes in ([{0}] if environ else [{0}, {0, 2}])
    assert contents(Path(name)) in wholes
    assert not hidden(folder)


def test_every_shard_twice_at_once_merges_to_the_bytes_of_one_run(folder, environ):
    (alone,) = together(f"{RUN} -o whole.h5")
    assert alone.code == 0
    shards = [f"{RUN} -o out.h5 --shard {k}/4" for k in range(4)]
    ends = together(*shards, *shards, **environ)
    assert [end.code for end in ends].count(0) >= 4, ends
    assert {end.code for end in ends} <= ({0} if environ else {0, 2})
    (merged,) = together("merge out.h5")
    assert merged.code == 0, merged.error
    assert Path("out.h5").read_bytes() == Path("whole.h5").read_bytes()
    assert not hidden(folder)
