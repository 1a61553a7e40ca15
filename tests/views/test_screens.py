"""Tables and plots in a terminal, letter by letter: narrow and wide, in ASCII, too.

The expected texts lie in ``snapshots``.
"""

from __future__ import annotations

import io
import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from trajcli.views.diff import Difference, report
from trajcli.views.terminal import Chart, TextTable, draw, figure

SNAPSHOTS = Path(__file__).parent / "snapshots"


def console(width: int, encoding: str = "utf-8", colour: bool = False) -> Console:
    """A terminal of this width."""
    system: Any = "256" if colour else None
    file = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    return Console(file=file, width=width, force_terminal=colour, color_system=system,
                   highlight=False)  # fmt: skip


def shown(on: Console, *renderables: Any) -> list[str]:
    """The lines that renderables become."""
    with on.capture() as capture:
        for one in renderables:
            on.print(one)
    return [line.rstrip() for line in capture.get().splitlines()]


def differences() -> tuple[list[Difference], list[tuple[str, float, str]]]:
    many = [Difference(f"data/demo_{n}/velocity", shape=(5, 2), values=10) for n in range(200)]
    many[7] = Difference("data/demo_7/velocity", "", "", (5, 2), "float64", 10, 3, 3, 2e-9, 1e-9,
                         9.0, 1e-17, (4, 1), 1.5, 1.500000002)  # fmt: skip
    found = [
        Difference("position", "", "", (2, 3, 4), "float32", 24, 2, 1, 0.25, 0.1, 12345.0, 0.0625,
                   (1, 2, 3), 1.25, 1.5),
        *many,
        Difference("jerk", note="101 and 51 rows, aligned by time; a interpolated", values=24),
        Difference("time", "shapes differ: [3] and [4]"),
    ]  # fmt: skip
    return found, [("dt", 0.02, "varies"), ("source", None, "x" * 300)]


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
def test_diff_shows(width, encoding):
    lines = shown(console(width, encoding), *report(("a.h5", "b.h5"), *differences(), False))
    assert all(len(line) <= width for line in lines)
    text = "\n".join(lines)
    if encoding == "ascii":
        assert "─" not in text
        assert numbers(lines) == numbers((SNAPSHOTS / f"diff-{width}.txt").read_text().splitlines())
        return
    assert text + "\n" == (SNAPSHOTS / f"diff-{width}.txt").read_text(encoding="utf-8"), text


def numbers(lines: Iterable[str]) -> Counter[str]:
    """The words that are numbers."""
    words = (word.strip("[](),#s:") for line in lines for word in line.replace("|", " ").split())
    return Counter(word for word in words if re.fullmatch(r"-?\d[-+.e×\d]*", word))


@pytest.mark.parametrize("width", [80, 100, 120])
def test_terminals_of_usual_width_show_every_number_unbroken(width):
    whole, narrow = (
        numbers(shown(on, *report(("a.h5", "b.h5"), *differences(), False)))
        for on in (console(1000), console(width))
    )
    assert len(whole) > 15
    assert not whole - narrow


@pytest.mark.parametrize("width", [60, 72, 80])
def test_a_table_leaves_out_columns_before_it_breaks_a_name(width):
    names = ["reference/acceleration", "start/position", "観測/関節位置"]
    rows = [[name, "64×65×7", "contiguous", "rad/s^2", "-2.127", "2.274"] for name in names]
    columns = ["dataset", "shape", "stored", "unit", "> min", "> max"]
    lines = shown(console(width), TextTable(columns, rows, ("stored", "unit")))
    assert len(lines) == 2 + len(rows)
    assert all(name in line for name, line in zip(names, lines[2:], strict=True))
    assert all("-2.127" in line and "2.274" in line for line in lines[2:])
    assert ("contiguous" in "".join(lines)) is (width > 60)
    narrow = shown(console(40), TextTable(columns, rows, ("stored", "unit")))
    assert [line[:14].rstrip() for line in narrow[2:4]] == ["reference/", "acceleration"]
    assert all(len(line) <= 40 for line in narrow)


def test_a_name_that_fits_nowhere_is_cut_in_the_middle():
    table = TextTable(["dataset"], [["a" * 30 + "position"]])
    (line,) = shown(console(20), table)[2:]
    assert line == "aaaaaa…aaaaaposition"


def test_hundreds_of_trajectories_alike_are_a_line_unless_all_are_wanted():
    on = console(160)
    few = shown(on, *report(("a", "b"), *differences(), False))
    assert len(few) < 20
    assert any("demo_*/velocity (200): worst at data/demo_7 [4, 1]" in line for line in few)
    every = shown(on, *report(("a", "b"), *differences(), True))
    assert sum("/velocity " in line and "worst" not in line for line in every) == 200


def curves(y: Any, x: Any = None) -> Chart:
    values = np.asarray(y, dtype=np.float64)
    values = values[:, None] if values.ndim == 1 else values
    return Chart("x", np.arange(float(len(values))) if x is None else x, " s", values)


def dots(y: Any, x: Any = None, across: int = 80) -> np.ndarray:
    """Which dots of a plot are set, [4 · 8, 2 · columns]."""
    rows = [str(line)[11:] for line in draw(curves(y, x), across)[1:-2]]
    cells = np.array([[max(ord(c) - 0x2800, 0) for c in row.ljust(across - 11)] for row in rows])
    bits = np.array([[0, 3], [1, 4], [2, 5], [6, 7]])
    return np.block([[(cell >> bits) & 1 for cell in row] for row in cells]).astype(bool)


def test_a_plot_has_dots_and_colours():
    rising, coloured = np.stack([np.arange(40.0), -np.arange(40.0)], 1), console(80, colour=True)
    with coloured.capture() as capture:
        coloured.print(figure([curves(rising)], ["one", "two"], coloured))
    assert re.search("[\u2801-\u28ff]", capture.get())
    assert "38;5;32m" in capture.get()
    plain = "\n".join(shown(console(80), figure([curves(rising)], ["one", "two"], console(80))))
    assert plain.startswith("━ one  ━ two\n")


@pytest.mark.parametrize("across", [30, 100])
def test_a_rising_line_rises_without_gaps(across):
    x = np.linspace(0.0, 1.0, 7)
    drawn = dots(x, x, across)
    assert drawn.any(0).all()
    assert (np.diff(len(drawn) - 1 - drawn[::-1].argmax(0)) <= 0).all()
    assert drawn[-1, 0]
    assert drawn[0, -1]


def test_peaks_of_many_values_are_drawn():
    y = np.zeros(100_000)
    y[54_321] = 1.0
    assert dots(y)[0].any()


def test_a_line_is_interrupted_where_values_are_not_finite():
    y = np.ones(60)
    y[20:40] = np.nan
    columns = dots(y, across=71).any(0)
    assert not columns[50:70].any()
    assert columns[:36].all()
    assert columns[84:].all()


def test_nothing_constants_and_nan_are_drawn_too():
    for y in (np.zeros(0), np.ones(5), np.full(5, np.nan), np.array([np.inf, 1.0, -np.inf])):
        assert len(draw(curves(y), 80)) == 11
