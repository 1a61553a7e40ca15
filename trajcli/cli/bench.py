"""trajcli bench: what this machine can do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import typer

from trajcli.cli import options, parsing
from trajcli.cli.console import Console, bytes_text
from trajcli.errors import Fault, UsageError

EXAMPLE = """
Example, in a few seconds:

    trajcli bench --elements 1000000 --dofs 7 --rounds 3
"""


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("bench", epilog=EXAMPLE)(bench)


def bench(
    elements: options.Elements = 10_000_000,
    dofs: options.Dofs = "1,7",
    modes: options.BenchModes = "clique,acceleration,jerk,central,bspline",
    rounds: options.Rounds = 5,
    folder: options.Folder = Path("."),
    config: options.Config = None,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Measure copies, every mode and backend beside them, and a file to a file.

    The column "copies" is the time over that of copying the actions to four arrays.

    The file is written in a temporary folder below --folder and removed.
    """
    from trajcli.jobs.bench import bench as measure

    console = Console(json, quiet)
    names = parsing.split_names(modes)
    report = measure(elements, _whole(dofs), names, rounds, folder, console.note)
    _say(console, report)
    console.document(report)


def _say(console: Console, report: dict[str, Any]) -> None:
    console.say(
        f"plain copies: {report['copy_gb_per_s']:.1f} GB/s read and written, "
        f"{report['threads']} threads, {report['elements']} float32 actions"
    )
    on_device = [r["copy_gb_per_s"] for r in report["kernels"] if r["device"] != "cpu"]
    if on_device:
        console.say(f"on the CUDA device: {max(on_device):.0f} GB/s read and written by copies")
    rows = [
        (
            row["mode"],
            str(row["dofs"]),
            row["backend"] if row["device"] == "cpu" else f"{row['backend']}, {row['device']}",
            row["direction"],
            f"{row['ns_per_element']:.2f}",
            f"{row['copies']:.2f}",
            f"{row['of_copy']:.0%}",
        )
        for row in report["kernels"]
    ]
    columns = [("mode", "left"), ("dofs", "right"), ("backend", "left"), ("direction", "left")]
    figures = [("ns/element", "right"), ("copies", "right"), ("of copy", "right")]
    console.table([*columns, *figures], rows)
    file = report["file"]
    console.say(
        f"file to file, mode acceleration: {bytes_text(file['bytes_written'])} in "
        f"{file['seconds']:.2f} s, {file['copies']:.2f} times a copy of the output"
    )
    for backend, why in report["backends_absent"].items():
        console.say(f"backend {backend} is absent: {why}")


def _whole(text: str) -> list[int]:
    try:
        return [int(part) for part in parsing.split_names(text)]
    except ValueError:
        raise UsageError(Fault("not whole numbers", "--dofs", "like 1,7", repr(text))) from None
