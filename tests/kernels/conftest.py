"""The backends that the tests of kernels run on."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
import torch
from kernels.ptx import driver

from trajcli.kernels import cuda

BACKENDS = ["torch", "native 1", "native 3", "native 4"]
if "TRAJCLI_PTX" in os.environ:  # Triton's kernels without a device: see test_triton_emulated.py
    driver.emulate(int(os.environ["TRAJCLI_PTX"].replace(".", "")))
    driver.stand_in()
if driver.emulated or cuda.driver():
    BACKENDS.append("triton")


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """torch; the compiled kernels held to an instruction set: any machine's, AVX2, AVX-512; and
    Triton's where there is a CUDA device, or the process emulates one."""
    name, _, level = request.param.partition(" ")
    if name == "native":
        from trajcli.kernels import native

        if native.absence():
            pytest.skip(native.absence())
        if int(level) > native.level():
            pytest.skip(f"this machine has no {native.LEVELS[int(level)]}")
        monkeypatch.setenv("TRAJCLI_LEVEL", level)
    elif name == "triton" and not driver.emulated and cuda.absence():
        pytest.skip(cuda.absence())
    return str(request.param)


@pytest.fixture
def compiled(backend: str) -> str:
    """Those to compare with torch."""
    if backend == "torch":
        pytest.skip("it is the one compared with")
    return backend


@pytest.fixture(autouse=True, scope="session")
def one_thread() -> Iterator[None]:
    """torch gains nothing by more on arrays this small, and they disturb each other."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
