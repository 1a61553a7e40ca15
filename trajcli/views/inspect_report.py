"""What is in a file, for people: tables of datasets and peaks, rows, a plot."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from trajcli.files.schema import QUANTITIES
from trajcli.views.inspect import Inspection
from trajcli.views.terminal import Table, cut, figure, number

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.text import Text

_PEAKS = {"velocity": "peak |v|", "acceleration": "|a|", "jerk": "|j|"}
_FIRST = ("mode", "scheme", "degree", "steps", "ends", "frames", "convention")
_UNSHOWN = ("long_name", "gradient_factor", "gradient_of", "trajcli_version", "request")
_TIMES = ("dt", "dt_source", "source_dt", "rate", "fps", "control_freq")
"""Attributes that the lines about the trajectories repeat."""
_MOST_DOFS = 64


def report(inspection: Inspection, size: str, console: Console) -> Iterator[RenderableType]:
    """The parts of a report; size: of the file, in words."""
    from rich.text import Text

    facts = inspection.report
    family = ", ".join(name for name in (facts["family"], facts["layout"]) if name)
    yield Text.assemble((facts["file"], "bold"), f": {family}, {size}")
    timed = facts["trajectories"]["count"] and facts["dt"]
    hidden = (*_FIRST, *_UNSHOWN, *(_TIMES if timed else ()))
    attributes = facts["attributes"]
    names = [name for name in _FIRST if name in attributes]
    names += [name for name in attributes if name not in hidden]
    if names:
        shown = [f"{name} = {cut(' '.join(str(attributes[name]).split()))}" for name in names]
        yield _joined(shown, console.width)
    if facts["trajectories"]["count"]:
        yield Text("\n".join(f"  {line}" for line in _trajectories(facts)))
    yield from _datasets(facts["datasets"], "x" if console.options.ascii_only else "×")
    yield from _peaks(facts["datasets"])
    if facts["one_sided"]:
        rows = f"the first and the last {facts['one_sided']} rows"
        yield Text(f"peaks without {rows} of each trajectory, whose windows are one-sided")
    if inspection.curves and console.is_terminal and not console.options.ascii_only:
        yield Text(f"\ntrajectory {facts['trajectories']['shown'][0]}", "bold")
        yield figure(inspection.curves, inspection.dofs, console)
    if facts["sampled"]:
        yield Text("from a sample of the values, spread over the file; --full looks at all of them")


def _joined(texts: Sequence[str], width: int) -> Text:
    """Texts in lines that do not break within one, where it is not longer than a line."""
    from rich.text import Text

    lines = [f"  {texts[0]}"]
    for text in texts[1:]:
        longer = f"{lines[-1]} · {text}"
        lines = [*lines[:-1], longer] if len(longer) <= width else [*lines, f"  {text}"]
    return Text("\n".join(lines))


def _trajectories(facts: Mapping[str, Any]) -> Iterator[str]:
    """How many trajectories, how long, at which rate, and where their times are from."""
    counts, dt = facts["trajectories"], facts["dt"]
    many = "trajectory" if counts["count"] == 1 else "trajectories"
    text = f"{counts['count']} {many} of {_range(counts['rows'], 'd')} rows, {counts['dofs']} dofs"
    if counts.get("rate"):
        text += f"; {_range(counts['duration'], '.4g')} s at {counts['rate']:.4g} Hz"
        text += ", sampled" if counts["sampled"] else ""
        if counts["jitter"]:
            text += f", steps up to {1e3 * counts['jitter']:.3g} ms off the median"
    yield text
    if dt is None:
        yield "no time step in the file: rows are counted"
    elif dt["value"] is None:
        yield dt["source"]
    else:
        yield f"dt {'' if dt['value'] == 'varies' else '= '}{dt['value']}, from {dt['source']}"


def _range(ends: Sequence[float], form: str) -> str:
    low, high = (format(end, form) for end in ends)
    return low if low == high else f"{low} to {high}"


def _datasets(datasets: Sequence[Mapping[str, Any]], times: str) -> Iterator[RenderableType]:
    """A row for each dataset, * where it is of other trajectories than those of --episodes."""
    from rich.text import Text

    chosen = {one["trajectories"] for one in datasets if "trajectories" in one}
    headings = ["dataset", "shape", "type", "stored", "unit", "> min", "> max", "> NaN", "> Inf"]
    rows = []
    for one in datasets:
        shape = times.join(str(n) for n in one.get("shape", ())) or "one number"
        shape = f"{one['count']} of {shape}" if "count" in one else shape
        name = one["name"] + " *" * (len(chosen) > 1 and one.get("trajectories") == "all")
        values = [number(one.get("min")), number(one.get("max"))]
        values += [str(one.get(key, "")) for key in ("nan", "inf")]
        known = "unreadable" not in one
        row = [shape, one["dtype"], one["storage"], one["units"] or "", *values] if known else []
        rows.append([name, *(row or ["not read"])])
    yield Text()
    yield Table(headings, rows, ("type", "stored", "unit", "NaN", "Inf"))
    if len(chosen) > 1:
        yield Text(f"* of all trajectories; the others of --episodes {min(chosen - {'all'})}")
    for one in datasets:
        if "unreadable" in one:
            yield Text(one["unreadable"])
        places = [f"trajectory {at['trajectory']}, row {at['row']}, dof {at['dof']}"
                  for at in one.get("nonfinite_at", ())]  # fmt: skip
        if places:
            yield Text(f"NaN or Inf in {one['name']}: {'; '.join(places)}")


def _peaks(datasets: Sequence[Mapping[str, Any]]) -> Iterator[RenderableType]:
    """Per dof the range and the peaks; position to jerk of one group in one table."""
    from rich.text import Text

    groups: dict[str, dict[str, Any]] = {}
    for one in datasets:
        if 0 < len(one.get("per_dof", ())) <= _MOST_DOFS:
            group, _, last = one["name"].rpartition("/")
            groups.setdefault(group if last in QUANTITIES else one["name"], {})[last] = one
    for key, members in groups.items():
        columns: list[tuple[str, Sequence[str]]] = [("dof", next(iter(members.values()))["dofs"])]
        for name in dict.fromkeys([*(n for n in QUANTITIES if n in members), *members]):
            dofs = members[name]["per_dof"]
            if name not in _PEAKS:
                columns.append(
                    ("> p min" if name == "position" else "> min", _numbers(dofs, "min"))
                )
                columns.append(("> max", _numbers(dofs, "max")))
            if name != "position":
                columns.append((f"> {_PEAKS.get(name, 'peak')}", _numbers(dofs, "peak")))
                columns.append(("when", [_when(dof, members[name]) for dof in dofs]))
        yield Text(f"\n{key}" if key not in ("", "*", *members) else "", "bold")
        headings, texts = zip(*columns, strict=True)
        yield Table(headings, list(zip(*texts, strict=True)), ("p min", "max", "when"))


def _numbers(dofs: Sequence[Mapping[str, Any]], key: str) -> list[str]:
    return [number(dof[key]) for dof in dofs]


def _when(dof: Mapping[str, Any], dataset: Mapping[str, Any]) -> str:
    at = dof["at"]
    if at is None:
        return ""
    one = "count" not in dataset and (len(dataset["shape"]) < 3 or dataset["shape"][0] == 1)
    which = "" if one else f"#{at['trajectory']} "
    return which + (f"row {at['row']}" if at["time"] is None else f"{at['time']:.3f} s")
