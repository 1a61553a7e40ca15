"""Reading a file in a child process, so that a file that kills its reader is only a bad file.

The child answers one request a line: a JSON object in, a JSON object out, followed by the raw
bytes of the values where rows were asked for. It runs under limits on memory and, for every
answer, on time; whatever it dies of becomes an InputError here.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from trajcli.errors import Fault, InputError
from trajcli.files.arrays import ArrayFile, StoredArray

MEMORY_LIMIT = 4 << 30
"""Address space of the child, bytes; its libraries take about a quarter."""
SECONDS = 8.0
"""Time for an answer, plus a second for every ``BYTES_PER_SECOND`` asked for."""
BYTES_PER_SECOND = 5_000_000


class UntrustedFile(ArrayFile):
    """A file read by a child process."""

    def __init__(self, path: Path, family: str, allow_external: bool) -> None:
        super().__init__(path, family)
        # -m puts the current folder first on the path: let that be where trajcli itself is.
        home = Path(__file__).resolve().parents[2]
        self._absolute = str(path.resolve())
        options = [self._absolute, family, str(int(allow_external))]
        command = [sys.executable, "-m", "trajcli.files.untrusted", *options]
        quiet = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
        self._child = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=home,
            env={**os.environ, **quiet},
        )
        try:
            self._ask({"do": "open"})
        except InputError:
            self.close()
            raise

    def names(self) -> list[str]:
        names: list[str] = self._ask({"do": "names"})[0]
        return names

    def get(self, name: str) -> StoredArray | None:
        answer, _ = self._ask({"do": "get", "name": name})
        if answer is None:
            return None
        dtype = np.dtype(answer["dtype"])
        shape = tuple(answer["shape"])

        def read(*part: int) -> Any:
            """start, stop; and first, last along the second axis."""
            counts = [stop - start for start, stop in zip(part[::2], part[1::2], strict=True)]
            given = (*counts, *shape[len(counts) :]) if shape else ()
            size = int(np.prod(given, dtype=object)) * dtype.itemsize
            _, data = self._ask({"do": "rows", "name": name, "part": part}, size)
            return np.frombuffer(data, dtype).reshape(given)

        return StoredArray(
            answer["where"], shape, dtype, read, answer["attributes"], answer["storage"], read
        )

    def attributes(self, group: str = "") -> Mapping[str, Any]:
        attributes: dict[str, Any] = self._ask({"do": "attributes", "name": group})[0]
        return attributes

    def children(self, group: str = "") -> list[str]:
        names: list[str] = self._ask({"do": "children", "name": group})[0]
        return names

    def has_group(self, name: str) -> bool:
        return bool(self._ask({"do": "has_group", "name": name})[0])

    def close(self) -> None:
        self._child.kill()
        self._child.communicate()

    def _ask(self, request: Mapping[str, Any], size: int = 0) -> tuple[Any, bytearray]:
        """One request and its answer; size: bytes of values that must follow."""
        deadline = time.monotonic() + SECONDS + size / BYTES_PER_SECOND
        assert self._child.stdin is not None
        try:
            self._child.stdin.write(json.dumps(request).encode() + b"\n")
            self._child.stdin.flush()
        except OSError:
            raise InputError(self._died()) from None
        line = self._receive(deadline, None)
        named = line.decode().replace(
            json.dumps(self._absolute)[1:-1], json.dumps(str(self.path))[1:-1]
        )
        answer = json.loads(named)
        if "faults" in answer:
            raise InputError(*(Fault(**fault) for fault in answer["faults"]))
        return answer["value"], self._receive(deadline, size)

    def _receive(self, deadline: float, size: int | None) -> bytearray:
        """``size`` bytes, or a line, from the child."""
        assert self._child.stdout is not None
        pipe = self._child.stdout.fileno()
        data = bytearray()
        while size is None or len(data) < size:
            left = deadline - time.monotonic()
            ready, _, _ = select.select([pipe], [], [], max(left, 0))
            if not ready:
                raise InputError(self._fault("took too long to read; it was stopped"))
            piece = os.read(pipe, 1 if size is None else min(size - len(data), 1 << 20))
            if not piece:
                raise InputError(self._died())
            if size is None and piece == b"\n":
                break
            data += piece
        return data

    def _died(self) -> Fault:
        code = self._child.wait()
        how = signal.Signals(-code).name if code < 0 else f"exit status {code}"
        return self._fault(f"reading it ended the reader ({how})")

    def _fault(self, found: str) -> Fault:
        hint = "the file is damaged or hostile: do not open it with other programs"
        return Fault("cannot be read", str(self.path), f"an intact {self.family} file", found, hint)


def _serve(path: str, family: str, allow_external: str) -> None:
    """The child: answer requests until the parent goes."""
    import resource

    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_LIMIT, MEMORY_LIMIT))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    out = sys.stdout.buffer
    file: ArrayFile | None = None
    for line in sys.stdin.buffer:
        request = json.loads(line)
        data: bytes = b""
        try:
            if file is None:
                from trajcli.files.opening import open_family

                file = open_family(Path(path), family, allow_external == "1")
            value, data = _answer(file, request)
            answer = {"value": value}
        except InputError as error:
            answer = {"faults": [fault.as_dict() for fault in error.faults]}
        except MemoryError:
            fault = Fault("cannot be read", path, f"at most {MEMORY_LIMIT >> 30} GiB", "more")
            answer = {"faults": [fault.as_dict()]}
        out.write(json.dumps(answer).encode() + b"\n")
        out.write(data)
        out.flush()


def _answer(file: ArrayFile, request: Mapping[str, Any]) -> tuple[Any, bytes]:
    match request["do"]:
        case "names":
            return file.names(), b""
        case "attributes":
            return _plain(file.attributes(request["name"])), b""
        case "children":
            return file.children(request["name"]), b""
        case "has_group":
            return file.has_group(request["name"]), b""
        case "get":
            found = file.get(request["name"])
            return found and _described(found), b""
        case "rows":
            stored, part = file.require(request["name"]), request["part"]
            rows = stored.read_part(*part) if len(part) == 4 else stored.read_rows(*part)
            return None, np.ascontiguousarray(rows).tobytes()
    return None, b""


def _described(array: StoredArray) -> dict[str, Any]:
    if array.dtype.names or array.dtype.hasobject:
        array.require_numeric()
    return {
        "where": array.where,
        "shape": array.shape,
        "dtype": array.dtype.str,
        "attributes": _plain(array.attributes),
        "storage": array.storage,
    }


def _plain(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Attributes as JSON has them."""
    found = {}
    for name, value in attributes.items():
        plain = value.tolist() if isinstance(value, (np.ndarray, np.generic)) else value
        if isinstance(plain, (str, int, float, list)):  # JSON has no long double
            found[name] = plain
    return found


if __name__ == "__main__":
    _serve(*sys.argv[1:4])
