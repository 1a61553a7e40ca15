"""Parquet tables, as pandas writes them: columns of numbers, and one that names the episode."""

from __future__ import annotations

import itertools

import h5py
import numpy as np
import pyarrow as arrow
import pytest
from pyarrow import parquet

LENGTHS = (6, 9, 7)


def table(labels: list[object]) -> tuple[arrow.Table, np.ndarray]:
    rows = np.random.default_rng(1).normal(size=(sum(LENGTHS), 3))
    columns = {
        "episode_id": np.repeat(labels, LENGTHS),
        "time": np.concatenate([0.05 * np.arange(n) for n in LENGTHS]),
        **{f"q_{k}": rows[:, k] for k in range(3)},
        "effort": rows[:, 0].astype("f4"),
    }
    return arrow.table(columns), rows


@pytest.mark.parametrize("labels", [[0, 1, 2], [5, 3, 9]])
def test_columns_of_one_prefix_are_an_array_with_episodes_as_trajectories(trajcli, folder, labels):
    made, rows = table(labels)
    parquet.write_table(made, "log.parquet", row_group_size=8)
    trajcli("differentiate log.parquet:q --method central -o out.h5", code=0)
    edges = np.cumsum([0, *LENGTHS])
    with h5py.File("out.h5") as file:
        for label, (begin, end) in zip(labels, itertools.pairwise(edges), strict=True):
            group = file[f"episode_{label}"]
            np.testing.assert_array_equal(group["position"], rows[begin:end])
            np.testing.assert_allclose(np.diff(group["time"]), 0.05, rtol=0, atol=1e-12)


def test_without_an_episode_the_file_is_one_trajectory(trajcli, folder):
    made, rows = table([0, 1, 2])
    parquet.write_table(made.drop(["episode_id", "time"]), "log.parquet")
    trajcli("integrate log.parquet:q --mode clique --start zero --dt 0.1 -o out.h5", code=0)
    with h5py.File("out.h5") as file:
        np.testing.assert_array_equal(file["position"][0, 1:], rows)
        trajcli("inspect log.parquet", code=0)


@pytest.mark.parametrize("unit", ["ms", "us", "ns"])
@pytest.mark.parametrize("name", ["timestamp", "__index_level_0__"])
def test_dates_are_the_times_of_rows(trajcli, folder, unit, name):
    since = 1_700_000_000_123_000_000 + 20_000_000 * np.arange(30) + 4_000_000 * (np.arange(30) > 5)
    dates = arrow.array(since.astype("datetime64[ns]").astype(f"datetime64[{unit}]"))
    rows = np.random.default_rng(1).normal(size=(30, 2))
    columns = {name: dates.cast(arrow.timestamp(unit, "UTC")), "q0": rows[:, 0], "q1": rows[:, 1]}
    parquet.write_table(arrow.table(columns), "log.parquet")
    trajcli("differentiate log.parquet:q --method central -o out.h5", code=0)
    with h5py.File("out.h5") as file:
        np.testing.assert_allclose(file["time"][:], (since - since[0]) * 1e-9, rtol=0, atol=3e-7)


@pytest.mark.parametrize("size", [1000, 7])
def test_nulls_are_nan_whatever_the_type_of_a_column(trajcli, folder, size):
    pandas = pytest.importorskip("pandas")
    t, holes = 0.01 * np.arange(50), np.isin(np.arange(50), (20, 33))
    waves = np.sin(t[:, None] * 3 + np.arange(3))
    counts = (1000 * waves).astype(int)
    frame = pandas.DataFrame({"time": t, "label": ["a"] * 50})
    for k in range(3):
        frame[f"q_{k}"] = np.where(holes, np.nan, waves[:, k])
        frame[f"n_{k}"] = pandas.array(np.where(holes, None, counts[:, k]), "Int32")
        frame[f"b_{k}"] = pandas.array(np.where(holes, None, counts[:, k] > 0), "boolean")
    frame["list"] = [None if hole else row.tolist() for row, hole in zip(waves, holes, strict=True)]
    frame["ints"] = [
        [None if hole else 1, *row[1:]] for row, hole in zip(counts.tolist(), holes, strict=True)
    ]
    frame.loc[5, "label"] = None
    schema = arrow.schema([*arrow.Schema.from_pandas(frame.drop(columns="ints")),
                           ("ints", arrow.list_(arrow.int64()))])  # fmt: skip
    table = arrow.Table.from_pandas(frame, schema, preserve_index=False)
    parquet.write_table(table, "log.parquet", row_group_size=size)
    frame[["time", "q_0", "q_1", "q_2"]].to_csv("log.csv", index=False)
    for path in ("log.csv", "log.parquet"):
        trajcli.refuses(f"differentiate {path}:q --method central -o no.h5", "NaN or Inf")
        line = f"differentiate {path}:q --allow-nonfinite -o {path}.h5"
        trajcli(line, code=0)
    with h5py.File("log.csv.h5") as a, h5py.File("log.parquet.h5") as b:
        np.testing.assert_array_equal(a["velocity"], b["velocity"])
    gaps = waves.copy()
    gaps[holes] = np.nan
    whole = np.where(holes[:, None], np.nan, counts)
    ints = np.c_[np.where(holes, np.nan, 1), counts[:, 1:]]
    flags = np.where(holes[:, None], np.nan, counts > 0)
    expected = {"n_0,n_1,n_2": whole, "b_0,b_1,b_2": flags, "list": gaps, "ints": ints}
    for dataset, values in expected.items():
        line = f"differentiate log.parquet:{dataset} --method backward --allow-nonfinite"
        result = trajcli(f"{line} -o out.h5 --overwrite", code=0)
        with h5py.File("out.h5") as file:
            np.testing.assert_array_equal(file["position"][0], values)
        assert ("are read as floats" in result.err) == (dataset != "list")
