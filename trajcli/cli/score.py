"""trajcli score: scores motions."""

from __future__ import annotations

from typing import Any

from trajcli.cli import options
from trajcli.cli.console import Console

EXAMPLE = """
Examples, on files in sample_data:

    trajcli score sample_data/reach.h5 --limits sample_data/limits.toml --sort p95_jerk

    trajcli score sample_data/recorded.h5 --fail "time_jumps>0" --csv scores.csv --overwrite
"""


@options.command(options.READING | {"quantity": options.Quantity})
def score(
    console: Console,
    source: options.Sources,
    limits: options.LimitsFile = None,
    sort: options.Sort = None,
    fail: options.Fail = None,
    still: options.Still = None,
    csv: options.Csv = None,
    verbose: options.VerboseScores = False,
    skip_bad: options.SkipBad = False,
    overwrite: options.Overwrite = False,
    **reading: Any,
) -> int:
    """Score the length, smoothness and use of limits of trajectories.

    The scores are duration, path length, RMS and 95th percentile of jerk, log dimensionless jerk
    (log_jerk), spectral arc length (sparc), the share of time at rest (still), its seconds at the
    start, at the end and the longest between (idle_start, idle_end, idle_longest), the share of
    saturated values and of the limits, and jumps of time stamps; docs/scores.md has the formulas.
    Velocity and jerk that a file lacks are central differences of its positions. The exit code is 1
    if any trajectory meets a --fail condition or, with --fail, something was not scored, and if one
    of several files cannot be read.
    """
    from trajcli.errors import Fault, UsageError
    from trajcli.files.atomic_output import new_file, refuse_input, refuse_path
    from trajcli.files.limits import read_limits
    from trajcli.views import score as scores
    from trajcli.views.recordings import expand_globs

    conditions, to_stdout = scores.parse_conditions(fail or [], sort), str(csv) == "-"
    if to_stdout and console.as_json:
        what, where = "two documents on stdout", "--json and --csv -"
        raise UsageError(what, where=where, expected="one of them")
    if csv is not None and not to_stdout:
        refuse_path(csv, overwrite)
    # the table for people must not mix with the CSV
    console.stream = "stderr" if to_stdout else console.stream
    tables, reports = dict[str, scores.ScoreTable](), []
    texts = expand_globs(source)
    # one file at a time, so that memory does not grow with their number
    for text in texts:
        unreadable, alone = dict[str, Fault](), text == texts[-1] and not tables
        with console.skip_unreadable(text, unreadable, alone), console.open_files(reading) as files:
            bounds = read_limits(limits, files.sources) if limits else None
            skipped = unreadable if skip_bad else None
            tables[text] = scores.score_source(files, text, bounds, skipped, still)
            if csv is not None:
                refuse_input(csv, [*files.paths(), *([limits] if limits else [])])
        left_out, table = console.warn_left_out(unreadable), tables.get(text, scores.NOTHING)
        tests = conditions if text in tables else ()
        # with conditions, a trajectory without a score cannot have passed
        failed = {test[0]: [table.names[i] for i in table.failing(test)] for test in tests}
        unscored = bool(left_out or (tests and table.unscored))
        reports.append({
            "file": text, "dataset": table.label, "passed": not (unscored or any(failed.values())),
            "failed": failed, "notes": table.notes, "matched": table.matched,
            "summary": table.summary(), "outliers": table.outliers(),
            "unscored": table.unscored, "left_out": left_out,
            "trajectories": list(table.lines(sort)) if console.as_json else [],
        })  # fmt: skip
        if len(texts) > 1:
            console.say(f"{text}:")
        console.show(scores.report(table, tests, sort, verbose) if text in tables else ())
    if len(tables) > 1:
        console.show([scores.comparison(tables)])
    if to_stdout:
        console.write_data(scores.csv_text(tables, sort))
    elif csv is not None:
        with new_file(csv, overwrite) as hidden:
            hidden.write_text(scores.csv_text(tables, sort), encoding="utf-8")
    console.write_document({"files": reports})
    return 0 if all(report["passed"] for report in reports) else 1
