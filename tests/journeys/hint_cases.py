"""One row for each kind of hint: the files, what is refused, and what is typed after the hint."""

from __future__ import annotations

import gzip
import os
import pickle
import shutil
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from journeys.arrays import write_h5
from layouts import writers

# fmt: off
Step = Any
"""A command line, after the exit code it must have if that is not 0; "+ MORE", the refused line
with more words; "@ SOURCE MORE", that line with another source; TYPED; ">>> " and a call in Python;
a function; or a list of steps."""
TYPED = "typed"
"""The command of Python that the printed hint gives, as it stands."""
T = np.arange(30) / 10
CURVE = np.sin(T[:, None] * 2 + np.arange(3))
STAMPS = T + 0.003 * np.sin(np.arange(30))
TURNS = np.stack([0 * T, np.sin(T / 2), 0 * T, np.cos(T / 2)], 1)
KNEES = np.array([[min(k, 4) / 4, max(k - 4, 0) / 4, 0.0] for k in range(9)])
BATCH = np.stack([CURVE] * 4)
NAMES = np.array(list("xyz"))
DEMOS = writers.demos()
ROWS = "".join(f"{k / 10},{k},{k * k},{k % 3}\n" for k in range(30))


def npy(name: str = "in.npy", values: Any = CURVE) -> Step:
    return lambda: np.save(name, values, allow_pickle=True)


def npz(name: str = "in.npz", **arrays: Any) -> Step:
    return lambda: np.savez(name, **arrays)


def h5(name: str = "in.h5", more: dict[str, Any] | None = None, /, **arrays: Any) -> Step:
    return lambda: write_h5(name, more, **arrays)


def text(name: str, content: str) -> Step:
    return lambda: Path(name).write_text(content)


def table(rows: str, head: str = "t,a,b,c") -> Step:
    return text("log.csv", f"{head}\n{rows}")


def content(name: str, data: bytes) -> Step:
    return lambda: Path(name).write_bytes(data)


def differ(words: str) -> str:
    return f"differentiate {words} --method central -o out.h5"


def integ(words: str) -> str:
    return f"integrate {words} -o out.h5"


def bag(*topics: str, late: bool = False) -> Step:
    def make() -> None:
        pytest.importorskip("rosbags")
        from formats.test_bags import BEGIN, JOINTS, Maker

        maker = Maker("bag")
        maker.write("bag", [
            (topic, JOINTS, stamp, maker.joints(stamp, names, row))
            for k, row in enumerate(CURVE) for topic in topics
            for stamp, names in [(BEGIN + k * 10**8, ["a", "b", "d" if late and k > 15 else "c"])]])

    return make


# Outputs and files that several rows start from.
OUTPUT = [npy(), "integrate in.npy --dt 0.1 --start zero -o out.h5 --quiet"]
LIMITS = "[velocity]\nupper = 9.0\nlower = -9.0\n"
VELOCITY = text("limits.toml", LIMITS)
ALL = text("limits.toml", f"{LIMITS}[acceleration]\nupper = 9.0\n[jerk]\nupper = 9.0\n")
NAMED = text("limits.toml", 'joint_names = ["a", "b", "c"]\n[position]\nupper = 9')
FAST = "--limits limits.toml --method fastest -o o.h5"
SLOWER = "--slower-only --limits limits.toml -o o.h5"
RUN = integ("in.npy --dt 0.1 --start zero")
MADE = "differentiate in.npy --dt 0.1 --method central -o"
SHARD = f"{RUN} --shard 0/2 --quiet"
UNEVEN = np.array([CURVE, CURVE[:20], CURVE[:25], None], object)[:3]
DAYS = "".join(f"{k // 20 + 4}/5/2024 {23 * (k < 20):02}:00:00,{k}\n" for k in range(30))
TIMED = "".join(f"{k / 10},{k},{k / 10 + 0.05},{k * k}\n" for k in range(30))
LONG = "".join(f"{k / 10},{k},{k * k},1,{k % 7}\n" for k in range(30))
EMPTY = {f"data/demo_{k}/actions": CURVE[: 30 * k] for k in (0, 1)}

CASES: dict[str, tuple[Step, ...]] = {
    # --- steps and stamps ---
    "no time step": (npy(), differ("in.npy"), "+ --dt 0.1", "+ --rate 10",
                     npz("t.npz", t=T), "+ --times t.npz:t"),
    "likely times": (npz(position=CURVE, timestmaps=T), differ("in.npz:position"),
                     "+ --times in.npz:timestmaps", "+ --dt 0.1", "+ --rate 10"),
    "two rates that disagree": (npz(position=CURVE, fps=10, sample_rate=20), differ("in.npz"),
                                "+ --rate 10", "+ --dt 0.1"),
    "stamps that repeat": (npz(position=CURVE, times=np.where(T == 1, T[9], T)), differ("in.npz"),
                           "+ --repeated-times drop"),
    "stamps of another axis": (npz(position=np.stack([CURVE] * 4, 1), times=T), differ("in.npz"),
                               "+ --axes TBD"),
    "dt and stamps": (npz(position=CURVE, dt=0.2, times=T), differ("in.npz"), "+ --dt 0.1",
                      "+ --times in.npz:times"),
    "gaps everywhere": (npz(position=CURVE, times=STAMPS), differ("in.npz --max-gap 0.01"),
                        "+ --max-gap 0.5"),
    "rates without their scheme": (npz(qd=CURVE, t=T),
        integ("in.npz:qd --times in.npz:t --mode velocity --scheme zoh --start zero"),
        "+ --scheme foh", npz(qd=CURVE, t=np.append(T, 3.0)), "+"),
    "files with different steps": ([
        npz(f"{k}.npz", position=CURVE, dt=0.1 + 0.001 * np.arange(30 - k)) for k in range(2)],
        differ("0.npz 1.npz"), "+ --dt 0.1", "+ --rate 10", npy("t.npy", T), "+ --times t.npy"),
    "minutes": (h5("in.h5", {"times@units": "minutes"}, position=CURVE, times=T), differ("in.h5"),
                "+ --dt 6", "+ --rate 10",
                h5("in.h5", {"times@units": "s"}, position=CURVE, times=60 * T), "+"),
    "dates of a day or a month first": ([table(DAYS, "time,a"), npy("t.npy", T)],
        differ("log.csv"), "+ --rate 10", "+ --dt 0.1", "+ --times t.npy"),
    "columns with times of their own": (table(TIMED, "time,a,time,b"), differ("log.csv"),
                                        "@ log.csv:b --times log.csv:time.1"),
    "a window without times": (npy(), "export in.npy --since 1 -o out.npz", "+ --rate 10",
                               "+ --dt 0.1", npy("t.npy", T), "+ --times t.npy"),
    # --- start, goal, modes ---
    "no start": ([npy(), h5("s.h5", {"s/position": CURVE[0]})], integ("in.npy --dt 0.1"),
                 "+ --start zero", "+ --start s.h5:s", differ("in.npy --dt 0.1")),
    "a start of more dofs": ([npy(), npy("s.npy", np.zeros(4))],
                             integ("in.npy --dt 0.1 --start s.npy"), "+ --start s.npy:[:3]"),
    "states of another number": ([npy(values=BATCH), npz("s.npz", position=np.zeros((5, 3))),
        npy("i.npy", [4, 0, 1, 2])], integ("in.npy --dt 0.1 --start s.npz"),
        "+ --start-index i.npy"),
    "a recording as a start": (npy(), integ("in.npy --dt 0.1 --start first"),
                               differ("in.npy --dt 0.1")),
    "a mode of differentiate": (npy(), differ("in.npy --dt 0.1 --mode central"),
                                f"{RUN} --mode central", differ("in.npy --dt 0.1")),
    "a near choice": (npy(), f"{RUN} --mode jrek", "+ --mode jerk"),
    "no such option": (npy(), "integrate in.npy --no-such-option", "integrate --help"),
    "an option of another mode": (npy(), f"{RUN} --mode jerk --degree 3", "modes",
                                  "+ --mode bspline"),
    "an option of another method": (npy(), differ("in.npy --dt 0.1 --noise 1"),
                                    "+ --method smooth"),
    "too few rows": (npy(values=CURVE[:4]), differ("in.npy --dt 0.1"), "+ --method backward"),
    "a window that is too long": (npy(),
        "differentiate in.npy --dt 0.1 --method savgol --window 31 -o out.h5", "+ --window 0.3s"),
    "NaN": (npy(values=np.where(CURVE > 0.999, np.nan, CURVE)), RUN, "+ --allow-nonfinite"),
    "normalised commands": (lambda: writers.robomimic(Path("demo.hdf5"), writers.demos(scale=1.0)),
        integ("demo.hdf5"), "+ --mode acceleration", differ("demo.hdf5:obs/robot0_joint_pos")),
    # --- what SOURCE names ---
    "a near file": (npy(), differ("im.npy --dt 0.1"), "@ in.npy"),
    "standard input": (npy(), differ("- --dt 0.1"), npy("actions.npy"), "@ actions.npy"),
    "a near dataset": (npz(positions=CURVE, dt=0.1), differ("in.npz:position"), "inspect in.npz",
                       "@ in.npz:positions"),
    "several families": (table(LONG, "t,a1,a2,b1,b2"), differ("log.csv"), "@ log.csv:a"),
    "a cell that is no number": (table(ROWS.replace("29,841", "29,??")), differ("log.csv"),
                                 "@ log.csv:a,c"),
    "a heading of another length": (table(LONG, "t,a,b"), differ("log.csv"), "+ --skip-rows 1"),
    "no recorded positions": (npz(actions=CURVE, dt=0.1), differ("in.npz"), "@ in.npz:actions",
                              integ("in.npz --start zero")),
    "velocities alone": (npz(velocity=CURVE, dt=0.1), differ("in.npz"),
                         integ("in.npz:velocity --mode velocity --start zero")),
    "dofs that differ": ([npz(f"{k}.npz", position=CURVE[:, k:], dt=0.1) for k in range(2)],
        differ("0.npz 1.npz"), "+ --dofs 0:2", differ("0.npz"), differ("1.npz")),
    "joints that differ": ([npz(f"{k + 2}.npz", position=CURVE, dt=0.1, joint_names=NAMES[::k])
        for k in (1, -1)], differ("1.npz 3.npz"), "+ --dofs x,y,z"),
    "units that differ": ([h5(f"{unit}.h5", {"position@units": unit}, position=CURVE, dt=0.1)
        for unit in ("rad", "m")], differ("rad.h5 m.h5"), "+ --units rad"),
    "units of an output": (OUTPUT, "check out.h5 --units deg", "check out.h5",
                           "export out.h5 --to-units deg -o made.csv"),
    "no unit to convert from": (npz(position=CURVE, dt=0.1),
                                "export in.npz --to-units deg -o out.csv", "+ --units rad"),
    "an address": (npy(), "inspect s3://bucket/owner/set/in.npy", "@ in.npy"),
    "links out of the file": ([h5("other.h5", q=CURVE),
        h5(position=h5py.ExternalLink("other.h5", "/q"))], differ("in.h5 --dt 0.1"),
        "+ --allow-external"),
    "a demonstration without rows": (h5("in.h5", EMPTY), differ("in.h5:actions --rate 10"),
                                     "+ --episodes 1", "1 + --skip-bad"),
    "several topics": (bag("/left", "/right"), differ("log.bag"), "@ log.bag:/left",
                       "@ log.bag:/right"),
    "two publishers": (bag("/js", late=True), differ("log.bag:/js"), "+ --dofs a,b,c",
                       "@ log.bag --dofs a,b,d"),
    # --- what is written ---
    "an output that is there": ([npy(), text("out.h5", "mine")], f"{MADE} out.h5", "+ --overwrite"),
    "no folder": (npy(), f"{MADE} made/out.h5", lambda: os.mkdir("made"), "+"),
    "standard output": (npy(), f"{MADE} -", f"{MADE} out.h5", "export out.h5 -o -"),
    "points of several trajectories": (npz(position=BATCH, dt=0.1), "export in.npz -o o.yaml",
                                       "+ --episodes 0 --joints a,b,c"),
    "several arrays in one": (npy(), f"{MADE} out.npy", "+ --write position"),
    "a figure of integrate": (npy(), RUN.replace(".h5", ".png"), RUN, "plot out.h5 -o out.png"),
    # --- files of other programs ---
    "a packed file": ([npy(), lambda: Path("in.npy.gz").write_bytes(gzip.compress(
        Path("in.npy").read_bytes()))], differ("in.npy.gz --dt 0.1"), "@ in.npy"),
    "a pickle": (content("in.pkl", pickle.dumps({"position": CURVE, "times": T})), differ("in.pkl"),
                 TYPED, "@ in_plain.npz"),
    "a pickled array": (npy(values=UNEVEN), differ("in.npy"), TYPED,
                        "@ in_plain.npz --dt 0.1"),
    "a workbook": (content("log.xlsx", b"PK\3\4" + bytes(100)), differ("log.xlsx"), table(ROWS),
                   "@ log.csv:a,c"),
    **{f"{module} is not installed": (content(name, head), f"without {module}: inspect {name}")
       for module, name, head in (("yaml", "in.yaml", b"a: 1\n"), ("torch", "in.pt", b"PK\3\4"),
                                  ("scipy", "in.mat", b"MATLAB 5.0"))},
    "matplotlib is not installed": (OUTPUT, "without matplotlib: plot out.h5 -o out.png"),
    # --- rotations ---
    "four dofs of norm 1": (npz(q=TURNS, dt=0.1), differ("in.npz:q"),
        *(f"+ --rotation {kind}" for kind in ("0:4=xyzw", "0:4=wxyz", "none"))),
    "quaternions of unknown order": (npz(quat=TURNS, dt=0.1), differ("in.npz:quat"),
        *(f"+ --rotation {kind}" for kind in ("xyzw", "wxyz", "none"))),
    "Euler angles in another order": (npz(q=CURVE, dt=0.1), differ("in.npz:q --rotation euler"),
                                      "+ --rotation rpy"),
    "rotations by a mode of dofs": (npz(quat_xyzw=TURNS, dt=0.1),
        integ("in.npz:quat_xyzw --mode central --start zero"), "+ --dofs 0:3", "+ --rotation none"),
    "a TUM trajectory of no rotation": (npz(pose=np.hstack([CURVE, TURNS])),
        "export in.npz:pose -o o.tum", "+ --rotation 3:7=xyzw --dt 0.1"),
    # --- gradients and shards ---
    "a factor of no gradient": ([npy(), npz("up.npz", position=np.ones((1, 31, 3)))],
        f"{RUN} --grad-factor 2", "+ --cost velocity", "+ --grad up.npz"),
    "a device that is not there": (npy(), f"{RUN} --device cuda", "+ --device cpu"),
    "no run in shards": (npy(), "status out.h5", f"{RUN} --shard 0/1", "status out.h5",
                         "merge out.h5"),
    "parts of two counts": ([npy(values=BATCH), SHARD, lambda: shutil.copy(
        "out.h5.parts/00000-of-00002.h5", "out.h5.parts/00000-of-00004.h5")], "status out.h5",
        lambda: os.remove("out.h5.parts/00000-of-00002.h5"), "1 status out.h5"),
    "a part of another command": ([npy(values=BATCH), SHARD], f"{RUN} --mode jerk --shard 0/2",
                                  "+ --overwrite", "+ -o other.h5"),
    "a part that is damaged": ([npy(values=BATCH), SHARD, SHARD.replace("0/2", "1/2"),
        content("out.h5.parts/00001-of-00002.h5", b"\x89HDF\r\n\x1a\n")], "merge out.h5",
        f"{RUN} --shard 1/2", "merge out.h5"),
    # --- limits, figures, comparisons ---
    "actions in retime": ([npz(actions=CURVE, dt=0.1), VELOCITY],
        "retime in.npz --limits limits.toml -o o.h5", integ("in.npz --start zero"), "@ out.h5",
        differ("in.npz:actions"), "@ out.h5"),
    "positions in retime": ([npy(), VELOCITY], f"retime in.npy --dt 0.1 {SLOWER}",
        "differentiate in.npy --dt 0.1 --method central -o o_central.h5",
        f"retime o_central.h5 {SLOWER}"),
    "uniform without times": ([npz(position=CURVE), npy("t.npy", T), VELOCITY],
        f"retime in.npz {FAST} --method uniform", "+ --method fastest",
        *(f"+ --method fastest {time}" for time in ("--dt 0.1", "--rate 10", "--times t.npy"))),
    "too short a duration": ([npz(position=CURVE), VELOCITY],
                             f"retime in.npz --duration 0.01 {FAST}", "+ --duration 0.618"),
    "corners of a path": ([npz(position=KNEES), ALL], f"retime in.npz {FAST}", "+ --corners stop",
                          "+ --corners 0.01"),
    "too high a rate": ([npz(position=CURVE), ALL], f"retime in.npz {FAST} --to 1e9",
                        "+ --to 2.2e4"),
    "limits of other joints": ([npz(position=CURVE, dt=0.1, joint_names=NAMES), NAMED],
                               "check in.npz --limits limits.toml", "+ --joints a,b,c"),
    "limits of other numbers": (
        [npz(position=CURVE, dt=0.1), text("limits.toml", "[position]\nupper = [9, 9]")],
        "check in.npz --limits limits.toml", "+ --dofs 0:2"),
    "a score that takes limits": ([OUTPUT, VELOCITY], "score out.h5 --fail limit_share>1",
                                  "+ --limits limits.toml --fail limit_share>100"),
    # --- the library ---
    "no time step in Python": ([], ">>> differentiate(CURVE)", ">>> differentiate(CURVE, dt=0.1)",
                               ">>> differentiate(CURVE, times=T)"),
    "no start in Python": ([], ">>> integrate(CURVE, None, 0.1)",
        ">>> integrate(CURVE, start='zero', dt=0.1)", ">>> trajcli.differentiate(CURVE, dt=0.1)",
        ">>> integrate(CURVE, State(np.zeros(3)), 0.1)"),
    "rates without their scheme in Python": ([],
        ">>> integrate(CURVE, 'zero', times=T, mode='velocity', scheme='zoh')",
        ">>> integrate(CURVE, 'zero', times=T, mode='velocity', scheme='foh')"),
    "a goal without its ends in Python": ([],
        ">>> integrate(CURVE, 'zero', 0.1, 'central', goal=np.zeros(3))",
        ">>> integrate(CURVE, 'zero', 0.1, 'central', goal=np.zeros(3), ends='goal')"),
    "an option of another mode in Python": ([], ">>> integrate(CURVE, 'zero', 0.1, degree=3)",
        ">>> integrate(CURVE, 'zero', 0.1, mode='bspline', degree=3)",
        ">>> differentiate(CURVE, dt=0.1, method='savgol', degree=3)"),
    "NaN in Python": ([], ">>> differentiate(CURVE * np.nan, dt=0.1)",
                      ">>> differentiate(CURVE * np.nan, dt=0.1, allow_nonfinite=True)"),
    "a plan of no polynomial in Python": ([],
        ">>> sample(integrate(CURVE, 'zero', 0.1), [0.05])",
        ">>> trajcli.resample(integrate(CURVE, 'zero', 0.1), at=[0.05])"),
    "a score of an array in Python": ([], ">>> score(CURVE)",
                                      ">>> score(trajcli.differentiate(CURVE, dt=0.1))"),
    "a name that is taken in Python": (text("out.h5", ""),
        ">>> integrate(CURVE, 'zero', 0.1).save('out.h5')",
        ">>> integrate(CURVE, 'zero', 0.1).save('out.h5', overwrite=True)"),
    "corners in Python": ([], ">>> retime(KNEES, {'velocity': 9.0})",
        ">>> retime(KNEES, {'velocity': 9.0}, corners='stop')",
        ">>> retime(KNEES, {'velocity': 9.0}, corners=0.01)"),
}
