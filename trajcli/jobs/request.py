"""What the user asks for, as plain values: one field per option, nothing looked up yet."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from trajcli.files.schema import QUANTITIES
from trajcli.jobs.share import Share


@dataclass(frozen=True)
class Request:
    """An integrate job. ``start`` and ``goal`` are as typed; ``*_parts`` name single parts."""

    sources: Sequence[str]
    out: Path
    layout: str | None = None
    filter_key: str | None = None
    wrap_dofs: Sequence[int] = ()
    max_gap: float | None = None
    smooth: Sequence[str] = ()
    pack: bool = False
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
    resume: bool = False
    durable: bool = False
    compress: int | None = None
    allow_nonfinite: bool = False
    allow_external: bool = False
    untrusted: bool = False
    share: Share | None = None

    def identity(self, files: Sequence[str]) -> str:
        """All that decides what is computed: the options, and the inputs as they are now."""
        free = ("out", "overwrite", "resume", "durable", "memory", "device", "backend", "share")
        options = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in free}
        inputs = [(os.path.realpath(p), os.stat(p).st_size, os.stat(p).st_mtime_ns) for p in files]
        return json.dumps([options, sorted(inputs)], default=str, sort_keys=True)
