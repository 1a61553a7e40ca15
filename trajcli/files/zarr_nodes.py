"""The metadata of a Zarr store, version 3: what the zarr.json of every group and array says, and
where they may lie."""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from trajcli.errors import Fault, OutputError
from trajcli.files.arrays import text_of
from trajcli.files.hdf5_output import require_names
from trajcli.files.refusals import ZARR_NODE
from trajcli.files.schema import plain_value

_PLAIN = {"name": "bytes", "configuration": {"endian": "little"}}
_TEXTS = {"name": "vlen-utf8"}
_LONGEST_NAME = 255
"""Bytes of the name of a folder."""


def group_node(attributes: Mapping[str, Any]) -> str:
    """Of a group."""
    return _node(attributes, node_type="group")


def array_node(
    kind: str,
    dims: Sequence[str],
    shape: Sequence[int],
    chunk: Sequence[int],
    attributes: Mapping[str, Any] | None = None,
) -> str:
    """Of an array, uncompressed. kind: the name of a NumPy type, or "string"; chunk: the shape of
    its chunks, which are files "c.0.0" in its folder."""
    texts = kind == "string"
    return _node(
        attributes or {},
        node_type="array",
        shape=shape,
        data_type=kind,
        chunk_grid={"name": "regular", "configuration": {"chunk_shape": chunk}},
        chunk_key_encoding={"name": "default", "configuration": {"separator": "."}},
        fill_value="" if texts else np.dtype(kind).type(0).item(),
        codecs=[_TEXTS if texts else _PLAIN],
        dimension_names=dims,
    )


def string_chunk(texts: Sequence[str]) -> bytes:
    """The one chunk of an array of strings: their number, and each behind its length in bytes."""
    encoded = [text_of(text).encode() for text in texts]
    parts = (struct.pack("<I", len(text)) + text for text in encoded)
    return struct.pack("<I", len(encoded)) + b"".join(parts)


def require_folders(names: Sequence[str]) -> None:
    """Raise OutputError for trajectories whose names are no folders in the store."""
    require_names(names)
    for name, part in ((one, part) for one in names for part in one.split("/")):
        bad = part in ("", ".", "..", ZARR_NODE) or part.startswith("__")
        if bad or len(os.fsencode(part)) > _LONGEST_NAME:
            hint = "--pack writes all into one array"
            raise OutputError(Fault("a name that a Zarr store cannot have", name, hint=hint))


def _node(attributes: Mapping[str, Any], **about: Any) -> str:
    texts = {n: text_of(v) if isinstance(v, str) else v for n, v in sorted(attributes.items())}
    document = {"zarr_format": 3, **about, "attributes": texts}
    return json.dumps(document, indent=2, default=plain_value) + "\n"
