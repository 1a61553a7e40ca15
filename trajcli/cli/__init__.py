"""Runs the command line: parses the arguments, runs one command, and reports its errors.

Only the command that is named is imported, and typer only once signals are answered.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import os
import sys
import warnings
from functools import cache
from importlib import import_module

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any, NoReturn

    from trajcli.errors import Fault, TrajcliError

COMMANDS = ("integrate", "differentiate", "status", "merge", "inspect", "plot", "check", "score",
            "diff", "export", "resample", "retime", "fit", "modes", "info")  # fmt: skip
"""Commands in the order of the help: functions in modules of their names, with an EXAMPLE."""
# Commands that write a file, which a signal may leave unfinished; score does with --csv.
_WRITING = ("integrate", "differentiate", "merge", "plot", "export", "resample", "retime", "fit")
# Objects between two garbage collections while modules load. They leave no garbage, so that
# collections would only take time.
_LOADING_THRESHOLD = 100_000
_EXAMPLES = """
Integrate actions, differentiate a recording and inspect the result, in sample_data:

    trajcli integrate sample_data/reach.h5 --mode jerk -o out.h5
    trajcli differentiate sample_data/recorded.h5 -o recorded.h5
    trajcli inspect out.h5

Differentiate the joint positions of all demonstrations in a robomimic file:

    trajcli differentiate demo.hdf5:obs/robot0_joint_pos -o demo.h5
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command line and returns its exit code.

    Every error becomes one message on stderr, and with --json also a document on stdout. A
    traceback appears only with TRAJCLI_DEBUG=1.

    Parameters:
        arguments: the words after ``trajcli``; None takes those of the process.

    Returns:
        0: done, 1: the data failed, 2: wrong usage or input, 70: a bug, 75: stopped by a signal or
        by another run of the same output, 130: Ctrl-C in a command that writes nothing.
    """
    from trajcli.system import Interrupt

    words = list(sys.argv[1:] if arguments is None else arguments)
    try:
        return _run(words)
    except Interrupt as signal:
        return _fail(_interrupted(str(signal), words), words)


def _run(words: list[str]) -> int:
    """Runs a command line and returns its exit code; a signal raises Interrupt."""
    import logging
    from dataclasses import replace

    from typer import Abort

    from trajcli.errors import OutputError, Stopped, TrajcliError, UsageError
    from trajcli.system import pending_signal

    # every value that is not finite is reported with its place, so NumPy's warnings add nothing
    numbers = "(overflow|underflow|divide by zero|invalid value) encountered"
    warnings.filterwarnings("ignore", numbers, RuntimeWarning)
    # zarr reads groups concurrently: asyncio would print a traceback for all errors but the first
    if not (log := logging.getLogger("asyncio")).handlers:
        log.addHandler(logging.NullHandler())
    completes = "_TRAJCLI_COMPLETE" in os.environ
    if completes:
        from trajcli.cli import completion

        completion.prepare(os.environ)
    try:
        command = command_line(*words[:1])
        code = command(words or ["--help"], prog_name="trajcli", standalone_mode=False)
        return code if isinstance(code, int) else 0
    except SystemExit:
        if completes:
            raise
        # Typer exits when the reader of the help has closed the pipe
        return 0
    except Abort:
        failure: TrajcliError = _interrupted("SIGINT", words)
    except Exception as error:
        # some libraries turn the Interrupt of a signal into an error of their own
        if (signal := pending_signal()) is not None and not isinstance(error, Stopped):
            return _fail(_interrupted(signal, words), words)
        # Typer's own errors: an unknown option, a missing value
        usage = hasattr(error, "format_message")
        if os.environ.get("TRAJCLI_DEBUG") == "1" and not usage:
            raise
        if isinstance(error, TrajcliError):
            # The library names its arguments, the user typed options: --window for window. But a
            # fault of "actions" is of the array in SOURCE, not of the option.
            ran = command.commands.get("".join(words[:1]))
            flags = {x.name: max(x.opts, key=len) for x in ran.params} if ran else {}
            flags.pop("actions", None)
            faults = (replace(x, where=flags.get(str(x.where), x.where)) for x in error.faults)
            failure = type(error)(*faults)
        elif isinstance(error, OSError):
            where = os.fsdecode(error.filename or "the system")
            failure = OutputError(error.strerror or str(error), where=where)
        elif isinstance(error, MemoryError):
            hint = "set a smaller TRAJCLI_MEMORY, or use a machine with more memory"
            failure = UsageError("out of memory", hint=hint)
        elif usage:
            failure = UsageError(_usage_fault(error))
        else:
            what = f"a bug in trajcli: {type(error).__name__}: {error}"
            failure = TrajcliError(what, hint="TRAJCLI_DEBUG=1 shows where; please report it")
    return _fail(type(failure)(*(fault.in_shell() for fault in failure.faults)), words)


def _fail(failure: TrajcliError, words: Sequence[str]) -> int:
    from trajcli.cli.console import Console

    as_json = "--json" in words or os.environ.get("TRAJCLI_JSON", "0") not in ("", "0")
    return Console(as_json).fail(failure)


def _interrupted(name: str, words: Sequence[str]) -> TrajcliError:
    from trajcli.errors import Cancelled, Fault, Stopped

    csv = any(word.startswith("--csv") for word in words) or "TRAJCLI_CSV" in os.environ
    writes = bool(words) and (words[0] in _WRITING or (csv and words[0] == "score"))
    kind = Stopped if writes or name != "SIGINT" else Cancelled
    return kind(Fault(f"stopped by {name}", hint="run the same command again"))


def _usage_fault(error: Any) -> Fault:
    """Turns Typer's error into a fault that suggests the nearest choice or the other command."""
    import difflib

    from trajcli.errors import Fault

    context: Any = getattr(error, "ctx", None)
    parameter: Any = getattr(error, "param", None)
    name, flag = (context.info_name if context else ""), getattr(error, "option_name", None)
    command, message = context.command_path if context else "trajcli", error.format_message()
    # integrate and differentiate have options of their own, which are easily confused
    other = {"integrate": "differentiate", "differentiate": "integrate"}.get(name or "")
    if flag and other:
        options = command_line(other).commands[other].params
        if any(flag in option.opts for option in options):
            hint = f"trajcli {other} takes {flag}{'; --method here' if flag == '--mode' else ''}"
            if flag in ("--since", "--until"):
                hint = f"the start state belongs to the first action; {hint}"
            return Fault("no such option", where=f"{command} {flag}", hint=hint)
    # Typer has the value only in its message: Invalid value for '--mode': 'jrek' is not one of …
    choices = [str(choice) for choice in getattr(getattr(parameter, "type", None), "choices", ())]
    value = message.partition(": '")[2].partition("'")[0]
    if not choices or not value:
        return Fault(message, where=command, hint=f"{command} --help")
    close = difflib.get_close_matches(value, choices, 1)
    hint = f"did you mean {close[0]}?" if close else f"{command} --help"
    if value in ("savgol", "smooth", "recording"):
        hint = "trajcli differentiate takes recorded positions"
    where, expected = parameter.opts[0], ", ".join(choices)
    return Fault("not a choice", where=where, expected=expected, found=value, hint=hint)


class _PlainHelp:
    """Formats help without Rich, which takes longer to load than all else that help needs."""

    def format_options(self: Any, ctx: Any, formatter: Any) -> None:
        group = hasattr(self, "commands")
        if group:
            self.format_commands(ctx, formatter)
        panels: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            title = "Options" if group else "How it runs"
            title = "Arguments" if parameter.param_type_name == "argument" else title
            title = getattr(parameter, "rich_help_panel", None) or title
            panels.setdefault(title, []).append(parameter.get_help_record(ctx))
        for title, records in panels.items():
            with formatter.section(title):
                formatter.write_dl(records)

    def format_epilog(self: Any, ctx: Any, formatter: Any) -> None:
        """Writes the examples unwrapped, so that they can be copied."""
        formatter.write(f"\n{self.epilog.strip()}\n")

    def collect_usage_pieces(self: Any, ctx: Any) -> list[str]:
        required = (p for p in self.params if p.required and p.param_type_name == "option")
        options = [f"{min(option.opts, key=len)} {option.metavar}" for option in required]
        pieces = super().collect_usage_pieces(ctx)  # type: ignore[misc]
        return [*(piece.strip("{}") for piece in pieces), *options]


@cache
def command_line(first: str = "") -> Any:
    """Makes the click command of one command, or of all where ``first`` names none."""
    from inspect import getdoc

    import typer
    from typer.core import TyperCommand, TyperGroup

    app = typer.Typer(
        name="trajcli",
        cls=type("Group", (_PlainHelp, TyperGroup), {}),
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        epilog=_EXAMPLES,
        context_settings={"help_option_names": ["-h", "--help"]},
    )

    def print_version(show: bool) -> None:
        if show:
            print(f"trajcli {import_module('trajcli').__version__}")
            raise typer.Exit

    help = "Print the version."
    flag = typer.Option(False, "--version", callback=print_version, is_eager=True, help=help)

    @app.callback()
    def trajcli(version: bool = flag) -> None:
        """Compute position, velocity, acceleration and jerk of robot trajectories: integrate
        batches of actions from a start state, differentiate recordings, and inspect the results.
        """

    for name in [first] if first in COMMANDS else COMMANDS:
        module = import_module(f"trajcli.cli.{name}")
        command = getattr(module, name)
        paragraphs = str(getdoc(command)).split("\n\n")
        app.command(
            name,
            cls=type("Command", (_PlainHelp, TyperCommand), {}),
            help="\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs),
            short_help=paragraphs[0],
            epilog=module.EXAMPLE,
            # every option may come from the environment: --dry-run is TRAJCLI_DRY_RUN
            context_settings={"auto_envvar_prefix": "TRAJCLI"},
        )(command)
    return typer.main.get_command(app)


def run() -> None:
    from trajcli.system import Interrupt, ignore_signals

    try:
        start_process()
        code = main()
        ignore_signals()
    # a signal before or after the command itself
    except Interrupt as signal:
        code = _interrupted(str(signal), sys.argv[1:]).exit_code
    end_process(code)


def start_process() -> None:
    """Prepares the process of a command, before anything else is imported."""
    from trajcli.system import Interrupt, answer_signals

    answer_signals()
    # Python cannot raise what is raised within a destructor, and prints it. A signal there is
    # remembered, and answered later.
    show = sys.unraisablehook
    sys.unraisablehook = lambda raised: raised.exc_type is Interrupt or show(raised)
    gc.set_threshold(_LOADING_THRESHOLD)
    # NumPy's linear algebra is not used, and its idle threads would spin
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


def settle() -> None:
    """Resumes garbage collection once all modules are loaded, and excludes their objects."""
    if gc.get_threshold()[0] == _LOADING_THRESHOLD:
        gc.freeze()
        gc.set_threshold(700, 10, 10)


def end_process(code: int) -> NoReturn:
    """Ends the process at once: all files are closed, and freeing memory would take time."""
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):
            stream.flush()
    os._exit(code)
