"""A window of time, --since and --until, in every command that reads rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from journeys.arrays import read_h5

BEGIN = 1_700_000_000_123_456_789
STEPS = np.random.default_rng(4).integers(8_000_000, 12_000_000, 400)
NS = BEGIN + np.cumsum(STEPS) - STEPS[0]
SINCE_ROW_0 = (NS - NS[0]) / 1e9
ROWS = np.sin(SINCE_ROW_0[:, None] + np.arange(3))


def log(kind: str, stamps: Any = NS, rows: Any = ROWS) -> str:
    """Writes a log with stamps since 1970 in ns, or as a CSV has them in seconds."""
    if kind == "csv":
        lines = [f"{s // 10**9}.{s % 10**9:09d}," + ",".join(map(repr, r)) for s, r in
                 zip(stamps.tolist(), rows.tolist(), strict=True)]  # fmt: skip
        Path("log.csv").write_text("\ufefftimestamp,q1,q2,q3\r\n" + "\r\n".join(lines) + "\r\n\r\n")
        return "log.csv"
    if kind == "npz":
        np.savez("log.npz", position=rows, times=stamps)
        return "log.npz"
    with h5py.File("log.h5", "w") as file:
        file["position"] = rows
        file.create_dataset("times", data=stamps).attrs["units"] = "ns"
    return "log.h5"


def exported(trajcli: Any, words: str) -> tuple[Any, Any, Any]:
    """Returns the rows, times and start stamps that export writes."""
    trajcli.ok(f"export {words} -o out.npz --overwrite")
    with np.load("out.npz") as file:
        others = ("time", "start_stamp", "trajcli.json", "dof", "joint_names")
        rows = file[next(name for name in file if name not in others)]
        start = file.get("start_stamp")
        return np.squeeze(rows), file["time"], start


@pytest.mark.parametrize("kind", ["csv", "npz", "h5"])
def test_a_window_is_stamps_or_seconds_from_the_first_row(trajcli, folder, kind):
    path = log(kind)
    for since, until in ((NS[50], NS[120]), (NS[50] + 1_000_000, NS[120] - 1_000_000)):
        inside = (since <= NS) & (until >= NS)
        typed = [float(since - BEGIN) / 1e9, float(until - BEGIN) / 1e9]
        whole = f"{since} --until {until}"  # in ns, whatever the unit of the file
        date = "Z --until ".join(str(np.datetime64(int(k), "ns")) for k in (since, until))
        for words in (f"{typed[0]!r} --until {typed[1]!r}", whole, date):
            # a CSV in seconds has 2e-7 s
            if kind == "csv" and since == NS[50] and words != whole:
                continue
            rows, time, start = exported(trajcli, f"{path} --since {words}")
            np.testing.assert_array_equal(rows, ROWS[inside])
            expected = (NS[inside] - NS[inside][0]) / 1e9
            np.testing.assert_allclose(np.squeeze(time), expected, rtol=0, atol=1e-6)
            unit = 1e9 if kind == "csv" else 1
            assert abs(float(start[0]) * unit - float(NS[inside][0])) < 1e3
            if kind != "csv":
                assert start.tolist() == [NS[inside][0]]
    for words, inside in (("--since 2", SINCE_ROW_0 >= 2), ("--until 0.5", SINCE_ROW_0 <= 0.5)):
        result = trajcli.ok(f"export {path} {words} -o out.npz --overwrite")
        assert f"{words}: counted from the first row; {inside.sum()} of 400 rows" in result.err
        np.testing.assert_array_equal(exported(trajcli, f"{path} {words}")[0], ROWS[inside])


def test_seconds_since_1970_are_understood_where_the_clock_counts_nanoseconds(trajcli, folder):
    path = log("h5")
    for since in ("1700000001", "1700000001.0", "1700000001000", "2023-11-14T22:13:21"):
        result = trajcli.ok(f"export {path} --since {since} -o out.npz --overwrite")
        assert "stamps of the source's clock" in result.err
        expected = ROWS[NS >= 1_700_000_001 * 10**9]
        np.testing.assert_array_equal(np.load("out.npz")["position"][0], expected)


COMMANDS = {
    "differentiate": "differentiate {} --method central -o out.h5",
    "resample": "resample {} --at at.npy --skip-bad -o out.h5",
    "fit": "fit {} --knots 10 -o out.h5",
    "export": "export {} -o out.h5",
    "retime": "retime {} --limits l.toml -o out.h5",
}


@pytest.mark.parametrize("command", COMMANDS)
def test_a_window_writes_what_its_rows_alone_would(trajcli, folder, command):
    Path("l.toml").write_text("[velocity]\nupper = 0.7\n")
    inside = (SINCE_ROW_0 >= 1) & (SINCE_ROW_0 <= 2.5)
    velocity = np.cos(SINCE_ROW_0[:, None] + np.arange(3))
    results, code = [], 1 if command == "resample" else 0
    for chosen, more in ((slice(None), "--since 1 --until 2.5"), (inside, "")):
        with h5py.File("in.h5", "w") as file:
            file["position"], file["velocity"] = ROWS[chosen], velocity[chosen]
            file.create_dataset("times", data=NS[chosen]).attrs["units"] = "ns"
        np.save("at.npy", NS)  # the times of the whole
        line = COMMANDS[command].format("in.h5")
        trajcli(f"{line} {more} --overwrite", code=code)
        results.append({name: x for name, x in read_h5("out.h5").items() if name != "dof"})
    assert results[0].keys() == results[1].keys()
    for name, values in results[0].items():
        # by seconds from the first row of the file
        np.testing.assert_allclose(values, results[1][name], rtol=0, atol=1e-6, err_msg=name)
    if command != "fit":
        assert results[0]["start_stamp"].tolist() == [NS[inside][0]]


def test_views_look_at_the_rows_of_a_window_alone(trajcli, folder):
    rows = ROWS.copy()
    rows[300:, 1], rows[350] = 9.0, np.nan
    path, window = log("npz", rows=rows), "--until 2.5"
    inside = SINCE_ROW_0 <= 2.5
    Path("l.toml").write_text("[position]\nupper = 2.0\n")
    for more, code in (("", 1), (window, 0)):
        trajcli(f"check {path} --limits l.toml {more}", code=code)
        trajcli(f"score {path} --fail path_length>20 {more}", code=code)
    shown = trajcli.ok(f"inspect {path} {window} --json").document
    one = next(x for x in shown["datasets"] if x["name"] == "position")
    assert one["shape"][-2:] == [inside.sum(), 3]
    assert one["nan"] == 0
    np.savez("part.npz", position=ROWS[inside], times=NS[inside])
    result = trajcli.ok(f"diff {path} part.npz {window}")
    total = inside.sum()
    for count in (400, total):
        assert f"{window}: counted from the first row; {total} of {count} rows" in result.err
    trajcli.ok(f"plot {path} {window} -o out.png")
    scored = trajcli.ok(f"score {path} {window} --json").document["trajectories"][0]
    assert scored["duration"] == pytest.approx(SINCE_ROW_0[inside][-1])


def test_a_window_takes_the_episodes_that_it_meets(trajcli, folder):
    stamps = [NS[:100], NS[100:250], NS[250:]]
    with h5py.File("in.h5", "w") as file:
        for k, times in enumerate(stamps):
            file[f"demo_{k}/position"] = k + np.arange(len(times))[:, None] * np.ones(2)
            file[f"demo_{k}/times"] = times
    since, until = NS[90], NS[200]
    line = f"export in.h5 --since {since} --until {until} --overwrite"
    assert "111 of 400 rows; 1 of 3 trajectories have none" in trajcli.ok(f"{line} -o out.h5").err
    with h5py.File("out.h5") as file:
        first, second = file["demo_0"], file["demo_1"]
        np.testing.assert_array_equal(first["position"][:, 0], np.arange(90, 100))
        np.testing.assert_array_equal(second["position"][:, 0], 1 + np.arange(101))
        assert "demo_2" not in file
        assert first["start_stamp"][()].tolist() == NS[90]
    # --episodes counts those of the file
    trajcli.ok(f"{line} --episodes 1 -o one.npz")
    np.testing.assert_array_equal(np.load("one.npz")["position"][0, :, 0], 1 + np.arange(101))
    for command in ("export in.h5 -o", "differentiate in.h5 --method central -o"):
        words = f"--since {since} --until {until} --episodes 2"
        trajcli.refuses(f"{command} no.h5 {words}", "no rows in the window", "demo_2")
    trajcli.repeats_and_divides(
        f"differentiate in.h5 --method central --since {since} --until {until}"
    )
    # counted from the first row of each
    rows, _, starts = exported(trajcli, "in.h5 --since 0.2 --until 0.8 --episodes 2")
    seconds = (stamps[2] - stamps[2][0]) / 1e9
    np.testing.assert_array_equal(
        rows[:, 0], 2 + np.flatnonzero((seconds >= 0.2) & (seconds <= 0.8))
    )
    assert starts.tolist() == [stamps[2][(seconds >= 0.2).argmax()]]


@pytest.mark.parametrize("own", [True, False])
def test_trajectories_of_one_array_have_their_windows(trajcli, folder, own):
    count, lengths, step = 40, np.array([40, 12, 30, 25]), 0.05
    rows = np.random.default_rng(1).normal(size=(4, count, 2))
    times = np.arange(count) * step + (np.arange(4)[:, None] * 0.01 if own else 0)
    times = times + np.random.default_rng(2).uniform(0, 0.02, times.shape) * own
    np.savez("in.npz", position=rows, times=times, lengths=lengths)
    trajcli.ok("export in.npz --since 0.69 --until 1.41 -o out.h5")
    # stamps that do not begin at 0 are those of a clock
    elapsed = np.broadcast_to(times if own else times - times[..., :1], (4, count))
    with h5py.File("out.h5") as file:
        found = {name: part["position"][:] for name, part in file["in"].items()}
    for k in range(4):
        inside = (elapsed[k] >= 0.69) & (elapsed[k] <= 1.41) & (np.arange(count) < lengths[k])
        if k == 1:
            assert not inside.any()
            continue
        np.testing.assert_array_equal(found[f"trajectory_{k}"], rows[k, inside])
    assert len(found) == 3
    trajcli.refuses("score in.npz --since 0.7 --episodes 0:2", "no rows in the window", "ectory 1")
    trajcli.ok("score in.npz --since 0.7 --episodes 2")


def test_a_window_of_rows_at_a_rate_keeps_their_times(trajcli, folder):
    np.save("in.npy", ROWS)
    rows, time, start = exported(trajcli, "in.npy --rate 100 --since 1 --until 2")
    np.testing.assert_array_equal(rows, ROWS[100:201])
    np.testing.assert_allclose(np.squeeze(time), np.arange(100, 201) / 100, rtol=0, atol=1e-12)
    assert start is None
    np.save("t.npy", NS)  # stamps of an option are a clock, too
    rows, _, start = exported(trajcli, f"in.npy --times t.npy --since {NS[7]}")
    np.testing.assert_array_equal(rows, ROWS[7:])
    assert start.tolist() == [NS[7]]
    trajcli.ok("differentiate in.npy --rate 100 --since 1 --until 2 --method central -o a.h5")
    trajcli.ok("export a.h5 --since 0.5 -o b.npz")
    with np.load("b.npz") as file:
        np.testing.assert_array_equal(file["position"][0], ROWS[150:201])


def test_a_window_of_an_output_knows_its_source_clock(trajcli, folder):
    even = BEGIN + np.arange(400) * 10_000_000
    np.savez("in.npz", position=ROWS, times=even)
    trajcli.ok("differentiate in.npz --method central -o a.h5")
    for since in (even[30], 0.3):
        rows, _, start = exported(trajcli, f"a.h5 --since {since}")
        np.testing.assert_array_equal(rows[: len(ROWS) - 30], ROWS[30:])
        assert start.tolist() == [even[30]]


@pytest.mark.parametrize(
    ("begin", "typed"),
    [(0.3712, ("1", "2")), (0.0, ("1.0", "2e0")), (-3.1, ("1", "2")), (7.0, ("1.0", "2e0"))],
)
def test_a_clock_that_counts_from_anywhere_has_windows(trajcli, folder, begin, typed):
    times = begin + np.arange(400) * 0.01 + np.random.default_rng(1).uniform(0, 0.004, 400)
    np.savez("in.npz", position=ROWS, times=times)
    since, until = map(float, typed)
    of_clock = begin <= 1  # else neither lies among the stamps
    at = times if of_clock else times - times[0]
    rows, _, start = exported(trajcli, f"in.npz --since {typed[0]} --until {typed[1]}")
    if begin == -3.1:  # which ends before 1
        at = times - times[0]
    inside = (at >= since) & (at <= until)
    np.testing.assert_array_equal(rows, ROWS[inside])
    assert start.tolist() == [times[inside][0]]


def test_a_window_keeps_broken_stamps_for_check_to_find(trajcli, folder):
    stamps = NS.copy()
    stamps[100] = stamps[99]
    path = log("npz", stamps)
    trajcli(f"check {path}", code=1)
    trajcli(f"check {path} --since 0.5 --until 2", code=1)
    trajcli(f"check {path} --since 2", code=0)


def test_what_is_no_window_is_refused(trajcli, folder):
    path = log("npz")
    last = f"{NS[-1]} ns"
    none = f"0 to {SINCE_ROW_0[-1]:.9g} s from the first row, or stamps from {NS[0]} to {last}"
    trajcli.refuses(f"export {path} --since 10 -o no.csv", "no rows in the window", none)
    trajcli.refuses(f"export {path} --since 3 --until 2 -o no.csv", "--since 3 --until 2")
    for word in ("x", "nan", "inf", "NaT", ""):
        trajcli.refuses(f"export {path} --until '{word}' -o no.csv", "--until: not a time")
    trajcli.refuses(f"inspect {path} --since 99", "no rows in the window")
    np.save("in.npy", ROWS)
    for command in ("export in.npy --since 1 -o no.csv", "inspect in.npy --since 1"):
        trajcli.refuses(command, "no time step", "--rate HZ")
    line = "integrate in.npy --rate 100 --since 1 -o no.h5"
    trajcli.refuses(line, "no such option", "the start state belongs to the first action")


def test_what_lies_outside_of_a_window_is_no_padding(trajcli, folder):
    with h5py.File("in.h5", "w") as file:
        for k, count in enumerate((50, 80)):
            times = np.arange(count) * 0.02
            file[f"demo_{k}/position"] = np.sin(times)[:, None]
            file[f"demo_{k}/times"] = times
    checks = trajcli.fails("check in.h5 --since 1.1 --episodes 0:2 --json").document["checks"]
    assert [x["check"] for x in checks if not x["passed"]] == ["readable"]
