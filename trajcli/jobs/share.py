"""Which share of a run this process does."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from trajcli.errors import Fault, UsageError


@dataclass(frozen=True)
class Share:
    """Which part of the work this process does."""

    index: int
    number: int
    local: int = 0
    why: str = ""


def find_share(
    index: int | None, number: int | None, auto: bool, environ: Mapping[str, str]
) -> Share | None:
    """The share that the options name; None for a run in one piece."""
    if index is None and number is None:
        return None
    if index is None or number is None or not 0 <= index < number:
        found = f"--shard-index {index} --num-shards {number}"
        expected = "both, the index from 0 to N - 1"
        raise UsageError(Fault("not a share", "--shard-index, --num-shards", expected, found))
    return Share(index, number, 0, "--shard-index, --num-shards")
