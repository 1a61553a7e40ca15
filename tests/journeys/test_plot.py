"""trajcli plot: figures that hold what the data hold."""

from __future__ import annotations

import os
import xml.dom.minidom
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from journeys.conftest import python

pytest.importorskip("matplotlib")

from journeys.arrays import close, read_h5, same, write_h5


def legend_texts(figure: Any) -> list[str]:
    return [text.get_text() for text in figure.legends[0].get_texts()]


def drawn_lines(axis: Any) -> list[Any]:
    """The lines of data, which have a name; those of limits have none."""
    return [one for one in axis.get_lines() if one.get_gid()]


@pytest.fixture
def draw(trajcli, figures):
    """Plots what a line says; returns the one figure."""

    def plot(line: str) -> Any:
        trajcli.ok(f"plot {line}")
        assert len(figures) == 1
        return figures.pop()

    return plot


def line(figure: Any, axis: int, gid: str) -> Any:
    (found,) = [one for one in figure.axes[axis].get_lines() if one.get_gid() == gid]
    return found


def test_recorded_points_lie_behind_the_curve_that_smooths_them(trajcli, folder, figures):
    random = np.random.default_rng(1)
    with h5py.File("in.h5", "w") as file:
        for k in range(2):
            rows = np.sin(np.arange(90)[:, None] / [20.0, 15.0]) + random.normal(0, 0.05, (90, 2))
            file[f"demo_{k}/position"] = rows
    line_of = "differentiate in.h5:demo_*/position --dt 0.1 -o"
    trajcli.ok(f"{line_of} smooth.h5")
    trajcli.ok(f"{line_of} plain.h5 --method savgol")
    trajcli.ok("plot smooth.h5 --episodes 1 --dofs 1 -o a.png")
    trajcli.ok("plot plain.h5 --episodes 1 --dofs 1 -o b.png")
    smooth, plain = figures
    points = line(smooth, 0, "recorded/1")
    assert points.get_zorder() < line(smooth, 0, "position/1").get_zorder()
    same(points.get_ydata(), rows[:, 1])
    assert [one.get_gid() for one in plain.axes[0].get_lines()] == ["position/1"]


@pytest.mark.parametrize("kind", ["png", "svg", "pdf"])
def test_a_figure_of_each_kind_is_drawn_without_a_date(trajcli, out, samples, kind):
    trajcli.ok(f"plot out.h5 --limits {samples}/limits.toml -o a.{kind}")
    first = Path(f"a.{kind}").read_bytes()
    assert len(first) > 5000
    assert first.startswith({"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF"}[kind])
    assert b"Date" not in first
    if kind == "svg":
        text = first.decode()
        xml.dom.minidom.parseString(text)
        assert "panda_joint4" in text
    assert sorted(path.name for path in Path().iterdir()) == [f"a.{kind}", "out.h5"]


def test_the_lines_are_the_data(out, draw):
    figure = draw("out.h5 --episodes 5 --dofs 1,panda_joint4 -o fig.png")
    with h5py.File(out) as file:
        time = file["time"][5]
        for axis, name in enumerate(("position", "velocity", "acceleration", "jerk")):
            assert name in figure.axes[axis].get_ylabel()
            drawn = {one.get_gid() for one in drawn_lines(figure.axes[axis])}
            assert drawn == {f"{name}/panda_joint2", f"{name}/panda_joint4"}
            for dof in (1, 3):
                shown = line(figure, axis, f"{name}/panda_joint{dof + 1}")
                same(shown.get_xdata(), time)
                same(shown.get_ydata(), file[name][5, :, dof])
            low, high = figure.axes[axis].get_ylim()
            shown_values = file[name][5][:, [1, 3]]
            assert low < shown_values.min() <= shown_values.max() < high
    assert line(figure, 3, "jerk/panda_joint2").get_drawstyle() == "steps-pre"
    assert legend_texts(figure) == ["panda_joint2", "panda_joint4"]


@pytest.mark.parametrize(
    ("options", "held"),
    [
        ("--mode jerk --scheme foh", {}),
        ("--mode velocity --scheme zoh", {"velocity": "pre", "jerk": "pre"}),
        ("--mode bspline --degree 3 --steps 4", {"jerk": "post"}),
        ("--mode bspline --degree 4 --steps 4", {}),
    ],
)
def test_what_is_constant_over_steps_is_drawn_in_steps(trajcli, folder, draw, options, held):
    trajcli.ok(f"integrate actions.npy --start zero --dt 0.1 {options} --dtype float64 -o job.h5")
    figure = draw("job.h5 --dofs 1 -o fig.png")
    for axis, name in enumerate(("position", "velocity", "acceleration", "jerk")):
        style = line(figure, axis, f"{name}/1").get_drawstyle()
        assert style == (f"steps-{held[name]}" if name in held else "default")


def test_limits_are_bands(out, draw):
    speed = read_h5(out)["velocity"][2]
    limit = float(0.8 * np.abs(speed).max())
    upper = np.where(np.abs(speed).max(0) > limit, limit, 9.0).tolist()
    Path("limits.toml").write_text(f"[velocity]\nupper = {upper}")
    figure = draw("out.h5 --episodes 2 --limits limits.toml -o fig.png")
    assert {round(limit, 6), round(-limit, 6)} <= edges(figure, 1)
    low, high = figure.axes[1].get_ylim()
    assert low < min(speed.min(), -limit) < max(speed.max(), limit) < high
    assert figure.axes[1].patches
    assert not figure.axes[0].patches


def test_several_trajectories_and_files_are_drawn_over_each_other(trajcli, out, draw, samples):
    trajcli.ok(f"integrate {samples}/reach.h5 --mode jerk -o other.h5")
    figure = draw("out.h5 other.h5 --episodes 0:3 --dofs 0 -o fig.png")
    lines = [one for one in figure.axes[0].get_lines() if one.get_gid() == "position/panda_joint1"]
    assert len(lines) == 6
    assert len({one.get_color() for one in lines}) == 2  # of one dof, by file
    assert len({(one.get_linestyle(), one.get_alpha()) for one in lines}) == 6
    assert [one.get_linestyle() for one in lines] == ["-"] * 3 + ["--"] * 3
    entries = {"out.h5", "other.h5", "trajectory 0", "trajectory 1", "trajectory 2"}
    assert entries <= set(legend_texts(figure))
    assert figure.legends[0].get_title().get_text() == "out.h5, other.h5, trajectories 0, 1, 2"


@pytest.mark.parametrize(("lines", "label"), [("dt", "time (s)"), ("", "row")])
def test_the_time_axis_is_in_seconds_where_dt_is_known(trajcli, folder, figures, lines, label):
    write_h5("in.h5", {"dt": np.full((2, 6), 0.1)} if lines else {}, actions=np.ones((2, 6, 3)))
    trajcli.ok("plot in.h5 -o fig.png")
    assert figures[0].axes[-1].get_xlabel() == label
    expected = 0.1 * np.arange(1, 7) if lines else np.arange(6)
    close(line(figures[0], -1, "actions/0").get_xdata(), expected)


def test_a_histogram_counts_the_peaks_of_the_whole_batch(out, draw, samples):
    figure = draw(f"out.h5 --histogram --limits {samples}/limits.toml -o fig.png")
    with h5py.File(out) as file:
        for axis, name in enumerate(("position", "velocity", "acceleration", "jerk")):
            ends = np.abs(file[name][...]).max(1)
            sign = f"peak |{name}|"
            if name == "position":
                ends = np.concatenate([file[name][...].min(1), file[name][...].max(1)])
                sign = "least and largest position"
            panel = figure.axes[axis]
            assert panel.get_xlabel().startswith(sign)
            for dof in range(7):
                gid = f"{name}/panda_joint{dof + 1}"
                (bars,) = [p for p in panel.patches if p.get_gid() == gid]
                values, edges, baseline = bars.get_data()
                counts = np.histogram(ends[:, dof], edges)[0]
                heights = values - baseline
                assert counts.sum() == len(ends)
                close(heights / heights.max(), counts / counts.max())
            labels = [label.get_text() for label in panel.get_yticklabels()]
            assert labels == [f"panda_joint{n}" for n in range(1, 8)]
            limits = [one for one in panel.get_lines() if one.get_gid() == "limit"]
            assert len(limits) == (14 if name == "position" else 7)
            assert not panel.texts


def test_the_peaks_of_long_trajectories_are_kept(folder, draw):
    values = np.zeros((1, 50_000, 2))
    values[0, 33_333, 1] = 5.0
    values[0, 12_345, 0] = -3.0
    write_h5("in.h5", {"@dt": 0.01}, velocity=values)
    shown = drawn_lines(draw("in.h5 -o fig.svg").axes[0])
    assert [(one.get_ydata().min(), one.get_ydata().max()) for one in shown] == [(-3, 0), (0, 5)]
    assert all(len(one.get_xdata()) <= 4100 for one in shown)
    assert abs(shown[1].get_xdata()[shown[1].get_ydata().argmax()] - 333.33) < 0.5


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("-o fig.gif", "FIG.png, FIG.svg or FIG.pdf"),
        ("--episodes 64 -o fig.png", "out of range"),
        ("copy.h5 --histogram -o fig.png", "a histogram shows one file"),
        *(
            (f"copy.h5 --size {x} -o a.png", "--size")
            for x in ("3.5", "3x4pt", "0x3in", "1..2x3in")
        ),
        *((f"copy.h5 --labels {x} -o fig.png", "--labels") for x in ("a", "a,")),
    ],
)
def test_what_cannot_be_drawn_is_exit_2_and_leaves_nothing(trajcli, out, words, message):
    Path("copy.h5").write_bytes(out.read_bytes())
    trajcli.refuses(f"plot out.h5 {words}", message)


def test_nothing_is_written_into_the_home_folder(out, tmp_path, monkeypatch):
    for name in [name for name in os.environ if name.startswith(("XDG_", "MPL"))]:
        monkeypatch.delenv(name)
    (tmp_path / "home").mkdir()
    made = python(*["-m", "trajcli", "plot", "out.h5", "-o", "f.png"], HOME=str(tmp_path / "home"))
    assert made.returncode == 0, made.stderr
    assert list((tmp_path / "home").iterdir()) == []


def test_limits_of_positions_are_drawn_whatever_they_are_called(trajcli, folder, figures):
    np.savez("in.npz", q=np.linspace(-1.4, 1.4, 120).reshape(2, 30, 2), dt=0.1)
    limits_file("[position]\nlower = [-1.5, -1.5]\nupper = [1.5, 1.5]\n")
    Path("jerks.toml").write_text("[jerk]\nupper = [1.0, 1.0]\n")
    for line in ("in.npz", "in.npz:q", "in.npz --histogram"):
        trajcli.ok(f"plot {line} --limits limits.toml -o with.svg --overwrite")
        refused = f"plot {line} --limits jerks.toml -o none.svg"
        trajcli.refuses(refused, "no limits of what is drawn")
        (figure,) = figures
        marks = [one for one in figure.axes[0].get_lines() if one.get_gid() == "limit"]
        assert {float(one.get_xdata()[0]) for one in marks} | edges(figure, 0) == {-1.5, 1.5}
        figures.clear()


def test_a_figure_has_the_size_of_a_column(trajcli, out, figures):
    for size in ("3.5x2.6in", "88.9x66.04mm"):
        trajcli.ok("plot out.h5 --overwrite -o fig.pdf --size", size)
        close(figures.pop().get_size_inches(), (3.5, 2.6), rtol=1e-12)


def test_components_of_a_quaternion_have_colours_of_their_own(trajcli, folder, samples, draw):
    trajcli.ok(f"differentiate {samples}/camera.h5:orientation_xyzw -o out.h5")
    figure = draw("out.h5 -o fig.svg")
    (legend,) = figure.legends
    colours = {x.get_label(): (x.get_color(), x.get_linestyle()) for x in legend.get_lines()}
    assert list(colours) == ["qw", "qx", "qy", "qz", "q", "x", "y", "z"]
    for axis, quantity in enumerate(("orientation", "angle from the start", "angular_velocity")):
        for name in (("qw", "qz"), ("q",), ("x", "z"))[axis]:
            drawn = line(figure, axis, f"{quantity}/{name}")
            assert (drawn.get_color(), drawn.get_linestyle()) == colours[name]
    assert len(set(colours.values())) == 8


def table(path: str, columns: dict[str, np.ndarray]) -> None:
    """A CSV as a logger on Windows writes it."""
    rows = zip(*(values.tolist() for values in columns.values()), strict=True)
    lines = [",".join(columns), *(",".join(map(repr, row)) for row in rows), ""]
    Path(path).write_bytes("\r\n".join(lines).encode("utf-8-sig"))


def motions(count: int, late: float = 0.0) -> np.ndarray:
    clock = 0.02 * np.arange(120)[:, None] - late
    return np.sin(clock * (1 + 0.1 * np.arange(count)) + np.arange(count))


STAMPS = 1.7e9 + 0.02 * np.arange(120)


@pytest.mark.parametrize(
    ("count", "size"),
    [(1, ""), (7, "--size 3.5x2.6in"), (14, "--size 2x2in")]
    + [(30, size) for size in ("", "--size 3.5x2.6in", "--size 2x2in")],
)
def test_a_legend_lies_above_the_panels_of_its_figure(trajcli, folder, figures, count, size):
    names = [f"manipulator_joint_{k:02d}" + "x" * (k % 2) for k in range(count)]
    columns = dict(zip(names, motions(count).T, strict=True))
    table("log.csv", {"time": STAMPS, **{f"position/{name}": x for name, x in columns.items()}})
    trajcli.ok(f"plot log.csv --joints {','.join(names)} -o fig.png {size}")
    (figure,), (legend,) = figures, figures[0].legends
    for dpi in (72, 100, 200):  # those of a PDF, of a screen, and of a PNG
        figure.set_dpi(dpi)
        figure.draw_without_rendering()
        box = legend.get_window_extent()
        assert 0 <= box.x0 < box.x1 <= figure.bbox.width
        assert 0 < box.y0 < box.y1 <= figure.bbox.height
        assert max(axis.get_window_extent().y1 for axis in figure.axes) <= box.y0
        assert figure.axes[0].get_window_extent().height > 0.25 * figure.bbox.height
    shown = legend_texts(figure)
    assert shown == names[: len(shown)]
    left_out = f"and {count - len(shown)} more" in legend.get_title().get_text()
    assert left_out == (len(shown) < count)
    assert size.endswith("2x2in") or len(shown) == count or (count == 30 and size)


def test_a_long_title_and_label_are_broken_into_lines(trajcli, out, figures):
    other = f"{'the_same_motion_again_' * 4}.h5"
    Path(other).write_bytes(out.read_bytes())
    trajcli.ok(f"plot out.h5 {other} -o fig.pdf --size 3.5x2.6in")
    (figure,), (legend,) = figures, figures[0].legends
    figure.draw_without_rendering()
    box = legend.get_window_extent()
    assert 0 <= box.x0 < box.x1 <= figure.bbox.width
    assert legend.get_title().get_text().split(",")[0] == "out.h5"


@pytest.mark.parametrize(
    ("state", "command", "sources"),
    [
        ("observation.state.{}.pos", "action.{}.pos", "log.csv"),
        ("/state/feedback/positions/{}", "/state/reference/positions/{}", "log.csv"),
        ("position/{}", "commanded_position/{}", "log.csv:position log.csv:commanded_position"),
        ("actual_q_{}", "target_q_{}", "log.csv:target_q log.csv:actual_q"),
    ],
)
def test_states_and_commands_of_one_joint_share_a_panel(folder, draw, state, command, sources):
    names = ["0", "1", "2"] if "_q" in state else ["hip", "knee", "elbow"]
    of = {state: motions(3), command: motions(3, 0.1)}
    forms = sorted(of, key=lambda form: form == state)  # commands come first in the file
    columns = {form.format(name): of[form][:, k] for form in forms for k, name in enumerate(names)}
    table("log.csv", {"timestamp": STAMPS, **columns})
    figure = draw(f"{sources} -o fig.png")
    (axis,) = figure.axes
    lines = drawn_lines(axis)
    assert len({one.get_color() for one in lines}) == 3
    for k in range(3):
        joint = [values[:, k].tolist() for values in of.values()]
        drawn = {x.get_linestyle(): x for x in lines if x.get_ydata().tolist() in joint}
        assert set(drawn) == {"-", "--"}
        assert len({one.get_color() for one in drawn.values()}) == 1
        same(drawn["-"].get_ydata(), of[state][:, k])
        same(drawn["--"].get_ydata(), of[command][:, k])
    (legend,) = figure.legends
    styles = {x.get_label(): x.get_linestyle() for x in legend.get_lines()}
    dashed = [label for label, style in styles.items() if style == "--"]
    assert len(styles) == 5
    assert dashed in (["command"], ["log.csv:commanded_position"], ["log.csv:target_q"])


def test_a_dof_with_a_name_of_its_own_is_not_dashed(trajcli, folder, figures):
    columns = dict(zip(("x", "target_y", "desired_z"), motions(3).T, strict=True))
    table("log.csv", {"time": STAMPS, **{f"position/{k}": x for k, x in columns.items()}})
    trajcli.ok("plot log.csv -o fig.png")
    lines = drawn_lines(figures[0].axes[0])
    assert [one.get_linestyle() for one in lines] == ["-"] * 3
    assert [x.get_label() for x in figures[0].legends[0].get_lines()] == list(columns)


def test_a_gripper_of_two_values_has_a_small_panel(trajcli, folder, figures):
    ticks, rows = np.random.default_rng(3).random(120) < 0.5, np.arange(120)
    closed = np.where(rows // 30 % 2, 0.04, 0.0)
    moving = 0.04 * np.interp(rows, [0, 29, 35, 59, 65, 89, 95, 119], [0, 0, 1, 1, 0, 0, 1, 1])
    for name, gripper in (("measured.csv", moving), ("commanded.csv", closed)):
        joints = {f"position/{k}": values for k, values in zip("ab", motions(2).T, strict=True)}
        # a joint at rest between two steps of its encoder is no gripper
        joints["position/resting"] = 0.1 + 1e-5 * ticks
        table(name, {"time": STAMPS, **joints, "position/gripper": gripper})
    names = 'joint_names = ["a", "b", "resting", "gripper"]'
    text = f"{names}\n[position]\nlower = [-2, -2, -2, -0.01]\nupper = [2, 2, 2, 0.05]\n"
    trajcli.ok(f"plot commanded.csv measured.csv {limits_file(text)} -o fig.png")
    trajcli.ok("plot measured.csv -o fig.svg")
    trajcli.ok("plot commanded.csv --dofs gripper -o fig.pdf")
    both, continuous, alone = figures
    main, small = both.axes
    gids = [[one.get_gid() for one in drawn_lines(axis)] for axis in both.axes]
    assert gids == [[f"position/{k}" for k in ("a", "b", "resting")] * 2, ["position/gripper"] * 2]
    commanded, measured = drawn_lines(small)
    same(commanded.get_ydata(), closed)
    same(measured.get_ydata(), moving)
    assert (commanded.get_linestyle(), measured.get_linestyle()) == ("--", "-")
    assert commanded.get_color() == measured.get_color()
    both.draw_without_rendering()
    assert small.get_window_extent().height < 0.5 * main.get_window_extent().height
    assert "gripper" in small.get_title(loc="left")
    assert small.get_ylim()[1] < 0.1 < main.get_ylim()[1]
    assert [len(figure.axes) for figure in (continuous, alone)] == [1, 1]


def limited(path: str, upper: np.ndarray, lower: np.ndarray, group: str = "") -> None:
    """Writes limits beside velocity, acceleration and jerk as retime does; [3, D] each."""
    with h5py.File(path, "a") as file:
        for k, name in enumerate(("velocity", "acceleration", "jerk")):
            file[group + name].attrs.update(upper_limit=upper[k], lower_limit=lower[k])


def edges(figure: Any, axis: int) -> set[float]:
    """The dashed lines of limits in a panel."""
    shown = [one.get_ydata() for one in figure.axes[axis].get_lines() if not one.get_gid()]
    return {round(float(y[0]), 6) for y in shown if len(y) == 2 and y[0] == y[1]}


def test_limits_that_an_output_keeps_are_drawn_unless_others_are_given(trajcli, out, figures):
    arrays = read_h5(out)
    names = ("velocity", "acceleration", "jerk")
    upper = np.stack([1.01 * arrays[name].max((0, 1)) for name in names])
    lower = np.stack([1.02 * arrays[name].min((0, 1)) for name in names])
    upper[1, 2] = lower[2, 5] = np.inf
    lower[2, 5] *= -1
    limited(out, upper, lower)
    trajcli.ok("plot out.h5 --episodes 0:4 --dofs 5,2 -o own.png")
    trajcli.ok("plot out.h5 --episodes 0:4 --dofs 5,2 --to-units deg -o degrees.png")
    Path("limits.toml").write_text("[velocity]\nupper = 3.0")
    trajcli.ok("plot out.h5 --episodes 0:4 --dofs 5,2 --limits limits.toml -o given.png")
    own, degrees, given = figures
    for k in range(3):
        chosen = np.array([upper[k, [5, 2]], lower[k, [5, 2]]])
        chosen = chosen[np.isfinite(chosen)]
        assert edges(own, k + 1) == {round(float(x), 6) for x in chosen}
        assert edges(degrees, k + 1) == {round(float(x), 6) for x in np.rad2deg(chosen)}
    assert not edges(own, 0)
    assert [edges(given, k) for k in range(4)] == [set(), {3.0, -3.0}, set(), set()]
    trajcli.ok("plot out.h5 --histogram -o peaks.png")
    marks = [one for one in figures[-1].axes[1].get_lines() if one.get_gid() == "limit"]
    known = {round(float(abs(x)), 9) for x in np.concatenate([upper[0], lower[0]])}
    assert {round(abs(one.get_xdata()[0]), 9) for one in marks} == known


def test_limits_of_each_group_of_an_output_are_drawn(trajcli, folder, figures):
    actions = [np.random.default_rng(k).normal(size=(rows, 2)) for k, rows in enumerate((20, 30))]
    write_h5("in.h5", {f"demo_{k}/actions": values for k, values in enumerate(actions)})
    trajcli.ok("integrate in.h5:demo_*/actions --mode jerk --start zero --dt 0.1 -o groups.h5")
    groups, names = ["demo_0", "demo_1"], ("velocity", "acceleration", "jerk")
    arrays = read_h5("groups.h5")
    peaks = [[np.abs(arrays[f"{group}/{name}"]).max(0) for name in names] for group in groups]
    bound = 1.1 * np.max(peaks, axis=0)
    for group in groups:
        limited("groups.h5", bound, -bound, f"{group}/")
    trajcli.ok("plot groups.h5 --episodes 0:2 -o both.png")
    trajcli.ok("plot groups.h5:demo_1 --dofs 1 -o second.png")
    for figure, dofs in zip(figures, ([0, 1], [1]), strict=True):
        for k in range(3):
            known = {round(float(x), 6) for x in bound[k, dofs]}
            assert edges(figure, k + 1) == known | {-x for x in known}


def limits_file(text: str) -> str:
    Path("limits.toml").write_text(text)
    return "--limits limits.toml"


@pytest.mark.parametrize("rows", [200, 9000])
def test_rows_at_their_limit_are_heavier(folder, draw, rows):
    at = np.linspace(0.0, 12.0, rows)[:, None]
    velocity = np.sin(at * [1.0, 1.3]) * [1.0, 0.5]
    write_h5("in.h5", {"@dt": 0.01}, position=3.0 * np.sin(at * [0.5, 0.2]), velocity=velocity)
    text = "[velocity]\nupper = [0.9, 0.6]\nlower = [-1.5, -0.45]\n[position]\nupper = [2.0, 2.0]"
    figure = draw(f"in.h5 {limits_file(text)} -o fig.png")
    binds = (velocity >= 0.98 * np.array([0.9, 0.6])) | (velocity <= -0.98 * np.array([1.5, 0.45]))
    for dof in range(2):
        heavy, thin = (line(figure, 1, f"{gid}/{dof}") for gid in ("at its limit", "velocity"))
        assert heavy.get_linewidth() > 2 * thin.get_linewidth()
        assert heavy.get_color() == thin.get_color()
        drawn = np.isfinite(heavy.get_ydata())
        same(heavy.get_ydata()[drawn], thin.get_ydata()[drawn])
        expected = np.interp(thin.get_xdata(), 0.01 * np.arange(rows), binds[:, dof])
        assert (drawn == (expected > 0.5)).mean() > 0.99
    assert not [one for one in drawn_lines(figure.axes[0]) if "at its" in one.get_gid()]
    assert f"at its limit ({100 * binds.any(1).mean():.0f} % of the rows)" in legend_texts(figure)


def test_a_lone_row_at_its_limit_is_seen_and_none_elsewhere(trajcli, folder, figures):
    velocity = np.zeros((2, 9, 2))
    velocity[1, 4] = 1.0, np.nan
    write_h5("in.h5", {"@dt": 0.1}, velocity=velocity)
    limits = limits_file("[velocity]\nupper = [1.0, 0.0]")
    for number in range(2):
        trajcli.ok(f"plot in.h5 {limits} --episodes {number} -o fig{number}.png")
    trajcli.ok(f"plot in.h5 {limits} --episodes 0:2 -o both.png")
    still, alone = figures[:2]
    legends = [*map(legend_texts, figures)]
    counts = [sum(text.startswith("at its limit") for text in legend) for legend in legends]
    assert counts == [0, 1, 1]
    assert "at its limit (11 % of the rows)" in legends[1]
    assert "at its limit" in legends[2]
    heavy = line(alone, 0, "at its limit/0")
    assert np.flatnonzero(heavy.get_markevery()).tolist() == [4]
    assert heavy.get_marker() == "s"
    assert np.flatnonzero(np.isfinite(heavy.get_ydata())).tolist() == [4]
    assert not [one for one in drawn_lines(still.axes[0]) if "at its" in one.get_gid()]


def test_limits_beside_the_rows_of_another_program_are_not_taken(trajcli, folder, figures):
    rows = np.random.default_rng(0).normal(size=(50, 2))
    write_h5("in.h5", {"@dt": 0.01}, velocity=rows, acceleration=rows, jerk=rows)
    limited("in.h5", np.full((3, 2), 3.0), np.full((3, 2), -3.0))
    trajcli.ok("plot in.h5 -o fig.png")
    assert not any(edges(figures[0], axis) for axis in range(3))


def test_long_lines_that_fall_or_rise_have_no_teeth(trajcli, folder, figures):
    rise = np.linspace(0.0, 1.0, 50_000)
    write_h5("in.h5", {"@dt": 0.01}, position=np.stack([rise, 1.0 - rise], 1))
    trajcli.ok("plot in.h5 -o fig.png")
    up, down = (line(figures[0], 0, f"position/{dof}").get_ydata() for dof in range(2))
    assert (np.diff(up) >= 0).all()
    assert (np.diff(down) <= 0).all()
