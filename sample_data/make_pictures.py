"""Make the pictures and the transcript of the pages: ``python sample_data/make_pictures.py``.

Writes pictures/*.png beside this script, or into a folder that is named, and prints what the
commands print. Everything is drawn from the sample files; needs matplotlib.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from trajcli.cli import main

HERE = Path(__file__).resolve().parent
POINTS = "integrate sample_data/control_points.npz --mode bspline --steps 5"
PICTURES = {
    "reach.png": ("plot sample_data/reach.h5 --episodes 3 --limits sample_data/limits.toml",),
    "peaks.png": ("plot sample_data/reach.h5 --histogram --limits sample_data/limits.toml",),
    "schemes.png": (
        "resample sample_data/accelerations.npy --dt 0.02 --to 5 -o {made}/coarse.h5",
        *(
            f"integrate {{made}}/coarse.h5 --start sample_data/start.npy --scheme {scheme} "
            f"--write position,velocity,acceleration -o {{made}}/{scheme}.h5"
            for scheme in ("euler", "zoh", "foh")
        ),
        "plot {made}/euler.h5 {made}/zoh.h5 {made}/foh.h5 --dofs 1 --title=",
    ),
    "degrees.png": (
        f"{POINTS} --degree 3 -o {{made}}/degree3.h5",
        f"{POINTS} --degree 5 -o {{made}}/degree5.h5",
        "plot {made}/degree3.h5 {made}/degree5.h5 --dofs 0 --title=",
    ),
    "retimed.png": (
        f"{POINTS} --degree 5 --ends goal --units rad --episodes 0 -o {{made}}/reach.h5",
        *(
            f"retime {{made}}/reach.h5 --limits sample_data/gentle.toml --method {method} "
            f"-o {{made}}/{method}.h5"
            for method in ("fastest", "uniform")
        ),
        "plot {made}/fastest.h5 {made}/uniform.h5 --labels fastest,uniform --dofs 2,6 --title= "
        "--size 6.4x5.6in",
    ),
    "differences.png": (
        f"{POINTS} --degree 5 -o {{made}}/exact.h5",
        "resample {made}/exact.h5 --to 10 -o {made}/rows.h5",
        "differentiate {made}/rows.h5:position --method backward -o {made}/backward.h5",
        "differentiate {made}/rows.h5:position --method central -o {made}/central.h5",
        "plot {made}/exact.h5 {made}/backward.h5 {made}/central.h5 --dofs 0 --title=",
    ),
}
"""What is run for each; the last command draws it. {made}: a folder for what others write."""
TRANSCRIPT = (
    "integrate sample_data/reach.h5 --mode jerk --scheme zoh -o out.h5 --overwrite",
    "inspect out.h5 --episodes 3 --dofs 0,4",
    "check out.h5 --limits sample_data/limits.toml",
    "diff out.h5:position sample_data/reach.h5:reference/position --atol 1e-11",
)


def draw_conventions(path: Path) -> None:
    """Draw what w, x, y, z mean, both frames of ω, and what differences by component make of it."""
    import numpy as np
    from matplotlib import pyplot

    from trajcli import rotations

    figure = pyplot.figure(figsize=(9.0, 3.8), layout="constrained")
    left, right = figure.add_subplot(1, 2, 1, projection="3d"), figure.add_subplot(1, 2, 2)
    colours = ("#d62728", "#2ca02c", "#1f77b4")
    turn: Any = rotations.exp(np.deg2rad([0.0, 0.0, 50.0]))
    omega = np.array([0.6, 0.0, 0.8])  # of the body
    axes = np.asarray(rotations.rotate(turn, np.eye(3)))
    for k, name in enumerate("xyz"):
        for tail, vector, style in ((np.zeros(3), np.eye(3)[k], ":"), (AT, 0.8 * axes[k], "-")):
            left.quiver(*tail, *vector, color=colours[k], linestyle=style, arrow_length_ratio=0.12)
        left.text(*(1.1 * np.eye(3)[k]), f"{name} world", fontsize=8)
        left.text(*(AT + 0.9 * axes[k]), f"{name} body", fontsize=8)
    world = np.round(rotations.rotate(turn, omega), 2)
    left.quiver(*AT, *world, color="black", linewidth=2, arrow_length_ratio=0.12)
    left.text(*(AT + 1.05 * world), "ω", fontsize=11)
    left.set_title(
        f"q = (w, x, y, z) = {tuple(turn.round(2).tolist())}\n"
        f"ω = {tuple(world.tolist())} rad/s in the world, {tuple(omega.tolist())} in the body",
        fontsize=9,
    )
    left.set(xlim=(-0.2, 2), ylim=(0, 2), zlim=(0, 1.2))
    left.set_box_aspect((2.0, 2.0, 1.2), zoom=1.1)
    left.set_axis_off()
    left.view_init(25, -60)
    times = np.linspace(0.0, 1.0, 101)
    vectors = np.deg2rad([[159.0, 0.0, 0.0], [-159.0, 0.0, 0.0]])
    ends = rotations.to_quaternions(vectors, "rotvec")
    by_component = rotations.exp(vectors[0] + times[:, None] * (vectors[1] - vectors[0]))
    found = rotations.resample(ends, "slerp", dt=1.0, at=times).orientation[0]
    for name, rows in (("by component", by_component), ("slerp, squad, spline", found)):
        right.plot(times, np.rad2deg(rotations.angle(ends[:1], rows)), label=name)
    right.set(xlabel="time (s)", ylabel="angle from the start (°)")
    right.set_title("Rotation vectors 42° apart, resampled", fontsize=9)
    right.legend()
    figure.savefig(path, dpi=110)


def draw_methods(path: Path) -> None:
    """Draw what methods of differentiation make of the noise of a slow and of a fast motion."""
    import numpy as np
    from matplotlib import pyplot

    import trajcli

    random, times = np.random.default_rng(2), np.arange(300) / 100
    figure, axes = pyplot.subplots(3, 2, figsize=(8.0, 5.2), sharex=True, layout="constrained")
    for column, (rate, noise) in zip(axes.T, ((0.4, 0.01), (4.0, 0.01)), strict=True):
        angle = 2 * np.pi * rate * times
        exact = [(2 * np.pi * rate) ** k * np.sin(angle + k * np.pi / 2) for k in range(3)]
        rows = exact[0] + random.normal(0.0, noise, len(times))
        column[0].plot(times, rows, ".", color="#888888", markersize=2, label="recorded")
        methods: Any = ("savgol", "#E69F00"), ("smooth", "#0072B2")
        for method, colour in methods:
            found: Any = trajcli.differentiate(rows[:, None], dt=0.01, method=method)
            for axis, values in zip(column, found, strict=False):
                axis.plot(times, values[0, :, 0], color=colour, linewidth=1.2, label=method)
        for axis, values in zip(column, exact, strict=True):
            axis.plot(times, values, "--", color="black", linewidth=0.7, label="exact")
        cutoff = found.options["bandlimit"][0, 0]
        column[0].set_title(f"{rate:g} Hz; smooth chose {cutoff:.2g} Hz", fontsize=9)
        column[2].set_xlabel("time (s)")
    for axis, name in zip(axes[:, 0], ("position", "velocity", "acceleration"), strict=True):
        axis.set_ylabel(name)
    axes[0, 1].legend(fontsize=7, loc="upper right", ncols=4)
    axes[0, 1].set_ylim(-1.2, 1.7)
    figure.savefig(path, dpi=110)


AT = (1.3, 1.0, 0.0)
"""Where the body is drawn."""


def make(folder: Path) -> int:
    """Write every picture into a folder; the first exit code that is not 0, if any."""
    os.chdir(HERE.parent)
    folder.mkdir(parents=True, exist_ok=True)
    codes = []
    for name, lines in PICTURES.items():
        with tempfile.TemporaryDirectory() as made:
            *before, plot = (line.format(made=made).split() for line in lines)
            codes += [main([*words, "--quiet"]) for words in before]
            codes.append(main([*plot, "-o", str(folder / name), "--overwrite"]))
    draw_conventions(folder / "rotations.png")
    draw_methods(folder / "methods.png")
    for line in TRANSCRIPT:
        print(f"$ trajcli {line}", flush=True)
        codes.append(main(line.split()))
    return next((code for code in codes if code), 0)


if __name__ == "__main__":
    sys.exit(make(Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else HERE / "pictures"))
