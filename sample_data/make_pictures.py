"""Make the pictures and the transcript of the README: ``python sample_data/make_pictures.py``.

Writes pictures/*.png beside this script, or into a folder that is named, and prints what the
commands print. Everything is drawn from the sample files; needs matplotlib.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from trajcli.cli import main

HERE = Path(__file__).resolve().parent
PICTURES = {
    "reach.png": "plot sample_data/reach.h5 --episodes 3 --limits sample_data/limits.toml",
    "peaks.png": "plot sample_data/reach.h5 --histogram --limits sample_data/limits.toml",
}
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
    for name, line in PICTURES.items():
        codes.append(main([*line.split(), "-o", str(folder / name), "--overwrite"]))
    for line in TRANSCRIPT:
        print(f"$ trajcli {line}", flush=True)
        codes.append(main(line.split()))
    return next((code for code in codes if code), 0)


if __name__ == "__main__":
    sys.exit(make(Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else HERE / "pictures"))
