"""Which data set a run's trajectories are, where it is written again with what is computed."""

from __future__ import annotations

import os
from itertools import accumulate
from pathlib import Path

from trajcli.errors import Fault, UsageError
from trajcli.files.lerobot_meta import INFO, Episode
from trajcli.files.lerobot_output import PREFIX, DataSet
from trajcli.files.source import Source, expand_files
from trajcli.jobs.plan import Plan
from trajcli.jobs.request import Request


def data_set_of(plan: Plan) -> DataSet:
    """The data set of which a run's trajectories are all episodes.

    Raises UsageError where they are not, or have other rows than its frames.
    """
    resolved = plan.resolved
    _refuse_options(resolved.request)
    first = resolved.sets[0]
    where = "" if first.layout is None else first.layout.facts()[0]
    if first.layout is None or first.layout.name != "lerobot" or not Path(where).is_file():
        raise _fault("not a LeRobot data set", first.where, "the folder of one: DIR:action")
    root, info = Path(where).parent.parent, first.layout.facts()[1]
    if Path(os.path.realpath(resolved.request.out)).is_relative_to(os.path.realpath(root)):
        raise _fault("the output lies in the data set", str(resolved.request.out), "elsewhere")
    paths = [source.path for source in expand_files(Source(root))]
    counts = {one.file.path: one.layout.rows for one in resolved.sets if one.layout is not None}
    ends = list(accumulate(counts.get(path, 0) for path in paths))
    begins = dict(zip(paths, [0, *ends], strict=False))
    episodes = []
    for one in resolved.sets:
        if one.member is not None and one.file.path in begins:
            number, begin = int(one.name.rpartition("_")[2]), begins[one.file.path]
            episodes.append(Episode(number, begin + one.member.begin, one.shape[1]))
    frames = sum(episode.frames for episode in episodes)
    if set(counts) != set(paths) or frames != ends[-1] or resolved.count != len(resolved.sets):
        raise _fault("a part of a data set", first.where, f"all episodes of {root}")
    for part in resolved.by_length:
        rows, length = part.inputs.rows, len(part.segments[0].rows)
        if rows not in (length, length + 1):
            expected = f"a row for each of the {length} frames of an episode, and one behind them"
            raise _fault("other rows than frames", first.where, expected, f"{rows} rows")
    new = {PREFIX + name for name in plan.quantities}
    if old := sorted(new & info.get("features", {}).keys()):
        raise _fault("features that are there already", str(root / INFO), "others", ", ".join(old))
    return DataSet(root, [(path, counts[path]) for path in paths], episodes)


def _refuse_options(request: Request) -> None:
    """Raise UsageError for what does not give a row to every frame."""
    given = {
        "--shard": request.shard,
        "--pack": request.pack,
        "--compress": request.compress,
        "--grad": request.grad,
        "--cost": request.cost,
        "--max-gap": request.max_gap,
        "--repeated-times drop": request.repeated_times == "drop",
        "--episodes": request.episodes,
        "--skip-bad": request.skip_bad,
        "--untrusted": request.untrusted,
    }
    names = [name for name, value in given.items() if value not in (None, False)]
    if names:
        raise _fault("options that do not go", ", ".join(names), "none of them")


def _fault(what: str, where: str, expected: str, found: str = "") -> UsageError:
    return UsageError(Fault(f"{what}, for --as lerobot", where, expected, found))
