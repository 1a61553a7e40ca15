"""Names in files and on the command line never steer the terminal, whatever the command."""

from __future__ import annotations

import json
import os
import re
import unicodedata
from pathlib import Path
from typing import get_args

import h5py
import numpy as np
import pytest

from trajcli import InputError, names
from trajcli._prepared import DTYPES
from trajcli.cli import options
from trajcli.cli.console import Console, visible
from trajcli.errors import Fault
from trajcli.files._layouts import FAMILIES, PLAIN
from trajcli.modes import ALIASES, METHODS, MODES

EVIL = (
    "\x1b]0;owned\x07\x9b31m\u202e\u200e\u200f\u061c\u2066\u200b\u2060\ufe0f"
    "[/bold][link=x]\nerror: forged\x7f"
)
"""Terminal sequences, directions of writing, markup of tables, a line of its own."""


def sanitary(text: str) -> bool:
    """Whether text has line ends and visible characters only."""
    allowed = "\n\u2800"
    return "\ufe0f" not in text and all(
        c in allowed or unicodedata.category(c) not in ("Cc", "Cf", "Zl", "Zp") for c in text
    )


def make_files() -> None:
    """Files in which all that has a name or a text has this one."""
    name = f"q{EVIL}"
    joints = [f"{EVIL}{k}" for k in range(2)]
    rows = np.random.default_rng(0).random((2, 6, 2))
    with h5py.File("in.h5", "w") as file:
        file["actions"], file["start/position"], file["dt"] = rows, np.zeros(2), 0.1
        file["broken"] = h5py.SoftLink(f"/gone{EVIL}")
        file["outside"] = h5py.ExternalLink(f"gone{EVIL}.h5", f"/x{EVIL}")
        file[name] = rows
        file[f"group{EVIL}/position"] = file[f"group{EVIL}/velocity"] = rows
        for values in (file["actions"], file[name], *file[f"group{EVIL}"].values()):
            values.attrs.update(joint_names=joints, units=f"rad{EVIL}", dt=0.1)
        file.attrs.update({"joint_names": joints, "source": EVIL, "mode": EVIL, f"a{EVIL}": EVIL})
    with h5py.File("demos.hdf5", "w") as file:
        for k in range(2):
            demo = file.create_group(f"data/demo_{k}{EVIL}")
            demo["actions"], demo["obs/joint_pos"] = rows[k], rows[k]
        file["data"].attrs["env_args"] = json.dumps({"env_name": EVIL, "env_kwargs": {}})
        file["mask/train"] = [f"demo_0{EVIL}".encode()]
    np.savez("in.npz", **{"actions": rows, name.replace("/", "|"): rows, "dt": 0.1})
    limits = f"joint_names = {json.dumps(joints)}\n[velocity]\nupper = [1.0, 1.0]"
    Path("limits.toml").write_text(limits)
    Path("plain.toml").write_text("[velocity]\nupper = 1.0")
    Path("evil.toml").write_text(f"{json.dumps(EVIL)} = 3")
    os.makedirs("folder/meta")
    np.save(f"folder/{name.replace('/', '|')}.npy", rows)
    Path("folder/trajcli.json").write_text(json.dumps({"attributes": {EVIL: EVIL}, "dof": joints}))
    Path("folder/meta/info.json").write_text(json.dumps({EVIL: EVIL, "codebase_version": EVIL}))
    Path(COPY).write_bytes(Path("in.h5").read_bytes())


COPY = f"copy{EVIL}.h5".replace("/", "|")
DATASET = f"in.h5:q{EVIL}"
LINES = [
    [*line, *source]
    for line in (
        ["integrate", "-o", "out.h5", "--start", "zero", "--dt", "0.1"],
        ["integrate", "-o", f"out{EVIL}.h5".replace("/", "|"), "--start", "zero"],
        ["integrate", "-o", "out.h5", "--start", f"in.h5:start{EVIL}"],
        ["integrate", "-o", "out.h5", "--start", "zero", "--dt", f"in.h5:dt{EVIL}"],
        ["integrate", "-o", "out.h5", "--start", "zero", "--dofs", EVIL, "--joints", EVIL],
        ["integrate", "-o", "out.h5", "--start", "zero", "--units", EVIL],
        ["differentiate", "-o", "out.h5", "--method", "central", "--dt", "0.1"],
        ["integrate", "-o", "out.h5", "--mode", EVIL],
        ["integrate", "-o", "out.h5", "--filter-key", EVIL],
        ["integrate", "-o", "out.h5", f"--{EVIL}"],
        ["inspect"],
        ["inspect", "--full"],
        ["inspect", "--dofs", EVIL],
        ["check"],
        ["check", "-v", "--limits", "limits.toml"],
        ["check", "--limits", "evil.toml"],
        ["check", "--velocity-of", f"q{EVIL}"],
        ["check", "--recompute"],
        ["diff", "in.h5"],
        ["diff", "-v", DATASET],
        ["plot", "-o", "fig.svg", "--title", EVIL],
        ["plot", "-o", "fig.png", "--histogram"],
        ["export", "-o", "out.csv", "--episodes", "0"],
        ["export", "-o", "out.npz"],
        ["resample", "-o", "out.h5", "--to", "20"],
        ["retime", "-o", "out.h5", "--limits", "limits.toml"],
        ["retime", "-o", "out.h5", "--limits", "plain.toml"],
        ["status"],
        ["merge"],
    )
    for source in (["in.h5"], [DATASET], [f"in.h5:no{EVIL}"], [f"in.h5:group{EVIL}"], ["in.npz"],
                   [f"in.npz:q{EVIL}"], ["folder"], [COPY], ["demos.hdf5"], [f"none{EVIL}.h5"],
                   [f"in.h5:{EVIL}[9:8]"], ["in.h5:broken"], ["in.h5:outside"])
]  # fmt: skip


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("names")
    with pytest.MonkeyPatch.context() as patched:
        patched.chdir(folder)
        make_files()
    return folder


@pytest.mark.parametrize("command", sorted({line[0] for line in LINES}))
@pytest.mark.filterwarnings("ignore:Glyph")
def test_no_name_steers_the_terminal(trajcli, files, monkeypatch, request, command):
    monkeypatch.chdir(files)
    if command == "plot":
        request.getfixturevalue("figures")
    codes = set()
    for line in (line for line in LINES if line[0] == command):
        overwrite = "-o" in line and command != "merge"
        result = trajcli(line[0], *line[1:], *["--overwrite"] * overwrite)
        shown = f"{line}\n{result.out}\n{result.err}"
        codes.add(result.code)
        assert result.code in (0, 1, 2), shown
        assert "Traceback" not in result.err, shown
        assert sanitary(result.out + result.err), repr(shown)
        assert not re.search("^error: forged", result.err, re.MULTILINE), shown
    assert codes & {0, 1} or command in ("status", "merge"), codes


def test_what_cannot_be_seen_is_written_out():
    unseen = "\x1b[31m\x07\x9b\u202e\u200f\u061c\u00ad\u034f\u200b\u2060\u2064\u180e\ufeff\ufe0f"
    unseen += "\U000e0001\U000e0041\U000e01ef"
    assert visible(f"ö{unseen}→\n") == f"ö{unseen.encode('unicode_escape').decode()}→\n"


def test_the_choices_are_what_the_rooms_below_know():
    assert set(get_args(names.ModeName)) == {*MODES, *ALIASES} - {"savgol", "smooth"}
    assert set(get_args(names.MethodName)) == {*METHODS}
    assert set(get_args(names.DtypeName)) == {*DTYPES}
    assert set(get_args(options.LayoutName)) == {*(family.name for family in FAMILIES), PLAIN}


def test_many_faults_are_ten_and_how_many_more(trajcli, folder, capfd):
    error = InputError(*(Fault("broken", where=f"file {k}") for k in range(25)))
    assert Console(as_json=True).fail(error) == 2
    printed = capfd.readouterr()
    assert printed.err.count("broken") == 10
    assert printed.err.startswith("25 errors: file 0: broken\n")
    assert printed.err.endswith("\nand 15 more, which --json lists\n")
    assert len(json.loads(printed.out)["error"]["faults"]) == 25
