"""An array in a file, and a file of arrays: what every reader offers."""

from __future__ import annotations

import fnmatch
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from trajcli.errors import Fault, InputError
from trajcli.files.source import natural_key

NUMERIC_KINDS = "fiu"

Block = Any
"""numpy.ndarray"""


@dataclass(frozen=True, slots=True)
class StoredArray:
    """An array that lies in a file: its shape and type are known, its values are read on demand.

    ``where`` names it for messages ("file.h5:/actions"). ``read_rows(start, stop)`` returns the
    rows start..stop along the first axis as a NumPy array (all of a scalar); ``read_steps(start,
    stop, first, last)`` of these only first..last along the second axis, where a file has a way
    to leave the others alone. ``origin(row)``: of an array put together from others, where a row
    lies and its number there.
    """

    where: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    read_rows: Callable[[int, int], Block]
    attributes: Mapping[str, Any] = field(default_factory=dict)
    storage: str = ""
    read_steps: Callable[[int, int, int, int], Block] | None = None
    origin: Callable[[int], tuple[str, int]] | None = None

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

    def read(self) -> Block:
        """All values."""
        return self.read_rows(0, self.shape[0] if self.shape else 1)

    def read_part(self, start: int, stop: int, first: int, last: int) -> Block:
        """Rows start..stop, of these first..last along the second axis."""
        if self.read_steps is None:
            return self.read_rows(start, stop)[:, first:last]
        return self.read_steps(start, stop, first, last)

    def require_numeric(self) -> StoredArray:
        """Itself; raises InputError for complex numbers, strings, objects, booleans, records."""
        if self.numeric:
            return self
        raise InputError(
            Fault("not real numbers", self.where, "floats or integers", _type_name(self.dtype))
        )


def text_of(value: object) -> str:
    """A stored string as text that can be written again, whatever bytes it had."""
    text = value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
    return text.encode("utf-8", "replace").decode().replace("\0", "")


def _type_name(dtype: np.dtype[Any]) -> str:
    names = {"c": "complex numbers", "O": "objects or strings", "S": "strings", "U": "strings",
             "b": "booleans", "V": "records"}  # fmt: skip
    return f"{names.get(dtype.kind, 'other values')} ({dtype})"


def unreadable(where: object, expected: str, error: Exception) -> Fault:
    """The fault of a file that a library could not read."""
    return Fault("cannot be read", str(where), expected, str(error) or type(error).__name__)


class ArrayFile(ABC):
    """An open file of named arrays. Close it, or use it in a ``with`` statement."""

    __slots__ = ("_path", "family", "outside")  # there may be very many

    def __init__(self, path: Path | str, family: str) -> None:
        self._path = path
        self.family = family
        self.outside: list[str] = []
        """Other files that reading this one led to."""

    @property
    def path(self) -> Path:
        """Where it lies."""
        return self._path if isinstance(self._path, Path) else Path(self._path)

    @abstractmethod
    def names(self) -> list[str]:
        """The datasets, in natural order, without a leading slash."""

    @abstractmethod
    def get(self, name: str) -> StoredArray | None:
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

    def places(self) -> Mapping[str, int]:
        """Of the datasets whose numbers lie in the file as they are, in one piece, where."""
        return {}

    def dof_names(self) -> list[str] | None:
        """Names of the joints, where the format keeps them apart from its datasets."""
        return None

    def has_group(self, name: str) -> bool:
        """Whether datasets lie under this name."""
        return any(other.startswith(name.strip("/") + "/") for other in self.names())

    def close(self) -> None:  # noqa: B027
        """Let go of the file; nothing to do for formats that hold none open."""

    def __enter__(self) -> ArrayFile:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def require(self, name: str) -> StoredArray:
        """The dataset of this name; raises InputError naming the near ones if there is none."""
        found = self.get(name)
        if found is not None:
            return found
        raise InputError(self.missing(name))

    def missing(self, name: str) -> Fault:
        """The fault of a dataset that is not there."""
        import difflib

        names = self.names()
        near = difflib.get_close_matches(name.strip("/"), names, 5, 0.4) or names[:8]
        if not names:
            found = "a file without datasets"
        elif len(near) < len(names):
            found = f"{', '.join(near)} (of {len(names)} datasets)"
        else:
            found = ", ".join(near)
        hint = f"trajcli inspect {self.path} lists them; name one as FILE:DATASET"
        return Fault("no such dataset", f"{self.path}:{name}", "a dataset in the file", found, hint)

    def match(self, pattern: str) -> list[str]:
        """The datasets a pattern with * names, in natural order; raises if there is none."""
        wanted = pattern.strip("/")
        if "*" not in wanted:
            return [wanted]
        found = [""]
        for part in wanted.split("/"):  # * does not cross a slash
            found = [
                f"{group}/{child}" if group else child
                for group in found
                for child in fnmatch.filter(self.children(group), part)
            ]
        found = [name for name in found if not self.has_group(name)]
        if not found:
            raise InputError(self.missing(pattern))
        return sorted(found, key=natural_key)
