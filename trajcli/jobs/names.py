"""Names of inputs and outputs: what may be written over, and what an output says of them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from trajcli.errors import Fault, OutputError
from trajcli.files.placing import output_family


def without_folders(text: str, paths: Sequence[str]) -> str:
    """The same words with file names for paths: an output must not depend on where files lie."""
    for path in sorted(paths, key=len, reverse=True):
        text = text.replace(path, os.path.basename(path))
    return text


def refuse_inputs_as_output(out: Path, inputs: Sequence[str]) -> None:
    """OUT must not be, or hold, a file that is read."""
    for path in inputs:
        same = os.path.exists(out) and os.path.exists(path) and os.path.samefile(path, out)
        inside = output_family(out) == "npy" and Path(os.path.realpath(path)).is_relative_to(
            os.path.realpath(out)
        )
        if same or inside:
            hint = "choose another name for the output"
            raise OutputError(Fault("OUT is an input", str(out), "another file", path, hint))
