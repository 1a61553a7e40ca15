"""How SOURCEs are understood: the same options, with one meaning, in every command."""

from __future__ import annotations

import math
from dataclasses import dataclass

from trajcli.errors import UsageError
from trajcli.units import InputUnits, parse_option


@dataclass(frozen=True, kw_only=True)
class Reading:
    """How the files of a SOURCE are read, as typed; None takes what the files say.

    layout: the family of the files. filter_key: only the trajectories listed by this name. dofs:
    which, by number or name. joints: their names. episodes: which trajectories. dt, rate, times:
    steps, or stamps of the rows. units: what values are in. allow_external: follow links, storage
    and virtual datasets out of a file.
    """

    layout: str | None = None
    filter_key: str | None = None
    dofs: str | None = None
    joints: str | None = None
    episodes: str | None = None
    dt: str | None = None
    rate: float | None = None
    times: str | None = None
    units: str | None = None
    allow_external: bool = False

    @property
    def plain(self) -> bool:
        """Whether nothing says which trajectories, dofs or units are meant."""
        named = (self.layout, self.filter_key, self.dofs, self.joints, self.units)
        return all(one is None for one in named)

    @property
    def input_units(self) -> InputUnits:
        """The units that are typed; raises UsageError for what is not known."""
        return InputUnits() if self.units is None else parse_option(self.units)


@dataclass(frozen=True, kw_only=True)
class Repair:
    """What is done to recordings before they are used, as typed.

    max_gap: seconds; stamps further apart end one trajectory and begin another. repeated_times:
    "drop" leaves out rows whose stamp repeats the one before. wrap_dofs: angles that wrap.
    """

    max_gap: float | None = None
    repeated_times: str = "error"
    wrap_dofs: str | None = None

    def refuse_gap(self) -> None:
        """Raise UsageError for a gap that is no length of time."""
        gap = self.max_gap
        if gap is not None and not (math.isfinite(gap) and gap > 0):
            raise UsageError("not a gap", where="--max-gap", expected="seconds > 0", found=str(gap))
