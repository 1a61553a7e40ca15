"""trajcli plot: figures that hold what the data hold."""

from __future__ import annotations

import io
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


def look(one: Any) -> tuple[str, float]:
    """Dashes and opacity of a line."""
    return str(one._unscaled_dash_pattern), one.get_alpha()  # get_linestyle() calls all dashes --


def pixels(path: Path) -> np.ndarray:
    from matplotlib.image import imread

    return np.asarray(imread(path))


@pytest.mark.parametrize("kind", ["png", "svg", "pdf"])
def test_a_figure_of_each_kind_is_drawn_to_the_same_bytes_twice(trajcli, out, samples, kind):
    line = f"plot out.h5 --limits {samples}/limits.toml -o"
    assert trajcli(f"{line} a.{kind}").code == 0
    assert trajcli(f"{line} b.{kind}").code == 0
    first = Path(f"a.{kind}").read_bytes()
    assert first == Path(f"b.{kind}").read_bytes()
    assert len(first) > 5000
    head = {"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF"}
    assert first.startswith(head[kind])
    assert b"Date" not in first
    if kind == "svg":
        text = first.decode()
        xml.dom.minidom.parseString(text)
        assert "panda_joint4" in text
    left = sorted(path.name for path in Path().iterdir())
    assert left == sorted([f"a.{kind}", f"b.{kind}", "out.h5"])


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
        ("--mode jerk --scheme zoh", {"jerk": "pre"}),
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


@pytest.mark.parametrize("options", ["--mode jerk --scheme euler", "--mode clique",
                                     "--mode bspline --degree 3 --steps 4"])  # fmt: skip
def test_a_jerk_drawn_in_steps_is_the_slope_of_the_acceleration(trajcli, folder, figures, options):
    job = f"integrate actions.npy --start start.npy --dt 0.1 {options} --dtype float64 -o job.h5"
    assert trajcli(job).code == 0
    assert trajcli("plot job.h5 --dofs 1 -o fig.png").code == 0
    (figure,) = figures
    jerk, acceleration = line(figure, 3, "jerk/1"), line(figure, 2, "acceleration/1")
    slopes = np.diff(acceleration.get_ydata()) / np.diff(acceleration.get_xdata())
    values = jerk.get_ydata()
    drawn = values[1:] if jerk.get_drawstyle() == "steps-pre" else values[:-1]
    np.testing.assert_allclose(drawn, slopes, atol=1e-9 * np.abs(slopes).max())


def test_there_is_ink_in_every_panel_in_the_colours_of_the_lines(trajcli, out):
    assert trajcli("plot out.h5 --dofs 0:3 -o fig.png").code == 0
    image = pixels(Path("fig.png"))
    assert image.shape[1] == 1400
    from trajcli.views.figures import COLOURS

    panel = image[100:, 200:].shape[0] // 4
    for i in range(4):
        part = image[100 + i * panel : 100 + (i + 1) * panel, 200:, :3]
        for colour in COLOURS[:3]:
            wanted = np.array([int(colour[k : k + 2], 16) for k in (1, 3, 5)]) / 255
            assert (np.abs(part - wanted).max(axis=2) < 0.02).sum() > 50


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
    assert len({one.get_color() for one in lines}) == 1
    assert len({(one.get_linestyle(), one.get_alpha()) for one in lines}) == 6
    assert [one.get_linestyle() for one in lines] == ["-"] * 3 + ["--"] * 3
    legend = [text.get_text() for text in figure.legends[0].get_texts()]
    assert {"out.h5", "other.h5", "trajectory 0", "trajectory 1", "trajectory 2"} <= set(legend)
    title = figure.legends[0].get_title().get_text()
    assert title == "out.h5, other.h5, trajectories 0, 1, 2"


def test_each_of_several_trajectories_has_a_look_of_its_own_that_the_legend_names(
    trajcli, out, figures
):
    assert trajcli("plot out.h5 --episodes 0:12 --dofs 0:2 -o fig.png").code == 0
    (figure,) = figures
    looks = [look(one) for one in figure.axes[0].get_lines()
             if one.get_gid() == "position/panda_joint1"]  # fmt: skip
    assert len(set(looks)) == 12
    legend = {one.get_label(): look(one) for one in figure.legends[0].get_lines()}
    assert [legend[f"trajectory {n}"] for n in range(12)] == looks


@pytest.mark.parametrize(
    ("words", "title"),
    [
        ("", "out.h5, trajectory 0"),
        (" --episodes 3", "out.h5, trajectory 3"),
        (" --episodes 3,4", "out.h5, trajectories 3, 4"),
        (" --episodes 3:9:2", "out.h5, trajectories 3, 5, 7"),
        (" --episodes ::9", "out.h5, trajectories 0, 9, 18, 27, 36, 45 and 2 more"),
        (" --histogram", "out.h5"),
        (" --title mine", "mine"),
        (" --title 軌道", "軌道"),  # of which Matplotlib's own font has no letter
        (" --title=", ""),
    ],
)
def test_the_title_says_which_file_and_trajectories(trajcli, out, figures, words, title):
    line = f"plot {out}:position -o fig.png --dofs 0{words}"
    assert trajcli(line).code == 0
    (figure,) = figures
    found = figure.legends[0].get_title().get_text() if figure.legends else ""
    assert found == title.replace("out.h5", "out.h5:position")


def test_the_title_says_which_trajectory_of_which_file(trajcli, folder, figures):
    for name, count in (("a", 3), ("b", 5)):
        with h5py.File(f"{name}.h5", "w") as file:
            for n in range(count):
                file[f"demo_{n}/actions"] = np.random.default_rng(n).standard_normal((4, 2))
    assert trajcli("plot a.h5 b.h5 --episodes -1 -o fig.png").code == 0
    title = figures[0].legends[0].get_title().get_text()
    assert title == "a.h5, b.h5, trajectories demo_2, demo_4"


def test_plot_draws_the_first_trajectory_or_all_as_its_help_says(trajcli, folder, figures):
    with h5py.File("in.h5", "w") as file:
        file["position"] = np.random.default_rng(0).standard_normal((5, 6, 2))
    for words, count in (("", 1), (" --episodes all", 5)):
        assert trajcli(f"plot in.h5 --dofs 0 -o fig.png --overwrite{words}").code == 0
        lines = [one for one in figures[-1].axes[0].get_lines() if one.get_gid() == "position/0"]
        assert len(lines) == count
    text = " ".join(trajcli("plot --help").out.replace("│", " ").split())
    assert "or all. (default: the first; --histogram: all)" in text


def test_an_array_of_robot_data_is_drawn_over_the_time_of_its_layout(trajcli, folder, figures):
    with h5py.File("demos.hdf5", "w") as file:
        for n in range(3):
            file[f"data/demo_{n}/actions"] = np.zeros((5 + n, 4))
            file[f"data/demo_{n}/obs/robot0_joint_pos"] = np.random.default_rng(n).random(
                (5 + n, 3)
            )
            file[f"data/demo_{n}"].attrs["num_samples"] = 5 + n
        file["data"].attrs["env_args"] = '{"env_kwargs": {"control_freq": 20}}'
    job = "plot demos.hdf5:obs/robot0_joint_pos[:2] --episodes 1,2 -o fig.png"
    assert trajcli(job).code == 0
    (figure,) = figures
    assert figure.axes[-1].get_xlabel() == "time (s)"
    drawn = [one for one in figure.axes[0].get_lines() if (one.get_gid() or "").startswith("robot")]
    assert [len(one.get_xdata()) for one in drawn] == [6, 6, 7, 7]
    np.testing.assert_allclose(drawn[-1].get_xdata(), 0.05 * np.arange(7))
    assert trajcli("plot demos.hdf5:obs/robot0_joint_pos --histogram -o all.png").code == 0


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


@pytest.fixture
def offside(folder) -> Path:
    """Three joints: the second on the wrong side of its limits, the third once below its own."""
    random = np.random.default_rng(0)
    position = random.uniform(-0.3, 0.3, (6, 20, 3))
    position[:, :, 1] = 0.5 + 0.01 * position[:, :, 1]
    position[4, 7, 2] = -0.9
    velocity = random.uniform(-1, 1, (6, 20, 3))
    with h5py.File("in.h5", "w") as file:
        file["position"], file["velocity"] = position, velocity
    Path("limits.toml").write_text(
        "[position]\nlower = [-9.0, -3.07, -0.8]\nupper = [9.0, -0.07, 0.8]\n"
        "[velocity]\nupper = [2.0, 2.0, 2.0]"
    )
    return folder


def test_a_histogram_shows_which_side_of_a_limit_positions_are_on(trajcli, offside, figures):
    assert trajcli("plot in.h5 --histogram --limits limits.toml -o fig.png").code == 0
    panel = figures[0].axes[0]
    limits = {at for one in panel.get_lines() if one.get_gid() == "limit" for at in one.get_xdata()}
    assert limits == {-9.0, 9.0, -3.07, -0.07, -0.8, 0.8}
    legend = [text.get_text() for text in figures[0].legends[0].get_texts()]
    assert legend == ["limit"]
    bars = next(p for p in panel.patches if p.get_gid() == "position/2")
    assert any(abs(edge + 0.8) < 1e-6 for edge in bars.get_data().edges)  # no bar on both sides


def test_limits_far_from_all_values_do_not_squeeze_the_bars(trajcli, offside, figures):
    assert trajcli("plot in.h5 --histogram --limits limits.toml -o fig.png").code == 0
    left, right = figures[0].axes[0].get_xlim()  # values lie in -0.9 to 0.51, one limit at 9
    assert -4 < left < -3.07
    assert 0.8 < right < 4


def test_only_the_chosen_trajectories_are_counted(trajcli, offside, figures):
    for words, count in ((" --episodes 4", 1), (" --episodes 0:3", 3), ("", 6)):
        assert trajcli(f"plot in.h5 --histogram -o fig.png --overwrite{words}").code == 0
        title = figures[-1].axes[0].get_title(loc="left")
        assert title.startswith(f"{count} trajector")


def test_groups_with_fewer_trajectories_are_left_out_of_later_ones(trajcli, folder, figures):
    with h5py.File("in.h5", "w") as file:
        file["position"] = np.random.default_rng(0).random((5, 4, 2))
        file["reference/velocity"] = np.random.default_rng(1).random((2, 4, 2))
    for words in ("--episodes 3", "--episodes 3 --histogram"):
        assert trajcli(f"plot in.h5 {words} -o fig.png --overwrite").code == 0
        assert len(figures[-1].axes) == 1


def test_padding_and_nan_are_no_peaks(trajcli, folder, figures):
    values = np.full((2, 5, 1), 0.5)
    values[0, 3:], values[1, 1] = 0.0, np.nan
    with h5py.File("in.h5", "w") as file:
        file["position"], file["lengths"] = values, np.array([3, 5])
    assert trajcli("plot in.h5 --histogram -o fig.png").code == 0
    (bars,) = [p for p in figures[0].axes[0].patches if p.get_gid() == "position/0"]
    values, edges, _ = bars.get_data()
    assert [(a, b) for a, b, n in zip(edges[:-1], edges[1:], values, strict=True)
            if n > 0 and not a <= 0.5 <= b] == []  # fmt: skip


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


def test_the_colours_are_apart_for_all_eyes():
    from trajcli.views.figures import COLOURS

    okabe_ito = {"#000000", "#E69F00", "#56B4E9", "#009E73", "#F0E442", "#0072B2", "#D55E00",
                 "#CC79A7"}  # fmt: skip
    assert set(COLOURS) <= okabe_ito


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
        ("plot out.h5 out.h5 --histogram -o fig.png", "a histogram is of one file"),
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


def test_the_users_settings_of_matplotlib_change_nothing(trajcli, out, monkeypatch):
    assert trajcli("plot out.h5 -o a.png").code == 0
    import matplotlib

    with matplotlib.rc_context({"lines.linewidth": 9, "font.size": 30}):
        assert trajcli("plot out.h5 -o b.png").code == 0
    assert Path("a.png").read_bytes() == Path("b.png").read_bytes()
    assert io.BytesIO(Path("a.png").read_bytes()).read(4) == b"\x89PNG"
