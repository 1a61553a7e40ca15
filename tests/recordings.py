"""Calls of integrate and of differentiate alike: a recording is what begins with its first row."""

from __future__ import annotations

from typing import Any

import trajcli

METHODS = {"clique": "backward", "position": "backward"}


def trajectory_of(
    actions: Any, start: Any = None, dt: Any = None, mode: str = "acceleration", **options: Any
) -> trajcli.Trajectory:
    """What integrate gives, or, of recorded positions (start "first"), differentiate."""
    if not (isinstance(start, str) and start == "first"):
        return trajcli.integrate(actions, start, dt, mode, **options)
    given = {name: value for name, value in options.items() if value is not None}
    return trajcli.differentiate(actions, dt=dt, method=METHODS.get(mode, mode), **given)
