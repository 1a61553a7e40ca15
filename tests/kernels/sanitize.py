"""The tests of the compiled kernels under the address and undefined-behaviour sanitizers.

    python tests/kernels/sanitize.py [ARGUMENTS FOR PYTEST]

builds the kernels once more with -fsanitize=address,undefined, beside a copy of the package in a
temporary folder, and runs their tests against it. Any finding ends them. It takes g++.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
NATIVE = Path("trajcli/kernels/native")
FLAGS = [
    *("-std=c++17", "-O1", "-g", "-fno-omit-frame-pointer", "-ffp-contract=off"),
    *("-fno-math-errno", "-pthread", "-fPIC", "-shared"),
    *("-fsanitize=address,undefined", "-fno-sanitize-recover=undefined"),
]
TESTS = [
    str(ROOT / f"tests/kernels/{name}.py")
    for name in ("test_native", "test_cascade", "test_cascade_adjoint", "test_band",
                 "test_band_adjoint")
]  # fmt: skip


def main() -> int:
    """Build, run, and return pytest's exit code."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        ignored = shutil.ignore_patterns("*.so", "__pycache__")
        shutil.copytree(ROOT / "trajcli", place / "trajcli", ignore=ignored)
        sources = sorted(str(path) for path in (place / NATIVE).glob("*.cpp"))
        library = place / NATIVE / "_kernels.so"
        subprocess.run(["g++", *FLAGS, *sources, "-o", str(library)], check=True)
        runtimes = [
            subprocess.run(
                ["g++", f"-print-file-name={name}"], check=True, capture_output=True, text=True
            ).stdout.strip()
            for name in ("libasan.so", "libubsan.so")
        ]
        environment = {
            **os.environ,
            "LD_PRELOAD": ":".join(runtimes),
            "ASAN_OPTIONS": "detect_leaks=0",  # Python keeps what it keeps
            "UBSAN_OPTIONS": "print_stacktrace=1",
            "PYTHONPATH": f"{place}:{ROOT / 'tests'}",
        }
        arguments = sys.argv[1:] or [*TESTS, "-q", "-k", "not long and not triton"]
        options = ["-p", "no:cacheprovider", "-c", str(ROOT / "pyproject.toml")]
        command = [sys.executable, "-m", "pytest", *options, *arguments]
        return subprocess.run(command, cwd=place, env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
