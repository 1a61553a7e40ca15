"""Make the pictures and the transcript of the pages: ``python sample_data/make_pictures.py``.

Writes pictures/*.png beside this script, or into a folder that is named, and prints what the
commands print. Everything is drawn from the sample files; needs matplotlib.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

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
    for line in TRANSCRIPT:
        print(f"$ trajcli {line}", flush=True)
        codes.append(main(line.split()))
    return next((code for code in codes if code), 0)


if __name__ == "__main__":
    sys.exit(make(Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else HERE / "pictures"))
