"""A file's summary as text: tables, states and charts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from trajcli.files.schema import QUANTITIES
from trajcli.views.charts import Chart, beside, draw, legend
from trajcli.views.curves import Curve
from trajcli.views.screen import Screen, filled, shown, shown_list
from trajcli.views.summary import Summary
from trajcli.views.tables import table

_PEAKS = {"velocity": "peak |v|", "acceleration": "|a|", "jerk": "|j|"}
_SHORT = {"position": "p", "velocity": "v", "acceleration": "a", "jerk": "j"}
_FIRST = ("mode", "scheme", "degree", "steps", "ends", "frames", "convention", "dt", "dt_source")
_SECONDARY = ("long_name", "wrt", "gradient_factor", "gradient_of", "trajcli_version")
_WIDE = 110
"""From this width on, two charts stand side by side."""
_NARROW = 72
"""Below this width, how values are stored is left out."""
_MOST_DOFS = 64


def describe(summary: Summary, size: str, screen: Screen) -> Iterator[str]:
    """The lines that show a summary; ``size``: of the file, in words."""
    report = summary.report
    yield from _head(report, size, screen)
    yield ""
    yield from _datasets(report["datasets"], screen)
    yield from _whose(report["datasets"])
    for dataset in report["datasets"]:
        if "unreadable" in dataset:
            yield shown_lines(dataset["unreadable"])
        yield from _places(dataset)
    yield from _dofs(report["datasets"], screen)
    yield from _states(report["states"], screen)
    if report["rows"] is not None:
        yield from _rows(report["rows"], screen)
    if report["relation"] is not None:
        yield ""
        yield from relation_lines(report["relation"], screen)
    yield from _charts(summary.curves, screen)
    if report["sampled"]:
        yield ""
        yield "from a sample of the values, spread over the file; --full looks at all of them"


def shown_lines(text: str) -> str:
    """A text of several lines as it may be shown."""
    return "\n".join(shown(line) for line in text.split("\n"))


def relation_lines(relation: Mapping[str, Any], screen: Screen) -> list[str]:
    """The residual of the mode's relation, and what it comes to beside rounding."""
    ratio = f"{relation['times_rounding']:.2g}"
    holds = relation["holds"]
    verdict = "holds" if holds else screen.alarming("is broken")
    residual = f"residual {abs(relation['residual']):.2g}, {ratio} of what rounding explains"
    parts = [f"relation of {relation['mode']} {verdict}: {residual}"]
    if relation["at"]:
        parts.append(f"{relation['dataset']}, {_place(relation['at'])}")
    if not holds:
        parts.append(f"{relation['failing']} of {relation['numbers']} numbers fail")
    return filled(parts, screen, ", ")


def _place(at: Mapping[str, int]) -> str:
    return f"trajectory {at['trajectory']}, row {at['row']}, dof {at['dof']}"


def _head(report: Mapping[str, Any], size: str, screen: Screen) -> Iterator[str]:
    families = ", ".join(name for name in (report["family"], report["layout"]) if name)
    yield screen.strong(shown(report["file"])) + f": {families}, {size}"
    attributes = report["attributes"]
    names = [name for name in _FIRST if name in attributes]
    names += [name for name in attributes if name not in (*_FIRST, *_SECONDARY)]
    told = [f"{name} = {shown_list(str(attributes[name]))}" for name in names]
    yield from filled(told, screen, screen.dot, "  ")
    dt = report["dt"]
    if dt and "dt" not in report["attributes"]:
        yield f"  dt = {dt['value']}, from {shown(dt['source'])}"


def _datasets(datasets: Sequence[Mapping[str, Any]], screen: Screen) -> list[str]:
    headings = ("dataset", "shape", "type", "stored", "unit", "min", "max", "NaN", "Inf")
    sides = ("left", "left", "left", "left", "left", "right", "right", "right", "right")
    rows = [_dataset_row(dataset, screen) for dataset in datasets]
    if _chosen(datasets):
        for row, dataset in zip(rows, datasets, strict=True):
            row[0] += " *" if dataset.get("trajectories") == "all" else ""
    kept = [i for i in range(len(headings)) if i != 3 or screen.width >= _NARROW]
    columns = [(headings[i], sides[i]) for i in kept]
    return table(columns, [[row[i] for i in kept] for row in rows], screen)


def _chosen(datasets: Sequence[Mapping[str, Any]]) -> str:
    """What --index says, where there is one."""
    told = (dataset.get("trajectories", "all") for dataset in datasets)
    return next((index for index in told if index != "all"), "")


def _whose(datasets: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Which numbers are of the chosen trajectories, where not all are."""
    chosen = _chosen(datasets)
    if chosen and any(dataset.get("trajectories") == "all" for dataset in datasets):
        yield f" * of all trajectories; the rest of --index {shown(chosen)}"


def _dataset_row(dataset: Mapping[str, Any], screen: Screen) -> list[str]:
    if "unreadable" in dataset:
        return [dataset["name"], "not read", *[""] * 7]
    shape = screen.times.join(str(n) for n in dataset["shape"]) or "one number"
    if "count" in dataset:
        shape = f"{dataset['count']} of {shape}"
    return [
        dataset["name"],
        shape,
        dataset["dtype"],
        dataset["storage"].replace("×", screen.times),
        dataset["units"] or "",
        number(dataset.get("min")),
        number(dataset.get("max")),
        str(dataset.get("nan", "")),
        str(dataset.get("inf", "")),
    ]


def _places(dataset: Mapping[str, Any]) -> Iterator[str]:
    """Where NaN and Inf are: the first few."""
    places = dataset.get("nonfinite_at")
    if places:
        count = dataset["nan"] + dataset["inf"]
        more = f" and {count - len(places)} more" if count > len(places) else ""
        listed = "; ".join(_place(at) for at in places)
        yield f"NaN or Inf in {shown(dataset['name'])}: {listed}{more}"


def _dofs(datasets: Sequence[Mapping[str, Any]], screen: Screen) -> Iterator[str]:
    """Per dof: range and peaks; position to jerk of one group together."""
    groups: dict[str, dict[str, Any]] = {}
    for dataset in datasets:
        per_dof = dataset.get("per_dof")
        if not per_dof or "at" not in per_dof[0] or len(per_dof) > _MOST_DOFS:
            continue
        group, _, last = dataset["name"].rpartition("/")
        key = group if last in QUANTITIES else dataset["name"]
        groups.setdefault(key, {})[last] = dataset
    for key, members in groups.items():
        together = {name: members[name] for name in QUANTITIES if name in members}
        yield ""
        yield from _peaks(key, together or members, screen)


def _peaks(key: str, members: Mapping[str, Any], screen: Screen) -> list[str]:
    first = next(iter(members.values()))
    names = _short(first["dofs"], screen)
    columns = [("dof", "left")]
    for name in members:
        if name not in _PEAKS:
            columns += [
                (f"{_SHORT[name]} min" if name in _SHORT else "min", "right"),
                ("max", "right"),
            ]
        columns += (
            [] if name == "position" else [(_PEAKS.get(name, "peak"), "right"), ("when", "left")]
        )
    rows = []
    for i, dof_name in enumerate(names):
        row = [dof_name]
        for name, dataset in members.items():
            dof = dataset["per_dof"][i]
            if name not in _PEAKS:
                row += [number(dof["min"]), number(dof["max"])]
            row += [] if name == "position" else [number(dof["peak"]), _when(dof, first)]
        rows.append(row)
    title = key if key and key not in members else ""
    return table(columns, rows, screen, title)


def _short(names: Sequence[str], screen: Screen) -> Sequence[str]:
    """Names without what all of them begin with, where there is little room."""
    first, last = min(names), max(names)
    same = next((i for i, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), 0)
    common = first[:same]
    cut = max(common.rfind(mark) for mark in "_/.-:") + 1
    return [name[cut:] for name in names] if screen.width < _WIDE and len(names) > 1 else names


def _when(dof: Mapping[str, Any], dataset: Mapping[str, Any]) -> str:
    at = dof.get("at")
    if at is None:
        return ""
    one = len(dataset["shape"]) < 3 or dataset["shape"][0] == 1
    which = "" if one else f"#{at['trajectory']} "
    return which + (f"row {at['row']}" if at["time"] is None else f"{at['time']:.3f}s")


def _states(states: Sequence[Mapping[str, Any]], screen: Screen) -> Iterator[str]:
    for state in states:
        if "start" not in state:
            continue
        names = list(state["start"])
        columns = [("dof", "left")]
        columns += [
            (f"{end} {_SHORT.get(name, name)}" if i == 0 else _SHORT.get(name, name), "right")
            for end in ("start", "end")
            for i, name in enumerate(names)
        ]
        rows = [
            [dof, *(number(state[end][name][i]) for end in ("start", "end") for name in names)]
            for i, dof in enumerate(state["dofs"])
        ]
        if len(rows) <= _MOST_DOFS:
            yield ""
            yield from table(columns, rows, screen, f"trajectory {shown(state['trajectory'])}")


def _rows(listed: Sequence[Mapping[str, Any]], screen: Screen) -> Iterator[str]:
    """Rows of trajectories, number by number."""
    for one in listed:
        names = [name for name in one if name not in ("trajectory", "dofs", "first", "time")]
        columns = [("row", "right"), *([("time", "right")] if one["time"] else []), ("", "left")]
        columns += [(dof, "right") for dof in one["dofs"]]
        rows = []
        for i in range(len(one[names[0]])):
            for n, name in enumerate(names):
                when = [f"{one['time'][i]:.6g}" if n == 0 else ""] if one["time"] else []
                values = [number(value, 6) for value in one[name][i]]
                rows.append([str(one["first"] + i) if n == 0 else "", *when, name, *values])
        yield ""
        yield from table(columns, rows, screen, f"trajectory {shown(one['trajectory'])}")


def _charts(curves: Sequence[Curve], screen: Screen) -> Iterator[str]:
    if not curves:
        return
    wide = screen.terminal and screen.width >= _WIDE
    width = screen.width // 2 - 1 if wide else min(screen.width, 100)
    blocks = [
        draw(_chart(curve), screen, width - 1, 8 if screen.terminal else 9) for curve in curves
    ]
    yield ""
    first = curves[0]
    if len(first.dofs) > 1:
        yield f"trajectory {shown(first.trajectory)}"
        names = [shown(dof) for dof in _short(first.dofs, screen)]
        yield from legend(names, screen, first.numbers)
    for i in range(0, len(blocks), 2 if wide else 1):
        yield ""
        yield from beside(blocks[i : i + 2], width + 1) if wide else blocks[i]


def _chart(curve: Curve) -> Chart:
    lines = [(n, curve.values[:, i]) for i, n in enumerate(curve.numbers)]
    unit = f", {shown(curve.unit)}" if curve.unit else ""
    return Chart(f"{shown(curve.name)}{unit}", curve.time, lines, " s" if curve.timed else "")


def number(value: float | None, digits: int = 4) -> str:
    """A number of a few digits; nothing for None."""
    return "" if value is None else f"{value + 0.0:.{digits}g}"  # no -0
