"""The library is a guest in its caller's process: it leaves everything there as it was.

Run as a program, this prints as JSON what each public call changes.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib.util
import itertools
import json
import locale
import logging
import os
import random
import resource
import signal
import subprocess
import sys
import tempfile
import threading
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import torch

C = ctypes.CDLL(None)
TIMERS = (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL, signal.ITIMER_PROF)


def read_handlers() -> list[bytes]:
    """The handlers that sigaction(2) knows: ``signal.getsignal`` sees Python's own only."""
    buffers = [ctypes.create_string_buffer(256) for _ in range(1, signal.NSIG)]
    for number, buffer in enumerate(buffers, 1):
        C.sigaction(number, None, buffer)
    return [buffer.raw[:8] for buffer in buffers]


def read_environment() -> list[bytes]:
    """The variables that C has, which are not those of os.environ."""
    environ = ctypes.POINTER(ctypes.c_char_p).in_dll(C, "environ")
    return sorted(itertools.takewhile(bool, map(environ.__getitem__, itertools.count())))


PROBES: dict[str, Callable[[], Any]] = {
    "signal handlers": lambda: {k: signal.getsignal(k) for k in signal.valid_signals()},
    "signal handlers of C": read_handlers,
    "signal mask": lambda: signal.pthread_sigmask(signal.SIG_BLOCK, ()),
    "timers": lambda: [(t > 0, step) for t, step in map(signal.getitimer, TIMERS)],
    # zarr's pool has as many threads as it had work for
    "threads": lambda: {x.name for x in threading.enumerate() if x.name[:8] != "asyncio_"},
    "switching of threads": sys.getswitchinterval,
    "threads of torch": lambda: [torch.get_num_threads(), torch.get_num_interop_threads()],
    "garbage": lambda: [gc.isenabled(), gc.get_threshold(), gc.get_freeze_count()],
    "environment": lambda: dict(os.environ),
    "environment of C": read_environment,
    "descriptors": lambda: {str(path) + os.readlink(path) for path in
                            Path("/proc/self/fd").iterdir() if os.path.lexists(path)},
    "warnings": lambda: [*warnings.filters, warnings.showwarning],
    "limits": lambda: [resource.getrlimit(k) for k in range(16)],
    "folder and mask": lambda: [os.getcwd(), os.umask(mask := os.umask(0o22)), mask],
    "locale": lambda: locale.setlocale(locale.LC_ALL),
    "floating point": lambda: [np.geterr(), float(np.float32(1e-45) * np.float32(1.0))],
    "random numbers": lambda: [random.getstate(), np.random.get_state()[2],
                               np.random.get_state()[1].tobytes(), torch.get_rng_state().tolist()],
    "settings of torch": lambda: [torch.get_default_dtype(), torch.is_grad_enabled()],
    "logging": lambda: [[*logging.getLogger(k).handlers] for k in ("", "asyncio", "trajcli")],
    "hooks": lambda: [sys.excepthook, threading.excepthook, sys.gettrace()],
    "search path": lambda: [*sys.path],
    "settings of h5py": lambda: [getattr(h5py.get_config(), k) for k in
                                 ("complex_names", "bool_names", "track_order")],
    "print options": np.get_printoptions,
}  # fmt: skip


def list_calls(folder: Path) -> dict[str, Callable[[], Any]]:
    """Every public function, on NumPy and on torch, and what is refused, by name."""
    import trajcli
    from trajcli import State, integrate, matrices

    u, path, half = np.random.default_rng(0).standard_normal((3, 40, 2)), folder / "a.h5", "half.h5"
    leaf, dt = torch.from_numpy(u).requires_grad_(), torch.tensor(0.1, requires_grad=True)
    found, of_torch = (integrate(x, "zero", 0.1, "jerk", scheme="zoh") for x in (u, leaf))
    limits = {"velocity": 1.0, "acceleration": 2.0, "jerk": 3.0}

    def pull(**options: Any) -> None:
        sum(x.square().sum() for x in integrate(leaf, "zero", dt, **options) if x is not None
            ).backward()  # fmt: skip

    def refuse(call: Callable[[], Any]) -> None:
        with contextlib.suppress(trajcli.TrajcliError):
            call()
            raise AssertionError("it was taken")

    found.save(path)
    (folder / half).write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with h5py.File(path, "r+") as file:
        file["joint_names"], file.attrs["note"] = ["shoulder", "elbow"], "made by hand"
    calls: dict[str, Callable[[], Any]] = {
        "integrate": lambda: integrate(u, State(u[:, 0]), 0.1),
        "integrate, large": lambda: integrate(np.ones((300, 100, 7)), "zero", 0.1),
        "integrate, refused": lambda: refuse(lambda: integrate(np.full((1, 3, 2), np.nan), "zero")),
        "integrate, torch": pull,
        "integrate, torch's kernels": lambda: pull(mode="central", backend="torch"),
        "integrate, transformed": lambda: torch.func.grad(
            lambda x: integrate(x, "zero", 0.1).position.sum())(leaf.detach()),
        "prepare": lambda: trajcli.prepare(u.shape, dt=0.1)(u, "zero"),
        "differentiate": lambda: trajcli.differentiate(u, dt=0.1),
        "differentiate, torch": lambda: trajcli.differentiate(leaf, dt=0.1).jerk.sum().backward(),
        "differentiate, central": lambda: trajcli.differentiate(u, dt=0.1, method="central"),
        "scale_gradient": lambda: trajcli.scale_gradient(leaf, 0.5).sum().backward(),
        "clip_gradient": lambda: trajcli.clip_gradient(leaf, norm=1.0).sum().backward(),
        "fit": lambda: trajcli.fit(u, 0.1, knots=10),
        "operator": lambda: trajcli.operator(10, 0.1, "central"),
        "resample": lambda: trajcli.resample(u, "cubic", rate=30.0, dt=0.1),
        "concatenate": lambda: trajcli.concatenate([found, found[0, :3]]).to("cpu").state(-1),
        "retime": lambda: trajcli.retime(found, limits),
        "sample": lambda: trajcli.sample(of_torch, torch.tensor([0.05, 0.7])),
        "score": lambda: trajcli.score(found, limits),
        "save": lambda: found.save(folder / "b.h5", overwrite=True),
        "save, npz": lambda: found.save(folder / "b.npz", overwrite=True),
        "save, refused": lambda: refuse(lambda: found.save(path)),
        "load": lambda: trajcli.load(path),
        "load, npz": lambda: trajcli.load(folder / "b.npz"),
        "load, missing": lambda: refuse(lambda: trajcli.load(folder / "missing.h5")),
        "load, damaged": lambda: refuse(lambda: trajcli.load(folder / half)),
        "to_xarray": found.to_xarray,
        "repr": lambda: repr(found),
        "difference_matrix": lambda: matrices.difference_matrix(5),
        "integration_matrix": lambda: matrices.integration_matrix(5, dt=0.1),
        "start_state_masks": lambda: matrices.start_state_masks(5),
        "clique_matrix": lambda: matrices.clique_matrix(5, 0.1),
        "hold_matrix": lambda: matrices.hold_matrix(5, 2),
        "linear_matrix": lambda: matrices.linear_matrix(5, 2),
        "ramp_and_hold_matrix": lambda: matrices.ramp_and_hold_matrix(6, 4, 1),
        "linspace": lambda: matrices.linspace(u[:, 0], u[:, 1], 5),
    }  # fmt: skip
    if importlib.util.find_spec("zarr"):
        import zarr  # it starts threads of its own

        group = zarr.open_group(folder / "saved.zarr", mode="w")
        for name, values in {**found.outputs(), "time": found.time}.items():
            group.create_array(name, data=values)
        assert group["time"][:].size
        calls["load of zarr"] = lambda: trajcli.load(folder / "saved.zarr")
    return calls | {"a change": lambda: (os.environ.update(TRAJCLI_TEST="1"), os.dup(1))}


def print_changes() -> None:
    """Makes every call twice, in a process whose settings are not the usual ones."""
    changes: dict[str, list[str]] = {}

    def look(name: str, call: Callable[[], Any]) -> None:
        before = {title: probe() for title, probe in PROBES.items()}
        call()
        after = {title: probe() for title, probe in PROBES.items()}
        changes.setdefault(name, []).extend(k for k in PROBES if before[k] != after[k])

    for number in (signal.SIGALRM, signal.SIGVTALRM, signal.SIGPROF, signal.SIGTERM, signal.SIGBUS):
        signal.signal(number, lambda *_: None)
    for timer in TIMERS:
        signal.setitimer(timer, 1000.0, 500.0)
    gc.set_threshold(801, 11, 9)
    torch.set_num_threads(1)
    np.seterr(divide="raise", over="warn")
    warnings.simplefilter("error", DeprecationWarning)
    # what torch itself imports late changes the environment and the filters of warnings
    torch.func.grad(torch.sum)(torch.ones(2))
    look("import", lambda: importlib.import_module("trajcli.matrices").__all__)
    with tempfile.TemporaryDirectory() as folder:
        for name, call in [*list_calls(Path(folder)).items()] * 2:
            look(name, call)
    json.dump(changes, sys.stdout)


def test_no_public_call_changes_the_process_of_its_caller() -> None:
    import trajcli
    from trajcli import matrices

    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    process = subprocess.run(
        [sys.executable, __file__], env=environ, capture_output=True, text=True
    )
    assert process.returncode == 0, process.stderr
    changes = json.loads(process.stdout)
    assert {*changes.pop("a change")} == {"environment", "environment of C", "descriptors"}
    assert not {name: what for name, what in changes.items() if what}
    public = {name for name in [*trajcli.__all__, *matrices.__all__] if name.islower()}
    assert public <= changes.keys()


if __name__ == "__main__":
    print_changes()
