"""Times that are texts: every form is the same clock, and Python's datetime says which."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from pathlib import Path

import h5py
import numpy as np
import pytest

COUNT = 120
SINCE = [timedelta(milliseconds=20 * k + 300 * (k > 70)) for k in range(COUNT)]
SECONDS = np.array([since.total_seconds() for since in SINCE])
POSITIONS = np.round(np.sin(SECONDS[:, None] * [1, 3]), 9)
NIGHT, MAY_1, MAY_13 = (
    datetime(2024, 5, 1, 23, 59, 59),
    datetime(2024, 5, 1, 10),
    datetime(2024, 5, 13, 11, 59, 59),
)
DIFFER = "differentiate log.csv --method central -o out.h5"
Form = Callable[[datetime], str]


def table(heading: str, form: Form, begin: datetime, by: str = ",") -> None:
    lines = [
        by.join([form(begin + since), *(f"{x:.9f}" for x in row)])
        for since, row in zip(SINCE, POSITIONS, strict=True)
    ]
    Path("log.csv").write_text("\n".join([heading, *lines] if heading else lines) + "\n")


def thousandths(form: str, point: str = ".") -> Form:
    """A form of strftime, with milliseconds behind it."""
    return lambda moment: f"{moment:{form}}{point}{moment.microsecond // 1000:03d}"


def serial(moment: datetime) -> str:
    """A spreadsheet's days, in the 15 digits that it writes."""
    return f"{(moment - datetime(1899, 12, 30)) / timedelta(days=1):.15g}"


def halves(moment: datetime) -> str:
    return f"{moment.month}/{moment.day}/{thousandths('%Y %I:%M:%S')(moment)} {moment:%p}"


LOGGED = thousandths("%Y-%m-%d %H:%M:%S", ",")
# the heading, a cell, the first moment, and whether the date is known
FORMS: dict[str, tuple[str, Form, datetime, bool]] = {
    "a time of day": ("Time,a,b", thousandths("%H:%M:%S"), MAY_1, False),
    "past midnight": ("Time,a,b", thousandths("%H:%M:%S"), NIGHT, False),
    "milliseconds behind a colon": ("t,a,b", thousandths("%H:%M:%S", ":"), NIGHT, False),
    "a date and a time": ("Date,Time,a,b", thousandths("%Y-%m-%d,%H:%M:%S"), NIGHT, True),
    "German": ("Zeitstempel,a,b", thousandths("%d.%m.%Y %H:%M:%S"), NIGHT, True),
    "day first": ("Time,a,b", thousandths("%d/%m/%Y %H:%M:%S"), MAY_13, True),
    "month first": ("Time,a,b", thousandths("%m/%d/%Y %H:%M:%S"), MAY_13, True),
    "American": ("When,a,b", halves, MAY_13, True),
    "one day, either way": ("Time,a,b", thousandths("%m/%d/%Y %H:%M:%S"), MAY_1, False),
    "Python's logging": ("asctime,a,b", lambda m: f'"{LOGGED(m)}"', NIGHT, True),
    "ISO": ("stamp,a,b", lambda m: f"{m.isoformat('T', 'milliseconds')}Z", NIGHT, True),
    "spreadsheet": ("Time,a,b", serial, NIGHT, True),
    "no heading": ("", thousandths("%Y/%m/%d %H:%M:%S"), NIGHT, True),
}  # fmt: skip


def written() -> tuple[np.ndarray, np.ndarray, int | None]:
    """The positions and times of out.h5, and its first stamp in ns."""
    with h5py.File("out.h5") as file:
        stamp = int(file["start_stamp"][0]) if "start_stamp" in file else None
        return np.squeeze(file["position"]), np.ravel(file["time"]), stamp


@pytest.mark.parametrize("form", FORMS)
def test_a_form_of_times_is_read_to_the_millisecond(trajcli, folder, form):
    heading, cell, begin, dated = FORMS[form]
    table(heading, cell, begin)
    trajcli.ok(DIFFER)
    positions, times, stamp = written()
    np.testing.assert_array_equal(positions, POSITIONS)
    np.testing.assert_allclose(times, SECONDS, rtol=0, atol=1e-12)
    since_1970 = round(begin.replace(tzinfo=timezone.utc).timestamp()) * 10**9
    assert stamp == (since_1970 if dated else None)


@pytest.mark.parametrize("hours", [2.5, -2.5])
def test_a_decimal_comma_and_a_zone_are_read(trajcli, folder, hours):
    table("Datum;Uhrzeit;a;b", thousandths("%d.%m.%Y;%H:%M:%S", ","), NIGHT, ";")
    trajcli.ok(DIFFER)
    german = written()
    zone = timezone(timedelta(hours=hours))
    table("t,a,b", lambda m: (m.replace(tzinfo=zone)).isoformat(timespec="milliseconds"), NIGHT)
    trajcli.ok(f"{DIFFER} --overwrite")
    np.testing.assert_allclose(german[1], SECONDS, rtol=0, atol=1e-12)
    assert german[2] == written()[2] + round(3600 * hours) * 10**9


@pytest.mark.parametrize(
    ("form", "said"),
    [
        ("past midnight", "row 51 is past midnight, on the next day"),
        ("German", "dates are read as dd.mm.yyyy"),
        ("day first", "dates are read as dd/mm/yyyy"),
        ("month first", "dates are read as mm/dd/yyyy"),
        ("one day, either way", "the date is left out"),
        ("spreadsheet", "days since 1899"),
    ],
)
def test_how_times_were_understood_is_said(trajcli, folder, form, said):
    table(*FORMS[form][:3])
    assert said in " ".join(trajcli.ok(DIFFER).err.split())


def test_seconds_that_could_be_days_are_seconds(trajcli, folder):
    table("Time,a,b", lambda m: f"{45000 + (m - MAY_1).total_seconds():.3f}", MAY_1)
    trajcli.ok(DIFFER)
    np.testing.assert_allclose(written()[1], SECONDS, rtol=0, atol=1e-9)


@pytest.mark.parametrize(
    ("form", "begin", "said"),
    [
        (thousandths("%m/%d/%Y %H:%M:%S"), NIGHT, "dates that may be dd/mm/yyyy or mm/dd/yyyy"),
        (thousandths("13/%H/2024 %H:%M:%S"), MAY_1.replace(hour=14), "in no calendar"),
        (lambda m: "late" if m.second else f"{m:%H:%M:%S.%f}", MAY_1, "'late'"),
        (lambda m: f"T+{m.microsecond}", MAY_1, "times that are not understood"),
        (thousandths("%H:61:%S"), MAY_1, "times that are not understood"),
        (lambda m: f"{m:%d.%m.%Y}" if m.second else f"{m:%Y-%m-%d}", MAY_1, "several forms"),
    ],
)
def test_times_that_are_not_certain_are_refused_with_what_says_them(
    trajcli, folder, form, begin, said
):
    table("Time,a,b", form, begin)
    trajcli.refuses(DIFFER, said, "log.csv:Time", "line 1 is the heading", "--times")
    trajcli.ok(f"{DIFFER} --rate 50")
    np.testing.assert_array_equal(written()[0], POSITIONS)


def test_days_of_a_spreadsheet_are_exact_milliseconds(trajcli, folder):
    table("Time,a,b", serial, MAY_13)
    trajcli.ok(DIFFER)
    np.testing.assert_allclose(written()[1], SECONDS, rtol=0, atol=1e-12)


def test_stamps_of_many_rows_are_those_of_numpy(trajcli, folder):
    random = np.random.default_rng(4)
    stamps = np.cumsum(random.integers(1, 40, 20_000)) + np.datetime64("2023-12-30T07:00:00", "ms")
    days = [f"{text[8:10]}.{text[5:7]}.{text[:4]} {text[11:]}" for text in map(str, stamps)]
    Path("log.csv").write_text(
        "t,a,b\n" + "".join(f"{day},{k},{k / 2}\n" for k, day in enumerate(days))
    )
    trajcli.ok(DIFFER)
    _, times, stamp = written()
    np.testing.assert_allclose(times, (stamps - stamps[0]) / np.timedelta64(1, "s"), atol=1e-9)
    assert stamp == stamps[0].astype("datetime64[ns]").astype(int)


def echo(fields: str, columns: np.ndarray) -> None:
    """What ros2 topic echo --csv writes: a stamp, the frame, and the fields."""
    begin = 1_700_000_000_950_000_000
    stamps = [begin + round(1e9 * since) for since in SECONDS]
    lines = [
        f"{stamp // 10**9},{stamp % 10**9},{fields}," + ",".join(map(repr, row))
        for stamp, row in zip(stamps, columns.tolist(), strict=True)
    ]
    Path("log.csv").write_text("\n".join(lines) + "\n")


@pytest.mark.parametrize(
    ("fields", "parts"), [("", 1), ("map", 1), ("base,elbow,wrist", 3), ("base,elbow,wrist", 2)]
)
def test_messages_that_are_echoed_as_csv_have_their_stamps(trajcli, folder, fields, parts):
    echo(fields, np.hstack([POSITIONS * (k + 1) for k in range(parts)]))
    result = trajcli.ok(DIFFER)
    positions, times, stamp = written()
    np.testing.assert_array_equal(positions, POSITIONS)
    np.testing.assert_allclose(times, SECONDS, rtol=0, atol=1e-9)
    assert stamp == 1_700_000_000_950_000_000
    assert "seconds and nanoseconds since 1970" in " ".join(result.err.split())


def test_names_that_change_in_messages_echoed_as_csv_are_refused(trajcli, folder):
    echo("base,elbow", POSITIONS)
    lines = Path("log.csv").read_text().replace("base,elbow", "elbow,base", 5)
    Path("log.csv").write_text(lines)
    trajcli.refuses(DIFFER, "rows of different joints in turns", "base, elbow")


def test_a_pose_that_is_echoed_as_csv_has_a_rotation(trajcli, folder):
    half = SECONDS / 2
    turns = np.column_stack([0 * half, 0 * half, np.sin(half), np.cos(half)])
    echo("map", np.column_stack([POSITIONS, 0 * half, turns]))
    said = trajcli.ok("differentiate log.csv --window 0.1s -o out.h5").err
    assert "tx ty tz qx qy qz qw" in " ".join(said.split())
    with h5py.File("out.h5") as file:
        rates = np.squeeze(file["angular_velocity"])[5:-5]
    np.testing.assert_allclose(rates, np.tile([0, 0, 1], (len(rates), 1)), atol=1e-6)
    # the numbers of columns stay their names
    found = []
    for columns in ("data3,data4,data5", "tx,ty,tz"):
        trajcli.ok(f"differentiate log.csv:{columns} --method central -o out.h5 --overwrite")
        with h5py.File("out.h5") as file:
            found.append(file["velocity"][()])
    np.testing.assert_array_equal(*found)


def test_whole_numbers_that_are_no_stamps_stay_columns(trajcli, folder):
    lines = [f"{k},{k * 7 % 5},map,{a},{b}" for k, (a, b) in enumerate(POSITIONS.tolist())]
    Path("log.csv").write_text("\n".join(lines) + "\n")
    trajcli.ok(f"{DIFFER} --rate 50")
    assert written()[0].shape == (COUNT, 4)
