"""trajcli diff of what was commanded and measured: delays, errors, gates, many episodes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from journeys.arrays import write_h5

SINCE = 1_700_000_000.0
NAMES = ("shoulder", "elbow", "wrist", "finger")


def commanded(time: np.ndarray) -> np.ndarray:
    """Returns smooth positions, of which the last joint stands still."""
    phase = time[:, None] * [1.1, 2.3, 0.7, 0.0] + [0.0, 1.0, 2.0, 0.3]
    return np.sin(phase) + 0.2 * np.sin(3.1 * phase)


def log(path: str, time: np.ndarray, values: np.ndarray, names: tuple[str, ...] = NAMES) -> None:
    lines = [",".join(["timestamp", *names])]
    for stamp, row in zip(time, values, strict=True):
        lines.append(",".join([f"{SINCE + stamp:.6f}", *(f"{x:.9f}" for x in row)]))
    Path(path).write_bytes("\r\n".join([*lines, ""]).encode())


@pytest.mark.parametrize("late", [0.0346, -0.021, 0.16])
def test_each_joint_has_its_delay_offset_and_error(trajcli, folder, late):
    time = 0.01 * np.arange(800)
    # measured from 1.234 s on, in another order, with noise, and one row far off
    rows = time[124:700] - 0.006
    delays = np.array([late, late + 0.03, late, 0.0])
    measured = np.stack([commanded(rows - d)[:, k] for k, d in enumerate(delays)], 1)
    measured += np.random.default_rng(2).normal([0.0, 0.0, 0.02, 0.0], 2e-4, measured.shape)
    measured[300, 1] += 0.05
    log("commanded.csv", time, commanded(time))
    order = [2, 0, 3, 1]
    log("measured.csv", rows, measured[:, order], tuple(NAMES[k] for k in order))
    (tracked,) = trajcli.fails("diff commanded.csv measured.csv --json").document["tracking"]
    joints = {joint["joint"]: joint for joint in tracked["joints"]}
    assert list(joints) == list(NAMES)
    for k, name in enumerate(NAMES[:3]):
        # by a search over all delays with np.interp
        sent, had, best = commanded(time)[:, k], measured[:, k], (np.inf, 0.0)
        inner = (rows > rows[0] + 0.25) & (rows < rows[-1] - 0.25)
        for delay in np.arange(-0.2, 0.2, 1e-4):
            gap = had[inner] - np.interp(rows[inner] - delay, time, sent)
            best = min(best, (gap.var(), delay))
        delay = best[1]
        inside = (rows - delay >= time[0]) & (rows - delay <= time[-1])
        gap = had[inside] - np.interp(rows[inside] - delay, time, sent)
        assert joints[name]["delay"] == pytest.approx(delays[k], abs=5e-4)
        assert joints[name]["delay"] == pytest.approx(delay, abs=5e-4)
        assert joints[name]["offset"] == pytest.approx(gap.mean(), abs=2e-4)
        assert joints[name]["rms"] == pytest.approx(np.sqrt((gap**2).mean()), rel=0.05, abs=2e-4)
        assert joints[name]["largest"] == pytest.approx(np.abs(gap).max(), abs=1.5e-3)
    assert joints["elbow"]["time"] == pytest.approx(rows[300], abs=1e-6)
    assert joints["finger"]["delay"] is None


def test_gates_decide_alone_by_errors_after_the_delay_and_by_delays(trajcli, folder):
    time = 0.01 * np.arange(500)
    measured = commanded(time - 0.03)
    measured[250, 1] += 0.02
    log("a.csv", time, commanded(time))
    log("b.csv", time, measured)
    trajcli.fails("diff a.csv b.csv")
    for gate, code in (("--max-error 0.025", 0), ("--max-error 0.015", 1), ("--max-delay 0.04", 0),
                       ("--max-delay 0.02", 1), ("--max-error 0.025 --max-delay 0.02", 1),
                       ("--max-error 1e-9 --rtol 9", 1)):  # fmt: skip
        assert trajcli(f"diff a.csv b.csv {gate}", code=code).code == code
    assert "1 of 1 beyond" in trajcli("diff a.csv b.csv --max-delay 0.02").out
    # an offset is an error, in SI also where the files are in degrees
    for name, offset in (("a", 0.0), ("b", 0.5)):
        values = np.degrees(commanded(time))[None] + offset
        write_h5(f"{name}.h5", {"position@units": "deg", "@dt": 0.01}, position=values)
    trajcli.ok("diff a.h5 b.h5 --max-error 0.009")
    trajcli.fails("diff a.h5 b.h5 --max-error 0.008")
    # what was not measured does not pass
    log("few.csv", time, measured[:, :3], NAMES[:3])
    trajcli.fails("diff a.csv few.csv --max-error 1")
    write_h5("still.h5", {"@dt": 0.01}, position=np.ones((1, 50, 2)))
    trajcli.fails("diff still.h5 still.h5 --max-delay 1")
    trajcli.ok("diff still.h5 still.h5 --max-error 0")
    # what a measured file has beside positions is no failure
    stamps = {"time": time, "effort": np.ones((1, 500, 4))}
    write_h5("more.h5", {"position@units": "deg"}, position=values, **stamps)
    trajcli.ok("diff more.h5 b.h5 --max-error 1e-9 --max-delay 0")
    assert "effort" not in trajcli.fails("diff a.h5 more.h5 --max-error 0.008").out.split("\n")[-2]
    for wrong in (time * np.nan, 0 * time, time[::-1]):
        values = {"position": np.degrees(commanded(time))[None], "time": wrong}
        write_h5("wrong.h5", {"position@units": "deg"}, **values)
        said = trajcli.fails("diff a.h5 wrong.h5 --max-error 9 --max-delay 9").out
        assert "how b follows a" not in said
        trajcli.fails("diff wrong.h5 a.h5 --max-error 9")
    measured[100, 0] = np.nan
    for name, values in (("x", commanded(time)), ("y", measured)):
        np.save(f"{name}.npy", values)
    trajcli.fails("diff x.npy y.npy --dt 0.01 --max-error 1")
    said = trajcli.fails("diff x.npy y.npy --max-error 1")
    assert "--dt SECONDS" in said.out


def test_periodic_motions_have_the_shortest_delay(trajcli, folder):
    random, time = np.random.default_rng(1), 0.01 * np.arange(1000)
    for _ in range(5):
        rate = random.uniform(1.5, 3.0, 3)  # several periods in the delays that are looked for
        write_h5("a.h5", {"@dt": 0.01}, position=np.sin(2 * np.pi * rate * time[:, None])[None])
        late = np.sin(2 * np.pi * rate * (time[:, None] - 0.05)) + random.normal(0, 0.01, (1000, 3))
        write_h5("b.h5", {"@dt": 0.01}, position=late[None])
        (tracked,) = trajcli("diff a.h5 b.h5 --json").document["tracking"]
        for joint in tracked["joints"]:
            assert joint["delay"] == pytest.approx(0.05, abs=2e-3)
    ramps = time[:, None] * [1, 2]
    for noise in (0.0, 1e-4):
        write_h5("a.h5", {"@dt": 0.01}, position=ramps[None])
        late = ramps + 0.3 + random.normal(0, noise, ramps.shape)
        write_h5("b.h5", {"@dt": 0.01}, position=late[None])
        (tracked,) = trajcli("diff a.h5 b.h5 --json").document["tracking"]
        assert [x["delay"] for x in tracked["joints"]] == [None, None]
        assert [x["offset"] for x in tracked["joints"]] == pytest.approx([0.3, 0.3], abs=1e-4)


def test_delays_are_found_far_from_zero_and_next_to_nan(trajcli, folder):
    random, time = np.random.default_rng(4), 0.01 * np.arange(1500)
    commanded_rows = commanded(time)[:, :2]
    spread = commanded_rows.std(0)
    for share, known in ((0.1, True), (0.6, False)):  # of the variance, by noise
        noise = random.normal(0, 1.0, commanded_rows.shape) * spread * np.sqrt(share)
        measured = commanded(time - 0.07)[:, :2] + noise + 1e6
        measured[random.random(len(time)) < 0.02] = np.nan
        write_h5("a.h5", {"@dt": 0.01}, position=commanded_rows[None])
        write_h5("b.h5", {"@dt": 0.01}, position=measured[None])
        (tracked,) = trajcli("diff a.h5 b.h5 --json").document["tracking"]
        for k, joint in enumerate(tracked["joints"]):
            assert joint["delay"] == (pytest.approx(0.07, abs=0.03) if known else None)
            assert joint["missing"] == pytest.approx(np.isnan(measured[:, k]).sum(), abs=1)
            assert joint["offset"] == pytest.approx(1e6, abs=0.1)


def test_gates_look_at_orientations_of_their_own_and_at_every_episode(trajcli, folder):
    time = 0.01 * np.arange(300)
    for name, turn, stamps in (("a", 0.0, time), ("b", 0.3, time), ("c", 0.0, time[::-1])):
        arrays = {"demo_0/position": commanded(time), "demo_0/time": time,
                  "demo_1/position": commanded(time), "demo_1/time": stamps}  # fmt: skip
        quaternion = [np.cos(turn / 2), np.sin(turn / 2), 0.0, 0.0]
        arrays["demo_0/orientation"] = np.tile(quaternion, (300, 1))
        write_h5(f"{name}.h5", arrays)
    trajcli.ok("diff a.h5 a.h5 --max-error 0")
    trajcli.ok("diff a.h5 b.h5 --max-error 0.31")
    assert "rad between rotations" in trajcli.fails("diff a.h5 b.h5 --max-error 0.29").out
    assert "demo_1/position" in trajcli.fails("diff a.h5 c.h5 --max-error 9").out.split("\n")[-2]


def test_uneven_stamps_are_met_where_they_are(trajcli, folder):
    time = np.cumsum(np.random.default_rng(5).uniform(0.002, 0.018, 900))
    measured = commanded(time - 0.05)[:, :3]
    for name, rows in (("a", commanded(time)[:, :3]), ("b", measured)):
        write_h5(f"{name}.h5", position=rows[None], time=time)
    (tracked,) = trajcli.fails("diff a.h5 b.h5 --json").document["tracking"]
    for k, joint in enumerate(tracked["joints"]):
        inside = time >= time[0] + joint["delay"]
        gap = measured[:, k] - np.interp(time - joint["delay"], time, commanded(time)[:, k])
        assert joint["largest"] == pytest.approx(np.abs(gap[inside]).max())
        assert joint["rms"] == pytest.approx(np.sqrt((gap[inside] ** 2).mean()))
        assert joint["delay"] == pytest.approx(0.05, abs=0.01)


def test_many_episodes_are_summed_up_by_median_and_worst(trajcli, folder):
    random = np.random.default_rng(0)
    delays, files = random.uniform(0.01, 0.05, 500), ({}, {})
    for k, delay in enumerate(delays):
        time = 0.02 * np.arange(random.integers(100, 140))
        measured = commanded(time - delay)
        measured[50, 2] += 0.5 if k in (7, 77, 177, 277, 377) else 0.0
        for arrays, values in zip(files, (commanded(time), measured), strict=True):
            arrays[f"demo_{k}/position"] = values
            arrays[f"demo_{k}/time"] = time
    for name, arrays in zip("ab", files, strict=True):
        write_h5(f"{name}.h5", arrays)
    result = trajcli.fails("diff a.h5 b.h5")
    assert len(result.out.splitlines()) <= 30
    assert "500 trajectories: delay" in result.out
    (tracked,) = trajcli("diff a.h5 b.h5 --episodes all -v --json").document["tracking"]
    assert tracked["delay"]["median"] == pytest.approx(np.median(delays), abs=1e-3)
    assert tracked["delay"]["high"] == pytest.approx(np.quantile(delays, 0.95), abs=1e-3)
    worst = {int(x["trajectory"].replace("_", " ").split()[-1]) for x in tracked["worst"]}
    assert worst == {7, 77, 177, 277, 377}
    assert all(x["joint"] == "2" for x in tracked["worst"])
    found = [np.median([x["delay"] for x in each[:3]]) for each in tracked["episodes"]]
    np.testing.assert_allclose(found, delays, atol=2e-3)
