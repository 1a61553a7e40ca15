"""Arrays and columns with names that mean something else: to outputs, to files, to tables."""

from __future__ import annotations

import itertools

import h5py
import numpy as np
import pytest

NAMES = (
    "..", ".", "/", "../../evil", "",
    "a\0b", "a/b", "\x1b[31m", "\ud800", "x" * 300, " ", "*", "a:b", "a@b", "a\nb",
    "-x", "~", "[0]", "dt", "time", "times", "timestamp", "t", "dof", "row", "step", "point",
    "trajectory", "episode_index", "index", "lengths", "mask", "joint_names", "start_position",
    "position", "fps", "NAME", "request", "trajcli.json", "zarr.json", "c.0.0.0", "__x", "dt.npy",
)  # fmt: skip
ROWS = np.random.default_rng(0).normal(size=(6, 20, 3)).astype("f4")
OUTS = ("out.h5", "out.npz")


def hdf5(name: str) -> str:
    with h5py.File("in.h5", "w") as file:
        file.create_dataset(name, data=ROWS)
    return "in.h5"


def npz(name: str) -> str:
    np.savez("in.npz", **{name: ROWS})
    return "in.npz"


def csv(name: str) -> str:
    quoted = '"' + name.replace('"', '""') + '{}"'
    heading = ",".join(["t", *map(quoted.format, (0, 1, ""))])
    text = "".join(f"{k * 0.02},{a},{b},{c}\n" for k, (a, b, c) in enumerate(ROWS[0]))
    with open("in.csv", "w", encoding="utf-8", errors="surrogateescape") as file:
        file.write(f"{heading}\n{text}")
    return "in.csv"


def parquet(name: str) -> str:
    arrow, writer = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    columns = {f"{name}_0": ROWS[0, :, 0], f"{name}_1": ROWS[0, :, 1], "b": list(ROWS[0])}
    writer.write_table(arrow.table({**columns, "episode": [name] * 20}), "in.parquet")
    return "in.parquet"


def tensors(name: str) -> str:
    torch = pytest.importorskip("torch", "2.6")
    torch.save({name: torch.from_numpy(ROWS), "dt": 0.05}, "in.pt")
    return "in.pt"


KINDS = (hdf5, npz, csv, parquet, tensors)
LINES = (
    "export {}",
    "resample {} --dt 0.02 --to 100",
    "integrate {} --mode clique --start zero --dt 1",
)


@pytest.mark.parametrize("name", NAMES)
def test_a_dataset_of_any_name_can_be_read_again(trajcli, folder, name):
    turn = NAMES.index(name)
    outs = itertools.cycle(OUTS[turn % len(OUTS) :] + OUTS)
    lines = itertools.cycle(LINES[turn % len(LINES) :] + LINES[: turn % len(LINES)])
    for make in (KINDS + KINDS)[turn % len(KINDS) :][:2]:
        try:
            path = make(name)
        except (OSError, ValueError, TypeError, UnicodeError):  # a writer that refuses it
            continue
        assert trajcli(f"inspect {path}").code in (0, 2)
        for _ in range(2 if make is hdf5 else 1):
            line, out = next(lines).format(path), next(outs)
            result = trajcli(f"{line} -o {out} --overwrite")
            assert result.code in (0, 2), (line, result.err)
            assert result.code or trajcli(f"inspect {out}").code == 0, line
    assert not [path for place in (folder, *folder.parents[:2]) for path in place.glob("*evil*")]
