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
    random = np.random.default_rng(3)
    time = 0.01 * np.arange(rows)
    arm = np.sin(time[:, None] * [1.0, 0.7, 1.3]) + 0.1 * np.sin(5 * time[:, None] + [0, 1, 2])
    arm[:150] = arm[150]  # at rest first, but for noise
    arm += random.normal(0, 2e-4, arm.shape)
    arm[:, 2] = np.round(arm[:, 2], 3)
    return np.c_[arm, 0.04 * (np.sin(2 * time) > 0)], time


def test_a_jump_is_what_neighbours_do_not_explain_and_noise_counts_and_grippers_are_none(
    trajcli, folder
):
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


def test_turns_are_no_jumps_but_a_check_of_their_own(trajcli, folder):
    time = 0.01 * np.arange(1000)
    angle = (1.5 * time[:, None] + [0.0, 1.0] + np.pi) % (2 * np.pi) - np.pi
    write_h5("wraps.h5", {"position@units": "rad", "@dt": 0.01}, position=angle[None])
    found = checks(trajcli.fails("check wraps.h5 --json"))
    assert found["jumps"]["passed"]
    assert found["jumps of a turn"]["failing_values"] == (np.abs(np.diff(angle, axis=0)) > 3).sum()


@pytest.mark.parametrize(("begin", "count"), [(400, 8), (700, 60)])
def test_rows_that_repeat_in_motion_are_frozen_and_those_of_a_robot_at_rest_are_not(
    trajcli, folder, begin, count
):
    values, time = motion()
    values[begin : begin + count] = values[begin]
    log("frozen.csv", values, time)
    found = checks(trajcli.fails("check frozen.csv --json"))
    frozen = found["frozen rows"]
    assert [name for name in found if found[name]["passed"] is False] == ["frozen rows"]
    assert frozen["at"]["row"] == begin + count
    assert f"{count} equal rows ({(count - 1) * 0.01:.3g} s) in motion" in frozen["text"]


def test_a_plan_that_dwells_and_commands_that_are_held_have_no_frozen_rows(trajcli, folder):
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
    jittered = time + np.random.default_rng(0).normal(0, 2e-4, time.shape)
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
    # of uneven stamps as of a plan's few points, no step is too long
    write_h5("plan.h5", position=values[None, :4, :2], time=np.array([0.0, 0.1, 0.2, 3.0]))
    assert checks(trajcli.ok("check plan.h5 --json"))["gaps"]["passed"]


def test_rest_is_asked_of_both_ends_and_fails_where_nothing_tells(trajcli, folder):
    t = np.linspace(0, 2, 201)
    s = t / 2
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
        parts = {n: x[None] for n, x in list(rows.items())[:given]}
        write_h5("plan.h5", **parts, time=knots)
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
            row = found[check]["at"]["row"]
            assert knots[row] <= at <= knots[row + 1]
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
    assert between["at"]["row"] == 1
