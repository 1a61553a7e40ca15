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
    json_schema: options.JsonSchema = False,
    quiet: options.Quiet = False,
) -> None:
    """List the modes: formula, what each needs, rows it gives, options it takes."""
    from trajcli.modes import ALIASES, MODES

    console = Console(json, quiet)
    table = []
    for name, mode in MODES.items():
        aliases = [alias for alias, target in ALIASES.items() if target == name]
        table.append(
            {
                "name": name,
                "aliases": aliases,
                "formula": mode.formula,
                "needs": mode.needs,
                "rows": mode.gives,
                "options": list(mode.option_names()),
            }
        )
    for row in table:
        names = " = ".join([str(row["name"]), *row["aliases"]])
        console.say(names)
        console.say(f"    {row['formula']}")
        console.say(f"    needs    {row['needs']}")
        console.say(f"    rows     {row['rows']} per trajectory of H actions")
        console.say(f"    options  {', '.join(f'--{option}' for option in row['options'])}")
    console.document({"modes": table})
