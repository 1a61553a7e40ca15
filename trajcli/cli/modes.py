"""trajcli modes: explains what can be computed."""

from __future__ import annotations

from trajcli.cli import options
from trajcli.cli.console import Console

EXAMPLE = """
Example:

    trajcli modes --json
"""

# fmt: off
_START = "start position; velocity, acceleration and jerk are zero unless given"
_CASCADE = "alignment scheme convention"
# Formula, needs, rows and options of each mode, by name and aliases. They stand here so that the
# command need not import the classes in trajcli/modes, and NumPy with them.
_MODES = {
    "clique position": ("p = u, v_t = (p_t − p_{t−1})/dt, a = Δv/dt, j = Δa/dt",
                        _START, "H + 1", _CASCADE),
    "velocity": ("v = u, p_t = p_{t−1} + dt·v_t, a = Δv/dt, j = Δa/dt",
                 _START, "H + 1", _CASCADE),
    "acceleration acc": ("a = u, v_t = v_{t−1} + dt·a_t, p_t = p_{t−1} + dt·v_t, j = Δa/dt",
                         _START, "H + 1", _CASCADE),
    "jerk": ("j = u, a, v, p by running sums: x_t = x_{t−1} + dt·x'_t",
             _START, "H + 1", _CASCADE),
    "central": ("p = u; v, a, j from the five-point stencil on p_{t−2} … p_{t+2}",
                "start position (recording: none, five rows)",
                "H + 1 (recording: H; curobo: H + 4)", "alignment ends convention"),
    "savgol": ("p, v, a, j of the polynomial that fits the window rows around t best",
               "a recording (trajcli differentiate) of window rows; in seconds: degree + 1",
               "H", "window degree"),
    "smooth": ("p, v, a, j of the curve x with the least Σ w·(x − p)² + λ·∫(x‴)² (order 3)",
               "a recording (trajcli differentiate) of at least order + 1 rows",
               "H", "order bandlimit noise robust"),
    "bspline": ("p(t) = Σ N_i(t) u_i, uniform B-spline of degree 3, 4 or 5; v, a, j its "
                "derivatives",
                "start position; dt per trajectory; goal state with --ends goal",
                "(H + degree + 1)·steps + 1", "degree steps ends convention"),
    "teleport": ("p = u, v = a = j = 0",
                 "start position (recording: none)", "H + 1 (recording: H)", "alignment"),
}
# fmt: on


@options.command()
def modes(console: Console) -> None:
    """Explain the modes: formula, input, rows and options."""
    table = []
    for names, (formula, needs, rows, taken) in _MODES.items():
        name, *aliases = names.split()
        row = {"formula": formula, "needs": needs, "rows": rows, "options": taken.split()}
        table.append({"name": name, "aliases": aliases, **row})
        console.say(
            " = ".join([name, *aliases]),
            f"    {formula}",
            f"    needs    {needs}",
            f"    rows     {rows} per trajectory of H actions",
            f"    options  {', '.join(f'--{option}' for option in row['options'])}",
        )
    console.write_document({"modes": table})
