"""What a process looks like from within, before and after each public call: ``python -m guest``.

Prints, by call, what it changed. Run by test_guest.py, in a process where every call is the first.
"""

from __future__ import annotations

import ctypes
import gc
import importlib.util
import json
import locale
import logging
import os
import random
import resource
import signal
import sys
import tempfile
import threading
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import torch

_OF_H5PY = ("complex_names", "bool_names", "track_order")
_ZARR = ["load of zarr"] if importlib.util.find_spec("zarr") else []


def surroundings() -> dict[str, Any]:
    """All that a library could change and has no business with."""
    return {
        "signal handlers": {k: str(signal.getsignal(k)) for k in signal.valid_signals()},
        "signal handlers of C": [_action(k) for k in range(1, signal.NSIG)],
        "signal mask": sorted(signal.pthread_sigmask(signal.SIG_BLOCK, ())),
        "timers": [
            (before > 0, interval)
            for before, interval in map(
                signal.getitimer, (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL, signal.ITIMER_PROF)
            )
        ],
        "threads": [
            sys.getswitchinterval(),
            # zarr's pool has as many as it had work for
            sorted(x.name for x in threading.enumerate() if not x.name.startswith("asyncio_")),
        ],
        "threads of torch": [torch.get_num_threads(), torch.get_num_interop_threads()],
        "garbage collection": [gc.isenabled(), gc.get_threshold(), gc.get_freeze_count()],
        "environment": dict(os.environ),
        "environment of C": _environment(),
        "descriptors": sorted(_descriptors()),
        "warnings filters": [str(x) for x in warnings.filters] + [str(warnings.showwarning)],
        "limits": [resource.getrlimit(k) for k in range(16)],
        "folder and mask": [os.getcwd(), _umask()],
        "locale": locale.setlocale(locale.LC_ALL),
        "floating point": [np.geterr(), float(np.float32(1e-45) * np.float32(1.0))],
        "random numbers": [hash(random.getstate()), str(np.random.get_state()), _torch_random()],
        "settings of torch": [str(torch.get_default_dtype()), torch.is_grad_enabled()],
        "logging": [str(logging.getLogger(name).handlers) for name in ("", "asyncio", "trajcli")],
        "hooks": [str(sys.excepthook), str(threading.excepthook), str(sys.gettrace())],
        "search path": list(sys.path),
        "settings of h5py": [getattr(h5py.get_config(), name) for name in _OF_H5PY],
        "print options": str(np.get_printoptions()),
    }


def _action(number: int) -> str:
    """What sigaction(2) says of a signal: ``signal.getsignal`` sees Python's own handlers only."""
    buffer = ctypes.create_string_buffer(256)
    ctypes.CDLL(None).sigaction(number, None, buffer)
    return buffer.raw[:8].hex()  # the handler; of what follows not all is filled


def _environment() -> list[str]:
    environ = ctypes.POINTER(ctypes.c_char_p).in_dll(ctypes.CDLL(None), "environ")
    lines = []
    while (line := environ[len(lines)]) is not None:
        lines.append(line.decode())
    return sorted(lines)


def _descriptors() -> Iterator[str]:
    for name in os.listdir("/proc/self/fd"):
        try:
            yield f"{name}: {os.readlink(f'/proc/self/fd/{name}')}"
        except FileNotFoundError:  # the one that lists them
            continue


def _umask() -> int:
    mask = os.umask(0o22)
    os.umask(mask)
    return mask


def _torch_random() -> int:
    return hash(torch.get_rng_state().numpy().tobytes())


def calls(folder: Path) -> dict[str, Callable[[], Any]]:
    """Every public function, on NumPy and on torch, and what is refused, by name."""
    import trajcli
    from trajcli import State, matrices

    u = np.random.default_rng(0).standard_normal((3, 40, 2))
    leaf, dt = torch.from_numpy(u).requires_grad_(), torch.tensor(0.1, requires_grad=True)
    found = trajcli.integrate(u, "zero", 0.1, "jerk", scheme="zoh")
    torch_found = trajcli.integrate(leaf, "zero", 0.1, "jerk", scheme="zoh")
    files = {ending: folder / f"saved{ending}" for ending in (".h5", ".npz")}
    limits = {"velocity": 1.0, "acceleration": 2.0, "jerk": 3.0}

    def differentiated(**options: Any) -> None:
        result = trajcli.integrate(leaf, "zero", dt, **options)
        sum(x.square().sum() for x in result if x is not None).backward()

    def refused(call: Callable[[], Any]) -> None:
        try:
            call()
        except trajcli.TrajcliError:
            return
        raise AssertionError("it was taken")

    return {
        "integrate": lambda: trajcli.integrate(u, State(u[:, 0]), 0.1),
        "integrate, large": lambda: trajcli.integrate(np.ones((300, 100, 7)), "zero", 0.1),
        "prepare": lambda: trajcli.prepare(u.shape, dt=0.1)(u, "zero"),
        "differentiate": lambda: trajcli.differentiate(u, dt=0.1),
        "differentiate, torch": lambda: trajcli.differentiate(leaf, dt=0.1).jerk.sum().backward(),
        "integrate, refused": lambda: refused(
            lambda: trajcli.integrate(np.full((1, 3, 2), np.nan), "zero", 0.1)
        ),
        "differentiate, central": lambda: trajcli.differentiate(u, dt=0.1, method="central"),
        "integrate, torch": differentiated,
        "integrate, torch's kernels": lambda: differentiated(mode="central", backend="torch"),
        "integrate, transformed": lambda: torch.func.grad(
            lambda x: trajcli.integrate(x, "zero", 0.1).position.sum()
        )(leaf.detach()),
        "scale_gradient": lambda: trajcli.scale_gradient(leaf, 0.5).sum().backward(),
        "clip_gradient": lambda: trajcli.clip_gradient(leaf, norm=1.0).sum().backward(),
        "fit": lambda: trajcli.fit(u, 0.1, knots=10),
        "operator": lambda: trajcli.operator(10, 0.1, "central"),
        "resample": lambda: trajcli.resample(u, "cubic", rate=30.0, dt=0.1),
        "concatenate": lambda: trajcli.concatenate([found, found[0, :3]]).to("cpu").state(-1),
        "retime": lambda: trajcli.retime(found, limits),
        "sample": lambda: trajcli.sample(torch_found, torch.tensor([0.05, 0.7])),
        "score": lambda: trajcli.score(found, limits),
        **{f"save{e}": lambda f=f: found.save(f, overwrite=True) for e, f in files.items()},
        **{f"load{e}": lambda f=f: trajcli.load(f) for e, f in files.items()},
        "save, refused": lambda: refused(lambda: found.save(files[".h5"])),
        "load, missing": lambda: refused(lambda: trajcli.load(folder / "missing.h5")),
        "load, damaged": lambda: refused(lambda: trajcli.load(_cut(files[".h5"]))),
        "load of texts": lambda: trajcli.load(_with_texts(folder)),
        **{name: lambda: trajcli.load(_zarr(folder, found)) for name in _ZARR},
        "to_xarray": lambda: found.to_xarray(),
        "repr": lambda: repr(found),
        "difference_matrix": lambda: matrices.difference_matrix(5),
        "integration_matrix": lambda: matrices.integration_matrix(5, dt=0.1),
        "start_state_masks": lambda: matrices.start_state_masks(5),
        "clique_matrix": lambda: matrices.clique_matrix(5, 0.1),
        "hold_matrix": lambda: matrices.hold_matrix(5, 2),
        "linear_matrix": lambda: matrices.linear_matrix(5, 2),
        "ramp_and_hold_matrix": lambda: matrices.ramp_and_hold_matrix(6, 4, 1),
        "linspace": lambda: matrices.linspace(u[:, 0], u[:, 1], 5),
    }


def _with_texts(folder: Path) -> Path:
    """An output with texts among its datasets and attributes."""
    import trajcli

    path = folder / "texts.h5"
    if not path.exists():
        trajcli.integrate(np.ones((1, 3, 2)), "zero", 0.1).save(path)
        with h5py.File(path, "r+") as file:
            file["joint_names"] = ["shoulder", "elbow"]
            file.attrs["note"] = "made by hand"
    return path


def _cut(path: Path) -> Path:
    """The first half of a file."""
    half = path.with_name("half.h5")
    half.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    return half


def _zarr(folder: Path, found: Any) -> Path:
    """The same as a Zarr store, which zarr has opened before: it starts threads of its own."""
    import zarr

    path = folder / "saved.zarr"
    if not path.exists():
        group = zarr.open_group(path, mode="w")
        for name, values in {**found.outputs(), "time": found.time}.items():
            group.create_array(name, data=values)
        assert group["time"][:].size
    return path


def different(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    """What differs, in words."""
    return [f"{k}: {before[k]} → {after[k]}" for k in before if before[k] != after[k]]


def main() -> None:
    """Try every call twice, in a process whose settings are not the usual ones."""
    for number in (signal.SIGALRM, signal.SIGVTALRM, signal.SIGPROF, signal.SIGTERM, signal.SIGBUS):
        signal.signal(number, lambda *_: None)
    for timer in (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL, signal.ITIMER_PROF):
        signal.setitimer(timer, 1000.0, 500.0)
    gc.set_threshold(801, 11, 9)
    torch.set_num_threads(1)
    np.seterr(divide="raise", over="warn")
    warnings.simplefilter("error", DeprecationWarning)
    # what torch itself imports late changes the environment and the filters of warnings
    torch.func.grad(torch.sum)(torch.ones(2))
    changes: dict[str, list[str]] = {}
    before = surroundings()
    import trajcli

    everything = [getattr(trajcli, name) for name in trajcli.__all__]
    changes["import"] = different(before, surroundings())
    assert all(x is not None for x in everything)
    with tempfile.TemporaryDirectory() as folder:
        _with_texts(Path(folder))
        for _ in _ZARR:
            _zarr(Path(folder), trajcli.integrate(np.ones((1, 3, 2)), "zero", 0.1))
        for name, call in calls(Path(folder)).items():
            for _ in range(2):
                before = surroundings()
                call()
                changes.setdefault(name, []).extend(different(before, surroundings()))
    json.dump(changes, sys.stdout)


if __name__ == "__main__":
    main()
