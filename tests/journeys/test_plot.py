"""trajcli plot: figures that hold what the data hold."""

from __future__ import annotations

import subprocess
import sys
import xml.dom.minidom
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

pytest.importorskip("matplotlib")

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def out(trajcli, samples, tmp_path, monkeypatch) -> Path:
    """An output of the sample, in the current folder."""
    monkeypatch.chdir(tmp_path)
    job = f"integrate {samples}/reach.h5 --mode jerk --scheme zoh -o out.h5"
    assert trajcli(job).code == 0
    return tmp_path / "out.h5"


@pytest.fixture
def figures(monkeypatch) -> list[Any]:
    """The figures that are saved, as matplotlib's own objects."""
    from trajcli.views import figures

    made: list[Any] = []
    save = figures.save

    def keep(figure: Any, path: Path, suffix: str) -> None:
        made.append(figure)
        save(figure, path, suffix)

    monkeypatch.setattr(figures, "save", keep)
    return made


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
    assert trajcli(f"{line_of} smooth.h5").code == 0
    assert trajcli(f"{line_of} plain.h5 --method savgol").code == 0
    assert trajcli("plot smooth.h5 --episodes 1 --dofs 1 -o a.png").code == 0
    assert trajcli("plot plain.h5 --episodes 1 --dofs 1 -o b.png").code == 0
    smooth, plain = figures
    points = line(smooth, 0, "recorded/1")
    assert points.get_zorder() < line(smooth, 0, "position/1").get_zorder()
    np.testing.assert_array_equal(points.get_ydata(), rows[:, 1])
    assert [one.get_gid() for one in plain.axes[0].get_lines()] == ["position/1"]


@pytest.mark.parametrize("kind", ["png", "svg", "pdf"])
def test_a_figure_of_each_kind_is_drawn_without_a_date(trajcli, out, samples, kind):
    assert trajcli(f"plot out.h5 --limits {samples}/limits.toml -o a.{kind}").code == 0
    first = Path(f"a.{kind}").read_bytes()
    assert len(first) > 5000
    head = {"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF"}
    assert first.startswith(head[kind])
    assert b"Date" not in first
    if kind == "svg":
        text = first.decode()
        xml.dom.minidom.parseString(text)
        assert "panda_joint4" in text
    assert sorted(path.name for path in Path().iterdir()) == [f"a.{kind}", "out.h5"]


def test_the_lines_are_the_data(trajcli, out, figures):
    assert trajcli("plot out.h5 --episodes 5 --dofs 1,panda_joint4 -o fig.png").code == 0
    (figure,) = figures
    with h5py.File(out) as file:
        time = file["time"][5]
        for axis, name in enumerate(("position", "velocity", "acceleration", "jerk")):
            assert name in figure.axes[axis].get_ylabel()
            drawn = {one.get_gid() for one in figure.axes[axis].get_lines() if one.get_gid()}
            assert drawn == {f"{name}/panda_joint2", f"{name}/panda_joint4"}
            for dof in (1, 3):
                shown = line(figure, axis, f"{name}/panda_joint{dof + 1}")
                np.testing.assert_array_equal(shown.get_xdata(), time)
                np.testing.assert_array_equal(shown.get_ydata(), file[name][5, :, dof])
            low, high = figure.axes[axis].get_ylim()
            shown_values = file[name][5][:, [1, 3]]
            assert low < shown_values.min() <= shown_values.max() < high
    assert line(figure, 3, "jerk/panda_joint2").get_drawstyle() == "steps-pre"
    legend = [text.get_text() for text in figure.legends[0].get_texts()]
    assert legend == ["panda_joint2", "panda_joint4"]


@pytest.mark.parametrize(
    ("options", "held"),
    [
        ("--mode jerk --scheme euler", {"jerk": "pre"}),
        ("--mode jerk --scheme foh", {}),
        ("--mode acceleration --scheme euler", {"acceleration": "pre", "jerk": "pre"}),
        ("--mode acceleration --scheme foh", {"jerk": "pre"}),
        ("--mode velocity --scheme zoh", {"velocity": "pre", "jerk": "pre"}),
        ("--mode clique --scheme zoh", {"jerk": "pre"}),
        ("--mode central", {}),
        ("--mode bspline --degree 3 --steps 4", {"jerk": "post"}),
        ("--mode bspline --degree 4 --steps 4", {}),
    ],
)
def test_what_is_constant_over_steps_is_drawn_in_steps(trajcli, folder, figures, options, held):
    job = f"integrate actions.npy --start start.npy --dt 0.1 {options} --dtype float64 -o job.h5"
    assert trajcli(job).code == 0
    assert trajcli("plot job.h5 --dofs 1 -o fig.png").code == 0
    (figure,) = figures
    for axis, name in enumerate(("position", "velocity", "acceleration", "jerk")):
        style = line(figure, axis, f"{name}/1").get_drawstyle()
        assert style == (f"steps-{held[name]}" if name in held else "default")


def test_limits_are_bands(trajcli, out, figures):
    with h5py.File(out) as file:
        speed = file["velocity"][2]
    largest = np.abs(speed).max(0)
    dof, limit = int(largest.argmax()), float(0.8 * largest.max())
    upper = [9.0] * 7
    upper[dof] = limit
    Path("limits.toml").write_text(f"[velocity]\nupper = {upper}")
    assert trajcli("plot out.h5 --episodes 2 --limits limits.toml -o fig.png").code == 0
    (figure,) = figures
    edges = {round(float(one.get_ydata()[0]), 9) for one in figure.axes[1].get_lines()
             if len(set(one.get_ydata())) == 1 and len(one.get_xdata()) == 2}  # fmt: skip
    assert {round(limit, 9), round(-limit, 9)} <= edges
    low, high = figure.axes[1].get_ylim()
    assert low < min(speed.min(), -limit) < max(speed.max(), limit) < high
    assert figure.axes[1].patches
    assert not figure.axes[0].patches


def test_several_trajectories_and_files_are_drawn_over_each_other(trajcli, out, figures, samples):
    other = f"integrate {samples}/reach.h5 --mode jerk -o other.h5"
    assert trajcli(other).code == 0
    assert trajcli("plot out.h5 other.h5 --episodes 0:3 --dofs 0 -o fig.png").code == 0
    (figure,) = figures
    lines = [one for one in figure.axes[0].get_lines() if one.get_gid() == "position/panda_joint1"]
    assert len(lines) == 6
    assert len({one.get_color() for one in lines}) == 2  # of one dof, by file
    assert len({(one.get_linestyle(), one.get_alpha()) for one in lines}) == 6
    assert [one.get_linestyle() for one in lines] == ["-"] * 3 + ["--"] * 3
    legend = [text.get_text() for text in figure.legends[0].get_texts()]
    assert {"out.h5", "other.h5", "trajectory 0", "trajectory 1", "trajectory 2"} <= set(legend)
    title = figure.legends[0].get_title().get_text()
    assert title == "out.h5, other.h5, trajectories 0, 1, 2"


@pytest.mark.parametrize(("lines", "label"), [("dt", "time (s)"), ("", "row")])
def test_the_time_axis_is_in_seconds_where_dt_is_known(trajcli, folder, figures, lines, label):
    with h5py.File("in.h5", "w") as file:
        file["actions"] = np.random.default_rng(0).standard_normal((2, 6, 3))
        if lines:
            file["dt"] = np.full((2, 6), 0.1)
    assert trajcli("plot in.h5 -o fig.png").code == 0
    axis = figures[0].axes[-1]
    assert axis.get_xlabel() == label
    (first,) = [one for one in axis.get_lines() if one.get_gid() == "actions/0"]
    expected = 0.1 * np.arange(1, 7) if lines else np.arange(6)
    np.testing.assert_allclose(first.get_xdata(), expected)


def test_a_histogram_counts_the_peaks_of_the_whole_batch(trajcli, out, figures, samples):
    line = f"plot out.h5 --histogram --limits {samples}/limits.toml -o fig.png"
    assert trajcli(line).code == 0
    (figure,) = figures
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
                np.testing.assert_allclose(heights / heights.max(), counts / counts.max())
            labels = [label.get_text() for label in panel.get_yticklabels()]
            assert labels == [f"panda_joint{n}" for n in range(1, 8)]
            limits = [one for one in panel.get_lines() if one.get_gid() == "limit"]
            assert len(limits) == (14 if name == "position" else 7)
            assert not panel.texts


def test_the_peaks_of_long_trajectories_are_kept(trajcli, folder, figures):
    values = np.zeros((1, 50_000, 2))
    values[0, 33_333, 1] = 5.0
    values[0, 12_345, 0] = -3.0
    with h5py.File("in.h5", "w") as file:
        file["velocity"] = values
        file.attrs["dt"] = 0.01
    assert trajcli("plot in.h5 -o fig.svg").code == 0
    (figure,) = figures
    shown = [one for one in figure.axes[0].get_lines() if one.get_gid()]
    assert [(one.get_ydata().min(), one.get_ydata().max()) for one in shown] == [(-3, 0), (0, 5)]
    assert all(len(one.get_xdata()) <= 4100 for one in shown)
    peak = shown[1].get_xdata()[shown[1].get_ydata().argmax()]
    assert abs(peak - 333.33) < 0.5
    assert Path("fig.svg").stat().st_size < 500_000


def test_an_existing_figure_is_kept_unless_told_and_an_input_always(trajcli, out):
    Path("fig.png").write_bytes(b"mine")
    result = trajcli("plot out.h5 -o fig.png")
    assert result.code == 2
    assert "already exists" in result.err
    assert Path("fig.png").read_bytes() == b"mine"
    assert trajcli("plot out.h5 -o fig.png --overwrite").code == 0
    Path("out.png").symlink_to(out)
    assert "the output is an input" in trajcli("plot out.h5 -o out.png --overwrite").err
    assert h5py.is_hdf5(out)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("plot out.h5 -o fig.gif", "FIG.png, FIG.svg or FIG.pdf"),
        ("plot out.h5 -o fig", "FIG.png, FIG.svg or FIG.pdf"),
        ("plot out.h5 -o nowhere/fig.png", "no such folder"),
        ("plot out.h5 --episodes 64 -o fig.png", "out of range"),
        ("plot out.h5 --dofs 9 -o fig.png", "numbers from 0 to 6"),
        ("plot out.h5 --dofs elbow -o fig.png", "or names: panda_joint1"),
        ("plot out.h5 --limits none.toml -o fig.png", "none.toml"),
        ("plot out.h5 out.h5 --histogram -o fig.png", "a histogram shows one file"),
    ],
)
def test_what_cannot_be_drawn_is_exit_2_and_leaves_nothing(trajcli, out, line, message):
    result = trajcli(line)
    assert result.code == 2
    assert message in result.err
    assert [path.name for path in Path().iterdir()] == ["out.h5"]


def test_without_matplotlib_the_line_that_installs_it_is_printed(trajcli, out, monkeypatch):
    for name in [name for name in sys.modules if name.partition(".")[0] == "matplotlib"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    result = trajcli("plot out.h5 -o fig.png")
    assert result.code == 2
    assert "try:      pip install matplotlib\n" in result.err
    assert not Path("fig.png").exists()


def test_nothing_is_written_into_the_home_folder(out, tmp_path):
    home = tmp_path / "home"
    home.mkdir()
    command = [sys.executable, "-m", "trajcli", "plot", str(out), "-o", str(tmp_path / "f.png")]
    env = {"HOME": str(home), "PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"}
    subprocess.run(command, env=env, check=True, capture_output=True)
    assert list(home.iterdir()) == []


def test_limits_of_positions_are_drawn_whatever_they_are_called_and_missed_where_none_are(
    trajcli, folder
):
    np.savez("in.npz", q=np.zeros((2, 30, 2)), dt=0.1)
    Path("limits.toml").write_text("[position]\nlower = [-1.5, -1.5]\nupper = [1.5, 1.5]\n")
    Path("jerks.toml").write_text("[jerk]\nupper = [1.0, 1.0]\n")
    for line in ("in.npz", "in.npz:q", "in.npz --histogram"):
        drawn = trajcli(f"plot {line} --limits limits.toml -o with.svg --overwrite")
        assert drawn.code == 0, drawn.err
        missed = trajcli(f"plot {line} --limits jerks.toml -o none.svg")
        assert (missed.code, "no limits of what is drawn" in missed.err) == (2, True)
        assert not Path("none.svg").exists()
        assert trajcli(f"plot {line} -o without.svg --overwrite").code == 0
        assert Path("with.svg").read_text() != Path("without.svg").read_text()


@pytest.mark.parametrize(
    ("size", "inches"), [("3.5x2.6in", (3.5, 2.6)), ("88.9x66.04mm", (3.5, 2.6))]
)
def test_a_figure_has_the_size_of_a_column(trajcli, out, figures, size, inches):
    assert trajcli("plot out.h5 -o fig.pdf --size", size).code == 0
    np.testing.assert_allclose(figures[0].get_size_inches(), (3.5, 2.6), rtol=1e-12)


@pytest.mark.parametrize(
    "option",
    ["--size 3.5", "--size 3x4pt", "--size 0x3in", "--size 1..2x3in", "--labels a", "--labels a,"],
)
def test_sizes_and_labels_that_do_not_fit_are_refused(trajcli, out, option):
    Path("copy.h5").write_bytes(out.read_bytes())
    refused = trajcli(f"plot out.h5 copy.h5 {option} -o fig.png")
    assert refused.code == 2
    assert option.split()[0] in refused.err
    assert not Path("fig.png").exists()


def test_one_dof_of_several_files_has_a_colour_for_each(trajcli, out, figures):
    Path("copy.h5").write_bytes(out.read_bytes())
    line = "plot out.h5 copy.h5 --dofs 2 --labels measured,planned -o fig.png"
    assert trajcli(line).code == 0
    drawn = [one.get_color() for one in figures[0].axes[0].get_lines()]
    assert len(set(drawn)) == 2
    (legend,) = figures[0].legends
    assert {"measured", "planned"} <= {text.get_text() for text in legend.get_texts()}


def test_components_of_a_quaternion_and_of_its_rates_have_colours_of_their_own(
    trajcli, samples, tmp_path, monkeypatch, figures
):
    monkeypatch.chdir(tmp_path)
    command = f"differentiate {samples}/camera.h5:orientation_xyzw -o out.h5"
    assert trajcli(command).code == 0
    assert trajcli("plot out.h5 -o fig.svg").code == 0
    (figure,) = figures
    (legend,) = figure.legends
    colours = {x.get_label(): (x.get_color(), x.get_linestyle()) for x in legend.get_lines()}
    assert list(colours) == ["qw", "qx", "qy", "qz", "q", "x", "y", "z"]
    for axis, quantity in enumerate(("orientation", "angle from the start", "angular_velocity")):
        for name in (("qw", "qz"), ("q",), ("x", "z"))[axis]:
            drawn = line(figure, axis, f"{quantity}/{name}")
            assert (drawn.get_color(), drawn.get_linestyle()) == colours[name]
    assert len(set(colours.values())) == 8
