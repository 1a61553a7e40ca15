"""Shows what is in a file: datasets, trajectories, times and peaks, as tables and charts."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from trajcli.errors import InputError, Report, raise_if_any
from trajcli.files.catalogue import Catalogue, Dataset
from trajcli.files.companions import STAMPS
from trajcli.files.episodes import NoTrajectories
from trajcli.files.joined_arrays import find_array
from trajcli.files.opening import Files, clock_from_options
from trajcli.files.quantities import QUANTITIES, ROTATIONS
from trajcli.files.reader import unreadable_files
from trajcli.files.reading import parse_selection
from trajcli.files.recording import Recording, mask_numbers
from trajcli.files.repair import TurnJumps
from trajcli.files.source import expand_files, parse_source
from trajcli.memory import LEAST_SAMPLED_BYTES, SAMPLED_BYTES, SCANNED_BYTES
from trajcli.mode_options import INTEGRATION
from trajcli.views._statistics import RotationStatistics, Statistics, read_blocks
from trajcli.views.recordings import (
    array_path,
    first_part,
    label,
    one_sided_rows,
    read_batches,
    sample,
    whole_batch,
)
from trajcli.views.terminal import Chart, TextTable, figure, number, shortened

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

# The most groups, shapes and trajectories of a large file that are read without --full.
_MOST_TIMES = 2000
# The most steps of which the median is computed; of more, evenly spaced ones are taken.
_MOST_GAPS = 4 << 20
# So many rows are drawn of one trajectory: a terminal has far fewer columns.
_PLOTTED_ROWS = 20_000
# Trajectories have one rate where all but this share differ by less than it from the median step.
_JITTER = 0.05
# Letters of an attribute that are shown.
_LONGEST = 60
# Datasets with more dofs have no table of peaks.
_MOST_DOFS = 64
_PEAKS = {"velocity": "peak |v|", "acceleration": "|a|", "jerk": "|j|",
          "angular_velocity": "peak |ω|", "angular_acceleration": "|α|",
          "angular_jerk": "|dα/dt|"}  # fmt: skip
# Attributes that are shown before the others, not at all, and not where the lines about the
# trajectories say the same.
_FIRST = ("mode", *(option.name for option in INTEGRATION))
_UNSHOWN = ("long_name", "gradient_factor", "gradient_of", "trajcli_version", "request")
_TIMES = ("dt", "dt_source", "source_dt", "rate", "fps", "control_freq")


def inspect_source(
    files: Files, text: str, full: bool = False
) -> tuple[dict[str, Any], list[Chart], Sequence[str]]:
    """Inspects a file, a folder or datasets; returns a report, charts and the names of dofs."""
    source, episodes = parse_source(text), files.reading.episodes
    members = expand_files(source)
    unread = unreadable_files(files, members)
    opened = [files.open(member.path) for member in members if member not in unread]
    layout, named = files.layout(opened[0]), source.dataset or ""
    # Times that the options name and that cannot be read are an error, even where nothing needs
    # them.
    clock_from_options(files)
    batches, main, names = _read_source(files, text, opened, named)
    chosen = [] if main is None else parse_selection(episodes, len(main))
    if main is not None:
        usable, faults = main.take(chosen).usable()
        files.report.add_notes(
            *(f"{name} is left out: {fault.what}" for name, fault in faults.items())
        )
        chosen = usable.numbers.tolist()
    # The main batch may join several: each reads its part of what --episodes picks among all.
    parts = [] if main is None else list(main.members)
    begins = dict(zip(parts, accumulate(map(len, parts), initial=0), strict=False))
    numbers: list[Sequence[int]] = []
    for batch in batches:
        begin, count = begins.get(batch.members[0]), len(batch)
        picked = parse_selection(episodes, count) if begin is None else (n - begin for n in chosen)
        numbers.append([n for n in picked if 0 <= n < count])
    # Arrays within each trajectory of a layout have no names of their own.
    names = names or [
        (part.file, f"{part.group}/{part.array_name}")
        for batch in batches
        for part in batch.members
    ]
    paths = (path for file in opened for path in [file.path, *file.path.rglob("*")])
    size = sum(path.stat().st_size for path in paths if path.is_file())
    datasets = Datasets(batches, numbers, episodes, full, size, files.report)
    counts: dict[str, Any] = _count_trajectories(main, chosen, full) if main else {"count": 0}
    # Batches next to the main one may have rates of their own.
    for batch, indices in zip(batches, numbers, strict=True):
        group = mask_numbers(batch.group) or batch.array_name
        if "rates" in counts and group not in counts["rates"] and batch.members[0] not in begins:
            counts["rates"] |= _count_trajectories(batch, indices, full).get("rates", {})
            counts["rate"] = _common_rate(counts["rates"])
    report = {
        "file": str(source.path),
        "family": opened[0].family,
        "layout": layout.name if layout else None,
        "bytes": size,
        "attributes": dict(opened[0].attributes()),
        "joint_names": main.joint_names if main else None,
        "dt": _find_step(main, full) if main else None,
        "trajectories": counts,
        "datasets": datasets.reports(names, bool(named)),
        "sampled": datasets.sampled or counts.get("sampled", False),
        "one_sided": one_sided_rows(main) if main else 0,
    }
    charts = list[Chart]()
    if main is None or not chosen:
        return report, charts, []
    drawn = main.take(chosen[:1])
    # Only the first rows of a very long trajectory are drawn, over time where the file has it.
    first = drawn.take(slice(None), range(min(drawn.rows, _PLOTTED_ROWS)))
    times = first.known_times()
    x = np.arange(float(first.rows)) if times is None else times[0]
    for name in drawn.arrays if drawn.rows else ():
        unit = drawn.unit(name)
        title = name + (f", {unit}" if unit else "") + (" by row" if times is None else "")
        title += f", first {first.rows} rows" if first.rows < drawn.rows else ""
        values = first.arrays[name].read()[0].astype(np.float64)
        charts.append(Chart(title, x, "" if times is None else " s", values))
    return report, charts, drawn.dof_labels


def _read_source(
    files: Files, text: str, opened: Sequence[Catalogue], named: str
) -> tuple[list[Recording], Recording | None, list[tuple[Catalogue, str]]]:
    # What other commands refuse is shown, and only reported.
    batches = list[Recording]()
    if named.rpartition("/")[2] not in ("dt", *STAMPS):
        try:
            with files.report.attempt():
                batches = read_batches(files, [text], as_stored=True)
        except InputError as error:
            # SOURCE may name something else that is listed.
            if (named and not _find_names(opened, named)) or files.reading.window:
                raise
            if not isinstance(error, NoTrajectories):
                files.report.add_notes(_in_a_line(error))
    # The names are found after the trajectories: once read, a bag may have more of them.
    names = _find_names(opened, named)
    try:
        return batches, whole_batch(batches)[0], names
    except InputError as error:
        files.report.add_notes(_in_a_line(error))
        return batches, max(batches, key=lambda batch: len(batch.arrays)), names


def _find_names(opened: Sequence[Catalogue], named: str) -> list[tuple[Catalogue, str]]:
    """Finds the datasets of files: all, those below a group or groups, or those of a name."""
    names = []
    for file in opened:
        folders = file.match(named, groups=True) if "*" in named else [named]
        if not named or any(map(file.has_group, folders)):
            below = tuple(f"{folder.strip('/')}/" for folder in folders if folder)
            names += [(file, name) for name in file.names() if name.startswith(below or "")]
        else:
            names += [(file, name) for name in file.match(named) if file.get(name) is not None]
    return names


def _in_a_line(error: InputError) -> str:
    return "; ".join(line.strip() for line in error.faults[0].in_shell().lines()[:3])


def _find_step(main: Recording, full: bool) -> dict[str, Any] | None:
    """Finds the time step and its source, or the fault of a file that contradicts itself."""
    parts = main.members if full else main.members[:: 1 + len(main.members) // _MOST_TIMES]
    clocks = [part.clock for part in parts]
    faults = [part.fault for part in parts if part.fault]
    faults += [fault for clock in clocks if clock for fault in clock.shape_faults()]
    for fault in faults[:1]:
        actual = f", {fault.found} instead of {fault.expected}" if fault.found else ""
        return {"value": None, "source": f"{fault.where}: {fault.what}{actual}"}
    if clocks[0] is None:
        return None
    source = str(main.file.attributes().get("dt_source", clocks[0].source))
    steps = {clock and clock.step for clock in clocks}
    step = steps.pop() if len(steps) == 1 else None
    if step is not None and len(parts) < len(main.members):
        source += f", sampled: {len(parts)} of {len(main.members)}"
    return {"value": "varies" if step is None else step, "source": source}


def _count_trajectories(main: Recording, chosen: Sequence[int], full: bool) -> dict[str, Any]:
    rows = main.lengths if len(main) else np.array([main.rows])
    report: dict[str, Any] = {
        "count": len(main),
        "rows": [int(rows.min()), int(rows.max())],
        "dofs": main.shape[2],
        "shown": [main.title(number) for number in chosen[:1]],
    }
    usable, _ = main.usable()
    if len(usable) and (first := usable.take(sorted({0, len(usable) - 1})).start_stamps()):
        report["start_stamps"], report["stamps_unit"] = first[0].tolist(), first[1]
    # The times of a large file are sampled where they are no single dt.
    stamps, count = int(main.lengths[np.asarray(chosen, int)].sum()), len(chosen)
    large = len(main.members) > _MOST_TIMES
    large |= 8 * stamps > SAMPLED_BYTES and main.step is None
    if large and not full:
        chosen = chosen[:: 1 + count // _MOST_TIMES]
    report["sampled"] = len(chosen) < count
    steps: dict[str, list[Any]] = {}
    medians, durations, jitter = dict[str, list[float]](), [], 0.0
    for block in main.take(chosen).blocks(size=SCANNED_BYTES):
        for group, _ in block.split_by_group() if block.rows > 1 else ():
            with contextlib.suppress(InputError):
                if (clock := group.clock) is None:
                    continue
                raise_if_any(clock.shape_faults())
                # With one step, the rows of a very long trajectory need no array.
                if clock.step is not None:
                    gaps = np.full((len(group), 1), clock.step)
                    seconds = gaps[:, 0] * (block.rows - 1)
                else:
                    times = clock.stored_times()
                    gaps, seconds = np.diff(times), times[:, -1] - times[:, 0]
                # The median is that of evenly spaced steps, the extremes are those of all.
                sampled = gaps.ravel()[:: 1 + stamps // _MOST_GAPS]
                extremes = [gaps.min(), gaps.max()]
                name = mask_numbers(group.group) or group.array_name
                steps.setdefault(name, []).append((sampled, extremes))
                medians.setdefault(name, []).extend(np.median(gaps, 1).tolist())
                durations += [seconds.min(), seconds.max()]
    for name, parts in steps.items():
        median = float(np.median(np.concatenate([sampled for sampled, _ in parts])))
        jitter = max(jitter, *(abs(end - median) for _, ends in parts for end in ends))
        alike = np.isclose(medians[name], median, _JITTER, 0.0).mean() > 1 - _JITTER
        ends = [median, median] if alike else [max(medians[name]), min(medians[name])]
        report.setdefault("rates", {})[name] = [1.0 / end if end > 0 else None for end in ends]
    if steps:
        report["duration"] = [float(min(durations)), float(max(durations))]
        report["rate"], report["jitter"] = _common_rate(report["rates"]), float(jitter)
    return report


def _common_rate(rates: Mapping[str, Sequence[float | None]]) -> float | None:
    """Finds the rate that all groups have up to 1 %; None where they differ."""
    known = [rate or 0.0 for ends in rates.values() for rate in ends]
    return known[0] or None if min(known) >= 0.99 * max(known) else None


@dataclass
class Datasets:
    """Reports on datasets; all arrays of a batch are read together, once.

    numbers: the trajectories of each batch that are read, as ``episodes`` says.
    """

    batches: Sequence[Recording]
    numbers: Sequence[Sequence[int]]
    episodes: str | None
    full: bool
    size: int
    report: Report
    sampled: bool = False

    def reports(self, names: Sequence[tuple[Catalogue, str]], named: bool) -> list[dict[str, Any]]:
        """Reports on each dataset, and once on all whose groups differ only in numbers."""
        owners: dict[str, int] = {}
        labels: dict[str, str] = {}
        for k, batch in enumerate(self.batches):
            for name in batch.arrays:
                title = label(batch, name)
                owners[title] = k
                labels |= {array_path(x.group, x, name): title for x in batch.members}
        groups: dict[str, list[tuple[Catalogue, str]]] = {}
        for file, name in names:
            pattern = labels.get(name) or re.sub(r"\d+(?=[^/]*/)", "*", name)
            groups.setdefault(pattern, []).append((file, name))
        small = self.size <= SAMPLED_BYTES
        # The bytes that are read of a large file are shared out among its datasets.
        shares = 1 if small else max(len(groups), 1)
        budget = max(SAMPLED_BYTES // shares, LEAST_SAMPLED_BYTES)
        batch_reports: dict[int, dict[str, dict[str, Any]]] = {}
        reports = []
        for pattern, members in groups.items():
            single = len(members) == 1 and pattern not in owners
            title = (members[0][1] if single else pattern) or members[0][0].path.name
            try:
                if title in owners:
                    k = owners[title]
                    batch_reports[k] = batch_reports.get(k) or self._read_batch(k, budget)
                    about = batch_reports[k][title]
                else:
                    # Of many datasets of a large file, the first stands for the others.
                    skipped = not (self.full or small) and len(members) > 1
                    stored = [self._pick_dofs(*one) for one in members[: 1 if skipped else None]]
                    statistics, left = Statistics("", 1), budget
                    for dataset in (dataset for dataset in stored if dataset.numeric):
                        count = dataset.shape[0] if dataset.shape else 1
                        step = max(1, count * LEAST_SAMPLED_BYTES // max(dataset.nbytes, 1))
                        for start in range(0, count, step):
                            if left <= 0 and not self.full:
                                statistics.sampled = True
                                break
                            values = np.asarray(dataset.read_rows(start, min(start + step, count)))
                            statistics.add_block({"": values.reshape(1, -1, 1)})
                            left -= values.nbytes
                    statistics.sampled |= skipped
                    self.sampled |= statistics.sampled
                    about = _describe_dataset(stored[0], statistics, stored[0].shape)
                    about["trajectories"] = "all"
                if len(members) > 1:
                    shapes = []
                    for file, name in members[:: 1 + len(members) // _MOST_TIMES]:
                        with contextlib.suppress(InputError):
                            shapes.append(find_array(file, name).shape)
                    sizes = np.array([x for x in shapes if len(x) == len(shapes[0])])
                    ends = zip(sizes.min(0).tolist(), sizes.max(0).tolist(), strict=True)
                    about["count"] = len(members)
                    about["shape"] = [a if a == b else f"{a}..{b}" for a, b in ends]
            except InputError as error:
                if named and len(groups) == 1:
                    raise
                about = {"unreadable": str(error.faults[0].in_shell())}
            reports.append({"name": title, **about})
        return reports

    def _pick_dofs(self, file: Catalogue, name: str) -> Dataset:
        """Finds a dataset; one in the group of trajectories with their dofs has the chosen ones."""
        stored, pattern = file.require(name), mask_numbers(name)
        for batch in self.batches:
            companion = pattern.startswith(mask_numbers(batch.group)) and stored.numeric
            has_dofs = stored.ndim > 1 and stored.shape[-1] == batch.dofs.count
            if companion and has_dofs and name.rpartition("/")[2] not in ("dt", *STAMPS):
                return cast(Dataset, batch.pick(stored))
        return stored

    def _read_batch(self, k: int, budget: int) -> dict[str, dict[str, Any]]:
        """Describes the arrays of a batch, reading at most ``budget`` bytes of each."""
        batch = self.batches[k]
        chosen, _ = batch.take(self.numbers[k]).usable()
        ends = one_sided_rows(batch)
        # Derivatives are one-sided at the ends, and do not count as peaks there.
        arrays = [
            Statistics(name, batch.shape[2], ends=0 if name == "position" else ends)
            for name in batch.arrays
        ]
        turning = RotationStatistics(batch, ("norm", "sign", "angle"))
        jumps = TurnJumps(batch)
        rows = max(len(chosen), int(chosen.lengths.sum()))
        sampled = not self.full and rows * chosen.row_bytes > budget
        blocks = sample(chosen, budget * len(arrays)) if sampled else chosen.blocks(self.report)
        read_blocks(blocks, batch.arrays, (*arrays, turning, jumps))
        self.sampled |= sampled
        self.report.add_notes(*jumps.notes())
        reports: dict[str, dict[str, Any]] = {}
        first = first_part(batch)
        for statistics in arrays:
            statistics.sampled = sampled
            stored = first.arrays[statistics.name]
            about = reports[label(batch, statistics.name)] = _describe_dataset(
                stored, statistics, stored.shape[1:] if first.single else stored.shape
            )
            about["units"] = batch.unit(statistics.name)
            about["trajectories"] = self.episodes or "all"
            about["nonfinite_at"] = [
                {"trajectory": at.trajectory, "row": at.row, "dof": batch.dofs.numbers[at.dof]}
                for at in statistics.nonfinite[:5]
            ]
            about["dofs"] = batch.dof_labels
            if stored.dtype.kind != "f":
                continue
            about["per_dof"] = []
            for dof, peak_row in enumerate(statistics.peak_rows):
                facts: dict[str, Any] = dict.fromkeys(("min", "max", "peak", "at"))
                if peak_row is not None:
                    trajectory, row = peak_row
                    times = batch.take([trajectory]).take([0], range(row, row + 1)).known_times()
                    time = None if times is None else float(times[0, 0])
                    ranges = (statistics.low, statistics.high, statistics.peak)
                    facts["min"], facts["max"], facts["peak"] = (float(x[dof]) for x in ranges)
                    facts["at"] = {"trajectory": trajectory, "row": row, "time": time}
                about["per_dof"].append(facts)
        if turning.rotations:
            reports[label(batch, arrays[0].name)]["rotations"] = turning.facts()
        return reports


def _describe_dataset(
    stored: Dataset, statistics: Statistics, shape: Sequence[int]
) -> dict[str, Any]:
    units, known = stored.attributes.get("units"), statistics.known
    about: dict[str, Any] = {
        "shape": list(shape),
        "dtype": "text" if stored.dtype.kind in "SUO" else str(stored.dtype),
        "storage": stored.storage,
        "units": None if units is None else str(units),
    }
    if stored.numeric:
        # A sample does not show that there is no NaN or Inf; integers hold none.
        counted = not statistics.sampled or stored.dtype.kind != "f"
        about |= {name: getattr(statistics, name) if counted else None for name in ("nan", "inf")}
        about["min"] = float(statistics.low.min()) if known else None
        about["max"] = float(statistics.high.max()) if known else None
    return about


def report(
    facts: Mapping[str, Any],
    charts: Sequence[Chart],
    dofs: Sequence[str],
    size: str,
    console: Console,
) -> Iterator[RenderableType]:
    from rich.text import Text

    family = ", ".join(name for name in (facts["family"], facts["layout"]) if name)
    yield Text.assemble((facts["file"], "bold"), f": {family}, {size}")
    timed = facts["trajectories"]["count"] and facts["dt"]
    hidden = (*_FIRST, *_UNSHOWN, *(_TIMES if timed else ()))
    attributes = facts["attributes"]
    names = [name for name in _FIRST if name in attributes]
    names += [name for name in attributes if name not in hidden]
    lines = [""]
    # Lines break between attributes, never within one.
    for name in names:
        text = f"{name} = {shortened(' '.join(str(attributes[name]).split()), _LONGEST)}"
        if lines[-1] and len(lines[-1]) + len(text) + 3 > console.width:
            lines.append("")
        lines[-1] = f"{lines[-1]} · {text}" if lines[-1] else f"  {text}"
    yield from map(Text, filter(None, lines))
    if facts["trajectories"]["count"]:
        yield from (Text(f"  {x}") for x in _trajectory_lines(facts["trajectories"], facts["dt"]))
    yield from _dataset_table(facts["datasets"], "x" if console.options.ascii_only else "×")
    yield from _peak_tables(facts["datasets"])
    if facts["one_sided"]:
        rows = f"the first and the last {facts['one_sided']} rows"
        yield Text(f"peaks without {rows} of each trajectory, whose windows are one-sided")
    if charts and console.is_terminal and not console.options.ascii_only:
        yield Text(f"\ntrajectory {facts['trajectories']['shown'][0]}", "bold")
        yield figure(charts, dofs, console)
    if facts["sampled"]:
        yield Text("from a sample of the values, spread over the file; --full looks at all of them")


def _trajectory_lines(counts: Mapping[str, Any], dt: Mapping[str, Any] | None) -> Iterator[str]:
    noun = "trajectory" if counts["count"] == 1 else "trajectories"
    rows = " to ".join(dict.fromkeys(map(str, counts["rows"])))
    text = f"{counts['count']} {noun} of {rows} rows, {counts['dofs']} dofs"
    if rates := counts.get("rates"):
        seconds = " to ".join(dict.fromkeys(f"{end:.4g}" for end in counts["duration"]))
        shown = {"": [counts["rate"]]} if counts["rate"] else rates
        texts = (
            f" at {name} {' to '.join(dict.fromkeys(map(number, ends)))} Hz".replace("  ", " ")
            for name, ends in shown.items()
            if None not in ends
        )
        text += f"; {seconds} s{','.join(texts)}{', sampled' if counts['sampled'] else ''}"
        if counts["jitter"]:
            text += f", jitter up to {1e3 * counts['jitter']:.3g} ms"
    yield text
    if stamps := counts.get("start_stamps"):
        starts = " to ".join(map(str, sorted(set(stamps))))
        yield f"begins at {starts} {counts['stamps_unit']}, by the stamps of the source"
    if dt is None:
        yield "no time step in the file: rows are counted"
    elif dt["value"] is None:
        yield dt["source"]
    else:
        yield f"dt {'' if dt['value'] == 'varies' else '= '}{dt['value']}, from {dt['source']}"


def _dataset_table(datasets: Sequence[Mapping[str, Any]], times: str) -> Iterator[RenderableType]:
    from rich.text import Text

    # Datasets of other trajectories than --episodes are marked.
    chosen = {dataset["trajectories"] for dataset in datasets if "trajectories" in dataset}
    headings = ["dataset", "shape", "type", "stored", "unit", "> min", "> max", "> NaN", "> Inf"]
    rows = []
    for dataset in datasets:
        shape = times.join(str(n) for n in dataset.get("shape", ())) or "one number"
        shape = f"{dataset['count']} of {shape}" if "count" in dataset else shape
        marked = len(chosen) > 1 and dataset.get("trajectories") == "all"
        row = [f"{dataset['name']} *" if marked else dataset["name"]]
        if "unreadable" in dataset:
            row.append("not read")
        else:
            row += [shape, dataset["dtype"], dataset["storage"], dataset["units"] or ""]
            row += [number(dataset.get("min")), number(dataset.get("max"))]
            counts = (dataset.get(key, "") for key in ("nan", "inf"))
            row += ["–" if count is None else str(count) for count in counts]
        rows.append(row)
    yield Text()
    yield TextTable(headings, rows, ("stored", "type", "Inf", "NaN", "unit"))
    if len(chosen) > 1:
        yield Text(f"* of all trajectories; the others of --episodes {min(chosen - {'all'})}")
    for dataset in datasets:
        if "unreadable" in dataset:
            yield Text(dataset["unreadable"])
        if places := dataset.get("nonfinite_at"):
            at = "; ".join(", ".join(f"{axis} {n}" for axis, n in at.items()) for at in places)
            yield Text(f"NaN or Inf in {dataset['name']}: {at}")


def _peak_tables(datasets: Sequence[Mapping[str, Any]]) -> Iterator[RenderableType]:
    """Yields the range and the peaks of each dof, and by how much rotations turn and are off."""
    from rich.text import Text

    groups: dict[tuple[str, bool], dict[str, Any]] = {}
    for dataset in datasets:
        if 0 < len(dataset.get("per_dof", ())) <= _MOST_DOFS:
            group, _, last = dataset["name"].rpartition("/")
            rate = last in ROTATIONS[1:]
            key = group if rate or last in QUANTITIES else dataset["name"]
            groups.setdefault((key, rate), {})[last] = dataset
    ordered = (*QUANTITIES, *ROTATIONS)
    for (key, _), members in groups.items():
        columns: dict[tuple[str, str], Sequence[str]] = {}
        columns["", "dof"] = next(iter(members.values()))["dofs"]
        for name in dict.fromkeys([*(name for name in ordered if name in members), *members]):
            dofs, dataset = members[name]["per_dof"], members[name]
            texts = {k: [number(dof[k]) for dof in dofs] for k in ("min", "max", "peak")}
            if name not in _PEAKS:
                columns[name, "> p min" if name == "position" else "> min"] = texts["min"]
                columns[name, "> max"] = texts["max"]
            if name != "position":
                columns[name, f"> {_PEAKS.get(name, 'peak')}"] = texts["peak"]
                # Peaks are at #13 0.244 s; without the trajectory where there is only one.
                shape = dataset["shape"]
                single = "count" not in dataset and (len(shape) < 3 or shape[0] == 1)
                columns[name, "when"] = when = list[str]()
                for at in (dof["at"] for dof in dofs):
                    time = at and (
                        f"row {at['row']}" if at["time"] is None else f"{at['time']:.3f} s"
                    )
                    when.append((time if single else f"#{at['trajectory']} {time}") if at else "")
        yield Text(f"\n{key}" if key not in ("", "*", *members) else "", "bold")
        headings, rows = [head for _, head in columns], list(zip(*columns.values(), strict=True))
        yield TextTable(headings, rows, ("when", "max", "p min"))
    rotations = [
        [dataset["name"], x["name"], number(x["turn"]), number(x["norm"]), str(x["signs"])]
        for dataset in datasets
        for x in dataset.get("rotations", ())
    ]
    if rotations:
        yield Text()
        headings = ["dataset", "rotation", "> rad from start", "> norm off by", "> sign changes"]
        yield TextTable(headings, rotations)
