"""The command line as a whole; of a command line that names a command, only that one is loaded."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from inspect import getdoc
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

COMMANDS = ("integrate", "differentiate", "status", "merge", "inspect", "plot", "check", "score",
            "diff", "export", "resample", "retime", "fit", "modes", "info")  # fmt: skip
"""In the order of the help. Each is a function in a module of its name, with an EXAMPLE."""

_EXAMPLES = """
Actions, a recording, and what came out, on files in sample_data:

    trajcli integrate sample_data/reach.h5 --mode jerk --scheme zoh -o out.h5
    trajcli differentiate sample_data/recorded.h5 -o recorded.h5
    trajcli inspect out.h5

Robot data, here the joint positions in all demonstrations of a robomimic file:

    trajcli differentiate demo.hdf5:obs/robot0_joint_pos -o demo.h5
"""


class _PlainHelp:
    """Help as headings and two columns, without Rich, which takes longer to load than the rest."""

    def format_options(self: Any, ctx: Any, formatter: Any) -> None:
        """Writes the arguments and the options under the headings of cli/options.py."""
        if isinstance(self, TyperGroup):
            self.format_commands(ctx, formatter)
        panels: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            title = "Arguments" if parameter.param_type_name == "argument" else self.last_heading
            title = getattr(parameter, "rich_help_panel", None) or title
            panels.setdefault(title, []).append(parameter.get_help_record(ctx))
        for title, records in panels.items():
            with formatter.section(title):
                formatter.write_dl(records)

    def format_epilog(self: Any, ctx: Any, formatter: Any) -> None:
        """Writes the examples as they are, so that they can be copied."""
        formatter.write(f"\n{self.epilog.strip()}\n")

    def collect_usage_pieces(self: Any, ctx: Any) -> list[str]:
        """Returns the usage, with the options that a command cannot do without."""
        required = (p for p in self.params if p.required and p.param_type_name == "option")
        options = [f"{min(option.opts, key=len)} {option.metavar}" for option in required]
        pieces = super().collect_usage_pieces(ctx)  # type: ignore[misc]
        return [*(piece.strip("{}") for piece in pieces), *options]


class _Command(_PlainHelp, TyperCommand):
    last_heading = "How it runs"


class _Group(_PlainHelp, TyperGroup):
    last_heading = "Options"


@cache
def command_line(first: str = "") -> Any:
    """Returns the command line of arguments that begin with this word, or of all commands."""
    app = typer.Typer(
        name="trajcli",
        cls=_Group,
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        epilog=_EXAMPLES,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_app)
    settings = {"auto_envvar_prefix": "TRAJCLI"}  # --dry-run is TRAJCLI_DRY_RUN
    for name in [first] if first in COMMANDS else COMMANDS:
        module = import_module(f"trajcli.cli.{name}")
        command = getattr(module, name)
        paragraphs = str(getdoc(command)).split("\n\n")
        app.command(
            name,
            cls=_Command,
            help="\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs),
            short_help=paragraphs[0],
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
    """Compute position, velocity, acceleration and jerk of robot trajectories: integrate batches
    of actions from a start state, differentiate recordings, and look at the results.
    """
