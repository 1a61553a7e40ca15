"""The tests of the compiled kernels under the address and undefined-behaviour sanitizers.

    python tests/kernels/sanitize.py [--small] [ARGUMENTS FOR PYTEST]

builds the kernels once more with -fsanitize=address,undefined, beside a copy of the package in a
temporary folder, and runs their tests against it. Any finding ends them. It takes g++.

``--small`` builds them once, for any machine but with the widest vectors, whose reads and writes
reach furthest: a quarter of the time.
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
    *("-std=c++17", "-O1", "-g1", "-fno-omit-frame-pointer", "-ffp-contract=off"),
    *("-fno-math-errno", "-pthread", "-fPIC", "-shared", "-Wno-psabi"),
    *("-fsanitize=address,undefined", "-fno-sanitize-recover=undefined"),
]
TESTS = [
    str(ROOT / f"tests/kernels/{name}.py")
    for name in ("test_memory", "test_native", "test_programs", "test_fastest")
]  # fmt: skip
START = """
import sys, pytest
# an editable install would give its own kernels
sys.meta_path = [x for x in sys.meta_path if "Redirecting" not in type(x).__name__]
from trajcli.kernels import native
found = native._library()[0]._name
assert found == sys.argv[1], f"{found} would be tested"
sys.exit(pytest.main(sys.argv[2:]))
"""
OTHER_LEVEL = """
namespace {} {{
void run_part(trajcli::Run& run, trajcli::Int k, trajcli::Int count) {{
    level1::run_part(run, k, count);
}}
void time_curve(const trajcli::Timings& job, trajcli::Curve& curve) {{
    level1::time_curve(job, curve);
}}
}}
"""


def build(native: Path, small: bool) -> None:
    """Compile the kernels into a library beside their sources."""
    names = sorted(path.name for path in native.glob("*.cpp"))
    if small:
        source = (native / "level1.cpp").read_text()
        assert "#define WIDTH 2" in source
        others = "".join(map(OTHER_LEVEL.format, ("level3", "level4")))
        (native / "level1.cpp").write_text(source.replace("WIDTH 2", "WIDTH 8") + others)
        names = ["entry.cpp", "level1.cpp", "-O0"]  # compiles in a third of the time
    subprocess.run(["g++", *FLAGS, *names, "-o", "_kernels.so"], check=True, cwd=native)


def main() -> int:
    """Build, run, and return pytest's exit code."""
    small = "--small" in sys.argv[1:2]
    rest = [str(Path(x).resolve()) if Path(x).exists() else x for x in sys.argv[1 + small :]]
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        ignored = shutil.ignore_patterns("*.so", "__pycache__")
        shutil.copytree(ROOT / "trajcli", place / "trajcli", ignore=ignored)
        build(place / NATIVE, small)
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
        if small:
            environment["TRAJCLI_LEVEL"] = "1"
        arguments = rest or [*TESTS, "-q", "-k", "not long and not triton"]
        options = ["-p", "no:cacheprovider", "--capture=sys", "-c", str(ROOT / "pyproject.toml")]
        library = str((place / NATIVE / "_kernels.so").resolve())
        command = [sys.executable, "-c", START, library, *options, *arguments]
        return subprocess.run(command, cwd=place, env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
