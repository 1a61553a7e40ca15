"""Reads files that torch.save wrote: tensors in dictionaries and lists."""

from __future__ import annotations

import os
import pickle
import warnings
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trajcli.errors import Fault, InputError
from trajcli.files.arrays import ArrayFile, Dataset, OpenFiles
from trajcli.files.file_bytes import open_regular
from trajcli.files.source import natural_key

_TORCH = (2, 6)
"""Earlier versions can run code even with ``weights_only`` (CVE-2025-32434)."""
_MOST, _DEEPEST = 500_000, 64
"""The most entries of dictionaries and lists, and the deepest nesting. A pickle can refer to a list
twice from the next list, and so on: 30 of them have 10^9 entries."""


class TorchFile(ArrayFile):
    """A file of tensors, which are mapped. No other objects are constructed (``weights_only``)."""

    failures = (Exception,)  # pickle, zipfile and torch have no common error for damaged files
    expected = "tensors, as torch.save writes them"

    def __init__(self, path: Path, pool: OpenFiles | None = None) -> None:
        super().__init__(path, "pt", pool)
        _require_torch(path)
        self._names = list(self.opened())

    def begin(self) -> _Tensors:
        import torch

        os.close(open_regular(self.path))
        archive = zipfile.is_zipfile(self.path)  # torch before 1.6 wrote no archives
        if archive:
            # torch would map compressed members as they are, and a pickle may expand to any size
            with zipfile.ZipFile(self.path) as members:
                packed = [info.filename for info in members.infolist() if info.compress_type]
            if packed:
                fault = Fault(
                    "a packed archive",
                    where=f"{self.path}:{packed[0]}",
                    expected="stored as it is",
                    found="packed",
                    hint="write it by torch.save",
                )
                raise InputError(fault)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # torch warns of pickles that it did not write
                saved = torch.load(self.path, "cpu", weights_only=True, mmap=archive)
        except pickle.UnpicklingError:  # torch's own message advises to trust the file
            raise InputError(
                "holds other objects than tensors",
                where=str(self.path),
                expected="dictionaries and lists of tensors",
                hint="where it was made: torch.save({'actions': tensor}, 'actions.pt')",
            ) from None
        tensors = _Tensors()
        tensors.add(saved)
        return tensors

    def names(self) -> list[str]:
        return self._names

    def get(self, name: str) -> Dataset | None:
        name = name.strip("/")
        if name not in self.opened():
            return None

        def read_rows(start: int, stop: int) -> Any:
            return self.safely(name, lambda: _rows(self.opened()[name], start, stop))

        where = f"{self.path}:{name}" if name else str(self.path)
        shape, dtype = tuple(self.opened()[name].shape), read_rows(0, 0).dtype
        return Dataset(where, shape, dtype, read_rows, storage="tensor")


class _Tensors(dict[str, Any]):
    """Tensors by their paths, in natural order."""

    entries = 0

    def add(self, saved: Any, path: str = "", depth: int = 0) -> None:
        """Adds a tensor, or those in a dictionary or list. Raises ValueError for too many."""
        import torch

        self.entries += 1
        if self.entries > _MOST or depth > _DEEPEST:
            raise ValueError(f"more than {_MOST} entries, or {_DEEPEST} within each other")
        pairs: Any = ()
        if isinstance(saved, torch.Tensor):
            self[path] = saved
        elif isinstance(saved, Mapping):
            pairs = sorted(saved.items(), key=lambda pair: natural_key(str(pair[0])))
        elif isinstance(saved, (list, tuple)):
            pairs = enumerate(saved)
        for key, value in pairs:
            if type(value) is float and isinstance(saved, Mapping):  # such as dt
                value = torch.tensor(value, dtype=torch.float64)
            self.add(value, f"{path}/{key}".strip("/"), depth + 1)

    def close(self) -> None:
        """Drops the tensors; those in use stay mapped."""
        self.clear()


def _rows(tensor: Any, start: int, stop: int) -> Any:
    """Returns rows of a tensor as an array; bfloat16 becomes float32.

    Raises TypeError for sparse tensors and the like, and ValueError for an expanded one, whose few
    stored values may be repeated any number of times.
    """
    import torch

    if tensor.layout == torch.strided and tensor.nbytes > tensor.untyped_storage().nbytes():
        raise ValueError(f"{tensor.nbytes} bytes of values, of which fewer are stored")
    rows = tensor[start:stop] if tensor.ndim else tensor
    return (rows.float() if rows.dtype == torch.bfloat16 else rows).numpy(force=True)


def _require_torch(path: Path) -> None:
    """Raises InputError without a torch that can be trusted to read only tensors."""
    try:
        import torch

        version = str(torch.__version__)
        if tuple(map(int, version.split(".")[:2])) >= _TORCH:
            return
    except ImportError:
        version = "none"
    raise InputError(
        "tensors are read by torch",
        where=str(path),
        expected=f"torch {_TORCH[0]}.{_TORCH[1]} or later",
        found=version,
        hint=f"pip install 'torch>={_TORCH[0]}.{_TORCH[1]}', or numpy.savez where it was made",
    )
