"""trajcli check of what a controller would be sent: jumps, frozen rows, gaps, rest, the curve."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from journeys.arrays import write_h5
from scipy import interpolate

SINCE = 1_700_000_000.25


def checks(result) -> dict[str, dict]:
    return {check["check"]: check for check in result.document["checks"]}


def log(path: str, values: np.ndarray, times: np.ndarray) -> None:
    """Writes a log as loggers on Windows do: a BOM, CRLF, stamps since 1970, an empty line."""
    names = [f"joint_{n}" for n in range(1, values.shape[1])] + ["gripper"]
    lines = [",".join(["time", *names])]
    for time, row in zip(times, values, strict=True):
        lines.append(",".join([f"{SINCE + time:.6f}", *(f"{x:.6f}" for x in row)]))
    Path(path).write_bytes(("\ufeff" + "\r\n".join([*lines, "", ""])).encode())


def motion(rows: int = 1200) -> tuple[np.ndarray, np.ndarray]:
    """Returns a measured motion of an arm, with counts and noise, and a gripper; and times."""
    time = 0.01 * np.arange(rows)
    arm = np.sin(time[:, None] * [1.0, 0.7, 1.3]) + 0.1 * np.sin(5 * time[:, None] + [0, 1, 2])
    arm[:150] = arm[150]  # at rest first, but for noise
    arm += np.random.default_rng(3).normal(0, 2e-4, arm.shape)
    arm[:, 2] = np.round(arm[:, 2], 3)
    return np.c_[arm, 0.04 * (np.sin(2 * time) > 0)], time


def test_jumps_are_steps_that_neighbours_do_not_explain(trajcli, folder):
    values, time = motion()
    log("good.csv", values, time)
    found = checks(trajcli.ok("check good.csv --json"))
    assert found["jumps"]["passed"]
    assert found["frozen rows"]["passed"]
    for row, dof in ((60, 0), (700, 1), (1000, 2)):
        moved = values.copy()
        moved[row:, dof] += 0.25
        log("bad.csv", moved, time)
        found = checks(trajcli.fails("check bad.csv --json"))
        jump = found["jumps"]
        assert [name for name in found if found[name]["passed"] is False] == ["jumps"]
        assert (jump["at"]["row"], jump["at"]["dof"]) == (row, dof)
        assert jump["failing_values"] == 1
        assert abs(jump["at"]["time"] - time[row]) < 1e-5
    assert "row 1000, dof 2 (joint_3), 10.000 s" in trajcli("check bad.csv").out


@pytest.mark.parametrize("rate", [10, 30, 125, 1000])
@pytest.mark.parametrize(
    "kind", ["noise", "encoder", "held", "uneven", "demonstration", "moves", "gripper", "bursts"]
)
def test_sound_logs_have_no_jumps_or_frozen_rows(trajcli, folder, kind, rate):
    """Twenty recordings each: whoever is told of faults in good data looks for none again."""
    random, arrays = np.random.default_rng(rate), {}
    for k in range(20):
        time = np.arange(int(random.uniform(5, 9) * rate)) / rate
        pace, phase, size = random.uniform([0.3, 0, 0.05], [4, 6, 1.5], (3, 3)).T

        def motion(t, pace=pace, phase=phase, size=size):
            angle = t[:, None] * pace + phase
            return size * (np.sin(angle) + 0.2 * np.sin(2.3 * angle))

        rows = motion(time)
        if kind == "noise":
            rows += random.normal(0, 10 ** random.uniform(-5, -2), rows.shape)
        elif kind == "encoder":  # also where it moves by a count now and then
            count = 2 * np.pi / random.choice([1024, 4096, 2**17])
            rows = np.round(rows * random.choice([1.0, 0.02]) / count) * count
        elif kind == "held":
            rows = rows[np.arange(len(time)) // (1 + k) * (1 + k)]
        elif kind == "uneven":  # commands of another clock, logged at this one
            commanded = np.cumsum(random.uniform(0.5, 1.5, 2 * len(time)) * (1.3 + k) / rate)
            rows = motion(np.r_[0, commanded])[np.searchsorted(commanded, time)]
        elif kind == "demonstration":  # servos in counts, pauses, sudden starts
            kernel, parts = np.ones(9) / 9, np.repeat(random.random(len(time)) < 0.7, 15)
            speed = random.normal(0, 1, rows.shape) * parts[: len(time), None]
            speed = np.stack([np.convolve(x, kernel, "same") for x in speed.T], 1)
            rows = np.round(np.cumsum(speed, 0) * 20 / (360 / 4096)) * 360 / 4096
        elif kind == "moves":  # from rest to rest, and dwells
            s = np.clip((time[:, None] - [0.5, 1.5, 3.5]) / random.uniform(0.4, 2, 3), 0, 1)
            rows = size * (10 * s**3 - 15 * s**4 + 6 * s**5)
            rows = np.round(rows, 4) if k % 2 else rows
        elif kind == "gripper":
            lag = 1 - np.exp(-1 / rate / random.uniform(0.03, 0.3))
            rows[0, 2] = 0.0
            for n in range(1, len(time)):
                closed = 0.04 * (np.sin(2 * time[n]) > 0)
                rows[n, 2] = closed if k % 2 else rows[n - 1, 2] + lag * (closed - rows[n - 1, 2])
        elif kind == "bursts":  # stamps of when rows arrived, not of when they were measured
            late = time + random.exponential(0.3 / rate, len(time))
            time = np.maximum.accumulate(late) + 1e-9 * np.arange(len(time))
        arrays |= {f"demo_{k}/position": rows, f"demo_{k}/time": time}
    write_h5("good.h5", arrays)
    found = checks(trajcli("check good.h5 -v --json"))
    assert found["jumps"]["passed"], found["jumps"]["failures"]
    assert found["frozen rows"]["passed"], found["frozen rows"]["failures"]


def test_turns_are_no_jumps_but_a_check_of_their_own(trajcli, folder):
    angle = (1.5 * (0.01 * np.arange(1000))[:, None] + [0.0, 1.0] + np.pi) % (2 * np.pi) - np.pi
    write_h5("wraps.h5", {"position@units": "rad", "@dt": 0.01}, position=angle[None])
    found = checks(trajcli.fails("check wraps.h5 --json"))
    assert found["jumps"]["passed"]
    assert found["jumps of a turn"]["failing_values"] == (np.abs(np.diff(angle, axis=0)) > 3).sum()


@pytest.mark.parametrize(("begin", "count"), [(400, 8), (700, 60)])
def test_rows_that_repeat_in_motion_are_frozen(trajcli, folder, begin, count):
    values, time = motion()
    values[begin : begin + count] = values[begin]
    log("frozen.csv", values, time)
    found = checks(trajcli.fails("check frozen.csv --json"))
    frozen = found["frozen rows"]
    assert [name for name in found if found[name]["passed"] is False] == ["frozen rows"]
    assert frozen["at"]["row"] == begin + count
    assert f"{count} equal rows ({(count - 1) * 0.01:.3g} s) in motion" in frozen["text"]


def test_dwells_and_held_commands_are_no_frozen_rows(trajcli, folder):
    s = np.linspace(0, 1, 200)
    reach = 10 * s**3 - 15 * s**4 + 6 * s**5
    plan = np.concatenate([reach, np.ones(100), 1 + reach])[:, None] * [1.0, -2.0]
    held = np.repeat(np.sin(np.arange(120.0) * 0.1), 10)[:, None] * [1.0, 0.5]
    for name, rows in (("plan", plan), ("held", held)):
        write_h5(f"{name}.h5", {"@dt": 0.01}, position=rows[None])
        found = checks(trajcli.ok(f"check {name}.h5 --json"))
        assert found["jumps"]["passed"]
        assert found["frozen rows"]["passed"]
    assert checks(trajcli.ok("check plan.h5 --rest --json"))["rest"]["passed"]


def test_gaps_and_jitter_of_stamps_are_measured(trajcli, folder):
    values, time = motion()
    random = np.random.default_rng(0)
    jittered = time + random.normal(0, 2e-4, time.shape)
    log("good.csv", values, jittered)
    good = checks(trajcli.ok("check good.csv --json"))["gaps"]
    steps = np.diff(np.round(SINCE + jittered, 6))
    assert abs(good["jitter"] - np.sqrt(np.mean((steps - np.median(steps)) ** 2))) < 1e-6
    assert abs(good["longest"] - steps.max()) < 1e-6
    kept = np.r_[0:500, 540:1000, 1020:1200]
    log("gaps.csv", values[kept], jittered[kept])
    gaps = checks(trajcli.fails("check gaps.csv --json"))["gaps"]
    assert [row["row"] for row in gaps["rows"]] == [500, 960]
    assert abs(gaps["longest"] - (jittered[540] - jittered[499])) < 1e-5
    # episodes of other rates have no gaps for that, and a gap in one is one for its own rate
    rates = {f"demo_{k}/time": values[:200, 0] * 0 + time[:200] * (1 + 9 * (k > 4))
             for k in range(10)}  # fmt: skip
    rates["demo_7/time"] = np.append(rates["demo_7/time"][:100], rates["demo_7/time"][100:] + 1.0)
    arrays = {f"demo_{k}/position": values[:200] for k in range(10)}
    write_h5("rates.h5", {n: x + random.normal(0, 1e-4, 200) for n, x in rates.items()} | arrays)
    gaps = checks(trajcli.fails("check rates.h5 --json"))["gaps"]
    assert gaps["where"].startswith("demo_7, row 100")
    assert gaps["failing_values"] == 1
    # of uneven stamps as of a plan's few points, no step is too long
    write_h5("plan.h5", position=values[None, :4, :2], time=np.array([0.0, 0.1, 0.2, 3.0]))
    assert checks(trajcli.ok("check plan.h5 --json"))["gaps"]["passed"]


def test_rest_is_asked_of_both_ends_and_fails_where_nothing_tells(trajcli, folder):
    s = np.linspace(0, 2, 201) / 2
    position = (10 * s**3 - 15 * s**4 + 6 * s**5)[:, None] * [1.0, -0.5]
    velocity = ((30 * s**2 - 60 * s**3 + 30 * s**4) / 2)[:, None] * [1.0, -0.5]
    acceleration = ((60 * s - 180 * s**2 + 120 * s**3) / 4)[:, None] * [1.0, -0.5]
    rows = {"position": position, "velocity": velocity, "acceleration": acceleration}
    write_h5("plan.h5", {"@dt": 0.01}, **{n: x[None] for n, x in rows.items()})
    found = trajcli.ok("check plan.h5 --rest --json").document["checks"]
    assert [c["quantity"] for c in found if c["check"] == "rest"] == ["velocity", "acceleration"]
    write_h5("cut.h5", {"@dt": 0.01}, **{n: x[None, :150] for n, x in rows.items()})
    trajcli.ok("check cut.h5")
    rest = checks(trajcli.fails("check cut.h5 --rest --json"))["rest"]
    assert rest["at"] == {"trajectory": 0, "row": 149, "dof": 0, "time": pytest.approx(1.49)}
    # a trajectory that moves at both ends is one
    write_h5("both.h5", {"@dt": 0.01}, position=np.tile(position[None, 20:150], (3, 1, 1)))
    rest = checks(trajcli.fails("check both.h5 --rest --json"))["rest"]
    assert (rest["failing_trajectories"], rest["failing_values"]) == (3, 12)
    # positions alone are differentiated: also a measured robot with noise at rest
    noise = np.random.default_rng(0).normal(0, 1e-4, (400, 2))
    measured = (
        np.concatenate([np.zeros((100, 2)), position, np.tile(position[-1], (99, 1))]) + noise
    )
    for name, values, good in (("plan", position, 1), ("cut", position[:150], 0),
                               ("late", position[20:], 0), ("measured", measured, 1)):  # fmt: skip
        np.save(f"{name}.npy", values)
        run = trajcli.ok if good else trajcli.fails
        assert checks(run(f"check {name}.npy --dt 0.01 --rest --json"))["rest"]["passed"] == good
    rest = checks(trajcli.fails("check plan.npy --rest --json"))["rest"]
    assert rest["text"].startswith("not checked")


def test_limits_hold_between_rows_for_the_curve_that_resample_sends(trajcli, folder):
    """Dense samples of SciPy's polynomials tell what the curve reaches."""
    knots = np.cumsum(np.random.default_rng(1).uniform(0.2, 0.4, 14))
    phase = knots[:, None] * [3.0, 2.0] + [0.1, 0.7]
    derivatives = np.stack([
        np.sin(phase), np.cos(phase) * [3.0, 2.0], -np.sin(phase) * [9.0, 4.0]
    ])  # fmt: skip
    dense = np.linspace(knots[0], knots[-1], 200_001)
    rows = dict(zip(("position", "velocity", "acceleration"), derivatives, strict=True))
    quintic = interpolate.BPoly.from_derivatives(knots, derivatives.transpose(1, 0, 2))
    cubic = interpolate.CubicHermiteSpline(knots, *derivatives[:2])
    for given, curve, name in ((3, quintic, "quintic"), (2, cubic, "cubic")):
        write_h5("plan.h5", **{n: x[None] for n, x in list(rows.items())[:given]}, time=knots)
        options = "check plan.h5 --limits limits.toml --json"
        for order, quantity in enumerate(list(rows)[:given]):
            values = curve(dense, order) if order else curve(dense)
            reached, on_rows = np.abs(values).max(), np.abs(rows[quantity]).max()
            assert reached > 1.0003 * on_rows  # else this shows nothing
            check = f"{quantity} limits between rows"
            for limit, good in ((1.0001 * reached, True), (0.9999 * reached, False)):
                Path("limits.toml").write_text(f"[{quantity}]\nupper = {limit}")
                found = checks(trajcli(options))
                assert found[f"{quantity} limits"]["passed"]
                assert found[check]["passed"] is good
                assert found[check]["curve"] == name
            assert abs(abs(found[check]["value"]) - reached) < 1e-6 * reached
            at = dense[np.abs(values).max(1).argmax()]
            place, dof = found[check]["at"], found[check]["dofs"][0]
            assert knots[place["row"]] <= at <= knots[place["row"] + 1]
            assert abs(place["time"] - at) < 1e-4
            spans = [span["rows"] for span in dof["spans"]]
            assert any(first <= dof["row"] < last for first, last in spans)
            # and what is sent is that curve
            trajcli.ok("resample plan.h5 --to 5000 -o sent.h5 --overwrite")
            sent = trajcli("check sent.h5 --limits limits.toml --json")
            assert checks(sent)[f"{quantity} limits"]["passed"] is False


def test_between_rows_of_a_mode_its_own_polynomial_counts(trajcli, folder):
    """Acceleration is linear over a step and changes its sign in it, where the velocity peaks."""
    write_h5("in.h5", {"@dt": 1.0}, actions=np.array([[[3.0], [-2.0], [1.0], [0.0]]]))
    trajcli.ok("integrate in.h5 --mode acceleration --scheme foh --start zero -o out.h5")
    Path("limits.toml").write_text("[velocity]\nupper = 2.39")
    found = checks(trajcli("check out.h5 --limits limits.toml --json"))
    peaks = {name: found[name] for name in found if name.startswith("velocity limits")}
    # from rows 0 to 1 acceleration rises from 0 to 3, then falls to −2: v = 1.5 + 3·0.6 / 2 = 2.4
    assert peaks["velocity limits"]["passed"]
    between = peaks["velocity limits between rows"]
    assert between["passed"] is False
    assert between["curve"] == "acceleration foh"
    assert between["value"] == pytest.approx(2.4)
    assert between["at"] == {"trajectory": 0, "row": 1, "dof": 0, "time": pytest.approx(1.6)}
    assert "row 1, dof 0, 1.600 s" in trajcli("check out.h5 --limits limits.toml -v").out


ODD = {
    "no_rows": np.zeros((1, 0, 2)), "no_dofs": np.zeros((1, 50, 0)), "none": np.zeros((0, 50, 2)),
    "nan": np.full((1, 50, 2), np.nan), "one_row": np.ones((1, 1, 2)),
}  # fmt: skip


@pytest.mark.parametrize("kind", ODD)
def test_what_was_asked_of_empty_files_fails(trajcli, folder, kind):
    write_h5("odd.h5", {"@dt": 0.01}, position=ODD[kind])
    write_h5("good.h5", {"@dt": 0.01}, position=np.sin(0.1 * np.arange(100).reshape(1, 50, 2)))
    Path("limits.toml").write_text("[position]\nupper = 9\n[velocity]\nupper = 9")
    assert trajcli("check odd.h5", code=None).code == (kind == "nan")
    assert trajcli("check odd.h5 --limits limits.toml --rest", code=None).code in (1, 2)
    for pair in ("odd.h5 good.h5", "good.h5 odd.h5"):
        trajcli.fails(f"diff {pair}")
        trajcli.fails(f"diff {pair} --max-error 9 --max-delay 9")
    trajcli.fails("diff odd.h5 odd.h5 --max-delay 9")
