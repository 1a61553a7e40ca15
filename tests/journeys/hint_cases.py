"""Every error with a hint: what provokes it, and what the hint says, done."""

from __future__ import annotations

import errno
import fcntl
import importlib.util
import json
import os
import pickle
import shutil
import subprocess
import sys
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import torch
from journeys.arrays import write_h5
from layouts import writers

import trajcli
from trajcli import State
from trajcli.cli import main

# fmt: off
Make = Callable[[], Any]
CASES: dict[str, tuple[Make, Any, tuple[Any, ...]]] = {}
"""By name: what makes the files, what is refused (a command line or a call), and what is then done:
command lines, which must exit with 0 (or with the number before them), and calls."""
TYPED = "typed"
"""In place of what is done: what the hint says is typed, until a command line succeeds."""
T = np.arange(30) / 10
CURVE = np.sin(T[:, None] * 2 + np.arange(3))
STAMPS = T + 0.003 * np.sin(np.arange(30))
DEMOS = writers.demos()
MASKED = np.ma.masked_greater(CURVE, 0.99)


def case(name: str, make: Callable[[], Any], refused: Any, *followed: Any) -> None:
    assert name not in CASES
    CASES[name] = make, refused, followed


def differ(words: str) -> str:
    method = "" if "--method" in words else " --method central"
    return f"differentiate {words}{method} -o out.h5"


def integ(words: str) -> str:
    return f"integrate {words} -o out.h5"


def nothing() -> None:
    pass


def npy(name: str = "in.npy", values: Any = CURVE) -> Make:
    return lambda: np.save(name, values)


def npz(name: str = "in.npz", **arrays: Any) -> Make:
    return lambda: np.savez(name, **arrays)


def h5(name: str = "in.h5", more: dict[str, Any] | None = None, /, **arrays: Any) -> Make:
    return lambda: write_h5(name, more, **arrays)


def both(*makers: Make) -> Make:
    return lambda: [maker() for maker in makers]


def text(name: str, content: str) -> Make:
    return lambda: Path(name).write_text(content)


def run(*words: str) -> Make:
    """A command of another program, as a hint has it."""
    return lambda: subprocess.run(words, check=True, capture_output=True)


def cli(line: str, code: int = 0) -> Make:
    """A command line of trajcli that exits with a code."""

    def call() -> None:
        assert main(line.split()) == code, line

    return call


trajectory = both(npy(), cli("integrate in.npy --dt 0.1 --start zero -o out.h5 --quiet"))
"""Makes a file that trajcli wrote."""


def table(rows: str, head: str = "t,a,b,c") -> Make:
    return text("log.csv", f"{head}\n{rows}")


ROWS = "".join(f"{k / 10},{k},{k * k},{k % 3}\n" for k in range(30))


def lacking(module: str, line: str) -> Make:
    """A command where a module is not installed."""

    def call() -> None:
        with pytest.MonkeyPatch.context() as patched:
            for name in [name for name in sys.modules if name.split(".")[0] == module]:
                patched.delitem(sys.modules, name)
            patched.setitem(sys.modules, module, None)
            cli(line, 2)()

    return call


def _old_torch() -> None:
    from unittest import mock

    from trajcli.cli import main

    with mock.patch("torch.__version__", "2.5.1"):
        assert main(["inspect", "in.pt"]) == 2


# --- steps and stamps ------------------------------------------------------------------------

case("no time step", npy(), differ("in.npy"), differ("in.npy --dt 0.1"), differ("in.npy --rate 10"),
     npz("t.npz", t=T), differ("in.npy --times t.npz:t"))
case("no time step in Python", nothing, lambda: trajcli.differentiate(CURVE),
     lambda: trajcli.differentiate(CURVE, dt=0.1), lambda: trajcli.differentiate(CURVE, times=T))
case("no start in Python", nothing, lambda: trajcli.integrate(CURVE, None, 0.1),
     lambda: trajcli.integrate(CURVE, "zero", 0.1), lambda: trajcli.differentiate(CURVE, dt=0.1),
     lambda: trajcli.integrate(CURVE, State(np.zeros(3)), 0.1))
case("stamps that repeat in Python", nothing,
     lambda: trajcli.differentiate(CURVE, times=np.where(T == 1, T[9], T)),
     lambda: trajcli.differentiate(np.delete(CURVE, 10, 0), times=np.delete(T, 10)))
case("stamps of a coarser clock in Python", nothing,
     lambda: trajcli.differentiate(CURVE, times=np.arange(30) // 2 / 5),
     lambda: trajcli.differentiate(CURVE, dt=0.1),
     lambda: trajcli.differentiate(CURVE[::2], times=np.arange(15) / 5))
case("rates without their scheme in Python", nothing,
     lambda: trajcli.integrate(CURVE, "zero", times=T, mode="velocity", scheme="zoh"),
     lambda: trajcli.integrate(CURVE, "zero", times=T, mode="velocity", scheme="foh"),
     lambda: trajcli.integrate(CURVE[1:], "zero", times=T, mode="velocity", scheme="zoh"))
case("likely times", npz(position=CURVE, timestmaps=T), differ("in.npz:position"),
     differ("in.npz:position --times in.npz:timestmaps"), differ("in.npz:position --dt 0.1"),
     differ("in.npz:position --rate 10"))
case("two rates that disagree", npz(position=CURVE, fps=10, sample_rate=20), differ("in.npz"),
     differ("in.npz --rate 10"), differ("in.npz --dt 0.1"))
case("a step and a rate that disagree", npz(position=CURVE, dt=0.1, fps=20), differ("in.npz"),
     differ("in.npz --dt 0.1"), differ("in.npz --rate 20"))
case("a stamp too few", npz(position=CURVE, times=T[1:]), differ("in.npz:position"),
     differ("in.npz:position --dt 0.1"))
case("stamps of actions", nothing,
     lambda: trajcli.integrate(CURVE, "zero", times=T[2:], mode="velocity"),
     lambda: trajcli.integrate(CURVE, "zero", times=np.append(T, 3.0), mode="velocity"),
     lambda: trajcli.integrate(CURVE, "zero", times=T, mode="velocity"),
     lambda: trajcli.differentiate(CURVE, times=T))
case("stamps that repeat", npz(position=CURVE, times=np.where(T == 1, T[9], T)),
     differ("in.npz:position"), differ("in.npz:position --repeated-times drop"))
case("a clock that is coarser than the rows",
     table("".join(f"{k // 2 / 5},{a},{b},{c}\n" for k, (a, b, c) in enumerate(CURVE))),
     differ("log.csv"), differ("log.csv --rate 10"),
     differ("log.csv --repeated-times drop"))
case("stamps that go back", npz(position=CURVE, times=np.where(np.arange(30) == 9, 0.05, STAMPS)),
     differ("in.npz:position"), npz(position=CURVE, times=np.sort(STAMPS)),
     differ("in.npz:position"))
case("stamps of another axis", npz(position=np.stack([CURVE] * 4, 1), times=T), differ("in.npz"),
     differ("in.npz --axes TBD"))
case("two statements of episodes", npz(q=CURVE, lengths=[10, 20], episode_ends=[9, 30]),
     differ("in.npz:q --dt 0.1"), npz(q=CURVE, lengths=[10, 20]), differ("in.npz:q --dt 0.1"))
case("dt and stamps", npz(position=CURVE, dt=0.2, times=T), differ("in.npz:position"),
     differ("in.npz:position --dt 0.1"), differ("in.npz:position --times in.npz:times"))
case("one dt for each trajectory", nothing,
     lambda: trajcli.differentiate(np.stack([CURVE] * 2), dt=np.array([0.1, 0.2])),
     lambda: trajcli.differentiate(np.stack([CURVE] * 2), dt=np.array([[0.1], [0.2]])))
case("a vector", nothing, lambda: trajcli.differentiate(CURVE[:, 0], dt=0.1),
     lambda: trajcli.differentiate(CURVE[:, 0][:, None], dt=0.1))
case("gaps everywhere", npz(position=CURVE, times=STAMPS), differ("in.npz:position --max-gap 0.01"),
     differ("in.npz:position --max-gap 0.5"))
case("rates without their scheme", npz(qd=CURVE, t=T),
     integ("in.npz:qd --times in.npz:t --mode velocity --scheme zoh --start zero"),
     integ("in.npz:qd --times in.npz:t --mode velocity --scheme foh --start zero"),
     npz(qd=CURVE, t=np.append(T, 3.0)),
     integ("in.npz:qd --times in.npz:t --mode velocity --scheme zoh --start zero"))
case("rates with absolute dofs", npz(qd=CURVE, t=T),
     integ("in.npz:qd --times in.npz:t --mode velocity --absolute 2 --start zero"),
     integ("in.npz:qd --times in.npz:t --mode velocity --dofs 0:2 --start zero"))
case("rates with a start index", nothing,
     lambda: trajcli.integrate(CURVE, np.eye(3), times=T, start_index=np.array([2])),
     lambda: trajcli.integrate(CURVE, np.eye(3)[np.array([2])], times=T))
case("files with different steps",
     both(
        npz("a.npz", position=CURVE, dt=0.1 + 0.001 * np.arange(30)),
        npz("b.npz", position=CURVE, dt=0.1 + 0.001 * np.arange(29))), differ("a.npz b.npz"),
     differ("a.npz b.npz --dt 0.1"), differ("a.npz b.npz --rate 10"), npy("t.npy", T),
     differ("a.npz b.npz --times t.npy"), differ("a.npz"), differ("b.npz"))
case("times outside", both(npz(position=CURVE, dt=0.1), npy("at.npy", np.array([-1.0, 0.5]))),
     "resample in.npz --at at.npy -o out.h5", "1 resample in.npz --at at.npy --skip-bad -o out.h5")
case("minutes", h5("in.h5", {"times@units": "minutes"}, position=CURVE, times=T), differ("in.h5"),
     differ("in.h5 --dt 6"), differ("in.h5 --rate 10"),
     h5("in.h5", {"times@units": "s"}, position=CURVE, times=60 * T), differ("in.h5"))

# --- start, goal, modes ----------------------------------------------------------------------

case("no start", npy(), integ("in.npy --dt 0.1"), integ("in.npy --dt 0.1 --start zero"),
     h5("s.h5", {"s/position": CURVE[0]}), integ("in.npy --dt 0.1 --start s.h5:s"),
     "differentiate in.npy --dt 0.1 -o o2.h5")
case("a start of more dofs", both(npy(), npz("s.npz", **{"start/position": np.zeros(4)})),
     integ("in.npy --dt 0.1 --start s.npz"), integ("in.npy --dt 0.1 --start s.npz:start[:3]"),
     npy("s.npy", np.zeros(4)), integ("in.npy --dt 0.1 --start s.npy:[:3]"))
case("a file of one quaternion", both(npz(angular_velocity=CURVE, dt=0.1),
                                      npz("s.npz", q_xyzw=[0, 0.8, 0, 0.6])),
     integ("in.npz:angular_velocity --mode velocity --start s.npz"), TYPED)
case("a start of fewer dofs", both(npy(), npy("s.npy", np.zeros(2))),
     integ("in.npy --dt 0.1 --start s.npy"), integ("in.npy --dt 0.1 --start s.npy --dofs 0:2"))
case("states of another number", both(npy("in.npy", np.stack([CURVE] * 2)), npy("i.npy", [4, 0]),
                                      npz("s.npz", position=np.zeros((5, 3)))),
     integ("in.npy --dt 0.1 --start s.npz"),
     integ("in.npy --dt 0.1 --start s.npz --start-index i.npy"),
     npz("s.npz", position=np.zeros((5, 3)), start_index=[4, 0]),
     integ("in.npy --dt 0.1 --start s.npz"))
case("a recording as a start", npy(), integ("in.npy --dt 0.1 --start first"),
     "differentiate in.npy --dt 0.1 -o out.h5")
case("a start of differentiate", npy(), "differentiate in.npy --dt 0.1 --start zero -o out.h5",
     integ("in.npy --dt 0.1 --start zero"))
case("a mode of differentiate", npy(), "differentiate in.npy --dt 0.1 --mode central -o out.h5",
     integ("in.npy --dt 0.1 --mode central --start zero"), differ("in.npy --dt 0.1"))
case("a near choice", npy(), integ("in.npy --dt 0.1 --mode jrek --start zero"),
     integ("in.npy --dt 0.1 --mode jerk --start zero"))
case("no such choice", npy(), integ("in.npy --dt 0.1 --mode xyz --start zero"), "integrate --help")
case("no such option", npy(), "integrate in.npy --no-such-option", "integrate --help")
case("a recording in Python", nothing, lambda: trajcli.integrate(CURVE, "first", 0.1),
     lambda: trajcli.differentiate(CURVE, dt=0.1))
case("a state as a dict", nothing, lambda: trajcli.integrate(CURVE, {"position": np.zeros(3)}, 0.1),
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
case("a goal of the shell that moves",
     both(npy(), npz("g.npz", **{f"goal/{part}": np.ones(3) for part in ("position", "velocity")})),
     integ("in.npy --dt 0.1 --start zero --goal g.npz --ends goal --mode central"),
     integ("in.npy --dt 0.1 --start zero --goal g.npz --ends goal --mode bspline"))
case("a moving goal of central", nothing,
     lambda: trajcli.integrate(CURVE, "zero", 0.1, "central", ends="goal",
                               goal=State(np.zeros(3), np.ones(3))),
     lambda: trajcli.integrate(CURVE, "zero", 0.1, "bspline", ends="goal",
                               goal=State(np.zeros(3), np.ones(3))))
case("an option of another mode", npy(),
     integ("in.npy --dt 0.1 --mode jerk --degree 3 --start zero"), "modes",
     integ("in.npy --dt 0.1 --mode bspline --degree 3 --start zero"))
case("an option of another mode in Python", nothing,
     lambda: trajcli.integrate(CURVE, "zero", 0.1, degree=3),
     lambda: trajcli.integrate(CURVE, "zero", 0.1, "bspline", degree=3),
     lambda: trajcli.differentiate(CURVE, dt=0.1, method="savgol", degree=3))
case("an option of another method", npy(), differ("in.npy --dt 0.1 --noise 1"),
     differ("in.npy --dt 0.1 --method smooth --noise 0.01"))
case("options of another method", npy(),
     differ("in.npy --dt 0.1 --method smooth --window 9 --degree 3"),
     differ("in.npy --dt 0.1 --method savgol --window 9 --degree 3"))
case("modes that differ",
     both(h5("a.h5", {"actions@mode": "jerk"}, actions=CURVE, dt=0.1),
                               h5("b.h5", {"actions@mode": "velocity"}, actions=CURVE, dt=0.1)),
     integ("a.h5 b.h5 --start zero"), integ("a.h5 b.h5 --mode jerk --scheme zoh --start zero"))
case("too few rows for stencils", npy(values=CURVE[:4]), differ("in.npy --dt 0.1"),
     differ("in.npy --dt 0.1 --method backward"))
case("too few rows for the degree", npy(values=CURVE[:4]),
     differ("in.npy --dt 0.1 --method savgol --window 0.3s"),
     differ("in.npy --dt 0.1 --method backward"))
case("too few rows for a spline", npy(values=CURVE[:3]), differ("in.npy --dt 0.1 --method smooth"),
     differ("in.npy --dt 0.1 --method backward"))
case("a window that is too long", npy(), differ("in.npy --dt 0.1 --method savgol --window 31"),
     differ("in.npy --dt 0.1 --method savgol --window 0.3s"))
case("a window of too many rows", npy(values=np.zeros((2500, 1))),
     differ("in.npy --rate 1000 --method savgol --window 2s"),
     differ("in.npy --rate 1000 --method savgol --window 0.2s"))
case("a dof that moves alone", nothing,
     lambda: trajcli.integrate(np.stack([CURVE] * 2), np.zeros((5, 3)), 0.1),
     lambda: trajcli.integrate(np.stack([CURVE] * 2), np.zeros((5, 3)), 0.1,
                               start_index=np.array([4, 0])))
case("NaN", npy(values=np.where(CURVE > 0.999, np.nan, CURVE)),
     integ("in.npy --dt 0.1 --start zero"), integ("in.npy --dt 0.1 --start zero --allow-nonfinite"))
case("NaN in Python", nothing,
     lambda: trajcli.differentiate(np.where(CURVE > 0.999, np.nan, CURVE), dt=0.1),
     lambda: trajcli.differentiate(np.where(CURVE > 0.999, np.nan, CURVE), dt=0.1,
                                   allow_nonfinite=True))
case("NaN on a curve", npz(position=np.where(CURVE > 0.999, np.nan, CURVE), dt=0.1),
     "resample in.npz --to 20 -o out.h5", npz(position=np.nan_to_num(CURVE), dt=0.1),
     "resample in.npz --to 20 -o out.h5")
# --- what SOURCE names ------------------------------------------------------------------------

case("a near file", npy(), differ("im.npy --dt 0.1"), differ("in.npy --dt 0.1"))
case("a near dataset", npz(positions=CURVE, dt=0.1), differ("in.npz:position"), "inspect in.npz",
     differ("in.npz:positions"))
case("a near group", h5("in.h5", {f"data/demo_{k}/actions": CURVE for k in range(2)}),
     integ("in.h5:/data/demo0 --mode clique --dt 0.1 --start zero"),
     integ("in.h5:/data/demo_0 --mode clique --dt 0.1 --start zero"), "inspect in.h5")
case("several families",
     table("".join(f"{k / 10},{k},{k},{k},{k}\n" for k in range(30)), "t,a1,a2,b1,b2"),
     differ("log.csv"), differ("log.csv:a"))
case("a cell that is no number", table(ROWS.replace("29,841", "29,??")), differ("log.csv"),
     differ("log.csv:a,c"))
case("no recorded positions", npz(actions=CURVE, dt=0.1), differ("in.npz"),
     differ("in.npz:actions"), integ("in.npz --start zero"))
case("no actions", trajectory, "integrate out.h5 --start zero -o o.h5",
     "integrate out.h5:position --start zero -o o.h5")
case("positions guessed", npz(q=CURVE, dt=0.1), integ("in.npz --start zero"), differ("in.npz"),
     integ("in.npz:q --mode clique --start zero"))
case("dofs that differ",
     both(npz("a.npz", position=CURVE, dt=0.1), npz("b.npz", position=CURVE[:, :2], dt=0.1)),
     differ("a.npz b.npz"), differ("a.npz b.npz --dofs 0:2"), differ("a.npz"), differ("b.npz"))
case("joints that differ", both(
        npz("a.npz", position=CURVE, dt=0.1, joint_names=np.array(list("xyz"))),
        npz("b.npz", position=CURVE, dt=0.1, joint_names=np.array(list("zyx")))),
     differ("a.npz b.npz"), differ("a.npz b.npz --dofs x,y,z"))
case("units that differ", both(h5("a.h5", {"position@units": "rad"}, position=CURVE, dt=0.1),
                               h5("b.h5", {"position@units": "m"}, position=CURVE, dt=0.1)),
     differ("a.h5 b.h5"), differ("a.h5 b.h5 --units rad"))
case("units of an output", both(npy(), cli("differentiate in.npy --dt 0.1 -o made.h5")),
     "check made.h5 --units deg", "check made.h5", "export made.h5 --to-units deg -o made.csv")
case("no unit to convert from", npz(position=CURVE, dt=0.1),
     "export in.npz --to-units deg -o out.csv",
     "export in.npz --units rad --to-units deg -o out.csv")
case("a unit of velocities", npy(), differ("in.npy --dt 0.1 --units rad/s"),
     differ("in.npy --dt 0.1 --units rad"))
case("actions in several arrays", h5("main_data.hdf5", {
        **{f"episode_0/{name}": CURVE for name in ("actions/a", "actions/b", "observations")},
        **{f"episode_0/{name}": T for name in ("rewards", "terminations", "truncations")}}),
     integ("main_data.hdf5 --dt 0.1 --start zero"),
     integ("main_data.hdf5:actions/a --dt 0.1 --start zero"))
case("no trajectories of a layout", npz(position=CURVE, dt=0.1),
     differ("in.npz --layout robomimic"), differ("in.npz --layout plain"))
case("degrees to be made continuous", npz(position=200 * T[:, None] % 360, dt=0.1),
     differ("in.npz --wrap-dofs 0"), differ("in.npz --wrap-dofs 0 --units deg"))
case("normalised commands", lambda: writers.robomimic(Path("demo.hdf5"), writers.demos(scale=1.0)),
     integ("demo.hdf5"), differ("demo.hdf5:obs/robot0_joint_pos"),
     integ("demo.hdf5 --mode acceleration"))
case("no filter keys", lambda: writers.minari(Path("main_data.hdf5"), DEMOS),
     integ("main_data.hdf5 --filter-key train --dt 0.1 --start zero"),
     lambda: writers.robomimic(Path("demo.hdf5"), DEMOS),
     integ("demo.hdf5 --filter-key train --start zero"))
case("rows of episodes mixed",
     table("".join(f"{k % 2},{k / 10},{k},{k}\n"
     for k in range(30)), "episode_index,timestamp,action.0,action.1"),
     integ("log.csv --start zero"),
     table("".join(f"{k // 15},{k / 10},{k},{k}\n" for k in range(30)),
                   "episode_index,timestamp,action.0,action.1"), integ("log.csv --start zero"))
case("standard input", npy(), differ("- --dt 0.1"), lambda: shutil.copy("in.npy", "actions.npy"),
     differ("actions.npy --dt 0.1"))
for scheme in ("https", "s3", "gs", "hf"):
    case(f"a URL: {scheme}", nothing, f"inspect {scheme}://bucket/owner/set/in.npy", npy(),
         "inspect in.npy")
case("links out of the file",
     both(h5("other.h5", q=CURVE), h5(position=h5py.ExternalLink("other.h5", "/q"))),
     differ("in.h5 --dt 0.1"), differ("in.h5 --dt 0.1 --allow-external"))
case("links out of the file in Python",
     both(h5("other.h5", q=CURVE), h5(position=h5py.ExternalLink("other.h5", "/q"), time=T)),
     lambda: trajcli.load("in.h5"), lambda: h5py.File("in.h5")["position"][()])


def _without_rate(name: str, write: Callable[[Path], Any]) -> Make:
    def make() -> None:
        write(Path(name))
        with h5py.File(name, "r+") as file:
            for group in (file, *(g for g in file.values() if isinstance(g, h5py.Group))):
                for key in {"env_args", "sim_args", "env_info"} & {*group.attrs}:
                    del group.attrs[key]
        for beside in Path().glob("*.json"):
            beside.unlink()

    return make


# --- robots ----------------------------------------------------------------------------------

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
case("standard output", npy(), f"{DIFFERENTIATE} -", f"{DIFFERENTIATE} out.h5",
     "export out.h5 -o -")
case("an address", npy(), f"{DIFFERENTIATE} s3://bucket/out.h5", f"{DIFFERENTIATE} out.h5")
case("a decimal comma", trajectory, "export out.h5 -o o.csv --decimal ,",
     "export out.h5 -o o.csv --decimal , --separator ';'")
case("stamps of no clock", trajectory, "export out.h5 -o o.csv --stamps", "export out.h5 -o o.csv")
case("a column that is not there", trajectory, "export out.h5 -o o.csv --columns velocty",
     "export out.h5 -o o.csv --columns velocity")
case("points of several trajectories", npz(position=np.stack([CURVE] * 2), dt=0.1),
     "export in.npz -o o.yaml", "export in.npz --episodes 0 --joints a,b,c -o o.yaml")
case("points of joints without names", npz(position=CURVE, dt=0.1), "export in.npz -o o.yaml",
     "export in.npz -o o.yaml --joints joint1,joint2,joint3")
case("actions of no positions", npz(velocity=CURVE, p=CURVE, dt=0.1),
     "export in.npz --actions-as delta -o o.h5", "inspect in.npz",
     "export in.npz:p --actions-as delta -o o.h5")
case("exported actions", both(npz(position=CURVE, dt=0.1),
     cli("export in.npz --actions-as delta -o in.h5")), integ("in.h5"),
     integ("in.h5 --actions delta --mode clique"))
case("another kind of output", npy(), f"{DIFFERENTIATE} out.zarr", f"{DIFFERENTIATE} out.h5",
     lambda: _to_zarr())
case("several arrays in one", npy(), f"{DIFFERENTIATE} out.npy",
     f"{DIFFERENTIATE} out.npy --write position")
case("several arrays of resample in one", npz(position=CURVE, velocity=CURVE, times=T),
     "resample in.npz --to 50 -o out.npy", TYPED)
case("a figure of integrate", npy(), integ("in.npy --dt 0.1 --start zero").replace(".h5", ".png"),
     integ("in.npy --dt 0.1 --start zero"), "plot out.h5 -o out.png")
case("a full disk", npy(), lambda: _full_disk(), f"{DIFFERENTIATE} out.h5 --write position",
     f"{DIFFERENTIATE} out.h5 --dtype float32 --overwrite")
case("a disk that is full when it is written", nothing, lambda: _disk_quota(), nothing)
case("a lock that cannot be opened", both(npy(), text(".out.h5.trajcli-lock", "")),
     lambda: _locked_away(), run("rm", ".out.h5.trajcli-lock"), f"{DIFFERENTIATE} out.h5")


LOCKED: list[int] = []


def _lock(name: str) -> None:
    LOCKED.append(os.open(name, os.O_RDWR | os.O_CREAT))
    fcntl.flock(LOCKED[-1], fcntl.LOCK_EX)


case("an output that another run writes", both(npy(), lambda: _lock(".out.h5.trajcli-lock")),
     f"75 {DIFFERENTIATE} out.h5", lambda: os.close(LOCKED.pop()), f"{DIFFERENTIATE} out.h5")
case("an HDF5 file that another program writes",
     both(lambda: write_h5("in.h5", position=CURVE), lambda: _lock("in.h5")),
     "inspect in.h5 --dt 0.1",
     run("env", "HDF5_USE_FILE_LOCKING=FALSE", sys.executable, "-m", "trajcli", "inspect", "in.h5"),
     lambda: os.close(LOCKED.pop()), "inspect in.h5 --dt 0.1")


def _locked_away() -> None:
    """Another user's lock cannot be opened; root opens any."""

    def denied(lock: Path) -> int:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(lock))

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("trajcli.files.atomic_output._open_lock", denied)
        assert main(f"{DIFFERENTIATE} out.h5".split()) == 2


def _to_zarr() -> None:
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


def content(name: str, data: bytes) -> Make:
    return lambda: Path(name).write_bytes(data)


def _bzip2() -> None:
    np.save("position.npy", CURVE)
    with zipfile.ZipFile("in.npz", "w", zipfile.ZIP_BZIP2) as archive:
        archive.write("position.npy")


def _packed_torch() -> None:
    tensors("plain.pt")()
    with zipfile.ZipFile("plain.pt") as plain, zipfile.ZipFile(
        "in.pt", "w", zipfile.ZIP_DEFLATED
    ) as packed:
        for name in plain.namelist():
            packed.writestr(name, plain.read(name))


def tensors(path: str = "in.pt", **more: Any) -> Make:
    def make() -> None:
        import torch

        torch.save({"actions": torch.tensor(CURVE), **more}, path)

    return make


def _packed_twice() -> None:
    with h5py.File("in.h5", "w") as file:
        create = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        create.set_chunk((30, 3))
        create.set_deflate(4)
        create.set_filter(h5py.h5z.FILTER_LZF, h5py.h5z.FLAG_OPTIONAL)
        space = h5py.h5s.create_simple((30, 3))
        made = h5py.h5d.create(file.id, b"position", h5py.h5t.NATIVE_DOUBLE, space, create)
        made.write(h5py.h5s.ALL, h5py.h5s.ALL, CURVE)


def stored(**storage: Any) -> Make:
    """Makes in.h5 with a dataset "position" that is stored in some way."""

    def make() -> None:
        with h5py.File("in.h5", "w") as file:
            file.create_dataset("position", **storage)

    return make


MANY = np.resize(CURVE, (60000, 3))
GZIP = {"data": CURVE, "compression": "gzip"}


def _large_table() -> None:
    rows = np.column_stack([np.arange(60000) / 10, MANY])
    np.savetxt("log.csv", rows, delimiter=",", header="t,q0,q1,q2", comments="", fmt="%.4f")


def _to_parquet(count: int = 60000, rows: int = 0, packed: int = 1) -> Make:
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


def limited(line: str, memory: str = "1MB", code: int = 2) -> Make:
    """A command with so much memory."""

    def call() -> None:
        with pytest.MonkeyPatch.context() as patched:
            # of the usual 64 MiB this would take long
            patched.setattr("trajcli.files.catalogue.LEAST_MEMORY", 1)
            patched.setenv("TRAJCLI_MEMORY", memory)
            cli(line, code)()

    return call


case("a packed file", both(npy(), run("gzip", "in.npy")), differ("in.npy.gz --dt 0.1"),
     run("gunzip", "-k", "in.npy.gz"), differ("in.npy --dt 0.1"))
case("a workbook", content("log.xlsx", b"PK\3\4" + bytes(100)), differ("log.xlsx"), table(ROWS),
     differ("log.csv:a,c"))
case("a pickle", content("in.pkl", pickle.dumps(CURVE)), differ("in.pkl --dt 0.1"),
     npz(actions=CURVE, dt=0.1), differ("in.npz:actions"))
case("objects in an array", npy("in.npy", np.array([*CURVE.tolist(), None], object)),
     differ("in.npy --dt 0.1"), npy(), differ("in.npy --dt 0.1"))
case("another compression in an archive", _bzip2, differ("in.npz --dt 0.1"),
     lambda: np.savez_compressed("in.npz", position=CURVE), differ("in.npz --dt 0.1"))
case("a packed archive of torch", _packed_torch, differ("in.pt:actions --dt 0.1"), tensors(),
     differ("in.pt:actions --dt 0.1"))
case("objects beside tensors", tensors(path_=Path("x")), differ("in.pt:actions --dt 0.1"),
     tensors("actions.pt"), differ("actions.pt:actions --dt 0.1"))
case("packed twice", _packed_twice, differ("in.h5 --dt 0.1"), stored(**GZIP),
     differ("in.h5 --dt 0.1"))
case("never written", stored(shape=(30, 3), dtype="f8"), differ("in.h5 --dt 0.1"), stored(**GZIP),
     differ("in.h5 --dt 0.1"))
case("a large chunk", stored(data=MANY, chunks=(60000, 3), compression="gzip"),
     limited(differ("in.h5 --dt 0.1")), limited(differ("in.h5 --dt 0.1"), "8MB", 0),
     stored(data=MANY, chunks=(1000, 3), compression="gzip"), limited("inspect in.h5", code=0))
case("a large table", _large_table, limited(differ("log.csv")),
     limited(differ("log.csv"), "8MB", 0), _to_parquet(), limited("inspect log.parquet", code=0))
case("a large column", _to_parquet(60000, 1000, 0), limited(differ("log.parquet:q0,q1"), "400kB"),
     _to_parquet(5000), limited(differ("log.parquet:q0,q1"), "400kB", 0))
case("a large row group", _to_parquet(60000, 60000), limited(differ("log.parquet:q")),
     _to_parquet(60000, 1000), limited("inspect log.parquet", code=0))
case("a large archive", lambda: np.savez_compressed("in.npz", position=np.asfortranarray(MANY)),
     limited(differ("in.npz --dt 0.1")), npz(position=MANY), limited("inspect in.npz", code=0))
for module, name, head in (("yaml", "in.yaml", b"a: 1\n"), ("scipy", "in.mat", b"MATLAB 5.0"),
                           ("pyarrow", "in.parquet", b"PAR1"), ("zarr", "in.zarr.zip", b"PK\3\4"),
                           ("rosbags", "in.bag", b"#ROSBAG V2.0\n"), ("torch", "in.pt", b"PK\3\4")):
    case(f"{module} is not installed", content(name, head),
         lacking(module, f"inspect {name}"), lambda module=module: importlib.util.find_spec(module))
case("torch is too old", lambda: Path("in.pt").write_bytes(b"PK\3\4"), _old_torch,
     lambda: importlib.util.find_spec("torch"))
case("matplotlib is not installed", trajectory, lacking("matplotlib", "plot out.h5 -o out.png"),
     lambda: importlib.util.find_spec("matplotlib"))
case("rerun is not installed", trajectory, lacking("rerun", "export out.h5 -o out.rrd"),
     lambda: importlib.util.find_spec("rerun"))
case("no TOML", both(trajectory, text("limits.toml", "[position]\nupper = 9")),
     lacking("tomllib", "check out.h5 --limits limits.toml"), "check out.h5 --limits limits.toml")

# --- rotations -------------------------------------------------------------------------------

TURNS = np.stack([0 * T, np.sin(T / 2), 0 * T, np.cos(T / 2)], 1)
case("four dofs of norm 1", npz(q=TURNS, dt=0.1), differ("in.npz:q"),
     differ("in.npz:q --rotation 0:4=xyzw"), differ("in.npz:q --rotation 0:4=wxyz"),
     differ("in.npz:q --rotation none"))
case("quaternions of unknown order", npz(quat=TURNS, dt=0.1), differ("in.npz:quat"),
     differ("in.npz:quat --rotation xyzw"), differ("in.npz:quat --rotation wxyz"),
     differ("in.npz:quat --rotation none"))
case("dofs that are no quaternion", npz(q=np.column_stack([TURNS, T]), dt=0.1),
     differ("in.npz:q --rotation xyzw"), differ("in.npz:q --rotation 0:4=xyzw"))
SIX = np.stack([np.cos(T), np.sin(T), 0 * T, -np.sin(T), np.cos(T), 0 * T], 1)
case("six dofs that are orthonormal", npz(q=SIX, dt=0.1), differ("in.npz:q"),
     differ("in.npz:q --rotation 0:6=rot6d"), differ("in.npz:q --rotation 0:6=rot6d_rows"),
     differ("in.npz:q --rotation none"))
case("Euler angles in another order", npz(q=CURVE, dt=0.1), differ("in.npz:q --rotation euler"),
     differ("in.npz:q --rotation rpy"))
case("a table without times", text("in.csv", "x,z\n" + "".join(f"{x},{x * x}\n" for x in T)),
     differ("in.csv"), differ("in.csv --times in.csv:x"), differ("in.csv --times in.csv:z"),
     differ("in.csv --dt 0.1"), differ("in.csv --rate 10"))
case("stamps since 1970 in float32", npz(q=CURVE, time=np.float32(1.7e9 + T)), differ("in.npz:q"),
     differ("in.npz:q --rate 10"), differ("in.npz:q --dt 0.1"))
case("rotations by a mode of dofs", npz(quat_xyzw=TURNS, dt=0.1),
     integ("in.npz:quat_xyzw --mode central --start zero"),
     integ("in.npz:quat_xyzw --mode central --start zero --dofs 0:3"),
     integ("in.npz:quat_xyzw --mode central --start zero --rotation none"))
case("orientations as angular rates", npz(quat_xyzw=TURNS, dt=0.1),
     integ("in.npz:quat_xyzw --mode velocity --start zero"),
     integ("in.npz:quat_xyzw --mode velocity --start zero --dofs 0:3"),
     integ("in.npz:quat_xyzw --mode velocity --start zero --rotation none"))
case("rotations that are fitted", npz(quat_xyzw=TURNS, dt=0.1),
     "fit in.npz:quat_xyzw --knots 8 -o o.h5", "fit in.npz:quat_xyzw --knots 8 --dofs 0:3 -o o.h5",
     "fit in.npz:quat_xyzw --knots 8 --rotation none -o o2.h5",
     lambda: trajcli.rotations.differentiate(TURNS[:, [3, 0, 1, 2]], dt=0.1))
case("gradients of rotations", npz(angular_velocity=TURNS[:, :3], dt=0.1),
     integ("in.npz:angular_velocity --mode velocity --start zero --cost velocity"),
     lambda: trajcli.rotations.integrate(TURNS[:, :3], np.array([1.0, 0, 0, 0]), 0.1))
case("a rotation among absolute dofs", npz(pose=np.hstack([CURVE, TURNS]), dt=0.1),
     "export in.npz:pose --rotation 3:7=xyzw --actions-as delta --absolute 3 -o o.h5",
     "export in.npz:pose --rotation none --actions-as delta --absolute 3 -o o.h5")
case("a TUM trajectory of no rotation", npz(pose=np.hstack([CURVE, TURNS])),
     "export in.npz:pose -o o.tum", "export in.npz:pose --rotation 3:7=xyzw --dt 0.1 -o o.tum")
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
case("no TUM trajectory", npz(position=np.stack([CURVE] * 2), dt=0.1), "export in.npz -o out.tum",
     npz(p=np.stack([np.column_stack([CURVE, TURNS])] * 2)),
     "export in.npz:p --episodes 0 --dofs 0:7 --rotation 3:7=xyzw --dt 0.1 -o out.tum")

# --- gradients, shards, limits, pictures -----------------------------------------------------

INTEGRATE = integ("in.npy --dt 0.1 --start zero")
case("a factor of no gradient", both(npy(), npz("up.npz", position=np.ones((1, 31, 3)))),
     f"{INTEGRATE} --grad-factor 2", f"{INTEGRATE} --grad-factor 2 --cost velocity",
     f"{INTEGRATE} --grad-factor 2 --grad up.npz --overwrite")
case("gradients of unequal length",
     both(npz("a.npz", actions=CURVE, dt=0.1), npz("b.npz", actions=CURVE[1:], dt=0.1)),
     integ("a.npz b.npz --start zero --cost jerk"), integ("a.npz --start zero --cost jerk"),
     integ("b.npz --start zero --cost jerk"))
BATCH = np.stack([CURVE] * 4)
FIRST, SECOND = (cli(f"{INTEGRATE} --shard {k}/2 --quiet") for k in range(2))
case("no run in shards", npy(values=BATCH), "status out.h5", f"{INTEGRATE} --shard 0/1",
     "status out.h5", "merge out.h5")
case("a run that is not complete", both(npy(values=BATCH), FIRST), "merge out.h5",
     "1 status out.h5", f"{INTEGRATE} --shard 1/2", "merge out.h5")
case("parts of two counts", both(npy(values=BATCH), FIRST, run(
        "cp", "out.h5.parts/00000-of-00002.h5", "out.h5.parts/00000-of-00004.h5")),
     "status out.h5", run("rm", "out.h5.parts/00000-of-00002.h5"), "1 status out.h5")
case("a part of another command", both(npy(values=BATCH), FIRST),
     f"{INTEGRATE} --mode jerk --shard 0/2", f"{INTEGRATE} --mode jerk --shard 0/2 --overwrite",
     f"{INTEGRATE.replace('out.h5', 'other.h5')} --mode jerk --shard 0/2")
case("a part of a copy with another time",
     both(npy(values=BATCH), FIRST, lambda: os.utime("in.npy", ns=(5, 5))),
     f"{INTEGRATE} --shard 0/2", f"{INTEGRATE} --shard 0/2 --overwrite",
     f"{INTEGRATE.replace('out.h5', 'other.h5')} --shard 0/2")
case("a part that is damaged", both(npy(values=BATCH), FIRST, SECOND,
        lambda: Path("out.h5.parts/00001-of-00002.h5").write_bytes(b"\x89HDF\r\n\x1a\n")),
     "merge out.h5", f"{INTEGRATE} --shard 1/2", "merge out.h5")


LIMITS = "[velocity]\nupper = 9.0\nlower = -9.0\n"
case("actions in retime", both(npz(actions=CURVE, dt=0.1), text("limits.toml", LIMITS)),
     "retime in.npz --limits limits.toml -o o.h5", integ("in.npz --start zero"),
     "retime out.h5 --limits limits.toml -o o.h5", differ("in.npz:actions --method central"),
     "retime out.h5 --limits limits.toml -o o.h5")
RETIME = "--limits limits.toml --slower-only -o o.h5"
for title, plan, source in (
        ("limits of what is not there", npz(position=CURVE), "in.npz --episodes 0 --rate 10.0"),
        ("a plan of columns", table(ROWS, "t,j1,j2,j3"), "log.csv --dofs 0:2")):
    case(title, both(plan, text("limits.toml", LIMITS)), f"retime {source} {RETIME}",
         differ(source).replace("out.h5", "o_central.h5"),
         f"retime o_central.h5 {RETIME}")
case("an array without a name in retime", both(npy(), text("limits.toml", LIMITS)),
     f"retime in.npy --dt 0.1 {RETIME}", TYPED)
case("positions without a name in retime", both(npy(), text("limits.toml", LIMITS)),
     "retime in.npy --dt 0.1 --limits limits.toml -o o.h5",
     "retime in.npy --dt 0.1 --limits limits.toml --method fastest -o o.h5",
     differ("in.npy --dt 0.1").replace("out.h5", "o_central.h5"),
     "retime o_central.h5 --limits limits.toml -o o.h5 --overwrite")
case("an output that is replaced by retime",
     both(npy(), text("limits.toml", LIMITS), text("o_central.h5", "mine")),
     f"retime in.npy --dt 0.1 --overwrite {RETIME}", TYPED)
case("a set in retime", both(lambda: writers.maniskill(Path("demo.h5"), DEMOS, "pd"),
                             text("limits.toml", LIMITS)),
     f"retime demo.h5 {RETIME}", TYPED)
case("limits of what positions do not give",
     both(npz(velocity=CURVE, dt=0.1), text("limits.toml", f"{LIMITS}[acceleration]\nupper = 9.0")),
     "retime in.npz --limits limits.toml -o o.h5", text("limits.toml", LIMITS),
     "retime in.npz --limits limits.toml -o o.h5")
FAST = "--limits limits.toml --method fastest -o o.h5"
KNEES = np.array([[min(k, 4) / 4, max(k - 4, 0) / 4, 0.0] for k in range(9)])
SPEED = np.gradient(CURVE, 0.1, axis=0)
ALL = f"{LIMITS}[acceleration]\nupper = 9.0\n[jerk]\nupper = 9.0\n"
case("uniform without times",
     both(npz(position=CURVE), npy("t.npy", T), text("limits.toml", LIMITS)),
     f"retime in.npz {FAST.replace('fastest', 'uniform')}", f"retime in.npz {FAST}",
     *(f"retime in.npz {time} {FAST} --overwrite"
       for time in ("--dt 0.1", "--rate 10", "--times t.npy")))
case("a plan without accelerations that moves at its ends beyond limits",
     both(npz(position=CURVE, velocity=SPEED, dt=0.1),
          text("limits.toml", ALL.replace("9.0", "0.5"))),
     f"retime in.npz {FAST}", differ("in.npz").replace("out.h5", "o_central.h5"),
     "retime o_central.h5 --limits limits.toml -o o.h5")
case("too short a duration", both(npz(position=CURVE, velocity=SPEED, dt=0.1),
                                  text("limits.toml", LIMITS)),
     "retime in.npz --limits limits.toml --duration 0.01 -o o.h5",
     "retime in.npz --limits limits.toml --duration 9 -o o.h5")
case("too short a duration of a path", both(npz(position=CURVE), text("limits.toml", LIMITS)),
     f"retime in.npz --duration 0.01 {FAST}", f"retime in.npz --duration 9 {FAST}")
case("corners of a path", both(npz(position=KNEES), text("limits.toml", ALL)),
     f"retime in.npz {FAST}", f"retime in.npz {FAST} --corners stop",
     f"retime in.npz {FAST} --corners 0.01 --overwrite")
case("too high a rate", both(npz(position=CURVE), text("limits.toml", ALL)),
     f"retime in.npz --to 1e9 {FAST}", f"retime in.npz --to 1e4 {FAST}")
case("a plan that moves at its ends beyond limits",
     both(npz(position=10 * CURVE, velocity=10 * SPEED, dt=0.1),
          text("limits.toml", LIMITS)),
     f"retime in.npz {FAST}", f"retime in.npz {FAST.replace('fastest', 'uniform')}")
case("a duration of a plan that moves at its ends",
     both(npz(position=CURVE, velocity=SPEED, dt=0.1),
          text("limits.toml", "[velocity]\nupper = 99\n")),
     f"retime in.npz --duration 9 {FAST}",
     f"retime in.npz --duration 9 {FAST.replace('fastest', 'uniform')}")
NINE = {"velocity": 9.0, "acceleration": 9.0, "jerk": 9.0}
MOVING = trajcli.Trajectory(10 * CURVE[None], 10 * SPEED[None], None, None, T)


def timing(rows: Any, **options: Any) -> Callable[[], Any]:
    return lambda: trajcli.retime(rows, {"velocity": 9.0} if rows is MOVING else NINE, **options)


case("corners in a call", nothing, timing(KNEES), timing(KNEES, corners="stop"),
     timing(KNEES, corners=0.01))
case("too high a rate in a call", nothing, timing(CURVE, rate=1e9), timing(CURVE, rate=1e4))
case("too short a duration in a call", nothing, timing(CURVE, duration=0.01),
     timing(CURVE, duration=9.0))
case("ends beyond limits in a call", nothing, timing(MOVING, method="fastest"),
     timing(MOVING, method="uniform"))
case("a duration of moving ends in a call", nothing,
     lambda: trajcli.retime(trajcli.Trajectory(CURVE[None], SPEED[None], None, None, T),
                            {"velocity": 99.0}, "fastest", duration=9.0),
     lambda: trajcli.retime(trajcli.Trajectory(CURVE[None], SPEED[None], None, None, T),
                            {"velocity": 99.0}, "uniform", duration=9.0))
case("a gradient of the fastest timing", nothing, timing(torch.tensor(CURVE, requires_grad=True)),
     timing(torch.tensor(CURVE)))
case("the fastest timing of velocities", nothing,
     lambda: trajcli.retime(trajcli.Trajectory(None, SPEED[None], None, None, T),
                            {"velocity": 9.0}, "fastest"),
     lambda: trajcli.retime(trajcli.Trajectory(None, SPEED[None], None, None, T),
                            {"velocity": 9.0}, "uniform"))
case("limits of other joints", both(
        npz(position=CURVE, dt=0.1, joint_names=np.array(list("xyz"))),
        text("limits.toml", 'joint_names = ["a", "b", "c"]\n[position]\nupper = 9')),
     "check in.npz --limits limits.toml", "check in.npz --limits limits.toml --joints a,b,c")
case("an unknown joint", both(
        npz(position=CURVE, dt=0.1, joint_names=np.array(list("abz"))),
        text("limits.toml", 'joint_names = ["a", "b", "c"]\n[position]\nupper = 9')),
     "check in.npz --limits limits.toml", "check in.npz --limits limits.toml --joints a,b,c")
case("limits of other numbers", both(
        npz(position=CURVE, dt=0.1), text("limits.toml", "[position]\nupper = [9, 9]")),
     "check in.npz --limits limits.toml", "check in.npz --limits limits.toml --dofs 0:2")
case("names on one side only", both(
        npz("a.npz", position=CURVE, dt=0.1, joint_names=np.array(list("xyz"))),
        npz("b.npz", position=CURVE, dt=0.1)),
     "diff a.npz:position b.npz:position", "diff a.npz:position b.npz:position --joints x,y,z")
case("names of other dofs on one side only", both(
        npz("a.npz", position=CURVE[:, :2], dt=0.1, joint_names=np.array(list("xy"))),
        npz("b.npz", position=CURVE, dt=0.1)),
     "diff a.npz:position b.npz:position",
     "diff a.npz:position b.npz:position[:2] --joints x,y")
case("too many trajectories for a figure", npz(position=np.stack([CURVE] * 200), dt=0.1),
     "plot in.npz --episodes all -o out.png", "plot in.npz --histogram -o out.png")
case("limits of what is not drawn", both(npz(position=CURVE, dt=0.1), text("limits.toml", LIMITS)),
     "plot in.npz --limits limits.toml -o out.png", "plot in.npz -o out.png", differ("in.npz"),
     "plot out.h5 --limits limits.toml -o out2.png",
     "plot out.h5:velocity --limits limits.toml -o out3.png")
case("a score that takes limits", both(trajectory, text("limits.toml", LIMITS)),
     "score out.h5 --fail limit_share>1",
     "score out.h5 --limits limits.toml --fail limit_share>100")
RATES = 2 * np.cos(T[:, None] * 2 + np.arange(3))
case("no step of velocities", npz(position=CURVE, velocity=RATES),
     "check in.npz:velocity --velocity-of position",
     "check in.npz:velocity --velocity-of position --dt 0.1",
     "check in.npz:velocity --velocity-of position --rate 10")
case("arrays of other dofs by a pattern", npz(a_pos=CURVE, b_pos=CURVE[:, :1]),
     "export in.npz:*_pos --dt 0.1 -o x.csv", "export in.npz:a_pos --dt 0.1 -o x.csv")
case("arrays side by side of other rows", npz(a=CURVE, b=CURVE[:-1]),
     "export in.npz:a,b --dt 0.1 -o x.csv", "export in.npz:b --dt 0.1 -o x.csv")
case("arrays that differ",
     h5("in.h5", dict.fromkeys(("demo_0/position", "demo_1/velocity", "demo_0/velocity"), CURVE)),
     "score in.h5 --dt 0.1", "score in.h5:demo_*/velocity --dt 0.1")
case("a LeRobot copy that is there", lambda: _lerobot(), "export t.h5 --lerobot set -o set",
     "export t.h5 --lerobot set -o copy")
case("a link out of a LeRobot set",
     lambda: [_lerobot(), Path("set/extra").symlink_to("/etc/passwd")],
     "export t.h5 --lerobot set -o copy", run("cp", "-rL", "set", "whole"),
     "export t.h5 --lerobot whole -o copy")
case("a LeRobot set without its rate", lambda: _lerobot(rate=False), differ("set:action"),
     differ("set:action --rate 10"))


def _turns() -> None:
    with open("in.csv", "w") as file:
        file.write("t,joint,position\n")
        for k, (a, b, _) in enumerate(CURVE):
            file.write(f"{k / 10},elbow,{a}\n{k / 10},wrist,{b}\n")


CLOCKS = "".join(f"{k // 20 + 4}/5/2024 {23 * (k < 20):02}:00:00,{k}\n" for k in range(30))
case("a heading of another length",
     text("log.csv", "t,a,b\n" + "".join(f"{k / 10},{k},{k * k},1,{k % 7}\n" for k in range(30))),
     differ("log.csv"), differ("log.csv --skip-rows 1"))
case("dates of a day or a month first", text("log.csv", f"time,a\n{CLOCKS}"), differ("log.csv"),
     differ("log.csv --rate 10"), differ("log.csv --dt 0.1 --overwrite"), npy("times.npy", T),
     differ("log.csv --times times.npy --overwrite"))
case("columns with times of their own",
     text("log.csv", "time,a,time,b\n" + "".join(f"{k / 10},{k},{k / 10 + 0.05},{k * k}\n"
                                                  for k in range(30))),
     differ("log.csv"), differ("log.csv:b --times log.csv:time.1"))
case("a table of joints in turns", _turns, differ("in.csv"),
     lambda: subprocess.run("awk -F , 'NR == 1 || $2 == \"elbow\"' in.csv > in_elbow.csv",
                            shell=True, check=True), differ("in_elbow.csv"))


def _stamps(factor: float, anew: bool = False, rows: int = 1) -> None:
    pytest.importorskip("pyarrow")
    from layouts.test_parquet import version_3
    from pyarrow import parquet

    version_3(Path("set"))
    path = Path("set/data/chunk-000/file-000.parquet")
    table = parquet.read_table(path)
    stamps = (table["timestamp"].to_numpy() * 30).round() // rows * rows / 30 * factor
    stamps[10] = 0.0 if anew else stamps[10]
    at = table.schema.names.index("timestamp")
    parquet.write_table(table.set_column(at, "timestamp", [stamps]), path)


case("a rate that the stamps contradict", lambda: _stamps(2.0), differ("set:action"),
     differ("set:action --rate 30"), differ("set:action --times set:timestamp"))
case("a clock coarser than a stated rate", lambda: _stamps(1.0, rows=3), differ("set:action"),
     differ("set:action --rate 30"), differ("set:action --repeated-times drop"))
case("an episode that begins anew", lambda: _stamps(1.0, anew=True), differ("set:action"),
     differ("set:action --episodes 1:"), f"1 {differ('set:action')} --skip-bad")
case("a demonstration without rows",
     h5(**{f"data/demo_{k}/actions": CURVE[: 30 * k] for k in (0, 1)}),
     differ("in.h5:actions --rate 10"), differ("in.h5:actions --rate 10 --episodes 1"),
     f"1 {differ('in.h5:actions --rate 10')} --skip-bad")
case("a demonstration without rows in a command that leaves none out",
     h5(**{f"data/demo_{k}/actions": CURVE[: 30 * k] for k in (0, 1)}),
     "export in.h5:actions --rate 10 -o out.csv",
     "export in.h5:actions --rate 10 --episodes 1 -o out.csv",
     f"1 {differ('in.h5:actions --rate 10')} --skip-bad",
     "1 check in.h5:actions --rate 10 --skip-bad")
case("a Parquet table of joints in turns", lambda: _tidy("in"), differ("in.parquet"),
     lambda: _tidy("one", "elbow"), differ("one.parquet"))


def _tidy(name: str, only: str = "") -> None:
    pytest.importorskip("pyarrow")
    import pyarrow
    from pyarrow import parquet

    rows = [{"t": k / 10, "joint": joint, "position": x} for k, q in enumerate(CURVE)
            for joint, x in zip(("elbow", "wrist"), q, strict=False) if only in ("", joint)]
    parquet.write_table(pyarrow.Table.from_pylist(rows), f"{name}.parquet")


def _lerobot(rate: bool = True) -> None:
    pytest.importorskip("pyarrow")
    from formats.test_lerobot_copy import COMPUTE, data_set
    from pyarrow import parquet

    info = data_set(2) / "meta/info.json"
    if rate:
        cli(COMPUTE.replace("out.h5", "t.h5"))()
    else:
        info.write_text(json.dumps(json.loads(info.read_text()) | {"fps": None}))
        for path in Path("set/data/chunk-000").iterdir():  # whose stamps would give it
            table = parquet.read_table(path)
            parquet.write_table(table.drop(["timestamp"]), path)


# --- bags and stores -------------------------------------------------------------------------


def _bag(*topics: str, late: bool = False) -> Make:
    def make() -> None:
        Path("log.bag").unlink(missing_ok=True)
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


case("several topics", _bag("/left", "/right"), differ("log.bag"), differ("log.bag:/left"),
     differ("log.bag:/right"))
case("joints that are published apart", _bag("/js", late=True), differ("log.bag:/js"),
     differ("log.bag:/js --dofs a,b,c"), differ("log.bag --dofs a,b,d --overwrite"),
     differ("log.bag:/js/position --dofs a,b,c --overwrite"))


# --- windows and standstill ------------------------------------------------------------------

case("an episode without rows in the window", h5("in.h5", {
         f"demo_{k}/{name}": CURVE if name == "position" else 1e6 + 100 * k + T
         for k in range(2) for name in ("position", "times")}),
     differ("in.h5 --since 1000101 --episodes 0"), differ("in.h5 --since 1000101 --episodes 1"),
     "1 " + differ("in.h5 --since 1000101 --episodes 0,1 --skip-bad --overwrite"))
case("a window of actions that are integrated", npy(),
     integ("in.npy --mode velocity --start zero --rate 10 --since 1"),
     differ("in.npy --rate 10 --since 1"))
case("a window without times", npy(), "export in.npy --since 1 -o out.npz",
     "export in.npy --since 1 --rate 10 -o out.npz",
     "export in.npy --since 1 --dt 0.1 -o out.npz --overwrite", lambda: np.save("t.npy", T),
     "export in.npy --since 1 --times t.npy -o out.npz --overwrite")
case("a speed of standstill that is not used", npy(),
     differ("in.npy --rate 10 --still 0.1"), differ("in.npy --rate 10 --still 0.1 --trim"))
case("idle ends of two arrays",
     npz(position=CURVE, orientation=np.eye(4)[:1].repeat(30, 0), dt=0.1),
     "export in.npz --trim -o out.npz", "export in.npz:position --trim -o out.npz")
case("what has no standstill", h5(actions=CURVE, times=T), "export in.h5 --trim -o out.npz",
     "export in.h5:actions --trim -o out.npz")


def _replay(codec: str = "Zstd") -> None:
    pytest.importorskip("zarr")
    import numcodecs
    from formats.test_zarr import replay

    replay("in.zarr", 2, compressors=getattr(numcodecs, codec)())


case("a codec that is not read", lambda: _replay("LZMA"), differ("in.zarr:data/action --rate 10"),
     _replay, differ("in.zarr:data/action --rate 10"))
case("a replay buffer without times", _replay, differ("in.zarr:data/action"),
     differ("in.zarr:data/action --rate 10"))


# --- the library -----------------------------------------------------------------------------

FOH = {"scheme": "foh"}
PLAN = trajcli.integrate(CURVE, "zero", 0.1)
TENSORS: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    # what is no tensor of numbers, and what makes one of it
    "a float8 tensor": (lambda x: x.to(torch.float8_e5m2), lambda x: x.float()),
    "a sparse tensor": (lambda x: x.to_sparse(), lambda x: x.to_dense()),
    "a quantised tensor": (
        lambda x: torch.quantize_per_tensor(x.float(), 0.1, 0, torch.qint8),
        lambda x: x.dequantize()),
    "a nested tensor": (
        lambda x: torch.nested.nested_tensor([x, x[:-1]]), lambda x: x.to_padded_tensor(0.0)),
    "a jagged tensor": (
        lambda x: torch.nested.nested_tensor([x, x[:-1]], layout=torch.jagged),
        lambda x: x.to_padded_tensor(0.0)),
    "a list of tensors with gradients": (lambda x: [*x.requires_grad_()], torch.stack),
}
case("a plan of no polynomial", nothing, lambda: trajcli.sample(PLAN, [0.05]),
     lambda: trajcli.resample(PLAN, at=[0.05]))
case("a plan without its acceleration", nothing,
     lambda: trajcli.sample(trajcli.integrate(CURVE, "zero", 0.1, write="position", **FOH), [0.05]),
     lambda: trajcli.sample(trajcli.integrate(
         CURVE, "zero", 0.1, write=("position", "velocity", "acceleration"), **FOH), [0.05]))
case("quintic of positions", nothing, lambda: trajcli.resample(CURVE, "quintic", rate=20, dt=0.1),
     lambda: trajcli.resample(CURVE, "cubic", rate=20, dt=0.1))
case("trajectories of different duration", nothing,
     lambda: trajcli.resample(np.stack([CURVE] * 2), rate=20, times=np.stack([T, 2 * T])),
     lambda: trajcli.resample(np.stack([CURVE] * 2), at=[0.1, 0.2], times=np.stack([T, 2 * T])),
     lambda: trajcli.resample(np.stack([CURVE] * 2), at=[[0.1], [0.2]], times=np.stack([T, 2 * T])))
case("an error that is not reached", nothing,
     lambda: trajcli.fit(np.random.default_rng(0).normal(size=(30, 3)), dt=0.1, error=1e-30),
     lambda: trajcli.fit(np.random.default_rng(0).normal(size=(30, 3)), dt=0.1, error=3.0))
GAP = np.where(T < 1, T, T + 3)
case("rows that do not determine a curve", nothing, lambda: trajcli.fit(CURVE, times=GAP, knots=20),
     lambda: trajcli.fit(CURVE, times=GAP, knots=5), lambda: trajcli.fit(CURVE, dt=0.1, knots=8))
case("matrices that are too large", nothing, lambda: trajcli.operator(10**7, 0.1),
     lambda: trajcli.operator(10, 0.1))
case("a factor with a gradient", nothing, lambda: _scaled(detached=False),
     lambda: _scaled(detached=True))
case("a gradient of dt by smooth", nothing, lambda: _by_dt("smooth", False),
     lambda: _by_dt("smooth", True), lambda: _by_dt("savgol", False))
case("steps that cannot be read", nothing, lambda: _jacobian("0.3s"), lambda: _jacobian(5))
case("a name that is taken in Python", text("out.h5", ""), lambda: PLAN.save("out.h5"),
     lambda: PLAN.save("out.h5", overwrite=True))
case("a folder that is not there in Python", nothing, lambda: PLAN.save("made/out.h5"),
     lambda: (os.makedirs("made"), PLAN.save("made/out.h5")))
case("another kind of output in Python", nothing, lambda: PLAN.save("out.csv"),
     lambda: PLAN.save("out.h5"), lambda: PLAN.to_xarray().to_dataframe().to_csv("out.csv"))
case("an array of several outputs in Python", nothing, lambda: PLAN.save("out.npy"),
     lambda: np.save("out.npy", PLAN.position))
case("a start where the one before does not end", nothing,
     lambda: trajcli.concatenate([PLAN, PLAN], "time"),
     lambda: trajcli.concatenate([PLAN, PLAN[:, 1:]], "time"))
case("a state of some outputs", nothing,
     lambda: trajcli.integrate(CURVE, "zero", 0.1, write="position").state(-1),
     lambda: trajcli.integrate(CURVE, "zero", 0.1).state(-1),
     lambda: State(trajcli.integrate(CURVE, "zero", 0.1, write="position").position[:, -1]))
case("no segment between gaps in Python", nothing,
     lambda: trajcli.differentiate(CURVE, times=T, max_gap=0.01),
     lambda: trajcli.differentiate(CURVE, times=T, max_gap=0.2))
case("absolute dofs of recorded rates in Python", nothing,
     lambda: trajcli.integrate(CURVE, "zero", times=T, mode="velocity", absolute=[2]),
     lambda: trajcli.integrate(CURVE[:, :2], "zero", times=T, mode="velocity"))
case("a file of other arrays", npz(q=CURVE, t=T), lambda: trajcli.load("in.npz"),
     lambda: trajcli.differentiate(CURVE, times=T),
     lambda: trajcli.resample(CURVE, times=T, rate=5))
case("an out with a gradient", nothing, lambda: _into(grad=True), lambda: _into(grad=False))
case("torch.jit.trace", nothing, lambda: _traced("jit"), lambda: _traced("export"))
case("forward mode through a trace", nothing, lambda: _forward_mode(inside=False),
     lambda: _forward_mode(inside=True))
case("a trajectory for its positions", nothing, lambda: trajcli.differentiate(PLAN, dt=0.1),
     lambda: trajcli.differentiate(PLAN.position, dt=0.1))
for layout in TENSORS:
    case(f"{layout} in Python", nothing, lambda layout=layout: _of_tensor(TENSORS[layout][0]),
         lambda layout=layout: _of_tensor(*TENSORS[layout]))
case("masked values", nothing, lambda: trajcli.differentiate(MASKED, dt=0.1),
     lambda: trajcli.differentiate(
         MASKED.astype(float).filled(np.nan), dt=0.1, allow_nonfinite=True))
case("a pair as a start", nothing, lambda: trajcli.integrate(CURVE, (CURVE[:2], CURVE[:2]), 0.1),
     lambda: trajcli.integrate(CURVE, State(CURVE[0], CURVE[1]), 0.1),
     lambda: trajcli.integrate(np.stack([CURVE, CURVE]), np.stack([CURVE[0], CURVE[1]]), 0.1))
case("a score of an array", nothing, lambda: trajcli.score(CURVE),  # type: ignore[arg-type]
     lambda: trajcli.score(trajcli.differentiate(CURVE, dt=0.1)))
case("a path with corners", nothing, lambda: _fastest(KNEE),
     lambda: _fastest(KNEE, corners="stop"), lambda: _fastest(KNEE, corners=0.01))
case("a fastest timing that is shorter", nothing, lambda: _fastest(CURVE, duration=0.1),
     lambda: _fastest(CURVE, duration=99.0))
case("a uniform pace that is shorter", nothing, lambda: _fastest("uniform", duration=0.1),
     lambda: _fastest("uniform", duration=99.0))
case("a rate that rounding does not allow", nothing, lambda: _fastest(CURVE, rate=1e9),
     lambda: _fastest(CURVE, rate=1e4))
case("ends beyond limits", nothing, lambda: _fastest("fastest"), lambda: _fastest("uniform"))
case("a fastest timing with a gradient", nothing, lambda: _fastest_with(True),
     lambda: _fastest_with(False))
case("a limit with a gradient", nothing, lambda: _limited(False), lambda: _limited(True))
case("a score within torch.func", nothing, lambda: _scored("vmap"), lambda: _scored())
case("steps with a gradient", nothing, lambda: _fitted_dt(False), lambda: _fitted_dt(True))
case("a fit to an error within torch.func", nothing, lambda: _fitted_in_func(error=0.1),
     lambda: _fitted_in_func(knots=8))
case("smooth within torch.func", nothing, lambda: _chosen_in_func(),
     lambda: _chosen_in_func(bandlimit=2.0))
case("robust smooth within torch.func", nothing,
     lambda: _chosen_in_func(bandlimit=2.0, robust=True), lambda: _chosen_in_func(bandlimit=2.0))
case("a rate within torch.func", nothing, lambda: _resampled_in_func(rate=20.0),
     lambda: _resampled_in_func(at=[0.05]))
case("a device that is not there", npy(), f"{INTEGRATE} --device cuda", f"{INTEGRATE} --device cpu")
POINTS = both(npy(), cli("fit in.npy --dt 0.1 --knots 9 -o points.h5"))
case("scores of control points", POINTS, "score points.h5", integ("points.h5"), "score out.h5")
case("resampling control points", POINTS, "resample points.h5 --to 50 -o new.h5",
     integ("points.h5"), "resample out.h5 --to 50 -o new.h5")
case("control points as a recording", nothing,
     lambda: trajcli.operator(10, 0.1, "bspline", ends="recording"),
     lambda: trajcli.operator(10, 0.1, "central", ends="recording"),
     lambda: trajcli.operator(10, 0.1, "savgol", start="first", window=5),
     lambda: trajcli.operator(10, 0.1, "clique", start="first"))
case("rates as a recording", nothing, lambda: trajcli.operator(10, 0.1, "velocity", start="first"),
     lambda: trajcli.operator(10, 0.1, "velocity"))
case("savgol of no recording", nothing, lambda: trajcli.operator(10, 0.1, "savgol", window=5),
     lambda: trajcli.operator(10, 0.1, "savgol", window=5, start="first"))


def _of_tensor(make: Callable[[Any], Any], repair: Callable[[Any], Any] = lambda x: x) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of what torch has in beta
        trajcli.differentiate(repair(make(torch.tensor(CURVE))), dt=0.1, method="central")


def _into(grad: bool) -> None:
    actions = torch.tensor(CURVE, requires_grad=True)
    out = trajcli.integrate(actions.detach(), "zero", 0.1)
    with torch.set_grad_enabled(grad):
        trajcli.integrate(actions, "zero", 0.1, out=out)


class _Plan(torch.nn.Module):
    def forward(self, actions: Any) -> Any:
        return trajcli.integrate(actions, "zero", 0.1).position


def _traced(way: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of what torch leaves behind
        if way == "jit":
            torch.jit.trace(_Plan(), torch.tensor(CURVE))
        else:
            torch.export.export(_Plan(), (torch.tensor(CURVE),))


def _forward_mode(inside: bool) -> None:
    from torch.fx.experimental.proxy_tensor import make_fx

    def tangent(x: Any) -> Any:
        return torch.func.jvp(_Plan(), (x,), (x,))[1]

    x = torch.tensor(CURVE)
    if inside:
        make_fx(tangent)(x)
    else:
        torch.func.jvp(make_fx(_Plan())(x), (x,), (x,))


def _scaled(detached: bool) -> None:
    torch = pytest.importorskip("torch")
    x, factor = torch.ones(3), torch.ones(3, requires_grad=True)
    trajcli.scale_gradient(x, factor.detach() if detached else factor)


def _by_dt(method: str, detached: bool) -> None:
    torch = pytest.importorskip("torch")
    dt = torch.tensor(0.1, dtype=torch.float64, requires_grad=True)
    trajcli.differentiate(torch.tensor(CURVE), dt=dt.detach() if detached else dt, method=method)


def _jacobian(window: str | int) -> None:
    torch = pytest.importorskip("torch")

    def positions(dt: Any) -> Any:
        return trajcli.differentiate(torch.tensor(CURVE), dt=dt, window=window).position.sum()

    torch.func.vmap(positions)(torch.tensor([0.1], dtype=torch.float64))


KNEE = np.concatenate([np.linspace(0, [1, 0, 0], 9), np.linspace([1, 0.1, 0], [1, 1, 0], 9)])


def _fastest(rows: Any, **options: Any) -> Any:
    limits = {"velocity": 0.5, "acceleration": 5.0, "jerk": 50.0}
    if isinstance(rows, str):
        motion = trajcli.differentiate(CURVE, dt=0.1, method="central")
        return trajcli.retime(motion, limits, rows, **options)
    return trajcli.retime(rows, limits, **options)


def _fastest_with(gradient: bool) -> None:
    torch = pytest.importorskip("torch")
    rows = torch.tensor(CURVE, requires_grad=gradient)
    trajcli.retime(rows, {"velocity": 1.0})


def _limited(detached: bool) -> None:
    torch = pytest.importorskip("torch")
    limit = torch.tensor(1.0, requires_grad=not detached)
    rows = trajcli.differentiate(CURVE, dt=0.1, method="central")
    trajcli.retime(rows, {"velocity": limit})


def _scored(transform: str = "") -> None:
    torch = pytest.importorskip("torch")
    positions = torch.tensor(CURVE)

    def scores(q: Any) -> Any:
        return trajcli.score(trajcli.differentiate(q, dt=0.1, method="central"))

    torch.func.vmap(scores)(positions[None]) if transform else scores(positions)


def _fitted_dt(detached: bool) -> None:
    torch = pytest.importorskip("torch")
    dt = torch.tensor(0.1, requires_grad=True)
    trajcli.fit(torch.tensor(CURVE), dt.detach() if detached else dt, knots=8)


def _fitted_in_func(**of: Any) -> None:
    torch = pytest.importorskip("torch")
    torch.func.vmap(lambda q: trajcli.fit(q, 0.1, **of).actions)(torch.tensor(CURVE)[None])


def _chosen_in_func(**of: Any) -> None:
    torch = pytest.importorskip("torch")
    torch.func.vmap(lambda q: trajcli.differentiate(
        q, dt=0.1, method="smooth", **of).velocity.sum())(torch.tensor(CURVE)[None])


def _resampled_in_func(**new: Any) -> None:
    torch = pytest.importorskip("torch")
    at = {"at": torch.tensor(new["at"])} if "at" in new else new
    torch.func.vmap(lambda times: trajcli.resample(
        torch.tensor(CURVE), times=times, **at).position.sum())(torch.tensor(T)[None])


# --- what happens while a command runs --------------------------------------------------------


def _stopped() -> None:
    from trajcli.files.writing import stop_error

    raise stop_error(Path("out.h5"), "SIGTERM", 3, 10)


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
            file.open_handle()
        else:
            files.sources.require_unchanged()


def _fewer_rows() -> None:
    from trajcli.files.catalogue import Dataset

    Dataset("in.h5:/position", (30, 3), CURVE.dtype, lambda a, b: CURVE[a:b][:9]).read()


case("a run that a signal ended", npy(), _stopped, INTEGRATE)
case("a command that a signal ended", npy(), _interrupted, INTEGRATE)
case("a file that was written again", nothing, lambda: _changed(True), differ("in.h5"))
case("a file that was written meanwhile", nothing, lambda: _changed(False), differ("in.h5"))
case("fewer rows than declared", nothing, _fewer_rows, h5(position=CURVE, dt=0.1), differ("in.h5"))
case("a large file of MATLAB's",
     lambda: pytest.importorskip("scipy.io").savemat("in.mat", {"position": MANY}),
     limited("inspect in.mat"), h5("in.mat", position=MANY.T), limited("inspect in.mat", code=0))
case("a large topic", _bag("/js"), limited(differ("log.bag:/js"), "1kB"),
     limited(differ("log.bag:/js"), "1MB", 0))


def _two_dofs(more: str) -> Make:
    line = f"integrate a.npz b.npz --start zero {more} --overwrite -o out.h5 --quiet --shard"
    return both(cli(f"{line} 0/2"), cli(f"{line} 1/2"))


case("parts with other dofs", both(npz("a.npz", actions=CURVE, dt=0.1),
     npz("b.npz", actions=CURVE[:, :2], dt=0.1), _two_dofs("")), "merge out.h5",
     _two_dofs("--dofs 0:2"), "merge out.h5", "inspect out.h5 --dofs 0:2")


# --- hints that are typed as they stand -------------------------------------------------------

LINE = np.linspace(0, 1, 30)[:, None]
UNEVEN = np.empty(3, object)
UNEVEN[:] = [CURVE, CURVE[:20], CURVE[:25]]
EPISODES = [{"position": CURVE, "times": T}, {"position": CURVE[:20], "times": T[:20]}]


def typed(name: str, make: Make, refused: str) -> None:
    case(f"typed: {name}", make, refused, TYPED)


def pickled(name: str, value: Any) -> Make:
    if name.endswith(".npy"):
        return lambda: np.save(name, value, allow_pickle=True)
    return content(name, pickle.dumps(value))


def mat(**arrays: Any) -> Make:
    return lambda: pytest.importorskip("scipy.io").savemat("in.mat", arrays)


def _odometry(*topics: str) -> None:
    pytest.importorskip("rosbags")
    from formats.test_bags import BEGIN, JOINTS, Maker

    make, messages = Maker("bag"), []
    of = lambda kind, *fields: make(f"geometry_msgs/msg/{kind}", *fields)  # noqa: E731
    for k, row in enumerate(CURVE):
        stamp, turn = BEGIN + k * 10**8, of("Quaternion", 0.0, 0.0, *TURNS[k, [1, 3]])
        pose = of("PoseWithCovariance", of("Pose", of("Point", *row), turn), np.zeros(36))
        twist = of("Twist", of("Vector3", *row), of("Vector3", *row))
        twist = of("TwistWithCovariance", twist, np.zeros(36))
        header, none, vector = make.header(stamp), np.zeros(9), of("Vector3", *row)
        for topic in topics or ("/odom", "/base/odom"):
            kind, fields = "nav_msgs/msg/Odometry", (header, "base", pose, twist)
            if topic == "/imu":
                kind = "sensor_msgs/msg/Imu"
                fields = (header, turn, none, vector, none, vector, none)
            joints = topic == "/joints"
            message = make.joints(stamp, ["a", "b", "c"], row) if joints else make(kind, *fields)
            messages.append((topic, JOINTS if joints else kind, stamp, message))
    make.write("bag", messages)


typed("a clock of another name among outputs", mat(uhr=T[:, None], yout=CURVE), differ("in.mat"))
typed("rows of a clock and of outputs", mat(tout=T[None], yout=CURVE.T), differ("in.mat"))
typed("one dof alone", npz(q=CURVE[:, 0], times=T), differ("in.npz"))
typed("several outputs of Simulink", mat(tout=T[:, None], yout=CURVE, xout=CURVE, K=np.eye(3)),
      differ("in.mat"))
typed("what is no motion beside a motion", npz(
    a_covariance=np.zeros((30, 3, 3)), a_gain=np.eye(3), b_ids=np.zeros((30, 1)), cam=CURVE,
    clock_ms=100 * T[:, None], tau=CURVE, z_joints=CURVE, y_cmd=CURVE, images=np.zeros((30, 8, 8))),
      differ("in.npz"))
typed("integers alone", npz(encoder=(1e3 * CURVE[:20]).astype(int), dt=0.1, id=np.arange(20)),
      differ("in.npz"))
typed("columns alone", npz(x=CURVE[:, 0], y=CURVE[:, 1], n=np.arange(3), dt=0.1), differ("in.npz"))
typed("arrays by number", npz(**{f"ep{k}": CURVE[: 30 - k] for k in range(3)}), differ("in.npz"))
typed("names that a shell would split", h5("my in.h5", **{"a (1)/x y": CURVE, "a (1)/z": CURVE}),
      differ("'my in.h5'"))
typed("nothing to read", npz(gain=3.0, text=np.array("x")), differ("in.npz"))
typed("a name that is nearly right", npz(**{"joint angles": CURVE, "dt": 0.1}),
      differ("'in.npz:joint angle'"))
typed("actions by another name", npz(action=CURVE, dt=0.1), differ("in.npz"))
typed("odometry of two robots", _odometry, differ("log.bag"))
typed("odometry and joints", lambda: _odometry("/odom", "/joints", "/imu"), differ("log.bag"))
typed("odometry beside what turns", lambda: _odometry("/odom", "/imu"), differ("log.bag"))
case("velocities alone", npz(velocity=CURVE, dt=0.1), differ("in.npz"),
     integ("in.npz:velocity --mode velocity --start zero"))
for name, value in (("in.npy", {"position": CURVE, "times": T}), ("in.npy", UNEVEN),
                    ("in.npy", np.array(EPISODES, object)), ("in.npy", CURVE.astype(object)),
                    ("in.pkl", {"position": CURVE, "times": T}), ("in.pkl", EPISODES),
                    ("in.pkl", CURVE), ("in.pkl", {"a": {"position": CURVE, "dt": 0.1}})):
    typed(f"a pickle {name} {value!s:.9} {len(CASES)}", pickled(name, value), differ(name))
typed("a pickle in an archive", npz(position=UNEVEN, times=np.array([T, T[:20], T[:25]], object)),
      differ("in.npz"))
typed("a dictionary in an archive", npz(data=np.array({"q": CURVE}, object)), differ("in.npz"))
typed("arrays of NumPy in a file of torch", lambda: pytest.importorskip("torch").save(
    {"position": CURVE, "times": T, "path": Path("x")}, "in.pt"), differ("in.pt"))
typed("a data frame", lambda: pytest.importorskip("pandas").DataFrame(
    {"t": T, "a": T, "b": T}).to_pickle("in.pkl"), differ("in.pkl"))
typed("a folder of archives", both(run("mkdir", "my runs"), npz("my runs/a.npz", q=CURVE, dt=0.1),
      npz("my runs/b.npz", q=CURVE, dt=0.1), text("my runs/about.json", "{}")), differ("'my runs'"))
typed("a folder of folders of tables", both(
    run("mkdir", "-p", "runs/a"), text("runs/a/b.csv", f"t,a,b,c\n{ROWS}3,1,2,3\n"),
    text("runs/a/README.txt", "x")), differ("runs"))
typed("a folder of tables in capitals", both(run("mkdir", "runs"),
      text("runs/A.CSV", f"t,a,b,c\n{ROWS}3,1,2,3\n")), differ("runs"))
for ending in ("csv", "txt", "json", "zarr", "mat"):
    typed(f"an output that ends in .{ending}", both(npy(), text("out", "")),
          f"{DIFFERENTIATE} out.{ending}")
typed("a table of control points", npy(), "fit in.npy --dt 0.1 --knots 9 -o out.csv")
typed("an export to MATLAB", trajectory, "export out.h5 -o o.mat")


UNTRIED: dict[str, str] = {
    "close it there; h5clear -s …, once no program writes it": "a program of HDF5",
    "HDF5_USE_FILE_LOCKING=FALSE in front of the command writes it without locks":
        "a file system without locks",
    "a damaged bag; `mcap recover` or `rosbag reindex` counts anew": "programs of ROS",
    "one call with the same arguments just before the capture": "a CUDA graph",
    "tensors on a CUDA device": "a CUDA device",
    "--device cuda": "a CUDA device",
    "--device cpu, or wait until others have left the device": "a CUDA device whose memory is full",
    "set a smaller TRAJCLI_MEMORY, or use a machine with more memory": "no memory is left",
    "TRAJCLI_DEBUG=1 shows where; please report it": "a bug",
    "convert it where TensorFlow is: for i, e in enumerate("
    "tfds.builder_from_directory(FOLDER).as_dataset(split='train')): "
    "np.save(f'episode_{i}.npy', np.stack([s['action'] for s in e['steps']"
    ".as_numpy_iterator()])), or to a LeRobot data set": "TensorFlow is not among the tests'",
}
"""Hints that no test follows, and what that would take."""
