"""Defines every option once; its name is that of the command's parameter.

The command line goes before TRAJCLI_* in the environment, and that before the default. Choices
are literals: they complete with Tab, and a wrong one is answered with the right ones.
"""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Callable
from functools import partial, wraps
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import typer

T = TypeVar("T")


def of_mode(**typed: Any) -> dict[str, Any]:
    """Returns the options of a mode that have a value, with a window in rows as a number."""
    chosen = {name: value for name, value in typed.items() if value is not None}
    # 15 is a number of rows, 0.3s a time
    if re.fullmatch("[+-]?[0-9]{1,9}", chosen.get("window", "")):
        chosen["window"] = int(chosen["window"])
    if "bandlimit" in chosen:
        chosen["bandlimit"] = _numbers(chosen["bandlimit"])
    return chosen


def _numbers(text: str) -> float | list[float]:
    """Returns the number, or the numbers between commas, of --bandlimit."""
    from trajcli.errors import UsageError

    try:
        values = [float(part) for part in text.split(",")]
    except ValueError:
        expected, where = "Hz, like 2.5 or 2.5,4", "--bandlimit"
        raise UsageError("not a number", where=where, expected=expected, found=repr(text)) from None
    return values if len(values) > 1 else values[0]


def _datasets(incomplete: str) -> list[str]:
    """Completes FILE:… in the shell."""
    from trajcli.cli import completion

    return completion.datasets(incomplete)


def _expanded(path: Path | None) -> Path | None:
    """Returns a path with ~ expanded, which shells do not do after ``--out=``."""
    return None if path is None else Path(os.path.expanduser(path))


def _panel(title: str | None) -> Callable[..., Any]:
    """Returns a function that makes options under one heading of the help.

    Where FILE:DATASET may stand, the names in the file complete.
    """

    def option(usage: str, help: str, **more: Any) -> Any:
        """Makes an option used as "--mode MODE"; a switch has flags only."""
        words = usage.split()
        flags = [word for word in words if word.startswith("-")]
        more |= {"metavar": " ".join(words[len(flags) :]) or None, "show_envvar": False}
        if "FILE:" in usage + help or "FILE[:" in usage + help:
            more["autocompletion"] = _datasets
        return typer.Option(*flags, help=help, rich_help_panel=title, **more)

    return option


def _argument(metavar: str, help: str) -> Any:
    """Makes an argument; names in the file complete where FILE may stand."""
    completion = _datasets if "FILE" in help else None
    return typer.Argument(metavar=metavar, help=help, show_default=False, autocompletion=completion)


_read = _panel("What is read")
_computed = _panel("What is computed")
_steps = _panel("Time steps")
_state = _panel("Start and goal state")
_recording = _panel("Recordings")
_gradient = _panel("Gradients, written under grad/")
_output = _panel("Output")
_run = _panel("How it runs")
# -o has no environment variable: every run has an output of its own
_out = partial(_output, show_default=False, callback=_expanded, allow_from_autoenv=False)
_look = _panel("What is looked at")
_tolerance = _panel("What is allowed")
_WHICH = "Trajectories: 3, 0:10, 2,5,-1 or all."

# fmt: off
ModeName = Literal["acceleration", "acc", "jerk", "velocity", "clique", "position", "central",
                   "bspline", "teleport"]
LayoutName = Literal["robomimic", "mimicgen", "robosuite", "libero", "isaaclab", "aloha",
                     "maniskill", "d4rl", "minari", "lerobot", "replay", "table", "plain"]
MethodName = Literal["hold", "linear", "ramp-and-hold", "cubic", "quintic"]

Sources = Annotated[list[str], _argument("SOURCE...",
    "FILE[:DATASET]; DATASET may hold *, or be columns a,b. HDF5, NumPy, CSV, bags, Zarr, "
    "Parquet, MATLAB, YAML, JSON, .pt.")]
OneSource = Annotated[str, _argument("SOURCE", "FILE[:DATASET or :GROUP].")]
FirstSource = Annotated[str, _argument("A", "FILE[:DATASET or :GROUP].")]
SecondSource = Annotated[str, _argument("B", "FILE[:DATASET or :GROUP], the other one.")]
Divided = Annotated[Path, _argument("OUT", "OUT of the run, or OUT.parts.")]
Out = Annotated[Path, _out("-o --out OUT",
    "OUT.h5, OUT.npz, or OUT.npy with one quantity.")]
Figure = Annotated[Path, _out("-o --out FIG", "FIG.png, FIG.svg or FIG.pdf.")]
Export = Annotated[Path, _out("-o --out OUT", "OUT.csv, .parquet, .rrd, .tum, .h5, .npz or .npy.")]
LeRobot = Annotated[Path | None, _output("--lerobot DIR",
    "Write a copy of this LeRobot data set, with SOURCE as features trajcli.position, …, to a "
    "new folder OUT.", callback=_expanded)]
Json = Annotated[bool, _run("--json", "One JSON document on stdout; text on stderr.")]
Quiet = Annotated[bool, _run("--quiet -q", "Only warnings and errors.")]

Layout = Annotated[LayoutName | None, _read("--layout NAME",
    "The family of the files: robomimic, mimicgen, robosuite, libero, isaaclab, aloha, "
    "maniskill, d4rl, minari, lerobot, replay (Zarr), table; or plain arrays. "
    "(default: recognised)")]
FilterKey = Annotated[str | None, _read("--filter-key NAME",
    "Only the trajectories listed in /mask/NAME.")]
Episodes = Annotated[str | None, _read("--episodes WHICH", f"{_WHICH} (default: all)")]
Dofs = Annotated[str | None, _read("--dofs WHICH",
    "Dofs, by number or name: 0:7, or 2,5,-1, or elbow,wrist. (default: all)")]
Joints = Annotated[str | None, _read("--joints NAMES",
    "Names of these dofs, in order: a,b,c. (default: what the file says)")]
Rotation = Annotated[str | None, _read("--rotation WHICH=FORM",
    "Dofs that are rotations: 3:7=xyzw, or qw,qx,qy,qz=wxyz; rotvec, rot6d, matrix; FORM for all; "
    "none. (default: by their names)")]
Absolute = Annotated[str | None, _read("--absolute WHICH",
    "Dofs (a gripper) whose actions are positions, whatever --mode and --actions: 7, or names.")]
Actions = Annotated[Literal["delta", "relative"] | None, _read("--actions KIND",
    "Position commands: delta (steps from one to the next) | relative (offsets from the start). "
    "(default: what the mode takes)")]
SkipBad = Annotated[bool, _read("--skip-bad",
    "Leave out trajectories that cannot be computed, list them, and exit with 1.")]
SkipOutside = Annotated[bool, _read("--skip-bad",
    "Leave out times outside the rows, and trajectories that cannot be computed; list them, and "
    "exit with 1.")]

Mode = Annotated[ModeName | None, _computed("--mode MODE",
    "acceleration (acc) | jerk | velocity | clique (position) | central | bspline | "
    "teleport. (default: what the file says, else acceleration)")]
Scheme = Annotated[Literal["euler", "zoh", "foh"] | None, _computed("--scheme SCHEME",
    "How sums treat the action between rows: euler|zoh|foh. (default: euler)")]
Ends = Annotated[Literal["plan", "goal"] | None, _computed("--ends ENDS",
    "central, bspline: plan|goal. (default: plan)")]
Degree = Annotated[int | None, _computed("--degree N", "bspline: 3, 4 or 5. (default: 3)")]
MethodOfDifferences = Literal["smooth", "savgol", "central", "backward"]
Differences = Annotated[MethodOfDifferences | None, _computed("--method NAME",
    "smooth (a spline that chooses its cutoff) | savgol (local polynomials, which smooth) | "
    "central (five points) | backward (neighbours). (default: savgol with --window or --degree and "
    "for rotations, else smooth)")]
Bandlimit = Annotated[str | None, _computed("--bandlimit HZ",
    "smooth: its cutoff, one for all dofs or one for each: 2.5,4. (default: chosen for each dof of "
    "each trajectory by cross-validation)")]
Noise = Annotated[float | None, _computed("--noise SIGMA",
    "smooth: instead, the deviation that residuals are to have, in the unit of the positions.")]
Robust = Annotated[bool, _computed("--robust", "smooth: lower the weights of outliers.")]
Order = Annotated[int | None, _computed("--order N",
    "smooth: of the derivative that is penalised, 3 or 4. (default: 3)")]
RotationFrame = Annotated[Literal["world", "body"], _computed("--rotation-frame FRAME",
    "Frame of angular rates, and of delta turns: world | body.")]
Window = Annotated[str | None, _computed("--window ROWS|SECONDS",
    "savgol: an odd number of rows, or like 0.2s: of each row those within half of it. "
    "(default: 0.3s)")]
FitDegree = Annotated[int | None, _computed("--degree N", "savgol: 2 to 5. (default: 4)")]
Steps = Annotated[int | None, _computed("--steps N",
    "bspline: rows per knot interval. (default: 1)")]
Frames = Annotated[Literal["full", "actions", "curobo"] | None, _computed("--frames FRAMES",
    "full (rows 0..H) | actions (1..H) | curobo (0..H-1). (default: full)")]
Convention = Annotated[Literal["standard", "curobo"] | None, _computed("--convention NAME",
    "standard, or curobo: match cuRobo 0.7. (default: standard)")]
ToRate = Annotated[float | None, _computed("--to HZ", "Rows per second to write.")]
ToTimes = Annotated[str | None, _computed("--at FILE:DATASET",
    "Instead: the times to write, [N] or [B, N]: stamps of the source's clock, or from the "
    "first row, whichever fits.")]
Method = Annotated[MethodName | None, _computed("--method NAME",
    "hold | linear | ramp-and-hold | cubic | quintic. (default: exact, else linear)")]
Hold = Annotated[float, _computed("--hold SHARE", "ramp-and-hold: share of the step that is held.")]
HoldDofs = Annotated[str | None, _computed("--hold-dofs WHICH",
    "Dofs that keep each row until the next whatever the method, like a gripper: 7, or names.")]
SplineDegree = Annotated[int, _computed("--degree N", "bspline: 3, 4 or 5.")]
Intervals = Annotated[int | None, _computed("--knots N", "Intervals between knots.")]
FitError = Annotated[float | None, _computed("--error E",
    "Instead: roughly the fewest that bring every row within E (rad or m) of its curve.")]
FitSteps = Annotated[int, _computed("--steps N",
    "Rows per knot interval for which dt is written. (default: as in the recording)",
    show_default=False)]
Limits = Annotated[Path, _computed("--limits FILE",
    "A table per quantity, as in sample_data/limits.toml.", show_default=False,
    callback=_expanded)]
SlowerOnly = Annotated[bool, _computed("--slower-only", "Never make a trajectory faster.")]

Dt = Annotated[str | None, _steps("--dt DT",
    "SECONDS, FILE:DATASET or FILE:DATASET@ATTR. (default: what the file says)")]
Rate = Annotated[float | None, _steps("--rate HZ", "Steps per second.")]
Times = Annotated[str | None, _steps("--times FILE:DATASET",
    "Time stamps of the rows, in seconds.")]
RepeatedTimes = Annotated[Literal["error", "drop"], _recording("--repeated-times WHAT",
    "Rows whose stamp repeats the one before: error | drop.")]
MaxGap = Annotated[float | None, _recording("--max-gap SECONDS",
    "Split where stamps are further apart; each piece is a trajectory of its own.")]
WrapDofs = Annotated[str | None, _recording("--wrap-dofs WHICH",
    "Angles that wrap, like 3,5, or names; they are made continuous first.")]

Start = Annotated[str | None, _state("--start START",
    "zero | NUMBERS | FILE[:GROUP] | FILE:DATASET. (default: in SOURCE)")]
Goal = Annotated[str | None, _state("--goal GOAL",
    "zero | FILE:GROUP | FILE:DATASET, for --ends goal. (default: in SOURCE)")]
FitStart = Annotated[str | None, _state("--start START",
    "Start exactly at: first (position) | rest (first, at rest) | NUMBERS | FILE[:GROUP]. "
    "(default: fitted)")]
FitGoal = Annotated[str | None, _state("--goal GOAL",
    "End exactly at: last (position) | rest (last, at rest) | NUMBERS | FILE[:GROUP]. "
    "(default: fitted)")]
StartIndex = Annotated[str | None, _state("--start-index FILE:DATASET",
    "[B]: which start state each trajectory uses.")]

Grad = Annotated[str | None, _gradient("--grad FILE[:GROUP]",
    "Upstream gradients [B, T, D], named like the outputs; any of them.")]
Cost = Annotated[str | None, _gradient("--cost EXPRESSION",
    "Instead: the gradient of a weighted sum of squares, like velocity+0.1*jerk.")]
GradFactor = Annotated[float | None, _gradient("--grad-factor F",
    "Multiply all gradients. (default: 1)")]

Write = Annotated[str, _output("--write NAMES", "Any of position,velocity,acceleration,jerk.")]
Dtype = Annotated[Literal["float32", "float64"] | None, _output("--dtype TYPE",
    "float32 | float64. (default: the input's)")]
Units = Annotated[str | None, _read("--units UNITS",
    "Units of positions: rad, deg, m, cm, mm, for all dofs or each (rad,rad,m); of time stamps: "
    "s, ms, us, ns. They are converted to SI. (default: what the file says)")]
Overwrite = Annotated[bool, _output("--overwrite", "Replace OUT if it is there.")]
Compress = Annotated[int | None, _output("--compress LEVEL",
    "Shuffle and deflate OUT.h5, level 1 to 9 (4 is usual).")]
Title = Annotated[str | None, _output("--title TEXT",
    "The title; '' for none. (default: files and trajectories)")]
FigureSize = Annotated[str | None, _output("--size WxH",
    "Width and height: 3.5x2.6in, 9x6.5cm, 90x65mm. (default: 7 in wide)")]
FileLabels = Annotated[str | None, _output("--labels A,B",
    "What the files are called in the legend and title.")]

Device = Annotated[str, _run("--device DEVICE", "auto (cpu)|cpu|cuda|cuda:N.")]
AllowNonfinite = Annotated[bool, _run("--allow-nonfinite",
    "Compute with NaN and Inf in the input.")]
AllowExternal = Annotated[bool, _run("--allow-external",
    "Follow HDF5 links, storage and virtual datasets out of the file.")]
DryRun = Annotated[bool, _run("--dry-run", "Say what would be done, and stop.")]
Shard = Annotated[str | None, _run("--shard I/N",
    "Shard I of N, from 0 on, into OUT.parts; trajcli status and merge go on from there.")]

PlotEpisodes = Annotated[str | None, _look("--episodes WHICH",
    f"{_WHICH} (default: the first; --histogram: all)")]
LimitsFile = Annotated[Path | None, _look("--limits FILE",
    "Limits of the joints: .toml as in sample_data, or a URDF.", callback=_expanded)]
Full = Annotated[bool, _look("--full", "Read all values of a large file, not a sample.")]
Histogram = Annotated[bool, _look("--histogram",
    "Draw a histogram of the peaks of all trajectories.")]
ScoreName = Annotated[str | None, _look("--score NAME",
    "Draw a histogram of a score of all trajectories; trajcli score lists them.")]
Verbose = Annotated[bool, _look("--verbose -v",
    "List every trajectory that fails or differs.")]
VerboseScores = Annotated[bool, _look("--verbose -v", "List every trajectory.")]
Sort = Annotated[str | None, _look("--sort SCORE",
    "List trajectories, the largest score first; -SCORE: the least first.")]
Fail = Annotated[list[str] | None, _look("--fail CONDITION",
    "Exit 1 where a trajectory meets this condition: \"p95_jerk>50\". May be repeated.")]
Csv = Annotated[Path | None, _output("--csv FILE", "Write a line per trajectory; - for stdout.",
    callback=_expanded)]
VerbosePaces = Annotated[bool, _look("--verbose -v",
    "List what limits each trajectory, when, and the slack of the other limits.")]
Recompute = Annotated[bool, _look("--recompute",
    "Run the recorded command again and compare; the sources must be where they were.")]
VelocityOf = Annotated[str | None, _look("--velocity-of DATASET",
    "Check that SOURCE is the derivative of these positions, of the same file or FILE:DATASET; "
    "or POSITIONS=VELOCITIES of a file.")]
Rtol = Annotated[float, _tolerance("--rtol R", "Allow R times the larger of the two.")]
Atol = Annotated[float, _tolerance("--atol A", "Allow A, added to --rtol.")]
Ulp = Annotated[float, _tolerance("--ulp N", "Or allow N units in the last place.")]
# fmt: on

_READING = {"layout": Layout, "filter_key": FilterKey, "dofs": Dofs, "joints": Joints,
            "rotation": Rotation, "episodes": Episodes, "dt": Dt, "rate": Rate, "times": Times,
            "units": Units, "allow_external": AllowExternal}  # fmt: skip
_REPAIR = {"max_gap": MaxGap, "repeated_times": RepeatedTimes, "wrap_dofs": WrapDofs}
_COMPUTING = {"skip_bad": SkipBad, "write": Write, "dtype": Dtype, "overwrite": Overwrite,
              "compress": Compress, "dry_run": DryRun, "json": Json, "quiet": Quiet,
              "device": Device, "shard": Shard, "allow_nonfinite": AllowNonfinite}  # fmt: skip
_DEFAULTS = {"allow_external": False, "repeated_times": "error", "skip_bad": False,
             "write": "position,velocity,acceleration,jerk", "overwrite": False, "dry_run": False,
             "json": False, "quiet": False, "device": "auto", "allow_nonfinite": False}  # fmt: skip
_PANELS = (None, "What is computed", "Start and goal state", "What is looked at",
           "What is allowed", "Time steps", "What is read", "Recordings",
           "Gradients, written under grad/", "Output", "How it runs")  # fmt: skip


def reading(command: Callable[..., T]) -> Callable[..., T]:
    """Gives a command that takes ``**reading`` the options of files.reading.Reading."""
    return _with(command, _READING)


def reading_recordings(command: Callable[..., T]) -> Callable[..., T]:
    """Gives a command that takes ``**reading`` the options of Reading and of Repair."""
    return _with(command, _READING | _REPAIR)


def computing(command: Callable[..., T]) -> Callable[..., T]:
    """Gives a command that takes ``**typed`` the options of Reading and of a run to OUT."""
    return _with(command, _READING | _COMPUTING)


def computing_recordings(command: Callable[..., T]) -> Callable[..., T]:
    """Gives a command that takes ``**typed`` the options of Reading, Repair and a run to OUT."""
    return _with(command, _READING | _REPAIR | _COMPUTING)


def _with(command: Callable[..., T], more: dict[str, Any]) -> Callable[..., T]:
    """Returns a command with more options in place of its ``**``, in the order of the help."""
    signature = inspect.signature(command, eval_str=True)
    # Typer reads the signature, so ** becomes the options one by one
    own = [p for p in signature.parameters.values() if p.kind is not p.VAR_KEYWORD]
    options = [
        inspect.Parameter(
            name, inspect.Parameter.KEYWORD_ONLY, default=_DEFAULTS.get(name), annotation=kind
        )
        for name, kind in more.items()
    ]

    def panel(parameter: inspect.Parameter) -> int:
        option = parameter.annotation.__metadata__[0]
        return _PANELS.index(option.rich_help_panel)

    @wraps(command)
    def run(**typed: Any) -> T:
        return command(**typed)

    # the headings of the help have one order in all commands
    ordered = sorted([*own, *options], key=panel)
    parameters = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in ordered]
    run.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {p.name: p.annotation for p in parameters}
    return run
