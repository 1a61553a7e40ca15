"""The modes, which say what is computed, by name."""

from __future__ import annotations

import operator
import re
from contextlib import suppress
from typing import Any, SupportsIndex

from trajcli.arrays import as_array, read_values
from trajcli.errors import Fault, UsageError, raise_if_any, unknown
from trajcli.modes._savgol import SavitzkyGolay
from trajcli.modes._smooth import Smooth, value_faults
from trajcli.modes.bspline import BSpline
from trajcli.modes.cascade import SCHEMES, Acceleration, Clique, Jerk, Teleport, Velocity
from trajcli.modes.central import Central
from trajcli.modes.mode import ALIGNMENTS, CONVENTIONS, QUANTITIES, Mode

MODES: dict[str, type[Mode]] = {
    "clique": Clique,
    "velocity": Velocity,
    "acceleration": Acceleration,
    "jerk": Jerk,
    "central": Central,
    "savgol": SavitzkyGolay,
    "smooth": Smooth,
    "bspline": BSpline,
    "teleport": Teleport,
}
"""The classes of the modes by name; `trajcli modes` lists formulas, needs and options."""
ALIASES = {"position": "clique", "acc": "acceleration"}
METHODS = {"smooth": "smooth", "savgol": "savgol", "central": "central", "backward": "clique"}
"""The mode of each method of differentiation."""
ENDS = ("plan", "recording", "goal")

WHOLE = {"degree", "steps", "window", "order"}
"""Options that are whole numbers."""

_CHOICES: dict[str, tuple[Any, ...]] = {
    "scheme": SCHEMES,
    "ends": ENDS,
    "alignment": ALIGNMENTS,
    "convention": CONVENTIONS,
    "order": (3, 4),
}


def make_mode(name: str, **options: Any) -> Mode:
    """Returns the mode of a name or alias with options; None means an option's default.

    Raises UsageError for an unknown mode, an option that the mode does not take, or a value that
    the option does not have.
    """
    kind = MODES.get(ALIASES.get(name, name)) if isinstance(name, str) else None
    if kind is None:
        # what only differentiates recordings is a method of that command
        modes = [mode for mode, kind in MODES.items() if kind.takes_start]
        names = [*modes, *(f"{alias} (= {mode})" for alias, mode in ALIASES.items())]
        raise UsageError(unknown("mode", choices=names, found=repr(name)))
    options = {option: value for option, value in options.items() if value is not None}
    faults = [
        fault for option, value in options.items() for fault in _option_faults(kind, option, value)
    ]
    raise_if_any(faults, UsageError)
    for option in options.keys() & WHOLE:
        if not isinstance(options[option], str):
            options[option] = operator.index(options[option])
    return kind(**options)


def make_method(name: str | None, rotations: bool = False, **options: Any) -> Mode:
    """Returns the mode of a method of differentiation; None means an option's default.

    Without a name it is savgol where options are savgol's or dofs are rotations, else smooth.
    Raises UsageError for an unknown method and for options that it does not have.
    """
    if name is None:
        given = {key for key, x in options.items() if x is not None and x is not False}
        savgol = rotations and not given & {*Smooth.option_names()}
        name = "savgol" if savgol or given & {"window", "degree"} else "smooth"
    if not (isinstance(name, str) and name in METHODS):
        raise UsageError(unknown("method", choices=METHODS, found=repr(name)))
    options = {key: x for key, x in options.items() if x is not None and x is not False}
    for owner, names in (("savgol", ("window", "degree")), ("smooth", Smooth.option_names())):
        extra = [key for key in options if key in names]
        if owner != name and extra:
            what = f"method {name} has no {' and no '.join(extra)}"
            hint = f"method {owner} takes {'them' if extra[1:] else 'it'}"
            raise UsageError(what, where=extra[0], hint=hint)
    for key in options.keys() & {"bandlimit", "noise"}:
        values = read_values(as_array(options[key], key), key)
        options[key] = values if values.ndim else values.item()
    raise_if_any(value_faults(options), UsageError)
    return make_mode(METHODS[name], **options)


def _option_faults(kind: type[Mode], option: str, value: Any) -> list[Fault]:
    """Returns the fault of an option that a mode does not take, or that has another value."""
    names, found = kind.option_names(), repr(value)
    if option not in names:
        what, expected = f"mode {kind.name} takes no option {option}", f"one of {', '.join(names)}"
        others = [mode for mode, other in MODES.items() if option in other.option_names()]
        hint = f"it is an option of {', '.join(others)}" if others else ""
        shell = "trajcli modes lists what each mode takes"
        return [Fault(what, where=option, expected=expected, found=found, hint=hint, shell=shell)]
    choices = kind.degrees if option == "degree" else _CHOICES.get(option, ())
    expected = ", ".join(str(choice) for choice in choices) or "a whole number >= 1"
    if option == "window":
        expected += ", or seconds like '0.3s'"
        if isinstance(value, str) and re.fullmatch(r"[0-9]{0,9}\.?[0-9]{1,9}s", value):
            return []
    whole = isinstance(value, SupportsIndex) and not isinstance(value, bool)
    if whole:
        with suppress(TypeError):  # of arrays, and of tensors that are no integers
            value = operator.index(value)
        whole = isinstance(value, int)
    if option in WHOLE and not (whole and (choices or value >= 1)):
        what = f"{option} must be a whole number"
        return [Fault(what, where=option, expected=expected, found=found)]
    if choices and not (isinstance(value, str | int) and value in choices):
        return [unknown(option, choices=expected, found=found)]
    return []


__all__ = ["ALIASES", "ENDS", "METHODS", "MODES", "QUANTITIES", "Mode", "make_method", "make_mode"]
