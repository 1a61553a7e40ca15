"""Defines every option once, under the name of the command's parameter.

A value on the command line wins over TRAJCLI_* in the environment, and that over the default.
Choices are literals, so that they complete with Tab and an error lists them. Options of the modes
come from trajcli/mode_options.py.
"""

from __future__ import annotations

import inspect
import math
import os
import re
from collections.abc import Callable, Iterable, Mapping
from functools import partial, wraps
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, get_args

import typer

from trajcli import mode_options
from trajcli.cli.console import Console
from trajcli.mode_options import Option
from trajcli.names import (
    CurveName,
    DtypeName,
    FrameName,
    KindName,
    MethodName,
    ModeName,
    PaceName,
    QuantityName,
)

T = TypeVar("T")
EXAMPLE_RUN = "trajcli integrate sample_data/reach.h5 --mode jerk --scheme zoh"
"""The run that the examples of several commands begin with."""
# The headings of the help, in one order for all commands: options seen often come first.
_PANELS = ("What is computed", "Start and goal state", "What is shown", "What is allowed",
           "Time steps", "What is read", "Recordings", "Gradients, written under grad/", "Output",
           "How it runs")  # fmt: skip


def pop_mode_options(typed: dict[str, Any], names: Iterable[str]) -> dict[str, Any]:
    """Takes the options of a mode out of the typed ones, and parses numbers."""
    from trajcli.errors import UsageError

    # an option that was not typed is left to the file and to the mode
    options = {name: typed.pop(name) for name in names}
    options = {n: value for n, value in options.items() if value is not None and value is not False}
    # 15 is a number of rows, 0.3s a time
    if re.fullmatch("[+-]?[0-9]{1,9}", options.get("window", "")):
        options["window"] = int(options["window"])
    if text := options.get("bandlimit"):
        try:
            values = [float(part) for part in text.split(",")]
        except ValueError:
            what, where, expected = "not a number", "--bandlimit", "Hz, like 2.5 or 2.5,4"
            raise UsageError(what, where=where, expected=expected, found=repr(text)) from None
        options["bandlimit"] = values if len(values) > 1 else values[0]
    return options


def _datasets(incomplete: str) -> list[str]:
    from trajcli.cli import completion

    return completion.datasets(incomplete)


def _expand(path: Path | None) -> Path | None:
    return None if path is None else Path(os.path.expanduser(path))


def _finite(value: float | None) -> float | None:
    """Refuses NaN and Inf, which are within any range for Typer; raises BadParameter."""
    if value is not None and not math.isfinite(value):
        raise typer.BadParameter(f"{value} is not a finite number.")
    return value


def _option(panel: str, usage: str, help: str, complete: bool = False, **more: Any) -> Any:
    """Declares an option used as "--mode MODE", or a switch, which has flags only.

    complete: its values complete as FILE:DATASET.
    """
    words = usage.split()
    flags = [word for word in words if word.startswith("-")]
    more |= {"metavar": " ".join(words[len(flags) :]) or None, "show_envvar": False}
    if complete:
        more["autocompletion"] = _datasets
    return typer.Option(*flags, help=help, rich_help_panel=panel, **more)


def _argument(metavar: str, help: str, complete: bool = True) -> Any:
    completion = _datasets if complete else None
    return typer.Argument(metavar=metavar, help=help, show_default=False, autocompletion=completion)


def _mode_option(option: Option) -> Any:
    default = option.default_words or option.default
    help = f"{option.help} (default: {default})" if default else option.help
    return _computed(f"--{option.name} {option.metavar}", help)


(_computed, _state, _shown, _tolerance, _steps, _read, _recording, _gradient, _output,
 _run) = (partial(_option, panel) for panel in _PANELS)  # fmt: skip
# -o has no environment variable: every run has an output of its own
_out = partial(_output, show_default=False, callback=_expand, allow_from_autoenv=False)

# fmt: off
# What is read, and the files to write.
LayoutName = Literal["robomimic", "mimicgen", "robosuite", "libero", "isaaclab", "aloha",
                     "maniskill", "d4rl", "minari", "lerobot", "replay", "table", "plain"]

Sources = Annotated[list[str], _argument("SOURCE...",
    "FILE or FILE:DATASET, where DATASET may contain * or list columns or arrays (a,b). Formats: "
    "HDF5, NumPy, CSV, ROS bag, Zarr, Parquet, MATLAB, YAML, JSON, .pt.")]
OneSource = Annotated[str, _argument("SOURCE", "FILE, FILE:DATASET or FILE:GROUP.")]
FirstSource = Annotated[str, _argument("A", "FILE, FILE:DATASET or FILE:GROUP.")]
SecondSource = Annotated[str, _argument("B", "What A is compared with, named like A: FILE, ….")]
Divided = Annotated[Path, _argument("OUT", "The run's OUT, or its folder OUT.parts.",
    complete=False)]
Out = Annotated[Path, _out("-o --out OUT",
    "The file to write: OUT.h5, OUT.npz, or OUT.npy (one quantity).")]
Figure = Annotated[Path, _out("-o --out FIG",
    "The figure to write: FIG.png, FIG.svg or FIG.pdf.")]
Export = Annotated[Path, _out("-o --out OUT",
    "The file to write: OUT.csv, .parquet, .rrd, .tum, .yaml, .json, .h5, .npz or .npy; - writes "
    "CSV to stdout.")]
# How a table is written.
Columns = Annotated[str | None, _output("--columns NAMES",
    "Columns of a CSV in order: time,position,velocity, or of joints: joint1,position/joint2. "
    "(default: all)")]
Decimals = Annotated[int | None, _output("--decimals N",
    "Decimals in a CSV. (default: as many as read the same numbers back)", min=0, max=17)]
Separator = Annotated[Literal[",", ";", "tab"], _output("--separator SIGN",
    "Between columns: ',' or ';' or the word tab.")]
Decimal = Annotated[Literal[".", ","], _output("--decimal SIGN",
    "Before decimals: '.' or, with another separator, ','.")]
NoHeading = Annotated[bool, _output("--no-heading", "Leave out the line that names the columns.")]
Stamps = Annotated[bool, _output("--stamps",
    "Times in a CSV are the stamps of the source, in its unit, to the last digit.")]
ActionsAs = Annotated[KindName | None, _output("--actions-as KIND",
    "Write positions as actions: delta (from one row to the next) or relative (from the first).")]
LeRobot = Annotated[Path | None, _output("--lerobot DIR",
    "Write a copy of the LeRobot data set in DIR to a new folder OUT, with SOURCE as features "
    "trajcli.position, ….", callback=_expand)]
Json = Annotated[bool, _run("--json", "Print one JSON document on stdout, text on stderr.")]
Quiet = Annotated[bool, _run("--quiet -q", "Print only warnings and errors.")]

# How a SOURCE is read. A default in words says what happens without the option.
Layout = Annotated[LayoutName | None, _read("--layout NAME",
    "Layout of the files: robomimic, mimicgen, robosuite, libero, isaaclab, aloha, maniskill, "
    "d4rl, minari, lerobot, replay (Zarr), table, or plain arrays. (default: recognised)")]
FilterKey = Annotated[str | None, _read("--filter-key NAME",
    "Read only the trajectories listed in /mask/NAME.")]
_WHICH = "Trajectories to {}: 0:10, or 2,5,-1. (default: {})"
Episodes = Annotated[str | None, _read("--episodes WHICH", _WHICH.format("read", "all"))]
PlotEpisodes = Annotated[str | None, _read("--episodes WHICH",
    _WHICH.format("draw", "the first; all with --histogram and --score"))]
Dofs = Annotated[str | None, _read("--dofs WHICH",
    "Dofs to read, by number or name: 0:7, or 2,5,-1, or elbow,wrist. (default: all)")]
Joints = Annotated[str | None, _read("--joints NAMES",
    "Names of these dofs: a,b,c. (default: in the file)")]
Quantity = Annotated[QuantityName | None, _read(
    "--as QUANTITY",
    "What the array that SOURCE names is. (default: by its unit or its name, else position)")]
SkipRows = Annotated[int | None, _read("--skip-rows N",
    "Lines of a CSV before its heading. (default: found)", min=0)]
Rotation = Annotated[str | None, _read("--rotation WHICH=FORM",
    "Dofs that are rotations: 3:7=xyzw, qw,qx,qy,qz=wxyz, or a FORM alone for all; also rotvec, "
    "rot6d, rot6d_rows, matrix, rpy, none. (default: by name)")]
Axes = Annotated[str | None, _read("--axes ORDER",
    "Which axis is which, like TBD or DT: T rows, B trajectories, D dofs. (default: BTD, TD)")]
Absolute = Annotated[str | None, _read("--absolute WHICH",
    "Dofs (such as a gripper) whose actions are positions in every mode: 7, or names.")]
Actions = Annotated[KindName | None, _read("--actions KIND",
    "Read position commands as delta (steps from one to the next) or relative (offsets from the "
    "start). (default: as the mode takes them)")]
SkipBad = Annotated[bool, _read("--skip-bad",
    "Leave out and list what cannot be computed; exit 1.")]
SkipOutside = Annotated[bool, _read("--skip-bad",
    "Leave out times outside the rows, and trajectories that cannot be computed; list them, and "
    "exit with 1.")]

# What is computed: by a mode, a method, a curve or limits.
Mode = Annotated[ModeName | None, _mode_option(mode_options.MODE)]
Differences = Annotated[MethodName | None, _mode_option(mode_options.METHOD)]
RotationFrame = Annotated[FrameName, _computed("--rotation-frame FRAME",
    "Frame of angular velocities and of delta rotations: world or body.")]
ToRate = Annotated[float | None, _computed("--to HZ", "Rows per second of the output.")]
ToTimes = Annotated[str | None, _computed("--at FILE:DATASET",
    "Write at these times instead, [N] or [B, N]: stamps of the source's clock or seconds from "
    "the first row, whichever fits.", complete=True)]
Method = Annotated[CurveName | None, _computed("--method NAME",
    "Curve between the rows: hold, linear, ramp-and-hold, cubic or quintic. (default: the exact "
    "curve of the mode; by velocities that are derivatives cubic or quintic; else linear)")]
Hold = Annotated[float, _computed("--hold SHARE",
    "Share of each step for which ramp-and-hold holds the reached row.")]
HoldDofs = Annotated[str | None, _computed("--hold-dofs WHICH",
    "Dofs (such as a gripper) that hold each row until the next in every method: 7, or names.")]
SplineDegree = Annotated[int, _computed("--degree N", mode_options.DEGREE.help)]
Intervals = Annotated[int | None, _computed("--knots N", "Number of knot intervals.")]
FitError = Annotated[float | None, _computed("--error E",
    "Choose roughly the fewest knot intervals that bring every row within E (rad or m) of its "
    "curve.")]
FitSteps = Annotated[int, _computed("--steps N",
    "Rows per knot interval that the dt in OUT gives. (default: as in the recording)",
    show_default=False)]
Limits = Annotated[Path, _computed("--limits FILE",
    "Limits of velocity, acceleration and jerk, as in sample_data/limits.toml.",
    show_default=False, callback=_expand)]
RetimeMethod = Annotated[PaceName | None, _computed("--method NAME",
    "uniform (one factor) or fastest (along the path). (default: uniform; without times fastest)")]
SlowerOnly = Annotated[bool, _computed("--slower-only", "Never make a trajectory faster.")]
Setpoints = Annotated[float | None, _computed("--to HZ",
    "Rows per second of fastest. (default: 1000, or those of SOURCE if more)", min=0.001,
    callback=_finite)]
SetpointCount = Annotated[int | None, _computed("--rows N", "Rows of fastest, instead of --to.")]
Duration = Annotated[float | None, _computed("--duration S", "Take exactly so long.", min=0.001,
    callback=_finite)]
Corners = Annotated[str | None, _computed("--corners stop|RADIUS",
    "At corners of the path: stop, or cut them within RADIUS. (default: refused)")]
Margin = Annotated[float, _computed("--margin M", "Use this share of each limit.", min=0.001,
    max=1)]

# When the rows were: time steps, and repairs of recorded times.
Dt = Annotated[str | None, _steps("--dt DT",
    "Time step: SECONDS, FILE:DATASET or FILE:DATASET@ATTR. (default: what the file states)",
    complete=True)]
Rate = Annotated[float | None, _steps("--rate HZ", "Rows per second, instead of --dt.")]
Times = Annotated[str | None, _steps("--times FILE:DATASET",
    "Time stamps of the rows, in seconds.", complete=True)]
Since = Annotated[str | None, _steps("--since S",
    "Read rows from here on: seconds from the first row, a stamp, or 2026-01-31T12:30:00.")]
Until = Annotated[str | None, _steps("--until S", "Read rows up to here, named like --since.")]
RepeatedTimes = Annotated[Literal["error", "drop"], _recording("--repeated-times WHAT",
    "What to do with a row that has the stamp of the row before: error or drop.")]
MaxGap = Annotated[float | None, _recording("--max-gap SECONDS",
    "Split trajectories where stamps are further apart.")]
WrapDofs = Annotated[str | None, _recording("--wrap-dofs WHICH",
    "Angles to make continuous first: 3,5, or names.")]
Trim = Annotated[bool, _recording("--trim", "Leave out standstill at both ends.")]
Still = Annotated[float | None, _recording("--still SPEED",
    "Speed of standstill. (default: 5 % of peak)", min=0.0, callback=_finite)]

# States at the ends, which are files, numbers or words.
Start = Annotated[str | None, _state("--start START",
    "zero, NUMBERS, FILE[:GROUP] or FILE:DATASET. (default: in SOURCE)", complete=True)]
Goal = Annotated[str | None, _state("--goal GOAL",
    "Goal of --ends goal: zero, FILE:GROUP or FILE:DATASET. (default: in SOURCE)", complete=True)]
FitStart = Annotated[str | None, _state("--start START",
    "Start exactly at: first (position), rest (first position, at rest), NUMBERS or "
    "FILE[:GROUP]. (default: fitted)", complete=True)]
FitGoal = Annotated[str | None, _state("--goal GOAL",
    "End exactly at: last (position), rest (last position, at rest), NUMBERS or FILE[:GROUP]. "
    "(default: fitted)", complete=True)]
StartIndex = Annotated[str | None, _state("--start-index FILE:DATASET",
    "Number of the start state of each trajectory [B].", complete=True)]

# Gradients, which are written under grad/ in OUT.
Grad = Annotated[str | None, _gradient("--grad FILE[:GROUP]",
    "Upstream gradients [B, T, D] of some or all outputs, named like them.", complete=True)]
Cost = Annotated[str | None, _gradient("--cost EXPRESSION",
    "Differentiate a weighted sum of squares instead, like velocity+0.1*jerk.")]
GradFactor = Annotated[float | None, _gradient("--grad-factor F",
    "Multiply all gradients. (default: 1)")]

# The output, and how it is written.
Write = Annotated[str, _output("--write NAMES", "Any of position,velocity,acceleration,jerk.")]
Dtype = Annotated[DtypeName | None, _output("--dtype TYPE",
    "float32 or float64. (default: the input's)")]
Units = Annotated[str | None, _read("--units UNITS",
    "Units of positions (rad, deg, m, cm, mm), for all dofs or each (rad,rad,m), and of stamps "
    "(s, ms, us, ns). (default: those in the file)")]
ToUnits = Annotated[str | None, _output("--to-units UNITS",
    "Units that are written or drawn, named as for --units: deg, mm, ms, or deg,deg,mm. "
    "(default: SI)")]
Overwrite = Annotated[bool, _output("--overwrite", "Replace an existing output.")]
Compress = Annotated[int | None, _output("--compress LEVEL",
    "Compress OUT.h5 at level 1 to 9; 4 is usual.")]
Title = Annotated[str | None, _output("--title TEXT",
    "Title; '' draws none. (default: files and trajectories)")]
FigureSize = Annotated[str | None, _output("--size WxH",
    "Width and height: 3.5x2.6in, 9x6.5cm, 90x65mm. (default: 7 in wide)")]
FileLabels = Annotated[str | None, _output("--labels A,B",
    "Names of the files in the legend and title.")]
Csv = Annotated[Path | None, _output("--csv FILE",
    "Write a table with a line per trajectory; - writes it to stdout.", callback=_expand)]

# How a run goes; no result depends on these.
Device = Annotated[str, _run("--device DEVICE", "auto (the CPU), cpu, cuda or cuda:N.")]
AllowNonfinite = Annotated[bool, _run("--allow-nonfinite", "Compute with NaN and Inf as input.")]
AllowExternal = Annotated[bool, _run("--allow-external",
    "Follow HDF5 links and storage out of the file.")]
DryRun = Annotated[bool, _run("--dry-run", "Print what would be done, and stop.")]
Shard = Annotated[str | None, _run("--shard I/N",
    "Shard I of N, from 0, into OUT.parts; see trajcli merge.")]

# What a view shows, and what a comparison allows.
LimitsFile = Annotated[Path | None, _shown("--limits FILE",
    "Joint limits: .toml as in sample_data, or a URDF.", callback=_expand)]
Full = Annotated[bool, _shown("--full", "Read all values of a large file, not a sample.")]
Histogram = Annotated[bool, _shown("--histogram",
    "Draw histograms of the peaks of all trajectories.")]
ScoreName = Annotated[str | None, _shown("--score NAME",
    "Draw a histogram of one of the scores that trajcli score lists.")]
Verbose = Annotated[bool, _shown("--verbose -v",
    "List every trajectory that fails or differs.")]
VerboseScores = Annotated[bool, _shown("--verbose -v", "List every trajectory.")]
VerbosePaces = Annotated[bool, _shown("--verbose -v",
    "List which limit binds each trajectory and when, and the slack of the others.")]
Sort = Annotated[str | None, _shown("--sort SCORE",
    "List the trajectories with the largest score first; with -SCORE, the smallest.")]
Fail = Annotated[list[str] | None, _shown("--fail CONDITION",
    "Exit with 1 if any trajectory meets this condition: \"p95_jerk>50\". May be repeated.")]
Rest = Annotated[bool, _shown("--rest",
    "Check that velocity and, where it is stored, acceleration are about zero at both ends.")]
Recompute = Annotated[bool, _shown("--recompute",
    "Run the recorded command again and compare; its sources must be where they were.")]
VelocityOf = Annotated[str | None, _shown("--velocity-of DATASET",
    "Check that SOURCE is the derivative of these positions, in the same file or FILE:DATASET. "
    "POSITIONS=VELOCITIES names both in SOURCE.", complete=True)]
Rtol = Annotated[float, _tolerance("--rtol R", "Allow R times the larger magnitude.")]
Atol = Annotated[float, _tolerance("--atol A", "Allow A in addition to --rtol.")]
Ulp = Annotated[float, _tolerance("--ulp N", "Alternatively, allow N units in the last place.")]
MaxError = Annotated[float | None, _tolerance("--max-error E",
    "Allow tracking errors of E after the delay (rad or m). Alone decides, with --max-delay.")]
MaxDelay = Annotated[float | None, _tolerance("--max-delay S",
    "Allow delays of S seconds. Alone decides, with --max-error.")]

READING = {"layout": Layout, "filter_key": FilterKey, "dofs": Dofs, "joints": Joints,
           "rotation": Rotation, "axes": Axes, "episodes": Episodes, "dt": Dt, "rate": Rate,
           "times": Times, "since": Since, "until": Until, "units": Units, "skip_rows": SkipRows,
           "allow_external": AllowExternal}
"""The fields of files.reading.Reading: how every SOURCE is read."""
REPAIR = {"max_gap": MaxGap, "repeated_times": RepeatedTimes, "wrap_dofs": WrapDofs,
          "trim": Trim, "still": Still}
"""The fields of files.reading.Repair: how recordings are repaired."""
TABLE = {"columns": Columns, "decimals": Decimals, "separator": Separator, "decimal": Decimal,
         "no_heading": NoHeading, "stamps": Stamps}
"""The fields of views.table.TableForm: how a CSV is written."""
WRITING = {"sources": Sources, "out": Out, "overwrite": Overwrite, "skip_bad": SkipBad}
"""What every command takes that computes OUT from trajectories: jobs.request.SourceRequest."""
RUN = WRITING | {"write": Write, "dtype": Dtype, "compress": Compress, "dry_run": DryRun,
                 "device": Device, "shard": Shard, "allow_nonfinite": AllowNonfinite}
"""The options that integrate and differentiate share."""
MODE, SMOOTHING = (
    {x.name: Annotated[x.type if x.type is bool else x.type | None, _mode_option(x)] for x in group}
    for group in (mode_options.INTEGRATION, mode_options.DIFFERENTIATION)
)
"""The options of the modes of integrate and of the methods of differentiate, in their order."""
INTEGRATE = {"start": Start, "start_index": StartIndex, "goal": Goal, "absolute": Absolute,
             "actions": Actions, "rotation_frame": RotationFrame, "grad": Grad, "cost": Cost,
             "grad_factor": GradFactor}
RESAMPLE = {"to": ToRate, "at": ToTimes, "method": Method, "hold": Hold,
            "rotation_frame": RotationFrame, "hold_dofs": HoldDofs, "skip_bad": SkipOutside,
            "allow_nonfinite": AllowNonfinite, "quantity": Quantity}
RETIME = {"limits": Limits, "method": RetimeMethod, "to": Setpoints, "rows": SetpointCount,
          "duration": Duration, "corners": Corners, "margin": Margin, "slower_only": SlowerOnly,
          "shard": Shard}
# fmt: on
_DEFAULTS = {
    "repeated_times": "error",
    "write": "position,velocity,acceleration,jerk",
    "device": "auto",
    "rotation_frame": "world",
    "hold": 0.0,
    "margin": 1.0,
    "limits": inspect.Parameter.empty,
    "separator": ",",
    "decimal": ".",
    "sources": inspect.Parameter.empty,
    "out": inspect.Parameter.empty,
}  # fmt: skip


def command(*groups: Mapping[str, Any]) -> Callable[[Callable[..., T]], Callable[..., T]]:
    """Makes a function a command of Typer.

    Its first parameter becomes a Console, made from --json and --quiet, and its ``**`` the options
    of some groups.
    """

    def decorate(function: Callable[..., T]) -> Callable[..., T]:
        signature = inspect.signature(function, eval_str=True)
        options = [
            p for p in list(signature.parameters.values())[1:] if p.kind is not p.VAR_KEYWORD
        ]
        shared = {name: kind for group in groups for name, kind in group.items()}
        # Typer reads the signature: every option of a group needs a parameter there
        for name, kind in (shared | {"json": Json, "quiet": Quiet}).items():
            default = _DEFAULTS.get(name, False if get_args(kind)[0] is bool else None)
            options.append(inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default,
                                             annotation=kind))  # fmt: skip
        panels: tuple[str | None, ...] = (None, *_PANELS)
        # the help has the panels in one order; within one the order of the groups stays
        options.sort(key=lambda p: panels.index(p.annotation.__metadata__[0].rich_help_panel))

        @wraps(function)
        def run(json: bool, quiet: bool, **typed: Any) -> T:
            return function(Console(json, quiet), **typed)

        parameters = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in options]
        run.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {p.name: p.annotation for p in parameters}
        return run

    return decorate
