"""Stamps of a source's clock: outputs keep them, and resample --at brings recordings onto them."""

from __future__ import annotations

import json
from pathlib import Path

import h5py
import numpy as np
import pytest
from formats.test_bags import JOINTS, Maker
from journeys.arrays import close, read_h5, same, write_h5

BEGIN = 1_700_000_000_123_456_789
UNITS = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}


def joint_stamps(count: int = 300, begin: int = BEGIN) -> np.ndarray:
    return begin + np.cumsum(np.random.default_rng(3).integers(9_000_000, 11_000_000, count))


def camera_stamps(count: int, begin: int, step: int = 33_333_333) -> np.ndarray:
    return begin + np.arange(count) * step


def positions(stamps: np.ndarray) -> np.ndarray:
    return np.sin(((stamps - stamps[0]) / 1e9)[:, None] * [1.0, 2.0, 3.0])


def interpolated(at: np.ndarray, stamps: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """NumPy's own interpolation, over integers less the first, which are exact."""
    first = stamps[0]
    return np.stack([np.interp(at - first, stamps - first, x) for x in rows.T], 1)


def recording(name: str, stamps: np.ndarray, unit: str = "ns") -> None:
    times = stamps if unit == "ns" else stamps / UNITS[unit]
    write_h5(name, {"times@units": unit}, q=positions(stamps), times=times)


def output() -> tuple[np.ndarray, np.ndarray, int, str]:
    """Position, time, start stamp and its unit."""
    with h5py.File("out.h5") as file:
        time, start = np.squeeze(file["time"]), file["start_stamp"]
        values = file["position"] if "position" in file else file["q"]
        return values[0], time, start[0], start.attrs["units"]


def assert_interpolated(at: np.ndarray, stamps: np.ndarray, atol: float = 1e-14) -> None:
    """out.h5 holds a recording with these stamps at others, and the first of them."""
    values, time, start, unit = output()
    close(values, interpolated(at, stamps, positions(stamps)), rtol=0, atol=atol)
    close(time, (at - at[0]) / 1e9, rtol=0, atol=1e-15)
    assert (start, unit) == (at[0], "ns")


@pytest.mark.parametrize(
    ("kind", "at"),
    [("bag", "camera/image_raw"), ("mcap", "camera/image_raw/times"), ("db3", "camera/image_raw")],
)
def test_joint_states_come_onto_the_stamps_of_a_camera(trajcli, folder, kind, at):
    pytest.importorskip("rosbags")
    make = Maker(kind)
    joints, frames = joint_stamps(), camera_stamps(60, BEGIN + 500_000_000)
    messages = []
    for stamp, q in zip(joints.tolist(), positions(joints), strict=True):
        message = make.joints(stamp, ["a", "b", "c"], q, 2 * q)
        messages.append(("/joint_states", JOINTS, stamp + 2_000_000, message))
    kinds = "sensor_msgs/msg/Image"
    for stamp in frames.tolist():
        image = make(kinds, make.header(stamp), 2, 2, "mono8", 0, 2, np.zeros(4, np.uint8))
        messages.append(("/camera/image_raw", kinds, stamp + 30_000_000, image))
    path = make.write(kind, sorted(messages, key=lambda message: message[2]))
    result = trajcli.ok(f"resample {path}:/joint_states/position --at {path}:/{at} -o out.h5")
    text = " ".join(result.err.split())
    assert "stamps of the source's clock; 60 of 60 lie within the rows" in text
    assert_interpolated(frames, joints, 1e-12)


@pytest.mark.parametrize(
    ("of_source", "of_at"), [("ns", "ns"), ("s", "ns"), ("ns", "ms"), ("us", "s"), ("ms", "us")]
)
def test_clocks_in_any_units_are_one(trajcli, folder, of_source, of_at):
    stamps, at = joint_stamps(), camera_stamps(50, BEGIN + 211_000_000, 40_000_000)
    recording("rec.h5", stamps, of_source)
    stored = at if of_at == "ns" else at / UNITS[of_at]
    write_h5("camera.h5", {"stamps@units": of_at}, stamps=stored)
    trajcli.ok("resample rec.h5:q --at camera.h5:stamps -o out.h5")
    values, time, start, unit = output()
    # a float64 since 1970 has 2.4e-7 s, and what it holds in ms or us has as many digits
    exact = of_source == of_at == "ns"
    expected = interpolated(at, stamps, positions(stamps))
    close(values, expected, rtol=0, atol=1e-14 if exact else 2e-6)
    close(time, np.arange(50) * 0.04, rtol=0, atol=1e-15 if exact else 5e-7)
    assert unit == of_at
    assert abs(int(start * UNITS[of_at]) - int(at[0])) <= (0 if exact else 300)


def test_whole_stamps_of_another_unit_are_placed_exactly(trajcli, folder):
    stamps = joint_stamps()
    at = (BEGIN // 1_000_000 + np.arange(100, 2500, 25)).astype("i8")
    recording("rec.h5", stamps)
    np.savez("camera.npz", times=at)  # in ms by their size
    trajcli.ok("resample rec.h5:q --at camera.npz -o out.h5")
    values, time, start, unit = output()
    close(values, interpolated(at * 1_000_000, stamps, positions(stamps)), rtol=0, atol=1e-14)
    same(time, np.arange(96) * 25 / 1e3)
    assert (start, unit) == (at[0], "ms")


@pytest.mark.parametrize("method", ["linear", "cubic"])
def test_an_output_gives_its_times_on_the_clock_of_its_source(trajcli, folder, method):
    recording("rec.h5", joint_stamps())
    recording("other.h5", joint_stamps(100, BEGIN + 700_000_000))
    trajcli.ok("differentiate other.h5 --method central -o rows.h5")
    result = trajcli.ok(f"resample rec.h5:q --at rows.h5:time --method {method} -o out.h5")
    assert "stamps of the source's clock" in " ".join(result.err.split())
    other = joint_stamps(100, BEGIN + 700_000_000)
    assert_interpolated(other, joint_stamps(), 1e-12 if method == "linear" else 1e-3)


def test_what_lies_outside_is_refused_by_how_much_or_left_out(trajcli, folder):
    stamps = joint_stamps()
    recording("rec.h5", stamps)
    at = camera_stamps(200, int(stamps[0]) - 1_000_000_000, 25_000_000)
    np.savez("camera.npz", times=at)
    before, after = int((at < stamps[0]).sum()), int((at > stamps[-1]).sum())
    assert before == 40
    assert after > 5
    late = (int(at[-1]) - int(stamps[-1])) / 1e9
    early = f"of 200 times {before} before the first row, by up to 1 s"
    line = "resample rec.h5:q --at camera.npz:times -o out.h5"
    trajcli.refuses(line, early, f"{after} after the last, by up to {late:.6g} s")
    text = " ".join(trajcli.fails(f"{line} --skip-bad").err.split())
    assert f"{200 - before - after} of 200 lie within the rows" in text
    assert "left out" in text
    assert_interpolated(at[(at >= stamps[0]) & (at <= stamps[-1])], stamps)


def test_each_of_several_trajectories_takes_the_stamps_within_its_rows(trajcli, folder):
    begins = [BEGIN, BEGIN + 10**10, BEGIN + 5 * 10**10]
    for k, begin in enumerate(begins):
        recording(f"rec_{k}.h5", joint_stamps(100 + 50 * k, begin))
    at = camera_stamps(400, BEGIN, 33_000_000)
    np.savez("camera.npz", times=at)
    result = trajcli.fails("resample rec_*.h5 --at camera.npz:times -o out.h5 --skip-bad --json")
    assert len(result.document["left_out"]) == 3  # of the last no stamp is within
    with h5py.File("out.h5") as file:
        assert set(file) >= {"rec_0", "rec_1"}
        assert "rec_2" not in file
        for k, begin in enumerate(begins[:2]):
            stamps, group = joint_stamps(100 + 50 * k, begin), file[f"rec_{k}"]
            inside = at[(at >= stamps[0]) & (at <= stamps[-1])]
            expected = interpolated(inside, stamps, positions(stamps))
            close(group["q"][()], expected, rtol=0, atol=1e-14)
            same(group["time"], (inside - inside[0]) / 1e9)
            assert group["start_stamp"][()] == inside[0]


def test_trajectories_with_stamps_of_their_own_are_each_on_theirs(trajcli, folder):
    stamps = np.stack([joint_stamps(200, BEGIN + k * 10**9) for k in range(3)])
    at = stamps[:, :1] + 10**8 + np.arange(40) * 30_000_000
    q = np.stack([positions(row) for row in stamps])
    write_h5("rec.h5", {"times@units": "ns", "at@units": "ns"}, position=q, times=stamps, at=at)
    trajcli.ok("resample rec.h5:position --at rec.h5:at -o out.h5")
    with h5py.File("out.h5") as file:
        for k in range(3):
            expected = interpolated(at[k], stamps[k], q[k])
            close(file["position"][k], expected, rtol=0, atol=1e-14)
        same(file["start_stamp"], at[:, 0])


@pytest.mark.parametrize(("begin", "by_clock"), [(0.5, True), (40.0, True), (0.01, False)])
def test_the_clock_that_puts_more_stamps_within_the_rows_is_taken(trajcli, folder, begin, by_clock):
    t = 0.3 + np.arange(101) * 0.01 if begin < 1 else 35 + np.arange(1001) * 0.01
    at = begin + np.arange(20) * 0.04
    np.savez("rec.npz", position=np.stack([t, t**2], 1), times=t, at=at)
    result = trajcli.ok("resample rec.npz:position --at rec.npz:at -o out.h5 --skip-bad")
    said = "stamps of the source's clock" if by_clock else "counted from the first row"
    assert said in " ".join(result.err.split())
    values, time, start, _ = output()
    expected = at if by_clock else at + t[0]
    close(values[:, 0], expected, rtol=1e-12)
    close(start, expected[0], rtol=1e-15)
    close(time, at - at[0], rtol=0, atol=1e-15)


def test_nonfinite_rows_are_refused_left_out_or_resampled_where_allowed(trajcli, folder):
    rows = np.load("actions.npy")
    rows[1, 3, 0] = np.nan
    np.save("bad.npy", rows)
    line = "resample bad.npy --dt 0.1 --to 20 -o out.h5 --overwrite"
    trajcli.refuses(line)
    trajcli.ok("resample actions.npy --dt 0.1 --to 20 -o all.h5")
    (left,) = trajcli.fails(f"{line} --skip-bad --json").document["left_out"]
    assert "trajectory 1, step 3, dof 0" in left["name"]
    whole = read_h5("all.h5")["actions"]
    same(read_h5("out.h5")["actions"], np.delete(whole, 1, 0))
    trajcli.ok(f"{line} --allow-nonfinite")
    values = read_h5("out.h5")["actions"]
    missing = np.isnan(values)
    assert missing[1, 5:8, 0].all()  # rows at 0.25, 0.3 and 0.35 s, of lines to or from NaN
    assert missing.sum() == 3
    same(values[~missing], whole[~missing])
    rows[:, 3, 0] = np.nan
    np.save("bad.npy", rows)
    trajcli.refuses(f"{line} --skip-bad")


FIRST = np.array([1_700_000_000_000_000_123, 0, 1_700_000_060_000_000_457])
"""More digits than float64 has."""


@pytest.fixture
def recordings(folder: Path) -> None:
    """Three files with stamps in ns, one of which begins at 0."""
    for k, (first, rows) in enumerate(zip(FIRST, (40, 60, 40), strict=True)):
        clock = joint_stamps(rows + k)[k:]
        recording(f"rec_{k}.h5", first + clock - clock[0])


def stamps(path: str) -> dict[str, tuple[int, str]]:
    """The stamps in a file and their unit, by the group or number of the trajectory."""
    found = {}
    with h5py.File(path) as file:
        for name in (name for name in read_h5(path) if name.endswith("start_stamp")):
            assert file[name].dtype == np.int64
            for k, value in enumerate(np.ravel(file[name])):
                key = name.rpartition("/")[0] or str(k)
                found[key] = (int(value), file[name].attrs["units"])
    return found


def test_resampling_an_output_keeps_the_clock_and_inspect_says_it(trajcli, recordings):
    trajcli.ok("differentiate rec_2.h5 --method central -o out.h5")
    trajcli.ok("resample out.h5:position --to 50 -o again.h5")
    assert stamps("again.h5") == {"0": (int(FIRST[2]), "ns")}
    (facts,) = json.loads(trajcli("inspect again.h5 --json").out)["files"]
    assert facts["trajectories"]["start_stamps"] == [int(FIRST[2])]
    assert facts["trajectories"]["stamps_unit"] == "ns"
    assert f"begins at {FIRST[2]} ns" in trajcli("inspect again.h5").out


def test_an_export_of_arrays_begins_at_0_and_keeps_the_clock(trajcli, recordings):
    trajcli.ok("export rec_2.h5:q -o out.h5")
    assert stamps("out.h5") == {"0": (int(FIRST[2]), "ns")}
    clock = 1.7e9 + np.array([0.0, 0.125, 0.375])  # float64 seconds, which are not converted
    write_h5("in.h5", position=positions(clock), times=clock)
    trajcli.ok("export in.h5 -o first.h5")
    trajcli.ok("export first.h5 -o again.h5")
    for name in ("first.h5", "again.h5"):
        arrays = read_h5(name)
        same(np.ravel(arrays["time"]), clock - clock[0])
        same(np.ravel(arrays["start_stamp"]), clock[:1])


@pytest.mark.parametrize("sources", ["rec_*.h5", "rec_0.h5 rec_2.h5", "rec_1.h5 rec_1.h5"])
def test_parts_merge_to_the_bytes_of_a_run_in_one_piece(trajcli, recordings, sources):
    run = f"differentiate {sources} --method central -o"
    count = 3 if "*" in sources else 2
    for k in range(count):
        trajcli.ok(f"{run} out.h5 --shard {k}/{count}")
    trajcli.ok("merge out.h5")
    trajcli.ok(f"{run} whole.h5")
    assert Path("out.h5").read_bytes() == Path("whole.h5").read_bytes()
    if "*" in sources:
        assert stamps("whole.h5") == {f"rec_{k}": (int(x), "ns") for k, x in enumerate(FIRST)}
        assert read_h5("whole.h5")["rec_2/time"][0] == 0.0
    else:
        assert bool(stamps("whole.h5")) == ("rec_0" in sources)


def test_nothing_is_said_where_a_source_has_no_clock(trajcli, recordings):
    trajcli.ok("differentiate rec_1.h5 --method central -o zero.h5")
    trajcli.ok("differentiate rec_0.h5 --rate 100 --method central -o rate.h5")
    assert not stamps("zero.h5")
    assert not stamps("rate.h5")


def test_an_output_that_begins_after_its_source_keeps_the_clock(trajcli, recordings):
    write_h5("at.h5", {"at@units": "ms"}, at=[100, 150, 200, 250])
    trajcli.ok("resample rec_2.h5:q --times rec_2.h5:times --at at.h5:at -o later.h5")
    close(read_h5("later.h5")["time"], [0, 0.05, 0.1, 0.15], rtol=1e-15)
    trajcli.ok("resample later.h5 --to 20 -o again.h5")
    assert stamps("again.h5") == {"0": (int(FIRST[2]) + 100_000_000, "ns")}


@pytest.mark.parametrize(("method", "first"), [("hold", 0), ("linear", 1)])
def test_actions_with_a_stamp_more_begin_where_their_rows_do(trajcli, folder, method, first):
    clock = FIRST[0] + np.arange(21) * 10_000_000
    write_h5("in.h5", {"times@units": "ns"}, actions=positions(clock[1:]), times=clock)
    trajcli.ok(f"resample in.h5:actions --method {method} --to 50 -o out.h5")
    assert stamps("out.h5") == {"0": (int(clock[first]), "ns")}


@pytest.mark.parametrize("gap", [0, 1_000_000_000])
def test_segments_have_the_stamps_of_their_own_trajectory(trajcli, folder, gap):
    times = FIRST[:, None] + np.arange(40) * 10_000_000 + gap * (np.arange(40) >= 20)
    position = np.random.default_rng(1).normal(size=(3, 40, 2))
    write_h5("in.h5", {"times@units": "ns"}, position=position, times=times)
    trajcli.ok("differentiate in.h5 --method central --max-gap 0.5 -o out.h5")
    expected = times[:, [0, 20]] if gap else times[:, 0]
    assert sorted(value for value, _ in stamps("out.h5").values()) == sorted(expected.flat)
