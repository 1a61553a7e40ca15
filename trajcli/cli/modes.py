"""trajcli modes: explains what can be computed."""

from __future__ import annotations

from trajcli.cli import options
from trajcli.cli.console import Console
from trajcli.mode_options import MODE_TABLE

EXAMPLE = """
Example:

    trajcli modes --json
"""


@options.command()
def modes(console: Console) -> None:
    """Explain the modes: formula, input, rows and options."""
    # the table imports no classes of modes, and no NumPy with them
    document = []
    for name, entry in MODE_TABLE.items():
        names = [option.name for option in entry.options]
        document.append(
            {"name": name, "aliases": entry.aliases, **entry._asdict(), "options": names}
        )
        console.say(
            " = ".join([name, *entry.aliases]),
            f"    {entry.formula}",
            f"    needs    {entry.needs}",
            f"    rows     {entry.rows} per trajectory of H actions",
            f"    options  {', '.join(f'--{option}' for option in names)}",
        )
    console.write_document({"modes": document})
