"""Reading a file in a child process, so that a file that kills its reader is only a bad file.

The child answers one request a line: the name of a method of :class:`ArrayFile` and its arguments
as JSON, answered by JSON and, where rows are asked for, their bytes. It runs under a limit on
memory and, for every answer, on time; whatever it dies of becomes an InputError here.
"""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from trajcli.errors import Fault, InputError
from trajcli.files.arrays import ArrayFile, Dataset
from trajcli.files.file_bytes import OpenFiles
from trajcli.system import limit_memory

MEMORY_LIMIT = 4 << 30
"""Address space of the child, bytes; its libraries take about a quarter."""
SECONDS = 8.0
"""Time for an answer, plus a second for every ``BYTES_PER_SECOND`` asked for."""
BYTES_PER_SECOND = 5_000_000
_MOST_TEXTS, _LONGEST_TEXTS = 10_000, 1 << 20
"""How many texts of any length, such as names of joints, are handed over, and their characters."""


class UntrustedFile(ArrayFile):
    """A file read by a child process."""

    def __init__(self, path: Path, family: str, pool: OpenFiles | None = None) -> None:
        super().__init__(path, family, pool)
        self.opened()

    def begin(self) -> _Child:
        child = _Child(self.path, self.family, self.pool)
        try:
            child.ask("attributes", "")  # opens the file
        except InputError:
            child.close()
            raise
        return child

    def _ask(self, method: str, *arguments: Any, size: int = 0) -> Any:
        with self.lock:
            return self.opened().ask(method, *arguments, size=size)

    def get(self, name: str) -> Dataset | None:
        about = self._ask("get", name)
        if about is None:
            return None
        dtype, shape = np.dtype(about.pop("dtype")), tuple(about.pop("shape"))
        if (texts := about.pop("texts", None)) is not None:
            values = np.array(texts, str)
            return Dataset(
                shape=shape, dtype=values.dtype, reader=lambda a, b: values[a:b], **about
            )

        def read_rows(start: int, stop: int) -> Any:
            part = shape
            if shape:
                start, stop, _ = slice(start, stop).indices(shape[0])
                part = (max(stop - start, 0), *shape[1:])
            size = math.prod(part) * dtype.itemsize
            data = self._ask("read_rows", name, start, stop, size=size)
            return np.frombuffer(data, dtype).reshape(part)

        return Dataset(shape=shape, dtype=dtype, reader=read_rows, **about)

    def names(self) -> list[str]:
        return list(self._ask("names"))

    def attributes(self, group: str = "") -> Mapping[str, Any]:
        return dict(self._ask("attributes", group))

    def children(self, group: str = "") -> list[str]:
        return list(self._ask("children", group))

    def read_beside(self, name: str) -> dict[str, Any]:
        return dict(self._ask("read_beside", name))


class _Child:
    """The process that reads a file."""

    def __init__(self, path: Path, family: str, pool: OpenFiles) -> None:
        self._path, self._family = path, family
        self._late = False
        # -m puts the current folder first on the path: let that be where trajcli itself is.
        home = Path(__file__).resolve().parents[2]
        options = [os.getcwd(), str(path), family, str(pool.memory), str(int(pool.allow_external))]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "trajcli.files.untrusted", *options],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=home,
            env={**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"},
        )

    def close(self) -> None:
        """End it."""
        self.process.kill()
        self.process.communicate()

    def ask(self, method: str, *arguments: Any, size: int = 0) -> Any:
        """The answer to a request; size: bytes of values that must follow, which are then it."""
        requests, answers = self.process.stdin, self.process.stdout
        assert requests is not None
        assert answers is not None
        timer = threading.Timer(SECONDS + size / BYTES_PER_SECOND, self._stop)
        timer.daemon = True
        timer.start()
        answer, data = None, b""
        try:
            requests.write(json.dumps([method, *arguments]).encode() + b"\n")
            requests.flush()
            line = answers.readline()
            answer = json.loads(line) if line.endswith(b"\n") else None
            data = answers.read(size) if size and answer and "value" in answer else b""
        except (OSError, ValueError, RecursionError):
            answer = None
        finally:
            timer.cancel()
        if answer is not None and "faults" in answer:
            raise InputError(*(Fault(**fault) for fault in answer["faults"]))
        if answer is None or len(data) < size:
            self.process.kill()
            raise InputError(self._ended())
        return data if method == "read_rows" else answer["value"]

    def _stop(self) -> None:
        self._late = True
        self.process.kill()

    def _ended(self) -> Fault:
        """The fault of a child that is no more."""
        code = self.process.wait()
        how = signal.Signals(-code).name if code < 0 else f"exit status {code}"
        dead = f"reading it ended the reader ({how})"
        found = "took too long to read; it was stopped" if self._late else dead
        hint = "the file is damaged or hostile: do not open it with other programs"
        expected = f"an intact {self._family} file"
        return Fault("cannot be read", str(self._path), expected, found, hint)


def _serve(folder: str, path: str, family: str, memory: str, allow_external: str) -> None:
    """The child: answer requests until the parent goes."""
    from trajcli.files.opening import open_family

    limit_memory(MEMORY_LIMIT)
    os.chdir(folder)
    out, pool = sys.stdout.buffer, OpenFiles(int(memory), allow_external == "1")
    file: ArrayFile | None = None
    for line in sys.stdin.buffer:
        method, *arguments = json.loads(line)
        data: bytes = b""
        try:
            if file is None:
                file = open_family(Path(path), family, pool)
            if method == "read_rows":
                rows = file.require(arguments[0]).read_rows(*arguments[1:])
                value, data = None, np.ascontiguousarray(rows).tobytes()
            else:
                value = _plain(getattr(file, method)(*arguments))
            answer = {"value": value}
        except InputError as error:
            answer = {"faults": [fault.as_dict() for fault in error.faults]}
        except MemoryError:
            fault = Fault("cannot be read", path, f"at most {MEMORY_LIMIT >> 30} GiB", "more")
            answer = {"faults": [fault.as_dict()]}
        out.write(json.dumps(answer).encode() + b"\n" + data)
        out.flush()


def _plain(value: Any) -> Any:
    """What a method gives, as JSON has it; it has no long double."""
    if isinstance(value, Dataset):
        if value.dtype.names:
            value.require_numeric()
        names = ("where", "shape", "storage", "attributes")
        about = {"dtype": value.dtype.str, **{name: _plain(getattr(value, name)) for name in names}}
        if value.dtype.hasobject or not value.dtype.itemsize:  # of any length, such as names
            if value.ndim != 1 or value.shape[0] > _MOST_TEXTS:
                value.require_numeric()
            texts = value.texts()
            if sum(map(len, texts)) > _LONGEST_TEXTS:
                value.require_numeric()
            about |= {"dtype": "U", "texts": texts}
        return about
    if isinstance(value, (np.ndarray, np.generic)):
        value = value.tolist()
        return value if isinstance(value, (str, int, float, list)) else None
    if isinstance(value, Mapping):
        plain = {name: _plain(entry) for name, entry in value.items()}
        return {name: entry for name, entry in plain.items() if entry is not None}
    return value


if __name__ == "__main__":
    _serve(*sys.argv[1:6])
