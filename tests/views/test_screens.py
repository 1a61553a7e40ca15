"""What is shown, letter by letter: tables and charts at 80 and 120 columns, ASCII and UTF-8.

The expected texts lie in ``snapshots``; the command lines are their names.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from trajcli.cli import main
from trajcli.files.source import Source
from trajcli.views.charts import Chart, draw
from trajcli.views.comparison import comparison
from trajcli.views.datasets import Wish
from trajcli.views.differences import Difference
from trajcli.views.inspection import describe
from trajcli.views.judgement import judgement
from trajcli.views.screen import Screen, columns_of, shown, within
from trajcli.views.summary import summarise
from trajcli.views.tables import table
from trajcli.views.verdicts import Asked, check_file

SNAPSHOTS = Path(__file__).parent / "snapshots"
SCREENS = {
    "80-utf8": Screen(80, True, True, False),
    "120-utf8": Screen(120, True, True, False),
    "80-ascii": Screen(80, True, False, False),
    "120-ascii": Screen(120, True, False, False),
}
NARROW = {"40-utf8": Screen(40, True, True, False), "60-utf8": Screen(60, True, True, False)}


@pytest.fixture(scope="module")
def outputs(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Path:
    folder = tmp_path_factory.mktemp("out")
    samples = request.getfixturevalue("samples")
    job = f"integrate {samples}/control_points.npz --mode bspline --steps 2 -q -o"
    assert main([*job.split(), str(folder / "out.h5")]) == 0
    return folder


def compared(name: str, lines: list[str]) -> None:
    expected = (SNAPSHOTS / f"{name}.txt").read_text(encoding="utf-8")
    assert "\n".join(lines) + "\n" == expected, "\n".join(lines)


def inspected(samples: Path, screen: Screen, charts: bool = True) -> list[str]:
    summary = summarise(Source(samples / "reach.h5"), Wish(index="3", dof="0:2"))
    summary.report["file"] = "reach.h5"
    summary.report["dt"]["source"] = "reach.h5:/dt"
    summary = summary if charts else replace(summary, curves=())
    return list(within(describe(summary, "982 kB", screen), screen))


@pytest.mark.parametrize("screen", SCREENS | NARROW)
def test_inspect_shows(samples, screen):
    lines = inspected(samples, (SCREENS | NARROW)[screen])
    assert all(columns_of(line) <= int(screen.partition("-")[0]) for line in lines)
    if "ascii" in screen:
        assert "\n".join(lines).isascii()
    compared(f"inspect-{screen}", lines)


@pytest.mark.parametrize("screen", SCREENS)
def test_check_shows(samples, outputs, screen):
    verdicts = check_file(Source(outputs / "out.h5"), Asked(limits=samples / "limits.toml"))
    lines = list(judgement("out.h5", verdicts, SCREENS[screen]))
    assert all(columns_of(line) <= SCREENS[screen].width for line in lines)
    if "ascii" in screen:
        assert "\n".join(lines).isascii()
    assert "checks failed" in lines[-1]
    # the residual depends on the machine's arithmetic
    compared(f"check-{screen}", [re.sub(r"residual .* of rounding", "…", line) for line in lines])


def differences() -> tuple[list[Difference], list[tuple[str, float, str]]]:
    found = [
        Difference("position", "", (2, 3, 4), "float32", 24, 2, 1, 0.25, 0.1, 12345.0, (1, 2, 3),
                   (1.25, 1.5)),
        Difference("velocity", "", (2, 3, 4), "float32", 24),
        Difference("time", "shapes differ: [3] and [4]"),
    ]  # fmt: skip
    return found, [("dt", 0.02, "varies")]


@pytest.mark.parametrize("screen", SCREENS | NARROW)
def test_diff_shows(screen):
    on = (SCREENS | NARROW)[screen]
    lines = list(within(comparison("a.h5", "b.h5", *differences(), on), on))
    assert all(columns_of(line) <= on.width for line in lines)
    compared(f"diff-{screen}", lines)


def numbers(lines: Iterable[str]) -> Counter[str]:
    """The words that are numbers, and shapes."""
    found = (word.strip("[],()#s") for line in lines for word in line.split())
    return Counter(word for word in found if re.fullmatch(r"-?\d[-+.e×\d]*", word))


@pytest.mark.parametrize("width", [30, 40, 50, 60, 72, 80, 100])
def test_no_number_is_left_out_or_broken_however_narrow_the_screen(samples, outputs, width):
    verdicts = check_file(Source(outputs / "out.h5"), Asked(limits=samples / "limits.toml"))
    for shown_on in (
        lambda on: judgement("out.h5", verdicts, on),
        lambda on: comparison("a.h5", "b.h5", *differences(), on),
        lambda on: inspected(samples, on, charts=False),
    ):
        whole = numbers(shown_on(Screen(1000, True, True, False)))
        narrow = Screen(width, True, True, False)
        lines = list(within(shown_on(narrow), narrow))
        assert all(columns_of(line) <= width for line in lines)
        assert len(whole) > 5
        assert not whole - numbers(lines)


def test_a_table_that_does_not_fit_is_a_block_for_each_row():
    columns = [("name", "left"), ("first", "right"), ("", "left"), ("second one", "left")]
    rows = [["a", "1.2345678", "ok", "2.3456789e-12, 17"], ["", "5", "", ""], ["b", "", "no", "x"]]
    assert table(columns, rows, Screen(28), "title") == [
        "title",
        " name a",
        "   first      1.2345678",
        "              ok",
        "   second one 2.3456789e-12,",
        "              17",
        "   first      5",
        " name b",
        "              no",
        "   second one x",
    ]


def test_a_terminal_gets_dots_and_colours_and_a_pipe_letters():
    chart = Chart("x", np.arange(40.0), [(0, np.arange(40.0)), (1, -np.arange(40.0))], " s")
    dots = "\n".join(draw(chart, Screen(80, True, True, True), 60, 6))
    letters = "\n".join(draw(chart, Screen(80, False, True, False), 60, 6))
    assert re.search("[\u2801-\u28ff]", dots)
    assert "\x1b[38;5;32m" in dots
    assert letters.isascii()
    assert {"0", "1"} <= set(letters)


@pytest.mark.parametrize("across", [30, 100])
def test_a_rising_line_rises_without_gaps(across):
    x = np.linspace(0.0, 1.0, 7)
    lines = draw(Chart("x", x, [(0, x)], ""), Screen(across), across, 8)[1:-2]
    columns = [[row for row, line in enumerate(lines) if line[i : i + 1] == "0"]
               for i in range(11, across)]  # fmt: skip
    assert all(columns)
    lowest = [max(rows) for rows in columns]
    assert lowest == sorted(lowest, reverse=True)
    assert (lowest[0], lowest[-1]) == (7, 0)


def test_peaks_of_many_values_are_drawn():
    y = np.zeros(100_000)
    y[54_321] = 1.0
    lines = draw(Chart("x", np.arange(1e5), [(0, y)], ""), Screen(80), 80, 8)
    assert "0" in lines[1][11:]


def test_charts_of_nothing_constants_and_nan_are_drawn_too():
    for y in (np.zeros(0), np.ones(5), np.full(5, np.nan), np.array([np.inf, 1.0, -np.inf])):
        chart = Chart("x", np.arange(float(len(y))), [(0, y)], "")
        assert len(draw(chart, Screen(80), 80, 5)) == 8


def test_a_table_folds_words_before_numbers_and_stays_within_its_screen():
    rows = [["a very long name of a dataset, or two", "1.23456789", "x" * 50]]
    lines = table([("dataset", "left"), ("value", "right"), ("note", "left")], rows, Screen(50))
    assert all(columns_of(line) <= 50 for line in lines)
    assert any("1.23456789" in line for line in lines)


def test_what_would_steer_a_terminal_is_written_out():
    assert shown("a\x1b[2Jb\u202ec") == "a\\x1b[2Jb\\u202ec"
    assert "\x1b" not in "\n".join(table([("x", "left")], [["\x1b]0;x\x07"]], Screen(80)))
