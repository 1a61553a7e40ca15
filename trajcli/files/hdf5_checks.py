"""What an HDF5 dataset may not do: lead out of its file, or declare more than that holds."""

from __future__ import annotations

import math
from typing import Any

from trajcli.errors import Fault, InputError

_EXPANSION_LIMIT = 1100
"""No filter of HDF5's own packs more: deflate reaches about 1030 : 1."""
_BUILT_IN_FILTERS = {*range(1, 7), 32000}
"""deflate to scale-offset, and h5py's LZF; others are loaded as plug-ins."""


def files_outside(dataset: Any, where: str, allow_external: bool) -> list[str]:
    """The other files that hold its values; raises InputError unless they may be read."""
    properties = dataset.id.get_create_plist()
    filters = (properties.get_filter(k) for k in range(properties.get_nfilters()))
    plug_ins = [name.decode("utf-8", "replace") for code, *_, name in filters
                if code not in _BUILT_IN_FILTERS]  # fmt: skip
    for present, found in (
        (dataset.is_virtual, "a virtual dataset"),
        (dataset.external, f"values in {dataset.external and dataset.external[0][0]}"),
        (plug_ins, f"a filter that is a plug-in: {', '.join(plug_ins)}"),
    ):
        if present and not allow_external:
            raise InputError(leads_outside(where, found))
    sources = dataset.virtual_sources() if dataset.is_virtual else ()
    names = [source.file_name for source in sources if source.file_name != "."]
    return names + [name for name, *_ in dataset.external or ()]


def leads_outside(where: str, target: str) -> Fault:
    """The fault of values that lie elsewhere."""
    hint = "--allow-external reads it, if you trust the file"
    return Fault("leads out of the file", where, "values in the file itself", target, hint)


def unpacked_bytes(dataset: Any, where: str) -> int:
    """What must be unpacked at once to read some of it; 0 where it is not packed.

    Raises InputError where far less is stored than is declared.
    """
    size, held = dataset.size * dataset.dtype.itemsize, dataset.id.get_storage_size()
    packed = dataset.chunks and dataset.id.get_create_plist().get_nfilters()
    # unfiltered chunks are as long as they say: of shorter ones HDF5 reads what lies behind
    expansion = _EXPANSION_LIMIT if packed else 1
    if size > held * expansion and not (dataset.is_virtual or dataset.external):
        raise InputError(
            Fault(
                "declares more than the file holds",
                where,
                f"the values of {size} bytes declared ({list(dataset.shape)} {dataset.dtype})",
                f"{held} bytes stored",
                "it was never written, or cut off: get or write it again",
            )
        )
    if not packed:
        return 0
    chunk: int = math.prod(dataset.chunks) * dataset.dtype.itemsize
    return max(chunk, size) if dataset.ndim == 1 else chunk  # lines are read as a whole
