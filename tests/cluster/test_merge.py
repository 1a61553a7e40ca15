"""Merging joins the parts of a run into one output, and finds what is missing or damaged."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from typing import Any

import h5py
import numpy as np
import pytest
from cluster.runs import OUT, QUANTITIES, many_files, run_shards, write_parts

from trajcli.errors import InputError
from trajcli.jobs.request import Request
from trajcli.jobs.shards import merge


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trajcli.jobs.shards.MERGED_BYTES", 2000)


def test_out_and_its_folder_of_parts_give_an_output_without_a_shard():
    write_parts(3)
    merge(OUT)
    with h5py.File(OUT) as file:
        assert "shard" not in file.attrs
    first = OUT.read_bytes()
    merge(QUANTITIES, overwrite=True)
    assert OUT.read_bytes() == first


def test_missing_parts_are_named():
    write_parts(9, (0, 1, 3, 7, 8))
    with pytest.raises(InputError, match=r"2,4-6 missing(.|\n)*trajcli status out\.h5"):
        merge(OUT)
    assert not OUT.exists()


def test_merging_parts_of_two_commands_is_refused_and_names_the_difference():
    write_parts(3)
    write_parts(3, [1], dt="0.05")
    with pytest.raises(InputError, match=r"00001-of-00003\.h5(.|\n)*dt 0\.05 there, 0\.02 here"):
        merge(OUT)


def test_parts_of_different_numbers_of_shards_are_not_merged():
    write_parts(4, [1])
    QUANTITIES.rename("others")
    write_parts(3)
    shutil.move("others/00001-of-00004.h5", QUANTITIES)
    with pytest.raises(InputError, match="3 shards and 4 shards"):
        merge(OUT)


def test_files_of_other_dofs_in_another_shard_are_an_input_error():
    request = many_files()
    with h5py.File("in_8.h5", "r+") as file:
        del file["actions"], file["start/position"]
        file["actions"], file["start/position"] = np.zeros((7, 20, 3)), np.zeros(3)
    run_shards(request, 9)
    with pytest.raises(InputError, match=r"00008-of-00009\.h5:/\w+: a part of another run"):
        merge(OUT)
    assert os.path.exists(QUANTITIES)
    assert not OUT.exists()


def test_parts_of_other_types_are_pointed_out():
    request = many_files()
    assert not merge_of(request)["notes"]
    with h5py.File("in_8.h5", "r+") as file:
        values = file["actions"][()].astype("f4")
        del file["actions"]
        file["actions"] = values
    (note,) = merge_of(request)["notes"]
    assert "parts of float32 and float64" in note
    assert not merge_of(replace(request, dtype="float64"))["notes"]


def merge_of(request: Request) -> dict[str, Any]:
    """Writes nine shards anew and merges them; returns the report."""
    shutil.rmtree(QUANTITIES, ignore_errors=True)
    run_shards(replace(request, overwrite=True), 9)
    return merge(OUT, overwrite=True)


@pytest.mark.parametrize("share", [0.0, 0.02, 0.5, 0.99])
def test_a_part_that_is_cut_off_is_named_and_written_again(trajcli, share):
    write_parts(2)
    merge(OUT)
    whole, path = OUT.read_bytes(), QUANTITIES / "00000-of-00002.h5"
    path.write_bytes(path.read_bytes()[: int(share * path.stat().st_size)])
    with pytest.raises(InputError, match=r"00000-of-00002\.h5(.|\n)*run this shard again"):
        merge(OUT, overwrite=True)
    status = trajcli("status out.h5", code=1)
    assert "00000-of-00002.h5: " in status.out
    assert status.out.endswith("--array=0\n")
    assert OUT.read_bytes() == whole
    write_parts(2)
    merge(OUT, overwrite=True)
    assert OUT.read_bytes() == whole
