"""All commands compute and write by one loop."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from trajcli.cli import main
from trajcli.cli.console import Progress
from trajcli.errors import Note, Report, UsageError
from trajcli.files.outputs import Description, Span
from trajcli.jobs.job import Job, write_blocks
from trajcli.kernels.cuda import DeviceOutOfMemory

COUNT = 3
COMMANDS = (
    "integrate in.npy --dt 0.02 --start zero -o new.h5",
    "differentiate in.npy --dt 0.02 -o new.h5",
    "resample in.npy --dt 0.02 --to 90 -o new.h5",
    "retime out.h5 --limits limits.toml -o new.h5",
    "fit in.npy --dt 0.02 --knots 7 -o new.h5",
    "export out.h5 -o new.h5",
    "export out.h5 -o new.csv",
    "export out.h5 -o new.parquet",
    "merge shards.h5",
    "check out.h5 --recompute",
)


@pytest.mark.parametrize("line", COMMANDS)
def test_a_command_shows_progress_up_to_the_last_trajectory(tmp_path, monkeypatch, line):
    if "parquet" in line:
        pytest.importorskip("pyarrow")
    monkeypatch.chdir(tmp_path)
    np.save("in.npy", np.random.default_rng(0).standard_normal((COUNT, 30, 2)))
    Path("limits.toml").write_text("[velocity]\nupper = 1e3\n")
    made = "integrate in.npy --dt 0.02 --start zero --quiet -o"
    assert main([*made.split(), "out.h5"]) == 0
    for shard in ("0/2", "1/2"):
        assert main([*made.split(), "shards.h5", "--shard", shard]) == 0
    seen: list[tuple[float, int]] = []
    monkeypatch.setattr(Progress, "__call__", lambda _, done, total: seen.append((done, total)))
    assert main(line.split()) == 0
    assert sorted(seen) == seen
    assert seen[-1] == (COUNT, COUNT)


def blocks_written(room: int, *blocks: tuple[int, int]) -> tuple[list[range], Report]:
    """Runs a job where a device has room for so many trajectories; returns the blocks written."""
    written, report = list[range](), Report()

    def compute(block: Span) -> Any:
        if len(block) > room:
            raise DeviceOutOfMemory("3 bytes free")
        return [(0, {})]

    description = Description({"trajectory": sum(end - begin for begin, end in blocks)}, (), {})
    spans = [Span(begin=begin, end=end) for begin, end in blocks]
    job = Job(Path("out.h5"), description, spans, compute, device="cuda:0")
    write_blocks(job, lambda span, *_: written.append(range(span.begin, span.end)), report)
    return written, report


@pytest.mark.parametrize("room", [1, 2, 3, 6, 7])
def test_halved_blocks_write_every_trajectory_once(room):
    written, report = blocks_written(room, (0, 7), (7, 14), (14, 15))
    assert [number for block in written for number in block] == list(range(15))
    assert max(map(len, written)) <= room
    assert report.notes == ([] if room == 7 else ["blocks were halved: memory on cuda:0 was short"])
    assert all(isinstance(note, Note) for note in report.notes)


def test_no_room_for_a_single_trajectory_is_an_error():
    with pytest.raises(UsageError, match="no room for the smallest block"):
        blocks_written(0, (0, 4))


def test_a_report_has_each_note_once_and_raises_faults_together():
    report = Report()
    report.add_notes("a", "b", "a")
    report.add_notes("b", "c")
    with suppress(UsageError), report.attempt():
        report.add_notes("c", "d")
        raise UsageError("of what is tried")
    assert report.notes == ["a", "b", "c"]
    report.add_notes("d")
    assert report.notes.pop() == "d"
    for place in ("x", "y", "y", "z"):
        with report.faults():
            raise UsageError("of one kind", where=place)
    with report.faults():
        raise UsageError("of another", where="x")
    with pytest.raises(ValueError, match="of one kind") as raised:
        report.raise_faults()
    assert [fault.where for fault in raised.value.faults] == ["x and 2 more", "x"]
    report.raise_faults()  # they were raised, and are not raised again
