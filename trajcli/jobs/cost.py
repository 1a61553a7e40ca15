"""Costs by formula: weighted sums of squares of the outputs, parsed and never evaluated."""

from __future__ import annotations

import math
import re

from trajcli.errors import Fault, UsageError
from trajcli.files.schema import QUANTITIES

_TERM = r"(?:(?P<weight>[^*]+)\*)?(?P<name>[^*]+)"
_PLUS = r"(?<![eE])\+"  # but not that of 1e+3


def parse_cost(text: str) -> dict[str, float]:
    """``velocity + 0.1*jerk`` → {"velocity": 1.0, "jerk": 0.1}.

    The cost of a trajectory is Σ weight · Σ x², over its rows and dofs. Raises UsageError for an
    empty cost, an unknown quantity, one that comes twice, or anything but NUMBER*NAME terms.
    """
    weights: dict[str, float] = {}
    faults = []
    expected = "terms NAME or NUMBER*NAME joined by +, of " + ", ".join(QUANTITIES)
    for part in re.split(_PLUS, text):
        match = re.fullmatch(_TERM, part.strip())
        name = match["name"].strip() if match else part.strip()
        weight = _number(match["weight"]) if match and match["weight"] else 1.0
        if not match or name not in QUANTITIES or weight is None:
            found = f"{part.strip()!r} in {text!r}" if part.strip() else repr(text)
            faults.append(Fault("not a cost", "--cost", expected, found))
        elif name in weights:
            faults.append(Fault(f"{name} comes twice", "--cost", "each once", repr(text)))
        else:
            weights[name] = weight
    if faults:
        raise UsageError(*faults)
    return weights


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None
