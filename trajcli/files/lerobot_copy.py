"""Copies LeRobot data sets, v2.1 and v3, with further features.

Frame files and the files that describe features are rewritten, videos and images are linked, and
all other files are copied. Nothing outside the folder of the data set is read, copied or linked.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from trajcli.errors import Fault, InputError, raise_if_any
from trajcli.files._tables import ParquetFile
from trajcli.files.catalogue import json_object
from trajcli.files.file_bytes import open_regular, read_regular
from trajcli.files.opening import Files
from trajcli.files.reading import Reading
from trajcli.files.source import Source, expand_files

_META = Path("meta")
_LINKED = ("videos", "images")
# The statistics that LeRobot stores for a feature; a data set may have fewer.
_STATISTICS: Mapping[str, Callable[[Any], Any]] = {
    "min": np.min, "max": np.max, "mean": np.mean, "std": np.std, "count": len,
    **{f"q{n:02}": partial(np.quantile, q=n / 100) for n in (1, 10, 50, 90, 99)},
}  # fmt: skip


class LeRobotCopy:
    """A copy of the LeRobot data set in a folder, to be written by :meth:`write`."""

    def __init__(self, files: Files, folder: Path) -> None:
        self.folder, self._contents = folder, list[Path]()
        # A link out of the folder would copy a file that is no part of the data set, perhaps a
        # private one, and a link to a folder might lead in circles.
        root, faults = os.path.realpath(folder), list[Fault]()
        for path in sorted(Path(root).rglob("*")):
            relative, target = path.relative_to(root), Path(os.path.realpath(path))
            if relative.parts[0].startswith("."):
                continue
            is_folder = path.is_dir() and not path.is_symlink()
            is_file = target.is_relative_to(root) and target.is_file()
            if not os.access(path, os.R_OK) or not (is_folder or is_file):
                fault = Fault(
                    "no file of the data set",
                    where=str(folder / relative),
                    expected=f"a file in {folder} that can be read",
                    found=str(target),
                    hint="cp -rL copies what links lead to",
                )
                faults.append(fault)
            elif is_file:
                self._contents.append(relative)
        raise_if_any(faults)
        self.info = _read_json(folder / _META / "info.json")
        if not isinstance(self.info.get("features"), dict):
            where = folder / _META / "info.json"
            raise InputError(
                "not a LeRobot data set", where=str(where), expected="an object called features"
            )
        self.names = set(self.info["features"])
        # the frames of episode_0, episode_1 … in the order in which trajcli reads them
        self.episodes = dict[str, slice]()
        self._starts, begin = dict[Path, int](), 0  # the first frame of each frame file
        self.features: Mapping[str, Any] = {}  # new ones by name, arrays [frames, D]
        self.dofs: Sequence[str] | None = None  # the names of the entries of new features
        for source in expand_files(Source(folder)):
            file = files.open(source.path)
            layout = files.with_reading(Reading(layout="lerobot")).layout(file)
            assert layout is not None
            self._starts[source.path.relative_to(folder)] = begin
            for name, _, first, end, *_ in layout.split.members:
                if name in self.episodes:
                    raise InputError("an episode in two files", where=str(source.path), found=name)
                self.episodes[name] = slice(begin + first, begin + (end or 0))
            begin += layout.split.rows
            self.names.update(file.children())
        # Linked files are not read, and need not be watched: a link shows later changes, too. All
        # others must not change until they are copied, or the copy would mix two states.
        copied = (path for path in self._contents if path.parts[0] not in _LINKED)
        files.sources.watch(str(folder / path) for path in copied)

    def write(self, out: Path, on_progress: Callable[[], None]) -> None:
        """Writes all files into a folder; on_progress is called before each."""
        for path in self._contents:
            on_progress()
            source, target = self.folder / path, out / path
            target.parent.mkdir(parents=True, exist_ok=True)
            try:
                if path in self._starts:
                    _extend(source, target, partial(self._frame_columns, self._starts[path]))
                elif path.parts[:2] == ("meta", "episodes") and path.suffix == ".parquet":
                    _extend(source, target, self._episode_columns)
                elif path == _META / "info.json":
                    features = dict(self.info["features"])
                    for name, values in self.features.items():
                        kind, shape = str(values.dtype), [values.shape[1]]
                        features[name] = {"dtype": kind, "shape": shape, "names": self.dofs}
                    document = {**self.info, "features": features}
                    target.write_text(json.dumps(document, indent=4) + "\n", encoding="utf-8")
                elif path == _META / "stats.json":
                    stats = _read_json(source)
                    document = stats | self._statistics(_used_statistics(stats))
                    target.write_text(json.dumps(document, indent=4) + "\n", encoding="utf-8")
                elif path == _META / "episodes_stats.jsonl":
                    with (
                        open(open_regular(source), encoding="utf-8") as text,
                        open(target, "x") as file,
                    ):
                        for document in map(json_object, text):
                            stats, number = document["stats"], document["episode_index"]
                            rows, keys = self.episodes[f"episode_{number}"], _used_statistics(stats)
                            document["stats"] = stats | self._statistics(keys, rows)
                            file.write(json.dumps(document) + "\n")
                elif path.parts[0] in _LINKED:
                    # a link costs no space, and videos are most of a data set
                    try:
                        os.link(os.path.realpath(source), target)
                    except OSError:  # on another file system
                        os.symlink(os.path.realpath(source), target)
                else:
                    with open(open_regular(source), "rb") as file, open(target, "xb") as copy:
                        shutil.copyfileobj(file, copy, 1 << 20)
            except (KeyError, TypeError, AttributeError, UnicodeError, RecursionError) as error:
                raise InputError(
                    "not in the format of LeRobot",
                    where=str(source),
                    expected="a file of version 2.1 or 3",
                    found=repr(error),
                ) from None

    def _frame_columns(self, begin: int, table: Any, first: int) -> dict[str, Any]:
        import pyarrow as arrow

        columns, rows = {}, slice(begin + first, begin + first + len(table))
        for name, values in self.features.items():
            flat, dofs = arrow.array(np.ravel(values[rows])), values.shape[1]
            columns[name] = flat if dofs == 1 else arrow.FixedSizeListArray.from_arrays(flat, dofs)
        return columns

    def _episode_columns(self, table: Any, _: int) -> dict[str, Any]:
        # version 3 has columns stats/FEATURE/KEY with a row per episode
        import pyarrow as arrow

        stored = {n.rpartition("/")[2] for n in table.column_names if n.startswith("stats/")}
        keys = [key for key in _STATISTICS if key in stored]
        numbers = table["episode_index"].to_pylist()
        stats = [self._statistics(keys, self.episodes[f"episode_{number}"]) for number in numbers]
        counts, reals = arrow.list_(arrow.int64()), arrow.list_(arrow.float64())
        return {
            f"stats/{name}/{key}": arrow.array(
                [episode[name][key] for episode in stats], counts if key == "count" else reals
            )
            for name in self.features
            for key in keys
        }

    def _statistics(self, keys: Sequence[str], rows: slice = slice(None)) -> dict[str, Any]:
        statistics: dict[str, Any] = {}
        for name, values in self.features.items():
            # one dof at a time, since a copy of all of them in float64 may not fit into memory
            dofs = [values[rows, d] for d in range(values.shape[1])]
            statistics[name] = {
                key: [float(_STATISTICS[key](dof.astype(np.float64))) for dof in dofs]
                for key in keys
            }
            # LeRobot counts the frames of a feature, not those of each dof
            if "count" in keys:
                statistics[name]["count"] = [len(dofs[0])]
        return statistics


def _extend(source: Path, target: Path, columns: Callable[[Any, int], Mapping[str, Any]]) -> None:
    """Copies a Parquet file with further columns, made for a table and its first row's number."""
    import pyarrow as arrow
    from pyarrow import parquet

    with ParquetFile(source) as file:
        reader = file.open_handle().file
        first, schema = 0, reader.schema_arrow
        # an empty table shows the types of the new columns, which a schema needs before any row
        for name, values in columns(schema.empty_table(), 0).items():
            schema = schema.append(arrow.field(name, values.type))
        with parquet.ParquetWriter(target, schema) as writer:
            for number in range(reader.num_row_groups):
                table = file.guard("", partial(reader.read_row_group, number))
                arrays = [*table.columns, *columns(table, first).values()]
                writer.write_table(arrow.Table.from_arrays(arrays, schema=schema))
                first += len(table)


def _used_statistics(stats: Mapping[str, Any]) -> list[str]:
    stored = {key for feature in stats.values() if isinstance(feature, dict) for key in feature}
    return [key for key in _STATISTICS if key in stored] or list(_STATISTICS)


def _read_json(path: Path) -> dict[str, Any]:
    document = json_object(read_regular(path, 64 << 20, "a JSON file"))
    if not document:
        raise InputError("cannot be read", where=str(path), expected="a JSON object")
    return document
