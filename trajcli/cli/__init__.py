"""The command line: parse, call one function of the rooms below, print."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from trajcli.cli import process


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command line; the exit code is 0, 1 (data failed), 2 (input), 70 (bug), 75 (stopped).

    Every error becomes one message on stderr (with --json, also a document on stdout); a
    traceback only with TRAJCLI_DEBUG=1.
    """
    from typer import Abort

    from trajcli.cli.app import make_app
    from trajcli.cli.console import Console
    from trajcli.errors import Fault, Stopped, TrajcliError, UsageError

    given = list(sys.argv[1:] if arguments is None else arguments)
    as_json = "--json" in given or os.environ.get("TRAJCLI_JSON", "0") not in ("", "0")
    console = Console(as_json)
    debug = os.environ.get("TRAJCLI_DEBUG") == "1"
    if "_TRAJCLI_COMPLETE" in os.environ:
        from trajcli.cli import completion

        completion.prepare(os.environ)
    try:
        code = make_app(given)(given, prog_name="trajcli", standalone_mode=False)
        return code if isinstance(code, int) else 0
    except TrajcliError as error:
        if debug:
            raise
        return console.fail(error)
    except (KeyboardInterrupt, Abort):
        return console.fail(Stopped(Fault("stopped by SIGINT", hint="run the same command again")))
    except MemoryError:
        hint = "less at once (integrate: a smaller --memory), or a machine with more memory"
        return console.fail(UsageError(Fault("out of memory", hint=hint)))
    except Exception as error:
        if hasattr(error, "format_message"):  # Typer's own: an unknown option, a missing value
            if not error.format_message():
                return 2  # nothing was asked for, and the help has been shown
            context = getattr(error, "ctx", None)
            path = context.command_path if context else "trajcli"
            hint = f"{path} --help"
            return console.fail(UsageError(Fault(error.format_message(), path, hint=hint)))
        if debug:
            raise
        return console.fail_with_bug(error)


@process.roomy
def run() -> None:
    """The console script."""
    process.start()
    process.end(main())
