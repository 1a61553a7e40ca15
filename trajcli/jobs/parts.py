"""A run of trajectories of different length: what it may be asked for, what it writes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Protocol

import numpy as np

from trajcli.errors import Fault, UsageError
from trajcli.files.padded import padded_schema
from trajcli.files.placing import output_family
from trajcli.files.schema import Schema, mirrored_schema, trajectory_values
from trajcli.inputs import Inputs
from trajcli.jobs.lengths import group_names
from trajcli.jobs.names import without_folders
from trajcli.jobs.places import Place
from trajcli.jobs.request import Request

_LONGEST_TEXT = 30_000
"""Bytes; an attribute holds 64 KiB."""


class Part(Protocol):
    """The trajectories of one length."""

    @property
    def inputs(self) -> Inputs:
        """Theirs."""


def refuse_unequal(request: Request, lengths: int) -> None:
    """What trajectories of different length cannot be asked for."""
    if lengths == 1:
        return
    family = output_family(request.out)
    faults = []
    if request.grad is not None or request.cost is not None:
        what = "gradients of trajectories of different length"
        faults.append(Fault(what, "--grad, --cost", "one length", str(lengths), "one at a time"))
    if family != "hdf5" and not request.pack:
        what = "trajectories of different length go to groups of an HDF5 file"
        hint = "--pack makes one array of them, padded with NaN"
        faults.append(Fault(what, str(request.out), "OUT.h5", request.out.suffix, hint))
    if request.compress is not None:
        what = "trajectories of different length are not compressed"
        hint = f"h5repack -f SHUF -f GZIP=4 {request.out} PACKED.h5 packs it afterwards"
        faults.append(Fault(what, "--compress", "one length", f"{lengths} lengths", hint))
    if faults:
        raise UsageError(*faults)


def parts_schema(
    request: Request,
    longest: Schema,
    places: Sequence[Place],
    numbers: Sequence[Any],
    parts: Sequence[Part],
    units: str | None,
    paths: Sequence[str],
) -> Schema:
    """The schema of all lengths, from that of the longest; numbers[k]: whose length is the k-th."""
    total = sum(map(len, numbers))
    rows = [part.inputs.rows for part in parts]
    sources = listed(list(dict.fromkeys(place.name for place in places)))
    longest = replace(
        longest, attributes={**longest.attributes, "source": without_folders(sources, paths)}
    )
    indices = [part.inputs.start_index for part in parts]
    if request.pack:
        whole = padded_schema(longest, numbers, rows, _shared_step(parts))
        if indices[0] is None:
            return whole
        every = np.zeros(total, np.int64)
        for some, index in zip(numbers, indices, strict=True):
            every[some] = np.asarray(index)
        return replace(whole, variables=[*whole.variables, trajectory_values("start_index", every)])
    names = group_names(places, total)
    streamed = [v for v in longest.streamed if v.name != "time"]
    return mirrored_schema(
        [[names[i] for i in some] for some in numbers],
        rows,
        longest.dims["dof"],
        wanted=[variable.name for variable in streamed],
        dtype=streamed[0].dtype.name,
        attributes=longest.attributes,
        start_index=[] if indices[0] is None else indices,
        joint_names=longest.joint_names,
        units=units,
    )


def _shared_step(parts: Sequence[Part]) -> bool:
    """Whether one time of the rows holds for all trajectories."""
    steps = [part.inputs.dt for part in parts]
    return all(step is not None and step.ndim == 0 and step == steps[0] for step in steps)


def listed(sources: Sequence[str]) -> str:
    """Sources a line each; of very many the first."""
    whole = "\n".join(sources)
    return whole if len(whole) < _LONGEST_TEXT else shortly(sources)


def shortly(sources: Sequence[str]) -> str:
    """The first of some sources, and how many more there are."""
    first, *more = dict.fromkeys(sources)
    return f"{first} and {len(more)} more" if more else first
