"""What describes a LeRobot data set: its features and their statistics, with new ones."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from trajcli.errors import Fault, InputError
from trajcli.files.arrays import json_object
from trajcli.files.parquet_output import append_columns

INFO = Path("meta", "info.json")
_KEYS = ("min", "max", "mean", "std", "count", "q01", "q10", "q50", "q90", "q99")
"""What LeRobot keeps of every feature, where the data set does not say otherwise."""

Features = Mapping[str, Any]
"""New features by name, arrays [frames, D] of all frames."""


class Episode(NamedTuple):
    """An episode: its number, its first frame among those of all files, and how many it has."""

    number: int
    begin: int
    frames: int


def describe(
    out: Path, features: Features, episodes: Sequence[Episode], names: Sequence[str] | None
) -> None:
    """Add new features to the copied files of ``meta``: to info.json, and their statistics of all
    frames and of each episode wherever those of other features are.

    names: of the dofs. Raises InputError for files that are not as LeRobot has them.
    """
    try:
        _describe(out, features, {one.number: one for one in episodes}, names)
    except (KeyError, TypeError, AttributeError, UnicodeDecodeError) as error:
        what, expected = "not as LeRobot has it", "files of version 2.1 or 3"
        raise InputError(Fault(what, "meta", expected, repr(error))) from None


def _describe(
    out: Path, features: Features, episodes: Mapping[int, Episode], names: Sequence[str] | None
) -> None:
    info = _read(out / INFO)
    for name, values in features.items():
        about = {"dtype": str(values.dtype), "shape": [values.shape[1]], "names": names}
        info["features"][name] = about
    _write(out / INFO, info)
    whole = out / "meta" / "stats.json"
    if whole.is_file():
        document = _read(whole)
        keys = _keys_of(document.values())
        for name, values in features.items():
            dofs = [statistics(values[:, d : d + 1], keys) for d in range(values.shape[1])]
            joined = {key: [dof[key][0] for dof in dofs] for key in keys}
            document[name] = joined | ({"count": [len(values)]} if "count" in keys else {})
        _write(whole, document)
    lines = out / "meta" / "episodes_stats.jsonl"
    if lines.is_file():
        _describe_lines(lines, features, episodes)
    for path in sorted((out / "meta" / "episodes").rglob("*.parquet")):
        _describe_table(path, features, episodes)


def _describe_lines(path: Path, features: Features, episodes: Mapping[int, Episode]) -> None:
    """Of version 2.1: a line for each episode."""
    copy = path.with_suffix(".new")
    with open(path, encoding="utf-8") as source, open(copy, "x", encoding="utf-8") as target:
        for line in source:
            document = json_object(line)
            stats, keys = document["stats"], _keys_of(document["stats"].values())
            for name, values in _of_episode(features, episodes, document["episode_index"], path):
                stats[name] = statistics(values, keys)
            target.write(json.dumps(document) + "\n")
    copy.replace(path)


def _describe_table(path: Path, features: Features, episodes: Mapping[int, Episode]) -> None:
    """Of version 3: columns stats/FEATURE/KEY."""
    import pyarrow as arrow

    def columns(_: int, table: Any) -> dict[str, Any]:
        known = [name.split("/") for name in table.column_names if name.startswith("stats/")]
        keys = [key for key in _KEYS if key in {parts[-1] for parts in known}]
        found: dict[str, list[Any]] = {f"stats/{f}/{key}": [] for f in features for key in keys}
        for number in table["episode_index"].to_pylist() if keys else ():
            for name, values in _of_episode(features, episodes, number, path):
                for key, value in statistics(values, keys).items():
                    found[f"stats/{name}/{key}"].append(value)
        whole, real = arrow.list_(arrow.int64()), arrow.list_(arrow.float64())
        kinds = {name: whole if name.endswith("/count") else real for name in found}
        return {name: arrow.array(values, kinds[name]) for name, values in found.items()}

    copy = path.with_suffix(".new")
    append_columns(path, copy, columns)
    copy.replace(path)


def statistics(values: Any, keys: Sequence[str]) -> dict[str, list[Any]]:
    """Of values [n, D] by dof: least, largest, mean, standard deviation (of all, not of a sample)
    and quantiles q01 … q99, all in float64; count is [n]."""
    rows = np.asarray(values, np.float64)
    reduced: dict[str, Any] = {"min": np.min, "max": np.max, "mean": np.mean, "std": np.std}
    found: dict[str, list[Any]] = {}
    for key in keys:
        if key == "count":
            found[key] = [len(rows)]
        elif key in reduced:
            found[key] = reduced[key](rows, axis=0).tolist()
        else:
            found[key] = np.quantile(rows, int(key[1:]) / 100, axis=0).tolist()
    return found


def _keys_of(stated: Any) -> list[str]:
    """Which statistics a data set keeps."""
    there = {key for one in stated if isinstance(one, dict) for key in one}
    return [key for key in _KEYS if key in there] or list(_KEYS)


def _of_episode(
    features: Features, episodes: Mapping[int, Episode], number: int, path: Path
) -> Iterator[tuple[str, Any]]:
    if number not in episodes:
        what, expected = "an episode without frames", "the episodes of the Parquet files"
        raise InputError(Fault(what, str(path), expected, f"episode_index {number}"))
    _, begin, frames = episodes[number]
    for name, values in features.items():
        yield name, values[begin : begin + frames]


def _read(path: Path) -> dict[str, Any]:
    found = json_object(path.read_text(encoding="utf-8"))
    if not found:
        raise InputError(Fault("cannot be read", str(path), "a JSON object"))
    return found


def _write(path: Path, document: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(document, indent=4) + "\n", encoding="utf-8")
