"""What the user asks for, as plain values: one field per option, nothing looked up yet."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trajcli.files.schema import QUANTITIES


@dataclass(frozen=True)
class Request:
    """An integrate job. ``start`` and ``goal`` are as typed; ``*_parts`` name single parts."""

    sources: Sequence[str]
    out: Path
    mode: str = "acceleration"
    options: Mapping[str, Any] = field(default_factory=dict)
    dt: str | None = None
    rate: float | None = None
    times: str | None = None
    repeated_times: str = "error"
    start: str | None = None
    start_parts: Mapping[str, str] = field(default_factory=dict)
    start_index: str | None = None
    goal: str | None = None
    goal_parts: Mapping[str, str] = field(default_factory=dict)
    goal_index: str | None = None
    grad: str | None = None
    cost: str | None = None
    factor: float | None = None
    wrt: Sequence[str] | None = None
    write: Sequence[str] = QUANTITIES
    dtype: str | None = None
    units: str | None = None
    device: str = "auto"
    backend: str = "auto"
    memory: int = 256 << 20
    overwrite: bool = False
    durable: bool = False
    allow_nonfinite: bool = False
    allow_external: bool = False
    untrusted: bool = False
