"""trajcli modes: what can be computed."""

from __future__ import annotations

from trajcli.cli import options
from trajcli.cli.console import Console

EXAMPLE = """
Example:

    trajcli modes --json
"""


def modes(
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """List the modes: formula, what each needs, rows it gives, options it takes."""
    from trajcli.modes import ALIASES, MODES

    console = Console(json, quiet)
    table = []
    for name, mode in MODES.items():
        aliases = [alias for alias, target in ALIASES.items() if target == name]
        row = {"formula": mode.formula, "needs": mode.needs, "rows": mode.gives}
        names = list(mode.option_names())
        table.append({"name": name, "aliases": aliases, **row, "options": names})
        console.say(
            " = ".join([name, *aliases]),
            f"    {mode.formula}",
            f"    needs    {mode.needs}",
            f"    rows     {mode.gives} per trajectory of H actions",
            f"    options  {', '.join(f'--{option}' for option in names)}",
        )
    console.document({"modes": table})
