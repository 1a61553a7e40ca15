"""trajcli inspect: what is in a file."""

from __future__ import annotations

from typing import Any

import typer

from trajcli.cli import options
from trajcli.cli.console import Console, bytes_text

EXAMPLE = """
Example, on a file in sample_data:

    trajcli inspect sample_data/reach.h5
"""

_PEAK_OF = {"velocity": "peak |v|", "acceleration": "peak |a|", "jerk": "peak |j|"}


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("inspect", epilog=EXAMPLE)(inspect)


def inspect(
    source: options.Sources,
    allow_external: options.AllowExternal = False,
    untrusted: options.Untrusted = False,
    config: options.Config = None,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Show what is in a file: datasets, shapes, types, ranges and peaks per dof, NaN and Inf."""
    from trajcli.files.source import expand_files, parse_source
    from trajcli.views.summary import summarise

    console = Console(json, quiet)
    reports = []
    for text in source:
        for found in expand_files(parse_source(text)):
            report = summarise(found, allow_external, untrusted)
            _show(console, report)
            reports.append(report)
    console.document(reports[0] if len(reports) == 1 else {"files": reports})


def _show(console: Console, report: dict[str, Any]) -> None:
    console.say(f"{report['file']}: {report['family']}, {bytes_text(report['bytes'])}")
    if report["attributes"]:
        told = ", ".join(f"{name} = {value}" for name, value in report["attributes"].items())
        console.say(f"  {told}")
    rows = [_dataset_row(dataset) for dataset in report["datasets"]]
    headings = ("dataset", "shape", "type", "stored", "unit", "min", "max", "NaN", "Inf")
    sides = ("left", "left", "left", "left", "left", "right", "right", "right", "right")
    console.table(list(zip(headings, sides, strict=True)), rows)
    for dataset in report["datasets"]:
        if "unreadable" in dataset:
            console.say(f"{dataset['unreadable']}")
    _show_dofs(console, report)


def _dataset_row(dataset: dict[str, Any]) -> list[str]:
    if "unreadable" in dataset:
        return [dataset["name"], "not read", *[""] * 7]
    shape = "×".join(str(n) for n in dataset["shape"]) or "one number"
    return [
        dataset["name"],
        shape,
        dataset["dtype"],
        dataset["storage"],
        dataset["units"] or "",
        _number(dataset.get("min"), 4),
        _number(dataset.get("max"), 4),
        str(dataset.get("nan", "")),
        str(dataset.get("inf", "")),
    ]


def _show_dofs(console: Console, report: dict[str, Any]) -> None:
    """One table for position … jerk together, one for each other array of dofs."""
    having = {d["name"]: d["per_dof"] for d in report["datasets"] if d.get("per_dof")}
    together = [name for name in ("position", *_PEAK_OF) if name in having]
    if len({len(having[name]) for name in together}) == 1 and len(together) > 1:
        _show_together(console, report["joint_names"], {name: having[name] for name in together})
        having = {name: dofs for name, dofs in having.items() if name not in together}
    for name, dofs in having.items():
        if len(dofs) > 64:
            continue
        headings = [("dof", "left"), ("min", "right"), ("max", "right"), ("peak", "right")]
        rows = [
            [_dof(report["joint_names"], i, len(dofs)), *(_number(dof[k]) for k in dof)]
            for i, dof in enumerate(dofs)
        ]
        console.table(headings, rows, title=name)


def _show_together(
    console: Console, names: list[str] | None, having: dict[str, list[dict[str, Any]]]
) -> None:
    headings = [("dof", "left")]
    if "position" in having:
        headings += [("position min", "right"), ("max", "right")]
    headings += [(_PEAK_OF[name], "right") for name in having if name != "position"]
    count = len(next(iter(having.values())))
    rows = []
    for i in range(count):
        row = [_dof(names, i, count)]
        for name, dofs in having.items():
            keys = ("min", "max") if name == "position" else ("peak",)
            row += [_number(dofs[i][key]) for key in keys]
        rows.append(row)
    console.table(headings, rows)


def _dof(names: list[str] | None, index: int, count: int) -> str:
    return names[index] if names and len(names) == count else str(index)


def _number(value: float | None, digits: int = 6) -> str:
    return "" if value is None else f"{value:.{digits}g}"
