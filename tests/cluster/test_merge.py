"""Merging joins the parts of a run into one output, and finds what is missing or damaged."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from cluster.runs import BATCH, OUT, PARTS, demonstrations, many_files, run_shards, write_parts

from trajcli.errors import InputError, UsageError
from trajcli.jobs.merge import merge
from trajcli.jobs.request import Request
from trajcli.jobs.run import run


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("trajcli.jobs.merge._BLOCK_BYTES", 2000)


def test_a_merged_output_says_nothing_of_its_parts():
    write_parts(3)
    merge(OUT)
    with h5py.File(OUT) as file:
        assert not {"shard", "fingerprint"} & set(file.attrs)


def test_out_and_its_folder_of_parts_mean_the_same():
    write_parts(2)
    merge(OUT)
    first = OUT.read_bytes()
    merge(PARTS, overwrite=True)
    assert OUT.read_bytes() == first


def test_a_virtual_output_refers_to_the_parts_and_never_reads_zeros():
    write_parts(3)
    merge(OUT)
    with h5py.File(OUT) as file:
        expected, time = file["position"][()], file["time"][()]
    merge(OUT, virtual=True, overwrite=True)
    os.mkdir("elsewhere")
    shutil.move(OUT, "elsewhere")
    shutil.move(PARTS, "elsewhere")
    (Path("elsewhere") / PARTS / "00001-of-00003.h5").unlink()
    expected[BATCH // 3 : 2 * BATCH // 3] = np.nan
    with h5py.File("elsewhere/out.h5") as file:
        assert file["position"].is_virtual
        np.testing.assert_array_equal(file["position"], expected)
        np.testing.assert_array_equal(file["time"], time)
        assert [axis[0].name for axis in file["velocity"].dims] == ["/trajectory", "/time", "/dof"]


@pytest.mark.parametrize("make", [demonstrations, lambda: many_files(out=Path("out.npz"))])
def test_what_cannot_be_virtual_is_refused(make):
    request = make()
    run_shards(request, 2)
    with pytest.raises(UsageError, match="cannot be virtual"):
        merge(request.out, virtual=True)


def test_padded_parts_that_are_compressed_become_one_padded_array():
    """No shard knows that another one has trajectories of another length."""
    run_shards(many_files(rows=3, pack=True, compress=1), 9)
    merge(OUT)
    run(many_files(rows=3, pack=True, out=Path("whole.h5")))
    with h5py.File(OUT) as file, h5py.File("whole.h5") as whole:
        for name in ("position", "lengths"):
            np.testing.assert_array_equal(file[name], whole[name])


def test_missing_parts_are_named():
    write_parts(9, (0, 1, 3, 7, 8))
    with pytest.raises(InputError, match=r"2,4-6 missing(.|\n)*trajcli status out\.h5"):
        merge(OUT)
    assert not OUT.exists()


def test_parts_of_two_commands_are_not_merged_and_the_difference_is_named():
    write_parts(3)
    write_parts(3, [1], dt="0.05")
    with pytest.raises(InputError, match=r"00001-of-00003\.h5(.|\n)*dt 0\.05 there, 0\.02 here"):
        merge(OUT)


def test_parts_of_different_numbers_of_shards_are_not_merged():
    write_parts(4, [1])
    PARTS.rename("others")
    write_parts(3)
    shutil.move("others/00001-of-00004.h5", PARTS)
    with pytest.raises(InputError, match="3 shards and 4 shards"):
        merge(OUT)


def test_files_of_other_dofs_in_another_shard_are_an_input_error():
    request = many_files()
    with h5py.File("in_8.h5", "r+") as file:
        del file["actions"], file["start/position"]
        file["actions"], file["start/position"] = np.zeros((7, 20, 3)), np.zeros(3)
    run_shards(request, 9)
    with pytest.raises(InputError, match=r"00008-of-00009\.h5:/\w+: a part that does not go"):
        merge(OUT)
    assert os.path.exists(PARTS)
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
    """The report of a merge of nine shards, written anew."""
    shutil.rmtree(PARTS, ignore_errors=True)
    run_shards(replace(request, overwrite=True), 9)
    return merge(OUT, overwrite=True)


@pytest.mark.parametrize("share", [0.0, 0.02, 0.5, 0.99])
def test_a_part_that_is_cut_off_is_named_and_written_again(trajcli, share):
    write_parts(2)
    merge(OUT)
    whole, path = OUT.read_bytes(), PARTS / "00000-of-00002.h5"
    path.write_bytes(path.read_bytes()[: int(share * path.stat().st_size)])
    with pytest.raises(InputError, match=r"00000-of-00002\.h5(.|\n)*run this shard again"):
        merge(OUT, overwrite=True)
    status = trajcli("status out.h5")
    assert status.code == 1
    assert "00000-of-00002.h5: " in status.out
    assert status.out.endswith("--array=0\n")
    assert OUT.read_bytes() == whole
    write_parts(2)
    merge(OUT, overwrite=True)
    assert OUT.read_bytes() == whole
