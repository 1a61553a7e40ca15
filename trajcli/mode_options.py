"""The one table of modes and their options: names, choices, defaults and explanations.

The commands' options, their help, the list of modes, the checks of ``make_mode`` and the files that
state a mode all read it. It imports no NumPy, so that help and completion start fast.
"""

from __future__ import annotations

from typing import Any, NamedTuple, get_args

from trajcli.names import (
    AlignmentName,
    ConventionName,
    EndsName,
    MethodName,
    ModeName,
    SchemeName,
)


class Option(NamedTuple):
    """An option of a mode, under one name in Python, on the command line and in files.

    Attributes:
        type: of a value on the command line: int, float, bool, str, or a literal of the choices.
        metavar: stands for the value in the help; "" of a switch.
        help: a sentence for the help of a command, which adds the default.
        default: the value where none is given; None: the mode decides.
        default_words: the default in the words of the help, where it is not one value.
        numbers: the integers that it accepts; empty: any from 1 on.
        internal: more values that files and the library, but no commands, have.
    """

    name: str
    type: Any
    metavar: str
    help: str
    default: Any = None
    default_words: str = ""
    numbers: tuple[int, ...] = ()
    internal: tuple[str, ...] = ()

    @property
    def choices(self) -> tuple[Any, ...]:
        """The values that it accepts; empty where these cannot be listed."""
        return (*get_args(self.type), *self.numbers, *self.internal)


class ModeEntry(NamedTuple):
    """What a mode computes, for people: the formula, what it needs and how many rows it has."""

    formula: str
    needs: str
    rows: str
    options: tuple[Option, ...]
    aliases: tuple[str, ...] = ()


MODE = Option(
    "mode", ModeName, "MODE",
    "What the actions are: acceleration (acc), jerk, velocity, clique (position), central, bspline "
    "or teleport.",
    "acceleration", "what the file states, else acceleration",
)  # fmt: skip
METHOD = Option(
    "method", MethodName, "NAME",
    "smooth (a spline that chooses its cutoff), savgol (local polynomials), central (five-point) "
    "or backward differences.",
    default_words="savgol with --window, --degree or rotations, else smooth",
)  # fmt: skip

# Integration: what the actions mean, and which rows are written.
SCHEME = Option(
    "scheme", SchemeName, "SCHEME",
    "How an action acts over its step: euler, zoh (constant) or foh (linear from row to row).",
    "euler",
)  # fmt: skip
# recording is what central has for recordings: no command offers it, but files state it.
ENDS = Option(
    "ends", EndsName, "ENDS",
    "End of central and bspline: plan (the last action) or goal (the goal state).",
    "plan", internal=("recording",),
)  # fmt: skip
DEGREE = Option("degree", int, "N", "Degree of the B-spline: 3, 4 or 5.", 3, numbers=(3, 4, 5))
STEPS = Option("steps", int, "N", "Rows per knot interval of the B-spline.", 1)
ALIGNMENT = Option(
    "alignment", AlignmentName, "ROWS",
    "Rows to write: full (0..H), actions (1..H) or curobo (0..H-1).",
    "full",
)  # fmt: skip
CONVENTION = Option(
    "convention", ConventionName, "NAME", "standard, or curobo to match cuRobo 0.7.", "standard"
)
CURVE = (SCHEME, ENDS, DEGREE, STEPS)
"""Options that say which curve the actions stand for."""
INTEGRATION = (*CURVE, ALIGNMENT, CONVENTION)
"""The options of all modes that have a start state, in the order of help and reports."""

# Differentiation: how a recording is smoothed.
WINDOW = Option(
    "window", str, "ROWS|SECONDS",
    "Window of savgol around each row: an odd number of rows, or seconds like 0.2s.",
    "0.3s",
)  # fmt: skip
FIT_DEGREE = Option(
    "degree", int, "N", "Degree of savgol's polynomials: 2 to 5.", 4, numbers=(2, 3, 4, 5)
)
# A text on the command line, where one number for each dof is separated by commas.
BANDLIMIT = Option(
    "bandlimit", str, "HZ", "Cutoff of smooth, for all dofs (2.5) or each (2.5,4).",
    default_words="by cross-validation",
)  # fmt: skip
NOISE = Option(
    "noise", float, "SIGMA",
    "Choose the cutoff so that residuals have this standard deviation, in the unit of positions.",
)  # fmt: skip
ROBUST = Option("robust", bool, "", "Give outliers less weight in smooth.", False)
ORDER = Option("order", int, "N", "Derivative smooth penalises: 3 or 4.", 3, numbers=(3, 4))
DIFFERENTIATION = (WINDOW, FIT_DEGREE, BANDLIMIT, NOISE, ROBUST, ORDER)
"""The options of all methods of differentiation, in the order of the help."""

ANY_PACE = frozenset({"mode", "absolute", "method", *(x.name for x in (*INTEGRATION, ORDER))})
"""What says which curve a trajectory is, and still holds when it is retimed."""

# The entries, in the order in which `trajcli modes` explains them.
_START = "start position; velocity, acceleration and jerk are zero unless given"
_CASCADE = (ALIGNMENT, SCHEME, CONVENTION)
MODE_TABLE = {
    "clique": ModeEntry(
        "p = u, v_t = (p_t − p_{t−1})/dt, a = Δv/dt, j = Δa/dt",
        _START, "H + 1", _CASCADE, ("position",),
    ),
    "velocity": ModeEntry(
        "v = u, p_t = p_{t−1} + dt·v_t, a = Δv/dt, j = Δa/dt", _START, "H + 1", _CASCADE
    ),
    "acceleration": ModeEntry(
        "a = u, v_t = v_{t−1} + dt·a_t, p_t = p_{t−1} + dt·v_t, j = Δa/dt",
        _START, "H + 1", _CASCADE, ("acc",),
    ),
    "jerk": ModeEntry(
        "j = u, a, v, p by running sums: x_t = x_{t−1} + dt·x'_t", _START, "H + 1", _CASCADE
    ),
    "central": ModeEntry(
        "p = u; v, a, j from the five-point stencil on p_{t−2} … p_{t+2}",
        "start position (recording: none, five rows)",
        "H + 1 (recording: H; curobo: H + 4)",
        (ALIGNMENT, ENDS, CONVENTION),
    ),
    "savgol": ModeEntry(
        "p, v, a, j of the polynomial that fits the window rows around t best",
        "a recording (trajcli differentiate) of window rows; in seconds: degree + 1",
        "H",
        (WINDOW, FIT_DEGREE),
    ),
    "smooth": ModeEntry(
        "p, v, a, j of the curve x with the least Σ w·(x − p)² + λ·∫(x‴)² (order 3)",
        "a recording (trajcli differentiate) of at least order + 1 rows",
        "H",
        (ORDER, BANDLIMIT, NOISE, ROBUST),
    ),
    "bspline": ModeEntry(
        "p(t) = Σ N_i(t) u_i, uniform B-spline of degree 3, 4 or 5; v, a, j its derivatives",
        "start position; dt per trajectory; goal state with --ends goal",
        "(H + degree + 1)·steps + 1",
        (DEGREE, STEPS, ENDS, CONVENTION),
    ),
    "teleport": ModeEntry(
        "p = u, v = a = j = 0",
        "start position (recording: none)",
        "H + 1 (recording: H)",
        (ALIGNMENT,),
    ),
}  # fmt: skip
# A class of modes has the options of its entry as fields, in this order: a test compares them.
ALIASES = {alias: name for name, entry in MODE_TABLE.items() for alias in entry.aliases}
METHODS = {"smooth": "smooth", "savgol": "savgol", "central": "central", "backward": "clique"}
"""The mode of each method of differentiation."""
