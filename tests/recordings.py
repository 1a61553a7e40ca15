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
    options.pop("ends", None)
    return trajcli.differentiate(actions, dt=dt, method=METHODS.get(mode, mode), **options)


def command_of(words: str) -> str:
    """A command line of integrate, or, where it says --start first, of differentiate."""
    parts = words.split()
    if "first" not in parts or parts[parts.index("first") - 1] != "--start":
        return words
    at = parts.index("first")
    del parts[at - 1 : at + 1]
    mode = parts.index("--mode") if "--mode" in parts else None
    if mode is not None:
        parts[mode : mode + 2] = ["--method", METHODS.get(parts[mode + 1], parts[mode + 1])]
    return " ".join(["differentiate", *parts[1:]])
