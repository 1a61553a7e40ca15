"""What an output says of the files it was computed from."""

from __future__ import annotations

import os
from collections.abc import Sequence


def without_folders(text: str, paths: Sequence[str]) -> str:
    """The same words with file names for paths: an output must not depend on where files lie."""
    for path in sorted(paths, key=len, reverse=True):
        text = text.replace(path, os.path.basename(path))
    return text
