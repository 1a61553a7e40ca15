"""Zarr stores, written by zarr: replay buffers of diffusion policies, plain arrays."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest

zarr = pytest.importorskip("zarr")

ENDS = [7, 19, 24]


def replay(path: str, version: int, zipped: bool = False, **more: object) -> np.ndarray:
    """A replay buffer of three episodes; returns its actions [24, 5]."""
    actions = np.random.default_rng(1).normal(size=(24, 5)).astype("f4")
    store = zarr.storage.ZipStore(path, mode="w") if zipped else path
    root = zarr.open_group(store, mode="w", zarr_format=version)
    root.create_array("data/action", data=actions, chunks=(10, 5), **more)
    root.create_array("data/state", data=2 * actions, chunks=(10, 5))
    root.create_array("meta/episode_ends", data=np.array(ENDS))
    if zipped:
        store.close()
    return actions


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("name", ["replay.zarr", "replay.zarr.zip"])
def test_every_episode_of_a_replay_buffer_is_a_trajectory(trajcli, folder, version, name):
    actions = replay(name, version, name.endswith("zip"))
    for source, factor in ((name, 1), (f"{name}:data/state", 2)):
        line = f"integrate {source} --mode clique --start zero --dt 0.1 -o out.h5"
        trajcli(f"{line} --overwrite", code=0)
        with h5py.File("out.h5") as file:
            for k, (begin, end) in enumerate(zip([0, *ENDS], ENDS, strict=False)):
                rows = file[f"episode_{k}/position"][1:]
                np.testing.assert_array_equal(rows, factor * actions[begin:end])


def test_plain_arrays_and_groups_are_read_as_in_hdf5(trajcli, folder):
    values = np.random.default_rng(2).normal(size=(4, 9, 3))
    zarr.create_array("one.zarr", data=values, chunks=(1, 9, 3))
    group = zarr.open_group("group.zarr", mode="w")
    group.create_array("actions", data=values, shards=(4, 9, 3), chunks=(2, 9, 3))
    group.attrs["dt"] = 0.05
    trajcli("integrate one.zarr --start zero --dt 0.05 -o one.h5", code=0)
    trajcli("integrate group.zarr --start zero -o group.h5", code=0)
    trajcli("diff one.h5 group.h5", code=0)


def test_objects_in_a_store_are_never_made(trajcli, folder):
    replay("replay.zarr", 2)
    about = Path("replay.zarr/data/action/.zarray")
    table = json.loads(about.read_text())
    table["filters"] = [{"id": "pickle", "protocol": 5}]
    about.write_text(json.dumps(table))
    trajcli.refuses("integrate replay.zarr --start zero --dt 0.1 -o out.h5")


def test_a_chunk_that_unpacks_to_more_than_the_memory_is_refused(trajcli, folder):
    zarr.create_array("big.zarr", shape=(1, 30_000, 1000), chunks=(1, 30_000, 1000), dtype="f4")
    line = "integrate big.zarr --start zero --dt 0.1 -o out.h5 TRAJCLI_MEMORY=64MiB"
    trajcli.refuses(line, "too large")


@pytest.mark.parametrize("name", ["actions/c/0/0/0", "actions/zarr.json", "zarr.json"])
def test_a_pipe_in_a_store_is_not_waited_for(folder, name):
    zarr.open_group("pipe.zarr", mode="w").create_array("actions", data=np.ones((4, 10, 3)))
    Path("pipe.zarr", name).unlink()
    os.mkfifo(Path("pipe.zarr", name))
    line = [sys.executable, "-m", "trajcli", "inspect", "pipe.zarr"]
    result = subprocess.run(line, capture_output=True, text=True, timeout=60, check=False)
    assert result.returncode == 2, result.stdout
    assert result.stderr.startswith("error: pipe.zarr"), result.stderr


@pytest.mark.parametrize("command", ["export", "plot", "check", "score", "inspect", "integrate"])
def test_rows_outside_of_episodes_are_left_out_with_a_note(trajcli, folder, command):
    replay("replay.zarr", 3)
    zarr.open_group("replay.zarr")["meta/episode_ends"][:] = np.array([7, 19, 22])
    more = {"export": "-o out.csv", "plot": "-o out.svg", "score": "--dt 0.1",
            "integrate": "--mode clique --start zero --dt 0.1 -o out.h5"}  # fmt: skip
    result = trajcli(f"{command} replay.zarr {more.get(command, '')}", code=0)
    assert "rows 22 to 23 of data/action are of no episode" in result.out + result.err
