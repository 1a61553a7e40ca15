"""The folder of a divided run: what the run is, and a record for every unit that is done.

    OUT.h5.parts/run.json               terms, division, schema and the number of shares
    OUT.h5.parts/0003/003017-B-E.h5     trajectories B..E of the run: a part, and its record,
    OUT.h5.parts/0003/003017-B-E.json   which appears after the part has its name

Nothing is decided by a clock, or by the times of files in this folder.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import secrets
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from trajcli.errors import Fault, InputError, OutputError
from trajcli.files.placing import os_fault
from trajcli.jobs.terms import Stamps, Terms, stamp_differences
from trajcli.jobs.units import Division, Unit

FORMAT = 1
RUN = "run.json"
_READ_BYTES, _PAGE = 1 << 22, 4096
_AS_STARTED = {"shares": 1, "tasks": 1}
"""What may be otherwise each time."""

DONE, FAILED, RUNNING, MISSING, OTHER = "done", "failed", "running", "missing", "other"


def parts_folder(out: Path) -> Path:
    """Where the parts of OUT go."""
    return out if out.name.endswith(".parts") else out.parent / f"{out.name}.parts"


@dataclass(frozen=True)
class State:
    """What is known of a unit: DONE, FAILED, RUNNING, MISSING or OTHER, why, and its record."""

    kind: str
    why: str = ""
    record: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class Folder:
    """The folder of a divided run."""

    path: Path

    @staticmethod
    def require(path: Path) -> Folder:
        """The folder of a run that has begun; raises InputError where there is none."""
        if not (path / RUN).is_file():
            hint = "trajcli integrate … -o OUT --shard-index I --num-shards N makes it"
            found = "no run.json in it" if path.is_dir() else "nothing of this name"
            raise InputError(Fault("no divided run", str(path), "a folder of parts", found, hint))
        return Folder(path)

    @cached_property
    def run(self) -> Mapping[str, Any]:
        """What run.json says."""
        path = self.path / RUN
        document = read_json(path)
        if document is None or document.get("format") != FORMAT:
            found = "another format" if document else "not a JSON document"
            raise InputError(Fault("cannot be read", str(path), "what trajcli writes", found))
        return document

    @cached_property
    def terms(self) -> Terms:
        """What the run is."""
        return Terms.from_dict(self.run["terms"])

    @cached_property
    def digest(self) -> str:
        """Of the terms."""
        return self.terms.digest

    @cached_property
    def division(self) -> Division:
        """How it is cut."""
        about = self.run["division"]
        return Division([(int(n), int(each)) for n, each in about["lengths"]], int(about["least"]))

    @property
    def shares(self) -> int:
        """The number of shares of the last time."""
        return int(self.run["shares"])

    @property
    def tasks(self) -> int:
        """How many of them one task of a Slurm array stood for."""
        return int(self.run["tasks"])

    def part(self, unit: Unit) -> Path:
        """The part of a unit."""
        return self.path / unit.folder / f"{unit.name}.h5"

    def record(self, unit: Unit) -> Path:
        """The record of a unit."""
        return self.path / unit.folder / f"{unit.name}.json"

    def begin(self, document: Mapping[str, Any], replace: bool, durable: bool) -> None:
        """Write run.json, or agree with the one there is; raises OutputError where that is another.

        replace: what other terms have left is taken over.
        """
        path = self.path / RUN
        document = json.loads(json.dumps(document))
        try:
            self.path.mkdir(exist_ok=True)
            if not path.exists() and write_json(path, document, durable, fresh=True):
                return
        except OSError as error:
            raise OutputError(os_fault(path, error)) from None
        there = read_json(path)
        if there is None:
            there = {}
        if {**there, **_AS_STARTED} == {**document, **_AS_STARTED}:
            if there != document:
                write_json(path, document, durable)
            return
        if not replace:
            raise OutputError(_other_run(self.path, there, document))
        write_json(path, document, durable)

    def state(self, unit: Unit, inputs: Stamps | None = None) -> State:
        """What is known of a unit, by its record, its part and the lock on what is written.

        inputs: what its record has to say of these; the lock is then not asked for.
        """
        record = read_json(self.record(unit))
        if record is not None and record.get("digest") != self.digest:
            return State(OTHER, _differences(record, self.terms), record)
        if record is not None and record.get("state") == DONE:
            changed = stamp_differences(record["inputs"], inputs) if inputs is not None else []
            if changed:
                return State(OTHER, "; ".join(changed[:5]), record)
            size = _size(self.part(unit))
            if size == record["bytes"]:
                return State(DONE, record=record)
            found = "gone" if size is None else f"{size} bytes"
            why = f"{self.part(unit)}: {record['bytes']} bytes were written, now {found}"
            return State(MISSING, why, record)
        if inputs is None and _is_locked(self.part(unit)):
            return State(RUNNING, record=record)
        if record is not None:
            return State(FAILED, record=record)
        return State(MISSING)

    def write_record(
        self, unit: Unit, inputs: Stamps, values: Mapping[str, Any], durable: bool
    ) -> None:
        """Record a unit, in one step."""
        about = {
            "format": FORMAT,
            "unit": unit.number,
            "trajectories": list(unit.trajectories),
            "digest": self.digest,
            **values,
            "inputs": inputs,
            "terms": self.run["terms"],
        }
        path = self.record(unit)
        try:
            write_json(path, about, durable)
        except OSError as error:
            raise OutputError(os_fault(path, error)) from None


def checksum(path: Path) -> int:
    """CRC-32 of the sums of a file's pages, as whole numbers of 8 bytes, and of its last bytes.

    Twice as fast as that of all bytes; pages that are zero, torn, swapped or of another file
    differ, and so does every byte.
    """
    value, buffer = 0, np.empty(_READ_BYTES // 8, np.uint64)
    view = memoryview(buffer.view(np.uint8))  # type: ignore[arg-type]
    with open(path, "rb", buffering=0) as file:
        while count := _fill(file, view):
            whole = count // _PAGE
            pages = buffer[: whole * _PAGE // 8].reshape(whole, _PAGE // 8)
            value = zlib.crc32(np.add.reduce(pages, axis=1).tobytes(), value)
            value = zlib.crc32(view[whole * _PAGE : count], value)
    return value


def _fill(file: Any, view: memoryview) -> int:
    """As many bytes as there are and fit."""
    count = 0
    while count < len(view) and (more := file.readinto(view[count:])):
        count += more
    return count


def read_json(path: Path) -> dict[str, Any] | None:
    """A JSON document; None where there is none."""
    try:
        document = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return None
    return document if isinstance(document, dict) else None


def write_json(
    path: Path, document: Mapping[str, Any], durable: bool = False, fresh: bool = False
) -> bool:
    """Write a document under a name of its own and rename it; ``fresh``: only if none is there."""
    hidden = path.parent / f".{path.name}.{secrets.token_hex(8)}"
    try:
        with open(hidden, "x", encoding="utf-8") as file:
            json.dump(document, file)
            file.flush()
            if durable:
                os.fsync(file.fileno())
        if fresh:
            return _link(hidden, path)
        os.replace(hidden, path)
    finally:
        hidden.unlink(missing_ok=True)
    if durable:
        descriptor = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    return True


def _link(hidden: Path, path: Path) -> bool:
    """Give a file a name that must be free; False where it is not."""
    try:
        os.link(hidden, path)
    except FileExistsError:
        return False
    except OSError:  # a file system without hard links
        os.replace(hidden, path)
    return True


def _size(path: Path) -> int | None:
    try:
        return path.stat().st_size
    except OSError:
        return None


def _is_locked(part: Path) -> bool:
    """Whether a run is writing this part just now."""
    try:
        descriptor = os.open(part.parent / f".{part.name}.trajcli-part", os.O_RDONLY)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False  # a file system without locks
    finally:
        os.close(descriptor)
    return False


def _differences(record: Mapping[str, Any], terms: Terms) -> str:
    with contextlib.suppress(KeyError, TypeError, AttributeError):
        found = Terms.from_dict(record["terms"]).differences(terms)
        if found:
            return "; ".join(found[:5])
    return "of another run"


def _other_run(path: Path, there: Mapping[str, Any], here: Mapping[str, Any]) -> Fault:
    expected = "parts of this very command"
    hint = "another OUT, or --overwrite, which replaces parts that other options made"
    found = _differences(there, Terms.from_dict(here["terms"]))
    return Fault("parts made otherwise", str(path), expected, found, hint)
