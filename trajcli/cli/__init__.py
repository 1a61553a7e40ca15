"""The command line: parses, calls one function of the rooms below, and prints."""

from __future__ import annotations

import atexit
import contextlib
import gc
import os
import sys
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from trajcli.errors import Fault, TrajcliError

# Commands that write a file; score does with --csv.
_WRITING = ("integrate", "merge", "plot", "export", "resample", "retime", "fit", "operator")
# Objects between two garbage collections while modules load, which leave no garbage.
_WHILE_LOADING = 100_000


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command line and returns its exit code.

    0: done, 1: the data failed, 2: input, 70: a bug, 75: stopped, 130: Ctrl-C in a command that
    writes nothing.

    Every error becomes one message on stderr (with --json, also a document on stdout); a
    traceback only with TRAJCLI_DEBUG=1.
    """
    from trajcli.system import Interrupt

    words = list(sys.argv[1:] if arguments is None else arguments)
    try:
        return _run(words)
    except Interrupt as signal:
        from trajcli.cli.console import Console

        return Console(_wants_json(words)).fail(_interrupted(str(signal), words))


def _wants_json(words: Sequence[str]) -> bool:
    return "--json" in words or os.environ.get("TRAJCLI_JSON", "0") not in ("", "0")


def _interrupted(name: str, words: Sequence[str]) -> TrajcliError:
    """Returns the error of a command that the signal of this name ended."""
    from trajcli.errors import Cancelled, Fault, Stopped

    csv = any(word.startswith("--csv") for word in words) or "TRAJCLI_CSV" in os.environ
    writes = (words[:1] == ["score"] and csv) or not {*words[:1]}.isdisjoint(_WRITING)
    kind = Stopped if writes or name != "SIGINT" else Cancelled
    return kind(Fault(f"stopped by {name}", hint="run the same command again"))


def _run(words: list[str]) -> int:
    """Runs a command line and returns its exit code; a signal raises Interrupt."""
    import logging

    from typer import Abort

    from trajcli.cli.app import command_line
    from trajcli.cli.console import Console
    from trajcli.errors import OutputError, TrajcliError, UsageError

    debug = os.environ.get("TRAJCLI_DEBUG") == "1"
    # NumPy warns of huge values, of limits near zero, of a signalling NaN that becomes wider; here
    # what is not finite is reported with its place
    numbers = "(overflow|underflow|divide by zero|invalid value) encountered"
    warnings.filterwarnings("ignore", numbers, RuntimeWarning)
    # zarr reads groups concurrently: the first damaged one is the error, and asyncio would print
    # tracebacks of the others
    if not (log := logging.getLogger("asyncio")).handlers:
        log.addHandler(logging.NullHandler())
    if "_TRAJCLI_COMPLETE" in os.environ:
        from trajcli.cli import completion

        completion.prepare(os.environ)
    failure: TrajcliError
    try:
        command = command_line(*words[:1])
        code = command(words, prog_name="trajcli", standalone_mode=False)
        return code if isinstance(code, int) else 0
    except TrajcliError as error:
        if debug:
            raise
        failure = error
    except Abort:
        failure = _interrupted("SIGINT", words)
    except SystemExit:
        if "_TRAJCLI_COMPLETE" in os.environ:
            raise
        return 0  # Typer leaves so where the reader of the help has gone
    except OSError as error:
        if debug:
            raise
        failure = OutputError(
            error.strerror or str(error), where=os.fsdecode(error.filename or "the system")
        )
    except MemoryError:
        hint = "less at once (a smaller TRAJCLI_MEMORY), or a machine with more memory"
        failure = UsageError("out of memory", hint=hint)
    except Exception as error:
        if hasattr(error, "format_message"):  # Typer's own: an unknown option, a missing value
            if not error.format_message():
                return 2  # no arguments: the help has been shown
            failure = UsageError(_usage_fault(error))
        elif debug:
            raise
        else:
            hint = "TRAJCLI_DEBUG=1 shows where; please report it"
            failure = TrajcliError(f"a bug in trajcli: {type(error).__name__}: {error}", hint=hint)
    return Console(_wants_json(words)).fail(_with_flags(failure, words))


def _with_flags(failure: TrajcliError, words: Sequence[str]) -> TrajcliError:
    """Returns the error with options named as in a shell: --window where Python says window."""
    from dataclasses import replace

    from trajcli.cli.app import COMMANDS, command_line

    name = words[0] if words and words[0] in COMMANDS else ""
    if not name or not any(fault.where.isidentifier() for fault in failure.faults):
        return failure
    options = command_line(name).commands[name].params
    # Python says window, the shell --window
    flags = {option.name: max(option.opts, key=len) for option in options}
    flags.pop("actions", None)  # the array, where a fault names it
    return type(failure)(
        *(replace(fault, where=flags.get(fault.where, fault.where)) for fault in failure.faults)
    )


def _usage_fault(error: Any) -> Fault:
    """Returns an error of Typer's as a fault, which names the choice nearest to a wrong one."""
    import difflib

    from trajcli.errors import Fault

    context = getattr(error, "ctx", None)
    command = context.command_path if context else "trajcli"
    parameter: Any = getattr(error, "param", None)
    choices = [str(choice) for choice in getattr(getattr(parameter, "type", None), "choices", ())]
    message = error.format_message()
    if (flag := getattr(error, "option_name", None)) and (other := _other_command(context, flag)):
        hint = f"trajcli {other} takes {flag}"
        hint += "; --method here" if flag == "--mode" else ""
        return Fault("no such option", where=f"{command} {flag}", hint=hint)
    value = message.partition(": '")[2].partition("'")[0]
    if not choices or not value:
        return Fault(message, where=command, hint=f"{command} --help")
    # jrek is offered jerk
    near = difflib.get_close_matches(value, choices, 1)
    hint = f"did you mean {near[0]}?" if near else f"{command} --help"
    if value in ("savgol", "smooth", "recording"):
        hint = "trajcli differentiate takes recorded positions"
    where, expected = parameter.opts[0], ", ".join(choices)
    return Fault("not a choice", where=where, expected=expected, found=value, hint=hint)


def _other_command(context: Any, flag: str) -> str:
    """Returns which of integrate and differentiate takes a flag that the other lacks; else ""."""
    from trajcli.cli.app import command_line

    pair = {"integrate": "differentiate", "differentiate": "integrate"}
    other = pair.get(context.info_name or "", "") if context else ""
    if not other:
        return ""
    params = command_line(other).commands[other].params
    return other if any(flag in param.opts for param in params) else ""


def run() -> None:
    """Runs the console script."""
    start_process()
    from trajcli.system import Interrupt, ignore_signals

    try:
        code = main()
        ignore_signals()
    except Interrupt as signal:  # before the command, or behind it
        code = _interrupted(str(signal), sys.argv[1:]).exit_code
    end_process(code)


def start_process() -> None:
    """Prepares a process of its own, before anything is loaded."""
    gc.set_threshold(_WHILE_LOADING)
    # NumPy's linear algebra is not used, and its idle threads would spin
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    from trajcli.system import answer_signals

    answer_signals()


def settle() -> None:
    """Resumes garbage collection once all modules are loaded, leaving them out of it."""
    if gc.get_threshold()[0] == _WHILE_LOADING:
        gc.freeze()
        gc.set_threshold(700, 10, 10)


def end_process(code: int) -> NoReturn:
    """Ends the process; all files are closed, and memory need not be freed first."""
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):
            stream.flush()
    os._exit(code)
