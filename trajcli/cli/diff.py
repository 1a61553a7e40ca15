"""trajcli diff: two files, or a file and what it must have been."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Any

import typer

from trajcli.cli import options
from trajcli.cli.console import Console, Progress

EXAMPLE = """
Examples, on files in sample_data (the first makes what the others compare):

    trajcli integrate sample_data/reach.h5 --mode jerk --scheme zoh -o out.h5 --overwrite

    trajcli diff out.h5 sample_data/reach.h5 --recompute

    trajcli diff out.h5:position sample_data/reach.h5:reference/position --atol 1e-11
"""


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("diff", epilog=EXAMPLE)(diff)


def diff(
    first: options.FirstSource,
    second: options.SecondSource = None,
    recompute: options.Recompute = False,
    rtol: options.Rtol = 0.0,
    atol: options.Atol = 0.0,
    ulp: options.Ulp = 0.0,
    allow_external: options.AllowExternal = False,
    untrusted: options.Untrusted = False,
    no_progress: options.NoProgress = False,
    config: options.Config = None,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> int:
    """Compare two files, or an output and its job done again; exit 1 if apart.

    Dataset by dataset, absolute, relative and in units of the last place (ulp), and where the
    worst is. Without tolerances any difference is one too many.

    With --recompute, B is what A was computed from; without it the source that A names is looked
    for beside it and in this folder, and failing that A's own actions and start row are used.
    """
    from trajcli.errors import Fault, UsageError
    from trajcli.files.opening import open_arrays
    from trajcli.files.source import parse_source
    from trajcli.views.differences import Tolerance, arrays_of, attributes_apart, compare
    from trajcli.views.screen import Screen, within

    if second is None and not recompute:
        hint = "--recompute compares one file with its own job done again"
        raise UsageError(Fault("nothing to compare with", "diff", "two files", first, hint))
    _require_tolerances({"--rtol": rtol, "--atol": atol, "--ulp": ulp})
    console = Console(json, quiet)
    apart: list[tuple[str, Any, Any]] = []
    with ExitStack() as stack:
        one = parse_source(first)
        file = stack.enter_context(open_arrays(one.path, allow_external, untrusted))
        mine = arrays_of(file, one)
        if recompute:
            from trajcli.jobs.recompute import recomputed

            given = [second] if second else []
            again = recomputed(file, given, allow_external, untrusted)
            found = stack.enter_context(again)
            theirs, name = found.arrays, f"recomputed from {found.origin}"
            mine = {n: a for n, a in mine.items() if n in theirs}
        else:
            two = parse_source(second or "")
            other = stack.enter_context(open_arrays(two.path, allow_external, untrusted))
            theirs, name = arrays_of(other, two), str(second)
            if one.dataset is None and two.dataset is None:
                apart = attributes_apart(file, other)
        progress = stack.enter_context(Progress(not (no_progress or quiet), "blocks"))
        differences = list(compare(mine, theirs, Tolerance(rtol, atol, ulp), progress))
    passed = all(difference.passed for difference in differences)
    if not (json or quiet):
        from trajcli.views.comparison import comparison

        screen = Screen.of(sys.stdout)
        for line in within(comparison(first, name, differences, apart, screen), screen):
            console.say(line)
    console.document(_document(first, name, passed, differences, apart))
    return 0 if passed else 1


def _require_tolerances(given: Mapping[str, float]) -> None:
    """Raise UsageError for tolerances that nothing, or everything, could be within."""
    from trajcli.errors import Fault, UsageError

    faults = [
        Fault("not a tolerance", option, "a finite number >= 0", f"{value:g}")
        for option, value in given.items()
        if not 0 <= value < math.inf
    ]
    if faults:
        raise UsageError(*faults)


def _document(
    first: str, second: str, passed: bool, differences: Sequence[Any], apart: Sequence[Any]
) -> dict[str, Any]:
    return {
        "a": first,
        "b": second,
        "passed": passed,
        "datasets": [difference.as_dict() for difference in differences],
        "attributes": [{"name": name, "a": a, "b": b} for name, a, b in apart],
    }
