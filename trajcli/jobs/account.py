"""What a share has to do, and what has become of it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from trajcli.errors import Stopped, TrajcliError
from trajcli.jobs.share import Share
from trajcli.jobs.units import Unit


@dataclass
class Account:
    """What a share has to do and what has become of it."""

    share: Share
    mine: Sequence[Unit]
    units: int
    before: int = 0
    done: int = 0
    bytes_done: int = 0
    bytes_moved: int = 0
    bad: int = 0
    halved: int = 0
    failed: list[tuple[Unit, TrajcliError]] = field(default_factory=list)
    elsewhere: list[Unit] = field(default_factory=list)
    redone: list[str] = field(default_factory=list)
    began: float = field(default_factory=time.perf_counter)

    @property
    def seconds(self) -> float:
        """How long it has taken."""
        return time.perf_counter() - self.began

    @property
    def gb_per_s(self) -> float:
        """Bytes read and written in this process, per second."""
        return self.bytes_moved / max(self.seconds, 1e-9) / 1e9

    @property
    def exit_code(self) -> int:
        """1 where trajectories were refused, 75 where another run still has some, else 0."""
        return 1 if self.failed else Stopped.exit_code if self.elsewhere else 0

    def report(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "share": {
                "index": self.share.index,
                "number": self.share.number,
                "local": self.share.local,
                "why": self.share.why,
            },
            "units": {
                "all": self.units,
                "mine": len(self.mine),
                "done_before": self.before,
                "done": self.done,
                "failed": [
                    {"unit": unit.number, "trajectories": unit.trajectories,
                     "faults": [fault.as_dict() for fault in error.faults]}
                    for unit, error in self.failed
                ],
                "elsewhere": [unit.number for unit in self.elsewhere],
                "redone": self.redone,
            },
            "bytes_written": self.bytes_done,
            "seconds": self.seconds,
            "gb_per_s": self.gb_per_s,
            "exit_code": self.exit_code,
        }  # fmt: skip
