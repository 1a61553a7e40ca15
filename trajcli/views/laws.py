"""What an output's attributes say of the mode that made it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from trajcli.files.schema import RECORDED_START

ORDERS = {"clique": 0, "velocity": 1, "acceleration": 2, "jerk": 3, "central": 0, "teleport": 0}
"""Which derivative of the position the actions are; control points are none."""
CONTEXT = 2
"""Rows on either side of a row that its relation may need."""


@dataclass(frozen=True)
class Law:
    """A mode and the options of it that shape the relation between rows."""

    mode: str
    scheme: str = "euler"
    ends: str = "plan"
    frames: str = "full"
    convention: str = "standard"
    degree: int = 3
    steps: int = 1
    recorded: bool = False

    @property
    def name(self) -> str:
        """The mode, and its scheme where that matters."""
        cascade = self.mode in ORDERS and self.mode not in ("central", "teleport")
        return f"{self.mode}, {self.scheme}" if cascade else self.mode


def law_of(attributes: Mapping[str, Any]) -> Law | None:
    """The law that the attributes of an output tell; None where they are not those of one."""
    mode = str(attributes.get("mode"))
    own = "degree" if mode == "bspline" else "frames"
    if mode not in (*ORDERS, "bspline") or own not in attributes:
        return None
    words = ("scheme", "ends", "frames", "convention")
    told: dict[str, Any] = {k: str(attributes[k]) for k in words if k in attributes}
    for name in ("degree", "steps"):
        value = attributes.get(name)
        if isinstance(value, (int, np.integer)) and value > 0:
            told[name] = int(value)
    recorded = attributes.get("start") == RECORDED_START or told.get("ends") == "recording"
    return Law(mode, **told, recorded=recorded)
