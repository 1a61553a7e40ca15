"""The modes, which say what is computed, by name."""

from __future__ import annotations

import operator
import re
from contextlib import suppress
from typing import Any, SupportsIndex

import numpy as np

from trajcli.arrays import as_array, read_values
from trajcli.errors import Fault, UsageError, raise_if_any, unknown
from trajcli.mode_options import ALIASES, METHODS, MODE_TABLE, WINDOW
from trajcli.modes._bspline import BSpline
from trajcli.modes._savgol import SavitzkyGolay
from trajcli.modes._smooth import Smooth
from trajcli.modes.cascade import Acceleration, Clique, Jerk, Teleport, Velocity
from trajcli.modes.central import Central
from trajcli.modes.mode import QUANTITIES, Mode

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


def make_mode(name: str, **options: Any) -> Mode:
    """Makes the mode of a name or alias with options; None means an option's default.

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
    entries = {x.name: x for x in MODE_TABLE[kind.name].options}
    faults: list[Fault] = []
    for name, value in options.items():
        entry, found = entries.get(name), repr(value)
        if entry is None:
            # an option of another mode is a likely mistake: the message names that mode
            others = [
                mode for mode, row in MODE_TABLE.items() if name in [x.name for x in row.options]
            ]
            fault = Fault(
                f"mode {kind.name} takes no option {name}",
                where=name,
                expected=f"one of {', '.join(entries)}",
                found=found,
                hint=f"it is an option of {', '.join(others)}" if others else "",
                shell="trajcli modes lists what each mode takes",
            )
            faults.append(fault)
            continue
        expected = ", ".join(map(str, entry.choices)) or "a whole number >= 1"
        if entry is WINDOW:
            expected += ", or seconds like '0.3s'"
            if isinstance(value, str) and re.fullmatch(r"[0-9]{0,9}\.?[0-9]{1,9}s", value):
                continue
        whole = isinstance(value, SupportsIndex) and not isinstance(value, bool)
        if whole:
            with suppress(TypeError):  # of arrays, and of tensors that are no integers
                value = operator.index(value)
            whole = isinstance(value, int)
        integer = entry.type is int or entry is WINDOW
        if integer and not (whole and (entry.choices or value >= 1)):
            what = f"{name} must be a whole number"
            faults.append(Fault(what, where=name, expected=expected, found=found))
        elif entry.choices and not (isinstance(value, str | int) and value in entry.choices):
            faults.append(unknown(name, choices=expected, found=found))
        # integers of NumPy and of torch become plain ones, as attributes and keys of caches
        if integer:
            options[name] = value
    raise_if_any(faults, UsageError)
    return kind(**options)


def make_method(name: str | None, rotations: bool = False, **options: Any) -> Mode:
    """Makes the mode of a method of differentiation; None means an option's default.

    Without a name it is savgol where options are savgol's or dofs are rotations, else smooth.
    Raises UsageError for an unknown method and for options that it does not have.
    """
    options = {key: x for key, x in options.items() if x is not None and x is not False}
    names = {key: {x.name for x in MODE_TABLE[key].options} for key in ("savgol", "smooth")}
    if name is None:
        savgol = rotations and not options.keys() & names["smooth"]
        name = "savgol" if savgol or options.keys() & names["savgol"] else "smooth"
    if not (isinstance(name, str) and name in METHODS):
        raise UsageError(unknown("method", choices=METHODS, found=repr(name)))
    for owner, taken in names.items():
        extra = [key for key in options if key in taken]
        if extra and owner != name:
            what = f"method {name} has no {' and no '.join(extra)}"
            hint = f"method {owner} takes {'them' if extra[1:] else 'it'}"
            raise UsageError(what, where=extra[0], hint=hint)
    # one number for all dofs is stored as a float, which files can state
    for key in options.keys() & {"bandlimit", "noise"}:
        values = read_values(as_array(options[key], key), key)
        options[key] = values if values.ndim else values.item()
    faults = []
    if "bandlimit" in options and "noise" in options:
        faults.append(Fault("both bandlimit and noise", where="noise", expected="one of them"))
    for key, expected in (("bandlimit", "Hz > 0"), ("noise", "a deviation > 0")):
        # NaN is a bandlimit that is to be chosen
        values = np.asarray(options.get(key, 1.0))
        if values.dtype.kind not in "iuf" or ((values <= 0.0) | np.isinf(values)).any():
            found = repr(options[key])
            faults.append(Fault(f"not a {key}", where=key, expected=expected, found=found))
    raise_if_any(faults, UsageError)
    return make_mode(METHODS[name], **options)


__all__ = ["ALIASES", "METHODS", "MODES", "QUANTITIES", "Mode", "make_method", "make_mode"]
