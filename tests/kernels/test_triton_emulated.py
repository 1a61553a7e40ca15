"""The Triton kernels without a CUDA device: compiled, and their PTX run on the CPU.

In processes of their own, which have another driver. Random cases run on the newest Triton; on the
least, and on that of torch 2.11, where these lie in build/triton35 and build/triton36:

    pip install --no-deps --target build/triton35 'triton==3.5.*'

More of them: see ptx/compare.py.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from xml.etree import ElementTree

import pytest

from trajcli.kernels import cuda
from trajcli.kernels.choose import triton_absence

ROOT = Path(__file__).parents[2]
FILE = Path(__file__).with_name("test_triton.py")
SKIPPED = "test_every or test_any_number or test_bands or test_windows or test_later_calls and not"
SKIPPED += " acceleration"
"""Tests of devices that random cases stand for here, and prepared calls of bands, whose compilation
takes long and which go the way of those of a cascade."""

pytestmark = [
    pytest.mark.skipif(bool(triton_absence()), reason=triton_absence()),
    pytest.mark.skipif(cuda.count() > 0, reason="test_triton.py runs on the CUDA device"),
]


def python(*arguments: str, first: Path | None = None, **variables: str) -> str:
    """What a process prints, with modules of ``first`` before those of others."""
    places = [*([str(first)] if first else []), str(ROOT / "tests"), *sys.path]
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST_")}
    environment |= {"PYTHONPATH": os.pathsep.join(places), "OMP_NUM_THREADS": "1", **variables}
    command = [sys.executable, *arguments]
    process = subprocess.run(
        command, env=environment, capture_output=True, text=True, cwd=ROOT, check=False
    )
    output = process.stdout + process.stderr
    assert process.returncode == 0, f"exit {process.returncode}: {output[-6000:]}"
    return process.stdout


@pytest.mark.parametrize(
    ("version", "capabilities"), [("", ["7.5", "12.0"]), ("3.5", ["9.0"]), ("3.6", ["9.0"])]
)
def test_random_cases_give_what_torch_gives(
    version: str, capabilities: list[str], tmp_path: Path
) -> None:
    folder = ROOT / "build" / f"triton{version.replace('.', '')}" if version else None
    if folder and not folder.exists():
        pytest.skip(f"no {folder.relative_to(ROOT)}")
    command = ["-m", "kernels.ptx.compare", *capabilities, "--cases", "2"]
    printed = python(*command, first=folder, TRITON_CACHE_DIR=str(tmp_path))
    reports = [json.loads(line) for line in printed.splitlines()]
    assert [report["capability"] for report in reports] == capabilities
    assert all(report["triton"].startswith(version) for report in reports)
    assert sum(report["launches"] for report in reports) > 0  # a band may have no rows


def test_the_tests_of_devices_pass(tmp_path: Path) -> None:
    report = tmp_path / "report.xml"
    options = ["-p", "no:cacheprovider", f"--basetemp={tmp_path / 'inner'}", f"--junitxml={report}"]
    python(
        "-m", "pytest", *options, "-k", f"not ({SKIPPED})", str(FILE),
        TRAJCLI_PTX="9.0", TRITON_CACHE_DIR=str(tmp_path / "cache"),
    )  # fmt: skip
    (suite,) = ElementTree.parse(report).getroot()
    assert int(suite.attrib["tests"]) >= 7
    assert suite.attrib["skipped"] == "0"


def test_what_a_device_is_checked_with_passes_without_one(tmp_path: Path) -> None:
    """benchmarks/gpu.py, through Triton's launcher."""
    report, cache = tmp_path / "gpu.json", str(tmp_path / "cache")
    options = ["--dry", "--report", str(report)]
    said = python("benchmarks/gpu.py", *options, TRITON_CACHE_DIR=cache)
    assert said.splitlines()[-2:] == ["RIGHT: PASS", "FAST: not measured"]
    found = json.loads(report.read_text())
    assert (found["right"], found["fast"]) == (True, None)
    rows = {(row["stage"], row["case"]): row for row in found["rows"]}
    right = Counter(stage for (stage, _), row in rows.items() if row.get("right"))
    assert right == {"compile": 1, "checks of float32": 6, "times": 1}
    assert rows["host", ""]["forward"] > 0
    assert rows["tests", ""]["passed"] > rows["tests", ""]["failed"] == 0
    kernels = {name.split()[0].rpartition(".")[2] for name in found["kernels"]}
    assert kernels == {"forward", "adjoint"}
    assert not found["compiled late"], "another process compiled another kernel than was needed"


FAULTS = """
import os
import gpu

def lost():
    raise RuntimeError("an illegal access") from ValueError("its cause")

def units(report):
    works = {"dies": os.abort, "lost": lost, "after": lambda: {"right": True}}
    return [("checks of float32", name, work) for name, work in works.items()]

gpu.units, gpu.spoilt, gpu.tests = units, lambda: True, lambda limit: {"failed": 0}
if __name__ == "__main__":
    gpu.main()
"""


def test_rows_come_after_one_that_took_the_device_with_it(tmp_path: Path) -> None:
    script, report = tmp_path / "faults.py", tmp_path / "gpu.json"
    script.write_text(FAULTS)
    with pytest.raises(AssertionError) as failed:
        python(str(script), "--dry", "--report", str(report), first=ROOT / "benchmarks")
    assert "RIGHT: FAIL" in str(failed.value)
    found = json.loads(report.read_text())
    rows = {row["case"]: row for row in found["rows"]}
    assert list(rows) == ["dies", "lost", "after", ""]
    assert [row.get("right") for row in rows.values()] == [False, False, True, None]
    assert "Aborted" in rows["dies"]["traceback"]
    assert rows["lost"]["causes"] == ["ValueError: its cause"]
    assert found["figures"]["cases that are wrong or fail"] == 2
    assert found["right"] is False
