"""Tables of text: headings, times and trajectories are found, and values are NumPy's."""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np
import pytest


def write(path: str, heading: str, rows: np.ndarray, **more: object) -> None:
    with open(path, "w") as file:
        if heading:
            file.write(heading + "\n")
        np.savetxt(file, rows, fmt="%.17g", **{"delimiter": ",", **more})


def recording(rows: int = 40, dofs: int = 3) -> tuple[np.ndarray, np.ndarray]:
    times = 5.0 + 0.02 * np.arange(rows)
    return times, np.sin(times[:, None] * np.arange(1, dofs + 1))


def arrays(trajcli, source: str) -> dict[str, list[int]]:
    shown = trajcli(f"inspect {source} --json", code=0)
    return {one["name"]: one["shape"] for one in shown.document["datasets"]}


@pytest.mark.parametrize("stamp", ["t", "time", "Timestamp", "stamp", "time [s]"])
@pytest.mark.parametrize(
    "names", [("q0", "q1", "q2"), ("q/a", "q/b", "q/c"), ("q[0]", "q[1]", "q[2]")]
)
def test_columns_of_one_prefix_are_one_array_with_times(trajcli, folder, stamp, names):
    times, positions = recording()
    write("log.csv", ",".join([stamp, *names]), np.column_stack([times, positions]))
    trajcli("differentiate log.csv:q --method central -o out.h5", code=0)
    with h5py.File("out.h5") as file:
        np.testing.assert_array_equal(np.squeeze(file["position"]), positions)
        assert abs(file.attrs["dt"] - 0.02) < 1e-15


@pytest.mark.parametrize(
    ("delimiter", "ending"), [(",", "csv"), (";", "csv"), ("\t", "tsv"), (" ", "txt")]
)
def test_any_of_the_usual_delimiters_divides_columns(trajcli, folder, delimiter, ending):
    times, positions = recording()
    heading = "# " + delimiter.join(["t", "q0", "q1", "q2"])
    write(f"log.{ending}", heading, np.column_stack([times, positions]), delimiter=delimiter)
    assert arrays(trajcli, f"log.{ending}") == {"t": [40], "q": [40, 3]}


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("", "an empty file"),
        ("# nothing\n", "without rows"),
        ("t,q0\n", "without rows"),
        ("t,q0\n0,1\n1,\n", "log.csv:q0, trajectory 0, step 1: NaN"),
        ("t,q0\n0,1\n1,2,3\n", "log.csv, line 3: a row of another length"),
        ("t,q0\n0,1\n1,b\n", "found:    'b'"),
        ("t,name,q0\n0,a,1\n\n1,b,2,3\n", "log.csv, line 4: a row of another length"),
        ("t,name,q0\n0,a,1\n1,b,2,3\n", "found:    4 cells"),
        ("t,q0\n" + "9" * (2 << 20) + ",1\n", "characters"),
        ("episode,q0\na,1\nb,2\na,3\n", "do not follow each other"),
    ],
)
def test_text_that_is_no_table_is_refused_by_line(trajcli, folder, text, word):
    Path("log.csv").write_text(text)
    trajcli.refuses(
        "integrate log.csv:q0 --mode clique --start zero --dt 1 -o out.h5", word, "log.csv"
    )


def test_a_table_larger_than_the_memory_is_refused_unread(trajcli, folder):
    with open("log.csv", "w") as file:
        file.write("q0,q1\n" + "1,2\n" * 5_000_000)
    line = "integrate log.csv:q --mode clique --start zero --dt 1 -o out.h5 TRAJCLI_MEMORY=64MiB"
    trajcli.refuses(line, "too large")


@pytest.mark.parametrize(
    ("heading", "first"), [("0,1,2", []), (",0,1,2", [0]), ("t,1,2,3", [0.0]), ("t,0,1,2", [0.0])]
)
def test_a_heading_of_numbers_is_no_row(trajcli, folder, heading, first):
    times, positions = recording()
    columns = {"": [], ",": [np.arange(len(times))], "t": [times]}[heading[: len(first)]]
    write("log.csv", heading, np.column_stack([*columns, positions]))
    assert arrays(trajcli, "log.csv")["data"] == [40, 3]
    trajcli("differentiate log.csv --method backward --rate 50 -o out.h5", code=0)
    with h5py.File("out.h5") as file:
        np.testing.assert_array_equal(np.squeeze(file["position"]), positions)


@pytest.mark.parametrize(
    ("kind", "heading", "since_1970"),
    [
        ("ns", "timestamp", True), ("us", "timestamp", True), ("ms", "t", True),
        ("ns", "%time", True), ("ns", "timestamp_ns", False), ("ms", "time_ms", False),
        ("ns", "Time [ns]", True), ("us", "t (us)", False), ("date", "timestamp", True),
        ("date", "created", True), ("date", "", True),
    ],
)  # fmt: skip
def test_units_of_times_follow_from_heading_or_size(trajcli, folder, kind, heading, since_1970):
    _, positions = recording()
    begin = 1_700_000_000_123_456_789 if since_1970 else 0
    since = [begin + k * 20_000_000 + (k > 9) * 500_000_000 for k in range(40)]
    if kind == "date":
        days = [str(day).replace("T", " ") for day in np.array(since, "datetime64[ns]")]
        stamps = [f"{day}{'Z' if k < 20 else '-02:00'}" for k, day in enumerate(days)]
    else:
        stamps = [one // {"ns": 1, "us": 1000, "ms": 1_000_000}[kind] for one in since]
    rows = [",".join(map(repr, row)) for row in positions.tolist()]
    with open("log.csv", "w") as file:
        file.write(f"{heading},q0,q1,q2\n")
        for stamp, row in zip(stamps, rows, strict=True):
            file.write(f"{stamp},{row}\n")
    trajcli("differentiate log.csv:q --method central -o out.h5", code=0)
    expected = 0.02 * np.arange(40) + 0.5 * (np.arange(40) > 9)
    if kind == "date":
        expected += 7200 * (np.arange(40) > 19)
    with h5py.File("out.h5") as file:
        np.testing.assert_allclose(file["time"][:], expected, rtol=0, atol=3e-7)


def test_columns_that_nobody_needs_may_have_blank_cells(trajcli, folder):
    Path("log.csv").write_text("t,q0,q1,note\n0,1,2,\n1,2,3,late\n2,3,5,\n")
    trajcli("differentiate log.csv:q --method backward -o out.h5", code=0)
    assert "note 3 text" in " ".join(trajcli("inspect log.csv").out.split())


@pytest.mark.parametrize("heading", ["t,a,b,trajectory0,trajectory1", "t,a,trajectory0,trajectory"])
def test_columns_of_an_array_are_not_the_one_of_trajectories(trajcli, folder, heading):
    width = heading.count(",")
    rows = np.column_stack([0.02 * np.arange(20), *np.arange(20.0) // 10 + np.zeros((width, 1))])
    np.savetxt("log.csv", rows, header=heading, comments="", delimiter=",")
    shapes = {
        one["name"]: one["shape"] for one in trajcli("inspect log.csv --json").document["datasets"]
    }
    assert shapes.get("data") == [[10, 2], [20, 4]][width == 4]  # of one of two trajectories
    assert shapes.get("trajectory") == (None if width == 4 else [20])
