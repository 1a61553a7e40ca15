"""Every error with a hint: what provokes it, and what the hint says, done."""

from __future__ import annotations

import errno
import gzip
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import warnings
import zipfile
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from layouts import writers

import trajcli
from trajcli import State

# fmt: off
CASES: dict[str, tuple[Callable[[], Any], Any, tuple[Any, ...]]] = {}
"""By name: what makes the files, what is refused (a command line or a call), and what is then done:
command lines, which must exit with 0 (or with the number before them), and calls."""
T = np.arange(30) / 10
CURVE = np.sin(T[:, None] * 2 + np.arange(3))
STAMPS = T + 0.003 * np.sin(np.arange(30))
OUT = "--method central -o out.h5"


def case(name: str, make: Callable[[], Any], refused: Any, *followed: Any) -> None:
    assert name not in CASES
    CASES[name] = make, refused, followed


def nothing() -> None:
    pass


def npy(name: str = "in.npy", values: Any = CURVE) -> Callable[[], None]:
    return lambda: np.save(name, values)


def npz(name: str = "in.npz", **arrays: Any) -> Callable[[], None]:
    return lambda: np.savez(name, **arrays)


def h5(name: str = "in.h5", /, **arrays: Any) -> Callable[[], None]:
    def make() -> None:
        with h5py.File(name, "w") as file:
            for path, values in arrays.items():
                file[path.replace("__", "/")] = values

    return make


def both(*makers: Callable[[], Any]) -> Callable[[], None]:
    def make() -> None:
        for maker in makers:
            maker()

    return make


def text(name: str, content: str) -> Callable[[], Any]:
    return lambda: Path(name).write_text(content)


def run(*words: str) -> Callable[[], Any]:
    """A command of another program, as a hint has it."""
    return lambda: subprocess.run(words, check=True, capture_output=True)


def trajectory() -> None:
    """Makes a file that trajcli wrote."""
    from trajcli.cli import main

    np.save("in.npy", CURVE)
    line = "integrate in.npy --dt 0.1 --start zero -o out.h5 --quiet"
    assert main(line.split()) == 0


def table(rows: str, head: str = "t,a,b,c") -> Callable[[], Any]:
    return text("log.csv", f"{head}\n{rows}")


ROWS = "".join(f"{k / 10},{k},{k * k},{k % 3}\n" for k in range(30))


@contextmanager
def without(*modules: str):
    """Hides modules from import."""
    hidden = {name: sys.modules.pop(name) for name in list(sys.modules)
              if name.split(".")[0] in modules}  # fmt: skip
    try:
        sys.modules.update(dict.fromkeys(modules))
        yield
    finally:
        for name in modules:
            sys.modules.pop(name, None)
        sys.modules.update(hidden)


def lacking(module: str, line: str) -> Callable[[], Any]:
    """A command where a module is not installed."""

    def call() -> None:
        from trajcli.cli import main

        with without(module):
            assert main(line.split()) == 2

    return call


def _old_torch() -> None:
    from unittest import mock

    from trajcli.cli import main

    with mock.patch("torch.__version__", "2.5.1"):
        assert main(["inspect", "in.pt"]) == 2


# --- steps and stamps ------------------------------------------------------------------------

case("no time step", npy(), f"differentiate in.npy {OUT}",
     f"differentiate in.npy --dt 0.1 {OUT}", f"differentiate in.npy --rate 10 {OUT} --overwrite",
     npz("t.npz", t=T), f"differentiate in.npy --times t.npz:t {OUT} --overwrite")
case("no time step in Python", nothing, lambda: trajcli.differentiate(CURVE),
     lambda: trajcli.differentiate(CURVE, dt=0.1), lambda: trajcli.differentiate(CURVE, times=T))
case("likely times", npz(position=CURVE, timestmaps=T), f"differentiate in.npz:position {OUT}",
     f"differentiate in.npz:position --times in.npz:timestmaps {OUT}",
     f"differentiate in.npz:position --dt 0.1 {OUT} --overwrite",
     f"differentiate in.npz:position --rate 10 {OUT} --overwrite")
case("a stamp too few", npz(position=CURVE, times=T[1:]), f"differentiate in.npz:position {OUT}",
     f"differentiate in.npz:position --dt 0.1 {OUT}")
case("stamps of actions", nothing,
     lambda: trajcli.integrate(CURVE, "zero", times=T[2:], mode="velocity"),
     lambda: trajcli.integrate(CURVE, "zero", times=np.append(T, 3.0), mode="velocity"),
     lambda: trajcli.integrate(CURVE, "zero", times=T, mode="velocity"),
     lambda: trajcli.differentiate(CURVE, times=T))
case("stamps that repeat", npz(position=CURVE, times=np.where(T == 1, T[9], T)),
     f"differentiate in.npz:position {OUT}",
     f"differentiate in.npz:position --repeated-times drop {OUT}")
case("stamps that go back", npz(position=CURVE, times=np.where(np.arange(30) == 9, 0.05, STAMPS)),
     f"differentiate in.npz:position {OUT}",
     npz(position=CURVE, times=np.sort(STAMPS)), f"differentiate in.npz:position {OUT}")
case("dt and stamps", npz(position=CURVE, dt=0.2, times=T), f"differentiate in.npz:position {OUT}",
     f"differentiate in.npz:position --dt 0.1 {OUT}",
     f"differentiate in.npz:position --times in.npz:times {OUT} --overwrite")
case("minutes", h5(position=CURVE, times=T), nothing)
case("one dt for each trajectory", nothing,
     lambda: trajcli.differentiate(np.stack([CURVE] * 2), dt=np.array([0.1, 0.2])),
     lambda: trajcli.differentiate(np.stack([CURVE] * 2), dt=np.array([[0.1], [0.2]])))
case("a vector", nothing, lambda: trajcli.differentiate(CURVE[:, 0], dt=0.1),
     lambda: trajcli.differentiate(CURVE[:, 0][:, None], dt=0.1))
case("gaps everywhere", npz(position=CURVE, times=STAMPS),
     f"differentiate in.npz:position --max-gap 0.01 {OUT}",
     f"differentiate in.npz:position --max-gap 0.5 {OUT}")
case("rates without their scheme", npz(qd=CURVE, t=T),
     "integrate in.npz:qd --times in.npz:t --mode velocity --scheme zoh --start zero -o out.h5",
     "integrate in.npz:qd --times in.npz:t --mode velocity --scheme foh --start zero -o out.h5",
     npz(qd=CURVE, t=np.append(T, 3.0)),
     "integrate in.npz:qd --times in.npz:t --mode velocity --scheme zoh --start zero -o o.h5")
case("rates with absolute dofs", npz(qd=CURVE, t=T),
     "integrate in.npz:qd --times in.npz:t --mode velocity --absolute 2 --start zero -o out.h5",
     "integrate in.npz:qd --times in.npz:t --mode velocity --dofs 0:2 --start zero -o out.h5")
case("rates with a start index", nothing,
     lambda: trajcli.integrate(CURVE, np.eye(3), times=T, start_index=np.array([2])),
     lambda: trajcli.integrate(CURVE, np.eye(3)[np.array([2])], times=T))
case("files with different steps", both(
        npz("a.npz", position=CURVE, dt=0.1 + 0.001 * np.arange(30)),
        npz("b.npz", position=CURVE, dt=0.1 + 0.001 * np.arange(29))),
     f"differentiate a.npz b.npz {OUT}", f"differentiate a.npz b.npz --dt 0.1 {OUT}",
     "differentiate a.npz b.npz --rate 10 --method central -o o1.h5", npy("t.npy", T),
     "differentiate a.npz b.npz --times t.npy --method central -o o2.h5",
     "differentiate a.npz --method central -o o3.h5",
     "differentiate b.npz --method central -o o4.h5")
case("times outside", both(npz(position=CURVE, dt=0.1), npy("at.npy", np.array([-1.0, 0.5]))),
     "resample in.npz --at at.npy -o out.h5", "1 resample in.npz --at at.npy --skip-bad -o out.h5")
del CASES["minutes"]


def _minutes() -> None:
    with h5py.File("in.h5", "w") as file:
        file["position"], file["times"] = CURVE, T
        file["times"].attrs["units"] = "minutes"


def _divided() -> None:
    with h5py.File("in.h5", "r+") as file:
        file["times"][...] = T * 60
        file["times"].attrs["units"] = "s"


case("minutes", _minutes, f"differentiate in.h5 {OUT}",
     f"differentiate in.h5 --dt 6 {OUT}", f"differentiate in.h5 --rate 10 {OUT} --overwrite",
     _divided, f"differentiate in.h5 {OUT} --overwrite")

# --- start, goal, modes ----------------------------------------------------------------------

case("no start", npy(), "integrate in.npy --dt 0.1 -o out.h5",
     "integrate in.npy --dt 0.1 --start zero -o out.h5", h5("s.h5", s__position=CURVE[0]),
     "integrate in.npy --dt 0.1 --start s.h5:s -o o1.h5", "differentiate in.npy --dt 0.1 -o o2.h5")
case("a recording as a start", npy(), "integrate in.npy --dt 0.1 --start first -o out.h5",
     "differentiate in.npy --dt 0.1 -o out.h5")
case("a method as a mode", npy(), "integrate in.npy --dt 0.1 --mode savgol -o out.h5",
     "differentiate in.npy --dt 0.1 -o out.h5")
case("a start of differentiate", npy(), "differentiate in.npy --dt 0.1 --start zero -o out.h5",
     "integrate in.npy --dt 0.1 --start zero -o out.h5")
case("a mode of differentiate", npy(), "differentiate in.npy --dt 0.1 --mode central -o out.h5",
     "integrate in.npy --dt 0.1 --mode central --start zero -o out.h5",
     "differentiate in.npy --dt 0.1 --method central -o out2.h5")
case("a near choice", npy(), "integrate in.npy --dt 0.1 --mode jrek --start zero -o out.h5",
     "integrate in.npy --dt 0.1 --mode jerk --start zero -o out.h5")
case("no such choice", npy(), "integrate in.npy --dt 0.1 --mode xyz --start zero -o out.h5",
     "integrate --help")
case("no such option", npy(), "integrate in.npy --no-such-option", "integrate --help")
case("a recording in Python", nothing, lambda: trajcli.integrate(CURVE, "first", 0.1),
     lambda: trajcli.differentiate(CURVE, dt=0.1))
case("a state as a dict", nothing,
     lambda: trajcli.integrate(CURVE, {"position": np.zeros(3)}, 0.1),
     lambda: trajcli.integrate(CURVE, State(position=np.zeros(3), velocity=np.ones(3)), 0.1),
     lambda: trajcli.integrate(CURVE, State(position=np.zeros(3)), 0.1))
case("a goal that is not taken", nothing,
     lambda: trajcli.integrate(CURVE, "zero", 0.1, goal=np.zeros(3)),
     lambda: trajcli.integrate(CURVE, "zero", 0.1),
     lambda: trajcli.integrate(CURVE, "zero", 0.1, "bspline", goal=np.zeros(3), ends="goal"),
     lambda: trajcli.integrate(CURVE, "zero", 0.1, "central", goal=np.zeros(3), ends="goal"))
case("a goal without its ends", nothing,
     lambda: trajcli.integrate(CURVE, "zero", 0.1, "central", goal=np.zeros(3)),
     lambda: trajcli.integrate(CURVE, "zero", 0.1, "central", goal=np.zeros(3), ends="goal"))
case("a moving goal of central", nothing,
     lambda: trajcli.integrate(CURVE, "zero", 0.1, "central", ends="goal",
                               goal=State(np.zeros(3), np.ones(3))),
     lambda: trajcli.integrate(CURVE, "zero", 0.1, "bspline", ends="goal",
                               goal=State(np.zeros(3), np.ones(3))))
case("an option of another mode", npy(),
     "integrate in.npy --dt 0.1 --mode jerk --degree 3 --start zero -o out.h5",
     "modes", "integrate in.npy --dt 0.1 --mode bspline --degree 3 --start zero -o out.h5")
case("an option of another method", npy(), f"differentiate in.npy --dt 0.1 --noise 1 {OUT}",
     "differentiate in.npy --dt 0.1 --method smooth --noise 0.01 -o out.h5")
case("options of another method", npy(),
     "differentiate in.npy --dt 0.1 --method smooth --window 9 --degree 3 -o out.h5",
     "differentiate in.npy --dt 0.1 --method savgol --window 9 --degree 3 -o out.h5")
case("modes that differ", both(
        lambda: h5("a.h5", actions=CURVE, dt=0.1)(), lambda: h5("b.h5", actions=CURVE, dt=0.1)()),
     nothing)
del CASES["modes that differ"]


def _modes() -> None:
    for name, mode in (("a.h5", "jerk"), ("b.h5", "velocity")):
        with h5py.File(name, "w") as file:
            file["actions"], file["dt"] = CURVE, 0.1
            file["actions"].attrs["mode"] = mode


case("modes that differ", _modes, "integrate a.h5 b.h5 --start zero -o out.h5",
     "integrate a.h5 b.h5 --mode jerk --scheme zoh --start zero -o out.h5")
case("too few rows for stencils", npy(values=CURVE[:4]), f"differentiate in.npy --dt 0.1 {OUT}",
     "differentiate in.npy --dt 0.1 --method backward -o out.h5")
case("too few rows for the degree", npy(values=CURVE[:4]),
     "differentiate in.npy --dt 0.1 --method savgol --window 0.3s -o out.h5",
     "differentiate in.npy --dt 0.1 --method backward -o out.h5")
case("too few rows for a spline", npy(values=CURVE[:3]),
     "differentiate in.npy --dt 0.1 --method smooth -o out.h5",
     "differentiate in.npy --dt 0.1 --method backward -o out.h5")
case("a window that is too long", npy(),
     "differentiate in.npy --dt 0.1 --method savgol --window 31 -o out.h5",
     "differentiate in.npy --dt 0.1 --method savgol --window 0.3s -o out.h5")
case("a window of too many rows", npy(values=np.zeros((2500, 1))),
     "differentiate in.npy --rate 1000 --method savgol --window 2s -o out.h5",
     "differentiate in.npy --rate 1000 --method savgol --window 0.2s -o out.h5")
case("a dof that moves alone", npz(actions=np.stack([CURVE] * 2), start__position=np.zeros((5, 3))),
     lambda: trajcli.integrate(np.stack([CURVE] * 2), np.zeros((5, 3)), 0.1),
     lambda: trajcli.integrate(np.stack([CURVE] * 2), np.zeros((5, 3)), 0.1,
                               start_index=np.array([4, 0])))
case("NaN", npy(values=np.where(CURVE > 0.999, np.nan, CURVE)),
     "integrate in.npy --dt 0.1 --start zero -o out.h5",
     "integrate in.npy --dt 0.1 --start zero --allow-nonfinite -o nan.h5")
case("NaN in Python", nothing,
     lambda: trajcli.differentiate(np.where(CURVE > 0.999, np.nan, CURVE), dt=0.1),
     lambda: trajcli.differentiate(np.where(CURVE > 0.999, np.nan, CURVE), dt=0.1,
                                   allow_nonfinite=True))
case("NaN on a curve", npz(position=np.where(CURVE > 0.999, np.nan, CURVE), dt=0.1),
     "resample in.npz --to 20 -o out.h5",
     npz(position=np.nan_to_num(CURVE), dt=0.1), "resample in.npz --to 20 -o out.h5")
# --- what SOURCE names ------------------------------------------------------------------------

case("a near file", npy(), f"differentiate im.npy --dt 0.1 {OUT}",
     f"differentiate in.npy --dt 0.1 {OUT}")
case("a near dataset", npz(positions=CURVE, dt=0.1), f"differentiate in.npz:position {OUT}",
     "inspect in.npz", f"differentiate in.npz:positions {OUT}")
case("a near group", h5(data__demo_0__actions=CURVE, data__demo_1__actions=CURVE),
     "integrate in.h5:/data/demo0 --mode clique --dt 0.1 --start zero -o out.h5",
     "integrate in.h5:/data/demo_0 --mode clique --dt 0.1 --start zero -o out.h5",
     "inspect in.h5")
case("several families", lambda: table("".join(f"{k / 10},{k},{k},{k},{k}\n" for k in range(30)),
                                       "t,a1,a2,b1,b2")(),
     f"differentiate log.csv {OUT}", f"differentiate log.csv:a {OUT}")
case("a cell that is no number", lambda: table(ROWS.replace("29,841", "29,??"))(),
     f"differentiate log.csv {OUT}", f"differentiate log.csv:a,c {OUT}")
case("no recorded positions", npz(actions=CURVE, dt=0.1), f"differentiate in.npz {OUT}",
     f"differentiate in.npz:actions {OUT}", "integrate in.npz --start zero -o out2.h5")
case("no actions", trajectory, "integrate out.h5 --start zero -o again.h5",
     "integrate out.h5:position --start zero -o again.h5")
case("positions guessed", npz(q=CURVE, dt=0.1), "integrate in.npz --start zero -o out.h5",
     f"differentiate in.npz {OUT}", "integrate in.npz:q --mode clique --start zero -o out2.h5")
case("dofs that differ", both(npz("a.npz", position=CURVE, dt=0.1),
                              npz("b.npz", position=CURVE[:, :2], dt=0.1)),
     f"differentiate a.npz b.npz {OUT}", f"differentiate a.npz b.npz --dofs 0:2 {OUT}",
     f"differentiate a.npz {OUT} --overwrite", "differentiate b.npz --method central -o o2.h5")
case("joints that differ", both(
        npz("a.npz", position=CURVE, dt=0.1, joint_names=np.array(list("xyz"))),
        npz("b.npz", position=CURVE, dt=0.1, joint_names=np.array(list("zyx")))),
     f"differentiate a.npz b.npz {OUT}", f"differentiate a.npz b.npz --dofs x,y,z {OUT}")
case("units that differ", lambda: [_unit("a.h5", "rad"), _unit("b.h5", "m")],
     f"differentiate a.h5 b.h5 {OUT}", f"differentiate a.h5 b.h5 --units rad {OUT}")
case("a unit of velocities", npy(), f"differentiate in.npy --dt 0.1 --units rad/s {OUT}",
     f"differentiate in.npy --dt 0.1 --units rad {OUT}")
case("actions in several arrays", h5("main_data.hdf5", episode_0__actions__a=CURVE,
     episode_0__actions__b=CURVE, episode_0__observations=CURVE, episode_0__rewards=T,
     episode_0__terminations=T, episode_0__truncations=T),
     "integrate main_data.hdf5 --dt 0.1 --start zero -o out.h5",
     "integrate main_data.hdf5:actions/a --dt 0.1 --start zero -o out.h5")
case("no trajectories of a layout", npz(position=CURVE, dt=0.1),
     f"differentiate in.npz --layout robomimic {OUT}",
     f"differentiate in.npz --layout plain {OUT}")
case("no filter keys", lambda: _minari(), "integrate main_data.hdf5 --filter-key train --dt 0.1 "
     "--start zero -o out.h5", lambda: writers.robomimic(Path("demo.hdf5"), writers.demos()),
     "integrate demo.hdf5 --filter-key train --start zero -o out.h5")
case("rows of episodes mixed", lambda: table("".join(f"{k % 2},{k / 10},{k},{k}\n"
     for k in range(30)), "episode_index,timestamp,action.0,action.1")(),
     "integrate log.csv --start zero -o out.h5",
     lambda: table("".join(f"{k // 15},{k / 10},{k},{k}\n" for k in range(30)),
                   "episode_index,timestamp,action.0,action.1")(),
     "integrate log.csv --start zero -o out.h5")
case("standard input", npy(), f"differentiate - --dt 0.1 {OUT}",
     lambda: shutil.copy("in.npy", "actions.npy"), f"differentiate actions.npy --dt 0.1 {OUT}")
for scheme in ("https", "s3", "gs", "hf"):
    case(f"a URL: {scheme}", nothing, f"inspect {scheme}://bucket/owner/set/in.npy", npy(),
         "inspect in.npy")
case("links out of the file", lambda: _linked(), f"differentiate in.h5 --dt 0.1 {OUT}",
     f"differentiate in.h5 --dt 0.1 --allow-external {OUT}")


def _unit(name: str, unit: str) -> None:
    with h5py.File(name, "w") as file:
        file["position"], file["dt"] = CURVE, 0.1
        file["position"].attrs["units"] = unit


def _linked() -> None:
    with h5py.File("other.h5", "w") as file:
        file["q"] = CURVE
    with h5py.File("in.h5", "w") as file:
        file["position"] = h5py.ExternalLink("other.h5", "/q")


def _minari() -> None:
    writers.minari(Path("main_data.hdf5"), writers.demos())


def _without_rate(name: str, write: Callable[[Path], Any]) -> Callable[[], None]:
    def make() -> None:
        write(Path(name))
        with h5py.File(name, "r+") as file:
            for group in (file, *(g for g in file.values() if isinstance(g, h5py.Group))):
                for key in list(group.attrs):
                    if key in ("env_args", "sim_args", "env_info"):
                        del group.attrs[key]
        for beside in Path().glob("*.json"):
            beside.unlink()

    return make


# --- robots ----------------------------------------------------------------------------------

DEMOS = writers.demos()
WRITTEN: dict[str, tuple[str, Callable[[Path], Any], str]] = {
    "robomimic": ("demo.hdf5", lambda path: writers.robomimic(path, DEMOS), "--rate 20"),
    "maniskill": ("demo.h5", lambda path: writers.maniskill(path, DEMOS, "pd", None), "--rate 20"),
    "aloha": ("episode_0.hdf5", lambda path: writers.aloha(path, DEMOS[0]), "--rate 50"),
    "isaaclab": ("demo.hdf5", lambda path: writers.isaaclab(path, DEMOS), "--dt 0.02"),
    "minari": ("main_data.hdf5", lambda path: writers.minari(path, DEMOS), "--dt 0.02"),
    "d4rl": ("set.hdf5", lambda path: writers.d4rl(path, DEMOS), "--dt 0.02"),
}
for family, (name, write, option) in WRITTEN.items():
    line = f"integrate {name} --layout {family} --start zero"
    case(f"no rate in {family}", _without_rate(name, write), f"{line} -o out.h5",
         f"{line} {option} -o out.h5")


# --- what is written -------------------------------------------------------------------------

DIFFERENTIATE = "differentiate in.npy --dt 0.1 --method central -o"
case("an output that is there", both(npy(), text("out.h5", "mine")), f"{DIFFERENTIATE} out.h5",
     f"{DIFFERENTIATE} out.h5 --overwrite")
case("no folder", npy(), f"{DIFFERENTIATE} made/out.h5", run("mkdir", "-p", "made"),
     f"{DIFFERENTIATE} made/out.h5")
case("standard output", npy(), f"{DIFFERENTIATE} -", f"{DIFFERENTIATE} out.h5")
case("another kind of output", npy(), f"{DIFFERENTIATE} out.zarr", f"{DIFFERENTIATE} out.h5",
     lambda: _to_zarr())
case("several arrays in one", npy(), f"{DIFFERENTIATE} out.npy",
     f"{DIFFERENTIATE} out.npy --write position")
case("a full disk", npy(), lambda: _full_disk(), f"{DIFFERENTIATE} out.h5 --write position",
     f"{DIFFERENTIATE} out.h5 --dtype float32 --overwrite")
case("a disk that is full when it is written", nothing, lambda: _disk_quota(), nothing)
case("a lock that cannot be opened", both(npy(), text(".out.h5.trajcli-lock", "")),
     lambda: _locked_away(), run("rm", ".out.h5.trajcli-lock"), f"{DIFFERENTIATE} out.h5")


def _locked_away() -> None:
    """Another user's lock cannot be opened; root opens any."""
    import pytest

    from trajcli.cli import main
    from trajcli.files import atomic_output

    def denied(lock: Path) -> int:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(lock))

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(atomic_output, "_open_lock", denied)
        assert main(f"{DIFFERENTIATE} out.h5".split()) == 2


def _to_zarr() -> None:
    import pytest

    xarray = pytest.importorskip("xarray")
    pytest.importorskip("zarr")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        xarray.open_dataset("out.h5").to_zarr("out.zarr")
        stored = xarray.open_zarr("out.zarr")
    np.testing.assert_array_equal(stored["position"][0], CURVE)


def _full_disk() -> None:
    from trajcli.files.atomic_output import require_space

    require_space(Path("out.h5"), 1 << 62)


def _disk_quota() -> None:
    from trajcli.errors import OutputError
    from trajcli.files.atomic_output import os_fault

    raise OutputError(os_fault(Path("out.h5"), OSError(errno.ENOSPC, "no space")))


# --- files of other programs -----------------------------------------------------------------


def _packed() -> None:
    np.save("in.npy", CURVE)
    Path("in.npy.gz").write_bytes(gzip.compress(Path("in.npy").read_bytes(), 1))
    os.remove("in.npy")


def _workbook() -> None:
    Path("log.xlsx").write_bytes(b"PK\3\4" + bytes(100))


def _pickle() -> None:
    import pickle

    Path("in.pkl").write_bytes(pickle.dumps({"actions": CURVE}))


def _objects() -> None:
    np.save("in.npy", np.array([list(row) for row in CURVE] + [None], dtype=object))


def _bzip2() -> None:
    np.save("position.npy", CURVE)
    with zipfile.ZipFile("in.npz", "w", zipfile.ZIP_BZIP2) as archive:
        archive.write("position.npy")


def _packed_torch() -> None:
    import torch

    torch.save({"position": torch.tensor(CURVE)}, "plain.pt")
    with zipfile.ZipFile("plain.pt") as plain, zipfile.ZipFile(
        "in.pt", "w", zipfile.ZIP_DEFLATED
    ) as packed:
        for name in plain.namelist():
            packed.writestr(name, plain.read(name))


def _torch_objects() -> None:
    import torch

    torch.save({"position": torch.tensor(CURVE), "path": Path("x")}, "in.pt")


def _torch_again(path: str = "in.pt") -> None:
    import torch

    torch.save({"actions": torch.tensor(CURVE)}, path)


def _packed_twice() -> None:
    with h5py.File("in.h5", "w") as file:
        create = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        create.set_chunk((30, 3))
        create.set_deflate(4)
        create.set_filter(h5py.h5z.FILTER_LZF, h5py.h5z.FLAG_OPTIONAL)
        space = h5py.h5s.create_simple((30, 3))
        made = h5py.h5d.create(file.id, b"position", h5py.h5t.NATIVE_DOUBLE, space, create)
        made.write(h5py.h5s.ALL, h5py.h5s.ALL, CURVE)


def _unwritten() -> None:
    with h5py.File("in.h5", "w") as file:
        file.create_dataset("position", (30, 3), "f8")


def _written_again() -> None:
    with h5py.File("in.h5", "w") as file:
        file.create_dataset("position", data=CURVE, compression="gzip")


def _large_chunk(chunks: tuple[int, int]) -> Callable[[], None]:
    def make() -> None:
        with h5py.File("in.h5", "w") as file:
            values = np.resize(CURVE, (60000, 3))
            file.create_dataset("position", data=values, chunks=chunks, compression="gzip")

    return make


def _large_table() -> None:
    rows = np.column_stack([np.arange(60000) / 10, np.resize(CURVE, (60000, 3))])
    np.savetxt("log.csv", rows, delimiter=",", header="t,q0,q1,q2", comments="", fmt="%.4f")


def _to_parquet(count: int = 60000, rows: int = 0, packed: int = 1) -> Callable[[], None]:
    def make() -> None:
        import pyarrow
        import pyarrow.parquet

        names, values = ("t", "q0", "q1", "q2"), np.resize(CURVE, (count, 3)).T
        columns = dict(zip(names, [np.arange(count) / 10, *values], strict=True))
        if rows and packed:
            pairs = pyarrow.FixedSizeListArray.from_arrays(np.ravel(values.T), 3)
            columns = {"t": columns["t"], "q": pairs}
        kept = {"row_group_size": rows} if rows else {}
        pyarrow.parquet.write_table(pyarrow.table(columns), "log.parquet", **kept)

    return make


def limited(line: str, memory: str = "1MB", code: int = 2) -> Callable[[], Any]:
    """A command with so much memory."""

    def call() -> None:
        from trajcli.cli import main
        from trajcli.files import arrays

        least, arrays.LEAST_MEMORY = arrays.LEAST_MEMORY, 1  # of 64 MiB this would take long
        os.environ["TRAJCLI_MEMORY"] = memory
        try:
            assert main(line.split()) == code
        finally:
            arrays.LEAST_MEMORY = least
            del os.environ["TRAJCLI_MEMORY"]

    return call


case("a packed file", _packed, f"differentiate in.npy.gz --dt 0.1 {OUT}",
     run("gunzip", "-k", "in.npy.gz"), f"differentiate in.npy --dt 0.1 {OUT}")
case("a workbook", _workbook, f"differentiate log.xlsx {OUT}",
     table(ROWS), f"differentiate log.csv:a,c {OUT}")
case("a pickle", _pickle, f"differentiate in.pkl --dt 0.1 {OUT}", npz(actions=CURVE, dt=0.1),
     f"differentiate in.npz:actions {OUT}")
case("objects in an array", _objects, f"differentiate in.npy --dt 0.1 {OUT}",
     lambda: np.save("in.npy", np.asarray([list(row) for row in CURVE], dtype=float)),
     f"differentiate in.npy --dt 0.1 {OUT}")
case("another compression in an archive", _bzip2, f"differentiate in.npz --dt 0.1 {OUT}",
     lambda: np.savez_compressed("in.npz", position=CURVE), f"differentiate in.npz --dt 0.1 {OUT}")
case("a packed archive of torch", _packed_torch, f"differentiate in.pt:position --dt 0.1 {OUT}",
     _torch_again, f"differentiate in.pt:actions --dt 0.1 {OUT}")
case("objects beside tensors", _torch_objects, f"differentiate in.pt:position --dt 0.1 {OUT}",
     lambda: _torch_again("actions.pt"), f"differentiate actions.pt:actions --dt 0.1 {OUT}")
case("packed twice", _packed_twice, f"differentiate in.h5 --dt 0.1 {OUT}", _written_again,
     f"differentiate in.h5 --dt 0.1 {OUT}")
case("never written", _unwritten, f"differentiate in.h5 --dt 0.1 {OUT}", _written_again,
     f"differentiate in.h5 --dt 0.1 {OUT}")
case("a large chunk", _large_chunk((60000, 3)), limited(f"differentiate in.h5 --dt 0.1 {OUT}"),
     limited(f"differentiate in.h5 --dt 0.1 {OUT}", "8MB", 0), _large_chunk((1000, 3)),
     limited("inspect in.h5", code=0))
case("a large table", _large_table, limited(f"differentiate log.csv {OUT}"),
     limited(f"differentiate log.csv {OUT}", "8MB", 0), _to_parquet(),
     limited("inspect log.parquet", code=0))
case("a large column", _to_parquet(60000, 1000, 0),
     limited(f"differentiate log.parquet:q0,q1 {OUT}", "400kB"),
     _to_parquet(5000), limited(f"differentiate log.parquet:q0,q1 {OUT}", "400kB", 0))
case("a large row group", _to_parquet(60000, 60000), limited(f"differentiate log.parquet:q {OUT}"),
     _to_parquet(60000, 1000), limited("inspect log.parquet", code=0))
case("a large archive", lambda: np.savez_compressed("in.npz", position=np.asfortranarray(
        np.resize(CURVE, (60000, 3)))), limited(f"differentiate in.npz --dt 0.1 {OUT}"),
     lambda: np.savez("in.npz", position=np.resize(CURVE, (60000, 3))),
     limited("inspect in.npz", code=0))
for module, name, head in (("yaml", "in.yaml", b"a: 1\n"), ("scipy", "in.mat", b"MATLAB 5.0"),
                           ("pyarrow", "in.parquet", b"PAR1"), ("zarr", "in.zarr.zip", b"PK\3\4"),
                           ("rosbags", "in.bag", b"#ROSBAG V2.0\n"), ("torch", "in.pt", b"PK\3\4")):
    case(f"{module} is not installed", lambda name=name, head=head: Path(name).write_bytes(head),
         lacking(module, f"inspect {name}"), lambda module=module: importlib.util.find_spec(module))
case("torch is too old", lambda: Path("in.pt").write_bytes(b"PK\3\4"), _old_torch,
     lambda: importlib.util.find_spec("torch"))
case("matplotlib is not installed", trajectory, lacking("matplotlib", "plot out.h5 -o out.png"),
     lambda: importlib.util.find_spec("matplotlib"))
case("rerun is not installed", trajectory, lacking("rerun", "export out.h5 -o out.rrd"),
     lambda: importlib.util.find_spec("rerun"))
case("no TOML", both(trajectory, text("limits.toml", "[position]\nupper = 9")),
     lacking("tomllib", "check out.h5 --limits limits.toml"),
     "check out.h5 --limits limits.toml")

# --- rotations -------------------------------------------------------------------------------

TURNS = np.stack([0 * T, np.sin(T / 2), 0 * T, np.cos(T / 2)], 1)
case("four dofs of norm 1", npz(q=TURNS, dt=0.1), "differentiate in.npz:q --method central -o o.h5",
     "differentiate in.npz:q --method central --rotation 0:4=xyzw -o o.h5",
     "differentiate in.npz:q --method central --rotation 0:4=wxyz -o o2.h5",
     "differentiate in.npz:q --method central --rotation none -o o3.h5")
case("quaternions of unknown order", npz(quat=TURNS, dt=0.1),
     "differentiate in.npz:quat --method central -o o.h5",
     "differentiate in.npz:quat --method central --rotation xyzw -o o.h5",
     "differentiate in.npz:quat --method central --rotation wxyz -o o2.h5",
     "differentiate in.npz:quat --method central --rotation none -o o3.h5")
case("dofs that are no quaternion", npz(q=np.column_stack([TURNS, T]), dt=0.1),
     "differentiate in.npz:q --method central --rotation xyzw -o o.h5",
     "differentiate in.npz:q --method central --rotation 0:4=xyzw -o o.h5")
WILD = trajcli.rotations.exp(np.random.default_rng(0).normal(size=(60, 3)))
case("rotations by a mode of dofs", npz(quat_xyzw=TURNS, dt=0.1),
     "integrate in.npz:quat_xyzw --mode central --start zero -o o.h5",
     "integrate in.npz:quat_xyzw --mode central --start zero --dofs 0:3 -o o.h5",
     "integrate in.npz:quat_xyzw --mode central --start zero --rotation none -o o2.h5")
case("orientations as angular rates", npz(quat_xyzw=TURNS, dt=0.1),
     "integrate in.npz:quat_xyzw --mode velocity --start zero -o o.h5",
     "integrate in.npz:quat_xyzw --mode velocity --start zero --dofs 0:3 -o o.h5",
     "integrate in.npz:quat_xyzw --mode velocity --start zero --rotation none -o o2.h5")
case("rotations that are fitted", npz(quat_xyzw=TURNS, dt=0.1),
     "fit in.npz:quat_xyzw --knots 8 -o o.h5", "fit in.npz:quat_xyzw --knots 8 --dofs 0:3 -o o.h5",
     "fit in.npz:quat_xyzw --knots 8 --rotation none -o o2.h5",
     lambda: trajcli.rotations.differentiate(TURNS[:, [3, 0, 1, 2]], dt=0.1))
case("gradients of rotations", npz(angular_velocity=TURNS[:, :3], dt=0.1),
     "integrate in.npz:angular_velocity --mode velocity --start zero --cost velocity -o o.h5",
     lambda: trajcli.rotations.integrate(TURNS[:, :3], np.array([1.0, 0, 0, 0]), 0.1))
case("a TUM trajectory of several", npz(quat_xyzw=np.stack([TURNS, TURNS]), dt=0.1),
     "export in.npz:quat_xyzw -o o.tum", "export in.npz:quat_xyzw --episodes 0 -o o.tum")
case("a TUM trajectory of no rotation", npz(pose=np.hstack([CURVE, TURNS])),
     "export in.npz:pose -o o.tum",
     "export in.npz:pose --rotation 3:7=xyzw --dt 0.1 -o o.tum")
case("turns that smooth cannot follow", nothing,
     lambda: trajcli.rotations.differentiate(WILD, dt=0.1, method="smooth", bandlimit=0.2),
     lambda: trajcli.rotations.differentiate(WILD, dt=0.1, method="savgol", window=5))
SPUN = np.stack([np.cos(T * 8), 0 * T, 0 * T, np.sin(T * 8)], 1)
case("turns within half a window", nothing,
     lambda: trajcli.rotations.differentiate(SPUN, dt=0.1, method="savgol", window=15),
     lambda: trajcli.rotations.differentiate(SPUN, dt=0.1, method="savgol", window=5, degree=2),
     lambda: trajcli.rotations.differentiate(SPUN, dt=0.1, method="backward"))
WILD = np.random.default_rng(0).normal(size=(30, 4))
WILD /= np.linalg.norm(WILD, axis=1)[:, None]
case("turns that are too fast for a spline", nothing,
     lambda: trajcli.rotations.differentiate(WILD, dt=0.1, method="smooth"),
     lambda: trajcli.rotations.differentiate(SPUN, dt=0.1, method="smooth"),
     lambda: trajcli.rotations.differentiate(WILD, dt=0.1, method="savgol", window=3, degree=2))
case("no TUM trajectory", npz(position=np.stack([CURVE] * 2), dt=0.1),
     "export in.npz -o out.tum", npz(p=np.stack([np.column_stack([CURVE, TURNS])] * 2)),
     "export in.npz:p --episodes 0 --dofs 0:7 --rotation 3:7=xyzw --dt 0.1 -o out.tum")

# --- gradients, shards, limits, pictures -----------------------------------------------------

INTEGRATE = "integrate in.npy --dt 0.1 --start zero -o out.h5"
case("a factor of no gradient", both(npy(), npz("up.npz", position=np.ones((1, 31, 3)))),
     f"{INTEGRATE} --grad-factor 2", f"{INTEGRATE} --grad-factor 2 --cost velocity",
     f"{INTEGRATE} --grad-factor 2 --grad up.npz --overwrite")
case("gradients of unequal length", both(npz("a.npz", actions=CURVE, dt=0.1),
                                         npz("b.npz", actions=CURVE[1:], dt=0.1)),
     "integrate a.npz b.npz --start zero --cost jerk -o out.h5",
     "integrate a.npz --start zero --cost jerk -o out.h5",
     "integrate b.npz --start zero --cost jerk -o out2.h5")
BATCH = np.stack([CURVE] * 4)
case("no run in shards", npy(values=BATCH), "status out.h5", f"{INTEGRATE} --shard 0/1",
     "status out.h5", "merge out.h5")
case("a run that is not complete", both(npy(values=BATCH), lambda: _shard(0, 2)), "merge out.h5",
     "1 status out.h5", f"{INTEGRATE} --shard 1/2", "merge out.h5")
case("parts of two counts", both(npy(values=BATCH), lambda: _shard(0, 2), lambda: _shard_of(4)),
     "status out.h5", lambda: [os.remove(p) for p in Path("out.h5.parts").glob("*-of-00002.h5")],
     "1 status out.h5")
case("a part of another command", both(npy(values=BATCH), lambda: _shard(0, 2)),
     f"{INTEGRATE} --mode jerk --shard 0/2",
     f"{INTEGRATE} --mode jerk --shard 0/2 --overwrite",
     f"{INTEGRATE.replace('out.h5', 'other.h5')} --mode jerk --shard 0/2")
case("a part that is damaged", both(npy(values=BATCH), lambda: _shard(0, 2), lambda: _shard(1, 2),
        lambda: Path("out.h5.parts/00001-of-00002.h5").write_bytes(b"\x89HDF\r\n\x1a\n")),
     "merge out.h5", f"{INTEGRATE} --shard 1/2", "merge out.h5")


def _shard(number: int, count: int) -> None:
    from trajcli.cli import main

    assert main([*INTEGRATE.split(), "--shard", f"{number}/{count}", "--quiet"]) == 0


def _shard_of(count: int) -> None:
    folder = Path("out.h5.parts")
    shutil.copy(folder / "00000-of-00002.h5", folder / f"00000-of-{count:05}.h5")


LIMITS = "[velocity]\nupper = 9.0\nlower = -9.0\n"
case("actions in retime", both(npz(actions=CURVE, dt=0.1), text("limits.toml", LIMITS)),
     "retime in.npz --limits limits.toml -o out.h5",
     "integrate in.npz --start zero -o t.h5", "retime t.h5 --limits limits.toml -o out.h5",
     "differentiate in.npz:actions --method central -o t2.h5",
     "retime t2.h5 --limits limits.toml -o out2.h5")
case("limits of what is not there", both(npz(position=CURVE, dt=0.1), text("limits.toml", LIMITS)),
     "retime in.npz --limits limits.toml -o out.h5",
     "differentiate in.npz --method central -o t.h5", "retime t.h5 --limits limits.toml -o out.h5")
case("limits of other joints", both(
        npz(position=CURVE, dt=0.1, joint_names=np.array(list("xyz"))),
        text("limits.toml", 'joint_names = ["a", "b", "c"]\n[position]\nupper = 9')),
     "check in.npz --limits limits.toml", "check in.npz --limits limits.toml --joints a,b,c")
case("an unknown joint", both(
        npz(position=CURVE, dt=0.1, joint_names=np.array(list("abz"))),
        text("limits.toml", 'joint_names = ["a", "b", "c"]\n[position]\nupper = 9')),
     "check in.npz --limits limits.toml", "check in.npz --limits limits.toml --joints a,b,c")
case("too many trajectories for a figure", npz(position=np.stack([CURVE] * 200), dt=0.1),
     "plot in.npz --episodes all -o out.png", "plot in.npz --histogram -o out.png")
case("limits of what is not drawn", both(npz(position=CURVE, dt=0.1), text("limits.toml", LIMITS)),
     "plot in.npz --limits limits.toml -o out.png", "plot in.npz -o out.png",
     f"differentiate in.npz {OUT}", "plot out.h5:velocity --limits limits.toml -o out2.png")
case("a score that takes limits", both(trajectory, text("limits.toml", LIMITS)),
     "score out.h5 --fail limit_share>1",
     "score out.h5 --limits limits.toml --fail limit_share>100")
RATES = 2 * np.cos(T[:, None] * 2 + np.arange(3))
case("no step of velocities", npz(position=CURVE, velocity=RATES),
     "check in.npz:velocity --velocity-of position",
     "check in.npz:velocity --velocity-of position --dt 0.1",
     "check in.npz:velocity --velocity-of position --rate 10")
case("arrays that differ", h5(demo_0__position=CURVE, demo_1__velocity=CURVE,
                              demo_0__velocity=CURVE), "score in.h5 --dt 0.1",
     "score in.h5:demo_*/velocity --dt 0.1")
case("a LeRobot copy that is there", lambda: _lerobot(), "export t.h5 --lerobot set -o set",
     "export t.h5 --lerobot set -o copy")
case("a link out of a LeRobot set",
     lambda: [_lerobot(), Path("set/extra").symlink_to("/etc/passwd")],
     "export t.h5 --lerobot set -o copy", run("cp", "-rL", "set", "whole"),
     "export t.h5 --lerobot whole -o copy")
case("a LeRobot set without its rate", lambda: _lerobot(rate=False),
     f"differentiate set:action {OUT}",
     "differentiate set:action --rate 10 --method central -o o.h5")


def _lerobot(rate: bool = True) -> None:
    import pyarrow
    import pyarrow.parquet

    folder = Path("set")
    (folder / "meta").mkdir(parents=True)
    (folder / "data/chunk-000").mkdir(parents=True)
    table = {"action": list(CURVE), "episode_index": np.zeros(30, int),
             "frame_index": np.arange(30), "timestamp": T.astype("f4"), "index": np.arange(30)}
    kinds = {"action": pyarrow.list_(pyarrow.float64(), 3)}
    schema = pyarrow.schema([(n, kinds.get(n, pyarrow.array(v).type)) for n, v in table.items()])
    pyarrow.parquet.write_table(pyarrow.table(table, schema=schema),
                                folder / "data/chunk-000/episode_000000.parquet")
    features = {"action": {"dtype": "float32", "shape": [3], "names": None}}
    info = {"codebase_version": "v2.1", "total_episodes": 1, "total_frames": 30,
            "chunks_size": 1000, "features": features, "fps": 10 if rate else None,
            "data_path": "data/chunk-{episode_chunk:03d}/episode_{episode_index:06d}.parquet"}
    (folder / "meta/info.json").write_text(json.dumps(info))
    (folder / "meta/episodes.jsonl").write_text(json.dumps({"episode_index": 0, "length": 30}))
    if rate:
        from trajcli.cli import main

        assert main(["differentiate", "set:action", "--method", "central", "-o", "t.h5"]) == 0


# --- bags and stores -------------------------------------------------------------------------


def _bag(*topics: str, late: bool = False) -> Callable[[], None]:
    def make() -> None:
        Path("log.bag").unlink(missing_ok=True)
        import pytest

        pytest.importorskip("rosbags")
        from formats.test_bags import BEGIN, JOINTS, Maker

        maker, messages = Maker("bag"), []
        for k, row in enumerate(CURVE):
            stamp = BEGIN + k * 10**8
            for topic in topics:
                names = ["a", "b", "d" if late and k > 15 else "c"]
                messages.append((topic, JOINTS, stamp, maker.joints(stamp, names, row)))
        maker.write("bag", messages)

    return make


case("several topics", _bag("/left", "/right"), f"differentiate log.bag {OUT}",
     f"differentiate log.bag:/left {OUT}", "differentiate log.bag:/right --method central -o o.h5")
case("joints that come late", _bag("/js", late=True), f"differentiate log.bag:/js {OUT}",
     _bag("/js"), f"differentiate log.bag:/js {OUT}")


def _store(codec: str) -> Callable[[], None]:
    def make() -> None:
        import pytest

        zarr = pytest.importorskip("zarr")
        import numcodecs

        compressor = getattr(numcodecs, codec)()
        store = zarr.open_group("in.zarr", mode="w", zarr_format=2)
        made = store.create_array("position", shape=CURVE.shape, dtype="f8", chunks=CURVE.shape,
                                  compressors=compressor)
        made[:] = CURVE

    return make


case("a codec that is not read", _store("LZMA"), f"differentiate in.zarr --dt 0.1 {OUT}",
     _store("Zstd"), f"differentiate in.zarr --dt 0.1 {OUT}")
case("a large chunk in a store", lambda: _large_store(60000),
     limited(f"differentiate in.zarr --dt 0.1 {OUT}"), lambda: _large_store(1000),
     limited("inspect in.zarr", code=0))


def _large_store(rows: int) -> None:
    import pytest

    zarr = pytest.importorskip("zarr")
    store = zarr.open_group("in.zarr", mode="w")
    made = store.create_array("position", shape=(60000, 3), dtype="f8", chunks=(rows, 3))
    made[:] = np.resize(CURVE, (60000, 3))


case("a replay buffer without times", lambda: _replay(), f"differentiate in.zarr:data/action {OUT}",
     f"differentiate in.zarr:data/action --rate 10 {OUT}")


def _replay() -> None:
    import pytest

    zarr = pytest.importorskip("zarr")
    store = zarr.open_group("in.zarr", mode="w")
    for name, values in (("data/action", CURVE), ("meta/episode_ends", np.array([30]))):
        store.create_array(name, shape=values.shape, dtype=values.dtype)[:] = values


# --- the library -----------------------------------------------------------------------------

FOH = {"scheme": "foh"}
PLAN = trajcli.integrate(CURVE, "zero", 0.1)
case("a plan of no polynomial", nothing, lambda: trajcli.sample(PLAN, [0.05]),
     lambda: trajcli.resample(PLAN, at=[0.05]))
case("a plan without its acceleration", nothing,
     lambda: trajcli.sample(trajcli.integrate(CURVE, "zero", 0.1, write="position", **FOH), [0.05]),
     lambda: trajcli.sample(trajcli.integrate(
         CURVE, "zero", 0.1, write=("position", "velocity", "acceleration"), **FOH), [0.05]))
case("quintic of positions", nothing,
     lambda: trajcli.resample(CURVE, "quintic", rate=20, dt=0.1),
     lambda: trajcli.resample(CURVE, "cubic", rate=20, dt=0.1))
case("trajectories of different duration", nothing,
     lambda: trajcli.resample(np.stack([CURVE] * 2), rate=20, times=np.stack([T, 2 * T])),
     lambda: trajcli.resample(np.stack([CURVE] * 2), at=[0.1, 0.2], times=np.stack([T, 2 * T])),
     lambda: trajcli.resample(np.stack([CURVE] * 2), at=[[0.1], [0.2]], times=np.stack([T, 2 * T])))
case("an error that is not reached", nothing,
     lambda: trajcli.fit(np.random.default_rng(0).normal(size=(30, 3)), dt=0.1, error=1e-30),
     lambda: trajcli.fit(np.random.default_rng(0).normal(size=(30, 3)), dt=0.1, error=3.0))
GAP = np.where(T < 1, T, T + 3)
case("rows that do not determine a curve", nothing,
     lambda: trajcli.fit(CURVE, times=GAP, knots=20),
     lambda: trajcli.fit(CURVE, times=GAP, knots=5), lambda: trajcli.fit(CURVE, dt=0.1, knots=8))
case("matrices that are too large", nothing, lambda: trajcli.operator(10**7, 0.1),
     lambda: trajcli.operator(10, 0.1))
case("a factor with a gradient", nothing, lambda: _scaled(detached=False),
     lambda: _scaled(detached=True))
case("a gradient of dt by smooth", nothing, lambda: _by_dt("smooth", False),
     lambda: _by_dt("smooth", True), lambda: _by_dt("savgol", False))
case("steps that cannot be read", nothing, lambda: _jacobian("0.3s"), lambda: _jacobian(5))
case("smooth within torch.func", nothing, lambda: _chosen_in_func(None),
     lambda: _chosen_in_func(2.0))
case("a rate within torch.func", nothing, lambda: _resampled_in_func(rate=20.0),
     lambda: _resampled_in_func(at=[0.05]))
case("groups that are not one array", lambda: _groups(), lambda: trajcli.load("out.h5"),
     lambda: h5py.File("out.h5")["a/position"][()])
case("a device that is not there", npy(), f"{INTEGRATE} --device cuda", f"{INTEGRATE} --device cpu")
case("control points as a recording", nothing,
     lambda: trajcli.operator(10, 0.1, "bspline", ends="recording"),
     lambda: trajcli.operator(10, 0.1, "central", ends="recording"),
     lambda: trajcli.operator(10, 0.1, "savgol", start="first", window=5),
     lambda: trajcli.operator(10, 0.1, "clique", start="first"))
case("rates as a recording", nothing, lambda: trajcli.operator(10, 0.1, "velocity", start="first"),
     lambda: trajcli.operator(10, 0.1, "velocity"))
case("savgol of no recording", nothing, lambda: trajcli.operator(10, 0.1, "savgol", window=5),
     lambda: trajcli.operator(10, 0.1, "savgol", window=5, start="first"))


def _torch() -> Any:
    import pytest

    return pytest.importorskip("torch")


def _scaled(detached: bool) -> None:
    torch = _torch()
    x, factor = torch.ones(3), torch.ones(3, requires_grad=True)
    trajcli.scale_gradient(x, factor.detach() if detached else factor)


def _by_dt(method: str, detached: bool) -> None:
    torch = _torch()
    dt = torch.tensor(0.1, dtype=torch.float64, requires_grad=True)
    trajcli.differentiate(torch.tensor(CURVE), dt=dt.detach() if detached else dt, method=method)


def _jacobian(window: str | int) -> None:
    torch = _torch()

    def positions(dt: Any) -> Any:
        return trajcli.differentiate(torch.tensor(CURVE), dt=dt, window=window).position.sum()

    torch.func.grad(positions)(torch.tensor(0.1, dtype=torch.float64))


def _chosen_in_func(bandlimit: float | None) -> None:
    torch = _torch()
    torch.func.grad(lambda q: trajcli.differentiate(
        q, dt=0.1, method="smooth", bandlimit=bandlimit).velocity.sum())(torch.tensor(CURVE))


def _resampled_in_func(**new: Any) -> None:
    torch = _torch()
    at = {"at": torch.tensor(new["at"])} if "at" in new else new
    torch.func.grad(lambda times: trajcli.resample(
        torch.tensor(CURVE), times=times, **at).position.sum())(torch.tensor(T))


def _groups() -> None:
    np.savez("a.npz", actions=CURVE, dt=0.1)
    np.savez("b.npz", actions=CURVE[1:], dt=0.1)
    from trajcli.cli import main

    line = "integrate a.npz b.npz --start zero -o out.h5"
    assert main(line.split()) == 0


# --- what happens while a command runs --------------------------------------------------------


def _stopped() -> None:
    from trajcli.files.writing import stopped

    raise stopped(Path("out.h5"), "SIGTERM", 3, 10)


def _interrupted() -> None:
    from trajcli.cli import _interrupted

    raise _interrupted("SIGTERM", ["integrate"])


def _changed(reopened: bool) -> None:
    from trajcli.files.opening import Files
    from trajcli.files.reading import Reading

    h5("in.h5", position=CURVE)()
    with Files(Reading()) as files:
        file = files.open(Path("in.h5"))
        file.require("position").read()
        file.close()
        h5("in.h5", position=CURVE, dt=0.1)()
        if reopened:
            file.opened()
        else:
            files.sources.require_unchanged()


def _fewer_rows() -> None:
    from trajcli.files.arrays import Dataset

    Dataset("in.h5:/position", (30, 3), CURVE.dtype, lambda a, b: CURVE[a:b][:9]).read()


def _matlab() -> None:
    import pytest

    io = pytest.importorskip("scipy.io")
    io.savemat("in.mat", {"position": np.resize(CURVE, (60000, 3))})


case("a run that a signal ended", npy(), _stopped, INTEGRATE)
case("a command that a signal ended", npy(), _interrupted, INTEGRATE)
case("a file that was written again", nothing, lambda: _changed(True),
     "differentiate in.h5 --method central -o out.h5")
case("a file that was written meanwhile", nothing, lambda: _changed(False),
     "differentiate in.h5 --method central -o out.h5")
case("fewer rows than declared", nothing, _fewer_rows, h5(position=CURVE, dt=0.1),
     "differentiate in.h5 --method central -o out.h5")
case("a large file of MATLAB's", _matlab, limited("inspect in.mat"),
     h5("in.mat", position=np.resize(CURVE.T, (3, 60000))), limited("inspect in.mat", code=0))
case("a large topic", _bag("/js"), limited(f"differentiate log.bag:/js {OUT}", "1kB"),
     limited(f"differentiate log.bag:/js {OUT}", "1MB", 0))


def _two_dofs(more: str) -> Callable[[], None]:
    def make() -> None:
        from trajcli.cli import main

        for number in range(2):
            line = f"integrate a.npz b.npz --start zero {more} --overwrite -o out.h5"
            assert main([*line.split(), "--shard", f"{number}/2", "--quiet"]) == 0

    return make


case("parts with other dofs", both(npz("a.npz", actions=CURVE, dt=0.1),
     npz("b.npz", actions=CURVE[:, :2], dt=0.1), _two_dofs("")), "merge out.h5",
     _two_dofs("--dofs 0:2"), "merge out.h5", "inspect out.h5 --dofs 0:2")


UNTRIED: dict[str, str] = {
    "a damaged bag; `mcap recover` or `rosbag reindex` counts anew": "programs of ROS",
    "one call with the same arguments just before the capture": "a CUDA graph",
    "tensors on a CUDA device, or --device cuda": "a CUDA device",
    "--device cpu, or wait until others have left the device": "a CUDA device whose memory is full",
    "set a smaller TRAJCLI_MEMORY, or use a machine with more memory": "no memory is left",
    "TRAJCLI_DEBUG=1 shows where; please report it": "a bug",
    "convert it where TensorFlow is: for i, e in enumerate("
    "tfds.builder_from_directory(FOLDER).as_dataset(split='train')): "
    "np.save(f'episode_{i}.npy', np.stack([s['action'] for s in e['steps']"
    ".as_numpy_iterator()])), or to a LeRobot data set": "TensorFlow is not among the tests'",
}
"""Hints that no test follows, and what that would take."""
