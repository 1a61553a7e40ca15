"""Shards of a run that writes Zarr: all write their own chunks into one store.

    OUT.zarr.parts/store                the store, until all shards are done: then it is OUT
    OUT.zarr.parts/00003-of-00064.json  which chunks shard 3 of 64 wrote, with their CRC-32
    OUT.zarr.parts/00003-of-00064.h5    it is done; and what is not by trajectory

No chunk has trajectories of two shards. A shard writes its chunks in a hidden folder, and then
moves them into the store, each in one step. The last one to be done gives the store its name.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from trajcli.errors import BusyError, Fault, InputError, UsageError
from trajcli.files.arrays import json_object
from trajcli.files.atomic_output import HiddenFolder, remove_dead
from trajcli.files.hdf5 import Hdf5File
from trajcli.files.hdf5_output import Hdf5Output
from trajcli.files.opening import Files
from trajcli.files.refusals import os_failures
from trajcli.files.schema import Schema
from trajcli.files.zarr_output import ZarrStore, chunk_name, trajectories_per_chunk
from trajcli.jobs.plan import Plan, make_plan
from trajcli.jobs.request import Request
from trajcli.jobs.shards import find_run, parts_folder

STORE, _TABLE = "store", ".json"


@dataclass(frozen=True)
class SharedStore:
    """What all shards of a run write: its schema, and the numbers of its trajectories, in order."""

    schema: Schema
    numbers: Any

    def part(self, plan: Plan, path: Path, schema: Schema) -> ZarrPart:
        """The output of a shard, of which there is a plan."""
        mine = [np.searchsorted(self.numbers, part.numbers) for part in plan.resolved.by_length]
        labels = {**schema.attributes, **self.schema.attributes}
        return ZarrPart(path, replace(schema, attributes=labels), self.schema, mine)


def shared_store(request: Request, files: Files) -> tuple[Request, SharedStore]:
    """The store of a run in shards, and the request of one by what is known of the whole.

    Raises UsageError for options that leave open which trajectories there are.
    """
    assert request.shard is not None
    if request.skip_bad:
        what, hint = "trajectories of a store in shards are all known", "-o OUT.h5, and then merge"
        raise UsageError(Fault(what, "--skip-bad", "none left out", hint=hint))
    whole = make_plan(replace(request, shard=None, overwrite=True), files)
    numbers = np.sort(np.concatenate([part.numbers for part in whole.resolved.by_length]))
    shard = replace(request.shard, together=trajectories_per_chunk(whole.schema))
    return replace(request, shard=shard, dtype=whole.dtype), SharedStore(whole.schema, numbers)


class ZarrPart(Hdf5Output):
    """The part of a shard. numbers: those of its trajectories in the store, by length."""

    def __init__(self, path: Path, schema: Schema, whole: Schema, numbers: Sequence[Any]) -> None:
        by_trajectory = {v.name: v for v in whole.variables if v.by_trajectory}
        shared = [v for v in schema.variables if v.name not in by_trajectory]
        super().__init__(path, replace(schema, variables=shared, groups=(), trajectory_names=None))
        self._chunked, self._whole, self._numbers = by_trajectory, whole, numbers
        self._variables |= by_trajectory

    @property
    def _made(self) -> Path:
        return self._hidden.path / STORE

    @cached_property
    def _store(self) -> ZarrStore:
        return ZarrStore(self._made, self._whole, self._numbers)

    def _prepare(self) -> None:
        super()._prepare()
        self._store.make()

    def _write_known(self) -> None:
        super()._write_known()
        for variable in self._chunked.values():
            if variable.values is not None:
                for k, numbers in enumerate(self._numbers):
                    self.write(variable.name, 0, variable.values[numbers], k)

    def place(self, *_: Any) -> None:
        """None: entries lie in several files."""

    def write(self, name: str, row: int, block: Any, group: int = 0) -> None:
        """Entries row, row + 1, … of a variable."""
        if name not in self._chunked:
            super().write(name, row, block)
            return
        with os_failures(self.path):
            self._store.write(name, row, block, group)

    def _complete(self) -> None:
        super()._complete()
        made = [path for path in sorted(self._made.rglob("*")) if path.is_file()]
        table = {str(path.relative_to(self._made)): _checksum(path) for path in made}
        count = sum(len(numbers) for numbers in self._numbers)
        document = json.dumps({"trajectories": count, "chunks": table})
        (self._hidden.path / _TABLE).write_text(document)
        for path in made:
            target = self.path.parent / STORE / path.relative_to(self._made)
            target.parent.mkdir(parents=True, exist_ok=True)
            os.replace(path, target)
        os.replace(self._hidden.path / _TABLE, self.path.with_suffix(_TABLE))


def require_chunks(part: Path) -> None:
    """Raise InputError where chunks of a part, in the store or in OUT, are not as it wrote them."""
    store, out = part.parent / STORE, part.parent.with_suffix("")
    places = [place for place in (store, out) if place.is_dir()] or [store]
    table = _table_of(part)[1]
    faults = [fault for place in places if (fault := _fault_of(place, table))]
    if len(faults) == len(places):
        raise InputError(faults[0])


def _fault_of(store: Path, table: Mapping[str, int]) -> Fault | None:
    """The fault of the first file in a store that is not as it was written."""
    for name, crc in table.items():
        chunk = store / name
        if not chunk.is_file() or _checksum(chunk) != crc:
            found = "others" if chunk.is_file() else "no such file"
            return Fault("damaged", str(chunk), "the bytes written", found)
    return None


def _table_of(part: Path) -> tuple[int, dict[str, int]]:
    """How many trajectories a part has, and the files that it wrote with their checksums."""
    path = part.with_suffix(_TABLE)
    document = json_object(path.read_bytes() if path.is_file() else None)
    count, table = document.get("trajectories"), document.get("chunks")
    if not isinstance(table, dict) or not isinstance(count, int):
        raise InputError(Fault("damaged", str(path), "the checksums of a part"))
    return count, table


def close_when_done(request: Request) -> list[str]:
    """Complete the store if all its shards are done and no other one is at it; what there is to
    say of it. Raises OutputError where OUT cannot be written."""
    out, folder = request.out, request.path.parent
    assert request.shard is not None
    if not (folder / STORE).is_dir():  # it is complete
        remove_dead(out)
        return []
    done = len(list(folder.glob(f"*-of-{request.shard.count:05}.h5")))
    if done < request.shard.count or find_run(out).faults:
        return []
    try:
        report = close_store(out, request.overwrite, request.durable)
    except BusyError:
        return []
    except InputError as error:
        fault = error.faults[0]
        return [f"not complete: {fault.where}: {fault.what}; {fault.hint}"]
    whole = f"all shards are done: {out} has {report['trajectories']} trajectories"
    return [whole, *report["notes"]]


def close_store(out: Path, overwrite: bool, durable: bool) -> dict[str, Any]:
    """Complete a store whose parts are all there, and give it the name OUT; the parts stay.

    Returns a report of plain values. Raises InputError where a part is missing, damaged or of
    another command, OutputError where OUT is there, BusyError where another process does the same.
    """
    began, folder = time.perf_counter(), parts_folder(out)
    hidden = HiddenFolder(out, overwrite or not (folder / STORE).is_dir(), folder=True)
    try:
        parts = [part.path for part in find_run(out, checked=True).require_all(out)]
        tables = [_table_of(part) for part in parts]
        written = {name: crc for _, table in tables for name, crc in table.items()}
        if _fault_of(out, written):
            if fault := _fault_of(folder / STORE, written):
                hint = f"rm -r {folder}, and run all shards again"
                raise InputError(replace(fault, what="some chunks are in OUT alone", hint=hint))
            with os_failures(out):
                _complete(folder / STORE, parts, set(written))
                hidden.data = folder / STORE
                hidden.publish(durable)
        notes = []
        if (folder / STORE).is_dir():  # what was OUT
            try:
                os.rename(folder / STORE, hidden.path)
            except OSError:
                notes.append(f"{folder / STORE} could not be removed; nothing needs it")
    finally:
        hidden.close()
    size, seconds = sum(path.stat().st_size for path in out.rglob("*")), time.perf_counter() - began
    total = sum(count for count, _ in tables)
    report = {"out": str(out), "virtual": False, "parts": len(parts), "trajectories": total}
    rate = size / seconds / 1e9
    return report | {"notes": notes, "bytes_written": size, "seconds": seconds, "gb_per_s": rate}


def _complete(store: Path, parts: Sequence[Path], written: set[str]) -> None:
    """Write what is not by trajectory, and remove what shards of another command have left."""
    values: dict[str, list[Any]] = {}
    for part in parts:
        with Hdf5File(part) as file:
            for name in file.names():
                if (store / name).is_dir() and file.require(name).numeric:
                    values.setdefault(name, []).append(file.require(name).read())
    for name, found in values.items():
        summed = name.startswith("grad/")
        value = np.asarray(sum(found) if summed else max(found, key=np.size))
        chunk = f"{name}/{chunk_name(value.ndim)}"
        (store / chunk).write_bytes(value.astype(value.dtype.newbyteorder("<")).tobytes())
        written.add(chunk)
    for path in sorted(store.rglob("*"), reverse=True):
        if path.is_dir():
            with contextlib.suppress(OSError):  # those that are not empty
                path.rmdir()
        elif str(path.relative_to(store)) not in written:
            path.unlink()


def _checksum(path: Path) -> int:
    value = 0
    with open(path, "rb") as file:
        while block := file.read(4 << 20):
            value = zlib.crc32(block, value)
    return value
