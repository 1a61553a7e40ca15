"""Disks, limits, names and other programs that are not as one would wish."""

from __future__ import annotations

import errno
import fcntl
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from faults.campaign import contents, hidden
from faults.together import TESTS, together

from trajcli import system
from trajcli.errors import BusyError, InputError, OutputError, Report
from trajcli.files.atomic_output import new_file
from trajcli.files.outputs import Output
from trajcli.jobs.request import Request
from trajcli.jobs.resample import ResampleRequest, run_resample
from trajcli.jobs.run import run

RUN = "integrate in.npy --start zero --dt 0.02"
OUTPUTS = ("old.h5", "out.npz")
DISKS = {"full": "size=20k", "inodes": "nr_inodes=4", "read-only": "size=1m"}


def test_a_full_or_read_only_disk_exits_2_and_leaves_nothing(folder):
    """In mounts of their own, which take a user namespace."""
    np.save("in.npy", np.ones((40, 20, 7), "f4"))
    script = ""
    for disk, options in DISKS.items():
        os.mkdir(disk)
        script += f"mount -t tmpfs -o {options} tmpfs {disk} && echo old > {disk}/old.h5 && "
    lines = [f"{RUN} --overwrite --quiet -o {disk}/{out}" for disk in DISKS for out in OUTPUTS]
    code = f"from trajcli.cli import main; print(*[main(line.split()) for line in {lines}])"
    script += f"mount -o remount,ro read-only && {sys.executable} -c {shlex.quote(code)} && "
    script += "ls -A */ && cat */old.h5"
    unshare = shutil.which("unshare") or "unshare"
    mounts = [unshare, "-rm", "mount", "-t", "tmpfs", "tmpfs", "full"]
    if subprocess.run(mounts, capture_output=True).returncode:
        pytest.skip("no user namespaces")
    environ = {**os.environ, "PYTHONPATH": str(TESTS.parent)}
    words = [unshare, "-rm", "sh", "-c", script]
    done = subprocess.run(words, capture_output=True, text=True, env=environ)
    assert done.returncode == 0, done.stderr
    listed = [word for disk in sorted(DISKS) for word in (f"{disk}/:", "old.h5")]
    assert done.stdout.split() == [*["2"] * len(lines), *listed, *["old"] * len(DISKS)]
    assert done.stderr.count("error: ") == len(lines)
    assert "a bug" not in done.stderr


@pytest.mark.parametrize("out", ["out.h5", "out.npz"])
def test_limits_of_descriptors_and_file_sizes_exit_2_and_leave_nothing(folder, out):
    limits = [{"NOFILE": n} for n in range(4, 24, 2)] + [{"FSIZE": n} for n in (0, 100, 3000)]
    lines = [f"{RUN} -o {k}{out}" for k in range(len(limits))]
    ends = together(*lines, f"{RUN} -o whole{out}", limits=[*limits, {}])
    whole = contents(Path(f"whole{out}"))
    for k, end in enumerate(ends):
        assert end.code in (0, 2), end
        assert "a bug" not in end.error
        assert contents(Path(f"{k}{out}")) == (whole if end.code == 0 and k < len(limits) else None)
    assert {end.code for end in ends[:-1]} == {0, 2}
    assert not hidden(folder)


def test_closed_standard_streams_do_not_get_into_the_output(folder):
    environ = {**os.environ, "PYTHONPATH": str(TESTS.parent)}
    command = f"{sys.executable} -m trajcli {RUN} -o out.h5 <&- >&- 2>&-"
    subprocess.run(command, shell=True, env=environ)
    together(f"{RUN} -o whole.h5")
    assert Path("out.h5").read_bytes() == Path("whole.h5").read_bytes()
    assert not hidden(folder)


def test_file_names_may_hold_any_bytes_and_be_long(folder):
    names = ["out.h5", "a\nb.h5", "🤖.h5", os.fsdecode(b"\xff\xfe.h5"), "-o.h5",
             "x" * 252 + ".h5", "%s %d.h5"]  # fmt: skip
    ends = together(*([*RUN.split(), "-o", f"./{name}"] for name in names))
    for name, end in zip(names, ends, strict=True):
        assert end.code == 0, (name, end.error)
        assert Path(name).read_bytes() == Path("out.h5").read_bytes()
    assert not hidden(folder)


@pytest.mark.parametrize("lacking", [(), ("_renameat2",), ("_renameat2", "link")])
def test_a_file_that_appears_during_a_run_is_not_replaced(folder, monkeypatch, lacking):
    def refuse(*_: object) -> int:
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    if "_renameat2" in lacking:
        monkeypatch.setattr(system, "_renameat2", lambda *_: errno.EINVAL)
    if "link" in lacking:
        monkeypatch.setattr(os, "link", refuse)

    def appear(done: int, total: int) -> None:
        Path("out.h5").write_bytes(b"precious")

    request = Request(sources=["in.npy"], out=Path("out.h5"), dt="0.02", start="zero")
    with pytest.raises(OutputError) as refused:
        run(request, report=Report(appear))
    assert [(fault.what, fault.where) for fault in refused.value.faults] == [
        ("already exists", "out.h5")
    ]
    assert Path("out.h5").read_bytes() == b"precious"
    run(replace(request, overwrite=True), report=Report(appear))
    run(replace(request, out=Path("other.h5")))
    assert Path("out.h5").read_bytes() == Path("other.h5").read_bytes()
    assert os.stat("other.h5").st_nlink == 1
    assert not hidden(folder)


@contextmanager
def another_user(folder: Path) -> Iterator[None]:
    """What nobody does in a folder that all may write to, where the tests are those of root."""
    if os.geteuid():
        yield
        return
    folder.chmod(0o777)
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.mark.parametrize("state", ["left", "held", "unreadable"])
def test_a_lock_of_another_user_counts_only_while_it_is_held(folder, state):
    """That user's umask lets others read it, or not even that."""
    lock = Path(".out.h5.trajcli-lock")
    lock.touch()
    with open(lock) as other:
        lock.chmod(0o000 if state == "unreadable" else 0o444)
        if state == "held":
            fcntl.flock(other, fcntl.LOCK_EX)
        with another_user(folder):
            if state == "left":
                with new_file(Path("out.h5"), overwrite=False) as hidden_file:
                    hidden_file.write_bytes(b"new")
            else:
                with pytest.raises(OutputError) as refused, new_file(Path("out.h5"), False):
                    pass
                (fault,) = refused.value.faults
                assert isinstance(refused.value, BusyError) == (state == "held")
                assert (f"rm {lock}" in fault.hint) == (state == "unreadable")
    assert Path("out.h5").exists() == (state == "left")
    assert lock.exists() != (state == "left")


def test_a_source_that_changes_while_it_is_resampled_is_reported(folder, monkeypatch):
    write = Output.write

    def touch(*arguments: Any) -> None:
        os.utime("in.npy")
        write(*arguments)

    monkeypatch.setattr(Output, "write", touch)
    with pytest.raises(InputError, match=r"in\.npy: changed while it was read"):
        run_resample(ResampleRequest(sources=["in.npy"], out=Path("out.h5"), dt="0.02", to=90.0))
    assert not list(folder.glob("*out.h5*"))


def test_a_folder_that_others_may_write_to_holds_nothing_of_theirs(folder):
    """What somebody laid at hidden names in a folder like /tmp is not written to or adopted."""
    victim = folder / "victim"
    victim.write_text("precious")
    for name in ("lock", "01234567", "part"):
        os.link(victim, f".out.h5.trajcli-{name}")
    (end,) = together(f"{RUN} -o out.h5")
    assert end.code == 0, end.error
    assert victim.read_text() == "precious"
    status = os.stat("out.h5")
    assert status.st_nlink == 1
    assert status.st_uid == os.geteuid()
    before = os.umask(0o022)
    os.umask(before)
    assert status.st_mode & 0o777 == 0o666 & ~before


def test_memory_that_is_short_is_exit_2(folder):
    """The limit is that on the address space."""
    np.save("in.npy", np.ones((1, 600_000, 2), "f4"))  # one trajectory is computed as a whole
    limits = [{"AS": more * 10**6} for more in (5, 20, 100)]
    lines = [f"{RUN} -o out{k}.h5" for k in range(len(limits))]
    # in a process of their own: that of the tests has memory to spare from other tests
    ends = together(*lines, limits=limits, TRAJCLI_THREADS="2")
    assert {end.code for end in ends} == {0, 2}, ends
    assert "a bug" not in str(ends)
    assert not hidden(folder)


def test_what_cannot_be_removed_afterwards_is_a_note(folder, monkeypatch):
    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    request = Request(sources=["in.npy"], out=Path("out.h5"), dt="0.02", start="zero")
    with monkeypatch.context() as patch:
        patch.setattr(os, "rmdir", refuse)
        (note,) = run(request)["notes"]
    assert ".out.h5.trajcli-" in note
    assert "could not be removed" in note
    assert together(f"{RUN} -o whole.h5", f"{RUN} -o out.h5 --overwrite")[1].code == 0
    assert Path("out.h5").read_bytes() == Path("whole.h5").read_bytes()
    assert not hidden(folder)
