"""resample --at brings a recording onto stamps of its own clock: those of a camera, for example."""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np
import pytest
from formats.test_bags import JOINTS, Maker

BEGIN = 1_700_000_000_123_456_789
UNITS = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}


def joint_stamps(count: int = 300, begin: int = BEGIN) -> np.ndarray:
    return begin + np.cumsum(np.random.default_rng(3).integers(9_000_000, 11_000_000, count))


def camera_stamps(count: int, begin: int, step: int = 33_333_333) -> np.ndarray:
    return begin + np.arange(count) * step


def positions(stamps: np.ndarray) -> np.ndarray:
    t = (stamps - stamps[0]) / 1e9
    return np.sin(t[:, None] * [1.0, 2.0, 3.0])


def interpolated(at: np.ndarray, stamps: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """NumPy's own interpolation, over integers less the first, which are exact."""
    first = stamps[0]
    return np.stack([np.interp(at - first, stamps - first, x) for x in rows.T], 1)


def recording(name: str, stamps: np.ndarray, unit: str = "ns") -> None:
    with h5py.File(name, "w") as file:
        file["q"], file["times"] = positions(stamps), stamps
        if unit != "ns":
            del file["times"]
            file["times"] = stamps / UNITS[unit]
        file["times"].attrs["units"] = unit


def output(name: str = "out.h5") -> tuple[np.ndarray, np.ndarray, int, str]:
    """Position, time, start stamp and its unit."""
    with h5py.File(name) as file:
        time, start = np.squeeze(file["time"]), file["start_stamp"]
        values = file["position"] if "position" in file else file["q"]
        return values[0], time, start[0], start.attrs["units"]


@pytest.mark.parametrize("kind", ["bag", "mcap", "db3"])
@pytest.mark.parametrize("at", ["camera/image_raw", "camera/image_raw/times"])
def test_joint_states_come_onto_the_stamps_of_a_camera_of_the_same_bag(trajcli, folder, kind, at):
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
    line = f"resample {path}:/joint_states/position --at {path}:/{at} -o out.h5"
    result = trajcli(line)
    assert result.code == 0, result.err
    text = " ".join(result.err.split())
    assert "stamps of the source's clock; 60 of 60 lie within the rows" in text
    values, time, start, unit = output()
    expected = interpolated(frames, joints, positions(joints))
    np.testing.assert_allclose(values, expected, rtol=0, atol=1e-12)
    np.testing.assert_array_equal(time, np.arange(60) * 33_333_333 / 1e9)
    assert (start, unit) == (frames[0], "ns")


@pytest.mark.parametrize("of_source", UNITS)
@pytest.mark.parametrize("of_at", UNITS)
def test_clocks_in_any_units_are_one(trajcli, folder, of_source, of_at):
    stamps, at = joint_stamps(), camera_stamps(50, BEGIN + 211_000_000, 40_000_000)
    recording("rec.h5", stamps, of_source)
    with h5py.File("camera.h5", "w") as file:
        file["stamps"] = at if of_at == "ns" else at / UNITS[of_at]
        file["stamps"].attrs["units"] = of_at
    assert trajcli("resample rec.h5:q --at camera.h5:stamps -o out.h5").code == 0
    values, time, start, unit = output()
    # a float64 since 1970 has 2.4e-7 s, and what it holds in ms or us has as many digits
    exact = of_source == of_at == "ns"
    expected = interpolated(at, stamps, positions(stamps))
    np.testing.assert_allclose(values, expected, rtol=0, atol=1e-14 if exact else 2e-6)
    np.testing.assert_allclose(time, np.arange(50) * 0.04, rtol=0, atol=1e-15 if exact else 5e-7)
    assert unit == of_at
    assert abs(int(start * UNITS[of_at]) - int(at[0])) <= (0 if exact else 300)


def test_whole_stamps_of_another_unit_are_placed_exactly(trajcli, folder):
    stamps = joint_stamps()
    at = (BEGIN // 1_000_000 + np.arange(100, 2500, 25)).astype("i8")
    recording("rec.h5", stamps)
    np.savez("camera.npz", times=at)  # in ms by their size
    assert trajcli("resample rec.h5:q --at camera.npz -o out.h5").code == 0
    values, time, start, unit = output()
    expected = interpolated(at * 1_000_000, stamps, positions(stamps))
    np.testing.assert_allclose(values, expected, rtol=0, atol=1e-14)
    np.testing.assert_array_equal(time, np.arange(96) * 25 / 1e3)
    assert (start, unit) == (at[0], "ms")


@pytest.mark.parametrize("method", ["linear", "cubic"])
def test_an_output_gives_its_times_on_the_clock_of_its_source(trajcli, folder, method):
    recording("rec.h5", joint_stamps())
    recording("other.h5", joint_stamps(100, BEGIN + 700_000_000))
    assert trajcli("differentiate other.h5 --method central -o rows.h5").code == 0
    line = f"resample rec.h5:q --at rows.h5:time --method {method} -o out.h5"
    result = trajcli(line)
    assert result.code == 0, result.err
    assert "stamps of the source's clock" in " ".join(result.err.split())
    other = joint_stamps(100, BEGIN + 700_000_000)
    values, time, start, unit = output()
    stamps = joint_stamps()
    expected = interpolated(other, stamps, positions(stamps))
    np.testing.assert_allclose(values, expected, rtol=0, atol=1e-12 if method == "linear" else 1e-3)
    np.testing.assert_allclose(time, (other - other[0]) / 1e9, rtol=0, atol=1e-15)
    assert (start, unit) == (other[0], "ns")


def test_what_lies_outside_is_refused_by_how_much_or_left_out(trajcli, folder):
    stamps = joint_stamps()
    recording("rec.h5", stamps)
    at = camera_stamps(200, int(stamps[0]) - 1_000_000_000, 25_000_000)
    np.savez("camera.npz", times=at)
    before, after = int((at < stamps[0]).sum()), int((at > stamps[-1]).sum())
    assert before == 40
    assert after > 5
    result = trajcli("resample rec.h5:q --at camera.npz:times -o out.h5")
    assert result.code == 2
    text = " ".join(result.err.split())
    late = (int(at[-1]) - int(stamps[-1])) / 1e9
    assert f"of 200 times {before} before the first row, by up to 1 s" in text
    assert f"{after} after the last, by up to {late:.6g} s" in text
    assert not Path("out.h5").exists()
    result = trajcli("resample rec.h5:q --at camera.npz:times -o out.h5 --skip-bad")
    assert result.code == 1
    text = " ".join(result.err.split())
    assert f"{200 - before - after} of 200 lie within the rows" in text
    assert "left out" in text
    inside = at[(at >= stamps[0]) & (at <= stamps[-1])]
    values, time, start, _ = output()
    expected = interpolated(inside, stamps, positions(stamps))
    np.testing.assert_allclose(values, expected, rtol=0, atol=1e-14)
    np.testing.assert_array_equal(time, (inside - inside[0]) / 1e9)
    assert start == inside[0] == stamps[0]


def test_each_of_several_trajectories_takes_the_stamps_within_its_rows(trajcli, folder):
    begins = [BEGIN, BEGIN + 10**10, BEGIN + 5 * 10**10]
    for k, begin in enumerate(begins):
        recording(f"rec_{k}.h5", joint_stamps(100 + 50 * k, begin))
    at = camera_stamps(400, BEGIN, 33_000_000)
    np.savez("camera.npz", times=at)
    result = trajcli("resample rec_*.h5 --at camera.npz:times -o out.h5 --skip-bad --json")
    assert result.code == 1, result.err
    assert len(result.document["left_out"]) == 3  # of the last no stamp is within
    with h5py.File("out.h5") as file:
        assert set(file) >= {"rec_0", "rec_1"}
        assert "rec_2" not in file
        for k, begin in enumerate(begins[:2]):
            stamps, group = joint_stamps(100 + 50 * k, begin), file[f"rec_{k}"]
            inside = at[(at >= stamps[0]) & (at <= stamps[-1])]
            expected = interpolated(inside, stamps, positions(stamps))
            np.testing.assert_allclose(group["q"][()], expected, rtol=0, atol=1e-14)
            np.testing.assert_array_equal(group["time"], (inside - inside[0]) / 1e9)
            assert group["start_stamp"][()] == inside[0]


def test_trajectories_with_stamps_of_their_own_are_each_on_theirs(trajcli, folder):
    stamps = np.stack([joint_stamps(200, BEGIN + k * 10**9) for k in range(3)])
    at = stamps[:, :1] + 10**8 + np.arange(40) * 30_000_000
    q = np.stack([positions(row) for row in stamps])
    with h5py.File("rec.h5", "w") as file:
        file["position"], file["times"], file["at"] = q, stamps, at
        file["times"].attrs["units"] = file["at"].attrs["units"] = "ns"
    assert trajcli("resample rec.h5:position --at rec.h5:at -o out.h5").code == 0
    with h5py.File("out.h5") as file:
        for k in range(3):
            expected = interpolated(at[k], stamps[k], q[k])
            np.testing.assert_allclose(file["position"][k], expected, rtol=0, atol=1e-14)
        np.testing.assert_array_equal(file["start_stamp"], at[:, 0])


@pytest.mark.parametrize(("begin", "by_clock"), [(0.5, True), (40.0, True), (0.01, False)])
def test_the_clock_that_puts_more_stamps_within_the_rows_is_taken(trajcli, folder, begin, by_clock):
    t = 0.3 + np.arange(101) * 0.01 if begin < 1 else 35 + np.arange(1001) * 0.01
    at = begin + np.arange(20) * 0.04
    np.savez("rec.npz", position=np.stack([t, t**2], 1), times=t, at=at)
    line = "resample rec.npz:position --at rec.npz:at -o out.h5 --skip-bad"
    result = trajcli(line)
    assert result.code == 0, result.err
    said = "stamps of the source's clock" if by_clock else "counted from the first row"
    assert said in " ".join(result.err.split())
    values, time, start, _ = output()
    expected = at if by_clock else at + t[0]
    np.testing.assert_allclose(values[:, 0], expected, rtol=1e-12)
    np.testing.assert_allclose(start, expected[0], rtol=1e-15)
    np.testing.assert_allclose(time, at - at[0], rtol=0, atol=1e-15)


def test_stamps_far_from_both_are_refused_by_the_nearer(trajcli, folder):
    stamps = joint_stamps()
    recording("rec.h5", stamps)
    np.savez("camera.npz", times=camera_stamps(10, int(stamps[-1]) + 2 * 10**9))
    result = trajcli("resample rec.h5:q --at camera.npz:times -o out.h5 --skip-bad")
    assert result.code == 2
    assert "10 after the last, by up to 2.3 s" in " ".join(result.err.split())


def test_trajectories_that_cannot_be_computed_are_left_out(trajcli, folder):
    rows = np.load("actions.npy")
    rows[1, 3, 0] = np.nan
    np.save("bad.npy", rows)
    result = trajcli("resample bad.npy --dt 0.1 --to 20 -o out.h5 --skip-bad --json")
    assert result.code == 1
    (left,) = result.document["left_out"]
    assert "trajectory 1, step 3, dof 0" in left["name"]
    assert trajcli("resample actions.npy --dt 0.1 --to 20 -o all.h5").code == 0
    with h5py.File("out.h5") as out, h5py.File("all.h5") as whole:
        np.testing.assert_array_equal(out["actions"], np.delete(whole["actions"], 1, 0))
    rows[:, 3, 0] = np.nan
    np.save("bad.npy", rows)
    assert trajcli("resample bad.npy --dt 0.1 --to 20 -o o.h5 --skip-bad").code == 2


def test_nonfinite_rows_are_resampled_where_that_is_allowed(trajcli, folder):
    rows = np.load("actions.npy")
    rows[1, 3, 0] = np.nan
    np.save("bad.npy", rows)
    assert trajcli("resample bad.npy --dt 0.1 --to 20 -o o.h5").code == 2
    assert trajcli("resample bad.npy --dt 0.1 --to 20 -o out.h5 --allow-nonfinite").code == 0
    assert trajcli("resample actions.npy --dt 0.1 --to 20 -o all.h5").code == 0
    with h5py.File("out.h5") as out, h5py.File("all.h5") as whole:
        missing = np.isnan(out["actions"][:])
        assert missing[1, 5:8, 0].all()  # rows at 0.25, 0.3 and 0.35 s, of lines to or from NaN
        assert missing.sum() == 3
        np.testing.assert_array_equal(out["actions"][:][~missing], whole["actions"][:][~missing])
