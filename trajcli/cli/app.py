"""The commands, put together; of a command line that names one, only that one is loaded."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from inspect import getdoc
from typing import Annotated, Any

import typer
from typer.main import get_command

COMMANDS = ("integrate", "differentiate", "status", "merge", "inspect", "plot", "check", "score",
            "diff", "export", "resample", "retime", "fit", "modes", "info")  # fmt: skip
"""In the order of the help. Each is a function of a module of its name, with an EXAMPLE."""


@cache
def command_line(first: str = "") -> Any:
    """The command line of arguments that begin with this word; all commands if it is none."""
    app = typer.Typer(
        name="trajcli",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_app)
    settings = {"auto_envvar_prefix": "TRAJCLI"}  # --dry-run is TRAJCLI_DRY_RUN
    for name in [first] if first in COMMANDS else COMMANDS:
        module = import_module(f"trajcli.cli.{name}")
        command = getattr(module, name)
        paragraphs = getdoc(command).split("\n\n")  # type: ignore[union-attr]
        app.command(
            name,
            help="\n\n".join(" ".join(one.split()) for one in paragraphs),
            epilog=module.EXAMPLE,
            context_settings=settings,
        )(command)
    return get_command(app)


def _print_version(wanted: bool) -> None:
    if wanted:
        from trajcli import __version__

        print(f"trajcli {__version__}")
        raise typer.Exit


_VERSION = typer.Option("--version", callback=_print_version, is_eager=True,
                        help="Print the version.")  # fmt: skip


def _app(version: Annotated[bool, _VERSION] = False) -> None:
    """Integrate batches of action sequences into trajectories: position, velocity,
    acceleration and jerk.
    """
