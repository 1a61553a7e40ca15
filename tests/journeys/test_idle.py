"""Idle time: what score says of it, and trajectories without idle ends, --trim."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

BEGIN = 1_700_000_000_123_456_789
SPANS = [(40, 200), (0, 260), (130, 299), None]
"""First and last rows of the motions of four demonstrations; the last one never moves."""


def motion(span: tuple[int, int] | None, count: int = 300) -> Any:
    """Returns rows that move between two rows at 1 per row, and rest before and after."""
    first, last = span or (0, 0)
    return np.clip(np.arange(count) - first, 0, last - first)[:, None] * np.array([0.02, -0.01])


def demonstrations(path: str, late: int = 0) -> None:
    """Writes demonstrations at 50 Hz with stamps in ns, one after the other."""
    with h5py.File(path, "w") as file:
        for k, span in enumerate(SPANS):
            file[f"demo_{k}/position"] = motion(span)
            stamps = BEGIN + k * 10**10 + np.arange(300) * 20_000_000
            file.create_dataset(f"demo_{k}/times", data=stamps).attrs["units"] = "ns"


@pytest.mark.parametrize("command", ["export", "differentiate --method central"])
def test_idle_ends_are_left_out_and_kept_rows_listed(trajcli, folder, command):
    demonstrations("in.h5")
    result = trajcli.ok(f"{command} in.h5 --trim --json -o out.h5")
    ranges = {one["trajectory"]: one["rows"] for one in result.document["keep_ranges"]}
    assert list(ranges) == [f"demo_{k}" for k in range(4)]
    assert ranges["demo_3"] == [0, 300]
    assert "idle ends left out: 3 of 4 trajectories" in result.err
    assert "1 left whole, without known motion" in result.err
    seconds = []
    with h5py.File("out.h5") as file:
        for k, span in enumerate(SPANS):
            first, stop = ranges[f"demo_{k}"]
            group = file[f"demo_{k}"]
            np.testing.assert_array_equal(group["position"], motion(span)[first:stop])
            assert group["start_stamp"][()] == BEGIN + k * 10**10 + first * 20_000_000
            times = np.arange(stop - first) * 0.02
            np.testing.assert_allclose(group["time"], times, rtol=0, atol=1e-9)
            if span is None:
                continue
            steps = np.flatnonzero(np.abs(np.diff(motion(span)[:, 0])))
            # by central differences, over five rows, two rows before and after a step have a speed
            outer = max(int(steps[0]) - 2, 0), min(int(steps[-1]) + 3, 299)
            # 5 % of the peak speed lies at most two rows inside
            assert outer[0] <= first <= outer[0] + 2
            assert outer[1] - 2 <= stop - 1 <= outer[1]
            seconds.append((300 - (stop - first)) * 0.02)
    assert f"{np.median(seconds):.3g} s in the median" in result.err


@pytest.mark.parametrize("command", ["export", "differentiate --method central"])
def test_ranges_are_those_of_the_episodes_that_are_taken(trajcli, folder, command):
    demonstrations("in.h5")
    whole = trajcli.ok(f"{command} in.h5 --trim --json -o all.h5").document["keep_ranges"]
    result = trajcli.ok(f"{command} in.h5 --trim --json --episodes 1:3 -o out.h5")
    assert result.document["keep_ranges"] == whole[1:3]
    assert "idle ends left out: 2 of 2 trajectories" in result.err


def test_what_score_calls_idle_is_what_trim_leaves_out(trajcli, folder):
    demonstrations("in.h5")
    scored = trajcli.ok("score in.h5 --json").document["trajectories"]
    ranges = trajcli.ok("export in.h5 --trim --json -o out.h5").document["keep_ranges"]
    for one, kept in list(zip(scored, ranges, strict=True))[:3]:
        first, stop = kept["rows"]
        assert one["idle_start"] == pytest.approx(first * 0.02)
        assert one["idle_end"] == pytest.approx((299 - (stop - 1)) * 0.02)
    assert scored[3]["idle_start"] == scored[3]["idle_end"] == pytest.approx(299 * 0.02)
    trajcli.fails("score in.h5 --fail idle_start>2")
    trajcli.ok("score in.h5:demo_1/position --fail idle_start>0.1")


def test_trajectories_of_one_array_are_trimmed_each_and_keep_their_times(trajcli, folder):
    rows = np.stack([motion(span) for span in SPANS[:3]])
    np.savez("in.npz", position=rows, dt=0.02)
    ranges = trajcli.ok("export in.npz --trim --json -o out.csv").document["keep_ranges"]
    lines = [line.split(",") for line in Path("out.csv").read_text().splitlines()[1:]]
    for k, kept in enumerate(ranges):
        assert kept["trajectory"] == f"in/trajectory_{k}"
        own = [line for line in lines if line[0].endswith(f"_{k}")]
        first, stop = kept["rows"]
        np.testing.assert_array_equal([[*map(float, x[2:])] for x in own], rows[k, first:stop])
        times = [float(line[1]) for line in own]
        np.testing.assert_allclose(times, np.arange(first, stop) * 0.02, rtol=0, atol=1e-12)


def test_a_speed_of_standstill_is_that_of_noise(trajcli, folder):
    noise = 1e-4 * np.random.default_rng(2).normal(size=(300, 2))
    np.savez("in.npz", position=motion((100, 200)) + noise, dt=0.02)
    # the noise of differences is above 5 % of the speed now and then
    line = "export in.npz --trim --overwrite --json -o out.npz"
    ((first, stop),) = (
        x["rows"] for x in trajcli.ok(f"{line} --still 0.1").document["keep_ranges"]
    )
    assert 96 <= first <= 102
    assert 199 <= stop <= 205
    scored = trajcli.ok("score in.npz --still 0.1 --json").document["trajectories"][0]
    assert scored["idle_start"] == pytest.approx(first * 0.02)
    trajcli.refuses("export in.npz --still 0.1 -o no.npz", "--still", "--trim")


def test_turning_in_place_is_no_standstill(trajcli, folder):
    angle = 0.5 * np.clip(np.arange(300) - 50, 0, 100) * 0.02
    place = np.clip(np.arange(300) - 200, 0, 50)[:, None] * np.array([0.01, 0, 0])
    turn = np.stack([np.cos(angle / 2), 0 * angle, 0 * angle, np.sin(angle / 2)], 1)
    table = np.concatenate([np.arange(300)[:, None] * 0.02, place, turn], 1)
    np.savetxt("pose.csv", table, delimiter=",", header="time,x,y,z,qw,qx,qy,qz", comments="")
    kept = trajcli.ok("export pose.csv --trim --json -o out.csv").document["keep_ranges"]
    first, stop = kept[0]["rows"]
    assert 47 <= first <= 51
    assert 250 <= stop <= 254
    scored = trajcli.ok("score pose.csv --json").document["trajectories"][0]
    assert scored["idle_start"] == pytest.approx(first * 0.02)
    assert scored["idle_longest"] == pytest.approx(50 * 0.02, abs=0.09)


def test_windows_gaps_and_idle_ends_count_rows_of_the_file(trajcli, folder):
    demonstrations("in.h5")
    line = "export in.h5:demo_0/position --json --overwrite -o out.h5"
    whole = trajcli.ok(f"{line} --trim").document["keep_ranges"][0]["rows"]
    part = trajcli.ok(f"{line} --trim --since 0.2 --until 5").document["keep_ranges"][0]["rows"]
    assert part == whole
    with h5py.File("out.h5") as file:
        assert np.ravel(file["start_stamp"])[0] == BEGIN + whole[0] * 20_000_000


def test_what_is_no_motion_is_not_trimmed(trajcli, folder):
    np.savez("in.npz", actions=np.ones((2, 30, 3)), dt=0.02)
    trajcli.refuses("export in.npz --trim -o no.npz", "no motion", "FILE:DATASET")
    np.save("in.npy", motion(SPANS[0]))
    trajcli.refuses("export in.npy --trim -o no.npz", "no time step", "--rate")
    result = trajcli.ok("export in.npy --rate 50 --trim -o out.npz --json")
    assert result.document["keep_ranges"][0]["rows"][0] in (38, 39, 40)


def test_a_trimmed_run_is_repeated_and_divided(trajcli, folder):
    demonstrations("in.h5")
    trajcli.repeats_and_divides("differentiate in.h5 --method central --trim --still 0.05")


def test_a_speed_of_standstill_is_a_number(trajcli, folder):
    np.savez("in.npz", position=motion(SPANS[0]), dt=0.02)
    for value in ("nan", "inf", "-1"):
        trajcli.refuses(f"score in.npz --still {value}", "--still")
        trajcli.refuses(f"export in.npz --trim --still {value} -o no.npz", "--still")


def test_trajectories_without_rows_are_not_trimmed(trajcli, folder):
    np.savez("in.npz", position=np.zeros((2, 0, 3)), dt=0.02)
    trajcli.ok("export in.npz --trim -o out.npz")
    assert np.load("out.npz")["position"].shape == (2, 0, 3)


@pytest.mark.parametrize("command", ["export", "differentiate --method central"])
def test_segments_between_gaps_are_trimmed_and_count_rows_of_the_file(trajcli, folder, command):
    times = np.arange(300) * 0.02
    times[150:] += 5
    table = np.column_stack([times, motion((40, 250))])
    repeated = np.insert(table, 20, table[20], 0)
    np.savetxt("in.csv", repeated, delimiter=",", header="time,q1,q2", comments="")
    line = f"{command} in.csv --max-gap 1 --repeated-times drop --trim --json"
    first, second = trajcli.ok(f"{line} -o out.h5").document["keep_ranges"]
    assert [first["trajectory"], second["trajectory"]] == ["in/segment_0", "in/segment_1"]
    # the repeated row is one more before both
    assert first["rows"][0] in (39, 40, 41)
    assert first["rows"][1] == second["rows"][0] == 151
    assert second["rows"][1] - 1 in (251, 252, 253)
    with h5py.File("out.h5") as file:
        for one in (first, second):
            begin, stop = one["rows"]
            rows = file[one["trajectory"]]
            name = "q" if "q" in rows else "position"
            np.testing.assert_allclose(rows[name], repeated[begin:stop, 1:])


def test_motion_with_nan_is_left_whole_and_not_called_standstill(trajcli, folder):
    rows = motion(SPANS[0])
    rows[120] = np.nan
    np.savez("in.npz", position=rows, dt=0.02)
    result = trajcli.ok("export in.npz --trim --json -o out.csv")
    assert result.document["keep_ranges"][0]["rows"] == [0, 300]
    assert "1 left whole, without known motion" in result.err


def test_orientations_alone_are_trimmed_and_two_arrays_one_by_one(trajcli, folder):
    angle = 0.01 * np.clip(np.arange(300) - 50, 0, 100)
    turn = np.stack([np.cos(angle / 2), 0 * angle, 0 * angle, np.sin(angle / 2)], 1)
    with h5py.File("pose.h5", "w") as file:
        file["position"] = motion((200, 250), 300)
        file["orientation"], file["times"] = turn, np.arange(300) * 0.02
        file.attrs["rotation_order"] = "wxyz"
    for name, inner in (("orientation", (50, 150)), ("position", (200, 250))):
        line = f"export pose.h5:{name} --trim --json -o {name}.csv"
        first, stop = trajcli.ok(line).document["keep_ranges"][0]["rows"]
        assert inner[0] - 3 <= first <= inner[0] + 1
        assert inner[1] - 1 <= stop - 1 <= inner[1] + 3
    # rows of one table would no longer belong together
    trajcli.refuses("export pose.h5 --trim -o no.csv", "idle ends", "FILE:DATASET")
