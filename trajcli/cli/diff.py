"""trajcli diff: compares two files or datasets."""

from __future__ import annotations

import math
from typing import Any

from trajcli.cli import options
from trajcli.cli.console import Console

EXAMPLE = f"""
Examples, on files in sample_data (the second compares what the first writes):

    {options.EXAMPLE_RUN} -o out.h5 --overwrite

    trajcli diff out.h5:position sample_data/reach.h5:reference/position --atol 1e-11
"""


@options.command(options.READING)
def diff(
    console: Console,
    first: options.FirstSource,
    second: options.SecondSource,
    rtol: options.Rtol = 0.0,
    atol: options.Atol = 0.0,
    ulp: options.Ulp = 0.0,
    max_error: options.MaxError = None,
    max_delay: options.MaxDelay = None,
    verbose: options.Verbose = False,
    **reading: Any,
) -> int:
    """Compare two files or datasets; exit with 1 if they differ.

    For every dataset this shows the largest difference and its place, and the root mean square
    (RMS); -v adds relative differences and units in the last place (ulp). Of trajectories with
    times, a table shows how B follows A: the delay of each joint, and the offset, RMS and largest
    error after it. Where no motion shows a delay, none is claimed.

    Dofs are paired by their names. Trajectories whose stamps overlap are compared on that clock,
    where both have rows, others from their starts; where rows do not coincide, the source with more
    of them is interpolated. Where A and B each name one array, such as SET:action, those of each
    trajectory are compared. With --episodes (3, 0:10 or all) trajectories are compared in their
    order, whatever their groups are called. Without tolerances no value may differ.

    With --max-error or --max-delay these alone decide: the largest error of any joint after the
    delay, and the delays. Tolerances and attributes then do not, but dofs or trajectories that one
    source alone has still fail, as do values that are not finite, and delays that nothing shows.
    """
    from trajcli.errors import Fault, UsageError, raise_if_any
    from trajcli.files.source import expand_files, parse_source
    from trajcli.views import diff as view

    tolerances = {"--rtol": rtol, "--atol": atol, "--ulp": ulp}
    gates = {"--max-error": max_error, "--max-delay": max_delay}
    faults = [
        Fault("not a tolerance", where=option, expected="a finite number >= 0", found=f"{value:g}")
        for option, value in {**tolerances, **gates}.items()
        if value is not None and not 0 <= value < math.inf
    ]
    raise_if_any(faults, UsageError)
    sources = parse_source(first), parse_source(second)
    with console.open_files(reading, "datasets") as files:
        files.register_sources((first, second))
        pair = view.find_datasets(files, first), view.find_datasets(files, second)
        tolerance, gated = view.Tolerance(rtol, atol, ulp), {*gates.values()} != {None}
        differences = list(view.compare(*pair, tolerance, files.report, gated))
        # a dataset or an episode has no attributes of a file
        complete = files.reading.episodes is None and all(
            source.dataset is None and expand_files(source) == [source] for source in sources
        )
        paths = (source.path for source in sources)
        attributes = view.compare_attributes(*map(files.open, paths)) if complete else []
    # of all notes only those on options are printed, such as the rows that a window kept: the table
    # shows how each source was read
    console.remark(*(note for note in files.report.notes if note.startswith("--")))
    beyond = view.verdict(differences, max_error, max_delay) if gated else None
    passed = not beyond if gated else all(difference.passed for difference in differences)
    tracked = view.summarize_tracking(differences, verbose)
    console.show(view.report((first, second), differences, attributes, verbose, tracked, beyond))
    console.write_document(
        {
            "a": first,
            "b": second,
            "passed": passed,
            "datasets": [difference.as_dict() for difference in differences],
            "tracking": tracked,
            "attributes": [{"name": name, "a": a, "b": b} for name, a, b in attributes],
        }
    )
    return 0 if passed else 1
