"""LeRobot data sets, 2.1 and 3, with what was computed as further features of every frame.

The values first go to one file for each feature, frame by frame in the order of the data set; the
Parquet files are then copied, a row group at a time, with these columns behind the others. Frame k
of an episode has row k of its trajectory: the state at the time stamp of the frame. A state after
the last action has no frame.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from trajcli.files.atomic_output import reserve
from trajcli.files.lerobot_meta import Episode, describe
from trajcli.files.outputs import Output
from trajcli.files.parquet_output import append_columns
from trajcli.files.refusals import MADE
from trajcli.files.schema import Schema, Variable, plain_value

PREFIX = "trajcli."
"""What the names of the new features begin with: trajcli.velocity."""
_LINKED = ("videos", "images")


class DataSet(NamedTuple):
    """A data set in a folder: its Parquet files, each with how many frames it has, and its
    episodes in the order of the trajectories."""

    root: Path
    files: Sequence[tuple[Path, int]]
    episodes: Sequence[Episode]


class LeRobotOutput(Output):
    """A folder with the files of the data set: Parquet and what describes it anew, videos linked,
    all others copied."""

    form = "lerobot"
    copies = 2

    def __init__(self, path: Path, schema: Schema, data_set: DataSet) -> None:
        super().__init__(path, schema)
        self._set = data_set
        self._features = {v.name: v for v in schema.streamed if v.dims[-1:] == ("dof",)}
        self._frames = sum(count for _, count in data_set.files)
        self._numbers = [g.numbers for g in schema.groups] or [np.arange(len(data_set.episodes))]

    def _prepare(self) -> None:
        for name, variable in self._features.items():
            self._place(name).touch()
            reserve(self._place(name), self._frames * _frame_bytes(variable))

    def _open_files(self) -> None:
        self._descriptors = {name: self._open_file(self._place(name)) for name in self._features}

    def _place(self, name: str) -> Path:
        return self._hidden.path / name

    def place(self, *_: Any) -> None:
        """None: rows are cut to frames."""

    def write(self, name: str, row: int, block: Any, group: int = 0) -> None:
        """Entries row, row + 1, … of a variable; those that are no feature are not kept."""
        variable = self._features.get(name)
        if variable is None or not len(block):
            return
        numbers = self._numbers[group][row : row + len(block)]
        episodes = [self._set.episodes[number] for number in numbers.tolist()]
        size = _frame_bytes(variable)
        for episode, rows in zip(episodes, block, strict=True):
            values = np.ascontiguousarray(rows[: episode.frames], variable.dtype)
            self._put(self._descriptors[name], values, episode.begin * size)

    def _complete(self) -> None:
        root, out, begin = self._set.root, self._hidden.data, 0
        features = {
            PREFIX + name: np.memmap(place, v.dtype, "r", 0, (self._frames, v.shape[-1]))
            for name, v in self._features.items()
            for place in [self._place(name)]
        }
        for source, frames in self._set.files:
            target = out / source.relative_to(root)
            target.parent.mkdir(parents=True, exist_ok=True)
            append_columns(source, target, partial(_columns, features, begin))
            begin += frames
        for source in _files_below(root):
            target = out / source.relative_to(root)
            target.parent.mkdir(parents=True, exist_ok=True)
            if target.relative_to(out).parts[0] in _LINKED:
                _link(source, target)
            elif not target.exists():
                shutil.copyfile(source, target)
        describe(out, features, self._set.episodes, self.schema.joint_names)
        files = [str(p.relative_to(out)) for p in sorted(out.rglob("*")) if not p.is_dir()]
        about = {**self.schema.attributes, "files": [*files, MADE]}
        text = json.dumps(about, indent=2, default=plain_value) + "\n"
        (out / MADE).write_text(text, encoding="utf-8")


def _columns(features: Mapping[str, Any], begin: int, first: int, table: Any) -> dict[str, Any]:
    """The new columns of a row group: lists of D numbers, of one dof the numbers."""
    import pyarrow as arrow

    found = {}
    for name, values in features.items():
        rows = values[begin + first : begin + first + len(table)]
        flat = arrow.array(np.ravel(rows))
        dofs = rows.shape[1]
        found[name] = flat if dofs == 1 else arrow.FixedSizeListArray.from_arrays(flat, dofs)
    return found


def _files_below(root: Path) -> Iterator[Path]:
    """The files of a data set but hidden ones; its folders may be links."""
    for top in sorted(root.iterdir()):
        if not top.name.startswith("."):
            inside = [Path(folder, n) for folder, _, names in os.walk(top) for n in sorted(names)]
            yield from (path for path in inside or [top] if path.is_file())


def _link(source: Path, target: Path) -> None:
    """The same file under another name; on another file system a symbolic link."""
    try:
        os.link(os.path.realpath(source), target)
    except OSError:
        os.symlink(os.path.realpath(source), target)


def _frame_bytes(variable: Variable) -> int:
    return variable.shape[-1] * variable.dtype.itemsize
