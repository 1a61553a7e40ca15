"""trajcli diff: compares two files or datasets."""

from __future__ import annotations

import math
from typing import Any

from trajcli.cli import options
from trajcli.cli.console import Console, opened

EXAMPLE = """
Examples, on files in sample_data (the first makes what the second compares):

    trajcli integrate sample_data/reach.h5 --mode jerk --scheme zoh -o out.h5 --overwrite

    trajcli diff out.h5:position sample_data/reach.h5:reference/position --atol 1e-11
"""


@options.reading
def diff(
    first: options.FirstSource,
    second: options.SecondSource,
    rtol: options.Rtol = 0.0,
    atol: options.Atol = 0.0,
    ulp: options.Ulp = 0.0,
    verbose: options.Verbose = False,
    json: options.Json = False,
    quiet: options.Quiet = False,
    **reading: Any,
) -> int:
    """Compare two files or datasets; exit 1 where they differ.

    Of every dataset, this shows the largest absolute and relative difference, the largest in
    units of the last place (ulp), the root mean square (RMS), and where the worst value is.
    Where most of a difference is a delay or an offset of B, this says by how much, for each dof,
    and what remains. Trajectories with different numbers of rows are aligned by their times. With
    --episodes (3, 0:10 or all) trajectories are compared one by one, whatever groups hold them.
    Without tolerances nothing may differ.
    """
    from trajcli.errors import Fault, UsageError
    from trajcli.files.reading import Reading
    from trajcli.files.source import expand_files, parse_source
    from trajcli.views.compared import datasets
    from trajcli.views.diff import Tolerance, attributes_apart, compare, report

    faults = [
        Fault("not a tolerance", where=option, expected="a finite number >= 0", found=f"{value:g}")
        for option, value in {"--rtol": rtol, "--atol": atol, "--ulp": ulp}.items()
        if not 0 <= value < math.inf
    ]
    if faults:
        raise UsageError(*faults)
    how = Reading(**reading)
    console = Console(json, quiet)
    sources = parse_source(first), parse_source(second)
    with opened(how, quiet, "datasets") as (files, progress):
        pair = datasets(files, first, how.episodes), datasets(files, second, how.episodes)
        differences = list(compare(*pair, Tolerance(rtol, atol, ulp), progress))
        whole = how.episodes is None and all(
            source.dataset is None and expand_files(source) == [source] for source in sources
        )
        paths = (source.path for source in sources)
        attributes = attributes_apart(*map(files.open, paths)) if whole else []
    passed = all(difference.passed for difference in differences)
    if not (json or quiet):
        for part in report((first, second), differences, attributes, verbose):
            console.show(part)
    console.document(
        {
            "a": first,
            "b": second,
            "passed": passed,
            "datasets": [difference.as_dict() for difference in differences],
            "attributes": [{"name": name, "a": a, "b": b} for name, a, b in attributes],
        }
    )
    return 0 if passed else 1
