"""The fastest timing of paths against toppra, Ruckig, MoveIt's algorithm and uniform scaling.

    python benchmarks/retiming.py                       # every section
    python benchmarks/retiming.py toppra ruckig speed   # some of them
    python benchmarks/retiming.py --quick               # a fifth of the paths

Paths have 7 dofs and the limits of a Franka Panda; jerk limits are also divided by up to 2000.
Peers come with the extra `test`; the section `totg` wants tesseract-robotics 0.5, with MoveIt's
time-optimal trajectory generation (Kunz and Stilman, 2012) and its smoothing by Ruckig. The
sections `outputs` and `totg` call `trajcli.retime`, the others its kernel with N intervals.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np
from scipy.interpolate import CubicSpline, make_interp_spline

import trajcli
from trajcli.kernels.native import fastest as kernel
from trajcli.kernels.native.fastest import Path

DOFS = 7
VELOCITY = np.array([2.175] * 4 + [2.61] * 3)
ACCELERATION = np.array([15, 7.5, 10, 12.5, 15, 20, 20.0])
JERK = np.array([7500, 3750, 5000, 6250, 7500, 10000, 10000.0])
UNBOUNDED = np.full(DOFS, np.inf)
# What jerk limits are divided by: a robot's own, down to very gentle ones.
DIVISORS = (1, 15, 50, 150, 500, 2000)
NAMES = ("velocity", "acceleration", "jerk")


def limits(divisor: float = 1.0) -> Any:
    """Magnitudes [3, D]; a divisor of 0 leaves jerk unlimited."""
    return np.stack([VELOCITY, ACCELERATION, JERK / divisor if divisor else UNBOUNDED])


def named(divisor: float = 1.0) -> dict[str, Any]:
    """The same limits as `retime` takes them."""
    return dict(zip(NAMES, limits(divisor)[: 3 if divisor else 2], strict=False))


def solve(paths: list[Path], bounds: Any, intervals: int | None = None) -> list[Any]:
    return kernel.fastest(paths, -bounds, bounds, intervals)


def durations(timings: list[Any]) -> Any:
    return np.array([timing.duration for timing in timings])


def random_points(count: int, seed: int = 0, rows: int = 6) -> Any:
    """Waypoints [count, rows, D]."""
    return np.random.default_rng(seed).uniform(-1, 1, (count, rows, DOFS))


def path_through(points: Any) -> Path:
    """A spline through waypoints [K, D] over their chord length."""
    chords = np.linalg.norm(np.diff(points, axis=0), axis=1)
    chords = np.maximum(chords, 1e-3 * np.ptp(points) or 1.0)
    return Path(np.concatenate([[0.0], np.cumsum(chords)]) / chords.sum(), points)


def straight(along: Any) -> Path:
    return Path(np.array([0.0, 1.0]), np.stack([0 * along, along]))


def scipy_spline(path: Path) -> Any:
    """The spline of a path by SciPy, free at both ends, for peers."""
    free = [(3, np.zeros(DOFS)), (4, np.zeros(DOFS))]
    return make_interp_spline(path.knots, path.points, k=5, bc_type=(free, free))


def report(what: str, figure: float, most: float, form: str = ".5f", more: str = "") -> None:
    """Prints a figure beside its target, in a format or, near 1, as its excess over 1."""
    if form == "excess":
        value, target = f"1 {figure - 1:+.1e}", f"1 {most - 1:+.1e}"
    else:
        value, target = f"{figure:{form}}", f"{most:{form}}"
    missed = "" if figure <= most else "  MISSED"
    print(f"{what:<64} {value:>12}  at most {target}{missed}  {more}".rstrip(), flush=True)


def ratios(what: str, ratio: Any, most: float) -> None:
    report(what, float(np.max(ratio)), most, more=f"median {np.median(ratio):.5f}")


class Curve:
    """A SciPy spline as toppra takes paths."""

    def __init__(self, spline: Any) -> None:
        self.spline, self.dof, self.path_interval = spline, DOFS, np.array([0.0, 1.0])
        self.duration, self.waypoints = 1.0, None

    def __call__(self, places: Any, order: int = 0) -> Any:
        return self.spline(places, order)


def toppra_times(path: Path, points: int) -> Any:
    """Times at points [n + 1] of a path, by toppra within limits of velocity and acceleration."""
    constraints = import_module("toppra.constraint")
    scheme = constraints.DiscretizationType.Interpolation
    both = [
        constraints.JointVelocityConstraint(np.c_[-VELOCITY, VELOCITY]),
        constraints.JointAccelerationConstraint(
            np.c_[-ACCELERATION, ACCELERATION], discretization_scheme=scheme
        ),
    ]
    grid = np.linspace(0.0, 1.0, points + 1)
    planner = import_module("toppra.algorithm").TOPPRA(
        both, Curve(scipy_spline(path)), gridpoints=grid, solver_wrapper="seidel"
    )
    speeds = planner.compute_parameterization(0, 0)[1]
    return np.concatenate([[0.0], np.cumsum(2 / points / (speeds[1:] + speeds[:-1]))])


def ruckig_duration(along: Any, bounds: Any, speeds: tuple[float, float] = (0.0, 0.0)) -> float:
    """The duration of a straight line by Ruckig, from and to speeds in lengths of it a second."""
    ruckig = import_module("ruckig")
    problem, trajectory = ruckig.InputParameter(1), ruckig.Trajectory(1)
    problem.current_position, problem.target_position = [0.0], [1.0]
    problem.current_velocity, problem.target_velocity = [speeds[0]], [speeds[1]]
    most = [[float((bound / np.abs(along)).min())] for bound in bounds]
    problem.max_velocity, problem.max_acceleration, problem.max_jerk = most
    assert ruckig.Ruckig(1).calculate(problem, trajectory) == ruckig.Result.Working
    return float(trajectory.duration)


def measure_toppra(share: float) -> None:
    """Without limits of jerk, against toppra at so many points."""
    paths = [path_through(points) for points in random_points(max(4, int(50 * share)))]
    for intervals, points, most in ((200, 500, 1.002), (500, 8000, 1.0005)):
        peer = np.array([toppra_times(path, points)[-1] for path in paths])
        ratio = durations(solve(paths, limits(0), intervals)) / peer
        ratios(f"no jerk limit, N {intervals} / toppra at {points} points", ratio, most)


def measure_ruckig(share: float) -> None:
    """Straight lines of 1 mm to 3 rad a joint, against Ruckig."""
    random = np.random.default_rng(1)
    count = max(4, int(20 * share))
    for divisor in (1, 20, 100, 500):
        lines = random.uniform(-1, 1, (count, DOFS)) * 10 ** random.uniform(-3, 0.5, (count, 1))
        peer = np.array([ruckig_duration(line, limits(divisor)) for line in lines])
        ratio = durations(solve([straight(line) for line in lines], limits(divisor), 200)) / peer
        ratios(f"lines, rest to rest, jerk / {divisor}, N 200 / Ruckig", ratio, 1.001)
    for divisor in (20, 100, 300):
        paths, peers = [], []
        for speeds in ((0.3, 0.0), (0.5, 0.5), (0.0, 0.4), (0.2, 0.6)):
            for line in random.uniform(-1, 1, (max(1, int(5 * share)), DOFS)):
                # A plan of 3 s: a quintic with these speeds and no acceleration at its ends.
                points = np.stack([0 * line, line])
                slopes = np.stack([np.outer(speeds, line), np.zeros((2, DOFS))])
                held = (speeds[0] > 0, speeds[1] > 0)
                knots = np.array([0.0, 3.0])
                paths.append(Path(knots, points, slopes, clock=True, held=held))
                peers.append(ruckig_duration(line, limits(divisor), speeds))
        ratio = durations(solve(paths, limits(divisor), 200)) / np.array(peers)
        ratios(f"lines with moving ends, jerk / {divisor}, N 200 / Ruckig", ratio, 1.003)


def measure_grid(share: float) -> None:
    """What more intervals gain."""
    paths = [path_through(points) for points in random_points(max(4, int(25 * share)))]
    found = []
    for divisor in DIVISORS:
        few, many = (durations(solve(paths, limits(divisor), n)) for n in (200, 1600))
        ratio = few / many
        found.append(ratio)
        print(f"  jerk / {divisor}: median {np.median(ratio):.5f}, largest {ratio.max():.5f}")
    report("T(N = 200) / T(N = 1600), median", float(np.median(found)), 1.0015)
    report("T(N = 200) / T(N = 1600), largest", float(np.max(found)), 1.005)


def measure_uniform(share: float) -> None:
    """Against the fastest uniform pace."""
    paths = [path_through(points) for points in random_points(max(4, int(50 * share)))]
    for divisor in (*DIVISORS, 0):
        timings = solve(paths, limits(divisor))
        ratio = durations(timings) / np.array([timing.uniform for timing in timings])
        words = f"jerk / {divisor}" if divisor else "no jerk limit"
        most = 0.62 if divisor == 1 else 1.0
        more = f"least {ratio.min():.3f}"
        report(f"over uniform scaling, {words}, median", float(np.median(ratio)), most, more=more)
        report(f"over uniform scaling, {words}, largest", float(ratio.max()), 1.0)


def output_shares(result: Any, number: int, bounds: Any) -> list[float]:
    """The largest share of each limit among differences of an output's control points and, of
    acceleration and jerk, its rows, which those at the ends are."""
    one = result[number : number + 1]
    rows = one.time.shape[-1] if one.lengths is None else int(one.lengths[0])
    times = np.atleast_2d(one.time)[0, :rows]
    step = (times[-1] - times[0]) / (rows - 1)
    points = np.asarray(result.actions)[number, : rows - 5]
    shares = []
    for order, bound in enumerate(bounds, 1):
        values = [np.abs(np.diff(points, order, axis=0)) / step**order / bound]
        if order > 1:
            values.append(np.abs(getattr(one, NAMES[order - 1])[0, :rows]) / bound)
        shares.append(max(float(value.max(initial=0.0)) for value in values))
    return shares


def measure_outputs(share: float) -> None:
    """What controllers see: differences of control points of `trajcli.retime`, at every step."""
    count = max(2, int(10 * share))
    fast: Any = trajcli.retime
    for rate in (100.0, 1000.0, 4000.0):
        worst = np.zeros(3)
        for divisor in (1, 50, 500):
            result = fast(random_points(count, seed=divisor), named(divisor), rate=rate)
            for number in range(count):
                worst = np.maximum(worst, output_shares(result, number, limits(divisor)))
        more = " ".join(f"{name} {x:.6f}" for name, x in zip(NAMES, worst, strict=True))
        report(f"differences / limits at {rate:g} Hz", worst.max(), 1 + 1e-9, "excess", more)


def measure_sampled(share: float) -> None:
    """The timing itself, at 20 kHz."""
    paths = [path_through(points) for points in random_points(max(4, int(30 * share)))]
    for divisor in (1, 50, 500, 0):
        timings = solve(paths, limits(divisor))
        stamps = [np.linspace(0.0, t.duration, int(t.duration * 20_000) + 2) for t in timings]
        solutions = [timing.solution for timing in timings]
        sampled = kernel.sample(paths, solutions, stamps, divisor == 0)
        shares = [np.abs(rows[1:] / limits(divisor)[:, None]) for rows in sampled]
        words = f"jerk / {divisor}" if divisor else "no jerk limit"
        worst = max(float(share.max()) for share in shares)
        busy = [(share.max((0, 2)) >= 0.98).mean() for share in shares]
        report(f"limits are used at 20 kHz, {words}", worst, 1 + 1e-9, "excess",
               f"some limit ≥ 98 % for {np.mean(busy):.0%} of the time")  # fmt: skip


KNOTS = np.linspace(0.0, 1.0, 13)


def near_stop(random: Any) -> Path:
    """A straight line that the parameter nearly stops on halfway."""
    along = random.uniform(-1, 1, DOFS)
    places = 4 * (KNOTS - 0.5) ** 3 + 10 ** random.uniform(-6, -1) * KNOTS
    return Path(KNOTS, np.outer(places, along))


KINDS: dict[str, Callable[[Any], Path]] = {
    "random 6": lambda r: path_through(r.uniform(-1, 1, (6, DOFS))),
    "random 30": lambda r: path_through(r.uniform(-0.3, 0.3, (30, DOFS))),
    "collinear": lambda r: path_through(np.outer(np.sort(r.uniform(0, 1, 8)), r.uniform(-1, 1, 7))),
    "repeated": lambda r: path_through(np.repeat(r.uniform(-1, 1, (5, DOFS)), [1, 2, 1, 3, 1], 0)),
    "one joint": lambda r: path_through(r.uniform(-1, 1, (7, 1)) * np.eye(DOFS)[r.integers(DOFS)]),
    "reversal": lambda r: Path(
        KNOTS, np.outer(np.sin(np.pi * KNOTS) * (1 + 0.3 * KNOTS), r.uniform(-1, 1, DOFS))
    ),
    "near stop": near_stop,
    "1e-6 long": lambda r: path_through(r.uniform(-1e-6, 1e-6, (6, DOFS))),
    "10 long": lambda r: path_through(r.uniform(-10, 10, (6, DOFS))),
    "1000 long": lambda r: path_through(r.uniform(-1000, 1000, (6, DOFS))),
    "scales": lambda r: path_through(r.uniform(-1, 1, (6, DOFS)) * 10 ** r.uniform(-9, 0, DOFS)),
    "offset 1e4": lambda r: path_through(r.uniform(-1e-2, 1e-2, (6, DOFS)) + 1e4),
    "sharp": lambda r: path_through(np.cumsum(np.eye(DOFS)[r.integers(0, DOFS, 20)], 0)),
    "does not move": lambda r: path_through(np.repeat(r.uniform(-1, 1, (1, DOFS)), 6, 0)),
}  # fmt: skip


def measure_kinds(share: float) -> None:
    """Odd paths, 36 of each kind."""
    random = np.random.default_rng(11)
    total: Counter[str] = Counter()
    for kind, make in KINDS.items():
        timings = solve([make(random) for _ in range(36)], limits(10 ** random.uniform(0, 3)), 100)
        states = Counter(timing.state for timing in timings)
        total += states
        ratio = [t.duration / t.uniform for t in timings if t.duration]
        words = f"{min(ratio):.3f} to {max(ratio):.3f} of uniform scaling" if ratio else ""
        iterations = [timing.iterations for timing in timings]
        print(f"  {kind:<14} {dict(states)} {words}, {max(iterations)} iterations", flush=True)
    report("504 odd paths that fall back", total["uniform"] + total["beyond limits"], 0, "g")
    report("504 odd paths that are not finite", total["not finite"], 0, "g")
    still = total["does not move"]
    report("504 odd paths that do not move, off 36", abs(still - 36), 0, "g", str(dict(total)))


@contextmanager
def environment(**variables: str | None) -> Iterator[None]:
    """Variables of the environment, which kernels read at each call; those of None are unset."""
    before = {name: os.environ.get(name) for name in variables}
    for values in (variables, before):
        for name, value in values.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        if values is variables:
            yield


def measure_speed(share: float) -> None:
    """Processor time of one path on one core, jerk / 50; rounds in turns, medians."""
    paths = [path_through(points) for points in random_points(max(4, int(20 * share)))]
    levels = {"this machine's instructions": None, "TRAJCLI_LEVEL=3": "3"}
    taken: dict[tuple[int, str], list[float]] = {}
    for _ in range(5):
        for intervals in (100, 500):
            for words, level in levels.items():
                with environment(TRAJCLI_THREADS="1", TRAJCLI_LEVEL=level):
                    begin = time.process_time()
                    solve(paths, limits(50), intervals)
                    spent = (time.process_time() - begin) / len(paths) * 1e3
                taken.setdefault((intervals, words), []).append(spent)
    for (intervals, words), each in taken.items():
        report(f"ms a path, N = {intervals}, {words}", statistics.median(each),
               5.0 if intervals == 100 else 25.0, ".1f", f"least {min(each):.1f}")  # fmt: skip


def peak_memory() -> float:
    """Returns the peak of this process's own memory so far, in MB."""
    with open("/proc/self/status") as status:
        line = next(line for line in status if line.startswith("VmHWM"))
    return float(line.split()[1]) / 1e3


def peak(count: int, threads: int) -> tuple[float, float]:
    """Returns by how much solving so many paths lets the peak of memory grow, and the size of the
    results, in MB."""
    paths = [path_through(points) for points in random_points(count)]
    with environment(TRAJCLI_THREADS=str(threads)):
        solve(paths[:1], limits(50), 20)
        before = peak_memory()
        timings = solve(paths, limits(50), 500)
        after = peak_memory()
    return after - before, sum(timing.solution.nbytes for timing in timings) / 1e6


def measure_memory(share: float) -> None:
    """Growth of peak memory by batches, each in a process of its own, without results; N = 500."""
    many = max(20, int(200 * share))
    grown = {}
    for count, threads in ((1, 1), (many, 1), (many, 2)):
        command = [sys.executable, __file__, "--peak", str(count), str(threads)]
        printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        growth, results = map(float, printed.split())
        grown[count, threads] = growth - results
        print(f"  {count} paths, {threads} threads: {growth:.1f} MB, results {results:.1f} MB")
    one = grown[1, 1]
    report(f"MB that {many} paths take, one thread", grown[many, 1], 1.25 * one + 1, ".1f")
    report(f"MB that {many} paths take, two threads", grown[many, 2], 2.5 * one + 1, ".1f")


def measure_totg(share: float) -> None:
    """MoveIt's algorithm, which limits no jerk, and what jerk such timings have."""
    paths = [path_through(points) for points in random_points(max(4, int(20 * share)))]
    worst = []
    for path in paths:
        times = toppra_times(path, 2000)
        instants = np.minimum(np.arange(0, times[-1] + 1e-3, 1e-3), times[-1])
        rows = scipy_spline(path)(CubicSpline(times, np.linspace(0.0, 1.0, 2001))(instants))
        rows = np.pad(rows, ((3, 3), (0, 0)), "edge")  # it rests before and behind
        worst.append(np.abs(np.diff(rows, 3, axis=0) / 1e-9 / JERK).max())
    print(f"  toppra, setpoints at 1 kHz: jerk {np.median(worst):.1f} times the robot's limit "
          f"(median, largest {max(worst):.1f})")  # fmt: skip
    if not find_spec("tesseract_robotics"):
        print("  TOTG not measured: pip install tesseract-robotics==0.5.1")
        return
    few = paths[:5]
    theirs = [totg_duration(scipy_spline(path)(np.linspace(0, 1, 200)), 0.01) for path in few]
    ratio = np.array(theirs) / durations(solve(few, limits(0)))
    print(f"  TOTG through 200 points of a spline / no jerk limit: median {np.median(ratio):.4f}")
    fast: Any = trajcli.retime
    polylines = np.stack([path.points for path in paths])
    for radius in (0.01, 0.1):
        print(f"  corners within {radius}, mean seconds:")
        for smooth, words in ((False, "TOTG"), (True, "TOTG smoothed by Ruckig")):
            each = [totg_duration(points, radius, smooth) for points in polylines]
            print(f"    {words:<40} {np.mean(each):.3f}")
        for divisor in (0, 1, 50):
            found = fast(polylines, named(divisor), corners=radius).duration
            words = f"jerk / {divisor}" if divisor else "no jerk limit"
            print(f"    retime, {words:<32} {np.mean(found):.3f}", flush=True)


def totg_duration(points: Any, tolerance: float, smooth: bool = False) -> float:
    """The duration of a polyline with blended corners by MoveIt's TOTG, as Tesseract has it."""
    words = import_module("tesseract_robotics.tesseract_command_language")
    timing = import_module("tesseract_robotics.tesseract_time_parameterization")
    program = words.CompositeInstruction("DEFAULT")
    for point in points:
        waypoint = words.StateWaypoint([f"j{dof}" for dof in range(DOFS)], np.array(point))
        waypoint = words.StateWaypointPoly_wrap_StateWaypoint(waypoint)
        move = words.MoveInstruction(waypoint, words.MoveInstructionType_FREESPACE, "DEFAULT")
        program.appendMoveInstruction(words.MoveInstructionPoly_wrap_MoveInstruction(move))
    rows = timing.InstructionsTrajectory(program)
    bounds = [*(np.c_[-bound, bound] for bound in limits()), *[np.ones(1)] * 3]
    assert timing.TimeOptimalTrajectoryGeneration(tolerance, 1e-3).compute(rows, *bounds)
    if smooth:
        assert timing.RuckigTrajectorySmoothing().compute(rows, *bounds)
    return float(rows.getTimeFromStart(rows.size() - 1))


SECTIONS: dict[str, Callable[[float], None]] = {
    "toppra": measure_toppra,
    "ruckig": measure_ruckig,
    "grid": measure_grid,
    "outputs": measure_outputs,
    "sampled": measure_sampled,
    "uniform": measure_uniform,
    "kinds": measure_kinds,
    "speed": measure_speed,
    "memory": measure_memory,
    "totg": measure_totg,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("sections", nargs="*", metavar="SECTION", help=", ".join(SECTIONS))
    parser.add_argument("--quick", action="store_true", help="a fifth of the paths")
    parser.add_argument("--peak", type=int, nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.peak:
        print(*peak(*given.peak))
        return
    if unknown := set(given.sections) - set(SECTIONS):
        parser.error(f"no section {', '.join(unknown)}; there are {', '.join(SECTIONS)}")
    for name in given.sections or SECTIONS:
        begin = time.perf_counter()
        print(f"{name}: {SECTIONS[name].__doc__}", flush=True)
        SECTIONS[name](0.2 if given.quick else 1.0)
        print(f"  {time.perf_counter() - begin:.0f} s", flush=True)


if __name__ == "__main__":
    main()
