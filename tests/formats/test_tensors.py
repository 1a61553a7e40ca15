"""What torch.save wrote: values are those that were saved, objects are never made."""

from __future__ import annotations

import os
import pickle
import resource
import sys
import zipfile
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch

if tuple(map(int, torch.__version__.split(".")[:2])) < (2, 6):
    pytest.skip("torch that runs what it reads", allow_module_level=True)


def tensors() -> dict[str, torch.Tensor]:
    made = torch.Generator().manual_seed(1)
    return {
        "actions": torch.randn(4, 9, 3, generator=made, dtype=torch.float64),
        "start_position": torch.randn(4, 3, generator=made),
        "dt": torch.tensor(0.05, dtype=torch.float64),
    }


def integrated(trajcli, source: str, more: str = "") -> np.ndarray:
    trajcli(f"integrate {source} {more} -o out.h5 --overwrite", code=0)
    with h5py.File("out.h5") as file:
        return file["jerk"][:], file["position"][:]


def test_tensors_are_read_as_the_arrays_of_an_npz(trajcli, folder):
    saved = tensors()
    np.savez("in.npz", **{name: one.numpy() for name, one in saved.items()})
    torch.save(saved, "in.pt")
    torch.save(saved, "old.pth", _use_new_zipfile_serialization=False)
    torch.save({"episodes": [{"actions": saved["actions"]}]}, "nested.pt")
    expected = integrated(trajcli, "in.npz")
    for source in ("in.pt", "old.pth"):
        for one, other in zip(expected, integrated(trajcli, source), strict=True):
            np.testing.assert_array_equal(one, other)
    plain = integrated(trajcli, "in.npz:actions", "--start zero --dt 1")
    nested = integrated(trajcli, "nested.pt", "--start zero --dt 1")
    np.testing.assert_array_equal(plain[1], nested[1])
    torch.save({f"demo_{k}": {"actions": saved["actions"][0]} for k in (10, 2)}, "demos.pt")
    scored = trajcli("score demos.pt --rate 20 --json").document["trajectories"]
    assert [one["trajectory"] for one in scored] == ["demo_2", "demo_10"]


class Hostile:
    def __reduce__(self):
        return (Path.touch, (Path("touched"),))


def test_pickled_objects_are_never_made(trajcli, folder):
    torch.save({"actions": Hostile()}, "in.pt")
    Path("in2.pt").write_bytes(pickle.dumps({"actions": Hostile()}))
    for name in ("in.pt", "in2.pt"):
        result = trajcli(f"integrate {name} --start zero --dt 1 -o out.h5", code=2)
        assert "Traceback" not in result.err
        assert not Path("touched").exists()
        assert f"{name}: holds other objects than tensors" in result.err
        assert "if you trust it" in result.err


def test_tensors_that_no_array_can_hold_are_refused(trajcli, folder):
    actions = tensors()["actions"]
    torch.save({"actions": actions.to_sparse(), "other": actions}, "sparse.pt")
    for command in ("integrate", "inspect", "check", "export"):
        options = {"integrate": "--rate 50 -o out.h5", "export": "-o out.csv"}.get(command, "")
        result = trajcli(f"{command} sparse.pt {options}")
        assert result.code in (0, 2), result.err
        assert "sparse.pt:actions: cannot be read" in (result.out + result.err).replace("\n", " ")
    torch.save({"actions": torch._neg_view(-actions), "dt": 0.05}, "odd.pt")
    np.savez("in.npz", actions=actions.numpy(), dt=0.05)
    expected = integrated(trajcli, "in.npz", "--start zero")
    for one, other in zip(expected, integrated(trajcli, "odd.pt", "--start zero"), strict=True):
        np.testing.assert_array_equal(one, other)


def shared() -> list[object]:
    entries: list[object] = [torch.ones(2, 3)]
    for _ in range(30):
        entries = [entries, entries]
    return entries


def nested() -> list[object]:
    entries: list[object] = []
    entries.append(entries)
    return entries


@pytest.mark.parametrize("saved", [shared, nested, lambda: torch.ones(1).expand(10**6, 10**6)])
@pytest.mark.parametrize("command", ["inspect", "integrate --start zero --dt 1 -o out.h5"])
def test_a_few_bytes_that_say_they_are_many_are_refused(trajcli, folder, saved, command):
    torch.save(saved(), "in.pt")
    assert os.path.getsize("in.pt") < 2000
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    result = trajcli(f"{command} in.pt")
    assert result.code == 2 or command == "inspect"  # which lists what it can
    assert "in.pt: cannot be read" in result.out + result.err
    assert "Traceback" not in result.err
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown < 256 << 10  # in KiB


def test_a_packed_archive_is_refused(trajcli, folder):
    torch.save(tensors(), "in.pt")
    with zipfile.ZipFile("in.pt") as plain, zipfile.ZipFile("packed.pt", "w", 8) as packed:
        for info in plain.infolist():
            packed.writestr(info.filename, plain.read(info))
    result = trajcli("integrate packed.pt -o out.h5")
    assert result.code == 2
    assert "a packed archive" in result.err


def test_torch_that_executes_what_it_reads_is_not_used(trajcli, folder, monkeypatch):
    torch.save(tensors(), "in.pt")
    for version in ("2.5.1+cpu", "1.13.0"):
        monkeypatch.setattr(torch, "__version__", version)
        result = trajcli("integrate in.pt -o out.h5")
        assert result.code == 2
        assert "torch 2.6 or later" in result.err
        assert "pip install 'torch>=2.6'" in result.err
    monkeypatch.setitem(sys.modules, "torch", None)
    trajcli("integrate in.pt -o out.h5", code=2)
