"""Defines the interface of all readers: a file of named arrays, whose values are read on demand."""

from __future__ import annotations

import difflib
import fnmatch
import json
import math
import shlex
import threading
from abc import abstractmethod
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from importlib import import_module
from itertools import accumulate
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from trajcli.errors import Fault, InputError, Report, TrajcliError, describe, wrong_shape
from trajcli.files.file_bytes import SourceFiles, State, change_fault, file_state, read_fault
from trajcli.files.quantities import motion_rank
from trajcli.files.reading import Reading
from trajcli.files.source import Place, first_and_more, natural_order
from trajcli.kernels.program import NumpyArray
from trajcli.memory import LEAST_MEMORY, memory_bound

T = TypeVar("T")

NUMERIC_KINDS = "fiu"
PROVENANCE = "trajcli.json"
"""The member of an .npz archive that holds what HDF5 files have as attributes."""
# Systems allow a process 256 descriptors and more, and an HDF5 file takes two.
_MOST_FILES = 64
# How many names are compared with a missing one, and how many a message lists.
_SEARCHED, _LISTED = 2000, 8
_TYPES = {"c": "complex numbers", "O": "objects or strings", "S": "strings", "U": "strings",
          "b": "booleans", "V": "records"}  # fmt: skip

Values: TypeAlias = "NumpyArray | Dataset"
"""numpy.ndarray, or a Dataset that is read block by block."""
Numbers = range | npt.NDArray[np.integer[Any]]


@dataclass(frozen=True, slots=True)
class Dataset:
    """An array in a file, with known shape and type; its values are read on demand."""

    where: Place  # its name in messages, "file.h5:/actions"
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    reader: Callable[[int, int], Any]  # called with the first row and the row after the last
    attributes: Mapping[str, Any] = field(default_factory=dict)
    storage: str = ""  # how the file stores the values
    remarks: Sequence[str] = ()  # notes and warnings, printed before the values are used
    # the float type in the file, where values are converted to float64 as they are read
    converted_from: np.dtype[Any] | None = None

    @property
    def precision(self) -> np.dtype[Any]:
        """The type to which the values are rounded in the file, and which results get."""
        return self.converted_from or self.dtype

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize

    @property
    def numeric(self) -> bool:
        return self.dtype.kind in NUMERIC_KINDS

    def read_rows(self, start: int, stop: int) -> Any:
        """Reads rows start to stop along the first axis, or the value of a scalar; read-only."""
        values, shape = self.reader(start, stop), self.shape
        # a file that was cut off may give fewer rows, which NumPy could broadcast to wrong numbers
        if shape:
            shape = len(range(*slice(start, stop).indices(shape[0]))), *shape[1:]
        if values.shape != shape:
            what = "not the rows that the file declares"
            hint = "a damaged file: get or write it again"
            raise InputError(wrong_shape(self.where, shape, values.shape, what=what, hint=hint))
        return values

    def read(self) -> Any:
        return self.read_rows(0, self.shape[0] if self.shape else 1)

    def texts(self) -> list[str]:
        return [decode_text(value) for value in self.read()]

    def read_part(self, start: int, stop: int, first: int, last: int) -> Any:
        """Reads rows start to stop, columns first to last."""
        # a reader of parts decompresses a trajectory no further than to the last column
        if isinstance(self.reader, PartReader):
            return self.reader.part(start, stop, first, last)
        return self.read_rows(start, stop)[:, first:last]

    def select(self, trajectories: Numbers, rows: Numbers) -> Dataset:
        """Selects rows of some trajectories of [B, T, ...]; their values are read on demand."""

        def read(start: int, stop: int, first: int, last: int) -> Any:
            chosen, columns = np.asarray(trajectories[start:stop]), rows[first:last]
            if not len(chosen) or not len(columns):
                return np.empty((len(chosen), len(columns), *self.shape[2:]), self.dtype)
            low, high = int(columns[0]), int(columns[-1]) + 1
            picked = slice(None) if high - low == len(columns) else np.asarray(columns) - low
            # consecutive trajectories are one run, which takes one read of the file
            runs = np.split(chosen, np.flatnonzero(np.diff(chosen) != 1) + 1)
            blocks = [self.read_part(int(run[0]), int(run[-1]) + 1, low, high) for run in runs]
            return (blocks[0] if len(blocks) == 1 else np.concatenate(blocks))[:, picked]

        shape = (len(trajectories), len(rows), *self.shape[2:])
        reader = PartReader(read, len(rows))
        return replace(self, shape=shape, reader=reader, storage="part of an array")

    def require_numeric(self) -> Dataset:
        """Returns the dataset unchanged, or raises InputError if it is not numeric."""
        if self.numeric:
            return self
        found = f"{_TYPES.get(self.dtype.kind, 'other values')} ({self.dtype})"
        if self.dtype.kind == "U" and 0 not in self.shape:  # a text column of a table, for example
            found += f", {str(np.ravel(self.read_rows(0, 1))[0])!r:.40} and so on"
        raise InputError(
            "not real numbers", where=self.where, expected="floats or integers", found=found
        )


@dataclass(frozen=True, slots=True)
class PartReader:
    """Reads arrays [B, T, ...] whose trajectories need not be read to their last row."""

    # called with the first trajectory and the one after the last, and with two rows alike
    part: Callable[[int, int, int, int], Any]
    count: int  # the number of rows

    def __call__(self, start: int, stop: int) -> Any:
        return self.part(start, stop, 0, self.count)


def join_readers(read_rows: Callable[[int, int, int], Any], lengths: Sequence[int]) -> PartReader:
    """Makes one reader [n, T, D] of n arrays of different lengths; zeros follow shorter ones."""

    # ``read_rows`` takes the number of an array, its first row and the row after the last
    def part(start: int, stop: int, first: int, last: int) -> Any:
        numbers = range(len(lengths))[start:stop]
        blocks = [read_rows(k, first, min(last, lengths[k])) for k in numbers]
        # a copy would load the whole of a large array, which may be mapped
        if len(blocks) == 1 and len(blocks[0]) == last - first:
            return blocks[0][None]
        example = blocks[0] if blocks else read_rows(0, 0, 0)
        values = np.zeros((len(blocks), last - first, *example.shape[1:]), example.dtype)
        for trajectory, block in zip(values, blocks, strict=True):
            trajectory[: len(block)] = block
        return values

    return PartReader(part, max(lengths))


def import_library(module: str, package: str, path: Path) -> Any:
    """Imports a library that a format needs; raises InputError if it is not installed."""
    try:
        return import_module(module)
    except ImportError:
        raise InputError(
            f"needs {package}, which is not installed",
            where=str(path),
            hint=f"pip install {package}",
        ) from None


def decode_text(value: object) -> str:
    text = value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
    # names may hold surrogates, which cannot be printed, and HDF5 refuses NUL in a text
    return text.encode("utf-8", "replace").decode().replace("\0", "")


def json_object(text: object) -> dict[str, Any]:
    """Parses a JSON object; returns an empty one for anything else."""
    try:
        value = json.loads(decode_text(text)) if isinstance(text, (str, bytes)) else None
    except (ValueError, RecursionError):  # RecursionError: brackets within brackets
        return {}
    return value if isinstance(value, dict) else {}


def candidates(names: Iterable[str], get: Callable[[str], Dataset | None]) -> str:
    """Lists datasets with their shapes for a message, likely trajectories first."""
    # a message about one dataset must not fail because of another, damaged one
    arrays = dict[str, Dataset | None].fromkeys(names)
    for name in arrays:
        with suppress(InputError):
            arrays[name] = get(name)
    ranked = sorted(arrays.items(), key=lambda pair: unlikeness(*pair))[:_LISTED]
    texts = (f"{name} {describe(stored.shape)}" if stored else name for name, stored in ranked)
    return ", ".join(texts) or "no datasets"


def unlikeness(name: str, stored: Dataset | None) -> tuple[int, ...]:
    """Makes a key to sort by: 0 for motions, 1 for clocks, covariances …, 2 for the unreadable."""
    if stored is None or not stored.numeric or not 0 < stored.ndim < 4 or 0 in stored.shape:
        return (2,)
    rows, line, rank = stored.shape[max(stored.ndim - 2, 0)], stored.ndim == 1, motion_rank(name)
    # few rows belong to a matrix, such as one of gains, or are a single row of a table
    short, integer, clock = rows < 8, stored.dtype.kind != "f", False
    # A clock is a single column that increases. To read rows of messages is to read all of them,
    # which takes too long for a guess.
    if math.prod(stored.shape) == max(stored.shape) > 1 and stored.storage != "messages":
        with suppress(InputError):  # damage is reported where the array is used
            first = np.ravel(stored.read_rows(0, _SEARCHED))
            clock = bool((first[1:] > first[:-1]).all())
    kind = 2 if line and short else int(rank > 2 or clock)
    return kind, short, line, integer, rank, -stored.shape[-1]


def python_line(code: str, *names: object) -> str:
    """Writes a line for a shell that runs Python code, in which %s stands for a path or name."""
    # JSON quotes names by double quotes, since the shell's quotes around the code are single
    texts = tuple(json.dumps(str(name), ensure_ascii=False) for name in names)
    return f"python -c {shlex.quote(code % texts)}"


def plain_copy(path: Path, load: str, *names: str, shape: Sequence[int] | None = None) -> str:
    """Writes a hint with a line of Python that saves pickled arrays, read by ``load``, as plain."""
    # NumPy pickles a dictionary as an array of shape (); an array of several dimensions is numbers
    # of type object, and one of a single dimension has an episode in each entry
    arrays = "**x.item()" if shape == () else "**x"
    if shape and shape[1:]:
        arrays = "position=x.astype(float)"
    elif shape:
        pairs = 'e.items() if isinstance(e, dict) else [("position", e)]'
        arrays = f'**{{f"episode_{{i}}/{{k}}": v for i, e in enumerate(x) for k, v in ({pairs})}}'
    library = "torch, numpy as np" if load.startswith("torch") else "numpy as np"
    code = f"import {library}; x = {load}; np.savez(%s, {arrays})"
    out = path.with_name(f"{path.stem}_plain.npz")
    return f"if you trust it: {python_line(code, path, *names, out)}"


class OpenFiles:
    """A pool that keeps at most 64 files open: opening one more closes the oldest."""

    reading = Reading()

    def __init__(
        self, memory: int | None = None, allow_external: bool = False, report: Report | None = None
    ) -> None:
        self.sources = SourceFiles()  # the files that readers opened
        self.memory = max(memory_bound() if memory is None else memory, LEAST_MEMORY)
        self.allow_external = allow_external
        self.report = report or Report()  # hears of progress while a trajectory is read
        # the open files, oldest first, with the size of the data that each has decompressed
        self.files: dict[Catalogue, int] = {}
        # held while a file is in use, so that no other thread closes it
        self.lock = threading.RLock()

    def reserve(self, file: Catalogue, size: int) -> None:
        """Makes room for data that a file decompresses, by closing files that hold others."""
        others = (other for other in list(self.files) if other is not file)
        # the file itself is closed last, which drops what it decompressed before
        while size + sum(self.files.values()) > self.memory:
            next(others, file).close()
        file.open_handle()
        self.files[file] += size

    def refuse_larger(self, size: int, where: object, hint: str) -> None:
        """Raises InputError if data that is decompressed as a whole takes more than ``memory``."""
        if size > self.memory:
            raise InputError(
                "too large to be unpacked",
                where=where,
                expected=f"at most {self.memory} bytes at once",
                found=f"{size} bytes",
                hint=f"a larger TRAJCLI_MEMORY, or {hint}",
            )


class Catalogue(AbstractContextManager["Catalogue"]):
    """A file of named arrays. Close it, or use ``with``; a later read opens it again.

    To add a format, write a subclass in a module of its own, and add a line to
    :data:`trajcli.files.opening.READERS`. It has :attr:`handle_type`, implements :meth:`names`,
    :meth:`find` and, where the format has them, :meth:`attributes` and :meth:`children`.
    :meth:`guard` turns ``failures`` into InputError: lookups by :meth:`get` and reads of what
    :meth:`make_dataset` makes go through it, and so must all else that looks into the file. Data
    that must be decompressed as a whole is announced to the pool (:meth:`OpenFiles.refuse_larger`,
    :meth:`OpenFiles.reserve`). Joint names, times and units are arrays called joint_names or dof,
    dt and times, and attributes ``units``. Where trajectories are not arrays [B, T, D] or [T, D],
    a :class:`._layouts.Layout` locates them.
    """

    family = ""  # the name of the format
    handle_type: Callable[[Path], Any]  # opens a path, and has a method ``close``
    # the exceptions that the library of the format raises for a damaged file
    failures: tuple[type[Exception], ...] = (OSError,)
    expected, expected_array = "a readable file", ""  # an intact file, and an array in it
    slash = ""  # the prefix of dataset names in messages
    members: Sequence[Catalogue] = ()  # files of which each holds one trajectory of the array

    def __init__(self, path: Path, pool: OpenFiles | None = None) -> None:
        self.path = path
        self.linked_paths: list[str] = []  # other files that were read, too
        self._entries: dict[str, Dataset | None] = {}
        # names such as dt and start are looked up in every group and are mostly absent: where all
        # names of a group are known, this costs neither a look into the file nor an entry
        self.known_children: dict[str, Collection[str]] = {}
        self.pool = pool or OpenFiles()
        self.lock = self.pool.lock
        self._handle: Any = None
        self._state: State | None = None

    def open_handle(self) -> Any:
        """Opens the file again if it was closed; raises InputError if it has changed since."""
        with self.lock:
            if self._handle is None:
                # read before the file is opened, so that a change in between is noticed later
                state = file_state(self.path)
                self.pool.sources.record(self.path, state)
                if self._state not in (None, state):
                    raise InputError(change_fault(self.path, self._state, state))
                self._handle, self._state = self.guard("", self.begin), state
                self.pool.files[self] = 0
                while len(self.pool.files) > _MOST_FILES:
                    next(iter(self.pool.files)).close()
            return self._handle

    def guard(self, name: str, read: Callable[..., T], *arguments: object) -> T:
        """Calls a function that reads the file, or its dataset or group ``name``.

        Raises InputError in place of what the library raises for a damaged file.
        """
        with self.lock:
            try:
                return read(*arguments)
            except TrajcliError:
                raise
            except self.failures as error:
                expected = (self.expected_array if name else "") or self.expected
                raise InputError(read_fault(self.place(name), expected, error)) from None

    def begin(self) -> Any:
        """Makes the handle; readers open by :func:`.file_bytes.open_regular`, which never waits."""
        return self.handle_type(self.path)

    @abstractmethod
    def names(self) -> list[str]:
        """Lists the paths of all datasets in natural order, without a leading slash."""

    def get(self, name: str) -> Dataset | None:
        """Gets the dataset of this name, or None if there is none; each is looked up once."""
        name = name.strip("/")
        if name not in self._entries:
            group, _, last = name.rpartition("/")
            if group in self.known_children and last not in self.known_children[group]:
                return None
            self._entries[name] = self.guard(name, self.find, name)
        return self._entries[name]

    @abstractmethod
    def find(self, name: str) -> Dataset | None:
        """Looks up the dataset of this name for :meth:`get`, which keeps it."""

    def make_dataset(
        self,
        name: str,
        shape: Sequence[int],
        dtype: np.dtype[Any],
        read: Callable[[int, int], Any],
        attributes: Mapping[str, Any] | None = None,
        storage: str = "",
    ) -> Dataset:
        """Makes a dataset of the file, whose rows are read under :meth:`guard`."""
        reader = partial(self.guard, name, read)  # smaller than a closure: there may be thousands
        return Dataset(self.place(name), tuple(shape), dtype, reader, attributes or {}, storage)

    def attributes(self, group: str = "") -> Mapping[str, Any]:
        """Reads the attributes of a group, or of the file for ""; formats may have none."""
        return {}

    def children(self, group: str = "") -> list[str]:
        """Lists the names directly in a group, in natural order; none if there is no group."""
        prefix = f"{group.strip('/')}/" if group.strip("/") else ""
        paths = [name[len(prefix) :] for name in self.names() if name.startswith(prefix)]
        return list(dict.fromkeys(path.split("/")[0] for path in paths))

    @cached_property
    def spelling(self) -> Mapping[str, Mapping[str, str]]:
        """The names of the datasets of each group, by their lower case."""
        groups: dict[str, dict[str, str]] = {}
        for path in self.names():
            group, _, last = path.rpartition("/")
            groups.setdefault(group, {})[last.lower()] = last
        return groups

    def motion(self) -> tuple[str, str]:
        """Guesses the array that is the motion by the names next to it, with a remark; or ""."""
        return "", ""

    @cached_property
    def is_output(self) -> bool:
        return "trajcli_version" in self.attributes()

    def dims(self, name: str) -> tuple[str, ...]:
        """Lists the dimensions of a dataset by name; none where the format has no names."""
        return ()

    def has_group(self, name: str) -> bool:
        return bool(self.children(name))

    def place(self, name: str = "") -> Place:
        return Place(str(self.path), f"{self.slash}{name}" if name else "")

    def shell_name(self, name: str) -> str:
        """Writes FILE:DATASET as a user types it in a shell."""
        return shlex.quote(f"{self.path}:{name}")

    def close(self) -> None:
        with self.lock:
            # forgotten first, so that a file whose close fails is not closed again
            handle, self._handle = self._handle, None
            self.pool.files.pop(self, None)
            if handle is not None:
                handle.close()

    def __exit__(self, *_: object) -> None:
        self.close()

    def require(self, name: str) -> Dataset:
        stored = self.get(name)
        if stored is None:
            raise InputError(self.missing(name))
        return stored

    def missing(self, name: str, names: Sequence[str] | None = None) -> Fault:
        """Describes a missing dataset as a fault, with the names that are close."""
        names = self.names() if names is None else names
        path, compared = name.strip("/"), names[:_SEARCHED]
        # A group is offered first, but only where a letter or two of its name differ. Datasets may
        # differ by more: a wrong guess among five costs little.
        near = difflib.get_close_matches(path, compared, 5, 0.4)
        groups = {group for other in compared if (group := other.rpartition("/")[0])}
        group = next(iter(difflib.get_close_matches(path, groups, 1, 0.8)), "")
        found = candidates(near or compared[:200], self.get)
        if len(near or compared[:_LISTED]) < len(names):
            found += f" (of {len(names)} datasets)"
        hint = f"trajcli inspect {shlex.quote(str(self.path))} lists them"
        if not path.startswith(group):
            near.insert(0, f"/{group}")
        if near:
            hint = f"{self.shell_name(near[0])}, if it is meant; {hint}"
        return Fault(
            "no such dataset",
            where=f"{self.path}:{name}",
            expected="a dataset in the file",
            found=found if names else "a file without datasets",
            hint=hint,
        )

    def match(self, pattern: str, groups: bool = False) -> list[str]:
        """Lists the datasets, or groups, that a pattern matches; * matches within one level."""
        levels = pattern.strip("/")
        if "*" not in levels:
            return [levels]
        paths = [""]
        for level in levels.split("/"):
            paths = [
                f"{group}/{child}".strip("/")
                for group in paths
                for child in fnmatch.filter(self.children(group), level)
            ]
        names = natural_order(path for path in paths if self.has_group(path) == groups)
        if not names and not groups:
            raise InputError(self.missing(pattern))
        return names


def load_array(values: Any) -> NumpyArray:
    return np.asarray(values.read() if isinstance(values, Dataset) else values)


def take_trajectories(values: Values, numbers: Any) -> Values:
    """Takes trajectories of [B, ...] by number; a dataset [B, T, ...] is read on demand."""
    # all trajectories in their order: a dataset stays as it is, without one more reader
    if len(numbers) == values.shape[0] and (np.diff(numbers) == 1).all():
        return values
    if isinstance(values, Dataset) and values.ndim > 1:
        return values.select(numbers, range(values.shape[1]))
    rows: NumpyArray = load_array(values)[numbers]
    return rows


def stack_arrays(arrays: Sequence[Values], batches: Sequence[int] = ()) -> Dataset:
    """Stacks arrays [b, n, ...] along their trajectories; zeros follow the rows of shorter ones.

    batches: how many trajectories each array is for; all of them share an array [1, n, ...].
    """
    batches = batches or [array.shape[0] for array in arrays]
    ends, first = list(accumulate(batches)), arrays[0]
    width = max((array.shape[1] for array in arrays), default=0) if first.ndim > 1 else 0
    dtype = np.result_type(*{array.dtype for array in arrays})

    def part(start: int, stop: int, low: int, high: int) -> Any:
        # one block of each array, beginning with the array that holds ``start``: a file that holds
        # none of the trajectories is not touched
        blocks, k = [], bisect_right(ends, start)
        while start < stop:
            array, batch, end = arrays[k], batches[k], min(stop, ends[k])
            begin, count = start - (ends[k] - batch), end - start
            rows = slice(0, 1) if array.shape[0] < batch else slice(begin, begin + count)
            if not isinstance(array, Dataset):
                block = array[rows, low:high] if width else array[rows]
            elif width:
                block = array.read_part(rows.start, rows.stop, low, high)
            else:
                block = array.read_rows(rows.start, rows.stop)
            if width and block.shape[1] < high - low:
                padding = [(0, 0), (0, high - low - block.shape[1]), *[(0, 0)] * (block.ndim - 2)]
                block = np.pad(block, padding)
            if len(block) < count:
                block = np.broadcast_to(block, (count, *block.shape[1:]))
            blocks.append(block)
            start, k = end, k + 1
        if not blocks:
            return np.empty((0, high - low, *first.shape[2:]) if width else (0,), dtype)
        return blocks[0] if len(blocks) == 1 else np.concatenate(blocks)

    where = first_and_more(getattr(array, "where", Place()) for array in arrays)
    kind = np.result_type(*{getattr(array, "precision", array.dtype) for array in arrays})
    shape = (ends[-1], width, *first.shape[2:]) if first.ndim > 1 else (ends[-1],)
    return Dataset(where, shape, dtype, PartReader(part, width), converted_from=kind)
