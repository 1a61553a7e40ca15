"""An input that another program cuts short during a run is an error, and OUT is as it was."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hostile.runner import Ended, run_all

from trajcli.cli import main
from trajcli.errors import Report, TrajcliError
from trajcli.files.file_bytes import FileBytes
from trajcli.jobs.request import Request
from trajcli.jobs.run import run
from trajcli.kernels import native

pytestmark = pytest.mark.skipif(bool(native.absence()), reason=native.absence())


def fork(work: Callable[[Any], int], folder: Path) -> Ended:
    """Runs a job in a process of its own, which reading a mapped page that is gone would end."""

    def write_and_work(job: None) -> int:
        for name in ("motion", "other"):
            np.save(f"{name}.npy", np.ones((1000, 300, 2), "f4"))
        return work(job)

    (end,) = run_all([None], write_and_work, folder)
    assert end.code == 2, end
    assert sorted(path.name for path in end.folder.iterdir()) == ["motion.npy", "other.npy"]
    return end


@pytest.mark.parametrize(
    ("left", "backend", "mode"),
    [
        (5000, "native", "jerk"),
        (128 + 1000 * 300 * 8 - 9, "native", "central"),
        (4096 * 300 + 7, "torch", "jerk"),
    ],
)
def test_a_file_that_is_cut_short_is_reported(tmp_path, left, backend, mode):
    def work(_: None) -> int:
        options = {"start": "zero", "dt": "1", "backend": backend, "mode": mode, "memory": 1 << 20}
        request = Request(sources=["motion.npy"], out=Path("out.h5"), **options)
        try:
            run(request, report=Report(lambda done, total: os.truncate("motion.npy", left)))
        except TrajcliError as error:
            print(error)
            return error.exit_code
        return 0

    text = fork(work, tmp_path).text
    assert "motion.npy: became shorter while it was read" in text
    assert str(left) in text


CHANGES = {
    "became shorter": lambda: os.truncate("motion.npy", 5000),
    "changed": lambda: os.utime("motion.npy", (1, 1)),
}
COMMANDS = (
    "check motion.npy:",
    "score motion.npy: --rate 50",
    "inspect motion.npy: --full",
    "diff motion.npy other.npy",
    "export motion.npy: -o out.h5",
)


@pytest.mark.parametrize(
    ("line", "change"), [(line, [*CHANGES][k % 2]) for k, line in enumerate(COMMANDS)]
)
def test_a_file_that_changes_while_it_is_looked_at_is_reported(tmp_path, line, change):
    read = FileBytes.read_rows

    def read_and_change(*arguments: Any) -> Any:
        values = read(*arguments)
        CHANGES[change]()
        return values

    def work(_: None) -> int:
        FileBytes.read_rows = read_and_change
        return main(line.split())

    assert f"motion.npy: {change} while it was read" in fork(work, tmp_path).text
