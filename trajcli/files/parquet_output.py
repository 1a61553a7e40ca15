"""Parquet files copied with further columns."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from trajcli.errors import InputError
from trajcli.files.arrays import json_object
from trajcli.files.file_bytes import unreadable

Columns = Callable[[int, Any], Mapping[str, Any]]
"""From the first row of a row group, and its table, further columns: Arrow arrays by name."""


def append_columns(source: Path, target: Path, columns: Columns) -> None:
    """Copy a file, a row group at a time, with further columns behind the others.

    Raises InputError where it cannot be read.
    """
    import pyarrow as arrow
    from pyarrow import parquet

    first, writer = 0, None
    try:
        with parquet.ParquetFile(source) as file:
            for number in range(file.num_row_groups):
                table = file.read_row_group(number)
                for name, values in columns(first, table).items():
                    table = table.append_column(name, values)
                table = table.replace_schema_metadata(_described(table.schema))
                writer = writer or parquet.ParquetWriter(target, table.schema)
                writer.write_table(table)
                first += len(table)
    except arrow.ArrowException as error:
        raise InputError(unreadable(source, "an intact Parquet file", error)) from None
    finally:
        if writer is not None:
            writer.close()


def _described(schema: Any) -> dict[bytes, bytes]:
    """The metadata of a file, with all columns where the library datasets describes them there."""
    metadata = dict(schema.metadata or {})
    document = json_object(metadata.get(b"huggingface"))
    features = document.get("info", {}).get("features")
    if isinstance(features, dict):
        kinds = {one.get("_type") for one in features.values() if isinstance(one, dict)}
        lists = "List" if "List" in kinds else "Sequence"
        for field in schema:
            features.setdefault(field.name, _feature(field.type, lists))
        metadata[b"huggingface"] = json.dumps(document).encode()
    return metadata


def _feature(kind: Any, lists: str) -> dict[str, Any]:
    """How that library describes a type."""
    if hasattr(kind, "value_type"):
        length = getattr(kind, "list_size", -1)
        return {"feature": _feature(kind.value_type, lists), "length": length, "_type": lists}
    name = {"float": "float32", "double": "float64"}.get(str(kind), str(kind))
    return {"dtype": name, "_type": "Value"}
