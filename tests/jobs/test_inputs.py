"""Every file that is opened for a run is its input, also where size and time are the same."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pyarrow as arrow
import pytest
from cluster.runs import OUT, QUANTITIES, run_shards
from faults.campaign import write_inputs
from pyarrow import parquet

from trajcli.errors import InputError, OutputError, Report
from trajcli.files.outputs import Output
from trajcli.jobs.request import Request
from trajcli.jobs.retime import RetimeRequest, run_retime
from trajcli.jobs.run import run
from trajcli.jobs.shards import merge

RANDOM = np.random.default_rng(0)
ACTIONS = RANDOM.standard_normal((8, 6, 2)).astype("f4")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    write_inputs(tmp_path)
    Path("set/data/chunk-000").mkdir(parents=True)
    Path("set/meta").mkdir()
    Path("set/meta/info.json").write_text('{"fps": 30, "features": {"action": {}}}')
    Path("limits.toml").write_text("[velocity]\nupper = [0.01, 0.01]\n")
    columns = {"action": ACTIONS[:3, 0].tolist(), "episode_index": [0, 0, 1]}
    parquet.write_table(arrow.table(columns), "set/data/chunk-000/file-000.parquet")
    for path in tmp_path.rglob("*"):
        os.utime(path, ns=(0, 0))
    return tmp_path


def request(source: str, **more: Any) -> Request:
    """Runs in blocks of one trajectory."""
    return replace(Request(sources=[source], out=OUT, start="zero", memory=1), **more)


def the_file_itself() -> tuple[Request, str]:
    return request("in.npy", dt="0.02"), "in.npy"


def a_start_state() -> tuple[Request, str]:
    np.save("start.npy", ACTIONS[:, 0])
    return request("in.npy", dt="0.02", start="start.npy"), "start.npy"


def what_describes_a_lerobot_data_set() -> tuple[Request, str]:
    return request("set"), "set/meta/info.json"


def what_lies_beside_a_file_of_maniskill() -> tuple[Request, str]:
    with h5py.File("trajectories.h5", "w") as file:
        for k in range(4):
            file[f"traj_{k}/actions"] = ACTIONS[k]
    facts = {"env_info": {"env_kwargs": {"control_freq": 20}}}
    Path("trajectories.json").write_text(json.dumps(facts))
    return request("trajectories.h5"), "trajectories.json"


def a_chunk_of_a_zarr_store(chunk: int = 8) -> tuple[Request, str]:
    group = pytest.importorskip("zarr").open_group("in.zarr", mode="w")
    stored = group.create_array("actions", shape=(8, 6, 2), chunks=(chunk, 6, 2), dtype="f4",
                                compressors=None)  # fmt: skip
    stored[:] = ACTIONS
    return request("in.zarr:actions", dt="0.02"), f"in.zarr/actions/c/{8 // chunk - 1}/0/0"


def a_file_that_a_link_leads_to() -> tuple[Request, str]:
    with h5py.File("linked.h5", "w") as file:
        file["actions"] = ACTIONS
    with h5py.File("links.h5", "w") as file:
        file["actions"] = h5py.ExternalLink("linked.h5", "/actions")
    return request("links.h5", dt="0.02", allow_external=True), "linked.h5"


def a_file_of_values_stored_elsewhere() -> tuple[Request, str]:
    Path("values.bin").write_bytes(ACTIONS.tobytes())
    with h5py.File("outside.h5", "w") as file:
        stored = [("values.bin", 0, ACTIONS.nbytes)]
        file.create_dataset("actions", ACTIONS.shape, "f4", external=stored)
    return request("outside.h5", dt="0.02", allow_external=True), "values.bin"


CASES = (
    the_file_itself,
    a_start_state,
    what_describes_a_lerobot_data_set,
    what_lies_beside_a_file_of_maniskill,
    a_chunk_of_a_zarr_store,
    a_file_that_a_link_leads_to,
    a_file_of_values_stored_elsewhere,
)


def change(path: str) -> None:
    """Writes other bytes with the same size and time of modification."""
    time.sleep(0.02)  # more than the clock of a file system takes to go on
    before, data = os.stat(path), Path(path).read_bytes()
    digit = data.rfind(b"0") if path.endswith(".json") else -2
    with open(path, "rb+") as file:
        file.seek(digit % len(data))
        file.write(b"1")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert Path(path).read_bytes() != data
    assert os.stat(path).st_mtime_ns == before.st_mtime_ns


@pytest.mark.parametrize("case", CASES)
def test_an_input_that_changes_during_a_run_is_an_error(case: Callable[[], Any]) -> None:
    asked, path = case()
    changed: list[str] = []

    def during(done: int, total: int) -> None:
        if not changed:
            changed.append(path)
            change(path)

    with pytest.raises(InputError, match="while it was read") as failed:
        run(asked, report=Report(during))
    assert path in [os.path.relpath(fault.where) for fault in failed.value.faults]
    assert not OUT.exists()


def test_a_chunk_that_changes_before_it_is_read_is_an_error() -> None:
    asked, path = a_chunk_of_a_zarr_store(chunk=1)
    with pytest.raises(InputError, match="while it was read"):
        run(asked, report=Report(lambda done, total: change(path) if done == 1 else None))


def test_limits_that_change_while_they_are_used_are_an_error(monkeypatch) -> None:
    run(request("in.npy", dt="0.02"))
    write = Output.write

    def during(*arguments: Any) -> None:
        change("limits.toml")
        write(*arguments)

    monkeypatch.setattr(Output, "write", during)
    with pytest.raises(InputError, match=r"limits\.toml: changed while it was read"):
        run_retime(RetimeRequest([str(OUT)], Path("paced.h5"), limits=Path("limits.toml")))


@pytest.mark.parametrize("case", CASES)
def test_parts_of_two_states_of_an_input_are_not_mixed(case: Callable[[], Any]) -> None:
    asked, path = case()
    run_shards(asked, 2, [0])
    change(path)
    with pytest.raises(OutputError, match="another state of its inputs"):
        run_shards(asked, 2, [0])
    run_shards(asked, 2, [1])
    with pytest.raises(InputError) as failed:
        merge(OUT)
    (fault,) = failed.value.faults
    assert fault.where == str(QUANTITIES / "00000-of-00002.h5")
    assert fault.expected.startswith(f"{path}: ")
    run_shards(replace(asked, overwrite=True), 2, [0])  # as the hint says
    assert "--overwrite" in fault.hint
    merge(OUT)
    OUT.rename("merged.h5")
    run(asked)
    assert Path("merged.h5").read_bytes() == OUT.read_bytes()


def test_a_copy_of_an_input_is_the_same_input() -> None:
    """The parts are written as on another node."""
    asked, path = the_file_itself()
    run_shards(asked, 2, [0])
    shutil.copy2(path, "copy.npy")
    os.replace("copy.npy", path)
    part = QUANTITIES / "00000-of-00002.h5"
    before = part.stat().st_ino
    run_shards(asked, 2)
    assert part.stat().st_ino == before
    merge(OUT)


def test_a_part_lists_the_files_that_it_opened() -> None:
    for k in range(4):
        np.save(f"in_{k}.npy", ACTIONS)
    run_shards(request("in_*.npy", dt="0.02", start="zero"), 2, [1])
    with h5py.File(QUANTITIES / "00001-of-00002.h5") as file:
        listed = [json.loads(text) for text in file["inputs"].asstr()[:]]
    status = os.stat("in_2.npy")
    assert [name for name, _ in listed] == ["in_2.npy", "in_3.npy"]
    assert listed[0][1].startswith(f"{status.st_size} bytes, modified at {status.st_mtime_ns} ns, ")


def test_a_request_does_not_state_that_links_are_trusted(folder):
    trusting = request("links.h5", dt="0.02", allow_external=True)
    assert trusting.to_json() == request("links.h5", dt="0.02").to_json()
    stated = trusting.to_json().replace("{", '{"allow_external": true, ', 1)
    with pytest.raises(ValueError, match="not a request"):
        Request.from_json(stated, Path())


def test_a_stored_start_searches_no_folder(folder):
    stated = request("in.npy", dt="0.02", start="*.npz:q").to_json()
    with pytest.raises(ValueError, match="a pattern"):
        Request.from_json(stated, Path())
