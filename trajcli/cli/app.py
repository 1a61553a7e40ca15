"""The commands, put together; of a command line that names one, only that one is loaded."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Annotated

import typer

COMMANDS = (
    "integrate",
    "status",
    "merge",
    "inspect",
    "plot",
    "check",
    "diff",
    "export",
    "resample",
    "retime",
    "operator",
    "modes",
    "info",
)
"""Modules of trajcli.cli with a function ``register``, in the order of the help."""


def make_app(arguments: Sequence[str] = ()) -> typer.Typer:
    """The command line that can run these arguments; without any, all commands."""
    app = typer.Typer(
        name="trajcli",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_app)
    named = [name for name in COMMANDS if name in arguments[:1]]
    for name in named or COMMANDS:
        import_module(f"trajcli.cli.{name}").register(app)
    return app


def _print_version(asked: bool) -> None:
    if asked:
        from trajcli import __version__

        print(f"trajcli {__version__}")
        raise typer.Exit


def _app(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version."
        ),
    ] = False,
) -> None:
    """Integrate batches of action sequences into trajectories: position, velocity,
    acceleration and jerk.
    """
