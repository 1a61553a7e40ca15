"""Every option that a command takes, once: its name, help and environment variable.

Precedence: command line, then TRAJCLI_* in the environment, then the default. Choices are
literals, so that they complete and a wrong one is answered with the right ones.
"""

from __future__ import annotations

import os
import re
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

# fmt: off
ModeName = Literal["acceleration", "acc", "jerk", "velocity", "clique", "position", "central",
                   "bspline", "teleport"]
LayoutName = Literal["robomimic", "mimicgen", "robosuite", "libero", "isaaclab", "aloha",
                     "maniskill", "d4rl", "minari", "lerobot", "plain"]
# fmt: on


def _datasets(incomplete: str) -> list[str]:
    """What FILE:… can go on as, for the shell."""
    from trajcli.cli import completion

    return completion.datasets(incomplete)


def _option(flag: str, metavar: str, help: str, short: str = "", **more: Any) -> Any:
    """An option that is also an environment variable: --dry-run is TRAJCLI_DRY_RUN.

    metavar: "" for a switch. Where FILE:DATASET may stand, the names in the file complete.
    """
    variable = "TRAJCLI_" + flag.lstrip("-").replace("-", "_").upper()
    if re.search(r"FILE\[?:", metavar + help):
        more["autocompletion"] = _datasets
    names = [flag, short] if short else [flag]
    more = {"metavar": metavar or None, "envvar": variable, "show_envvar": False, **more}
    return typer.Option(*names, help=help, **more)


def _argument(metavar: str, help: str, datasets: bool = False) -> Any:
    """An argument; ``datasets``: the names in a file complete behind FILE: ."""
    completion = _datasets if datasets else None
    return typer.Argument(metavar=metavar, help=help, show_default=False, autocompletion=completion)


def _out(metavar: str, help: str, **more: Any) -> Any:
    """-o, of which there is no environment variable."""
    return typer.Option("-o", "--out", metavar=metavar, help=help, show_default=False, **more)


def _panel(title: str) -> Any:
    """A maker of options shown under one heading of the help."""
    return partial(_option, rich_help_panel=title)


Sources = Annotated[
    list[str],
    _argument("SOURCE...", "FILE[:DATASET]; DATASET may hold *. .h5, .npy or .npz.", datasets=True),
]


def _expanded(path: Path | None) -> Path | None:
    """A path with ~ for the home folder, which shells do not expand behind ``--out=``."""
    return None if path is None else Path(os.path.expanduser(path))


Out = Annotated[
    Path,
    _out(
        "OUT", "OUT.h5, OUT.npz, or OUT without ending: a folder of .npy files.", callback=_expanded
    ),
]


_source_option = _panel("What is read")

Layout = Annotated[
    LayoutName | None,
    _source_option(
        "--layout",
        "NAME",
        "The family of the files: robomimic, mimicgen, robosuite, libero, isaaclab, aloha, "
        "maniskill, d4rl, minari, lerobot; or plain arrays. (default: recognised)",
    ),
]
FilterKey = Annotated[
    str | None,
    _source_option("--filter-key", "NAME", "Only the trajectories listed in /mask/NAME."),
]


_mode_option = _panel("What is computed")

Mode = Annotated[
    ModeName | None,
    _mode_option(
        "--mode",
        "MODE",
        "acceleration (acc) | jerk | velocity | clique (position) | central | bspline | "
        "teleport. (default: what the file says, else acceleration)",
    ),
]
Scheme = Annotated[
    Literal["euler", "zoh", "foh"] | None,
    _mode_option(
        "--scheme",
        "SCHEME",
        "How sums treat the action between rows: euler|zoh|foh. (default: euler)",
    ),
]
Ends = Annotated[
    Literal["plan", "recording", "goal"] | None,
    _mode_option("--ends", "ENDS", "central, bspline: plan|recording|goal. (default: plan)"),
]
Degree = Annotated[int | None, _mode_option("--degree", "N", "bspline: 3, 4 or 5. (default: 3)")]
Steps = Annotated[
    int | None, _mode_option("--steps", "N", "bspline: rows per knot interval. (default: 1)")
]
Frames = Annotated[
    Literal["full", "actions", "curobo"] | None,
    _mode_option(
        "--frames", "FRAMES", "full (rows 0..H) | actions (1..H) | curobo (0..H-1). (default: full)"
    ),
]
Convention = Annotated[
    Literal["standard", "curobo"] | None,
    _mode_option(
        "--convention", "NAME", "standard, or curobo: match cuRobo 0.7. (default: standard)"
    ),
]
Horizon = Annotated[
    int, _mode_option("--horizon", "H", "Actions per trajectory.", show_default=False)
]


ToRate = Annotated[
    float, _mode_option("--to", "HZ", "Rows per second to write.", show_default=False)
]
Method = Annotated[
    Literal["hold", "linear", "ramp-and-hold", "cubic", "bspline"],
    _mode_option("--method", "NAME", "hold | linear | ramp-and-hold | cubic | bspline."),
]
Hold = Annotated[
    float, _mode_option("--hold", "SHARE", "ramp-and-hold: share of the step that is held.")
]
SplineDegree = Annotated[int, _mode_option("--degree", "N", "bspline: 3, 4 or 5.")]
Limits = Annotated[
    Path,
    _mode_option(
        "--limits",
        "FILE",
        "A table per quantity, as in sample_data/limits.toml.",
        show_default=False,
        callback=_expanded,
    ),
]
SlowerOnly = Annotated[bool, _mode_option("--slower-only", "", "Never make a trajectory faster.")]


_step_option = _panel("Time steps")

Dt = Annotated[
    str | None,
    _step_option(
        "--dt", "DT", "SECONDS, FILE:DATASET or FILE:DATASET@ATTR. (default: what the file says)"
    ),
]
Rate = Annotated[float | None, _step_option("--rate", "HZ", "Steps per second.")]
Times = Annotated[
    str | None, _step_option("--times", "FILE:DATASET", "Time stamps of the rows, in seconds.")
]
RepeatedTimes = Annotated[
    Literal["error", "drop"],
    _step_option(
        "--repeated-times", "WHAT", "Rows whose stamp repeats the one before: error | drop."
    ),
]


_recording_option = _panel("Recordings")

MaxGap = Annotated[
    float | None,
    _recording_option(
        "--max-gap",
        "SECONDS",
        "Split where stamps are further apart; each piece is a trajectory of its own.",
    ),
]
WrapDofs = Annotated[
    str | None,
    _recording_option("--wrap-dofs", "LIST", "Angles that wrap, like 3,5: made continuous first."),
]


_state_option = _panel("Start and goal state")

Start = Annotated[
    str | None,
    _state_option(
        "--start",
        "START",
        "zero | first (a recording) | NUMBERS | FILE[:GROUP] | FILE:DATASET. (default: in SOURCE)",
    ),
]
FirstOrNone = Annotated[
    str | None, _state_option("--start", "first", "The actions are a recording.")
]
Goal = Annotated[
    str | None,
    _state_option(
        "--goal", "GOAL", "zero | FILE:GROUP | FILE:DATASET, for --ends goal. (default: in SOURCE)"
    ),
]
StartIndex = Annotated[
    str | None,
    _state_option("--start-index", "FILE:DATASET", "[B]: which start state each trajectory uses."),
]
GoalIndex = Annotated[
    str | None,
    _state_option("--goal-index", "FILE:DATASET", "[B]: which goal state each trajectory uses."),
]


_gradient_option = _panel("Gradients, written under grad/")

Grad = Annotated[
    str | None,
    _gradient_option(
        "--grad",
        "FILE[:GROUP]",
        "Upstream gradients [B, T, D], named like the outputs; any of them.",
    ),
]
Cost = Annotated[
    str | None,
    _gradient_option(
        "--cost",
        "EXPRESSION",
        "Instead: the gradient of a weighted sum of squares, like velocity+0.1*jerk.",
    ),
]
GradFactor = Annotated[
    float | None, _gradient_option("--grad-factor", "F", "Multiply all gradients. (default: 1)")
]
Wrt = Annotated[
    str | None,
    _gradient_option("--wrt", "NAMES", "Any of actions,start,goal,dt. (default: all there are)"),
]

_output_option = _panel("Output")

Write = Annotated[
    str, _output_option("--write", "NAMES", "Any of position,velocity,acceleration,jerk.")
]
Dtype = Annotated[
    Literal["float32", "float64"] | None,
    _output_option("--dtype", "TYPE", "float32 | float64. (default: the input's)"),
]
Units = Annotated[
    str | None,
    _output_option(
        "--units", "UNIT", "Unit of the positions, like rad or m. (default: the input's)"
    ),
]
Sparse = Annotated[
    bool,
    _output_option(
        "--sparse", "", "Compressed rows as SciPy keeps them: A_data, A_indices, A_indptr, A_shape."
    ),
]
Pack = Annotated[
    bool,
    _output_option(
        "--pack",
        "",
        "Trajectories of different length in one array, padded with NaN, and their lengths."
        " (default: a group for each, as in the input)",
    ),
]
Overwrite = Annotated[bool, _output_option("--overwrite", "", "Replace OUT if it is there.")]
Compress = Annotated[
    int | None,
    _output_option("--compress", "LEVEL", "Shuffle and deflate OUT.h5, level 1 to 9 (4 is usual)."),
]
Resume = Annotated[
    bool,
    _output_option(
        "--resume", "", "Go on where the same command was stopped; from the start if it was not."
    ),
]
Durable = Annotated[
    bool, _output_option("--durable", "", "Sync OUT to the disk before it appears.")
]


_run_option = _panel("How it runs")

Device = Annotated[str, _run_option("--device", "DEVICE", "auto|cpu|cuda|cuda:N.")]
Backend = Annotated[
    Literal["auto", "native", "triton", "torch"],
    _run_option("--backend", "NAME", "auto|native|triton|torch."),
]
Memory = Annotated[
    str, _run_option("--memory", "SIZE", "Bound on working memory, beyond the libraries.")
]
AllowNonfinite = Annotated[
    bool, _run_option("--allow-nonfinite", "", "Compute with NaN and Inf in the input.")
]
AllowExternal = Annotated[
    bool,
    _run_option(
        "--allow-external", "", "Follow HDF5 links, storage and virtual datasets out of the file."
    ),
]
Untrusted = Annotated[
    bool,
    _run_option("--untrusted", "", "Read files in a child process with limits on time and memory."),
]
DryRun = Annotated[bool, _run_option("--dry-run", "", "Say what would be done, and stop.")]
Shard = Annotated[
    str | None,
    _run_option(
        "--shard",
        "I/N",
        "Shard I of N, from 0 on, into OUT.parts; trajcli status and merge go on from "
        "there. auto or auto/N: as torchrun, a Slurm array, srun or mpirun number this "
        "process.",
    ),
]

_look_option = _panel("What is looked at")

_WHICH = "Trajectories: 3, 0:10, 2,5,-1 or all."

Index = Annotated[str | None, _look_option("--index", "WHICH", f"{_WHICH} (default: all)")]
InspectIndex = Annotated[
    str | None, _look_option("--index", "WHICH", f"{_WHICH} (default: all; --rows: the first)")
]
PlotIndex = Annotated[
    str | None, _look_option("--index", "WHICH", f"{_WHICH} (default: the first; --histogram: all)")
]
Dof = Annotated[
    str | None, _look_option("--dof", "WHICH", "Dofs, by number or name: 2,5. (default: all)")
]
Rows = Annotated[
    str | None,
    _look_option("--rows", "[WHICH]", "List rows, number by number: all, or 17, or 0:10."),
]
LimitsFile = Annotated[
    Path | None,
    _look_option(
        "--limits",
        "FILE",
        "Limits of the joints: .toml as in sample_data, or a URDF.",
        callback=_expanded,
    ),
]
Full = Annotated[
    bool, _look_option("--full", "", "Look at all values of a large file, not at a sample.")
]
Divided = Annotated[Path, _argument("OUT", "OUT of the run, or OUT.parts.")]
Virtual = Annotated[
    bool,
    _output_option(
        "--virtual",
        "",
        "OUT.h5 refers to the values in the parts, unchecked; they must stay beside it, and"
        " one that is gone reads as NaN.",
    ),
]
FirstSource = Annotated[str, _argument("A", "FILE[:DATASET or :GROUP].", datasets=True)]
SecondSource = Annotated[str, _argument("B", "The other one.", datasets=True)]
Figure = Annotated[Path, _out("FIG", "FIG.png, FIG.svg or FIG.pdf.")]
OneSource = Annotated[
    str, _argument("SOURCE", "FILE[:DATASET or :GROUP]. .h5, .npy, .npz.", datasets=True)
]
Export = Annotated[Path, _out("OUT", "OUT.csv, .parquet, .rrd, .npz, .npy or .h5.")]
ExportRows = Annotated[
    str | None, _look_option("--rows", "WHICH", "A run of rows: 0:10. (default: all)")
]
Histogram = Annotated[
    bool, _look_option("--histogram", "", "The peaks of all trajectories, as a histogram.")
]
Title = Annotated[
    str | None,
    _output_option(
        "--title", "TEXT", "Above the figure; '' for none. (default: files and trajectories)"
    ),
]
_tolerance_option = _panel("What is allowed")
Rtol = Annotated[float, _tolerance_option("--rtol", "R", "Apart by R times the larger of the two.")]
Atol = Annotated[float, _tolerance_option("--atol", "A", "Apart by A, beside --rtol.")]
Ulp = Annotated[float, _tolerance_option("--ulp", "N", "Or apart by N units in the last place.")]
Json = Annotated[bool, _option("--json", "", "One JSON document on stdout; text on stderr.")]
Quiet = Annotated[bool, _option("--quiet", "", "Only warnings and errors.", short="-q")]

# inspect and check
Verbose = Annotated[
    bool, _look_option("--verbose", "", "List every trajectory that fails or differs.", short="-v")
]
Recompute = Annotated[
    bool,
    _look_option(
        "--recompute",
        "",
        "Is it what its recorded command gives, to the bit? The sources must be where they were.",
    ),
]
VelocityOf = Annotated[
    str | None,
    _look_option(
        "--velocity-of",
        "DATASET",
        "Is SOURCE the derivative of these positions, of the same file or of FILE:DATASET?",
    ),
]

# integrate
Dofs = Annotated[
    str | None,
    _source_option("--dofs", "WHICH", "Only these: 0:7, or 0,2,5, or names. (default: all)"),
]
Joints = Annotated[
    str | None, _source_option("--joints", "NAMES", "What the dofs are called, in their order.")
]
SkipBad = Annotated[
    bool,
    _source_option(
        "--skip-bad", "", "Leave out what cannot be integrated, list it, and exit with 1."
    ),
]
