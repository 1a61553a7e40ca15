"""Reading what torch.save wrote, as far as it needs no pickled code."""

from __future__ import annotations

import pickle
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from trajcli.errors import Fault, InputError
from trajcli.files.arrays import ArrayFile, Dataset
from trajcli.files.file_bytes import OpenFiles, open_regular
from trajcli.files.source import natural_order


class TorchFile(ArrayFile):
    """What torch.save wrote: tensors in dictionaries and lists, mapped. Other objects are never
    made (``weights_only``)."""

    failures = (Exception,)  # pickle, zipfile and torch raise what they like over a damaged file
    expected = "tensors, as torch.save writes them"

    def __init__(self, path: Path, pool: OpenFiles | None = None) -> None:
        super().__init__(path, "pt", pool)
        self._names = self.opened().names

    def begin(self) -> _Tensors:
        return _Tensors(self.path)

    def names(self) -> list[str]:
        names: list[str] = self._names
        return names

    def get(self, name: str) -> Dataset | None:
        name = name.strip("/")
        if name not in self._names:
            return None
        like = self.safely(name, lambda: self.opened().array(name))

        def read_rows(start: int, stop: int) -> Any:
            values = self.opened().array(name)
            return values[start:stop] if values.ndim else values

        where = f"{self.path}:{name}" if name else str(self.path)
        return Dataset(where, like.shape, like.dtype, read_rows, storage="tensor")


class _Tensors:
    """The tensors of a file, by their names."""

    def __init__(self, path: Path) -> None:
        import torch

        with open(open_regular(path), "rb") as file:
            mapped = torch.serialization._is_zipfile(file)  # older files cannot be mapped
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of a pickle that torch did not write
                saved = torch.load(path, map_location="cpu", weights_only=True, mmap=mapped)
        except pickle.UnpicklingError:  # torch's text is long, and advises to trust the file
            line = "where it was made: torch.save({'actions': tensor}, 'actions.pt')"
            what, expected = "holds other objects than tensors", "dictionaries and lists of tensors"
            raise InputError(Fault(what, str(path), expected, hint=line)) from None
        self._tensors = dict(_flat(saved))
        self.names = natural_order(self._tensors)

    def array(self, name: str) -> Any:
        """A tensor as an array; bfloat16 as float32. Raises TypeError for sparse ones and such."""
        import torch

        tensor = self._tensors[name]
        return (tensor.float() if tensor.dtype == torch.bfloat16 else tensor).numpy(force=True)

    def close(self) -> None:
        """Forget them; what is in use stays mapped."""
        self._tensors = {}


def _flat(saved: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    if hasattr(saved, "numpy"):
        yield name, saved
        return
    pairs: Any = ()
    if isinstance(saved, Mapping):
        import torch

        pairs = [
            (key, torch.tensor(value, dtype=torch.float64) if type(value) is float else value)
            for key, value in saved.items()
        ]
    if isinstance(saved, (list, tuple)):
        pairs = enumerate(saved)
    for key, value in pairs:
        yield from _flat(value, f"{name}/{key}".strip("/"))
