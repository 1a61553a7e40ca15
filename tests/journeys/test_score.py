"""trajcli score, as a user types it."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import h5py
import numpy as np
import pytest
from journeys.arrays import read_h5, write_h5

import trajcli as library


@pytest.fixture
def demos(folder):
    """60 demos of unequal length in demos.h5; demo 17 shakes, demo 30 stops its clock once."""
    random = np.random.default_rng(0)
    with h5py.File("demos.h5", "w") as file:
        for n in range(60):
            time = 0.02 * np.arange(80 + n % 7)
            p = np.sin(np.outer(time, random.uniform(1, 2, 3)))
            p += (n == 17) * 1e-3 * random.normal(size=p.shape)
            if n == 30:
                time[40:] += 1.0
            file[f"demo_{n}/position"], file[f"demo_{n}/times"] = p, time
            file[f"demo_{n}/position"].attrs["units"] = "rad"
    return folder


def test_demos_are_one_table_and_the_worst_are_named(trajcli, demos):
    result = trajcli.fails("score demos.h5 --sort p95_jerk --fail p95_jerk>50 --fail time_jumps>0")
    assert "60 trajectories × 80 to 86 rows" in result.out
    assert "velocity and jerk by central differences" in result.out
    assert "p95_jerk (rad/s^3)" in result.out
    assert "p95_jerk>50: 1 of 60, worst demo_17" in result.out
    assert "time_jumps>0: 1 of 60, worst demo_30 1" in result.out
    assert result.out.split("\ntrajectory")[1].splitlines()[2].startswith("demo_17")
    assert "and 50 more" in result.out
    assert "demo_59" in trajcli("score demos.h5 -v").out
    trajcli.ok("score demos.h5 --fail duration>9")


def test_every_demo_has_the_scores_that_it_has_alone(trajcli, demos):
    document = trajcli("score demos.h5 --json").document
    lines = document["trajectories"]
    assert [line["trajectory"] for line in lines] == [f"demo_{n}" for n in range(60)]
    file = read_h5("demos.h5")
    for n in (0, 17, 30, 59):
        p, time = file[f"demo_{n}/position"], file[f"demo_{n}/times"]
        expected = library.score(library.Trajectory(p[None], None, None, None, time))
        for name in expected.keys() - {"saturation"}:  # which knows the other demos
            assert lines[n][name] == pytest.approx(expected[name][0], rel=1e-8), name
    values = [line["path_length"] for line in lines]
    line = document["summary"]["path_length"]
    assert (line["least"], line["largest"]) == (min(values), max(values))
    assert line["median"] == pytest.approx(np.median(values))
    assert line["unit"] == "rad"
    assert line["largest_at"] == f"demo_{int(np.argmax(values))}"


@pytest.mark.parametrize("sort", ["sparc", "-sparc"])
def test_rows_are_sorted_by_a_score(trajcli, demos, sort):
    lines = trajcli(f"score demos.h5 --json --sort {sort}").document["trajectories"]
    values = [line["sparc"] for line in lines]
    assert values == sorted(values, reverse=sort == "sparc")
    (line,) = trajcli("score demos.h5 --json --episodes 3").document["trajectories"]
    assert line["trajectory"] == "demo_3"


def test_the_csv_has_a_line_per_trajectory(trajcli, demos):
    result = trajcli("score demos.h5 --csv -")
    assert "60 trajectories" in result.err
    lines = list(csv.DictReader(io.StringIO(result.out)))
    document = trajcli("score demos.h5 --json --csv scores.csv").document
    assert result.out == (demos / "scores.csv").read_text()
    for line, expected in zip(lines, document["trajectories"], strict=True):
        assert line.pop("file") == "demos.h5"
        assert line.pop("trajectory") == expected.pop("trajectory")
        assert {name.split(" ")[0]: float(value) for name, value in line.items()} == expected
    assert "duration (s),path_length (rad),rms_jerk (rad/s^3)," in result.out


def test_limits_are_matched_by_name(trajcli, samples, folder):
    trajcli.ok(f"score {samples}/reach.h5 --limits {samples}/limits.toml --json")
    assert "limit_share" not in trajcli(f"score {samples}/reach.h5 --json").document["summary"]
    limits = [2.175, 2.175, 2.175, 2.175, 2.61, 2.61, 2.61]
    Path("limits.toml").write_text(f"[velocity]\nupper = {limits}")
    scores = trajcli(f"score {samples}/reach.h5 --limits limits.toml --json").document
    shares = [line["limit_share"] for line in scores["trajectories"]]
    velocity = np.abs(read_h5(samples / "reach.h5")["reference/velocity"])
    assert shares == pytest.approx((velocity / limits).max((1, 2)), rel=1e-12)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--fail jerk>3", "scores are duration, path_length"),
        ("--fail p95_jerk>much", "not a condition"),
        ("--fail limit_share>1", "--limits FILE"),
        ("--sort speed", "no such score"),
        ("--json --csv -", "two documents"),
    ],
)
def test_bad_input_is_one_message_and_exit_2(trajcli, demos, words, said):
    trajcli.refuses(f"score demos.h5 {words}", said)


def test_a_histogram_of_a_score(trajcli, demos):
    pytest.importorskip("matplotlib")
    result = trajcli.ok("plot demos.h5 --score sparc -o out.svg --json")
    assert result.document["quantities"] == ["sparc"]
    drawn = (demos / "out.svg").read_text()
    median = trajcli("score demos.h5 --json").document["summary"]["sparc"]["median"]
    assert f"median {median:.4g}" in drawn
    assert "60 trajectories" in drawn
    Path("copy.h5").write_bytes(Path("demos.h5").read_bytes())
    trajcli.ok("plot demos.h5 copy.h5 --score p95_jerk --labels one,two -o two.svg")
    drawn = Path("two.svg").read_text()
    assert "one, median" in drawn
    assert "two, median" in drawn
    assert drawn.count('id="median"') >= 2
    trajcli.refuses("plot demos.h5 --score none -o no.svg")


def test_degrees_are_scored_as_radians_and_limits_compared_in_one_unit(trajcli, folder):
    p = np.sin(np.outer(0.01 * np.arange(100), [1.0, 2.0, 3.0]))
    documents = []
    for unit, values in (("rad", p), ("deg", np.rad2deg(p))):
        write_h5(f"{unit}.h5", {"@dt": 0.01, "position@units": unit}, position=values)
        Path("limits.toml").write_text('units = "deg"\n[velocity]\nupper = [90, 180, 270]')
        document = trajcli(f"score {unit}.h5 --limits limits.toml --json").document
        assert document["summary"]["p95_jerk"]["unit"] == "rad/s^3"
        (line,) = document["trajectories"]
        assert line.pop("trajectory") == "0"
        documents.append(line)
    assert documents[0] == pytest.approx(documents[1], rel=1e-9)
    assert documents[0]["limit_share"] == pytest.approx(2 / np.pi, rel=1e-6)
    with h5py.File("deg.h5", "r+") as file:
        file["position"].attrs["units"] = "deg,deg,mm"
    summary = trajcli("score deg.h5 --json").document["summary"]
    assert summary["rms_jerk"]["unit"] == "rad/s^3, m/s^3"
    trajcli.refuses("score deg.h5 --limits limits.toml", "limits in another unit")
    Path("limits.toml").write_text("[velocity]\nupper = [3, 3, 3]\n[position]\nupper = [9, 9, 9]")
    with h5py.File("deg.h5", "r+") as file:
        file["position"].attrs["units"] = "deg"
    notes = trajcli("score deg.h5 --limits limits.toml --json").document["notes"]
    assert "position limits: limits without a unit: taken as rad" in notes


def test_names_in_a_csv_are_no_formulas(trajcli, folder):
    positions = {f"{name}/position": np.zeros((9, 2)) for name in ("=cmd()", "a\x1b[2J")}
    write_h5("in.h5", {**positions, "@dt": 0.1})
    lines = trajcli("score in.h5 --csv -").out.splitlines()
    assert [line.split(",")[1] for line in lines[1:]] == ["'=cmd()", "a\\x1b[2J"]


def test_outliers_are_listed_by_the_numbers_of_episodes(trajcli, demos):
    document = trajcli("score demos.h5 --json").document
    for name, found in document["outliers"].items():
        values = np.array([line[name] for line in document["trajectories"]], float)
        low, high = np.quantile(values, (0.25, 0.75))
        beyond = (values < low - 1.5 * (high - low)) | (values > high + 1.5 * (high - low))
        assert found == np.flatnonzero(beyond).tolist(), name
    assert 17 in document["outliers"]["p95_jerk"]
    assert 17 in trajcli("score demos.h5 --episodes 10:40 --json").document["outliers"]["p95_jerk"]
    shown = trajcli("score demos.h5").out
    line = next(one for one in shown.splitlines() if one.startswith("outliers of p95_jerk"))
    episodes = line.split("--episodes ")[1].split()[0]
    trajcli.ok(f"score demos.h5 --episodes {episodes}")


def test_medians_of_several_files_stand_side_by_side(trajcli, demos):
    half = {name: x / 2 if "times" in name else x for name, x in read_h5("demos.h5").items()}
    write_h5("fast.h5", half)
    shown = trajcli("score demos.h5 fast.h5").out
    assert {"demos.h5:", "fast.h5:"} <= set(shown.splitlines())
    heading = next(line for line in shown.splitlines() if line.startswith("median of"))
    assert heading.split() == ["median", "of", "demos.h5", "fast.h5"]
    lines = shown[shown.index("median of") :].splitlines()
    duration = next(line for line in lines if line.startswith("duration")).split()
    assert float(duration[-2]) == pytest.approx(2 * float(duration[-1]), rel=1e-3)
