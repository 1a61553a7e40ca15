"""An array in a file, and a file of arrays: what every reader offers."""

from __future__ import annotations

import difflib
import fnmatch
import json
import math
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from trajcli.checks import describe
from trajcli.errors import Fault, InputError, TrajcliError
from trajcli.files.file_bytes import OpenFiles, file_state, read_regular, unreadable
from trajcli.files.source import natural_order

T = TypeVar("T")

NUMERIC_KINDS = "fiu"
_LARGEST_JSON = 16 << 20
_SEARCHED, _LISTED = 2000, 8
"""Names that are compared with one that is not there, and how many a message lists."""
_TYPES = {"c": "complex numbers", "O": "objects or strings", "S": "strings", "U": "strings",
          "b": "booleans", "V": "records"}  # fmt: skip

Numbers = range | npt.NDArray[np.integer[Any]]


@dataclass(frozen=True, slots=True)
class Dataset:
    """An array that lies in a file: its shape and type are known, its values are read on demand.

    ``where`` names it for messages ("file.h5:/actions"). ``reader(start, stop)`` is what
    :meth:`read_rows` calls. ``storage`` says how the values lie there, ``remark`` what is to be
    said of them before they are used. ``converted_from``: the type of floats in the file, where
    they are converted to float64 as they are read.
    """

    where: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    reader: Callable[[int, int], Any]
    attributes: Mapping[str, Any] = field(default_factory=dict)
    storage: str = ""
    remark: str = ""
    converted_from: np.dtype[Any] | None = None

    @property
    def precision(self) -> np.dtype[Any]:
        """The type that says how the values are rounded, and that results have."""
        return self.converted_from or self.dtype

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    @property
    def nbytes(self) -> int:
        """Size of the values in bytes."""
        return math.prod(self.shape) * self.dtype.itemsize

    @property
    def numeric(self) -> bool:
        """Whether the values are real numbers."""
        return self.dtype.kind in NUMERIC_KINDS

    def read_rows(self, start: int, stop: int) -> Any:
        """The rows start..stop along the first axis as a NumPy array, which may be read-only; all
        of a scalar. Raises InputError where the file has other rows than it says."""
        values, shape = self.reader(start, stop), self.shape
        if shape:
            shape = len(range(*slice(start, stop).indices(shape[0]))), *shape[1:]
        if values.shape != shape:
            raise InputError(
                "not the rows that the file says it has",
                where=self.where,
                expected=describe(shape),
                found=describe(values.shape),
                hint="a damaged file",
            )
        return values

    def read(self) -> Any:
        """All values."""
        return self.read_rows(0, self.shape[0] if self.shape else 1)

    def texts(self) -> list[str]:
        """All values of an array of strings."""
        return [text_of(value) for value in self.read()]

    def read_part(self, start: int, stop: int, first: int, last: int) -> Any:
        """Reads rows start to stop, columns first to last."""
        if isinstance(self.reader, OneTrajectory):  # of a packed one not all is unpacked
            return self.reader.rows(first, last)[None][start:stop]
        return self.read_rows(start, stop)[:, first:last]

    def select(self, trajectories: Numbers, rows: Numbers) -> Dataset:
        """Some trajectories of [B, T, ...], and of these some rows; read when they are needed."""
        low, high = (int(rows[0]), int(rows[-1]) + 1) if len(rows) else (0, 0)
        within = slice(None) if high - low == len(rows) else np.asarray(rows) - low

        def read_rows(start: int, stop: int) -> Any:
            chosen = np.asarray(trajectories[start:stop])
            if not len(chosen):
                return np.empty((0, len(rows), *self.shape[2:]), self.dtype)
            runs = np.split(chosen, np.flatnonzero(np.diff(chosen) != 1) + 1)  # read at once
            blocks = [self.read_part(int(run[0]), int(run[-1]) + 1, low, high) for run in runs]
            return (blocks[0] if len(blocks) == 1 else np.concatenate(blocks))[:, within]

        shape = (len(trajectories), len(rows), *self.shape[2:])
        return replace(self, shape=shape, reader=read_rows, storage="part of an array")

    def require_numeric(self) -> Dataset:
        """Returns the dataset unchanged, or raises InputError if it is not numeric."""
        if self.numeric:
            return self
        found = f"{_TYPES.get(self.dtype.kind, 'other values')} ({self.dtype})"
        if self.dtype.kind == "U" and 0 not in self.shape:  # such as a column of a table
            found += f", {str(np.ravel(self.read_rows(0, 1))[0])!r:.40} and so on"
        raise InputError(
            "not real numbers", where=self.where, expected="floats or integers", found=found
        )


@dataclass(frozen=True, slots=True)
class OneTrajectory:
    """Reads [T, D] as [1, T, D]; ``rows`` reads some of the ``count`` rows."""

    rows: Callable[[int, int], Any]
    count: int

    def __call__(self, start: int, stop: int) -> Any:
        return self.rows(0, self.count)[None][start:stop]


def text_of(value: object) -> str:
    """A stored string as text that can be written again, whatever bytes it had."""
    text = value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
    return text.encode("utf-8", "replace").decode().replace("\0", "")


def json_object(text: object) -> dict[str, Any]:
    """The JSON object that a text holds; empty for anything else."""
    try:
        value = json.loads(text_of(text)) if isinstance(text, (str, bytes)) else None
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def candidates(names: Iterable[str], get: Callable[[str], Dataset | None]) -> str:
    """Lists datasets with their shapes, those first that may be trajectories: floats [B, T, D] or
    [T, D]. A dataset that cannot be read is listed by its name alone."""
    texts: list[tuple[bool, str]] = []
    for name in names:
        stored, text = None, name
        with suppress(InputError):
            stored = get(name)
        if stored is not None:
            text = f"{name} {describe(stored.shape)}"
        fits = stored is not None and stored.ndim in (2, 3) and stored.dtype.kind == "f"
        texts.append((not fits, text))
    listed = [text for _, text in sorted(texts, key=lambda pair: pair[0])[:_LISTED]]
    return ", ".join(listed) or "no datasets"


class ArrayFile(ABC):
    """A file of named arrays. Close it, or use it in a ``with`` statement; reading opens it again.

    A reader of a format is a subclass in a module of its own and a line in
    :data:`trajcli.files.opening.READERS`, made from a path and a pool. It implements

    - :meth:`begin`: open the file, by :func:`.file_bytes.open_regular` so that no pipe is waited
      for; returns anything with a method ``close``, from then on :meth:`opened`;
    - :meth:`names`: what arrays there are, "data/demo_0/actions";
    - :meth:`get`: one of them as a :class:`Dataset`, whose values are read when they are needed;

    and, where the format has them, :meth:`attributes` and :meth:`children`. It sets ``failures``,
    what its library raises over a damaged file, and ``expected``, what the file should be; whatever
    touches the file goes through :meth:`safely`, which makes an InputError of the one by the
    other. What is unpacked as a whole is announced to ``pool`` (:meth:`OpenFiles.refuse_larger`,
    :meth:`OpenFiles.hold`). Names of joints, times and units need no method: they are arrays
    called joint_names or dof, dt, times, and attributes ``units``. Where trajectories are not
    arrays [B, T, D] or [T, D], a :class:`.layouts.Layout` says where they are.

    ``slash`` is what names begin with in messages. ``outside``: other files that reading led to.
    """

    failures: tuple[type[Exception], ...] = (OSError,)
    expected = "a readable file"
    slash = ""

    def __init__(self, path: Path, family: str, pool: OpenFiles | None = None) -> None:
        self.path, self.family = path, family
        self.outside: list[str] = []
        self.pool = pool or OpenFiles()
        self.lock = self.pool.lock
        self._handle: Any = None
        self._state: tuple[int, ...] | None = None

    def opened(self) -> Any:
        """What :meth:`begin` gave, opened again where it was closed.

        Raises InputError where the file is another than it was.
        """
        with self.lock:
            if self._handle is None:
                self.pool.sources.opened(self.path)
                state = file_state(self.path)
                if self._state not in (None, state):
                    raise InputError(
                        "changed while it was read",
                        where=str(self.path),
                        hint="another program writes it: run again when it is done",
                    )
                self._handle, self._state = self.safely("", self.begin), state
                self.pool.add(self)
            return self._handle

    def safely(self, name: str, read: Callable[[], T], expected: str = "") -> T:
        """What a function reads of the file, or of the dataset or group of this name.

        Raises InputError for what the format's library raises over a damaged file.
        """
        with self.lock:
            try:
                return read()
            except TrajcliError:
                raise
            except self.failures as error:
                raise self.damaged(name, error, expected) from None

    def damaged(self, name: str, error: Exception, expected: str = "") -> InputError:
        """The error of what the format's library raised over the file, or a part of it."""
        where = f"{self.path}:{self.slash}{name}" if name else self.path
        return InputError(unreadable(where, expected or self.expected, error))

    def begin(self) -> Any:
        """Open the file: an object with a method ``close``."""
        raise NotImplementedError

    @abstractmethod
    def names(self) -> list[str]:
        """The datasets, in natural order, without a leading slash."""

    @abstractmethod
    def get(self, name: str) -> Dataset | None:
        """The dataset of this name, None if there is none.

        Raises InputError for one that must not or cannot be read.
        """

    def attributes(self, group: str = "") -> Mapping[str, Any]:
        """Attributes of a group, of the file for ""; empty where the format has none."""
        return {}

    def children(self, group: str = "") -> list[str]:
        """The names directly in a group, in natural order; none where there is no such group."""
        prefix = f"{group.strip('/')}/" if group.strip("/") else ""
        inside = [name[len(prefix) :] for name in self.names() if name.startswith(prefix)]
        return list(dict.fromkeys(name.split("/")[0] for name in inside))

    def dims(self, name: str) -> tuple[str, ...]:
        """The names of the dimensions of a dataset; none where the format has no names."""
        return ()

    def has_group(self, name: str) -> bool:
        """Whether anything lies under this name."""
        return bool(self.children(name))

    def beside(self, name: str) -> dict[str, Any]:
        """The JSON object in another file of the data set, named from the folder of this one;
        empty where there is none. Raises InputError for a file that must not or cannot be read."""
        path = self.path_beside(name)
        self.pool.sources.opened(path)
        if not os.path.lexists(path):
            return {}
        self.outside = list(dict.fromkeys([*self.outside, str(path)]))
        return json_object(read_regular(path, _LARGEST_JSON, "a JSON file"))

    def path_beside(self, name: str) -> Path:
        """The path of another file of the data set."""
        return Path(os.path.normpath(self.path.parent / name))

    def close(self) -> None:
        """Close the file; reading from it opens it again."""
        with self.lock:
            handle, self._handle = self._handle, None
            self.pool.remove(self)
            if handle is not None:
                handle.close()

    def __enter__(self) -> ArrayFile:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def require(self, name: str) -> Dataset:
        """The dataset of this name; raises InputError naming the near ones if there is none."""
        stored = self.get(name)
        if stored is None:
            raise InputError(self.missing(name))
        return stored

    def missing(self, name: str, names: Sequence[str] | None = None) -> Fault:
        """The fault of a dataset that is not among the names of the file, with the near ones."""
        names = self.names() if names is None else names
        wanted, compared = name.strip("/"), names[:_SEARCHED]
        near = difflib.get_close_matches(wanted, compared, 5, 0.4)
        groups = {group for path in compared if (group := path.rpartition("/")[0])}
        group = next(iter(difflib.get_close_matches(wanted, groups, 1, 0.8)), "")
        found = candidates(near or compared[:200], self.get)
        if len(near or compared[:_LISTED]) < len(names):
            found += f" (of {len(names)} datasets)"
        hint = f"trajcli inspect {self.path} lists them; name one as FILE:DATASET"
        if group and not wanted.startswith(group):
            hint = f"{self.path}:/{group}, if it is meant; {hint}"
        return Fault(
            "no such dataset",
            where=f"{self.path}:{name}",
            expected="a dataset in the file",
            found=found if names else "a file without datasets",
            hint=hint,
        )

    def match(self, pattern: str) -> list[str]:
        """The datasets a pattern with * names, in natural order; raises if there is none."""
        wanted = pattern.strip("/")
        if "*" not in wanted:
            return [wanted]
        paths = [""]
        for part in wanted.split("/"):  # * does not cross a slash
            paths = [
                f"{group}/{child}".strip("/")
                for group in paths
                for child in fnmatch.filter(self.children(group), part)
            ]
        names = natural_order(path for path in paths if not self.has_group(path))
        if not names:
            raise InputError(self.missing(pattern))
        return names


def in_memory(values: Any) -> Any:
    """The values of an array, which is read where it is a dataset."""
    return np.asarray(values.read() if isinstance(values, Dataset) else values)
