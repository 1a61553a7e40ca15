"""Every option that a command takes, once: its name, help and environment variable.

Precedence: command line, then TRAJCLI_* in the environment, then --config, then the default.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from trajcli.cli.config import load_config

_MODES = "acceleration (acc), jerk, velocity, clique (position), central, bspline or teleport"


def _datasets(incomplete: str) -> list[str]:
    """What FILE:… can go on as, for the shell."""
    from trajcli.cli import completion

    return completion.datasets(incomplete)


def _option(*names: str, help: str, **more: Any) -> Any:
    """An option that is also an environment variable: --dry-run is TRAJCLI_DRY_RUN."""
    name = next(name for name in names if name.startswith("--"))
    variable = "TRAJCLI_" + name.split("/")[0].lstrip("-").replace("-", "_").upper()
    if "FILE:" in more.get("metavar", "") + help or "FILE[:" in more.get("metavar", "") + help:
        more["autocompletion"] = _datasets
    return typer.Option(*names, help=help, envvar=variable, show_envvar=False, **more)


def _panel(title: str) -> Any:
    """A maker of options shown under one heading of the help."""
    return partial(_option, rich_help_panel=title)


Sources = Annotated[
    list[str],
    typer.Argument(
        metavar="SOURCE...",
        help="FILE[:DATASET]; DATASET may hold *. .h5, .npy or .npz.",
        show_default=False,
        autocompletion=_datasets,
    ),
]
Out = Annotated[
    Path,
    typer.Option(
        "-o",
        "--out",
        metavar="OUT",
        show_default=False,
        help="OUT.h5, OUT.npz, or OUT without ending: a folder of .npy files.",
    ),
]


_source_option = _panel("What is read")

Layout = Annotated[
    str | None,
    _source_option(
        "--layout",
        metavar="NAME",
        help="Read files as robomimic, mimicgen, robosuite, libero, isaaclab, aloha, maniskill, "
        "d4rl, minari, lerobot, or plain arrays. (default: what they are recognised as)",
    ),
]
FilterKey = Annotated[
    str | None,
    _source_option(
        "--filter-key", metavar="NAME", help="Only the trajectories listed in /mask/NAME."
    ),
]


_mode_option = _panel("What is computed")

Mode = Annotated[str, _mode_option("--mode", metavar="MODE", help=f"{_MODES}.")]
Scheme = Annotated[
    str | None,
    _mode_option(
        "--scheme",
        metavar="SCHEME",
        help="How sums treat the action between rows: euler|zoh|foh. (default: euler)",
    ),
]
Ends = Annotated[
    str | None,
    _mode_option(
        "--ends", metavar="ENDS", help="central, bspline: plan|recording|goal. (default: plan)"
    ),
]
Degree = Annotated[
    int | None, _mode_option("--degree", metavar="N", help="bspline: 3, 4 or 5. (default: 3)")
]
Steps = Annotated[
    int | None,
    _mode_option("--steps", metavar="N", help="bspline: rows per knot interval. (default: 1)"),
]
Frames = Annotated[
    str | None,
    _mode_option(
        "--frames",
        metavar="FRAMES",
        help="full (rows 0..H) | actions (1..H) | curobo (0..H-1). (default: full)",
    ),
]
Convention = Annotated[
    str | None,
    _mode_option(
        "--convention",
        metavar="NAME",
        help="standard, or curobo: match cuRobo 0.7. (default: standard)",
    ),
]
Horizon = Annotated[
    int,
    _mode_option("--horizon", metavar="H", help="Actions per trajectory.", show_default=False),
]


ToRate = Annotated[
    float, _mode_option("--to", metavar="HZ", help="Rows per second to write.", show_default=False)
]
Method = Annotated[
    str,
    _mode_option(
        "--method", metavar="NAME", help="hold | linear | ramp-and-hold | cubic | bspline."
    ),
]
Hold = Annotated[
    float,
    _mode_option("--hold", metavar="SHARE", help="ramp-and-hold: share of the step that is held."),
]
SplineDegree = Annotated[int, _mode_option("--degree", metavar="N", help="bspline: 3, 4 or 5.")]
Limits = Annotated[
    Path,
    _mode_option(
        "--limits",
        metavar="FILE",
        help="A table per quantity, as in sample_data/limits.toml.",
        show_default=False,
    ),
]
SlowerOnly = Annotated[bool, _mode_option("--slower-only", help="Never make a trajectory faster.")]


_step_option = _panel("Time steps")

Dt = Annotated[
    str | None,
    _step_option(
        "--dt",
        metavar="DT",
        help="SECONDS, FILE:DATASET or FILE:DATASET@ATTR. (default: what the file says)",
    ),
]
Rate = Annotated[float | None, _step_option("--rate", metavar="HZ", help="Steps per second.")]
Times = Annotated[
    str | None,
    _step_option("--times", metavar="FILE:DATASET", help="Time stamps of the rows, in seconds."),
]
RepeatedTimes = Annotated[
    str,
    _step_option(
        "--repeated-times",
        metavar="WHAT",
        help="Rows whose stamp repeats the one before: error | drop.",
    ),
]


_recording_option = _panel("Recordings")

MaxGap = Annotated[
    float | None,
    _recording_option(
        "--max-gap",
        metavar="SECONDS",
        help="Split where stamps are further apart; each piece is a trajectory of its own.",
    ),
]
WrapDofs = Annotated[
    str | None,
    _recording_option(
        "--wrap-dofs", metavar="LIST", help="Angles that wrap, like 3,5: made continuous first."
    ),
]
Smooth = Annotated[
    str | None,
    _recording_option(
        "--smooth",
        metavar="NAMES",
        help="Any of velocity,acceleration,jerk: five taps over rows, once they are differenced.",
    ),
]


_state_option = _panel("Start and goal state")

Start = Annotated[
    str | None,
    _state_option(
        "--start",
        metavar="START",
        help="zero | first (a recording) | FILE:GROUP | FILE:DATASET. (default: in SOURCE)",
    ),
]
FirstOrNone = Annotated[
    str | None, _state_option("--start", metavar="first", help="The actions are a recording.")
]
Goal = Annotated[
    str | None,
    _state_option(
        "--goal",
        metavar="GOAL",
        help="zero | FILE:GROUP | FILE:DATASET, for --ends goal. (default: in SOURCE)",
    ),
]
StartIndex = Annotated[
    str | None,
    _state_option(
        "--start-index", metavar="FILE:DATASET", help="[B]: which start state each trajectory uses."
    ),
]
GoalIndex = Annotated[
    str | None,
    _state_option(
        "--goal-index", metavar="FILE:DATASET", help="[B]: which goal state each trajectory uses."
    ),
]
StartPosition = Annotated[
    str | None,
    _state_option(
        "--start-position",
        metavar="FILE:DATASET",
        help="The parts of the start state one by one: [B, D] or [D].",
    ),
]
StartVelocity = Annotated[
    str | None,
    _state_option("--start-velocity", metavar="FILE:DATASET", help="(default: in SOURCE, else 0)"),
]
StartAcceleration = Annotated[
    str | None,
    _state_option(
        "--start-acceleration", metavar="FILE:DATASET", help="(default: in SOURCE, else 0)"
    ),
]
StartJerk = Annotated[
    str | None,
    _state_option("--start-jerk", metavar="FILE:DATASET", help="(default: in SOURCE, else 0)"),
]
GoalPosition = Annotated[
    str | None,
    _state_option(
        "--goal-position", metavar="FILE:DATASET", help="The parts of the goal state one by one."
    ),
]
GoalVelocity = Annotated[
    str | None,
    _state_option("--goal-velocity", metavar="FILE:DATASET", help="(default: in SOURCE, else 0)"),
]
GoalAcceleration = Annotated[
    str | None,
    _state_option(
        "--goal-acceleration", metavar="FILE:DATASET", help="(default: in SOURCE, else 0)"
    ),
]
GoalJerk = Annotated[
    str | None,
    _state_option("--goal-jerk", metavar="FILE:DATASET", help="(default: in SOURCE, else 0)"),
]


_gradient_option = _panel("Gradients, written under grad/")

Grad = Annotated[
    str | None,
    _gradient_option(
        "--grad",
        metavar="FILE[:GROUP]",
        help="Upstream gradients [B, T, D], named like the outputs; any of them.",
    ),
]
Cost = Annotated[
    str | None,
    _gradient_option(
        "--cost",
        metavar="EXPRESSION",
        help="Instead: the gradient of a weighted sum of squares, like velocity+0.1*jerk.",
    ),
]
GradFactor = Annotated[
    float | None,
    _gradient_option("--grad-factor", metavar="F", help="Multiply all gradients. (default: 1)"),
]
Wrt = Annotated[
    str | None,
    _gradient_option(
        "--wrt", metavar="NAMES", help="Any of actions,start,goal,dt. (default: all there are)"
    ),
]

_output_option = _panel("Output")

Write = Annotated[
    str,
    _output_option("--write", metavar="NAMES", help="Any of position,velocity,acceleration,jerk."),
]
Dtype = Annotated[
    str | None,
    _output_option("--dtype", metavar="TYPE", help="float32 | float64. (default: the input's)"),
]
Units = Annotated[
    str | None,
    _output_option(
        "--units",
        metavar="UNIT",
        help="Unit of the positions, like rad or m. (default: the input's)",
    ),
]
Sparse = Annotated[
    bool,
    _output_option(
        "--sparse",
        help="Compressed rows as SciPy keeps them: A_data, A_indices, A_indptr, A_shape.",
    ),
]
Pack = Annotated[
    bool,
    _output_option(
        "--pack",
        help="Trajectories of different length in one array, padded with NaN, and their lengths. "
        "(default: a group for each, as in the input)",
    ),
]
Overwrite = Annotated[bool, _output_option("--overwrite", help="Replace OUT if it is there.")]
Compress = Annotated[
    int | None,
    _output_option(
        "--compress", metavar="LEVEL", help="Shuffle and deflate OUT.h5, level 1 to 9 (4 is usual)."
    ),
]
Resume = Annotated[
    bool,
    _output_option(
        "--resume", help="Go on where the same command was stopped; from the start if it was not."
    ),
]
Durable = Annotated[
    bool, _output_option("--durable", help="Sync OUT to the disk before it appears.")
]


_run_option = _panel("How it runs")

Device = Annotated[str, _run_option("--device", metavar="DEVICE", help="auto|cpu|cuda|cuda:N.")]
Backend = Annotated[str, _run_option("--backend", metavar="NAME", help="auto|native|triton|torch.")]
Memory = Annotated[
    str,
    _run_option("--memory", metavar="SIZE", help="Bound on working memory, beyond the libraries."),
]
AllowNonfinite = Annotated[
    bool, _run_option("--allow-nonfinite", help="Compute with NaN and Inf in the input.")
]
AllowExternal = Annotated[
    bool,
    _run_option(
        "--allow-external", help="Follow HDF5 links, storage and virtual datasets out of the file."
    ),
]
Untrusted = Annotated[
    bool,
    _run_option(
        "--untrusted", help="Read files in a child process with limits on time and memory."
    ),
]
DryRun = Annotated[bool, _run_option("--dry-run", help="Say what would be done, and stop.")]
NoProgress = Annotated[bool, _run_option("--no-progress", help="No progress bar or lines.")]

_share_option = _panel("Many machines: a share of the run each, into OUT.parts")

ShardIndex = Annotated[
    int | None,
    _share_option(
        "--shard-index",
        metavar="I",
        help="Do share I of N, from 0 on; trajcli status and merge go on from there. What is done "
        "is skipped and what was stopped goes on, --resume or not; --overwrite replaces only parts "
        "that other options made; --compress is for merge.",
    ),
]
NumShards = Annotated[
    int | None,
    _share_option("--num-shards", metavar="N", help="How many shares; may differ next time."),
]
Shard = Annotated[
    str | None,
    _share_option(
        "--shard",
        metavar="auto",
        help="auto: share and GPU as torchrun, a Slurm array, srun or mpirun number this process.",
    ),
]

_look_option = _panel("What is looked at")

_WHICH = "Trajectories: 3, 0:10, 2,5,-1 or all."

Index = Annotated[
    str | None, _look_option("--index", metavar="WHICH", help=f"{_WHICH} (default: all)")
]
InspectIndex = Annotated[
    str | None,
    _look_option("--index", metavar="WHICH", help=f"{_WHICH} (default: all; --rows: the first)"),
]
PlotIndex = Annotated[
    str | None,
    _look_option(
        "--index", metavar="WHICH", help=f"{_WHICH} (default: the first; --histogram: all)"
    ),
]
Dof = Annotated[
    str | None,
    _look_option("--dof", metavar="WHICH", help="Dofs, by number or name: 2,5. (default: all)"),
]
Rows = Annotated[
    str | None,
    _look_option(
        "--rows", metavar="[WHICH]", help="List rows, number by number: all, or 17, or 0:10."
    ),
]
Value = Annotated[
    str | None,
    _look_option(
        "--value",
        metavar="DATASET[I,J,K]",
        help="Print one number and nothing else: position[3,-1,2]; of a .npy [3,-1,2].",
    ),
]
LimitsFile = Annotated[
    Path | None,
    _look_option(
        "--limits",
        metavar="FILE",
        help="Limits of the joints: .toml as in sample_data, or a URDF.",
    ),
]
CheckedStart = Annotated[
    str | None,
    _look_option(
        "--start",
        metavar="START",
        help="zero | FILE[:GROUP]: what row 0 must be. (default: what the file says, if found)",
    ),
]
Full = Annotated[
    bool, _look_option("--full", help="Look at all values of a large file, not at a sample.")
]

Parts = Annotated[
    list[Path],
    typer.Argument(
        metavar="PART...",
        help="OUT.parts, or part files in it, or several such folders of one run.",
        show_default=False,
    ),
]
Divided = Annotated[
    Path,
    typer.Argument(metavar="OUT", help="OUT of the run, or OUT.parts.", show_default=False),
]
Virtual = Annotated[
    bool,
    _output_option(
        "--virtual",
        help="OUT.h5 points at the parts, which must stay beside it; a part that is gone reads as "
        "NaN. Of the parts only the sizes are checked.",
    ),
]
FirstSource = Annotated[
    str,
    typer.Argument(
        metavar="A",
        help="FILE[:DATASET or :GROUP].",
        show_default=False,
        autocompletion=_datasets,
    ),
]
SecondSource = Annotated[
    str | None,
    typer.Argument(
        metavar="[B]",
        help="The other; with --recompute, what A was computed from.",
        show_default=False,
        autocompletion=_datasets,
    ),
]
Figure = Annotated[
    Path,
    typer.Option(
        "-o", "--out", metavar="FIG", show_default=False, help="FIG.png, FIG.svg or FIG.pdf."
    ),
]
OneSource = Annotated[
    str,
    typer.Argument(
        metavar="SOURCE",
        help="FILE[:DATASET or :GROUP]. .h5, .npy, .npz.",
        show_default=False,
        autocompletion=_datasets,
    ),
]
Export = Annotated[
    Path,
    typer.Option(
        "-o",
        "--out",
        metavar="OUT",
        show_default=False,
        help="OUT.csv, OUT.rrd, OUT.npz or OUT.npy.",
    ),
]
ExportRows = Annotated[
    str | None, _look_option("--rows", metavar="WHICH", help="A run of rows: 0:10. (default: all)")
]
Histogram = Annotated[
    bool, _look_option("--histogram", help="The peaks of all trajectories, as a histogram.")
]
Title = Annotated[
    str | None,
    _output_option(
        "--title",
        metavar="TEXT",
        help="Above the figure; '' for none. (default: files and trajectories)",
    ),
]
_tolerance_option = _panel("What is allowed")
Recompute = Annotated[
    bool,
    _option("--recompute", help="Compare A with its own job done again, in a temporary folder."),
]
Rtol = Annotated[
    float, _tolerance_option("--rtol", metavar="R", help="Apart by R times the larger of the two.")
]
Atol = Annotated[float, _tolerance_option("--atol", metavar="A", help="Apart by A, beside --rtol.")]
Ulp = Annotated[
    float,
    _tolerance_option("--ulp", metavar="N", help="Or apart by N units in the last place."),
]

Json = Annotated[bool, _option("--json", help="One JSON document on stdout; text on stderr.")]
Quiet = Annotated[bool, _option("--quiet", "-q", help="Only warnings and errors.")]
Config = Annotated[
    Path | None,
    _option(
        "--config",
        metavar="FILE.toml",
        is_eager=True,
        callback=load_config,
        help="Defaults for options, as option = value.",
    ),
]
