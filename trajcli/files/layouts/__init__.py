"""How robot projects lay out their files: a small class for each family."""

from __future__ import annotations

from trajcli.errors import Fault, UsageError
from trajcli.files.arrays import ArrayFile
from trajcli.files.layouts.demos import IsaacLab, Libero, MimicGen, Robomimic, Robosuite
from trajcli.files.layouts.layout import Layout, Member, Step
from trajcli.files.layouts.lerobot import LeRobot
from trajcli.files.layouts.others import Aloha, D4rl, ManiSkill, Minari

LAYOUTS: dict[str, type[Layout]] = {
    kind.name: kind
    for kind in (
        Libero,
        MimicGen,
        Robosuite,
        IsaacLab,
        Robomimic,
        Aloha,
        ManiSkill,
        D4rl,
        Minari,
        LeRobot,
    )
}
"""By name; where several fit, the first is the nearest."""

PLAIN = "plain"
"""--layout plain: arrays with names, and no family."""


def layout_of(file: ArrayFile, wanted: str | None = None) -> Layout | None:
    """The layout of a file: the one that is wanted, or the one that fits; None for plain arrays.

    Raises UsageError for a layout that is unknown.
    """
    if wanted is not None and wanted not in (*LAYOUTS, PLAIN):
        expected = ", ".join((*LAYOUTS, PLAIN))
        raise UsageError(Fault("unknown layout", "--layout", expected, repr(wanted)))
    if wanted == PLAIN or file.family in ("npy", "npz"):
        return None
    if wanted is not None:
        return LAYOUTS[wanted](file)
    if not file.children():
        return None
    return next((kind(file) for kind in LAYOUTS.values() if kind.fits(file)), None)


__all__ = ["LAYOUTS", "PLAIN", "Layout", "Member", "Step", "layout_of"]
